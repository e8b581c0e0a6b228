use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use serde_json::json;

use super::*;

/// An endpoint that gives these answers, status and body, one a connection, and returns heads and bodies of the
/// requests.
fn endpoint(answers: Vec<(u16, String)>) -> (String, JoinHandle<Vec<(String, Value)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for (status, answer) in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse::<usize>()
                    .ok()
            });
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            requests.push((head, serde_json::from_slice(&body).unwrap()));
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nretry-after-ms: 5\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{answer}",
                answer.len()
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        requests
    });
    (url, server)
}

fn chat(url: &str, attempts: u32) -> Chat {
    let settings = ProviderSettings {
        url: Some(url.to_owned()),
        key: Some("sk-canary-123".into()),
        connect_timeout: Duration::from_secs(5),
        ..ProviderSettings::default()
    };
    let retries = Retries {
        attempts,
        wait: Duration::from_millis(5),
        ..Retries::default()
    };
    Chat::new(&settings, "openai/m-1", retries, Duration::from_secs(10)).unwrap()
}

fn complete(chat: &Chat, body: Value) -> Result<Value, CallError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let Value::Object(body) = body else {
        panic!("no object")
    };
    runtime.block_on(chat.complete(body))
}

fn saying(text: &str) -> (u16, String) {
    let answer = json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    (200, answer.to_string())
}

#[test]
fn the_model_is_added_and_keys_are_taken_out() {
    let (url, server) = endpoint(vec![saying("it is sk-canary-123")]);
    let body = json!({"messages": [], "stream": true, "model": "other", "top_p": 1});
    let answer = complete(&chat(&url, 1), body).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "it is [secret]");
    let (head, body) = server.join().unwrap().remove(0);
    assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    assert!(
        head.to_lowercase()
            .contains("authorization: bearer sk-canary-123"),
        "{head}"
    );
    assert_eq!(body, json!({"messages": [], "model": "m-1", "top_p": 1}));
}

#[test]
fn what_fails_for_a_time_is_tried_again() {
    let busy = (429, "{}".to_owned());
    let broken = (503, "{}".to_owned());
    let empty = (200, json!({"choices": []}).to_string());
    let (url, server) = endpoint(vec![busy, broken, empty, saying("yes")]);
    assert!(complete(&chat(&url, 4), json!({})).is_ok());
    assert_eq!(server.join().unwrap().len(), 4);

    let (url, server) = endpoint(vec![(500, "{}".into()), (502, "{}".into())]);
    let error = complete(&chat(&url, 2), json!({})).unwrap_err();
    assert_eq!(error.kind, CallErrorKind::ServerError);
    server.join().unwrap();
}

#[test]
fn a_refusal_is_final_and_shows_no_key() {
    let refusal = (
        401,
        json!({"error": {"message": "bad key sk-canary-123"}}).to_string(),
    );
    let (url, server) = endpoint(vec![refusal]);
    let error = complete(&chat(&url, 5), json!({})).unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Denied);
    assert!(error.message.contains("bad key [secret]"), "{error}");
    assert_eq!(server.join().unwrap().len(), 1);
}

#[test]
fn a_message_without_words_is_an_answer_and_an_error_in_its_place_is_none() {
    let silent =
        json!({"choices": [{"message": {"content": null}, "finish_reason": "tool_calls"}]});
    let (url, _server) = endpoint(vec![(200, silent.to_string())]);
    assert_eq!(complete(&chat(&url, 1), json!({})).unwrap(), silent);

    let error = json!({"error": {"message": "overloaded", "code": 503}});
    let (url, _server) = endpoint(vec![(200, error.to_string())]);
    let error = complete(&chat(&url, 1), json!({})).unwrap_err();
    assert!(error.message.contains("overloaded"), "{error}");
}

#[test]
fn other_protocols_are_refused_before_anything_is_sent() {
    let settings = ProviderSettings {
        key: Some("k".into()),
        ..ProviderSettings::default()
    };
    let made = |model| Chat::new(&settings, model, Retries::default(), Duration::ZERO);
    assert!(matches!(
        made("anthropic/x"),
        Err(ChatError::NotSpoken { .. })
    ));
    assert!(matches!(made("x"), Err(ChatError::Provider(_))));
    let chat = made("openai/x").unwrap();
    assert!(!format!("{chat:?}").contains("api.openai"));
}
