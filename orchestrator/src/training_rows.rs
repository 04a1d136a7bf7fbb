//! From trajectories to supervised rows: which tokens of a rollout are learnt from.

use std::collections::BTreeSet;

use model::tokenizer::Tokenizer;
use rollout::policy::Renderer;
use rollout::trajectory::{ModelCall, Trajectory};
use serde_json::Value;
use trainer::Row;
use trainer::conversation::{ConversationError, Encoder};

use crate::base_model::BaseModel;
use crate::error::RunError;
use crate::left_out::Reason;
use crate::seed::Seed;

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

/// What a trajectory gives to learn from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The rows. Nothing may count in one.
    pub rows: Vec<Row>,
    /// Why something of it gives no row at all.
    pub left_out: Vec<Reason>,
    /// Names of rows in which a turn ends without an end-of-turn token, at a stop text, after a call
    /// or at a limit.
    pub endless: Vec<String>,
}

impl Found {
    /// The same without rows that begin with more than one start token, as a server may make of its
    /// prompts: what decodes here refuses such a prompt.
    fn started_once(mut self, tokenizer: &Tokenizer) -> Self {
        let all = self.rows.len();
        self.rows
            .retain(|row| tokenizer.check_start(&row.tokens).is_ok());
        let left_out = self.left_out.len() + all - self.rows.len();
        self.left_out.resize(left_out, Reason::RepeatedStart);
        self
    }
}

/// What a trajectory gives to learn from: the rows of its token ids, or where these have none that of its
/// messages.
///
/// # Errors
/// When the model's template or tokenizer fails.
pub fn found(base: &BaseModel, trajectory: &Trajectory) -> Result<Found, RunError> {
    let found = rows(trajectory, &base.stop_tokens);
    if found.rows.iter().any(|row| row.targets() > 0) {
        return Ok(found.started_once(&base.tokenizer));
    }
    Ok(match row_of_messages(base, trajectory)? {
        Ok(row) => Found {
            rows: vec![row],
            ..Found::default()
        },
        Err(reason) if found.rows.is_empty() => Found {
            left_out: vec![reason],
            ..Found::default()
        },
        Err(_) => found,
    })
}

/// Token rows of one trajectory, from the ids its policy produced: nothing is tokenised again.
///
/// A call whose prompt continues the previous call's prompt and reply shares one row with it. What
/// the policy wrote is supervised, and so is an end-of-turn token that follows it in the next
/// prompt: a reply cut by a stop string or after its call should have ended there.
///
/// A row of nothing but replies that were cut, by a limit or a filter, is left out here: nothing in it
/// was ever meant to count. Another one in which nothing counts, since the ids of what stayed of a
/// reply can't be told, is given as it is, for the data set to refuse.
pub fn rows(trajectory: &Trajectory, end_of_turn: &[u32]) -> Found {
    // Tokens, which of them count, and whether all replies were cut.
    let mut rows: Vec<(Vec<u32>, Vec<bool>, bool)> = Vec::new();
    for call in trajectory
        .model_calls
        .iter()
        .filter(|call| !call.prompt_ids.is_empty())
    {
        match rows.last_mut() {
            Some((tokens, mask, is_cut)) if call.prompt_ids.starts_with(tokens) => {
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
                *is_cut &= call.finish.is_cut();
            }
            _ => {
                let mut tokens = call.prompt_ids.clone();
                let mut mask = vec![false; tokens.len()];
                append_reply(&mut tokens, &mut mask, call);
                rows.push((tokens, mask, call.finish.is_cut()));
            }
        }
    }
    let all = rows.len();
    rows.retain(|(_, mask, is_cut)| !is_cut || mask.contains(&true));
    let mut found = Found {
        left_out: vec![Reason::NoTargetTokens; all - rows.len()],
        ..Found::default()
    };
    for (index, (tokens, mask, _)) in rows.into_iter().enumerate() {
        let id = format!("{}#{index}", trajectory.id.as_str());
        if is_endless(&tokens, &mask, end_of_turn) {
            found.endless.push(id.clone());
        }
        found.rows.push(Row {
            id,
            tokens,
            mask,
            weight: 1.0,
            group: None,
        });
    }
    found
}

fn append_reply(tokens: &mut Vec<u32>, mask: &mut Vec<bool>, call: &ModelCall) {
    tokens.extend(&call.output_ids);
    mask.resize(tokens.len(), true);
}

/// Whether a stretch of what counts ends with another token than one that ends a turn.
fn is_endless(tokens: &[u32], mask: &[bool], end_of_turn: &[u32]) -> bool {
    let is_last = |at: usize| mask[at] && mask.get(at + 1) != Some(&true);
    (0..tokens.len()).any(|at| is_last(at) && !end_of_turn.contains(&tokens[at]))
}

/// The row of a conversation whose policy gave no token ids (a server): the final rendering is
/// tokenised once, and supervised is what the template puts out for messages the policy wrote,
/// their end-of-turn token included.
///
/// There is none when the template does not keep earlier turns as they were (reasoning that it
/// drops, say): then there is no telling which text of the final rendering the policy wrote. Nor
/// for calls through the server's own interface, which only the server knows how to write, nor
/// where what counts can't be told to the token.
pub fn row_of_messages(
    base: &BaseModel,
    trajectory: &Trajectory,
) -> Result<Result<Row, Reason>, RunError> {
    let renderer = Renderer::new(&base.tokenizer, &base.template, base.variables.clone())?;
    let encoder = Encoder {
        tokenizer: &base.tokenizer,
        template: renderer.template(),
        variables: &base.variables,
        stop_tokens: &base.stop_tokens,
    };
    row_of(&encoder, &renderer, trajectory)
}

fn row_of(
    encoder: &Encoder<'_>,
    renderer: &Renderer,
    trajectory: &Trajectory,
) -> Result<Result<Row, Reason>, RunError> {
    let messages = &trajectory.messages;
    if messages.iter().any(|message| message.is_native) {
        return Ok(Err(Reason::NativeCalls));
    }
    let written = messages.iter().map(|message| {
        let mut written = renderer.written(message);
        written["train"] = message.train.into();
        written
    });
    let written: Vec<Value> = written.collect();
    match encoder.encode_nearly(trajectory.id.as_str(), &written) {
        Ok(row) => Ok(Ok(row)),
        Err(ConversationError::Template(error)) => Err(error.into()),
        Err(ConversationError::Tokenizer(error)) => Err(error.into()),
        Err(ConversationError::NothingTrained) => Ok(Err(Reason::NoTargetTokens)),
        Err(ConversationError::Rewritten { .. }) => Ok(Err(Reason::RewrittenTurns)),
        Err(ConversationError::NoEnd { .. }) => Ok(Err(Reason::NoEndOfTurn)),
        Err(ConversationError::Straddled { .. }) => Ok(Err(Reason::SplitSpecialToken)),
        Err(ConversationError::RepeatedStart(_)) => Ok(Err(Reason::RepeatedStart)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rollout::policy::Finish;
    use rollout::trajectory::{Message, Role, Usage};
    use serde_json::Map;
    use trainer::Dataset;

    use super::*;
    use crate::rollouts::testing::trajectory;

    const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    fn tokenizer() -> Tokenizer {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../trainer/tests/golden/llama_tied/tokenizer.json");
        Tokenizer::from_file(&file).expect("tokenizer")
    }

    fn row(tokenizer: &Tokenizer, template: &str, messages: &[Message]) -> Result<Row, Reason> {
        let renderer = Renderer::new(tokenizer, template, Map::new()).expect("template");
        let encoder = Encoder {
            tokenizer,
            template: renderer.template(),
            variables: &Map::new(),
            stop_tokens: &[tokenizer.id_of("<|im_end|>").expect("token")],
        };
        let mut trajectory = trajectory();
        trajectory.messages = messages.to_vec();
        row_of(&encoder, &renderer, &trajectory).expect("renders")
    }

    /// The same by the plainest means: a token counts if it touches what the template adds for a
    /// message of the policy's, up to the end of the turn.
    fn plain_row(tokenizer: &Tokenizer, template: &str, messages: &[Message]) -> Row {
        let renderer = Renderer::new(tokenizer, template, Map::new()).expect("template");
        let text = |until, is_open| {
            let rendered = renderer.render(&messages[..until], None, is_open);
            rendered.expect("renders").text.len()
        };
        let mut spans = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            if message.train {
                spans.push(text(index, true)..text(index + 1, false));
            }
        }
        let whole = renderer.render(messages, None, false).expect("renders");
        let encoded = tokenizer.encode_rendered(&whole).expect("tokens");
        let end = tokenizer.id_of("<|im_end|>").expect("token");
        let mut mask = encoded.mask(&spans);
        let mut is_over = false;
        for (at, counts) in mask.iter_mut().enumerate() {
            let touches = *counts;
            *counts = touches && !is_over;
            is_over = touches && (is_over || encoded.ids[at] == end);
        }
        Row {
            id: trajectory().id.as_str().to_owned(),
            tokens: encoded.ids,
            mask,
            weight: 1.0,
            group: None,
        }
    }

    fn message(role: Role, text: &str, train: bool) -> Message {
        Message {
            train,
            ..Message::new(role, text)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn what_the_policy_wrote_counts_up_to_the_end_of_each_turn(
            turns in proptest::collection::vec(("[a-z <|>_\n]{0,12}|<\\|im_end\\|>", "[\n ]{0,2}\\PC{0,12}|x<\\|im_end\\|>y", any::<bool>()), 1..4),
        ) {
            let tokenizer = tokenizer();
            let mut messages = vec![message(Role::System, "S", false)];
            for (question, reply, train) in &turns {
                messages.push(message(Role::User, question, false));
                messages.push(message(Role::Assistant, reply, *train));
            }
            let expected = plain_row(&tokenizer, CHATML, &messages);
            prop_assert_eq!(row(&tokenizer, CHATML, &messages), Ok(expected));
            // Without an end nothing would teach when to stop.
            let endless = CHATML.replace("<|im_end|>", "");
            let found = row(&tokenizer, &endless, &messages);
            if turns.iter().any(|(_, _, train)| *train) {
                prop_assert_eq!(found, Err(Reason::NoEndOfTurn));
            } else {
                prop_assert_eq!(found.map(|row| row.targets()), Ok(0));
            }
        }
    }

    #[test]
    fn what_cannot_be_told_gives_no_row_but_a_reason() {
        let tokenizer = tokenizer();
        let said = || {
            vec![
                message(Role::User, "q", false),
                message(Role::Assistant, "a", true),
            ]
        };
        assert!(row(&tokenizer, CHATML, &said()).is_ok());
        let forgetful = CHATML.replace(
            "{{ m.content }}",
            "{% if loop.last %}{{ m.content }}{% endif %}",
        );
        let twice = [said(), said()].concat();
        assert_eq!(
            row(&tokenizer, &forgetful, &twice),
            Err(Reason::RewrittenTurns)
        );
        let mut native = said();
        native[1].is_native = true;
        assert_eq!(row(&tokenizer, CHATML, &native), Err(Reason::NativeCalls));
        // The mark ends inside the token that ends the turn.
        let halved = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_{% endgeneration %}end|>{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}";
        assert_eq!(
            row(&tokenizer, halved, &said()),
            Err(Reason::SplitSpecialToken)
        );
        let doubled = format!("<|im_start|>{CHATML}");
        assert_eq!(
            row(&tokenizer, &doubled, &said()),
            Err(Reason::RepeatedStart)
        );
    }

    /// A call of the policy, from ids.
    fn call(prompt: &[u32], output: &[u32]) -> ModelCall {
        ModelCall {
            seed: 0,
            prompt_ids: prompt.to_vec(),
            output_ids: output.to_vec(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            finish: Finish::Stop,
            finish_reason: None,
            reasoning: String::new(),
        }
    }

    #[test]
    fn rows_in_which_nothing_counts_add_to_what_is_refused_unless_their_replies_were_cut() {
        let of = |finish: Finish| {
            let mut trajectory = trajectory();
            // Three replies without ids of which the conversation kept nothing, and two good ones.
            let lost = |first: u32| ModelCall {
                finish,
                ..call(&[first, 2], &[])
            };
            trajectory.model_calls = vec![
                lost(1),
                lost(3),
                lost(4),
                call(&[5, 2], &[6, 9]),
                call(&[7, 2], &[8, 9]),
            ];
            rows(&trajectory, &[9])
        };
        let lost = of(Finish::Stop);
        assert_eq!((lost.rows.len(), lost.left_out.len()), (5, 0));
        let refused = lost.rows.iter().filter_map(|row| row.refusal(100));
        assert_eq!(refused.count(), 3);
        assert!(lost.rows[0].id.ends_with("#0"), "{}", lost.rows[0].id);
        let error = Dataset::new(lost.rows, 100, 0.2).expect_err("three of five");
        assert!(error.to_string().starts_with("3 of 5 rows"), "{error}");
        for finish in [Finish::Length, Finish::Filtered] {
            let cut = of(finish);
            assert_eq!(cut.left_out, [Reason::NoTargetTokens; 3]);
            let dataset = Dataset::new(cut.rows, 100, 0.0).expect("nothing is refused");
            assert_eq!(dataset.rows().len(), 2);
        }
    }

    #[test]
    fn rows_without_anything_to_learn_and_turns_without_an_end_are_told() {
        const END: u32 = 9;
        let of = |calls: Vec<ModelCall>| {
            let mut trajectory = trajectory();
            trajectory.model_calls = calls;
            rows(&trajectory, &[END])
        };
        // A reply that was cut has no ids; then the conversation was compacted, and went on.
        let cut = ModelCall {
            finish: Finish::Length,
            ..call(&[1, 2], &[])
        };
        let found = of(vec![
            cut,
            call(&[1, 3], &[4]),
            call(&[1, 3, 4, END, 5], &[6, END]),
        ]);
        assert_eq!(found.left_out, [Reason::NoTargetTokens]);
        assert_eq!(found.endless, Vec::<String>::new());
        let [row] = &found.rows[..] else {
            panic!("{found:?}")
        };
        assert_eq!(row.tokens, [1, 3, 4, END, 5, 6, END]);
        assert_eq!(row.mask, [false, false, true, true, false, true, true]);
        assert!(row.id.ends_with("#0"), "{}", row.id);
        // A stop text ended the last reply.
        let found = of(vec![call(&[1, 2], &[3, 4])]);
        assert!(found.left_out.is_empty());
        assert_eq!(found.endless, [found.rows[0].id.clone()]);
        // A turn in the middle that the template doesn't end.
        let found = of(vec![call(&[1], &[2]), call(&[1, 2, 3], &[4, END])]);
        assert_eq!((found.rows.len(), found.endless.len()), (1, 1));
    }

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
