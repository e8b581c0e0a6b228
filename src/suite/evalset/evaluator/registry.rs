//! Evaluators by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Evaluator, FinalResponse, PartialTrajectory, SemanticResponse, ToolTrajectory};

/// Evaluators that are computed, by the name that metrics call them. Those that ask a judge are not among them.
#[derive(Clone)]
pub struct Registry {
    evaluators: BTreeMap<String, Arc<dyn Evaluator>>,
}

impl Default for Registry {
    /// `tool_trajectory_avg_score` and `final_response_avg_score`, and nightmill's own `tool_trajectory_partial_score`
    /// and `final_response_semantic_avg_score`.
    fn default() -> Self {
        let mut registry = Self::empty();
        registry.register(Arc::new(ToolTrajectory));
        registry.register(Arc::new(FinalResponse));
        registry.register(Arc::new(PartialTrajectory));
        registry.register(Arc::new(SemanticResponse::default()));
        registry
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Registry {
    /// No evaluators.
    pub fn empty() -> Self {
        Self {
            evaluators: BTreeMap::new(),
        }
    }

    /// Adds an evaluator under its name, in the place of one of the same name.
    pub fn register(&mut self, evaluator: Arc<dyn Evaluator>) {
        let name = evaluator.name().to_owned();
        self.evaluators.insert(name, evaluator);
    }

    /// The evaluator of this name. A metric without one is skipped.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Evaluator>> {
        self.evaluators.get(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.evaluators.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EvaluateResult, EvaluationError};
    use super::*;
    use crate::suite::evalset::model::{EvalMetric, Invocation};

    struct Other(&'static str);

    impl Evaluator for Other {
        fn name(&self) -> &str {
            self.0
        }

        fn description(&self) -> &str {
            "other"
        }

        fn evaluate(
            &self,
            _: &[Invocation],
            _: &[Invocation],
            _: &EvalMetric,
        ) -> Result<EvaluateResult, EvaluationError> {
            Ok(EvaluateResult::default())
        }
    }

    #[test]
    fn registering_replaces_an_evaluator_of_the_same_name() {
        let mut registry = Registry::default();
        let built_in = [
            "final_response_avg_score",
            "final_response_semantic_avg_score",
            "tool_trajectory_avg_score",
            "tool_trajectory_partial_score",
        ];
        assert_eq!(registry.names().collect::<Vec<_>>(), built_in);
        registry.register(Arc::new(Other(built_in[0])));
        registry.register(Arc::new(Other("mine")));
        assert_eq!(registry.names().count(), 5);
        let description = |name| {
            registry
                .get(name)
                .map(|found| found.description().to_owned())
        };
        assert_eq!(description(built_in[0]).as_deref(), Some("other"));
        assert_ne!(description(built_in[1]).as_deref(), Some("other"));
        assert_eq!(description("Mine"), None);
    }
}
