//! Files in buckets and on web servers: brought here before they are read, and runs carried there when they are whole.
//!
//! Everything else here works on local files, many times over the same ones. So remote inputs come to a temporary folder
//! first, laid out as they are there: names of folders carry values of partitions, and errors are told in the names that
//! were given ([`crate::text`] knows which path is a copy of what). A run that is to be in a bucket is made in such a folder
//! as everywhere, and carried over at its end.
//!
//! Delta tables come the same way, also local ones: the rows of one version are written there (`delta.rs`).
//!
//! Calls wait until they are done; inside, a small runtime of its own has many requests under way.

mod connect;
mod deliver;
mod delta;
mod destination;
mod error;
mod fetch;
mod file_destination;
mod listing;
mod location;
mod metadata_service;
mod profile;
mod scratch;
mod upload;
mod warehouse;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub use destination::Destination;
pub use error::StoreError;
pub use file_destination::FileDestination;
#[cfg(feature = "cluster")]
pub(crate) use scratch::{LOCK, locked};
pub(crate) use warehouse::Warehouse;

use connect::Connection;
use delta::Table;
use listing::{Listed, Wanted};
use location::Location;
use scratch::Scratch;

use crate::text::origin_of;

/// Local paths of inputs. Copies of remote files are gone when this is dropped.
#[derive(Debug, Default)]
pub struct Fetched {
    /// What to read, one for one: a local path as it was given, and for a remote one its copy.
    pub paths: Vec<String>,
    /// Where the copies came from.
    pub(crate) origins: Vec<Location>,
    /// What holds the copies.
    #[allow(dead_code, reason = "it is there to be dropped")]
    scratch: Option<Scratch>,
}

/// Whether a path names something on another machine, or is a `file://` address.
pub(crate) fn is_address(path: &str) -> bool {
    path.contains("://")
}

/// Brings remote files, folders and globs among `paths` here, and the rows of Delta tables. `file://` is a local path.
///
/// # Errors
/// [`StoreError`] if `offline` and a path is remote, if there is nothing at an address, credentials are missing or refused,
/// an object changes meanwhile, a table can't be read, or the disk is too small. Nothing is left behind then.
pub fn fetched(paths: Vec<String>, offline: bool) -> Result<Fetched, StoreError> {
    bring(paths, offline, Wanted::Inputs)
}

/// Brings remote run directories here, whole; local ones stay where they are. The copies are gone when the second of the
/// two is dropped.
///
/// # Errors
/// As [`fetched`].
pub fn fetched_runs(
    folders: &[PathBuf],
    offline: bool,
) -> Result<(Vec<PathBuf>, Fetched), StoreError> {
    let remote = folders.iter().filter_map(|folder| address_in(folder));
    let remote = remote.map(str::to_owned).collect();
    let fetched = bring(remote, offline, Wanted::Everything)?;
    let mut copies = fetched.paths.iter();
    let folders = folders.iter().map(|folder| {
        let copy = address_in(folder).and_then(|_| copies.next());
        copy.map_or_else(|| folder.clone(), PathBuf::from)
    });
    Ok((folders.collect(), fetched))
}

fn bring(mut paths: Vec<String>, offline: bool, wanted: Wanted) -> Result<Fetched, StoreError> {
    let (mut remote, mut tables) = (Vec::new(), Vec::new());
    for (at, path) in paths.iter_mut().enumerate() {
        if is_address(path) {
            match location::parse(path)? {
                location::Named::Local(local) => *path = local,
                location::Named::Remote(location) => {
                    if offline {
                        return Err(refused_offline(&location));
                    }
                    remote.push((at, location));
                    continue;
                }
            }
        }
        if wanted == Wanted::Inputs {
            tables.extend(Table::local(path)?.map(|table| (at, table)));
        }
    }
    if remote.is_empty() && tables.is_empty() {
        return Ok(Fetched {
            paths,
            ..Fetched::default()
        });
    }
    let scratch = Scratch::make()?;
    let runtime = runtime()?;
    let (mut origins, mut all, mut odd) = (HashSet::new(), Vec::new(), Vec::new());
    for (at, location) in remote {
        let connection = Connection::open(&location)?;
        if wanted == Wanted::Inputs
            && let Some((table, folder)) =
                runtime.block_on(Table::remote(&connection, &location))?
        {
            origins.insert(folder);
            tables.push((at, table));
            continue;
        }
        let found = runtime.block_on(listing::find(&connection, &location, wanted))?;
        let place = scratch.place_of(&location)?;
        paths[at] = place.display().to_string();
        for listed in found {
            let origin = location.sibling(listed.key.as_ref());
            let copy = match scratch.place_of(&origin) {
                Ok(copy) => copy,
                // One that was named itself is an error; among others it is left out and named.
                Err(error) if origin == location => return Err(error),
                Err(_) => {
                    odd.push(origin);
                    continue;
                }
            };
            if origins.insert(origin.clone()) {
                all.push((connection.clone(), origin, listed, copy));
            }
        }
    }
    all.sort_by(|a, b| a.3.cmp(&b.3));
    tell_left_out(&odd);
    check_nesting(&all)?;
    let sizes = all.iter().filter_map(|(_, _, listed, _)| listed.size);
    scratch.check_room(sizes.sum())?;
    runtime.block_on(fetch::bring_all(all))?;
    let mut written: Vec<PathBuf> = Vec::new();
    for (number, (at, table)) in tables.into_iter().enumerate() {
        let folder = table.write(&scratch, number, &runtime)?;
        // A version that is named twice is read once.
        let is_same = |other: &&PathBuf| origin_of(other) == origin_of(&folder);
        let folder = written.iter().find(is_same).unwrap_or(&folder).clone();
        paths[at] = folder.display().to_string();
        written.push(folder);
    }
    Ok(Fetched {
        paths,
        origins: origins.into_iter().collect(),
        scratch: Some(scratch),
    })
}

/// Names objects whose names no file can have here: they are not read, and nobody should think that they were.
fn tell_left_out(odd: &[Location]) {
    let Some(first) = odd.first() else { return };
    let (count, first) = (odd.len(), first.shown());
    tracing::warn!(
        count,
        first,
        "objects are left out: a part of their names can't be that of a file here; copy them to other names to read them"
    );
}

/// What is asked of a bucket: by whom, of what, and where it goes.
type Job = (Connection, Location, Listed, PathBuf);

/// Buckets may hold `a` and `a/b`, folders can't.
fn check_nesting(sorted: &[Job]) -> Result<(), StoreError> {
    for pair in sorted.windows(2) {
        if let [(_, shorter, _, a), (_, longer, _, b)] = pair
            && b.starts_with(a)
        {
            return Err(StoreError::new(
                longer.shown(),
                format!(
                    "`{}` is an object beside it, and here one name can't be a file and a folder",
                    shorter.shown()
                ),
                "name the objects to read one by one, or by a glob that takes one of the two",
            ));
        }
    }
    Ok(())
}

fn refused_offline(location: &Location) -> StoreError {
    StoreError::new(
        location.shown(),
        "--offline: this address is on another machine",
        "copy it here first, or leave --offline out",
    )
}

/// Two threads: they wait for the network and write to disk.
fn runtime() -> Result<tokio::runtime::Runtime, StoreError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| StoreError::new("this machine", e, "free some memory"))
}

/// A path as text; what is no UTF-8 is no address.
fn address_in(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| is_address(path))
}
