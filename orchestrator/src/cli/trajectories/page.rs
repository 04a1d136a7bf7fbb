//! One rollout as a page of text.

use rollout::trajectory::{
    Event, ExitReason, Message, ModelCall, Role, Step, StepKind, ToolCall, Trajectory,
};

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
        for step in &self.trajectory.steps {
            let call = (step.kind == StepKind::Assistant)
                .then(|| calls.next())
                .flatten();
            if step.kind == StepKind::Assistant {
                last_reply = &step.text;
            }
            if step.text.is_empty() && !matches!(step.kind, StepKind::Assistant | StepKind::Hook) {
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
            Event::ToolError { exit } => format!(": {exit:?}"),
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
