use super::*;
use crate::suite::outcome::{
    CaseFlakiness, CaseOutcome, CheckOutcome, FlakinessOutcome, GateOutcome, JudgingOutcome,
    MetricOutcome, PartOutcome, Verdict,
};

const NASTY: &str =
    "</script><script>alert(1)</script>\"'><img src=x onerror=y>\u{1b}[2J\0 {{ 7 * 7 }} \u{202e}";

fn page(outcome: &SuiteOutcome) -> String {
    let facts = PageFacts {
        created_at: "2026-03-01T10:20:30Z".into(),
        version: "0.1.0".into(),
        inputs: vec!["suites/weather.evalset.json".into()],
    };
    html(outcome, &facts).unwrap()
}

fn check(expected: &str, actual: &str) -> CheckOutcome {
    CheckOutcome {
        invocation: "turn-1".into(),
        metric: "final_response_avg_score".into(),
        criterion: "final response".into(),
        verdict: Verdict::Failed,
        threshold: 1.0,
        reason: "the texts differ".into(),
        expected: Some(expected.into()),
        actual: Some(actual.into()),
        ..CheckOutcome::default()
    }
}

fn case(id: &str, verdict: Verdict, checks: Vec<CheckOutcome>) -> CaseOutcome {
    CaseOutcome {
        id: id.into(),
        run: 1,
        verdict,
        input: "a question".into(),
        checks,
        ..CaseOutcome::default()
    }
}

fn suite(cases: Vec<CaseOutcome>) -> SuiteOutcome {
    SuiteOutcome {
        kind: "evalset",
        name: "weather".into(),
        verdict: Verdict::Failed,
        runs: 1,
        cases,
        ..SuiteOutcome::default()
    }
}

#[test]
fn flaky_cases_are_listed_with_what_the_figures_mean() {
    let outcome = SuiteOutcome {
        flakiness: Some(FlakinessOutcome {
            runs: 3,
            k: 2,
            flaky: 1,
            cases: vec![CaseFlakiness {
                id: "<i>a".into(),
                flaky: true,
                ..CaseFlakiness::default()
            }],
            ..FlakinessOutcome::default()
        }),
        ..suite(Vec::new())
    };
    let page = page(&outcome);
    for part in [
        "<a href=\"#flakiness\">",
        "pass^2 is the chance that 2 runs in a row pass",
        "flaky: &lt;i&gt;a passed in 0 of 0 runs",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!self::page(&suite(Vec::new())).contains("Flakiness"));
}

#[test]
fn a_failure_is_shown_with_signs_and_marked_words() {
    let checks = vec![check("The sky is blue.", "The sky is green.")];
    let page = page(&suite(vec![case("sky", Verdict::Failed, checks)]));
    for part in [
        "<del><i>−</i><span>The sky is <mark>blue</mark>.</span></del>",
        "<ins><i>+</i><span>The sky is <mark>green</mark>.</span></ins>",
        "✗ Failed: 1 of 1 case failed",
        "the texts differ",
        "turn <span class=\"id\">turn-1</span>",
        "<details class=\"case fold card failed\" open>",
        "2026-03-01 10:20:30 UTC by nightmill 0.1.0",
        "id=\"end-of-report\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[test]
fn nothing_of_the_data_becomes_markup() {
    let mut bad = check(NASTY, &format!("{NASTY} and more"));
    bad.invocation = NASTY.into();
    bad.metric = NASTY.into();
    bad.criterion = NASTY.into();
    bad.reason = NASTY.into();
    bad.judged = true;
    bad.parts = vec![PartOutcome {
        name: NASTY.into(),
        reason: NASTY.into(),
        expected: Some(NASTY.into()),
        ..PartOutcome::default()
    }];
    let mut passed = bad.clone();
    passed.verdict = Verdict::Passed;
    let mut failed = case(NASTY, Verdict::Failed, vec![bad, passed.clone()]);
    failed.error = Some(NASTY.into());
    failed.input = NASTY.into();
    let outcome = SuiteOutcome {
        kind: "evalset",
        name: NASTY.into(),
        of: NASTY.into(),
        cases: vec![failed, case(NASTY, Verdict::Passed, vec![passed])],
        gates: vec![GateOutcome {
            name: NASTY.into(),
            passed: false,
            found: NASTY.into(),
        }],
        metrics: vec![MetricOutcome {
            name: NASTY.into(),
            mean: Some(f64::NAN),
            threshold: Some(f64::INFINITY),
            ..MetricOutcome::default()
        }],
        changes: vec![NASTY.into()],
        notes: vec![NASTY.into()],
        files: vec![NASTY.into()],
        judging: Some(JudgingOutcome {
            models: vec![NASTY.into()],
            ..JudgingOutcome::default()
        }),
        ..SuiteOutcome::default()
    };
    let page = page(&outcome);
    assert!(
        !page.contains("<script") && !page.contains("<img"),
        "{page}"
    );
    assert!(page.matches("&lt;script&gt;").count() > 15);
    assert!(!page.contains('\0') && !page.contains('\u{1b}'));
    assert!(page.contains("{{ 7 * 7 }}"));
}

#[test]
fn the_words_of_a_judge_are_quoted() {
    let mut judged = check("a", "b");
    judged.judged = true;
    judged.reason = "It says too little.".into();
    let page = page(&suite(vec![case("c", Verdict::Failed, vec![judged])]));
    assert!(page.contains("The judge’s words</figcaption><blockquote"));
    assert!(page.contains("<bdi>It says too little.</bdi>"));
}

#[test]
fn an_empty_suite_is_a_page() {
    let page = page(&SuiteOutcome::default());
    assert!(page.contains("○ Not evaluated: this suite has no cases"));
    assert!(page.contains("id=\"end-of-report\""));
}

#[test]
fn ten_thousand_cases_stay_small_and_what_is_left_out_is_counted() {
    let long = |word: &str| format!("{word} ").repeat(2_000);
    let (old, new) = (long("<old>"), long("<new>"));
    let cases = (0..10_000).map(|i| match i % 4 {
        0 => case(&format!("p{i}"), Verdict::Passed, vec![check("", "")]),
        1 => case(&format!("n{i}"), Verdict::NotEvaluated, Vec::new()),
        _ => case(&format!("f{i}"), Verdict::Failed, vec![check(&old, &new)]),
    });
    let outcome = suite(cases.collect());
    let begin = std::time::Instant::now();
    let page = page(&outcome);
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
    assert!(page.len() < 30_000_000, "{}", page.len());
    assert_eq!(page.matches("<details class=\"case ").count(), 2_000);
    assert!(page.contains("6,500 more cases that did not pass are not shown"));
    assert!(page.contains("1,500 more cases that passed are not shown"));
    assert!(page.contains("Expected and actual are left out to keep this page small"));
    assert!(page.contains("failed <b>5,000</b>"));
}

#[test]
fn many_checks_and_lines_find_an_end_too() {
    let lines = |sign: &str| format!("{sign}\n").repeat(1_000);
    let mut many = check(&lines("'"), &lines("\""));
    many.metric = "'".repeat(1_000);
    let mut passed = many.clone();
    passed.verdict = Verdict::Passed;
    many.parts = vec![
        PartOutcome {
            name: "'".repeat(100),
            ..PartOutcome::default()
        };
        40
    ];
    let cases = |verdict, checks: Vec<CheckOutcome>| vec![case("c", verdict, checks); 1_000];
    let mut all = cases(Verdict::Failed, vec![many.clone(), many, passed.clone()]);
    all.extend(cases(Verdict::Passed, vec![passed; 20]));
    let page = page(&suite(all));
    assert!(page.len() < 60_000_000, "{}", page.len());
    assert!(page.contains("Expected and actual are left out"));
    assert!(page.contains("more checks are not shown here."));
}
