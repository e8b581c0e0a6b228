//! Comparison: sessions side by side, worst first (as in PandaProbe).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::history::figures::{STEPS, ScoreFilter, ScoreRecord};
use crate::text::instant;

/// Which end comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Lowest score first: the worst sessions.
    #[default]
    Ascending,
    /// Highest score first.
    Descending,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many rows to pass over.
    pub offset: usize,
    /// How many rows to give at most.
    pub limit: usize,
}

/// The latest score of one session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// Its project.
    pub project_id: Option<String>,
    /// Session id (trace id, if scores of traces are compared).
    pub target_id: String,
    /// The score in [0, 1].
    pub score: f64,
    /// Id of the run that made it.
    pub run: String,
    /// When it was made.
    #[serde(serialize_with = "instant::serialize")]
    pub created_at: DateTime<Utc>,
}

/// One page of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows on all pages together.
    pub total: usize,
    /// The rows of the page.
    pub rows: Vec<ComparisonRow>,
}

/// The latest score of one metric for each session, by score; equal scores by project and session id,
/// ascending in either order. Of several scores made at one time the one of the greatest run id is the latest.
pub fn comparison<'a>(
    records: impl IntoIterator<Item = &'a ScoreRecord>,
    filter: &ScoreFilter,
    metric: &str,
    order: Order,
    page: Page,
) -> Comparison {
    type Session<'r> = (Option<&'r str>, &'r str);
    let mut latest: BTreeMap<Session<'_>, (DateTime<Utc>, &str, u64)> = BTreeMap::new();
    for record in records {
        if let Some(steps) = record.steps()
            && record.metric == metric
            && filter.admits(record)
        {
            let candidate = (record.created_at, record.run.as_str(), steps);
            latest
                .entry((record.project_id.as_deref(), &record.target_id))
                .and_modify(|best| *best = candidate.max(*best))
                .or_insert(candidate);
        }
    }
    // From a map: already by project and session id, and stable sorting keeps that among equal scores.
    let mut rows: Vec<_> = latest.into_iter().collect();
    match order {
        Order::Ascending => rows.sort_by_key(|(_, (_, _, steps))| *steps),
        Order::Descending => rows.sort_by_key(|(_, (_, _, steps))| std::cmp::Reverse(*steps)),
    }
    Comparison {
        total: rows.len(),
        rows: rows
            .into_iter()
            .skip(page.offset)
            .take(page.limit)
            .map(
                |((project_id, target_id), (created_at, run, steps))| ComparisonRow {
                    project_id: project_id.map(str::to_owned),
                    target_id: target_id.to_owned(),
                    score: steps as f64 / STEPS,
                    run: run.to_owned(),
                    created_at,
                },
            )
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::figures::Target;
    use crate::history::figures::samples::{at, failed, score, shuffled};
    use proptest::prelude::*;

    const WHOLE: Page = Page {
        offset: 0,
        limit: usize::MAX,
    };

    fn compared(records: &[ScoreRecord], order: Order, page: Page) -> Comparison {
        let sessions = ScoreFilter::all(Target::Session);
        comparison(records, &sessions, "m", order, page)
    }

    fn ids(comparison: &Comparison) -> Vec<&str> {
        comparison.rows.iter().map(|r| &*r.target_id).collect()
    }

    #[test]
    fn sessions_of_one_id_in_two_projects_are_two() {
        let in_project = |project: Option<&str>, value: f64| ScoreRecord {
            project_id: project.map(str::to_owned),
            ..score("s", "m", value, 0)
        };
        let records = [in_project(Some("p"), 0.5), in_project(None, 0.25)];
        let found = compared(&records, Order::Ascending, WHOLE);
        assert_eq!((found.total, found.rows.len()), (2, 2));
        assert_eq!(found.rows[1].project_id.as_deref(), Some("p"));
    }

    #[test]
    fn the_latest_success_counts() {
        let records = [
            score("a", "m", 0.9, 5),
            score("a", "m", 0.1, 4),
            failed("a", "m", 6),
            score("a", "other", 0.2, 7),
            failed("b", "m", 1),
        ];
        assert_eq!(
            compared(&records, Order::Ascending, WHOLE),
            Comparison {
                total: 1,
                rows: vec![ComparisonRow {
                    project_id: None,
                    target_id: "a".into(),
                    score: 0.9,
                    run: "run-5".into(),
                    created_at: at(5),
                }],
            }
        );
    }

    #[test]
    fn ties_go_by_session_id_in_either_order() {
        let records = [
            score("c", "m", 0.5, 0),
            score("b", "m", 0.5, 0),
            score("d", "m", 0.1, 0),
            score("a", "m", 0.9, 0),
        ];
        let up = compared(&records, Order::Ascending, WHOLE);
        assert_eq!(ids(&up), ["d", "b", "c", "a"]);
        let down = compared(&records, Order::Descending, WHOLE);
        assert_eq!(ids(&down), ["a", "b", "c", "d"]);
    }

    #[test]
    fn pages_tell_the_total() {
        let records: Vec<ScoreRecord> = (0..5)
            .map(|i| score(&format!("s{i}"), "m", f64::from(i) / 10.0, 0))
            .collect();
        let page = |offset, limit| compared(&records, Order::Ascending, Page { offset, limit });
        assert_eq!(ids(&page(1, 2)), ["s1", "s2"]);
        assert_eq!(ids(&page(4, 2)), ["s4"]);
        assert_eq!(page(5, 2).total, 5);
        assert!(page(5, 2).rows.is_empty());
    }

    proptest! {
        #[test]
        fn order_does_not_matter((records, other) in shuffled()) {
            for order in [Order::Ascending, Order::Descending] {
                let filter = ScoreFilter::all(Target::Session);
                prop_assert_eq!(
                    comparison(&records, &filter, "m1", order, WHOLE),
                    comparison(&other, &filter, "m1", order, WHOLE)
                );
            }
        }
    }
}
