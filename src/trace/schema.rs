//! The canonical columns and how a file's columns become them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::TraceError;
use super::epoch::EpochUnit;
use crate::text::nearest;

/// Names of canonical columns that a user can map or request.
pub const CANONICAL: &[&str] = &[
    "trace_id",
    "session_id",
    "project_id",
    "started_at",
    "name",
    "environment",
    "input",
    "output",
    "expected",
];

/// Those of them that hold texts.
const TEXTS: [&str; 3] = ["input", "output", "expected"];

/// The column of spans.
pub(super) const SPANS: &str = "spans";

/// Further members of a trace, which judges and filters look at; they can be mapped too.
const OF_DOCUMENTS: &[&str] = &[
    "status", "ended_at", "user_id", "release", "tags", "model", "error", "metadata", "spans",
];

/// Labels that only runs with tables of traces read, in the order of their columns; `tags` is the last.
pub(super) const LABELS: [&str; 3] = ["release", "model", "tags"];

/// Which canonical columns are read. Nothing else is decoded from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceColumns {
    /// Read `release`, `model` and `tags`.
    pub labels: bool,
    /// Read `input`.
    pub input: bool,
    /// Read `output`.
    pub output: bool,
    /// Read `output` and `expected` as texts to compare: documents as they are, whatever the text mode.
    pub compared: bool,
    /// Read `spans` and reduce them to their digest.
    pub spans: bool,
    /// `spans` must be there, as far as they are read (they may be null in rows).
    pub spans_required: bool,
    /// A row whose `spans` can't be read is set aside; else it is as if it had none, and counted.
    pub spans_strict: bool,
    /// Reduce `output` to its digest.
    pub output_digest: bool,
    /// `session_id` must be there (it may be null in rows).
    pub session_required: bool,
    /// Numeric columns to read beside: trace signals, by name.
    pub signals: Vec<String>,
}

impl TraceColumns {
    /// Ids and labels alone.
    pub fn ids() -> Self {
        Self {
            labels: false,
            input: false,
            output: false,
            compared: false,
            spans: false,
            spans_required: false,
            spans_strict: false,
            output_digest: false,
            session_required: false,
            signals: Vec::new(),
        }
    }

    /// Whether `output` is read at all.
    pub(super) fn reads_output(&self) -> bool {
        self.output || self.compared || self.output_digest
    }

    /// The columns of a file that may be read.
    pub(super) fn names<'c>(&'c self, map: &'c ColumnMap) -> Vec<&'c str> {
        let canonical = CANONICAL.iter().filter(|name| match **name {
            "input" => self.input,
            "output" => self.reads_output(),
            "expected" => self.compared,
            _ => true,
        });
        let spans = [SPANS].into_iter().filter(|_| self.spans);
        let labels = LABELS.into_iter().filter(|_| self.labels);
        let canonical = canonical.copied().chain(spans).chain(labels);
        let canonical = canonical.map(|name| map.column(name));
        canonical
            .chain(self.signals.iter().map(String::as_str))
            .collect()
    }
}

/// How the cells of a text column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEncoding {
    /// Plain text, even if it looks like JSON.
    Text,
    /// Plain text, and the file says so.
    Said,
    /// Every cell is a JSON document.
    Json,
    /// Structs, lists and primitives, turned into JSON values.
    Native,
}

/// Renames: canonical column to the file's column.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ColumnMap {
    names: BTreeMap<String, String>,
    json: BTreeSet<String>,
    text: BTreeSet<String>,
    time_unit: Option<EpochUnit>,
}

impl ColumnMap {
    /// From pairs of canonical and file column, and the names (either kind) of JSON columns.
    ///
    /// # Errors
    /// A message naming a canonical column that does not exist, and the nearest one.
    pub fn new(
        pairs: impl IntoIterator<Item = (String, String)>,
        json: impl IntoIterator<Item = String>,
    ) -> Result<Self, String> {
        let mut names = BTreeMap::new();
        for (canonical, column) in pairs {
            let mut known = CANONICAL.iter().chain(OF_DOCUMENTS).copied();
            if !known.clone().any(|name| name == canonical) {
                return Err(format!(
                    "`{canonical}` is not a column that can be mapped{}; columns are {}",
                    nearest(&canonical, known.by_ref()),
                    [CANONICAL, OF_DOCUMENTS].concat().join(", ")
                ));
            }
            if let Some(before) = names.insert(canonical.clone(), column) {
                return Err(format!(
                    "`{canonical}` is mapped twice, first to `{before}`"
                ));
            }
        }
        Ok(Self {
            names,
            json: json.into_iter().collect(),
            text: BTreeSet::new(),
            time_unit: None,
        })
    }

    /// The same, where numbers in columns of times count this unit since 1970.
    #[must_use]
    pub fn with_time_unit(mut self, unit: Option<EpochUnit>) -> Self {
        self.time_unit = unit;
        self
    }

    /// What numbers in columns of times count; none where they are no times.
    pub fn time_unit(&self) -> Option<EpochUnit> {
        self.time_unit
    }

    /// Columns that the user mapped and that scores are not computed from, by canonical name.
    pub(super) fn mapped_of_documents(&self) -> impl Iterator<Item = (&str, &str)> {
        let mapped = self
            .names
            .iter()
            .map(|(canonical, column)| (canonical.as_str(), column.as_str()));
        mapped.filter(|(canonical, _)| OF_DOCUMENTS.contains(canonical))
    }

    /// The same, with columns (either name) whose cells are plain text although they may look like JSON.
    ///
    /// # Errors
    /// A message naming a column that is no text, or that was declared to hold JSON.
    pub fn with_text(mut self, columns: impl IntoIterator<Item = String>) -> Result<Self, String> {
        for column in columns {
            let of = |c: &&str| column == **c || column == self.column(c);
            let Some(canonical) = TEXTS.iter().copied().find(|c| of(c)) else {
                return Err(format!(
                    "{column}: only the columns of input, output and expected are texts; map `{column}` to one of them with --map"
                ));
            };
            if self.is_json(canonical) {
                return Err(format!("{column}: is also in --json-columns; choose one"));
            }
            self.text.insert(canonical.to_owned());
        }
        Ok(self)
    }

    /// Whether the user declared this canonical column to hold plain text.
    pub fn is_text(&self, canonical: &str) -> bool {
        self.text.contains(canonical)
    }

    /// The file's name for a canonical column.
    pub fn column<'a>(&'a self, canonical: &'a str) -> &'a str {
        self.names.get(canonical).map_or(canonical, String::as_str)
    }

    /// Whether the user declared this canonical column to hold JSON documents.
    pub fn is_json(&self, canonical: &str) -> bool {
        self.json.contains(canonical) || self.json.contains(self.column(canonical))
    }

    /// Declared JSON columns that are no texts.
    pub fn unknown_json_columns(&self) -> Vec<&str> {
        self.json
            .iter()
            .map(String::as_str)
            .filter(|name| !TEXTS.iter().any(|c| name == c || *name == self.column(c)))
            .collect()
    }
}

/// What a user does about a column that is not there.
pub(super) fn missing_column_hint(column: &str, canonical: &str, present: &[String]) -> String {
    let listed: Vec<&str> = present.iter().map(String::as_str).take(30).collect();
    format!(
        "it has {}{}; name the right one with --map {canonical}=COLUMN",
        if listed.is_empty() {
            "no columns".into()
        } else {
            listed.join(", ")
        },
        nearest(column, present.iter().map(String::as_str)),
    )
}

pub(super) fn missing_column(
    file: &std::path::Path,
    column: &str,
    canonical: &str,
    present: &[String],
) -> TraceError {
    TraceError::MissingColumn {
        file: file.to_owned(),
        column: column.to_owned(),
        hint: missing_column_hint(column, canonical, present),
    }
}

/// The schema of canonical batches.
///
/// | column | meaning |
/// |---|---|
/// | `position` | file and row, see [`super::RowAt`]; orders rows as they were read |
/// | `trace_id` | canonical, never null |
/// | `given_id` | the id as it was given, null where that is its canonical form |
/// | `session_id` | null if the trace stands alone |
/// | `project_id` | part of the session's identity; null is a project of its own |
/// | `started_at` | microseconds, UTC |
/// | `started_at_nanos` | 0 to 999: what a nanosecond source has beyond |
/// | `name`, `environment`, `release`, `model` | as found |
/// | `tags` | a JSON list of texts; null where there are none |
/// | `input`, `output` | text; null and JSON null are null |
/// | `actual`, `expected` | output and expected text to compare; null and JSON null are null |
/// | `span_digest`, `output_digest` | bytes, see [`super::SpanDigest`] and [`super::OutputDigest`]; null where there are no spans, or no output |
/// | signals | Float64, NaN read as null |
pub fn canonical_schema(columns: &TraceColumns) -> SchemaRef {
    let mut fields = vec![
        Field::new("position", DataType::UInt64, false),
        Field::new("trace_id", DataType::Utf8, false),
        Field::new("given_id", DataType::Utf8, true),
        Field::new("session_id", DataType::Utf8, true),
        Field::new("project_id", DataType::Utf8, true),
        Field::new(
            "started_at",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        ),
        Field::new("started_at_nanos", DataType::Int16, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("environment", DataType::Utf8, true),
    ];
    if columns.labels {
        fields.extend(LABELS.map(|name| Field::new(name, DataType::Utf8, true)));
    }
    for (wanted, name) in [
        (columns.input, "input"),
        (columns.output, "output"),
        (columns.compared, "actual"),
        (columns.compared, "expected"),
    ] {
        if wanted {
            fields.push(Field::new(name, DataType::Utf8View, true));
        }
    }
    for (wanted, name) in [
        (columns.spans, "span_digest"),
        (columns.output_digest, "output_digest"),
    ] {
        if wanted {
            fields.push(Field::new(name, DataType::Binary, true));
        }
    }
    for signal in &columns.signals {
        fields.push(Field::new(signal, DataType::Float64, true));
    }
    Arc::new(Schema::new(fields))
}
