//! A slot: where texts lie for one pass of the graph, as `kernels.cu` reads it.

use std::ops::Range;

/// Queries that a warp attends at once; attention counts in tiles of so many.
pub const TILE: usize = 16;

/// Tokens of a text, as most texts have more: so many texts has a slot room for.
const TOKENS_OF_A_TEXT: usize = 8;

/// How a slot of fixed size is laid out, in numbers of 32 bits:
///
/// ```text
/// counts   (8)         tokens, texts, tiles, 0; texts, texts, 0, 0 (the second four as if texts were tokens)
/// ids      (tokens)
/// places   (tokens)    of tokens in their texts, from 0
/// starts   (texts + 1) first tokens of texts, and the end of the last one
/// tiles    (tiles, 2)  a text, and the place of the first of its 16 queries
/// ```
///
/// All sizes are fixed, so that one captured graph does for every slot; kernels read the counts on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    tokens: usize,
    texts: usize,
}

/// What a slot was filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Texts.
    pub texts: usize,
    /// Tokens.
    pub tokens: usize,
    /// Tiles of attention.
    pub tiles: usize,
}

const COUNTS: usize = 8;

impl Slot {
    /// A slot for so many tokens, rounded up to a multiple of 16.
    pub fn of(tokens: usize) -> Self {
        Self {
            tokens: tokens.next_multiple_of(TILE),
            texts: tokens.div_ceil(TOKENS_OF_A_TEXT),
        }
    }

    /// Most tokens.
    pub fn tokens(self) -> usize {
        self.tokens
    }

    /// Most texts.
    pub fn texts(self) -> usize {
        self.texts
    }

    /// Most tiles of attention: full ones, and one of each text that is not full.
    pub fn tiles(self) -> usize {
        self.tokens / TILE + self.texts
    }

    /// Where the counts are.
    pub fn counts(self) -> Range<usize> {
        0..COUNTS
    }

    /// Where token ids are.
    pub fn ids(self) -> Range<usize> {
        COUNTS..COUNTS + self.tokens
    }

    /// Where places are.
    pub fn places(self) -> Range<usize> {
        let start = self.ids().end;
        start..start + self.tokens
    }

    /// Where first tokens of texts are.
    pub fn starts(self) -> Range<usize> {
        let start = self.places().end;
        start..start + self.texts + 1
    }

    /// Where tiles are.
    pub fn tiles_at(self) -> Range<usize> {
        // Pairs are read as one.
        let start = self.starts().end.next_multiple_of(2);
        start..start + 2 * self.tiles()
    }

    /// Numbers of 32 bits in all.
    pub fn numbers(self) -> usize {
        self.tiles_at().end
    }

    /// Puts the first of these texts into memory of [`Slot::numbers`] numbers, as many as there is room for; texts without
    /// tokens are not given. What is not counted stays as it was.
    pub fn fill<'t>(
        self,
        memory: &mut [u32],
        texts: impl IntoIterator<Item = &'t [u32]>,
    ) -> Filled {
        let mut filled = Filled::default();
        let (ids, places, starts, tiles) = (
            self.ids().start,
            self.places().start,
            self.starts().start,
            self.tiles_at().start,
        );
        for text in texts {
            if filled.texts == self.texts || filled.tokens + text.len() > self.tokens {
                break;
            }
            memory[ids + filled.tokens..][..text.len()].copy_from_slice(text);
            let of_text = &mut memory[places + filled.tokens..][..text.len()];
            of_text
                .iter_mut()
                .zip(0..)
                .for_each(|(to, place)| *to = place);
            for first in (0..text.len()).step_by(TILE) {
                let tile = &mut memory[tiles + 2 * filled.tiles..][..2];
                tile.copy_from_slice(&[filled.texts as u32, first as u32]);
                filled.tiles += 1;
            }
            memory[starts + filled.texts] = filled.tokens as u32;
            filled.texts += 1;
            filled.tokens += text.len();
        }
        memory[starts + filled.texts] = filled.tokens as u32;
        let (tokens, count) = (filled.tokens as u32, filled.texts as u32);
        let counts = [tokens, count, filled.tiles as u32, 0, count, count, 0, 0];
        memory[self.counts()].copy_from_slice(&counts);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lie_end_to_end_with_their_tiles() {
        let slot = Slot::of(60);
        assert_eq!((slot.tokens(), slot.texts(), slot.tiles()), (64, 8, 12));
        let mut memory = vec![7u32; slot.numbers()];
        let texts: Vec<Vec<u32>> = [17usize, 1, 40, 9].map(|n| vec![n as u32; n]).to_vec();
        let filled = slot.fill(&mut memory, texts.iter().map(Vec::as_slice));
        let (texts, tokens, tiles) = (3, 58, 2 + 1 + 3);
        assert_eq!(
            filled,
            Filled {
                texts,
                tokens,
                tiles
            }
        );
        assert_eq!(memory[slot.counts()], [58, 3, 6, 0, 3, 3, 0, 0]);
        assert_eq!(memory[slot.starts()][..4], [0, 17, 18, 58]);
        assert_eq!(memory[slot.ids()][16..19], [17, 1, 40]);
        assert_eq!(memory[slot.places()][16..20], [16, 0, 0, 1]);
        let tiles = [0, 0, 0, 16, 1, 0, 2, 0, 2, 16, 2, 32];
        assert_eq!(memory[slot.tiles_at()][..12], tiles);
    }

    #[test]
    fn no_filling_is_larger_than_a_slot() {
        let slot = Slot::of(64);
        let mut memory = vec![0; slot.numbers()];
        // Texts of one token: there is room for fewer than tokens.
        let one = [1u32];
        let filled = slot.fill(&mut memory, std::iter::repeat_n(&one[..], 100));
        assert_eq!((filled.texts, filled.tiles), (8, 8));
        // Texts just over a tile make most tiles.
        let long = [1u32; 17];
        let filled = slot.fill(&mut memory, std::iter::repeat_n(&long[..], 100));
        assert_eq!((filled.texts, filled.tiles), (3, 6));
        assert!(filled.tiles <= slot.tiles());
        assert_eq!(slot.fill(&mut memory, [&[1u32; 65][..]]), Filled::default());
        assert_eq!(memory[slot.counts()], [0; 8]);
    }
}
