//! Tests of what counts as equal.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::processor_time;

fn outcome(gold: &str, answer: &str) -> Outcome {
    compare(gold, answer).outcome
}

/// Pairs that are equal with either side as the gold answer.
fn all_equal(pairs: &[(&str, &str)]) {
    for (a, b) in pairs {
        assert_eq!(outcome(a, b), Outcome::Equal, "{a} | {b}");
        assert_eq!(outcome(b, a), Outcome::Equal, "{b} | {a}");
    }
}

fn none_equal(pairs: &[(&str, &str)]) {
    for (a, b) in pairs {
        assert_ne!(outcome(a, b), Outcome::Equal, "{a} | {b}");
        assert_ne!(outcome(b, a), Outcome::Equal, "{b} | {a}");
    }
}

#[test]
fn numbers_in_all_spellings() {
    all_equal(&[
        ("\\frac12", "0.5"),
        ("\\dfrac{9}{7}", "9/7"),
        ("5/4", "1 1/4"),
        ("2.5", "2\\frac{1}{2}"),
        ("-1\\frac{1}{2}", "-1.5"),
        ("1000", "1\\,000"),
        ("1234567", "1,234,567"),
        ("11,\\! 111,\\! 100", "11111100"),
        ("10{,}080", "10\u{2009}080"),
        ("0.1\\overline{6}", "\\frac16"),
        ("6.02\\times10^{23}", "6.02e23"),
        ("\u{2212}5", "-5"),
        ("½", ".5"),
        ("004", "4"),
        ("3!", "6"),
        ("\\binom{10}{3}", "120"),
        ("2^10", "1024"),
    ]);
    none_equal(&[
        ("1\\frac12", "\\frac12"),
        ("32349", "32, 349"),
        ("1000", "1,00,0"),
        ("34", "(3,4)"),
        ("5", "5x"),
        ("3", "3\\sqrt{13}"),
        ("100000000000000000001", "100000000000000000000"),
    ]);
}

#[test]
fn radicals_and_functions_by_value() {
    all_equal(&[
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt6}"),
        ("\\frac{1}{\\sqrt2}", "\\frac{\\sqrt2}{2}"),
        ("\\sqrt[3]{2+\\sqrt5}+\\sqrt[3]{2-\\sqrt5}", "1"),
        ("\\cos\\frac{\\pi}{5}", "\\frac{1+\\sqrt5}{4}"),
        ("\\ln 4", "2\\ln 2"),
        ("\\log_2 8", "3"),
        ("e^{i\\pi}", "-1"),
        ("4\\arctan\\frac15-\\arctan\\frac1{239}", "\\frac{\\pi}{4}"),
        ("|3+4i|", "5"),
        ("(-8)^{1/3}", "-2"),
        ("\\sin 30^\\circ", "\\frac12"),
    ]);
    none_equal(&[
        ("\\sqrt2", "\\frac{99}{70}"),
        ("\\pi", "\\frac{355}{113}"),
        ("e^{\\pi\\sqrt{163}}", "262537412640768744"),
        ("\\sin 30", "\\frac12"),
        ("\\ln 2", "\\log 2"),
        ("1+i", "1-i"),
    ]);
}

#[test]
fn tiny_and_huge_differences_count() {
    none_equal(&[
        ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"),
        ("\\frac{1}{2004!}", "\\frac{1}{2006!}"),
        ("1-\\frac{1}{\\mathrm{e}}", "1+\\frac{1}{\\mathrm{e}}"),
        ("e^{-1000}", "0"),
        ("1+e^{-1000}", "1"),
        ("\\sqrt{10^{1000}+1}", "10^{500}"),
        ("9^{9999}", "9^{9999}+1"),
        ("10^{50}+\\sqrt2", "10^{50}+\\sqrt3"),
        ("\\sin(1)+10^{-200}", "\\sin(1)"),
    ]);
    all_equal(&[
        ("\\frac{2004!}{2006!}", "\\frac{1}{2005\\cdot 2006}"),
        ("9^{9^{9}}", "9^{387420489}"),
    ]);
}

#[test]
fn expressions_with_variables() {
    all_equal(&[
        ("(x+1)^2", "x^2+2x+1"),
        ("\\frac{x^2-1}{x-1}", "x+1"),
        ("\\sqrt{\\frac1n}", "\\frac{1}{\\sqrt n}"),
        ("\\sqrt{x^2}", "|x|"),
        ("\\sin^2 x+\\cos^2 x", "1"),
        ("\\tan^2(y)+1", "\\sec^2(y)"),
        ("3x^2y", "3yx^2"),
        ("\\frac ab", "a/b"),
        ("\\frac{(n+1)!}{n!}", "n+1"),
        ("(-1)^n", "\\cos(n\\pi)"),
        (
            "\\sum_{k=0}^{n-1} F_k F_{n-k-1}",
            "\\sum_{k=0}^{n-1} F_{n-k-1} F_k",
        ),
        ("f(x+1)", "f(1+x)"),
    ]);
    none_equal(&[
        ("\\sqrt{x^2}", "x"),
        ("x", "y"),
        ("x_1", "x_2"),
        ("x^2+2x+1", "x^2+2x+1.0001"),
        ("\\sum_{k=1}^n k", "\\sum_{k=0}^n k"),
        ("f(x)", "f(y)"),
    ]);
}

#[test]
fn points_sets_lists_and_intervals() {
    all_equal(&[
        ("(1,2)", "\\left( \\frac22, \\sqrt4 \\right)"),
        ("\\{1,2\\}", "2, 1"),
        ("1 \\text{ and } 2", "\\{2,1\\}"),
        ("1 \\pm \\sqrt{2}", "1-\\sqrt2, 1+\\sqrt2"),
        ("(-\\infty,3)", "x<3"),
        ("x\\neq2", "(-\\infty,2)\\cup(2,\\infty)"),
        ("[0,1]\\cup[1,2]", "[0,2]"),
        ("1\\le|z|\\le2", "[-2,-1]\\cup[1,2]"),
        ("2x+1>5", "(2,\\infty)"),
        ("\\mathbb{R}", "(-\\infty,\\infty)"),
        ("\\varnothing", "\\{\\}"),
        ("p=5,q=2;p=7,q=2", "(7,2),(5,2)"),
        ("\\begin{pmatrix}1\\\\2\\\\3\\end{pmatrix}", "(1,2,3)"),
    ]);
    none_equal(&[
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("(1,2)", "1,2"),
        ("(3,4)", "\\{3,4\\}"),
        ("1,1,2", "1,2"),
        ("1,2", "1"),
        ("(0,1)\\cup(1,2)", "(0,2)"),
        ("x<3", "x\\le3"),
        ("\\infty", "-\\infty"),
        (
            "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
            "\\begin{pmatrix}1&2\\end{pmatrix}",
        ),
    ]);
}

#[test]
fn relations_and_names() {
    all_equal(&[
        ("x=5", "5"),
        ("f(x)=2x+3", "2x+3"),
        ("|AB|=4", "4"),
        ("(p,q)=(3,2)", "(3,2)"),
        ("2x+4y-3=0", "y=-\\frac12x+\\frac34"),
        ("-x\\ge-1", "x\\le1"),
        ("\\frac13", "x=\\frac13\\approx0.33"),
        ("x=1,y=2", "y=2,x=1"),
    ]);
    none_equal(&[
        ("x=5", "y=5"),
        ("3x-y+13=0", "3x+4y+14=0"),
        ("a+3z=0", "0"),
        ("7=11a+c", "11a+c"),
        ("x>3", "-x>-3"),
        ("n=2,3,4", "n=1,2,3"),
    ]);
}

#[test]
fn a_name_never_equals_a_number_by_chance() {
    for n in 1..=60 {
        for k in 1..=100 {
            assert_ne!(
                outcome(&format!("f({k})"), &n.to_string()),
                Outcome::Equal,
                "f({k}) {n}"
            );
            let (a, b) = (format!("x+f({k})"), format!("x+{n}"));
            assert_ne!(outcome(&a, &b), Outcome::Equal, "{a} {b}");
        }
    }
    all_equal(&[
        ("f(3)+1-f(3)", "1"),
        ("2f(3)", "f(3)+f(3)"),
        ("x+f(2+1)", "f(3)+x"),
    ]);
}

#[test]
fn what_is_passed_over_is_said() {
    let allowance = |gold, answer| compare(gold, answer).allowance;
    assert_eq!(allowance("50\\%", "50"), Some(Allowance::Percent));
    assert_eq!(allowance("50", "50\\%"), Some(Allowance::Percent));
    assert_eq!(allowance("15", "15\\text{ cm}^2"), Some(Allowance::Units));
    assert_eq!(
        allowance("\\frac13", "0.333333333333"),
        Some(Allowance::Rounding)
    );
    for (gold, answer) in [
        ("50\\%", "0.5"),
        ("0.5", "50\\%"),
        ("1\\text{ hour}", "60\\text{ min}"),
        ("90^\\circ", "\\frac{\\pi}{2}"),
    ] {
        assert_eq!(
            compare(gold, answer),
            Outcome::Equal.into(),
            "{gold} {answer}"
        );
    }
    assert_eq!(outcome("0.5", "0.5\\%"), Outcome::Different);
    none_equal(&[
        ("50", "0.5"),
        ("10\\text{ cm}", "10\\text{ m}"),
        ("\\frac13", "0.333"),
        ("\\frac13", "0.3333333334"),
        ("2", "1.99999999999"),
        ("0.3", "0.30000000000000004"),
        ("12:00", "1:00"),
        ("5:30 a.m.", "5:30 p.m."),
        ("204_5", "54"),
        ("204_5", "204"),
    ]);
}

#[test]
fn words_are_words() {
    all_equal(&[
        ("\\text{Evelyn}", "Evelyn"),
        ("\\text{(C)}", "C"),
        ("\\text{even}", "Even"),
        ("\\text{June 20}", "June 20"),
        ("\\text{no solution}", "No solution."),
    ]);
    none_equal(&[
        ("\\text{even}", "odd"),
        ("A", "a"),
        ("\\text{(C)}", "D"),
        ("1/2 ?", "12 ?"),
    ]);
}

#[test]
fn what_cannot_be_read_whole_is_unreadable() {
    for answer in [
        "\\frac{1}{2",
        "1 + ",
        "(1, 2",
        "5 of 6",
        "1 of",
        "x^",
        "\\sqrt{",
        "2 \\zzz{1} )",
    ] {
        assert_eq!(outcome("1", answer), Outcome::Unreadable, "{answer}");
    }
}

#[test]
fn undecided_is_not_wrong() {
    for (gold, answer) in [
        ("e^{e^{10}}", "e^{e^{10}}+1"),
        ("9^{9^{9^{9}}}", "8^{8^{8^{8}}}"),
        ("10^{10^{10}}!", "5"),
    ] {
        assert_eq!(outcome(gold, answer), Outcome::Undecided, "{gold} {answer}");
    }
}

/// Pieces of which answers and broken answers are made.
const PIECES: &[&str] = &[
    "\\frac",
    "\\sqrt",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\\{",
    "\\}",
    "^",
    "_",
    "+",
    "-",
    "*",
    "/",
    "=",
    "<",
    "\\le",
    ",",
    ";",
    ".",
    ":",
    "!",
    "%",
    "\\%",
    "$",
    "1",
    "2",
    "10",
    "999",
    "0.5",
    "x",
    "y",
    "n",
    "e",
    "i",
    "f",
    "\\pi",
    "\\infty",
    "\\sin",
    "\\ln",
    "\\text{",
    "\\boxed{",
    "\\pm",
    "\\cup",
    "\\in",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "&",
    "\\\\",
    "\\left",
    "|",
    "\\binom",
    "and",
    "or",
    " cm",
    " ",
    "^\\circ",
    "\\sum",
    "\\lfloor",
    "é",
    "∞",
    "½",
    "²",
    "\\overline{",
    "9^9",
    "E5",
    "\\,",
    "{,}",
    "=",
    "\\mathbb{R}",
    "\\cases",
    "3!",
    "(((((",
    "answer is",
    "####",
    "\\dot{3}",
    "...",
    "\\ldots",
    "(3)",
    "\\gcd",
    "\\max",
    "max",
    "\\choose",
    "\\over",
    "\\root",
    "\\of",
    "C",
    "!!",
    "\\setminus",
    "\\cap",
    " km",
    " per hour",
    " million",
    "¹²",
    "√",
    "\\color",
    "\\phantom{",
    "negative ",
    "]0,1[",
];

fn pieces() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(PIECES), 0..24).prop_map(|p| p.concat())
}

/// A value with three variables, written in two ways.
fn spellings() -> impl Strategy<Value = (String, String)> {
    let leaf = prop_oneof![
        (1_u32..30).prop_map(|n| (format!("{n}"), format!("\\frac{{{}}}{{2}}", 2 * n))),
        (1_u32..9, 2_u32..9).prop_map(|(a, b)| (
            format!("\\frac{{{a}}}{{{b}}}"),
            format!("({}/{})", 3 * a, 3 * b)
        )),
        (2_u32..12).prop_map(|n| (format!("\\sqrt{{{}}}", 4 * n), format!("2\\sqrt{{{n}}}"))),
        proptest::sample::select(&["x", "y", "z"][..]).prop_map(|v| (v.into(), v.into())),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        (inner.clone(), inner, 0..4).prop_map(|((a, a2), (b, b2), operation)| match operation {
            0 => (format!("({a})+({b})"), format!("({b2})+({a2})")),
            1 => (format!("({a})-({b})"), format!("-(({b2})-({a2}))")),
            2 => (format!("({a})({b})"), format!("({b2})\\cdot({a2})")),
            _ => (format!("({a})^2"), format!("({a2})\\cdot({a2})")),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_panics_or_takes_long(gold in pieces(), answer in pieces()) {
        let started = processor_time();
        compare(&gold, &answer);
        compare(&gold, &gold);
        // Two comparisons, without optimisation.
        prop_assert!(processor_time() - started < Duration::from_millis(400));
    }

    #[test]
    fn any_text_is_survived(gold in ".{0,60}", answer in ".{0,60}") {
        compare(&gold, &answer);
        is_answer(&answer);
    }

    #[test]
    fn every_text_equals_itself(text in pieces()) {
        prop_assert_eq!(outcome(&text, &text), Outcome::Equal);
    }

    #[test]
    fn rewritten_values_are_equal_and_changed_ones_are_not((a, b) in spellings(), n in 1_u32..300) {
        prop_assert_eq!(outcome(&a, &b), Outcome::Equal);
        prop_assert_eq!(outcome(&b, &a), Outcome::Equal);
        let changed = format!("{b} + 10^{{-{n}}}");
        prop_assert_eq!(outcome(&a, &changed), Outcome::Different);
    }

    #[test]
    fn fractions_are_compared_exactly(a in 1_i64..1_000_000_000, b in 2_i64..1_000_000_000, k in 2_i64..1_000) {
        let gold = format!("\\frac{{{a}}}{{{b}}}");
        let (upper, lower) = (i128::from(a) * i128::from(k), i128::from(b) * i128::from(k));
        prop_assert_eq!(outcome(&gold, &format!("{upper}/{lower}")), Outcome::Equal);
        prop_assert_eq!(outcome(&gold, &format!("{}/{lower}", upper + 1)), Outcome::Different);
    }

    #[test]
    fn order_counts_in_points_alone(items in proptest::collection::vec(0_u32..1_000, 3..6), by in 1_usize..3) {
        let mut turned = items.clone();
        turned.rotate_left(by);
        let text = |items: &[u32]| {
            items.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
        };
        let (a, b) = (text(&items), text(&turned));
        prop_assert_eq!(outcome(&a, &b), Outcome::Equal);
        prop_assert_eq!(outcome(&format!("\\{{{a}\\}}"), &format!("\\{{{b}\\}}")), Outcome::Equal);
        let expected = if items == turned { Outcome::Equal } else { Outcome::Different };
        prop_assert_eq!(outcome(&format!("({a})"), &format!("({b})")), expected);
    }

    #[test]
    fn equations_are_equal_up_to_a_factor(a in -9_i32..10, b in 1_i32..10, c in -9_i32..10, k in 1_i32..6) {
        let equation = |k: i32, c: i32| format!("{}x+{}y={}", k * a, k * b, k * c).replace("+-", "-");
        prop_assert_eq!(outcome(&equation(1, c), &equation(-k, c)), Outcome::Equal);
        prop_assert_eq!(outcome(&equation(1, c), &equation(k, c + 1)), Outcome::Different);
    }
}
