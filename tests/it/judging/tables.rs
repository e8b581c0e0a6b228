//! Tables of runs, as tests look at them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use serde_json::Value;

use crate::support::read_parquet;

/// A table of a run.
pub(super) struct Table(RecordBatch);

impl Table {
    pub(super) fn of(run: &Path, name: &str) -> Self {
        Self(read_parquet(&run.join(name)))
    }

    #[track_caller]
    fn column(&self, name: &str, kind: &DataType) -> arrow::array::ArrayRef {
        let column = self.0.column_by_name(name);
        let column = column.unwrap_or_else(|| panic!("no column `{name}`"));
        arrow::compute::cast(column, kind).unwrap()
    }

    #[track_caller]
    pub(super) fn texts(&self, name: &str) -> Vec<Option<String>> {
        let column = self.column(name, &DataType::Utf8);
        let column = column.as_string::<i32>();
        column.iter().map(|text| text.map(str::to_owned)).collect()
    }

    #[track_caller]
    pub(super) fn numbers(&self, name: &str) -> Vec<Option<f64>> {
        let column = self.column(name, &DataType::Float64);
        column.as_primitive::<Float64Type>().iter().collect()
    }

    /// A column of lists of texts.
    #[track_caller]
    pub(super) fn lists(&self, name: &str) -> Vec<Option<Vec<String>>> {
        let column = self.0.column_by_name(name);
        let column = column.unwrap_or_else(|| panic!("no column `{name}`"));
        let texts = |list: arrow::array::ArrayRef| -> Vec<String> {
            let texts = list.as_string::<i32>().iter();
            texts.map(|text| text.unwrap().to_owned()).collect()
        };
        let lists = column.as_list::<i32>().iter();
        lists.map(|list| list.map(texts)).collect()
    }

    /// The names of all columns.
    pub(super) fn names(&self) -> Vec<String> {
        let schema = self.0.schema();
        let fields = schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    #[track_caller]
    pub(super) fn flags(&self, name: &str) -> Vec<Option<bool>> {
        let column = self.column(name, &DataType::Boolean);
        let column = column.as_boolean();
        (0..column.len())
            .map(|row| column.is_valid(row).then(|| column.value(row)))
            .collect()
    }
}

/// A row of the table `scores`.
#[derive(Clone, Debug)]
pub(super) struct Score {
    pub(super) status: String,
    pub(super) score: Option<f64>,
    pub(super) raw: Option<f64>,
    pub(super) threshold: Option<f64>,
    pub(super) passed: Option<bool>,
    pub(super) reason: String,
    pub(super) metadata: Value,
    pub(super) evaluated: Option<f64>,
    pub(super) model: Option<String>,
}

/// The table `scores` by target and metric, each pair once.
#[track_caller]
pub(super) fn scores(run: &Path) -> BTreeMap<(String, String), Score> {
    let table = Table::of(run, "scores");
    let [targets, metrics, statuses, reasons, metadata, models] = [
        "target_id",
        "metric",
        "status",
        "reason",
        "metadata",
        "model",
    ]
    .map(|name| table.texts(name));
    let [stored, raw, thresholds, evaluated] =
        ["score", "score_raw", "threshold", "evaluated_traces"].map(|name| table.numbers(name));
    let passed = table.flags("passed");
    let mut scores = BTreeMap::new();
    for row in 0..targets.len() {
        let key = (targets[row].clone().unwrap(), metrics[row].clone().unwrap());
        let score = Score {
            status: statuses[row].clone().unwrap(),
            score: stored[row],
            raw: raw[row],
            threshold: thresholds[row],
            passed: passed[row],
            reason: reasons[row].clone().unwrap(),
            metadata: serde_json::from_str(metadata[row].as_deref().unwrap()).unwrap(),
            evaluated: evaluated[row],
            model: models[row].clone(),
        };
        let before = scores.insert(key.clone(), score);
        assert!(before.is_none(), "{key:?} is scored twice");
    }
    scores
}

/// One row of the table `scores`.
#[track_caller]
pub(super) fn score(run: &Path, target: &str, metric: &str) -> Score {
    let key = (target.to_owned(), metric.to_owned());
    let found = scores(run).remove(&key);
    found.unwrap_or_else(|| panic!("no score of {key:?}"))
}

/// The targets that have a row of this metric, sorted.
#[track_caller]
pub(super) fn targets(run: &Path, metric: &str) -> Vec<String> {
    let with_metric = scores(run).into_keys().filter(|(_, name)| name == metric);
    with_metric.map(|(target, _)| target).collect()
}

fn tables_of(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = walkdir::WalkDir::new(run).sort_by_file_name();
    files
        .into_iter()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|e| e == "parquet"))
        .map(|path| {
            let name = path.strip_prefix(run).unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

/// The tables of two runs are equal byte for byte.
#[track_caller]
pub(super) fn assert_same_tables(a: &Path, b: &Path) {
    let (a, b) = (tables_of(a), tables_of(b));
    let names = |tables: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        tables.iter().map(|(name, _)| name.clone()).collect()
    };
    assert!(a.len() >= 3, "{:?}", names(&a));
    assert_eq!(names(&a), names(&b));
    for ((name, a), (_, b)) in a.iter().zip(&b) {
        assert!(a == b, "{} differs", name.display());
    }
}
