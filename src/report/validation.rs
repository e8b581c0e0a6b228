//! What scores tell of labels, for the browser: curves as inline SVG, without outside resources.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};

use super::STYLE;
use crate::validation::{OF_SLICES, Validation};

const PAGE: &str = include_str!("validation.html.j2");
const LOOK: &str = include_str!("validation.css");

/// A page of what figures tell, with a curve of each. Everything that comes from data is escaped.
///
/// # Errors
/// A message, if the template is broken.
pub fn validation_page(validation: &Validation) -> Result<String, String> {
    let failed = |e: minijinja::Error| format!("the validation could not be rendered: {e:#}");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .add_template("validation.html", PAGE)
        .map_err(failed)?;
    let template = environment
        .get_template("validation.html")
        .map_err(failed)?;
    let page = template.render(context! {
        validation => validation,
        of_slices => OF_SLICES,
        style => Value::from_safe_string(STYLE.to_owned()),
        look => Value::from_safe_string(LOOK.to_owned()),
    });
    page.map_err(failed)
}
