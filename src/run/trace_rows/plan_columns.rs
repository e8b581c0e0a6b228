//! The columns of the plan's result, by type.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, RecordBatch, StringArray,
    UInt64Array,
};
use arrow::datatypes::{Float64Type, UInt64Type};
use arrow::error::ArrowError;

use super::scored::Labels;
use crate::engine::JUDGED_AT;
use crate::metric::spans::OfSpans;
use crate::metric::{SPAN_SIGNALS, Signals};

/// A column by its name.
///
/// # Errors
/// If there is none.
pub(crate) fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef, ArrowError> {
    batch
        .column_by_name(name)
        .ok_or_else(|| ArrowError::SchemaError(format!("no column {name}")))
}

/// The columns of a batch of traces that rows are made of.
pub(super) struct PlanColumns<'b> {
    trace_id: &'b StringArray,
    shown_id: &'b StringArray,
    session_id: &'b StringArray,
    project_id: &'b StringArray,
    environment: &'b StringArray,
    confidence: &'b Float64Array,
    tool_correctness: &'b Float64Array,
    coherence: &'b Float64Array,
    loop_detection: &'b Float64Array,
    coherence_gap: &'b Float64Array,
    loop_record: &'b BinaryArray,
    /// Only where outputs are compared.
    comparison_record: Option<&'b BinaryArray>,
    /// Only where metrics look at spans or outputs, or at the session so far.
    digests: [Option<&'b BinaryArray>; 3],
    /// Only of scores of spans that are signals: the score, and whether it was given.
    of_spans: [Option<(&'b Float64Array, &'b BooleanArray)>; 5],
    /// Only where judges were asked about traces.
    judged_at: Option<&'b UInt64Array>,
    /// Only where a quick model decides what it can: whether it did, of coherence and of loop detection.
    estimated: [Option<&'b BooleanArray>; 2],
    pub coherence_given: &'b BooleanArray,
    pub loop_detection_given: &'b BooleanArray,
}

impl<'b> PlanColumns<'b> {
    pub fn of(batch: &'b RecordBatch) -> Result<Self, ArrowError> {
        let text = |name| column(batch, name).map(|c| c.as_string::<i32>());
        let number = |name| column(batch, name).map(|c| c.as_primitive::<Float64Type>());
        let bytes = |name| {
            batch
                .column_by_name(name)
                .and_then(|c| c.as_binary_opt::<i32>())
        };
        let truth = |name| column(batch, name).map(|c| c.as_boolean());
        Ok(Self {
            trace_id: text("trace_id")?,
            shown_id: text("shown_id")?,
            session_id: text("session_id")?,
            project_id: text("project_id")?,
            environment: text("environment")?,
            confidence: number("confidence")?,
            tool_correctness: number("tool_correctness")?,
            coherence: number("coherence")?,
            loop_detection: number("loop_detection")?,
            coherence_gap: number("coherence_gap")?,
            loop_record: column(batch, "loop_record")?.as_binary::<i32>(),
            comparison_record: bytes("comparison_record"),
            digests: ["span_digest", "output_digest", "stuck_record"].map(bytes),
            of_spans: SPAN_SIGNALS.map(|name| {
                let values = batch.column_by_name(name)?.as_primitive_opt()?;
                let given = batch.column_by_name(&format!("{name}_given"))?;
                Some((values, given.as_boolean_opt()?))
            }),
            judged_at: batch
                .column_by_name(JUDGED_AT)
                .and_then(|c| c.as_primitive_opt::<UInt64Type>()),
            estimated: ["coherence_estimated", "loop_estimated"]
                .map(|name| batch.column_by_name(name).and_then(|c| c.as_boolean_opt())),
            coherence_given: truth("coherence_given")?,
            loop_detection_given: truth("loop_detection_given")?,
        })
    }

    /// The canonical id, for matching.
    pub fn canonical_id(&self, row: usize) -> &'b str {
        self.trace_id.value(row)
    }

    pub fn labels(&self, row: usize) -> Labels<'b> {
        let optional = |array: &'b StringArray| array.is_valid(row).then(|| array.value(row));
        Labels {
            trace_id: self.shown_id.value(row),
            session_id: optional(self.session_id),
            project_id: optional(self.project_id),
            environment: optional(self.environment),
        }
    }

    pub fn signals(&self, row: usize) -> Signals {
        Signals {
            confidence: value(self.confidence, row),
            loop_detection: value(self.loop_detection, row),
            tool_correctness: value(self.tool_correctness, row),
            coherence: value(self.coherence, row),
            of_spans: self
                .of_spans
                .map(|signal| signal.and_then(|(values, _)| value(values, row))),
        }
    }

    /// A signal of spans that was given for a row, not computed.
    pub fn given_of_spans(&self, metric: OfSpans, row: usize) -> Option<f64> {
        let at = OfSpans::ALL.iter().position(|one| *one == metric)?;
        let (values, given) = self.of_spans[at]?;
        given.value(row).then(|| value(values, row)).flatten()
    }

    /// Where what judges said of the trace is; `None` where they said nothing.
    pub fn judged_at(&self, row: usize) -> Option<u64> {
        let places = self.judged_at?;
        places.is_valid(row).then(|| places.value(row))
    }

    /// `None` without comparison.
    pub fn gap(&self, row: usize) -> Option<f64> {
        value(self.coherence_gap, row)
    }

    /// Whether a quick model's estimate stands behind the coherence of a row, and behind its loop detection.
    pub fn estimated(&self, row: usize) -> [bool; 2] {
        self.estimated
            .map(|cells| cells.is_some_and(|cells| cells.is_valid(row) && cells.value(row)))
    }

    /// `None` without an expected text.
    pub fn comparison_record(&self, row: usize) -> Option<&'b [u8]> {
        cell(self.comparison_record, row)
    }

    /// `None` where spans were not read, and without spans.
    pub fn span_digest(&self, row: usize) -> Option<&'b [u8]> {
        cell(self.digests[0], row)
    }

    /// `None` where the output was not looked at, and where it is null.
    pub fn output_digest(&self, row: usize) -> Option<&'b [u8]> {
        cell(self.digests[1], row)
    }

    /// `None` where nobody asked for it.
    pub fn stuck_record(&self, row: usize) -> Option<&'b [u8]> {
        cell(self.digests[2], row)
    }

    /// `None` where loops were not looked for.
    pub fn loop_record(&self, row: usize) -> Option<&'b [u8]> {
        let records = self.loop_record;
        records.is_valid(row).then(|| records.value(row))
    }
}

fn cell(cells: Option<&BinaryArray>, row: usize) -> Option<&[u8]> {
    let cells = cells?;
    cells.is_valid(row).then(|| cells.value(row))
}

fn value(array: &Float64Array, row: usize) -> Option<f64> {
    array.is_valid(row).then(|| array.value(row))
}
