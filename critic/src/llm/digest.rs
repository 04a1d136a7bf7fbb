//! What the model is shown: the harness, a digest of the failures, and excerpts that it asks for.
//!
//! Everything comes from trajectories of the evolve split, and of these only what the agent itself
//! saw, wrote or caused. A verdict's rule and whatever else the verifier says are left out.

use std::collections::{BTreeMap, BTreeSet};

use harness::Harness;
use rollout::{RolloutId, Split, StepKind, Trajectory};
use serde_json::Value;

use super::findings::Excerpt;
use crate::cluster::Cluster;
use crate::record::{HarnessDim, Record};
use crate::rules::is_failure;

const SYSTEM: &str = include_str!("../../prompts/system.md");
const DIGEST: &str = include_str!("../../prompts/digest.md");
const EXCERPTS: &str = include_str!("../../prompts/excerpts.md");
const AGAIN: &str = include_str!("../../prompts/again.md");

/// Characters of one step in an excerpt.
const STEP_CHARS: usize = 1500;
/// Characters of a text in one line of the digest.
const LINE_CHARS: usize = 160;
/// Rollouts of one excerpt's request, and steps of one excerpt.
const MOST_EXCERPTS: usize = 8;
const MOST_STEPS: usize = 12;
/// Quotes shown of a cluster.
const QUOTES: usize = 2;

/// Hash of the prompts: another wording is another question.
pub fn prompts_hash() -> String {
    let texts = [SYSTEM, DIGEST, EXCERPTS, AGAIN].join("\u{0}");
    blake3::hash(texts.as_bytes()).to_hex()[..16].to_owned()
}

/// The rollouts that are shown, by the names they have in the conversation.
pub(crate) struct Cast<'a> {
    /// R1, R2, …
    failed: Vec<&'a Trajectory>,
    /// S1, S2, …
    solved: Vec<&'a Trajectory>,
}

impl<'a> Cast<'a> {
    /// Those of the evolve split among `trajectories`; no other is ever shown.
    pub(crate) fn new(trajectories: &'a [Trajectory]) -> Self {
        let open = || {
            trajectories
                .iter()
                .filter(|trajectory| trajectory.split == Split::Evolve)
        };
        Cast {
            failed: open().filter(|t| is_failure(t)).collect(),
            solved: open().filter(|t| t.verdict.correct).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.failed.is_empty()
    }

    /// The failed rollout called `name`.
    pub(crate) fn failed(&self, name: &str) -> Option<&'a Trajectory> {
        self.failed.get(place(name, 'R')?).copied()
    }

    /// The solved rollout called `name`.
    pub(crate) fn solved(&self, name: &str) -> Option<&'a Trajectory> {
        self.solved.get(place(name, 'S')?).copied()
    }

    fn name_of(&self, id: &RolloutId) -> Option<String> {
        let at = self.failed.iter().position(|t| t.id == *id)?;
        Some(format!("R{}", at + 1))
    }
}

/// The place that a name such as `R3` stands for.
fn place(name: &str, letter: char) -> Option<usize> {
    let name = name.trim();
    let number = name
        .strip_prefix(letter)
        .or_else(|| name.strip_prefix(letter.to_ascii_lowercase()))?;
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// The system message.
pub(crate) fn system(schema: &Value, most_findings: usize) -> String {
    fill(
        SYSTEM,
        &[
            ("schema", &schema.to_string()),
            ("most_findings", &most_findings.to_string()),
        ],
    )
}

/// The first user message, at most about `most_chars` long. It says so if excerpts can't be had.
pub(crate) fn digest(
    harness: &Harness,
    cast: &Cast<'_>,
    records: &[Record],
    clusters: &[Cluster],
    may_ask: bool,
    most_chars: usize,
) -> String {
    let more = match may_ask {
        true => "",
        false => " No excerpts can be shown: report your findings now.",
    };
    let harness = shorten(&fields(harness), most_chars / 2);
    let left = most_chars.saturating_sub(harness.chars().count());
    let named: BTreeSet<&RolloutId> = records
        .iter()
        .filter(|record| record.harness_dim != HarnessDim::None)
        .map(|record| &record.evidence.trajectory)
        .collect();
    let clusters = lines(
        clusters.iter().map(|cluster| {
            let quotes = quotes(cast, records, cluster);
            format!("- {}{quotes}", cluster.summary())
        }),
        left / 2,
        "nothing",
    );
    let unnamed = cast
        .failed
        .iter()
        .enumerate()
        .filter(|(_, trajectory)| !named.contains(&trajectory.id));
    let unnamed = lines(
        unnamed.map(|(at, trajectory)| format!("- R{}: {}", at + 1, outline(trajectory))),
        left / 2,
        "none",
    );
    let solved = cast.solved.iter().enumerate();
    let solved = lines(
        solved.map(|(at, trajectory)| format!("- S{}: {}", at + 1, outline(trajectory))),
        left / 4,
        "none",
    );
    fill(
        DIGEST,
        &[
            ("harness", &harness),
            (
                "rollouts",
                &(cast.failed.len() + cast.solved.len()).to_string(),
            ),
            ("failures", &cast.failed.len().to_string()),
            ("clusters", &clusters),
            ("unnamed", &unnamed),
            ("solved", &solved),
            ("more", more),
        ],
    )
}

/// The excerpts that were asked for, at most about `most_chars` long.
pub(crate) fn excerpts(
    cast: &Cast<'_>,
    wanted: &[Excerpt],
    may_ask_again: bool,
    most_chars: usize,
) -> String {
    let shown = wanted.iter().take(MOST_EXCERPTS).map(|wanted| {
        let found = cast
            .failed(&wanted.rollout)
            .or_else(|| cast.solved(&wanted.rollout));
        match found {
            Some(trajectory) => excerpt(trajectory, wanted),
            None => format!("## {}\n\nThere is no such rollout.", wanted.rollout.trim()),
        }
    });
    let text = lines(shown, most_chars, "You asked for nothing.");
    let more = match may_ask_again {
        true => ", or ask for other excerpts",
        false => "; no further excerpts can be shown",
    };
    fill(EXCERPTS, &[("excerpts", &text), ("more", more)])
}

/// The answer to a reply that can't be used.
pub(crate) fn again(fault: &str) -> String {
    fill(AGAIN, &[("fault", fault)])
}

fn excerpt(trajectory: &Trajectory, wanted: &Excerpt) -> String {
    let mut text = format!("## {}", wanted.rollout.trim());
    let last = wanted.to.min(wanted.from.saturating_add(MOST_STEPS - 1));
    let steps = trajectory.steps.iter().enumerate();
    for (at, step) in steps.filter(|(at, _)| (wanted.from..=last).contains(at)) {
        let event = step.event.as_ref();
        let event = event.map_or_else(String::new, |event| format!(" ({})", event.name()));
        let kind = kind_name(step.kind);
        let said = shorten(&step.text, STEP_CHARS);
        text.push_str(&format!("\n\n[step {at}] {kind}{event}\n{said}"));
    }
    text
}

fn kind_name(kind: StepKind) -> &'static str {
    match kind {
        StepKind::System => "system message",
        StepKind::User => "user message",
        StepKind::Assistant => "reply of the model",
        StepKind::ToolCall => "call that was read from it",
        StepKind::ToolResult => "tool result",
        StepKind::Hook => "hook",
        StepKind::Final => "answer",
    }
}

/// A rollout in one line: how it ended, what was remarkable, its last words.
fn outline(trajectory: &Trajectory) -> String {
    let mut events: Vec<&str> = trajectory.events().map(|(_, event)| event.name()).collect();
    events.dedup();
    let said = trajectory
        .steps
        .iter()
        .rfind(|step| step.kind == StepKind::Assistant);
    let said = said.map_or_else(String::new, |step| {
        let line = step.text.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("; it says: {}", shorten(&line, LINE_CHARS))
    });
    let events = match events.as_slice() {
        [] => "no events".to_owned(),
        events => events.join(", "),
    };
    let steps = trajectory.steps.len();
    format!(
        "{} after {steps} steps; {events}{said}",
        trajectory.exit.name()
    )
}

/// Some of a cluster's quotes, one a line.
fn quotes(cast: &Cast<'_>, records: &[Record], cluster: &Cluster) -> String {
    let ids: BTreeSet<_> = cluster.records.iter().collect();
    let members = records
        .iter()
        .filter(|record| record.rule == cluster.rule && ids.contains(&record.id()));
    let lines = members.take(QUOTES).filter_map(|record| {
        let name = cast.name_of(&record.evidence.trajectory)?;
        let quote = shorten(&record.evidence.quote, LINE_CHARS);
        Some(format!(
            "\n  {name}, step {}: {quote}",
            record.evidence.step
        ))
    });
    lines.collect()
}

/// The harness field by field, long texts whole.
fn fields(harness: &Harness) -> String {
    let document = harness.to_value();
    let mut lines = Vec::new();
    for section in ["prompts", "tools", "skills", "middleware", "memory"] {
        flatten(section, &document[section], &mut lines);
    }
    lines.join("\n")
}

fn flatten(path: &str, value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            for (key, value) in sorted {
                // Keys with odd characters are rare, and only shown here.
                flatten(&format!("{path}.{key}"), value, lines);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{at}]"), item, lines);
            }
        }
        scalar => lines.push(format!("{path}: {scalar}")),
    }
}

/// As many lines as fit, and how many don't.
fn lines(texts: impl Iterator<Item = String>, most_chars: usize, none: &str) -> String {
    let mut out = String::new();
    let mut left = most_chars;
    let mut omitted = 0;
    for text in texts {
        let length = text.chars().count() + 1;
        if omitted > 0 || length > left {
            omitted += 1;
            continue;
        }
        left -= length;
        out.push_str(&text);
        out.push('\n');
    }
    if omitted > 0 {
        out.push_str(&format!("({omitted} more are not shown)\n"));
    }
    match out.trim_end() {
        "" => none.to_owned(),
        text => text.to_owned(),
    }
}

fn shorten(text: &str, most_chars: usize) -> String {
    let count = text.chars().count();
    if count <= most_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most_chars).collect();
    format!("{kept}… ({} characters more)", count - most_chars)
}

/// A prompt with its slots filled, each once and in one pass, so that nothing in a value is read as a
/// slot.
fn fill(prompt: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(prompt.len());
    let mut rest = prompt.trim();
    while let Some((before, after)) = rest.split_once("{{ ") {
        out.push_str(before);
        let Some((name, after)) = after.split_once(" }}") else {
            out.push_str("{{ ");
            rest = after;
            continue;
        };
        let value = values.iter().find(|(known, _)| *known == name);
        out.push_str(value.map_or("", |(_, value)| value));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use rollout::Event;

    use super::*;
    use crate::cluster::cluster;
    use crate::critic::{Critic, RulesCritic};
    use crate::testing::{Build, failed, start};

    fn shown(trajectories: &[Trajectory]) -> String {
        let records = RulesCritic::default()
            .diagnose(&start(), trajectories)
            .records;
        let clusters = cluster(&records, trajectories);
        digest(
            &start(),
            &Cast::new(trajectories),
            &records,
            &clusters,
            true,
            20_000,
        )
    }

    #[test]
    fn every_slot_is_filled() {
        let schema = super::super::findings::reply_schema();
        let texts = [
            system(&schema, 5),
            shown(&[failed(1)]),
            excerpts(&Cast::new(&[failed(1)]), &[], true, 1000),
            again("it breaks off"),
        ];
        for text in texts {
            // The harness's own slot is part of what is shown.
            let text = text.replace("{{ problem }}", "");
            assert!(!text.contains("{{ "), "{text}");
        }
        assert!(system(&schema, 5).contains("\"middleware_mismatch\""));
        assert!(again("it breaks off").contains("it breaks off"));
        assert_eq!(fill("{{ a }}", &[("a", "{{ b }}"), ("b", "x")]), "{{ b }}");
    }

    #[test]
    fn the_digest_shows_harness_clusters_and_what_nobody_named() {
        let prose = |seed| failed(seed).reply("It is 13.", Some(Event::NoToolCall));
        let wrong = failed(3).call("print(2)").result("2", None).answered("2");
        let mut solved = failed(4).answered("12");
        solved.verdict.correct = true;
        let text = shown(&[prose(1), prose(2), wrong, solved]);
        for part in [
            "4 rollouts, 3 failed",
            "middleware.protocol.call_format: \"json\"",
            "example_missing: 2 rollouts",
            "R1, step 2: It is 13.",
            "S1: answered",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn nothing_of_the_verifier_and_of_other_splits_is_shown() {
        let mut secret = failed(1).reply("the gate's own words", None);
        secret.split = Split::Gate;
        let mut judged = failed(2).reply("It is 13.", None);
        judged.verdict.rule = "told-by-verifier".into();
        let trajectories = [secret, judged];
        let cast = Cast::new(&trajectories);
        let wanted = |rollout: &str| Excerpt {
            rollout: rollout.into(),
            from: 0,
            to: 99,
        };
        let all = [wanted("R1"), wanted("R2")];
        let text = shown(&trajectories) + &excerpts(&cast, &all, false, 10_000);
        assert!(text.contains("It is 13."));
        assert!(text.contains("There is no such rollout."));
        assert!(
            !text.contains("own words") && !text.contains("told-by-verifier"),
            "{text}"
        );
    }

    #[test]
    fn long_digests_say_what_they_leave_out() {
        let many: Vec<Trajectory> = (1..200)
            .map(|seed| failed(seed).reply(&"word ".repeat(60), None))
            .collect();
        let text = digest(&start(), &Cast::new(&many), &[], &[], true, 6_000);
        assert!(text.chars().count() < 8_000, "{}", text.chars().count());
        assert!(text.contains("more are not shown"));
        let cast = Cast::new(&many[..1]);
        let wanted = [Excerpt {
            rollout: "r1 ".into(),
            from: 2,
            to: 2,
        }];
        let text = excerpts(&cast, &wanted, false, 10_000);
        assert!(text.contains("[step 2] reply of the model\nword word"));
        assert!(cast.failed("R0").is_none() && cast.failed("x").is_none());
        assert_eq!(cast.failed("R1").unwrap().seed, 1);
    }
}
