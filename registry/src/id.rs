//! Names of things in the registry. Each is checked once, where it is made.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::RegistryError;

/// Longest run or adapter id: a path component must stay below 255 bytes together with `.lock`.
const MAX_COMPONENT: usize = 128;

/// Rejects ids that could not be one component of a git reference name on every file system.
fn check_component(field: &'static str, text: &str) -> Result<(), RegistryError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let reason = if text.is_empty() {
        "is empty"
    } else if text.len() > MAX_COMPONENT {
        "is longer than 128 characters"
    } else if !text.chars().all(allowed) {
        "may hold only letters, digits, `-`, `_` and `.`"
    } else if text.starts_with(['.', '-']) || text.ends_with('.') || text.contains("..") {
        "may not start with `.` or `-`, end with `.` or hold `..`"
    } else if text.to_ascii_lowercase().ends_with(".lock") {
        "may not end with `.lock`"
    } else {
        return Ok(());
    };
    Err(RegistryError::InvalidField {
        field,
        value: text.to_owned(),
        reason: reason.to_owned(),
    })
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps an id.
            ///
            /// # Errors
            /// [`RegistryError::InvalidField`] says which rule the text breaks.
            pub fn new(text: impl Into<String>) -> Result<Self, RegistryError> {
                let text = text.into();
                let check: fn(&'static str, &str) -> Result<(), RegistryError> = $check;
                check($field, &text)?;
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = RegistryError;

            fn from_str(text: &str) -> Result<Self, RegistryError> {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// One run of the two loops. Part of a reference name, so only `[A-Za-z0-9._-]`.
    RunId,
    "run",
    check_component
);
text_id!(
    /// LoRA weights that go with a harness version. Part of a reference name, so only `[A-Za-z0-9._-]`.
    AdapterId,
    "adapter",
    check_component
);
text_id!(
    /// The weights a decision was made with: a hash or a name, on one line.
    ModelId,
    "model",
    |field, text| crate::message::check_line(field, text)
);

/// The id of a git commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub(crate) git2::Oid);

impl CommitId {
    /// The first twelve hex digits, enough to name a commit to a person.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for CommitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for CommitId {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let invalid = || RegistryError::InvalidField {
            field: "commit",
            value: text.to_owned(),
            reason: "is not 40 hex digits".to_owned(),
        };
        // git2 pads short ids with zeros, which would name another object.
        if text.len() != 40 {
            return Err(invalid());
        }
        git2::Oid::from_str(text).map(Self).map_err(|_| invalid())
    }
}

/// The place of a version in the history, written `v1`, `v2`, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionName(NonZeroU32);

impl VersionName {
    /// The version a registry starts with.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The version with this number; `None` for 0.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// 1 for `v1`.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The name of the version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub(crate) fn tag_reference(self) -> String {
        format!("refs/tags/{self}")
    }
}

impl fmt::Display for VersionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("v{}", self.0))
    }
}

impl Serialize for VersionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for VersionName {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        text.strip_prefix('v')
            .and_then(decimal)
            .and_then(Self::new)
            .ok_or_else(|| RegistryError::InvalidField {
                field: "version",
                value: text.to_owned(),
                reason: "is not of the form v1, v2, …".to_owned(),
            })
    }
}

/// Where a rejected candidate is kept, written `rejected/<run>/<round>-<index>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectedName {
    /// The run that proposed it.
    pub run: RunId,
    /// The round of that run.
    pub round: u32,
    /// Counts the rejected candidates of the round from 1.
    pub index: u32,
}

impl RejectedName {
    pub(crate) fn reference(&self) -> String {
        format!("refs/{self}")
    }
}

impl fmt::Display for RejectedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "rejected/{}/{}-{}",
            self.run, self.round, self.index
        ))
    }
}

impl Serialize for RejectedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for RejectedName {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let parse = || {
            let rest = text
                .strip_prefix("refs/")
                .unwrap_or(text)
                .strip_prefix("rejected/")?;
            let (run, numbers) = rest.split_once('/')?;
            let (round, index) = numbers.split_once('-')?;
            Some(Self {
                run: RunId::new(run).ok()?,
                round: decimal(round)?,
                index: decimal(index)?,
            })
        };
        parse().ok_or_else(|| RegistryError::InvalidField {
            field: "rejected candidate",
            value: text.to_owned(),
            reason: "is not of the form rejected/<run>/<round>-<n>".to_owned(),
        })
    }
}

/// Plain digits in their only spelling: two names must never mean the same thing.
fn decimal(text: &str) -> Option<u32> {
    let is_canonical =
        text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_canonical {
        text.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should stop right there"
)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_would_break_a_reference_name_are_refused() {
        for text in [
            "", "a/b", "..", ".a", "-a", "a..b", "a.", "a.lock", "A.LOCK", "a b", "ä", "a~1", "@{",
        ] {
            assert!(RunId::new(text).is_err(), "{text:?}");
            assert!(AdapterId::new(text).is_err(), "{text:?}");
        }
        assert!(RunId::new("x".repeat(129)).is_err());
        for text in [
            "a",
            "2026-11-29_a.b",
            "0197f3c2-7d7a-7c5e-9f00-1f2e3d4c5b6a",
        ] {
            assert_eq!(RunId::new(text).unwrap().as_str(), text);
            let reference = format!("refs/rejected/{text}/1-1");
            assert!(git2::Reference::is_valid_name(&reference), "{reference}");
        }
    }

    #[test]
    fn model_ids_are_one_line() {
        assert!(ModelId::new("").is_err());
        assert!(ModelId::new("a\nb").is_err());
        assert!(ModelId::new("hf/Some Model@abc").is_ok());
    }

    #[test]
    fn names_round_trip_and_have_one_spelling() {
        assert_eq!("v12".parse::<VersionName>().unwrap().to_string(), "v12");
        for text in [
            "",
            "v",
            "v0",
            "v01",
            "12",
            "v-1",
            "v+1",
            "v4294967296",
            "V1",
        ] {
            assert!(text.parse::<VersionName>().is_err(), "{text:?}");
        }
        let name: RejectedName = "rejected/run-7/2-13".parse().unwrap();
        assert_eq!((name.round, name.index), (2, 13));
        assert_eq!(name.to_string(), "rejected/run-7/2-13");
        assert_eq!(
            "refs/rejected/run-7/2-13".parse::<RejectedName>().unwrap(),
            name
        );
        for text in [
            "rejected/r/2",
            "rejected/r/02-1",
            "rejected//1-1",
            "rejected/a/b/1-1",
        ] {
            assert!(text.parse::<RejectedName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn commit_ids_are_complete() {
        assert!("abcd".parse::<CommitId>().is_err());
        let text = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(text.parse::<CommitId>().unwrap().to_string(), text);
    }
}
