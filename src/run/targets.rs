//! Choosing the targets of a run, before anything is computed (specification, sections 13 and 16).
//!
//! A pass over small columns finds the traces of the targets; a session brings all of its traces, also those that its
//! filters do not match. All other traces are neither embedded nor judged nor written. Beside the ids of the traces
//! taken, memory grows with the sessions, and with the traces where ids repeat.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::conversations::from_traces::SessionKey;
use super::{RunError, ScoreRequest};
use crate::selection::{
    Ranking, SamplingRate, SessionFilters, SessionTally, TargetChoice, TargetFilters, TraceFacts,
    TraceFilters,
};
use crate::trace::{DocumentSource, Members, TraceDocument, TraceError, discover, merge_documents};

/// The traces of the targets that a choice takes. `repeated` says that several rows may make one trace.
///
/// # Errors
/// [`TraceError`] for a file that breaks in the middle.
pub(super) fn choose(
    choice: &TargetChoice,
    documents: &DocumentSource,
    repeated: bool,
) -> Result<HashSet<String>, TraceError> {
    let ranking = Ranking::new(choice.seed);
    match &choice.filters {
        TargetFilters::Trace(filters) => {
            let traces = matching_traces(filters, documents, repeated)?;
            let taken = ranking.sample(traces, choice.sampling_rate);
            Ok(taken.into_iter().collect())
        }
        TargetFilters::Session(filters) => {
            let sessions = matching_sessions(filters, documents, repeated)?;
            let taken = sample_of_sessions(sessions, &ranking, choice.sampling_rate);
            let mut traces = HashSet::new();
            for_each_trace(documents, repeated, |trace_id, members| {
                if SessionKey::of_document(members).is_some_and(|session| taken.contains(&session))
                {
                    traces.insert(trace_id.to_owned());
                }
            })?;
            Ok(traces)
        }
    }
}

/// Whether one of the files `among` those of a request holds a trace that filters match: of a session that passes them,
/// if they are filters of sessions.
///
/// # Errors
/// [`RunError`] if the files can't be listed or read.
pub fn any_match(
    filters: &TargetFilters,
    request: &ScoreRequest,
    among: &[PathBuf],
) -> Result<bool, RunError> {
    if filters.take_all() {
        return Ok(!among.is_empty());
    }
    let files = discover(&request.paths, request.format)?;
    let source = |files| DocumentSource::new(files, request.map.clone());
    let sessions = match filters {
        TargetFilters::Trace(_) => HashSet::new(),
        // A session has traces in any file, and rows of one trace are told apart by the run.
        TargetFilters::Session(filters) => {
            let all = matching_sessions(filters, &source(files.clone()), true)?;
            all.into_iter().collect()
        }
    };
    let changed = files.into_iter().filter(|file| among.contains(&file.path));
    let mut found = false;
    source(changed.collect()).read(Members::Facts, None, |document| {
        let (id, members) = (&document.trace_id, &document.members);
        found = match filters {
            TargetFilters::Trace(filters) => filters.matches_document(id, members),
            TargetFilters::Session(filters) => {
                let selects = TraceFacts::of_document(id, members, |trace| filters.selects(trace));
                selects == Some(true)
                    && SessionKey::of_document(members)
                        .is_some_and(|session| sessions.contains(&session))
            }
        };
        match found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Ok(found)
}

fn matching_traces(
    filters: &TraceFilters,
    documents: &DocumentSource,
    repeated: bool,
) -> Result<Vec<String>, TraceError> {
    let mut matching = Vec::new();
    for_each_trace(documents, repeated, |trace_id, members| {
        if filters.matches_document(trace_id, members) {
            matching.push(trace_id.to_owned());
        }
    })?;
    Ok(matching)
}

fn matching_sessions(
    filters: &SessionFilters,
    documents: &DocumentSource,
    repeated: bool,
) -> Result<Vec<SessionKey>, TraceError> {
    let mut tallies: HashMap<SessionKey, SessionTally> = HashMap::new();
    for_each_trace(documents, repeated, |trace_id, members| {
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

/// Sessions of one id in several projects have one rank; the project then decides.
fn sample_of_sessions(
    mut sessions: Vec<SessionKey>,
    ranking: &Ranking,
    rate: SamplingRate,
) -> HashSet<SessionKey> {
    let taken = rate.count(sessions.len());
    if taken < sessions.len() {
        sessions.sort_by_cached_key(|key| (ranking.rank(&key.session_id), key.project_id.clone()));
        sessions.truncate(taken);
    }
    sessions.into_iter().collect()
}

/// Shows each trace once, in any order: its id and its members, all rows of one id as one.
fn for_each_trace(
    documents: &DocumentSource,
    repeated: bool,
    mut each: impl FnMut(&str, &Map<String, Value>),
) -> Result<(), TraceError> {
    let mut merging: HashMap<String, Map<String, Value>> = HashMap::new();
    documents.read(Members::Facts, None, |document| {
        let TraceDocument {
            trace_id, members, ..
        } = document;
        if !repeated {
            each(&trace_id, &members);
        } else if let Some(earlier) = merging.get_mut(&trace_id) {
            merge_documents(earlier, members);
        } else {
            merging.insert(trace_id, members);
        }
        ControlFlow::Continue(())
    })?;
    merging.iter().for_each(|(id, members)| each(id, members));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trace::ColumnMap;

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
        let documents = DocumentSource::new(files, ColumnMap::default());
        let mut all = json!({"sampling_rate": 1.0, "seed": 0});
        let given = choice.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(given);
        let choice: TargetChoice = serde_json::from_value(all).unwrap();
        let mut chosen: Vec<String> = choose(&choice, &documents, true)
            .unwrap()
            .into_iter()
            .collect();
        chosen.sort();
        let mut once: Vec<String> = choose(&choice, &documents, false)
            .unwrap()
            .into_iter()
            .collect();
        once.sort();
        if rows.len() == self::rows().len() {
            assert_eq!(chosen, once, "no id repeats: {choice:?}");
        }
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
}
