//! Where a result is to be: a local path, or a place in a bucket that it is carried to when it is whole.

use std::path::{Path, PathBuf};

use super::connect::Connection;
use super::deliver::Place;
use super::location::{self, Kind, Location, Named};
use super::scratch::Scratch;
use super::{Fetched, StoreError, address_in, refused_offline, runtime};

/// Where a run is made, and where it goes.
#[derive(Debug, Default)]
pub struct Destination {
    folder: PathBuf,
    remote: Option<(Place, Scratch)>,
}

impl Destination {
    /// Where the run directory `out` is made: `out` itself, if it is local. If it is an address, what is there is looked at
    /// now, before anything takes time: another run is replaced only with `overwrite`, and never one that `inputs` came from.
    /// `content` are the names that a run may hold; a run that is to be carried is made in the folder `parent`, or else in the
    /// system's temporary folder.
    ///
    /// # Errors
    /// [`StoreError`] if `offline` and `out` is remote, or if a run can't be put there.
    pub fn of(
        out: PathBuf,
        overwrite: bool,
        offline: bool,
        inputs: &Fetched,
        content: &'static [&'static str],
        parent: Option<&Path>,
    ) -> Result<Self, StoreError> {
        let Some(address) = address_in(&out) else {
            return Ok(Self::local(out));
        };
        let at = match location::parse(address)? {
            Named::Local(path) => return Ok(Self::local(PathBuf::from(path))),
            Named::Remote(at) => at,
        };
        if offline {
            return Err(refused_offline(&at));
        }
        check(&at, inputs)?;
        let place = Place {
            connection: Connection::open(&at)?,
            at,
            overwrite,
            content,
        };
        runtime()?.block_on(place.check())?;
        let scratch = parent.map_or_else(Scratch::make, Scratch::make_shared)?;
        let folder = scratch.place_of(&place.at)?;
        Ok(Self {
            folder,
            remote: Some((place, scratch)),
        })
    }

    /// A local folder.
    pub fn local(folder: PathBuf) -> Self {
        Self {
            folder,
            remote: None,
        }
    }

    /// Where to make the run.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Carries the finished run to its place, if that is elsewhere.
    ///
    /// # Errors
    /// [`StoreError`] if that fails; the run is kept then, and the message says where.
    pub fn deliver(self) -> Result<(), StoreError> {
        let Some((place, scratch)) = self.remote else {
            return Ok(());
        };
        let delivered = runtime()?.block_on(place.put_run(&self.folder));
        let Err(error) = delivered else {
            return Ok(());
        };
        let advice = match scratch.keep(&self.folder) {
            Ok(kept) => format!("the finished run is kept in `{}`", kept.display()),
            Err(e) => format!("the finished run could not be kept either: {e}"),
        };
        Err(StoreError::new(
            place.at.shown(),
            format!("the run could not be put there: {error}"),
            advice,
        ))
    }
}

fn check(at: &Location, inputs: &Fetched) -> Result<(), StoreError> {
    if at.kind == Kind::Web {
        return Err(StoreError::new(
            at.shown(),
            "runs are not put on web servers",
            "name a bucket (s3://, gs://, az://) or a local folder with --out",
        ));
    }
    if at.key.trim_matches('/').is_empty() {
        return Err(StoreError::new(
            at.shown(),
            "it names a bucket, and a run is a folder in one",
            "write --out SCHEME://BUCKET/RUN",
        ));
    }
    match inputs.origins.iter().find(|origin| origin.is_within(at)) {
        None => Ok(()),
        Some(origin) => Err(StoreError::new(
            origin.shown(),
            format!(
                "it is inside of `{}`, which the run would replace",
                at.shown()
            ),
            "choose another --out",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_place_is_itself_and_wrong_ones_are_refused() {
        let of = |out: &str, offline| {
            let inputs = match location::parse("s3://b/runs/x/traces/p.parquet").unwrap() {
                Named::Remote(origin) => Fetched {
                    origins: vec![origin],
                    ..Fetched::default()
                },
                Named::Local(path) => panic!("{path}"),
            };
            let place = Destination::of(PathBuf::from(out), true, offline, &inputs, &[], None);
            place
                .map(|p| p.folder().to_owned())
                .map_err(|e| e.to_string())
        };
        assert_eq!(of("runs/x", true).unwrap(), Path::new("runs/x"));
        assert_eq!(of("file:///runs/x", true).unwrap(), Path::new("/runs/x"));
        for (out, offline, told) in [
            ("s3://b/runs/y", true, "--offline"),
            ("s3://b/", false, "names a bucket"),
            ("https://h/runs/x", false, "web server"),
            ("s3://b/runs/x/", false, "is inside of `s3://b/runs/x/`"),
        ] {
            let error = of(out, offline).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
