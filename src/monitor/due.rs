//! Ticks: running what is due (as in PandaProbe).
//!
//! A tick is a command that any scheduler calls every few minutes. For each monitor that is due, the
//! time of its next run is stored first: a run that crashes is not tried again and again.

use std::path::PathBuf;

use chrono::{DateTime, Utc};

use super::cadence::CadenceError;
use super::record::{FileMark, Monitor, MonitorError};
use super::store::{MonitorStore, StoreError};

/// What a tick needs of the program: the files of a monitor, and the run itself.
pub trait RunMonitor {
    /// The files that the monitor's paths lead to, as they are now. See [`FileMark::of`].
    ///
    /// # Errors
    /// Why they can't be listed.
    fn files(&mut self, monitor: &Monitor) -> Result<Vec<FileMark>, String>;

    /// Runs the monitor and returns the id of the run. `order` tells which files are new. None if no
    /// matching trace turned out to be new, which counts as passed over; [`Order::only_if_new`] tells
    /// whether that may be.
    ///
    /// # Errors
    /// Why the run failed as a whole. Then the same files are new next time, too.
    fn run(&mut self, monitor: &Monitor, order: &Order) -> Result<Option<RunMade>, String>;
}

/// A run that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMade {
    /// Its id.
    pub id: String,
    /// Whether something of it waits for a later run: a cap was reached, a batch is not back, or the judge was silent. Then the same files are new next
    /// time, too.
    pub pending: bool,
}

/// A run to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The instant for which it runs: the `now` of the tick.
    pub now: DateTime<Utc>,
    /// Files that are new or changed since the last run.
    pub changed: Vec<PathBuf>,
    /// Whether the run is to be passed over if no trace that matches the filters is in `changed`.
    pub only_if_new: bool,
}

/// What is to be done with a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run it.
    Run(Order),
    /// It is due, but no file is new or changed since its last run.
    SkippedUnchanged,
    /// It is paused, or its time has not come.
    NotDue,
}

/// Decides about a monitor, given its files as they are at `now`.
pub fn decide(monitor: &Monitor, now: DateTime<Utc>, files: &[FileMark]) -> Decision {
    if !monitor.is_due(now) {
        return Decision::NotDue;
    }
    let order = order(monitor, now, files);
    if order.only_if_new && order.changed.is_empty() {
        return Decision::SkippedUnchanged;
    }
    Decision::Run(order)
}

fn order(monitor: &Monitor, now: DateTime<Utc>, files: &[FileMark]) -> Order {
    Order {
        now,
        changed: changed_files(&monitor.seen, files),
        only_if_new: monitor.only_if_changed && monitor.last_run_at.is_some(),
    }
}

/// Files that are not as they were seen: new ones, grown ones, and ones written anew. A file that is gone
/// is no change: no trace is new by it. Row counts are compared only where both are known.
pub fn changed_files(seen: &[FileMark], files: &[FileMark]) -> Vec<PathBuf> {
    let seen: std::collections::HashMap<_, _> = seen
        .iter()
        .map(|mark| (mark.path.as_path(), mark))
        .collect();
    files
        .iter()
        .filter(|file| {
            seen.get(file.path.as_path()).is_none_or(|seen| {
                (seen.size, seen.modified) != (file.size, file.modified)
                    || seen.rows.zip(file.rows).is_some_and(|(a, b)| a != b)
            })
        })
        .map(|file| file.path.clone())
        .collect()
}

impl FileMark {
    /// The mark of a file as it is now, without its row count.
    ///
    /// # Errors
    /// If the system tells nothing about the file.
    pub fn of(path: PathBuf) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(&path)?;
        Ok(Self {
            size: metadata.len(),
            modified: metadata.modified()?.into(),
            rows: None,
            path,
        })
    }
}

/// How a monitor fared in a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran; the id of the run.
    Ran(String),
    /// Nothing new since its last run.
    SkippedUnchanged,
    /// Its time has not come, or it is paused.
    NotDue,
    /// Another process is running it. It stays due.
    Running,
    /// It did not run, or its run failed; why. It is due again at the next time of its cadence.
    Failed(String),
}

/// How the monitors of a folder fared.
#[derive(Debug)]
pub struct TickReport {
    /// Id and outcome of every monitor: those that were due first, longest waiting first, then the others by
    /// id.
    pub outcomes: Vec<(String, Outcome)>,
    /// Files of the folder that are no monitors.
    pub damaged: Vec<StoreError>,
}

/// Runs every monitor that is due at `now`, one after the other. One that fails stops no other.
///
/// # Errors
/// [`StoreError`] if the folder can't be listed.
pub fn tick(
    store: &MonitorStore,
    now: DateTime<Utc>,
    runner: &mut impl RunMonitor,
) -> Result<TickReport, StoreError> {
    let listing = store.list()?;
    let (mut due, others): (Vec<Monitor>, Vec<Monitor>) =
        listing.monitors.into_iter().partition(|m| m.is_due(now));
    due.sort_by(|a, b| (a.next_run_at, &a.id).cmp(&(b.next_run_at, &b.id)));
    let mut outcomes = Vec::new();
    for monitor in due {
        let outcome = run_if_due(store, &monitor.id, now, runner)
            .unwrap_or_else(|error| Outcome::Failed(error.to_string()));
        outcomes.push((monitor.id, outcome));
    }
    outcomes.extend(others.into_iter().map(|m| (m.id, Outcome::NotDue)));
    Ok(TickReport {
        outcomes,
        damaged: listing.damaged,
    })
}

/// Runs a monitor (given by id or name) at once: due or not, paused or not, changed or not. Its cadence
/// counts from `now`.
///
/// # Errors
/// [`StoreError::Running`] if it is running, or that its record can't be found, read or written.
pub fn trigger(
    store: &MonitorStore,
    id_or_name: &str,
    now: DateTime<Utc>,
    runner: &mut impl RunMonitor,
) -> Result<Outcome, StoreError> {
    let id = store.find(id_or_name)?.id;
    let _lock = store
        .try_lock_run(&id)?
        .ok_or_else(|| StoreError::Running(id.clone()))?;
    let monitor = store.update(&id, |monitor| {
        monitor.advance(now).map_err(StoreError::from)
    })?;
    let files = match runner.files(&monitor) {
        Ok(files) => files,
        Err(problem) => return Ok(Outcome::Failed(problem)),
    };
    let order = Order {
        only_if_new: false,
        ..order(&monitor, now, &files)
    };
    run(store, &monitor, &order, files, runner)
}

fn run_if_due(
    store: &MonitorStore,
    id: &str,
    now: DateTime<Utc>,
    runner: &mut impl RunMonitor,
) -> Result<Outcome, StoreError> {
    let Some(_lock) = store.try_lock_run(id)? else {
        return Ok(Outcome::Running);
    };
    // As it was before its time moved on; none if another process ran, paused or removed it meanwhile.
    let mut before = None;
    let updated = store.update(id, |monitor| {
        if monitor.is_due(now) {
            before = Some(monitor.clone());
            monitor.advance(now)?;
        }
        Ok::<_, StoreError>(())
    });
    match updated {
        Ok(_) => {}
        Err(StoreError::Missing { .. }) => return Ok(Outcome::NotDue),
        Err(error) => return Err(error),
    }
    let Some(monitor) = before else {
        return Ok(Outcome::NotDue);
    };
    // Before the run: what is written while it runs is new next time.
    let files = match runner.files(&monitor) {
        Ok(files) => files,
        Err(problem) => return Ok(Outcome::Failed(problem)),
    };
    match decide(&monitor, now, &files) {
        Decision::Run(order) => run(store, &monitor, &order, files, runner),
        Decision::SkippedUnchanged => Ok(Outcome::SkippedUnchanged),
        Decision::NotDue => Ok(Outcome::NotDue),
    }
}

fn run(
    store: &MonitorStore,
    monitor: &Monitor,
    order: &Order,
    files: Vec<FileMark>,
    runner: &mut impl RunMonitor,
) -> Result<Outcome, StoreError> {
    let made = match runner.run(monitor, order) {
        Ok(Some(made)) => made,
        Ok(None) => return Ok(Outcome::SkippedUnchanged),
        Err(problem) => return Ok(Outcome::Failed(problem)),
    };
    let run_id = made.id;
    let stored = store.update(&monitor.id, |monitor| {
        let seen = match made.pending {
            true => monitor.seen.clone(),
            false => files,
        };
        monitor.finish(run_id.clone(), order.now, seen);
        Ok::<_, StoreError>(())
    });
    Ok(match stored {
        Ok(_) => Outcome::Ran(run_id),
        Err(error) => Outcome::Failed(format!(
            "the run `{run_id}` is complete, but the monitor does not know of it: {error}"
        )),
    })
}

impl From<CadenceError> for StoreError {
    fn from(error: CadenceError) -> Self {
        Self::Refused(MonitorError::Cadence(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::samples::{at, created};
    use super::*;
    use serde_json::json;

    fn mark(path: &str, size: u64, second: u32) -> FileMark {
        FileMark {
            path: path.into(),
            size,
            modified: at(&format!("2026-01-01T00:00:{second:02}Z")),
            rows: None,
        }
    }

    /// Notes what it is asked to do, and what the store held at that moment.
    struct Recorder<'a> {
        store: &'a MonitorStore,
        files: Result<Vec<FileMark>, String>,
        result: Result<Option<RunMade>, String>,
        runs: Vec<(String, Order)>,
        next_run_at: Option<DateTime<Utc>>,
    }

    impl<'a> Recorder<'a> {
        fn new(store: &'a MonitorStore) -> Self {
            Self {
                store,
                files: Ok(vec![mark("/data/a", 10, 0)]),
                result: Ok(Some(RunMade {
                    id: "run-1".into(),
                    pending: false,
                })),
                runs: Vec::new(),
                next_run_at: None,
            }
        }
    }

    impl RunMonitor for Recorder<'_> {
        fn files(&mut self, _: &Monitor) -> Result<Vec<FileMark>, String> {
            self.files.clone()
        }

        fn run(&mut self, monitor: &Monitor, order: &Order) -> Result<Option<RunMade>, String> {
            let stored = self.store.find(&monitor.id).unwrap();
            self.next_run_at = stored.next_run_at;
            assert!(
                self.store.try_lock_run(&monitor.id).unwrap().is_none(),
                "a run holds its lock"
            );
            self.runs.push((monitor.name.clone(), order.clone()));
            self.result.clone()
        }
    }

    fn store_of(monitors: &[Monitor]) -> (tempfile::TempDir, MonitorStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = MonitorStore::open(folder.path()).unwrap();
        monitors.iter().for_each(|m| store.add(m).unwrap());
        (folder, store)
    }

    fn daily(name: &str) -> Monitor {
        created(json!({"name": name})).unwrap()
    }

    fn outcome(store: &MonitorStore, now: &str, runner: &mut Recorder<'_>) -> Outcome {
        let report = tick(store, at(now), runner).unwrap();
        let [(_, outcome)] = &report.outcomes[..] else {
            panic!("one monitor: {report:?}")
        };
        outcome.clone()
    }

    #[test]
    fn new_grown_and_rewritten_files_are_changes() {
        let rows = |rows| FileMark {
            rows,
            ..mark("/rows", 1, 1)
        };
        let seen = [
            mark("/same", 1, 1),
            mark("/grown", 1, 1),
            mark("/rewritten", 1, 1),
            mark("/gone", 1, 1),
            rows(Some(1)),
        ];
        let files = [
            mark("/new", 1, 1),
            mark("/same", 1, 1),
            mark("/grown", 2, 1),
            mark("/rewritten", 1, 2),
            rows(Some(2)),
        ];
        let expected = ["/new", "/grown", "/rewritten", "/rows"].map(PathBuf::from);
        assert_eq!(changed_files(&seen, &files), expected);
        assert!(changed_files(&seen, &[rows(None), mark("/same", 1, 1)]).is_empty());
    }

    #[test]
    fn decisions() {
        let (early, late) = (at("2026-02-01T02:59:59Z"), at("2026-02-01T03:00:00Z"));
        let files = [mark("/data/a", 10, 0)];
        let mut monitor = daily("m");
        assert_eq!(decide(&monitor, early, &files), Decision::NotDue);
        // The first run needs nothing new, not even a file.
        assert!(matches!(decide(&monitor, late, &[]), Decision::Run(order) if !order.only_if_new));
        monitor.finish("r".into(), early, files.to_vec());
        assert_eq!(decide(&monitor, late, &files), Decision::SkippedUnchanged);
        assert_eq!(
            decide(&monitor, late, &[mark("/data/a", 11, 0)]),
            Decision::Run(Order {
                now: late,
                changed: vec!["/data/a".into()],
                only_if_new: true
            })
        );
        monitor.only_if_changed = false;
        assert!(
            matches!(decide(&monitor, late, &files), Decision::Run(order) if order.changed.is_empty())
        );
        monitor.pause(late);
        assert_eq!(decide(&monitor, late, &files), Decision::NotDue);
    }

    #[test]
    fn the_next_time_is_stored_before_the_run() {
        let (_folder, store) = store_of(&[daily("m")]);
        let mut runner = Recorder::new(&store);
        let now = "2026-02-03T12:00:00Z";
        assert_eq!(
            outcome(&store, now, &mut runner),
            Outcome::Ran("run-1".into())
        );
        assert_eq!(runner.next_run_at, Some(at("2026-02-04T12:00:00Z")));
        let stored = store.find("m").unwrap();
        assert_eq!(stored.last_run_at, Some(at(now)));
        assert_eq!(stored.last_run_id.as_deref(), Some("run-1"));
        assert_eq!(stored.seen, [mark("/data/a", 10, 0)]);
        assert_eq!(outcome(&store, now, &mut runner), Outcome::NotDue);
        assert_eq!(runner.runs.len(), 1);
    }

    #[test]
    fn a_skip_moves_the_next_time_only() {
        let (_folder, store) = store_of(&[daily("m")]);
        let mut runner = Recorder::new(&store);
        outcome(&store, "2026-02-03T12:00:00Z", &mut runner);
        let before = store.find("m").unwrap();

        let skipped = outcome(&store, "2026-02-04T12:00:00Z", &mut runner);
        assert_eq!((skipped, runner.runs.len()), (Outcome::SkippedUnchanged, 1));
        let mut expected = before.clone();
        expected.next_run_at = Some(at("2026-02-05T12:00:00Z"));
        assert_eq!(store.find("m").unwrap(), expected);

        // Files changed, but no trace in them matches: passed over too, and looked at again next time.
        runner.files = Ok(vec![mark("/data/a", 20, 5)]);
        runner.result = Ok(None);
        let skipped = outcome(&store, "2026-02-05T12:00:00Z", &mut runner);
        assert_eq!((skipped, runner.runs.len()), (Outcome::SkippedUnchanged, 2));
        assert!(runner.runs[1].1.only_if_new);
        assert_eq!(store.find("m").unwrap().last_run_at, before.last_run_at);
        assert_eq!(store.find("m").unwrap().seen, before.seen);
    }

    #[test]
    fn a_run_that_left_something_pending_is_gone_on_with_though_no_file_changed() {
        let (_folder, store) = store_of(&[daily("m")]);
        let mut runner = Recorder::new(&store);
        let made = |pending| {
            Ok(Some(RunMade {
                id: "run-1".into(),
                pending,
            }))
        };
        runner.result = made(true);
        let ran = Outcome::Ran("run-1".into());
        assert_eq!(outcome(&store, "2026-02-03T12:00:00Z", &mut runner), ran);
        runner.result = made(false);
        assert_eq!(outcome(&store, "2026-02-04T12:00:00Z", &mut runner), ran);
        let skipped = outcome(&store, "2026-02-05T12:00:00Z", &mut runner);
        assert_eq!(skipped, Outcome::SkippedUnchanged);
    }

    #[test]
    fn a_failed_run_stops_no_other_and_is_not_the_last_run() {
        let (_folder, store) = store_of(&[daily("a"), daily("b")]);
        let mut runner = Recorder::new(&store);
        runner.result = Err("no model".into());
        let report = tick(&store, at("2026-02-03"), &mut runner).unwrap();
        let failed = Outcome::Failed("no model".into());
        assert!(
            report
                .outcomes
                .iter()
                .all(|(_, outcome)| *outcome == failed)
        );
        assert_eq!(runner.runs.len(), 2);
        let stored = store.find("a").unwrap();
        assert_eq!(stored.last_run_at, None);
        assert_eq!(stored.next_run_at, Some(at("2026-02-04")));

        runner.files = Err("no such folder".into());
        let report = tick(&store, at("2026-02-05"), &mut runner).unwrap();
        let failed = Outcome::Failed("no such folder".into());
        assert!(
            report
                .outcomes
                .iter()
                .all(|(_, outcome)| *outcome == failed)
        );
    }

    #[test]
    fn who_waits_longest_runs_first() {
        let mut late = daily("a-late");
        late.next_run_at = Some(at("2026-02-02"));
        let mut paused = daily("b-paused");
        paused.pause(at("2026-02-01"));
        let (folder, store) = store_of(&[late, paused, daily("c-early")]);
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let mut runner = Recorder::new(&store);
        let report = tick(&store, at("2026-02-03"), &mut runner).unwrap();
        let names: Vec<&str> = runner.runs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c-early", "a-late"]);
        assert_eq!(report.outcomes.len(), 3);
        assert_eq!(report.outcomes[2].1, Outcome::NotDue);
        assert_eq!(report.damaged.len(), 1);
    }

    #[test]
    fn a_running_monitor_is_left_alone_and_stays_due() {
        let monitor = daily("m");
        let (_folder, store) = store_of(std::slice::from_ref(&monitor));
        let mut runner = Recorder::new(&store);
        let held = store.try_lock_run(&monitor.id).unwrap().unwrap();
        let now = "2026-02-03T12:00:00Z";
        assert_eq!(outcome(&store, now, &mut runner), Outcome::Running);
        assert!(runner.runs.is_empty());
        assert_eq!(store.find("m").unwrap(), monitor);
        assert!(matches!(
            trigger(&store, "m", at(now), &mut runner),
            Err(StoreError::Running(_))
        ));
        drop(held);
        assert!(matches!(outcome(&store, now, &mut runner), Outcome::Ran(_)));
    }

    #[test]
    fn a_trigger_runs_at_once() {
        let (_folder, store) = store_of(&[daily("m")]);
        let mut runner = Recorder::new(&store);
        for now in ["2026-01-31T05:00:00Z", "2026-01-31T06:00:00Z"] {
            let outcome = trigger(&store, "m", at(now), &mut runner).unwrap();
            assert_eq!(outcome, Outcome::Ran("run-1".into()), "{now}");
        }
        assert!(!runner.runs[1].1.only_if_new);
        assert_eq!(
            store.find("m").unwrap().next_run_at,
            Some(at("2026-02-01T06:00:00Z"))
        );

        let id = store.find("m").unwrap().id;
        store
            .update(&id, |m| {
                m.pause(at("2026-02-01"));
                Ok::<_, StoreError>(())
            })
            .unwrap();
        trigger(&store, &id, at("2026-02-02"), &mut runner).unwrap();
        let stored = store.find(&id).unwrap();
        assert_eq!(stored.next_run_at, None);
        assert_eq!(stored.last_run_at, Some(at("2026-02-02")));
    }

    #[test]
    fn marks_of_files_change_when_the_file_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl");
        std::fs::write(&path, "{}").unwrap();
        let before = FileMark::of(path.clone()).unwrap();
        assert_eq!(before.size, 2);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<FileMark>(&text).unwrap(), before);
        let unchanged = FileMark::of(path.clone()).unwrap();
        assert!(changed_files(std::slice::from_ref(&before), &[unchanged]).is_empty());
        std::fs::write(&path, "{}{}").unwrap();
        let after = FileMark::of(path.clone()).unwrap();
        assert_eq!(changed_files(&[before], &[after]), [path]);
        assert!(FileMark::of(folder.path().join("none")).is_err());
    }
}
