//! How long to wait before asking again.

use std::time::{Duration, SystemTime};

/// Longest pause that a server is given: whoever asks for more is asked again after that.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause of a `Retry-After` header: whole seconds, or a date, up to [`LONGEST`]. Anything else
/// is as if it weren't there.
pub(super) fn after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        value.parse().ok().map(Duration::from_secs)
    } else {
        http_date(value).map(|date| date.duration_since(now).unwrap_or(Duration::ZERO))
    };
    wait.map(|wait| wait.min(LONGEST))
}

/// A growing pause with jitter between half of it and the whole, so that many rollouts don't ask
/// again together. The jitter comes from the request's seed.
pub(super) fn backoff(first: Duration, longest: Duration, attempt: u32, seed: u64) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt - 1);
    let whole = first.saturating_mul(doubled).min(longest);
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&seed.to_le_bytes())
        .update(&attempt.to_le_bytes());
    let share = f64::from(hasher.finalize().as_bytes()[0]) / 255.0;
    whole.mul_f64(0.5 + share / 2.0)
}

/// Reads a date of HTTP, as in `Wed, 21 Oct 2026 07:28:00 GMT`, or in one of the two older forms
/// `Wednesday, 21-Oct-26 07:28:00 GMT` and `Wed Oct 21 07:28:00 2026` (RFC 9110, 5.6.7).
pub(super) fn http_date(text: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let parts: Vec<&str> = text
        .split([' ', ',', '-'])
        .filter(|part| !part.is_empty())
        .collect();
    let (day, month, year, time) = match parts[..] {
        [_, day, month, year, time, "GMT"] => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let month = u64::try_from(month).ok()?;
    let (day, written): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let year = match (year.len(), written) {
        (2, 70..) => 1900 + written,
        (2, _) => 2000 + written,
        _ => written,
    };
    let clock: Vec<u64> = time
        .split(':')
        .map(|n| n.parse().ok())
        .collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else {
        return None;
    };
    let is_time = hour < 24 && minute < 60 && second <= 60;
    if !(1970..10_000).contains(&year) || !(1..=31).contains(&day) || !is_time {
        return None;
    }
    // Days since 1970, in years that begin in March so that the leap day comes last.
    let (year, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = http_date("Wed, 21 Oct 2026 07:27:00 GMT").expect("date");
        let seconds = |value| after(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("5"), Some(5));
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("3600"), Some(3600));
        assert_eq!(seconds("9000000000000"), Some(86_400));
        assert_eq!(seconds("Wed, 21 Oct 2037 07:28:00 GMT"), Some(86_400));
        assert_eq!(seconds("Wed, 21 Oct 2026 07:28:00 GMT"), Some(60));
        assert_eq!(seconds("Wed, 21 Oct 2026 07:00:00 GMT"), Some(0));
        for value in [
            "-3",
            "1.5",
            "99999999999999999999",
            "",
            "soon",
            "Wed, 21 Oct 2026 18446744073709551615:28:00 GMT",
            "Wed, 21 Oct 2026 24:00:00 GMT",
        ] {
            assert_eq!(seconds(value), None, "{value}");
        }
    }

    #[test]
    fn dates_count_leap_days() {
        let unix = |text| {
            let date = http_date(text).expect("date");
            date.duration_since(SystemTime::UNIX_EPOCH)
                .expect("after 1970")
                .as_secs()
        };
        assert_eq!(unix("Thu, 01 Jan 1970 00:00:00 GMT"), 0);
        assert_eq!(unix("Tue, 29 Feb 2000 12:00:00 GMT"), 951_825_600);
        for same in [
            "Wed, 21 Oct 2026 07:28:00 GMT",
            "Wednesday, 21-Oct-26 07:28:00 GMT",
            "Wed Oct 21 07:28:00 2026",
        ] {
            assert_eq!(unix(same), 1_792_567_680, "{same}");
        }
        assert_eq!(unix("Sunday, 06-Nov-94 08:49:37 GMT"), 784_111_777);
        assert_eq!(unix("Sun Nov  6 08:49:37 1994"), 784_111_777);
    }

    proptest! {
        #[test]
        fn any_header_is_read(
            value in "\\PC{0,40}|[0-9]{1,25}|Wed, [0-9]{1,20} (Jan|Feb|Oct|X) [0-9]{1,20} [0-9]{1,20}(:[0-9]{0,20}){0,3} GMT",
        ) {
            let wait = after(&value, SystemTime::UNIX_EPOCH);
            prop_assert!(wait.is_none_or(|wait| wait <= LONGEST));
        }
    }

    #[test]
    fn pauses_grow_to_the_longest() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        for (attempt, whole) in [(1, 100), (2, 200), (3, 400), (9, 1000)] {
            let wait = backoff(first, longest, attempt, 7).as_millis();
            assert!((whole / 2..=whole).contains(&wait), "{attempt}: {wait}");
        }
    }
}
