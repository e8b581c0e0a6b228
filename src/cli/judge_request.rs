//! From settings to a validated request to judges.

mod batches;
mod endpoint;
mod filters;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use batches::batch_rules;
use batches::batches;
use endpoint::full_name;
pub(super) use endpoint::provider;
use filters::filters;

use super::judge_file::JudgeFile;
use super::request::{count, one_of, wrong};
use crate::conversation::ConversationJudge;
use crate::conversation::ConversationRequest;
use crate::job::{JudgeSettings, Settings, SettingsError, number_pairs, split_pairs};
use crate::judge::{
    AskingRules, Caps, MOST_ROUNDS, Policy, PriceTable, RateLimits, Retries, Temperature,
    WhenTooLong,
};
use crate::metric::Rules;
use crate::metric::{CONVERSATION, Method, find};
use crate::run::JudgeRequest;
use crate::selection::{DEFAULT_SEED, SamplingRate};

/// Most of anything that is counted.
const MANY: usize = 1 << 48;

/// Randomness of the judge of conversations unless told otherwise.
const CONVERSATION_TEMPERATURE: f64 = 0.2;

/// What the run asks judges; `None` if no metric asks one.
pub(super) fn judge(
    settings: &Settings,
    rules: &Rules,
) -> Result<Option<JudgeRequest>, SettingsError> {
    let given = &settings.judge;
    let judged = judged_of(rules);
    let conversation = match &given.judge_config {
        _ if !judged.contains(&CONVERSATION) => None,
        None => Some(JudgeFile::default()),
        Some(path) => Some(JudgeFile::read(path)?),
    };
    let Some(first) = judged.first() else {
        return Ok(None);
    };
    if settings.offline && !given.replay {
        return wrong(format!(
            "--offline: the metric {first} asks a judge over the network; leave it out of --metrics, or take its answers from the \
             ledger with --replay"
        ));
    }
    let models = models(settings, &judged)?;
    let model = model_of(settings, &judged, first, conversation.as_ref())?;
    let prices = prices(given)?;
    let caps = caps(settings)?;
    let temperature = temperature(given.judge_temperature.as_deref())?;
    let asking = AskingRules {
        model,
        models,
        temperature: temperature.unwrap_or(Temperature::Usual(1.0)),
        max_output_tokens: count(
            "judge-max-output",
            given.judge_max_output.as_deref(),
            16,
            1 << 20,
        )?
        .unwrap_or(4096) as u32,
        policy: policy(settings)?,
        share_stages: !given.judge_unshared,
        rounds: count(
            "judge-rounds",
            given.judge_rounds.as_deref(),
            1,
            MOST_ROUNDS as usize,
        )?
        .unwrap_or(1) as u32,
        anew: false,
    };
    let conversation = conversation
        .map(|file| conversations(file, given, &asking, temperature, rules))
        .transpose()?;
    for named in prices.given() {
        let of_traces = asking.models.values().chain([&asking.model]);
        let mut asked = of_traces.chain(conversation.as_ref().map(|c| &c.model));
        if !asked.any(|model| model == named) {
            let model = &asking.model;
            tracing::warn!("--price {named}: this run asks {model}, and no model of that name");
        }
    }
    let stop = asking.policy == Policy::Production;
    Ok(Some(JudgeRequest {
        asking,
        conversation,
        provider: provider(settings)?,
        replay: given.replay,
        batches: batches(settings)?,
        ledger: ledger(settings)?,
        caps,
        limits: RateLimits {
            requests: per_minute("requests-per-minute", given.requests_per_minute.as_deref())?,
            tokens: per_minute("tokens-per-minute", given.tokens_per_minute.as_deref())?,
        },
        prices,
        retries: Retries {
            attempts: count("judge-tries", given.judge_tries.as_deref(), 1, 100)?.unwrap_or(5)
                as u32,
            stop,
            ..Retries::default()
        },
        concurrency: count(
            "judge-concurrency",
            given.judge_concurrency.as_deref(),
            1,
            4096,
        )?
        .unwrap_or(16),
        timeout: timeout(given.judge_timeout.as_deref())?,
        deadline: number("judge-deadline", given.judge_deadline.as_deref(), 1e8)?
            .map(Duration::from_secs_f64),
        filters: filters(settings)?,
        condition: given.judge_where.clone(),
        sample: SamplingRate::new(
            number("judge-sample", given.judge_sample.as_deref(), 1.0)?.unwrap_or(1.0),
        )
        .map_err(|e| SettingsError(format!("--judge-sample: {e}")))?,
        seed: sample_seed(settings)?,
        most_chars: count(
            "judge-max-trace",
            given.judge_max_trace.as_deref(),
            1000,
            MANY,
        )?
        .unwrap_or(400_000),
        retry: None,
        when_too_long: one_of(
            "judge-long-traces",
            given.judge_long_traces.as_deref(),
            &[("fail", WhenTooLong::Fail), ("cut", WhenTooLong::Cut)],
        )?
        .unwrap_or_default(),
    }))
}

/// The model that judges a run, unless metrics have others of their own; `None` if no metric asks a judge.
///
/// # Errors
/// If a metric asks a judge and none is named: by the settings, or for conversations by their configuration.
pub(super) fn judge_model(
    settings: &Settings,
    rules: &Rules,
) -> Result<Option<String>, SettingsError> {
    let judged = judged_of(rules);
    let Some(first) = judged.first() else {
        return Ok(None);
    };
    let conversation = match &settings.judge.judge_config {
        Some(path) if judged.contains(&CONVERSATION) => Some(JudgeFile::read(path)?),
        _ => None,
    };
    model_of(settings, &judged, first, conversation.as_ref()).map(Some)
}

/// The metrics of a run that ask a judge.
fn judged_of(rules: &Rules) -> Vec<&str> {
    let metrics = rules.metrics.iter().map(String::as_str);
    metrics
        .filter(|name| find(name).is_some_and(|m| m.method == Method::Judge))
        .collect()
}

fn model_of(
    settings: &Settings,
    judged: &[&str],
    first: &str,
    conversation: Option<&JudgeFile>,
) -> Result<String, SettingsError> {
    // The configuration may name the judge of conversations; other metrics need one of their own.
    let configured = conversation
        .filter(|_| judged == [CONVERSATION])
        .and_then(|file| file.config.route(None, None));
    match settings.judge.judge.clone().or(configured) {
        Some(model) => named(&settings.judge, "judge", &model),
        None => wrong(format!(
            "the metric {first} asks a judge; name a model with --judge, as in --judge openai/gpt-4o-mini"
        )),
    }
}

/// The full name of a model.
///
/// # Errors
/// If it is empty, or nothing but a provider.
fn named(given: &JudgeSettings, setting: &str, model: &str) -> Result<String, SettingsError> {
    let model = model.trim();
    if model.is_empty() || model.ends_with('/') {
        return wrong(format!(
            "--{setting} `{model}`: the name of the model is missing; name one, as in openai/gpt-4o-mini"
        ));
    }
    full_name(given, model)
}

/// The seed of samples.
pub(super) fn sample_seed(settings: &Settings) -> Result<u64, SettingsError> {
    let given = settings.judge.sample_seed.as_deref();
    Ok(count("sample-seed", given, 0, MANY)?.map_or(DEFAULT_SEED, |seed| seed as u64))
}

/// A request for single questions to the judge of conversations, outside of a scoring run. `asker` is the flag or command
/// that asks them.
pub(super) fn questions(
    judge: &JudgeSettings,
    offline: bool,
    asker: &str,
) -> Result<JudgeRequest, SettingsError> {
    if offline && !judge.replay {
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
    if judge.judge.is_none() && judge.judge_config.is_none() {
        return Err(unnamed());
    }
    if judge.batch {
        tracing::warn!("{asker} asks at once: --batch has no effect on it");
    }
    // Other settings may come from a file that is there for scoring.
    let of_conversations = |pair: &String| {
        pair.split_once('=')
            .is_some_and(|(metric, _)| metric.trim() == CONVERSATION)
    };
    let models = judge.judge_model.clone();
    let settings = Settings {
        metrics: Some(vec![CONVERSATION.to_owned()]),
        judge: JudgeSettings {
            judge_model: models.map(|pairs| pairs.into_iter().filter(of_conversations).collect()),
            batch: false,
            batch_wait: None,
            batch_poll: None,
            batch_size: None,
            batch_bytes: None,
            ..judge.clone()
        },
        offline,
        ..Settings::default()
    };
    let rules = super::request::rules(&settings)?;
    self::judge(&settings, &rules)?.ok_or_else(unnamed)
}

/// The model that the settings name for conversations, as it was given: the configuration may name the provider of a bare
/// name.
fn name_for_conversations(given: &JudgeSettings) -> Result<Option<String>, SettingsError> {
    let own = pairs("judge-model", given.judge_model.as_deref())?;
    let own = own.into_iter().rfind(|(metric, _)| metric == CONVERSATION);
    Ok(own.map(|(_, model)| model).or_else(|| given.judge.clone()))
}

/// How conversations are judged, by the model that is given unless their configuration names another. A temperature that was given
/// holds for them too.
fn conversations(
    file: JudgeFile,
    given: &JudgeSettings,
    asking: &AskingRules,
    temperature: Option<Temperature>,
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
    let named = name_for_conversations(given)?;
    let route = config.route(None, named.as_deref());
    let judge = ConversationJudge::new(config, &catalogue)
        .map_err(|e| SettingsError(format!("--judge-config: {e}")))?;
    Ok(ConversationRequest {
        judge,
        bars,
        model: full_name(given, route.as_deref().unwrap_or(&asking.model))?,
        temperature: temperature.unwrap_or(Temperature::Usual(CONVERSATION_TEMPERATURE)),
        max_output_tokens: asking.max_output_tokens,
        rounds: asking.rounds,
        anew: false,
    })
}

fn pairs(setting: &str, given: Option<&[String]>) -> Result<Vec<(String, String)>, SettingsError> {
    split_pairs(setting, given.unwrap_or_default())
}

/// Prices, by the full names of models.
pub(super) fn prices(given: &JudgeSettings) -> Result<PriceTable, SettingsError> {
    let mut prices = pairs("price", given.price.as_deref())?;
    for (model, _) in &mut prices {
        *model = full_name(given, model)?;
    }
    PriceTable::with(&prices).map_err(|e| SettingsError(format!("--price {e}")))
}

fn number(setting: &str, text: Option<&str>, most: f64) -> Result<Option<f64>, SettingsError> {
    let Some(text) = text else { return Ok(None) };
    let given = number_pairs(setting, &[format!("{setting}={text}")])?;
    match given.first() {
        Some((_, value)) if (0.0..=most).contains(value) => Ok(Some(*value)),
        _ => wrong(format!(
            "--{setting} {text}: expected a number from 0 to {most}"
        )),
    }
}

fn timeout(text: Option<&str>) -> Result<Duration, SettingsError> {
    match number("judge-timeout", text, 86_400.0)? {
        None => Ok(Duration::from_secs(120)),
        Some(seconds) if seconds >= 0.001 => Ok(Duration::from_secs_f64(seconds)),
        Some(_) => wrong("--judge-timeout: expected seconds, at least 0.001".into()),
    }
}

/// A number, or `none` for the model's own.
fn temperature(text: Option<&str>) -> Result<Option<Temperature>, SettingsError> {
    if text == Some("none") {
        return Ok(Some(Temperature::Unsaid));
    }
    Ok(number("judge-temperature", text, 2.0)?.map(Temperature::Given))
}

fn per_minute(setting: &str, text: Option<&str>) -> Result<Option<u64>, SettingsError> {
    Ok(count(setting, text, 1, MANY)?.map(|n| n as u64))
}

fn caps(settings: &Settings) -> Result<Caps, SettingsError> {
    let given = &settings.judge;
    let cap = |setting, text: &Option<String>| {
        Ok::<_, SettingsError>(count(setting, text.as_deref(), 0, MANY)?.map(|n| n as u64))
    };
    Ok(Caps {
        calls: cap("max-calls", &given.max_calls)?,
        tokens: cap("max-tokens", &given.max_tokens)?,
        cost: number("max-cost", given.max_cost.as_deref(), 1e9)?,
    })
}

fn policy(settings: &Settings) -> Result<Policy, SettingsError> {
    let choices = [
        ("production", Policy::Production),
        ("compat", Policy::Compat),
    ];
    let given = settings.judge.judge_policy.as_deref();
    Ok(one_of("judge-policy", given, &choices)?.unwrap_or_default())
}

fn models(settings: &Settings, judged: &[&str]) -> Result<BTreeMap<String, String>, SettingsError> {
    pairs("judge-model", settings.judge.judge_model.as_deref())?
        .into_iter()
        .map(|(metric, model)| {
            if !judged.contains(&metric.as_str()) {
                let near = crate::trace::nearest(&metric, judged.iter().copied());
                return wrong(format!(
                    "--judge-model {metric}: no judged metric of this run{near}"
                ));
            }
            let setting = format!("judge-model {metric}");
            let model = named(&settings.judge, &setting, &model)?;
            Ok((metric, model))
        })
        .collect()
}

pub(super) fn ledger(settings: &Settings) -> Result<PathBuf, SettingsError> {
    match &settings.judge.ledger {
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

    #[test]
    fn a_model_has_a_name() {
        for empty in ["", " ", "openai/"] {
            let judge = JudgeSettings {
                judge: Some(empty.into()),
                ledger: Some("ledger.db".into()),
                ..JudgeSettings::default()
            };
            let refused = questions(&judge, false, "--explain")
                .unwrap_err()
                .to_string();
            assert!(refused.starts_with("--judge `"), "{refused}");
            let judge = JudgeSettings {
                judge: Some("openai/test".into()),
                judge_model: Some(vec![format!("conversation={empty}")]),
                ..judge
            };
            let refused = questions(&judge, false, "--explain")
                .unwrap_err()
                .to_string();
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
            let settings = Settings {
                metrics: Some(vec![CONVERSATION.to_owned()]),
                judge: JudgeSettings {
                    judge: Some(model.to_owned()),
                    judge_model: own.map(|own| vec![format!("{CONVERSATION}={own}")]),
                    judge_config: Some(file.clone()),
                    ledger: Some("ledger.db".into()),
                    ..JudgeSettings::default()
                },
                ..Settings::default()
            };
            let rules = super::super::request::rules(&settings).unwrap();
            let request = judge(&settings, &rules).unwrap().unwrap();
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
        let asked = |judge: &JudgeSettings, offline| questions(judge, offline, "--explain");
        let named = JudgeSettings {
            judge: Some("openai/test".into()),
            ledger: Some("ledger.db".into()),
            judge_model: Some(vec![
                "confidence=openai/other".into(),
                "conversation=openai/better".into(),
            ]),
            ..JudgeSettings::default()
        };
        let request = asked(&named, false).unwrap();
        let conversation = request.conversation.unwrap();
        assert_eq!(conversation.model, "openai/better");
        let usual = Temperature::Usual(CONVERSATION_TEMPERATURE);
        assert_eq!(conversation.temperature, usual);
        let refused = asked(&named, true).unwrap_err().to_string();
        assert!(
            refused.starts_with("--offline: --explain asks"),
            "{refused}"
        );
        let replayed = JudgeSettings {
            replay: true,
            ..named
        };
        assert!(asked(&replayed, true).unwrap().replay);
        let nobody = asked(&JudgeSettings::default(), false).unwrap_err();
        assert!(
            nobody.to_string().starts_with("--explain asks a judge"),
            "{nobody}"
        );
    }
}
