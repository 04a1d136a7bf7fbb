//! Tasks: problems with their answers, and how they are read from JSON lines.
//!
//! The answer is for the verifier alone. Nothing else in this crate reads [`Task::answer`].

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::verifier::code::cases;

/// Name of a task, unique among those of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(String);

impl TaskId {
    /// Wraps a name.
    pub fn new(id: impl Into<String>) -> Self {
        TaskId(id.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Hash of a problem's normalised text, 64 hex digits. Splits are disjoint by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// The hash of a problem: letters, digits and signs of arithmetic only, in lower case, so that
    /// spacing, punctuation and markup don't make a new problem of a known one, but `12 - 3` isn't
    /// `1 + 23`.
    pub fn of_problem(problem: &str) -> Self {
        ContentHash(
            blake3::hash(normalise(problem).as_bytes())
                .to_hex()
                .to_string(),
        )
    }

    /// All 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.get(..12).unwrap_or(&self.0))
    }
}

/// One problem and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// The text that the policy sees.
    pub problem: String,
    /// The gold answer, for the verifier only. Of a task that asks for a program, its tests as
    /// [`cases::to_text`] writes them.
    pub answer: String,
}

impl Task {
    /// The hash by which splits are kept apart.
    pub fn content_hash(&self) -> ContentHash {
        ContentHash::of_problem(&self.problem)
    }

    /// What problems are put in order by before they are dealt to splits: a hash of letters and digits
    /// alone, so that the deal stays what it was when texts are told apart more finely; among equals
    /// the [`ContentHash`].
    pub fn deal_order(&self) -> (String, ContentHash) {
        let kept = self.problem.chars().filter(|c| c.is_alphanumeric());
        let plain: String = kept.flat_map(char::to_lowercase).collect();
        let hash = blake3::hash(plain.as_bytes()).to_hex().to_string();
        (hash, self.content_hash())
    }

    /// The texts by which the task is recognised where it mustn't stand: the problem, and what its
    /// tests read and expect.
    pub fn telling_texts(&self) -> Vec<String> {
        /// Characters of a test that others share only by chance, and those that are enough.
        const TELLING: usize = 16;
        const ENOUGH: usize = 4096;
        let mut texts = vec![self.problem.clone()];
        for case in cases::from_text(&self.answer).unwrap_or_default() {
            let parts = [case.stdin, case.code, case.stdout];
            let parts = parts
                .iter()
                .filter(|part| part.trim().chars().count() >= TELLING);
            texts.extend(parts.map(|part| part.chars().take(ENOUGH).collect()));
        }
        texts
    }
}

/// What a task may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Critic and trainer see it.
    Evolve,
    /// Only the gate uses it.
    Gate,
    /// Scored for reports only.
    Test,
}

/// Names of the columns of a task file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// Column of the id. A line without it is named after its content hash.
    pub id: String,
    /// Column of the problem text. Where the default is absent, `question` is taken.
    pub problem: String,
    /// Column of the answer: text or a number. Of a text with `####`, as GSM8K has it, only what
    /// follows the last of these marks. Tests of a program stand here as [`cases`] describes; where
    /// the default is absent, `tests` is taken.
    pub answer: String,
}

impl Default for Columns {
    fn default() -> Self {
        Columns {
            id: "id".into(),
            problem: "problem".into(),
            answer: "answer".into(),
        }
    }
}

/// Why a task file was refused. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A line can't be read as JSON.
    #[error("{source_name}:{line}:{column}: can't be read as JSON: {reason}")]
    Json {
        /// The file.
        source_name: String,
        /// The line.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A line is JSON, but no object.
    #[error("{source_name}:{line}: expected a JSON object")]
    NoObject {
        /// The file.
        source_name: String,
        /// The line.
        line: usize,
    },
    /// A field is absent, or not what it should be.
    #[error("{source_name}:{line}: field `{field}` {reason}")]
    Field {
        /// The file.
        source_name: String,
        /// The line.
        line: usize,
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two lines have the same id.
    #[error("{source_name}:{line}: id {id} was used in line {first_line} already")]
    DuplicateId {
        /// The file.
        source_name: String,
        /// The later line.
        line: usize,
        /// The id.
        id: TaskId,
        /// The earlier line.
        first_line: usize,
    },
    /// Two lines without an id have the same problem.
    #[error("{source_name}:{line}: the problem stands in line {first_line} already")]
    DuplicateProblem {
        /// The file.
        source_name: String,
        /// The later line.
        line: usize,
        /// The earlier line.
        first_line: usize,
    },
}

/// Reads tasks from JSON lines. Blank lines and further columns are skipped. `source_name` stands
/// in errors.
///
/// # Errors
/// The first line that isn't a task, and an id or, without ids, a problem that occurs twice.
pub fn load_tasks(
    text: &str,
    source_name: &str,
    columns: &Columns,
) -> Result<Vec<Task>, TaskError> {
    let tasks = load_tasks_by_line(text, source_name, columns)?;
    Ok(tasks.into_iter().map(|(_, task)| task).collect())
}

/// The same, each with the line that it stands in, counted from 1.
///
/// # Errors
/// As [`load_tasks`].
pub fn load_tasks_by_line(
    text: &str,
    source_name: &str,
    columns: &Columns,
) -> Result<Vec<(usize, Task)>, TaskError> {
    let mut tasks = Vec::new();
    let mut lines: HashMap<TaskId, usize> = HashMap::new();
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        let value = harness::json::parse_line(content).map_err(|error| TaskError::Json {
            source_name: source_name.to_owned(),
            line,
            column: error.column,
            reason: error.reason,
        })?;
        let fields = match value {
            None => continue,
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                return Err(TaskError::NoObject {
                    source_name: source_name.to_owned(),
                    line,
                });
            }
        };
        let task = read(&fields, columns).map_err(|(field, reason)| TaskError::Field {
            source_name: source_name.to_owned(),
            line,
            field,
            reason,
        })?;
        if let Some(first_line) = lines.insert(task.id.clone(), line) {
            let source_name = source_name.to_owned();
            // An id that nobody wrote says nothing.
            return Err(if fields.contains_key(&columns.id) {
                TaskError::DuplicateId {
                    source_name,
                    line,
                    id: task.id,
                    first_line,
                }
            } else {
                TaskError::DuplicateProblem {
                    source_name,
                    line,
                    first_line,
                }
            });
        }
        tasks.push((line, task));
    }
    Ok(tasks)
}

/// One line; the error is the field with what is wrong.
fn read(fields: &Map<String, Value>, columns: &Columns) -> Result<Task, (String, String)> {
    let fail = |field: &str, reason: &str| Err((field.to_owned(), reason.to_owned()));
    let present = |named: &str, default: &str, other: &'static str| -> String {
        let is_other =
            named == default && !fields.contains_key(default) && fields.contains_key(other);
        if is_other {
            other.to_owned()
        } else {
            named.to_owned()
        }
    };
    let problem_field = &present(&columns.problem, "problem", "question");
    let answer_field = &present(&columns.answer, "answer", "tests");
    let problem = match fields.get(problem_field) {
        Some(Value::String(problem)) => problem.trim(),
        Some(_) => return fail(problem_field, "should be text"),
        None => return fail(problem_field, "is missing"),
    };
    if normalise(problem).is_empty() {
        return fail(problem_field, "has no letter or digit");
    }
    let answer = match fields.get(answer_field) {
        Some(value) => gold(value).map_err(|reason| (answer_field.clone(), reason))?,
        None => return fail(answer_field, "is missing"),
    };
    if answer.is_empty() {
        return fail(answer_field, "is empty");
    }
    let id = match fields.get(&columns.id) {
        Some(value) => scalar(value).map_err(|reason| (columns.id.clone(), reason))?,
        None => format!("task-{}", ContentHash::of_problem(problem)),
    };
    if id.trim().is_empty() {
        return fail(&columns.id, "is empty");
    }
    Ok(Task {
        id: TaskId(id.trim().to_owned()),
        problem: problem.to_owned(),
        answer,
    })
}

/// The gold answer that a field gives.
fn gold(value: &Value) -> Result<String, String> {
    if matches!(value, Value::Array(_) | Value::Object(_)) {
        return cases::from_value(value).map(|cases| cases::to_text(&cases));
    }
    let text = scalar(value)?;
    // Some sets keep lists as text.
    if text.trim_start().starts_with(['[', '{'])
        && let Ok(cases) = cases::from_text(&text)
    {
        return Ok(cases::to_text(&cases));
    }
    Ok(match text.rsplit_once("####") {
        Some((_, last)) => without_separators(last.trim()),
        None => text.trim().to_owned(),
    })
}

fn scalar(value: &Value) -> Result<String, String> {
    /// Largest integer that every double up to it represents exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::String(text) => Ok(text.clone()),
        // A longer number has been rounded by the JSON reader, unnoticed.
        Value::Number(number)
            if number.is_f64() && number.as_f64().is_none_or(|v| v.abs() >= EXACT) =>
        {
            Err("is a number too long to be read exactly; write it as text".into())
        }
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("should be text or a number".into()),
    }
}

/// Drops commas between digits.
fn without_separators(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let is_digit = |index: usize| characters.get(index).is_some_and(char::is_ascii_digit);
    let is_separator = |index: usize| {
        characters[index] == ',' && index > 0 && is_digit(index - 1) && is_digit(index + 1)
    };
    let kept = (0..characters.len()).filter(|index| !is_separator(*index));
    kept.map(|index| characters[index]).collect()
}

/// Letters and digits in lower case, and of all else what makes another problem: signs between
/// operands and before numbers, per cent, decimal points, and where one number ends and the next begins.
fn normalise(problem: &str) -> String {
    let text: Vec<char> = problem.chars().collect();
    let digit = |at: Option<usize>| at.is_some_and(|at| text[at].is_ascii_digit());
    let mut kept = String::new();
    // Whether something other than a thousands' comma came since the last digit.
    let mut is_apart = false;
    for (at, &c) in text.iter().enumerate() {
        let next = (at + 1 < text.len()).then_some(at + 1);
        let is_between_digits = digit(at.checked_sub(1)) && digit(next);
        if c.is_alphanumeric() {
            if is_apart && c.is_ascii_digit() && kept.ends_with(|c: char| c.is_ascii_digit()) {
                kept.push(' ');
            }
            kept.extend(c.to_lowercase());
            is_apart = false;
        } else if c == '.' && is_between_digits {
            kept.push(c);
        } else if c == '%' && digit(at.checked_sub(1)) || is_sign(&text, at) {
            kept.push(if c == '\u{2212}' { '-' } else { c });
        } else if !(c == ',' && is_between_digits && is_thousand(&text[at + 1..])) {
            is_apart = true;
        }
    }
    kept
}

/// Whether three digits and no more come next.
fn is_thousand(rest: &[char]) -> bool {
    rest.iter().take_while(|c| c.is_ascii_digit()).count() == 3
}

/// Whether a character of a problem stands between operands (numbers, brackets, words of one letter), or
/// makes a number negative. Hyphens, bullets, markup and `and/or` don't.
pub fn is_sign(text: &[char], at: usize) -> bool {
    if !"+-\u{2212}*\u{d7}\u{b7}/\u{f7}^<>=\u{2264}\u{2265}\u{2260}".contains(text[at]) {
        return false;
    }
    let is_word = |at: usize| text.get(at).is_some_and(|c| c.is_alphabetic());
    let is_single = |at: usize| !is_word(at + 1) && !at.checked_sub(1).is_some_and(is_word);
    let is_operand = |found: Option<usize>, brackets: &str| {
        found.is_some_and(|at| {
            let c = text[at];
            c.is_ascii_digit() || brackets.contains(c) || is_word(at) && is_single(at)
        })
    };
    // A sign may be written twice: `2 ** 3`.
    let is_passed = |other: &usize| text[*other].is_whitespace() || text[*other] == text[at];
    let before = (0..at).rev().find(|at| !is_passed(at));
    let after = (at + 1..text.len()).find(|at| !is_passed(at));
    let is_negative =
        "-\u{2212}".contains(text[at]) && is_operand((at + 1 < text.len()).then_some(at + 1), "(");
    is_operand(after, "([{|\\-\u{2212}") && is_operand(before, ")]}|%")
        || is_negative && !at.checked_sub(1).is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Vec<Task>, TaskError> {
        load_tasks(text, "tasks.jsonl", &Columns::default())
    }

    #[test]
    fn the_usual_shapes_are_read() {
        let text = r#"{"id": "a", "problem": "1+1?", "answer": "2", "source": "x"}

{"id": 7, "problem": "2+2?", "answer": 4}
{"question": "How many?", "answer": "1,000 + 234 = 1,234\n#### 1,234"}
{"id": "h", "problem": "half", "answer": 0.5}"#;
        let tasks = load(text).expect("tasks");
        let answers: Vec<&str> = tasks.iter().map(|t| t.answer.as_str()).collect();
        assert_eq!(answers, ["2", "4", "1234", "0.5"]);
        assert_eq!(tasks[1].id.as_str(), "7");
        assert!(tasks[2].id.as_str().starts_with("task-"));
    }

    #[test]
    fn tests_of_a_program_are_an_answer() {
        let text = r#####"{"id": "a", "problem": "Add.", "tests": [{"stdin": "1 2", "stdout": "3"}]}
{"id": "b", "problem": "Sub.", "answer": "[{\"input\": \"#### 1\", \"output\": \"2\"}]"}
{"id": "c", "problem": "A set.", "answer": "[1, 2]"}"#####;
        let tasks = load(text).expect("tasks");
        assert_eq!(tasks[0].answer, r#"[{"stdin":"1 2","stdout":"3"}]"#);
        assert_eq!(
            tasks[1].answer,
            r#####"[{"stdin":"#### 1","stdout":"2"}]"#####
        );
        assert_eq!(tasks[2].answer, "[1, 2]");
        assert_eq!(tasks[0].telling_texts(), ["Add."]);
        let long = r#"{"problem": "Sort.", "tests": [{"stdin": "31 47 12 99 58 20", "stdout": "12 20 31 47 58 99"}]}"#;
        assert_eq!(
            load(long).expect("a task")[0].telling_texts(),
            ["Sort.", "31 47 12 99 58 20", "12 20 31 47 58 99"]
        );
        assert_eq!(tasks[2].telling_texts(), ["A set."]);
        let named = Columns {
            answer: "cases".into(),
            ..Columns::default()
        };
        let line = r#"{"problem": "p", "cases": [{"stdout": "1"}, {"stdin": "x"}]}"#;
        assert_eq!(
            load_tasks(line, "t", &named)
                .expect_err("refused")
                .to_string(),
            "t:1: field `cases` test 2: stdout is missing"
        );
    }

    #[test]
    fn errors_name_line_and_field() {
        let error = |text: &str| load(text).expect_err("refused").to_string();
        let good = r#"{"id": "a", "problem": "1+1?", "answer": "2"}"#;
        assert_eq!(
            error(&format!("{good}\n{{\"id\": \"b\", \"problem\": \"x\"}}")),
            "tasks.jsonl:2: field `answer` is missing"
        );
        assert_eq!(
            error(r#"{"problem": 3, "answer": "2"}"#),
            "tasks.jsonl:1: field `problem` should be text"
        );
        assert_eq!(
            error(r#"{"problem": "p", "answer": 12345678901234567890123}"#),
            "tasks.jsonl:1: field `answer` is a number too long to be read exactly; write it as text"
        );
        assert_eq!(error("\n[1]"), "tasks.jsonl:2: expected a JSON object");
        assert_eq!(
            error(&format!("{good}\n\n{{id: 1}}")),
            "tasks.jsonl:3:2: can't be read as JSON: key must be a string"
        );
        let twice = error(r#"{"problem": "p", "problem": "q", "answer": "1"}"#);
        assert!(twice.starts_with("tasks.jsonl:1:"), "{twice}");
        assert!(
            twice.ends_with(": can't be read as JSON: key \"problem\" occurs twice"),
            "{twice}"
        );
        assert_eq!(
            error(&format!("{good}\n\n{good}")),
            "tasks.jsonl:3: id a was used in line 1 already"
        );
        let nameless = r#"{"problem": "1+1?", "answer": "2"}"#;
        assert_eq!(
            error(&format!("{nameless}\n{nameless}")),
            "tasks.jsonl:2: the problem stands in line 1 already"
        );
        assert!(error(r#"{"problem": "p", "answer": "text #### "}"#).ends_with("is empty"));
    }

    #[test]
    fn the_hash_ignores_spacing_punctuation_and_markup() {
        let hash = ContentHash::of_problem;
        for (one, other) in [
            ("Ann has 3 red\nballs.", "ann  has $3$ RED balls"),
            ("It costs 1,234 a year.", "It costs 1234 a year"),
            ("Add **3** and 4!", "Add 3 and 4"),
            (
                "- A two-step problem and/or none",
                "A two step problem, and or none",
            ),
            ("7 \u{2212} 2", "7-2"),
        ] {
            assert_eq!(hash(one), hash(other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn another_sign_or_number_is_another_problem() {
        let texts = [
            "Compute 12 + 3",
            "Compute 12 - 3",
            "Compute 1 + 23",
            "Compute 12 / 3",
            "Compute 12 * 3",
            "Compute 12 ** 3",
            "Compute 12.3",
            "Compute 123",
            "Compute 12, 3",
            "Compute -123",
            "Compute 123%",
            "Where is x > 3?",
            "Where is x < 3?",
            "Where is x = -3?",
            "Where is -x = 3?",
            "Where is (x + 1)/(x - 1)?",
            "Where is (x - 1)/(x + 1)?",
        ];
        let hashes: std::collections::BTreeSet<String> = texts
            .iter()
            .map(|text| ContentHash::of_problem(text).to_string())
            .collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
