//! One score as it leaves a run, with the id that it has in every system.

use serde_json::{Map, Value, json};

pub use crate::metric::Level;

/// Who made a score, in the words of OpenInference and Phoenix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Annotator {
    Human,
    Llm,
    Code,
}

impl Annotator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "HUMAN",
            Self::Llm => "LLM",
            Self::Code => "CODE",
        }
    }
}

/// The value of a score.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scored {
    Number(f64),
    Flag(bool),
    Word(String),
}

impl Scored {
    /// As a number: a flag is 1 or 0; a word is none.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Self::Word(_) => None,
        }
    }

    pub fn data_type(&self) -> &'static str {
        match self {
            Self::Number(_) => "NUMERIC",
            Self::Flag(_) => "BOOLEAN",
            Self::Word(_) => "CATEGORICAL",
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => json!(number).to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Word(word) => word.clone(),
        }
    }
}

/// A score of a run.
#[derive(Clone, Debug)]
pub(super) struct Score {
    /// A UUID of what the score is: the same score has it in every export.
    pub id: String,
    /// Of what the score says: the same while nothing of it changes.
    pub digest: String,
    pub level: Level,
    /// As the traces spell it.
    pub target_id: String,
    pub session_id: Option<String>,
    pub project_id: Option<String>,
    pub metric: String,
    pub scored: Scored,
    pub threshold: Option<f64>,
    pub passed: Option<bool>,
    pub reason: String,
    /// What the metric says beside; an object.
    pub details: Value,
    pub evaluated_traces: Option<i64>,
    pub environment: Option<String>,
    pub annotator: Annotator,
    pub model: Option<String>,
    pub precision: Option<String>,
    pub text_mode: Option<String>,
}

impl Score {
    /// A word for the score: a category, or whether it passed.
    pub fn label(&self) -> Option<&str> {
        match (&self.scored, self.passed) {
            (Scored::Word(word), _) => Some(word),
            (_, Some(true)) => Some("pass"),
            (_, Some(false)) => Some("fail"),
            (_, None) => None,
        }
    }

    /// The reason; none if there is no text.
    pub fn comment(&self) -> Option<&str> {
        Some(self.reason.trim()).filter(|reason| !reason.is_empty())
    }

    /// What else is known of the score, for systems that keep such things.
    pub fn metadata(&self) -> Map<String, Value> {
        let model = match self.annotator {
            Annotator::Llm => "judge_model",
            _ => "embedding_model",
        };
        let members = [
            ("source", Some(json!("nightmill"))),
            ("score_id", Some(json!(self.id))),
            ("annotator_kind", Some(json!(self.annotator.name()))),
            (model, self.model.as_ref().map(|m| json!(m))),
            ("precision", self.precision.as_ref().map(|p| json!(p))),
            ("text_mode", self.text_mode.as_ref().map(|m| json!(m))),
            ("threshold", self.threshold.map(|t| json!(t))),
            ("passed", self.passed.map(|p| json!(p))),
            ("evaluated_traces", self.evaluated_traces.map(|n| json!(n))),
            ("project_id", self.project_id.as_ref().map(|p| json!(p))),
            (
                "details",
                (!is_empty(&self.details)).then(|| brief(&self.details)),
            ),
        ];
        let present = members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        present.collect()
    }
}

/// Details of more bytes leave out what they say of each trace: a session may have thousands, and systems limit what they
/// take. Tables have all of it.
const MOST_DETAILS: usize = 8 << 10;
const OF_TRACES: &str = "per_trace_signals";

fn brief(details: &Value) -> Value {
    let mut details = details.clone();
    let is_long = details.get(OF_TRACES).is_some() && details.to_string().len() > MOST_DETAILS;
    if let (true, Value::Object(members)) = (is_long, &mut details) {
        let traces = members
            .shift_remove(OF_TRACES)
            .and_then(|traces| traces.as_object().map(Map::len));
        members.insert(format!("{OF_TRACES}_left_out"), json!(traces));
    }
    details
}

fn is_empty(details: &Value) -> bool {
    match details {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// The hash of texts, of which none runs into the next.
pub(super) fn hash_of<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        match part {
            Some(part) => {
                hasher.update(&[1]);
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
            None => {
                hasher.update(&[0]);
            }
        }
    }
    let mut short = [0; 16];
    hasher.finalize_xof().fill(&mut short);
    short
}

/// A hash in the form of a UUID of version 8, which is for hashes of one's own.
pub(super) fn uuid_of(mut hash: [u8; 16]) -> String {
    hash[6] = (hash[6] & 0x0f) | 0x80;
    hash[8] = (hash[8] & 0x3f) | 0x80;
    let hex = hex_of(&hash);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

pub(super) fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The 32 hexadecimal digits of an id that is a UUID or a trace id of OpenTelemetry, in small letters; none if it is neither.
pub(super) fn hex_id(id: &str) -> Option<String> {
    let parts: Vec<&str> = id.trim().split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let digits = parts.concat().to_ascii_lowercase();
    let formed = lengths == [32] || lengths == [8, 4, 4, 4, 12];
    let is_id = formed
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && digits.bytes().any(|byte| byte != b'0');
    is_id.then_some(digits)
}

#[cfg(test)]
pub(super) fn example() -> Score {
    Score {
        id: "0a0b0c0d-0000-8000-8000-000000000001".into(),
        digest: "d1".into(),
        level: Level::Trace,
        target_id: "80f198ee56343ba864fe8b2a57d3eff7".into(),
        session_id: Some("s-1".into()),
        project_id: None,
        metric: "coherence".into(),
        scored: Scored::Number(0.75),
        threshold: Some(0.5),
        passed: Some(true),
        reason: "It answers.".into(),
        details: json!({}),
        evaluated_traces: None,
        environment: Some("prod".into()),
        annotator: Annotator::Code,
        model: Some("all-MiniLM-L6-v2".into()),
        precision: Some("int8".into()),
        text_mode: Some("compat".into()),
    }
}

/// The same of a session, by a judge.
#[cfg(test)]
pub(super) fn judged_example() -> Score {
    Score {
        level: Level::Session,
        target_id: "s-1".into(),
        metric: "conversation".into(),
        annotator: Annotator::Llm,
        model: Some("openai/gpt-4o".into()),
        precision: None,
        text_mode: None,
        passed: Some(false),
        scored: Scored::Number(0.25),
        evaluated_traces: Some(3),
        details: json!({"turns": 3}),
        ..example()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_and_parts_do_not_run_together() {
        let id = uuid_of(hash_of([Some("ab"), Some("c")]));
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
        assert_eq!(&id[14..15], "8");
        assert_eq!(id, uuid_of(hash_of([Some("ab"), Some("c")])));
        for other in [
            vec![Some("a"), Some("bc")],
            vec![Some("abc")],
            vec![Some("ab"), Some("c"), None],
        ] {
            assert_ne!(id, uuid_of(hash_of(other)));
        }
    }

    #[test]
    fn ids_of_other_systems_are_told_by_their_form() {
        let hex = "80f198ee56343ba864fe8b2a57d3eff7";
        for id in [
            hex,
            "80F198EE56343BA864FE8B2A57D3EFF7",
            "80f198ee-5634-3ba8-64fe-8b2a57d3eff7",
        ] {
            assert_eq!(hex_id(id).as_deref(), Some(hex), "{id}");
        }
        let zeros = "0".repeat(32);
        for id in [
            "t-1",
            "",
            &zeros,
            &hex[1..],
            "80f198ee-56343ba864fe8b2a57d3eff7",
            "zzf198ee56343ba864fe8b2a57d3eff7",
        ] {
            assert_eq!(hex_id(id), None, "{id}");
        }
    }

    #[test]
    fn details_of_large_sessions_are_cut() {
        let traces = |count: usize| -> Map<String, Value> {
            let traces = (0..count).map(|at| (format!("trace-{at:04}"), json!({"step_risk": 0.5})));
            traces.collect()
        };
        let with = |count| Score {
            details: json!({"raw_risk": 0.5, "per_trace_signals": traces(count)}),
            ..judged_example()
        };
        assert_eq!(with(3).metadata()["details"], with(3).details);
        assert_eq!(
            with(1000).metadata()["details"],
            json!({"raw_risk": 0.5, "per_trace_signals_left_out": 1000})
        );
    }

    #[test]
    fn metadata_says_who_judged() {
        let judged = judged_example().metadata();
        assert_eq!(judged["judge_model"], "openai/gpt-4o");
        assert_eq!(judged["annotator_kind"], "LLM");
        assert_eq!(judged["details"], json!({"turns": 3}));
        let computed = example().metadata();
        assert_eq!(computed["embedding_model"], "all-MiniLM-L6-v2");
        assert!(!computed.contains_key("judge_model") && !computed.contains_key("details"));
    }
}
