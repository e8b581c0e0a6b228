//! `nightmill plan`: what judges would be asked, before anything is sent.

use std::path::Path;

use clap::Args;

use super::{AnyError, Outcome, judge_request, outcome, request};
use crate::config::Settings;
use crate::run::{CacheChoice, PlanRequest, PlanSummary, plan};

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
    request::local_paths(&args.paths)?;
    let rules = request::rules(&settings)?;
    let Some(judge) = judge_request::judge(&settings, &rules)? else {
        return Err("no metric of this plan asks a judge, so that nothing would be sent; name one with --metrics".into());
    };
    let request = PlanRequest {
        paths: args.paths,
        format: request::format(&settings)?,
        map: request::column_map(&settings)?,
        on_bad_file: request::on_bad_file(&settings)?,
        signals: settings.signals.clone(),
        rules,
        engine: request::engine(&settings, CacheChoice::User)?,
        judge,
    };
    let planned = plan(&request)?;
    let text = match settings.json {
        true => format!("{}\n", serde_json::to_string_pretty(&planned)?),
        false => table(&planned),
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

fn table(plan: &PlanSummary) -> String {
    let mut text = format!(
        "{} of {} traces would be judged; nothing was sent\n\n\
         metric                model                         calls  of them known   prompt tokens  reply tokens     dollars\n",
        plan.chosen_traces, plan.traces
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
         (a token for four bytes; {} for a reply). Prices as of {}.\n",
        plan.usual_reply_tokens, plan.prices_as_of
    ));
    text
}
