//! Sets, metrics and results in memory, for programs that bring their own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    EvalMetrics, EvalResults, EvalSets, StoreError, add_case, add_metric, check_app_and_set,
    check_named, delete_case, delete_metric, empty_set, exists, named_result, not_found,
    update_case, update_metric,
};
use crate::suite::evalset::json_file::Loaded;
use crate::suite::evalset::model::{EvalCase, EvalMetric, EvalSet};
use crate::suite::evalset::result::EvalSetResult;

/// Values by application and id.
type Kept<T> = Mutex<BTreeMap<(String, String), T>>;

/// Nothing is left half done under the lock, so what a thread that panicked left is whole.
fn locked<T>(kept: &Kept<T>) -> MutexGuard<'_, BTreeMap<(String, String), T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(app: &str, id: &str) -> (String, String) {
    (app.to_owned(), id.to_owned())
}

fn ids_of<T>(kept: &Kept<T>, app: &str) -> Result<Vec<String>, StoreError> {
    check_named("an application", app)?;
    let kept = locked(kept);
    let of_app = kept.keys().filter(|(one, _)| one == app);
    Ok(of_app.map(|(_, id)| id.clone()).collect())
}

fn without_warnings<T>(value: T) -> Loaded<T> {
    Loaded {
        value,
        warnings: Vec::new(),
    }
}

/// Sets in memory.
#[derive(Debug, Default)]
pub struct MemorySets(Kept<EvalSet>);

impl MemorySets {
    /// Keeps a whole set under its id, in the place of one that was there.
    pub fn put(&self, app: &str, set: EvalSet) {
        locked(&self.0).insert(key(app, &set.id), set);
    }

    fn change(
        &self,
        (app, set): (&str, &str),
        change: impl FnOnce(&mut EvalSet) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        check_app_and_set(app, set)?;
        match locked(&self.0).get_mut(&key(app, set)) {
            Some(found) => change(found),
            None => Err(not_found("evaluation set", set, app)),
        }
    }
}

impl EvalSets for MemorySets {
    fn get(&self, app: &str, set: &str) -> Result<Loaded<EvalSet>, StoreError> {
        check_app_and_set(app, set)?;
        let found = locked(&self.0).get(&key(app, set)).cloned();
        let found = found.map(without_warnings);
        found.ok_or_else(|| not_found("evaluation set", set, app))
    }

    fn create(&self, app: &str, set: &str) -> Result<EvalSet, StoreError> {
        check_app_and_set(app, set)?;
        let mut kept = locked(&self.0);
        if kept.contains_key(&key(app, set)) {
            return Err(exists("evaluation set", set, app));
        }
        let created = empty_set(set);
        kept.insert(key(app, set), created.clone());
        Ok(created)
    }

    fn list(&self, app: &str) -> Result<Vec<String>, StoreError> {
        ids_of(&self.0, app)
    }

    fn delete(&self, app: &str, set: &str) -> Result<(), StoreError> {
        check_app_and_set(app, set)?;
        match locked(&self.0).remove(&key(app, set)) {
            Some(_) => Ok(()),
            None => Err(not_found("evaluation set", set, app)),
        }
    }

    fn add_case(&self, app: &str, set: &str, case: &EvalCase) -> Result<(), StoreError> {
        check_named("a case", &case.id)?;
        self.change((app, set), |found| add_case(found, case))
    }

    fn update_case(&self, app: &str, set: &str, case: &EvalCase) -> Result<(), StoreError> {
        check_named("a case", &case.id)?;
        self.change((app, set), |found| update_case(found, case))
    }

    fn delete_case(&self, app: &str, set: &str, case: &str) -> Result<(), StoreError> {
        check_named("a case", case)?;
        self.change((app, set), |found| delete_case(found, case))
    }
}

/// Metrics in memory.
#[derive(Debug, Default)]
pub struct MemoryMetrics(Kept<Vec<EvalMetric>>);

impl MemoryMetrics {
    fn change(
        &self,
        (app, set): (&str, &str),
        change: impl FnOnce(&mut Vec<EvalMetric>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        check_app_and_set(app, set)?;
        change(locked(&self.0).entry(key(app, set)).or_default())
    }
}

impl EvalMetrics for MemoryMetrics {
    fn all(&self, app: &str, set: &str) -> Result<Loaded<Vec<EvalMetric>>, StoreError> {
        check_app_and_set(app, set)?;
        let found = locked(&self.0).get(&key(app, set)).cloned();
        Ok(without_warnings(found.unwrap_or_default()))
    }

    fn add(&self, app: &str, set: &str, metric: &EvalMetric) -> Result<(), StoreError> {
        check_named("a metric", &metric.name)?;
        self.change((app, set), |metrics| add_metric(metrics, metric, set))
    }

    fn update(&self, app: &str, set: &str, metric: &EvalMetric) -> Result<(), StoreError> {
        check_named("a metric", &metric.name)?;
        self.change((app, set), |metrics| update_metric(metrics, metric, set))
    }

    fn delete(&self, app: &str, set: &str, metric: &str) -> Result<(), StoreError> {
        check_named("a metric", metric)?;
        self.change((app, set), |metrics| delete_metric(metrics, metric, set))
    }
}

/// Results in memory.
#[derive(Debug, Default)]
pub struct MemoryResults(Kept<EvalSetResult>);

impl EvalResults for MemoryResults {
    fn save(&self, app: &str, result: &EvalSetResult) -> Result<String, StoreError> {
        let result = named_result(app, result)?;
        let id = result.id.clone();
        locked(&self.0).insert(key(app, &id), result);
        Ok(id)
    }

    fn get(&self, app: &str, id: &str) -> Result<Loaded<EvalSetResult>, StoreError> {
        check_named("an application", app)?;
        check_named("a result", id)?;
        let found = locked(&self.0).get(&key(app, id)).cloned();
        let found = found.map(without_warnings);
        found.ok_or_else(|| not_found("result", id, app))
    }

    fn list(&self, app: &str) -> Result<Vec<String>, StoreError> {
        ids_of(&self.0, app)
    }
}
