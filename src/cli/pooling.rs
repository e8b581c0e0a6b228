//! Which scores may stand in one figure: those of one model.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::AnyError;
use crate::history::figures::ScoreRecord;

/// The flag of figures that pool scores.
#[derive(Args, Debug)]
pub(super) struct Pooling {
    /// A row for each model (and precision) that made scores; else scores of several models are refused
    #[arg(long)]
    pub per_model: bool,
    /// Each trace and session once, in its latest state, at the time of its last trace; --from and --to are such times then.
    /// Else each score counts, at the time of its run (of runs that continue others, each latest score)
    #[arg(long)]
    pub once: bool,
}

/// A row, and the model that its figures are of, where they are by model.
#[derive(Serialize)]
pub(super) struct OfModel<T: Serialize> {
    #[serde(flatten)]
    pub row: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

/// Scores that may be pooled, and their model if it matters.
pub(super) type Pool = (Option<Arc<str>>, Vec<ScoreRecord>);

impl Pooling {
    /// Scores of one metric in pools that make figures.
    ///
    /// # Errors
    /// If several models made them and no figures by model are asked for. Scores of people go with any model.
    pub fn pools(&self, metric: &str, scores: Vec<ScoreRecord>) -> Result<Vec<Pool>, AnyError> {
        if self.per_model {
            let mut pools: BTreeMap<Option<Arc<str>>, Vec<ScoreRecord>> = BTreeMap::new();
            for score in scores {
                pools.entry(score.model.clone()).or_default().push(score);
            }
            return Ok(pools.into_iter().collect());
        }
        refuse_several(
            metric,
            &scores,
            "give --per-model for figures of each, or name runs of one model",
        )?;
        Ok(vec![(None, scores)])
    }
}

/// Refuses scores of one metric that several models made.
pub(super) fn refuse_several(
    metric: &str,
    scores: &[ScoreRecord],
    advice: &str,
) -> Result<(), AnyError> {
    let mut runs: BTreeMap<&str, &str> = BTreeMap::new();
    for score in scores {
        if let Some(model) = &score.model {
            runs.entry(model).or_insert(&score.run);
        }
    }
    if runs.len() < 2 {
        return Ok(());
    }
    let models: Vec<String> = runs
        .iter()
        .map(|(model, run)| format!("{model} (as in `{run}`)"))
        .collect();
    Err(format!(
        "the scores of {metric} are of {} models, whose numbers can't be compared: {}; {advice}",
        models.len(),
        models.join(", ")
    )
    .into())
}
