//! Documents set aside on disk, each with a number, to be read again in any order.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};

use super::TraceError;

/// Bytes that wait to be written.
const BUFFER: usize = 1 << 18;

/// A file without a name: it vanishes with the process. A record is the length of the members, the number,
/// and the members.
#[derive(Debug)]
pub(crate) struct KeptDocuments {
    file: File,
    folder: PathBuf,
    written: u64,
    waiting: Vec<u8>,
}

/// Bytes before the members: length and number.
const HEAD: usize = 12;

impl KeptDocuments {
    /// An empty file in a folder.
    ///
    /// # Errors
    /// [`TraceError`] if it can't be made.
    pub fn create(folder: &Path) -> Result<Self, TraceError> {
        Ok(Self {
            file: tempfile::tempfile_in(folder).map_err(|e| failed(folder, e))?,
            folder: folder.to_owned(),
            written: 0,
            waiting: Vec::new(),
        })
    }

    /// Adds a document with a number, and says where it is.
    ///
    /// # Errors
    /// [`TraceError`] if the disk can't take it.
    pub fn push(&mut self, number: u64, members: &Map<String, Value>) -> Result<u64, TraceError> {
        let begin = self.waiting.len();
        let place = self.written + begin as u64;
        self.waiting.extend([0; 4]);
        self.waiting.extend(number.to_le_bytes());
        put_members(members, &mut self.waiting);
        let length = self.waiting.len() - begin - HEAD;
        let length = u32::try_from(length)
            .map_err(|_| failed(&self.folder, "a trace of more than 4 GiB can't be kept"))?;
        self.waiting[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        if self.waiting.len() >= BUFFER {
            self.flush()?;
        }
        Ok(place)
    }

    /// Writes what waits. Only then can all of it be read.
    ///
    /// # Errors
    /// [`TraceError`] if the disk can't take it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.file
            .write_all_at(&self.waiting, self.written)
            .map_err(|e| failed(&self.folder, e))?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// The number and the document at a place.
    ///
    /// # Errors
    /// [`TraceError`] if they can't be read.
    pub fn read(&self, place: u64) -> Result<(u64, Map<String, Value>), TraceError> {
        let mut head = [0; HEAD];
        let failed = |e| failed(&self.folder, e);
        self.file.read_exact_at(&mut head, place).map_err(failed)?;
        let (length, number) = in_head(head);
        let mut bytes = vec![0; length];
        let from = place + HEAD as u64;
        self.file.read_exact_at(&mut bytes, from).map_err(failed)?;
        Ok((number, self.members(&bytes)?))
    }

    /// All documents, in the order in which they were added.
    ///
    /// # Errors
    /// [`TraceError`] if they can't be read.
    pub fn scan(&self, mut each: impl FnMut(u64, Map<String, Value>)) -> Result<(), TraceError> {
        let failed = |e: std::io::Error| failed(&self.folder, e);
        let mut file = self.file.try_clone().map_err(failed)?;
        file.rewind().map_err(failed)?;
        let mut reader = BufReader::with_capacity(BUFFER, file).take(self.written);
        let mut bytes = Vec::new();
        while reader.limit() > 0 {
            let mut head = [0; HEAD];
            reader.read_exact(&mut head).map_err(failed)?;
            let (length, number) = in_head(head);
            bytes.resize(length, 0);
            reader.read_exact(&mut bytes).map_err(failed)?;
            each(number, self.members(&bytes)?);
        }
        Ok(())
    }

    fn members(&self, bytes: &[u8]) -> Result<Map<String, Value>, TraceError> {
        let mut rest = bytes;
        take_members(&mut rest).ok_or_else(|| failed(&self.folder, "a kept document is broken"))
    }
}

/// The length of the members, and the number.
fn in_head(head: [u8; HEAD]) -> (usize, u64) {
    let [a, b, c, d, number @ ..] = head;
    let length = u32::from_le_bytes([a, b, c, d]);
    (length as usize, u64::from_le_bytes(number))
}

fn failed(folder: &Path, problem: impl std::fmt::Display) -> TraceError {
    TraceError::Kept {
        folder: folder.to_owned(),
        problem: format!("documents can't be kept there: {problem}"),
    }
}

/// A value as a byte that says what it is, and what it holds: JSON text would have to be escaped, and has a depth beyond
/// which it is not read again.
fn put(value: &Value, into: &mut Vec<u8>) {
    match value {
        Value::Null => into.push(b'n'),
        Value::Bool(false) => into.push(b'f'),
        Value::Bool(true) => into.push(b't'),
        Value::Number(number) => {
            into.push(b'0');
            put_text(&number.to_string(), into);
        }
        Value::String(text) => {
            into.push(b'"');
            put_text(text, into);
        }
        Value::Array(items) => {
            into.push(b'[');
            put_length(items.len(), into);
            items.iter().for_each(|item| put(item, into));
        }
        Value::Object(members) => {
            into.push(b'{');
            put_members(members, into);
        }
    }
}

fn put_members(members: &Map<String, Value>, into: &mut Vec<u8>) {
    put_length(members.len(), into);
    for (name, value) in members {
        put_text(name, into);
        put(value, into);
    }
}

fn put_text(text: &str, into: &mut Vec<u8>) {
    put_length(text.len(), into);
    into.extend(text.as_bytes());
}

fn put_length(length: usize, into: &mut Vec<u8>) {
    // A document that is longer in all is refused.
    into.extend((length as u32).to_le_bytes());
}

fn take(from: &mut &[u8]) -> Option<Value> {
    Some(match take_bytes(from, 1)?.first()? {
        b'n' => Value::Null,
        b'f' => Value::Bool(false),
        b't' => Value::Bool(true),
        b'0' => Value::Number(serde_json::from_str::<Number>(&take_text(from)?).ok()?),
        b'"' => Value::String(take_text(from)?),
        b'[' => {
            let items = take_length(from)?;
            let items = (0..items).map(|_| take(from));
            Value::Array(items.collect::<Option<_>>()?)
        }
        b'{' => Value::Object(take_members(from)?),
        _ => return None,
    })
}

fn take_members(from: &mut &[u8]) -> Option<Map<String, Value>> {
    let members = take_length(from)?;
    let members = (0..members).map(|_| Some((take_text(from)?, take(from)?)));
    members.collect()
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let length = take_length(from)?;
    String::from_utf8(take_bytes(from, length)?.to_vec()).ok()
}

fn take_length(from: &mut &[u8]) -> Option<usize> {
    let bytes = take_bytes(from, 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn take_bytes<'b>(from: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let all: &'b [u8] = from;
    let (taken, rest) = all.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_come_back_as_they_were() {
        let mut deep = json!("\u{e9}\u{0}");
        for _ in 0..190 {
            deep = json!([deep]);
        }
        let exact: Value = serde_json::from_str("[1.10, 12345678901234567890123, -0.0]").unwrap();
        let documents: Vec<Map<String, Value>> = [
            json!({"z": null, "a": [true, false, {"k": ""}], "deep": deep, "exact": exact}),
            json!({}),
            json!({"long": "x".repeat(2 * BUFFER)}),
        ]
        .into_iter()
        .map(|document| document.as_object().cloned().unwrap())
        .collect();
        let folder = tempfile::tempdir().unwrap();
        let mut file = KeptDocuments::create(folder.path()).unwrap();
        let numbers = [3, u64::MAX, 2];
        let pushed = numbers.iter().zip(&documents);
        let kept: Vec<u64> = pushed
            .map(|(number, document)| file.push(*number, document).unwrap())
            .collect();
        file.flush().unwrap();
        for at in [2, 0, 1] {
            let (number, members) = file.read(kept[at]).unwrap();
            assert_eq!((number, &members), (numbers[at], &documents[at]));
            let text = |members: &Map<String, Value>| serde_json::to_string(members).unwrap();
            assert_eq!(text(&members), text(&documents[at]));
        }
        for _ in 0..2 {
            let mut scanned = Vec::new();
            file.scan(|number, members| scanned.push((number, members)))
                .unwrap();
            let expected = numbers.into_iter().zip(documents.clone());
            assert_eq!(scanned, expected.collect::<Vec<_>>());
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
