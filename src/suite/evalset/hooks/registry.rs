//! Hooks in the order in which they were registered, and what becomes of their answers.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{
    Ended, EvalHooks, EvaluateRequest, HookAnswer, HookContext, HookFault, InferenceRequest,
    InferenceResult,
};
use crate::suite::evalset::result::CaseResult;

#[cfg(test)]
mod tests;

/// Where hooks are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPoint {
    /// Before the agent is asked about any case.
    BeforeInferenceSet,
    /// Before the agent is asked about a case.
    BeforeInferenceCase,
    /// After that.
    AfterInferenceCase,
    /// After the agent was asked about all cases.
    AfterInferenceSet,
    /// Before anything is scored.
    BeforeEvaluateSet,
    /// Before a case is scored.
    BeforeEvaluateCase,
    /// After that.
    AfterEvaluateCase,
    /// After all cases were scored.
    AfterEvaluateSet,
}

impl HookPoint {
    /// Its name in lines and errors: `before_inference_set` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeInferenceSet => "before_inference_set",
            Self::BeforeInferenceCase => "before_inference_case",
            Self::AfterInferenceCase => "after_inference_case",
            Self::AfterInferenceSet => "after_inference_set",
            Self::BeforeEvaluateSet => "before_evaluate_set",
            Self::BeforeEvaluateCase => "before_evaluate_case",
            Self::AfterEvaluateCase => "after_evaluate_case",
            Self::AfterEvaluateSet => "after_evaluate_set",
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A hook that failed.
#[derive(Debug, thiserror::Error)]
#[error("hook {index} `{name}` at {point}: {problem}")]
pub struct HookError {
    /// The point.
    pub point: HookPoint,
    /// Its place among the registered components, from 0.
    pub index: usize,
    /// The component's name.
    pub name: String,
    /// What went wrong.
    pub problem: HookProblem,
}

/// How a hook can fail.
#[derive(Debug, thiserror::Error)]
pub enum HookProblem {
    /// It says so.
    #[error(transparent)]
    Said(HookFault),
    /// It panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
}

/// The components whose hooks are called.
#[derive(Clone, Default)]
pub struct HookRegistry {
    components: Vec<(String, Arc<dyn EvalHooks>)>,
}

impl fmt::Debug for HookRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.components.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// Calls one hook of every component, in order, each with the context that the ones before it left.
macro_rules! point {
    ($registry:ident, $point:ident, $hook:ident, $context:ident, $($argument:expr),*) => {
        $registry.call(HookPoint::$point, $context, |hooks, context| {
            hooks.$hook(context, $($argument),*)
        })
    };
}

impl HookRegistry {
    /// Adds a component behind the others. Names are for errors; several components may have the same.
    pub fn register(&mut self, name: impl Into<String>, hooks: Arc<dyn EvalHooks>) {
        self.components.push((name.into(), hooks));
    }

    /// Whether there are no components.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Calls [`EvalHooks::before_inference_set`]; returns the context for later stages of the set.
    ///
    /// # Errors
    /// That of the first hook that fails; the others are not called then. The same for all points.
    pub fn before_inference_set(
        &self,
        context: HookContext,
        request: &mut InferenceRequest,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            BeforeInferenceSet,
            before_inference_set,
            context,
            request
        )
    }

    /// Calls [`EvalHooks::before_inference_case`], with the context of the set; returns that of the case.
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn before_inference_case(
        &self,
        context: HookContext,
        request: &InferenceRequest,
        eval_id: &str,
        session_id: &str,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            BeforeInferenceCase,
            before_inference_case,
            context,
            request,
            eval_id,
            session_id
        )
    }

    /// Calls [`EvalHooks::after_inference_case`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn after_inference_case(
        &self,
        context: HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, InferenceResult>,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            AfterInferenceCase,
            after_inference_case,
            context,
            request,
            ended
        )
    }

    /// Calls [`EvalHooks::after_inference_set`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn after_inference_set(
        &self,
        context: HookContext,
        request: &InferenceRequest,
        ended: &Ended<'_, [InferenceResult]>,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            AfterInferenceSet,
            after_inference_set,
            context,
            request,
            ended
        )
    }

    /// Calls [`EvalHooks::before_evaluate_set`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn before_evaluate_set(
        &self,
        context: HookContext,
        request: &mut EvaluateRequest,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            BeforeEvaluateSet,
            before_evaluate_set,
            context,
            request
        )
    }

    /// Calls [`EvalHooks::before_evaluate_case`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn before_evaluate_case(
        &self,
        context: HookContext,
        request: &EvaluateRequest,
        eval_id: &str,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            BeforeEvaluateCase,
            before_evaluate_case,
            context,
            request,
            eval_id
        )
    }

    /// Calls [`EvalHooks::after_evaluate_case`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn after_evaluate_case(
        &self,
        context: HookContext,
        request: &EvaluateRequest,
        inference: &InferenceResult,
        ended: &Ended<'_, CaseResult>,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            AfterEvaluateCase,
            after_evaluate_case,
            context,
            request,
            inference,
            ended
        )
    }

    /// Calls [`EvalHooks::after_evaluate_set`].
    ///
    /// # Errors
    /// See [`HookRegistry::before_inference_set`].
    pub fn after_evaluate_set(
        &self,
        context: HookContext,
        request: &EvaluateRequest,
        ended: &Ended<'_, [CaseResult]>,
    ) -> Result<HookContext, HookError> {
        point!(
            self,
            AfterEvaluateSet,
            after_evaluate_set,
            context,
            request,
            ended
        )
    }

    fn call(
        &self,
        point: HookPoint,
        mut context: HookContext,
        mut hook: impl FnMut(&dyn EvalHooks, &HookContext) -> HookAnswer,
    ) -> Result<HookContext, HookError> {
        for (index, (name, hooks)) in self.components.iter().enumerate() {
            // Whatever a panic leaves half done, the stage ends with it and nobody reads it.
            let answer = catch_unwind(AssertUnwindSafe(|| hook(hooks.as_ref(), &context)));
            let problem = match answer {
                Ok(Ok(None)) => continue,
                Ok(Ok(Some(next))) => {
                    context = next;
                    continue;
                }
                Ok(Err(fault)) => HookProblem::Said(fault),
                Err(panic) => HookProblem::Panicked(words_of(panic.as_ref())),
            };
            return Err(HookError {
                point,
                index,
                name: name.clone(),
                problem,
            });
        }
        Ok(context)
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without words".to_owned())
}
