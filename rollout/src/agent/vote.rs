//! Several samples of one rollout, and the answer that most of them give.
//!
//! A server isn't asked for them at once (`n`): a sample is a whole rollout, with calls between its
//! replies; each takes from one budget, which may be spent before the next; and each has a seed by its
//! number, so that it can be made again. Servers that keep prefixes compute the prompt once all the
//! same.

use harness::Hook;

use super::record::Record;
use super::{Agent, Run};
use crate::task::Task;
use crate::trajectory::ExitReason;
use crate::verifier::{Outcome, Verifier};

/// One sample: what it leaves, how it ended, and its answer.
struct Sample {
    record: Record,
    exit: ExitReason,
    answer: Option<String>,
}

/// Rolls out once, or as often as a hook says, within one budget. Of several samples the first with
/// the most frequent answer stands for all; its record counts the tokens of every one.
pub(super) async fn samples(agent: &Agent, task: &Task, seed: u64) -> (Record, ExitReason) {
    let mut hooks = agent.harness.middleware.hooks.on_finish.iter();
    let vote = hooks.find_map(|hook| match hook {
        Hook::Vote { samples } => Some((hook, *samples)),
        _ => None,
    });
    let mut run = Run::new(agent, task, seed);
    let exit = run.attempts().await;
    let Some((hook, count)) = vote else {
        return (run.record, exit);
    };
    let mut samples = vec![Sample::of(agent, run.record, exit)];
    for number in 1..count {
        let Some(last) = samples.last().filter(|last| last.is_followed()) else {
            break;
        };
        let mut run = Run::new(agent, task, sample_seed(seed, number));
        run.record.go_on_from(&last.record);
        let exit = run.attempts().await;
        samples.push(Sample::of(agent, run.record, exit));
    }
    // A fault of the surroundings in one sample is one of the whole rollout.
    if let Some(at) = samples
        .iter()
        .position(|sample| sample.exit.is_infrastructure())
    {
        let failed = samples.swap_remove(at);
        return (failed.record, failed.exit);
    }
    let usage = samples
        .last()
        .map(|last| last.record.usage)
        .unwrap_or_default();
    let (winner, votes) = winner(agent.verifier.as_ref(), &samples).await;
    let count = samples.len();
    let mut winner = samples.swap_remove(winner);
    winner.record.usage = usage;
    let what = match &winner.answer {
        Some(answer) => format!("{votes} of {count} samples answer {answer}"),
        None => format!("none of {count} samples has an answer"),
    };
    winner.record.fired(hook, what);
    (winner.record, winner.exit)
}

impl Sample {
    fn of(agent: &Agent, record: Record, exit: ExitReason) -> Self {
        Sample {
            answer: record.answer(agent),
            record,
            exit,
        }
    }

    /// Whether there may be another sample after this one.
    fn is_followed(&self) -> bool {
        let is_spent = matches!(self.exit, ExitReason::TokenBudget | ExitReason::WallBudget);
        !is_spent && !self.exit.is_infrastructure()
    }
}

/// The first sample with the most frequent answer, and how many have it. Answers are equal if the
/// verifier says so of them; it sees no gold answer here. Programs are equal if their texts are.
async fn winner(verifier: &dyn Verifier, samples: &[Sample]) -> (usize, usize) {
    let mut best = (0, 0);
    for (index, sample) in samples.iter().enumerate() {
        let Some(answer) = &sample.answer else {
            continue;
        };
        let mut votes = 0;
        for other in samples.iter().filter_map(|other| other.answer.as_deref()) {
            votes += usize::from(is_same(verifier, answer, other).await);
        }
        if votes > best.1 {
            best = (index, votes);
        }
    }
    best
}

async fn is_same(verifier: &dyn Verifier, one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let comparison = verifier.compare(one, other).await;
    comparison.is_some_and(|comparison| comparison.outcome == Outcome::Equal)
}

/// The first sample has the rollout's own seed.
fn sample_seed(seed: u64, number: u32) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"sample");
    hasher.update(&seed.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}
