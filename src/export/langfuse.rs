//! Langfuse: events `score-create` of `POST /api/public/ingestion`; a body alone is one of `POST /api/public/scores`.
//!
//! The id of a score is chosen by whoever makes it: a second score of the same id replaces the first. Events have ids of
//! their own, by which Langfuse drops what it was sent twice; a score that changed is another event.
//!
//! Langfuse calls the endpoint for batches legacy and keeps it; `scores` takes one score a request, which for a hundred
//! thousand of them is a hundred times as many requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::ExportError;
use super::score::{Level, Score, Scored, hash_of, hex_of, uuid_of};
use super::stored_scores::RunFacts;
use super::wire::{Account, Faults, Variable, Wire, first_of, missing};
use crate::judge::Endpoint;

const CLOUD: &str = "https://cloud.langfuse.com";

pub(super) struct Langfuse;

impl Wire for Langfuse {
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String> {
        let target = match score.level {
            Level::Trace => "traceId",
            Level::Session => "sessionId",
        };
        let value = match &score.scored {
            Scored::Word(word) => json!(word),
            other => json!(other.number()),
        };
        let mut metadata = score.metadata();
        metadata.insert("run".into(), json!(run.name));
        metadata.insert("digest".into(), json!(score.digest));
        let mut body = json!({
            "id": score.id,
            target: score.target_id,
            "name": score.metric,
            "value": value,
            "dataType": score.scored.data_type(),
            "metadata": metadata,
        });
        if let Some(comment) = score.comment() {
            body["comment"] = json!(comment);
        }
        if let Some(environment) = score.environment.as_deref().filter(|e| is_environment(e)) {
            body["environment"] = json!(environment);
        }
        // Of the run, not of this moment: an export that is made again is the same.
        body["timestamp"] = json!(crate::text::format_instant(run.created_at));
        Ok(body)
    }

    fn path(&self, _: Level) -> String {
        "api/public/ingestion".into()
    }

    fn most(&self) -> usize {
        100
    }

    fn request(&self, bodies: &[&Value]) -> Value {
        let events = bodies.iter().map(|body| {
            let mut score = (*body).clone();
            let timestamp = match &mut score {
                Value::Object(members) => members.shift_remove("timestamp"),
                _ => None,
            };
            json!({
                "id": event_id(body),
                "type": "score-create",
                "timestamp": timestamp,
                "body": score,
            })
        });
        json!({ "batch": events.collect::<Vec<_>>() })
    }

    fn faults(&self, answer: &Value, bodies: &[&Value]) -> Faults {
        let mut faults = Faults::default();
        let mut named = vec![false; bodies.len()];
        for taken in answer["successes"].as_array().into_iter().flatten() {
            let place = bodies.iter().position(|body| taken["id"] == event_id(body));
            if let Some(named) = place.and_then(|at| named.get_mut(at)) {
                *named = true;
            }
        }
        for error in answer["errors"].as_array().into_iter().flatten() {
            let said = ["message", "error"]
                .iter()
                .find_map(|name| error[*name].as_str());
            let message = format!(
                "status {}: {}",
                error["status"],
                said.unwrap_or("no reason")
            );
            match bodies.iter().position(|body| error["id"] == event_id(body)) {
                Some(at) => {
                    if let Some(named) = named.get_mut(at) {
                        *named = true;
                    }
                    match error["status"].as_u64() {
                        Some(429 | 500..) => faults.again.push((at, message)),
                        _ => faults.at.push((at, message)),
                    }
                }
                // Whose fault it is can't be said; the score that it is of is in no list of those that were taken.
                None => faults.message = Some(message),
            }
        }
        let silent = named.iter().enumerate().filter(|(_, named)| !**named);
        let why = faults.message.clone().unwrap_or_else(|| {
            "the answer names it neither among what was taken nor among the errors".into()
        });
        faults.at.extend(silent.map(|(at, _)| (at, why.clone())));
        faults
    }

    fn looks_up_targets(&self) -> bool {
        false
    }

    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError> {
        let key = |name| {
            variable(name).ok_or_else(|| {
                missing(&format!(
                    "set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY to the keys of the project; {name} is not set"
                ))
            })
        };
        let (public, secret) = (key("LANGFUSE_PUBLIC_KEY")?, key("LANGFUSE_SECRET_KEY")?);
        let from_variables = first_of(
            variable,
            &["LANGFUSE_BASE_URL", "LANGFUSE_BASEURL", "LANGFUSE_HOST"],
        );
        let url = url.map(str::to_owned).or(from_variables);
        let pair = STANDARD.encode(format!("{public}:{secret}"));
        Ok(Account {
            endpoint: Endpoint {
                url: url.unwrap_or_else(|| CLOUD.into()),
                headers: vec![("Authorization".into(), format!("Basic {pair}"))],
            },
            project: hex_of(&hash_of([Some(public.as_str())])),
        })
    }
}

fn event_id(body: &Value) -> String {
    let digest = body["metadata"]["digest"].as_str();
    uuid_of(hash_of([
        body["id"].as_str(),
        digest,
        body["timestamp"].as_str(),
    ]))
}

/// Whether Langfuse takes a text as an environment; it refuses the whole score otherwise.
fn is_environment(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=40).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with("langfuse")
}

#[cfg(test)]
mod tests {
    use super::super::score::{example, judged_example};
    use super::super::wire::facts;
    use super::*;

    #[test]
    fn bodies_are_scores_and_events_carry_them() {
        let trace = Langfuse.body(&example(), &facts()).unwrap();
        assert_eq!(
            trace,
            json!({
                "id": "0a0b0c0d-0000-8000-8000-000000000001",
                "traceId": "80f198ee56343ba864fe8b2a57d3eff7",
                "name": "coherence",
                "value": 0.75,
                "dataType": "NUMERIC",
                "metadata": {
                    "source": "nightmill",
                    "score_id": "0a0b0c0d-0000-8000-8000-000000000001",
                    "annotator_kind": "CODE",
                    "embedding_model": "all-MiniLM-L6-v2",
                    "precision": "int8",
                    "text_mode": "compat",
                    "threshold": 0.5,
                    "passed": true,
                    "run": "run",
                    "digest": "d1",
                },
                "comment": "It answers.",
                "environment": "prod",
                "timestamp": "2026-01-01T00:00:00Z",
            })
        );
        let session = Langfuse.body(&judged_example(), &facts()).unwrap();
        assert_eq!(session["sessionId"], "s-1");
        assert!(session.get("traceId").is_none());
        let request = Langfuse.request(&[&trace, &session]);
        let event = &request["batch"][0];
        assert_eq!(event["type"], "score-create");
        assert_eq!(event["timestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(event["body"]["id"], trace["id"]);
        assert!(event["body"].get("timestamp").is_none());
        assert_ne!(event["id"], event["body"]["id"]);
        assert_eq!(request, Langfuse.request(&[&trace, &session]));
        let changed = Score {
            digest: "d2".into(),
            ..example()
        };
        let changed = Langfuse.request(&[&Langfuse.body(&changed, &facts()).unwrap()]);
        assert_ne!(changed["batch"][0]["id"], event["id"]);
        assert_eq!(changed["batch"][0]["body"]["id"], event["body"]["id"]);
    }

    #[test]
    fn errors_of_an_answer_are_placed() {
        let body = Langfuse.body(&example(), &facts()).unwrap();
        let id = Langfuse.request(&[&body])["batch"][0]["id"].clone();
        let answer =
            json!({"successes": [], "errors": [{"id": id, "status": 400, "message": "bad value"}]});
        let faults = Langfuse.faults(&answer, &[&body]);
        assert_eq!(faults.at, [(0, "status 400: bad value".to_owned())]);
        let answer =
            json!({"successes": [], "errors": [{"id": id, "status": 503, "message": "later"}]});
        let faults = Langfuse.faults(&answer, &[&body]);
        assert_eq!(faults.again, [(0, "status 503: later".to_owned())]);
        assert_eq!(faults.at, []);
        for silent in [
            json!({"successes": [], "errors": []}),
            json!({"successes": [{"id": "other", "status": 201}]}),
            Value::Null,
        ] {
            let faults = Langfuse.faults(&silent, &[&body]);
            assert_eq!(faults.at.len(), 1, "{silent}");
            assert!(faults.at[0].1.contains("neither"), "{silent}");
        }
        let answer = json!({"successes": [{"id": id, "status": 201}], "errors": []});
        assert_eq!(Langfuse.faults(&answer, &[&body]), Faults::default());
    }

    #[test]
    fn words_and_flags_have_their_types() {
        let word = Score {
            scored: Scored::Word("good".into()),
            ..example()
        };
        let body = Langfuse.body(&word, &facts()).unwrap();
        assert_eq!(
            (&body["value"], &body["dataType"]),
            (&json!("good"), &json!("CATEGORICAL"))
        );
        let flag = Score {
            scored: Scored::Flag(true),
            environment: Some("Prod EU".into()),
            ..example()
        };
        let body = Langfuse.body(&flag, &facts()).unwrap();
        assert_eq!(
            (&body["value"], &body["dataType"]),
            (&json!(1.0), &json!("BOOLEAN"))
        );
        assert!(body.get("environment").is_none());
    }
}
