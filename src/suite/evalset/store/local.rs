//! Sets, metrics and results in files, laid out and named as trpc-agent-go has them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    EvalMetrics, EvalResults, EvalSets, StoreError, add_case, add_metric, check_app_and_set,
    check_named, delete_case, delete_metric, empty_set, exists, named_result, not_found,
    update_case, update_metric,
};
use crate::suite::evalset::environment::Environment;
use crate::suite::evalset::json_file::{FileError, Loaded, text_of};
use crate::suite::evalset::locator::Locator;
use crate::suite::evalset::metrics_json::{read_metrics, write_metrics};
use crate::suite::evalset::model::{EvalCase, EvalMetric, EvalSet};
use crate::suite::evalset::result::EvalSetResult;
use crate::suite::evalset::set_cases::SetCases;

/// For others to read, as trpc-agent-go's.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// The text of a file that was found.
struct Found {
    text: String,
    /// As errors and warnings call it.
    file: String,
    warnings: Vec<String>,
}

/// Reads the file of `app` and `id`, or the one under the other name that is only read; none if neither is there.
fn find(locator: &Locator, app: &str, id: &str) -> Result<Option<Found>, StoreError> {
    let path = locator.path(app, id)?;
    let mut warnings = Vec::new();
    let (path, text) = match (text_of(&path), locator.alternative_path(app, id)?) {
        (Err(error), Some(other)) if error.is_missing() => {
            warnings.push(format!(
                "{}: read in place of {}, which is not there; rename it",
                other.display(),
                path.display()
            ));
            let text = text_of(&other);
            (other, text)
        }
        (text, _) => (path, text),
    };
    match text {
        Ok(text) => Ok(Some(Found {
            text,
            file: path.display().to_string(),
            warnings,
        })),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes a file whole or not at all: under a name of its own first, so that two who write at once don't mix.
///
/// # Errors
/// [`FileError`]
pub(crate) fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let folder = path
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let written = || -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&folder)?;
        let mut file = tempfile::Builder::new()
            .prefix(&format!("{}.", name.unwrap_or_default()))
            .suffix(".tmp")
            .permissions(fs::Permissions::from_mode(FILE_MODE))
            .tempfile_in(&folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|e| FileError::access(path, e))
}

fn locked(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What says that the id in a file is not the one in its name.
fn other_id(file: &str, asked: &str, inside: &str) -> Option<String> {
    (asked != inside).then(|| {
        format!(
            "{file}: the id inside is `{inside}`, not `{asked}` as in its name; correct one of them"
        )
    })
}

/// Sets in files.
#[derive(Debug)]
pub struct LocalSets {
    locator: Locator,
    writing: Mutex<()>,
}

impl LocalSets {
    /// Sets where `locator` says.
    pub fn new(locator: Locator) -> Self {
        Self {
            locator,
            writing: Mutex::new(()),
        }
    }

    /// Writes a set, in place of one that is there.
    ///
    /// # Errors
    /// [`StoreError`] for names that can't be, and if the file can't be written.
    pub fn put(&self, app: &str, set: &EvalSet) -> Result<(), StoreError> {
        check_app_and_set(app, &set.id)?;
        let _writing = locked(&self.writing);
        Ok(write(&self.locator.path(app, &set.id)?, &set.to_text())?)
    }

    /// Reads a set, changes it, and writes it to the path of the id that it has inside.
    fn change(
        &self,
        (app, set): (&str, &str),
        change: impl FnOnce(&mut EvalSet) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let _writing = locked(&self.writing);
        let mut found = self.get(app, set)?.value;
        change(&mut found)?;
        let id = match found.id.as_str() {
            "" => set,
            id => id,
        };
        Ok(write(&self.locator.path(app, id)?, &found.to_text())?)
    }
}

impl LocalSets {
    fn found(&self, app: &str, set: &str) -> Result<Found, StoreError> {
        check_app_and_set(app, set)?;
        find(&self.locator, app, set)?.ok_or_else(|| match self.locator.path(app, set) {
            Ok(path) => not_found("evaluation set", set, path.display()),
            Err(fault) => fault.into(),
        })
    }

    /// A set whose cases are read as they are needed.
    ///
    /// # Errors
    /// As [`EvalSets::get`].
    pub(crate) fn cases(&self, app: &str, set: &str) -> Result<Loaded<SetCases>, StoreError> {
        let mut found = self.found(app, set)?;
        let mut loaded = SetCases::of_text(found.text, &found.file)?;
        found
            .warnings
            .extend(other_id(&found.file, set, &loaded.value.id));
        found.warnings.append(&mut loaded.warnings);
        loaded.warnings = found.warnings;
        Ok(loaded)
    }
}

impl EvalSets for LocalSets {
    fn get(&self, app: &str, set: &str) -> Result<Loaded<EvalSet>, StoreError> {
        let mut found = self.found(app, set)?;
        let mut loaded = EvalSet::from_text(&found.text, &found.file)?;
        found
            .warnings
            .extend(other_id(&found.file, set, &loaded.value.id));
        found.warnings.append(&mut loaded.warnings);
        loaded.warnings = found.warnings;
        Ok(loaded)
    }

    fn create(&self, app: &str, set: &str) -> Result<EvalSet, StoreError> {
        check_app_and_set(app, set)?;
        let _writing = locked(&self.writing);
        let path = self.locator.path(app, set)?;
        if path.exists() {
            return Err(exists("evaluation set", set, path.display()));
        }
        let created = empty_set(set);
        write(&path, &created.to_text())?;
        Ok(created)
    }

    fn list(&self, app: &str) -> Result<Vec<String>, StoreError> {
        check_named("an application", app)?;
        Ok(self.locator.ids(app)?)
    }

    fn delete(&self, app: &str, set: &str) -> Result<(), StoreError> {
        check_app_and_set(app, set)?;
        let _writing = locked(&self.writing);
        let path = self.locator.path(app, set)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(not_found("evaluation set", set, path.display()))
            }
            Err(e) => Err(FileError::access(&path, e).into()),
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

/// Metrics in files. Reading fills variables in; writing keeps the placeholders.
#[derive(Debug)]
pub struct LocalMetrics {
    locator: Locator,
    environment: Environment,
    writing: Mutex<()>,
}

impl LocalMetrics {
    /// Metrics where `locator` says, with variables of `environment`.
    pub fn new(locator: Locator, environment: Environment) -> Self {
        Self {
            locator,
            environment,
            writing: Mutex::new(()),
        }
    }

    /// The metrics of a set; none if there is no file.
    fn find(&self, app: &str, set: &str) -> Result<Option<Loaded<Vec<EvalMetric>>>, StoreError> {
        check_app_and_set(app, set)?;
        let Some(mut found) = find(&self.locator, app, set)? else {
            return Ok(None);
        };
        let mut loaded = read_metrics(&found.text, &found.file, &self.environment)?;
        found.warnings.append(&mut loaded.warnings);
        loaded.warnings = found.warnings;
        Ok(Some(loaded))
    }

    fn change(
        &self,
        (app, set): (&str, &str),
        change: impl FnOnce(&mut Vec<EvalMetric>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let _writing = locked(&self.writing);
        let mut metrics = self.find(app, set)?.unwrap_or_default().value;
        change(&mut metrics)?;
        Ok(write(
            &self.locator.path(app, set)?,
            &write_metrics(&metrics),
        )?)
    }
}

impl EvalMetrics for LocalMetrics {
    fn all(&self, app: &str, set: &str) -> Result<Loaded<Vec<EvalMetric>>, StoreError> {
        if let Some(found) = self.find(app, set)? {
            return Ok(found);
        }
        let path = self.locator.path(app, set)?;
        Ok(Loaded {
            value: Vec::new(),
            warnings: vec![format!(
                "{}: there are no metrics, so nothing is evaluated",
                path.display()
            )],
        })
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

/// Results in files.
#[derive(Debug)]
pub struct LocalResults {
    locator: Locator,
}

impl LocalResults {
    /// Results where `locator` says.
    pub fn new(locator: Locator) -> Self {
        Self { locator }
    }

    /// Where a result is, or would be.
    ///
    /// # Errors
    /// [`StoreError::Locator`]
    pub fn path(&self, app: &str, id: &str) -> Result<PathBuf, StoreError> {
        Ok(self.locator.path(app, id)?)
    }
}

impl EvalResults for LocalResults {
    fn save(&self, app: &str, result: &EvalSetResult) -> Result<String, StoreError> {
        let result = named_result(app, result)?;
        write(&self.locator.path(app, &result.id)?, &result.to_text())?;
        Ok(result.id)
    }

    fn get(&self, app: &str, id: &str) -> Result<Loaded<EvalSetResult>, StoreError> {
        check_named("an application", app)?;
        check_named("a result", id)?;
        let Some(mut found) = find(&self.locator, app, id)? else {
            let path = self.locator.path(app, id)?;
            return Err(not_found("result", id, path.display()));
        };
        let mut loaded = EvalSetResult::from_text(&found.text, &found.file)?;
        found.warnings.append(&mut loaded.warnings);
        loaded.warnings = found.warnings;
        Ok(loaded)
    }

    fn list(&self, app: &str) -> Result<Vec<String>, StoreError> {
        check_named("an application", app)?;
        Ok(self.locator.ids(app)?)
    }
}
