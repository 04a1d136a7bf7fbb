//! Running a tool call, and what the policy reads of the result.

mod script;

use std::time::Duration;

use harness::{Backend, Tool};
use sandbox::{Execution, Exit, Sandbox, SandboxError, SandboxPolicy, Session, SessionCall};
use serde_json::{Map, Value};

use crate::policy::BoxFuture;

pub use script::Script;

/// A tool couldn't be run, through no fault of the call.
#[derive(Debug, thiserror::Error)]
#[error("cannot run the tool")]
pub struct ToolFault {
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What runs programs. A trait so that the loop can be tested without a sandbox.
pub trait ToolRunner: Send + Sync {
    /// Runs a Python program. What the program does wrong is an [`Execution`], never an error.
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>>;

    /// An interpreter for one rollout, in which variables live on. By default there is none.
    fn open_session(&self) -> BoxFuture<'_, Result<Box<dyn ToolSession>, ToolFault>> {
        Box::pin(async {
            Err(ToolFault {
                source: "this tool runner keeps no state".into(),
            })
        })
    }
}

/// What runs the programs of one rollout in one interpreter. Dropping it ends the interpreter.
pub trait ToolSession: Send {
    /// Runs a program where the one before has ended. What it does wrong is part of the result.
    fn call<'a>(
        &'a mut self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<SessionCall, ToolFault>>;
}

impl ToolSession for Session {
    fn call<'a>(
        &'a mut self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<SessionCall, ToolFault>> {
        Box::pin(async move { Session::call(self, code, policy).await.map_err(fault) })
    }
}

fn fault(error: SandboxError) -> ToolFault {
    ToolFault {
        source: Box::new(error),
    }
}

impl ToolRunner for Sandbox {
    fn run_python<'a>(
        &'a self,
        code: &'a str,
        policy: &'a SandboxPolicy,
    ) -> BoxFuture<'a, Result<Execution, ToolFault>> {
        Box::pin(async move { Sandbox::run_python(self, code, policy).await.map_err(fault) })
    }

    fn open_session(&self) -> BoxFuture<'_, Result<Box<dyn ToolSession>, ToolFault>> {
        Box::pin(async move {
            let session = Sandbox::open_session(self).await.map_err(fault)?;
            Ok(Box::new(session) as Box<dyn ToolSession>)
        })
    }
}

/// The sandbox policy for one call of `tool`, of which at most `left` of wall time remains.
pub(crate) fn sandbox_policy(tool: &Tool, left: Duration) -> SandboxPolicy {
    let timeout = Duration::from_millis(tool.limits.timeout_ms).min(left);
    SandboxPolicy {
        wall: timeout,
        cpu: timeout,
        memory_mib: tool.limits.memory_mib,
        ..SandboxPolicy::default()
    }
}

/// The program of a call. The error says what is wrong with the arguments, to the policy.
pub(crate) fn program<'a>(
    tool: &Tool,
    arguments: &'a Map<String, Value>,
) -> Result<&'a str, String> {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !arguments.contains_key(name) {
            return Err(format!("the argument `{name}` is missing"));
        }
    }
    let is_closed = tool.parameters.get("additionalProperties") == Some(&Value::Bool(false));
    for (name, value) in arguments {
        match properties.and_then(|properties| properties.get(name)) {
            Some(schema) => check_type(name, value, schema)?,
            None if is_closed => return Err(format!("there is no argument `{name}`")),
            None => {}
        }
    }
    match tool.backend {
        Backend::Python => {
            let name = tool
                .code_argument()
                .ok_or("the tool has no argument that takes a program")?;
            let code = arguments.get(name).and_then(Value::as_str);
            let code = code.ok_or_else(|| format!("the argument `{name}` should be a string"))?;
            if code.trim().is_empty() {
                return Err(format!("the argument `{name}` is empty"));
            }
            Ok(code)
        }
    }
}

/// Whether a value has the type that its schema names. Only `type` is read: the sandbox checks the
/// rest by running the program.
fn check_type(name: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let Some(expected) = schema.get("type").and_then(Value::as_str) else {
        return Ok(());
    };
    let is_right = match expected {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    };
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "the argument `{name}` should be of type {expected}"
        ))
    }
}

/// The text with `0x...` for the addresses in it, as in `<function f at 0x7f2b5c04e0a0>`: they say
/// nothing, cost a token a digit, and differ when a run is repeated.
pub(crate) fn without_addresses(text: String) -> String {
    const BEFORE: &str = " at 0x";
    if !text.contains(BEFORE) {
        return text;
    }
    let mut pieces = text.split(BEFORE);
    let mut short = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        short.push_str(BEFORE);
        let digits = piece.bytes().take_while(u8::is_ascii_hexdigit).count();
        if (8..=16).contains(&digits) {
            short.push_str("...");
            short.push_str(&piece[digits..]);
        } else {
            short.push_str(piece);
        }
    }
    short
}

/// Whether the program did what it should.
pub(crate) fn is_success(execution: &Execution) -> bool {
    execution.exit == Exit::Code(0) && !execution.is_truncated
}

/// What went wrong, in one line; empty for a success.
pub(crate) fn error_line(execution: &Execution, policy: &SandboxPolicy) -> String {
    if execution.is_truncated {
        return format!("[error] printed more than {} bytes", policy.output_bytes);
    }
    match &execution.exit {
        Exit::Code(0) => String::new(),
        Exit::Code(code) => {
            // The last line of a traceback names the exception; a message of several lines goes on
            // after it, and its lines may be anything, so the last one stands for the whole.
            let last = execution.stderr.lines().rev().map(str::trim);
            match last.into_iter().find(|line| !line.is_empty()) {
                Some(line) => format!("[error] {line}"),
                None => format!("[error] exit code {code}"),
            }
        }
        Exit::TimedOut => format!("[error] timed out after {} ms", policy.wall.as_millis()),
        Exit::OutOfMemory => format!("[error] needed more than {} MiB", policy.memory_mib),
        Exit::Signal(signal) => format!("[error] killed by signal {signal}"),
    }
}

/// The line that tells the policy that its variables are gone, below `error`.
pub(crate) fn with_lost_state(error: &str) -> String {
    const LOST: &str = "[error] the interpreter was restarted: all variables are lost";
    match error {
        "" => LOST.to_owned(),
        error => format!("{error}\n{LOST}"),
    }
}

/// The tool message: the output alone, or a mark where there is none. `error` is empty for a
/// success.
pub(crate) fn render_result(output: &str, error: &str) -> String {
    match (output.trim_end(), error) {
        ("", "") => "[no output]".to_owned(),
        ("", error) => error.to_owned(),
        (output, "") => output.to_owned(),
        (output, error) => format!("{output}\n{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(parameters: Value) -> Tool {
        Tool {
            description: String::new(),
            parameters,
            backend: Backend::Python,
            state: harness::ToolState::default(),
            limits: harness::ToolLimits::default(),
        }
    }

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("object")
    }

    #[test]
    fn arguments_are_checked_against_the_parameters() {
        let tool = tool(
            json!({"type": "object", "required": ["program"], "properties": {
            "program": {"type": "string"}, "seconds": {"type": "integer"}}}),
        );
        let check = |value: Value| program(&tool, &arguments(value)).map(str::to_owned);
        assert_eq!(check(json!({"program": "1"})), Ok("1".into()));
        assert_eq!(check(json!({"program": "1", "more": 2})), Ok("1".into()));
        let error = |value| check(value).expect_err("refused");
        assert_eq!(
            error(json!({"code": "1"})),
            "the argument `program` is missing"
        );
        assert!(error(json!({"program": 1})).contains("type string"));
        assert!(error(json!({"program": "1", "seconds": "2"})).contains("type integer"));
        assert!(error(json!({"program": " "})).contains("empty"));
    }

    #[test]
    fn addresses_are_left_out() {
        let check = |text: &str, short: &str| assert_eq!(without_addresses(text.into()), short);
        check(
            "[<function f at 0x7f2b5c04e0a0>, <A object at 0x55d0c2a1>]",
            "[<function f at 0x...>, <A object at 0x...>]",
        );
        check("look at 0xff, and at 0x", "look at 0xff, and at 0x");
        check("hash 0x7f2b5c04e0a0", "hash 0x7f2b5c04e0a0");
        check("", "");
    }

    #[test]
    fn results_are_the_output_or_say_why_there_is_none() {
        let policy = SandboxPolicy::default();
        let execution = |stdout: &str, stderr: &str, exit| Execution {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit,
            is_truncated: false,
            duration: Duration::ZERO,
        };
        let text = |e: &Execution| render_result(&e.stdout, &error_line(e, &policy));
        assert_eq!(text(&execution("42\n", "warning", Exit::Code(0))), "42");
        assert_eq!(text(&execution("", "", Exit::Code(0))), "[no output]");
        let traceback = "Traceback (most recent call last):\n  x\nNameError: name 'y'\n";
        assert_eq!(
            text(&execution("1\n", traceback, Exit::Code(1))),
            "1\n[error] NameError: name 'y'"
        );
        assert_eq!(
            text(&execution("", "", Exit::TimedOut)),
            "[error] timed out after 5000 ms"
        );
        assert_eq!(
            text(&execution("", "", Exit::Code(3))),
            "[error] exit code 3"
        );
    }
}
