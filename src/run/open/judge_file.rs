//! The file that says how conversations are judged (`--judge-config`).
//!
//! Its keys are those of the judge's configuration; `custom_metrics`, a list of metrics of one's own; and two bars of the
//! whole run, `metrics_pass_threshold` and `cases_pass_threshold`, in percent. A file that ends in `.json` is JSON, one that
//! ends in `.yaml` or `.yml` is YAML, any other is TOML. In JSON and YAML it may also be that list of metrics alone. A key
//! that is there twice is refused: one of the two would be lost.

use std::path::Path;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::conversation::{Catalogue, CustomMetric, JudgeConfig, RunBars};
use crate::job::{SettingsError, without_source};

const CUSTOM: &str = "custom_metrics";
const BARS: [&str; 2] = ["metrics_pass_threshold", "cases_pass_threshold"];

/// A configuration that can be used: everything in it was checked.
#[derive(Clone, Debug)]
pub struct JudgeFile {
    /// How conversations are judged.
    pub config: JudgeConfig,
    /// The metrics that can be asked for.
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
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let file = match extension.to_str() {
            Some("json") => Self::of_json(&text),
            Some("yaml" | "yml") => Self::of_yaml(&text),
            _ => Self::of_toml(&text),
        };
        file.map_err(wrong)
    }

    fn of_json(text: &str) -> Result<Self, String> {
        let Distinct(file) = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Self::of_value(file)
    }

    fn of_yaml(text: &str) -> Result<Self, String> {
        // The file may hold a key: its lines are not shown.
        let options = serde_saphyr::options! { with_snippet: false };
        let Distinct(file) =
            serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())?;
        Self::of_value(file)
    }

    fn of_value(file: Value) -> Result<Self, String> {
        type Object = serde_json::Map<String, Value>;
        let problem = |e: serde_json::Error| e.to_string();
        let mut config: Object = match file {
            Value::Array(_) => {
                let custom: Vec<CustomMetric> = serde_json::from_value(file).map_err(problem)?;
                return Self::checked(JudgeConfig::default(), custom, RunBars::default());
            }
            file => serde_json::from_value(file).map_err(problem)?,
        };
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
        let problem = |e: toml::de::Error| without_source(text, &e);
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

/// A value none of whose objects has a key twice.
struct Distinct(Value);

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DistinctKeys).map(Self)
    }
}

struct DistinctKeys;

impl<'de> Visitor<'de> for DistinctKeys {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("{value} is no finite number")))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Distinct(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some((key, Distinct(value))) = members.next_entry::<String, Distinct>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("`{key}` is there twice")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
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
    fn yaml_says_the_same_and_metrics_may_be_names_alone() {
        let yaml = "# bars\npass_threshold: 60\ntoolless_policy: drop\ncases_pass_threshold: 90\n\
            metrics:\n  - {metric: tool_routing, weight: 2}\n  - polite\n\
            custom_metrics:\n  - name: polite\n    rubric: |-\n      Measures: manners.\n";
        let (toml, yaml) = (
            JudgeFile::of_toml(TOML).unwrap(),
            JudgeFile::of_yaml(yaml).unwrap(),
        );
        assert_eq!((&toml.config, toml.bars), (&yaml.config, yaml.bars));
        assert_eq!(toml.catalogue, yaml.catalogue);
        let names = JudgeFile::of_toml(
            "metrics = [\"tool_routing\", { metric = \"conversation_management\" }]",
        );
        let names = names
            .unwrap_or_else(|e| panic!("{e}"))
            .config
            .metrics
            .unwrap();
        assert_eq!(
            (names[0].metric.as_str(), names[0].weight),
            ("tool_routing", None)
        );
        let list = JudgeFile::of_yaml("- name: polite\n  rubric: 'Measures: manners.'\n").unwrap();
        assert!(list.catalogue.find("polite").is_some());
    }

    #[test]
    fn a_key_is_there_once_and_no_message_shows_a_line() {
        const CANARY: &str = "sk-canary-5d";
        for (file, words) in [
            (
                JudgeFile::of_json(r#"{"model": "a", "model": "b"}"#),
                "twice",
            ),
            (JudgeFile::of_yaml("model: a\nmodel: b\n"), "uplicate"),
            (
                JudgeFile::of_toml("model = \"a\"\nmodel = \"b\""),
                "uplicate",
            ),
            (JudgeFile::of_yaml("modl: a\n"), "modl"),
            (JudgeFile::of_toml(&format!("model = {CANARY}")), "line 1"),
            (JudgeFile::of_yaml(&format!("model: [{CANARY}\n")), "line"),
            (
                JudgeFile::of_json(&format!("{{\"model\": {CANARY}}}")),
                "line 1",
            ),
        ] {
            let problem = file.unwrap_err();
            assert!(
                problem.contains(words) && !problem.contains(CANARY),
                "{problem}"
            );
        }
    }

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
