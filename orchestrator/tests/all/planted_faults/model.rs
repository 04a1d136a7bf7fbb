//! A model that plays by rules: it reads the conversation as any model would, and nothing else.
//!
//! It never sees a harness, a gold answer or a fault's name: [`Policy::complete`] gives it messages.
//! What it can and can't do is written down here once, for all faults:
//!
//! - It understands each kind of problem and turns it into a program, but for what has to be told:
//!   how percentages work, how long the way around a rectangle is, that a program must print, to take
//!   problems with three numbers apart. A formula or a function that it is given it takes as it is.
//!   One problem in ten it misreads, whatever the harness says. Numbers it takes in the order in which
//!   the message with the problem gives them.
//! - Of instructions that contradict each other it obeys the last one. Instructions count more than
//!   examples, examples more than nothing.
//! - It calls the tool if it is told to, and else calculates in its head, wrongly.
//! - It writes a call in the form of the last example, and where that has a result in the same reply,
//!   it makes up one. Without any it can write a fenced block; where JSON is described it writes a
//!   fenced block all the same, and where tags are described it forgets a brace. Told of other marks
//!   around programs it writes those. The program's argument it calls as the last example does.
//! - It writes programs in the language that was spoken of last, and shows values by the function that
//!   was. Told to write a function it writes one and doesn't call it; told to escape line breaks it
//!   writes them so in a fence.
//! - After an error or an empty result it does the same again, unless it is told what to do.
//! - It takes the printed number from a line of its own, if there is none from an earlier result, and
//!   gives up without one.
//! - It gives the answer in the form it is told, with whatever it is told to do to the number; told that
//!   answers are handed in, by a call of the tool that takes them.
//! - Granted one call it makes no other after a result.
//! - Asked for a plan it writes one; asked for nothing but an answer it gives one; told to ask first,
//!   it asks.
//! - It believes notes.
//! - Held to a grammar, it can't but write calls that are whole, of a tool that there is, with arguments of
//!   the right types.
//! - Four characters are a token. Above temperature 1 it talks nonsense now and then.
//!
//! How it understands problems is in `understanding.rs`, what it makes of single sentences in
//! `reading.rs`, what it does next in `mind.rs`, and how it puts that in `writing.rs` and `answering.rs`.

use rollout::{
    BoxFuture, Completion, CompletionRequest, Finish, Message, Policy, PolicyError, PolicyId, Role,
    Usage,
};

use super::mind::Mind;
use super::understanding::Problem;

const CHARS_PER_TOKEN: usize = 4;

/// The model.
pub(crate) struct Reader {
    id: PolicyId,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Reader {
            id: PolicyId::new("reader"),
        }
    }
}

impl Policy for Reader {
    fn id(&self) -> &PolicyId {
        &self.id
    }

    fn follows_grammars(&self) -> bool {
        true
    }

    fn complete(
        &self,
        request: CompletionRequest,
    ) -> BoxFuture<'_, Result<Completion, PolicyError>> {
        Box::pin(async move {
            let characters: usize = request
                .messages
                .iter()
                .map(|message| message.content.chars().count())
                .sum();
            let prompt_tokens = characters.div_ceil(CHARS_PER_TOKEN) as u64;
            if prompt_tokens + 16 > u64::from(request.context_tokens) {
                let reason = format!("{prompt_tokens} tokens of {}", request.context_tokens);
                return Err(PolicyError::ContextOverflow { reason });
            }
            let mut text = if is_noise(&request) {
                "Perhaps, and then again perhaps not, as numbers have it.".to_owned()
            } else {
                reply(&request.messages, request.grammar.is_some())
            };
            let mut finish = Finish::Stop;
            let stops = request
                .stop
                .iter()
                .filter_map(|stop| text.find(stop.as_str()));
            if let Some(end) = stops.min() {
                text.truncate(end);
                finish = Finish::StopString;
            }
            let most = request.max_tokens as usize * CHARS_PER_TOKEN;
            if let Some((end, _)) = text.char_indices().nth(most) {
                text.truncate(end);
                finish = Finish::Length;
            }
            let completion_tokens = text.chars().count().div_ceil(CHARS_PER_TOKEN).max(1) as u64;
            Ok(Completion {
                text,
                reasoning: String::new(),
                finish,
                finish_reason: None,
                prompt_ids: Vec::new(),
                output_ids: Vec::new(),
                logprobs: Vec::new(),
                usage: Usage {
                    prompt_tokens,
                    completion_tokens,
                    ..Usage::default()
                },
                tool_calls: Vec::new(),
            })
        })
    }
}

/// Above temperature 1, a share of replies is nonsense.
fn is_noise(request: &CompletionRequest) -> bool {
    let share = (request.temperature - 1.0).max(0.0) * 2.0;
    (request.seed >> 40) as f64 / f64::from(1 << 24) < share
}

fn reply(messages: &[Message], is_held: bool) -> String {
    let system = match messages.first() {
        Some(message) if message.role == Role::System => message.content.as_str(),
        _ => "",
    };
    let last = messages
        .last()
        .map_or("", |message| message.content.as_str());
    if last.starts_with("Problem:") && last.contains("Solution:") {
        return check(system);
    }
    let is_problem =
        |message: &Message| message.role == Role::User && Problem::read(&message.content).is_some();
    let Some(at) = messages.iter().rposition(is_problem) else {
        return "What is the question?".to_owned();
    };
    let start = usize::from(!system.is_empty());
    let Some(problem) = Problem::read(&messages[at].content) else {
        return String::new();
    };
    let mind = Mind {
        system,
        examples: &messages[start..at],
        task: &messages[at].content,
        later: &messages[at + 1..],
        problem,
        is_held,
    };
    mind.reply()
}

/// The reply to a request to check a solution: whatever the prompt offers first.
fn check(prompt: &str) -> String {
    let words: Vec<&str> = prompt
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| matches!(*word, "RIGHT" | "WRONG"))
        .collect();
    format!("I have read it.\n{}", words.first().unwrap_or(&"RIGHT"))
}
