//! What a suite came to, as one page for the browser.

mod room;
mod shown;

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use serde::Serialize;

use crate::report::STYLE;

use super::flakiness;
use super::outcome::SuiteOutcome;
use room::short;
use shown::{CaseList, few};

const TEMPLATE: &str = include_str!("page.html.j2");
/// The most changes, notes, inputs and files that are listed, each.
const MOST_LINES: usize = 200;

/// What a page says of where it is from.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PageFacts {
    /// When the suite was run, as ISO 8601 in UTC.
    pub created_at: String,
    /// The version of nightmill.
    pub version: String,
    /// What was read: paths of sets, metrics, golden files, runs.
    pub inputs: Vec<String>,
}

/// What a suite came to, as one self-contained HTML page without scripts. Everything that comes from data is escaped.
/// However large the suite is, the page has at most some 8 million characters of it; what is left out is counted in it.
///
/// # Errors
/// A message, if the template is broken.
pub fn html(outcome: &SuiteOutcome, facts: &PageFacts) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .add_template("suite.html", TEMPLATE)
        .map_err(|e| e.to_string())?;
    let template = environment
        .get_template("suite.html")
        .map_err(|e| e.to_string())?;
    let page = template.render(context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        facts => context! {
            created_at => facts.created_at,
            version => facts.version,
        },
        inputs => few(&facts.inputs, MOST_LINES),
        files => few(&outcome.files, MOST_LINES),
        notes => few(&outcome.notes, MOST_LINES),
        changes => few(&outcome.changes, MOST_LINES),
        kind => outcome.kind,
        name => short(&outcome.name),
        of => short(&outcome.of),
        verdict => outcome.verdict,
        partial => outcome.is_partial(),
        score => outcome.score,
        runs => outcome.runs,
        seconds => outcome.seconds,
        judging => outcome.judging.as_ref().map(shown::judging),
        gates => shown::gates(&outcome.gates),
        flakiness => outcome.flakiness.as_ref().map(|found| few(&flakiness::lines(found), MOST_LINES)),
        k => outcome.flakiness.as_ref().map(|found| found.k),
        metrics => shown::metrics(&outcome.metrics),
        cases => CaseList::of(&outcome.cases, outcome.runs > 1),
    });
    page.map_err(|e| format!("the page could not be rendered: {e:#}"))
}

#[cfg(test)]
mod tests;
