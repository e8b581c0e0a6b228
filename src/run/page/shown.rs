//! The first sessions of the list with their traces and texts, for people to look at.

use std::collections::HashMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, TimestampMicrosecondType, UInt64Type};
use serde_json::Value;

use super::listed::SessionAt;
use super::repeats::repeats_by_words;
use super::tables::{Rows, each_batch, unreadable};
use super::verdicts::{Key, judgements, verdicts};
use crate::output::table_writer::ROWS_PER_PART;
use crate::output::{RunDirectory, RunError};
use crate::run::bucket::PLACES;
use crate::summary::{ListedSession, ShownCall, ShownRepeat, ShownSession, ShownText, ShownTrace};
use crate::trace::{CalledTool, RowAt, TraceSource};

/// A session's rows beyond this many are left out, the least risky first.
const MOST_ROWS: usize = 40;
/// Texts are cut to this many characters.
const MOST_CHARACTERS: usize = 4000;
/// Calls of a trace beyond this many are left out: of those that went well, the last ones.
const MOST_CALLS: usize = 20;
/// Arguments and errors of calls are cut to this many characters.
const MOST_OF_CALL: usize = 400;

/// A trace, and where its texts are.
struct Found {
    shown: ShownTrace,
    details: String,
    places: (Option<RowAt>, Option<RowAt>),
}

fn cut(text: &str, most: usize) -> ShownText {
    match text.char_indices().nth(most) {
        Some((end, _)) => ShownText {
            text: text[..end].to_owned(),
            cut: true,
        },
        None => ShownText {
            text: text.to_owned(),
            cut: false,
        },
    }
}

/// Reads the rows of a session of a table that was just written, row for row with `traces`.
fn rows_of(
    folder: &std::path::Path,
    at: SessionAt,
    mut each: impl FnMut(&RecordBatch),
) -> Result<(), RunError> {
    let (mut next, end) = (at.first_row, at.first_row + at.traces);
    while next < end {
        let part = next / ROWS_PER_PART;
        let path = at.parts.path(folder, part);
        let from = next - part * ROWS_PER_PART;
        let to = ROWS_PER_PART.min(end - part * ROWS_PER_PART);
        let range = std::iter::once(from as usize..to as usize).collect::<Vec<_>>();
        let mut read = 0;
        each_batch(&path, None, Rows::Ranges(&range), |_, batch| {
            read += batch.num_rows() as u64;
            each(batch);
            Ok(())
        })?;
        if read < to - from {
            return Err(unreadable(&path, "rows are missing"));
        }
        next += to - from;
    }
    Ok(())
}

fn traces_of(
    run: &RunDirectory,
    at: SessionAt,
    metrics: &[String],
) -> Result<Vec<Found>, RunError> {
    let mut rows: Vec<Found> = Vec::new();
    rows_of(&run.path().join("traces"), at, |batch| {
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
            let scores = metrics
                .iter()
                .filter_map(|name| Some((name.clone(), number(name, row)?)));
            let shown = ShownTrace {
                position: rows.len() as u64,
                trace_id: text("trace_id", row).unwrap_or_default(),
                started_at: time
                    .map(|t| t.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
                    .unwrap_or_default(),
                scores: scores.collect(),
                step_risk: number("step_risk", row),
                flagged: flags.is_some_and(|f| f.is_valid(row) && f.value(row)),
                ..ShownTrace::default()
            };
            rows.push(Found {
                shown,
                details: text("details", row).unwrap_or_default(),
                places: (None, None),
            });
        }
    })?;
    let mut row_at = 0;
    rows_of(&run.work().join(PLACES), at, |batch| {
        let place = |column: usize, row: usize| {
            let column = batch.columns().get(column)?;
            let column = column.as_primitive_opt::<UInt64Type>()?;
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
    Ok(rows)
}

/// The traces that are shown, with the earlier outputs that loop detection says they repeat; and how many are not shown.
fn chosen(mut rows: Vec<Found>) -> (Vec<Found>, usize) {
    let whole = rows.len();
    let earlier: HashMap<String, (u64, Option<RowAt>)> = rows
        .iter()
        .map(|r| (r.shown.trace_id.clone(), (r.shown.position, r.places.1)))
        .collect();
    if whole > MOST_ROWS {
        rows.sort_by(|a, b| {
            let risk = |row: &Found| row.shown.step_risk.unwrap_or(-1.0);
            risk(b)
                .total_cmp(&risk(a))
                .then(a.shown.position.cmp(&b.shown.position))
        });
        rows.truncate(MOST_ROWS);
        rows.sort_by_key(|r| r.shown.position);
    }
    for row in &mut rows {
        let mut repeats = strongest(&row.details);
        if let Some(repeats) = &mut repeats {
            let found = earlier.get(&repeats.trace_id).copied();
            repeats.position = found.map(|(position, _)| position);
            repeats.place = found.and_then(|(_, place)| place);
        }
        row.shown.repeats = repeats;
    }
    let hidden = whole - rows.len();
    (rows, hidden)
}

/// The strongest comparison of a trace's loop detection, if it failed the threshold.
fn strongest(details: &str) -> Option<ShownRepeat> {
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
    Some(ShownRepeat {
        trace_id: best.get("trace_id")?.as_str()?.to_owned(),
        cosine: number(best, "cosine_similarity"),
        jaccard: number(best, "jaccard_similarity"),
        hybrid: number(best, "hybrid_score"),
        ..ShownRepeat::default()
    })
}

/// Reads the first sessions of a list: their traces from the tables just written, texts and spans from the source.
/// `metrics` are those with a score a trace, `judged` those that a judge was asked about.
///
/// # Errors
/// If either can't be read any more.
pub(super) fn read(
    run: &RunDirectory,
    source: &TraceSource,
    (listed, places): (&[ListedSession], &[SessionAt]),
    (metrics, judged): (&[String], &[&str]),
) -> Result<Vec<ShownSession>, RunError> {
    let keys: Vec<Key> = listed
        .iter()
        .take(places.len())
        .map(|session| (session.session_id.clone(), session.project_id.clone()))
        .collect();
    let mut sessions = Vec::new();
    for at in places {
        sessions.push(chosen(traces_of(run, *at, metrics)?));
    }
    let all = || sessions.iter().flat_map(|(rows, _)| rows);
    let of_texts = all().flat_map(|row| {
        let earlier = row.shown.repeats.as_ref();
        [
            row.places.0,
            row.places.1,
            earlier.and_then(|earlier| earlier.place),
        ]
    });
    let mut found = source.rows_to_show(of_texts.flatten().collect())?;
    let mut said = verdicts(run.path(), &keys)?;
    let mut judgements = judgements(run.path(), &keys, judged)?;
    let (inputs, outputs) = source.reads_texts();
    let mut shown = Vec::new();
    for (number, (rows, rows_hidden)) in sessions.into_iter().enumerate() {
        let key = keys.get(number);
        let mut traces = Vec::with_capacity(rows.len());
        for Found {
            shown: mut trace,
            places,
            ..
        } in rows
        {
            let row = |place: Option<RowAt>| found.get(&place?);
            let output = |place| {
                let text = row(place).and_then(|row| row.output.as_deref());
                cut(text.unwrap_or_default(), MOST_CHARACTERS)
            };
            let input = row(places.0).and_then(|row| row.input.as_deref());
            trace.input = inputs.then(|| cut(input.unwrap_or_default(), MOST_CHARACTERS));
            trace.output = outputs.then(|| output(places.1));
            if let Some(repeats) = &mut trace.repeats {
                repeats.output = output(repeats.place);
            }
            // Of a trace of several rows, those that its texts are of.
            let mut of_trace = Vec::new();
            for place in [places.0, places.1].into_iter().flatten() {
                let row = found.get_mut(&place);
                of_trace.extend(
                    row.map(|row| std::mem::take(&mut row.calls))
                        .unwrap_or_default(),
                );
            }
            (trace.calls, trace.calls_hidden) = shown_calls(of_trace);
            if let Some(key) = key {
                let of_trace = (key.clone(), trace.trace_id.clone());
                trace.judged = judgements.remove(&of_trace).unwrap_or_default();
            }
            traces.push(trace);
        }
        repeats_by_words(&mut traces);
        shown.push(ShownSession {
            row: number,
            rows_hidden,
            rows: traces,
            verdict: key.and_then(|key| said.remove(key)),
        });
    }
    Ok(shown)
}

/// Calls as they are shown, and how many are not; failed ones stay.
fn shown_calls(mut calls: Vec<CalledTool>) -> (Vec<ShownCall>, usize) {
    let whole = calls.len();
    let failed = calls.iter().filter(|call| call.failed).count();
    let mut room = MOST_CALLS.saturating_sub(failed.min(MOST_CALLS));
    let mut of_failed = MOST_CALLS;
    calls.retain(|call| {
        let left = match call.failed {
            true => &mut of_failed,
            false => &mut room,
        };
        let stays = *left > 0;
        *left = left.saturating_sub(1);
        stays
    });
    let hidden = whole - calls.len();
    let shown = calls.into_iter().map(|call| ShownCall {
        name: call.name,
        arguments: cut(&call.arguments, MOST_OF_CALL),
        failed: call.failed,
        error: call.error.map(|error| cut(&error, MOST_OF_CALL)),
    });
    (shown.collect(), hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_calls_stay_where_there_are_too_many() {
        let call = |number: usize| CalledTool {
            name: number.to_string(),
            failed: number % 10 == 9,
            ..CalledTool::default()
        };
        let (shown, hidden) = shown_calls((0..40).map(call).collect());
        assert_eq!((shown.len(), hidden), (MOST_CALLS, 20));
        assert_eq!(shown.iter().filter(|call| call.failed).count(), 4);
        let (all, hidden) = shown_calls((0..3).map(call).collect());
        assert_eq!((all.len(), hidden), (3, 0));
    }

    #[test]
    fn the_strongest_comparison_is_of_a_loop_that_was_found() {
        let details = |success: bool| {
            format!(
                r#"{{"loop_detection": {{"success": {success}, "comparisons": [
                {{"trace_id": "a", "hybrid_score": 0.2}}, {{"trace_id": "b", "hybrid_score": 0.9, "cosine_similarity": 1.0}}]}}}}"#
            )
        };
        let found = strongest(&details(false)).unwrap();
        assert_eq!((found.trace_id.as_str(), found.hybrid), ("b", Some(0.9)));
        assert!(strongest(&details(true)).is_none() && strongest("{}").is_none());
    }
}
