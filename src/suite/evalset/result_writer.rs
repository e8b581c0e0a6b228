//! A result file that is written case by case, so that no more than a few results are held at the same time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::Value;

use super::result::{CaseResult, EvalSetResult};
use crate::output::RunError;
use crate::output::directory::PartialFile;

/// Members of a result before its cases.
const BEFORE: [&str; 3] = ["evalSetResultId", "evalSetResultName", "evalSetId"];

/// The file, under another name until it is whole. What a run that was killed leaves is removed by the next one.
pub(super) struct ResultWriter {
    path: PathBuf,
    partial: PartialFile,
    file: BufWriter<File>,
    /// Whether a member stands in the file already.
    members: bool,
    cases: u64,
}

impl ResultWriter {
    /// Begins the file of a result, whose name is known and whose cases are not.
    ///
    /// # Errors
    /// [`RunError::Write`]
    pub fn begin(path: &Path, head: &EvalSetResult) -> Result<Self, RunError> {
        let (partial, file) = PartialFile::create(path, true)?;
        let mut writer = Self {
            path: path.to_owned(),
            partial,
            file: BufWriter::with_capacity(1 << 16, file),
            members: false,
            cases: 0,
        };
        writer.put("{")?;
        let head = head.to_json();
        for name in BEFORE {
            if let Some(value) = head.get(name) {
                writer.member(name, value)?;
            }
        }
        Ok(writer)
    }

    /// Writes cases behind those that are there.
    ///
    /// # Errors
    /// [`RunError::Write`]
    pub fn write(&mut self, cases: &[CaseResult]) -> Result<(), RunError> {
        let texts: Vec<String> = cases
            .par_iter()
            .map(|case| indented(&case.to_json(), "    "))
            .collect();
        for text in texts {
            match self.cases {
                0 => {
                    let comma = if self.members { "," } else { "" };
                    self.put(&format!("{comma}\n  \"evalCaseResults\": [\n    "))?;
                    self.members = true;
                }
                _ => self.put(",\n    ")?,
            }
            self.put(&text)?;
            self.cases += 1;
        }
        Ok(())
    }

    /// Writes what stands behind the cases, and gives the file its name.
    ///
    /// # Errors
    /// [`RunError::Write`]
    pub fn end(mut self, tail: &EvalSetResult) -> Result<(), RunError> {
        if self.cases > 0 {
            self.put("\n  ]")?;
        }
        if let Value::Object(members) = tail.to_json() {
            for (name, value) in &members {
                if !BEFORE.contains(&name.as_str()) {
                    self.member(name, value)?;
                }
            }
        }
        self.put(if self.members { "\n}\n" } else { "}\n" })?;
        let flushed = self.file.flush();
        flushed.map_err(|e| RunError::write(&self.path, e))?;
        self.partial.commit()?;
        Ok(())
    }

    fn member(&mut self, name: &str, value: &Value) -> Result<(), RunError> {
        let comma = if self.members { "," } else { "" };
        self.members = true;
        let (name, value) = (Value::from(name), indented(value, "  "));
        self.put(&format!("{comma}\n  {name}: {value}"))
    }

    fn put(&mut self, text: &str) -> Result<(), RunError> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|e| RunError::write(&self.path, e))
    }
}

/// A value as it stands in a file so deep. Texts have no ends of lines as they are written, so that all are the
/// value's own.
fn indented(value: &Value, by: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{by}"))
}

#[cfg(test)]
mod tests {
    use super::super::model::EpochTime;
    use super::super::result::{EvalStatus, ResultSummary, TurnResult};
    use super::*;

    fn case(id: &str) -> CaseResult {
        CaseResult {
            id: id.into(),
            error_message: "a\n\"b\"".into(),
            turns: vec![TurnResult::default()],
            status: EvalStatus::Failed,
            ..CaseResult::default()
        }
    }

    #[test]
    fn a_file_written_case_by_case_is_the_file_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let summary = ResultSummary {
            runs_asked: 2,
            ..ResultSummary::default()
        };
        for (id, ids, created) in [
            (
                "r",
                vec![vec!["a", "b"], vec![], vec!["c"]],
                Some(EpochTime(1_500_000_000)),
            ),
            ("r", vec![], Some(EpochTime(1))),
            ("", vec![vec!["a"]], None),
            ("", vec![], None),
        ] {
            let mut result = EvalSetResult {
                id: id.into(),
                set_id: id.into(),
                created,
                summary: (!id.is_empty()).then(|| summary.clone()),
                ..EvalSetResult::default()
            };
            let path = folder.path().join("x.json");
            let mut writer = ResultWriter::begin(&path, &result).unwrap();
            assert!(!path.exists());
            for ids in &ids {
                let cases: Vec<CaseResult> = ids.iter().map(|id| case(id)).collect();
                writer.write(&cases).unwrap();
            }
            writer.end(&result).unwrap();
            result.cases = ids.concat().into_iter().map(case).collect();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), result.to_text());
            std::fs::remove_file(&path).unwrap();
        }
        // One that was begun and not ended leaves nothing.
        drop(ResultWriter::begin(
            &folder.path().join("y.json"),
            &EvalSetResult::default(),
        ));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
