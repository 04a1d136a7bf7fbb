//! Harmony, the form of gpt-oss: a reply is a row of messages in channels.
//!
//! `<|channel|>analysis<|message|>…<|end|>` is reasoning. What stands in `final` is said to the user, and
//! so is `commentary` without a recipient; with one (`to=functions.python`) a message in any channel is a
//! call. A server that leaves special tokens out sends the names of the channels alone,
//! `analysis…assistantfinal…`.

use std::ops::Range;

use serde_json::{Map, Value};

use super::reasoning::in_string;
use super::{Call, Found, Leniency, Tools, read_arguments};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// What ends a message: its own end, or the beginning of the next.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", START, CHANNEL];
/// Longest header, in bytes.
const LONGEST_HEADER: usize = 400;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reasoning,
    /// To the user.
    Said,
    /// To a tool.
    Call,
}

/// One message of a reply.
pub(super) struct Message<'a> {
    pub(super) kind: Kind,
    /// All of it, with its header and what ends it.
    pub(super) range: Range<usize>,
    pub(super) body: Range<usize>,
    /// Whether something ends it.
    pub(super) is_ended: bool,
    /// The tool that it is for.
    recipient: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// The messages of a reply; `None` where it has no channels.
    pub(super) fn all(reply: &'a str) -> Option<Vec<Self>> {
        if !reply.contains(CHANNEL) {
            return Self::without_tokens(reply);
        }
        let endings: Vec<(usize, &str)> = reply
            .match_indices("<|")
            .filter_map(|(at, _)| {
                let mark = ENDS.iter().find(|end| reply[at..].starts_with(**end))?;
                Some((at, *mark))
            })
            .collect();
        let mut messages: Vec<Self> = Vec::new();
        let mut from = 0;
        while let Some(at) = reply[from..].find(CHANNEL).map(|at| from + at) {
            if messages.is_empty() && in_string(reply, at) {
                // A program that prints it.
                return None;
            }
            // The role, with what ended the message before, and perhaps the recipient.
            let between = &reply[from..at];
            let role = between.rfind(START).map(|start| from + start);
            if messages.is_empty()
                && let Some(role) = role
            {
                messages.extend(Self::begun_in_prompt(reply, role));
            }
            let start = role.unwrap_or(at);
            let after = at + CHANNEL.len();
            let near = reply.floor_char_boundary(reply.len().min(after + LONGEST_HEADER));
            let header_end = reply[after..near].find(MESSAGE).map(|at| after + at);
            let header = &reply[start..header_end.unwrap_or(near)];
            let channel = reply[after..header_end.unwrap_or(near)]
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default();
            let recipient = recipient(header);
            let kind = match (recipient, channel) {
                (Some(_), _) => Kind::Call,
                (None, "analysis") => Kind::Reasoning,
                (None, _) => Kind::Said,
            };
            // A header that breaks off has no body.
            let body = header_end.map_or(reply.len(), |end| end + MESSAGE.len());
            let ending = endings.get(endings.partition_point(|(at, _)| *at < body));
            let body_end = ending.map_or(reply.len(), |(at, _)| *at);
            let end = match ending {
                Some((_, mark)) if ![START, CHANNEL].contains(mark) => body_end + mark.len(),
                _ => body_end,
            };
            messages.push(Message {
                kind,
                range: start..end,
                body: body..body_end,
                is_ended: ending.is_some(),
                recipient,
            });
            from = end;
        }
        Some(messages)
    }

    /// The reasoning that a template opened in the prompt: it ends before the first header.
    fn begun_in_prompt(reply: &str, role: usize) -> Option<Self> {
        let body = reply[..role].find("<|end|>")?;
        Some(Message {
            kind: Kind::Reasoning,
            range: 0..role,
            body: 0..body,
            is_ended: true,
            recipient: None,
        })
    }

    /// The two messages of a reply whose special tokens were left out.
    fn without_tokens(reply: &'a str) -> Option<Vec<Self>> {
        const FIRST: &str = "analysis";
        const SECOND: &str = "assistantfinal";
        let start = reply.len() - reply.trim_start().len();
        let rest = reply[start..].strip_prefix(FIRST)?;
        let body = start + FIRST.len();
        let end = body + rest.find(SECOND)?;
        let said = end + SECOND.len();
        let message = |kind, range: Range<usize>, body| Message {
            kind,
            range,
            body,
            is_ended: true,
            recipient: None,
        };
        Some(vec![
            message(Kind::Reasoning, start..end, body..end),
            message(Kind::Said, end..reply.len(), said..reply.len()),
        ])
    }
}

/// The tool that a header names, without the name of its kind.
fn recipient(header: &str) -> Option<&str> {
    let (_, name) = header.split_once("to=")?;
    let end = name.find(|c: char| c.is_whitespace() || c == '<');
    let name = &name[..end.unwrap_or(name.len())];
    Some(name.strip_prefix("functions.").unwrap_or(name)).filter(|name| !name.is_empty())
}

/// The first call of a reply in Harmony's form. It isn't the form that the harness asks for, so it takes
/// leniency.
pub(super) fn find(reply: &str, tools: &Tools, leniency: Leniency) -> Found {
    let messages = Message::all(reply).unwrap_or_default();
    let Some((message, tool)) = messages
        .iter()
        .find_map(|message| Some((message, message.recipient?)))
    else {
        return Found::Nothing;
    };
    if !leniency.repair_json {
        return Found::Problem("it is written as a message to a tool".into());
    }
    let body = reply[message.body.clone()].trim();
    let arguments = match read_arguments(&Value::from(body), leniency) {
        Ok(read) => read.arguments,
        // The built-in interpreter takes the program as it is.
        Err(reason) => match tools.get(tool).and_then(|tool| tool.code_argument()) {
            Some(argument) if message.is_ended && !body.starts_with('{') && !body.is_empty() => {
                Map::from_iter([(argument.to_owned(), Value::from(body))])
            }
            _ => return Found::Problem(reason),
        },
    };
    Found::Call {
        start: message.range.start,
        call: Call {
            tool: tool.to_owned(),
            arguments,
            end: message.range.end,
            is_repaired: true,
            is_extracted: false,
        },
    }
}
