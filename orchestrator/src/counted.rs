//! Numbers with their nouns, as sentences for a person have them.

use std::fmt::Display;

/// `1 rollout`, `2 rollouts`, `0 replies`, `16 passes`.
pub(crate) fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{count} {stem}ies"),
        None if noun.ends_with('s') => format!("{count} {noun}es"),
        None => format!("{count} {noun}s"),
    }
}

/// What many do and one does: `1 rollout is`, `2 rollouts are`.
pub(crate) fn are(count: impl Display) -> &'static str {
    match count.to_string().as_str() {
        "1" => "is",
        _ => "are",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let all = [0, 1, 2].map(|count| counted(count, "kept rollout"));
        assert_eq!(
            all,
            ["0 kept rollouts", "1 kept rollout", "2 kept rollouts"]
        );
        let nouns = ["reply", "trajectory", "pass", "epoch"];
        assert_eq!(
            nouns.map(|noun| counted(3_u64, noun)),
            ["3 replies", "3 trajectories", "3 passes", "3 epochs"]
        );
        assert_eq!(counted(-1, "point"), "-1 points");
        assert_eq!([0, 1, 2].map(are), ["are", "is", "are"]);
    }
}
