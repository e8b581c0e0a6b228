//! From the turns of a case to the result of a judged metric: ask, vote, average.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::reply::{Read, Said};
use super::sample::{NoVerdict, Sample};
use super::{AskedTurn, JudgeRoute, JudgedEvaluator, Reading, RouteRules};
use crate::judge::asker::{Asker, Source};
use crate::judge::{CallCounts, JudgeService};
use crate::output::RunError;
use crate::run::{JudgeRequest, SharedJudges};
use crate::suite::evalset::aggregate::majority;
use crate::suite::evalset::evaluator::{
    EvaluateResult, EvaluationError, InvocationResult, averaged,
};
use crate::suite::evalset::model::{EvalMetric, Invocation, Rubric};
use crate::suite::evalset::result::{DetailValue, EvalStatus};

/// An address and a key.
type Endpoint = (Option<String>, Option<String>);

/// The judges of a suite: a route for each metric that asks one, and a service for each endpoint.
pub(crate) struct Judges {
    routes: BTreeMap<String, Result<JudgeRoute, EvaluationError>>,
    services: Vec<(Endpoint, JudgeService)>,
    /// How often a question is put anew whose replies can't be read; at least 1.
    rounds: u32,
}

impl Judges {
    /// The judges of these metrics. Addresses, keys and prices are checked before anything is sent. A metric whose judge
    /// can't be asked at all fails its cases, not the run.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub fn of(
        metrics: &[(&EvalMetric, &'static JudgedEvaluator)],
        rules: &RouteRules,
        shared: &SharedJudges<'_>,
        rounds: u32,
    ) -> Result<Self, RunError> {
        let routes: BTreeMap<String, _> = metrics
            .iter()
            .map(|(metric, _)| (metric.name.clone(), JudgeRoute::of(metric, rules)))
            .collect();
        let mut models: BTreeMap<_, (JudgeRoute, Vec<String>)> = BTreeMap::new();
        for route in routes.values().flatten() {
            let (_, models) = models
                .entry(route.endpoint())
                .or_insert_with(|| (route.clone(), Vec::new()));
            if !models.contains(&route.model) {
                models.push(route.model.clone());
            }
        }
        if shared.in_batches() && models.len() > 1 {
            let problem = "--batch: the judges of this suite are at several endpoints, and batches go to one; leave --batch out";
            return Err(RunError::Request(problem.to_owned()));
        }
        let mut services = Vec::new();
        for (endpoint, (route, models)) in models {
            services.push((endpoint, shared.service(&route.provider, &models)?));
        }
        Ok(Self {
            routes,
            services,
            rounds,
        })
    }

    /// The services, one an endpoint.
    pub fn services(&self) -> impl Iterator<Item = &JudgeService> {
        self.services.iter().map(|(_, service)| service)
    }

    /// The models that are asked, each once.
    pub fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = self
            .routes
            .values()
            .flatten()
            .map(|r| r.model.clone())
            .collect();
        models.sort();
        models.dedup();
        models
    }

    /// Where answers came from so far.
    pub fn counts(&self) -> CallCounts {
        let counts = self.services().map(JudgeService::counts);
        counts.fold(CallCounts::default(), |sum, one| CallCounts {
            asked: sum.asked + one.asked,
            from_ledger: sum.from_ledger + one.from_ledger,
            sent: sum.sent + one.sent,
            answered: sum.answered + one.answered,
            failed: sum.failed + one.failed,
            withheld: sum.withheld + one.withheld,
            capped: sum.capped + one.capped,
            asked_elsewhere: sum.asked_elsewhere + one.asked_elsewhere,
        })
    }

    /// What `once` makes of the answers that there are; where calls go into batches, again whenever something came back,
    /// as long as the rules let the run wait.
    ///
    /// # Errors
    /// Those of `once`, and [`RunError::Plan`] if batches can't be submitted or collected.
    pub async fn in_rounds<T>(
        &self,
        request: &JudgeRequest,
        once: impl AsyncFn() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        match self.services().next() {
            Some(service) => request.in_rounds(service, once).await,
            None => once().await,
        }
    }

    fn way(&self, metric: &EvalMetric) -> Result<(&JudgeRoute, &JudgeService), EvaluationError> {
        let unknown = || EvaluationError {
            metric: metric.name.clone(),
            problem: "it has no judge".to_owned(),
        };
        let route = self.routes.get(&metric.name).ok_or_else(unknown)?;
        let route = route.as_ref().map_err(Clone::clone)?;
        let endpoint = route.endpoint();
        let mut services = self.services.iter();
        let found = services.find(|(key, _)| *key == endpoint);
        found
            .map(|(_, service)| (route, service))
            .ok_or_else(unknown)
    }
}

/// Why a metric has no result.
pub(crate) enum NotJudged {
    /// The case fails.
    Failed(EvaluationError),
    /// The run stops.
    Stopped(RunError),
}

/// What a judged metric says of the turns of a case in a run. Where a question could not be put, the metric is not
/// evaluated as a whole: a mean over some of the turns could be misread.
pub(crate) async fn evaluate(
    judges: &Judges,
    (evaluator, metric): (&'static JudgedEvaluator, &EvalMetric),
    (actuals, expecteds): (&[Invocation], &[Invocation]),
    rubrics: &[Rubric],
    run: u32,
) -> Result<EvaluateResult, NotJudged> {
    let failed = |problem: String| {
        NotJudged::Failed(EvaluationError {
            metric: metric.name.clone(),
            problem,
        })
    };
    let (route, service) = judges.way(metric).map_err(NotJudged::Failed)?;
    let asker = Asker {
        source: Source::Service(service),
        rounds: judges.rounds,
        anew: false,
    };
    if evaluator.of_rubrics && !rubrics.iter().any(|rubric| rubric.text.is_some()) {
        return Err(failed(
            "it asks about rubrics and has none with a text; add `rubrics` to its `llmJudge`"
                .into(),
        ));
    }
    let template = evaluator.template_of(metric);
    let turns = actuals.iter().zip(expecteds).enumerate();
    let asked = turns.map(async |(place, (actual, expected))| {
        let turn = AskedTurn {
            actual,
            expected,
            rubrics,
        };
        let prompt = evaluator.question(&turn, template);
        let prompt = prompt.map_err(|e| NoVerdict::Failed(format!("turn {}: {e}", place + 1)))?;
        let ids = turn.rubric_ids();
        let reading = Reading {
            rubrics: &ids,
            template,
        };
        let samples = (1..=route.samples).map(async |sample| {
            let question = Sample {
                evaluator,
                route,
                prompt: &prompt,
                reading,
                run,
                sample,
            };
            asker.put(&question).await.map_err(|none| match none {
                NoVerdict::Failed(why) => {
                    NoVerdict::Failed(format!("turn {}, sample {sample}: {why}", place + 1))
                }
                other => other,
            })
        });
        let samples: Result<Vec<Read>, NoVerdict> = join_all(samples).await.into_iter().collect();
        samples.map(|samples| InvocationResult {
            prompt: template.map(|_| prompt),
            ..voted(metric, samples)
        })
    });
    let mut turns = Vec::with_capacity(actuals.len());
    let mut pending = None;
    for turn in join_all(asked).await {
        match turn {
            Ok(turn) => turns.push(turn),
            Err(NoVerdict::Pending(why)) => {
                pending.get_or_insert(why);
            }
            Err(NoVerdict::Failed(why)) => return Err(failed(why)),
            Err(NoVerdict::Ledger(why)) => return Err(NotJudged::Stopped(RunError::Plan(why))),
        }
    }
    match pending {
        None => Ok(averaged(metric, turns)),
        Some(why) => Ok(not_evaluated(actuals.len(), &why)),
    }
}

/// The result of a metric that nobody was asked for, with the reason at each turn.
pub(crate) fn not_evaluated(turns: usize, why: &str) -> EvaluateResult {
    let turn = InvocationResult {
        status: EvalStatus::NotEvaluated,
        reason: why.to_owned(),
        ..InvocationResult::default()
    };
    EvaluateResult {
        score: 0.0,
        status: EvalStatus::NotEvaluated,
        per_invocation: vec![turn; turns],
    }
}

/// The sample that stands for the turn.
fn voted(metric: &EvalMetric, samples: Vec<Read>) -> InvocationResult {
    let threshold = metric.threshold.unwrap_or_default();
    let sampled: Vec<(f64, EvalStatus)> = samples
        .iter()
        .map(|read| (read.score, EvalStatus::of(read.score, threshold)))
        .collect();
    // Of at least one sample that was judged, one is the majority's.
    let chosen = majority(threshold, &sampled).unwrap_or_default();
    let read = samples.into_iter().nth(chosen).unwrap_or_default();
    InvocationResult {
        score: read.score,
        status: EvalStatus::of(read.score, threshold),
        reason: read.reason,
        rubric_scores: read.rubric_scores,
        prompt: None,
        value: read.value.map(|said| match said {
            Said::Boolean(said) => DetailValue::Boolean(said),
            Said::Category(label) => DetailValue::Categorical(label),
        }),
    }
}
