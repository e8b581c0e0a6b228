//! A judge on loopback that answers as a script says: chat completions, Anthropic messages, Gemini's
//! generateContent and the batch endpoints, with every fault a network or a provider can show.
//!
//! Blocking sockets, one thread a connection, nothing beyond the standard library and serde_json, so that benches can
//! include this file by `#[path]` and use it as their stub.
#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "each test, and each bench that includes this file, uses a part of it"
)]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Paths are written out because a file included by `#[path]` looks for its modules beside itself.
#[path = "scripted_judge/answer.rs"]
mod answer;
#[path = "scripted_judge/asked.rs"]
mod asked;
#[path = "scripted_judge/batch.rs"]
mod batch;
#[path = "scripted_judge/http.rs"]
mod http;
#[path = "scripted_judge/jsonl.rs"]
mod jsonl;
#[path = "scripted_judge/pass.rs"]
mod pass;
#[path = "scripted_judge/plan.rs"]
mod plan;
#[path = "scripted_judge/server.rs"]
mod server;
#[path = "scripted_judge/shape.rs"]
mod shape;

pub use answer::{Answer, Finish, Reply, Usage};
pub use asked::{Asked, Body, Dialect};
pub use pass::{PassRules, pass_judge, pass_judge_with};
pub use plan::{BatchEnd, BatchPlan, BatchSeen};

use server::{Panic, Server, lock, spawn};

/// A running judge. Dropping it ends every connection and joins every thread; a panic of the script is raised again
/// there, so that an assertion inside a script fails its test.
pub struct ScriptedJudge {
    address: SocketAddr,
    server: Arc<Server>,
    listening: Option<JoinHandle<Option<Panic>>>,
}

impl ScriptedJudge {
    /// Starts a judge on a free port of 127.0.0.1.
    pub fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        match Self::start_at("127.0.0.1:0", script) {
            Ok(judge) => judge,
            Err(error) => panic!("no port of 127.0.0.1 can be listened on: {error}"),
        }
    }

    /// Starts a judge at a given address.
    pub fn start_at(
        address: impl ToSocketAddrs,
        script: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let server = Arc::new(Server::new(Box::new(script)));
        let listening = {
            let server = Arc::clone(&server);
            spawn("judge", move || server.listen(&listener))?
        };
        Ok(Self {
            address,
            server,
            listening: Some(listening),
        })
    }

    /// The base URL of OpenAI-compatible clients, `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.root())
    }

    /// The server without a path, `http://127.0.0.1:PORT`.
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port listened on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every HTTP request so far in order of arrival, those to batch endpoints too.
    pub fn asked(&self) -> Vec<Asked> {
        self.kept(|asked| asked.custom_id.is_none())
    }

    /// Every request that was for a model: HTTP requests and, with a `custom_id`, lines of batches.
    pub fn prompts(&self) -> Vec<Asked> {
        self.kept(|asked| asked.dialect.is_some())
    }

    /// How many requests were for a model; counted even where requests are not kept.
    pub fn prompt_count(&self) -> usize {
        lock(&self.server.log).prompts
    }

    /// The largest number of model requests that were being answered at the same time.
    pub fn most_at_once(&self) -> usize {
        self.server.most_at_once.load(Ordering::SeqCst)
    }

    /// Whether requests are kept for [`ScriptedJudge::asked`] (the default). A bench of memory switches it off.
    pub fn keep_requests(&self, keep: bool) {
        self.server.keeps_requests.store(keep, Ordering::SeqCst);
    }

    /// Puts faults in the way of requests that the script never sees: uploads, polls, downloads. `None` lets one pass.
    pub fn interfere(&self, fault: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) {
        *lock(&self.server.fault) = Some(Arc::new(fault));
    }

    /// Says how batches go, by their number in order of creation from 0. Unless told, a batch is `validating` for one
    /// poll, `in_progress` for one, then `completed`.
    pub fn plan_batches(&self, plan: impl Fn(usize) -> BatchPlan + Send + Sync + 'static) {
        self.server.batches.plan(plan);
    }

    /// Batches created so far.
    pub fn batches(&self) -> Vec<BatchSeen> {
        self.server.batches.seen()
    }

    /// The contents of uploaded files, in order of upload.
    pub fn uploads(&self) -> Vec<Vec<u8>> {
        self.server.batches.uploads()
    }

    fn kept(&self, wanted: impl Fn(&Asked) -> bool) -> Vec<Asked> {
        let log = lock(&self.server.log);
        log.kept.iter().filter(|a| wanted(a)).cloned().collect()
    }
}

impl Drop for ScriptedJudge {
    fn drop(&mut self) {
        self.server.stop();
        let Some(listening) = self.listening.take() else {
            return;
        };
        // The listener sleeps in accept: a connection wakes it. Where no socket is free, one of those ended above is soon.
        while !listening.is_finished() && TcpStream::connect(self.address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let panic = listening.join().unwrap_or_else(Some);
        if let (Some(panic), false) = (panic, std::thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Looks every millisecond whether something holds; false if it does not within `limit`.
pub fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
