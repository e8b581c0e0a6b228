//! Which kind of suite a path is, and which kind of result a file holds.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::evalset::located;
use super::regression::{CONFIG_NAMES, SuitePath, find_config};
use crate::output::RunError;

/// Most bytes of a file that is looked at to tell its kind.
const MOST_BYTES: u64 = 256 << 20;
/// Most names that a message lists.
const MOST_NAMES: usize = 8;

/// A kind of suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuiteKind {
    /// An evaluation set of trpc-agent-go.
    EvalSet,
    /// A regression suite.
    Regression(SuitePath),
}

/// A kind of result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// The result of an evaluation set.
    EvalSet,
    /// The record of a run of a regression suite.
    Regression,
}

/// What a file is, by what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    EvalSet,
    Config,
    GoldenSet,
    Record,
    /// Anything else, in words.
    Other(String),
}

/// The kind of suite that a path is: by a file's content, or by what a folder holds. The working folder may be below
/// that of its configuration.
///
/// # Errors
/// [`RunError::Request`] if it is of no kind, or of both, with what was found there.
pub fn suite_kind(path: &Path) -> Result<SuiteKind, RunError> {
    let shown = path.display();
    if path.is_dir() {
        return kind_of_folder(path);
    }
    if !path.exists() {
        return Err(RunError::Request(format!(
            "`{shown}` is not there{}",
            near(path)
        )));
    }
    let found = found_in(path)?;
    match found {
        Found::EvalSet => Ok(SuiteKind::EvalSet),
        Found::Config => Ok(SuiteKind::Regression(SuitePath::Config(path.to_owned()))),
        Found::GoldenSet => Ok(SuiteKind::Regression(SuitePath::Suite {
            file: path.to_owned(),
            rules: None,
        })),
        Found::Record => Err(RunError::Request(format!(
            "`{shown}` is the record of a run and no suite; look at it with `nightmill suite show`"
        ))),
        Found::Other(what) => Err(RunError::Request(format!(
            "`{shown}` is no suite: {what}. A suite is an evaluation set (NAME.evalset.json), a configuration of regression \
             suites (YAML with `golden_sets`), or a golden set (YAML with `test_cases`, or Parquet with the columns suite, id, \
             expected_output and actual_output)"
        ))),
    }
}

/// Files of the folder whose names are nearly this one.
fn near(path: &Path) -> String {
    let Some(name) = path.file_name().map(|of| of.to_string_lossy()) else {
        return String::new();
    };
    let names = names_in(&crate::output::directory::parent_of(path));
    crate::text::nearest(&name, names.iter().map(String::as_str))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

fn kind_of_folder(folder: &Path) -> Result<SuiteKind, RunError> {
    let shown = folder.display();
    let own = CONFIG_NAMES.iter().map(|name| folder.join(name));
    let config = own.into_iter().find(|path| path.is_file());
    let sets = has_eval_sets(folder);
    match (config, sets) {
        (Some(config), Some(set)) => Err(RunError::Request(format!(
            "`{shown}` holds both an evaluation set (`{}`) and a configuration of regression suites (`{}`); name one of them",
            set.display(),
            config.display()
        ))),
        (Some(config), None) => Ok(SuiteKind::Regression(SuitePath::Config(config))),
        (None, Some(_)) => Ok(SuiteKind::EvalSet),
        (None, None) => {
            // Of the working folder, the nearest configuration above it is meant.
            let here = folder == Path::new(".") || folder == Path::new("./");
            match find_config(folder).filter(|_| here) {
                Some(config) => Ok(SuiteKind::Regression(SuitePath::Config(config))),
                None => Err(RunError::Request(nothing_in(folder))),
            }
        }
    }
}

/// An evaluation set of a folder: in it, or in a folder below it.
fn has_eval_sets(folder: &Path) -> Option<PathBuf> {
    const SUFFIX: &str = ".evalset.json";
    let set_in = |folder: &Path| {
        let mut names = names_in(folder).into_iter();
        let name = names.find(|name| name.ends_with(SUFFIX))?;
        Some(folder.join(name))
    };
    let below = || {
        let mut names = names_in(folder).into_iter().map(|name| folder.join(name));
        names.find_map(|path| path.is_dir().then(|| set_in(&path)).flatten())
    };
    // Where several applications are, one of them is to be named: that is told elsewhere.
    set_in(folder)
        .or_else(below)
        .or_else(|| located(folder).map(|(base, ..)| base))
}

fn nothing_in(folder: &Path) -> String {
    let shown = folder.display();
    let names = names_in(folder);
    let golden: Vec<String> = names
        .iter()
        .map(|name| folder.join(name))
        .filter(|path| has_ending(path, &["yaml", "yml", "parquet"]))
        .filter(|path| matches!(found_in(path), Ok(Found::GoldenSet)))
        .map(|path| format!("`{}`", path.display()))
        .collect();
    if !golden.is_empty() {
        return format!(
            "`{shown}` holds golden sets and no configuration that names them ({}); name one of them: {}",
            CONFIG_NAMES[0],
            few(&golden)
        );
    }
    let found = match names.is_empty() {
        true => "it is empty".to_owned(),
        false => format!("it holds {}", few(&names)),
    };
    let above = match find_config(folder) {
        Some(config) => format!(
            "; the nearest configuration above it is `{}`",
            config.display()
        ),
        None => String::new(),
    };
    format!(
        "`{shown}` holds no suite: no evaluation set (APP/NAME.evalset.json) and no configuration of regression suites \
         ({}); {found}{above}",
        CONFIG_NAMES[0]
    )
}

fn few(names: &[String]) -> String {
    let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
    match names.len().checked_sub(MOST_NAMES) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let of_path = path.extension().and_then(|of| of.to_str());
    of_path.is_some_and(|of| endings.iter().any(|ending| of.eq_ignore_ascii_case(ending)))
}

fn found_in(path: &Path) -> Result<Found, RunError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".evalset.json") {
        return Ok(Found::EvalSet);
    }
    if has_ending(path, &["parquet"]) {
        return columns_of(path);
    }
    let text = text_of(path)?;
    let keys = match has_ending(path, &["yaml", "yml"]) {
        true => super::regression::keys_of_yaml(path, &text)?,
        false => keys_of_json(&text),
    };
    let Some(keys) = keys else {
        return Ok(Found::Other("it holds no block of keys".to_owned()));
    };
    let has = |key: &str| keys.iter().any(|of| of == key);
    let is_yaml = has_ending(path, &["yaml", "yml"]);
    Ok(match (is_yaml, has("golden_sets"), has("test_cases")) {
        (true, true, true) => Found::Other(
            "it has `golden_sets`, as a configuration, and `test_cases`, as a golden set; keep one of them".to_owned(),
        ),
        (true, true, false) => Found::Config,
        (true, false, true) => Found::GoldenSet,
        _ if has("run_id") && has("test_case_results") => Found::Record,
        _ if has("evalCases") && has("evalSetId") => Found::EvalSet,
        _ => Found::Other(match keys.is_empty() {
            true => "it is empty".to_owned(),
            false => format!("its keys are {}", few(&keys)),
        }),
    })
}

/// The kind of result that a file holds. What is no record of a regression suite is left to the reader of the other
/// kind.
///
/// # Errors
/// [`RunError::Request`] if it can't be read.
pub fn result_kind(path: &Path) -> Result<ResultKind, RunError> {
    if path.is_dir() {
        return Err(RunError::Request(format!(
            "`{}` is a folder; name a result in it: NAME.evalset_result.json or RUN_ID.json",
            path.display()
        )));
    }
    let text = text_of(path)?;
    let keys = keys_of_json(&text).unwrap_or_default();
    let has = |key: &str| keys.iter().any(|of| of == key);
    Ok(match has("run_id") && has("test_case_results") {
        true => ResultKind::Regression,
        false => ResultKind::EvalSet,
    })
}

fn text_of(path: &Path) -> Result<String, RunError> {
    use std::io::Read;
    let failed =
        |problem: String| RunError::Request(format!("can't read `{}`: {problem}", path.display()));
    let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
    let mut text = String::new();
    let mut limited = file.take(MOST_BYTES);
    limited
        .read_to_string(&mut text)
        .map_err(|e| failed(e.to_string()))?;
    Ok(text)
}

/// The keys of a JSON object; none of anything else.
fn keys_of_json(text: &str) -> Option<Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut keys = Vec::new();
    // Values are passed over.
    let json = crate::text::parse_members(text.as_bytes(), |name| {
        keys.push(name.to_owned());
        false
    });
    match Value::from(json.ok()?) {
        Value::Object(_) => Some(keys),
        _ => None,
    }
}

fn columns_of(path: &Path) -> Result<Found, RunError> {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let failed = |problem: String| {
        RunError::Request(format!(
            "`{}` can't be read as Parquet: {problem}",
            path.display()
        ))
    };
    let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| failed(e.to_string()))?;
    let fields = builder.schema().fields().iter();
    let columns: Vec<String> = fields.map(|of| of.name().clone()).collect();
    let has = |name: &str| columns.iter().any(|of| of == name);
    Ok(
        match ["suite", "id", "expected_output"].into_iter().all(has) {
            true => Found::GoldenSet,
            false if has("trace_id") => Found::Other(format!(
                "it holds traces (its columns are {}); make an evaluation set of them with `nightmill suite from-traces`",
                few(&columns)
            )),
            false => Found::Other(format!("its columns are {}", few(&columns))),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(files: &[(&str, &str)], path: &str) -> Result<SuiteKind, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let root = folder.path().display().to_string();
        let told = |text: String| text.replace(&root, "F");
        match suite_kind(&folder.path().join(path)) {
            Ok(SuiteKind::Regression(SuitePath::Config(file))) => {
                let file = file.strip_prefix(folder.path()).unwrap();
                Ok(SuiteKind::Regression(SuitePath::Config(file.to_owned())))
            }
            Ok(kind) => Ok(kind),
            Err(e) => Err(told(e.to_string())),
        }
    }

    #[test]
    fn suites_are_told_by_what_is_in_them() {
        let config = ("nightmill-suite.yaml", "golden_sets: [{path: a.yaml}]");
        let found = kind(&[config], "").unwrap();
        let named = SuitePath::Config("nightmill-suite.yaml".into());
        assert_eq!(found, SuiteKind::Regression(named));
        let set = ("a.yaml", "name: x\ntest_cases: []");
        assert!(matches!(
            kind(&[set], "a.yaml"),
            Ok(SuiteKind::Regression(SuitePath::Suite { rules: None, .. }))
        ));
        assert_eq!(
            kind(&[("shop/s.evalset.json", "{}")], ""),
            Ok(SuiteKind::EvalSet)
        );
        assert_eq!(
            kind(&[("shop/s.evalset.json", "{}")], "shop/s.evalset.json"),
            Ok(SuiteKind::EvalSet)
        );
    }

    #[test]
    fn what_is_unclear_is_refused_with_what_was_found() {
        let config = ("nightmill-suite.yaml", "golden_sets: [{path: a.yaml}]");
        let set = ("a.yaml", "name: x\ntest_cases: []");
        for (files, path, words) in [
            (
                vec![config, ("shop/s.evalset.json", "{}")],
                "",
                "holds both",
            ),
            (vec![set], "", "name one of them: `F/a.yaml`"),
            (vec![], "", "it is empty"),
            (vec![("notes.txt", "x")], "", "it holds notes.txt"),
            (
                vec![("b.yaml", "x: 1\ny: 2")],
                "b.yaml",
                "its keys are x, y",
            ),
            (
                vec![("b.yaml", "test_cases: []\ngolden_sets: []")],
                "b.yaml",
                "keep one",
            ),
            (
                vec![("r.json", r#"{"run_id": "r", "test_case_results": []}"#)],
                "r.json",
                "suite show",
            ),
            (vec![set], "b.yaml", "did you mean `a.yaml`"),
            (vec![("b.yaml", "a: [1")], "b.yaml", "can't be read as YAML"),
        ] {
            let told = kind(&files, path).unwrap_err();
            assert!(told.contains(words), "{words} is not in {told}");
        }
    }
}
