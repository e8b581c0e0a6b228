//! What earlier nights leave of touched sessions: the files that their rows are in, the signals that they were given, and
//! scores that stand where a file is gone.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::array::{ArrayRef, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit, TimestampMicrosecondType};
use parquet::arrow::ArrowWriter;

use super::Night;
use super::earlier::{EarlierTrace, Found};
use crate::history::stored_table::{
    cell, for_each_batch, number, numbers_if_there, text, text_if_there,
};
use crate::history::{ChainRun, made_in};
use crate::metric::SIGNALS;
use crate::output::RunError;
use crate::run::ScoreRequest;
use crate::run::carried::{CarriedFile, read_files};
use crate::run::judging::traces::judged_metrics;
use crate::trace::{SourceFile, SourceFormat};

/// Traces whose rows can't be read again: numbers of the list of earlier traces.
pub(super) type Gone = HashSet<usize>;

/// Most files that a message names.
const MOST_NAMED: usize = 5;

impl Night {
    /// Opens the files of earlier rows, each once and in the order in which they arrived. Returns the traces of those that
    /// are gone or changed, which are named in the summary.
    pub(super) fn open_files(
        &mut self,
        chain: &[ChainRun],
        traces: &[EarlierTrace],
        offline: bool,
    ) -> Result<Gone, RunError> {
        // By arrival, and by path: a run made of other formats has a file of its own, by the same path inside.
        let mut wanted: BTreeMap<((u64, u64), String), Wanted> = BTreeMap::new();
        let mut gone = Gone::new();
        let mut lists: HashMap<usize, Vec<Option<CarriedFile>>> = HashMap::new();
        for (at, trace) in traces.iter().enumerate() {
            let Some(run) = chain.get(trace.run) else {
                continue;
            };
            if let std::collections::hash_map::Entry::Vacant(list) = lists.entry(trace.run) {
                list.insert(read_files(&run.path)?);
            }
            let list = lists.get(&trace.run).map_or(&[][..], Vec::as_slice);
            if trace.places.is_empty() {
                gone.insert(at);
            }
            for (file, row) in &trace.places {
                let Some(Some(file)) = list.get(*file) else {
                    gone.insert(at);
                    continue;
                };
                let path = match file.inside {
                    None => file.path.clone(),
                    Some(night) => {
                        let path = made_in(chain, run, night, &file.path);
                        path.display().to_string()
                    }
                };
                let wanted = wanted
                    .entry((file.arrived, path))
                    .or_insert_with(|| Wanted {
                        file: file.clone(),
                        rows: Vec::new(),
                    });
                wanted.rows.push((*row, at));
            }
        }
        let mut named = Vec::new();
        let mut files = Vec::new();
        for ((_, path), wanted) in wanted {
            match self.opened(&path, &wanted, offline) {
                Ok(file) => files.push((file, wanted)),
                Err(problem) => {
                    gone.extend(wanted.rows.iter().map(|(_, trace)| *trace));
                    named.push(format!("{path} {problem}"));
                }
            }
        }
        // A trace with a row that is gone keeps its scores whole: its other rows are not read either.
        for (mut file, wanted) in files {
            let mut rows: Vec<u64> = wanted
                .rows
                .iter()
                .filter(|(_, trace)| !gone.contains(trace))
                .map(|(row, _)| *row)
                .collect();
            rows.sort_unstable();
            rows.dedup();
            if rows.is_empty() {
                continue;
            }
            file.rows = Some(Arc::new(rows));
            self.files.push((file, wanted.file));
        }
        self.summary.files_gone = named.len() as u64;
        named.truncate(MOST_NAMED);
        self.summary.gone = named;
        Ok(gone)
    }

    fn opened(&mut self, path: &str, wanted: &Wanted, offline: bool) -> Result<SourceFile, String> {
        if !path.contains("://") {
            return wanted.file.open(path.into(), wanted.file.inside.is_some());
        }
        let fetched =
            crate::store::fetched(vec![path.to_owned()], offline).map_err(|e| e.to_string())?;
        let copy = fetched.paths.first().cloned().unwrap_or_default();
        let file = wanted.file.open(copy.into(), true);
        self.fetched.push(fetched);
        file
    }

    /// Takes what earlier runs were given as signals, and of traces that are gone what they came to.
    pub(super) fn take_signals(
        &mut self,
        chain: &[ChainRun],
        found: &Found,
        gone: &Gone,
        request: &ScoreRequest,
    ) -> Result<(), RunError> {
        let judged: HashSet<&str> = match request.judge {
            Some(_) => judged_metrics(&request.rules)
                .iter()
                .map(|m| m.name)
                .collect(),
            None => HashSet::new(),
        };
        let of_spans = request.rules.span_signals();
        let names: Vec<&'static str> = SIGNALS.map(|(name, _)| name).into_iter().collect();
        let names = [names, of_spans].concat();
        let mut given = false;
        for (at, run) in chain.iter().enumerate() {
            // What one night was given, later ones hand on.
            given |= was_given_signals(&run.manifest);
            let of_run: HashMap<u64, (usize, &EarlierTrace)> = found
                .traces
                .iter()
                .enumerate()
                .filter(|(_, trace)| trace.run == at)
                .filter(|(number, _)| given || gone.contains(number))
                .map(|(number, trace)| (trace.row, (number, trace)))
                .collect();
            if of_run.is_empty() {
                continue;
            }
            let mut row = 0u64;
            let mut signals = Vec::new();
            let mut columns = names.clone();
            columns.push("details");
            for_each_batch(&run.path, "traces", &columns, |batch| {
                let details = text(batch, "details")?;
                for name in &names {
                    let values = numbers_if_there(batch, name)?;
                    for at in 0..batch.num_rows() {
                        let Some((number_of, trace)) = of_run.get(&(row + at as u64)) else {
                            continue;
                        };
                        let kept =
                            gone.contains(number_of) && !found.again.contains(&trace.trace_id);
                        let was_given = || is_given(cell(&details, at).unwrap_or_default(), name);
                        let takes = match ["confidence", "tool_correctness"].contains(name) {
                            true => !judged.contains(name),
                            false => kept || was_given(),
                        };
                        if let (true, Some(value)) = (takes, number(&values, at)) {
                            signals.push((trace.trace_id.clone(), *name, value));
                        }
                    }
                }
                row += batch.num_rows() as u64;
                Ok(())
            })?;
            self.signals.extend(signals);
        }
        Ok(())
    }

    /// Writes a file of the traces that are gone: what names them, and no texts.
    pub(super) fn stand_in(
        &mut self,
        chain: &[ChainRun],
        traces: &[EarlierTrace],
        gone: &Gone,
        work: &Path,
    ) -> Result<(), RunError> {
        if gone.is_empty() {
            return Ok(());
        }
        const LABELS: [&str; 7] = [
            "trace_id",
            "session_id",
            "project_id",
            "name",
            "environment",
            "release",
            "model",
        ];
        const EMPTY: [&str; 4] = ["input", "output", "expected", "spans"];
        let mut labels = LABELS.map(|_| StringBuilder::new());
        let mut tags = StringBuilder::new();
        let mut times = TimestampMicrosecondBuilder::new().with_timezone("UTC");
        let mut count = 0;
        let mut origins = Vec::new();
        for (at, run) in chain.iter().enumerate() {
            let of_run = traces.iter().enumerate();
            let of_run = of_run.filter(|(number, trace)| trace.run == at && gone.contains(number));
            let wanted: HashSet<u64> = of_run.map(|(_, trace)| trace.row).collect();
            if wanted.is_empty() {
                continue;
            }
            origins.push(run.path.join("traces"));
            let mut columns = LABELS.to_vec();
            columns.extend(["tags", "started_at"]);
            let mut row = 0u64;
            for_each_batch(&run.path, "traces", &columns, |batch| {
                let cells: Vec<_> = LABELS
                    .iter()
                    .map(|name| text_if_there(batch, name))
                    .collect::<Result<_, _>>()?;
                let tags_of_rows = batch.column_by_name("tags");
                let tags_of_rows = tags_of_rows.and_then(|column| column.as_list_opt::<i32>());
                let started = batch
                    .column_by_name("started_at")
                    .and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>())
                    .ok_or("there is no column `started_at`")?;
                for at in 0..batch.num_rows() {
                    if wanted.contains(&(row + at as u64)) {
                        for (label, cells) in labels.iter_mut().zip(&cells) {
                            label.append_option(cell(cells, at));
                        }
                        let listed = tags_of_rows.filter(|lists| lists.is_valid(at));
                        tags.append_option(listed.map(|lists| json_list(&lists.value(at))));
                        times.append_value(started.value(at));
                        count += 1;
                    }
                }
                row += batch.num_rows() as u64;
                Ok(())
            })?;
        }
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let mut fields: Vec<Field> = LABELS.iter().map(|name| text(name)).collect();
        let mut columns: Vec<ArrayRef> = labels
            .iter_mut()
            .map(|label| Arc::new(label.finish()) as ArrayRef)
            .collect();
        fields.push(text("tags"));
        columns.push(Arc::new(tags.finish()));
        fields.push(Field::new("started_at", time, false));
        columns.push(Arc::new(times.finish()));
        for name in EMPTY {
            fields.push(text(name));
            columns.push(arrow::array::new_null_array(&DataType::Utf8, count));
        }
        let path = work.join("kept.parquet");
        write(&path, Schema::new(fields), columns).map_err(|e| RunError::write(&path, e))?;
        self.standing_in = Some(SourceFile {
            path,
            format: SourceFormat::Parquet,
            partition: Vec::new(),
            origins,
            rows: None,
        });
        Ok(())
    }
}

/// Rows of a file, each with the number of its trace.
struct Wanted {
    file: CarriedFile,
    rows: Vec<(u64, usize)>,
}

/// Whether a run was given signals, or carries rows of one that was.
fn was_given_signals(manifest: &serde_json::Value) -> bool {
    let carried = manifest["carried_requests"].as_array();
    let mut carried = carried.into_iter().flatten();
    !manifest["signals"].is_null()
        || carried.any(|request| !request["settings"]["signals"].is_null())
}

/// Whether the details of a trace say that a signal was given, and not kept from an earlier run.
fn is_given(details: &str, signal: &str) -> bool {
    let details: Option<serde_json::Value> = serde_json::from_str(details).ok();
    details.is_some_and(|details| {
        let of = &details[signal];
        of["note"] == "given" && of["kept_from"].is_null()
    })
}

fn write(path: &Path, schema: Schema, columns: Vec<ArrayRef>) -> Result<(), String> {
    let schema = Arc::new(schema);
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|e| e.to_string())?;
    let file = File::create(path).map_err(|e| e.to_string())?;
    let mut writer = ArrowWriter::try_new(file, schema, None).map_err(|e| e.to_string())?;
    writer.write(&rows).map_err(|e| e.to_string())?;
    writer.close().map_err(|e| e.to_string())?;
    Ok(())
}

/// A list of texts as JSON.
fn json_list(texts: &ArrayRef) -> String {
    let texts = texts.as_string_opt::<i32>();
    let texts: Vec<&str> = texts.into_iter().flatten().flatten().collect();
    serde_json::json!(texts).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_given() {
        let details = r#"{"coherence":{"note":"given"},"loop_detection":{"comparisons":[]}}"#;
        assert!(is_given(details, "coherence"));
        assert!(!is_given(details, "loop_detection"));
        let kept = r#"{"coherence":{"note":"given","kept_from":"n1"}}"#;
        assert!(!is_given(kept, "coherence"));
        assert!(!is_given("{}", "coherence"));
        assert!(!is_given("", "coherence"));
    }
}
