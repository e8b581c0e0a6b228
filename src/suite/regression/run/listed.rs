//! The suites that a path names, for lists.

use std::path::PathBuf;

use super::input::{SuitePath, sets_of_file};
use crate::output::RunError;
use crate::suite::regression::config::SuiteConfig;

/// A suite as lists show it.
#[derive(Clone, Debug)]
pub struct ListedSuite {
    /// Its name.
    pub name: String,
    /// As in `1.0.0`; may be empty.
    pub version: String,
    /// Its file.
    pub file: PathBuf,
    /// Another name to choose it by.
    pub alias: Option<String>,
    /// Whether it is run.
    pub enabled: bool,
    /// Its weight in the score over all suites, from 0.
    pub weight: f64,
    /// How many cases it has.
    pub cases: usize,
    /// How many of them have no output.
    pub without_output: usize,
}

/// The suites that a path names, in order, enabled or not.
///
/// # Errors
/// [`RunError::Request`] with the first file that can't be used.
pub fn suites_of(path: &SuitePath) -> Result<Vec<ListedSuite>, RunError> {
    let entries = match path {
        SuitePath::Config(file) => {
            let config = SuiteConfig::read(file)?.config;
            let entries = config.golden_sets.into_iter();
            entries.map(|of| (of.file(file), of)).collect()
        }
        SuitePath::Suite { file, .. } => {
            let entries = SuiteConfig::of_suite(file.clone()).golden_sets;
            let entries = entries.into_iter().map(|of| (file.clone(), of));
            entries.collect::<Vec<_>>()
        }
    };
    let mut listed = Vec::new();
    for (file, entry) in entries {
        for set in sets_of_file(&file)?.sets {
            listed.push(ListedSuite {
                without_output: set.without_output(),
                name: set.name,
                version: set.version,
                file: file.clone(),
                alias: entry.alias.clone(),
                enabled: entry.enabled,
                weight: entry.weight,
                cases: set.cases.len(),
            });
        }
    }
    Ok(listed)
}
