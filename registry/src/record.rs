//! What the registry remembers: plain data, written into commit messages and read back from them.
//!
//! Free text is stored with two changes, so what is read back may differ from what was given: control
//! characters go, and line breaks in one-line fields become spaces.

use std::fmt;

use harness::{HarnessId, Patch};
use serde::Serialize;

use crate::delta::Delta;
use crate::id::{AdapterId, CommitId, ModelId, RejectedName, RunId, VersionName};

/// Where the first version came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// The folder or preset the harness was read from, in one line.
    pub source: String,
    /// The run that started the registry, if a run did.
    pub run: Option<RunId>,
    /// When, in seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// A candidate patch and how it came to be judged; common to [`Acceptance`] and [`Rejection`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// The run.
    pub run: RunId,
    /// The round of that run.
    pub round: u32,
    /// The weights both arms of the gate were rolled out with.
    pub model: ModelId,
    /// The critic's root cause, as in the paper's taxonomy.
    pub root_cause: String,
    /// The critic's severity.
    pub severity: String,
    /// What the critic saw: free text of any number of lines. Becomes the commit's body.
    pub evidence: String,
    /// The patch, which has to turn the parent's harness into the candidate.
    pub patch: Patch,
    /// The version whose patch this one takes back, where it is a removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removes: Option<VersionName>,
    /// The gate's mode.
    pub gate_mode: String,
    /// Further numbers of the gate in one line, such as e-value and threshold; may be empty.
    pub gate_detail: String,
    /// When, in seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// Why a patch was accepted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Acceptance {
    /// The patch and the circumstances.
    #[serde(flatten)]
    pub decision: Decision,
    /// Gain on tasks that failed before.
    pub delta_in: Delta,
    /// Change on tasks that passed before.
    pub delta_out: Delta,
}

/// Why a candidate was turned down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rejection {
    /// The patch and the circumstances.
    #[serde(flatten)]
    pub decision: Decision,
    /// The gate's reason, in one line.
    pub verdict: String,
    /// Gain on tasks that failed before, if it was measured.
    pub delta_in: Option<Delta>,
    /// Change on tasks that passed before, if it was measured.
    pub delta_out: Option<Delta>,
}

/// One commit of the history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Version {
    /// Its place in the history.
    pub name: VersionName,
    /// The commit.
    pub commit: CommitId,
    /// The version before it; `None` for the first.
    pub parent: Option<CommitId>,
    /// Content id of its harness as recorded. `None` only for a hand-made commit whose files are no valid
    /// harness.
    pub harness: Option<HarnessId>,
    /// The commit's first line without the version's name.
    pub summary: String,
    /// When, in seconds since the Unix epoch.
    pub unix_seconds: u64,
    /// How it came to be.
    pub origin: Origin,
}

/// How a version came to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// The harness the history starts with.
    Initial(Provenance),
    /// An accepted patch.
    Patch(Box<Acceptance>),
    /// The tree of an older version, put on top.
    Rollback {
        /// The version whose harness came back.
        to: VersionName,
        /// Why.
        reason: String,
    },
    /// A commit that coharness did not make, or whose trailers it can't read.
    Foreign {
        /// What is missing.
        reason: String,
    },
}

/// A rejected candidate that is kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RejectedEntry {
    /// Where it is kept.
    pub name: RejectedName,
    /// The commit.
    pub commit: CommitId,
    /// The version it was a patch for.
    pub parent: CommitId,
    /// Content id of the candidate.
    pub harness: HarnessId,
    /// Why it was turned down.
    pub rejection: Rejection,
}

/// Anything that can be loaded by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A version of the history.
    Version(Version),
    /// A rejected candidate.
    Rejected(Box<RejectedEntry>),
}

impl Entry {
    /// The commit.
    #[must_use]
    pub fn commit(&self) -> CommitId {
        match self {
            Self::Version(version) => version.commit,
            Self::Rejected(entry) => entry.commit,
        }
    }

    /// The version, unless this is a rejected candidate.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        match self {
            Self::Version(version) => Some(version),
            Self::Rejected(_) => None,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => version.name.fmt(f),
            Self::Rejected(entry) => entry.name.fmt(f),
        }
    }
}

/// What is recorded when an adapter passes the gate together with a version.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairingRecord {
    /// The adapter.
    pub adapter: AdapterId,
    /// The run that trained it.
    pub run: RunId,
    /// The round of that run.
    pub round: u32,
    /// The weights the adapter is applied to.
    pub model: ModelId,
    /// The gate's mode.
    pub gate_mode: String,
    /// Gain on tasks that failed before, if it was measured.
    pub delta_in: Option<Delta>,
    /// Change on tasks that passed before, if it was measured.
    pub delta_out: Option<Delta>,
    /// When, in seconds since the Unix epoch.
    pub unix_seconds: u64,
}

/// An adapter and the version it goes with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pairing {
    /// The version.
    pub version: VersionName,
    /// The version's commit.
    pub commit: CommitId,
    /// The adapter and how it was judged.
    #[serde(flatten)]
    pub record: PairingRecord,
}
