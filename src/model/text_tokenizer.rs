//! Texts to token ids, cut to the model's limit.

use std::borrow::Cow;
use std::sync::Arc;

use tokenizers::{Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

use super::spec::{Limit, TextSpec};
use super::word_memo::WordMemo;
use super::{ModelError, ModelFolder};

/// A text this many characters long per allowed token is cut before it is tokenised; a cut that
/// turns out too short is widened, so that the ids are those of the whole text.
const CHARACTERS_PER_TOKEN: usize = 16;

/// A model's tokenizer with its own truncation and padding overridden: at most as many tokens as the
/// model takes, special tokens included, and no padding.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    /// What its words are, where texts are no more than their words.
    memo: Option<Arc<WordMemo>>,
    max_tokens: Option<usize>,
    /// Most characters of a text, where a model cuts before it tokenises.
    max_characters: Option<usize>,
    lowercase: bool,
    prompt: String,
    special_tokens: bool,
    /// The token of unknown words, where it is left out.
    dropped: Option<u32>,
    /// Most characters of a word that the vocabulary is searched for; none where longer ones may have tokens too.
    longest_word: Option<usize>,
}

/// Only in longer texts words are looked for that are too long: others are tokenised as they are.
const LONG_TEXT: usize = 1 << 20;

/// The length of words beyond which the tokenizer makes one unknown token of them, whatever they are. Known of WordPiece
/// after BERT's own splitting, if no token of the user's can be inside a word.
fn longest_word(tokenizer: &Tokenizer) -> Option<usize> {
    use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};
    let ModelWrapper::WordPiece(words) = tokenizer.get_model() else {
        return None;
    };
    let split = matches!(
        tokenizer.get_pre_tokenizer(),
        Some(PreTokenizerWrapper::BertPreTokenizer(_))
    );
    let normal = matches!(
        tokenizer.get_normalizer(),
        Some(NormalizerWrapper::BertNormalizer(_)) | None
    );
    let added = tokenizer.get_added_tokens_decoder();
    let inside = added
        .values()
        .any(|token| token.content.bytes().all(|b| b.is_ascii_alphanumeric()));
    (split && normal && !inside).then_some(words.max_input_chars_per_word)
}

/// The token of unknown words: by name in most models, by number in those of Unigram.
fn unknown_token(tokenizer: &Tokenizer, file: &[u8]) -> Option<u32> {
    let told: serde_json::Value = serde_json::from_slice(file).ok()?;
    let model = told.get("model")?;
    match model.get("unk_token").and_then(|name| name.as_str()) {
        Some(name) => tokenizer.token_to_id(name),
        None => u32::try_from(model.get("unk_id")?.as_u64()?).ok(),
    }
}

/// The median of the lengths of tokens, in characters, rounded down.
fn middling_length(tokenizer: &Tokenizer) -> usize {
    let vocabulary = tokenizer.get_vocab(true);
    let mut lengths: Vec<usize> = vocabulary.keys().map(|t| t.chars().count()).collect();
    lengths.sort_unstable();
    let at = |place: usize| lengths.get(place).copied().unwrap_or(0);
    match lengths.len() {
        0 => 0,
        count if count % 2 == 1 => at(count / 2),
        count => (at(count / 2 - 1) + at(count / 2)) / 2,
    }
}

/// The text with the ends of runs of ASCII letters and digits cut off that are longer than `most` twice.
fn with_short_words(text: &str, most: usize) -> String {
    let mut out = String::new();
    let (mut run, mut from) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        run = if byte.is_ascii_alphanumeric() {
            run + 1
        } else {
            0
        };
        match (run > 2 * most, from) {
            (false, None) => from = Some(at),
            (true, Some(start)) => {
                out.push_str(&text[start..at]);
                from = None;
            }
            _ => {}
        }
    }
    out.push_str(from.map_or("", |start| &text[start..]));
    out
}

impl TextTokenizer {
    pub(super) fn read(folder: &ModelFolder, spec: &TextSpec) -> Result<Self, ModelError> {
        let file = spec.file.as_str();
        let bytes = folder.read(file, "copy the folder with its fast tokenizer (save it with a current version of transformers if it has only vocab.txt)")?;
        let bad = |e: tokenizers::Error| folder.bad(file, format!("not a usable tokenizer: {e}"));
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(bad)?;
        tokenizer.with_padding(None);
        let own = tokenizer.get_truncation();
        if own.is_some_and(|own| own.direction == TruncationDirection::Left) {
            return Err(folder.bad(
                file,
                "it cuts texts at their beginning, which is not supported",
            ));
        }
        let max_tokens = match spec.limit {
            Limit::Tokens(most) | Limit::TokensAndCharacters(most) => Some(most),
            Limit::OfTokenizer => tokenizer.get_truncation().map(|own| own.max_length),
        };
        let truncation = max_tokens.map(|max_length| TruncationParams {
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: TruncationDirection::Right,
        });
        tokenizer.with_truncation(truncation).map_err(bad)?;
        let dropped = match spec.drop_unknown {
            true => unknown_token(&tokenizer, &bytes),
            false => None,
        };
        let max_characters = match spec.limit {
            Limit::TokensAndCharacters(most) => Some(most * middling_length(&tokenizer)),
            Limit::Tokens(_) | Limit::OfTokenizer => None,
        };
        let this = Self {
            longest_word: longest_word(&tokenizer),
            memo: WordMemo::of(&tokenizer, max_tokens, spec.special_tokens).map(Arc::new),
            tokenizer,
            max_tokens,
            max_characters,
            lowercase: spec.lowercase,
            prompt: spec.prompt.clone(),
            special_tokens: spec.special_tokens,
            dropped,
        };
        // A tokenizer that fails on plain text fails now, not in the middle of the night.
        this.ids("A first text.")
            .map_err(|problem| folder.bad(file, problem))?;
        Ok(this)
    }

    /// Most tokens of a text, special tokens included; none if texts may have any number.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// Tokens that the model's default prompt puts before every text.
    pub(super) fn prompt_tokens(&self) -> usize {
        if self.prompt.is_empty() {
            return 0;
        }
        // The leading special token and the prompt itself; a trailing special token is not its own.
        let encoded = self.tokenizer.encode_fast(self.prompt.as_str(), true);
        encoded.map_or(0, |encoding| {
            let trailing = encoding.get_special_tokens_mask().last() == Some(&1);
            encoding.len() - usize::from(trailing)
        })
    }

    /// The token ids of a text, as the whole text would have them, cut to the model's limit.
    ///
    /// # Errors
    /// A message if the tokenizer fails, which no text should make it do.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut short = Cow::Borrowed(text);
        if let Some(most) = self.longest_word.filter(|_| text.len() > LONG_TEXT) {
            short = Cow::Owned(with_short_words(text, most));
        }
        let mut text = short.as_ref();
        if let Some(most) = self.max_characters {
            let end = text.char_indices().nth(most);
            text = &text[..end.map_or(text.len(), |(end, _)| end)];
        }
        if let Some(memo) = &self.memo
            && let Some(mut ids) = memo.ids(&self.prepared(text))
        {
            self.drop_unknown(&mut ids);
            return Ok(ids);
        }
        let most = self.max_tokens.unwrap_or(usize::MAX);
        let mut limit = most.saturating_mul(CHARACTERS_PER_TOKEN);
        loop {
            let (piece, at_space) = cut(text, limit);
            let whole = piece.len() == text.len();
            let encoding = self
                .tokenizer
                .encode_fast(self.prepared(piece).as_ref(), self.special_tokens)
                .map_err(|e| format!("the tokenizer failed: {e}"))?;
            let overflow: usize = encoding
                .get_overflowing()
                .iter()
                .map(tokenizers::Encoding::len)
                .sum();
            // A cut inside a word may change that word's tokens; a word has no more than about a
            // hundred. With more left over than that, the kept ones are those of the whole text.
            if whole || (at_space && overflow > 0) || overflow > 128 {
                let mut ids = encoding.get_ids().to_vec();
                self.drop_unknown(&mut ids);
                return Ok(ids);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// A text as the tokenizer is given it: after the prompt, in lower case if the model wants it so.
    fn prepared<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut prepared = Cow::Borrowed(text);
        if !self.prompt.is_empty() {
            prepared = Cow::Owned(format!("{}{text}", self.prompt));
        }
        if self.lowercase {
            prepared = Cow::Owned(prepared.to_lowercase());
        }
        prepared
    }

    fn drop_unknown(&self, ids: &mut Vec<u32>) {
        if let Some(dropped) = self.dropped {
            ids.retain(|id| *id != dropped);
        }
    }
}

/// The first `limit` characters of a text, cut back to the last white space if there is one in its
/// second half. Says whether the cut is at white space.
fn cut(text: &str, limit: usize) -> (&str, bool) {
    let Some((end, _)) = text.char_indices().nth(limit) else {
        return (text, true);
    };
    let piece = &text[..end];
    match piece.rfind(char::is_whitespace) {
        Some(space) if space > end / 2 => (&piece[..space], true),
        _ => (piece, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_all_length_are_one_unknown_token_in_long_and_short_texts() {
        let folder = ModelFolder::shipped().unwrap();
        let level = crate::encoder::cpu::Level::choose().unwrap();
        let model = crate::model::Model::load(&folder, level, crate::encoder::Precision::F32);
        let tokenizer = model.unwrap().tokenizer;
        let most = tokenizer
            .longest_word
            .expect("the shipped tokenizer is BERT's");
        for (long, short) in [
            ("x".repeat(2 * LONG_TEXT), "x".repeat(most + 1)),
            (
                format!("so é{} it is, {}", "ab12".repeat(LONG_TEXT), "é".repeat(50)),
                format!("so é{} it is, {}", "ab12".repeat(most), "é".repeat(50)),
            ),
        ] {
            assert_eq!(
                tokenizer.ids(&long).unwrap(),
                tokenizer.ids(&short).unwrap()
            );
        }
        // Words that are not too long stay what they are.
        let text = format!("{} end", "word ".repeat(LONG_TEXT / 4));
        assert_eq!(with_short_words(&text, most), text);
        let cut = with_short_words(&format!("a {} b", "x".repeat(1000)), 100);
        assert_eq!(cut, format!("a {} b", "x".repeat(200)));
    }
}
