//! `nightmill runs summary --target conversation`: the figures of judged conversations, run by run.

use super::runs_flags::Looked;
use super::{AnyError, listing};
use crate::conversation::Breakdown;
use crate::history::figures::Target;
use crate::history::{ConversationFigures, StoredRun, read_judged};
use crate::report::{counted, plain};
use crate::text::format_instant;

/// Prints the figures of the runs that hold conversations. One run after the other is in memory.
pub(super) fn print(looked: &Looked, runs: &[StoredRun]) -> Result<(), AnyError> {
    let mut all = Vec::new();
    for run in runs {
        if !looked.filter(Target::Session).covers(run.created_at) {
            continue;
        }
        let judged = read_judged(run, looked.project.as_deref())?;
        all.extend(judged.map(|judged| judged.figures()));
    }
    listing::print(looked.json, &all, || match all.is_empty() {
        true => {
            "no conversations in these runs; `score --metrics conversation` judges them\n".into()
        }
        false => all.iter().map(text).collect::<Vec<_>>().join("\n"),
    })
}

fn text(of: &ConversationFigures) -> String {
    let figures = &of.figures;
    let mut text = format!(
        "{}, {}, judged by {}\n\
         {} of {}: {} passed, {} failed, {} with an error; pass rate {}\n\
         mean overall score {}, without failures of the judge {} (judge failed {}, not asked {})\n\
         bars: {}, {}\n",
        plain(&of.run.name),
        format_instant(of.run.created_at),
        plain(of.model.as_deref().unwrap_or("an unnamed model")),
        counted(
            figures.total_executions as u64,
            "conversation",
            "conversations"
        ),
        counted(figures.unique_test_case_count as u64, "case", "cases"),
        figures.passed_count,
        figures.failed_count,
        figures.error_count,
        listing::score(Some(figures.pass_rate)),
        points(figures.avg_overall_score),
        points(figures.avg_judged_score),
        figures.judge_error_count,
        of.pending,
        bar(
            "mean overall score",
            figures.weighted_metrics_score_pct,
            figures.metrics_pass_threshold,
            figures.metrics_passed
        ),
        bar(
            "passed cases in percent",
            figures.cases_pass_rate_pct,
            figures.cases_pass_threshold,
            figures.cases_passed
        ),
    );
    if figures.latency_avg_ms.is_some() {
        let latency = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0}"));
        text.push_str(&format!(
            "latency of cases in ms: mean {}, median {}, 95th percentile {}, most {}\n",
            latency(figures.latency_avg_ms),
            latency(figures.latency_p50_ms),
            latency(figures.latency_p95_ms),
            latency(figures.latency_max_ms)
        ));
    }
    text.push('\n');
    let metrics = of.metrics.iter().map(|row| {
        let name = row.metric.clone().unwrap_or_default();
        breakdown(name, row)
    });
    text.push_str(&listing::table(
        [
            "metric",
            "tier",
            "scores",
            "mean",
            "above 2",
            "up to 2",
            "failure codes",
        ],
        metrics.collect(),
    ));
    text.push('\n');
    let tiers = of.tiers.iter().map(|row| {
        let [_, tier, count, mean, passed, failed, _] = breakdown(String::new(), row);
        [tier, count, mean, passed, failed]
    });
    text.push_str(&listing::table(
        ["tier", "scores", "mean", "above 2", "up to 2"],
        tiers.collect(),
    ));
    text.push('\n');
    let cases = of.cases.iter().map(|case| {
        [
            case.test_case.clone(),
            case.count.to_string(),
            case.passed_count.to_string(),
            case.failed_count.to_string(),
            points(case.average_score),
        ]
    });
    text.push_str(&listing::table(
        [
            "case",
            "conversations",
            "passed",
            "failed",
            "mean overall score",
        ],
        cases.collect(),
    ));
    text
}

fn breakdown(name: String, row: &Breakdown) -> [String; 7] {
    let codes = row.failure_codes.iter();
    let codes: Vec<String> = codes
        .map(|found| format!("{} {}", found.code, found.count))
        .collect();
    [
        name,
        row.tier.name().to_owned(),
        row.count.to_string(),
        points(Some(row.average_score)),
        row.passed_count.to_string(),
        row.failed_count.to_string(),
        codes.join(", "),
    ]
}

/// A bar in words: the value, the bar, and whether it is reached.
fn bar(what: &str, value: Option<f64>, bar: Option<f64>, passed: Option<bool>) -> String {
    match (bar, passed) {
        (Some(bar), Some(true)) => format!("{what} {} reaches {bar}", points(value)),
        (Some(bar), Some(false)) => format!("{what} {} misses {bar}", points(value)),
        _ => format!("no bar for {what}"),
    }
}

/// A number of points with 2 decimals, or a dash.
pub(super) fn points(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}
