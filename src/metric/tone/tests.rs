use super::*;

fn rules(weights: [f64; 5], compat: Compat) -> ToneRules {
    ToneRules {
        dimensions: weights.map(|weight| Part {
            enabled: weight >= 0.0,
            weight,
        }),
        compat,
        ..ToneRules::default()
    }
}

const REPLY: &str = "```json\n{\"dimensions\": {\"formality\": 1.5, \"sentiment\": 0.4, \"verbosity\": \"low\"}, \"overall\": 0.2,\
    \"confidence\": 0.9, \"explanation\": \" Fine. \"}\n```";

#[test]
fn dimensions_that_do_not_count_change_nothing() {
    let mut workspace = Workspace::default();
    let tone = heuristic(
        "Hey",
        "Therefore",
        0.7,
        &rules([0.0, 1.0, -1.0, -1.0, 3.0], Compat::Document),
        &mut workspace,
    );
    assert_eq!(
        tone.dimensions,
        [Some(0.0), Some(1.0), None, None, Some(1.0)]
    );
    assert_eq!((tone.checked.score, tone.checked.confidence), (1.0, 0.7));
    let checks: Vec<_> = tone
        .checked
        .details
        .iter()
        .map(|detail| &*detail.check)
        .collect();
    assert_eq!(checks, ["tone.sentiment", "tone.verbosity"]);
    for weights in [[-1.0; 5], [0.0; 5]] {
        let tone = heuristic(
            "Hey",
            "Therefore",
            0.7,
            &rules(weights, Compat::Document),
            &mut workspace,
        );
        assert_eq!((tone.checked.score, tone.checked.confidence), (1.0, 1.0));
    }
}

#[test]
fn the_tool_knows_no_weights() {
    let mut workspace = Workspace::default();
    let rules = rules([0.0, 5.0, -1.0, -1.0, -1.0], Compat::Tool);
    let tone = heuristic("Hey", "Therefore", 0.7, &rules, &mut workspace);
    assert_eq!((tone.checked.score, tone.checked.passed), (0.5, false));
    assert_eq!(
        tone.checked.explanation,
        "Below the threshold: formality 0.00."
    );
    assert_eq!(judged(REPLY, 0.7, &rules, None).unwrap().checked.score, 0.2);
    assert_eq!(
        judged(
            "{\"dimensions\": {\"formality\": 1, \"sentiment\": 1}}",
            0.7,
            &rules,
            None
        ),
        None
    );
}

#[test]
fn replies_are_read_with_what_they_have() {
    let some = rules([1.0, 1.0, -1.0, 0.0, 2.0], Compat::Document);
    let tone = judged(REPLY, 0.3, &some, Some(0.1)).unwrap();
    assert_eq!(
        tone.dimensions,
        [Some(1.0), Some(0.4), None, None, Some(0.2)]
    );
    let checked = &tone.checked;
    assert_eq!(
        (checked.score, checked.confidence, checked.passed),
        (0.2, 0.9, false)
    );
    assert_eq!((checked.judged, checked.token_cost), (true, Some(0.1)));
    assert_eq!(
        checked.explanation,
        "Below the threshold: verbosity 0.20. Fine."
    );
    for reply in [
        "no",
        "[]",
        "{}",
        "{\"dimensions\": {\"formality\": 1, \"sentiment\": true, \"verbosity\": 1}}",
    ] {
        assert_eq!(judged(reply, 0.3, &some, None), None, "{reply}");
    }
    let none = rules([0.0; 5], Compat::Document);
    assert!(!none.asks_judge());
    assert_eq!(judged("no", 0.3, &none, None).unwrap().checked.score, 1.0);
    assert_eq!(
        some.active().collect::<Vec<_>>(),
        [
            Dimension::Formality,
            Dimension::Sentiment,
            Dimension::Verbosity
        ]
    );
}
