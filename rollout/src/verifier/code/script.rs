//! The script that runs a program on one test.

use serde_json::Value;

use super::cases::TestCase;

/// Runs in the sandbox. See the file for what it does.
const SCRIPT: &str = include_str!("script.py");

/// The script for a test. What the test expects isn't part of it.
pub(super) fn of(program: &str, case: &TestCase) -> String {
    // A JSON string is a Python string literal.
    let literal = |text: &str| Value::from(text).to_string();
    format!(
        "{SCRIPT}\n_test({}, {}, {})\n",
        literal(&case.stdin),
        literal(program),
        literal(&case.code)
    )
}
