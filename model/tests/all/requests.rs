//! How requests are followed: pieces, stop strings, cancellation, limits and constraints.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::decode::{
    Adjustment, Cancel, Constraint, Controls, Engine, EngineError, EngineOptions, Finish,
    Generation, GenerationRequest,
};
use model::grammar::{Grammar, GrammarCompiler, GrammarError};
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;

use crate::engines::{Loaded, engine, request, submit};
use crate::export::golden;

#[test]
fn pieces_join_to_the_text_and_never_show_a_stop_string() {
    let engine = engine("llama_tied", EngineOptions::default());
    let plain = engine
        .generate(request(&[111, 110, 101], 40))
        .expect("reply");
    // A text from the middle of the reply as stop string, reached by several tokens.
    let characters: Vec<char> = plain.text.chars().collect();
    let stop: String = characters[characters.len() / 2..characters.len() / 2 + 3]
        .iter()
        .collect();
    let seen = Arc::new(Mutex::new(String::new()));
    let joined = Arc::clone(&seen);
    let mut wanted = request(&[111, 110, 101], 40);
    wanted.stop_strings = vec![stop.clone()];
    let controls = Controls {
        on_piece: Some(Box::new(move |piece| {
            joined.lock().expect("lock").push_str(&piece.text);
        })),
        ..Controls::default()
    };
    let reply = submit(&engine, wanted, controls)
        .recv()
        .expect("a reply")
        .expect("reply");
    assert_eq!(reply.finish, Finish::StopString);
    assert!(!reply.text.contains(&stop));
    assert_eq!(*seen.lock().expect("lock"), reply.text);
}

type Reply = Receiver<Result<Generation, EngineError>>;

fn answer(reply: &Reply) -> Result<Generation, EngineError> {
    let answer = reply.recv_timeout(Duration::from_secs(60));
    answer.expect("an answer")
}

/// Starts a request whose first token holds the engine until the sender is dropped, so that all that is
/// queued meanwhile comes to the same step. `on_step` is told the number of each step that gives the
/// request a token, from 0 for the one that was held; who is given up there leaves before the next step.
///
/// The step that is held has one of the threads that all engines compute on: until the sender is dropped,
/// a test must not wait for anything that is computed.
fn hold(
    engine: &Engine,
    request: GenerationRequest,
    controls: Controls,
    mut on_step: impl FnMut(usize) + Send + 'static,
) -> (Reply, Sender<()>) {
    let (held, is_held) = channel();
    let (release, is_released) = channel::<()>();
    let mut step = 0;
    let controls = Controls {
        on_piece: Some(Box::new(move |_| {
            if step == 0 {
                held.send(()).expect("the test waits for it");
                // Nothing is ever sent. The sender goes, also where the test fails.
                let _ = is_released.recv();
            }
            on_step(step);
            step += 1;
        })),
        ..controls
    };
    let reply = submit(engine, request, controls);
    is_held.recv().expect("a first token");
    (reply, release)
}

#[test]
fn a_cancelled_request_leaves_room_for_others() {
    let options = EngineOptions {
        max_batch: 1,
        ..EngineOptions::default()
    };
    let engine = engine("llama_tied", options);
    let (short, long) = (request(&[1, 2, 3], 2), request(&[1, 2, 3], 200));
    let expected = engine.generate(short.clone()).expect("a reply").tokens;
    // At once, around the end of a block of sixteen tokens, and later.
    for last in [0, 1, 12, 13, 14, 40] {
        let before = engine.stats().generated_tokens;
        let (first, second) = (Controls::default(), Controls::default());
        let (running, queued) = (first.cancel.clone(), second.cancel.clone());
        let give_up = move |step: usize| {
            if step == last {
                queued.cancel();
                drop(running.on_drop());
            }
        };
        let (running, release) = hold(&engine, long.clone(), first, give_up);
        let queued = submit(&engine, long.clone(), second);
        let next = submit(&engine, short.clone(), Controls::default());
        drop(release);
        for reply in [running, queued] {
            let error = answer(&reply).expect_err("cancelled");
            assert!(matches!(error, EngineError::Cancelled), "{error}");
        }
        assert_eq!(answer(&next).expect("a reply").tokens, expected);
        // The one had a token in each step up to the last, and the other none.
        let generated = engine.stats().generated_tokens - before;
        assert_eq!(generated, last as u64 + 1 + 2, "up to step {last}");
    }
}

/// Requests with one prompt, of which the first computes what all see and the others wait for it. Some are
/// given up at every step that there is, until they have their replies before.
#[test]
fn who_waits_for_a_shared_prefix_gets_the_same_reply_whoever_is_cancelled() {
    /// Who is given up, and how many steps after the first of them.
    const GIVEN_UP: [&[(usize, usize)]; 7] = [
        &[],
        &[(0, 0)],
        &[(1, 0)],
        &[(0, 0), (1, 0)],
        &[(0, 0), (1, 1)],
        &[(1, 0), (0, 1)],
        &[(0, 0), (1, 1), (2, 2)],
    ];
    // A block in each step, beside the token of the request that counts the steps.
    let options = EngineOptions {
        step_tokens: 17,
        cache_mib: 1,
        ..EngineOptions::default()
    };
    let loaded = Loaded::golden("llama_tied", Arithmetic::F32);
    let alone = loaded.engine(options);
    // A block's border before the last token, one token after it, and some.
    for length in [81, 80, 92] {
        let prompt: Vec<u32> = (0..length).map(|at| (at * at + 7 * at) % 256).collect();
        let wanted = request(&prompt, 4);
        let expected = alone.generate(wanted.clone()).expect("a reply").tokens;
        for given_up in GIVEN_UP {
            for first in 0_usize.. {
                let what = format!("{length} tokens, {given_up:?} given up from step {first} on");
                // With nothing in its cache.
                let engine = loaded.engine(options);
                let controls: Vec<Controls> = (0..4).map(|_| Controls::default()).collect();
                let cancels: Vec<Cancel> = controls.iter().map(|one| one.cancel.clone()).collect();
                let give_up = move |step: usize| {
                    for &(index, after) in given_up {
                        if step == first + after {
                            cancels[index].cancel();
                        }
                    }
                };
                let last = first + given_up.last().map_or(0, |(_, after)| *after);
                let counter = request(&[0], last + 1);
                let (counter, release) = hold(&engine, counter, Controls::default(), give_up);
                let submitted = controls
                    .into_iter()
                    .map(|controls| submit(&engine, wanted.clone(), controls));
                let replies: Vec<Reply> = submitted.collect();
                drop(release);
                let mut ended = Vec::new();
                for (index, reply) in replies.iter().enumerate() {
                    match answer(reply) {
                        Ok(reply) => assert_eq!(reply.tokens, expected, "{what}, reply {index}"),
                        Err(EngineError::Cancelled) => ended.push(index),
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
                answer(&counter).expect("the steps were counted");
                let is_given_up = |index: &usize| given_up.iter().any(|(given, _)| given == index);
                assert!(ended.iter().all(is_given_up), "{what}: {ended:?} ended");
                if first == 0 {
                    // Nobody has a reply so early.
                    assert_eq!(ended.len(), given_up.len(), "{what}: {ended:?} ended");
                }
                let later = engine.generate(wanted.clone()).expect("a reply");
                assert_eq!(later.tokens, expected, "{what}, from the cache");
                // All of the prompt's blocks, of which each ends before the last token.
                assert_eq!(later.cached_tokens, (prompt.len() - 1) / 16 * 16, "{what}");
                if ended.is_empty() {
                    break;
                }
            }
        }
    }
}

#[test]
fn replies_without_end_are_too_long_whatever_the_sum() {
    let engine = engine("llama_tied", EngineOptions::default());
    let error = engine.generate(request(&[1, 2, 3], usize::MAX));
    assert!(
        matches!(error, Err(EngineError::TooLong { .. })),
        "{error:?}"
    );
}

/// Allows the tokens of one text, in order.
struct Spelling(Vec<u32>);

impl Constraint for Spelling {
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let next = *self.0.first().ok_or("the text is at its end")?;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token != next as usize {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        assert_eq!(self.0.remove(0), token);
        Ok(())
    }
}

#[test]
fn a_constraint_decides_what_may_come_and_logprobs_stay_the_models_own() {
    let engine = engine("llama_tied", EngineOptions::default());
    for temperature in [0.0, 1.0] {
        let constrained = |text: &[u32], max_new| {
            let controls = Controls {
                constraint: Some(Box::new(Spelling(text.to_vec()))),
                ..Controls::default()
            };
            let mut wanted = request(&[111, 110, 101], max_new);
            wanted.sampling.temperature = temperature;
            submit(&engine, wanted, controls).recv().expect("an answer")
        };
        let reply = constrained(&[65, 66, 67], 3).expect("spelled");
        assert_eq!(reply.text, "ABC");
        assert!(
            reply.logprobs.iter().all(|value| *value < -0.1),
            "{reply:?}"
        );
        let error = constrained(&[65], 3).expect_err("nothing left");
        assert!(
            error.to_string().contains("the text is at its end"),
            "{error}"
        );
    }
}

#[test]
fn likeliest_tokens_are_the_models_own_and_told_of_where_they_are_asked_for() {
    let engine = engine("llama_tied", EngineOptions::default());
    let ask = |top_logprobs, constraint: Option<Box<dyn Constraint>>| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let controls = Controls {
            on_piece: Some(Box::new(move |piece| {
                told.lock().expect("lock").push(piece.top_logprobs);
            })),
            constraint,
            top_logprobs,
            ..Controls::default()
        };
        let wanted = request(&[111, 110, 101], 3);
        let reply = submit(&engine, wanted, controls).recv().expect("an answer");
        let reply = reply.expect("a reply");
        let pieces = seen.lock().expect("lock").clone();
        (reply, pieces)
    };
    let (plain, pieces) = ask(0, None);
    assert!(plain.top_logprobs.is_empty() && pieces.iter().all(Vec::is_empty));
    let (reply, pieces) = ask(5, None);
    assert_eq!(reply.tokens, plain.tokens);
    assert_eq!(reply.logprobs, plain.logprobs);
    assert_eq!((&reply.top_logprobs, pieces.len()), (&pieces, 3));
    for (place, top) in reply.top_logprobs.iter().enumerate() {
        assert_eq!(top.len(), 5);
        assert!(top.is_sorted_by(|a, b| a.logprob >= b.logprob), "{top:?}");
        // Greedy decoding takes the first.
        assert_eq!(
            (top[0].token, top[0].logprob),
            (reply.tokens[place], reply.logprobs[place])
        );
    }
    // A constraint decides on the reply and not on what the model finds likely.
    let (spelled, _) = ask(5, Some(Box::new(Spelling(vec![65, 66, 67]))));
    assert_eq!(spelled.text, "ABC");
    assert_eq!(spelled.top_logprobs[0], reply.top_logprobs[0]);
}

/// Greedy and sampled replies under adjustments of their own, and one that asks for nothing.
#[test]
fn adjustments_and_likeliest_tokens_are_the_same_in_any_company() {
    let loaded = Loaded::golden("llama_tied", Arithmetic::F32);
    let options = EngineOptions {
        cache_mib: 16,
        ..EngineOptions::default()
    };
    let ask = |engine: &Engine, number: u16| {
        let strength = f32::from(number);
        let mut wanted = request(&[111, 110, 101], 60);
        wanted.sampling.temperature = f32::from(number % 2);
        wanted.seed = u64::from(number);
        let adjustment = Adjustment {
            bias: (0..number)
                .map(|token| (u32::from(token), strength))
                .collect(),
            frequency_penalty: 0.3 * strength,
            presence_penalty: 0.2 * strength,
        };
        let controls = Controls {
            adjustment,
            top_logprobs: number.into(),
            ..Controls::default()
        };
        submit(engine, wanted, controls)
    };
    let alone: Vec<Generation> = (0..6)
        .map(|number| answer(&ask(&loaded.engine(options), number)).expect("a reply"))
        .collect();
    let engine = loaded.engine(options);
    // Once more when prefixes are cached.
    for _ in 0..2 {
        let replies: Vec<Reply> = (0..6).map(|number| ask(&engine, number)).collect();
        for (reply, alone) in replies.iter().zip(&alone) {
            let reply = answer(reply).expect("a reply");
            assert_eq!(reply.tokens, alone.tokens);
            assert_eq!(reply.logprobs, alone.logprobs);
            assert_eq!(reply.top_logprobs, alone.top_logprobs);
        }
    }
    // The greedy ones differ by nothing but their adjustments.
    let plain = engine.generate(request(&[111, 110, 101], 60));
    assert_eq!(plain.expect("a reply").tokens, alone[0].tokens);
    assert!(alone[0].tokens != alone[2].tokens && alone[2].tokens != alone[4].tokens);
}

#[test]
fn a_bias_decides_on_the_reply_within_a_constraint_and_leaves_logprobs_alone() {
    let engine = engine("llama_tied", EngineOptions::default());
    let ask = |bias: &[(u32, f32)], constraint: Option<Box<dyn Constraint>>| {
        let adjustment = Adjustment {
            bias: bias.iter().copied().collect(),
            ..Adjustment::default()
        };
        let controls = Controls {
            adjustment,
            constraint,
            ..Controls::default()
        };
        answer(&submit(&engine, request(&[111, 110, 101], 3), controls))
    };
    let forced = ask(&[(65, 100.0)], None).expect("a reply");
    assert_eq!(forced.text, "AAA");
    assert!(forced.logprobs.iter().all(|value| *value < -0.1));
    let spelled = || -> Option<Box<dyn Constraint>> { Some(Box::new(Spelling(vec![65, 66, 67]))) };
    let plain = ask(&[], spelled()).expect("a reply");
    let bent = ask(&[(66, -100.0), (70, 100.0)], spelled()).expect("a reply");
    assert_eq!(bent.text, "ABC");
    assert_eq!(bent.logprobs, plain.logprobs);
    assert_eq!(bent.logprobs[0], forced.logprobs[0]);
    let error = ask(&[(65, 1.0), (260, 1.0)], None).expect_err("no such token");
    assert!(
        matches!(error, EngineError::UnknownToken { token: 260, .. }),
        "{error}"
    );
}

#[test]
fn a_random_model_under_a_schema_writes_nothing_else() {
    let engine = engine("llama_tied", EngineOptions::default());
    let tokenizer =
        Tokenizer::from_file(&golden("llama_tied").join("tokenizer.json")).expect("tokenizer");
    let stop = tokenizer.id_of("<|im_end|>").expect("a stop token");
    let compiler =
        GrammarCompiler::new(&tokenizer, engine.vocabulary(), &[stop]).expect("compiler");
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": false,
    });
    let call = "start: \"<tool_call>\" %json {\"type\": \"object\", \"properties\": \
        {\"name\": {\"const\": \"python\"}}, \"required\": [\"name\"], \"additionalProperties\": false} \"</tool_call>\"";
    for seed in 0..20 {
        let constrained = |constraint: Grammar| {
            let controls = Controls {
                constraint: Some(Box::new(constraint)),
                ..Controls::default()
            };
            let mut wanted = request(&[111, 110, 101], 300);
            wanted.sampling.temperature = 1.0;
            wanted.seed = seed;
            wanted.stop_tokens = vec![stop];
            let reply = submit(&engine, wanted, controls).recv().expect("an answer");
            let reply = reply.expect("a reply");
            assert_eq!(reply.finish, Finish::StopToken, "{reply:?}");
            reply.text
        };
        let text = constrained(compiler.json_schema(&schema).expect("schema"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(
            value["n"].as_u64().is_some_and(|n| n <= 999) && value["ok"].is_boolean(),
            "{text}"
        );
        let text = constrained(compiler.lark(call).expect("grammar"));
        let inside = text
            .strip_prefix("<tool_call>")
            .and_then(|t| t.strip_suffix("</tool_call>"));
        let value: serde_json::Value = serde_json::from_str(inside.expect("marks")).expect("JSON");
        assert_eq!(value, serde_json::json!({"name": "python"}));
    }
    for wrong in ["start: (", "start: missing"] {
        assert!(matches!(
            compiler.lark(wrong),
            Err(GrammarError::Grammar { .. })
        ));
    }
    let wrong = serde_json::json!({"type": "no such type"});
    assert!(matches!(
        compiler.json_schema(&wrong),
        Err(GrammarError::Grammar { .. })
    ));
}
