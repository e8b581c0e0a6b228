//! Where the configuration is.

use std::path::{Path, PathBuf};

/// Names of configurations, the first of a folder wins: ours, then Regtrace's.
pub const CONFIG_NAMES: [&str; 4] = [
    "nightmill-suite.yaml",
    "nightmill-suite.yml",
    "regtrace.config.yaml",
    "regtrace.config.yml",
];

/// The configuration of `folder` or of the nearest folder above it that has one.
pub fn find_config(folder: &Path) -> Option<PathBuf> {
    // A relative folder has no folders above it.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.ancestors().find_map(|folder| {
        let mut paths = CONFIG_NAMES.iter().map(|name| folder.join(name));
        paths.find(|path| path.is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_wins_and_our_name_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let upper = root.path().join("regtrace.config.yaml");
        std::fs::write(&upper, "").unwrap();
        assert_eq!(find_config(&deep), Some(upper));
        let near = root.path().join("a/regtrace.config.yml");
        std::fs::write(&near, "").unwrap();
        assert_eq!(find_config(&deep), Some(near));
        let own = root.path().join("a/nightmill-suite.yaml");
        std::fs::write(&own, "").unwrap();
        assert_eq!(find_config(&deep), Some(own));
    }
}
