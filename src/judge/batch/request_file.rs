//! Files of batch requests: one JSON object a line, split so that no file passes the provider's limits.

use std::collections::HashSet;
use std::io::{self, Write};

use serde::Serialize;

use super::CHAT_COMPLETIONS;

/// The longest `custom_id` that a provider takes, in bytes.
pub const MAX_CUSTOM_ID: usize = 64;

/// What one file of requests may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most lines.
    pub lines: usize,
    /// Most bytes, line ends included.
    pub bytes: u64,
}

impl Default for BatchLimits {
    /// 50,000 lines and 200 MB (decimal, the smaller reading of the limit).
    fn default() -> Self {
        Self {
            lines: 50_000,
            bytes: 200_000_000,
        }
    }
}

/// Why a request was not written. Every file is as it was before, except after [`RequestFileError::Io`].
#[derive(Debug, thiserror::Error)]
pub enum RequestFileError {
    /// The request alone is larger than a file may be.
    #[error(
        "request {custom_id} is {bytes} bytes long as a line, and a batch file may have {limit}; \
         send it without `--batch`, or let long traces be cut"
    )]
    LineTooLarge {
        /// The request.
        custom_id: String,
        /// Its length as a line, in bytes.
        bytes: u64,
        /// The limit of a file, in bytes.
        limit: u64,
    },
    /// The id can't be sent.
    #[error("`{custom_id}` can't be the id of a batch line: ids have 1 to {MAX_CUSTOM_ID} bytes")]
    CustomId {
        /// The id.
        custom_id: String,
    },
    /// The id was written before. A provider refuses a file that has an id twice, and two files would be paid twice.
    #[error("request {custom_id} is in a batch file already; equal requests are sent once")]
    Duplicate {
        /// The request.
        custom_id: String,
    },
    /// The body is not a JSON object.
    #[error("the body of request {custom_id} is not a JSON object")]
    Body {
        /// The request.
        custom_id: String,
    },
    /// A file takes no lines at all.
    #[error("batch files of {} lines and {} bytes hold nothing; raise the limits", .0.lines, .0.bytes)]
    NoRoom(BatchLimits),
    /// A file can't be opened or written. What was written before is of no use.
    #[error("a batch file can't be written: {0}; free space, or name another directory")]
    Io(#[from] io::Error),
}

/// A file of requests, complete and flushed.
#[derive(Debug)]
pub struct WrittenFile<W> {
    /// Where it was written.
    pub writer: W,
    /// Lines in it; at least 1.
    pub lines: usize,
    /// Bytes in it.
    pub bytes: u64,
}

/// Writes requests in the order given, and opens a next file when one is full. No file is opened without a line for it.
///
/// Memory: one line, and the ids.
pub struct RequestFiles<W, O> {
    limits: BatchLimits,
    open: O,
    files: Vec<WrittenFile<W>>,
    ids: HashSet<String>,
    line: Vec<u8>,
}

#[derive(Serialize)]
struct Line<'a, B> {
    custom_id: &'a str,
    method: &'a str,
    url: &'a str,
    body: &'a B,
}

impl<W: Write, O: FnMut(usize) -> io::Result<W>> RequestFiles<W, O> {
    /// A writer for chat completions; `open` makes the file of a number (from 0).
    ///
    /// # Errors
    /// [`RequestFileError::NoRoom`] if a limit is 0.
    pub fn new(limits: BatchLimits, open: O) -> Result<Self, RequestFileError> {
        if limits.lines == 0 || limits.bytes == 0 {
            return Err(RequestFileError::NoRoom(limits));
        }
        Ok(Self {
            limits,
            open,
            files: Vec::new(),
            ids: HashSet::new(),
            line: Vec::new(),
        })
    }

    /// Writes one request; returns the number of its file, from 0. The body is sent as it serialises.
    ///
    /// # Errors
    /// [`RequestFileError`]. After any but `Io` the next request can be written.
    pub fn push(
        &mut self,
        custom_id: &str,
        body: &impl Serialize,
    ) -> Result<usize, RequestFileError> {
        let custom_id_owned = || custom_id.to_owned();
        if custom_id.is_empty() || custom_id.len() > MAX_CUSTOM_ID {
            return Err(RequestFileError::CustomId {
                custom_id: custom_id_owned(),
            });
        }
        self.serialise(custom_id, body)?;
        let bytes = self.line.len() as u64;
        if bytes > self.limits.bytes {
            return Err(RequestFileError::LineTooLarge {
                custom_id: custom_id_owned(),
                bytes,
                limit: self.limits.bytes,
            });
        }
        if self.ids.contains(custom_id) {
            return Err(RequestFileError::Duplicate {
                custom_id: custom_id_owned(),
            });
        }
        let full = self.files.last().is_none_or(|file| {
            file.lines >= self.limits.lines || bytes > self.limits.bytes - file.bytes
        });
        if full {
            self.next_file()?;
        }
        if let Some(file) = self.files.last_mut() {
            file.writer.write_all(&self.line)?;
            file.lines += 1;
            file.bytes += bytes;
        }
        self.ids.insert(custom_id_owned());
        Ok(self.files.len() - 1)
    }

    /// Flushes the last file. No requests, no files.
    ///
    /// # Errors
    /// [`RequestFileError::Io`].
    pub fn finish(mut self) -> Result<Vec<WrittenFile<W>>, RequestFileError> {
        if let Some(file) = self.files.last_mut() {
            file.writer.flush()?;
        }
        Ok(self.files)
    }

    fn next_file(&mut self) -> io::Result<()> {
        if let Some(file) = self.files.last_mut() {
            file.writer.flush()?;
        }
        let writer = (self.open)(self.files.len())?;
        self.files.push(WrittenFile {
            writer,
            lines: 0,
            bytes: 0,
        });
        Ok(())
    }

    fn serialise(
        &mut self,
        custom_id: &str,
        body: &impl Serialize,
    ) -> Result<(), RequestFileError> {
        self.line.clear();
        let line = Line {
            custom_id,
            method: "POST",
            url: CHAT_COMPLETIONS,
            body,
        };
        let written = serde_json::to_writer(&mut self.line, &line);
        // The body is the last field: an object leaves two closing braces.
        if written.is_err() || !self.line.ends_with(b"}}") {
            return Err(RequestFileError::Body {
                custom_id: custom_id.to_owned(),
            });
        }
        self.line.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn files(
        limits: BatchLimits,
    ) -> RequestFiles<Vec<u8>, impl FnMut(usize) -> io::Result<Vec<u8>>> {
        RequestFiles::new(limits, |_| Ok(Vec::new())).unwrap()
    }

    fn lines(file: &WrittenFile<Vec<u8>>) -> Vec<Value> {
        let text = std::str::from_utf8(&file.writer).unwrap();
        assert!(text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_line_is_what_the_endpoint_reads() {
        let mut files = files(BatchLimits::default());
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "a\nb \"c\" é\u{2028}"}]});
        assert_eq!(files.push("h1", &body).unwrap(), 0);
        let files = files.finish().unwrap();
        let expected = json!({"custom_id": "h1", "method": "POST", "url": "/v1/chat/completions", "body": body});
        assert_eq!(lines(&files[0]), [expected]);
        assert_eq!(files[0].bytes, files[0].writer.len() as u64);
        assert_eq!(files[0].writer.iter().filter(|b| **b == b'\n').count(), 1);
    }

    #[test]
    fn nothing_asked_opens_no_file() {
        let limits = BatchLimits::default();
        let files = RequestFiles::new(limits, |_| -> io::Result<Vec<u8>> { unreachable!() });
        assert!(files.unwrap().finish().unwrap().is_empty());
    }

    #[test]
    fn a_refused_request_leaves_the_files_as_they_were() {
        let mut files = files(BatchLimits {
            lines: 1,
            bytes: 200,
        });
        files.push("first", &json!({})).unwrap();
        let long = json!({"content": "x".repeat(300)});
        let error = files.push("long", &long).unwrap_err();
        assert!(matches!(
            &error,
            RequestFileError::LineTooLarge { custom_id, bytes, limit: 200 } if custom_id == "long" && *bytes > 300
        ));
        assert!(error.to_string().contains("request long is"), "{error}");
        let refused = |result: Result<usize, RequestFileError>| result.unwrap_err().to_string();
        assert!(refused(files.push("first", &json!({}))).contains("already"));
        assert!(refused(files.push("", &json!({}))).contains("1 to 64 bytes"));
        assert!(refused(files.push(&"i".repeat(65), &json!({}))).contains("1 to 64 bytes"));
        assert!(refused(files.push("b", &json!("}}"))).contains("not a JSON object"));
        assert!(refused(files.push("b", &json!([{}]))).contains("not a JSON object"));
        files.push("last", &json!({})).unwrap();
        assert!(refused(files.push("first", &json!({}))).contains("already"));
        let ids: Vec<Value> = files
            .finish()
            .unwrap()
            .iter()
            .flat_map(lines)
            .map(|line| line["custom_id"].clone())
            .collect();
        assert_eq!(ids, ["first", "last"]);
    }

    #[test]
    fn a_limit_of_nothing_is_refused() {
        for limits in [
            BatchLimits { lines: 0, bytes: 9 },
            BatchLimits { lines: 9, bytes: 0 },
        ] {
            let error = RequestFiles::new(limits, |_| Ok(Vec::new())).err().unwrap();
            assert!(matches!(error, RequestFileError::NoRoom(l) if l == limits));
        }
    }

    #[test]
    fn a_line_may_fill_a_file_to_the_byte() {
        let mut files = files(BatchLimits::default());
        files.push("h1", &json!({})).unwrap();
        let bytes = files.finish().unwrap()[0].bytes;
        let number_of_files = |bytes: u64| {
            let mut files = super::tests::files(BatchLimits { lines: 9, bytes });
            let pushed = files
                .push("h1", &json!({}))
                .and_then(|_| files.push("h2", &json!({})));
            pushed.map(|last| last + 1).ok()
        };
        assert_eq!(number_of_files(bytes - 1), None);
        assert_eq!(number_of_files(bytes), Some(2));
        assert_eq!(number_of_files(2 * bytes - 1), Some(2));
        assert_eq!(number_of_files(2 * bytes), Some(1));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut files = RequestFiles::new(BatchLimits::default(), |_| Ok(Full)).unwrap();
        let error = files.push("h", &json!({})).unwrap_err();
        assert!(matches!(error, RequestFileError::Io(_)));
    }

    proptest! {
        #[test]
        fn splitting_loses_nothing_keeps_order_and_passes_no_limit(
            sizes in prop::collection::vec(0..300usize, 0..80),
            most_lines in 1..12usize,
            most_bytes in 80..1200u64,
        ) {
            let limits = BatchLimits { lines: most_lines, bytes: most_bytes };
            let mut files = files(limits);
            let mut taken = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                let id = format!("h{i}");
                match files.push(&id, &json!({"c": "x".repeat(*size)})) {
                    Ok(file) => taken.push((id, file)),
                    Err(RequestFileError::LineTooLarge { custom_id, bytes, .. }) => {
                        prop_assert_eq!(custom_id, id);
                        prop_assert!(bytes > most_bytes);
                    }
                    Err(other) => return Err(TestCaseError::fail(other.to_string())),
                }
            }
            let files = files.finish().unwrap();
            let mut found = Vec::new();
            for (number, file) in files.iter().enumerate() {
                let lines = lines(file);
                prop_assert_eq!(file.lines, lines.len());
                prop_assert!((1..=most_lines).contains(&file.lines));
                prop_assert_eq!(file.bytes, file.writer.len() as u64);
                prop_assert!(file.bytes <= most_bytes);
                found.extend(lines.iter().map(|l| (l["custom_id"].as_str().unwrap().to_owned(), number)));
            }
            prop_assert_eq!(found, taken);
            // Each file ends because the next line had no room in it.
            for pair in files.windows(2) {
                let next = pair[1].writer.split_inclusive(|b| *b == b'\n').next().unwrap().len() as u64;
                prop_assert!(pair[0].lines == most_lines || pair[0].bytes + next > most_bytes);
            }
        }
    }
}
