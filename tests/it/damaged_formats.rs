//! Files of other formats that are damaged, empty, packed, ambiguous or asked for wrongly: said or refused, never passed
//! over in silence.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Ran, nightmill, program, read_parquet, root, summary};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    fn import(&self, path: &str, more: &[&str]) -> Ran {
        let out = self.at("out.parquet").display().to_string();
        let args = ["import", path, "--overwrite", "--out", &out];
        nightmill(args.iter().chain(more))
    }

    fn score(&self, path: &str, more: &[&str]) -> Ran {
        let out = self.at("run").display().to_string();
        let args = [
            "score",
            path,
            "--metrics",
            "empty_output",
            "--no-report",
            "--overwrite",
            "--out",
            &out,
        ];
        nightmill(args.iter().chain(more))
    }

    fn inputs(&self) -> Vec<String> {
        let batch = read_parquet(&self.at("out.parquet"));
        let inputs = batch.column_by_name("input").unwrap();
        let inputs = arrow::array::AsArray::as_string::<i32>(inputs.as_ref());
        let mut inputs: Vec<String> = inputs.iter().flatten().map(str::to_owned).collect();
        inputs.sort();
        inputs
    }
}

/// An observation of Langfuse.
fn row(id: &str, more: &[(&str, Value)]) -> Value {
    let mut row = json!({"id": format!("o{id}"), "trace_id": format!("t{id}"), "start_time": "2026-01-01 00:00:01",
        "end_time": "2026-01-01 00:00:02", "project_id": "p", "parent_observation_id": null, "type": "GENERATION",
        "name": "g", "session_id": "s", "input": format!("ask {id}"), "output": format!("say {id}")});
    for (name, value) in more {
        row[*name] = value.clone();
    }
    row
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn damage_in_a_folder_is_damage() {
    let place = Place::new();
    let good = lines(&[row("1", &[])]);
    let packed = gz(&[good.repeat(500), String::new()].concat().into_bytes());
    for (number, (name, bytes)) in [
        ("cut.json", br#"[{"id": "o1", "trace_id": "#.to_vec()),
        ("cut.json.gz", packed[..packed.len() / 2].to_vec()),
        ("bad.csv", b"id,trace_id\n1,\xff\xfe\n".to_vec()),
        ("twice.csv", b"id,trace_id,id\n1,2,3\n".to_vec()),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = format!("f{number}");
        place.write(&format!("{folder}/good.jsonl"), &good);
        place.write(&format!("{folder}/notes.json"), r#"{"colour": "red"}"#);
        let damaged = place.write(&format!("{folder}/{name}"), bytes);
        let folder = place.at(&folder).display().to_string();
        for path in [&folder, &damaged] {
            let refused = place.import(path, &[]);
            assert_eq!(refused.code, Some(2), "{name}: {refused:?}");
            assert!(refused.stderr.contains(name), "{}", refused.stderr);
        }
        let skip = ["--on-bad-file", "skip"];
        let imported = place.import(&folder, &skip);
        assert_eq!(imported.code, Some(3), "{name}: {imported:?}");
        assert!(imported.stdout.contains(name), "{}", imported.stdout);
        // What is in no format at all is no damage, and said.
        assert!(
            imported.stdout.contains("notes.json"),
            "{}",
            imported.stdout
        );
        let scored = place.score(&folder, &skip);
        assert_eq!(scored.code, Some(3), "{name}: {scored:?}");
        assert_eq!(summary(&place.at("run"))["traces"], 1, "{name}");
    }
}

#[test]
fn files_without_documents_are_no_fault_beside_others() {
    let place = Place::new();
    place.write("f/good.jsonl", lines(&[row("1", &[])]));
    for (name, bytes) in [
        ("a.jsonl", ""),
        ("b.jsonl", "\n \n"),
        ("c.json", ""),
        ("d.json", "[]"),
        ("e.csv", ""),
    ] {
        place.write(&format!("f/{name}"), bytes);
    }
    let folder = place.at("f").display().to_string();
    for ran in [place.import(&folder, &[]), place.score(&folder, &[])] {
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let alone = place.write("g/c.json", "[]");
    assert_eq!(place.import(&alone, &[]).code, Some(2));
}

#[test]
fn a_mark_and_a_damaged_first_line_do_not_hide_the_format() {
    let place = Place::new();
    let otlp = std::fs::read_to_string(root().join("datasets/formats/otlp.jsonl")).unwrap();
    let marked = place.write("bom.jsonl", format!("\u{feff}{otlp}"));
    let ran = place.import(&marked, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("5 traces"), "{}", ran.stdout);
    let first = place.write(
        "first.jsonl",
        [b"{\"resourceSpans\": [{\xff\n", otlp.as_bytes()].concat(),
    );
    let ran = place.import(&first, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("5 traces"), "{}", ran.stdout);
    assert!(ran.stdout.contains("row 0"), "{}", ran.stdout);
}

#[test]
fn own_columns_that_are_packed_are_refused_wherever_they_are() {
    let place = Place::new();
    let own = lines(&[
        json!({"trace_id": "t", "started_at": "2026-01-01T00:00:00Z", "input": "a", "output": "b"}),
    ]);
    place.write("f/plain.jsonl", &own);
    let packed = place.write("f/packed.jsonl.gz", gz(own.as_bytes()));
    let folder = place.at("f").display().to_string();
    for (path, more) in [
        (&packed, &[][..]),
        (&folder, &[]),
        (&folder, &["--format", "jsonl"]),
        (&folder, &["--map", "input=input"]),
    ] {
        let refused = place.score(path, more);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("packed.jsonl.gz"), "{refused:?}");
        assert!(refused.stderr.contains("gzip -cd "), "{refused:?}");
    }
}

#[test]
fn what_may_be_two_formats_is_asked_for() {
    let place = Place::new();
    let both = row("1", &[("started_at", json!("2026-01-01T00:00:00Z"))]);
    let path = place.write("both.jsonl", lines(&[both]));
    let refused = place.score(&path, &[]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    for words in ["--format jsonl", "--format langfuse-observations"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    for format in ["jsonl", "langfuse-observations"] {
        let ran = place.score(&path, &["--format", format]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let langfuse = place.write("one.jsonl", lines(&[row("1", &[])]));
    let refused = place.import(&langfuse, &["--format", "langsmith"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("langfuse-observations"),
        "{}",
        refused.stderr
    );
}

#[test]
fn scores_beside_traces_are_passed_over() {
    let place = Place::new();
    place.write("f/observations/1.jsonl", lines(&[row("1", &[])]));
    place.write(
        "f/scores/1.jsonl",
        lines(&[
            json!({"id": "1", "timestamp": "2026-01-01", "trace_id": "t1", "name": "n", "value": 1,
            "source": "API", "data_type": "NUMERIC"}),
        ]),
    );
    let folder = place.at("f").display().to_string();
    let ran = place.import(&folder, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("scores/1.jsonl"), "{}", ran.stdout);
}

#[test]
fn times_that_are_none_are_set_aside_and_missing_ones_are_told() {
    let place = Place::new();
    let rows = [
        row("1", &[]),
        row("2", &[("start_time", json!("01/02/2026 10:00"))]),
        row("3", &[("start_time", json!(null))]),
        row(
            "4",
            &[("start_time", json!(null)), ("end_time", json!(null))],
        ),
    ];
    let path = place.write("times.jsonl", lines(&rows));
    let ran = place.import(&path, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for words in [
        "row 1",
        "`start_time` is no time",
        "1 traces do not say when they began",
        "1 traces carry neither a time nor a turn",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    assert_eq!(place.inputs(), ["ask 1", "ask 3", "ask 4"]);
}

/// An attribute of a span of OTLP, its value as it is written.
fn attribute(key: &str, kind: &str, value: &str) -> String {
    format!(r#"{{"key":"{key}","value":{{"{kind}":{value}}}}}"#)
}

#[test]
fn a_number_beyond_all_numbers_costs_its_own_value_alone() {
    let place = Place::new();
    let span = |id: &str, start: &str, attributes: &[String]| {
        format!(
            r#"{{"traceId":"{id}","spanId":"{id}","name":"chat","startTimeUnixNano":{start},
            "endTimeUnixNano":"1767225601000000000","attributes":[{}]}}"#,
            attributes.join(",")
        )
    };
    let said = |text: &str| attribute("gen_ai.prompt", "stringValue", &format!("\"{text}\""));
    let start = "\"1767225600000000000\"";
    let spans = [
        span(
            "a1",
            start,
            &[
                said("ask 1"),
                attribute("gen_ai.usage.cost", "doubleValue", "0.5"),
            ],
        ),
        span(
            "a2",
            start,
            &[
                said("ask 2"),
                attribute("gen_ai.usage.cost", "doubleValue", "1e400"),
            ],
        ),
        span(
            "a3",
            start,
            &[
                said("ask 3"),
                attribute("gen_ai.usage.input_tokens", "doubleValue", "1e400"),
            ],
        ),
        span("a4", "1e400", &[said("ask 4")]),
    ];
    let document = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        spans.join(",")
    );
    let file = place.write("export.json", document);
    let ran = place.import(&file, &[]);
    // A time that is none sets its own span aside.
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for words in [
        "`startTimeUnixNano` is no time",
        "1 costs, or sums of costs, are beyond all numbers and are left out",
        "1 counts of tokens are no whole numbers and are left out",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    assert_eq!(place.inputs(), ["ask 1", "ask 2", "ask 3"]);
}

#[test]
fn costs_whose_sum_is_no_number_are_told() {
    let place = Place::new();
    let large = row("1", &[("total_cost", json!(1e308))]);
    let more = row("1", &[("id", json!("o2")), ("total_cost", json!(1e308))]);
    let parts = row(
        "3",
        &[("cost_details", json!({"input": 1e308, "output": 1e308}))],
    );
    let text = row("4", &[("total_cost", json!("1e400"))]);
    let good = row("5", &[("total_cost", json!(0.5))]);
    let file = place.write("rows.jsonl", lines(&[large, more, parts, text, good]));
    let ran = place.import(&file, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let words = "3 costs, or sums of costs, are beyond all numbers and are left out";
    assert!(ran.stdout.contains(words), "{}", ran.stdout);
    let batch = read_parquet(&place.at("out.parquet"));
    let costs = batch.column_by_name("cost_usd").unwrap();
    let costs =
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(costs.as_ref());
    assert_eq!(costs.iter().flatten().collect::<Vec<_>>(), [0.5]);
}

#[test]
fn traces_of_two_projects_are_named() {
    let place = Place::new();
    let mut rows = Vec::new();
    for id in ["1", "2", "3", "4", "5"] {
        rows.push(row(id, &[]));
        rows.push(row(id, &[("project_id", json!("q"))]));
    }
    rows.push(row("6", &[]));
    let file = place.write("rows.jsonl", lines(&rows));
    let ran = place.import(&file, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let words = "5 traces have spans of several projects and are one: t1, t2, t3 and 2 more; where projects share ids";
    assert!(ran.stdout.contains(words), "{}", ran.stdout);
}

#[test]
fn pipes_are_read_in_every_container() {
    let place = Place::new();
    let one = row("1", &[]);
    let pretty = serde_json::to_string_pretty(&json!([one])).unwrap();
    let csv = "id,trace_id,type,start_time,parent_observation_id,input,output\n\
               o1,t1,GENERATION,2026-01-01 00:00:01,,ask 1,say 1\n";
    for (name, bytes) in [
        ("lines", lines(std::slice::from_ref(&one)).into_bytes()),
        (
            "mark",
            format!("\u{feff}{}", lines(std::slice::from_ref(&one))).into_bytes(),
        ),
        ("pretty", format!("\u{feff}{pretty}").into_bytes()),
        ("csv", csv.as_bytes().to_vec()),
        ("gz", gz(lines(&[one]).as_bytes())),
    ] {
        let out = place.at("out.parquet").display().to_string();
        let mut child = program()
            .args(["import", "-", "--overwrite", "--out", &out])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
        assert_eq!(place.inputs(), ["ask 1"], "{name}");
    }
}

#[test]
fn a_mapping_whose_path_is_nowhere_is_refused() {
    let place = Place::new();
    let data = place.write(
        "house.jsonl",
        lines(&[json!({"id": "1", "at": 1_767_225_600, "q": "ask", "a": "say"})]),
    );
    for (input, output, code) in [("q", "a", 0), ("nope", "a", 2), ("q", "nope", 2)] {
        let mapping = place.write(
            "m.toml",
            format!("[columns]\ntrace_id = 'id'\nstarted_at = 'at'\ninput = '{input}'\noutput = '{output}'\nerror = 'oops'\n"),
        );
        let ran = place.import(&data, &["--mapping", &mapping]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let told = if code == 0 { &ran.stdout } else { &ran.stderr };
        let words = if code == 0 { "`oops`" } else { "`nope`" };
        assert!(told.contains(words), "{told}");
    }
}
