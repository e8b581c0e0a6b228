//! Settings of judges.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::job::{list, pairs, text};

/// Settings that only matter to metrics which ask a judge.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[command(next_help_heading = "Judges")]
pub struct JudgeSettings {
    /// The judge model: openai/gpt-4o-mini, anthropic/…, gemini/…, or any name with --judge-url
    #[arg(long, value_name = "MODEL")]
    pub judge: Option<String>,
    /// Other judge models for some metrics: confidence=openai/gpt-4o-mini
    #[arg(long, value_name = "METRIC=MODEL,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub judge_model: Option<Vec<String>>,
    /// How conversations are judged: a TOML, YAML or JSON file with metrics and their weights, pass_threshold, model,
    /// custom_metrics and more
    #[arg(long, value_name = "FILE")]
    pub judge_config: Option<PathBuf>,
    /// An endpoint of your own, up to and with /v1
    #[arg(long, value_name = "URL")]
    pub judge_url: Option<String>,
    /// What the endpoint at --judge-url speaks, whatever the model is called: openai, anthropic or gemini [default: openai]
    #[arg(long, value_name = "PROTOCOL")]
    pub judge_protocol: Option<String>,
    /// A file with the key [default: the provider's variable, such as OPENAI_API_KEY]
    #[arg(long, value_name = "FILE")]
    pub judge_key_file: Option<PathBuf>,
    /// More headers: 'api-key=${AZURE_KEY}'
    #[arg(long, value_name = "NAME=VALUE,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub judge_headers: Option<Vec<String>>,
    /// Judge only traces whose signals pass this SQL condition: 'coherence < 0.6 OR loop_detection < 0.5'
    #[arg(long, value_name = "CONDITION")]
    pub judge_where: Option<String>,
    /// Judge this share of the traces that pass all filters, chosen by trace id; of conversations, this share of the sessions
    /// with such a trace, by session id [default: 1]
    #[arg(long, value_name = "SHARE")]
    #[serde(deserialize_with = "text")]
    pub judge_sample: Option<String>,
    /// Another seed chooses other samples [default: 0]
    #[arg(long, value_name = "SEED")]
    #[serde(deserialize_with = "text")]
    pub sample_seed: Option<String>,
    /// Judge only traces: whose name contains this text, whose status, environment, user, release is this,
    /// that started at or after `from` and before `to`
    #[arg(long, value_name = "FILTER=VALUE,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub judge_only: Option<Vec<String>>,
    /// Judge only traces with one of these tags
    #[arg(long, value_name = "TAG,...", value_delimiter = ',')]
    #[serde(deserialize_with = "list")]
    pub judge_tags: Option<Vec<String>>,
    /// Randomness of the judge, from 0, or `none` to leave it to the model [default: 1.0, as PandaProbe has it, and 0.2 for
    /// conversations; none for models that reason, which refuse it: gpt-5, o3 and their like]
    #[arg(long, value_name = "T")]
    #[serde(deserialize_with = "text")]
    pub judge_temperature: Option<String>,
    /// Most tokens of a reply [default: 4096]
    #[arg(long, value_name = "TOKENS")]
    #[serde(deserialize_with = "text")]
    pub judge_max_output: Option<String>,
    /// Longest trace that is shown to a judge, in characters of its JSON [default: 400000]; conversations have max_input_tokens
    /// in --judge-config
    #[arg(long, value_name = "CHARACTERS")]
    #[serde(deserialize_with = "text")]
    pub judge_max_trace: Option<String>,
    /// A longer trace: fail its metrics, or cut the middle out and say so [default: fail]
    #[arg(long, value_name = "WHAT")]
    pub judge_long_traces: Option<String>,
    /// How a question is repeated: production, or compat (three attempts, each also without schema, no waits) [default: production]
    #[arg(long, value_name = "POLICY")]
    pub judge_policy: Option<String>,
    /// Ask stages that several metrics have in common once for each metric
    #[arg(long)]
    pub judge_unshared: bool,
    /// Calls under way at once [default: 16]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub judge_concurrency: Option<String>,
    /// Longest wait for one answer, in seconds [default: 120]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "text")]
    pub judge_timeout: Option<String>,
    /// Begin no call, and no wait that would end later, so many seconds after the start; what is left is pending, for another run
    /// to go on
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "text")]
    pub judge_deadline: Option<String>,
    /// Tries of a call that fails for a time [default: 5]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub judge_tries: Option<String>,
    /// Rounds of a question whose replies can't be used. One more than in an earlier run asks again what failed there so; other
    /// failures are asked again in any case [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub judge_rounds: Option<String>,
    /// Requests that may start in any minute
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub requests_per_minute: Option<String>,
    /// Tokens that may be asked for in any minute
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub tokens_per_minute: Option<String>,
    /// Stop before more calls than this
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub max_calls: Option<String>,
    /// Stop before more tokens than this
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub max_tokens: Option<String>,
    /// Stop before more US dollars than this
    #[arg(long, value_name = "DOLLARS")]
    #[serde(deserialize_with = "text")]
    pub max_cost: Option<String>,
    /// Dollars for a million tokens: openai/gpt-4o=2.5:10 (input:output, or input:output:cached input); not halved
    /// in batches, as shipped prices are
    #[arg(long, value_name = "MODEL=PRICE,...", value_delimiter = ',')]
    #[serde(deserialize_with = "pairs")]
    pub price: Option<Vec<String>>,
    /// The ledger of judge calls [default: nightmill/ledger.db in the user's data folder]
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Send nothing: take answers from the ledger alone
    #[arg(long)]
    pub replay: bool,
    /// Ask in batches (OpenAI's batch files): cheaper, answered within a day. What is not answered yet is pending; run again
    /// later to go on
    #[arg(long)]
    pub batch: bool,
    /// Wait so long for batches, in minutes [default: 0]
    #[arg(long, value_name = "MINUTES")]
    #[serde(deserialize_with = "text")]
    pub batch_wait: Option<String>,
    /// Look at batches every so often while waiting, in seconds [default: 60]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "text")]
    pub batch_poll: Option<String>,
    /// Most calls in a batch [default: 50000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub batch_size: Option<String>,
    /// Most bytes of a batch file [default: 200000000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub batch_bytes: Option<String>,
}

impl JudgeSettings {
    /// These settings where given, else the others.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            judge: self.judge.or(other.judge),
            judge_model: self.judge_model.or(other.judge_model),
            judge_config: self.judge_config.or(other.judge_config),
            judge_url: self.judge_url.or(other.judge_url),
            judge_protocol: self.judge_protocol.or(other.judge_protocol),
            judge_key_file: self.judge_key_file.or(other.judge_key_file),
            judge_headers: self.judge_headers.or(other.judge_headers),
            judge_where: self.judge_where.or(other.judge_where),
            judge_sample: self.judge_sample.or(other.judge_sample),
            sample_seed: self.sample_seed.or(other.sample_seed),
            judge_only: self.judge_only.or(other.judge_only),
            judge_tags: self.judge_tags.or(other.judge_tags),
            judge_temperature: self.judge_temperature.or(other.judge_temperature),
            judge_max_output: self.judge_max_output.or(other.judge_max_output),
            judge_max_trace: self.judge_max_trace.or(other.judge_max_trace),
            judge_long_traces: self.judge_long_traces.or(other.judge_long_traces),
            judge_policy: self.judge_policy.or(other.judge_policy),
            judge_unshared: self.judge_unshared || other.judge_unshared,
            judge_concurrency: self.judge_concurrency.or(other.judge_concurrency),
            judge_timeout: self.judge_timeout.or(other.judge_timeout),
            judge_deadline: self.judge_deadline.or(other.judge_deadline),
            judge_tries: self.judge_tries.or(other.judge_tries),
            judge_rounds: self.judge_rounds.or(other.judge_rounds),
            requests_per_minute: self.requests_per_minute.or(other.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.or(other.tokens_per_minute),
            max_calls: self.max_calls.or(other.max_calls),
            max_tokens: self.max_tokens.or(other.max_tokens),
            max_cost: self.max_cost.or(other.max_cost),
            price: self.price.or(other.price),
            ledger: self.ledger.or(other.ledger),
            replay: self.replay || other.replay,
            batch: self.batch || other.batch,
            batch_wait: self.batch_wait.or(other.batch_wait),
            batch_poll: self.batch_poll.or(other.batch_poll),
            batch_size: self.batch_size.or(other.batch_size),
            batch_bytes: self.batch_bytes.or(other.batch_bytes),
        }
    }
}
