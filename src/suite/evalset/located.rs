//! Which evaluation sets a path names.

use std::path::PathBuf;

/// The folder of an application's files, the application, and the ids of the sets that a path names: a set's file, the
/// folder of an application, or the folder above it with one application.
pub fn located(path: &std::path::Path) -> Option<(PathBuf, String, Vec<String>)> {
    const SUFFIX: &str = ".evalset.json";
    let name = |path: &std::path::Path| Some(path.file_name()?.to_str()?.to_owned());
    let above = |path: &std::path::Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("."),
    };
    if path.is_file() {
        let id = name(path)?.strip_suffix(SUFFIX)?.to_owned();
        let folder = path.canonicalize().ok()?.parent()?.to_owned();
        return Some((above(&folder), name(&folder)?, vec![id]));
    }
    let sets_in = |folder: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<String> = names
            .filter_map(|name| Some(name.strip_suffix(SUFFIX)?.to_owned()))
            .collect();
        ids.sort();
        ids
    };
    let own = sets_in(path);
    if !own.is_empty() {
        let folder = path.canonicalize().ok()?;
        return Some((above(&folder), name(&folder)?, own));
    }
    let entries = std::fs::read_dir(path).ok()?.flatten();
    let mut apps: Vec<(String, Vec<String>)> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().ok()?,
                sets_in(&entry.path()),
            ))
        })
        .filter(|(_, sets)| !sets.is_empty())
        .collect();
    apps.sort();
    match apps.len() {
        1 => apps.pop().map(|(app, sets)| (path.to_owned(), app, sets)),
        _ => None,
    }
}
