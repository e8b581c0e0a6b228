//! What a run is held against: what is configured, the run that the user names, or nothing.

use chrono::{DateTime, Utc};

use super::input::ChosenSet;
use super::{BaselineChoice, RegressionRequest};
use crate::output::RunError;
use crate::suite::regression::baseline::{BaselineOf, baseline_notices};
use crate::suite::regression::config::SuiteConfig;
use crate::suite::regression::record::RunRecord;
use crate::suite::regression::record_store::{Baseline, RecordStore, StoreError};

/// What the suites of a run are held against.
#[derive(Debug)]
pub(super) enum Against {
    Configured,
    /// A run that the user named.
    Named(Box<RunRecord>),
    Nothing,
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Request(error.to_string())
    }
}

impl Against {
    /// What the request says. A run that was named must be there.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub fn of(
        request: &RegressionRequest,
        records: &RecordStore,
        sets: &[ChosenSet],
    ) -> Result<Self, RunError> {
        let run = match &request.baseline {
            BaselineChoice::Configured => return Ok(Self::Configured),
            BaselineChoice::Nothing => return Ok(Self::Nothing),
            BaselineChoice::Run(run) => run,
        };
        let record = records
            .load(run)
            .map_err(|e| RunError::Request(format!("--baseline {run}: {e}")))?;
        if sets.len() > 1 {
            let names: Vec<&str> = sets.iter().map(|of| of.set.name.as_str()).collect();
            return Err(RunError::Request(format!(
                "--baseline {run}: it is a run of one suite, and there are {} ({}); choose one with --set",
                sets.len(),
                names.join(", ")
            )));
        }
        Ok(Self::Named(Box::new(record)))
    }

    /// The baseline of a suite, with what a reader should know of it.
    ///
    /// # Errors
    /// [`RunError::Request`] if the folder of records can't be read.
    pub fn baseline(
        &self,
        suite: &str,
        branch: &str,
        config: &SuiteConfig,
        records: &RecordStore,
        now: DateTime<Utc>,
    ) -> Result<Baseline, RunError> {
        match self {
            Self::Configured => {
                let rules = &config.metrics.regression;
                let compat = config.compat;
                Ok(records.baseline(suite, Some(branch), rules, compat, now)?)
            }
            Self::Nothing => Ok(Baseline {
                record: None,
                notices: vec!["nothing is compared (--baseline none)".to_owned()],
            }),
            Self::Named(record) => {
                let head = &record.head;
                let notices = baseline_notices(head, BaselineOf::Pinned, suite, Some(branch), now);
                Ok(Baseline {
                    record: Some((**record).clone()),
                    notices,
                })
            }
        }
    }
}
