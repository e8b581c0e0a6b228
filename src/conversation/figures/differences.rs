//! What differs between two runs besides their results (as in Connexity).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::figures::diff::diff;
use crate::conversation::question::verdict::rounded;

/// Longer diffs are cut.
const MAX_DIFF_CHARS: usize = 5000;

/// What is known about the agent and the surroundings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSnapshot {
    /// The agent's system prompt.
    pub system_prompt: Option<String>,
    /// JSON text: the agent's tools, in the form of `agent_tools`.
    pub tools: Option<String>,
    /// The agent's model.
    pub model: Option<String>,
    /// Further configuration of the agent, by name.
    pub config: BTreeMap<String, Value>,
    /// The version of the configuration of cases and metrics.
    pub config_version: Option<String>,
    /// The judge: model and prompt version.
    pub judge: Option<String>,
    /// The simulator of users.
    pub simulator: Option<String>,
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What it is, such as `model` or the name of a configuration field.
    pub name: String,
    /// In the baseline; null if absent.
    pub baseline: Value,
    /// In the candidate; null if absent.
    pub candidate: Value,
}

/// How the agent's system prompt differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptChange {
    /// Unified diff with 3 lines of context, cut at 5000 characters.
    pub diff: String,
    /// Lines added.
    pub added_lines: usize,
    /// Lines removed.
    pub removed_lines: usize,
    /// Changed lines by lines of the longer prompt, 0 to 1, four decimals.
    pub change_ratio: f64,
}

/// How the agent's tools differ, by function name, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChanges {
    /// Only in the candidate.
    pub added: Vec<String>,
    /// Only in the baseline.
    pub removed: Vec<String>,
    /// In both, with another definition.
    pub modified: Vec<String>,
}

/// The differences of two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunDifferences {
    /// Null if the prompts have the same lines.
    pub prompt: Option<PromptChange>,
    /// The tools.
    pub tools: ToolChanges,
    /// The agent's model and configuration, what differs of it.
    pub config: Vec<Change>,
    /// Changes of judge and simulator: they may move scores, but are no causes.
    pub infrastructure_notes: Vec<String>,
    /// What makes the runs less comparable.
    pub warnings: Vec<String>,
}

/// The differences of two runs.
pub fn differences(baseline: &RunSnapshot, candidate: &RunSnapshot) -> RunDifferences {
    let text = |prompt: &Option<String>| prompt.clone().unwrap_or_default();
    let prompt = diff(
        &text(&baseline.system_prompt),
        &text(&candidate.system_prompt),
    );
    let mut config = Vec::new();
    push_change(
        &mut config,
        "model",
        optional(&baseline.model),
        optional(&candidate.model),
    );
    let names: BTreeSet<&String> = baseline
        .config
        .keys()
        .chain(candidate.config.keys())
        .collect();
    for name in names {
        let value = |run: &RunSnapshot| run.config.get(name).cloned().unwrap_or_default();
        push_change(&mut config, name, value(baseline), value(candidate));
    }
    let infrastructure = [
        ("judge", &baseline.judge, &candidate.judge),
        ("simulator", &baseline.simulator, &candidate.simulator),
    ];
    let notes = infrastructure
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(name, old, new)| {
            format!("The {name} changed from {} to {}.", named(old), named(new))
        });
    let versions = (&baseline.config_version, &candidate.config_version);
    let warning = (versions.0 != versions.1).then(|| {
        format!(
            "The runs have different configuration versions: {} and {}; differences may come from the configuration.",
            named(versions.0),
            named(versions.1)
        )
    });
    RunDifferences {
        prompt: prompt.map(|found| PromptChange {
            diff: found.unified.chars().take(MAX_DIFF_CHARS).collect(),
            added_lines: found.added,
            removed_lines: found.removed,
            change_ratio: rounded::<4>(found.change_ratio),
        }),
        tools: tool_changes(baseline.tools.as_deref(), candidate.tools.as_deref()),
        config,
        infrastructure_notes: notes.collect(),
        warnings: warning.into_iter().collect(),
    }
}

fn push_change(changes: &mut Vec<Change>, name: &str, baseline: Value, candidate: Value) {
    if baseline != candidate {
        changes.push(Change {
            name: name.to_owned(),
            baseline,
            candidate,
        });
    }
}

fn optional(text: &Option<String>) -> Value {
    text.clone().map_or(Value::Null, Value::String)
}

fn named(text: &Option<String>) -> String {
    text.as_ref()
        .map_or_else(|| "an unknown one".to_owned(), |text| format!("`{text}`"))
}

fn tool_changes(baseline: Option<&str>, candidate: Option<&str>) -> ToolChanges {
    let (old, new) = (functions(baseline), functions(candidate));
    let only = |one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| {
        one.keys()
            .filter(|name| !other.contains_key(*name))
            .cloned()
            .collect()
    };
    let modified = |name: &&String| {
        new.get(*name)
            .is_some_and(|function| old.get(*name) != Some(function))
    };
    ToolChanges {
        added: only(&new, &old),
        removed: only(&old, &new),
        modified: old.keys().filter(modified).cloned().collect(),
    }
}

fn functions(tools: Option<&str>) -> BTreeMap<String, Value> {
    let entries = tools.and_then(|text| serde_json::from_str(text).ok());
    let Some(Value::Array(entries)) = entries else {
        return BTreeMap::new();
    };
    let function = |entry: &Value| {
        let function = entry.get("function")?;
        Some((function.get("name")?.as_str()?.to_owned(), function.clone()))
    };
    entries.iter().filter_map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(json: Value) -> RunSnapshot {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn agent_changes_are_differences_and_judge_changes_are_notes() {
        let tools = |names: &[(&str, u8)]| {
            let entries = names.iter().map(
                |(n, v)| json!({"type": "function", "function": {"name": n, "parameters": v}}),
            );
            Value::Array(entries.collect()).to_string()
        };
        let old = snapshot(
            json!({"system_prompt": "a\nb", "model": "m", "judge": "j", "config_version": "1",
            "config": {"temperature": 0, "same": 1}, "tools": tools(&[("gone", 1), ("kept", 1), ("changed", 1)])}),
        );
        let new = snapshot(
            json!({"system_prompt": "a\nc\nd", "model": "n", "simulator": "s", "config_version": "2", "judge": "j",
            "config": {"temperature": 1, "same": 1, "new": true}, "tools": tools(&[("kept", 1), ("changed", 2), ("added", 1)])}),
        );
        let found = differences(&old, &new);
        let prompt = found.prompt.unwrap();
        assert_eq!(
            (
                prompt.added_lines,
                prompt.removed_lines,
                prompt.change_ratio
            ),
            (2, 1, 1.0)
        );
        let tools = ["added", "gone", "changed"].map(|name| vec![name.to_owned()]);
        assert_eq!(
            [found.tools.added, found.tools.removed, found.tools.modified],
            tools
        );
        let names: Vec<&str> = found
            .config
            .iter()
            .map(|change| change.name.as_str())
            .collect();
        assert_eq!(names, ["model", "new", "temperature"]);
        assert_eq!(
            found.infrastructure_notes,
            ["The simulator changed from an unknown one to `s`."]
        );
        assert_eq!(found.warnings.len(), 1);
        assert_eq!(differences(&old, &old), RunDifferences::default());
    }

    #[test]
    fn long_diffs_are_cut_at_characters() {
        let old = RunSnapshot {
            system_prompt: Some("é\n".repeat(9000)),
            ..Default::default()
        };
        let found = differences(&old, &RunSnapshot::default()).prompt.unwrap();
        assert_eq!(found.diff.chars().count(), 5000);
    }

    #[test]
    fn a_ratio_has_four_decimals() {
        let old = RunSnapshot {
            system_prompt: Some("a\nb\nc".into()),
            ..Default::default()
        };
        let new = RunSnapshot {
            system_prompt: Some("a\nb\nc\nd\ne\nf\ng".into()),
            ..Default::default()
        };
        assert_eq!(differences(&old, &new).prompt.unwrap().change_ratio, 0.5714);
    }
}
