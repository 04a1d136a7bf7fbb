//! What rules ask a trajectory.

use harness::{CallFormat, Harness, Hook, HookPoint};
use rollout::{Event, ExitReason, StepKind, Trajectory};

use super::facts::Facts;
use super::finding::{At, Finding};
use super::text::{in_json, is_near, last_line, mentions, numbers, values, without_commands};
use super::{memory, middleware, obeyed, told};
use crate::record::{HarnessDim, Severity};

/// Characters of one token, roughly.
pub(super) const CHARS_PER_TOKEN: usize = 4;
/// How the rollout marks an error in a tool result.
const ERROR_MARK: &str = "[error]";
/// Above this temperature, what a model writes is noise.
pub(crate) const NOISY: f64 = 1.0;
/// Forms of an answer that every verifier finds.
pub(super) const ANSWER_FORMS: [&str; 5] = ["boxed", "answer is", "answer:", "####", "<answer>"];

/// A failed trajectory beside the harness that it ran under.
pub(crate) struct View<'a> {
    pub(crate) harness: &'a Harness,
    pub(crate) trajectory: &'a Trajectory,
    pub(super) facts: &'a Facts,
    /// The dimension of the rule that looks; [`HarnessDim::None`] where none does.
    pub(super) dim: HarnessDim,
}

/// What is known beside a rollout that is looked at alone.
static NO_FACTS: Facts = Facts::none();

impl<'a> View<'a> {
    pub(crate) fn new(harness: &'a Harness, trajectory: &'a Trajectory) -> Self {
        View {
            harness,
            trajectory,
            facts: &NO_FACTS,
            dim: HarnessDim::None,
        }
    }

    pub(super) fn steps(&self) -> impl DoubleEndedIterator<Item = At<'a>> {
        let steps = self.trajectory.steps.iter().enumerate();
        steps.map(|(index, step)| At { index, step })
    }

    fn of_kind(&self, kind: StepKind) -> impl DoubleEndedIterator<Item = At<'a>> {
        self.steps()
            .filter(move |at| at.step.kind == kind && !at.text().trim().is_empty())
    }

    /// Texts that the model wrote, in order.
    pub(crate) fn replies(&self) -> impl DoubleEndedIterator<Item = At<'a>> {
        self.of_kind(StepKind::Assistant)
    }

    /// Tool calls, in order.
    pub(crate) fn calls(&self) -> impl DoubleEndedIterator<Item = At<'a>> {
        self.of_kind(StepKind::ToolCall)
    }

    /// Tool results, in order.
    pub(crate) fn results(&self) -> impl DoubleEndedIterator<Item = At<'a>> {
        self.of_kind(StepKind::ToolResult)
    }

    /// The step in which a hook of this kind fired first.
    pub(crate) fn fired(&self, kind: &str) -> Option<At<'a>> {
        self.event(|event| matches!(event, Event::HookFired { hook } if hook == kind))
    }

    pub(crate) fn has_fired(&self, kind: &str) -> bool {
        self.has_event(|event| matches!(event, Event::HookFired { hook } if hook == kind))
    }

    pub(crate) fn first_reply(&self) -> Option<At<'a>> {
        self.replies().next()
    }

    /// The last text of the model, or else the last text of all.
    pub(crate) fn last_words(&self) -> Option<At<'a>> {
        self.replies()
            .next_back()
            .or_else(|| self.steps().rfind(|at| !at.text().trim().is_empty()))
    }

    /// The problem as the model saw it: the last user message before its first reply that no hook
    /// sent.
    pub(crate) fn problem(&self) -> Option<&'a str> {
        let first = self.first_reply().map_or(usize::MAX, |at| at.index);
        self.of_kind(StepKind::User)
            .take_while(|at| at.index < first)
            .filter(|at| self.sender(*at).is_none())
            .last()
            .map(At::text)
    }

    /// The hook that sent a user message: its step stands before the message's, but for what follows a
    /// plan.
    pub(super) fn sender(&self, message: At<'a>) -> Option<&'a str> {
        let before = self.trajectory.steps.get(message.index.checked_sub(1)?)?;
        match &before.event {
            Some(Event::HookFired { hook }) if before.kind == StepKind::Hook => Some(hook),
            _ => (before.kind == StepKind::Assistant).then_some("plan"),
        }
    }

    /// The first step with an event that `is_meant`.
    fn step_with(&self, is_meant: impl Fn(&Event) -> bool) -> Option<At<'a>> {
        self.steps()
            .find(|at| at.step.event.as_ref().is_some_and(&is_meant))
    }

    /// The first step with an event that `is_meant`; where that step has no text, the nearest
    /// earlier one that has.
    pub(crate) fn event(&self, is_meant: impl Fn(&Event) -> bool) -> Option<At<'a>> {
        let found = self.step_with(is_meant)?;
        let mut earlier = self.steps().filter(|at| at.index <= found.index);
        earlier.rfind(|at| !at.text().trim().is_empty())
    }

    pub(crate) fn has_event(&self, is_meant: impl Fn(&Event) -> bool) -> bool {
        self.step_with(is_meant).is_some()
    }

    /// The call whose result has an event that `is_meant`.
    pub(crate) fn call_before(&self, is_meant: impl Fn(&Event) -> bool) -> Option<At<'a>> {
        let found = self.step_with(is_meant)?;
        self.calls().take_while(|at| at.index <= found.index).last()
    }

    pub(crate) fn has_call(&self) -> bool {
        let mut steps = self.trajectory.steps.iter();
        steps.any(|step| step.kind == StepKind::ToolCall)
    }

    /// Whether calls are fenced code blocks.
    pub(super) fn is_fenced(&self) -> bool {
        self.harness.middleware.protocol.call_format == CallFormat::Fenced
    }

    /// Whether a fenced code block is a call, be it by a hook.
    pub(super) fn takes_fences(&self) -> bool {
        self.is_fenced() || self.has_hook(|hook| matches!(hook, Hook::ExtractFencedCode {}))
    }

    /// Whether the model was given a tool and never called it.
    pub(crate) fn ignores_tool(&self) -> bool {
        !self.harness.tools.is_empty() && !self.has_call()
    }

    /// Whether the model tried a call although the loop read none: code in a fence, a tag, or JSON
    /// with arguments.
    pub(crate) fn tries_call(&self) -> bool {
        let is_call = |text: &str| {
            ["```", "<tool_call>", "\"arguments\""]
                .iter()
                .any(|mark| text.contains(mark))
        };
        // Where programs are the answers, a fence is one.
        !self.has_call()
            && !self.answers_with_program()
            && self.replies().any(|at| is_call(at.text()))
    }

    /// Whether the model left the tool alone for no reason that can be seen: nothing speaks against
    /// the tool, no limit cut a call off, no note gave an answer away, and sampling isn't noise.
    pub(crate) fn shuns_tool(&self) -> bool {
        self.ignores_tool()
            && !self.tries_call()
            && !self.answers_with_program()
            && !self.is_cut()
            && self.harness.middleware.sampling.temperature <= NOISY
            && memory::stale_answer(self).is_none()
            && !middleware::is_sent_to_guess(self)
            && !told::anywhere(self, obeyed::speaks_against_tool)
            && !told::anywhere(self, obeyed::asks_first)
            && !told::anywhere(self, obeyed::gives_unread_mark)
    }

    /// Whether a token limit cut a reply.
    pub(crate) fn is_cut(&self) -> bool {
        self.has_event(|event| matches!(event, Event::LengthLimit | Event::ReasoningLimit))
    }

    /// Tokens that the context has room for.
    pub(super) fn context(&self) -> usize {
        self.harness.middleware.context.max_tokens as usize
    }

    /// Whether the rollout ran out of tokens.
    pub(super) fn is_out_of_tokens(&self) -> bool {
        let exit = &self.trajectory.exit;
        matches!(exit, ExitReason::TokenBudget | ExitReason::ContextLimit)
    }

    /// The last words of a rollout that ran out of tokens, where `characters` of one kind of text take
    /// more than half of a context that isn't too short itself.
    pub(super) fn fills_context(&self, characters: usize) -> Option<Finding> {
        const LONG: usize = 1024;
        let is_long = characters / CHARS_PER_TOKEN > (self.context() / 2).max(LONG);
        let finding = self.last_words()?.last_line(Severity::High);
        finding.filter(|_| is_long && self.is_out_of_tokens())
    }

    /// Whether part of a tool's output was kept from the model.
    pub(crate) fn is_output_cut(&self) -> bool {
        self.has_event(|event| match event {
            Event::HookFired { hook } => hook == "truncate_output" || hook == "compact",
            event => matches!(event, Event::OutputTruncated),
        })
    }

    /// Whether prompts or examples show a form of the answer that every verifier finds.
    pub(crate) fn tells_answer_form(&self) -> bool {
        let prompts = &self.harness.prompts;
        let examples = prompts.examples.iter().map(|example| &example.answer);
        let texts = [&prompts.system, &prompts.task, &prompts.final_answer];
        texts
            .into_iter()
            .chain(examples)
            .any(|text| mentions(text, &ANSWER_FORMS))
    }

    /// The first step of the harness, not of the model, that says `text`, be it in a string of JSON.
    pub(crate) fn said(&self, text: &str) -> Option<At<'a>> {
        let quoted = in_json(text);
        let is_said = |step: &str| {
            step.contains(text) || quoted.as_ref().is_some_and(|text| step.contains(text))
        };
        self.steps().find(|at| {
            let is_own = matches!(at.step.kind, StepKind::Assistant | StepKind::ToolCall);
            !is_own && is_said(at.text())
        })
    }

    /// The tool that a call went to.
    pub(crate) fn tool_of(&self, call: At<'_>) -> Option<&'a str> {
        let messages = self.trajectory.messages.iter().rev();
        let mut calls = messages.flat_map(|message| &message.tool_calls);
        let given = calls.find(|known| {
            let mut arguments = known.arguments.values();
            arguments.any(|argument| argument.as_str() == Some(call.text()))
        });
        given.map(|call| call.tool.as_str())
    }

    /// The number that the tool printed last.
    pub(crate) fn printed_number(&self) -> Option<f64> {
        let result = self.last_good_result()?;
        numbers(last_line(self.output(result))?).last().copied()
    }

    /// The number that the tool printed last and the one that was answered, if they differ.
    pub(crate) fn differing_numbers(&self) -> Option<(f64, f64)> {
        let printed = self.printed_number()?;
        let answer = self.value()?;
        let last = *numbers(answer).last()?;
        let is_same = values(answer).iter().any(|value| is_near(*value, printed));
        (!is_same).then_some((printed, last))
    }

    /// A tool result whose error says that a name or a module doesn't exist, and that name.
    pub(crate) fn missing_name(&self) -> Option<(At<'a>, &'a str)> {
        const BEFORE: [&str; 3] = ["No module named '", "cannot import name '", "name '"];
        self.of_kind(StepKind::ToolResult).find_map(|at| {
            let is_error = at.text().contains(ERROR_MARK);
            let name = BEFORE.iter().find_map(|before| {
                let (_, rest) = at.text().split_once(before)?;
                let (name, _) = rest.split_once('\'')?;
                (!name.is_empty()).then_some(name)
            });
            name.filter(|_| is_error).map(|name| (at, name))
        })
    }

    /// The last tool result that carries output and no error.
    pub(crate) fn last_good_result(&self) -> Option<At<'a>> {
        self.good_results().next_back()
    }

    /// Tool results that carry output and no error, in order.
    pub(super) fn good_results(&self) -> impl DoubleEndedIterator<Item = At<'a>> {
        self.of_kind(StepKind::ToolResult).filter(|at| {
            let is_marked = matches!(
                at.step.event,
                Some(Event::ToolError { .. } | Event::EmptyOutput)
            );
            // A call that never ran is answered with an error or with a reminder, and its event
            // stands at the call.
            let is_error = at.text().lines().any(|line| line.starts_with(ERROR_MARK));
            let is_reminder = self.has_hook(
                |hook| matches!(hook, Hook::DetectRepeat { message } if message == at.text()),
            );
            !is_marked && !is_error && !is_reminder
        })
    }

    /// What the program printed, without what hooks appended to the result.
    pub(crate) fn output(&self, result: At<'a>) -> &'a str {
        let mut text = result.text().trim_end();
        for hook in self.harness.middleware.hooks.post_tool_call.iter().rev() {
            if let Hook::AppendMessage { message } = hook {
                text = text
                    .strip_suffix(message.trim_end())
                    .unwrap_or(text)
                    .trim_end();
            }
        }
        text
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.trajectory.answer.is_some()
    }

    /// The answer, where it is a value that may be compared with what was said and printed; a
    /// program isn't.
    pub(crate) fn value(&self) -> Option<&'a str> {
        let answer = self.trajectory.answer.as_deref();
        answer.filter(|_| !self.answers_with_program())
    }

    /// Whether the verifier judges programs.
    pub(crate) fn answers_with_program(&self) -> bool {
        matches!(
            self.trajectory.verdict.rule.as_str(),
            "python_block" | "code_block"
        )
    }

    /// Whether the model's text itself calls something its answer, or is nothing else. A number that
    /// the verifier picked out of prose, or a tool's last line, is an answer that nobody stated.
    pub(crate) fn states_answer(&self) -> bool {
        const STATED: [&str; 4] = ["boxed", "answer_is", "answer_tag", "whole"];
        let rule = &self.trajectory.verdict.rule;
        let is_explicit = STATED.iter().any(|stated| rule.starts_with(stated));
        self.has_answer() && (is_explicit || self.answers_with_program())
    }

    /// Whether the answer has words or an equation beside a number.
    pub(crate) fn answer_has_words(&self) -> bool {
        let answer = without_commands(self.value().unwrap_or_default());
        let answer = answer.trim();
        let letters = answer.chars().filter(|c| c.is_alphabetic()).count();
        let is_worded = answer.split_whitespace().count() > 1 && letters > 2;
        !numbers(answer).is_empty() && (is_worded || answer.contains('='))
    }

    /// Whether any step has an event that tells of a fault.
    pub(crate) fn has_fault(&self) -> bool {
        self.has_event(|event| {
            !matches!(event, Event::HookFired { .. } | Event::TextAfterCall { .. })
        })
    }

    pub(crate) fn has_hook(&self, is_meant: impl Fn(&Hook) -> bool) -> bool {
        let hooks = &self.harness.middleware.hooks;
        HookPoint::ALL
            .into_iter()
            .any(|point| hooks.at(point).iter().any(&is_meant))
    }

    /// Whether a program of an example prints.
    pub(crate) fn shows_print(&self) -> bool {
        let examples = self.harness.prompts.examples.iter();
        let mut steps = examples.flat_map(|example| &example.steps);
        steps.any(|step| step.arguments.values().any(|code| code.contains("print(")))
    }

    /// Whether an example of the harness calls a tool.
    pub(crate) fn shows_call(&self) -> bool {
        let mut examples = self.harness.prompts.examples.iter();
        examples.any(|example| !example.steps.is_empty())
    }
}
