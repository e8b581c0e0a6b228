//! `nightmill embed`: vectors beside the input's other columns, in the same row order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, FixedSizeListBuilder, Float32Builder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{EngineRequest, load_service};
use crate::embed::{EmbeddingCounts, EmbeddingService, TextRecord, TextRef};
use crate::output::table_writer::{close, properties};
use crate::output::{PartialFile, RunError};
use crate::trace::{SourceFile, SourceFormat, discover};

/// A validated request.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// Files, folders and globs; rows keep the order of files by path and rows in files.
    pub paths: Vec<String>,
    /// Text columns to embed; the vectors of `x` go to `x_embedding`.
    pub columns: Vec<String>,
    /// The Parquet file to make.
    pub out: PathBuf,
    /// Replace an existing file.
    pub overwrite: bool,
    /// Model, threads and memory.
    pub engine: EngineRequest,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct EmbedSummary {
    /// Rows written.
    pub rows: u64,
    /// Texts and tokens.
    pub counts: EmbeddingCounts,
    /// Components of a vector.
    pub dim: usize,
    /// The file.
    pub out: PathBuf,
}

const BATCH_ROWS: usize = 4096;

/// All batches of a file, as the reader of its format gives them.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>>;

fn open(file: &SourceFile, batch_rows: usize) -> Result<(SchemaRef, Batches), RunError> {
    let failed = |e: String| RunError::Request(format!("file `{}`: {e}", file.path.display()));
    let handle = || File::open(&file.path).map_err(|e| failed(e.to_string()));
    match file.format {
        SourceFormat::Parquet => {
            let builder = ParquetRecordBatchReaderBuilder::try_new(handle()?)
                .map_err(|e| failed(e.to_string()))?;
            let schema = Arc::clone(builder.schema());
            let reader = builder
                .with_batch_size(batch_rows)
                .build()
                .map_err(|e| failed(e.to_string()))?;
            Ok((schema, Box::new(reader)))
        }
        SourceFormat::JsonLines => {
            let (schema, _) = arrow::json::reader::infer_json_schema_from_seekable(
                std::io::BufReader::new(handle()?),
                None,
            )
            .map_err(|e| failed(e.to_string()))?;
            let schema = Arc::new(schema);
            let reader = arrow::json::ReaderBuilder::new(Arc::clone(&schema))
                .with_batch_size(batch_rows)
                .build(std::io::BufReader::new(handle()?))
                .map_err(|e| failed(e.to_string()))?;
            Ok((schema, Box::new(reader)))
        }
    }
}

/// Carries out the request.
///
/// # Errors
/// [`RunError`]; no file is left then.
pub fn embed(request: &EmbedRequest) -> Result<EmbedSummary, RunError> {
    request.engine.check()?;
    let files = discover(&request.paths, None)?;
    let first = files
        .first()
        .ok_or_else(|| RunError::Request("no file to embed".into()))?;
    for file in files
        .iter()
        .filter(|of| of.format == SourceFormat::JsonLines)
    {
        crate::text::check_escapes(&file.path).map_err(|problem| {
            RunError::Request(format!("file `{}`: {problem}", file.path.display()))
        })?;
    }
    let (schema, _) = open(first, 1)?;
    // A wrong column name is told before the model is loaded.
    with_vectors(first, &schema, &request.columns, None)?;
    let (partial, file) = PartialFile::create(&request.out, request.overwrite)?;
    let folder = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let service = load_service(&request.engine, folder.path())?;
    let out_schema = with_vectors(first, &schema, &request.columns, Some(service.dim()))?;
    let failed = |e: parquet::errors::ParquetError| RunError::write(&request.out, e);
    let mut writer = ArrowWriter::try_new(
        BufWriter::with_capacity(1 << 20, file),
        Arc::clone(&out_schema),
        Some(properties()),
    )
    .map_err(failed)?;
    let mut rows = 0;
    let mut ahead = Ahead::default();
    let mut write = |(batch, places): Embedded| -> Result<(), RunError> {
        let mut columns = batch.columns().to_vec();
        for places in places {
            columns.push(vectors(&service, &places)?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&out_schema), columns)
            .map_err(|e| RunError::Plan(e.to_string()))?;
        writer.write(&batch).map_err(failed)?;
        // A vector column is wide: keep what the writer buffers within bounds.
        if writer.in_progress_size() > request.engine.plan_memory() {
            writer.flush().map_err(failed)?;
        }
        Ok(())
    };
    for file in &files {
        let in_file = |e: &dyn std::fmt::Display| {
            RunError::Request(format!("file `{}`: {e}", file.path.display()))
        };
        let (found, batches) = open(file, BATCH_ROWS)?;
        if found.fields() != schema.fields() {
            return Err(in_file(&format!(
                "its columns differ from those of `{}`; embed it on its own",
                first.path.display()
            )));
        }
        let rows_before = rows;
        for batch in batches {
            let first_row = rows - rows_before;
            let batch = batch.map_err(|e| {
                in_file(&format!(
                    "a row from {first_row} on (counted from 0) can't be read: {e}"
                ))
            })?;
            let places = request.columns.iter().map(|name| {
                let texts = batch
                    .column_by_name(name)
                    .ok_or_else(|| in_file(&format!("no column `{name}`")))?;
                embed_column(&service, texts)
            });
            let places = places.collect::<Result<Vec<_>, _>>()?;
            rows += batch.num_rows() as u64;
            ahead.push((batch, places));
            while let Some(embedded) = ahead.pop_over(request.engine.plan_memory()) {
                write(embedded)?;
            }
        }
    }
    while let Some(embedded) = ahead.pop_over(0) {
        write(embedded)?;
    }
    service.finish();
    close(writer).map_err(|e| RunError::write(&request.out, e))?;
    Ok(EmbedSummary {
        rows,
        counts: service.counts(),
        dim: service.dim(),
        out: partial.commit()?,
    })
}

/// The input's schema with a vector column for each text column. Without `dim` it only checks.
fn with_vectors(
    file: &SourceFile,
    schema: &SchemaRef,
    columns: &[String],
    dim: Option<usize>,
) -> Result<SchemaRef, RunError> {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    let in_file = |e: String| RunError::Request(format!("file `{}`: {e}", file.path.display()));
    for name in columns {
        let Ok(field) = schema.field_with_name(name) else {
            let present: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            let near = crate::text::nearest(name, present.iter().copied());
            return Err(in_file(format!(
                "no column `{name}`{near}; it has {}",
                present.join(", ")
            )));
        };
        let data_type = match field.data_type() {
            DataType::Dictionary(_, values) => values.as_ref(),
            plain => plain,
        };
        if !(data_type.is_string() || *data_type == DataType::Null) {
            return Err(in_file(format!(
                "column `{name}` has type {}, expected text",
                field.data_type()
            )));
        }
        let target = format!("{name}_embedding");
        if fields.iter().any(|f| *f.name() == target) {
            return Err(in_file(format!(
                "a column `{target}` is there already; rename it first"
            )));
        }
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        fields.push(Arc::new(Field::new(
            target,
            DataType::FixedSizeList(item, dim.unwrap_or(1) as i32),
            true,
        )));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// A batch of rows, and for each text column where its texts' vectors will be.
type Embedded = (RecordBatch, Vec<Vec<TextRef>>);

/// Batches whose texts are with the encoder: it works on the next ones while one is written.
#[derive(Default)]
struct Ahead {
    batches: VecDeque<Embedded>,
    bytes: usize,
}

/// Most batches that are ahead: as many rows as the encoder's window has texts.
const MOST_AHEAD: usize = 32_768 / BATCH_ROWS;

impl Ahead {
    fn push(&mut self, embedded: Embedded) {
        self.bytes += embedded.0.get_array_memory_size();
        self.batches.push_back(embedded);
    }

    /// The oldest batch, if there are too many, or more than `most_bytes`.
    fn pop_over(&mut self, most_bytes: usize) -> Option<Embedded> {
        if self.batches.len() <= MOST_AHEAD && self.bytes <= most_bytes {
            return None;
        }
        let embedded = self.batches.pop_front()?;
        self.bytes -= embedded.0.get_array_memory_size();
        Some(embedded)
    }
}

fn embed_column(service: &EmbeddingService, texts: &ArrayRef) -> Result<Vec<TextRef>, RunError> {
    let texts = arrow::compute::cast(texts, &DataType::Utf8View)
        .map_err(|e| RunError::Plan(e.to_string()))?;
    // Null is as the empty text: no vector.
    let texts: Vec<&str> = texts
        .as_string_view()
        .iter()
        .map(Option::unwrap_or_default)
        .collect();
    Ok(service.embed(&texts)?)
}

fn vectors(service: &EmbeddingService, places: &[TextRef]) -> Result<ArrayRef, RunError> {
    let dim = service.dim();
    let values = Float32Builder::with_capacity(places.len() * dim);
    let mut out = FixedSizeListBuilder::new(values, dim as i32);
    let mut record = TextRecord::default();
    for place in places {
        if place.is_empty() {
            out.values().append_nulls(dim);
        } else {
            service.read(*place, &mut record)?;
            out.values().append_slice(&record.vector);
        }
        out.append(!place.is_empty());
    }
    Ok(Arc::new(out.finish()))
}
