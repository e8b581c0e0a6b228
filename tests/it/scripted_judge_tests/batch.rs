//! The batch endpoints: uploads, polls, and results in an order of their own.

use serde_json::{Value, json};

use super::{CHAT, Client, chat, said};
use crate::scripted_judge::{Answer, BatchEnd, BatchPlan, ScriptedJudge};

fn batch_lines(ids: impl Iterator<Item = usize>) -> Vec<u8> {
    ids.map(|i| {
        json!({"custom_id": format!("r{i}"), "method": "POST", "url": CHAT, "body": chat(&i.to_string())}).to_string() + "\n"
    })
    .collect::<String>()
    .into_bytes()
}

fn upload(client: &mut Client, content: &[u8]) -> (u16, Value) {
    let mut body = b"--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\nContent-Type: application/octet-stream\r\n\r\n".to_vec();
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--B--\r\n");
    client.send(
        "POST",
        "/v1/files",
        "multipart/form-data; boundary=\"B\"",
        &body,
    );
    client.json()
}

pub(super) fn create(client: &mut Client, content: &[u8]) -> String {
    let (status, file) = upload(client, content);
    assert_eq!((status, &file["bytes"]), (200, &json!(content.len())));
    let (status, batch) = client.post(
        "/v1/batches",
        &json!({"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h", "metadata": {"run": "1"}}),
    );
    assert_eq!((status, &batch["status"]), (200, &json!("validating")));
    batch["id"].as_str().unwrap().to_owned()
}

/// Ids and lines of a file of results.
fn results(client: &mut Client, file_id: &Value) -> Vec<(String, Value)> {
    let path = format!("/v1/files/{}/content", file_id.as_str().unwrap());
    client.send("GET", &path, "x/y", b"");
    let (_, _, body) = client.receive();
    let text = String::from_utf8(body).unwrap();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["custom_id"].as_str().unwrap().to_owned(), line)
        })
        .collect()
}

pub(super) fn poll_to_end(client: &mut Client, id: &str) -> (Vec<String>, Value) {
    let mut statuses = Vec::new();
    loop {
        let (_, batch) = client.get(&format!("/v1/batches/{id}"));
        let status = batch["status"].as_str().unwrap().to_owned();
        let open = ["validating", "in_progress", "finalizing"].contains(&status.as_str());
        statuses.push(status);
        if !open {
            return (statuses, batch);
        }
    }
}

#[test]
fn a_batch_is_answered_by_the_same_script_in_another_order() {
    let judge = ScriptedJudge::start(|asked| match asked.user.as_str() {
        "3" => Answer::status(500, &[], "no"),
        "5" => Answer::Hang,
        user => Answer::reply(format!("re {user}")),
    });
    let mut client = Client::new(&judge);
    let content = batch_lines(0..20);
    let id = create(&mut client, &content);
    let (statuses, batch) = poll_to_end(&mut client, &id);
    assert_eq!(statuses, ["validating", "in_progress", "completed"]);
    assert_eq!(
        batch["request_counts"],
        json!({"total": 20, "completed": 18, "failed": 2})
    );
    let output = results(&mut client, &batch["output_file_id"]);
    let errors = results(&mut client, &batch["error_file_id"]);
    assert_eq!((output.len(), errors.len()), (18, 2));
    let in_order = |id: &(String, Value)| id.0[1..].parse::<usize>().unwrap();
    assert!(!output.iter().map(in_order).is_sorted());
    for (id, line) in &output {
        assert_eq!(line["response"]["status_code"], 200);
        assert_eq!(said(&line["response"]["body"]), format!("re {}", &id[1..]));
    }
    let error = |id: &str| &errors.iter().find(|(i, _)| i == id).unwrap().1;
    assert_eq!(error("r3")["response"]["status_code"], 500);
    assert_eq!(error("r5")["error"]["code"], "server_error");
    let again = client.get(&format!("/v1/batches/{id}")).1;
    assert_eq!(again["output_file_id"], batch["output_file_id"]);
    assert_eq!(judge.prompt_count(), 20, "a batch runs once");
    assert!(judge.asked().iter().all(|asked| asked.custom_id.is_none()));
    assert!(
        judge
            .prompts()
            .iter()
            .all(|asked| asked.custom_id.is_some())
    );
    assert_eq!(judge.uploads(), [content]);
    let seen = &judge.batches()[0];
    assert_eq!(
        (seen.lines, seen.polls, seen.status.as_str()),
        (20, 4, "completed")
    );
    assert_eq!(seen.metadata, json!({"run": "1"}));
}

#[test]
fn batches_expire_fail_and_are_cancelled_as_planned() {
    let judge = ScriptedJudge::start(|_| Answer::reply("r"));
    judge.plan_batches(|number| BatchPlan {
        in_progress: 2,
        finalizing: 1,
        end: match number {
            0 => BatchEnd::Expired {
                answered: 3,
                silent: 2,
            },
            1 => BatchEnd::Failed {
                code: "token_limit_exceeded".into(),
                message: "m".into(),
                line: Some(2),
            },
            _ => BatchEnd::Completed,
        },
        stray_lines: vec!["not json".into()],
        ..BatchPlan::default()
    });
    let mut client = Client::new(&judge);
    let id = create(&mut client, &batch_lines(0..10));
    let (statuses, batch) = poll_to_end(&mut client, &id);
    assert_eq!(
        statuses,
        [
            "validating",
            "in_progress",
            "in_progress",
            "finalizing",
            "expired"
        ]
    );
    let path = format!(
        "/v1/files/{}/content",
        batch["output_file_id"].as_str().unwrap()
    );
    client.send("GET", &path, "x/y", b"");
    let output = String::from_utf8(client.receive().2).unwrap();
    assert_eq!(output.lines().count(), 4);
    assert!(output.lines().any(|line| line == "not json"));
    let errors = results(&mut client, &batch["error_file_id"]);
    let mut ids: Vec<&str> = errors.iter().map(|(id, _)| id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["r3", "r4", "r5", "r6", "r7"]);
    assert_eq!(errors[0].1["error"]["code"], "batch_expired");

    let id = create(&mut client, &batch_lines(0..2));
    let (_, batch) = poll_to_end(&mut client, &id);
    assert_eq!(batch["status"], "failed");
    assert_eq!(batch["errors"]["data"][0]["code"], "token_limit_exceeded");

    let id = create(&mut client, &batch_lines(0..4));
    let (_, batch) = client.post(&format!("/v1/batches/{id}/cancel"), &json!({}));
    assert_eq!(batch["status"], "cancelling");
    let (statuses, batch) = poll_to_end(&mut client, &id);
    assert_eq!(statuses, ["cancelled"]);
    assert_eq!(batch["request_counts"]["completed"], 2);
    assert_eq!(
        client
            .post(&format!("/v1/batches/{id}/cancel"), &json!({}))
            .0,
        409
    );
    assert_eq!(
        client.get("/v1/batches").1["data"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn files_at_fault_are_refused() {
    let judge = ScriptedJudge::start(|_| Answer::reply("r"));
    let mut client = Client::new(&judge);
    let mut twice = batch_lines(0..2);
    twice.extend(batch_lines(1..2));
    let cases: [(&[u8], &str, Value); 4] = [
        (&twice, "duplicate_custom_id", json!(3)),
        (b"{\n", "invalid_json_line", json!(1)),
        (b"{\"custom_id\":\"a\"}\n", "invalid_request", json!(1)),
        (b"\n", "empty_file", Value::Null),
    ];
    for (content, code, line) in cases {
        let id = create(&mut client, content);
        let (_, batch) = poll_to_end(&mut client, &id);
        let error = &batch["errors"]["data"][0];
        assert_eq!((&error["code"], &error["line"]), (&json!(code), &line));
    }
    let (status, _) = client.post("/v1/files", &json!({}));
    assert_eq!(status, 400);
    judge.interfere(|asked| (asked.attempt == 0).then(|| Answer::status(503, &[], "later")));
    let content = batch_lines(0..1);
    assert_eq!(upload(&mut client, &content).0, 503);
    assert_eq!(upload(&mut client, &content).0, 200);
}
