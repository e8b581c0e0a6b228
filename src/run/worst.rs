//! The traces of the worst sessions with their texts, for people to look at.

use std::collections::HashMap;
use std::fs::File;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, TimestampMicrosecondType, UInt64Type};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection};
use serde_json::Value;

use super::bucket::{PLACES, WorstAt};
use crate::metric::Rules;
use crate::output::table_writer::{Parts, ROWS_PER_PART};
use crate::output::{RunDirectory, RunError};
use crate::summary::{ShownLoop, ShownSession, ShownTrace};
use crate::trace::{Buckets, RowAt, TraceSource};

/// A session's rows beyond this many are left out, the least risky first.
const MOST_ROWS: usize = 40;
/// Texts are cut to this many characters.
const MOST_CHARACTERS: usize = 4000;

fn cut(text: &str) -> (String, bool) {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => (text[..end].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

/// Reads a range of rows of a table that was just written.
fn rows_of(
    folder: &std::path::Path,
    parts: Parts,
    (first, count): (u64, u64),
    mut each: impl FnMut(&RecordBatch),
) -> Result<(), RunError> {
    let failed = |path: &std::path::Path, e: String| {
        RunError::Plan(format!("`{}` can't be read back: {e}", path.display()))
    };
    let (mut next, end) = (first, first + count);
    while next < end {
        let part = next / ROWS_PER_PART;
        let path = parts.path(folder, part);
        let file = File::open(&path).map_err(|e| failed(&path, e.to_string()))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)
            .map_err(|e| failed(&path, e.to_string()))?;
        let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let from = next - part * ROWS_PER_PART;
        let to = rows.min(end - part * ROWS_PER_PART);
        if from >= to {
            return Err(failed(&path, "rows are missing".into()));
        }
        let selection = RowSelection::from_consecutive_ranges(
            std::iter::once(from as usize..to as usize),
            rows as usize,
        );
        let reader = builder
            .with_row_selection(selection)
            .build()
            .map_err(|e| failed(&path, e.to_string()))?;
        for batch in reader {
            each(&batch.map_err(|e| failed(&path, e.to_string()))?);
        }
        next += to - from;
    }
    Ok(())
}

fn read_session(
    run: &RunDirectory,
    buckets: Buckets,
    at: &WorstAt,
) -> Result<ShownSession, RunError> {
    let session = &at.session;
    let parts = match buckets == Buckets::ONE {
        true => Parts::OfAll,
        false => Parts::OfBucket(at.bucket),
    };
    let range = (at.first_row, session.traces);
    let mut rows = Vec::new();
    rows_of(&run.path().join("traces"), parts, range, |batch| {
        let text = |name: &str, row: usize| {
            let column = batch.column_by_name(name)?.as_string_opt::<i32>()?;
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        let number = |name: &str, row: usize| {
            let column = batch
                .column_by_name(name)?
                .as_primitive_opt::<Float64Type>()?;
            column.is_valid(row).then(|| column.value(row))
        };
        let times = batch
            .column_by_name("started_at")
            .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
        let flags = batch
            .column_by_name("flagged")
            .and_then(|c| c.as_boolean_opt());
        for row in 0..batch.num_rows() {
            let time = times.and_then(|t| chrono::DateTime::from_timestamp_micros(t.value(row)));
            rows.push(ShownTrace {
                position: rows.len() as u64,
                trace_id: text("trace_id", row).unwrap_or_default(),
                started_at: time
                    .map(|t| t.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
                    .unwrap_or_default(),
                coherence: number("coherence", row),
                loop_detection: number("loop_detection", row),
                confidence: number("confidence", row),
                tool_correctness: number("tool_correctness", row),
                step_risk: number("step_risk", row),
                flagged: flags.is_some_and(|f| f.is_valid(row) && f.value(row)),
                details: text("details", row).unwrap_or_default(),
                ..ShownTrace::default()
            });
        }
    })?;
    let mut row_at = 0;
    rows_of(&run.work().join(PLACES), parts, range, |batch| {
        let place = |column: usize, row: usize| {
            let column = batch.column(column).as_primitive_opt::<UInt64Type>()?;
            column
                .is_valid(row)
                .then(|| RowAt::from_position(column.value(row)))
        };
        for row in 0..batch.num_rows() {
            if let Some(trace) = rows.get_mut(row_at) {
                trace.places = (place(0, row), place(1, row));
            }
            row_at += 1;
        }
    })?;
    let whole = rows.len();
    let earlier: HashMap<String, (u64, Option<RowAt>)> = rows
        .iter()
        .map(|r| (r.trace_id.clone(), (r.position, r.places.1)))
        .collect();
    if whole > MOST_ROWS {
        rows.sort_by(|a, b| {
            b.step_risk
                .unwrap_or(-1.0)
                .total_cmp(&a.step_risk.unwrap_or(-1.0))
                .then(a.position.cmp(&b.position))
        });
        rows.truncate(MOST_ROWS);
        rows.sort_by_key(|r| r.position);
    }
    for row in &mut rows {
        row.repeats = strongest(&row.details);
        if let Some(repeats) = &mut row.repeats {
            let found = earlier.get(&repeats.trace_id).copied();
            repeats.position = found.map(|(position, _)| position);
            repeats.place = found.and_then(|(_, place)| place);
        }
    }
    Ok(ShownSession {
        session: session.clone(),
        flagged: session.flagged_traces.len(),
        rows_hidden: whole - rows.len(),
        rows,
    })
}

/// The strongest comparison of a trace's loop detection, if it failed the threshold.
fn strongest(details: &str) -> Option<ShownLoop> {
    let details: Value = serde_json::from_str(details).ok()?;
    let looped = details.get("loop_detection")?;
    if looped.get("success")?.as_bool()? {
        return None;
    }
    let number = |c: &Value, key: &str| c.get(key).and_then(Value::as_f64);
    let best = looped
        .get("comparisons")?
        .as_array()?
        .iter()
        .max_by(|a, b| {
            number(a, "hybrid_score")
                .unwrap_or(0.0)
                .total_cmp(&number(b, "hybrid_score").unwrap_or(0.0))
        })?;
    Some(ShownLoop {
        trace_id: best.get("trace_id")?.as_str()?.to_owned(),
        position: None,
        cosine: number(best, "cosine_similarity"),
        jaccard: number(best, "jaccard_similarity"),
        hybrid: number(best, "hybrid_score"),
        output: String::new(),
        output_cut: false,
        place: None,
    })
}

/// Reads the worst sessions back from the tables just written, and their texts from the source.
///
/// # Errors
/// If either can't be read any more.
pub(super) fn read(
    run: &RunDirectory,
    source: &TraceSource,
    (buckets, sessions): (Buckets, &[WorstAt]),
    rules: &Rules,
) -> Result<Vec<ShownSession>, RunError> {
    let mut shown = sessions
        .iter()
        .map(|s| read_session(run, buckets, s))
        .collect::<Result<Vec<_>, _>>()?;
    let places: Vec<RowAt> = shown
        .iter()
        .flat_map(|s| &s.rows)
        .flat_map(|r| {
            [
                r.places.0,
                r.places.1,
                r.repeats.as_ref().and_then(|repeats| repeats.place),
            ]
        })
        .flatten()
        .collect();
    let texts = source.texts_at(places)?;
    let output_at = |place: Option<RowAt>| {
        place
            .and_then(|p| texts.get(&p))
            .and_then(|t| t.1.as_deref())
            .unwrap_or("")
    };
    for row in shown.iter_mut().flat_map(|s| &mut s.rows) {
        if rules.computes("coherence") {
            let input = row
                .places
                .0
                .and_then(|p| texts.get(&p))
                .and_then(|t| t.0.as_deref())
                .unwrap_or("");
            (row.input, row.input_cut) = cut(input);
        }
        (row.output, row.output_cut) = cut(output_at(row.places.1));
        if let Some(repeats) = &mut row.repeats {
            (repeats.output, repeats.output_cut) = cut(output_at(repeats.place));
        }
    }
    Ok(shown)
}
