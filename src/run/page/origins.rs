//! Whether the scores of one metric come from several models, precisions or text modes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::statistics::Statistics;

use super::tables::{Rows, each_batch, parts_of, unreadable};
use crate::history::stored_table::{cell, text, text_if_there};
use crate::output::RunError;
use crate::summary::MixedScores;

/// What makes scores different that have the same name.
const MAKERS: [&str; 3] = ["model", "precision", "text_mode"];

/// Metrics of a run whose scores have several makers.
///
/// # Errors
/// If the table `scores` can't be read back.
pub(super) fn mixed(run: &Path) -> Result<Vec<MixedScores>, RunError> {
    let parts = parts_of(run, "scores")?;
    if one_maker(&parts)? {
        return Ok(Vec::new());
    }
    let mut metrics: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let columns = ["metric", MAKERS[0], MAKERS[1], MAKERS[2]];
    for path in parts {
        each_batch(&path, Some(&columns), Rows::All, |_, batch| {
            let metric = text(batch, "metric")?;
            let makers: Vec<_> = MAKERS
                .iter()
                .map(|name| text_if_there(batch, name))
                .collect::<Result<_, _>>()?;
            for row in 0..batch.num_rows() {
                let parts = makers.iter().filter_map(|maker| cell(maker, row));
                let maker = parts.collect::<Vec<_>>().join(", ");
                // Scores of people, and those that no model has a part in, go with any.
                if maker.is_empty() {
                    continue;
                }
                let name = cell(&metric, row).unwrap_or_default();
                if !metrics.contains_key(name) {
                    metrics.insert(name.to_owned(), BTreeMap::new());
                }
                if let Some(makers) = metrics.get_mut(name) {
                    *makers.entry(maker).or_default() += 1;
                }
            }
            Ok(())
        })?;
    }
    let several = metrics.into_iter().filter(|(_, makers)| makers.len() > 1);
    let several = several.map(|(metric, makers)| MixedScores {
        metric,
        makers: makers.into_iter().collect(),
    });
    Ok(several.collect())
}

/// Whether statistics alone show that all scores have one maker, as in nearly every run: then no row is read.
fn one_maker(parts: &[std::path::PathBuf]) -> Result<bool, RunError> {
    let mut seen: [Option<Vec<u8>>; 3] = [None, None, None];
    for path in parts {
        let file = File::open(path).map_err(|e| unreadable(path, e))?;
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| unreadable(path, e))?;
        let metadata = reader.metadata();
        for group in metadata.row_groups() {
            for column in group.columns() {
                let name = column.column_path().string();
                let Some(at) = MAKERS.iter().position(|maker| *maker == name) else {
                    continue;
                };
                let Some(Statistics::ByteArray(of)) = column.statistics() else {
                    return Ok(false);
                };
                let (low, high) = (of.min_bytes_opt(), of.max_bytes_opt());
                match (low, high, &seen[at]) {
                    // All are null.
                    (None, None, _) if of.null_count_opt() == Some(group.num_rows() as u64) => {}
                    (Some(low), Some(high), None) if low == high => seen[at] = Some(low.to_vec()),
                    (Some(low), Some(high), Some(one)) if low == high && low == one => {}
                    _ => return Ok(false),
                }
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringArray};

    use super::*;
    use crate::output::table_writer::TableWriter;

    /// Metric, model and text mode.
    type Row<'r> = (&'r str, Option<&'r str>, Option<&'r str>);

    fn run_of(rows: &[Row<'_>]) -> Vec<MixedScores> {
        let folder = tempfile::tempdir().unwrap();
        let column = |of: fn(&Row<'_>) -> Option<String>| {
            let cells: Vec<Option<String>> = rows.iter().map(of).collect();
            Arc::new(StringArray::from(cells)) as ArrayRef
        };
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("metric", column(|row| Some(row.0.to_owned())), false),
            ("model", column(|row| row.1.map(str::to_owned)), true),
            ("precision", column(|_| None), true),
            ("text_mode", column(|row| row.2.map(str::to_owned)), true),
        ])
        .unwrap();
        let mut table = TableWriter::create(folder.path(), "scores", batch.schema()).unwrap();
        table.write(&batch).unwrap();
        table.finish().unwrap();
        mixed(folder.path()).unwrap()
    }

    #[test]
    fn only_scores_of_one_name_are_mixed() {
        let (a, b) = (Some("a"), Some("b"));
        assert!(run_of(&[("x", a, None), ("x", a, None), ("y", None, None)]).is_empty());
        // Another metric may have another judge, and people go with any.
        assert!(run_of(&[("x", a, None), ("y", b, None), ("x", None, None)]).is_empty());
        let two = run_of(&[("x", a, None), ("x", b, None), ("x", a, None)]);
        let makers = vec![("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!((two[0].metric.as_str(), &two[0].makers), ("x", &makers));
        let modes = run_of(&[("x", a, Some("compat")), ("x", a, Some("content"))]);
        assert_eq!(modes[0].makers[1], ("a, content".to_owned(), 1));
    }
}
