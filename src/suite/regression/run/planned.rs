//! What a run would ask judges, and what that would cost; nothing is sent or written.

use serde::Serialize;

use super::compute::{Computed, compute};
use super::input::RunInput;
use super::judged::{CaseQuestion, JudgeRoute, Panel};
use super::rules::CaseRules;
use super::{Judging, RegressionRequest, panel};
use crate::judge::Usage;
use crate::judge::answers::Answers;
use crate::output::RunError;
use crate::run::{JudgeRequest, USUAL_REPLY_TOKENS, price_of};
use crate::suite::regression::suite_metric::SuiteMetric;

/// What a metric would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedQuestions {
    /// The metric, or `total`.
    pub metric: String,
    /// The model; empty for the total.
    pub model: String,
    /// Questions.
    pub questions: u64,
    /// Those that the ledger has an answer to already.
    pub known: u64,
    /// Tokens of the questions that are not known, estimated: one for four bytes.
    pub prompt_tokens: u64,
    /// Tokens of their replies, estimated.
    pub reply_tokens: u64,
    /// Dollars for the questions that are not known, as they usually are; null where the model has no price.
    pub cost: Option<f64>,
    /// The same at most: a token for each byte of a question, replies of the largest size. Repetitions of failed calls
    /// and the fallback judge are not in it.
    pub most_cost: Option<f64>,
}

/// What a run would ask.
#[derive(Clone, Debug, Serialize)]
pub struct QuestionPlan {
    /// Suites.
    pub suites: u64,
    /// Cases of all suites.
    pub cases: u64,
    /// By metric.
    pub metrics: Vec<PlannedQuestions>,
    /// All together.
    pub total: PlannedQuestions,
    /// The day of the shipped prices.
    pub prices_as_of: Option<String>,
    /// What a reader must know, one line each.
    pub notes: Vec<String>,
}

/// Counts what a run would ask judges.
///
/// # Errors
/// [`RunError`] as for a run; no key is needed.
pub fn plan_questions(request: &RegressionRequest) -> Result<QuestionPlan, RunError> {
    let mut input = RunInput::read(&request.path, &request.choice)?;
    input.follow(request.compat);
    let config = input.config.clone();
    let rules = CaseRules::of(&config);
    let mut notes = std::mem::take(&mut input.notes);
    let panel = panel(request, &input, &rules, &mut notes)?;
    let mut metrics = Vec::new();
    let mut prices_as_of = None;
    if let (Some(panel), Judging::Asked(judge)) = (&panel, &request.judging) {
        prices_as_of = Some(judge.prices.as_of.clone());
        metrics = plan_of(judge, panel, &rules, &input)?;
        if panel.has_fallback() {
            notes.push(
                "the fallback judge is asked where the first one fails; that is not counted here"
                    .to_owned(),
            );
        }
    }
    let sum = |count: fn(&PlannedQuestions) -> u64| metrics.iter().map(count).sum();
    let total = PlannedQuestions {
        metric: "total".to_owned(),
        model: String::new(),
        questions: sum(|of| of.questions),
        known: sum(|of| of.known),
        prompt_tokens: sum(|of| of.prompt_tokens),
        reply_tokens: sum(|of| of.reply_tokens),
        cost: metrics.iter().map(|of| of.cost).sum(),
        most_cost: metrics.iter().map(|of| of.most_cost).sum(),
    };
    Ok(QuestionPlan {
        suites: input.sets.len() as u64,
        cases: input.sets.iter().map(|of| of.set.cases.len() as u64).sum(),
        metrics,
        total,
        prices_as_of,
        notes,
    })
}

/// The sums of a metric that are still to be priced.
struct Counting<'p> {
    metric: SuiteMetric,
    route: &'p JudgeRoute,
    answers: Answers<'p>,
    planned: PlannedQuestions,
    most: Usage,
    /// Equal questions are asked once.
    seen: std::collections::HashSet<String>,
}

fn plan_of(
    judge: &JudgeRequest,
    panel: &Panel,
    rules: &CaseRules<'_>,
    input: &RunInput,
) -> Result<Vec<PlannedQuestions>, RunError> {
    let mut counting = Vec::new();
    for metric in SuiteMetric::ALL {
        let Some(route) = panel.first(metric) else {
            continue;
        };
        let answers = Answers::of(&judge.ledger, &route.provider);
        counting.push(Counting {
            metric,
            route,
            answers: answers.map_err(|e| RunError::Request(e.to_string()))?,
            planned: PlannedQuestions {
                metric: metric.name().to_owned(),
                model: route.model.clone(),
                ..PlannedQuestions::default()
            },
            most: Usage::default(),
            seen: std::collections::HashSet::new(),
        });
    }
    for chosen in &input.sets {
        for work in compute(&chosen.set, rules) {
            for (metric, computed) in work.metrics {
                let Computed::Asks(unjudged) = computed else {
                    continue;
                };
                let threshold = unjudged.threshold();
                let question = CaseQuestion::of(metric, work.case, threshold, rules)?;
                let of_metric = counting.iter_mut().find(|of| of.metric == metric);
                if let (Some(question), Some(counting)) = (question, of_metric) {
                    counting.count(&question)?;
                }
            }
        }
    }
    let priced = counting.into_iter().map(|of| {
        let price = price_of(judge, &of.route.model);
        let usual = Usage {
            prompt: of.planned.prompt_tokens,
            completion: of.planned.reply_tokens,
            cached: 0,
        };
        // What is known costs nothing, whatever the price is.
        let is_free = of.planned.questions == of.planned.known;
        let dollars = |usage| match is_free {
            true => Some(0.0),
            false => price.map(|price| price.of(usage)),
        };
        PlannedQuestions {
            cost: dollars(usual),
            most_cost: dollars(of.most),
            ..of.planned
        }
    });
    Ok(priced.collect())
}

impl Counting<'_> {
    fn count(&mut self, question: &CaseQuestion<'_>) -> Result<(), RunError> {
        let call = question.call(self.route, 0, true);
        if !self
            .seen
            .insert(self.answers.hash(&call).as_str().to_owned())
        {
            return Ok(());
        }
        let planned = &mut self.planned;
        planned.questions += 1;
        let plain = question.call(self.route, 0, false);
        let mut known = false;
        for call in [&call, &plain] {
            match self.answers.answer(call) {
                Ok(_) => known = true,
                Err(crate::judge::Unanswered::Ledger(problem)) => {
                    return Err(RunError::Plan(problem));
                }
                Err(_) => {}
            }
        }
        match known {
            true => planned.known += 1,
            false => {
                planned.prompt_tokens += call.usual_prompt_tokens();
                planned.reply_tokens += USUAL_REPLY_TOKENS;
                self.most.prompt += call.most_prompt_tokens();
                self.most.completion += u64::from(call.max_output_tokens);
            }
        }
        Ok(())
    }
}
