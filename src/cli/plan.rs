//! `nightmill plan`: what judges would be asked, before anything is sent.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{AnyError, Outcome, outcome, request};
use crate::config::Settings;
use crate::report::counted;
use crate::run::{PlanSummary, plan};

/// Flags of `plan`.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Files, folders (also Hive-partitioned) and globs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: PlanArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let settings = args.settings.complete(config)?;
    // A plan makes no run directory.
    let request = request::score(&settings, args.paths, PathBuf::new())?;
    let Some(judge) = &request.judge else {
        return Err("no metric of this plan asks a judge, so that nothing would be sent; name one with --metrics".into());
    };
    let planned = plan(&request, judge)?;
    let text = match settings.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => table(&planned),
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

fn table(plan: &PlanSummary) -> String {
    let mut text = format!(
        "{} would be judged, of {}; nothing was sent\n\n\
         metric                model                         calls  of them known   prompt tokens  reply tokens     dollars\n",
        counted(plan.chosen_traces, "trace", "traces"),
        counted(plan.rows, "row", "rows")
    );
    for metric in plan.metrics.iter().chain([&plan.total]) {
        let cost = metric
            .cost
            .map_or_else(|| "no price".to_owned(), |cost| format!("{cost:.4}"));
        text.push_str(&format!(
            "{:<21} {:<26} {:>8} {:>14} {:>15} {:>13} {:>11}\n",
            metric.name,
            metric.model,
            metric.calls,
            metric.known,
            metric.prompt_tokens,
            metric.reply_tokens,
            cost
        ));
    }
    text.push_str(&format!(
        "\nFirst stages are counted exactly, later ones at their most: they need the replies of the first. Tokens are estimated \
         (a token for four bytes; {} for a reply, four times as many for one about a conversation). Prices as of {}.\n",
        plan.usual_reply_tokens, plan.prices_as_of
    ));
    text
}
