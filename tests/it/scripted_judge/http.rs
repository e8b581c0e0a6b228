//! HTTP/1.1 on a blocking socket: keep-alive, bodies by length and in chunks, `Expect: 100-continue`.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

const LARGEST_HEAD: usize = 64 << 10;
const LARGEST_BODY: usize = 512 << 20;

/// A request, read in full.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query as sent.
    pub(super) path: String,
    /// Names in lower case, in the order sent.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) keep_alive: bool,
    /// When its head was complete.
    pub(super) at: Instant,
}

/// An answer with a body of known length.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) fn json(status: u16, body: serde_json::Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    }

    /// The head, with the empty line.
    pub(super) fn head(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            429 => "Too Many Requests",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            _ => "Scripted",
        };
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        let given = |name: &str| {
            self.headers
                .iter()
                .any(|(n, _)| n.eq_ignore_ascii_case(name))
        };
        if !given("content-type") {
            head.push_str("content-type: application/json\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        head.into_bytes()
    }
}

/// The requests of one connection.
///
/// The last byte of a request is looked at but left in the socket until the request is answered. A socket closed with
/// unread bytes sends a reset, which is how a reset is made without options that the standard library lacks.
pub(super) struct Incoming<'a> {
    stream: &'a TcpStream,
    held: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            held: false,
        }
    }

    pub(super) fn writer(&self) -> &'a TcpStream {
        self.stream
    }

    /// Writes an answer in one piece.
    pub(super) fn send(&self, response: &Response) -> io::Result<()> {
        let mut bytes = response.head();
        bytes.extend_from_slice(&response.body);
        self.writer().write_all(&bytes)
    }

    /// Takes the byte that was left in the socket.
    pub(super) fn release(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.held) {
            let mut byte = [0];
            self.writer().read_exact(&mut byte)?;
        }
        Ok(())
    }

    /// The next request; `None` when the client has ended the connection. Errors are for the client to read.
    pub(super) fn request(&mut self) -> io::Result<Option<Request>> {
        let Some(head) = self.take_through(b"\r\n\r\n")? else {
            return Ok(None);
        };
        let at = Instant::now();
        let head = String::from_utf8(head).map_err(|_| bad("the head is not UTF-8"))?;
        let mut lines = head.trim_end().split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some(version)) = (first.next(), first.next(), first.next())
        else {
            return Err(bad("the first line is not `METHOD PATH HTTP/1.1`"));
        };
        let headers: Vec<(String, String)> = lines
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .ok_or_else(|| bad("a header has no `:`"))?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<io::Result<_>>()?;
        let header = |name: &str| {
            headers
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, value)| value.to_ascii_lowercase())
        };
        let chunked = header("transfer-encoding").is_some_and(|e| e.contains("chunked"));
        let length = match header("content-length") {
            Some(length) => length.parse().map_err(|_| bad("content-length"))?,
            None => 0,
        };
        let keep_alive = match header("connection") {
            Some(connection) => !connection.contains("close"),
            None => version != "HTTP/1.0",
        };
        if header("expect").is_some_and(|e| e == "100-continue") {
            self.writer().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = if chunked {
            self.take_chunks()?
        } else {
            self.take_exact(length)?
        };
        Ok(Some(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body,
            keep_alive,
            at,
        }))
    }

    fn take_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("a chunk's size"))?;
            if size == 0 {
                break;
            }
            if body.len() + size > LARGEST_BODY {
                return Err(bad("the body is too large"));
            }
            let mut chunk = self.take_exact(size + 2)?;
            if !chunk.ends_with(b"\r\n") {
                return Err(bad("a chunk is longer than its size"));
            }
            chunk.truncate(size);
            body.append(&mut chunk);
        }
        while !self.take_line()?.is_empty() {}
        Ok(body)
    }

    fn take_line(&mut self) -> io::Result<String> {
        let line = self.take_through(b"\r\n")?;
        let line = line.ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = String::from_utf8(line).map_err(|_| bad("a line is not UTF-8"))?;
        Ok(line.trim_end().to_owned())
    }

    /// Everything through the first `end`; `None` if the connection ends before a byte.
    fn take_through(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.release()?;
        let mut taken = Vec::new();
        let mut window = [0; 16 << 10];
        loop {
            let seen = self.stream.peek(&mut window)?;
            if seen == 0 && taken.is_empty() {
                return Ok(None);
            }
            if seen == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let before = taken.len();
            taken.extend_from_slice(&window[..seen]);
            let from = (before + 1).saturating_sub(end.len());
            let found = taken[from..].windows(end.len()).position(|w| w == end);
            if let Some(found) = found {
                taken.truncate(from + found + end.len());
                self.writer()
                    .read_exact(&mut window[..taken.len() - before - 1])?;
                self.held = true;
                return Ok(Some(taken));
            }
            if taken.len() > LARGEST_HEAD {
                return Err(bad("the head is too large"));
            }
            self.writer().read_exact(&mut window[..seen])?;
        }
    }

    fn take_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length == 0 {
            return Ok(Vec::new());
        }
        if length > LARGEST_BODY {
            return Err(bad("the body is too large"));
        }
        self.release()?;
        let mut taken = vec![0; length];
        let (last, rest) = taken.split_last_mut().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.writer().read_exact(rest)?;
        if self.stream.peek(std::slice::from_mut(last))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.held = true;
        Ok(taken)
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not a request that this judge reads: {what}"),
    )
}
