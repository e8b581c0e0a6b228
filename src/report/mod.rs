//! Reports for people: HTML for the browser, text for the terminal.

mod answer;
mod changes;
mod first_sessions;
mod judging;
mod notice;
mod paint;
mod terminal;
mod validation;
mod words;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use serde_json::json;

use crate::history::Changes;
use crate::metric::{Rules, round4};
use crate::summary::{PageFacts, ShownSession, Summary};

pub use answer::answer;
pub use changes::{CHART_STYLE, changes_page, changes_section};
pub use first_sessions::{FirstSession, first_sessions};
pub use notice::{Notice, Places};
pub use paint::Paint;
pub use terminal::{judges, text};
pub use validation::validation_page;
pub use words::{brief, counted, drift, plain};

const TEMPLATE: &str = include_str!("report.html.j2");
/// The look that all our pages share, as CSS for the one `<style>` of a page.
pub(crate) const STYLE: &str = include_str!("style.css");
/// A report names at most this many input files.
const MOST_INPUTS: usize = 50;

/// The report as one self-contained HTML page. Everything that comes from data is escaped. `changes` is what changed since
/// the nights before, of a run that continues another one; where that is not known, the summary says why.
///
/// # Errors
/// A message, if the template is broken.
pub fn html(
    facts: &PageFacts,
    rules: &Rules,
    summary: &Summary,
    worst: &[ShownSession],
    changes: Option<&Changes>,
) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .add_template("report.html", TEMPLATE)
        .map_err(|e| e.to_string())?;
    let template = environment
        .get_template("report.html")
        .map_err(|e| e.to_string())?;
    let (model, sha256) = facts
        .model
        .clone()
        .unwrap_or_else(|| ("none".into(), "none".into()));
    let run = json!({
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
    });
    let counts = json!({
        "input_notes": summary.input_notes,
        "files": summary.files,
        "rows_read": summary.rows_read,
        "traces": summary.traces,
        "sessions": summary.sessions,
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
    });
    let stages: Vec<_> = summary
        .stages
        .iter()
        .map(|(name, seconds)| json!({ "name": name, "seconds": round4(*seconds) }))
        .collect();
    let quarantine: Vec<_> = summary
        .quarantine
        .iter()
        .map(|q| json!({ "reason": q.code, "rows": q.rows, "example": q.example }))
        .collect();
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
    let page = template.render(context! {
        changed => minijinja::Value::from_safe_string(changed),
        chart_style => minijinja::Value::from_safe_string(CHART_STYLE.to_owned()),
        not_changed => problem.map(|problem| brief(&problem)),
        drift => drift,
        style => minijinja::Value::from_safe_string(STYLE.to_owned()),
        title => facts.title,
        run => run,
        counts => counts,
        stages => stages,
        metrics => summary.metrics,
        worst_sessions => worst,
        quarantine => quarantine,
        judge => judging::judging(summary),
    });
    page.map_err(|e| format!("the report could not be rendered: {e:#}"))
}
