//! What a round's training leaves out of what was chosen to learn from: counted by reason, the first
//! few by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trainer::dataset::Refusal;

use crate::clock::unix_seconds;
use crate::counted::{are, counted};
use crate::error::RunError;
use crate::observer::Notice;
use crate::report::kind;
use crate::workshop::Workshop;

/// Names given for one reason.
const NAMED: usize = 5;

/// Why a row, or a whole trajectory, isn't learnt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No token counts: its replies were cut, say.
    NoTargetTokens,
    /// It is longer than `model_loop.sft.max_tokens`.
    TooLong,
    /// The template ends a turn without a token that ends turns.
    NoEndOfTurn,
    /// What counts begins or ends inside a special token.
    SplitSpecialToken,
    /// The chat template changes what it wrote of earlier turns.
    RewrittenTurns,
    /// Calls went through a server's own interface, and it gives no token ids.
    NativeCalls,
    /// It begins with more than one start token.
    RepeatedStart,
}

impl Reason {
    /// In words, after a number.
    fn told(self) -> &'static str {
        match self {
            Self::NoTargetTokens => "in which no token counts",
            Self::TooLong => "longer than model_loop.sft.max_tokens",
            Self::NoEndOfTurn => "with a turn that the chat template doesn't end",
            Self::SplitSpecialToken => "in which what counts ends inside a special token",
            Self::RewrittenTurns => "whose earlier turns the chat template changes",
            Self::NativeCalls => "with native calls of which the server gives no token ids",
            Self::RepeatedStart => "with more than one start token at the beginning",
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoTargetTokens => Self::NoTargetTokens,
            Refusal::TooLong => Self::TooLong,
        }
    }
}

/// What is left out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutCount {
    /// The reason.
    pub reason: Reason,
    /// How much.
    pub count: usize,
    /// The first few: the beginning of a rollout's id, and where one row of several is meant, its number
    /// after `#`.
    pub first: Vec<String>,
}

/// What a round's training leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutRow {
    /// Round.
    pub round: u32,
    /// Rows that are learnt from or validated on.
    pub kept: usize,
    /// What isn't, by reason.
    pub left_out: Vec<LeftOutCount>,
    /// Kept rows in which a turn has no end-of-turn token, since a stop text, a call or a limit ended it.
    pub endless: usize,
}

impl LeftOutRow {
    /// In a line; none if nothing was left out.
    pub fn told(&self) -> Option<String> {
        let count: usize = self.left_out.iter().map(|one| one.count).sum();
        if count == 0 {
            return None;
        }
        let reasons = self.left_out.iter().map(|one| {
            let more = if one.count > one.first.len() {
                ", …"
            } else {
                ""
            };
            let names = one.first.join(", ");
            format!("{} {} ({names}{more})", one.count, one.reason.told())
        });
        Some(format!(
            "{count} of {} rows or rollouts {} left out of training: {}",
            count + self.kept,
            are(count),
            reasons.collect::<Vec<_>>().join("; ")
        ))
    }

    /// What is said of turns without an end; none if all have one.
    pub fn told_of_ends(&self) -> Option<String> {
        (self.endless > 0).then(|| {
            format!(
                "{} of {} {} a turn without an end-of-turn token: nothing there teaches the model to stop",
                self.endless,
                counted(self.kept, "row"),
                if self.endless == 1 { "has" } else { "have" }
            )
        })
    }
}

/// Gathers what is left out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    names: BTreeMap<Reason, Vec<String>>,
    pub(crate) kept: usize,
    pub(crate) endless: usize,
}

impl LeftOut {
    /// Count a row, or a trajectory, of that name.
    pub(crate) fn add(&mut self, reason: Reason, name: &str) {
        self.names.entry(reason).or_default().push(short(name));
    }

    pub(crate) fn row(&self, round: u32) -> LeftOutRow {
        let count = |(reason, names): (&Reason, &Vec<String>)| LeftOutCount {
            reason: *reason,
            count: names.len(),
            first: names.iter().take(NAMED).cloned().collect(),
        };
        LeftOutRow {
            round,
            kept: self.kept,
            left_out: self.names.iter().map(count).collect(),
            endless: self.endless,
        }
    }
}

/// A row's name with as much of the rollout's id as `coharness trajectories show` needs.
fn short(name: &str) -> String {
    match name.split_once('#') {
        Some((rollout, row)) => format!("{}#{row}", short(rollout)),
        None => name.chars().take(12).collect(),
    }
}

impl Workshop {
    /// Tell the observer what a round's training leaves out, and keep it for the report.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn record_left_out(
        &self,
        round: u32,
        left_out: &LeftOut,
    ) -> Result<(), RunError> {
        let row = left_out.row(round);
        for told in [row.told(), row.told_of_ends()].into_iter().flatten() {
            self.notice(Notice::Warning(told));
        }
        if row.left_out.is_empty() && row.endless == 0 {
            return Ok(());
        }
        let key = self.key(kind::LEFT_OUT, &[&round.to_string()]);
        Ok(self
            .store
            .record_step(&key, kind::LEFT_OUT, round, &row, unix_seconds())
            .await?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_counted_by_reason_and_the_first_few_are_named() {
        let mut left_out = LeftOut {
            kept: 20,
            endless: 1,
            ..LeftOut::default()
        };
        assert_eq!(left_out.row(1).told(), None);
        for number in 0..7 {
            left_out.add(Reason::TooLong, &format!("0123456789abcdef{number}#1"));
        }
        left_out.add(Reason::NoTargetTokens, &"f".repeat(64));
        let row = left_out.row(3);
        assert_eq!(
            row.told().as_deref(),
            Some(
                "8 of 28 rows or rollouts are left out of training: 1 in which no token counts (ffffffffffff); \
                 7 longer than model_loop.sft.max_tokens (0123456789ab#1, 0123456789ab#1, 0123456789ab#1, \
                 0123456789ab#1, 0123456789ab#1, …)"
            )
        );
        assert!(
            row.told_of_ends()
                .is_some_and(|told| told.starts_with("1 of 20 rows"))
        );
        let written = serde_json::to_value(&row).expect("JSON");
        let first = ["0123456789ab#1"; 5];
        assert_eq!(
            written["left_out"][1],
            json!({"reason": "too_long", "count": 7, "first": first})
        );
    }
}
