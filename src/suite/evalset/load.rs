//! What an evaluation needs of its files, with what a reader should know of them.

use std::collections::HashSet;

use super::environment::Environment;
use super::evaluation::ScoredMetric;
use super::evaluator::Registry;
use super::run::EvalSetRequest;
use super::set_cases::SetCases;
use super::store::{EvalMetrics, LocalMetrics, LocalSets};
use crate::output::RunError;

/// The set, its metrics, and what a reader should know of both.
///
/// # Errors
/// [`RunError::Request`] if a file can't be used, or flags and files don't fit each other.
pub(super) fn load(
    request: &EvalSetRequest,
    registry: &Registry,
) -> Result<(SetCases, Vec<ScoredMetric>, Vec<String>), RunError> {
    let sets = LocalSets::new(request.sets.clone());
    let loaded = sets.cases(&request.app, &request.set)?;
    let (mut set, mut notes) = (loaded.value, loaded.warnings);
    if set.id != request.set {
        notes.push(format!(
            "the set calls itself `{}`, its file `{}`; results go by the file's name",
            set.id, request.set
        ));
        set.id.clone_from(&request.set);
    }
    let ids: HashSet<&str> = set.ids.iter().map(String::as_str).collect();
    if ids.contains("") {
        return Err(RunError::Request(format!(
            "the set `{}` has a case without `evalId`; give each case one",
            set.id
        )));
    }
    if !request.cases.is_empty() && !request.cases.iter().any(|id| ids.contains(id.as_str())) {
        let named = request.cases.join(", ");
        return Err(RunError::Request(format!(
            "--cases {named}: the set `{}` has no case of this name",
            set.id
        )));
    }
    for id in &request.cases {
        if !ids.contains(id.as_str()) {
            let near = crate::text::nearest(id, ids.iter().copied());
            notes.push(format!("there is no case `{id}`{near}; it is passed over"));
        }
    }
    let metrics = LocalMetrics::new(request.metrics.clone(), Environment::of_process());
    let metrics = match metrics.all(&request.app, &request.set) {
        Ok(loaded) => {
            notes.extend(loaded.warnings);
            loaded.value
        }
        Err(missing) if missing.is_not_found() => Vec::new(),
        Err(other) => return Err(other.into()),
    };
    if metrics.is_empty() {
        notes.push("there are no metrics: nothing is evaluated".to_owned());
    }
    let (metrics, unknown) = ScoredMetric::of(metrics, registry);
    if let (true, Some(name)) = (request.strict_metrics, unknown.first()) {
        return Err(RunError::Request(format!(
            "--strict-metrics: no evaluator is known for the metric `{name}`; mend its name, or leave the flag out"
        )));
    }
    notes.extend(
        unknown
            .iter()
            .map(|name| format!("no evaluator is known for the metric `{name}`: it is left out")),
    );
    Ok((set, metrics, notes))
}
