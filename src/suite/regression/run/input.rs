//! What a run reads: a configuration with its suites, or a suite alone; and outputs of another table.

use std::path::{Path, PathBuf};

use crate::metric::comparison::Compat;
use crate::output::RunError;
use crate::suite::regression::config::{SuiteConfig, find_config};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::golden_set::{GoldenSet, Outputs, ReadSets, golden_sets_of_parquet};
use crate::suite::regression::whole_file::sha256_hex;
use crate::text::nearest;

/// Where the suites of a run are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuitePath {
    /// A configuration, which names its suites.
    Config(PathBuf),
    /// A suite alone: YAML, or rows of Parquet. Every rule is the default, unless a configuration says the rules.
    Suite {
        /// The suite's file.
        file: PathBuf,
        /// Whose rules hold.
        rules: Option<PathBuf>,
    },
}

impl SuitePath {
    /// The file beside which records are kept.
    pub fn anchor(&self) -> &Path {
        match self {
            Self::Config(file)
            | Self::Suite {
                rules: Some(file), ..
            }
            | Self::Suite { file, rules: None } => file,
        }
    }
}

/// Which suites and cases of them.
#[derive(Clone, Debug, Default)]
pub struct SuiteChoice {
    /// Suites by path or alias, or by name where a file alone is run; all if there are none.
    pub sets: Vec<String>,
    /// Cases with one of these tags, or all of a suite that has one; all if there are none.
    pub tags: Vec<String>,
    /// Cases by id; all if there are none.
    pub cases: Vec<String>,
    /// A table of outputs that is joined onto the suites.
    pub outputs: Option<PathBuf>,
}

impl SuiteChoice {
    /// Whether it takes a part of the cases of a suite.
    fn is_part(&self) -> bool {
        !self.tags.is_empty() || !self.cases.is_empty()
    }
}

/// A suite of a run.
#[derive(Clone, Debug)]
pub(super) struct ChosenSet {
    pub set: GoldenSet,
    /// Its weight in the score over all suites.
    pub weight: f64,
    /// Whether cases were left out: then nothing may be compared with the run later.
    pub is_part: bool,
    /// What a reader should know, one line each.
    pub notes: Vec<String>,
}

/// What a run reads.
#[derive(Clone, Debug)]
pub(super) struct RunInput {
    pub config: SuiteConfig,
    pub config_hash: String,
    pub sets: Vec<ChosenSet>,
    /// What a reader should know of the whole, one line each.
    pub notes: Vec<String>,
}

impl From<FileError> for RunError {
    fn from(error: FileError) -> Self {
        Self::Request(error.to_string())
    }
}

impl RunInput {
    /// Reads and checks everything that a run reads, and leaves out what was not chosen.
    ///
    /// # Errors
    /// [`RunError::Request`] with all faults of all files, each with its path.
    pub fn read(path: &SuitePath, choice: &SuiteChoice) -> Result<Self, RunError> {
        let mut notes = Vec::new();
        let (config, config_hash) = read_config(path, &mut notes)?;
        let files = files(path, &config, choice)?;
        let mut sets = read_sets(&files)?;
        if let SuitePath::Suite { file, .. } = path {
            choose_by_name(file, &mut sets, &choice.sets)?;
        }
        check_names(&sets)?;
        if let Some(table) = &choice.outputs {
            join(table, &mut sets, &mut notes)?;
        }
        check_ids(&sets, &choice.cases)?;
        let mut names_without = Vec::new();
        if choice.is_part() {
            for chosen in &mut sets {
                take_part(chosen, choice);
            }
            let left = sets.iter().filter(|of| of.set.cases.is_empty());
            names_without.extend(left.map(|of| of.set.name.clone()));
            sets.retain(|of| !of.set.cases.is_empty());
        }
        if sets.is_empty() {
            return Err(RunError::Request(match choice.is_part() {
                true => format!(
                    "no case of {} is chosen by {}; nothing was evaluated",
                    names_without.join(", "),
                    flags(choice)
                ),
                false => format!("`{}` holds no suite", path.anchor().display()),
            }));
        }
        if !names_without.is_empty() {
            notes.push(format!(
                "left out, as no case is chosen: {}",
                names_without.join(", ")
            ));
        }
        for chosen in &mut sets {
            note_outputs(chosen);
        }
        Ok(Self {
            config,
            config_hash,
            sets,
            notes,
        })
    }

    /// Follows the rules that the user asks for instead of those of the configuration: they are a part of what later
    /// runs must know to be of the same configuration.
    pub fn follow(&mut self, compat: Option<Compat>) {
        if let Some(compat) = compat.filter(|of| *of != self.config.compat) {
            self.config.compat = compat;
            let text = format!("{} compat: {}", self.config_hash, compat.name());
            self.config_hash = sha256_hex(text.as_bytes());
        }
    }
}

fn flags(choice: &SuiteChoice) -> String {
    let flags = [("tags", &choice.tags), ("cases", &choice.cases)];
    let given = flags.into_iter().filter(|(_, values)| !values.is_empty());
    let given = given.map(|(flag, values)| format!("--{flag} {}", values.join(",")));
    given.collect::<Vec<_>>().join(" and ")
}

fn read_config(
    path: &SuitePath,
    notes: &mut Vec<String>,
) -> Result<(SuiteConfig, String), RunError> {
    let (file, suite) = match path {
        SuitePath::Config(file) => (file, None),
        SuitePath::Suite {
            file,
            rules: Some(rules),
        } => (rules, Some(file)),
        SuitePath::Suite { file, rules: None } => {
            let folder = file.parent().filter(|of| !of.as_os_str().is_empty());
            if let Some(unused) = find_config(folder.unwrap_or(Path::new("."))) {
                notes.push(format!(
                    "the default rules hold: `{}` is not used; name it as PATH, and the suite with --set, for its rules",
                    unused.display()
                ));
            }
            return Ok((SuiteConfig::of_suite(file.clone()), sha256_hex(b"")));
        }
    };
    let read = SuiteConfig::read(file)?;
    let shown = file.display();
    notes.extend(read.warnings.iter().map(|of| format!("{shown}: {of}")));
    let mut config = read.config;
    if let Some(suite) = suite {
        config.golden_sets = SuiteConfig::of_suite(suite.clone()).golden_sets;
    }
    Ok((config, read.hash))
}

/// The files to read, each with the weight of its suites.
fn files(
    path: &SuitePath,
    config: &SuiteConfig,
    choice: &SuiteChoice,
) -> Result<Vec<(PathBuf, f64)>, RunError> {
    let SuitePath::Config(config_file) = path else {
        let entries = config.golden_sets.iter();
        return Ok(entries.map(|of| (of.path.clone(), of.weight)).collect());
    };
    let chosen = config
        .chosen_sets(&choice.sets)
        .map_err(|e| RunError::Request(e.to_string()))?;
    let files = chosen.into_iter();
    Ok(files.map(|of| (of.file(config_file), of.weight)).collect())
}

/// The suites of a file: YAML, or Parquet by its ending.
///
/// # Errors
/// As [`GoldenSet::read`].
pub(super) fn sets_of_file(file: &Path) -> Result<ReadSets, FileError> {
    let is_table = file
        .extension()
        .is_some_and(|of| of.eq_ignore_ascii_case("parquet"));
    match is_table {
        true => golden_sets_of_parquet(file),
        false => GoldenSet::read(file),
    }
}

fn read_sets(files: &[(PathBuf, f64)]) -> Result<Vec<ChosenSet>, RunError> {
    let mut sets = Vec::new();
    let mut faults = Vec::new();
    for (file, weight) in files {
        let read = match sets_of_file(file) {
            Ok(read) => read,
            Err(e) => {
                faults.push(e.to_string());
                continue;
            }
        };
        let shown = file.display();
        let mut notes: Vec<String> = read
            .warnings
            .iter()
            .map(|of| format!("{shown}: {of}"))
            .collect();
        for set in read.sets {
            sets.push(ChosenSet {
                set,
                weight: *weight,
                is_part: false,
                // Said once, beside the first suite of the file.
                notes: std::mem::take(&mut notes),
            });
        }
    }
    match faults.is_empty() {
        true => Ok(sets),
        false => Err(RunError::Request(faults.join("\n"))),
    }
}

fn choose_by_name(
    file: &Path,
    sets: &mut Vec<ChosenSet>,
    wanted: &[String],
) -> Result<(), RunError> {
    for name in wanted {
        if !sets.iter().any(|of| of.set.name == *name) {
            let known: Vec<&str> = sets.iter().map(|of| of.set.name.as_str()).collect();
            return Err(RunError::Request(format!(
                "--set {name}: `{}` has no suite of this name{}; it has {}",
                file.display(),
                nearest(name, known.iter().copied()),
                known.join(", ")
            )));
        }
    }
    sets.retain(|of| wanted.is_empty() || wanted.contains(&of.set.name));
    Ok(())
}

/// Records are found again by the name of their suite: two suites of one name would be compared with one another.
fn check_names(sets: &[ChosenSet]) -> Result<(), RunError> {
    let mut seen = std::collections::HashSet::new();
    match sets.iter().find(|of| !seen.insert(of.set.name.as_str())) {
        None => Ok(()),
        Some(twice) => Err(RunError::Request(format!(
            "two suites are called `{}`; give each a name of its own, as baselines are found by it",
            twice.set.name
        ))),
    }
}

fn join(table: &Path, sets: &mut [ChosenSet], notes: &mut Vec<String>) -> Result<(), RunError> {
    let mut outputs = Outputs::read(table)?;
    let joined: usize = sets.iter_mut().map(|of| outputs.join(&mut of.set)).sum();
    let shown = table.display();
    if joined == 0 {
        return Err(RunError::Request(format!(
            "--outputs `{shown}`: no row of it has an output for a case of these suites; its columns `suite` and `id` must \
             name them"
        )));
    }
    notes.push(format!("{joined} outputs are from `{shown}`"));
    let cases: usize = sets.iter().map(|of| of.set.cases.len()).sum();
    if joined < cases {
        notes.push(format!(
            "{} of {cases} cases have no output there, or a null: what the suite itself holds for them is evaluated",
            cases - joined
        ));
    }
    notes.extend(outputs.unused());
    Ok(())
}

fn check_ids(sets: &[ChosenSet], wanted: &[String]) -> Result<(), RunError> {
    let ids = || {
        let cases = sets.iter().flat_map(|of| &of.set.cases);
        cases.map(|case| case.id.as_str())
    };
    match wanted.iter().find(|id| !ids().any(|of| of == *id)) {
        None => Ok(()),
        Some(id) => Err(RunError::Request(format!(
            "--cases {id}: no suite has a case of this id{}",
            nearest(id, ids())
        ))),
    }
}

fn take_part(chosen: &mut ChosenSet, choice: &SuiteChoice) {
    let set = &mut chosen.set;
    let before = set.cases.len();
    set.keep_tagged(&choice.tags);
    if !choice.cases.is_empty() {
        set.cases.retain(|case| choice.cases.contains(&case.id));
    }
    chosen.is_part = set.cases.len() < before;
    if chosen.is_part {
        chosen.notes.push(format!(
            "{} of {before} cases were chosen by {}: such a run leaves no record, so that no later run is held against a \
             part",
            set.cases.len(),
            flags(choice)
        ));
    }
}

fn note_outputs(chosen: &mut ChosenSet) {
    let set = &chosen.set;
    let (without, all) = (set.without_output(), set.cases.len());
    if set.has_no_output() {
        chosen.notes.push(
            "no case has an actual output: the scores are those of empty texts; join outputs with --outputs"
                .to_owned(),
        );
    } else if without > 0 {
        chosen.notes.push(format!(
            "{without} of {all} cases have no actual output and are evaluated as empty texts"
        ));
    }
}
