//! Where a single file is to be: a local path, or an object that it is put as when it is whole.

use std::path::{Path, PathBuf};

use object_store::path::Path as Key;
use object_store::{Error, ObjectStoreExt};

use super::connect::Connection;
use super::location::{self, Kind, Location, Named};
use super::scratch::Scratch;
use super::upload::put_file;
use super::{Fetched, StoreError, address_in, refused_offline, runtime};

/// Where a file is made, and where it goes.
#[derive(Debug)]
pub struct FileDestination {
    file: PathBuf,
    remote: Option<Remote>,
}

#[derive(Debug)]
struct Remote {
    connection: Connection,
    at: Location,
    key: Key,
    overwrite: bool,
    scratch: Scratch,
}

impl FileDestination {
    /// Where the file `out` is made: `out` itself, if it is local. If it is an address, what is there is looked at now,
    /// before anything takes time: it is replaced only with `overwrite`, and never one of `inputs`.
    ///
    /// # Errors
    /// [`StoreError`] if `offline` and `out` is remote, or if a file can't be put there.
    pub fn of(
        out: PathBuf,
        overwrite: bool,
        offline: bool,
        inputs: &Fetched,
    ) -> Result<Self, StoreError> {
        let local = |file| Self { file, remote: None };
        let Some(address) = address_in(&out) else {
            return Ok(local(out));
        };
        let at = match location::parse(address)? {
            Named::Local(path) => return Ok(local(PathBuf::from(path))),
            Named::Remote(at) => at,
        };
        if offline {
            return Err(refused_offline(&at));
        }
        let key = check(&at, inputs)?;
        let remote = Remote {
            connection: Connection::open(&at)?,
            scratch: Scratch::make()?,
            at,
            key,
            overwrite,
        };
        runtime()?.block_on(remote.look())?;
        Ok(Self {
            file: remote.scratch.place_of(&remote.at)?,
            remote: Some(remote),
        })
    }

    /// Where to make the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Puts the finished file in its place, if that is elsewhere: as one object, which is there whole or not at all.
    ///
    /// # Errors
    /// [`StoreError`] if that fails; the file is kept then, and the message says where.
    pub fn deliver(self) -> Result<(), StoreError> {
        let Some(remote) = self.remote else {
            return Ok(());
        };
        let Err(error) = runtime()?.block_on(remote.put(&self.file)) else {
            return Ok(());
        };
        let advice = match remote.scratch.keep(&self.file) {
            Ok(kept) => format!("the finished file is kept as `{}`", kept.display()),
            Err(e) => format!("the finished file could not be kept either: {e}"),
        };
        Err(StoreError::new(
            remote.at.shown(),
            format!("the file could not be put there: {error}"),
            advice,
        ))
    }
}

impl Remote {
    /// Whether a file may be put here.
    async fn look(&self) -> Result<(), StoreError> {
        match self.connection.store.head(&self.key).await {
            Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.connection.told(&self.at, &error)),
            Ok(_) if self.overwrite => Ok(()),
            Ok(_) => Err(StoreError::new(
                self.at.shown(),
                "there is a file already",
                "choose another --out, or give --overwrite to replace it",
            )),
        }
    }

    async fn put(&self, file: &Path) -> Result<(), StoreError> {
        self.look().await?;
        let put = put_file(&self.connection, &self.at, file, self.key.clone());
        put.await.map(|_| ())
    }
}

fn check(at: &Location, inputs: &Fetched) -> Result<Key, StoreError> {
    if at.kind == Kind::Web {
        return Err(StoreError::new(
            at.shown(),
            "files are not put on web servers",
            "name a bucket (s3://, gs://, az://) or a local file with --out",
        ));
    }
    let key = at.key.trim_start_matches('/');
    if key.is_empty() || key.ends_with('/') {
        return Err(StoreError::new(
            at.shown(),
            "it names no file",
            "write --out SCHEME://BUCKET/FILE",
        ));
    }
    if inputs.origins.contains(at) {
        return Err(StoreError::new(
            at.shown(),
            "it is one of the files that are read",
            "choose another --out",
        ));
    }
    Key::parse(key).map_err(|e| {
        let advice = "name another --out, without empty parts";
        StoreError::new(at.shown(), e, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_is_itself_and_wrong_places_are_refused() {
        let of = |out: &str, offline| {
            let inputs = match location::parse("s3://b/x.jsonl").unwrap() {
                Named::Remote(origin) => Fetched {
                    origins: vec![origin],
                    ..Fetched::default()
                },
                Named::Local(path) => panic!("{path}"),
            };
            let place = FileDestination::of(PathBuf::from(out), true, offline, &inputs);
            place
                .map(|p| p.file().to_owned())
                .map_err(|e| e.to_string())
        };
        assert_eq!(of("x.parquet", true).unwrap(), Path::new("x.parquet"));
        assert_eq!(
            of("file:///x.parquet", true).unwrap(),
            Path::new("/x.parquet")
        );
        for (out, offline, told) in [
            ("s3://b/y.parquet", true, "--offline"),
            ("s3://b/", false, "names no file"),
            ("s3://b/folder/", false, "names no file"),
            ("https://h/y.parquet", false, "web server"),
            ("s3://b/x.jsonl", false, "one of the files that are read"),
        ] {
            let error = of(out, offline).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
