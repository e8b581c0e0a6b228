//! Signals that somebody else computed: `--signals FILE`, joined by trace id.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Float64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::engine::{CheckFile, FilesAsTables};
use crate::history::check_if_of_run;
use crate::metric::SIGNALS;
use crate::output::RunError;
use crate::trace::canonical_trace_id;

/// Signals by trace, checked.
#[derive(Debug)]
pub(super) struct GivenSignals {
    /// The signals that the file has, in the order of [`SIGNALS`], then those of spans.
    pub names: Vec<String>,
    /// NaN and infinite values, read as missing.
    pub non_finite: u64,
    /// Values in the order of `names`, as far as they go; by trace.
    by_trace: HashMap<String, Vec<Option<f64>>>,
    /// The trace ids as they came.
    order: Vec<String>,
}

impl GivenSignals {
    /// Reads a Parquet or JSON Lines file, folder or glob with `trace_id` and any of the four signals, or of those
    /// `of_spans`.
    /// A trace id may occur twice only if its rows don't contradict one another.
    ///
    /// # Errors
    /// [`RunError::Request`] naming column and row (from 0) of a value that is not from 0 to 1, or that differs from
    /// another row of the same trace.
    pub async fn read(path: &str, of_spans: &[&str]) -> Result<Self, RunError> {
        if path.contains('"') || path.contains('\'') {
            return Err(RunError::Request(format!(
                "signals file `{path}`: quotes in the name are not supported"
            )));
        }
        let check: CheckFile = Arc::new(|file| check_if_of_run(file).map_err(|e| e.to_string()));
        // One partition: rows come as the file has them, so that messages can number them.
        let config = SessionConfig::new().with_target_partitions(1);
        let context = FilesAsTables::enable(SessionContext::new_with_config(config), Some(check));
        let in_file = |e: datafusion::error::DataFusionError| {
            RunError::Request(format!("signals file `{path}`: {}", RunError::from(e)))
        };
        let table = context
            .table(datafusion::common::TableReference::bare(path))
            .await
            .map_err(in_file)?;
        let present: Vec<String> = table
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        let signals = SIGNALS.iter().map(|(name, _)| name).chain(of_spans);
        let signals: Vec<String> = signals.map(|name| (*name).to_owned()).collect();
        let names: Vec<String> = signals
            .iter()
            .filter(|n| present.contains(n))
            .cloned()
            .collect();
        if names.is_empty() || !present.iter().any(|p| p == "trace_id") {
            return Err(RunError::Request(format!(
                "signals file `{path}` must have a column trace_id and at least one of {}; it has {}",
                signals.join(", "),
                present.join(", ")
            )));
        }
        for name in &names {
            let field = table
                .schema()
                .field_with_unqualified_name(name)
                .map_err(in_file)?;
            if !field.data_type().is_numeric() && *field.data_type() != DataType::Null {
                return Err(RunError::Request(format!(
                    "signals file `{path}`, column `{name}`: has type {}, expected a number",
                    field.data_type()
                )));
            }
        }
        let wanted: Vec<&str> = std::iter::once("trace_id")
            .chain(names.iter().map(String::as_str))
            .collect();
        let batches = table
            .select_columns(&wanted)
            .map_err(in_file)?
            .collect()
            .await
            .map_err(in_file)?;
        Self::from_batches(path, names, &batches)
    }

    fn from_batches(
        path: &str,
        names: Vec<String>,
        batches: &[RecordBatch],
    ) -> Result<Self, RunError> {
        let wrong = |problem: String| RunError::Request(format!("signals file `{path}`{problem}"));
        let failed = |e: arrow::error::ArrowError| wrong(format!(": {e}"));
        let (mut rows, mut non_finite) = (0u64, 0u64);
        let mut by_trace: HashMap<String, Vec<Option<f64>>> = HashMap::new();
        let mut order: Vec<String> = Vec::new();
        for batch in batches {
            let ids = arrow::compute::cast(batch.column(0), &DataType::Utf8).map_err(failed)?;
            let ids = ids.as_string::<i32>();
            let columns = (1..=names.len())
                .map(|at| arrow::compute::cast(batch.column(at), &DataType::Float64))
                .collect::<Result<Vec<ArrayRef>, _>>()
                .map_err(failed)?;
            for row in 0..batch.num_rows() {
                let given = ids.is_valid(row).then(|| ids.value(row));
                let Some(id) = given.and_then(canonical_trace_id) else {
                    return Err(wrong(format!(
                        ", column `trace_id`, row {rows}: null or empty; every row needs a trace id"
                    )));
                };
                let values = by_trace.entry(id.clone()).or_insert_with(|| {
                    order.push(id);
                    vec![None; names.len()]
                });
                for ((value, column), name) in values.iter_mut().zip(&columns).zip(&names) {
                    let column = column.as_primitive::<Float64Type>();
                    let Some(found) = column.is_valid(row).then(|| column.value(row)) else {
                        continue;
                    };
                    if !found.is_finite() {
                        non_finite += 1;
                        continue;
                    }
                    if !(0.0..=1.0).contains(&found) {
                        return Err(wrong(format!(
                            ", column `{name}`, row {rows}: {found} is not from 0 to 1; bring the column to that \
                             scale (a percentage is divided by 100) or leave it out"
                        )));
                    }
                    match value {
                        Some(earlier) if *earlier != found => {
                            let first = first_row_of(batches, given.and_then(canonical_trace_id));
                            return Err(wrong(format!(
                                ", column `{name}`, row {rows}: trace `{}` has {found} here and {earlier} \
                                 before, first in row {first}; keep one of them",
                                given.unwrap_or_default()
                            )));
                        }
                        _ => *value = Some(found),
                    }
                }
                rows += 1;
            }
        }
        Ok(Self {
            names,
            non_finite,
            by_trace,
            order,
        })
    }

    /// Trace by trace, in their order: the values of `names`.
    pub fn rows(&self) -> impl Iterator<Item = (&String, &[Option<f64>])> {
        self.order.iter().map(|id| {
            let values = self.by_trace.get(id).map(Vec::as_slice);
            (id, values.unwrap_or_default())
        })
    }

    /// Signals that were checked before: names, and trace by trace their values.
    pub fn of_rows(names: Vec<String>, rows: Vec<(String, Vec<Option<f64>>)>) -> Self {
        let order = rows.iter().map(|(id, _)| id.clone()).collect();
        Self {
            names,
            non_finite: 0,
            by_trace: rows.into_iter().collect(),
            order,
        }
    }

    /// No signals yet.
    pub fn none() -> Self {
        Self {
            names: Vec::new(),
            non_finite: 0,
            by_trace: HashMap::new(),
            order: Vec::new(),
        }
    }

    /// The trace ids, each once.
    pub fn ids(&self) -> std::collections::HashSet<String> {
        self.order.iter().cloned().collect()
    }

    /// Whether a trace has a signal.
    pub fn has(&self, trace_id: &str, name: &str) -> bool {
        let at = self.names.iter().position(|n| n == name);
        at.is_some_and(|at| {
            self.by_trace
                .get(trace_id)
                .is_some_and(|values| values.get(at).is_some_and(Option::is_some))
        })
    }

    /// Adds a signal of a trace that has none of that name.
    pub fn add(&mut self, trace_id: &str, name: &str, value: f64) {
        let at = match self.names.iter().position(|n| n == name) {
            Some(at) => at,
            None => {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        let values = self.by_trace.entry(trace_id.to_owned()).or_insert_with(|| {
            self.order.push(trace_id.to_owned());
            Vec::new()
        });
        if values.len() <= at {
            values.resize(at + 1, None);
        }
        values[at].get_or_insert(value);
    }

    /// The signals as a table with unique trace ids.
    pub fn table(&self) -> Result<Arc<dyn TableProvider>, RunError> {
        let mut ids = StringBuilder::new();
        let mut columns: Vec<Float64Builder> =
            self.names.iter().map(|_| Float64Builder::new()).collect();
        for id in &self.order {
            ids.append_value(id);
            let values = self.by_trace.get(id);
            for (at, builder) in columns.iter_mut().enumerate() {
                builder.append_option(values.and_then(|values| values.get(at).copied().flatten()));
            }
        }
        let mut fields = vec![Field::new("trace_id", DataType::Utf8, false)];
        let signal = |name: &String| Field::new(name, DataType::Float64, true);
        fields.extend(self.names.iter().map(signal));
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(ids.finish())];
        let finished = columns
            .into_iter()
            .map(|mut c| Arc::new(c.finish()) as ArrayRef);
        arrays.extend(finished);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|e| RunError::Plan(format!("the table of signals could not be built: {e}")))?;
        Ok(Arc::new(MemTable::try_new(
            batch.schema(),
            vec![vec![batch]],
        )?))
    }
}

/// The first row with a trace id, in its canonical form.
fn first_row_of(batches: &[RecordBatch], id: Option<String>) -> usize {
    let ids = batches.iter().flat_map(|batch| {
        let ids = arrow::compute::cast(batch.column(0), &DataType::Utf8).ok();
        (0..batch.num_rows()).map(move |row| {
            let ids = ids.as_ref()?.as_string::<i32>();
            canonical_trace_id(ids.is_valid(row).then(|| ids.value(row))?)
        })
    });
    ids.take_while(|found| *found != id).count()
}
