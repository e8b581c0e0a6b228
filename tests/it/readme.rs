//! Every command of the documents works as written, in order.

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

#[test]
fn every_command_of_the_readme_works() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The commands write to runs/ below the working folder.
    std::os::unix::fs::symlink(root().join("datasets"), folder.path().join("datasets")).unwrap();
    let judge = ScriptedJudge::start(judge);
    let program_path = program().get_program().to_owned();
    let mut inside = false;
    let mut ran: Vec<&str> = Vec::new();
    let mut printed = String::new();
    for line in readme.lines() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside && !command.is_empty() => {
                if BUILDS.iter().any(|b| command.starts_with(b)) {
                    continue;
                }
                let rest = command
                    .strip_prefix("cargo run --release -- ")
                    .or_else(|| command.strip_prefix("nightmill "))
                    .unwrap_or_else(|| {
                        panic!("README has a command that no test can run: {command}")
                    });
                let mut shell = std::process::Command::new("sh");
                shell
                    .current_dir(folder.path())
                    .arg("-c")
                    .arg(format!("\"$PROGRAM\" {rest}"));
                without_settings(&mut shell);
                // As for a new user: there is nothing in the cache.
                shell.env("XDG_CACHE_HOME", folder.path().join("cache"));
                shell.env("XDG_DATA_HOME", folder.path().join("data"));
                shell.env("HOME", folder.path());
                // No command reaches a provider.
                shell.env_remove("OPENAI_API_KEY");
                shell.env("NO_PROXY", "127.0.0.1");
                shell.env("NIGHTMILL_JUDGE_URL", judge.url());
                let output = shell.env("PROGRAM", &program_path).output();
                let output = output.unwrap();
                assert!(
                    output.status.success(),
                    "{command}\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                if ran.is_empty() {
                    printed = String::from_utf8_lossy(&output.stdout).into_owned();
                }
                ran.push(rest);
            }
            _ => {}
        }
    }
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
        "rows read",
        "metric ",
        "coherence ",
        "loop_detection ",
        "agent_reliability ",
        "agent_consistency ",
        "worst sessions",
        "reliability consistency",
        "results:",
        "report:",
    ] {
        assert!(
            checked
                .iter()
                .any(|line| line.starts_with(part) || line.contains(part)),
            "{part}"
        );
    }
    for command in [
        "score",
        "aggregate",
        "embed",
        "sql",
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
    ] {
        assert!(
            ran.iter().any(|line| line.starts_with(command)),
            "README has no `nightmill {command}`"
        );
    }
    assert!(judge.prompt_count() > 1, "no command asked the judge");
}

/// Whether two lines are equal, numbers with decimals within 0.005.
fn is_close(got: &str, shown: &str) -> bool {
    let (got, shown) = (got.split_whitespace(), shown.split_whitespace());
    let score = |word: &str| {
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
