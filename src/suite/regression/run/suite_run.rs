//! One suite of a run: from its cases to its record.

use std::path::PathBuf;
use std::time::Instant;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use rayon::ThreadPool;
use tokio::runtime::Runtime;

use super::baseline_of_run::Against;
use super::compute::{CaseWork, Computed, compute};
use super::input::ChosenSet;
use super::judged::{Answer, Judges};
use super::result_folder::ResultFolder;
use super::rules::CaseRules;
use crate::metric::checked::Checked;
use crate::output::RunError;
use crate::run::Progress;
use crate::suite::outcome::{JudgingOutcome, SuiteOutcome, Verdict};
use crate::suite::regression::cascade::{EvaluatedCase, SuiteFigures, cascade};
use crate::suite::regression::case_regression::add_regression;
use crate::suite::regression::compare::{Side, compare};
use crate::suite::regression::config::{BaselineStrategy, SuiteConfig};
use crate::suite::regression::gates::check_gates;
use crate::suite::regression::golden_set::GoldenSet;
use crate::suite::regression::named::Named;
use crate::suite::regression::record::{RunHead, RunRecord, RunStatus, Trigger, new_run_id};
use crate::suite::regression::record_store::RecordStore;
use crate::suite::regression::shown::record_outcome;
use crate::suite::regression::suite_metric::SuiteMetric;

/// What all suites of a run have in common.
pub(super) struct SuiteRun<'r> {
    pub config: &'r SuiteConfig,
    pub config_hash: &'r str,
    pub rules: &'r CaseRules<'r>,
    pub records: &'r RecordStore,
    pub branch: &'r str,
    pub trigger: Trigger,
    pub against: &'r Against,
    pub judges: Option<&'r Judges<'r>>,
    pub runtime: &'r Runtime,
    pub pool: &'r ThreadPool,
    pub page: bool,
    pub inputs: Vec<PathBuf>,
    pub progress: &'r Progress,
}

/// The cases of a suite with their results.
#[derive(Default)]
struct Evaluated {
    cases: Vec<EvaluatedCase>,
    /// Results that a later run may still be judged for, and why they are not.
    pending: Vec<String>,
}

/// What a suite came to, before it is kept.
struct Finished {
    record: RunRecord,
    notes: Vec<String>,
    judging: Option<JudgingOutcome>,
    /// What broke down, if anything did.
    error: Option<String>,
}

impl SuiteRun<'_> {
    /// Runs a suite and keeps what came of it.
    ///
    /// # Errors
    /// [`RunError`] if its record, tables or page can't be written.
    pub fn run(
        &self,
        chosen: &ChosenSet,
        now: DateTime<Utc>,
    ) -> Result<(SuiteOutcome, RunRecord), RunError> {
        let started = Instant::now();
        let head = self.head(&chosen.set, now);
        let finished = self
            .finish(chosen, head.clone(), started, now)
            .unwrap_or_else(|e| errored(head, started, &e));
        let Finished {
            record,
            notes,
            judging,
            error,
        } = finished;
        let set = &chosen.set;
        let mut outcome = record_outcome(&record, Some(set));
        outcome.notes.extend(chosen.notes.iter().cloned());
        outcome.notes.extend(notes);
        outcome.judging = judging;
        if let Some(error) = error {
            outcome.verdict = Verdict::NotEvaluated;
            outcome.notes.push(error);
        }
        self.keep(chosen, &record, &mut outcome)?;
        outcome.seconds = started.elapsed().as_secs_f64();
        Ok((outcome, record))
    }

    fn head(&self, set: &GoldenSet, now: DateTime<Utc>) -> RunHead {
        RunHead {
            run_id: new_run_id(now),
            timestamp: now,
            status: RunStatus::Errored,
            trigger: self.trigger,
            duration_ms: 0,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            judge: None,
            config_hash: self.config_hash.to_owned(),
            golden_set_file_hash: set.file_hash.clone(),
            golden_set_name: set.name.clone(),
            golden_set_version: set.version.clone(),
            branch: Some(self.branch.to_owned()),
            suite_score: 0.0,
            metric_summary: Named::default(),
        }
    }

    /// Evaluates, compares and decides.
    fn finish(
        &self,
        chosen: &ChosenSet,
        mut head: RunHead,
        started: Instant,
        now: DateTime<Utc>,
    ) -> Result<Finished, RunError> {
        let set = &chosen.set;
        let compat = self.config.compat;
        // A baseline that can't be read must not cost a question.
        let mut baseline =
            self.against
                .baseline(&set.name, self.branch, self.config, self.records, now)?;
        let mut notes = std::mem::take(&mut baseline.notices);
        let before = self.judges.map(Judges::asked).transpose()?;
        let Evaluated { mut cases, pending } = self.evaluate(set)?;
        let weight_of = |metric: &str| self.config.metrics.weight_of(metric);
        let then: Option<Side> = baseline.record.as_ref().map(RunRecord::side);
        let regression = &self.config.metrics.regression;
        let threshold_of = |at: usize| self.regression_threshold(set, at);
        add_regression(
            &mut cases,
            threshold_of,
            then.as_ref(),
            weight_of,
            regression,
            compat,
        );
        let figures: SuiteFigures = cascade(&cases, weight_of, compat);
        let side = figures.side(&set.version, &cases);
        let comparison = compare(then.as_ref(), &side, regression, compat);
        let of_baseline = baseline.record.as_ref();
        let judged = cases
            .iter()
            .any(|case| case.results.values().any(|of| of.judged));
        if let Some(judges) = self.judges.filter(|_| judged) {
            head.judge = judges.name();
        }
        if let Some(then) = of_baseline {
            notes.extend(judged_otherwise(then, &cases));
            notes.extend(changed_otherwise(&then.head, &head));
        }
        head.duration_ms = milliseconds(started);
        let mut record = RunRecord::new(
            head,
            cases,
            figures,
            of_baseline.map(|of| &of.head),
            comparison,
        );
        record.decide(check_gates(
            &record,
            &self.config.quality_gates,
            self.config.nfr_gates.as_ref(),
        ));
        let error = pending.first().map(|why| {
            // Scores without what is pending are no scores of this suite.
            record.head.status = RunStatus::Errored;
            format!(
                "not evaluated as a whole: for {} of its results a judge could not be asked yet ({why}); the scores shown are \
                 computed without it, and no later run is compared with them",
                pending.len()
            )
        });
        let judging = match (self.judges, before) {
            (Some(judges), Some(before)) => {
                notes.extend(judges.notes());
                Some(judges.asked_since(&before)?)
            }
            _ => None,
        };
        Ok(Finished {
            record,
            notes,
            judging,
            error,
        })
    }

    /// The bar of the metric `regression` of a case that has it.
    fn regression_threshold(&self, set: &GoldenSet, at: usize) -> Option<f64> {
        let case = set.cases.get(at)?;
        let metrics = &self.config.metrics;
        let evaluated = metrics.evaluated(case.metrics.as_deref());
        let has = evaluated.contains(&SuiteMetric::Regression);
        has.then(|| case.threshold(SuiteMetric::Regression, metrics.default_threshold))
    }

    fn evaluate(&self, set: &GoldenSet) -> Result<Evaluated, RunError> {
        self.progress.enter("evaluating");
        match self.judges {
            None => {
                let works = self.pool.install(|| compute(set, self.rules));
                let mut evaluated = Evaluated::default();
                for work in works {
                    let results = work.metrics.into_iter().map(|(metric, computed)| {
                        let result = match computed {
                            Computed::Done(checked) => checked,
                            Computed::Asks(unjudged) => unjudged.result(Some(0.0)),
                        };
                        (metric.name(), result)
                    });
                    evaluated.cases.push(case_of(work.case, results.collect()));
                }
                Ok(evaluated)
            }
            Some(judges) => {
                let once = async || {
                    let works = self.pool.install(|| compute(set, self.rules));
                    self.judge(judges, works).await
                };
                self.runtime.block_on(judges.in_rounds(once))
            }
        }
    }

    /// The results of cases whose metrics are computed, with what judges say of them.
    async fn judge(
        &self,
        judges: &Judges<'_>,
        works: Vec<CaseWork<'_>>,
    ) -> Result<Evaluated, RunError> {
        self.progress.enter("judging");
        self.progress.part(0, works.len() as u64);
        let judged = works.into_iter().map(async |work: CaseWork<'_>| {
            let asked = work.metrics.into_iter().map(async |(metric, computed)| {
                let answer = match computed {
                    Computed::Done(checked) => Answer::Result(checked),
                    Computed::Asks(unjudged) => judges.ask(work.case, unjudged, self.rules).await?,
                };
                Ok::<_, RunError>((metric, answer))
            });
            let answers = futures::future::join_all(asked).await;
            self.progress.advance();
            let answers: Result<Vec<_>, RunError> = answers.into_iter().collect();
            answers.map(|answers| (work.case, answers))
        });
        let mut judged = futures::stream::iter(judged).buffered(judges.concurrency());
        let mut evaluated = Evaluated::default();
        while let Some(finished) = judged.next().await {
            let (case, answers) = finished?;
            let mut results: Named<Checked> = Named::default();
            for (metric, answer) in answers {
                let checked = match answer {
                    Answer::Result(checked) => checked,
                    Answer::Pending(checked, why) => {
                        evaluated.pending.push(why);
                        checked
                    }
                };
                results.insert(metric.name(), checked);
            }
            evaluated.cases.push(case_of(case, results));
        }
        Ok(evaluated)
    }

    /// Writes tables and page, and the record last of all: only a record can be a baseline.
    fn keep(
        &self,
        chosen: &ChosenSet,
        record: &RunRecord,
        outcome: &mut SuiteOutcome,
    ) -> Result<(), RunError> {
        if chosen.is_part {
            return Ok(());
        }
        let id = &record.head.run_id;
        let folder = ResultFolder::of(self.records, id);
        let path = self.records.folder().join(format!("{id}.json"));
        outcome.files = vec![path.display().to_string()];
        outcome.files.extend(folder.files(self.page));
        folder.write(record, outcome, self.page, &self.inputs)?;
        self.records.save(record).map_err(|e| {
            folder.remove();
            RunError::from(e)
        })?;
        let limit = self.config.output.run_history_limit;
        let keep = match &self.config.metrics.regression.strategy {
            BaselineStrategy::Pinned(pinned) => pinned,
            BaselineStrategy::LastPassing => id,
        };
        for removed in self.records.prune(limit, Some(keep))? {
            ResultFolder::of(self.records, &removed).remove();
        }
        Ok(())
    }
}

fn case_of(
    case: &crate::suite::regression::golden_set::TestCase,
    results: Named<Checked>,
) -> EvaluatedCase {
    EvaluatedCase {
        id: case.id.clone(),
        input: case.input.clone(),
        actual_output: case.output().to_owned(),
        weight: case.weight,
        results,
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The record of a suite that broke down: it has no cases, and is no baseline.
fn errored(mut head: RunHead, started: Instant, error: &RunError) -> Finished {
    head.duration_ms = milliseconds(started);
    let compat = crate::metric::comparison::Compat::Document;
    let figures = cascade(&[], |_| 1.0, compat);
    let rules = crate::suite::regression::config::RegressionConfig::default();
    let comparison = compare(None, &Side::default(), &rules, compat);
    Finished {
        record: RunRecord::new(head, Vec::new(), figures, None, comparison),
        notes: Vec::new(),
        judging: None,
        error: Some(format!("the suite broke down: {error}")),
    }
}

/// What to say where a metric was judged in one of the two runs and computed in the other: they are two scales.
fn judged_otherwise(then: &RunRecord, now: &[EvaluatedCase]) -> Option<String> {
    let old: std::collections::HashMap<&str, &EvaluatedCase> = then
        .cases
        .iter()
        .map(|of| (of.case.id.as_str(), &of.case))
        .collect();
    let differ = |case: &&EvaluatedCase| {
        let Some(old) = old.get(case.id.as_str()) else {
            return false;
        };
        let mut results = case.results.iter();
        results.any(|(name, of)| {
            old.results
                .get(name)
                .is_some_and(|old| old.judged != of.judged)
        })
    };
    match now.iter().filter(differ).count() {
        0 => None,
        cases => Some(format!(
            "in {cases} cases a metric is judged in one of the two runs and computed in the other: these scores are on two \
             scales, and their difference says little"
        )),
    }
}

/// What else than outputs is another one than in the baseline run, in one line each.
fn changed_otherwise(then: &RunHead, now: &RunHead) -> Vec<String> {
    let id = &then.run_id;
    let mut changed = Vec::new();
    if then.config_hash != now.config_hash {
        changed.push(format!(
            "the run {id} followed another configuration: a difference may come from that"
        ));
    }
    if let (Some(then), Some(now)) = (&then.judge, &now.judge)
        && then != now
    {
        changed.push(format!(
            "results are judged by {}/{} then, and by {}/{} now: a difference may be one of judges",
            then.provider, then.model, now.provider, now.model
        ));
    }
    changed
}
