//! Metrics files: read with the values of variables, and written again with the placeholders.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::criterion::{
    CriterionFault, FinalResponseCriterion, SemanticCriterion, ToolTrajectoryCriterion,
};
use super::environment::{Environment, Unexpanded};
use super::json_file::{FileError, Loaded, file_text, value_of};
use super::legacy;
use super::model::{
    Criterion, EvalMetric, JudgeCriterion, JudgeModel, JudgeTemplate, TemplateBinding,
    TemplateSource,
};
use super::object::{Members, object_of};
use super::place::Place;
use super::set_json::read_rubric;
use super::shape::{Kind, METRIC, METRICS, ShapeFault, arranged, checked, number_of};

const JUDGE: &str = "llmJudge";
const MODEL: &str = "judgeModel";

/// Reads the text of a metrics file that errors call `file`: a list of metrics. Entries that are null are left out.
/// Warnings tell variables that are not set, metrics that every score passes, and names that occur twice.
///
/// # Errors
/// [`FileError`] for what is no JSON, and for values of wrong kinds.
pub fn read_metrics(
    text: &str,
    file: &str,
    environment: &Environment,
) -> Result<Loaded<Vec<EvalMetric>>, FileError> {
    let shape = |fault| FileError::shape(file, fault);
    let mut value = value_of(text, file)?;
    let mut converted = false;
    if let Value::Array(metrics) = &mut value {
        for metric in metrics {
            converted |= legacy::convert_metric(metric);
        }
    }
    let value = checked(value, &METRICS, &Place::Document).map_err(shape)?;
    let Value::Array(entries) = value else {
        return Ok(Loaded::default());
    };
    let mut loaded = Loaded::<Vec<EvalMetric>>::default();
    let mut unset = BTreeSet::new();
    for (at, entry) in entries.into_iter().enumerate() {
        if entry.is_null() {
            continue;
        }
        let metric = read_metric(Members::of(entry), environment, &mut unset);
        let metric = metric.map_err(|fault| {
            shape(ShapeFault {
                path: format!("[{at}].{}", fault.path),
                ..fault
            })
        })?;
        let earlier = loaded
            .value
            .iter()
            .any(|earlier| earlier.name == metric.name);
        if earlier {
            loaded.warnings.push(format!(
                "{file}: the metric `{}` is there twice; the first one is used",
                metric.name
            ));
        }
        if metric.threshold.is_none() {
            loaded.warnings.push(format!(
                "{file}: the metric `{}` has no threshold, so every score passes it",
                metric.name
            ));
        }
        loaded.value.push(metric);
    }
    for name in unset {
        loaded.warnings.push(format!(
            "{file}: the environment variable `{name}` is not set; the empty text stands for it"
        ));
    }
    if converted {
        loaded.warnings.push(format!(
            "{file}: criteria in an older shape (`response`, `orderInsensitive`) were converted; trpc-agent-go itself \
             passes over these members"
        ));
    }
    Ok(loaded)
}

/// The text of a metrics file: placeholders and keys as they were read. Keys that did not come from a metrics file are
/// not written.
pub fn write_metrics(metrics: &[EvalMetric]) -> String {
    let metrics = metrics.iter().map(|metric| {
        let mut criterion = metric.criterion.as_deref().cloned();
        if let Some(model) = criterion.as_mut().and_then(model_of) {
            metric.unexpanded.restore(model);
        }
        write_metric(metric, criterion)
    });
    file_text(&arranged(metrics.collect(), &METRICS))
}

impl EvalMetric {
    /// Reads a metric, with the values of variables.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(mut value: Value, environment: &Environment) -> Result<Self, ShapeFault> {
        legacy::convert_metric(&mut value);
        let value = checked(value, &Kind::Object(&METRIC), &Place::Document)?;
        read_metric(Members::of(value), environment, &mut BTreeSet::new())
    }

    /// The metric as others may see it: with the values of variables, without the judge's key.
    pub fn to_json(&self) -> Value {
        let metric = write_metric(self, self.criterion.as_deref().cloned());
        arranged(metric, &Kind::Object(&METRIC))
    }

    /// The name that the evaluator is looked up by: `evaluatorName`, else `metricName`.
    pub fn evaluator(&self) -> &str {
        match self.evaluator_name.as_str() {
            "" => &self.name,
            name => name,
        }
    }
}

/// The judge's model in a criterion.
fn model_of(criterion: &mut Value) -> Option<&mut Map<String, Value>> {
    criterion.get_mut(JUDGE)?.get_mut(MODEL)?.as_object_mut()
}

fn read_metric(
    mut metric: Members,
    environment: &Environment,
    unset: &mut BTreeSet<String>,
) -> Result<EvalMetric, ShapeFault> {
    let mut criterion = match metric.free("criterion") {
        Value::Null => None,
        criterion => Some(criterion),
    };
    let (unexpanded, key) = match criterion.as_mut().and_then(model_of) {
        Some(model) => Unexpanded::expand(model, environment, unset),
        None => Default::default(),
    };
    let rules = match &criterion {
        Some(criterion) => read_rules(criterion, key)?,
        None => Criterion::default(),
    };
    Ok(EvalMetric {
        name: metric.text("metricName"),
        evaluator_name: metric.text("evaluatorName"),
        threshold: metric.number_if_set("threshold"),
        criterion: criterion.map(Arc::new),
        rules,
        unexpanded,
        rest: metric.rest(),
    })
}

fn read_rules(criterion: &Value, key: String) -> Result<Criterion, ShapeFault> {
    let part = |name: &str| criterion.get(name).filter(|part| !part.is_null());
    let (trajectory, response) = ("toolTrajectory", "finalResponse");
    let trajectory = part(trajectory)
        .map(|part| ToolTrajectoryCriterion::read(part, "criterion.toolTrajectory"));
    let response =
        part(response).map(|part| FinalResponseCriterion::read(part, "criterion.finalResponse"));
    let semantic = part("semantic").map(|part| SemanticCriterion::read(part, "criterion.semantic"));
    Ok(Criterion {
        tool_trajectory: trajectory.transpose().map_err(fault_of)?,
        final_response: response.transpose().map_err(fault_of)?,
        judge: part(JUDGE).map(|judge| read_judge(Members::of(judge.clone()), key)),
        semantic: semantic.transpose().map_err(fault_of)?,
    })
}

fn fault_of(fault: CriterionFault) -> ShapeFault {
    ShapeFault {
        path: fault.path,
        expected: fault.expected,
        found: fault.found,
    }
}

fn read_judge(mut judge: Members, key: String) -> JudgeCriterion {
    JudgeCriterion {
        rubrics: judge.present("rubrics", read_rubric),
        model: judge.object(MODEL, |mut model| JudgeModel {
            provider: model.text("providerName"),
            name: model.text("modelName"),
            variant: model.text("variant"),
            base_url: model.text("baseURL"),
            api_key: key.clone(),
            extra_fields: model.map("extraFields"),
            samples: model.integer_if_set("numSamples"),
            generation: model.object("generationConfig", Members::rest),
        }),
        template: judge.object("template", read_template),
    }
}

fn read_template(mut template: Members) -> JudgeTemplate {
    let category = |mut category: Members| (category.text("label"), category.number("score"));
    let options = template.object("responseScorerOptions", |mut options| {
        options.list("categories", category)
    });
    JudgeTemplate {
        prompt: template.text("prompt"),
        bindings: template.list("variableBindings", read_binding),
        scorer: template.text("responseScorerName"),
        categories: options.unwrap_or_default(),
        structured_output: template.text("structuredOutputName"),
        sample_aggregator: template.text("sampleAggregatorName"),
        invocation_aggregator: template.text("invocationAggregatorName"),
    }
}

fn read_binding(mut binding: Members) -> TemplateBinding {
    let source = |mut source: Members| TemplateSource {
        scope: source.text("scope"),
        field: source.text("field"),
        node: source
            .object("selector", |mut selector| selector.text("nodeID"))
            .unwrap_or_default(),
        path: source.text("path"),
    };
    TemplateBinding {
        variable: binding.text("templateVariable"),
        source: binding.object("source", source),
    }
}

fn write_metric(metric: &EvalMetric, criterion: Option<Value>) -> Value {
    let known = [
        ("metricName", metric.name.as_str().into()),
        ("evaluatorName", metric.evaluator_name.as_str().into()),
        ("threshold", metric.threshold.map_or(Value::Null, number_of)),
        ("criterion", criterion.unwrap_or_default()),
    ];
    object_of(known, &metric.rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[{"metricName": "m", "new": {"a": 1}, "threshold": 0.5, "criterion": {"llmJudge": {
        "later": 1, "judgeModel": {"apiKey": "pre-${NM_KEY}", "APIKEY": "pre-${NM_KEY}", "modelName": "$NM_MODEL",
        "baseURL": "https://x.test", "providerName": "$NM_UNSET"}}}}, null]"#;

    fn environment() -> Environment {
        Environment::of(|name| match name {
            "NM_KEY" => Some("opensesame".to_owned()),
            "NM_MODEL" => Some("judge-1".to_owned()),
            _ => None,
        })
    }

    fn loaded() -> Loaded<Vec<EvalMetric>> {
        read_metrics(TEXT, "m.metrics.json", &environment()).unwrap()
    }

    #[test]
    fn a_rewritten_file_keeps_placeholders_and_what_nobody_knows() {
        let text = write_metrics(&loaded().value);
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            written.to_string(),
            r#"[{"metricName":"m","threshold":0.5,"criterion":{"llmJudge":{"judgeModel":{"providerName":"$NM_UNSET","#
                .to_owned()
                + r#""modelName":"$NM_MODEL","baseURL":"https://x.test","apiKey":"pre-${NM_KEY}"},"later":1}},"#
                + r#""new":{"a":1}}]"#
        );
    }

    #[test]
    fn a_value_that_was_changed_is_written_as_it_is() {
        let mut metrics = loaded().value;
        let criterion = Arc::make_mut(metrics[0].criterion.as_mut().unwrap());
        criterion["llmJudge"]["judgeModel"]["modelName"] = "judge-2".into();
        let text = write_metrics(&metrics);
        assert!(text.contains(r#""modelName": "judge-2""#), "{text}");
        assert!(text.contains("pre-${NM_KEY}"), "{text}");
    }

    #[test]
    fn the_key_is_in_the_judge_and_nowhere_else() {
        let metric = loaded().value.remove(0);
        let model = metric.rules.judge.as_ref().unwrap().model.as_ref().unwrap();
        assert_eq!(model.api_key, "pre-opensesame");
        assert_eq!(model.name, "judge-1");
        assert_eq!(model.provider, "");
        for text in [format!("{metric:?}"), metric.to_json().to_string()] {
            assert!(!text.contains("opensesame"), "{text}");
            assert!(!text.contains("NM_KEY"), "{text}");
        }
    }

    #[test]
    fn faults_do_not_show_keys() {
        let text = r#"[{"criterion": {"llmJudge": {"judgeModel": {"apiKey": ["opensesame"]}}}}]"#;
        let error = read_metrics(text, "f", &environment()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f: [0].criterion.llmJudge.judgeModel.apiKey: expected a string, found a list; correct that value"
        );
        assert!(!format!("{error:?}").contains("opensesame"));
        let text = r#"[{"criterion": {"llmJudge": {"judgeModel": {"apiKey": "opensesame",}}}}]"#;
        let error = read_metrics(text, "f", &environment()).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("opensesame"));
    }

    #[test]
    fn warnings_name_metrics_and_variables() {
        let text = r#"[{"metricName": "a"}, {"metricName": "a", "threshold": 1, "criterion":
            {"llmJudge": {"judgeModel": {"apiKey": "$NM_NONE"}}}}]"#;
        let warnings = read_metrics(text, "f", &environment()).unwrap().warnings;
        assert_eq!(
            warnings,
            [
                "f: the metric `a` has no threshold, so every score passes it",
                "f: the metric `a` is there twice; the first one is used",
                "f: the environment variable `NM_NONE` is not set; the empty text stands for it",
            ]
        );
    }

    #[test]
    fn criteria_of_the_first_files_are_converted() {
        let text = r#"[{"metricName": "a", "threshold": 1, "criterion": {"toolTrajectory": {"orderInsensitive": false,
            "defaultStrategy": {"response": {"ignore": true}},
            "toolStrategy": {"t": {"response": {}, "result": {}}}}}}]"#;
        let loaded = read_metrics(text, "f", &environment()).unwrap();
        assert_eq!(loaded.warnings.len(), 1);
        assert_eq!(
            loaded.value[0].to_json()["criterion"]["toolTrajectory"].to_string(),
            r#"{"defaultStrategy":{"result":{"ignore":true}},"toolStrategy":{"t":{"result":{},"response":{}}},"#
                .to_owned()
                + r#""orderSensitive":true}"#
        );
    }
}
