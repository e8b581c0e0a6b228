//! Tests of the ledger: one process, and several handles on one file.

use super::super::call::tests::call;
use super::*;

const LABEL: CallLabel<'_> = CallLabel {
    metric: "confidence",
    stage: "score",
};

fn reply() -> Reply {
    Reply {
        text: "{\"confidence\": 0.5}".into(),
        model: "test-1".into(),
        usage: Some(Usage {
            prompt: 10,
            completion: 5,
            cached: 3,
        }),
        cut_off: false,
    }
}

#[test]
fn answers_and_spend_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/ledger.db");
    let (asked, hash) = (call("a"), call("a").hash("here"));
    {
        let ledger = Ledger::open(&path).unwrap();
        assert_eq!(ledger.answer(&hash).unwrap(), None);
        let failed = Attempt {
            status: "timeout",
            message: Some("late"),
            usage: None,
            cost: None,
            latency: Duration::from_millis(7),
        };
        ledger
            .record(&hash, &asked, "here", LABEL, &failed, None)
            .unwrap();
        let answered = Attempt {
            status: "answered",
            message: None,
            usage: reply().usage,
            cost: Some(0.25),
            latency: Duration::from_millis(9),
        };
        ledger
            .record(&hash, &asked, "here", LABEL, &answered, Some(&reply()))
            .unwrap();
        let spend = ledger.spend().unwrap();
        assert_eq!(
            (spend[0].attempts, spend[0].answered, spend[0].prompt_tokens),
            (2, 1, 10)
        );
    }
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.answer(&hash).unwrap(), Some(reply()));
    let taken = Taken {
        latency_ms: Some(9),
        cost: Some(0.25),
    };
    assert_eq!(ledger.taken(&hash).unwrap(), Some(taken));
    assert_eq!(ledger.taken(&call("b").hash("here")).unwrap(), None);
    assert_eq!(ledger.spend().unwrap(), [], "another run's spending");
    assert_eq!(ledger.answers().unwrap(), 1);
}

#[test]
fn a_forgotten_answer_leaves_nothing_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(&path).unwrap();
    let attempt = Attempt {
        status: "answered",
        message: Some("said twice: a secret"),
        usage: None,
        cost: Some(0.25),
        latency: Duration::from_millis(7),
    };
    let said = |text: &str| Reply {
        text: text.into(),
        usage: None,
        ..reply()
    };
    let hashes = ["a", "b"].map(|name| call(name).hash("here"));
    for (name, hash) in ["a", "b"].into_iter().zip(&hashes) {
        let reply = said(&format!("a secret of {name}"));
        let written = ledger.record(hash, &call(name), "here", LABEL, &attempt, Some(&reply));
        written.unwrap();
    }
    ledger.note_calls();
    assert!(ledger.answer(&hashes[0]).unwrap().is_some());
    let noted = ledger.noted_calls();
    assert_eq!(noted, [hashes[0].as_str().to_owned()].into());
    let count = |dry_run| ledger.forget(&noted, dry_run).unwrap().answers;
    assert_eq!([count(true), count(false), count(false)], [1, 1, 0]);
    assert_eq!(ledger.answer(&hashes[0]).unwrap(), None);
    assert_eq!(
        ledger.answer(&hashes[1]).unwrap(),
        Some(said("a secret of b"))
    );
    assert_eq!(ledger.spend().unwrap()[0].cost, 0.5);
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("a secret of a"));
    }
}

#[test]
fn a_file_that_is_no_ledger_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "not a database, only notes ".repeat(100)).unwrap();
    let message = Ledger::open(&path).unwrap_err().to_string();
    assert!(
        message.contains("notes.txt") && message.contains("--ledger"),
        "{message}"
    );
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let before = std::fs::read(&foreign).unwrap();
    let message = Ledger::open(&foreign).unwrap_err().to_string();
    assert!(message.contains("something else"), "{message}");
    assert!(Ledger::open(folder.path()).is_err());
    assert_eq!(
        before.len(),
        std::fs::read(&foreign).unwrap().len(),
        "tables were made"
    );
    let later = folder.path().join("later.db");
    drop(Ledger::open(&later).unwrap());
    Connection::open(&later)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    assert!(
        Ledger::open(&later)
            .unwrap_err()
            .to_string()
            .contains("later nightmill")
    );
}

/// Whatever it holds and in whatever mode: not a byte of a foreign database changes, and it is called foreign.
#[test]
fn a_foreign_database_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (name, made) in [
        ("plain", "CREATE TABLE t (x)"),
        ("later", "CREATE TABLE t (x); PRAGMA user_version = 99"),
        (
            "marked",
            "PRAGMA application_id = 7; PRAGMA user_version = 99",
        ),
        ("logged", "PRAGMA journal_mode = WAL; CREATE TABLE t (x)"),
    ] {
        let path = folder.path().join(name);
        let open = Connection::open(&path).unwrap();
        open.execute_batch(made).unwrap();
        if name == "logged" {
            // As a killed program leaves its log.
            std::mem::forget(open);
        }
        let before = std::fs::read(&path).unwrap();
        let beside = std::fs::read_dir(folder.path()).unwrap().count();
        for opened in [Ledger::open(&path), Ledger::open_to_read(&path)] {
            let message = opened.unwrap_err().to_string();
            assert!(message.contains("something else"), "{name}: {message}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{name}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), beside);
    }
}

/// Replies of earlier versions that were none: gone where the ledger can be written, and not found where it can't.
#[test]
fn empty_replies_of_responses_without_a_message_are_no_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let none = Reply {
        text: String::new(),
        usage: None,
        ..reply()
    };
    let empty = Reply {
        text: String::new(),
        ..reply()
    };
    let kept = [("none", &none), ("empty", &empty), ("good", &reply())];
    {
        let ledger = Ledger::open(&path).unwrap();
        for (asked, reply) in kept {
            let attempt = Attempt {
                status: "answered",
                message: None,
                usage: reply.usage,
                cost: None,
                latency: Duration::ZERO,
            };
            let (call, hash) = (call(asked), call(asked).hash("here"));
            ledger
                .record(&hash, &call, "here", LABEL, &attempt, Some(reply))
                .unwrap();
        }
        let answer = ledger.answer(&call("none").hash("here")).unwrap();
        assert_eq!(answer, Some(none.clone()), "one of this version");
    }
    let as_before = Connection::open(&path).unwrap();
    as_before.pragma_update(None, "user_version", 3).unwrap();
    as_before.close().unwrap();
    let found = |ledger: &Ledger| {
        kept.map(|(asked, _)| ledger.answer(&call(asked).hash("here")).unwrap().is_some())
    };
    let blocked = folder.path().join("ledger.db-shm");
    std::os::unix::fs::symlink("/nowhere/at-all", &blocked).unwrap();
    assert_eq!(
        found(&Ledger::open_to_read(&path).unwrap()),
        [false, true, true]
    );
    std::fs::remove_file(&blocked).unwrap();
    assert_eq!(found(&Ledger::open(&path).unwrap()), [false, true, true]);
}

/// Where SQLite's files beside the ledger can't be made, as on read-only media.
#[test]
fn a_ledger_that_cannot_be_written_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger ?#%.db");
    let (asked, hash) = (call("a"), call("a").hash("here"));
    let answered = Attempt {
        status: "answered",
        message: None,
        usage: reply().usage,
        cost: None,
        latency: Duration::ZERO,
    };
    let writing = Ledger::open(&path).unwrap();
    writing
        .record(&hash, &asked, "here", LABEL, &answered, Some(&reply()))
        .unwrap();
    drop(writing);
    let blocked = folder.path().join("ledger ?#%.db-shm");
    std::os::unix::fs::symlink("/nowhere/at-all", &blocked).unwrap();
    assert!(Ledger::open(&path).is_err());
    let reading = Ledger::open_to_read(&path).unwrap();
    assert_eq!(reading.answer(&hash).unwrap(), Some(reply()));
    assert!(!reading.asked_elsewhere(&hash).unwrap());
    assert_eq!(reading.in_batch(&hash).unwrap(), None);
    assert!(reading.claim(&call("b").hash("here")).is_err());
    // Answers that are not in the file yet would be missed.
    std::fs::write(folder.path().join("ledger ?#%.db-wal"), "not empty").unwrap();
    let message = Ledger::open_to_read(&path).unwrap_err().to_string();
    assert!(message.contains("-wal"), "{message}");
}

fn rows(ledger: &Ledger) -> u64 {
    let connection = ledger.connection();
    let count = connection.query_row("SELECT count(*) FROM claims", [], |row| row.get(0));
    count.unwrap()
}

fn files_of_runs(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().contains("run-"))
        .count()
}

#[test]
fn a_question_is_claimed_by_one_run_until_it_is_answered_or_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let [one, other] = [(); 2].map(|()| Ledger::open(&path).unwrap());
    let [a, b] = ["a", "b"].map(|user| call(user).hash("here"));
    assert_eq!(files_of_runs(folder.path()), 0, "a run without claims");
    let claim = one.claim(&a).unwrap().unwrap();
    assert!(other.claim(&a).unwrap().is_none());
    let claim_b = other.claim(&b).unwrap().unwrap();
    assert!(one.claim(&b).unwrap().is_none());
    drop(claim_b);
    drop(claim);
    assert_eq!(rows(&one), 0);

    let claim = other.claim(&a).unwrap().unwrap();
    assert!(one.claim(&a).unwrap().is_none());
    let answered = Attempt {
        status: "answered",
        message: None,
        usage: None,
        cost: None,
        latency: Duration::ZERO,
    };
    other
        .record(&a, &call("a"), "here", LABEL, &answered, Some(&reply()))
        .unwrap();
    claim.leave();
    assert_eq!(rows(&one), 0, "an answered question is still claimed");

    one.claim(&a).unwrap().unwrap().leave();
    one.claim(&b).unwrap().unwrap().leave();
    assert_eq!(rows(&other), 2);
    one.release_claims().unwrap();
    assert_eq!(rows(&other), 0);
    drop((one, other));
    assert_eq!(files_of_runs(folder.path()), 0);
}

#[test]
fn claims_and_files_of_dead_runs_are_free() {
    const DEAD: &str = "20260101T000000.000000-1-0";
    const IDLE: &str = "20260101T000000.000000-2-0";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let file_of = |run: &str| folder.path().join(format!("ledger.db.run-{run}"));
    let [a, b] = ["a", "b"].map(|user| call(user).hash("here"));
    let leave_claims = |ledger: &Ledger| {
        let claims = "INSERT INTO claims VALUES (?1, ?3), (?2, ?3)";
        let inserted = ledger
            .connection()
            .execute(claims, [a.as_str(), b.as_str(), DEAD]);
        assert_eq!(inserted.unwrap(), 2);
        // As a kill leaves it: there, and locked by nobody.
        std::fs::write(file_of(DEAD), "").unwrap();
        std::fs::write(file_of(IDLE), "").unwrap();
    };
    // At a run's first claim all is tidied up.
    let first = Ledger::open(&path).unwrap();
    leave_claims(&first);
    assert!(!first.asked_elsewhere(&a).unwrap());
    let claim = first.claim(&a).unwrap().unwrap();
    assert_eq!((rows(&first), files_of_runs(folder.path())), (1, 1));
    drop(claim);
    // Later, what is in the way.
    leave_claims(&first);
    let claim = first.claim(&b).unwrap().unwrap();
    assert_eq!((rows(&first), files_of_runs(folder.path())), (1, 2));
    drop(claim);
    // A run that is dead without a file.
    leave_claims(&first);
    std::fs::remove_file(file_of(DEAD)).unwrap();
    assert!(first.claim(&a).unwrap().is_some());
}

#[test]
fn files_of_others_beside_a_ledger_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let named = |rest: &str| folder.path().join(format!("ledger.db.run-{rest}"));
    let others = [
        "2",
        "1.backup",
        "20260101T000000.000000-1",
        "x-1-0",
        "20260101T000000.00000x-1-0",
    ];
    for other in others {
        std::fs::write(named(other), "").unwrap();
    }
    let full = named("20260101T000000.000000-3-0");
    std::fs::write(&full, "precious").unwrap();
    let folder_of_that_name = named("20260101T000000.000000-4-0");
    std::fs::create_dir(&folder_of_that_name).unwrap();
    let ledger = Ledger::open(&path).unwrap();
    drop(ledger.claim(&call("a").hash("here")).unwrap().unwrap());
    assert!(others.iter().all(|other| named(other).exists()));
    assert!(full.exists() && folder_of_that_name.exists());
    drop(ledger);
    assert_eq!(files_of_runs(folder.path()), others.len() + 2);
}

#[cfg(unix)]
#[test]
fn whoever_may_open_the_ledger_may_open_the_files_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    drop(Ledger::open(&path).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).unwrap();
    let ledger = Ledger::open(&path).unwrap();
    drop(ledger.claim(&call("a").hash("here")).unwrap().unwrap());
    let sign = ledger.life_file(&ledger.run);
    assert_eq!(
        std::fs::metadata(sign).unwrap().permissions().mode() & 0o777,
        0o664
    );
}

#[cfg(unix)]
#[test]
fn a_claim_holds_by_whatever_path_the_ledger_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (
        folder.path().join("ledger.db"),
        folder.path().join("deep/link.db"),
    );
    let one = Ledger::open(&path).unwrap();
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let other = Ledger::open(&link).unwrap();
    let a = call("a").hash("here");
    let claim = one.claim(&a).unwrap().unwrap();
    assert!(other.claim(&a).unwrap().is_none());
    drop(claim);
    assert!(other.claim(&a).unwrap().is_some());
    assert_eq!(one.beside(".batches.lock"), other.beside(".batches.lock"));
}

#[test]
fn processes_that_make_one_ledger_at_once_all_get_it() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40 {
        let path = folder.path().join(format!("{round}.db"));
        let start = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    start.wait();
                    // Opened, used and closed, so that it is also met without a log beside it.
                    Ledger::open(&path).unwrap();
                    Ledger::open_to_read(&path).unwrap();
                });
            }
        });
    }
}
