//! The scores of a run, one after the other, as far as they are chosen and have a value.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{BooleanArray, RecordBatch};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::ExportError;
use super::score::{Annotator, Level, Score, Scored, hash_of, hex_of, uuid_of};
use crate::history::StoredRun;
use crate::history::read_told;
use crate::history::stored_table::{
    cell, flag, flags, for_each_batch, number, numbers_if_there, text, text_if_there, whole_number,
    whole_numbers,
};
use crate::output::score_rows::ANNOTATION;
use crate::trace::canonical_trace_id;

/// The columns of `scores` that are read.
const COLUMNS: [&str; 19] = [
    "target_type",
    "target_id",
    "session_id",
    "project_id",
    "metric",
    "status",
    "score",
    "value",
    "threshold",
    "passed",
    "reason",
    "metadata",
    "evaluated_traces",
    "data_type",
    "source",
    "environment",
    "model",
    "precision",
    "text_mode",
];

/// Which scores of a run are exported.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Of these metrics; none is all.
    pub metrics: Vec<String>,
    /// Of traces or sessions; none is both.
    pub level: Option<Level>,
}

impl Chosen {
    fn takes(&self, level: Level, metric: &str) -> bool {
        self.level.is_none_or(|wanted| wanted == level)
            && (self.metrics.is_empty() || self.metrics.iter().any(|wanted| wanted == metric))
    }
}

/// What all scores of a run have in common.
pub(super) struct RunFacts {
    /// The name of its directory.
    pub name: String,
    /// When it was finished.
    pub created_at: DateTime<Utc>,
    /// What a score of a trace hangs on, beside its model.
    trace_rules: String,
    /// The same of a session.
    session_rules: String,
}

impl RunFacts {
    /// What a run says of itself.
    pub fn of(run: &StoredRun) -> Result<Self, ExportError> {
        let (manifest, _) = read_told(&run.path)?;
        let rules = &manifest["rules"];
        // Neither where and when a run was made nor what else it computed makes another score of one.
        let trace_rules = json!([rules["window"], rules["text_mode"]]);
        let session_rules = json!([trace_rules, rules["weights"], rules["on_no_evaluable"]]);
        Ok(Self {
            name: run.name.clone(),
            created_at: run.created_at,
            trace_rules: trace_rules.to_string(),
            session_rules: session_rules.to_string(),
        })
    }

    fn rules(&self, level: Level) -> &str {
        match level {
            Level::Trace => &self.trace_rules,
            Level::Session => &self.session_rules,
        }
    }
}

/// Rows that have no value, by status.
pub(super) type WithoutScore = BTreeMap<String, u64>;

/// Hands the chosen scores of a run on, in their order, and counts the rows that are none. What `each` meets ends the
/// reading.
pub(super) fn for_each_score(
    run: &StoredRun,
    facts: &RunFacts,
    chosen: &Chosen,
    mut each: impl FnMut(Score) -> Result<(), ExportError>,
) -> Result<WithoutScore, ExportError> {
    check_metrics(run, chosen)?;
    let mut without = WithoutScore::new();
    let mut stopped = None;
    let read = for_each_batch(&run.path, "scores", &COLUMNS, |batch| {
        let columns = Columns::of(batch)?;
        for row in 0..batch.num_rows() {
            let (level, metric) = (
                columns.level(row)?,
                columns.text("metric", row).unwrap_or(""),
            );
            if !chosen.takes(level, metric) {
                continue;
            }
            match columns.score(row, level, facts)? {
                Some(score) => {
                    if let Err(error) = each(score) {
                        stopped = Some(error);
                        return Err("stopped".into());
                    }
                }
                None => {
                    let status = columns.text("status", row).unwrap_or("null");
                    *without.entry(status.to_owned()).or_default() += 1;
                }
            }
        }
        Ok(())
    });
    match stopped {
        Some(error) => Err(error),
        None => read.map(|()| without).map_err(ExportError::from),
    }
}

/// A metric that the run has no row of is more likely misspelt than meant.
fn check_metrics(run: &StoredRun, chosen: &Chosen) -> Result<(), ExportError> {
    if chosen.metrics.is_empty() {
        return Ok(());
    }
    let mut found = BTreeSet::new();
    for_each_batch(&run.path, "scores", &["target_type", "metric"], |batch| {
        let (targets, metrics) = (text(batch, "target_type")?, text(batch, "metric")?);
        for row in 0..batch.num_rows() {
            let of_level = chosen
                .level
                .is_none_or(|level| cell(&targets, row) == Some(level.name()));
            match cell(&metrics, row).filter(|_| of_level) {
                Some(metric) if !found.contains(metric) => {
                    found.insert(metric.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    match chosen
        .metrics
        .iter()
        .find(|metric| !found.contains(*metric))
    {
        None => Ok(()),
        Some(missing) => Err(ExportError::Request(format!(
            "--metrics {missing}: the run `{}` has no such score{}; it has {}",
            run.name,
            match chosen.level {
                Some(level) => format!(" of a {}", level.name()),
                None => String::new(),
            },
            found.into_iter().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The columns of a batch.
struct Columns {
    texts: BTreeMap<&'static str, arrow::array::StringArray>,
    scores: arrow::array::Float64Array,
    thresholds: arrow::array::Float64Array,
    passed: Option<BooleanArray>,
    evaluated: arrow::array::Int64Array,
}

impl Columns {
    fn of(batch: &RecordBatch) -> Result<Self, String> {
        const NUMBERS: [&str; 4] = ["score", "threshold", "passed", "evaluated_traces"];
        const REQUIRED: [&str; 5] = ["target_type", "target_id", "metric", "status", "source"];
        let mut texts = BTreeMap::new();
        for name in COLUMNS.into_iter().filter(|name| !NUMBERS.contains(name)) {
            let column = match REQUIRED.contains(&name) {
                true => text(batch, name)?,
                false => text_if_there(batch, name)?,
            };
            texts.insert(name, column);
        }
        let passed = batch.column_by_name("passed");
        Ok(Self {
            texts,
            scores: numbers_if_there(batch, "score")?,
            thresholds: numbers_if_there(batch, "threshold")?,
            passed: passed.map(|_| flags(batch, "passed")).transpose()?,
            evaluated: whole_numbers(batch, "evaluated_traces")?,
        })
    }

    fn text(&self, name: &str, row: usize) -> Option<&str> {
        cell(self.texts.get(name)?, row)
    }

    fn owned(&self, name: &str, row: usize) -> Option<String> {
        self.text(name, row).map(str::to_owned)
    }

    fn level(&self, row: usize) -> Result<Level, String> {
        match self.text("target_type", row) {
            Some("trace") => Ok(Level::Trace),
            Some("session") => Ok(Level::Session),
            other => Err(format!("`{}` is no target type", other.unwrap_or("null"))),
        }
    }

    fn scored(&self, row: usize) -> Result<Option<Scored>, String> {
        if self.text("status", row) != Some("SUCCESS") {
            return Ok(None);
        }
        let (number, value) = (number(&self.scores, row), self.text("value", row));
        Ok(match self.text("data_type", row) {
            None | Some("NUMERIC") => number.filter(|n| n.is_finite()).map(Scored::Number),
            Some("CATEGORICAL") => value.map(|word| Scored::Word(word.to_owned())),
            Some("BOOLEAN") => match (number, value) {
                (Some(number), _) => Some(Scored::Flag(number != 0.0)),
                (None, Some(word)) if word.eq_ignore_ascii_case("true") => Some(Scored::Flag(true)),
                (None, Some(word)) if word.eq_ignore_ascii_case("false") => {
                    Some(Scored::Flag(false))
                }
                (None, Some(other)) => return Err(format!("`{other}` is neither true nor false")),
                (None, None) => None,
            },
            Some(other) => return Err(format!("`{other}` is no data type")),
        })
    }

    /// The score of a row; none if it has no value.
    fn score(&self, row: usize, level: Level, facts: &RunFacts) -> Result<Option<Score>, String> {
        let Some(scored) = self.scored(row)? else {
            return Ok(None);
        };
        let target_id = self.owned("target_id", row).unwrap_or_default();
        let metric = self.owned("metric", row).unwrap_or_default();
        let (model, precision) = (self.owned("model", row), self.owned("precision", row));
        let text_mode = self.owned("text_mode", row);
        let source = self.text("source", row).unwrap_or_default();
        // A judge has no precision; an embedding model always has one.
        let annotator = match (source, &model, &precision) {
            (ANNOTATION, _, _) => Annotator::Human,
            (_, Some(_), None) => Annotator::Llm,
            _ => Annotator::Code,
        };
        // The same trace under another spelling is the same target.
        let known_as = match level {
            Level::Trace => canonical_trace_id(&target_id),
            Level::Session => None,
        };
        let known_as = known_as.unwrap_or_else(|| target_id.clone());
        let project_id = self.owned("project_id", row);
        let hash = hash_of([
            Some("nightmill score 1"),
            Some(facts.rules(level)),
            Some(annotator.name()),
            model.as_deref(),
            precision.as_deref(),
            text_mode.as_deref(),
            Some(level.name()),
            project_id.as_deref(),
            Some(known_as.as_str()),
            Some(metric.as_str()),
        ]);
        let threshold = number(&self.thresholds, row);
        let passed = self.passed.as_ref().and_then(|passed| flag(passed, row));
        let reason = self.owned("reason", row).unwrap_or_default();
        let told = self.text("metadata", row).unwrap_or("{}");
        let environment = self.owned("environment", row);
        let evaluated_traces = whole_number(&self.evaluated, row);
        let numbers = json!([threshold, passed, evaluated_traces]).to_string();
        let digest = hash_of([
            Some(scored.data_type()),
            Some(scored.text().as_str()),
            Some(numbers.as_str()),
            Some(reason.as_str()),
            Some(told),
            environment.as_deref(),
        ]);
        Ok(Some(Score {
            id: uuid_of(hash),
            digest: hex_of(&digest),
            level,
            target_id,
            session_id: self.owned("session_id", row),
            project_id,
            metric,
            scored,
            threshold,
            passed,
            reason,
            details: serde_json::from_str(told).unwrap_or(Value::Null),
            evaluated_traces,
            environment,
            annotator,
            model,
            precision,
            text_mode,
        }))
    }
}

#[cfg(test)]
pub(super) fn tests_facts() -> RunFacts {
    RunFacts {
        name: "run".into(),
        created_at: DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(1_767_225_600),
        trace_rules: "[3]".into(),
        session_rules: "[[3],1]".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, StringArray};

    use super::*;

    fn facts() -> RunFacts {
        tests_facts()
    }

    type Row = [Option<&'static str>; 8];

    fn scores(rows: &[Row], numbers: &[Option<f64>]) -> Vec<Result<Option<Score>, String>> {
        let names = [
            "target_type",
            "target_id",
            "metric",
            "status",
            "source",
            "data_type",
            "model",
            "precision",
        ];
        let mut columns: Vec<(&str, ArrayRef, bool)> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let column: StringArray = rows.iter().map(|row| row[at]).collect();
                (*name, Arc::new(column) as ArrayRef, true)
            })
            .collect();
        columns.push((
            "score",
            Arc::new(Float64Array::from(numbers.to_vec())),
            true,
        ));
        let values: StringArray = rows.iter().map(|_| Some("True")).collect();
        columns.push(("value", Arc::new(values), true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let columns = Columns::of(&batch).unwrap();
        (0..rows.len())
            .map(|row| columns.score(row, columns.level(row)?, &facts()))
            .collect()
    }

    const fn row(id: &'static str, status: &'static str) -> Row {
        [
            Some("trace"),
            Some(id),
            Some("coherence"),
            Some(status),
            Some("AUTOMATED"),
            Some("NUMERIC"),
            Some("mini"),
            Some("int8"),
        ]
    }

    #[test]
    fn an_id_is_of_the_target_whatever_its_spelling_and_of_nothing_that_changes() {
        let plain = row("80f198ee56343ba864fe8b2a57d3eff7", "SUCCESS");
        let dashed = row("80f198ee-5634-3ba8-64fe-8b2a57d3eff7", "SUCCESS");
        let other = row("90f198ee-5634-3ba8-64fe-8b2a57d3eff7", "SUCCESS");
        let found = scores(
            &[plain, dashed, other, plain],
            &[Some(0.5), Some(0.5), Some(0.5), Some(0.25)],
        );
        let found: Vec<Score> = found.into_iter().map(|s| s.unwrap().unwrap()).collect();
        assert_eq!(found[0].id, found[1].id);
        assert_eq!(found[1].target_id, "80f198ee-5634-3ba8-64fe-8b2a57d3eff7");
        assert_ne!(found[0].id, found[2].id);
        // The score changed: the same id, and something new to say.
        assert_eq!(found[0].id, found[3].id);
        assert_eq!(found[0].digest, found[1].digest);
        assert_ne!(found[0].digest, found[3].digest);
    }

    #[test]
    fn a_row_without_a_value_is_no_score() {
        let rows = [
            row("a", "FAILED"),
            row("a", "NO_EVIDENCE"),
            row("a", "SUCCESS"),
            row("a", "SUCCESS"),
        ];
        let found = scores(&rows, &[Some(0.0), None, None, Some(f64::NAN)]);
        assert!(found.into_iter().all(|score| score.unwrap().is_none()));
    }

    #[test]
    fn who_made_a_score_is_told_by_source_and_model() {
        let with = |source, model, precision| {
            let mut row = row("a", "SUCCESS");
            (row[4], row[6], row[7]) = (Some(source), model, precision);
            row
        };
        let rows = [
            with("AUTOMATED", Some("mini"), Some("int8")),
            with("AUTOMATED", Some("openai/gpt-4o"), None),
            with("AUTOMATED", None, None),
            with("ANNOTATION", Some("openai/gpt-4o"), None),
        ];
        let kinds: Vec<&str> = scores(&rows, &[Some(1.0); 4])
            .into_iter()
            .map(|score| score.unwrap().unwrap().annotator.name())
            .collect();
        assert_eq!(kinds, ["CODE", "LLM", "CODE", "HUMAN"]);
    }

    #[test]
    fn values_are_of_their_type() {
        let of_type = |data_type| {
            let mut row = row("a", "SUCCESS");
            row[5] = Some(data_type);
            row
        };
        let rows = [
            of_type("BOOLEAN"),
            of_type("BOOLEAN"),
            of_type("CATEGORICAL"),
            of_type("COLOUR"),
        ];
        let mut found = scores(&rows, &[Some(0.0), None, None, None]).into_iter();
        let mut next = || found.next().unwrap().map(|score| score.unwrap().scored);
        assert_eq!(next(), Ok(Scored::Flag(false)));
        assert_eq!(next(), Ok(Scored::Flag(true)));
        assert_eq!(next(), Ok(Scored::Word("True".into())));
        assert!(next().unwrap_err().contains("COLOUR"));
    }
}
