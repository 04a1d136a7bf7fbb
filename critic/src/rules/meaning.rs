//! What a sentence of a harness tells the model to do, as far as plain words show it.
//!
//! Each of these is asked about a sentence that the model was told before it did just that, and what
//! follows is the suggestion to take the sentence out. So a good sentence that only resembles a bad one
//! must not be taken for it: "never in your head", "not more than twice", "one number".

mod notation;
mod printing;

use harness::Harness;

pub(super) use notation::{
    converts, has_program_behind, is_parted, marks, names_older_version, parts_digits,
};
pub(super) use printing::{asks_to_print_more, forbids_print};

use super::view::{has_word, is_near, numbers, word_places};

/// Words for what runs programs, beside the tools' own names.
const TOOL_WORDS: [&str; 6] = ["tool", "tools", "program", "programs", "python", "code"];

/// Words that turn what follows around.
const NEGATIONS: [&str; 10] = [
    "never", "not", "don't", "no", "cannot", "can't", "without", "avoid", "instead", "rather",
];

/// Words and marks of a text in lower case; a mark is a token of its own.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut is_open = false;
    for c in text.to_lowercase().chars() {
        let is_part = c.is_alphanumeric() || matches!(c, '_' | '\'' | '’');
        let c = if c == '’' { '\'' } else { c };
        match tokens.last_mut() {
            Some(token) if is_part && is_open => token.push(c),
            _ if !c.is_whitespace() => tokens.push(c.to_string()),
            _ => {}
        }
        is_open = is_part;
    }
    tokens
}

/// Whether a sentence speaks against calling a tool. One that says how often to call it, or what kind
/// of program to write, doesn't.
pub(super) fn forbids_tool(harness: &Harness, sentence: &str) -> bool {
    /// A limit on calls, or a condition.
    const LIMITS: [&str; 8] = [
        "again", "twice", "once", "until", "before", "after", "unless", "if",
    ];
    let tokens = tokens(sentence);
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    if is_alone(&tokens) {
        return true;
    }
    let is_limited = tokens.iter().any(|token| LIMITS.contains(token))
        || tokens.windows(2).any(|pair| pair == ["more", "than"]);
    if is_limited {
        return false;
    }
    let names: Vec<String> = harness
        .tools
        .keys()
        .map(|name| name.as_str().to_lowercase())
        .collect();
    let is_tool = |token: &str| TOOL_WORDS.contains(&token) || names.iter().any(|n| n == token);
    let calculates = |token: &&str| token.starts_with("calculat") || token.starts_with("comput");
    // A tool's own description says "it".
    let is_it = |token: &str| token == "it" && tokens.iter().any(calculates);
    let is_not_for = tokens
        .windows(3)
        .any(|words| words[..2] == ["not", "for"] && words[2].starts_with("calculat"));
    // "Comments in the code" are no code.
    let is_about_tool = (0..tokens.len()).any(|at| {
        let mut before = tokens[..at].iter().rev();
        let lead = before.find(|token| !matches!(**token, "the" | "a" | "any" | "your"));
        let is_part = lead.is_some_and(|word| matches!(*word, "in" | "of" | "with" | "inside"));
        is_tool(tokens[at]) && !is_part
    });
    if is_about_tool && (is_not_for || is_unfit(&tokens)) {
        return true;
    }
    (0..tokens.len()).any(|at| {
        refused(&tokens, at).is_some_and(|object| {
            let rest = &tokens[object..];
            let length = rest.iter().take_while(|token| is_tool(token)).count();
            let length = length.max(usize::from(rest.first().is_some_and(|token| is_it(token))));
            length > 0 && ends_phrase(rest.get(length).copied())
        })
    })
}

/// Whether something is said not to be there, or not to be good for this.
fn is_unfit(tokens: &[&str]) -> bool {
    const UNFIT: [&str; 16] = [
        "unavailable",
        "offline",
        "broken",
        "disabled",
        "unreliable",
        "forbidden",
        "prohibited",
        "banned",
        "unnecessary",
        "overkill",
        "superfluous",
        "discouraged",
        "needless",
        "untrusted",
        "unwelcome",
        "unwanted",
    ];
    const NOT: [&str; 20] = [
        "meant",
        "intended",
        "needed",
        "wanted",
        "necessary",
        "required",
        "allowed",
        "available",
        "suitable",
        "suited",
        "permitted",
        "worth",
        "trusted",
        "reliable",
        "designed",
        "made",
        "supposed",
        "useful",
        "welcome",
        "working",
    ];
    let is_denied = |at: usize| {
        let before = &tokens[at.saturating_sub(2)..at];
        before
            .iter()
            .any(|token| *token == "not" || token.ends_with("n't"))
    };
    (0..tokens.len())
        .any(|at| UNFIT.contains(&tokens[at]) || NOT.contains(&tokens[at]) && is_denied(at))
}

/// Whether a sentence asks for a number and nothing else, or at once.
pub(super) fn asks_for_bare_answer(sentence: &str) -> bool {
    const VERBS: [&str; 9] = [
        "reply", "answer", "respond", "return", "write", "give", "say", "output", "send",
    ];
    const BARE: [&str; 8] = [
        "only",
        "just",
        "nothing",
        "immediately",
        "directly",
        "straight",
        "once",
        "solely",
    ];
    let tokens = tokens(sentence);
    let has = |words: &[&str]| tokens.iter().any(|token| words.contains(&token.as_str()));
    let is_of_tool = has(&TOOL_WORDS) || has(&["after", "when", "until", "if", "has"]);
    has(&VERBS) && has(&BARE) && !is_of_tool && !has(&NEGATIONS)
}

/// Whether a message speaks of calling a tool.
pub(super) fn speaks_of_tool(harness: &Harness, text: &str) -> bool {
    let mut names = harness
        .tools
        .keys()
        .map(|name| name.as_str().to_lowercase());
    let tokens = tokens(text);
    let is_said = |word: &str| tokens.iter().any(|token| token == word);
    TOOL_WORDS.iter().any(|word| is_said(word)) || names.any(|name| is_said(&name))
}

/// Whether the model is told to calculate by itself.
fn is_alone(tokens: &[&str]) -> bool {
    const ALONE: [&[&str]; 4] = [
        &["in", "your", "head"],
        &["in", "the", "head"],
        &["by", "hand"],
        &["mentally"],
    ];
    (0..tokens.len()).any(|at| {
        let is_said = ALONE.iter().any(|words| tokens[at..].starts_with(words));
        is_said && !tokens[..at].iter().any(|token| NEGATIONS.contains(token))
    })
}

/// Where the object of a refusal that begins at `at` stands: `do not use the … `, `without any …`.
fn refused(tokens: &[&str], at: usize) -> Option<usize> {
    const VERBS: [&str; 11] = [
        "use", "using", "call", "calling", "run", "running", "write", "writing", "invoke", "rely",
        "relying",
    ];
    const LEADS: [&str; 11] = [
        "any", "the", "a", "an", "this", "that", "these", "those", "your", "on", "to",
    ];
    let modal = |word: &str| matches!(word, "do" | "must" | "should" | "may" | "can" | "shall");
    let (mut next, needs_verb) = match tokens[at] {
        "never" | "don't" | "cannot" | "can't" => (at + 1, true),
        "not" if at > 0 && modal(tokens[at - 1]) => (at + 1, true),
        "avoid" | "without" | "no" => (at + 1, false),
        _ => return None,
    };
    // Turned around twice: "never answer without calling the tool".
    if !needs_verb && tokens[..at].iter().any(|token| NEGATIONS.contains(token)) {
        return None;
    }
    if tokens.get(next).is_some_and(|token| VERBS.contains(token)) {
        next += 1;
    } else if needs_verb {
        return None;
    }
    while tokens.get(next).is_some_and(|token| LEADS.contains(token)) {
        next += 1;
    }
    Some(next)
}

/// Whether what stands before `next` is a thing by itself, and not what kind of thing follows, as in
/// "python packages", or which one, as in "a program that reads input".
fn ends_phrase(next: Option<&str>) -> bool {
    const AFTER: [&str; 22] = [
        "for", "to", "in", "on", "at", "when", "here", "now", "and", "or", "as", "like", "such",
        "please", "yourself", "directly", "instead", "because", "since", "even", "ever", "while",
    ];
    next.is_none_or(|token| AFTER.contains(&token) || !token.contains(char::is_alphanumeric))
}

/// Amounts that a sentence may say are to be done to a number.
#[derive(PartialEq)]
pub(super) struct Amounts {
    amount: Option<f64>,
    is_rounding: bool,
}

impl Amounts {
    pub(super) const NONE: Amounts = Amounts {
        amount: None,
        is_rounding: false,
    };

    pub(super) const fn exactly(amount: f64) -> Self {
        Amounts {
            amount: Some(amount),
            is_rounding: false,
        }
    }

    pub(super) const fn rounding(unit: f64) -> Self {
        Amounts {
            amount: Some(unit),
            is_rounding: true,
        }
    }

    /// How much of it a sentence says.
    pub(super) fn weight(&self, sentence: &str) -> u32 {
        const ROUGH: [&str; 8] = [
            "round",
            "nearest",
            "significant",
            "approximat",
            "rough",
            "whole",
            "digits",
            "decimal",
        ];
        let amounts = amounts(sentence);
        let is_said = |wanted: f64| amounts.iter().any(|amount| is_near(*amount, wanted));
        let lower = sentence.to_lowercase();
        let is_rough = self.is_rounding && ROUGH.iter().any(|word| lower.contains(word));
        let is_converted = |wanted: f64| !self.is_rounding && converts(sentence, wanted);
        let is_meant = |wanted: f64| is_said(wanted) || is_converted(wanted);
        u32::from(self.amount.is_some_and(is_meant)) * 4 + u32::from(is_rough) * 4
    }
}

/// The amounts that a sentence has in digits or in words.
fn amounts(sentence: &str) -> Vec<f64> {
    let lower = sentence.to_lowercase();
    let mut amounts = numbers(sentence);
    amounts.extend(
        NUMBER_WORDS
            .iter()
            .filter(|(word, _)| has_word(&lower, word))
            .map(|(_, number)| *number),
    );
    amounts
}

/// Whether a sentence may be about how to give the answer.
pub(super) fn is_about_answer(sentence: &str) -> bool {
    const ABOUT: [&str; 31] = [
        "answer",
        "answers",
        "result",
        "results",
        "output",
        "amount",
        "amounts",
        "number",
        "numbers",
        "figure",
        "figures",
        "value",
        "values",
        "total",
        "totals",
        "outcome",
        "outcomes",
        "sum",
        "sums",
        "quantity",
        "quantities",
        "solution",
        "solutions",
        "boxed",
        "reply",
        "report",
        "state",
        "finish",
        "quote",
        "printed",
        "prints",
    ];
    let lower = sentence.to_lowercase();
    ABOUT.iter().any(|word| has_word(&lower, word))
}

/// Whether a sentence names a form that isn't a plain number.
pub(super) fn names_other_form(sentence: &str) -> bool {
    const FORMS: [&str; 34] = [
        "letter",
        "letters",
        "option",
        "options",
        "choice",
        "choices",
        "word",
        "words",
        "spelled",
        "roman",
        "numerals",
        "binary",
        "hexadecimal",
        "json",
        "yaml",
        "xml",
        "table",
        "sentence",
        "sentences",
        "yes",
        "category",
        "label",
        "interval",
        "percent",
        "confidence",
        "symbols",
        "unit",
        "units",
        "equation",
        "formula",
        "currency",
        "noun",
        "estimate",
        "rhyme",
    ];
    let lower = sentence.to_lowercase();
    let tokens = tokens(sentence);
    // "A number without units", or a program that is written.
    let is_other = tokens
        .iter()
        .any(|token| NEGATIONS.contains(&token.as_str()) || TOOL_WORDS.contains(&token.as_str()));
    !is_other && FORMS.iter().any(|word| has_word(&lower, word))
}

/// Whether a sentence says how something is calculated.
pub(super) fn calculates(sentence: &str) -> bool {
    const WORDS: [&str; 18] = [
        "multiply",
        "multiplied",
        "divide",
        "divided",
        "add",
        "added",
        "subtract",
        "minus",
        "plus",
        "times",
        "product",
        "sum",
        "difference",
        "quotient",
        "half",
        "double",
        "is",
        "are",
    ];
    let lower = sentence.to_lowercase();
    let has_sign = lower.contains(['+', '*', '/', '=', '×', '÷']);
    has_sign || !numbers(&lower).is_empty() || WORDS.iter().any(|word| has_word(&lower, word))
}

/// Whether a sentence speaks of a language other than Python.
pub(super) fn names_other_language(sentence: &str) -> bool {
    const LANGUAGES: [&str; 30] = [
        "javascript",
        "js",
        "typescript",
        "java",
        "ruby",
        "perl",
        "php",
        "rust",
        "golang",
        "julia",
        "matlab",
        "octave",
        "haskell",
        "pascal",
        "fortran",
        "cobol",
        "basic",
        "lua",
        "kotlin",
        "swift",
        "scala",
        "bash",
        "shell",
        "sql",
        "mathematica",
        "wolfram",
        "lisp",
        "c++",
        "c#",
        "pseudocode",
    ];
    let lower = sentence.to_lowercase();
    // In capitals or after a preposition, one letter is a language too.
    let is_letter = ["in C", "in R", "using R", "using C"]
        .iter()
        .any(|words| has_word(sentence, words));
    is_letter || LANGUAGES.iter().any(|word| has_word(&lower, word))
}

/// Whether a sentence gives `name` as that of an argument.
pub(super) fn names_argument(sentence: &str, name: &str) -> bool {
    const ABOUT: [&str; 8] = [
        "argument",
        "arguments",
        "parameter",
        "parameters",
        "field",
        "key",
        "takes",
        "called",
    ];
    let is_marked = ['`', '"', '\''].iter().any(|mark| {
        let marked = format!("{mark}{name}{mark}");
        sentence.contains(&marked)
    });
    let lower = sentence.to_lowercase();
    let is_about = ABOUT.iter().any(|word| has_word(&lower, word));
    has_word(sentence, name) && (is_marked || is_about)
}

/// Whether `sentence` tells to turn `printed` into `answer`.
pub(super) fn alters(sentence: &str, printed: f64, answer: f64) -> bool {
    const MEANT: [&str; 9] = [
        "answer", "answers", "result", "results", "output", "amount", "amounts", "number",
        "printed",
    ];
    let lower = sentence.to_lowercase().replace("double-check", "check");
    if !MEANT.iter().any(|word| has_word(&lower, word)) {
        return false;
    }
    let mut amounts = amounts(sentence);
    amounts.retain(|amount| *amount > 0.0);
    let mut words = lower.split(|c: char| !c.is_alphanumeric());
    let rounds = words.any(|word| {
        word.starts_with("round") || word.starts_with("approximat") || word == "nearest"
    });
    if rounds {
        return amounts.iter().any(|unit| {
            let steps = answer / unit;
            *unit >= 1.0 && is_near(steps, steps.round()) && (answer - printed).abs() < *unit
        });
    }
    let says = |words: &[&str]| words.iter().any(|word| has_word(&lower, word));
    let (up, down) = (
        says(&[
            "add",
            "adding",
            "plus",
            "increase",
            "raise",
            "more than the",
        ]),
        says(&[
            "subtract",
            "subtracting",
            "minus",
            "decrease",
            "lower",
            "take away",
            "less than the",
        ]),
    );
    let (times, parts) = (
        says(&["multiply", "multiplying", "times", "double", "twice"]),
        says(&["divide", "dividing", "half", "halve"]),
    );
    amounts.iter().any(|amount| {
        up && is_near(printed + amount, answer)
            || down && is_near(printed - amount, answer)
            || times && is_near(printed * amount, answer)
            || parts && is_near(printed / amount, answer)
    })
}

/// Words that stand for an amount in an instruction.
const NUMBER_WORDS: [(&str, f64); 22] = [
    ("percent", 100.0),
    ("dozen", 12.0),
    ("dozens", 12.0),
    ("one", 1.0),
    ("two", 2.0),
    ("twice", 2.0),
    ("double", 2.0),
    ("half", 2.0),
    ("halve", 2.0),
    ("three", 3.0),
    ("four", 4.0),
    ("five", 5.0),
    ("six", 6.0),
    ("seven", 7.0),
    ("eight", 8.0),
    ("nine", 9.0),
    ("ten", 10.0),
    ("tens", 10.0),
    ("hundred", 100.0),
    ("hundreds", 100.0),
    ("thousand", 1000.0),
    ("thousands", 1000.0),
];

/// Whether a sentence gives `name` as that of a tool, and doesn't only use the word.
pub(super) fn names_tool(sentence: &str, name: &str) -> bool {
    const BEFORE: [&str; 9] = [
        "called", "named", "call", "calls", "use", "uses", "using", "tool", "function",
    ];
    let is_mark = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'');
    let last_word = |text: &str| -> String {
        let word = text.rsplit(|c: char| !c.is_alphanumeric()).next();
        word.unwrap_or_default().to_lowercase()
    };
    word_places(sentence, name).any(|(before, after)| {
        let before = before.trim_end_matches(is_mark);
        let after = after.trim_start_matches(is_mark).to_lowercase();
        let word = last_word(before);
        let is_called = word == "the" && {
            let earlier = before[..before.len() - word.len()].trim_end();
            matches!(last_word(earlier).as_str(), "call" | "calls" | "calling")
        };
        is_called
            || BEFORE.contains(&word.as_str())
            || ["tool", "function", "("]
                .iter()
                .any(|next| after.starts_with(next))
    })
}

/// Whether a sentence gives `name` as a name for programs, and doesn't only use the word.
pub(super) fn names_code(sentence: &str, name: &str) -> bool {
    const BEFORE: [&str; 10] = [
        "import ",
        "from ",
        "module ",
        "modules ",
        "function ",
        "library ",
        "package ",
        "variable ",
        "class ",
        "`",
    ];
    word_places(sentence, name).any(|(before, after)| {
        let is_argument = before.ends_with('(') && after.starts_with([')', ',']);
        let mut following = after.chars();
        let is_used = match following.next() {
            Some('(' | '`') => true,
            Some('.') => following.next().is_some_and(char::is_alphanumeric),
            _ => after.starts_with(" = "),
        };
        is_argument || is_used || BEFORE.iter().any(|words| before.ends_with(words))
    })
}

/// Whether a sentence asks for a long text.
pub(super) fn asks_for_length(sentence: &str) -> bool {
    const LENGTH: [&str; 21] = [
        "at length",
        "in detail",
        "in full",
        "every detail",
        "every thought",
        "long explanation",
        "words or more",
        "as long as possible",
        "from all sides",
        "essay",
        "paragraphs",
        "discuss",
        "elaborate",
        "thorough",
        "lengthy",
        "verbose",
        "exhaustive",
        "extensive",
        "restate",
        "a story",
        "a poem",
    ];
    let sentence = sentence.to_lowercase();
    let counts_words = sentence.contains("at least")
        && ["words", "sentences", "paragraphs", "lines"]
            .iter()
            .any(|unit| has_word(&sentence, unit));
    counts_words || LENGTH.iter().any(|words| sentence.contains(words))
}

/// Whether a sentence asks for a further call where nothing went wrong.
pub(super) fn asks_for_more(sentence: &str) -> bool {
    const MORE: [&str; 11] = [
        "again", "twice", "thrice", "another", "repeat", "repeated", "rerun", "recheck", "second",
        "third", "times",
    ];
    const SEVERAL: [&str; 4] = ["programs", "runs", "calls", "checks"];
    const CALLS: [&str; 7] = ["run", "runs", "call", "calls", "check", "checked", "repeat"];
    const WRONG: [&str; 8] = [
        "error", "errors", "fails", "failed", "nothing", "if", "unless", "once",
    ];
    let tokens = tokens(sentence);
    let has = |words: &[&str]| tokens.iter().any(|token| words.contains(&token.as_str()));
    let is_several = tokens
        .windows(2)
        .any(|pair| pair[0] == "several" && SEVERAL.contains(&pair[1].as_str()));
    let is_more = has(&MORE) || is_several;
    is_more && (has(&CALLS) || has(&TOOL_WORDS)) && !has(&WRONG) && !has(&NEGATIONS)
}

/// Whether a sentence asks not to give the answer.
pub(super) fn withholds_answer(sentence: &str) -> bool {
    const VERBS: [&str; 12] = [
        "state", "give", "answer", "reveal", "tell", "write", "report", "show", "mention", "reply",
        "box", "say",
    ];
    const OTHER: [&str; 12] = [
        "else", "than", "unit", "units", "explain", "words", "without", "before", "unless", "if",
        "again", "comments",
    ];
    let tokens = tokens(sentence);
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let is_refused = tokens
        .windows(2)
        .any(|pair| matches!(pair[0], "not" | "don't" | "never") && VERBS.contains(&pair[1]));
    let is_kept = tokens
        .windows(3)
        .any(|words| words == ["to", "yourself", "."])
        || tokens.ends_with(&["to", "yourself"]);
    let is_other = tokens
        .iter()
        .any(|token| OTHER.contains(token) || TOOL_WORDS.contains(token));
    (is_refused || is_kept) && !is_other && is_about_answer(sentence)
}

/// Whether a sentence asks for the answer in words, which no verifier reads as a number.
pub(super) fn asks_for_words(sentence: &str) -> bool {
    const FORMS: [&[&str]; 5] = [
        &["in", "words"],
        &["as", "words"],
        &["in", "letters"],
        &["spelled", "out"],
        &["in", "roman", "numerals"],
    ];
    let tokens = tokens(sentence);
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    (1..tokens.len()).any(|at| {
        let is_said = FORMS.iter().any(|words| tokens[at..].starts_with(words));
        let is_answer = matches!(
            tokens[at - 1],
            "answer" | "answers" | "result" | "results" | "number" | "numbers"
        );
        let is_turned = tokens[..at].iter().any(|token| NEGATIONS.contains(token));
        is_said && is_answer && !is_turned
    })
}

#[cfg(test)]
mod tests;
