//! All settings of a job: name, help, kind and theme, each in one place.

use std::path::PathBuf;

use serde_json::Value;

use super::value::{
    BucketCount, Bytes, Count, DeviceName, FileFormat, GpuGraph, Kind, NoEvidence, NoticeFormat,
    NotifyWhen, Number, Numbers, Pairs, PrecisionName, SettingValue,
};
use super::{Given, SettingsError};
use crate::judge::{MOST_ROUNDS, Policy, Protocol, Temperature};
use crate::question::WhenTooLong;
use crate::text::TextMode;
use crate::trace::{EpochUnit, OnBadFile};

/// Most of anything that is counted.
const MANY: usize = 1 << 48;
/// Most tokens of a reply.
const MOST_OUTPUT: usize = 1 << 20;

/// What a setting is about; a theme of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// The settings that matter first.
    Main,
    /// How files are read.
    Input,
    /// How scores come about.
    Scores,
    /// The embedding model at work.
    Encoder,
    /// Who judges, where, and what is known already.
    Judges,
    /// What judges are shown.
    Judged,
    /// How judges are asked.
    Questions,
    /// What judging may take.
    Limits,
    /// Judging in batches.
    Batches,
    /// Who is told of a run that has ended.
    Alerts,
}

/// A setting, as help and files name it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key in files: `memory_limit`. The flag is `--memory-limit`, the variable `NIGHTMILL_MEMORY_LIMIT`.
    pub name: &'static str,
    /// What it means, in words.
    pub help: &'static str,
    /// What stands for its value in help; empty for a switch.
    pub value: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// The values that it can have; empty if there is no list of them.
    pub choices: &'static [&'static str],
    /// What it is about.
    pub theme: Theme,
}

impl Setting {
    /// Whether it only matters to metrics that ask a judge.
    pub fn of_judges(&self) -> bool {
        let judging = [
            Theme::Judges,
            Theme::Judged,
            Theme::Questions,
            Theme::Limits,
            Theme::Batches,
        ];
        (judging.contains(&self.theme) && self.name != "offline")
            || ["judge", "max_cost"].contains(&self.name)
    }

    /// Whether it says who is told of a run. That changes nothing in it, so that no record of the run has such a setting.
    pub fn of_alerts(&self) -> bool {
        self.theme == Theme::Alerts
    }

    /// Whether its value is a path, which a manifest keeps whole.
    pub fn is_path(&self) -> bool {
        self.kind == Kind::Path || self.name == "signals"
    }

    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }
}

/// A member of [`Job`].
trait Member: Default {
    const KIND: Kind;
    const CHOICES: &'static [&'static str];

    fn read(setting: &str, given: &Value) -> Result<Self, String>;
}

impl Member for bool {
    const KIND: Kind = Kind::Switch;
    const CHOICES: &'static [&'static str] = &[];

    fn read(_: &str, given: &Value) -> Result<Self, String> {
        Ok(*given == Value::Bool(true))
    }
}

impl<T: SettingValue> Member for Option<T> {
    const KIND: Kind = T::KIND;
    const CHOICES: &'static [&'static str] = T::CHOICES;

    fn read(setting: &str, given: &Value) -> Result<Self, String> {
        T::read(setting, given).map(Some)
    }
}

macro_rules! settings {
    ($($theme:ident { $($(#[doc = $help:literal])+ $name:ident($value:literal): $type:ty,)+ })+) => {
        /// What a run, a plan or a query is to do: every setting, checked one by one. None where nothing was given.
        #[derive(Clone, Debug)]
        pub struct Job {
            /// The settings as they were given.
            pub given: Given,
            $($($(#[doc = $help])+ pub $name: $type,)+)+
        }

        /// All settings, in the order of their themes.
        pub const SETTINGS: &[Setting] = &[$($(Setting {
            name: stringify!($name),
            help: concat!($($help),+),
            value: $value,
            kind: <$type as Member>::KIND,
            choices: <$type as Member>::CHOICES,
            theme: Theme::$theme,
        },)+)+];

        impl Job {
            /// The job of what was given.
            ///
            /// # Errors
            /// [`SettingsError`] naming the setting, its value and what is expected.
            pub fn of(given: Given) -> Result<Self, SettingsError> {
                Ok(Self {
                    $($($name: member(&given, stringify!($name))?,)+)+
                    given,
                })
            }
        }
    };
}

fn member<M: Member>(given: &Given, name: &str) -> Result<M, SettingsError> {
    match given.get(name) {
        None => Ok(M::default()),
        Some(value) => M::read(&name.replace('_', "-"), value).map_err(SettingsError),
    }
}

settings! {
    Main {
        /// Metrics to compute; all: every metric of traces and sessions, those that ask a judge among them; spans: those that look at spans [default: those that need no judge either]
        metrics("METRIC,..."): Option<Vec<String>>,
        /// A model folder: of sentence-transformers, transformers or Model2Vec [default: the model inside the program]
        model("DIR"): Option<PathBuf>,
        /// The judge model: openai/gpt-4o-mini, anthropic/…, gemini/…, or any name with --judge-url
        judge("MODEL"): Option<String>,
        /// Stop before more US dollars than this
        max_cost("DOLLARS"): Option<Number<1_000_000_000>>,
        /// Exit with 1 if a metric's mean is lower: agent_reliability=0.7
        fail_under("METRIC=MEAN,..."): Option<Numbers>,
        /// Exit with 1 if a run that continues another one drifted from the nights before it, as `runs changes
        /// --fail-on-drift` does
        fail_on_drift(""): bool,
        /// Memory to stay within, beside the model: 512M, 2G [default: 2G]
        memory_limit("SIZE"): Option<Bytes>,
        /// Threads [default: all cores]
        threads("N"): Option<Count<1, 1024>>,
        /// Go on with the same run where it was broken off: buckets that are finished are not scored again
        resume(""): bool,
        /// Replace an existing output; in a bucket, the old run goes before the new one is there
        overwrite(""): bool,
        /// Print the summary as JSON
        json(""): bool,
    }
    Input {
        /// The format of the files; auto looks at each [default: auto]
        format("FORMAT"): Option<FileFormat>,
        /// A TOML file that says how a format of your own becomes traces; see the README's "Formats"
        mapping("FILE"): Option<PathBuf>,
        /// Columns under other names: input=question,output=answer; also those that judges and filters look at, as
        /// user_id=customer
        map("COLUMN=NAME,..."): Option<Pairs>,
        /// Text columns whose cells are JSON documents (input, output)
        json_columns("COLUMN,..."): Option<Vec<String>>,
        /// Text columns (input, output) whose cells are plain text even where they look like JSON
        text_columns("COLUMN,..."): Option<Vec<String>>,
        /// What numbers in columns of times count since 1970; without it numbers are no times
        time_unit("UNIT"): Option<EpochUnit>,
        /// What is embedded of a JSON cell: the whole document (compat), or the messages' texts (content)
        /// [default: compat; content for other formats than nightmill's own]
        text_mode("MODE"): Option<TextMode>,
        /// A file that can't be read: fail the run, or skip and quarantine it [default: fail]
        on_bad_file("WHAT"): Option<OnBadFile>,
    }
    Scores {
        /// Signals computed elsewhere, by trace_id: confidence, tool_correctness, coherence, loop_detection
        signals("FILE"): Option<String>,
        /// Signal weights of the session metrics: confidence=1.0,tool_correctness=0.5; metrics of spans weigh 0 unless
        /// given: stuck=0.5
        weights("SIGNAL=WEIGHT,..."): Option<Numbers>,
        /// A file of `nightmill calibrate`: thresholds where none are given, and what signals count for in the order of
        /// sessions
        calibration("FILE"): Option<PathBuf>,
        /// Thresholds: coherence=0.6
        threshold("METRIC=THRESHOLD,..."): Option<Numbers>,
        /// Earlier traces of the session that loop detection looks at [default: 3]
        window("TRACES"): Option<Count<1, 1000>>,
        /// In how many buckets the sessions of a run are scored and written, which changes no score; auto: as many as suit
        /// its rows, or as the run has that it continues [default: auto]
        buckets("N"): Option<BucketCount>,
        /// A quick model, such as a static table of `models distill`, that scores all pairs of texts; the model is only
        /// asked where that does not decide. Scores that it decides are estimates, and say so
        triage("DIR"): Option<PathBuf>,
        /// The score of a session without evaluable trace; one as in PandaProbe [default: null]
        on_no_evaluable("WHAT"): Option<NoEvidence>,
    }
    Encoder {
        /// What the model puts before every text: the name of one of its prompts, `none` for nothing, or text:… for a
        /// text of your own [default: the model's default prompt, if it has one]
        prompt("PROMPT"): Option<String>,
        /// Keep the first components of each vector only, for models that are trained for it (Matryoshka) [default: all]
        dim("N"): Option<Count<1, 65_536>>,
        /// Where to encode [default: auto]
        device("DEVICE"): Option<DeviceName>,
        /// How a GPU goes through a model: padded, or packed, which is quicker by design, and so far compiled and emulated,
        /// not measured on a card [default: padded]
        gpu_graph("GRAPH"): Option<GpuGraph>,
        /// What to compute in; auto is the fastest that is true enough, f16 is for a GPU [default: auto]
        precision("PRECISION"): Option<PrecisionName>,
        /// A folder that keeps vectors from run to run [default: nightmill/embeddings in the user's cache folder]
        cache("DIR"): Option<PathBuf>,
        /// Most that the cache may take on disk, over all models [default: 10G]
        cache_size("SIZE"): Option<Bytes>,
        /// Keep no vectors from run to run
        no_cache(""): bool,
    }
    Judges {
        /// Refuse everything that would open a connection: metrics that ask a judge, and --notify
        offline(""): bool,
        /// Send nothing: take answers from the ledger alone
        replay(""): bool,
        /// The ledger of judge calls [default: nightmill/ledger.db in the user's data folder]
        ledger("FILE"): Option<PathBuf>,
        /// Other judge models for some metrics: confidence=openai/gpt-4o-mini
        judge_model("METRIC=MODEL,..."): Option<Pairs>,
        /// How conversations are judged: a TOML, YAML or JSON file with metrics and their weights, pass_threshold,
        /// model, custom_metrics and more
        judge_config("FILE"): Option<PathBuf>,
        /// An endpoint of your own, up to and with /v1
        judge_url("URL"): Option<String>,
        /// What the endpoint at --judge-url speaks, whatever the model is called [default: openai]
        judge_protocol("PROTOCOL"): Option<Protocol>,
        /// A file with the key [default: the provider's variable, such as OPENAI_API_KEY]
        judge_key_file("FILE"): Option<PathBuf>,
        /// More headers: 'api-key=${AZURE_KEY}'
        judge_headers("NAME=VALUE,..."): Option<Pairs>,
    }
    Judged {
        /// Judge only traces whose signals pass this SQL condition: 'coherence < 0.6 OR loop_detection < 0.5'
        judge_where("CONDITION"): Option<String>,
        /// Judge only traces: whose name contains this text, whose status, environment, user, release is this, that
        /// started at or after `from` and before `to`
        judge_only("FILTER=VALUE,..."): Option<Pairs>,
        /// Judge only traces with one of these tags
        judge_tags("TAG,..."): Option<Vec<String>>,
        /// Judge this share of the traces that pass all filters, chosen by trace id; of conversations, this share
        /// of the sessions with such a trace, by session id [default: 1]
        judge_sample("SHARE"): Option<Number<1>>,
        /// Another seed chooses other samples [default: 0]
        sample_seed("SEED"): Option<Count<0, MANY>>,
        /// Longest trace that is shown to a judge, in characters of its JSON [default: 400000]; conversations have
        /// max_input_tokens in --judge-config
        judge_max_trace("CHARACTERS"): Option<Count<1000, MANY>>,
        /// A longer trace: fail its metrics, or cut the middle out and say so [default: fail]
        judge_long_traces("WHAT"): Option<WhenTooLong>,
    }
    Questions {
        /// Randomness of the judge, from 0, or `none` to leave it to the model [default: 1.0, as PandaProbe has it,
        /// and 0.2 for conversations; none for models that reason, which refuse it: gpt-5, o3 and their like]
        judge_temperature("T"): Option<Temperature>,
        /// Most tokens of a reply [default: 4096]
        judge_max_output("TOKENS"): Option<Count<16, MOST_OUTPUT>>,
        /// How a question is repeated; compat is three attempts, each also without schema, no waits [default:
        /// production]
        judge_policy("POLICY"): Option<Policy>,
        /// Ask stages that several metrics have in common once for each metric
        judge_unshared(""): bool,
        /// Rounds of a question whose replies can't be used. One more than in an earlier run asks again what failed
        /// there so; other failures are asked again in any case [default: 1]
        judge_rounds("N"): Option<Count<1, { MOST_ROUNDS as usize }>>,
    }
    Limits {
        /// Stop before more calls than this
        max_calls("N"): Option<Count<0, MANY>>,
        /// Stop before more tokens than this
        max_tokens("N"): Option<Count<0, MANY>>,
        /// Dollars for a million tokens: openai/gpt-4o=2.5:10 (input:output, or input:output:cached input); not
        /// halved in batches, as shipped prices are
        price("MODEL=PRICE,..."): Option<Pairs>,
        /// Requests that may start in any minute
        requests_per_minute("N"): Option<Count<1, MANY>>,
        /// Tokens that may be asked for in any minute
        tokens_per_minute("N"): Option<Count<1, MANY>>,
        /// Calls under way at once [default: 16]
        judge_concurrency("N"): Option<Count<1, 4096>>,
        /// Longest wait for one answer, in seconds [default: 120]
        judge_timeout("SECONDS"): Option<Number<86_400>>,
        /// Begin no call, and no wait that would end later, so many seconds after the start; what is left is
        /// pending, for another run to go on
        judge_deadline("SECONDS"): Option<Number<100_000_000>>,
        /// Tries of a call that fails for a time [default: 5]
        judge_tries("N"): Option<Count<1, 100>>,
    }
    Batches {
        /// Ask in batches (OpenAI's batch files): cheaper, answered within a day. What is not answered yet is
        /// pending; run again later to go on
        batch(""): bool,
        /// Wait so long for batches, in minutes [default: 0]
        batch_wait("MINUTES"): Option<Number<1_000_000>>,
        /// Look at batches every so often while waiting, in seconds [default: 60]
        batch_poll("SECONDS"): Option<Number<1_000_000>>,
        /// Most calls in a batch [default: 50000]
        batch_size("N"): Option<Count<1, 50_000>>,
        /// Most bytes of a batch file [default: 200000000]
        batch_bytes("N"): Option<Count<1000, 200_000_000>>,
    }
    Alerts {
        /// Post a summary of the run to this address when it has ended, as to a webhook of Slack; the address is a secret:
        /// '${SLACK_WEBHOOK}' is the value of that variable. Ids, numbers and reasons are posted, no texts of traces but with --notify-texts. If
        /// that fails there is a warning; the exit code stays that of the run. none: nobody is told
        notify("URL"): Option<String>,
        /// What is posted: JSON as Slack takes it, a plain text, or JSON with all figures [default: slack for an address
        /// of hooks.slack.com, else json]
        notify_format("FORMAT"): Option<NoticeFormat>,
        /// What links into the report begin with, as in `https://reports.example.com/{run}`; {run} stands for the name of
        /// the run directory [default: no links, and the path of the report]
        notify_link("BASE"): Option<String>,
        /// Of which runs: all, or those with another exit code than 0 [default: always]
        notify_when("WHEN"): Option<NotifyWhen>,
        /// Post texts of traces too: of each session that the notice names, the beginnings of one input and its output
        notify_texts(""): bool,
    }
}
