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
    keys: Option<PathBuf>,
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

/// Waits until the run under way has so many markers of a kind: `units` or `buckets`.
pub fn wait_for(folder: &Path, kind: &str, count: usize) {
    let since = Instant::now();
    loop {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let hidden = entries.filter(|e| e.file_name().to_string_lossy().contains("-partial-"));
        let folders = hidden.flat_map(|run| {
            let folders = std::fs::read_dir(run.path().join("work"));
            folders.into_iter().flatten().flatten()
        });
        let folders = folders.filter(|of| of.file_name().to_string_lossy().starts_with(kind));
        let markers = folders.flat_map(|folder| {
            let markers = std::fs::read_dir(folder.path());
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

impl Cluster {
    /// A cluster of so many executors with one slot each.
    pub fn start(folder: &Path, executors: usize) -> Self {
        let mut cluster = Self::with_keys(folder, None);
        for _ in 0..executors {
            cluster.add(&[]);
        }
        cluster
    }

    /// A scheduler on its own, with these keys.
    pub fn with_keys(folder: &Path, keys: Option<&Path>) -> Self {
        let mut command = program();
        command.args([
            "scheduler",
            "--bind",
            "127.0.0.1:0",
            "--silent-for",
            "8",
            "-v",
        ]);
        if let Some(keys) = keys {
            command.arg("--keys").arg(keys);
        }
        let (scheduler, address) = listening(command, &folder.join("scheduler.log"));
        Self {
            address,
            folder: folder.to_owned(),
            keys: keys.map(Path::to_owned),
            scheduler,
            executors: Vec::new(),
        }
    }

    /// One more executor, with these variables.
    pub fn add(&mut self, variables: &[(&str, &str)]) {
        let command = self.executor(&mut program(), variables);
        self.begin_executor(command);
    }

    /// One more executor, with these flags.
    pub fn add_with(&mut self, flags: &[&str]) {
        let mut command = self.executor(&mut program(), &[]);
        command.args(flags);
        self.begin_executor(command);
    }

    /// One more executor, which can write no file of more than so many kilobytes.
    pub fn add_with_full_disk(&mut self, kilobytes: usize) {
        let mut shell = Command::new("bash");
        crate::support::without_settings(&mut shell);
        // The program is told of it, instead of ended.
        let limited = format!("trap '' XFSZ; ulimit -f {kilobytes}; exec \"$0\" \"$@\"");
        shell.args(["-c", &limited]).arg(program().get_program());
        let command = self.executor(&mut shell, &[]);
        self.begin_executor(command);
    }

    fn executor(&self, command: &mut Command, variables: &[(&str, &str)]) -> Command {
        let mut command = std::mem::replace(command, Command::new(""));
        command.args([
            "executor",
            "--scheduler",
            &self.address,
            "--slots",
            "1",
            "-v",
        ]);
        let number = self.executors.len();
        command
            .arg("--work-dir")
            .arg(self.folder.join(format!("work-{number}")));
        if let Some(keys) = &self.keys {
            command.arg("--keys").arg(keys);
        }
        command.envs(variables.iter().copied());
        command
    }

    fn begin_executor(&mut self, command: Command) {
        let log = self
            .folder
            .join(format!("executor-{}.log", self.executors.len()));
        let (executor, _) = listening(command, &log);
        self.executors.push(executor);
    }

    /// Sends an executor a signal.
    pub fn signal(&self, executor: usize, signal: rustix::process::Signal) {
        let child = rustix::process::Pid::from_child(&self.executors[executor]);
        rustix::process::kill_process(child, signal).unwrap();
    }

    /// Waits until an executor was ended by a signal; whether it was.
    pub fn waits_for_death(&mut self, executor: usize) -> bool {
        use std::os::unix::process::ExitStatusExt;

        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(60) {
            if let Some(ended) = self.executors[executor].try_wait().unwrap() {
                return ended.signal() == Some(9);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Kills the scheduler.
    pub fn kill_scheduler(&mut self) {
        self.scheduler.kill().unwrap();
        self.scheduler.wait().unwrap();
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
        if let Some(keys) = &self.keys {
            command.arg("--cluster-keys").arg(keys);
        }
        let log = std::fs::File::create(self.folder.join("driver.log")).unwrap();
        command.args(more).stdout(Stdio::null()).stderr(log);
        command.spawn().unwrap()
    }

    /// What the last run that was begun has said.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("driver.log")).unwrap()
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
