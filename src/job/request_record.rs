//! What a run was asked, as its manifest keeps it: enough to ask for the same again.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::selection::TargetChoice;
use crate::text::origin_of;
use crate::trace::SourceFile;

/// A request as it was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRecord {
    /// Files, folders and globs; whole paths.
    pub paths: Vec<String>,
    /// The settings that were given, by key, without secrets. Whoever makes the request says what they are.
    pub settings: Map<String, Value>,
    /// What chose the targets of the run; none if it took all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<TargetChoice>,
    /// The run that it continued, a whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
    /// Whether the run made a report.
    pub report: bool,
    /// The files that the run read its traces, or turns, from, in its order.
    pub files: Vec<RecordedFile>,
    /// What else there is to judging tables of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<TablesRecord>,
    /// Other files that decide its scores: given signals, the configuration of the judge, the mapping.
    pub beside: Vec<RecordedFile>,
}

/// What a request to judge tables of turns has beside its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TablesRecord {
    /// The files of cases, in their order; empty if there were none.
    pub cases: Vec<RecordedFile>,
    /// Whether drafts and archived cases were judged too.
    pub all_statuses: bool,
}

impl TablesRecord {
    /// A record of these files of cases.
    pub fn new(cases: &[SourceFile], all_statuses: bool) -> Self {
        Self {
            cases: recorded(cases),
            all_statuses,
        }
    }
}

/// A file as it was when a run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// Its whole path.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last written: seconds since 1970, with nanoseconds.
    pub modified: String,
}

impl RecordedFile {
    /// A file as it is now; none for what is no file, or can't be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok().filter(|m| m.is_file())?;
        let modified = metadata.modified().ok()?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Self {
            path: whole_path(path),
            bytes: metadata.len(),
            modified: format!("{}.{:09}", since.as_secs(), since.subsec_nanos()),
        })
    }
}

/// A path that means the same in every folder.
pub(crate) fn whole_path(path: &Path) -> String {
    let whole = std::path::absolute(path);
    origin_of(&whole.unwrap_or_else(|_| path.to_owned()))
}

impl RequestRecord {
    /// A record of these paths and settings. What the run finds out by itself is added by the run.
    pub fn new(paths: &[String], settings: Map<String, Value>) -> Self {
        Self {
            paths: paths.iter().map(|p| whole_path(Path::new(p))).collect(),
            settings,
            ..Self::default()
        }
    }

    /// Notes the files that a run reads its traces, or turns, from, and those beside them that decide its scores.
    pub fn note_files(&mut self, files: &[SourceFile]) {
        self.files = recorded(files);
        self.beside = ["signals", "judge_config", "mapping", "calibration"]
            .iter()
            .filter_map(|key| self.settings.get(*key)?.as_str())
            .filter_map(|path| RecordedFile::of(Path::new(path)))
            .collect();
    }

    /// The files that traces, or turns, were read from, each with whether it is there, and whether it is what it was.
    pub fn files_now(&self) -> impl Iterator<Item = (&RecordedFile, bool, bool)> {
        self.files.iter().map(|file| {
            let now = RecordedFile::of(Path::new(&file.path));
            (file, now.is_some(), now.as_ref() == Some(file))
        })
    }

    /// The first of the files that was brought from another machine: what it is there now is not known here.
    pub fn remote(&self) -> Option<&RecordedFile> {
        let cases = self.tables.iter().flat_map(|tables| &tables.cases);
        let mut files = self.files.iter().chain(cases);
        files.find(|file| file.path.contains("://"))
    }

    /// The first of the files that is not what it was.
    pub fn changed(&self) -> Option<&RecordedFile> {
        let cases = self.tables.iter().flat_map(|tables| &tables.cases);
        let mut files = self.files.iter().chain(cases).chain(&self.beside);
        files.find(|file| RecordedFile::of(Path::new(&file.path)).as_ref() != Some(*file))
    }
}

fn recorded(files: &[SourceFile]) -> Vec<RecordedFile> {
    let files = files.iter().flat_map(SourceFile::given);
    files.filter_map(|path| RecordedFile::of(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_written_since_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        let record = RequestRecord {
            files: vec![RecordedFile::of(&path).unwrap()],
            ..RequestRecord::new(&["traces".into()], Map::new())
        };
        assert!(Path::new(&record.paths[0]).is_absolute());
        assert_eq!(record.changed(), None);
        std::fs::write(&path, "{}\n{}\n").unwrap();
        assert_eq!(record.changed(), record.files.first());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(record.changed(), record.files.first());
        let of_cases = RequestRecord {
            tables: Some(TablesRecord {
                cases: record.files.clone(),
                ..TablesRecord::default()
            }),
            ..RequestRecord::default()
        };
        assert_eq!(of_cases.changed(), record.files.first());
        assert_eq!(record.remote(), None);
        let mut remote = record.clone();
        remote.files[0].path = "s3://b/traces.jsonl".into();
        assert_eq!(remote.remote(), remote.files.first());
    }
}
