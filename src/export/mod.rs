//! Giving scores back: the scores of a finished run as the bodies that other systems take in, in a file or sent to them.
//!
//! ```text
//! scores of a run ─ filter ─ body (one file a system) ─┬─ file, there whole or not at all
//!                                                      └─ ledger ─ requests ─ judge::Poster
//! ```
//!
//! Every score has an id that is made of what it is: what computed it, whom it is about, and its metric. So the same score
//! has the same id in every export, and a system that takes it in again keeps one. `README.md` here has the rules.

mod file;
mod langfuse;
mod langsmith;
mod ledger;
mod otel;
mod pandaprobe;
mod phoenix;
mod score;
mod send;
mod stored_scores;
mod table;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub use file::write_file;
pub use score::Level;
pub use send::{Sending, send};
pub use stored_scores::Chosen;

use crate::history::HistoryError;
use crate::judge::PostError;
use wire::Wire;

/// A system, or a kind of table, that scores are given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Scores of Langfuse.
    Langfuse,
    /// Annotations of Phoenix.
    Phoenix,
    /// Feedback of LangSmith.
    LangSmith,
    /// Spans of OpenTelemetry that carry evaluations.
    Otel,
    /// Trace scores of PandaProbe.
    PandaProbe,
    /// A table as CSV.
    Csv,
    /// A table as Parquet.
    Parquet,
}

impl System {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Langfuse => "langfuse",
            Self::Phoenix => "phoenix",
            Self::LangSmith => "langsmith",
            Self::Otel => "otel",
            Self::PandaProbe => "pandaprobe",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// How the names of its files end.
    pub fn ending(self) -> String {
        match self {
            Self::Csv | Self::Parquet => self.name().to_owned(),
            _ => format!("{}.jsonl", self.name()),
        }
    }

    /// What it speaks; none for tables.
    fn wire(self, form: OtelForm) -> Option<Box<dyn Wire>> {
        Some(match self {
            Self::Langfuse => Box::new(langfuse::Langfuse),
            Self::Phoenix => Box::new(phoenix::Phoenix),
            Self::LangSmith => Box::new(langsmith::LangSmith),
            Self::Otel => Box::new(otel::Otel { form }),
            Self::PandaProbe => Box::new(pandaprobe::PandaProbe),
            Self::Csv | Self::Parquet => return None,
        })
    }
}

/// How a span of OpenTelemetry carries a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtelForm {
    /// As attributes `trace.annotations.0.annotation.…` of OpenInference.
    #[default]
    Annotations,
    /// As an event `gen_ai.evaluation.result`.
    Events,
}

/// What an export came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The system.
    pub to: String,
    /// The file, or the endpoint without secrets.
    pub target: String,
    /// Scores that were written, or taken by the endpoint.
    pub scores: u64,
    /// Scores that the endpoint had taken from here before.
    pub already: u64,
    /// Scores that it refused.
    pub refused: u64,
    /// Scores of traces and sessions that it does not have.
    pub not_there: u64,
    /// The first of these traces and sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_not_there: Vec<String>,
    /// Why it refused the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_refusal: Option<String>,
    /// Rows without a number, by status: they are no score, and are not sent as one.
    pub without_score: BTreeMap<String, u64>,
    /// Scores that the system has no place for, by reason.
    pub no_place: BTreeMap<String, u64>,
}

impl Exported {
    /// Whether every score of the run that was chosen has arrived.
    pub fn is_whole(&self) -> bool {
        self.refused == 0 && self.not_there == 0 && self.no_place.is_empty()
    }
}

/// Why scores can't be given to a system.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run can't be read.
    #[error(transparent)]
    Run(#[from] HistoryError),
    /// Something is asked for that can't be.
    #[error("{0}")]
    Request(String),
    /// A file can't be written.
    #[error("`{path}`: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The endpoint stopped the sending. What it took is in the ledger.
    #[error(
        "{error}; {sent} of the scores were taken, and are in the ledger `{ledger}`: the same command goes on from there",
        ledger = ledger.display()
    )]
    Stopped {
        /// The endpoint's words.
        error: PostError,
        /// Scores taken before, in this export.
        sent: u64,
        /// The ledger of what was sent.
        ledger: PathBuf,
    },
}

impl ExportError {
    fn file(path: &std::path::Path, problem: impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}
