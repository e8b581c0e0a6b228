//! The temporary folder of copies and of runs that are to be carried away.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::StoreError;
use super::location::Location;
use crate::text::name_copies;

/// What its name begins with.
const NAME: &str = "nightmill-remote-";
/// Held as long as the folder is in use.
pub(crate) const LOCK: &str = ".lock";
/// So much of a disk is left free.
const LEFT_FREE: u64 = 256 << 20;

/// A folder in the system's temporary folder (`TMPDIR`), or in another one, that is gone when it is dropped. One that a killed process left
/// behind is removed by the next.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Closed before the folder is removed: file systems of networks keep what is open.
    _lock: File,
    folder: TempDir,
    /// Its whole path.
    root: PathBuf,
}

/// Makes the lock of a folder. It has its name only when it is locked: nobody takes the folder for a leftover before.
pub(crate) fn locked(folder: &Path) -> std::io::Result<File> {
    let unnamed = folder.join(".lock-new");
    let lock = File::create(&unnamed)?;
    lock.lock()?;
    std::fs::rename(unnamed, folder.join(LOCK))?;
    Ok(lock)
}

fn failed(path: &Path, problem: impl ToString) -> StoreError {
    let advice =
        "make room in it, or name another folder (of the system's, the variable TMPDIR does)";
    StoreError::new(path.display().to_string(), problem, advice)
}

impl Scratch {
    pub fn make() -> Result<Self, StoreError> {
        // Links followed, as whoever reads from it may do.
        Self::make_in(&std::env::temp_dir(), |folder| folder.canonicalize())
    }

    /// The same in a folder that other machines see, under the path by which they do.
    pub fn make_shared(parent: &Path) -> Result<Self, StoreError> {
        Self::make_in(parent, |folder| std::path::absolute(folder))
    }

    fn make_in(
        parent: &Path,
        whole: impl Fn(&Path) -> std::io::Result<PathBuf>,
    ) -> Result<Self, StoreError> {
        remove_leftovers(parent);
        let folder = tempfile::Builder::new().prefix(NAME).tempdir_in(parent);
        let folder = folder.map_err(|e| failed(parent, e))?;
        let root = whole(folder.path()).map_err(|e| failed(folder.path(), e))?;
        let lock = locked(&root).map_err(|e| failed(&root, e))?;
        Ok(Self {
            _lock: lock,
            folder,
            root,
        })
    }

    /// Where the copy of an object is, or is to be: `SCHEME/BUCKET/KEY`. Two addresses of a web server that differ in their
    /// query are two files.
    pub fn place_of(&self, location: &Location) -> Result<PathBuf, StoreError> {
        let mut below = PathBuf::new();
        if let Some(query) = &location.query {
            below.push(&blake3::hash(query.as_bytes()).to_hex()[..16]);
        }
        below.push(&location.scheme);
        name_copies(&self.root, &below, &format!("{}://", location.scheme));
        let mut base = self.root.join(below);
        base.push(&location.authority);
        let key = location.key.trim_end_matches('/');
        for part in key.split('/').filter(|part| !part.is_empty()) {
            if part == "." || part == ".." || part.len() > 255 || part.contains('\0') {
                return Err(StoreError::new(
                    location.shown(),
                    "a part of its name can't be that of a file here",
                    "copy it to another name",
                ));
            }
            base.push(part);
        }
        Ok(base)
    }

    /// Where the rows of a table are to be, which are named by the table and its version: `…/NAME@v7`. `number` tells tables
    /// apart.
    pub fn of_table(&self, number: usize, name: &str, version: u64) -> PathBuf {
        let name = name.trim_end_matches('/');
        let above = name.rfind('/').map_or(0, |slash| slash + 1);
        let (above, own) = name.split_at(above);
        let below = format!("table-{number}");
        name_copies(&self.root, Path::new(&below), above);
        let base = self.root.join(below);
        // A name like `date=1` would be taken for the value of a column.
        base.join(format!("{}@v{version}", own.replace('=', ":")))
    }

    /// Whether so many bytes fit.
    pub fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        let Ok(disk) = rustix::fs::statvfs(&self.root) else {
            return Ok(());
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if bytes.saturating_add(LEFT_FREE) <= free {
            return Ok(());
        }
        Err(failed(
            self.folder.path(),
            format!(
                "{bytes} bytes are to be brought here, and {free} are free ({LEFT_FREE} are left free)"
            ),
        ))
    }

    /// Keeps what is at `place` under a name that nobody removes, and says where it is.
    pub fn keep(self, place: &Path) -> std::io::Result<PathBuf> {
        let kept = tempfile::Builder::new()
            .prefix("nightmill-run-kept-")
            .tempdir_in(self.root.parent().unwrap_or(&self.root))?;
        let name = place.file_name().unwrap_or_default();
        let target = kept.path().join(name);
        std::fs::rename(place, &target)?;
        let _ = kept.keep();
        Ok(target)
    }
}

/// A folder that has no lock for so long gets none: whoever made it was killed.
const ABOUT_TO_LOCK: Duration = Duration::from_secs(3600);

/// Removes the folders of processes that are gone: nobody holds their lock. A young one without a lock is about to get it.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(NAME) {
            continue;
        }
        let made = entry.metadata().and_then(|of| of.modified());
        let age = made.ok().and_then(|made| made.elapsed().ok());
        let is_gone = match File::options().append(true).open(entry.path().join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(e) => {
                e.kind() == std::io::ErrorKind::NotFound
                    && age.is_some_and(|age| age > ABOUT_TO_LOCK)
            }
        };
        if is_gone {
            tracing::info!(path = %entry.path().display(), "removing what a killed process left behind");
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::location::{Named, parse};
    use super::*;
    use crate::text::origin_of;

    fn remote(address: &str) -> Location {
        match parse(address).unwrap() {
            Named::Remote(location) => location,
            Named::Local(path) => panic!("{path}"),
        }
    }

    #[test]
    fn copies_lie_as_their_originals_and_are_named_by_them() {
        let scratch = Scratch::make().unwrap();
        let place = scratch
            .place_of(&remote("s3://b/a/date=1/x.parquet"))
            .unwrap();
        assert!(place.ends_with("s3/b/a/date=1/x.parquet"), "{place:?}");
        assert_eq!(origin_of(&place), "s3://b/a/date=1/x.parquet");
        let first = scratch.place_of(&remote("https://h/x?a=1")).unwrap();
        let second = scratch.place_of(&remote("https://h/x?a=2")).unwrap();
        assert_ne!(first, second);
        assert_eq!(origin_of(&second), "https://h/x");
        let table = scratch.of_table(0, "/w/traces/", 7);
        assert_eq!(origin_of(&table), "/w/traces@v7");
        assert_eq!(
            origin_of(&table.join("p.parquet")),
            "/w/traces@v7/p.parquet"
        );
        let table = scratch.of_table(1, "s3://b/w/day=1", 0);
        assert_eq!(origin_of(&table), "s3://b/w/day:1@v0");
        assert!(scratch.place_of(&remote("s3://b/a/../../x")).is_err());
        assert!(scratch.check_room(1).is_ok());
        let error = scratch.check_room(u64::MAX / 2).unwrap_err().to_string();
        assert!(error.contains("TMPDIR"), "{error}");
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_kept_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{NAME}left"));
        std::fs::create_dir_all(left.join("s3")).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        let held = folder.path().join(format!("{NAME}held"));
        std::fs::create_dir_all(&held).unwrap();
        let lock = File::create(held.join(LOCK)).unwrap();
        lock.lock().unwrap();
        let [young, old] = ["young", "old"].map(|name| folder.path().join(format!("{NAME}{name}")));
        std::fs::create_dir_all(&young).unwrap();
        std::fs::create_dir_all(&old).unwrap();
        let past = std::time::SystemTime::now() - 2 * ABOUT_TO_LOCK;
        File::open(&old).unwrap().set_modified(past).unwrap();
        remove_leftovers(folder.path());
        assert!(!left.exists() && held.exists());
        assert!(!old.exists() && young.exists());

        let scratch = Scratch::make().unwrap();
        let run = scratch.root.join("run");
        std::fs::create_dir_all(run.join("traces")).unwrap();
        let root = scratch.root.clone();
        let kept = scratch.keep(&run).unwrap();
        assert!(kept.join("traces").is_dir() && !root.exists());
        std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    }
}
