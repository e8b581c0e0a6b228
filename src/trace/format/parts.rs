//! What a reader of a format hands on: facts about traces and spans, in any order. The assembler makes traces of them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An input, an output or an expected text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    /// As exported: JSON text if `json`, else plain text.
    pub raw: String,
    /// Whether `raw` is one JSON document.
    pub json: bool,
    /// What was said, without envelope; none where that is `raw`, or where nobody said anything.
    pub said: Option<String>,
}

impl Payload {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        let raw = text.into();
        Self {
            raw,
            json: false,
            said: None,
        }
    }

    /// A JSON value, of which this was said.
    pub fn document(value: &Value, said: Option<String>) -> Self {
        Self {
            raw: value.to_string(),
            json: true,
            said,
        }
    }
}

/// A call of a tool that a message tells of, for traces whose tools have no spans of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// What the result refers to.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Option<Payload>,
    /// What it gave back.
    pub result: Option<Payload>,
    /// What went wrong.
    pub error: Option<String>,
}

/// What is known of a trace beside its spans. Facts of one trace may come in several pieces: the first value wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceFacts {
    /// The trace's id, as exported.
    pub trace_id: String,
    /// The conversation.
    pub session_id: Option<String>,
    /// The project; a session is (project, session).
    pub project_id: Option<String>,
    /// What the trace is called.
    pub name: Option<String>,
    /// Nanoseconds since 1970.
    pub started_at: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at: Option<i64>,
    /// `OK` or `ERROR`, or the exporter's own word.
    pub status: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// Deployment environment.
    pub environment: Option<String>,
    /// Release or version of the agent.
    pub release: Option<String>,
    /// The user.
    pub user_id: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Tokens of the whole trace; where none, the spans' are added up.
    pub prompt_tokens: Option<u64>,
    /// The same.
    pub completion_tokens: Option<u64>,
    /// US dollars of the whole trace; where none, the spans' are added up.
    pub cost_usd: Option<f64>,
    /// Costs of the trace or its span that are beyond all numbers, and so are not read.
    pub odd_costs: u32,
    /// What the user asked; where none, it comes from the root span, else from the first model call's last user message.
    pub input: Option<Payload>,
    /// What the agent answered in the end; found in the same way.
    pub output: Option<Payload>,
    /// The reference answer.
    pub expected: Option<Payload>,
    /// Labels.
    pub tags: Vec<String>,
    /// Everything else worth keeping.
    pub metadata: Map<String, Value>,
}

/// The kind of a span, in upper case as tracing systems write it.
pub mod kind {
    #![allow(missing_docs)]
    pub const AGENT: &str = "AGENT";
    pub const LLM: &str = "LLM";
    pub const TOOL: &str = "TOOL";
    pub const RETRIEVER: &str = "RETRIEVER";
    pub const EMBEDDING: &str = "EMBEDDING";
    pub const RERANKER: &str = "RERANKER";
    pub const GUARDRAIL: &str = "GUARDRAIL";
    pub const EVALUATOR: &str = "EVALUATOR";
    pub const CHAIN: &str = "CHAIN";
    pub const OTHER: &str = "OTHER";
}

/// One span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpanFacts {
    /// The trace that it belongs to, and what it tells of it (session, user, tags, …).
    pub of: TraceFacts,
    /// Its id; unique in the trace once assembled.
    pub span_id: String,
    /// Its parent; none for a root.
    pub parent_span_id: Option<String>,
    /// One of [`kind`].
    pub kind: String,
    /// What it is called; for tools, the tool.
    pub name: String,
    /// For tools, the arguments.
    pub input: Option<Payload>,
    /// For tools, the result.
    pub output: Option<Payload>,
    /// Nanoseconds since 1970.
    pub started_at: Option<i64>,
    /// Nanoseconds since 1970.
    pub ended_at: Option<i64>,
    /// `OK`, `ERROR` or none.
    pub status: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// Tokens in.
    pub prompt_tokens: Option<u64>,
    /// Tokens out.
    pub completion_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Why a model stopped: `stop`, `length`, `tool_calls`, …, as exported.
    pub finish_reason: Option<String>,
    /// Of a tool's span: the call that messages tell of, where the exporter says which.
    pub call_id: Option<String>,
    /// Counts of tokens that are no whole numbers, and so are not read.
    pub odd_counts: u32,
    /// Calls of tools that the model asked for in this span's output, and results that its input tells of: become tool
    /// spans only where the trace has no tool span for them.
    pub calls: Vec<Call>,
}

/// Where a reader puts what it finds.
#[derive(Debug, Default)]
pub struct Parts {
    /// Facts of whole traces.
    pub traces: Vec<TraceFacts>,
    /// Spans.
    pub spans: Vec<SpanFacts>,
    /// Members that were passed over, for the counts that are printed.
    pub unknown: Vec<String>,
    /// What is wrong with single spans of a document, whose other spans are read.
    pub refused: Vec<String>,
}

impl Parts {
    /// Facts of a trace.
    pub fn trace(&mut self, facts: TraceFacts) {
        self.traces.push(facts);
    }

    /// A span, or what is wrong with it.
    pub(super) fn span_or_problem(&mut self, span: Result<SpanFacts, String>) {
        match span {
            Ok(span) => self.spans.push(span),
            Err(problem) => self.refused.push(problem),
        }
    }

    /// Leaves out costs that are no finite numbers, and counts them.
    pub(super) fn leave_out_odd_costs(&mut self) {
        let check = |cost: &mut Option<f64>, odd: &mut u32| {
            if cost.is_some_and(|cost| !cost.is_finite()) {
                *cost = None;
                *odd += 1;
            }
        };
        for facts in &mut self.traces {
            check(&mut facts.cost_usd, &mut facts.odd_costs);
        }
        for span in &mut self.spans {
            check(&mut span.cost_usd, &mut span.of.odd_costs);
        }
    }

    /// A span.
    pub fn span(&mut self, facts: SpanFacts) {
        self.spans.push(facts);
    }
}
