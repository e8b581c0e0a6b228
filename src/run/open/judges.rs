//! From a job to a checked request to judges.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::batches::batches;
use super::endpoint::{full_name, provider};
use super::filters::filters;
use super::judge_file::JudgeFile;
use super::wrong;
use crate::conversation::{ConversationJudge, ConversationRequest};
use crate::job::{Given, Job, SettingsError};
use crate::judge::{AskingRules, Caps, Policy, PriceTable, RateLimits, Retries, Temperature};
use crate::metric::{CONVERSATION, Method, Rules, find};
use crate::run::JudgeRequest;
use crate::selection::{DEFAULT_SEED, SamplingRate};

/// Randomness of the judge of conversations unless told otherwise.
const CONVERSATION_TEMPERATURE: f64 = 0.2;

/// What the run asks judges; `None` if no metric asks one.
pub fn judge(job: &Job, rules: &Rules) -> Result<Option<JudgeRequest>, SettingsError> {
    let judged = judged_of(rules);
    let conversation = match &job.judge_config {
        _ if !judged.contains(&CONVERSATION) => None,
        None => Some(JudgeFile::default()),
        Some(path) => Some(JudgeFile::read(path)?),
    };
    let Some(first) = judged.first() else {
        return Ok(None);
    };
    if job.offline && !job.replay {
        return wrong(format!(
            "--offline: the metric {first} asks a judge over the network; leave it out of --metrics, or take its answers from the \
             ledger with --replay"
        ));
    }
    let models = models(job, &judged)?;
    let model = model_of(job, &judged, first, conversation.as_ref())?;
    let prices = prices(job)?;
    let asking = AskingRules {
        model,
        models,
        temperature: job.judge_temperature.unwrap_or(Temperature::Usual(1.0)),
        max_output_tokens: job.judge_max_output.map_or(4096, |n| n.get()) as u32,
        policy: job.judge_policy.unwrap_or_default(),
        share_stages: !job.judge_unshared,
        rounds: job.judge_rounds.map_or(1, |n| n.get()) as u32,
        anew: false,
    };
    let conversation = conversation
        .map(|file| conversations(file, job, &asking, rules))
        .transpose()?;
    for named in prices.given() {
        let of_traces = asking.models.values().chain([&asking.model]);
        let mut asked = of_traces.chain(conversation.as_ref().map(|c| &c.model));
        if !asked.any(|model| model == named) {
            let model = &asking.model;
            tracing::warn!("--price {named}: this run asks {model}, and no model of that name");
        }
    }
    request(job, asking, conversation).map(Some)
}

/// How these rules are carried out: where, and within which bounds.
fn request(
    job: &Job,
    asking: AskingRules,
    conversation: Option<ConversationRequest>,
) -> Result<JudgeRequest, SettingsError> {
    let stop = asking.policy == Policy::Production;
    Ok(JudgeRequest {
        asking,
        conversation,
        provider: provider(job)?,
        replay: job.replay,
        batches: batches(job)?,
        ledger: ledger(job)?,
        caps: Caps {
            calls: job.max_calls.map(|n| n.get() as u64),
            tokens: job.max_tokens.map(|n| n.get() as u64),
            cost: job.max_cost.map(|dollars| dollars.get()),
        },
        limits: RateLimits {
            requests: job.requests_per_minute.map(|n| n.get() as u64),
            tokens: job.tokens_per_minute.map(|n| n.get() as u64),
        },
        prices: prices(job)?,
        retries: Retries {
            attempts: job.judge_tries.map_or(5, |n| n.get()) as u32,
            stop,
            ..Retries::default()
        },
        concurrency: job.judge_concurrency.map_or(16, |n| n.get()),
        timeout: timeout(job)?,
        deadline: job
            .judge_deadline
            .map(|seconds| Duration::from_secs_f64(seconds.get())),
        filters: filters(job)?,
        condition: job.judge_where.clone(),
        sample: match job.judge_sample {
            None => SamplingRate::ALL,
            Some(share) => SamplingRate::new(share.get())
                .map_err(|e| SettingsError(format!("--judge-sample: {e}")))?,
        },
        seed: sample_seed(job),
        most_chars: job.judge_max_trace.map_or(400_000, |n| n.get()),
        retry: None,
        when_too_long: job.judge_long_traces.unwrap_or_default(),
    })
}

/// A request to the judges of a suite, whose metrics name their models and endpoints themselves.
///
/// # Errors
/// If a setting does not fit.
pub fn suite(job: &Job) -> Result<JudgeRequest, SettingsError> {
    let asking = AskingRules {
        model: String::new(),
        models: BTreeMap::new(),
        temperature: Temperature::Usual(1.0),
        max_output_tokens: 0,
        policy: Policy::Production,
        share_stages: false,
        rounds: job.judge_rounds.map_or(1, |n| n.get()) as u32,
        anew: false,
    };
    request(job, asking, None)
}

/// The model that judges a run, unless metrics have others of their own; `None` if no metric asks a judge.
///
/// # Errors
/// If a metric asks a judge and none is named: by the settings, or for conversations by their configuration.
pub fn judge_model(job: &Job, rules: &Rules) -> Result<Option<String>, SettingsError> {
    let judged = judged_of(rules);
    let Some(first) = judged.first() else {
        return Ok(None);
    };
    let conversation = match &job.judge_config {
        Some(path) if judged.contains(&CONVERSATION) => Some(JudgeFile::read(path)?),
        _ => None,
    };
    model_of(job, &judged, first, conversation.as_ref()).map(Some)
}

/// The metrics of a run that ask a judge.
fn judged_of(rules: &Rules) -> Vec<&str> {
    let metrics = rules.metrics.iter().map(String::as_str);
    metrics
        .filter(|name| find(name).is_some_and(|m| m.method == Method::Judge))
        .collect()
}

fn model_of(
    job: &Job,
    judged: &[&str],
    first: &str,
    conversation: Option<&JudgeFile>,
) -> Result<String, SettingsError> {
    // The configuration may name the judge of conversations; other metrics need one of their own.
    let configured = conversation
        .filter(|_| judged == [CONVERSATION])
        .and_then(|file| file.config.route(None, None));
    match job.judge.clone().or(configured) {
        Some(model) => named(job, "judge", &model),
        None => wrong(format!(
            "the metric {first} asks a judge; name a model with --judge, as in --judge openai/gpt-4o-mini"
        )),
    }
}

/// The full name of a model that a setting names.
///
/// # Errors
/// If it is empty, or nothing but a provider.
pub fn named(job: &Job, setting: &str, model: &str) -> Result<String, SettingsError> {
    let model = model.trim();
    if model.is_empty() || model.ends_with('/') {
        return wrong(format!(
            "--{setting} `{model}`: the name of the model is missing; name one, as in openai/gpt-4o-mini"
        ));
    }
    full_name(job, model)
}

/// The seed of samples.
pub fn sample_seed(job: &Job) -> u64 {
    job.sample_seed
        .map_or(DEFAULT_SEED, |seed| seed.get() as u64)
}

/// A request for single questions to the judge of conversations, outside of a scoring run. `asker` is the flag or command
/// that asks them.
///
/// # Errors
/// If no judge is named, nothing may be sent, or a setting does not fit.
pub fn questions(job: &Job, asker: &str) -> Result<JudgeRequest, SettingsError> {
    if job.offline && !job.replay {
        return wrong(format!(
            "--offline: {asker} asks a judge over the network; leave it out, or take its answers from the ledger with --replay"
        ));
    }
    let unnamed = || {
        let problem = format!(
            "{asker} asks a judge; name a model with --judge, as in --judge openai/gpt-4o-mini"
        );
        SettingsError(problem)
    };
    if job.judge.is_none() && job.judge_config.is_none() {
        return Err(unnamed());
    }
    if job.batch {
        tracing::warn!("{asker} asks at once: --batch has no effect on it");
    }
    // Other settings may come from a file that is there for scoring.
    let given: Given = job.given.clone();
    let given = given
        .only(|name| {
            let setting = crate::job::Setting::named(name);
            name == "offline" || setting.is_some_and(crate::job::Setting::of_judges)
        })
        .without(&[
            "batch",
            "batch_wait",
            "batch_poll",
            "batch_size",
            "batch_bytes",
        ])
        .only_pairs("judge_model", |metric| metric == CONVERSATION)
        .with("metrics", vec![CONVERSATION.to_owned()]);
    let job = Job::of(given)?;
    let rules = super::rules(&job)?;
    self::judge(&job, &rules)?.ok_or_else(unnamed)
}

/// The model that the settings name for conversations, as it was given: the configuration may name the provider of a bare
/// name.
fn name_for_conversations(job: &Job) -> Option<String> {
    let mut own = job.judge_model.iter().flatten();
    let own = own.find(|(metric, _)| metric == CONVERSATION);
    own.map(|(_, model)| model.clone())
        .or_else(|| job.judge.clone())
}

/// How conversations are judged, by the model that is given unless their configuration names another. A temperature that was given
/// holds for them too.
fn conversations(
    file: JudgeFile,
    job: &Job,
    asking: &AskingRules,
    rules: &Rules,
) -> Result<ConversationRequest, SettingsError> {
    let JudgeFile {
        mut config,
        catalogue,
        mut bars,
    } = file;
    // In percent, to six decimals: a product such as 0.07 * 100 is not exact.
    config.pass_threshold = (rules.threshold(CONVERSATION) * 1e8).round() / 1e6;
    bars.pass_threshold = config.pass_threshold;
    let named = name_for_conversations(job);
    let route = config.route(None, named.as_deref());
    let judge = ConversationJudge::new(config, &catalogue)
        .map_err(|e| SettingsError(format!("--judge-config: {e}")))?;
    Ok(ConversationRequest {
        judge,
        bars,
        model: full_name(job, route.as_deref().unwrap_or(&asking.model))?,
        temperature: job
            .judge_temperature
            .unwrap_or(Temperature::Usual(CONVERSATION_TEMPERATURE)),
        max_output_tokens: asking.max_output_tokens,
        rounds: asking.rounds,
        anew: false,
    })
}

/// Prices, by the full names of models.
pub fn prices(job: &Job) -> Result<PriceTable, SettingsError> {
    let mut prices = job.price.clone().unwrap_or_default();
    for (model, _) in &mut prices {
        *model = full_name(job, model)?;
    }
    PriceTable::with(&prices).map_err(|e| SettingsError(format!("--price {e}")))
}

fn timeout(job: &Job) -> Result<Duration, SettingsError> {
    match job.judge_timeout.map(|seconds| seconds.get()) {
        None => Ok(Duration::from_secs(120)),
        Some(seconds) if seconds >= 0.001 => Ok(Duration::from_secs_f64(seconds)),
        Some(_) => wrong("--judge-timeout: expected seconds, at least 0.001".into()),
    }
}

fn models(job: &Job, judged: &[&str]) -> Result<BTreeMap<String, String>, SettingsError> {
    let pairs = job.judge_model.iter().flatten();
    pairs
        .map(|(metric, model)| {
            if !judged.contains(&metric.as_str()) {
                let near = crate::text::nearest(metric, judged.iter().copied());
                return wrong(format!(
                    "--judge-model {metric}: no judged metric of this run{near}"
                ));
            }
            let setting = format!("judge-model {metric}");
            let model = named(job, &setting, model)?;
            Ok((metric.clone(), model))
        })
        .collect()
}

/// The file of the ledger: as it is named, else in the user's data folder.
///
/// # Errors
/// If this user has no such folder.
pub fn ledger(job: &Job) -> Result<PathBuf, SettingsError> {
    match &job.ledger {
        Some(path) => Ok(path.clone()),
        None => match dirs::data_local_dir() {
            Some(folder) => Ok(folder.join("nightmill").join("ledger.db")),
            None => wrong("this user has no data folder; name a ledger with --ledger".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(judge: &str) -> Given {
        Given::default()
            .with("judge", judge)
            .with("ledger", "ledger.db")
    }

    fn asked(given: Given) -> Result<JudgeRequest, String> {
        let job = Job::of(given).map_err(|e| e.to_string())?;
        questions(&job, "--explain").map_err(|e| e.to_string())
    }

    #[test]
    fn a_model_has_a_name() {
        for empty in ["", " ", "openai/"] {
            let refused = asked(given(empty)).unwrap_err();
            assert!(refused.starts_with("--judge `"), "{refused}");
            let own = vec![format!("conversation={empty}")];
            let refused = asked(given("openai/test").with("judge_model", own)).unwrap_err();
            assert!(
                refused.starts_with("--judge-model conversation"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_configuration_names_the_provider_of_a_bare_model() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("judge.toml");
        std::fs::write(&file, "provider = \"acme\"\n").unwrap();
        let asked = |model: &str, own: Option<&str>| {
            let mut given = given(model)
                .with("metrics", vec![CONVERSATION])
                .with("judge_config", file.display().to_string());
            if let Some(own) = own {
                given = given.with("judge_model", vec![format!("{CONVERSATION}={own}")]);
            }
            let job = Job::of(given).unwrap();
            let rules = super::super::rules(&job).unwrap();
            let request = judge(&job, &rules).unwrap().unwrap();
            request.conversation.unwrap().model
        };
        assert_eq!(asked("gpt-4o", None), "acme/gpt-4o");
        assert_eq!(asked("openai/gpt-4o", None), "openai/gpt-4o");
        assert_eq!(asked("openai/gpt-4o", Some("gpt-5")), "acme/gpt-5");
        std::fs::write(&file, "").unwrap();
        assert_eq!(asked("gpt-4o", None), "openai/gpt-4o");
    }

    #[test]
    fn questions_name_who_asks_and_leave_the_scoring_of_traces_aside() {
        let models = vec!["confidence=openai/other", "conversation=openai/better"];
        let named = given("openai/test").with("judge_model", models);
        let conversation = asked(named.clone()).unwrap().conversation.unwrap();
        assert_eq!(conversation.model, "openai/better");
        let usual = Temperature::Usual(CONVERSATION_TEMPERATURE);
        assert_eq!(conversation.temperature, usual);
        let offline = named.with("offline", true);
        let refused = asked(offline.clone()).unwrap_err();
        assert!(
            refused.starts_with("--offline: --explain asks"),
            "{refused}"
        );
        assert!(asked(offline.with("replay", true)).unwrap().replay);
        let nobody = asked(Given::default()).unwrap_err();
        assert!(nobody.starts_with("--explain asks a judge"), "{nobody}");
    }
}
