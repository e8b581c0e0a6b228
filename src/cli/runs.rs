//! `nightmill runs`: finished runs and their scores over time.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::analysed_runs::AnalysedRuns;
use super::pooling::{OfModel, Pool, Pooling, refuse_several};
use super::runs_flags::{
    ComparisonArgs, DistributionArgs, HistoryArgs, Looked, RunsCommand, SummaryArgs, SummaryTarget,
    TrendArgs,
};
use super::{
    AnyError, Outcome, changes, computed_comparison, conversation_comparison, conversation_summary,
    delete, forget, list, listing, prune, retry, scores, show, verify,
};
use crate::history::figures::{
    DataType, LastBucket, Page, ScoreFilter, ScoreRecord, SummaryRow, Target,
};
use crate::history::{
    ScoreQuery, StoredRun, figures, holds_conversations, read_scores, stored_metrics,
};
use crate::metric::Level;
use crate::report::counted;
use crate::text::format_instant;
use crate::trace::canonical_trace_id;

pub(super) use super::runs_flags::RunsArgs;

/// What a metric is about.
fn target_of(metric: &str) -> Target {
    match crate::metric::find(metric).map(|m| m.level) {
        Some(Level::Session) => Target::Session,
        _ => Target::Trace,
    }
}

pub(super) fn run(args: RunsArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    match args.command {
        RunsCommand::List(args) => return list::run(&args),
        RunsCommand::Show(args) => return show::run(&args, config),
        RunsCommand::Delete(args) => return delete::run(&args),
        RunsCommand::Prune(args) => return prune::run(&args),
        RunsCommand::Forget(args) => return forget::run(&args),
        RunsCommand::Summary(args) => summary(&args)?,
        RunsCommand::Trend(args) => trend(&args)?,
        RunsCommand::Distribution(args) => distribution(&args)?,
        RunsCommand::History(args) => history(&args)?,
        RunsCommand::Comparison(args) => match &args.metric {
            Some(metric) => comparison(&args, metric)?,
            None => {
                return match computed_comparison::runs_of(&args) {
                    Some(runs) => computed_comparison::run(&args, &runs),
                    None => conversation_comparison::run(&args, config),
                };
            }
        },
        RunsCommand::Changes(args) => return changes::run(&args),
        RunsCommand::Retry(args) => return retry::run(*args),
        RunsCommand::Verify(args) => return verify::run(&args, config),
        RunsCommand::Scores(args) => return scores::run(args),
    }
    Ok(Outcome::Done)
}

impl Looked {
    /// A query for all scores of a metric, without their ids.
    fn query<'a>(&'a self, target: Target, metric: Option<&'a str>) -> ScoreQuery<'a> {
        ScoreQuery {
            filter: self.filter(target),
            metric,
            target_id: None,
            project_id: self.project.as_deref(),
            with_ids: false,
        }
    }
}

/// A metric that has no registered name is one of scores that people made: then a run has it.
fn check_metric(runs: &[StoredRun], metric: &str) -> Result<(), AnyError> {
    if crate::metric::find(metric).is_some() {
        return Ok(());
    }
    let stored = stored_metrics(runs, &ScoreFilter::all(Target::Trace))?;
    if stored.contains(metric) {
        return Ok(());
    }
    let registered = crate::metric::ALL.iter().map(|m| m.name);
    let near = crate::text::nearest(metric, stored.iter().map(String::as_str).chain(registered));
    let message = format!(
        "--metric {metric}: no such metric{near}; `nightmill metrics` lists them, and these runs have no other score of that name"
    );
    Err(message.into())
}

/// A summary and what it is about.
#[derive(Serialize)]
struct SummaryLine {
    target: Target,
    #[serde(flatten)]
    row: OfModel<SummaryRow>,
}

fn summary(args: &SummaryArgs) -> Result<(), AnyError> {
    let looked = &args.looked;
    let targets = match (args.target, &args.metric) {
        (Some(SummaryTarget::Conversations), None) => {
            // Each run by itself: nothing is counted twice.
            return conversation_summary::print(looked, &looked.all_runs()?);
        }
        (Some(SummaryTarget::Conversations), Some(_)) => {
            return Err(
                "--target conversation shows all metrics of the judge; leave out --metric".into(),
            );
        }
        (Some(SummaryTarget::Scores(target)), _) => vec![target],
        (None, Some(metric)) => vec![target_of(metric)],
        (None, None) => vec![Target::Trace, Target::Session],
    };
    let analysed = looked.runs()?;
    let runs = &analysed.runs;
    if let Some(metric) = &args.metric {
        check_metric(runs, metric)?;
    }
    let mut lines = Vec::new();
    for target in targets {
        let filter = looked.filter(target);
        let metrics: Vec<String> = match &args.metric {
            Some(metric) => vec![metric.clone()],
            // Dates may be those of traces, which runs of any date hold.
            None if args.pooling.once => stored_metrics(runs, &ScoreFilter::all(target))?
                .into_iter()
                .collect(),
            None => stored_metrics(runs, &filter)?.into_iter().collect(),
        };
        // One metric after the other: only the scores of one are in memory.
        for metric in &metrics {
            let query = looked.query(target, Some(metric));
            let records = analysed.scores(&query, args.pooling.once)?;
            for (model, records) in args.pooling.pools(metric, records)? {
                let rows = figures::summary(&records, &filter).into_iter();
                lines.extend(rows.map(|row| SummaryLine {
                    target,
                    row: OfModel {
                        row,
                        model: model.clone(),
                    },
                }));
            }
        }
    }
    analysed.print_rows(looked.json, &lines, || {
        let header = [
            "metric", "target", "success", "failed", "none", "mean", "min", "median", "max",
            "latest",
        ];
        let rows = lines.iter().map(|SummaryLine { target, row }| {
            let OfModel { row, model } = row;
            [
                named(&row.metric, model),
                target.name().to_owned(),
                row.success_count.to_string(),
                row.failed_count.to_string(),
                row.no_evidence_count.to_string(),
                listing::score(row.avg_score),
                listing::score(row.min_score),
                listing::score(row.median_score),
                listing::score(row.max_score),
                format_instant(row.latest_score_at),
            ]
        });
        let mut text = listing::table(header, rows.collect());
        if args.target.is_none() && runs.iter().any(holds_conversations) {
            text.push_str("\nmore about judged conversations: --target conversation\n");
        }
        text
    })
}

/// What a row is about: a metric, or one model's scores of it.
fn named(what: &str, model: &Option<Arc<str>>) -> String {
    match model {
        Some(model) => format!("{what} ({model})"),
        None => what.to_owned(),
    }
}

/// The scores of one metric in pools, the filter they passed, and the runs they are of.
fn scores_of(
    looked: &Looked,
    pooling: &Pooling,
    target: Option<Target>,
    metric: &str,
) -> Result<(ScoreFilter, Vec<Pool>, AnalysedRuns), AnyError> {
    let target = target.unwrap_or_else(|| target_of(metric));
    let analysed = looked.runs()?;
    check_metric(&analysed.runs, metric)?;
    let records = analysed.scores(&looked.query(target, Some(metric)), pooling.once)?;
    // In a span of time there may be nothing; without one, the question is wrong.
    if records.is_empty() && looked.from.is_none() && looked.to.is_none() {
        return Err(nothing_of(&analysed.runs, &looked.filter(target), metric)?);
    }
    Ok((
        looked.filter(target),
        pooling.pools(metric, records)?,
        analysed,
    ))
}

/// Why there is nothing to show of a metric, and of what there is something.
fn nothing_of(
    runs: &[StoredRun],
    filter: &ScoreFilter,
    metric: &str,
) -> Result<AnyError, AnyError> {
    let stored: Vec<String> = stored_metrics(runs, filter)?.into_iter().collect();
    let there_is = match stored.is_empty() {
        true => "they have none at all; look at their dates with `nightmill runs list`".to_owned(),
        false => format!("they have {}", stored.join(", ")),
    };
    let target = filter.target.name();
    Ok(
        format!("--metric {metric}: these runs have no such score of a {target}; {there_is}")
            .into(),
    )
}

fn trend(args: &TrendArgs) -> Result<(), AnyError> {
    let (looked, metric) = (&args.looked, &args.metric);
    let (filter, pools, analysed) = scores_of(looked, &args.pooling, args.target, metric)?;
    let rows = by_model(pools, |records| {
        figures::trend(records, &filter, metric, args.interval)
    });
    analysed.print_rows(args.looked.json, &rows, || {
        let rows = rows.iter().map(|OfModel { row, model }| {
            [
                named(&format_instant(row.bucket_start), model),
                listing::score(Some(row.avg_score)),
                row.count.to_string(),
            ]
        });
        listing::table(["from", "mean", "scores"], rows.collect())
    })
}

fn distribution(args: &DistributionArgs) -> Result<(), AnyError> {
    let (looked, metric) = (&args.looked, &args.metric);
    let (filter, pools, analysed) = scores_of(looked, &args.pooling, args.target, metric)?;
    let last = match args.closed {
        true => LastBucket::Closed,
        false => LastBucket::Compat,
    };
    let rows = by_model(pools, |records| {
        figures::distribution(records, &filter, metric, args.buckets, last)
    });
    analysed.print_rows(args.looked.json, &rows, || {
        let rows = rows.iter().map(|OfModel { row, model }| {
            [
                named(&listing::score(Some(row.bucket_min)), model),
                listing::score(Some(row.bucket_max)),
                row.count.to_string(),
            ]
        });
        listing::table(["from", "to", "scores"], rows.collect())
    })
}

/// Rows of each pool, with its model.
fn by_model<T: Serialize>(
    pools: Vec<Pool>,
    rows: impl Fn(&[ScoreRecord]) -> Vec<T>,
) -> Vec<OfModel<T>> {
    let of_pool = |(model, records): Pool| {
        let rows = rows(&records).into_iter();
        rows.map(move |row| OfModel {
            row,
            model: model.clone(),
        })
        .collect::<Vec<_>>()
    };
    pools.into_iter().flat_map(of_pool).collect()
}

fn history(args: &HistoryArgs) -> Result<(), AnyError> {
    let looked = &args.looked;
    let analysed = looked.runs()?;
    if let Some(metric) = &args.metric {
        check_metric(&analysed.runs, metric)?;
    }
    let metric = args.metric.as_deref();
    let records = |target, id| {
        let query = ScoreQuery {
            target_id: Some(id),
            with_ids: true,
            ..looked.query(target, metric)
        };
        read_scores(&analysed.runs, &query)
    };
    const HEADER: [&str; 5] = ["created", "metric", "score", "status", "run"];
    if let Some(given) = &args.target.trace {
        let id = canonical_trace_id(given).unwrap_or_default();
        let filter = looked.filter(Target::Trace);
        let mut rows = figures::latest(&records(Target::Trace, &id)?, &filter, &id);
        if rows.is_empty() {
            return Err(no_target("--trace", given, metric));
        }
        rows.truncate(args.limit);
        return analysed.print_rows(looked.json, &rows, || {
            let rows = rows.iter().map(|row| {
                [
                    format_instant(row.created_at),
                    row.metric.clone(),
                    match (row.data_type, &row.value) {
                        (DataType::Boolean | DataType::Categorical, Some(value)) => value.clone(),
                        _ => listing::score(row.score),
                    },
                    row.status.name().to_owned(),
                    row.run.clone(),
                ]
            });
            listing::table(HEADER, rows.collect())
        });
    }
    let session = args.target.session.as_deref().unwrap_or_default();
    let filter = looked.filter(Target::Session);
    let records = records(Target::Session, session)?;
    let rows = figures::history(&records, &filter, session, args.limit);
    if rows.is_empty() && args.limit > 0 {
        return Err(no_target("--session", session, metric));
    }
    analysed.print_rows(looked.json, &rows, || {
        let rows = rows.iter().map(|row| {
            [
                format_instant(row.created_at),
                row.metric.clone(),
                listing::score(row.score),
                row.status.name().to_owned(),
                row.run.clone(),
            ]
        });
        listing::table(HEADER, rows.collect())
    })
}

/// Nothing is known of a trace or session.
fn no_target(flag: &str, id: &str, metric: Option<&str>) -> AnyError {
    let of_metric = metric.map(|m| format!(" of {m}")).unwrap_or_default();
    format!(
        "{flag} {id}: these runs have no score{of_metric} of it in that time; ids stand in the tables of a run: nightmill sql \"SELECT \
         trace_id, session_id FROM 'RUN/traces' LIMIT 5\""
    )
    .into()
}

fn comparison(args: &ComparisonArgs, metric: &str) -> Result<(), AnyError> {
    let looked = &args.looked;
    if target_of(metric) == Target::Trace {
        let of_sessions = crate::metric::ALL
            .iter()
            .filter(|m| m.level == Level::Session);
        let names: Vec<&str> = of_sessions.map(|m| m.name).collect();
        return Err(format!(
            "--metric {metric}: is about traces, and a comparison is of sessions; choose {}, or see `nightmill runs distribution`",
            names.join(", ")
        )
        .into());
    }
    let query = ScoreQuery {
        with_ids: true,
        ..looked.query(Target::Session, Some(metric))
    };
    let analysed = looked.runs()?;
    let records = analysed.scores(&query, false)?;
    if records.is_empty() {
        return Err(nothing_of(&analysed.runs, &query.filter, metric)?);
    }
    refuse_several(metric, &records, "name runs of one model")?;
    let page = Page {
        offset: args.offset,
        limit: args.limit,
    };
    let compared = figures::comparison(&records, &query.filter, metric, args.order, page);
    analysed.print(looked.json, &compared, || {
        let rows = compared.rows.iter().map(|row| {
            [
                match &row.project_id {
                    None => row.target_id.clone(),
                    Some(project) => format!("{} of {project}", row.target_id),
                },
                listing::score(Some(row.score)),
                row.run.clone(),
                format_instant(row.created_at),
            ]
        });
        let table = listing::table(["session", "score", "run", "created"], rows.collect());
        format!(
            "{table}{} of {}\n",
            compared.rows.len(),
            counted(compared.total as u64, "session", "sessions")
        )
    })
}
