//! `nightmill models pull`, against a server that speaks the hub's interface, and fails as networks do.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{ended, models, shown, vectors};
use crate::support::golden_path;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a hub does wrong.
#[derive(Default)]
struct Faults {
    /// Connections of weights that break off after so many bytes, one after the other.
    breaks: Vec<usize>,
    /// Requests that are answered with 503 first.
    busy: usize,
    /// Sums of weights are of something else.
    wrong_sum: bool,
    /// Parts are not served: every answer is whole.
    no_ranges: bool,
    /// Only requests with this token are answered.
    token: Option<&'static str>,
}

struct Hub {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Hub {
    /// Serves a folder as `tiny/model`, with more files beside.
    fn serve(folder: &Path, more: &[(&str, &[u8])], faults: Faults) -> Self {
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in walkdir::WalkDir::new(folder).into_iter().flatten() {
            if entry.file_type().is_file() {
                let name = entry.path().strip_prefix(folder).unwrap();
                files.insert(shown(name), std::fs::read(entry.path()).unwrap());
            }
        }
        for (name, bytes) in more {
            files.insert((*name).to_owned(), bytes.to_vec());
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (faults, log) = (Mutex::new(faults), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &files, &faults, &log);
            }
        });
        Self { address, asked }
    }

    fn asked(&self, part: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

fn told(files: &BTreeMap<String, Vec<u8>>, faults: &Faults) -> Value {
    let siblings = files.iter().map(|(name, bytes)| {
        if name.ends_with(".safetensors") {
            let mut sum = hex(&Sha256::digest(bytes));
            if faults.wrong_sum {
                sum = sum.replace(|_| true, "0");
            }
            return json!({"rfilename": name, "size": bytes.len(), "blobId": "x",
                          "lfs": {"sha256": sum, "size": bytes.len(), "pointerSize": 130}});
        }
        let blob = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
        json!({"rfilename": name, "size": bytes.len(), "blobId": hex(&Sha1::digest(&blob))})
    });
    json!({"id": "tiny/model", "sha": COMMIT, "siblings": siblings.collect::<Vec<_>>()})
}

fn answer(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    faults: &Mutex<Faults>,
    log: &Mutex<Vec<String>>,
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let header = |name: &str| {
        let mut found = headers.iter().filter_map(|line| line.split_once(": "));
        found
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let range = header("range");
    log.lock()
        .unwrap()
        .push(format!("{path} {}", range.clone().unwrap_or_default()));
    let mut faults = faults.lock().unwrap();
    let mut reply = |status: &str, more: &str, body: &[u8], sent: usize| {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n",
            body.len()
        );
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&body[..sent.min(body.len())]);
        let _ = stream.flush();
    };
    if faults
        .token
        .is_some_and(|token| header("authorization") != Some(format!("Bearer {token}")))
    {
        return reply("401 Unauthorized", "", b"", 0);
    }
    if faults.busy > 0 {
        faults.busy -= 1;
        return reply("503 Service Unavailable", "", b"", 0);
    }
    if path.starts_with("/api/models/tiny/model/revision/") {
        let revision = path.rsplit('/').next().unwrap_or_default();
        if !revision.starts_with("main?") && !revision.starts_with("v1?") {
            return reply("404 Not Found", "", b"", 0);
        }
        let body = told(files, &faults).to_string();
        return reply(
            "200 OK",
            "Content-Type: application/json\r\n",
            body.as_bytes(),
            usize::MAX,
        );
    }
    let name = path.strip_prefix(&format!("/tiny/model/resolve/{COMMIT}/"));
    let Some(bytes) = name.and_then(|name| files.get(name)) else {
        return reply("404 Not Found", "", b"", 0);
    };
    let from = range.filter(|_| !faults.no_ranges);
    let from = from.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    });
    let mut sent = usize::MAX;
    if path.ends_with("model.safetensors") && !faults.breaks.is_empty() {
        sent = faults.breaks.remove(0);
    }
    match from {
        None => reply("200 OK", "", bytes, sent),
        Some(from) => {
            let range = format!(
                "Content-Range: bytes {from}-{}/{}\r\n",
                bytes.len() - 1,
                bytes.len()
            );
            let from: usize = from;
            reply("206 Partial Content", &range, &bytes[from..], sent);
        }
    }
}

fn pull(library: &Path, hub: &Hub, id: &str) -> std::process::Command {
    let mut command = models(library, &["pull", id, "--endpoint", &hub.address]);
    command.env_remove("HF_TOKEN").env_remove("HF_ENDPOINT");
    command
}

#[test]
fn a_pull_goes_on_where_it_broke_off_and_is_what_the_hub_has() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden_path("sentence-transformers/cls");
    let more: [(&str, &[u8]); 4] = [
        ("README.md", b"---\nlicense: mit\n---\nTiny.\n"),
        ("pytorch_model.bin", b"code"),
        ("onnx/config.json", b"{}"),
        ("run.py", b"code"),
    ];
    let faults = Faults {
        breaks: vec![100_000, 50_000],
        busy: 2,
        ..Faults::default()
    };
    let hub = Hub::serve(&source, &more, faults);
    let library = folder.path().join("models");
    let (said, _) = ended(&mut pull(&library, &hub, "tiny/model"), 0);
    assert!(
        said.contains(&format!("at revision {COMMIT}, licence mit")),
        "{said}"
    );
    let weights = hub.asked("model.safetensors");
    let ranges: Vec<&str> = weights
        .iter()
        .map(|line| line.split(' ').next_back().unwrap())
        .collect();
    assert_eq!(ranges, ["", "bytes=100000-", "bytes=150000-"]);
    let place = library.join("tiny/model");
    for left_out in ["pytorch_model.bin", "onnx", "run.py", ".lock"] {
        assert!(!place.join(left_out).exists(), "{left_out}");
    }
    assert_eq!(vectors(&place), vectors(&source));
    let (said, _) = ended(&mut models(&library, &["verify"]), 0);
    assert!(said.contains("as they came"), "{said}");
    let (said, _) = ended(&mut models(&library, &["info", "tiny/model"]), 0);
    assert!(
        said.contains(COMMIT) && said.contains(&hub.address),
        "{said}"
    );
    let (_, problem) = ended(&mut pull(&library, &hub, "tiny/model"), 2);
    assert!(problem.contains("--overwrite"), "{problem}");
    let left: Vec<_> = std::fs::read_dir(&library)
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left, ["tiny"]);
}

#[test]
fn a_pull_that_is_given_up_stays_for_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden_path("sentence-transformers/cls");
    let library = folder.path().join("models");
    let faults = Faults {
        breaks: vec![60_000, 0, 0, 0, 0, 0],
        ..Faults::default()
    };
    let hub = Hub::serve(&source, &[], faults);
    let (_, problem) = ended(&mut pull(&library, &hub, "tiny/model@v1"), 2);
    assert!(problem.contains("stays for the next pull"), "{problem}");
    assert!(!library.join("tiny").exists());
    ended(&mut pull(&library, &hub, "tiny/model@v1"), 0);
    let last = hub.asked("model.safetensors").pop().unwrap();
    assert!(last.ends_with("bytes=60000-"), "{last}");
}

#[test]
fn what_is_not_what_the_hub_says_does_not_come_in() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden_path("sentence-transformers/cls");
    let library = folder.path().join("models");
    let hub = |faults| Hub::serve(&source, &[], faults);
    let wrong = hub(Faults {
        wrong_sum: true,
        ..Faults::default()
    });
    let (_, problem) = ended(&mut pull(&library, &wrong, "tiny/model"), 2);
    assert!(problem.contains("not what the hub says"), "{problem}");
    assert!(!library.join("tiny").exists());

    let fine = hub(Faults::default());
    for (id, why) in [
        ("tiny/other", "no such model"),
        ("tiny/model@nowhere", "no such revision"),
        ("../tiny", "no id of a model"),
        ("tiny/model@../x", "no revision"),
    ] {
        let (_, problem) = ended(&mut pull(&library, &fine, id), 2);
        assert!(problem.contains(why), "{id}: {problem}");
    }
    let mut offline = pull(&library, &fine, "tiny/model");
    let (_, problem) = ended(offline.arg("--offline"), 2);
    assert!(problem.contains("models import"), "{problem}");
    let mut offline = pull(&library, &fine, "tiny/model");
    let (_, problem) = ended(offline.env("NIGHTMILL_OFFLINE", "true"), 2);
    assert!(problem.contains("--offline"), "{problem}");

    let closed = hub(Faults {
        token: Some("secret"),
        ..Faults::default()
    });
    let (_, problem) = ended(&mut pull(&library, &closed, "tiny/model"), 2);
    assert!(problem.contains("HF_TOKEN"), "{problem}");
    // A server that knows no parts sends all of it again.
    let whole = hub(Faults {
        no_ranges: true,
        breaks: vec![1000],
        ..Faults::default()
    });
    ended(&mut pull(&library, &whole, "tiny/model"), 0);
    let mut told = pull(&library, &closed, "tiny/model");
    ended(told.arg("--overwrite").env("HF_TOKEN", "secret"), 0);
    let empty = Hub::serve(
        &folder.path().join("none"),
        &[("config.json", b"{}"), ("pytorch_model.bin", b"x")],
        Faults::default(),
    );
    let (_, problem) = ended(pull(&library, &empty, "tiny/model").arg("--overwrite"), 2);
    assert!(problem.contains("no model.safetensors"), "{problem}");
}
