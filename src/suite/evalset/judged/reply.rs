//! What judges reply, and what is read out of it: the forms that trpc-agent-go's judges answer in.

use serde_json::Value;

use super::super::result::RubricScore;

/// What a reply was read as.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// 0 to 1.
    pub score: f64,
    /// The judge's words.
    pub reason: String,
    /// Rubric by rubric, in the order of the reply.
    pub rubric_scores: Vec<RubricScore>,
    /// What was said, where that is more than a score.
    pub value: Option<Said>,
}

/// A verdict that is no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Yes or no.
    Boolean(bool),
    /// One of the labels that the metric lists.
    Category(String),
}

/// A reply that is no verdict in the form that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the judge's reply can't be read: {0}")]
pub struct Unreadable(String);

fn unreadable<T>(problem: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable(problem.into()))
}

/// A label of `llm_judge_template`'s categorical replies, and what it is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Category {
    /// The label, compared exactly.
    pub label: String,
    /// 0 to 1.
    pub score: f64,
}

/// `reasoning: …` and then `is_the_agent_response_valid: valid` or `invalid`, anywhere in the text; the first pair counts.
///
/// # Errors
/// [`Unreadable`] if a key is missing, or the label is another word.
pub fn valid_label(reply: &str) -> Result<Read, Unreadable> {
    const REASONING: &str = "reasoning:";
    const LABEL: &str = "is_the_agent_response_valid:";
    let Some((reason, rest)) = reply
        .split_once(REASONING)
        .and_then(|(_, rest)| rest.split_once(LABEL))
    else {
        return unreadable(format!("it has no `{REASONING}` with a `{LABEL}` after it"));
    };
    let (label, _) = rest_of_line(rest);
    let score = match label.as_str() {
        "valid" => 1.0,
        "invalid" => 0.0,
        other => {
            return unreadable(format!(
                "`{}` is neither valid nor invalid",
                brief_label(other)
            ));
        }
    };
    Ok(Read {
        score,
        reason: reason.trim().to_owned(),
        ..Read::default()
    })
}

/// The rest of the first line that is not blank, trimmed and in lower case, and where the text goes on.
fn rest_of_line(text: &str) -> (String, &str) {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let end = text.find('\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    (line.trim().to_lowercase(), rest)
}

fn brief_label(label: &str) -> String {
    label.chars().take(40).collect()
}

/// A verdict for each rubric: blocks of `ID:`, `Rubric:`, `Evidence:`, `Reason:`, `Verdict:`, or, where the text begins with
/// `{` or a code fence, the object `{"rubricScores": [{"id", "score", "reason"}]}`. `rubrics` are the ids that were asked
/// about; with none, their number and names are not checked.
///
/// # Errors
/// [`Unreadable`].
pub fn rubrics(reply: &str, rubrics: &[String]) -> Result<Read, Unreadable> {
    let start = reply.trim_start();
    match start.starts_with('{') || start.starts_with("```") {
        true => rubric_scores(start, rubrics),
        false => rubric_blocks(reply, rubrics).map(of_rubrics),
    }
}

/// The object alone: `{"rubricScores": [{"id", "score", "reason"}]}`, with the ids as in [`rubrics`].
///
/// # Errors
/// [`Unreadable`].
pub fn rubric_scores(reply: &str, rubrics: &[String]) -> Result<Read, Unreadable> {
    rubric_objects(reply, rubrics).map(of_rubrics)
}

/// The mean of rubrics, and their reasons in lines.
fn of_rubrics(scores: Vec<RubricScore>) -> Read {
    let sum: f64 = scores.iter().map(|rubric| rubric.score).sum();
    let reasons: Vec<&str> = scores.iter().map(|rubric| rubric.reason.as_str()).collect();
    Read {
        score: sum / scores.len() as f64,
        reason: reasons.join("\n"),
        rubric_scores: scores,
        value: None,
    }
}

fn rubric_blocks(reply: &str, rubrics: &[String]) -> Result<Vec<RubricScore>, Unreadable> {
    let mut scores = Vec::new();
    let mut rest = reply;
    while let Some((score, further)) = rubric_block(rest) {
        scores.push(score);
        rest = further;
    }
    if scores.is_empty() {
        return unreadable(
            "it has no block of `ID:`, `Rubric:`, `Evidence:`, `Reason:`, `Verdict:`",
        );
    }
    if !rubrics.is_empty() && scores.len() != rubrics.len() {
        return unreadable(format!(
            "it has {} verdicts for {} rubrics",
            scores.len(),
            rubrics.len()
        ));
    }
    Ok(scores)
}

/// The first block of a text, and where the text goes on.
fn rubric_block(text: &str) -> Option<(RubricScore, &str)> {
    let (_, rest) = text.split_once("ID:")?;
    let (id, rest) = rest.split_once("Rubric:")?;
    let (_, rest) = rest.split_once("Evidence:")?;
    let (_, rest) = rest.split_once("Reason:")?;
    let (reason, rest) = rest.split_once("Verdict:")?;
    let (said, rest) = rest_of_line(rest);
    let score = if said == "yes" { 1.0 } else { 0.0 };
    Some((verdict(id, reason.trim().to_owned(), score), rest))
}

fn verdict(id: &str, reason: String, score: f64) -> RubricScore {
    RubricScore {
        id: id.trim().to_owned(),
        reason,
        score,
        ..RubricScore::default()
    }
}

fn rubric_objects(reply: &str, rubrics: &[String]) -> Result<Vec<RubricScore>, Unreadable> {
    let object = object(reply)?;
    let entries = object.get("rubricScores").and_then(Value::as_array);
    let Some(entries) = entries.filter(|entries| !entries.is_empty()) else {
        return unreadable("`rubricScores` is missing, empty, or no list");
    };
    let mut scores: Vec<RubricScore> = Vec::with_capacity(entries.len());
    for entry in entries {
        let id = entry.get("id").and_then(Value::as_str).map(str::trim);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return unreadable("an entry of `rubricScores` has no `id`");
        };
        if scores.iter().any(|earlier| earlier.id == id) {
            return unreadable(format!("rubric `{id}` has two verdicts"));
        }
        if !rubrics.is_empty() && !rubrics.iter().any(|asked| asked.trim() == id) {
            return unreadable(format!("rubric `{id}` was not asked about"));
        }
        scores.push(verdict(id, reason(entry)?, share(entry.get("score"))?));
    }
    match rubrics.is_empty() || scores.len() == rubrics.len() {
        true => Ok(scores),
        false => unreadable(format!(
            "it has {} verdicts for {} rubrics",
            scores.len(),
            rubrics.len()
        )),
    }
}

/// `{"score": 0 to 1, "reason": …}`.
///
/// # Errors
/// [`Unreadable`].
pub fn single_score(reply: &str) -> Result<Read, Unreadable> {
    let object = object(reply)?;
    Ok(Read {
        score: share(object.get("score"))?,
        reason: reason(&object)?,
        ..Read::default()
    })
}

/// `{"passed": true or false, "reason": …}`.
///
/// # Errors
/// [`Unreadable`].
pub fn boolean(reply: &str) -> Result<Read, Unreadable> {
    let object = object(reply)?;
    let Some(passed) = object.get("passed").and_then(Value::as_bool) else {
        return unreadable("`passed` is missing, or neither true nor false");
    };
    Ok(Read {
        score: if passed { 1.0 } else { 0.0 },
        reason: reason(&object)?,
        value: Some(Said::Boolean(passed)),
        ..Read::default()
    })
}

/// `{"category": one of the labels, "reason": …}`.
///
/// # Errors
/// [`Unreadable`].
pub fn categorical(reply: &str, categories: &[Category]) -> Result<Read, Unreadable> {
    let object = object(reply)?;
    let Some(label) = object.get("category").and_then(Value::as_str) else {
        return unreadable("`category` is missing, or no text");
    };
    let Some(category) = categories.iter().find(|known| known.label == label) else {
        return unreadable(format!(
            "`{}` is no category of the metric",
            brief_label(label)
        ));
    };
    Ok(Read {
        score: category.score,
        reason: reason(&object)?,
        value: Some(Said::Category(label.to_owned())),
        ..Read::default()
    })
}

/// A verdict for each sentence of an answer: blocks of `ID:`, `Reason:`, `Label:`, `Verdict:`, separated by blank lines.
///
/// # Errors
/// [`Unreadable`] if there is no block, or a label is unknown.
pub fn hallucinations(reply: &str) -> Result<Read, Unreadable> {
    let mut scores = Vec::new();
    let mut rest = reply;
    while let Some((block, further)) = sentence_block(rest) {
        scores.push(block?);
        rest = further;
    }
    match scores.is_empty() {
        true => unreadable("it has no block of `ID:`, `Reason:`, `Label:`, `Verdict:`"),
        false => Ok(of_rubrics(scores)),
    }
}

/// The first block of a text, and where the text goes on.
fn sentence_block(text: &str) -> Option<(Result<RubricScore, Unreadable>, &str)> {
    let (_, rest) = text.split_once("ID:")?;
    let (id, rest) = rest.split_once("Reason:")?;
    let (reason, rest) = rest.split_once("Label:")?;
    let (label, rest) = rest.split_once("Verdict:")?;
    let (verdict, rest) = rest_of_line(rest);
    let label = label.trim().to_lowercase();
    let label: Vec<&str> = label.split_whitespace().collect();
    let label = label.join("_");
    let score = match (label.as_str(), verdict.as_str()) {
        ("supported" | "not_applicable", _) | ("", "yes") => 1.0,
        ("unsupported" | "contradictory" | "disputed" | "", _) => 0.0,
        (other, _) => {
            let problem = unreadable(format!(
                "`{}` is no label of a sentence",
                brief_label(other)
            ));
            return Some((problem, rest));
        }
    };
    let reason = match label.is_empty() {
        true => reason.trim().to_owned(),
        false => format!("[{label}] {}", reason.trim()),
    };
    Some((Ok(self::verdict(id, reason, score)), rest))
}

/// The one JSON object of a reply, in a code fence or without.
fn object(reply: &str) -> Result<Value, Unreadable> {
    let text = without_fence(reply.trim());
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => unreadable("it is JSON, but no object"),
        Err(e) => unreadable(format!("it is not one JSON object: {e}")),
    }
}

/// What is inside of a code fence, with or without the word `json`.
fn without_fence(text: &str) -> &str {
    let Some(inside) = text.strip_prefix("```") else {
        return text;
    };
    let inside = ["json", "JSON"]
        .iter()
        .find_map(|word| inside.strip_prefix(word))
        .unwrap_or(inside);
    inside
        .trim_end()
        .strip_suffix("```")
        .unwrap_or(inside)
        .trim()
}

fn share(value: Option<&Value>) -> Result<f64, Unreadable> {
    match value.and_then(Value::as_f64) {
        Some(score) if (0.0..=1.0).contains(&score) => Ok(score),
        _ => unreadable("`score` is missing, or no number from 0 to 1"),
    }
}

fn reason(object: &Value) -> Result<String, Unreadable> {
    match object.get("reason").and_then(Value::as_str) {
        Some(reason) => Ok(reason.to_owned()),
        None => unreadable("`reason` is missing, or no text"),
    }
}
