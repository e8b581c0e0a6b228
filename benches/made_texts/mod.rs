//! Texts for benches of whole runs, and traces of them in a Parquet file.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use parquet::arrow::ArrowWriter;

/// Texts that read as people and agents write: words by Zipf's law, numbers, punctuation.
pub fn texts(count: usize) -> Vec<String> {
    let syllables = [
        "or", "der", "re", "fund", "par", "cel", "in", "voice", "ship", "ment", "ac", "count",
        "log", "er", "ing", "ed",
    ];
    let mut state = 88_172_645_463_325_252u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let words: Vec<String> = (0..20_000u64)
        .map(|n| {
            let parts = 1 + (n % 3);
            (0..parts).map(|_| syllables[next(16) as usize]).collect()
        })
        .collect();
    (0..count)
        .map(|n| {
            let mut text = format!("case {n}:");
            for _ in 0..20 + next(100) {
                // About 1 / rank.
                let rank =
                    (20_000f64.powf(next(1 << 20) as f64 / f64::from(1 << 20)) - 1.0) as usize;
                text.push(' ');
                text.push_str(&words[rank.min(words.len() - 1)]);
                match next(12) {
                    0 => text.push(','),
                    1 => text.push('.'),
                    2 => text.push_str(&format!(" {}", next(1000))),
                    _ => {}
                }
            }
            text
        })
        .collect()
}

/// Traces of five a session, each text once as input and its neighbour as output.
pub fn write(path: &Path, texts: &[String]) {
    let rows: Vec<usize> = (0..texts.len() / 2).collect();
    let mut writer: Option<ArrowWriter<std::fs::File>> = None;
    for chunk in rows.chunks(20_000) {
        let text = |of: &dyn Fn(usize) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(
                chunk.iter().map(|row| of(*row)),
            ))
        };
        let times = chunk.iter().map(|row| *row as i64 * 1_000_000);
        let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC");
        let batch = RecordBatch::try_from_iter([
            ("trace_id", text(&|row| format!("{row:032x}"))),
            ("session_id", text(&|row| format!("s{}", row / 5))),
            ("started_at", Arc::new(times) as ArrayRef),
            ("input", text(&|row| texts[2 * row].clone())),
            ("output", text(&|row| texts[2 * row + 1].clone())),
        ])
        .unwrap();
        let writer = writer.get_or_insert_with(|| {
            let file = std::fs::File::create(path).unwrap();
            ArrowWriter::try_new(file, batch.schema(), None).unwrap()
        });
        writer.write(&batch).unwrap();
    }
    writer.unwrap().close().unwrap();
}
