//! Settings: one list for flags, variables and files, and what help and shells know of it.

use crate::support::{nightmill, program};

fn help(subcommand: &str) -> String {
    let ran = nightmill([subcommand, "--help"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

/// The ten that matter stand first; the others under their themes, with the values that they can have.
#[test]
fn help_is_grouped_and_shows_what_values_there_are() {
    let help = help("score");
    let at = |text: &str| {
        help.find(text)
            .unwrap_or_else(|| panic!("{text} is not in\n{help}"))
    };
    let input = at("\nInput:");
    for first in [
        "--out",
        "--metrics",
        "--model",
        "--judge ",
        "--max-cost",
        "--fail-under",
        "--memory-limit",
        "--threads",
        "--overwrite",
        "--json ",
    ] {
        assert!(at(first) < input, "{first} does not stand first");
    }
    let themes = [
        "\nInput:",
        "\nScores:",
        "\nEncoder and cache:",
        "\nJudges:",
        "\nWhat is judged:",
        "\nHow judges are asked:",
        "\nLimits of judging:",
        "\nJudging in batches:",
    ];
    assert!(themes.map(at).is_sorted());
    let words: Vec<&str> = help.split_whitespace().collect();
    let unwrapped = words.join(" ");
    for values in [
        "[possible values: auto, parquet, jsonl, otlp, tempo,",
        "[possible values: auto, cpu, cuda, cuda:0, ",
        "[possible values: fail, skip]",
    ] {
        assert!(unwrapped.contains(values), "{values}");
    }
}

#[test]
fn commands_offer_no_setting_that_they_refuse() {
    assert!(!help("aggregate").contains("--judge"));
    assert!(!help("conversations").contains("--window"));
    assert!(!help("embed").contains("--metrics"));
    assert!(help("embed").contains("[default: none]"));
}

/// Wherever a value comes from, the same is wrong with it.
#[test]
fn a_wrong_value_is_named_from_file_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("night.toml");
    std::fs::write(&file, "device = \"gpu\"\n").unwrap();
    let score = || {
        let mut command = program();
        command.args(["score", "datasets/support", "--out"]);
        command.arg(folder.path().join("run"));
        command
    };
    let (mut of_file, mut of_variable) = (score(), score());
    of_file.arg("--config").arg(&file);
    of_variable.env("NIGHTMILL_DEVICE", "gpu");
    for mut command in [of_file, of_variable] {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let problem = "--device gpu: choose auto or cpu or cuda or cuda:0 or ";
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn shells_learn_commands_flags_and_values() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = nightmill(["completions", shell]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for word in ["score", "memory-limit", "on-bad-file"] {
            assert!(ran.stdout.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(nightmill(["completions", "tcl"]).code, Some(2));
}
