//! Times: when a monitor runs next, and how instants are written (as in PandaProbe).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Duration, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use serde::{Deserialize, Serialize};

const CRON: &str = "cron:";
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When a monitor runs. Written as `every_6h`, `daily`, `weekly` or `cron:` with 5 fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cadence {
    /// 6 hours after the last instant.
    Every6h,
    /// 24 hours after the last instant.
    Daily,
    /// 7 days after the last instant.
    Weekly,
    /// At the times of a cron expression, in UTC.
    Cron(CronSchedule),
}

/// A cron expression of 5 fields: minute, hour, day of month, month, day of week. 0 and 7 are Sunday.
///
/// If both day fields are restricted, a day that matches either one matches, as POSIX says; a field
/// is restricted unless it is exactly `*` (so `*/2` is).
#[derive(Clone, Debug, PartialEq)]
pub struct CronSchedule {
    text: String,
    cron: Box<Cron>,
}

/// Why a text is no cadence, or has no next time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CadenceError {
    /// Neither a name nor a cron expression.
    #[error(
        "`{0}` is no cadence; use every_6h, daily, weekly or cron:MINUTE HOUR DAY MONTH WEEKDAY"
    )]
    Unknown(String),
    /// A cron expression that can't be read.
    #[error("cron expression `{expression}`: {problem}")]
    Cron {
        /// The expression, without `cron:`.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A cron expression without any matching date, such as 31 February.
    #[error("cron expression `{0}` never fires: no year has such a date")]
    NeverFires(String),
    /// The calendar ends.
    #[error("there is no time after {0} that this cadence can name")]
    EndOfTime(DateTime<Utc>),
}

impl Cadence {
    /// The next time strictly after `instant`.
    ///
    /// # Errors
    /// [`CadenceError::EndOfTime`] where the calendar ends (thousands of years from now).
    pub fn next(&self, instant: DateTime<Utc>) -> Result<DateTime<Utc>, CadenceError> {
        let step = match self {
            Self::Every6h => Duration::hours(6),
            Self::Daily => Duration::hours(24),
            Self::Weekly => Duration::days(7),
            Self::Cron(schedule) => {
                return schedule
                    .cron
                    .find_next_occurrence(&instant, false)
                    .map_err(|_| CadenceError::EndOfTime(instant));
            }
        };
        instant
            .checked_add_signed(step)
            .ok_or(CadenceError::EndOfTime(instant))
    }
}

impl CronSchedule {
    /// Reads 5 fields. A field is `*`, a number, a range `a-b`, a step `*/n`, `a-b/n` or `a/n`, or a list of
    /// these with commas; months and days of the week may be English names of 3 letters.
    ///
    /// # Errors
    /// [`CadenceError::Cron`] for anything else, [`CadenceError::NeverFires`] if no date matches.
    pub fn new(expression: &str) -> Result<Self, CadenceError> {
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let text = fields.join(" ");
        let refuse = |problem: String| CadenceError::Cron {
            expression: text.clone(),
            problem,
        };
        if fields.len() != 5 {
            return Err(refuse(format!(
                "has {} fields; give 5: minute, hour, day of month, month, day of week",
                fields.len()
            )));
        }
        for (position, field) in fields.iter().enumerate() {
            let names: &[&str] = match position {
                3 => &MONTHS,
                4 => &WEEKDAYS,
                _ => &[],
            };
            // The parser knows more (last days, nearest weekdays), and takes a name in any field.
            if let Some(part) = field.split([',', '-', '/']).find(|part| {
                let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
                let is_name = names.contains(&part.to_ascii_lowercase().as_str());
                !(*part == "*" || is_number || is_name)
            }) {
                return Err(refuse(format!(
                    "`{part}` can't stand in field {} (`{field}`); use *, numbers, ranges, steps and lists",
                    position + 1
                )));
            }
        }
        let cron = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .sloppy_ranges(true)
            .build()
            .parse(&text)
            .map_err(|e| refuse(e.to_string()))?;
        // Dates repeat every 400 years; the search goes on for thousands.
        if cron
            .find_next_occurrence(&DateTime::UNIX_EPOCH, false)
            .is_err()
        {
            return Err(CadenceError::NeverFires(text));
        }
        Ok(Self {
            text,
            cron: Box::new(cron),
        })
    }
}

impl FromStr for Cadence {
    type Err = CadenceError;

    fn from_str(text: &str) -> Result<Self, CadenceError> {
        match text.trim() {
            "every_6h" => Ok(Self::Every6h),
            "daily" => Ok(Self::Daily),
            "weekly" => Ok(Self::Weekly),
            other => match other.strip_prefix(CRON) {
                Some(expression) => CronSchedule::new(expression).map(Self::Cron),
                None => Err(CadenceError::Unknown(other.to_owned())),
            },
        }
    }
}

impl TryFrom<String> for Cadence {
    type Error = CadenceError;

    fn try_from(text: String) -> Result<Self, CadenceError> {
        text.parse()
    }
}

impl From<Cadence> for String {
    fn from(cadence: Cadence) -> Self {
        cadence.to_string()
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every6h => f.write_str("every_6h"),
            Self::Daily => f.write_str("daily"),
            Self::Weekly => f.write_str("weekly"),
            Self::Cron(schedule) => write!(f, "{CRON}{}", schedule.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{format_instant, parse_instant};
    use proptest::prelude::*;

    fn at(text: &str) -> DateTime<Utc> {
        parse_instant(text).unwrap()
    }

    fn next_times(cadence: &str, from: &str, count: usize) -> Vec<String> {
        let cadence: Cadence = cadence.parse().unwrap();
        let mut instant = at(from);
        (0..count)
            .map(|_| {
                instant = cadence.next(instant).unwrap();
                format_instant(instant)
                    .trim_end_matches(":00Z")
                    .replace('T', " ")
            })
            .collect()
    }

    #[test]
    fn intervals_count_from_the_instant() {
        let from = "2026-02-28T21:30:00Z";
        assert_eq!(next_times("every_6h", from, 1), ["2026-03-01 03:30"]);
        assert_eq!(next_times("daily", from, 1), ["2026-03-01 21:30"]);
        assert_eq!(next_times("weekly", from, 1), ["2026-03-07 21:30"]);
    }

    #[test]
    fn cron_times_lie_strictly_after_the_instant() {
        let every_day = "cron:0 3 * * *";
        for (from, next) in [
            ("2026-01-31T02:59:59.999Z", "2026-01-31 03:00"),
            ("2026-01-31T03:00:00Z", "2026-02-01 03:00"),
            ("2026-01-31T03:00:00.5Z", "2026-02-01 03:00"),
            ("2025-12-31T23:00:00Z", "2026-01-01 03:00"),
        ] {
            assert_eq!(next_times(every_day, from, 1), [next], "{from}");
        }
        assert_eq!(
            next_times("cron:* * * * *", "2026-01-31T03:00:00.5Z", 2),
            ["2026-01-31 03:01", "2026-01-31 03:02"]
        );
    }

    #[test]
    fn leap_days_and_month_ends() {
        assert_eq!(
            next_times("cron:0 0 29 2 *", "2096-01-01", 2),
            ["2096-02-29 00:00", "2104-02-29 00:00"],
            "2100 is no leap year"
        );
        assert_eq!(
            next_times("cron:30 23 31 * *", "2026-01-01", 3),
            ["2026-01-31 23:30", "2026-03-31 23:30", "2026-05-31 23:30"]
        );
    }

    #[test]
    fn sunday_is_0_and_7() {
        let sundays = ["2026-02-01 00:00", "2026-02-08 00:00"];
        for weekday in ["0", "7", "sun", "SUN"] {
            let cadence = format!("cron:0 0 * * {weekday}");
            assert_eq!(next_times(&cadence, "2026-01-31", 2), sundays, "{weekday}");
        }
        assert_eq!(
            next_times("cron:0 0 * * 5-7", "2026-01-31", 4),
            [
                "2026-02-01 00:00",
                "2026-02-06 00:00",
                "2026-02-07 00:00",
                "2026-02-08 00:00"
            ]
        );
    }

    #[test]
    fn either_day_field_matches_when_both_are_restricted() {
        assert_eq!(
            next_times("cron:0 0 1,15 * 1", "2025-01-15T12:00:00Z", 4),
            [
                "2025-01-20 00:00",
                "2025-01-27 00:00",
                "2025-02-01 00:00",
                "2025-02-03 00:00"
            ]
        );
        // A date that never comes does not stop the day of the week.
        assert_eq!(
            next_times("cron:0 0 31 2 1", "2025-01-15", 1),
            ["2025-02-03 00:00"]
        );
        // A step restricts, a star does not.
        assert_eq!(
            next_times("cron:0 0 */2 * 1", "2025-01-15T12:00:00Z", 3),
            ["2025-01-17 00:00", "2025-01-19 00:00", "2025-01-20 00:00"]
        );
        assert_eq!(
            next_times("cron:0 0 * * 1", "2025-01-15", 1),
            ["2025-01-20 00:00"]
        );
    }

    #[test]
    fn steps_ranges_and_names() {
        assert_eq!(
            next_times("cron:10/20 8-9 * jan,Mar mon-fri", "2026-01-31", 4),
            [
                "2026-03-02 08:10",
                "2026-03-02 08:30",
                "2026-03-02 08:50",
                "2026-03-02 09:10"
            ]
        );
    }

    #[test]
    fn what_never_fires_is_an_error() {
        for never in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            let error = format!("cron:{never}").parse::<Cadence>().unwrap_err();
            assert_eq!(error, CadenceError::NeverFires(never.to_owned()));
        }
    }

    #[test]
    fn anything_else_is_an_error() {
        for wrong in [
            "",
            "hourly",
            "Daily",
            "0 0 * * *",
            "cron:",
            "cron:@daily",
            "cron:* * * *",
            "cron:0 * * * * *",
            "cron:60 * * * *",
            "cron:0 24 * * *",
            "cron:0 0 0 * *",
            "cron:0 0 32 * *",
            "cron:0 0 * 13 *",
            "cron:0 0 * * 8",
            "cron:*/0 * * * *",
            "cron:0 0 L * *",
            "cron:0 0 15W * *",
            "cron:0 0 * * 1#2",
            "cron:0 0 1 * +1",
            "cron:0 0 ? * 1",
            "cron:0 0 * mon *",
            "cron:jan 0 * * *",
            "cron:5- * * * *",
            "cron:/5 * * * *",
            "cron:1,,2 * * * *",
            "cron:1-2-3 * * * *",
            "cron:1/2/3 * * * *",
            "cron:*-5 * * * *",
            "cron:*5 * * * *",
            "cron:9-5 * * * *",
            "cron:99999999999999999999 * * * *",
        ] {
            assert!(wrong.parse::<Cadence>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn cadences_are_written_as_they_are_read() {
        for text in ["every_6h", "daily", "weekly", "cron:*/5 0 1 jan sun"] {
            let cadence: Cadence = serde_json::from_str(&format!("{text:?}")).unwrap();
            assert_eq!(
                serde_json::to_string(&cadence).unwrap(),
                format!("{text:?}")
            );
        }
        let spaced: Cadence = " cron: 0  3 * * * ".parse().unwrap();
        assert_eq!(spaced.to_string(), "cron:0 3 * * *");
    }

    #[test]
    fn the_end_of_the_calendar_is_an_error() {
        for cadence in ["daily", "cron:0 0 * * *"] {
            let cadence: Cadence = cadence.parse().unwrap();
            assert!(cadence.next(DateTime::<Utc>::MAX_UTC).is_err());
        }
    }

    #[test]
    fn instants_without_zone_are_utc() {
        for (text, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            (" 2026-01-31T18:05 ", "2026-01-31T18:05:00Z"),
            ("2026-01-31 18:05:06", "2026-01-31T18:05:06Z"),
            ("2026-01-31T18:05:06.25", "2026-01-31T18:05:06.250Z"),
            ("2026-01-31T18:05:06Z", "2026-01-31T18:05:06Z"),
            ("2026-01-31t18:05:06z", "2026-01-31T18:05:06Z"),
            ("2026-01-31T18:05Z", "2026-01-31T18:05:00Z"),
            ("2026-01-31T00:30:00+02:00", "2026-01-30T22:30:00Z"),
            (
                "2026-01-31T18:05:06.123456789-0530",
                "2026-01-31T23:35:06.123456789Z",
            ),
            ("2026-01-31T18:05+02", "2026-01-31T16:05:00Z"),
        ] {
            assert_eq!(format_instant(at(text)), expected, "{text}");
        }
        for wrong in [
            "",
            "now",
            "2026",
            "2026-1-2",
            "2026-02-30",
            "2026-01-31T25:00:00",
            "2026-01-31T18:05:06 CET",
            "2026-01-31T",
            "+12026-01-31",
            "31.01.2026",
            "2026-01-31é",
        ] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn next_times_match_the_fields(minute in 0u32..60, hour in 0u32..24, weekday in 0u32..7, seconds in 0i64..4_000_000_000) {
            use chrono::{Datelike, Timelike};
            let from = DateTime::from_timestamp(seconds, 0).unwrap();
            let cadence: Cadence = format!("cron:{minute} {hour} * * {weekday}").parse().unwrap();
            let next = cadence.next(from).unwrap();
            prop_assert!(next > from && next - from <= Duration::days(7));
            prop_assert_eq!((next.minute(), next.hour(), next.second()), (minute, hour, 0));
            prop_assert_eq!(next.weekday().num_days_from_sunday(), weekday);
        }

        #[test]
        fn instants_survive_their_text(seconds in -62_000_000_000i64..250_000_000_000, nanos in 0u32..1_000_000_000) {
            let instant = DateTime::from_timestamp(seconds, nanos).unwrap();
            prop_assert_eq!(parse_instant(&format_instant(instant)).unwrap(), instant);
        }
    }
}
