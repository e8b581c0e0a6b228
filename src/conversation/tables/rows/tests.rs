//! Tests of the tables, through files.

use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int32Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::conversation::judged::Recorded;
use crate::conversation::{
    CaseLatency, Catalogue, ConversationJudge, Difficulty, JudgeConfig, JudgeError, Label,
    MetricScore, OutcomeResult, RunBars, Tier,
};
use crate::metric::SignalWeights;
use crate::output::Status;
use crate::text::TextMode;
use crate::trace::SessionKey;

fn rules() -> Rules {
    Rules {
        metrics: vec![CONVERSATION.into()],
        thresholds: Default::default(),
        window: 3,
        weights: SignalWeights::default(),
        text_mode: TextMode::Compat,
        null_without_evidence: false,
        gates: Vec::new(),
    }
}

fn request() -> ConversationRequest {
    ConversationRequest {
        judge: ConversationJudge::new(JudgeConfig::default(), &Catalogue::built_in()).unwrap(),
        bars: RunBars::default(),
        model: "openai/judge".into(),
        temperature: crate::judge::Temperature::Usual(0.2),
        max_output_tokens: 4096,
        rounds: 1,
        anew: false,
    }
}

fn judged(session_id: &str, status: Status, verdict: Option<Verdict>) -> JudgedConversation {
    JudgedConversation {
        key: SessionKey {
            project_id: None,
            session_id: session_id.into(),
        },
        test_case: session_id.into(),
        repetition_index: 0,
        traces: Some(2),
        recorded: Recorded::default(),
        turns: 4,
        latency: CaseLatency::default(),
        total_latency_ms: Some(30),
        status,
        verdict,
        reason: "r".into(),
        request_hash: None,
        answer: None,
    }
}

fn verdict() -> Verdict {
    let score = MetricScore {
        metric: "tool_routing".into(),
        tier: Tier::Execution,
        is_binary: false,
        score: 4,
        label: Label::Good,
        weight: 1.0,
        justification: "j".into(),
        failure_code: None,
        turns: vec![1, 3],
    };
    let mut verdict = Verdict::from_scores(vec![score], 75.0);
    verdict.expected_outcome_results = Some(vec![OutcomeResult {
        statement: "it was refunded".into(),
        passed: true,
        justification: "turn 3".into(),
    }]);
    verdict
}

fn read(path: &Path) -> RecordBatch {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let schema = reader.schema().clone();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

fn numbers_of(batch: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = batch.column_by_name(name).unwrap();
    column.as_primitive::<Float64Type>().iter().collect()
}

fn booleans_of(batch: &RecordBatch, name: &str) -> Vec<Option<bool>> {
    let column = batch.column_by_name(name).unwrap();
    column.as_boolean().iter().collect()
}

fn texts_of(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn every_end_has_its_rows_and_only_a_verdict_with_scores_has_a_score() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDirectory::create(&folder.path().join("run"), false, &[]).unwrap();
    let mut tables = ConversationTables::create(&run, &rules(), &request()).unwrap();
    let failed = Verdict::failed(JudgeError::InvalidJson, 75.0);
    let described = JudgedConversation {
        recorded: Recorded {
            name: Some("refund".into()),
            difficulty: Some(Difficulty::Hard),
            tags: vec!["money".into(), "order".into()],
            agent_cost_usd: Some(0.5),
            ..Recorded::default()
        },
        ..judged("a", Status::Success, Some(verdict()))
    };
    for row in [
        described,
        judged("b", Status::Failed, Some(failed)),
        judged("c", Status::Pending, None),
        judged("d", Status::Failed, None),
    ] {
        tables.push(row).unwrap();
    }
    let scores = tables.finish(&run, &RunSummary::default()).unwrap();
    let earlier = TableWriter::create(run.path(), "scores", scores_schema()).unwrap();
    earlier.finish().unwrap();
    scores.append(&run).unwrap();

    let scores = read(&part_path(&run.path().join("scores"), 1));
    assert_eq!(numbers_of(&scores, "score"), [Some(0.8), None, None, None]);
    assert_eq!(
        booleans_of(&scores, "passed"),
        [Some(true), None, None, None]
    );

    let table = |name: &str| read(&part_path(&run.path().join(name), 0));
    let verdicts = table("judge_verdicts");
    assert_eq!(
        numbers_of(&verdicts, "overall_score"),
        [Some(80.0), Some(0.0), None, None]
    );
    assert_eq!(
        booleans_of(&verdicts, "case_passed"),
        [Some(true), Some(false), None, Some(false)]
    );
    assert_eq!(
        texts_of(&verdicts, "judge_error"),
        [None, Some("invalid_json".to_owned()), None, None]
    );
    assert_eq!(
        texts_of(&verdicts, "provider"),
        vec![Some("openai".to_owned()); 4]
    );
    let dropped = verdicts.column_by_name("dropped_metrics").unwrap();
    assert!(dropped.is_valid(1) && dropped.is_null(2));

    let only_first = |text: &str| vec![Some(text.to_owned()), None, None, None];
    assert_eq!(texts_of(&verdicts, "name"), only_first("refund"));
    assert_eq!(texts_of(&verdicts, "difficulty"), only_first("hard"));
    assert_eq!(texts_of(&verdicts, "error"), [None, None, None, None]);
    assert_eq!(
        numbers_of(&verdicts, "agent_cost_usd"),
        [Some(0.5), None, None, None]
    );
    let tags = verdicts.column_by_name("tags").unwrap();
    assert!(tags.is_null(1));
    assert_eq!(tags.as_list::<i32>().value(0).len(), 2);

    let metrics = table("judge_metric_scores");
    assert_eq!(texts_of(&metrics, "label"), [Some("good".to_owned())]);
    let turns = metrics.column_by_name("turns").unwrap();
    let turns = turns.as_list::<i32>().value(0);
    assert_eq!(turns.as_primitive::<Int32Type>().values().to_vec(), [1, 3]);
    let outcomes = table("judge_outcomes");
    assert_eq!(texts_of(&outcomes, "session_id"), [Some("a".to_owned())]);
    assert_eq!(table("run_summary").num_rows(), 1);
}

#[test]
fn the_table_of_figures_has_every_figure() {
    let summary = RunSummary::default();
    let columns = summary_columns(&summary);
    let names: Vec<String> = columns
        .iter()
        .map(|(field, _)| field.name().clone())
        .collect();
    let json = json!(summary);
    let figures: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, figures);
}

#[test]
fn the_readme_names_every_column() {
    let readme = include_str!("../../../run/README.md");
    let facts = RunFacts {
        route: "openai/judge".into(),
        pass_threshold: 75.0,
    };
    for (table, columns) in TABLES {
        // From the table's name at the beginning of a line to the next one's.
        let from = readme.find(&format!("\n`{table}`, ")).unwrap() + 1;
        let rest = &readme[from..];
        let row = &rest[..rest.find("\n\n`").unwrap_or(rest.len())];
        // The first four name the conversation in each of the tables.
        for (field, _) in columns(&[], &facts).iter().skip(4) {
            assert!(
                row.contains(&format!("`{}`", field.name())),
                "{table}: {field}"
            );
        }
    }
}
