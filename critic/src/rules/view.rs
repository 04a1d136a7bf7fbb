//! What rules ask a trajectory.

use harness::{Harness, Hook, HookPoint};
use rollout::{Event, ExitReason, Step, StepKind, Trajectory};

use super::facts::Facts;
use super::{Finding, memory, middleware, told};
use crate::record::Severity;

/// Longest quote, in characters.
const QUOTE_CHARS: usize = 200;

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
}

/// What is known beside a rollout that is looked at alone.
static NO_FACTS: Facts = Facts::none();

/// One step and its index.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) index: usize,
    pub(crate) step: &'a Step,
}

impl<'a> View<'a> {
    pub(crate) fn new(harness: &'a Harness, trajectory: &'a Trajectory) -> Self {
        View::beside(&NO_FACTS, harness, trajectory)
    }

    /// The same beside what other rollouts of the harness show.
    pub(super) fn beside(
        facts: &'a Facts,
        harness: &'a Harness,
        trajectory: &'a Trajectory,
    ) -> Self {
        View {
            harness,
            trajectory,
            facts,
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

    /// The first step with an event that `is_meant`; where that step has no text, the nearest
    /// earlier one that has.
    pub(crate) fn event(&self, is_meant: impl Fn(&Event) -> bool) -> Option<At<'a>> {
        let found = self
            .steps()
            .find(|at| at.step.event.as_ref().is_some_and(&is_meant))?;
        let mut earlier = self.steps().filter(|at| at.index <= found.index);
        earlier.rfind(|at| !at.text().trim().is_empty())
    }

    pub(crate) fn has_event(&self, is_meant: impl Fn(&Event) -> bool) -> bool {
        self.trajectory
            .steps
            .iter()
            .any(|step| step.event.as_ref().is_some_and(&is_meant))
    }

    /// The call whose result has an event that `is_meant`.
    pub(crate) fn call_before(&self, is_meant: impl Fn(&Event) -> bool) -> Option<At<'a>> {
        let found = self
            .steps()
            .find(|at| at.step.event.as_ref().is_some_and(&is_meant))?;
        self.calls().take_while(|at| at.index <= found.index).last()
    }

    pub(crate) fn has_call(&self) -> bool {
        self.trajectory
            .steps
            .iter()
            .any(|step| step.kind == StepKind::ToolCall)
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
            && !told::has_word_against_tool(self)
            && !told::has_unread_mark(self)
    }

    /// Whether a token limit cut a reply.
    pub(crate) fn is_cut(&self) -> bool {
        self.has_event(|event| matches!(event, Event::LengthLimit | Event::ReasoningLimit))
    }

    /// The last words of a rollout that ran out of tokens, where `characters` of one kind of text take
    /// more than half of a context that isn't too short itself.
    pub(super) fn fills_context(&self, characters: usize) -> Option<Finding> {
        const CHARS_PER_TOKEN: usize = 4;
        const LONG: usize = 1024;
        let context = self.harness.middleware.context.max_tokens as usize;
        let is_out = matches!(
            self.trajectory.exit,
            ExitReason::TokenBudget | ExitReason::ContextLimit
        );
        let is_met = is_out && characters / CHARS_PER_TOKEN > (context / 2).max(LONG);
        is_met
            .then(|| self.last_words()?.last_line(Severity::High))
            .flatten()
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

    /// The first step of the harness, not of the model, that says `text`.
    pub(crate) fn said(&self, text: &str) -> Option<At<'a>> {
        self.steps().find(|at| {
            let is_own = matches!(at.step.kind, StepKind::Assistant | StepKind::ToolCall);
            !is_own && at.text().contains(text)
        })
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
        self.harness
            .prompts
            .examples
            .iter()
            .any(|example| !example.steps.is_empty())
    }
}

impl<'a> At<'a> {
    pub(crate) fn text(self) -> &'a str {
        &self.step.text
    }

    /// A finding that quotes the step's first line.
    pub(crate) fn first_line(self, severity: Severity) -> Option<Finding> {
        self.quote(
            severity,
            self.text().lines().find(|line| !line.trim().is_empty())?,
        )
    }

    /// A finding that quotes the step's last line.
    pub(crate) fn last_line(self, severity: Severity) -> Option<Finding> {
        self.quote(severity, last_line(self.text())?)
    }

    /// A finding that quotes the first line that `is_meant`.
    pub(crate) fn line(
        self,
        severity: Severity,
        is_meant: impl Fn(&str) -> bool,
    ) -> Option<Finding> {
        self.quote(severity, self.text().lines().find(|line| is_meant(line))?)
    }

    /// A finding that quotes `line`, which stands in the step.
    pub(crate) fn quote(self, severity: Severity, line: &str) -> Option<Finding> {
        let line = line.trim();
        let end = line
            .char_indices()
            .nth(QUOTE_CHARS)
            .map_or(line.len(), |(at, _)| at);
        let quote = line[..end].trim_end().to_owned();
        (!quote.is_empty()).then_some(Finding {
            severity,
            step: self.index,
            quote,
            ops: None,
        })
    }
}

/// Whether a line works something out.
pub(crate) fn is_calculation(line: &str) -> bool {
    line.contains('=') && numbers(line).len() >= 2
}

/// The last line with text.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
}

/// The numbers in `text`, in order; thousands may be set off by commas.
pub(crate) fn numbers(text: &str) -> Vec<f64> {
    let chars: Vec<char> = text.chars().collect();
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        // A minus directly before the digits that doesn't subtract from what stands before it.
        let is_negative = at > 0
            && chars[at - 1] == '-'
            && (at < 2 || !(chars[at - 2].is_alphanumeric() || chars[at - 2] == ')'));
        let mut digits = String::new();
        while is_digit(at) || (matches!(chars.get(at), Some('.' | ',')) && is_digit(at + 1)) {
            if chars[at] != ',' {
                digits.push(chars[at]);
            }
            at += 1;
        }
        if let Ok(number) = digits.parse::<f64>() {
            numbers.push(if is_negative { -number } else { number });
        }
    }
    numbers
}

/// The numbers in an answer, and what a fraction or a percentage of them comes to.
pub(crate) fn values(answer: &str) -> Vec<f64> {
    let mut values = numbers(answer);
    let is_fraction = answer.contains('/') || answer.contains("frac");
    let whole = match values.as_slice() {
        [above, below] if is_fraction && *below != 0.0 => Some(above / below),
        [percent] if answer.contains('%') => Some(percent / 100.0),
        _ => None,
    };
    values.extend(whole);
    values
}

/// Whether two numbers are one but for the last digits of floating point.
pub(crate) fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Whether `rounded` is `exact`, or `exact` with fewer digits.
pub(crate) fn is_rounding(exact: f64, rounded: f64) -> bool {
    let is_rounded = |digits: i32| {
        let scale = 10f64.powi(digits);
        is_near((exact * scale).round() / scale, rounded)
    };
    is_near(exact, rounded) || (0..=6).any(is_rounded)
}

/// A text without the names of LaTeX's commands, which are no words.
fn without_commands(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
    }
    rest
}

/// Whether a text ends in words that it says over and over. The last one may be cut.
pub(crate) fn ends_in_circles(text: &str) -> bool {
    const LONGEST: usize = 40;
    const FEWEST_WORDS: usize = 9;
    const FEWEST_TIMES: usize = 3;
    let words: Vec<&str> = text.split_whitespace().collect();
    (0..=1).any(|cut| {
        let words = &words[..words.len().saturating_sub(cut)];
        (1..=LONGEST).any(|period| {
            let mut blocks = words.rchunks_exact(period);
            let Some(last) = blocks.next() else {
                return false;
            };
            let times = 1 + blocks.take_while(|block| *block == last).count();
            times >= FEWEST_TIMES && times * period >= FEWEST_WORDS
        })
    })
}

/// Whether `text` holds one of `words`, whatever the case.
pub(crate) fn mentions(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Whether `word` stands in `text` as a whole word, in this case.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    word_places(text, word).next().is_some()
}

/// What stands before and after `word`, wherever it stands in `text` as a whole word.
pub(crate) fn word_places<'a>(
    text: &'a str,
    word: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).filter_map(move |(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        let is_within = before.chars().next_back().is_some_and(is_part)
            || after.chars().next().is_some_and(is_part);
        (!is_within).then_some((before, after))
    })
}
