//! The section `faults`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens when the policy or the sandbox fails, which says nothing about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultConfig {
    /// Failures of one rollout, while others succeed, after which it is left out.
    pub attempts: u32,
    /// Pause before the next attempt, in milliseconds; each further one is twice as long.
    pub first_pause_ms: u64,
    /// Longest pause in seconds.
    pub longest_pause_s: u64,
    /// Seconds in which no rollout succeeds after which the run stops. Waits that the server asks for
    /// don't count.
    pub patience_s: u64,
    /// Refusals of a policy that hasn't answered yet after which the run stops: a wrong key or name
    /// isn't waited for.
    pub refusals: u32,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            attempts: 3,
            first_pause_ms: 2_000,
            longest_pause_s: 300,
            // A night: who comes in the morning starts the server again, and the run goes on.
            patience_s: 43_200,
            refusals: 8,
        }
    }
}

impl FaultConfig {
    /// The field that is out of range, and what would be right.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.attempts == 0 {
            return Err(("faults.attempts", "must be at least 1"));
        }
        if self.first_pause_ms == 0 {
            return Err(("faults.first_pause_ms", "must be at least 1"));
        }
        if self.refusals == 0 {
            return Err(("faults.refusals", "must be at least 1"));
        }
        Ok(())
    }

    /// The pause after this many earlier ones.
    pub fn pause(&self, earlier: u32) -> Duration {
        let doubled = 2_u64.saturating_pow(earlier);
        let longest = self.longest_pause_s.saturating_mul(1000);
        let pause = self.first_pause_ms.saturating_mul(doubled);
        Duration::from_millis(pause.min(longest.max(self.first_pause_ms)))
    }

    /// How long the run waits for a success.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s)
    }

    /// The same for a person.
    pub(crate) fn shown_patience(&self) -> String {
        match self.patience_s {
            seconds @ ..120 => format!("{seconds} s"),
            minutes @ ..7_200 => format!("{} min", minutes / 60),
            hours => format!("{} h", hours / 3_600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_a_night_is_waited_for_in_bounded_pauses_and_told_in_words() {
        let usual = FaultConfig::default();
        let shown = |patience_s: u64| {
            let config = FaultConfig {
                patience_s,
                ..usual
            };
            config.shown_patience()
        };
        assert_eq!(usual.shown_patience(), "12 h");
        assert_eq!([90, 120, 7_199].map(shown), ["90 s", "2 min", "119 min"]);
        let pauses = (0..64).map(|earlier| usual.pause(earlier));
        assert!(pauses.max() <= Some(Duration::from_secs(usual.longest_pause_s)));
    }
}
