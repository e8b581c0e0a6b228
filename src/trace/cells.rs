//! Row by row from found cells to canonical batches; rows with a bad cell are quarantined.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Float64Builder, Int16Builder, RecordBatch, StringBuilder,
    StringViewBuilder, TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::digest::{OutputDigest, SpanDigest};
use super::quarantine::{Code, Quarantine};
use super::schema::{SPANS, TextEncoding, TraceColumns};
use super::trace_id::canonical_trace_id;
use crate::text::{Json, TextMode, content_of, to_text};

/// A longer text is set aside: no encoder reads more of it than its beginning, and all of it would be in memory.
const LONGEST_TEXT: usize = 64 << 20;

/// A moment: microseconds since 1970 UTC, and nanoseconds beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub micros: i64,
    pub nanos: i16,
}

/// A text cell as found.
pub(super) enum TextCell<'a> {
    Null,
    Bytes(&'a [u8], TextEncoding),
    Value(Json),
    /// A value that can't become text, and why.
    Bad(String),
}

/// One row as found; strings are not checked yet.
pub(super) struct Row<'a> {
    pub trace_id: Option<Cow<'a, [u8]>>,
    pub session_id: Option<Cow<'a, [u8]>>,
    pub project_id: Option<Cow<'a, [u8]>>,
    /// A moment, or why there is none.
    pub started_at: Result<Moment, String>,
    pub name: Option<Cow<'a, [u8]>>,
    pub environment: Option<Cow<'a, [u8]>>,
    pub release: Option<Cow<'a, [u8]>>,
    pub model: Option<Cow<'a, [u8]>>,
    pub tags: TextCell<'a>,
    pub input: TextCell<'a>,
    pub output: TextCell<'a>,
    pub expected: TextCell<'a>,
    pub spans: TextCell<'a>,
    pub signals: &'a [Option<f64>],
}

/// Which trace a row is of, and when it began.
pub(super) struct Identity<'a> {
    /// As it was given.
    pub given_id: &'a str,
    /// In its canonical form.
    pub trace_id: String,
    pub started_at: Moment,
    pub session_id: Option<&'a str>,
    pub project_id: Option<&'a str>,
}

impl Row<'_> {
    /// Whose row it is. One without id or start is no row of a trace.
    pub fn identity(&self) -> Result<Identity<'_>, Rejected> {
        let given_id = match &self.trace_id {
            Some(bytes) => utf8("trace_id", bytes)?,
            None => "",
        };
        let Some(trace_id) = canonical_trace_id(given_id) else {
            return Err(Rejected {
                column: "trace_id",
                code: Code::MissingTraceId,
                reason: "null or empty".into(),
            });
        };
        let started_at = self.started_at.clone().map_err(|reason| Rejected {
            column: "started_at",
            code: Code::BadStartedAt,
            reason,
        })?;
        Ok(Identity {
            given_id,
            trace_id,
            started_at,
            session_id: label("session_id", self.session_id.as_deref())?,
            project_id: label("project_id", self.project_id.as_deref())?,
        })
    }
}

/// What the text of a cell is for.
#[derive(Clone, Copy)]
enum Shape {
    /// To be embedded: of a document, what the text mode says.
    ToEmbed,
    /// To be compared: a document as it is.
    ToCompare,
}

/// What happened to rows, beside being kept or quarantined.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowNotes {
    pub empty_session_ids: u64,
    /// Traces whose spans can't be read, where that is no reason to set them aside.
    pub unreadable_spans: u64,
    pub non_finite_signals: u64,
    /// Sound rows of traces that are not wanted.
    pub left_out: u64,
}

/// Tags as a JSON list of texts: those of a list, or of text that is one; any other text is one tag. None without tags.
fn tag_list(cell: &TextCell<'_>) -> Option<String> {
    let listed = |value: &Json| match value {
        Json::Array(items) => {
            let tags = items.iter().filter_map(|item| match item {
                Json::String(tag) => Some(tag.clone()),
                Json::Integer(digits) => Some(digits.to_string()),
                _ => None,
            });
            Some(tags.filter(|tag| !tag.is_empty()).collect::<Vec<String>>())
        }
        _ => None,
    };
    let of_text = |text: &str| {
        let list = text.trim_start().starts_with('[');
        let read = list.then(|| crate::text::parse(text.as_bytes()).ok());
        read.flatten()
            .and_then(|value| listed(&value))
            .unwrap_or_else(|| vec![text.to_owned()])
    };
    let tags = match cell {
        TextCell::Null | TextCell::Bad(_) => return None,
        TextCell::Bytes(b"", _) => return None,
        TextCell::Bytes(bytes, _) => of_text(&String::from_utf8_lossy(bytes)),
        TextCell::Value(Json::String(text)) if !text.is_empty() => of_text(text),
        TextCell::Value(value) => listed(value)?,
    };
    match tags.is_empty() {
        true => None,
        false => serde_json::to_string(&tags).ok(),
    }
}

/// Builds one canonical batch.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    position: UInt64Builder,
    trace_id: StringBuilder,
    given_id: StringBuilder,
    session_id: StringBuilder,
    project_id: StringBuilder,
    started_at: TimestampMicrosecondBuilder,
    started_at_nanos: Int16Builder,
    name: StringBuilder,
    environment: StringBuilder,
    /// `release`, `model` and `tags`.
    labels: Option<[StringBuilder; 3]>,
    input: Option<StringViewBuilder>,
    output: Option<StringViewBuilder>,
    /// Output and expected text to compare.
    compared: Option<[StringViewBuilder; 2]>,
    span_digest: Option<BinaryBuilder>,
    spans_strict: bool,
    output_digest: Option<BinaryBuilder>,
    signals: Vec<Float64Builder>,
    text_mode: TextMode,
    /// The traces wanted; none wants all.
    only: Option<Arc<HashSet<String>>>,
    rows: usize,
    bytes: usize,
    pub notes: RowNotes,
}

/// Why a row is set aside.
pub(super) struct Rejected {
    pub column: &'static str,
    pub code: Code,
    pub reason: String,
}

fn label<'a>(column: &'static str, cell: Option<&'a [u8]>) -> Result<Option<&'a str>, Rejected> {
    cell.map(|bytes| utf8(column, bytes)).transpose()
}

fn utf8<'a>(column: &'static str, bytes: &'a [u8]) -> Result<&'a str, Rejected> {
    std::str::from_utf8(bytes).map_err(|e| Rejected {
        column,
        code: Code::InvalidUtf8,
        reason: format!("not UTF-8 from byte {} on", e.valid_up_to()),
    })
}

impl BatchBuilder {
    pub fn new(
        schema: SchemaRef,
        columns: &TraceColumns,
        text_mode: TextMode,
        only: Option<Arc<HashSet<String>>>,
    ) -> Self {
        Self {
            schema,
            position: UInt64Builder::new(),
            trace_id: StringBuilder::new(),
            given_id: StringBuilder::new(),
            session_id: StringBuilder::new(),
            project_id: StringBuilder::new(),
            started_at: TimestampMicrosecondBuilder::new().with_timezone("UTC"),
            started_at_nanos: Int16Builder::new(),
            name: StringBuilder::new(),
            environment: StringBuilder::new(),
            labels: columns.labels.then(Default::default),
            input: columns.input.then(StringViewBuilder::new),
            output: columns.output.then(StringViewBuilder::new),
            compared: columns
                .compared
                .then(|| [StringViewBuilder::new(), StringViewBuilder::new()]),
            span_digest: columns.spans.then(BinaryBuilder::new),
            spans_strict: columns.spans_strict,
            output_digest: columns.output_digest.then(BinaryBuilder::new),
            signals: columns
                .signals
                .iter()
                .map(|_| Float64Builder::new())
                .collect(),
            text_mode,
            only,
            rows: 0,
            bytes: 0,
            notes: RowNotes::default(),
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of text in the batch so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a row, or quarantines it. A sound one whose trace is not wanted is counted and left out.
    pub fn push(
        &mut self,
        row: Row<'_>,
        position: u64,
        file: &Path,
        number: u64,
        quarantine: &Quarantine,
    ) {
        if let Err(Rejected {
            column,
            code,
            reason,
        }) = self.try_push(row, position)
        {
            quarantine.add_row(file, number, column, code, reason);
        }
    }

    fn try_push(&mut self, row: Row<'_>, position: u64) -> Result<(), Rejected> {
        let Identity {
            given_id,
            trace_id,
            started_at,
            session_id,
            project_id,
        } = row.identity()?;
        // Labels for reports only: a broken one is no reason to set the row aside.
        let name = row.name.as_deref().map(String::from_utf8_lossy);
        let environment = row.environment.as_deref().map(String::from_utf8_lossy);
        let text = |column: &'static str, cell| self.text(column, cell, Shape::ToEmbed);
        let input = text("input", &row.input)?;
        let output = match self.output.is_some() || self.output_digest.is_some() {
            true => text("output", &row.output)?,
            false => None,
        };
        let output_digest = match &self.output_digest {
            Some(_) => output.as_deref().map(OutputDigest::of),
            None => None,
        };
        let span_digest = match &self.span_digest {
            Some(_) => match spans(&row.spans) {
                Err(_) if !self.spans_strict => Err(()),
                read => Ok(read?),
            },
            None => Ok(None),
        };
        let compared = match &self.compared {
            Some(_) => [
                self.text("output", &row.output, Shape::ToCompare)?,
                self.text("expected", &row.expected, Shape::ToCompare)?,
            ],
            None => [None, None],
        };

        // The last columns of the schema.
        let names = self.schema.fields().iter().rev();
        for (name, signal) in names.zip(row.signals.iter().rev()) {
            if let Some(value) = signal.filter(|s| s.is_finite() && !(0.0..=1.0).contains(s)) {
                return Err(Rejected {
                    column: "",
                    code: Code::InvalidValue,
                    reason: format!("`{}` is {value}, not from 0 to 1", name.name()),
                });
            }
        }

        // Only now: a bad row is quarantined, whatever is wanted.
        if self
            .only
            .as_ref()
            .is_some_and(|only| !only.contains(&trace_id))
        {
            self.notes.left_out += 1;
            return Ok(());
        }
        // Nothing can fail from here on: the row goes into all builders or into none.
        self.rows += 1;
        self.notes.unreadable_spans += u64::from(span_digest.is_err());
        self.position.append_value(position);
        self.trace_id.append_value(&trace_id);
        self.given_id
            .append_option((given_id != trace_id).then_some(given_id));
        self.notes.empty_session_ids += u64::from(session_id == Some(""));
        self.session_id
            .append_option(session_id.filter(|s| !s.is_empty()));
        self.project_id
            .append_option(project_id.filter(|p| !p.is_empty()));
        self.started_at.append_value(started_at.micros);
        self.started_at_nanos.append_value(started_at.nanos);
        self.name.append_option(name);
        self.environment.append_option(environment);
        if let Some([release, model, tags]) = &mut self.labels {
            for (builder, label) in [(release, &row.release), (model, &row.model)] {
                builder.append_option(label.as_deref().map(String::from_utf8_lossy));
            }
            tags.append_option(tag_list(&row.tags));
        }
        for (builder, text) in [(&mut self.input, input), (&mut self.output, output)] {
            if let Some(builder) = builder {
                self.bytes += text.as_deref().map_or(0, str::len);
                builder.append_option(text);
            }
        }
        let builders = self.compared.iter_mut().flatten();
        for (builder, text) in builders.zip(compared) {
            self.bytes += text.as_deref().map_or(0, str::len);
            builder.append_option(text);
        }
        if let Some(builder) = &mut self.span_digest {
            let bytes = span_digest.ok().flatten().map(|digest| digest.to_bytes());
            self.bytes += bytes.as_ref().map_or(0, Vec::len);
            builder.append_option(bytes);
        }
        if let Some(builder) = &mut self.output_digest {
            builder.append_option(output_digest.map(|digest| digest.to_bytes()));
        }
        for (builder, signal) in self.signals.iter_mut().zip(row.signals) {
            let finite = signal.filter(|s| s.is_finite());
            self.notes.non_finite_signals += u64::from(signal.is_some() && finite.is_none());
            builder.append_option(finite);
        }
        Ok(())
    }

    fn text<'a>(
        &self,
        column: &'static str,
        cell: &'a TextCell<'a>,
        shape: Shape,
    ) -> Result<Option<Cow<'a, str>>, Rejected> {
        let of_value = |value: &Json| match (value, shape, self.text_mode) {
            (Json::Null, ..) => None,
            (value, Shape::ToEmbed, TextMode::Content) => Some(Cow::Owned(content_of(value))),
            (value, ..) => Some(Cow::Owned(to_text(value))),
        };
        let too_long = |length: usize| Rejected {
            column,
            code: Code::TooLong,
            reason: format!("{length} bytes of text, and at most {LONGEST_TEXT} are read"),
        };
        match cell {
            TextCell::Null => Ok(None),
            TextCell::Bytes(bytes, _) if bytes.len() > LONGEST_TEXT => Err(too_long(bytes.len())),
            TextCell::Bytes(bytes, TextEncoding::Json) => {
                let value = crate::text::parse(bytes).map_err(|e| Rejected {
                    column,
                    code: Code::InvalidJson,
                    reason: e.to_string(),
                })?;
                match (&value, shape) {
                    (Json::Null | Json::String(_), _) | (_, Shape::ToEmbed) => Ok(of_value(&value)),
                    // As it is written: its length counts, and its numbers.
                    (_, Shape::ToCompare) => Ok(Some(Cow::Borrowed(utf8(column, bytes)?))),
                }
            }
            TextCell::Bytes(bytes, _) => Ok(Some(Cow::Borrowed(utf8(column, bytes)?))),
            TextCell::Value(value) => match of_value(value) {
                Some(text) if text.len() > LONGEST_TEXT => Err(too_long(text.len())),
                text => Ok(text),
            },
            TextCell::Bad(reason) => Err(Rejected {
                column,
                code: Code::InvalidValue,
                reason: reason.clone(),
            }),
        }
    }

    pub fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.position.finish()),
            Arc::new(self.trace_id.finish()),
            Arc::new(self.given_id.finish()),
            Arc::new(self.session_id.finish()),
            Arc::new(self.project_id.finish()),
            Arc::new(self.started_at.finish()),
            Arc::new(self.started_at_nanos.finish()),
            Arc::new(self.name.finish()),
            Arc::new(self.environment.finish()),
        ];
        for mut labels in self.labels.into_iter().flatten() {
            columns.push(Arc::new(labels.finish()));
        }
        let compared = self.compared.into_iter().flatten();
        for mut texts in [self.input, self.output]
            .into_iter()
            .flatten()
            .chain(compared)
        {
            columns.push(Arc::new(texts.finish()));
        }
        for mut digests in [self.span_digest, self.output_digest].into_iter().flatten() {
            columns.push(Arc::new(digests.finish()));
        }
        for mut signal in self.signals {
            columns.push(Arc::new(signal.finish()));
        }
        RecordBatch::try_new(self.schema, columns)
    }
}

/// The digest of a cell of spans; none of one without spans.
fn spans(cell: &TextCell<'_>) -> Result<Option<SpanDigest>, Rejected> {
    let rejected = |code, reason| Rejected {
        column: SPANS,
        code,
        reason,
    };
    let parsed = match cell {
        TextCell::Null => return Ok(None),
        TextCell::Value(value) => {
            return digest_of(value).map_err(|e| rejected(Code::InvalidValue, e));
        }
        TextCell::Bad(reason) => return Err(rejected(Code::InvalidValue, reason.clone())),
        TextCell::Bytes(bytes, _) if bytes.trim_ascii().is_empty() => return Ok(None),
        TextCell::Bytes(bytes, _) if bytes.len() > LONGEST_TEXT => {
            let reason = format!(
                "{} bytes of spans, and at most {LONGEST_TEXT} are read",
                bytes.len()
            );
            return Err(rejected(Code::TooLong, reason));
        }
        TextCell::Bytes(bytes, _) => {
            crate::text::parse(bytes).map_err(|e| rejected(Code::InvalidJson, e.to_string()))?
        }
    };
    digest_of(&parsed).map_err(|e| rejected(Code::InvalidValue, e))
}

fn digest_of(spans: &Json) -> Result<Option<SpanDigest>, String> {
    match spans {
        Json::Null => Ok(None),
        spans => SpanDigest::of(spans),
    }
}

/// A moment from text: ISO 8601, date and time, with any zone; without one it is UTC.
pub(super) fn moment_of_text(text: &str) -> Result<Moment, String> {
    arrow::compute::kernels::cast_utils::string_to_datetime(&chrono::Utc, text.trim())
        .map(|time| Moment {
            micros: time.timestamp_micros(),
            nanos: (time.timestamp_subsec_nanos() % 1000) as i16,
        })
        .map_err(|_| {
            format!(
                "`{}` is not an ISO 8601 time",
                text.chars().take(40).collect::<String>()
            )
        })
}
