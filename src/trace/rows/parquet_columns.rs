//! Which columns of a Parquet file are the canonical ones, and whether their types can be read.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type};

use super::super::schema::{
    CANONICAL, ColumnMap, SPANS, TextEncoding, TraceColumns, missing_column,
};
use super::super::{TraceError, native};

/// Where each canonical column is in the file's schema.
#[derive(Default)]
pub(super) struct FoundColumns {
    pub trace_id: Option<usize>,
    pub session_id: Option<usize>,
    pub project_id: Option<usize>,
    pub started_at: Option<usize>,
    pub name: Option<usize>,
    pub environment: Option<usize>,
    pub release: Option<usize>,
    pub model: Option<usize>,
    pub tags: Option<usize>,
    pub input: Option<(usize, TextEncoding)>,
    pub output: Option<(usize, TextEncoding)>,
    pub expected: Option<(usize, TextEncoding)>,
    pub spans: Option<(usize, TextEncoding)>,
    pub signals: Vec<Option<usize>>,
}

impl FoundColumns {
    pub fn all(&self) -> impl Iterator<Item = usize> {
        [
            self.trace_id,
            self.session_id,
            self.project_id,
            self.started_at,
            self.name,
            self.environment,
            self.release,
            self.model,
            self.tags,
        ]
        .into_iter()
        .chain(
            [self.input, self.output, self.expected, self.spans].map(|text| text.map(|(i, _)| i)),
        )
        .chain(self.signals.iter().copied())
        .flatten()
    }
}

/// The schema without UTF-8, JSON and enum annotations on top-level byte arrays; also the names of
/// the columns that were annotated as JSON.
pub(super) fn as_bytes(
    schema: &SchemaDescriptor,
) -> Result<(SchemaDescriptor, Vec<String>), parquet::errors::ParquetError> {
    let mut json = Vec::new();
    let mut fields = Vec::new();
    for field in schema.root_schema().get_fields() {
        let info = field.get_basic_info();
        if !field.is_primitive() || field.get_physical_type() != PhysicalType::BYTE_ARRAY {
            fields.push(Arc::clone(field));
            continue;
        }
        if info.converted_type() == ConvertedType::JSON
            || info.logical_type_ref() == Some(&LogicalType::Json)
        {
            json.push(info.name().to_owned());
        }
        let text = matches!(
            info.converted_type(),
            ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM
        ) || matches!(
            info.logical_type_ref(),
            Some(LogicalType::String | LogicalType::Json | LogicalType::Enum)
        );
        if !text {
            fields.push(Arc::clone(field));
            continue;
        }
        let bare = Type::primitive_type_builder(info.name(), PhysicalType::BYTE_ARRAY)
            .with_repetition(info.repetition())
            .with_id(info.has_id().then(|| info.id()))
            .build()?;
        fields.push(Arc::new(bare));
    }
    let root = Type::group_type_builder(schema.root_schema().name())
        .with_fields(fields)
        .build()?;
    Ok((SchemaDescriptor::new(Arc::new(root)), json))
}

/// Finds the wanted columns in a file's schema and checks their types.
pub(super) fn find_columns(
    path: &Path,
    schema: &Schema,
    json: &[String],
    partition: &[(String, String)],
    wanted: &TraceColumns,
    map: &ColumnMap,
) -> Result<FoundColumns, TraceError> {
    let present: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    // What is no trace's own column is looked at only where it is wanted.
    let wanted_names = CANONICAL
        .iter()
        .filter(|canonical| **canonical != "expected" || wanted.compared);
    let spans = [SPANS].iter().filter(|_| wanted.spans);
    let wanted_names = wanted_names.chain(spans);
    let wanted_names = wanted_names.map(|canonical| map.column(canonical));
    for name in wanted_names.chain(wanted.signals.iter().map(String::as_str)) {
        if present.iter().filter(|p| *p == name).count() > 1 {
            return Err(TraceError::ColumnType {
                file: path.to_owned(),
                column: name.to_owned(),
                problem: "is there more than once; write the file with distinct names".into(),
            });
        }
    }
    let find = |canonical: &str| {
        present
            .iter()
            .position(|name| name == map.column(canonical))
    };
    let in_partition = |canonical: &str| {
        partition
            .iter()
            .any(|(key, _)| key == map.column(canonical))
    };
    let required = |canonical: &str| match find(canonical) {
        Some(at) => Ok(Some(at)),
        None if in_partition(canonical) => Ok(None),
        None => Err(missing_column(
            path,
            map.column(canonical),
            canonical,
            &present,
        )),
    };
    // A column that was mapped by hand must be there even where it would be optional.
    let optional = |canonical: &str| match find(canonical) {
        None if map.column(canonical) != canonical => required(canonical),
        found => Ok(found),
    };
    let data_type = |at: usize| schema.field(at).data_type();
    let wrong = |at: usize, expected: &str| TraceError::ColumnType {
        file: path.to_owned(),
        column: present[at].clone(),
        problem: format!("has type {}, expected {expected}", data_type(at)),
    };
    let check = |at: Option<usize>, expected: &str, fits: &dyn Fn(&DataType) -> bool| match at {
        Some(at) if !fits(data_type(at)) => Err(wrong(at, expected)),
        at => Ok(at),
    };
    let label = |t: &DataType| {
        // A column that is null throughout has no better type to give.
        matches!(
            t,
            DataType::BinaryView | DataType::FixedSizeBinary(16) | DataType::Null
        ) || t.is_integer()
    };
    let time = |t: &DataType| {
        matches!(
            t,
            DataType::BinaryView
                | DataType::Timestamp(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Null
        ) || (map.time_unit().is_some() && t.is_numeric())
    };
    let text = |canonical: &str| -> Result<Option<(usize, TextEncoding)>, TraceError> {
        let Some(at) = required(canonical)? else {
            return Ok(None);
        };
        let encoding = match data_type(at) {
            DataType::BinaryView
                if map.is_json(canonical)
                    || (json.contains(&present[at]) && !map.is_text(canonical)) =>
            {
                TextEncoding::Json
            }
            DataType::BinaryView => TextEncoding::Text,
            other if native::is_native(other) => TextEncoding::Native,
            _ => {
                return Err(wrong(
                    at,
                    "text, JSON text, or structs, lists and primitives",
                ));
            }
        };
        Ok(Some((at, encoding)))
    };
    let spans = || -> Result<Option<(usize, TextEncoding)>, TraceError> {
        let at = match wanted.spans_required {
            true => required(SPANS)?,
            false => optional(SPANS)?,
        };
        let Some(at) = at else { return Ok(None) };
        let encoding = match data_type(at) {
            DataType::BinaryView => TextEncoding::Json,
            other if native::is_native(other) => TextEncoding::Native,
            _ => return Err(wrong(at, "a list of structs, or JSON text")),
        };
        Ok(Some((at, encoding)))
    };
    for (canonical, column) in map.mapped_of_documents() {
        let in_partition = partition.iter().any(|(key, _)| key == column);
        if !in_partition && !present.iter().any(|name| name == column) {
            return Err(missing_column(path, column, canonical, &present));
        }
    }
    let labelled = |name: &'static str| match wanted.labels {
        true => Ok(optional(name)?.filter(|&at| label(data_type(at)))),
        false => Ok(None),
    };
    let tags = |of: &DataType| *of == DataType::BinaryView || native::is_native(of);
    let session_id = if wanted.session_required {
        required("session_id")?
    } else {
        optional("session_id")?
    };
    let mut found = FoundColumns {
        trace_id: check(
            required("trace_id")?,
            "a string, a UUID or an integer",
            &label,
        )?,
        session_id: check(session_id, "a string, a UUID or an integer", &label)?,
        // Without a word of the user, a column of this name may be something else.
        project_id: match map.column("project_id") {
            "project_id" => find("project_id").filter(|&at| label(data_type(at))),
            _ => check(
                optional("project_id")?,
                "a string, a UUID or an integer",
                &label,
            )?,
        },
        started_at: check(
            required("started_at")?,
            "a timestamp, a date, or text in ISO 8601; for numbers say what they count with --time-unit",
            &time,
        )?,
        // Labels for reports only: one of another type is no reason to stop.
        name: optional("name")?.filter(|&at| label(data_type(at))),
        environment: optional("environment")?.filter(|&at| label(data_type(at))),
        release: labelled("release")?,
        model: labelled("model")?,
        tags: match wanted.labels {
            true => optional("tags")?.filter(|&at| tags(data_type(at))),
            false => None,
        },
        input: if wanted.input { text("input")? } else { None },
        output: match wanted.reads_output() {
            true => text("output")?,
            false => None,
        },
        expected: match wanted.compared {
            true => text("expected")?,
            false => None,
        },
        spans: match wanted.spans {
            true => spans()?,
            false => None,
        },
        signals: Vec::new(),
    };
    for signal in &wanted.signals {
        let at = present.iter().position(|name| name == signal);
        let number = |t: &DataType| t.is_numeric() || *t == DataType::Null;
        found.signals.push(check(at, "a number", &number)?);
    }
    Ok(found)
}
