//! The file that says how conversations are judged (`--judge-config`).
//!
//! Its keys are those of the judge's configuration; `custom_metrics`, a list of metrics of one's own; and two bars of the
//! whole run, `metrics_pass_threshold` and `cases_pass_threshold`, in percent. A file that ends in `.json` is JSON, any
//! other is TOML. A JSON file may also be that list of metrics alone.

use std::path::Path;

use serde_json::Value;

use crate::config::SettingsError;
use crate::judge::conversation::{Catalogue, CustomMetric, JudgeConfig, RunBars};

const CUSTOM: &str = "custom_metrics";
const BARS: [&str; 2] = ["metrics_pass_threshold", "cases_pass_threshold"];

/// A configuration that can be used: everything in it was checked.
#[derive(Clone, Debug)]
pub(super) struct JudgeFile {
    pub config: JudgeConfig,
    pub catalogue: Catalogue,
    /// Their `pass_threshold` is that of the configuration.
    pub bars: RunBars,
}

impl Default for JudgeFile {
    fn default() -> Self {
        Self {
            config: JudgeConfig::default(),
            catalogue: Catalogue::built_in(),
            bars: RunBars::default(),
        }
    }
}

impl JudgeFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`SettingsError`] names the file and what is wrong in it.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let wrong = |problem: String| {
            SettingsError(format!("--judge-config `{}`: {problem}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let extension = path.extension().unwrap_or_default();
        let file = if extension.eq_ignore_ascii_case("json") {
            Self::of_json(&text)
        } else {
            Self::of_toml(&text)
        };
        file.map_err(wrong)
    }

    fn of_json(text: &str) -> Result<Self, String> {
        type Object = serde_json::Map<String, Value>;
        let problem = |e: serde_json::Error| e.to_string();
        if text.trim_start().starts_with('[') {
            let custom: Vec<CustomMetric> = serde_json::from_str(text).map_err(problem)?;
            return Self::checked(JudgeConfig::default(), custom, RunBars::default());
        }
        let mut config: Object = serde_json::from_str(text).map_err(problem)?;
        let custom: Vec<CustomMetric> = match config.remove(CUSTOM) {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => serde_json::from_value(list).map_err(problem)?,
        };
        let mut bars = Object::new();
        for key in BARS {
            if let Some(bar) = config.remove(key) {
                bars.insert(key.to_owned(), bar);
            }
        }
        let bars: RunBars = serde_json::from_value(Value::Object(bars)).map_err(problem)?;
        let config: JudgeConfig = serde_json::from_value(Value::Object(config)).map_err(problem)?;
        Self::checked(config, custom, bars)
    }

    fn of_toml(text: &str) -> Result<Self, String> {
        let problem = |e: toml::de::Error| e.to_string();
        let mut config: toml::Table = text.parse().map_err(problem)?;
        let custom: Vec<CustomMetric> = match config.remove(CUSTOM) {
            None => Vec::new(),
            Some(list) => list.try_into().map_err(problem)?,
        };
        let mut bars = toml::Table::new();
        for key in BARS {
            if let Some(bar) = config.remove(key) {
                bars.insert(key.to_owned(), bar);
            }
        }
        let bars: RunBars = bars.try_into().map_err(problem)?;
        let config: JudgeConfig = config.try_into().map_err(problem)?;
        Self::checked(config, custom, bars)
    }

    fn checked(
        config: JudgeConfig,
        custom: Vec<CustomMetric>,
        bars: RunBars,
    ) -> Result<Self, String> {
        let catalogue = Catalogue::with_custom(custom).map_err(|e| e.to_string())?;
        config.resolve(&catalogue).map_err(|e| e.to_string())?;
        let given = [bars.metrics_pass_threshold, bars.cases_pass_threshold];
        for (key, bar) in BARS.into_iter().zip(given) {
            if let Some(bar) = bar.filter(|bar| !(0.0..=100.0).contains(bar)) {
                return Err(format!("`{key}` is {bar}; use a number from 0 to 100"));
            }
        }
        let bars = RunBars {
            pass_threshold: config.pass_threshold,
            ..bars
        };
        Ok(Self {
            config,
            catalogue,
            bars,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = r#"
        pass_threshold = 60.0
        toolless_policy = "drop"
        cases_pass_threshold = 90.0
        metrics = [{ metric = "tool_routing", weight = 2.0 }, { metric = "polite" }]

        [[custom_metrics]]
        name = "polite"
        rubric = "Measures: manners."
    "#;

    #[test]
    fn toml_and_json_say_the_same() {
        let json = r#"{"pass_threshold": 60, "toolless_policy": "drop", "cases_pass_threshold": 90,
            "metrics": [{"metric": "tool_routing", "weight": 2}, {"metric": "polite"}],
            "custom_metrics": [{"name": "polite", "rubric": "Measures: manners."}]}"#;
        let (toml, json) = (
            JudgeFile::of_toml(TOML).unwrap(),
            JudgeFile::of_json(json).unwrap(),
        );
        assert_eq!((&toml.config, toml.bars), (&json.config, json.bars));
        assert_eq!(toml.catalogue, json.catalogue);
        assert!(toml.catalogue.find("polite").is_some());
        let expected = RunBars {
            pass_threshold: 60.0,
            metrics_pass_threshold: Some(80.0),
            cases_pass_threshold: Some(90.0),
        };
        assert_eq!(toml.bars, expected);
    }

    #[test]
    fn a_list_of_metrics_adds_to_the_built_in_ones() {
        let list = r#" [{"name": "polite", "rubric": "Measures: manners."},
            {"name": "tool_routing", "rubric": "Measures: routes.", "default_weight": 0.5}]"#;
        let whole = format!(r#"{{"custom_metrics": {list}}}"#);
        let (list, whole) = (
            JudgeFile::of_json(list).unwrap(),
            JudgeFile::of_json(&whole).unwrap(),
        );
        assert_eq!((&list.config, list.bars), (&whole.config, whole.bars));
        assert_eq!(list.catalogue, whole.catalogue);
        assert!(list.catalogue.find("polite").is_some());
    }

    #[test]
    fn everything_is_checked_before_anything_runs() {
        for (text, words) in [
            ("pass_treshold = 50", "pass_treshold"),
            ("pass_threshold = 101", "from 0 to 100"),
            ("cases_pass_threshold = -1", "cases_pass_threshold"),
            ("metrics = [{ metric = \"nope\" }]", "`nope`"),
            ("metrics = [{ metric = \"task_completion\" }]", "weight"),
            ("[[custom_metrics]]\nname = \"Bad\"", "`Bad`"),
            ("metrics = 3", "invalid type"),
            ("no toml", ""),
        ] {
            let problem = JudgeFile::of_toml(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
        for text in ["3", "[3]", r#"[{"name": "Bad"}]"#, r#"[{"name": "ok"}, {"#] {
            assert!(JudgeFile::of_json(text).is_err(), "{text}");
        }
        let missing = JudgeFile::read(Path::new("/nowhere/judge.json")).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/judge.json"));
    }
}
