//! One pass over traces in session order, in as many streams as there are cores: what a session so far and its own texts
//! say of each trace. The first place of a plan where vectors are read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Float64Builder, PrimitiveArray,
    RecordBatch, StringArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, OrderingRequirements};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    ExecutionPlanProperties, InputDistributionRequirements, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};

use super::bucket_order::{BUCKET, SESSION, columns, session_order};
use super::external;
use super::likeness::{AskedPlaces, Between, Likeness};
use super::loop_record::pack_loop_record;
use super::tap::project;
use crate::embed::{EmbeddingService, TextRecord, TextRef, Triage, TriageBars};
use crate::metric::DEFAULT_THRESHOLD;
use crate::metric::loop_detection::LoopDetection;
use crate::metric::session_signal::again;
use crate::text::WordSet;

/// What walks need, of the session that they run in.
#[derive(Debug)]
pub(super) struct WalkTools {
    pub embedding: Option<Arc<EmbeddingService>>,
    /// The quick model whose places the rows carry; none where they carry those of `embedding`.
    pub triage: Option<Arc<Triage>>,
    /// Traces that loop detection looks back at.
    pub window: usize,
    /// Bytes of records that a stream remembers.
    pub memory: usize,
}

/// What a walk adds to each trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// `loop_record`: null where the trace stands alone.
    pub loops: bool,
    /// `coherence_gap`: null where either text is empty or null, NaN where an embedding is not finite.
    pub gaps: bool,
    /// `input_again` and `output_again`: null where there is no text before it to compare with.
    pub again: bool,
    /// `coherence_estimated` and `loop_estimated`: whether a quick model's cosine stands behind it.
    pub estimated: bool,
    /// Whether rows have a bucket, and streams of rows whole buckets.
    pub in_buckets: bool,
}

/// The rows of a plan in session order, with four more columns, `loop_record`, `coherence_gap`, `input_again` and
/// `output_again`; null where they are not wanted. The plan's `input_text` and `output_text` are places of embedded texts.
#[derive(Debug)]
pub(super) struct SessionWalk {
    input: Arc<dyn ExecutionPlan>,
    added: Added,
    schema: SchemaRef,
}

impl SessionWalk {
    pub fn new(input: Arc<dyn ExecutionPlan>, added: Added) -> Self {
        let mut fields: Vec<Arc<Field>> = input.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("loop_record", DataType::Binary, true)));
        for number in ["coherence_gap", "input_again", "output_again"] {
            fields.push(Arc::new(Field::new(number, DataType::Float64, true)));
        }
        if added.estimated {
            for truth in ["coherence_estimated", "loop_estimated"] {
                fields.push(Arc::new(Field::new(truth, DataType::Boolean, true)));
            }
        }
        Self {
            input,
            added,
            schema: Arc::new(Schema::new(fields)),
        }
    }
}

#[async_trait]
impl TableProvider for SessionWalk {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
    fn table_type(&self) -> TableType {
        TableType::Temporary
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = Arc::clone(&self.input);
        let walk = Arc::new(WalkExec::new(input, self.added, Arc::clone(&self.schema))?);
        match projection {
            None => Ok(walk),
            Some(columns) => project(walk, columns),
        }
    }
}

/// Sessions come whole and in order, each in one partition; the planner sees to it.
#[derive(Debug)]
struct WalkExec {
    input: Arc<dyn ExecutionPlan>,
    added: Added,
    schema: SchemaRef,
    /// What is never in two streams.
    whole: Vec<Arc<dyn PhysicalExpr>>,
    order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

impl WalkExec {
    fn new(input: Arc<dyn ExecutionPlan>, added: Added, schema: SchemaRef) -> Result<Self> {
        let of_input = input.schema();
        let whole: &[&str] = match added.in_buckets {
            true => &[BUCKET],
            false => &SESSION,
        };
        // Columns of the input keep their places, and rows theirs.
        let orderings = input.output_ordering().cloned();
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orderings),
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Self {
            whole: columns(&of_input, whole)?,
            order: session_order(&of_input, added.in_buckets)?,
            input,
            added,
            schema,
            properties: Arc::new(properties),
        })
    }
}

impl DisplayAs for WalkExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WalkExec: {:?}", self.added)
    }
}

impl ExecutionPlan for WalkExec {
    fn name(&self) -> &str {
        "WalkExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::KeyPartitioned(self.whole.clone())])
    }
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop().filter(|_| children.is_empty()) else {
            return internal_err!("WalkExec has exactly one child");
        };
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(Self::new(input, self.added, schema)?))
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }
    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let tools = context.session_config().get_extension::<WalkTools>();
        let Some((tools, service)) = tools.and_then(|tools| {
            let service = tools.embedding.clone()?;
            Some((tools, service))
        }) else {
            return internal_err!("a walk over sessions needs an embedding model");
        };
        let mut walk = Walk {
            added: self.added,
            schema: Arc::clone(&self.schema),
            likeness: Likeness::new(service, tools.triage.clone(), tools.memory),
            bars: tools.triage.as_ref().map(|triage| triage.bars),
            length: tools.window,
            so_far: SoFar::default(),
            so_far_ahead: SoFar::default(),
            waiting: VecDeque::new(),
        };
        let input = self.input.execute(partition, context)?;
        let batches = input.map(Some).chain(stream::iter([None]));
        let stream = batches.flat_map(move |batch| stream::iter(walk.step(batch)));
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// The state of one stream.
struct Walk {
    added: Added,
    schema: SchemaRef,
    likeness: Likeness,
    /// What a quick model decides; none without one.
    bars: Option<TriageBars>,
    /// How many earlier traces are looked at.
    length: usize,
    so_far: SoFar,
    /// The same where the quick model is already, and the batches between, with what the model was asked about them.
    so_far_ahead: SoFar,
    waiting: VecDeque<(RecordBatch, AskedPlaces)>,
}

/// Batches that the quick model is ahead: enough work for the model, so that nobody waits.
const AHEAD: usize = 8;

/// What is known of the session of the last row.
#[derive(Clone, Default)]
struct SoFar {
    /// Session and project; none where the row stood alone.
    session: Option<(String, Option<String>)>,
    /// Its traces so far.
    earlier: usize,
    /// The outputs of these, oldest first; none of empty ones.
    window: VecDeque<Option<Arc<TextRecord>>>,
    /// Inputs and outputs of the session that texts are compared with in meaning.
    inputs: Recent,
    outputs: Recent,
}

/// The last texts of a session on one side.
#[derive(Clone, Default)]
struct Recent(VecDeque<Arc<TextRecord>>);

impl Recent {
    /// How near the text comes in meaning to one of those before it, in [0, 1]; none if there is none. Takes it in.
    fn nearest(
        &mut self,
        text: Option<Arc<TextRecord>>,
        likeness: &mut Likeness,
    ) -> Result<Option<f64>> {
        let Some(text) = text else { return Ok(None) };
        let mut nearest: Option<f64> = None;
        for other in &self.0 {
            let gap = likeness.distance(&text, other, (Between::Alike, &[again::SAME]))?;
            if let Ok(near) = gap.map(|gap| 1.0 - gap) {
                nearest = Some(nearest.map_or(near, |so_far| so_far.max(near)));
            }
        }
        if self.0.len() == again::LOOKED_BACK {
            self.0.pop_front();
        }
        self.0.push_back(text);
        Ok(nearest)
    }
}

/// The columns of a batch that are looked at.
struct Rows<'b> {
    sessions: &'b StringArray,
    projects: &'b StringArray,
    inputs: &'b PrimitiveArray<UInt64Type>,
    outputs: &'b PrimitiveArray<UInt64Type>,
}

fn cell(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

fn place(column: &PrimitiveArray<UInt64Type>, row: usize) -> TextRef {
    match column.is_valid(row) {
        true => TextRef::from_u64(column.value(row)),
        false => TextRef::EMPTY,
    }
}

impl<'b> Rows<'b> {
    fn of(batch: &'b RecordBatch) -> Result<Self> {
        let column = |name: &str| -> Result<&'b ArrayRef> {
            match batch.column_by_name(name) {
                Some(column) => Ok(column),
                None => internal_err!("a walk over sessions lacks the column {name}"),
            }
        };
        Ok(Self {
            sessions: column("session_id")?.as_string(),
            projects: column("project_id")?.as_string(),
            inputs: column("input_text")?.as_primitive(),
            outputs: column("output_text")?.as_primitive(),
        })
    }
}

impl Walk {
    /// What is there after another batch, or after the last one.
    fn step(&mut self, next: Option<Result<RecordBatch>>) -> Vec<Result<RecordBatch>> {
        let ready = match next {
            Some(Err(error)) => Err(error),
            Some(Ok(batch)) if self.likeness.collects() => self.ahead(batch),
            Some(Ok(batch)) => self.walked(&batch).map(|batch| vec![batch]),
            None => self.resolved(0),
        };
        match ready {
            Ok(batches) => batches.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    /// Looks which pairs of a batch the quick model can't decide, and has the model asked about them; returns batches for
    /// which it had some time.
    fn ahead(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        self.likeness.collect();
        std::mem::swap(&mut self.so_far, &mut self.so_far_ahead);
        let looked_at = self.rows(&batch);
        std::mem::swap(&mut self.so_far, &mut self.so_far_ahead);
        looked_at?;
        let asked = self.likeness.ask().map_err(external)?;
        self.waiting.push_back((batch, asked));
        self.resolved(AHEAD)
    }

    /// Batches that waited for the model, all but so many.
    fn resolved(&mut self, all_but: usize) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while self.waiting.len() > all_but {
            let Some((batch, asked)) = self.waiting.pop_front() else {
                break;
            };
            self.likeness.compare(asked);
            batches.push(self.walked(&batch)?);
            self.likeness.end();
        }
        Ok(batches)
    }

    fn walked(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.rows(batch)?;
        let columns = batch.columns().iter().cloned().chain(columns).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// The columns that are added to a batch.
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let rows = Rows::of(batch)?;
        let count = batch.num_rows();
        let mut loops = BinaryBuilder::with_capacity(count, count * 64);
        let mut gaps = Float64Builder::with_capacity(count);
        let mut again = [Float64Builder::new(), Float64Builder::new()];
        let mut estimated = [BooleanBuilder::new(), BooleanBuilder::new()];
        for row in 0..count {
            let (input, output) = (place(rows.inputs, row), place(rows.outputs, row));
            let in_session =
                (self.added.loops || self.added.again) && self.so_far.enter(&rows, row);
            let compared = self.added.gaps && !input.is_empty() && !output.is_empty();
            let said = match in_session || compared {
                true => self.likeness.read(output).map_err(external)?,
                false => None,
            };
            gaps.append_option(match (&said, compared) {
                (Some(said), true) => self.gap(input, said)?,
                _ => None,
            });
            estimated[0].append_value(self.likeness.estimated());
            let near = match in_session && self.added.again {
                true => self.again(input, said.as_ref())?,
                false => [None; 2],
            };
            for (builder, near) in again.iter_mut().zip(near) {
                builder.append_option(near);
            }
            // What is near in meaning enters signals of sessions, all of which say that they rest on estimates.
            self.likeness.estimated();
            match in_session && self.added.loops {
                true => loops.append_value(self.loop_record(said)?),
                false => loops.append_null(),
            }
            estimated[1].append_value(self.likeness.estimated());
        }
        let mut columns = vec![match self.added.loops {
            true => Arc::new(loops.finish()) as ArrayRef,
            false => new_null_array(&DataType::Binary, count),
        }];
        columns.push(Arc::new(gaps.finish()));
        columns.extend(again.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef));
        if self.added.estimated {
            columns.extend(
                estimated
                    .iter_mut()
                    .map(|b| Arc::new(b.finish()) as ArrayRef),
            );
        }
        Ok(columns)
    }

    /// How near input and output come to earlier ones of the session.
    fn again(
        &mut self,
        input: TextRef,
        output: Option<&Arc<TextRecord>>,
    ) -> Result<[Option<f64>; 2]> {
        let asked = match input.is_empty() {
            true => None,
            false => self.likeness.read(input).map_err(external)?,
        };
        let (so_far, likeness) = (&mut self.so_far, &mut self.likeness);
        Ok([
            so_far.inputs.nearest(asked, likeness)?,
            so_far.outputs.nearest(output.map(Arc::clone), likeness)?,
        ])
    }

    fn gap(&mut self, input: TextRef, output: &Arc<TextRecord>) -> Result<Option<f64>> {
        let Some(input) = self.likeness.read(input).map_err(external)? else {
            return Ok(None);
        };
        let bars = self.bars.map_or([0.0; 2], |bars| bars.coherence);
        let asked = (Between::InputAndOutput, &bars[..]);
        let gap = self.likeness.distance(&input, output, asked)?;
        Ok(Some(gap.unwrap_or(f64::NAN)))
    }

    /// Compares an output with those before it, and takes it into the window.
    fn loop_record(&mut self, output: Option<Arc<TextRecord>>) -> Result<Vec<u8>> {
        let so_far = &mut self.so_far;
        // The threshold has no part in what is returned; it is applied where scores are written.
        let mut failed = None;
        let detection = LoopDetection::with(
            output.as_ref(),
            so_far.window.make_contiguous(),
            (so_far.earlier, DEFAULT_THRESHOLD),
            |current, previous| {
                let jaccard = WordSet::jaccard(&current.words, &previous.words);
                // The cosines at which the two of them would be a repetition.
                let bars = self.bars.map_or([0.0; 2], |bars| bars.loops);
                let bars = bars.map(|score| (1.0 - score) / jaccard);
                match self
                    .likeness
                    .distance(current, previous, (Between::Alike, &bars))
                {
                    Ok(gap) => Ok((1.0 - gap?, jaccard)),
                    Err(error) => {
                        failed = Some(error);
                        Ok((0.0, jaccard))
                    }
                }
            },
        );
        so_far.earlier += 1;
        so_far.window.push_back(output);
        if so_far.window.len() > self.length {
            so_far.window.pop_front();
        }
        failed.map_or_else(|| Ok(pack_loop_record(&detection)), Err)
    }
}

impl SoFar {
    /// Forgets the traces of another session. Whether the row is of a session at all.
    fn enter(&mut self, rows: &Rows<'_>, row: usize) -> bool {
        let session = cell(rows.sessions, row).map(|id| (id, cell(rows.projects, row)));
        let last = self.session.as_ref();
        let last = last.map(|(id, project)| (id.as_str(), project.as_deref()));
        if session != last {
            self.session = session.map(|(id, project)| (id.to_owned(), project.map(str::to_owned)));
            self.earlier = 0;
            self.window.clear();
            self.inputs.0.clear();
            self.outputs.0.clear();
        }
        session.is_some()
    }
}
