//! The passes over the traces of a run: whether ids repeat, which traces a condition lets through, judging them, and the one
//! that scores and writes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::AsArray;
use datafusion::prelude::{DataFrame, SessionContext};

use crate::conversation::from_traces::ChosenSession;
use crate::conversation::{Conversations, judge_all};
use crate::embed::{EmbeddingService, Triage};
use crate::engine::{KeptRows, ScorePlan, for_each_batch, traces_table};
use crate::judge::JudgeService;
use crate::output::score_rows::ModelLabel;
use crate::output::{RunDirectory, RunError};
use crate::run::ScoreRequest;
use crate::run::bucket::{BucketCounts, BucketJob, RunBuckets};
use crate::run::engine_plans::{PlanFacts, plan_session, session_plan, trace_plan};
use crate::run::judging::judgements::Judgements;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::{summary, traces};
use crate::run::night::Night;
use crate::run::signals_file::GivenSignals;
use crate::summary::JudgeSummary;
use crate::text::origin_of;
use crate::trace::{
    BatchLimits, Buckets, DocumentSource, FactRoom, Quarantine, ReadOptions, SourceFile,
    TraceColumns, TraceSource, any_id_repeats,
};

/// How a run reads its files.
pub(super) fn reading(request: &ScoreRequest, columns: TraceColumns) -> ReadOptions {
    ReadOptions {
        columns,
        map: request.map.clone(),
        text_mode: request.rules.text_mode,
        on_bad_file: request.on_bad_file,
        limits: BatchLimits {
            bytes: request.engine.batch_bytes(),
            ..BatchLimits::default()
        },
    }
}

/// What is known of the traces of a run before they are scored.
pub(super) struct Known {
    /// Whether several rows make one trace.
    pub repeats: bool,
    /// The facts that choose traces; none where nothing is chosen.
    pub documents: Option<Arc<DocumentSource>>,
}

impl Known {
    /// Reads small columns, once: all facts where `chosen` says that traces are chosen by them, and else only as far as it
    /// takes to know whether ids repeat.
    pub fn of(
        request: &ScoreRequest,
        files: Vec<SourceFile>,
        chosen: bool,
        folder: &Path,
    ) -> Result<Self, RunError> {
        let (map, on_bad_file) = (&request.map, request.on_bad_file);
        let room = room(request, folder);
        if !chosen {
            return Ok(Self {
                repeats: any_id_repeats(files, map, on_bad_file, room)?,
                documents: None,
            });
        }
        let documents = documents(request, files, folder)?;
        Ok(Self {
            repeats: documents.repeats(),
            documents: Some(Arc::new(documents)),
        })
    }
}

fn room<'f>(request: &ScoreRequest, folder: &'f Path) -> FactRoom<'f> {
    FactRoom {
        most_ids: request.engine.index_memory() / 32,
        folder,
    }
}

/// The traces of a request's files as documents, with their facts.
pub(super) fn documents(
    request: &ScoreRequest,
    files: Vec<SourceFile>,
    folder: &Path,
) -> Result<DocumentSource, RunError> {
    let (map, room) = (request.map.clone(), room(request, folder));
    // The pass that scores reports what is wrong with rows.
    let ignored = Quarantine::default();
    let documents = DocumentSource::open(files, map, request.on_bad_file, room, &ignored);
    Ok(documents?)
}

/// The traces of the targets, where the request chooses some.
pub(super) fn targets(
    request: &ScoreRequest,
    known: &Known,
) -> Result<Option<Arc<HashSet<String>>>, RunError> {
    let (Some(choice), Some(documents)) = (&request.targets, &known.documents) else {
        return Ok(None);
    };
    let traces = super::targets::choose(choice, documents)?;
    tracing::info!(traces = traces.len(), "targets chosen");
    Ok(Some(Arc::new(traces)))
}

/// What judges said of a run.
pub(super) struct Judged {
    /// Of traces, if any metric of traces asks a judge.
    pub traces: Option<Judgements>,
    /// Of sessions, if conversations are judged.
    pub conversations: Option<Conversations>,
    /// The computed traces, where a condition has looked at them.
    pub computed: Option<KeptRows>,
    pub summary: JudgeSummary,
}

/// The passes over the traces of a run, and what they have in common.
pub(super) struct Passes<'r> {
    pub request: &'r ScoreRequest,
    /// None where no text is embedded.
    pub service: Option<Arc<EmbeddingService>>,
    /// The quick model before it, if there is one.
    pub triage: Option<Arc<Triage>>,
    /// Whether several rows make one trace.
    pub repeats: bool,
    /// The traces of the targets; none are all traces.
    pub targets: Option<Arc<HashSet<String>>>,
    pub buckets: RunBuckets,
}

impl Passes<'_> {
    fn context(&self, folder: PathBuf) -> Result<SessionContext, RunError> {
        let (request, triage) = (self.request, self.triage.clone());
        let (engine, rules) = (&request.engine, &request.rules);
        plan_session(engine, rules, self.service.clone(), triage, folder)
    }

    /// The plan of the traces that the run asks for; a signal that the condition names is computed too.
    pub fn plan(&self, given: &GivenSignals, condition: Option<&str>) -> ScorePlan {
        let facts = PlanFacts {
            given: &given.names,
            repeats: self.repeats,
            triage: self.triage.is_some(),
            buckets: (self.buckets.count, &self.buckets.done_before),
        };
        trace_plan(&self.request.rules, facts, condition)
    }

    /// The traces of `source`, computed by a plan, in no order.
    async fn computed(
        &self,
        context: &SessionContext,
        plan: &ScorePlan,
        source: Arc<TraceSource>,
        given: &GivenSignals,
    ) -> Result<DataFrame, RunError> {
        let traces = traces_table(source, self.request.engine.threads)?;
        context.register_table("traces", Arc::new(traces))?;
        if !given.names.is_empty() {
            context.register_table("signals", given.table()?)?;
        }
        Ok(plan.computed(context).await?)
    }

    /// Chooses traces and judges them, and the sessions that they belong to.
    pub async fn judge(
        &self,
        judge: &JudgeRequest,
        judges: &JudgeService,
        documents: &Arc<DocumentSource>,
        source: &Arc<TraceSource>,
        given: &GivenSignals,
        run: &RunDirectory,
    ) -> Result<Judged, RunError> {
        let (passing, computed) = match &judge.condition {
            None => (self.targets.clone(), None),
            Some(condition) => {
                let plan = self.plan(given, Some(condition));
                let work = run.work();
                let passing = self.passing(condition, &plan, source, given, &work);
                let (passing, computed) = passing.await?;
                (Some(Arc::new(passing)), Some(computed))
            }
        };
        let once = async || {
            let passing = passing.as_deref();
            self.judge_once(judge, judges, documents, given, run, passing)
                .await
        };
        let mut judged = judge.in_rounds(judges, once).await?;
        judged.computed = computed;
        judged.summary.batches = summary::batch_counts(judges)?;
        if let Some(flags) = &judged.summary.passed_by_none {
            tracing::warn!("{flags}: no trace passes, so that nothing was judged");
        }
        Ok(judged)
    }

    /// Chooses traces and judges them, as far as there are answers.
    async fn judge_once(
        &self,
        judge: &JudgeRequest,
        judges: &JudgeService,
        documents: &Arc<DocumentSource>,
        given: &GivenSignals,
        run: &RunDirectory,
        passing: Option<&HashSet<String>>,
    ) -> Result<Judged, RunError> {
        let rules = &self.request.rules;
        let selection = traces::select(judge, documents, passing)?;
        let chosen = selection.count();
        tracing::info!(traces = chosen, "judging");
        let sessions = match &judge.conversation {
            None => Vec::new(),
            Some(_) => judge.choose_sessions(documents, passing)?,
        };
        let traces = match traces::judged_metrics(rules).is_empty() {
            true => None,
            false => {
                let store = Judgements::create(&run.work())?;
                let documents = Arc::clone(documents);
                let judged =
                    traces::judge_all(judge, rules, judges, documents, selection, given, store);
                Some(judged.await?)
            }
        };
        let conversations = self
            .judge_conversations(judge, judges, Arc::clone(documents), sessions, run)
            .await?;
        let of_sessions = conversations.as_ref().map(|c| c.summary.clone());
        let summary =
            summary::summarise(judge, rules, judges, chosen, traces.as_ref(), of_sessions)?;
        // A sample takes one trace at least, unless none is wanted.
        let none_passed = chosen == 0 && judge.sample.get() > 0.0;
        let summary = JudgeSummary {
            passed_by_none: judge.chosen_by().filter(|_| none_passed),
            ..summary
        };
        Ok(Judged {
            traces,
            conversations,
            computed: None,
            summary,
        })
    }

    /// Judges sessions as conversations, if that was asked for.
    async fn judge_conversations(
        &self,
        judge: &JudgeRequest,
        judges: &JudgeService,
        documents: Arc<DocumentSource>,
        sessions: Vec<ChosenSession>,
        run: &RunDirectory,
    ) -> Result<Option<Conversations>, RunError> {
        let Some(request) = &judge.conversation else {
            return Ok(None);
        };
        let rules = &self.request.rules;
        let calls = judge.concurrency;
        let judged = judge_all(request, calls, rules, judges, documents, sessions, run);
        judged.await.map(Some)
    }

    /// Computes the traces of `source` and sets them aside, with the ids of those that pass a condition on their signals.
    pub async fn passing(
        &self,
        condition: &str,
        plan: &ScorePlan,
        source: &Arc<TraceSource>,
        given: &GivenSignals,
        folder: &Path,
    ) -> Result<(HashSet<String>, KeptRows), RunError> {
        let wrong = |e: datafusion::error::DataFusionError| {
            RunError::Request(format!(
                "--judge-where `{condition}`: {}",
                RunError::from(e)
            ))
        };
        let context = self.context(folder.to_owned())?;
        let computed = self.computed(&context, plan, Arc::clone(source), given);
        let computed = computed.await?;
        // What is wrong with it is said before anything takes time.
        let filtered = |frame: DataFrame| frame.clone().filter(frame.parse_sql_expr(condition)?);
        filtered(computed.clone()).map_err(wrong)?;
        let kept = KeptRows::of(computed, folder).await?;
        context.register_table("kept", kept.table()?)?;
        let frame = filtered(context.table("kept").await?).map_err(wrong)?;
        let mut passing = HashSet::new();
        for_each_batch(frame.select_columns(&["trace_id"])?, |batch| {
            let ids = batch.column(0).as_string::<i32>();
            passing.extend(ids.iter().flatten().map(str::to_owned));
            Ok(())
        })
        .await
        .map_err(wrong)?;
        Ok((passing, kept))
    }

    /// Scores traces and sessions and writes their tables, bucket by bucket. `computed` are the traces of `source`, if they
    /// were computed before.
    pub async fn score(
        &self,
        run: &RunDirectory,
        source: Arc<TraceSource>,
        given: &GivenSignals,
        given_ids: HashSet<String>,
        (mut judgements, computed): (Option<Judgements>, Option<KeptRows>),
        night: Option<&Night>,
    ) -> Result<BucketCounts, RunError> {
        let rules = &self.request.rules;
        let plan = self.plan(given, None);
        let context = self.context(run.work())?;
        let read = Arc::clone(&source);
        let computed = match computed {
            None => self.computed(&context, &plan, source, given).await?,
            Some(kept) => context.read_table(kept.table()?)?,
        };
        let judged = match &mut judgements {
            None => None,
            Some(judgements) => {
                judgements.flush()?;
                Some(judgements.table()?)
            }
        };
        let standing_in = night.and_then(|night| night.standing_in.as_ref());
        let names = read.files().map(|file| match file.given() {
            [given, ..] => origin_of(given),
            [] => origin_of(&file.path),
        });
        let job = Arc::new(BucketJob {
            rules: rules.clone(),
            labels: self
                .service
                .as_ref()
                .map(|service| ModelLabel::of(service.model())),
            triage: self.triage.is_some(),
            given: given_ids,
            standing_in: standing_in.and_then(|file| read.files().position(|other| other == file)),
            kept: night.map(|night| night.kept.clone()).unwrap_or_default(),
            nights: night.map(Night::first_nights).unwrap_or_default(),
            so_far: night.map(Night::so_far),
            files: names.collect(),
            sessions: session_plan(rules, &given.names, |name| {
                judgements
                    .as_ref()
                    .is_some_and(|judged| judged.has_signal(name))
            }),
            judgements,
        });
        let rows = match self.buckets.count == Buckets::ONE {
            true => {
                let frame = plan.in_order(&context, computed, judged).await?;
                frame.create_physical_plan().await?
            }
            false => plan.in_buckets(&context, computed, judged).await?,
        };
        let shown = datafusion::physical_plan::displayable(rows.as_ref());
        tracing::debug!(plan = %shown.indent(false), "plan of traces");
        self.buckets.score(&job, &context, run, rows).await
    }
}
