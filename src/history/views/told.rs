//! The table `runs`: what each run says of itself.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::error::ArrowError;
use serde_json::Value;

use crate::history::ancestry::Ancestry;
use crate::history::continues::Continues;
use crate::history::stored_run::HistoryError;
use crate::history::{LeftOut, StoredRun, read_told};

/// What a run says of itself beside what every list of runs shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The run that it goes on from.
    pub goes_on: Option<Continues>,
    /// Which night of its chain it says that it is, from 1; none if it says nothing.
    pub night: Option<u64>,
    /// The model that embeds, its precision, and what is made of JSON; none where nothing was embedded.
    pub model: [Option<String>; 3],
    /// Rows that it met, those that could not be read among them.
    pub rows: u64,
    /// Rows that could not be read.
    pub quarantined: u64,
    /// What judges cost, in US dollars, where one was asked.
    pub cost: Option<f64>,
}

impl Told {
    /// # Errors
    /// [`HistoryError`] if manifest or summary can't be read.
    pub fn read(run: &StoredRun) -> Result<Self, HistoryError> {
        let (manifest, summary) = read_told(&run.path)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let goes_on = Continues::of(&run.path, &manifest)?;
        let model = &manifest["model"];
        let embeds = model.is_object();
        let night = goes_on.as_ref().and_then(|said| said.night);
        let mode = text(&manifest["rules"]["text_mode"]).filter(|_| embeds);
        let spend = summary["judge"]["spend"].as_array();
        // With calls of an unknown price, the cost is not known.
        let priced = |of: &Value| of["unpriced"].as_u64().is_none_or(|unpriced| unpriced == 0);
        let spend = spend.filter(|spend| spend.iter().all(priced));
        let cost = spend.map(|spend| spend.iter().filter_map(|of| of["cost"].as_f64()).sum());
        Ok(Self {
            // A run that took over the rows of those before it continues none, and counts on.
            night: night.or_else(|| manifest["night"].as_u64()),
            goes_on,
            model: [text(&model["name"]), text(&model["precision"]), mode],
            rows: summary["rows_read"].as_u64().unwrap_or_default(),
            quarantined: summary["quarantined"].as_u64().unwrap_or_default(),
            cost,
        })
    }
}

/// The rows of `runs`. `left_out` are runs whose scores a retry holds: they are listed, and no other table has rows of them.
///
/// # Errors
/// Arrow's, if columns don't fit together: they do.
pub(super) fn batch(
    runs: &[(StoredRun, Told, String)],
    left_out: &[(StoredRun, Told, LeftOut)],
    ancestry: &Ancestry,
) -> Result<RecordBatch, ArrowError> {
    struct Row<'a> {
        run: &'a StoredRun,
        told: &'a Told,
        label: &'a str,
        night: u64,
        retried_by: Option<&'a str>,
    }
    let kept = runs.iter().enumerate();
    let mut rows: Vec<Row<'_>> = kept
        .map(|(at, (run, told, label))| Row {
            run,
            told,
            label,
            night: ancestry.night(at),
            retried_by: None,
        })
        .collect();
    rows.extend(left_out.iter().map(|(run, told, left)| Row {
        run,
        told,
        label: &run.name,
        night: told.night.unwrap_or(1),
        retried_by: Some(&left.retry),
    }));
    let text = |of: &dyn Fn(&Row<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<StringArray>())
    };
    let count = |of: &dyn Fn(&Row<'_>) -> u64| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(of(row)))
                .collect::<UInt64Array>(),
        )
    };
    let times: TimestampMicrosecondArray = rows
        .iter()
        .map(|row| Some(row.run.created_at.timestamp_micros()))
        .collect();
    let costs: Float64Array = rows.iter().map(|row| row.told.cost).collect();
    let goes_on = |row: &Row<'_>| row.told.goes_on.as_ref().map(|said| said.run.clone());
    RecordBatch::try_from_iter_with_nullable([
        ("run", text(&|row| Some(row.label.to_owned())), false),
        ("name", text(&|row| Some(row.run.name.clone())), false),
        (
            "path",
            text(&|row| Some(row.run.path.display().to_string())),
            false,
        ),
        ("id", text(&|row| row.run.identity.clone()), true),
        (
            "created_at",
            Arc::new(times.with_timezone("UTC")) as ArrayRef,
            false,
        ),
        ("command", text(&|row| Some(row.run.command.clone())), false),
        (
            "status",
            text(&|row| Some(row.run.status.name().to_owned())),
            false,
        ),
        ("continues", text(&goes_on), true),
        ("night", count(&|row| row.night), false),
        ("model", text(&|row| row.told.model[0].clone()), true),
        ("precision", text(&|row| row.told.model[1].clone()), true),
        ("text_mode", text(&|row| row.told.model[2].clone()), true),
        (
            "judge_model",
            text(&|row| row.run.record.model.clone()),
            true,
        ),
        ("traces", count(&|row| row.run.traces), false),
        ("sessions", count(&|row| row.run.sessions), false),
        (
            "failed",
            count(&|row| row.run.failed + row.run.failed_signals),
            false,
        ),
        ("pending", count(&|row| row.run.pending), false),
        ("rows_read", count(&|row| row.told.rows), false),
        ("quarantined", count(&|row| row.told.quarantined), false),
        ("cost", Arc::new(costs), true),
        (
            "retried_by",
            text(&|row| row.retried_by.map(str::to_owned)),
            true,
        ),
    ])
}
