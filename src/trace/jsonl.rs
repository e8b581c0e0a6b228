//! JSON Lines files as traces: one object a line.
//!
//! `input`, `output` and `expected` are JSON values: a string is its content, anything else is serialised. A
//! column declared with `--json-columns` holds JSON text inside its strings.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use super::TraceError;
use super::cells::{Row, TextCell, moment_of_text};
use super::quarantine::Code;
use super::schema::{ColumnMap, SPANS, TextEncoding, TraceColumns, missing_column};
use crate::text::{Json, parse_members};

/// A longer line is set aside; it would only fill the memory.
const LONGEST_LINE: u64 = 128 << 20;

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

/// Where a line begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineAt {
    /// Its number, from 0.
    pub number: u64,
    /// Bytes of the file before it.
    pub byte: u64,
}

/// Reads lines; `each` gets the line's number (from 0) and the parsed line, or why it is none. It
/// returns whether to go on. Blank lines are no rows.
pub(super) fn read_lines(
    path: &Path,
    wanted: Wanted<'_>,
    mut each: impl FnMut(u64, Result<Line, (Code, String)>) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    read_lines_from(path, LineAt::default(), wanted, |at, line| {
        each(at.number, line)
    })
}

/// The same, from the beginning of a line on.
pub(super) fn read_lines_from(
    path: &Path,
    mut at: LineAt,
    wanted: Wanted<'_>,
    mut each: impl FnMut(LineAt, Result<Line, (Code, String)>) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    let broken = |e: std::io::Error| TraceError::File {
        file: path.to_owned(),
        problem: e.to_string(),
    };
    let mut file = File::open(path).map_err(broken)?;
    file.seek(SeekFrom::Start(at.byte)).map_err(broken)?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let count = std::io::Read::take(&mut reader, LONGEST_LINE)
            .read_until(b'\n', &mut bytes)
            .map_err(broken)?;
        if count == 0 {
            return Ok(());
        }
        let mut count = count as u64;
        if count == LONGEST_LINE && bytes.last() != Some(&b'\n') {
            count += reader.skip_until(b'\n').map_err(broken)? as u64;
            let problem = format!("the line is longer than {} MiB", LONGEST_LINE >> 20);
            if !each(at, Err((Code::TooLong, problem)))? {
                return Ok(());
            }
            at.number += 1;
            at.byte += count;
            continue;
        }
        let content = bytes.trim_ascii();
        // Some exporters begin a file with a byte-order mark.
        let content = match at.number {
            0 => content
                .strip_prefix("\u{feff}".as_bytes())
                .unwrap_or(content),
            _ => content,
        };
        if !content.is_empty() && !each(at, parsed(content, wanted))? {
            return Ok(());
        }
        at.number += 1;
        at.byte += count;
    }
}

fn parsed(line: &[u8], wanted: Wanted<'_>) -> Result<Line, (Code, String)> {
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

/// Refuses a file none of whose first lines has a wanted column.
pub(super) fn check_columns(
    path: &Path,
    partition: &[(String, String)],
    wanted: &TraceColumns,
    map: &ColumnMap,
) -> Result<(), TraceError> {
    // Any row may leave out what is null in it, so the first ones are looked at together.
    const LINES: usize = 1000;
    let mut present: Vec<String> = Vec::new();
    let mut lines = 0;
    read_lines(path, Wanted::Names, |_, line| {
        if let Ok(line) = line {
            for (key, _) in line.members {
                if !present.contains(&key) {
                    present.push(key);
                }
            }
            lines += 1;
        }
        Ok(lines < LINES)
    })?;
    let needed = [
        ("trace_id", true),
        ("started_at", true),
        ("session_id", wanted.session_required),
        ("input", wanted.input),
        ("output", wanted.reads_output()),
        ("expected", wanted.compared),
        (SPANS, wanted.spans && wanted.spans_required),
    ];
    let missing = needed
        .iter()
        .filter(|(_, needed)| *needed && lines > 0)
        .map(|(canonical, _)| (map.column(canonical), *canonical))
        .find(|(column, _)| {
            !present.iter().any(|p| p == column) && !partition.iter().any(|(key, _)| key == column)
        });
    match missing {
        Some((column, canonical)) => Err(missing_column(path, column, canonical, &present)),
        None => Ok(()),
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

/// Whether a file holds nothing but white space. One that can't be read is not blank: reading says what is wrong.
pub(super) fn is_blank(path: &Path) -> bool {
    use std::io::BufRead;
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    let mut reader = std::io::BufReader::new(file);
    loop {
        let (length, blank) = match reader.fill_buf() {
            Ok([]) => return true,
            Ok(bytes) => (bytes.len(), bytes.iter().all(u8::is_ascii_whitespace)),
            Err(_) => return false,
        };
        if !blank {
            return false;
        }
        reader.consume(length);
    }
}

fn label(value: &Json) -> Option<Cow<'_, [u8]>> {
    match value {
        Json::String(text) | Json::Integer(text) => Some(Cow::Borrowed(text.as_bytes())),
        _ => None,
    }
}
