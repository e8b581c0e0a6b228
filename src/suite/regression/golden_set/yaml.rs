//! Suites from YAML files, as Regtrace writes them.

use std::path::Path;

use serde_json::Value;

use super::case::{Source, check_ids, read_case};
use super::{GoldenSet, Interaction, ReadSets};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::members::{Findings, Members};
use crate::suite::regression::whole_file::{sha256_hex, text_of, yaml_of};

impl GoldenSet {
    /// Reads and checks the suite of a YAML file of at most 256 MiB.
    ///
    /// # Errors
    /// [`FileError`] names the file and all faults, each with its path, as in `test_cases[3].context`.
    pub fn read(path: &Path) -> Result<ReadSets, FileError> {
        let text = text_of(path, "YAML")?;
        Self::of_yaml(path, &text)
    }

    /// Checks the text of the suite at `path`.
    ///
    /// # Errors
    /// As [`GoldenSet::read`].
    pub fn of_yaml(path: &Path, text: &str) -> Result<ReadSets, FileError> {
        let value = yaml_of(path, text)?;
        let findings = Findings::default();
        let set = suite(&findings, &value, sha256_hex(text.as_bytes()));
        let warnings = findings.finish().map_err(FileError::faults(path))?;
        Ok(ReadSets {
            sets: vec![set],
            warnings,
        })
    }
}

pub(super) const INTERACTIONS: [(&str, Interaction); 2] = [
    ("single_turn", Interaction::SingleTurn),
    ("rag", Interaction::Rag),
];

fn suite(findings: &Findings, value: &Value, file_hash: String) -> GoldenSet {
    let top = Members::of(findings, "", value);
    let name = top.required_text("name");
    let version = top.required_text("version");
    let description = top.required_text("description");
    if top.value("interaction_type").is_none() {
        top.fault(
            "interaction_type",
            "is missing; write `single_turn` or `rag`",
        );
    }
    let interaction = top.choice("interaction_type", &INTERACTIONS);
    let interaction = interaction.unwrap_or_default();
    if !top.has("tags") {
        top.fault("tags", "is missing; write a list, `[]` for none");
    }
    let tags = top.texts("tags");
    let author = top.required_text("author");
    let created_at = top.required_text("created_at");
    let updated_at = top.required_text("updated_at");
    if top.value("test_cases").is_none() {
        top.fault("test_cases", "is missing; list the cases");
    }
    let items = top.list("test_cases");
    let cases: Vec<_> = items
        .into_iter()
        .map(|(path, item)| read_case(findings, path, item, interaction, Source::Yaml))
        .collect();
    let places = cases.iter().enumerate();
    check_ids(
        findings,
        places.map(|(at, case)| (format!("test_cases[{at}]"), case.id.as_str())),
    );
    if top.value("test_cases").is_some() && cases.is_empty() {
        top.warn("test_cases", "has no case; the suite scores 0");
    }
    top.finish();
    GoldenSet {
        name,
        version,
        description,
        interaction,
        tags,
        author,
        created_at,
        updated_at,
        cases,
        file_hash,
    }
}
