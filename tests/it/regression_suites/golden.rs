//! Golden records of judged metrics through the program and a scripted judge.

use serde_json::{Value, json};

use super::scene::{Scene, case, judge_at, prompt_of};
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::golden;

/// The reply that a row describes.
fn reply(row: &Value) -> Value {
    match row["kind"].as_str().unwrap() {
        "deep_claims" => {
            let verdicts = row["verdicts"].as_array().unwrap().iter();
            let claims: Value = verdicts
                .map(|verdict| json!({"claim": "c", "verdict": verdict, "evidence": "e"}))
                .collect();
            json!({"claims": claims, "confidence": 0.9, "explanation": "x"})
        }
        "tone_judge" => row["reply"].clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn golden_regtrace_judged_rows_run_through_the_program() {
    for row in golden("regtrace/judged.jsonl", 47) {
        let is_claims = row["kind"] == "deep_claims";
        let metric = if is_claims { "factuality" } else { "tone" };
        let said = reply(&row);
        let judge = ScriptedJudge::start(move |asked| {
            assert!(!prompt_of(asked).is_empty());
            Answer::reply(said.clone())
        });
        let mut of_case = case("a", "expected words", Some("other words"), &[metric]);
        of_case["thresholds"] = json!({metric: row["threshold"]});
        let metrics = match is_claims {
            true => json!({"factuality": {"mode": row["mode"], "claim_extraction_depth": "deep"}}),
            false => json!({"tone": {
                "sub_dimensions": row["sub_dimensions"],
                "sub_dimension_weights": row["sub_dimension_weights"],
            }}),
        };
        let further = json!({"metrics": metrics, "judge": {"primary": judge_at(&judge, "m")}});
        let scene = Scene::new(further, &[&[of_case]]);
        let ran = scene.run(&["--no-gate"]);
        let what = format!("{}: {ran:?}", row["id"]);
        assert_eq!(ran.code, Some(0), "{what}");
        let expected = &row["expect"];
        let is_asked = is_claims || expected["judge_called"] == true;
        assert_eq!(judge.prompt_count(), usize::from(is_asked), "{what}");
        let record = scene.last_record("one");
        let got = &record["test_case_results"][0]["metric_results"][metric];
        let is_usable = expected["usable"] == true;
        let how = match is_usable && is_asked {
            true => "llm_judged",
            false => "deterministic",
        };
        assert_eq!(got["evaluation_type"], how, "{what}");
        if !is_usable {
            let guess = if is_claims { 0.5 } else { 0.7 };
            assert_eq!(got["confidence"].as_f64(), Some(guess), "{what}");
            continue;
        }
        for key in ["score", "confidence"] {
            if let Some(expected) = expected[key].as_f64() {
                let got = got[key].as_f64().unwrap();
                assert!(
                    (got - expected).abs() <= 1e-9,
                    "{what}: {key} {got} instead of {expected}"
                );
            }
        }
        assert_eq!(got["passed"], expected["passed"], "{what}");
        if is_claims {
            let failed = expected["failure_count"].as_u64().unwrap().min(11) as usize;
            let details = got["details"].as_array().map_or(0, Vec::len);
            assert_eq!(details, failed, "{what}");
        }
    }
}
