//! OpenAI's file and batch endpoints. Lines are answered by the judge's script when a batch ends.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::http::Response;
use super::jsonl::{Line, ResultLine, mixed, parts, read_lines};
use super::plan::{BatchEnd, BatchPlan, BatchSeen};
use super::server::lock;
use super::{Answer, Asked, Body, Dialect, Finish, Reply, shape};

const CREATED_AT: u64 = 1_767_225_600;

type Plan = dyn Fn(usize) -> BatchPlan + Send + Sync;

#[derive(Default)]
pub(super) struct Batches(Mutex<Store>);

#[derive(Default)]
struct Store {
    plan: Option<Arc<Plan>>,
    files: Vec<File>,
    batches: Vec<Batch>,
}

struct File {
    id: String,
    name: String,
    purpose: String,
    bytes: Vec<u8>,
}

struct Batch {
    seen: BatchSeen,
    plan: BatchPlan,
    endpoint: String,
    cancelled: bool,
    /// Lines of the input file, or what is wrong with it.
    input: Result<Vec<Line>, Value>,
    results: Option<Results>,
}

#[derive(Default)]
struct Results {
    completed: usize,
    failed: usize,
    output_file: Option<String>,
    error_file: Option<String>,
}

impl Batches {
    pub(super) fn plan(&self, plan: impl Fn(usize) -> BatchPlan + Send + Sync + 'static) {
        lock(&self.0).plan = Some(Arc::new(plan));
    }

    pub(super) fn seen(&self) -> Vec<BatchSeen> {
        lock(&self.0)
            .batches
            .iter()
            .map(|b| b.seen.clone())
            .collect()
    }

    pub(super) fn uploads(&self) -> Vec<Vec<u8>> {
        let store = lock(&self.0);
        let uploads = store.files.iter().filter(|file| file.purpose == "batch");
        uploads.map(|file| file.bytes.clone()).collect()
    }

    /// Answers a request that is not for a model. `ask` numbers a line and runs the script on it.
    pub(super) fn respond(
        &self,
        asked: &Asked,
        ask: impl Fn(Asked) -> (Asked, Answer),
    ) -> Response {
        let mut store = lock(&self.0);
        let route: Vec<&str> = asked.route().trim_matches('/').split('/').collect();
        let answered = match (asked.method.as_str(), route.as_slice()) {
            ("POST", [.., "files"]) => store.upload(asked),
            ("GET", [.., "files", id, "content"]) => {
                if let Some(file) = store.file(id) {
                    return Response {
                        status: 200,
                        headers: vec![("content-type".into(), "application/octet-stream".into())],
                        body: file.bytes.clone(),
                    };
                }
                Err((404, format!("no file {id}")))
            }
            ("GET", [.., "files", id]) => match store.file(id) {
                Some(file) => Ok(file.to_json()),
                None => Err((404, format!("no file {id}"))),
            },
            ("POST", [.., "batches"]) => store.create(asked.json()),
            ("GET", [.., "batches"]) => {
                let data: Vec<Value> = store.batches.iter().map(Batch::to_json).collect();
                Ok(json!({"object": "list", "data": data, "has_more": false}))
            }
            ("GET", [.., "batches", id]) => store.poll(id, &ask),
            ("POST", [.., "batches", id, "cancel"]) => store.cancel(id),
            ("GET", [.., "models"]) => {
                let model = json!({"id": "test", "object": "model", "owned_by": "nightmill"});
                Ok(json!({"object": "list", "data": [model]}))
            }
            (method, _) => Err((404, format!("no endpoint {method} {}", asked.route()))),
        };
        match answered {
            Ok(body) => Response::json(200, body),
            Err((status, message)) => {
                Response::json(status, shape::error(&message, "invalid_request_error"))
            }
        }
    }
}

type Answered = Result<Value, (u16, String)>;

impl Store {
    fn file(&self, id: &str) -> Option<&File> {
        self.files.iter().find(|file| file.id == id)
    }

    fn store_file(&mut self, name: &str, purpose: &str, bytes: Vec<u8>) -> String {
        let id = format!("file-{:04}", self.files.len());
        self.files.push(File {
            id: id.clone(),
            name: name.to_owned(),
            purpose: purpose.to_owned(),
            bytes,
        });
        id
    }

    fn upload(&mut self, asked: &Asked) -> Answered {
        let refuse = |what: &str| (400, format!("the upload {what}"));
        let Body::Raw(body) = &asked.body else {
            return Err(refuse("is JSON, not multipart/form-data"));
        };
        let boundary = asked
            .header("content-type")
            .filter(|value| value.starts_with("multipart/form-data"))
            .and_then(|value| value.split_once("boundary="))
            .map(|(_, rest)| rest.split(';').next().unwrap_or_default().trim_matches('"'))
            .ok_or_else(|| refuse("is not multipart/form-data with a boundary"))?;
        let parts = parts(body, boundary);
        let part = |name: &str| parts.iter().find(|part| part.name == name);
        let purpose = part("purpose").ok_or_else(|| refuse("has no purpose"))?;
        let file = part("file").ok_or_else(|| refuse("has no file"))?;
        if purpose.bytes != b"batch" {
            return Err(refuse("is for a purpose other than `batch`"));
        }
        let id = self.store_file(&file.file_name, "batch", file.bytes.to_vec());
        Ok(self.file(&id).map_or(Value::Null, File::to_json))
    }

    fn create(&mut self, body: &Value) -> Answered {
        let word = |key: &str| body[key].as_str().unwrap_or_default();
        let file_id = word("input_file_id");
        let Some(file) = self.file(file_id) else {
            return Err((400, format!("no input file `{file_id}`")));
        };
        if word("completion_window") != "24h" {
            return Err((400, "completion_window is not `24h`".to_owned()));
        }
        let number = self.batches.len();
        let input = read_lines(&file.bytes, word("endpoint"));
        let plan = self.plan.as_ref().map(|plan| plan(number));
        let batch = Batch {
            seen: BatchSeen {
                id: format!("batch_{number:04}"),
                input_file_id: file_id.to_owned(),
                lines: input.as_ref().map_or(0, Vec::len),
                status: "validating".to_owned(),
                polls: 0,
                metadata: body["metadata"].clone(),
            },
            plan: plan.unwrap_or_default(),
            endpoint: word("endpoint").to_owned(),
            cancelled: false,
            input,
            results: None,
        };
        let json = batch.to_json();
        self.batches.push(batch);
        Ok(json)
    }

    fn cancel(&mut self, id: &str) -> Answered {
        let batch = self.batches.iter_mut().find(|b| b.seen.id == id);
        let batch = batch.ok_or_else(|| (404, format!("no batch {id}")))?;
        if batch.results.is_some() || batch.seen.status == "failed" {
            return Err((409, format!("batch {id} is {}", batch.seen.status)));
        }
        batch.cancelled = true;
        batch.seen.status = "cancelling".to_owned();
        Ok(batch.to_json())
    }

    fn poll(&mut self, id: &str, ask: &impl Fn(Asked) -> (Asked, Answer)) -> Answered {
        let found = self.batches.iter_mut().find(|b| b.seen.id == id);
        let batch = found.ok_or_else(|| (404, format!("no batch {id}")))?;
        batch.seen.polls += 1;
        batch.seen.status = batch.next_status().to_owned();
        let ended = matches!(
            batch.seen.status.as_str(),
            "completed" | "expired" | "cancelled"
        );
        if let (true, None, Ok(lines)) = (ended, &batch.results, &batch.input) {
            let (output, errors) = batch.run(lines, ask);
            let (completed, failed) = (output.len(), errors.len());
            let stray = batch.plan.stray_lines.clone();
            let output_file = self.store_results("output", mixed(output, stray));
            let error_file = self.store_results("errors", mixed(errors, Vec::new()));
            if let Some(batch) = self.batches.iter_mut().find(|b| b.seen.id == id) {
                batch.results = Some(Results {
                    completed,
                    failed,
                    output_file,
                    error_file,
                });
            }
        }
        let batch = self.batches.iter().find(|b| b.seen.id == id);
        Ok(batch.map_or(Value::Null, Batch::to_json))
    }

    fn store_results(&mut self, name: &str, lines: Vec<String>) -> Option<String> {
        let mut text = lines.join("\n");
        text.push('\n');
        (!lines.is_empty())
            .then(|| self.store_file(&format!("{name}.jsonl"), "batch_output", text.into_bytes()))
    }
}

impl Batch {
    fn next_status(&self) -> &'static str {
        let plan = &self.plan;
        let polls = self.seen.polls;
        let in_progress_until = plan.validating + plan.in_progress;
        if self.cancelled {
            "cancelled"
        } else if polls <= plan.validating {
            "validating"
        } else if self.input.is_err() {
            "failed"
        } else if let BatchEnd::Failed { .. } = plan.end {
            "failed"
        } else if polls <= in_progress_until {
            "in_progress"
        } else if polls <= in_progress_until + plan.finalizing {
            "finalizing"
        } else if let BatchEnd::Expired { .. } = plan.end {
            "expired"
        } else {
            "completed"
        }
    }

    /// Lines of the output file and of the error file, with their ids.
    fn run(
        &self,
        lines: &[Line],
        ask: &impl Fn(Asked) -> (Asked, Answer),
    ) -> (Vec<ResultLine>, Vec<ResultLine>) {
        let (answered, silent, code) = match self.plan.end {
            _ if self.cancelled => (lines.len() / 2, 0, "batch_cancelled"),
            BatchEnd::Expired { answered, silent } => (answered, silent, "batch_expired"),
            _ => (lines.len(), 0, ""),
        };
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        for (i, line) in lines.iter().enumerate() {
            let id = &line.custom_id;
            let result = |response: Value, error: Value| {
                let id_of_line = format!("batch_req_{i}");
                let result = json!({"id": id_of_line, "custom_id": id, "response": response, "error": error});
                (id.clone(), result.to_string())
            };
            let response = |status: u16, body: Value| json!({"status_code": status, "request_id": format!("req_{i}"), "body": body});
            let failure = |code: &str, message: &str| {
                result(Value::Null, json!({"code": code, "message": message}))
            };
            if i >= answered && i + silent >= lines.len() {
                continue;
            }
            if i >= answered {
                errors.push(failure(code, "the line was not reached in time"));
                continue;
            }
            let (asked, answer) = ask(Asked::from_batch_line(
                id,
                &line.method,
                &line.url,
                line.body.clone(),
            ));
            let correct = |reply: &Reply| {
                let body = shape::reply(asked.dialect.unwrap_or(Dialect::OpenAi), &asked, reply);
                result(response(200, body), Value::Null)
            };
            match answer {
                Answer::Reply(reply)
                | Answer::ReplyLater(_, reply)
                | Answer::SlowBytes(_, reply) => output.push(correct(&reply)),
                Answer::Truncated(text) => {
                    output.push(correct(&Reply::from(text).finish(Finish::Length)));
                }
                Answer::Status(status, _, body) => {
                    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
                    errors.push(result(response(status, body), Value::Null));
                }
                Answer::Garbage(_)
                | Answer::CloseBeforeAnswer
                | Answer::EndBeforeAnswer
                | Answer::CloseMidBody
                | Answer::Endless(_)
                | Answer::Hang => errors.push(failure("server_error", "the model gave no answer")),
            }
        }
        (output, errors)
    }

    fn to_json(&self) -> Value {
        let none = Results::default();
        let results = self.results.as_ref().unwrap_or(&none);
        let failed = self.seen.status == "failed";
        let errors = match (&self.input, &self.plan.end) {
            _ if !failed => Value::Null,
            (Err(error), _) => json!({"object": "list", "data": [error]}),
            (
                _,
                BatchEnd::Failed {
                    code,
                    message,
                    line,
                },
            ) => {
                let error = json!({"code": code, "message": message, "param": null, "line": line});
                json!({"object": "list", "data": [error]})
            }
            _ => Value::Null,
        };
        json!({
            "id": self.seen.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": errors,
            "input_file_id": self.seen.input_file_id,
            "completion_window": "24h",
            "status": self.seen.status,
            "output_file_id": results.output_file,
            "error_file_id": results.error_file,
            "created_at": CREATED_AT,
            "expires_at": CREATED_AT + 86_400,
            "request_counts": {
                "total": self.seen.lines,
                "completed": results.completed,
                "failed": results.failed,
            },
            "metadata": self.seen.metadata,
        })
    }
}

impl File {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "object": "file",
            "bytes": self.bytes.len(),
            "created_at": CREATED_AT,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
        })
    }
}
