//! Records that were read lately, in memory: texts repeat, and the output of a trace is looked at several times.

use std::collections::HashMap;
use std::sync::Arc;

use super::{EmbedError, EmbeddingService, TextRecord, TextRef};

/// Reads records of a service for one reader, and remembers them while there is room. When there is none, all are
/// forgotten at once: what comes often is soon there again.
#[derive(Debug)]
pub struct RecentRecords {
    service: Arc<EmbeddingService>,
    known: HashMap<TextRef, Arc<TextRecord>>,
    bytes: usize,
    most_bytes: usize,
    buffer: TextRecord,
}

impl RecentRecords {
    /// Remembers records of about `most_bytes` in all.
    pub fn new(service: Arc<EmbeddingService>, most_bytes: usize) -> Self {
        Self {
            service,
            known: HashMap::new(),
            bytes: 0,
            most_bytes,
            buffer: TextRecord::default(),
        }
    }

    /// A text's record, as soon as it has a vector; none of the empty text.
    ///
    /// # Errors
    /// As those of [`EmbeddingService::read`].
    pub fn read(&mut self, text: TextRef) -> Result<Option<Arc<TextRecord>>, EmbedError> {
        if text.is_empty() {
            return Ok(None);
        }
        if let Some(record) = self.known.get(&text) {
            return Ok(Some(Arc::clone(record)));
        }
        self.service.read(text, &mut self.buffer)?;
        let record = Arc::new(self.buffer.without_bytes());
        let bytes = record.memory();
        // One long text must not put all others out.
        if bytes <= self.most_bytes / 16 {
            if self.bytes + bytes > self.most_bytes {
                self.known.clear();
                self.bytes = 0;
            }
            self.bytes += bytes;
            self.known.insert(text, Arc::clone(&record));
        }
        Ok(Some(record))
    }
}
