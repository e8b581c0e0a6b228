//! Scores as a table, for CSV and Parquet: one row a score, with the id that it has in every system.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;

use super::score::Score;
use super::stored_scores::RunFacts;

/// The columns.
fn schema() -> SchemaRef {
    let text = |name, null| Field::new(name, DataType::Utf8, null);
    Arc::new(Schema::new(vec![
        text("id", false),
        text("target_type", false),
        text("target_id", false),
        text("session_id", true),
        text("project_id", true),
        text("metric", false),
        text("data_type", false),
        Field::new("score", DataType::Float64, true),
        text("value", false),
        text("label", true),
        Field::new("threshold", DataType::Float64, true),
        Field::new("passed", DataType::Boolean, true),
        text("reason", true),
        text("annotator_kind", false),
        text("model", true),
        text("precision", true),
        text("text_mode", true),
        Field::new("evaluated_traces", DataType::Int64, true),
        text("environment", true),
        text("details", true),
        text("run", false),
        Field::new(
            "created_at",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        ),
    ]))
}

fn batch(scores: &[Score], run: &RunFacts) -> Result<RecordBatch, arrow::error::ArrowError> {
    let texts = |of: &dyn Fn(&Score) -> Option<String>| -> ArrayRef {
        Arc::new(scores.iter().map(of).collect::<StringArray>())
    };
    let created_at =
        TimestampMicrosecondArray::from(vec![run.created_at.timestamp_micros(); scores.len()]);
    let columns: Vec<ArrayRef> = vec![
        texts(&|s| Some(s.id.clone())),
        texts(&|s| Some(s.level.name().to_owned())),
        texts(&|s| Some(s.target_id.clone())),
        texts(&|s| s.session_id.clone()),
        texts(&|s| s.project_id.clone()),
        texts(&|s| Some(s.metric.clone())),
        texts(&|s| Some(s.scored.data_type().to_owned())),
        Arc::new(
            scores
                .iter()
                .map(|s| s.scored.number())
                .collect::<Float64Array>(),
        ),
        texts(&|s| Some(s.scored.text())),
        texts(&|s| s.label().map(str::to_owned)),
        Arc::new(scores.iter().map(|s| s.threshold).collect::<Float64Array>()),
        Arc::new(scores.iter().map(|s| s.passed).collect::<BooleanArray>()),
        texts(&|s| s.comment().map(str::to_owned)),
        texts(&|s| Some(s.annotator.name().to_owned())),
        texts(&|s| s.model.clone()),
        texts(&|s| s.precision.clone()),
        texts(&|s| s.text_mode.clone()),
        Arc::new(
            scores
                .iter()
                .map(|s| s.evaluated_traces)
                .collect::<Int64Array>(),
        ),
        texts(&|s| s.environment.clone()),
        texts(&|s| match &s.details {
            serde_json::Value::Null => None,
            details => Some(details.to_string()),
        }),
        texts(&|_| Some(run.name.clone())),
        Arc::new(created_at.with_timezone("UTC")),
    ];
    RecordBatch::try_new(schema(), columns)
}

/// Rows that are in memory at once.
const ROWS: usize = 4096;

enum Form<W: Write + Send> {
    Csv(Box<arrow::csv::Writer<W>>),
    Parquet(Box<ArrowWriter<W>>),
}

/// Writes a table row by row.
pub(super) struct Table<W: Write + Send> {
    form: Form<W>,
    rows: Vec<Score>,
}

impl<W: Write + Send> Table<W> {
    pub fn csv(out: W) -> Result<Self, String> {
        let mut writer = arrow::csv::WriterBuilder::new()
            .with_header(true)
            .build(out);
        // The header is there even where no score is.
        let nothing = RecordBatch::new_empty(schema());
        writer.write(&nothing).map_err(|e| e.to_string())?;
        Ok(Self {
            form: Form::Csv(Box::new(writer)),
            rows: Vec::new(),
        })
    }

    pub fn parquet(out: W) -> Result<Self, String> {
        let writer = ArrowWriter::try_new(out, schema(), None).map_err(|e| e.to_string())?;
        Ok(Self {
            form: Form::Parquet(Box::new(writer)),
            rows: Vec::new(),
        })
    }

    pub fn push(&mut self, score: Score, run: &RunFacts) -> Result<(), String> {
        self.rows.push(score);
        match self.rows.len() >= ROWS {
            true => self.flush(run),
            false => Ok(()),
        }
    }

    fn flush(&mut self, run: &RunFacts) -> Result<(), String> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = batch(&self.rows, run).map_err(|e| e.to_string())?;
        self.rows.clear();
        match &mut self.form {
            Form::Csv(writer) => writer.write(&batch).map_err(|e| e.to_string()),
            Form::Parquet(writer) => writer.write(&batch).map_err(|e| e.to_string()),
        }
    }

    /// Writes what is left, and hands the file back.
    pub fn finish(mut self, run: &RunFacts) -> Result<W, String> {
        self.flush(run)?;
        match self.form {
            Form::Csv(writer) => Ok(writer.into_inner()),
            Form::Parquet(writer) => writer.into_inner().map_err(|e| e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::score::{example, judged_example};
    use super::super::wire::facts;
    use super::*;

    #[test]
    fn a_row_holds_a_score() {
        let mut table = Table::csv(Vec::new()).unwrap();
        table.push(example(), &facts()).unwrap();
        table.push(judged_example(), &facts()).unwrap();
        let text = String::from_utf8(table.finish(&facts()).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("id,target_type,target_id,"), "{text}");
        assert!(
            lines[1].contains(",coherence,NUMERIC,0.75,0.75,pass,0.5,true,It answers.,CODE,"),
            "{text}"
        );
        assert!(
            lines[2].contains(",conversation,NUMERIC,0.25,0.25,fail,"),
            "{text}"
        );
        assert!(lines[2].contains(",LLM,openai/gpt-4o,"), "{text}");
        let nothing = Table::csv(Vec::new()).unwrap().finish(&facts()).unwrap();
        assert!(String::from_utf8(nothing).unwrap().starts_with("id,"));
    }
}
