//! The labelled sessions of a run, and what the run says of each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};

use super::ValidationError;
use super::labels::{Labels, SessionName};
use crate::history::stored_table::{
    cell, for_each_batch, number, numbers_if_there, text, text_if_there, whole_number,
    whole_numbers,
};
use crate::metric::session_signal::{
    ATTENTION, SESSION_SIGNALS, SessionSignal, TRACES, WAREHOUSE_SIGNALS, Worse,
};
use crate::metric::{ALL, Level, Method};

/// Columns of `sessions` that sessions are sliced by, beside `tags`.
pub const SLICES: [&str; 4] = ["name", "environment", "release", "model"];

/// What a figure of sessions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What any tool could count, without looking at what was said: what scores have to beat.
    Baseline,
    /// The order of sessions, or a score of theirs.
    Session,
    /// A score of traces, folded.
    Trace,
    /// A signal of sessions.
    Signal,
}

/// A figure of each labelled session.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub name: String,
    pub kind: Kind,
    pub worse: Worse,
    /// NaN where a session has none.
    pub values: Vec<f64>,
}

impl Figure {
    /// How bad each session is by it; NaN where nothing is known.
    pub fn badness(&self) -> Vec<f64> {
        let sign = match self.worse {
            Worse::More => 1.0,
            Worse::Less => -1.0,
        };
        self.values.iter().map(|value| sign * value).collect()
    }
}

/// The labelled sessions of a run.
#[derive(Clone, Debug)]
pub(super) struct LabelledSessions {
    /// Of each session of the run, in the order of its table, the number among the labelled ones, which are in the order
    /// of their names: whatever the order of rows, the same samples are drawn.
    rows: Vec<Option<u32>>,
    by_name: HashMap<SessionName, u32>,
    pub is_bad: Vec<bool>,
    /// The cluster of each: its task, or itself.
    pub cluster_of: Vec<u32>,
    pub clusters: u32,
    /// The traces of each.
    pub lengths: Vec<u32>,
    /// By column, the values that slices are of, and the sessions with each.
    pub slices: BTreeMap<&'static str, BTreeMap<String, Vec<u32>>>,
    /// When each began, in microseconds since 1970.
    pub started: Vec<i64>,
}

impl LabelledSessions {
    /// Those of a run.
    pub fn of(run: &Path, labels: &Labels) -> Result<Self, ValidationError> {
        let mut found = Self {
            rows: Vec::new(),
            by_name: HashMap::new(),
            is_bad: Vec::new(),
            cluster_of: Vec::new(),
            clusters: 0,
            lengths: Vec::new(),
            slices: BTreeMap::new(),
            started: Vec::new(),
        };
        let mut tasks = HashMap::new();
        let mut seen: HashMap<String, Option<String>> = HashMap::new();
        let mut twice = None;
        let mut columns = vec![
            "session_id",
            "project_id",
            "traces",
            "first_started_at",
            "tags",
        ];
        columns.extend(SLICES);
        for_each_batch(run, "sessions", &columns, |batch| {
            let ids = text(batch, "session_id")?;
            let projects = text_if_there(batch, "project_id")?;
            let traces = whole_numbers(batch, "traces")?;
            let started = batch
                .column_by_name("first_started_at")
                .map(|column| arrow::compute::cast(column, &arrow::datatypes::DataType::Int64));
            let started = started.transpose().map_err(|e| e.to_string())?;
            let started = started
                .as_ref()
                .and_then(|column| column.as_primitive_opt());
            for row in 0..batch.num_rows() {
                let (id, project) = (ids.value(row), cell(&projects, row));
                let Some(label) = labels.of(project, id) else {
                    found.rows.push(None);
                    continue;
                };
                if !labels.has_projects
                    && let Some(other) = seen.insert(id.to_owned(), project.map(str::to_owned))
                    && other.as_deref() != project
                {
                    twice.get_or_insert_with(|| id.to_owned());
                }
                let unit = found.is_bad.len() as u32;
                found.rows.push(Some(unit));
                let name = (project.map(str::to_owned), id.to_owned());
                found.by_name.insert(name, unit);
                found.is_bad.push(label.is_bad);
                let next = found.clusters;
                let cluster = match &label.task {
                    // Tasks of two projects have nothing in common.
                    Some(task) => *tasks
                        .entry((project.map(str::to_owned), task.clone()))
                        .or_insert(next),
                    None => next,
                };
                found.clusters += u32::from(cluster == next);
                found.cluster_of.push(cluster);
                let length = whole_number(&traces, row).unwrap_or_default();
                found
                    .lengths
                    .push(u32::try_from(length).unwrap_or(u32::MAX));
                let began = |column: &arrow::array::Int64Array| column.value(row);
                found.started.push(started.map_or(0, began));
            }
            found.slice(batch)
        })?;
        match twice {
            Some(id) => Err(ValidationError::Refused(format!(
                "labels: the session `{id}` is there in two projects of `{}`, and the labels name no project; add a column \
                 project_id to them",
                run.display()
            ))),
            None => Ok(found.in_order_of_names()),
        }
    }

    fn in_order_of_names(self) -> Self {
        let mut names: Vec<(SessionName, u32)> = self.by_name.into_iter().collect();
        names.sort_unstable();
        let old: Vec<usize> = names.iter().map(|(_, unit)| *unit as usize).collect();
        let new: HashMap<u32, u32> = names.iter().map(|(_, unit)| *unit).zip(0..).collect();
        let of = |unit: u32| new.get(&unit).copied().unwrap_or_default();
        fn pick<T: Copy>(old: &[usize], values: &[T]) -> Vec<T> {
            old.iter()
                .filter_map(|at| values.get(*at).copied())
                .collect()
        }
        // Clusters are counted in the order in which they come, too.
        let mut clusters = HashMap::new();
        let cluster_of = pick(&old, &self.cluster_of);
        let cluster_of = cluster_of.into_iter().map(|cluster| {
            let next = clusters.len() as u32;
            *clusters.entry(cluster).or_insert(next)
        });
        Self {
            cluster_of: cluster_of.collect(),
            rows: self.rows.into_iter().map(|unit| unit.map(of)).collect(),
            is_bad: pick(&old, &self.is_bad),
            lengths: pick(&old, &self.lengths),
            started: pick(&old, &self.started),
            slices: self
                .slices
                .into_iter()
                .map(|(column, values)| {
                    let values = values.into_iter();
                    let values =
                        values.map(|(value, units)| (value, units.into_iter().map(of).collect()));
                    (column, values.collect())
                })
                .collect(),
            by_name: names.into_iter().map(|(name, _)| name).zip(0..).collect(),
            clusters: self.clusters,
        }
    }

    /// Those with this value of a column of slices.
    ///
    /// # Errors
    /// A message, if there is no such column or none has the value.
    pub fn only(self, column: &str, value: &str) -> Result<Self, String> {
        let of_column = self.slices.get(column);
        let Some(units) = of_column.and_then(|values| values.get(value)) else {
            return Err(format!(
                "no labelled session has `{value}` in `{column}`; slices are by {}",
                SLICES.join(", ")
            ));
        };
        let kept: BTreeSet<u32> = units.iter().copied().collect();
        let new: HashMap<u32, u32> = kept.iter().copied().zip(0..).collect();
        let of = |unit: &u32| new.get(unit).copied();
        let pick = |values: &[u32]| -> Vec<u32> {
            let all = values.iter().enumerate();
            all.filter(|(at, _)| kept.contains(&(*at as u32)))
                .map(|(_, value)| *value)
                .collect()
        };
        let is_kept = |at: usize| kept.contains(&(at as u32));
        let bad = self.is_bad.iter().enumerate();
        let started = self.started.iter().enumerate();
        Ok(Self {
            rows: self
                .rows
                .iter()
                .map(|unit| unit.as_ref().and_then(of))
                .collect(),
            by_name: self
                .by_name
                .iter()
                .filter_map(|(name, unit)| Some((name.clone(), of(unit)?)))
                .collect(),
            is_bad: bad
                .filter(|(at, _)| is_kept(*at))
                .map(|(_, bad)| *bad)
                .collect(),
            cluster_of: pick(&self.cluster_of),
            clusters: self.clusters,
            lengths: pick(&self.lengths),
            slices: BTreeMap::new(),
            started: started
                .filter(|(at, _)| is_kept(*at))
                .map(|(_, at)| *at)
                .collect(),
        })
    }

    /// Each session, and whether it is bad.
    pub fn named(&self) -> impl Iterator<Item = (&SessionName, bool)> {
        let all = self.by_name.iter();
        all.map(|(name, unit)| (name, self.is_bad.get(*unit as usize) == Some(&true)))
    }

    /// The row of each in the table of sessions.
    pub fn rows_of_units(&self) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        let mut rows: Vec<(u32, usize)> = rows
            .filter_map(|(row, unit)| Some(((*unit)?, row)))
            .collect();
        rows.sort_unstable();
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Notes which slices the sessions of a batch are in; its rows were noted last.
    fn slice(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let before = self.rows.len() - batch.num_rows();
        let units = self.rows.get(before..).unwrap_or_default().to_vec();
        for column in SLICES {
            let values = text_if_there(batch, column)?;
            for (row, unit) in units.iter().enumerate() {
                if let (Some(unit), Some(value)) = (unit, cell(&values, row)) {
                    let of_column = self.slices.entry(column).or_default();
                    of_column.entry(value.to_owned()).or_default().push(*unit);
                }
            }
        }
        let tags = batch.column_by_name("tags");
        let Some(tags) = tags.and_then(|column| column.as_list_opt::<i32>()) else {
            return Ok(());
        };
        for (row, unit) in units.iter().enumerate() {
            let Some(unit) = unit.filter(|_| tags.is_valid(row)) else {
                continue;
            };
            let of_row = tags.value(row);
            let of_row = of_row.as_string_opt::<i32>();
            let distinct: BTreeSet<&str> = of_row.into_iter().flatten().flatten().collect();
            for tag in distinct {
                let of_column = self.slices.entry("tag").or_default();
                of_column.entry(tag.to_owned()).or_default().push(unit);
            }
        }
        Ok(())
    }

    /// All that the run says of these sessions.
    pub fn figures(&self, run: &Path) -> Result<Vec<Figure>, ValidationError> {
        let baseline = |signal: &SessionSignal| BASELINES.contains(&signal.name);
        let kind = |signal: &SessionSignal| match baseline(signal) {
            true => Kind::Baseline,
            false => Kind::Signal,
        };
        let mut figures = vec![Figure {
            name: TRACES.name.to_owned(),
            kind: Kind::Baseline,
            worse: Worse::More,
            values: self
                .lengths
                .iter()
                .map(|length| f64::from(*length))
                .collect(),
        }];
        let mut of_sessions = vec![
            ("agent_reliability", Kind::Session, Worse::Less),
            ("agent_consistency", Kind::Session, Worse::Less),
        ];
        of_sessions.extend(SESSION_SIGNALS.iter().map(|s| (s.name, kind(s), s.worse)));
        figures.extend(self.columns(run, "sessions", &of_sessions)?);
        if run.join(ATTENTION).is_dir() {
            let mut of_order = vec![(ATTENTION, Kind::Session, Worse::More)];
            of_order.extend(WAREHOUSE_SIGNALS.iter().map(|s| (s.name, kind(s), s.worse)));
            figures.extend(self.columns(run, ATTENTION, &of_order)?);
        }
        if run.join(VERDICTS).is_dir() {
            figures.push(self.verdicts(run)?);
        }
        figures.extend(self.of_traces(run)?);
        figures.retain(|figure| figure.values.iter().any(|value| !value.is_nan()));
        figures.sort_by_key(|figure| figure.kind as u8);
        Ok(figures)
    }

    fn nowhere(&self) -> Vec<f64> {
        vec![f64::NAN; self.is_bad.len()]
    }

    /// Columns of a table that has a row a session, in the order of `sessions`.
    fn columns(
        &self,
        run: &Path,
        table: &str,
        wanted: &[(&str, Kind, Worse)],
    ) -> Result<Vec<Figure>, ValidationError> {
        let mut figures: Vec<Figure> = wanted
            .iter()
            .map(|(name, kind, worse)| Figure {
                name: (*name).to_owned(),
                kind: *kind,
                worse: *worse,
                values: self.nowhere(),
            })
            .collect();
        let names: Vec<&str> = wanted.iter().map(|(name, ..)| *name).collect();
        let mut at = 0;
        for_each_batch(run, table, &names, |batch| {
            for figure in &mut figures {
                let numbers = numbers_if_there(batch, &figure.name)?;
                for row in 0..batch.num_rows() {
                    let unit = self.rows.get(at + row).copied().flatten();
                    if let (Some(unit), Some(value)) = (unit, number(&numbers, row))
                        && let Some(slot) = figure.values.get_mut(unit as usize)
                    {
                        *slot = value;
                    }
                }
            }
            at += batch.num_rows();
            Ok(())
        })?;
        Ok(figures)
    }

    fn unit(&self, session: Option<&str>, project: Option<&str>) -> Option<usize> {
        let name = (project.map(str::to_owned), session?.to_owned());
        self.by_name.get(&name).map(|unit| *unit as usize)
    }

    /// What judges of conversations gave.
    fn verdicts(&self, run: &Path) -> Result<Figure, ValidationError> {
        let mut values = self.nowhere();
        let columns = ["session_id", "project_id", "overall_score"];
        for_each_batch(run, VERDICTS, &columns, |batch| {
            let ids = text(batch, "session_id")?;
            let projects = text_if_there(batch, "project_id")?;
            let scores = numbers_if_there(batch, "overall_score")?;
            for row in 0..batch.num_rows() {
                let unit = self.unit(cell(&ids, row), cell(&projects, row));
                if let (Some(unit), Some(score)) = (unit, number(&scores, row))
                    && let Some(slot) = values.get_mut(unit)
                {
                    *slot = score;
                }
            }
            Ok(())
        })?;
        Ok(Figure {
            name: "conversation".to_owned(),
            kind: Kind::Session,
            worse: Worse::Less,
            values,
        })
    }

    /// Scores of traces: of each the mean and the lowest of a session, of plain numbers the sum.
    fn of_traces(&self, run: &Path) -> Result<Vec<Figure>, ValidationError> {
        let metrics = ALL.iter().filter(|metric| metric.level == Level::Trace);
        let metrics: Vec<(&str, bool)> = metrics
            .map(|metric| (metric.name, metric.method == Method::Measure))
            .collect();
        let mut folds = vec![vec![Fold::default(); self.is_bad.len()]; metrics.len()];
        let mut columns = vec!["session_id", "project_id"];
        columns.extend(metrics.iter().map(|(name, _)| *name));
        for_each_batch(run, "traces", &columns, |batch| {
            let ids = text(batch, "session_id")?;
            let projects = text_if_there(batch, "project_id")?;
            let scores = metrics
                .iter()
                .map(|(name, _)| numbers_if_there(batch, name))
                .collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let Some(unit) = self.unit(cell(&ids, row), cell(&projects, row)) else {
                    continue;
                };
                for (fold, scores) in folds.iter_mut().zip(&scores) {
                    if let (Some(score), Some(fold)) = (number(scores, row), fold.get_mut(unit)) {
                        fold.add(score);
                    }
                }
            }
            Ok(())
        })?;
        let figure = |name: String, worse, values| Figure {
            name,
            kind: Kind::Trace,
            worse,
            values,
        };
        let mut figures = Vec::new();
        for ((name, is_measure), folds) in metrics.iter().zip(&folds) {
            let of = |value: fn(&Fold) -> f64| folds.iter().map(value).collect::<Vec<f64>>();
            if *is_measure {
                figures.push(figure(format!("{name}, sum"), Worse::More, of(Fold::sum)));
                continue;
            }
            figures.push(figure(format!("{name}, mean"), Worse::Less, of(Fold::mean)));
            figures.push(figure(
                format!("{name}, lowest"),
                Worse::Less,
                of(Fold::lowest),
            ));
        }
        Ok(figures)
    }
}

/// A column of numbers of a table, whole or not, of all its rows; NaN where there is none.
pub(super) fn whole_column(
    run: &Path,
    table: &str,
    column: &str,
) -> Result<Vec<f64>, ValidationError> {
    let mut values = Vec::new();
    for_each_batch(run, table, &[column], |batch| {
        let Some(found) = batch.column_by_name(column) else {
            // A projection of no column has no rows to count.
            return Ok(());
        };
        let floats = arrow::compute::cast(found, &arrow::datatypes::DataType::Float64);
        let floats = floats.map_err(|e| format!("column `{column}`: {e}"))?;
        let floats = floats.as_primitive::<arrow::datatypes::Float64Type>();
        values.extend(floats.iter().map(|value| value.unwrap_or(f64::NAN)));
        Ok(())
    })?;
    Ok(values)
}

/// What needs no look at what was said.
const BASELINES: [&str; 2] = ["tool_calls", "output_words"];

const VERDICTS: &str = "judge_verdicts";

/// Scores of the traces of a session.
#[derive(Clone, Copy, Debug, Default)]
struct Fold {
    count: u32,
    sum: f64,
    lowest: f64,
}

impl Fold {
    fn add(&mut self, score: f64) {
        self.lowest = if self.count == 0 {
            score
        } else {
            self.lowest.min(score)
        };
        self.count += 1;
        self.sum += score;
    }

    fn of(&self, value: f64) -> f64 {
        if self.count == 0 { f64::NAN } else { value }
    }

    fn mean(&self) -> f64 {
        self.of(self.sum / f64::from(self.count.max(1)))
    }

    fn sum(&self) -> f64 {
        self.of(self.sum)
    }

    fn lowest(&self) -> f64 {
        self.of(self.lowest)
    }
}
