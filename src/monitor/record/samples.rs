//! Monitors for tests.

use super::*;

pub(in super::super) fn at(text: &str) -> DateTime<Utc> {
    crate::text::parse_instant(text).unwrap()
}

pub(in super::super) fn new(json: Value) -> NewMonitor {
    let mut all = serde_json::json!({
        "name": "Nightly Support", "target_type": "SESSION", "metric_names": ["agent_reliability"],
        "cadence": "daily", "paths": ["/data/traces"], "out": "/data/runs",
    });
    let (all_keys, given) = (all.as_object_mut().unwrap(), json.as_object().unwrap());
    all_keys.extend(given.clone());
    serde_json::from_value(all).unwrap()
}

pub(in super::super) fn created(json: Value) -> Result<Monitor, MonitorError> {
    let known = ["agent_reliability", "agent_consistency"];
    Monitor::create(new(json), &known, at("2026-01-31T03:00:00Z"))
}
