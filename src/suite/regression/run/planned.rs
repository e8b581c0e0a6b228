//! What a run would ask judges, and what that would cost; nothing is sent or written.

use super::compute::{Computed, compute};
use super::input::RunInput;
use super::judged::{CaseQuestion, JudgeRoute, Panel};
use super::rules::CaseRules;
use super::{Judging, RegressionRequest, panel};
use crate::judge::Usage;
use crate::judge::answers::Answers;
use crate::output::RunError;
use crate::run::JudgeRequest;
use crate::suite::plan::{PlannedQuestions, SuitePlan};
use crate::suite::regression::suite_metric::SuiteMetric;

/// Counts what a run would ask judges.
///
/// # Errors
/// [`RunError`] as for a run; no key is needed.
pub fn plan_questions(request: &RegressionRequest) -> Result<SuitePlan, RunError> {
    let mut input = RunInput::read(&request.path, &request.choice)?;
    input.follow(request.compat);
    let config = input.config.clone();
    let rules = CaseRules::of(&config);
    let mut notes = std::mem::take(&mut input.notes);
    let panel = panel(request, &input, &rules, &mut notes)?;
    let mut metrics = Vec::new();
    if let (Some(panel), Judging::Asked(judge)) = (&panel, &request.judging) {
        metrics = plan_of(judge, panel, &rules, &input)?;
        if panel.has_fallback() {
            notes.push(
                "the fallback judge is asked where the first one fails; that is not counted here"
                    .to_owned(),
            );
        }
    }
    let cases = input.sets.iter().map(|of| of.set.cases.len() as u64);
    let counts = (input.sets.len() as u64, cases.sum());
    let asked = match &request.judging {
        Judging::Asked(judge) if panel.is_some() => Some(&**judge),
        _ => None,
    };
    Ok(SuitePlan::of(counts, asked, metrics, notes))
}

/// The questions of a metric as they are counted.
struct Counting<'p> {
    metric: SuiteMetric,
    route: &'p JudgeRoute,
    answers: Answers<'p>,
    planned: PlannedQuestions,
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
    Ok(counting.into_iter().map(|of| of.planned).collect())
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
            true => self.planned.add_known(),
            false => {
                let most = Usage {
                    prompt: call.most_prompt_tokens(),
                    completion: u64::from(call.max_output_tokens),
                    ..Usage::default()
                };
                self.planned.add(call.usual_prompt_tokens(), most);
            }
        }
        Ok(())
    }
}
