//! All words of a text, as hashes: to count them, and to tell how many are distinct.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Calls `each` with a hash of each word of a text, in their order: maximal runs of letters, numbers and `_`, in lower
/// case. Unlike [`super::words`] it leaves none out.
pub fn each_word_hash(text: &str, mut each: impl FnMut(u32)) {
    // FNV-1a with a last stir: fast, and the same on every machine.
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    let (mut hash, mut inside) = (BASIS, false);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for c in text.chars() {
        if c.is_ascii() {
            if c.is_ascii_alphanumeric() || c == '_' {
                hash = step(hash, (c as u8).to_ascii_lowercase());
                inside = true;
                continue;
            }
        } else if is_word_character(c) {
            let mut bytes = [0; 4];
            for lower in c.to_lowercase() {
                hash = lower.encode_utf8(&mut bytes).bytes().fold(hash, step);
            }
            inside = true;
            continue;
        }
        if inside {
            each(stirred(hash));
            (hash, inside) = (BASIS, false);
        }
    }
    if inside {
        each(stirred(hash));
    }
}

fn is_word_character(c: char) -> bool {
    matches!(
        c.general_category_group(),
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number
    )
}

/// The upper half of a hash whose bits all depend on all others.
fn stirred(hash: u64) -> u32 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((hash ^ (hash >> 33)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hashes(text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        each_word_hash(text, |hash| found.push(hash));
        found
    }

    #[test]
    fn words_are_runs_of_letters_and_numbers_in_any_case() {
        assert_eq!(hashes("It is, it IS a_b 42!").len(), 6);
        assert_eq!(hashes("It is"), hashes("  iT\n(IS)"));
        assert_eq!(hashes("Straße"), hashes("STRAßE"));
        assert_eq!(hashes("\u{65e5}\u{672c} x").len(), 2);
        assert!(hashes(" ?!\u{2026} ").is_empty());
        assert_ne!(hashes("ab"), hashes("ba"));
    }

    #[test]
    fn different_words_have_different_hashes() {
        let all: HashSet<u32> = (0..20_000).flat_map(|n| hashes(&format!("w{n}"))).collect();
        assert!(all.len() > 19_990, "{}", all.len());
    }
}
