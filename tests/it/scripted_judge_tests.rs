//! The scripted judge held against raw sockets: a fault that is not the one asked for would prove nothing elsewhere.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, Finish, Reply, ScriptedJudge, wait_until};

mod batch;
mod pass;
mod round_trip;

struct Client(TcpStream);

impl Client {
    fn new(judge: &ScriptedJudge) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", judge.port())).unwrap();
        // Heads and bodies are written apart: they must not wait for each other.
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self(stream)
    }

    fn send(&mut self, method: &str, path: &str, content_type: &str, body: &[u8]) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nAuthorization: Bearer k\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(head.as_bytes()).unwrap();
        self.0.write_all(body).unwrap();
    }

    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        bytes
    }

    /// Status, head and body of an answer.
    fn receive(&mut self) -> (u16, String, Vec<u8>) {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        let (_, length) = head.split_once("content-length: ").unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (head[9..12].parse().unwrap(), head, body)
    }

    fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(
            "POST",
            path,
            "application/json",
            body.to_string().as_bytes(),
        );
        self.json()
    }

    fn get(&mut self, path: &str) -> (u16, Value) {
        self.send("GET", path, "application/json", b"");
        self.json()
    }

    fn json(&mut self) -> (u16, Value) {
        let (status, _, body) = self.receive();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).map(|_| rest)
    }
}

const CHAT: &str = "/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({"model": "test", "messages": [
        {"role": "system", "content": "You judge."},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]})
}

fn said(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn a_connection_serves_many_requests_and_all_are_recorded() {
    let judge = ScriptedJudge::start(|asked| {
        Answer::reply(format!("{}:{}:{}", asked.number, asked.attempt, asked.user))
    });
    let mut client = Client::new(&judge);
    let before = Instant::now();
    for (i, text) in ["a", "b", "a"].into_iter().enumerate() {
        let (status, reply) = client.post(CHAT, &chat(text));
        assert_eq!(status, 200);
        assert_eq!(said(&reply), format!("{i}:{}:{text}", usize::from(i == 2)));
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        assert_eq!(reply["usage"]["prompt_tokens"], 3);
    }
    let asked = judge.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(judge.prompt_count(), 3);
    assert!(asked[0].at >= before && asked[0].at <= asked[1].at);
    assert_eq!(asked[1].json(), &chat("b"));
    assert_eq!(asked[1].system, "You judge.");
    assert_eq!(asked[1].model, "test");
    assert_eq!(asked[1].header("authorization"), Some("Bearer k"));
    assert!(!asked[1].has_response_format);
    assert_eq!(judge.url(), format!("http://127.0.0.1:{}/v1", judge.port()));

    judge.keep_requests(false);
    client.post(CHAT, &chat("c"));
    assert_eq!((judge.asked().len(), judge.prompt_count()), (3, 4));
}

#[test]
fn bodies_come_in_chunks_and_in_pieces_and_on_request() {
    let judge = ScriptedJudge::start(|asked| Answer::reply(asked.user.as_str()));
    let mut client = Client::new(&judge);
    let body = chat("in chunks").to_string();
    let (one, two) = body.split_at(7);
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{:x};x=y\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\nTrailer: t\r\n\r\n",
        one.len(),
        two.len()
    );
    // Cut everywhere: the reader must not need any part whole.
    for piece in chunked.as_bytes().chunks(5) {
        client.0.write_all(piece).unwrap();
        client.0.flush().unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(said(&client.json().1), "in chunks");

    let body = chat("on request").to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.0.write_all(head.as_bytes()).unwrap();
    assert_eq!(client.until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.0.write_all(body.as_bytes()).unwrap();
    assert_eq!(said(&client.json().1), "on request");

    // Two requests in one write, the last with `connection: close`.
    let body = chat("x").to_string();
    let one = format!(
        "POST {CHAT} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let last = one.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    client.0.write_all((one + &last).as_bytes()).unwrap();
    assert_eq!(client.json().0, 200);
    assert_eq!(client.json().0, 200);
    assert_eq!(client.rest().unwrap(), b"");

    let mut client = Client::new(&judge);
    client.0.write_all(b"nonsense\r\n\r\n").unwrap();
    assert_eq!(client.json().0, 400);
    assert_eq!(Client::new(&judge).get("/v1/nothing").0, 404);
    assert_eq!(Client::new(&judge).get("/v1/models").0, 200);
}

#[test]
fn every_fault_is_what_it_says() {
    let judge = ScriptedJudge::start(|asked| match asked.user.as_str() {
        "status" => Answer::status(429, &[("Retry-After", "7")], "slow down"),
        "garbage" => Answer::Garbage(b"\xff<html>".to_vec()),
        "truncated" => Answer::Truncated("{\"a\":".to_owned()),
        "reset" => Answer::CloseBeforeAnswer,
        "end" => Answer::EndBeforeAnswer,
        "half" => Answer::CloseMidBody,
        "hang" => Answer::Hang,
        "slow" => Answer::SlowBytes(Duration::from_micros(500), "s".into()),
        "later" => Answer::later(Duration::from_millis(80), "l"),
        _ => Answer::Reply(Reply::from("counted").usage(70, 8, 50).model("other")),
    });
    let asking = |text: &str| {
        let mut client = Client::new(&judge);
        let body = chat(text).to_string();
        client.send("POST", CHAT, "application/json", body.as_bytes());
        client
    };
    let (status, head, body) = asking("status").receive();
    assert_eq!(status, 429);
    assert!(head.contains("Retry-After: 7\r\n"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("slow down"));
    let (status, head, body) = asking("garbage").receive();
    assert_eq!((status, body.as_slice()), (200, &b"\xff<html>"[..]));
    assert!(head.contains("application/json"));
    let (_, reply) = asking("truncated").json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(said(&reply), "{\"a\":");
    let reset = asking("reset").rest().unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!(asking("end").rest().unwrap(), b"");
    let half = String::from_utf8(asking("half").rest().unwrap()).unwrap();
    let (head, body) = half.split_once("\r\n\r\n").unwrap();
    let (_, length) = head.split_once("content-length: ").unwrap();
    assert_eq!(body.len(), length.parse::<usize>().unwrap() / 2);
    let mut hanging = asking("hang");
    let limit = Some(Duration::from_millis(50));
    hanging.0.set_read_timeout(limit).unwrap();
    assert_eq!(hanging.rest().unwrap_err().kind(), ErrorKind::WouldBlock);
    let start = Instant::now();
    let mut slow = asking("slow");
    slow.until(b"\r\n\r\n");
    let head_after = start.elapsed();
    let body = slow.until(b"null}");
    assert!(start.elapsed() - head_after > Duration::from_micros(400) * body.len() as u32);
    let start = Instant::now();
    assert_eq!(said(&asking("later").json().1), "l");
    assert!(start.elapsed() >= Duration::from_millis(80));
    let (_, reply) = asking("else").json();
    assert_eq!(reply["model"], "other");
    assert_eq!(
        reply["usage"],
        json!({"prompt_tokens": 70, "completion_tokens": 8, "total_tokens": 78,
            "prompt_tokens_details": {"cached_tokens": 50},
            "completion_tokens_details": {"reasoning_tokens": 0}})
    );
}

#[test]
fn hundreds_of_connections_are_served_at_once() {
    const CLIENTS: usize = 300;
    let all_in = Arc::new(AtomicBool::new(false));
    let judge = {
        let all_in = Arc::clone(&all_in);
        ScriptedJudge::start(move |_| {
            assert!(wait_until(Duration::from_secs(20), || all_in.load(Ordering::SeqCst)));
            Answer::reply("r")
        })
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(&judge)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let body = chat(&i.to_string()).to_string();
        client.send("POST", CHAT, "application/json", body.as_bytes());
    }
    assert!(wait_until(Duration::from_secs(20), || judge.most_at_once() == CLIENTS));
    all_in.store(true, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.json().0, 200);
    }
    let mut users: Vec<usize> = judge
        .asked()
        .iter()
        .map(|asked| asked.user.parse().unwrap())
        .collect();
    users.sort_unstable();
    assert!(users.into_iter().eq(0..CLIENTS));
}

#[test]
fn dropping_ends_every_wait_at_once() {
    let start = Instant::now();
    let judge = ScriptedJudge::start(|asked| match asked.user.as_str() {
        "hang" => Answer::Hang,
        "slow" => Answer::SlowBytes(Duration::from_secs(60), "s".into()),
        _ => Answer::later(Duration::from_secs(60), "l"),
    });
    let mut clients: Vec<Client> = ["hang", "slow", "later"]
        .map(|text| {
            let mut client = Client::new(&judge);
            let body = chat(text).to_string();
            client.send("POST", CHAT, "application/json", body.as_bytes());
            client
        })
        .into();
    clients.push(Client::new(&judge));
    assert!(wait_until(Duration::from_secs(20), || judge.prompt_count() == 3));
    let port = judge.port();
    drop(judge);
    for client in &mut clients {
        client.rest().ok();
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_panic_of_the_script_is_raised_when_the_judge_is_dropped() {
    let raised = std::panic::catch_unwind(|| {
        let judge = ScriptedJudge::start(|_| panic!("said the script"));
        let mut client = Client::new(&judge);
        let body = chat("x").to_string();
        client.send("POST", CHAT, "application/json", body.as_bytes());
        client.rest().ok();
    });
    let raised = raised.unwrap_err();
    assert_eq!(raised.downcast_ref(), Some(&"said the script"));
}

#[test]
fn anthropic_and_gemini_are_answered_in_their_own_shape() {
    let judge = ScriptedJudge::start(|asked| match asked.user.as_str() {
        "cut" => Answer::Truncated("{".to_owned()),
        "blocked" => Answer::Reply(Reply::from("").finish(Finish::ContentFilter)),
        _ => Answer::Reply(Reply::from("{\"score\":1}").usage(10, 4, 6)),
    });
    let mut client = Client::new(&judge);
    let schema = json!({"type": "object", "properties": {"score": {"type": "number"}}});
    let mut body = json!({"model": "claude-x", "max_tokens": 9, "system": [{"type": "text", "text": "S"}],
        "messages": [{"role": "user", "content": "U"}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}}});
    let (_, reply) = client.post("/v1/messages", &body);
    assert_eq!(
        reply["content"],
        json!([{"type": "text", "text": "{\"score\":1}"}])
    );
    assert_eq!(reply["stop_reason"], "end_turn");
    assert_eq!(reply["usage"]["input_tokens"], 4);
    assert_eq!(reply["usage"]["cache_read_input_tokens"], 6);
    body["output_config"] = Value::Null;
    body["tools"] = json!([{"name": "other"}, {"name": "t", "input_schema": schema}]);
    body["tool_choice"] = json!({"type": "tool", "name": "t"});
    let (_, reply) = client.post("/v1/messages", &body);
    assert_eq!(reply["content"][0]["input"], json!({"score": 1}));
    assert_eq!(reply["stop_reason"], "tool_use");
    body["messages"][0]["content"] = json!("cut");
    let (_, reply) = client.post("/v1/messages", &body);
    assert_eq!(reply["stop_reason"], "max_tokens");
    body["messages"][0]["content"] = json!("blocked");
    let (_, reply) = client.post("/v1/messages", &body);
    assert_eq!(reply["stop_reason"], "refusal");
    assert_eq!(reply["content"], json!([]));

    let mut body = json!({"system_instruction": {"parts": [{"text": "S"}]},
        "contents": [{"role": "user", "parts": [{"text": "U"}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": schema}});
    let (_, reply) = client.post("/v1beta/models/gemini-x:generateContent?key=k", &body);
    let candidate = &reply["candidates"][0];
    assert_eq!(candidate["content"]["parts"][0]["text"], "{\"score\":1}");
    assert_eq!(candidate["finishReason"], "STOP");
    assert_eq!(reply["usageMetadata"]["totalTokenCount"], 14);
    body["contents"][0]["parts"][0]["text"] = json!("blocked");
    let (_, reply) = client.post("/v1beta/models/gemini-x:generateContent", &body);
    let candidate = &reply["candidates"][0];
    assert_eq!(candidate["finishReason"], "SAFETY");
    assert_eq!(candidate.get("content"), None);

    let models = ["claude-x"; 4].into_iter().chain(["gemini-x"; 2]);
    for (asked, model) in judge.asked().iter().zip(models) {
        assert_eq!((asked.model.as_str(), asked.system.as_str()), (model, "S"));
        assert_eq!(asked.schema.as_ref(), Some(&schema));
        assert!(asked.has_response_format);
    }
}
