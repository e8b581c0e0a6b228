//! A suite made of what a model answered: from a run record, or from pairs of input and output.

use std::path::Path;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::file_fault::FileError;
use super::golden_set::{GoldenSet, Interaction, TestCase};
use super::members::{Findings, Members};
use super::record::RunRecord;
use super::suite_metric::SuiteMetric;
use super::whole_file::text_of;
use crate::metric::checked::cut;
use crate::text::{Json, format_instant, parse_strict};

/// Words from which on an output that is JSON is held to be prose too, if it has a full stop.
const PROSE_WORDS: usize = 5;

/// A suite that was made, with what could not be taken.
#[derive(Clone, Debug)]
pub struct Scaffold {
    /// To be written with [`GoldenSet::to_yaml`].
    pub set: GoldenSet,
    /// Cases that were left out, one line each.
    pub left_out: Vec<String>,
}

/// A pair to make a case of.
struct Pair {
    input: String,
    output: String,
    system_prompt: Option<String>,
    description: Option<String>,
}

/// A suite that expects what a run's cases answered. A case without input or output is left out.
pub fn scaffold_of_record(record: &RunRecord, now: DateTime<Utc>) -> Scaffold {
    let is_usable = |input: &str, output: &str| !input.is_empty() && !output.is_empty();
    let (taken, left): (Vec<_>, Vec<_>) = record
        .cases
        .iter()
        .partition(|of| is_usable(&of.case.input, &of.case.actual_output));
    let pairs = taken.into_iter().map(|of| Pair {
        input: of.case.input.clone(),
        output: of.case.actual_output.clone(),
        system_prompt: None,
        description: None,
    });
    let why = |id: &str| format!("case `{id}` has no input or no output");
    let run_id = &record.head.run_id;
    Scaffold {
        set: suite(
            &format!("{}-scaffold", record.head.golden_set_name),
            &format!("What the models answered in {run_id}"),
            pairs,
            now,
        ),
        left_out: left.iter().map(|of| why(&of.case.id)).collect(),
    }
}

/// A suite of a JSON file (a list of pairs, or one pair) or a JSONL file (a pair a line). A pair is
/// `{input, output, system_prompt?, description?}`; an output that is no text is taken as JSON.
///
/// # Errors
/// [`FileError`] names the file and all faults, as in `[3].output`, counted from 0.
pub fn scaffold_of_file(path: &Path, now: DateTime<Utc>) -> Result<Scaffold, FileError> {
    let text = text_of(path, "JSON")?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let findings = Findings::default();
    let items = items_of(path, text)?;
    let items = items.into_iter().enumerate();
    let pairs: Vec<Pair> = items.map(|(at, of)| pair(&findings, at, of)).collect();
    if pairs.is_empty() {
        findings.fault("", "has no pair of input and output");
    }
    findings.finish().map_err(FileError::faults(path))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let set = suite(
        &stem,
        &format!("Made of {}", path.display()),
        pairs.into_iter(),
        now,
    );
    let left_out = Vec::new();
    Ok(Scaffold { set, left_out })
}

/// The pairs of a file: those of one document, or of the lines.
fn items_of(path: &Path, text: &str) -> Result<Vec<Json>, FileError> {
    let document = match parse_strict(text) {
        Ok(Json::Array(items)) => return Ok(items),
        Ok(pair @ Json::Object(_)) => return Ok(vec![pair]),
        Ok(other) => Err(format!("is {}", other.compact())),
        Err(e) => Err(e.to_string()),
    };
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let items: Result<Vec<Json>, String> = lines
        .map(|(at, line)| {
            let json = parse_strict(line);
            json.map_err(|e| format!("line {}: {e}", at + 1))
        })
        .collect();
    let is_lines = path.extension().is_some_and(|of| of == "jsonl");
    match (items, document) {
        (Ok(items), _) => Ok(items),
        // Of a file with lines the fault of the line says more.
        (Err(problem), _) if is_lines => Err(FileError::syntax(path, "JSONL", problem)),
        (Err(problem), Ok(())) => Err(FileError::syntax(path, "JSON", problem)),
        (Err(_), Err(problem)) => Err(FileError::syntax(path, "JSON or JSONL", problem)),
    }
}

fn pair(findings: &Findings, at: usize, item: Json) -> Pair {
    // Numbers of an output that is no text stay as they were written.
    let output = match item.get("output") {
        None | Some(Json::Null | Json::String(_)) => None,
        Some(other) => Some(Value::from(other.compact())),
    };
    let mut value = Value::from(item);
    if let (Value::Object(members), Some(output)) = (&mut value, output) {
        members.insert("output".to_owned(), output);
    }
    let members = Members::of(findings, format!("[{at}]"), &value);
    let text = |key: &'static str| members.text(key).map(str::to_owned);
    let pair = Pair {
        input: members.required_text("input"),
        output: members.required_text("output"),
        system_prompt: text("system_prompt"),
        description: text("description").filter(|of| !of.is_empty()),
    };
    members.finish();
    pair
}

fn suite(
    name: &str,
    description: &str,
    pairs: impl Iterator<Item = Pair>,
    now: DateTime<Utc>,
) -> GoldenSet {
    let cases = (1usize..).zip(pairs).map(|(number, pair)| TestCase {
        id: format!("scaffold-{number:03}"),
        description: pair.description.unwrap_or_else(|| {
            let line = pair.input.split_whitespace().collect::<Vec<_>>().join(" ");
            cut(&line).unwrap_or_else(|| format!("Case {number}"))
        }),
        metrics: Some(metrics(&pair.output)),
        input: pair.input,
        system_prompt: pair.system_prompt,
        expected_output: pair.output,
        weight: 1.0,
        ..TestCase::default()
    });
    let now = format_instant(now);
    GoldenSet {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        description: description.to_owned(),
        interaction: Interaction::SingleTurn,
        tags: vec!["scaffold".to_owned()],
        author: "nightmill".to_owned(),
        created_at: now.clone(),
        updated_at: now,
        cases: cases.collect(),
        file_hash: String::new(),
    }
}

/// Factuality and format; tone too where the output is prose.
fn metrics(output: &str) -> Vec<SuiteMetric> {
    let mut metrics = vec![SuiteMetric::Factuality, SuiteMetric::Format];
    let is_prose = || output.split_whitespace().count() >= PROSE_WORDS && output.contains('.');
    if parse_strict(output).is_err() || is_prose() {
        metrics.push(SuiteMetric::Tone);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    fn made(name: &str, text: &str) -> Result<Scaffold, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        scaffold_of_file(&path, DateTime::UNIX_EPOCH).map_err(|e| e.to_string())
    }

    /// Read again, a suite is what was written, whatever its texts hold.
    #[test]
    fn a_scaffold_loads_again() {
        let hard = "a: \"b\" # c\n\t- d\u{85}e\u{2028}f\u{7f}\u{feff}g\\ \u{1f600}\r\n  'h'\u{0}";
        let pairs = serde_json::json!([
            {"input": hard, "output": hard, "system_prompt": hard, "description": hard},
            {"input": "i", "output": {"a": [1, 2.50]}},
            {"input": "i", "output": "yes"},
        ]);
        let set = made("s.json", &pairs.to_string()).unwrap().set;
        let yaml = set.to_yaml();
        let read = GoldenSet::of_yaml(Path::new("s.yaml"), &yaml).unwrap();
        assert_eq!(read.warnings, []);
        let mut again = read.sets.into_iter().next().unwrap();
        again.file_hash.clear();
        assert_eq!(again, set);
        let ids: Vec<&str> = set.cases.iter().map(|of| of.id.as_str()).collect();
        assert_eq!(ids, ["scaffold-001", "scaffold-002", "scaffold-003"]);
    }

    #[test]
    fn tone_is_for_prose() {
        use SuiteMetric::{Factuality, Format, Tone};
        assert_eq!(metrics("Hello"), [Factuality, Format, Tone]);
        assert_eq!(metrics(r#"{"a": "b"}"#), [Factuality, Format]);
        assert_eq!(metrics("42"), [Factuality, Format]);
        let prose = r#""one two three four five.""#;
        assert_eq!(metrics(prose), [Factuality, Format, Tone]);
        assert_eq!(
            metrics(r#""one two three four."#),
            [Factuality, Format, Tone]
        );
        assert_eq!(metrics(r#""one two three four.""#), [Factuality, Format]);
    }

    #[test]
    fn lines_and_single_pairs_are_read_and_faults_have_their_place() {
        let lines = "{\"input\": \"a\", \"output\": \"b\"}\n\n{\"input\": \"c\", \"output\": {\"x\": 1.50}}\n";
        let set = made("s.jsonl", lines).unwrap().set;
        assert_eq!(set.cases[1].expected_output, "{\"x\":1.50}");
        assert_eq!(
            made("s.json", "{\"input\": \"a\", \"output\": \"b\"}")
                .unwrap()
                .set
                .cases
                .len(),
            1
        );
        let told = made(
            "s.json",
            "[{\"input\": \"a\"}, {\"input\": 1, \"output\": \"\"}]",
        )
        .unwrap_err();
        for place in [
            "[0].output: is missing",
            "[1].input: is the number 1",
            "[1].output: is empty",
        ] {
            assert!(told.contains(place), "{place} is not in {told}");
        }
        let told = made("s.jsonl", "{\"input\": \"a\", \"output\": \"b\"}\n{oh\n").unwrap_err();
        assert!(told.contains("line 2"), "{told}");
        assert!(made("s.json", "[]").unwrap_err().contains("no pair"));
    }

    #[test]
    fn a_run_becomes_a_suite_that_expects_its_answers() {
        let mut of = record("run_20260601_aaaaaa", &[("a", 0.9), ("b", 0.9)]);
        of.cases[1].case.actual_output.clear();
        let scaffold = scaffold_of_record(&of, DateTime::UNIX_EPOCH);
        assert_eq!(scaffold.set.name, "qa-scaffold");
        assert_eq!(scaffold.set.cases.len(), 1);
        assert_eq!(scaffold.set.cases[0].expected_output, "answer of a");
        assert_eq!(scaffold.left_out, ["case `b` has no input or no output"]);
    }
}
