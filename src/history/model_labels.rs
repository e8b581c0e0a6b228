//! What the numbers of stored scores hang on, in a word for each model.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};

use crate::history::stored_table::{cell, text_if_there};

/// The columns of `scores` that say which model made a score.
pub(crate) struct ModelLabels {
    columns: [StringArray; 3],
    known: HashMap<String, Arc<str>>,
}

impl ModelLabels {
    /// The columns to read.
    pub const COLUMNS: [&'static str; 3] = ["model", "precision", "text_mode"];

    /// Of a batch of scores.
    ///
    /// # Errors
    /// A column that is no text.
    pub fn of(batch: &RecordBatch) -> Result<Self, String> {
        let [model, precision, text_mode] = Self::COLUMNS.map(|name| text_if_there(batch, name));
        Ok(Self {
            columns: [model?, precision?, text_mode?],
            known: HashMap::new(),
        })
    }

    /// The model of a row with its precision, and with the text mode where that is not the usual one; a judge's model
    /// alone; none for scores of people.
    pub fn row(&mut self, row: usize) -> Option<Arc<str>> {
        let [model, precision, text_mode] = &self.columns;
        let mut label = cell(model, row)?.to_owned();
        let mode = cell(text_mode, row).filter(|mode| *mode != "compat");
        for word in [cell(precision, row), mode].into_iter().flatten() {
            label.push(' ');
            label.push_str(word);
        }
        if let Some(known) = self.known.get(&label) {
            return Some(Arc::clone(known));
        }
        let shared: Arc<str> = Arc::from(label.as_str());
        self.known.insert(label, Arc::clone(&shared));
        Some(shared)
    }
}
