//! Evaluation cases out of a warehouse of traces: one case a session, one turn a trace.

use std::ops::ControlFlow;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::locator::Locator;
use super::model::{EpochTime, EvalCase, EvalSet, Invocation, Message, SessionInput, ToolUse};
use super::store::LocalSets;
use crate::conversation::from_traces::{ChosenSession, choose, read_sessions};
use crate::conversation::transcript_of_traces::{
    said_by_agent, said_by_user, sort_traces, tool_spans,
};
use crate::output::RunError;
use crate::selection::{DEFAULT_SEED, Ranking, SamplingRate};
use crate::text::parse_instant;
use crate::trace::{
    ColumnMap, DocumentSource, FactRoom, OnBadFile, Quarantine, SessionKey, SourceFormat, Span,
    discover,
};

/// Who is said to have asked where the traces don't say it.
const UNKNOWN_USER: &str = "user";

/// How sessions become cases.
#[derive(Clone, Debug, Default)]
pub struct CaseRules {
    /// The application that the cases are of.
    pub app_name: String,
    /// Fill `actualConversation` with what was done, and `conversation` with the turns' user messages alone. Else
    /// `conversation` says what was done, which older programs read.
    pub as_actual: bool,
}

/// Traces that are to become an evaluation set.
#[derive(Clone, Debug)]
pub struct FromTracesRequest {
    /// Files, folders and globs.
    pub paths: Vec<String>,
    /// Read only files of this format.
    pub format: Option<SourceFormat>,
    /// Names of columns.
    pub map: ColumnMap,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Where the set goes.
    pub sets: Locator,
    /// Its id.
    pub set: String,
    /// Replace a set that is there.
    pub overwrite: bool,
    /// How sessions become cases.
    pub rules: CaseRules,
}

/// What became of traces.
#[derive(Clone, Debug)]
pub struct MadeSet {
    /// The set's file.
    pub file: PathBuf,
    /// Cases, one a session.
    pub cases: u64,
    /// Turns, one a trace.
    pub turns: u64,
    /// Traces that are in no case: they have no session, or no start.
    pub set_aside: u64,
    /// Rows, and files, that could not be read as traces.
    pub unreadable: u64,
}

/// Bytes of the index that finds out which trace ids repeat.
const INDEX_BYTES: usize = 256 << 20;

/// Makes an evaluation set of traces.
///
/// # Errors
/// [`RunError`] if a file can't be read or written, the set is there already, or no trace has a session.
pub fn from_traces(request: &FromTracesRequest) -> Result<MadeSet, RunError> {
    let sets = LocalSets::new(request.sets.clone());
    let (app, id) = (&request.rules.app_name, &request.set);
    let file = request.sets.path(app, id);
    let file = file.map_err(|e| RunError::Request(e.to_string()))?;
    if file.exists() && !request.overwrite {
        return Err(RunError::Request(format!(
            "`{}` is there already; name another --set or --out, or replace it with --overwrite",
            file.display()
        )));
    }
    let files = discover(&request.paths, request.format)?;
    let room = FactRoom {
        most_ids: INDEX_BYTES / 32,
        folder: &std::env::temp_dir(),
    };
    let quarantine = Quarantine::default();
    let (map, on_bad_file) = (request.map.clone(), request.on_bad_file);
    let documents = DocumentSource::open(files, map, on_bad_file, room, &quarantine)?;
    let mut traces: u64 = 0;
    documents.read_facts(|_, _, _| traces += 1)?;
    let mut set = EvalSet {
        id: id.clone(),
        name: id.clone(),
        ..EvalSet::default()
    };
    cases_of_traces(&documents, &request.rules, |case| {
        set.cases.push(case);
        ControlFlow::Continue(())
    })?;
    if set.cases.is_empty() {
        return Err(RunError::Request(
            "no trace has a session, an id and a start: there is nothing to make cases of"
                .to_owned(),
        ));
    }
    let turns: u64 = set
        .cases
        .iter()
        .map(|case| case.conversation.len() as u64)
        .sum();
    sets.put(app, &set)?;
    Ok(MadeSet {
        file,
        cases: set.cases.len() as u64,
        turns,
        set_aside: traces.saturating_sub(turns),
        unreadable: quarantine.rows(),
    })
}

/// Makes cases of all sessions, in the order of their ids; `each` says whether to go on.
///
/// Where traces have a member `expected`, it is the expected final response of their turn: what was done then is
/// `actualConversation`, whatever the rules say.
///
/// # Errors
/// [`RunError`] if a file can't be read.
pub(crate) fn cases_of_traces(
    documents: &DocumentSource,
    rules: &CaseRules,
    mut each: impl FnMut(EvalCase) -> ControlFlow<()>,
) -> Result<(), RunError> {
    let all = |_: &str, _: &Map<String, Value>| true;
    let ranking = Ranking::new(DEFAULT_SEED);
    let sessions: Vec<ChosenSession> =
        choose(documents, all, |_| true, &ranking, SamplingRate::ALL)?;
    read_sessions(documents, &sessions, |key, traces| {
        each(case_of_session(key, traces, rules))
    })
}

/// A session as a case of the mode `trace`.
fn case_of_session(
    key: &SessionKey,
    mut traces: Vec<Map<String, Value>>,
    rules: &CaseRules,
) -> EvalCase {
    sort_traces(&mut traces);
    let user = traces.iter().find_map(|trace| text(trace, "user_id"));
    let done: Vec<Option<Invocation>> = traces.iter().map(|t| Some(invocation(t))).collect();
    let known = traces.iter().any(|trace| text(trace, "expected").is_some());
    let (conversation, actual_conversation) = match known || rules.as_actual {
        false => (done, Vec::new()),
        true => (traces.iter().map(|t| Some(expected(t))).collect(), done),
    };
    EvalCase {
        id: match &key.project_id {
            Some(project) => format!("{project}/{}", key.session_id),
            None => key.session_id.clone(),
        },
        mode: "trace".to_owned(),
        created: traces.first().and_then(started_at),
        conversation,
        actual_conversation,
        session_input: Some(SessionInput {
            app_name: rules.app_name.clone(),
            user_id: user.unwrap_or(UNKNOWN_USER).to_owned(),
            ..SessionInput::default()
        }),
        ..EvalCase::default()
    }
}

/// A trace as the turn that it was.
fn invocation(trace: &Map<String, Value>) -> Invocation {
    Invocation {
        // A turn without a final response is one that answered nothing.
        final_response: said_by_agent(trace).map(|said| message("assistant", said)),
        tools: tool_spans(trace)
            .into_iter()
            .map(|s| Some(tool(s)))
            .collect(),
        ..asked(trace)
    }
}

/// What was expected of the turn: the response, if that is known, and else nothing.
fn expected(trace: &Map<String, Value>) -> Invocation {
    let response = text(trace, "expected");
    Invocation {
        final_response: response.map(|said| message("assistant", said.to_owned())),
        ..asked(trace)
    }
}

fn asked(trace: &Map<String, Value>) -> Invocation {
    Invocation {
        id: text(trace, "trace_id").unwrap_or_default().to_owned(),
        user_content: Some(message("user", said_by_user(trace).unwrap_or_default())),
        created: started_at(trace),
        ..Invocation::default()
    }
}

fn message(role: &str, content: String) -> Message {
    Message {
        role: role.to_owned(),
        content,
        ..Message::default()
    }
}

fn tool(span: Span<'_>) -> ToolUse {
    let result = span.get("output").filter(|output| !output.is_null());
    ToolUse {
        id: span
            .get("span_id")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        name: span.name().to_owned(),
        arguments: opened(span.get("input")),
        result: opened(result.or_else(|| span.get("error"))),
        ..ToolUse::default()
    }
}

/// JSON text as the value that it is; every other value as it stands.
fn opened(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

fn text<'t>(trace: &'t Map<String, Value>, member: &str) -> Option<&'t str> {
    let text = trace.get(member)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

fn started_at(trace: &Map<String, Value>) -> Option<EpochTime> {
    let start = parse_instant(text(trace, "started_at")?).ok()?;
    start.timestamp_nanos_opt().map(EpochTime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn case(traces: Value, as_actual: bool) -> EvalCase {
        let key = SessionKey {
            project_id: Some("shop".into()),
            session_id: "s1".into(),
        };
        let rules = CaseRules {
            app_name: "app".into(),
            as_actual,
        };
        case_of_session(&key, serde_json::from_value(traces).unwrap(), &rules)
    }

    fn two_turns() -> Value {
        json!([
            {"trace_id": "b", "started_at": "2026-01-01T00:00:02Z", "input": "bye", "output": ""},
            {"trace_id": "a", "started_at": "2026-01-01T00:00:01Z", "input": "hi", "output": "hello", "user_id": "u7",
             "spans": [{"span_id": "x", "kind": "tool", "name": "add", "input": "{\"a\": 1}", "output": "two"},
                       {"span_id": "y", "kind": "TOOL", "name": "div", "input": {"a": 0}, "output": null, "error": "zero"}]},
        ])
    }

    #[test]
    fn a_session_is_a_case_with_a_turn_for_each_trace() {
        let case = case(two_turns(), false);
        assert_eq!((case.id.as_str(), case.mode.as_str()), ("shop/s1", "trace"));
        assert_eq!(case.session_input.unwrap().user_id, "u7");
        assert!(case.actual_conversation.is_empty());
        let turns: Vec<Invocation> = case.conversation.into_iter().flatten().collect();
        let ids: Vec<&str> = turns.iter().map(|turn| turn.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        let [first, last] = &turns[..] else { panic!() };
        let tools: Vec<&ToolUse> = first.tools.iter().flatten().collect();
        assert_eq!(tools[0].arguments, json!({"a": 1}));
        assert_eq!(tools[0].result, json!("two"));
        assert_eq!(
            (&tools[1].arguments, &tools[1].result),
            (&json!({"a": 0}), &json!("zero"))
        );
        assert_eq!(last.final_response, None);
        assert_eq!(last.created, Some(EpochTime(1_767_225_602_000_000_000)));
    }

    #[test]
    fn what_is_expected_stands_beside_what_was_done() {
        let plain = case(two_turns(), true);
        let expected = plain.conversation[0].as_ref().unwrap();
        assert_eq!(expected.user_content.as_ref().unwrap().content, "hi");
        assert_eq!(
            (expected.final_response.as_ref(), expected.tools.len()),
            (None, 0)
        );
        assert_eq!(plain.actual_conversation.len(), 2);
        let mut traces = two_turns();
        traces[0]["expected"] = json!("see you");
        let known = case(traces, false);
        let expected = known.conversation[1].as_ref().unwrap();
        assert_eq!(expected.final_response.as_ref().unwrap().content, "see you");
        assert_eq!(known.actual_conversation.len(), 2);
    }
}
