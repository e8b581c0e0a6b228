//! The report: escaped, and whole in a real browser.

use serde_json::{Map, Value, json};

use crate::browser::Browser;
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{nightmill, program, traces, write_parquet};

fn report_of(rows: &[crate::support::TraceRow<'_>]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet");
    write_parquet(&file, &[traces(rows)], 10);
    let out = folder.path().join("run");
    let ran = nightmill([
        "score",
        &file.display().to_string(),
        "--out",
        &out.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = out.join("report.html");
    (folder, report)
}

const HOSTILE: &str = "</pre></details><script>document.title='owned'</script><img src=x onerror=alert(1)> & \"quotes\" 'too'";

#[test]
fn texts_of_traces_are_escaped() {
    let (_folder, report) = report_of(&[
        (
            Some("<b>id</b>"),
            Some("<script>s</script>"),
            Some(1),
            Some(HOSTILE),
            Some(HOSTILE),
        ),
        (
            Some("b"),
            Some("<script>s</script>"),
            Some(2),
            Some("x"),
            Some(HOSTILE),
        ),
    ]);
    let html = std::fs::read_to_string(report).unwrap();
    assert!(
        !html.contains("<script>s") && !html.contains("<img") && !html.contains("<b>id"),
        "unescaped"
    );
    // The data of the page, and what works on it.
    assert_eq!(html.matches("<script").count(), 2);
    assert!(html.contains("&lt;script&gt;") && html.contains(r"\u003cscript>s"));
    assert!(
        html.contains("loop-pair"),
        "the repeated output is not shown as a loop"
    );
    assert!(!html.contains("id=\"judges\""), "nobody was asked");
}

/// A text without tags, cells and lines apart.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        let inside = part.split_once('>').map_or(part, |(_, text)| text);
        if !inside.trim().is_empty() {
            text.push_str(inside.trim());
            text.push('|');
        }
    }
    text
}

/// What judges say is hostile too: their failure codes are theirs to choose.
#[test]
fn the_report_says_what_judges_did() {
    let folder = tempfile::tempdir().unwrap();
    let lines = (0..3).map(|case| {
        let trace = json!({
            "trace_id": format!("t-{case}"),
            "session_id": format!("s-{case}"),
            "started_at": format!("2026-01-01T00:00:0{case}Z"),
            "input": format!("case-{case}"),
            "output": "done",
        });
        format!("{trace}\n")
    });
    let file = folder.path().join("traces.jsonl");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let judge = ScriptedJudge::start(|asked| {
        let properties = asked.schema.as_ref().unwrap()["properties"].clone();
        if properties.get("confidence").is_some() {
            return match asked.user.contains("case-1") {
                true => Answer::status(400, &[], "not this one"),
                false => Answer::reply(json!({"confidence": 0.25, "reason": null})),
            };
        }
        let block = json!({"score": 1, "justification": "j", "failure_code": HOSTILE, "turns": []});
        let names = properties.as_object().unwrap().keys().cloned();
        let blocks: Map<String, Value> = names.map(|name| (name, block.clone())).collect();
        Answer::reply(Value::Object(blocks))
    });
    let run = folder.path().join("run");
    let mut command = program();
    command.env("NO_PROXY", "127.0.0.1").arg("score").arg(&file);
    command.args(["--metrics", "confidence,conversation"]);
    command.args(["--judge", "openai/te<i>st", "--judge-url", &judge.url()]);
    // Three questions about traces, and two of three about conversations.
    command.args(["--max-calls", "5", "--judge-concurrency", "1"]);
    command.arg("--ledger").arg(folder.path().join("ledger.db"));
    let output = command.arg("--out").arg(&run).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");

    let html = std::fs::read_to_string(run.join("report.html")).unwrap();
    for tag in ["<script>doc", "<img", "te<i>"] {
        assert!(!html.contains(tag), "{tag} is not escaped");
    }
    let (_, section) = html.split_once("id=\"judges\"").unwrap();
    let (section, _) = section.split_once("id=\"time\"").unwrap();
    assert!(section.contains("&lt;script&gt;"), "{section}");
    let text = plain(section);
    for shown in [
        "Calls sent|5|4 answered, 1 question failed|",
        "From the ledger|0|",
        "Held back|1|",
        "|confidence|openai&#x2f;te&lt;i&gt;st|2|1|0|0.2500|0.2500|0.2500|0.2500|3|",
        "|conversation|openai&#x2f;te&lt;i&gt;st|2|0|1|0.2000|",
        "Cap reached.|--max-calls|: 5 of 5 used",
        "Overall score|20.00|",
        "Pass rate|0.0&nbsp;%|0 of 3 conversations",
        "Judged|2|with scores|Failed|0|no verdict, or no text|Pending|1|",
        "|tool routing|execution|1.00|0|2|",
        "|× 2|",
    ] {
        assert!(text.contains(shown), "no `{shown}` in {text}");
    }
    // The spread of judged metrics is drawn like that of the others.
    for metric in ["confidence", "conversation"] {
        let histogram = format!("data-metric=\"{metric}\"");
        assert!(html.contains(&histogram), "no histogram of {metric}");
    }
    // Each conversation has its verdict, and each trace what was said of it.
    let (_, shown) = html.split_once("id=\"shown\"").unwrap();
    let (shown, _) = shown.split_once("id=\"metrics\"").unwrap();
    let shown = plain(shown);
    for told in [
        "The judge on the whole conversation.|20.0 of 100, below the pass threshold",
        "|tool routing|1|",
        "|confidence 0.2500.|",
        "|confidence: failed.|",
    ] {
        assert!(shown.contains(told), "no `{told}` in {shown}");
    }
    let caps = &crate::support::summary(&run)["judge"]["caps"];
    assert_eq!(
        *caps,
        json!([{"flag": "--max-calls", "most": 5.0, "used": 5.0, "reached": true}])
    );
}

/// Charts and rows are there, nothing was logged, the picture is not blank.
#[test]
fn a_browser_shows_charts_and_rows_without_errors() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let signals = "datasets/support_signals.parquet";
    assert_eq!(
        nightmill([
            "score",
            "datasets/support",
            "--signals",
            signals,
            "--out",
            &out.display().to_string()
        ])
        .code,
        Some(0)
    );
    let picture = folder.path().join("report.png");
    let report = out.join("report.html");
    let page = browser.open(&report, &["--dump-dom"]);
    let count = |needle: &str| page.matches(needle).count();
    assert_eq!(count("class=\"histogram"), 4, "histograms");
    assert!(count("class=\"bin") >= 80, "{} bins", count("class=\"bin"));
    assert!(count("<details class=\"session") >= 10 && count("loop-pair") >= 1);
    assert!(page.contains("id=\"end-of-report\""));
    browser.open(&report, &[&format!("--screenshot={}", picture.display())]);
    let size = std::fs::metadata(&picture).unwrap().len();
    assert!(size > 30_000, "a picture of {size} bytes is blank");
}

/// pyarrow, DuckDB and Polars read a run directory back. Skipped without them, unless
/// `NIGHTMILL_REQUIRE_READERS` is set.
#[test]
fn other_readers_read_a_run_directory() {
    let python = std::env::var("NIGHTMILL_PYTHON").unwrap_or_else(|_| "python3".into());
    let there = std::process::Command::new(&python)
        .args(["-c", "import pyarrow, duckdb, polars"])
        .output();
    if !there.is_ok_and(|o| o.status.success()) {
        assert!(
            std::env::var_os("NIGHTMILL_REQUIRE_READERS").is_none(),
            "{python} lacks pyarrow, duckdb or polars"
        );
        eprintln!("skipped: {python} lacks pyarrow, duckdb or polars");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    assert_eq!(
        nightmill(["score", "datasets/support", "--out", &out]).code,
        Some(0)
    );
    let script = crate::support::root().join("scripts/check_readers.py");
    let output = std::process::Command::new(&python)
        .arg(script)
        .arg(&out)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
