//! Run directories written by hand, so that a test knows every number in them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::UInt64Type;
use serde_json::{Value, json};

use crate::support::{read_parquet, write_parquet};

/// A session of a run.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: String,
    pub reliability: f64,
    /// The run that saw it first, and how many rows it has had.
    pub first_run: Option<String>,
    pub revision: u32,
    /// Trace ids, hours since the first of January 2026, and coherence; NaN where a text is empty.
    pub traces: Vec<(String, i64, f64)>,
}

impl Session {
    pub fn new(id: &str, reliability: f64, traces: &[(&str, i64, f64)]) -> Self {
        let traces = traces
            .iter()
            .map(|(id, at, score)| ((*id).to_owned(), *at, *score));
        Self {
            id: id.into(),
            reliability,
            first_run: None,
            revision: 1,
            traces: traces.collect(),
        }
    }

    /// The same as a row that replaces others.
    pub fn again(self, first_run: &str, revision: u32) -> Self {
        Self {
            first_run: Some(first_run.into()),
            revision,
            ..self
        }
    }
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct HandMade {
    pub name: String,
    /// The hour of its manifest.
    pub hour: i64,
    /// The run that it goes on from.
    pub continues: Option<String>,
    pub night: u64,
    pub sessions: Vec<Session>,
    /// Traces without session: id, hour, coherence.
    pub lone: Vec<(String, i64, f64)>,
    /// Session or trace, and the run that held it.
    pub replaced: Vec<(Option<String>, Option<String>, String)>,
    pub quarantined: u64,
    pub model: Option<String>,
}

fn text<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(cells.collect::<StringArray>())
}

fn hours(hours: impl Iterator<Item = i64>) -> ArrayRef {
    const FIRST: i64 = 1_767_225_600;
    let times: TimestampMicrosecondArray = hours
        .map(|hour| Some((FIRST + hour * 3600) * 1_000_000))
        .collect();
    Arc::new(times.with_timezone("UTC"))
}

fn table(run: &Path, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let folder = run.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    write_parquet(&folder.join("part-00000.parquet"), &[batch], 1000);
}

/// When the traces of a run and of those before it were new.
fn first_nights(folder: &Path, run: &str) -> HashMap<String, u64> {
    let run = folder.join(run);
    let Ok(told) = std::fs::read(run.join("manifest.json")) else {
        return HashMap::new();
    };
    let told: Value = serde_json::from_slice(&told).unwrap();
    let before = told["continues"]["run"].as_str();
    let mut nights = before.map_or_else(HashMap::new, |before| first_nights(folder, before));
    let carried = read_parquet(&run.join("carried"));
    let ids = carried["trace_id"].as_string::<i32>().iter();
    let own = carried["night"].as_primitive::<UInt64Type>().iter();
    for (id, night) in ids.zip(own) {
        let first = nights.entry(id.unwrap().to_owned());
        first.or_insert(night.unwrap());
    }
    nights
}

impl HandMade {
    pub fn new(name: &str, hour: i64) -> Self {
        Self {
            name: name.into(),
            hour,
            night: 1,
            ..Self::default()
        }
    }

    /// Writes the run into a folder. Sessions count as bad below 0.5, traces too.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let run = folder.join(&self.name);
        std::fs::create_dir_all(&run).unwrap();
        let day = 1 + self.hour / 24;
        let created_at = format!("2026-01-{day:02}T{:02}:00:00Z", self.hour % 24);
        let model = self.model.as_deref().unwrap_or("mini");
        let mut manifest = json!({
            "nightmill": "0.1.0", "command": "score", "created_at": created_at, "identity": format!("id-{}", self.name),
            "model": {"name": model, "precision": "f32"},
            "rules": {"metrics": ["coherence", "agent_reliability"], "text_mode": "compat", "window": 3},
        });
        if let Some(before) = &self.continues {
            let path = folder.join(before);
            manifest["continues"] = json!({"run": before, "path": path, "id": format!("id-{before}"), "night": self.night});
        }
        let traces = self.rows();
        let summary = json!({
            "rows_read": traces.len() as u64 + self.quarantined, "traces": traces.len(), "sessions": self.sessions.len(),
            "quarantined": self.quarantined, "unreadable_files": 0, "failed_signals": 0,
        });
        let write =
            |name: &str, value: &Value| std::fs::write(run.join(name), value.to_string()).unwrap();
        write("manifest.json", &manifest);
        write("summary.json", &summary);
        self.write_tables(&run, &traces, model);
        let before = self.continues.as_deref();
        let known = before.map_or_else(HashMap::new, |before| first_nights(folder, before));
        let night = |row: &(_, &str, _, _)| Some(known.get(row.1).copied().unwrap_or(self.night));
        let nights: UInt64Array = traces.iter().map(night).collect();
        table(
            &run,
            "carried",
            vec![
                ("trace_id", text(traces.iter().map(|row| Some(row.1)))),
                ("session_id", text(traces.iter().map(|row| row.0))),
                ("project_id", text(traces.iter().map(|_| None))),
                ("night", Arc::new(nights)),
            ],
        );
        run
    }

    /// All traces: session, id, hour, coherence.
    fn rows(&self) -> Vec<(Option<&str>, &str, i64, f64)> {
        let of_sessions = self.sessions.iter().flat_map(|session| {
            let traces = session.traces.iter();
            traces.map(|(id, at, score)| (Some(session.id.as_str()), id.as_str(), *at, *score))
        });
        let lone = self.lone.iter();
        of_sessions
            .chain(lone.map(|(id, at, score)| (None, id.as_str(), *at, *score)))
            .collect()
    }

    fn write_tables(&self, run: &Path, traces: &[(Option<&str>, &str, i64, f64)], model: &str) {
        let name = |at: i64| if at % 2 == 0 { "chat" } else { "search" };
        let score = |score: f64| if score.is_nan() { 1.0 } else { score };
        let numbers = |of: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(of)) };
        table(
            run,
            "traces",
            vec![
                ("trace_id", text(traces.iter().map(|row| Some(row.1)))),
                ("session_id", text(traces.iter().map(|row| row.0))),
                ("project_id", text(traces.iter().map(|_| None))),
                ("started_at", hours(traces.iter().map(|row| row.2))),
                ("name", text(traces.iter().map(|row| Some(name(row.2))))),
                (
                    "environment",
                    text(traces.iter().map(|_| Some("production"))),
                ),
                (
                    "coherence",
                    numbers(traces.iter().map(|row| score(row.3)).collect()),
                ),
            ],
        );
        let of = &self.sessions;
        table(
            run,
            "sessions",
            vec![
                ("session_id", text(of.iter().map(|s| Some(s.id.as_str())))),
                ("project_id", text(of.iter().map(|_| None))),
                (
                    "traces",
                    Arc::new(
                        of.iter()
                            .map(|s| Some(s.traces.len() as i64))
                            .collect::<Int64Array>(),
                    ),
                ),
                (
                    "first_started_at",
                    hours(
                        of.iter()
                            .map(|s| s.traces.iter().map(|t| t.1).min().unwrap()),
                    ),
                ),
                (
                    "last_started_at",
                    hours(
                        of.iter()
                            .map(|s| s.traces.iter().map(|t| t.1).max().unwrap()),
                    ),
                ),
                (
                    "agent_reliability",
                    numbers(of.iter().map(|s| s.reliability).collect()),
                ),
                (
                    "first_run",
                    text(
                        of.iter()
                            .map(|s| Some(s.first_run.as_deref().unwrap_or(&self.name))),
                    ),
                ),
                (
                    "revision",
                    Arc::new(of.iter().map(|s| Some(s.revision)).collect::<UInt32Array>()),
                ),
            ],
        );
        self.write_scores(run, traces, model);
        if self.continues.is_some() {
            let of = &self.replaced;
            table(
                run,
                "replaced",
                vec![
                    ("session_id", text(of.iter().map(|r| r.0.as_deref()))),
                    ("project_id", text(of.iter().map(|_| None))),
                    ("trace_id", text(of.iter().map(|r| r.1.as_deref()))),
                    ("run", text(of.iter().map(|r| Some(r.2.as_str())))),
                ],
            );
        }
    }

    fn write_scores(&self, run: &Path, traces: &[(Option<&str>, &str, i64, f64)], model: &str) {
        struct Row<'a>(&'static str, &'a str, Option<&'a str>, &'static str, f64);
        let of_traces = traces
            .iter()
            .map(|(session, id, _, score)| Row("trace", id, *session, "coherence", *score));
        let of_sessions = self.sessions.iter().map(|session| {
            let id = session.id.as_str();
            Row(
                "session",
                id,
                Some(id),
                "agent_reliability",
                session.reliability,
            )
        });
        let rows: Vec<Row<'_>> = of_traces.chain(of_sessions).collect();
        let same = |word: &'static str| text(rows.iter().map(|_| Some(word)));
        let value = |row: &Row<'_>| if row.4.is_nan() { 1.0 } else { row.4 };
        let values: Vec<String> = rows.iter().map(|row| value(row).to_string()).collect();
        let passed: BooleanArray = rows
            .iter()
            .map(|row| (!row.4.is_nan()).then_some(row.4 >= 0.5))
            .collect();
        table(
            run,
            "scores",
            vec![
                ("target_type", text(rows.iter().map(|row| Some(row.0)))),
                ("target_id", text(rows.iter().map(|row| Some(row.1)))),
                ("session_id", text(rows.iter().map(|row| row.2))),
                ("project_id", text(rows.iter().map(|_| None))),
                ("metric", text(rows.iter().map(|row| Some(row.3)))),
                ("status", same("SUCCESS")),
                (
                    "score",
                    Arc::new(
                        rows.iter()
                            .map(|row| Some(value(row)))
                            .collect::<Float64Array>(),
                    ),
                ),
                (
                    "value",
                    text(values.iter().map(|value| Some(value.as_str()))),
                ),
                ("passed", Arc::new(passed)),
                ("data_type", same("NUMERIC")),
                ("source", same("AUTOMATED")),
                ("environment", same("production")),
                ("model", text(rows.iter().map(|_| Some(model)))),
                ("precision", same("f32")),
                ("text_mode", same("compat")),
            ],
        );
    }
}

/// Three nights: `a` goes on in the second and third and gets worse, `b` recovers, `c` comes in the second night and goes
/// on, `d` stays as it was; the lone trace `x` is told again in the third.
pub fn three_nights(folder: &Path) -> [PathBuf; 3] {
    let taken = |id: &str, run: &str| (Some(id.to_owned()), None, run.to_owned());
    let first = HandMade {
        sessions: vec![
            Session::new("a", 0.9, &[("a1", 1, 0.9)]),
            Session::new("b", 0.25, &[("b1", 2, 0.25), ("b2", 3, 0.75)]),
            Session::new("d", 0.75, &[("d1", 4, 0.75)]),
        ],
        lone: vec![("x".into(), 5, 0.5), ("y".into(), 5, 0.75)],
        ..HandMade::new("night-1", 6)
    };
    let second = HandMade {
        continues: Some("night-1".into()),
        night: 2,
        sessions: vec![
            Session::new("a", 0.75, &[("a1", 1, 0.9), ("a2", 25, 0.75)]).again("night-1", 2),
            Session::new("c", 0.25, &[("c1", 26, 0.25)]),
        ],
        replaced: vec![taken("a", "night-1")],
        ..HandMade::new("night-2", 30)
    };
    let third = HandMade {
        continues: Some("night-2".into()),
        night: 3,
        sessions: vec![
            Session::new(
                "a",
                0.25,
                &[("a1", 1, 0.9), ("a2", 25, 0.75), ("a3", 49, 0.25)],
            )
            .again("night-1", 3),
            Session::new(
                "b",
                0.75,
                &[("b1", 2, 0.25), ("b2", 3, 0.75), ("b3", 50, 0.9)],
            )
            .again("night-1", 2),
            Session::new("c", 0.2, &[("c1", 26, 0.25), ("c2", 51, 0.2)]).again("night-2", 2),
        ],
        lone: vec![("x".into(), 5, 0.6)],
        replaced: vec![
            taken("a", "night-2"),
            taken("b", "night-1"),
            taken("c", "night-2"),
            (None, Some("x".into()), "night-1".into()),
        ],
        ..HandMade::new("night-3", 54)
    };
    [first, second, third].map(|run| run.write(folder))
}
