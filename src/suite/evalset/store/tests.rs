//! Both kinds of stores keep the same promises.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::suite::evalset::environment::Environment;
use crate::suite::evalset::locator::Locator;

fn environment() -> Environment {
    Environment::of(|name| (name == "NM_KEY").then(|| "opensesame".to_owned()))
}

fn local_metrics(folder: &Path) -> LocalMetrics {
    LocalMetrics::new(Locator::of_metrics(folder), environment())
}

fn case(id: &str) -> EvalCase {
    EvalCase {
        id: id.to_owned(),
        conversation: vec![Some(Invocation::default()), None],
        ..EvalCase::default()
    }
}

fn metric(name: &str) -> EvalMetric {
    EvalMetric {
        name: name.to_owned(),
        threshold: Some(1.0),
        ..EvalMetric::default()
    }
}

fn is_missing<T: std::fmt::Debug>(result: Result<T, StoreError>) -> bool {
    result.unwrap_err().is_not_found()
}

fn exists_already(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::Exists { .. }))
}

fn sets_keep_their_promises(sets: &dyn EvalSets) {
    assert!(is_missing(sets.get("app", "s")));
    assert!(is_missing(sets.add_case("app", "s", &case("a"))));
    assert!(is_missing(sets.delete("app", "s")));
    assert_eq!(sets.list("app").unwrap(), [""; 0]);
    let created = sets.create("app", "s").unwrap();
    assert_eq!((created.id.as_str(), created.name.as_str()), ("s", "s"));
    assert!(created.created.is_some());
    assert!(exists_already(sets.create("app", "s").map(|_| ())));
    assert_eq!(sets.list("app").unwrap(), ["s"]);
    assert_eq!(sets.list("other").unwrap(), [""; 0]);

    sets.add_case("app", "s", &case("a")).unwrap();
    assert!(exists_already(sets.add_case("app", "s", &case("a"))));
    sets.add_case("app", "s", &case("b")).unwrap();
    let kept = sets.case("app", "s", "a").unwrap();
    assert!(kept.created.is_some());
    assert!(kept.conversation[0].as_ref().unwrap().created.is_some());
    assert!(is_missing(sets.case("app", "s", "c")));

    // What was handed out is a value of its own.
    let mut copy = sets.get("app", "s").unwrap().value;
    copy.cases.clear();
    assert_eq!(sets.get("app", "s").unwrap().value.cases.len(), 2);

    let changed = EvalCase {
        mode: "trace".into(),
        ..case("a")
    };
    sets.update_case("app", "s", &changed).unwrap();
    assert_eq!(sets.case("app", "s", "a").unwrap().mode, "trace");
    assert!(is_missing(sets.update_case("app", "s", &case("c"))));
    sets.delete_case("app", "s", "a").unwrap();
    assert!(is_missing(sets.delete_case("app", "s", "a")));
    for (app, set, id) in [("", "s", "b"), ("app", "", "b"), ("app", "s", "")] {
        let error = sets.case(app, set, id).unwrap_err();
        assert!(matches!(error, StoreError::NoName { .. }), "{error}");
        assert!(matches!(
            sets.add_case(app, set, &case(id)),
            Err(StoreError::NoName { .. })
        ));
    }
    sets.delete("app", "s").unwrap();
    assert!(is_missing(sets.get("app", "s")));
}

fn metrics_keep_their_promises(metrics: &dyn EvalMetrics) {
    assert_eq!(metrics.list("app", "s").unwrap(), [""; 0]);
    assert!(is_missing(metrics.get("app", "s", "m")));
    assert!(is_missing(metrics.update("app", "s", &metric("m"))));
    assert!(is_missing(metrics.delete("app", "s", "m")));
    metrics.add("app", "s", &metric("z")).unwrap();
    metrics.add("app", "s", &metric("m")).unwrap();
    assert!(exists_already(metrics.add("app", "s", &metric("m"))));
    assert_eq!(metrics.list("app", "s").unwrap(), ["z", "m"]);
    let changed = EvalMetric {
        threshold: Some(0.25),
        ..metric("z")
    };
    metrics.update("app", "s", &changed).unwrap();
    assert_eq!(metrics.get("app", "s", "z").unwrap().threshold, Some(0.25));
    metrics.delete("app", "s", "z").unwrap();
    assert_eq!(metrics.list("app", "s").unwrap(), ["m"]);
    for (app, set, name) in [("", "s", "m"), ("app", "", "m"), ("app", "s", "")] {
        assert!(matches!(
            metrics.get(app, set, name),
            Err(StoreError::NoName { .. })
        ));
        let added = metrics.add(app, set, &metric(name));
        assert!(matches!(added, Err(StoreError::NoName { .. })));
    }
}

fn results_keep_their_promises(results: &dyn EvalResults) {
    assert!(is_missing(results.get("app", "r")));
    assert_eq!(results.list("app").unwrap(), [""; 0]);
    let result = EvalSetResult {
        set_id: "s".into(),
        ..EvalSetResult::default()
    };
    let id = results.save("app", &result).unwrap();
    let uuid = id.strip_prefix("app_s_").unwrap();
    assert_eq!(uuid::Uuid::parse_str(uuid).unwrap().get_version_num(), 4);
    let kept = results.get("app", &id).unwrap().value;
    assert_eq!((&kept.id, &kept.name), (&id, &id));
    assert!(kept.created.is_some());
    let named = EvalSetResult {
        id: "mine".into(),
        ..result.clone()
    };
    assert_eq!(results.save("app", &named).unwrap(), "mine");
    assert_eq!(results.list("app").unwrap(), [id, "mine".to_owned()]);
    for (app, set) in [("", "s"), ("app", "")] {
        let result = EvalSetResult {
            set_id: set.into(),
            ..EvalSetResult::default()
        };
        assert!(matches!(
            results.save(app, &result),
            Err(StoreError::NoName { .. })
        ));
    }
}

#[test]
fn stores_in_memory_keep_their_promises() {
    sets_keep_their_promises(&MemorySets::default());
    metrics_keep_their_promises(&MemoryMetrics::default());
    results_keep_their_promises(&MemoryResults::default());
}

#[test]
fn stores_in_files_keep_their_promises() {
    let folder = tempfile::tempdir().unwrap();
    sets_keep_their_promises(&LocalSets::new(Locator::of_sets(folder.path())));
    metrics_keep_their_promises(&local_metrics(folder.path()));
    results_keep_their_promises(&LocalResults::new(Locator::of_results(folder.path())));
    let names = std::fs::read_dir(folder.path().join("app")).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| !name.ends_with(".tmp")),
        "{names:?}"
    );
}

/// 8 threads, each with cases of its own.
fn nothing_is_lost(sets: &dyn EvalSets) {
    sets.create("app", "s").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for i in 0..8 {
                    sets.add_case("app", "s", &case(&format!("{thread}-{i}")))
                        .unwrap();
                    sets.get("app", "s").unwrap();
                }
            });
        }
    });
    assert_eq!(sets.get("app", "s").unwrap().value.cases.len(), 64);
}

#[test]
fn cases_added_at_once_are_all_there() {
    let folder = tempfile::tempdir().unwrap();
    nothing_is_lost(&LocalSets::new(Locator::of_sets(folder.path())));
    nothing_is_lost(&MemorySets::default());
}

#[test]
fn two_stores_over_one_folder_never_mix_what_they_write() {
    let folder = tempfile::tempdir().unwrap();
    let results = || LocalResults::new(Locator::of_results(folder.path()));
    let (a, b) = (results(), results());
    let result = |name: &str| EvalSetResult {
        id: "r".into(),
        name: name.repeat(10_000),
        set_id: "s".into(),
        ..EvalSetResult::default()
    };
    a.save("app", &result("a")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|_| drop(a.save("app", &result("a")).unwrap())));
        scope.spawn(|| (0..20).for_each(|_| drop(b.save("app", &result("b")).unwrap())));
        for _ in 0..50 {
            let name = a.get("app", "r").unwrap().value.name;
            assert!(name == "a".repeat(10_000) || name == "b".repeat(10_000));
        }
    });
}

#[test]
fn a_metrics_file_that_changes_keeps_placeholders_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("app")).unwrap();
    let path = folder.path().join("app/s.metrics.json");
    let text = r#"[{"metricName": "m", "threshold": 1, "criterion": {"llmJudge": {"judgeModel":
        {"modelName": "${NM_KEY}-model", "apiKey": "${NM_KEY}"}}}}]"#;
    std::fs::write(&path, text).unwrap();
    let metrics = local_metrics(folder.path());
    metrics.add("app", "s", &metric("n")).unwrap();
    let bare = EvalMetric::from_json(
        serde_json::json!({"metricName": "m", "threshold": 0.5, "criterion": {"llmJudge": {"judgeModel":
            {"modelName": "opensesame-model", "apiKey": "typed-in"}}}}),
        &environment(),
    )
    .unwrap();
    let bare = EvalMetric {
        unexpanded: Default::default(),
        ..bare
    };
    metrics.update("app", "s", &bare).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("opensesame") && !text.contains("typed-in"),
        "{text}"
    );
    let written: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written[0]["threshold"], 0.5);
    let model = &written[0]["criterion"]["llmJudge"]["judgeModel"];
    assert_eq!(model["modelName"], "${NM_KEY}-model");
    assert_eq!(model["apiKey"], "${NM_KEY}");
    assert_eq!(written[1]["metricName"], "n");
}

#[test]
fn files_under_the_other_name_are_read_and_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("app")).unwrap();
    let at = |name: &str| folder.path().join("app").join(name);
    std::fs::write(
        at("s.metric.json"),
        r#"[{"metricName": "m", "threshold": 1}]"#,
    )
    .unwrap();
    std::fs::write(at("r.evalresult.json"), r#"{"evalSetId": "s"}"#).unwrap();
    let metrics = local_metrics(folder.path());
    let all = metrics.all("app", "s").unwrap();
    assert_eq!(all.warnings.len(), 1);
    assert!(
        all.warnings[0].contains("s.metric.json: read in place of"),
        "{:?}",
        all.warnings
    );
    metrics.add("app", "s", &metric("n")).unwrap();
    assert!(at("s.metrics.json").is_file());
    assert_eq!(metrics.list("app", "s").unwrap(), ["m", "n"]);
    let results = LocalResults::new(Locator::of_results(folder.path()));
    assert_eq!(results.list("app").unwrap(), ["r"]);
    assert_eq!(results.get("app", "r").unwrap().warnings.len(), 1);
    assert_eq!(metrics.all("app", "none").unwrap().warnings.len(), 1);
}

#[test]
fn an_id_that_is_not_the_name_is_told_and_says_where_changes_go() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("app")).unwrap();
    let at = |name: &str| folder.path().join("app").join(name);
    std::fs::write(at("a.evalset.json"), r#"{"evalSetId": "b", "later": 1}"#).unwrap();
    std::fs::write(at("c.evalset.json"), r#"{"evalSetId": "../c"}"#).unwrap();
    let sets = LocalSets::new(Locator::of_sets(folder.path()));
    assert_eq!(sets.get("app", "a").unwrap().warnings.len(), 1);
    sets.add_case("app", "a", &case("x")).unwrap();
    let written = sets.get("app", "b").unwrap();
    assert_eq!((written.value.cases.len(), written.warnings.len()), (1, 0));
    assert_eq!(written.value.rest["later"], 1);
    assert!(sets.get("app", "a").unwrap().value.cases.is_empty());
    let escaping = sets.add_case("app", "c", &case("x"));
    assert!(matches!(escaping, Err(StoreError::Locator(_))));
}

#[test]
fn a_broken_file_is_another_error_than_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("app")).unwrap();
    let path = folder.path().join("app/s.metrics.json");
    std::fs::write(&path, r#"[{"metricName":"m","threshold":1,}]"#).unwrap();
    let error = local_metrics(folder.path()).all("app", "s").unwrap_err();
    assert!(!error.is_not_found());
    assert!(
        error.to_string().contains("s.metrics.json: not valid JSON"),
        "{error}"
    );
}

#[test]
fn files_are_for_others_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let sets = LocalSets::new(Locator::of_sets(folder.path().join("deep/er")));
    sets.create("app", "s").unwrap();
    let path = folder.path().join("deep/er/app/s.evalset.json");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o444;
    assert_eq!(mode(&path), 0o444);
    assert_eq!(mode(path.parent().unwrap()), 0o444);
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("}\n"));
}
