//! Models that are decoded, and requests to them, for the tests of this binary.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};

use candle_core::Device;
use model::adapter::Adapter;
use model::decode::{
    Controls, Engine, EngineAdapter, EngineError, EngineOptions, Generation, GenerationRequest,
    Sampling,
};
use model::kernels::gemm::Arithmetic;
use model::tokenizer::Tokenizer;
use model::transformer::Transformer;

use crate::export::{golden, load, read};

/// A model with its tokenizer, from which any number of engines can be made.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) model: Arc<Transformer>,
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl Loaded {
    /// The model in `path`, a GGUF file or a directory.
    pub(crate) fn read(path: &Path, arithmetic: Arithmetic) -> Self {
        let (checkpoint, tokenizer) = read(path);
        let model = Transformer::with_arithmetic(checkpoint, arithmetic).expect("model");
        Self {
            model: Arc::new(model),
            tokenizer: Arc::new(tokenizer),
        }
    }

    pub(crate) fn golden(name: &str, arithmetic: Arithmetic) -> Self {
        Self::read(&golden(name), arithmetic)
    }

    /// SmolLM2-135M-Instruct in f32, read once, where `COHARNESS_TEST_GGUF` names its file.
    pub(crate) fn smollm2() -> Option<Self> {
        static READ: LazyLock<Option<Loaded>> = LazyLock::new(|| {
            let path = std::env::var_os("COHARNESS_TEST_GGUF").map(PathBuf::from)?;
            Some(Loaded::read(&path, Arithmetic::F32))
        });
        if READ.is_none() {
            println!("skipped: COHARNESS_TEST_GGUF is not set");
        }
        READ.clone()
    }

    pub(crate) fn engine(&self, options: EngineOptions) -> Engine {
        let Self { model, tokenizer } = self.clone();
        Engine::new(model, tokenizer, options).expect("engine")
    }
}

/// A golden model in f32, decoding.
pub(crate) fn engine(name: &str, options: EngineOptions) -> Engine {
    Loaded::golden(name, Arithmetic::F32).engine(options)
}

/// The adapter that a golden model's continuations were made with. It is ready for no arithmetic yet.
pub(crate) fn golden_adapter(name: &str) -> Arc<Adapter> {
    let directory = golden(name);
    let config = load(&directory).config;
    let adapter = Adapter::load(&directory.join("adapter"), &config, &Device::Cpu);
    Arc::new(adapter.expect("adapter"))
}

/// Greedy decoding of `max_new` tokens by the base model, which nothing ends earlier.
pub(crate) fn request(prompt: &[u32], max_new: usize) -> GenerationRequest {
    request_to(None, prompt, max_new)
}

/// [`request`], to one of the engine's adapters where it is given.
pub(crate) fn request_to(
    adapter: Option<&EngineAdapter>,
    prompt: &[u32],
    max_new: usize,
) -> GenerationRequest {
    GenerationRequest {
        prompt: prompt.to_vec(),
        adapter: adapter.cloned(),
        max_new,
        sampling: Sampling::GREEDY,
        seed: 0,
        stop_tokens: Vec::new(),
        stop_strings: Vec::new(),
    }
}

pub(crate) fn submit(
    engine: &Engine,
    request: GenerationRequest,
    controls: Controls,
) -> Receiver<Result<Generation, EngineError>> {
    let (sender, receiver) = channel();
    engine.submit(request, controls, move |result| {
        let _ = sender.send(result);
    });
    receiver
}
