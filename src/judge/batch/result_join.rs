//! Results find their requests by id, whatever the order and however often a file is read.

use std::collections::HashMap;

use super::{BatchOutcome, BatchResult};

/// The ids that were sent, and what came back so far.
#[derive(Debug)]
pub struct ResultJoin {
    asked: HashMap<String, Asked>,
    summary: JoinSummary,
}

#[derive(Debug)]
struct Asked {
    place: usize,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Failure,
    Reply,
}

/// How results and requests fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinSummary {
    /// Requests with a reply.
    pub replied: usize,
    /// Requests that failed or expired, and have no reply.
    pub failed: usize,
    /// Ids without any result, in the order asked.
    pub missing: Vec<String>,
    /// Results for an id that had one.
    pub duplicates: usize,
    /// Results for an id that was not asked.
    pub unknown: usize,
}

impl ResultJoin {
    /// Starts with the ids that were sent. An id given twice is one id.
    pub fn new(asked: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut ids = HashMap::new();
        for (place, id) in asked.into_iter().enumerate() {
            ids.entry(id.into()).or_insert(Asked {
                place,
                seen: Seen::Nothing,
            });
        }
        Self {
            asked: ids,
            summary: JoinSummary::default(),
        }
    }

    /// Returns the result if it tells something new: the first of its id, or a reply after failures. Others are counted
    /// and dropped: the first reply of an id stands.
    pub fn take(&mut self, result: BatchResult) -> Option<BatchResult> {
        let Some(asked) = self.asked.get_mut(&result.custom_id) else {
            self.summary.unknown += 1;
            return None;
        };
        let seen = match result.outcome {
            BatchOutcome::Reply(_) => Seen::Reply,
            BatchOutcome::Failed { .. } | BatchOutcome::Expired => Seen::Failure,
        };
        let before = asked.seen;
        if before != Seen::Nothing {
            self.summary.duplicates += 1;
        }
        let news = match before {
            Seen::Nothing => true,
            Seen::Failure => seen == Seen::Reply,
            Seen::Reply => false,
        };
        if news {
            asked.seen = seen;
        }
        news.then_some(result)
    }

    /// Ends the join.
    pub fn finish(self) -> JoinSummary {
        let mut summary = self.summary;
        let mut missing = Vec::new();
        for (id, asked) in self.asked {
            match asked.seen {
                Seen::Reply => summary.replied += 1,
                Seen::Failure => summary.failed += 1,
                Seen::Nothing => missing.push((asked.place, id)),
            }
        }
        missing.sort_unstable();
        summary.missing = missing.into_iter().map(|(_, id)| id).collect();
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::batch::BatchReply;
    use proptest::prelude::*;

    fn reply(id: &str, text: &str) -> BatchResult {
        BatchResult {
            custom_id: id.into(),
            outcome: BatchOutcome::Reply(BatchReply {
                text: text.into(),
                model: None,
                usage: None,
                finish_reason: None,
            }),
        }
    }

    fn expired(id: &str) -> BatchResult {
        BatchResult {
            custom_id: id.into(),
            outcome: BatchOutcome::Expired,
        }
    }

    #[test]
    fn missing_duplicate_and_unknown_ids_are_told_apart() {
        let mut join = ResultJoin::new(["d", "c", "b", "a", "e", "c"]);
        assert!(join.take(reply("b", "1")).is_some());
        assert!(join.take(reply("b", "2")).is_none());
        assert!(join.take(expired("b")).is_none());
        assert!(join.take(reply("x", "1")).is_none());
        assert!(join.take(expired("a")).is_some());
        assert!(join.take(expired("a")).is_none());
        assert_eq!(
            join.finish(),
            JoinSummary {
                replied: 1,
                failed: 1,
                missing: vec!["d".into(), "c".into(), "e".into()],
                duplicates: 3,
                unknown: 1,
            }
        );
    }

    #[test]
    fn a_reply_outdoes_an_earlier_failure() {
        let mut join = ResultJoin::new(["a"]);
        assert!(join.take(expired("a")).is_some());
        assert_eq!(join.take(reply("a", "r")), Some(reply("a", "r")));
        let summary = join.finish();
        assert_eq!(
            (summary.replied, summary.failed, summary.duplicates),
            (1, 0, 1)
        );
    }

    proptest! {
        #[test]
        fn every_id_and_every_result_is_counted_once(
            asked in prop::collection::vec(0..20u8, 0..30),
            results in prop::collection::vec((0..25u8, any::<bool>()), 0..60),
        ) {
            let mut join = ResultJoin::new(asked.iter().map(u8::to_string));
            let mut replies = std::collections::HashSet::new();
            let mut firsts = std::collections::HashSet::new();
            for (id, replied) in &results {
                let id = id.to_string();
                let result = if *replied { reply(&id, "r") } else { expired(&id) };
                firsts.insert(id.clone());
                if let Some(taken) = join.take(result)
                    && *replied
                {
                    prop_assert!(replies.insert(taken.custom_id), "two replies for {}", id);
                }
            }
            let distinct: std::collections::HashSet<String> = asked.iter().map(u8::to_string).collect();
            let summary = join.finish();
            prop_assert_eq!(summary.replied + summary.failed + summary.missing.len(), distinct.len());
            prop_assert_eq!(summary.replied, replies.len());
            let first_results = firsts.intersection(&distinct).count();
            prop_assert_eq!(first_results + summary.duplicates + summary.unknown, results.len());
        }
    }
}
