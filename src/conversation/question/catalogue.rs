//! The metrics that a judge can be asked for (as in Connexity): nine built-in ones and those of a metrics file.

use crate::conversation::question::metric::{
    CustomMetric, Metric, Scale, Tier, description_of, display_name_of,
};

/// The name under which outcomes stand in the reply; no metric may have it.
pub(in crate::conversation) const OUTCOMES_KEY: &str = "expected_outcomes";
/// The metric that enters a selection only with a weight of its own.
pub(in crate::conversation) const OPT_IN_METRIC: &str = "task_completion";
const MAX_NAME_LENGTH: usize = 255;

/// What is wrong with an entry of a metrics file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CatalogueError {
    /// The name has other characters, or too many.
    #[error(
        "`{name}` is no metric name; use a lower-case letter, then lower-case letters, digits and `_`, \
         at most 255 in all"
    )]
    BadName {
        /// The name found.
        name: String,
    },
    /// The name has a meaning of its own in replies.
    #[error(
        "a metric can't be called `expected_outcomes`; the judge's reply uses this name, choose another one"
    )]
    ReservedName,
    /// Two live entries share a name.
    #[error("the metric `{name}` is defined twice; rename one of them or mark it as deleted")]
    DuplicateName {
        /// The name found twice.
        name: String,
    },
    /// The default weight is negative or not finite.
    #[error("the metric `{name}` has the default weight {weight}; use a number of at least 0")]
    BadWeight {
        /// The metric.
        name: String,
        /// The weight found.
        weight: f64,
    },
    /// A new metric has no rubric, or any metric a blank one.
    #[error("the metric `{name}` has no rubric; describe what each level means")]
    NoRubric {
        /// The metric.
        name: String,
    },
    /// An entry changes what is fixed in a built-in metric.
    #[error(
        "the field `{field}` of the built-in metric `{name}` can't be changed; only `rubric` and `default_weight` can, \
         or define a metric of another name"
    )]
    FixedField {
        /// The metric.
        name: String,
        /// The field that differs.
        field: &'static str,
    },
}

/// All metrics that can be selected.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    built_in: Vec<Metric>,
    custom: Vec<Metric>,
}

macro_rules! rubric {
    ($name:literal) => {
        include_str!(concat!("../../question/prompts/rubrics/", $name, ".md"))
    };
}

impl Catalogue {
    /// The nine built-in metrics.
    pub fn built_in() -> Self {
        use Scale::{Binary, Scored};
        use Tier::{Delivery, Execution, Knowledge, Process};
        let rows = [
            (
                "tool_routing",
                Execution,
                Scored,
                0.15,
                rubric!("tool_routing"),
            ),
            (
                "parameter_extraction",
                Execution,
                Scored,
                0.15,
                rubric!("parameter_extraction"),
            ),
            (
                "result_interpretation",
                Execution,
                Scored,
                0.15,
                rubric!("result_interpretation"),
            ),
            (
                "grounding_fidelity",
                Knowledge,
                Scored,
                0.125,
                rubric!("grounding_fidelity"),
            ),
            (
                "instruction_compliance",
                Knowledge,
                Scored,
                0.125,
                rubric!("instruction_compliance"),
            ),
            (
                "information_gathering",
                Process,
                Scored,
                0.10,
                rubric!("information_gathering"),
            ),
            (
                "conversation_management",
                Process,
                Scored,
                0.10,
                rubric!("conversation_management"),
            ),
            (
                "response_delivery",
                Delivery,
                Scored,
                0.10,
                rubric!("response_delivery"),
            ),
            (
                OPT_IN_METRIC,
                Execution,
                Binary,
                0.0,
                rubric!("task_completion"),
            ),
        ];
        let built_in = rows.map(|(name, tier, score_type, default_weight, rubric)| Metric {
            name: name.to_owned(),
            display_name: display_name_of(name),
            description: description_of(rubric),
            tier,
            default_weight,
            score_type,
            rubric: rubric.trim_end().to_owned(),
            include_in_defaults: name != OPT_IN_METRIC,
            is_draft: false,
            deleted: false,
            shipped_rubric: true,
        });
        Self {
            built_in: built_in.into(),
            custom: Vec::new(),
        }
    }

    /// The built-in metrics with the entries of a metrics file, in file order.
    ///
    /// # Errors
    /// The first entry that breaks a rule.
    pub fn with_custom(
        entries: impl IntoIterator<Item = CustomMetric>,
    ) -> Result<Self, CatalogueError> {
        let mut catalogue = Self::built_in();
        let mut changed = Vec::new();
        for entry in entries {
            check_name(&entry.name)?;
            if let Some(weight) = entry
                .default_weight
                .filter(|w| !(w.is_finite() && *w >= 0.0))
            {
                return Err(CatalogueError::BadWeight {
                    name: entry.name,
                    weight,
                });
            }
            if entry
                .rubric
                .as_ref()
                .is_some_and(|rubric| rubric.trim().is_empty())
            {
                return Err(CatalogueError::NoRubric { name: entry.name });
            }
            let built_in = catalogue.built_in.iter_mut().find(|m| m.name == entry.name);
            if let Some(metric) = built_in {
                if changed.contains(&entry.name) {
                    return Err(CatalogueError::DuplicateName { name: entry.name });
                }
                changed.push(entry.name.clone());
                change(metric, entry)?;
                continue;
            }
            let live = |m: &Metric| !m.deleted && m.name == entry.name;
            if !entry.deleted && catalogue.custom.iter().any(live) {
                return Err(CatalogueError::DuplicateName { name: entry.name });
            }
            catalogue.custom.push(new_metric(entry)?);
        }
        Ok(catalogue)
    }

    /// The metric of this exact id. A live one wins over deleted ones, of which the last in the file counts.
    pub fn find(&self, name: &str) -> Option<&Metric> {
        let mut found = self.custom.iter().rev().filter(|m| m.name == name);
        let live = |m: &&Metric| !m.deleted;
        self.built_in
            .iter()
            .find(|m| m.name == name)
            .or_else(|| found.clone().find(live))
            .or_else(|| found.next())
    }

    /// The metrics that are scored where nothing is selected, in catalogue order.
    pub fn defaults(&self) -> impl Iterator<Item = &Metric> {
        self.built_in
            .iter()
            .filter(|m| m.include_in_defaults && m.score_type == Scale::Scored)
    }

    /// The metrics that are shown: the built-in ones, then live custom ones that are no drafts.
    pub fn listed(&self) -> impl Iterator<Item = &Metric> {
        let shown = self.custom.iter().filter(|m| !m.is_draft && !m.deleted);
        self.built_in.iter().chain(shown)
    }

    /// The listing as JSON: `{"data": [...], "count": N}`.
    pub fn listing(&self) -> serde_json::Value {
        let data: Vec<&Metric> = self.listed().collect();
        serde_json::json!({"data": data, "count": data.len()})
    }
}

pub(in crate::conversation) fn check_name(name: &str) -> Result<(), CatalogueError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !starts_well || !name.chars().all(allowed) || name.len() > MAX_NAME_LENGTH {
        return Err(CatalogueError::BadName {
            name: name.to_owned(),
        });
    }
    if name == OUTCOMES_KEY {
        return Err(CatalogueError::ReservedName);
    }
    Ok(())
}

fn change(metric: &mut Metric, entry: CustomMetric) -> Result<(), CatalogueError> {
    let differs = [
        (
            "display_name",
            entry.display_name.is_some_and(|v| v != metric.display_name),
        ),
        (
            "description",
            entry.description.is_some_and(|v| v != metric.description),
        ),
        ("tier", entry.tier.is_some_and(|v| v != metric.tier)),
        (
            "score_type",
            entry.score_type.is_some_and(|v| v != metric.score_type),
        ),
        (
            "include_in_defaults",
            entry
                .include_in_defaults
                .is_some_and(|v| v != metric.include_in_defaults),
        ),
        ("is_draft", entry.is_draft),
        ("deleted", entry.deleted),
    ];
    if let Some((field, _)) = differs.into_iter().find(|(_, differs)| *differs) {
        return Err(CatalogueError::FixedField {
            name: entry.name,
            field,
        });
    }
    metric.default_weight = entry.default_weight.unwrap_or(metric.default_weight);
    if let Some(rubric) = entry.rubric.filter(|rubric| *rubric != metric.rubric) {
        metric.rubric = rubric;
        metric.shipped_rubric = false;
    }
    Ok(())
}

fn new_metric(entry: CustomMetric) -> Result<Metric, CatalogueError> {
    let Some(rubric) = entry.rubric else {
        return Err(CatalogueError::NoRubric { name: entry.name });
    };
    Ok(Metric {
        display_name: entry
            .display_name
            .unwrap_or_else(|| display_name_of(&entry.name)),
        description: entry.description.unwrap_or_else(|| description_of(&rubric)),
        tier: entry.tier.unwrap_or(Tier::Process),
        default_weight: entry.default_weight.unwrap_or(1.0),
        score_type: entry.score_type.unwrap_or(Scale::Scored),
        include_in_defaults: entry.include_in_defaults.unwrap_or(false),
        is_draft: entry.is_draft,
        deleted: entry.deleted,
        shipped_rubric: false,
        name: entry.name,
        rubric,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> CustomMetric {
        CustomMetric {
            name: name.into(),
            rubric: Some("Measures: something.\n5 - all".into()),
            ..Default::default()
        }
    }

    #[test]
    fn built_in_metrics_have_the_documented_values_and_a_line_per_level() {
        let catalogue = Catalogue::built_in();
        let listed: Vec<&Metric> = catalogue.listed().collect();
        assert_eq!(listed.len(), 9);
        assert_eq!(catalogue.defaults().count(), 8);
        for metric in listed {
            let levels: &[&str] = match metric.score_type {
                Scale::Scored => &["5 - ", "4 - ", "3 - ", "2 - ", "1 - ", "0 - "],
                Scale::Binary => &["Pass - ", "Fail - "],
            };
            let found: Vec<&str> = metric
                .rubric
                .lines()
                .filter(|line| line.contains(" - "))
                .collect();
            assert_eq!(found.len(), levels.len(), "{}", metric.name);
            assert!(
                found
                    .iter()
                    .zip(levels)
                    .all(|(line, level)| line.starts_with(level)),
                "{}",
                metric.name
            );
            assert_eq!(
                metric.rubric.matches("Example: ").count(),
                levels.len(),
                "{}",
                metric.name
            );
            assert!(
                metric.description.starts_with("Whether the "),
                "{}",
                metric.name
            );
        }
        assert_eq!(
            catalogue.find("task_completion").unwrap().display_name,
            "Task Completion"
        );
        assert_eq!(catalogue.find("Tool_routing"), None);
    }

    #[test]
    fn the_listing_has_the_served_form_and_can_be_read_as_a_metrics_file() {
        let listing = Catalogue::built_in().listing();
        assert_eq!(listing["count"], 9);
        let first = listing["data"][0].as_object().unwrap();
        let keys: Vec<&String> = first.keys().collect();
        assert_eq!(keys.len(), 8, "{keys:?}");
        assert_eq!(first["default_weight"], 0.15);
        assert_eq!(
            (&first["tier"], &first["score_type"]),
            (&"execution".into(), &"scored".into())
        );
        let entries: Vec<CustomMetric> = serde_json::from_value(listing["data"].clone()).unwrap();
        assert_eq!(
            Catalogue::with_custom(entries).unwrap(),
            Catalogue::built_in()
        );
    }

    #[test]
    fn drafts_and_deleted_metrics_are_hidden_but_found() {
        let entries = [
            CustomMetric {
                deleted: true,
                tier: Some(Tier::Delivery),
                ..entry("polite")
            },
            CustomMetric {
                include_in_defaults: Some(true),
                ..entry("polite")
            },
            CustomMetric {
                is_draft: true,
                ..entry("draft_one")
            },
            CustomMetric {
                deleted: true,
                default_weight: Some(3.0),
                ..entry("gone")
            },
            CustomMetric {
                deleted: true,
                default_weight: Some(4.0),
                ..entry("gone")
            },
        ];
        let catalogue = Catalogue::with_custom(entries).unwrap();
        let shown: Vec<&str> = catalogue
            .listed()
            .skip(9)
            .map(|m| m.name.as_str())
            .collect();
        assert_eq!(shown, ["polite"]);
        assert_eq!(catalogue.defaults().count(), 8);
        let polite = catalogue.find("polite").unwrap();
        assert_eq!(
            (polite.tier, polite.default_weight, polite.deleted),
            (Tier::Process, 1.0, false)
        );
        assert_eq!(
            (polite.display_name.as_str(), polite.description.as_str()),
            ("Polite", "Something.")
        );
        assert!(catalogue.find("draft_one").is_some());
        assert_eq!(catalogue.find("gone").unwrap().default_weight, 4.0);
    }

    #[test]
    fn entries_that_break_a_rule_are_refused() {
        let refused = |entries: Vec<CustomMetric>| Catalogue::with_custom(entries).unwrap_err();
        for bad in ["", "Tool", "1a", "a-b", "_a", "é", &"a".repeat(256)] {
            assert!(
                matches!(refused(vec![entry(bad)]), CatalogueError::BadName { .. }),
                "{bad}"
            );
        }
        assert!(Catalogue::with_custom([entry(&"a".repeat(255))]).is_ok());
        assert_eq!(
            refused(vec![entry("expected_outcomes")]),
            CatalogueError::ReservedName
        );
        assert!(matches!(
            refused(vec![entry("a"), entry("a")]),
            CatalogueError::DuplicateName { .. }
        ));
        let draft = CustomMetric {
            is_draft: true,
            ..entry("a")
        };
        assert!(matches!(
            refused(vec![draft, entry("a")]),
            CatalogueError::DuplicateName { .. }
        ));
        for weight in [-0.1, f64::NAN, f64::INFINITY] {
            let heavy = CustomMetric {
                default_weight: Some(weight),
                ..entry("a")
            };
            assert!(matches!(
                refused(vec![heavy]),
                CatalogueError::BadWeight { .. }
            ));
        }
        let empty = CustomMetric {
            rubric: None,
            ..entry("a")
        };
        assert!(matches!(
            refused(vec![empty]),
            CatalogueError::NoRubric { .. }
        ));
        let renamed = CustomMetric {
            display_name: Some("Routes".into()),
            ..entry("tool_routing")
        };
        assert!(matches!(
            refused(vec![renamed]),
            CatalogueError::FixedField {
                field: "display_name",
                ..
            }
        ));
    }

    #[test]
    fn a_built_in_metric_takes_another_rubric_and_default_weight() {
        let other = CustomMetric {
            default_weight: Some(0.5),
            ..entry("tool_routing")
        };
        let catalogue = Catalogue::with_custom([other]).unwrap();
        let metric = catalogue.find("tool_routing").unwrap();
        assert_eq!((metric.default_weight, metric.shipped_rubric), (0.5, false));
        assert_eq!(
            catalogue.defaults().next().unwrap().rubric,
            "Measures: something.\n5 - all"
        );
    }
}
