//! The list of sessions as data of the page: columns, and texts that occur often kept once.

use std::collections::HashMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::metric::round4;
use crate::metric::session_signal::{SESSION_SIGNALS, WAREHOUSE_SIGNALS};
use crate::summary::{ListOrder, ListedSession, PageFacts, PageSessions, RankedScore, TextsAt};

/// What the script of the page reads; see `page/list.js`. Scores and shares are whole ten-thousandths.
#[derive(Serialize)]
struct Data<'p> {
    run: &'p str,
    total: u64,
    order: &'static str,
    /// Whether an id occurs in several projects: then links name the project.
    repeated: bool,
    session: Vec<&'p str>,
    project: Option<Coded<'p>>,
    /// Why a session has its place: two columns of the same parts.
    why: Option<Why<'p>>,
    first_signal: Option<Coded<'p>>,
    attention: Option<Vec<i64>>,
    traces: Vec<u64>,
    flagged: Option<Vec<Option<u64>>>,
    agent_reliability: Option<Scores>,
    agent_consistency: Option<Scores>,
    conversation: Option<Vec<Option<i64>>>,
    /// Seconds since 1970.
    started: Vec<Option<i64>>,
    slices: Vec<Slice<'p>>,
    tags: Option<Tags<'p>>,
    signals: Vec<Signal>,
    labels: Vec<(&'static str, &'static str)>,
    score_columns: Vec<&'p str>,
    texts: Option<&'p TextsAt>,
}

#[derive(Serialize)]
struct Scores {
    value: Vec<Option<i64>>,
    better_than: Vec<Option<i64>>,
}

/// Texts, and the number of each row's text; -1 for none.
#[derive(Default, Serialize)]
struct Coded<'p> {
    texts: Vec<&'p str>,
    rows: Vec<i32>,
}

#[derive(Serialize)]
struct Slice<'p> {
    name: &'p str,
    #[serde(flatten)]
    values: Coded<'p>,
}

#[derive(Serialize)]
struct Why<'p> {
    texts: Vec<&'p str>,
    rows: Vec<Vec<i32>>,
}

#[derive(Serialize)]
struct Tags<'p> {
    texts: Vec<&'p str>,
    rows: Vec<Vec<i32>>,
}

#[derive(Serialize)]
struct Signal {
    name: &'static str,
    is_share: bool,
    /// Whether it is a column of `attention`, and not of `sessions`.
    of_order: bool,
    rows: Vec<Option<i64>>,
}

/// Texts on their way into a list without repetitions.
#[derive(Default)]
struct Texts<'p> {
    known: HashMap<&'p str, i32>,
    list: Vec<&'p str>,
}

impl<'p> Texts<'p> {
    fn code(&mut self, text: &'p str) -> i32 {
        let next = self.list.len() as i32;
        let code = *self.known.entry(text).or_insert(next);
        if code == next {
            self.list.push(text);
        }
        code
    }
}

fn coded<'p>(rows: impl Iterator<Item = Option<&'p str>>) -> Coded<'p> {
    let mut texts = Texts::default();
    let rows = rows.map(|text| text.map_or(-1, |text| texts.code(text)));
    Coded {
        rows: rows.collect(),
        texts: texts.list,
    }
}

fn lists<'p, I: Iterator<Item = &'p str>>(
    rows: impl Iterator<Item = I>,
) -> (Vec<&'p str>, Vec<Vec<i32>>) {
    let mut texts = Texts::default();
    let rows = rows.map(|row| row.map(|text| texts.code(text)).collect());
    let rows = rows.collect();
    (texts.list, rows)
}

fn steps(score: f64) -> i64 {
    (score * 10_000.0).round() as i64
}

fn scores(
    listed: &[ListedSession],
    of: fn(&ListedSession) -> Option<RankedScore>,
) -> Option<Scores> {
    listed.iter().any(|session| of(session).is_some()).then(|| {
        let column = |part: fn(RankedScore) -> f64| {
            let cells = listed
                .iter()
                .map(|session| of(session).map(part).map(steps));
            cells.collect()
        };
        Scores {
            value: column(|score| score.value),
            better_than: column(|score| score.better_than),
        }
    })
}

/// The list as JSON that is inert inside of a script element.
///
/// # Errors
/// A message; there is none that data could cause.
pub(super) fn data(
    facts: &PageFacts,
    sessions: &PageSessions,
    score_columns: &[&str],
) -> Result<String, String> {
    let listed = &sessions.listed;
    let attention = sessions.order == ListOrder::Attention;
    let why = attention.then(|| {
        let parts = listed.iter().map(|session| session.why.as_deref());
        let (texts, rows) = lists(parts.map(|why| why.unwrap_or_default().split("; ")));
        Why { texts, rows }
    });
    let tags = sessions.has_tags.then(|| {
        let (texts, rows) = lists(listed.iter().map(|s| s.tags.iter().map(String::as_str)));
        Tags { texts, rows }
    });
    let slices = sessions.slices.iter().enumerate().map(|(at, name)| Slice {
        name,
        values: coded(listed.iter().map(|s| s.slices.get(at)?.as_deref())),
    });
    let signals = sessions.signals.iter().enumerate().map(|(at, name)| {
        let mut known = SESSION_SIGNALS.iter().chain(&WAREHOUSE_SIGNALS);
        let is_share = known.any(|signal| signal.name == *name && signal.is_share);
        let value = |session: &ListedSession| {
            let value = session.signals.get(at).copied().flatten()?;
            Some(if is_share {
                steps(value)
            } else {
                value.round() as i64
            })
        };
        Signal {
            name,
            is_share,
            of_order: WAREHOUSE_SIGNALS.iter().any(|signal| signal.name == *name),
            rows: listed.iter().map(value).collect(),
        }
    });
    let known = SESSION_SIGNALS.iter().chain(&WAREHOUSE_SIGNALS);
    let projects = listed.iter().any(|session| session.project_id.is_some());
    let flagged = listed.iter().any(|session| session.flagged.is_some());
    let conversation = sessions.has_verdicts.then(|| {
        let cells = listed.iter().map(|session| session.conversation.map(steps));
        cells.collect()
    });
    let mut score_columns: Vec<&str> = score_columns.to_vec();
    score_columns.dedup();
    let data = Data {
        run: &facts.run,
        total: sessions.total,
        order: match sessions.order {
            ListOrder::Attention => "attention",
            ListOrder::Scores => "scores",
            ListOrder::Table => "table",
        },
        repeated: repeated(listed),
        session: listed.iter().map(|s| s.session_id.as_str()).collect(),
        project: projects.then(|| coded(listed.iter().map(|s| s.project_id.as_deref()))),
        why,
        first_signal: attention.then(|| {
            coded(
                listed
                    .iter()
                    .map(|s| Some(s.parts.first()?.signal.as_str())),
            )
        }),
        attention: attention.then(|| {
            let cells = listed
                .iter()
                .map(|s| steps(s.attention.unwrap_or_default()));
            cells.collect()
        }),
        traces: listed.iter().map(|s| s.traces).collect(),
        flagged: flagged.then(|| listed.iter().map(|s| s.flagged).collect()),
        agent_reliability: scores(listed, |s| s.agent_reliability),
        agent_consistency: scores(listed, |s| s.agent_consistency),
        conversation,
        started: listed
            .iter()
            .map(|s| s.started_at.map(|at| at.div_euclid(1_000_000)))
            .collect(),
        slices: slices.collect(),
        tags,
        signals: signals.collect(),
        labels: known.map(|signal| (signal.name, signal.counts)).collect(),
        score_columns,
        texts: facts.texts.as_ref(),
    };
    let json = serde_json::to_string(&data).map_err(|e| e.to_string())?;
    // Whatever a text says: it ends no script, begins no comment, and no line.
    Ok(json
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029"))
}

/// Whether any id is that of several sessions.
pub(super) fn repeated(listed: &[ListedSession]) -> bool {
    let mut seen = std::collections::HashSet::new();
    !listed.iter().all(|s| seen.insert(s.session_id.as_str()))
}

/// The part of an address that opens a session, without `#`.
pub(super) fn fragment(session: &ListedSession, repeated: bool) -> String {
    // What `encodeURIComponent` leaves as it is.
    const KEPT: AsciiSet = NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'!')
        .remove(b'~')
        .remove(b'*')
        .remove(b'\'')
        .remove(b'(')
        .remove(b')');
    let id = utf8_percent_encode(&session.session_id, &KEPT);
    match (&session.project_id, repeated) {
        (Some(project), true) => {
            let project = utf8_percent_encode(project, &KEPT);
            format!("session={id}&project={project}")
        }
        _ => format!("session={id}"),
    }
}

/// A share in whole percent, never more than it is.
pub(super) fn percent(share: f64) -> u64 {
    // Sums of binary fractions end a hair below.
    (100.0 * round4(share) + 1e-6).floor().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn session(id: &str, project: Option<&str>, why: &str) -> ListedSession {
        ListedSession {
            session_id: id.into(),
            project_id: project.map(str::to_owned),
            why: Some(why.into()),
            slices: vec![project.map(str::to_owned)],
            ..ListedSession::default()
        }
    }

    fn facts() -> PageFacts {
        PageFacts {
            title: "t".into(),
            run: "runs/t".into(),
            model: None,
            precision: "none".into(),
            device: "none".into(),
            inputs: Vec::new(),
            signals: None,
            texts: None,
        }
    }

    #[test]
    fn columns_hold_each_text_once_and_nothing_that_ends_a_script() {
        let sessions = PageSessions {
            order: ListOrder::Attention,
            slices: vec!["environment".into()],
            listed: vec![
                session("</script>", Some("p"), "a: 1; b: 2"),
                session("x", None, "b: 2"),
                session("x", Some("p"), "nothing unusual"),
            ],
            ..PageSessions::default()
        };
        let text = data(&facts(), &sessions, &[]).unwrap();
        assert!(!text.contains('<'), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["session"][0], "</script>");
        assert_eq!(read["project"]["rows"], serde_json::json!([0, -1, 0]));
        assert_eq!(read["why"]["rows"], serde_json::json!([[0, 1], [1], [2]]));
        assert_eq!(read["slices"][0]["texts"], serde_json::json!(["p"]));
        assert_eq!(read["repeated"], true);
    }

    #[test]
    fn addresses_are_encoded_as_scripts_encode_them() {
        let one = session("a b/é&'(x)", Some("p=1"), "");
        assert_eq!(fragment(&one, false), "session=a%20b%2F%C3%A9%26'(x)");
        assert!(fragment(&one, true).ends_with("&project=p%3D1"));
        assert_eq!([0.29, 0.999_99, 0.0, 1.0].map(percent), [29, 100, 0, 100]);
    }
}
