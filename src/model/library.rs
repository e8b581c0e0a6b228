//! The user's models: folders below one folder, by the ids that model hubs give them.

use std::path::{Path, PathBuf};

use super::{ModelError, ModelFolder};

/// Why something can't be done with the models of a library.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is refused, and why.
    #[error("{0}")]
    Refused(String),
    /// A file or folder can't be used.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The model can't be used.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl LibraryError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.display().to_string(),
            source,
        }
    }
}

/// A folder of models.
#[derive(Clone, Debug)]
pub struct Library {
    root: PathBuf,
}

impl Library {
    /// The folder that is named, or `nightmill/models` in the user's data folder; none if the system has no such folder.
    pub fn of(named: Option<&Path>) -> Option<Self> {
        let root = match named {
            Some(root) => root.to_owned(),
            None => dirs::data_dir()?.join("nightmill").join("models"),
        };
        Some(Self { root })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a model of this id, whether it is there or not.
    ///
    /// # Errors
    /// [`LibraryError::Refused`] for what is no id.
    pub fn place(&self, id: &str) -> Result<PathBuf, LibraryError> {
        check_id(id)?;
        Ok(self.root.join(id))
    }

    /// The folder that a new model of this id goes to.
    ///
    /// # Errors
    /// [`LibraryError::Refused`] for what is no id, where the folder holds other models or is inside one, and, unless they may be
    /// replaced, where there is a model of this id.
    pub(super) fn place_of_new(&self, id: &str, overwrite: bool) -> Result<PathBuf, LibraryError> {
        let place = self.place(id)?;
        if id == "shipped" {
            return Err(LibraryError::Refused(
                "`shipped` means the model inside the program; give the model another id".into(),
            ));
        }
        let first = id.split('/').next().unwrap_or(id);
        let around = self.root.join(first);
        if id != first && is_model(&around) {
            return Err(LibraryError::Refused(format!(
                "`{first}` is a model here: `{id}` would be inside it"
            )));
        }
        if place.exists() && !is_model(&place) {
            return Err(LibraryError::Refused(format!(
                "`{}` is no model, and is not replaced by one",
                place.display()
            )));
        }
        if place.exists() && !overwrite {
            return Err(LibraryError::Refused(format!(
                "the model `{id}` is in the library already, at `{}`; give --overwrite to replace it",
                place.display()
            )));
        }
        Ok(place)
    }

    /// The model of this id, if it is there.
    ///
    /// # Errors
    /// [`LibraryError`] for what is no id, or a folder that can't be read.
    pub fn find(&self, id: &str) -> Result<Option<ModelFolder>, LibraryError> {
        let place = self.place(id)?;
        match is_model(&place) {
            true => Ok(Some(ModelFolder::open(&place)?)),
            false => Ok(None),
        }
    }

    /// All models, with their ids, in the order of these.
    ///
    /// # Errors
    /// [`LibraryError`] if a folder can't be read.
    pub fn models(&self) -> Result<Vec<(String, ModelFolder)>, LibraryError> {
        let mut found = Vec::new();
        for first in folders(&self.root)? {
            let name = name_of(&first);
            if is_model(&first) {
                found.push((name, ModelFolder::open(&first)?));
                continue;
            }
            for second in folders(&first)? {
                if is_model(&second) {
                    let id = format!("{name}/{}", name_of(&second));
                    found.push((id, ModelFolder::open(&second)?));
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Folders in a folder, without hidden ones; none if it is not there.
fn folders(path: &Path) -> Result<Vec<PathBuf>, LibraryError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LibraryError::io(path, e)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| path.is_dir() && !name_of(path).starts_with('.'))
        .collect())
}

/// Whether a folder holds a model rather than other folders.
pub(super) fn is_model(folder: &Path) -> bool {
    ["config.json", "modules.json"]
        .iter()
        .any(|file| folder.join(file).is_file())
}

/// Refuses what can't be an id: one or two names of letters, digits, `.`, `_` and `-`, none beginning with a point or a dash.
pub(super) fn check_id(id: &str) -> Result<(), LibraryError> {
    let parts: Vec<&str> = id.split('/').collect();
    let is_name = |part: &&str| {
        let told = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.len() <= 128
            && part.chars().all(told)
    };
    match parts.len() <= 2 && parts.iter().all(is_name) {
        true => Ok(()),
        false => Err(LibraryError::Refused(format!(
            "`{id}` is no id of a model (--id gives a bundle another): name it as `organisation/name`, of letters, digits, `.`, `_` and `-`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_no_other_folder() {
        for good in ["BAAI/bge-small-en-v1.5", "mine", "a_b/c.d"] {
            assert!(check_id(good).is_ok(), "{good}");
        }
        for bad in [
            "", "/", "a/", "/a", "..", "a/..", "../a", "a/b/c", "-x", ".hidden", "a b", "a\\b", "ä",
        ] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }
}
