//! From an address to the objects behind it: an object, a prefix as a folder, or a glob.

use std::collections::BTreeSet;

use futures::StreamExt;
use globset::{GlobBuilder, GlobMatcher};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt};

use super::StoreError;
use super::connect::Connection;
use super::location::{Kind, Location};
use super::warehouse::Warehouse;

/// Which objects of a folder are brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Those whose names say that traces may be in them, and the files of runs.
    Inputs,
    /// All that is not hidden.
    Everything,
}

/// An object as the listing has it; of a web server's file nothing is known yet.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub key: Path,
    pub size: Option<u64>,
    pub e_tag: Option<String>,
}

impl From<ObjectMeta> for Listed {
    fn from(meta: ObjectMeta) -> Self {
        Self {
            key: meta.location,
            size: Some(meta.size),
            e_tag: meta.e_tag,
        }
    }
}

/// Endings of files that may hold traces, turns or signals; each may be followed by one of a compression.
const ENDINGS: [&str; 9] = [
    "parquet", "parq", "pq", "jsonl", "ndjson", "json", "csv", "traj", "otlp",
];
const COMPRESSED: [&str; 4] = ["gz", "gzip", "zst", "zstd"];

/// Whether an object of a folder may be read, by its name.
pub(super) fn may_be_read(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut endings = name.rsplit('.');
    let last = endings.next().unwrap_or_default();
    let ending = match COMPRESSED.contains(&last) {
        true => endings.next().unwrap_or_default(),
        false => last,
    };
    ENDINGS.contains(&ending) && endings.next().is_some()
}

/// Hidden names, and names that begin with `_`, are passed over in folders, as on a disk.
fn is_passed_over(below: &str) -> bool {
    below.split('/').any(|part| part.starts_with(['.', '_']))
}

pub(super) fn is_glob(key: &str) -> bool {
    key.contains(['*', '?', '[', '{'])
}

pub(super) fn path(at: &Location, key: &str) -> Result<Path, StoreError> {
    let parsed = match at.kind {
        Kind::Web => Path::from_url_path(key),
        _ => Path::parse(key),
    };
    parsed.map_err(|e| {
        let advice = "write the name as the bucket's listing has it, without empty parts";
        StoreError::new(at.shown(), e, advice)
    })
}

/// Finds the objects behind an address, sorted. An object is taken whatever its name; so is what a glob names. In folders
/// (a prefix, or what a glob takes as one), only names that `wanted` takes are.
pub(super) async fn find(
    connection: &Connection,
    at: &Location,
    wanted: Wanted,
) -> Result<Vec<Listed>, StoreError> {
    let key = at.key.trim_end_matches('/');
    if at.kind == Kind::Web {
        if key.is_empty() || at.key.ends_with('/') || key.contains('*') {
            return Err(StoreError::new(
                at.shown(),
                "a web server has no folders that can be listed",
                "name each file by its address",
            ));
        }
        return Ok(vec![Listed {
            key: path(at, key)?,
            size: None,
            e_tag: None,
        }]);
    }
    if !at.key.ends_with('/') && !key.is_empty() {
        match connection.store.head(&path(at, key)?).await {
            Ok(meta) => return Ok(vec![meta.into()]),
            Err(Error::NotFound { .. }) => {}
            // Whoever may list and not read is told at the first read.
            Err(Error::PermissionDenied { .. }) if is_glob(key) => {}
            Err(error) => return Err(connection.told(at, &error)),
        }
    }
    match is_glob(key) {
        true => matching(connection, at, key, wanted).await,
        false => in_folder(connection, at, key, wanted).await,
    }
}

/// Objects of a table of a warehouse are not its rows: some are deleted, or of an earlier state.
fn refuse_tables(
    at: &Location,
    all: &[ObjectMeta],
    taken: impl Fn(&str) -> bool,
) -> Result<(), StoreError> {
    let of_log = |meta: &ObjectMeta| {
        let (kind, root) = Warehouse::of_key(meta.location.as_ref())?;
        Some((kind, root.to_owned()))
    };
    let tables: BTreeSet<(Warehouse, String)> = all.iter().filter_map(of_log).collect();
    let is_read = |(_, root): &&(Warehouse, String)| {
        let keys = all.iter().map(|meta| meta.location.as_ref());
        keys.filter(|key| key.starts_with(root.as_str()))
            .any(&taken)
    };
    match tables.iter().find(is_read) {
        None => Ok(()),
        Some((kind, root)) => {
            let table = at.sibling(root.trim_end_matches('/')).shown();
            Err(StoreError::new(table, kind.problem(), kind.advice()))
        }
    }
}

/// All objects below a prefix, sorted, without the empty objects that stand for folders.
pub(super) async fn below(
    connection: &Connection,
    at: &Location,
    prefix: &str,
) -> Result<Vec<ObjectMeta>, StoreError> {
    let prefix = match prefix {
        "" => None,
        prefix => Some(path(at, prefix)?),
    };
    let mut listing = connection.store.list(prefix.as_ref());
    let mut all = Vec::new();
    while let Some(meta) = listing.next().await {
        all.push(meta.map_err(|error| connection.told(at, &error))?);
    }
    all.sort_by(|a, b| a.location.cmp(&b.location));
    let is_folder = |meta: &ObjectMeta| {
        let folder = format!("{}/", meta.location);
        let later = all.partition_point(|other| other.location.as_ref() < folder.as_str());
        meta.size == 0
            && all
                .get(later)
                .is_some_and(|next| next.location.as_ref().starts_with(&folder))
    };
    Ok(all
        .iter()
        .filter(|meta| !is_folder(meta))
        .cloned()
        .collect())
}

fn is_taken(below: &str, wanted: Wanted) -> bool {
    let name = below.rsplit('/').next().unwrap_or_default();
    !below.is_empty()
        && !is_passed_over(below)
        && (wanted == Wanted::Everything || may_be_read(name))
}

async fn in_folder(
    connection: &Connection,
    at: &Location,
    prefix: &str,
    wanted: Wanted,
) -> Result<Vec<Listed>, StoreError> {
    let all = below(connection, at, prefix).await?;
    let count = all.len();
    let is_taken = |key: &str| {
        let below = key.strip_prefix(prefix).unwrap_or_default();
        is_taken(below.trim_start_matches('/'), wanted)
    };
    if wanted == Wanted::Inputs {
        refuse_tables(at, &all, is_taken)?;
    }
    let taken = all
        .into_iter()
        .filter(|meta| is_taken(meta.location.as_ref()));
    let taken: Vec<Listed> = taken.map(Listed::from).collect();
    match (taken.is_empty(), count) {
        (false, _) => Ok(taken),
        (true, 0) => Err(StoreError::new(
            at.shown(),
            "there is no such object, and nothing below it",
            "check the address; names tell capital from small letters",
        )),
        (true, count) => Err(StoreError::new(
            at.shown(),
            format!("none of the {count} objects below it has a name that is read"),
            format!(
                "name objects themselves or by a glob; in folders, those are read that end in .{}",
                ENDINGS.join(", .")
            ),
        )),
    }
}

async fn matching(
    connection: &Connection,
    at: &Location,
    pattern: &str,
    wanted: Wanted,
) -> Result<Vec<Listed>, StoreError> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = glob.map_err(|e| {
        let problem = format!("not a usable glob: {e}");
        StoreError::new(at.shown(), problem, "mind its brackets")
    })?;
    let glob = glob.compile_matcher();
    // Everything from the last folder before the first wildcard.
    let base: Vec<&str> = pattern
        .split('/')
        .take_while(|part| !is_glob(part))
        .collect();
    let all = below(connection, at, &base.join("/")).await?;
    if wanted == Wanted::Inputs {
        refuse_tables(at, &all, |key| takes(&glob, key, wanted))?;
    }
    let taken = all
        .into_iter()
        .filter(|meta| takes(&glob, meta.location.as_ref(), wanted));
    let taken: Vec<Listed> = taken.map(Listed::from).collect();
    match taken.is_empty() {
        false => Ok(taken),
        true => Err(StoreError::new(
            at.shown(),
            "no object matches this glob",
            "`*` stays within one part of a name; `**` goes over parts",
        )),
    }
}

/// Whether a glob takes a key: by itself, or as part of a folder that it takes.
fn takes(glob: &GlobMatcher, key: &str, wanted: Wanted) -> bool {
    let folders = key.match_indices('/').map(|(at, _)| key.split_at(at));
    let mut folders = folders.map(|(folder, rest)| (folder, rest.trim_start_matches('/')));
    glob.is_match(key)
        || folders.any(|(folder, below)| glob.is_match(folder) && is_taken(below, wanted))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::super::location::{Named, parse};
    use super::*;

    fn found(keys: &[&str], address: &str, wanted: Wanted) -> Result<Vec<String>, String> {
        let runtime = crate::store::runtime().unwrap();
        runtime.block_on(find_among(keys, address, wanted))
    }

    async fn find_among(
        keys: &[&str],
        address: &str,
        wanted: Wanted,
    ) -> Result<Vec<String>, String> {
        let store = InMemory::new();
        for key in keys {
            let bytes = match key.strip_suffix("(empty)") {
                Some(_) => vec![],
                None => b"PAR1".to_vec(),
            };
            let key = key.trim_end_matches("(empty)");
            store
                .put(&Path::parse(key).unwrap(), bytes.into())
                .await
                .unwrap();
        }
        let Named::Remote(at) = parse(address).unwrap() else {
            panic!("{address}")
        };
        let connection = Connection::of_test(Arc::new(store));
        let listed = find(&connection, &at, wanted)
            .await
            .map_err(|e| e.to_string())?;
        Ok(listed.iter().map(|l| l.key.to_string()).collect())
    }

    #[test]
    fn objects_folders_and_globs_are_found_as_on_a_disk() {
        const KEYS: [&str; 9] = [
            "t/date=1/p.parquet",
            "t/date=2/p.jsonl.gz",
            "t/date=2(empty)",
            "t/_SUCCESS",
            "t/_tmp/p.parquet",
            "t/.part.parquet",
            "t/readme.txt",
            "t/manifest.json",
            "tt/x.parquet",
        ];
        let inputs = |address| found(&KEYS, address, Wanted::Inputs);
        let whole = [
            "t/date=1/p.parquet",
            "t/date=2/p.jsonl.gz",
            "t/manifest.json",
        ];
        for folder in ["s3://b/t", "s3://b/t/"] {
            assert_eq!(inputs(folder).unwrap(), whole, "{folder}");
        }
        assert_eq!(inputs("s3://b").unwrap().len(), 4);
        assert_eq!(inputs("s3://b/t/readme.txt").unwrap(), ["t/readme.txt"]);
        assert_eq!(inputs("s3://b/t/date=*").unwrap(), whole[..2]);
        assert_eq!(inputs("s3://b/t/*.txt").unwrap(), ["t/readme.txt"]);
        assert_eq!(inputs("s3://b/**/p.parquet").unwrap().len(), 2);
        let everything = found(&KEYS, "s3://b/t", Wanted::Everything).unwrap();
        assert_eq!(everything.len(), 4);
        const TABLE: [&str; 3] = [
            "w/t/_delta_log/00000000000000000000.json",
            "w/t/part-0.parquet",
            "w/i/metadata/v1.metadata.json",
        ];
        for address in ["s3://b/w", "s3://b/w/t", "s3://b/w/*/*.parquet", "s3://b"] {
            let refused = found(&TABLE, address, Wanted::Inputs).unwrap_err();
            assert!(
                refused.contains("s3://b/w/t") && refused.contains("Delta"),
                "{refused}"
            );
        }
        let one = found(&TABLE, "s3://b/w/t/part-0.parquet", Wanted::Inputs);
        assert_eq!(one.unwrap(), ["w/t/part-0.parquet"]);
        // A folder that is named itself is read, whatever its name.
        assert_eq!(inputs("s3://b/t/_tmp/").unwrap(), ["t/_tmp/p.parquet"]);
        for (nothing, told) in [
            ("s3://b/none", "no such object"),
            ("s3://b/t/*.csv", "no object matches"),
        ] {
            let error = inputs(nothing).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
