//! When asking is over: an endpoint refused so clearly, or is away for so long, that whoever asks on gets nothing but more of the same.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::judge::call::{Call, CallError, CallErrorKind};

/// What an endpoint refused in this run, and what it answered.
#[derive(Debug)]
pub(super) struct Refusals {
    /// How long an endpoint that has answered may be away.
    patience: Duration,
    state: Mutex<State>,
    /// Something is over that was not before.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Why nothing more is asked there.
    over: Option<String>,
    /// Why a model is not asked there any more.
    over_for: BTreeMap<String, String>,
    /// The endpoint has said something, be it a refusal.
    answered: bool,
    /// Models that have replied.
    replied: HashSet<String>,
    /// Since when no connection comes about.
    away: Option<Instant>,
    /// What was said to reply formats, by model and format; none of those that were answered.
    formats: BTreeMap<(String, &'static str), Option<String>>,
}

impl Refusals {
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            state: Mutex::default(),
            ended: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the endpoint has ever said anything in this run.
    pub fn answered(&self) -> bool {
        self.state().answered
    }

    /// A model does not take the call's reply format. Of one that it has answered, that is a word on a single question.
    pub fn refuse_format(&self, call: &Call, message: &str) {
        if let Some(format) = &call.format {
            let key = (call.model.clone(), format.name);
            let formats = &mut self.state().formats;
            formats
                .entry(key)
                .or_insert_with(|| Some(message.to_owned()));
        }
    }

    /// A model replied in the call's format.
    pub fn take_format(&self, call: &Call) {
        if let Some(format) = &call.format {
            let key = (call.model.clone(), format.name);
            self.state().formats.insert(key, None);
        }
    }

    /// What a model said to the call's reply format, if it refused it and has never replied in it.
    pub fn format(&self, call: &Call) -> Option<String> {
        let format = call.format.as_ref()?;
        let key = (call.model.clone(), format.name);
        self.state().formats.get(&key)?.clone()
    }

    /// A model replied.
    pub fn replied(&self, model: &str) {
        let mut state = self.state();
        (state.answered, state.away) = (true, None);
        if !state.replied.contains(model) {
            state.replied.insert(model.to_owned());
        }
    }

    /// A call failed. `again` tells whether the same call found no connection before.
    pub fn failed(&self, model: &str, error: &CallError, again: bool) {
        use CallErrorKind::{Connection, Denied, Forbidden, NoConnection, NotFound, Timeout};
        let mut guard = self.state();
        let state = &mut *guard;
        if error.kind != NoConnection {
            state.away = None;
            state.answered |= !matches!(error.kind, Connection | Timeout);
        }
        let replied = state.replied.contains(model);
        match error.kind {
            Denied => {
                let over = || reason("the judge refused the key", error);
                state.over.get_or_insert_with(over);
            }
            // To a model that replies, these are refusals of single questions.
            Forbidden if !replied => {
                let why = format!("the judge does not let this key ask `{model}`");
                let over = || reason(&why, error);
                state.over_for.entry(model.to_owned()).or_insert_with(over);
            }
            NotFound if !replied => {
                let why = format!("the judge does not know `{model}`");
                let over = || reason(&why, error);
                state.over_for.entry(model.to_owned()).or_insert_with(over);
            }
            NoConnection => {
                let away = state.away.get_or_insert_with(Instant::now).elapsed();
                if state.answered && away >= self.patience {
                    let seconds = self.patience.as_secs();
                    let why = format!("the judge could not be reached for {seconds} s");
                    state.over.get_or_insert_with(|| reason(&why, error));
                } else if !state.answered && again {
                    let over = || reason("the judge can't be reached", error);
                    state.over.get_or_insert_with(over);
                }
            }
            _ => return,
        }
        drop(guard);
        self.ended.notify_waiters();
    }

    /// Why a model is not asked any more; none while it is.
    pub fn over(&self, model: &str) -> Option<String> {
        let state = self.state();
        let over = state.over.as_ref().or_else(|| state.over_for.get(model));
        over.cloned()
    }

    /// All that is over, in words.
    pub fn all(&self) -> Vec<String> {
        let state = self.state();
        let all = state.over.iter().chain(state.over_for.values());
        all.cloned().collect()
    }

    /// What is waited for, unless asking the model is over before it comes.
    pub async fn unless_over<T>(
        &self,
        model: &str,
        awaited: impl Future<Output = T>,
    ) -> Result<T, String> {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            if let Some(over) = self.over(model) {
                return Err(over);
            }
            if let Either::Left((came, _)) = select(awaited.as_mut(), ended).await {
                return Ok(came);
            }
        }
    }
}

/// One line: what is over, by which status, and the judge's own words.
fn reason(why: &str, error: &CallError) -> String {
    let said: Vec<&str> = error.message.split_whitespace().collect();
    let said = said.join(" ");
    let status = said
        .strip_prefix("status ")
        .and_then(|rest| rest.get(..3))
        .filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()));
    let status = status.map(|status| format!(" ({status})"));
    format!(
        "{why}{}; nothing more was asked; it said: {said}",
        status.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::ReplyFormat;

    fn error(kind: CallErrorKind, message: &str) -> CallError {
        CallError {
            kind,
            message: message.to_owned(),
            retry_after: None,
            usage: None,
        }
    }

    #[test]
    fn a_refused_key_ends_all_and_a_refused_model_itself() {
        let refusals = Refusals::new(Duration::from_secs(60));
        refusals.failed(
            "a",
            &error(CallErrorKind::Forbidden, "status 403: no"),
            false,
        );
        refusals.replied("b");
        refusals.failed(
            "b",
            &error(CallErrorKind::NotFound, "status 404: no"),
            false,
        );
        let over = refusals.over("a").unwrap();
        assert!(
            over.starts_with("the judge does not let this key ask `a` (403);"),
            "{over}"
        );
        assert_eq!(refusals.over("b"), None);
        refusals.failed("b", &error(CallErrorKind::Refused, "status 400: no"), false);
        assert_eq!(refusals.over("b"), None);
        refusals.failed(
            "b",
            &error(CallErrorKind::Denied, "status 401: wrong\nkey"),
            false,
        );
        assert_eq!(
            refusals.over("b").unwrap(),
            "the judge refused the key (401); nothing more was asked; it said: status 401: wrong key"
        );
        assert_eq!(refusals.all().len(), 2);
    }

    fn call(format: &'static str) -> Call {
        Call {
            model: "m".into(),
            system: "s".into(),
            user: "u".into(),
            format: Some(ReplyFormat {
                name: format,
                schema: Default::default(),
            }),
            temperature: None,
            max_output_tokens: 1,
            prompt: crate::judge::PromptLabel {
                name: format,
                version: 1,
            },
            apart: String::new(),
            body: None,
        }
    }

    #[test]
    fn a_refused_format_is_over_unless_it_was_ever_answered() {
        let refusals = Refusals::new(Duration::ZERO);
        refusals.refuse_format(&call("a"), "no schema");
        assert_eq!(refusals.format(&call("a")).as_deref(), Some("no schema"));
        assert_eq!(refusals.format(&call("b")), None);
        refusals.take_format(&call("a"));
        assert_eq!(refusals.format(&call("a")), None);
        refusals.refuse_format(&call("a"), "this reply does not match the schema");
        assert_eq!(refusals.format(&call("a")), None);
    }

    #[test]
    fn an_endpoint_that_was_there_may_be_away_for_a_while() {
        let none = error(CallErrorKind::NoConnection, "connection refused");
        let never = Refusals::new(Duration::from_secs(3600));
        never.failed("a", &none, false);
        assert_eq!(never.over("a"), None);
        never.failed("a", &none, true);
        assert!(never.over("a").unwrap().contains("can't be reached"));

        let patient = Refusals::new(Duration::from_secs(3600));
        // Whoever breaks connections is there, but has said nothing.
        patient.failed("a", &error(CallErrorKind::Connection, "reset"), false);
        assert!(!patient.answered());
        patient.failed("a", &error(CallErrorKind::ServerError, "status 500"), false);
        for _ in 0..3 {
            patient.failed("a", &none, true);
        }
        assert_eq!(patient.over("a"), None);

        let impatient = Refusals::new(Duration::ZERO);
        impatient.replied("a");
        impatient.failed("a", &none, false);
        assert!(
            impatient
                .over("b")
                .unwrap()
                .contains("could not be reached for 0 s")
        );
    }
}
