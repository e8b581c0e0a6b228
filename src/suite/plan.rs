//! What judging a suite would cost, before anything is sent.

use serde::Serialize;

use crate::judge::Usage;
use crate::report::{counted, plain};
use crate::run::{JudgeRequest, USUAL_REPLY_TOKENS, price_of};

/// What a metric would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedQuestions {
    /// The metric, or `total`.
    pub metric: String,
    /// The model; empty for the total.
    pub model: String,
    /// Questions, of evaluation sets turn by turn and sample by sample.
    pub questions: u64,
    /// Questions that the ledger answers already.
    pub known: u64,
    /// Tokens of the questions that would be sent, estimated.
    pub prompt_tokens: u64,
    /// Tokens of their replies, estimated.
    pub reply_tokens: u64,
    /// Dollars for them; none where the model has no price.
    pub cost: Option<f64>,
    /// The same at most: a token for each byte of a question, replies of the largest size. Repetitions of failed calls
    /// and a fallback judge are not in it.
    pub most_cost: Option<f64>,
    /// What they can use at most.
    #[serde(skip)]
    pub(super) most: Usage,
}

impl PlannedQuestions {
    /// Counts a question that the ledger answers.
    pub(super) fn add_known(&mut self) {
        self.questions += 1;
        self.known += 1;
    }

    /// Counts a question of so many tokens, and what it and its reply can use at most.
    pub(super) fn add(&mut self, prompt_tokens: u64, most: Usage) {
        self.questions += 1;
        self.prompt_tokens += prompt_tokens;
        self.reply_tokens += USUAL_REPLY_TOKENS;
        self.most.prompt += most.prompt;
        self.most.completion += most.completion;
    }
}

/// What a suite would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SuitePlan {
    /// Suites.
    pub suites: u64,
    /// Cases of all suites, over all passes.
    pub cases: u64,
    /// By metric that asks a judge, in the order of the suite.
    pub metrics: Vec<PlannedQuestions>,
    /// All together.
    pub total: PlannedQuestions,
    /// The day of the prices; none where nobody is asked.
    pub prices_as_of: Option<String>,
    /// What a reader must know, one line each.
    pub notes: Vec<String>,
}

impl SuitePlan {
    /// A plan of these metrics, with what they cost; nobody is asked without a judge.
    pub(super) fn of(
        (suites, cases): (u64, u64),
        judge: Option<&JudgeRequest>,
        mut metrics: Vec<PlannedQuestions>,
        notes: Vec<String>,
    ) -> Self {
        for metric in &mut metrics {
            let usage = Usage {
                prompt: metric.prompt_tokens,
                completion: metric.reply_tokens,
                ..Usage::default()
            };
            let price = judge.and_then(|judge| price_of(judge, &metric.model));
            // What is known costs nothing, whatever the price is.
            let free = (metric.questions == metric.known).then_some(0.0);
            metric.cost = free.or(price.as_ref().map(|price| price.of(usage)));
            metric.most_cost = free.or(price.as_ref().map(|price| price.of(metric.most)));
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
            most_cost: metrics.iter().map(|m| m.most_cost).sum(),
            most: Usage::default(),
        };
        Self {
            suites,
            cases,
            metrics,
            total,
            prices_as_of: judge.map(|judge| judge.prices.as_of.clone()),
            notes,
        }
    }

    /// The plan as a table for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} with {}; nothing was sent or written\n",
            counted(self.suites, "suite", "suites"),
            counted(self.cases, "case", "cases")
        );
        if self.metrics.is_empty() {
            text.push_str("no judge would be asked: the run costs nothing\n");
        } else {
            text.push_str(&format!(
                "\n{:<28} {:<22} {:>9} {:>9} {:>13} {:>12} {:>9} {:>9}\n",
                "metric",
                "model",
                "questions",
                "known",
                "prompt tokens",
                "reply tokens",
                "dollars",
                "at most"
            ));
        }
        for metric in self
            .metrics
            .iter()
            .chain((!self.metrics.is_empty()).then_some(&self.total))
        {
            let dollars = |cost: Option<f64>| {
                cost.map_or_else(|| "no price".to_owned(), |cost| format!("{cost:.4}"))
            };
            text.push_str(&format!(
                "{:<28} {:<22} {:>9} {:>9} {:>13} {:>12} {:>9} {:>9}\n",
                plain(&metric.metric),
                plain(&metric.model),
                metric.questions,
                metric.known,
                metric.prompt_tokens,
                metric.reply_tokens,
                dollars(metric.cost),
                dollars(metric.most_cost),
            ));
        }
        if !self.metrics.is_empty() {
            text.push_str(&format!(
                "\nTokens and dollars are of the questions that the ledger does not know: estimated (a token for four bytes, \
                 {USUAL_REPLY_TOKENS} for a reply), and at most (a token for a byte, replies of the largest size). Prices as of {}.\n",
                self.prices_as_of.as_deref().unwrap_or("never")
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {}\n", plain(note)));
        }
        text
    }
}
