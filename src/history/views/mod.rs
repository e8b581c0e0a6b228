//! History as SQL: the tables of many runs as views, for `nightmill sql` and for the figures of this room.
//!
//! `README.md` beside this file says what each view holds, with examples.

mod asked;
mod latest;
mod run_files;
mod told;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::DataType;
pub use asked::QueryLimits;
pub(crate) use asked::{
    AlikeSessions, Asked, MetricKey, each_batch, each_sum, metric_key, models_of, sums_of,
};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use run_files::{RunFiles, Wanted, instant};
pub(crate) use told::Told;

use crate::history::ancestry::Ancestry;
use crate::history::figures::{ScoreFilter, Target};
use crate::history::stored_run::HistoryError;
use crate::history::{CARRIED, LeftOut, StoredRun, leave_out_retried};

/// A view, and what it holds.
pub const VIEWS: [(&str, &str); 8] = [
    (
        "runs",
        "a row a run: what it was, what it read, what it cost",
    ),
    ("traces", "the traces of all runs"),
    ("scores", "the scores of all runs"),
    ("sessions", "the sessions of all runs"),
    ("traces_latest", "each trace once, in its latest state"),
    (
        "scores_latest",
        "the latest score of each metric of each trace and session",
    ),
    ("sessions_latest", "each session once, in its latest state"),
    (
        "changes",
        "sessions whose latest score is another one than the score before",
    ),
];

/// Runs whose tables can be asked.
#[derive(Debug)]
pub struct Views {
    runs: Vec<StoredRun>,
    told: Vec<Told>,
    labels: Vec<String>,
    left_out: Vec<(StoredRun, Told, LeftOut)>,
    ancestry: Ancestry,
    check: bool,
    /// The runs of which files may be opened; none is all.
    opened: Option<Vec<usize>>,
}

impl Views {
    /// Of runs, without those whose scores a retry among them holds. With `check`, each file is compared with what its
    /// manifest says before it is read.
    ///
    /// # Errors
    /// [`HistoryError`] if what a run says of itself can't be read.
    pub fn of(runs: Vec<StoredRun>, check: bool) -> std::result::Result<Self, HistoryError> {
        let all = runs.clone();
        let (runs, left) = leave_out_retried(runs, &ScoreFilter::all(Target::Trace));
        let told = runs
            .iter()
            .map(Told::read)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let without = all
            .into_iter()
            .filter(|run| runs.iter().all(|kept| kept.path != run.path));
        let left_out = without
            .zip(left)
            .map(|(run, left)| Ok((Told::read(&run)?, run, left)))
            .map(|found| found.map(|(told, run, left)| (run, told, left)))
            .collect::<std::result::Result<Vec<_>, HistoryError>>()?;
        let said: Vec<_> = told.iter().map(|told| told.goes_on.clone()).collect();
        let nights: Vec<_> = told.iter().map(|told| told.night).collect();
        Ok(Self {
            labels: labels(&runs),
            ancestry: Ancestry::of(&runs, &said, &nights),
            runs,
            told,
            left_out,
            check,
            opened: None,
        })
    }

    /// Reads columns beside those of every version of these runs only, given by their places. Of others no file is opened
    /// where a query does not ask for their rows.
    pub(crate) fn opening(mut self, runs: &[usize]) -> Self {
        self.opened = Some(runs.to_vec());
        self
    }

    /// What the runs say of themselves.
    pub(crate) fn told(&self) -> &[Told] {
        &self.told
    }

    /// Which goes on from which.
    pub(crate) fn ancestry(&self) -> &Ancestry {
        &self.ancestry
    }

    /// What the runs are called.
    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The runs whose tables are asked.
    pub fn runs(&self) -> &[StoredRun] {
        &self.runs
    }

    /// Makes the views that `needs` names, and those that they rest on, known to a session. Of other tables no file is opened.
    ///
    /// # Errors
    /// If a file can't be read.
    pub async fn register(
        &self,
        context: &SessionContext,
        needs: impl Fn(&str) -> bool,
    ) -> Result<()> {
        if needs("runs") {
            let runs: Vec<_> = self
                .runs
                .iter()
                .zip(&self.told)
                .zip(&self.labels)
                .map(|((run, told), label)| (run.clone(), told.clone(), label.clone()))
                .collect();
            register_batch(
                context,
                "runs",
                told::batch(&runs, &self.left_out, &self.ancestry)?,
            )?;
        }
        let latest = ["traces_latest", "scores_latest", "sessions_latest"];
        let latest_needed = latest.iter().any(|view| needs(view)) || needs("changes");
        // Latest scores and traces of several chains go by the times of traces.
        let several = latest_needed && !self.ancestry.is_one_line();
        let wanted = [
            (
                "traces",
                needs("traces") || needs("traces_latest") || several && needs("scores_latest"),
            ),
            (
                "scores",
                needs("scores") || needs("scores_latest") || needs("changes"),
            ),
            (
                "sessions",
                needs("sessions") || needs("sessions_latest") || needs("changes"),
            ),
            (CARRIED, needs(CARRIED)),
        ];
        for (table, needed) in wanted {
            if needed {
                self.register_files(context, table, table != CARRIED)?;
            }
        }
        context.register_udf(latest::canonical());
        let replaced = self
            .runs
            .iter()
            .any(|run| run.path.join("replaced").is_dir());
        if replaced {
            self.register_files(context, "replaced", false)?;
            register_batch(context, "_ancestors", self.ancestors()?)?;
        }
        let views = latest::Statements {
            replaced,
            one_line: self.ancestry.is_one_line(),
        };
        for statement in views.statements(
            |table| {
                wanted
                    .iter()
                    .any(|(name, needed)| *needed && *name == table)
            },
            &needs,
        ) {
            context.sql(&statement).await?;
        }
        Ok(())
    }

    /// Registers the files of a table as `_TABLE`.
    fn register_files(&self, context: &SessionContext, table: &str, named: bool) -> Result<()> {
        let columns = columns_of(table);
        let wanted = Wanted {
            table,
            columns: &columns,
            named,
            check: self.check,
            opened: self.opened.as_deref(),
        };
        let files = RunFiles::open(&self.runs, &self.labels, wanted)?;
        context.register_table(format!("_{table}"), Arc::new(files))?;
        Ok(())
    }

    /// By run: the earlier runs of its chain, by each of the names that `replaced` may know them by.
    fn ancestors(&self) -> Result<RecordBatch> {
        let (mut later, mut names, mut earlier) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..self.runs.len() {
            for before in self.ancestry.earlier(run) {
                let Some(old) = self.runs.get(before) else {
                    continue;
                };
                let marks = old.retried.iter().map(|mark| &mark.name);
                for name in marks.chain([&old.name]) {
                    later.push(run as u32);
                    names.push(name.clone());
                    earlier.push(before as u32);
                }
            }
        }
        let batch = RecordBatch::try_from_iter([
            ("later", Arc::new(UInt32Array::from(later)) as _),
            ("name", Arc::new(StringArray::from(names)) as _),
            ("earlier", Arc::new(UInt32Array::from(earlier)) as _),
        ])?;
        Ok(batch)
    }
}

fn register_batch(context: &SessionContext, name: &str, batch: RecordBatch) -> Result<()> {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
    context.register_table(name, Arc::new(table))?;
    Ok(())
}

/// What runs are called in tables: the names of their directories, and the paths of those of one name.
fn labels(runs: &[StoredRun]) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for run in runs {
        *counts.entry(&run.name).or_default() += 1;
    }
    let label = |run: &StoredRun| match counts.get(run.name.as_str()) {
        Some(1) | None => run.name.clone(),
        // A run that is not visible yet has another path than it will have.
        Some(_) => run.path.with_file_name(&run.name).display().to_string(),
    };
    runs.iter().map(label).collect()
}

/// Columns that views rest on. Tables of earlier versions lack some, and a folder may hold no run with such a table.
fn columns_of(table: &str) -> Vec<(&'static str, DataType)> {
    let text = |names: &[&'static str]| {
        let columns = names.iter().map(|name| (*name, DataType::Utf8View));
        columns.collect::<Vec<_>>()
    };
    match table {
        "sessions" => {
            let mut columns = text(&["session_id", "project_id"]);
            columns.push(("traces", DataType::Int64));
            columns.push(("first_started_at", instant()));
            columns.push(("last_started_at", instant()));
            columns.push(("agent_reliability", DataType::Float64));
            columns.push(("agent_consistency", DataType::Float64));
            columns.push(("first_run", DataType::Utf8View));
            columns.push(("revision", DataType::UInt32));
            columns
        }
        "traces" => {
            let mut columns = text(&["trace_id", "session_id", "project_id"]);
            columns.push(("started_at", instant()));
            columns.extend(text(&["name", "environment", "release", "model"]));
            columns
        }
        "scores" => {
            let label = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            let of_words = |names: &[&'static str]| {
                let columns = names.iter().map(|name| (*name, label.clone()));
                columns.collect::<Vec<_>>()
            };
            let mut columns = of_words(&["target_type"]);
            columns.extend(text(&["target_id", "session_id", "project_id"]));
            columns.extend(of_words(&["metric", "status"]));
            columns.push(("score", DataType::Float64));
            columns.extend(text(&["value"]));
            columns.push(("passed", DataType::Boolean));
            columns.extend(of_words(&["data_type", "source"]));
            columns.extend(text(&["environment"]));
            columns.extend(of_words(&["model", "precision", "text_mode"]));
            columns
        }
        CARRIED => {
            let mut columns = text(&["trace_id", "session_id", "project_id"]);
            columns.push(("night", DataType::UInt64));
            columns
        }
        _ => text(&["session_id", "project_id", "trace_id", "run"]),
    }
}
