//! Which files are in which format: by their first document, never by their name alone.
//!
//! Files that no format claims and that are Parquet or JSON Lines are read as nightmill's own columns, with `--map` where
//! they have other names. In folders, other files that no format claims are passed over and named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::documents::{Container, container, extension, first};
use super::{FORMATS, Format, Mapping, Reader, Sample, canonical};
use crate::trace::{SourceFile, SourceFormat, TraceError};

/// What `--format` says.
#[derive(Clone, Copy, Debug, Default)]
pub enum Choice {
    /// Look at each file.
    #[default]
    Auto,
    /// Files of nightmill's own columns, of this kind alone.
    Native(SourceFormat),
    /// All files are of this format.
    Foreign(&'static Format),
}

/// A file that has to be converted.
#[derive(Clone, Debug)]
pub struct ForeignFile {
    /// Where it is.
    pub path: PathBuf,
    /// How to read it.
    pub reader: Reader,
    /// Why it is taken for that.
    pub why: String,
    pub(super) container: Container,
}

/// What the text columns of files hold that nightmill itself made of other formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeTexts {
    /// What was said.
    Said,
    /// Documents, as they were exported.
    Documents,
}

/// The files behind paths.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Files of nightmill's own columns.
    pub native: Vec<SourceFile>,
    /// Files of other formats.
    pub foreign: Vec<ForeignFile>,
    /// Files in folders that are in no format that is known.
    pub passed_over: Vec<PathBuf>,
    /// How many native files say that they hold what was said alone.
    pub said: usize,
}

impl Found {
    /// All files that are read, as they were given.
    pub fn originals(&self) -> impl Iterator<Item = &Path> {
        let native = self.native.iter().map(|file| file.path.as_path());
        native.chain(self.foreign.iter().map(|file| file.path.as_path()))
    }
}

/// Finds and recognises files; with a mapping, all are of that. `mapped` says that the user names columns: then Parquet and JSON Lines files hold those.
///
/// # Errors
/// [`TraceError::Path`] for a path that leads nowhere, or a file named on its own that is in no known format.
pub fn found(
    paths: &[String],
    choice: Choice,
    mapping: Option<&Arc<Mapping>>,
    mapped: bool,
) -> Result<Found, TraceError> {
    let mut all = Found::default();
    let native = match choice {
        Choice::Native(format) => Some(format),
        Choice::Auto | Choice::Foreign(_) => None,
    };
    let own = mapped && mapping.is_none() && !matches!(choice, Choice::Foreign(_));
    if native.is_some() || own {
        all.native = super::super::discover(paths, native)?;
        return Ok(all);
    }
    for (file, named) in super::super::discover::all_files(paths)? {
        let path = &file.path;
        let problem = |problem: String| TraceError::File {
            file: path.clone(),
            problem,
        };
        let held = match container(path) {
            Ok(Some(held)) => held,
            Ok(None) if of_native_name(path).is_some() => {
                // Readers say what is wrong with files without bytes.
                all.native.push(file);
                continue;
            }
            Ok(None) if named => return Err(problem("is empty".into())),
            Ok(None) => {
                all.passed_over.push(file.path);
                continue;
            }
            // In a folder, only files of known names are expected to be readable.
            Err(e) if named || of_native_name(path).is_some() => {
                return Err(problem(e.to_string()));
            }
            Err(_) => {
                all.passed_over.push(file.path);
                continue;
            }
        };
        let decided = match (mapping, choice) {
            (Some(mapping), _) => {
                Some((Reader::Mapped(Arc::clone(mapping)), "named with --mapping"))
            }
            (None, Choice::Foreign(format)) => Some((Reader::Known(format), "named with --format")),
            _ => None,
        };
        if let Some((reader, why)) = decided {
            all.foreign.push(ForeignFile {
                path: file.path,
                reader,
                why: why.to_owned(),
                container: held,
            });
            continue;
        }
        let sample = first(path, held);
        let claimed = match &sample {
            Ok(Some((document, columns))) => claims(path, document, columns)?,
            _ => None,
        };
        match claimed {
            Some((format, why)) => {
                all.foreign.push(ForeignFile {
                    path: file.path,
                    reader: Reader::Known(format),
                    why,
                    container: held,
                });
            }
            None if of_native_name(path).is_some() || held == Container::Parquet => {
                let texts = match held {
                    Container::Parquet => texts_of(path),
                    _ => None,
                };
                all.said += usize::from(texts == Some(NativeTexts::Said));
                all.native.push(file);
            }
            None if named => return Err(problem(unknown(&sample))),
            None => all.passed_over.push(file.path),
        }
    }
    if all.native.is_empty() && all.foreign.is_empty() {
        return Err(TraceError::Path {
            path: paths.join(", "),
            problem: format!(
                "the folder holds no .parquet or .jsonl file, and no other file in a format that is known ({}); name the \
                 format with --format if it is one of them",
                FORMATS
                    .iter()
                    .map(|format| format.name)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        });
    }
    Ok(all)
}

fn of_native_name(path: &Path) -> Option<SourceFormat> {
    SourceFormat::of_extension(path)
}

/// The one format that claims a document.
fn claims(
    path: &Path,
    document: &serde_json::Value,
    columns: &[String],
) -> Result<Option<(&'static Format, String)>, TraceError> {
    let file_name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let file_name = file_name.unwrap_or_default();
    let claim = |document: &serde_json::Value| {
        let sample = Sample {
            file_name: &file_name,
            document,
            columns,
        };
        let all = FORMATS
            .iter()
            .filter_map(|format| Some((*format, (format.recognise)(&sample)?)));
        all.collect::<Vec<_>>()
    };
    let mut found = claim(document);
    // An array may be one document, or a list of them.
    if let (true, Some(first)) = (
        found.is_empty(),
        document.as_array().and_then(|items| items.first()),
    ) {
        found = claim(first);
        found.retain(|(format, _)| format.array == super::ArrayIs::Documents);
    }
    if found.len() > 1 {
        let names: Vec<String> = found
            .iter()
            .map(|(format, why)| format!("{} ({why})", format.name))
            .collect();
        return Err(TraceError::File {
            file: path.to_owned(),
            problem: format!(
                "is more than one format at once: {}; choose with --format",
                names.join(", ")
            ),
        });
    }
    Ok(found.pop())
}

/// What is said of a file that nobody knows.
fn unknown(sample: &Result<Option<(serde_json::Value, Vec<String>)>, String>) -> String {
    let names = FORMATS
        .iter()
        .map(|format| format.name)
        .collect::<Vec<_>>()
        .join(", ");
    let (seen, keys) = match sample {
        Err(problem) => {
            return format!(
                "{problem}; expected Parquet, JSON Lines, JSON or CSV, also as .gz or .zst; name the \
                 format with --format where the name of the file does not say it"
            );
        }
        Ok(None) => ("a document that is not JSON".to_owned(), Vec::new()),
        Ok(Some((_, columns))) if !columns.is_empty() => {
            (format!("columns {}", listed(columns)), columns.clone())
        }
        Ok(Some((document, _))) => {
            let list = document.is_array();
            let inner = document
                .as_array()
                .and_then(|items| items.first())
                .unwrap_or(document);
            let keys: Vec<String> = inner
                .as_object()
                .into_iter()
                .flat_map(|m| m.keys().cloned())
                .collect();
            let of = if list {
                "a list of documents with members"
            } else {
                "a document with members"
            };
            (format!("{of} {}", listed(&keys)), keys)
        }
    };
    let nearest = FORMATS.iter().map(|format| {
        let sources = format.mapping.iter().map(|(_, source)| *source);
        let shared = keys
            .iter()
            .filter(|key| sources.clone().any(|source| mentions(source, key)))
            .count();
        (shared, format.name)
    });
    let near = nearest.max().filter(|(shared, _)| *shared > 1);
    let near = near.map_or_else(String::new, |(shared, name)| {
        format!("; nearest is {name}, which shares {shared} names")
    });
    format!(
        "no format that is known: it has {seen}{near}; name one with --format ({names}), or describe the file with --mapping"
    )
}

fn mentions(source: &str, key: &str) -> bool {
    source
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
        .any(|word| word == key)
}

fn listed(names: &[String]) -> String {
    match names.len() {
        0 => "none".into(),
        1..=20 => names.join(", "),
        more => format!("{} and {} more", names[..20].join(", "), more - 20),
    }
}

impl NativeTexts {
    /// What a Parquet file's metadata say.
    pub(in crate::trace) fn of(metadata: &parquet::file::metadata::FileMetaData) -> Option<Self> {
        let pairs = metadata.key_value_metadata()?;
        let value = pairs
            .iter()
            .find(|pair| pair.key == canonical::TEXT)?
            .value
            .as_deref()?;
        match value {
            canonical::SAID => Some(Self::Said),
            canonical::DOCUMENT => Some(Self::Documents),
            _ => None,
        }
    }
}

/// What the texts of a file hold that nightmill made.
fn texts_of(path: &Path) -> Option<NativeTexts> {
    let file = std::fs::File::open(path).ok()?;
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .ok()?;
    NativeTexts::of(metadata.file_metadata())
}

/// Whether a folder's file may be of a format: those of known extensions.
pub(in crate::trace) fn may_be_foreign(path: &Path) -> bool {
    extension(path).is_some_and(|extension| {
        matches!(
            extension.as_str(),
            "json" | "jsonl" | "ndjson" | "csv" | "traj" | "otlp"
        )
    })
}
