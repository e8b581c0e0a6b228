//! Texts: from cell values to what is embedded, and from texts to word sets, identities and points in time.
//!
//! Nothing here reads files or knows models. What becomes of a value is what PandaProbe makes of it.

mod content;
mod copies;
mod far_escapes;
mod identity;
mod json;
mod moment;
mod nearest;
mod plain_words;
mod serialise;
mod word_set;
mod word_sketch;

pub use content::content_of;
pub(crate) use copies::{name_copies, origin_of, with_origins};
pub use far_escapes::check_escapes;
pub use identity::TextId;
pub use json::{Json, JsonError, parse, parse_members, parse_strict};
pub use moment::{InstantError, format_instant, parse_instant};
pub(crate) use moment::{instant, optional_instant};
pub(crate) use nearest::nearest;
pub use plain_words::each_word_hash;
pub use serialise::{push_json_string, push_number, to_text};
pub use word_set::{WordAt, WordSet, jaccard_of_texts, words, words_at};
pub use word_sketch::{SKETCH, WordSketch, text_hash};

/// Which text of a JSON cell is embedded.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum TextMode {
    /// The whole value, serialised as PandaProbe does.
    #[default]
    Compat,
    /// Only the contents of chat messages, without envelope and escapes. A different metric
    /// variant: its rows are labelled and never mixed with compat rows.
    Content,
}

impl TextMode {
    /// The name used in flags, configuration and result columns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compat => "compat",
            Self::Content => "content",
        }
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Compat => "documents are embedded whole",
            Self::Content => "of documents, what was said is embedded",
        }
    }

    /// The text of a JSON document in this mode.
    ///
    /// # Errors
    /// [`JsonError`] if `json` is not exactly one JSON document.
    pub fn text_of(self, json: &[u8]) -> Result<String, JsonError> {
        let value = parse(json)?;
        Ok(match self {
            Self::Compat => to_text(&value),
            Self::Content => content_of(&value),
        })
    }
}
