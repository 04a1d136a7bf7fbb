//! What rollouts fail of: root causes by version, and whether training still changes them.
//!
//! A fix that makes another fault shows as a cause that grows from one version to the next; training that
//! teaches nothing any more as rounds that fail alike.
//!
//! **Alike.** What becomes of a diagnosis' rollouts, solved, undecided or failed of a cause, is a sample from
//! a distribution. Two equal distributions give samples that differ, and two different ones can give samples
//! that look the same, so neither distance nor a test that finds nothing says that rounds are alike. Two
//! things have to hold:
//!
//! 1. The total variation distance is shown to be below [`TOLERANCE`]. It is the largest difference of the
//!    probabilities of any set of outcomes. For one set, `difference + z·√(p(1−p)/n + q(1−q)/m)` bounds that
//!    difference at the level of z, and `p(1−p)` is at most ¼. To show that it is small for every set takes
//!    no correction for their number: if it is large for one, that one's bound fails with probability 5%
//!    only (Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 1982). So
//!    `distance + z/2·√(1/n + 1/m)` has to be below the tolerance.
//! 2. A chi-squared test of homogeneity at 5% doesn't tell them apart: with many rollouts a small
//!    difference is one all the same.
//!
//! If neither the test tells them apart nor the bound shows them alike, there are too few rollouts to tell. How
//! many it would take follows from the same two conditions, by the shares as they are.

use std::collections::{BTreeMap, BTreeSet};

use critic::{Record, RootCause, Severity};
use rollout::RolloutId;
use serde::{Deserialize, Serialize};

use super::{DiagnoseRow, RollbackRow, WeightsRow};
use crate::gate::decide::Verdict;

/// Failed rollouts that no record explains.
const UNDIAGNOSED: &str = "undiagnosed";
/// Rounds that fail alike are shown to be nearer to each other than this: less than a quarter of the
/// rollouts end otherwise.
const TOLERANCE: f64 = 0.25;
/// z of a bound that holds in 95%.
const Z: f64 = 1.644_853_626_951_472_2;

/// What two rounds' first diagnoses say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Likeness {
    /// They fail alike.
    Alike,
    /// They fail otherwise.
    Different,
    /// There are too few rollouts to tell.
    TooFew,
}

/// A round's first diagnosis beside that of the round before, where new weights came between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaturationRow {
    /// The later round.
    pub round: u32,
    /// Diagnosed rollouts of the earlier and of the later one.
    pub rollouts: [usize; 2],
    /// Total variation distance between what became of them: solved, undecided, or failed of a cause.
    pub distance: f64,
    /// What it is at most, at 95%.
    pub at_most: f64,
    /// What follows.
    pub verdict: Likeness,
    /// Where there are too few rollouts to tell: how many of each round would be enough if their shares stayed
    /// as they are.
    pub needed: Option<usize>,
}

/// How many of `failed` rollouts each root cause accounts for. Every rollout counts once, for its gravest
/// record; of equally grave ones, for the cause that comes first in the taxonomy.
pub(super) fn causes(records: &[Record], failed: usize) -> BTreeMap<String, usize> {
    let mut gravest: BTreeMap<&RolloutId, (Severity, RootCause)> = BTreeMap::new();
    for record in records {
        let new = (record.severity, record.root_cause);
        let known = gravest.entry(&record.evidence.trajectory).or_insert(new);
        if new.0 > known.0 || new.0 == known.0 && new.1 < known.1 {
            *known = new;
        }
    }
    let mut counts = BTreeMap::new();
    for (_, cause) in gravest.values() {
        *counts.entry(cause.to_string()).or_insert(0) += 1;
    }
    let explained: usize = counts.values().sum();
    if failed > explained {
        counts.insert(UNDIAGNOSED.to_owned(), failed - explained);
    }
    counts
}

/// What became of a diagnosis' rollouts: solved, undecided, or failed of a cause.
fn outcomes(row: &DiagnoseRow) -> BTreeMap<&str, usize> {
    let causes = row.causes.iter();
    let mut outcomes: BTreeMap<&str, usize> =
        causes.map(|(cause, n)| (cause.as_str(), *n)).collect();
    outcomes.insert("solved", row.solved());
    outcomes.insert("undecided", row.undecided);
    // Runs of older versions didn't keep causes.
    let rest = row.rollouts.saturating_sub(outcomes.values().sum());
    *outcomes.entry(UNDIAGNOSED).or_insert(0) += rest;
    outcomes
}

/// The diagnosis that `after` begins with beside the one that `before` does; `None` if there is nothing to
/// compare.
fn compare(before: &DiagnoseRow, after: &DiagnoseRow) -> Option<SaturationRow> {
    if before.rollouts == 0 || after.rollouts == 0 {
        return None;
    }
    let (n, m) = (before.rollouts as f64, after.rollouts as f64);
    let (old, new) = (outcomes(before), outcomes(after));
    let all: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let (mut distance, mut chi_squared, mut kinds) = (0.0, 0.0, 0);
    // What each rollout of two samples of one size adds to the test's statistic.
    let mut each = 0.0;
    for outcome in all {
        let count =
            |counts: &BTreeMap<&str, usize>| counts.get(outcome).copied().unwrap_or(0) as f64;
        let (a, b) = (count(&old), count(&new));
        distance += (a / n - b / m).abs() / 2.0;
        if a + b > 0.0 {
            chi_squared += (a * m - b * n).powi(2) / (n * m * (a + b));
            each += (a / n - b / m).powi(2) / (a / n + b / m);
            kinds += 1;
        }
    }
    let at_most = distance + Z / 2.0 * (1.0 / n + 1.0 / m).sqrt();
    let verdict = if kinds > 1 && chi_squared > critical(kinds - 1) {
        Likeness::Different
    } else if at_most < TOLERANCE {
        Likeness::Alike
    } else {
        Likeness::TooFew
    };
    Some(SaturationRow {
        round: after.round,
        rollouts: [before.rollouts, after.rollouts],
        distance,
        at_most: at_most.min(1.0),
        verdict,
        needed: (verdict == Likeness::TooFew).then(|| needed(distance, each, kinds)),
    })
}

/// The rollouts of each of two rounds from which samples at this distance are shown to be alike, or told
/// apart by a test to whose statistic each rollout adds so much: whichever takes fewer.
fn needed(distance: f64, each: f64, kinds: u32) -> usize {
    let room = TOLERANCE - distance;
    let alike = if room > 0.0 {
        2.0 * (Z / 2.0 / room).powi(2)
    } else {
        f64::INFINITY
    };
    let different = if kinds > 1 {
        critical(kinds - 1) / each
    } else {
        f64::INFINITY
    };
    (alike.min(different) as usize).saturating_add(1)
}

/// What a chi-squared variable with so many degrees of freedom exceeds in 5% (Wilson and Hilferty, PNAS
/// 1931).
fn critical(degrees: u32) -> f64 {
    let degrees = f64::from(degrees);
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + Z * spread.sqrt()).powi(3)
}

/// Rounds that came after new weights, each beside the round before.
pub(super) fn saturation(
    diagnoses: &[DiagnoseRow],
    weights: &[WeightsRow],
    rollbacks: &[RollbackRow],
) -> Vec<SaturationRow> {
    let first = |round: u32| diagnoses.iter().find(|row| row.round == round);
    let trained = weights
        .iter()
        .filter(|row| row.verdict == Verdict::Accepted);
    // Weights that were taken back have taught the next round nothing.
    let is_kept = |round: u32| {
        let mut back = rollbacks.iter().filter(|row| row.round == round);
        !back.any(|row| row.from.adapter != row.to.adapter)
    };
    trained
        .filter(|row| is_kept(row.round))
        .filter_map(|row| {
            let (before, after) = (first(row.round)?, first(row.round + 1)?);
            // A round that solves everything has nothing left to learn.
            (after.failed > 0).then(|| compare(before, after)).flatten()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use critic::{Evidence, HarnessDim};
    use rollout::{ContentHash, PolicyId, RolloutBudget, RolloutKey};

    use super::super::{Cause, Place};
    use super::*;

    fn record(seed: u64, root_cause: RootCause, severity: Severity) -> Record {
        let trajectory = RolloutId::of(&RolloutKey {
            policy: &PolicyId::new("theta"),
            harness: &harness::naive().expect("the shipped harness").id(),
            task_hash: &ContentHash::of_problem("How many?"),
            seed,
            budget: &RolloutBudget {
                max_tokens: 1,
                wall: std::time::Duration::ZERO,
            },
            sandbox_level: "none",
        });
        Record {
            root_cause,
            harness_dim: HarnessDim::None,
            severity,
            evidence: Evidence {
                trajectory,
                step: 0,
                quote: "x".into(),
            },
            diff_suggestion: Vec::new(),
            rule: "x".into(),
        }
    }

    #[test]
    fn every_failed_rollout_counts_once_for_its_gravest_record() {
        use RootCause::{AgentError, PromptAmbiguity, ToolSchemaError};
        let records = [
            record(1, ToolSchemaError, Severity::Low),
            record(1, PromptAmbiguity, Severity::High),
            record(2, ToolSchemaError, Severity::High),
            record(2, PromptAmbiguity, Severity::High),
            record(3, AgentError, Severity::Low),
        ];
        let counts = causes(&records, 5);
        let counts: Vec<(&str, usize)> = counts
            .iter()
            .map(|(cause, count)| (cause.as_str(), *count))
            .collect();
        assert_eq!(
            counts,
            [
                ("agent_error", 1),
                ("prompt_ambiguity", 2),
                ("undiagnosed", 2)
            ]
        );
    }

    fn row(round: u32, causes: &[(&str, usize)]) -> DiagnoseRow {
        row_of(40, round, causes)
    }

    fn row_of(rollouts: usize, round: u32, causes: &[(&str, usize)]) -> DiagnoseRow {
        DiagnoseRow {
            round,
            version: "v1".into(),
            policy: None,
            rollouts,
            failed: causes.iter().map(|(_, count)| count).sum(),
            undecided: 0,
            dropped_records: 0,
            causes: causes
                .iter()
                .map(|(cause, count)| ((*cause).to_owned(), *count))
                .collect(),
            clusters: Vec::new(),
            disagreements: Vec::new(),
            refused: Vec::new(),
        }
    }

    #[test]
    fn a_round_that_fails_like_the_last_one_is_flagged_if_weights_came_between() {
        let diagnoses = [
            row(1, &[("agent_error", 20), ("skill_missing", 10)]),
            row(2, &[("agent_error", 19), ("skill_missing", 12)]),
            row(2, &[("agent_error", 1)]),
            row(3, &[("agent_error", 8), ("skill_missing", 21)]),
            row(4, &[("agent_error", 8), ("skill_missing", 21)]),
        ];
        let weights = |round, verdict| WeightsRow {
            round,
            adapter: "a".into(),
            version: "v1".into(),
            stages: Vec::new(),
            evidence: None,
            rollouts: 0,
            verdict,
            spending: None,
            is_open: false,
        };
        let all = [
            weights(1, Verdict::Accepted),
            weights(2, Verdict::Accepted),
            weights(3, Verdict::Deferred),
            weights(4, Verdict::Accepted),
        ];
        let said = |rollbacks: &[RollbackRow]| -> Vec<(u32, Likeness)> {
            saturation(&diagnoses, &all, rollbacks)
                .iter()
                .map(|row| (row.round, row.verdict))
                .collect()
        };
        assert_eq!(said(&[]), [(2, Likeness::Alike), (3, Likeness::Different)]);
        // Weights that were taken back at once are no reason.
        let place = |adapter: Option<&str>| Place {
            version: "v1".into(),
            adapter: adapter.map(str::to_owned),
        };
        let back = RollbackRow {
            round: 1,
            cause: Cause::Retention,
            from: place(Some("a")),
            to: place(None),
            version: None,
            undone: Vec::new(),
            reason: "lost".into(),
        };
        assert_eq!(said(&[back]), [(3, Likeness::Different)]);
    }

    fn verdict(before: &DiagnoseRow, after: &DiagnoseRow) -> Likeness {
        compare(before, after).expect("rollouts").verdict
    }

    #[test]
    fn few_rollouts_dont_tell_and_many_tell_small_differences() {
        let agents = |rollouts, failed| row_of(rollouts, 1, &[("agent_error", failed)]);
        // 50% and 46%: of two dozen nobody knows, of two hundred it is nearly the same, of twenty
        // thousand it isn't.
        assert_eq!(verdict(&agents(24, 12), &agents(24, 11)), Likeness::TooFew);
        assert_eq!(
            verdict(&agents(200, 100), &agents(200, 92)),
            Likeness::Alike
        );
        assert_eq!(
            verdict(&agents(20_000, 10_000), &agents(20_000, 9_200)),
            Likeness::Different
        );
        // Samples of different sizes, and causes that only one of them has.
        let other = row_of(100, 2, &[("skill_missing", 60)]);
        assert_eq!(verdict(&agents(60, 36), &other), Likeness::Different);
        let same = compare(&agents(60, 36), &row_of(100, 2, &[("agent_error", 60)]));
        let same = same.expect("rollouts");
        assert!(same.distance < 1e-12 && same.verdict == Likeness::Alike);
        assert!((same.at_most - 0.1343).abs() < 1e-3, "{same:?}");
        assert!(compare(&agents(0, 0), &agents(10, 5)).is_none());
        // How many would tell: that nothing changed, or that something did.
        let needed = |after| {
            let row = compare(&agents(24, 12), &agents(24, after));
            row.expect("rollouts").needed
        };
        assert_eq!(
            [needed(11), needed(7), needed(2)],
            [Some(32), Some(42), None]
        );
        assert_eq!(same.needed, None);
        // Without causes what failed is one outcome.
        let bare = DiagnoseRow {
            causes: BTreeMap::new(),
            ..agents(200, 100)
        };
        assert_eq!(verdict(&bare, &bare), Likeness::Alike);
        assert_eq!(verdict(&bare, &agents(200, 0)), Likeness::Different);
    }

    #[test]
    fn what_the_verifier_could_not_decide_is_not_solved() {
        let solved = row_of(10, 1, &[("agent_error", 4)]);
        let unclear = DiagnoseRow {
            undecided: 2,
            ..solved.clone()
        };
        assert_eq!((solved.solved(), unclear.solved()), (6, 4));
        let distance = compare(&solved, &unclear).expect("rollouts").distance;
        assert!((distance - 0.2).abs() < 1e-12, "{distance}");
        assert_eq!(compare(&unclear, &unclear).expect("rollouts").distance, 0.0);
    }

    #[test]
    fn the_critical_values_are_those_of_the_tables() {
        for (degrees, value) in [(1, 3.841), (2, 5.991), (3, 7.815), (7, 14.067)] {
            let approximate = critical(degrees);
            assert!((approximate / value - 1.0).abs() < 0.03, "{approximate}");
        }
    }

    /// Shares of `Alike` and `Different` among samples of `n` rollouts each from these distributions over
    /// solved and two causes.
    fn shares(before: [f64; 3], after: [f64; 3], n: usize) -> (f64, f64) {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut sample = |chances: [f64; 3]| {
            let mut counts = [0; 3];
            for _ in 0..n {
                let at: f64 = random.random();
                let outcome =
                    usize::from(at >= chances[0]) + usize::from(at >= chances[0] + chances[1]);
                counts[outcome] += 1;
            }
            row_of(
                n,
                1,
                &[("agent_error", counts[1]), ("skill_missing", counts[2])],
            )
        };
        let runs = 2_000;
        let (mut alike, mut different) = (0, 0);
        for _ in 0..runs {
            match verdict(&sample(before), &sample(after)) {
                Likeness::Alike => alike += 1,
                Likeness::Different => different += 1,
                Likeness::TooFew => {}
            }
        }
        let share = |count: i32| f64::from(count) / f64::from(runs);
        (share(alike), share(different))
    }

    #[test]
    fn the_error_rates_are_those_that_the_page_on_the_report_gives() {
        // Three standard errors of 5% in two thousand.
        let most = 0.05 + 0.015;
        let even = [0.3, 0.4, 0.3];
        // The hardest pair at the tolerance: all in two outcomes, either side of one half.
        let worst = ([0.375, 0.625, 0.0], [0.625, 0.375, 0.0]);
        for n in [24, 48, 96, 192] {
            let (alike, _) = shares(worst.0, worst.1, n);
            assert!(
                alike <= most,
                "{n}: {alike} of the shifted are called alike"
            );
            let (_, different) = shares(even, even, n);
            assert!(
                different <= 0.07,
                "{n}: {different} of the equal are called different"
            );
        }
        let (few, many) = (shares(even, even, 24).0, shares(even, even, 192).0);
        assert!(few < 0.05 && many > 0.9, "{few} {many}");
    }
}
