//! tau-bench results: a list of simulated conversations with a reward each.

use serde_json::Value;

use super::said::{content_of_message, role};
use super::trajectory::{Session, Step, Turn, kept, openai_calls, plain, tool_payload};
use super::values::{at, number, text};
use super::{ArrayIs, Format, Parts, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "tau-bench",
    title: "tau-bench results (JSON)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "session and number of the user's message"),
        ("session_id", "file name, row and task_id"),
        ("input", "traj[]: a message of the user"),
        (
            "output",
            "traj[]: the agent's last message before the user's next",
        ),
        ("spans", "traj[]: the agent's messages and tool_calls"),
        ("user_id", "info.task.user_id"),
        ("metadata", "reward, trial, task_id, info.user_cost"),
    ],
};

/// With it the simulated user ends the conversation; no agent sees the message.
const STOP: &str = "###STOP###";

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let run = sample.document;
    let is_one = run.get("task_id").is_some()
        && run.get("reward").is_some_and(Value::is_number)
        && run.get("info").is_some_and(Value::is_object)
        && run
            .get("traj")?
            .as_array()?
            .iter()
            .all(|m| role(m).is_some());
    is_one.then(|| "has task_id, reward, info and traj[] of messages".to_owned())
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let task = text(document.get("task_id"))
        .ok_or("the run has no `task_id`: give the file as tau-bench wrote it")?;
    let messages = document
        .get("traj")
        .and_then(Value::as_array)
        .ok_or("`traj` is no list of messages: give the file as tau-bench wrote it")?;
    let mut metadata = kept(&document, &["task_id", "trial", "reward"]);
    if let Some(cost) = at(&document, "info.user_cost").filter(|cost| number(Some(cost)).is_some())
    {
        metadata.insert("user_cost".to_owned(), cost.clone());
    }
    let mut session = Session {
        // A file may hold a task more than once with the same trial: the row tells them apart.
        id: format!("{}:{:06}:{task}", place.stem, place.row),
        common: TraceFacts {
            user_id: text(at(&document, "info.task.user_id")),
            metadata,
            ..TraceFacts::default()
        },
        turns: Vec::new(),
    };
    for (index, message) in messages.iter().enumerate() {
        let role = role(message)
            .ok_or_else(|| format!("traj[{index}] has no `role`: it is no message"))?;
        match (role.as_str(), session.turns.last_mut()) {
            ("user", _) => session.turns.push(Turn {
                input: plain(content_of_message(message)),
                ..Turn::default()
            }),
            ("assistant", Some(turn)) => {
                let said = content_of_message(message);
                if said.is_some() {
                    turn.output = plain(said.clone());
                }
                turn.steps.push(Step {
                    said,
                    calls: openai_calls(message),
                    ..Step::default()
                });
            }
            ("tool", Some(turn)) => {
                let id = text(message.get("tool_call_id"));
                turn.answer(id.as_deref(), tool_payload(message.get("content")));
            }
            _ => {}
        }
    }
    let ends = session.turns.last().is_some_and(|turn| {
        let words = turn.input.as_ref().map_or("", |input| input.raw.as_str());
        turn.steps.is_empty() && words.contains(STOP)
    });
    if ends
        && let Some(closing) = session.turns.pop()
        && let (Some(last), Some(words)) = (session.turns.last_mut(), closing.input)
    {
        last.metadata.insert("closing".to_owned(), words.raw.into());
    }
    if let Some(error) = text(at(&document, "info.error")) {
        // Runs that broke off have no messages: the trace tells that there was one.
        if session.turns.is_empty() {
            session.turns.push(Turn::default());
        }
        if let Some(last) = session.turns.last_mut() {
            last.error = Some(error);
        }
    }
    session.write(parts);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_message_of_the_user_begins_a_trace() {
        let run = json!({"task_id": 3, "trial": 1, "reward": 0.0, "info": {"task": {"user_id": "u"}}, "traj": [
            {"role": "system", "content": "Rules"},
            {"role": "user", "content": "Book it"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "function": {"name": "book", "arguments": "{\"seat\": 1}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "Error: full"},
            {"role": "assistant", "content": "It is full."},
            {"role": "user", "content": "Bye ###STOP###"},
        ]});
        let sample = Sample {
            file_name: "r.json",
            document: &run,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(run, &Place { stem: "r", row: 2 }, &mut parts).unwrap();
        assert_eq!(parts.traces.len(), 1);
        let trace = &parts.traces[0];
        assert_eq!(trace.trace_id, "r:000002:3:0000");
        assert_eq!(trace.input.as_ref().unwrap().raw, "Book it");
        assert_eq!(trace.output.as_ref().unwrap().raw, "It is full.");
        assert_eq!(trace.metadata["reward"], 0.0);
        assert_eq!(trace.metadata["closing"], "Bye ###STOP###");
        assert_eq!(trace.user_id.as_deref(), Some("u"));
        let tool = parts.spans.iter().find(|s| s.kind == kind::TOOL).unwrap();
        assert_eq!(tool.name, "book");
        assert_eq!(tool.input.as_ref().unwrap().raw, "{\"seat\": 1}");
        assert_eq!(tool.error.as_deref(), Some("Error: full"));
    }

    #[test]
    fn a_run_that_broke_off_is_a_trace_with_its_error() {
        let run = json!({"task_id": 1, "reward": 0.0, "info": {"error": "timed out"}, "traj": []});
        let mut parts = Parts::default();
        read(run, &Place { stem: "r", row: 0 }, &mut parts).unwrap();
        assert_eq!(parts.traces[0].error.as_deref(), Some("timed out"));
    }
}
