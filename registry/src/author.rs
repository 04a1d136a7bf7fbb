//! Who commits are signed by.

use git2::{Signature, Time};

use crate::error::RegistryError;

/// The author and committer of every commit the registry makes.
///
/// It never comes from git's configuration, so that commits work on a machine that has none and the same
/// run makes the same commits everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    name: String,
    email: String,
}

impl Default for Author {
    fn default() -> Self {
        Self {
            name: "coharness".to_owned(),
            email: "coharness@localhost".to_owned(),
        }
    }
}

impl Author {
    /// Checks a configured author; meant to be called while the configuration is loaded.
    ///
    /// # Errors
    /// [`RegistryError::InvalidField`] if a part is empty, holds an angle bracket or a control character, or
    /// holds nothing but the punctuation that git strips.
    pub fn new(name: &str, email: &str) -> Result<Self, RegistryError> {
        check("author name", name)?;
        check("author email", email)?;
        Ok(Self {
            name: name.to_owned(),
            email: email.to_owned(),
        })
    }

    pub(crate) fn signature(&self, unix_seconds: u64) -> Result<Signature<'static>, RegistryError> {
        let seconds = i64::try_from(unix_seconds).map_err(|_| RegistryError::InvalidField {
            field: "time",
            value: unix_seconds.to_string(),
            reason: "is too far in the future for git".to_owned(),
        })?;
        Signature::new(&self.name, &self.email, &Time::new(seconds, 0))
            .map_err(RegistryError::git("make a signature"))
    }
}

fn check(field: &'static str, text: &str) -> Result<(), RegistryError> {
    // libgit2 strips these from both ends, and control characters and spaces with them.
    let is_stripped = |c: char| c.is_ascii_control() || " .,:;<>\"\\'".contains(c);
    let reason = if text.chars().all(is_stripped) {
        "is empty"
    } else if text.contains(['<', '>']) {
        "holds an angle bracket"
    } else if text.contains(char::is_control) {
        "holds a control character"
    } else {
        return Ok(());
    };
    Err(RegistryError::InvalidField {
        field,
        value: text.to_owned(),
        reason: reason.to_owned(),
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
    fn configured_authors_that_are_empty_or_hold_angle_brackets_are_rejected() {
        for name in ["", "   ", "...", "a<b>", "<", "a>", "a\nb", "a\0b"] {
            let error = Author::new(name, "a@example.org").unwrap_err();
            assert!(
                error.to_string().starts_with("author name"),
                "{name:?}: {error}"
            );
            let error = Author::new("someone", name).unwrap_err();
            assert!(
                error.to_string().starts_with("author email"),
                "{name:?}: {error}"
            );
        }
        let author = Author::new("Zoë O'Neil, Jr.", "zoe@example.org").unwrap();
        assert!(author.signature(1).is_ok());
    }

    #[test]
    fn a_time_git_cannot_hold_is_an_error() {
        assert!(Author::default().signature(u64::MAX).is_err());
    }
}
