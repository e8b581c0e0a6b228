//! Times as numbers since 1970. Which unit they count in is said, never guessed: the same number means a moment in this
//! year, or one in the year of the first moon landing.

use super::cells::Moment;

/// What a number since 1970 counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EpochUnit {
    /// Seconds; also with a fraction.
    Seconds,
    /// Thousandths of a second.
    Millis,
    /// Millionths.
    Micros,
    /// Thousand-millionths.
    Nanos,
}

impl EpochUnit {
    /// All of them, with their names in flags.
    pub const ALL: [(&'static str, Self); 4] = [
        ("s", Self::Seconds),
        ("ms", Self::Millis),
        ("us", Self::Micros),
        ("ns", Self::Nanos),
    ];

    fn nanos(self) -> i128 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }

    /// The moment of a whole number of these.
    pub(super) fn moment(self, count: i64) -> Result<Moment, String> {
        self.of_nanos(i128::from(count) * self.nanos())
            .ok_or_else(|| format!("{count} is too far from 1970"))
    }

    /// The moment of a number with a fraction. What a float can't tell apart is rounded to microseconds.
    pub(super) fn moment_of_float(self, count: f64) -> Result<Moment, String> {
        let micros = (count * self.nanos() as f64 / 1000.0).round();
        match micros.abs() < 9e18 {
            true => Ok(Moment {
                micros: micros as i64,
                nanos: 0,
            }),
            false => Err(format!("{count} is no time")),
        }
    }

    fn of_nanos(self, nanos: i128) -> Option<Moment> {
        let micros = i64::try_from(nanos.div_euclid(1000)).ok()?;
        Some(Moment {
            micros,
            nanos: i16::try_from(nanos.rem_euclid(1000)).ok()?,
        })
    }

    /// The same as text: ISO 8601, UTC.
    pub(super) fn text(self, number: &serde_json::Number) -> Option<String> {
        let moment = match number.as_i64() {
            Some(count) => self.moment(count),
            None => self.moment_of_float(number.as_f64()?),
        };
        let moment = moment.ok()?;
        let seconds = moment.micros.div_euclid(1_000_000);
        let nanos = moment.micros.rem_euclid(1_000_000) * 1000 + i64::from(moment.nanos);
        let time = chrono::DateTime::from_timestamp(seconds, u32::try_from(nanos).ok()?)?;
        Some(time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_moment_that_its_unit_says() {
        let micros = 1_767_225_600_000_000;
        for (unit, count) in [
            (EpochUnit::Seconds, 1_767_225_600),
            (EpochUnit::Millis, 1_767_225_600_000),
            (EpochUnit::Micros, micros),
            (EpochUnit::Nanos, micros * 1000),
        ] {
            assert_eq!(unit.moment(count).unwrap(), Moment { micros, nanos: 0 });
            let text = unit.text(&count.into()).unwrap();
            assert_eq!(text, "2026-01-01T00:00:00Z");
        }
        let odd = EpochUnit::Nanos.moment(-1).unwrap();
        assert_eq!(
            odd,
            Moment {
                micros: -1,
                nanos: 999
            }
        );
        let half = EpochUnit::Seconds.moment_of_float(0.5).unwrap();
        assert_eq!(half.micros, 500_000);
        assert!(EpochUnit::Seconds.moment(i64::MAX).is_err());
        assert!(EpochUnit::Seconds.moment_of_float(f64::NAN).is_err());
    }
}
