//! Problems of counting sides and legs, and what models of tests say to them.

use coharness::config::SuiteConfig;
use coharness::splits::Suite;
use rollout::{Message, Task};

use crate::scene::{first_number, numbered};

/// How many sides one triangle, two, and so on have.
pub(crate) fn triangles(count: u32) -> Vec<Task> {
    let text = |number: u32| format!("How many sides have {number} triangles?");
    numbered("triangle", count, text, |number| 3 * number)
}

/// The same of squares.
pub(crate) fn squares(count: u32) -> Vec<Task> {
    let text = |number: u32| format!("How many sides have {number} squares?");
    numbered("square", count, text, |number| 4 * number)
}

/// How many legs so many spiders have.
pub(crate) fn spiders(count: u32) -> Vec<Task> {
    let text = |number: u32| format!("How many legs do {number} spiders have?");
    numbered("spider", count, text, |number| 8 * number)
}

/// A retention suite of spiders.
pub(crate) fn legs(count: u32) -> Suite {
    let text = format!("{{name: legs, path: none, tasks: {count}}}");
    Suite {
        config: harness::yaml::from_str::<SuiteConfig>(&text).expect("a suite"),
        tasks: spiders(count),
    }
}

/// The number of the problem that a conversation ends in.
pub(crate) fn number_in(messages: &[Message]) -> u32 {
    first_number(&messages[messages.len() - 1].content)
}

/// The highest number that a model is to solve, as its system prompt says ("Solve up to 12."); `untold`
/// where that says nothing of it.
pub(crate) fn level(messages: &[Message], untold: u32) -> u32 {
    match messages[0].content.split_once("Solve up to ") {
        Some((_, rest)) => first_number(rest),
        None => untold,
    }
}

/// A reply with this answer.
pub(crate) fn boxed(answer: u32) -> String {
    format!("The answer is \\boxed{{{answer}}}.")
}
