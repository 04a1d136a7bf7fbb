//! The candidates of one cycle against the incumbent, stage by stage.
//!
//! A [`Contest`] says which candidates the next stage measures, takes the results, and ends with a
//! verdict on each; whoever drives it makes the rollouts ([`super::measure`]) or simulates them
//! ([`super::simulate`]).

use super::decide::{StageResult, Verdict, verdict};
use super::decision::{Decision, Evidence};
use super::evidence::Counts;
use super::martingale::{Test, e_value, rounded};
use super::plan::Stage;
use super::question::{Assessment, Question};
use super::sequential::Judgement;
use crate::config::Objective;

/// Share of a side's pairs that an acceptance needs: those that policy or sandbox kept from being made, or
/// that the verifier can't decide, may be the telling ones. Each side has to have it. Of both together a
/// large V_in would make up for a small V_out of which every pair is missing, and where nothing is compared
/// nothing is seen to be lost.
const LEAST_PAIRS: f64 = 0.75;

/// What to measure next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Index of the stage.
    pub stage: usize,
    /// Candidates to roll out in it, by index.
    pub candidates: Vec<usize>,
}

/// A candidate so far.
#[derive(Clone, Debug)]
struct Entrant {
    stages: Vec<StageResult>,
    evidence: Option<Evidence>,
    /// What is missing after the last stage.
    gaps: Vec<Gap>,
    verdict: Option<Verdict>,
    is_unmeasured: bool,
}

impl Entrant {
    /// Turn it down in `stage` (from 1) for sides that have too few pairs and can't have enough any more;
    /// whether there are such.
    fn give_up(&mut self, stage: usize) -> bool {
        let lasting: Vec<&Gap> = self.gaps.iter().filter(|gap| !gap.can_close).collect();
        if lasting.is_empty() {
            return false;
        }
        let reasons: Vec<&str> = lasting.iter().map(|gap| gap.reason.as_str()).collect();
        self.is_unmeasured = lasting.iter().all(|gap| gap.is_unmeasured);
        self.verdict = Some(Verdict::Rejected {
            stage,
            reason: reasons.join(", and "),
        });
        true
    }
}

/// A side of which too few pairs count so far.
#[derive(Clone, Debug)]
struct Gap {
    /// That, with the numbers.
    reason: String,
    /// Whether it says little about the candidate, since the pairs couldn't be made, or the incumbent's
    /// answers couldn't be judged.
    is_unmeasured: bool,
    /// Whether enough count in the end if all those do that are still to come.
    can_close: bool,
}

impl Gap {
    /// Of `planned` pairs at a place, with `left` still to come; none where enough of them count, or none
    /// were planned. What the incumbent solved and the candidate was left out of is known to be lost, as far
    /// as can be known.
    fn of(place: &str, seen: Counts, planned: u32, left: u32) -> Option<Self> {
        let Counts {
            pairs,
            undecided,
            undecided_before,
            gone,
            ..
        } = seen;
        let is_enough = |count: u32, all: u32| f64::from(count) >= LEAST_PAIRS * f64::from(all);
        if is_enough(pairs, planned) {
            return None;
        }
        let told = pairs + undecided + gone;
        let others = [
            (undecided, "undecided"),
            (gone, "solved before and left out now"),
            (planned.saturating_sub(told), "kept from being made"),
        ];
        let others = others.iter().filter(|(count, _)| *count > 0);
        let others: Vec<String> = others.map(|(n, what)| format!("{n} {what}")).collect();
        let others = others.join(", ");
        Some(Self {
            reason: format!("only {pairs} of {planned} pairs{place} count ({others})"),
            is_unmeasured: !is_enough(told.saturating_sub(undecided_before), planned),
            can_close: is_enough(pairs + left, planned + left),
        })
    }
}

/// Candidates and what was measured of them.
#[derive(Clone, Debug)]
pub struct Contest {
    question: Question,
    /// What an accepted candidate may spend.
    objective: Objective,
    /// V_in's share of the problems.
    share_in: f64,
    /// Pairs of each stage on V_in and V_out.
    sizes: Vec<(u32, u32)>,
    entrants: Vec<Entrant>,
}

impl Contest {
    /// A contest over `plan` with one candidate for each of `tests`.
    pub fn new(question: Question, plan: &[Stage], tests: Vec<Test>) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let objection = question.objection_to(plan);
        let has_looks = question.is_sequential() && objection.is_none();
        let entrants = tests.into_iter().map(|test| Entrant {
            stages: Vec::new(),
            evidence: has_looks.then_some(Evidence {
                test,
                benefit: Vec::new(),
                harm: Vec::new(),
            }),
            verdict: objection.map(|reason| Verdict::Rejected {
                stage: 0,
                reason: reason.into(),
            }),
            gaps: Vec::new(),
            is_unmeasured: false,
        });
        Self {
            question,
            objective: Objective::default(),
            share_in: 1.0,
            sizes: plan
                .iter()
                .map(|stage| (count(stage.failed.len()), count(stage.solved.len())))
                .collect(),
            entrants: entrants.collect(),
        }
    }

    /// The same where nothing is accepted that spends more than `objective` allows; V_in has the share
    /// `share_in` of the problems.
    #[must_use]
    pub fn under(mut self, objective: Objective, share_in: f64) -> Self {
        self.objective = objective;
        self.share_in = share_in;
        self
    }

    /// The next stage and its candidates; none when every decision is made.
    ///
    /// The fixed modes measure everybody in the first stage, then the best of those that hold alone in
    /// the others. Looks measure all that are undecided.
    pub fn turn(&self) -> Option<Turn> {
        if self.winner().is_some() {
            return None;
        }
        let open = || (0..self.entrants.len()).filter(|i| self.entrants[*i].verdict.is_none());
        let measured = |i: usize| self.entrants[i].stages.len();
        let candidates: Vec<usize> =
            if self.question.is_sequential() || open().all(|i| measured(i) == 0) {
                open().collect()
            } else {
                let net = |i: &usize| StageResult::net(&self.entrants[*i].stages[0]);
                open().min_by_key(|i| (-net(i), *i)).into_iter().collect()
            };
        let stage = measured(*candidates.first()?);
        Some(Turn { stage, candidates })
    }

    /// Enter what a turn measured: one result for each of its candidates.
    pub fn record(&mut self, turn: &Turn, results: &[StageResult]) {
        // Each stage of the fixed modes decides by itself, a look by all pairs so far, and more may come.
        let is_sequential = self.question.is_sequential();
        let (first, rest) = match is_sequential {
            true => (0, &self.sizes[turn.stage + 1..]),
            false => (turn.stage, &[][..]),
        };
        let (planned, left) = (sum(&self.sizes[first..=turn.stage]), sum(rest));
        let place = |side| self.question.on(side);
        let (on_in, on_out) = (place("V_in"), place("V_out"));
        for (index, result) in turn.candidates.iter().zip(results) {
            let entrant = &mut self.entrants[*index];
            entrant.stages.push(*result);
            let had = StageResult::pooled(&entrant.stages[first..]);
            let gaps = [
                Gap::of(&on_in, had.delta_in.counts(), planned.0, left.0),
                Gap::of(&on_out, had.delta_out.counts(), planned.1, left.1),
            ];
            entrant.gaps = gaps.into_iter().flatten().collect();
        }
        if is_sequential {
            self.look(turn, left);
            return;
        }
        let mut passed = Vec::new();
        for &index in &turn.candidates {
            let entrant = &mut self.entrants[index];
            if entrant.give_up(turn.stage + 1) {
                continue;
            }
            let outcome = verdict(&entrant.stages, self.sizes.len());
            let totals = StageResult::pooled(&entrant.stages);
            let excess = totals.excess(&self.objective, self.share_in);
            entrant.verdict = match (outcome, excess) {
                (None | Some(Verdict::Accepted), Some(reason)) => Some(Verdict::Rejected {
                    stage: turn.stage + 1,
                    reason,
                }),
                (Some(Verdict::Accepted), None) => {
                    passed.push(index);
                    None
                }
                (outcome, _) => outcome,
            };
        }
        self.take_best(&passed, |entrant| {
            entrant.stages.iter().map(StageResult::net).sum::<i64>() as f64
        });
    }

    /// Judge everybody after a look, with so many pairs to come on V_in and V_out.
    fn look(&mut self, turn: &Turn, left: (u32, u32)) {
        let mut crossed = Vec::new();
        for &index in &turn.candidates {
            let entrant = &mut self.entrants[index];
            let Some(evidence) = &mut entrant.evidence else {
                continue;
            };
            let totals = StageResult::pooled(&entrant.stages);
            let Assessment {
                benefit,
                harm,
                judgement,
                objection,
            } = self.question.assess(&totals, left, &evidence.test);
            let (failed, solved) = (totals.delta_in.counts(), totals.delta_out.counts());
            evidence.benefit.push(e_value(benefit));
            evidence.harm.push(e_value(harm));
            let shown = format!(
                "e-value {} of the {:.0} needed, {}",
                rounded(e_value(benefit)),
                1.0 / evidence.test.level,
                self.question.sides("δ", failed, solved)
            );
            let rejected = |reason: String| Verdict::Rejected {
                stage: turn.stage + 1,
                reason,
            };
            // Harm is seen in the pairs that there are. For the rest, missing pairs bar acceptance alone as
            // long as enough others may come.
            if judgement != Judgement::Harm && entrant.give_up(turn.stage + 1) {
                continue;
            }
            entrant.verdict = match judgement {
                Judgement::Continue => None,
                Judgement::Accept if !entrant.gaps.is_empty() => None,
                Judgement::Accept => {
                    let excess = totals.excess(&self.objective, self.share_in);
                    if excess.is_none() {
                        crossed.push(index);
                    }
                    excess.map(rejected)
                }
                Judgement::Harm => Some(rejected(format!("{}: {shown}", self.question.harm()))),
                Judgement::Futile => Some(rejected(format!("futile: {shown}"))),
                Judgement::Exhausted => Some(match objection {
                    Some(objection) => rejected(objection),
                    None => Verdict::Inconclusive { reason: shown },
                }),
            };
        }
        self.take_best(&crossed, |entrant| {
            let last = entrant.evidence.as_ref().and_then(|e| e.benefit.last());
            last.copied().unwrap_or_default()
        });
    }

    /// Accept the best undecided one of `among`, the first where several are best.
    fn take_best(&mut self, among: &[usize], score: impl Fn(&Entrant) -> f64) {
        let mut best: Option<(usize, f64)> = None;
        for &index in among {
            let score = score(&self.entrants[index]);
            if self.entrants[index].verdict.is_none() && best.is_none_or(|(_, most)| score > most) {
                best = Some((index, score));
            }
        }
        if let Some((index, _)) = best {
            self.entrants[index].verdict = Some(Verdict::Accepted);
        }
    }

    /// The accepted candidate.
    pub fn winner(&self) -> Option<usize> {
        let is_accepted = |entrant: &Entrant| entrant.verdict == Some(Verdict::Accepted);
        self.entrants.iter().position(is_accepted)
    }

    /// All decisions, in the candidates' order. Whoever is undecided is deferred.
    pub fn finish(self) -> Vec<Decision> {
        let question = self.question;
        let decide = |entrant: Entrant| Decision {
            question,
            rollouts: entrant.stages.iter().map(|stage| stage.rollouts).sum(),
            stages: entrant.stages,
            evidence: entrant.evidence,
            verdict: entrant.verdict.unwrap_or(Verdict::Deferred),
            is_unmeasured: entrant.is_unmeasured,
        };
        self.entrants.into_iter().map(decide).collect()
    }
}

/// Pairs of stages on V_in and V_out.
fn sum(sizes: &[(u32, u32)]) -> (u32, u32) {
    let all = sizes.iter();
    all.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
}

#[cfg(test)]
mod tests;
