use super::*;
use crate::suite::outcome::{CaseOutcome, CheckOutcome, FlakinessOutcome, PartOutcome};

fn failed_case(id: &str) -> CaseOutcome {
    CaseOutcome {
        id: id.into(),
        run: 1,
        verdict: Verdict::Failed,
        input: "What is the weather in Paris?".into(),
        checks: vec![
            CheckOutcome {
                invocation: "turn-1".into(),
                metric: "tool_trajectory_avg_score".into(),
                criterion: "tool trajectory".into(),
                verdict: Verdict::Failed,
                score: 0.0,
                threshold: 1.0,
                reason: "arguments of get_weather do not match".into(),
                expected: Some(
                    r#"[{"name":"get_weather","arguments":{"city":"Paris","unit":"C"}}]"#.into(),
                ),
                actual: Some(
                    r#"[{"arguments":{"unit":"F","city":"Paris"},"name":"get_weather"}]"#.into(),
                ),
                ..CheckOutcome::default()
            },
            CheckOutcome {
                invocation: "turn-2".into(),
                metric: "llm_rubric_response".into(),
                criterion: "rubrics".into(),
                verdict: Verdict::Failed,
                score: 0.5,
                threshold: 0.8,
                reason: "One of two holds.".into(),
                judged: true,
                actual: Some("It is warm.".into()),
                parts: vec![
                    PartOutcome {
                        name: "polite".into(),
                        passed: true,
                        reason: "It is polite.".into(),
                        ..PartOutcome::default()
                    },
                    PartOutcome {
                        name: "complete".into(),
                        passed: false,
                        reason: "It names no number.".into(),
                        ..PartOutcome::default()
                    },
                ],
                ..CheckOutcome::default()
            },
            CheckOutcome {
                metric: "passing".into(),
                verdict: Verdict::Passed,
                ..CheckOutcome::default()
            },
        ],
        ..CaseOutcome::default()
    }
}

fn outcome() -> SuiteOutcome {
    SuiteOutcome {
        kind: "evalset",
        name: "weather".into(),
        of: "travel-agent".into(),
        verdict: Verdict::Failed,
        score: Some(0.75),
        runs: 2,
        metrics: vec![
            MetricOutcome {
                name: "tool_trajectory_avg_score".into(),
                mean: Some(0.5),
                threshold: Some(1.0),
                passed: 1,
                failed: 1,
                ..MetricOutcome::default()
            },
            MetricOutcome {
                name: "llm_rubric_response".into(),
                not_evaluated: 2,
                judged: true,
                ..MetricOutcome::default()
            },
        ],
        gates: vec![GateOutcome {
            name: "suite score".into(),
            passed: false,
            found: "0.75 (at least 0.9)".into(),
        }],
        cases: vec![
            CaseOutcome {
                id: "no-agent".into(),
                run: 1,
                error: Some("the agent did not answer".into()),
                ..CaseOutcome::default()
            },
            failed_case("paris"),
            CaseOutcome {
                id: "fine".into(),
                run: 2,
                verdict: Verdict::Passed,
                ..CaseOutcome::default()
            },
        ],
        flakiness: Some(FlakinessOutcome {
            runs: 2,
            k: 2,
            left_out: 3,
            ..FlakinessOutcome::default()
        }),
        changes: vec!["paris regressed: 1.0000 to 0.0000".into()],
        notes: vec!["metric `x` has no threshold: every score passes".into()],
        judging: Some(JudgingOutcome {
            models: vec!["gpt-4o".into()],
            questions: 12,
            known: 3,
            sent: 9,
            cost: Some(0.0123),
        }),
        files: vec![
            "out/weather.evalset_result.json".into(),
            "out/suite.html".into(),
        ],
        seconds: 1.25,
    }
}

#[test]
fn a_suite_reads_from_verdict_to_time() {
    let expected = "\
evaluation set weather of travel-agent: FAILED, score 0.7500
3 case runs in 2 passes: 1 passed, 1 failed, 1 not evaluated

metric                       mean     bar  passed  failed  not evaluated
tool_trajectory_avg_score  0.5000  1.0000       1       1              0
llm_rubric_response *           –       –       0       0              2
* a judge decides

gate FAILED suite score: 0.75 (at least 0.9)

flakiness over 2 runs, with 95 % intervals
  3 cases in no figure: not evaluated in every run
  no case is flaky: each passed in all runs or in none

case paris, run 1: FAILED
  asked: What is the weather in Paris?
  turn turn-1, tool_trajectory_avg_score (tool trajectory): 0.0000, the bar is 1
    arguments of get_weather do not match
    - expected  + actual
      [
        {
          \"arguments\": {
            \"city\": \"Paris\",
    -       \"unit\": \"C\"
    +       \"unit\": \"F\"
          },
          \"name\": \"get_weather\"
        }
      ]
  turn turn-2, llm_rubric_response (rubrics): 0.5000, the bar is 0.8
    the judge: “One of two holds.”
    ✗ complete: “It names no number.”
    actual:
      It is warm.

case no-agent, run 1: not evaluated
  error: the agent did not answer

against the earlier run
  paris regressed: 1.0000 to 0.0000

notes
  metric `x` has no threshold: every score passes

judges (gpt-4o): 12 questions, 3 from the ledger, 9 sent, 0.0123 dollars
wrote out/weather.evalset_result.json
wrote out/suite.html
time: 1.2 s
";
    assert_eq!(text(&outcome(), Paint::default(), 100), expected);
}

#[test]
fn an_empty_suite_says_so() {
    let expected =
        "evaluation set e: not evaluated\n0 cases: 0 passed, 0 failed, 0 not evaluated\n\n";
    let empty = SuiteOutcome {
        kind: "evalset",
        name: "e".into(),
        ..SuiteOutcome::default()
    };
    assert_eq!(text(&empty, Paint::default(), 80), expected);
}

#[test]
fn ten_thousand_failures_are_counted() {
    let mut outcome = outcome();
    outcome.cases = (0..10_000)
        .map(|i| failed_case(&format!("case-{i}")))
        .collect();
    let shown = text(&outcome, Paint::default(), 80);
    assert_eq!(shown.matches("\ncase case-").count(), 10, "2 checks each");
    assert!(
        shown.contains("\n+ 9,990 more cases that did not pass; the page and --json have them\n")
    );
    assert!(shown.lines().count() < 300);
}

#[test]
fn hostile_texts_neither_steer_the_terminal_nor_break_its_lines() {
    let nasty = "\u{1b}[2J\u{9b}31m\r\n\u{202e}</script><b> ".repeat(400);
    let mut outcome = outcome();
    let case = &mut outcome.cases[1];
    case.id.clone_from(&nasty);
    case.input.clone_from(&nasty);
    case.error = Some(nasty.clone());
    case.checks[0].expected = Some(nasty.clone());
    case.checks[0].actual = Some("価".repeat(5000));
    case.checks[1].reason.clone_from(&nasty);
    case.checks[1].parts[1].reason.clone_from(&nasty);
    case.checks[1].parts[1].name.clone_from(&nasty);
    outcome.name.clone_from(&nasty);
    outcome.metrics[0].name.clone_from(&nasty);
    outcome.gates[0].found.clone_from(&nasty);
    outcome.changes.push(nasty.clone());
    outcome.notes.push(nasty.clone());
    outcome.files.push(nasty.clone());
    let shown = text(&outcome, Paint::default(), 80);
    assert!(
        shown.chars().all(|c| c == '\n' || !c.is_control()),
        "{shown}"
    );
    let wide = |line: &&str| width_of(line) > 80 && !line.starts_with("wrote ");
    let wide: Vec<_> = shown.lines().filter(wide).collect();
    assert_eq!(wide, Vec::<&str>::new());
}
