//! What a run asks judges: from a request to a service that answers.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::traces;
use crate::conversation::ConversationRequest;
use crate::conversation::from_traces::{self, ChosenSession};
use crate::judge::answers::Answers;
use crate::judge::batch::{BatchClient, BatchLimits, BatchSubmitter, BatchSubmitterError};
use crate::judge::{
    AskingRules, BreakerRules, Budget, Caps, HttpJudge, Judge, JudgeService, Ledger, PriceTable,
    ProviderSettings, RateGate, RateLimits, Retries, ServiceParts, endpoint_of,
};
use crate::metric::JudgedMetric;
use crate::output::RunError;
use crate::output::manifest::RETRY_OF;
use crate::question::WhenTooLong;
use crate::run::retry::Retry;
use crate::selection::{Ranking, SamplingRate, TraceFilters};
use crate::text::format_instant;
use crate::trace::DocumentSource;

/// What a run asks judges, and within which bounds.
#[derive(Clone, Debug)]
pub struct JudgeRequest {
    /// Models and how they are asked.
    pub asking: AskingRules,
    /// Where they are asked.
    pub provider: ProviderSettings,
    /// Send nothing; the ledger alone answers.
    pub replay: bool,
    /// How calls go into batches, if they do.
    pub batches: Option<BatchRules>,
    /// The ledger's file.
    pub ledger: PathBuf,
    /// Most that the run may spend.
    pub caps: Caps,
    /// Most in any minute.
    pub limits: RateLimits,
    /// Prices.
    pub prices: PriceTable,
    /// Repeating failed calls.
    pub retries: Retries,
    /// Calls under way at once.
    pub concurrency: usize,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// After so long, from its start on, the run begins no call and no wait that would end later.
    pub deadline: Option<Duration>,
    /// Which traces are judged.
    pub filters: TraceFilters,
    /// Which of those, by a condition on their signals.
    pub condition: Option<String>,
    /// How many of those.
    pub sample: SamplingRate,
    /// The seed of the sample.
    pub seed: u64,
    /// Characters of a trace that a prompt takes.
    pub most_chars: usize,
    /// What happens to a longer trace.
    pub when_too_long: WhenTooLong,
    /// How sessions are judged as conversations, if they are.
    pub conversation: Option<ConversationRequest>,
    /// The run whose failures are asked again, if any are.
    pub retry: Option<Arc<Retry>>,
}

/// How calls go into batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchRules {
    /// How long the run waits for results.
    pub wait: Duration,
    /// How often it looks.
    pub poll: Duration,
    /// What a batch file may hold.
    pub limits: BatchLimits,
}

impl JudgeRequest {
    /// The models that these metrics and conversations ask, each once.
    fn models(&self, metrics: &[&'static JudgedMetric]) -> Vec<String> {
        let mut models: Vec<String> = metrics
            .iter()
            .map(|m| self.asking.model_of(m.name).to_owned())
            .chain(self.conversation.as_ref().map(|c| c.model.clone()))
            .collect();
        models.sort();
        models.dedup();
        models
    }

    /// Everything that decides what judges say and whom they are asked about, for the manifest; no secrets.
    pub(crate) fn described(&self) -> Value {
        let conversation = self.conversation.as_ref().map(|c| {
            json!({
                "model": c.model,
                "temperature": c.temperature.of(&c.model),
                "max_output_tokens": c.max_output_tokens,
                "config": c.judge.config(),
            })
        });
        let filters = match &self.retry {
            Some(retry) => json!({ RETRY_OF: retry.id() }),
            None => json!(self.filters),
        };
        json!({
            "model": self.asking.model,
            "models": self.asking.models,
            "url": self.provider.shown_url(),
            "protocol": self.provider.url.as_ref().map(|_| self.provider.protocol.name()),
            "temperature": self.asking.temperature.of(&self.asking.model),
            "max_output_tokens": self.asking.max_output_tokens,
            "policy": self.asking.policy.name(),
            "rounds": self.asking.rounds,
            "shared_stages": self.asking.share_stages,
            "filters": filters,
            "condition": self.condition,
            "sample": self.sample,
            "seed": self.seed,
            "longest_trace": self.most_chars,
            "long_traces": match self.when_too_long {
                WhenTooLong::Fail => "fail",
                WhenTooLong::Cut => "cut",
            },
            "replay": self.replay,
            "batch": self.batches.is_some(),
            "conversation": conversation,
        })
    }

    /// The sessions that are judged as conversations: a run that asks again what failed judges those of the old run and no
    /// others. `passing` are the traces that pass the condition on signals, if there is one.
    pub(crate) fn choose_sessions(
        &self,
        documents: &DocumentSource,
        passing: Option<&HashSet<String>>,
    ) -> Result<Vec<ChosenSession>, RunError> {
        from_traces::choose(
            documents,
            |trace_id, members| traces::passes(self, passing, trace_id, members),
            |key| self.retry.as_ref().is_none_or(|retry| retry.judged(key)),
            &Ranking::new(self.seed),
            self.sample,
        )
    }

    /// What the ledger answers already.
    ///
    /// # Errors
    /// [`RunError::Request`] if the file is no ledger.
    pub(crate) fn answers(&self) -> Result<Answers<'_>, RunError> {
        let answers = Answers::of(&self.ledger, &self.provider);
        answers.map_err(|e| RunError::Request(e.to_string()))
    }

    /// What chooses traces, as flags say it: filters and the condition. None if all are taken, or those of an old run.
    pub(crate) fn chosen_by(&self) -> Option<String> {
        if self.retry.is_some() {
            return None;
        }
        let f = &self.filters;
        let only = [
            ("name", f.name.clone()),
            ("status", f.status.map(|status| status.name().to_owned())),
            ("environment", f.environment.clone()),
            ("user", f.user_id.clone()),
            ("release", f.release.clone()),
            ("session", f.session_id.clone()),
            ("from", f.date_from.map(format_instant)),
            ("to", f.date_to.map(format_instant)),
        ];
        let only: Vec<String> = only
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
            .collect();
        let flags = [
            (!only.is_empty()).then(|| format!("--judge-only {}", only.join(","))),
            (!f.tags.is_empty()).then(|| format!("--judge-tags {}", f.tags.join(","))),
            self.condition
                .as_ref()
                .map(|condition| format!("--judge-where '{condition}'")),
        ];
        let flags: Vec<String> = flags.into_iter().flatten().collect();
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    /// What `once` makes of the answers that there are. Where calls go into batches, again whenever something came back, as long
    /// as the rules let the run wait.
    ///
    /// # Errors
    /// Those of `once`, and [`RunError::Plan`] if batches can't be submitted or collected.
    pub(crate) async fn in_rounds<T>(
        &self,
        service: &JudgeService,
        once: impl AsyncFn() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let Some(batches) = self.batches else {
            return once().await;
        };
        let stopped = |e: BatchSubmitterError| RunError::Plan(e.to_string());
        let until = Instant::now() + batches.wait;
        service.collect_batches().await.map_err(stopped)?;
        loop {
            let made = once().await?;
            let further = service.go_on_with_batches(until, batches.poll).await;
            // What came back lets later stages be asked.
            if !further.map_err(stopped)? {
                return Ok(made);
            }
        }
    }

    /// The service that answers the calls of a run: of these metrics, and of conversations if they are judged. Checks
    /// providers, keys and prices before anything is sent.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub(crate) fn service(
        &self,
        metrics: &[&'static JudgedMetric],
    ) -> Result<JudgeService, RunError> {
        self.shared()?
            .service(&self.provider, &self.models(metrics))
    }

    /// What all services of a run share: its ledger, its caps and its limits.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub(crate) fn shared(&self) -> Result<Shared<'_>, RunError> {
        // Opening would make one, and a mistyped name would answer nothing.
        if self.replay && !self.ledger.exists() {
            return Err(RunError::Request(format!(
                "--replay: there is no ledger `{}`; name the one of your runs with --ledger",
                self.ledger.display()
            )));
        }
        Ok(Shared {
            request: self,
            ledger: OnceCell::new(),
            budget: Arc::new(Budget::new(self.caps)),
            gate: Arc::new(RateGate::new(self.limits)),
        })
    }
}

/// What the services of a run share, whatever endpoints they ask.
pub(crate) struct Shared<'r> {
    request: &'r JudgeRequest,
    ledger: OnceCell<Arc<Ledger>>,
    budget: Arc<Budget>,
    gate: Arc<RateGate>,
}

impl Shared<'_> {
    /// Whether calls go into batches.
    pub fn in_batches(&self) -> bool {
        self.request.batches.is_some()
    }

    /// The ledger; opened when it is first needed, so that a run that can't ask makes none.
    pub fn ledger(&self) -> Result<Arc<Ledger>, RunError> {
        if let Some(ledger) = self.ledger.get() {
            return Ok(Arc::clone(ledger));
        }
        let file = &self.request.ledger;
        let opened = match self.request.replay {
            true => Ledger::open_to_read(file),
            false => Ledger::open(file),
        };
        let opened = Arc::new(opened.map_err(refused)?);
        Ok(Arc::clone(self.ledger.get_or_init(|| opened)))
    }

    /// The service that answers calls to these models at this endpoint. Checks provider, keys and prices.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub fn service(
        &self,
        provider: &ProviderSettings,
        models: &[String],
    ) -> Result<JudgeService, RunError> {
        let (retries, timeout) = (self.request.retries, self.request.timeout);
        self.service_within(provider, models, retries, timeout)
    }

    /// The same for an endpoint with a patience of its own: how calls are repeated, and how long one answer may take.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub fn service_within(
        &self,
        provider: &ProviderSettings,
        models: &[String],
        retries: Retries,
        timeout: Duration,
    ) -> Result<JudgeService, RunError> {
        let request = self.request;
        let client = match request.batches {
            None => None,
            Some(_) => {
                let client = BatchClient::new(provider.clone(), models, retries);
                Some(client.map_err(refused)?)
            }
        };
        let judge: Option<Arc<dyn Judge>> = match request.replay || client.is_some() {
            true => None,
            false => Some(Arc::new(
                HttpJudge::new(provider.clone(), models).map_err(refused)?,
            )),
        };
        if request.caps.cost.is_some()
            && let Some(model) = models.iter().find(|m| request.prices.of(m).is_none())
        {
            return Err(RunError::Request(format!(
                "--max-cost: no price is known for `{model}`; give one with --price {model}=INPUT:OUTPUT"
            )));
        }
        let ledger = self.ledger()?;
        let batches = match client.zip(request.batches) {
            None => None,
            Some((client, rules)) => {
                let (ledger, prices) = (Arc::clone(&ledger), request.prices.clone());
                let submitter = BatchSubmitter::new(client, ledger, prices, rules.limits);
                Some(submitter.map_err(refused)?)
            }
        };
        let endpoint = provider.clone();
        Ok(JudgeService::new(ServiceParts {
            judge,
            endpoint: Arc::new(move |model| endpoint_of(model, &endpoint)),
            ledger,
            batches,
            budget: Arc::clone(&self.budget),
            gate: Arc::clone(&self.gate),
            prices: request.prices.clone(),
            retries,
            breaker: BreakerRules::default(),
            concurrency: request.concurrency,
            timeout,
            deadline: request.deadline,
            secrets: provider.secrets(),
        }))
    }
}

fn refused(problem: impl std::fmt::Display) -> RunError {
    RunError::Request(problem.to_string())
}
