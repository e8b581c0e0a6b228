//! The report: escaped, and whole in a real browser.

use crate::support::{nightmill, traces, write_parquet};

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
        !html.contains("<script") && !html.contains("<img") && !html.contains("<b>id"),
        "unescaped"
    );
    assert!(html.contains("&lt;script&gt;"));
    assert!(
        html.contains("loop-pair"),
        "the repeated output is not shown as a loop"
    );
}

/// Chromium renders the report: charts and rows are there, nothing was logged, the picture is not blank.
/// Without Chromium the test says so and passes, unless `NIGHTMILL_REQUIRE_BROWSER` is set.
#[test]
fn a_browser_shows_charts_and_rows_without_errors() {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .find(|name| {
            std::process::Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
        });
    let Some(browser) = browser else {
        assert!(
            std::env::var_os("NIGHTMILL_REQUIRE_BROWSER").is_none(),
            "no Chromium found"
        );
        eprintln!("skipped: no Chromium found");
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
    let run = |mode: &[String]| {
        let profile = tempfile::tempdir().unwrap();
        let output = std::process::Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--enable-logging=stderr",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--window-size=1280,2400",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(mode)
            .arg(format!("file://{}", out.join("report.html").display()))
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!log.contains("CONSOLE"), "the page logged something: {log}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let page = run(&["--dump-dom".into()]);
    let count = |needle: &str| page.matches(needle).count();
    assert_eq!(count("class=\"histogram"), 4, "histograms");
    assert!(count("class=\"bin") >= 80, "{} bins", count("class=\"bin"));
    assert!(count("<details class=\"session") >= 10 && count("loop-pair") >= 1);
    assert!(page.contains("id=\"end-of-report\""));
    run(&[format!("--screenshot={}", picture.display())]);
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
