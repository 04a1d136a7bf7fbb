//! What the model is shown: the harness, a digest of the failures, and excerpts that it asks for.
//!
//! Everything comes from trajectories of the evolve split, and of these only what the agent itself
//! saw, wrote or caused. Of the verdict it has whether a problem was solved, so that the agent's own
//! answer can be seen to be right; its rule and whatever else the verifier says are left out.

use std::collections::{BTreeMap, BTreeSet};

use harness::Harness;
use rollout::{RolloutId, Split, StepKind, Trajectory};
use serde_json::Value;

use super::findings::{Excerpt, terse_schema};
use super::text::{fill, length, lines, shorten};
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
/// Characters of a rollout's name in a request, and the largest step: nothing has longer ones.
const NAME_CHARS: usize = 8;
const LAST_STEP: usize = 99_999;
/// Characters of a request for excerpts as it stays in the conversation, at most.
pub(crate) const ASKED_CHARS: usize = 704;
/// Characters of a reply's fault.
const FAULT_CHARS: usize = 300;
/// Characters of what an unusable reply is answered, at most.
pub(crate) const AGAIN_CHARS: usize = AGAIN.len() + FAULT_CHARS;

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
pub(crate) fn system(most_findings: usize) -> String {
    fill(
        SYSTEM,
        &[
            ("schema", &terse_schema().to_string()),
            ("most_findings", &most_findings.to_string()),
        ],
    )
}

/// The first user message, at most `most_chars` long if that is enough for its headings. It says so if
/// excerpts can't be had.
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
    let rollouts = (cast.failed.len() + cast.solved.len()).to_string();
    let failures = cast.failed.len().to_string();
    let text = |harness: &str, clusters: &str, unnamed: &str, solved: &str| {
        fill(
            DIGEST,
            &[
                ("harness", harness),
                ("rollouts", &rollouts),
                ("failures", &failures),
                ("clusters", clusters),
                ("unnamed", unnamed),
                ("solved", solved),
                ("more", more),
            ],
        )
    };
    let mut left = most_chars.saturating_sub(length(&text("", "", "", "")));
    let harness = shorten(&fields(harness), left / 2);
    left = left.saturating_sub(length(&harness));
    let named: BTreeSet<&RolloutId> = records
        .iter()
        .filter(|record| record.harness_dim != HarnessDim::None)
        .map(|record| &record.evidence.trajectory)
        .collect();
    // What one part leaves, the next ones have.
    let clusters = lines(
        clusters.iter().map(|cluster| {
            let quotes = quotes(cast, records, cluster);
            format!("- {}{quotes}", cluster.summary())
        }),
        left * 2 / 5,
        "nothing",
    );
    left = left.saturating_sub(length(&clusters));
    let unnamed = cast
        .failed
        .iter()
        .enumerate()
        .filter(|(_, trajectory)| !named.contains(&trajectory.id));
    let unnamed = lines(
        unnamed.map(|(at, trajectory)| format!("- R{}: {}", at + 1, outline(trajectory))),
        left * 2 / 3,
        "none",
    );
    left = left.saturating_sub(length(&unnamed));
    let solved = cast.solved.iter().enumerate();
    let solved = lines(
        solved.map(|(at, trajectory)| format!("- S{}: {}", at + 1, outline(trajectory))),
        left,
        "none",
    );
    text(&harness, &clusters, &unnamed, &solved)
}

/// What is shown of the excerpts that were asked for, with names and steps that are no longer than any
/// rollout has.
pub(crate) fn clipped(wanted: &[Excerpt]) -> Vec<Excerpt> {
    let clip = |wanted: &Excerpt| Excerpt {
        rollout: wanted.rollout.trim().chars().take(NAME_CHARS).collect(),
        from: wanted.from.min(LAST_STEP),
        to: wanted.to.min(LAST_STEP),
    };
    wanted.iter().take(MOST_EXCERPTS).map(clip).collect()
}

/// A request for excerpts as it stays in the conversation.
pub(crate) fn asked(wanted: &[Excerpt]) -> String {
    serde_json::json!({ "excerpts": wanted }).to_string()
}

/// The excerpts that were asked for, at most `most_chars` long.
pub(crate) fn excerpts(
    cast: &Cast<'_>,
    wanted: &[Excerpt],
    may_ask_again: bool,
    most_chars: usize,
) -> String {
    let more = match may_ask_again {
        true => ", or ask for other excerpts",
        false => "; no further excerpts can be shown",
    };
    let text = |excerpts: &str| fill(EXCERPTS, &[("excerpts", excerpts), ("more", more)]);
    let mut left = most_chars.saturating_sub(length(&text("")));
    let mut shown = String::new();
    for (at, one) in wanted.iter().enumerate() {
        let found = cast
            .failed(&one.rollout)
            .or_else(|| cast.solved(&one.rollout));
        let part = match found {
            Some(trajectory) => excerpt(trajectory, one),
            None => format!("## {}\n\nThere is no such rollout.", one.rollout.trim()),
        };
        // In equal parts; what one leaves, the next ones have.
        let part = shorten(&part, (left / (wanted.len() - at)).saturating_sub(1));
        left = left.saturating_sub(length(&part) + 1);
        shown.push_str(&part);
        shown.push('\n');
    }
    match shown.trim_end() {
        "" => text("You asked for nothing."),
        shown => text(shown),
    }
}

/// The answer to a reply that can't be used.
pub(crate) fn again(fault: &str) -> String {
    fill(AGAIN, &[("fault", &shorten(fault, FAULT_CHARS))])
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
        let texts = [
            system(5),
            shown(&[failed(1)]),
            excerpts(&Cast::new(&[failed(1)]), &[], true, 1000),
            again("it breaks off"),
        ];
        for text in texts {
            // The harness's own slot is part of what is shown.
            let text = text.replace("{{ problem }}", "");
            assert!(!text.contains("{{ "), "{text}");
        }
        assert!(system(5).contains("\"middleware_mismatch\""));
        assert!(again("it breaks off").contains("it breaks off"));
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
        assert!(length(&text) <= 6_000, "{}", length(&text));
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

    #[test]
    fn no_text_is_longer_than_its_room() {
        let mut many: Vec<Trajectory> = (1..60)
            .map(|seed| failed(seed).reply(&"some words ".repeat(200), Some(Event::NoToolCall)))
            .collect();
        for trajectory in &mut many[30..] {
            trajectory.verdict.correct = true;
        }
        let records = RulesCritic::default().diagnose(&start(), &many).records;
        let clusters = cluster(&records, &many);
        let cast = Cast::new(&many);
        for records in [&records[..], &records[..0]] {
            for room in [900, 1_800, 4_000, 20_000, 100_000] {
                let text = digest(&start(), &cast, records, &clusters, false, room);
                assert!(length(&text) <= room, "{} of {room}", length(&text));
            }
        }
        let wanted = Excerpt {
            rollout: " 三角形の内角の和 ".into(),
            from: LAST_STEP,
            to: usize::MAX,
        };
        let wanted: Vec<Excerpt> = std::iter::repeat_n(wanted, 20).collect();
        let wanted = clipped(&wanted);
        assert_eq!((wanted.len(), wanted[0].to), (MOST_EXCERPTS, LAST_STEP));
        assert!(length(&asked(&wanted)) <= ASKED_CHARS);
        let steps = |rollout: &str| Excerpt {
            rollout: rollout.into(),
            from: 0,
            to: 9,
        };
        for room in [300, 900, 5_000] {
            // A long step of one doesn't hide the others, and is itself shown in part.
            let wanted = [steps("R1"), steps("R2"), steps("S1")];
            let text = excerpts(&cast, &wanted, true, room);
            assert!(length(&text) <= room, "{} of {room}", length(&text));
            for name in ["## R1", "## R2", "## S1"] {
                assert!(text.contains(name), "{name} is missing in {text}");
            }
        }
        assert!(length(&again(&"x".repeat(5_000))) <= AGAIN_CHARS);
    }
}
