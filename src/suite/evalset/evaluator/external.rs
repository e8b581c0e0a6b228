//! Evaluators that are a command: JSON in, JSON out, one process for each case and metric.
//!
//! ```text
//! in:  {"actuals": […], "expecteds": […], "metric": {…}}
//! out: {"overallScore": …, "overallStatus": …, "perInvocationResults": [
//!          {"score": …, "status": …, "details": {"reason": …, "rubricScores": [{"id", "score", "reason"}]}}]}
//! ```
//!
//! Turns and metric are as files hold them, without the judge's key. There must be one result a turn. As everywhere in
//! these files a missing score is 0; a missing status follows from score and threshold. `evalStatus` for `status`, and
//! `reason` and `rubricScores` outside of `details`, are read too.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    EvalStatus, EvaluateResult, EvaluationError, Evaluator, InvocationResult, RubricScore,
};
use crate::suite::evalset::criterion::only_value;
use crate::suite::evalset::model::{EvalMetric, Invocation};
use crate::suite::process::{answer_of, cut};

/// Characters of an answer that an error shows.
const SHOWN_ANSWER: usize = 200;

/// Scores turns by running a command.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalEvaluator {
    name: String,
    description: String,
    command: String,
    timeout: Duration,
}

impl ExternalEvaluator {
    /// An evaluator of this name; `sh -c` runs the command, which may take `timeout` for a case.
    pub fn new(name: &str, command: &str, timeout: Duration) -> Self {
        Self {
            name: name.to_owned(),
            description: format!("what the command `{}` says", cut(command, SHOWN_ANSWER)),
            command: command.to_owned(),
            timeout,
        }
    }
}

impl Evaluator for ExternalEvaluator {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn evaluate(
        &self,
        actuals: &[Invocation],
        expecteds: &[Invocation],
        metric: &EvalMetric,
    ) -> Result<EvaluateResult, EvaluationError> {
        let failed = |problem| EvaluationError {
            metric: metric.name.clone(),
            problem,
        };
        let turns = |turns: &[Invocation]| turns.iter().map(Invocation::to_json).collect();
        let (actuals, expecteds): (Vec<Value>, Vec<Value>) = (turns(actuals), turns(expecteds));
        let input = json!({"actuals": actuals, "expecteds": expecteds, "metric": metric.to_json()});
        let output = answer_of(&self.command, format!("{input}\n").as_bytes(), self.timeout);
        let output = output.map_err(|error| failed(error.to_string()))?;
        let read = only_value(&output).map_err(|reason| format!("it is no JSON: {reason}"));
        let threshold = metric.threshold.unwrap_or_default();
        let read = read.and_then(|answer| result_of(&answer, threshold, actuals.len()));
        read.map_err(|reason| {
            failed(format!(
                "the command `{}` answered with {:?}, which is no result: {reason}; correct the command",
                cut(&self.command, SHOWN_ANSWER),
                cut(output.trim(), SHOWN_ANSWER),
            ))
        })
    }
}

fn result_of(answer: &Value, threshold: f64, turns: usize) -> Result<EvaluateResult, String> {
    let Value::Object(answer) = answer else {
        return Err("it is no object".to_owned());
    };
    let results = items(answer, "perInvocationResults")?;
    if results.len() != turns {
        return Err(format!(
            "`perInvocationResults` has {} results for {turns} turns; there must be one a turn",
            results.len()
        ));
    }
    let results = results.iter().enumerate().map(|(at, result)| {
        let result = result.as_object().ok_or("it is no object".to_owned());
        let result = result.and_then(|result| turn_of(result, threshold));
        result.map_err(|reason| format!("`perInvocationResults[{at}]`: {reason}"))
    });
    let per_invocation = results.collect::<Result<Vec<_>, _>>()?;
    let score = number(answer, "overallScore")?;
    let status = match status(answer, "overallStatus")? {
        Some(status) => status,
        None if turns == 0 => EvalStatus::NotEvaluated,
        None => EvalStatus::of(score, threshold),
    };
    Ok(EvaluateResult {
        score,
        status,
        per_invocation,
    })
}

fn turn_of(result: &Map<String, Value>, threshold: f64) -> Result<InvocationResult, String> {
    let score = number(result, "score")?;
    let said = match status(result, "status")? {
        None => status(result, "evalStatus")?,
        said => said,
    };
    let details = match result.get("details") {
        None | Some(Value::Null) => result,
        Some(Value::Object(details)) => details,
        Some(_) => return Err("`details` must be an object".to_owned()),
    };
    let rubrics = items(details, "rubricScores")?.iter().map(|rubric| {
        let rubric = rubric
            .as_object()
            .ok_or("`rubricScores` must hold objects")?;
        Ok(RubricScore {
            id: text(rubric, "id")?,
            reason: text(rubric, "reason")?,
            score: number(rubric, "score")?,
            ..RubricScore::default()
        })
    });
    Ok(InvocationResult {
        score,
        status: said.unwrap_or_else(|| EvalStatus::of(score, threshold)),
        reason: text(details, "reason")?,
        rubric_scores: rubrics.collect::<Result<_, String>>()?,
        ..InvocationResult::default()
    })
}

/// A status that an evaluation produces.
fn status(of: &Map<String, Value>, name: &str) -> Result<Option<EvalStatus>, String> {
    match text(of, name)?.as_str() {
        "" => Ok(None),
        "passed" => Ok(Some(EvalStatus::Passed)),
        "failed" => Ok(Some(EvalStatus::Failed)),
        "not_evaluated" => Ok(Some(EvalStatus::NotEvaluated)),
        _ => Err(format!("`{name}` must be passed, failed or not_evaluated")),
    }
}

fn number(of: &Map<String, Value>, name: &str) -> Result<f64, String> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) => value
            .as_f64()
            .ok_or_else(|| format!("`{name}` must be a number")),
    }
}

fn text(of: &Map<String, Value>, name: &str) -> Result<String, String> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("`{name}` must be a text")),
    }
}

fn items<'a>(of: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], String> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("`{name}` must be a list")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn turn(id: &str) -> Invocation {
        Invocation {
            id: id.into(),
            ..Invocation::default()
        }
    }

    fn evaluated(command: &str, turns: usize) -> Result<EvaluateResult, String> {
        let turns: Vec<_> = (0..turns).map(|at| turn(&format!("t{at}"))).collect();
        let metric = EvalMetric {
            name: "mine".into(),
            threshold: Some(0.5),
            ..EvalMetric::default()
        };
        let evaluator = ExternalEvaluator::new("mine", command, SOON);
        let result = evaluator.evaluate(&turns, &turns, &metric);
        result.map_err(|error| error.to_string())
    }

    fn answering(answer: &str, turns: usize) -> Result<EvaluateResult, String> {
        evaluated(&format!("cat > /dev/null; echo '{answer}'"), turns)
    }

    #[test]
    fn turns_and_metric_go_in_and_a_result_comes_out() {
        let command = r#"grep -q '^{"actuals":\[{"invocationId":"t0"},{"invocationId":"t1"}\],"expecteds":\[{"invocationId":"t0"},{"invocationId":"t1"}\],"metric":{"metricName":"mine","threshold":0.5}}$' &&
            echo '{"overallScore":0.75,"overallStatus":"failed","perInvocationResults":[
            {"score":1,"status":"passed","details":{"reason":"good","rubricScores":[{"id":"r","score":1,"reason":"so"}]}},
            {"score":0.5,"evalStatus":"not_evaluated","reason":"hm"}]}'"#;
        let result = evaluated(command, 2).unwrap();
        assert_eq!((result.score, result.status), (0.75, EvalStatus::Failed));
        let [first, second] = &result.per_invocation[..] else {
            panic!("{result:?}")
        };
        assert_eq!((first.score, first.status), (1.0, EvalStatus::Passed));
        assert_eq!(first.reason, "good");
        assert_eq!(first.rubric_scores[0].id, "r");
        assert_eq!(
            (second.status, second.reason.as_str()),
            (EvalStatus::NotEvaluated, "hm")
        );
    }

    #[test]
    fn what_is_left_out_is_zero_or_follows() {
        let result = answering(r#"{"perInvocationResults":[{"score":0.5},{}]}"#, 2).unwrap();
        assert_eq!((result.score, result.status), (0.0, EvalStatus::Failed));
        assert_eq!(result.per_invocation[0].status, EvalStatus::Passed);
        assert_eq!(result.per_invocation[1].status, EvalStatus::Failed);
        assert_eq!(answering("{}", 0).unwrap().status, EvalStatus::NotEvaluated);
    }

    #[test]
    fn what_is_no_result_is_quoted() {
        for (answer, reason) in [
            ("hello", "no JSON"),
            ("[]", "no object"),
            (r#"{"overallScore":1}"#, "0 results for 1 turns"),
            (r#"{"perInvocationResults":[3]}"#, "[0]`: it is no object"),
            (
                r#"{"overallScore":"1","perInvocationResults":[{}]}"#,
                "must be a number",
            ),
            (
                r#"{"overallStatus":"good","perInvocationResults":[{}]}"#,
                "must be passed",
            ),
            (
                r#"{"perInvocationResults":[{"score":true}]}"#,
                "must be a number",
            ),
            (
                r#"{"perInvocationResults":[{"details":[]}]}"#,
                "must be an object",
            ),
        ] {
            let error = answering(answer, 1).unwrap_err();
            assert!(
                error.starts_with("metric `mine`: the command `cat > "),
                "{error}"
            );
            assert!(
                error.contains(reason) && error.contains(&format!("{answer:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let error = evaluated("echo no model >&2; exit 9", 1).unwrap_err();
        for part in [
            "metric `mine`",
            "`echo no model >&2; exit 9`",
            "exit status: 9",
            "no model",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
