//! Facts by trace, in bounded memory: spans of one trace may be anywhere in any file. Facts are dealt to partitions by a
//! hash of their trace; when they are too many for the memory, all partitions go to disk, and each comes back alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::assemble::{Assembled, Notes, assemble};
use super::parts::{Parts, Payload, SpanFacts, TraceFacts};

const PARTITIONS: usize = 256;

/// A fact on disk.
#[derive(Serialize, Deserialize)]
enum Fact {
    Trace(Box<TraceFacts>),
    Span(Box<SpanFacts>),
}

#[derive(Default)]
struct Partition {
    traces: Vec<TraceFacts>,
    spans: Vec<SpanFacts>,
    file: Option<BufWriter<File>>,
}

/// Collects facts and gives traces back.
pub(super) struct Gatherer {
    partitions: Vec<Partition>,
    folder: PathBuf,
    bytes: usize,
    most_bytes: usize,
    spilled: bool,
}

impl Gatherer {
    /// Keeps facts of about `most_bytes` in memory, more in files under `folder`.
    pub fn new(folder: &Path, most_bytes: usize) -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            folder: folder.to_owned(),
            bytes: 0,
            most_bytes,
            spilled: false,
        }
    }

    /// Whether there are any facts.
    pub fn has_any(&self) -> bool {
        self.spilled || self.bytes > 0
    }

    /// Whether facts went to disk.
    pub fn spilled(&self) -> bool {
        self.spilled
    }

    /// Takes facts. A fact without trace id is refused.
    ///
    /// # Errors
    /// If the disk can't be written to.
    pub fn add(&mut self, mut parts: Parts) -> std::io::Result<()> {
        parts.leave_out_odd_costs();
        for facts in parts.traces {
            self.bytes += bytes_of_trace(&facts);
            self.partitions[partition_of(&facts.trace_id)]
                .traces
                .push(facts);
        }
        for span in parts.spans {
            self.bytes += bytes_of_span(&span);
            self.partitions[partition_of(&span.of.trace_id)]
                .spans
                .push(span);
        }
        if self.bytes > self.most_bytes {
            self.spill()?;
        }
        Ok(())
    }

    fn spill(&mut self) -> std::io::Result<()> {
        self.spilled = true;
        self.bytes = 0;
        let folder = &self.folder;
        let partitions = self.partitions.par_iter_mut().enumerate();
        partitions.try_for_each(|(at, partition)| partition.spill(&path_of(folder, at)))
    }

    /// Gives every trace to `each`: by partition, there by id. Any order of facts gives the same order of traces.
    ///
    /// # Errors
    /// If the disk can't be read from, or as `each` says.
    pub fn finish<E: From<std::io::Error>>(
        mut self,
        mut each: impl FnMut(Vec<Assembled>) -> Result<(), E>,
    ) -> Result<Notes, E> {
        if self.spilled {
            self.spill()?;
        }
        let mut notes = Notes::default();
        let mut partitions = std::mem::take(&mut self.partitions).into_iter().enumerate();
        loop {
            // A few at a time: what is assembled of them is in memory at once.
            let some: Vec<(usize, Partition)> = partitions
                .by_ref()
                .take(rayon::current_num_threads().max(1))
                .collect();
            if some.is_empty() {
                return Ok(notes);
            }
            let found: Vec<std::io::Result<Vec<(Assembled, Notes)>>> = some
                .into_par_iter()
                .map(|(at, partition)| partition.traces(&path_of(&self.folder, at)))
                .collect();
            for found in found {
                let mut assembled = Vec::new();
                for (trace, of_trace) in found? {
                    notes.add(of_trace);
                    assembled.push(trace);
                }
                if !assembled.is_empty() {
                    each(assembled)?;
                }
            }
        }
    }
}

/// Where the facts of a partition are on disk.
fn path_of(folder: &Path, partition: usize) -> PathBuf {
    folder.join(format!("spans-{partition:03}.jsonl"))
}

impl Partition {
    /// Writes its facts to a file, behind those that are there.
    fn spill(&mut self, path: &Path) -> std::io::Result<()> {
        if self.traces.is_empty() && self.spans.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self
                .file
                .insert(BufWriter::with_capacity(1 << 16, File::create(path)?)),
        };
        let traces = std::mem::take(&mut self.traces).into_iter();
        let spans = std::mem::take(&mut self.spans).into_iter();
        let traces = traces.map(|facts| Fact::Trace(Box::new(facts)));
        for fact in traces.chain(spans.map(|span| Fact::Span(Box::new(span)))) {
            serde_json::to_writer(&mut *file, &fact)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Its traces by id; its file is gone then.
    fn traces(mut self, path: &Path) -> std::io::Result<Vec<(Assembled, Notes)>> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
            drop(file);
            let mut read = BufReader::with_capacity(1 << 20, File::open(path)?);
            let mut line = Vec::new();
            while read.read_until(b'\n', &mut line)? > 0 {
                match serde_json::from_slice(&line).map_err(std::io::Error::other)? {
                    Fact::Trace(facts) => self.traces.push(*facts),
                    Fact::Span(span) => self.spans.push(*span),
                }
                line.clear();
            }
            std::fs::remove_file(path)?;
        }
        let mut by_trace: BTreeMap<String, (Vec<TraceFacts>, Vec<SpanFacts>)> = BTreeMap::new();
        for facts in self.traces {
            let (records, _) = by_trace.entry(facts.trace_id.clone()).or_default();
            records.push(facts);
        }
        for span in self.spans {
            let (_, spans) = by_trace.entry(span.of.trace_id.clone()).or_default();
            spans.push(span);
        }
        let all = by_trace.into_values();
        Ok(all
            .map(|(records, spans)| assemble(records, spans))
            .collect())
    }
}

fn partition_of(trace_id: &str) -> usize {
    usize::from(blake3::hash(trace_id.as_bytes()).as_bytes()[0])
}

fn bytes_of_payload(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |p| p.raw.len() + p.said.as_ref().map_or(0, String::len))
}

fn bytes_of_trace(facts: &TraceFacts) -> usize {
    let payloads = [&facts.input, &facts.output, &facts.expected];
    size_of::<TraceFacts>()
        + payloads
            .iter()
            .map(|p| bytes_of_payload(p.as_ref()))
            .sum::<usize>()
        + 200 * facts.metadata.len()
        + facts.trace_id.len()
}

fn bytes_of_span(span: &SpanFacts) -> usize {
    let calls = span.calls.iter().map(|call| {
        size_of_val(call)
            + bytes_of_payload(call.arguments.as_ref())
            + bytes_of_payload(call.result.as_ref())
    });
    size_of::<SpanFacts>()
        + bytes_of_trace(&span.of)
        + bytes_of_payload(span.input.as_ref())
        + bytes_of_payload(span.output.as_ref())
        + calls.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(trace: usize, span: usize) -> Parts {
        let mut parts = Parts::default();
        parts.span(SpanFacts {
            of: TraceFacts {
                trace_id: format!("t{trace}"),
                ..TraceFacts::default()
            },
            span_id: format!("s{span}"),
            started_at: Some(span as i64 + 1),
            output: Some(Payload::text("x".repeat(span))),
            ..SpanFacts::default()
        });
        parts
    }

    fn gathered(most_bytes: usize, backwards: bool) -> (Vec<Assembled>, Notes) {
        let folder = tempfile::tempdir().unwrap();
        let mut gatherer = Gatherer::new(folder.path(), most_bytes);
        let mut all: Vec<(usize, usize)> = (0..20)
            .flat_map(|span| (0..50).map(move |trace| (trace, span)))
            .collect();
        if backwards {
            all.reverse();
        }
        for (trace, span) in all {
            gatherer.add(parts(trace, span)).unwrap();
        }
        assert_eq!(gatherer.spilled(), most_bytes < 1 << 20);
        let mut found = Vec::new();
        let notes = gatherer.finish::<std::io::Error>(|traces| {
            found.extend(traces);
            Ok(())
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        (found, notes.unwrap())
    }

    #[test]
    fn disk_and_order_change_nothing() {
        let expected = gathered(1 << 30, false);
        assert_eq!((expected.1.traces, expected.1.spans), (50, 1000));
        assert_eq!(gathered(10_000, false), expected);
        assert_eq!(gathered(10_000, true), expected);
    }
}
