//! A run that goes on where an earlier one ended: which sessions its new files touch, and what earlier nights say of them.
//!
//! A session that new rows touch is scored whole: its earlier rows are read again from the files that they were in. So the
//! latest rows of a chain of runs are what one run over all files would have written, whatever the split into nights.

mod earlier;
mod kept;
mod keys;
mod replaced;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::{ChainRun, Continues, chain, continued_by, latest};
use crate::job::whole_path;
use crate::output::directory::{name_of, parent_of};
use crate::output::{RunError, manifest};
use crate::run::ScoreRequest;
use crate::run::carried::{CarriedFile, FirstNights, read_files};
use crate::store::Fetched;
use crate::summary::ContinuedSummary;
use crate::trace::{Buckets, SessionKey, SourceFile};

pub(super) use replaced::write as write_replaced;

/// What an earlier night says of a session that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EarlierSession {
    /// The run that has its latest row.
    pub run: String,
    /// The run that saw it first.
    pub first_run: String,
    /// How many rows it has had.
    pub revision: u32,
}

/// The touched sessions of earlier nights.
#[derive(Clone, Debug)]
pub(super) struct SessionsSoFar {
    /// By session.
    pub earlier: Arc<HashMap<SessionKey, EarlierSession>>,
    /// The run that goes on with them.
    run: String,
}

impl SessionsSoFar {
    /// These sessions, as the run of this name goes on with them.
    pub fn new(run: String, earlier: HashMap<SessionKey, EarlierSession>) -> Self {
        let earlier = Arc::new(earlier);
        Self { earlier, run }
    }

    /// The run that goes on with them.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The run that saw a session first, and how many rows the session has had, with that of this run.
    pub fn of(&self, session_id: &str, project_id: Option<&str>) -> (&str, u32) {
        let key = SessionKey {
            project_id: project_id.map(str::to_owned),
            session_id: session_id.to_owned(),
        };
        match self.earlier.get(&key) {
            Some(earlier) => (&earlier.first_run, earlier.revision + 1),
            None => (&self.run, 1),
        }
    }
}

/// What a run knows of the nights before it.
#[derive(Debug)]
pub(super) struct Night {
    /// The run that it continues.
    pub continues: Continues,
    /// The same, as the chain knows it.
    last: ChainRun,
    /// Files of earlier nights, with the rows to read again, in the order in which they arrived.
    pub files: Vec<(SourceFile, CarriedFile)>,
    /// Traces whose rows can't be read again, as a file of traces without texts.
    pub standing_in: Option<SourceFile>,
    /// Sessions of earlier nights that go on.
    pub sessions: SessionsSoFar,
    /// Traces without session that go on, by the ids that tables show, with the run that has them.
    pub alone: Vec<(String, String)>,
    /// Signals that earlier nights were given, or that stand for what can't be read again.
    pub signals: Vec<(String, &'static str, f64)>,
    /// When traces of earlier nights were new.
    nights: FirstNights,
    /// Traces that keep their scores, by canonical id, and the run that has them.
    pub kept: BTreeMap<String, String>,
    /// What the summary says.
    pub summary: ContinuedSummary,
    /// Copies of remote files.
    #[allow(dead_code, reason = "it is there to be dropped")]
    fetched: Vec<Fetched>,
}

impl Night {
    /// Finds what the new files touch. `work` is a folder for what has to be made.
    ///
    /// # Errors
    /// [`RunError`] if the chain is broken, settings differ from those of then, or another run continues it already.
    pub fn prepare(
        request: &ScoreRequest,
        path: &Path,
        new: &[SourceFile],
        work: &Path,
    ) -> Result<Self, RunError> {
        let last = latest(path)?;
        let chain = chain(&last)?;
        let Some(run) = chain.last() else {
            return Err(RunError::Request(format!("`{}` is no run", path.display())));
        };
        settings::check_settings(request, run)?;
        if !request.is_retry() {
            check_alone(run, request)?;
        }
        check_rewritten(&chain, new)?;
        let mut found = earlier::find(&chain, keys::NewKeys::of(request, new)?)?;
        let made = new.iter().any(|file| !file.origins.is_empty());
        if let (true, Some(trace)) = (made && !request.is_retry(), found.again.first()) {
            return Err(RunError::Request(format!(
                "--continue: new files of other formats hold spans of the trace `{trace}`, which is in an earlier night; a trace is \
                 assembled of all of its spans at once: score all files anew, or begin a night where no trace is under way"
            )));
        }
        let mut night = Self {
            continues: run.continued(),
            last: run.clone(),
            files: Vec::new(),
            standing_in: None,
            sessions: SessionsSoFar::new(
                name_of(&request.out)?,
                std::mem::take(&mut found.sessions),
            ),
            alone: std::mem::take(&mut found.alone),
            signals: Vec::new(),
            nights: FirstNights {
                own: run.night + 1,
                earlier: Arc::new(found.first_nights()),
            },
            kept: BTreeMap::new(),
            summary: ContinuedSummary {
                run: run.name.clone(),
                night: run.night + 1,
                ..ContinuedSummary::default()
            },
            fetched: Vec::new(),
        };
        night.summary.sessions = night.sessions.earlier.len() as u64;
        let gone = night.open_files(&chain, &found.traces, request.offline)?;
        night.take_signals(&chain, &found, &gone, request)?;
        night.stand_in(&chain, &found.traces, &gone, work)?;
        night.summary.traces_read_again = (found.traces.len() - gone.len()) as u64;
        night.summary.traces_kept = gone.len() as u64;
        for at in gone {
            // What new rows say of a trace is scored; the scores that it had are of other texts.
            let kept = found.traces.get(at);
            if let Some(trace) = kept.filter(|trace| !found.again.contains(&trace.trace_id)) {
                let run = chain.get(trace.run).map(|run| run.name.clone());
                night
                    .kept
                    .insert(trace.trace_id.clone(), run.unwrap_or_default());
            }
        }
        Ok(night)
    }

    /// The files of the run: earlier ones, in the order in which they arrived, and then the new ones.
    pub fn with(&self, new: Vec<SourceFile>) -> Vec<SourceFile> {
        let earlier = self.files.iter().map(|(file, _)| file.clone());
        earlier.chain(self.standing_in.clone()).chain(new).collect()
    }

    /// Whether the model is that of the earlier nights; a line if only the machine is another.
    ///
    /// # Errors
    /// [`RunError::Request`] if it is another model, or another precision.
    pub fn check_model(&self, now: &serde_json::Value) -> Result<Option<String>, RunError> {
        settings::check_model(&self.last.manifest["model"], now)
    }

    /// In how many buckets the run is that this one continues.
    pub fn buckets(&self) -> Buckets {
        manifest::buckets_of(&self.last.manifest)
    }

    /// Makes sure, right before the run is there, that no other run has continued the same one meanwhile. As long as what
    /// is returned is held, none can.
    ///
    /// # Errors
    /// [`RunError::Request`] if one has.
    pub fn still_alone(&self, request: &ScoreRequest) -> Result<Option<File>, RunError> {
        // Where folders can't be locked, two runs that end within the same moment are not told from each other.
        let held = File::open(&self.last.path).and_then(|folder| folder.lock().map(|()| folder));
        if !request.is_retry() {
            check_alone(&self.last, request)?;
        }
        Ok(held.ok())
    }

    /// When its traces were new.
    pub fn first_nights(&self) -> FirstNights {
        self.nights.clone()
    }

    /// What it knows of sessions.
    pub fn so_far(&self) -> SessionsSoFar {
        self.sessions.clone()
    }
}

/// A new file may be an earlier one with more lines. One that was written anew has rows that are gone: what was scored of
/// them can't stand beside what it holds now.
fn check_rewritten(chain: &[ChainRun], new: &[SourceFile]) -> Result<(), RunError> {
    let given: Vec<_> = new
        .iter()
        .map(|file| (whole_path(&file.path), file))
        .collect();
    for run in chain {
        for earlier in read_files(&run.path)?.into_iter().flatten() {
            let same = |(path, _): &&(String, &SourceFile)| {
                earlier.inside.is_none() && *path == earlier.path
            };
            let Some((path, file)) = given.iter().find(same) else {
                continue;
            };
            let remote = path.contains("://");
            if let Err(problem) = earlier.open(file.path.clone(), remote) {
                return Err(RunError::Request(format!(
                    "--continue: the file `{path}` {problem} the run `{}` read it; score all files anew, or give new rows in new files",
                    run.name
                )));
            }
        }
    }
    Ok(())
}

/// Two runs that both continue one would each hold a part of the truth.
fn check_alone(run: &ChainRun, request: &ScoreRequest) -> Result<(), RunError> {
    let (beside, own_folder) = (parent_of(&run.path), parent_of(&request.out));
    let folders = match beside == own_folder {
        true => vec![beside],
        false => vec![beside, own_folder],
    };
    let own = request
        .out
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    for folder in folders {
        let others = continued_by(run, &folder)?;
        let other = others
            .into_iter()
            .find(|name| !request.overwrite || Some(name) != own.as_ref());
        if let Some(other) = other {
            return Err(RunError::Request(format!(
                "the run `{other}` continues `{}` already: continue `{other}`, or give --continue the folder of both",
                run.name
            )));
        }
    }
    Ok(())
}
