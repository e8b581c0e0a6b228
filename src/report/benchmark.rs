//! What models are worth, for the browser: quality over speed as inline SVG, without outside resources.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use serde_json::json;

use super::STYLE;
use crate::benchmark::ModelFigures;

const PAGE: &str = include_str!("benchmark.html.j2");
const LOOK: &str = include_str!("benchmark.css");

/// The area of the chart, in its own units: left, right, top, bottom.
const CHART: [f64; 4] = [60.0, 680.0, 20.0, 300.0];

/// A page of figures, and a bubble for each model: quality over tokens a second, as large as its memory. Everything that comes
/// from data is escaped.
///
/// # Errors
/// A message, if the template is broken.
pub fn benchmark_page(models: &[ModelFigures]) -> Result<String, String> {
    let failed = |e: minijinja::Error| format!("the figures could not be rendered: {e:#}");
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment
        .add_template("benchmark.html", PAGE)
        .map_err(failed)?;
    let template = environment.get_template("benchmark.html").map_err(failed)?;
    let page = template.render(context! {
        models => models,
        bubbles => bubbles(models),
        speeds => speeds(models),
        style => Value::from_safe_string(STYLE.to_owned()),
        look => Value::from_safe_string(LOOK.to_owned()),
    });
    page.map_err(failed)
}

/// The powers of ten that the speeds are between.
fn decades(models: &[ModelFigures]) -> [f64; 2] {
    let logs = models
        .iter()
        .map(|of| of.tokens_per_second.max(1.0).log10());
    let low = logs.clone().fold(f64::INFINITY, f64::min).floor();
    let high = logs.fold(0.0, f64::max).ceil().max(low + 1.0);
    [low, high]
}

/// Marks of the axis of speeds: place, and tokens a second.
fn speeds(models: &[ModelFigures]) -> Vec<(f64, String)> {
    if models.is_empty() {
        return Vec::new();
    }
    let [low, high] = decades(models);
    let marks = low as i32..=high as i32;
    let named = |power: i32| match power {
        0..3 => format!("{}", 10u64.pow(power as u32)),
        3..6 => format!("{} k", 10u64.pow(power as u32 - 3)),
        _ => format!("{} M", 10u64.pow(power.clamp(6, 18) as u32 - 6)),
    };
    marks
        .map(|power| (place(f64::from(power), [low, high]), named(power)))
        .collect()
}

fn place(log: f64, [low, high]: [f64; 2]) -> f64 {
    let [left, right, ..] = CHART;
    left + (log - low) / (high - low) * (right - left)
}

fn bubbles(models: &[ModelFigures]) -> Vec<serde_json::Value> {
    let [_, _, top, bottom] = CHART;
    let most = models
        .iter()
        .filter_map(|of| of.memory)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    /// Labels of bubbles that are nearer than this would stand in each other's way.
    const NEAR: [f64; 2] = [170.0, 60.0];
    const LINE: f64 = 15.0;
    let decades = decades(models);
    let at = |of: &ModelFigures| {
        let y = bottom - of.quality().clamp(0.0, 1.0) * (bottom - top);
        [place(of.tokens_per_second.max(1.0).log10(), decades), y]
    };
    let bubble = |(nth, of): (usize, &ModelFigures)| {
        let [x, y] = at(of);
        let share = of.memory.map_or(0.2, |memory| memory as f64 / most);
        let radius = 5.0 + 17.0 * share.sqrt();
        let earlier = models[..nth].iter().map(at);
        let near = earlier.filter(|[a, b]| (a - x).abs() < NEAR[0] && (b - y).abs() < NEAR[1]);
        let lines = near.count() as f64;
        // Below, one under the other; above, where there is no room below.
        let label_y = match y + radius + LINE * (lines + 1.0) < bottom {
            true => y + radius + LINE * (lines + 1.0),
            false => y - radius - 5.0 - LINE * lines,
        };
        json!({
            "x": x,
            "y": y,
            "r": radius,
            "label": format!("{} {}", of.model, of.precision),
            "label_y": label_y,
            "quality": of.quality(),
        })
    };
    models.iter().enumerate().map(bubble).collect()
}
