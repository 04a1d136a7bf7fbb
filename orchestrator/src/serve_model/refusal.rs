//! Errors as clients of the chat API read them.

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use model::decode::EngineError;
use serde_json::json;

/// A request that gets no reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field that is wrong.
    pub(super) parameter: Option<String>,
    /// A name that programs know, as `context_length_exceeded`.
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    /// A field that is wrong.
    pub(super) fn invalid(parameter: &str, reason: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: format!("{parameter}: {}", reason.into()),
            parameter: Some(parameter.to_owned()),
            code: None,
        }
    }

    /// A body that is no request at all.
    pub(super) fn unreadable(reason: impl std::fmt::Display) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            message: format!("the request can't be read: {reason}"),
            parameter: None,
            code: None,
        }
    }

    /// A body of more than so many bytes.
    pub(super) fn too_large(most: usize) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            message: format!("the request has more than {} MiB", most >> 20),
            parameter: None,
            code: None,
        }
    }

    /// A model that isn't served.
    pub(super) fn unknown_model(name: &str, known: &[&str]) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            message: format!("there is no model {name}, only {}", known.join(", ")),
            parameter: Some("model".into()),
            code: Some("model_not_found"),
        }
    }

    /// A part of the API that isn't offered.
    pub(super) fn no_endpoint(status: StatusCode, method: &Method, path: &str) -> Self {
        Self {
            status,
            message: format!(
                "there is no {method} {path}, only GET /health, GET /v1/models, GET /v1/models/NAME and POST \
                 /v1/chat/completions"
            ),
            parameter: None,
            code: None,
        }
    }

    /// Models that can't answer any more, until the server is started again.
    pub(super) fn stopped(names: &[&str]) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: format!("the engine of {} has stopped", names.join(", ")),
            parameter: None,
            code: None,
        }
    }

    /// A fault of this server.
    pub(super) fn internal(reason: impl std::fmt::Display) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: reason.to_string(),
            parameter: None,
            code: None,
        }
    }

    /// A wrong or missing key.
    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            message: "a wrong or missing API key".into(),
            parameter: None,
            code: Some("invalid_api_key"),
        }
    }

    /// The object under `error`, also sent inside a stream.
    pub(super) fn body(&self) -> serde_json::Value {
        let kind = if self.status.is_client_error() {
            "invalid_request_error"
        } else {
            "server_error"
        };
        json!({"error": {
            "message": self.message,
            "type": kind,
            "param": self.parameter,
            "code": self.code,
        }})
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        let (status, code) = match &error {
            EngineError::TooLong { .. } => {
                (StatusCode::BAD_REQUEST, Some("context_length_exceeded"))
            }
            EngineError::EmptyPrompt
            | EngineError::UnknownToken { .. }
            | EngineError::Constraint { .. } => (StatusCode::BAD_REQUEST, None),
            EngineError::Cancelled | EngineError::Stopped => {
                (StatusCode::SERVICE_UNAVAILABLE, None)
            }
            // A served name has its engine's own adapter.
            EngineError::UnknownAdapter
            | EngineError::Compute { .. }
            | EngineError::Device
            | EngineError::Thread { .. } => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        Self {
            status,
            message: error.to_string(),
            parameter: None,
            code,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
