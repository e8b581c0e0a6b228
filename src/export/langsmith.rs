//! LangSmith: feedback on the root run of a trace, whose id is that of the trace.
//!
//! LangSmith's sessions are projects; it takes no feedback on a conversation. Feedback of an id that is there already is
//! refused with 409, and then updated.

use serde_json::{Value, json};

use super::ExportError;
use super::score::{Annotator, Level, Score, hex_id};
use super::stored_scores::RunFacts;
use super::wire::{Account, Variable, Wire, first_of, missing};
use crate::judge::Verb;

const CLOUD: &str = "https://api.smith.langchain.com";

pub(super) struct LangSmith;

impl Wire for LangSmith {
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String> {
        if score.level == Level::Session {
            return Err(
                "LangSmith has no feedback on sessions (--level trace leaves them out)".into(),
            );
        }
        if hex_id(&score.target_id).is_none() {
            return Err("the trace's id is no UUID, as all of LangSmith's are".into());
        }
        let mut metadata = score.metadata();
        metadata.insert("run".into(), json!(run.name));
        let mut body = json!({
            "id": score.id,
            "run_id": score.target_id,
            "trace_id": score.target_id,
            "key": score.metric,
            "feedback_source": {
                "type": match score.annotator {
                    Annotator::Llm => "model",
                    _ => "api",
                },
                "metadata": metadata,
            },
        });
        // LangSmith's own exports name the project by its id, and feedback is found sooner by it.
        if let Some(project) = score.project_id.as_deref()
            && hex_id(project).is_some()
        {
            body["session_id"] = json!(project);
        }
        if let Some(number) = score.scored.number() {
            body["score"] = json!(number);
        }
        if let Some(label) = score.label() {
            body["value"] = json!(label);
        }
        if let Some(comment) = score.comment() {
            body["comment"] = json!(comment);
        }
        Ok(body)
    }

    fn path(&self, _: Level) -> String {
        "feedback".into()
    }

    fn replacing(&self, body: &Value) -> Option<(Verb, String, Value)> {
        let id = body["id"].as_str()?;
        let changed = json!({
            "score": body.get("score"),
            "value": body.get("value"),
            "comment": body.get("comment"),
        });
        Some((Verb::Patch, format!("feedback/{id}"), changed))
    }

    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError> {
        let key = first_of(variable, &["LANGSMITH_API_KEY", "LANGCHAIN_API_KEY"]);
        let key = key.ok_or_else(|| missing("set LANGSMITH_API_KEY to a key of the workspace"))?;
        let from_variables = first_of(variable, &["LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT"]);
        let url = url.map(str::to_owned).or(from_variables);
        let mut headers = vec![("x-api-key".to_owned(), key)];
        let workspace = variable("LANGSMITH_WORKSPACE_ID");
        headers.extend(workspace.map(|workspace| ("x-tenant-id".to_owned(), workspace)));
        Ok(Account::of_headers(
            url.as_deref().unwrap_or(CLOUD),
            headers,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::score::{example, judged_example};
    use super::super::wire::facts;
    use super::*;

    #[test]
    fn bodies_are_feedback_on_root_runs() {
        let body = LangSmith.body(&example(), &facts()).unwrap();
        let id = "80f198ee56343ba864fe8b2a57d3eff7";
        assert_eq!(
            (&body["run_id"], &body["trace_id"]),
            (&json!(id), &json!(id))
        );
        assert_eq!(
            (&body["key"], &body["score"]),
            (&json!("coherence"), &json!(0.75))
        );
        assert_eq!(
            (&body["value"], &body["comment"]),
            (&json!("pass"), &json!("It answers."))
        );
        assert_eq!(body["feedback_source"]["type"], "api");
        let judged = Score {
            level: Level::Trace,
            target_id: id.into(),
            ..judged_example()
        };
        let judged = LangSmith.body(&judged, &facts()).unwrap();
        assert_eq!(judged["feedback_source"]["type"], "model");
        assert_eq!(
            judged["feedback_source"]["metadata"]["judge_model"],
            "openai/gpt-4o"
        );
        let (verb, path, changed) = LangSmith.replacing(&body).unwrap();
        assert_eq!(verb, Verb::Patch);
        assert_eq!(path, "feedback/0a0b0c0d-0000-8000-8000-000000000001");
        assert_eq!(
            changed,
            json!({"score": 0.75, "value": "pass", "comment": "It answers."})
        );
    }

    #[test]
    fn what_langsmith_has_no_place_for_is_said() {
        let error = LangSmith.body(&judged_example(), &facts()).unwrap_err();
        assert!(error.contains("sessions"), "{error}");
        let other = Score {
            target_id: "t-1".into(),
            ..example()
        };
        assert!(
            LangSmith
                .body(&other, &facts())
                .unwrap_err()
                .contains("UUID")
        );
    }
}
