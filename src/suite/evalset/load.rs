//! What an evaluation needs of its files, with what a reader should know of them.

use std::collections::BTreeSet;

use super::environment::Environment;
use super::evaluation::ScoredMetric;
use super::evaluator::Registry;
use super::inference::TRACE;
use super::model::EvalSet;
use super::run::EvalSetRequest;
use super::store::{EvalMetrics, EvalSets, LocalMetrics, LocalSets};
use crate::output::RunError;

/// The set, its metrics, and what a reader should know of both.
///
/// # Errors
/// [`RunError::Request`] if a file can't be used, or flags and files don't fit each other.
pub(super) fn load(
    request: &EvalSetRequest,
    registry: &Registry,
) -> Result<(EvalSet, Vec<ScoredMetric>, Vec<String>), RunError> {
    let sets = LocalSets::new(request.sets.clone());
    let loaded = sets.get(&request.app, &request.set)?;
    let (mut set, mut notes) = (loaded.value, loaded.warnings);
    if set.id != request.set {
        notes.push(format!(
            "the set calls itself `{}`, its file `{}`; results go by the file's name",
            set.id, request.set
        ));
        set.id.clone_from(&request.set);
    }
    let ids: Vec<&str> = set.cases.iter().map(|case| case.id.as_str()).collect();
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for id in &ids {
        if id.is_empty() {
            return Err(RunError::Request(format!(
                "the set `{}` has a case without `evalId`; give each case one",
                set.id
            )));
        }
        if !seen.insert(id) && repeated.insert(id) {
            notes.push(format!(
                "the set has several cases `{id}`: what each did is held against what the first one expects, as \
                 trpc-agent-go does, and their figures are put together; give each an id of its own"
            ));
        }
    }
    let modes = set.cases.iter().map(|case| case.mode.as_str());
    let strange: BTreeSet<&str> = modes.filter(|mode| !["", TRACE].contains(mode)).collect();
    notes.extend(strange.into_iter().map(|mode| {
        format!("there is no `evalMode` `{mode}`: its cases are taken as those of the default mode")
    }));
    for id in &request.cases {
        if !ids.contains(&id.as_str()) {
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
