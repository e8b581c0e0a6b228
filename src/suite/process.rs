//! Commands of the user as child processes: an agent, a hook, an evaluator, a tool.
//!
//! A command is run by `sh -c`, so that it can have arguments, variables and pipes. The shell leads a process group of
//! its own, which is killed as a whole when the process is done with: what the command left in the background ends too.
//!
//! All streams are moved by the one thread that waits for an answer. So neither side ever waits for the other to read,
//! no thread outlives its process, and a time-out is exact.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

mod fault;
mod streams;

#[cfg(test)]
mod tests;

pub use fault::{ProcessError, ProcessFault};
use streams::Streams;

/// Characters of a command that an error shows.
const SHOWN_COMMAND: usize = 200;
/// How often a silent process is looked after: it may have ended and left its streams to another one.
const LOOK: Duration = Duration::from_millis(50);
/// How long a process may take to end after its input was closed.
const FAREWELL: Duration = Duration::from_secs(2);
/// The same for one that has failed, whose last words are waited for.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// The groups that run: each goes when its leader is about to be waited for, so that none of them is another's.
static RUNNING: Mutex<BTreeMap<u32, Pid>> = Mutex::new(BTreeMap::new());

/// Kills every command that runs with all that it started: for a program that is about to end.
pub fn kill_all() {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in running.values() {
        // That there is nobody left is no failure.
        let _ = kill_process_group(*pid, Signal::KILL);
    }
}

/// When a wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// None for one so far away that no clock shows it.
    at: Option<Instant>,
    limit: Duration,
}

impl Deadline {
    /// In so long a time.
    pub(crate) fn after(limit: Duration) -> Self {
        let at = Instant::now().checked_add(limit);
        Self { at, limit }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        self.at.map_or(Duration::MAX, left)
    }

    /// This one, or in so long a time if that is earlier.
    pub(crate) fn or_after(self, limit: Duration) -> Self {
        match limit < self.left() {
            true => Self::after(limit),
            false => self,
        }
    }
}

/// What came of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// A line without its end. Bytes that are no UTF-8 are U+FFFD.
    Line(String),
    /// The time is over.
    Silence,
    /// There will be no more lines.
    End,
}

/// A running command. It is ended when it is dropped: its input is closed, and after two seconds it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    command: String,
    child: Child,
    streams: Streams,
    /// Known after it was waited for, if the system said it.
    status: Option<ExitStatus>,
    /// It was waited for.
    over: bool,
}

impl Process {
    /// Starts a command.
    ///
    /// # Errors
    /// [`ProcessFault::Start`]. A command that the shell does not find ends early instead.
    pub(crate) fn start(command: &str) -> Result<Self, ProcessError> {
        let failed = |e| ProcessError {
            command: cut(command, SHOWN_COMMAND),
            fault: ProcessFault::Start(e),
        };
        let child = Command::new("sh")
            .arg("-c")
            .arg(command)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(failed)?;
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(child.id(), Pid::from_child(&child));
        drop(running);
        match Streams::of(&mut child) {
            Ok(streams) => Ok(Self {
                command: cut(command, SHOWN_COMMAND),
                child,
                streams,
                status: None,
                over: false,
            }),
            Err(e) => {
                kill_group(&mut child);
                Err(failed(e))
            }
        }
    }

    /// Has bytes written while an answer is waited for. What is read from here on is a new answer.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.streams.send(bytes);
    }

    /// Has the input closed behind what was sent.
    pub(crate) fn send_no_more(&mut self) {
        self.streams.send_no_more();
    }

    /// The next line of the output.
    ///
    /// # Errors
    /// [`ProcessFault::TooMuch`] and [`ProcessFault::Streams`]; the process is killed then.
    pub(crate) fn line(&mut self, deadline: &Deadline) -> Result<Came, ProcessError> {
        loop {
            if let Some(line) = self.streams.line() {
                return Ok(Came::Line(line));
            }
            if self.streams.is_at_end() {
                return Ok(Came::End);
            }
            let in_time = !deadline.left().is_zero();
            self.step(deadline).map_err(|fault| self.broken(fault))?;
            if !in_time {
                return Ok(self.streams.line().map_or(Came::Silence, Came::Line));
            }
        }
    }

    /// Whether the process has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        if self.over {
            return true;
        }
        // Looked at only: until it is waited for, no other process can get its number, and so not its group either.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = waitid(WaitId::Pid(Pid::from_child(&self.child)), look);
        !matches!(found, Ok(None))
    }

    /// The error of a process that gave no whole answer in time. It is killed.
    pub(crate) fn timed_out(&mut self, deadline: &Deadline) -> ProcessError {
        self.leave(LAST_MOMENT);
        self.broken(ProcessFault::TimedOut {
            limit: deadline.limit,
            errors: self.streams.last_words(),
        })
    }

    /// The error of a process whose output ended too early. It is killed where it still runs.
    pub(crate) fn ended(&mut self) -> ProcessError {
        self.leave(LAST_MOMENT);
        let by_itself = self.has_ended();
        self.kill();
        let how = match self.status {
            Some(status) if by_itself => format!("ended ({status})"),
            _ => "closed its output".to_owned(),
        };
        self.broken(ProcessFault::Ended {
            how,
            errors: self.streams.last_words(),
        })
    }

    /// Kills the process with all that it started, and waits for it.
    pub(crate) fn kill(&mut self) {
        if !self.over {
            self.over = true;
            self.streams.close();
            self.status = kill_group(&mut self.child);
        }
    }

    /// An error of this process, which is killed.
    fn broken(&mut self, fault: ProcessFault) -> ProcessError {
        self.kill();
        ProcessError {
            command: self.command.clone(),
            fault,
        }
    }

    /// Closes the input, and lets the process end by itself for at most this long.
    fn leave(&mut self, most: Duration) {
        self.streams.hang_up();
        let deadline = Deadline::after(most);
        while !self.has_ended() && !deadline.left().is_zero() && self.step(&deadline).is_ok() {}
        if self.has_ended() {
            // Only its last words are of interest, and whatever there is of them will do.
            let _ = self.streams.drain();
        }
    }

    /// Moves what can be moved, after a wait of a moment and at most until the deadline.
    fn step(&mut self, deadline: &Deadline) -> Result<(), ProcessFault> {
        let moved = self.streams.step(deadline.left().min(LOOK))?;
        if !moved && self.has_ended() {
            self.streams.drain()?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.over {
            self.leave(FAREWELL);
            self.kill();
        }
    }
}

/// Kills the group that a child leads, and waits for the child.
fn kill_group(child: &mut Child) -> Option<ExitStatus> {
    // That there is nobody left is no failure.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.remove(&child.id());
    drop(running);
    child.wait().ok()
}

/// Starts a command, gives it `input` whole, and returns its whole output. Lines end in one byte.
///
/// # Errors
/// [`ProcessError`], also for a command that ends without success.
pub(crate) fn answer_of(
    command: &str,
    input: &[u8],
    limit: Duration,
) -> Result<String, ProcessError> {
    let deadline = Deadline::after(limit);
    let mut process = Process::start(command)?;
    process.send(input);
    process.send_no_more();
    let mut output = String::new();
    loop {
        match process.line(&deadline)? {
            Came::Line(line) => {
                output.push_str(&line);
                output.push('\n');
            }
            Came::Silence => return Err(process.timed_out(&deadline)),
            Came::End => break,
        }
    }
    while !process.has_ended() {
        if deadline.left().is_zero() {
            return Err(process.timed_out(&deadline));
        }
        let moved = process.step(&deadline);
        moved.map_err(|fault| process.broken(fault))?;
    }
    process.leave(LAST_MOMENT);
    process.kill();
    match process.status {
        Some(status) if !status.success() => Err(process.broken(ProcessFault::Failed {
            status,
            errors: process.streams.last_words(),
        })),
        _ => Ok(output),
    }
}

/// A text of at most so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
