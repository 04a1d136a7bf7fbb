//! `strftime_now` for a time that the caller fixed, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A point in time, split into what the format codes ask for.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    year: u64,
    month: usize,
    day: u64,
    day_of_year: u64,
    weekday: usize,
    second_of_day: u64,
}

impl Clock {
    /// The calendar date of `time`; a time before 1970 counts as its beginning.
    pub(super) fn new(time: SystemTime) -> Self {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_secs());
        let days = seconds / 86_400;
        let weekday = usize::try_from(days % 7).unwrap_or(0);
        let mut year = 1970;
        let mut rest = days;
        while rest >= year_length(year) {
            rest -= year_length(year);
            year += 1;
        }
        let day_of_year = rest;
        let mut month = 0;
        while rest >= month_length(year, month) {
            rest -= month_length(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: rest + 1,
            day_of_year,
            weekday,
            second_of_day: seconds % 86_400,
        }
    }

    /// Formats as Python's `strftime` in the C locale.
    pub(super) fn format(&self, format: &str) -> Result<String, Error> {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let hour12 = (hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                out.push(character);
                continue;
            }
            let mut code = characters.next();
            let is_padded = code != Some('-');
            if !is_padded {
                code = characters.next();
            }
            let mut number = |value: u64, width: usize| {
                let width = if is_padded { width } else { 0 };
                out.push_str(&format!("{value:0width$}"));
            };
            match code {
                Some('Y') => number(self.year, 4),
                Some('y') => number(self.year % 100, 2),
                Some('m') => number(self.month as u64 + 1, 2),
                Some('d') => number(self.day, 2),
                Some('j') => number(self.day_of_year + 1, 3),
                Some('H') => number(hour, 2),
                Some('I') => number(hour12, 2),
                Some('M') => number(minute, 2),
                Some('S') => number(self.second_of_day % 60, 2),
                Some('B') => out.push_str(MONTHS[self.month]),
                Some('b') => out.push_str(&MONTHS[self.month][..3]),
                Some('A') => out.push_str(WEEKDAYS[self.weekday]),
                Some('a') => out.push_str(&WEEKDAYS[self.weekday][..3]),
                Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                Some('F') => out.push_str(&self.format("%Y-%m-%d")?),
                Some('T') => out.push_str(&self.format("%H:%M:%S")?),
                Some('Z') => out.push_str("UTC"),
                Some('%') => out.push('%'),
                other => {
                    let code = other.map(String::from).unwrap_or_default();
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("unsupported date format %{code}"),
                    ));
                }
            }
        }
        Ok(out)
    }
}

fn is_leap(year: u64) -> bool {
    (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
}

fn year_length(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn month_length(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| Clock::new(UNIX_EPOCH + Duration::from_secs(seconds));
        let all = "%a %A %d %-d %b %B %y %Y %m %j %H:%M:%S %I%p %F %T %%";
        // 29 February 2024, 13:05:09
        assert_eq!(
            at(1_709_211_909).format(all).expect("valid"),
            "Thu Thursday 29 29 Feb February 24 2024 02 060 13:05:09 01PM 2024-02-29 13:05:09 %"
        );
        assert_eq!(
            at(0).format("%d %b %Y %I%p").expect("valid"),
            "01 Jan 1970 12AM"
        );
        assert_eq!(
            at(1_767_225_599).format("%-d %B %Y %j").expect("valid"),
            "31 December 2025 365"
        );
        assert!(at(0).format("%Q").is_err());
    }
}
