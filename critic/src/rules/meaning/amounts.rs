//! What a sentence says of amounts, and of what is done to a number.

use crate::rules::text::{has_any, has_word, is_near, numbers};

/// Amounts that a sentence may say are to be done to a number.
#[derive(PartialEq)]
pub(in crate::rules) struct Amounts {
    amount: Option<f64>,
    is_rounding: bool,
}

impl Amounts {
    pub(in crate::rules) const NONE: Amounts = Amounts {
        amount: None,
        is_rounding: false,
    };

    pub(in crate::rules) const fn exactly(amount: f64) -> Self {
        Amounts {
            amount: Some(amount),
            is_rounding: false,
        }
    }

    pub(in crate::rules) const fn rounding(unit: f64) -> Self {
        Amounts {
            amount: Some(unit),
            is_rounding: true,
        }
    }

    /// How much of it a sentence says.
    pub(in crate::rules) fn weight(&self, sentence: &str) -> u32 {
        const ROUGH: &str = "round nearest significant approximat rough whole digits decimal";
        let amounts = amounts(sentence);
        let is_said = |wanted: f64| amounts.iter().any(|amount| is_near(*amount, wanted));
        let lower = sentence.to_lowercase();
        let is_rough = self.is_rounding && ROUGH.split(' ').any(|word| lower.contains(word));
        let is_converted = |wanted: f64| !self.is_rounding && converts(sentence, wanted);
        let is_meant = |wanted: f64| is_said(wanted) || is_converted(wanted);
        u32::from(self.amount.is_some_and(is_meant)) * 4 + u32::from(is_rough) * 4
    }
}

/// Words that stand for an amount in an instruction.
const NUMBER_WORDS: [(&str, f64); 13] = [
    ("percent hundred hundreds", 100.0),
    ("dozen dozens", 12.0),
    ("one", 1.0),
    ("two twice double half halve", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten tens", 10.0),
    ("thousand thousands", 1000.0),
];

/// The amounts that a sentence has in digits or in words.
fn amounts(sentence: &str) -> Vec<f64> {
    let lower = sentence.to_lowercase();
    let mut amounts = numbers(sentence);
    let said = NUMBER_WORDS
        .iter()
        .filter(|(words, _)| has_any(&lower, words));
    amounts.extend(said.map(|(_, number)| *number));
    amounts
}

/// Whether a sentence says how something is calculated.
pub(in crate::rules) fn calculates(sentence: &str) -> bool {
    const WORDS: &str = "multiply multiplied divide divided add added subtract minus plus times \
                         product sum difference quotient half double is are";
    let lower = sentence.to_lowercase();
    let has_sign = lower.contains(['+', '*', '/', '=', '×', '÷']);
    has_sign || !numbers(&lower).is_empty() || has_any(&lower, WORDS)
}

/// Whether `sentence` tells to turn `printed` into `answer`.
pub(in crate::rules) fn alters(sentence: &str, printed: f64, answer: f64) -> bool {
    const MEANT: &str = "answer answers result results output amount amounts number printed";
    let lower = sentence.to_lowercase().replace("double-check", "check");
    if !has_any(&lower, MEANT) {
        return false;
    }
    let mut amounts = amounts(sentence);
    amounts.retain(|amount| *amount > 0.0);
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    let rounds = words.any(|word| {
        word.starts_with("round") || word.starts_with("approximat") || word == "nearest"
    });
    if rounds {
        return amounts.iter().any(|unit| {
            let steps = answer / unit;
            *unit >= 1.0 && is_near(steps, steps.round()) && (answer - printed).abs() < *unit
        });
    }
    let up = has_any(&lower, "add adding plus increase raise") || has_word(&lower, "more than the");
    let down = has_any(&lower, "subtract subtracting minus decrease lower")
        || has_word(&lower, "take away")
        || has_word(&lower, "less than the");
    let times = has_any(&lower, "multiply multiplying times double twice");
    let parts = has_any(&lower, "divide dividing half halve");
    amounts.iter().any(|amount| {
        up && is_near(printed + amount, answer)
            || down && is_near(printed - amount, answer)
            || times && is_near(printed * amount, answer)
            || parts && is_near(printed / amount, answer)
    })
}

/// Whether a sentence has two units of one kind, one of which is `amount` times the other.
pub(super) fn converts(sentence: &str, amount: f64) -> bool {
    const KINDS: [&[(&str, f64)]; 6] = [
        &[("cent penny pence", 1.0), ("dollar euro pound", 100.0)],
        &[
            ("second", 1.0),
            ("minute", 60.0),
            ("hour", 3600.0),
            ("day", 86_400.0),
            ("week", 604_800.0),
        ],
        &[
            ("millimetre millimeter", 1.0),
            ("centimetre centimeter", 10.0),
            ("metre meter", 1e3),
            ("kilometre kilometer", 1e6),
        ],
        &[("inch", 1.0), ("foot feet", 12.0), ("yard", 36.0)],
        &[("gram", 1.0), ("kilogram", 1e3), ("tonne ton", 1e6)],
        &[("millilitre milliliter", 1.0), ("litre liter", 1e3)],
    ];
    let plain = super::plain(sentence);
    let tokens = super::tokens(&plain);
    let is_named = |names: &str| {
        let mut names = names.split(' ');
        names.any(|name| {
            let mut endings = tokens.iter().filter_map(|token| token.strip_prefix(name));
            endings.any(|ending| matches!(ending, "" | "s" | "es"))
        })
    };
    KINDS.iter().any(|kind| {
        let named = kind.iter().filter(|(names, _)| is_named(names));
        let sizes: Vec<f64> = named.map(|(_, size)| *size).collect();
        let mut larger = sizes.iter();
        larger.any(|large| sizes.iter().any(|small| is_near(*large, small * amount)))
    })
}
