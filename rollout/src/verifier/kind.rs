//! Kinds of verifier: how a configuration names them, and what they are made of.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::code::{CodeLimits, CodeVerifier};
use super::{PureVerifier, Verifier, command, exact, numeric, symbolic};
use crate::tools::ToolRunner;

/// Kinds of verifier, as a configuration names them: `integer`, `numeric: {tolerance: 1.0e-6}`. One
/// whose fields all have defaults may be written without them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifierKind {
    /// Whole numbers; `42.0` and `042` are 42.
    #[default]
    Integer,
    /// Decimals and fractions.
    Numeric {
        /// Largest error relative to the gold answer. Two whole numbers must be equal.
        tolerance: f64,
    },
    /// Expressions, sets, intervals, points, matrices, equations and words, compared by what they
    /// say.
    Math,
    /// The same text, but for blanks, dollar signs and a full stop.
    Exact,
    /// A program that has to pass the task's tests in the sandbox.
    Code(CodeLimits),
    /// A program of the user's that is given `{"gold": …, "pred": …}` on its standard input.
    Command {
        /// The program; looked up on `PATH` if it is a bare name.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<String>,
        /// Wall time of one comparison in milliseconds, after which it is undecided.
        timeout_ms: u64,
    },
}

/// A way to find answers in texts. Kinds of verifier that share one find the same answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// A number.
    Number,
    /// An expression, or whatever else mathematics writes.
    Math,
    /// A text.
    Text,
    /// A program.
    Program,
}

impl VerifierKind {
    /// Whether it needs a sandbox.
    pub fn runs_programs(&self) -> bool {
        matches!(self, VerifierKind::Code(_))
    }

    /// How it finds answers.
    pub fn reading(&self) -> Reading {
        match self {
            VerifierKind::Integer | VerifierKind::Numeric { .. } => Reading::Number,
            VerifierKind::Math | VerifierKind::Command { .. } => Reading::Math,
            VerifierKind::Exact => Reading::Text,
            VerifierKind::Code(_) => Reading::Program,
        }
    }

    /// Whether the configuration alone doesn't say what it finds equal: the user's program may be
    /// another under the same name.
    pub fn is_external(&self) -> bool {
        matches!(self, VerifierKind::Command { .. })
    }
}

/// The kinds with fields as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WithFields {
    Numeric {
        tolerance: f64,
    },
    Code(CodeLimits),
    Command {
        program: PathBuf,
        #[serde(default)]
        arguments: Vec<String>,
        #[serde(default = "command::default_timeout_ms")]
        timeout_ms: u64,
    },
}

impl<'de> Deserialize<'de> for VerifierKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = VerifierKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "integer, math, exact, code, or one of numeric, code and command with its fields",
        )
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<VerifierKind, E> {
        match name {
            "integer" => Ok(VerifierKind::Integer),
            "math" => Ok(VerifierKind::Math),
            "exact" => Ok(VerifierKind::Exact),
            "code" => Ok(VerifierKind::Code(CodeLimits::default())),
            "numeric" => Err(E::custom(
                "numeric needs a tolerance: numeric: {tolerance: 1.0e-6}",
            )),
            "command" => Err(E::custom(
                "command needs a program: command: {program: check.py}",
            )),
            other => Err(E::custom(format!(
                "there is no verifier {other}, only integer, numeric, math, exact, code and command"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<VerifierKind, A::Error> {
        let written = WithFields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(match written {
            WithFields::Numeric { tolerance } => VerifierKind::Numeric { tolerance },
            WithFields::Code(limits) => VerifierKind::Code(limits),
            WithFields::Command {
                program,
                arguments,
                timeout_ms,
            } => VerifierKind::Command {
                program,
                arguments,
                timeout_ms,
            },
        })
    }
}

/// The verifier of a kind. `runner` runs the programs of the kind `code`; without one, that kind is
/// always undecided.
pub fn build(kind: &VerifierKind, runner: Option<Arc<dyn ToolRunner>>) -> Arc<dyn Verifier> {
    match kind {
        VerifierKind::Integer => Arc::new(numbers(None)),
        VerifierKind::Numeric { tolerance } => Arc::new(numbers(Some(*tolerance))),
        VerifierKind::Math => Arc::new(symbolic::MathVerifier),
        VerifierKind::Exact => Arc::new(exact::ExactVerifier),
        VerifierKind::Code(limits) => Arc::new(CodeVerifier::new(*limits, runner)),
        VerifierKind::Command {
            program,
            arguments,
            timeout_ms,
        } => Arc::new(command::CommandVerifier::new(
            program,
            arguments,
            Duration::from_millis(*timeout_ms),
        )),
    }
}

/// The verifier of a kind that only computes.
pub fn pure(kind: &VerifierKind) -> Option<Box<dyn PureVerifier>> {
    match kind {
        VerifierKind::Integer => Some(Box::new(numbers(None))),
        VerifierKind::Numeric { tolerance } => Some(Box::new(numbers(Some(*tolerance)))),
        VerifierKind::Math => Some(Box::new(symbolic::MathVerifier)),
        VerifierKind::Exact => Some(Box::new(exact::ExactVerifier)),
        VerifierKind::Code(_) | VerifierKind::Command { .. } => None,
    }
}

fn numbers(tolerance: Option<f64>) -> numeric::NumberVerifier {
    numeric::NumberVerifier { tolerance }
}
