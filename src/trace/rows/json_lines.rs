//! JSON Lines files: one object a line. A row's number is that of its line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::TraceError;
use super::super::quarantine::Code;
use super::ReadCount;
use super::line::{Line, Wanted, parsed};
use super::line_index::{LineAt, LineIndex};

/// A longer line is set aside; it would only fill the memory.
const LONGEST_LINE: u64 = 128 << 20;

/// Takes a row's number and its line, or why that is none; says whether to go on.
type OnLine<'e> = dyn FnMut(u64, Result<Line, (Code, String)>) -> Result<bool, TraceError> + 'e;

/// A file, and where its lines begin as far as it was read.
#[derive(Debug)]
pub(super) struct JsonLines {
    path: PathBuf,
    index: LineIndex,
}

impl JsonLines {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            index: LineIndex::default(),
        }
    }

    /// Reads all lines, or those of these numbers (ascending), which are looked up by the marks of an earlier reading. Blank
    /// lines are no rows. Returns whether `each` wants more.
    pub fn read(
        &self,
        rows: Option<&[u64]>,
        wanted: Wanted<'_>,
        count: &ReadCount,
        each: &mut OnLine<'_>,
    ) -> Result<bool, TraceError> {
        let broken = |e: std::io::Error| TraceError::File {
            file: self.path.clone(),
            problem: e.to_string(),
        };
        let mut lines = Lines::open(self, rows.is_some(), count).map_err(broken)?;
        let mut wanted_rows = rows.map(|rows| rows.iter());
        loop {
            if let Some(rows) = &mut wanted_rows {
                let Some(row) = rows.next() else {
                    return Ok(true);
                };
                if !lines.go_to(*row).map_err(broken)? {
                    return Ok(true);
                }
            }
            let at = lines.at.number;
            let line = match lines.next().map_err(broken)? {
                None => return Ok(true),
                Some(Ok([])) => continue,
                Some(Ok(line)) => parsed(line, wanted),
                Some(Err(problem)) => Err((Code::TooLong, problem)),
            };
            count.row();
            if !each(at, line)? {
                return Ok(false);
            }
        }
    }

    /// The names of the members of the first lines together, since any of them may leave out what is null in it; none where
    /// no line can be read.
    pub fn names(&self) -> Result<Option<Vec<String>>, TraceError> {
        const LINES: usize = 1000;
        let mut present: Vec<String> = Vec::new();
        let mut lines = 0;
        let each = &mut |_: u64, line: Result<Line, _>| {
            if let Ok(line) = line {
                lines += 1;
                for name in line.names() {
                    if !present.iter().any(|known| known == name) {
                        present.push(name.to_owned());
                    }
                }
            }
            Ok(lines < LINES)
        };
        self.read(None, Wanted::Names, &ReadCount::default(), each)?;
        Ok((lines > 0).then_some(present))
    }

    /// Whether the file holds nothing but white space. One that can't be read is not blank: reading says what is wrong.
    pub fn is_blank(&self) -> bool {
        let Ok(file) = File::open(&self.path) else {
            return false;
        };
        let mut reader = BufReader::new(file);
        loop {
            let (length, blank) = match reader.fill_buf() {
                Ok([]) => return true,
                Ok(bytes) => (bytes.len(), bytes.iter().all(u8::is_ascii_whitespace)),
                Err(_) => return false,
            };
            if !blank {
                return false;
            }
            reader.consume(length);
        }
    }
}

/// A file being read, at the beginning of a line.
struct Lines<'f> {
    reader: BufReader<File>,
    at: LineAt,
    bytes: Vec<u8>,
    index: &'f LineIndex,
    /// From which byte on a line is marked.
    next_mark: u64,
    count: &'f ReadCount,
}

impl<'f> Lines<'f> {
    fn open(file: &'f JsonLines, seeking: bool, count: &'f ReadCount) -> std::io::Result<Self> {
        // Who looks up single lines needs little of what is around them.
        let buffer = if seeking { 1 << 15 } else { 1 << 18 };
        Ok(Self {
            reader: BufReader::with_capacity(buffer, File::open(&file.path)?),
            at: LineAt::default(),
            bytes: Vec::new(),
            index: &file.index,
            next_mark: 0,
            count,
        })
    }

    /// Goes forward to a line; false where the file ends before it.
    fn go_to(&mut self, number: u64) -> std::io::Result<bool> {
        let mark = self.index.before(number);
        if mark.number > self.at.number {
            let ahead = mark.byte.saturating_sub(self.at.byte);
            self.reader
                .seek_relative(i64::try_from(ahead).unwrap_or(i64::MAX))?;
            self.at = mark;
        }
        while self.at.number < number {
            self.mark();
            let skipped = self.reader.skip_until(b'\n')? as u64;
            if skipped == 0 {
                return Ok(false);
            }
            self.passed(skipped);
        }
        Ok(true)
    }

    /// The next line without white space around it, or what is wrong with it; none at the end.
    fn next(&mut self) -> std::io::Result<Option<Result<&[u8], String>>> {
        self.mark();
        self.bytes.clear();
        let taken =
            Read::take(&mut self.reader, LONGEST_LINE).read_until(b'\n', &mut self.bytes)?;
        let mut count = taken as u64;
        let too_long = count == LONGEST_LINE && self.bytes.last() != Some(&b'\n');
        if too_long {
            count += self.reader.skip_until(b'\n')? as u64;
        }
        let first = self.at.number == 0;
        self.passed(count);
        if count == 0 {
            return Ok(None);
        }
        if too_long {
            let most = LONGEST_LINE >> 20;
            return Ok(Some(Err(format!("the line is longer than {most} MiB"))));
        }
        let line = self.bytes.trim_ascii();
        // Some exporters begin a file with a byte-order mark.
        let mark = "\u{feff}".as_bytes();
        let line = match first {
            true => line.strip_prefix(mark).unwrap_or(line),
            false => line,
        };
        Ok(Some(Ok(line)))
    }

    fn mark(&mut self) {
        if self.at.byte >= self.next_mark {
            self.next_mark = self.index.note(self.at);
        }
    }

    fn passed(&mut self, bytes: u64) {
        self.at.number += u64::from(bytes > 0);
        self.at.byte += bytes;
        self.count.bytes(bytes);
    }
}
