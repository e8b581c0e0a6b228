//! From paths on the command line to the files to read.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::GlobBuilder;
use walkdir::WalkDir;

use super::TraceError;
use super::format::may_be_foreign;
use crate::store::Warehouse;

/// How a file's bytes are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// Apache Parquet.
    Parquet,
    /// One JSON object a line.
    JsonLines,
}

impl SourceFormat {
    pub(super) fn of_extension(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "parquet" | "parq" | "pq" => Some(Self::Parquet),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// How to read it.
    pub format: SourceFormat,
    /// Values that its folders' names carry (`date=2026-11-20`), outermost first.
    pub partition: Vec<(String, String)>,
    /// The files that it was made of; none if it is what was given.
    pub origins: Vec<PathBuf>,
    /// The rows to read, ascending; none reads all.
    pub rows: Option<Arc<Vec<u64>>>,
}

impl SourceFile {
    /// What was given: the file itself, or the files that it was made of.
    pub fn given(&self) -> &[PathBuf] {
        match self.origins.as_slice() {
            [] => std::slice::from_ref(&self.path),
            origins => origins,
        }
    }
}

/// Finds the files behind `paths` (files, folders, globs), sorted by path; a file named twice is
/// read once. In folders, hidden files and names that begin with `_` are passed over, as the
/// writers of such folders intend. `format` overrides what names and first bytes say.
///
/// # Errors
/// [`TraceError::Path`] for a path that leads nowhere or can't be read.
pub fn discover(
    paths: &[String],
    format: Option<SourceFormat>,
) -> Result<Vec<SourceFile>, TraceError> {
    let mut found: BTreeMap<PathBuf, SourceFile> = BTreeMap::new();
    for given in paths {
        let path = Path::new(given);
        let files = if path.is_dir() {
            in_folder(given, path, format)?
        } else if is_glob(given) && !path.exists() {
            matching(given, format)?
        } else {
            vec![single(given, path, format)?]
        };
        for file in files {
            let whole = file.path.canonicalize().map_err(|e| failed(given, e))?;
            found.entry(whole).or_insert(file);
        }
    }
    // In the order of the files' real paths: how a path was spelled changes nothing.
    Ok(found.into_values().collect())
}

/// All files behind `paths` that may hold traces in any format, sorted by path, and whether each was named on its own (or by
/// a glob) rather than found in a folder. Their `format` is what name and first bytes say, JSON Lines if nothing does.
///
/// # Errors
/// [`TraceError::Path`] for a path that leads nowhere or can't be read.
pub(super) fn all_files(paths: &[String]) -> Result<Vec<(SourceFile, bool)>, TraceError> {
    let mut found: BTreeMap<PathBuf, (SourceFile, bool)> = BTreeMap::new();
    let mut add = |given: &str, path: &Path, named: bool| {
        let file = SourceFile {
            path: path.to_owned(),
            format: format_of(path).map_err(|e| failed(given, e))?,
            partition: partition_of(path),
            origins: Vec::new(),
            rows: None,
        };
        let whole = path.canonicalize().map_err(|e| failed(given, e))?;
        found.entry(whole).or_insert((file, named)).1 |= named;
        Ok::<(), TraceError>(())
    };
    for given in paths {
        let path = Path::new(given);
        if path.is_dir() {
            for file in walked(given, path)? {
                add(given, &file, false)?;
            }
        } else if is_glob(given) && !path.exists() {
            let (matched, folders) = globbed(given)?;
            for file in matched {
                add(given, &file, true)?;
            }
            for folder in folders {
                for file in walked(given, &folder)? {
                    add(given, &file, false)?;
                }
            }
        } else {
            let kind = std::fs::metadata(path).map_err(|e| failed(given, e))?;
            if !kind.is_file() {
                return Err(failed(given, "neither a file nor a folder"));
            }
            add(given, path, true)?;
        }
    }
    Ok(found.into_values().collect())
}

/// Files of a folder that may hold traces.
fn walked(given: &str, folder: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let mut files = Vec::new();
    for entry in visible_entries(given, folder) {
        let entry = entry?;
        let path = entry.path();
        let known = SourceFormat::of_extension(path).is_some() || may_be_foreign(path);
        if entry.file_type().is_file() && known {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

/// The files of a warehouse table are not its rows: some are deleted, or of an earlier state.
fn refuse_table(given: &str, kind: Warehouse, folder: &Path) -> TraceError {
    let problem = format!(
        "`{}`: {}; {}",
        folder.display(),
        kind.problem(),
        kind.advice()
    );
    failed(given, problem)
}

/// What name and first bytes say; JSON Lines if they say nothing.
fn format_of(path: &Path) -> std::io::Result<SourceFormat> {
    if let Some(format) = SourceFormat::of_extension(path) {
        return Ok(format);
    }
    let mut first = [0u8; 4];
    let count = std::fs::File::open(path)?.read(&mut first)?;
    Ok(match first[..count] == *b"PAR1" {
        true => SourceFormat::Parquet,
        false => SourceFormat::JsonLines,
    })
}

fn failed(given: &str, problem: impl ToString) -> TraceError {
    TraceError::Path {
        path: given.to_owned(),
        problem: problem.to_string(),
    }
}

fn is_glob(given: &str) -> bool {
    given.contains(['*', '?', '[', '{'])
}

fn single(
    given: &str,
    path: &Path,
    format: Option<SourceFormat>,
) -> Result<SourceFile, TraceError> {
    // Opening a pipe waits for a writer, who may never come.
    let kind = std::fs::metadata(path).map_err(|e| failed(given, e))?;
    if !kind.is_file() {
        return Err(failed(given, "neither a file nor a folder"));
    }
    let mut first = [0u8; 4];
    let count = std::fs::File::open(path)
        .and_then(|mut file| file.read(&mut first))
        .map_err(|e| failed(given, e))?;
    let sniffed = (first[..count] == *b"PAR1").then_some(SourceFormat::Parquet);
    let format = format.or_else(|| SourceFormat::of_extension(path)).or(sniffed).ok_or_else(|| {
        failed(given, "neither a .parquet nor a .jsonl file; say which with --format parquet or --format jsonl")
    })?;
    Ok(SourceFile {
        path: path.to_owned(),
        format,
        partition: partition_of(path),
        origins: Vec::new(),
        rows: None,
    })
}

/// What is in a folder and below, without hidden names and those that begin with `_`. No table of a warehouse, and no part
/// of one.
fn visible_entries<'f>(
    given: &'f str,
    folder: &'f Path,
) -> impl Iterator<Item = Result<walkdir::DirEntry, TraceError>> + 'f {
    let around = Warehouse::around(folder).map(|(kind, table)| refuse_table(given, kind, &table));
    let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name();
    let visible = walk.into_iter().filter_entry(|entry| {
        entry.depth() == 0 || !entry.file_name().to_string_lossy().starts_with(['.', '_'])
    });
    let entries = visible.map(move |entry| {
        let entry = entry.map_err(|e| failed(given, e))?;
        match Warehouse::of(entry.path()).filter(|_| entry.file_type().is_dir()) {
            Some(kind) => Err(refuse_table(given, kind, entry.path())),
            None => Ok(entry),
        }
    });
    around.map(Err).into_iter().chain(entries)
}

fn in_folder(
    given: &str,
    folder: &Path,
    format: Option<SourceFormat>,
) -> Result<Vec<SourceFile>, TraceError> {
    let mut files = Vec::new();
    for entry in visible_entries(given, folder) {
        let entry = entry?;
        let known = SourceFormat::of_extension(entry.path());
        if let (true, Some(known)) = (entry.file_type().is_file(), known)
            && format.is_none_or(|wanted| wanted == known)
        {
            let partition = partition_of(entry.path());
            files.push(SourceFile {
                path: entry.into_path(),
                format: known,
                partition,
                origins: Vec::new(),
                rows: None,
            });
        }
    }
    if files.is_empty() {
        return Err(failed(given, "the folder holds no .parquet or .jsonl file"));
    }
    Ok(files)
}

fn matching(given: &str, format: Option<SourceFormat>) -> Result<Vec<SourceFile>, TraceError> {
    let (matched, folders) = globbed(given)?;
    let mut files = Vec::new();
    for folder in folders {
        files.extend(in_folder(given, &folder, format)?);
    }
    for path in matched {
        files.push(single(&path.to_string_lossy(), &path, format)?);
    }
    Ok(files)
}

/// The files and folders that a glob matches; one of both at least.
fn globbed(given: &str) -> Result<(Vec<PathBuf>, Vec<PathBuf>), TraceError> {
    // `./x`, `x//y` and `x/./y` are spellings of what the walk calls `x` and `x/y`.
    let pattern: PathBuf = Path::new(given)
        .components()
        .filter(|c| *c != std::path::Component::CurDir)
        .collect();
    let pattern = pattern.to_string_lossy().into_owned();
    let glob = GlobBuilder::new(&pattern)
        .literal_separator(true)
        .build()
        .map_err(|e| failed(given, format!("not a usable glob: {e}")))?
        .compile_matcher();
    // Walk from the last folder before the first wildcard.
    let mut base: PathBuf = Path::new(&pattern)
        .components()
        .take_while(|part| !is_glob(&part.as_os_str().to_string_lossy()))
        .collect();
    if base.as_os_str().is_empty() {
        base = PathBuf::from(".");
    }
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    // The folder that is known to be of no table.
    let mut checked = None;
    for entry in WalkDir::new(&base).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|e| failed(given, e))?;
        let path = entry.path();
        let path = if base == Path::new(".") {
            path.strip_prefix(".").unwrap_or(path)
        } else {
            path
        };
        if !glob.is_match(path) {
            continue;
        }
        if entry.file_type().is_dir() {
            folders.push(entry.path().to_owned());
        } else if entry.file_type().is_file() {
            let parent = path.parent().unwrap_or(Path::new("")).to_owned();
            if checked.as_ref() != Some(&parent) {
                let from = entry.path().parent().unwrap_or(entry.path());
                if let Some((kind, table)) = Warehouse::around(from) {
                    return Err(refuse_table(given, kind, &table));
                }
                checked = Some(parent);
            }
            files.push(path.to_owned());
        }
    }
    match files.is_empty() && folders.is_empty() {
        true => Err(failed(given, "no file matches this glob")),
        false => Ok((files, folders)),
    }
}

/// The values in a path's folder names, Hive style.
fn partition_of(path: &Path) -> Vec<(String, String)> {
    path.parent()
        .into_iter()
        .flat_map(Path::components)
        .filter_map(|part| {
            let (key, value) = part.as_os_str().to_str()?.split_once('=')?;
            let is_null = value.is_empty() || value == "__HIVE_DEFAULT_PARTITION__";
            (!key.is_empty() && !is_null).then(|| (key.to_owned(), percent_decoded(value)))
        })
        .collect()
}

fn percent_decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|d| std::str::from_utf8(d).ok());
        match (byte, digits.and_then(|d| u8::from_str_radix(d, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[SourceFile], root: &Path) -> Vec<String> {
        files
            .iter()
            .map(|f| f.path.strip_prefix(root).unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn folders_globs_and_files_are_found_once_and_sorted() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for file in [
            "b/x.parquet",
            "a/date=2026-11-20/p.parquet",
            "a/_SUCCESS.parquet",
            "a/.part.parquet",
            "a/n.txt",
            "c.jsonl",
        ] {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "PAR1").unwrap();
        }
        let at = |p: &str| root.join(p).display().to_string();
        let all = discover(&[at(""), at("b/x.parquet"), at("*/x.parquet")], None).unwrap();
        assert_eq!(
            names(&all, root),
            ["a/date=2026-11-20/p.parquet", "b/x.parquet", "c.jsonl"]
        );
        assert_eq!(
            all[0].partition,
            [("date".to_owned(), "2026-11-20".to_owned())]
        );
        assert_eq!(
            names(&discover(&[at("**/*.parquet")], None).unwrap(), root).len(),
            4,
            "a glob takes what it names"
        );
        assert_eq!(
            discover(&[at("a/n.txt")], None).unwrap()[0].format,
            SourceFormat::Parquet,
            "first bytes decide"
        );
        std::fs::create_dir_all(root.join("a/_delta_log")).unwrap();
        for given in ["", "a", "a/date=2026-11-20", "a/*/*.parquet", "*"] {
            let refused = discover(&[at(given)], None).unwrap_err();
            assert!(refused.to_string().contains("Delta table"), "{refused}");
        }
        let named = at("a/date=2026-11-20/p.parquet");
        assert_eq!(discover(&[named], None).unwrap().len(), 1);
        std::fs::create_dir_all(root.join("b/metadata")).unwrap();
        std::fs::write(root.join("b/metadata/v1.metadata.json"), "{}").unwrap();
        let refused = discover(&[at("b")], None).unwrap_err().to_string();
        assert!(
            refused.contains("Iceberg") && refused.contains("write its rows as Parquet"),
            "{refused}"
        );
        for nowhere in ["none", "b/*.jsonl", "empty"] {
            std::fs::create_dir_all(root.join("empty")).unwrap();
            assert!(
                matches!(discover(&[at(nowhere)], None), Err(TraceError::Path { .. })),
                "{nowhere}"
            );
        }
    }
}
