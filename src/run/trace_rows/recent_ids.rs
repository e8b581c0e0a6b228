//! The ids of the last traces of a session.

use std::collections::VecDeque;

/// The ids of the last traces of the session that is being written: loops name them.
#[derive(Debug)]
pub(super) struct RecentIds {
    session: (Option<String>, Option<String>),
    /// Oldest first.
    trace_ids: VecDeque<String>,
    window: usize,
}

impl RecentIds {
    pub fn new(window: usize) -> Self {
        Self {
            session: (None, None),
            trace_ids: VecDeque::with_capacity(window),
            window,
        }
    }

    /// Forgets the ids of another session.
    pub fn enter(&mut self, session_id: Option<&str>, project_id: Option<&str>) {
        let (session, project) = &self.session;
        if session.as_deref() != session_id || project.as_deref() != project_id {
            self.session = (session_id.map(str::to_owned), project_id.map(str::to_owned));
            self.trace_ids.clear();
        }
    }

    pub fn push(&mut self, trace_id: &str) {
        let mut id = match self.trace_ids.len() < self.window {
            true => String::new(),
            false => self.trace_ids.pop_front().unwrap_or_default(),
        };
        id.clear();
        id.push_str(trace_id);
        self.trace_ids.push_back(id);
    }

    /// The id of the trace `back` places before the one that is being written.
    pub fn id_back(&self, back: usize) -> Option<&str> {
        let at = self.trace_ids.len().checked_sub(back)?;
        self.trace_ids.get(at).map(String::as_str)
    }
}
