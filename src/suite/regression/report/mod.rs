//! What a run came to, for programs, people and build systems.

mod json;
mod junit;
mod markdown;

pub use json::json_report;
pub use junit::junit_report;
pub use markdown::markdown_report;

#[cfg(test)]
mod tests;
