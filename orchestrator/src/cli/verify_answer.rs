//! `coharness verify-answer`: a verifier alone, one answer a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use rollout::tools::ToolRunner;
use rollout::verifier::code::{CodeLimits, cases};
use rollout::verifier::{Outcome, Verifier, VerifierKind, build};
use serde_json::{Value, json};

use super::{STANDARD_INPUT, STANDARD_OUTPUT, environment, say};
use crate::config::ConfigError;
use crate::counted::counted;
use crate::error::RunError;
use crate::judges;

/// Relative error of `--kind numeric` where none is given.
const TOLERANCE: f64 = 1e-6;
/// Longest line that is read, in bytes.
const MAX_LINE: usize = 16 << 20;

/// Judge answers with a verifier.
#[derive(Debug, Args)]
pub(crate) struct VerifyAnswerArgs {
    /// File of JSON lines; - is the standard input.
    #[arg(long, value_name = "FILE", default_value = "-")]
    jsonl: PathBuf,
    /// How answers are compared.
    #[arg(long, value_enum, default_value = "math")]
    kind: Kind,
    /// Largest error relative to the gold answer, for the kind numeric [default: 1e-6].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    tolerance: Option<f64>,
    /// Program of the kind command: reads one such line, answers by exit code (0 equal, 1 different) or
    /// with {"equal": …}.
    #[arg(long, value_name = "PROGRAM", required_if_eq("kind", "command"))]
    program: Option<PathBuf>,
    /// An argument for the program; can be given several times.
    #[arg(
        long = "arg",
        value_name = "ARG",
        allow_hyphen_values = true,
        requires = "program"
    )]
    arguments: Vec<String>,
    /// Wall time of one run of the program of the kind command; processor time of one test of the kind
    /// code.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_ms: u64,
    /// Memory of one test of the kind code.
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = CodeLimits::default().memory_mib,
        value_parser = clap::value_parser!(u64).range(64..)
    )]
    memory_mib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Expressions, sets, points, relations, words.
    Math,
    /// Decimals and fractions within a tolerance.
    Numeric,
    /// Whole numbers.
    Integer,
    /// Texts.
    Exact,
    /// Python programs, by their tests, in the sandbox.
    Code,
    /// A program of yours.
    Command,
}

impl VerifyAnswerArgs {
    /// Whether the kind asks for what was given: left unused, it would seem to count.
    fn check(&self) -> Result<(), RunError> {
        let (field, reason) = if self.tolerance.is_some() && self.kind != Kind::Numeric {
            ("--tolerance", "only --kind numeric has one")
        } else if self.program.is_some() && self.kind != Kind::Command {
            ("--program", "only --kind command has one")
        } else {
            return Ok(());
        };
        Err(RunError::from(ConfigError::Invalid {
            path: "coharness verify-answer".into(),
            field,
            reason: reason.into(),
        }))
    }

    fn kind(&self) -> VerifierKind {
        match self.kind {
            Kind::Math => VerifierKind::Math,
            Kind::Numeric => VerifierKind::Numeric {
                tolerance: self.tolerance.unwrap_or(TOLERANCE),
            },
            Kind::Integer => VerifierKind::Integer,
            Kind::Exact => VerifierKind::Exact,
            Kind::Code => VerifierKind::Code(CodeLimits {
                timeout_ms: self.timeout_ms,
                memory_mib: self.memory_mib,
            }),
            Kind::Command => VerifierKind::Command {
                program: self.program.clone().unwrap_or_default(),
                arguments: self.arguments.clone(),
                timeout_ms: self.timeout_ms,
            },
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("not a number from 0 to 1".into()),
    }
}

pub(crate) async fn verify_answer(args: &VerifyAnswerArgs) -> Result<ExitCode, RunError> {
    args.check()?;
    let kind = args.kind();
    judges::try_one("--program", &kind)?;
    let runner: Option<Arc<dyn ToolRunner>> = if kind.runs_programs() {
        Some(Arc::new(environment::read()?.open_sandbox().await?))
    } else {
        None
    };
    let verifier = build(&kind, runner);
    let runs_programs = kind.runs_programs();
    let tally = if args.jsonl == Path::new("-") {
        let input = Input {
            path: Path::new(STANDARD_INPUT),
            lines: io::stdin().lock(),
        };
        judge(verifier.as_ref(), runs_programs, input).await?
    } else {
        let path = args.jsonl.as_path();
        let file = File::open(path).map_err(|source| RunError::Named {
            path: path.to_owned(),
            source,
        })?;
        let lines = BufReader::new(file);
        judge(verifier.as_ref(), runs_programs, Input { path, lines }).await?
    };
    say(&format!(
        "{} equal, {} not, {} undecided, {} that can't be read",
        tally.equal,
        tally.not,
        tally.undecided,
        counted(tally.errors, "line")
    ));
    Ok(ExitCode::from(if tally.errors > 0 { 2 } else { 0 }))
}

/// How many lines ended how.
#[derive(Debug, Default)]
struct Tally {
    equal: u64,
    not: u64,
    undecided: u64,
    errors: u64,
}

/// Where questions come from.
struct Input<'a, L> {
    /// Its name.
    path: &'a Path,
    lines: L,
}

impl<L: BufRead> Input<'_, L> {
    /// Puts the next line into `line`; whether there was one.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool, RunError> {
        line.clear();
        match self.lines.read_until(b'\n', line) {
            Ok(length) => Ok(length > 0),
            Err(source) => {
                let path = self.path.to_owned();
                Err(match source.kind() {
                    // It opens like a file.
                    io::ErrorKind::IsADirectory => RunError::Named { path, source },
                    _ => RunError::Io { path, source },
                })
            }
        }
    }
}

/// Answers every line as soon as it is read; blank ones are read over.
async fn judge<L: BufRead>(
    verifier: &dyn Verifier,
    runs_programs: bool,
    mut input: Input<'_, L>,
) -> Result<Tally, RunError> {
    let mut output = io::stdout().lock();
    let mut tally = Tally::default();
    let mut line = Vec::new();
    while input.next_line(&mut line)? {
        let question = question(&line).and_then(|question| {
            // Tests that can't be run say nothing about a program.
            if runs_programs && let Some((gold, _)) = &question {
                cases::from_text(gold).map_err(|reason| format!("gold {reason}"))?;
            }
            Ok(question)
        });
        let reply = match question {
            Ok(None) => continue,
            Ok(Some((gold, text))) => reply(verifier, &gold, &text, &mut tally).await,
            Err(reason) => {
                tally.errors += 1;
                json!({"equal": false, "verdict": "error", "rule": "none", "error": reason})
            }
        };
        let written = writeln!(output, "{reply}").and_then(|()| output.flush());
        match written {
            Ok(()) => {}
            // A reader that closed the pipe early has what it wanted.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(source) => {
                return Err(RunError::Io {
                    path: STANDARD_OUTPUT.into(),
                    source,
                });
            }
        }
    }
    Ok(tally)
}

async fn reply(verifier: &dyn Verifier, gold: &str, text: &str, tally: &mut Tally) -> Value {
    let assessment = verifier.assess(gold, text).await;
    *match assessment.outcome {
        Some(Outcome::Equal) => &mut tally.equal,
        Some(Outcome::Undecided) => &mut tally.undecided,
        _ => &mut tally.not,
    } += 1;
    let mut reply = json!({
        "equal": assessment.outcome == Some(Outcome::Equal),
        "verdict": assessment.name(),
        "rule": assessment.rule,
        "answer": assessment.answer,
    });
    if let Some(failed) = assessment.failed_test {
        reply["test"] = json!(failed);
    }
    reply
}

/// The gold answer and the text to judge; none in a blank line.
fn question(line: &[u8]) -> Result<Option<(String, String)>, String> {
    if line.len() > MAX_LINE {
        return Err(format!("the line has more than {MAX_LINE} bytes"));
    }
    let line = std::str::from_utf8(line)
        .map_err(|error| format!("column {}: not UTF-8", error.valid_up_to() + 1))?;
    let Some(line) = harness::json::parse_line(line).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let field = |name: &str| match &line[name] {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        // Tests of a program.
        tests @ (Value::Array(_) | Value::Object(_)) if name == "gold" => Ok(tests.to_string()),
        Value::Null => Err(format!("the line has no {name}")),
        _ => Err(format!("{name} is neither text nor a number")),
    };
    Ok(Some((field("gold")?, field("pred")?)))
}
