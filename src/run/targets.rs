//! Choosing the targets of a run, before anything is computed (as in PandaProbe).
//!
//! A pass over small columns finds the traces of the targets; a session brings all of its traces, also those that its
//! filters do not match. All other traces are neither embedded nor judged nor written. Beside the ids of the traces
//! taken, memory grows with the sessions, and with the traces whose ids repeat.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::ScoreRequest;
use crate::output::RunError;
use crate::run::stages;
use crate::selection::{
    Ids, Ranking, SessionFilters, SessionTally, TargetChoice, TargetFilters, TraceFacts,
    sample_of_sessions,
};
use crate::trace::{DocumentSource, RowAt, SessionKey, TraceError};

/// The traces of the targets that a choice takes.
///
/// # Errors
/// [`TraceError`] for a file that breaks in the middle, unless broken files are passed over.
pub(super) fn choose(
    choice: &TargetChoice,
    documents: &DocumentSource,
) -> Result<HashSet<String>, TraceError> {
    let ranking = Ranking::new(choice.seed);
    match &choice.filters {
        TargetFilters::Trace(filters) => {
            let mut matching = Vec::new();
            documents.read_facts(|trace_id, members, _| {
                if filters.matches_document(trace_id, members) {
                    matching.push(trace_id.to_owned());
                }
            })?;
            if let Some(ids) = &filters.trace_ids {
                let found: HashSet<&str> = matching.iter().map(String::as_str).collect();
                tell_missing("trace", ids, |id| found.contains(id));
            }
            let taken = ranking.sample(matching, choice.sampling_rate);
            Ok(taken.into_iter().collect())
        }
        TargetFilters::Session(filters) => {
            let sessions = matching_sessions(filters, documents)?;
            if let Some(ids) = &filters.session_ids {
                let found: HashSet<&str> =
                    sessions.iter().map(|key| key.session_id.as_str()).collect();
                tell_missing("session", ids, |id| found.contains(id));
            }
            let taken = sample_of_sessions(sessions, |key| key, &ranking, choice.sampling_rate);
            let taken: HashSet<SessionKey> = taken.into_iter().collect();
            let mut traces = HashSet::new();
            documents.read_facts(|trace_id, members, _| {
                if SessionKey::of_document(members).is_some_and(|key| taken.contains(&key)) {
                    traces.insert(trace_id.to_owned());
                }
            })?;
            Ok(traces)
        }
    }
}

/// Says which of the named targets are not among those that pass.
fn tell_missing(target: &str, ids: &Ids, found: impl Fn(&str) -> bool) {
    let missing: Vec<&String> = ids.listed().iter().filter(|id| !found(id)).collect();
    if let Some(first) = missing.first() {
        tracing::warn!(
            "{} of {} named {target}s are not there, or don't pass the filters; the first is {first:?}",
            missing.len(),
            ids.listed().len()
        );
    }
}

/// Whether one of the files `among` those of a request holds a trace that filters match: of a session that passes them,
/// if they are filters of sessions. A trace is looked at whole, with its rows in other files.
///
/// # Errors
/// [`RunError`] if the files can't be listed or read.
pub fn any_match(
    filters: &TargetFilters,
    request: &ScoreRequest,
    among: &[PathBuf],
) -> Result<bool, RunError> {
    // Spans of a trace may be in any of the files of another format: which trace is new can't be told by one of them.
    if filters.take_all() || !request.found.foreign.is_empty() {
        return Ok(!among.is_empty());
    }
    let files = request.found.native.clone();
    let documents = stages::documents(request, files, &std::env::temp_dir())?;
    let sessions = match filters {
        TargetFilters::Trace(_) => HashSet::new(),
        TargetFilters::Session(filters) => {
            let sessions = matching_sessions(filters, &documents)?;
            sessions.into_iter().collect()
        }
    };
    let mut found = false;
    let is_new = |at: &RowAt| {
        let file = documents.file_of(*at);
        file.is_some_and(|file| among.iter().any(|changed| changed == file))
    };
    documents.read_facts(|trace_id, members, rows| {
        if found || !rows.iter().any(is_new) {
            return;
        }
        found = match filters {
            TargetFilters::Trace(filters) => filters.matches_document(trace_id, members),
            TargetFilters::Session(filters) => {
                let selects =
                    TraceFacts::of_document(trace_id, members, |trace| filters.selects(trace));
                let session = SessionKey::of_document(members);
                selects == Some(true) && session.is_some_and(|key| sessions.contains(&key))
            }
        };
    })?;
    Ok(found)
}

fn matching_sessions(
    filters: &SessionFilters,
    documents: &DocumentSource,
) -> Result<Vec<SessionKey>, TraceError> {
    let mut tallies: HashMap<SessionKey, SessionTally> = HashMap::new();
    documents.read_facts(|trace_id, members, _| {
        let Some(session) = SessionKey::of_document(members) else {
            return;
        };
        TraceFacts::of_document(trace_id, members, |trace| {
            tallies.entry(session).or_default().add(filters, trace);
        });
    })?;
    let passing = tallies.into_iter();
    let passing = passing.filter(|(key, tally)| filters.matches(&key.session_id, *tally));
    Ok(passing.map(|(key, _)| key).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::trace::{ColumnMap, FactRoom, OnBadFile, Quarantine, discover};

    /// Session `a` of two users, with an error of the second; `b` of the first user; `a` of another project; one trace alone.
    fn rows() -> Vec<Value> {
        let row = |id: &str, session: Option<&str>, user: &str| {
            json!({"trace_id": id, "session_id": session, "user_id": user, "status": "ok",
                   "started_at": "2026-01-01T00:00:00Z"})
        };
        let mut rows = vec![
            row("a1", Some("a"), "u1"),
            row("a2", Some("a"), "u2"),
            row("b1", Some("b"), "u1"),
            row("p1", Some("a"), "u3"),
            row("alone", None, "u1"),
        ];
        rows[1]["status"] = json!("error");
        rows[3]["project_id"] = json!("p");
        rows
    }

    fn chosen_of(rows: &[Value], choice: Value) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl");
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let files = discover(&[path.display().to_string()], None).unwrap();
        let room = FactRoom {
            most_ids: 1000,
            folder: folder.path(),
        };
        let (map, ignored) = (ColumnMap::default(), Quarantine::default());
        let documents = DocumentSource::open(files, map, OnBadFile::Fail, room, &ignored).unwrap();
        let mut all = json!({"sampling_rate": 1.0, "seed": 0});
        let given = choice.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(given);
        let choice: TargetChoice = serde_json::from_value(all).unwrap();
        let mut chosen: Vec<String> = choose(&choice, &documents).unwrap().into_iter().collect();
        chosen.sort();
        chosen
    }

    fn sessions(filters: Value) -> Vec<String> {
        chosen_of(
            &rows(),
            json!({"target_type": "SESSION", "filters": filters}),
        )
    }

    #[test]
    fn a_session_that_passes_brings_all_of_its_traces() {
        assert_eq!(sessions(json!({})), ["a1", "a2", "b1", "p1"]);
        assert_eq!(sessions(json!({"user_id": "u2"})), ["a1", "a2"]);
        assert_eq!(
            sessions(json!({"user_id": "u1", "has_error": false})),
            ["a1", "a2", "b1"]
        );
        assert_eq!(sessions(json!({"has_error": true})), ["a1", "a2"]);
        assert_eq!(sessions(json!({"min_trace_count": 2})), ["a1", "a2"]);
        assert_eq!(sessions(json!({"session_ids": ["b", "c"]})), ["b1"]);
        assert!(sessions(json!({"user_id": "nobody"})).is_empty());
    }

    #[test]
    fn traces_are_taken_one_by_one() {
        let traces =
            |filters| chosen_of(&rows(), json!({"target_type": "TRACE", "filters": filters}));
        assert_eq!(traces(json!({"user_id": "u1"})), ["a1", "alone", "b1"]);
        assert_eq!(traces(json!({"status": "ERROR"})), ["a2"]);
    }

    #[test]
    fn a_rate_takes_whole_sessions_by_their_ids() {
        let mut rows: Vec<Value> = Vec::new();
        for session in 0..10 {
            for trace in 0..3 {
                rows.push(json!({"trace_id": format!("{session}-{trace}"), "session_id": format!("s{session}"),
                    "started_at": "2026-01-01T00:00:00Z"}));
            }
        }
        let sampled = |rows: &[Value], rate: f64, seed: u64| {
            let choice = json!({"target_type": "SESSION", "filters": {}, "sampling_rate": rate, "seed": seed});
            chosen_of(rows, choice)
        };
        assert!(sampled(&rows, 0.0, 0).is_empty());
        let some = sampled(&rows, 0.45, 0);
        assert_eq!(some.len(), 4 * 3, "{some:?}");
        for id in &some {
            let (session, _) = id.split_once('-').unwrap();
            assert!((0..3).all(|trace| some.contains(&format!("{session}-{trace}"))));
        }
        assert!(sampled(&rows, 0.2, 0).iter().all(|id| some.contains(id)));
        assert_ne!(sampled(&rows, 0.45, 1), some);
        rows.reverse();
        assert_eq!(sampled(&rows, 0.45, 0), some);
    }

    #[test]
    fn sessions_of_one_id_in_two_projects_are_two_targets() {
        let choice = json!({"target_type": "SESSION", "filters": {"session_ids": ["a"]}, "sampling_rate": 0.5});
        let one = chosen_of(&rows(), choice);
        assert_eq!(one, ["a1", "a2"]);
    }

    #[test]
    fn rows_of_one_trace_are_looked_at_together() {
        let mut rows = rows();
        rows.push(
            json!({"trace_id": "alone", "session_id": "b", "user_id": "u9",
            "started_at": "2026-01-01T00:00:00Z"}),
        );
        let choice = json!({"target_type": "SESSION", "filters": {"user_id": "u9"}});
        assert_eq!(chosen_of(&rows, choice), ["alone", "b1"]);
        let choice = json!({"target_type": "TRACE", "filters": {"user_id": "u1"}});
        assert_eq!(chosen_of(&rows, choice), ["a1", "b1"]);
    }

    #[test]
    fn whole_numbers_are_labels() {
        let mut rows = rows();
        for row in &mut rows {
            row["user_id"] = json!(42);
            row["session_id"] = json!(7);
        }
        rows[0]["user_id"] = json!(43);
        let chosen = |target: &str, filters: Value| {
            chosen_of(&rows, json!({"target_type": target, "filters": filters}))
        };
        assert_eq!(chosen("TRACE", json!({"user_id": "43"})), ["a1"]);
        assert_eq!(chosen("TRACE", json!({"session_id": "7"})).len(), 5);
        assert_eq!(chosen("SESSION", json!({"user_id": "43"})).len(), 4);
        assert_eq!(chosen("SESSION", json!({"session_ids": ["7"]})).len(), 5);
    }
}
