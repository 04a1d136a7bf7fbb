//! The engines of this process: one for the base model and every adapter over it, so that what runs under
//! them shares steps, weights and the memory for keys and values, and one for each full set of weights.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::decode::{Engine, EngineAdapter, EngineOptions};
use model::transformer::Transformer;
use model::weights::Checkpoint;

use crate::base_model::BaseModel;
use crate::error::RunError;
use crate::trained_weights::TrainedWeights;

/// Where requests under some weights go, and the adapter that they name.
pub(crate) struct Decoder {
    pub(crate) engine: Arc<Engine>,
    pub(crate) adapter: Option<EngineAdapter>,
}

/// Starts engines; they run as long as somebody holds their decoders.
#[derive(Debug, Default)]
pub(crate) struct Engines {
    /// That of the base model.
    shared: Mutex<Weak<Engine>>,
}

impl Engines {
    /// The decoder of `weights`, or of the base model alone. `options` are those of an engine that has to be
    /// started.
    ///
    /// # Errors
    /// When the weights don't fit the base model, or no engine can be started.
    pub(crate) fn open(
        &self,
        base: &BaseModel,
        weights: Option<TrainedWeights>,
        options: EngineOptions,
    ) -> Result<Decoder, RunError> {
        let adapter = match weights {
            None => None,
            Some(TrainedWeights::Adapter(adapter)) => Some(Arc::new(adapter)),
            Some(TrainedWeights::Full(tensors)) => {
                let checkpoint = Checkpoint::of(base.model.config.clone(), tensors)?;
                let arithmetic = base.model.arithmetic();
                let model = Arc::new(Transformer::with_arithmetic(checkpoint, arithmetic)?);
                return Ok(Decoder {
                    engine: start(base, model, options)?,
                    adapter: None,
                });
            }
        };
        let engine = self.shared(base, options)?;
        let adapter = adapter
            .map(|adapter| engine.add_adapter(adapter))
            .transpose()?;
        Ok(Decoder { engine, adapter })
    }

    fn shared(&self, base: &BaseModel, options: EngineOptions) -> Result<Arc<Engine>, RunError> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has broken down answers nobody any more.
        let running = shared.upgrade().filter(|engine| engine.is_running());
        if let Some(engine) = running {
            return Ok(engine);
        }
        let engine = start(base, Arc::clone(&base.model), options)?;
        *shared = Arc::downgrade(&engine);
        Ok(engine)
    }
}

fn start(
    base: &BaseModel,
    model: Arc<Transformer>,
    options: EngineOptions,
) -> Result<Arc<Engine>, RunError> {
    let engine = Engine::new(model, Arc::clone(&base.tokenizer), options)?;
    Ok(Arc::new(engine))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use candle_core::{DType, Device};
    use model::decode::{GenerationRequest, Sampling};
    use model::tokenizer::Tokenizer;
    use serde_json::{Value, json};

    use super::*;

    fn golden() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied")
    }

    fn base() -> BaseModel {
        let path = golden();
        let checkpoint = Checkpoint::load(&path, DType::F32, &Device::Cpu).expect("golden model");
        let tokenizer = Tokenizer::from_file(&path.join("tokenizer.json")).expect("tokenizer");
        BaseModel {
            id: "tiny@0".into(),
            path,
            model: Arc::new(Transformer::new(checkpoint).expect("model")),
            tokenizer: Arc::new(tokenizer),
            template: String::new(),
            variables: serde_json::Map::new(),
            stop_tokens: Vec::new(),
        }
    }

    /// What a decoder says to a prompt, and how much of that it had in its cache.
    fn reply(decoder: &Decoder, row: &Value) -> (Value, usize) {
        let prompt = row["ids"].as_array().expect("ids").iter();
        let prompt = prompt.map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"));
        let request = GenerationRequest {
            prompt: prompt.collect(),
            adapter: decoder.adapter.clone(),
            max_new: 24,
            sampling: Sampling::GREEDY,
            seed: 0,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
        };
        let generation = decoder.engine.generate(request).expect("a reply");
        (json!(generation.tokens), generation.cached_tokens)
    }

    #[test]
    fn adapters_share_the_base_models_engine_while_anyone_holds_it_and_full_sets_have_their_own() {
        let (base, engines) = (base(), Engines::default());
        let options = EngineOptions {
            cache_mib: 64,
            ..EngineOptions::default()
        };
        let config = &base.model.config;
        let adapter = || TrainedWeights::open(&golden().join("adapter"), config).expect("adapter");
        let full = TrainedWeights::open(&golden(), config).expect("weights");
        let open = |weights| engines.open(&base, weights, options).expect("a decoder");

        // The adapter first: what it starts is the base model's engine.
        let (tuned, plain, whole) = (open(Some(adapter())), open(None), open(Some(full)));
        assert!(Arc::ptr_eq(&tuned.engine, &plain.engine));
        assert!(!Arc::ptr_eq(&whole.engine, &plain.engine));
        let rows = std::fs::read_to_string(golden().join("greedy.json")).expect("greedy");
        let rows: Value = serde_json::from_str(&rows).expect("JSON");
        for (decoder, part) in [(&tuned, "adapter"), (&plain, "base"), (&whole, "base")] {
            let (ids, cached) = reply(decoder, &rows[1]);
            assert_eq!((&ids, cached), (&rows[1][part]["ids"], 0));
        }

        drop(plain);
        let again = open(None);
        assert!(Arc::ptr_eq(&tuned.engine, &again.engine));
        assert!(reply(&again, &rows[1]).1 > 0, "the prefix is there still");
        drop((tuned, again));
        let fresh = open(Some(adapter()));
        assert_eq!(reply(&fresh, &rows[1]).1, 0, "nobody had held the engine");
    }
}
