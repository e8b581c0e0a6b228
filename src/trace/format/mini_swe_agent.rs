//! mini-swe-agent trajectories: messages, of which each of the agent's holds one shell command; each step is a trace.

use serde_json::Value;

use super::said::{content_of_message, role};
use super::trajectory::{Session, Step, Turn, kept, openai_calls, plain};
use super::values::{amount, at, count, nanos, text};
use super::{ArrayIs, Call, Format, Parts, Payload, Place, Sample, TraceFacts};

pub(super) static FORMAT: Format = Format {
    name: "mini-swe-agent",
    title: "mini-swe-agent trajectories (.traj.json)",
    array: ArrayIs::OneDocument,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "session and number of the step"),
        ("session_id", "file name"),
        ("input", "the task, then what the command before gave back"),
        ("output", "messages[] of the assistant, with the command"),
        ("spans", "the command in the message, with its return code"),
        ("model", "info.config.model.model_name"),
        (
            "cost_usd",
            "messages[].extra.cost; of the whole run in metadata: info.model_stats",
        ),
    ],
};

/// What the newer files say of themselves.
const MARK: &str = "mini-swe-agent";
/// Fences of commands.
const FENCES: [&str; 3] = ["```mswea_bash_command", "```bash", "```sh"];

fn messages(document: &Value) -> Option<&Vec<Value>> {
    match document {
        Value::Array(messages) => Some(messages),
        _ => document.get("messages")?.as_array(),
    }
}

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let format = text(sample.document.get("trajectory_format"));
    let messages = messages(sample.document)?;
    if format.is_some_and(|format| format.starts_with(MARK)) {
        return Some("trajectory_format is mini-swe-agent".to_owned());
    }
    if messages.is_empty() || !messages.iter().all(|message| role(message).is_some()) {
        return None;
    }
    let mut pairs = messages.windows(2);
    pairs
        .any(|pair| {
            let words = |m: &Value| content_of_message(m).unwrap_or_default();
            role(&pair[0]).as_deref() == Some("assistant")
                && role(&pair[1]).as_deref() == Some("user")
                && command(&words(&pair[0])).is_some()
                && words(&pair[1]).trim_start().starts_with("<returncode>")
        })
        .then(|| "has messages with a shell command each, answered by <returncode>".to_owned())
}

fn read(document: Value, place: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let messages = messages(&document)
        .ok_or("there is no list of messages: give the file as mini-swe-agent wrote it")?;
    let info = document.get("info").cloned().unwrap_or_default();
    let model = text(at(&info, "config.model.model_name"));
    let mut session = Session {
        id: place.stem.to_owned(),
        common: TraceFacts {
            name: text(document.get("instance_id")),
            metadata: kept(&info, &["exit_status", "model_stats", "mini_version"]),
            ..TraceFacts::default()
        },
        turns: Vec::new(),
    };
    let mut seen: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let words = content_of_message(message);
        match role(message).as_deref() {
            Some("assistant") => session.turns.push(step(
                message,
                words,
                std::mem::take(&mut seen),
                model.as_deref(),
            )),
            Some("user" | "tool") => {
                let Some(words) = words else { continue };
                if let Some(turn) = session.turns.last_mut() {
                    let id = text(message.get("tool_call_id"));
                    answer(turn, id.as_deref(), &words);
                }
                seen.push(words);
            }
            Some(_) => {}
            None => return Err(format!("message {index} has no `role`: it is no message")),
        }
    }
    if let Some(last) = session.turns.last_mut() {
        last.metadata.extend(kept(&info, &["submission"]));
        let status = text(info.get("exit_status"));
        last.error = status.filter(|status| !status.eq_ignore_ascii_case("submitted"));
    }
    session.write(parts);
    Ok(())
}

fn step(message: &Value, words: Option<String>, seen: Vec<String>, model: Option<&str>) -> Turn {
    let mut calls = openai_calls(message);
    let output = match calls.is_empty() {
        true => plain(words.clone()),
        false => super::trajectory::said_and_done(words.as_deref(), &calls),
    };
    if calls.is_empty() {
        let command = words.as_deref().and_then(command);
        calls.extend(command.map(|command| Call {
            name: "bash".to_owned(),
            arguments: Some(Payload::text(command)),
            ..Call::default()
        }));
    }
    let usage = |name: &str| count(at(message, &format!("extra.response.usage.{name}")));
    let started_at =
        nanos(message.get("timestamp")).or_else(|| nanos(at(message, "extra.timestamp")));
    Turn {
        input: plain(Some(seen.join("\n"))),
        output,
        started_at,
        steps: vec![Step {
            said: words,
            calls,
            model: text(at(message, "extra.response.model")).or_else(|| model.map(str::to_owned)),
            prompt_tokens: usage("prompt_tokens"),
            completion_tokens: usage("completion_tokens"),
            cost_usd: amount(at(message, "extra.cost")),
            started_at,
            ..Step::default()
        }],
        ..Turn::default()
    }
}

fn answer(turn: &mut Turn, id: Option<&str>, words: &str) {
    let code = between(words, "<returncode>", "</returncode>").map(str::trim);
    let failed = code.filter(|code| *code != "0");
    let failed = failed.map(|code| format!("return code {code}"));
    let mut open = turn.steps.iter_mut().flat_map(|step| step.calls.iter_mut());
    let waits =
        open.find(|call| call.result.is_none() && (id.is_none() || call.id.as_deref() == id));
    if let Some(call) = waits {
        call.result = Some(Payload::text(words));
        call.error = failed;
    }
}

/// The command in a message: what the first fence holds.
fn command(words: &str) -> Option<&str> {
    let found = FENCES.iter().find_map(|fence| between(words, fence, "```"));
    found.map(str::trim).filter(|command| !command.is_empty())
}

fn between<'t>(words: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let (_, rest) = words.split_once(from)?;
    Some(rest.split_once(to)?.0)
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_step_is_a_trace_with_its_command() {
        let list = json!([
            {"role": "system", "content": "Rules"},
            {"role": "user", "content": "Fix it"},
            {"role": "assistant", "content": "Look.\n```bash\nls x\n```", "extra": {"cost": 0.5}},
            {"role": "user", "content": "<returncode>2</returncode>\n<output>\nno x\n</output>"},
            {"role": "assistant", "content": "Done.\n```bash\nsubmit\n```"},
            {"role": "user", "content": "the patch"},
        ]);
        let whole = json!({"trajectory_format": "mini-swe-agent-1", "messages": list,
            "info": {"exit_status": "LimitsExceeded", "config": {"model": {"model_name": "m"}}}});
        for (document, model, error) in [
            (list, None, None),
            (whole, Some("m"), Some("LimitsExceeded")),
        ] {
            let sample = Sample {
                file_name: "r.traj.json",
                document: &document,
                columns: &[],
            };
            assert!(recognise(&sample).is_some());
            let mut parts = Parts::default();
            read(document, &Place { stem: "r", row: 0 }, &mut parts).unwrap();
            assert_eq!(parts.traces.len(), 2);
            assert_eq!(parts.traces[0].input.as_ref().unwrap().raw, "Fix it");
            assert!(parts.traces[1].input.as_ref().unwrap().raw.contains("no x"));
            assert_eq!(parts.traces[1].error.as_deref(), error);
            let tools: Vec<_> = parts
                .spans
                .iter()
                .filter(|s| s.kind == kind::TOOL)
                .collect();
            assert_eq!(tools[0].input.as_ref().unwrap().raw, "ls x");
            assert_eq!(tools[0].error.as_deref(), Some("return code 2"));
            assert_eq!(tools[1].output.as_ref().unwrap().raw, "the patch");
            assert_eq!(tools[1].error, None);
            assert_eq!(parts.spans[1].cost_usd, Some(0.5));
            assert_eq!(parts.spans[1].model.as_deref(), model);
        }
    }

    #[test]
    fn chats_are_not_claimed() {
        let chat = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "```bash\nls\n```"},
            {"role": "user", "content": "Thanks"}]);
        let sample = Sample {
            file_name: "c.json",
            document: &chat,
            columns: &[],
        };
        assert_eq!(recognise(&sample), None);
    }
}
