//! The results of a run by metric, by tier and by test case (as in Connexity).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::conversation::figures::aggregate::CaseResult;
use crate::conversation::figures::numbers::mean;
use crate::conversation::question::metric::Tier;
use crate::conversation::question::reply::MetricScore;
use crate::conversation::question::transcript::is_error;

/// How many failure codes a breakdown names.
const TOP_FAILURE_CODES: usize = 10;

/// A failure code and how often the judge gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCount {
    /// The code.
    pub code: String,
    /// How often it occurs.
    pub count: usize,
}

/// One metric, or one tier, over all verdicts of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// The metric's id; null in the breakdown of a tier.
    pub metric: Option<String>,
    /// The tier.
    pub tier: Tier,
    /// Scores in it.
    pub count: usize,
    /// Mean score, 0 to 5; a binary metric counts 5 or 0.
    pub average_score: f64,
    /// Scores above 2, and binary passes.
    pub passed_count: usize,
    /// Scores of 2 or less, and binary fails.
    pub failed_count: usize,
    /// The ten most frequent failure codes, ties in the order of the alphabet.
    pub failure_codes: Vec<FailureCount>,
}

/// One test case over all of its repetitions in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseBreakdown {
    /// The test case.
    pub test_case: String,
    /// Case results.
    pub count: usize,
    /// Those that passed.
    pub passed_count: usize,
    /// Those that did not pass, without an error.
    pub failed_count: usize,
    /// Those with an error.
    pub error_count: usize,
    /// Verdicts with a judge error.
    pub judge_error_count: usize,
    /// Mean overall score of the verdicts, 0 to 100; a judge error counts as 0. Null without a verdict.
    pub average_score: Option<f64>,
}

/// The breakdown of case results by test case, sorted.
pub fn by_case<'a>(results: impl IntoIterator<Item = &'a CaseResult>) -> Vec<CaseBreakdown> {
    let mut groups: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
    for result in results {
        groups.entry(&result.test_case).or_default().push(result);
    }
    let rows = groups.into_iter().map(|(test_case, group)| {
        let count = |counts: fn(&CaseResult) -> bool| group.iter().filter(|r| counts(r)).count();
        let scores: Vec<f64> = group.iter().filter_map(|r| r.overall_score).collect();
        CaseBreakdown {
            test_case: test_case.to_owned(),
            count: group.len(),
            passed_count: count(|r| r.case_passed == Some(true)),
            failed_count: count(|r| r.case_passed == Some(false) && !is_error(r.error.as_deref())),
            error_count: count(|r| is_error(r.error.as_deref())),
            judge_error_count: count(|r| r.judge_error.is_some()),
            average_score: mean(&scores),
        }
    });
    rows.collect()
}

/// The breakdown of scores by metric, in order of first appearance.
pub fn by_metric<'a>(scores: impl IntoIterator<Item = &'a MetricScore>) -> Vec<Breakdown> {
    let mut order: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&MetricScore>> = BTreeMap::new();
    for score in scores {
        groups
            .entry(&score.metric)
            .or_insert_with(|| {
                order.push(&score.metric);
                Vec::new()
            })
            .push(score);
    }
    let rows = order.into_iter().filter_map(|metric| {
        let group = groups.get(metric)?;
        let tier = group.first()?.tier;
        Some(Breakdown {
            metric: Some(metric.to_owned()),
            ..breakdown(tier, group)
        })
    });
    rows.collect()
}

/// The breakdown of scores by tier, in the order of tiers; tiers without a score are left out.
pub fn by_tier<'a>(scores: impl IntoIterator<Item = &'a MetricScore>) -> Vec<Breakdown> {
    let mut groups: BTreeMap<Tier, Vec<&MetricScore>> = BTreeMap::new();
    for score in scores {
        groups.entry(score.tier).or_default().push(score);
    }
    groups
        .into_iter()
        .map(|(tier, group)| breakdown(tier, &group))
        .collect()
}

fn breakdown(tier: Tier, group: &[&MetricScore]) -> Breakdown {
    let values: Vec<f64> = group.iter().map(|s| f64::from(s.score)).collect();
    let passed_count = group.iter().filter(|s| s.is_acceptable()).count();
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for code in group.iter().filter_map(|s| s.failure_code.as_deref()) {
        *codes.entry(code).or_default() += 1;
    }
    let mut failure_codes: Vec<FailureCount> = codes
        .into_iter()
        .map(|(code, count)| FailureCount {
            code: code.to_owned(),
            count,
        })
        .collect();
    failure_codes.sort_by_key(|found| std::cmp::Reverse(found.count));
    failure_codes.truncate(TOP_FAILURE_CODES);
    Breakdown {
        metric: None,
        tier,
        count: group.len(),
        average_score: mean(&values).unwrap_or_default(),
        passed_count,
        failed_count: group.len() - passed_count,
        failure_codes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::question::reply::JudgeError;
    use crate::conversation::question::verdict::Label;

    fn score(metric: &str, tier: Tier, score: u8, failure_code: Option<&str>) -> MetricScore {
        MetricScore {
            metric: metric.into(),
            tier,
            is_binary: false,
            score,
            label: Label::of_score(score),
            weight: 1.0,
            justification: String::new(),
            failure_code: failure_code.map(str::to_owned),
            turns: Vec::new(),
        }
    }

    #[test]
    fn repetitions_of_a_case_are_one_row() {
        let result = |case: &str, passed: Option<bool>, overall_score: Option<f64>| CaseResult {
            test_case: case.into(),
            case_passed: passed,
            overall_score,
            ..Default::default()
        };
        let broken = CaseResult {
            judge_error: Some(JudgeError::InvalidJson),
            ..result("b", Some(false), Some(0.0))
        };
        let failed = CaseResult {
            error: Some("boom".into()),
            ..result("a", Some(false), None)
        };
        let rows = by_case(&[
            result("b", Some(true), Some(80.0)),
            failed,
            broken,
            result("b", None, None),
        ]);
        let row = |test_case: &str, counts: [usize; 5], average_score| CaseBreakdown {
            test_case: test_case.into(),
            count: counts[0],
            passed_count: counts[1],
            failed_count: counts[2],
            error_count: counts[3],
            judge_error_count: counts[4],
            average_score,
        };
        let expected = [
            row("a", [1, 0, 0, 1, 0], None),
            row("b", [3, 1, 1, 0, 1], Some(40.0)),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn breakdowns_count_from_three_and_name_ten_codes() {
        let mut scores = vec![
            score("b", Tier::Delivery, 3, None),
            score("a", Tier::Execution, 2, Some("z")),
            score("b", Tier::Delivery, 0, Some("x")),
        ];
        let metrics = by_metric(&scores);
        assert_eq!(metrics[0].metric.as_deref(), Some("b"));
        assert_eq!(
            (
                metrics[0].average_score,
                metrics[0].passed_count,
                metrics[0].failed_count
            ),
            (1.5, 1, 1)
        );
        let tiers: Vec<Tier> = by_tier(&scores).iter().map(|row| row.tier).collect();
        assert_eq!(tiers, [Tier::Execution, Tier::Delivery]);
        scores.extend((0..12).map(|i| score("b", Tier::Delivery, 1, Some(&format!("c{i:02}")))));
        scores.push(score("b", Tier::Delivery, 1, Some("x")));
        let codes = &by_metric(&scores)[0].failure_codes;
        assert_eq!(
            (codes.len(), codes[0].code.as_str(), codes[0].count),
            (10, "x", 2)
        );
        assert_eq!(codes[9].code, "c08");
    }
}
