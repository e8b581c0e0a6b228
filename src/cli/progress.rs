//! The progress bar of `score`: on a terminal only.

use std::collections::VecDeque;
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
    let counted = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} %  {msg}");
    if let Ok(style) = spinner {
        bar.set_style(style);
    }
    let mut counted = counted.ok();
    let mut speed = Speed::default();
    while !stopping.load(Ordering::Relaxed) {
        bar.set_prefix(progress.stage());
        if let Some(counts) = progress.embedding() {
            speed.note(Instant::now(), counts.likely_tokens_done);
            let expected = expected_tokens(&counts, progress.rows());
            if let Some(expected) = expected {
                if let Some(style) = counted.take() {
                    bar.set_style(style);
                }
                bar.set_length(expected);
                bar.set_position(counts.likely_tokens_done);
            }
            bar.set_message(message(&counts, progress.rows(), expected, &speed));
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

/// How many tokens were encoded in a second, of late: what was encoded at another stage says nothing of what is to come.
#[derive(Debug, Default)]
struct Speed(VecDeque<(Instant, u64)>);

impl Speed {
    /// So far back it looks.
    const WINDOW: Duration = Duration::from_secs(30);
    /// Before that, a speed is a guess.
    const LEAST: Duration = Duration::from_secs(3);

    /// So many tokens are done by now.
    fn note(&mut self, now: Instant, done: u64) {
        // Two in a second are enough.
        let last = self.0.back().map(|(at, _)| now.duration_since(*at));
        if last.is_none_or(|since| since >= Duration::from_millis(500)) {
            self.0.push_back((now, done));
        }
        while self
            .0
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) > Self::WINDOW)
        {
            self.0.pop_front();
        }
    }

    /// Tokens in a second; none while that is not known, and where nothing was encoded of late.
    fn known(&self) -> Option<f64> {
        let ((first, before), (last, after)) = (self.0.front()?, self.0.back()?);
        let time = last.duration_since(*first);
        let done = after.saturating_sub(*before);
        (time >= Self::LEAST && done > 0).then(|| done as f64 / time.as_secs_f64())
    }
}

/// What there is left to encode, and how long that takes, as far as it is known.
fn message(
    counts: &EmbeddingCounts,
    rows: Option<(u64, Option<u64>)>,
    expected: Option<u64>,
    speed: &Speed,
) -> String {
    let done = counts.encoded_texts + counts.cache.found;
    let share = rows.and_then(|(read, all)| Some(all?.max(read) as f64 / read.max(1) as f64));
    let (Some(share), Some(expected)) = (share, expected) else {
        return format!("{} texts", HumanCount(done));
    };
    let all = ((counts.distinct_texts as f64 * share) as u64).max(done);
    let mut told = format!(
        "{} of about {} texts left",
        HumanCount(all - done),
        HumanCount(all)
    );
    let left = expected.saturating_sub(counts.likely_tokens_done);
    if let Some(speed) = speed.known() {
        told.push_str(&format!(", {} left", in_words(left as f64 / speed)));
    }
    told
}

/// Seconds as people say them.
fn in_words(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => {
            let minutes = seconds.div_ceil(60);
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
    }
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

    #[test]
    fn the_time_left_is_that_of_the_last_half_minute() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut speed = Speed::default();
        assert_eq!(speed.known(), None);
        speed.note(at(0), 0);
        speed.note(at(2), 1000);
        assert_eq!(speed.known(), None, "two seconds say nothing");
        speed.note(at(10), 1000);
        assert_eq!(speed.known(), Some(100.0));
        for second in 11..=60 {
            speed.note(at(second), 1000 + 10 * (second - 10));
        }
        assert_eq!(speed.known(), Some(10.0), "the fast beginning is forgotten");
        for second in 61..=100 {
            speed.note(at(second), 1500);
        }
        assert_eq!(speed.known(), None, "nothing is encoded any more");
    }

    #[test]
    fn what_is_left_is_said_as_far_as_it_is_known() {
        let counts = EmbeddingCounts {
            distinct_texts: 100,
            encoded_texts: 40,
            likely_tokens: 1000,
            likely_tokens_done: 400,
            ..EmbeddingCounts::default()
        };
        let start = Instant::now();
        let mut speed = Speed::default();
        let told = |rows, expected, speed: &Speed| message(&counts, rows, expected, speed);
        assert_eq!(told(Some((10, None)), Some(1000), &speed), "40 texts");
        let rows = Some((10, Some(20)));
        assert_eq!(told(rows, None, &speed), "40 texts");
        assert_eq!(
            told(rows, Some(2000), &speed),
            "160 of about 200 texts left"
        );
        speed.note(start, 0);
        speed.note(start + Duration::from_secs(10), 200);
        let expected = "160 of about 200 texts left, 2 min left";
        assert_eq!(told(rows, Some(2000), &speed), expected);
        let times = [0.0, 59.2, 61.0, 3600.0, 7000.0].map(in_words);
        assert_eq!(times, ["0 s", "1 min", "2 min", "1 h 00 min", "1 h 57 min"]);
    }
}
