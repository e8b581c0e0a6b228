//! A night computes by the rules of the nights before it: scores of one warehouse by two rules can't be told apart.

use serde_json::{Value, json};

use crate::history::ChainRun;
use crate::output::RunError;
use crate::output::manifest::rules_of;
use crate::run::ScoreRequest;

/// Settings of a request that say how columns are read.
const OF_COLUMNS: [&str; 4] = ["map", "json_columns", "text_columns", "time_unit"];

/// Whether the request computes what the run that it continues computed.
///
/// # Errors
/// [`RunError::Request`] naming the first difference.
pub(super) fn check_settings(request: &ScoreRequest, run: &ChainRun) -> Result<(), RunError> {
    let before = &run.manifest["rules"];
    let now = rules_of(&request.rules);
    let names = now.as_object().into_iter().flat_map(|rules| rules.keys());
    let differs = |what: &str, before: &Value, now: &Value| {
        Err(RunError::Request(format!(
            "--continue: the run `{}` was made with {what} {}, and this one has {}; a night goes on by the same rules: leave \
             the setting as it was, or score all files anew",
            run.name,
            shown(before),
            shown(now)
        )))
    };
    for name in names {
        if before[name] != now[name] {
            return differs(&name.replace('_', "-"), &before[name], &now[name]);
        }
    }
    let learnt = |attention: &Value| attention["weights"].clone();
    let now = request
        .calibration
        .as_ref()
        .map(|(_, of)| json!(of.attention));
    if learnt(&run.manifest["calibration"]["attention"]) != learnt(&now.unwrap_or_default()) {
        return Err(RunError::Request(format!(
            "--continue: the run `{}` orders its sessions by another calibration than this one; give the same --calibration, or \
             score all files anew",
            run.name
        )));
    }
    let settings = &run.manifest["request"]["settings"];
    for name in OF_COLUMNS {
        let now = request.record.settings.get(name).unwrap_or(&Value::Null);
        if settings[name] != *now {
            return differs(&name.replace('_', "-"), &settings[name], now);
        }
    }
    let chosen = &run.manifest["request"]["targets"];
    if request.targets.is_some() || !chosen.is_null() {
        return Err(RunError::Request(
            "--continue: a run of chosen targets (--filters, --tags, --sample, ids) can't go on: a session that was left out \
             may be chosen by its next trace, and what it had before is not in the run; score all files, or choose from \
             their scores"
                .into(),
        ));
    }
    Ok(())
}

/// Whether the model is that of the run that the night continues; a line if only the machine is another.
///
/// # Errors
/// [`RunError::Request`] if the model or its precision is another one.
pub(super) fn check_model(before: &Value, now: &Value) -> Result<Option<String>, RunError> {
    for (name, what) in [
        ("name", "model"),
        ("sha256", "model"),
        ("precision", "precision"),
    ] {
        // A folder may be renamed: its files tell which model it is.
        if name == "name" && before["sha256"] == now["sha256"] {
            continue;
        }
        if before[name] != now[name] {
            return Err(RunError::Request(format!(
                "--continue: the earlier run was made with {what} {}, and this one has {}; a night goes on with the same model",
                shown(&before[name]),
                shown(&now[name])
            )));
        }
    }
    Ok((before["device"] != now["device"]).then(|| {
        format!(
            "the earlier run was made on {}, this one on {}: scores may differ in their last digit from one run over all files",
            shown(&before["device"]),
            shown(&now["device"])
        )
    }))
}

/// A value in a message.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
