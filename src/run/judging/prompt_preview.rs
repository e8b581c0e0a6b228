//! What a judged metric asks, to look at: nothing is sent.

use std::ops::ControlFlow;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::conversation::transcript_of_traces::transcript;
use crate::conversation::{Catalogue, ConversationJudge, JudgeConfig, SchemaPlace};
use crate::metric::CONVERSATION;
use crate::metric::{JudgedMetric, SYSTEM_MESSAGE, Step, judged_metric};
use crate::output::RunError;
use crate::question::WhenTooLong;
use crate::run::judging::trace_evidence::trace_evidence;
use crate::trace::{ColumnMap, canonical_trace_id, discover, label, read_documents};

/// The question of one stage.
#[derive(Clone, Debug, Serialize)]
pub struct PreviewedPrompt {
    /// The stage's name within its metric.
    pub stage: String,
    /// The name of the prompt.
    pub prompt: String,
    /// Counts up when the text of the prompt changes.
    pub version: u32,
    /// The system message.
    pub system: String,
    /// The user message. Words in `(parentheses)` stand for what earlier replies, or a trace, would bring.
    pub user: String,
}

/// A trace that a preview shows.
#[derive(Clone, Debug)]
pub struct PreviewedTrace {
    /// The files it is in: files, folders, globs.
    pub path: String,
    /// Its id; none is the first one.
    pub trace_id: Option<String>,
    /// Column names.
    pub map: ColumnMap,
}

/// The prompts of a metric, stage by stage, filled in with a trace or with placeholders. Replies of earlier stages are
/// placeholders always.
///
/// # Errors
/// [`RunError`] if the metric asks no judge, or the trace is not there.
pub fn preview_prompts(
    metric: &str,
    config: JudgeConfig,
    catalogue: &Catalogue,
    trace: Option<&PreviewedTrace>,
) -> Result<Vec<PreviewedPrompt>, RunError> {
    let traces = trace.map(traces_of).transpose()?;
    if metric == CONVERSATION {
        return conversation(config, catalogue, traces.unwrap_or_default());
    }
    let Some(judged) = judged_metric(metric) else {
        return Err(RunError::Request(format!(
            "--prompt {metric}: this metric asks no judge, so it has no prompt"
        )));
    };
    let shown = traces.and_then(|traces| traces.into_iter().next());
    stages(judged, shown.unwrap_or_else(placeholder))
}

fn placeholder() -> Map<String, Value> {
    let placeholder = json!({
        "trace_id": "(the id)", "name": "(the name)", "input": "(the input)", "output": "(the output)",
        "spans": [{"span_id": "(the id)", "kind": "TOOL", "name": "(the tool)", "input": {}, "output": {}}],
    });
    placeholder.as_object().cloned().unwrap_or_default()
}

fn stages(
    metric: &JudgedMetric,
    members: Map<String, Value>,
) -> Result<Vec<PreviewedPrompt>, RunError> {
    let evidence = trace_evidence(members, usize::MAX, WhenTooLong::Fail)
        .map_err(|e| RunError::Request(e.to_string()))?;
    let (mut prompts, mut replies) = (Vec::new(), Vec::new());
    while prompts.len() < metric.prompts.len() {
        let step = metric.next(&evidence, 0.5, &replies);
        match step.map_err(|e| RunError::Plan(e.to_string()))? {
            Step::Done(_) => break,
            Step::Ask(stage) => {
                replies.push(stage.shape.placeholder());
                prompts.push(PreviewedPrompt {
                    stage: stage.name.to_owned(),
                    prompt: stage.prompt_name.to_owned(),
                    version: stage.prompt_version,
                    system: SYSTEM_MESSAGE.to_owned(),
                    user: stage.prompt,
                });
            }
        }
    }
    Ok(prompts)
}

fn conversation(
    config: JudgeConfig,
    catalogue: &Catalogue,
    traces: Vec<Map<String, Value>>,
) -> Result<Vec<PreviewedPrompt>, RunError> {
    let refused = |e: &dyn std::fmt::Display| RunError::Request(e.to_string());
    let judge = ConversationJudge::new(config, catalogue).map_err(|e| refused(&e))?;
    let traces = if traces.is_empty() {
        vec![placeholder()]
    } else {
        traces
    };
    let session = traces.first().and_then(|trace| label(trace, "session_id"));
    let (case, turns) = transcript(None, session.as_deref().unwrap_or("(the session)"), traces);
    let request = judge.request(&case, &turns, SchemaPlace::default());
    let request = request.map_err(|e| refused(&e))?;
    let [_, version] = crate::conversation::prompt_versions();
    Ok(vec![PreviewedPrompt {
        stage: CONVERSATION.to_owned(),
        prompt: "conversation_user".to_owned(),
        version,
        system: request.system,
        user: request.user,
    }])
}

/// The trace that is meant, and after it the others of its session in the same files. Rows of one id are not merged.
fn traces_of(shown: &PreviewedTrace) -> Result<Vec<Map<String, Value>>, RunError> {
    let files = discover(std::slice::from_ref(&shown.path), None)?;
    let wanted = shown.trace_id.as_deref().and_then(canonical_trace_id);
    let mut found: Option<Map<String, Value>> = None;
    read_documents(files.clone(), &shown.map, |document| {
        if wanted.as_ref().is_none_or(|id| *id == document.trace_id) {
            found = Some(document.members);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(found) = found else {
        let problem = match &shown.trace_id {
            Some(id) => format!("--trace-id {id}: `{}` has no such trace", shown.path),
            None => format!("--trace: `{}` has no trace", shown.path),
        };
        return Err(RunError::Request(problem));
    };
    let session = label(&found, "session_id");
    let id = found.get("trace_id").cloned();
    let mut traces = vec![found];
    if session.is_some() {
        read_documents(files, &shown.map, |document| {
            let same = label(&document.members, "session_id") == session;
            if same && document.members.get("trace_id") != id.as_ref() {
                traces.push(document.members);
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(traces)
}
