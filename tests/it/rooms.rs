//! The rooms of the house: none knows a room above it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The rooms from the top to the ground. A room may use what stands on a later line, and nothing else; rooms of one line
/// don't know each other.
const ROOMS: &[&[&str]] = &[
    &["cli"],
    &["monitor"],
    &["suite"],
    &["cluster", "scorer"],
    &["report", "run"],
    &["benchmark", "export", "validation"],
    &["history"],
    &["summary"],
    &["job"],
    &["conversation"],
    &["engine"],
    &["output"],
    &["judge"],
    &["embed"],
    &["selection"],
    &["metric"],
    &["question"],
    &["model", "trace"],
    &["store"],
    &["encoder", "text"],
];

/// The arrows that are too many in a text of a room: the rooms that it names and may not know.
fn forbidden(room: &str, text: &str) -> Vec<String> {
    let floor = |name: &str| ROOMS.iter().position(|rooms| rooms.contains(&name));
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        // `use crate::{a, b::c}` hides rooms from this test.
        assert!(
            !rest.starts_with('{'),
            "{room}: write `use crate::ROOM::…`, one line a room"
        );
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let named = &rest[..end.unwrap_or(rest.len())];
        let Some(below) = floor(named) else {
            continue;
        };
        if named != room && floor(room).is_none_or(|own| own >= below) {
            found.push(named.to_owned());
        }
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn no_room_knows_a_room_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut rooms = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in rust_files(&source) {
        let inside = file.strip_prefix(&source).unwrap();
        let room = inside.components().next().unwrap();
        let room = room.as_os_str().to_str().unwrap().trim_end_matches(".rs");
        // These are crates: the compiler keeps their borders.
        if ["lib", "main", "encoder", "python"].contains(&room) {
            continue;
        }
        assert!(
            ROOMS.iter().any(|rooms| rooms.contains(&room)),
            "src/{room} has no place among the rooms"
        );
        *rooms.entry(room.to_owned()).or_insert(0) += 1;
        let text = std::fs::read_to_string(&file).unwrap();
        let named = forbidden(room, &text);
        wrong.extend(
            named
                .iter()
                .map(|named| format!("{}: crate::{named}", inside.display())),
        );
    }
    assert!(
        wrong.is_empty(),
        "arrows that point up:\n{}",
        wrong.join("\n")
    );
    // Every room that has a place is there.
    for room in ROOMS
        .iter()
        .copied()
        .flatten()
        .filter(|room| **room != "encoder")
    {
        assert!(rooms.contains_key(*room), "src/{room} is not there");
    }
}

/// Whoever uses the library gives a job as a value; only the command line has flags.
#[test]
fn no_room_below_the_command_line_knows_clap() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let below = rust_files(&source).into_iter().filter(|file| {
        let inside = file.strip_prefix(&source).unwrap();
        !inside.starts_with("cli")
    });
    for file in below {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("clap::"), "{}", file.display());
    }
}

#[test]
fn an_arrow_up_is_seen() {
    assert_eq!(forbidden("trace", "use crate::run::score;"), ["run"]);
    assert_eq!(forbidden("run", "crate::report::html(x)"), ["report"]);
    assert_eq!(forbidden("text", "use crate::trace::RowAt;"), ["trace"]);
    assert!(
        forbidden(
            "run",
            "use crate::history::x; crate::run::y; crate::text::z"
        )
        .is_empty()
    );
}
