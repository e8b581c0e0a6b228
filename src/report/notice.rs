//! What somebody is told of a run that has ended: as a text, as JSON for Slack, and as JSON with all figures. Ids, numbers
//! and reasons; texts of traces only where that was asked for.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::first_sessions::{FirstSession, first_sessions};
use super::words::{brief, counted, grouped};
use crate::job::NoticeFormat;
use crate::summary::{FirstText, Summary};

/// So many sessions are named.
const MOST_SESSIONS: usize = 5;
/// So many findings of drift are told in words.
const MOST_FINDINGS: usize = 3;
/// What stays as it is in a part of a link.
const PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Stands for the name of the run directory in what links begin with.
const RUN: &str = "{run}";

/// A notice of a run that has ended.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The name of the run.
    run: String,
    /// The exit code of the run.
    exit_code: u8,
    /// How it ended, in one line.
    outcome: String,
    /// What it counted; none where it failed as a whole.
    counts: Option<Counts>,
    gates: Value,
    /// What got worse than in the nights before, a sentence each.
    drift: Vec<String>,
    first: Vec<(FirstSession, Option<String>, Option<FirstText>)>,
    /// Where the run is.
    results: Option<String>,
    /// Where the report is: a link, or a path.
    report: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    files: u64,
    traces: u64,
    sessions: u64,
    failed: u64,
    pending: u64,
    quarantined: u64,
    unreadable_files: u64,
}

/// Where a run and its report are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The run directory, as it is named to people.
    pub results: String,
    /// The path of its report, if it has one.
    pub report: Option<String>,
    /// What links begin with; `{run}` stands for the name of the run directory.
    pub link: Option<String>,
}

impl Notice {
    /// A notice of a run that is there, and ended with this exit code; `texts`: with texts of traces.
    pub fn of_run(
        run: &str,
        summary: &Summary,
        exit_code: u8,
        places: Places,
        texts: bool,
    ) -> Self {
        let conversations = summary.judge.as_ref();
        let conversations = conversations.and_then(|judge| judge.conversations.as_ref());
        let (failed, pending) = conversations.map_or((0, 0), |c| (c.failed, c.pending));
        let base = places.link.filter(|_| places.report.is_some());
        let page = base.map(|base| page_at(&base, &places.results));
        let first = first_sessions(summary, MOST_SESSIONS).into_iter();
        let drift = summary.continued.as_ref();
        let drift = drift.and_then(|continued| continued.drift.as_ref());
        Self {
            run: run.to_owned(),
            exit_code,
            outcome: outcome(summary, exit_code),
            counts: Some(Counts {
                files: summary.files,
                traces: summary.traces,
                sessions: summary.sessions,
                failed: summary.failed_signals + failed,
                pending: summary.pending_signals + pending,
                quarantined: summary.quarantined,
                unreadable_files: summary.unreadable_files,
            }),
            gates: json!(summary.gates),
            drift: drift.map_or_else(Vec::new, |drift| drift.found.clone()),
            first: first
                .map(|session| {
                    let link = page.as_ref().map(|page| {
                        let id = utf8_percent_encode(&session.session_id, PART);
                        let project = session.project_id.as_ref().map_or_else(String::new, |of| {
                            format!("&project={}", utf8_percent_encode(of, PART))
                        });
                        format!("{page}#session={id}{project}")
                    });
                    let of = |text: &&FirstText| {
                        text.session_id == session.session_id
                            && text.project_id == session.project_id
                    };
                    let told = summary.first_texts.iter().find(of);
                    let told = told.filter(|_| texts).cloned();
                    (session, link, told)
                })
                .collect(),
            results: Some(places.results),
            report: page.or(places.report),
        }
    }

    /// A notice of a run that failed as a whole, with exit code 2; the first line of the error is told.
    pub fn of_failure(run: &str, error: &str) -> Self {
        let line = error.lines().next().unwrap_or_default();
        Self {
            run: run.to_owned(),
            exit_code: 2,
            outcome: format!("the run failed: {}", brief(line)),
            counts: None,
            gates: json!([]),
            drift: Vec::new(),
            first: Vec::new(),
            results: None,
            report: None,
        }
    }

    /// The content type and the body of the notice.
    pub fn body(&self, format: NoticeFormat) -> (&'static str, String) {
        const JSON: &str = "application/json";
        match format {
            NoticeFormat::Slack => (JSON, json!({ "text": self.text(&Slack) }).to_string()),
            NoticeFormat::Json => (JSON, self.json().to_string()),
            NoticeFormat::Plain => ("text/plain; charset=utf-8", self.text(&Plain)),
        }
    }

    fn json(&self) -> Value {
        let counts = self.counts.map(|counts| {
            json!({
                "files": counts.files,
                "traces": counts.traces,
                "sessions": counts.sessions,
                "failed": counts.failed,
                "pending": counts.pending,
                "quarantined": counts.quarantined,
                "unreadable_files": counts.unreadable_files,
            })
        });
        let first: Vec<Value> = self
            .first
            .iter()
            .map(|(session, link, told)| {
                let told = told.as_ref().map(|told| {
                    let text = |text: &Option<String>| text.as_deref().map(shown);
                    json!({
                        "trace_id": told.trace_id,
                        "input": text(&told.input),
                        "output": text(&told.output),
                    })
                });
                let mut value = json!({
                    "place": session.place,
                    "session_id": session.session_id,
                    "project_id": session.project_id,
                    "why": session.why,
                    "link": link,
                });
                if let Some(told) = told {
                    value["texts"] = told;
                }
                value
            })
            .collect();
        json!({
            "nightmill": env!("CARGO_PKG_VERSION"),
            "run": self.run,
            "exit_code": self.exit_code,
            "outcome": self.outcome,
            "counts": counts,
            "gates": self.gates,
            "drift": self.drift,
            "first": first,
            "results": self.results,
            "report": self.report,
        })
    }

    fn text(&self, markup: &dyn Markup) -> String {
        let run = markup.strong(&shown(&self.run));
        let mut lines = vec![format!("{run}: {}", markup.words(&shown(&self.outcome)))];
        if let Some(counts) = &self.counts {
            lines.push(markup.words(&counts.told()));
        }
        for found in self.drift.iter().take(MOST_FINDINGS) {
            lines.push(format!("drift: {}", markup.words(&shown(found))));
        }
        match self.drift.len().saturating_sub(MOST_FINDINGS) {
            0 => {}
            more => lines.push(format!("drift: {more} more")),
        }
        if !self.first.is_empty() {
            lines.push("first to look at:".into());
        }
        for (session, link, told) in &self.first {
            let id = shown(&session.session_id);
            let named = match link {
                Some(link) => markup.link(link, &id),
                None => markup.words(&id),
            };
            let project = session.project_id.as_ref().map(|project| {
                let project = shown(project);
                format!(" (project {})", markup.words(&project))
            });
            lines.push(format!(
                "{}. {named}{}: {}",
                session.place,
                project.unwrap_or_default(),
                markup.words(&shown(&session.why))
            ));
            let texts = told
                .iter()
                .flat_map(|told| [("input", &told.input), ("output", &told.output)]);
            for (what, text) in texts.filter_map(|(what, text)| Some((what, text.as_ref()?))) {
                lines.push(format!("   {what}: {}", markup.words(&shown(text))));
            }
        }
        match (&self.report, &self.results) {
            (Some(report), _) if report.contains("://") => {
                lines.push(format!("report: {}", markup.link(report, "report.html")));
            }
            (Some(place), _) => lines.push(format!("report: {}", markup.words(&shown(place)))),
            (None, Some(place)) => lines.push(format!("results: {}", markup.words(&shown(place)))),
            (None, None) => {}
        }
        lines.join("\n")
    }
}

impl Counts {
    fn told(&self) -> String {
        let mut told = format!(
            "{} in {}",
            counted(self.traces, "trace", "traces"),
            counted(self.sessions, "session", "sessions")
        );
        let problems = [
            (self.failed, "failed"),
            (self.pending, "pending"),
            (self.quarantined, "quarantined"),
            (self.unreadable_files, "unreadable"),
        ];
        let what = ["scores", "scores", "rows", "files"];
        for ((count, problem), what) in problems.into_iter().zip(what) {
            if count > 0 {
                told.push_str(&format!(", {} {what} {problem}", grouped(count)));
            }
        }
        told
    }
}

/// How a run that is there ended, in one line.
fn outcome(summary: &Summary, exit_code: u8) -> String {
    let gates: Vec<String> = summary
        .gates
        .iter()
        .filter(|gate| !gate.passed)
        .map(|gate| match gate.value {
            Some(value) => format!(
                "mean {} {value:.4} (at least {})",
                gate.metric, gate.minimum
            ),
            None => format!("no score of {} (at least {})", gate.metric, gate.minimum),
        })
        .collect();
    let gate_of_drift = summary.drift_gate();
    match exit_code {
        0 if summary.gates.is_empty() && gate_of_drift.is_none() => "done".into(),
        0 => "done, all gates passed".into(),
        1 if gates.is_empty() => "a gate failed: it drifted from the nights before it".into(),
        1 => format!("a gate failed: {}", gates.join(", ")),
        _ if gate_of_drift.is_some_and(|drift| drift.problem.is_some()) => {
            "done, but it is not known whether it drifted, or something could not be scored".into()
        }
        _ => "done, but something could not be scored".into(),
    }
}

/// The address of the report below what links begin with.
fn page_at(base: &str, results: &str) -> String {
    let name = results.trim_end_matches('/').rsplit('/').next();
    let name = utf8_percent_encode(name.unwrap_or_default(), PART).to_string();
    let base = base.replace(RUN, &name);
    format!("{}/report.html", base.trim_end_matches('/'))
}

/// A text of data in one line: no control characters, none that turn the direction of writing, and not too long.
fn shown(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    brief(text).replace(turns, "\u{fffd}")
}

/// How a text is marked up.
trait Markup {
    fn words(&self, text: &str) -> String;
    fn strong(&self, text: &str) -> String;
    fn link(&self, to: &str, text: &str) -> String;
}

struct Plain;

impl Markup for Plain {
    fn words(&self, text: &str) -> String {
        text.to_owned()
    }

    fn strong(&self, text: &str) -> String {
        text.to_owned()
    }

    fn link(&self, to: &str, text: &str) -> String {
        match text == "report.html" {
            true => to.to_owned(),
            false => format!("{text} ({to})"),
        }
    }
}

/// Slack's mrkdwn: `&`, `<` and `>` are all that has to be escaped.
struct Slack;

impl Slack {
    fn escaped(text: &str) -> String {
        let escaped = text.replace('&', "&amp;");
        escaped.replace('<', "&lt;").replace('>', "&gt;")
    }
}

impl Markup for Slack {
    fn words(&self, text: &str) -> String {
        // Chats that take the same JSON call everybody at such a word, wherever it stands.
        let mut words = Self::escaped(text);
        for all in ["channel", "here", "everyone", "all"] {
            words = words.replace(&format!("@{all}"), &format!("@\u{200b}{all}"));
        }
        words
    }

    fn strong(&self, text: &str) -> String {
        format!("*{}*", self.words(text).replace('*', "\u{2217}"))
    }

    fn link(&self, to: &str, text: &str) -> String {
        let to = to
            .replace('|', "%7C")
            .replace('<', "%3C")
            .replace('>', "%3E");
        format!("<{}|{}>", to.replace('&', "&amp;"), self.words(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::GateResult;
    use crate::summary::{AttentionSession, AttentionSummary};

    fn summary(id: &str) -> Summary {
        Summary {
            files: 1,
            traces: 1234,
            sessions: 2,
            failed_signals: 3,
            quarantined: 4,
            gates: vec![GateResult {
                metric: "coherence".into(),
                minimum: 0.9,
                value: Some(0.5),
                passed: false,
            }],
            attention: Some(AttentionSummary {
                first: vec![AttentionSession {
                    session_id: id.into(),
                    project_id: None,
                    place: 1,
                    attention: 0.9,
                    traces: 3,
                    parts: Vec::new(),
                    why: "failed tool calls: 4 (more than 97 % of sessions)".into(),
                }],
                ..AttentionSummary::default()
            }),
            ..Summary::default()
        }
    }

    fn places(link: Option<&str>) -> Places {
        Places {
            results: "/runs/a b".into(),
            report: Some("/runs/a b/report.html".into()),
            link: link.map(str::to_owned),
        }
    }

    #[test]
    fn a_text_says_how_it_ended_what_is_there_and_where_to_begin() {
        let notice = Notice::of_run("night", &summary("s 1"), 1, places(None), false);
        let (kind, text) = notice.body(NoticeFormat::Plain);
        assert!(kind.starts_with("text/plain"));
        assert_eq!(
            text,
            "night: a gate failed: mean coherence 0.5000 (at least 0.9)\n\
             1,234 traces in 2 sessions, 3 scores failed, 4 rows quarantined\n\
             first to look at:\n\
             1. s 1: failed tool calls: 4 (more than 97 % of sessions)\n\
             report: /runs/a b/report.html"
        );
    }

    #[test]
    fn ids_are_plain_and_markup_of_them_means_nothing() {
        let id = "<!channel> & \u{1b}[31m\u{202e}@here";
        let link = Some("https://r/{run}/");
        let (_, body) =
            Notice::of_run("n<1>", &summary(id), 1, places(link), false).body(NoticeFormat::Slack);
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = body["text"].as_str().unwrap();
        assert!(text.starts_with("*n&lt;1&gt;*: a gate failed"), "{text}");
        let line = text.lines().find(|line| line.starts_with("1. ")).unwrap();
        let named = "<https://r/a%20b/report.html#session=%3C%21channel%3E%20%26%20%1B%5B31m%E2%80%AE%40here|\
                     &lt;!channel&gt; &amp; \u{fffd}[31m\u{fffd}@\u{200b}here>";
        assert!(line.starts_with(&format!("1. {named}: failed")), "{line}");
        assert!(
            text.ends_with("report: <https://r/a%20b/report.html|report.html>"),
            "{text}"
        );
    }

    #[test]
    fn figures_have_names_in_json() {
        let (_, body) = Notice::of_run("n", &summary("\u{1b}s"), 3, places(None), false)
            .body(NoticeFormat::Json);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["counts"]["failed"], 3);
        assert_eq!(body["exit_code"], 3);
        assert_eq!(body["first"][0]["session_id"], "\u{1b}s");
        assert_eq!(body["gates"][0]["passed"], false);
        let failed = Notice::of_failure("n", "`x.jsonl`: no such column\n  cause: y");
        let (_, body) = failed.body(NoticeFormat::Json);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["outcome"], "the run failed: `x.jsonl`: no such column");
        assert_eq!(body["counts"], Value::Null);
    }
}
