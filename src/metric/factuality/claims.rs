//! Claims of an output, as a judge rules them.

use super::{FACTUALITY, FactualityMode, FactualityRules};
use crate::metric::checked::{Checked, Detail, cut, listed};
use crate::metric::comparison::{Compat, JsonTree, JsonValue, read_reply, reply_share};

/// What a judge said of the claims of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// The result.
    pub checked: Checked,
    /// Claims that the reference supports.
    pub supported: usize,
    /// Claims that it contradicts.
    pub contradicted: usize,
    /// Claims that it says nothing of, and claims without a known verdict.
    pub unverifiable: usize,
}

impl Claims {
    /// Claims that are not supported.
    pub fn failure_count(&self) -> usize {
        self.contradicted + self.unverifiable
    }
}

/// Reads a judge's reply, which cost `cost` cents; it may be in a code fence. None if it is no JSON or has no claims:
/// then [`shallow`](super::shallow) says the score, through
/// [`instead_of_judge`](super::Shallow::instead_of_judge).
///
/// The tool takes the `score` of the reply where there is one, and knows no modes.
pub fn judged(
    reply: &str,
    threshold: f64,
    rules: &FactualityRules,
    cost: Option<f64>,
) -> Option<Claims> {
    let tree = read_reply(reply)?;
    let Some(JsonValue::List(claims)) = tree.get(tree.root(), "claims") else {
        return None;
    };
    let claims = tree.items(claims);
    if claims.is_empty() {
        return None;
    }
    let is = |verdict: &'static str| {
        let tree = &tree;
        move |claim: &&JsonValue| text(tree, claim, "verdict") == Some(verdict)
    };
    let supported = claims.iter().filter(is("supported")).count();
    let contradicted = claims.iter().filter(is("contradicted")).count();
    let unverifiable = claims.len() - supported - contradicted;
    let said = reply_share(&tree, tree.root(), "score").filter(|_| rules.compat == Compat::Tool);
    let score = said.unwrap_or_else(|| share(supported, claims.len()));
    let passing = match (rules.compat, rules.mode) {
        (Compat::Document, FactualityMode::Lenient) => {
            share(supported + unverifiable, claims.len())
        }
        _ => score,
    };
    let failed = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| !is("supported")(claim));
    let details = failed.map(|(at, claim)| failed_claim(&tree, at + 1, claim));
    Some(Claims {
        checked: Checked {
            score,
            threshold,
            passed: passing >= threshold,
            confidence: reply_share(&tree, tree.root(), "confidence").unwrap_or(0.5),
            explanation: explain(&tree, [supported, contradicted, unverifiable]),
            judged: true,
            token_cost: cost,
            details: listed(FACTUALITY, details),
        },
        supported,
        contradicted,
        unverifiable,
    })
}

fn failed_claim(tree: &JsonTree, number: usize, claim: &JsonValue) -> Detail {
    let said = match claim {
        JsonValue::Object(_) => text(tree, claim, "claim").and_then(cut),
        other => cut(&tree.shown(other)),
    };
    let verdict = match text(tree, claim, "verdict") {
        Some("contradicted") => "contradicted",
        _ => "unverifiable",
    };
    Detail {
        check: format!("claim.{number}"),
        expected: text(tree, claim, "evidence").and_then(cut),
        actual: said,
        message: Some(verdict.to_owned()),
        ..Detail::default()
    }
}

fn explain(tree: &JsonTree, [supported, contradicted, unverifiable]: [usize; 3]) -> String {
    let counts = format!(
        "Claims: {supported} supported, {contradicted} contradicted, {unverifiable} unverifiable."
    );
    match text(tree, tree.root(), "explanation").map(str::trim) {
        Some(said) if !said.is_empty() => format!("{counts} {said}"),
        _ => counts,
    }
}

fn text<'t>(tree: &'t JsonTree, object: &JsonValue, key: &str) -> Option<&'t str> {
    match tree.get(object, key)? {
        JsonValue::Text(text) => Some(tree.text(text)),
        _ => None,
    }
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(mode: FactualityMode, compat: Compat) -> FactualityRules {
        FactualityRules {
            mode,
            compat,
            deep: true,
            ..FactualityRules::default()
        }
    }

    const REPLY: &str = r#"{"claims": [
        {"claim": "It is blue.", "verdict": "supported", "evidence": "blue"},
        {"claim": "It is old.", "verdict": "contradicted", "evidence": "new"},
        {"claim": "It is big.", "verdict": "Supported"}, "It is hot."
    ], "score": 0.9, "confidence": 1.5, "explanation": "Mostly."}"#;

    #[test]
    fn claims_are_counted_by_mode() {
        let strict = rules(FactualityMode::Strict, Compat::Document);
        let claims = judged(REPLY, 0.7, &strict, Some(2.5)).unwrap();
        assert_eq!(
            (claims.supported, claims.contradicted, claims.unverifiable),
            (1, 1, 2)
        );
        assert_eq!(claims.failure_count(), 3);
        let checked = &claims.checked;
        assert_eq!(
            (checked.score, checked.passed, checked.confidence),
            (0.25, false, 1.0)
        );
        assert_eq!((checked.token_cost, checked.judged), (Some(2.5), true));
        assert!(
            checked.explanation.ends_with("Mostly."),
            "{}",
            checked.explanation
        );
        let shown: Vec<_> = checked
            .details
            .iter()
            .map(|d| (&*d.check, d.expected.as_deref(), d.actual.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("claim.2", Some("new"), Some("It is old.")),
                ("claim.3", None, Some("It is big.")),
                ("claim.4", None, Some("It is hot.")),
            ]
        );
        let lenient = rules(FactualityMode::Lenient, Compat::Document);
        let checked = judged(REPLY, 0.7, &lenient, None).unwrap().checked;
        assert_eq!((checked.score, checked.passed), (0.25, true));
    }

    #[test]
    fn the_tool_takes_the_score_of_the_judge() {
        let tool = rules(FactualityMode::Strict, Compat::Tool);
        let checked = judged(REPLY, 0.7, &tool, None).unwrap().checked;
        assert_eq!((checked.score, checked.passed), (0.9, true));
    }

    #[test]
    fn replies_without_claims_cannot_be_used() {
        let rules = rules(FactualityMode::Strict, Compat::Document);
        for reply in [
            "",
            "no",
            "[]",
            "{}",
            "{\"claims\": []}",
            "{\"claims\": {\"a\": 1}}",
            "{\"claims\": 3}",
        ] {
            assert!(judged(reply, 0.7, &rules, None).is_none(), "{reply}");
        }
        let fenced = "\n```json\n{\"claims\": [{\"verdict\": \"supported\"}], \"confidence\": \"high\"}\n```\n";
        let checked = judged(fenced, 0.7, &rules, None).unwrap().checked;
        assert_eq!(
            (checked.score, checked.confidence, checked.passed),
            (1.0, 0.5, true)
        );
    }
}
