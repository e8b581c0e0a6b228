use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};

use super::*;

const HEAD: &str = "name: qa\nversion: 1.0.0\ndescription: d\ntags: []\nauthor: me\n\
                    created_at: 2026-06-01\nupdated_at: 2026-06-01\n";

fn read(text: &str) -> Result<ReadSets, String> {
    GoldenSet::of_yaml(Path::new("qa.yaml"), text).map_err(|e| e.to_string())
}

fn case(id: &str) -> String {
    format!(
        "  - id: {id}\n    description: d\n    input: i\n    system_prompt: null\n    expected_output: e\n    \
         actual_output: null\n    metrics: [format]\n    tags: []\n    weight: 1\n"
    )
}

fn with_cases(kind: &str, cases: &str) -> String {
    format!("{HEAD}interaction_type: {kind}\ntest_cases:\n{cases}")
}

#[test]
fn a_suite_of_the_tool_loads() {
    let text = with_cases(
        "rag",
        r#"  - id: rag-001
    description: d
    input: "What is the limit?"
    system_prompt: "Be short."
    context:
      documents:
        - { source: docs/a.md, content: "500 a minute.", retrieval_score: 0.94 }
        - { source: docs/b.md, content: "More." }
    expected_output: |
      500 a minute
      per key
    actual_output: "500"
    metrics: [factuality, format, tone, regression]
    thresholds: { factuality: 0.9, tone: null }
    tags: [api]
    weight: 1.5
    required_terms: ["500"]
    forbidden_terms: [sorry]
    regex_pattern: '^\d+'
"#,
    );
    let read = read(&text).unwrap();
    assert_eq!(read.warnings, []);
    let set = &read.sets[0];
    assert_eq!(
        (set.version.as_str(), set.created_at.as_str()),
        ("1.0.0", "2026-06-01")
    );
    assert_eq!(set.interaction, Interaction::Rag);
    assert_eq!(set.file_hash.len(), 64);
    let case = &set.cases[0];
    assert_eq!(case.expected_output, "500 a minute\nper key\n");
    assert_eq!(case.output(), "500");
    assert_eq!(case.metrics.as_ref().unwrap().len(), 4);
    assert_eq!(case.threshold(SuiteMetric::Factuality, 0.7), 0.9);
    assert_eq!(case.threshold(SuiteMetric::Tone, 0.7), 0.7);
    assert_eq!(case.documents[0].retrieval_score, Some(0.94));
    assert_eq!(case.documents[1].retrieval_score, None);
    assert_eq!(case.weight, 1.5);
    assert_eq!(
        case.required_terms.as_deref(),
        Some(["500".to_owned()].as_slice())
    );
    assert_eq!(case.regex_pattern.as_deref(), Some("^\\d+"));
    assert!(!set.has_no_output());
}

#[test]
fn all_faults_are_listed_with_their_paths() {
    let cases = case("a")
        + "  - id: b\n    description: ''\n    input: 3\n    expected_output: e\n    \
           metrics: [fromat]\n    weight: -1\n    \
           context: { documents: [] }\n    thresholds: { style: 1, format: 2 }\n"
        + &case("a")
        + "  - just text\n"
        + &case("a");
    let told = read(&with_cases("rag", &cases)).unwrap_err();
    for line in [
        "`qa.yaml` can't be used:",
        "test_cases[0].context: is missing; each case of a `rag` suite needs documents",
        "test_cases[1].description: is empty",
        "test_cases[1].input: is the number 3; put it in quotes",
        "test_cases[1].metrics[0]: is the text `fromat`, no metric (did you mean `format`?)",
        "test_cases[1].weight: is the number -1; write a number from 0 to 1000000000",
        "test_cases[1].context.documents: has none",
        "test_cases[1].thresholds.style: ",
        "test_cases[1].thresholds.format: is the number 2; write a number from 0 to 1",
        "test_cases[3]: is the text `just text`; write a block of keys",
        "test_cases[2].id: `a` is there 3 times: at test_cases[0], test_cases[2], test_cases[4]",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
}

#[test]
fn a_suite_must_say_what_it_is() {
    let told = read("test_cases: {}").unwrap_err();
    for key in [
        "name",
        "version",
        "description",
        "interaction_type",
        "tags",
        "author",
        "created_at",
        "updated_at",
        "test_cases",
    ] {
        assert!(
            told.contains(&format!("\n  {key}: ")),
            "{key} is not in {told}"
        );
    }
    let told = read(&with_cases("chat", &case("a"))).unwrap_err();
    assert!(
        told.contains("interaction_type: is the text `chat`"),
        "{told}"
    );
    let told = read(&format!("{HEAD}interaction_type: rag\ntest_cases: [\n")).unwrap_err();
    assert!(
        told.contains("`qa.yaml`") && told.contains("line"),
        "{told}"
    );
}

#[test]
fn unknown_keys_are_warnings() {
    let read = read(&with_cases("single_turn", &(case("a") + "    wieght: 2\n"))).unwrap();
    let told = read.warnings[0].to_string();
    assert!(told.starts_with("test_cases[0].wieght: "), "{told}");
    assert!(told.contains("did you mean `weight`"), "{told}");
    assert!(read.sets[0].has_no_output());
}

#[test]
fn tags_choose_cases_or_the_whole_suite() {
    let text = with_cases(
        "single_turn",
        &(case("a").replace("tags: []", "tags: [x]") + &case("b")),
    );
    let mut set = read(&text).unwrap().sets.remove(0);
    let mut whole = set.clone();
    set.keep_tagged(&["x".to_owned()]);
    assert_eq!(set.cases.len(), 1);
    set.keep_tagged(&[]);
    assert_eq!(set.cases.len(), 1);
    whole.tags = vec!["x".to_owned()];
    whole.keep_tagged(&["x".to_owned()]);
    assert_eq!(whole.cases.len(), 2);
}

fn batch(columns: &[(&str, &[Option<&str>])]) -> RecordBatch {
    let arrays = columns.iter().map(|(name, values)| {
        let array: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
        (*name, array)
    });
    RecordBatch::try_from_iter_with_nullable(arrays.map(|(name, array)| (name, array, true)))
        .unwrap()
}

const ROWS: &[(&str, &[Option<&str>])] = &[
    ("suite", &[Some("x"), Some("y"), Some("x")]),
    ("id", &[Some("1"), Some("1"), Some("2")]),
    ("expected_output", &[Some("e"), Some("e"), Some("e")]),
    ("actual_output", &[None, Some("o"), Some("")]),
];

fn sets(columns: &[(&str, &[Option<&str>])]) -> Result<ReadSets, String> {
    let rows = golden_sets_of_rows(Path::new("s.parquet"), &[batch(columns)], "h");
    rows.map_err(|e| e.to_string())
}

#[test]
fn rows_become_suites_in_the_order_in_which_they_begin() {
    let read = sets(ROWS).unwrap();
    let names: Vec<(&str, usize)> = read
        .sets
        .iter()
        .map(|set| (set.name.as_str(), set.cases.len()))
        .collect();
    assert_eq!(names, [("x", 2), ("y", 1)]);
    let case = &read.sets[0].cases[0];
    assert_eq!((case.metrics.as_ref(), case.weight), (None, 1.0));
    assert_eq!(case.actual_output, None);
    assert_eq!(read.sets[0].cases[1].actual_output.as_deref(), Some(""));
    assert_eq!(read.sets[0].file_hash, "h");
}

#[test]
fn lists_and_blocks_of_rows_may_be_text() {
    let mut columns = ROWS.to_vec();
    columns.extend([
        (
            "metrics",
            &[Some("format, tone"), None, Some("[\"tone\"]")] as &[Option<&str>],
        ),
        ("thresholds", &[Some("{\"tone\": 0.5}"), None, None]),
        ("interaction_type", &[Some("rag"), None, Some("rag")]),
        (
            "context",
            &[
                Some("{\"documents\": [{\"source\": \"s\", \"content\": \"c\"}]}"),
                None,
                Some("{\"documents\": [{\"source\": \"s\", \"content\": \"c\"}]}"),
            ],
        ),
    ]);
    let read = sets(&columns).unwrap();
    let case = &read.sets[0].cases[0];
    assert_eq!(
        case.metrics,
        Some(vec![SuiteMetric::Format, SuiteMetric::Tone])
    );
    assert_eq!(case.threshold(SuiteMetric::Tone, 0.7), 0.5);
    assert_eq!(case.documents.len(), 1);
}

#[test]
fn faults_of_rows_name_row_and_column() {
    assert!(
        sets(&ROWS[..3])
            .unwrap_err()
            .contains("actual_output: is missing")
    );
    let mut columns = ROWS.to_vec();
    columns[1] = ("id", &[Some("1"), None, Some("1")]);
    columns.push(("suite_version", &[Some("1"), Some("1"), Some("2")]));
    columns.push(("metrics", &[Some("[oh"), Some("style"), None]));
    let told = sets(&columns).unwrap_err();
    for line in [
        "rows[0].metrics: is no JSON",
        "rows[1].id: is missing",
        "rows[1].metrics[0]: is the text `style`",
        "rows[2].suite_version: is `2` and `1` in rows[0]",
        "rows[2].id: `1` is there 2 times: at rows[0], rows[2]",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
}

#[test]
fn numbers_of_rows_come_exactly() {
    let weights: ArrayRef = Arc::new(Float64Array::from(vec![0.1 + 0.2, 1.0 / 3.0, 2.0]));
    let mut columns: Vec<(&str, ArrayRef, bool)> = Vec::new();
    let texts = batch(ROWS);
    for (at, field) in texts.schema().fields().iter().enumerate() {
        columns.push((ROWS[at].0, texts.column(at).clone(), field.is_nullable()));
    }
    columns.push(("weight", weights, true));
    let ids: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![7, 8, 9]));
    columns[1] = ("id", ids, false);
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let sets = golden_sets_of_rows(Path::new("s"), &[batch], "")
        .unwrap()
        .sets;
    assert_eq!(sets[0].cases[0].weight, 0.1 + 0.2);
    assert_eq!(sets[1].cases[0].weight, 1.0 / 3.0);
    assert_eq!(sets[1].cases[0].id, "8");
}

#[test]
fn parquet_files_are_read_with_the_columns_that_suites_have() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.parquet");
    let mut columns = ROWS.to_vec();
    columns.push(("unrelated", &[Some("a"), Some("b"), Some("c")]));
    let batch = batch(&columns);
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let read = golden_sets_of_parquet(&path).unwrap();
    assert_eq!(read.sets.len(), 2);
    assert_eq!(read.sets[0].file_hash.len(), 64);
    let mut outputs = Outputs::read(&path).unwrap();
    let mut set = read.sets[1].clone();
    assert_eq!(outputs.join(&mut set), 1);
    std::fs::write(&path, "text").unwrap();
    let told = golden_sets_of_parquet(&path).unwrap_err().to_string();
    assert!(told.contains("Parquet"), "{told}");
}

#[test]
fn outputs_are_joined_by_suite_and_case() {
    let columns: &[(&str, &[Option<&str>])] = &[
        (
            "suite",
            &[Some("qa"), Some("qa"), Some("qa"), Some("other")],
        ),
        ("id", &[Some("a"), Some("b"), Some("z"), Some("a")]),
        (
            "actual_output",
            &[Some("new"), None, Some("lost"), Some("x")],
        ),
    ];
    let mut outputs = Outputs::of_rows(Path::new("o"), &[batch(columns)]).unwrap();
    let cases = case("a").replace("actual_output: null", "actual_output: old")
        + &case("b").replace("actual_output: null", "actual_output: kept")
        + &case("c");
    let mut set = read(&with_cases("single_turn", &cases))
        .unwrap()
        .sets
        .remove(0);
    assert_eq!(outputs.join(&mut set), 1);
    let found: Vec<_> = set
        .cases
        .iter()
        .map(|of| of.actual_output.as_deref())
        .collect();
    assert_eq!(found, [Some("new"), Some("kept"), None]);
    let told = outputs.unused().unwrap();
    assert!(
        told.starts_with("2 rows") && told.contains("`z` of `qa`"),
        "{told}"
    );
    let twice: &[(&str, &[Option<&str>])] = &[
        ("suite", &[Some("qa"), Some("qa")]),
        ("id", &[Some("a"), Some("a")]),
        ("actual_output", &[Some("1"), Some("2")]),
    ];
    let told = Outputs::of_rows(Path::new("o"), &[batch(twice)])
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("rows[1].id") && told.contains("rows[0]"),
        "{told}"
    );
}
