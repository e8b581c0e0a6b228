//! `--notify`: telling somebody of a run that has ended, once.

use std::cell::Cell;
use std::path::Path;

use super::Outcome;
use crate::job::{Job, NoticeFormat, NotifyWhen, SettingsError};
use crate::judge::{Webhook, WebhookError, with_variables};
use crate::report::{Notice, Places};
use crate::summary::Summary;
use crate::text::{origin_of, with_origins};

/// What is given in the place of an address where nobody is to be told.
pub(super) const NOBODY: &str = "none";
/// Hosts whose webhooks take Slack's JSON and nothing else.
const SLACK: [&str; 2] = ["hooks.slack.com", "hooks.slack-gov.com"];

/// Tells somebody of one run.
#[derive(Debug)]
pub(super) struct Notifier {
    webhook: Webhook,
    format: NoticeFormat,
    link: Option<String>,
    when: NotifyWhen,
    /// Whether texts of traces are told.
    texts: bool,
    /// Whether the run was told of: there is one notice of a run.
    told: Cell<bool>,
}

impl Notifier {
    /// Checks what does not hang on the environment.
    ///
    /// # Errors
    /// [`SettingsError`] for what links can't begin with, and where no connection may be opened.
    pub fn check(job: &Job) -> Result<(), SettingsError> {
        if job.offline && told(job).is_some() {
            return Err(SettingsError(
                "--offline: --notify opens a connection; leave one of them out, or say --notify none"
                    .into(),
            ));
        }
        match job.notify_link.as_deref().and_then(link_fault) {
            None => Ok(()),
            Some(fault) => Err(SettingsError(format!("--notify-link: {fault}"))),
        }
    }

    /// Who is told of a run by these settings; none where nobody is.
    ///
    /// # Errors
    /// [`SettingsError`] for an address that is none, for a variable that is not set, for what links can't begin with, and
    /// where no connection may be opened. The message does not show the address.
    pub fn of(job: &Job) -> Result<Option<Self>, SettingsError> {
        Self::check(job)?;
        let Some(address) = told(job) else {
            return Ok(None);
        };
        let (url, filled) =
            with_variables("notify", address).map_err(|e| SettingsError(e.to_string()))?;
        let webhook =
            Webhook::new(&url, &filled).map_err(|e| SettingsError(format!("--notify: {e}")))?;
        let host = webhook.host().split("://").nth(1).unwrap_or_default();
        let slack = SLACK.contains(&host);
        Ok(Some(Self {
            format: job.notify_format.unwrap_or(match slack {
                true => NoticeFormat::Slack,
                false => NoticeFormat::Json,
            }),
            webhook,
            link: job.notify_link.clone(),
            when: job.notify_when.unwrap_or_default(),
            texts: job.notify_texts,
            told: Cell::new(false),
        }))
    }

    /// Tells of a run that is there, whole. `name` stands before that of its directory, where it has one.
    pub fn ended(
        &self,
        name: Option<&str>,
        folder: &Path,
        report: bool,
        summary: &Summary,
        outcome: Outcome,
    ) {
        let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let places = Places {
            results: origin_of(&whole),
            report: report.then(|| origin_of(&whole.join("report.html"))),
            link: self.link.clone(),
        };
        let run = title(name, folder);
        self.tell(
            &Notice::of_run(&run, summary, outcome.code(), places, self.texts),
            outcome.code(),
        );
    }

    /// Tells of a run that failed as a whole, unless it was told of: what comes after a run that is there is not the run.
    pub fn failed(&self, name: Option<&str>, folder: &Path, error: &str) {
        let error = with_origins(error);
        self.tell(&Notice::of_failure(&title(name, folder), &error), 2);
    }

    fn tell(&self, notice: &Notice, exit_code: u8) {
        let passed_over = self.when == NotifyWhen::Problem && exit_code == 0;
        if passed_over || self.told.replace(true) {
            return;
        }
        let (content_type, body) = notice.body(self.format);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| WebhookError::Client(e.to_string()));
        let sent =
            runtime.and_then(|runtime| runtime.block_on(self.webhook.send(content_type, &body)));
        match sent {
            Ok(()) => tracing::info!(to = self.webhook.host(), "told of the run"),
            Err(why) => tracing::warn!(
                "--notify: nobody was told of this run, whose exit code stays as it is: {}",
                crate::report::plain(&why.to_string())
            ),
        }
    }
}

/// The address that is told, as it was given.
pub(super) fn told(job: &Job) -> Option<&str> {
    job.notify.as_deref().filter(|given| *given != NOBODY)
}

/// What a run is called: by its directory, and before that by the name of its monitor.
fn title(name: Option<&str>, folder: &Path) -> String {
    let folder = folder.file_name().unwrap_or_default().to_string_lossy();
    match name {
        Some(name) => format!("{name} ({folder})"),
        None => folder.into_owned(),
    }
}

/// What is wrong with what links begin with.
fn link_fault(link: &str) -> Option<&'static str> {
    let known = ["http://", "https://", "file:///"];
    let odd = |c: char| c.is_control() || c.is_whitespace() || "<>|\"".contains(c);
    if !known.iter().any(|scheme| link.starts_with(scheme)) {
        return Some("expected what an address begins with: http://, https:// or file:///");
    }
    if link.contains(odd) {
        return Some("no spaces, and no < > | \" in it");
    }
    link.contains(['?', '#'])
        .then_some("`/report.html` is put behind it, so that it can have neither `?` nor `#`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Given;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Notifier>, SettingsError> {
        let given = pairs.iter().fold(Given::default(), |given, (name, value)| {
            given.with(name, *value)
        });
        Notifier::of(&Job::of(given).unwrap())
    }

    #[test]
    fn slack_gets_its_own_json_and_others_all_figures() {
        let format = |url: &str| of(&[("notify", url)]).unwrap().unwrap().format;
        assert_eq!(
            format("https://hooks.slack.com/services/T/B/X"),
            NoticeFormat::Slack
        );
        assert_eq!(
            format("https://hooks.slack.com.evil.example/x"),
            NoticeFormat::Json
        );
        assert_eq!(format("http://127.0.0.1:9/x"), NoticeFormat::Json);
        assert!(of(&[("notify", "none")]).unwrap().is_none());
        assert!(of(&[]).unwrap().is_none());
    }

    #[test]
    fn what_can_not_be_is_refused_without_showing_the_address() {
        for (pairs, expected) in [
            (&[("notify", "ftp://h/canary")][..], "http://"),
            (
                &[("notify", "${NO_SUCH_VARIABLE_OF_TESTS}/canary")],
                "NO_SUCH_VARIABLE",
            ),
            (
                &[("notify", "http://h/canary"), ("notify_link", "r.example")],
                "--notify-link",
            ),
            (
                &[
                    ("notify", "http://h/canary"),
                    ("notify_link", "http://r/?x=1"),
                ],
                "neither",
            ),
        ] {
            let error = of(pairs).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains("canary"),
                "{error}"
            );
        }
        let offline = Given::default()
            .with("notify", "http://h/canary")
            .with("offline", true);
        let error = Notifier::of(&Job::of(offline).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("--offline") && !error.contains("canary"),
            "{error}"
        );
    }
}
