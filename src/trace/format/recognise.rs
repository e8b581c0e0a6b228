//! Which files are in which format: by their first document, never by their name alone.
//!
//! Files that no format claims and that are Parquet or JSON Lines are read as nightmill's own columns, with `--map` where
//! they have other names. In folders, other files that no format claims are passed over and named; those that can't be
//! read at all are damaged wherever they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::documents::{Container, First, container, extension, first};
use super::{FORMATS, Format, Mapping, Reader, Sample, canonical};
use crate::trace::{Code, Quarantine, QuarantinedRows, SourceFile, SourceFormat, TraceError};

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
    /// How many native files say that they hold exported documents.
    pub documents: usize,
    /// Files that can't be read, and why not.
    pub damaged: Vec<(PathBuf, String)>,
}

impl Found {
    /// All files that are read, as they were given.
    pub fn originals(&self) -> impl Iterator<Item = &Path> {
        let native = self.native.iter().map(|file| file.path.as_path());
        native.chain(self.foreign.iter().map(|file| file.path.as_path()))
    }

    /// Sets damaged files aside.
    pub fn set_damaged_aside(&self, quarantine: &Quarantine) {
        for (file, problem) in &self.damaged {
            quarantine.add(QuarantinedRows {
                file: file.clone(),
                first_row: 0,
                rows: 0,
                column: String::new(),
                code: Code::UnreadableFile,
                reason: problem.clone(),
            });
        }
    }

    /// Takes a file of nightmill's own columns.
    fn take_native(&mut self, file: SourceFile) {
        match texts_of(&file) {
            Some(NativeTexts::Said) => self.said += 1,
            Some(NativeTexts::Documents) => self.documents += 1,
            None => {}
        }
        self.native.push(file);
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
        for file in super::super::discover(paths, native)? {
            all.take_native(file);
        }
        if native != Some(SourceFormat::Parquet) {
            let files = super::super::discover::all_files(paths)?;
            if let Some((file, _)) = files.iter().find(|(file, _)| is_packed(&file.path)) {
                return Err(of_own(&file.path, Container::Lines));
            }
        }
        return Ok(all);
    }
    let (mut empty, mut broken, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    for (file, named) in super::super::discover::all_files(paths)? {
        let path = &file.path;
        let problem = |problem: String| TraceError::File {
            file: path.clone(),
            problem,
        };
        let held = match container(path) {
            Ok(Some(held)) => held,
            Ok(None) => {
                empty.push((file, named));
                continue;
            }
            Err(e) => {
                all.damaged.push((file.path, unpackable(&e)));
                continue;
            }
        };
        let foreign = |reader, why: String| ForeignFile {
            path: path.clone(),
            reader,
            why,
            container: held,
        };
        if let Some(mapping) = mapping {
            let reader = Reader::Mapped(Arc::clone(mapping));
            all.foreign
                .push(foreign(reader, "named with --mapping".to_owned()));
            continue;
        }
        let sample = first(path, held);
        let (document, columns) = match &sample {
            Ok(First::Document(document, columns)) => (Some(document), columns.as_slice()),
            Ok(First::Empty) => {
                empty.push((file, named));
                continue;
            }
            Ok(First::Unreadable) => (None, [].as_slice()),
            Err(_) if matches!(choice, Choice::Foreign(_)) => (None, [].as_slice()),
            // Readers of nightmill's own columns say what is wrong with Parquet files.
            Err(problem) if held == Container::Parquet || file.format == SourceFormat::Parquet => {
                broken.push((file, problem.clone()));
                continue;
            }
            Err(problem) => {
                all.damaged.push((file.path, unreadable(problem)));
                continue;
            }
        };
        if let Choice::Foreign(format) = choice {
            let other = match document {
                Some(document) => claims(path, document, columns, Some(format))?,
                None => None,
            };
            match other {
                Some((other, why)) if named => {
                    return Err(problem(format!(
                        "is in the format {}: it {why}; leave out --format {}",
                        other.name, format.name
                    )));
                }
                Some(_) => all.passed_over.push(file.path),
                None => all.foreign.push(foreign(
                    Reader::Known(format),
                    "named with --format".to_owned(),
                )),
            }
            continue;
        }
        let claimed = match document {
            Some(document) => claims(path, document, columns, None)?,
            None => None,
        };
        let own = document.is_some_and(|document| is_own(document, columns));
        let reads_own = of_native_name(path).is_some() || held == Container::Parquet;
        match claimed {
            Some((format, why)) if own && reads_own => {
                if texts_of(&file).is_none() {
                    let name = match held {
                        Container::Parquet => "parquet",
                        _ => "jsonl",
                    };
                    return Err(problem(format!(
                        "is more than one format at once: nightmill's own columns (has trace_id, started_at and texts) and \
                         {} ({why}); choose with --format {name} or --format {}",
                        format.name, format.name
                    )));
                }
                all.take_native(file);
            }
            Some((format, why)) if format.name == "langfuse-scores" => {
                scores.push(foreign(Reader::Known(format), why));
            }
            Some((format, why)) => all.foreign.push(foreign(Reader::Known(format), why)),
            None if reads_own => all.take_native(file),
            // Silently left out, they would be missing in every number.
            None if own => return Err(of_own(path, held)),
            None if named => return Err(problem(unknown(document, columns))),
            None => all.passed_over.push(file.path),
        }
    }
    // Scores beside traces are no traces; alone, their reader says what to do.
    match all.native.is_empty() && all.foreign.is_empty() {
        true => all.foreign = scores,
        false => all
            .passed_over
            .extend(scores.into_iter().map(|file| file.path)),
    }
    for (file, problem) in broken {
        match all.foreign.is_empty() {
            true => all.native.push(file),
            false => all.damaged.push((file.path, problem)),
        }
    }
    // Files without documents are no fault beside others.
    let nothing = all.native.is_empty() && all.foreign.is_empty() && all.damaged.is_empty();
    for (file, named) in empty {
        let is_native = of_native_name(&file.path).is_some();
        match (is_native && all.foreign.is_empty(), nothing && named) {
            (true, _) => all.native.push(file),
            (false, true) => {
                return Err(TraceError::File {
                    file: file.path,
                    problem: "is empty".into(),
                });
            }
            (false, false) => {}
        }
    }
    if all.native.is_empty() && all.foreign.is_empty() && all.damaged.is_empty() {
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

/// Whether a file holds JSON Lines, packed.
fn is_packed(path: &Path) -> bool {
    let lines = matches!(extension(path).as_deref(), Some("jsonl" | "ndjson"));
    lines && of_native_name(path).is_none()
}

/// Whether a document has nightmill's own columns.
fn is_own(document: &serde_json::Value, columns: &[String]) -> bool {
    let document = match document {
        serde_json::Value::Array(items) => items.first().unwrap_or(document),
        document => document,
    };
    let has =
        |name: &str| columns.iter().any(|column| column == name) || document.get(name).is_some();
    has("trace_id") && has("started_at") && (has("input") || has("output"))
}

/// What is said of own columns where they are not read from.
fn of_own(path: &Path, held: Container) -> TraceError {
    let problem = match (held, unpacking(path)) {
        // Rows are found again by their place in a file, which a packed one doesn't have.
        (Container::Lines, Some(program)) => format!(
            "has nightmill's own columns and is packed: unpack it (`{program} -d {0}`), or give it as standard input \
             (`{program} -cd {0} | nightmill … -`)",
            path.display()
        ),
        (Container::Lines, None) => {
            "has nightmill's own columns and is not named .jsonl; name it so, or say --format jsonl".into()
        }
        _ => "has nightmill's own columns, which are read from Parquet and JSON Lines; write it as one of these, or \
              describe it with --mapping"
            .into(),
    };
    TraceError::File {
        file: path.to_owned(),
        problem,
    }
}

/// The program that unpacks a file of this name.
fn unpacking(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "gz" => Some("gzip"),
        "zst" | "zstd" => Some("zstd"),
        _ => None,
    }
}

/// What is said of a file whose bytes can't be had.
fn unpackable(problem: &std::io::Error) -> String {
    unreadable(&format!("can't be read or unpacked: {problem}"))
}

fn unreadable(problem: &str) -> String {
    format!(
        "{problem}; write it again, say with --format what it is, or leave it out with --on-bad-file skip"
    )
}

/// What is wrong with a file that is taken for nightmill's own columns and can't be read.
pub fn unreadable_file(path: &Path) -> Option<String> {
    match container(path) {
        Err(e) => Some(e.to_string()),
        Ok(None) => Some("is empty".into()),
        Ok(Some(held)) => first(path, held).err(),
    }
}

fn of_native_name(path: &Path) -> Option<SourceFormat> {
    SourceFormat::of_extension(path)
}

/// The one format that claims a document; none where the wanted one is among those that do.
fn claims(
    path: &Path,
    document: &serde_json::Value,
    columns: &[String],
    wanted: Option<&'static Format>,
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
    if wanted.is_some_and(|wanted| found.iter().any(|(format, _)| format.name == wanted.name)) {
        return Ok(None);
    }
    if wanted.is_none() && found.len() > 1 {
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
fn unknown(document: Option<&serde_json::Value>, columns: &[String]) -> String {
    let names = FORMATS
        .iter()
        .map(|format| format.name)
        .collect::<Vec<_>>()
        .join(", ");
    let (seen, keys) = match document {
        None => ("documents that are not JSON".to_owned(), Vec::new()),
        Some(_) if !columns.is_empty() => {
            (format!("columns {}", listed(columns)), columns.to_vec())
        }
        Some(document) => {
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
fn texts_of(file: &SourceFile) -> Option<NativeTexts> {
    if file.format != SourceFormat::Parquet {
        return None;
    }
    let file = std::fs::File::open(&file.path).ok()?;
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
