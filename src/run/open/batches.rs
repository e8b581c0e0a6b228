//! How calls go into batch files.

use std::time::Duration;

use super::wrong;
use crate::job::{Job, SettingsError};
use crate::judge::batch::BatchLimits;
use crate::run::BatchRules;

/// How calls go into batches, if they do.
pub(super) fn batches(job: &Job) -> Result<Option<BatchRules>, SettingsError> {
    let flags = [
        ("batch-wait", job.batch_wait.is_some()),
        ("batch-poll", job.batch_poll.is_some()),
        ("batch-size", job.batch_size.is_some()),
        ("batch-bytes", job.batch_bytes.is_some()),
    ];
    if !job.batch {
        return match flags.iter().find(|(_, given)| *given) {
            Some((flag, _)) => wrong(format!("--{flag} says how batches go; add --batch")),
            None => Ok(None),
        };
    }
    if job.replay {
        return wrong("--replay sends nothing, and --batch submits batches; leave one out".into());
    }
    Ok(Some(batch_rules(job)))
}

/// The rules of batches.
pub fn batch_rules(job: &Job) -> BatchRules {
    let usual = BatchLimits::default();
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
    BatchRules {
        wait: seconds(job.batch_wait.map_or(0.0, |minutes| minutes.get() * 60.0)),
        // Never so often that an endpoint is only asked how it goes.
        poll: seconds(job.batch_poll.map_or(60.0, |seconds| seconds.get()))
            .max(Duration::from_millis(10)),
        limits: BatchLimits {
            lines: job.batch_size.map_or(usual.lines, |n| n.get()),
            bytes: job.batch_bytes.map_or(usual.bytes, |n| n.get() as u64),
        },
    }
}
