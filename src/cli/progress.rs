//! The progress bar of `score`: on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressDrawTarget, ProgressStyle};

use crate::embed::EmbeddingCounts;
use crate::run::Progress;

/// Shows a run's progress from a thread of its own until it is stopped.
pub(super) struct ProgressBar {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressBar {
    pub fn start(progress: Arc<Progress>) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::io::stderr().is_terminal().then(|| {
            let stopping = Arc::clone(&stopping);
            std::thread::spawn(move || show(&progress, &stopping))
        });
        Self { stopping, thread }
    }

    pub fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A bar that could not be drawn is no reason to fail.
            let _ = thread.join();
        }
    }
}

fn show(progress: &Progress, stopping: &AtomicBool) {
    let bar = indicatif::ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let spinner = ProgressStyle::with_template("{spinner} {prefix} {msg}");
    let counted =
        ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} %  {msg}  {eta} left");
    if let Ok(style) = spinner {
        bar.set_style(style);
    }
    let mut counted = counted.ok();
    let mut last = (Instant::now(), 0);
    while !stopping.load(Ordering::Relaxed) {
        bar.set_prefix(progress.stage());
        if let Some(counts) = progress.embedding() {
            if let Some(expected) = expected_tokens(&counts, progress.rows()) {
                if let Some(style) = counted.take() {
                    bar.set_style(style);
                }
                bar.set_length(expected);
                bar.set_position(counts.likely_tokens_done);
            }
            let seconds = last.0.elapsed().as_secs_f64();
            let speed = (counts.tokens - last.1) as f64 / seconds.max(1e-3);
            bar.set_message(format!(
                "{} texts, {speed:.0} tokens/s",
                HumanCount(counts.encoded_texts + counts.cache.found)
            ));
            if seconds > 3.0 {
                last = (Instant::now(), counts.tokens);
            }
        }
        if let Some((done, all)) = progress.cases() {
            if let Some(style) = counted.take() {
                bar.set_style(style);
            }
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(format!("{done} of {all} cases"));
        }
        bar.tick();
        std::thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}

/// About how many tokens there are to encode in all: those of the texts seen so far, and as many for each row that is
/// still to be read. None while nothing is known of it.
fn expected_tokens(counts: &EmbeddingCounts, rows: Option<(u64, Option<u64>)>) -> Option<u64> {
    let (read, expected) = rows?;
    if read == 0 || counts.likely_tokens == 0 {
        return None;
    }
    let share = expected.map_or(1.0, |expected| expected.max(read) as f64 / read as f64);
    Some((counts.likely_tokens as f64 * share) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_known_from_the_rows_that_are_read() {
        let counts = EmbeddingCounts {
            likely_tokens: 500,
            ..EmbeddingCounts::default()
        };
        assert_eq!(expected_tokens(&counts, Some((10, Some(40)))), Some(2000));
        assert_eq!(expected_tokens(&counts, Some((40, Some(40)))), Some(500));
        assert_eq!(expected_tokens(&counts, Some((10, None))), Some(500));
        assert_eq!(expected_tokens(&counts, Some((0, Some(40)))), None);
        assert_eq!(expected_tokens(&counts, None), None);
    }
}
