//! Reference: where the head stands against where the run began, and against the best that it ever stood on.
//!
//! Each change was let in against its predecessor alone. Errors of single decisions, losses that a rule
//! lets pass, and patches that got in each other's way or in the way of new weights add up unseen. So every
//! `gate.reference_every` rounds what the run stands on is rolled out on all gate problems beside both; if
//! it is shown to be worse than one of them, the run goes back there.

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::gate::loss::Tolerance;
use crate::gate::watch::{Ground, Watched};
use crate::history::History;
use crate::report::{Cause, Place, Point, ReferenceRow, kind};
use crate::retention::solved;
use crate::standing::Standing;
use crate::workshop::Workshop;

/// Passes over the gate problems at most; a further one is made only while the head seems worse.
const PASSES: u32 = 4;

/// What the run measures itself by.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The starting harness with the starting weights.
    pub start: Standing,
    /// The best so far: replaced only by what did better beside it.
    pub best: Standing,
}

impl Reference {
    /// At the start of a run.
    pub fn new(start: Standing) -> Self {
        Self {
            best: start.clone(),
            start,
        }
    }
}

impl Workshop {
    /// What the next round starts from: `head`, or one of the references if that is shown to be better.
    ///
    /// # Errors
    /// When the run is to stop or a part fails; what was finished is stored.
    pub async fn refer(
        &self,
        round: u32,
        head: Standing,
        reference: &mut Reference,
        history: &mut History,
    ) -> Result<Standing, RunError> {
        let every = self.loaded.config.gate.reference_every;
        if every == 0 || !round.is_multiple_of(every) {
            return Ok(head);
        }
        let Reference { start, best } = &*reference;
        let mut points = vec![(Point::Best, best.clone())];
        if !start.is_like(best) {
            points.push((Point::Start, start.clone()));
        }
        points.retain(|(_, standing)| !standing.is_like(&head));
        let tolerance = Tolerance::shared(0.0, points.len());
        let mut is_better_than_best = false;
        for (point, standing) in points {
            let row = self
                .compare_with(round, point, [&standing, &head], tolerance)
                .await?;
            self.line(format!("round {round}: {}", row.outline()));
            if row.loss.is_shown {
                let reason = format!("round {round}: {}", row.outline());
                let way = [&head, &standing];
                let back = self
                    .go_back(round, Cause::Reference, &reason, way, history)
                    .await?;
                reference.best = back.clone();
                return Ok(back);
            }
            is_better_than_best |= point == Point::Best && row.has_solved_more();
        }
        if is_better_than_best {
            reference.best = head.clone();
        }
        Ok(head)
    }

    /// The head beside one of the references. The other one's comparison has the same trials.
    async fn compare_with(
        &self,
        round: u32,
        point: Point,
        [earlier, head]: [&Standing; 2],
        tolerance: Tolerance,
    ) -> Result<ReferenceRow, RunError> {
        let key = self.key(kind::REFERENCE, &[&round.to_string(), point.name()]);
        let places = [earlier.place(), head.place()];
        // An earlier version may have counted otherwise, and the registry has what came of it.
        let known: Option<ReferenceRow> = self.store.step(&key).await?;
        if let Some(row) = known.filter(|row| row.reference == places[0] && row.head == places[1]) {
            return Ok(row);
        }
        let ground = Ground {
            tasks: &self.splits.gate,
            judge: &self.judge,
            seed: self.seed().derive("reference"),
            passes: PASSES,
            tolerance,
        };
        let title = format!("round {round} · head beside {}", earlier.head.name());
        let arms = [self.arm_of(earlier).await?, self.arm_of(head).await?];
        let watched = self
            .watch(&title, round, &ground, &arms[0], &arms[1])
            .await?;
        let row = ReferenceRow::of(round, point, places, watched);
        self.store
            .record_step(&key, kind::REFERENCE, round, &row, unix_seconds())
            .await?;
        Ok(row)
    }
}

impl ReferenceRow {
    fn of(round: u32, point: Point, [reference, head]: [Place; 2], watched: Watched) -> Self {
        let all = watched.loss.delta.counts().as_unsolved();
        Self {
            round,
            point,
            reference,
            head,
            rate_reference: solved(&watched.earlier),
            rate_head: solved(&watched.later),
            rollouts: 2 * watched.trials.len(),
            has_solved_more: Some(all.gained > all.lost),
            loss: watched.loss,
        }
    }

    /// Whether the head has solved more.
    ///
    /// An earlier version held gaps against the head alone and didn't keep what came of it. Its run went on from
    /// there, so that its rows are read in its way.
    fn has_solved_more(&self) -> bool {
        self.has_solved_more.unwrap_or_else(|| {
            let worst = self.loss.delta.counts().at_worst();
            worst.gained > worst.lost
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::evidence::Outcome::{self, Failed, LeftOut, Solved, Undecided};
    use crate::gate::evidence::{Counts, Pair};
    use crate::gate::loss::Watch;

    /// What is made of problems, by what becomes of each under the reference and under the head.
    fn row(pairs: &[(Outcome, Outcome)]) -> ReferenceRow {
        let pairs = pairs.iter().map(|&(incumbent, candidate)| Pair {
            incumbent,
            candidate,
        });
        let mut watch = Watch::new(Tolerance::shared(0.0, 1));
        watch.record(Counts::of(pairs));
        let watched = Watched {
            loss: watch.finish(),
            trials: Vec::new(),
            earlier: Vec::new(),
            later: Vec::new(),
        };
        let place = |version: &str| Place {
            version: version.into(),
            adapter: None,
        };
        ReferenceRow::of(2, Point::Best, [place("v1"), place("v2")], watched)
    }

    #[test]
    fn what_an_arm_has_no_outcome_for_it_has_not_solved_whichever_it_is() {
        let is_gain = |pairs: &[(Outcome, Outcome)]| row(pairs).has_solved_more();
        // A gap on either side, and one problem more that the head alone has solved.
        let gaps = [(LeftOut, Solved), (Solved, LeftOut), (Failed, Solved)];
        assert!(is_gain(&gaps));
        assert!(!is_gain(&gaps.map(|(earlier, later)| (later, earlier))));
        assert!(is_gain(&[(Undecided, Solved)]));
        assert!(!is_gain(&[(Undecided, Solved), (Solved, Undecided)]));
        assert!(!is_gain(&[(Solved, Solved), (Failed, LeftOut)]));
    }

    #[test]
    fn what_an_earlier_version_made_of_gaps_stays() {
        let known = |pairs: &[(Outcome, Outcome)]| {
            let mut row = serde_json::to_value(row(pairs)).expect("JSON");
            let fields = row.as_object_mut().expect("a row");
            fields.remove("has_solved_more");
            let row: ReferenceRow = serde_json::from_value(row).expect("a row");
            row.has_solved_more()
        };
        assert!(!known(&[(Undecided, Solved)]));
        assert!(known(&[(Failed, Solved)]));
        assert!(!known(&[(Failed, Solved), (Solved, LeftOut)]));
    }
}
