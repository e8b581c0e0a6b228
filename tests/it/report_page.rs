//! The page of a run in a real browser: the list is searched, sorted and filtered, and a link followed. Pages of made-up
//! sessions show what no sample has: hostile texts, slices, and very many sessions.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use nightmill::metric::{Rules, SignalWeights};
use nightmill::report::html;
use nightmill::summary::{
    AttentionPart, ListOrder, ListedSession, MixedScores, PageFacts, PageSessions, RankedScore,
    ShownSession, ShownTrace, Summary, TextsAt,
};
use nightmill::text::TextMode;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::support::nightmill;

fn scored(folder: &Path, more: &[&str]) -> PathBuf {
    let out = folder.join("run");
    let shown = out.display().to_string();
    let args = [&["score"], more, &["--out", &shown]].concat();
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    out
}

/// Runs a command of the page through a shell, as whoever copies it, and returns the column of session ids.
#[track_caller]
fn ids_of(command: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_nightmill");
    let line = command.replacen("nightmill", &format!("'{program}'"), 1) + " --format json";
    let mut shell = std::process::Command::new("sh");
    crate::support::without_settings(&mut shell);
    let ran = shell.arg("-c").arg(&line).output().unwrap();
    assert!(ran.status.success(), "{line}: {ran:?}");
    let rows = String::from_utf8(ran.stdout).unwrap();
    let row = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let rows = rows.lines().map(row);
    rows.map(|row| row["session_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_list_of_a_run_is_searched_sorted_and_followed() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run = scored(folder.path(), &["datasets/support"]);
    let page = run.join("report.html");
    let found = browser.drive(
        &page,
        "",
        "
        const found = { all: at('hits').textContent, rows: ids().length, top: page.querySelectorAll('.top li').length };
        found.hrefs = [...page.querySelectorAll('.top a')].map(a => a.getAttribute('href'));
        type('repeat');
        found.hits = at('hits').textContent;
        page.querySelector('[data-sort=traces]').click();
        found.sorted = page.querySelector('th[aria-sort]').textContent + page.querySelector('th[aria-sort]').getAttribute('aria-sort');
        found.traces = [...page.querySelectorAll('.list tbody tr')].map(tr => parseInt(tr.querySelector('td:nth-child(5)').firstChild.textContent));
        found.ids = ids();
        found.hash = window_.location.hash;
        at('sql').click();
        found.command = page.querySelector('#query code').textContent;
        type('');
        const signal = page.querySelector('select[data-filter=signal]');
        const choice = [...signal.options].find(option => Number(option.value) > 0);
        signal.value = choice.value;
        signal.dispatchEvent(new window_.Event('change'));
        found.filtered = ids();
        found.label = choice.textContent;
        found.filter_command = page.querySelector('#query code').textContent;
        signal.value = '';
        signal.dispatchEvent(new window_.Event('change'));
        const order = page.querySelector('select[data-order]');
        order.value = 'stagnation';
        order.dispatchEvent(new window_.Event('change'));
        found.repeats = [...page.querySelectorAll('.list tbody tr')].map(tr => parseInt(tr.querySelector('td:nth-child(3)').textContent));
        found.ordered = ids();
        found.order_command = page.querySelector('#query code').textContent;
        found.order_hash = window_.location.hash;
        at('reset').click();
        found.reset = [at('hits').textContent, at('q').value, signal.value, page.activeElement.id];
        return found;",
    );
    assert_eq!(
        (&found["all"], &found["rows"]),
        (&json!("120 sessions"), &json!(50)),
        "{found}"
    );
    assert_eq!(found["top"], 10);
    assert!(
        found["hits"].as_str().unwrap().contains(" of 120 sessions"),
        "{found}"
    );
    assert_eq!(found["sorted"], "Traces ▼descending");
    let traces: Vec<u64> = serde_json::from_value(found["traces"].clone()).unwrap();
    assert!(
        traces.len() > 5 && traces.is_sorted_by(|a, b| a >= b),
        "{traces:?}"
    );
    assert_eq!(found["hash"], "#q=repeat&sort=-traces");
    // The command finds what the page shows, in its order.
    let listed =
        |name: &str| -> Vec<String> { serde_json::from_value(found[name].clone()).unwrap() };
    let command = found["command"].as_str().unwrap();
    let (of_page, of_command) = (listed("ids"), ids_of(command));
    assert_eq!(of_page, of_command[..of_page.len()], "{command}");
    let hits = found["hits"].as_str().unwrap();
    assert_eq!(
        hits.split(' ').next().unwrap(),
        of_command.len().to_string()
    );
    let command = found["filter_command"].as_str().unwrap();
    assert!(!listed("filtered").is_empty() && found["label"].as_str().unwrap().contains('('));
    let of_command = ids_of(command);
    assert_eq!(
        listed("filtered"),
        of_command[..listed("filtered").len()],
        "{command}"
    );
    assert_eq!(found["reset"], json!(["120 sessions", "", "", "q"]));
    // By a signal, whether or not it is why a session has its place: all that repeat themselves come first.
    let repeats: Vec<u64> = serde_json::from_value(found["repeats"].clone()).unwrap();
    assert!(
        repeats[0] >= 80 && repeats.is_sorted_by(|a, b| a >= b),
        "{repeats:?}"
    );
    assert_eq!(found["order_hash"], "#sort=-stagnation");
    let of_command = ids_of(found["order_command"].as_str().unwrap());
    assert_eq!(listed("ordered"), of_command[..50]);
    // A link of another run says what is not there.
    let lost = browser.drive(
        &page,
        "#release=9.9&sort=elsewhere",
        "await wait(); return { hits: at('hits').textContent };",
    );
    let hits = lost["hits"].as_str().unwrap();
    assert!(hits.starts_with("120 sessions; not in this run"), "{hits}");
    assert!(
        hits.contains("release 9.9") && hits.contains("sort elsewhere"),
        "{hits}"
    );

    // An address opens a session, and Esc closes it: one with its texts in the page, and one without.
    let hrefs = listed("hrefs");
    let found = browser.drive(
        &page,
        &hrefs[2],
        "
        await wait();
        const open = () => [...page.querySelectorAll('details.session[open]')].map(details => details.id);
        const found = { open: open(), focus: page.activeElement.tagName };
        found.marks = page.querySelectorAll('details.session[open] mark').length;
        key('Escape');
        found.closed = open();
        found.hash = window_.location.hash;
        key('/');
        found.search = page.activeElement.id;
        page.activeElement.blur();
        page.querySelectorAll('#pages button')[3].click();
        const link = page.querySelector('.list tbody a');
        found.link = link.getAttribute('href');
        found.linked = link.textContent;
        link.click();
        await wait();
        found.opened = [at('opened').hidden, page.activeElement.id, at('opened').querySelector('h3').textContent];
        found.told = at('opened').textContent;
        found.commands = [...at('opened').querySelectorAll('code')].map(code => code.textContent);
        key('Escape');
        found.back = [at('opened').hidden, page.activeElement.getAttribute('href')];
        return found;",
    );
    assert_eq!(
        found["open"],
        json!([hrefs[2].trim_start_matches('#')]),
        "{found}"
    );
    assert_eq!(
        (&found["focus"], &found["closed"]),
        (&json!("SUMMARY"), &json!([]))
    );
    assert_eq!(
        (&found["hash"], &found["search"]),
        (&json!(""), &json!("q"))
    );
    assert!(
        found["link"].as_str().unwrap().ends_with("&page=3"),
        "{found}"
    );
    assert_eq!(found["opened"], json!([false, "opened", found["linked"]]));
    assert!(
        found["told"]
            .as_str()
            .unwrap()
            .contains("agent reliability"),
        "{found}"
    );
    assert_eq!(found["back"][0], true);
    assert!(
        found["back"][1].as_str().unwrap().starts_with("#session="),
        "{found}"
    );
    let texts = found["commands"][0].as_str().unwrap();
    let texts = texts.strip_suffix(" --format json").unwrap();
    let program = env!("CARGO_BIN_EXE_nightmill");
    let line = texts.replacen("nightmill", &format!("'{program}'"), 1);
    let mut shell = std::process::Command::new("sh");
    crate::support::without_settings(&mut shell);
    let ran = shell.arg("-c").arg(line).output().unwrap();
    assert!(
        ran.status.success() && ran.stdout.len() > 200,
        "{texts}: {ran:?}"
    );
    // What a phone, a dark room and a printer get.
    browser.assert_readable(&page, 0);
    let narrow = browser.measure(&page, 360, false);
    assert_eq!(narrow["overflow"], 0, "{narrow}");
}

fn rules() -> Rules {
    Rules {
        metrics: vec!["attention".into()],
        thresholds: std::collections::BTreeMap::new(),
        window: 3,
        weights: SignalWeights::with(&[]).unwrap(),
        text_mode: TextMode::Compat,
        null_without_evidence: true,
        gates: Vec::new(),
    }
}

fn facts() -> PageFacts {
    PageFacts {
        title: "made up".into(),
        run: "runs/made up".into(),
        model: None,
        precision: "none".into(),
        device: "none".into(),
        inputs: vec!["traces".into()],
        signals: None,
        texts: Some(TextsAt {
            tables: vec!["traces".into()],
            columns: vec!["trace_id".into(), "output".into()],
            session_id: "session_id".into(),
            project_id: "project_id".into(),
            started_at: "started_at".into(),
            flags: Vec::new(),
        }),
    }
}

fn session(at: usize, id: String) -> ListedSession {
    let ranked = |share: f64| RankedScore {
        value: (share * 10_000.0).round() / 10_000.0,
        better_than: share,
    };
    let share = (at * 7919 % 10_000) as f64 / 10_000.0;
    ListedSession {
        session_id: id,
        place: Some(at as u64 + 1),
        attention: Some(1.0 / (1.0 + at as f64)),
        why: Some(format!(
            "words in outputs: {} (more than {} % of sessions); failed tool calls: {} (more than 90 % of sessions)",
            at % 3000,
            at % 100,
            at % 7
        )),
        parts: vec![AttentionPart {
            signal: ["output_words", "failed_calls"][at % 2].into(),
            value: at as f64,
            rank: share,
        }],
        traces: at as u64 % 40 + 1,
        agent_reliability: Some(ranked(share)),
        agent_consistency: at.is_multiple_of(3).then(|| ranked(1.0 - share)),
        started_at: Some(1_790_000_000_000_000 + at as i64 * 60_000_000),
        slices: vec![
            Some(["production", "staging"][at % 2].into()),
            (!at.is_multiple_of(5)).then(|| format!("1.{}", at % 30)),
        ],
        tags: vec![["vip", "eu", "trial"][at % 3].into()],
        signals: (0..15)
            .map(|signal| Some(((at + signal) % 900) as f64 / 1000.0))
            .collect(),
        ..ListedSession::default()
    }
}

fn made_up(listed: Vec<ListedSession>, total: u64) -> PageSessions {
    PageSessions {
        total,
        order: ListOrder::Attention,
        slices: vec!["environment".into(), "release".into()],
        has_tags: true,
        signals: vec![
            "output_words",
            "longest_output",
            "vocabulary_richness",
            "tool_calls",
            "failed_calls",
            "repeated_calls",
            "misalignment",
            "stagnation",
            "disengagement",
            "satisfaction",
            "exhaustion",
            "asked_again",
            "said_again",
            "unfinished",
            "disagreement",
        ],
        listed,
        ..PageSessions::default()
    }
}

fn write_page(folder: &Path, sessions: &PageSessions) -> PathBuf {
    let summary = Summary {
        sessions: sessions.total,
        ..Summary::default()
    };
    let text = html(&facts(), &rules(), &summary, sessions, None).unwrap();
    let page = folder.join("report.html");
    std::fs::write(&page, text).unwrap();
    page
}

/// A hundred thousand sessions are less than 30 MB, and search finds what is there.
#[test]
fn a_hundred_thousand_sessions_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let id = |at: usize| {
        format!(
            "{:08x}-5a3c-4b9e-8d21-{:012x}",
            at * 2_654_435 % 0xffff_ffff,
            at
        )
    };
    let listed = (0..100_000).map(|at| session(at, id(at))).collect();
    let page = write_page(folder.path(), &made_up(listed, 2_000_000));
    let size = std::fs::metadata(&page).unwrap().len();
    assert!(size < 30_000_000, "{size} bytes");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("first 100,000 of 2,000,000 sessions"));
    assert!(text.contains("ORDER BY place OFFSET 100000"));
    let Some(browser) = Browser::find() else {
        return;
    };
    let found = browser.drive(
        &page,
        &format!("#session={}", id(77_777)),
        "
        const found = { all: at('hits').textContent, opened: at('opened').querySelector('h3').textContent };
        type('STAGING vip 1.21');
        found.hits = at('hits').textContent;
        page.querySelector('[data-sort=agent_reliability]').click();
        found.rows = ids().length;
        return found;",
    );
    assert_eq!(
        (&found["all"], &found["opened"]),
        (&json!("100,000 sessions"), &json!(id(77_777)))
    );
    let hit = |at: &usize| {
        let (of, release) = (session(*at, id(*at)), format!("1.{}", at % 30));
        let texts = [of.session_id, of.why.unwrap()];
        let found = |term: &str| {
            texts.iter().any(|text| text.contains(term))
                || (!at.is_multiple_of(5) && release.contains(term))
                || ["production", "staging"][at % 2].contains(term)
                || ["vip", "eu", "trial"][at % 3].contains(term)
        };
        ["staging", "vip", "1.21"].into_iter().all(found)
    };
    let hits = (0..100_000).filter(hit).count();
    assert!(hits > 1000);
    let told = found["hits"].as_str().unwrap().replace(',', "");
    assert!(
        told.starts_with(&format!("{hits} of 100000 sessions")),
        "{told}"
    );
    assert_eq!(found["rows"], 50);
}

const HOSTILE: [&str; 5] = [
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "\u{202e}gnp.exe \u{2066}a\"b'c`$(touch x)!\\",
    "a b&session=other#q=1%",
    "<!--<script>",
    "=HYPERLINK(\"http://x\")",
];

/// Whatever an id or a text says, it is only shown, found by its link, and no formula of a spreadsheet.
#[test]
fn hostile_texts_are_inert() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let hostile = |at: usize, text: &str| ListedSession {
        project_id: Some(HOSTILE[(at + 1) % 5].into()),
        slices: vec![Some(text.into()), None],
        tags: vec![text.into()],
        why: Some(format!("{text}; {text}")),
        ..session(at, text.to_owned())
    };
    let mut listed: Vec<ListedSession> = HOSTILE
        .iter()
        .enumerate()
        .map(|(at, text)| hostile(at, text))
        .collect();
    // The same id in another project.
    listed.push(ListedSession {
        project_id: Some("other".into()),
        ..listed[0].clone()
    });
    let mut sessions = made_up(listed, 6);
    sessions.shown = vec![ShownSession {
        row: 0,
        rows: vec![ShownTrace {
            trace_id: HOSTILE[0].into(),
            ..ShownTrace::default()
        }],
        ..ShownSession::default()
    }];
    sessions.mixed = vec![MixedScores {
        metric: "coherence".into(),
        makers: vec![(HOSTILE[0].into(), 2), ("b".into(), 1)],
    }];
    let page = write_page(folder.path(), &sessions);
    let found = browser.drive(
        &page,
        "",
        "
        const found = { title: page.title, ids: ids(), opened: [], images: page.images.length };
        let blob = null;
        window_.URL.createObjectURL = made => { blob = made; return '#'; };
        at('csv').click();
        found.csv = await blob.text();
        at('sql').click();
        for (const text of [...ids()]) {
          type(text.split(' ')[0]);
          found.commands = [...(found.commands || []), page.querySelector('#query code').textContent];
        }
        at('reset').click();
        for (let row = 0; row < 6; row++) {
          page.querySelectorAll('.list tbody a')[row].click();
          await wait();
          found.opened.push(at('opened').hidden ? page.querySelectorAll('details.session[open]').length : at('opened').querySelector('h3').textContent);
          key('Escape');
        }
        found.after = page.title;
        return found;",
    );
    assert_eq!(
        (&found["title"], &found["after"]),
        (&found["after"], &json!("made up – nightmill report")),
        "{found}"
    );
    assert_eq!(found["images"], 0);
    let cut: Vec<String> = HOSTILE
        .iter()
        .chain(&HOSTILE[..1])
        .map(|text| (*text).to_owned())
        .collect();
    assert_eq!(found["ids"], json!(cut));
    // The first has its texts in the page; the other of its id has not.
    let mut opened: Vec<Value> = HOSTILE[1..].iter().map(|text| json!(text)).collect();
    opened.insert(0, json!(1));
    opened.push(json!(HOSTILE[0]));
    assert_eq!(found["opened"], json!(opened));
    let csv = found["csv"].as_str().unwrap();
    assert!(csv.contains("\"'=HYPERLINK(\"\"http://x\"\")\""), "{csv}");
    assert!(csv.starts_with("session_id,project_id,traces,") && csv.ends_with("\r\n"));
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.records().filter(|row| row.is_ok()).count(), 6);
    // A shell takes each command apart as it is meant.
    for command in found["commands"].as_array().unwrap() {
        let line = format!(
            "nightmill() {{ printf '%s\\n' \"$#\" \"$4\"; }}; {}",
            command.as_str().unwrap()
        );
        let ran = std::process::Command::new("bash")
            .arg("-c")
            .arg(&line)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&ran.stdout),
            "4\nruns/made up\n",
            "{line}"
        );
    }
    browser.assert_readable(&page, 0);
}

/// What tools did stands in line with what was said, and two outputs that are alike stand side by side.
#[test]
fn a_session_shows_calls_errors_and_repeated_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let span = |name: &str, error: Option<&str>| json!({"kind": "TOOL", "name": name, "input": {"order": "<7>"}, "error": error});
    let outputs = [
        "Please restart the router and call again.",
        "Something else is said here.",
        "Now: please restart the router, and call again.",
    ];
    let traces = ["one", "two", "three"].into_iter().zip(outputs).enumerate();
    let traces = traces.map(|(at, (id, output))| {
        let calls = [span("look_up", Some("no such order")), span("refund", None)];
        json!({
            "trace_id": id,
            "session_id": "s",
            "started_at": format!("2026-01-01T00:00:0{at}Z"),
            "input": format!("question {id}"),
            "output": output,
            "spans": if at == 1 { &calls[..] } else { &[] },
        })
    });
    let file = folder.path().join("traces.jsonl");
    let lines: String = traces.map(|trace| format!("{trace}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let run = scored(
        folder.path(),
        &[&file.display().to_string(), "--metrics", "attention"],
    );
    let html = std::fs::read_to_string(run.join("report.html")).unwrap();
    let (_, shown) = html.split_once("id=\"shown\"").unwrap();
    for told in [
        "<li class=\"failed\"><b>✗ failed</b> <code>look_up</code>",
        "{&quot;order&quot;:&quot;&lt;7&gt;&quot;}",
        "<div class=\"error\" dir=\"auto\">no such order</div>",
        "<code>refund</code>",
        "This output repeats that of trace 1",
        "<mark>Please restart the router and call again</mark>.",
        "<mark>please restart the router, and call again</mark>.",
        "question three",
    ] {
        assert!(shown.contains(told), "no `{told}` in {shown}");
    }
    // Nothing is drawn that has nothing to say.
    for empty in [
        "id=\"metrics\"",
        "id=\"quarantine\"",
        "id=\"changes\"",
        "id=\"judges\"",
        "class=\"scores\"",
        "histogram\"",
    ] {
        assert!(!html.contains(empty), "{empty}");
    }
    // No bar that nobody has set makes anything red.
    assert!(!html.contains("class=\"bad\"") && !html.contains("class=\"word\""));
}

/// Every kind of run has a page that its browser can read, with no id twice.
#[test]
fn pages_of_all_kinds_of_runs_are_whole() {
    let browser = Browser::find();
    let kinds: [&[&str]; 4] = [
        &["datasets/support", "--metrics", "coherence"],
        &[
            "datasets/support",
            "--buckets",
            "4",
            "--metrics",
            "attention",
        ],
        &[
            "datasets/support",
            "--signals",
            "datasets/support_signals.parquet",
            "--fail-under",
            "coherence=0.99",
        ],
        &["datasets/formats/otlp.jsonl"],
    ];
    for kind in kinds {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        let shown = out.display().to_string();
        let ran = nightmill([&["score"], kind, &["--out", &shown]].concat());
        assert!(
            ran.code == Some(0) || ran.code == Some(1),
            "{kind:?}: {ran:?}"
        );
        let page = out.join("report.html");
        let html = std::fs::read_to_string(&page).unwrap();
        let mut ids = HashSet::new();
        for part in html.split(" id=\"").skip(1) {
            let id = part.split('"').next().unwrap();
            assert!(ids.insert(id), "{kind:?}: {id} is there twice");
        }
        assert!(
            html.contains("Can you trust it") && html.contains("nightmill validate"),
            "{kind:?}"
        );
        let gated = kind.contains(&"--fail-under");
        assert_eq!(
            html.contains("✗ Failed: 1 of 1 gate did not pass"),
            gated,
            "{kind:?}"
        );
        if let Some(browser) = &browser {
            let found = browser.drive(&page, "", "return [at('hits').textContent, ids().length];");
            assert!(found[1].as_u64().unwrap() > 0, "{kind:?}: {found}");
        }
    }
}
