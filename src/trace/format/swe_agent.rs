//! SWE-agent trajectories (`.traj`): each step of the agent is a trace.

use serde_json::Value;

use super::said::{content_of_message, role};
use super::trajectory::{Session, Step, Turn, kept, openai_calls, plain};
use super::values::{at, text, unwrapped};
use super::{ArrayIs, Call, Format, Parts, Payload, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "swe-agent",
    title: "SWE-agent trajectories (.traj)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "session and number of the step"),
        ("session_id", "file name"),
        ("input", "the task, then the observation of the step before"),
        ("output", "trajectory[].thought and action"),
        (
            "spans",
            "history[].tool_calls, else action, with its observation",
        ),
        ("model", "replay_config.agent.model.name"),
        ("metadata", "info.exit_status, info.model_stats (whole run)"),
    ],
};

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let history = sample.document.get("history")?.as_array()?;
    let is_history = !history.is_empty()
        && history.iter().all(|message| {
            role(message).is_some() && message.get("agent").is_some_and(Value::is_string)
        });
    let steps = sample.document.get("trajectory");
    let is_trajectory = match steps {
        None => history.iter().any(|m| m.get("action").is_some()),
        Some(steps) => steps.as_array()?.iter().all(|step| {
            step.get("action").is_some_and(Value::is_string) && step.get("observation").is_some()
        }),
    };
    (is_history && is_trajectory).then(|| match steps {
        Some(_) => "has trajectory[] with action and observation, and history[]".to_owned(),
        None => "has history[] with role, agent and action".to_owned(),
    })
}

/// A step, from either list.
#[derive(Default)]
struct Done {
    words: Option<String>,
    action: Option<String>,
    calls: Vec<Call>,
    observation: Option<String>,
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let history = list(&document, "history")?;
    let config = document.get("replay_config").cloned().map(unwrapped);
    let config = config.unwrap_or_default();
    let mut seen = task(history).or_else(|| text(at(&config, "problem_statement.text")));
    let from_history = of_history(history);
    let steps = match document.get("trajectory") {
        Some(_) => of_trajectory(list(&document, "trajectory")?, from_history),
        None => from_history,
    };
    let model = text(at(&config, "agent.model.name"));
    let info = document.get("info").cloned().unwrap_or_default();
    let mut metadata = kept(&info, &["exit_status", "model_stats"]);
    metadata.extend(kept(&document, &["environment"]));
    let mut session = Session {
        id: place.stem.to_owned(),
        common: TraceFacts {
            name: text(at(&config, "problem_statement.id")),
            metadata,
            ..TraceFacts::default()
        },
        turns: Vec::new(),
    };
    for done in steps {
        let mut calls = done.calls;
        if calls.is_empty() {
            calls.extend(done.action.as_deref().and_then(command));
        }
        if let Some(first) = calls.first_mut() {
            first.result = plain(done.observation.clone());
        }
        let lines = [done.words.as_deref(), done.action.as_deref()];
        let lines = lines.into_iter().flatten().map(str::trim);
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        session.turns.push(Turn {
            input: plain(seen.take()),
            output: plain(Some(lines.join("\n"))),
            steps: vec![Step {
                said: done.words,
                calls,
                model: model.clone(),
                ..Step::default()
            }],
            ..Turn::default()
        });
        seen = done.observation;
    }
    if let Some(last) = session.turns.last_mut() {
        last.metadata.extend(kept(&info, &["submission"]));
        // `exit_cost`, `exit_context`, …: the run was ended, the agent did not finish. `submitted (exit_cost)` has an answer.
        last.error = text(info.get("exit_status")).filter(|status| status.starts_with("exit_"));
    }
    session.write(parts);
    Ok(())
}

fn list<'v>(document: &'v Value, name: &str) -> Result<&'v Vec<Value>, String> {
    let list = document.get(name).and_then(Value::as_array);
    list.ok_or_else(|| format!("`{name}` is no list: give the file as SWE-agent wrote it"))
}

fn is_demo(message: &Value) -> bool {
    message.get("is_demo").and_then(Value::as_bool) == Some(true)
}

/// The user's last message before the agent's first: demonstrations come before the task.
fn task(history: &[Value]) -> Option<String> {
    let own = history.iter().filter(|message| !is_demo(message));
    let before = own.take_while(|message| role(message).as_deref() != Some("assistant"));
    let of_user = before.filter(|message| role(message).as_deref() == Some("user"));
    content_of_message(of_user.last()?)
}

fn of_history(history: &[Value]) -> Vec<Done> {
    let mut steps: Vec<Done> = Vec::new();
    for message in history.iter().filter(|message| !is_demo(message)) {
        match (role(message).as_deref(), steps.last_mut()) {
            (Some("assistant"), _) => steps.push(Done {
                words: text(message.get("thought")).or_else(|| content_of_message(message)),
                action: text(message.get("action")),
                calls: openai_calls(message),
                observation: None,
            }),
            (Some("user" | "tool"), Some(step)) if step.observation.is_none() => {
                step.observation = content_of_message(message);
            }
            _ => {}
        }
    }
    steps
}

/// The steps, with the calls of the messages that have the same actions: history may miss some, and holds them in order.
fn of_trajectory(steps: &[Value], history: Vec<Done>) -> Vec<Done> {
    let mut history = history.into_iter().peekable();
    let mut done = Vec::with_capacity(steps.len());
    for step in steps {
        let action = text(step.get("action"));
        let same = history.next_if(|message| message.action == action);
        done.push(Done {
            words: text(step.get("thought")).or_else(|| text(step.get("response"))),
            action,
            calls: same.map(|message| message.calls).unwrap_or_default(),
            observation: text(step.get("observation")),
        });
    }
    done
}

/// A call out of a command's text: its first word is the tool.
fn command(action: &str) -> Option<Call> {
    let name = action.split_whitespace().next()?;
    Some(Call {
        name: name.to_owned(),
        arguments: Some(Payload::text(action.trim())),
        ..Call::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn traj() -> Value {
        json!({"environment": "main", "info": {"exit_status": "exit_cost", "model_stats": {"instance_cost": 1.5}},
        "replay_config": "{\"agent\": {\"model\": {\"name\": \"m\"}}}",
        "trajectory": [
            {"action": "ls -F\n", "observation": "a.py", "thought": "Look.\n", "response": "Look.\n```\nls -F\n```"},
            {"action": "edit a.py", "observation": "done", "thought": "", "response": ""},
        ],
        "history": [
            {"role": "system", "content": "Rules", "agent": "main"},
            {"role": "user", "content": "Demo", "agent": "main", "is_demo": true},
            {"role": "user", "content": "Fix it", "agent": "main"},
            {"role": "assistant", "content": "Look.", "action": "ls -F\n", "agent": "main"},
            {"role": "user", "content": "a.py", "agent": "main"},
            {"role": "assistant", "content": "", "action": "edit a.py", "agent": "main", "tool_calls": [
                {"id": "c", "function": {"name": "edit", "arguments": "{\"file\": \"a.py\"}"}}]},
        ]})
    }

    #[test]
    fn each_step_is_a_trace() {
        let document = traj();
        let sample = Sample {
            file_name: "r.traj",
            document: &document,
            columns: &[],
        };
        assert!(recognise(&sample).is_some());
        let mut parts = Parts::default();
        read(document, &Place { stem: "r", row: 0 }, &mut parts).unwrap();
        let texts: Vec<_> = parts
            .traces
            .iter()
            .map(|t| (t.input.clone().unwrap().raw, t.output.clone().unwrap().raw))
            .collect();
        assert_eq!(
            texts,
            [
                ("Fix it".to_owned(), "Look.\nls -F".to_owned()),
                ("a.py".to_owned(), "edit a.py".to_owned()),
            ]
        );
        assert_eq!(parts.traces[0].error, None);
        assert_eq!(parts.traces[1].error.as_deref(), Some("exit_cost"));
        assert_eq!(
            parts.traces[1].metadata["model_stats"]["instance_cost"],
            1.5
        );
        let spans: Vec<_> = parts
            .spans
            .iter()
            .map(|s| (s.kind.as_str(), s.name.as_str()))
            .collect();
        assert_eq!(
            spans,
            [
                ("AGENT", "turn"),
                ("LLM", "answer"),
                ("TOOL", "ls"),
                ("AGENT", "turn"),
                ("LLM", "answer"),
                ("TOOL", "edit")
            ]
        );
        assert_eq!(parts.spans[1].model.as_deref(), Some("m"));
        assert_eq!(parts.spans[2].output.as_ref().unwrap().raw, "a.py");
        assert_eq!(
            parts.spans[5].input.as_ref().unwrap().raw,
            "{\"file\": \"a.py\"}"
        );
    }

    #[test]
    fn history_alone_will_do() {
        let mut document = traj();
        document.as_object_mut().unwrap().remove("trajectory");
        let mut parts = Parts::default();
        read(document, &Place { stem: "r", row: 0 }, &mut parts).unwrap();
        assert_eq!(parts.traces.len(), 2);
        assert_eq!(parts.traces[1].input.as_ref().unwrap().raw, "a.py");
    }
}
