use super::*;

fn run(actual: &str, expected: &str, rules: &FormatRules, case: FormatCase<'_>) -> Checked {
    format(
        actual,
        expected,
        0.7,
        rules,
        case,
        &mut Workspace::default(),
    )
}

fn only(checks: &[SubCheck]) -> FormatRules {
    FormatRules {
        sub_checks: SubCheck::ALL.map(|check| Part {
            enabled: checks.contains(&check),
            weight: 1.0,
        }),
        ..FormatRules::default()
    }
}

#[test]
fn weights_are_of_sub_checks_that_pass() {
    let mut rules = only(&[SubCheck::Length, SubCheck::JsonValidity]);
    let case = FormatCase::default();
    rules.sub_checks[1].weight = 3.0;
    let checked = run("text", "text", &rules, case);
    assert_eq!((checked.score, checked.passed), (0.25, false));
    assert_eq!(checked.explanation, "json_validity: score 0.00.");
    rules.sub_checks[1].weight = 0.0;
    let checked = run("text", "text", &rules, case);
    assert_eq!((checked.score, checked.details.len()), (1.0, 1));
    assert_eq!(run("a", "b", &only(&[]), case).score, 1.0);
}

#[test]
fn strict_json_has_no_fences() {
    let mut rules = only(&[SubCheck::JsonValidity, SubCheck::JsonSchema]);
    let fenced = "```json\n{\"a\": 1}\n```";
    let case = FormatCase::default();
    assert_eq!(run(fenced, "{\"a\": 2}", &rules, case).score, 1.0);
    assert_eq!(run("{\"a\": 1}", fenced, &rules, case).score, 0.5);
    rules.strict_json = true;
    assert_eq!(run(fenced, "{\"a\": 2}", &rules, case).score, 0.0);
    rules.compat = Compat::Tool;
    assert_eq!(run(fenced, "{\"a\": 1}", &rules, case).score, 1.0);
}

#[test]
fn a_case_has_terms_and_a_pattern_of_its_own() {
    let rules = only(&[
        SubCheck::RequiredFields,
        SubCheck::ForbiddenContent,
        SubCheck::RegexMatch,
    ]);
    let (required, forbidden) = (["Order id".to_owned()], ["lawyer".to_owned()]);
    let case = FormatCase {
        required_terms: Some(&required),
        forbidden_terms: &forbidden,
        regex_pattern: Some("^order\\b"),
    };
    assert_eq!(
        run("order ID 5", "nothing of this", &rules, case).score,
        1.0
    );
    let checked = run("Ask a lawyer.", "Ask a lawyer.", &rules, case);
    assert_eq!(checked.score, 0.0);
    assert_eq!(
        checked.explanation,
        "required_fields: missing: order id. forbidden_content: found: lawyer. regex_match: the pattern does not match."
    );
}

#[test]
fn schemas_that_cannot_be_compared_fail_at_any_threshold() {
    let case = FormatCase::default();
    for compat in [Compat::Document, Compat::Tool] {
        let rules = FormatRules {
            compat,
            ..FormatRules::default()
        };
        let mut workspace = Workspace::default();
        let found = sub_check(
            SubCheck::JsonSchema,
            "text",
            "{}",
            0.0,
            &rules,
            case,
            &mut workspace,
        );
        assert_eq!((found.score, found.passed), (0.0, false));
        assert_eq!(found.message(), "the output is not JSON.");
    }
}
