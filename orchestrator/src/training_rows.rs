//! From trajectories to supervised rows: which rollouts teach, and which of their tokens.

use std::collections::{BTreeMap, BTreeSet};

use rollout::policy::Renderer;
use rollout::trajectory::{ModelCall, Trajectory};
use trainer::Row;

use crate::base_model::BaseModel;
use crate::error::RunError;
use crate::seed::Seed;

/// Verified trajectories to learn from, at most `per_task` of one problem, no two with the same
/// replies. The order is that of the trajectories given.
pub fn select(trajectories: &[Trajectory], per_task: usize) -> Vec<&Trajectory> {
    let mut seen: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    trajectories
        .iter()
        .filter(|t| t.verdict.correct)
        .filter(|trajectory| {
            // Texts rather than ids: a server gives none.
            let written = trajectory.messages.iter().filter(|message| message.train);
            let replies: Vec<&str> = written.map(|message| message.content.as_str()).collect();
            let known = seen.entry(trajectory.task_hash.as_str()).or_default();
            if known.len() >= per_task || known.contains(&replies) {
                return false;
            }
            known.push(replies);
            true
        })
        .collect()
}

/// The problems that are validated on, of those named by their hashes: `share` of them, but at least
/// one, and never all. Problems and not trajectories, so that none is on both sides. A problem's rank
/// follows from its text and the seed alone: from round to round it mostly stays on its side.
pub fn held_out<'a>(
    problems: impl IntoIterator<Item = &'a str>,
    share: f64,
    seed: Seed,
) -> BTreeSet<&'a str> {
    let all: BTreeSet<&str> = problems.into_iter().collect();
    if share <= 0.0 || all.len() < 2 {
        return BTreeSet::new();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count, rounded"
    )]
    let count = (share * all.len() as f64).round() as usize;
    let mut ranked: Vec<&str> = all.into_iter().collect();
    ranked.sort_by_key(|problem| seed.derive(problem).value());
    let count = count.clamp(1, ranked.len() - 1);
    ranked.into_iter().take(count).collect()
}

/// Token rows of one trajectory, from the ids its policy produced: nothing is tokenised again.
///
/// A call whose prompt continues the previous call's prompt and reply shares one row with it. What
/// the policy wrote is supervised, and so is an end-of-turn token that follows it in the next
/// prompt: a reply cut by a stop string or after its call should have ended there.
pub fn rows(trajectory: &Trajectory, end_of_turn: &[u32]) -> Vec<Row> {
    let mut rows: Vec<(Vec<u32>, Vec<bool>)> = Vec::new();
    for call in trajectory
        .model_calls
        .iter()
        .filter(|call| !call.prompt_ids.is_empty())
    {
        match rows.last_mut() {
            Some((tokens, mask)) if call.prompt_ids.starts_with(tokens) => {
                let from = tokens.len();
                tokens.extend(&call.prompt_ids[from..]);
                mask.resize(tokens.len(), false);
                if mask.get(from.wrapping_sub(1)) == Some(&true)
                    && !end_of_turn.contains(&tokens[from - 1])
                    && tokens
                        .get(from)
                        .is_some_and(|next| end_of_turn.contains(next))
                {
                    mask[from] = true;
                }
                append_reply(tokens, mask, call);
            }
            _ => {
                let mut tokens = call.prompt_ids.clone();
                let mut mask = vec![false; tokens.len()];
                append_reply(&mut tokens, &mut mask, call);
                rows.push((tokens, mask));
            }
        }
    }
    let name = |index: usize| format!("{}#{index}", trajectory.id.as_str());
    // A reply that was cut leaves nothing to learn.
    rows.retain(|(_, mask)| mask.contains(&true));
    rows.into_iter()
        .enumerate()
        .map(|(index, (tokens, mask))| Row {
            id: name(index),
            tokens,
            mask,
        })
        .collect()
}

fn append_reply(tokens: &mut Vec<u32>, mask: &mut Vec<bool>, call: &ModelCall) {
    tokens.extend(&call.output_ids);
    mask.resize(tokens.len(), true);
}

/// The row of a conversation whose policy gave no token ids (a server): the final rendering is
/// tokenised once, and supervised is what the template puts out for messages the policy wrote,
/// their end-of-turn token included.
///
/// Nothing is returned when the template does not keep earlier turns as they were (reasoning that
/// it drops, say): then there is no telling which text of the final rendering the policy wrote. Nor
/// for calls through the server's own interface, which only the server knows how to write.
pub fn row_of_messages(base: &BaseModel, trajectory: &Trajectory) -> Result<Option<Row>, RunError> {
    if trajectory.messages.iter().any(|message| message.is_native) {
        return Ok(None);
    }
    let renderer = Renderer::new(&base.tokenizer, &base.template, base.variables.clone())?;
    let messages = &trajectory.messages;
    let whole = renderer.render(messages, None, false)?;
    let mut spans = Vec::new();
    for (index, _) in messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message.train)
    {
        let start = renderer.render(&messages[..index], None, true)?.text;
        let end = renderer.render(&messages[..=index], None, false)?.text;
        if !whole.text.starts_with(&start) || !whole.text.starts_with(&end) {
            return Ok(None);
        }
        spans.push(start.len()..start.len().max(end.len()));
    }
    let encoded = base.tokenizer.encode_rendered(&whole)?;
    let mut mask = encoded.mask(&spans);
    // What follows the end of a turn (a line break, mostly) is the template's, not the policy's.
    let mut is_ended = false;
    for (index, count) in mask.iter_mut().enumerate() {
        if !*count {
            is_ended = false;
        } else if is_ended {
            *count = false;
        } else {
            is_ended = base.stop_tokens.contains(&encoded.ids[index]);
        }
    }
    Ok(Some(Row {
        id: trajectory.id.as_str().to_owned(),
        tokens: encoded.ids,
        mask,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_problems_is_held_out_and_most_stay_so_when_others_come() {
        let names: Vec<String> = (0..40).map(|number| format!("problem {number}")).collect();
        let of = |count: usize, share| {
            // Two trajectories of each.
            let problems = names[..count].iter().map(String::as_str);
            held_out(problems.clone().chain(problems), share, Seed::new(3))
        };
        assert_eq!(of(40, 0.25).len(), 10);
        assert_eq!(of(40, 0.25), of(40, 0.25));
        let stayed = of(30, 0.25).intersection(&of(40, 0.25)).count();
        assert!(stayed >= 5, "{stayed} of 8");
        // At least one on either side, or none at all.
        assert_eq!((of(2, 0.01).len(), of(2, 0.99).len()), (1, 1));
        assert!(of(1, 0.5).is_empty() && of(40, 0.0).is_empty());
        let other = held_out(names.iter().map(String::as_str), 0.25, Seed::new(4));
        assert_ne!(other, of(40, 0.25));
    }
}
