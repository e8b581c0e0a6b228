//! Every command of the documents works as written, in order.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::json;

use crate::judging::comparison::verdict_of;
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::{program, root, without_settings};

/// Commands that a test can't run inside itself.
const BUILDS: &[&str] = &["cargo test", "cargo bench", "cargo build", "cargo install"];

/// Stands in for the provider that commands name.
fn judge(asked: &Asked) -> Answer {
    Answer::reply(match asked.has_response_format {
        true => verdict_of(asked, 4),
        false => {
            let rubric = "Measures: whether it admits mistakes.\n5 - always\n0 - never";
            json!({"name": "admits_mistakes", "tier": "process", "score_type": "scored", "rubric": rubric})
        }
    })
}

/// A folder like the repository's root, for a user to whom everything is new.
struct Place {
    folder: tempfile::TempDir,
    judge: ScriptedJudge,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The commands write to runs/ below the working folder.
        std::os::unix::fs::symlink(root().join("datasets"), folder.path().join("datasets"))
            .unwrap();
        Self {
            folder,
            judge: ScriptedJudge::start(judge),
        }
    }

    /// A line for the shell, in which `nightmill` is the program.
    fn shell(&self, line: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.current_dir(self.folder.path()).arg("-c");
        shell.arg(format!("nightmill() {{ \"$PROGRAM\" \"$@\"; }}\n{line}"));
        without_settings(&mut shell);
        // There is nothing in the cache.
        shell.env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        shell.env("XDG_DATA_HOME", self.folder.path().join("data"));
        shell.env("HOME", self.folder.path());
        // No command reaches a provider.
        shell.env_remove("OPENAI_API_KEY");
        shell.env("NO_PROXY", "127.0.0.1");
        shell.env("NIGHTMILL_JUDGE_URL", self.judge.url());
        shell.env("PROGRAM", program().get_program());
        shell.output().unwrap()
    }

    /// Runs the commands in the `sh` blocks of a page, in their order. Returns each with what it printed.
    #[track_caller]
    fn commands<'p>(&self, page: &'p str) -> Vec<(&'p str, String)> {
        let blocks = page.split("```sh\n").skip(1);
        let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
        let lines = lines.map(str::trim).filter(|line| !line.is_empty());
        let mut ran = Vec::new();
        for command in lines.filter(|line| !BUILDS.iter().any(|b| line.starts_with(b))) {
            let rest = command
                .strip_prefix("cargo run --release -- ")
                .or_else(|| command.strip_prefix("nightmill "))
                .unwrap_or_else(|| panic!("a command that no test can run: {command}"));
            let output = self.shell(&format!("nightmill {rest}"));
            assert!(
                output.status.success(),
                "{command}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            ran.push((rest, String::from_utf8_lossy(&output.stdout).into_owned()));
        }
        ran
    }
}

#[track_caller]
fn assert_shown(ran: &[(&str, String)], commands: &[&str]) {
    for command in commands {
        assert!(
            ran.iter().any(|(line, _)| line.starts_with(command)),
            "no `nightmill {command}`"
        );
    }
}

/// The pages about nights: each runs by itself, from an empty folder.
#[test]
fn every_command_of_the_pages_about_nights_works() {
    let place = Place::new();
    let read = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let page = read("src/monitor/README.md");
    let ran = place.commands(&page);
    let shown = [
        "score",
        "runs changes",
        "monitor add",
        "monitor trigger",
        "runs prune",
        "runs forget",
    ];
    assert_shown(&ran, &shown);
    // Commands do what the page says they are for.
    let printed = |start: &str| {
        let of_command = ran.iter().rev().find(|(line, _)| line.starts_with(start));
        of_command.unwrap().1.as_str()
    };
    assert!(
        printed("runs changes runs/warehouse/2026-11-20").contains("night 2, against 2026-11-19")
    );
    let forgotten = printed("runs forget");
    assert!(
        forgotten.contains("traces looked for") && !forgotten.starts_with("0 traces"),
        "{forgotten}"
    );
    let html = std::fs::read_to_string(place.folder.path().join("runs/changed.html")).unwrap();
    assert!(html.contains("What changed"));
    let page = read("src/history/README.md");
    let shown = ["score", "sql --runs", "runs changes", "runs comparison"];
    assert_shown(&place.commands(&page), &shown);
    // Flags and commands that pages name in passing are there.
    let pages = [read("src/monitor/README.md"), page];
    for name in named(&pages) {
        let help = place.shell(&format!("nightmill {name} --help"));
        assert!(help.status.success(), "nightmill {name}");
    }
}

/// The pages about the order of sessions and about labels: each runs by itself, from an empty folder.
#[test]
fn every_command_of_the_pages_about_order_and_labels_works() {
    let read = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let order = read("src/metric/session_signal/README.md");
    let ran = Place::new().commands(&order);
    assert_shown(&ran, &["score", "sql"]);
    // Five sessions, from the first place on, each with its reason.
    let places = &ran
        .iter()
        .find(|(line, _)| line.starts_with("sql"))
        .unwrap()
        .1;
    assert!(places.contains("% of sessions"), "{places}");
    let place = Place::new();
    let labels = read("src/validation/README.md");
    let ran = place.commands(&labels);
    assert_shown(&ran, &["score", "validate", "calibrate"]);
    let told = &ran
        .iter()
        .find(|(line, _)| line.starts_with("validate"))
        .unwrap()
        .1;
    assert!(
        told.contains("120 sessions labelled, 36 bad (30.0 %)"),
        "{told}"
    );
    let page = std::fs::read_to_string(place.folder.path().join("runs/told.html")).unwrap();
    assert!(page.contains("What scores tell of"));
}

/// The page about models, from an empty folder.
#[test]
fn every_command_of_the_page_about_models_works() {
    let page = std::fs::read_to_string(root().join("src/model/README.md")).unwrap();
    let ran = Place::new().commands(&page);
    assert_shown(
        &ran,
        &[
            "models list",
            "models distill",
            "models export",
            "models import",
            "score",
        ],
    );
    let told = ran
        .iter()
        .find(|(line, _)| line.starts_with("models verify"));
    assert!(told.unwrap().1.contains("as they came"));
}

/// Subcommands in `nightmill …` of running text.
fn named(pages: &[String]) -> BTreeSet<String> {
    let known = ["monitor", "runs"];
    let mut found = BTreeSet::new();
    for part in pages
        .iter()
        .flat_map(|page| page.split("`nightmill ").skip(1))
    {
        let command = part.split('`').next().unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        let count = if known.contains(&words[0]) { 2 } else { 1 };
        found.insert(words[..count.min(words.len())].join(" "));
    }
    assert!(found.len() >= 3, "{found:?}");
    found
}

/// The line of cron runs last night's files, and alerts by the exit code.
#[test]
fn the_line_of_cron_alerts_by_the_exit_code() {
    let place = Place::new();
    let page = std::fs::read_to_string(root().join("src/monitor/README.md")).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("30 4 * * *"))
        .unwrap();
    let command = line.trim_start_matches("30 4 * * *").trim();
    assert!(
        !command.replace("\\%", "").contains('%'),
        "cron takes % for a newline"
    );
    let data = place.folder.path().join("data");
    let command = command
        .replace("\\%", "%")
        .replace("/data", &data.display().to_string());
    let prepare = |from: &str| {
        let _ = std::fs::remove_dir_all(&data);
        let first = format!(
            "nightmill score datasets/support/date=2026-11-19 --out {0}/runs/first && mkdir -p {0}/traces && \
             cp -r {from} {0}/traces/$(date -d yesterday +%F)",
            data.display()
        );
        let output = place.shell(&first);
        assert!(output.status.success(), "{output:?}");
    };
    let alert = |line: &str| {
        let output = place.shell(&format!("alert() {{ echo \"alert $1\"; }}\n{line}"));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = printed.lines().last().unwrap_or_default().to_owned();
        told.strip_prefix("alert ").map(str::to_owned)
    };
    prepare("datasets/support/date=2026-11-20");
    assert_eq!(alert(&command), None);
    let run = format!("ls {}/runs/$(date +%F)/report.html", data.display());
    assert!(place.shell(&run).status.success(), "the run of the night");
    // The night is there already.
    assert_eq!(alert(&command).as_deref(), Some("2"));
    let gated = command.replace(
        "--fail-on-drift",
        "--fail-on-drift --fail-under coherence=0.99",
    );
    prepare("datasets/support/date=2026-11-20");
    assert_eq!(alert(&gated).as_deref(), Some("1"));
    // A row that can't be read.
    prepare("datasets/support/date=2026-11-20");
    let broken = "echo '{\"trace_id\": 7' > ";
    let broken = format!(
        "{broken}{}/traces/$(date -d yesterday +%F)/x.jsonl",
        data.display()
    );
    assert!(place.shell(&broken).status.success());
    assert_eq!(alert(&command).as_deref(), Some("3"));
}

/// What systemd and cron are told to start, by the files that are there to be copied.
#[test]
fn the_unit_of_systemd_starts_a_tick() {
    let place = Place::new();
    let service =
        std::fs::read_to_string(root().join("scripts/nightmill-monitor.service")).unwrap();
    let installed = "/usr/local/bin/nightmill";
    let start = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let start = start.unwrap().replace(installed, "nightmill");
    let output = place.shell(&start);
    assert!(output.status.success(), "{start}: {output:?}");
    // The line for a crontab: its folder is that of the user.
    let line = service
        .lines()
        .find_map(|line| line.strip_prefix("#   */5 * * * * "));
    let line = line
        .unwrap()
        .replace("nice -n 10 ", "")
        .replace(installed, "nightmill");
    let line = line.replace(
        "/var/lib/nightmill",
        &place.folder.path().display().to_string(),
    );
    let output = place.shell(&line);
    assert!(output.status.success(), "{line}: {output:?}");
    assert!(place.folder.path().join("tick.log").exists());
    // The timer starts that service, more often than any monitor is due.
    let timer = std::fs::read_to_string(root().join("scripts/nightmill-monitor.timer")).unwrap();
    assert!(timer.contains("OnCalendar=*:0/5") && timer.contains("WantedBy=timers.target"));
}

#[test]
fn every_command_of_the_readme_works() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let place = Place::new();
    let ran = place.commands(&readme);
    let printed = &ran[0].1;
    // The output shown under the first command is what it prints, but for times and speeds, and but for the last
    // digits of scores: machines that have no bf16 compute at f32.
    let shown = readme
        .split("```text\n")
        .nth(1)
        .and_then(|block| block.split("```").next())
        .unwrap();
    let stable = shown.lines().filter(|line| {
        !line.is_empty()
            && !line.contains('…')
            && !line.contains("tokens/s")
            && !line.starts_with("time:")
    });
    let mut checked = Vec::new();
    for line in stable {
        assert!(
            printed.lines().any(|l| is_close(l, line)),
            "README shows a line that the command does not print: {line}"
        );
        checked.push(line);
    }
    // Each part of the output is shown, and each command of the program has its example.
    for part in [
        "traces in",
        "means: coherence ",
        "first to look at",
        "results:",
        "report:",
        "more:",
    ] {
        assert!(
            checked
                .iter()
                .any(|line| line.starts_with(part) || line.contains(part)),
            "{part}"
        );
    }
    let shown = [
        "score",
        "aggregate",
        "embed",
        "sql",
        "validate",
        "calibrate",
        "metrics",
        "plan",
        "runs list",
        "runs show",
        "runs verify",
        "runs summary",
        "runs distribution",
        "runs history",
        "runs comparison",
        "runs retry",
        "runs scores",
        "monitor add",
        "monitor tick",
        "monitor list",
        "metrics draft",
        "suite run",
        "suite list",
    ];
    assert_shown(&ran, &shown);
    assert!(place.judge.prompt_count() > 1, "no command asked the judge");
}

/// Whether two lines are equal, numbers with decimals within 0.005.
fn is_close(got: &str, shown: &str) -> bool {
    let (got, shown) = (got.split_whitespace(), shown.split_whitespace());
    let score = |word: &str| {
        let word = word.trim_end_matches(',');
        word.contains('.')
            .then(|| word.parse::<f64>().ok())
            .flatten()
    };
    got.clone().count() == shown.clone().count()
        && got
            .zip(shown)
            .all(|(got, shown)| match (score(got), score(shown)) {
                (Some(a), Some(b)) => (a - b).abs() < 0.005,
                _ => got == shown,
            })
}
