//! How the two stages travel: as the place of their job and its hash. Executors make them anew, with their own worker.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};

use super::read_units::ReadUnitsExec;
use super::score_buckets::ScoreBucketsExec;
use crate::embed::EmbedError;
use crate::output::RunError;
use crate::run::worker::{JobPlace, Worker};
use crate::trace::TraceError;

/// What stands before a stage of ours.
const OURS: &[u8] = b"nightmill\0";

/// A stage on its way.
#[derive(Serialize, Deserialize)]
enum Stage {
    Read(JobPlace, Columns),
    Score(JobPlace),
}

/// The columns of rows, as Arrow writes a schema.
#[derive(Serialize, Deserialize)]
struct Columns(Vec<u8>);

impl Columns {
    fn of(schema: &SchemaRef) -> Result<Self> {
        let mut bytes = Vec::new();
        arrow::ipc::writer::StreamWriter::try_new(&mut bytes, schema)?.finish()?;
        Ok(Self(bytes))
    }

    fn schema(&self) -> Result<SchemaRef> {
        let reader = arrow::ipc::reader::StreamReader::try_new(self.0.as_slice(), None)?;
        Ok(reader.schema())
    }
}

/// Writes and reads stages; those of Ballista as Ballista does.
#[derive(Debug, Default)]
pub(super) struct StageCodec {
    engine: BallistaPhysicalExtensionCodec,
    /// Of an executor.
    worker: Option<Arc<Worker>>,
}

impl StageCodec {
    /// That of an executor.
    pub fn of(worker: Arc<Worker>) -> Self {
        Self {
            worker: Some(worker),
            ..Self::default()
        }
    }
}

impl PhysicalExtensionCodec for StageCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(ours) = bytes.strip_prefix(OURS) else {
            return self.engine.try_decode(bytes, inputs, context, converter);
        };
        let [input] = inputs else {
            return internal_err!("a stage has one input");
        };
        let stage =
            serde_json::from_slice(ours).map_err(|e| DataFusionError::External(e.into()))?;
        let (input, worker) = (Arc::clone(input), self.worker.clone());
        Ok(match stage {
            Stage::Read(job, columns) => {
                Arc::new(ReadUnitsExec::new(job, columns.schema()?, input, worker))
            }
            Stage::Score(job) => Arc::new(ScoreBucketsExec::new(job, input, worker)),
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let stage = if let Some(read) = node.downcast_ref::<ReadUnitsExec>() {
            Stage::Read(read.job.clone(), Columns::of(&read.schema())?)
        } else if let Some(score) = node.downcast_ref::<ScoreBucketsExec>() {
            Stage::Score(score.job.clone())
        } else {
            return self.engine.try_encode(node, bytes, converter);
        };
        bytes.extend_from_slice(OURS);
        serde_json::to_writer(bytes, &stage).map_err(|e| DataFusionError::External(e.into()))
    }
}

/// A stage is executed where there is no worker.
pub(super) fn no_worker<T>() -> Result<T> {
    internal_err!("only executors of nightmill can do this; begin them with `nightmill executor`")
}

/// An error as Ballista tries it again or not: disks and networks may get well, and another machine's may be better; whatever
/// is wrong with the run itself is wrong everywhere.
pub(super) fn engine_error(error: RunError) -> DataFusionError {
    let of_disk = matches!(
        error,
        RunError::Write { .. }
            | RunError::Scratch(_)
            | RunError::Embed(EmbedError::Store { .. })
            | RunError::Trace(TraceError::File { .. })
    );
    match of_disk {
        true => DataFusionError::IoError(std::io::Error::other(error.to_string())),
        false => DataFusionError::Execution(error.to_string()),
    }
}
