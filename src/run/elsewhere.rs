//! A scoring run whose parts other processes do: from the request to the job that they are told, and back to counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, AsArray};

use super::Progress;
use super::ScoreRequest;
use super::bucket::BucketCounts;
use super::engine_plans::plan_session;
use super::judging::judgements::Judgements;
use super::night::Night;
use super::signals_file::GivenSignals;
use super::stages::{Passes, reading};
use super::worker::{EncoderOfJob, Exchange, FileOfJob, NightOfJob, WorkerJob, drive};
use crate::engine::{for_each_batch, traces_table};
use crate::job::whole_path;
use crate::output::{RunDirectory, RunError};
use crate::text::origin_of;
use crate::trace::{Buckets, Quarantine, SourceFile, SourceFormat, TraceSource};

/// What a run has found out before its traces are scored.
pub(super) struct Given<'g> {
    pub run: &'g RunDirectory,
    pub source: &'g Arc<TraceSource>,
    pub signals: &'g GivenSignals,
    pub judgements: Option<Judgements>,
    pub night: Option<&'g Night>,
    pub quarantine: &'g Quarantine,
    pub progress: &'g Progress,
}

/// Refuses what other processes can't do for a run.
///
/// # Errors
/// [`RunError::Request`] with what to do instead.
pub(super) fn check(request: &ScoreRequest) -> Result<(), RunError> {
    let condition = request
        .judge
        .as_ref()
        .and_then(|judge| judge.condition.as_ref());
    let refused = [
        (
            request.triage.is_some(),
            "--triage: a quick model learns from all pairs of a run what it may decide, and workers see a part of them each; leave \
             it out, or score on one machine",
        ),
        (
            condition.is_some(),
            "--judge-where: the condition looks at scores before judges are asked, and this process asks them; choose traces \
             with --judge-sample, or score on one machine",
        ),
        (
            request.buckets == Some(Buckets::ONE),
            "--buckets 1: a run in one piece is no work for several; leave it out, or take more",
        ),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, why)) => Err(RunError::Request(why.into())),
    }
}

/// Has traces and sessions scored, and their tables written.
///
/// # Errors
/// [`RunError`]; buckets that are finished stay, for `--resume`.
pub(super) fn score(
    passes: &Passes<'_>,
    exchange: &Arc<dyn Exchange>,
    runtime: &tokio::runtime::Runtime,
    mut given: Given<'_>,
) -> Result<BucketCounts, RunError> {
    let Some(markers) = passes.buckets.markers() else {
        return Err(RunError::Plan("the run has no buckets".into()));
    };
    if let Some(judgements) = &mut given.judgements {
        judgements.flush()?;
    }
    let job = job(passes, runtime, &given)?;
    let done = drive(
        exchange,
        &job,
        markers,
        given.source,
        given.quarantine,
        given.progress,
    )?;
    given.progress.embedded_elsewhere(done.embedding);
    match passes.buckets.sum(done.buckets) {
        Some(sum) => Ok(sum),
        None => runtime.block_on(nothing(passes, &given)),
    }
}

/// Writes tables without rows, as a run writes them that scores itself.
async fn nothing(passes: &Passes<'_>, given: &Given<'_>) -> Result<BucketCounts, RunError> {
    let none = TraceSource::open(
        Vec::new(),
        reading(
            passes.request,
            super::engine_plans::columns(&passes.request.rules, None),
        ),
        Arc::default(),
    )?;
    let ids = std::collections::HashSet::new();
    passes
        .score(
            given.run,
            Arc::new(none),
            given.signals,
            ids,
            (None, None),
            given.night,
        )
        .await
}

/// What workers are told.
fn job(
    passes: &Passes<'_>,
    runtime: &tokio::runtime::Runtime,
    given: &Given<'_>,
) -> Result<WorkerJob, RunError> {
    let request = passes.request;
    let files: Vec<&SourceFile> = given.source.files().collect();
    let repeated = match passes.repeats {
        true => runtime.block_on(buckets_of_repeated(passes, given))?,
        false => BTreeMap::new(),
    };
    let judged = given.judgements.as_ref().map(Judgements::all).transpose()?;
    let rows = given.signals.rows();
    let standing_in = given.night.and_then(|night| night.standing_in.as_ref());
    Ok(WorkerJob {
        run: std::path::absolute(given.run.path())
            .map_err(|e| RunError::write(given.run.path(), e))?,
        rules: request.rules.clone(),
        buckets: passes.buckets.count.count(),
        done: passes.buckets.done_before.clone(),
        map: request.map.clone(),
        on_bad_file: request.on_bad_file,
        files: files
            .iter()
            .map(|file| file_of_job(file))
            .collect::<Result<_, _>>()?,
        repeats: passes.repeats,
        repeated,
        only: passes
            .targets
            .as_ref()
            .map(|only| only.iter().cloned().collect()),
        signals: given.signals.names.clone(),
        given: rows
            .map(|(id, values)| (id.clone(), values.to_vec()))
            .collect(),
        judged,
        encoder: passes
            .service
            .as_ref()
            .map(|service| EncoderOfJob::of(service.model(), &request.engine.adjusted)),
        night: given.night.map(|night| NightOfJob {
            standing_in: standing_in.and_then(|file| files.iter().position(|other| *other == file)),
            kept: night.kept.clone(),
            own: night.first_nights().own,
            earlier: HashMap::clone(&night.first_nights().earlier),
            name: night.so_far().run().to_owned(),
            sessions: night
                .so_far()
                .earlier
                .iter()
                .map(|(key, earlier)| (key.clone(), earlier.clone()))
                .collect(),
        }),
    })
}

fn file_of_job(file: &SourceFile) -> Result<FileOfJob, RunError> {
    let origin = origin_of(&file.path);
    // A copy of an object in a bucket: workers bring it to themselves.
    let in_bucket = ["s3://", "gs://", "az://"]
        .iter()
        .any(|scheme| origin.starts_with(scheme));
    let is_copy = origin != file.path.display().to_string();
    if is_copy && (!in_bucket || origin.contains("@v")) {
        return Err(RunError::Request(format!(
            "`{origin}`: this process alone has a copy of it, which no other can read; workers read files that all of them see, and \
             objects of buckets"
        )));
    }
    let path = match is_copy {
        true => origin,
        false => whole_path(&file.path),
    };
    let bytes = std::fs::metadata(&file.path)
        .map_err(|e| RunError::Request(format!("file `{}`: {e}", file.path.display())))?;
    Ok(FileOfJob {
        path,
        bytes: bytes.len(),
        parquet: file.format == SourceFormat::Parquet,
        partition: file.partition.clone(),
        rows: file.rows.as_ref().map(|rows| rows.to_vec()),
        named: file.path.display().to_string(),
        shown: match file.given() {
            [given, ..] => origin_of(given),
            [] => origin_of(&file.path),
        },
    })
}

/// The buckets of traces that have several rows: what a trace says of its session, its rows say together.
async fn buckets_of_repeated(
    passes: &Passes<'_>,
    given: &Given<'_>,
) -> Result<BTreeMap<String, u32>, RunError> {
    let (request, buckets) = (passes.request, passes.buckets.count);
    let files: Vec<SourceFile> = given.source.files().cloned().collect();
    // With all columns that count: a row that is set aside for one of them has no say.
    let columns = super::engine_plans::columns(&request.rules, None);
    let source = TraceSource::open(files, reading(request, columns), Arc::default())?;
    let context = plan_session(
        &request.engine,
        &request.rules,
        None,
        None,
        given.run.work(),
    )?;
    let table = traces_table(Arc::new(source), request.engine.threads)?;
    let mut found = BTreeMap::new();
    let frame = crate::engine::sessions_of_repeated(&context, Arc::new(table)).await?;
    for_each_batch(frame, |batch| {
        let text = |at: usize| batch.column(at).as_string::<i32>();
        let (traces, sessions, projects) = (text(0), text(1), text(2));
        for row in 0..batch.num_rows() {
            let of = |column: &'_ arrow::array::StringArray| {
                column.is_valid(row).then(|| column.value(row).to_owned())
            };
            let trace = traces.value(row);
            let bucket = buckets.of(of(projects).as_deref(), of(sessions).as_deref(), trace);
            found.insert(trace.to_owned(), bucket);
        }
        Ok(())
    })
    .await?;
    Ok(found)
}
