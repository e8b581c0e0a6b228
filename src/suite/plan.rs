//! What judging a suite would cost, before anything is sent.

use serde::Serialize;

use crate::judge::Usage;
use crate::run::{JudgeRequest, price_of};

/// Tokens that a reply is reckoned with: some sentences.
pub(super) const USUAL_REPLY_TOKENS: u64 = 200;

/// What a metric would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedQuestions {
    /// The metric, or `total`.
    pub metric: String,
    /// The model; empty for the total.
    pub model: String,
    /// Questions: turn by turn and sample by sample.
    pub questions: u64,
    /// Questions that the ledger answers already.
    pub known: u64,
    /// Tokens of the questions that would be sent, estimated.
    pub prompt_tokens: u64,
    /// Tokens of their replies, estimated.
    pub reply_tokens: u64,
    /// Dollars for them; none where the model has no price.
    pub cost: Option<f64>,
}

impl PlannedQuestions {
    /// Counts a question of so many tokens.
    pub(super) fn add(&mut self, known: bool, prompt_tokens: u64) {
        self.questions += 1;
        match known {
            true => self.known += 1,
            false => {
                self.prompt_tokens += prompt_tokens;
                self.reply_tokens += USUAL_REPLY_TOKENS;
            }
        }
    }
}

/// What a suite would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SuitePlan {
    /// Its name.
    pub name: String,
    /// Cases, over all passes.
    pub cases: u64,
    /// By metric that asks a judge, in the order of the suite.
    pub metrics: Vec<PlannedQuestions>,
    /// All together.
    pub total: PlannedQuestions,
    /// The day of the prices.
    pub prices_as_of: String,
    /// What a reader must know, one line each.
    pub notes: Vec<String>,
}

impl SuitePlan {
    /// A plan of these metrics, with what they cost.
    pub(super) fn of(
        name: &str,
        cases: u64,
        judge: &JudgeRequest,
        mut metrics: Vec<PlannedQuestions>,
        notes: Vec<String>,
    ) -> Self {
        for metric in &mut metrics {
            let usage = Usage {
                prompt: metric.prompt_tokens,
                completion: metric.reply_tokens,
                ..Usage::default()
            };
            metric.cost = price_of(judge, &metric.model).map(|price| price.of(usage));
        }
        let sum = |count: fn(&PlannedQuestions) -> u64| metrics.iter().map(count).sum();
        let total = PlannedQuestions {
            metric: "total".to_owned(),
            model: String::new(),
            questions: sum(|m| m.questions),
            known: sum(|m| m.known),
            prompt_tokens: sum(|m| m.prompt_tokens),
            reply_tokens: sum(|m| m.reply_tokens),
            cost: metrics.iter().map(|m| m.cost).sum(),
        };
        Self {
            name: name.to_owned(),
            cases,
            metrics,
            total,
            prices_as_of: judge.prices.as_of.clone(),
            notes,
        }
    }

    /// The plan as a table for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {}; nothing was sent\n",
            self.name,
            crate::report::counted(self.cases, "case", "cases")
        );
        if self.metrics.is_empty() {
            text.push_str("No metric asks a judge: running it costs nothing.\n");
        } else {
            text.push_str(&format!(
                "\n{:<28} {:<22} {:>9} {:>9} {:>13} {:>12} {:>11}\n",
                "metric", "model", "questions", "known", "prompt tokens", "reply tokens", "dollars"
            ));
        }
        for metric in self
            .metrics
            .iter()
            .chain((!self.metrics.is_empty()).then_some(&self.total))
        {
            let cost = metric.cost;
            text.push_str(&format!(
                "{:<28} {:<22} {:>9} {:>9} {:>13} {:>12} {:>11}\n",
                metric.metric,
                metric.model,
                metric.questions,
                metric.known,
                metric.prompt_tokens,
                metric.reply_tokens,
                cost.map_or_else(|| "no price".to_owned(), |cost| format!("{cost:.4}")),
            ));
        }
        if !self.metrics.is_empty() {
            text.push_str(&format!(
                "\nTokens and dollars are of questions that are not known, estimated: a token for four bytes, {USUAL_REPLY_TOKENS} for \
                 a reply. Prices as of {}.\n",
                self.prices_as_of
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {}\n", crate::report::plain(note)));
        }
        text
    }
}
