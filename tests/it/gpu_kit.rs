//! The kit that measures a card, with a program that stands for the measurements.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::root;

/// A kit as `scripts/gpu-kit.sh pack` makes it, with this script in the place of the measurements.
fn kit(program: &str) -> tempfile::TempDir {
    let kit = tempfile::tempdir().unwrap();
    std::fs::copy(
        root().join("scripts/gpu-kit.sh"),
        kit.path().join("gpu-kit.sh"),
    )
    .unwrap();
    std::fs::write(kit.path().join("commit"), "abc123\n").unwrap();
    let gpu = kit.path().join("gpu");
    std::fs::write(&gpu, format!("#!/bin/sh\n{program}\n")).unwrap();
    std::fs::set_permissions(&gpu, std::fs::Permissions::from_mode(0o755)).unwrap();
    kit
}

fn run(kit: &Path) -> (bool, Value) {
    let ran = Command::new("bash")
        .arg(kit.join("gpu-kit.sh"))
        .args(["run", "found"])
        .output()
        .unwrap();
    let text = std::fs::read_to_string(kit.join("found/kit.json")).unwrap();
    (ran.status.success(), serde_json::from_str(&text).unwrap())
}

#[test]
fn all_parts_are_in_the_kits_json() {
    let kit = kit(r#"echo '{"part":"card","card":"X"}'
        echo '{"part":"model","model":"a"}'
        echo '{"part":"model","model":"b"}'"#);
    let (whole, found) = run(kit.path());
    assert!(whole);
    assert_eq!(found["commit"], "abc123");
    assert_eq!(found["card"]["card"], "X");
    assert_eq!(found["models"][1]["model"], "b");
    assert!(found["driver"].is_string() && found["date"].is_string());
}

#[test]
fn what_was_measured_before_a_card_failed_stays() {
    let kit = kit(r#"echo '{"part":"model","model":"a"}'
        printf '{"part":"mod'
        exit 3"#);
    let (whole, found) = run(kit.path());
    assert!(!whole, "a part is missing");
    assert_eq!(found["models"].as_array().unwrap().len(), 1);
}
