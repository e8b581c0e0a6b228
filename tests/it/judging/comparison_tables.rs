//! `nightmill runs comparison --out`: the tables say what the JSON says.

use serde_json::{Value, json};

use super::comparison::{json_of, runs, two_runs};
use super::scene::expect;
use super::tables::Table;
use crate::support::entries;

/// A column of numbers, texts or flags against the same member of JSON rows.
#[track_caller]
fn assert_column(table: &Table, column: &str, rows: &[Value], member: &str) {
    let expected: Vec<&Value> = rows.iter().map(|row| &row[member]).collect();
    let found: Vec<Value> = match expected.iter().find(|value| !value.is_null()) {
        Some(Value::String(_)) => table.texts(column).iter().map(|v| json!(v)).collect(),
        Some(Value::Bool(_)) => table.flags(column).iter().map(|v| json!(v)).collect(),
        Some(Value::Array(_)) => table.lists(column).iter().map(|v| json!(v)).collect(),
        _ => table.numbers(column).iter().map(|v| json!(v)).collect(),
    };
    assert_eq!(found.len(), expected.len(), "{column}");
    for (found, expected) in found.iter().zip(expected) {
        match (found.as_f64(), expected.as_f64()) {
            (Some(found), Some(expected)) => assert_eq!(found, expected, "{column}"),
            _ => assert_eq!(found, expected, "{column}"),
        }
    }
}

/// Every member of the rows has a column, but for those that tables hold elsewhere.
#[track_caller]
fn assert_table(table: &Table, rows: &[Value], elsewhere: &[&str]) {
    assert!(!rows.is_empty());
    for member in rows[0].as_object().unwrap().keys() {
        match elsewhere.contains(&member.as_str()) {
            true => assert!(!table.names().contains(member), "{member}"),
            false => assert_column(table, member, rows, member),
        }
    }
    for (column, run) in [("baseline", "old"), ("candidate", "new")] {
        let name = vec![Some(run.to_owned()); rows.len()];
        assert_eq!(table.texts(column), name, "{column}");
    }
}

#[test]
fn the_tables_hold_what_the_json_holds() {
    let scene = two_runs();
    let compare = ["comparison", "old", "new", "--out", "compared"];
    let shown = json_of(1, &mut runs(&scene, &compare));
    let folder = scene.at("compared");
    let found = &shown["conversations"];
    let table = |name: &str| Table::of(&folder, name);

    let pair = table("run_comparison");
    assert_table(
        &pair,
        std::slice::from_ref(&found["aggregate"]),
        &["per_metric"],
    );
    let whole = std::slice::from_ref(found);
    for member in [
        "regression_detected",
        "reasons",
        "baseline_only",
        "candidate_only",
    ] {
        assert_column(&pair, member, whole, member);
    }
    let limits = std::slice::from_ref(&found["thresholds"]);
    for member in limits[0].as_object().unwrap().keys() {
        assert_column(&pair, member, limits, member);
    }
    let differences = std::slice::from_ref(&found["differences"]);
    for member in ["warnings", "infrastructure_notes"] {
        assert_column(&pair, member, differences, member);
    }
    let sides = [&found["baseline"], &found["candidate"]];
    for (column, side) in ["baseline_model", "candidate_model"].iter().zip(sides) {
        assert_column(&pair, column, std::slice::from_ref(side), "model");
    }

    let cases = found["cases"].as_array().unwrap();
    assert_table(&table("run_comparison_cases"), cases, &["metric_deltas"]);
    let per_metric = found["aggregate"]["per_metric"].as_array().unwrap();
    assert_table(&table("run_comparison_metrics"), per_metric, &[]);
    let deltas: Vec<Value> = cases
        .iter()
        .flat_map(|case| {
            let deltas = case["metric_deltas"].as_array().unwrap().iter();
            deltas.map(|delta| {
                let mut row = delta.clone();
                row["test_case"] = case["test_case"].clone();
                row
            })
        })
        .collect();
    assert_eq!(deltas.len(), 24);
    assert_table(&table("run_comparison_case_metrics"), &deltas, &[]);

    let readme = std::fs::read_to_string(crate::support::root().join("src/run/README.md")).unwrap();
    for name in [
        "run_comparison",
        "run_comparison_metrics",
        "run_comparison_cases",
        "run_comparison_case_metrics",
    ] {
        // From the table's name at the beginning of a line to the next one's.
        let from = readme.find(&format!("\n`{name}`, ")).unwrap() + 1;
        let rest = &readme[from..];
        let told = &rest[..rest.find("\n\n`").unwrap_or(rest.len())];
        // The first two name the runs.
        for column in table(name).names().iter().skip(2) {
            assert!(told.contains(&format!("`{column}`")), "{name}: {column}");
        }
    }

    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("summary.json"), shown);
    let manifest = read("manifest.json");
    assert_eq!(manifest["command"], "runs comparison");
    assert_eq!(manifest["files"].as_object().unwrap().len(), 5);
    let path = folder.display().to_string();
    let sql =
        format!("SELECT test_case FROM '{path}/run_comparison_cases' WHERE status = 'regression'");
    let asked = expect(0, crate::support::program().args(["sql", &sql]));
    assert!(asked.stdout.contains("s-0"), "{asked:?}");
}

#[test]
fn a_comparison_replaces_only_a_comparison_and_is_no_run() {
    let scene = two_runs();
    let compare = ["comparison", "old", "new", "--out"];
    let into = |code: i32, out: &str, more: &[&str]| {
        let mut command = runs(&scene, &[&compare[..], &[out], more].concat());
        expect(code, &mut command)
    };
    let ran = into(1, "compared", &[]);
    assert!(ran.stdout.contains("tables: "), "{ran:?}");
    let before = entries(scene.folder());
    let refused = into(2, "compared", &[]);
    assert!(refused.stderr.contains("--overwrite"), "{refused:?}");
    into(1, "compared", &["--overwrite"]);
    // Neither a run, be it one of the two, nor a folder of other things.
    into(
        0,
        "other",
        &["--max-pass-rate-drop", "1", "--max-avg-score-drop", "100"],
    );
    std::fs::write(scene.at("other/notes.txt"), "mine").unwrap();
    for (out, words) in [("new", "is a run"), ("other", "notes.txt")] {
        let refused = into(2, out, &["--overwrite"]);
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    std::fs::remove_dir_all(scene.at("other")).unwrap();
    assert_eq!(entries(scene.folder()), before, "nothing is left behind");

    let listed = expect(0, &mut runs(&scene, &["list", ".", "--json"]));
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let names: Vec<&Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["name"])
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let refused = expect(2, &mut runs(&scene, &["list", "compared"]));
    assert!(refused.stderr.contains("no run directory"), "{refused:?}");
    for idle in [["--overwrite", "--json"], ["--metric", "conversation"]] {
        let mut command = runs(&scene, &["comparison", "old", "new"]);
        command.args(idle);
        if idle[0] == "--metric" {
            command.args(["--out", "x"]);
        }
        expect(2, &mut command);
    }
    assert!(!scene.at("x").exists());
}
