//! Reports of a run as files: Markdown, JSON and JUnit.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::output::directory::is_same_file;
use crate::output::{PartialFile, RunError};
use crate::suite::regression::config::{ReportFormat, SuiteConfig};
use crate::suite::regression::record::RunRecord;
use crate::suite::regression::report::{json_report, junit_report, markdown_report};

/// Where reports of a run go.
#[derive(Clone, Debug, Default)]
pub struct ReportFiles {
    /// The format of the report; none for what the configuration says.
    pub format: Option<ReportFormat>,
    /// Its file, or a folder that gets `report.md` or `report.json`; none for what the configuration says.
    pub report_path: Option<PathBuf>,
    /// A file that gets Markdown.
    pub markdown: Option<PathBuf>,
    /// A file that gets JUnit XML.
    pub junit: Option<PathBuf>,
}

impl ReportFiles {
    /// The format of the report.
    pub fn format(&self, config: &SuiteConfig) -> ReportFormat {
        self.format.unwrap_or(config.output.default_format)
    }

    /// Where the report goes: as JSON where that is its format, and as Markdown otherwise.
    /// A path of the configuration is relative to its folder.
    fn report(&self, config: &SuiteConfig, folder: &Path) -> Option<(PathBuf, ReportFormat)> {
        let format = match self.format(config) {
            ReportFormat::Json => ReportFormat::Json,
            ReportFormat::Markdown | ReportFormat::Terminal => ReportFormat::Markdown,
        };
        let path = self.report_path.clone();
        let configured = || Some(folder.join(config.output.report_path.as_ref()?));
        let path = path.or_else(configured)?;
        let name = match format {
            ReportFormat::Json => "report.json",
            _ => "report.md",
        };
        let is_folder = path.is_dir() || path.to_string_lossy().ends_with('/');
        Some((if is_folder { path.join(name) } else { path }, format))
    }

    /// Whether all of them can be written.
    ///
    /// # Errors
    /// [`RunError::Request`] if one is a folder, two are one file, one is an input or a
    /// record, or Markdown was asked for and has no place.
    pub(super) fn check(
        &self,
        config: &SuiteConfig,
        folder: &Path,
        inputs: &[PathBuf],
        records: &Path,
    ) -> Result<(), RunError> {
        let report = self.report(config, folder);
        let is_markdown = self.format(config) == ReportFormat::Markdown;
        if is_markdown && report.is_none() && self.markdown.is_none() {
            return Err(RunError::Request(
                "--format markdown: say where the report goes with --report-path FILE (or `output.report_path`)"
                    .to_owned(),
            ));
        }
        let files = [
            ("--markdown", self.markdown.as_deref()),
            ("--junit", self.junit.as_deref()),
        ];
        if let Some((flag, path)) = files
            .iter()
            .find_map(|(flag, path)| Some((flag, path.filter(|of| of.is_dir())?)))
        {
            return Err(RunError::Request(format!(
                "{flag}: `{}` is a folder; name a file",
                path.display()
            )));
        }
        let report = report.as_ref().map(|(path, _)| path.as_path());
        let all = [report, self.markdown.as_deref(), self.junit.as_deref()];
        let all: Vec<&Path> = all.into_iter().flatten().collect();
        let twice = all.iter().enumerate().find(|(at, path)| {
            let mut before = all.iter().take(*at);
            before.any(|other| other == *path)
        });
        let is_taken = |path: &&Path| {
            let is_input = inputs.iter().any(|input| is_same_file(path, input));
            let of_records = path.parent().is_some_and(|of| is_same_file(of, records));
            is_input || (of_records && path.exists())
        };
        if let Some(path) = all.iter().copied().find(|path| is_taken(path)) {
            return Err(RunError::Request(format!(
                "`{}` is read by this run, or is a record: a report would take its place; name another file",
                path.display()
            )));
        }
        match twice {
            None => Ok(()),
            Some((_, path)) => Err(RunError::Request(format!(
                "`{}` can't be two reports at once; give each a file of its own",
                path.display()
            ))),
        }
    }

    /// Writes the reports, each whole or not at all, and returns their files.
    ///
    /// # Errors
    /// [`RunError::Write`].
    pub(super) fn write(
        &self,
        config: &SuiteConfig,
        folder: &Path,
        records: &[RunRecord],
    ) -> Result<Vec<String>, RunError> {
        let mut files = Vec::new();
        let mut write = |path: &Path, text: &str| {
            write_whole(path, text)?;
            files.push(path.display().to_string());
            Ok::<_, RunError>(())
        };
        if let Some((path, format)) = self.report(config, folder) {
            match format {
                ReportFormat::Json => write(&path, &json_reports(records)?)?,
                _ => write(&path, &markdown_reports(records))?,
            }
        }
        if let Some(path) = &self.markdown {
            write(path, &markdown_reports(records))?;
        }
        if let Some(path) = &self.junit {
            let text = junit_report(records).map_err(|e| RunError::write(path, e))?;
            write(path, &text)?;
        }
        Ok(files)
    }
}

/// The reports of runs, one after the other.
fn markdown_reports(records: &[RunRecord]) -> String {
    let reports: Vec<String> = records.iter().map(markdown_report).collect();
    reports.join("\n")
}

/// The report of one run, or the list of the reports of several.
///
/// # Errors
/// [`RunError::Plan`] if they can't be written as JSON.
pub fn json_reports(records: &[RunRecord]) -> Result<String, RunError> {
    let mut reports: Vec<Value> = records.iter().map(json_report).collect();
    let document = match (reports.len(), reports.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            reports.extend(last);
            Value::Array(reports)
        }
    };
    let text = serde_json::to_string_pretty(&document);
    text.map(|text| text + "\n")
        .map_err(|e| RunError::Plan(e.to_string()))
}

fn write_whole(path: &Path, text: &str) -> Result<(), RunError> {
    let (partial, mut file) = PartialFile::create(path, true)?;
    file.write_all(text.as_bytes())
        .map_err(|e| RunError::write(path, e))?;
    partial.commit()?;
    Ok(())
}
