//! Deep factuality and judged tone: questions to the first judge, then to the second, and then to nobody.

mod question;
mod route;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use regex::Regex;

pub(super) use question::CaseQuestion;
use question::{NoAnswer, Put};
pub use route::JudgeOverrides;
pub(super) use route::JudgeRoute;

use super::compute::Unjudged;
use super::rules::CaseRules;
use crate::judge::asker::{Asker, Source};
use crate::judge::{CallCounts, JudgeService};
use crate::metric::checked::Checked;
use crate::output::RunError;
use crate::run::{JudgeRequest, price_of};
use crate::suite::outcome::JudgingOutcome;
use crate::suite::regression::config::SuiteConfig;
use crate::suite::regression::golden_set::TestCase;
use crate::suite::regression::record::JudgeName;
use crate::suite::regression::suite_metric::SuiteMetric;

/// Most characters of an error in an explanation.
const MOST_OF_ERROR: usize = 120;

/// Whom each metric asks: its first judge, and the one that stands in.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// By metric.
    first: Vec<(SuiteMetric, JudgeRoute)>,
    fallback: Option<JudgeRoute>,
}

impl Panel {
    /// Whom these metrics ask, as the configuration and the user say; none if nobody names a judge.
    ///
    /// # Errors
    /// [`RunError::Request`] if what they say can't be done.
    pub fn of(
        metrics: &[SuiteMetric],
        config: &SuiteConfig,
        overrides: &JudgeOverrides,
    ) -> Result<Option<Self>, RunError> {
        let entry = config.primary_judge.as_ref();
        let given = overrides.provider.clone();
        let usual = match (&overrides.model, entry) {
            (Some(model), _) => Some(JudgeRoute::of_model(
                model,
                given.clone().unwrap_or_default(),
                overrides,
            )),
            (None, Some(entry)) => {
                let route = JudgeRoute::of_entry(entry, overrides)?;
                Some(match &given {
                    Some(given) => route.at(given),
                    None => route,
                })
            }
            (None, None) => None,
        };
        for (name, _) in &overrides.models {
            if !metrics.iter().any(|metric| metric.name() == name) {
                return Err(RunError::Request(format!(
                    "--judge-model {name}: no metric of this run that asks a judge; there are {}",
                    match metrics {
                        [] => "none".to_owned(),
                        metrics => metrics
                            .iter()
                            .map(|of| of.name())
                            .collect::<Vec<_>>()
                            .join(", "),
                    }
                )));
            }
        }
        let mut first = Vec::new();
        for metric in metrics {
            let own = overrides
                .models
                .iter()
                .find(|(name, _)| name == metric.name());
            let route = match (own, &usual) {
                (Some((_, model)), Some(usual)) => usual.with_model(model),
                (Some((_, model)), None) => {
                    JudgeRoute::of_model(model, given.clone().unwrap_or_default(), overrides)
                }
                (None, Some(usual)) => usual.clone(),
                (None, None) => continue,
            };
            first.push((*metric, route));
        }
        let fallback = config.fallback_judge.as_ref();
        let fallback = fallback.map(|entry| JudgeRoute::of_entry(entry, overrides));
        let fallback = fallback.transpose()?;
        if first.is_empty() && !metrics.is_empty() && overrides.names_judge() {
            return Err(RunError::Request(
                "the judge has an address or a key and no model; name it with --judge".to_owned(),
            ));
        }
        Ok((!first.is_empty()).then_some(Self { first, fallback }))
    }

    /// The first judge of a metric.
    pub fn first(&self, metric: SuiteMetric) -> Option<&JudgeRoute> {
        let found = self.first.iter().find(|(of, _)| *of == metric);
        found.map(|(_, route)| route)
    }

    /// Whether a second judge stands in.
    pub fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// The models of the first judge, each once.
    fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = self.first.iter().map(|(_, of)| of.model.clone()).collect();
        models.sort();
        models.dedup();
        models
    }
}

/// What came of asking about the cases of a run so far.
#[derive(Debug, Default)]
struct Fates {
    judged: AtomicUsize,
    by_fallback: AtomicUsize,
    unjudged: AtomicUsize,
    pending: AtomicUsize,
}

/// The judges of a run at work.
pub(super) struct Judges<'r> {
    request: &'r JudgeRequest,
    panel: &'r Panel,
    first: JudgeService,
    fallback: Option<JudgeService>,
    fates: Fates,
}

/// What became of a question.
#[derive(Debug)]
pub(super) enum Answer {
    /// A result: the judge's, or the one that counts without.
    Result(Checked),
    /// Nobody was asked, and a later run may ask; the result that counts without a judge, and why.
    Pending(Checked, String),
}

impl<'r> Judges<'r> {
    /// The services of these judges. Keys and prices are checked before anything is sent.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub fn new(request: &'r JudgeRequest, panel: &'r Panel) -> Result<Self, RunError> {
        let shared = request.shared()?;
        let service = |route: &JudgeRoute, models: &[String]| {
            if let (Some(variable), false) = (route.missing_key, request.replay) {
                return Err(RunError::Request(format!(
                    "provider_not_configured: the judge `{}/{}` needs the environment variable {variable}; set it, choose \
                     another judge, or ask none with --offline",
                    route.name.provider, route.name.model
                )));
            }
            let retries = route.retries(request.retries);
            shared.service_within(&route.provider, models, retries, route.timeout)
        };
        let Some((_, first)) = panel.first.first() else {
            return Err(RunError::Plan("no metric asks a judge".to_owned()));
        };
        let fallback = panel
            .fallback
            .as_ref()
            // A question waits in one batch at a time.
            .filter(|_| request.batches.is_none())
            .map(|route| service(route, std::slice::from_ref(&route.model)));
        Ok(Self {
            request,
            panel,
            first: service(first, &panel.models())?,
            fallback: fallback.transpose()?,
            fates: Fates::default(),
        })
    }

    /// Cases that are judged at once.
    pub fn concurrency(&self) -> usize {
        self.request.concurrency.max(1)
    }

    /// Who is asked first, for the record.
    pub fn name(&self) -> Option<JudgeName> {
        let (_, route) = self.panel.first.first()?;
        Some(route.name.clone())
    }

    /// What `once` makes of the answers that there are; where calls go into batches, again whenever something came
    /// back.
    ///
    /// # Errors
    /// Those of `once`, and [`RunError::Plan`] if batches can't be submitted or collected.
    pub async fn in_rounds<T>(
        &self,
        once: impl AsyncFn() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let request = self.request;
        request
            .in_rounds(&self.first, async || {
                self.forget();
                once().await
            })
            .await
    }

    /// Before a suite is asked about, and again before each round: the last one counts.
    fn forget(&self) {
        let Fates {
            judged,
            by_fallback,
            unjudged,
            pending,
        } = &self.fates;
        for count in [judged, by_fallback, unjudged, pending] {
            count.store(0, Relaxed);
        }
    }

    /// Asks about a metric of a case.
    ///
    /// # Errors
    /// [`RunError::Plan`] if the ledger can't be used: answers would be paid and lost.
    pub async fn ask(
        &self,
        case: &TestCase,
        unjudged: Unjudged,
        rules: &CaseRules<'_>,
    ) -> Result<Answer, RunError> {
        let (metric, threshold) = (unjudged.metric(), unjudged.threshold());
        let question = CaseQuestion::of(metric, case, threshold, rules)?;
        let (Some(question), Some(first)) = (question, self.panel.first(metric)) else {
            return Ok(Answer::Result(unjudged.result(Some(0.0))));
        };
        let second = self.panel.fallback.as_ref().zip(self.fallback.as_ref());
        let chain = [Some((first, &self.first)), second];
        let mut cost = Some(0.0);
        let mut problems: Vec<String> = Vec::new();
        let mut pending = None;
        for (place, (route, service)) in chain.into_iter().flatten().enumerate() {
            let put = Put::new(&question, route, price_of(self.request, &route.model));
            let asker = Asker {
                source: Source::Service(service),
                rounds: self.request.asking.rounds,
                anew: false,
            };
            let answer = asker.put(&put).await;
            cost = cost.zip(put.cost()).map(|(sum, of)| sum + of);
            match answer {
                Ok(mut checked) => {
                    self.fates.judged.fetch_add(1, Relaxed);
                    if place > 0 {
                        self.fates.by_fallback.fetch_add(1, Relaxed);
                        let JudgeName { provider, model } = &route.name;
                        let by = format!(" (Judged by the fallback {provider}/{model}.)");
                        checked.explanation.push_str(&by);
                    }
                    checked.token_cost = cost;
                    return Ok(Answer::Result(checked));
                }
                Err(NoAnswer::Ledger(problem)) => return Err(RunError::Plan(problem)),
                // The call went well: what came of it is no reason to pay another judge.
                Err(NoAnswer::Unreadable(why)) => {
                    problems.push(why.to_owned());
                    pending = None;
                    break;
                }
                Err(NoAnswer::Failed(why)) => problems.push(why),
                Err(NoAnswer::Pending(why)) => {
                    pending.get_or_insert(why);
                    // The ledger may hold what the second judge once said instead.
                    if !self.request.replay {
                        break;
                    }
                }
            }
        }
        if let Some(why) = pending {
            self.fates.pending.fetch_add(1, Relaxed);
            return Ok(Answer::Pending(unjudged.result(cost), why));
        }
        self.fates.unjudged.fetch_add(1, Relaxed);
        let mut checked = unjudged.result(cost);
        let problem = problems.last().map_or("", String::as_str);
        let said = format!(" Not judged: {}", shortened(problem));
        checked.explanation.push_str(&said);
        Ok(Answer::Result(checked))
    }

    /// What a reader should know of the last suite that was asked about, one line each.
    pub fn notes(&self) -> Vec<String> {
        let of = |count: &AtomicUsize| count.load(Relaxed);
        let fates = &self.fates;
        let judged = of(&fates.judged);
        let all = judged + of(&fates.unjudged) + of(&fates.pending);
        let mut notes = Vec::new();
        if of(&fates.by_fallback) > 0 {
            notes.push(format!(
                "{} of {all} results are judged by the fallback judge, as the first one failed",
                of(&fates.by_fallback)
            ));
        }
        if of(&fates.unjudged) > 0 {
            notes.push(format!(
                "{} of {all} results that a judge was asked for are computed instead (overlap of words, word lists), as no \
                 judge gave anything that can be used; their explanations say why",
                of(&fates.unjudged)
            ));
        }
        let fallback = self.fallback.iter().flat_map(JudgeService::stops);
        let stops = self.first.stops().into_iter().chain(fallback);
        notes.extend(stops.map(|why| masked(&why)));
        notes
    }

    /// What was asked so far, in sum.
    ///
    /// # Errors
    /// [`RunError::Plan`] if the ledger can't be read.
    pub fn asked(&self) -> Result<Asked, RunError> {
        let services = [Some(&self.first), self.fallback.as_ref()];
        let counts = services.into_iter().flatten().map(JudgeService::counts);
        let (mut cost, mut unpriced) = (0.0, 0);
        // One ledger serves both.
        for spend in self.first.ledger().spend()? {
            cost += spend.cost;
            unpriced += spend.unpriced;
        }
        Ok(Asked {
            counts: counts.collect(),
            cost,
            unpriced,
        })
    }

    /// What was asked since `before`.
    ///
    /// # Errors
    /// As [`Judges::asked`].
    pub fn asked_since(&self, before: &Asked) -> Result<JudgingOutcome, RunError> {
        let now = self.asked()?;
        let since = |count: fn(&CallCounts) -> u64| -> u64 {
            let all = |of: &Asked| -> u64 { of.counts.iter().map(count).sum() };
            all(&now).saturating_sub(all(before))
        };
        let mut models = self.panel.models();
        models.extend(self.panel.fallback.iter().map(|of| of.model.clone()));
        models.dedup();
        Ok(JudgingOutcome {
            models,
            questions: since(|of| of.asked),
            known: since(|of| of.from_ledger),
            sent: since(|of| of.sent),
            cost: (now.unpriced == before.unpriced).then_some((now.cost - before.cost).max(0.0)),
        })
    }
}

/// Sums over all that was asked in a run.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    counts: Vec<CallCounts>,
    cost: f64,
    unpriced: u64,
}

/// An error as explanations keep it: short, and without what looks like a key.
fn shortened(problem: &str) -> String {
    let masked = masked(problem);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut characters = line.chars();
    let short: String = characters.by_ref().take(MOST_OF_ERROR - 1).collect();
    match characters.next() {
        None => short,
        Some(_) => short + "…",
    }
}

/// A text without what looks like a key.
fn masked(problem: &str) -> String {
    static KEYS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(sk-|gsk_|AIza)[A-Za-z0-9_\-]{6,}").ok());
    match KEYS.as_ref() {
        Some(keys) => keys.replace_all(problem, "[secret]").into_owned(),
        None => problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_short_and_show_no_key() {
        let text = format!(
            "Incorrect API key provided: sk-proj-abc123DEF and AIzaSyA_b-c1 {}",
            "x".repeat(300)
        );
        let short = shortened(&text);
        assert_eq!(short.chars().count(), MOST_OF_ERROR);
        assert!(
            !short.contains("abc123") && !short.contains("SyA_b"),
            "{short}"
        );
        assert_eq!(shortened("a\n b"), "a b");
    }
}
