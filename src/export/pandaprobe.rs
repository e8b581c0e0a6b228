//! PandaProbe: trace scores, one a request. It chooses their ids, so that a second one of the same would stand beside the
//! first: each is looked for by the id that is in its metadata before it is sent, and one that changed is updated.
//! PandaProbe takes every update for one by a person, and then calls the score's source `ANNOTATION`.

use serde_json::{Value, json};

use super::ExportError;
use super::score::{Annotator, Level, Score, hex_id};
use super::stored_scores::RunFacts;
use super::wire::{Account, Variable, Wire, missing};
use crate::judge::Seen;

const CLOUD: &str = "https://api.pandaprobe.com";

pub(super) struct PandaProbe;

impl Wire for PandaProbe {
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String> {
        if score.level == Level::Session {
            return Err(
                "PandaProbe takes in no scores of sessions (--level trace leaves them out)".into(),
            );
        }
        if hex_id(&score.target_id).is_none() {
            return Err("the trace's id is no UUID, as all of PandaProbe's are".into());
        }
        let mut metadata = score.metadata();
        metadata.insert("run".into(), json!(run.name));
        metadata.insert("digest".into(), json!(score.digest));
        let mut body = json!({
            "trace_id": score.target_id,
            "name": score.metric,
            "value": score.scored.text(),
            "data_type": score.scored.data_type(),
            "source": match score.annotator {
                Annotator::Human => "ANNOTATION",
                _ => "PROGRAMMATIC",
            },
            "metadata": metadata,
        });
        if let Some(comment) = score.comment() {
            body["reason"] = json!(comment);
        }
        Ok(body)
    }

    fn path(&self, _: Level) -> String {
        "evaluations/trace-scores".into()
    }

    fn where_seen(&self, body: &Value) -> Option<String> {
        let (trace, name) = (body["trace_id"].as_str()?, body["name"].as_str()?);
        let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        Some(format!(
            "evaluations/trace-scores?trace_id={trace}&name={name}&limit=200"
        ))
    }

    fn seen(&self, body: &Value, there: &Value) -> Seen {
        let wanted = &body["metadata"];
        let items = there["items"].as_array().into_iter().flatten();
        let mut same = items.filter(|item| item["metadata"]["score_id"] == wanted["score_id"]);
        if same
            .clone()
            .any(|item| item["metadata"]["digest"] == wanted["digest"])
        {
            return Seen::Yes;
        }
        match same.find_map(|item| item["id"].as_str()) {
            None => Seen::No,
            Some(id) => Seen::Earlier {
                path: format!("evaluations/trace-scores/{id}"),
                body: json!({
                    "value": body["value"],
                    "reason": body.get("reason").unwrap_or(&json!("")),
                    "metadata": wanted,
                }),
            },
        }
    }

    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError> {
        let key = variable("PANDAPROBE_API_KEY");
        let key =
            key.ok_or_else(|| missing("set PANDAPROBE_API_KEY to a key of the organization"))?;
        let project = variable("PANDAPROBE_PROJECT_NAME");
        let project = project.ok_or_else(|| {
            missing("set PANDAPROBE_PROJECT_NAME to the project that the traces are in")
        })?;
        let url = url
            .map(str::to_owned)
            .or_else(|| variable("PANDAPROBE_ENDPOINT"));
        let headers = vec![
            ("X-API-Key".into(), key),
            ("X-Project-Name".into(), project),
        ];
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
    fn bodies_are_programmatic_trace_scores() {
        let body = PandaProbe.body(&example(), &facts()).unwrap();
        assert_eq!(body["trace_id"], "80f198ee56343ba864fe8b2a57d3eff7");
        assert_eq!(
            (&body["name"], &body["value"]),
            (&json!("coherence"), &json!("0.75"))
        );
        assert_eq!(
            (&body["data_type"], &body["source"]),
            (&json!("NUMERIC"), &json!("PROGRAMMATIC"))
        );
        assert_eq!(body["reason"], "It answers.");
        assert!(PandaProbe.body(&judged_example(), &facts()).is_err());
        let other = Score {
            target_id: "t-1".into(),
            ..example()
        };
        assert!(
            PandaProbe
                .body(&other, &facts())
                .unwrap_err()
                .contains("UUID")
        );
    }

    #[test]
    fn what_has_arrived_is_known_by_its_metadata() {
        let body = PandaProbe.body(&example(), &facts()).unwrap();
        let there =
            json!({"items": [{"metadata": {}}, {"id": "u-1", "metadata": body["metadata"]}]});
        assert_eq!(PandaProbe.seen(&body, &there), Seen::Yes);
        let mut older = there.clone();
        older["items"][1]["metadata"]["digest"] = json!("d0");
        let Seen::Earlier { path, body: update } = PandaProbe.seen(&body, &older) else {
            panic!("{older}")
        };
        assert_eq!(path, "evaluations/trace-scores/u-1");
        assert_eq!(
            update,
            json!({"value": "0.75", "reason": "It answers.", "metadata": body["metadata"]})
        );
        assert_eq!(PandaProbe.seen(&body, &Value::Null), Seen::No);
        assert_eq!(
            PandaProbe.where_seen(&body).unwrap(),
            "evaluations/trace-scores?trace_id=80f198ee56343ba864fe8b2a57d3eff7&name=coherence&limit=200"
        );
    }
}
