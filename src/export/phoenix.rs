//! Phoenix: annotations of traces and sessions. One of the same name, target and identifier replaces the one before.
//!
//! They go to its REST API. Its endpoint for spans takes protobuf alone, and is no place for `--to otel`.

use serde_json::{Map, Value, json};

use super::ExportError;
use super::score::{Level, Score};
use super::stored_scores::RunFacts;
use super::wire::{Account, Variable, Wire};

const LOCAL: &str = "http://localhost:6006";

pub(super) struct Phoenix;

impl Wire for Phoenix {
    fn body(&self, score: &Score, run: &RunFacts) -> Result<Value, String> {
        let target = match score.level {
            Level::Trace => "trace_id",
            Level::Session => "session_id",
        };
        let mut metadata = score.metadata();
        metadata.insert("run".into(), json!(run.name));
        let result: Map<String, Value> = [
            ("label", score.label().map(|label| json!(label))),
            ("score", score.scored.number().map(|number| json!(number))),
            ("explanation", score.comment().map(|comment| json!(comment))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
        Ok(json!({
            target: score.target_id,
            "name": score.metric,
            "annotator_kind": score.annotator.name(),
            "result": result,
            "metadata": metadata,
            "identifier": score.id,
        }))
    }

    /// With `sync`, the answer says whether the targets are there; without it, annotations of unknown ones are dropped later.
    fn path(&self, level: Level) -> String {
        format!("v1/{}_annotations?sync=true", level.name())
    }

    fn most(&self) -> usize {
        100
    }

    fn request(&self, bodies: &[&Value]) -> Value {
        json!({ "data": bodies })
    }

    fn account(&self, url: Option<&str>, variable: Variable<'_>) -> Result<Account, ExportError> {
        let collector = || variable("PHOENIX_COLLECTOR_ENDPOINT");
        let url = url.map(str::to_owned).or_else(collector);
        let url = url.or_else(|| host(variable));
        let url = url.unwrap_or_else(|| LOCAL.into());
        // The collector's variable may name where spans go.
        let url = url.trim_end_matches('/').trim_end_matches("/v1/traces");
        let mut headers = super::otel::headers_of(variable, "PHOENIX_CLIENT_HEADERS")?;
        if let Some(key) = variable("PHOENIX_API_KEY") {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            headers.push(("Authorization".into(), format!("Bearer {key}")));
        }
        Ok(Account::of_headers(url, headers))
    }
}

/// `PHOENIX_HOST` is the name of a host, with `PHOENIX_PORT` beside it, or a URL.
fn host(variable: Variable<'_>) -> Option<String> {
    let host = variable("PHOENIX_HOST")?;
    if host.contains("://") {
        return Some(host);
    }
    // Where a server listens on all addresses, it is found at this one.
    let host = match host.as_str() {
        "0.0.0.0" | "::" | "[::]" => "localhost".to_owned(),
        bare if bare.matches(':').count() > 1 && !bare.starts_with('[') => format!("[{bare}]"),
        _ => host,
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    Some(match (has_port, variable("PHOENIX_PORT")) {
        (true, _) => format!("http://{host}"),
        (false, port) => format!("http://{host}:{}", port.as_deref().unwrap_or("6006")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::score::{Scored, example, judged_example};
    use super::super::wire::facts;
    use super::*;

    #[test]
    fn bodies_are_annotations_of_traces_and_sessions() {
        let trace = Phoenix.body(&example(), &facts()).unwrap();
        assert_eq!(trace["trace_id"], "80f198ee56343ba864fe8b2a57d3eff7");
        assert_eq!(trace["annotator_kind"], "CODE");
        assert_eq!(
            trace["result"],
            json!({"label": "pass", "score": 0.75, "explanation": "It answers."})
        );
        assert_eq!(trace["identifier"], "0a0b0c0d-0000-8000-8000-000000000001");
        let session = Phoenix.body(&judged_example(), &facts()).unwrap();
        assert_eq!(session["session_id"], "s-1");
        assert_eq!(session["annotator_kind"], "LLM");
        assert_eq!(session["metadata"]["judge_model"], "openai/gpt-4o");
        assert_eq!(session["result"]["label"], "fail");
        assert_eq!(
            Phoenix.path(Level::Session),
            "v1/session_annotations?sync=true"
        );
        assert_eq!(Phoenix.path(Level::Trace), "v1/trace_annotations?sync=true");
        assert_eq!(Phoenix.request(&[&trace]), json!({"data": [trace]}));
        let word = Score {
            scored: Scored::Word("good".into()),
            reason: " ".into(),
            ..example()
        };
        let word = Phoenix.body(&word, &facts()).unwrap();
        assert_eq!(word["result"], json!({"label": "good"}));
    }

    #[test]
    fn the_collectors_variable_may_name_its_path() {
        let variable = |name: &str| match name {
            "PHOENIX_COLLECTOR_ENDPOINT" => Some("https://p.example/v1/traces".to_owned()),
            "PHOENIX_API_KEY" => Some("k".to_owned()),
            _ => None,
        };
        let account = Phoenix.account(None, &variable).unwrap();
        assert_eq!(account.endpoint.url, "https://p.example");
        for (host, port, url) in [
            ("phoenix", None, "http://phoenix:6006"),
            ("phoenix", Some("7000"), "http://phoenix:7000"),
            ("phoenix:8000", Some("7000"), "http://phoenix:8000"),
            ("0.0.0.0", None, "http://localhost:6006"),
            ("::1", None, "http://[::1]:6006"),
            ("https://p.example", Some("7000"), "https://p.example"),
        ] {
            let variable = |name: &str| match name {
                "PHOENIX_HOST" => Some(host.to_owned()),
                "PHOENIX_PORT" => port.map(str::to_owned),
                _ => None,
            };
            let account = Phoenix.account(None, &variable).unwrap();
            assert_eq!(account.endpoint.url, url);
        }
        let headers = account.endpoint.headers;
        assert_eq!(
            headers,
            [("Authorization".to_owned(), "Bearer k".to_owned())]
        );
    }
}
