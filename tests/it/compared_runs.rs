//! `nightmill runs comparison` of computed scores.

use std::path::Path;

use serde_json::Value;

use crate::changes::{drawn, ended, of};
use crate::hand_made_runs::{HandMade, Session};
use crate::support::Ran;

fn compare(code: i32, a: &Path, b: &Path, more: &[&str]) -> Ran {
    let (a, b) = (a.display().to_string(), b.display().to_string());
    ended(code, &[&["runs", "comparison", &a, &b][..], more].concat())
}

#[test]
fn two_runs_of_computed_scores_are_compared_session_by_session() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, hour: i64, less: f64| {
        let session = |at: u64| {
            let score = ((0.55 + 0.4 * drawn(at) - less) * 1e4).round() / 1e4;
            Session::new(&format!("s{at}"), score, &[(&format!("t{at}"), 1, score)])
        };
        let sessions = (0..20).map(session).collect();
        HandMade {
            sessions,
            ..HandMade::new(name, hour)
        }
        .write(folder.path())
    };
    let (before, after) = (run("before", 1, 0.0), run("after", 2, 0.1));
    let told: Value =
        serde_json::from_str(&compare(1, &before, &after, &["--json"]).stdout).unwrap();
    let reliability = of(&told["metrics"], "agent_reliability");
    assert_eq!(
        (&reliability["in_both"], &reliability["paired"]),
        (&Value::from(20), &Value::from(true))
    );
    assert_eq!(
        (reliability["difference"].as_f64(), &reliability["verdict"]),
        (Some(-0.1), &Value::from("fell"))
    );
    assert_eq!(
        (&reliability["worse"], &reliability["better"]),
        (&Value::from(20), &Value::from(0))
    );
    assert_eq!(told["rows"].as_array().unwrap().len(), 20);
    // The other way round nothing fell; a run is no worse than itself under another name.
    assert!(
        compare(0, &after, &before, &[])
            .stdout
            .contains("no metric fell beyond chance")
    );
    let same = run("same", 3, 0.0);
    let shown = compare(0, &before, &same, &[]);
    assert!(
        shown.stdout.contains("+0.0000 (+0.0000 to +0.0000)"),
        "{shown:?}"
    );

    // One session more or less is in one alone.
    let text = compare(1, &before, &after, &["--limit", "3"]).stdout;
    assert!(
        text.contains("fell beyond chance: coherence, agent_reliability"),
        "{text}"
    );
    // What means nothing here is refused.
    let idle = compare(2, &before, &after, &["--hold-bars"]);
    assert!(idle.stderr.contains("--hold-bars"), "{idle:?}");
    assert!(compare(2, &before, &before, &[]).stderr.contains("twice"));
}

#[test]
fn runs_of_two_models_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, model: Option<&str>| {
        let run = HandMade {
            model: model.map(str::to_owned),
            sessions: vec![Session::new("a", 0.5, &[("a1", 1, 0.5)])],
            ..HandMade::new(name, 1)
        };
        run.write(folder.path())
    };
    let refused = compare(2, &run("one", None), &run("two", Some("large")), &[]);
    for part in [
        "agent_reliability",
        "large f32 (in `two`)",
        "mini f32 (in `one`)",
        "can't be compared",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
}
