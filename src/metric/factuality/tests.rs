use super::*;

fn rules(mode: FactualityMode) -> FactualityRules {
    FactualityRules {
        mode,
        ..FactualityRules::default()
    }
}

fn run(actual: &str, expected: &str, documents: &[&str], rules: &FactualityRules) -> Shallow {
    shallow(
        actual,
        expected,
        documents,
        0.7,
        rules,
        &mut Workspace::default(),
    )
}

#[test]
fn without_context_faithfulness_is_skipped() {
    let rules = FactualityRules {
        mode: FactualityMode::Lenient,
        rag_faithfulness_only: true,
        deep: true,
        ..FactualityRules::default()
    };
    let skipped = run("1", "2", &[], &rules);
    assert_eq!((skipped.path, skipped.checked.score), (Path::Skipped, 1.0));
    assert!(!asks_judge(
        "a",
        "b",
        &[],
        &rules,
        &mut Workspace::default()
    ));
    assert!(asks_judge(
        "a",
        "b",
        &["c"],
        &rules,
        &mut Workspace::default()
    ));
    let contained = run(
        "The sky is blue",
        "no",
        &["Is the sky blue?", "The sky is."],
        &rules,
    );
    // All words; of "the sky", "sky is" and "is blue" all but the last.
    assert_eq!(contained.path, Path::Containment);
    assert!((contained.checked.score - (0.4 + 0.6 * 2.0 / 3.0)).abs() < 1e-12);
    let empty = run("…", "no", &["…"], &rules);
    assert_eq!((empty.path, empty.checked.score), (Path::Containment, 0.0));
    let json = run("{\"a\": 1}", "{\"a\": 2}", &["a"], &rules);
    assert_eq!((json.path, json.checked.score), (Path::Json, 0.0));
}

#[test]
fn a_judge_is_asked_only_where_nothing_else_decides() {
    let mut workspace = Workspace::default();
    for (actual, expected, mode, asked) in [
        ("a", "b", FactualityMode::Strict, true),
        ("1", "2", FactualityMode::Lenient, false),
        ("1", "b", FactualityMode::Lenient, true),
        ("a", "b", FactualityMode::JsonStructural, false),
    ] {
        let mut rules = FactualityRules {
            deep: true,
            ..rules(mode)
        };
        assert_eq!(
            asks_judge(actual, expected, &[], &rules, &mut workspace),
            asked
        );
        rules.compat = Compat::Tool;
        assert!(asks_judge(actual, expected, &[], &rules, &mut workspace));
        rules.deep = false;
        assert!(!asks_judge(actual, expected, &[], &rules, &mut workspace));
    }
}

#[test]
fn what_must_be_json_and_is_not_fails_at_any_threshold() {
    let rules = rules(FactualityMode::JsonStructural);
    let mut workspace = Workspace::default();
    let failed = shallow("{}", "text", &[], 0.0, &rules, &mut workspace);
    assert_eq!(
        (failed.path, failed.checked.passed),
        (Path::JsonError, false)
    );
    let checks: Vec<_> = failed
        .checked
        .details
        .iter()
        .map(|detail| &*detail.check)
        .collect();
    assert_eq!(checks, ["json_parse.expected"]);
}

#[test]
fn more_than_ten_differences_are_counted() {
    let list = |from: usize| format!("{:?}", (from..from + 9).collect::<Vec<_>>());
    let checked = run(&list(0), &list(9), &[], &rules(FactualityMode::Strict)).checked;
    assert_eq!(checked.details.len(), 11);
    let last = checked.details.last().unwrap();
    assert_eq!(
        (&*last.check, last.message.as_deref()),
        ("factuality.more", Some("+ 8 more"))
    );
}

#[test]
fn a_judge_that_failed_leaves_its_cost_and_doubt() {
    let checked = run("a", "a", &[], &rules(FactualityMode::Strict)).instead_of_judge(Some(0.25));
    assert_eq!(
        (checked.score, checked.confidence, checked.token_cost),
        (1.0, 0.5, Some(0.25))
    );
    assert!(!checked.judged);
}
