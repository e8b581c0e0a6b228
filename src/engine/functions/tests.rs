//! The functions as SQL sees them: nulls, odd types, and what they refuse.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use arrow::util::display::array_value_to_string;

use super::*;
use crate::engine::engine_session;
use crate::metric::SignalWeights;
use crate::text::TextMode;

fn context(text_mode: TextMode) -> SessionContext {
    let options = EngineOptions {
        threads: 1,
        memory: 64 << 20,
        spill_folder: std::env::temp_dir(),
        embedding: None,
        triage: None,
        window: 3,
        weights: SignalWeights::default(),
        text_mode,
    };
    engine_session(&options).unwrap()
}

fn run(context: &SessionContext, sql: &str) -> Result<RecordBatch> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let batches = context.sql(sql).await?.collect().await?;
        let schema = batches[0].schema();
        Ok(arrow::compute::concat_batches(&schema, &batches)?)
    })
}

fn select(sql: &str) -> Result<RecordBatch> {
    run(&context(TextMode::Compat), &format!("SELECT {sql}"))
}

fn number(sql: &str) -> Option<f64> {
    let batch = select(sql).unwrap();
    let column = batch.column(0).as_primitive::<Float64Type>();
    column.is_valid(0).then(|| column.value(0))
}

fn text(mode: TextMode, sql: &str) -> Option<String> {
    let batch = run(&context(mode), &format!("SELECT {sql}")).unwrap();
    let column = batch.column(0);
    column
        .is_valid(0)
        .then(|| array_value_to_string(column, 0).unwrap())
}

fn refused(sql: &str) -> String {
    select(sql).unwrap_err().to_string()
}

#[test]
fn word_jaccard_compares_word_sets_and_hands_null_on() {
    assert_eq!(number("word_jaccard('red house', 'house red')"), Some(1.0));
    assert_eq!(
        number("word_jaccard('red house', 'blue house')"),
        Some(1.0 / 3.0)
    );
    assert_eq!(number("word_jaccard(NULL, 'house')"), None);
    // Texts of a dictionary are texts.
    let dictionary = "arrow_cast('house', 'Dictionary(Int32, Utf8)')";
    assert_eq!(
        number(&format!("word_jaccard({dictionary}, 'house')")),
        Some(1.0)
    );
    assert!(refused("word_jaccard(1, 'a')").contains("takes two texts"));
}

#[test]
fn text_of_is_the_text_that_metrics_embed() {
    let chat = r#"'{"role": "user", "content": "é", "n": 1.50}'"#;
    let compat = text(TextMode::Compat, &format!("text_of({chat})")).unwrap();
    assert_eq!(compat, r#"{"role": "user", "content": "\u00e9", "n": 1.5}"#);
    let content = text(TextMode::Content, &format!("text_of({chat})"));
    assert_eq!(content.as_deref(), Some("é"));
    assert_eq!(
        text(TextMode::Compat, "text_of('\"plain\"')").as_deref(),
        Some("plain")
    );
    assert_eq!(text(TextMode::Compat, "text_of('null')"), None);
    assert_eq!(
        text(TextMode::Compat, "text_of(arrow_cast(NULL, 'Utf8'))"),
        None
    );
    assert!(refused("text_of('{')").contains("row 0"));
    assert!(refused("text_of(1)").contains("takes JSON as text"));
}

#[test]
fn cosine_similarity_takes_lists_of_one_length() {
    assert_eq!(
        number("cosine_similarity([1.0, 0.0], [0.0, 2.0])"),
        Some(0.0)
    );
    // Whole numbers, and lists of a fixed size.
    assert_eq!(number("cosine_similarity([3, 4], [3, 4])"), Some(1.0));
    let fixed = "arrow_cast([3.0, 4.0], 'FixedSizeList(2, Float32)')";
    assert_eq!(
        number(&format!("cosine_similarity({fixed}, {fixed})")),
        Some(1.0)
    );
    for nothing in ["[0.0, 0.0]", "[NULL, 1.0]"] {
        assert_eq!(
            number(&format!("cosine_similarity({nothing}, [1.0, 1.0])")),
            None
        );
    }
    assert!(refused("cosine_similarity([1.0], [1.0, 2.0])").contains("1 and 2 components"));
    assert!(refused("cosine_similarity('a', [1.0])").contains("takes two vectors"));
}

#[test]
fn the_score_of_a_gap_tells_an_empty_side_from_a_broken_vector() {
    assert_eq!(number("coherence_of_gap(0.25)"), Some(0.75));
    assert_eq!(
        number("coherence_of_gap(arrow_cast(NULL, 'Float64'))"),
        Some(1.0)
    );
    assert_eq!(
        number("coherence_of_gap(arrow_cast('NaN', 'Float64'))"),
        None
    );
}

#[test]
fn what_needs_a_model_says_so() {
    for call in [
        "coherence('a', 'b')",
        "embed('a')",
        "loop_detection('a') OVER (ORDER BY 1)",
    ] {
        let problem = refused(call);
        assert!(
            problem.contains("needs an embedding model"),
            "{call}: {problem}"
        );
    }
    assert!(refused("coherence(1, 'b')").contains("coherence takes two texts"));
}

#[test]
fn session_metrics_fold_groups_alike_in_any_order() {
    let rows = "(VALUES ('a', 1, 0.9, 1.0, 'x'), ('b', 1, 0.2, 0.1, 'y'), ('c', 2, NULL, NULL, 'z')) \
                AS t(id, session, confidence, coherence, label)";
    let fold = |name: &str, order: &str| {
        let sql = format!(
            "SELECT session, {name}(confidence, NULL, NULL, coherence, id) AS m FROM \
             (SELECT * FROM {rows} ORDER BY id {order}) GROUP BY session ORDER BY session"
        );
        let batch = run(&context(TextMode::Compat), &sql).unwrap();
        let folded = batch.column(1).as_struct().clone();
        let number = |name: &str| folded.column_by_name(name).unwrap().clone();
        let scores = number("score")
            .as_primitive::<Float64Type>()
            .values()
            .to_vec();
        let counts = number("evaluated_traces");
        (scores, counts.as_primitive::<Int64Type>().values().to_vec())
    };
    for name in ["agent_reliability", "agent_consistency"] {
        let (scores, counts) = fold(name, "ASC");
        assert_eq!((scores.clone(), counts.clone()), fold(name, "DESC"));
        assert!(scores[0] < 1.0, "{name}: {scores:?}");
        // Without any evidence the metric itself says 1; who shows it decides what that means.
        assert_eq!((scores[1], &counts[..]), (1.0, &[2, 0][..]), "{name}");
    }
    assert!(refused("agent_reliability('a', 1, 1, 1)").contains("takes four numbers"));
    assert!(refused("agent_reliability(1, 1, 1)").contains("takes four numbers"));
}

#[test]
fn comparing_functions_take_texts_of_any_type() {
    for text in ["Utf8", "LargeUtf8", "Utf8View", "Dictionary(Int32, Utf8)"] {
        for metric in ["factuality", "tone"] {
            let (plain, typed) = (
                format!("{metric}('it is so, I think', 'it is so')"),
                format!("{metric}(arrow_cast('it is so, I think', '{text}'), 'it is so')"),
            );
            assert_eq!(number(&plain), number(&typed), "{typed}");
            assert!(number(&plain).is_some_and(|score| (0.0..=1.0).contains(&score)));
        }
    }
    // Without an expected text there is nothing to say; without an output, the output is empty.
    for metric in ["factuality", "format", "tone"] {
        assert_eq!(number(&format!("{metric}('it', NULL)")), None);
        let (missing, empty) = (
            number(&format!("{metric}(NULL, 'it')")),
            number(&format!("{metric}('', 'it')")),
        );
        assert!(missing.is_some() && missing == empty, "{metric}");
    }
    assert_eq!(
        number("factuality('a b', 'a b c', 'lenient')"),
        Some(2.0 / 3.0 * 0.4 + 0.5 * 0.6)
    );
    assert_eq!(number("factuality('a', 'a', 'json_structural')"), Some(0.0));
    // The length passes at a lower bar.
    let format = |bar: f64| number(&format!("format('aaaaaa', 'aaaaaaaaaa', {bar})")).unwrap();
    assert!(format(0.9) < format(0.7), "{} {}", format(0.9), format(0.7));

    for (call, problem) in [
        (
            "factuality(1, 'a')",
            "takes an output and an expected text, not Int64",
        ),
        ("tone('a')", "not 1 arguments"),
        ("tone('a', 'b', 0.5)", "not 3 arguments"),
        (
            "factuality('a', 'b', 'loose')",
            "'strict', 'lenient' or 'json_structural'",
        ),
        (
            "factuality('a', 'b', NULL)",
            "'strict', 'lenient' or 'json_structural'",
        ),
        ("format('a', 'b', 1.5)", "a number from 0 to 1"),
        ("format('a', 'b', 'x')", "a number from 0 to 1"),
    ] {
        assert!(refused(call).contains(problem), "{call}: {}", refused(call));
    }
}
