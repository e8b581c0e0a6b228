//! What a test says about batches, and what it sees of them.

use serde_json::Value;

/// How a batch goes.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// How many polls see `validating`.
    pub validating: usize,
    /// How many polls then see `in_progress`.
    pub in_progress: usize,
    /// How many polls then see `finalizing`.
    pub finalizing: usize,
    /// What every later poll sees.
    pub end: BatchEnd,
    /// Lines put between those of the output file as they are.
    pub stray_lines: Vec<String>,
}

/// How a batch ends, unless it is cancelled. A cancelled batch has the first half of its lines answered.
#[derive(Clone, Debug)]
pub enum BatchEnd {
    /// Every line is answered.
    Completed,
    /// Time ran out.
    Expired {
        /// So many lines, the first of the file, are answered.
        answered: usize,
        /// So many lines, the last of the file, are in neither file of results; the others are errors of code
        /// `batch_expired`.
        silent: usize,
    },
    /// The file is refused.
    Failed {
        /// OpenAI's word for it.
        code: String,
        /// For readers.
        message: String,
        /// The line at fault, from 1.
        line: Option<u64>,
    },
}

impl Default for BatchPlan {
    fn default() -> Self {
        Self {
            validating: 1,
            in_progress: 1,
            finalizing: 0,
            end: BatchEnd::Completed,
            stray_lines: Vec::new(),
        }
    }
}

/// A batch as tests see it.
#[derive(Clone, Debug)]
pub struct BatchSeen {
    /// Its id.
    pub id: String,
    /// The id of its input file.
    pub input_file_id: String,
    /// Lines of its input file.
    pub lines: usize,
    /// The last status sent.
    pub status: String,
    /// How often it was polled.
    pub polls: usize,
    /// The metadata sent at its creation.
    pub metadata: Value,
}
