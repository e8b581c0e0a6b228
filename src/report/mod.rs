//! Reports for people: HTML for the browser, text for the terminal.

mod answer;
mod benchmark;
mod changes;
mod commands;
mod first_sessions;
mod judging;
mod list;
mod marked;
mod notice;
mod page;
mod paint;
mod terminal;
mod trust;
mod validation;
mod words;

pub use answer::answer;
pub use benchmark::benchmark_page;
pub use changes::{CHART_STYLE, changes_page, changes_section};
pub use first_sessions::{FirstSession, first_sessions};
pub use notice::{Notice, Places};
pub use page::html;
pub use paint::Paint;
pub use terminal::{judges, text};
pub use validation::validation_page;
pub use words::{brief, counted, drift, plain};

/// The look that all our pages share, as CSS for the one `<style>` of a page.
pub(crate) const STYLE: &str = include_str!("style.css");
