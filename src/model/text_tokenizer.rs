//! Texts to token ids, cut to the model's limit.

use tokenizers::{Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

use super::spec::Spec;
use super::{ModelError, ModelFolder};

/// A text this many characters long per allowed token is cut before it is tokenised; a cut that
/// turns out too short is widened, so that the ids are those of the whole text.
const CHARACTERS_PER_TOKEN: usize = 16;

/// A model's tokenizer with its own truncation and padding overridden: at most the model's
/// `max_seq_length` tokens, special tokens included, and no padding.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    max_tokens: usize,
    lowercase: bool,
    prompt: String,
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
    pub(super) fn read(folder: &ModelFolder, spec: &Spec) -> Result<Self, ModelError> {
        const FILE: &str = "tokenizer.json";
        let bytes = folder.read(FILE, "copy the folder with its fast tokenizer (save it with a current version of transformers if it has only vocab.txt)")?;
        let bad = |e: tokenizers::Error| folder.bad(FILE, format!("not a usable tokenizer: {e}"));
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(bad)?;
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(Some(TruncationParams {
                max_length: spec.max_tokens,
                strategy: TruncationStrategy::LongestFirst,
                stride: 0,
                direction: TruncationDirection::Right,
            }))
            .map_err(bad)?;
        let this = Self {
            longest_word: longest_word(&tokenizer),
            tokenizer,
            max_tokens: spec.max_tokens,
            lowercase: spec.lowercase,
            prompt: spec.prompt.clone(),
        };
        // A tokenizer that fails on plain text fails now, not in the middle of the night.
        this.ids("A first text.")
            .map_err(|problem| folder.bad(FILE, problem))?;
        Ok(this)
    }

    /// Most tokens of a text, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Tokens that the model's default prompt puts before every text.
    pub(super) fn prompt_tokens(&self) -> usize {
        if self.prompt.is_empty() {
            return 0;
        }
        // The leading special token and the prompt itself; the trailing special token is not its own.
        self.tokenizer
            .encode_fast(self.prompt.as_str(), true)
            .map_or(0, |e| e.len().saturating_sub(1))
    }

    /// The token ids of a text, as the whole text would have them, cut to the model's limit.
    ///
    /// # Errors
    /// A message if the tokenizer fails, which no text should make it do.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut short = std::borrow::Cow::Borrowed(text);
        if let Some(most) = self.longest_word.filter(|_| text.len() > LONG_TEXT) {
            short = std::borrow::Cow::Owned(with_short_words(text, most));
        }
        let text = short.as_ref();
        let mut limit = self.max_tokens.saturating_mul(CHARACTERS_PER_TOKEN);
        loop {
            let (piece, at_space) = cut(text, limit);
            let whole = piece.len() == text.len();
            let mut prompted = std::borrow::Cow::Borrowed(piece);
            if !self.prompt.is_empty() {
                prompted = std::borrow::Cow::Owned(format!("{}{piece}", self.prompt));
            }
            if self.lowercase {
                prompted = std::borrow::Cow::Owned(prompted.to_lowercase());
            }
            let encoding = self
                .tokenizer
                .encode_fast(prompted.as_ref(), true)
                .map_err(|e| format!("the tokenizer failed: {e}"))?;
            let overflow: usize = encoding
                .get_overflowing()
                .iter()
                .map(tokenizers::Encoding::len)
                .sum();
            // A cut inside a word may change that word's tokens; a word has no more than about a
            // hundred. With more left over than that, the kept ones are those of the whole text.
            if whole || (at_space && overflow > 0) || overflow > 128 {
                return Ok(encoding.get_ids().to_vec());
            }
            limit = limit.saturating_mul(4);
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
