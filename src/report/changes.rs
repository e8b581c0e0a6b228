//! What changed since last night, for the browser: charts as inline SVG, without outside resources.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};

use super::STYLE;
use crate::history::Changes;
use crate::history::changes::MOST_NIGHTS;

const SECTION: &str = include_str!("changes.html.j2");
const PAGE: &str = include_str!("changes_page.html.j2");
/// The look of the section, as CSS beside that of the report.
pub const CHART_STYLE: &str = include_str!("changes.css");

/// The section "What changed" of a page. Everything that comes from data is escaped.
///
/// # Errors
/// A message, if the template is broken.
pub fn changes_section(changes: &Changes) -> Result<String, String> {
    render("changes.html", SECTION, |template| {
        template.render(context! {
            changes => changes,
            drift => changes.drift(),
            untold => changes.untold(),
            few_nights => changes.few_nights(),
            most_nights => MOST_NIGHTS,
        })
    })
}

/// The section as a page of its own.
///
/// # Errors
/// As [`changes_section`].
pub fn changes_page(changes: &Changes) -> Result<String, String> {
    let section = changes_section(changes)?;
    render("changes_page.html", PAGE, |template| {
        template.render(context! {
            changes => changes,
            section => Value::from_safe_string(section.clone()),
            style => Value::from_safe_string(STYLE.to_owned()),
            chart_style => Value::from_safe_string(CHART_STYLE.to_owned()),
        })
    })
}

fn render(
    name: &str,
    source: &str,
    with: impl Fn(&minijinja::Template<'_, '_>) -> Result<String, minijinja::Error>,
) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let failed = |e: minijinja::Error| format!("what changed could not be rendered: {e:#}");
    environment.add_template(name, source).map_err(failed)?;
    let template = environment.get_template(name).map_err(failed)?;
    with(&template).map_err(failed)
}
