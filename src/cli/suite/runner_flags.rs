//! Flags that say who is evaluated: the agent behind a command or a chat endpoint, or a file of what it did.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};

use crate::cli::AnyError;
use crate::judge::{
    Chat, Protocol, ProviderSettings, Retries, key_of_file, resolve_at, url_fault, with_variables,
};
use crate::suite::evalset::Agent;
use crate::suite::evalset::runner::{CommandRunner, CommandSettings, OpenAiSettings};

/// What `--runner` starts with where a command speaks for the agent.
const COMMAND: &str = "command:";
const OPENAI: &str = "openai";
const NONE: &str = "none";
/// How long a turn may take unless told otherwise.
const USUAL_SECONDS: f64 = 300.0;

/// Flags of agents.
#[derive(Args, Debug)]
#[command(next_help_heading = "The agent")]
pub(super) struct RunnerFlags {
    /// How the agent is asked in cases of the default mode: none, openai (a chat endpoint), or command:CMD (a process
    /// that speaks JSON lines) [default: none]
    #[arg(long, value_name = "WAY")]
    runner: Option<String>,
    /// How long a turn may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    runner_timeout: Option<f64>,
    /// One process of the command for many cases, in place of one a case
    #[arg(long)]
    runner_reuse: bool,
    /// The model of a chat endpoint
    #[arg(long, value_name = "MODEL")]
    runner_model: Option<String>,
    /// The chat endpoint, up to and with /v1; ${NAME} is a variable [default: OPENAI_BASE_URL, or OpenAI's own]
    #[arg(long, value_name = "URL")]
    runner_url: Option<String>,
    /// The file with its key [default: OPENAI_API_KEY]
    #[arg(long, value_name = "FILE")]
    runner_key_file: Option<PathBuf>,
    /// A file with a JSON object: further members of each request, as `tools` and `temperature`
    #[arg(long, value_name = "FILE")]
    runner_body: Option<PathBuf>,
    /// What answers the model's calls of tools: JSON in, JSON out, once a call. Without it, no tool is available
    #[arg(long, value_name = "CMD")]
    tool_command: Option<String>,
    /// How often in a turn the model may call tools [default: 8]
    #[arg(long, value_name = "N")]
    max_tool_rounds: Option<u32>,
    /// Cases that the agent works on at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cases_at_once: u16,
}

/// A time in seconds, as flags take it.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => Err("expected seconds, as in 30 or 0.5".to_owned()),
    }
}

impl RunnerFlags {
    /// Cases that the agent works on at the same time, at least 1.
    pub fn cases_at_once(&self) -> usize {
        usize::from(self.cases_at_once)
    }

    /// What tells one agent from another; only a hash of it is kept.
    pub fn described(&self) -> String {
        format!(
            "{:?} {:?} {:?} {:?} {:?}",
            self.runner, self.runner_model, self.runner_url, self.runner_body, self.tool_command
        )
    }

    /// Who is asked.
    ///
    /// # Errors
    /// If flags don't fit each other, or the endpoint can't be asked.
    pub fn agent(&self, offline: bool) -> Result<Agent, AnyError> {
        let of_command = [("--runner-reuse", self.runner_reuse)];
        let of_chat = [
            ("--runner-model", self.runner_model.is_some()),
            ("--runner-url", self.runner_url.is_some()),
            ("--runner-key-file", self.runner_key_file.is_some()),
            ("--runner-body", self.runner_body.is_some()),
            ("--tool-command", self.tool_command.is_some()),
            ("--max-tool-rounds", self.max_tool_rounds.is_some()),
        ];
        let of_any = [
            ("--runner-timeout", self.runner_timeout.is_some()),
            ("--cases-at-once", self.cases_at_once > 1),
        ];
        let idle = |flags: &[(&str, bool)], needs: &str| -> Result<(), AnyError> {
            match flags.iter().find(|(_, given)| *given) {
                Some((flag, _)) => {
                    Err(format!("{flag} has no effect without --runner {needs}").into())
                }
                None => Ok(()),
            }
        };
        let timeout = Duration::from_secs_f64(self.runner_timeout.unwrap_or(USUAL_SECONDS));
        match self.runner.as_deref().unwrap_or(NONE) {
            NONE => {
                idle(&of_any, "command:CMD or openai")?;
                idle(&of_command, "command:CMD")?;
                idle(&of_chat, OPENAI)?;
                Ok(Agent::None)
            }
            OPENAI => {
                idle(&of_command, "command:CMD")?;
                if offline {
                    let problem = "--offline: --runner openai asks a model over the network; leave one of them out";
                    return Err(problem.into());
                }
                let settings = OpenAiSettings {
                    body: self.body()?,
                    tool_command: self.tool_command.clone(),
                    timeout,
                    max_tool_rounds: self
                        .max_tool_rounds
                        .unwrap_or(OpenAiSettings::default().max_tool_rounds),
                };
                Ok(Agent::Chat(Box::new(self.chat(timeout)?), settings))
            }
            way => match way.strip_prefix(COMMAND).map(str::trim) {
                Some("") => Err("--runner command: has no command behind it".into()),
                Some(command) => {
                    idle(&of_chat, OPENAI)?;
                    Ok(Agent::Runner(Box::new(CommandRunner::new(
                        CommandSettings {
                            command: command.to_owned(),
                            timeout,
                            reuse: self.runner_reuse,
                            ..CommandSettings::default()
                        },
                    ))))
                }
                None => Err(format!("--runner {way}: expected none, openai or command:CMD").into()),
            },
        }
    }

    fn chat(&self, timeout: Duration) -> Result<Chat, AnyError> {
        let Some(model) = &self.runner_model else {
            return Err("--runner openai: name the model with --runner-model".into());
        };
        let (url, filled) = match &self.runner_url {
            Some(url) => {
                let (url, filled) = with_variables("runner-url", url)?;
                (Some(url), filled)
            }
            None => {
                let url = std::env::var("OPENAI_BASE_URL").ok();
                (url.filter(|url| !url.is_empty()), Vec::new())
            }
        };
        if let Some(fault) = url.as_deref().and_then(url_fault) {
            return Err(format!("the address of the agent: {fault}").into());
        }
        let settings = ProviderSettings {
            url,
            filled,
            key: self
                .runner_key_file
                .as_deref()
                .map(key_of_file)
                .transpose()?,
            connect_timeout: Duration::from_secs(10),
            ..ProviderSettings::default()
        };
        let model = resolve_at(model, Protocol::OpenAi);
        Ok(Chat::new(&settings, &model, Retries::default(), timeout)?)
    }

    fn body(&self) -> Result<Map<String, Value>, AnyError> {
        let Some(path) = &self.runner_body else {
            return Ok(Map::new());
        };
        let shown = path.display();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| format!("--runner-body {shown}: {e}"))?;
        match serde_json::from_str(&text) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err(format!("--runner-body {shown}: expected a JSON object").into()),
            Err(e) => Err(format!("--runner-body {shown}: {e}").into()),
        }
    }
}
