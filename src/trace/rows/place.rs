//! Where rows are.

/// A row's place: which file of a source, which row of it (of JSON Lines, which line). Orders as files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowAt(u64);

impl RowAt {
    const ROW_BITS: u32 = 40;

    /// From a number that [`RowAt::position`] gave.
    pub fn from_position(position: u64) -> Self {
        Self(position)
    }

    /// The number of the file, and the row in it.
    pub fn parts(self) -> (usize, u64) {
        (self.file(), self.row())
    }

    /// As it travels in a column.
    pub fn position(self) -> u64 {
        self.0
    }

    /// The place of this row of the file with this number.
    pub(crate) fn new(file: usize, row: u64) -> Self {
        Self((file as u64) << Self::ROW_BITS | row)
    }

    pub(in crate::trace) fn file(self) -> usize {
        (self.0 >> Self::ROW_BITS) as usize
    }

    pub(in crate::trace) fn row(self) -> u64 {
        self.0 & ((1 << Self::ROW_BITS) - 1)
    }
}

/// The rows of one file among ascending places.
pub(in crate::trace) fn rows_of_file(places: &[RowAt], file: usize) -> Vec<u64> {
    let from = places.partition_point(|place| place.file() < file);
    let to = places.partition_point(|place| place.file() <= file);
    places[from..to].iter().map(|place| place.row()).collect()
}

/// Rows of a file that follow each other. Orders as files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowRun {
    first: RowAt,
    rows: u64,
}

impl RowRun {
    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Their places.
    pub(in crate::trace) fn places(self) -> impl Iterator<Item = RowAt> {
        (self.first.0..self.first.0 + self.rows).map(RowAt)
    }
}

/// Adds a row to a list of runs. Rows come in the order of the file.
pub fn push_row(runs: &mut Vec<RowRun>, at: RowAt) {
    match runs.last_mut() {
        Some(last) if last.first.0 + last.rows == at.0 => last.rows += 1,
        _ => runs.push(RowRun { first: at, rows: 1 }),
    }
}
