//! Files of batches: uploads, lines of requests, and the order of results.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::pass::fnv;

const MOST_LINES: usize = 50_000;

/// A request of a batch.
pub(super) struct Line {
    pub(super) custom_id: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) body: Value,
}

/// Reads a file of requests as strictly as a provider: one line at fault refuses all of it.
pub(super) fn read_lines(bytes: &[u8], endpoint: &str) -> Result<Vec<Line>, Value> {
    let mut lines: Vec<Line> = Vec::new();
    let mut ids = HashSet::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let fault = |code: &str, message: &str| json!({"code": code, "message": message, "param": null, "line": i + 1});
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            return Err(fault("invalid_json_line", "the line is not JSON"));
        };
        let word = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let line = Line {
            custom_id: word("custom_id"),
            method: word("method"),
            url: word("url"),
            body: value["body"].clone(),
        };
        if line.custom_id.is_empty() || line.custom_id.len() > 64 {
            return Err(fault("invalid_custom_id", "custom_id has 1 to 64 bytes"));
        }
        if line.method != "POST" || line.url != endpoint || !line.body.is_object() {
            return Err(fault("invalid_request", "method, url or body is wrong"));
        }
        if !ids.insert(line.custom_id.clone()) {
            return Err(fault("duplicate_custom_id", "custom_id came before"));
        }
        if lines.len() == MOST_LINES {
            return Err(fault("too_many_tasks", "more lines than 50,000"));
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(
            json!({"code": "empty_file", "message": "the file has no lines", "param": null, "line": null}),
        );
    }
    Ok(lines)
}

/// A custom id and its line of results.
pub(super) type ResultLine = (String, String);

/// Lines in an order of their own: results come in no order, and the same one every time.
pub(super) fn mixed(lines: Vec<ResultLine>, stray: Vec<String>) -> Vec<String> {
    let stray = stray.into_iter().map(|line| (line.clone(), line));
    let mut lines: Vec<ResultLine> = lines.into_iter().chain(stray).collect();
    lines.sort_by_key(|(id, _)| fnv(0, id.as_bytes()));
    lines.into_iter().map(|(_, line)| line).collect()
}

/// One part of a multipart body.
pub(super) struct Part<'a> {
    pub(super) name: String,
    pub(super) file_name: String,
    pub(super) bytes: &'a [u8],
}

/// The parts of a multipart body.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &str) -> Vec<Part<'a>> {
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what);
    let first = format!("--{boundary}\r\n");
    let between = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let Some(start) = find(body, first.as_bytes()) else {
        return parts;
    };
    let mut rest = &body[start + first.len()..];
    while let Some(head_end) = find(rest, b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        let content = &rest[head_end + 4..];
        let Some(end) = find(content, between.as_bytes()) else {
            return parts;
        };
        // `name="` alone would be found in `filename="` too.
        let word = |key: &str| {
            let (_, after) = head.split_once(key)?;
            after.split('"').next().map(str::to_owned)
        };
        parts.push(Part {
            name: word(" name=\"").unwrap_or_default(),
            file_name: word("filename=\"").unwrap_or_default(),
            bytes: &content[..end],
        });
        rest = &content[end + between.len()..];
    }
    parts
}
