//! The engine's greedy continuations against transformers'.

use std::path::Path;

use model::decode::{Controls, EngineOptions, Generation};
use serde::Deserialize;

use crate::engines::{Loaded, engine, golden_adapter, request, request_to, submit};
use crate::export::{GOLDEN, golden};

/// What transformers says to a prompt.
#[derive(Deserialize)]
pub(crate) struct Continuation {
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
}

impl Continuation {
    /// Whether the engine has said the same.
    pub(crate) fn compare(&self, reply: &Generation, what: &str) {
        assert_eq!(reply.tokens, self.ids, "{what}");
        for (ours, theirs) in reply.logprobs.iter().zip(&self.logprobs) {
            assert!((ours - theirs).abs() < 1e-4, "{what}: {ours} {theirs}");
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) ids: Vec<u32>,
    base: Continuation,
    adapter: Continuation,
}

impl Row {
    pub(crate) fn expected(&self, with_adapter: bool) -> &Continuation {
        match with_adapter {
            true => &self.adapter,
            false => &self.base,
        }
    }
}

pub(crate) fn rows(name: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(golden(name).join("greedy.json")).expect("greedy");
    serde_json::from_str(&text).expect("rows")
}

#[test]
fn greedy_continuations_equal_those_of_transformers() {
    let mut compared = 0;
    for name in GOLDEN {
        let rows = rows(name);
        for with_adapter in [false, true] {
            // Small steps, so that prompts are computed in several chunks.
            let options = EngineOptions {
                step_tokens: 7,
                ..EngineOptions::default()
            };
            let engine = engine(name, options);
            let adapter = with_adapter.then(|| {
                let adapter = engine.add_adapter(golden_adapter(name));
                adapter.expect("it fits")
            });
            // Twice over: together, and again when prefixes are cached.
            for _ in 0..2 {
                let replies: Vec<_> = rows
                    .iter()
                    .map(|row| {
                        let count = row.expected(with_adapter).ids.len();
                        let request = request_to(adapter.as_ref(), &row.ids, count);
                        submit(&engine, request, Controls::default())
                    })
                    .collect();
                for (row, reply) in rows.iter().zip(replies) {
                    let reply = reply.recv().expect("a reply").expect("a generation");
                    let expected = row.expected(with_adapter);
                    expected.compare(&reply, &format!("{name}, adapter {with_adapter}"));
                    compared += reply.tokens.len();
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    next: Vec<u32>,
    gaps: Vec<f32>,
}

/// Against `tests/smollm2_greedy.jsonl`, which `scripts/golden/make-smollm2-greedy` writes.
#[test]
fn smollm2_continues_fifty_prompts_as_transformers_does() {
    /// Logits of two f32 implementations differ by less.
    const TIE: f32 = 1e-3;
    let Some(loaded) = Loaded::smollm2() else {
        return;
    };
    let options = EngineOptions {
        cache_mib: 512,
        ..EngineOptions::default()
    };
    let engine = loaded.engine(options);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smollm2_greedy.jsonl");
    let text = std::fs::read_to_string(file).expect("references");
    let rows: Vec<Reference> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!(rows.len(), 50);
    let replies: Vec<_> = rows
        .iter()
        .map(|row| {
            submit(
                &engine,
                request(&row.ids, row.next.len()),
                Controls::default(),
            )
        })
        .collect();
    let mut ties = 0;
    for (row, reply) in rows.iter().zip(replies) {
        let reply = reply.recv().expect("an answer").expect("a reply");
        let parted = (0..row.next.len()).find(|at| reply.tokens[*at] != row.next[*at]);
        if let Some(at) = parted {
            assert!(
                row.gaps[at] < TIE,
                "token {at} of {:?}…: {}",
                &row.ids[..9],
                row.gaps[at]
            );
            ties += 1;
        }
    }
    assert!(ties <= 2, "{ties} replies parted at a tie");
}
