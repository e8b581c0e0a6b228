//! Files of batch results, read line by line: an output file and an error file have lines of the same form.

use std::io::{self, BufRead};

use serde_json::Value;

/// A longer line is a bad line: no judge's reply has 32 MiB.
const LARGEST_LINE: usize = 32 << 20;
/// So many bad lines are named; all are counted.
const NAMED_BAD_LINES: usize = 100;

/// The result of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchResult {
    /// The id under which the request was sent.
    pub custom_id: String,
    /// What became of it.
    pub outcome: BatchOutcome,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The model answered.
    Reply(BatchReply),
    /// The request was refused, or its answer holds no text.
    Failed {
        /// The HTTP status of the line, where it has one.
        status: Option<u16>,
        /// The provider's word for the error; `refusal`, `content_filter` or `no_text` for an answer without text.
        code: Option<String>,
        /// For readers; may be empty.
        message: String,
        /// Tokens that were paid all the same.
        usage: Option<BatchUsage>,
    },
    /// The batch ran out of time before this request (code `batch_expired`): it cost nothing and can be sent again.
    Expired,
}

/// An answer of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchReply {
    /// What it says.
    pub text: String,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// Tokens; `None` where the provider does not count them.
    pub usage: Option<BatchUsage>,
    /// Why the model stopped: `stop`, `length` or another word of the provider.
    pub finish_reason: Option<String>,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchUsage {
    /// Tokens of the request, cached ones included.
    pub prompt: u64,
    /// Tokens of the answer.
    pub completion: u64,
    /// Tokens of the request that came from the provider's cache.
    pub cached: u64,
}

/// A line that is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it. Never holds its content.
    pub reason: &'static str,
}

/// What a file of results held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// Lines that are results.
    pub results: u64,
    /// Lines that are not; empty lines are neither.
    pub bad: u64,
    /// The first 100 of them.
    pub bad_lines: Vec<BadLine>,
}

/// Gives every result of a file to `each`, in the order of the file. Bad lines are counted and named, and reading goes on.
///
/// Memory: one line of at most 32 MiB.
///
/// # Errors
/// Only those of the reader.
pub fn read_results(
    mut reader: impl BufRead,
    mut each: impl FnMut(BatchResult),
) -> io::Result<ReadSummary> {
    let mut summary = ReadSummary::default();
    let mut line = Vec::new();
    for number in 1.. {
        let Some(length) = next_line(&mut reader, &mut line)? else {
            break;
        };
        let mut text = line.as_slice();
        if number == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if length == line.len() && text.trim_ascii().is_empty() {
            continue;
        }
        let parsed = match length == line.len() {
            true => parse(text),
            false => Err("longer than 32 MiB"),
        };
        match parsed {
            Ok(result) => {
                summary.results += 1;
                each(result);
            }
            Err(reason) => {
                summary.bad += 1;
                if summary.bad_lines.len() < NAMED_BAD_LINES {
                    summary.bad_lines.push(BadLine {
                        line: number,
                        reason,
                    });
                }
            }
        }
    }
    Ok(summary)
}

/// Reads the next line, without its end, and returns its length; of longer lines than allowed only a part is kept.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
    line.clear();
    let mut length = 0;
    loop {
        let seen = match reader.fill_buf() {
            Ok(seen) => seen,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if seen.is_empty() {
            return Ok((length > 0).then_some(length));
        }
        let end = seen.iter().position(|b| *b == b'\n');
        let part = seen.get(..end.unwrap_or(seen.len())).unwrap_or(seen);
        length += part.len();
        if length <= LARGEST_LINE {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(length));
        }
    }
}

fn parse(line: &[u8]) -> Result<BatchResult, &'static str> {
    let line: Value = serde_json::from_slice(line).map_err(|_| "not JSON")?;
    if !line.is_object() {
        return Err("not a JSON object");
    }
    let custom_id = line["custom_id"].as_str().filter(|id| !id.is_empty());
    let custom_id = custom_id.ok_or("no custom_id")?.to_owned();
    let (response, error) = (&line["response"], &line["error"]);
    if !response.is_object() && error.is_null() {
        return Err("neither a response nor an error");
    }
    let outcome = outcome(response, error);
    Ok(BatchResult { custom_id, outcome })
}

fn outcome(response: &Value, error: &Value) -> BatchOutcome {
    let body = &response["body"];
    let status = response["status_code"].as_u64();
    let status = status.and_then(|status| u16::try_from(status).ok());
    // Some servers name no status where all went well.
    let succeeded = status.is_none_or(|status| (200..300).contains(&status))
        && error.is_null()
        && body["error"].is_null();
    if succeeded {
        return reply(status, body);
    }
    let details = [error, &body["error"], body];
    let details = details.into_iter().find(|d| !d.is_null()).unwrap_or(error);
    let code = code(&details["code"]).or_else(|| code(&details["type"]));
    if code.as_deref() == Some("batch_expired") {
        return BatchOutcome::Expired;
    }
    // A server's own page, or a plain sentence, is its message.
    let message = details["message"].as_str().or_else(|| details.as_str());
    BatchOutcome::Failed {
        status,
        code,
        message: message.unwrap_or_default().to_owned(),
        usage: usage(&body["usage"]),
    }
}

fn reply(status: Option<u16>, body: &Value) -> BatchOutcome {
    let choice = &body["choices"][0];
    let usage = usage(&body["usage"]);
    // As with single calls: a message that neither says a word nor ended for a reason is none.
    let ended = choice["finish_reason"].is_string();
    let text = text(&choice["message"]["content"]).filter(|text| ended || !text.is_empty());
    if let Some(text) = text {
        return BatchOutcome::Reply(BatchReply {
            text,
            model: body["model"].as_str().map(str::to_owned),
            usage,
            finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        });
    }
    let refusal = choice["message"]["refusal"].as_str();
    let (code, message) = match refusal {
        Some(refusal) => ("refusal", refusal),
        None if choice["finish_reason"] == "content_filter" => {
            ("content_filter", "the provider's filter stopped the answer")
        }
        None => ("no_text", "the answer holds no text"),
    };
    BatchOutcome::Failed {
        status,
        code: Some(code.to_owned()),
        message: message.to_owned(),
        usage,
    }
}

/// A string, or the texts of an array of parts.
fn text(content: &Value) -> Option<String> {
    let part = |part: &Value| part["text"].as_str().map(str::to_owned);
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if parts.iter().any(|p| p["text"].is_string()) => {
            Some(parts.iter().filter_map(part).collect())
        }
        _ => None,
    }
}

fn usage(usage: &Value) -> Option<BatchUsage> {
    let details = &usage["prompt_tokens_details"];
    // No call has so many tokens: such a number counts nothing.
    let tokens = |count: &Value| count.as_u64().filter(|n| *n <= 1 << 40);
    Some(BatchUsage {
        prompt: tokens(&usage["prompt_tokens"])?,
        completion: tokens(&usage["completion_tokens"])?,
        cached: tokens(&details["cached_tokens"]).unwrap_or(0),
    })
}

/// Codes are words, or numbers at some servers.
fn code(code: &Value) -> Option<String> {
    match code {
        Value::String(code) if !code.is_empty() => Some(code.clone()),
        Value::Number(code) => Some(code.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
