//! The plan of sessions: scored traces in session order, folded.

use std::sync::Arc;

use datafusion::catalog::{MemoryCatalogProviderList, TableProvider};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{DataFrame, SessionContext};

use crate::metric::SPAN_SIGNALS;

/// Columns of traces of which a session has the first that is there, and their names.
const LABELS: [(&str, &str); 6] = [
    ("name", "name"),
    ("environment", "environment"),
    ("release", "release"),
    ("model", "model"),
    ("tags", "tags"),
    (
        "coalesce(input_position, output_position)",
        "first_position",
    ),
];

fn first_of((column, name): (&str, &str)) -> String {
    format!(", first_value({column}) FILTER (WHERE {column} IS NOT NULL) AS {name}")
}

/// The second half: sessions from scored traces.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Compute `agent_reliability`.
    pub reliability: bool,
    /// Compute `agent_consistency`.
    pub consistency: bool,
    /// Signals that every trace should have; those that some lack are counted.
    pub expected: Vec<String>,
    /// Signals of spans, which the traces have columns for.
    pub span_signals: Vec<&'static str>,
    /// Tell each session's labels; the traces have columns of them, and places.
    pub labels: bool,
    /// Fold what was said and done into the signals of sessions.
    pub session_signals: bool,
}

impl SessionPlan {
    /// One row a session, in their order: `session_id`, `project_id`, `traces`, `missing_signals`, `first_started_at`,
    /// `last_started_at`, its labels (`name`, `environment`, `release`, `model`, `tags`: of its first trace that has one) and
    /// `first_position` (a text of its first trace that has any), `agent_reliability`, `agent_consistency` (structs or null), `session_facts` (bytes or null).
    ///
    /// `traces` has the columns of scored traces in session order.
    ///
    /// # Errors
    /// DataFusion's.
    pub async fn sessions(
        &self,
        context: &SessionContext,
        traces: Arc<dyn TableProvider>,
    ) -> Result<DataFrame> {
        // Rows arrive sorted by session in one stream: folding them where they come needs no shuffle, and
        // no buffers between one.
        let config = context.copied_config().with_target_partitions(1);
        // Its tables are its own: several may be planned at once.
        let state = SessionStateBuilder::new_from_existing(context.state())
            .with_config(config.with_create_default_catalog_and_schema(true))
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .build();
        let context = SessionContext::new_with_state(state);
        context.register_table("scored", traces)?;
        let of_spans: String = match self.span_signals.is_empty() {
            true => String::new(),
            false => SPAN_SIGNALS
                .iter()
                .map(|name| match self.span_signals.contains(name) {
                    true => format!(", {name}"),
                    false => ", CAST(NULL AS DOUBLE)".to_owned(),
                })
                .collect(),
        };
        let metric = |wanted: bool, name: &str| match wanted {
            true => {
                format!(
                    "{name}(confidence, loop_detection, tool_correctness, coherence, shown_id{of_spans})"
                )
            }
            false => "NULL".to_owned(),
        };
        let facts = match self.session_signals {
            true => {
                "session_facts(input_facts, output_facts, span_digest, input_again, output_again)"
            }
            false => "NULL",
        };
        let labels: String = match self.labels {
            true => LABELS.map(first_of).concat(),
            false => String::new(),
        };
        let missing: Vec<String> = self
            .expected
            .iter()
            .map(|signal| format!("count(*) - count({signal})"))
            .collect();
        let missing = match missing.is_empty() {
            true => "count(*) - count(*)".to_owned(),
            false => missing.join(" + "),
        };
        let sql = format!(
            "SELECT session_id, project_id, count(*) AS traces, {missing} AS missing_signals, min(started_at) AS first_started_at, \
               max(started_at) AS last_started_at{labels}, {} AS agent_reliability, {} AS agent_consistency, {facts} AS session_facts \
             FROM scored WHERE session_id IS NOT NULL GROUP BY session_id, project_id \
             ORDER BY session_id ASC NULLS LAST, project_id ASC NULLS LAST",
            metric(self.reliability, "agent_reliability"),
            metric(self.consistency, "agent_consistency"),
        );
        context.sql(&sql).await
    }
}
