//! Copies of remote files, and whose copies they are: people are told the name that they gave.

use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// Beginnings of local paths, and the beginnings of the names that stand for them. A beginning is that of a folder whose
/// name is made up at random: no other path begins like it, so that the names can be looked up by whoever writes one.
static COPIES: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// So many are kept; a process that brings files again and again forgets the oldest.
const MOST: usize = 256;

/// From now on, what begins with `local` is named by what begins with `origin`.
pub(crate) fn name_copies(local: &Path, origin: &str) {
    let mut copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
    let local = format!("{}/", local.display());
    if !copies.iter().any(|(known, _)| *known == local) {
        if copies.len() == MOST {
            copies.remove(0);
        }
        copies.push((local, origin.to_owned()));
    }
}

/// A text with the names of remote files in the place of their copies' paths.
pub(crate) fn with_origins(text: &str) -> String {
    let copies = COPIES.read().unwrap_or_else(PoisonError::into_inner);
    let mut named = text.to_owned();
    for (local, origin) in copies.iter() {
        if named.contains(local.as_str()) {
            named = named.replace(local.as_str(), origin);
        }
    }
    named
}

/// The name of a file: where it came from, if it is a copy, and else its path.
pub(crate) fn origin_of(path: &Path) -> String {
    with_origins(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_named_by_its_origin() {
        name_copies(Path::new("/tmp/of-this-test-Xq3/s3"), "s3://");
        assert_eq!(
            with_origins("can't read `/tmp/of-this-test-Xq3/s3/b/x.parquet`: no"),
            "can't read `s3://b/x.parquet`: no"
        );
        assert_eq!(origin_of(Path::new("/tmp/other/s3/b")), "/tmp/other/s3/b");
    }
}
