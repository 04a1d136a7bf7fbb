//! Replies whose answer stands in odd places, or only seems to stand there.

use rollout::{PureVerifier, VerifierKind, verifier};

fn of(kind: &VerifierKind) -> Box<dyn PureVerifier> {
    verifier::pure(kind).expect("a pure kind")
}

/// What is found, where it should be another; the answer with its rule, or nothing.
fn wrong(kind: &VerifierKind, cases: &[(&str, Option<(&str, &str)>)]) -> Vec<String> {
    let verifier = of(kind);
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = verifier.extract(text);
        let found = found
            .as_ref()
            .map(|found| (found.answer.as_str(), found.rule.name()));
        if found != *expected {
            wrong.push(format!("{text:?}: {found:?}, not {expected:?}"));
        }
    }
    wrong
}

#[test]
fn the_math_verifier_finds_what_the_reply_calls_its_answer() {
    let boxed = |answer| Some((answer, "boxed"));
    let stated = |answer| Some((answer, "answer_is"));
    let cases = [
        // Boxes.
        (r"\boxed{3}, no: \boxed{5}", boxed("5")),
        (r"It is \boxed{5}, not \boxed{6}.", boxed("5")),
        (r"\boxed{5} rather than $\boxed{6}$", boxed("5")),
        (r"so $x = -\boxed{5}$", boxed("-5")),
        (r"The answer is -\boxed{\frac12}.", boxed(r"-\frac12")),
        (r"$-\boxed{1-\sqrt2}$", boxed(r"-(1-\sqrt2)")),
        (r"- \boxed{5}", boxed("5")),
        (r"$10-\boxed{5}$", boxed("5")),
        (r"\boxed{5} apples", boxed("5")),
        (r"about $\boxed{25}\%$ of them", boxed(r"25\%")),
        (r"\boxed 42.", boxed("42")),
        (r"\boxed{ 7 }", boxed("7")),
        (r"\fbox{12}", boxed("12")),
        ("\u{8}oxed{12}", boxed("12")),
        (r"\boxed{\boxed{7}}", boxed(r"\boxed{7}")),
        (
            r"\boxed{\text{The answer is 5}}",
            boxed(r"\text{The answer is 5}"),
        ),
        (r"\boxed{1} or \boxed{2}", boxed("1 and 2")),
        // Programs and what they print.
        (
            "```python\nprint(r'\\boxed{7}')\n```\nThe answer is 5.",
            stated("5"),
        ),
        (
            "```python\n# Answer: 7\nprint(7)\n```\nSo it makes 5.",
            Some(("5", "last_number")),
        ),
        ("Let me compute 3 + 4:\n```python\nprint(3 + 4)\n```", None),
        ("I ran it:\n```output\n42\n```", None),
        ("<tool_response>\n42\n</tool_response>", None),
        ("```latex\n\\boxed{9}\n```", boxed("9")),
        ("```\n\\boxed{9}\n```", boxed("9")),
        // Statements.
        ("The answer is 4. Wait, the answer is 5.", stated("5")),
        (
            "The answer is 5. I checked that the answer is correct.",
            stated("5"),
        ),
        ("Answer: **42**", stated("42")),
        ("**Answer**: $-42$", stated("$-42$")),
        ("**Answer:** negative 42.", stated("negative 42")),
        ("Answer: 4 (since 2 + 3 = 5)", stated("4")),
        ("The answer is not 41 but 42.", stated("42")),
        ("The answer is 25%.", stated("25%")),
        ("The answer is 0.333...", stated("0.333...")),
        ("The answer is $x=2$ or $x=3$.", stated("$x=2$ or $x=3$")),
        ("The answer is at least 5.", None),
        ("The answer is not $3$ but $5$.", stated("5")),
        ("The answer is greater than $3$.", None),
        ("The answer is either $3$ or $5$, I think.", None),
        ("The answer is 42!", stated("42")),
        ("The answer is $5!$.", stated("$5!$")),
        ("The answer is $42$, since $40+2=42$.", stated("42")),
        ("The answer is 10 cm, not 12 cm.", stated("10")),
        ("The solutions are 1 and 2.", stated("1 and 2")),
        ("The answer is 3 + 4 apples.", stated("3 + 4 apples")),
        // Headings.
        (
            "#### Step 3: conclude\nThat makes 12 in all.",
            Some(("12", "last_number")),
        ),
        (
            "#### Conclusion\nThat makes 12 in all.",
            Some(("12", "last_number")),
        ),
        ("#### Final answer\n\n12", Some(("12", "last_number"))),
        ("Half of it.\n#### 12", stated("12")),
        (r"#### $\frac{1}{2}$", stated(r"$\frac{1}{2}$")),
        // Last lines.
        (
            "Thus $x = 5$ or $x = 7$.",
            Some(("x = 5 or x = 7", "last_formula")),
        ),
        (
            "They are $2$, $3$ and $5$.",
            Some(("2 and 3 and 5", "last_formula")),
        ),
        ("Since $x>0$, $x = 2$.", Some(("x = 2", "last_formula"))),
        ("It is $3$ or 4.", None),
        ("The probability is 1/2.", Some(("1/2", "last_number"))),
        ("The values are 5 and 7.", None),
        ("It lies between 5 and 7.", None),
        ("It is less than 7.", None),
        (
            "It cost 5 million dollars.",
            Some(("5 million", "last_number")),
        ),
        // Reasoning and marks of templates.
        (r"<thought>\boxed{1}</thought>\boxed{2}", boxed("2")),
        (
            r"[THINK]\boxed{1}[/THINK] It is 2.",
            Some(("2", "last_number")),
        ),
        (r"\boxed{1}</reasoning>It is \boxed{2}.", boxed("2")),
        (r"<seed:think>\boxed{1} or so", None),
        (
            r"<|channel|>analysis<|message|>\boxed{1}<|end|><|start|>assistant<|channel|>final<|message|>\boxed{2}<|return|>",
            boxed("2"),
        ),
        ("The answer is 5.<|end|><|user|>What is 7?", stated("5")),
    ];
    let wrong = wrong(&VerifierKind::Math, &cases);
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        cases.len()
    );
}

#[test]
fn the_verifiers_of_numbers_find_it_too() {
    let boxed = |answer| Some((answer, "boxed"));
    let stated = |answer| Some((answer, "answer_is"));
    let last = |answer| Some((answer, "last_number"));
    let cases = [
        (r"\boxed{5} and \boxed{6}", None),
        (r"\boxed{5}, \boxed{6}", None),
        (r"\boxed{5} and \boxed{5}", boxed("5")),
        (r"$x = -\boxed{5}$", boxed("-5")),
        (r"not \boxed{6} but \boxed{5}", boxed("5")),
        ("```python\nprint(7)\n```\nShe has 5 left.", last("5")),
        ("```python\nprint(7)\n```", None),
        ("The answer is negative 5.", stated("negative 5")),
        ("The answer is 5 million.", stated("5 million")),
        ("The answer is 10^5.", None),
        ("The answer is 3 + 4.", None),
        ("The answer is 5 and 7.", None),
        ("The answer is more than 5.", None),
        ("The answer is not 41 but 42.", stated("42")),
        ("Answer: 4 (since 2 + 3 = 5)", stated("4")),
        ("**Answer**: 42", stated("42")),
        ("**Answer:**\n42", stated("42")),
        ("#### Step 2\nShe pays $1,250.50 in all.", last("1,250.50")),
        ("#### 1. Add them up\nThat makes 12.", last("12")),
        ("so\n#### 1,250", stated("1,250")),
        (
            "<answer>42</answer> after 3 steps",
            Some(("42", "answer_tag")),
        ),
        ("That makes 5 and 7.", None),
        ("Thus $x=1$ and $x=2$.", None),
        ("The point is (1, 2).", None),
        ("The answer is 1 234.", None),
        ("The share is 1/2.", last("1/2")),
        ("The share is 1/2.5", last("2.5")),
        (
            "The answer is 5.<|im_end|>\n<|im_start|>user\nAnd 7?",
            stated("5"),
        ),
    ];
    let wrong = wrong(&VerifierKind::Integer, &cases);
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        cases.len()
    );
    let numeric = of(&VerifierKind::Numeric { tolerance: 1e-6 });
    for (gold, reply, is_right) in [
        ("-5", "The answer is negative 5.", true),
        ("5", "The answer is negative 5.", false),
        ("5000000", "The answer is 5 million dollars.", true),
        ("5", "The answer is 5 million dollars.", false),
        ("2500", "It weighs 2.5 thousand pounds.", true),
        ("5", "\\boxed{5 factorial}", false),
        ("5", "$-\\boxed{5}$", false),
        ("10", "The answer is 10^5.", false),
    ] {
        assert_eq!(
            numeric.verify(gold, reply).correct,
            is_right,
            "{gold} {reply}"
        );
    }
}
