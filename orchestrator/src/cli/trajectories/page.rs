//! One rollout as a page of text.

use rollout::trajectory::{
    Event, ExitReason, Message, ModelCall, Role, Step, StepKind, ToolCall, Trajectory,
};
use sandbox::Exit;

use crate::cli::paint::{Paint, Tone, shown};
use crate::cli::table;
use crate::counted::counted;
use crate::store::TrajectoryRow;

/// One rollout as a page of text.
pub(super) struct Page<'a> {
    pub(super) paint: Paint,
    pub(super) trajectory: &'a Trajectory,
    pub(super) row: &'a TrajectoryRow,
    /// Name of the harness version.
    pub(super) harness: String,
    /// What it was judged by, where that is known.
    pub(super) gold: Option<String>,
}

impl Page<'_> {
    /// The page, with the conversation as the policy saw it in the place of the steps if it `has_messages`.
    pub(super) fn text(&self, has_messages: bool) -> String {
        let mut parts = vec![self.head()];
        if has_messages {
            parts.extend(
                self.trajectory
                    .messages
                    .iter()
                    .map(|message| self.message(message)),
            );
        } else {
            parts.extend(self.steps());
        }
        parts.push(self.verdict());
        parts.join("\n\n")
    }

    fn head(&self) -> String {
        let (paint, trajectory) = (self.paint, self.trajectory);
        let round = match self.row.round {
            Some(0) => "outside the rounds".to_owned(),
            Some(round) => format!("round {round}"),
            None => "round unknown".to_owned(),
        };
        let usage = &trajectory.usage;
        let about = if usage.is_estimated { "about " } else { "" };
        let replies = counted(trajectory.model_calls.len(), "reply");
        let facts = [
            ("rollout", trajectory.id.as_str().to_owned()),
            (
                "problem",
                format!("{} · {} · {round}", trajectory.task, self.row.split),
            ),
            ("harness", self.harness.clone()),
            (
                "policy",
                format!("{} · seed {}", trajectory.policy, trajectory.seed),
            ),
            ("sandbox", trajectory.sandbox_level.clone()),
            (
                "cost",
                format!(
                    "{about}{} generated ({} reasoning), {} of prompts, {replies}, {}.{:03} s",
                    counted(usage.completion_tokens, "token"),
                    usage.reasoning_tokens,
                    usage.prompt_tokens,
                    trajectory.wall_ms / 1000,
                    trajectory.wall_ms % 1000,
                ),
            ),
        ];
        let lines = facts.iter().map(|(name, value)| {
            format!(
                "{} {}",
                paint.tone(Tone::Faint, &format!("{name:<8}")),
                shown(value)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What happened, step by step; what belongs to the step before it stands below that.
    fn steps(&self) -> Vec<String> {
        let mut calls = self.trajectory.model_calls.iter();
        let mut parts: Vec<String> = Vec::new();
        let mut last_reply = "";
        let mut before: Option<&Step> = None;
        for step in &self.trajectory.steps {
            let is_note = belongs_to(step, before.replace(step));
            if is_note {
                let note = step.event.as_ref().map(|event| self.note(event));
                match (parts.last_mut(), note) {
                    (Some(part), Some(note)) => {
                        part.push('\n');
                        part.push_str(&note);
                    }
                    (None, Some(note)) => parts.push(note),
                    (_, None) => {}
                }
                continue;
            }
            let mut call = None;
            if step.kind == StepKind::Assistant {
                call = calls.next();
                last_reply = &step.text;
            }
            parts.push(self.step(step, call, last_reply));
        }
        parts
    }

    fn step(&self, step: &Step, call: Option<&ModelCall>, last_reply: &str) -> String {
        let paint = self.paint;
        let (tone, title) = match step.kind {
            StepKind::System => (Tone::Heading, "system".to_owned()),
            StepKind::User => (Tone::Heading, "user".to_owned()),
            StepKind::Assistant => {
                let tokens = call.map(|call| counted(call.usage.completion_tokens, "token"));
                let tokens = tokens.map(|tokens| format!(" · {tokens}"));
                (
                    Tone::Assistant,
                    format!("assistant{}", tokens.unwrap_or_default()),
                )
            }
            StepKind::ToolCall => (Tone::Tool, "calls the tool".to_owned()),
            StepKind::ToolResult => (Tone::Tool, "result".to_owned()),
            StepKind::Hook => {
                let hook = step.event.as_ref().map_or("hook", Event::name);
                let text = paint.wrapped(&step.text, "  ");
                return format!(
                    "{}\n{text}",
                    paint.tone(Tone::Note, &format!("▸ hook {hook}"))
                );
            }
            StepKind::Final => (Tone::Heading, "answer".to_owned()),
        };
        let mut lines = vec![paint.rule(tone, &title)];
        if let Some(call) = call.filter(|call| !call.reasoning.is_empty()) {
            let reasoning = paint.wrapped(&call.reasoning, "  ┊ ");
            lines.push(paint.tone(Tone::Faint, &reasoning));
        }
        let is_program_above = step.kind == StepKind::ToolCall && last_reply.contains(&step.text);
        if is_program_above {
            lines.push(paint.tone(Tone::Faint, "  with the program above"));
        } else if !step.text.is_empty() {
            let margin = if step.kind == StepKind::ToolCall {
                "  │ "
            } else {
                "  "
            };
            lines.push(paint.wrapped(&step.text, margin));
        }
        if let Some(word) = call.and_then(|call| call.finish_reason.as_deref()) {
            let note = format!("▸ the server ended it with {}", shown(word));
            lines.push(paint.tone(Tone::Note, &note));
        }
        lines.extend(step.event.as_ref().map(|event| self.note(event)));
        lines.join("\n")
    }

    fn note(&self, event: &Event) -> String {
        let detail = match event {
            Event::UnparsableCall { reason } | Event::BadArguments { reason } => {
                format!(": {reason}")
            }
            Event::UnknownTool { name } => format!(": {name}"),
            Event::CallsNotRun { count } => format!(": {}", counted(count, "call")),
            Event::TextAfterCall { characters } => {
                format!(": {}", counted(characters, "character"))
            }
            Event::ToolError { exit } => format!(": {}", ended(exit)),
            _ => String::new(),
        };
        let text = format!("▸ {}{}", event.name().replace('_', " "), shown(&detail));
        self.paint.tone(Tone::Note, &text)
    }

    fn message(&self, message: &Message) -> String {
        let paint = self.paint;
        let (tone, role) = match message.role {
            Role::System => (Tone::Heading, "system"),
            Role::User => (Tone::Heading, "user"),
            Role::Assistant => (Tone::Assistant, "assistant"),
            Role::Tool => (Tone::Tool, "tool"),
        };
        let title = match (message.role, message.train) {
            (Role::Assistant, false) => format!("{role} · not the policy's own, or cut"),
            _ => role.to_owned(),
        };
        let mut lines = vec![paint.rule(tone, &title)];
        if !message.content.is_empty() {
            lines.push(paint.wrapped(&message.content, "  "));
        }
        let native: &[ToolCall] = if message.is_native {
            &message.tool_calls
        } else {
            &[]
        };
        for call in native {
            lines.push(paint.tone(Tone::Tool, &format!("  → {}", shown(&call.tool))));
            for (name, value) in &call.arguments {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                lines.push(paint.tone(Tone::Faint, &format!("    {}:", shown(name))));
                lines.push(paint.wrapped(&text, "    │ "));
            }
        }
        lines.join("\n")
    }

    fn verdict(&self) -> String {
        let (paint, trajectory) = (self.paint, self.trajectory);
        let verdict = &trajectory.verdict;
        let (tone, word) = match (verdict.correct, &trajectory.answer) {
            (true, _) => (Tone::Good, "✓ correct"),
            _ if trajectory.exit.is_infrastructure() => (Tone::Faint, "– left out"),
            _ if verdict.undecided => (Tone::Faint, "? undecided"),
            (false, Some(_)) => (Tone::Bad, "✗ wrong"),
            (false, None) => (Tone::Bad, "✗ no answer"),
        };
        let answer = trajectory.answer.as_deref().map(|answer| {
            format!(
                " · answer {} (found by {})",
                table::shorten(&shown(answer), 60),
                verdict.rule
            )
        });
        let reason = match &trajectory.exit {
            ExitReason::Infrastructure { reason, .. } => format!(": {}", shown(reason)),
            _ => String::new(),
        };
        let exit = format!(" · exit {}{reason}", trajectory.exit.name());
        let rest = format!("{}{exit}", answer.unwrap_or_default());
        let gold = self.gold.as_ref().map(|gold| format!("\n  {gold}"));
        format!(
            "{}{rest}{}",
            paint.tone(tone, word),
            gold.unwrap_or_default()
        )
    }
}

/// Whether a step without a text is about the step before it.
fn belongs_to(step: &Step, before: Option<&Step>) -> bool {
    step.text.is_empty()
        && match step.kind {
            // A reply may be empty, but none follows another one directly.
            StepKind::Assistant => before.is_some_and(|before| before.kind == StepKind::Assistant),
            // What a hook did always has a text.
            StepKind::Hook => !matches!(step.event, None | Some(Event::HookFired { .. })),
            _ => true,
        }
}

/// How a program ended that failed.
fn ended(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::TimedOut => "timed out".to_owned(),
        Exit::OutOfMemory => "out of memory".to_owned(),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use rollout::policy::Finish;
    use rollout::trajectory::Usage;

    use super::*;
    use crate::cli::paint::ColorChoice;
    use crate::rollouts::testing::trajectory;

    fn call(completion_tokens: u64) -> ModelCall {
        ModelCall {
            seed: 0,
            prompt_ids: Vec::new(),
            output_ids: Vec::new(),
            logprobs: Vec::new(),
            usage: Usage {
                completion_tokens,
                ..Usage::default()
            },
            finish: Finish::Stop,
            finish_reason: None,
            reasoning: String::new(),
        }
    }

    /// The steps of a rollout, as the page shows them.
    fn page_of(steps: Vec<Step>, calls: &[u64]) -> String {
        let mut trajectory = trajectory();
        trajectory.steps = steps;
        trajectory.model_calls = calls.iter().copied().map(call).collect();
        let row = TrajectoryRow {
            id: trajectory.id.as_str().to_owned(),
            task: "t".into(),
            split: "gate".into(),
            harness: String::new(),
            policy: String::new(),
            correct: false,
            exit: "answered".into(),
            completion_tokens: 0,
            wall_ms: 1,
            round: None,
            done_at: None,
        };
        let page = Page {
            paint: Paint::for_stdout(ColorChoice::Never),
            trajectory: &trajectory,
            row: &row,
            harness: "v1".into(),
            gold: None,
        };
        page.steps().join("\n\n")
    }

    fn step(kind: StepKind, text: &str, event: Option<Event>) -> Step {
        Step {
            kind,
            text: text.into(),
            event,
        }
    }

    #[test]
    fn all_that_is_remarkable_about_a_reply_stands_below_it() {
        let characters = 7;
        let steps = vec![
            step(StepKind::Assistant, "One.", Some(Event::LengthLimit)),
            step(StepKind::Assistant, "", Some(Event::NoToolCall)),
            step(
                StepKind::Assistant,
                "",
                Some(Event::TextAfterCall { characters }),
            ),
            step(StepKind::User, "Go on.", None),
            // A reply of nothing is one all the same.
            step(StepKind::Assistant, "", Some(Event::NoToolCall)),
        ];
        let shown = page_of(steps, &[11, 22]);
        let replies: Vec<&str> = shown.split("── assistant · ").skip(1).collect();
        assert_eq!(replies.len(), 2, "{shown}");
        assert!(replies[0].starts_with("11 tokens"), "{shown}");
        let notes = "One.\n▸ length limit\n▸ no tool call\n▸ text after call: 7 characters\n";
        assert!(replies[0].contains(notes), "{shown}");
        assert!(replies[1].starts_with("22 tokens"), "{shown}");
        assert!(replies[1].ends_with("\n▸ no tool call"), "{shown}");
    }

    #[test]
    fn a_programs_end_is_told_in_words_also_below_a_hook() {
        let hook = Event::HookFired {
            hook: "error_hint".into(),
        };
        let failed = |exit| Some(Event::ToolError { exit });
        let steps = vec![
            step(StepKind::ToolResult, "[error] x", failed(Exit::Code(1))),
            step(StepKind::ToolResult, "", failed(Exit::TimedOut)),
            step(StepKind::Hook, "Try again.", Some(hook)),
            step(StepKind::Hook, "", failed(Exit::Signal(9))),
        ];
        let shown = page_of(steps, &[]);
        for part in [
            "\n▸ tool error: exit code 1\n▸ tool error: timed out\n\n▸ hook error_hint\n",
            "Try again.\n▸ tool error: killed by signal 9",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
    }
}
