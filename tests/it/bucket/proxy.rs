//! Between the program and the server: sees each request, and may spoil it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request as the proxy sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// From 0, in the order of arrival.
    pub number: usize,
    pub method: String,
    /// With the query.
    pub path: String,
    /// All lines of the head.
    pub head: String,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Spoil {
    /// It goes to the server, and its answer back.
    Not,
    /// The answer is this code, with a text.
    Answer(u16, String),
    /// Nothing is answered for so long; then the connection ends.
    Stall(Duration),
    /// The answer ends after so many bytes of its body.
    CutAnswer(usize),
    /// Half of the body goes to the server; then both connections end.
    CutRequest,
    /// The server gets it, and its answer is lost.
    LoseAnswer,
    /// The connection ends.
    Close,
}

type Script = dyn Fn(&Asked) -> Spoil + Send + Sync;

/// A running proxy. It ends when this is dropped, after what is on its way to the server has come there.
pub struct Proxy {
    pub port: u16,
    on_their_way: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.listening.take().map(JoinHandle::join);
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        while self.on_their_way.load(Ordering::SeqCst) > 0 && std::time::Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Proxy {
    pub fn before(server: u16, script: impl Fn(&Asked) -> Spoil + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let count = Arc::new(AtomicUsize::new(0));
        let on_their_way = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&on_their_way);
        let listening = {
            let (ended, seen) = (Arc::clone(&ended), Arc::clone(&seen));
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let (script, seen, count) =
                        (Arc::clone(&script), Arc::clone(&seen), Arc::clone(&count));
                    // A connection that breaks is the test's business only where it says so.
                    let way = OnItsWay::new(&counted);
                    std::thread::spawn(move || {
                        carry(stream, server, &*script, (&seen, &count), way)
                    });
                }
            })
        };
        Self {
            port,
            on_their_way,
            seen,
            ended,
            listening: Some(listening),
        }
    }

    pub fn seen(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }
}

/// A request that may still come to the server.
struct OnItsWay(Arc<AtomicUsize>);

impl OnItsWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The head of a message and what of its body came with it.
fn head_of(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn length_in(head: &str) -> usize {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths
        .next()
        .map_or(0, |(_, value)| value.trim().parse().unwrap())
}

fn carry(
    mut client: TcpStream,
    server: u16,
    script: &Script,
    (seen, count): (&Mutex<Vec<Asked>>, &AtomicUsize),
    way: OnItsWay,
) -> std::io::Result<()> {
    let (head, mut body) = head_of(&mut client)?;
    let length = length_in(&head);
    let mut buffer = [0; 8192];
    while body.len() < length {
        match client.read(&mut buffer)? {
            0 => return Ok(()),
            read => body.extend_from_slice(&buffer[..read]),
        }
    }
    let mut words = head.split(' ');
    let asked = Asked {
        number: count.fetch_add(1, Ordering::SeqCst),
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        head: head.clone(),
    };
    seen.lock().unwrap().push(asked.clone());
    let spoil = script(&asked);
    match &spoil {
        Spoil::Close => return Ok(()),
        Spoil::Stall(time) => {
            drop(way);
            std::thread::sleep(*time);
            return Ok(());
        }
        Spoil::Answer(code, text) => {
            return write!(
                client,
                "HTTP/1.1 {code} Spoiled\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
        }
        _ => {}
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", server))?;
    upstream.write_all(head.as_bytes())?;
    if let Spoil::CutRequest = spoil {
        return upstream.write_all(&body[..body.len() / 2]);
    }
    upstream.write_all(&body)?;
    let (head, mut rest) = head_of(&mut upstream)?;
    upstream.read_to_end(&mut rest)?;
    match spoil {
        Spoil::LoseAnswer => Ok(()),
        Spoil::CutAnswer(at) => {
            client.write_all(head.as_bytes())?;
            client.write_all(&rest[..at.min(rest.len())])
        }
        _ => {
            client.write_all(head.as_bytes())?;
            client.write_all(&rest)
        }
    }
}
