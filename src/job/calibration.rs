//! What `nightmill calibrate` found for a warehouse: thresholds that fit it, and what its signals count for.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SettingsError;
use crate::metric::Method;

/// A calibration, as its file holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Where it comes from.
    pub origin: CalibrationOrigin,
    /// Thresholds by metric.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, FittingThreshold>,
    /// What signals count for in the order of sessions; none where nothing was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<LearntAttention>,
}

/// Where a calibration comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationOrigin {
    /// When it was made.
    pub created_at: String,
    /// The version of nightmill that made it.
    pub nightmill: String,
    /// The names of the runs that it is of.
    pub runs: Vec<String>,
    /// Their sessions, and those with a label.
    pub sessions: u64,
    /// Sessions with a label; 0 without labels.
    pub labelled: u64,
    /// Bad ones among them.
    pub bad: u64,
    /// The column of labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Which labels are bad, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad_labels: Option<String>,
    /// BLAKE3 of the sessions and their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The sessions that it is of, where it is not of all: `environment = prod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// The embedding model of the runs; none where they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<CalibratedModel>,
    /// What was embedded of documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_mode: Option<String>,
}

/// The embedding model that thresholds are for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedModel {
    /// Its name.
    pub name: String,
    /// Its SHA-256.
    pub sha256: String,
    /// What it computed in.
    pub precision: String,
}

/// A threshold that fits a warehouse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittingThreshold {
    /// Scores below it are bad.
    pub threshold: f64,
    /// How it was found, in words.
    pub found_by: String,
    /// The share of scores below it.
    pub below: f64,
}

/// What signals count for in the order of sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearntAttention {
    /// How sessions were held out to measure it.
    pub held_out: String,
    /// The AUC on sessions that were held out, and the ends of its interval.
    pub held_out_auc: [f64; 3],
    /// The same of the order without calibration, on the same sessions.
    pub default_auc: [f64; 3],
    /// By signal; those that are not named count for nothing.
    pub weights: BTreeMap<String, f64>,
}

impl Calibration {
    /// Reads a file that `nightmill calibrate` wrote.
    ///
    /// # Errors
    /// [`SettingsError`] naming the file, the line and the key at fault.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let wrong =
            |problem: String| SettingsError(format!("--calibration {}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let read: Self = toml::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let in_unit = |value: f64| (0.0..=1.0).contains(&value);
        let thresholds = read.thresholds.iter();
        for (metric, found) in thresholds {
            let known = crate::metric::find(metric).filter(|metric| metric.has_scores());
            if known.is_none() {
                return Err(wrong(format!(
                    "thresholds.{metric}: no such metric with scores"
                )));
            }
            if !in_unit(found.threshold) {
                return Err(wrong(format!(
                    "thresholds.{metric}: {} is not from 0 to 1",
                    found.threshold
                )));
            }
        }
        let weights = read.attention.iter().flat_map(|learnt| &learnt.weights);
        for (signal, weight) in weights {
            if !crate::metric::session_signal::learnable().any(|of| of.name == signal) {
                return Err(wrong(format!("attention.weights.{signal}: no such signal")));
            }
            if !(0.0..=1e6).contains(weight) {
                return Err(wrong(format!(
                    "attention.weights.{signal}: {weight} is no weight; expected 0 to 1,000,000"
                )));
            }
        }
        if read.attention.as_ref().is_some_and(|learnt| {
            let any = learnt.weights.values().any(|weight| *weight > 0.0);
            !any
        }) {
            return Err(wrong(
                "attention.weights: no signal counts for anything".into(),
            ));
        }
        Ok(read)
    }

    /// The text of its file.
    ///
    /// # Errors
    /// A message, if it can't be written as TOML.
    pub fn text(&self) -> Result<String, String> {
        let body = toml::to_string(self).map_err(|e| e.to_string())?;
        Ok(format!(
            "# What nightmill calibrate found; nightmill score --calibration FILE goes by it.\n\n{body}"
        ))
    }

    /// Whether it is for scores of this model and text mode. Without a model on either side, nothing of it depends on one.
    ///
    /// # Errors
    /// A message naming the first difference.
    pub fn check(&self, model: Option<&CalibratedModel>, text_mode: &str) -> Result<(), String> {
        let Some(model) = model else {
            return Ok(());
        };
        let Some(of) = &self.origin.model else {
            let of_model = |name: &&String| {
                let metric = crate::metric::find(name);
                metric.is_some_and(|m| matches!(m.method, Method::Embedding | Method::Aggregate))
            };
            return match self.thresholds.keys().find(of_model) {
                None => Ok(()),
                Some(metric) => Err(format!(
                    "--calibration: it has a threshold of {metric}, and does not say for which model; calibrate again"
                )),
            };
        };
        let mode = self.origin.text_mode.as_deref().unwrap_or(text_mode);
        let differs = [
            ("model", of.name.as_str(), model.name.as_str()),
            ("SHA-256 of the model", &of.sha256, &model.sha256),
            ("precision", &of.precision, &model.precision),
            ("text mode", mode, text_mode),
        ];
        match differs.into_iter().find(|(_, of, now)| of != now) {
            None => Ok(()),
            Some((what, of, now)) => Err(format!(
                "--calibration: it is for {what} {of}, and this run has {now}; its thresholds mean nothing for such scores: \
                 calibrate again with a run like this one"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration() -> Calibration {
        Calibration {
            origin: CalibrationOrigin {
                created_at: "2026-11-25T00:00:00Z".into(),
                model: Some(CalibratedModel {
                    name: "m".into(),
                    sha256: "00".into(),
                    precision: "f32".into(),
                }),
                text_mode: Some("compat".into()),
                ..CalibrationOrigin::default()
            },
            thresholds: BTreeMap::from([(
                "coherence".into(),
                FittingThreshold {
                    threshold: 0.25,
                    found_by: "5 of 100 scores are below it".into(),
                    below: 0.05,
                },
            )]),
            attention: Some(LearntAttention {
                held_out: "5 parts by task".into(),
                held_out_auc: [0.7, 0.6, 0.8],
                default_auc: [0.6, 0.5, 0.7],
                weights: BTreeMap::from([("tool_calls".into(), 1.5)]),
            }),
        }
    }

    fn read(text: &str) -> Result<Calibration, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Calibration::read(file.path()).map_err(|e| e.to_string())
    }

    #[test]
    fn its_file_says_all_of_it() {
        let text = calibration().text().unwrap();
        assert_eq!(read(&text), Ok(calibration()));
        for (what, instead, problem) in [
            ("tool_calls = 1.5", "tool_call = 1.5", "no such signal"),
            ("tool_calls = 1.5", "tool_calls = -1.0", "expected 0 to"),
            (
                "tool_calls = 1.5",
                "tool_calls = 0.0",
                "counts for anything",
            ),
            (
                "thresholds.coherence",
                "thresholds.coherent",
                "no such metric",
            ),
            ("threshold = 0.25", "threshold = 25.0", "not from 0 to 1"),
            ("precision =", "precise =", "precise"),
        ] {
            let error = read(&text.replace(what, instead)).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn it_is_for_one_model_and_text_mode() {
        let of = calibration();
        let model = of.origin.model.clone().unwrap();
        assert_eq!(of.check(Some(&model), "compat"), Ok(()));
        assert_eq!(of.check(None, "content"), Ok(()));
        let mut unsaid = of.clone();
        unsaid.origin.model = None;
        let error = unsaid.check(Some(&model), "compat").unwrap_err();
        assert!(error.contains("a threshold of coherence"), "{error}");
        assert!(
            of.check(Some(&model), "content")
                .unwrap_err()
                .contains("text mode compat")
        );
        let int8 = CalibratedModel {
            precision: "int8".into(),
            ..model
        };
        let error = of.check(Some(&int8), "compat").unwrap_err();
        assert!(
            error.contains("precision f32, and this run has int8"),
            "{error}"
        );
    }
}
