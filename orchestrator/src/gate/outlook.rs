//! What a gate can tell from the pairs that it can have, before any is made.

use super::martingale::{Discoveries, log_benefit};
use crate::config::{GateConfig, GateMode};
use crate::counted::counted;

/// Share of the pairs: a gate that needs more gained ones than this for its first acceptance is warned of.
const SMALL: f64 = 0.05;

/// Pairs that the first sequential decision of a run accepts at the least, if all are gained.
fn least_gained(gate: &GateConfig) -> u32 {
    let first = Discoveries::new(gate.false_discovery_rate).enter(1)[0];
    let is_enough = |gained: &u32| {
        let gained = (f64::from(*gained), 0.0);
        log_benefit(gained, gained) >= first.log_threshold()
    };
    // Every gained pair multiplies the e-value by more than one: some number is enough.
    (1..).find(is_enough).unwrap_or(u32::MAX)
}

/// Pairs of one side at most under greedy decoding, where each of its problems is one.
fn most_pairs(gate: &GateConfig, problems: usize) -> usize {
    problems.min(gate.tasks * gate.max_samples)
}

/// A warning where greedy decoding leaves mode `sequential` so few pairs that it accepts large gains alone.
///
/// Gains are made on the problems that the incumbent failed; all of them may be. A sampled policy can be asked
/// again on the same problems, up to `gate.max_samples` times.
pub(crate) fn warning(gate: &GateConfig, problems: usize, is_greedy: bool) -> Option<String> {
    let least = least_gained(gate);
    if gate.mode != GateMode::Sequential || !is_greedy {
        return None;
    }
    let pairs = most_pairs(gate, problems);
    if f64::from(least) <= SMALL * pairs as f64 {
        return None;
    }
    let (bound, more) = if pairs < problems {
        let bound = format!("no more than {} a side", counted(pairs, "pair"));
        (bound, "more pairs (gate.tasks, gate.max_samples)")
    } else {
        let bound = format!("one pair for each of {}", counted(problems, "gate problem"));
        (bound, "more problems (tasks.splits.gate)")
    };
    let what = if least as usize > pairs {
        format!("no decision can accept anything: it takes {least} pairs gained and none lost")
    } else {
        let points = 100.0 * f64::from(least) / pairs as f64;
        format!(
            "the first decision accepts no less than {least} gained and none lost, {points:.0} points"
        )
    };
    Some(format!(
        "gate.mode sequential has {bound}, since the starting harness decodes greedily, and {what}; \
         {more}, a temperature above 0 or mode confirmed tell smaller gains"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::plan::stages;

    #[test]
    fn few_greedy_pairs_are_warned_of_where_they_decide() {
        let gate = GateConfig::default();
        assert_eq!(least_gained(&gate), 8);
        let warned = |problems| warning(&gate, problems, true);
        let points = |problems| warned(problems).is_some_and(|said| said.contains("10 points"));
        assert!(points(80) && warned(159).is_some() && warned(160).is_none());
        let none = "no decision can accept anything: it takes 8 pairs";
        assert!(warned(7).is_some_and(|said| said.contains(none)));
        assert!(warned(8).is_some_and(|said| said.contains("100 points")));

        assert!(warning(&gate, 4, false).is_none(), "they are sampled again");
        let mode = GateMode::Confirmed;
        assert!(warning(&GateConfig { mode, ..gate }, 4, true).is_none());
    }

    #[test]
    fn greedy_pairs_are_no_more_than_the_looks_take() {
        let gate = GateConfig {
            tasks: 10,
            max_samples: 4,
            ..GateConfig::default()
        };
        let said = warning(&gate, 400, true).expect("a warning");
        let bound = "no more than 40 pairs a side";
        let least = "no less than 8 gained and none lost, 20 points";
        assert!(said.contains(bound) && said.contains(least), "{said}");
        assert!(said.contains("more pairs (gate.tasks"), "{said}");
        let few = GateConfig {
            tasks: 7,
            max_samples: 1,
            ..gate
        };
        let said = warning(&few, 400, true).expect("a warning");
        assert!(said.contains("no decision can accept anything"), "{said}");
        // All of the problems are in the looks.
        let said = warning(&gate, 40, true).expect("a warning");
        assert!(
            said.contains("one pair for each of 40 gate problems"),
            "{said}"
        );

        // What is said of the sides is what is dealt to them.
        for (problems, solved) in [(30, 0), (40, 0), (41, 0), (400, 0), (400, 100)] {
            let outcomes: Vec<bool> = (0..problems).map(|i| i < solved).collect();
            let stages = stages(&outcomes, &gate, true);
            let dealt: usize = stages.iter().map(|stage| stage.failed.len()).sum();
            assert_eq!(dealt, most_pairs(&gate, problems - solved), "{problems}");
        }
    }
}
