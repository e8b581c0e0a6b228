//! Inputs from buckets and runs in buckets, with a real server behind a proxy that spoils requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bucket::{Bucket, Proxy, Spoil};
use crate::support::{Ran, nightmill, program};

const SECRET: &str = "night-secret-key-of-tests";

/// The program with credentials for a server, and with a home and a temporary folder of its own.
fn with_bucket(port: u16, home: &Path) -> Command {
    let mut command = program();
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["AWS_", "GOOGLE_", "AZURE_"]
            .iter()
            .any(|cloud| name.starts_with(cloud))
        {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("NO_PROXY", "127.0.0.1")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_ACCESS_KEY_ID", "night-key")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
    command
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Nothing of the program is left in its temporary folder.
#[track_caller]
fn assert_tidy(home: &Path) {
    let left = std::fs::read_dir(home)
        .unwrap()
        .map(|e| e.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().contains("nightmill-r"))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// The bytes of a run's tables.
fn tables(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(run).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.path().extension().is_some_and(|e| e == "parquet"));
    let named = files.map(|entry| {
        let name = entry.path().strip_prefix(run).unwrap().to_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    named.collect()
}

/// A folder of traces with partitions, one of which has a row that can't be read.
fn inputs(folder: &Path) -> PathBuf {
    let inputs = folder.join("traces");
    for (date, lines) in [
        (
            "2026-11-19",
            "{\"trace_id\": \"a\", \"session_id\": \"s\", \"started_at\": \"2026-11-19T01:00:00Z\", \"input\": \"Where is my parcel?\", \"output\": \"It is on its way.\"}\n",
        ),
        (
            "2026-11-20",
            "{\"trace_id\": \"b\", \"session_id\": \"s\", \"started_at\": \"2026-11-20T01:00:00Z\", \"input\": \"And now?\", \"output\": \"It has arrived.\"}\nnot json\n",
        ),
    ] {
        let folder = inputs.join(format!("date={date}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("part-0.jsonl"), lines).unwrap();
    }
    std::fs::write(inputs.join("_SUCCESS"), "").unwrap();
    std::fs::write(inputs.join("notes.txt"), "no traces").unwrap();
    inputs
}

#[test]
fn a_run_from_a_bucket_is_that_of_a_disk_whatever_the_network_does() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let local = inputs(home.path());
    bucket.put_folder(&local, "warehouse/traces");
    let of_disk = home.path().join("of-disk");
    let ran_here = ran(program()
        .args(["score"])
        .arg(&local)
        .arg("--out")
        .arg(&of_disk));
    assert_eq!(ran_here.code, Some(3), "{ran_here:?}");

    // The first answers are errors, one never comes, one is cut.
    let gets = AtomicUsize::new(0);
    let proxy = Proxy::before(bucket.port, move |asked| {
        let reads = asked.method == "GET" && asked.path.contains(".jsonl");
        match (asked.number, reads) {
            (0..3, _) => Spoil::Answer(503, "<Error><Code>SlowDown</Code></Error>".into()),
            (_, true) => match gets.fetch_add(1, Ordering::SeqCst) {
                0 => Spoil::Answer(500, String::new()),
                1 => Spoil::CutAnswer(20),
                2 => Spoil::Stall(Duration::from_secs(40)),
                _ => Spoil::Not,
            },
            _ => Spoil::Not,
        }
    });
    let began = Instant::now();
    for (address, out) in [
        ("s3://night/warehouse/traces", "folder"),
        ("s3://night/warehouse/traces/date=*/*.jsonl", "glob"),
    ] {
        let out = home.path().join(out);
        let mut command = with_bucket(proxy.port, home.path());
        let ran = ran(command.args(["score", address, "--out"]).arg(&out));
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let (of_disk, of_bucket) = (tables(&of_disk), tables(&out));
        assert_eq!(
            of_disk.keys().collect::<Vec<_>>(),
            of_bucket.keys().collect::<Vec<_>>()
        );
        for (name, bytes) in &of_disk {
            // The quarantine names files, and those have other names.
            let quarantine = name.starts_with("quarantine");
            assert!(
                quarantine || bytes == &of_bucket[name],
                "{}",
                name.display()
            );
        }
        let manifest = std::fs::read(out.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let whole = |date: &str| format!("s3://night/warehouse/traces/date={date}/part-0.jsonl");
        assert_eq!(manifest["inputs"][0]["path"], whole("2026-11-19"));
        assert_eq!(manifest["inputs"][1]["path"], whole("2026-11-20"));
        assert_eq!(manifest["request"]["paths"][0], address);
        for file in ["manifest.json", "summary.json", "report.html"] {
            let text = std::fs::read_to_string(out.join(file)).unwrap();
            assert!(!text.contains("nightmill-remote"), "{file} names the copy");
        }
        let summary = std::fs::read_to_string(out.join("summary.json")).unwrap();
        assert!(
            summary.contains(&format!("{} row 1", whole("2026-11-20"))),
            "{summary}"
        );
    }
    // Both 20 s of silence were waited for, and no more of it.
    assert!(
        began.elapsed() > Duration::from_secs(20) && began.elapsed() < Duration::from_secs(120)
    );
    assert!(
        !proxy
            .seen()
            .iter()
            .any(|a| a.path.contains("notes.txt") && a.method == "GET")
    );
    assert_tidy(home.path());
}

#[test]
fn single_files_of_web_servers_are_read_and_their_signatures_are_written_nowhere() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    bucket.put_folder(&inputs(home.path()), "t");
    let out = home.path().join("run");
    let address = format!(
        "http://127.0.0.1:{}/night/t/date=2026-11-19/part-0.jsonl",
        bucket.port
    );
    let signed = format!("{address}?signature=secret-of-the-query");
    let mut command = with_bucket(1, home.path());
    let read = ran(command.args(["score", &signed, "--out"]).arg(&out));
    assert_eq!(read.code, Some(0), "{read:?}");
    let manifest = std::fs::read_to_string(out.join("manifest.json")).unwrap();
    assert!(manifest.contains(&address) && !manifest.contains("secret-of-the-query"));

    let gone = format!(
        "http://127.0.0.1:{}/night/t/none.jsonl?signature=secret-of-the-query",
        bucket.port
    );
    let mut command = with_bucket(1, home.path());
    let read = ran(command
        .args(["score", &gone, "--out"])
        .arg(home.path().join("other")));
    assert_eq!(read.code, Some(2));
    assert!(
        read.stderr.contains("none.jsonl") && !read.stderr.contains("secret-of"),
        "{read:?}"
    );
    assert_tidy(home.path());
}

#[test]
fn missing_and_refused_credentials_say_what_to_set_and_tell_no_secret() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("run");
    let score = |command: &mut Command| {
        let ran = ran(command.args(["score", "s3://night/t", "--out"]).arg(&out));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(!ran.stderr.contains(SECRET), "{}", ran.stderr);
        assert!(ran.stderr.contains("s3://night/t"), "{}", ran.stderr);
        ran.stderr
    };
    let without = || {
        let mut without = with_bucket(1, home.path());
        without
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY");
        without
    };
    let told = score(&mut without());
    assert!(
        told.contains("no credentials") && told.contains("AWS_ACCESS_KEY_ID"),
        "{told}"
    );

    let refusing = Proxy::before(1, |asked| {
        Spoil::Answer(
            403,
            format!(
                "<Error>{} {SECRET}</Error>",
                asked.head.replace("\r\n", " ")
            ),
        )
    });
    let told = score(&mut with_bucket(refusing.port, home.path()));
    assert!(
        told.contains("AWS_PROFILE") && !told.contains("nightmill-remote"),
        "{told}"
    );
    assert!(
        refusing.seen().len() < 4,
        "refused requests are not repeated"
    );

    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(
        home.path().join(".aws/config"),
        "[profile sso]\nsso_session = a\n",
    )
    .unwrap();
    let told = score(without().env("AWS_PROFILE", "sso"));
    assert!(told.contains("export-credentials --profile sso"), "{told}");

    let mut offline = with_bucket(1, home.path());
    let told = score(offline.env("NIGHTMILL_OFFLINE", "true"));
    assert!(told.contains("--offline"), "{told}");
    assert_tidy(home.path());
}

#[test]
fn keys_of_a_profile_are_used() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    bucket.put_folder(&inputs(home.path()), "t");
    let proxy = Proxy::before(bucket.port, |_| Spoil::Not);
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let credentials = "[night]\naws_access_key_id = AK-OF-PROFILE\naws_secret_access_key = sssssssss\naws_session_token = ttttt\n";
    let config = format!(
        "[profile night]\nregion = eu-west-7\nendpoint_url = http://127.0.0.1:{}\n",
        proxy.port
    );
    std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let mut command = with_bucket(1, home.path());
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ENDPOINT_URL",
    ] {
        command.env_remove(name);
    }
    command.env("AWS_PROFILE", "night");
    let file = "s3://night/t/date=2026-11-19/part-0.jsonl";
    let ran = ran(command
        .args(["score", file, "--out"])
        .arg(home.path().join("run")));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let head = proxy.seen()[0].head.to_lowercase();
    assert!(
        head.contains("ak-of-profile") && head.contains("eu-west-7"),
        "{head}"
    );
    assert!(head.contains("x-amz-security-token: ttttt"), "{head}");
}

/// A table of signals: a run over it takes no model.
fn signals(folder: &Path) -> String {
    let file = folder.join("signals.jsonl");
    let rows = (0..4).map(|row| {
        let session = row % 2;
        format!(
            "{{\"trace_id\": \"t{row}\", \"session_id\": \"s{session}\", \"started_at\": \"2026-11-2{row}T01:00:00Z\", \"confidence\": 0.{row}, \"tool_correctness\": 0.5}}\n"
        )
    });
    std::fs::write(&file, rows.collect::<String>()).unwrap();
    file.display().to_string()
}

/// A run that takes no model, into a bucket.
fn aggregate(port: u16, home: &Path, out: &str) -> Command {
    let mut command = with_bucket(port, home);
    command.args(["aggregate", &signals(home), "--out", out]);
    command
}

fn verified(bucket: &Bucket, home: &Path, run: &str) -> Ran {
    let mut command = with_bucket(bucket.port, home);
    ran(command.args(["runs", "verify", run]))
}

#[test]
fn a_run_in_a_bucket_is_whole_and_is_replaced_only_when_asked() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    // An error for each kind of request, a lost answer of the manifest, and a body that is cut.
    let faults = AtomicUsize::new(0);
    let proxy = Proxy::before(bucket.port, move |asked| {
        let manifest = asked.method == "PUT" && asked.path.ends_with("manifest.json");
        match (manifest, asked.number) {
            (true, _) if faults.fetch_add(1, Ordering::SeqCst) == 0 => Spoil::LoseAnswer,
            (_, 0 | 2 | 5) => Spoil::Answer(503, String::new()),
            (_, 7) => Spoil::CutRequest,
            (_, 9) => Spoil::Close,
            _ => Spoil::Not,
        }
    });
    let out = "s3://night/runs/x";
    let made = ran(&mut aggregate(proxy.port, home.path(), out));
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(
        made.stdout.contains("results: s3://night/runs/x\n"),
        "{}",
        made.stdout
    );
    let here = home.path().join("here").display().to_string();
    nightmill(["aggregate", &signals(home.path()), "--out", &here]);
    let mut expected = Vec::new();
    for (name, bytes) in tables(Path::new(&here)) {
        let key = format!("runs/x/{}", name.display());
        assert!(bucket.get(&key) == bytes, "{key}");
        expected.push(key);
    }
    expected.extend([
        "runs/x/manifest.json".to_owned(),
        "runs/x/summary.json".to_owned(),
    ]);
    expected.sort();
    assert_eq!(bucket.keys("runs/x/"), expected);
    let verified_run = verified(&bucket, home.path(), out);
    assert_eq!(verified_run.code, Some(0), "{verified_run:?}");
    assert!(
        verified_run.stdout.contains("s3://night/runs/x: "),
        "{verified_run:?}"
    );
    let mut show = with_bucket(bucket.port, home.path());
    let shown = ran(show.args(["runs", "show", out]));
    assert!(
        shown.code == Some(0) && shown.stdout.contains("aggregate"),
        "{shown:?}"
    );

    let seen = proxy.seen().len();
    let again = ran(&mut aggregate(proxy.port, home.path(), out));
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
    assert!(
        proxy.seen()[seen..]
            .iter()
            .all(|asked| asked.method == "GET")
    );
    let before = bucket.get("runs/x/manifest.json");
    let again = ran(aggregate(proxy.port, home.path(), out).arg("--overwrite"));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_ne!(bucket.get("runs/x/manifest.json"), before);
    assert_eq!(bucket.keys("runs/x/"), expected);
    // A part that changes is seen.
    bucket.put(&expected[1], b"other");
    assert_eq!(verified(&bucket, home.path(), out).code, Some(1));
    assert_tidy(home.path());
}

#[test]
fn a_finished_run_that_cannot_be_put_is_kept_here() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let proxy = Proxy::before(bucket.port, |asked| {
        match asked.path.contains("summary.json") {
            true => Spoil::Answer(403, String::new()),
            false => Spoil::Not,
        }
    });
    let made = ran(&mut aggregate(proxy.port, home.path(), "s3://night/runs/x"));
    assert_eq!(made.code, Some(2), "{made:?}");
    let kept = made
        .stderr
        .split("kept in `")
        .nth(1)
        .unwrap()
        .split('`')
        .next()
        .unwrap();
    let here = nightmill(["runs", "verify", kept]);
    assert_eq!(here.code, Some(0), "{here:?}");
    assert!(
        !bucket
            .keys("runs/x/")
            .contains(&"runs/x/manifest.json".to_owned())
    );
}

/// Makes a run and kills it at a request. Returns false if there was no such request.
fn killed_at(bucket: &Bucket, home: &Path, out: &str, at: usize, further: &[&str]) -> bool {
    let process = Arc::new(AtomicU32::new(0));
    let proxy = {
        let process = Arc::clone(&process);
        Proxy::before(bucket.port, move |asked| {
            if asked.number != at {
                return Spoil::Not;
            }
            // Zero would be this very process and its children.
            while process.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let process = process.load(Ordering::SeqCst).to_string();
            let killed = Command::new("kill").args(["-9", &process]).status();
            assert!(killed.unwrap().success());
            // What is under way at a kill may have come to the server.
            match at % 2 {
                0 => Spoil::Close,
                _ => Spoil::LoseAnswer,
            }
        })
    };
    let mut command = aggregate(proxy.port, home, out);
    command
        .args(further)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    process.store(child.id(), Ordering::SeqCst);
    let status = child.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "{status}");
    !status.success()
}

#[test]
fn killed_at_any_request_there_is_a_whole_run_or_none_and_the_next_run_mends_it() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let out = "s3://night/runs/x";
    let is_there = || {
        bucket
            .keys("runs/x/")
            .contains(&"runs/x/manifest.json".to_owned())
    };
    let (mut killed, mut without) = (0, 0);
    while killed_at(&bucket, home.path(), out, killed, &[]) {
        killed += 1;
        match is_there() {
            // Only the claim was still to go.
            true => {
                assert_eq!(verified(&bucket, home.path(), out).code, Some(0));
                for key in bucket.keys("runs/x/") {
                    bucket.ask("DELETE", &format!("/{key}"), b"");
                }
            }
            false => {
                without += 1;
                assert_eq!(
                    verified(&bucket, home.path(), out).code,
                    Some(2),
                    "no run is one"
                );
            }
        }
    }
    assert!(
        killed > 10 && without > 10,
        "{killed} kills, {without} without a run"
    );
    assert_eq!(verified(&bucket, home.path(), out).code, Some(0));

    // Over a run that is there: the old one, none, or the new one.
    let old = bucket.get("runs/x/manifest.json");
    let (mut at, mut seen) = (0, (0, 0));
    loop {
        let went_on = killed_at(&bucket, home.path(), out, at, &["--overwrite"]);
        match is_there() {
            true => {
                assert_eq!(
                    verified(&bucket, home.path(), out).code,
                    Some(0),
                    "kill {at}"
                );
                if bucket.get("runs/x/manifest.json") == old {
                    seen.0 += 1;
                }
            }
            false => seen.1 += 1,
        }
        if !went_on {
            break;
        }
        at += 1;
    }
    assert!(seen.0 > 2 && seen.1 > 5, "{seen:?} of {at} kills");
    assert_ne!(bucket.get("runs/x/manifest.json"), old);
    // What the killed left here is removed by the next.
    assert_tidy(home.path());
}

#[test]
fn an_import_and_given_signals_may_be_in_a_bucket() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let export = crate::support::root().join("datasets/formats/langfuse.jsonl");
    let export = export.display().to_string();
    let import = |out: &str, more: &[&str]| {
        let mut command = with_bucket(bucket.port, home.path());
        ran(command.args(["import", &export, "--out", out]).args(more))
    };
    let (here, there) = (
        home.path().join("here.parquet"),
        "s3://night/traces/there.parquet",
    );
    let local = import(&here.display().to_string(), &[]);
    assert_eq!(local.code, Some(0), "{local:?}");
    let remote = import(there, &["--json"]);
    assert_eq!(remote.code, Some(0), "{remote:?}");
    let told: Value = serde_json::from_str(&remote.stdout).unwrap();
    assert_eq!(told["out"], there);
    assert_eq!(
        bucket.get("traces/there.parquet"),
        std::fs::read(&here).unwrap()
    );
    assert_tidy(home.path());
    // What is there stays, unless it may go.
    let again = import(there, &[]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(
        again.stderr.contains("there is a file already"),
        "{again:?}"
    );
    let again = import(there, &["--overwrite"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(
        again.stdout.contains(&format!("traces: {there}")),
        "{again:?}"
    );
    let offline = import("s3://night/other.parquet", &["--offline"]);
    assert_eq!(offline.code, Some(2), "{offline:?}");
    assert!(bucket.keys("other").is_empty());

    // A server that takes nothing: the file is kept, and the message says where.
    let refusing = Proxy::before(bucket.port, |asked| match asked.method == "PUT" {
        true => Spoil::Answer(403, "<Error><Code>AccessDenied</Code></Error>".into()),
        false => Spoil::Not,
    });
    let mut command = with_bucket(refusing.port, home.path());
    let refused = ran(command.args(["import", &export, "--out", "s3://night/refused.parquet"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("kept as"), "{refused:?}");
    assert!(bucket.keys("refused").is_empty());

    // Signals out of the bucket are those of the disk.
    let inputs = inputs(home.path());
    let rows = ["a", "b"].map(|id| format!("{{\"trace_id\": \"{id}\", \"confidence\": 0.5, \"coherence\": 1, \"loop_detection\": 1}}\n"));
    let signals = home.path().join("given.jsonl");
    std::fs::write(&signals, rows.concat()).unwrap();
    bucket.put("given/signals.jsonl", rows.concat().as_bytes());
    let score = |signals: &str, out: &str| {
        let out = home.path().join(out);
        let mut command = with_bucket(bucket.port, home.path());
        let ran = ran(command
            .arg("score")
            .arg(&inputs)
            .args(["--signals", signals, "--out"])
            .arg(&out));
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let manifest = std::fs::read(out.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        (tables(&out), manifest)
    };
    let (of_disk, _) = score(&signals.display().to_string(), "of-disk");
    let address = "s3://night/given/signals.jsonl";
    let (of_bucket, manifest) = score(address, "of-bucket");
    assert_eq!(of_disk, of_bucket);
    assert_eq!(manifest["signals"], address);
    assert_eq!(manifest["request"]["settings"]["signals"], address);
    assert!(!manifest.to_string().contains("nightmill-remote"));

    // Monitors read and write here alone, and say so at once.
    let here = home.path().join("runs").display().to_string();
    for (signals, out, told) in [
        (address, here.as_str(), "only local files are read here"),
        (
            "given.jsonl",
            "s3://night/runs",
            "monitors write here alone",
        ),
    ] {
        let mut command = with_bucket(bucket.port, home.path());
        command.args(["monitor", "add", "m"]).arg(&inputs);
        command.args(["--target", "session", "--metrics", "agent_reliability"]);
        command.args(["--cadence", "daily", "--set", &format!("signals={signals}")]);
        command.args(["--out", out, "--monitors"]);
        let monitor = ran(command.arg(home.path().join("monitors")));
        assert_eq!(monitor.code, Some(2), "{monitor:?}");
        assert!(monitor.stderr.contains(told), "{monitor:?}");
    }
    let retry = nightmill(["runs", "retry", "s3://night/runs/x"]);
    assert_eq!(retry.code, Some(2), "{retry:?}");
    assert!(
        retry.stderr.contains("copy the run here first"),
        "{retry:?}"
    );
}

#[test]
fn whoever_is_offline_opens_no_connection_and_passwords_of_endpoints_are_told_nowhere() {
    let home = tempfile::tempdir().unwrap();
    for arguments in [
        &["runs", "show", "s3://night/x"][..],
        &["runs", "verify", "s3://night/x"],
        &[
            "suite",
            "from-traces",
            "s3://night/t",
            "--app",
            "a",
            "--set",
            "s",
            "--out",
            "sets",
        ],
    ] {
        let mut by_variable = with_bucket(1, home.path());
        let by_variable = ran(by_variable.args(arguments).env("NIGHTMILL_OFFLINE", "true"));
        std::fs::write(home.path().join("nightmill.toml"), "offline = true\n").unwrap();
        let mut by_file = with_bucket(1, home.path());
        let by_file = ran(by_file.args(arguments).current_dir(home.path()));
        std::fs::remove_file(home.path().join("nightmill.toml")).unwrap();
        for refused in [by_variable, by_file] {
            assert_eq!(refused.code, Some(2), "{refused:?}");
            assert!(refused.stderr.contains("--offline"), "{refused:?}");
        }
    }
    let refusing = Proxy::before(1, |_| Spoil::Answer(403, String::new()));
    let mut command = with_bucket(refusing.port, home.path());
    let endpoint = format!("http://me:pw-of-endpoint@127.0.0.1:{}", refusing.port);
    command.env("AWS_ENDPOINT_URL", endpoint);
    let refused = ran(command
        .args(["score", "s3://night/t", "--out"])
        .arg(home.path().join("run")));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!refused.stderr.contains("pw-of-endpoint"), "{refused:?}");
}

/// Two lines of OpenTelemetry without sessions, in two folders, and a file that no format claims.
fn exports(folder: &Path) -> PathBuf {
    let exports = folder.join("exports");
    for (place, trace) in [("x", "0"), ("y", "1")] {
        let folder = exports.join(place);
        std::fs::create_dir_all(&folder).unwrap();
        let trajectory = serde_json::json!({"traj_id": trace, "task_id": 1, "reward": 0.0, "info": {}, "trial": 0,
            "traj": [{"role": "user", "content": format!("Where is {place}?")},
                {"role": "assistant", "content": "On its way.", "tool_calls": null}]});
        std::fs::write(folder.join("log.json"), format!("[{trajectory}]\n")).unwrap();
    }
    std::fs::write(exports.join("other.json"), "{\"of\": \"nobody\"}\n").unwrap();
    exports
}

#[test]
fn ids_of_files_in_a_bucket_are_the_same_in_every_run() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    bucket.put_folder(&exports(home.path()), "exports");
    let sessions = |out: &str| -> Vec<String> {
        let out = home.path().join(out);
        let mut command = with_bucket(bucket.port, home.path());
        let ran = ran(command
            .args(["import", "s3://night/exports", "--out"])
            .arg(&out));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.stdout.contains("s3://night/exports/other.json")
                && !ran.stdout.contains("nightmill-remote"),
            "{ran:?}"
        );
        let table = crate::support::read_parquet(&out);
        let ids = table.column_by_name("session_id").unwrap();
        let ids = ids
            .as_any()
            .downcast_ref::<arrow::array::StringArray>()
            .unwrap();
        ids.iter().map(|id| id.unwrap().to_owned()).collect()
    };
    let first = sessions("first.parquet");
    assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
    assert_eq!(sessions("again.parquet"), first);
    let mut command = with_bucket(bucket.port, home.path());
    let told = ran(command.args(["import", "s3://night/exports", "--explain"]));
    assert!(
        told.stdout
            .contains("s3://night/exports/x/log.json: tau-bench")
            && !told.stdout.contains("nightmill-remote"),
        "{told:?}"
    );
}
