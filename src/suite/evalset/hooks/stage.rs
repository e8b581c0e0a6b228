//! The stages of an evaluation as hooks see them: what is asked for, and how it ended.

use std::time::{Duration, SystemTime};

use crate::suite::evalset::model::{EvalMetric, Invocation};
use crate::suite::evalset::result::EvalStatus;

/// What the agent is to be asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferenceRequest {
    /// The application.
    pub app_name: String,
    /// The set.
    pub eval_set_id: String,
    /// The pass over the set, from 1.
    pub run: u32,
    /// The cases; all of the set where none is named. Ids that no case has are passed over.
    pub case_ids: Vec<String>,
}

/// What is to be scored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluateRequest {
    /// The application.
    pub app_name: String,
    /// The set.
    pub eval_set_id: String,
    /// The pass over the set, from 1.
    pub run: u32,
    /// The cases, of those that the agent was asked about.
    pub case_ids: Vec<String>,
    /// The metrics, in the order of their file.
    pub metrics: Vec<EvalMetric>,
}

/// What came of asking the agent about a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferenceResult {
    /// `appName`
    pub app_name: String,
    /// `evalSetId`
    pub eval_set_id: String,
    /// `evalCaseId`
    pub eval_id: String,
    /// `evalMode`: empty or `trace`.
    pub mode: String,
    /// `inferences`: what was done, turn by turn; none where the case failed.
    pub inferences: Vec<Invocation>,
    /// `sessionId`: a new one for each case and run.
    pub session_id: String,
    /// `userId`
    pub user_id: String,
    /// `status`: passed, or failed.
    pub status: EvalStatus,
    /// `errorMessage`; empty unless it failed.
    pub error_message: String,
}

/// How a stage ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a, T: ?Sized> {
    /// What came of it; none if it broke off.
    pub result: Option<&'a T>,
    /// Why it broke off.
    pub error: Option<&'a str>,
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub took: Duration,
}
