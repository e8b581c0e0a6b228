//! From files of other formats to Parquet files of nightmill's own columns.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use rayon::prelude::*;

use super::assemble::{Assembled, Notes};
use super::canonical::{self, DOCUMENT, SAID, TEXT};
use super::documents::{self, Document};
use super::gather::Gatherer;
use super::{ForeignFile, Parts, Place, Reader};
use crate::text::{TextMode, origin_of};
use crate::trace::{
    Code, OnBadFile, Quarantine, QuarantinedRows, SourceFile, SourceFormat, TraceError,
};

/// Rows of a row group of converted traces: texts are long.
const ROWS_PER_GROUP: usize = 8192;
/// Traces written at once.
const ROWS_PER_BATCH: usize = 1024;

/// What a conversion came to.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// The file that was made, with the files that it was made of; none if no trace was found.
    pub file: Option<SourceFile>,
    /// Documents read.
    pub documents: u64,
    /// Bytes read, as stored.
    pub bytes: u64,
    /// Lines for people: how many traces and spans, and what is odd about them.
    pub lines: Vec<String>,
    /// Traces made.
    pub traces: u64,
}

/// Converts files into `target`. Documents that can't be read go to the quarantine; `work` is for what does not fit into
/// `most_bytes` of memory.
///
/// # Errors
/// [`TraceError::File`] for a file that can't be read, unless such files are passed over, and for a disk that is full.
pub fn convert(
    files: &[ForeignFile],
    target: &Path,
    work: &Path,
    mode: TextMode,
    most_bytes: usize,
    on_bad_file: OnBadFile,
    quarantine: &Quarantine,
) -> Result<Converted, TraceError> {
    let mut gatherer = Gatherer::new(work, most_bytes);
    let mut converted = Converted::default();
    let mut unknown = Unknown::default();
    for (file, stem) in files.iter().zip(stems(files)) {
        let mut read = |first: u64, portion: Vec<Document>| {
            converted.documents += portion.iter().filter(|one| !one.is_blank()).count() as u64;
            let parts = read_portion(file, &stem, first, portion, quarantine);
            parts
                .into_iter()
                .try_for_each(|parts| {
                    unknown.count(&parts.unknown);
                    gatherer.add(parts)
                })
                .map_err(|e| disk(work, &e))
        };
        let done = read_ahead(file, &mut read);
        converted.bytes += std::fs::metadata(&file.path).map_or(0, |m| m.len());
        if let Err(problem) = done {
            match on_bad_file {
                OnBadFile::Fail => {
                    return Err(TraceError::File {
                        file: file.path.clone(),
                        problem,
                    });
                }
                OnBadFile::Skip => quarantine.add(QuarantinedRows {
                    file: file.path.clone(),
                    first_row: 0,
                    rows: 0,
                    column: String::new(),
                    code: Code::UnreadableFile,
                    reason: problem,
                }),
            }
        }
    }
    let mut unmapped = Vec::new();
    for file in files {
        let Reader::Mapped(mapping) = &file.reader else {
            continue;
        };
        for (column, path) in mapping.missing().filter(|_| gatherer.has_any()) {
            let problem = format!(
                "no document has anything at `{path}`, where the mapping file says that `{column}` is"
            );
            if matches!(column, "input" | "output" | "started_at") {
                return Err(TraceError::File {
                    file: file.path.clone(),
                    problem: format!("{problem}; correct the path, or leave the column out"),
                });
            }
            unmapped.push(problem);
        }
        break; // One mapping is for all files.
    }
    let failed = |e: &dyn std::fmt::Display| TraceError::File {
        file: target.to_owned(),
        problem: format!("can't be written: {e}"),
    };
    let spilled = gatherer.spilled();
    let mut writer = writer(target, mode).map_err(|e| failed(&e))?;
    // Batches are made and written at the same time.
    let (notes, written) = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<RecordBatch>(2);
        let writing = scope.spawn(move || {
            receiver.iter().try_for_each(|batch| writer.write(&batch))?;
            writer.close()
        });
        let notes = gatherer.finish::<std::io::Error>(|traces| {
            let batches: Vec<_> = portions(&traces)
                .into_par_iter()
                .map(|portion| canonical::batch(portion, mode))
                .collect();
            for batch in batches {
                let batch = batch.map_err(std::io::Error::other)?;
                // A writer that has stopped has its own error.
                sender.send(batch).map_err(std::io::Error::other)?;
            }
            Ok(())
        });
        drop(sender);
        (notes, writing.join())
    });
    match written {
        Ok(written) => written.map_err(|e| failed(&e))?,
        Err(_) => return Err(failed(&"the writer panicked")),
    };
    let notes = notes.map_err(|e| failed(&e))?;
    converted.traces = notes.traces;
    converted.lines = lines(&notes, files, spilled);
    converted.lines.extend(unknown.line());
    converted.lines.extend(unmapped);
    converted.file = (notes.traces > 0).then(|| SourceFile {
        path: target.to_owned(),
        format: SourceFormat::Parquet,
        partition: Vec::new(),
        origins: files.iter().map(|file| file.path.clone()).collect(),
        rows: None,
    });
    Ok(converted)
}

/// Members that no column takes, and in how many places they are.
#[derive(Default)]
struct Unknown {
    by_name: BTreeMap<String, u64>,
    /// Of further names.
    others: u64,
}

impl Unknown {
    /// So many names are told apart: names may be data.
    const MOST: usize = 1000;
    /// So many are named.
    const NAMED: usize = 8;

    fn count(&mut self, names: &[String]) {
        for name in names {
            let has_room = self.by_name.len() < Self::MOST;
            match self.by_name.get_mut(name) {
                Some(count) => *count += 1,
                None if has_room => {
                    self.by_name.insert(name.clone(), 1);
                }
                None => self.others += 1,
            }
        }
    }

    fn line(&self) -> Option<String> {
        let all = self.by_name.values().sum::<u64>() + self.others;
        let mut names: Vec<(&String, &u64)> = self.by_name.iter().collect();
        names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let more = names.len() > Self::NAMED || self.others > 0;
        let named = names
            .iter()
            .take(Self::NAMED)
            .map(|(name, count)| format!("`{name}` {count}"));
        let named = named.collect::<Vec<_>>().join(", ");
        (all > 0).then(|| {
            format!(
                "{all} values of members that no column takes are left out: {named}{}",
                if more { ", …" } else { "" }
            )
        })
    }
}

fn disk(work: &Path, problem: &std::io::Error) -> String {
    format!(
        "working files in `{}` can't be written: {problem}",
        work.display()
    )
}

/// Reads the documents of a file on a thread of its own, a portion ahead of `take`.
fn read_ahead(
    file: &ForeignFile,
    take: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<(u64, Vec<Document>)>(1);
        let reading = scope.spawn(move || {
            let array = file.reader.array();
            documents::read(&file.path, file.container, array, &mut |first, portion| {
                let sent = sender.send((first, portion));
                sent.map_err(|_| "nobody takes what is read".to_owned())
            })
        });
        let taken = receiver
            .iter()
            .try_for_each(|(first, portion)| take(first, portion));
        drop(receiver);
        let read = reading
            .join()
            .unwrap_or_else(|_| Err("the file is corrupt".into()));
        taken.and(read)
    })
}

/// The facts of a portion's documents, in pieces of its order.
fn read_portion(
    file: &ForeignFile,
    stem: &str,
    first: u64,
    portion: Vec<Document>,
    quarantine: &Quarantine,
) -> Vec<Parts> {
    let pieces = (portion.len() / (4 * rayon::current_num_threads()).max(1)).max(1);
    let numbered: Vec<(u64, Document)> = (first..).zip(portion).collect();
    let mut numbered = numbered.into_iter();
    let mut chunks = Vec::new();
    loop {
        let chunk: Vec<(u64, Document)> = numbered.by_ref().take(pieces).collect();
        if chunk.is_empty() {
            break;
        }
        chunks.push(chunk);
    }
    chunks
        .into_par_iter()
        .map(|chunk| {
            let mut parts = Parts::default();
            for (row, document) in chunk {
                let name = file.reader.name();
                let before = (parts.traces.len(), parts.spans.len());
                let place = Place { stem, row };
                let read = file.reader.read(document, &place, &mut parts);
                let read = read.and_then(|()| without_id(&parts, before));
                let set_aside = |code, problem: String| {
                    quarantine.add_row(&file.path, row, "", code, format!("{name}: {problem}"));
                };
                for problem in parts.refused.drain(..) {
                    set_aside(Code::InvalidValue, problem);
                }
                if let Err(problem) = read {
                    // Nothing of a document that is half understood.
                    parts.traces.truncate(before.0);
                    parts.spans.truncate(before.1);
                    let code = match problem.contains("is not JSON") {
                        true => Code::InvalidJson,
                        false => Code::InvalidValue,
                    };
                    set_aside(code, problem);
                }
            }
            parts
        })
        .collect()
}

/// A fact that says of no trace.
fn without_id(parts: &Parts, before: (usize, usize)) -> Result<(), String> {
    let traces = parts.traces[before.0..]
        .iter()
        .any(|facts| facts.trace_id.trim().is_empty());
    let spans = parts.spans[before.1..]
        .iter()
        .any(|span| span.of.trace_id.trim().is_empty());
    match traces || spans {
        true => Err("has no trace id".into()),
        false => Ok(()),
    }
}

/// The name of each file, by which sessions without id are told apart: with a mark of its place where two files of one
/// name are read together. The place is that in a bucket, or below the folder that holds all local files of that name: a
/// folder that is moved, or a copy that lies elsewhere at every run, changes no id.
fn stems(files: &[ForeignFile]) -> Vec<String> {
    let places: Vec<Vec<String>> = files.iter().map(|file| place_of(&file.path)).collect();
    let mut of_name: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, file) in files.iter().enumerate() {
        of_name.entry(stem(&file.path)).or_default().push(at);
    }
    let mut stems = vec![String::new(); files.len()];
    for (name, same) in of_name {
        let local = same.iter().filter_map(|at| places.get(*at));
        let shared = shared(local.filter(|place| !is_remote(place)));
        for at in &same {
            let (Some(place), Some(to)) = (places.get(*at), stems.get_mut(*at)) else {
                continue;
            };
            let below = if is_remote(place) { 0 } else { shared };
            let mark = blake3::hash(place[below.min(place.len())..].join("/").as_bytes()).to_hex();
            *to = match same.len() {
                1 => name.clone(),
                _ => format!("{name}-{}", &mark[..12]),
            };
        }
    }
    stems
}

/// The parts of a file's whole path, or of the address that it came from.
fn place_of(path: &Path) -> Vec<String> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let place = origin_of(&whole);
    place.split('/').map(str::to_owned).collect()
}

fn is_remote(place: &[String]) -> bool {
    place.first().is_some_and(|scheme| scheme.ends_with(':'))
}

/// How many folders paths have in common.
fn shared<'p>(places: impl Iterator<Item = &'p Vec<String>>) -> usize {
    let mut common: Option<Vec<String>> = None;
    for place in places {
        let folder = &place[..place.len().saturating_sub(1)];
        common = Some(match common {
            None => folder.to_vec(),
            Some(known) => {
                let pairs = known.into_iter().zip(folder);
                let same = pairs.take_while(|(a, b)| a == *b);
                same.map(|(a, _)| a).collect()
            }
        });
    }
    common.map_or(0, |common| common.len())
}

fn stem(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn writer(
    target: &Path,
    mode: TextMode,
) -> Result<ArrowWriter<BufWriter<File>>, Box<dyn std::error::Error>> {
    let held = match mode {
        TextMode::Content => SAID,
        TextMode::Compat => DOCUMENT,
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
        .set_created_by(concat!("nightmill ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(TEXT.to_owned(), held.to_owned())]))
        .build();
    let file = BufWriter::with_capacity(1 << 20, File::create(target)?);
    Ok(ArrowWriter::try_new(
        file,
        canonical::schema(mode),
        Some(properties),
    )?)
}

/// Cuts traces into batches, also by their bytes: Arrow's texts end at 2 GiB a batch.
fn portions(traces: &[Assembled]) -> Vec<&[Assembled]> {
    let bytes = |trace: &Assembled| {
        let of = |payload: &Option<super::Payload>| payload.as_ref().map_or(0, |p| p.raw.len());
        let spans = trace
            .spans
            .iter()
            .map(|span| of(&span.input) + of(&span.output) + 256);
        of(&trace.facts.input) + of(&trace.facts.output) + spans.sum::<usize>()
    };
    let (mut all, mut start, mut size) = (Vec::new(), 0, 0);
    for (at, trace) in traces.iter().enumerate() {
        let own = bytes(trace);
        if at > start && (at - start == ROWS_PER_BATCH || size + own > 256 << 20) {
            all.push(&traces[start..at]);
            (start, size) = (at, 0);
        }
        size += own;
    }
    if start < traces.len() {
        all.push(&traces[start..]);
    }
    all
}

fn lines(notes: &Notes, files: &[ForeignFile], spilled: bool) -> Vec<String> {
    let mut formats: Vec<(&str, u64)> = Vec::new();
    for file in files {
        match formats
            .iter_mut()
            .find(|(title, _)| *title == file.reader.title())
        {
            Some((_, count)) => *count += 1,
            None => formats.push((file.reader.title(), 1)),
        }
    }
    let of: Vec<String> = formats
        .iter()
        .map(|(title, count)| format!("{count} of {title}"))
        .collect();
    let mut lines = vec![format!(
        "{} traces, {} spans, {} tool calls; files: {}",
        notes.traces,
        notes.spans,
        notes.tool_calls,
        of.join(", ")
    )];
    for (count, what) in [
        (
            notes.without_session,
            "traces belong to no session: each stands alone",
        ),
        (
            notes.without_time,
            "traces carry no time: they are in the order of their turns, with times counted from 1970",
        ),
        (
            notes.without_order,
            "traces carry neither a time nor a turn: they are in the order of their ids, with the first moment of 1970 as time",
        ),
        (
            notes.without_start,
            "traces do not say when they began: their end stands for it",
        ),
        (
            notes.odd_counts,
            "counts of tokens are no whole numbers and are left out",
        ),
        (
            notes.odd_costs,
            "costs, or sums of costs, are beyond all numbers and are left out",
        ),
        (
            notes.without_root,
            "traces lack their root span: the first of their other spans stands for it",
        ),
        (notes.orphans, "spans have a parent that is not there"),
        (
            notes.repeated_spans,
            "spans were exported more than once and are one",
        ),
        (
            notes.skewed,
            "times of an end were before their start and are left out",
        ),
        (
            notes.calls_of_messages,
            "tool calls come from messages: the trace has no span of that tool",
        ),
        (notes.without_input, "traces have no input"),
        (notes.without_output, "traces have no output"),
    ] {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    }
    if notes.several_projects > 0 {
        let more = notes.several_projects - notes.of_several_projects.len() as u64;
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        lines.push(format!(
            "{} traces have spans of several projects and are one: {}{more}; where projects share ids, import each project \
             alone",
            notes.several_projects,
            notes.of_several_projects.join(", ")
        ));
    }
    if spilled {
        lines.push("spans did not fit into memory and went over the disk".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Reader;
    use super::super::documents::Container;
    use super::*;

    fn stems_of(paths: &[&str]) -> Vec<String> {
        let files: Vec<ForeignFile> = paths
            .iter()
            .map(|path| ForeignFile {
                path: PathBuf::from(path),
                container: Container::Lines,
                reader: Reader::Known(super::super::FORMATS[0]),
                why: String::new(),
            })
            .collect();
        stems(&files)
    }

    #[test]
    fn a_file_is_named_by_its_place_below_what_is_read() {
        let here = stems_of(&[
            "/a/logs/x/log.jsonl",
            "/a/logs/y/log.jsonl",
            "/a/other.jsonl",
        ]);
        assert_eq!(here[2], "other");
        assert!(
            here[0].starts_with("log-") && here[0] != here[1],
            "{here:?}"
        );
        let moved = stems_of(&["/b/c/x/log.jsonl", "/b/c/y/log.jsonl", "/b/other.jsonl"]);
        assert_eq!(here, moved);
        // Two files of one folder, and of one name but for its ending, too.
        let beside = stems_of(&["/a/log.1.jsonl", "/a/log.2.jsonl"]);
        assert!(beside[0] != beside[1], "{beside:?}");
        let copies = |root: &str| {
            crate::text::name_copies(Path::new(root), Path::new("s3"), "s3://");
            let paths = ["x", "y"].map(|of| format!("{root}/s3/b/{of}/log.jsonl"));
            stems_of(&paths.each_ref().map(String::as_str))
        };
        assert_eq!(copies("/tmp/of-stems-Aa1"), copies("/tmp/of-stems-Bb2"));
    }

    #[test]
    fn what_no_column_takes_is_counted() {
        let mut unknown = Unknown::default();
        assert_eq!(unknown.line(), None);
        unknown.count(&["b".into(), "a".into(), "b".into()]);
        assert_eq!(
            unknown.line().unwrap(),
            "3 values of members that no column takes are left out: `b` 2, `a` 1"
        );
    }
}
