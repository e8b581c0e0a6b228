//! `nightmill runs comparison BASELINE CANDIDATE` of runs without judged conversations: computed scores side by side.

use std::path::PathBuf;

use super::runs_flags::ComparisonArgs;
use super::{AnyError, Outcome, idle_flags, listing};
use crate::conversation::Thresholds;
use crate::history::changes::Verdict;
use crate::history::{
    ComputedComparison, StoredRun, compare_computed, find_runs, holds_conversations, read_run,
};
use crate::report::plain;

/// The two runs, if that is what is named and neither has conversations. What is wrong with a side is told where
/// conversations are compared.
pub(super) fn runs_of(args: &ComparisonArgs) -> Option<[StoredRun; 2]> {
    let [baseline, candidate] = args.looked.dirs.as_slice() else {
        return None;
    };
    let side = |path: &PathBuf| {
        let folders = find_runs(std::slice::from_ref(path)).ok()?;
        let [folder] = folders.as_slice() else {
            return None;
        };
        read_run(folder)
            .ok()
            .filter(|run| !holds_conversations(run))
    };
    Some([side(baseline)?, side(candidate)?])
}

pub(super) fn run(args: &ComparisonArgs, runs: &[StoredRun; 2]) -> Result<Outcome, AnyError> {
    refuse_idle(args)?;
    let looked = &args.looked;
    let [baseline, candidate] = runs;
    let compared = compare_computed(baseline, candidate, looked.project.as_deref(), args.limit)?;
    listing::print(looked.json, &compared, || text(&compared))?;
    Ok(match compared.is_worse() {
        true => Outcome::GateFailed,
        false => Outcome::Done,
    })
}

/// Refuses flags that only matter to conversations.
fn refuse_idle(args: &ComparisonArgs) -> Result<(), AnyError> {
    let of = &args.conversations;
    let usual = Thresholds::default();
    let idle = [
        (
            "--max-pass-rate-drop",
            of.max_pass_rate_drop != usual.max_pass_rate_drop,
        ),
        (
            "--max-avg-score-drop",
            of.max_avg_score_drop != usual.max_avg_score_drop,
        ),
        (
            "--max-latency-increase-pct",
            of.max_latency_increase_pct != usual.max_latency_increase_pct,
        ),
        ("--hold-bars", of.hold_bars),
        ("--explain", of.explain),
        ("--out", of.out.is_some()),
        ("--from", args.looked.from.is_some()),
        ("--to", args.looked.to.is_some()),
    ];
    match idle.iter().find(|(_, given)| *given) {
        None => Ok(idle_flags::of_no_judge(
            &of.judge.given,
            "nobody is asked about computed scores; leave it out",
        )?),
        Some((flag, _)) => Err(format!(
            "{flag}: has no effect here, since neither run has judged conversations; leave it out, or score with --metrics conversation"
        )
        .into()),
    }
}

fn text(of: &ComputedComparison) -> String {
    let fell: Vec<&str> = of
        .metrics
        .iter()
        .filter(|metric| metric.verdict == Verdict::Fell)
        .map(|metric| metric.metric.as_str())
        .collect();
    let verdict = match fell.is_empty() {
        true => "no metric fell beyond chance".to_owned(),
        false => format!("fell beyond chance: {}", fell.join(", ")),
    };
    let mut text = format!(
        "baseline:  {}\ncandidate: {}\nverdict:   {}\n",
        plain(&of.baseline),
        plain(&of.candidate),
        plain(&verdict)
    );
    for rule in &of.rules_that_differ {
        text.push_str(&format!("the rules differ: {}\n", plain(rule)));
    }
    if !of.metrics_of_one.is_empty() {
        text.push_str(&format!(
            "only in one: {}\n",
            plain(&of.metrics_of_one.join(", "))
        ));
    }
    text.push('\n');
    let rows = of.metrics.iter().map(|metric| {
        [
            metric.metric.clone(),
            match metric.paired {
                true => metric.in_both.to_string(),
                false => format!("{}, too few to pair", metric.in_both),
            },
            format!("{} and {}", metric.baseline_only, metric.candidate_only),
            listing::score(metric.baseline),
            listing::score(metric.candidate),
            match (metric.difference, metric.interval) {
                (Some(difference), Some([low, high])) => {
                    format!("{difference:+.4} ({low:+.4} to {high:+.4})")
                }
                (Some(difference), None) => format!("{difference:+.4} (too few sessions)"),
                _ => "–".to_owned(),
            },
            metric.better.to_string(),
            metric.worse.to_string(),
            metric.newly_bad.to_string(),
            metric.recovered.to_string(),
        ]
    });
    let header = [
        "metric",
        "in both",
        "in one alone",
        "baseline",
        "candidate",
        "difference, 99 %",
        "better",
        "worse",
        "newly bad",
        "recovered",
    ];
    text.push_str(&listing::table(header, rows.collect()));
    if !of.rows.is_empty() {
        let rows = of.rows.iter().map(|row| {
            let id = match &row.project_id {
                None => row.target_id.clone(),
                Some(project) => format!("{} of {project}", row.target_id),
            };
            let [before, after] = [row.baseline, row.candidate].map(listing::score);
            [row.metric.clone(), before, after, id]
        });
        text.push('\n');
        text.push_str(&listing::table(
            [
                "metric",
                "baseline",
                "candidate",
                "session or trace, the greatest loss first",
            ],
            rows.collect(),
        ));
    }
    text
}
