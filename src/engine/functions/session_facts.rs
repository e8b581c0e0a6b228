//! `session_facts(input_facts, output_facts, span_digest, input_again, output_again)` for the plan: an aggregate over the
//! traces of a session in their order, whose result is a cell of [`SessionFacts`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{ScalarValue, exec_datafusion_err, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use rayon::prelude::*;

#[cfg(doc)]
use crate::metric::session_signal::SessionFacts;
use crate::metric::session_signal::{Again, InputFacts, OutputFacts, SessionFold};
use crate::trace::SpanDigest;

/// The aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionFactsOf {
    signature: Signature,
    parallel: bool,
}

impl SessionFactsOf {
    pub fn new(parallel: bool) -> Self {
        let mut types = vec![DataType::Binary; 3];
        types.extend([DataType::Float64, DataType::Float64]);
        Self {
            signature: Signature::exact(types, Volatility::Immutable),
            parallel,
        }
    }
}

impl AggregateUDFImpl for SessionFactsOf {
    fn name(&self) -> &str {
        "session_facts"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // Rows come in session order, in one stream.
        AggregateOrderSensitivity::Insensitive
    }
    fn state_fields(&self, _: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new("cells", DataType::Binary, true))])
    }
    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneSession(Cells::default())))
    }
    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }
    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManySessions {
            parallel: self.parallel,
            sessions: Vec::new(),
            bytes: 0,
        }))
    }
}

/// The cells of a session's traces, five a trace, each after its length.
#[derive(Debug, Default)]
struct Cells(Vec<u8>);

/// The length of a cell that is not there.
const NULL: u32 = u32::MAX;

impl Cells {
    fn push(&mut self, cell: Option<&[u8]>) {
        // Longer cells than that are refused where they are made.
        let length = cell.map(|cell| u32::try_from(cell.len()).unwrap_or(NULL));
        self.0.extend(length.unwrap_or(NULL).to_le_bytes());
        if let Some(cell) = cell.filter(|_| length != Some(NULL)) {
            self.0.extend(cell);
        }
    }

    /// What the session comes to; none if a cell is unreadable.
    fn facts(&self) -> Option<Vec<u8>> {
        let mut fold = SessionFold::default();
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            let mut next = || -> Option<Option<&[u8]>> {
                let (length, after) = rest.split_first_chunk::<4>()?;
                let length = u32::from_le_bytes(*length);
                if length == NULL {
                    rest = after;
                    return Some(None);
                }
                let (cell, after) = after.split_at_checked(length as usize)?;
                rest = after;
                Some(Some(cell))
            };
            let [input, output, spans] = [next()?, next()?, next()?];
            let [asked, said] = [next()?, next()?].map(|near| {
                let near = near.and_then(|near| near.try_into().ok());
                near.map(f64::from_le_bytes)
            });
            let input = input.map(InputFacts::from_bytes);
            let output = output.map(OutputFacts::from_bytes);
            let spans = spans.map(SpanDigest::from_bytes);
            if input == Some(None) || output == Some(None) || spans == Some(None) {
                return None;
            }
            fold.push(
                input.flatten().as_ref(),
                output.flatten().as_ref(),
                spans.flatten().as_ref(),
                Again { asked, said },
            );
        }
        Some(fold.finish().to_bytes())
    }

    fn read(&self) -> Result<Vec<u8>> {
        self.facts()
            .ok_or_else(|| exec_datafusion_err!("unreadable facts of a trace"))
    }
}

/// Calls `push` with each row and its cells.
fn each_row(values: &[ArrayRef], mut push: impl FnMut(usize, [Option<&[u8]>; 5])) -> Result<()> {
    let cells = |at: usize| values.get(at).and_then(|v| v.as_binary_opt::<i32>());
    let (Some(input), Some(output), Some(spans)) = (cells(0), cells(1), cells(2)) else {
        return exec_err!("session_facts takes three cells and two numbers");
    };
    let number = |at: usize, row: usize| {
        let numbers = values.get(at)?.as_primitive_opt::<Float64Type>()?;
        let is_there = numbers.is_valid(row);
        is_there.then(|| numbers.value(row).to_le_bytes())
    };
    let cell = |of: &'_ BinaryArray, row: usize| -> Option<std::ops::Range<usize>> {
        let offsets = of.value_offsets();
        let at = |row: usize| offsets.get(row).and_then(|at| usize::try_from(*at).ok());
        of.is_valid(row).then_some(at(row)?..at(row + 1)?)
    };
    for row in 0..input.len() {
        let bytes = [input, output, spans].map(|of| of.value_data().get(cell(of, row)?));
        let [input, output, spans] = bytes;
        let (asked, said) = (number(3, row), number(4, row));
        let [asked, said] = [&asked, &said].map(|near| near.as_ref().map(<[u8; 8]>::as_slice));
        push(row, [input, output, spans, asked, said]);
    }
    Ok(())
}

fn states(sessions: Vec<Cells>) -> ArrayRef {
    let mut cells = BinaryBuilder::new();
    sessions
        .into_iter()
        .for_each(|session| cells.append_value(session.0));
    Arc::new(cells.finish())
}

fn each_state(states: &[ArrayRef], mut push: impl FnMut(usize, &[u8])) {
    let states = states.first().and_then(|s| s.as_binary_opt::<i32>());
    for (row, state) in states.into_iter().flat_map(|s| s.iter().enumerate()) {
        push(row, state.unwrap_or_default());
    }
}

/// For a query without GROUP BY.
#[derive(Debug)]
struct OneSession(Cells);

impl Accumulator for OneSession {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each_row(values, |_, cells| {
            cells.into_iter().for_each(|cell| self.0.push(cell));
        })
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Binary(Some(self.0.read()?)))
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.0.0.capacity()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(std::mem::take(
            &mut self.0.0,
        )))])
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        each_state(states, |_, state| self.0.0.extend(state));
        Ok(())
    }
}

/// For GROUP BY: all sessions of a batch become results at once.
#[derive(Debug)]
struct ManySessions {
    parallel: bool,
    sessions: Vec<Cells>,
    /// What the sessions hold.
    bytes: usize,
}

impl ManySessions {
    fn grow(&mut self, groups: usize) {
        self.sessions
            .resize_with(self.sessions.len().max(groups), Cells::default);
    }

    fn take(&mut self, emit: EmitTo) -> Vec<Cells> {
        let taken = emit.take_needed(&mut self.sessions);
        let gone: usize = taken.iter().map(|session| session.0.len()).sum();
        self.bytes = self.bytes.saturating_sub(gone);
        taken
    }
}

impl GroupsAccumulator for ManySessions {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grow(total);
        each_row(values, |row, cells| {
            let wanted = filter.is_none_or(|f| f.is_valid(row) && f.value(row));
            let group = groups
                .get(row)
                .and_then(|group| self.sessions.get_mut(*group));
            if let Some(session) = group.filter(|_| wanted) {
                let before = session.0.len();
                cells.into_iter().for_each(|cell| session.push(cell));
                self.bytes += session.0.len() - before;
            }
        })
    }
    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sessions = self.take(emit);
        // Sessions come hundreds at a time: worth sharing, in order.
        let read: Vec<Result<Vec<u8>>> = match self.parallel {
            true => {
                let sessions = sessions.par_iter().with_min_len(16);
                sessions.map(Cells::read).collect()
            }
            false => sessions.iter().map(Cells::read).collect(),
        };
        let mut facts = BinaryBuilder::new();
        for session in read {
            facts.append_value(session?);
        }
        Ok(Arc::new(facts.finish()))
    }
    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![states(self.take(emit))])
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grow(total);
        each_state(values, |row, state| {
            let group = groups
                .get(row)
                .and_then(|group| self.sessions.get_mut(*group));
            if let Some(session) = group {
                session.0.extend(state);
                self.bytes += state.len();
            }
        });
        Ok(())
    }
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut rows: Vec<Cells> = Vec::new();
        each_row(values, |row, cells| {
            let mut session = Cells::default();
            if filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                cells.into_iter().for_each(|cell| session.push(cell));
            }
            rows.push(session);
        })?;
        Ok(vec![states(rows)])
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.sessions.capacity() * size_of::<Cells>() + self.bytes
    }
}
