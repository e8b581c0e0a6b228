//! A pass over a set: its cases are computed all in parallel, judges are asked, results are made in the order of the set.
//!
//! Metrics that are computed come first; then judges are asked, as one list of questions over all passes. What is
//! written is what evaluating case by case would write. Hooks see each case before it is scored and after it.

use futures::StreamExt;
use rayon::prelude::*;

use super::evaluation::{CaseJudged, CaseWork, Judging, ScoredMetric, compute, judge, result};
use super::evaluator::Registry;
use super::hooks::{EvaluateRequest, HookContext, HookError, HookRegistry, InferenceRequest};
use super::inference::{Chosen, Clock, Inferred, Phase};
use super::model::EvalCase;
use super::result::CaseResult;
use crate::output::RunError;

/// Cases that are judged at once wait for each other's order; so many times the calls that may be under way.
const CASES_PER_CALL: usize = 4;

/// The set that is evaluated, and who takes part.
#[derive(Clone, Copy)]
pub(crate) struct Evaluated<'e> {
    pub app: &'e str,
    pub set: &'e str,
    pub cases: &'e [EvalCase],
    pub metrics: &'e [ScoredMetric],
    pub registry: &'e Registry,
    pub hooks: &'e HookRegistry,
}

impl Evaluated<'_> {
    /// What is done in one pass over the cases that are named; all where none is.
    ///
    /// # Errors
    /// See [`Phase::infer`].
    pub fn infer(
        &self,
        phase: &Phase<'_>,
        run: u32,
        case_ids: &[String],
    ) -> Result<Inferred, RunError> {
        let request = InferenceRequest {
            app_name: self.app.to_owned(),
            eval_set_id: self.set.to_owned(),
            run,
            case_ids: case_ids.to_vec(),
        };
        phase.infer(request, self.cases)
    }
}

/// A case that is under way.
struct CaseOfPass<'c> {
    started: Clock,
    context: HookContext,
    work: CaseWork<'c>,
}

/// A pass whose computed metrics are done.
pub(crate) struct Pass<'c> {
    of: Evaluated<'c>,
    request: EvaluateRequest,
    metrics: Vec<ScoredMetric>,
    context: HookContext,
    started: Clock,
    works: Vec<CaseOfPass<'c>>,
}

fn stopped(error: HookError) -> RunError {
    RunError::Request(error.to_string())
}

impl<'c> Pass<'c> {
    /// Computes what no judge is needed for. `run` counts from 1.
    ///
    /// # Errors
    /// [`RunError::Request`] if a hook fails.
    pub fn begin(of: Evaluated<'c>, run: u32, inferred: &'c Inferred) -> Result<Self, RunError> {
        let ids = inferred.inferences.iter();
        let ids = ids.filter_map(|inference| Some(of.cases.get(inference.case)?.id.clone()));
        let mut request = EvaluateRequest {
            app_name: of.app.to_owned(),
            eval_set_id: of.set.to_owned(),
            run,
            case_ids: ids.collect(),
            metrics: of
                .metrics
                .iter()
                .map(|scored| scored.metric.clone())
                .collect(),
        };
        let started = Clock::start();
        let context = of
            .hooks
            .before_evaluate_set(inferred.context.clone(), &mut request)
            .map_err(stopped)?;
        let metrics = match of.hooks.is_empty() {
            true => of.metrics.to_vec(),
            false => ScoredMetric::of(request.metrics.clone(), of.registry).0,
        };
        let mut pass = Self {
            of,
            request,
            metrics,
            context,
            started,
            works: Vec::new(),
        };
        let named = Chosen::of(&pass.request.case_ids);
        let computed: Result<Vec<_>, HookError> = inferred
            .inferences
            .par_iter()
            .filter_map(|inference| {
                let case = of.cases.get(inference.case)?;
                named.has(&case.id).then_some((case, inference))
            })
            .map(|(case, inference)| {
                let started = Clock::start();
                let context = pass.context.and(&inference.context);
                let before = of
                    .hooks
                    .before_evaluate_case(context, &pass.request, &case.id);
                before.map(|context| CaseOfPass {
                    started,
                    context,
                    work: compute(case, inference, &pass.metrics),
                })
            })
            .collect();
        match computed {
            Ok(works) => {
                pass.works = works;
                Ok(pass)
            }
            Err(error) => Err(pass.break_off(stopped(error))),
        }
    }

    /// Tells hooks that the pass has no results, and why. Returns the reason.
    pub fn break_off(self, error: RunError) -> RunError {
        let why = error.to_string();
        let ended = self.started.ended::<[CaseResult]>(None, Some(&why));
        // The first error is what a reader must know.
        let _ = self
            .of
            .hooks
            .after_evaluate_set(self.context, &self.request, &ended);
        error
    }

    /// The results, in the order of the set.
    ///
    /// # Errors
    /// [`RunError::Request`] if a hook fails.
    pub fn end(mut self, judged: Vec<CaseJudged>) -> Result<Vec<CaseResult>, RunError> {
        let works = std::mem::take(&mut self.works);
        let mut results = Vec::with_capacity(works.len());
        for (of, judged) in works.into_iter().zip(judged) {
            let (case, inference) = (of.work.case, of.work.inference);
            let found = result(self.of.set, of.work, judged, &self.metrics);
            if !self.of.hooks.is_empty() {
                let inferred = inference.result((self.of.app, self.of.set), case);
                let after = self.of.hooks.after_evaluate_case(
                    of.context,
                    &self.request,
                    &inferred,
                    &of.started.ended(Some(&found), None),
                );
                if let Err(error) = after {
                    return Err(self.break_off(stopped(error)));
                }
            }
            results.push(found);
        }
        let ended = self.started.ended(Some(results.as_slice()), None);
        let context = self.context.clone();
        let after = self
            .of
            .hooks
            .after_evaluate_set(context, &self.request, &ended);
        after.map_err(stopped)?;
        Ok(results)
    }
}

/// Asks judges about all cases of all passes, as one list. `done` hears of each case that is finished.
///
/// # Errors
/// [`RunError`] if the run must stop: the ledger can't be used.
pub(crate) async fn judge_all(
    passes: &[Pass<'_>],
    judging: &Judging<'_>,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<CaseJudged>>, RunError> {
    let at_once = match judging {
        Judging::Asked(_, calls) => calls.saturating_mul(CASES_PER_CALL).max(1),
        Judging::Off => 1,
    };
    let works = passes.iter().enumerate().flat_map(|(place, pass)| {
        let works = pass.works.iter();
        works.map(move |of| (place, pass, &of.work))
    });
    let ask = async |(place, pass, work): (usize, &Pass<'_>, &CaseWork<'_>)| {
        let judged = judge(work, &pass.metrics, judging).await?;
        done();
        Ok::<_, RunError>((place, judged))
    };
    let mut finished = futures::stream::iter(works).map(ask).buffered(at_once);
    let mut judged: Vec<Vec<CaseJudged>> = passes.iter().map(|_| Vec::new()).collect();
    while let Some(found) = finished.next().await {
        let (place, found) = found?;
        if let Some(pass) = judged.get_mut(place) {
            pass.push(found);
        }
    }
    Ok(judged)
}
