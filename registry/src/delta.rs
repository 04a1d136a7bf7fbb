//! The gate's measure, and its written form.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::RegistryError;

/// A difference of two success rates over paired rollouts, as a share of 1.
///
/// Written with six decimals: `+0.1406 [+0.0469, +0.2344] at 0.95, 10 gained, 1 lost, 64 pairs`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Delta {
    /// Candidate minus reference.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The interval's confidence, between 0 and 1.
    pub confidence: f64,
    /// Pairs that only the candidate solved.
    pub gained: u32,
    /// Pairs that only the reference solved.
    pub lost: u32,
    /// All pairs.
    pub pairs: u32,
}

impl Delta {
    pub(crate) fn check(&self, field: &'static str) -> Result<(), RegistryError> {
        let numbers = [self.estimate, self.low, self.high, self.confidence];
        let discordant = u64::from(self.gained) + u64::from(self.lost);
        let reason = if numbers.iter().any(|number| !number.is_finite()) {
            "is not a finite number"
        } else if self.low > self.high {
            "has an interval whose ends are swapped"
        } else if !(0.0..1.0).contains(&self.confidence) {
            "has a confidence outside 0 to 1"
        } else if discordant > u64::from(self.pairs) {
            "counts more discordant pairs than pairs"
        } else {
            return Ok(());
        };
        Err(RegistryError::InvalidField {
            field,
            value: self.to_string(),
            reason: reason.to_owned(),
        })
    }
}

/// At most six decimals, but never a rounded zero for a number that has a sign.
struct Rounded(f64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Adding zero turns -0 into 0.
        let rounded = (self.0 * 1e6).round() / 1e6 + 0.0;
        let number = if rounded == 0.0 && self.0 != 0.0 {
            self.0
        } else {
            rounded
        };
        fmt::Display::fmt(&number, f)
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:+} [{:+}, {:+}] at {}, {} gained, {} lost, {} pairs",
            Rounded(self.estimate),
            Rounded(self.low),
            Rounded(self.high),
            Rounded(self.confidence),
            self.gained,
            self.lost,
            self.pairs
        )
    }
}

impl FromStr for Delta {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let parse = || {
            let (estimate, rest) = text.split_once(" [")?;
            let (low, rest) = rest.split_once(", ")?;
            let (high, rest) = rest.split_once("] at ")?;
            let mut parts = rest.split(", ");
            let delta = Self {
                estimate: estimate.parse().ok()?,
                low: low.parse().ok()?,
                high: high.parse().ok()?,
                confidence: parts.next()?.parse().ok()?,
                gained: parts.next()?.strip_suffix(" gained")?.parse().ok()?,
                lost: parts.next()?.strip_suffix(" lost")?.parse().ok()?,
                pairs: parts.next()?.strip_suffix(" pairs")?.parse().ok()?,
            };
            parts.next().is_none().then_some(delta)
        };
        let delta = parse().ok_or_else(|| RegistryError::InvalidField {
            field: "delta",
            value: text.to_owned(),
            reason: "is not of the form `+0.1 [+0.0, +0.2] at 0.95, 2 gained, 1 lost, 10 pairs`"
                .to_owned(),
        })?;
        delta.check("delta")?;
        Ok(delta)
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that can't go on should stop right there"
)]
mod tests {
    use super::*;

    fn delta(estimate: f64, low: f64, high: f64) -> Delta {
        Delta {
            estimate,
            low,
            high,
            confidence: 0.95,
            gained: 10,
            lost: 1,
            pairs: 64,
        }
    }

    #[test]
    fn a_delta_reads_well_and_back() {
        let text = delta(9.0 / 64.0, 1.0 / 3.0 - 0.3, 0.25).to_string();
        assert_eq!(
            text,
            "+0.140625 [+0.033333, +0.25] at 0.95, 10 gained, 1 lost, 64 pairs"
        );
        assert_eq!(text.parse::<Delta>().unwrap().to_string(), text);
    }

    #[test]
    fn a_tiny_delta_keeps_its_sign_and_zero_has_none_to_lose() {
        let text = delta(1e-9, -0.0, 0.5).to_string();
        assert!(text.starts_with("+0.000000001 [+0, +0.5]"), "{text}");
        assert!(text.parse::<Delta>().unwrap().estimate > 0.0);
    }

    #[test]
    fn deltas_that_are_no_numbers_are_refused() {
        for bad in [
            delta(f64::NAN, 0.0, 1.0),
            delta(0.1, f64::NEG_INFINITY, 1.0),
            delta(0.1, 0.5, 0.2),
            Delta {
                pairs: 10,
                ..delta(0.1, 0.0, 1.0)
            },
            Delta {
                confidence: 95.0,
                ..delta(0.1, 0.0, 1.0)
            },
            Delta {
                gained: u32::MAX,
                lost: u32::MAX,
                ..delta(0.1, 0.0, 1.0)
            },
        ] {
            let error = bad.check("Delta-In").unwrap_err();
            assert!(error.to_string().starts_with("Delta-In"), "{error}");
            assert!(bad.to_string().parse::<Delta>().is_err());
        }
        assert!("+0.1".parse::<Delta>().is_err());
        assert!(
            format!("{}, more", delta(0.1, 0.0, 1.0))
                .parse::<Delta>()
                .is_err()
        );
    }
}
