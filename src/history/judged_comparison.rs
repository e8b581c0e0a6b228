//! The conversations of two runs side by side: a candidate against a baseline (as in Connexity).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::conversation::{
    Agent, Change, RunComparison, RunDifferences, RunSnapshot, Thresholds, compare, differences,
};
use crate::history::judged_runs::{ConversationFigures, JudgedRun};

/// Settings that say how judges are asked, and are no part of the configuration of metrics.
const ASKING: [&str; 3] = ["url", "temperature", "max_output_tokens"];

/// A candidate against a baseline, as `nightmill runs comparison --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedComparison {
    /// The figures of the baseline.
    pub baseline: ConversationFigures,
    /// The figures of the candidate.
    pub candidate: ConversationFigures,
    /// How much worse the candidate may be.
    pub thresholds: Thresholds,
    /// What moved: whether it is a regression, the runs as wholes, cases and metrics.
    #[serde(flatten)]
    pub comparison: RunComparison,
    /// Settings of the judge that differ.
    pub judge_changes: Vec<Change>,
    /// What else differs, and what makes the runs less comparable.
    pub differences: RunDifferences,
}

impl JudgedComparison {
    /// Whether the candidate misses a bar of its own: that of the mean overall score, or that of the share of passed cases.
    pub fn misses_bar(&self) -> bool {
        let figures = &self.candidate.figures;
        [figures.metrics_passed, figures.cases_passed].contains(&Some(false))
    }
}

/// Compares the conversations of two runs. Rows are matched by test case, which is the session id where no other was
/// given.
pub fn compare_judged(
    baseline: &JudgedRun,
    candidate: &JudgedRun,
    thresholds: Thresholds,
) -> JudgedComparison {
    let comparison = compare(&baseline.cases, &candidate.cases, &thresholds);
    let judge_changes = judge_changes(&baseline.settings, &candidate.settings);
    let mut differences = differences(
        &snapshot(baseline, candidate),
        &snapshot(candidate, baseline),
    );
    let notes = judge_changes.iter().map(|change| {
        format!(
            "The judge's `{}` changed from {} to {}.",
            change.name, change.baseline, change.candidate
        )
    });
    differences.infrastructure_notes.extend(notes);
    let warnings = &mut differences.warnings;
    if comparison.case_lists_differ() {
        warnings.push(format!(
            "The runs have different cases: {} in the baseline only, {} in the candidate only; they count in the figures of \
             their run and are not compared.",
            comparison.baseline_only.len(),
            comparison.candidate_only.len()
        ));
    }
    for (side, run) in [("baseline", baseline), ("candidate", candidate)] {
        warnings.extend(unjudged(side, run));
    }
    JudgedComparison {
        baseline: baseline.figures(),
        candidate: candidate.figures(),
        thresholds,
        comparison,
        judge_changes,
        differences,
    }
}

/// What is known of a run beside its results, and of the agent what is known in the other run too: what nobody tells is
/// no difference. Nothing that conversations are made of tells the agent's model.
fn snapshot(run: &JudgedRun, other: &JudgedRun) -> RunSnapshot {
    let config: BTreeMap<&String, &Value> = run
        .settings
        .iter()
        .filter(|(name, _)| !ASKING.contains(&name.as_str()))
        .collect();
    let text = Value::from_iter(config.into_iter().map(|(k, v)| (k.clone(), v.clone())));
    let version = blake3::hash(text.to_string().as_bytes()).to_hex();
    let model = run.model.as_deref().unwrap_or("an unnamed model");
    let program = run.program.as_deref().unwrap_or("?");
    let in_both = |member: fn(&Agent) -> &Option<String>| {
        let known = member(&run.agent).clone();
        known.filter(|_| member(&other.agent).is_some())
    };
    RunSnapshot {
        config_version: Some(version.chars().take(12).collect()),
        judge: Some(format!("{model} (prompts of nightmill {program})")),
        system_prompt: in_both(|agent| &agent.system_prompt),
        tools: in_both(|agent| &agent.tools),
        ..RunSnapshot::default()
    }
}

fn judge_changes(
    baseline: &BTreeMap<String, Value>,
    candidate: &BTreeMap<String, Value>,
) -> Vec<Change> {
    let names: BTreeSet<&String> = baseline.keys().chain(candidate.keys()).collect();
    let value = |side: &BTreeMap<String, Value>, name| side.get(name).cloned().unwrap_or_default();
    let changes = names.into_iter().map(|name| Change {
        name: name.clone(),
        baseline: value(baseline, name),
        candidate: value(candidate, name),
    });
    changes
        .filter(|change| change.baseline != change.candidate)
        .collect()
}

/// A warning of conversations without a score.
fn unjudged(side: &str, run: &JudgedRun) -> Option<String> {
    let failed = run.results.iter().filter(|r| r.judge_error.is_some());
    let (failed, pending) = (failed.count(), run.pending);
    let all = run.results.len();
    (failed + pending > 0).then(|| {
        format!(
            "Of the {all} conversations of the {side}, the judge failed for {failed}, which count as 0, and was not asked about \
             {pending}."
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::conversation::{CaseResult, ComparedCase, RunBars};
    use crate::history::{RunRecord, RunStatus, StoredRun};

    fn judged(name: &str, cases: &[(&str, bool, f64)], settings: &Value) -> JudgedRun {
        let result = |(case, passed, score): &(&str, bool, f64)| CaseResult {
            test_case: (*case).into(),
            case_passed: Some(*passed),
            overall_score: Some(*score),
            ..CaseResult::default()
        };
        let compared = |(case, passed, score): &(&str, bool, f64)| ComparedCase {
            test_case: (*case).into(),
            passed: Some(*passed),
            overall_score: Some(*score),
            ..ComparedCase::default()
        };
        JudgedRun {
            run: StoredRun {
                name: name.into(),
                title: None,
                created_at: DateTime::UNIX_EPOCH,
                command: "score".into(),
                status: RunStatus::Completed,
                traces: 1,
                sessions: 1,
                judged: 1,
                failed: 0,
                failed_signals: 0,
                pending: 0,
                record: RunRecord::default(),
                path: PathBuf::new(),
                identity: None,
                retried: Vec::new(),
            },
            model: Some("openai/judge".into()),
            program: Some("1".into()),
            settings: serde_json::from_value(settings.clone()).unwrap(),
            agent: Agent::default(),
            bars: RunBars::default(),
            results: cases.iter().map(result).collect(),
            cases: cases.iter().map(compared).collect(),
            scores: Vec::new(),
            pending: 0,
        }
    }

    #[test]
    fn equal_runs_have_no_notes() {
        let settings = json!({"temperature": 0.2, "pass_threshold": 75.0});
        let run = judged("a", &[("s", true, 90.0)], &settings);
        let found = compare_judged(&run, &run, Thresholds::default());
        assert!(!found.comparison.regression_detected && !found.misses_bar());
        assert_eq!(found.differences, RunDifferences::default());
        assert!(found.judge_changes.is_empty());
        let shown = json!(found);
        assert_eq!(shown["regression_detected"], false);
        assert_eq!(shown["aggregate"]["unchanged"], 1);
        assert_eq!(shown["candidate"]["figures"]["pass_rate"], 1.0);
    }

    #[test]
    fn what_makes_runs_less_comparable_is_said() {
        let old = judged(
            "old",
            &[("s", true, 90.0), ("gone", true, 90.0)],
            &json!({"temperature": 0.2, "pass_threshold": 75.0}),
        );
        let mut new = judged(
            "new",
            &[("s", false, 50.0)],
            &json!({"temperature": 0.2, "pass_threshold": 60.0}),
        );
        new.model = Some("openai/other".into());
        new.pending = 1;
        let found = compare_judged(&old, &new, Thresholds::default());
        assert!(found.comparison.regression_detected && found.misses_bar());
        let change = &found.judge_changes[0];
        assert_eq!(
            (change.name.as_str(), &change.candidate),
            ("pass_threshold", &json!(60.0))
        );
        let notes = &found.differences.infrastructure_notes;
        assert!(notes[0].contains("openai/other") && notes[1].contains("60"));
        let warnings = &found.differences.warnings;
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].contains("configuration version"));
        assert!(warnings[1].contains("1 in the baseline only"));
        assert!(warnings[2].contains("candidate") && warnings[2].contains("1."));
        // Asking more coldly is no other configuration of metrics.
        let cold = json!({"temperature": 0.0, "pass_threshold": 60.0});
        let cold = judged("cold", &[("s", false, 50.0)], &cold);
        new.pending = 0;
        new.model = cold.model.clone();
        let found = compare_judged(&new, &cold, Thresholds::default());
        assert!(found.differences.warnings.is_empty());
        assert_eq!(found.differences.infrastructure_notes.len(), 1);
    }
}
