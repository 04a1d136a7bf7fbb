//! Replies in the forms that servers send them, each with what must come of it. Every text that a
//! reply has holds the right answer, so that grading what is no whole reply would be seen.

mod calls;
mod failures;
mod replies;
mod streams;

use crate::server::{Reply, ok};

/// What must come of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// It is a whole reply with this text.
    Says(&'static str),
    /// It is a whole reply with this text, which took this reasoning before it.
    Thinks(&'static str, &'static str),
    /// It was cut; its text is kept for the record.
    Cut,
    /// It ended within its reasoning.
    CutInReasoning,
    /// It calls the tool with this program.
    Calls(&'static str),
    /// It makes a call that can't be read.
    Miscalls,
    /// It is a failure that may pass: the server is asked again.
    AskedAgain,
    /// The conversation is too long, and no shorter reply would help.
    TooLong,
    /// The same request with this limit has room.
    Shortened(u32),
    /// The same request with the limit under its newer name is read.
    Renamed,
    /// Nothing will help.
    Refused,
    /// The server asks to wait for so many seconds, which is more than is allowed.
    Waits(u64),
}

/// The right answer.
pub(crate) const ANSWER: &str = "The answer is 7.";

/// A reply by its name, and what must come of it.
pub(crate) type Shape = (&'static str, Reply, Expected);

pub(crate) fn all() -> Vec<Shape> {
    [
        replies::whole(),
        replies::reasoning(),
        replies::cut(),
        calls::all(),
        streams::all(),
        failures::passing(),
        failures::lasting(),
    ]
    .concat()
}

/// A reply of one choice, as small as it can be.
fn choice(message: &str, reason: &str) -> String {
    format!(r#"{{"choices": [{{"index": 0, "message": {message}, "finish_reason": {reason}}}]}}"#)
}

fn said(reason: &str) -> Reply {
    ok(&choice(
        r#"{"role": "assistant", "content": "The answer is 7."}"#,
        reason,
    ))
}
