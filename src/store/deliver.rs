//! How a run gets into a bucket, so that nobody ever sees half of one.
//!
//! A bucket can't rename a folder, so a run comes object by object. What makes it a run is its `manifest.json`, as on a disk:
//!
//! 1. A claim is put beside the run (`.nightmill-upload`), with a number of its own. Whoever puts a later one takes over.
//! 2. With `--overwrite`, the old manifest is removed, before anything else of the old run: from here on there is no run.
//! 3. Whatever else is there goes: parts of the old run, or what an upload left that was killed. Objects that are no part of
//!    a run are never touched; the upload is refused because of them, before anything was scored.
//! 4. All files but the manifest are put, each of them atomically.
//! 5. The listing is held against what was put, by size and ETag, and the claim must still be ours: had another upload to
//!    the same place begun meanwhile, one of the two would differ.
//! 6. The manifest is put on the condition that there is none. From here on there is a run, and it is whole.
//! 7. The claim goes.
//!
//! The objects have the names that the files have: a run that is copied out of a bucket by any tool is a run directory, and
//! other tools find its tables by the same globs. The other way, new parts under names of their own and a manifest that is
//! switched over, would keep the old run until the new one is there, and cost both: so between 2 and 6 there is no run
//! under this name, never a manifest beside parts of another run. Should an upload fail, the finished run is kept here.

use std::path::Path as LocalPath;

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::StoreError;
use super::connect::Connection;
use super::fetch::bare;
use super::listing::below;
use super::location::Location;
use super::upload::{Put, put_all};

/// Makes a folder a run.
pub(super) const MANIFEST: &str = "manifest.json";
/// Says that somebody uploads a run.
const CLAIM: &str = ".nightmill-upload";
/// Put and removed before a run is made, to see whether it can be put at all.
const PROBE: &str = ".nightmill-probe";

/// Where a run is to be.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub connection: Connection,
    pub at: Location,
    pub overwrite: bool,
    /// The names that a run may hold.
    pub content: &'static [&'static str],
}

impl Place {
    fn prefix(&self) -> &str {
        self.at.key.trim_matches('/')
    }

    fn key(&self, name: &str) -> Result<Path, StoreError> {
        Path::parse(format!("{}/{name}", self.prefix())).map_err(|e| {
            let advice = "name another --out, without empty parts";
            StoreError::new(self.at.shown(), e, advice)
        })
    }

    fn told(&self, error: &Error) -> StoreError {
        self.connection.told(&self.at, error)
    }

    fn wrong(&self, problem: impl ToString, advice: &str) -> StoreError {
        StoreError::new(self.at.shown(), problem, advice)
    }

    /// Looks whether a run may be put here, and can be.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.look().await?;
        let probe = self.key(PROBE)?;
        let put = self.connection.store.put(&probe, PutPayload::new()).await;
        put.map_err(|error| self.told(&error))?;
        if let Err(error) = self.connection.store.delete(&probe).await {
            tracing::warn!(%error, "objects can be put there, and not removed");
        }
        Ok(())
    }

    /// What is there, if a run may take its place.
    async fn look(&self) -> Result<Vec<Path>, StoreError> {
        let there = below(&self.connection, &self.at, self.prefix()).await?;
        let keys: Vec<Path> = there.into_iter().map(|meta| meta.location).collect();
        let names = keys.iter().map(|key| self.name_of(key));
        if names.clone().any(|name| name == MANIFEST) {
            if !self.overwrite {
                return Err(self.wrong(
                    "there is a run already",
                    "choose another --out, or give --overwrite to replace it",
                ));
            }
            self.check_manifest().await?;
        }
        let mut first = names.map(|name| name.split('/').next().unwrap_or_default());
        let foreign =
            first.find(|name| !self.content.contains(name) && ![CLAIM, PROBE].contains(name));
        match foreign {
            None => Ok(keys),
            Some(name) => Err(self.wrong(
                format!("it holds `{name}`, which is no part of a run"),
                "choose another --out",
            )),
        }
    }

    fn name_of<'k>(&self, key: &'k Path) -> &'k str {
        let below = key.as_ref().strip_prefix(self.prefix());
        below.unwrap_or_default().trim_start_matches('/')
    }

    /// Only a run is replaced.
    async fn check_manifest(&self) -> Result<(), StoreError> {
        let text = self.bytes_of(&self.key(MANIFEST)?).await?;
        let text = text.unwrap_or_default();
        let manifest: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
        match manifest.is_some_and(|manifest| manifest.get("nightmill").is_some()) {
            true => Ok(()),
            false => Err(self.wrong(
                "its manifest.json is none of nightmill, so --overwrite leaves it alone",
                "choose another --out",
            )),
        }
    }

    /// The bytes of a small object, if it is there.
    async fn bytes_of(&self, key: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let answer = match self.connection.store.get(key).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.told(&error)),
            Ok(answer) => answer,
        };
        let bytes = answer.bytes().await.map_err(|error| self.told(&error))?;
        Ok(Some(bytes.to_vec()))
    }

    /// Puts a finished run here.
    pub async fn put_run(&self, run: &LocalPath) -> Result<(), StoreError> {
        let claim = self.claim().await?;
        let there = self.look().await?;
        let manifest = self.key(MANIFEST)?;
        self.remove(there.iter().filter(|key| **key == manifest))
            .await?;
        let rest = there.iter().filter(|key| **key != manifest);
        self.remove(rest.filter(|key| self.name_of(key) != CLAIM))
            .await?;
        let files = self.files_of(run)?;
        tracing::info!(
            files = files.len(),
            to = self.at.shown(),
            "carrying the run there"
        );
        let put = put_all(&self.connection, &self.at, files).await?;
        self.compare(&put, &claim).await?;
        self.put_manifest(run, &manifest).await?;
        // The run is there: a claim that stays is hidden, and goes with the next run to this place.
        if let Err(error) = self.remove([self.key(CLAIM)?].iter()).await {
            tracing::warn!(%error, "the run is there, whole; only the mark of its upload could not be removed");
        }
        Ok(())
    }

    async fn claim(&self) -> Result<Vec<u8>, StoreError> {
        let claim = format!(
            "{{\"upload\": \"{}\", \"began\": \"{}\"}}\n",
            uuid::Uuid::new_v4(),
            chrono::Utc::now().to_rfc3339()
        );
        let claim = claim.into_bytes();
        let put = self
            .connection
            .store
            .put(&self.key(CLAIM)?, claim.clone().into())
            .await;
        put.map_err(|error| self.told(&error))?;
        Ok(claim)
    }

    async fn remove(&self, keys: impl Iterator<Item = &Path>) -> Result<(), StoreError> {
        for key in keys {
            match self.connection.store.delete(key).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(self.told(&error)),
            }
        }
        Ok(())
    }

    /// The run's files but its manifest, with their keys.
    fn files_of(&self, run: &LocalPath) -> Result<Vec<(std::path::PathBuf, Path)>, StoreError> {
        let mut files = Vec::new();
        for entry in walkdir::WalkDir::new(run).sort_by_file_name() {
            let entry = entry.map_err(|e| self.wrong(e, "run it again"))?;
            let name = entry.path().strip_prefix(run).unwrap_or(entry.path());
            let name = name.to_string_lossy().into_owned();
            if entry.file_type().is_file() && name != MANIFEST && !name.starts_with('.') {
                files.push((entry.path().to_owned(), self.key(&name)?));
            }
        }
        Ok(files)
    }

    /// Holds what is there against what was put.
    async fn compare(&self, put: &[Put], claim: &[u8]) -> Result<(), StoreError> {
        let there = below(&self.connection, &self.at, self.prefix()).await?;
        let there: Vec<_> = there
            .iter()
            .filter(|meta| !self.name_of(&meta.location).starts_with('.'))
            .collect();
        let is_there = |put: &Put| {
            there.iter().any(|meta| {
                let tags = meta.e_tag.as_ref().zip(put.e_tag.as_ref());
                meta.location == put.key
                    && meta.size == put.size
                    && tags.is_none_or(|(a, b)| bare(a) == bare(b))
            })
        };
        let ours = self.bytes_of(&self.key(CLAIM)?).await?.as_deref() == Some(claim);
        match ours && there.len() == put.len() && put.iter().all(is_there) {
            true => Ok(()),
            false => Err(self.wrong(
                "another run is being put into the same place",
                "give each its own --out",
            )),
        }
    }

    async fn put_manifest(&self, run: &LocalPath, key: &Path) -> Result<(), StoreError> {
        let text = std::fs::read(run.join(MANIFEST));
        let text = text.map_err(|e| self.wrong(e, "run it again"))?;
        let create = PutOptions::from(PutMode::Create);
        let put = self
            .connection
            .store
            .put_opts(key, text.clone().into(), create);
        match put.await {
            Ok(_) => Ok(()),
            // An answer that was lost is asked for again: then it is our own that is in the way.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match self.bytes_of(key).await? {
                    Some(there) if there == text => Ok(()),
                    _ => Err(self.wrong(
                        "another run was put into the same place meanwhile",
                        "give each its own --out",
                    )),
                }
            }
            // Servers that know no conditions (AWS_CONDITIONAL_PUT=disabled): a look, and then the manifest.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if self.bytes_of(key).await?.is_some() {
                    let problem = "another run was put into the same place meanwhile";
                    return Err(self.wrong(problem, "give each its own --out"));
                }
                let put = self.connection.store.put(key, text.into()).await;
                put.map(|_| ()).map_err(|error| self.told(&error))
            }
            // The answer may have been lost on its way, and the manifest be there.
            Err(error) => match self.bytes_of(key).await {
                Ok(Some(there)) if there == text => Ok(()),
                _ => Err(self.told(&error)),
            },
        }
    }
}

#[cfg(test)]
mod tests;
