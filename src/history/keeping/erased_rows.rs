//! What forgetting does to the rows of tables.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::DataType;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use super::carry::{REPLACED, RowKey, keys};
use super::scrub::{Scrub, TAKEN_OUT};
use super::{Erasing, KeepingError};
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, text, text_if_there, trace_id, whole_numbers};
use crate::history::verify::check_file;
use crate::output::{RunError, table_writer};

/// Tables about sessions judged whole: what was said of one that has lost a trace can't stand.
pub(super) const JUDGED: [&str; 3] = ["judge_verdicts", "judge_metric_scores", "judge_outcomes"];
/// Tables with a row a session: what is said of one that has lost a trace can't stand.
const OF_SESSIONS: [&str; 2] = ["sessions", "attention"];
/// Columns of documents, and of plain texts, in which ids of other traces may stand.
const DOCUMENTS: [&str; 2] = ["details", "metadata"];
const REASON: &str = "reason";
const QUARANTINE: &str = "quarantine";

/// The canonical id of the trace that each row is about; none where it is about none.
pub(super) fn traces_of(batch: &RecordBatch) -> Result<Vec<Option<String>>, String> {
    let rows = 0..batch.num_rows();
    if batch.column_by_name("trace_id").is_some() {
        let ids = text(batch, "trace_id")?;
        return Ok(rows.map(|row| trace_id(&ids, row)).collect());
    }
    let (types, ids) = (
        text_if_there(batch, "target_type")?,
        text_if_there(batch, "target_id")?,
    );
    let of_trace = |row: &usize| cell(&types, *row) == Some("trace");
    Ok(rows
        .map(|row| {
            Some(row)
                .filter(of_trace)
                .and_then(|row| trace_id(&ids, row))
        })
        .collect())
}

/// What is taken out of the tables of a run, and what was.
pub(super) struct ErasedRows<'e> {
    pub what: &'e Erasing,
    /// Sessions that lose traces, and how many they have left.
    pub sessions: HashMap<RowKey, u64>,
    /// Sessions that lose traces and have none left in any run.
    pub gone_sessions: &'e HashSet<RowKey>,
    pub scrub: Scrub,
    /// Rows that went, by table.
    pub gone: BTreeMap<String, u64>,
    /// Rows that stay without an id that they named.
    pub scrubbed: u64,
    /// Metrics and reasons of failed scores that went.
    pub failures: BTreeSet<(String, String)>,
    /// Codes of the rows set aside that went.
    pub codes: BTreeSet<String>,
}

impl ErasedRows<'_> {
    /// The rows of a batch that stay, as they stay; none if nothing changes.
    fn apply(&mut self, table: &str, batch: &RecordBatch) -> Result<Option<RecordBatch>, String> {
        if table == QUARANTINE {
            return self.set_aside(batch);
        }
        let (traces, keys) = (traces_of(batch)?, keys(batch)?);
        let types = text_if_there(batch, "target_type")?;
        let mut stay = Vec::with_capacity(batch.num_rows());
        let mut scrubbed = Vec::with_capacity(batch.num_rows());
        for (row, (trace, key)) in traces.iter().zip(&keys).enumerate() {
            let left = key.as_ref().and_then(|key| self.sessions.get(key));
            let goes = trace
                .as_ref()
                .is_some_and(|id| self.what.traces.contains(id))
                || match left {
                    None => false,
                    Some(_) if JUDGED.contains(&table) || OF_SESSIONS.contains(&table) => true,
                    Some(_) if cell(&types, row) == Some("session") => true,
                    Some(_) => false,
                }
                // As long as some run holds a trace of the session, what replaces it must be known.
                || (table == REPLACED
                    && key.as_ref().is_some_and(|key| self.gone_sessions.contains(key)));
            stay.push(!goes);
            scrubbed.push(!goes && left.is_some());
        }
        let gone = stay.iter().filter(|stays| !**stays).count();
        let columns = self.scrubbed(batch, &scrubbed)?;
        if gone == 0 && columns.is_none() {
            return Ok(None);
        }
        self.note_failures(batch, &stay)?;
        *self.gone.entry(table.to_owned()).or_default() += gone as u64;
        let batch = columns.unwrap_or_else(|| batch.clone());
        filter_record_batch(&batch, &BooleanArray::from(stay))
            .map(Some)
            .map_err(|e| e.to_string())
    }

    /// Failures that go are named in the summary.
    fn note_failures(&mut self, batch: &RecordBatch, stay: &[bool]) -> Result<(), String> {
        let [metrics, statuses, reasons] =
            ["metric", "status", REASON].map(|name| text_if_there(batch, name));
        let (metrics, statuses, reasons) = (metrics?, statuses?, reasons?);
        for (row, _) in stay.iter().enumerate().filter(|(_, stays)| !**stays) {
            if let (Some("FAILED"), Some(metric), Some(reason)) = (
                cell(&statuses, row),
                cell(&metrics, row),
                cell(&reasons, row),
            ) {
                self.failures.insert((metric.to_owned(), reason.to_owned()));
            }
        }
        Ok(())
    }

    /// The batch without the ids in documents and reasons of these rows; none if there were none.
    fn scrubbed(
        &mut self,
        batch: &RecordBatch,
        rows: &[bool],
    ) -> Result<Option<RecordBatch>, String> {
        if !rows.contains(&true) {
            return Ok(None);
        }
        let mut touched = vec![false; rows.len()];
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let schema = batch.schema();
        for (field, column) in schema.fields().iter().zip(&mut columns) {
            let is_document = DOCUMENTS.contains(&field.name().as_str());
            if *field.data_type() != DataType::Utf8 || !(is_document || field.name() == REASON) {
                continue;
            }
            let texts = text(batch, field.name())?;
            let mut changed = false;
            let made: StringArray = (0..batch.num_rows())
                .map(|row| {
                    let text = cell(&texts, row)?;
                    let scrubbed = match rows[row] {
                        true => self.scrubbed_text(text, is_document),
                        false => None,
                    };
                    changed |= scrubbed.is_some();
                    touched[row] |= scrubbed.is_some();
                    Some(scrubbed.unwrap_or_else(|| text.to_owned()))
                })
                .collect();
            if changed {
                *column = Arc::new(made);
            }
        }
        let count = touched.iter().filter(|touched| **touched).count();
        self.scrubbed += count as u64;
        match count {
            0 => Ok(None),
            _ => RecordBatch::try_new(schema, columns)
                .map(Some)
                .map_err(|e| e.to_string()),
        }
    }

    fn scrubbed_text(&self, text: &str, is_document: bool) -> Option<String> {
        if is_document && let Ok(mut document) = serde_json::from_str::<Value>(text) {
            return self.scrub.json(&mut document).then(|| document.to_string());
        }
        self.scrub.text(text)
    }

    /// Rows that were set aside: those of the traces go, and stretches that hold one of theirs keep no reason, which may show
    /// what it said.
    fn set_aside(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>, String> {
        let [files, codes, reasons] =
            ["file", "code", REASON].map(|name| text_if_there(batch, name));
        let (files, codes, reasons) = (files?, codes?, reasons?);
        let (firsts, counts) = (
            whole_numbers(batch, "first_row")?,
            whole_numbers(batch, "rows")?,
        );
        let at = |numbers: &Int64Array, row: usize| match numbers.is_valid(row) {
            true => numbers.value(row).unsigned_abs(),
            false => 0,
        };
        let (mut stay, mut made) = (Vec::new(), Vec::new());
        let mut changed = false;
        for row in 0..batch.num_rows() {
            let (first, count) = (at(&firsts, row), at(&counts, row));
            let named = cell(&files, row).unwrap_or_default();
            let held = self.what.rows_of(named).is_some_and(|rows| {
                rows.range(first..first.saturating_add(count))
                    .next()
                    .is_some()
            });
            let reason = cell(&reasons, row).unwrap_or_default();
            let names_one = self.scrub.text(reason);
            if held || names_one.is_some() {
                changed = true;
                self.codes.extend(cell(&codes, row).map(str::to_owned));
            }
            stay.push(!(held && count == 1));
            made.push(match (held, names_one) {
                (true, _) => TAKEN_OUT.to_owned(),
                (false, Some(scrubbed)) => scrubbed,
                (false, None) => reason.to_owned(),
            });
        }
        if !changed {
            return Ok(None);
        }
        let gone = stay.iter().filter(|stays| !**stays).count() as u64;
        *self.gone.entry(QUARANTINE.to_owned()).or_default() += gone;
        let schema = batch.schema();
        let made: ArrayRef = Arc::new(StringArray::from(made));
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| match field.name() == REASON {
            true => Arc::clone(&made),
            false => Arc::clone(column),
        });
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect());
        filter_record_batch(
            &batch.map_err(|e| e.to_string())?,
            &BooleanArray::from(stay),
        )
        .map(Some)
        .map_err(|e| e.to_string())
    }

    /// Writes a file of a table without what goes; says whether anything did. If not, nothing is left behind.
    pub fn rewrite(
        &mut self,
        run: &Path,
        file: &Path,
        table: &str,
        target: &Path,
    ) -> Result<bool, KeepingError> {
        let named = file.to_string_lossy().into_owned();
        let damaged = |e: String| HistoryError::damaged(run, &named, e);
        check_file(run, &named)?;
        let read = |e: parquet::errors::ParquetError| damaged(e.to_string());
        let opened = File::open(run.join(file)).map_err(|e| damaged(e.to_string()))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(opened).map_err(read)?;
        let schema = Arc::clone(builder.schema());
        let reader = builder.build().map_err(read)?;
        let failed = |e: &dyn std::fmt::Display| RunError::write(target, e);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
        }
        let out = BufWriter::new(File::create(target).map_err(|e| failed(&e))?);
        let mut writer = ArrowWriter::try_new(out, schema, Some(table_writer::properties()))
            .map_err(|e| failed(&e))?;
        let mut changed = false;
        for batch in reader {
            let batch = batch.map_err(|e| damaged(e.to_string()))?;
            let made = self.apply(table, &batch).map_err(damaged)?;
            changed |= made.is_some();
            let batch = made.unwrap_or(batch);
            writer.write(&batch).map_err(|e| failed(&e))?;
        }
        if changed {
            table_writer::close(writer).map_err(|e| failed(&e))?;
        } else {
            drop(writer);
            std::fs::remove_file(target).map_err(|e| failed(&e))?;
        }
        Ok(changed)
    }
}
