//! `nightmill score --simulate`: what a run would take on a cluster.

use std::sync::Arc;

use super::progress::ProgressBar;
use super::{AnyError, Outcome, outcome};
use crate::run::{ClusterSize, Progress, ScoreRequest, Simulated, simulate};

/// Simulates and prints.
pub(super) fn run(
    request: &ScoreRequest,
    cluster: ClusterSize,
    json: bool,
) -> Result<Outcome, AnyError> {
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::start(Arc::clone(&progress));
    let simulated = simulate(request, cluster, &progress);
    bar.stop();
    let simulated = simulated?;
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&simulated)?),
        false => told(&simulated),
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

/// A time as people say it.
fn time(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.1} s"),
        ..5400.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Bytes as people say them.
fn bytes(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let mut left = bytes;
    let mut unit = 0;
    while left >= 1000.0 && unit + 1 < units.len() {
        left /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{left:.0} B"),
        _ => format!("{left:.1} {}", units[unit]),
    }
}

fn told(simulated: &Simulated) -> String {
    let Simulated {
        cluster,
        sample,
        predicted,
    } = simulated;
    let per_row = format!(
        "sample: {} rows; a row: {}, {:.0} tokens, {} on its way\n",
        sample.rows,
        bytes(sample.input_bytes),
        sample.tokens,
        bytes(sample.exchanged_bytes),
    );
    let largest = predicted.bucket_bytes.iter();
    let files: Vec<String> = largest
        .map(|(table, of_bucket)| format!("{table} {}", bytes(*of_bucket)))
        .collect();
    let lines = [
        (
            "units, buckets",
            format!("{}, {}", predicted.units, predicted.buckets),
        ),
        ("reading", time(predicted.read_seconds)),
        ("exchange", time(predicted.exchange_seconds)),
        ("encoding", time(predicted.encode_seconds)),
        ("other scoring", time(predicted.score_seconds)),
        ("all of it", time(predicted.seconds)),
        (
            "rows on their way",
            format!(
                "{}, {} on each disk",
                bytes(predicted.exchanged_bytes),
                bytes(predicted.bytes_on_each_disk)
            ),
        ),
        (
            "memory",
            format!(
                "{} an executor, beside the model; {} of places in the scheduler",
                bytes(predicted.executor_bytes),
                bytes(predicted.scheduler_bytes)
            ),
        ),
        ("tables", bytes(predicted.table_bytes)),
        ("files of a bucket", files.join(", ")),
    ];
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{per_row}predicted for {} rows on {} executors of {} slots:\n",
        cluster.rows, cluster.executors, cluster.slots
    );
    for (name, value) in lines {
        text.push_str(&format!("  {name:<width$}  {value}\n"));
    }
    text.push_str(
        "measured with one thread of this machine; the exchange by 10 Gbit/s and disks of 1 GB/s, which are assumed; sessions \
         of the warehouse are taken to be like those of the sample\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_said_as_people_say_them() {
        assert_eq!(time(3.26), "3.3 s");
        assert_eq!(time(600.0), "10.0 min");
        assert_eq!(time(7200.0), "2.0 h");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(1_500.0), "1.5 KB");
        assert_eq!(bytes(6e11), "600.0 GB");
    }
}
