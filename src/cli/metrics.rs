//! `nightmill metrics`.

use clap::Args;

use super::{AnyError, Outcome, outcome};
use crate::metric::ALL;

/// Flags of `metrics`.
#[derive(Args, Debug)]
pub(super) struct MetricsArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &MetricsArgs) -> Result<Outcome, AnyError> {
    let text = if args.json {
        let list: Vec<_> = ALL
            .iter()
            .map(|m| {
                serde_json::json!({
                    "name": m.name,
                    "level": m.level.name(),
                    "method": m.method.name(),
                    "default_threshold": m.default_threshold,
                    "inputs": m.inputs,
                    "meaning": m.meaning,
                })
            })
            .collect();
        format!("{}\n", serde_json::to_string_pretty(&list)?)
    } else {
        let mut text = String::new();
        for m in ALL {
            text.push_str(&format!(
                "{}\n  level {}, method {}, default threshold {}\n  from {}\n  {}\n",
                m.name,
                m.level.name(),
                m.method.name(),
                m.default_threshold,
                m.inputs.join(", "),
                m.meaning
            ));
        }
        text
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}
