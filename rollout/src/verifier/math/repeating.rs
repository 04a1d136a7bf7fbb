//! Decimals that go on for ever.

/// Longest period that is looked for.
const LONGEST: usize = 60;

/// How many digits repeat at the end of a decimal that goes on with dots: 0.1666… has one, 0.1212…
/// two. One digit has to stand there three times, several of them twice.
pub(super) fn period(digits: &str) -> Option<usize> {
    (1..=LONGEST.min(digits.len() / 2)).find(|&length| {
        let times = if length == 1 { 3 } else { 2 };
        let block = &digits[digits.len() - length..];
        digits.ends_with(&block.repeat(times))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_seen_where_it_is_written_often_enough() {
        for (digits, length) in [
            ("333", Some(1)),
            ("1666", Some(1)),
            ("1212", Some(2)),
            ("142857142857", Some(6)),
            ("5000", Some(1)),
            ("33", None),
            ("3", None),
            ("", None),
            ("1415926535", None),
            ("12", None),
        ] {
            assert_eq!(period(digits), length, "{digits}");
        }
    }
}
