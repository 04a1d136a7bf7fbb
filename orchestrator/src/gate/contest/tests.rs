//! Contests decided from counts: what bars, delays and ends a decision.

use proptest::prelude::*;

use super::super::martingale::Discoveries;
use super::super::plan::Draw;
use super::super::spend::{Sides, Spend, Spending};
use super::*;
use crate::config::{GateMode, SpendLimits};

fn plan(stages: usize, pairs: usize) -> Vec<Stage> {
    let draw = |problem| Draw { problem, sample: 0 };
    let stage = Stage {
        failed: (0..pairs).map(draw).collect(),
        solved: (0..pairs).map(draw).collect(),
    };
    vec![stage; stages]
}

fn result(failed: [u32; 2], solved: [u32; 2], pairs: u32) -> StageResult {
    let counts = |[gained, lost]: [u32; 2]| Counts {
        gained,
        lost,
        pairs,
        ..Counts::default()
    };
    StageResult::of(counts(failed), counts(solved))
}

/// Drive a contest with results from a table: `results[candidate][stage]`.
fn drive(
    mode: GateMode,
    plan: &[Stage],
    results: &[Vec<StageResult>],
) -> (Vec<Turn>, Vec<Decision>) {
    drive_under(Objective::default(), mode, plan, results)
}

fn drive_under(
    objective: Objective,
    mode: GateMode,
    plan: &[Stage],
    results: &[Vec<StageResult>],
) -> (Vec<Turn>, Vec<Decision>) {
    let tests = Discoveries::new(0.05).enter(results.len());
    let mut contest = Contest::new(Question::Gain(mode), plan, tests).under(objective, 0.5);
    let mut turns = Vec::new();
    while let Some(turn) = contest.turn() {
        let measured: Vec<StageResult> = turn
            .candidates
            .iter()
            .map(|i| results[*i][turn.stage])
            .collect();
        contest.record(&turn, &measured);
        turns.push(turn);
    }
    (turns, contest.finish())
}

#[test]
fn paper_takes_the_best_that_holds_and_defers_the_others() {
    let results = [
        vec![result([2, 0], [0, 0], 20)],
        vec![result([5, 1], [1, 0], 20)],
        vec![result([0, 0], [1, 0], 20)],
    ];
    let (turns, decisions) = drive(GateMode::Paper, &plan(1, 20), &results);
    assert_eq!(turns.len(), 1);
    assert_eq!(decisions[0].verdict, Verdict::Deferred);
    assert_eq!(decisions[1].verdict, Verdict::Accepted);
    assert!(matches!(
        decisions[2].verdict,
        Verdict::Rejected { stage: 1, .. }
    ));
    assert_eq!(decisions[1].rollouts, 40);
}

#[test]
fn confirmed_asks_the_best_again_and_goes_on_to_the_next_if_it_fails() {
    let good = result([3, 0], [0, 0], 20);
    let best = result([5, 0], [0, 0], 20);
    let bad = result([1, 1], [0, 0], 20);
    let results = [vec![good, good], vec![best, bad], vec![good, good]];
    let (turns, decisions) = drive(GateMode::Confirmed, &plan(2, 20), &results);
    let measured: Vec<&[usize]> = turns.iter().map(|t| t.candidates.as_slice()).collect();
    assert_eq!(measured, [&[0, 1, 2][..], &[1], &[0]]);
    assert_eq!(decisions[0].verdict, Verdict::Accepted);
    assert!(matches!(
        decisions[1].verdict,
        Verdict::Rejected { stage: 2, .. }
    ));
    assert_eq!(decisions[2].verdict, Verdict::Deferred);
}

#[test]
fn sequential_drops_the_hopeless_and_stops_when_one_is_shown() {
    let strong = result([8, 0], [1, 0], 20);
    let weak = result([4, 1], [1, 1], 20);
    let harmful = result([1, 0], [0, 9], 20);
    let results = [vec![weak; 4], vec![strong; 4], vec![harmful; 4]];
    let (turns, decisions) = drive(GateMode::Sequential, &plan(4, 20), &results);
    let measured: Vec<&[usize]> = turns.iter().map(|t| t.candidates.as_slice()).collect();
    assert_eq!(measured, [&[0, 1, 2][..], &[0, 1]]);
    assert_eq!(decisions[0].verdict, Verdict::Deferred);
    assert_eq!(decisions[1].verdict, Verdict::Accepted);
    let Verdict::Rejected { stage: 1, reason } = &decisions[2].verdict else {
        panic!("{:?}", decisions[2].verdict);
    };
    assert!(
        reason.contains("harm on V_out") && reason.contains("+0 -9 of 20"),
        "{reason}"
    );
    let detail = decisions[1].detail();
    assert!(
        detail.contains("stage 2: in +8 -0 of 20, out +1 -0 of 20; test 2 at level"),
        "{detail}"
    );
}

#[test]
fn a_candidate_most_of_whose_pairs_are_missing_is_rejected_whatever_the_others_say() {
    let missing = |pairs| vec![result([9, 0], [0, 0], pairs); 4];
    for (mode, at, of) in [
        (GateMode::Paper, 1, "14 of 20"),
        (GateMode::Confirmed, 1, "14 of 20"),
        // Only after the last look there are too few for good.
        (GateMode::Sequential, 4, "56 of 80"),
    ] {
        let decide = |pairs| drive(mode, &plan(4, 20), &[missing(pairs)]).1.remove(0);
        let decision = decide(14);
        let Verdict::Rejected { stage, reason } = &decision.verdict else {
            panic!("{mode:?}: {:?}", decision.verdict);
        };
        assert_eq!(*stage, at, "{mode:?}");
        let parts = ["V_in", "V_out"].map(|side| format!("only {of} pairs on {side} count ("));
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
        assert!(reason.ends_with(" kept from being made)"), "{reason}");
        assert!(decision.is_unmeasured);
        let decision = decide(15);
        assert_eq!(decision.verdict, Verdict::Accepted, "{mode:?}");
        assert!(!decision.is_unmeasured);
    }
}

#[test]
fn in_looks_a_small_side_may_miss_pairs_at_first() {
    let (found, some) = (
        side(12, 30),
        Counts {
            gained: 1,
            ..side(0, 3)
        },
    );
    // Two of five on V_out are missing, and none of the next five.
    let first = StageResult::of(found, some);
    let next = StageResult::of(found, side(0, 5));
    let looks = uneven(3, 30, 5);
    let (turns, decisions) = drive(GateMode::Sequential, &looks, &[vec![first, next, next]]);
    assert_eq!(
        (turns.len(), &decisions[0].verdict),
        (2, &Verdict::Accepted)
    );
    // As many in every look: after the second eleven of fifteen would count at most.
    let (turns, decisions) = drive(GateMode::Sequential, &looks, &[vec![first; 3]]);
    let reason = decisions[0].verdict.objection();
    assert_eq!(
        (turns.len(), reason.as_deref()),
        (
            2,
            Some("stage 2: only 6 of 10 pairs on V_out count (4 kept from being made)")
        )
    );
    assert!(decisions[0].is_unmeasured);
    // Under greedy decoding V_out has one look alone.
    let mut greedy = looks;
    greedy[1..].iter_mut().for_each(|look| look.solved.clear());
    let (turns, decisions) = drive(GateMode::Sequential, &greedy, &[vec![first; 3]]);
    assert_eq!((turns.len(), decisions[0].is_unmeasured), (1, true));
    // Harm is harm, whatever is missing.
    let harmful = StageResult::of(
        side(0, 30),
        Counts {
            lost: 20,
            ..side(0, 20)
        },
    );
    let (_, decisions) = drive(GateMode::Sequential, &plan(4, 30), &[vec![harmful; 4]]);
    let reason = decisions[0].verdict.objection().expect("an objection");
    assert!(reason.starts_with("stage 1: harm on V_out"), "{reason}");
    assert!(!decisions[0].is_unmeasured);
}

#[test]
fn what_the_incumbent_leaves_undecided_says_nothing_about_the_candidate() {
    let unclear = |undecided_before| Counts {
        undecided: 2,
        undecided_before,
        ..side(0, 3)
    };
    let decide = |mode, undecided_before| {
        let result = StageResult::of(side(12, 30), unclear(undecided_before));
        let plan = uneven(2, 30, 5);
        drive(mode, &plan, &[vec![result; 2]]).1.remove(0)
    };
    for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
        for (undecided_before, is_unmeasured) in [(2, true), (0, false)] {
            let decision = decide(mode, undecided_before);
            let reason = decision.verdict.objection().expect("an objection");
            assert!(reason.contains(" undecided)"), "{reason}");
            assert_eq!(decision.is_unmeasured, is_unmeasured, "{mode:?}");
        }
    }
}

#[test]
fn each_kind_of_missing_pair_is_told() {
    let seen = Counts {
        undecided: 6,
        gone: 3,
        ..side(0, 9)
    };
    let gap = Gap::of(" on V_out", seen, 20, 0).expect("too few");
    assert_eq!(
        gap.reason,
        "only 9 of 20 pairs on V_out count (6 undecided, 3 solved before and left out now, \
         2 kept from being made)"
    );
}

#[test]
fn what_spends_more_than_the_limit_is_passed_over_for_the_best_that_does_not() {
    // Seconds of a rollout.
    let taking = |result: StageResult, incumbent: f64, candidate: f64| {
        let of = |mean: f64| Spend {
            rollouts: 40,
            seconds: 40.0 * mean,
            ..Spend::default()
        };
        let spending = Spending {
            incumbent: of(incumbent),
            candidate: of(candidate),
        };
        result.with_spending(Sides {
            on_in: spending,
            on_out: spending,
        })
    };
    let objective = Objective::AccuracyUnder(SpendLimits {
        seconds_per_problem: Some(12.0),
        ..SpendLimits::default()
    });
    let (best, good) = (result([12, 0], [1, 0], 20), result([10, 0], [0, 0], 20));
    for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
        let plan = plan(if mode == GateMode::Paper { 1 } else { 2 }, 20);
        let decide = |incumbent: f64, candidates: [f64; 2]| {
            let results = [
                vec![taking(best, incumbent, candidates[0]); 2],
                vec![taking(good, incumbent, candidates[1]); 2],
            ];
            drive_under(objective, mode, &plan, &results).1
        };
        let decisions = decide(10.0, [14.0, 11.0]);
        let Verdict::Rejected { stage: 1, reason } = &decisions[0].verdict else {
            panic!("{mode:?}: {:?}", decisions[0].verdict);
        };
        assert_eq!(
            reason,
            "seconds a problem: 14.00 (the incumbent 10.00), above the limit of 12"
        );
        assert!(!decisions[0].is_unmeasured);
        assert_eq!(decisions[1].verdict, Verdict::Accepted, "{mode:?}");
        // Below the limit, and below an incumbent that is above it, the ranking is the usual one.
        for (incumbent, candidates) in [(10.0, [12.0, 5.0]), (20.0, [19.0, 13.0])] {
            let decisions = decide(incumbent, candidates);
            assert_eq!(decisions[0].verdict, Verdict::Accepted, "{mode:?}");
            assert_eq!(decisions[1].verdict, Verdict::Deferred, "{mode:?}");
        }
        // A candidate that takes no less than such an incumbent comes no nearer.
        let decisions = decide(20.0, [20.0, 19.0]);
        assert_eq!(decisions[1].verdict, Verdict::Accepted, "{mode:?}");
    }
}

/// A plan with so many pairs of each side in every stage.
fn uneven(stages: usize, failed: usize, solved: usize) -> Vec<Stage> {
    let mut plan = plan(stages, failed.max(solved));
    for stage in &mut plan {
        stage.failed.truncate(failed);
        stage.solved.truncate(solved);
    }
    plan
}

/// So many pairs of a side, of which some are gained.
fn side(gained: u32, pairs: u32) -> Counts {
    Counts {
        gained,
        pairs,
        ..Counts::default()
    }
}

#[test]
fn a_small_side_that_is_missing_isnt_made_up_for_by_a_large_one() {
    for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
        let missing = StageResult::of(side(15, 30), side(0, 0));
        let (_, decisions) = drive(mode, &uneven(2, 30, 8), &[vec![missing; 2]]);
        let Verdict::Rejected { stage: 1, reason } = &decisions[0].verdict else {
            panic!("{mode:?}: {:?}", decisions[0].verdict);
        };
        assert!(
            reason.starts_with("only 0 of 8 pairs on V_out count"),
            "{reason}"
        );
        assert!(decisions[0].is_unmeasured);
        // Where there is no V_out nothing is missing of it.
        let (_, decisions) = drive(mode, &uneven(2, 30, 0), &[vec![missing; 2]]);
        assert_eq!(decisions[0].verdict, Verdict::Accepted, "{mode:?}");
    }
}

#[test]
fn the_second_stage_has_to_have_its_own_pairs_and_a_last_small_look_has_not() {
    let full = StageResult::of(side(4, 20), side(0, 20));
    let poor = StageResult::of(side(4, 20), side(0, 14));
    let results = [vec![full, poor]];
    let (_, decisions) = drive(GateMode::Confirmed, &plan(2, 20), &results);
    assert!(decisions[0].is_unmeasured, "{:?}", decisions[0].verdict);
    let (_, decisions) = drive(GateMode::Sequential, &plan(2, 20), &results);
    assert_eq!(decisions[0].verdict, Verdict::Accepted);
    // Looks whose last one is of a single problem.
    let mut looks = plan(2, 20);
    looks[1] = uneven(1, 20, 1).remove(0);
    let last = StageResult::of(side(4, 20), side(0, 0));
    let (_, decisions) = drive(GateMode::Sequential, &looks, &[vec![full, last]]);
    assert_eq!(decisions[0].verdict, Verdict::Accepted);
}

#[test]
fn what_the_incumbent_solved_and_the_candidate_is_left_out_of_counts_as_lost() {
    let without = |gone| Counts {
        gone,
        ..side(0, 20 - gone)
    };
    for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
        let few = StageResult::of(side(9, 20), without(4));
        let many = StageResult::of(side(9, 20), without(11));
        let results = [vec![few; 4], vec![many; 4]];
        let (_, decisions) = drive(mode, &plan(4, 20), &results);
        let reasons: Vec<String> = decisions
            .iter()
            .filter_map(|decision| decision.verdict.objection())
            .collect();
        let [of_few, of_many] = match mode {
            // Four losses in each look come to harm in the second.
            GateMode::Sequential => ["harm on V_out", "harm on V_out"],
            _ => [
                "solved before and left out now as lost",
                "(11 solved before and left out now)",
            ],
        };
        assert!(reasons[0].contains(of_few), "{reasons:?}");
        assert!(reasons[1].contains(of_many), "{reasons:?}");
        // That says something about them, so they aren't to be tried again.
        assert!(decisions.iter().all(|decision| !decision.is_unmeasured));
    }
    // So it does for a removal, of which nothing else is left over.
    let tests = Discoveries::new(0.05).enter(1);
    let all = uneven(1, 0, 120);
    let removal = |gone| {
        let question = Question::Harmless(0.05);
        let mut contest = Contest::new(question, &all, tests.clone());
        let turn = contest.turn().expect("a look");
        let seen = Counts {
            pairs: 120 - gone,
            gone,
            ..Counts::default()
        };
        contest.record(&turn, &[StageResult::of(Counts::default(), seen)]);
        contest.finish().remove(0).verdict
    };
    assert_eq!(removal(0), Verdict::Accepted);
    assert!(matches!(removal(1), Verdict::Rejected { stage: 1, .. }));
}

#[test]
fn a_candidate_that_makes_answers_undecidable_is_rejected() {
    let without = |withheld| Counts {
        undecided: withheld,
        withheld,
        ..side(0, 20 - withheld)
    };
    for mode in [GateMode::Paper, GateMode::Confirmed, GateMode::Sequential] {
        // All that it would have lost is undecided: the half, or some.
        let most = StageResult::of(side(9, 20), without(11));
        let some = StageResult::of(side(9, 20), without(4));
        let none = StageResult::of(side(9, 20), without(0));
        let results = [vec![most; 4], vec![some; 4]];
        let (_, decisions) = drive(mode, &plan(4, 20), &results);
        let reasons: Vec<String> = decisions
            .iter()
            .filter_map(|decision| decision.verdict.objection())
            .collect();
        let [of_most, of_some] = match mode {
            GateMode::Sequential => ["harm on V_out", "harm on V_out"],
            _ => [
                "only 9 of 20 pairs on V_out count (11 undecided)",
                "undecided now as lost",
            ],
        };
        assert!(reasons[0].contains(of_most), "{reasons:?}");
        assert!(reasons[1].contains(of_some), "{reasons:?}");
        assert!(decisions.iter().all(|decision| !decision.is_unmeasured));
        assert_eq!(decisions[0].rollouts, 40);
        let (_, decisions) = drive(mode, &plan(4, 20), &[vec![none; 4]]);
        assert_eq!(decisions[0].verdict, Verdict::Accepted, "{mode:?}");
    }
}

#[test]
fn with_no_failed_problem_nothing_is_measured() {
    let mut plan = plan(3, 5);
    plan.iter_mut().for_each(|stage| stage.failed.clear());
    for (mode, plan) in [
        (GateMode::Paper, &plan[..1]),
        (GateMode::Sequential, &plan),
        (GateMode::Sequential, &[]),
    ] {
        let (turns, decisions) = drive(mode, plan, &[vec![]]);
        assert!(turns.is_empty());
        assert!(matches!(
            decisions[0].verdict,
            Verdict::Rejected { stage: 0, .. }
        ));
        assert_eq!(decisions[0].evidence, None);
    }
}

#[test]
fn one_pair_on_v_in_decides_nothing_in_the_fixed_modes() {
    let reason = "a stage has fewer than two pairs on gate problems that the incumbent fails";
    let lucky = |failed: u32| StageResult::of(side(1, failed), side(0, 8));
    let mut second_is_small = uneven(2, 2, 8);
    second_is_small[1].failed.truncate(1);
    for (mode, plan) in [
        (GateMode::Paper, uneven(1, 1, 8)),
        (GateMode::Confirmed, uneven(2, 1, 8)),
        (GateMode::Confirmed, second_is_small),
    ] {
        let (turns, decisions) = drive(mode, &plan, &[vec![lucky(1); 2]]);
        assert!(turns.is_empty(), "{mode:?}");
        let objection = decisions[0].verdict.objection();
        assert_eq!(objection.as_deref(), Some(reason), "{mode:?}");
    }
    // From two on it is the paper's rule, and looks go on until the evidence is there.
    for (mode, stages) in [(GateMode::Paper, 1), (GateMode::Confirmed, 2)] {
        let results = [vec![lucky(2); stages]];
        let (_, decisions) = drive(mode, &uneven(stages, 2, 8), &results);
        assert_eq!(decisions[0].verdict, Verdict::Accepted, "{mode:?}");
    }
    let results = [vec![lucky(1); 20]];
    let (turns, decisions) = drive(GateMode::Sequential, &uneven(20, 1, 8), &results);
    assert_eq!(decisions[0].verdict, Verdict::Accepted);
    assert!(turns.len() > 5, "{turns:?}");
}

proptest! {
    #[test]
    fn a_sequential_contest_accepts_at_most_one_and_only_what_its_level_allows(
        results in prop::collection::vec(
            prop::collection::vec((0u32..10, 0u32..10, 0u32..10, 0u32..10), 6), 1..5),
    ) {
        let results: Vec<Vec<StageResult>> = results
            .iter()
            .map(|looks| {
                looks.iter().map(|&(a, b, c, d)| result([a, b], [c, d], 20)).collect()
            })
            .collect();
        let plan = plan(6, 20);
        let (turns, decisions) = drive(GateMode::Sequential, &plan, &results);
        prop_assert!(turns.len() <= 6);
        let accepted: Vec<&Decision> =
            decisions.iter().filter(|d| d.verdict == Verdict::Accepted).collect();
        prop_assert!(accepted.len() <= 1);
        for decision in accepted {
            let Some(Evidence { test, benefit, .. }) = &decision.evidence else {
                return Err(TestCaseError::fail("no evidence"));
            };
            prop_assert!(decision.totals().holds());
            prop_assert!(benefit.last().is_some_and(|e| *e >= 1.0 / test.level * (1.0 - 1e-12)));
            prop_assert_eq!(benefit.len(), decision.stages.len());
        }
    }
}
