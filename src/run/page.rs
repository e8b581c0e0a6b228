//! `report.html` of a scoring run, and what it says of the nights before.

mod listed;
mod origins;
mod repeats;
mod shown;
mod tables;
mod verdicts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::ScoreRequest;
use crate::embed::EmbeddingService;
use crate::history::{ChangeQuery, Changes, QueryLimits, StoredRun, read_changes, read_run};
use crate::metric::{Rules, SIGNALS};
use crate::output::directory::name_of;
use crate::output::{RunDirectory, RunError};
use crate::summary::{DriftSummary, PageFacts, PageSessions, Summary, TextsAt};
use crate::text::origin_of;
use crate::trace::{SourceFile, TraceSource};

/// Renders report.html from what a run came to and, if it continues another one, what changed; or says what is wrong with
/// its template.
pub type PageWriter =
    fn(&PageFacts, &Rules, &Summary, &PageSessions, Option<&Changes>) -> Result<String, String>;

/// The page, inside a run directory.
pub(super) const REPORT: &str = "report.html";

/// Sessions that the page shows with their texts.
const SHOWN: usize = 20;

/// The sessions of a run whose tables are written, as its page lists them.
///
/// # Errors
/// If a table, or a file of traces, can't be read back.
pub(super) fn sessions(
    run: &RunDirectory,
    source: &TraceSource,
    summary: &Summary,
) -> Result<PageSessions, RunError> {
    let (mut page, places) = listed::read(run, SHOWN)?;
    let of_traces = summary.metrics.iter().filter(|m| m.level == "trace");
    let mut metrics: Vec<String> = of_traces.map(|m| m.name.clone()).collect();
    // Given signals have a column too, and no score of this run.
    for signal in SIGNALS {
        if !metrics.iter().any(|name| name == signal.0) {
            metrics.push(signal.0.to_owned());
        }
    }
    let judged = summary.judge.iter().flat_map(|judge| &judge.metrics);
    let judged: Vec<&str> = judged.map(|m| m.name.as_str()).collect();
    page.shown = shown::read(run, source, (&page.listed, &places), (&metrics, &judged))?;
    page.mixed = origins::mixed(run.path())?;
    Ok(page)
}

/// How the texts of a session of this request are read again; none where that takes more than one plain query.
fn texts_at(request: &ScoreRequest, source: &TraceSource) -> Option<TextsAt> {
    /// Paths beyond this many make no command that anybody would want to copy.
    const MOST_TABLES: usize = 4;
    let tables = &request.record.paths;
    let reads_earlier_nights = request.continues.is_some() || request.is_retry();
    if tables.is_empty() || tables.len() > MOST_TABLES || reads_earlier_nights {
        return None;
    }
    // What is made of other formats has nightmill's own columns.
    let foreign = !request.found.foreign.is_empty();
    if foreign && !request.found.native.is_empty() {
        return None;
    }
    let column = |name: &'static str| match foreign {
        true => name.to_owned(),
        false => request.map.column(name).to_owned(),
    };
    let (input, output) = source.reads_texts();
    let texts = [("input", input), ("output", output)];
    let texts = texts.into_iter().filter(|(_, read)| *read);
    let columns = [("trace_id", true), ("started_at", true)].into_iter();
    let columns = columns.chain(texts).map(|(name, _)| column(name));
    let settings = &request.record.settings;
    let flags = [("mapping", "--mapping"), ("format", "--input-format")];
    let flags = flags.into_iter().filter_map(|(setting, flag)| {
        let given = settings.get(setting)?.as_str()?;
        (given != "auto").then(|| (flag.to_owned(), given.to_owned()))
    });
    Some(TextsAt {
        tables: tables.clone(),
        columns: columns.collect(),
        session_id: column("session_id"),
        project_id: column("project_id"),
        started_at: column("started_at"),
        flags: flags.collect(),
    })
}

/// What the page says of the run beside its figures.
pub(super) fn facts(
    request: &ScoreRequest,
    source: &TraceSource,
    service: Option<&EmbeddingService>,
) -> PageFacts {
    let model = service.map(EmbeddingService::model);
    let name = request.out.file_name();
    PageFacts {
        title: name.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned()),
        run: request.out.display().to_string(),
        texts: texts_at(request, source),
        model: model.map(|model| (model.name.clone(), model.sha256.clone())),
        precision: model
            .map_or("none", |model| model.encoder.precision())
            .into(),
        device: model.map_or_else(|| "none".into(), |model| model.encoder.device()),
        inputs: source
            .files()
            .flat_map(SourceFile::given)
            .map(|path| origin_of(path))
            .collect(),
        signals: request
            .signals
            .as_ref()
            .map(|path| origin_of(Path::new(path))),
    }
}

/// Writes the page.
pub(super) fn write(run: &RunDirectory, html: &str) -> Result<(), RunError> {
    let path = run.path().join(REPORT);
    std::fs::write(&path, html).map_err(|e| RunError::write(&path, e))
}

/// What changed in a run that is described and not visible yet, as its newest link makes the chain; in short in the summary,
/// too. Whatever is in the way of it is told there, and loses no run.
pub(super) fn what_changed(
    request: &ScoreRequest,
    run: &RunDirectory,
    summary: &mut Summary,
) -> Option<Changes> {
    // The scores are there, and may have cost a night and money: not even a defect in here may take them away.
    let changes = catch_unwind(AssertUnwindSafe(|| read(request, run)));
    let defect = || Err("this is a defect, please report it".to_owned());
    let changes = changes.unwrap_or_else(|_| defect()).map_err(|problem| {
        // Under its name, which its reader knows; the hidden one is gone by then.
        let (hidden, name) = (run.path().display(), request.out.display());
        problem.replace(&hidden.to_string(), &name.to_string())
    });
    if let Err(problem) = &changes {
        tracing::warn!("what changed since the nights before could not be found out: {problem}");
    }
    if let Some(continued) = &mut summary.continued {
        let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
        let told = changes.as_ref().ok();
        continued.drift = Some(DriftSummary {
            is_gate: request.fail_on_drift,
            found: told.map(|told| owned(told.drift())).unwrap_or_default(),
            few_nights: told.is_some_and(Changes::few_nights),
            untold: told.map(|told| owned(told.untold())).unwrap_or_default(),
            problem: changes.as_ref().err().cloned(),
        });
    }
    changes.ok()
}

fn read(request: &ScoreRequest, run: &RunDirectory) -> Result<Changes, String> {
    let name = name_of(&request.out).map_err(|e| e.to_string())?;
    let found = read_run(run.path()).map_err(|e| e.to_string())?;
    let run = StoredRun { name, ..found };
    let limits = QueryLimits {
        threads: request.engine.threads,
        memory: request
            .engine
            .memory_limit
            .min(QueryLimits::default().memory),
    };
    let query = ChangeQuery {
        limits,
        ..ChangeQuery::of(&run)
    };
    read_changes(&query).map_err(|e| e.to_string())
}
