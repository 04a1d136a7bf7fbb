//! A comparison of what was let in with what was there before, driven by rollouts.

use rollout::task::{Split, Task};

use super::loss::{Loss, Tolerance, Watch};
use super::measure::paired;
use crate::error::RunError;
use crate::rollouts::{Arm, Judge, Rolled, Trial};
use crate::seed::Seed;
use crate::workshop::Workshop;

/// What two arms are compared on, and by what measure.
pub(crate) struct Ground<'a> {
    pub(crate) tasks: &'a [Task],
    pub(crate) judge: &'a Judge,
    pub(crate) seed: Seed,
    /// Passes over the tasks at most.
    pub(crate) passes: u32,
    pub(crate) tolerance: Tolerance,
}

/// What was measured.
pub(crate) struct Watched {
    pub(crate) loss: Loss,
    /// The trials of all passes.
    pub(crate) trials: Vec<Trial>,
    /// What became of them under the earlier and under the later arm.
    pub(crate) earlier: Vec<Rolled>,
    pub(crate) later: Vec<Rolled>,
}

impl Workshop {
    /// Look whether `later` has lost against `earlier`, in round `round`.
    ///
    /// The problems are neither the critic's nor the trainer's to see, so their rollouts are kept as the
    /// gate's. As in a decision, sampled arms get seeds that nothing has used: an earlier arm whose luck
    /// is known already would be no measure. Under greedy decoding there is no luck, one pass says it
    /// all, and the earlier arm's rollouts are mostly in the journal.
    ///
    /// # Errors
    /// As [`Self::roll_arms`].
    pub(crate) async fn watch(
        &self,
        title: &str,
        round: u32,
        ground: &Ground<'_>,
        earlier: &Arm,
        later: &Arm,
    ) -> Result<Watched, RunError> {
        let is_greedy = earlier.is_greedy() && later.is_greedy();
        let (seed, passes) = if is_greedy {
            (ground.seed, 1)
        } else {
            (ground.seed.derive("round").derive(round), ground.passes)
        };
        let arms = [earlier.clone(), later.clone()];
        let mut watch = Watch::new(ground.tolerance);
        let (mut all, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for pass in 0..passes {
            let seed = seed.derive(pass);
            let trials: Vec<Trial> = ground
                .tasks
                .iter()
                .map(|task| Trial {
                    seed: seed.derive(task.content_hash().as_str()).value(),
                    task: task.clone(),
                })
                .collect();
            let mut rolled = self
                .roll_judged(title, &arms, Split::Gate, ground.judge, &trials)
                .await?
                .into_iter();
            let (old, new) = (
                rolled.next().unwrap_or_default(),
                rolled.next().unwrap_or_default(),
            );
            let wants_more = watch.record(paired(&old, &new));
            all.extend(trials);
            first.extend(old);
            second.extend(new);
            if !wants_more {
                break;
            }
        }
        Ok(Watched {
            loss: watch.finish(),
            trials: all,
            earlier: first,
            later: second,
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::rollouts::testing::trajectory;

    #[test]
    fn what_an_arm_could_not_be_rolled_out_on_it_has_not_solved() {
        let mut solved = trajectory();
        solved.verdict.correct = true;
        let (solved, failed) = (Some(solved), Some(trajectory()));
        let earlier = [solved.clone(), solved.clone(), failed, None];
        let is_suspected = |last: &Rolled| {
            let later = [solved.clone(), None, None, last.clone()];
            let mut watch = Watch::new(Tolerance::shared(0.0, 1));
            let is_suspected = watch.record(paired(&earlier, &later));
            let delta = watch.finish().delta;
            assert_eq!((delta.pairs, delta.lost, delta.gone), (1, 0, 1));
            is_suspected
        };
        assert!(is_suspected(&None));
        // Another one is gained for it.
        assert!(!is_suspected(&solved));
    }

    const LOOKS: u32 = 400;

    /// Share of looks without a tolerance, of up to four passes over a hundred problems, that show a loss
    /// between arms that solve nine of ten; of the rollouts of each this share has no outcome, half of it
    /// undecided and half left out.
    fn shown(missing: [f64; 2]) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(9);
        let solved = trajectory();
        let mut arms: [Vec<Rolled>; 2] = [vec![None; 100], vec![None; 100]];
        let mut count = 0;
        for _ in 0..LOOKS {
            let mut watch = Watch::new(Tolerance::shared(0.0, 1));
            for _ in 0..4 {
                for (arm, missing) in arms.iter_mut().zip(missing) {
                    for rolled in arm.iter_mut() {
                        let luck = random.random::<f64>();
                        if luck < missing / 2.0 {
                            *rolled = None;
                            continue;
                        }
                        let kept = rolled.get_or_insert_with(|| solved.clone());
                        kept.verdict.undecided = luck < missing;
                        kept.verdict.correct = luck >= missing && random.random::<f64>() < 0.9;
                    }
                }
                if !watch.record(paired(&arms[0], &arms[1])) {
                    break;
                }
            }
            count += u32::from(watch.finish().is_shown);
        }
        f64::from(count) / f64::from(LOOKS)
    }

    #[test]
    fn arms_that_are_as_often_without_an_outcome_show_no_loss_and_one_that_is_more_often_does() {
        let noise = 3.0 * (0.05 * 0.95 / f64::from(LOOKS)).sqrt();
        for missing in [0.0, 0.05, 0.1] {
            let share = shown([missing; 2]);
            assert!(share <= 0.05 + noise, "{missing}: {share}");
        }
        let share = shown([0.05, 0.3]);
        assert!(share > 0.9, "{share}");
    }
}
