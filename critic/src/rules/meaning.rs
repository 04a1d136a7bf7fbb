//! What a sentence of a harness tells the model to do, as far as plain words show it.
//!
//! Each of these is asked about a sentence that the model was told before it did just that, and what
//! follows is the suggestion to take the sentence out. So a good sentence that only resembles a bad one
//! must not be taken for it: "never in your head", "not more than twice", "one number".

mod amounts;
mod answers;
mod formulas;
mod names;
mod notation;
mod printing;
mod programs;
mod turns;

use harness::Harness;

pub(super) use amounts::{Amounts, alters, calculates};
pub(super) use answers::{
    asks_for_several, asks_for_words, asks_whether, hands_over, is_about_answer, names_other_form,
    offers, withholds_answer,
};
pub(super) use formulas::mended_as_in;
pub(super) use names::{
    names_argument, names_code, names_older_version, names_other_language, names_tool,
};
pub(super) use notation::{has_program_behind, is_parted, marks, parts_digits, rewrites};
pub(super) use printing::{asks_to_print_more, forbids_print};
pub(super) use programs::{asks_to_define, asks_to_encode, is_encoded, only_defines, prints};
pub(super) use turns::{asks_first, limits_calls};

use super::text::{has_any, is_among};

/// Words for what runs programs, beside the tools' own names.
const TOOL_WORDS: &str = "tool tools program programs python code";

/// Words that turn what follows around.
const NEGATIONS: &str = "never not don't no cannot can't without avoid instead rather";

/// A text in lower case, with one kind of apostrophe.
fn plain(text: &str) -> String {
    text.to_lowercase().replace('’', "'")
}

/// Words and marks of a plain text; a mark is a token of its own.
fn tokens(plain: &str) -> Vec<&str> {
    let is_mark = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '\''));
    let mut tokens = Vec::new();
    let mut rest = plain.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match rest.find(is_mark) {
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn has(tokens: &[&str], words: &str) -> bool {
    tokens.iter().any(|token| is_among(token, words))
}

/// Whether the tokens begin with one of `phrases`.
fn begin_with(tokens: &[&str], phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| {
        let words: Vec<&str> = phrase.split(' ').collect();
        tokens.starts_with(&words)
    })
}

/// The tools' names in lower case.
pub(super) fn tool_names(harness: &Harness) -> Vec<String> {
    let names = harness.tools.keys();
    names.map(|name| name.as_str().to_lowercase()).collect()
}

/// Whether a word is one for what runs programs, or one of the tools' names.
fn is_tool_word(token: &str, names: &[String]) -> bool {
    is_among(token, TOOL_WORDS) || names.iter().any(|name| name == token)
}

/// Whether a sentence speaks against calling a tool, or says that it is out of use. One that says how
/// often to call it, or what kind of program to write, doesn't.
pub(super) fn forbids_tool(harness: &Harness, sentence: &str) -> bool {
    /// A limit on calls, or a condition.
    const LIMITS: &str = "again twice once until before after unless if";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    if is_alone(&tokens) {
        return true;
    }
    let names = tool_names(harness);
    let is_tool = |token: &str| is_tool_word(token, &names);
    // "Comments in the code" are no code.
    let subject = (0..tokens.len()).find(|at| {
        let mut before = tokens[..*at].iter().rev();
        let lead = before.find(|token| !is_among(token, "the a any your"));
        let is_part = lead.is_some_and(|word| is_among(word, "in of with inside"));
        is_tool(tokens[*at]) && !is_part
    });
    if subject.is_some_and(|subject| is_out_of_use(&tokens, subject)) {
        return true;
    }
    if has(&tokens, LIMITS) || tokens.windows(2).any(|pair| pair == ["more", "than"]) {
        return false;
    }
    let calculates = |token: &&str| token.starts_with("calculat") || token.starts_with("comput");
    // A tool's own description says "it".
    let is_it = |token: &str| token == "it" && tokens.iter().any(calculates);
    let is_not_for = tokens
        .windows(3)
        .any(|words| words[..2] == ["not", "for"] && words[2].starts_with("calculat"));
    if subject.is_some() && (is_not_for || is_unfit(&tokens)) {
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
    const UNFIT: &str = "unavailable offline broken disabled unreliable forbidden prohibited \
                         banned unnecessary overkill superfluous discouraged needless untrusted \
                         unwelcome unwanted";
    const NOT: &str = "meant intended needed wanted necessary required allowed available suitable \
                       suited permitted worth trusted reliable designed made supposed useful \
                       welcome working";
    let is_denied = |at: usize| {
        let mut before = tokens[at.saturating_sub(2)..at].iter();
        before.any(|token| *token == "not" || token.ends_with("n't"))
    };
    let mut places = tokens.iter().enumerate();
    places.any(|(at, token)| is_among(token, UNFIT) || is_among(token, NOT) && is_denied(at))
}

/// Whether what stands at `subject` is said to be out of use, since or until whenever.
fn is_out_of_use(tokens: &[&str], subject: usize) -> bool {
    /// A condition, or the end of it.
    const OTHERWISE: &str =
        "if unless when whenever while should never again back restored repaired fixed";
    const BEING: &str = "is are was were been be being goes went stays still currently now";
    const DOWN: &str = "down out dead gone off";
    const AFTER: &str = "since until till for at on from during this these today now right because due as \
                         and so after following";
    const PHRASES: [&str; 13] = [
        "out of order",
        "out of service",
        "out of use",
        "out of action",
        "under maintenance",
        "for maintenance",
        "under repair",
        "being repaired",
        "being replaced",
        "shut down",
        "switched off",
        "turned off",
        "taken offline",
    ];
    const OUT: &str = "unavailable offline broken disabled unreachable unresponsive inaccessible \
                       inoperative defunct faulty crashed suspended retired withdrawn discontinued \
                       decommissioned outage";
    const WORKS: &str = "respond responds responding work works working run runs running reachable \
                         operational functional accessible available exists";
    if has(tokens, OTHERWISE) {
        return false;
    }
    // "Code that doesn't run" is some code.
    let is_some = has(tokens, "that which what");
    let is_denied = |at: usize| {
        let before = &tokens[at.saturating_sub(2)..at];
        let is_not = |token: &&str| *token == "not" || token.ends_with("n't");
        before.iter().any(is_not) || before == ["no", "longer"]
    };
    let ends = |at: usize| {
        let next = tokens.get(at + 1);
        next.is_none_or(|next| is_among(next, AFTER) || !next.contains(char::is_alphanumeric))
    };
    (subject + 1..tokens.len()).any(|at| {
        let is_down = is_among(tokens[at - 1], BEING) && is_among(tokens[at], DOWN) && ends(at);
        let is_out = is_among(tokens[at], OUT) || begin_with(&tokens[at..], &PHRASES) || is_down;
        let is_idle = is_among(tokens[at], WORKS) && is_denied(at) && !is_some;
        is_idle || is_out && !is_denied(at)
    })
}

/// Whether a sentence asks for a number and nothing else, or at once.
pub(super) fn asks_for_bare_answer(sentence: &str) -> bool {
    const VERBS: &str = "reply answer respond return write give say output send";
    const BARE: &str = "only just nothing immediately directly straight once solely";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_of_tool = has(&tokens, TOOL_WORDS) || has(&tokens, "after when until if has");
    has(&tokens, VERBS) && has(&tokens, BARE) && !is_of_tool && !has(&tokens, NEGATIONS)
}

/// Whether a message speaks of calling a tool.
pub(super) fn speaks_of_tool(harness: &Harness, text: &str) -> bool {
    let plain = plain(text);
    let tokens = tokens(&plain);
    let mut names = tool_names(harness).into_iter();
    has(&tokens, TOOL_WORDS) || names.any(|name| tokens.contains(&name.as_str()))
}

/// Whether the model is told to calculate by itself.
fn is_alone(tokens: &[&str]) -> bool {
    const ALONE: [&str; 4] = ["in your head", "in the head", "by hand", "mentally"];
    (0..tokens.len()).any(|at| begin_with(&tokens[at..], &ALONE) && !has(&tokens[..at], NEGATIONS))
}

/// Where the object of a refusal that begins at `at` stands: `do not use the … `, `without any …`.
fn refused(tokens: &[&str], at: usize) -> Option<usize> {
    const VERBS: &str = "use using call calling run running write writing invoke rely relying";
    const LEADS: &str = "any the a an this that these those your on to";
    let modal = |word: &str| is_among(word, "do must should may can shall");
    let (mut next, needs_verb) = match tokens[at] {
        "never" | "don't" | "cannot" | "can't" => (at + 1, true),
        "not" if at > 0 && modal(tokens[at - 1]) => (at + 1, true),
        "avoid" | "without" | "no" => (at + 1, false),
        _ => return None,
    };
    // Turned around twice: "never answer without calling the tool".
    if !needs_verb && has(&tokens[..at], NEGATIONS) {
        return None;
    }
    let is_next = |next: usize, words: &str| {
        let token = tokens.get(next);
        token.is_some_and(|token| is_among(token, words))
    };
    if is_next(next, VERBS) {
        next += 1;
    } else if needs_verb {
        return None;
    }
    while is_next(next, LEADS) {
        next += 1;
    }
    Some(next)
}

/// Whether what stands before `next` is a thing by itself, and not what kind of thing follows, as in
/// "python packages", or which one, as in "a program that reads input".
fn ends_phrase(next: Option<&str>) -> bool {
    const AFTER: &str = "for to in on at when here now and or as like such please yourself \
                         directly instead because since even ever while";
    next.is_none_or(|token| is_among(token, AFTER) || !token.contains(char::is_alphanumeric))
}

/// Whether a sentence asks for a long text.
pub(super) fn asks_for_length(sentence: &str) -> bool {
    const LENGTH: &str = "at length, in detail, in full, every detail, every thought, \
                          long explanation, words or more, as long as possible, from all sides, \
                          essay, paragraphs, discuss, elaborate, thorough, lengthy, verbose, \
                          exhaustive, extensive, restate, a story, a poem";
    let lower = sentence.to_lowercase();
    let counts_words =
        lower.contains("at least") && has_any(&lower, "words sentences paragraphs lines");
    counts_words || LENGTH.split(", ").any(|words| lower.contains(words))
}

/// Whether a sentence asks for a further call where nothing went wrong.
pub(super) fn asks_for_more(sentence: &str) -> bool {
    const MORE: &str =
        "again twice thrice another repeat repeated rerun recheck second third times";
    const SEVERAL: &str = "programs runs calls checks";
    const CALLS: &str = "run runs call calls check checked repeat";
    const WRONG: &str = "error errors fails failed nothing if unless once";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let mut pairs = tokens.windows(2);
    let is_several = pairs.any(|pair| pair[0] == "several" && is_among(pair[1], SEVERAL));
    let is_more = has(&tokens, MORE) || is_several;
    let is_call = has(&tokens, CALLS) || has(&tokens, TOOL_WORDS);
    is_more && is_call && !has(&tokens, WRONG) && !has(&tokens, NEGATIONS)
}

#[cfg(test)]
mod tests;
