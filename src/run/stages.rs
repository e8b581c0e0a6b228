//! The passes over the traces of a run: whether ids repeat, which traces a condition lets through, judging them, and the one
//! that scores and writes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::AsArray;
use datafusion::prelude::{DataFrame, SessionContext};

use crate::conversation::from_traces::ChosenSession;
use crate::conversation::{Conversations, judge_all};
use crate::embed::EmbeddingService;
use crate::engine::{
    Digests, EngineOptions, ScorePlan, SessionPlan, Tap, engine_session, for_each_batch,
    traces_table,
};
use crate::judge::JudgeService;
use crate::metric::SIGNALS;
use crate::metric::compared::Comparing;
use crate::metric::spans::OfSpans;
use crate::output::score_rows::ModelLabel;
use crate::output::{RunDirectory, RunError};
use crate::run::ScoreRequest;
use crate::run::judging::judgements::Judgements;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::{summary, traces};
use crate::run::night::Night;
use crate::run::session_rows::{SessionCounts, SessionRows};
use crate::run::signals_file::GivenSignals;
use crate::run::trace_rows::{TraceCounts, TraceRows};
use crate::summary::JudgeSummary;
use crate::trace::{
    BatchLimits, DocumentSource, ReadOptions, Repeats, SourceFile, TraceColumns, TraceSource,
    repeated_trace_ids,
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

/// The traces of a request's files as documents. Reads the id column, to know which ids repeat.
pub(super) fn documents(
    request: &ScoreRequest,
    files: Vec<SourceFile>,
) -> Result<DocumentSource, RunError> {
    let columns = TraceColumns::ids();
    let most = request.engine.index_memory() / 32;
    let open = || {
        TraceSource::open(
            files.clone(),
            reading(request, columns.clone()),
            Arc::default(),
        )
    };
    // Who reads documents merges the rows of each id; all others only want to know whether there is something to merge.
    let asked = match request.judge.is_some() || request.targets.is_some() {
        true => Repeats::Each,
        false => Repeats::Any,
    };
    let repeated = repeated_trace_ids(open, most, asked)?;
    let (map, on_bad_file) = (request.map.clone(), request.on_bad_file);
    Ok(DocumentSource::new(files, map, on_bad_file, repeated))
}

/// The traces of the targets, where the request chooses some.
pub(super) fn targets(
    request: &ScoreRequest,
    documents: &DocumentSource,
) -> Result<Option<Arc<HashSet<String>>>, RunError> {
    let Some(choice) = &request.targets else {
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
    pub summary: JudgeSummary,
}

/// The passes over the traces of a run, and what they have in common.
pub(super) struct Passes<'r> {
    pub request: &'r ScoreRequest,
    /// None where no text is embedded.
    pub service: Option<Arc<EmbeddingService>>,
    pub documents: Arc<DocumentSource>,
    /// The traces of the targets; none are all traces.
    pub targets: Option<Arc<HashSet<String>>>,
}

impl Passes<'_> {
    /// The plan of the traces of `source`, scored. Signals of spans come where their digests do.
    async fn scored(
        &self,
        spill_folder: PathBuf,
        source: Arc<TraceSource>,
        given: &GivenSignals,
        (coherence, loop_detection): (bool, bool),
        (comparing, digests): ([Option<f64>; 3], Digests),
    ) -> Result<(SessionContext, DataFrame), RunError> {
        let (request, rules) = (self.request, &self.request.rules);
        let context = engine_session(&EngineOptions {
            threads: request.engine.threads,
            memory: request.engine.plan_memory(),
            spill_folder,
            embedding: self.service.clone(),
            window: rules.window,
            weights: rules.weights.clone(),
            text_mode: rules.text_mode,
        })?;
        let traces = traces_table(source, request.engine.threads)?;
        context.register_table("traces", Arc::new(traces))?;
        if !given.names.is_empty() {
            context.register_table("signals", given.table()?)?;
        }
        let plan = ScorePlan {
            merge_repeated: self.documents.repeats(),
            given_signals: given.names.clone(),
            coherence,
            loop_detection,
            comparing,
            digests,
            span_signals: match digests == Digests::default() {
                true => Vec::new(),
                false => rules.span_signals(),
            },
        };
        let frame = plan.scored(&context).await?;
        Ok((context, frame))
    }

    /// Chooses traces and judges them, and the sessions that they belong to.
    pub async fn judge(
        &self,
        judge: &JudgeRequest,
        judges: &JudgeService,
        files: &[SourceFile],
        given: &GivenSignals,
        run: &RunDirectory,
    ) -> Result<Judged, RunError> {
        let passing = match &judge.condition {
            None => self.targets.clone(),
            Some(condition) => {
                let work = run.work();
                let passing = self.passing(condition, files, given, &work).await?;
                Some(Arc::new(passing))
            }
        };
        let once = async || {
            let passing = passing.as_deref();
            self.judge_once(judge, judges, given, run, passing).await
        };
        let mut judged = judge.in_rounds(judges, once).await?;
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
        given: &GivenSignals,
        run: &RunDirectory,
        passing: Option<&HashSet<String>>,
    ) -> Result<Judged, RunError> {
        let rules = &self.request.rules;
        let documents = &self.documents;
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

    /// The traces of targets whose signals pass a condition.
    pub async fn passing(
        &self,
        condition: &str,
        files: &[SourceFile],
        given: &GivenSignals,
        spill_folder: &Path,
    ) -> Result<HashSet<String>, RunError> {
        let wrong = |e: datafusion::error::DataFusionError| {
            RunError::Request(format!(
                "--judge-where `{condition}`: {}",
                RunError::from(e)
            ))
        };
        // A signal that the condition names is computed, also if the run itself does not ask for it.
        let needs =
            |signal: &str| self.request.rules.computes(signal) || condition.contains(signal);
        let signals = (needs("coherence"), needs("loop_detection"));
        let columns = TraceColumns {
            input: signals.0,
            output: true,
            compared: false,
            spans: false,
            spans_required: false,
            output_digest: false,
            session_required: false,
            signals: Vec::new(),
        };
        // The pass that writes reports what is wrong with rows; here they are only left out.
        let source = TraceSource::open(
            files.to_vec(),
            reading(self.request, columns),
            Arc::default(),
        )?;
        let source = match &self.targets {
            None => source,
            Some(targets) => source.keep_only(Arc::clone(targets)),
        };
        let (_context, frame) = self
            .scored(
                spill_folder.to_owned(),
                Arc::new(source),
                given,
                signals,
                ([None; 3], Digests::default()),
            )
            .await?;
        let condition = frame.parse_sql_expr(condition).map_err(wrong)?;
        let frame = frame.filter(condition).map_err(wrong)?;
        let frame = frame.select_columns(&["trace_id"])?;
        let mut passing = HashSet::new();
        for_each_batch(frame, |batch| {
            let ids = batch.column(0).as_string::<i32>();
            passing.extend(ids.iter().flatten().map(str::to_owned));
            Ok(())
        })
        .await
        .map_err(wrong)?;
        Ok(passing)
    }

    /// Scores traces and sessions and writes their tables.
    pub async fn score(
        &self,
        run: &RunDirectory,
        source: Arc<TraceSource>,
        given: &GivenSignals,
        given_ids: HashSet<String>,
        judgements: Option<Judgements>,
        night: Option<&Night>,
    ) -> Result<(TraceCounts, SessionCounts), RunError> {
        let rules = &self.request.rules;
        let labels = self.service.as_ref().map(|service| ModelLabel {
            model: service.model().name.clone(),
            precision: service.model().encoder.precision().into(),
        });
        let signals = (
            rules.computes("coherence"),
            rules.computes("loop_detection"),
        );
        let comparing = Comparing::ALL.map(|metric| {
            let name = metric.name();
            rules.wants(name).then(|| rules.threshold(name))
        });
        let digests = Digests {
            spans: rules.reads_spans(),
            output: rules.digests_output(),
            of_sessions: rules.of_spans().any(OfSpans::is_of_sessions),
        };
        let read = Arc::clone(&source);
        let (context, frame) = self
            .scored(run.work(), source, given, signals, (comparing, digests))
            .await?;
        let scored = frame.create_physical_plan().await?;
        tracing::debug!(plan = %datafusion::physical_plan::displayable(scored.as_ref()).indent(false), "plan of traces");

        let expected = SIGNALS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| rules.computes(name) || given.names.iter().any(|n| n == name));
        let expected = expected.chain(rules.span_signals());
        let expected = expected.map(str::to_owned).collect();
        let standing_in = night.and_then(|night| night.standing_in.as_ref());
        let standing_in = standing_in.and_then(|file| read.files().position(|other| other == file));
        let kept = night.map(|night| night.kept.clone()).unwrap_or_default();
        let trace_rows = TraceRows::create(run, rules, labels.clone(), given_ids, judgements)?
            .going_on(standing_in, kept);
        let (sender, writer) = trace_rows.on_own_thread()?;
        let tap = Arc::new(Tap::new(scored, move |batch| {
            // The writer only stops listening when it has failed; its own error is the one to report.
            sender.send(batch.clone()).map_err(|_| {
                crate::engine::external(RunError::Plan("trace rows can't be written".into()))
            })
        }));
        let sessions = SessionPlan {
            reliability: rules.wants("agent_reliability"),
            consistency: rules.wants("agent_consistency"),
            expected,
            span_signals: rules.span_signals(),
        };
        let table = Arc::clone(&tap);
        let frame = sessions.sessions(&context, table).await?;
        let mut session_rows = SessionRows::create(run, rules, labels, night.map(Night::so_far))?;
        let ran = for_each_batch(frame, |batch| {
            session_rows.write(&batch).map_err(crate::engine::external)
        })
        .await;
        // The channel's sending end goes, and the writer comes to its end.
        tap.close();
        let written = writer
            .join()
            .map_err(|_| RunError::Plan("the writer of trace rows panicked".into()))?;
        let (last_part, mut trace_counts) = written?;
        trace_counts.merged = self.documents.repeats();
        ran?;
        let session_counts = session_rows.finish(last_part + 1)?;
        Ok((trace_counts, session_counts))
    }
}
