//! One pass over traces in session order, in as many streams as there are cores: what a session so far and its own texts
//! say of each trace. The first place of a plan where vectors are read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, Float64Builder, PrimitiveArray, RecordBatch,
    StringArray, new_null_array,
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
use futures::StreamExt;

use super::bucket_order::{BUCKET, SESSION, columns, session_order};
use super::external;
use super::loop_record::pack_loop_record;
use super::tap::project;
use crate::embed::{EmbeddingService, RecentRecords, TextRecord, TextRef};
use crate::metric::loop_detection::{LoopDetection, Output};
use crate::metric::session_signal::again;
use crate::metric::{DEFAULT_THRESHOLD, distance};

/// What walks need, of the session that they run in.
#[derive(Debug)]
pub(super) struct WalkTools {
    pub embedding: Option<Arc<EmbeddingService>>,
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
            records: RecentRecords::new(service, tools.memory),
            session: None,
            earlier: 0,
            length: tools.window,
            window: VecDeque::with_capacity(tools.window + 1),
            inputs: Recent::default(),
            outputs: Recent::default(),
        };
        let input = self.input.execute(partition, context)?;
        let stream = input.map(move |batch| walk.batch(&batch?));
        let schema = Arc::clone(&self.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// The state of one stream.
struct Walk {
    added: Added,
    schema: SchemaRef,
    records: RecentRecords,
    /// Session and project of the last row; none where it stood alone.
    session: Option<(String, Option<String>)>,
    /// Traces of the session so far.
    earlier: usize,
    /// How many of them are looked at.
    length: usize,
    /// The outputs of these, oldest first; none of empty ones.
    window: VecDeque<Option<Arc<TextRecord>>>,
    /// Inputs and outputs of the session that texts are compared with in meaning.
    inputs: Recent,
    outputs: Recent,
}

/// The last texts of a session on one side.
#[derive(Default)]
struct Recent(VecDeque<Arc<TextRecord>>);

impl Recent {
    /// How near the text comes in meaning to one of those before it, in [0, 1]; none if there is none. Takes it in.
    fn nearest(&mut self, text: Option<Arc<TextRecord>>) -> Option<f64> {
        let text = text?;
        let near = |other: &Arc<TextRecord>| {
            let norms = (text.norm_squared, other.norm_squared);
            let gap = distance(&text.vector, &other.vector, norms);
            gap.ok().map(|gap| 1.0 - gap)
        };
        let nearest = self.0.iter().filter_map(near).max_by(f64::total_cmp);
        if self.0.len() == again::LOOKED_BACK {
            self.0.pop_front();
        }
        self.0.push_back(text);
        nearest
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
    fn batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = Rows::of(batch)?;
        let count = batch.num_rows();
        let mut loops = BinaryBuilder::with_capacity(count, count * 64);
        let mut gaps = Float64Builder::with_capacity(count);
        let mut again = [Float64Builder::new(), Float64Builder::new()];
        for row in 0..count {
            let (input, output) = (place(rows.inputs, row), place(rows.outputs, row));
            let in_session = (self.added.loops || self.added.again) && self.enter(&rows, row);
            let compared = self.added.gaps && !input.is_empty() && !output.is_empty();
            let said = match in_session || compared {
                true => self.records.read(output).map_err(external)?,
                false => None,
            };
            gaps.append_option(match (&said, compared) {
                (Some(said), true) => self.gap(input, said)?,
                _ => None,
            });
            let near = match in_session && self.added.again {
                true => self.again(input, said.as_ref())?,
                false => [None; 2],
            };
            for (builder, near) in again.iter_mut().zip(near) {
                builder.append_option(near);
            }
            match in_session && self.added.loops {
                true => loops.append_value(self.loop_record(said)),
                false => loops.append_null(),
            }
        }
        let mut columns = batch.columns().to_vec();
        columns.push(match self.added.loops {
            true => Arc::new(loops.finish()) as ArrayRef,
            false => new_null_array(&DataType::Binary, count),
        });
        columns.push(Arc::new(gaps.finish()));
        columns.extend(again.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

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

    /// How near input and output come to earlier ones of the session.
    fn again(
        &mut self,
        input: TextRef,
        output: Option<&Arc<TextRecord>>,
    ) -> Result<[Option<f64>; 2]> {
        let asked = match input.is_empty() {
            true => None,
            false => self.records.read(input).map_err(external)?,
        };
        Ok([
            self.inputs.nearest(asked),
            self.outputs.nearest(output.map(Arc::clone)),
        ])
    }

    fn gap(&mut self, input: TextRef, output: &TextRecord) -> Result<Option<f64>> {
        let input = self.records.read(input).map_err(external)?;
        Ok(input.map(|input| {
            let norms = (input.norm_squared, output.norm_squared);
            distance(&input.vector, &output.vector, norms).unwrap_or(f64::NAN)
        }))
    }

    /// Compares an output with those before it, and takes it into the window.
    fn loop_record(&mut self, output: Option<Arc<TextRecord>>) -> Vec<u8> {
        let window: Vec<Option<Output<'_>>> =
            self.window.iter().map(|o| o.as_deref().map(of)).collect();
        let current = output.as_deref().map(of);
        // The threshold has no part in what is returned; it is applied where scores are written.
        let detection = LoopDetection::new(current, &window, self.earlier, DEFAULT_THRESHOLD);
        self.earlier += 1;
        self.window.push_back(output);
        if self.window.len() > self.length {
            self.window.pop_front();
        }
        pack_loop_record(&detection)
    }
}

fn of(record: &TextRecord) -> Output<'_> {
    Output {
        vector: &record.vector,
        norm_squared: record.norm_squared,
        words: &record.words,
    }
}
