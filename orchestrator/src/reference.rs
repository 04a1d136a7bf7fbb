//! Reference: where the head stands against where the run began, and against the best that it ever stood on.
//!
//! Each change was let in against its predecessor alone. Errors of single decisions, losses that a rule
//! lets pass, and patches that got in each other's way or in the way of new weights add up unseen. So every
//! `gate.reference_every` rounds what the run stands on is rolled out on all gate problems beside both; if
//! it is shown to be worse than one of them, the run goes back there.

use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::gate::loss::Tolerance;
use crate::gate::watch::Ground;
use crate::history::History;
use crate::report::{Cause, Point, ReferenceRow, kind};
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
            let worst = row.loss.delta.counts().at_worst();
            is_better_than_best |= point == Point::Best && worst.gained > worst.lost;
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
        let [reference, head] = places;
        let row = ReferenceRow {
            round,
            point,
            reference,
            head,
            rate_reference: solved(&watched.earlier),
            rate_head: solved(&watched.later),
            rollouts: 2 * watched.trials.len(),
            loss: watched.loss,
        };
        self.store
            .record_step(&key, kind::REFERENCE, round, &row, unix_seconds())
            .await?;
        Ok(row)
    }
}
