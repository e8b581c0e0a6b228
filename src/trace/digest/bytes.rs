//! Digests as cells: little-endian numbers one after the other, lists after their length.

use super::{CALLS_KEPT, CallDigest, OutputDigest, SpanDigest};
use crate::text::{SKETCH, WordSketch};

/// Stands for a number that is not there; no hash is refused for it, one of 2^64 is read as none.
const NONE: u64 = u64::MAX;

impl SpanDigest {
    /// The digest as a cell.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(40 + 8 * self.calls.len() + 64 * self.kept.len());
        for count in [self.spans, self.failed_calls, self.answers, self.truncated] {
            bytes.extend(count.to_le_bytes());
        }
        bytes.extend(self.tokens.unwrap_or(NONE).to_le_bytes());
        // No latency is NaN.
        bytes.extend(self.latency.unwrap_or(f64::NAN).to_le_bytes());
        bytes.extend(self.last_name.map_or(NONE, u64::from).to_le_bytes());
        bytes.extend((self.calls.len() as u64).to_le_bytes());
        for call in &self.calls {
            bytes.extend(call.to_le_bytes());
        }
        for kept in &self.kept {
            bytes.extend(kept.call.to_le_bytes());
            bytes.extend(kept.result.unwrap_or(NONE).to_le_bytes());
            push_sketch(&kept.words, &mut bytes);
            push_sketch(&kept.result_words, &mut bytes);
        }
        bytes
    }

    /// Reads a cell; none if it is no digest.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut count = || take(&mut rest).map(u32::from_le_bytes);
        let (spans, failed_calls, answers, truncated) = (count()?, count()?, count()?, count()?);
        let tokens = some(u64::from_le_bytes(take(&mut rest)?));
        let latency = Some(f64::from_le_bytes(take(&mut rest)?)).filter(|l| !l.is_nan());
        let last_name = some(u64::from_le_bytes(take(&mut rest)?));
        let last_name = last_name.and_then(|name| u32::try_from(name).ok());
        let calls = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
        let (hashes, mut rest) = rest.split_at_checked(calls.checked_mul(8)?)?;
        let (hashes, _) = hashes.as_chunks::<8>();
        let calls: Vec<u64> = hashes.iter().map(|h| u64::from_le_bytes(*h)).collect();
        let mut kept = Vec::new();
        while !rest.is_empty() {
            kept.push(CallDigest {
                call: u64::from_le_bytes(take(&mut rest)?),
                result: some(u64::from_le_bytes(take(&mut rest)?)),
                words: take_sketch(&mut rest)?,
                result_words: take_sketch(&mut rest)?,
            });
        }
        (kept.len() <= CALLS_KEPT).then_some(Self {
            spans,
            failed_calls,
            calls,
            last_name,
            kept,
            answers,
            truncated,
            tokens,
            latency,
        })
    }
}

impl OutputDigest {
    /// The digest as a cell.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + 4 * self.words.hashes().len());
        bytes.extend(self.text.unwrap_or(NONE).to_le_bytes());
        push_sketch(&self.words, &mut bytes);
        bytes
    }

    /// Reads a cell; none if it is no digest.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let text = some(u64::from_le_bytes(take(&mut rest)?));
        let words = take_sketch(&mut rest)?;
        rest.is_empty().then_some(Self { text, words })
    }
}

fn some(number: u64) -> Option<u64> {
    (number != NONE).then_some(number)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

fn push_sketch(sketch: &WordSketch, bytes: &mut Vec<u8>) {
    let hashes = sketch.hashes();
    // A sketch has far fewer hashes than a byte can count.
    bytes.push(u8::try_from(hashes.len()).unwrap_or(0));
    for hash in hashes {
        bytes.extend(hash.to_le_bytes());
    }
}

fn take_sketch(rest: &mut &[u8]) -> Option<WordSketch> {
    let [length] = take(rest)?;
    let length = usize::from(length);
    let (hashes, after) = rest.split_at_checked(4 * length)?;
    *rest = after;
    let (hashes, _) = hashes.as_chunks::<4>();
    let hashes = hashes.iter().map(|hash| u32::from_le_bytes(*hash));
    (length <= SKETCH).then(|| WordSketch::from_hashes(hashes.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_come_back() {
        let call = |text: &str, result: Option<u64>| CallDigest {
            call: 7,
            words: WordSketch::of_whole(text),
            result,
            result_words: WordSketch::of(text),
        };
        for digest in [
            SpanDigest::default(),
            SpanDigest {
                spans: 5,
                failed_calls: 1,
                calls: vec![1, 2, 3],
                last_name: Some(7),
                kept: vec![call("look up the word", Some(3)), call("", None)],
                answers: 2,
                truncated: 1,
                tokens: Some(12),
                latency: Some(0.25),
            },
        ] {
            let bytes = digest.to_bytes();
            assert_eq!(SpanDigest::from_bytes(&bytes), Some(digest));
            let cut = bytes.get(..bytes.len() - 1).unwrap();
            assert_eq!(SpanDigest::from_bytes(cut), None);
        }
        for text in ["", "some words of an output"] {
            let digest = OutputDigest::of(text);
            let bytes = digest.to_bytes();
            assert_eq!(OutputDigest::from_bytes(&bytes), Some(digest));
            assert_eq!(OutputDigest::from_bytes(&bytes[1..]), None);
        }
    }
}
