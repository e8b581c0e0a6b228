use super::*;
use crate::metric::checked::Detail;
use crate::suite::regression::record::RunRecord;
use crate::suite::regression::record::tests::{against, record};

const HARD: &str = "a|b`c`\nd\\<e>&\"f\"\u{1}";

fn hard_record() -> RunRecord {
    let first = record("run_20260601_aaaaaa", &[("a", 0.9), ("b", 0.9)]);
    let mut of = against(
        Some(&first),
        "run_20260602_bbbbbb",
        &[("a", 0.2), ("b", 0.9), ("c", 1.0)],
    );
    let case = &mut of.cases[0].case;
    case.input = HARD.to_owned();
    case.actual_output = "x".repeat(100);
    let mut result = case.results.get("format").unwrap().clone();
    result.explanation = HARD.to_owned();
    result.details = vec![
        Detail {
            check: "format.length".to_owned(),
            expected: Some(HARD.to_owned()),
            ..Detail::default()
        },
        Detail {
            check: "format.ok".to_owned(),
            passed: true,
            ..Detail::default()
        },
        Detail {
            check: "format.more".to_owned(),
            message: Some("+ 3 more".to_owned()),
            ..Detail::default()
        },
    ];
    case.results.insert("format", result);
    of
}

#[test]
fn markdown_escapes_and_folds() {
    let page = markdown_report(&hard_record());
    for line in [
        "# Regression report: qa",
        "- **Baseline:** run_20260601_aaaaaa",
        "- **Status:** critical",
        "- **Suite:** -38.9%",
        "- **Left out as new:** c",
        "| a | regressed | -70.0 |",
        "| c | new |  |",
        "| suite_score | pass | suite score 0.700, at least 0.7 required |",
        "| regression | fail | critical |",
        "### ❌ a (20.0%)",
        "### ✅ b (90.0%)",
        "- **Input:** a\\|b\\`c\\`\\nd\\\\&lt;e&gt;&amp;\"f\"\u{1}",
        "<summary>2 failure(s) in format</summary>",
        "| format.more |  | + 3 more |",
        "| format | 20.0% | 70.0% | fail | 100.0% | deterministic |",
    ] {
        assert!(
            page.lines().any(|of| of == line),
            "{line} is not in\n{page}"
        );
    }
    let cut = format!("- **Output:** {}…", "x".repeat(80));
    assert!(page.contains(&cut), "{page}");
    assert!(!page.contains("format.ok"), "{page}");
}

#[test]
fn markdown_without_a_baseline_has_no_regression_section() {
    let page = markdown_report(&record("run_20260601_aaaaaa", &[("a", 0.9)]));
    assert!(!page.contains("## Regression\n"), "{page}");
}

#[test]
fn json_has_all_details() {
    let report = json_report(&hard_record());
    assert_eq!(report["suite"]["run_id"], "run_20260602_bbbbbb");
    assert_eq!(report["summary"]["status"], "failed");
    assert_eq!(report["summary"]["passed"], 2);
    assert_eq!(report["summary"]["failed"], 1);
    assert_eq!(report["summary"]["severity_counts"]["fail"], 1);
    assert_eq!(report["quality_gates"]["passed"], false);
    assert_eq!(
        report["quality_gates"]["gates"]["regression"]["passed"],
        false
    );
    assert_eq!(report["regression"]["status"], "critical");
    assert_eq!(report["regression"]["case_deltas"][2]["status"], "new");
    let details = &report["test_cases"][0]["metrics"]["format"]["details"];
    assert_eq!(details.as_array().unwrap().len(), 3);
    assert_eq!(details[0]["expected"], HARD);
    let of_second = &report["test_cases"][1]["metrics"]["format"];
    assert_eq!(of_second["details"], serde_json::json!([]));
    assert_eq!(of_second["evaluation_type"], "deterministic");
    let delta = report["test_cases"][1]["regression_delta"]["format"].as_f64();
    assert_eq!(delta, Some(0.0));
}

/// Read again by a reader of XML, the texts are those of the record.
#[test]
fn junit_is_well_formed_whatever_the_texts() {
    use quick_xml::events::Event;
    let mut of = hard_record();
    of.head.golden_set_name = HARD.to_owned();
    let xml = junit_report(&[of]).unwrap();
    let mut reader = quick_xml::reader::Reader::from_str(&xml);
    let (mut cases, mut failures, mut names) = (0, 0, Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => break,
            Event::Start(tag) | Event::Empty(tag) => {
                cases += usize::from(tag.name().0 == "testcase");
                failures += usize::from(tag.name().0 == "failure");
                if tag.name().0 == "testsuite" {
                    for attribute in tag.attributes() {
                        let attribute = attribute.unwrap();
                        names.push(attribute.value.into_owned());
                    }
                }
            }
            _ => {}
        }
    }
    // Two gates do not hold either.
    assert_eq!((cases, failures), (5, 3));
    assert!(!xml.contains('\u{1}'), "{xml}");
    let name = &names[0];
    assert!(
        name.contains("&lt;e&gt;&amp;") && name.contains('\u{fffd}'),
        "{name}"
    );
    assert!(!name.contains('\n'), "{name}");
    assert!(
        xml.contains(r#"tests="5" failures="3" errors="0" skipped="0" time="0.012""#),
        "{xml}"
    );
}
