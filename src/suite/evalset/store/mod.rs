//! Where sets, metrics and results are kept: in files, or in memory.
//!
//! What is handed out and in are values of their own: changing one changes nothing that is kept. Every operation may be
//! called by many threads at once.

mod local;
mod memory;

pub(crate) use local::write;
pub use local::{LocalMetrics, LocalResults, LocalSets};
pub use memory::{MemoryMetrics, MemoryResults, MemorySets};

use super::json_file::{FileError, Loaded};
use super::locator::LocatorError;
use super::model::{EpochTime, EvalCase, EvalMetric, EvalSet, Invocation};
use super::result::EvalSetResult;

/// Why something can't be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none of that name; see [`StoreError::is_not_found`].
    #[error("there is no {what} `{name}` in {place}")]
    NotFound {
        /// What it would be.
        what: &'static str,
        /// Its name.
        name: String,
        /// Where it was looked for.
        place: String,
    },
    /// There is one of that name already.
    #[error("there is a {what} `{name}` in {place} already; choose another name, or update it")]
    Exists {
        /// What it is.
        what: &'static str,
        /// Its name.
        name: String,
        /// Where.
        place: String,
    },
    /// A name that everything must have is empty.
    #[error("{what} has no name; give one")]
    NoName {
        /// What has none.
        what: &'static str,
    },
    /// A name that no path can be made of.
    #[error(transparent)]
    Locator(#[from] LocatorError),
    /// A file that can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl StoreError {
    /// Whether what was asked for is not there, and nothing else is wrong.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

/// Evaluation sets, by application and id.
pub trait EvalSets: Send + Sync {
    /// The set, with warnings of its file.
    ///
    /// # Errors
    /// [`StoreError`]; each operation of the three traits refuses empty names.
    fn get(&self, app: &str, set: &str) -> Result<Loaded<EvalSet>, StoreError>;

    /// Makes a set without cases, of this id and name and of the time on the clock.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if it is there.
    fn create(&self, app: &str, set: &str) -> Result<EvalSet, StoreError>;

    /// The ids of the application's sets, ordered; none for an application that nobody knows.
    ///
    /// # Errors
    /// [`StoreError`]
    fn list(&self, app: &str) -> Result<Vec<String>, StoreError>;

    /// Removes the set.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is not there.
    fn delete(&self, app: &str, set: &str) -> Result<(), StoreError>;

    /// A case; of several of this id the first one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the set or the case is not there.
    fn case(&self, app: &str, set: &str, case: &str) -> Result<EvalCase, StoreError> {
        check_named("a case", case)?;
        let found = self.get(app, set)?.value.cases;
        let found = found.into_iter().find(|one| one.id == case);
        found.ok_or_else(|| not_found("case", case, set))
    }

    /// Adds a case behind the others. Where it and its turns have no time, it is that of the clock.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the set has a case of this id, [`StoreError::NotFound`] if there is no set.
    fn add_case(&self, app: &str, set: &str, case: &EvalCase) -> Result<(), StoreError>;

    /// Puts the case in the place of the one of its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the set or the case is not there.
    fn update_case(&self, app: &str, set: &str, case: &EvalCase) -> Result<(), StoreError>;

    /// Removes a case; of several of this id the first one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the set or the case is not there.
    fn delete_case(&self, app: &str, set: &str, case: &str) -> Result<(), StoreError>;
}

/// Metrics, by application and id of the set.
pub trait EvalMetrics: Send + Sync {
    /// All metrics of a set in their order, with warnings; none, and a warning, where there is no file.
    ///
    /// # Errors
    /// [`StoreError`]
    fn all(&self, app: &str, set: &str) -> Result<Loaded<Vec<EvalMetric>>, StoreError>;

    /// The names of the metrics, in their order.
    ///
    /// # Errors
    /// [`StoreError`]
    fn list(&self, app: &str, set: &str) -> Result<Vec<String>, StoreError> {
        let metrics = self.all(app, set)?.value;
        Ok(metrics.into_iter().map(|metric| metric.name).collect())
    }

    /// A metric; of several of this name the first one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is not there.
    fn get(&self, app: &str, set: &str, metric: &str) -> Result<EvalMetric, StoreError> {
        check_named("a metric", metric)?;
        let metrics = self.all(app, set)?.value;
        let found = metrics.into_iter().find(|one| one.name == metric);
        found.ok_or_else(|| not_found("metric", metric, set))
    }

    /// Adds a metric behind the others. A key that did not come from a metrics file is not kept in files.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if there is one of its name.
    fn add(&self, app: &str, set: &str, metric: &EvalMetric) -> Result<(), StoreError>;

    /// Puts the metric in the place of the one of its name. Placeholders and the key's text stay where the metric
    /// brings none of its own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is not there.
    fn update(&self, app: &str, set: &str, metric: &EvalMetric) -> Result<(), StoreError>;

    /// Removes a metric; of several of this name the first one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is not there.
    fn delete(&self, app: &str, set: &str, metric: &str) -> Result<(), StoreError>;
}

/// Results, by application and their own id.
pub trait EvalResults: Send + Sync {
    /// Keeps a result, and returns its id. Where it has no id it is `<application>_<set>_<uuid>`, where it has no name
    /// it is the id, and where it has no time it is that of the clock.
    ///
    /// # Errors
    /// [`StoreError::NoName`] if the application or the result's set is not named.
    fn save(&self, app: &str, result: &EvalSetResult) -> Result<String, StoreError>;

    /// A result, with warnings of its file.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if it is not there.
    fn get(&self, app: &str, id: &str) -> Result<Loaded<EvalSetResult>, StoreError>;

    /// The ids of the application's results, ordered; none for an application that nobody knows.
    ///
    /// # Errors
    /// [`StoreError`]
    fn list(&self, app: &str) -> Result<Vec<String>, StoreError>;
}

fn check_named(what: &'static str, name: &str) -> Result<(), StoreError> {
    match name {
        "" => Err(StoreError::NoName { what }),
        _ => Ok(()),
    }
}

fn check_app_and_set(app: &str, set: &str) -> Result<(), StoreError> {
    check_named("an application", app)?;
    check_named("an evaluation set", set)
}

fn not_found(what: &'static str, name: &str, place: impl std::fmt::Display) -> StoreError {
    StoreError::NotFound {
        what,
        name: name.to_owned(),
        place: format!("`{place}`"),
    }
}

fn exists(what: &'static str, name: &str, place: impl std::fmt::Display) -> StoreError {
    StoreError::Exists {
        what,
        name: name.to_owned(),
        place: format!("`{place}`"),
    }
}

fn empty_set(id: &str) -> EvalSet {
    EvalSet {
        id: id.to_owned(),
        name: id.to_owned(),
        created: Some(EpochTime::now()),
        ..EvalSet::default()
    }
}

fn add_case(set: &mut EvalSet, case: &EvalCase) -> Result<(), StoreError> {
    if set.cases.iter().any(|one| one.id == case.id) {
        return Err(exists("case", &case.id, &set.id));
    }
    let now = Some(EpochTime::now());
    let mut case = case.clone();
    case.created = case.created.or(now);
    let turns = |turns: &mut Vec<Option<Invocation>>| {
        for turn in turns.iter_mut().flatten() {
            turn.created = turn.created.or(now);
        }
    };
    turns(&mut case.conversation);
    turns(&mut case.actual_conversation);
    set.cases.push(case);
    Ok(())
}

fn update_case(set: &mut EvalSet, case: &EvalCase) -> Result<(), StoreError> {
    match set.cases.iter_mut().find(|one| one.id == case.id) {
        Some(one) => *one = case.clone(),
        None => return Err(not_found("case", &case.id, &set.id)),
    }
    Ok(())
}

fn delete_case(set: &mut EvalSet, case: &str) -> Result<(), StoreError> {
    match set.cases.iter().position(|one| one.id == case) {
        Some(at) => drop(set.cases.remove(at)),
        None => return Err(not_found("case", case, &set.id)),
    }
    Ok(())
}

fn add_metric(
    metrics: &mut Vec<EvalMetric>,
    metric: &EvalMetric,
    set: &str,
) -> Result<(), StoreError> {
    if metrics.iter().any(|one| one.name == metric.name) {
        return Err(exists("metric", &metric.name, set));
    }
    metrics.push(metric.clone());
    Ok(())
}

fn update_metric(
    metrics: &mut [EvalMetric],
    metric: &EvalMetric,
    set: &str,
) -> Result<(), StoreError> {
    let Some(one) = metrics.iter_mut().find(|one| one.name == metric.name) else {
        return Err(not_found("metric", &metric.name, set));
    };
    let stored = std::mem::replace(one, metric.clone());
    if one.unexpanded.is_empty() {
        one.unexpanded = stored.unexpanded;
    }
    Ok(())
}

fn delete_metric(metrics: &mut Vec<EvalMetric>, metric: &str, set: &str) -> Result<(), StoreError> {
    match metrics.iter().position(|one| one.name == metric) {
        Some(at) => drop(metrics.remove(at)),
        None => return Err(not_found("metric", metric, set)),
    }
    Ok(())
}

/// The result as it is kept.
pub(super) fn named_result(app: &str, result: &EvalSetResult) -> Result<EvalSetResult, StoreError> {
    check_app_and_set(app, &result.set_id)?;
    let mut result = result.clone();
    if result.id.is_empty() {
        result.id = format!("{app}_{}_{}", result.set_id, uuid::Uuid::new_v4());
    }
    if result.name.is_empty() {
        result.name = result.id.clone();
    }
    result.created = result.created.or_else(|| Some(EpochTime::now()));
    Ok(result)
}

#[cfg(test)]
mod tests;
