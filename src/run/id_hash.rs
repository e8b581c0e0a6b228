//! A quick hash of ids, by which a night tells most rows of earlier nights from those that it touches.

/// The hash of a text, the same on every machine: it stands in tables. Two ids may have one hash; equal ids have.
///
/// It takes the text as words of eight bytes, the least first and the last one filled up with zeros, and begins with its
/// length in bytes; each word is mixed in by a multiplication.
pub(super) fn id_hash(id: &str) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(ODD);
        mixed ^ (mixed >> 29)
    };
    let words = id.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    });
    words.fold(mix(0, id.len() as u64), mix)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_hash_is_what_tables_of_earlier_runs_have() {
        let hashes = ["", "a", "41637175-2745-49c5-9b57-e656eb7a20f4"].map(id_hash);
        assert_eq!(
            hashes,
            [0, 12_677_563_538_225_241_716, 13_076_824_243_475_141_753]
        );
    }

    #[test]
    fn ids_that_differ_little_have_other_hashes() {
        let ids = (0..100_000).map(|number| format!("trace-{number}"));
        let hashes: HashSet<u64> = ids.map(|id| id_hash(&id)).collect();
        assert_eq!(hashes.len(), 100_000);
        assert_ne!(id_hash("a"), id_hash("a\0"));
    }
}
