//! Text cells that are JSON documents, and nobody said so. Read as plain text, they give other scores than their content.

use super::cells::{Row, TextCell};
use super::schema::TextEncoding;
use super::source::TraceSource;
use super::{SourceFile, TraceError};
use crate::text::Json;

/// How many cells of a column are looked at.
const CELLS: u32 = 64;

/// What the first cells of a text column look like.
#[derive(Default)]
struct Seen {
    cells: u32,
    documents: u32,
    first: Option<(std::path::PathBuf, u64)>,
}

impl Seen {
    fn look(&mut self, file: &SourceFile, row: u64, cell: &TextCell<'_>) {
        let is_document = match cell {
            TextCell::Bytes(bytes, TextEncoding::Text) => {
                let bytes = bytes.trim_ascii();
                if bytes.is_empty() {
                    return;
                }
                // Only objects and lists: a text in quotes, or a number, is text.
                matches!(bytes[0], b'{' | b'[') && crate::text::parse(bytes).is_ok()
            }
            // Cells of JSON Lines that are objects, and structs of Parquet, say themselves what they are.
            _ => return,
        };
        if self.cells >= CELLS {
            return;
        }
        self.cells += 1;
        if is_document {
            self.documents += 1;
            self.first.get_or_insert_with(|| (file.path.clone(), row));
        }
    }
}

impl TraceSource {
    /// Whether any of the first texts is a value that says itself that it is a document: of JSON Lines.
    pub(super) fn begins_with_documents(&self) -> bool {
        let looks = [self.options.columns.input, self.options.columns.output];
        let (mut rows, mut found) = (0, false);
        self.peek(|_, _, row: &Row<'_>| {
            let cells = [&row.input, &row.output].into_iter().zip(looks);
            let mut cells = cells.filter_map(|(cell, looks)| looks.then_some(cell));
            found =
                cells.any(|cell| matches!(cell, TextCell::Value(Json::Object(_) | Json::Array(_))));
            rows += 1;
            rows < CELLS && !found
        });
        found
    }

    /// Looks at the first cells of `input` and `output`, where nothing was said of what they are: at most 64 of each that
    /// are not blank, in the order of files. An `output` that is only compared may be a document: it is compared as it is.
    ///
    /// # Errors
    /// [`TraceError::UndeclaredJson`] if at least half of those of a column are JSON objects or lists.
    pub fn check_texts(&self) -> Result<(), TraceError> {
        let mut columns = [("input", Seen::default()), ("output", Seen::default())];
        let mut rows = 0;
        let looks = [self.options.columns.input, self.options.columns.output];
        self.peek(|file, row, found: &Row<'_>| {
            let cells = [&found.input, &found.output].into_iter().zip(looks);
            let mut go_on = false;
            for ((_, seen), (cell, looks)) in columns.iter_mut().zip(cells) {
                if looks {
                    seen.look(file, row, cell);
                    go_on = go_on || seen.cells < CELLS;
                }
            }
            rows += 1;
            // Columns without texts are no reason to read on for ever.
            rows < 20 * CELLS && go_on
        });
        for (canonical, seen) in columns {
            let (Some((file, row)), true) = (seen.first, seen.documents * 2 >= seen.cells) else {
                continue;
            };
            let map = &self.options.map;
            if map.is_text(canonical) || map.is_json(canonical) {
                continue;
            }
            return Err(TraceError::UndeclaredJson {
                file,
                column: canonical,
                row,
                documents: seen.documents,
                cells: seen.cells,
            });
        }
        Ok(())
    }
}
