//! The server behind a scripted judge: connections, and the way from a request to its answer.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::batch::Batches;
use super::http::{Incoming, Request, Response};
use super::{Answer, Asked, Dialect, Finish, Reply, shape};

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;
type Fault = dyn Fn(&Asked) -> Option<Answer> + Send + Sync;
/// What a panicking thread leaves.
pub(super) type Panic = Box<dyn std::any::Any + Send>;

/// What all connections share.
pub(super) struct Server {
    script: Box<Script>,
    pub(super) fault: Mutex<Option<Arc<Fault>>>,
    connections: Mutex<Connections>,
    stopping: Condvar,
    pub(super) log: Mutex<Log>,
    pub(super) keeps_requests: AtomicBool,
    at_once: AtomicUsize,
    pub(super) most_at_once: AtomicUsize,
    pub(super) batches: Batches,
}

#[derive(Default)]
struct Connections {
    stopped: bool,
    next: u64,
    open: HashMap<u64, Arc<TcpStream>>,
}

#[derive(Default)]
pub(super) struct Log {
    next: usize,
    pub(super) prompts: usize,
    seen: HashMap<u64, usize>,
    pub(super) kept: Vec<Asked>,
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Request,
    Close,
    Reset,
}

impl Server {
    pub(super) fn new(script: Box<Script>) -> Self {
        Self {
            script,
            fault: Mutex::default(),
            connections: Mutex::default(),
            stopping: Condvar::new(),
            log: Mutex::default(),
            keeps_requests: AtomicBool::new(true),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            batches: Batches::default(),
        }
    }

    /// Ends every connection and every wait.
    pub(super) fn stop(&self) {
        let mut connections = lock(&self.connections);
        connections.stopped = true;
        for stream in connections.open.values() {
            // An error means that the other side was faster.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.stopping.notify_all();
    }

    /// Accepts connections until the judge is stopped; joins their threads and returns a panic of one of them.
    pub(super) fn listen(self: &Arc<Self>, listener: &TcpListener) -> Option<Panic> {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut panic = None;
        loop {
            let accepted = listener.accept();
            let mut connections = lock(&self.connections);
            if connections.stopped {
                break;
            }
            let Ok((stream, _)) = accepted else {
                drop(connections);
                // Out of sockets, mostly: connections that end free some.
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let stream = Arc::new(stream);
            let id = connections.next;
            connections.next += 1;
            connections.open.insert(id, Arc::clone(&stream));
            drop(connections);
            let registered = Registered {
                server: Arc::clone(self),
                id,
            };
            match spawn("judge-conn", move || registered.server.serve(stream)) {
                Ok(thread) => threads.push(thread),
                Err(error) => eprintln!("scripted judge: no thread for a connection: {error}"),
            }
            if threads.len().is_multiple_of(64) {
                let (done, running) = threads.into_iter().partition(JoinHandle::is_finished);
                threads = running;
                panic = panic.or(join_all(done));
            }
        }
        panic.or(join_all(threads))
    }

    fn serve(&self, stream: Arc<TcpStream>) {
        let _ = stream.set_nodelay(true);
        let mut incoming = Incoming::new(&stream);
        let next = loop {
            match incoming.request() {
                Ok(Some(request)) => {
                    let keep_alive = request.keep_alive;
                    let next = self.answer_request(&mut incoming, request);
                    let next = next.unwrap_or(Next::Close);
                    if next == Next::Reset {
                        // Closed with a byte of the request unread: the system sends a reset.
                        break Next::Reset;
                    }
                    if incoming.release().is_err() || next == Next::Close || !keep_alive {
                        break Next::Close;
                    }
                }
                Ok(None) => break Next::Close,
                Err(error) => {
                    let body = shape::error(&error.to_string(), "invalid_request_error");
                    let _ = incoming.send(&Response::json(400, body));
                    break Next::Close;
                }
            }
        };
        if next == Next::Close {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn answer_request(&self, incoming: &mut Incoming<'_>, request: Request) -> io::Result<Next> {
        let asked = self.record(Asked::from_request(request));
        let Some(dialect) = asked.dialect else {
            let fault = lock(&self.fault).clone();
            return match fault.and_then(|fault| fault(&asked)) {
                Some(answer) => self.answer(incoming, &asked, Dialect::OpenAi, answer),
                None => {
                    let answer_line = |line: Asked| {
                        let line = self.record(line);
                        let answer = (self.script)(&line);
                        (line, answer)
                    };
                    incoming.send(&self.batches.respond(&asked, answer_line))?;
                    Ok(Next::Request)
                }
            };
        };
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let _guard = Decrement(&self.at_once);
        let answer = (self.script)(&asked);
        self.answer(incoming, &asked, dialect, answer)
    }

    fn answer(
        &self,
        incoming: &mut Incoming<'_>,
        asked: &Asked,
        dialect: Dialect,
        answer: Answer,
    ) -> io::Result<Next> {
        let shaped = |reply: &Reply| Response::json(200, shape::reply(dialect, asked, reply));
        match answer {
            Answer::Reply(reply) => incoming.send(&shaped(&reply))?,
            Answer::ReplyLater(delay, reply) => {
                if !self.pause(delay) {
                    return Ok(Next::Close);
                }
                incoming.send(&shaped(&reply))?;
            }
            Answer::Truncated(text) => {
                incoming.send(&shaped(&Reply::from(text).finish(Finish::Length)))?;
            }
            Answer::Status(status, headers, body) => incoming.send(&Response {
                status,
                headers,
                body: body.into_bytes(),
            })?,
            Answer::Garbage(bytes) => incoming.send(&Response {
                status: 200,
                headers: Vec::new(),
                body: bytes,
            })?,
            Answer::CloseBeforeAnswer => return Ok(Next::Reset),
            Answer::EndBeforeAnswer => return Ok(Next::Close),
            Answer::CloseMidBody => {
                let response = shaped(&Reply::from("an answer that is never seen in full"));
                incoming.writer().write_all(&response.head())?;
                let half = response.body.len() / 2;
                incoming.writer().write_all(&response.body[..half])?;
                return Ok(Next::Close);
            }
            Answer::Hang => {
                incoming.release()?;
                // Ends when the client gives up or the judge is dropped.
                io::copy(&mut incoming.writer().take(u64::MAX), &mut io::sink())?;
                return Ok(Next::Close);
            }
            Answer::Endless(text) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                            transfer-encoding: chunked\r\n\r\n";
                incoming.writer().write_all(head.as_bytes())?;
                let chunk = format!("{:x}\r\n{text}\r\n", text.len());
                // Ends with the error that the client's leaving is.
                loop {
                    incoming.writer().write_all(chunk.as_bytes())?;
                }
            }
            Answer::SlowBytes(pause, reply) => {
                let response = shaped(&reply);
                incoming.writer().write_all(&response.head())?;
                for byte in response.body {
                    if !self.pause(pause) {
                        return Ok(Next::Close);
                    }
                    incoming.writer().write_all(&[byte])?;
                }
            }
        }
        Ok(Next::Request)
    }

    /// Waits; false if the judge was dropped meanwhile.
    fn pause(&self, delay: Duration) -> bool {
        let connections = lock(&self.connections);
        let waited = self
            .stopping
            .wait_timeout_while(connections, delay, |c| !c.stopped);
        let (connections, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !connections.stopped
    }

    /// Numbers a request, and keeps it unless told otherwise.
    fn record(&self, mut asked: Asked) -> Asked {
        let identity = asked.identity();
        let mut log = lock(&self.log);
        asked.number = log.next;
        log.next += 1;
        if asked.dialect.is_some() {
            log.prompts += 1;
        }
        let attempt = log.seen.entry(identity).or_default();
        asked.attempt = *attempt;
        *attempt += 1;
        if self.keeps_requests.load(Ordering::SeqCst) {
            log.kept.push(asked.clone());
        }
        asked
    }
}

/// Takes a connection off the list when its thread ends, also when its script panics.
struct Registered {
    server: Arc<Server>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.server.connections).open.remove(&self.id);
    }
}

struct Decrement<'a>(&'a AtomicUsize);

impl Drop for Decrement<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Hundreds of connections: small stacks, which still hold the deepest JSON that serde_json reads.
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(1 << 20)
        .spawn(body)
}

fn join_all(threads: Vec<JoinHandle<()>>) -> Option<Panic> {
    threads
        .into_iter()
        .filter_map(|thread| thread.join().err())
        .next_back()
}

/// A lock that a panicking script does not break.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
