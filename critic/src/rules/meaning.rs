//! What a sentence of a harness tells the model to do, as far as plain words show it.
//!
//! Each of these is asked about a sentence that the model was told before it did just that, and what
//! follows is the suggestion to take the sentence out. So a good sentence that only resembles a bad one
//! must not be taken for it: "never in your head", "not more than twice", "one number".

use harness::Harness;

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
    if is_not_for && tokens.iter().any(|token| is_tool(token)) {
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
    let mut amounts = numbers(sentence);
    amounts.extend(
        NUMBER_WORDS
            .iter()
            .filter(|(word, _)| has_word(&lower, word))
            .map(|(_, number)| *number),
    );
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
const NUMBER_WORDS: [(&str, f64); 19] = [
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
    const LENGTH: [&str; 7] = [
        "at length",
        "in detail",
        "every detail",
        "long explanation",
        "words or more",
        "as long as possible",
        "essay",
    ];
    let sentence = sentence.to_lowercase();
    let counts_words = sentence.contains("at least")
        && ["words", "sentences", "paragraphs", "lines"]
            .iter()
            .any(|unit| has_word(&sentence, unit));
    counts_words || LENGTH.iter().any(|words| sentence.contains(words))
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
mod tests {
    use super::*;
    use crate::testing::start;

    #[test]
    fn what_speaks_against_a_tool() {
        let harness = start();
        for sentence in [
            "Never use tools like python.",
            "Work it out in your head.",
            "It is quicker to do sums in your head.",
            "Do not call python for small numbers.",
            "Never use it for calculations.",
            "The tool is not for calculations.",
            "Solve this without any tool, please.",
            "Don’t use the tool: solve it yourself.",
            "You must not write any code here.",
            "Avoid the python tool.",
            "Use no tools.",
        ] {
            assert!(forbids_tool(&harness, sentence), "{sentence}");
        }
    }

    #[test]
    fn what_only_says_how_a_tool_is_used() {
        let harness = start();
        for sentence in [
            "Numbers are calculated with the python tool, never in the head.",
            "Never calculate in your head.",
            "Do not work it out by hand.",
            "Call the tool instead of doing it mentally.",
            "Never answer without calling the python tool.",
            "Use it for every calculation and print the result.",
            "You may use the python tool to compute things.",
            "Do not use abbreviations.",
            "Avoid long texts.",
            "Do not call the tool again once it has printed the number.",
            "Never call the tool more than three times.",
            "Do not use python packages.",
            "Avoid comments in the program.",
            "Do not write a program that reads input.",
            "If no tool fits, answer directly.",
            "The tool is called python; there is no other tool.",
        ] {
            assert!(!forbids_tool(&harness, sentence), "{sentence}");
        }
    }

    #[test]
    fn what_alters_an_answer() {
        let rounding = "Round the answer to the nearest ten.";
        assert!(alters(rounding, 37.0, 40.0));
        assert!(!alters(rounding, 37.0, 39.0));
        assert!(!alters(rounding, 37.0, 90.0));
        assert!(alters(
            "Add one to every number that is printed.",
            37.0,
            38.0
        ));
        assert!(alters("The answer is half of the output.", 38.0, 19.0));
        assert!(alters(
            "The answer is one more than the output.",
            38.0,
            39.0
        ));
        assert!(!alters("Give the answer in a box.", 37.0, 38.0));
        // An arithmetic rule that speaks of no answer tells how to calculate, not what to reply.
        assert!(!alters("Divide by 2 for pairs.", 38.0, 19.0));
        // Amounts that nothing is to be done with, when the model is off by as much.
        for sentence in [
            "The answer is one number, without units.",
            "Give no more than one number as the answer.",
            "Double-check the number before you answer.",
            "Turn around the two numbers of the result.",
        ] {
            assert!(!alters(sentence, 37.0, 38.0), "{sentence}");
            assert!(!alters(sentence, 37.0, 39.0), "{sentence}");
        }
        assert!(!alters("Check the number twice.", 37.0, 39.0));
    }

    #[test]
    fn names_and_words_that_only_sound_like_them() {
        for sentence in [
            "Since Monday the tool is called calc.",
            "Call calc for every calculation.",
            "Call the calc with a program.",
            "Use `calc` first.",
            "The calc tool comes first.",
            "Write calc(program).",
        ] {
            assert!(names_tool(sentence, "calc"), "{sentence}");
        }
        let plain = "Call the tool and then give the answer in a box.";
        assert!(!names_tool(plain, "answer"));
        assert!(!names_tool(plain, "box"));
        for sentence in [
            "Start with import helpers.",
            "Calculate with the module helpers.",
            "It ends with print(helpers).",
            "Call helpers() first.",
            "Use helpers.total for sums.",
            "Set helpers = 5 first.",
        ] {
            assert!(names_code(sentence, "helpers"), "{sentence}");
        }
        for sentence in ["Ask the helpers.", "A program is a text of helpers"] {
            assert!(!names_code(sentence, "helpers"), "{sentence}");
        }
        assert!(!names_code("A program prints a number.", "a"));
    }

    #[test]
    fn what_asks_for_words_and_what_only_has_some() {
        for sentence in [
            "Write the final answer in words.",
            "Give each number spelled out.",
            "The result in Roman numerals, please.",
        ] {
            assert!(asks_for_words(sentence), "{sentence}");
        }
        for sentence in [
            "Explain in words how you found the answer.",
            "Do not write the answer in words.",
            "Write the answer in a box.",
        ] {
            assert!(!asks_for_words(sentence), "{sentence}");
        }
        assert!(asks_for_length("Explain it in at least 300 words."));
        assert!(!asks_for_length("Write at least one program."));
    }
}
