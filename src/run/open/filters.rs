//! Which traces judges are asked about, by what traces say of themselves.

use super::wrong;
use crate::job::{Job, SettingsError};
use crate::selection::{TraceFilters, TraceStatus};

pub(super) fn filters(job: &Job) -> Result<TraceFilters, SettingsError> {
    let mut filters = TraceFilters {
        tags: job.judge_tags.clone().unwrap_or_default(),
        ..TraceFilters::default()
    };
    for (name, value) in job.judge_only.clone().unwrap_or_default() {
        let moment = || {
            let moment = crate::text::parse_instant(&value);
            moment
                .map(Some)
                .map_err(|e| SettingsError(format!("--judge-only {name}: {e}")))
        };
        match name.as_str() {
            "name" => filters.name = Some(value),
            "environment" => filters.environment = Some(value),
            "user" => filters.user_id = Some(value),
            "release" => filters.release = Some(value),
            "session" => filters.session_id = Some(value),
            "status" => filters.status = Some(status(&value)?),
            "from" => filters.date_from = moment()?,
            "to" => filters.date_to = moment()?,
            _ => {
                const NAMES: [&str; 8] = [
                    "name",
                    "status",
                    "environment",
                    "user",
                    "release",
                    "session",
                    "from",
                    "to",
                ];
                let near = crate::text::nearest(&name, NAMES);
                return wrong(format!(
                    "--judge-only {name}: no such filter{near}; filters are {}",
                    NAMES.join(", ")
                ));
            }
        }
    }
    Ok(filters)
}

/// A status by its name, in any case. Data may spell theirs in other ways; a filter that nobody knows would choose wrong
/// traces in silence.
fn status(text: &str) -> Result<TraceStatus, SettingsError> {
    let mut all = TraceStatus::ALL.into_iter();
    match all.find(|status| status.name().eq_ignore_ascii_case(text)) {
        Some(status) => Ok(status),
        None => wrong(format!(
            "--judge-only status={text}: no such status; choose {}",
            TraceStatus::ALL.map(TraceStatus::name).join(" or ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_knows_four_states() {
        let names = TraceStatus::ALL.map(|known| status(&known.name().to_lowercase()).unwrap());
        assert_eq!(names, TraceStatus::ALL);
        for unknown in ["nonsense", "ok", "failed", ""] {
            let refused = status(unknown).unwrap_err().to_string();
            assert!(refused.contains(&format!("status={unknown}:")), "{refused}");
            assert!(
                refused.contains("PENDING or RUNNING or COMPLETED or ERROR"),
                "{refused}"
            );
        }
    }
}
