//! Moments as people and files write them.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};

/// A text that is no instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no ISO 8601 date or time; write 2026-01-31, 2026-01-31T18:00:00Z or 2026-01-31T18:00:00+02:00"
)]
pub struct InstantError(String);

/// Reads an ISO 8601 date or time. A date is its midnight; a time without zone is UTC (as in PandaProbe). A space may stand for the `T`, seconds may be left out.
///
/// # Errors
/// [`InstantError`] for anything else.
pub fn parse_instant(text: &str) -> Result<DateTime<Utc>, InstantError> {
    let refuse = || InstantError(text.to_owned());
    let trimmed = text.trim();
    // chrono would also read `+12026-1-2`.
    let is_dated = trimmed
        .bytes()
        .zip(*b"dddd-dd-dd")
        .filter(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            shape => byte == shape,
        })
        .count()
        == 10;
    if !is_dated {
        return Err(refuse());
    }
    if let Ok(date) = NaiveDate::parse_from_str(trimmed, "%Y-%m-%d") {
        return Ok(date.and_time(chrono::NaiveTime::MIN).and_utc());
    }
    let mut text = trimmed.replacen([' ', 't'], "T", 1);
    if text.ends_with(['Z', 'z']) {
        text.pop();
        text.push_str("+00:00");
    }
    for format in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"] {
        if let Ok(time) = NaiveDateTime::parse_from_str(&text, format) {
            return Ok(time.and_utc());
        }
        if let Ok(time) = DateTime::parse_from_str(&text, &format!("{format}%#z")) {
            return Ok(time.to_utc());
        }
    }
    Err(refuse())
}

/// The ISO 8601 form of an instant, with as many fraction digits as it needs.
pub fn format_instant(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

/// Instants in JSON: ISO 8601 texts, for `#[serde(with = "instant")]`.
pub(crate) mod instant {
    use super::{DateTime, Utc, format_instant, parse_instant};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(
        instant: &DateTime<Utc>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_instant(*instant))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DateTime<Utc>, D::Error> {
        parse_instant(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The same for instants that may be null.
pub(crate) mod optional_instant {
    use super::{DateTime, Utc, format_instant, parse_instant};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(
        instant: &Option<DateTime<Utc>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        instant.map(format_instant).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DateTime<Utc>>, D::Error> {
        Option::<String>::deserialize(deserializer)?
            .map(|text| parse_instant(&text).map_err(D::Error::custom))
            .transpose()
    }
}
