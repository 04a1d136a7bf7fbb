//! A decision in a run: the incumbent's earlier rollout, fresh pairs, verdicts.

use std::sync::Arc;

use harness::Harness;
use rollout::task::{Split, Task};

use super::contest::Contest;
use super::decide::{StageResult, Verdict};
use super::decision::Decision;
use super::evidence::{Counts, Outcome, Pair};
use super::martingale::Discoveries;
use super::plan::{Draw, Stage, looks_at_all, share_in, stages};
use super::question::Question;
use super::spend::{Sides, Spending};
use crate::config::{GateMode, PriceConfig};
use crate::error::RunError;
use crate::report::{PatchRow, WeightsRow, kind, rows_of};
use crate::rollouts::{Arm, Rolled, Trial, draw};
use crate::seed::Seed;
use crate::workshop::Workshop;

/// Lowest temperature of the rollout that tells V_in from V_out.
pub(crate) const CLASSIFY_TEMPERATURE: f64 = 0.7;

/// Where a contest takes place.
struct Field<'a> {
    place: &'a str,
    problems: &'a [Task],
    plan: &'a [Stage],
    seed: Seed,
}

impl Workshop {
    /// Decide `candidates` against `incumbent`; `place` says where in the run this is, as in
    /// `round 1 · cycle 2`.
    ///
    /// In a stage all arms that are measured make the same rollouts: a pair shares problem and seed, and
    /// one arm of the incumbent serves every candidate. Nothing about the decision is kept but
    /// rollouts: asked again, it finds them in the journal and comes to the same end.
    ///
    /// `is_again` says that too few pairs of a candidate could be made in an earlier cycle: under the same
    /// seeds the journal would say so again, so all arms get seeds of this contest's own.
    ///
    /// # Errors
    /// As [`Self::roll_arms`].
    pub(crate) async fn contest(
        &self,
        place: &str,
        incumbent: &Arm,
        candidates: &[Arm],
        discoveries: &mut Discoveries,
        is_again: bool,
    ) -> Result<Vec<Decision>, RunError> {
        let gate = &self.loaded.config.gate;
        let seed = self.gate_seed(incumbent);
        let classified = self.classify(place, incumbent).await?;
        let (problems, solved): (Vec<Task>, Vec<bool>) = classified.into_iter().unzip();
        let is_greedy = incumbent.is_greedy();
        let plan = stages(&solved, gate, is_greedy);
        let question = Question::Gain(gate.mode);
        // What there is nothing to measure on takes no level. The fixed modes have none: there the numbers
        // only tell contests apart.
        let is_counted = question.objection_to(&plan).is_none()
            || !question.is_sequential()
            || self.counts_all().await?;
        let mut aside = *discoveries;
        let sequence = if is_counted {
            &mut *discoveries
        } else {
            &mut aside
        };
        let tests = sequence.enter(candidates.len());
        // Candidates of a later cycle must not meet an arm whose luck is known already: each contest
        // has seeds of its own. Greedy decoding has no luck, and its rollouts are in the journal.
        let is_fresh = is_again || (gate.mode == GateMode::Sequential && !is_greedy);
        let seed = match tests.first() {
            Some(test) if is_fresh => seed.derive("test").derive(test.number),
            _ => seed,
        };
        let field = Field {
            place,
            problems: &problems,
            plan: &plan,
            seed,
        };
        let contest = Contest::new(question, &plan, tests)
            .under(self.loaded.config.objective, share_in(&solved));
        self.compete(&field, incumbent, candidates, contest, discoveries)
            .await
    }

    /// Whether an earlier version began this run, and gave levels to candidates that there was nothing to
    /// measure on as well. The numbers of decisions are in the seeds of later ones: the run goes on as it began.
    async fn counts_all(&self) -> Result<bool, RunError> {
        let patches: Vec<PatchRow> = rows_of(&self.store, kind::PATCH).await?;
        let weights: Vec<WeightsRow> = rows_of(&self.store, kind::WEIGHTS).await?;
        let patches = patches.iter().map(|row| (&row.verdict, &row.evidence));
        let weights = weights.iter().map(|row| (&row.verdict, &row.evidence));
        Ok(patches.chain(weights).any(|(verdict, evidence)| {
            evidence.is_some() && matches!(verdict, Verdict::Rejected { stage: 0, .. })
        }))
    }

    /// Decide which of the accepted patches that `candidates` are without may go, against `incumbent`,
    /// which has them all. Removals are a sequence of decisions of their own: those on patches and weights
    /// keep their levels. `is_again` says that too few pairs could be made at an earlier time: greedily
    /// decoded ones would be those of the journal, so both arms get seeds of their own then as well.
    ///
    /// # Errors
    /// As [`Self::roll_arms`].
    pub(crate) async fn contest_removals(
        &self,
        place: &str,
        incumbent: &Arm,
        candidates: &[Arm],
        removals: &mut Discoveries,
        is_again: bool,
    ) -> Result<Vec<Decision>, RunError> {
        let gate = &self.loaded.config.gate;
        let problems = &self.splits.gate;
        let is_greedy = incumbent.is_greedy();
        let plan = looks_at_all(problems.len(), gate, is_greedy);
        let tests = removals.enter(candidates.len());
        let seed = self
            .seed()
            .derive("removal")
            .derive(incumbent.harness.id().to_hex())
            .derive(incumbent.policy.id());
        let seed = match tests.first() {
            Some(test) if !is_greedy || is_again => seed.derive("test").derive(test.number),
            _ => seed,
        };
        let field = Field {
            place,
            problems,
            plan: &plan,
            seed,
        };
        let margin = gate.retest_margin_points / 100.0;
        // All problems are V_out's.
        let contest = Contest::new(Question::Harmless(margin), &plan, tests)
            .under(self.loaded.config.objective, 0.0);
        self.compete(&field, incumbent, candidates, contest, removals)
            .await
    }

    /// Roll out what a contest asks for until it has decided.
    async fn compete(
        &self,
        field: &Field<'_>,
        incumbent: &Arm,
        candidates: &[Arm],
        mut contest: Contest,
        discoveries: &mut Discoveries,
    ) -> Result<Vec<Decision>, RunError> {
        let Field {
            place,
            problems,
            plan,
            seed,
        } = *field;
        let prices = self.loaded.config.prices.as_ref();
        while let Some(turn) = contest.turn() {
            let stage = &plan[turn.stage];
            let trials: Vec<Trial> = stage
                .draws()
                .map(|draw| trial(&problems[draw.problem], draw, turn.stage, seed))
                .collect();
            let mut arms = vec![incumbent.clone()];
            arms.extend(turn.candidates.iter().map(|i| candidates[*i].clone()));
            let title = format!(
                "{place} · gate {}, {} candidate{}",
                turn.stage + 1,
                turn.candidates.len(),
                if turn.candidates.len() == 1 { "" } else { "s" }
            );
            let rolled = self.roll_arms(&title, &arms, Split::Gate, &trials).await?;
            let results: Vec<StageResult> = rolled[1..]
                .iter()
                .map(|arm| compare(stage.failed.len(), &rolled[0], arm, prices))
                .collect();
            contest.record(&turn, &results);
        }
        if contest.winner().is_some() {
            discoveries.accepted();
        }
        Ok(contest.finish())
    }

    /// Where the seeds of decisions on patches and weights against an incumbent come from.
    fn gate_seed(&self, incumbent: &Arm) -> Seed {
        let seed = self.seed().derive("gate");
        let seed = seed.derive(incumbent.harness.id().to_hex());
        seed.derive(incumbent.policy.id())
    }

    /// The earlier rollout of every gate problem that tells V_in from V_out: who makes it, and the trials.
    ///
    /// It is sampled at [`CLASSIFY_TEMPERATURE`] or more. At a low temperature a fresh rollout repeats
    /// the one that chose the problems: the incumbent's arm would stand at 0% of V_in and 100% of
    /// V_out by construction, and anything that answers differently would fail δ_out ≥ 0 however much
    /// better it is.
    pub(crate) fn classification(&self, incumbent: &Arm) -> (Arm, Vec<Trial>) {
        let seed = self.gate_seed(incumbent).derive("classify");
        let trials = draw(&self.splits.gate, self.splits.gate.len(), seed);
        let mut warm = Harness::clone(&incumbent.harness);
        let temperature = &mut warm.middleware.sampling.temperature;
        *temperature = temperature.max(CLASSIFY_TEMPERATURE);
        let arm = Arm {
            policy: Arc::clone(&incumbent.policy),
            harness: Arc::new(warm),
        };
        (arm, trials)
    }

    /// What one earlier rollout of the incumbent makes of every gate problem.
    async fn classify(&self, place: &str, incumbent: &Arm) -> Result<Vec<(Task, bool)>, RunError> {
        let (Arm { policy, harness }, trials) = self.classification(incumbent);
        let title = format!("{place} · classify");
        let classified = self
            .roll(&title, &policy, &harness, Split::Gate, &trials)
            .await?;
        Ok(trials
            .into_iter()
            .zip(classified)
            // One without a rollout, or without a verdict, is neither failed nor solved.
            .filter_map(|(trial, rolled)| {
                let verdict = rolled?.verdict;
                (!verdict.undecided).then_some((trial.task, verdict.correct))
            })
            .collect())
    }
}

/// A pair's problem with the seed that both arms use.
fn trial(task: &Task, draw: Draw, stage: usize, seed: Seed) -> Trial {
    let task = task.clone();
    let seed = seed
        .derive("stage")
        .derive(stage)
        .derive(draw.sample)
        .derive(task.content_hash().as_str());
    Trial {
        seed: seed.value(),
        task,
    }
}

/// Pair both arms of a stage; the first `failed` trials are V_in's.
fn compare(
    failed: usize,
    incumbent: &[Rolled],
    candidate: &[Rolled],
    prices: Option<&PriceConfig>,
) -> StageResult {
    let (failed_before, solved_before) = incumbent.split_at(failed.min(incumbent.len()));
    let (failed, solved) = candidate.split_at(failed.min(candidate.len()));
    let sides = Sides {
        on_in: Spending::of(failed_before, failed, prices),
        on_out: Spending::of(solved_before, solved, prices),
    };
    let counted = StageResult::of(paired(failed_before, failed), paired(solved_before, solved));
    let rollouts = candidate.iter().flatten().count();
    StageResult {
        rollouts: u32::try_from(rollouts).unwrap_or(u32::MAX),
        ..counted.with_spending(sides)
    }
}

/// Count the same trials under two arms.
pub(crate) fn paired(incumbent: &[Rolled], candidate: &[Rolled]) -> Counts {
    let pairs = incumbent.iter().zip(candidate);
    Counts::of(pairs.map(|(incumbent, candidate)| Pair {
        incumbent: outcome(incumbent),
        candidate: outcome(candidate),
    }))
}

/// What became of a trial.
fn outcome(rolled: &Rolled) -> Outcome {
    match rolled.as_ref().map(|trajectory| &trajectory.verdict) {
        None => Outcome::LeftOut,
        Some(verdict) if verdict.undecided => Outcome::Undecided,
        Some(verdict) => Outcome::decided(verdict.correct),
    }
}

#[cfg(test)]
mod tests {
    use rollout::trajectory::{Trajectory, Verdict};

    use super::*;

    fn rolled(outcomes: &str) -> Vec<Rolled> {
        let of = |outcome| {
            let verdict = Verdict {
                correct: outcome == '+',
                undecided: outcome == '?',
                rule: "boxed".into(),
            };
            (outcome != '.').then(|| Trajectory {
                verdict,
                ..crate::rollouts::testing::trajectory()
            })
        };
        outcomes.chars().map(of).collect()
    }

    #[test]
    fn a_pair_without_one_of_its_arms_isnt_counted_but_where_the_incumbent_solved_it() {
        // V_in: gained, incumbent missing, both failed, candidate missing of what failed. V_out: lost,
        // candidate missing of what was solved, both missing, both solved.
        let result = compare(4, &rolled("-.--++.+"), &rolled("++-.-..+"), None);
        let counts = |[gained, lost, pairs, gone]: [u32; 4], [found, unmade]: [u32; 2]| Counts {
            gained,
            lost,
            pairs,
            gone,
            found,
            unmade,
            ..Counts::default()
        };
        assert_eq!(result.delta_in.counts(), counts([1, 0, 2, 0], [1, 2]));
        assert_eq!(result.delta_out.counts(), counts([0, 1, 2, 1], [0, 1]));
        // One of them beside an incumbent that is missing.
        assert_eq!(result.rollouts, 5);
        let spending = result.spending.expect("it was measured");
        let rollouts = (spending.incumbent.rollouts, spending.candidate.rollouts);
        assert_eq!(rollouts, (4, 4));
        let sides = result.spending_by_side.expect("it was measured");
        let rollouts = (sides.on_in.candidate, sides.on_out.candidate);
        assert_eq!((rollouts.0.rollouts, rollouts.1.rollouts), (2, 2));
    }

    #[test]
    fn a_pair_with_an_undecided_verdict_speaks_for_neither_arm() {
        // Both, the incumbent alone, the candidate alone of what was solved and of what wasn't; lost,
        // gained; with a missing arm.
        let counts = paired(&rolled("??+-+-?."), &rolled("?+??-+.?"));
        assert_eq!((counts.gained, counts.lost, counts.pairs), (1, 1, 2));
        assert_eq!((counts.undecided, counts.withheld, counts.gone), (4, 1, 0));
        assert_eq!(counts.undecided_before, 2);
        // Where a loss is looked for, it isn't solved by that arm.
        assert_eq!((counts.found, counts.unmade), (1, 2));
        let all = counts.as_unsolved();
        assert_eq!((all.gained, all.lost, all.pairs), (2, 2, 8));
    }
}
