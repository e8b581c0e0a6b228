//! Traces of Langfuse's older blob export (`traces/`), one a row, and of its API. They have no spans: these are in
//! `observations/`, read together with them.

use serde_json::Value;

use super::cell::Cell;
use super::langfuse_row::{Row, has, own_metadata};
use super::said::Speaker;
use super::values::{object, texts};
use super::{ArrayIs, Format, Parts, Place, Sample, TraceFacts};

pub(super) static LANGFUSE_TRACES: Format = Format {
    name: "langfuse-traces",
    title: "Langfuse traces (legacy blob export; Parquet, JSON Lines, CSV)",
    array: ArrayIs::Documents,
    recognise,
    read,
    read_bytes: None,
    mapping: &[
        ("trace_id", "id"),
        (
            "session_id, user_id, project_id",
            "session_id, user_id, project_id",
        ),
        ("name, tags, environment", "name, tags, environment"),
        ("started_at", "timestamp"),
        ("release", "release, else version"),
        ("input, output", "input, output"),
        ("metadata", "metadata"),
    ],
};

/// Columns of the export and of the pages' files.
const KNOWN: [&str; 22] = [
    "id",
    "timestamp",
    "name",
    "environment",
    "project_id",
    "metadata",
    "user_id",
    "session_id",
    "release",
    "version",
    "public",
    "bookmarked",
    "tags",
    "input",
    "output",
    "created_at",
    "updated_at",
    "scores",
    "corrections",
    "latency",
    "total_cost",
    "html_path",
];

fn recognise(sample: &Sample<'_>) -> Option<String> {
    let all = ["id", "timestamp", "session_id", "release", "tags"];
    let none = ["trace_id", "start_time", "type", "data_type"];
    let whole = sample
        .document
        .get("observations")
        .and_then(Value::as_array);
    let is_whole = whole.is_some_and(|list| list.iter().any(Value::is_object));
    (all.iter().all(|name| has(sample, name))
        && !none.iter().any(|name| has(sample, name))
        && !is_whole)
        .then(|| "has id, timestamp, session_id, release and tags, and no trace_id".to_owned())
}

fn read(document: Value, _: &Place<'_>, parts: &mut Parts) -> Result<(), String> {
    let Value::Object(members) = document else {
        return Err("is no object: a trace of Langfuse is one".to_owned());
    };
    let row = Row::new(&members);
    let facts = trace(&row, Cell::new)?;
    row.count_unknown(&KNOWN, parts);
    parts.trace(facts);
    Ok(())
}

/// The facts of a trace's record; `cell` reads its payloads.
pub(super) fn trace(
    row: &Row<'_>,
    cell: fn(Option<&Value>) -> Option<Cell>,
) -> Result<TraceFacts, String> {
    let trace_id = row
        .text("id")
        .ok_or("has no id: a trace of Langfuse needs it; export it with its column `id`")?;
    Ok(TraceFacts {
        trace_id,
        session_id: row.text("session_id"),
        project_id: row.text("project_id"),
        name: row.text("name"),
        started_at: row.time("timestamp")?,
        environment: row.text("environment"),
        release: row.text("release").or_else(|| row.text("version")),
        user_id: row.text("user_id"),
        tags: texts(row.get("tags")),
        input: cell(row.get("input")).map(|cell| cell.payload(Speaker::User)),
        output: cell(row.get("output")).map(|cell| cell.payload(Speaker::Agent)),
        metadata: own_metadata(object(row.get("metadata")).unwrap_or_default()),
        ..TraceFacts::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_is_read_and_told_from_observations_and_scores() {
        let row = json!({
            "id": "t1", "timestamp": "2026-03-01 10:00:00.000000", "name": "support", "environment": "default",
            "project_id": "p", "metadata": {"tier": 2}, "user_id": "u", "session_id": "s", "release": null,
            "version": "3", "public": false, "bookmarked": false, "tags": ["x"], "input": "{\"question\":\"Why?\"}",
            "output": "Because.", "created_at": "2026-03-01 10:00:01.000000", "updated_at": null, "extra": 1,
        });
        let sample = |document: &Value| {
            recognise(&Sample {
                file_name: "a",
                document,
                columns: &[],
            })
        };
        assert!(sample(&row).is_some());
        let mut parts = Parts::default();
        read(row.clone(), &Place { stem: "f", row: 0 }, &mut parts).unwrap();
        let facts = parts.traces.remove(0);
        assert_eq!(facts.trace_id, "t1");
        assert_eq!(facts.session_id.as_deref(), Some("s"));
        assert_eq!(facts.release.as_deref(), Some("3"));
        assert_eq!(facts.started_at, Some(1_772_359_200_000_000_000));
        assert_eq!(facts.input.unwrap().said.as_deref(), Some("Why?"));
        assert_eq!(facts.output.unwrap().raw, "Because.");
        assert_eq!(parts.unknown, ["extra"]);
        for name in ["trace_id", "type"] {
            let mut other = row.clone();
            other[name] = json!("x");
            assert!(sample(&other).is_none(), "{name}");
        }
        let columns: Vec<String> = ["id", "timestamp", "session_id", "release", "tags"]
            .map(str::to_owned)
            .to_vec();
        let document = json!({});
        let table = Sample {
            file_name: "a.parquet",
            document: &document,
            columns: &columns,
        };
        assert!(recognise(&table).is_some());
    }
}
