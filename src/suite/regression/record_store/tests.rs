use chrono::TimeZone;

use super::super::record::tests::record;
use super::*;

fn saved(store: &RecordStore, id: &str, day: u32, status: RunStatus) {
    let mut record = record(id, &[("a", 0.9)]);
    record.head.timestamp = Utc.with_ymd_and_hms(2026, 6, day, 10, 0, 0).unwrap();
    record.head.status = status;
    store.save(&record).unwrap();
}

fn ids(store: &RecordStore, filter: &RunFilter) -> Vec<String> {
    let runs = store.list(filter).unwrap().runs;
    runs.into_iter().map(|run| run.run_id).collect()
}

fn store() -> (tempfile::TempDir, RecordStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = RecordStore::at(folder.path().join("runs"));
    (folder, store)
}

#[test]
fn records_are_listed_newest_first_and_filtered() {
    let (_folder, store) = store();
    assert!(ids(&store, &RunFilter::default()).is_empty());
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    saved(&store, "run_20260603_cccccc", 3, RunStatus::Failed);
    saved(&store, "run_20260602_bbbbbb", 2, RunStatus::Passed);
    let all = [
        "run_20260603_cccccc",
        "run_20260602_bbbbbb",
        "run_20260601_aaaaaa",
    ];
    assert_eq!(ids(&store, &RunFilter::default()), all);
    let passed = RunFilter {
        status: Some(RunStatus::Passed),
        limit: 1,
        ..RunFilter::default()
    };
    assert_eq!(ids(&store, &passed), [all[1]]);
    let other = RunFilter {
        suite: Some("other".to_owned()),
        ..RunFilter::default()
    };
    assert!(ids(&store, &other).is_empty());
    let branch = RunFilter {
        branch: Some("dev".to_owned()),
        ..RunFilter::default()
    };
    assert!(ids(&store, &branch).is_empty());
}

#[test]
fn a_record_is_never_replaced() {
    let (_folder, store) = store();
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    let again = store.save(&record("run_20260601_aaaaaa", &[("b", 0.1)]));
    assert!(matches!(again, Err(StoreError::Taken(_))), "{again:?}");
    assert_eq!(
        store.load("run_20260601_aaaaaa").unwrap().cases[0].case.id,
        "a"
    );
}

#[test]
fn corrupt_records_are_skipped_and_told_of() {
    let (_folder, store) = store();
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    let folder = store.folder().to_owned();
    fs::write(folder.join("run_20260605_dddddd.json"), "{\"run_id\": ").unwrap();
    // Readable as far as lists look, corrupt in a case.
    let mut text = record("run_20260606_eeeeee", &[("a", 0.9)]).to_json();
    text["timestamp"] = "2026-06-06T10:00:00Z".into();
    text["test_case_results"][0]["metric_results"]["format"]["score"] = "high".into();
    fs::write(folder.join("run_20260606_eeeeee.json"), text.to_string()).unwrap();
    // Under the name of another run.
    let text = record("run_20260607_ffffff", &[("a", 0.9)]).to_json();
    fs::write(folder.join("run_20260608_gggggg.json"), text.to_string()).unwrap();
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    let listing = store.list(&RunFilter::default()).unwrap();
    assert_eq!((listing.runs.len(), listing.skipped.len()), (2, 2));
    let now = Utc.with_ymd_and_hms(2026, 6, 7, 0, 0, 0).unwrap();
    let config = RegressionConfig::default();
    let baseline = store.baseline("qa", Some("main"), &config, Compat::Document, now);
    let baseline = baseline.unwrap();
    assert_eq!(baseline.record.unwrap().head.run_id, "run_20260601_aaaaaa");
    assert_eq!(baseline.notices.len(), 3, "{:?}", baseline.notices);
}

#[test]
fn an_old_baseline_and_that_of_another_branch_are_told_of() {
    let (_folder, store) = store();
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    let config = RegressionConfig::default();
    let notices = |branch: &str, day: u32| {
        let now = Utc.with_ymd_and_hms(2026, 6, day, 10, 0, 1).unwrap();
        let found = store.baseline("qa", Some(branch), &config, Compat::Document, now);
        found.unwrap().notices
    };
    assert!(notices("main", 7).is_empty());
    assert!(notices("main", 8)[0].contains("7 days old"));
    assert!(notices("feature/x", 7)[0].contains("`feature-x`"));
    let off = RegressionConfig {
        enabled: false,
        ..RegressionConfig::default()
    };
    let now = Utc::now();
    let none = store
        .baseline("qa", None, &off, Compat::Document, now)
        .unwrap();
    assert!(none.record.is_none());
}

#[test]
fn the_newest_run_that_passed_stays_however_many_fail_after_it() {
    let (_folder, store) = store();
    let all: Vec<String> = (1..=4)
        .map(|day| format!("run_2026060{day}_aaaaaa"))
        .collect();
    for (day, id) in (1..).zip(&all) {
        let status = match day {
            1 | 2 => RunStatus::Passed,
            _ => RunStatus::Failed,
        };
        saved(&store, id, day, status);
    }
    assert_eq!(
        store.prune(1, None).unwrap(),
        [all[2].clone(), all[0].clone()]
    );
    let config = RegressionConfig::default();
    let found = store.baseline("qa", None, &config, Compat::Document, Utc::now());
    assert_eq!(found.unwrap().record.unwrap().head.run_id, all[1]);
}

#[test]
fn old_records_go_and_pinned_ones_stay() {
    let (_folder, store) = store();
    let all: Vec<String> = (1..=6)
        .map(|day| format!("run_2026060{day}_aaaaaa"))
        .collect();
    for (day, id) in (1..).zip(&all) {
        saved(&store, id, day, RunStatus::Failed);
    }
    let mut other = record("run_20260601_zzzzzz", &[("a", 0.9)]);
    other.head.golden_set_name = "other".to_owned();
    other.head.timestamp = DateTime::UNIX_EPOCH;
    store.save(&other).unwrap();
    assert_eq!(store.pin(&all[0]).unwrap(), "qa");
    let removed = store.prune(2, Some(&all[1])).unwrap();
    assert_eq!(removed, [all[3].clone(), all[2].clone()]);
    let left = ids(&store, &RunFilter::default());
    let kept = [&all[5], &all[4], &all[1], &all[0]].map(String::as_str);
    assert_eq!(left[..4], kept);
    assert_eq!(left[4..], ["run_20260601_zzzzzz"]);
    // The pinned run is the baseline, though it failed.
    let config = RegressionConfig::default();
    let found = store.baseline("qa", None, &config, Compat::Document, Utc::now());
    assert_eq!(found.unwrap().record.unwrap().head.run_id, all[0]);
    assert_eq!(store.unpin(Some("other")).unwrap(), Vec::<String>::new());
    assert_eq!(store.unpin(None).unwrap(), [all[0].clone()]);
    assert!(store.pins().unwrap().is_empty());
    let found = store.baseline("qa", None, &config, Compat::Document, Utc::now());
    assert!(found.unwrap().record.is_none());
}

#[test]
fn an_unknown_run_is_named_with_the_nearest_and_no_path_leaves_the_folder() {
    let (_folder, store) = store();
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    let told = store.load("run_20260601_aaaaab").unwrap_err().to_string();
    assert!(
        told.contains("did you mean `run_20260601_aaaaaa`"),
        "{told}"
    );
    assert!(matches!(store.load("../secret"), Err(StoreError::BadId(_))));
    assert!(matches!(store.pin(""), Err(StoreError::BadId(_))));
}

/// Writers at the same time, each saving and removing: no record is lost or half there.
#[test]
fn several_runs_may_write_at_the_same_time() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for run in 0..4 {
                    saved(
                        store,
                        &format!("run_20260601_w{writer}r{run}xx"),
                        1,
                        RunStatus::Passed,
                    );
                    store.prune(8, None).unwrap();
                    assert!(
                        store
                            .list(&RunFilter::default())
                            .unwrap()
                            .skipped
                            .is_empty()
                    );
                }
            });
        }
    });
    let listing = store.list(&RunFilter::default()).unwrap();
    assert_eq!((listing.runs.len(), listing.skipped.len()), (8, 0));
    let hidden = fs::read_dir(store.folder()).unwrap().flatten();
    let hidden = hidden.filter(|of| of.file_name().to_string_lossy().contains("partial"));
    assert_eq!(hidden.count(), 0);
}

/// What a killed writer leaves is no record, and goes with the next writer.
#[test]
fn a_half_written_record_is_never_seen() {
    let (_folder, store) = store();
    saved(&store, "run_20260601_aaaaaa", 1, RunStatus::Passed);
    let whole = record("run_20260602_bbbbbb", &[("a", 0.9)])
        .to_json()
        .to_string();
    let left = store.folder().join(".nightmill-partial-x7");
    fs::write(&left, &whole[..whole.len() / 2]).unwrap();
    let listing = store.list(&RunFilter::default()).unwrap();
    assert_eq!((listing.runs.len(), listing.skipped.len()), (1, 0));
    saved(&store, "run_20260602_bbbbbb", 2, RunStatus::Passed);
    assert!(!left.exists());
}

#[test]
fn records_of_the_tool_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("regtrace.config.yaml");
    let own = folder.path().join(".nightmill/suite-runs");
    assert_eq!(RecordStore::beside(&config).folder(), own);
    let of_tool = folder.path().join(".regtrace/runs");
    fs::create_dir_all(&of_tool).unwrap();
    assert_eq!(RecordStore::beside(&config).folder(), of_tool);
}
