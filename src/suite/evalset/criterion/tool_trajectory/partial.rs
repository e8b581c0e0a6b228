//! How much of the expected tool calls of a turn is there, where a comparison only says whether all are.

use super::calls::Calls;
use super::{MOST_PAIRS, ToolTrajectoryCriterion};
use crate::suite::evalset::criterion::matching::Fits;
use crate::suite::evalset::criterion::text::unknown_comparison;
use crate::suite::evalset::criterion::{Mismatch, MismatchKind};
use crate::suite::evalset::model::Invocation;

/// What of the expected tool calls of a turn has a partner among the actual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrajectoryShare {
    /// Calls that the share is of: those expected, or all that were made if there are more and none may be.
    pub of: usize,
    /// Expected calls with a partner, as many as possible.
    pub matched: usize,
    /// So many of them can have their partners in the expected order; all of them where the order is free.
    pub in_order: usize,
    /// What is missing, for a reader; empty where nothing is.
    pub reason: String,
}

impl TrajectoryShare {
    /// 0 to 1: each matched call counts 1, or one half if it is out of order; 1 where there is nothing to share.
    pub fn score(&self) -> f64 {
        match self.of {
            0 => 1.0,
            of => (self.matched + self.in_order) as f64 / (2 * of) as f64,
        }
    }
}

impl ToolTrajectoryCriterion {
    /// How much of the expected tool calls of a turn is there. Two calls are partners by the rule of
    /// [`ToolTrajectoryCriterion::compare`], and the share is 1 exactly where that is a match.
    ///
    /// # Errors
    /// [`Mismatch`] if a program's comparison decides and says no, or the criterion can't be used. It is of kind
    /// [`MismatchKind::Config`] where there are too many calls to tell.
    pub fn share(
        &self,
        actual: &Invocation,
        expected: &Invocation,
    ) -> Result<TrajectoryShare, Mismatch> {
        if let Some(function) = &self.compare {
            let said = function.compare(Some(actual), Some(expected));
            return said.map(|()| TrajectoryShare::default());
        }
        if !self.compare_name.is_empty() {
            return Err(unknown_comparison(&self.compare_name));
        }
        let (actual, expected) = (actual.tools.as_slice(), expected.tools.as_slice());
        if actual.len().saturating_mul(expected.len()) > MOST_PAIRS {
            return Err(Mismatch {
                kind: MismatchKind::Config,
                reason: format!(
                    "there are {} tool calls, expected {}: too many to find the best pairs",
                    actual.len(),
                    expected.len()
                ),
            });
        }
        let mut calls = Calls::new(self, actual, expected);
        let fits = Fits::new(expected.len(), actual.len(), |e, a| calls.fits(a, e));
        let unmatched = fits.unmatched(expected.len());
        let matched = expected.len() - unmatched.len();
        let in_order = match self.order_sensitive {
            true => fits.most_in_order(expected.len(), actual.len()),
            false => matched,
        };
        let of = match self.subset_matching {
            true => expected.len(),
            false => expected.len().max(actual.len()),
        };
        let mut said = Vec::new();
        if matched < of || in_order < matched {
            said.push(format!(
                "{matched} of {} expected tool calls found",
                expected.len()
            ));
        }
        if in_order < matched {
            said.push(format!("{} of them out of order", matched - in_order));
        }
        if of > expected.len() {
            said.push(format!("{} calls were made", actual.len()));
        }
        if !unmatched.is_empty() {
            said.push(self.about_unmatched(&unmatched, actual, expected));
        }
        Ok(TrajectoryShare {
            of,
            matched,
            in_order,
            reason: said.join("; "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::evalset::model::ToolUse;
    use proptest::prelude::*;
    use serde_json::json;

    fn turn(names: &[usize]) -> Invocation {
        let call = |name: &usize| {
            Some(ToolUse {
                name: format!("tool{name}"),
                arguments: json!({"n": name}),
                ..ToolUse::default()
            })
        };
        Invocation {
            tools: names.iter().map(call).collect(),
            ..Invocation::default()
        }
    }

    fn criterion(order_sensitive: bool, subset_matching: bool) -> ToolTrajectoryCriterion {
        ToolTrajectoryCriterion {
            order_sensitive,
            subset_matching,
            ..ToolTrajectoryCriterion::default()
        }
    }

    fn score(criterion: &ToolTrajectoryCriterion, actual: &[usize], expected: &[usize]) -> f64 {
        let share = criterion.share(&turn(actual), &turn(expected));
        share.unwrap().score()
    }

    #[test]
    fn shares_by_hand() {
        let (free, ordered) = (criterion(false, false), criterion(true, false));
        // Two of three are there.
        assert_eq!(score(&free, &[1, 2, 9], &[1, 2, 3]), 2.0 / 3.0);
        // All are there, and two of three in the expected order: (3 + 2) / (2 × 3).
        assert_eq!(score(&ordered, &[2, 1, 3], &[1, 2, 3]), 5.0 / 6.0);
        assert_eq!(score(&free, &[2, 1, 3], &[1, 2, 3]), 1.0);
        // A call too many counts among those that the share is of, unless there may be more.
        assert_eq!(score(&free, &[1, 2, 9], &[1, 2]), 2.0 / 3.0);
        assert_eq!(score(&criterion(false, true), &[1, 2, 9], &[1, 2]), 1.0);
        // Nothing expected.
        assert_eq!(score(&free, &[], &[]), 1.0);
        assert_eq!(score(&free, &[1], &[]), 0.0);
        assert_eq!(score(&criterion(true, true), &[1], &[]), 1.0);
        assert_eq!(score(&free, &[], &[1]), 0.0);
        let share = ordered.share(&turn(&[2, 1, 3, 7]), &turn(&[1, 2, 4]));
        let reason = share.unwrap().reason;
        for part in [
            "2 of 3 expected tool calls found",
            "1 of them out of order",
            "4 calls were made",
            "tool4",
        ] {
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_call_is_the_partner_of_one_call_and_the_best_pairs_count() {
        let loose = json!({"defaultStrategy": {"name": {"matchStrategy": "contains"}}});
        let criterion = ToolTrajectoryCriterion::read(&loose, "c").unwrap();
        // `tool11` contains both expected names, `tool1` only one: each gets a partner all the same.
        assert_eq!(score(&criterion, &[11, 1], &[1, 11]), 1.0);
        assert_eq!(score(&criterion, &[11], &[1, 11]), 0.5);
        let null = Invocation {
            tools: vec![None],
            ..Invocation::default()
        };
        assert_eq!(criterion.share(&null, &null).unwrap().score(), 0.0);
    }

    #[test]
    fn what_no_pairs_decide_is_no_share() {
        let named = json!({"compareName": "mine"});
        let named = ToolTrajectoryCriterion::read(&named, "c").unwrap();
        assert!(named.share(&turn(&[1]), &turn(&[1])).is_err());
        let many: Vec<usize> = vec![1; 9000];
        let problem = criterion(false, false).share(&turn(&many), &turn(&many));
        assert_eq!(problem.unwrap_err().kind, MismatchKind::Config);
    }

    fn calls() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0..4_usize, 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_share_is_whole_exactly_where_the_trajectory_matches(
            actual in calls(), expected in calls(), order: bool, subset: bool,
        ) {
            let criterion = criterion(order, subset);
            let score = score(&criterion, &actual, &expected);
            prop_assert!((0.0..=1.0).contains(&score));
            let matches = criterion.compare(Some(&turn(&actual)), Some(&turn(&expected))).is_ok();
            prop_assert_eq!(score == 1.0, matches);
            let reason = criterion.share(&turn(&actual), &turn(&expected)).unwrap().reason;
            prop_assert_eq!(reason.is_empty(), matches);
        }

        #[test]
        fn where_order_is_free_it_changes_nothing(
            (actual, shuffled) in calls().prop_flat_map(|a| (Just(a.clone()), Just(a).prop_shuffle())),
            expected in calls(), subset: bool,
        ) {
            let criterion = criterion(false, subset);
            let as_done = score(&criterion, &actual, &expected);
            prop_assert_eq!(as_done, score(&criterion, &shuffled, &expected));
        }

        #[test]
        fn some_of_the_calls_in_order_are_their_share(
            expected in prop::collection::vec(0..4_usize, 1..6), kept in any::<[bool; 6]>(), order: bool,
        ) {
            let actual: Vec<usize> =
                expected.iter().zip(kept).filter(|(_, kept)| *kept).map(|(call, _)| *call).collect();
            let score = score(&criterion(order, false), &actual, &expected);
            prop_assert_eq!(score, actual.len() as f64 / expected.len() as f64);
        }

        #[test]
        fn a_call_that_nobody_expected_never_helps(
            actual in calls(), expected in calls(), at in 0..6_usize, order: bool, subset: bool,
        ) {
            let criterion = criterion(order, subset);
            let mut more = actual.clone();
            more.insert(at.min(actual.len()), 99);
            prop_assert!(score(&criterion, &more, &expected) <= score(&criterion, &actual, &expected));
        }

        #[test]
        fn order_costs_at_most_half(actual in calls(), expected in calls(), subset: bool) {
            let free = score(&criterion(false, subset), &actual, &expected);
            let ordered = score(&criterion(true, subset), &actual, &expected);
            prop_assert!(ordered <= free && ordered >= free / 2.0);
        }
    }
}
