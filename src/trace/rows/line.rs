//! One line of a JSON Lines file: an object, whose members are the columns of a row.
//!
//! `input`, `output` and `expected` are JSON values: a string is its content, anything else is serialised. A
//! column declared with `--json-columns` holds JSON text inside its strings.

use std::borrow::Cow;

use super::super::cells::{Row, TextCell, moment_of_text};
use super::super::quarantine::Code;
use super::super::schema::{ColumnMap, SPANS, TextEncoding, TraceColumns};
use crate::text::{Json, parse_members};

/// Which members of lines are built. The others are checked as JSON, and passed over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'w> {
    /// Those of these names.
    Values(&'w [&'w str]),
    /// All names, and no values.
    Names,
}

/// One line that could be parsed, ready to become a row.
pub(super) struct Line {
    members: Vec<(String, Json)>,
}

/// The line as its members, or why it is none.
pub(super) fn parsed(line: &[u8], wanted: Wanted<'_>) -> Result<Line, (Code, String)> {
    if let Err(e) = std::str::from_utf8(line) {
        return Err((
            Code::InvalidUtf8,
            format!("not UTF-8 from byte {} on", e.valid_up_to()),
        ));
    }
    let mut names = Vec::new();
    let read = match wanted {
        Wanted::Values(wanted) => parse_members(line, |name| wanted.contains(&name)),
        Wanted::Names => parse_members(line, |name| {
            names.push((name.to_owned(), Json::Null));
            false
        }),
    };
    match read {
        Ok(Json::Object(members)) => Ok(Line {
            members: match wanted {
                Wanted::Values(_) => members,
                Wanted::Names => names,
            },
        }),
        Ok(_) => Err((Code::InvalidJson, "the line is JSON but no object".into())),
        Err(e) => Err((Code::InvalidJson, e.to_string())),
    }
}

impl Line {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_str())
    }

    pub fn member(&self, name: &str) -> &Json {
        self.members
            .iter()
            .find(|(key, _)| key == name)
            .map_or(&Json::Null, |(_, value)| value)
    }

    pub fn signals(
        &self,
        wanted: &TraceColumns,
        into: &mut Vec<Option<f64>>,
    ) -> Result<(), String> {
        into.clear();
        for name in &wanted.signals {
            into.push(match self.member(name) {
                Json::Null => None,
                Json::Float(literal) => literal.parse().ok(),
                Json::Integer(digits) => digits.parse().ok(),
                _ => return Err(format!("`{name}` is not a number")),
            });
        }
        Ok(())
    }

    /// Refuses a line whose ids are neither text nor whole numbers: reading them as missing would
    /// tear sessions apart without a word.
    pub fn check_ids(&self, map: &ColumnMap) -> Result<(), String> {
        for canonical in ["trace_id", "session_id", "project_id"] {
            let name = map.column(canonical);
            // Without a word of the user, `project_id` may be something else.
            if canonical == "project_id" && name == canonical {
                continue;
            }
            if !matches!(
                self.member(name),
                Json::Null | Json::String(_) | Json::Integer(_)
            ) {
                return Err(format!("`{name}` is neither text nor a whole number"));
            }
        }
        Ok(())
    }

    pub fn row<'a>(
        &'a self,
        wanted: &TraceColumns,
        map: &ColumnMap,
        signals: &'a [Option<f64>],
    ) -> Row<'a> {
        let label = |canonical: &str| label(self.member(map.column(canonical)));
        let text = |wanted: bool, canonical: &str| match self.member(map.column(canonical)) {
            _ if !wanted => TextCell::Null,
            Json::String(text) if map.is_json(canonical) => {
                TextCell::Bytes(text.as_bytes(), TextEncoding::Json)
            }
            Json::String(text) => TextCell::Bytes(text.as_bytes(), TextEncoding::Text),
            other => TextCell::Value(other.clone()),
        };
        Row {
            trace_id: label("trace_id"),
            session_id: label("session_id"),
            project_id: label("project_id"),
            started_at: match self.member(map.column("started_at")) {
                Json::String(text) => moment_of_text(text),
                Json::Null => Err("null".into()),
                Json::Integer(digits) if let Some(unit) = map.time_unit() => digits
                    .parse()
                    .map_err(|_| format!("{digits} is no time"))
                    .and_then(|count| unit.moment(count)),
                Json::Float(literal) if let Some(unit) = map.time_unit() => {
                    unit.moment_of_float(literal.parse().unwrap_or(f64::NAN))
                }
                Json::Integer(_) | Json::Float(_) => Err(
                    "a number; say what it counts since 1970 with --time-unit s, ms, us or ns"
                        .into(),
                ),
                _ => Err("not text; write times as ISO 8601 text".into()),
            },
            name: label("name"),
            environment: label("environment"),
            release: label("release"),
            model: label("model"),
            tags: match wanted.labels {
                true => match self.member(map.column("tags")) {
                    Json::Null => TextCell::Null,
                    tags => TextCell::Value(tags.clone()),
                },
                false => TextCell::Null,
            },
            input: text(wanted.input, "input"),
            output: text(wanted.reads_output(), "output"),
            expected: text(wanted.compared, "expected"),
            spans: match self.member(map.column(SPANS)) {
                _ if !wanted.spans => TextCell::Null,
                Json::String(text) => TextCell::Bytes(text.as_bytes(), TextEncoding::Json),
                other => TextCell::Value(other.clone()),
            },
            signals,
        }
    }
}

fn label(value: &Json) -> Option<Cow<'_, [u8]>> {
    match value {
        Json::String(text) | Json::Integer(text) => Some(Cow::Borrowed(text.as_bytes())),
        _ => None,
    }
}
