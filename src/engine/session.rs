//! A DataFusion session with nightmill's functions, bounded memory and a place to spill.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::functions;
use super::session_walk::WalkTools;
use crate::embed::{EmbeddingService, Triage};
use crate::metric::SignalWeights;
use crate::text::TextMode;

/// What a session needs to know.
#[derive(Debug)]
pub struct EngineOptions {
    /// Partitions of a plan.
    pub threads: usize,
    /// Bytes that sorting and aggregating may hold before they spill.
    pub memory: usize,
    /// Where they spill.
    pub spill_folder: PathBuf,
    /// For the functions that embed; without it they fail with a message that says so.
    pub embedding: Option<Arc<EmbeddingService>>,
    /// A quick model that embeds what rows carry; the one above is asked where that does not decide.
    pub triage: Option<Arc<Triage>>,
    /// Traces that loop detection looks back at.
    pub window: usize,
    /// Weights of the session metrics.
    pub weights: SignalWeights,
    /// What `text_of` makes of JSON.
    pub text_mode: TextMode,
}

/// Sorting keeps this much back for its merge phase; a limit below a few times that can't work.
const LEAST_MEMORY: usize = 64 << 20;

/// Makes a session.
///
/// # Errors
/// DataFusion's, if the spill folder can't be used.
pub fn engine_session(options: &EngineOptions) -> Result<SessionContext> {
    let spill = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![
        options.spill_folder.clone(),
    ]));
    let memory = options.memory.max(LEAST_MEMORY);
    // Spilled runs merged at once in each partition: enough that one level of merging is the rule, few
    // enough that their batches fit into any limit.
    const FAN_IN: usize = 8;
    let runtime = RuntimeEnvBuilder::new()
        .with_max_spill_merge_fan_in(FAN_IN)
        .with_memory_pool(Arc::new(SplitPool::new(memory)))
        .with_disk_manager_builder(spill)
        .build_arc()?;
    // Each stream sorts on its own, and spills when its share of the memory is full: with a small share, all the time.
    const LEAST_OF_A_STREAM: usize = 16 << 20;
    let streams = options.threads.clamp(1, memory / LEAST_OF_A_STREAM);
    let mut config = SessionConfig::new()
        .with_target_partitions(streams)
        // Merging spilled runs holds a batch of each: small ones keep it within small limits.
        .with_batch_size(2048)
        .with_information_schema(false)
        .with_extension(Arc::new(WalkTools {
            embedding: options.embedding.clone(),
            triage: options.triage.clone(),
            window: options.window,
            // Beside what the streams sort: a little of the memory in all, and no more than helps.
            memory: (memory / 8 / streams).min(8 << 20),
        }));
    let settings = config.options_mut();
    settings.execution.sort_spill_reservation_bytes = 4 << 20;
    settings.sql_parser.enable_ident_normalization = true;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .build();
    let context = SessionContext::new_with_state(state);
    functions::register(&context, options);
    Ok(context)
}

/// Memory for operators that can spill, shared fairly and bounded; operators that can't (merging sorted
/// streams, passing batches on) are counted and never refused. Each holds a few batches a stream, their
/// number is bounded by the fan-in, and refusing the last merge of a plan would throw a night's work
/// away over an estimate: DataFusion counts shared buffers once for every batch that uses them.
#[derive(Debug)]
struct SplitPool {
    spilling: FairSpillPool,
    holding: UnboundedMemoryPool,
}

impl SplitPool {
    fn new(bytes: usize) -> Self {
        Self {
            spilling: FairSpillPool::new(bytes),
            holding: UnboundedMemoryPool::default(),
        }
    }

    fn of(&self, consumer: &MemoryConsumer) -> &dyn MemoryPool {
        if consumer.can_spill() {
            &self.spilling
        } else {
            &self.holding
        }
    }
}

impl std::fmt::Display for SplitPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} and {}", self.spilling, self.holding)
    }
}

impl MemoryPool for SplitPool {
    fn name(&self) -> &str {
        "split"
    }
    fn register(&self, consumer: &MemoryConsumer) {
        self.of(consumer).register(consumer);
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        self.of(consumer).unregister(consumer);
    }
    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.of(reservation.consumer())
            .grow(reservation, additional);
    }
    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.of(reservation.consumer()).shrink(reservation, shrink);
    }
    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.of(reservation.consumer())
            .try_grow(reservation, additional)
    }
    fn reserved(&self) -> usize {
        self.spilling.reserved() + self.holding.reserved()
    }
    fn memory_limit(&self) -> MemoryLimit {
        self.spilling.memory_limit()
    }
}
