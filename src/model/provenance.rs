//! Where a model came from, and the sums of its files: a JSON file inside its folder, and the head of a bundle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::library::LibraryError;
use super::{ModelFolder, facts};

/// The name of the file.
pub(super) const PROVENANCE: &str = "nightmill-model.json";

/// Where a model came from, and what its files are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// `organisation/name`, or a name.
    pub id: String,
    /// The revision of the hub that it was pulled at: a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Where it was pulled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its licence, as its files name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Its files, by path inside the folder.
    pub files: BTreeMap<String, FileSum>,
}

/// The size of a file, and its SHA-256 in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// How many bytes it has.
    pub bytes: u64,
    /// The sum, as model hubs publish it.
    pub sha256: String,
}

/// What is wrong with a file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelFault {
    /// The file, inside the folder.
    pub file: String,
    /// `missing`, `changed` or `extra`.
    pub fault: &'static str,
}

/// SHA-256 in hex.
pub(super) fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sum of what a reader gives.
pub(super) fn sum_of(reader: &mut dyn std::io::Read) -> std::io::Result<FileSum> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hash.update(&buffer[..read]);
    }
    Ok(FileSum {
        bytes,
        sha256: hex(&hash.finalize()),
    })
}

impl Provenance {
    /// Of a folder as it is now. What was known of its origin stays.
    ///
    /// # Errors
    /// [`LibraryError`] if a file can't be read.
    pub fn of(folder: &ModelFolder, id: &str) -> Result<Self, LibraryError> {
        let known = Self::read(folder)?;
        let mut files = BTreeMap::new();
        for file in folder.files()? {
            let mut reader = folder.open_file(&file)?;
            let failed = |e: std::io::Error| LibraryError::Model(folder.bad(&file, e));
            let sum = sum_of(&mut *reader).map_err(failed)?;
            files.insert(file, sum);
        }
        Ok(Self {
            id: id.to_owned(),
            revision: known.as_ref().and_then(|known| known.revision.clone()),
            source: known.and_then(|known| known.source),
            licence: facts::licence(folder)?,
            files,
        })
    }

    /// What a folder says of itself; none if it says nothing.
    ///
    /// # Errors
    /// [`LibraryError`] if that can't be read.
    pub fn read(folder: &ModelFolder) -> Result<Option<Self>, LibraryError> {
        let Some(bytes) = folder.find(PROVENANCE)? else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&bytes);
        read.map(Some)
            .map_err(|e| LibraryError::Model(folder.bad(PROVENANCE, e)))
    }

    /// Compares a folder with it.
    ///
    /// # Errors
    /// [`LibraryError`] if a file can't be read.
    pub fn faults(&self, folder: &ModelFolder) -> Result<Vec<ModelFault>, LibraryError> {
        let now = Self::of(folder, &self.id)?.files;
        let names: std::collections::BTreeSet<&String> =
            self.files.keys().chain(now.keys()).collect();
        let faults = names.into_iter().filter_map(|file| {
            let fault = match (self.files.get(file), now.get(file)) {
                (Some(then), Some(now)) if then == now => return None,
                (Some(_), Some(_)) => "changed",
                (Some(_), None) => "missing",
                (None, _) => "extra",
            };
            Some(ModelFault {
                file: file.clone(),
                fault,
            })
        });
        Ok(faults.collect())
    }
}
