//! The scores of a run, one after the other, as far as they are chosen and have a value.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{BooleanArray, RecordBatch};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::ExportError;
use super::score::{Annotator, Level, Score, Scored, hash_of, hex_of, uuid_of};
use crate::history::StoredRun;
use crate::history::import_scores::IMPORT;
use crate::history::read_told;
use crate::history::stored_table::{
    cell, flag, flags, for_each_batch, number, numbers_if_there, text, text_if_there, whole_number,
    whole_numbers,
};
use crate::metric::Method;
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
    /// Whether its scores came from elsewhere, and are as they were given.
    imported: bool,
    /// The rules that it computed by.
    rules: Value,
}

impl RunFacts {
    /// What a run says of itself.
    pub fn of(run: &StoredRun) -> Result<Self, ExportError> {
        let (manifest, _) = read_told(&run.path)?;
        Ok(Self {
            name: run.name.clone(),
            created_at: run.created_at,
            imported: manifest["command"] == IMPORT,
            rules: manifest["rules"].clone(),
        })
    }

    /// The rules that a metric hangs on, beside its model. Neither where and when a run was made nor what else it computed
    /// makes another score of one.
    fn rules_of(&self, metric: &str) -> Value {
        let rules = &self.rules;
        match metric {
            _ if self.imported => Value::Null,
            "loop_detection" => rules["window"].clone(),
            // What an output says is read by the text mode; where a model has read it, the model's columns have it.
            "empty_output" | "stuck" => rules["text_mode"].clone(),
            _ if is_folded(metric) => json!([rules["weights"], rules["on_no_evaluable"]]),
            _ => Value::Null,
        }
    }
}

/// Whether a metric folds signals of traces.
fn is_folded(metric: &str) -> bool {
    crate::metric::find(metric).is_some_and(|metric| metric.method == Method::Aggregate)
}

/// The signals that a session's score was folded of, by the names of their risks in its details.
fn signals_of(details: &Value) -> BTreeSet<&str> {
    let traces = details["per_trace_signals"].as_object();
    let signals = traces.into_iter().flat_map(|traces| traces.values());
    let names = signals.filter_map(|signals| Some(signals.as_object()?.keys()));
    names.flatten().map(String::as_str).collect()
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
        let told = self.text("metadata", row).unwrap_or("{}");
        let details: Value = serde_json::from_str(told).unwrap_or(Value::Null);
        // What a person edited is still the score that was computed: it takes its place.
        let made_by = match (&model, &precision) {
            _ if facts.imported => annotator,
            (Some(_), None) => Annotator::Llm,
            _ => Annotator::Code,
        };
        let rules = facts.rules_of(&metric).to_string();
        // Signals are folded without the model that made them, by `aggregate` as by `score`.
        let folded = is_folded(&metric) && !facts.imported;
        let signals = json!(signals_of(&details)).to_string();
        let models = match folded {
            true => [Some(signals.as_str()), None, None],
            false => [model.as_deref(), precision.as_deref(), text_mode.as_deref()],
        };
        let hash = hash_of(
            [
                Some("nightmill score 2"),
                Some(rules.as_str()),
                Some(made_by.name()),
            ]
            .into_iter()
            .chain(models)
            .chain([
                Some(level.name()),
                project_id.as_deref(),
                Some(known_as.as_str()),
                Some(metric.as_str()),
            ]),
        );
        let threshold = number(&self.thresholds, row);
        let passed = self.passed.as_ref().and_then(|passed| flag(passed, row));
        let reason = self.owned("reason", row).unwrap_or_default();
        let environment = self.owned("environment", row);
        let evaluated_traces = whole_number(&self.evaluated, row);
        let numbers = json!([threshold, passed, evaluated_traces]).to_string();
        let digest = hash_of([
            Some(scored.data_type()),
            Some(scored.text().as_str()),
            Some(numbers.as_str()),
            Some(reason.as_str()),
            Some(told),
            Some(annotator.name()),
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
            details,
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
        imported: false,
        rules: json!({"window": 3, "text_mode": "content", "weights": {"coherence": 1.0}, "on_no_evaluable": "null"}),
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
        scores_of(&facts(), rows, numbers, "{}")
    }

    fn scores_of(
        facts: &RunFacts,
        rows: &[Row],
        numbers: &[Option<f64>],
        details: &str,
    ) -> Vec<Result<Option<Score>, String>> {
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
        let details: StringArray = rows.iter().map(|_| Some(details)).collect();
        columns.push(("metadata", Arc::new(details), true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let columns = Columns::of(&batch).unwrap();
        (0..rows.len())
            .map(|row| columns.score(row, columns.level(row)?, facts))
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

    /// The id of a score of a metric in a run of these rules.
    fn id_of(level: &'static str, metric: &'static str, rules: Value, details: &str) -> String {
        let mut row = row("a", "SUCCESS");
        (row[0], row[2]) = (Some(level), Some(metric));
        let facts = RunFacts {
            rules,
            ..tests_facts()
        };
        let mut found = scores_of(&facts, &[row], &[Some(0.5)], details);
        found.remove(0).unwrap().unwrap().id
    }

    #[test]
    fn an_id_hangs_on_the_rules_that_change_its_metric_alone() {
        let rules = |window: u32, text_mode: &str, weight: f64| {
            json!({"window": window, "text_mode": text_mode, "weights": {"coherence": weight},
                "on_no_evaluable": "null"})
        };
        let plain = rules(3, "content", 1.0);
        let others = [
            rules(5, "content", 1.0),
            rules(3, "compat", 1.0),
            rules(3, "content", 2.0),
        ];
        for (level, metric, changed_by) in [
            ("trace", "coherence", [false, false, false]),
            ("trace", "loop_detection", [true, false, false]),
            ("trace", "stuck", [false, true, false]),
            ("trace", "factuality", [false, false, false]),
            ("session", "agent_reliability", [false, false, true]),
            ("session", "conversation", [false, false, false]),
        ] {
            let id = id_of(level, metric, plain.clone(), "{}");
            let changed = others
                .clone()
                .map(|other| id_of(level, metric, other, "{}") != id);
            assert_eq!(changed, changed_by, "{metric}");
        }
    }

    #[test]
    fn a_sessions_id_hangs_on_its_signals_and_not_on_who_folds_them() {
        let folded = |details: &str, model: Option<&'static str>| {
            let mut row = row("s", "SUCCESS");
            (row[0], row[2]) = (Some("session"), Some("agent_reliability"));
            (row[6], row[7]) = (model, model);
            let mut found = scores_of(&tests_facts(), &[row], &[Some(0.5)], details);
            found.remove(0).unwrap().unwrap().id
        };
        let of = |risks: &str| format!("{{\"per_trace_signals\": {{\"t\": {risks}}}}}");
        let one = of(r#"{"loop_risk": 0.1}"#);
        assert_eq!(folded(&one, Some("mini")), folded(&one, None));
        assert_eq!(
            folded(&one, None),
            folded(&of(r#"{"loop_risk": 0.9}"#), None)
        );
        let two = of(r#"{"loop_risk": 0.1, "confidence_risk": 0.2}"#);
        assert_ne!(folded(&one, None), folded(&two, None));
    }

    #[test]
    fn an_edited_score_keeps_its_id_and_an_imported_one_is_of_its_maker() {
        let of = |imported: bool, source| {
            let mut row = row("a", "SUCCESS");
            row[4] = Some(source);
            let facts = RunFacts {
                imported,
                ..tests_facts()
            };
            let mut found = scores_of(&facts, &[row], &[Some(0.5)], "{}");
            found.remove(0).unwrap().unwrap()
        };
        let (made, edited) = (of(false, "AUTOMATED"), of(false, "ANNOTATION"));
        assert_eq!(made.id, edited.id);
        assert_eq!(edited.annotator, Annotator::Human);
        assert_ne!(of(true, "AUTOMATED").id, of(true, "ANNOTATION").id);
        assert_ne!(of(true, "ANNOTATION").id, edited.id);
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
