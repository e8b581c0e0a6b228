//! The tables of judged conversations: `judge_verdicts`, `judge_metric_scores`, `judge_outcomes`, `run_summary`, and the
//! conversations' part of `scores` (as in Connexity).

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::conversation::judged::JudgedConversation;
use crate::conversation::tables::figure_columns::summary_columns;
use crate::conversation::tables::judged_columns::{Columns, RunFacts, TABLES};
use crate::conversation::{ConversationRequest, RunSummary, Verdict};
use crate::metric::{CONVERSATION, Rules};
use crate::output::columns::{batch_of, not_built, schema_of};
use crate::output::score_rows::{AUTOMATED, MadeBy, ScoreRow, ScoreRows, scores_schema};
use crate::output::table_writer::{TableWriter, part_path};
use crate::output::{RunDirectory, RunError};

/// Conversations that are written together.
const ROWS_AT_ONCE: usize = 512;

/// Writes judged conversations in the order given.
pub(crate) struct ConversationTables {
    tables: Vec<(TableWriter, Columns)>,
    /// Aside until the other scores are written; see [`ConversationScores`].
    scores: TableWriter,
    rules: Rules,
    facts: RunFacts,
    waiting: Vec<JudgedConversation>,
}

impl ConversationTables {
    pub fn create(
        run: &RunDirectory,
        rules: &Rules,
        request: &ConversationRequest,
    ) -> Result<Self, RunError> {
        let facts = RunFacts {
            route: request.model.clone(),
            pass_threshold: request.judge.config().pass_threshold,
        };
        let tables = TABLES.iter().map(|(name, columns)| {
            let schema = schema_of(&columns(&[], &facts));
            Ok((TableWriter::create(run.path(), name, schema)?, *columns))
        });
        Ok(Self {
            tables: tables.collect::<Result<_, RunError>>()?,
            scores: TableWriter::create(&run.work(), "conversation_scores", scores_schema())?,
            rules: rules.clone(),
            facts,
            waiting: Vec::new(),
        })
    }

    pub fn push(&mut self, conversation: JudgedConversation) -> Result<(), RunError> {
        self.waiting.push(conversation);
        match self.waiting.len() < ROWS_AT_ONCE {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> Result<(), RunError> {
        let waiting = std::mem::take(&mut self.waiting);
        for (table, columns) in &mut self.tables {
            table.write(&batch_of(columns(&waiting, &self.facts))?)?;
        }
        let mut scores = ScoreRows::new(None, &self.rules);
        for conversation in &waiting {
            push_score(&mut scores, conversation, &self.rules, &self.facts.route);
        }
        let scores = scores.finish().map_err(|e| not_built(&e))?;
        self.scores.write(&scores)
    }

    /// Closes the tables, and writes the figures of the run as a table of one row.
    pub fn finish(
        mut self,
        run: &RunDirectory,
        summary: &RunSummary,
    ) -> Result<ConversationScores, RunError> {
        self.write()?;
        for (table, _) in self.tables {
            table.finish()?;
        }
        write_summary(run, summary)?;
        let folder = self.scores.folder().to_owned();
        let last_part = self.scores.finish()?;
        Ok(ConversationScores { folder, last_part })
    }
}

/// Scores of conversations that wait for the other scores of the run.
#[derive(Debug)]
pub(crate) struct ConversationScores {
    folder: PathBuf,
    last_part: u64,
}

impl ConversationScores {
    /// Makes them the last parts of `scores`, which must be finished.
    pub fn append(&self, run: &RunDirectory) -> Result<(), RunError> {
        let target = run.path().join("scores");
        std::fs::create_dir_all(&target).map_err(|e| RunError::write(&target, e))?;
        let mut next = 0;
        while part_path(&target, next).exists() {
            next += 1;
        }
        for part in 0..=self.last_part {
            let path = part_path(&target, next + part);
            std::fs::rename(part_path(&self.folder, part), &path)
                .map_err(|e| RunError::write(&path, e))?;
        }
        Ok(())
    }
}

/// The session's row in `scores`. A verdict without scores has no score here: a failed judge is no low score.
fn push_score(rows: &mut ScoreRows, judged: &JudgedConversation, rules: &Rules, route: &str) {
    let score = judged.score();
    let session_id = judged.key.session_id.as_str();
    let verdict = judged.verdict.as_ref();
    let metadata = verdict.map_or_else(|| "{}".to_owned(), |v| metadata_of(v, judged.turns));
    rows.push(&ScoreRow {
        target_type: "session",
        target_id: session_id,
        session_id: Some(session_id),
        project_id: judged.key.project_id.as_deref(),
        metric: CONVERSATION,
        score_raw: score,
        status: judged.status.name(),
        threshold: score.map(|_| rules.threshold(CONVERSATION)),
        passed: verdict.filter(|_| score.is_some()).map(|v| v.passed),
        reason: &judged.reason,
        metadata: &metadata,
        evaluated_traces: judged.traces.map(|count| count as i64),
        environment: None,
        source: AUTOMATED,
        made_by: MadeBy::Judge(route),
    });
}

fn metadata_of(verdict: &Verdict, turns: usize) -> String {
    let signals: serde_json::Map<String, Value> = verdict
        .signals()
        .into_iter()
        .map(|(name, value)| (name, json!(value)))
        .collect();
    let metadata = json!({
        "judge_error": verdict.judge_error.map(|fault| fault.code()),
        "pass_threshold": verdict.pass_threshold,
        "turns": turns,
        "signals": signals,
    });
    metadata.to_string()
}

/// A table rather than JSON: runs are compared by joining their tables. `summary.json` has the same figures.
fn write_summary(run: &RunDirectory, summary: &RunSummary) -> Result<(), RunError> {
    let columns = summary_columns(summary);
    let mut table = TableWriter::create(run.path(), "run_summary", schema_of(&columns))?;
    table.write(&batch_of(columns)?)?;
    table.finish().map(|_| ())
}

#[cfg(test)]
mod tests;
