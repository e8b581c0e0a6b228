//! Filters: which traces and sessions a run evaluates (as in PandaProbe).
//!
//! All filters given must hold. A key that is no filter is an error.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::text::{optional_instant, parse_instant};
use crate::trace::{canonical_trace_id, label};

/// The state of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TraceStatus {
    /// Not started.
    Pending,
    /// Going on.
    Running,
    /// Ended well: what a trace without status is taken for.
    #[default]
    Completed,
    /// Ended with an error.
    Error,
}

impl TraceStatus {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Completed, Self::Error];

    /// Its name, as in scores and filters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Error => "ERROR",
        }
    }

    /// A status as sources spell it, in any case; unknown ones, such as `ok`, are ended well.
    pub fn named(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "error" | "failed" | "failure" => Self::Error,
            "running" => Self::Running,
            "pending" => Self::Pending,
            _ => Self::Completed,
        }
    }
}

/// What filters look at in a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceFacts<'a> {
    /// Canonical trace id.
    pub trace_id: &'a str,
    /// Start of the trace.
    pub started_at: DateTime<Utc>,
    /// State of the trace.
    pub status: TraceStatus,
    /// Name of the trace.
    pub name: Option<&'a str>,
    /// Session of the trace.
    pub session_id: Option<&'a str>,
    /// User of the trace.
    pub user_id: Option<&'a str>,
    /// Tags, in any order.
    pub tags: &'a [&'a str],
    /// Environment, such as `production`.
    pub environment: Option<&'a str>,
    /// Release of the agent.
    pub release: Option<&'a str>,
}

impl TraceFacts<'_> {
    /// Shows the facts of a document to `look`, given its id and members. None for one without a readable start: it is
    /// not scored.
    pub fn of_document<T>(
        trace_id: &str,
        members: &Map<String, Value>,
        look: impl FnOnce(&TraceFacts<'_>) -> T,
    ) -> Option<T> {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let started_at = text("started_at").and_then(|t| parse_instant(t).ok())?;
        let tags: Vec<&str> = match members.get("tags") {
            Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(tag)) => vec![tag],
            _ => Vec::new(),
        };
        // Whole numbers are labels like texts.
        let [name, session_id, user_id, environment, release] =
            ["name", "session_id", "user_id", "environment", "release"]
                .map(|name| label(members, name));
        Some(look(&TraceFacts {
            trace_id,
            started_at,
            status: text("status").map_or_else(TraceStatus::default, TraceStatus::named),
            name: name.as_deref(),
            session_id: session_id.as_deref(),
            user_id: user_id.as_deref(),
            tags: &tags,
            environment: environment.as_deref(),
            release: release.as_deref(),
        }))
    }
}

/// A half-open stretch of time with open ends: `from <= time < to`.
fn is_between(time: DateTime<Utc>, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> bool {
    from.is_none_or(|from| time >= from) && to.is_none_or(|to| time < to)
}

/// A filter without value lets everything through; null equals nothing.
fn is_equal(fact: Option<&str>, filter: Option<&str>) -> bool {
    filter.is_none() || fact == filter
}

/// An empty list of tags lets everything through.
fn has_any(tags: &[&str], filter: &[String]) -> bool {
    filter.is_empty() || filter.iter().any(|tag| tags.contains(&tag.as_str()))
}

/// Which traces a trace run evaluates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFilters {
    /// `started_at` is this or later. ISO 8601; without zone it is UTC.
    #[serde(with = "optional_instant", skip_serializing_if = "Option::is_none")]
    pub date_from: Option<DateTime<Utc>>,
    /// `started_at` is earlier than this.
    #[serde(with = "optional_instant", skip_serializing_if = "Option::is_none")]
    pub date_to: Option<DateTime<Utc>>,
    /// The trace has this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TraceStatus>,
    /// The trace belongs to this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The trace belongs to this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The trace has at least one of these tags. Empty: no filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The name contains this text, in any case. No wildcards. Empty: no filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The trace has this environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The trace has this release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The trace is one of these: UUIDs in any spelling, other ids byte for byte. An empty list names no
    /// trace, so none matches.
    #[serde(
        deserialize_with = "trace_ids",
        skip_serializing_if = "Option::is_none"
    )]
    pub trace_ids: Option<Ids>,
}

impl TraceFilters {
    /// Whether a trace passes all filters.
    pub fn matches(&self, trace: &TraceFacts<'_>) -> bool {
        is_between(trace.started_at, self.date_from, self.date_to)
            && self.status.is_none_or(|status| status == trace.status)
            && is_equal(trace.session_id, self.session_id.as_deref())
            && is_equal(trace.user_id, self.user_id.as_deref())
            && has_any(trace.tags, &self.tags)
            && self.name.as_deref().is_none_or(|part| {
                part.is_empty()
                    || trace
                        .name
                        .is_some_and(|name| name.to_lowercase().contains(&part.to_lowercase()))
            })
            && is_equal(trace.environment, self.environment.as_deref())
            && is_equal(trace.release, self.release.as_deref())
            && self
                .trace_ids
                .as_ref()
                .is_none_or(|ids| ids.contains(trace.trace_id))
    }

    /// Whether the trace of a document, by its id and members, passes all filters. One without a readable start is not
    /// scored, so that it never passes.
    pub fn matches_document(&self, trace_id: &str, members: &Map<String, Value>) -> bool {
        TraceFacts::of_document(trace_id, members, |trace| self.matches(trace)).unwrap_or(false)
    }
}

/// An explicit list of ids: first-seen order, no duplicates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Ids {
    listed: Vec<String>,
    known: HashSet<String>,
}

impl Ids {
    /// A list of trace ids: UUIDs become canonical, empty ids are left out.
    pub fn of_traces(ids: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        ids.into_iter()
            .filter_map(|id| canonical_trace_id(id.as_ref()))
            .collect::<Vec<String>>()
            .into()
    }

    /// The ids, distinct, in the order given.
    pub fn listed(&self) -> &[String] {
        &self.listed
    }

    /// Whether an id is in the list.
    pub fn contains(&self, id: &str) -> bool {
        self.known.contains(id)
    }
}

impl From<Vec<String>> for Ids {
    fn from(ids: Vec<String>) -> Self {
        let mut known = HashSet::new();
        let listed = ids
            .into_iter()
            .filter(|id| known.insert(id.clone()))
            .collect();
        Self { listed, known }
    }
}

impl From<Ids> for Vec<String> {
    fn from(ids: Ids) -> Self {
        ids.listed
    }
}

fn trace_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ids>, D::Error> {
    let ids = Option::<Vec<String>>::deserialize(deserializer)?;
    Ok(ids.map(Ids::of_traces))
}

/// Which sessions a session run evaluates. Dates, user and tags select traces; the others look at how
/// many of the selected traces a session has. The run then uses all traces of the session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionFilters {
    /// Traces with `started_at` at this instant or later. ISO 8601; without zone it is UTC.
    #[serde(with = "optional_instant", skip_serializing_if = "Option::is_none")]
    pub date_from: Option<DateTime<Utc>>,
    /// Traces with `started_at` earlier than this.
    #[serde(with = "optional_instant", skip_serializing_if = "Option::is_none")]
    pub date_to: Option<DateTime<Utc>>,
    /// Traces of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Traces with at least one of these tags. Empty: no filter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// True: some matching trace has status `ERROR`. False: none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_error: Option<bool>,
    /// At least this many matching traces; 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_trace_count: Option<std::num::NonZeroU32>,
    /// The session is one of these; tables have them by their ids. An empty list names no session, so none matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_ids: Option<Ids>,
    /// Weights of the session metrics' signals, by name, over the defaults. They select nothing; monitors
    /// keep them here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_weights: Option<BTreeMap<String, f64>>,
}

/// How many traces of one session match its filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTally {
    /// Traces that match.
    pub matching: u64,
    /// Those of them with status `ERROR`.
    pub errors: u64,
}

impl SessionTally {
    /// Counts a trace of the session.
    pub fn add(&mut self, filters: &SessionFilters, trace: &TraceFacts<'_>) {
        if filters.selects(trace) {
            self.matching += 1;
            self.errors += u64::from(trace.status == TraceStatus::Error);
        }
    }
}

impl SessionFilters {
    /// Whether a trace passes the filters that look at traces.
    pub fn selects(&self, trace: &TraceFacts<'_>) -> bool {
        is_between(trace.started_at, self.date_from, self.date_to)
            && is_equal(trace.user_id, self.user_id.as_deref())
            && has_any(trace.tags, &self.tags)
    }

    /// Whether a session is evaluated, given the tally of all its traces: at least one trace matches, and
    /// all filters hold.
    pub fn matches(&self, session_id: &str, tally: SessionTally) -> bool {
        let least = self.min_trace_count.map_or(1, |least| least.get());
        tally.matching >= u64::from(least)
            && self
                .has_error
                .is_none_or(|has_error| has_error == (tally.errors > 0))
            && self
                .session_ids
                .as_ref()
                .is_none_or(|ids| ids.contains(session_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_sources_write_them() {
        let filters: TraceFilters =
            serde_json::from_str(r#"{"status": "ERROR", "tags": ["b"]}"#).unwrap();
        let matches =
            |document: Value| filters.matches_document("t", document.as_object().unwrap());
        let start = "2026-01-01T00:00:00Z";
        let passing =
            serde_json::json!({"started_at": start, "status": "failed", "tags": ["a", "b"]});
        assert!(matches(passing));
        assert!(matches(
            serde_json::json!({"started_at": start, "status": "Error", "tags": "b"})
        ));
        assert!(!matches(
            serde_json::json!({"started_at": start, "status": "ok", "tags": "b"})
        ));
        assert!(!matches(
            serde_json::json!({"started_at": "soon", "status": "error", "tags": "b"})
        ));
    }
    use crate::text::parse_instant;

    const UUID: &str = "41637175-2745-49c5-9b57-e656eb7a20f4";

    fn trace() -> TraceFacts<'static> {
        TraceFacts {
            trace_id: UUID,
            started_at: parse_instant("2026-01-31T18:00:00Z").unwrap(),
            status: TraceStatus::Error,
            name: Some("Größe 100%_ÄNDERN"),
            session_id: Some("s1"),
            user_id: Some("u1"),
            tags: &["red", "blue"],
            environment: Some("production"),
            release: Some("1.2"),
        }
    }

    fn bare() -> TraceFacts<'static> {
        TraceFacts {
            trace_id: "t2",
            status: TraceStatus::default(),
            name: None,
            session_id: None,
            user_id: None,
            tags: &[],
            environment: None,
            release: None,
            ..trace()
        }
    }

    fn filters(json: &str) -> TraceFilters {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_filter_admits_and_refuses() {
        for (admits, refuses) in [
            (
                r#"{"date_from":"2026-01-31T18:00:00"}"#,
                r#"{"date_from":"2026-01-31T18:00:00.001"}"#,
            ),
            (
                r#"{"date_to":"2026-01-31T18:00:00.001"}"#,
                r#"{"date_to":"2026-01-31T18:00:00"}"#,
            ),
            (
                r#"{"date_from":"2026-01-31T20:00:00+02:00"}"#,
                r#"{"date_from":"2026-01-31T20:00:00+01:00"}"#,
            ),
            (r#"{"status":"ERROR"}"#, r#"{"status":"COMPLETED"}"#),
            (r#"{"session_id":"s1"}"#, r#"{"session_id":"S1"}"#),
            (r#"{"user_id":"u1"}"#, r#"{"user_id":"u"}"#),
            (
                r#"{"tags":["green","blue"]}"#,
                r#"{"tags":["green","Blue"]}"#,
            ),
            (r#"{"tags":[]}"#, r#"{"tags":[""]}"#),
            (r#"{"name":"ÖßE"}"#, r#"{"name":"Größe%ändern"}"#),
            (r#"{"name":"100%_ändern"}"#, r#"{"name":"10._"}"#),
            (
                r#"{"environment":"production"}"#,
                r#"{"environment":"prod"}"#,
            ),
            (r#"{"release":"1.2"}"#, r#"{"release":"1.2.0"}"#),
            (
                r#"{"trace_ids":["x","41637175274549C59B57E656EB7A20F4"]}"#,
                r#"{"trace_ids":["x"]}"#,
            ),
            (r#"{"user_id":null}"#, r#"{"trace_ids":[]}"#),
        ] {
            assert!(filters(admits).matches(&trace()), "{admits}");
            assert!(!filters(refuses).matches(&trace()), "{refuses}");
        }
    }

    #[test]
    fn names_of_states_are_those_of_filters() {
        for status in TraceStatus::ALL {
            let json = format!(r#"{{"status":"{}"}}"#, status.name());
            assert_eq!(filters(&json).status, Some(status));
            assert_eq!(TraceStatus::named(status.name()), status);
        }
    }

    #[test]
    fn null_equals_nothing() {
        assert!(filters("{}").matches(&bare()));
        assert!(filters(r#"{"tags":[],"name":"","status":"COMPLETED"}"#).matches(&bare()));
        for refuses in [
            r#"{"session_id":""}"#,
            r#"{"user_id":"u1"}"#,
            r#"{"tags":["red"]}"#,
            r#"{"name":"a"}"#,
            r#"{"environment":"production"}"#,
            r#"{"release":"1.2"}"#,
        ] {
            assert!(!filters(refuses).matches(&bare()), "{refuses}");
        }
    }

    #[test]
    fn all_filters_must_hold() {
        assert!(filters(r#"{"status":"ERROR","user_id":"u1"}"#).matches(&trace()));
        assert!(!filters(r#"{"status":"ERROR","user_id":"u2"}"#).matches(&trace()));
    }

    #[test]
    fn unknown_keys_and_values_are_errors() {
        for wrong in [
            r#"{"sessionid":"s1"}"#,
            r#"{"has_error":true}"#,
            r#"{"signal_weights":{}}"#,
            r#"{"status":"error"}"#,
            r#"{"date_from":"yesterday"}"#,
            r#"{"tags":"red"}"#,
        ] {
            assert!(
                serde_json::from_str::<TraceFilters>(wrong).is_err(),
                "{wrong}"
            );
        }
        for wrong in [r#"{"status":"ERROR"}"#, r#"{"min_trace_count":0}"#] {
            assert!(
                serde_json::from_str::<SessionFilters>(wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn filters_are_written_as_they_are_read() {
        let text = r#"{"date_from":"2026-01-31T00:00:00Z","status":"ERROR","tags":["a"],"trace_ids":["b","a"]}"#;
        assert_eq!(serde_json::to_string(&filters(text)).unwrap(), text);
        assert_eq!(serde_json::to_string(&filters("{}")).unwrap(), "{}");
        let listed = filters(r#"{"trace_ids":["b","a","b",""]}"#)
            .trace_ids
            .unwrap();
        assert_eq!(listed.listed(), ["b", "a"]);
    }

    fn tally(filters: &SessionFilters, traces: &[TraceFacts<'_>]) -> SessionTally {
        let mut tally = SessionTally::default();
        traces.iter().for_each(|trace| tally.add(filters, trace));
        tally
    }

    #[test]
    fn a_session_needs_one_matching_trace() {
        for (json, counts) in [
            ("{}", true),
            (r#"{"user_id":"u1"}"#, true),
            (r#"{"user_id":"u2"}"#, false),
            (r#"{"tags":["blue"],"min_trace_count":1}"#, true),
            (r#"{"tags":["blue"],"min_trace_count":2}"#, false),
            (r#"{"min_trace_count":2}"#, true),
            (r#"{"has_error":true}"#, true),
            (r#"{"has_error":false}"#, false),
            (r#"{"session_ids":["s2","s1"]}"#, true),
            (r#"{"session_ids":["s2"]}"#, false),
            (r#"{"session_ids":[]}"#, false),
            (r#"{"signal_weights":{"coherence":0.5}}"#, true),
            (r#"{"date_to":"2026-01-31"}"#, false),
        ] {
            let filters: SessionFilters = serde_json::from_str(json).unwrap();
            let tally = tally(&filters, &[trace(), bare()]);
            assert_eq!(filters.matches("s1", tally), counts, "{json}");
        }
    }

    #[test]
    fn errors_count_among_matching_traces_only() {
        let fine = TraceFacts {
            user_id: Some("u2"),
            status: TraceStatus::Completed,
            ..trace()
        };
        let filters: SessionFilters =
            serde_json::from_str(r#"{"user_id":"u2","has_error":false}"#).unwrap();
        // The trace with the error is another user's.
        assert!(filters.matches("s1", tally(&filters, &[trace(), fine])));
        // No matching trace: there is no error, but no session either.
        assert!(!filters.matches("s1", tally(&filters, &[trace()])));
    }

    #[test]
    fn listed_sessions_keep_their_order() {
        let filters: SessionFilters =
            serde_json::from_str(r#"{"session_ids":["b","a","b"]}"#).unwrap();
        assert_eq!(filters.session_ids.unwrap().listed(), ["b", "a"]);
    }
}
