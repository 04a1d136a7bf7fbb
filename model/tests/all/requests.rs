//! How requests are followed: pieces, stop strings, cancellation, limits and constraints.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::decode::{Constraint, Controls, EngineError, EngineOptions, Finish};
use model::grammar::{Grammar, GrammarCompiler, GrammarError};
use model::tokenizer::Tokenizer;

use crate::engines::{engine, request, submit};
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

#[test]
fn a_cancelled_request_leaves_room_for_others() {
    let options = EngineOptions {
        max_batch: 1,
        ..EngineOptions::default()
    };
    let engine = engine("llama_tied", options);
    let controls = Controls::default();
    let cancel = controls.cancel.clone();
    let long = submit(&engine, request(&[1, 2, 3], 200), controls);
    let waiting = Controls::default();
    let given_up = waiting.cancel.clone();
    let second = submit(&engine, request(&[1, 2, 3], 200), waiting);
    given_up.cancel();
    drop(cancel.on_drop());
    for reply in [long, second] {
        let error = reply.recv().expect("an answer").expect_err("cancelled");
        assert!(matches!(error, EngineError::Cancelled), "{error}");
    }
    assert!(engine.generate(request(&[1, 2, 3], 2)).is_ok());
}

/// Requests with one prompt, of which the first computes what all see and the others wait for it.
#[test]
fn who_waits_for_a_shared_prefix_gets_the_same_reply_whoever_is_cancelled() {
    let options = EngineOptions {
        step_tokens: 16,
        ..EngineOptions::default()
    };
    let engine = engine("llama_tied", options);
    let alone = self::engine("llama_tied", EngineOptions::default());
    let vocabulary = u32::try_from(engine.vocabulary()).expect("small");
    // A block's border before the last token, one token after it, and some.
    for (number, length) in (0..).zip([209, 208, 220].repeat(20)) {
        let token = |at: u32| (at * at + 31 * number + 7 * at) % vocabulary;
        let prompt: Vec<u32> = (0..length).map(token).collect();
        let expected = alone.generate(request(&prompt, 4)).expect("a reply").tokens;
        let given_up: &[usize] = [[].as_slice(), &[0], &[1], &[1, 0], &[0, 1]][number as usize % 5];
        let mut cancels = Vec::new();
        let replies: Vec<_> = (0..4)
            .map(|_| {
                let controls = Controls::default();
                cancels.push(controls.cancel.clone());
                submit(&engine, request(&prompt, 4), controls)
            })
            .collect();
        std::thread::sleep(Duration::from_micros(u64::from(number) * 100));
        given_up.iter().for_each(|index| cancels[*index].cancel());
        for (index, reply) in replies.into_iter().enumerate() {
            let reply = reply.recv_timeout(Duration::from_secs(60));
            match reply.expect("an answer") {
                Ok(reply) => assert_eq!(reply.tokens, expected, "{length} tokens, reply {index}"),
                Err(EngineError::Cancelled) => assert!(given_up.contains(&index)),
                Err(error) => panic!("{error}"),
            }
        }
        let later = engine.generate(request(&prompt, 4)).expect("a reply");
        assert_eq!(later.tokens, expected, "{length} tokens, from the cache");
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
