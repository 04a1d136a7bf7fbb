//! The fault cases and answer pairs beside the project, where they are: the math verifier must
//! give each the right verdict.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rollout::{PureVerifier, VerifierKind, verifier};
use serde_json::Value;

use crate::fuzz::processor_time;

fn cases(name: &str) -> Option<Vec<Value>> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/cases")
        .join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {name} is not here");
        return None;
    };
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"));
    Some(rows.collect())
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} of {row}"))
}

fn math_verifier() -> Box<dyn PureVerifier> {
    verifier::pure(&VerifierKind::Math).expect("a pure kind")
}

fn is_right(verifier: &dyn PureVerifier, gold: &str, pred: &str) -> bool {
    verifier.verify(gold, pred).correct
}

/// No false positive and at most one false negative in a hundred, outside the rows whose label is
/// a matter of policy or in doubt.
#[test]
fn answer_pairs_get_the_verdict_they_deserve() {
    let verifier = math_verifier();
    for name in ["answer_equiv.jsonl", "answer_extract.jsonl"] {
        let Some(rows) = cases(name) else { continue };
        let (mut positives, mut false_positives, mut false_negatives) = (0, vec![], vec![]);
        for row in rows {
            if ["policy", "contested", "suspect"]
                .iter()
                .any(|mark| !row[mark].is_null())
            {
                continue;
            }
            let equal = row["equal"].as_bool().expect("a label");
            let mut pairs = vec![(text(&row, "gold"), text(&row, "pred"))];
            if row["symmetric"] == true {
                pairs.push((text(&row, "pred"), text(&row, "gold")));
            }
            for (gold, pred) in pairs {
                positives += usize::from(equal);
                match (equal, is_right(verifier.as_ref(), gold, pred)) {
                    (true, false) => false_negatives.push(row["id"].clone()),
                    (false, true) => false_positives.push(row["id"].clone()),
                    _ => {}
                }
            }
        }
        assert!(false_positives.is_empty(), "{name}: {false_positives:?}");
        assert!(
            false_negatives.len() * 100 <= positives,
            "{name}: {false_negatives:?} of {positives}"
        );
    }
}

#[test]
fn the_suspect_rows_are_judged_by_mathematics() {
    let verifier = math_verifier();
    assert!(!is_right(
        verifier.as_ref(),
        "$1 - \\frac{1}{\\mathrm{e}}$",
        "$1 + \\frac{1}{\\mathrm{e}}$"
    ));
}

/// `pairs`, `cases` and `answers` of the fault cases; AIME's are for whole numbers.
#[test]
fn fault_cases_are_judged_right() {
    let Some(rows) = cases("math.jsonl") else {
        return;
    };
    let math = math_verifier();
    let mut wrong = Vec::new();
    for row in &rows {
        let input = &row["input"];
        for pair in input["pairs"].as_array().into_iter().flatten() {
            let is_equal = is_right(math.as_ref(), text(pair, "gold"), text(pair, "pred"));
            if pair["equal"] != is_equal {
                wrong.push(pair.clone());
            }
        }
        for case in input["cases"].as_array().into_iter().flatten() {
            let gold = case["gold"]
                .as_str()
                .or(case["gold_raw"].as_str())
                .expect("gold");
            if case["correct"] != is_right(math.as_ref(), gold, text(case, "output")) {
                wrong.push(case.clone());
            }
        }
        for answer in input["answers"].as_array().into_iter().flatten() {
            let answer = match answer {
                Value::String(answer) => answer.clone(),
                parts => {
                    let times = usize::try_from(parts["times"].as_u64().expect("times"));
                    text(parts, "prefix").to_owned()
                        + &text(parts, "repeat").repeat(times.expect("small"))
                }
            };
            let started = processor_time();
            assert!(!is_right(math.as_ref(), "10", &answer));
            let took = processor_time() - started;
            assert!(took < Duration::from_millis(200), "{}", &answer[..20]);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The stand that `docs/verifier.md` takes on each question of policy.
#[test]
fn policies_are_as_documented() {
    let math = math_verifier();
    let judged = |gold: &str, pred: &str| {
        let verdict = math.verify(gold, pred);
        (verdict.correct, verdict.rule)
    };
    let right = |gold, pred| judged(gold, pred).0;
    // Percent.
    assert_eq!(
        judged("50\\%", "\\boxed{50}"),
        (true, "boxed+percent".into())
    );
    assert_eq!(judged("50\\%", "\\boxed{0.5}"), (true, "boxed".into()));
    assert!(!right("50", "0.5") && !right("0.5", "50") && !right("0.5", "0.5\\%"));
    assert!(right("\\boxed{20} percent", "It is 20\\%."));
    // Units.
    assert_eq!(
        judged("10", "\\boxed{10\\text{ cm}}"),
        (true, "boxed+units".into())
    );
    assert!(!right("10\\text{ cm}", "10\\text{ m}") && !right("10cm", "10"));
    // Order.
    assert!(right("7, -2, \\text{ and } -5", "-5,-2,7"));
    assert!(!right("(1,3)", "\\{1,3\\}") && !right("(1,2,3)", "(1,3,2)"));
    // Rounding.
    assert_eq!(
        judged("\\frac{1}{12}", "0.0833333333333333"),
        (true, "whole+rounding".into())
    );
    assert!(!right("\\frac13", "0.3333") && !right("\\pi", "3.1416"));
    // Times and ratios.
    assert!(right("20:34", "08:34 \\text{P.M.}") && right("20:34", "20:34:00"));
    assert!(!right("12:00", "1:00") && right("2:3:4", "4:6:8"));
    // Decimal comma.
    assert!(!right("1,22", "1.22") && right("1,220", "1220"));
    // Names and relations.
    assert!(!right("f(x)", "f(y)"));
    assert!(right("x\\in[-2,7]", "-2\\le x\\le7") && right("-2\\le x\\le7", "[-2,7]"));
}

#[test]
fn the_answer_is_found_where_the_text_gives_it() {
    let math = math_verifier();
    let found = |text: &str| {
        math.extract(text)
            .map(|extracted| (extracted.answer, extracted.rule.name()))
    };
    let is = |answer: &str, rule| Some((answer.to_owned(), rule));
    assert_eq!(
        found("so \\boxed{\\frac{1}{\\sqrt{2}}}."),
        is("\\frac{1}{\\sqrt{2}}", "boxed")
    );
    assert_eq!(found("\\boxed{1} and \\boxed{2}"), is("1 and 2", "boxed"));
    assert_eq!(
        found("\\boxed{1}\n\nOn reflection: \\boxed{2}"),
        is("2", "boxed")
    );
    assert_eq!(
        found("<think>\\boxed{1}</think>\nIt is \\boxed{2}"),
        is("2", "boxed")
    );
    assert_eq!(found("<think>\\boxed{1} so"), None);
    assert_eq!(
        found("\\boxed{3} <answer>4</answer>"),
        is("4", "answer_tag")
    );
    assert_eq!(
        found("The final answer is $x^2+1$. I hope it is correct."),
        is("$x^2+1$", "answer_is")
    );
    assert_eq!(found("Answer: 12 apples in 3 boxes"), is("12", "answer_is"));
    assert_eq!(found("x^2 + 2x"), is("x^2 + 2x", "whole"));
    assert_eq!(found("Then\n$$x = 5$$"), is("x = 5", "last_formula"));
    assert_eq!(
        found("That makes 72 clips, all told."),
        is("72", "last_number")
    );
    assert_eq!(found("Haley总共有99颗弹珠。"), is("99", "last_number"));
    for text in [
        "I am not sure",
        "AZYUK2A",
        "#### ,",
        "",
        "Perhaps \\frac{63}{400} or so",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
    // Hedging is no answer to a question with one.
    assert!(!math.verify("204", "\\boxed{203} or \\boxed{204}").correct);
    assert!(!math.verify("204", "\\boxed{203} and \\boxed{204}").correct);
}

/// Times of single comparisons over all pairs and all golds that are here; run with `--nocapture`
/// to see them.
#[test]
fn comparisons_are_fast() {
    let math = math_verifier();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for name in ["answer_equiv.jsonl", "answer_extract.jsonl"] {
        for row in cases(name).into_iter().flatten() {
            pairs.push((text(&row, "gold").into(), text(&row, "pred").into()));
        }
    }
    if pairs.is_empty() {
        return;
    }
    let mut times: Vec<Duration> = pairs
        .iter()
        .map(|(gold, pred)| {
            // The best of three, since other programs take their turns in between.
            let mut best = Duration::MAX;
            for _ in 0..3 {
                let started = Instant::now();
                math.verify(gold, pred);
                best = best.min(started.elapsed());
            }
            best
        })
        .collect();
    times.sort();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{} comparisons: p50 {p50:?}, p99 {p99:?}, longest {:?}",
        times.len(),
        times[times.len() - 1]
    );
    assert!(p99 < Duration::from_millis(50), "{p99:?}");
}
