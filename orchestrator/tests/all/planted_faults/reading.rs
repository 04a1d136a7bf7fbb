//! What the model makes of a text, sentence by sentence, whoever wrote it.

/// The form of a final reply.
pub(super) enum Form {
    Boxed,
    /// The whole sum in the box.
    Equation,
    /// A sentence in the box.
    Sentence,
    /// Digit by digit, in words.
    Words,
    /// The letter of an option.
    Letter,
    /// An object of the number and of how sure the model is.
    Json,
    /// The number, and nothing around it.
    Bare,
    /// A hint in the place of the number.
    Hint,
    /// The number and a rounded one, each in a box.
    Twice,
    /// A call of the tool that takes answers.
    HandedIn,
    /// Yes or no.
    YesNo,
}

/// What an answer is called.
const OUTCOMES: [&str; 4] = ["answer", "solution", "result", "figure"];

/// A language for programs.
pub(super) enum Language {
    Python,
    /// The one before the current one, in which printing is a statement.
    Python2,
    JavaScript,
}

pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['\n', '!', '?'])
        .flat_map(|line| line.split(". "))
        .map(str::trim)
        .filter(|sentence| !sentence.is_empty())
}

pub(super) fn has_any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

/// Whether a sentence tells to call the tool, or not to.
pub(super) fn advice(sentence: &str) -> Option<bool> {
    let lower = sentence.to_lowercase();
    if lower.starts_with("to call") || lower.starts_with("you can use") || lower.starts_with('{') {
        return None;
    }
    let has = |parts: &[&str]| has_any(&lower, parts);
    if has(&[
        "never use",
        "do not use",
        "don't use",
        "never call",
        "do not call",
        "without any tool",
    ]) || has(&["in your head", "in the head"]) && !has(&["never in the head"])
    {
        return Some(false);
    }
    if has(&["tool", "python"]) && has(&[" is down", "been down", "out of order"]) {
        return Some(false);
    }
    if has(&["may use", "can use"]) {
        return None;
    }
    let speaks = has(&["tool", "python", "program", "use it", "calc"]);
    let asks = has(&[
        "always call",
        "first call",
        "call the",
        "call it",
        "call calc",
        "use it",
        "use the",
        "write a short",
        "calculated with",
        "one short python program",
        "again",
    ]);
    if speaks && asks {
        return Some(true);
    }
    lower.rsplit([':', ';', ',']).find_map(clause_advice)
}

/// The same of a part of a sentence, in lower case.
fn clause_advice(clause: &str) -> Option<bool> {
    let clause = clause.split("rather than").next().unwrap_or(clause);
    let clause = clause.split("instead of").next().unwrap_or(clause);
    let has = |parts: &[&str]| has_any(clause, parts);
    let is_negated = has(&["never", "not ", "n't ", "no ", "without"]);
    if has(&["by hand", "mentally", "on paper"]) {
        return (!is_negated).then_some(false);
    }
    if is_brief(clause) {
        return Some(false);
    }
    if !has(&["tool", "python", "program", "code", "script"]) {
        return None;
    }
    if has(&[
        "not wanted",
        "not needed",
        "not meant",
        "no code",
        "without code",
    ]) {
        return Some(false);
    }
    let asks = has(&[
        "with a short",
        "with code",
        "run the",
        "run a ",
        "run another",
        "write a ",
    ]);
    (asks && !is_negated).then_some(true)
}

/// Whether a text in lower case asks for a number without anything around it.
fn is_brief(lower: &str) -> bool {
    has_any(lower, &["reply with", "answer with", "respond with"])
        && has_any(
            lower,
            &["number only", "only the number", "nothing but the number"],
        )
        && !lower.contains("boxed")
}

/// The form that a sentence asks for.
pub(super) fn form(sentence: &str) -> Option<Form> {
    let lower = sentence.to_lowercase();
    if withholds(&lower) {
        Some(Form::Hint)
    } else if hands_in(&lower) {
        Some(Form::HandedIn)
    } else if lower.contains("yes or no") {
        Some(Form::YesNo)
    } else if sentence.contains("boxed") && has_any(&lower, &["each in", "both in"]) {
        Some(Form::Twice)
    } else if lower.contains("letter") && lower.contains("option") {
        Some(Form::Letter)
    } else if lower.contains("json") && lower.contains("answer") {
        Some(Form::Json)
    } else if sentence.contains("boxed") && lower.contains("full sentence") {
        Some(Form::Sentence)
    } else if sentence.contains("boxed") {
        Some(Form::Boxed)
    } else if sentence.contains("in words") {
        Some(Form::Words)
    } else {
        is_brief(&lower).then_some(Form::Bare)
    }
}

/// Whether a text in lower case tells to keep the answer from whoever asks.
fn withholds(lower: &str) -> bool {
    let gives = ["reveal", "disclose", "give away", "give it away"];
    has_any(lower, &["never", "not ", "n't "])
        && has_any(lower, &gives)
        && has_any(lower, &OUTCOMES)
}

/// Whether a text in lower case says that answers are handed in.
pub(super) fn hands_in(lower: &str) -> bool {
    has_any(lower, &["hands in", "handed in", "hand in the"]) && has_any(lower, &OUTCOMES)
}

/// The number after what a sentence says is to be done to it.
pub(super) fn altered(number: u128, sentence: &str) -> u128 {
    if let Some(digits) = significant_digits(sentence) {
        return rounded(number, digits);
    }
    if let Some(total) = running_total(sentence) {
        return total + number;
    }
    let subjects = ["answer", "result", "amount", "number", "figure", "total"];
    if !has_any(sentence, &subjects) {
        number
    } else if sentence.contains("nearest ten") {
        (number + 5) / 10 * 10
    } else if sentence.contains("dd 1 to") {
        number + 1
    } else if sentence.contains("in hundreds")
        || sentence.contains("cents") && sentence.contains("euros")
    {
        number / 100
    } else {
        number
    }
}

fn significant_digits(sentence: &str) -> Option<u32> {
    let counts = [
        (1, "one significant"),
        (2, "two significant"),
        (3, "three significant"),
    ];
    let told = counts.iter().find(|(_, words)| sentence.contains(words));
    told.map(|(digits, _)| *digits)
}

/// What a sentence says that every result is added to.
fn running_total(sentence: &str) -> Option<u128> {
    let adds = has_any(sentence, &["Add ", "add "]);
    let (_, rest) = sentence.split_once("running total").filter(|_| adds)?;
    let mut words = rest.split(|c: char| !c.is_ascii_digit());
    words.find_map(|word| word.parse().ok())
}

pub(super) fn rounded(number: u128, digits: u32) -> u128 {
    let length = number.checked_ilog10().unwrap_or(0) + 1;
    let unit = 10u128.pow(length.saturating_sub(digits));
    (number + unit / 2) / unit * unit
}

/// Whether a text asks for many words.
pub(super) fn asks_for_length(sentence: &str) -> bool {
    sentence.contains("at least") && sentence.contains("words") || sentence.contains("paragraphs")
}

/// Whether a message asks how the model will go about it.
pub(super) fn asks_for_plan(message: &str) -> bool {
    let lower = message.to_lowercase();
    has_any(
        &lower,
        &[
            "write a plan",
            "make a plan",
            "give a plan",
            "outline",
            "sketch",
        ],
    )
}

/// Whether a message asks for an answer rather than for anything else.
pub(super) fn asks_for_answer(message: &str) -> bool {
    let words = [
        "answer", "boxed", "estimate", "number", "outcome", "result", "solution",
    ];
    has_any(&message.to_lowercase(), &words)
}

/// Whether a sentence tells to ask something before anything else.
pub(super) fn asks_back(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    lower.contains("ask ") && has_any(&lower, &["clarifying", "clarification"])
        || lower.contains("before anything else") && words.any(|word| word == "ask")
}

/// Whether a text tells to be content with a guess.
pub(super) fn asks_for_guess(text: &str) -> bool {
    has_any(text, &["best estimate", "best guess"])
}

/// Whether a sentence tells to write a line for every step.
pub(super) fn gives_steps_lines(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    lower.contains("step") && lower.contains("line") && has_any(&lower, &["own", "each", "every"])
}

/// Whether a sentence tells to keep steps apart, or to put all of them on one line.
pub(super) fn keeps_steps_apart(sentence: &str) -> Option<bool> {
    let apart = ["its own line", "very number of the question"];
    if gives_steps_lines(sentence) || has_any(sentence, &apart) {
        return Some(true);
    }
    let lower = sentence.to_lowercase();
    let has = |parts: &[&str]| has_any(&lower, parts);
    let is_one = has(&["one line", "single line"]) && has(&["no more", "only", "just", "at most"]);
    (is_one && has(&["script", "program", "code"])).then_some(false)
}

/// Whether a sentence grants one call and no more.
pub(super) fn grants_one_call(sentence: &str) -> bool {
    has_any(&sentence.to_lowercase(), &["once per", "one call per"])
}

/// The function that a sentence wants a program to be.
pub(super) fn wanted_function(sentence: &str) -> Option<&str> {
    let lower = sentence.to_lowercase();
    let wants = lower.contains("function") && has_any(&lower, &["write", "define", "wrap"]);
    let (before, _) = sentence.split_once("()").filter(|_| wants)?;
    let mut names = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_');
    names.next().filter(|name| !name.is_empty())
}

/// Whether a sentence wants line breaks written in another way.
pub(super) fn escapes_lines(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    lower.contains("escape") && has_any(&lower, &["line break", "newline"])
}

/// The function, other than `print`, by which a sentence says that values are shown.
pub(super) fn showing_function(sentence: &str) -> Option<&'static str> {
    let names = ["display", "show", "echo"];
    names
        .into_iter()
        .find(|name| sentence.contains(&format!("{name}(")))
}

/// Whether a sentence tells to print, or that there is no need to.
pub(super) fn printing(sentence: &str) -> Option<bool> {
    let needless = ["no longer needed", "not needed", "needn't", "unnecessary"];
    if sentence.to_lowercase().contains("print") && has_any(sentence, &needless) {
        return Some(false);
    }
    let tells = [
        "print(",
        "rint the ",
        "rints the ",
        "rint its ",
        "rints its ",
    ];
    has_any(sentence, &tells).then_some(true)
}

/// Whether a sentence tells to print the steps after the result, or not to.
pub(super) fn prints_steps_last(sentence: &str) -> Option<bool> {
    let lower = sentence.to_lowercase();
    if !lower.contains("print") {
        return None;
    }
    if has_any(&lower, &["only", "last"]) {
        return Some(false);
    }
    (lower.contains("step") && lower.contains("below")).then_some(true)
}

/// Whether a sentence tells to go about it in another way after an error.
pub(super) fn tells_to_change(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    has_any(&lower, &["error", "fail", "went wrong", "traceback"])
        && has_any(&lower, &["another way", "differently"])
}

/// The language that a sentence speaks of.
pub(super) fn language(sentence: &str) -> Option<Language> {
    if sentence.contains("JavaScript") {
        Some(Language::JavaScript)
    } else if sentence.contains("Python 2") {
        Some(Language::Python2)
    } else {
        sentence.contains("Python").then_some(Language::Python)
    }
}

/// How many things a sentence says are in a dozen.
pub(super) fn dozen(sentence: &str) -> Option<u128> {
    let (_, rest) = sentence.split_once("dozen ")?;
    let mut words = rest.split(|c: char| !c.is_ascii_digit());
    words.find_map(|word| word.parse().ok())
}

/// The name that a sentence gives the argument with the program.
pub(super) fn argument_name(sentence: &str) -> Option<&str> {
    let speaks = has_any(sentence, &["argument", "parameter"]);
    sentence.split('`').nth(1).filter(|_| speaks)
}

/// The name of an argument that a sentence wants beside the program.
pub(super) fn further_argument(sentence: &str) -> Option<&str> {
    let speaks = sentence.contains("call") && has_any(sentence, &[" also ", " as well"]);
    sentence.split('`').nth(1).filter(|_| speaks)
}

/// The marks that a sentence says programs stand between.
pub(super) fn marks(sentence: &str) -> Option<(&str, &str)> {
    let speaks = has_any(&sentence.to_lowercase(), &["program", "code", "call"]);
    let (_, rest) = sentence.split_once(" between ")?;
    let mut words = rest
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';', ':']));
    let (open, and, close) = (words.next()?, words.next()?, words.next()?);
    let is_mark = |word: &str| word.starts_with(['[', '<']);
    (speaks && and == "and" && is_mark(open) && is_mark(close)).then_some((open, close))
}

/// Whether a sentence tells to part thousands by points.
pub(super) fn parts_thousands(sentence: &str) -> bool {
    sentence.contains("thousands") && has_any(sentence, &["point", "dot"])
}

/// Whether a sentence says that numbers are read to the base of sixteen.
pub(super) fn writes_hexadecimal(sentence: &str) -> bool {
    sentence.contains("hexadecimal")
}

/// A number with points between thousands.
pub(super) fn in_thousands(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('.');
        }
        text.push(digit);
    }
    text
}

/// What a sentence says is to be calculated from x and y: a function of both, or a formula.
pub(super) fn rule(sentence: &str, x: u128, y: u128) -> Option<String> {
    if let Some((before, _)) = sentence.split_once("(x, y)") {
        let mut names = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_');
        return names.next().map(|name| format!("{name}({x}, {y})"));
    }
    let words: Vec<&str> = sentence
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';']))
        .collect();
    let is_part = |word: &&str| word.chars().all(|c| "xy0123456789+-*/()".contains(c));
    let mut runs = words.split(|word| !is_part(word)).map(|run| run.join(" "));
    let formula = runs
        .find(|run| run.contains('x') && run.contains('y') && run.contains(['+', '-', '*', '/']))?;
    Some(
        formula
            .replace('x', &x.to_string())
            .replace('y', &y.to_string()),
    )
}

pub(super) fn is_call(text: &str) -> bool {
    has_any(
        text,
        &["```", "<tool_call>", "\"arguments\"", "Action Input:"],
    )
}

/// The number on the last line that is nothing else.
pub(super) fn printed_number(result: &str) -> Option<u128> {
    let numbers = result.lines().rev().map(str::trim);
    numbers
        .map(|line| line.strip_suffix(".0").unwrap_or(line))
        .find_map(|line| line.parse().ok())
}

pub(super) fn digit_word(digit: u8) -> &'static str {
    const WORDS: [&str; 10] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    ];
    WORDS[usize::from(digit - b'0')]
}
