//! Rollouts made ahead of the phase that needs them, beside a training: they end before it begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coharness::history::History;
use coharness::observer::{Notice, Observer};
use rollout::{BoxFuture, Completion, CompletionRequest, Policy, PolicyError, PolicyId};

use crate::Place;
use crate::full_training::{knows_all, trainings, workshop_that_asks};
use crate::scene::Scripted;

/// Longer than it takes from the diagnosis to the training, which are a model's that replies at once.
const LONG: Duration = Duration::from_secs(3);

/// A model that thinks long about one of the gate's problems.
struct Slow {
    inner: Arc<dyn Policy>,
    has_answered: Arc<AtomicBool>,
}

impl Policy for Slow {
    fn id(&self) -> &PolicyId {
        self.inner.id()
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(async move {
            let mut messages = request.messages.iter();
            let is_late = messages.any(|m| m.content.contains("Question 3 to decide by?"));
            if is_late {
                tokio::time::sleep(LONG).await;
            }
            let completion = self.inner.complete(request).await;
            self.has_answered.fetch_or(is_late, Ordering::Relaxed);
            completion
        })
    }
}

/// Whether the slow one had answered when a training began.
#[derive(Default)]
struct Beginnings {
    has_answered: Arc<AtomicBool>,
    trainings: Mutex<Vec<bool>>,
}

impl Observer for Beginnings {
    fn notice(&self, notice: Notice) {
        if let Notice::Began(phase) = notice
            && phase.title.contains("fine-tune")
        {
            let has_answered = self.has_answered.load(Ordering::Relaxed);
            self.trainings.lock().expect("alone").push(has_answered);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_begins_once_what_is_made_ahead_has_ended() {
    let place = Place::new();
    let watch = Arc::new(Beginnings::default());
    let asks = |number: u32| format!("Question {number} to learn from?");
    let (gather, sft) = ("gather_tasks: 12", "rank: 4, alpha: 8, batch: 6, epochs: 1");
    let observer = Arc::clone(&watch);
    let workshop = workshop_that_asks(&place, asks, knows_all, gather, sft, observer).await;
    let slow: Arc<dyn Policy> = Arc::new(Slow {
        inner: Scripted::policy("script", knows_all),
        has_answered: Arc::clone(&watch.has_answered),
    });
    let start = workshop.head("v1").expect("v1");
    let mut history = History::new(0.05);
    let looped = workshop.harness_loop(1, start, &slow, &mut history).await;
    // Nothing is left to propose, and the classification has begun: nobody else asks the slow one.
    let head = looped.expect("a round");
    assert_eq!(head.name(), "v1");
    let trained = workshop.model_loop(1, &head, None, &mut history.discoveries);
    trained.await.expect("a round");
    assert!(trainings(&workshop).await[0].adapter.is_some());
    assert_eq!(*watch.trainings.lock().expect("alone"), [true]);
    // The decision on the weights has asked for all of it.
    let ahead = workshop.store.made_ahead().await.expect("ids");
    assert!(ahead.is_empty(), "{ahead:?}");
}
