//! The sessions and traces that new files speak of.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};

use crate::output::RunError;
use crate::run::id_hash::id_hash;
use crate::run::{ScoreRequest, stages};
use crate::trace::{SourceFile, TraceColumns, TraceSource};

/// 16 bytes that stand for a session or a trace.
type Key = [u8; 16];

/// The sessions and traces of new rows, by hashes of 16 bytes: memory grows with the news alone.
#[derive(Debug, Default)]
pub(super) struct NewKeys {
    sessions: HashSet<Key>,
    /// What new rows of each trace say of its session and its project.
    traces: HashMap<Key, Places>,
    /// Quick hashes of traces, and of the names of sessions: most of earlier nights are none of these.
    quick: (HashSet<u64>, HashSet<u64>),
}

/// Sessions and projects that rows of one trace name: the last of each that is not null decides, so that any of the one may
/// meet any of the other.
#[derive(Debug, Default)]
struct Places {
    sessions: Vec<String>,
    projects: Vec<String>,
}

impl Places {
    fn see(&mut self, session: Option<&str>, project: Option<&str>) {
        for (known, name) in [(&mut self.sessions, session), (&mut self.projects, project)] {
            if let Some(name) = name
                && !known.iter().any(|other| other == name)
            {
                known.push(name.to_owned());
            }
        }
    }

    /// All sessions that the trace may end up in.
    fn ends(&self) -> impl Iterator<Item = Key> + '_ {
        // Without any project it is one of none.
        let none = self.projects.is_empty().then_some(None);
        let projects = self.projects.iter().map(|project| Some(project.as_str()));
        let projects: Vec<Option<&str>> = projects.chain(none).collect();
        self.sessions.iter().flat_map(move |session| {
            let ends = projects.clone().into_iter();
            ends.map(move |project| session_key(session, project))
        })
    }
}

impl NewKeys {
    /// Reads the ids of the files.
    ///
    /// # Errors
    /// [`RunError`] for a file that can't be read.
    pub fn of(request: &ScoreRequest, files: &[SourceFile]) -> Result<Self, RunError> {
        let source = TraceSource::open(
            files.to_vec(),
            stages::reading(request, TraceColumns::ids()),
            Arc::default(),
        )?;
        let mut keys = Self::default();
        let mut wrong = None;
        source.read_shared(|batch| match Ids::of(&batch) {
            Some(ids) => {
                for row in 0..batch.num_rows() {
                    let trace = ids.trace_id.value(row);
                    keys.quick.0.insert(id_hash(trace));
                    let trace = hash(&[trace]);
                    let places = keys.traces.entry(trace).or_default();
                    places.see(ids.session_of(row), ids.project_of(row));
                }
                true
            }
            None => {
                wrong = Some(RunError::Plan("a batch has no ids".into()));
                false
            }
        })?;
        for places in keys.traces.values() {
            keys.sessions.extend(places.ends());
            let names = places.sessions.iter();
            keys.quick.1.extend(names.map(|name| id_hash(name)));
        }
        wrong.map_or(Ok(keys), Err)
    }

    /// Adds the sessions that a trace may end up in that has these so far.
    pub fn add_moved(&mut self, trace_id: &str, session: Option<&str>, project: Option<&str>) {
        if let Some(places) = self.traces.get_mut(&hash(&[trace_id])) {
            places.see(session, project);
            self.sessions.extend(places.ends());
            let names = places.sessions.iter();
            self.quick.1.extend(names.map(|name| id_hash(name)));
        }
    }

    /// How many sessions they are of.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Whether new rows may be of a trace whose id has this hash; if not, they are not.
    pub fn may_have_trace(&self, hash: u64) -> bool {
        self.quick.0.contains(&hash)
    }

    /// Whether new rows are of this trace.
    pub fn has_trace(&self, trace_id: &str) -> bool {
        self.traces.contains_key(&hash(&[trace_id]))
    }

    /// Whether new rows are of this session, or it was added.
    pub fn has_session(&self, session: &Key) -> bool {
        self.sessions.contains(session)
    }

    /// Whether new rows may be of a session whose name has this hash, in any project; if not, they are not.
    pub fn may_have_session(&self, hash: u64) -> bool {
        self.quick.1.contains(&hash)
    }

    /// Adds a session.
    pub fn add_session(&mut self, name: &str, project: Option<&str>) {
        self.sessions.insert(session_key(name, project));
        self.quick.1.insert(id_hash(name));
    }
}

/// The id columns of a batch.
pub(super) struct Ids<'b> {
    pub trace_id: &'b StringArray,
    pub session_id: &'b StringArray,
    pub project_id: &'b StringArray,
}

impl<'b> Ids<'b> {
    /// None if one is missing, or is no text.
    pub fn of(batch: &'b RecordBatch) -> Option<Self> {
        let text = |name| batch.column_by_name(name)?.as_string_opt::<i32>();
        Some(Self {
            trace_id: text("trace_id")?,
            session_id: text("session_id")?,
            project_id: text("project_id")?,
        })
    }

    /// The session that a row names.
    pub fn session_of(&self, row: usize) -> Option<&'b str> {
        self.session_id
            .is_valid(row)
            .then(|| self.session_id.value(row))
    }

    /// The project that a row names.
    pub fn project_of(&self, row: usize) -> Option<&'b str> {
        self.project_id
            .is_valid(row)
            .then(|| self.project_id.value(row))
    }

    /// What stands for the session of a row; none if its trace stands alone.
    pub fn session(&self, row: usize) -> Option<Key> {
        Some(session_key(self.session_of(row)?, self.project_of(row)))
    }
}

/// What stands for a session.
pub(super) fn session_key(session_id: &str, project_id: Option<&str>) -> Key {
    match project_id {
        Some(project) => hash(&[session_id, project]),
        None => hash(&[session_id]),
    }
}

/// Texts are told apart by their lengths, so that no two lists have one hash.
fn hash(texts: &[&str]) -> Key {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    let mut key = Key::default();
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_two_projects_are_two_and_no_split_of_a_name_is_another() {
        let keys = [
            session_key("a", None),
            session_key("a", Some("")),
            session_key("a", Some("b")),
            session_key("ab", None),
            session_key("", Some("ab")),
        ];
        let distinct: HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
