//! What a sentence says and the model then did.
//!
//! A sentence is blamed only beside a rollout that shows what comes of it: "never use the tool" where
//! no tool was called, "round to tens" where the answer is the printed number, rounded.

use std::collections::BTreeSet;

use harness::CallFormat;
use rollout::Event;
use serde_json::Value;

use super::finding::At;
use super::meaning::{
    self, alters, asks_for_bare_answer, asks_to_define, asks_to_encode, asks_to_print_more,
    calculates, forbids_print, forbids_tool, has_program_behind, is_encoded, marks, names_argument,
    names_code, names_older_version, names_other_language, names_tool, only_defines, rewrites,
    withholds_answer,
};
use super::memory::COMMON;
use super::problem_of;
use super::skills::wrong_program;
use super::text::{boxes, is_among, is_near, mentions, numbers};
use super::told::{Place, Sentence};
use super::view::View;
use crate::mining::words;

/// Whether it speaks against the tools, which the model then didn't call, or asks for a bare number,
/// where one was given.
pub(super) fn speaks_against_tool(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    const BRIEF: usize = 80;
    let is_brief = || {
        let reply = view.first_reply();
        reply.is_some_and(|at| at.text().trim().chars().count() <= BRIEF)
    };
    let is_against = || {
        forbids_tool(view.harness, sentence.text)
            || asks_for_bare_answer(sentence.text) && is_brief()
    };
    view.ignores_tool() && is_against()
}

/// Whether it says what the model did to the number that the tool had printed, by its words or by what
/// all rollouts show, or in which notation the model wrote it.
pub(super) fn alters_answer(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let numbers = view.differing_numbers();
    let is_said = numbers.is_some_and(|(printed, answer)| alters(sentence.text, printed, answer));
    let written = view.printed_number().zip(view.value());
    let is_rewritten =
        written.is_some_and(|(printed, answer)| rewrites(sentence.text, printed, answer));
    is_said || is_rewritten || view.facts.explains(view, sentence)
}

/// Whether it says how to calculate on a topic of which every problem fails in the same way.
pub(super) fn misleads(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    view.facts.misunderstanding(view).is_some_and(|known| {
        let words = words(sentence.text);
        calculates(sentence.text) && words.iter().any(|word| is_topic(&known.topics, word))
    })
}

/// Whether a word is one of a topic's, in whatever form.
pub(super) fn is_topic(topics: &BTreeSet<String>, word: &str) -> bool {
    let mut topics = topics.iter();
    topics.any(|topic| topic.starts_with(word) || word.starts_with(topic.as_str()))
}

/// Whether it has the name of a tool that the model called or of an argument that it gave, and that
/// doesn't exist.
pub(super) fn names_unknown_tool(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    unknown_tool(view).is_some_and(|name| names_tool(sentence.text, name))
        || unknown_arguments(view)
            .iter()
            .any(|name| names_argument(sentence.text, name))
}

fn unknown_tool<'a>(view: &View<'a>) -> Option<&'a str> {
    let mut events = view.trajectory.events();
    events.find_map(|(_, event)| match event {
        Event::UnknownTool { name } => Some(name.as_str()),
        _ => None,
    })
}

/// Names of arguments in calls that were refused, which no tool has.
fn unknown_arguments(view: &View<'_>) -> BTreeSet<String> {
    let refused = view
        .calls()
        .filter(|call| matches!(call.step.event, Some(Event::BadArguments { .. })));
    let is_known = |name: &String| {
        let mut tools = view.harness.tools.values();
        tools.any(|tool| tool.parameters["properties"].get(name).is_some())
    };
    refused
        .filter_map(|call| {
            let text = call.text();
            let object = text.get(text.find('{')?..=text.rfind('}')?)?;
            serde_json::from_str::<Value>(object).ok()
        })
        .filter_map(|call| Some(call.get("arguments").unwrap_or(&call).as_object()?.clone()))
        .flat_map(|arguments| arguments.into_iter().map(|(name, _)| name))
        .filter(|name| !is_known(name))
        .collect()
}

/// Whether it has a name that Python doesn't know, as its error says, or another language or an older
/// version where programs aren't today's Python.
pub(super) fn names_missing_code(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let text = sentence.text;
    let missing = view.missing_name();
    missing.is_some_and(|(_, name)| names_code(text, name))
        || is_in_other_language(view) && (names_other_language(text) || names_older_version(text))
}

/// Whether programs seem to be in another language: their fence says so, or Python can't read them.
fn is_in_other_language(view: &View<'_>) -> bool {
    const REFUSALS: [&str; 3] = [
        "[error] SyntaxError",
        "[error] IndentationError",
        "[error] NameError",
    ];
    let is_refused = |text: &str| {
        let mut lines = text.lines();
        lines.any(|line| REFUSALS.iter().any(|error| line.starts_with(error)))
    };
    let has_label = |text: &str| {
        let fences = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("```"));
        let mut labels = fences.map(str::trim).filter(|label| !label.is_empty());
        labels.any(names_other_language)
    };
    view.last_good_result().is_none()
        && (view.results().any(|at| is_refused(at.text()))
            || view.replies().any(|at| has_label(at.text())))
}

/// Whether it has a mark behind which the model put a program that the loop then didn't read.
pub(super) fn gives_unread_mark(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let is_xml = view.harness.middleware.protocol.call_format == CallFormat::Xml;
    let is_own = |mark: &str| is_xml && mark == "<tool_call>";
    let is_used = |mark: &str| {
        let mut replies = view.replies();
        replies.any(|at| has_program_behind(at.text(), mark))
    };
    // Where programs are the answers, the marks may be the answer's.
    view.ignores_tool()
        && !view.answers_with_program()
        && marks(sentence.text).any(|mark| !is_own(mark) && is_used(mark))
}

/// Whether it says of printing what the program then did: that it isn't needed, or that a program is a
/// function, where it printed nothing, or to print more than the result, where the answer is the last of
/// several numbers.
pub(super) fn misguides_print(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let is_silent = || view.has_event(|event| matches!(event, Event::EmptyOutput));
    let is_uncalled = || {
        let silent = view.call_before(|event| matches!(event, Event::EmptyOutput));
        silent.is_some_and(|call| only_defines(call.text()))
    };
    let is_last_of_several = || {
        let Some(result) = view.last_good_result() else {
            return false;
        };
        let lines = view.output(result).lines();
        let printed = lines.filter(|line| !numbers(line).is_empty()).count();
        printed > 1 && view.value().is_some() && view.differing_numbers().is_none()
    };
    forbids_print(sentence.text) && is_silent()
        || asks_to_define(sentence.text) && is_uncalled()
        || asks_to_print_more(sentence.text) && is_last_of_several()
}

/// Whether it asks for a long text, where a limit cut a reply.
pub(super) fn asks_for_length(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    view.is_cut() && !view.has_call() && meaning::asks_for_length(sentence.text)
}

/// Whether it asks for further calls, where a result was followed by calls alone.
pub(super) fn asks_for_more(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    // A call after an error is no further one.
    let first = view.good_results().next();
    let goes_on = first.is_some_and(|first| view.calls().any(|call| call.index > first.index));
    goes_on && !view.states_answer() && meaning::asks_for_more(sentence.text)
}

/// Whether it asks for the answer in words or, with a result at hand, for one of some words or for none, and
/// none can be read.
pub(super) fn asks_for_words(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    !view.states_answer() && is_against_answer(view, sentence)
}

/// Whether it asks for more than one answer, where the model marked several and what was read isn't the
/// number that the tool had printed.
pub(super) fn asks_for_several(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    gives_several(view) && meaning::asks_for_several(sentence.text)
}

fn gives_several(view: &View<'_>) -> bool {
    let Some(reply) = view.replies().next_back() else {
        return false;
    };
    let mut marked: Vec<f64> = boxes(reply.text())
        .filter(|content| !content.contains('='))
        .flat_map(numbers)
        .collect();
    if marked.is_empty() {
        let lines = reply.text().lines();
        let stated = lines.filter(|line| mentions(line, &["answer"]) && !line.contains('='));
        marked = stated.flat_map(numbers).collect();
    }
    let has = |number: f64| marked.iter().any(|known| is_near(*known, number));
    let is_several = marked.iter().any(|number| !is_near(*number, marked[0]));
    let is_lost = !view.states_answer()
        || view.differing_numbers().is_some()
        || numbers(view.value().unwrap_or_default()).len() > 1;
    is_several && is_lost && view.printed_number().is_none_or(has)
}

/// Whether it has the answer handed over by a call, as the model did.
pub(super) fn sends_answer_to_tool(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let is_of_tool = matches!(sentence.place, Place::Tool(_) | Place::Parameter(..));
    handed_over(view).is_some() && meaning::hands_over(view.harness, sentence.text, is_of_tool)
}

/// A call after a result that holds nothing but its number, where no answer is stated.
pub(super) fn handed_over<'a>(view: &View<'a>) -> Option<At<'a>> {
    const BESIDE: &str = "print answer result final value";
    let result = view.good_results().next()?;
    let printed = view.printed_number()?;
    let is_mere = |call: &At<'_>| {
        let mut words = call.text().split(|c: char| !c.is_alphabetic());
        let is_number = matches!(numbers(call.text())[..], [number] if is_near(number, printed));
        is_number && words.all(|word| word.is_empty() || is_among(word, BESIDE))
    };
    let mut later = view.calls().filter(|call| call.index > result.index);
    later.find(is_mere).filter(|_| !view.states_answer())
}

/// Whether it allows so many calls and no more, where the model left it at that with numbers of the problem
/// unused, or after the only one had failed.
pub(super) fn limits_calls(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let count = view.calls().count();
    let is_reached = || meaning::limits_calls(sentence.text) == Some(count);
    let used: usize = view.calls().map(|call| numbers(call.text()).len()).sum();
    let given = numbers(view.problem().unwrap_or_default()).len();
    let is_short = given > 2 && used < given && view.last_good_result().is_some();
    let is_failed = count == 1 && view.last_good_result().is_none();
    (is_short || is_failed) && is_reached()
}

/// Whether it has somebody asked first, where the model asked instead of working.
pub(super) fn asks_first(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    const ASKING: [&str; 8] = [
        "?",
        "please",
        "tell me",
        "let me know",
        "i need",
        "provide",
        "waiting",
        "confirm",
    ];
    let is_asking = || {
        let reply = view.first_reply();
        reply.is_some_and(|at| mentions(at.text(), &ASKING))
    };
    !view.has_call() && !view.states_answer() && meaning::asks_first(sentence.text) && is_asking()
}

/// Whether it has programs escaped or encoded, and one that was can't be run.
pub(super) fn encodes_programs(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    view.last_good_result().is_none()
        && asks_to_encode(sentence.text)
        && view.calls().any(|call| is_encoded(call.text()))
}

/// The sentence as Python has it, where it has a formula that Python can't read, and so had a program that
/// failed.
pub(super) fn mended_formula(view: &View<'_>, sentence: &Sentence<'_>) -> Option<String> {
    if view.last_good_result().is_some() {
        return None;
    }
    let failed = view.call_before(|event| matches!(event, Event::ToolError { .. }))?;
    meaning::mended_as_in(sentence.text, failed.text())
}

/// Whether it has numbers that programs calculated with in the place of the problem's, and the result was
/// the answer: two or more where none of the problem's was used, or one where a whole topic fails so.
pub(super) fn lends_numbers(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let said = telling_numbers(sentence.text);
    if said.is_empty() || wrong_program(view).is_none() {
        return false;
    }
    let problem = problem_of(view.trajectory, view.harness).or_else(|| view.problem());
    let given = telling_numbers(problem.unwrap_or_default());
    if given.is_empty() {
        return false;
    }
    let programs: Vec<&str> = view.calls().map(At::text).collect();
    let used = telling_numbers(&programs.join("\n"));
    let is_lent = |number: &&f64| has(&said, **number) && !has(&given, **number);
    let lent = used.iter().filter(is_lent).count();
    let left = given.iter().filter(|number| !has(&used, **number)).count();
    // A constant such as the 24 hours of a day comes on top of the problem's numbers.
    let is_in_place = lent > 0 && left > 0 && used.len() <= given.len();
    lent > 1 && left == given.len() || is_in_place && view.facts.misunderstanding(view).is_some()
}

/// Whether `number` is among numbers in ascending order.
fn has(sorted: &[f64], number: f64) -> bool {
    let found = sorted.binary_search_by(|known| known.total_cmp(&number));
    found.is_ok()
}

/// The distinct numbers of a text in ascending order, without signs, that not every program may have.
fn telling_numbers(text: &str) -> Vec<f64> {
    let all = numbers(text).into_iter().map(f64::abs);
    let mut telling: Vec<f64> = all.filter(|number| !COMMON.contains(number)).collect();
    telling.sort_by(f64::total_cmp);
    telling.dedup();
    telling
}

/// Whether it keeps the answer back, or from being read: asks for another form of it, for none, for
/// several, or for a call in its place.
pub(super) fn keeps_answer_back(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    is_against_answer(view, sentence)
        || asks_for_several(view, sentence)
        || sends_answer_to_tool(view, sentence)
        || view.facts.explains(view, sentence)
}

fn is_against_answer(view: &View<'_>, sentence: &Sentence<'_>) -> bool {
    let text = sentence.text;
    let has_result = view.last_good_result().is_some();
    meaning::asks_for_words(text)
        || has_result && (withholds_answer(text) || is_given_word(view, text))
}

/// Whether the reply to a result is one of the words that a sentence offers for an answer, or says whether
/// something is so, as it asks.
fn is_given_word(view: &View<'_>, sentence: &str) -> bool {
    let replied = || {
        let result = view.last_good_result()?;
        let reply = view.replies().next_back()?;
        (reply.index > result.index).then(|| reply.text())
    };
    let Some(reply) = replied() else {
        return false;
    };
    let said = boxes(reply).last().unwrap_or(reply);
    let mut words = said.split(|c: char| !c.is_alphanumeric());
    let first = words.find(|word| !word.is_empty()).unwrap_or_default();
    let is_asked_for =
        || meaning::offers(sentence, &first.to_lowercase()) || meaning::asks_whether(sentence);
    numbers(said).is_empty() && is_asked_for()
}
