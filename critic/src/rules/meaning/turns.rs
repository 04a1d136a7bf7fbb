//! What a sentence says of whose turn it is: how often the tool may be called, and whether somebody is to
//! be asked before anything is done.

use super::{TOOL_WORDS, has, plain, tokens};
use crate::rules::text::is_among;

/// Words that refuse what follows.
const REFUSALS: &str = "never not don't no cannot can't mustn't won't without";

/// How many calls a sentence allows, where it sets a limit that doesn't depend on what they bring.
pub(in crate::rules) fn limits_calls(sentence: &str) -> Option<usize> {
    const CONDITIONS: &str = "if unless when whenever until error errors fail fails failed";
    const CALLS: &str = "call calls called calling run runs invoke invoked invocation execute executed \
                         execution";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    // "Every number is used once" is no limit, "it may be used once" is.
    let is_used = has(&tokens, "use uses used") && has(&tokens, "it");
    let is_about = has(&tokens, CALLS) || has(&tokens, TOOL_WORDS) || is_used;
    // "Once it has run": a point in time.
    let is_when = (0..tokens.len()).any(|at| tokens[at] == "once" && begins_clause(&tokens, at));
    if !is_about || is_when || has(&tokens, CONDITIONS) {
        return None;
    }
    match has(&tokens, REFUSALS) {
        true => most_of_refusal(&tokens),
        false => most_of_grant(&tokens),
    }
}

fn begins_clause(tokens: &[&str], at: usize) -> bool {
    const SUBJECTS: &str = "the it you this that all there they we its your everything";
    let next = tokens.get(at + 1);
    next.is_some_and(|token| is_among(token, SUBJECTS))
}

/// "Not more than twice", "never again", "no second call".
fn most_of_refusal(tokens: &[&str]) -> Option<usize> {
    const FURTHER: &str = "again second another further repeat repeated anew twice";
    let mut places = 2..tokens.len();
    let most = places.find_map(|at| {
        let is_bound = tokens[at - 2..at] == ["more", "than"];
        counted(tokens, at).filter(|_| is_bound)
    });
    most.or_else(|| has(tokens, FURTHER).then_some(1))
}

/// "Once per problem", "at most three times", "a single call".
fn most_of_grant(tokens: &[&str]) -> Option<usize> {
    const LIMITS: &str = "only just exactly single most maximum max limit limited limits up allowed \
                          allows allow permitted permits can may";
    const WHOLES: &str = "problem question conversation task chat session answer exercise request \
                          rollout";
    let is_per_whole = tokens.windows(2).any(|pair| {
        let is_whole = |word: &str| is_among(word, WHOLES);
        is_among(pair[0], "per each every a") && is_whole(pair[1])
    });
    let ends = |at: usize| {
        let next = tokens.get(at + 1);
        next.is_none_or(|token| !token.contains(char::is_alphanumeric))
    };
    // Each of several programs is another matter.
    let is_of_each = tokens.windows(2).any(|pair| {
        is_among(pair[0], "each every")
            && is_among(pair[1], "program script call run step part line")
    });
    if is_of_each {
        return None;
    }
    let is_limited = has(tokens, LIMITS) || is_per_whole;
    (0..tokens.len()).find_map(|at| {
        let is_alone = tokens[at] == "once" && ends(at);
        counted(tokens, at).filter(|_| is_limited || is_alone)
    })
}

/// The number of calls that stands at a place: "twice", "3 times", "one tool call".
fn counted(tokens: &[&str], at: usize) -> Option<usize> {
    const COUNTS: [&str; 6] = ["", "one single", "two", "three", "four", "five"];
    const BETWEEN: &str = "single tool python more";
    const CALLS: &str = "call calls run runs use uses execution executions invocation invocations \
                         attempt attempts";
    let once = ["", "once", "twice", "thrice"];
    if let Some(count) = once.iter().position(|word| *word == tokens[at]) {
        return Some(count);
    }
    let named = COUNTS.iter().position(|words| is_among(tokens[at], words));
    let count = named.or_else(|| tokens[at].parse().ok())?;
    let mut after = tokens[at + 1..].iter();
    let noun = after.find(|token| !is_among(token, BETWEEN))?;
    (is_among(noun, CALLS) || is_among(noun, "time times")).then_some(count)
}

/// Whether a sentence tells to ask somebody, or to wait for them, before anything is worked out.
pub(in crate::rules) fn asks_first(sentence: &str) -> bool {
    const FIRST: &str =
        "first before begin start always until unless without beforehand prior must";
    const PEOPLE: &str = "user users customer customers client clients reader readers caller sender person \
                          asker them him her question questions clarifying";
    const NOUNS: &str = "clarification confirmation approval permission consent";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_asked = (0..tokens.len()).any(|at| is_told_to_ask(&tokens, at));
    let is_awaited = has(&tokens, NOUNS) && !has(&tokens, REFUSALS);
    let mut people = tokens.iter().map(|token| token.trim_end_matches("'s"));
    (is_asked || is_awaited) && (has(&tokens, FIRST) || people.any(|token| is_among(token, PEOPLE)))
}

/// Whether a verb of asking stands at a place as an order, and not about the tool or its result.
fn is_told_to_ask(tokens: &[&str], at: usize) -> bool {
    const VERBS: &str = "ask request enquire inquire clarify wait await find";
    const LEADS: &str =
        "to must should please always first then and or you also just kindly instead";
    const BETWEEN: &str = "the a an for about out with whether what any its your";
    const OWN: &str = "result results output value number answer tool program python code yourself";
    let is_order = match at.checked_sub(1).and_then(|before| tokens.get(before)) {
        None => true,
        Some(before) => is_among(before, LEADS) || !before.contains(char::is_alphanumeric),
    };
    let is_find = tokens[at] == "find" && tokens.get(at + 1) != Some(&"out");
    let mut after = tokens[at + 1..].iter();
    let object = after.find(|token| !is_among(token, BETWEEN));
    let is_own = object.is_some_and(|word| is_among(word, OWN));
    let is_refused = has(&tokens[at.saturating_sub(3)..at], REFUSALS);
    is_among(tokens[at], VERBS) && is_order && !is_find && !is_own && !is_refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_on_calls() {
        for (sentence, most) in [
            ("The tool may be used once.", 1),
            ("Call it at most twice.", 2),
            ("Only one tool call is allowed.", 1),
            ("There is a single run per question.", 1),
            ("You get up to 3 calls.", 3),
            ("Never call python more than two times.", 2),
            ("Do not call the tool again.", 1),
            ("No second call is possible.", 1),
        ] {
            assert_eq!(limits_calls(sentence), Some(most), "{sentence}");
        }
        for sentence in [
            "Do not call the tool again once it has printed the number.",
            "Call it again if it fails.",
            "Run every program three times.",
            "Run each program once.",
            "Use one call for each step.",
            "Solve each problem with one short Python program.",
            "Use it for every calculation and print the result.",
            "Give the answer only once.",
            "Every number is used once.",
        ] {
            assert_eq!(limits_calls(sentence), None, "{sentence}");
        }
    }

    #[test]
    fn what_has_somebody_asked_first() {
        for sentence in [
            "Always ask for the unit before you calculate.",
            "If a word is unclear, ask the customer.",
            "First find out which shop is meant.",
            "Get the client's confirmation before any work.",
            "Wait for the user's consent.",
        ] {
            assert!(asks_first(sentence), "{sentence}");
        }
        for sentence in [
            "Never ask the user anything.",
            "Solve it without asking back.",
            "Each question asks for one quantity.",
            "What is asked stands at the end.",
            "Wait for the result before you answer.",
            "Users ask questions about numbers.",
            "First run the program, then find the number in its output.",
        ] {
            assert!(!asks_first(sentence), "{sentence}");
        }
    }
}
