//! The local engine behind OpenAI's chat API, for clients other than a run.
//!
//! `GET /health`, `GET /v1/models`, `POST /v1/chat/completions`, plain or streamed. One model and
//! any number of adapters over it share the base weights; full sets of weights are served beside them. Each
//! has its own cache of keys and values. A client that hangs up gives its replies up.

mod chat;
mod refusal;
mod reply;
mod request;
mod tool_calls;

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, header};
use axum::routing::{get, post};
use model::chat_template::ChatTemplate;
use model::decode::{Engine, EngineOptions};
use model::grammar::{GrammarCompiler, GrammarError};
use model::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::base_model::BaseModel;
use crate::clock::unix_seconds;
use crate::error::RunError;
use crate::trained_weights::TrainedWeights;
use refusal::Refusal;

/// Largest request body, bytes.
const MOST_BYTES: usize = 16 << 20;

/// One set of weights under a name.
struct Served {
    name: String,
    engine: Arc<Engine>,
}

/// Everything the handlers share.
pub struct ModelServer {
    served: Vec<Served>,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    variables: Map<String, Value>,
    special_tokens: Vec<String>,
    stop_tokens: Vec<u32>,
    /// Made at the first request that needs it.
    grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
    api_key: Option<String>,
    started: i64,
    requests: AtomicU64,
}

impl ModelServer {
    /// The base model under its own name, and what was trained under the names given, each from its
    /// directory.
    ///
    /// # Errors
    /// When trained weights can't be read or an engine doesn't start.
    pub fn new(
        base: &BaseModel,
        trained: &[(String, PathBuf)],
        options: EngineOptions,
        api_key: Option<String>,
    ) -> Result<Self, RunError> {
        let start = |model, adapter| {
            let tokenizer = Arc::clone(&base.tokenizer);
            Ok::<_, RunError>(Arc::new(Engine::new(model, adapter, tokenizer, options)?))
        };
        let mut served = vec![Served {
            name: base.name().to_owned(),
            engine: start(Arc::clone(&base.model), None)?,
        }];
        for (name, directory) in trained {
            let weights = TrainedWeights::open(directory, &base.model.config)?;
            let (model, adapter) = weights.over(&base.model)?;
            served.push(Served {
                name: name.clone(),
                engine: start(model, adapter)?,
            });
        }
        Ok(Self {
            served,
            tokenizer: Arc::clone(&base.tokenizer),
            template: ChatTemplate::new(&base.template)?,
            variables: base.variables.clone(),
            special_tokens: base.tokenizer.special_tokens(),
            stop_tokens: base.stop_tokens.clone(),
            grammars: OnceLock::new(),
            api_key,
            started: unix_seconds(),
            requests: AtomicU64::new(0),
        })
    }

    /// Names under which models are served; the first is the default.
    pub fn names(&self) -> Vec<&str> {
        self.served.iter().map(|one| one.name.as_str()).collect()
    }

    /// The weights of that name; without one, the first.
    fn find(&self, name: Option<&str>) -> Result<&Served, Refusal> {
        match name.filter(|name| !name.is_empty()) {
            None => Ok(&self.served[0]),
            Some(name) => {
                let found = self.served.iter().find(|one| one.name == name);
                found.ok_or_else(|| Refusal::unknown_model(name, &self.names()))
            }
        }
    }

    /// What turns schemas into constraints; all models served share one vocabulary.
    fn grammars(&self, engine: &Engine) -> Result<&GrammarCompiler, Refusal> {
        let compiler = self.grammars.get_or_init(|| {
            GrammarCompiler::new(&self.tokenizer, engine.vocabulary(), &self.stop_tokens)
        });
        compiler.as_ref().map_err(Refusal::internal)
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(key) = &self.api_key else {
            return Ok(());
        };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        // Hashes take the same time to compare wherever they differ.
        let hash = |text: &str| blake3::hash(text.as_bytes());
        if given.is_some_and(|given| hash(given) == hash(key)) {
            Ok(())
        } else {
            Err(Refusal::unauthorized())
        }
    }
}

/// Answer requests on `listener` until `stop` is done; replies under way are finished.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    server: ModelServer,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route(
            "/health",
            get(|| async { axum::Json(json!({"status": "ok"})) }),
        )
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat::completions))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(Arc::new(server));
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await
}

async fn models(
    State(server): State<Arc<ModelServer>>,
    headers: HeaderMap,
) -> Result<axum::Json<Value>, Refusal> {
    server.authorize(&headers)?;
    let models = server.served.iter().map(|one| {
        json!({
            "id": one.name,
            "object": "model",
            "created": server.started,
            "owned_by": "coharness",
            "max_model_len": one.engine.context(),
        })
    });
    Ok(axum::Json(
        json!({"object": "list", "data": models.collect::<Vec<_>>()}),
    ))
}
