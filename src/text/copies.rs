//! Copies of remote files, and whose copies they are: people are told the name that they gave.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// A folder of copies. Its name is made up at random, and no other path begins like it: so it can be looked up by whoever
/// writes a path.
struct Copies {
    /// With a slash at its end.
    root: String,
    /// Beginnings of names below it, each with a slash at its end, and the beginnings of the names that stand for them.
    origins: BTreeMap<String, String>,
}

static COPIES: RwLock<Vec<Copies>> = RwLock::new(Vec::new());

/// So many folders are kept, with all of their names; a process that brings files again and again forgets the oldest.
const MOST: usize = 256;
/// The deepest beginning of a name below a folder.
const DEEPEST: usize = 2;

/// From now on, what begins with `below` in the folder `root` is named by what begins with `origin`.
pub(crate) fn name_copies(root: &Path, below: &Path, origin: &str) {
    let mut copies = COPIES.write().unwrap_or_else(PoisonError::into_inner);
    let (root, below) = (
        format!("{}/", root.display()),
        format!("{}/", below.display()),
    );
    let at = match copies.iter().position(|known| known.root == root) {
        Some(at) => at,
        None => {
            if copies.len() == MOST {
                copies.remove(0);
            }
            copies.push(Copies {
                root,
                origins: BTreeMap::new(),
            });
            copies.len() - 1
        }
    };
    if let Some(known) = copies.get_mut(at) {
        known.origins.insert(below, origin.to_owned());
    }
}

/// A text with the names of remote files in the place of their copies' paths.
pub(crate) fn with_origins(text: &str) -> String {
    let copies = COPIES.read().unwrap_or_else(PoisonError::into_inner);
    let mut named = text.to_owned();
    for folder in copies.iter() {
        if named.contains(folder.root.as_str()) {
            named = folder.named(&named);
        }
    }
    named
}

impl Copies {
    fn named(&self, text: &str) -> String {
        let (mut rest, mut named) = (text, String::new());
        while let Some(at) = rest.find(self.root.as_str()) {
            let (before, path) = rest.split_at(at);
            named.push_str(before);
            let below = &path[self.root.len()..];
            let beginnings = below.match_indices('/').take(DEEPEST);
            let found = beginnings
                .map(|(at, _)| below.split_at(at + 1))
                .find_map(|(beginning, rest)| Some((self.origins.get(beginning)?, rest)));
            rest = match found {
                Some((origin, rest)) => {
                    named.push_str(origin);
                    rest
                }
                None => {
                    named.push_str(&self.root);
                    below
                }
            };
        }
        named.push_str(rest);
        named
    }
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
        let root = Path::new("/tmp/of-this-test-Xq3");
        name_copies(root, Path::new("s3"), "s3://");
        assert_eq!(
            with_origins(
                "can't read `/tmp/of-this-test-Xq3/s3/b/x.parquet` (/tmp/of-this-test-Xq3/s3/c): no"
            ),
            "can't read `s3://b/x.parquet` (s3://c): no"
        );
        assert_eq!(origin_of(Path::new("/tmp/other/s3/b")), "/tmp/other/s3/b");
        let unnamed = "/tmp/of-this-test-Xq3/other";
        assert_eq!(origin_of(Path::new(unnamed)), unnamed);
        // However many there are.
        for at in 0..1000 {
            name_copies(root, Path::new(&format!("{at}/https")), "https://");
        }
        for at in [0, 999] {
            let copy = root.join(format!("{at}/https/h/x.jsonl"));
            assert_eq!(origin_of(&copy), "https://h/x.jsonl");
        }
    }
}
