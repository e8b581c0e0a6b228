//! Which sessions the page lists, in which order, and their rows.

use std::path::PathBuf;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, TimestampMicrosecondType, UInt64Type};

use super::tables::{Rows, each_batch, parts_of, ranges_of};
use super::verdicts::VerdictScores;
use crate::history::stored_table::{
    cell, number, numbers, numbers_if_there, text, text_if_there, whole_number, whole_numbers,
};
use crate::metric::session_signal::{ATTENTION, SESSION_SIGNALS, WAREHOUSE_SIGNALS};
use crate::output::table_writer::Parts;
use crate::output::{RunDirectory, RunError};
use crate::run::bucket::FACTS;
use crate::summary::{AttentionPart, ListOrder, ListedSession, PageSessions, RankedScore};

/// Sessions that a page lists.
const MOST_LISTED: usize = 100_000;
/// Slices, which are columns of `sessions` where the run knows them.
const SLICES: [&str; 4] = ["name", "environment", "release", "model"];
/// The slice that is no column of a table: tables are the same however rows are split into files.
const FILE: &str = "file";
const SCORES: [&str; 2] = ["agent_reliability", "agent_consistency"];
/// Scores have 4 decimals.
const STEPS: usize = 10_000;

/// Where the traces of a session are in the table `traces`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionAt {
    pub parts: Parts,
    pub first_row: u64,
    pub traces: u64,
}

/// A part of `sessions` and, row for row beside it, one of `attention`.
struct Part {
    sessions: PathBuf,
    attention: Option<PathBuf>,
    /// Row for row beside it, what the run knows only while it is being made.
    facts: Option<PathBuf>,
    rows: usize,
}

/// The list of a run, and where the traces of the first of its sessions are. In memory are about 40 bytes of each session
/// of the run, and the rows that are listed.
///
/// # Errors
/// If a table can't be read back.
pub(super) fn read(
    run: &RunDirectory,
    shown: usize,
) -> Result<(PageSessions, Vec<SessionAt>), RunError> {
    let verdicts = VerdictScores::read(run.path())?;
    let mut all = Everyone::read(run, verdicts.as_ref())?;
    let order = all.order();
    let chosen = all.chosen(order);
    let mut page = PageSessions {
        total: all.at.len() as u64,
        order,
        has_verdicts: verdicts.is_some(),
        ..PageSessions::default()
    };
    all.rows(&chosen, verdicts.as_ref(), &mut page)?;
    let first = chosen.iter().take(shown);
    let places = first.filter_map(|row| all.at.get(*row).copied()).collect();
    Ok((page, places))
}

/// What is known of all sessions.
struct Everyone {
    parts: Vec<Part>,
    /// Place by place; empty without the table `attention`.
    places: Vec<u64>,
    /// Reliability, consistency and the score of the conversation, which order sessions without places; 2 for none.
    scores: Vec<[f32; 3]>,
    at: Vec<SessionAt>,
    spreads: [Spread; 2],
}

impl Everyone {
    fn read(run: &RunDirectory, verdicts: Option<&VerdictScores>) -> Result<Self, RunError> {
        let attention = run.path().join(ATTENTION);
        let mut all = Self {
            parts: Vec::new(),
            places: Vec::new(),
            scores: Vec::new(),
            at: Vec::new(),
            spreads: [Spread::default(), Spread::default()],
        };
        let mut next: Option<(Parts, u64)> = None;
        for sessions in parts_of(run.path(), "sessions")? {
            let beside = attention.join(sessions.file_name().unwrap_or_default());
            let parts = Parts::of(&sessions).unwrap_or_default();
            let mut first_row = match next {
                Some((before, row)) if before == parts => row,
                _ => 0,
            };
            let before = all.at.len();
            let columns = ["session_id", "project_id", "traces", SCORES[0], SCORES[1]];
            each_batch(&sessions, Some(&columns), Rows::All, |_, batch| {
                let traces = whole_numbers(batch, "traces")?;
                let scores = [
                    numbers_if_there(batch, SCORES[0])?,
                    numbers_if_there(batch, SCORES[1])?,
                ];
                let keys = verdicts.map(|_| keys(batch)).transpose()?;
                for row in 0..batch.num_rows() {
                    let traces = whole_number(&traces, row).unwrap_or_default().max(0) as u64;
                    all.at.push(SessionAt {
                        parts,
                        first_row,
                        traces,
                    });
                    first_row += traces;
                    let mut of_row = [2.0; 3];
                    for (at, column) in scores.iter().enumerate() {
                        if let Some(score) = number(column, row) {
                            all.spreads[at].add(score);
                            of_row[at] = score as f32;
                        }
                    }
                    if let (Some(verdicts), Some(keys)) = (verdicts, &keys) {
                        let score = keys.get(row).and_then(|key| verdicts.of(key));
                        of_row[2] = score.map_or(2.0, |score| score as f32);
                    }
                    all.scores.push(of_row);
                }
                Ok(())
            })?;
            next = Some((parts, first_row));
            let rows = all.at.len() - before;
            let attention = beside.exists().then_some(beside);
            if let Some(path) = &attention {
                each_batch(path, Some(&["place"]), Rows::All, |_, batch| {
                    let places = batch
                        .column_by_name("place")
                        .and_then(|c| c.as_primitive_opt::<UInt64Type>())
                        .ok_or("no column place")?;
                    all.places.extend(places.values().iter().copied());
                    Ok(())
                })?;
            }
            let facts = run.work().join(FACTS);
            let facts = facts.join(sessions.file_name().unwrap_or_default());
            all.parts.push(Part {
                facts: facts.exists().then_some(facts),
                sessions,
                attention,
                rows,
            });
        }
        all.spreads.iter_mut().for_each(Spread::finish);
        Ok(all)
    }

    fn order(&self) -> ListOrder {
        match self.scores.iter().flatten().any(|score| *score < 2.0) {
            _ if !self.at.is_empty() && self.places.len() == self.at.len() => ListOrder::Attention,
            true => ListOrder::Scores,
            false => ListOrder::Table,
        }
    }

    /// The numbers of the sessions that are listed, in the order of the list.
    fn chosen(&self, order: ListOrder) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.at.len()).collect();
        match order {
            ListOrder::Attention => {
                let place = |row: usize| self.places.get(row).copied().unwrap_or(u64::MAX);
                rows.sort_unstable_by_key(|row| (place(*row), *row));
            }
            ListOrder::Scores => rows.sort_unstable_by(|a, b| {
                let of = |row: usize| self.scores.get(row).copied().unwrap_or([2.0; 3]);
                let pairs = of(*a).into_iter().zip(of(*b));
                let first = pairs.map(|(a, b)| a.total_cmp(&b)).find(|o| o.is_ne());
                first.unwrap_or(a.cmp(b))
            }),
            ListOrder::Table => {}
        }
        rows.truncate(MOST_LISTED);
        rows
    }

    /// Reads the rows of these sessions, in this order.
    fn rows(
        &mut self,
        chosen: &[usize],
        verdicts: Option<&VerdictScores>,
        page: &mut PageSessions,
    ) -> Result<(), RunError> {
        // By table, each with its number in the list.
        let mut by_table: Vec<(usize, usize)> = chosen.iter().copied().zip(0..).collect();
        by_table.sort_unstable();
        page.listed = vec![ListedSession::default(); chosen.len()];
        let mut first = 0;
        let mut rest = by_table.as_slice();
        for part in &self.parts {
            let end = first + part.rows;
            let (of_part, others) = rest.split_at(rest.partition_point(|(row, _)| *row < end));
            rest = others;
            let ranges = ranges_of(of_part.iter().map(|(row, _)| row - first));
            first = end;
            if of_part.is_empty() {
                continue;
            }
            let places: Vec<usize> = of_part.iter().map(|(_, place)| *place).collect();
            let rows = Rows::Ranges(&ranges);
            each_batch(&part.sessions, None, rows, |from, batch| {
                read_sessions(
                    batch,
                    places.get(from..).unwrap_or_default(),
                    (&self.spreads, verdicts),
                    page,
                )
            })?;
            if let Some(path) = &part.facts {
                page.slices.push(FILE.to_owned());
                each_batch(path, Some(&[FILE]), rows, |from, batch| {
                    let files = text(batch, FILE)?;
                    let places = places.get(from..).unwrap_or_default();
                    for (row, place) in (0..batch.num_rows()).zip(places) {
                        if let Some(session) = page.listed.get_mut(*place) {
                            session.slices.push(cell(&files, row).map(str::to_owned));
                        }
                    }
                    Ok(())
                })?;
            }
            if let Some(path) = &part.attention {
                each_batch(path, None, rows, |from, batch| {
                    read_attention(batch, places.get(from..).unwrap_or_default(), page)
                })?;
            }
        }
        Ok(())
    }
}

/// What tells a session from all others.
fn keys(batch: &RecordBatch) -> Result<Vec<(String, Option<String>)>, String> {
    let (ids, projects) = (
        text(batch, "session_id")?,
        text_if_there(batch, "project_id")?,
    );
    let key = |row| {
        let project = cell(&projects, row).map(str::to_owned);
        (cell(&ids, row).unwrap_or_default().to_owned(), project)
    };
    Ok((0..batch.num_rows()).map(key).collect())
}

fn read_sessions(
    batch: &RecordBatch,
    places: &[usize],
    (spreads, verdicts): (&[Spread; 2], Option<&VerdictScores>),
    page: &mut PageSessions,
) -> Result<(), String> {
    let there = |name: &&str| batch.column_by_name(name).is_some();
    let slices: Vec<&str> = SLICES.into_iter().filter(there).collect();
    page.slices = slices.iter().map(|name| (*name).to_owned()).collect();
    page.has_tags = batch.column_by_name("tags").is_some();
    let signals = SESSION_SIGNALS.iter().map(|signal| signal.name);
    page.signals = signals.filter(there).collect();
    let slices: Vec<_> = slices
        .iter()
        .map(|name| text(batch, name))
        .collect::<Result<_, _>>()?;
    let signals: Vec<_> = page
        .signals
        .iter()
        .map(|name| numbers(batch, name))
        .collect::<Result<_, _>>()?;
    let tags = batch
        .column_by_name("tags")
        .and_then(|c| c.as_list_opt::<i32>());
    let (traces, flagged) = (
        whole_numbers(batch, "traces")?,
        whole_numbers(batch, "flagged")?,
    );
    let started = batch
        .column_by_name("first_started_at")
        .and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
    let scores = [
        numbers_if_there(batch, SCORES[0])?,
        numbers_if_there(batch, SCORES[1])?,
    ];
    for (row, (key, place)) in keys(batch)?.into_iter().zip(places).enumerate() {
        let Some(session) = page.listed.get_mut(*place) else {
            continue;
        };
        let ranked = |at: usize| {
            let value = number(&scores[at], row)?;
            Some(RankedScore {
                value,
                better_than: spreads[at].below(value),
            })
        };
        let of_row = tags
            .filter(|tags| tags.is_valid(row))
            .map(|tags| tags.value(row));
        let of_row = of_row.as_ref().and_then(|tags| tags.as_string_opt::<i32>());
        *session = ListedSession {
            traces: whole_number(&traces, row).unwrap_or_default().max(0) as u64,
            flagged: whole_number(&flagged, row).map(i64::unsigned_abs),
            agent_reliability: ranked(0),
            agent_consistency: ranked(1),
            conversation: verdicts.and_then(|verdicts| verdicts.of(&key)),
            started_at: started.filter(|t| t.is_valid(row)).map(|t| t.value(row)),
            slices: slices
                .iter()
                .map(|slice| cell(slice, row).map(str::to_owned))
                .collect(),
            tags: of_row
                .map(|tags| tags.iter().flatten().map(str::to_owned).collect())
                .unwrap_or_default(),
            signals: signals.iter().map(|signal| number(signal, row)).collect(),
            session_id: key.0,
            project_id: key.1,
            ..ListedSession::default()
        };
    }
    Ok(())
}

fn read_attention(
    batch: &RecordBatch,
    places: &[usize],
    page: &mut PageSessions,
) -> Result<(), String> {
    for signal in WAREHOUSE_SIGNALS {
        if !page.signals.contains(&signal.name) {
            page.signals.push(signal.name);
        }
    }
    let place = whole_numbers(batch, "place")?;
    let attention = numbers(batch, "attention")?;
    let why = text(batch, "why")?;
    let of_warehouse: Vec<_> = WAREHOUSE_SIGNALS
        .iter()
        .map(|signal| numbers_if_there(batch, signal.name))
        .collect::<Result<_, _>>()?;
    let column = |nth: &str, of: &str| format!("{nth}_{of}");
    let parts: Vec<_> = ["first", "second"]
        .into_iter()
        .map(|nth| {
            Ok((
                text(batch, &column(nth, "signal"))?,
                numbers(batch, &column(nth, "value"))?,
                numbers(batch, &column(nth, "rank"))?,
            ))
        })
        .collect::<Result<_, String>>()?;
    for (row, at) in (0..batch.num_rows()).zip(places) {
        let Some(session) = page.listed.get_mut(*at) else {
            continue;
        };
        session.place = whole_number(&place, row).map(i64::unsigned_abs);
        session.attention = number(&attention, row);
        session.why = cell(&why, row).map(str::to_owned);
        let values = of_warehouse.iter().map(|values| number(values, row));
        session.signals.extend(values);
        let part = |(signal, value, rank): &(_, arrow::array::PrimitiveArray<Float64Type>, _)| {
            Some(AttentionPart {
                signal: cell(signal, row)?.to_owned(),
                value: number(value, row)?,
                rank: number(rank, row)?,
            })
        };
        session.parts = parts.iter().filter_map(part).collect();
    }
    Ok(())
}

/// How many sessions have which score: every rank is exact at constant memory.
#[derive(Debug, Default)]
struct Spread {
    /// By step; after [`Spread::finish`] those below it.
    counts: Vec<u64>,
    all: u64,
}

fn step(score: f64) -> usize {
    (score * STEPS as f64 + 0.5).clamp(0.0, STEPS as f64) as usize
}

impl Spread {
    fn add(&mut self, score: f64) {
        self.counts.resize(STEPS + 1, 0);
        self.counts[step(score)] += 1;
        self.all += 1;
    }

    fn finish(&mut self) {
        let mut below = 0;
        for count in &mut self.counts {
            below += std::mem::replace(count, below);
        }
    }

    /// The share of scores that are lower.
    fn below(&self, score: f64) -> f64 {
        let below = self.counts.get(step(score)).copied().unwrap_or_default();
        below as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_share_of_lower_scores() {
        let mut spread = Spread::default();
        for score in [0.1, 0.5, 0.5, 0.9] {
            spread.add(score);
        }
        spread.finish();
        let ranks = [0.1, 0.5, 0.9, 0.0, 1.0].map(|score| spread.below(score));
        assert_eq!(ranks, [0.0, 0.25, 0.75, 0.0, 1.0]);
        let mut none = Spread::default();
        none.finish();
        assert_eq!(none.below(0.5), 0.0);
    }
}
