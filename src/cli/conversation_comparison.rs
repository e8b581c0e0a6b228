//! `nightmill runs comparison BASELINE CANDIDATE`: the judged conversations of two runs side by side.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::conversation_explanation::explained;
use super::conversation_summary::points;
use super::runs_flags::{ComparisonArgs, ConversationArgs};
use super::{AnyError, Outcome, idle_flags, listing};
use crate::conversation::{
    CaseComparison, ChangeStatus, MetricDelta, RegressionReason, RunSummary,
};
use crate::history::{
    JudgedComparison, JudgedRun, compare_judged, comparison_folder, find_runs, read_judged,
    read_run, write_comparison,
};
use crate::job::Job;
use crate::report::{counted, plain};
use crate::run::open::questions;
use crate::run::{Explanation, JudgeRequest, explain};
use crate::text::format_instant;

/// What is printed as JSON.
#[derive(Serialize)]
struct Compared {
    conversations: JudgedComparison,
    /// Only where it was asked for; null if nothing moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Option<Explanation>>,
}

pub(super) fn run(args: &ComparisonArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let looked = &args.looked;
    let [baseline, candidate] = looked.dirs.as_slice() else {
        return Err(
            "name a metric of sessions with --metric; or two run directories, a baseline and a candidate, whose conversations are \
             compared"
                .into(),
        );
    };
    if looked.from.is_some() || looked.to.is_some() {
        return Err(
            "--from and --to choose runs by time; two runs that are named need neither".into(),
        );
    }
    // What can't be asked is refused before anything is read.
    let judge = asked(&args.conversations, config)?;
    let project = looked.project.as_deref();
    let (baseline, candidate) = (side(baseline, project)?, side(candidate, project)?);
    // A folder that can't be made is refused before anything is asked.
    let folder = args.conversations.out.as_ref().map(|out| {
        let runs = [&baseline.run, &candidate.run];
        comparison_folder(out, args.conversations.overwrite, runs)
    });
    let folder = folder.transpose()?;
    let conversations = compare_judged(&baseline, &candidate, args.conversations.thresholds());
    let explanation = judge.map(|judge| explain(&judge, &conversations));
    let compared = Compared {
        explanation: explanation.transpose()?,
        conversations,
    };
    let written = folder.map(|folder| write_comparison(folder, &compared.conversations, &compared));
    let written = written.transpose()?;
    listing::print(looked.json, &compared, || {
        let mut text = text(&compared.conversations, args.limit);
        match &compared.explanation {
            None => {}
            Some(None) => text.push_str("\nnothing moved, so that the judge was not asked why\n"),
            Some(Some(explanation)) => text.push_str(&explained(explanation)),
        }
        if let Some(written) = &written {
            text.push_str(&format!("\ntables: {}\n", written.display()));
        }
        text
    })?;
    let compared_to = &compared.conversations;
    let worse = compared_to.comparison.regression_detected;
    let missed = args.conversations.hold_bars && compared_to.misses_bar();
    let asked_in_vain = compared
        .explanation
        .flatten()
        .is_some_and(|e| !e.complete());
    Ok(match () {
        () if worse || missed => Outcome::GateFailed,
        () if asked_in_vain => Outcome::Incomplete,
        () => Outcome::Done,
    })
}

/// The judge to ask, if one is to be asked.
fn asked(args: &ConversationArgs, config: Option<&Path>) -> Result<Option<JudgeRequest>, AnyError> {
    if !args.explain {
        idle_flags::of_no_judge(
            &args.judge.given,
            "nobody is asked without --explain; add it, or leave this out",
        )?;
        return Ok(None);
    }
    let mut given = args.judge.given.clone();
    if args.offline {
        given = given.with("offline", true);
    }
    let job = Job::of(given.complete(config)?)?;
    let request = questions(&job, "--explain")?;
    Ok(Some(request))
}

/// One of the two runs.
fn side(path: &PathBuf, project: Option<&str>) -> Result<JudgedRun, AnyError> {
    let folders = find_runs(std::slice::from_ref(path))?;
    let [folder] = folders.as_slice() else {
        return Err(format!(
            "`{}` holds {} runs; name one run directory as the baseline and one as the candidate",
            path.display(),
            folders.len()
        )
        .into());
    };
    let judged = read_judged(&read_run(folder)?, project)?;
    judged.ok_or_else(|| {
        format!(
            "the run `{}` holds no judged conversations; score with --metrics conversation, or compare scores of sessions with \
             --metric",
            path.display()
        )
        .into()
    })
}

fn text(of: &JudgedComparison, limit: usize) -> String {
    let JudgedComparison {
        baseline,
        candidate,
        comparison,
        ..
    } = of;
    let mut text = String::new();
    for (side, run) in [("baseline: ", baseline), ("candidate:", candidate)] {
        text.push_str(&format!(
            "{side} {}, {}, {} judged by {}\n",
            plain(&run.run.name),
            format_instant(run.run.created_at),
            counted(
                run.figures.total_executions as u64,
                "conversation",
                "conversations"
            ),
            plain(run.model.as_deref().unwrap_or("an unnamed model"))
        ));
    }
    let reasons: Vec<&str> = comparison.reasons.iter().map(|r| reason(*r)).collect();
    text.push_str(&match reasons.is_empty() {
        true => "verdict:   no regression\n\n".to_owned(),
        false => format!("verdict:   regression: {}\n\n", reasons.join(", ")),
    });
    text.push_str(&figures(of));
    text.push('\n');
    text.push_str(&metrics(of));
    text.push('\n');
    text.push_str(&tiers(of));
    text.push('\n');
    text.push_str(&cases(of, limit));
    let differences = &of.differences;
    for (label, lines) in [
        ("only in the baseline", &comparison.baseline_only),
        ("only in the candidate", &comparison.candidate_only),
    ] {
        if !lines.is_empty() {
            let shown: Vec<String> = lines.iter().take(limit).map(|name| plain(name)).collect();
            let more = lines.len() - shown.len();
            text.push_str(&format!("{label}: {}", shown.join(", ")));
            text.push_str(&match more {
                0 => "\n".to_owned(),
                more => format!(" and {more} more\n"),
            });
        }
    }
    if let Some(prompt) = &differences.prompt {
        text.push_str(&format!(
            "the agent's system prompt differs: {} added, {} removed (--json has the diff)\n",
            counted(prompt.added_lines as u64, "line", "lines"),
            prompt.removed_lines
        ));
    }
    let tools = &differences.tools;
    for (label, names) in [
        ("added", &tools.added),
        ("removed", &tools.removed),
        ("modified", &tools.modified),
    ] {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| plain(name)).collect();
            text.push_str(&format!(
                "tools of the agent {label}: {}\n",
                names.join(", ")
            ));
        }
    }
    for note in &differences.infrastructure_notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    for warning in &differences.warnings {
        text.push_str(&format!("warning: {}\n", plain(warning)));
    }
    text
}

fn reason(reason: RegressionReason) -> &'static str {
    match reason {
        RegressionReason::PassRate => "the pass rate fell",
        RegressionReason::AvgScore => "the mean overall score fell",
        RegressionReason::AvgLatency => "the mean latency rose",
    }
}

fn figures(of: &JudgedComparison) -> String {
    let (old, new) = (&of.baseline.figures, &of.candidate.figures);
    let aggregate = &of.comparison.aggregate;
    let counts = |name: &str, count: fn(&RunSummary) -> usize| {
        let change = count(new) as i64 - count(old) as i64;
        [
            name.to_owned(),
            count(old).to_string(),
            count(new).to_string(),
            format!("{change:+}"),
        ]
    };
    let reached = |name: &str, bar: fn(&RunSummary) -> Option<bool>| {
        let shown = |run| match bar(run) {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => "–".to_owned(),
        };
        [name.to_owned(), shown(old), shown(new), String::new()]
    };
    let number = |name: &str, value: fn(&RunSummary) -> Option<f64>, change: Option<f64>| {
        [
            name.to_owned(),
            points(value(old)),
            points(value(new)),
            signed(change),
        ]
    };
    let mut rows = vec![
        counts("conversations passed", |run| run.passed_count),
        counts("conversations failed", |run| run.failed_count),
        counts("conversations with an error", |run| run.error_count),
        [
            "pass rate".to_owned(),
            listing::score(Some(old.pass_rate)),
            listing::score(Some(new.pass_rate)),
            format!("{:+.4}", aggregate.pass_rate_delta),
        ],
        number(
            "mean overall score",
            |run| run.avg_overall_score,
            aggregate.avg_score_delta,
        ),
        reached("  at its bar", |run| run.metrics_passed),
        reached("pass rate at its bar", |run| run.cases_passed),
    ];
    let latency = number(
        "mean latency, ms",
        |run| run.latency_avg_ms,
        aggregate.latency_avg_delta_ms,
    );
    let latency_p95 = number(
        "95th percentile of latency, ms",
        |run| run.latency_p95_ms,
        aggregate.latency_p95_delta_ms,
    );
    let cost = number(
        "cost, dollars",
        |run| run.total_estimated_cost_usd,
        aggregate.cost_delta_usd,
    );
    let known = |row: &[String; 4]| row[1] != "–" || row[2] != "–";
    rows.extend([latency, latency_p95, cost].into_iter().filter(known));
    listing::table(["", "baseline", "candidate", "change"], rows)
}

fn metrics(of: &JudgedComparison) -> String {
    let rows = of.comparison.aggregate.per_metric.iter().map(|metric| {
        [
            metric.metric.clone(),
            match metric.is_binary {
                Some(true) => "share passed",
                Some(false) => "0 to 5",
                None => "differs",
            }
            .to_owned(),
            listing::score(metric.baseline_avg),
            listing::score(metric.candidate_avg),
            signed(metric.delta),
        ]
    });
    let header = [
        "metric, cases of both",
        "scale",
        "baseline",
        "candidate",
        "change",
    ];
    listing::table(header, rows.collect())
}

fn tiers(of: &JudgedComparison) -> String {
    let mut tiers: BTreeMap<_, [Option<f64>; 2]> = BTreeMap::new();
    for (side, run) in [&of.baseline, &of.candidate].into_iter().enumerate() {
        for row in &run.tiers {
            if let Some(mean) = tiers.entry(row.tier).or_default().get_mut(side) {
                *mean = Some(row.average_score);
            }
        }
    }
    let rows = tiers.into_iter().map(|(tier, [old, new])| {
        let change = old.zip(new).map(|(old, new)| new - old);
        [
            tier.name().to_owned(),
            points(old),
            points(new),
            signed(change),
        ]
    });
    let header = ["tier, whole runs", "baseline", "candidate", "change"];
    listing::table(header, rows.collect())
}

/// The cases that moved, regressions first, the largest first of each kind.
fn cases(of: &JudgedComparison, limit: usize) -> String {
    let comparison = &of.comparison;
    let aggregate = &comparison.aggregate;
    let count = format!(
        "cases of both: {} worse, {} better, {} unchanged, {} with an error\n",
        aggregate.regressions, aggregate.improvements, aggregate.unchanged, aggregate.errors
    );
    let moved = |case: &&CaseComparison| case.status != ChangeStatus::Unchanged;
    let mut moved: Vec<&CaseComparison> = comparison.cases.iter().filter(moved).collect();
    if moved.is_empty() {
        return count;
    }
    let rank = |case: &CaseComparison| match case.status {
        ChangeStatus::Regression => 0,
        ChangeStatus::Error => 1,
        ChangeStatus::Improvement => 2,
        ChangeStatus::Unchanged => 3,
    };
    let size = |case: &CaseComparison| case.score_delta.unwrap_or_default().abs();
    moved.sort_by(|a, b| {
        let largest = size(b).total_cmp(&size(a));
        rank(a).cmp(&rank(b)).then(largest)
    });
    let scores = |run: &crate::history::ConversationFigures| -> BTreeMap<String, Option<f64>> {
        let cases = run.cases.iter();
        cases
            .map(|case| (case.test_case.clone(), case.average_score))
            .collect()
    };
    let (old, new) = (scores(&of.baseline), scores(&of.candidate));
    let score = |side: &BTreeMap<String, Option<f64>>, case: &CaseComparison| {
        points(side.get(&case.test_case).copied().flatten())
    };
    let rows = moved.iter().take(limit).map(|case| {
        let metrics = case.metric_deltas.iter().filter_map(moved_metric);
        [
            case.test_case.clone(),
            case.status.name().to_owned(),
            score(&old, case),
            score(&new, case),
            signed(case.score_delta),
            signed(case.latency_delta_ms),
            metrics.collect::<Vec<_>>().join(", "),
        ]
    });
    let header = [
        "case",
        "status",
        "baseline",
        "candidate",
        "change",
        "latency, ms",
        "metrics",
    ];
    let table = listing::table(header, rows.collect());
    let more = match moved.len().saturating_sub(limit) {
        0 => String::new(),
        more => format!("and {more} more; see --limit and --json\n"),
    };
    format!("{count}{table}{more}")
}

/// A metric that moved in a case, in words.
fn moved_metric(metric: &MetricDelta) -> Option<String> {
    let name = &metric.metric;
    match (metric.status, metric.delta) {
        (ChangeStatus::Unchanged | ChangeStatus::Error, _) => None,
        // Repetitions are averaged, so that a change need not be whole.
        (_, Some(delta)) => {
            let change = format!("{delta:+.2}");
            let change = change.trim_end_matches('0').trim_end_matches('.');
            Some(format!("{name} {change}"))
        }
        (ChangeStatus::Regression, None) => Some(format!("{name} fails")),
        (ChangeStatus::Improvement, None) => Some(format!("{name} passes")),
    }
}

/// A change with its sign, or a dash.
fn signed(change: Option<f64>) -> String {
    change.map_or_else(|| "–".to_owned(), |change| format!("{change:+.2}"))
}
