//! Runs that are baselines until they are unpinned.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{RecordStore, StoreError};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::whole_file::text_of;

/// The run of each suite that has one, as a JSON object of suite and run.
const PINS: &str = ".pinned.json";

impl RecordStore {
    /// Makes a run the baseline of its suite, whatever came of it, until [`RecordStore::unpin`]. Returns the suite.
    ///
    /// # Errors
    /// As [`RecordStore::load`]; [`FileError::Write`] if the disk refuses.
    pub fn pin(&self, run_id: &str) -> Result<String, StoreError> {
        let suite = self.load(run_id)?.head.golden_set_name;
        let _lock = self.lock()?;
        let mut pins = self.pins()?;
        pins.insert(suite.clone(), run_id.to_owned());
        self.write_pins(&pins)?;
        Ok(suite)
    }

    /// Unpins the run of a suite, or of all where none is named. Returns the runs that were pinned.
    ///
    /// # Errors
    /// [`FileError`] if what is pinned can't be read or written.
    pub fn unpin(&self, suite: Option<&str>) -> Result<Vec<String>, StoreError> {
        if self.pins()?.is_empty() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut pins = self.pins()?;
        let mut unpinned = Vec::new();
        pins.retain(|of, run_id| {
            let goes = suite.is_none_or(|suite| suite == of);
            if goes {
                unpinned.push(run_id.clone());
            }
            !goes
        });
        self.write_pins(&pins)?;
        Ok(unpinned)
    }

    /// The pinned runs by suite.
    ///
    /// # Errors
    /// [`FileError`] if the file of pins can't be read.
    pub fn pins(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let path = self.folder.join(PINS);
        if !path.is_file() {
            return Ok(BTreeMap::new());
        }
        let text = text_of(&path, "JSON")?;
        let pins = serde_json::from_str(&text);
        pins.map_err(|e| FileError::syntax(&path, "pinned runs", e).into())
    }

    fn write_pins(&self, pins: &BTreeMap<String, String>) -> Result<(), StoreError> {
        let path = self.folder.join(PINS);
        let pins = pins
            .iter()
            .map(|(suite, id)| (suite.clone(), id.as_str().into()));
        let text = Value::Object(pins.collect()).to_string();
        let written = self.write_new(&path, text.as_bytes(), true);
        written.map_err(|e| FileError::write(&path, e).into())
    }
}
