//! What names a session.

use serde_json::{Map, Value};

use super::label;

/// What names a session. Orders by project, then by id.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct SessionKey {
    pub project_id: Option<String>,
    pub session_id: String,
}

impl SessionKey {
    /// The session of a document with these members; none if it stands alone.
    pub fn of_document(members: &Map<String, Value>) -> Option<Self> {
        Some(Self {
            session_id: label(members, "session_id")?,
            project_id: label(members, "project_id"),
        })
    }
}
