//! The engine's greedy continuations against transformers', token for token.

use std::collections::BTreeMap;
use std::path::Path;

use model::decode::{Controls, Engine, EngineAdapter, EngineOptions, Generation};
use serde::Deserialize;

use crate::engines::{Loaded, engine, golden_adapter, request_to, submit};
use crate::export::{GOLDEN, golden};

/// What transformers says to a prompt of a golden model.
#[derive(Deserialize)]
pub(crate) struct Short {
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
}

impl Short {
    /// Whether the engine has said the same.
    pub(crate) fn compare(&self, reply: &Generation, what: &str) {
        assert_eq!(reply.tokens, self.ids, "{what}");
        for (ours, theirs) in reply.logprobs.iter().zip(&self.logprobs) {
            assert!((ours - theirs).abs() < 1e-4, "{what}: {ours} {theirs}");
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ShortRow {
    pub(crate) ids: Vec<u32>,
    base: Short,
    adapter: Short,
}

impl ShortRow {
    pub(crate) fn expected(&self, with_adapter: bool) -> &Short {
        match with_adapter {
            true => &self.adapter,
            false => &self.base,
        }
    }
}

pub(crate) fn short_rows(name: &str) -> Vec<ShortRow> {
    let text = std::fs::read_to_string(golden(name).join("greedy.json")).expect("greedy");
    serde_json::from_str(&text).expect("rows")
}

/// Every golden model, a few tokens, and the log-probability of each.
#[test]
fn greedy_continuations_equal_those_of_transformers() {
    let mut compared = 0;
    for name in GOLDEN {
        let rows = short_rows(name);
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

/// Prompts of a file in `tests/greedy`, and the tokens that follow each.
const PROMPTS: usize = 50;
const TOKENS: usize = 64;
/// Whose continuations must be the same to the end; the others may part at a tie.
const WHOLE: usize = 48;
/// Prompt tokens that can be found in the cache: four families of six share their first 64 and more.
const SHARED: u64 = 4 * 5 * 64;

/// A line of a file in `tests/greedy`, which `scripts/golden/make-greedy` writes.
#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) ids: Vec<u32>,
    base: Continuation,
    /// Of golden models alone.
    adapter: Option<Continuation>,
}

#[derive(Deserialize)]
struct Continuation {
    next: Vec<u32>,
    /// Distances between the two largest logits by the token's place, where they are small.
    close: BTreeMap<usize, f32>,
    /// Log-probabilities of every eighth token.
    logprobs: Vec<f32>,
}

pub(crate) fn rows(name: &str) -> Vec<Row> {
    let file = format!("tests/greedy/{name}.jsonl");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let text = text.expect("continuations");
    let rows: Vec<Row> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    assert_eq!(rows.len(), PROMPTS, "{name}");
    rows
}

/// Where two continuations part.
pub(crate) fn parting(ours: &[u32], theirs: &[u32]) -> Option<usize> {
    ours.iter().zip(theirs).position(|(a, b)| a != b)
}

/// Decodes all prompts at once and compares token for token. Logits of two f32 implementations
/// differ by less than `tie`; where the two largest are closer than that, either token is right, and
/// what follows another token can't be compared.
fn compare(
    engine: &Engine,
    adapter: Option<&EngineAdapter>,
    rows: &[(&[u32], &Continuation)],
    tie: f32,
    what: &str,
) {
    let replies: Vec<_> = rows
        .iter()
        .map(|(ids, _)| {
            submit(
                engine,
                request_to(adapter, ids, TOKENS),
                Controls::default(),
            )
        })
        .collect();
    let (mut whole, mut largest) = (0, 0.0f32);
    for ((ids, theirs), reply) in rows.iter().zip(replies) {
        let ours = reply.recv().expect("an answer").expect("a reply");
        assert_eq!(ours.tokens.len(), TOKENS, "{what}");
        assert_eq!(theirs.next.len(), TOKENS, "{what}");
        let parted = parting(&ours.tokens, &theirs.next);
        if let Some(at) = parted {
            let gap = theirs.close.get(&at);
            assert!(
                gap.is_some_and(|gap| *gap < tie),
                "{what}: token {at} after {ids:?} is {} instead of {}, and the gap is {gap:?}",
                ours.tokens[at],
                theirs.next[at]
            );
        } else {
            whole += 1;
        }
        let same = &ours.logprobs[..parted.unwrap_or(TOKENS)];
        assert_eq!(theirs.logprobs.len(), TOKENS / 8, "{what}");
        for (ours, theirs) in same.iter().skip(7).step_by(8).zip(&theirs.logprobs) {
            let gap = (ours - theirs).abs();
            assert!(gap < tie, "{what}, after {ids:?}: {ours} {theirs}");
            largest = largest.max(gap);
        }
    }
    println!(
        "{what}: {whole} of {PROMPTS} replies are the same to the end, log-probabilities off by up to {largest:e}"
    );
    assert!(
        whole >= WHOLE,
        "{what}: only {whole} replies could be compared to the end"
    );
}

#[test]
fn golden_models_continue_fifty_prompts_as_transformers_does() {
    for name in ["llama_tied", "qwen3_untied"] {
        let rows = rows(name);
        for with_adapter in [false, true] {
            let expected: Vec<(&[u32], &Continuation)> = rows
                .iter()
                .map(|row| {
                    let adapted = row.adapter.as_ref().expect("a golden model");
                    (
                        row.ids.as_slice(),
                        if with_adapter { adapted } else { &row.base },
                    )
                })
                .collect();
            // Half of the requests join when others leave, and prompts come in chunks.
            let options = EngineOptions {
                max_batch: PROMPTS / 2,
                step_tokens: 48,
                cache_mib: 64,
                ..EngineOptions::default()
            };
            let engine = engine(name, options);
            let adapter = with_adapter.then(|| {
                let adapter = engine.add_adapter(golden_adapter(name));
                adapter.expect("it fits")
            });
            for time in ["at first", "with prompts in the cache"] {
                let what = format!("{name}, adapter {with_adapter}, {time}");
                compare(&engine, adapter.as_ref(), &expected, 1e-4, &what);
                let cached = engine.stats().cached_tokens;
                assert!(cached >= SHARED, "{what}: {cached} tokens were found");
            }
        }
    }
}

#[test]
fn smollm2_continues_fifty_prompts_as_transformers_does() {
    let Some(loaded) = Loaded::smollm2() else {
        return;
    };
    let options = EngineOptions {
        max_batch: PROMPTS / 2,
        cache_mib: 512,
        ..EngineOptions::default()
    };
    let engine = loaded.engine(options);
    let rows = rows("smollm2");
    let expected: Vec<_> = rows
        .iter()
        .map(|row| (row.ids.as_slice(), &row.base))
        .collect();
    compare(&engine, None, &expected, 1e-3, "smollm2");
    let cached = engine.stats().cached_tokens;
    assert!(cached >= SHARED, "{cached} tokens were found");
}
