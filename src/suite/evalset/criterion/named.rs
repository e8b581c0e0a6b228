//! Comparisons and tokenizers by name: a metrics file says `compareName` or `tokenizerName`, a program brings the
//! functions.

use std::collections::BTreeMap;

use super::{
    FinalResponseCriterion, InvocationFunction, JsonCriterion, JsonFunction, TextCriterion,
    TextFunction, Tokenizer, ToolTrajectoryCriterion,
};

/// What a program brings along, by name.
#[derive(Clone, Debug, Default)]
pub struct NamedComparisons {
    /// For text criteria.
    pub texts: BTreeMap<String, TextFunction>,
    /// For JSON criteria.
    pub values: BTreeMap<String, JsonFunction>,
    /// For whole turns: tool trajectories and final responses.
    pub turns: BTreeMap<String, InvocationFunction>,
    /// For ROUGE.
    pub tokenizers: BTreeMap<String, Tokenizer>,
}

/// A criterion names a function that there is none of. It stops a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} named `{name}`; register it, or take the name out of the metrics file")]
pub struct UnknownName {
    /// `comparison` or `tokenizer`.
    pub kind: &'static str,
    /// The name.
    pub name: String,
}

impl ToolTrajectoryCriterion {
    /// Looks every name up.
    ///
    /// # Errors
    /// [`UnknownName`] for the first one that is not there.
    pub fn resolve(&mut self, named: &NamedComparisons) -> Result<(), UnknownName> {
        look_up(
            "comparison",
            &self.compare_name,
            &named.turns,
            &mut self.compare,
        )?;
        let strategies = self.tool_strategies.values_mut();
        for strategy in self.default_strategy.iter_mut().chain(strategies) {
            strategy.name.iter_mut().try_for_each(|c| text(c, named))?;
            let values = [&mut strategy.arguments, &mut strategy.result];
            values
                .into_iter()
                .flatten()
                .try_for_each(|c| value(c, named))?;
        }
        Ok(())
    }
}

impl FinalResponseCriterion {
    /// Looks every name up.
    ///
    /// # Errors
    /// [`UnknownName`] for the first one that is not there.
    pub fn resolve(&mut self, named: &NamedComparisons) -> Result<(), UnknownName> {
        look_up(
            "comparison",
            &self.compare_name,
            &named.turns,
            &mut self.compare,
        )?;
        self.text.iter_mut().try_for_each(|c| text(c, named))?;
        self.json.iter_mut().try_for_each(|c| value(c, named))?;
        self.rouge.iter_mut().try_for_each(|c| {
            look_up(
                "tokenizer",
                &c.tokenizer_name,
                &named.tokenizers,
                &mut c.tokenizer,
            )
        })
    }
}

fn text(criterion: &mut TextCriterion, named: &NamedComparisons) -> Result<(), UnknownName> {
    look_up(
        "comparison",
        &criterion.compare_name,
        &named.texts,
        &mut criterion.compare,
    )
}

fn value(criterion: &mut JsonCriterion, named: &NamedComparisons) -> Result<(), UnknownName> {
    look_up(
        "comparison",
        &criterion.compare_name,
        &named.values,
        &mut criterion.compare,
    )
}

fn look_up<F: Clone>(
    kind: &'static str,
    name: &str,
    known: &BTreeMap<String, F>,
    place: &mut Option<F>,
) -> Result<(), UnknownName> {
    // A function set by the program itself stays.
    if name.is_empty() || place.is_some() {
        return Ok(());
    }
    let Some(function) = known.get(name) else {
        let name = name.to_owned();
        return Err(UnknownName { kind, name });
    };
    *place = Some(function.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_looked_up_in_every_part() {
        let criterion = json!({"toolStrategy": {"t": {"name": {"compareName": "same"}}}});
        let mut criterion = ToolTrajectoryCriterion::read(&criterion, "c").unwrap();
        let mut named = NamedComparisons::default();
        let unknown = criterion.resolve(&named).unwrap_err();
        assert_eq!(
            (unknown.kind, unknown.name.as_str()),
            ("comparison", "same")
        );
        let same = TextFunction::of_texts(|a, b| Ok(a == b));
        named.texts.insert("same".to_owned(), same.clone());
        criterion.resolve(&named).unwrap();
        let strategy = criterion.tool_strategies["t"].clone();
        assert_eq!(strategy.name.unwrap().compare, Some(same));
    }

    #[test]
    fn an_unknown_tokenizer_is_named() {
        let criterion = json!({"rouge": {"rougeType": "rouge1", "tokenizerName": "mine"}});
        let mut criterion = FinalResponseCriterion::read(&criterion, "c").unwrap();
        let unknown = criterion.resolve(&NamedComparisons::default());
        assert_eq!(unknown.unwrap_err().kind, "tokenizer");
    }
}
