//! Hooks: components of the user that see an evaluation at eight points, and may steer it (as in trpc-agent-go).
//!
//! Hooks around a set and its phases are called once a run; those around a case once a case and run, from as many
//! threads as there are cases at the same time. Errors of hooks of a set and of the scoring of a case stop the run;
//! those around the inference of a case fail the case.

mod line;
mod registry;
mod stage;

use std::sync::Arc;

use serde_json::{Map, Value};

pub(super) use line::{Changes, Line, LineHooks, TakesLines};
pub use registry::{HookError, HookPoint, HookProblem, HookRegistry};
pub use stage::{Ended, EvaluateRequest, InferenceRequest, InferenceResult};

use super::result::CaseResult;

/// Values that hooks leave for later hooks, by name. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookContext(Arc<Map<String, Value>>);

impl HookContext {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All of them, in the order in which they came.
    pub fn values(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The same context and one value more, in the place of one of the same name.
    #[must_use]
    pub fn with(&self, name: &str, value: Value) -> Self {
        let mut values = Map::clone(&self.0);
        values.insert(name.to_owned(), value);
        Self(Arc::new(values))
    }

    /// These values and those of `later`, which stand in the place of those of the same names.
    #[must_use]
    pub(super) fn and(&self, later: &Self) -> Self {
        match (self.0.is_empty(), later.0.is_empty()) {
            (_, true) => self.clone(),
            (true, _) => later.clone(),
            (false, false) => {
                let mut values = Map::clone(&self.0);
                values.extend(
                    later
                        .0
                        .iter()
                        .map(|(name, value)| (name.clone(), value.clone())),
                );
                Self(Arc::new(values))
            }
        }
    }
}

impl From<Map<String, Value>> for HookContext {
    fn from(values: Map<String, Value>) -> Self {
        Self(Arc::new(values))
    }
}

/// What a hook can fail with.
pub type HookFault = Box<dyn std::error::Error + Send + Sync>;

/// What a hook answers: nothing, or the context that later hooks see in the place of the one it was given.
pub type HookAnswer = Result<Option<HookContext>, HookFault>;

/// Hooks of one component; each does nothing unless it is written.
///
/// A hook sees the context that hooks before it have left: those registered before it at the same point, and all at
/// earlier stages of the same set or case. What case hooks leave is seen in their case alone.
#[allow(unused_variables, reason = "the names are what implementors read")]
pub trait EvalHooks: Send + Sync {
    /// Before the agent is asked about any case. The request may be changed.
    ///
    /// # Errors
    /// Stops the run.
    fn before_inference_set(
        &self,
        context: &HookContext,
        request: &mut InferenceRequest,
    ) -> HookAnswer {
        Ok(None)
    }

    /// Before the agent is asked about a case.
    ///
    /// # Errors
    /// Fails the case.
    fn before_inference_case(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        eval_id: &str,
        session_id: &str,
    ) -> HookAnswer {
        Ok(None)
    }

    /// After the agent was asked about a case. That it failed is said in the result, not as an error.
    ///
    /// # Errors
    /// Fails the case.
    fn after_inference_case(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, InferenceResult>,
    ) -> HookAnswer {
        Ok(None)
    }

    /// After the agent was asked about all cases.
    ///
    /// # Errors
    /// Stops the run.
    fn after_inference_set(
        &self,
        context: &HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, [InferenceResult]>,
    ) -> HookAnswer {
        Ok(None)
    }

    /// Before anything is scored. The request may be changed.
    ///
    /// # Errors
    /// Stops the run.
    fn before_evaluate_set(
        &self,
        context: &HookContext,
        request: &mut EvaluateRequest,
    ) -> HookAnswer {
        Ok(None)
    }

    /// Before a case is scored.
    ///
    /// # Errors
    /// Stops the run.
    fn before_evaluate_case(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        eval_id: &str,
    ) -> HookAnswer {
        Ok(None)
    }

    /// After a case was scored. That it failed is said in the result, not as an error.
    ///
    /// # Errors
    /// Stops the run.
    fn after_evaluate_case(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        inference: &InferenceResult,
        ended: &Ended<'_, CaseResult>,
    ) -> HookAnswer {
        Ok(None)
    }

    /// After all cases were scored.
    ///
    /// # Errors
    /// Stops the run.
    fn after_evaluate_set(
        &self,
        context: &HookContext,
        request: &EvaluateRequest,
        ended: &Ended<'_, [CaseResult]>,
    ) -> HookAnswer {
        Ok(None)
    }
}
