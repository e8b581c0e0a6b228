//! The server, and looking at what is in it without the program.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The bucket that every server has.
pub const NAME: &str = "night";

/// The server wants a signature, and does not look at it.
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// A running server with one bucket. It ends when this is dropped.
pub struct Bucket {
    process: Child,
    pub port: u16,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bucket {
    /// Starts a server; none where there is no moto, which is an error where `NIGHTMILL_REQUIRE_S3` is set.
    pub fn start() -> Option<Self> {
        let python =
            std::env::var("NIGHTMILL_S3_PYTHON").or_else(|_| std::env::var("NIGHTMILL_PYTHON"));
        let python = python.unwrap_or_else(|_| "python3".into());
        let there = Command::new(&python)
            .args(["-c", "import moto.server, flask, flask_cors"])
            .output();
        if !there.is_ok_and(|o| o.status.success()) {
            assert!(
                std::env::var_os("NIGHTMILL_REQUIRE_S3").is_none(),
                "{python} lacks moto[s3], flask and flask-cors"
            );
            eprintln!(
                "SKIPPED, no bucket was tested: {python} lacks moto[s3], flask and flask-cors"
            );
            return None;
        }
        // Another process may take a port between looking and listening.
        (0..5)
            .find_map(|_| Self::start_with(&python))
            .or_else(|| panic!("moto does not start"))
    }

    fn start_with(python: &str) -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new(python)
            .args([
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                &port.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut bucket = Self { process, port };
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if bucket.process.try_wait().unwrap().is_some() || Instant::now() > until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let (code, _) = bucket.ask("PUT", "", b"");
        (code == 200).then_some(bucket)
    }

    /// Asks the server itself.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} /{NAME}{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Content-Type: application/octet-stream\r\nx-amz-acl: public-read\r\nAuthorization: {SIGNED}\r\n\r\n",
            self.port,
            body.len()
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let code = std::str::from_utf8(&answer[9..12])
            .unwrap()
            .parse()
            .unwrap();
        (code, answer[end + 4..].to_vec())
    }

    pub fn put(&self, key: &str, bytes: &[u8]) {
        let (code, answer) = self.ask("PUT", &format!("/{key}"), bytes);
        assert_eq!(code, 200, "{key}: {}", String::from_utf8_lossy(&answer));
    }

    pub fn get(&self, key: &str) -> Vec<u8> {
        let (code, bytes) = self.ask("GET", &format!("/{key}"), b"");
        assert_eq!(code, 200, "{key}");
        bytes
    }

    /// The keys below a prefix.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let (code, listing) = self.ask("GET", &format!("?list-type=2&prefix={prefix}"), b"");
        assert_eq!(code, 200);
        let listing = String::from_utf8(listing).unwrap();
        assert!(!listing.contains("<IsTruncated>true"), "{listing}");
        let keys = listing.split("<Key>").skip(1);
        keys.map(|rest| rest.split("</Key>").next().unwrap().to_owned())
            .collect()
    }

    /// Puts all files below a local folder.
    pub fn put_folder(&self, folder: &std::path::Path, prefix: &str) {
        for entry in walkdir::WalkDir::new(folder)
            .into_iter()
            .map(Result::unwrap)
        {
            if entry.file_type().is_file() {
                let name = entry.path().strip_prefix(folder).unwrap().display();
                self.put(
                    &format!("{prefix}/{name}"),
                    &std::fs::read(entry.path()).unwrap(),
                );
            }
        }
    }
}
