//! What is to be done, as one typed value: flags over environment over `nightmill.toml`, or out of a manifest or a monitor.
//!
//! Wherever settings come from, they are first [`Given`], texts by name, and then a [`Job`], whose members are checked. A
//! setting is one line of `setting.rs`: help, files, variables and possible values come from it.

mod calibration;
mod given;
mod pairs;
mod recorded;
mod request_record;
mod setting;
mod template;
mod value;

pub use calibration::{
    CalibratedModel, Calibration, CalibrationOrigin, FittingThreshold, LearntAttention,
};
pub use given::{Given, without_source};
pub use pairs::{split_numbers, split_pairs};
pub(crate) use request_record::whole_path;
pub use request_record::{RecordedFile, RequestRecord, TablesRecord};
pub use setting::{Job, SETTINGS, Setting, Theme};
pub use template::template;
pub use value::{
    Bytes, Count, DeviceName, FileFormat, GpuGraph, Kind, NoEvidence, NoticeFormat, NotifyWhen,
    Number, Numbers, Pairs, PrecisionName, bytes_of,
};

/// What is wrong with settings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

/// An error message about settings.
pub(crate) fn problem<T>(message: impl Into<String>) -> Result<T, SettingsError> {
    Err(SettingsError(message.into()))
}
