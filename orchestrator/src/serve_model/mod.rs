//! The local engine behind OpenAI's chat API, for clients other than a run.
//!
//! `GET /health`, `GET /v1/models` and one of them, `POST /v1/chat/completions`, plain or streamed. One model and
//! any number of adapters over it share an engine: requests to all of them are decoded in one batch. Full sets
//! of weights are served beside them by engines of their own. A client that hangs up gives its replies up.

mod chat;
mod fields;
mod logits;
mod refusal;
mod reply;
mod request;
mod tool_calls;

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::routing::{get, post};
use model::chat_template::ChatTemplate;
use model::decode::{Engine, EngineAdapter, EngineOptions};
use model::grammar::{GrammarCompiler, GrammarError};
use model::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::base_model::BaseModel;
use crate::clock::unix_seconds;
use crate::engines::{Decoder, Engines};
use crate::error::RunError;
use crate::trained_weights::TrainedWeights;
use refusal::Refusal;

/// One set of weights under a name.
struct Served {
    name: String,
    engine: Arc<Engine>,
    adapter: Option<EngineAdapter>,
}

impl Served {
    fn new(name: &str, decoder: Decoder) -> Self {
        let Decoder { engine, adapter } = decoder;
        Self {
            name: name.to_owned(),
            engine,
            adapter,
        }
    }
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
    /// When two have one name, trained weights can't be read, or an engine doesn't start.
    pub fn new(
        base: &BaseModel,
        trained: &[(String, PathBuf)],
        options: EngineOptions,
        api_key: Option<String>,
    ) -> Result<Self, RunError> {
        check_names(base.name(), trained)?;
        let engines = Engines::default();
        let plain = engines.open(base, None, options)?;
        let mut served = vec![Served::new(base.name(), plain)];
        for (name, directory) in trained {
            let decoder = TrainedWeights::open(directory, &base.model.config)
                .and_then(|weights| engines.open(base, Some(weights), options))
                .map_err(|source| RunError::ServedWeights {
                    name: name.clone(),
                    path: directory.clone(),
                    source: Box::new(source),
                })?;
            served.push(Served::new(name, decoder));
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

    /// What clients learn of a model.
    fn card(&self, served: &Served) -> Value {
        json!({
            "id": served.name,
            "object": "model",
            "created": self.started,
            "owned_by": "coharness",
            "max_model_len": served.engine.context(),
        })
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
        .route("/health", get(health))
        .route("/v1/models", get(models))
        // A name may have slashes.
        .route("/v1/models/{*name}", get(one_model))
        .route("/v1/chat/completions", post(chat::completions))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .with_state(Arc::new(server));
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await
}

/// A client finds a model by its name alone.
fn check_names(base: &str, trained: &[(String, PathBuf)]) -> Result<(), RunError> {
    for (index, (name, path)) in trained.iter().enumerate() {
        let mut earlier = trained[..index].iter().map(|(name, _)| name.as_str());
        let reason = if name.is_empty() {
            "it is empty"
        } else if name == base {
            "that is the base model's"
        } else if earlier.any(|other| other == name) {
            "another has it"
        } else {
            continue;
        };
        return Err(RunError::ServedName {
            name: name.clone(),
            path: path.clone(),
            reason,
        });
    }
    Ok(())
}

/// Whether all that is served can answer. Asks for no key: those who watch a server have none.
async fn health(State(server): State<Arc<ModelServer>>) -> Result<axum::Json<Value>, Refusal> {
    let served = server.served.iter();
    let states = served.map(|one| (one.name.as_str(), one.engine.is_running()));
    state_of(states)
}

fn state_of<'a>(
    models: impl Iterator<Item = (&'a str, bool)>,
) -> Result<axum::Json<Value>, Refusal> {
    let stopped: Vec<&str> = models
        .filter(|(_, is_running)| !is_running)
        .map(|(name, _)| name)
        .collect();
    if stopped.is_empty() {
        Ok(axum::Json(json!({"status": "ok"})))
    } else {
        Err(Refusal::stopped(&stopped))
    }
}

async fn models(
    State(server): State<Arc<ModelServer>>,
    headers: HeaderMap,
) -> Result<axum::Json<Value>, Refusal> {
    server.authorize(&headers)?;
    let models = server.served.iter().map(|one| server.card(one));
    Ok(axum::Json(
        json!({"object": "list", "data": models.collect::<Vec<_>>()}),
    ))
}

async fn no_path(method: Method, uri: Uri) -> Refusal {
    Refusal::no_endpoint(StatusCode::NOT_FOUND, &method, uri.path())
}

async fn no_method(method: Method, uri: Uri) -> Refusal {
    Refusal::no_endpoint(StatusCode::METHOD_NOT_ALLOWED, &method, uri.path())
}

async fn one_model(
    State(server): State<Arc<ModelServer>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<axum::Json<Value>, Refusal> {
    server.authorize(&headers)?;
    let found = server.find(Some(&name))?;
    Ok(axum::Json(server.card(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_healthy_while_all_its_models_can_answer() {
        let good = [("base", true), ("tuned", true)];
        let axum::Json(state) = state_of(good.into_iter()).expect("healthy");
        assert_eq!(state["status"], "ok");
        let refusal = state_of([("base", true), ("tuned", false)].into_iter());
        let refusal = refusal.expect_err("one has stopped");
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refusal.message.contains("tuned") && !refusal.message.contains("base"));
    }
}
