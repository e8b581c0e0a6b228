//! Traces as whole documents: what a judge is shown, and the facts that choose which traces it is shown.
//!
//! Unlike the columns that scores are computed from, a document has everything canonical that a file says about a trace,
//! spans and all. Columns beyond the canonical ones stay out: they may hold the right answer.
//!
//! Facts are read once, from small columns, and kept on disk: whatever chooses traces or sessions looks there.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::discover::SourceFile;
use super::duplicates::{RepeatedIds, Repeats};
use super::kept_documents::KeptDocuments;
use super::members::{Members, TraceDocument};
use super::merge::merge_documents;
use super::quarantine::Quarantine;
use super::rows::{BatchLimits, Found, OnBadFile, Reading, RowAt, RowFile, rows_of_file};
use super::schema::{ColumnMap, TraceColumns};
use super::{Code, TraceError};

/// Documents may be large; a few at a time.
const LIMITS: BatchLimits = BatchLimits {
    rows: 64,
    bytes: 16 << 20,
};

/// Room for what is known of all traces.
#[derive(Clone, Copy, Debug)]
pub struct FactRoom<'r> {
    /// Trace ids held in memory at once, about 32 bytes each.
    pub most_ids: usize,
    /// Where what does not stay in memory goes.
    pub folder: &'r Path,
}

/// The files of a run as documents.
#[derive(Debug)]
pub struct DocumentSource {
    files: Vec<RowFile>,
    map: ColumnMap,
    on_bad_file: OnBadFile,
    repeated: RepeatedIds,
    facts: KeptDocuments,
    folder: PathBuf,
}

/// Whether any trace id of files occurs twice. Reads small columns, until one does.
///
/// # Errors
/// [`TraceError`] for a file that can't be read, unless broken files are passed over.
pub fn any_id_repeats(
    files: Vec<SourceFile>,
    map: &ColumnMap,
    on_bad_file: OnBadFile,
    room: FactRoom<'_>,
) -> Result<bool, TraceError> {
    let ignored = Quarantine::default();
    let files = open(files, map, on_bad_file, &ignored)?;
    let mut repeats = Repeats::new(room.most_ids, room.folder);
    let each = |_: RowAt, _: &RowFile, row: Found<'_>| {
        if let Some(trace_id) = row.ok().and_then(|row| id_of(&row).ok()) {
            repeats.push(&trace_id)?;
        }
        Ok(!repeats.any())
    };
    read_all(&files, &[], LIMITS_OF_FACTS, on_bad_file, &ignored, each)?;
    Ok(!repeats.finish()?.is_empty())
}

impl DocumentSource {
    /// Opens files and reads the facts of all rows, once. Whoever scores the files reports what is wrong with them; here it
    /// goes to the quarantine given.
    ///
    /// # Errors
    /// [`TraceError`] for a file that can't be read, unless broken files are passed over.
    pub fn open(
        files: Vec<SourceFile>,
        map: ColumnMap,
        on_bad_file: OnBadFile,
        room: FactRoom<'_>,
        quarantine: &Quarantine,
    ) -> Result<Self, TraceError> {
        let files = open(files, &map, on_bad_file, quarantine)?;
        let mut repeats = Repeats::new(room.most_ids, room.folder);
        let mut facts = KeptDocuments::create(room.folder)?;
        let each = |at: RowAt, file: &RowFile, row: Found<'_>| {
            let row = match row {
                Ok(row) => row,
                Err((code, reason)) => {
                    quarantine.add_row(&file.source.path, at.row(), "", code, reason);
                    return Ok(true);
                }
            };
            match id_of(&row) {
                Ok(trace_id) => repeats.push(&trace_id)?,
                Err((column, code, reason)) => {
                    quarantine.add_row(&file.source.path, at.row(), column, code, reason);
                }
            }
            if let Some(document) = Members::Facts.of_row(&row, at, file, &map) {
                facts.push(at.position(), &document.members)?;
            }
            Ok(true)
        };
        let names = columns_of(Members::Facts, &map);
        read_all(
            &files,
            &names,
            LIMITS_OF_FACTS,
            on_bad_file,
            quarantine,
            each,
        )?;
        facts.flush()?;
        Ok(Self {
            files,
            repeated: repeats.finish()?,
            map,
            on_bad_file,
            facts,
            folder: room.folder.to_owned(),
        })
    }

    /// Whether several rows make one trace.
    pub fn repeats(&self) -> bool {
        !self.repeated.is_empty()
    }

    /// The file that a row is in.
    pub fn file_of(&self, at: RowAt) -> Option<&Path> {
        let file = self.files.get(at.file())?;
        Some(&file.source.path)
    }

    /// Rows decoded so far, each as often as it was.
    pub fn rows_decoded(&self) -> u64 {
        self.files.iter().map(RowFile::rows_decoded).sum()
    }

    /// A file for documents that are to be read again, beside the facts.
    pub(crate) fn keep(&self) -> Result<KeptDocuments, TraceError> {
        KeptDocuments::create(&self.folder)
    }

    /// Shows the facts of each trace once, in any order: its id, its members, and where its rows are, ascending. All rows of
    /// one id are shown as one; in memory are the facts of ids that repeat.
    ///
    /// # Errors
    /// [`TraceError`] if the disk fails.
    pub fn read_facts(
        &self,
        mut each: impl FnMut(&str, &Map<String, Value>, &[RowAt]),
    ) -> Result<(), TraceError> {
        let mut merging: HashMap<String, (Map<String, Value>, Vec<RowAt>)> = HashMap::new();
        self.facts.scan(|at, members| {
            let at = RowAt::from_position(at);
            let id = members.get("trace_id").and_then(Value::as_str);
            let id = id.unwrap_or_default();
            if !self.repeated.hold(id) {
                each(id, &members, &[at]);
            } else if let Some((earlier, rows)) = merging.get_mut(id) {
                merge_documents(earlier, members);
                rows.push(at);
            } else {
                merging.insert(id.to_owned(), (members, vec![at]));
            }
        })?;
        for (trace_id, (members, rows)) in &merging {
            each(trace_id, members, rows);
        }
        Ok(())
    }

    /// Shows the facts of each row, as the files have them, in their order.
    ///
    /// # Errors
    /// [`TraceError`] if the disk fails.
    pub fn read_facts_of_rows(
        &self,
        mut each: impl FnMut(RowAt, &Map<String, Value>),
    ) -> Result<(), TraceError> {
        self.facts
            .scan(|at, members| each(RowAt::from_position(at), &members))
    }

    /// Reads whole documents in the order of files and rows: those of `places`, which are ascending. `each` says whether to
    /// go on.
    ///
    /// # Errors
    /// [`TraceError`] for a file that breaks in the middle, unless broken files are passed over.
    pub fn read(
        &self,
        places: &[RowAt],
        mut each: impl FnMut(TraceDocument) -> Result<ControlFlow<()>, TraceError>,
    ) -> Result<(), TraceError> {
        let names = columns_of(Members::All, &self.map);
        for (at, file) in self.files.iter().enumerate() {
            let rows = rows_of_file(places, at);
            let each = &mut |number, row: Found<'_>| {
                let at = RowAt::new(at, number);
                let document = row
                    .ok()
                    .and_then(|row| Members::All.of_row(&row, at, file, &self.map));
                match document {
                    Some(document) => Ok(each(document)?.is_continue()),
                    None => Ok(true),
                }
            };
            for unit in 0..file.units() {
                let reading = Reading {
                    rows: Some(&rows),
                    ..Reading::all(&names, LIMITS)
                };
                match (file.read_unit(unit, reading, each), self.on_bad_file) {
                    (Ok(true), _) => {}
                    (Ok(false), _) => return Ok(()),
                    // What is left of a broken unit is passed over, if that is what is wanted.
                    (Err(TraceError::File { .. }), OnBadFile::Skip) => {}
                    (Err(e), _) => return Err(e),
                }
            }
        }
        Ok(())
    }
}

/// Shows whole documents from the first row of files on, until `each` has seen enough.
///
/// # Errors
/// [`TraceError`] for a file that can't be read.
pub fn read_documents(
    files: Vec<SourceFile>,
    map: &ColumnMap,
    mut each: impl FnMut(TraceDocument) -> ControlFlow<()>,
) -> Result<(), TraceError> {
    let files: Result<Vec<RowFile>, TraceError> =
        files.into_iter().map(RowFile::of_table).collect();
    let each = |at: RowAt, file: &RowFile, row: Found<'_>| {
        let document = row
            .ok()
            .and_then(|row| Members::All.of_row(&row, at, file, map));
        Ok(document.is_none_or(|document| each(document).is_continue()))
    };
    let names = columns_of(Members::All, map);
    let ignored = Quarantine::default();
    read_all(&files?, &names, LIMITS, OnBadFile::Fail, &ignored, each)
}

/// Small columns come in larger pieces.
const LIMITS_OF_FACTS: BatchLimits = BatchLimits {
    rows: 8192,
    bytes: 4 << 20,
};

fn open(
    files: Vec<SourceFile>,
    map: &ColumnMap,
    on_bad_file: OnBadFile,
    quarantine: &Quarantine,
) -> Result<Vec<RowFile>, TraceError> {
    let ids = TraceColumns::ids();
    on_bad_file.open(files, quarantine, |file| {
        RowFile::of_traces(file, &ids, map)
    })
}

fn columns_of(members: Members, map: &ColumnMap) -> Vec<&str> {
    members
        .names()
        .iter()
        .map(|name| map.column(name))
        .collect()
}

/// The canonical id of a row that is one of a trace, or what is wrong with it.
fn id_of(row: &super::rows::FoundRow<'_>) -> Result<String, (&'static str, Code, String)> {
    let mut signals = Vec::new();
    let row = row.of_trace(&mut signals);
    let row = row.map_err(|(code, reason)| ("", code, reason))?;
    let identity = row.identity();
    let identity = identity.map_err(|bad| (bad.column, bad.code, bad.reason))?;
    Ok(identity.trace_id)
}

/// Reads all rows of files, until `each` has seen enough.
fn read_all(
    files: &[RowFile],
    names: &[&str],
    limits: BatchLimits,
    on_bad_file: OnBadFile,
    quarantine: &Quarantine,
    mut each: impl FnMut(RowAt, &RowFile, Found<'_>) -> Result<bool, TraceError>,
) -> Result<(), TraceError> {
    for (at, file) in files.iter().enumerate() {
        for unit in 0..file.units() {
            let mut seen = 0;
            let each = &mut |number, row: Found<'_>| {
                seen += 1;
                each(RowAt::new(at, number), file, row)
            };
            match (
                file.read_unit(unit, Reading::all(names, limits), each),
                on_bad_file,
            ) {
                (Ok(true), _) => {}
                (Ok(false), _) => return Ok(()),
                (Err(TraceError::File { problem, .. }), OnBadFile::Skip) => {
                    let (first, rows) = file.rows_of(unit);
                    let lost = rows.map_or(0, |rows| rows.saturating_sub(seen));
                    let path = &file.source.path;
                    quarantine.add_unreadable(path, first + seen, lost, problem);
                }
                (Err(e), _) => return Err(e),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::OnBadFile;
    use super::*;

    #[test]
    fn lines_become_documents_without_foreign_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let lines = [
            json!({"trace_id": "A1", "q": "hi", "label": "secret", "spans": "[{\"kind\":\"tool\"}]", "started_at": "2026-01-01T00:00:00Z"}),
            json!({"no": "id"}),
            json!({"trace_id": 7, "q": {"a": 1}, "metadata": {"k": 1}, "started_at": "2026-01-01T00:00:00Z"}),
            json!({"trace_id": "A1", "user_id": "u", "started_at": "2026-01-01T00:00:01Z"}),
        ];
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(&path, text.join("\n")).unwrap();
        let files = super::super::discover(&[path.display().to_string()], None).unwrap();
        let map = ColumnMap::new([("input".into(), "q".into())], []).unwrap();
        let mut documents = Vec::new();
        read_documents(files.clone(), &map, |d| {
            documents.push(d);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(documents.len(), 3);
        assert_eq!(documents[0].members["spans"], json!([{"kind": "tool"}]));
        assert_eq!(documents[0].members["input"], "hi");
        assert!(!documents[0].members.contains_key("label"));
        let second = (
            documents[1].trace_id.as_str(),
            &documents[1].members["input"],
        );
        assert_eq!(second, ("7", &json!({"a": 1})));

        let room = FactRoom {
            most_ids: 1,
            folder: folder.path(),
        };
        let quarantine = Quarantine::default();
        let source = DocumentSource::open(files, map, OnBadFile::Fail, room, &quarantine).unwrap();
        assert_eq!((quarantine.rows(), source.rows_decoded()), (1, 4));
        let mut facts = Vec::new();
        source
            .read_facts(|id, members, rows| {
                let rows: Vec<u64> = rows.iter().map(|at| at.row()).collect();
                facts.push((id.to_owned(), members.get("user_id").cloned(), rows));
                assert!(!members.contains_key("input"));
            })
            .unwrap();
        facts.sort_by_key(|(_, _, rows)| rows[0]);
        let merged = ("A1".to_owned(), Some(json!("u")), vec![0, 3]);
        assert_eq!(facts, [merged, ("7".to_owned(), None, vec![2])]);
        let mut again = Vec::new();
        source
            .read(&[documents[1].at], |d| {
                again.push(d.members);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(again, [documents[1].members.clone()]);
        assert_eq!(source.rows_decoded(), 5);
    }
}
