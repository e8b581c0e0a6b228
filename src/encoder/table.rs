//! Static tables: a vector a token, looked up and averaged, without attention (Tulkens and van Dongen 2024, Model2Vec).

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::cpu::normalise;
use super::{EncodeError, Encoder, Packed};

/// Tokens of a batch: a look-up is so little work that handing batches over would count.
const TOKENS_PER_BATCH: usize = 1 << 13;

/// The rows of a table as they are stored: a bigger type would say nothing more.
#[derive(Debug)]
pub enum TableRows {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 16-bit floats.
    F16(Vec<f16>),
    /// Whole numbers, as they are: their step is the same for all rows, so that it changes no direction.
    I8(Vec<i8>),
}

impl TableRows {
    /// How many numbers there are.
    pub fn numbers(&self) -> usize {
        match self {
            Self::F32(rows) => rows.len(),
            Self::F16(rows) => rows.len(),
            Self::I8(rows) => rows.len(),
        }
    }
}

/// A static table as an encoder.
#[derive(Debug)]
pub struct Table {
    /// (rows, stored)
    pub rows: TableRows,
    /// Components of a row.
    pub stored: usize,
    /// The row of each token; the row of its id if none.
    pub mapping: Option<Vec<u32>>,
    /// What the row of each token is multiplied by; 1 if none.
    pub weights: Option<Vec<f32>>,
    /// Components that are kept, the first ones; all if none.
    pub keep: Option<usize>,
    /// Whether vectors are brought to length 1.
    pub normalise: bool,
}

impl Table {
    /// Token ids that have a row.
    fn vocabulary(&self) -> usize {
        let rows = self.rows.numbers() / self.stored.max(1);
        self.mapping.as_ref().map_or(rows, Vec::len)
    }

    /// Adds the row of a token to `out`, of which `buffer` is a copy in size.
    fn add(&self, id: u32, buffer: &mut [f32], out: &mut [f32]) {
        let at = id as usize;
        let row = self.mapping.as_ref().map_or(at, |rows| rows[at] as usize) * self.stored;
        let weight = self.weights.as_ref().map_or(1.0, |weights| weights[at]);
        let dim = out.len();
        let row: &[f32] = match &self.rows {
            TableRows::F32(rows) => &rows[row..row + dim],
            TableRows::F16(rows) => {
                rows[row..row + dim].convert_to_f32_slice(buffer);
                buffer
            }
            TableRows::I8(rows) => {
                let numbers = rows[row..row + dim].iter();
                buffer
                    .iter_mut()
                    .zip(numbers)
                    .for_each(|(x, n)| *x = f32::from(*n));
                buffer
            }
        };
        out.iter_mut()
            .zip(row)
            .for_each(|(sum, x)| *sum += weight * x);
    }
}

impl Encoder for Table {
    fn dim(&self) -> usize {
        self.keep.map_or(self.stored, |keep| keep.min(self.stored))
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
        let vocabulary = self.vocabulary();
        if let Some(&id) = batch.ids().iter().find(|&&id| id as usize >= vocabulary) {
            return Err(EncodeError::TokenOutOfVocabulary { id, vocabulary });
        }
        let dim = self.dim();
        let mut buffer = vec![0.0; dim];
        for span in batch.spans() {
            let tokens = span.len() as f32;
            let start = out.len();
            out.resize(start + dim, 0.0);
            let vector = &mut out[start..];
            for id in &batch.ids()[span] {
                self.add(*id, &mut buffer, vector);
            }
            vector.iter_mut().for_each(|x| *x /= tokens);
            if self.normalise {
                normalise(vector);
            }
        }
        Ok(0)
    }

    fn tokens_per_batch(&self) -> usize {
        TOKENS_PER_BATCH
    }

    fn batches_at_once(&self) -> usize {
        usize::MAX
    }

    fn precision(&self) -> &'static str {
        "f32"
    }

    fn device(&self) -> String {
        // Additions alone: every machine makes the same bits of them.
        "cpu (table)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: TableRows) -> Table {
        Table {
            rows,
            stored: 2,
            mapping: Some(vec![1, 0, 1]),
            weights: Some(vec![1.0, 2.0, 0.5]),
            keep: None,
            normalise: false,
        }
    }

    #[test]
    fn vectors_are_means_of_weighted_rows_whatever_they_are_stored_as() {
        let numbers = [1i8, 2, 3, -4];
        let floats: Vec<f32> = numbers.iter().map(|n| f32::from(*n)).collect();
        let halves = floats.iter().map(|x| f16::from_f32(*x)).collect();
        let mut batch = Packed::default();
        batch.push(&[0, 1]);
        batch.push(&[2]);
        for rows in [
            TableRows::F32(floats.clone()),
            TableRows::F16(halves),
            TableRows::I8(numbers.to_vec()),
        ] {
            let mut out = Vec::new();
            table(rows).encode(&batch, &mut out).unwrap();
            assert_eq!(out, [2.5, 0.0, 1.5, -2.0]);
        }
        let short = Table {
            keep: Some(1),
            normalise: true,
            ..table(TableRows::F32(floats))
        };
        let mut out = Vec::new();
        short.encode(&batch, &mut out).unwrap();
        assert_eq!(out, [1.0, 1.0]);
        let mut wrong = Packed::default();
        wrong.push(&[3]);
        assert!(short.encode(&wrong, &mut out).is_err());
        assert_eq!(out.len(), 2);
    }
}
