//! Where files of an evaluation folder are: a pattern makes a path of an application and an id, and ids of a folder.

use std::io;
use std::path::{Path, PathBuf};

/// Where trpc-agent-go has sets.
pub const SET_PATTERN: &str = "{app}/{id}.evalset.json";
/// Where trpc-agent-go has the metrics of a set.
pub const METRICS_PATTERN: &str = "{app}/{id}.metrics.json";
/// Where trpc-agent-go has results.
pub const RESULT_PATTERN: &str = "{app}/{id}.evalset_result.json";

/// Ends of names that are written, with ends that are read in their place.
const ALTERNATIVES: [(&str, &str); 2] = [
    (".metrics.json", ".metric.json"),
    (".evalset_result.json", ".evalresult.json"),
];
const APP: &str = "{app}";
const ID: &str = "{id}";

/// A pattern, or a name that is put into one, that leads nowhere or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocatorError {
    /// The pattern.
    #[error("the path pattern `{pattern}` {problem}; write it as in `{SET_PATTERN}`")]
    Pattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The name of an application, set or result.
    #[error("`{name}` can't be {what}: it {problem}")]
    Name {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A folder that can't be listed.
    #[error("{folder}: {reason}")]
    Folder {
        /// The folder.
        folder: String,
        /// The system's word.
        reason: String,
    },
}

/// A path below a base folder, with places for the application and the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locator {
    base: PathBuf,
    /// The pattern, by component.
    components: Vec<String>,
    /// The same for the name that is only read.
    alternative: Option<Vec<String>>,
}

impl Locator {
    /// A rule for paths below `base`: `pattern` with `{id}` in one component, and `{app}` in any.
    ///
    /// # Errors
    /// [`LocatorError::Pattern`] if the pattern leads out of the folder, holds other braces, or has no `{id}`.
    pub fn new(base: impl Into<PathBuf>, pattern: &str) -> Result<Self, LocatorError> {
        let refused = |problem| {
            let pattern = pattern.to_owned();
            Err(LocatorError::Pattern { pattern, problem })
        };
        let plain = |name: &str| !["", ".", ".."].contains(&name) && !name.contains('\\');
        if !pattern.split('/').all(plain) {
            return refused("is no relative path of plain names");
        }
        if pattern
            .replace(APP, "")
            .replace(ID, "")
            .contains(['{', '}', '\0'])
        {
            return refused("holds braces other than `{app}` and `{id}`");
        }
        if pattern.matches(ID).count() != 1 {
            return refused("does not hold `{id}` exactly once");
        }
        Ok(Self::of_pattern(base.into(), pattern))
    }

    /// The rule of a pattern that holds what it must.
    fn of_pattern(base: PathBuf, pattern: &str) -> Self {
        let components = |pattern: &str| pattern.split('/').map(str::to_owned).collect();
        let other = |(written, read): &(&str, &str)| {
            let stem = pattern.strip_suffix(written)?;
            Some(components(&format!("{stem}{read}")))
        };
        Self {
            base,
            components: components(pattern),
            alternative: ALTERNATIVES.iter().find_map(other),
        }
    }

    /// Where trpc-agent-go has sets, below `base`.
    pub fn of_sets(base: impl Into<PathBuf>) -> Self {
        Self::of_pattern(base.into(), SET_PATTERN)
    }

    /// Where trpc-agent-go has metrics, below `base`.
    pub fn of_metrics(base: impl Into<PathBuf>) -> Self {
        Self::of_pattern(base.into(), METRICS_PATTERN)
    }

    /// Where trpc-agent-go has results, below `base`.
    pub fn of_results(base: impl Into<PathBuf>) -> Self {
        Self::of_pattern(base.into(), RESULT_PATTERN)
    }

    /// The path that is written, and read first.
    ///
    /// # Errors
    /// [`LocatorError::Name`] for an empty name, and for one that would lead out of its place.
    pub fn path(&self, app: &str, id: &str) -> Result<PathBuf, LocatorError> {
        self.filled(&self.components, app, id)
    }

    /// The path that is read where [`Locator::path`] is not there; none if the pattern has no other end.
    ///
    /// # Errors
    /// As [`Locator::path`].
    pub fn alternative_path(&self, app: &str, id: &str) -> Result<Option<PathBuf>, LocatorError> {
        let other = self.alternative.as_ref();
        other.map(|other| self.filled(other, app, id)).transpose()
    }

    fn filled(&self, components: &[String], app: &str, id: &str) -> Result<PathBuf, LocatorError> {
        check_name("an application", app)?;
        check_name("an id", id)?;
        let mut path = self.base.clone();
        for component in components {
            let name = filled_component(component, app, id);
            check_name("a file", &name)?;
            path.push(name);
        }
        Ok(path)
    }

    /// The ids of an application's files, ordered; none if its folder is not there. Files under the other end count
    /// too.
    ///
    /// # Errors
    /// [`LocatorError::Name`], and [`LocatorError::Folder`] if the folder can't be read.
    pub fn ids(&self, app: &str) -> Result<Vec<String>, LocatorError> {
        check_name("an application", app)?;
        let mut ids = self.ids_of(&self.components, app)?;
        if let Some(alternative) = &self.alternative {
            ids.extend(self.ids_of(alternative, app)?);
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    fn ids_of(&self, components: &[String], app: &str) -> Result<Vec<String>, LocatorError> {
        let Some(at) = components
            .iter()
            .position(|component| component.contains(ID))
        else {
            return Ok(Vec::new());
        };
        let above = components.iter().take(at);
        let folder = above.fold(self.base.clone(), |folder, component| {
            folder.join(filled_component(component, app, ""))
        });
        let around = components
            .get(at)
            .and_then(|component| component.split_once(ID));
        let (before, after) = around.unwrap_or_default();
        let (before, after) = (before.replace(APP, app), after.replace(APP, app));
        let names = match names_in(&folder) {
            Ok(names) => names,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => {
                return Err(LocatorError::Folder {
                    folder: folder.display().to_string(),
                    reason: e.to_string(),
                });
            }
        };
        let id_of = |name: String| {
            let id = name.strip_prefix(&before)?.strip_suffix(&after)?;
            let path = self.filled(components, app, id).ok()?;
            path.is_file().then(|| id.to_owned())
        };
        Ok(names.into_iter().filter_map(id_of).collect())
    }
}

/// A component of a pattern with its places filled. What stands in the names is never taken for a place.
fn filled_component(component: &str, app: &str, id: &str) -> String {
    let parts = component.split(ID).map(|part| part.replace(APP, app));
    parts.collect::<Vec<_>>().join(id)
}

/// The names in a folder that are Unicode.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    Ok(names.into_iter().flatten().collect())
}

/// Refuses names that are no single component of a path.
fn check_name(what: &'static str, name: &str) -> Result<(), LocatorError> {
    let problem = match name {
        "" => "is empty",
        "." | ".." => "leads to another folder",
        name if name.contains(['/', '\\']) => "holds a separator of paths",
        name if name.contains('\0') => "holds a zero character",
        _ => return Ok(()),
    };
    Err(LocatorError::Name {
        what,
        name: name.to_owned(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(folder: &Path, names: &[&str]) {
        for name in names {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        }
    }

    fn ids(locator: &Locator, app: &str) -> Vec<String> {
        locator.ids(app).unwrap()
    }

    #[test]
    fn patterns_make_paths() {
        let of = |pattern: &str| {
            Locator::new("/b", pattern)
                .unwrap()
                .path("app", "x")
                .unwrap()
        };
        assert_eq!(of(SET_PATTERN), Path::new("/b/app/x.evalset.json"));
        assert_eq!(
            of("{app}/custom-{id}.json"),
            Path::new("/b/app/custom-x.json")
        );
        assert_eq!(of("{id}/{app}-{app}.json"), Path::new("/b/x/app-app.json"));
        let results = Locator::of_results(".").alternative_path("a", "r").unwrap();
        assert_eq!(results, Some("./a/r.evalresult.json".into()));
        assert_eq!(Locator::of_sets(".").alternative_path("a", "r"), Ok(None));
        let braces = Locator::of_sets("b").path("{id}", "{app}").unwrap();
        assert_eq!(braces, Path::new("b/{id}/{app}.evalset.json"));
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        for pattern in [
            "../{id}",
            "/{id}",
            "{app}//{id}",
            "a\\{id}",
            "{app}/x",
            "{id}{id}",
            "{name}/{id}",
            "{app}/{id}.{",
            "",
        ] {
            assert!(Locator::new(".", pattern).is_err(), "{pattern}");
        }
        let sets = Locator::of_sets(".");
        for name in ["", ".", "..", "a/b", "../a", "a\\b", "a\0"] {
            assert!(sets.path(name, "x").is_err(), "{name:?}");
            assert!(sets.path("a", name).is_err(), "{name:?}");
            assert!(sets.ids(name).is_err(), "{name:?}");
        }
        assert!(sets.path("..a", "x..y").is_ok());
    }

    #[test]
    fn listing_turns_the_pattern_round() {
        let folder = tempfile::tempdir().unwrap();
        touch(
            folder.path(),
            &[
                "a/b.evalset.json",
                "a/a.evalset.json",
                "a/.evalset.json",
                "a/a.metrics.json",
                "a/dir.evalset.json/x",
                "a/b.evalset.json.tmp",
                "a/custom-c.evalset.json",
                "a/custom-.evalset.json",
                "c/d.evalset.json",
            ],
        );
        assert_eq!(
            ids(&Locator::of_sets(folder.path()), "a"),
            ["a", "b", "custom-", "custom-c"]
        );
        assert_eq!(ids(&Locator::of_sets(folder.path()), "missing"), [""; 0]);
        let custom = Locator::new(folder.path(), "{app}/custom-{id}.evalset.json").unwrap();
        assert_eq!(ids(&custom, "a"), ["c"]);
        let nested = Locator::new(folder.path(), "{app}/{id}/x").unwrap();
        assert_eq!(ids(&nested, "a"), ["dir.evalset.json"]);
    }

    #[test]
    fn results_under_the_other_end_are_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "a/x.evalset_result.json",
            "a/x.evalresult.json",
            "a/old.evalresult.json",
        ];
        touch(folder.path(), &names);
        assert_eq!(ids(&Locator::of_results(folder.path()), "a"), ["old", "x"]);
    }
}
