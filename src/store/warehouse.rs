//! Tables of a warehouse, as folders: which of their files count, and which rows of those, only their logs say.

use std::path::{Path, PathBuf};

/// Whose table a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Warehouse {
    /// Delta Lake.
    Delta,
    /// Apache Iceberg.
    Iceberg,
    /// Apache Hudi.
    Hudi,
}

impl Warehouse {
    /// Whose table a local folder is; none for a plain folder.
    pub fn of(folder: &Path) -> Option<Self> {
        if folder.join("_delta_log").is_dir() {
            return Some(Self::Delta);
        }
        if folder.join(".hoodie").is_dir() {
            return Some(Self::Hudi);
        }
        let metadata = std::fs::read_dir(folder.join("metadata")).ok()?;
        let names = metadata.flatten().map(|entry| entry.file_name());
        let mut names = names.map(|name| name.to_string_lossy().into_owned());
        names
            .any(|name| is_iceberg_metadata(&name))
            .then_some(Self::Iceberg)
    }

    /// The table that a local path lies in: the path itself, or a folder above it.
    pub fn around(path: &Path) -> Option<(Self, PathBuf)> {
        let whole = path.canonicalize().ok()?;
        whole
            .ancestors()
            .find_map(|folder| Some((Self::of(folder)?, folder.to_owned())))
    }

    /// The table that a key of a bucket belongs to, if the key is of its log.
    pub(super) fn of_key(key: &str) -> Option<(Self, &str)> {
        let mut parts = std::iter::once(0).chain(key.match_indices('/').map(|(at, _)| at + 1));
        parts.find_map(|at| {
            let rest = key.get(at..)?;
            let (folder, name) = rest.split_once('/')?;
            let kind = match folder {
                "_delta_log" => Self::Delta,
                ".hoodie" => Self::Hudi,
                "metadata" if is_iceberg_metadata(name) => Self::Iceberg,
                _ => return None,
            };
            Some((kind, key.get(..at)?))
        })
    }

    /// Why such a folder is not read as a folder of files.
    pub fn problem(self) -> &'static str {
        match self {
            Self::Delta => "it is a Delta table, whose files also hold rows that are deleted",
            Self::Iceberg => {
                "it is an Iceberg table, whose files also hold rows that are deleted; Iceberg tables are not read here"
            }
            Self::Hudi => {
                "it is a Hudi table, whose files also hold rows that are replaced; Hudi tables are not read here"
            }
        }
    }

    /// What to do instead.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Delta => {
                "name the folder of the table itself (for a monitor, what `nightmill import` makes of it): its log says which rows \
                 count"
            }
            Self::Iceberg => {
                "write its rows as Parquet (DuckDB: COPY (SELECT * FROM iceberg_scan('TABLE')) TO 'rows.parquet'), and name \
                 that file"
            }
            Self::Hudi => {
                "write its rows as Parquet (Spark: spark.read.format(\"hudi\").load(TABLE).write.parquet(FOLDER)), and name \
                 that folder"
            }
        }
    }
}

/// `00001-….metadata.json`, `v3.metadata.json`, also compressed.
fn is_iceberg_metadata(name: &str) -> bool {
    !name.contains('/') && name.contains(".metadata.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_known_by_their_logs() {
        for (key, found) in [
            (
                "w/t/_delta_log/00000000000000000000.json",
                Some((Warehouse::Delta, "w/t/")),
            ),
            ("_delta_log/0.json", Some((Warehouse::Delta, ""))),
            (
                "w/i/metadata/v3.metadata.json",
                Some((Warehouse::Iceberg, "w/i/")),
            ),
            (
                "w/h/.hoodie/hoodie.properties",
                Some((Warehouse::Hudi, "w/h/")),
            ),
            ("w/metadata/traces.json", None),
            ("w/a_delta_log/x.json", None),
            ("w/_delta_log", None),
        ] {
            assert_eq!(Warehouse::of_key(key), found, "{key}");
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("i/metadata")).unwrap();
        assert_eq!(Warehouse::of(&folder.join("i")), None);
        std::fs::write(folder.join("i/metadata/00001-a.metadata.json"), "{}").unwrap();
        assert_eq!(Warehouse::of(&folder.join("i")), Some(Warehouse::Iceberg));
        std::fs::create_dir_all(folder.join("d/_delta_log")).unwrap();
        std::fs::create_dir_all(folder.join("d/date=1")).unwrap();
        let (kind, at) = Warehouse::around(&folder.join("d/date=1")).unwrap();
        assert_eq!(kind, Warehouse::Delta);
        assert!(at.ends_with("d"), "{at:?}");
    }
}
