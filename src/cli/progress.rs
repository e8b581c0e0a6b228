//! The progress bar of `score`: on a terminal only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressDrawTarget, ProgressStyle};

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
    let counted = ProgressStyle::with_template(
        "{prefix} {wide_bar} {human_pos}/{human_len} rows  {msg}  {eta} left",
    );
    if let Ok(style) = spinner {
        bar.set_style(style);
    }
    let mut counted = counted.ok();
    let mut last = (Instant::now(), 0);
    while !stopping.load(Ordering::Relaxed) {
        bar.set_prefix(progress.stage());
        if let Some((rows, expected)) = progress.rows() {
            if let (Some(expected), Some(style)) = (expected, counted.take()) {
                bar.set_length(expected);
                bar.set_style(style);
            }
            bar.set_position(rows);
        }
        if let Some(counts) = progress.embedding() {
            let seconds = last.0.elapsed().as_secs_f64();
            let speed = (counts.tokens - last.1) as f64 / seconds.max(1e-3);
            bar.set_message(format!(
                "{} distinct texts, {speed:.0} tokens/s",
                HumanCount(counts.distinct_texts)
            ));
            if seconds > 3.0 {
                last = (Instant::now(), counts.tokens);
            }
        }
        bar.tick();
        std::thread::sleep(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
