//! One request and its answer: JSON out, JSON back, and no more of it in memory than an answer may have.

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use super::limited_body::{LONGEST_ANSWER, LONGEST_ERROR, beginning};

/// Why there is no JSON of a success.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The request or its answer did not come through.
    Transport(reqwest::Error),
    /// Any status but a success.
    Status {
        /// The status.
        status: u16,
        /// All headers of the answer.
        headers: HeaderMap,
        /// The beginning of the body.
        body: String,
    },
    /// The answer goes on beyond [`LONGEST_ANSWER`].
    TooLarge,
    /// It is no JSON.
    NotJson {
        /// What it says to be, if that is not JSON.
        content_type: Option<String>,
        /// What the reader met.
        cause: serde_json::Error,
    },
}

/// Sends JSON and reads the JSON that comes back.
///
/// # Errors
/// [`NoAnswer`].
pub(super) async fn post(
    client: &reqwest::Client,
    url: &str,
    headers: &[(String, String)],
    body: &Value,
) -> Result<Value, NoAnswer> {
    let request = headers
        .iter()
        .fold(client.post(url), |request, (name, value)| {
            request.header(name, value)
        });
    let answer = request.json(body).send().await;
    let answer = answer.map_err(NoAnswer::Transport)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    if !status.is_success() {
        // Whatever of the error's text comes: the status has said what counts.
        let read = beginning(answer.bytes_stream(), LONGEST_ERROR).await;
        let (bytes, _) = read.unwrap_or_default();
        return Err(NoAnswer::Status {
            status: status.as_u16(),
            headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    let read = beginning(answer.bytes_stream(), LONGEST_ANSWER).await;
    let (bytes, whole) = read.map_err(NoAnswer::Transport)?;
    if !whole {
        return Err(NoAnswer::TooLarge);
    }
    let text = String::from_utf8_lossy(&bytes);
    serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|cause| {
        let said = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let said = said.filter(|said| !said.contains("json"));
        NoAnswer::NotJson {
            content_type: said.map(str::to_owned),
            cause,
        }
    })
}
