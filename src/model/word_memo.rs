//! Token ids of words that were seen before. Where a tokenizer splits texts as BERT does, the ids of a text are those of
//! its words, one after the other, and the same words come again and again.
//!
//! Exact by construction: the ids of a word are what the tokenizer makes of that word alone, and texts are only split
//! where BERT's splitter splits whatever stands beside it: at ASCII white space, and before and after ASCII punctuation.
//! Everything else goes to the tokenizer whole: texts that hold an added token, and words of unusual length.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use aho_corasick::AhoCorasick;
use foldhash::fast::RandomState;
use tokenizers::{NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer};

/// Words up to this many bytes are remembered.
const REMEMBERED: usize = 64;
/// A word of more bytes than this may have more tokens than its text may: such a text goes to the tokenizer.
const LONGEST: usize = 4096;
/// Words that one thread remembers. Beyond that it begins anew: what is frequent is soon there again.
const MOST_WORDS: usize = 1 << 16;

const WORD: u8 = 0;
const SPACE: u8 = 1;
const PUNCTUATION: u8 = 2;

/// What each byte is to the splitter. Bytes of characters beyond ASCII belong to words, and so do control characters: the
/// tokenizer sees to both.
const KINDS: [u8; 256] = {
    let mut kinds = [WORD; 256];
    let mut byte = 0;
    while byte < 128 {
        if matches!(byte as u8, b' ' | b'\t' | b'\n' | b'\r') {
            kinds[byte] = SPACE;
        } else if (byte as u8).is_ascii_punctuation() {
            kinds[byte] = PUNCTUATION;
        }
        byte += 1;
    }
    kinds
};

/// A tokenizer that splits as BERT does, and the words that it has met.
#[derive(Debug)]
pub(super) struct WordMemo {
    /// The tokenizer, never cutting.
    tokenizer: Tokenizer,
    /// Tokens that are found in a text before it is split.
    added: Option<AhoCorasick>,
    /// Special tokens before and after each text.
    before: Vec<u32>,
    after: Vec<u32>,
    /// Most tokens between these.
    most: usize,
    /// A thread takes one and puts it back.
    idle: Mutex<Vec<Known>>,
}

/// Where in [`Known::ids`] the ids of a word are.
type Place = (u32, u32);

#[derive(Debug, Default)]
struct Known {
    /// Words of up to 15 bytes, by their bytes and their length.
    short: HashMap<[u64; 2], Place, RandomState>,
    long: HashMap<Box<str>, Place, RandomState>,
    ids: Vec<u32>,
}

/// A word of up to 15 bytes as a key.
fn short_key(word: &[u8]) -> [u64; 2] {
    let mut bytes = [0; 16];
    bytes[..word.len()].copy_from_slice(word);
    bytes[15] = word.len() as u8;
    let key = u128::from_le_bytes(bytes);
    [key as u64, (key >> 64) as u64]
}

impl Known {
    fn place(&self, word: &str) -> Option<Place> {
        match word.len() {
            0..16 => self.short.get(&short_key(word.as_bytes())).copied(),
            _ => self.long.get(word).copied(),
        }
    }

    fn remember(&mut self, word: &str, ids: &[u32]) {
        if self.short.len() + self.long.len() >= MOST_WORDS {
            *self = Self::default();
        }
        let place = (self.ids.len() as u32, ids.len() as u32);
        self.ids.extend_from_slice(ids);
        match word.len() {
            0..16 => self.short.insert(short_key(word.as_bytes()), place),
            _ => self.long.insert(word.into(), place),
        };
    }

    fn ids_at(&self, (start, count): Place) -> &[u32] {
        let start = start as usize;
        self.ids.get(start..start + count as usize).unwrap_or(&[])
    }
}

/// The special tokens that are put before and after each text; `None` if more is done to a text than that.
fn around(tokenizer: &Tokenizer) -> Option<(Vec<u32>, Vec<u32>)> {
    match tokenizer.get_post_processor() {
        None | Some(PostProcessorWrapper::Bert(_)) | Some(PostProcessorWrapper::Template(_)) => {}
        Some(_) => return None,
    }
    let ids = |text: &str, special| {
        let encoding = tokenizer.encode_fast(text, special).ok()?;
        Some(encoding.get_ids().to_vec())
    };
    let alone = ids("", true)?;
    let (inside, whole) = (ids("a b, a", false)?, ids("a b, a", true)?);
    let split = (0..=alone.len()).find(|at| {
        let (before, after) = alone.split_at(*at);
        whole == [before, &inside, after].concat()
    })?;
    Some((alone[..split].to_vec(), alone[split..].to_vec()))
}

impl WordMemo {
    /// A memo for this tokenizer, of which it takes no more than `max_tokens` tokens a text, with special tokens or
    /// without; `None` if the ids of its texts are not those of their words.
    pub fn of(tokenizer: &Tokenizer, max_tokens: Option<usize>, special: bool) -> Option<Self> {
        let bert = matches!(
            tokenizer.get_normalizer(),
            Some(NormalizerWrapper::BertNormalizer(_)) | None
        ) && matches!(
            tokenizer.get_pre_tokenizer(),
            Some(PreTokenizerWrapper::BertPreTokenizer(_))
        ) && matches!(
            tokenizer.get_model(),
            tokenizers::ModelWrapper::WordPiece(_)
        );
        let added: Vec<_> = tokenizer.get_added_tokens_decoder().into_values().collect();
        // Tokens that are looked for after the text was changed can be in it without being seen.
        let plain = added
            .iter()
            .all(|token| !token.normalized && !token.content.is_empty());
        if !bert || !plain || tokenizer.get_encode_special_tokens() {
            return None;
        }
        let mut uncut = tokenizer.clone();
        uncut.with_truncation(None).ok()?;
        let (before, after) = match special {
            true => around(&uncut)?,
            false => Default::default(),
        };
        let most = max_tokens.map_or(Some(usize::MAX), |most| {
            most.checked_sub(before.len() + after.len())
        })?;
        let contents = added.iter().map(|token| token.content.as_bytes());
        Some(Self {
            added: match added.is_empty() {
                true => None,
                false => Some(AhoCorasick::new(contents).ok()?),
            },
            tokenizer: uncut,
            before,
            after,
            most,
            idle: Mutex::default(),
        })
    }

    /// The ids of a text; `None` if the tokenizer has to see it whole.
    pub fn ids(&self, text: &str) -> Option<Vec<u32>> {
        if self
            .added
            .as_ref()
            .is_some_and(|added| added.is_match(text))
        {
            return None;
        }
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = idle().pop().unwrap_or_default();
        let ids = self.ids_with(&mut known, text);
        idle().push(known);
        ids
    }

    fn ids_with(&self, known: &mut Known, text: &str) -> Option<Vec<u32>> {
        let mut ids = Vec::with_capacity(self.before.len() + text.len() / 4 + 8);
        ids.extend_from_slice(&self.before);
        let most = self.before.len().saturating_add(self.most);
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && ids.len() < most {
            let start = at;
            match KINDS[usize::from(bytes[at])] {
                SPACE => {
                    at += 1;
                    continue;
                }
                PUNCTUATION => at += 1,
                _ => {
                    let rest = bytes[at..].iter();
                    at += rest
                        .take_while(|byte| KINDS[usize::from(**byte)] == WORD)
                        .count();
                }
            }
            if at - start > LONGEST {
                return None;
            }
            let word = text.get(start..at)?;
            if let Some(place) = known.place(word) {
                ids.extend_from_slice(known.ids_at(place));
                continue;
            }
            let of_word = self.tokenizer.encode_fast(word, false).ok()?;
            ids.extend_from_slice(of_word.get_ids());
            if word.len() <= REMEMBERED {
                known.remember(word, of_word.get_ids());
            }
        }
        ids.truncate(most);
        ids.extend_from_slice(&self.after);
        Some(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelFolder;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// The tokenizer of the shipped model, changed, and as it is.
    fn tokenizers() -> &'static [Tokenizer] {
        static ALL: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
            let folder = ModelFolder::shipped().unwrap();
            let file = folder.read("tokenizer.json", "").unwrap();
            let read = |change: fn(&mut serde_json::Value)| {
                let mut told: serde_json::Value = serde_json::from_slice(&file).unwrap();
                change(&mut told);
                let mut tokenizer = Tokenizer::from_bytes(told.to_string()).unwrap();
                tokenizer.with_padding(None).with_truncation(None).unwrap();
                tokenizer
            };
            vec![
                read(|_| {}),
                read(|told| told["normalizer"]["lowercase"] = false.into()),
                read(|told| {
                    told["normalizer"]["strip_accents"] = false.into();
                    told["normalizer"]["handle_chinese_chars"] = false.into();
                }),
                read(|told| told["normalizer"]["clean_text"] = false.into()),
                read(|told| told["normalizer"] = serde_json::Value::Null),
            ]
        });
        &ALL
    }

    /// Texts of pieces that splitters and normalizers treat in ways of their own.
    fn texts() -> impl Strategy<Value = String> {
        let pieces = [
            "the",
            "The",
            "token",
            "unbelievable",
            " ",
            "  ",
            "\t",
            "\n",
            "\r\n",
            "\u{b}",
            "\u{c}",
            "\0",
            "\u{1}",
            "\u{7f}",
            ".",
            ",",
            "-",
            "_",
            "'",
            "\"",
            "[",
            "]",
            "[CLS]",
            "[SEP]",
            "[cls]",
            "[PAD",
            "##s",
            "é",
            "E\u{301}",
            "\u{301}",
            "\u{300}",
            "ﬁ",
            "İ",
            "ß",
            "Σ",
            "中",
            "文",
            "。",
            "“",
            "—",
            "\u{a0}",
            "\u{2028}",
            "\u{200b}",
            "\u{fffd}",
            "\u{ad}",
            "🦀",
            "한",
            "ก็",
            "0",
            "42",
            "3.14",
            "a1b2",
            "https://a.b/c?d=e",
            "{\"k\": [1]}",
        ];
        let piece = prop_oneof![
            8 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned),
            2 => any::<char>().prop_map(String::from),
            1 => "[a-zA-Z]{1,20}",
            1 => "[a-z]{60,130}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn ids_are_those_of_the_tokenizer(texts in prop::collection::vec(texts(), 1..4), most in 2usize..40, special: bool) {
            for tokenizer in tokenizers() {
                let mut cutting = tokenizer.clone();
                cutting.with_truncation(Some(tokenizers::TruncationParams { max_length: most, ..Default::default() })).unwrap();
                let uncut = WordMemo::of(tokenizer, None, special).unwrap();
                let cut = WordMemo::of(tokenizer, Some(most), special).unwrap();
                // The second time, every word is known.
                for text in texts.iter().chain(&texts) {
                    for (memo, oracle) in [(&uncut, tokenizer), (&cut, &cutting)] {
                        let told = oracle.encode_fast(text.as_str(), special).unwrap();
                        match memo.ids(text) {
                            Some(ids) => prop_assert_eq!(&ids, told.get_ids(), "{:?}", text),
                            None => prop_assert!(text.contains('['), "{:?}", text),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_split_as_berts_has_no_memo() {
        let changed = |change: fn(&mut serde_json::Value)| {
            let file = tokenizers()[0].to_string(false).unwrap();
            let mut told: serde_json::Value = serde_json::from_str(&file).unwrap();
            change(&mut told);
            Tokenizer::from_bytes(told.to_string()).unwrap()
        };
        for change in [
            (|told| told["pre_tokenizer"] = serde_json::json!({"type": "WhitespaceSplit"}))
                as fn(&mut serde_json::Value),
            |told| told["normalizer"] = serde_json::json!({"type": "NFC"}),
            |told| told["added_tokens"][0]["normalized"] = true.into(),
        ] {
            assert!(WordMemo::of(&changed(change), None, true).is_none());
        }
        // No room for a token between the special ones.
        assert!(WordMemo::of(&tokenizers()[0], Some(1), true).is_none());
        let long = "x".repeat(LONGEST + 1);
        let memo = WordMemo::of(&tokenizers()[0], None, true).unwrap();
        assert!(memo.ids(&long).is_none());
        assert_eq!(memo.ids("").unwrap().len(), 2);
    }

    #[test]
    fn a_full_memo_begins_anew() {
        let memo = WordMemo::of(&tokenizers()[0], None, false).unwrap();
        let words: Vec<String> = (0..MOST_WORDS + 10).map(|n| format!("w{n}")).collect();
        for word in words.iter().chain(&words[..20]) {
            let told = tokenizers()[0].encode_fast(word.as_str(), false).unwrap();
            assert_eq!(memo.ids(word).unwrap(), told.get_ids());
        }
        let known = memo.idle.lock().unwrap();
        assert!(known[0].short.len() <= MOST_WORDS);
    }
}
