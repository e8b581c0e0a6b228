//! Points as lines: one JSON object each, for logs and for hooks that are programs.

use serde_json::{Map, Value, json};

use super::{
    Ended, EvalHooks, EvaluateRequest, HookAnswer, HookContext, HookPoint, InferenceRequest,
    InferenceResult,
};
use crate::suite::evalset::result::{CaseResult, EvalStatus};

/// A point as one line of JSON.
pub(in super::super) struct Line<'a> {
    /// `point`, `run`, `app`, `set` and, as far as they are known at the point, `evalId`, `sessionId`, `status`,
    /// `errorMessage`, `durationMs` and `request`.
    pub(in super::super) members: Map<String, Value>,
    /// What hooks before left.
    pub(in super::super) context: &'a HookContext,
    /// What may be changed at this point.
    pub(in super::super) changes: Changes<'a>,
}

/// The request that a hook may change.
pub(in super::super) enum Changes<'a> {
    /// At most points none.
    Nothing,
    /// The cases.
    Inference(&'a mut InferenceRequest),
    /// The cases and metrics.
    Evaluate(&'a mut EvaluateRequest),
}

/// Something that takes every point as a line.
pub(in super::super) trait TakesLines: Send + Sync {
    /// Takes one.
    fn take(&self, line: Line<'_>) -> HookAnswer;
}

/// Hooks of something that takes lines.
pub(in super::super) struct LineHooks<T>(pub(in super::super) T);

/// The beginning of a line.
fn begun(point: HookPoint, run: u32, app: &str, set: &str) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("point".to_owned(), point.name().into());
    members.insert("run".to_owned(), run.into());
    members.insert("app".to_owned(), app.into());
    members.insert("set".to_owned(), set.into());
    members
}

fn of_inference(point: HookPoint, request: &InferenceRequest) -> Map<String, Value> {
    begun(point, request.run, &request.app_name, &request.eval_set_id)
}

fn of_evaluation(point: HookPoint, request: &EvaluateRequest) -> Map<String, Value> {
    begun(point, request.run, &request.app_name, &request.eval_set_id)
}

fn put(members: &mut Map<String, Value>, name: &str, value: &str) {
    if !value.is_empty() {
        members.insert(name.to_owned(), value.into());
    }
}

/// Adds how a stage ended. One that broke off has failed, with its error as the message.
fn put_end<T: ?Sized>(
    members: &mut Map<String, Value>,
    ended: &Ended<'_, T>,
    status: EvalStatus,
    message: &str,
) {
    let status = match ended.error {
        Some(_) => EvalStatus::Failed,
        None => status,
    };
    put(members, "status", status.name());
    put(members, "errorMessage", ended.error.unwrap_or(message));
    let milliseconds = u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX);
    members.insert("durationMs".to_owned(), milliseconds.into());
}

/// Failed if any is, else passed if any is, else not evaluated.
fn status_of_all(statuses: impl Iterator<Item = EvalStatus>) -> EvalStatus {
    let rank = |status: &EvalStatus| match status {
        EvalStatus::Failed => 2,
        EvalStatus::Passed => 1,
        _ => 0,
    };
    statuses
        .max_by_key(rank)
        .filter(|status| rank(status) > 0)
        .unwrap_or(EvalStatus::NotEvaluated)
}

impl<T: TakesLines> LineHooks<T> {
    fn take(&self, members: Map<String, Value>, context: &HookContext) -> HookAnswer {
        self.0.take(Line {
            members,
            context,
            changes: Changes::Nothing,
        })
    }
}

impl<T: TakesLines> EvalHooks for LineHooks<T> {
    fn before_inference_set(
        &self,
        context: &HookContext,
        request: &mut InferenceRequest,
    ) -> HookAnswer {
        let mut members = of_inference(HookPoint::BeforeInferenceSet, request);
        let asked = json!({"evalCaseIds": request.case_ids});
        members.insert("request".to_owned(), asked);
        self.0.take(Line {
            members,
            context,
            changes: Changes::Inference(request),
        })
    }

    fn before_inference_case(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        eval_id: &str,
        session_id: &str,
    ) -> HookAnswer {
        let mut members = of_inference(HookPoint::BeforeInferenceCase, request);
        put(&mut members, "evalId", eval_id);
        put(&mut members, "sessionId", session_id);
        self.take(members, context)
    }

    fn after_inference_case(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, InferenceResult>,
    ) -> HookAnswer {
        let mut members = of_inference(HookPoint::AfterInferenceCase, request);
        let result = ended.result;
        put(
            &mut members,
            "evalId",
            result.map_or("", |result| &result.eval_id),
        );
        put(
            &mut members,
            "sessionId",
            result.map_or("", |result| &result.session_id),
        );
        let status = result.map_or(EvalStatus::Unset, |result| result.status);
        let message = result.map_or("", |result| &result.error_message);
        put_end(&mut members, ended, status, message);
        self.take(members, context)
    }

    fn after_inference_set(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, [InferenceResult]>,
    ) -> HookAnswer {
        let mut members = of_inference(HookPoint::AfterInferenceSet, request);
        let results = ended.result.unwrap_or_default().iter();
        let status = status_of_all(results.map(|result| result.status));
        put_end(&mut members, ended, status, "");
        self.take(members, context)
    }

    fn before_evaluate_set(
        &self,
        context: &HookContext,
        request: &mut EvaluateRequest,
    ) -> HookAnswer {
        let mut members = of_evaluation(HookPoint::BeforeEvaluateSet, request);
        let metrics = request.metrics.iter().map(|metric| metric.name.as_str());
        let metrics: Vec<&str> = metrics.collect();
        let asked = json!({"evalCaseIds": request.case_ids, "metrics": metrics});
        members.insert("request".to_owned(), asked);
        self.0.take(Line {
            members,
            context,
            changes: Changes::Evaluate(request),
        })
    }

    fn before_evaluate_case(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        eval_id: &str,
    ) -> HookAnswer {
        let mut members = of_evaluation(HookPoint::BeforeEvaluateCase, request);
        put(&mut members, "evalId", eval_id);
        self.take(members, context)
    }

    fn after_evaluate_case(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        inference: &InferenceResult,
        ended: &Ended<'_, CaseResult>,
    ) -> HookAnswer {
        let mut members = of_evaluation(HookPoint::AfterEvaluateCase, request);
        put(&mut members, "evalId", &inference.eval_id);
        put(&mut members, "sessionId", &inference.session_id);
        let status = ended
            .result
            .map_or(EvalStatus::Unset, |result| result.status);
        let message = ended.result.map_or("", |result| &result.error_message);
        put_end(&mut members, ended, status, message);
        self.take(members, context)
    }

    fn after_evaluate_set(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        ended: &Ended<'_, [CaseResult]>,
    ) -> HookAnswer {
        let mut members = of_evaluation(HookPoint::AfterEvaluateSet, request);
        let results = ended.result.unwrap_or_default().iter();
        let status = status_of_all(results.map(|result| result.status));
        put_end(&mut members, ended, status, "");
        self.take(members, context)
    }
}
