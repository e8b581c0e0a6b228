//! Points in time as trpc-agent-go writes them: seconds from 1970 on as a number with a fraction.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::model::EpochTime;
use super::shape::number_of;

const NANOSECONDS: f64 = 1e9;
/// 2^63: the first double that is too large for 64 bits with a sign.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

impl EpochTime {
    /// The time so many seconds after 1970: nanoseconds as a double, what is finer cut off towards zero, as
    /// trpc-agent-go. None beyond the years 1677 to 2262, which is what 64 bits hold.
    pub fn of_seconds(seconds: f64) -> Option<Self> {
        let nanoseconds = (seconds * NANOSECONDS).trunc();
        let fits = (-BEYOND..BEYOND).contains(&nanoseconds);
        // Within the range of i64, so nothing is cut.
        fits.then_some(Self(nanoseconds as i64))
    }

    /// Seconds from 1970 on, as a double.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / NANOSECONDS
    }

    /// The time on this machine's clock.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = since.map_or(0, |since| since.as_nanos());
        Self(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
    }

    /// What files hold: the shortest number that reads as the same double.
    pub fn to_json(self) -> Value {
        number_of(self.seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::EpochTime;

    #[test]
    fn fractions_are_cut_towards_zero_and_times_out_of_range_are_none() {
        let of = |seconds| EpochTime::of_seconds(seconds).map(|time| time.0);
        assert_eq!(of(1_761_134_484.980_440_1), Some(1_761_134_484_980_440_064));
        assert_eq!(of(-1.5), Some(-1_500_000_000));
        assert_eq!(of(-0.000_000_001_9), Some(-1));
        assert_eq!(of(9_223_372_036.9), None);
        assert_eq!(of(-1e300), None);
        assert_eq!(of(f64::NAN), None);
    }

    #[test]
    fn a_time_is_written_as_it_was_read() {
        for text in [
            "1761134484.9804401",
            "1761134484",
            "0",
            "-2.5",
            "1766455261.342534",
        ] {
            let time = EpochTime::of_seconds(text.parse().unwrap()).unwrap();
            assert_eq!(time.to_json().to_string(), text);
        }
    }
}
