//! The kit that measures a card, with a program that stands for the measurements.
#![cfg(target_os = "linux")]

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

/// Runs the kit where PyTorch can't be had and the sanitizer finds nothing.
fn run(kit: &Path) -> (bool, Value) {
    let put = |name: &str, text: &str| {
        let path = kit.join("tools").join(name);
        std::fs::create_dir_all(kit.join("tools")).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    put("torch.py", "raise ImportError('not here')\n");
    put(
        "compute-sanitizer",
        "#!/bin/sh\necho '== ERROR SUMMARY: 0 errors'\n",
    );
    put("nvidia-smi", "#!/bin/sh\necho 'X, 580.1'\n");
    let path = std::env::var("PATH").unwrap();
    let ran = Command::new("bash")
        .arg(kit.join("gpu-kit.sh"))
        .args(["run", "found"])
        .env("PATH", format!("{}:{path}", kit.join("tools").display()))
        .env("PYTHONPATH", kit.join("tools"))
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
    assert_eq!(found["driver"], "X, 580.1");
    assert_eq!(found["compute_sanitizer"], "== ERROR SUMMARY: 0 errors");
    assert!(found["pytorch"].as_str().unwrap().contains("not measured"));
    assert!(found["date"].is_string());
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
