//! What becomes of rollouts under each version and each weights that it ran with.

use std::collections::BTreeMap;

use critic::Record;
use registry::VersionName;
use rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};

use super::failures::causes;
use super::{DiagnoseRow, EvaluateRow, PatchRow};
use crate::counted::counted;
use crate::trained_weights::short;

/// What became of rollouts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Rollouts looked at.
    pub rollouts: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those with an answer that the verifier couldn't decide.
    pub undecided: usize,
    /// Failed rollouts by root cause; each counts once.
    pub causes: BTreeMap<String, usize>,
}

impl Outcomes {
    /// Of `trajectories`, of which so many `failed`, for what the records say.
    pub(crate) fn of(trajectories: &[Trajectory], records: &[Record], failed: usize) -> Self {
        let undecided = trajectories.iter().filter(|t| t.verdict.undecided);
        Self {
            rollouts: trajectories.len(),
            failed,
            undecided: undecided.count(),
            causes: causes(records, failed),
        }
    }

    fn of_diagnosis(row: &DiagnoseRow) -> Self {
        Self {
            rollouts: row.rollouts,
            failed: row.failed,
            undecided: row.undecided,
            causes: row.causes.clone(),
        }
    }

    fn add(&mut self, other: Self) {
        self.rollouts += other.rollouts;
        self.failed += other.failed;
        self.undecided += other.undecided;
        for (cause, count) in other.causes {
            *self.causes.entry(cause).or_insert(0) += count;
        }
    }
}

/// Which rollouts tell what a version fails of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Those of its diagnoses.
    Diagnosis,
    /// It was never diagnosed with these weights: those that showed what its patch had done, by the rules
    /// alone.
    Effect,
}

/// What became of a version's rollouts with the same weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRow {
    /// First round in which it was looked at.
    pub round: u32,
    /// The version.
    pub version: String,
    /// The weights; none in runs made before they were kept.
    pub policy: Option<String>,
    /// Their adapter; none for the base model.
    pub adapter: Option<String>,
    /// Which rollouts it is about.
    pub source: Source,
    /// What became of them.
    #[serde(flatten)]
    pub outcomes: Outcomes,
}

impl FailureRow {
    /// In one line.
    pub fn outline(&self) -> String {
        let Outcomes {
            rollouts,
            failed,
            undecided,
            causes,
        } = &self.outcomes;
        let weights = match (&self.policy, &self.adapter) {
            (None, _) => String::new(),
            (Some(_), None) => " with the base weights".to_owned(),
            (Some(_), Some(id)) => format!(" with weights {}", short(id)),
        };
        let undecided = match undecided {
            0 => String::new(),
            count => format!(" ({count} undecided)"),
        };
        let causes: Vec<String> = causes
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let causes = match causes[..] {
            [] => String::new(),
            _ => format!(": {}", causes.join(", ")),
        };
        let rollouts = match self.source {
            Source::Diagnosis => counted(*rollouts, "diagnosed rollout"),
            Source::Effect => counted(*rollouts, "rollout") + " when it was accepted",
        };
        let version = &self.version;
        format!("{version}{weights} failed {failed} of {rollouts}{undecided}{causes}")
    }
}

/// What became of the rollouts of each version with each weights, by round and version: the sums over its
/// diagnoses, and of a version without one what its acceptance showed. Where a run didn't keep the weights, it
/// is the version's first diagnosis. `cells` know which adapter a policy has.
pub(super) fn by_version(
    diagnoses: &[DiagnoseRow],
    patches: &[PatchRow],
    cells: &[EvaluateRow],
) -> Vec<FailureRow> {
    let adapter = |policy: &str| {
        let cell = cells.iter().find(|cell| cell.policy == policy)?;
        cell.adapter.clone()
    };
    let mut rows: Vec<FailureRow> = Vec::new();
    for row in diagnoses {
        let outcomes = Outcomes::of_diagnosis(row);
        let known = rows
            .iter_mut()
            .find(|known| known.version == row.version && known.policy == row.policy);
        match known {
            Some(known) if row.policy.is_some() => known.outcomes.add(outcomes),
            Some(_) => {}
            None => rows.push(FailureRow {
                round: row.round,
                version: row.version.clone(),
                policy: row.policy.clone(),
                adapter: row.policy.as_deref().and_then(adapter),
                source: Source::Diagnosis,
                outcomes,
            }),
        }
    }
    for patch in patches {
        let (Some(version), Some(outcomes)) = (&patch.version, &patch.outcomes) else {
            continue;
        };
        let policy = Some(patch.policy.clone());
        let is_it = |known: &FailureRow| known.version == *version && known.policy == policy;
        if !rows.iter().any(is_it) {
            rows.push(FailureRow {
                round: patch.round,
                version: version.clone(),
                adapter: adapter(&patch.policy),
                policy,
                source: Source::Effect,
                outcomes: outcomes.clone(),
            });
        }
    }
    // Diagnoses are in this order already.
    rows.sort_by_key(|row| (row.round, row.version.parse::<VersionName>().ok()));
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollouts::testing::trajectory;

    fn diagnosis(
        round: u32,
        version: &str,
        policy: Option<&str>,
        failed: usize,
        cause: &str,
    ) -> DiagnoseRow {
        let causes = match failed {
            0 => json!({}),
            _ => json!({cause: failed}),
        };
        let row = json!({"round": round, "version": version, "policy": policy, "rollouts": 10, "failed": failed,
            "undecided": 1, "dropped_records": 0, "causes": causes, "clusters": []});
        serde_json::from_value(row).expect("a row")
    }

    fn cell(policy: &str, adapter: Option<&str>) -> EvaluateRow {
        let row = json!({"label": "round 1", "version": "v1", "policy": policy, "adapter": adapter,
            "rate": {"pass_at_1": 0.5, "ci95": [0.0, 1.0], "correct": 1, "n": 2}, "exits": {}, "mean_tokens": 1.0});
        serde_json::from_value(row).expect("a cell")
    }

    #[test]
    fn what_the_verifier_could_not_decide_is_counted_apart() {
        let (mut unclear, mut solved) = (trajectory(), trajectory());
        unclear.verdict.undecided = true;
        solved.verdict.correct = true;
        let outcomes = Outcomes::of(&[unclear, solved, trajectory()], &[], 1);
        let Outcomes {
            rollouts,
            failed,
            undecided,
            ..
        } = outcomes;
        assert_eq!((rollouts, failed, undecided), (3, 1, 1));
        assert_eq!(outcomes.causes["undiagnosed"], 1);
    }

    #[test]
    fn new_weights_under_the_same_version_are_told_apart_and_diagnoses_of_the_same_are_summed() {
        let diagnoses = [
            diagnosis(1, "v1", Some("m"), 4, "agent_error"),
            diagnosis(1, "v1", Some("m"), 2, "skill_missing"),
            diagnosis(2, "v1", Some("m+abc"), 8, "agent_error"),
            diagnosis(2, "v2", Some("m+abc"), 0, "agent_error"),
        ];
        let cells = [cell("m", None), cell("m+abc", Some("0123456789abc"))];
        let told: Vec<String> = by_version(&diagnoses, &[], &cells)
            .iter()
            .map(FailureRow::outline)
            .collect();
        assert_eq!(
            told,
            [
                "v1 with the base weights failed 6 of 20 diagnosed rollouts (2 undecided): 4 agent_error, 2 skill_missing",
                "v1 with weights 01234567 failed 8 of 10 diagnosed rollouts (1 undecided): 8 agent_error",
                "v2 with weights 01234567 failed 0 of 10 diagnosed rollouts (1 undecided)",
            ]
        );
    }

    fn accepted(version: &str, policy: &str, failed: usize) -> PatchRow {
        let outcomes = json!({"rollouts": 10, "failed": failed, "undecided": 0, "causes": {"agent_error": failed}});
        let row = json!({"round": 1, "iteration": 1, "candidate": 1, "parent": "v1", "version": version,
            "dimension": "P", "summary": "s", "root_cause": "r", "ops": [], "stages": [], "evidence": null,
            "rollouts": 8, "verdict": {"verdict": "accepted"}, "policy": policy, "outcomes": outcomes});
        serde_json::from_value(row).expect("a row")
    }

    #[test]
    fn of_a_version_that_was_never_diagnosed_its_acceptance_tells() {
        let diagnoses = [
            diagnosis(1, "v1", Some("m"), 4, "agent_error"),
            diagnosis(1, "v2", Some("m"), 3, "agent_error"),
            diagnosis(2, "v3", Some("m+abc"), 1, "agent_error"),
        ];
        let patches = [accepted("v2", "m", 5), accepted("v3", "m", 2)];
        let rows = by_version(&diagnoses, &patches, &[]);
        let rows: Vec<(&str, Option<&str>, Source, usize)> = rows
            .iter()
            .map(|row| {
                let failed = row.outcomes.failed;
                (
                    row.version.as_str(),
                    row.policy.as_deref(),
                    row.source,
                    failed,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("v1", Some("m"), Source::Diagnosis, 4),
                ("v2", Some("m"), Source::Diagnosis, 3),
                ("v3", Some("m"), Source::Effect, 2),
                ("v3", Some("m+abc"), Source::Diagnosis, 1),
            ]
        );
        let told = by_version(&[], &patches[1..], &[])[0].outline();
        assert_eq!(
            told,
            "v3 with the base weights failed 2 of 10 rollouts when it was accepted: 2 agent_error"
        );
    }

    #[test]
    fn of_runs_that_did_not_keep_the_weights_the_first_diagnosis_is_told() {
        let diagnoses = [
            diagnosis(1, "v1", None, 4, "agent_error"),
            diagnosis(2, "v1", None, 8, "agent_error"),
        ];
        let rows = by_version(&diagnoses, &[], &[]);
        let told: Vec<String> = rows.iter().map(FailureRow::outline).collect();
        assert_eq!(
            told,
            ["v1 failed 4 of 10 diagnosed rollouts (1 undecided): 4 agent_error"]
        );
        // The row is flat, as the page on the report has it.
        let row = serde_json::to_value(&rows[0]).expect("JSON");
        assert_eq!(
            (&row["rollouts"], &row["policy"]),
            (&json!(10), &json!(null))
        );
        assert_eq!(
            serde_json::from_value::<FailureRow>(row).expect("a row"),
            rows[0]
        );
    }
}
