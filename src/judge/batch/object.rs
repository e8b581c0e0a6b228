//! The batch object that a provider answers polls with.

use serde_json::Value;

/// A batch as a provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchObject {
    /// The provider's id of the batch.
    pub id: String,
    /// Where it stands.
    pub status: BatchStatus,
    /// How many of its lines are done; zeros where the provider does not say.
    pub request_counts: RequestCounts,
    /// The file of replies; `None` while there is none, or if no line has one.
    pub output_file_id: Option<String>,
    /// The file of failed and expired lines; `None` while there is none, or if no line failed.
    pub error_file_id: Option<String>,
}

/// Where a batch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchStatus {
    /// The file of requests is being checked.
    Validating,
    /// The file of requests was refused: no line was run.
    Failed {
        /// What is wrong with it; may be empty.
        errors: Vec<BatchError>,
    },
    /// Lines are being run.
    InProgress,
    /// Lines have been run, files of results are being written.
    Finalizing,
    /// Every line was run; some may have failed.
    Completed,
    /// Time ran out; lines that were run have results.
    Expired,
    /// A cancellation was asked for; lines already begun still run.
    Cancelling,
    /// The batch was cancelled; lines that were run have results.
    Cancelled,
}

/// Lines of a batch by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// All lines.
    pub total: u64,
    /// Lines with a reply.
    pub completed: u64,
    /// Lines that failed.
    pub failed: u64,
}

/// Why a file of requests was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchError {
    /// The provider's word for it; empty if there is none.
    pub code: String,
    /// For readers; empty if there is none.
    pub message: String,
    /// The line at fault, from 1.
    pub line: Option<u64>,
}

/// Why an answer is not a batch object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchObjectError {
    /// It is not a JSON object.
    #[error(
        "the endpoint's answer about a batch is not a JSON object; does it have batch endpoints?"
    )]
    NotAnObject,
    /// A field is missing or not a string.
    #[error("the endpoint's answer about a batch has no `{0}`; does it have batch endpoints?")]
    Missing(&'static str),
    /// The status is none of the known ones.
    #[error("batch {id} has the unknown status `{status}`; it is left as it is, look again later")]
    Status {
        /// The batch.
        id: String,
        /// What was found.
        status: String,
    },
}

impl BatchObject {
    /// Reads an answer of `POST /batches` or `GET /batches/{id}`.
    ///
    /// # Errors
    /// [`BatchObjectError`].
    pub fn from_value(value: &Value) -> Result<Self, BatchObjectError> {
        if !value.is_object() {
            return Err(BatchObjectError::NotAnObject);
        }
        let id = word(value, "id").ok_or(BatchObjectError::Missing("id"))?;
        let status = word(value, "status").ok_or(BatchObjectError::Missing("status"))?;
        let status = match status.as_str() {
            "validating" => BatchStatus::Validating,
            "failed" => BatchStatus::Failed {
                errors: errors(&value["errors"]),
            },
            "in_progress" => BatchStatus::InProgress,
            "finalizing" => BatchStatus::Finalizing,
            "completed" => BatchStatus::Completed,
            "expired" => BatchStatus::Expired,
            "cancelling" => BatchStatus::Cancelling,
            "cancelled" => BatchStatus::Cancelled,
            _ => return Err(BatchObjectError::Status { id, status }),
        };
        let count = |key: &str| value["request_counts"][key].as_u64().unwrap_or(0);
        Ok(Self {
            id,
            status,
            request_counts: RequestCounts {
                total: count("total"),
                completed: count("completed"),
                failed: count("failed"),
            },
            output_file_id: word(value, "output_file_id"),
            error_file_id: word(value, "error_file_id"),
        })
    }
}

impl BatchStatus {
    /// The provider's word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Failed { .. } => "failed",
            Self::InProgress => "in_progress",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the batch will not change any more.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::Completed | Self::Expired | Self::Cancelled => true,
            Self::Validating | Self::InProgress | Self::Finalizing | Self::Cancelling => false,
        }
    }
}

/// A string that says something: some servers send empty strings for absent files.
fn word(value: &Value, key: &str) -> Option<String> {
    let word = value[key].as_str().filter(|word| !word.is_empty());
    word.map(str::to_owned)
}

/// `{"data": […]}`, or the array alone.
fn errors(value: &Value) -> Vec<BatchError> {
    let list = value.as_array().or_else(|| value["data"].as_array());
    list.into_iter()
        .flatten()
        .map(|error| BatchError {
            code: word(error, "code").unwrap_or_default(),
            message: word(error, "message").unwrap_or_default(),
            line: error["line"].as_u64(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(value: Value) -> Result<BatchObject, BatchObjectError> {
        BatchObject::from_value(&value)
    }

    #[test]
    fn every_status_is_read_and_named_as_the_provider_does() {
        let finals = ["failed", "completed", "expired", "cancelled"];
        let open = ["validating", "in_progress", "finalizing", "cancelling"];
        for (word, is_final) in finals
            .map(|w| (w, true))
            .into_iter()
            .chain(open.map(|w| (w, false)))
        {
            let batch = parsed(json!({"id": "b", "status": word})).unwrap();
            assert_eq!(batch.status.as_str(), word);
            assert_eq!(batch.status.is_final(), is_final, "{word}");
        }
    }

    #[test]
    fn counts_and_files_are_read() {
        let batch = parsed(
            json!({"id": "batch_1", "object": "batch", "status": "completed", "errors": null,
            "input_file_id": "file-i", "output_file_id": "file-o", "error_file_id": null,
            "request_counts": {"total": 100, "completed": 95, "failed": 5}}),
        );
        assert_eq!(
            batch.unwrap(),
            BatchObject {
                id: "batch_1".into(),
                status: BatchStatus::Completed,
                request_counts: RequestCounts {
                    total: 100,
                    completed: 95,
                    failed: 5
                },
                output_file_id: Some("file-o".into()),
                error_file_id: None,
            }
        );
        let young = json!({"id": "b", "status": "validating", "output_file_id": "", "request_counts": null});
        let young = parsed(young).unwrap();
        assert_eq!(
            (young.output_file_id, young.request_counts.total),
            (None, 0)
        );
    }

    #[test]
    fn a_refused_file_says_why() {
        let error = json!({"code": "invalid_json_line", "message": "m", "param": null, "line": 3});
        let expected = BatchStatus::Failed {
            errors: vec![BatchError {
                code: "invalid_json_line".into(),
                message: "m".into(),
                line: Some(3),
            }],
        };
        for errors in [json!({"object": "list", "data": [error]}), json!([error])] {
            let batch = parsed(json!({"id": "b", "status": "failed", "errors": errors})).unwrap();
            assert_eq!(batch.status, expected);
        }
        let batch = parsed(json!({"id": "b", "status": "failed", "errors": null})).unwrap();
        assert_eq!(batch.status, BatchStatus::Failed { errors: Vec::new() });
    }

    #[test]
    fn other_answers_are_errors() {
        assert_eq!(parsed(json!("<html>")), Err(BatchObjectError::NotAnObject));
        assert_eq!(parsed(json!([])), Err(BatchObjectError::NotAnObject));
        assert_eq!(
            parsed(json!({"status": "completed"})),
            Err(BatchObjectError::Missing("id"))
        );
        assert_eq!(
            parsed(json!({"id": "b", "status": 3})),
            Err(BatchObjectError::Missing("status"))
        );
        let error = parsed(json!({"id": "b", "status": "asleep"})).unwrap_err();
        assert!(error.to_string().contains("`asleep`"));
    }
}
