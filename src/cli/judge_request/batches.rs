//! How calls go into batch files.

use std::time::Duration;

use super::number;
use crate::cli::request::{count, wrong};
use crate::job::{JudgeSettings, Settings, SettingsError};
use crate::judge::batch::BatchLimits;
use crate::run::BatchRules;

/// How calls go into batches, if they do.
pub(super) fn batches(settings: &Settings) -> Result<Option<BatchRules>, SettingsError> {
    let given = &settings.judge;
    let flags = [
        ("batch-wait", &given.batch_wait),
        ("batch-poll", &given.batch_poll),
        ("batch-size", &given.batch_size),
        ("batch-bytes", &given.batch_bytes),
    ];
    if !given.batch {
        return match flags.iter().find(|(_, value)| value.is_some()) {
            Some((flag, _)) => wrong(format!("--{flag} says how batches go; add --batch")),
            None => Ok(None),
        };
    }
    if given.replay {
        return wrong("--replay sends nothing, and --batch submits batches; leave one out".into());
    }
    batch_rules(given).map(Some)
}

/// The rules of batches.
pub(in crate::cli) fn batch_rules(given: &JudgeSettings) -> Result<BatchRules, SettingsError> {
    let usual = BatchLimits::default();
    let seconds = |flag, text: &Option<String>, unit: f64, otherwise: f64| {
        let given = number(flag, text.as_deref(), 1e6)?;
        Ok::<_, SettingsError>(Duration::from_secs_f64(
            given.map_or(otherwise, |number| number * unit),
        ))
    };
    let lines = count("batch-size", given.batch_size.as_deref(), 1, usual.lines)?;
    let bytes = count(
        "batch-bytes",
        given.batch_bytes.as_deref(),
        1000,
        usual.bytes as usize,
    )?;
    Ok(BatchRules {
        wait: seconds("batch-wait", &given.batch_wait, 60.0, 0.0)?,
        // Never so often that an endpoint is only asked how it goes.
        poll: seconds("batch-poll", &given.batch_poll, 1.0, 60.0)?.max(Duration::from_millis(10)),
        limits: BatchLimits {
            lines: lines.unwrap_or(usual.lines),
            bytes: bytes.map_or(usual.bytes, |bytes| bytes as u64),
        },
    })
}
