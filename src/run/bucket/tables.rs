//! The tables of a bucket in the directory of its run.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;

use super::{BucketCounts, BucketJob, SessionBatches, Sink, score_bucket};
use crate::history::CARRIED;
use crate::metric::Rules;
use crate::metric::session_signal::ATTENTION;
use crate::output::score_rows::scores_schema;
use crate::output::table_writer::{Parts, TableThread, TableWriter};
use crate::output::{RunDirectory, RunError};
use crate::run::carried;
use crate::run::session_rows::{SessionColumns, facts_schema, sessions_schema};
use crate::run::trace_rows::{TraceBatches, places_schema, traces_schema};

/// Where each trace's texts are: a table among the working files.
pub(in crate::run) const PLACES: &str = "places";

/// What the order of sessions needs to know of each: a table among the working files, row for row as `sessions`.
pub(in crate::run) const FACTS: &str = "session_facts";

/// Where the tables of a bucket are written.
#[derive(Clone, Debug)]
pub(in crate::run) struct BucketPlace {
    /// The directory of the run.
    run: PathBuf,
    /// Its working files.
    work: PathBuf,
    parts: Parts,
}

impl BucketPlace {
    /// For these parts of the tables of a run.
    pub fn of(run: &RunDirectory, parts: Parts) -> Self {
        Self {
            run: run.path().to_owned(),
            work: run.work(),
            parts,
        }
    }

    /// For these parts, in a folder as in the directory of a run.
    pub fn in_folder(folder: PathBuf, parts: Parts) -> Self {
        Self {
            work: folder.join("work"),
            run: folder,
            parts,
        }
    }

    /// For a bucket of the same run.
    pub fn bucket(&self, bucket: u32) -> Self {
        Self {
            parts: Parts::OfBucket(bucket),
            ..self.clone()
        }
    }

    /// Scores the rows of a bucket, see [`score_bucket`], and writes its tables.
    ///
    /// # Errors
    /// As those of [`score_bucket`], and the disk's.
    pub async fn score(
        &self,
        job: &Arc<BucketJob>,
        context: &SessionContext,
        rows: Arc<dyn ExecutionPlan>,
    ) -> Result<BucketCounts, RunError> {
        let traces = TraceTables::create(self, &job.rules)?;
        let columns = SessionColumns {
            labels: true,
            signals: job.rules.wants(ATTENTION),
            of_night: job.so_far.is_some(),
        };
        let mut sessions = SessionTables::create(self, columns)?;
        let scored = score_bucket(job, context, rows, traces, &mut sessions);
        let (counts, traces) = scored.await?;
        sessions.finish(traces.finish()? + 1)?;
        Ok(counts)
    }
}

/// Tables of traces.
struct TraceTables {
    traces: TableThread,
    scores: TableThread,
    places: TableWriter,
    carried: TableWriter,
}

impl TraceTables {
    fn create(place: &BucketPlace, rules: &Rules) -> Result<Self, RunError> {
        let (run, parts) = (&place.run, place.parts);
        let traces = TableWriter::create_parts(run, "traces", traces_schema(rules), parts)?;
        let scores = TableWriter::create_parts(run, "scores", scores_schema(), parts)?;
        let places = TableWriter::create_in_work(&place.work, PLACES, places_schema(), parts)?;
        Ok(Self {
            traces: TableThread::start(traces, "traces")?,
            scores: TableThread::start(scores, "scores")?,
            places,
            carried: TableWriter::create_parts(run, CARRIED, carried::schema(), parts)?,
        })
    }

    /// Closes the tables; returns the number of the last part of `scores`.
    fn finish(self) -> Result<u64, RunError> {
        self.traces.finish()?;
        self.places.finish()?;
        self.carried.finish()?;
        self.scores.finish()
    }
}

impl Sink<TraceBatches> for TraceTables {
    fn write(&mut self, rows: TraceBatches) -> Result<(), RunError> {
        self.traces.write(rows.traces)?;
        self.scores.write(rows.scores)?;
        self.places.write(&rows.places)?;
        self.carried.write(&rows.carried)
    }
}

/// Tables of sessions.
pub(in crate::run) struct SessionTables {
    sessions: TableWriter,
    /// Aside, while scores of traces are still coming.
    scores: TableWriter,
    /// Where sessions have labels.
    facts: Option<TableWriter>,
    /// The folder of all scores.
    all_scores: PathBuf,
    parts: Parts,
}

impl SessionTables {
    /// Starts the tables.
    pub fn create(place: &BucketPlace, columns: SessionColumns) -> Result<Self, RunError> {
        let (schema, parts) = (sessions_schema(columns), place.parts);
        let facts = columns
            .labels
            .then(|| TableWriter::create_in_work(&place.work, FACTS, facts_schema(), parts));
        let aside = (&place.work, "session_scores", scores_schema());
        Ok(Self {
            sessions: TableWriter::create_parts(&place.run, "sessions", schema, parts)?,
            scores: TableWriter::create_parts(aside.0, aside.1, aside.2, parts)?,
            facts: facts.transpose()?,
            all_scores: place.run.join("scores"),
            parts,
        })
    }

    /// Closes the tables; the parts with session scores become parts of `scores` from `first_part` on.
    pub fn finish(self, first_part: u64) -> Result<(), RunError> {
        self.sessions.finish()?;
        if let Some(facts) = self.facts {
            facts.finish()?;
        }
        let (aside, target) = (self.scores.folder().to_owned(), &self.all_scores);
        std::fs::create_dir_all(target).map_err(|e| RunError::write(target, e))?;
        for part in 0..=self.scores.finish()? {
            let path = self.parts.path(target, first_part + part);
            std::fs::rename(self.parts.path(&aside, part), &path)
                .map_err(|e| RunError::write(&path, e))?;
        }
        Ok(())
    }
}

impl Sink<SessionBatches> for SessionTables {
    fn write(&mut self, rows: SessionBatches) -> Result<(), RunError> {
        self.sessions.write(&rows.sessions)?;
        if let (Some(table), Some(facts)) = (&mut self.facts, &rows.facts) {
            table.write(facts)?;
        }
        self.scores.write(&rows.scores)
    }
}
