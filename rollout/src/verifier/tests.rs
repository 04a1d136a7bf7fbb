//! Tests of extraction and comparison.

use super::*;

fn of(kind: &VerifierKind) -> Box<dyn PureVerifier> {
    pure(kind).expect("a pure kind")
}

fn integer() -> Box<dyn PureVerifier> {
    of(&VerifierKind::Integer)
}

fn numeric() -> Box<dyn PureVerifier> {
    of(&VerifierKind::Numeric { tolerance: 1e-6 })
}

fn is_equal(verifier: &dyn PureVerifier, gold: &str, answer: &str) -> bool {
    let comparison = verifier.compare(gold, answer);
    comparison.is_some_and(|comparison| comparison.outcome == Outcome::Equal)
}

fn found(text: &str) -> Option<(String, &'static str)> {
    numeric()
        .extract(text)
        .map(|extracted| (extracted.answer, extracted.rule.name()))
}

fn found_as(answer: &str, rule: &'static str) -> Option<(String, &'static str)> {
    Some((answer.to_owned(), rule))
}

#[test]
fn the_last_whole_box_counts() {
    assert_eq!(
        found("\\boxed{1} then \\boxed{\\frac{1}{2}}."),
        found_as("\\frac{1}{2}", "boxed")
    );
    assert_eq!(found("\\boxed{7} and \\boxed{8"), found_as("7", "boxed"));
    assert_eq!(
        found("Use \\boxed{}. The answer is 5."),
        found_as("5", "answer_is")
    );
    assert_eq!(
        found("<think>\\boxed{1}</think>\\boxed{2}"),
        found_as("2", "boxed")
    );
    let correct = |gold, text| integer().verify(gold, text).correct;
    assert!(!correct("204", "\\boxed{203} \\boxed{204} \\boxed{205}"));
    assert!(!correct("204", "\\boxed{203} or \\boxed{204}"));
    assert!(!correct("204", "\\boxed{203 or 204}"));
    assert!(correct(
        "840",
        "gives \\boxed{840}., once more.\n\n**Final Answer**\n\\boxed{840}"
    ));
    assert!(correct("4", "\\boxed{004}"));
    assert!(!correct("34", "\\boxed{(3,4)}"));
}

#[test]
fn statements_come_before_bare_numbers() {
    assert_eq!(
        found("The answer is 12 apples in 3 boxes."),
        found_as("12", "answer_is")
    );
    assert_eq!(
        found("The answer is 3 + 4 = 7.\nI used 2 steps."),
        found_as("7", "answer_is")
    );
    assert_eq!(
        found("Final Answer: **$1,234.50**"),
        found_as("1,234.50", "answer_is")
    );
    assert_eq!(found("The answer is:\n\n-3"), found_as("-3", "answer_is"));
    assert_eq!(found("so\n#### 1,000"), found_as("1,000", "answer_is"));
    assert_eq!(found("The answer is 203 or 204."), None);
    assert_eq!(
        found("The answer is unclear.\nPerhaps 4"),
        found_as("4", "last_number")
    );
}

#[test]
fn the_last_number_of_the_last_line() {
    assert_eq!(
        found("She has 5.\nThat makes 72 clips, all told.\n"),
        found_as("72", "last_number")
    );
    assert_eq!(
        found("I get 72, and nothing more."),
        found_as("72", "last_number")
    );
    assert_eq!(
        found("not 10 it's 1,000.99m²"),
        found_as("1,000.99", "last_number")
    );
    assert_eq!(found("Answer \\[\n 9 \n\\]"), found_as("9", "last_number"));
    assert_eq!(found("10 - 3"), found_as("3", "last_number"));
    assert_eq!(found("so -> 5"), found_as("5", "last_number"));
    assert_eq!(found("It's −3 degrees"), found_as("−3", "last_number"));
    assert_eq!(found("half of it: 1 1/4"), found_as("1 1/4", "last_number"));
    for text in [
        "#### ,",
        "AZYUK2A",
        "x2",
        "m^2",
        "5 apples\nnone at all",
        "12 or 13",
        "not 5",
        "It isn't 5.",
        "> 5",
        "x >= 5",
        "x ≠ 5",
        "5^",
        "2^5",
        "5 5",
        "",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}

#[test]
fn numbers_are_equal_by_value_and_only_by_value() {
    for (gold, answer) in [
        ("1000", "1,000.0"),
        ("0.4", ".4"),
        ("-10/9", "-\\frac{10}{9}"),
        ("1", "\\frac3{3}"),
        ("1/3", "$\\dfrac{1}{3}$"),
        ("5/4", "1 1/4"),
        ("2.5", "2\\frac{1}{2}"),
        ("7", "+7"),
        ("1000.99", "$1,000.99"),
        ("15", "15\\mbox{ cm}^2"),
        ("90", "90^\\circ"),
        ("5", "x = 5"),
        ("14916", "14{,}916"),
        ("125", "125\\textnormal{ miles}"),
        ("50\\%", "0.5"),
        ("50\\%", "50"),
        ("0.333333333", "1/3"),
        ("0", "-0"),
        ("1000000", "1\\,000\\,000"),
    ] {
        assert!(
            is_equal(numeric().as_ref(), gold, answer),
            "{gold} {answer}"
        );
    }
    for (gold, answer) in [
        ("50", "0.5"),
        ("0.5", "50"),
        ("4.76\\%", "4.75\\%"),
        ("1/2", "1\\frac{1}{2}"),
        ("3", "-3"),
        ("34", "3,4"),
        ("1000", "1,00,0"),
        ("5", "5x"),
        ("2", "2\\pi"),
        ("3", "3\\sqrt{13}"),
        ("1", "1/0"),
        ("0", "3x + 4y = 0"),
        ("2", "2^{99}"),
        ("7", ""),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567891",
        ),
    ] {
        assert!(
            !is_equal(numeric().as_ref(), gold, answer),
            "{gold} {answer}"
        );
    }
}

#[test]
fn the_verdict_says_when_a_percent_sign_was_passed_over() {
    assert_eq!(
        numeric().verify("50\\%", "\\boxed{50}").rule,
        "boxed+percent"
    );
    assert_eq!(numeric().verify("50\\%", "\\boxed{50\\%}").rule, "boxed");
    assert_eq!(numeric().verify("50", "no number").rule, "none");
}

#[test]
fn whole_numbers_need_no_tolerance_and_get_none() {
    let loose = of(&VerifierKind::Numeric { tolerance: 0.5 });
    assert!(!is_equal(loose.as_ref(), "10", "11"));
    assert!(is_equal(loose.as_ref(), "10.5", "11"));
    assert!(
        integer().can_read("042") && !integer().can_read("1/2") && !integer().can_read("(3,4)")
    );
    assert!(numeric().can_read("1/2") && numeric().can_read("-1,234.5"));
}

#[test]
fn exact_compares_texts() {
    let exact = of(&VerifierKind::Exact);
    assert!(exact.verify("New  York", "The answer is New York.").correct);
    assert!(exact.verify("(3, 4)", "so \\boxed{(3, 4)}").correct);
    assert!(exact.verify("B", "I think\nB.").correct);
    assert!(!exact.verify("B", "The answer is b").correct);
}

#[test]
fn absurd_answers_are_judged_quickly() {
    let started = std::time::Instant::now();
    let long = format!("1{}", "0".repeat(100_000));
    let nested = "(".repeat(100_000);
    for answer in [
        long.as_str(),
        &nested,
        "9^{9^{9^{9}}}",
        "\\frac{\\frac{1}{2}}{3}",
        &"1,000".repeat(20_000),
    ] {
        assert!(
            !numeric()
                .verify("10", &format!("\\boxed{{{answer}}}"))
                .correct
        );
        assert!(!numeric().verify("10", answer).correct);
    }
    assert!(started.elapsed().as_secs() < 5);
}

#[test]
fn kinds_have_names_for_configurations() {
    let kind = |text: &str| serde_json::from_str::<VerifierKind>(text).expect("kind");
    assert_eq!(kind("\"integer\""), VerifierKind::Integer);
    assert_eq!(
        kind(r#"{"numeric": {"tolerance": 0.01}}"#),
        VerifierKind::Numeric { tolerance: 0.01 }
    );
    assert_eq!(
        kind("\"code\""),
        VerifierKind::Code(code::CodeLimits::default())
    );
    assert_eq!(
        kind(r#"{"code": {"timeout_ms": 500}}"#),
        VerifierKind::Code(code::CodeLimits {
            timeout_ms: 500,
            ..code::CodeLimits::default()
        })
    );
    let command = kind(r#"{"command": {"program": "check"}}"#);
    let VerifierKind::Command { timeout_ms, .. } = &command else {
        panic!("{command:?}");
    };
    assert_eq!(*timeout_ms, 10_000);
    // What is written is read.
    let all = [
        VerifierKind::Integer,
        VerifierKind::Numeric { tolerance: 0.5 },
        VerifierKind::Math,
        VerifierKind::Exact,
        VerifierKind::Code(code::CodeLimits::default()),
        command,
    ];
    for one in all {
        let text = serde_json::to_string(&one).expect("text");
        assert_eq!(kind(&text), one);
        let yaml: VerifierKind = harness::yaml::from_str(&text).expect("kind");
        assert_eq!(yaml, one);
    }
    let error = |text: &str| {
        let kind: Result<VerifierKind, _> = harness::yaml::from_str(text);
        kind.expect_err("refused").reason
    };
    assert!(error("symbolic").contains("there is no verifier symbolic"));
    assert!(error("numeric").contains("numeric needs a tolerance"));
    assert!(error("{code: {seconds: 3}}").contains("unknown field `seconds`"));
    assert!(error("{numeric: {}}").contains("tolerance"));
}

#[test]
fn hostile_texts_are_judged_quickly() {
    let verifiers = [
        of(&VerifierKind::Math),
        of(&VerifierKind::Integer),
        of(&VerifierKind::Exact),
    ];
    for piece in [
        "\\boxed{",
        "\\boxed{1} ",
        "\\[",
        "\\(",
        "$",
        "$1. ",
        "1,000,",
        "1 ",
        "{",
        "((",
        "-",
        "\\frac{",
        "answer is ",
        "<answer>",
        "<think>",
        "9^",
        "\\sqrt{",
        "\\begin{pmatrix}1&",
        "1+",
        "x^2+",
        "\\pm1,",
        "é",
        "|",
        "\\text{",
        "\n$\n",
        "((1,2),",
        "\\{1,",
        "1=",
        "[0,1]\\cup",
        "x\\ne1,",
        "x>1 or x<0 or ",
        "]0,1[\\cup",
        "\\mathbb{R}\\setminus\\{1\\}",
        "0.333...",
        "0.12(3)",
        "\\gcd(12,",
        "\\max\\{1,",
        "{4 \\choose 2}",
        "1 million ",
        "2 hours 3 minutes ",
        "10¹²",
        "5 km/h ",
        "#### 1\n",
        "#### Step 1\n",
        "answer is correct. ",
        "-\\boxed{1}",
        "\\boxed 1 ",
        "not \\boxed{1} ",
        "$1$ and ",
        "```python\n",
        "```\n\\boxed{1}\n",
        "<tool_response>",
        "<|channel|>analysis<|message|>",
        "negative ",
    ] {
        for times in [30, 1_000, 50_000] {
            let text = piece.repeat(times);
            for verifier in &verifiers {
                let started = std::time::Instant::now();
                verifier.verify("10", &text);
                verifier.verify(&text, "10");
                let took = started.elapsed().as_millis();
                // Two judgements, on a machine that has other things to do.
                assert!(took < 400, "{piece} ×{times}: {took} ms");
            }
        }
    }
}
