//! What a rule has seen, and the step that shows it.

use harness::PatchOp;
use rollout::Step;

use super::text::last_line;
use crate::record::Severity;

/// Longest quote, in characters.
const QUOTE_CHARS: usize = 200;

/// What a rule has seen.
pub(crate) struct Finding {
    pub(super) severity: Severity,
    pub(super) step: usize,
    pub(super) quote: String,
    /// A suggestion made for this trajectory; otherwise the rule's first repair is suggested.
    pub(super) ops: Option<Vec<PatchOp>>,
}

impl Finding {
    /// The same with another severity.
    pub(super) fn rated(self, severity: Severity) -> Self {
        Finding { severity, ..self }
    }

    /// The same with another suggestion.
    pub(super) fn suggesting(self, ops: Option<Vec<PatchOp>>) -> Self {
        Finding { ops, ..self }
    }
}

/// One step and its index.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) index: usize,
    pub(crate) step: &'a Step,
}

impl<'a> At<'a> {
    pub(crate) fn text(self) -> &'a str {
        &self.step.text
    }

    /// A finding that quotes the step's first line.
    pub(crate) fn first_line(self, severity: Severity) -> Option<Finding> {
        self.line(severity, |line| !line.trim().is_empty())
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
