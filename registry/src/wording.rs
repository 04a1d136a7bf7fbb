//! What each kind of commit says, and reading it back.

use std::fmt::Write as _;

use harness::{HarnessId, Patch};

use crate::delta::Delta;
use crate::error::RegistryError;
use crate::id::{CommitId, VersionName};
use crate::message::{Message, cut_subject, one_line, paragraphs, required};
use crate::record::{Acceptance, Decision, Origin, Pairing, PairingRecord, Provenance, Rejection};

/// The trailers' keys. A reader of `git log` sees these.
mod key {
    pub(super) const ADAPTER: &str = "Adapter";
    pub(super) const DELTA_IN: &str = "Delta-In";
    pub(super) const DELTA_OUT: &str = "Delta-Out";
    pub(super) const GATE_DETAIL: &str = "Gate-Detail";
    pub(super) const GATE_MODE: &str = "Gate-Mode";
    pub(super) const HARNESS_DIM: &str = "Harness-Dim";
    pub(super) const HARNESS_ID: &str = "Harness-Id";
    pub(super) const MODEL: &str = "Model";
    pub(super) const PATCH: &str = "Patch";
    pub(super) const REASON: &str = "Reason";
    pub(super) const REMOVES: &str = "Removes";
    pub(super) const ROLLBACK_TO: &str = "Rollback-To";
    pub(super) const ROOT_CAUSE: &str = "Root-Cause";
    pub(super) const ROUND: &str = "Round";
    pub(super) const RUN: &str = "Run";
    pub(super) const SEVERITY: &str = "Severity";
    pub(super) const SOURCE: &str = "Source";
    pub(super) const VERDICT: &str = "Verdict";
}

/// The patch's summary, or its first operation where the critic gave none.
fn patch_summary(patch: &Patch) -> String {
    let summary = one_line(&patch.summary);
    match patch.ops.first() {
        Some(op) if summary.is_empty() => {
            format!(
                "{} {}",
                format!("{:?}", op.op).to_lowercase(),
                one_line(&op.path.to_string())
            )
        }
        _ => summary,
    }
}

fn decision_message(
    label: &str,
    decision: &Decision,
    deltas: [Option<&Delta>; 2],
    verdict: Option<&str>,
    harness: &HarnessId,
) -> Result<Message, RegistryError> {
    let Decision { patch, .. } = decision;
    let prefix = format!("{label} {}: ", patch.dimension);
    let mut message = Message::new(
        &prefix,
        &patch_summary(patch),
        &paragraphs(&decision.evidence),
    );
    if let Some(verdict) = verdict {
        message.push(key::VERDICT, required(key::VERDICT, verdict)?);
    }
    message.push(
        key::ROOT_CAUSE,
        required(key::ROOT_CAUSE, &decision.root_cause)?,
    );
    message.push(key::HARNESS_DIM, patch.dimension);
    if let Some(removed) = decision.removes {
        message.push(key::REMOVES, removed);
    }
    message.push(key::SEVERITY, required(key::SEVERITY, &decision.severity)?);
    push_gate(&mut message, deltas, &decision.gate_mode)?;
    let detail = one_line(&decision.gate_detail);
    if !detail.is_empty() {
        message.push(key::GATE_DETAIL, detail);
    }
    message.push(key::RUN, &decision.run);
    message.push(key::ROUND, decision.round);
    message.push(key::MODEL, &decision.model);
    message.push(key::HARNESS_ID, harness.to_hex());
    let patch = serde_json::to_string(patch).map_err(|error| RegistryError::InvalidField {
        field: key::PATCH,
        value: patch.summary.clone(),
        reason: format!("can't be written as JSON: {error}"),
    })?;
    message.push(key::PATCH, escape_controls(&patch));
    Ok(message)
}

/// JSON leaves the control characters above U+007E as they are, and a terminal obeys some of them. They
/// can only stand inside strings, where an escape means the same.
fn escape_controls(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() {
            // Writing to a string does not fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn push_gate(
    message: &mut Message,
    [delta_in, delta_out]: [Option<&Delta>; 2],
    mode: &str,
) -> Result<(), RegistryError> {
    for (key, delta) in [(key::DELTA_IN, delta_in), (key::DELTA_OUT, delta_out)] {
        if let Some(delta) = delta {
            delta.check(key)?;
            message.push(key, delta);
        }
    }
    message.push(key::GATE_MODE, required(key::GATE_MODE, mode)?);
    Ok(())
}

pub(crate) fn accepted(
    name: VersionName,
    acceptance: &Acceptance,
    harness: &HarnessId,
) -> Result<Message, RegistryError> {
    let deltas = [Some(&acceptance.delta_in), Some(&acceptance.delta_out)];
    decision_message(
        &name.to_string(),
        &acceptance.decision,
        deltas,
        None,
        harness,
    )
}

pub(crate) fn rejected(
    rejection: &Rejection,
    harness: &HarnessId,
) -> Result<Message, RegistryError> {
    let deltas = [rejection.delta_in.as_ref(), rejection.delta_out.as_ref()];
    decision_message(
        "rejected",
        &rejection.decision,
        deltas,
        Some(&rejection.verdict),
        harness,
    )
}

pub(crate) fn initial(
    title: &str,
    provenance: &Provenance,
    harness: &HarnessId,
) -> Result<Message, RegistryError> {
    let prefix = format!("{} initial: ", VersionName::FIRST);
    let mut message = Message::new(&prefix, &one_line(title), "");
    message.push(key::SOURCE, required(key::SOURCE, &provenance.source)?);
    if let Some(run) = &provenance.run {
        message.push(key::RUN, run);
    }
    message.push(key::HARNESS_ID, harness.to_hex());
    Ok(message)
}

pub(crate) fn rollback(
    name: VersionName,
    to: VersionName,
    reason: &str,
    harness: Option<&HarnessId>,
) -> Result<Message, RegistryError> {
    let reason = required(key::REASON, reason)?;
    let mut message = Message::new(&format!("{name} rollback to {to}: "), &reason, "");
    message.push(key::ROLLBACK_TO, to);
    message.push(key::REASON, reason);
    if let Some(harness) = harness {
        message.push(key::HARNESS_ID, harness.to_hex());
    }
    Ok(message)
}

pub(crate) fn pairing(
    version: VersionName,
    record: &PairingRecord,
) -> Result<Message, RegistryError> {
    let mut message = Message::new(
        "",
        &format!("adapter {} with {version}", record.adapter),
        "",
    );
    message.push(key::ADAPTER, &record.adapter);
    push_gate(
        &mut message,
        [record.delta_in.as_ref(), record.delta_out.as_ref()],
        &record.gate_mode,
    )?;
    message.push(key::RUN, &record.run);
    message.push(key::ROUND, record.round);
    message.push(key::MODEL, &record.model);
    Ok(message)
}

/// The recorded content id.
pub(crate) fn read_harness_id(message: &Message) -> Option<HarnessId> {
    message.parsed(key::HARNESS_ID).ok()
}

/// Reads a version's origin; whatever can't be read makes it foreign and never an error, since one
/// hand-made commit must not close the history.
pub(crate) fn read_origin(message: &Message, unix_seconds: u64) -> Origin {
    let read = || -> Result<Origin, String> {
        if message.get(key::ROLLBACK_TO).is_some() {
            let reason = message.text(key::REASON)?;
            return Ok(Origin::Rollback {
                to: message.parsed(key::ROLLBACK_TO)?,
                reason,
            });
        }
        if message.get(key::PATCH).is_some() {
            return Ok(Origin::Patch(Box::new(Acceptance {
                decision: read_decision(message, unix_seconds)?,
                delta_in: message.parsed(key::DELTA_IN)?,
                delta_out: message.parsed(key::DELTA_OUT)?,
            })));
        }
        Ok(Origin::Initial(Provenance {
            source: message.text(key::SOURCE)?,
            run: message.optional(key::RUN)?,
            unix_seconds,
        }))
    };
    read().unwrap_or_else(|reason| Origin::Foreign { reason })
}

pub(crate) fn read_rejection(message: &Message, unix_seconds: u64) -> Result<Rejection, String> {
    Ok(Rejection {
        decision: read_decision(message, unix_seconds)?,
        verdict: message.text(key::VERDICT)?,
        delta_in: message.optional(key::DELTA_IN)?,
        delta_out: message.optional(key::DELTA_OUT)?,
    })
}

fn read_decision(message: &Message, unix_seconds: u64) -> Result<Decision, String> {
    let patch = Patch::from_json(&message.text(key::PATCH)?)
        .map_err(|error| format!("trailer {}: {error}", key::PATCH))?;
    // A cut subject's text in full comes before the evidence.
    let (_, is_cut) = cut_subject(
        message
            .subject
            .split_inclusive(": ")
            .next()
            .unwrap_or_default(),
        &patch_summary(&patch),
    );
    let evidence = match message.body.strip_prefix(&patch_summary(&patch)) {
        Some(rest) if is_cut => rest.trim_start_matches('\n'),
        _ => &message.body,
    };
    Ok(Decision {
        run: message.parsed(key::RUN)?,
        round: message.parsed(key::ROUND)?,
        model: message.parsed(key::MODEL)?,
        root_cause: message.text(key::ROOT_CAUSE)?,
        severity: message.text(key::SEVERITY)?,
        evidence: evidence.to_owned(),
        patch,
        removes: message.optional(key::REMOVES)?,
        gate_mode: message.text(key::GATE_MODE)?,
        gate_detail: message.get(key::GATE_DETAIL).unwrap_or_default().to_owned(),
        unix_seconds,
    })
}

pub(crate) fn read_pairing(
    version: VersionName,
    commit: CommitId,
    text: &str,
    unix_seconds: u64,
) -> Result<Pairing, String> {
    let message = Message::parse(text);
    let record = PairingRecord {
        adapter: message.parsed(key::ADAPTER)?,
        run: message.parsed(key::RUN)?,
        round: message.parsed(key::ROUND)?,
        model: message.parsed(key::MODEL)?,
        gate_mode: message.text(key::GATE_MODE)?,
        delta_in: message.optional(key::DELTA_IN)?,
        delta_out: message.optional(key::DELTA_OUT)?,
        unix_seconds,
    };
    Ok(Pairing {
        version,
        commit,
        record,
    })
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should stop right there"
)]
mod tests {
    use super::*;

    #[test]
    fn json_is_escaped_for_the_terminal_and_means_the_same() {
        let text = "a\u{9b}2J b\u{7f} c\u{1b} \u{85} é \u{1f600} \\\\u0041";
        let json = serde_json::to_string(text).unwrap();
        let escaped = escape_controls(&json);
        assert!(!escaped.contains(char::is_control), "{escaped:?}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        assert_eq!(escape_controls("{\"é\":1}"), "{\"é\":1}");
    }
}
