use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;
use crate::judge::{ProviderSettings, Retries};
use crate::suite::evalset::runner::record;

/// An endpoint that gives these messages, one a request, and returns the bodies of the requests.
fn endpoint(messages: Vec<Value>) -> (String, JoinHandle<Vec<Value>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for message in messages {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                assert_ne!(reader.read_line(&mut line).unwrap(), 0);
                if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = bytes.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            requests.push(serde_json::from_slice(&body).unwrap());
            let answer = json!({"choices": [{"message": message}]}).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    (url, server)
}

/// What the turns come to, and the requests that were sent for them.
fn run(
    messages: Vec<Value>,
    settings: OpenAiSettings,
    turns: &[&str],
) -> (Vec<Result<Value, String>>, Vec<Value>) {
    let (url, server) = endpoint(messages);
    let provider = ProviderSettings {
        url: Some(url),
        connect_timeout: Duration::from_secs(5),
        ..ProviderSettings::default()
    };
    let retries = Retries {
        attempts: 1,
        ..Retries::default()
    };
    let chat = Chat::new(&provider, "openai/m", retries, Duration::from_secs(20)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let runner = OpenAiRunner::new(chat, settings, runtime.handle().clone());
    let start = SessionStart {
        eval_id: "c1".into(),
        state: json!({"secret": 1}).as_object().cloned().unwrap(),
        context_messages: vec![Message {
            role: "system".into(),
            content: "Be brief.".into(),
            ..Message::default()
        }],
        ..SessionStart::default()
    };
    let mut session = runner.open(&start).unwrap();
    let turns = turns.iter().enumerate().map(|(turn, text)| {
        let message = Message {
            role: "user".into(),
            content: (*text).into(),
            ..Message::default()
        };
        let events = session.invoke(turn, &message).map_err(|e| e.to_string())?;
        let turn = record(&start, turn, &message, events).map_err(|e| e.to_string())?;
        Ok(turn.to_json())
    });
    let turns = turns.collect();
    (turns, server.join().unwrap())
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls_tool(id: &str, arguments: &str) -> Value {
    let function = json!({"name": "time", "arguments": arguments});
    json!({"role": "assistant", "content": "one moment",
        "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

#[test]
fn the_list_of_messages_grows_from_turn_to_turn() {
    let settings = OpenAiSettings {
        body: json!({"temperature": 0}).as_object().cloned().unwrap(),
        ..OpenAiSettings::default()
    };
    let (turns, requests) = run(vec![says("one"), says("two")], settings, &["a", "b"]);
    assert_eq!(turns[1].as_ref().unwrap()["finalResponse"], says("two"));
    assert_eq!(
        requests[1],
        json!({"temperature": 0, "model": "m", "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "a"}, says("one"),
            {"role": "user", "content": "b"}]})
    );
}

#[test]
fn without_a_command_tools_are_not_available() {
    let (turns, requests) = run(
        vec![calls_tool("t1", ""), says("sorry")],
        OpenAiSettings::default(),
        &["a"],
    );
    let turn = turns[0].as_ref().unwrap();
    assert_eq!(
        turn["tools"],
        json!([{"id": "t1", "name": "time", "arguments": {}, "result": "tool not available"}])
    );
    assert_eq!(turn["intermediateResponses"], json!([says("one moment")]));
    assert_eq!(turn["finalResponse"], says("sorry"));
    assert_eq!(
        requests[1]["messages"][3],
        json!({"role": "tool", "tool_call_id": "t1", "content": "tool not available"})
    );
}

#[test]
fn a_command_answers_calls() {
    let settings = OpenAiSettings {
        tool_command: Some(
            r#"grep -q '"arguments":{"tz":"UTC"}' && echo '{"time":"03:01"}'"#.into(),
        ),
        ..OpenAiSettings::default()
    };
    let replies = vec![calls_tool("t1", r#"{"tz": "UTC"}"#), says("three")];
    let (turns, requests) = run(replies, settings, &["a"]);
    assert_eq!(
        turns[0].as_ref().unwrap()["tools"],
        json!([{"id": "t1", "name": "time", "arguments": {"tz": "UTC"}, "result": {"time": "03:01"}}])
    );
    assert_eq!(requests[1]["messages"][3]["content"], r#"{"time":"03:01"}"#);
}

#[test]
fn a_call_without_an_id_gets_one() {
    let (turns, requests) = run(
        vec![calls_tool("", "x"), says("ok")],
        OpenAiSettings::default(),
        &["a"],
    );
    let id = &turns[0].as_ref().unwrap()["tools"][0]["id"];
    assert_eq!(id.as_str().unwrap().len(), 36);
    assert_eq!(&requests[1]["messages"][2]["tool_calls"][0]["id"], id);
    assert_eq!(&requests[1]["messages"][3]["tool_call_id"], id);
}

#[test]
fn rounds_of_tools_are_limited() {
    let settings = OpenAiSettings {
        max_tool_rounds: 2,
        ..OpenAiSettings::default()
    };
    let call = || calls_tool("t", "{}");
    let (turns, _) = run(vec![call(), call(), says("ok")], settings.clone(), &["a"]);
    assert!(turns[0].is_ok());
    let (turns, _) = run(vec![call(), call(), call()], settings, &["a", "b"]);
    let error = turns[0].as_ref().unwrap_err();
    assert!(
        error.contains("case `c1`, turn 1") && error.contains("after 2 rounds"),
        "{error}"
    );
    assert!(turns[1].as_ref().unwrap_err().contains("earlier turn"));
}

#[test]
fn a_tool_command_that_fails_fails_the_turn() {
    for (command, reason) in [("echo hello", "no JSON"), ("exit 4", "exit status: 4")] {
        let settings = OpenAiSettings {
            tool_command: Some(command.into()),
            ..OpenAiSettings::default()
        };
        let (turns, _) = run(vec![calls_tool("t", "{}")], settings, &["a"]);
        let error = turns[0].as_ref().unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn an_answer_without_a_message_fails_the_turn() {
    let (turns, _) = run(vec![json!("text")], OpenAiSettings::default(), &["a"]);
    assert!(turns[0].as_ref().unwrap_err().contains("case `c1`, turn 1"));
}
