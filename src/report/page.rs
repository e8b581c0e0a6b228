//! The page of a run. Its parts are templates in `page/`; what they show is made ready here.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value as Shown, context};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::changes::{CHART_STYLE, changes_section};
use super::words::brief;
use super::{STYLE, commands, judging, list, marked, trust};
use crate::history::Changes;
use crate::metric::session_signal::{SESSION_SIGNALS, TRACES, WAREHOUSE_SIGNALS};
use crate::metric::{Rules, round4};
use crate::output::MetricSummary;
use crate::summary::{
    ListOrder, ListedSession, PageFacts, PageSessions, RankedScore, ShownSession, ShownTrace,
    Summary,
};

const TEMPLATES: [(&str, &str); 8] = [
    ("report.html", include_str!("page/report.html.j2")),
    ("macros.j2", include_str!("page/macros.j2")),
    ("first.j2", include_str!("page/first.j2")),
    ("list.j2", include_str!("page/list.j2")),
    ("shown.j2", include_str!("page/shown.j2")),
    ("metrics.j2", include_str!("page/metrics.j2")),
    ("judges.j2", include_str!("page/judges.j2")),
    ("facts.j2", include_str!("page/facts.j2")),
];
/// The script; strict and closed in itself, so that its names are nobody else's.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/list.js"),
    include_str!("page/session.js"),
    include_str!("page/start.js"),
    "})();\n"
);
const PAGE_STYLE: &str = include_str!("page/report.css");
/// A report names at most this many input files.
const MOST_INPUTS: usize = 50;
/// Sessions on the first screen.
const TOP: usize = 10;

/// The report as one self-contained HTML page. Everything that comes from data is escaped. `changes` is what changed since
/// the nights before, of a run that continues another one; where that is not known, the summary says why.
///
/// # Errors
/// A message, if the template is broken.
pub fn html(
    facts: &PageFacts,
    rules: &Rules,
    summary: &Summary,
    sessions: &PageSessions,
    changes: Option<&Changes>,
) -> Result<String, String> {
    let failed = |e: minijinja::Error| format!("the report could not be rendered: {e:#}");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, template) in TEMPLATES {
        environment.add_template(name, template).map_err(failed)?;
    }
    let template = environment.get_template("report.html").map_err(failed)?;
    let drift = summary.continued.as_ref();
    let drift = drift.and_then(|continued| continued.drift.as_ref());
    let problem = drift.and_then(|drift| drift.problem.clone());
    // What can't be shown of earlier nights takes nothing from the run.
    let (changed, problem) = match changes.map(changes_section) {
        Some(Ok(section)) => (section, None),
        Some(Err(problem)) => {
            tracing::warn!("{problem}");
            (String::new(), Some(problem))
        }
        None => (String::new(), problem),
    };
    let of_traces = summary.metrics.iter().filter(|m| m.level == "trace");
    let columns: Vec<&str> = of_traces.map(|m| m.name.as_str()).collect();
    let repeated = list::repeated(&sessions.listed);
    let described = |session: &ListedSession| describe(session, sessions, repeated);
    let top = sessions.listed.iter().take(TOP);
    let top: Vec<Value> = match sessions.order {
        ListOrder::Table => Vec::new(),
        _ => top.map(described).collect(),
    };
    let shown = sessions.shown.iter().filter_map(|shown| {
        let of = sessions.listed.get(shown.row)?;
        Some(in_full(shown, of, described(of), facts, &columns))
    });
    let (drawn, undrawn): (Vec<&MetricSummary>, Vec<&MetricSummary>) = summary
        .metrics
        .iter()
        .partition(|metric| metric.count > 0 || metric.failed > 0);
    let of_metric = |metrics: Vec<&MetricSummary>| -> Vec<Value> {
        let one = |metric: &MetricSummary| {
            let mut value = json!(metric);
            value["whose"] = json!(trust::whose(&metric.name, rules));
            value
        };
        metrics.into_iter().map(one).collect()
    };
    let safe = |text: String| Shown::from_safe_string(text);
    let mut trusted = trust::lines(summary, rules);
    if summary.attention.is_some() {
        trusted.extend(trust::of_several(names_of(sessions)));
    }
    let listed = sessions.listed.len();
    let page = template.render(context! {
        script => safe(SCRIPT.to_owned()),
        script_hash => safe(STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()))),
        style => safe([STYLE, CHART_STYLE, PAGE_STYLE].join("\n")),
        data => safe(list::data(facts, sessions, &columns)?),
        changed => safe(changed),
        not_changed => problem.map(|problem| brief(&problem)),
        drift => drift,
        title => facts.title,
        run => of_run(facts, rules, summary),
        counts => counts(summary),
        stages => stages(summary),
        drawn => of_metric(drawn),
        undrawn => of_metric(undrawn),
        quarantine => quarantine(summary),
        judge => judging::judging(summary),
        gates_failed => summary.gates.iter().filter(|gate| !gate.passed).count(),
        mixed => sessions.mixed,
        order => match sessions.order {
            ListOrder::Attention => "attention",
            ListOrder::Scores => "scores",
            ListOrder::Table => "table",
        },
        total => sessions.total,
        listed => listed,
        has_scores => sessions.listed.iter().any(|s| !scores_of(s).is_empty()),
        top => top,
        sessions => shown.collect::<Vec<_>>(),
        trust_verdict => trust::verdict(summary, &trusted),
        trust => trusted,
        has_flags => sessions.listed.iter().any(|s| s.flagged.is_some()),
        all => commands::of_run(&facts.run, &all(sessions, 0)),
        rest => (sessions.total > listed as u64)
            .then(|| commands::of_run(&facts.run, &all(sessions, listed))),
    });
    page.map_err(failed)
}

/// The query for the sessions behind the first ones.
fn all(sessions: &PageSessions, behind: usize) -> String {
    let rest = match behind {
        0 => String::new(),
        behind => format!(" OFFSET {behind}"),
    };
    match sessions.order {
        ListOrder::Attention => format!(
            "SELECT place, session_id, project_id, attention, why FROM attention ORDER BY place{rest}"
        ),
        ListOrder::Scores => format!(
            "SELECT session_id, project_id, traces, agent_reliability, agent_consistency FROM sessions ORDER BY \
             agent_reliability NULLS LAST, agent_consistency NULLS LAST, session_id, project_id{rest}"
        ),
        ListOrder::Table => format!(
            "SELECT session_id, project_id, traces, first_started_at FROM sessions ORDER BY session_id, \
             project_id{rest}"
        ),
    }
}

/// How many names the sessions of the list have.
fn names_of(sessions: &PageSessions) -> usize {
    let at = sessions.slices.iter().position(|slice| slice == "name");
    let listed = sessions.listed.iter();
    let names: HashSet<&str> = listed
        .filter_map(|session| session.slices.get(at?)?.as_deref())
        .collect();
    names.len()
}

/// The scores of a session with their names in words, and how many percent of sessions have less.
fn scores_of(session: &ListedSession) -> Vec<Value> {
    let ranked = |name: &str, score: Option<RankedScore>| {
        let score = score?;
        Some(json!([name, score.value, list::percent(score.better_than)]))
    };
    let conversation = session.conversation;
    [
        ranked("agent reliability", session.agent_reliability),
        ranked("agent consistency", session.agent_consistency),
        conversation.map(|score| json!(["conversation", score, null])),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A session as the templates show it.
fn describe(session: &ListedSession, sessions: &PageSessions, repeated: bool) -> Value {
    let known = || {
        let signals = SESSION_SIGNALS.iter().chain(&WAREHOUSE_SIGNALS);
        signals.chain([&TRACES])
    };
    let why: Option<Vec<&str>> = session.why.as_ref().map(|why| why.split("; ").collect());
    let parts = session.parts.iter().enumerate().map(|(at, part)| {
        // The words of the table `attention`, which names the parts in the same order.
        let told = why.as_ref().and_then(|why| why.get(at).copied());
        let counts = known().find(|signal| signal.name == part.signal);
        let counts = counts.map_or(part.signal.as_str(), |signal| signal.counts);
        json!({"words": told.unwrap_or(counts), "signal": part.signal, "rank": part.rank})
    });
    let slices = sessions.slices.iter().zip(&session.slices);
    let slices = slices.filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(json!([name.replace('_', " "), value]))
    });
    json!({
        "session_id": session.session_id,
        "project_id": session.project_id,
        "fragment": list::fragment(session, repeated),
        "place": session.place,
        "traces": session.traces,
        "flagged": session.flagged,
        "parts": parts.collect::<Vec<_>>(),
        "why": why,
        "scores": scores_of(session),
        "slices": slices.collect::<Vec<_>>(),
        "tags": session.tags,
    })
}

/// A session with its texts as the templates show it.
fn in_full(
    shown: &ShownSession,
    of: &ListedSession,
    described: Value,
    facts: &PageFacts,
    columns: &[&str],
) -> Value {
    let project = of.project_id.as_deref();
    let texts = facts.texts.as_ref();
    json!({
        "of": described,
        "row": shown.row,
        "rows": shown.rows.iter().map(trace).collect::<Vec<_>>(),
        "rows_hidden": shown.rows_hidden,
        "has_risk": shown.rows.iter().any(|row| row.step_risk.is_some()),
        "verdict": shown.verdict,
        "texts": texts.map(|texts| commands::texts(texts, &of.session_id, project)),
        "scores": commands::scores(&facts.run, columns, &of.session_id, project),
    })
}

/// A trace, with the words marked that it shares with an earlier output.
fn trace(row: &ShownTrace) -> Value {
    let mut value = json!(row);
    if let (Some(repeats), Some(output)) = (&row.repeats, &row.output) {
        let (earlier, this) = marked::common(&repeats.output.text, &output.text);
        let pieces = |pieces, cut: bool| json!({"pieces": pieces, "cut": cut});
        value["repeats"]["earlier_marked"] = pieces(json!(earlier), repeats.output.cut);
        value["repeats"]["this_marked"] = pieces(json!(this), output.cut);
    } else {
        value["repeats"] = Value::Null;
    }
    value
}

fn of_run(facts: &PageFacts, rules: &Rules, summary: &Summary) -> Value {
    let (model, sha256) = facts
        .model
        .clone()
        .unwrap_or_else(|| ("none".into(), "none".into()));
    json!({
        "created_at": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        "version": env!("CARGO_PKG_VERSION"),
        "model": model,
        "model_sha256": sha256,
        "has_model": facts.model.is_some(),
        "precision": facts.precision,
        "device": facts.device,
        "inputs": facts.inputs.iter().take(MOST_INPUTS).collect::<Vec<_>>(),
        "inputs_total": facts.inputs.len(),
        "text_mode": rules.text_mode.name(),
        "text_mode_meaning": rules.text_mode.meaning(),
        "window": rules.window,
        "thresholds": summary.metrics.iter().map(|m| json!([m.name, m.threshold])).collect::<Vec<_>>(),
        "weights": rules.weights.iter().map(|(name, weight)| json!([name, weight])).collect::<Vec<_>>(),
        "signals": facts.signals,
        "gates": summary.gates,
    })
}

fn counts(summary: &Summary) -> Value {
    json!({
        "input_notes": summary.input_notes,
        "files": summary.files,
        "rows_read": summary.rows_read,
        "traces": summary.traces,
        "merged_duplicates": summary.merged_duplicates,
        "quarantined": summary.quarantined,
        "left_out": summary.rows_left_out,
        "failed_signals": summary.failed_signals,
        "without_expected": summary.traces_without_expected,
        "texts": summary.texts,
        "distinct_texts": summary.distinct_texts,
        "cached_texts": summary.cached_texts,
        "tokens": summary.tokens,
        "dedup_share": summary.dedup_share,
        "tokens_per_second": summary.tokens_per_second,
    })
}

fn stages(summary: &Summary) -> Vec<Value> {
    let stages = summary.stages.iter();
    stages
        .map(|(name, seconds)| json!({ "name": name, "seconds": round4(*seconds) }))
        .collect()
}

fn quarantine(summary: &Summary) -> Vec<Value> {
    let reasons = summary.quarantine.iter();
    reasons
        .map(|q| json!({ "reason": q.code, "rows": q.rows, "example": q.example }))
        .collect()
}
