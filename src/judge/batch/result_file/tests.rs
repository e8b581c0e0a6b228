//! Lines as providers write them, and lines that nobody should.

use std::io::{BufReader, Cursor, Read};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: impl AsRef<[u8]>) -> (Vec<BatchResult>, ReadSummary) {
    let mut results = Vec::new();
    let summary = read_results(text.as_ref(), |result| results.push(result)).unwrap();
    assert_eq!(summary.results, results.len() as u64);
    (results, summary)
}

fn outcome_of(line: Value) -> BatchOutcome {
    let (mut results, summary) = read(line.to_string());
    assert_eq!((results.len(), summary.bad), (1, 0));
    results.remove(0).outcome
}

fn answered(body: Value) -> Value {
    json!({"id": "batch_req_1", "custom_id": "a",
        "response": {"status_code": 200, "request_id": "r", "body": body}, "error": null})
}

fn completion(message: Value, finish: &str) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-x-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 24, "completion_tokens": 8, "total_tokens": 32,
            "prompt_tokens_details": {"cached_tokens": 16}}})
}

const USAGE: Option<BatchUsage> = Some(BatchUsage {
    prompt: 24,
    completion: 8,
    cached: 16,
});

#[test]
fn an_answer_is_read_in_full() {
    let body = completion(
        json!({"role": "assistant", "content": "{\"score\":1}"}),
        "stop",
    );
    let expected = BatchReply {
        text: "{\"score\":1}".into(),
        model: Some("gpt-x-2026".into()),
        usage: USAGE,
        finish_reason: Some("stop".into()),
    };
    assert_eq!(
        outcome_of(answered(body.clone())),
        BatchOutcome::Reply(expected.clone())
    );
    let mut line = answered(body);
    line["response"]["status_code"] = Value::Null;
    assert_eq!(outcome_of(line), BatchOutcome::Reply(expected));
}

#[test]
fn an_answer_without_counts_or_in_parts_is_an_answer() {
    let mut body = completion(
        json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        "length",
    );
    body["usage"] = Value::Null;
    let BatchOutcome::Reply(reply) = outcome_of(answered(body)) else {
        panic!("no reply");
    };
    assert_eq!((reply.text.as_str(), reply.usage), ("ab", None));
    assert_eq!(reply.finish_reason.as_deref(), Some("length"));
    let mut body = completion(json!({"content": ""}), "stop");
    body["usage"]["prompt_tokens_details"] = Value::Null;
    let BatchOutcome::Reply(reply) = outcome_of(answered(body)) else {
        panic!("an empty text is a text");
    };
    assert_eq!(reply.usage.unwrap().cached, 0);
}

#[test]
fn an_answer_without_text_failed_but_was_paid() {
    let failed = |message: Value, finish: &str| outcome_of(answered(completion(message, finish)));
    let expected = |code: &str, message: &str| BatchOutcome::Failed {
        status: Some(200),
        code: Some(code.into()),
        message: message.into(),
        usage: USAGE,
    };
    assert_eq!(
        failed(json!({"content": null, "refusal": "I can't"}), "stop"),
        expected("refusal", "I can't")
    );
    assert_eq!(
        failed(json!({"content": null, "refusal": null}), "content_filter"),
        expected("content_filter", "the provider's filter stopped the answer")
    );
    assert_eq!(
        failed(json!({"content": null, "tool_calls": []}), "tool_calls"),
        expected("no_text", "the answer holds no text")
    );
}

#[test]
fn errors_keep_status_code_and_message() {
    let failed = |status: Option<u16>, code: Option<&str>, message: &str| BatchOutcome::Failed {
        status,
        code: code.map(str::to_owned),
        message: message.into(),
        usage: None,
    };
    let with_status = |status: u16, body: Value| json!({"custom_id": "a", "response": {"status_code": status, "body": body}, "error": null});
    let error = json!({"message": "too long", "type": "invalid_request_error", "param": null, "code": "context_length_exceeded"});
    assert_eq!(
        outcome_of(with_status(400, json!({"error": error}))),
        failed(Some(400), Some("context_length_exceeded"), "too long")
    );
    let error = json!({"message": "m", "type": "server_error", "code": null});
    assert_eq!(
        outcome_of(with_status(500, json!({"error": error}))),
        failed(Some(500), Some("server_error"), "m")
    );
    assert_eq!(
        outcome_of(with_status(502, json!("Bad Gateway"))),
        failed(Some(502), None, "Bad Gateway")
    );
    assert_eq!(
        outcome_of(with_status(503, Value::Null)),
        failed(Some(503), None, "")
    );
    // An error inside an answer of status 200 is an error.
    assert_eq!(
        outcome_of(with_status(
            200,
            json!({"error": {"code": 429, "message": "slow down"}})
        )),
        failed(Some(200), Some("429"), "slow down")
    );
    let line = json!({"custom_id": "a", "response": null, "error": {"code": "batch_cancelled", "message": "m"}});
    assert_eq!(outcome_of(line), failed(None, Some("batch_cancelled"), "m"));
    let line = json!({"custom_id": "a", "error": "plain"});
    assert_eq!(outcome_of(line), failed(None, None, "plain"));
}

#[test]
fn a_line_not_reached_in_time_is_expired() {
    let line = json!({"id": "batch_req_1", "custom_id": "a", "response": null,
        "error": {"code": "batch_expired", "message": "not executed before the window ended"}});
    assert_eq!(outcome_of(line), BatchOutcome::Expired);
}

#[test]
fn bad_lines_are_named_and_the_others_are_read() {
    let good = answered(completion(json!({"content": "x"}), "stop")).to_string();
    let lines: [&[u8]; 12] = [
        good.as_bytes(),
        b"",
        b"{\"custom_id\":",
        b"[1]",
        b"  \r",
        b"{\"response\":{}}",
        b"{\"custom_id\":\"\",\"response\":{}}",
        b"{\"custom_id\":7,\"response\":{}}",
        b"{\"custom_id\":\"a\",\"response\":null,\"error\":null}",
        b"{\"custom_id\":\"\xff\",\"response\":{}}",
        b"{} {}",
        good.as_bytes(),
    ];
    let text = [b"\xef\xbb\xbf".as_slice(), &lines.join(b"\n".as_slice())].concat();
    let (results, summary) = read(&text);
    assert_eq!(results.len(), 2);
    let named: Vec<(u64, &str)> = summary
        .bad_lines
        .iter()
        .map(|b| (b.line, b.reason))
        .collect();
    assert_eq!(
        named,
        [
            (3, "not JSON"),
            (4, "not a JSON object"),
            (6, "no custom_id"),
            (7, "no custom_id"),
            (8, "no custom_id"),
            (9, "neither a response nor an error"),
            (10, "not JSON"),
            (11, "not JSON"),
        ]
    );
    assert_eq!(summary.bad, 8);
}

#[test]
fn line_ends_of_any_kind_and_small_buffers_change_nothing() {
    let line =
        |id: &str| json!({"custom_id": id, "error": {"code": "c", "message": "m"}}).to_string();
    let text = format!("{}\r\n{}\n{}", line("a"), line("b"), line("c"));
    let (whole, _) = read(&text);
    let ids: Vec<&str> = whole.iter().map(|r| r.custom_id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    let mut piecewise = Vec::new();
    let reader = BufReader::with_capacity(3, text.as_bytes());
    read_results(reader, |result| piecewise.push(result)).unwrap();
    assert_eq!(piecewise, whole);
}

#[test]
fn many_bad_lines_are_counted_and_the_first_hundred_named() {
    let (_, summary) = read("x\n".repeat(250));
    assert_eq!((summary.bad, summary.bad_lines.len()), (250, 100));
    assert_eq!(summary.bad_lines[99].line, 100);
}

#[test]
fn a_line_without_end_is_not_kept() {
    let long = BufReader::new(std::io::repeat(b'x').take(3 * LARGEST_LINE as u64));
    let good = b"\n{\"custom_id\":\"a\",\"error\":\"e\"}".as_slice();
    let mut line = Vec::new();
    let mut reader = long.chain(good);
    assert_eq!(
        next_line(&mut reader, &mut line).unwrap(),
        Some(3 * LARGEST_LINE)
    );
    assert!(line.capacity() <= 2 * LARGEST_LINE);
    let spaces = std::io::repeat(b' ').take(LARGEST_LINE as u64 + 1);
    let reader = BufReader::new(spaces).chain(good);
    let mut ids = Vec::new();
    let summary = read_results(reader, |result| ids.push(result.custom_id)).unwrap();
    assert_eq!(ids, ["a"]);
    let expected = BadLine {
        line: 1,
        reason: "longer than 32 MiB",
    };
    assert_eq!(summary.bad_lines, [expected]);
}

#[test]
fn an_error_of_the_reader_is_returned() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let reader = BufReader::new(Cursor::new("x\n").chain(Broken));
    assert!(read_results(reader, |_| ()).is_err());
}

proptest! {
    #[test]
    fn every_line_is_a_result_or_bad_or_empty(lines in prop::collection::vec("[ -~]{0,12}|\\{\"custom_id\":\"[a-c]\",\"error\":[a-z0-9\"{}:]{0,9}\\}", 0..30)) {
        let text = lines.join("\n");
        let (_, summary) = read(&text);
        let lines = text.lines().filter(|line| !line.trim().is_empty()).count() as u64;
        prop_assert_eq!(summary.results + summary.bad, lines);
    }
}
