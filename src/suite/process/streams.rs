//! The three streams of a process, moved together: whichever is ready, without waiting for the others.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};

use super::fault::ProcessFault;

/// The longest answer, in bytes: all lines between one request and the next.
pub(super) const LONGEST_ANSWER: usize = 64 << 20;
/// Bytes moved at once.
const PIECE: usize = 64 << 10;
/// As much of what a process says on its error stream is kept, in bytes, from the end.
const KEPT_ERRORS: usize = 4 << 10;

/// The streams of a process, and what is on its way through them. Input is written and output read by
/// [`Streams::step`].
#[derive(Debug)]
pub(super) struct Streams {
    input: Option<ChildStdin>,
    /// What is to be written, from `written` on.
    waiting: Vec<u8>,
    written: usize,
    /// The input is closed when nothing waits.
    last: bool,
    output: Option<ChildStdout>,
    /// A line whose end has not come.
    begun: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    /// Bytes that the answer may still have.
    room: usize,
    /// Output is read and thrown away.
    unheard: bool,
    errors: Option<ChildStderr>,
    tail: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Stream {
    Input,
    Output,
    Errors,
}

impl Streams {
    /// Takes the streams of a child, which must be pipes.
    pub(super) fn of(child: &mut Child) -> io::Result<Self> {
        let streams = Self {
            input: child.stdin.take(),
            waiting: Vec::new(),
            written: 0,
            last: false,
            output: child.stdout.take(),
            begun: Vec::new(),
            lines: VecDeque::new(),
            room: LONGEST_ANSWER,
            unheard: false,
            errors: child.stderr.take(),
            tail: Vec::new(),
        };
        let ends = [
            streams.input.as_ref().map(AsFd::as_fd),
            streams.output.as_ref().map(AsFd::as_fd),
            streams.errors.as_ref().map(AsFd::as_fd),
        ];
        for end in ends.into_iter().flatten() {
            ioctl_fionbio(end, true)?;
        }
        Ok(streams)
    }

    /// Adds bytes to be written. What is read from here on is a new answer.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.room = LONGEST_ANSWER;
        self.waiting.drain(..self.written);
        self.written = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// Closes the input as soon as all was written that waits.
    pub(super) fn send_no_more(&mut self) {
        self.last = true;
    }

    /// Closes the input at once, and throws away what comes from here on.
    pub(super) fn hang_up(&mut self) {
        self.input = None;
        self.unheard = true;
    }

    /// Closes everything.
    pub(super) fn close(&mut self) {
        (self.input, self.output, self.errors) = (None, None, None);
    }

    /// A line that was read, without its end. At the end of the output also one without an end.
    pub(super) fn line(&mut self) -> Option<String> {
        let rest = || match self.output {
            None if !self.begun.is_empty() => Some(std::mem::take(&mut self.begun)),
            _ => None,
        };
        self.lines.pop_front().or_else(rest).map(text_of)
    }

    /// Whether no more lines can come.
    pub(super) fn is_at_end(&self) -> bool {
        self.output.is_none() && self.lines.is_empty() && self.begun.is_empty()
    }

    /// The end of what was said on the error stream.
    pub(super) fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        let text = text.trim();
        match self.tail.len() < KEPT_ERRORS {
            true => text.to_owned(),
            false => format!("…{text}"),
        }
    }

    /// Waits for one of the streams, at most this long, and moves a piece through each that is ready. Says whether any
    /// was.
    pub(super) fn step(&mut self, most: Duration) -> Result<bool, ProcessFault> {
        let ready = self.ready(most)?;
        for stream in &ready {
            match stream {
                Stream::Input => self.write()?,
                Stream::Output => {
                    self.read_output()?;
                }
                Stream::Errors => {
                    self.read_errors()?;
                }
            }
        }
        if self.last && self.written == self.waiting.len() {
            self.input = None;
        }
        Ok(!ready.is_empty())
    }

    /// Reads what a process has left that has ended, and closes its streams: others may hold them open for as long as
    /// they please.
    pub(super) fn drain(&mut self) -> Result<(), ProcessFault> {
        const MOST_PIECES: usize = LONGEST_ANSWER / PIECE;
        for _ in 0..MOST_PIECES {
            if !self.read_output()? {
                break;
            }
        }
        for _ in 0..MOST_PIECES {
            if !self.read_errors()? {
                break;
            }
        }
        self.close();
        Ok(())
    }

    /// The streams that can be moved, after a wait for the first of them.
    fn ready(&self, most: Duration) -> Result<Vec<Stream>, ProcessFault> {
        let writes = self.written < self.waiting.len();
        let input = self.input.as_ref().filter(|_| writes);
        let (output, errors) = (self.output.as_ref(), self.errors.as_ref());
        let streams = [
            input.map(|fd| (Stream::Input, PollFd::new(fd, PollFlags::OUT))),
            output.map(|fd| (Stream::Output, PollFd::new(fd, PollFlags::IN))),
            errors.map(|fd| (Stream::Errors, PollFd::new(fd, PollFlags::IN))),
        ];
        let (streams, mut fds): (Vec<_>, Vec<_>) = streams.into_iter().flatten().unzip();
        let most = Timespec::try_from(most).ok();
        match poll(&mut fds, most.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(ProcessFault::Streams(e.into())),
        }
        let found = streams.into_iter().zip(&fds);
        let found = found.filter(|(_, fd)| !fd.revents().is_empty());
        Ok(found.map(|(stream, _)| stream).collect())
    }

    fn write(&mut self) -> Result<(), ProcessFault> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        let rest = self.waiting.get(self.written..).unwrap_or_default();
        match input.write(rest) {
            Ok(bytes) => self.written += bytes,
            Err(e) if passes(&e) => {}
            // It does not want to read on; what it answers is another thing.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.input = None;
                self.written = self.waiting.len();
            }
            Err(e) => return Err(ProcessFault::Streams(e)),
        }
        Ok(())
    }

    /// Reads a piece of the output. Says whether there may be more at once.
    fn read_output(&mut self) -> Result<bool, ProcessFault> {
        let mut piece = [0; PIECE];
        let read = read(&mut self.output, &mut piece)?;
        if self.unheard || read.is_empty() {
            return Ok(!read.is_empty());
        }
        self.room = match self.room.checked_sub(read.len()) {
            Some(room) => room,
            None => return Err(ProcessFault::TooMuch),
        };
        let mut parts = read.split(|byte| *byte == b'\n');
        self.begun
            .extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            let whole = std::mem::replace(&mut self.begun, part.to_vec());
            self.lines.push_back(whole);
        }
        Ok(true)
    }

    /// Reads a piece of what is said on the error stream. Says whether there may be more at once.
    fn read_errors(&mut self) -> Result<bool, ProcessFault> {
        let mut piece = [0; PIECE];
        let read = read(&mut self.errors, &mut piece)?;
        self.tail.extend_from_slice(read);
        let surplus = self.tail.len().saturating_sub(KEPT_ERRORS);
        self.tail.drain(..surplus);
        Ok(!read.is_empty())
    }
}

/// Reads what is there; nothing where nothing is there yet, or never will be. A stream at its end is closed.
fn read<'a>(stream: &mut Option<impl Read>, piece: &'a mut [u8]) -> Result<&'a [u8], ProcessFault> {
    let Some(open) = stream else {
        return Ok(&[]);
    };
    match open.read(piece) {
        Ok(0) => *stream = None,
        Ok(bytes) => return Ok(piece.get(..bytes).unwrap_or_default()),
        Err(e) if passes(&e) => {}
        Err(e) => return Err(ProcessFault::Streams(e)),
    }
    Ok(&[])
}

/// Whether the same may succeed at once or a little later.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A line as text. Bytes that are no UTF-8 are U+FFFD.
fn text_of(line: Vec<u8>) -> String {
    String::from_utf8(line).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}
