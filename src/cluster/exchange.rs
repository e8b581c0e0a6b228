//! The driver's side: hands a run's parts to a scheduler and waits for their end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ballista_core::extension::SessionConfigHelperExt;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, ExecuteQueryParams, GetJobStatusParams, KeyValuePair, execute_query_result,
    job_status,
};
use ballista_core::version::insert_version_header;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::codec::StageCodec;
use super::executor::session;
use super::keys::in_full;
use super::plan::plan_of;
use super::{ClusterError, ClusterKeys, MOST_MESSAGE, SILENT_FOR, host_and_port, runtime};
use crate::output::RunError;
use crate::run::worker::{Exchange, PartsOfRun};

/// How often the scheduler is asked how far a job is.
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// How long a scheduler may take to look at a plan, which names all units.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);
/// How long a scheduler may take to begin.
const STARTED_WITHIN: Duration = Duration::from_secs(5);

/// Connects to a scheduler, which may still be about to begin, and makes sure that it answers; why not, if it does not.
pub(super) async fn reach(
    address: &str,
    keys: Option<&ClusterKeys>,
    within: Duration,
) -> Result<SchedulerGrpcClient<Channel>, String> {
    let wrong = |e: &dyn std::error::Error| in_full(e);
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let mut endpoint = endpoint
        .map_err(|e| wrong(&e))?
        .connect_timeout(Duration::from_secs(20));
    if let Some(keys) = keys {
        endpoint = keys.endpoints()(endpoint).map_err(|e| wrong(&*e))?;
    }
    let began = Instant::now();
    let channel = loop {
        match endpoint.connect().await {
            Ok(channel) => break channel,
            Err(e) if began.elapsed() > within => return Err(wrong(&e)),
            Err(_) => tokio::time::sleep(ASKED_EVERY).await,
        }
    };
    let mut scheduler = SchedulerGrpcClient::new(channel)
        .max_encoding_message_size(MOST_MESSAGE as usize)
        .max_decoding_message_size(MOST_MESSAGE as usize);
    // A connection says little: one without keys is made to a scheduler with keys, and then nothing is answered.
    let job_id = String::new();
    let asked = scheduler.get_job_status(GetJobStatusParams { job_id });
    match tokio::time::timeout(SILENT_FOR, asked).await {
        Err(_) => Err("no answer".into()),
        Ok(Err(status)) if matches!(status.code(), Code::Unknown | Code::Unavailable) => {
            Err(in_full(&status))
        }
        Ok(_) => Ok(scheduler),
    }
}

/// A cluster of Ballista, by its scheduler.
#[derive(Debug)]
pub struct BallistaExchange {
    address: String,
    keys: Option<ClusterKeys>,
}

impl BallistaExchange {
    /// The cluster whose scheduler is at `HOST:PORT`, and the folder of its keys.
    ///
    /// # Errors
    /// [`ClusterError`] for an address or keys that can't be used.
    pub fn new(address: &str, keys: Option<&Path>) -> Result<Self, ClusterError> {
        host_and_port(address)?;
        let keys = keys.map(ClusterKeys::read).transpose()?;
        let address = address.to_owned();
        Ok(Self { address, keys })
    }

    /// No way to the scheduler, or not with these keys.
    fn refused(&self, why: &str) -> RunError {
        let hint = match &self.keys {
            None => "is `nightmill scheduler` running there, and without keys?",
            Some(_) => "is `nightmill scheduler` running there, with the same keys?",
        };
        RunError::Request(format!("--cluster {}: {why}; {hint}", self.address))
    }

    async fn connect(&self) -> Result<SchedulerGrpcClient<Channel>, RunError> {
        let reached = reach(&self.address, self.keys.as_ref(), STARTED_WITHIN).await;
        reached.map_err(|why| self.refused(&why))
    }

    fn lost(&self, status: &tonic::Status) -> RunError {
        RunError::Request(format!(
            "--cluster {}: {}: {}; what is finished stays: the same command with --resume goes on with it",
            self.address,
            status.code(),
            status.message()
        ))
    }

    /// Hands a plan to the scheduler; returns the name of its job.
    async fn submit(
        &self,
        scheduler: &mut SchedulerGrpcClient<Channel>,
        parts: &PartsOfRun,
    ) -> Result<String, RunError> {
        let plan = plan_of(parts)?;
        let message = PhysicalPlanNode::try_from_physical_plan(plan, &StageCodec::default())?;
        let mut bytes = Vec::new();
        message.try_encode(&mut bytes)?;
        let mut settings: Vec<KeyValuePair> = session(None).to_key_value_pairs();
        // The death of an executor costs no more than the parts that it was at.
        settings.push(KeyValuePair {
            key: "ballista.scheduler.max_partitions_per_task".into(),
            value: Some("1".into()),
        });
        let mut request = tonic::Request::new(ExecuteQueryParams {
            query: Some(Query::PhysicalPlan(bytes)),
            settings,
            session_id: uuid::Uuid::new_v4().to_string(),
            operation_id: uuid::Uuid::new_v4().to_string(),
        });
        insert_version_header(request.metadata_mut());
        let asked = scheduler.execute_query(request);
        let answer = match tokio::time::timeout(ANSWERED_WITHIN, asked).await {
            Ok(answer) => answer.map_err(|e| self.refused(e.message()))?,
            Err(_) => return Err(self.refused("no answer")),
        };
        match answer.into_inner().result {
            Some(execute_query_result::Result::Success(of)) => Ok(of.job_id),
            other => Err(RunError::Request(format!(
                "--cluster {}: the scheduler refuses the run: {other:?}",
                self.address
            ))),
        }
    }

    /// Waits for the end of a job.
    async fn wait(
        &self,
        scheduler: &mut SchedulerGrpcClient<Channel>,
        job_id: &str,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        let mut heard = Instant::now();
        loop {
            if stop.load(Relaxed) {
                let job_id = job_id.to_owned();
                let asked = scheduler.cancel_job(CancelJobParams { job_id });
                let _ = tokio::time::timeout(SILENT_FOR, asked).await;
                return Ok(());
            }
            let job_id = job_id.to_owned();
            let asked = scheduler.get_job_status(GetJobStatusParams { job_id });
            // One that stands still says neither yes nor no.
            let asked = tokio::time::timeout(SILENT_FOR, asked).await;
            match asked.unwrap_or_else(|_| Err(tonic::Status::unavailable("no answer"))) {
                Ok(answer) => {
                    heard = Instant::now();
                    match answer.into_inner().status.and_then(|status| status.status) {
                        Some(job_status::Status::Successful(_)) => return Ok(()),
                        Some(job_status::Status::Failed(failed)) => {
                            return Err(RunError::Plan(told(&failed.error)));
                        }
                        None => {
                            return Err(RunError::Request(format!(
                                "--cluster {}: the scheduler does not know the run any more: it was begun anew; what is finished \
                                 stays: the same command with --resume goes on with it",
                                self.address
                            )));
                        }
                        Some(_) => {}
                    }
                }
                // Whoever restarts a scheduler needs a moment; the job is lost then, which the scheduler says itself.
                Err(status) if heard.elapsed() > SILENT_FOR => return Err(self.lost(&status)),
                Err(_) => {}
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
    }
}

/// What went wrong, without the names that Ballista's parts have for it.
fn told(error: &str) -> String {
    let mut told = error.trim();
    // The innermost words are ours: quoted as Rust's debug output quotes a text, or behind a name.
    if let Some((_, named)) = told.split_once("DataFusionError(") {
        let innermost = |named: &str| {
            let quoted = ["(\"", "error: \""].map(|before| named.split_once(before));
            let first = quoted.into_iter().flatten();
            let first = first.min_by_key(|(before, _)| before.len());
            first.map(|(_, quoted)| unquoted(quoted))
        };
        // A task that was tried several times is quoted as a whole.
        if let Some(words) = innermost(named).or_else(|| innermost(&unquoted(named))) {
            return words;
        }
    }
    for before in ["Execution error: ", "External error: ", "IO error: "] {
        if let Some(at) = told.rfind(before) {
            told = &told[at + before.len()..];
        }
    }
    told.to_owned()
}

/// What stands before the closing quote, as it was before it was quoted.
fn unquoted(quoted: &str) -> String {
    let (mut text, mut rest) = (String::new(), quoted.chars());
    while let Some(next) = rest.next() {
        match next {
            '"' => break,
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('0') => text.push('\0'),
                Some('u') => {
                    let digits = rest.by_ref().skip(1).take_while(|digit| *digit != '}');
                    let code = u32::from_str_radix(&digits.collect::<String>(), 16);
                    let code = code.ok().and_then(char::from_u32);
                    text.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Some(other) => text.push(other),
                None => break,
            },
            other => text.push(other),
        }
    }
    text
}

impl Exchange for BallistaExchange {
    fn name(&self) -> String {
        format!("the cluster at {}", self.address)
    }

    fn slots(&self) -> usize {
        // Schedulers tell nobody how many executors there are.
        16
    }

    fn run(&self, parts: &PartsOfRun, stop: &AtomicBool) -> Result<(), RunError> {
        let runtime = runtime(1).map_err(|e| RunError::Plan(e.to_string()))?;
        runtime.block_on(async {
            let mut scheduler = self.connect().await?;
            let job_id = self.submit(&mut scheduler, parts).await?;
            tracing::info!(job_id, "handed to the cluster");
            self.wait(&mut scheduler, &job_id, stop).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_worker_are_in_its_own_words() {
        let words = "worker 127.0.0.1:1: `a \\ b`, \"c\"\nand \u{1b} é";
        let from_ballista = format!(
            "Job failed due to stage 1 failed: Task failed due to runtime execution error: \
             DataFusionError(Shared(Execution({words:?})))\n"
        );
        assert_eq!(told(&from_ballista), words);
        let of_a_disk = std::io::Error::other(words);
        let of_a_disk = format!("DataFusionError(IoError({of_a_disk:?}))");
        let once = format!("Task failed due to IO error: {of_a_disk}");
        assert_eq!(told(&once), words);
        let four_times = format!(
            "Job failed due to stage 2 failed: Task 1 failed 4 times, most recent failure reason: {once:?}\n"
        );
        assert_eq!(told(&four_times), words);
        assert_eq!(told("Arrow: Execution error: no room"), "no room");
        assert_eq!(told("the job is gone\n"), "the job is gone");
    }
}
