//! Several adapters in one engine: every request gets what it would get alone, and no prefix is shared
//! across adapters.

use std::sync::Arc;
use std::time::Duration;

use candle_core::{Device, Tensor};
use model::adapter::{Adapter, AdapterConfig, AdapterError, Projection, parameter_name};
use model::decode::{
    Controls, Engine, EngineAdapter, EngineError, EngineOptions, Generation, GenerationRequest,
};
use model::kernels::gemm::Arithmetic;
use model::weights::{TensorMap, expected_shapes};

use crate::engines::{Loaded, engine, golden_adapter, request, request_to, submit};
use crate::export::{GOLDEN, golden, load};
use crate::greedy::short_rows;

const NAME: &str = "llama_tied";

/// An adapter of another shape than the golden one.
fn made_up(rank: usize, targets: &[Projection]) -> Arc<Adapter> {
    let config = load(&golden(NAME)).config;
    let shapes = expected_shapes(&config);
    let value = |at: usize| ((at + rank) * 7919 % 613) as f32 / 1530.0 - 0.2;
    let mut tensors = TensorMap::new();
    for layer in 0..config.num_hidden_layers {
        for target in targets {
            let whole = &shapes[&format!("model.layers.{layer}.{}.weight", target.path())];
            for (part, shape) in [("A", (rank, whole[1])), ("B", (whole[0], rank))] {
                let values: Vec<f32> = (0..shape.0 * shape.1).map(value).collect();
                let tensor = Tensor::from_vec(values, shape, &Device::Cpu).expect("tensor");
                tensors.insert(parameter_name(layer, *target, part), tensor);
            }
        }
    }
    let shape = AdapterConfig {
        rank,
        alpha: 8,
        rank_stabilised: false,
        targets: targets.to_vec(),
    };
    Arc::new(Adapter::from_tensors(&config, shape, tensors).expect("adapter"))
}

/// The base model, the golden adapter, and two that adapt other projections at other ranks.
fn kinds(engine: &Engine) -> Vec<Option<EngineAdapter>> {
    let narrow = made_up(2, &[Projection::Query, Projection::Value]);
    let wide = made_up(9, &[Projection::Output, Projection::Gate, Projection::Down]);
    let added = [golden_adapter(NAME), narrow, wide]
        .map(|adapter| Some(engine.add_adapter(adapter).expect("it fits")));
    std::iter::once(None).chain(added).collect()
}

/// A prompt with the same first tokens as others.
fn prompt(shared: u32, own: u32, length: u32) -> Vec<u32> {
    (0..length)
        .map(|at| {
            let number = if at < shared { 0 } else { own };
            (at * at + 31 * number + 7 * at) % 256
        })
        .collect()
}

fn sampled(adapter: Option<&EngineAdapter>, prompt: &[u32], seed: u64) -> GenerationRequest {
    let mut request = request_to(adapter, prompt, 6 + seed as usize % 17);
    request.sampling.temperature = 1.0;
    request.seed = seed;
    request
}

/// Whether two replies are equal to the bit.
fn assert_same(found: &Generation, alone: &Generation, what: &str) {
    assert_eq!(found.tokens, alone.tokens, "{what}");
    assert_eq!(found.logprobs, alone.logprobs, "{what}");
}

#[test]
fn a_mixed_batch_gives_every_request_its_own_golden_continuation() {
    for name in GOLDEN {
        let rows = short_rows(name);
        // All at once, prompts in several chunks, and fewer places than requests: some join as others
        // leave.
        for (max_batch, step_tokens) in [(64, 512), (64, 7), (3, 16)] {
            let options = EngineOptions {
                max_batch,
                step_tokens,
                ..EngineOptions::default()
            };
            let engine = engine(name, options);
            let tuned = engine.add_adapter(golden_adapter(name)).expect("it fits");
            // Once more when prefixes are cached.
            for _ in 0..2 {
                let mut replies = Vec::new();
                for row in &rows {
                    for with_adapter in [true, false, true] {
                        let expected = row.expected(with_adapter);
                        let adapter = with_adapter.then_some(&tuned);
                        let request = request_to(adapter, &row.ids, expected.ids.len());
                        let reply = submit(&engine, request, Controls::default());
                        replies.push((expected, with_adapter, reply));
                    }
                }
                for (expected, with_adapter, reply) in replies {
                    let reply = reply.recv().expect("a reply").expect("a generation");
                    expected.compare(&reply, &format!("{name}, adapter {with_adapter}"));
                }
            }
        }
    }
}

#[test]
fn a_reply_does_not_depend_on_the_adapters_beside_it() {
    let options = EngineOptions {
        max_batch: 9,
        step_tokens: 48,
        ..EngineOptions::default()
    };
    let (mixed, alone) = (engine(NAME, options), engine(NAME, options));
    let (mixed_kinds, alone_kinds) = (kinds(&mixed), kinds(&alone));
    let replies: Vec<_> = (0..60)
        .map(|number: u32| {
            // Requests that come while others run.
            if number.is_multiple_of(8) {
                std::thread::sleep(Duration::from_millis(2));
            }
            let kind = (number * 7 % 11 % 4) as usize;
            let prompt = prompt(20, number / 5, 18 + number % 40);
            let seed = u64::from(number);
            let request = sampled(mixed_kinds[kind].as_ref(), &prompt, seed);
            let reply = submit(&mixed, request, Controls::default());
            (kind, prompt, seed, reply)
        })
        .collect();
    for (kind, prompt, seed, reply) in replies {
        let found = reply.recv().expect("a reply").expect("a generation");
        let generate = |kind: usize| {
            let request = sampled(alone_kinds[kind].as_ref(), &prompt, seed);
            alone.generate(request).expect("a generation")
        };
        assert_same(
            &found,
            &generate(kind),
            &format!("request {seed} to {kind}"),
        );
        // Each kind says something of its own, or nothing would be compared.
        assert_ne!(found.logprobs, generate((kind + 1) % 4).logprobs);
    }
}

#[test]
fn prefixes_are_not_shared_across_adapters() {
    let rows = short_rows(NAME);
    // Two whole blocks, and a token that is never taken from the cache.
    let row = &rows[1];
    assert_eq!(row.ids.len(), 33);
    let engine = engine(NAME, EngineOptions::default());
    let add = || engine.add_adapter(golden_adapter(NAME)).expect("it fits");
    let (first, second) = (add(), add());
    let check = |adapter: Option<&EngineAdapter>, cached: usize| {
        let expected = row.expected(adapter.is_some());
        let request = request_to(adapter, &row.ids, expected.ids.len());
        let reply = engine.generate(request).expect("a reply");
        assert_eq!(reply.cached_tokens, cached, "{adapter:?}");
        expected.compare(&reply, &format!("{adapter:?}"));
    };
    for adapter in [Some(&first), None, Some(&second)] {
        check(adapter, 0);
        check(adapter, 32);
    }
    // One that comes later meets nothing of one that is gone, although their weights are equal.
    drop(first);
    check(Some(&add()), 0);
    check(Some(&second), 32);
    check(None, 32);

    // The same where they run at the same time.
    let prompt = prompt(0, 3, 40);
    let adapters = [Some(&second), None];
    let replies: Vec<_> = [0, 1, 0, 1]
        .iter()
        .map(|at| {
            let request = request_to(adapters[*at], &prompt, 4);
            submit(&engine, request, Controls::default())
        })
        .collect();
    let cached: Vec<usize> = replies
        .iter()
        .map(|reply| reply.recv().expect("a reply").expect("reply").cached_tokens)
        .collect();
    assert_eq!(cached, [0, 0, 32, 32]);
}

#[test]
fn a_full_cache_and_cancelled_requests_leave_every_adapter_its_own_replies() {
    // Some hundred blocks, for what would fill twice as many.
    let options = EngineOptions {
        cache_mib: 1,
        step_tokens: 32,
        max_batch: 12,
        ..EngineOptions::default()
    };
    let (engine, alone) = (
        engine(NAME, options),
        engine(NAME, EngineOptions::default()),
    );
    let (kinds, alone_kinds) = (kinds(&engine), kinds(&alone));
    let prompts: Vec<Vec<u32>> = (0..12).map(|own| prompt(50, own, 112)).collect();
    let expected: Vec<Vec<Generation>> = alone_kinds
        .iter()
        .map(|adapter| {
            let say = |prompt: &Vec<u32>| {
                let request = request_to(adapter.as_ref(), prompt, 5);
                alone.generate(request).expect("a reply")
            };
            prompts.iter().map(say).collect()
        })
        .collect();
    for round in 0..6 {
        let mut cancels = Vec::new();
        let replies: Vec<_> = (0..2 * kinds.len() * prompts.len())
            .map(|number| {
                // Every kind asks for a prompt while others do, in an order that is another one each
                // round.
                let at = (number * 7 + round * 5) % prompts.len();
                let kind = (number + number / prompts.len()) % kinds.len();
                let controls = Controls::default();
                if (number + round).is_multiple_of(5) {
                    cancels.push(controls.cancel.clone());
                }
                let request = request_to(kinds[kind].as_ref(), &prompts[at], 5);
                (kind, at, submit(&engine, request, controls))
            })
            .collect();
        let given_up = cancels.len();
        for cancel in cancels {
            std::thread::sleep(Duration::from_micros(300));
            cancel.cancel();
        }
        let mut ended = 0;
        for (kind, at, reply) in replies {
            let reply = reply.recv_timeout(Duration::from_secs(60));
            match reply.expect("an answer") {
                Ok(reply) => {
                    let what = format!("prompt {at} to {kind} in round {round}");
                    assert_same(&reply, &expected[kind][at], &what);
                }
                Err(EngineError::Cancelled) => ended += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(ended <= given_up, "{ended} of {given_up}");
    }
}

#[test]
fn a_request_to_an_adapter_of_another_engine_ends_alone() {
    let rows = short_rows(NAME);
    let row = &rows[0];
    let here = engine(NAME, EngineOptions::default());
    let elsewhere = engine(NAME, EngineOptions::default());
    let foreign = elsewhere
        .add_adapter(golden_adapter(NAME))
        .expect("it fits");
    let running = submit(&here, request(&row.ids, 24), Controls::default());
    let error = here.generate(request_to(Some(&foreign), &row.ids, 24));
    assert!(
        matches!(error, Err(EngineError::UnknownAdapter)),
        "{error:?}"
    );
    let reply = running.recv().expect("a reply").expect("a generation");
    row.expected(false)
        .compare(&reply, "beside the refused one");
    let reply = elsewhere.generate(request_to(Some(&foreign), &row.ids, 24));
    let reply = reply.expect("a reply");
    row.expected(true).compare(&reply, "its own engine");
    // One that nobody has but a request is there as long as the request.
    let reply = submit(
        &elsewhere,
        request_to(Some(&foreign), &row.ids, 24),
        Controls::default(),
    );
    drop(foreign);
    let reply = reply.recv().expect("a reply").expect("a generation");
    row.expected(true).compare(&reply, "the last request");
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_before_any_request() {
    let here = engine(NAME, EngineOptions::default());
    let other = golden_adapter("llama_untied");
    let error = here.add_adapter(other).expect_err("another width");
    assert!(matches!(error, AdapterError::Mismatch { .. }), "{error}");
    let named = "model.layers.0.self_attn.q_proj.weight";
    assert!(error.to_string().contains(named), "{error}");

    if !Arithmetic::Bf16.is_available() {
        println!("skipped: this machine has one arithmetic");
        return;
    }
    let adapter = golden_adapter(NAME);
    here.add_adapter(Arc::clone(&adapter)).expect("it fits");
    let halves = Loaded::golden(NAME, Arithmetic::Bf16).engine(EngineOptions::default());
    assert!(halves.add_adapter(adapter).is_err());
    assert!(halves.add_adapter(golden_adapter(NAME)).is_ok());
}
