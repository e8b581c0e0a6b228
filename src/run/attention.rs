//! The table `attention`: which sessions of a run to look at first, and why. Made when all sessions are scored, since a
//! place says how unusual a session is among all of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, Int64Array, RecordBatch, StringArray, StringBuilder,
    UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::bucket::FACTS;
use crate::metric::attention::{Order, Part, Ranking};
use crate::metric::session_signal::{
    ATTENTION, Answers, LastSteps, SESSION_SIGNALS, SessionFacts, SessionSignal, TRACES,
    WAREHOUSE_SIGNALS, disagreement, unfinished,
};
use crate::output::table_writer::{Parts, TableWriter};
use crate::output::{RunDirectory, RunError};
use crate::summary::{AttentionPart, AttentionSession, AttentionSummary};
use crate::text::text_hash;

/// How many sessions the summary holds.
const FIRST: u32 = 10;

/// What signals count for.
#[derive(Clone, Debug, Default)]
pub(super) struct AttentionModel {
    /// The file it was learnt into; none where nothing was learnt.
    pub learnt: Option<String>,
    /// Weights by signal; those that are not named count for nothing. Only where it was learnt.
    pub weights: Vec<(String, f64)>,
}

impl AttentionModel {
    fn weight(&self, signal: &SessionSignal) -> f64 {
        let mut named = self.weights.iter();
        match self.learnt {
            None => signal.weight,
            Some(_) => named
                .find(|(name, _)| name == signal.name)
                .map_or(0.0, |(_, w)| *w),
        }
    }
}

/// Orders the sessions of a run by the signals that its tables hold, and writes the table `attention`, row for row as
/// `sessions`.
///
/// It needs about 100 bytes a session.
///
/// # Errors
/// If the tables can't be read back, or the table can't be written.
pub(super) fn order(
    run: &RunDirectory,
    model: &AttentionModel,
) -> Result<AttentionSummary, RunError> {
    let tables = Tables::of(run)?;
    let warehouse = tables.warehouse()?;
    let mut ranking = Ranking::of(warehouse.ties.len());
    let mut signals: Vec<&SessionSignal> = Vec::new();
    for signal in SESSION_SIGNALS.iter().chain([&TRACES]) {
        // What counts for nothing is not read.
        let weight = model.weight(signal);
        if weight != 0.0 {
            ranking.add(signal, weight, &tables.column(signal.name)?);
            signals.push(signal);
        }
    }
    let of_warehouse = [&warehouse.unfinished, &warehouse.disagreement];
    for (signal, values) in WAREHOUSE_SIGNALS.iter().zip(of_warehouse) {
        ranking.add(signal, model.weight(signal), values);
        signals.push(signal);
    }
    let order = ranking.finish(&warehouse.ties);
    let mut first = tables.write(run, &order, &signals, &warehouse)?;
    first.sort_by_key(|session| session.place);
    Ok(AttentionSummary {
        sessions: order.places.len() as u64,
        model: model
            .learnt
            .clone()
            .unwrap_or_else(|| "unsupervised".into()),
        first,
    })
}

/// What only all sessions together tell, of each in the order of the tables.
struct Warehouse {
    /// NaN where nobody can tell.
    unfinished: Vec<f64>,
    disagreement: Vec<f64>,
    /// A hash of each session's id.
    ties: Vec<u64>,
}

/// The files of `sessions`, and those of facts beside them.
struct Tables(Vec<(PathBuf, PathBuf)>);

fn unreadable(path: &Path, problem: impl ToString) -> RunError {
    RunError::Plan(format!(
        "`{}` can't be read back: {}",
        path.display(),
        problem.to_string()
    ))
}

/// Calls `each` with batches of these columns of a file.
fn each_batch(
    path: &Path,
    columns: &[&str],
    mut each: impl FnMut(&RecordBatch) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| unreadable(path, e))?;
    let mask = ProjectionMask::columns(reader.parquet_schema(), columns.iter().copied());
    let reader = reader.with_projection(mask).with_batch_size(8192).build();
    for batch in reader.map_err(|e| unreadable(path, e))? {
        each(&batch.map_err(|e| unreadable(path, e))?)?;
    }
    Ok(())
}

fn text<'b>(path: &Path, batch: &'b RecordBatch, name: &str) -> Result<&'b StringArray, RunError> {
    let column = batch.column_by_name(name).and_then(|c| c.as_string_opt());
    column.ok_or_else(|| unreadable(path, format!("no column {name}")))
}

fn cell(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

impl Tables {
    fn of(run: &RunDirectory) -> Result<Self, RunError> {
        let folder = run.path().join("sessions");
        let entries = std::fs::read_dir(&folder).map_err(|e| unreadable(&folder, e))?;
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = paths.filter(|path| Parts::of(path).is_some()).collect();
        paths.sort_unstable();
        let facts = run.work().join(FACTS);
        let beside = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default();
            (path.clone(), facts.join(name))
        };
        Ok(Self(paths.into_iter().map(beside).collect()))
    }

    /// Calls `each` with the facts of each session.
    fn each_session(&self, mut each: impl FnMut(SessionFacts)) -> Result<(), RunError> {
        for (_, path) in &self.0 {
            each_batch(path, &["session_facts"], |batch| {
                let cells = batch.column(0).as_binary::<i32>();
                for cell in cells {
                    let facts = SessionFacts::from_bytes(cell.unwrap_or_default());
                    each(facts.ok_or_else(|| unreadable(path, "no facts of a session"))?);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn warehouse(&self) -> Result<Warehouse, RunError> {
        // Sessions of two projects never begin alike.
        let (mut ties, mut projects) = (Vec::new(), Vec::new());
        for (path, _) in &self.0 {
            each_batch(path, &["session_id", "project_id"], |batch| {
                let ids = text(path, batch, "session_id")?;
                let of = text(path, batch, "project_id")?;
                for row in 0..batch.num_rows() {
                    let project = cell(of, row);
                    projects.push(project.map_or(0, text_hash));
                    let key = format!("{}\0{}", ids.value(row), project.unwrap_or("\0"));
                    ties.push(text_hash(&key));
                }
                Ok(())
            })?;
        }
        let in_project = |at: usize, mut facts: SessionFacts| {
            let project = projects.get(at).copied().unwrap_or_default();
            facts.first_input = facts.first_input.map(|input| input ^ project);
            facts
        };
        let (mut steps, mut answers) = (LastSteps::default(), Answers::default());
        let mut at = 0;
        self.each_session(|facts| {
            steps.see_end(&facts);
            answers.see(&in_project(at, facts));
            at += 1;
        })?;
        steps.end_of_first_round();
        self.each_session(|facts| steps.see_steps(&facts))?;
        let mut warehouse = Warehouse {
            unfinished: Vec::with_capacity(ties.len()),
            disagreement: Vec::with_capacity(ties.len()),
            ties,
        };
        let mut at = 0;
        self.each_session(|facts| {
            let last = unfinished(&facts, &steps).unwrap_or(f64::NAN);
            warehouse.unfinished.push(last);
            let other = disagreement(&in_project(at, facts), &answers);
            warehouse.disagreement.push(other.unwrap_or(f64::NAN));
            at += 1;
        })?;
        Ok(warehouse)
    }

    /// The values of a column of numbers, NaN where there is none.
    fn column(&self, name: &str) -> Result<Vec<f64>, RunError> {
        let mut values = Vec::new();
        for (path, _) in &self.0 {
            each_batch(path, &[name], |batch| {
                let column = batch.column_by_name(name);
                if let Some(numbers) = column.and_then(|c| c.as_primitive_opt::<Float64Type>()) {
                    values.extend(numbers.iter().map(|value| value.unwrap_or(f64::NAN)));
                    return Ok(());
                }
                let counts: Option<&Int64Array> =
                    column.and_then(|c| c.as_primitive_opt::<Int64Type>());
                let counts = counts.ok_or_else(|| unreadable(path, format!("no column {name}")))?;
                values.extend(counts.values().iter().map(|count| *count as f64));
                Ok(())
            })?;
        }
        Ok(values)
    }

    /// Writes the table; returns its first sessions.
    fn write(
        &self,
        run: &RunDirectory,
        order: &Order,
        signals: &[&SessionSignal],
        warehouse: &Warehouse,
    ) -> Result<Vec<AttentionSession>, RunError> {
        let mut first = Vec::new();
        let mut at = 0;
        let mut open: Option<(Parts, TableWriter)> = None;
        for (path, _) in &self.0 {
            let parts = Parts::of(path).unwrap_or_default();
            if open.as_ref().is_none_or(|(of, _)| *of != parts) {
                if let Some((_, table)) = open.take() {
                    table.finish()?;
                }
                let table = TableWriter::create_parts(run.path(), ATTENTION, schema(), parts)?;
                open = Some((parts, table));
            }
            each_batch(path, &["session_id", "project_id", "traces"], |batch| {
                let rows = Rows {
                    ids: text(path, batch, "session_id")?,
                    projects: text(path, batch, "project_id")?,
                    traces: batch
                        .column_by_name("traces")
                        .and_then(|c| c.as_primitive_opt()),
                };
                let made = rows.table(at, order, signals, warehouse, &mut first);
                at += batch.num_rows();
                match &mut open {
                    None => Ok(()),
                    Some((_, table)) => table.write(&made.map_err(|e| unreadable(path, e))?),
                }
            })?;
        }
        if let Some((_, table)) = open {
            table.finish()?;
        }
        Ok(first)
    }
}

/// Sessions of a batch.
struct Rows<'b> {
    ids: &'b StringArray,
    projects: &'b StringArray,
    traces: Option<&'b Int64Array>,
}

impl Rows<'_> {
    /// Rows of `attention`; sessions with the first places are noted too.
    fn table(
        &self,
        from: usize,
        order: &Order,
        signals: &[&SessionSignal],
        warehouse: &Warehouse,
        first: &mut Vec<AttentionSession>,
    ) -> Result<RecordBatch, arrow::error::ArrowError> {
        let mut columns = Columns::default();
        for row in 0..self.ids.len() {
            let at = from + row;
            let place = order.places.get(at).copied().unwrap_or_default();
            let attention = order.attention.get(at).copied().unwrap_or_default();
            let parts = order.parts.get(at).copied().unwrap_or_default();
            let parts = parts.map(|part| {
                let part: Part = part?;
                Some((part, *signals.get(usize::from(part.signal))?))
            });
            let found = parts.iter().flatten();
            let why: Vec<String> = found.map(|(part, signal)| part.why(signal)).collect();
            let why = match why.is_empty() {
                true => "nothing unusual".to_owned(),
                false => why.join("; "),
            };
            columns.places.append_value(u64::from(place));
            columns.attention.append_value(attention);
            for (builder, values) in [
                (&mut columns.unfinished, &warehouse.unfinished),
                (&mut columns.disagreement, &warehouse.disagreement),
            ] {
                let value = values.get(at).copied();
                builder.append_option(value.filter(|value| !value.is_nan()));
            }
            for (builders, part) in columns.parts.iter_mut().zip(parts) {
                builders
                    .0
                    .append_option(part.map(|(_, signal)| signal.name));
                builders.1.append_option(part.map(|(part, _)| part.value));
                builders.2.append_option(part.map(|(part, _)| part.above));
            }
            columns.why.append_value(&why);
            if place > 0 && place <= FIRST {
                let part = |(part, signal): &(Part, &SessionSignal)| AttentionPart {
                    signal: signal.name.to_owned(),
                    value: part.value,
                    rank: part.above,
                };
                first.push(AttentionSession {
                    session_id: self.ids.value(row).to_owned(),
                    project_id: cell(self.projects, row).map(str::to_owned),
                    place: place.into(),
                    attention,
                    traces: self.traces.map_or(0, |t| t.value(row).unsigned_abs()),
                    parts: parts.iter().flatten().map(part).collect(),
                    why,
                });
            }
        }
        columns.finish(self)
    }
}

#[derive(Default)]
struct Columns {
    places: UInt64Builder,
    attention: Float64Builder,
    unfinished: Float64Builder,
    disagreement: Float64Builder,
    parts: [(StringBuilder, Float64Builder, Float64Builder); 2],
    why: StringBuilder,
}

impl Columns {
    fn finish(mut self, rows: &Rows<'_>) -> Result<RecordBatch, arrow::error::ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(rows.ids.clone()),
            Arc::new(rows.projects.clone()),
            Arc::new(self.places.finish()),
            Arc::new(self.attention.finish()),
            Arc::new(self.unfinished.finish()),
            Arc::new(self.disagreement.finish()),
        ];
        for (signal, value, rank) in &mut self.parts {
            columns.push(Arc::new(signal.finish()));
            columns.push(Arc::new(value.finish()));
            columns.push(Arc::new(rank.finish()));
        }
        columns.push(Arc::new(self.why.finish()));
        RecordBatch::try_new(schema(), columns)
    }
}

fn schema() -> SchemaRef {
    let text = |name: &str, null| Field::new(name, DataType::Utf8, null);
    let number = |name: &str| Field::new(name, DataType::Float64, true);
    let mut fields = vec![
        text("session_id", false),
        text("project_id", true),
        Field::new("place", DataType::UInt64, false),
        Field::new("attention", DataType::Float64, false),
    ];
    fields.extend(WAREHOUSE_SIGNALS.iter().map(|signal| number(signal.name)));
    for nth in ["first", "second"] {
        fields.push(text(&format!("{nth}_signal"), true));
        fields.push(number(&format!("{nth}_value")));
        fields.push(number(&format!("{nth}_rank")));
    }
    fields.push(text("why", false));
    Arc::new(Schema::new(fields))
}
