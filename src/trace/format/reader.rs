//! What reads the documents of a file: a format that is known, or a mapping file.

use std::sync::Arc;

use super::documents::Document;
use super::{ArrayIs, Format, Mapping, Parts, Place};

/// A reader of documents.
#[derive(Clone, Debug)]
pub enum Reader {
    /// A format that is known.
    Known(&'static Format),
    /// A house's own format, by its mapping file.
    Mapped(Arc<Mapping>),
}

impl Reader {
    /// The name of the format.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Known(format) => format.name,
            Self::Mapped(_) => "mapping",
        }
    }

    /// Whose format it is.
    pub fn title(&self) -> &'static str {
        match self {
            Self::Known(format) => format.title,
            Self::Mapped(_) => "the mapping file",
        }
    }

    /// Canonical columns and where they come from.
    pub fn mapping(&self) -> Vec<(String, String)> {
        let owned = |(column, source): (&str, &str)| (column.to_owned(), source.to_owned());
        match self {
            Self::Known(format) => format.mapping.iter().copied().map(owned).collect(),
            Self::Mapped(mapping) => mapping.lines(),
        }
    }

    pub(super) fn array(&self) -> ArrayIs {
        match self {
            Self::Known(format) => format.array,
            Self::Mapped(_) => ArrayIs::Documents,
        }
    }

    /// Reads a document. A blank line is none.
    pub(super) fn read(
        &self,
        document: Document,
        place: &Place<'_>,
        parts: &mut Parts,
    ) -> Result<(), String> {
        match (self, document) {
            (_, Document::Bytes(bytes)) if bytes.is_empty() => Ok(()),
            (
                Self::Known(Format {
                    read_bytes: Some(read),
                    read: read_value,
                    ..
                }),
                Document::Bytes(bytes),
            ) => {
                let before = (parts.traces.len(), parts.spans.len());
                let refused = parts.refused.len();
                read(&bytes, place, parts).or_else(|problem| {
                    // What Python writes for NaN is no JSON to the faster way, nor is a number beyond all numbers, which
                    // may be anywhere: one such value is no reason to lose all others.
                    if serde_json::from_slice::<serde_json::Value>(&bytes).is_ok() {
                        return Err(problem);
                    }
                    parts.traces.truncate(before.0);
                    parts.spans.truncate(before.1);
                    parts.refused.truncate(refused);
                    read_value(super::documents::parsed(&bytes)?, place, parts)
                })
            }
            (Self::Known(format), document) => (format.read)(document.value()?, place, parts),
            (Self::Mapped(mapping), document) => {
                mapping.read_document(&document.value()?, place, parts)
            }
        }
    }
}
