//! The table `judge_plan`: what a judge would be asked about each conversation (as in Connexity).

use std::path::{Path, PathBuf};

use crate::output::columns::{
    Column, batch_of, booleans, integers, numbers, optional_texts, schema_of, texts,
};
use crate::output::table_folder::PLAN;
use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError, manifest, table_folder};
use crate::run::plan::PlanSummary;
use crate::run::plan::turns::PlannedConversation;
use crate::run::turns::TurnsRequest;

/// Rows that are written together.
const ROWS_AT_ONCE: usize = 8192;

/// Writes a plan, conversation by conversation.
pub(super) struct PlanTable {
    folder: RunDirectory,
    table: TableWriter,
    waiting: Vec<PlannedConversation>,
    inputs: Vec<PathBuf>,
}

impl PlanTable {
    /// Starts the folder `out`.
    ///
    /// # Errors
    /// If it is there and may not be replaced.
    pub fn create(
        out: &Path,
        request: &TurnsRequest,
        inputs: Vec<PathBuf>,
    ) -> Result<Self, RunError> {
        let folder = table_folder::create(out, PLAN, request.overwrite, &inputs)?;
        let table = TableWriter::create(folder.path(), PLAN, schema_of(&columns(&[])))?;
        Ok(Self {
            folder,
            table,
            waiting: Vec::new(),
            inputs,
        })
    }

    pub fn push(&mut self, conversation: PlannedConversation) -> Result<(), RunError> {
        self.waiting.push(conversation);
        match self.waiting.len() < ROWS_AT_ONCE {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> Result<(), RunError> {
        self.table.write(&batch_of(columns(&self.waiting))?)?;
        self.waiting.clear();
        Ok(())
    }

    /// Puts the folder in its place: the table, `summary.json` with all sums, and a manifest.
    pub fn finish(mut self, plan: &PlanSummary) -> Result<PathBuf, RunError> {
        self.write()?;
        self.table.finish()?;
        manifest::write_json(&self.folder.path().join("summary.json"), plan)?;
        let inputs: Vec<&PathBuf> = self.inputs.iter().collect();
        manifest::write_of_inputs(&self.folder, "conversations --dry-run", &inputs)?;
        self.folder.commit()
    }
}

fn columns(rows: &[PlannedConversation]) -> Vec<Column> {
    let sessions = rows.iter().map(|row| row.key.session_id.as_str());
    let calls = || rows.iter().map(|row| row.call.as_ref());
    let whole = |tokens: u64| i64::try_from(tokens).ok();
    vec![
        texts("session_id", sessions),
        texts("test_case", rows.iter().map(|row| row.test_case.as_str())),
        integers(
            "repetition_index",
            rows.iter().map(|row| Some(row.repetition_index.into())),
        ),
        optional_texts("not_asked", rows.iter().map(|row| row.not_asked.as_deref())),
        optional_texts("request_hash", calls().map(|c| Some(c?.hash.as_str()))),
        booleans("known", calls().map(|c| Some(c?.known))),
        integers("prompt_tokens", calls().map(|c| whole(c?.usage.prompt))),
        integers("reply_tokens", calls().map(|c| whole(c?.usage.completion))),
        numbers("cost_usd", calls().map(|c| c?.cost)),
    ]
}
