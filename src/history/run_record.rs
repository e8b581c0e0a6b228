//! The record of a run, as far as its manifest knows it (as in PandaProbe).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::metric::CONVERSATION;
use crate::output::manifest::RETRY_OF;

/// What a run was asked, for lists of runs. Null stands where a run has no such thing, or its manifest does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunRecord {
    /// Metrics that were asked for. Signals that the run takes up for them alone are not among them.
    pub metric_names: Option<Vec<String>>,
    /// What chose the targets of the run, or else the traces that its judges were asked about: filters by key; `condition`, an
    /// SQL condition on signals; `retry_of`, the run whose failures it asked again.
    pub filters: Option<Map<String, Value>>,
    /// The share of them that was taken, 0 to 1.
    pub sampling_rate: Option<f64>,
    /// The model that judges asked, where metrics name none of their own.
    pub model: Option<String>,
    /// The monitor that the run is of.
    pub monitor_id: Option<String>,
    /// The run whose failures it asked again.
    pub retry_of: Option<String>,
}

/// What a manifest holds of the record.
#[derive(Default, Deserialize)]
pub(in crate::history) struct Recorded {
    metric_names: Option<Vec<String>>,
    rules: Option<Rules>,
    judge: Option<Judge>,
    request: Option<Request>,
    monitor_id: Option<String>,
}

#[derive(Deserialize)]
struct Rules {
    metrics: Vec<String>,
}

#[derive(Deserialize)]
struct Judge {
    model: Option<String>,
    #[serde(default)]
    filters: Map<String, Value>,
    condition: Option<String>,
    sample: Option<f64>,
    conversation: Option<ConversationJudge>,
}

#[derive(Deserialize)]
struct ConversationJudge {
    model: Option<String>,
}

#[derive(Deserialize)]
struct Request {
    targets: Option<Targets>,
}

#[derive(Deserialize)]
struct Targets {
    #[serde(default)]
    filters: Map<String, Value>,
    sampling_rate: Option<f64>,
}

impl From<Recorded> for RunRecord {
    fn from(recorded: Recorded) -> Self {
        let of_rules = recorded.rules.map(|rules| rules.metrics);
        let metric_names = recorded.metric_names.or(of_rules);
        let talks_alone = metric_names
            .as_ref()
            .is_some_and(|names| names.iter().all(|name| name == CONVERSATION));
        let targets = recorded.request.and_then(|request| request.targets);
        let (mut filters, mut sampling_rate) = match targets {
            Some(targets) => (targets.filters, targets.sampling_rate),
            None => (Map::new(), None),
        };
        let (mut model, mut retry_of) = (None, None);
        if let Some(judge) = recorded.judge {
            let of_conversations = judge.conversation.and_then(|judge| judge.model);
            model = match talks_alone {
                true => of_conversations.or(judge.model),
                false => judge.model,
            };
            let old = judge.filters.get(RETRY_OF).and_then(Value::as_str);
            retry_of = old.map(str::to_owned);
            // A retry asks about all that failed, whatever share the old run took.
            sampling_rate = match retry_of {
                Some(_) => judge.sample,
                None => sampling_rate.or(judge.sample),
            };
            filters.extend(judge.filters);
            if let Some(condition) = judge.condition {
                filters.insert("condition".into(), condition.into());
            }
        }
        Self {
            metric_names,
            filters: (!filters.is_empty()).then_some(filters),
            sampling_rate,
            model,
            monitor_id: recorded.monitor_id,
            retry_of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(manifest: Value) -> Value {
        let recorded: Recorded = serde_json::from_value(manifest).unwrap();
        serde_json::to_value(RunRecord::from(recorded)).unwrap()
    }

    #[test]
    fn what_a_run_does_not_have_is_null() {
        let nothing = json!({"metric_names": null, "filters": null, "sampling_rate": null, "model": null,
            "monitor_id": null, "retry_of": null});
        assert_eq!(record(json!({})), nothing);
        let scored =
            json!({"rules": {"metrics": ["coherence"]}, "judge": null, "request": {"paths": []}});
        let mut expected = nothing;
        expected["metric_names"] = json!(["coherence"]);
        assert_eq!(record(scored), expected);
    }

    #[test]
    fn a_judged_run_and_the_run_of_a_monitor_say_what_was_chosen() {
        let judge = json!({"model": "openai/a", "filters": {"status": "ERROR"}, "condition": "coherence < 0.6",
            "sample": 0.5, "conversation": null});
        let names = json!(["confidence"]);
        let judged = record(json!({"rules": {"metrics": names}, "judge": judge}));
        assert_eq!(
            judged["filters"],
            json!({"status": "ERROR", "condition": "coherence < 0.6"})
        );
        assert_eq!(
            (&judged["sampling_rate"], &judged["model"]),
            (&json!(0.5), &json!("openai/a"))
        );

        // The judge of a monitor is asked about all targets.
        let judge = json!({"model": "openai/a", "filters": {}, "condition": null, "sample": 1.0});
        let targets = json!({"target_type": "SESSION", "filters": {"has_error": true}, "sampling_rate": 0.25,
            "seed": 0});
        let monitored = json!({"monitor_id": "nightly", "metric_names": ["agent_reliability"], "judge": judge,
            "rules": {"metrics": ["agent_reliability", "confidence"]}, "request": {"targets": targets}});
        let told = record(monitored.clone());
        assert_eq!(told["metric_names"], json!(["agent_reliability"]));
        assert_eq!(told["filters"], json!({"has_error": true}));
        assert_eq!(told["sampling_rate"], 0.25);
        assert_eq!(told["monitor_id"], "nightly");

        let mut retried = monitored;
        retried["judge"]["filters"] = json!({"retry_of": "night"});
        let told = record(retried);
        assert_eq!(
            told["filters"],
            json!({"has_error": true, "retry_of": "night"})
        );
        assert_eq!(
            (&told["sampling_rate"], &told["retry_of"]),
            (&json!(1.0), &json!("night"))
        );
    }

    #[test]
    fn conversations_alone_name_the_model_that_judges_them() {
        let judge = json!({"model": "openai/a", "conversation": {"model": "openai/b"}});
        for (names, model) in [
            (json!(["conversation"]), "openai/b"),
            (json!(["conversation", "confidence"]), "openai/a"),
        ] {
            let told = record(json!({"rules": {"metrics": names}, "judge": judge}));
            assert_eq!(told["model"], model);
        }
    }
}
