//! Signals among the scores that people or programs gave to traces of a run: session metrics take them for those that were
//! computed.

use crate::history::StoredRun;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, for_each_batch, number, numbers, text, trace_id};
use crate::metric::SIGNALS;
use crate::run::signals_file::GivenSignals;

/// The signals in imported scores, also those `of_spans`. Of several for one trace, the newest counts.
///
/// # Errors
/// [`HistoryError::Damaged`] naming run and file.
pub(crate) fn imported_signals(
    runs: &[StoredRun],
    of_spans: &[&'static str],
) -> Result<GivenSignals, HistoryError> {
    let mut newest_first: Vec<&StoredRun> = runs.iter().collect();
    newest_first.sort_by_key(|run| std::cmp::Reverse((run.created_at, run.path.clone())));
    let columns = ["target_id", "metric", "status", "data_type", "score_raw"];
    let mut signals = GivenSignals::none();
    for run in newest_first {
        let mut found: Vec<(String, &'static str, f64)> = Vec::new();
        for_each_batch(&run.path, "scores", &columns, |batch| {
            let (ids, metrics) = (text(batch, "target_id")?, text(batch, "metric")?);
            let (statuses, types) = (text(batch, "status")?, text(batch, "data_type")?);
            let scores = numbers(batch, "score_raw")?;
            for row in 0..batch.num_rows() {
                let metric = cell(&metrics, row).unwrap_or_default();
                let mut names = SIGNALS.iter().map(|(name, _)| name).chain(of_spans);
                let signal = names.find(|name| **name == metric);
                let counts =
                    cell(&statuses, row) == Some("SUCCESS") && cell(&types, row) == Some("NUMERIC");
                if let (Some(name), Some(id), Some(score), true) =
                    (signal, trace_id(&ids, row), number(&scores, row), counts)
                {
                    found.push((id, *name, score));
                }
            }
            Ok(())
        })?;
        // The last of a file counts, and the first that is added stays.
        for (id, name, score) in found.iter().rev() {
            signals.add(id, name, *score);
        }
    }
    Ok(signals)
}
