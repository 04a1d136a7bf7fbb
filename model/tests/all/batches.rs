//! What a request is computed beside, and what of it is found in the cache, changes no logit of it.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use model::adapter::Adapter;
use model::decode::{Constraint, Controls, Engine, EngineAdapter, EngineOptions};
use model::kernels::gemm::Arithmetic;
use model::tree::TokenTree;

use crate::engines::{Loaded, golden_adapter, request_to, submit};
use crate::export::GOLDEN;
use crate::greedy::rows;

/// Forbids nothing and passes on what the model says.
struct Watcher(Sender<Vec<f32>>);

impl Constraint for Watcher {
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let seen = self.0.send(logits.to_vec());
        seen.map_err(|error| error.to_string())
    }

    fn accept(&mut self, _token: u32) -> Result<(), String> {
        Ok(())
    }
}

/// What became of a request.
struct Seen {
    tokens: Vec<u32>,
    /// Behind the prompt and behind each new token but the last, `[tokens][vocabulary]`.
    logits: Vec<Vec<f32>>,
    /// Prompt tokens that were found in the cache.
    cached: usize,
}

/// A prompt, and whether the adapter or the base model continues it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    prompt: &'a [u32],
    with_adapter: bool,
}

/// Every prompt once for each of `kinds`, which say whether with the adapter.
fn ask<'a>(prompts: &[&'a [u32]], kinds: &[bool]) -> Vec<Asked<'a>> {
    let for_each_kind = |&prompt: &&'a [u32]| {
        kinds.iter().map(move |&with_adapter| Asked {
            prompt,
            with_adapter,
        })
    };
    prompts.iter().flat_map(for_each_kind).collect()
}

/// An engine and the adapter that requests to it may name.
struct Decoder {
    engine: Engine,
    adapter: Option<EngineAdapter>,
}

impl Decoder {
    fn start(loaded: &Loaded, adapter: Option<&Arc<Adapter>>, options: EngineOptions) -> Self {
        let engine = loaded.engine(options);
        let adapter = adapter.map(|adapter| {
            let adapter = engine.add_adapter(Arc::clone(adapter));
            adapter.expect("it fits")
        });
        Self { engine, adapter }
    }

    /// Asks for `count` tokens behind each prompt, for all at once.
    fn decode(&self, asked: &[Asked<'_>], count: usize) -> Vec<Seen> {
        let replies: Vec<_> = asked
            .iter()
            .map(|asked| {
                let (sender, logits) = channel();
                let controls = Controls {
                    constraint: Some(Box::new(Watcher(sender))),
                    ..Controls::default()
                };
                let named = || self.adapter.as_ref().expect("an adapter");
                let adapter = asked.with_adapter.then(named);
                let request = request_to(adapter, asked.prompt, count);
                (submit(&self.engine, request, controls), logits)
            })
            .collect();
        replies
            .into_iter()
            .map(|(reply, logits)| {
                let reply = reply.recv().expect("an answer").expect("a reply");
                Seen {
                    tokens: reply.tokens,
                    logits: logits.try_iter().collect(),
                    cached: reply.cached_tokens,
                }
            })
            .collect()
    }
}

fn largest_gap(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> f32 {
    let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Each alone in an engine of its own.
fn decode_apart(
    loaded: &Loaded,
    adapter: Option<&Arc<Adapter>>,
    asked: &[Asked<'_>],
    count: usize,
    options: EngineOptions,
) -> Vec<Seen> {
    let seen: Vec<Seen> = asked
        .iter()
        .flat_map(|asked| Decoder::start(loaded, adapter, options).decode(&[*asked], count))
        .collect();
    for seen in &seen {
        assert_eq!(seen.cached, 0);
        assert_eq!((seen.tokens.len(), seen.logits.len()), (count, count));
    }
    seen
}

/// Decodes the prompts apart, together, together once more and one after another: the logits are the
/// same to the bit.
fn decode_in_every_company(
    loaded: &Loaded,
    adapter: Option<&Arc<Adapter>>,
    asked: &[Asked<'_>],
    count: usize,
    options: EngineOptions,
    what: &str,
) {
    let apart = decode_apart(loaded, adapter, asked, count, options);
    let together = Decoder::start(loaded, adapter, options);
    // One at a time: the later ones find what the earlier ones left, without company.
    let single = EngineOptions {
        max_batch: 1,
        ..options
    };
    for (company, decoder) in [
        ("together", &together),
        ("together again", &together),
        (
            "one after another",
            &Decoder::start(loaded, adapter, single),
        ),
    ] {
        let seen = decoder.decode(asked, count);
        for (index, (seen, apart)) in seen.iter().zip(&apart).enumerate() {
            let what = format!("{what}, prompt {index} {company}");
            assert_eq!(seen.tokens, apart.tokens, "{what}");
            assert_eq!(seen.logits.len(), count, "{what}");
            assert!(
                seen.logits == apart.logits,
                "{what}: logits are off by up to {:e}",
                largest_gap(&seen.logits, &apart.logits)
            );
        }
        let cached: usize = seen.iter().map(|seen| seen.cached).sum();
        assert!(cached > 0, "{what}: nothing was shared {company}");
    }
}

/// Prompts of bytes that begin alike, inside of a block of sixteen tokens, at its end, to the whole of
/// a prompt and not at all.
fn related_prompts() -> Vec<Vec<u32>> {
    let tokens = |seed: u32, count: u32| (0..count).map(move |at| (at * at * 7 + 31 * seed) % 256);
    let shared = |length: u32, own: u32, seed: u32| -> Vec<u32> {
        tokens(0, length).chain(tokens(seed, own)).collect()
    };
    vec![
        shared(70, 5, 1),
        shared(70, 40, 2),
        shared(70, 5, 1),
        shared(64, 1, 3),
        shared(65, 0, 0),
        shared(64, 0, 0),
        shared(33, 20, 4),
        shared(16, 3, 5),
        shared(0, 1, 6),
        shared(0, 90, 7),
    ]
}

fn slices(prompts: &[Vec<u32>]) -> Vec<&[u32]> {
    prompts.iter().map(Vec::as_slice).collect()
}

#[test]
fn company_and_shared_prefixes_change_no_bit_of_a_golden_models_logits() {
    let prompts = related_prompts();
    for arithmetic in [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16] {
        if !arithmetic.is_available() {
            println!("skipped: {arithmetic:?} needs instructions for bfloat16");
            continue;
        }
        for name in GOLDEN {
            let loaded = Loaded::golden(name, arithmetic);
            let adapter = golden_adapter(name);
            // The base model, the adapter, and both in one batch.
            for kinds in [&[false][..], &[true], &[false, true]] {
                let asked = ask(&slices(&prompts), kinds);
                // Prompts come in chunks that end anywhere.
                let options = EngineOptions {
                    step_tokens: 13,
                    cache_mib: 16,
                    ..EngineOptions::default()
                };
                let what = format!("{name}, adapter {kinds:?}, {arithmetic:?}");
                decode_in_every_company(&loaded, Some(&adapter), &asked, 12, options, &what);
            }
        }
    }
}

/// The training pass has neither pages nor a cache, and packs what sequences share by other means.
#[test]
fn the_engines_logits_are_those_of_the_packed_pass() {
    let prompts = related_prompts();
    let options = EngineOptions {
        cache_mib: 16,
        ..EngineOptions::default()
    };
    for name in GOLDEN {
        let loaded = Loaded::golden(name, Arithmetic::F32);
        let adapter = golden_adapter(name);
        for with_adapter in [false, true] {
            let decoder = Decoder::start(&loaded, Some(&adapter), options);
            let seen = decoder.decode(&ask(&slices(&prompts), &[with_adapter]), 12);
            let sequences: Vec<Vec<u32>> = prompts
                .iter()
                .zip(&seen)
                .map(|(prompt, seen)| [prompt.as_slice(), &seen.tokens].concat())
                .collect();
            let tree = TokenTree::new(&sequences);
            assert!(tree.len() < sequences.iter().map(Vec::len).sum());
            let named = with_adapter.then_some(&*adapter);
            let packed = loaded.model.tree_logits(&tree, named);
            let packed: Vec<Vec<f32>> = packed.expect("logits").to_vec2().expect("rows");
            for (index, (prompt, seen)) in prompts.iter().zip(&seen).enumerate() {
                for (at, logits) in (prompt.len() - 1..).zip(&seen.logits) {
                    let row = tree.index_of(index, at).expect("a token");
                    assert_eq!(packed[row].len(), logits.len());
                    for (ours, theirs) in packed[row].iter().zip(logits) {
                        let gap = (ours - theirs).abs();
                        assert!(gap < 1e-4, "{name}, prompt {index}: off by {gap:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn company_and_shared_prefixes_change_no_bit_of_smollm2s_logits() {
    let Some(loaded) = Loaded::smollm2() else {
        return;
    };
    // Two of each family, and two that stand alone.
    let rows = rows("smollm2");
    let prompts: Vec<&[u32]> = rows[..8]
        .iter()
        .chain(&rows[rows.len() - 2..])
        .map(|row| row.ids.as_slice())
        .collect();
    let options = EngineOptions {
        step_tokens: 100,
        cache_mib: 128,
        ..EngineOptions::default()
    };
    let asked = ask(&prompts, &[false]);
    decode_in_every_company(&loaded, None, &asked, 6, options, "smollm2");
}
