use super::*;
use crate::suite::evalset::criterion::MismatchKind;
use serde_json::json;

fn scores(criterion: Value, actual: &str, expected: &str) -> [f64; 3] {
    let criterion = RougeCriterion::read(&criterion, "rouge").unwrap();
    let score = criterion.score(actual, expected).unwrap();
    [score.precision, score.recall, score.f1]
}

#[track_caller]
fn assert_close(got: [f64; 3], expected: [f64; 3]) {
    let close = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close, "{got:?} {expected:?}");
}

#[test]
fn grams_are_counted() {
    let one = json!({"rougeType": "rouge1"});
    assert_close(
        scores(one.clone(), "testing one two", "testing"),
        [1.0 / 3.0, 1.0, 0.5],
    );
    assert_close(
        scores(one.clone(), "the the the", "the cat"),
        [1.0 / 3.0, 0.5, 0.4],
    );
    assert_close(scores(one.clone(), "", "a"), [0.0; 3]);
    assert_close(scores(one, "Ä-b.B c_d", "b B c d"), [1.0; 3]);
    let two = json!({"rougeType": "rouge2"});
    assert_close(
        scores(two.clone(), "testing one two", "testing one"),
        [0.5, 1.0, 2.0 / 3.0],
    );
    assert_close(scores(two, "one", "one"), [0.0; 3]);
}

#[test]
fn the_longest_common_subsequence_is_counted() {
    let longest = json!({"rougeType": "rougeL"});
    assert_close(
        scores(longest.clone(), "testing one two", "testing"),
        [1.0 / 3.0, 1.0, 0.5],
    );
    assert_close(
        scores(
            longest,
            "police kill the gunman",
            "police killed the gunman",
        ),
        [0.75; 3],
    );
}

#[test]
fn sentences_are_lines_unless_they_are_split() {
    // The examples of rouge_score.
    let lines = json!({"rougeType": "rougeLsum"});
    let (reference, candidate) = ("w1 w2 w3 w4 w5", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5");
    let expected = [0.4, 0.8, 2.0 * 0.4 * 0.8 / 1.2];
    assert_close(scores(lines.clone(), candidate, reference), expected);
    let split = json!({"rougeType": "rougeLsum", "splitSummaries": true});
    let dotted = candidate.replace('\n', ". W");
    assert!(scores(split, &dotted, reference)[1] > 0.5);
    assert_close(scores(lines, "\n\n", "a"), [0.0; 3]);
}

#[test]
fn sentences_end_where_english_ones_do() {
    assert_eq!(
        english_sentences("Dr. Who came. (He left!) It cost 3.5 e.g. Pounds? yes. J. Doe"),
        [
            "Dr. Who came.",
            "(He left!)",
            "It cost 3.5 e.g. Pounds? yes.",
            "J. Doe"
        ]
    );
}

#[test]
fn stems_are_compared_when_asked() {
    let stemmed = json!({"rougeType": "rouge1", "useStemmer": true});
    assert_close(
        scores(stemmed.clone(), "running dogs", "runs dog"),
        [1.0; 3],
    );
    // Not short words.
    assert_close(scores(stemmed, "ads", "ad"), [0.0; 3]);
    let plain = json!({"rougeType": "rouge1"});
    assert_close(scores(plain, "running dogs", "runs dog"), [0.0; 3]);
}

#[test]
fn all_thresholds_must_be_reached() {
    let read = |threshold: Value| {
        let criterion = json!({"rougeType": "rouge1", "threshold": threshold});
        RougeCriterion::read(&criterion, "rouge").unwrap()
    };
    assert!(read(json!({})).compare("a", "b").is_ok());
    assert!(read(json!({"recall": 1})).compare("a b", "a").is_ok());
    assert!(
        read(json!({"recall": 1, "precision": 0.6}))
            .compare("a b", "a")
            .is_err()
    );
}

#[test]
fn what_is_not_known_is_a_matter_of_the_criterion() {
    for criterion in [
        json!({}),
        json!({"rougeType": "rouge"}),
        json!({"rougeType": "rouge0"}),
        json!({"rougeType": "rouge-1"}),
        json!({"rougeType": "rougel"}),
        json!({"rougeType": "bleu"}),
        json!({"rougeType": "rouge1", "measure": "F1"}),
        json!({"rougeType": "rouge1", "tokenizerName": "x"}),
    ] {
        let read = RougeCriterion::read(&criterion, "rouge").unwrap();
        let kind = read.compare("a", "a").unwrap_err().kind;
        assert_eq!(kind, MismatchKind::Config, "{criterion}");
    }
}

#[test]
fn long_texts_come_to_an_end() {
    let text = "a b c ".repeat(20_000);
    for rouge_type in ["rougeL", "rougeLsum", "rouge20000"] {
        let criterion = RougeCriterion {
            rouge_type: rouge_type.to_owned(),
            ..RougeCriterion::default()
        };
        assert!(criterion.score(&text, &text).is_err(), "{rouge_type}");
    }
}
