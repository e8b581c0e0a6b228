//! Traces as whole documents: what a judge is shown, and the facts that choose which traces it is shown.
//!
//! Unlike the columns that scores are computed from, a document has everything canonical that a file says about a trace,
//! spans and all. Columns beyond the canonical ones stay out: they may hold the right answer.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::TraceError;
use super::discover::{SourceFile, SourceFormat};
use super::duplicates::RepeatedIds;
use super::format::NativeTexts;
use super::jsonl::{self, Wanted};
use super::parquet_file::{Cells, ParquetFile};
use super::schema::{ColumnMap, TraceColumns};
use super::source::{OnBadFile, TextAt};
use super::trace_id::canonical_trace_id;
use crate::text::Json;

/// Members of a document, in their order.
const MEMBERS: [&str; 17] = [
    "trace_id",
    "session_id",
    "name",
    "status",
    "started_at",
    "ended_at",
    "user_id",
    "environment",
    "release",
    "tags",
    "model",
    "input",
    "output",
    "error",
    "metadata",
    "spans",
    "project_id",
];
/// What filters look at: small columns only.
const FACTS: [&str; 10] = [
    "trace_id",
    "session_id",
    "project_id",
    "name",
    "status",
    "started_at",
    "user_id",
    "environment",
    "release",
    "tags",
];
/// Members whose text is JSON wherever it can be read as such.
const STRUCTURED: [&str; 3] = ["tags", "metadata", "spans"];

/// Members that are times.
const TIMES: [&str; 2] = ["started_at", "ended_at"];
/// Members of a trace that its last row decides alone. So does it for `started_at`, but a row without one is set aside.
const STATED_BY_THE_LAST: [&str; 2] = ["name", "status"];

/// Which members are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Ids, labels and times.
    Facts,
    /// Everything.
    All,
}

impl Members {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Facts => &FACTS,
            Self::All => &MEMBERS,
        }
    }
}

/// A trace's document and where it was found.
#[derive(Clone, Debug)]
pub struct TraceDocument {
    /// The canonical id.
    pub trace_id: String,
    /// Orders documents as they were read.
    pub at: TextAt,
    /// The members that are there and not null.
    pub members: Map<String, Value>,
}

/// The files of a run, to be read as documents any number of times.
#[derive(Debug)]
pub struct DocumentSource {
    files: Vec<SourceFile>,
    map: ColumnMap,
    on_bad_file: OnBadFile,
    repeated: RepeatedIds,
}

impl DocumentSource {
    /// A source over files; whoever scores them reports broken ones. `repeated` are the trace ids of several rows.
    pub fn new(
        files: Vec<SourceFile>,
        map: ColumnMap,
        on_bad_file: OnBadFile,
        repeated: RepeatedIds,
    ) -> Self {
        Self {
            files,
            map,
            on_bad_file,
            repeated,
        }
    }

    /// Whether several rows make one trace.
    pub fn repeats(&self) -> bool {
        !self.repeated.is_empty()
    }

    /// Shows the facts of each trace once, in any order: its id, its members, and where its rows are, ascending. All rows of
    /// one id are shown as one; in memory are the facts of ids that repeat.
    ///
    /// # Errors
    /// As [`DocumentSource::read`].
    pub fn read_facts(
        &self,
        mut each: impl FnMut(&str, &Map<String, Value>, &[TextAt]),
    ) -> Result<(), TraceError> {
        let mut merging: HashMap<String, (Map<String, Value>, Vec<TextAt>)> = HashMap::new();
        self.read(Members::Facts, None, |document| {
            let TraceDocument {
                trace_id,
                at,
                members,
            } = document;
            if !self.repeated.hold(&trace_id) {
                each(&trace_id, &members, &[at]);
            } else if let Some((earlier, rows)) = merging.get_mut(&trace_id) {
                merge_documents(earlier, members);
                rows.push(at);
            } else {
                merging.insert(trace_id, (members, vec![at]));
            }
            ControlFlow::Continue(())
        })?;
        for (trace_id, (members, rows)) in &merging {
            each(trace_id, members, rows);
        }
        Ok(())
    }

    /// Reads documents in the order of files and rows; `each` says whether to go on. `places` are the rows wanted, ascending;
    /// `None` wants all. Rows without a trace id are passed over.
    ///
    /// # Errors
    /// [`TraceError`] for a file that breaks in the middle, unless broken files are passed over.
    pub fn read(
        &self,
        members: Members,
        places: Option<&[TextAt]>,
        mut each: impl FnMut(TraceDocument) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        for (at, file) in self.files.iter().enumerate() {
            let chosen = places.map(|places| {
                let from = places.partition_point(|place| place.file() < at);
                let to = places.partition_point(|place| place.file() <= at);
                places[from..to].iter().map(|place| place.row()).collect()
            });
            let rows: Option<Vec<u64>> = chosen.or_else(|| file.rows.as_deref().cloned());
            if rows.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            let mut found = |row: u64, values: &mut dyn FnMut(&str) -> Option<Value>| match self
                .document(file, TextAt::new(at, row), members, values)
            {
                Some(document) => each(document),
                None => ControlFlow::Continue(()),
            };
            let flow = match file.format {
                SourceFormat::Parquet => {
                    self.read_parquet(file, members, rows.as_deref(), &mut found)?
                }
                SourceFormat::JsonLines => {
                    self.read_lines(file, members, rows.as_deref(), &mut found)?
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_parquet(
        &self,
        file: &SourceFile,
        members: Members,
        rows: Option<&[u64]>,
        found: &mut FoundRow<'_>,
    ) -> Result<ControlFlow<()>, TraceError> {
        let ids_only = TraceColumns::ids();
        let Ok(parquet) = ParquetFile::open(&file.path, &file.partition, &ids_only, &self.map)
        else {
            return Ok(ControlFlow::Continue(()));
        };
        let columns: Vec<&str> = members
            .names()
            .iter()
            .map(|name| self.map.column(name))
            .collect();
        let texts = parquet.texts();
        let row = |row: u64, value: &Cells<'_>| {
            // A cell that can't become a value reads as missing.
            found(row, &mut |column| {
                let value = value(column)?.ok().map(Value::from)?;
                Some(match (column, texts) {
                    (_, None) => value,
                    ("spans", _) => with_documents(value),
                    ("input" | "output" | "expected", Some(NativeTexts::Documents)) => {
                        document_of(value)
                    }
                    _ => value,
                })
            })
        };
        parquet.read_values(&columns, rows, row, |e| self.broken(e))
    }

    fn read_lines(
        &self,
        file: &SourceFile,
        members: Members,
        rows: Option<&[u64]>,
        found: &mut FoundRow<'_>,
    ) -> Result<ControlFlow<()>, TraceError> {
        let names: Vec<&str> = members
            .names()
            .iter()
            .map(|name| self.map.column(name))
            .collect();
        let mut flow = ControlFlow::Continue(());
        let read = jsonl::read_lines(&file.path, Wanted::Values(&names), |number, line| {
            let wanted = rows.is_none_or(|rows| rows.binary_search(&number).is_ok());
            if let (Ok(line), true) = (line, wanted) {
                flow = found(number, &mut |column| {
                    Some(line.member(column).clone().into())
                });
            }
            let more = rows.is_none_or(|rows| rows.last().is_some_and(|last| number < *last));
            Ok(more && flow.is_continue())
        });
        read.or_else(|e| self.broken(e))?;
        Ok(flow)
    }

    /// What is left of a broken file, or of its row group, is passed over, if that is what is wanted.
    fn broken(&self, error: TraceError) -> Result<(), TraceError> {
        match self.on_bad_file {
            OnBadFile::Skip => Ok(()),
            OnBadFile::Fail => Err(error),
        }
    }

    /// The document of a row, whose columns `values` reads.
    fn document(
        &self,
        file: &SourceFile,
        at: TextAt,
        members: Members,
        values: &mut dyn FnMut(&str) -> Option<Value>,
    ) -> Option<TraceDocument> {
        let mut document = Map::new();
        for name in members.names() {
            let column = self.map.column(name);
            let partition = || {
                let value = file.partition.iter().find(|(key, _)| key == column);
                value.map(|(_, value)| Value::String(value.clone()))
            };
            let value = values(column).filter(|v| !v.is_null()).or_else(partition);
            let Some(value) = value else { continue };
            let structured = STRUCTURED.contains(name) || self.map.is_json(name);
            let value = match value {
                Value::String(text) if structured => parsed(text),
                Value::Number(count) if TIMES.contains(name) => {
                    let text = self.map.time_unit().and_then(|unit| unit.text(&count));
                    text.map_or(Value::Number(count), Value::String)
                }
                value => value,
            };
            document.insert((*name).to_owned(), value);
        }
        let trace_id = canonical_trace_id(&id_text(document.get("trace_id")?)?)?;
        document.insert("trace_id".into(), trace_id.clone().into());
        Some(TraceDocument {
            trace_id,
            at,
            members: document,
        })
    }
}

/// An id among the members of a document: a text that is not empty, or a whole number.
pub fn label(members: &Map<String, Value>, name: &str) -> Option<String> {
    match members.get(name)? {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

type FoundRow<'f> = dyn FnMut(u64, &mut dyn FnMut(&str) -> Option<Value>) -> ControlFlow<()> + 'f;

fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// JSON text as its value if it is an object or list, else as it is.
pub(super) fn parsed(text: String) -> Value {
    match crate::text::parse(text.as_bytes()) {
        Ok(json @ (Json::Array(_) | Json::Object(_))) => json.into(),
        _ => Value::String(text),
    }
}

/// A text that is a JSON object or list as that; JSON text of a text as the text.
fn document_of(value: Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(document) => document,
            Err(_) => parsed(text),
        },
        value => value,
    }
}

/// Spans whose inputs and outputs are the documents that their texts hold.
fn with_documents(mut spans: Value) -> Value {
    for span in spans.as_array_mut().into_iter().flatten() {
        for member in ["input", "output"] {
            if let Some(value) = span.get_mut(member)
                && let Value::String(text) = value
            {
                *value = parsed(std::mem::take(text));
            }
        }
        // What a span does not have is not shown.
        if let Some(members) = span.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
    spans
}

/// Folds a later row of the same trace into its document (as in PandaProbe): its name and status stand, also where
/// it has none; any other value of the later row that is there replaces; metadata merges at the top level, tags unite, spans
/// merge by their id.
pub fn merge_documents(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for name in STATED_BY_THE_LAST {
        if !later.contains_key(name) {
            // The other members keep their order.
            earlier.shift_remove(name);
        }
    }
    for (name, value) in later {
        match (name.as_str(), earlier.get_mut(&name), value) {
            ("metadata", Some(Value::Object(kept)), Value::Object(new)) => kept.extend(new),
            ("tags", Some(Value::Array(kept)), Value::Array(new)) => {
                for tag in new {
                    if !kept.contains(&tag) {
                        kept.push(tag);
                    }
                }
            }
            ("spans", Some(Value::Array(kept)), Value::Array(new)) => {
                for span in new {
                    let id = span.get("span_id").cloned();
                    match kept
                        .iter_mut()
                        .find(|s| id.is_some() && s.get("span_id") == id.as_ref())
                    {
                        Some(Value::Object(same)) => {
                            if let Value::Object(span) = span {
                                same.extend(span.into_iter().filter(|(_, v)| !v.is_null()));
                            }
                        }
                        _ => kept.push(span),
                    }
                }
            }
            (_, _, value) => {
                earlier.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn labels_are_texts_and_whole_numbers() {
        let members: Map<String, Value> =
            object(json!({"a": "x", "b": "", "c": 7, "d": 1.5, "e": null}));
        let labels = ["a", "b", "c", "d", "e", "f"].map(|name| label(&members, name));
        let expected = [Some("x"), None, Some("7"), None, None, None];
        assert_eq!(labels.each_ref().map(Option::as_deref), expected);
    }

    #[test]
    fn lines_become_documents_without_foreign_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let lines = [
            json!({"trace_id": "A1", "q": "hi", "label": "secret", "spans": "[{\"kind\":\"tool\"}]", "started_at": "2026-01-01T00:00:00Z"}),
            json!({"no": "id"}),
            json!({"trace_id": 7, "q": {"a": 1}, "metadata": {"k": 1}, "started_at": "2026-01-01T00:00:00Z"}),
        ];
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        let files = super::super::discover(&[path.display().to_string()], None).unwrap();
        let map = ColumnMap::new([("input".into(), "q".into())], []).unwrap();
        let source = DocumentSource::new(files, map, OnBadFile::Fail, RepeatedIds::default());
        let mut documents = Vec::new();
        let all = |documents: &mut Vec<TraceDocument>, members, places: Option<&[TextAt]>| {
            documents.clear();
            source
                .read(members, places, |d| {
                    documents.push(d);
                    ControlFlow::Continue(())
                })
                .unwrap();
        };
        all(&mut documents, Members::All, None);
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].members["spans"], json!([{"kind": "tool"}]));
        assert_eq!(documents[0].members["input"], "hi");
        assert!(!documents[0].members.contains_key("label"));
        assert_eq!(
            (
                documents[1].trace_id.as_str(),
                &documents[1].members["input"]
            ),
            ("7", &json!({"a": 1}))
        );
        let second = [documents[1].at];
        all(&mut documents, Members::Facts, Some(&second));
        assert_eq!(documents.len(), 1);
        assert!(!documents[0].members.contains_key("input"));
    }

    #[test]
    fn rows_of_one_trace_merge_as_in_pandaprobe() {
        let mut document = object(json!({
            "output": "old", "tags": ["a"], "metadata": {"x": 1, "y": 1},
            "spans": [{"span_id": "1", "name": "n", "output": null}],
        }));
        merge_documents(
            &mut document,
            object(json!({
                "output": "new", "tags": ["b", "a"], "metadata": {"y": 2},
                "spans": [{"span_id": "1", "output": "o"}, {"span_id": "2"}],
            })),
        );
        let expected = json!({
            "output": "new", "tags": ["a", "b"], "metadata": {"x": 1, "y": 2},
            "spans": [{"span_id": "1", "name": "n", "output": "o"}, {"span_id": "2"}],
        });
        assert_eq!(Value::Object(document), expected);
    }

    #[test]
    fn the_later_row_says_name_and_status_also_by_silence() {
        let merged = |later: Value| {
            let mut document = object(json!({
                "trace_id": "t", "name": "old", "status": "ERROR",
                "started_at": "2026-01-01T00:00:00Z", "user_id": "u", "output": "o",
            }));
            merge_documents(&mut document, object(later));
            Value::Object(document).to_string()
        };
        let silent = json!({"trace_id": "t", "started_at": "2026-01-01T00:00:01Z"});
        let rest = r#""started_at":"2026-01-01T00:00:01Z","user_id":"u","output":"o""#;
        assert_eq!(
            merged(silent.clone()),
            format!(r#"{{"trace_id":"t",{rest}}}"#)
        );
        let mut told = silent;
        told["name"] = json!("new");
        told["status"] = json!("OK");
        let said = r#""name":"new","status":"OK""#;
        assert_eq!(merged(told), format!(r#"{{"trace_id":"t",{said},{rest}}}"#));
    }
}
