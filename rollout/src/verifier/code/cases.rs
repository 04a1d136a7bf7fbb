//! Tests of a program: what it reads and what it has to print.
//!
//! Data sets write them in several ways, all of which are read here: a list of objects with `stdin`
//! and `stdout`, or `input` and `output` (LiveCodeBench), an object with the lists `inputs` and
//! `outputs` (APPS, CodeContests), and each of these as text that is JSON.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestCase {
    /// What the program reads from its standard input.
    #[serde(default)]
    pub stdin: String,
    /// Python that runs after the program and prints what counts, such as `print(add(1, 2))`. Where
    /// there is some, what the program itself prints doesn't count.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// What has to be printed. It never enters the sandbox.
    pub stdout: String,
}

/// Reads tests; the error says what is wrong and where.
///
/// # Errors
/// When there is no test, or one can't be read.
pub fn from_value(value: &Value) -> Result<Vec<TestCase>, String> {
    let cases = match value {
        Value::Array(items) => {
            let numbered = items.iter().enumerate();
            let read = |(index, item)| {
                test(item).map_err(|reason| format!("test {}: {reason}", index + 1))
            };
            numbered.map(read).collect::<Result<Vec<_>, _>>()?
        }
        Value::Object(lists) => paired(lists)?,
        _ => return Err("should be a list of tests".into()),
    };
    if cases.is_empty() {
        return Err("has no test".into());
    }
    Ok(cases)
}

/// Reads tests from text that is JSON.
///
/// # Errors
/// As [`from_value`], and for text that isn't JSON.
pub fn from_text(text: &str) -> Result<Vec<TestCase>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    from_value(&value)
}

/// Tests as text that [`from_text`] reads: the gold answer of a task.
pub fn to_text(cases: &[TestCase]) -> String {
    // Strings only: there is nothing that couldn't be written.
    serde_json::to_string(cases).unwrap_or_default()
}

fn test(item: &Value) -> Result<TestCase, String> {
    let Value::Object(fields) = item else {
        return Err("should be an object with stdin and stdout".into());
    };
    let mut case = TestCase::default();
    let mut is_expected = false;
    for (name, value) in fields {
        match name.as_str() {
            "stdin" | "input" => case.stdin = lines(name, value)?,
            "code" => case.code = lines(name, value)?,
            "stdout" | "output" => {
                case.stdout = lines(name, value)?;
                is_expected = true;
            }
            "testtype" if value == "stdin" => {}
            "testtype" => {
                return Err(format!(
                    "testtype {value} isn't known, only \"stdin\"; write a call as code that prints its result"
                ));
            }
            other => {
                return Err(format!(
                    "there is no field {other}, only stdin, stdout and code"
                ));
            }
        }
    }
    if is_expected {
        Ok(case)
    } else {
        Err("stdout is missing".into())
    }
}

/// Tests as two lists of the same length.
fn paired(lists: &Map<String, Value>) -> Result<Vec<TestCase>, String> {
    if let Some(other) = lists
        .keys()
        .find(|name| !matches!(name.as_str(), "inputs" | "outputs"))
    {
        return Err(format!(
            "there is no field {other}, only inputs and outputs"
        ));
    }
    let list = |name: &str| match lists.get(name) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(format!("{name} should be a list")),
    };
    let (inputs, outputs) = (list("inputs")?, list("outputs")?);
    if inputs.len() != outputs.len() {
        return Err(format!(
            "there are {} inputs and {} outputs",
            inputs.len(),
            outputs.len()
        ));
    }
    let pairs = inputs.iter().zip(outputs);
    pairs
        .map(|(input, output)| {
            Ok(TestCase {
                stdin: lines("inputs", input)?,
                code: String::new(),
                stdout: lines("outputs", output)?,
            })
        })
        .collect()
}

/// A text, or a list of its lines.
fn lines(name: &str, value: &Value) -> Result<String, String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let read = match value {
        Value::Array(items) => items
            .iter()
            .map(text)
            .collect::<Option<Vec<_>>>()
            .map(|lines| lines.join("\n")),
        value => text(value),
    };
    read.ok_or_else(|| format!("{name} should be text, or a list of lines"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(stdin: &str, code: &str, stdout: &str) -> TestCase {
        TestCase {
            stdin: stdin.into(),
            code: code.into(),
            stdout: stdout.into(),
        }
    }

    #[test]
    fn the_usual_shapes_are_read() {
        let two = vec![case("1\n2", "", "3"), case("", "", "x")];
        for value in [
            json!([{"stdin": "1\n2", "stdout": "3"}, {"stdout": "x"}]),
            json!([{"input": "1\n2", "output": "3", "testtype": "stdin"}, {"input": "", "output": "x"}]),
            json!({"inputs": ["1\n2", ""], "outputs": ["3", ["x"]]}),
            json!({"inputs": [["1", "2"], ""], "outputs": ["3", "x"]}),
        ] {
            assert_eq!(from_value(&value).as_ref(), Ok(&two), "{value}");
            assert_eq!(from_text(&value.to_string()).as_ref(), Ok(&two));
        }
        assert_eq!(from_text(&to_text(&two)), Ok(two));
        let call = json!([{"code": "print(add(1, 2))", "stdout": "3"}]);
        assert_eq!(
            from_value(&call),
            Ok(vec![case("", "print(add(1, 2))", "3")])
        );
    }

    #[test]
    fn what_is_no_test_is_refused_with_its_place() {
        let error = |value: Value| from_value(&value).expect_err("refused");
        assert_eq!(error(json!([])), "has no test");
        assert_eq!(error(json!({"inputs": [], "outputs": []})), "has no test");
        assert_eq!(error(json!("x")), "should be a list of tests");
        assert_eq!(
            error(json!([{"stdout": "1"}, {"stdin": "1"}])),
            "test 2: stdout is missing"
        );
        assert_eq!(
            error(json!([{"stdout": "1", "stdn": "1"}])),
            "test 1: there is no field stdn, only stdin, stdout and code"
        );
        assert_eq!(
            error(json!(["assert add(1, 2) == 3"])),
            "test 1: should be an object with stdin and stdout"
        );
        assert!(error(json!([{"stdout": 3}])).contains("stdout should be text"));
        assert!(
            error(json!([{"input": "", "output": "", "testtype": "functional"}])).contains("code")
        );
        assert!(error(json!({"inputs": ["1"], "outputs": []})).contains("1 inputs and 0 outputs"));
        assert!(error(json!({"inputs": [], "outputs": [], "fn_name": "f"})).contains("fn_name"));
        assert!(
            from_text("42").is_err() && from_text("[1, 2]").is_err() && from_text("x").is_err()
        );
    }
}
