//! The processes of a cluster.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::program;

/// A scheduler and its executors; they end with it.
pub struct Cluster {
    /// Of the scheduler.
    pub address: String,
    folder: PathBuf,
    more: Vec<String>,
    scheduler: Child,
    executors: Vec<Child>,
}

/// Starts a member and waits until it listens; returns where.
fn listening(mut command: Command, log: &Path) -> (Child, String) {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(log)
        .unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    // What it says later is nobody's; it must not be stopped by a full pipe.
    std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
    let address = line.trim().strip_prefix("listening on ");
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, address)
}

/// Waits for the end of a process; none if it does not end in time.
pub fn wait(child: &mut Child, most: Duration) -> Option<i32> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if since.elapsed() > most {
            let _ = child.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Cluster {
    /// A cluster of so many executors with one slot each; `more` are flags of executors.
    pub fn start(folder: &Path, executors: usize, more: &[&str]) -> Self {
        let mut command = program();
        command.args(["scheduler", "--bind", "127.0.0.1:0", "-v"]);
        let (scheduler, address) = listening(command, &folder.join(".scheduler.log"));
        let mut cluster = Self {
            address,
            folder: folder.to_owned(),
            more: more.iter().map(|flag| (*flag).to_owned()).collect(),
            scheduler,
            executors: Vec::new(),
        };
        for _ in 0..executors {
            cluster.add();
        }
        cluster
    }

    /// One more executor.
    pub fn add(&mut self) {
        let number = self.executors.len();
        let mut command = program();
        command.args([
            "executor",
            "--scheduler",
            &self.address,
            "--slots",
            "1",
            "-v",
        ]);
        command
            .arg("--work-dir")
            .arg(self.folder.join(format!("work-{number}")));
        command.args(&self.more);
        let log = self.folder.join(format!(".executor-{number}.log"));
        let (executor, _) = listening(command, &log);
        self.executors.push(executor);
    }

    /// Begins a run on it.
    pub fn begin(&self, files: &[&Path], out: &Path, metrics: &str, more: &[&str]) -> Child {
        let mut command = program();
        command.arg("score").args(files).arg("--out").arg(out);
        command.args([
            "--no-cache",
            "--metrics",
            metrics,
            "--cluster",
            &self.address,
        ]);
        command
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    /// Waits until the run under way has so many markers of a kind: `units` or `buckets`.
    pub fn wait_for(&self, folder: &Path, kind: &str, count: usize) {
        let since = Instant::now();
        loop {
            let entries = std::fs::read_dir(folder).unwrap().flatten();
            let hidden = entries.filter(|e| e.file_name().to_string_lossy().contains("-partial-"));
            let markers = hidden.flat_map(|run| {
                let markers = std::fs::read_dir(run.path().join("work").join(kind));
                markers.into_iter().flatten().flatten()
            });
            let markers = markers.filter(|marker| {
                let name = marker.file_name();
                let name = name.to_string_lossy();
                name.strip_suffix(".json")
                    .is_some_and(|name| name.parse::<u32>().is_ok())
            });
            if markers.count() >= count {
                return;
            }
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "no {count} {kind}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills an executor.
    pub fn kill(&mut self, executor: usize) {
        self.executors[executor].kill().unwrap();
        self.executors[executor].wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.executors.iter_mut().chain([&mut self.scheduler]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
