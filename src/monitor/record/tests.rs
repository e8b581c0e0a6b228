use super::samples::{at, created};
use super::*;
use serde_json::json;

fn object(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

#[test]
fn a_new_monitor_is_active_and_due_at_the_next_time() {
    let monitor = created(json!({
        "metric_names": ["agent_consistency", "agent_reliability", "agent_consistency"]
    }))
    .unwrap();
    assert_eq!(monitor.status, MonitorStatus::Active);
    assert_eq!(monitor.next_run_at, Some(at("2026-02-01T03:00:00Z")));
    assert_eq!((monitor.last_run_at, &monitor.last_run_id), (None, &None));
    assert_eq!(
        monitor.metric_names,
        ["agent_consistency", "agent_reliability"]
    );
    assert!(monitor.only_if_changed);
    assert_eq!(monitor.sampling_rate, SamplingRate::ALL);
    assert_eq!(monitor.run_name(), "[Monitor] Nightly Support");
    assert!(!monitor.is_due(at("2026-02-01T02:59:59Z")));
    assert!(monitor.is_due(at("2026-02-01T03:00:00Z")));
}

#[test]
fn what_is_wrong_is_named() {
    for (wrong, expected) in [
        (json!({"name": " "}), "a name"),
        (
            json!({"metric_names": []}),
            "agent_reliability, agent_consistency",
        ),
        (
            json!({"metric_names": ["agent_reliabilty"]}),
            "did you mean `agent_reliability`",
        ),
        (
            json!({"filters": {"sampling": 1}}),
            "unknown field `sampling`",
        ),
        (json!({"filters": {"min_trace_count": 0}}), "nonzero"),
        (json!({"filters": {"date_from": "soon"}}), "`soon`"),
        // What JSON makes of a weight that is NaN.
        (
            json!({"filters": {"signal_weights": {"coherence": null}}}),
            "null",
        ),
        (json!({"sampling_rate": 1.5}), "1.5"),
        (json!({"cadence": "hourly"}), "`hourly`"),
        (json!({"cadence": "cron:0 0 31 2 *"}), "never fires"),
        (json!({"paths": []}), "paths"),
        (
            json!({"paths": ["/data", "traces/*.parquet"]}),
            "`traces/*.parquet`",
        ),
        (json!({"out": "runs"}), "`runs`"),
        (
            json!({"target_type": "TRACE", "filters": {"signal_weights": {}}}),
            "signal weights",
        ),
        (
            json!({"target_type": "TRACE", "filters": {"has_error": true}}),
            "unknown field `has_error`",
        ),
    ] {
        let error = created(wrong.clone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
    assert!(serde_json::from_value::<NewMonitor>(json!({"nam": "x"})).is_err());
}

#[test]
fn pausing_and_resuming_twice_is_as_once() {
    let mut monitor = created(json!({})).unwrap();
    monitor.pause(at("2026-01-31T04:00:00Z"));
    let paused = monitor.clone();
    assert_eq!(paused.status, MonitorStatus::Paused);
    assert_eq!(paused.next_run_at, None);
    assert!(!paused.is_due(at("2027-01-01")));
    monitor.pause(at("2026-01-31T05:00:00Z"));
    assert_eq!(monitor, paused);

    monitor.resume(at("2026-01-31T06:00:00Z")).unwrap();
    let resumed = monitor.clone();
    assert_eq!(resumed.status, MonitorStatus::Active);
    assert_eq!(resumed.next_run_at, Some(at("2026-02-01T06:00:00Z")));
    assert_eq!(resumed.updated_at, at("2026-01-31T06:00:00Z"));
    monitor.resume(at("2026-01-31T07:00:00Z")).unwrap();
    assert_eq!(monitor, resumed);
}

#[test]
fn a_new_cadence_counts_from_now() {
    let mut monitor = created(json!({})).unwrap();
    let now = at("2026-01-31T10:00:00Z");
    monitor.change_cadence(Cadence::Daily, now).unwrap();
    assert_eq!(monitor.next_run_at, Some(at("2026-02-01T03:00:00Z")));
    monitor.change_cadence(Cadence::Every6h, now).unwrap();
    assert_eq!(monitor.next_run_at, Some(at("2026-01-31T16:00:00Z")));
    monitor.pause(now);
    monitor.change_cadence(Cadence::Weekly, now).unwrap();
    assert_eq!(monitor.next_run_at, None);
    assert_eq!(monitor.cadence, Cadence::Weekly);
}

#[test]
fn replacing_filters_keeps_signal_weights_unless_given() {
    let now = at("2026-02-02");
    let mut monitor = created(json!({
        "filters": {"user_id": "u1", "signal_weights": {"coherence": 0.5}}
    }))
    .unwrap();
    let filters = |monitor: &Monitor| serde_json::to_value(monitor).unwrap()["filters"].clone();

    monitor
        .replace_filters(object(json!({"tags": ["a"]})), now)
        .unwrap();
    let kept = json!({"tags": ["a"], "signal_weights": {"coherence": 0.5}});
    assert_eq!(filters(&monitor), kept);
    assert_eq!(monitor.updated_at, now);

    let before = monitor.clone();
    assert!(
        monitor
            .replace_filters(object(json!({"tag": "a"})), at("2026-02-03"))
            .is_err()
    );
    assert_eq!(monitor, before);

    let given = json!({"signal_weights": {"confidence": 2.0}});
    monitor.replace_filters(object(given.clone()), now).unwrap();
    assert_eq!(filters(&monitor), given);
    monitor
        .replace_filters(object(json!({"signal_weights": null})), now)
        .unwrap();
    assert_eq!(filters(&monitor), json!({}));
}

#[test]
fn advancing_moves_active_monitors_only() {
    let mut monitor = created(json!({"cadence": "cron:0 3 * * *"})).unwrap();
    monitor.advance(at("2026-02-05T12:00:00Z")).unwrap();
    assert_eq!(monitor.next_run_at, Some(at("2026-02-06T03:00:00Z")));
    monitor.pause(at("2026-02-05T12:00:00Z"));
    monitor.advance(at("2026-02-05T12:00:00Z")).unwrap();
    assert_eq!(monitor.next_run_at, None);
}

#[test]
fn records_are_read_as_they_were_written() {
    for (target, metric, filters) in [
        (
            "SESSION",
            "agent_reliability",
            json!({"has_error": true, "signal_weights": {"coherence": 0.5}}),
        ),
        (
            "TRACE",
            "agent_reliability",
            json!({"name": "x", "date_from": "2026-01-01T00:00:00.000000001Z"}),
        ),
    ] {
        let mut monitor = created(json!({
            "target_type": target, "metric_names": [metric], "filters": filters,
            "sampling_rate": 0.1, "settings": {"window": "4"},
        }))
        .unwrap();
        let mark = |path: &str| FileMark {
            path: path.into(),
            size: 7,
            modified: at("2026-01-31T03:00:00.123456789Z"),
            rows: Some(3),
        };
        let now = at("2026-02-01T03:00:00Z");
        monitor.finish("run-1".into(), now, vec![mark("/data/b"), mark("/data/a")]);
        assert_eq!(monitor.seen, [mark("/data/a"), mark("/data/b")]);
        assert_eq!(monitor.last_run_at, Some(now));
        let text = serde_json::to_string(&monitor).unwrap();
        assert_eq!(Monitor::from_json(&text).unwrap(), monitor);
        assert!(
            text.contains(&format!("\"target_type\":\"{target}\"")),
            "{text}"
        );

        for (wrong, expected) in [
            (text.replacen('{', "{\"pause\":1,", 1), "`pause`"),
            (
                text.replacen("\"next_run_at\"", "\"next_run\"", 1),
                "`next_run_at`",
            ),
            (
                text.replacen("\"filters\":{", "\"filters\":{\"x\":1,", 1),
                "`x`",
            ),
            (text.replacen("0.1", "1.1", 1), "1.1"),
            (text.replacen("daily", "dayly", 1), "`dayly`"),
            (text[..text.len() - 1].to_owned(), "EOF"),
            ("[]".to_owned(), "map"),
        ] {
            let problem = Monitor::from_json(&wrong).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}

#[test]
fn ids_are_readable_and_never_used_twice() {
    let now = at("2026-01-31");
    let id = monitor_id("Größe: Nightly  Support!", now);
    let (slug, tail) = id.rsplit_once('-').unwrap();
    assert_eq!(slug, "gr-e-nightly-support");
    assert!(tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_ne!(id, monitor_id("Größe: Nightly  Support!", at("2026-02-01")));
    assert!(monitor_id("夜", now).starts_with("monitor-"));
    assert!(monitor_id("../../x", now).starts_with("x-"));
    assert!(monitor_id(&"a".repeat(500), now).len() <= LONGEST_SLUG + 9);
}
