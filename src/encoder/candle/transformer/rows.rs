//! How the texts of a pass lie in the rows of its tensors: a row a token.

use std::ops::Range;

/// Texts are at least this share as long as the longest one that they are padded to: little is padded.
const LEAST_FILLED: f64 = 0.9;

/// Tokens of a text, as most texts have more: so many texts has a packed pass room for.
const TOKENS_OF_A_TEXT: usize = 8;

/// Texts that lie side by side, all in as many rows as the longest of them has tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'t> {
    pub texts: &'t [&'t [u32]],
    /// Where the first of them begins.
    pub first_row: usize,
    pub longest: usize,
}

impl Group<'_> {
    /// Rows that it takes.
    pub fn count(&self) -> usize {
        self.texts.len() * self.longest
    }

    /// Its rows.
    pub fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.count()
    }
}

/// All rows of a pass.
#[derive(Clone, Debug)]
pub(super) struct Rows<'t> {
    pub groups: Vec<Group<'t>>,
    /// Rows in all, also those that no text has.
    pub count: usize,
    /// Vectors in all, also those that no text has.
    pub vectors: usize,
}

impl<'t> Rows<'t> {
    /// The first of texts, longest first, that go together when they are padded: at most `budget` tokens, and all nearly as
    /// long as the first one. At least one.
    pub fn padded(texts: &'t [&'t [u32]], budget: usize) -> Self {
        let longest = texts.first().map_or(0, |text| text.len());
        let most = (budget / longest.max(1)).max(1);
        let alike = texts
            .iter()
            .take(most)
            .take_while(|text| text.len() as f64 >= longest as f64 * LEAST_FILLED);
        let group = Group {
            texts: &texts[..alike.count()],
            first_row: 0,
            longest,
        };
        Self {
            count: group.count(),
            vectors: group.texts.len(),
            groups: vec![group],
        }
    }

    /// The first of texts, longest first, that have room end to end in `capacity` rows; those of one length are a group, so
    /// that nothing is padded. Rows and vectors are always as many: what a device chooses by the size of a product does not
    /// depend on the texts.
    pub fn packed(texts: &'t [&'t [u32]], capacity: usize) -> Self {
        let vectors = capacity.div_ceil(TOKENS_OF_A_TEXT);
        let mut groups: Vec<Group<'t>> = Vec::new();
        let (mut rows, mut done) = (0, 0);
        let of_one_length = |a: &&[u32], b: &&[u32]| a.len() == b.len();
        for alike in texts.chunk_by(of_one_length) {
            let longest = alike.first().map_or(0, |text| text.len());
            let room = ((capacity - rows) / longest.max(1)).min(vectors - done);
            let texts = &alike[..room.min(alike.len())];
            if !texts.is_empty() {
                let group = Group {
                    texts,
                    first_row: rows,
                    longest,
                };
                rows += group.count();
                done += texts.len();
                groups.push(group);
            }
            if texts.len() < alike.len() {
                break;
            }
        }
        Self {
            groups,
            count: capacity,
            vectors,
        }
    }

    /// How many of the texts are in here.
    pub fn texts(&self) -> usize {
        self.groups.iter().map(|group| group.texts.len()).sum()
    }

    /// Tokens of the longest text.
    pub fn longest(&self) -> usize {
        let all = self.groups.iter().map(|group| group.longest);
        all.max().unwrap_or(0)
    }

    /// Rows that texts take, from the first on.
    pub fn taken(&self) -> usize {
        self.groups.last().map_or(0, |group| group.rows().end)
    }

    /// Token ids and places of all rows; 0 where there is no token.
    pub fn tokens(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut ids, mut places) = (vec![0; self.count], vec![0; self.count]);
        for group in &self.groups {
            for (at, text) in group.texts.iter().enumerate() {
                let row = group.first_row + at * group.longest;
                ids[row..row + text.len()].copy_from_slice(text);
                let of_text = places[row..row + text.len()].iter_mut();
                of_text.zip(0..).for_each(|(to, place)| *to = place);
            }
        }
        (ids, places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_texts_are_alike_and_within_the_budget() {
        let text = [0u32; 100];
        let texts: Vec<&[u32]> = [100, 95, 90, 89, 85, 1].map(|n| &text[..n]).to_vec();
        let bucket = |texts: &[&[u32]], budget| Rows::padded(texts, budget).texts();
        assert_eq!(bucket(&texts, 1000), 3);
        assert_eq!(bucket(&texts, 200), 2);
        assert_eq!(
            bucket(&texts, 10),
            1,
            "a text longer than the budget goes alone"
        );
        assert_eq!(bucket(&texts[3..], 1000), 2);
        assert_eq!(bucket(&texts[5..], 1000), 1);
        assert_eq!(bucket(&[], 1000), 0);
        let rows = Rows::padded(&texts, 1000);
        assert_eq!((rows.count, rows.vectors, rows.longest()), (300, 3, 100));
        let (_, places) = rows.tokens();
        assert_eq!(places[94..102], [94, 95, 96, 97, 98, 99, 0, 1]);
        assert_eq!(places[194..200], [94, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn packed_texts_have_no_row_between_them_and_groups_are_of_one_length() {
        let text: Vec<u32> = (1..=9).collect();
        let texts: Vec<&[u32]> = [5, 3, 3, 2, 1].map(|n| &text[..n]).to_vec();
        let rows = Rows::packed(&texts, 40);
        let of = |rows: &Rows<'_>| -> Vec<(usize, usize, usize)> {
            let groups = rows.groups.iter();
            let of = groups.map(|group| (group.first_row, group.texts.len(), group.longest));
            of.collect()
        };
        assert_eq!(of(&rows), [(0, 1, 5), (5, 2, 3), (11, 1, 2), (13, 1, 1)]);
        assert_eq!((rows.count, rows.vectors, rows.taken()), (40, 5, 14));
        let (ids, places) = rows.tokens();
        assert_eq!(ids[..15], [1, 2, 3, 4, 5, 1, 2, 3, 1, 2, 3, 1, 2, 1, 0]);
        assert_eq!(places[..15], [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 0, 1, 0, 0]);
        // What has no room comes next time, in order: a shorter one does not go first.
        assert_eq!(of(&Rows::packed(&texts, 9)), [(0, 1, 5), (5, 1, 3)]);
        assert_eq!(Rows::packed(&texts[2..], 9).texts(), 2, "two vectors");
        assert_eq!(Rows::packed(&texts, 4).texts(), 0);
        assert_eq!(Rows::packed(&[], 8).texts(), 0);
    }
}
