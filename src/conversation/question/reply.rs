//! Reading the judge's reply (as in Connexity). Any fault voids the whole reply.

use serde::{Deserialize, Serialize};

use crate::conversation::question::catalogue::OUTCOMES_KEY;
use crate::conversation::question::metric::{Scale, Tier};
use crate::conversation::question::verdict::Label;
use crate::conversation::question::weights::{
    JudgeConfig, MissingOutcomes, ReplyFences, ResolvedMetric, Selection,
};
use crate::text::{Json, parse_strict};

/// Why a case that should be judged has a verdict without scores. Its message says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum JudgeError {
    /// The configuration of the case can't be resolved.
    #[error(
        "the judge configuration of this case can't be resolved; correct its metrics or weights"
    )]
    MetricResolution,
    /// The request would be longer than allowed.
    #[error(
        "the request is longer than `max_input_tokens`; raise the limit or split the transcript"
    )]
    TranscriptTooLong,
    /// The call failed for good.
    #[error("the call to the judge failed; look at the recorded attempts and run again")]
    LlmCallFailed,
    /// The reply is not JSON.
    #[error("the reply is not JSON; look at the raw reply")]
    InvalidJson,
    /// The reply is JSON, but no object.
    #[error("the reply is JSON but no object; look at the raw reply")]
    NotAnObject,
    /// A metric has no object in the reply.
    #[error("the reply lacks the object of a metric; look at the raw reply")]
    MissingBlock,
    /// A binary metric without a boolean `passed` or a text as `justification`.
    #[error(
        "the reply has a binary metric without a boolean or a justification; look at the raw reply"
    )]
    InvalidBinary,
    /// A scored metric whose `justification` is no text.
    #[error("the reply has a metric without a justification; look at the raw reply")]
    InvalidJustification,
    /// A scored metric whose `score` is no whole number.
    #[error("the reply has a score that is no whole number; look at the raw reply")]
    InvalidScore,
    /// A `failure_code` or `turns` that can't be read.
    #[error("the reply has a failure code or turns that can't be read; look at the raw reply")]
    InvalidDiagnostics,
}

impl JudgeError {
    /// The name in tables, such as `invalid_json`.
    pub fn code(self) -> &'static str {
        match self {
            Self::MetricResolution => "metric_resolution",
            Self::TranscriptTooLong => "transcript_too_long",
            Self::LlmCallFailed => "llm_call_failed",
            Self::InvalidJson => "invalid_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingBlock => "missing_block",
            Self::InvalidBinary => "invalid_binary",
            Self::InvalidJustification => "invalid_justification",
            Self::InvalidScore => "invalid_score",
            Self::InvalidDiagnostics => "invalid_diagnostics",
        }
    }
}

/// The judge's answer for one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricScore {
    /// The metric's id.
    pub metric: String,
    /// Its tier.
    pub tier: Tier,
    /// Whether it is a pass or fail metric.
    pub is_binary: bool,
    /// 0 to 5; of a binary metric 5 for pass and 0 for fail.
    pub score: u8,
    /// The name of the score.
    pub label: Label,
    /// The share of the overall score, 0 to 1.
    pub weight: f64,
    /// The judge's reason.
    pub justification: String,
    /// A short label of the fault. Null from score 3 on, and for a binary metric that passed.
    pub failure_code: Option<String>,
    /// The turns where the fault shows, as the judge gave them; beyond the int32 range cut to its limits.
    pub turns: Vec<i32>,
}

impl MetricScore {
    /// Whether the metric is acceptable: a score of 3 or more, or a pass.
    pub fn is_acceptable(&self) -> bool {
        self.score >= 3
    }
}

/// The judge's answer for one expected outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutcomeResult {
    /// The statement, as the judge gave it.
    pub statement: String,
    /// Whether it holds.
    pub passed: bool,
    /// The judge's reason.
    pub justification: String,
}

/// What a reply without fault says.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// One score per metric of the selection, in order.
    pub metric_scores: Vec<MetricScore>,
    /// Null if the case has no outcomes or the reply no list of them.
    pub outcome_results: Option<Vec<OutcomeResult>>,
}

/// Reads a reply. `outcomes` are the statements that the case expects.
///
/// # Errors
/// The first fault: of the reply as a whole, then of each metric in the order of the selection.
pub fn read_reply(
    raw: &str,
    selection: &Selection,
    outcomes: &[String],
    config: &JudgeConfig,
) -> Result<Reply, JudgeError> {
    let mut text = raw.trim();
    if config.reply_fences == ReplyFences::Strip {
        text = without_fence(text);
    }
    let json = parse_strict(text).map_err(|_| JudgeError::InvalidJson)?;
    if !matches!(json, Json::Object(_)) {
        return Err(JudgeError::NotAnObject);
    }
    let scores = selection
        .metrics
        .iter()
        .map(|metric| read_metric(&json, metric));
    Ok(Reply {
        metric_scores: scores.collect::<Result<_, _>>()?,
        outcome_results: read_outcomes(&json, outcomes, config.missing_outcomes),
    })
}

/// The text inside of one Markdown fence around it all; the text itself if there is none.
pub(in crate::conversation) fn without_fence(text: &str) -> &str {
    let inside = || {
        let (opening, rest) = text.split_once('\n')?;
        let (body, closing) = rest.trim_end().rsplit_once('\n')?;
        let mark = opening.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = opening.len() - opening.trim_start_matches(mark).len();
        let closes = closing.trim().chars().all(|c| c == mark) && closing.trim().len() >= length;
        let info = opening.get(length..)?;
        (length >= 3 && closes && !info.contains(mark)).then_some(body.trim())
    };
    inside().unwrap_or(text)
}

fn read_metric(reply: &Json, resolved: &ResolvedMetric) -> Result<MetricScore, JudgeError> {
    let metric = &resolved.metric;
    let block = reply.get(&metric.name);
    let block = block.filter(|block| matches!(block, Json::Object(_)));
    let block = block.ok_or(JudgeError::MissingBlock)?;
    let justification = block.get("justification").and_then(Json::text);
    let (score, label, justification) = match metric.score_type {
        Scale::Binary => match (block.get("passed"), justification) {
            (Some(Json::Bool(passed)), Some(text)) => {
                (if *passed { 5 } else { 0 }, Label::of_binary(*passed), text)
            }
            _ => return Err(JudgeError::InvalidBinary),
        },
        Scale::Scored => {
            let text = justification.ok_or(JudgeError::InvalidJustification)?;
            let score = block.get("score").and_then(read_score);
            let score = score.ok_or(JudgeError::InvalidScore)?;
            (score, Label::of_score(score), text)
        }
    };
    let failure_code = read_failure_code(block.get("failure_code"))?;
    let mut read = MetricScore {
        metric: metric.name.clone(),
        tier: metric.tier,
        is_binary: metric.score_type == Scale::Binary,
        score,
        label,
        weight: resolved.weight,
        justification: justification.to_owned(),
        failure_code,
        turns: read_turns(block.get("turns"))?,
    };
    if read.is_acceptable() {
        read.failure_code = None;
    }
    Ok(read)
}

/// A score, cut towards zero and held to 0..5. `None` if it can't be read as an integer.
fn read_score(json: &Json) -> Option<u8> {
    let value = match json {
        Json::Integer(_) | Json::Float(_) => json.number().filter(|value| value.is_finite())?,
        Json::Bool(value) => f64::from(u8::from(*value)),
        Json::String(text) => integer_text(text)?,
        Json::Null | Json::Array(_) | Json::Object(_) => return None,
    };
    Some(value.trunc().clamp(0.0, 5.0) as u8)
}

/// An optional sign and digits, with single underscores between digits. Infinite if it has very many digits.
fn integer_text(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
    if !digits.split('_').all(is_number) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn read_failure_code(json: Option<&Json>) -> Result<Option<String>, JudgeError> {
    match json.filter(|json| json.is_truthy()) {
        None => Ok(None),
        Some(Json::String(code)) => Ok(Some(code.clone())),
        Some(_) => Err(JudgeError::InvalidDiagnostics),
    }
}

fn read_turns(json: Option<&Json>) -> Result<Vec<i32>, JudgeError> {
    match json.filter(|json| json.is_truthy()) {
        None => Ok(Vec::new()),
        Some(Json::Array(items)) => {
            let turns = items.iter().map(read_turn).collect::<Option<_>>();
            turns.ok_or(JudgeError::InvalidDiagnostics)
        }
        Some(_) => Err(JudgeError::InvalidDiagnostics),
    }
}

fn read_turn(json: &Json) -> Option<i32> {
    let value = match json {
        Json::Integer(_) | Json::Float(_) => json
            .number()
            .filter(|value| value.is_finite() && value.fract() == 0.0)?,
        Json::Bool(value) => f64::from(u8::from(*value)),
        Json::String(text) => integer_text(text)?,
        Json::Null | Json::Array(_) | Json::Object(_) => return None,
    };
    Some(value as i32)
}

fn read_outcomes(
    reply: &Json,
    expected: &[String],
    missing: MissingOutcomes,
) -> Option<Vec<OutcomeResult>> {
    if expected.is_empty() {
        return None;
    }
    let items = reply.get(OUTCOMES_KEY).and_then(Json::items);
    let results = items.map(|items| {
        let objects = items.iter().filter(|item| matches!(item, Json::Object(_)));
        objects.map(read_outcome).collect::<Vec<_>>()
    });
    match missing {
        MissingOutcomes::Ignore => results,
        MissingOutcomes::Fail => Some(with_missing(results.unwrap_or_default(), expected)),
    }
}

fn read_outcome(item: &Json) -> OutcomeResult {
    OutcomeResult {
        statement: as_text(item.get("statement")),
        passed: item.get("passed").is_some_and(Json::is_truthy),
        justification: as_text(item.get("justification")),
    }
}

/// A text as it is, nothing as the empty text, anything else as JSON.
fn as_text(json: Option<&Json>) -> String {
    match json {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.compact(),
    }
}

/// The results, and one more for each expected statement that none of them repeats. White space does not count, and
/// one result answers one statement.
fn with_missing(mut results: Vec<OutcomeResult>, expected: &[String]) -> Vec<OutcomeResult> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut open: Vec<String> = results
        .iter()
        .map(|result| words(&result.statement))
        .collect();
    for statement in expected {
        match open
            .iter()
            .position(|answered| *answered == words(statement))
        {
            Some(at) => {
                open.swap_remove(at);
            }
            None => results.push(OutcomeResult {
                statement: statement.clone(),
                passed: false,
                justification: "The judge's reply has no result for this outcome.".into(),
            }),
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::question::catalogue::Catalogue;

    fn config(json: &str) -> JudgeConfig {
        serde_json::from_str(json).unwrap()
    }

    fn block(score: &str) -> Result<MetricScore, JudgeError> {
        let config = config(r#"{"metrics":[{"metric":"tool_routing"}]}"#);
        let selection = config.resolve(&Catalogue::built_in()).unwrap();
        let raw = format!(r#"{{"tool_routing":{{"justification":"j",{score}}}}}"#);
        read_reply(&raw, &selection, &[], &config).map(|mut reply| reply.metric_scores.remove(0))
    }

    #[test]
    fn scores_are_read_as_integers_in_every_documented_form() {
        let score = |json: &str| block(&format!("\"score\":{json}")).map(|read| read.score);
        for (json, expected) in [
            ("4", 4),
            ("4.999", 4),
            ("-0.5", 0),
            ("1e30", 5),
            ("-1e30", 0),
            ("true", 1),
            ("false", 0),
            ("\"4\"", 4),
            ("\" 4 \"", 4),
            ("\"+4\"", 4),
            ("\"1_0\"", 5),
            ("\"0_3\"", 3),
            ("\"-2\"", 0),
            ("\"\\t3\\n\"", 3),
        ] {
            assert_eq!(score(json), Ok(expected), "{json}");
        }
        assert_eq!(score(&format!("\"{}\"", "9".repeat(500))), Ok(5));
        for bad in [
            "\"4.5\"", "\"0x4\"", "\"\"", "\"_4\"", "\"4_\"", "\"1__0\"", "\"+ 4\"", "\"+-4\"",
            "\"٤\"", "null", "[4]", "{}", "1e999", "-1e999", "\"inf\"", "\"1e2\"", "\"+\"",
        ] {
            assert_eq!(score(bad), Err(JudgeError::InvalidScore), "{bad}");
        }
    }

    #[test]
    fn turns_and_failure_codes_are_read_in_every_documented_form() {
        let read = |rest: &str| block(&format!("\"score\":1,{rest}"));
        let turns = |json: &str| read(&format!("\"turns\":{json}")).map(|read| read.turns);
        assert_eq!(
            turns(r#"[3,-1,3,2.0,true,false," 7 ","1_0",1e20]"#),
            Ok(vec![3, -1, 3, 2, 1, 0, 7, 10, i32::MAX])
        );
        for empty in ["null", "\"\"", "0", "-0.0", "false", "[]", "{}"] {
            assert_eq!(turns(empty), Ok(vec![]), "{empty}");
            let code = read(&format!("\"failure_code\":{empty}")).map(|read| read.failure_code);
            assert_eq!(code, Ok(None), "{empty}");
        }
        for bad in [
            "[1.5]",
            "[null]",
            "[\"1.0\"]",
            "[1e999]",
            "[[1]]",
            "1",
            "true",
            "\"1\"",
            "{\"a\":1}",
        ] {
            assert_eq!(turns(bad), Err(JudgeError::InvalidDiagnostics), "{bad}");
        }
        for bad in ["1", "true", "[\"a\"]", "{\"a\":1}"] {
            let code = read(&format!("\"failure_code\":{bad}"));
            assert_eq!(code, Err(JudgeError::InvalidDiagnostics), "{bad}");
        }
    }

    #[test]
    fn one_fence_around_the_reply_is_removed() {
        for (fenced, expected) in [
            ("```json\n{}\n```", "{}"),
            ("```\n{}\n```", "{}"),
            ("~~~ JSON\n\n{}\n~~~~\n", "{}"),
            ("````\n{}\n````", "{}"),
        ] {
            assert_eq!(without_fence(fenced), expected, "{fenced}");
        }
        for other in [
            "{}",
            "``\n{}\n``",
            "```json\n{}",
            "```json\n{}\n~~~",
            "x\n```\n{}\n```",
            "````\n{}\n```",
            "```",
        ] {
            assert_eq!(without_fence(other), other, "{other}");
        }
    }

    #[test]
    fn one_faulty_metric_voids_all_and_the_first_in_order_counts() {
        let config = config(
            r#"{"metrics":[{"metric":"tool_routing"},{"metric":"task_completion","weight":1}]}"#,
        );
        let selection = config.resolve(&Catalogue::built_in()).unwrap();
        let read = |raw: &str| read_reply(raw, &selection, &[], &config).unwrap_err();
        let first =
            r#"{"tool_routing":{"score":3,"justification":"j","turns":5},"task_completion":{}}"#;
        assert_eq!(read(first), JudgeError::InvalidDiagnostics);
        let second =
            r#"{"tool_routing":{"score":3,"justification":"j"},"task_completion":{"passed":true}}"#;
        assert_eq!(read(second), JudgeError::InvalidBinary);
    }

    #[test]
    fn outcomes_without_a_result_fail_only_where_asked() {
        let raw = r#"{"tool_routing":{"score":5,"justification":"j"},
            "expected_outcomes":[{"statement":"A  b","passed":1},{"statement":7.50,"passed":[]},3]}"#;
        let expected = ["A b".to_owned(), "C".to_owned()];
        let read = |policy: &str, expected: &[String]| {
            let json = format!(
                r#"{{"metrics":[{{"metric":"tool_routing"}}],"missing_outcomes":"{policy}"}}"#
            );
            let config = config(&json);
            let selection = config.resolve(&Catalogue::built_in()).unwrap();
            read_reply(raw, &selection, expected, &config)
                .unwrap()
                .outcome_results
        };
        let given = read("ignore", &expected).unwrap();
        let seen: Vec<(&str, bool)> = given
            .iter()
            .map(|o| (o.statement.as_str(), o.passed))
            .collect();
        assert_eq!(seen, [("A  b", true), ("7.50", false)]);
        let strict = read("fail", &expected).unwrap();
        assert_eq!(strict.len(), 3);
        assert_eq!(
            (strict[2].statement.as_str(), strict[2].passed),
            ("C", false)
        );
        assert_eq!(
            read("fail", &["A b".into(), "A b".into()]).unwrap().len(),
            3
        );
        assert_eq!(read("fail", &[]), None);
    }
}
