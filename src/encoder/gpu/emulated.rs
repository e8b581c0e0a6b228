//! The kernels themselves, built by a C++ compiler for the CPU and held against f64.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `emulated/check.cpp` with these flags beside the usual ones.
fn built(folder: &Path, flags: &[&str]) -> PathBuf {
    let program = folder.join("check");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu");
    let mut compiler = Command::new("c++");
    compiler.args([
        "-std=c++20",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
    ]);
    compiler
        .args(["-DNIGHTMILL_EMULATED", "-pthread", "-I"])
        .arg(&sources);
    compiler.args(flags).arg("-o").arg(&program);
    let compiled = compiler
        .arg(sources.join("emulated/check.cpp"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
    program
}

fn checks(program: &Path, arguments: &[&str]) -> String {
    let ran = Command::new(program).args(arguments).output().unwrap();
    let (out, said) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    let failed: Vec<&str> = out
        .lines()
        .filter(|line| !line.starts_with("ok "))
        .collect();
    assert!(ran.status.success(), "{failed:#?}\n{said}");
    out.into_owned()
}

#[test]
fn kernels_come_to_what_f64_comes_to_and_texts_see_no_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let out = checks(&built(folder.path(), &[]), &[]);
    assert!(
        out.lines().filter(|line| line.starts_with("ok ")).count() > 150,
        "{out}"
    );
}

#[test]
fn kernels_have_no_races() {
    let folder = tempfile::tempdir().unwrap();
    checks(
        &built(folder.path(), &["-g", "-fsanitize=thread"]),
        &["short"],
    );
}

#[test]
fn kernels_read_and_write_nothing_that_is_not_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ];
    checks(&built(folder.path(), &flags), &["short"]);
}
