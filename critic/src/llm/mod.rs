//! The critic that asks a language model.
//!
//! It comes after the rules: the model reads a digest of their clusters and of the failures they can't
//! explain, asks for excerpts if it needs them, and answers with findings. A finding becomes
//! [`Record`]s of the same form as the rules', under the same check of their evidence, one for each
//! quote; their rule is `llm/` and the finding's name. Replies are read tolerantly but never
//! completed; one that can't be used is asked for again, and after that the critique is skipped and
//! counted. Where the model contradicts the rules about a rollout, both stay and the
//! [`Disagreement`] is kept.

mod chat;
mod digest;
mod findings;
mod reading;
mod room;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use harness::{Harness, Patch};
use rollout::{Message, Role, RolloutId, TaskId, Trajectory, Usage};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::record::{Evidence, HarnessDim, Record, RootCause, check_evidence};
use digest::Cast;
use findings::Finding;
use room::Room;

pub use chat::{Chat, ChatError, ChatReply, ChatRequest};
pub use digest::prompts_hash;
pub use findings::{MendedCounts, Reply, operations, reply, reply_schema};
pub use reading::{Mended, Reading, ReplyFault, read};

/// How every record of a language model's finding begins its rule.
pub const RULE_PREFIX: &str = "llm/";

/// How much the critic may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlmOptions {
    /// Times that the model may ask for excerpts.
    pub excerpt_rounds: u32,
    /// Times that a reply which can't be used is asked for again, over the whole critique.
    pub retries: u32,
    /// Tokens that the model may read in one request, by the estimate of three characters each, or one where
    /// it is a digit or isn't ASCII: instructions, schema, digest, excerpts. What it is shown is cut to that.
    pub prompt_tokens: usize,
    /// Findings taken from a reply.
    pub most_findings: usize,
}

impl Default for LlmOptions {
    fn default() -> Self {
        LlmOptions {
            excerpt_rounds: 2,
            retries: 1,
            prompt_tokens: 14_336,
            most_findings: 5,
        }
    }
}

/// What a critique came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Critique {
    /// Model and server.
    pub model: String,
    /// The records, by finding in the model's order.
    pub records: Vec<Record>,
    /// Tasks that the model thinks a finding's suggestion mends, by the records' rule.
    #[serde(default)]
    pub fixes: BTreeMap<String, BTreeSet<TaskId>>,
    /// Tasks that it thinks the suggestion puts at risk, by the records' rule.
    pub risks: BTreeMap<String, BTreeSet<TaskId>>,
    /// Quotes that were dropped, findings that were, and suggestions that don't apply, with why.
    pub dropped: Vec<String>,
    /// Where rules and model contradict each other.
    pub disagreements: Vec<Disagreement>,
    /// How often which kind of mending was needed.
    pub mended: MendedCounts,
    /// Why there are no findings, if no reply could be used.
    pub skipped: Option<String>,
    /// What it cost.
    pub cost: Cost,
}

impl Critique {
    /// Tells the clusters of the model's findings what it predicts. Where it names no failed rollout
    /// that was shown, the cluster's own tasks stay what a patch should mend.
    pub fn foretell(&self, clusters: &mut [Cluster]) {
        for cluster in clusters {
            if let Some(fixes) = self.fixes.get(&cluster.rule) {
                cluster.predicted.fixes.clone_from(fixes);
            }
            if let Some(risks) = self.risks.get(&cluster.rule) {
                cluster.predicted.at_risk.extend(risks.iter().cloned());
            }
        }
    }
}

/// Requests and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Replies that were asked for.
    pub calls: u32,
    /// Those that could not be used.
    pub unusable: u32,
    /// Tokens of all calls.
    pub usage: Usage,
}

/// A rollout about which rules and model contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disagreement {
    /// The rollout.
    pub trajectory: RolloutId,
    /// Root causes that rules name.
    pub rules: BTreeSet<RootCause>,
    /// Root causes that the model names; none of them is a rule's.
    pub llm: BTreeSet<RootCause>,
}

/// Asks a language model why rollouts failed.
pub struct LlmCritic<'a> {
    /// The model.
    pub chat: &'a dyn Chat,
    /// How much it may be asked.
    pub options: LlmOptions,
    /// Seed of the first reply.
    pub seed: u64,
}

impl LlmCritic<'_> {
    /// What the model says about the failed ones among `trajectories`, which all ran under
    /// `harness`, after rules have found `records` and their `clusters`. Trajectories of other splits
    /// than evolve are never shown.
    ///
    /// Never fails: a model that gives no usable reply is a critique that was skipped.
    pub async fn critique(
        &self,
        harness: &Harness,
        trajectories: &[Trajectory],
        records: &[Record],
        clusters: &[Cluster],
    ) -> Critique {
        let mut critique = Critique {
            model: self.chat.name().to_owned(),
            ..Critique::default()
        };
        let cast = Cast::new(trajectories);
        if cast.is_empty() {
            return critique;
        }
        let most_chars = Room::of(&self.options).digest;
        let may_ask = self.options.excerpt_rounds > 0;
        let digest = digest::digest(harness, &cast, records, clusters, may_ask, most_chars);
        match self.converse(digest, &cast, &mut critique).await {
            Ok(reply) => {
                for finding in reply.findings.into_iter().take(self.options.most_findings) {
                    take(finding, harness, &cast, &mut critique);
                }
                critique.disagreements = disagreements(records, &critique.records);
            }
            Err(reason) => critique.skipped = Some(reason),
        }
        critique
    }

    /// The conversation up to a reply with findings, or with none.
    async fn converse(
        &self,
        digest: String,
        cast: &Cast<'_>,
        critique: &mut Critique,
    ) -> Result<Reply, String> {
        let most_chars = Room::of(&self.options).excerpts;
        let mut messages = vec![
            Message::new(Role::System, digest::system(self.options.most_findings)),
            Message::new(Role::User, digest),
        ];
        let mut retries = self.options.retries;
        let mut excerpt_rounds = self.options.excerpt_rounds;
        let mut fault: Option<ReplyFault> = None;
        loop {
            let request = ChatRequest {
                messages: asked_again(&messages, fault.as_ref()),
                seed: self.seed.wrapping_add(u64::from(critique.cost.calls)),
            };
            critique.cost.calls += 1;
            let answer = self.chat.ask(request).await;
            let answer = answer.map_err(|error| error.to_string())?;
            critique.cost.usage.add(&answer.usage);
            let unusable = match usable(&answer, &mut critique.mended) {
                Ok(reply) if reply.is_question() && excerpt_rounds == 0 => {
                    ReplyFault::NoMoreExcerpts
                }
                Ok(reply) if reply.is_question() => {
                    excerpt_rounds -= 1;
                    let may_ask_again = excerpt_rounds > 0;
                    let wanted = digest::clipped(&reply.excerpts);
                    let shown = digest::excerpts(cast, &wanted, may_ask_again, most_chars);
                    // What it thought before it asked takes room, and isn't needed any more.
                    messages.push(Message::new(Role::Assistant, digest::asked(&wanted)));
                    messages.push(Message::new(Role::User, shown));
                    fault = None;
                    continue;
                }
                Ok(reply) => return Ok(reply),
                Err(unusable) => unusable,
            };
            critique.cost.unusable += 1;
            if retries == 0 {
                return Err(unusable.to_string());
            }
            retries -= 1;
            fault = Some(unusable);
        }
    }
}

/// The conversation, with what was wrong with the last reply at the end of the question. The reply
/// itself stays out: models copy what they see. Nor is it a message of its own: many chat templates
/// refuse two of one speaker in a row.
fn asked_again(messages: &[Message], fault: Option<&ReplyFault>) -> Vec<Message> {
    let mut messages = messages.to_vec();
    if let (Some(last), Some(fault)) = (messages.last_mut(), fault) {
        last.content.push_str("\n\n");
        last.content.push_str(&digest::again(&fault.to_string()));
    }
    messages
}

/// Reads an answer.
fn usable(answer: &ChatReply, mended: &mut MendedCounts) -> Result<Reply, ReplyFault> {
    let reading = match read(&answer.text) {
        // A limit that cut the text explains whatever is wrong with it.
        Err(_) if answer.is_cut => return Err(ReplyFault::Truncated),
        reading => reading?,
    };
    let mut kinds = reading.mended;
    let reply = reply(reading.value, &mut kinds)?;
    count(&kinds, mended);
    Ok(reply)
}

fn count(kinds: &BTreeSet<Mended>, counts: &mut MendedCounts) {
    for kind in kinds {
        *counts.entry(*kind).or_default() += 1;
    }
}

/// Turns a finding into records: one for each quote that is there.
fn take(finding: Finding, harness: &Harness, cast: &Cast<'_>, critique: &mut Critique) {
    let slug = finding.slug();
    let rule = format!("{RULE_PREFIX}{slug}");
    let cause = finding.root_cause;
    if finding.harness_dim != cause.harness_dim() {
        critique.dropped.push(format!(
            "{rule}: {cause} belongs to {}, not to {}",
            cause.harness_dim(),
            finding.harness_dim
        ));
        return;
    }
    let mut mended = BTreeSet::new();
    let suggestion = match suggestion(&finding, harness, &mut mended) {
        Ok(ops) => ops,
        Err(reason) => {
            critique
                .dropped
                .push(format!("{rule}: the suggestion isn't used: {reason}"));
            Vec::new()
        }
    };
    let before = critique.records.len();
    for quote in &finding.evidence {
        let Some(trajectory) = cast.failed(&quote.rollout) else {
            let name = quote.rollout.trim();
            critique
                .dropped
                .push(format!("{rule}: there is no failed rollout {name}"));
            continue;
        };
        let mut record = Record {
            root_cause: cause,
            harness_dim: finding.harness_dim,
            severity: finding.severity,
            evidence: Evidence {
                trajectory: trajectory.id.clone(),
                step: quote.step,
                quote: quote.quote.clone(),
            },
            diff_suggestion: suggestion.clone(),
            rule: rule.clone(),
        };
        if check_evidence(&record, trajectory).is_err()
            && let Some(step) = only_step_with(trajectory, &quote.quote)
        {
            record.evidence.step = step;
            mended.insert(Mended::Step);
        }
        match check_evidence(&record, trajectory) {
            Ok(()) => critique.records.push(record),
            Err(error) => critique.dropped.push(format!("{rule}: {error}")),
        }
    }
    count(&mended, &mut critique.mended);
    if critique.records.len() == before {
        return;
    }
    let fixes = finding.fixes.iter().filter_map(|name| cast.failed(name));
    foresee(&mut critique.fixes, &rule, fixes);
    let risks = finding.risks.iter().filter_map(|name| cast.solved(name));
    foresee(&mut critique.risks, &rule, risks);
}

/// Adds the tasks of `trajectories` to those of a rule, if there are any.
fn foresee<'a>(
    by_rule: &mut BTreeMap<String, BTreeSet<TaskId>>,
    rule: &str,
    trajectories: impl Iterator<Item = &'a Trajectory>,
) {
    let tasks: BTreeSet<TaskId> = trajectories.map(|shown| shown.task.clone()).collect();
    if !tasks.is_empty() {
        by_rule.entry(rule.to_owned()).or_default().extend(tasks);
    }
}

/// The operations of a finding, if they are a patch of the harness.
fn suggestion(
    finding: &Finding,
    harness: &Harness,
    mended: &mut BTreeSet<Mended>,
) -> Result<Vec<harness::PatchOp>, String> {
    let Some(dimension) = finding.harness_dim.dimension() else {
        return Ok(Vec::new());
    };
    let mut ops = Vec::with_capacity(finding.diff_suggestion.len());
    for operation in &finding.diff_suggestion {
        let op = operation.clone().read(harness, mended);
        ops.push(op.map_err(|fault| fault.to_string())?);
    }
    if ops.is_empty() {
        return Ok(ops);
    }
    let patch = Patch {
        dimension,
        ops,
        summary: String::new(),
    };
    match patch.apply(harness) {
        Ok(patched) if patched == *harness => Err("it changes nothing".to_owned()),
        Ok(_) => Ok(patch.ops),
        Err(error) => Err(error.to_string()),
    }
}

/// The only step that `quote` stands in.
fn only_step_with(trajectory: &Trajectory, quote: &str) -> Option<usize> {
    if quote.trim().is_empty() {
        return None;
    }
    let steps = trajectory.steps.iter().enumerate();
    let mut found = steps.filter(|(_, step)| step.text.contains(quote));
    let (at, _) = found.next()?;
    found.next().is_none().then_some(at)
}

/// Rollouts of which rules name causes and the model names others.
fn disagreements(rules: &[Record], llm: &[Record]) -> Vec<Disagreement> {
    let by_rollout = |records: &[Record]| {
        let mut causes: BTreeMap<RolloutId, BTreeSet<RootCause>> = BTreeMap::new();
        for record in records {
            let id = record.evidence.trajectory.clone();
            causes.entry(id).or_default().insert(record.root_cause);
        }
        causes
    };
    // That nothing in the harness explains a failure is no claim.
    let rules: Vec<Record> = rules
        .iter()
        .filter(|record| record.harness_dim != HarnessDim::None)
        .cloned()
        .collect();
    let rules = by_rollout(&rules);
    let pairs = by_rollout(llm).into_iter();
    pairs
        .filter_map(|(trajectory, llm)| {
            let rules = rules.get(&trajectory)?.clone();
            rules.is_disjoint(&llm).then_some(Disagreement {
                trajectory,
                rules,
                llm,
            })
        })
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests;
