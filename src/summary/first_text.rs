//! A trace of each session to look at first, with its texts.

use super::{PageSessions, ShownTrace};

/// A trace that shows what a session is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstText {
    /// As in the table `sessions`.
    pub session_id: String,
    /// As there.
    pub project_id: Option<String>,
    /// As it was given.
    pub trace_id: String,
    /// Its beginning; none where the run did not read inputs.
    pub input: Option<String>,
    /// Its beginning; none where the run did not read outputs.
    pub output: Option<String>,
}

/// Of each session that a page shows with texts, the trace whose step risk is the highest: of equal ones the last, and
/// without any the last of all.
pub fn first_texts(sessions: &PageSessions) -> Vec<FirstText> {
    let risk = |trace: &&ShownTrace| trace.step_risk.unwrap_or(-1.0);
    let of = sessions.shown.iter().filter_map(|shown| {
        let session = sessions.listed.get(shown.row)?;
        let by_risk = |a: &&ShownTrace, b: &&ShownTrace| risk(a).total_cmp(&risk(b));
        let trace = shown.rows.iter().max_by(by_risk)?;
        let text = |text: &Option<super::ShownText>| Some(text.as_ref()?.text.clone());
        Some(FirstText {
            session_id: session.session_id.clone(),
            project_id: session.project_id.clone(),
            trace_id: trace.trace_id.clone(),
            input: text(&trace.input),
            output: text(&trace.output),
        })
    });
    of.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{ListedSession, ShownSession};

    #[test]
    fn the_riskiest_trace_shows_what_a_session_is_about_and_else_the_last() {
        let trace = |id: &str, step_risk| ShownTrace {
            trace_id: id.into(),
            step_risk,
            ..ShownTrace::default()
        };
        let told = |rows: Vec<ShownTrace>| {
            let shown = ShownSession {
                row: 0,
                rows_hidden: 0,
                rows,
                verdict: None,
            };
            let page = PageSessions {
                listed: vec![ListedSession::default()],
                shown: vec![shown],
                ..PageSessions::default()
            };
            first_texts(&page).pop().map(|text| text.trace_id)
        };
        let risky = [
            trace("a", Some(0.9)),
            trace("b", Some(0.2)),
            trace("c", None),
        ];
        assert_eq!(told(risky.into()).as_deref(), Some("a"));
        let calm = [trace("a", None), trace("b", None)];
        assert_eq!(told(calm.into()).as_deref(), Some("b"));
        assert_eq!(told(Vec::new()), None);
    }
}
