//! Files that are read whole, up to a stated size, and YAML in them.

use std::io::Read;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::file_fault::FileError;

/// Most bytes of a file that is read whole: 256 MiB.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
/// Most values of a YAML file: about a million test cases.
const MAX_YAML_NODES: usize = 32_000_000;
/// Deepest nesting of a YAML file. Suites need seven levels.
const MAX_YAML_DEPTH: usize = 64;
/// Most values that aliases of a YAML file may stand for: a small file could ask for any time with them.
const MAX_ALIASED_EVENTS: usize = 200_000;

/// The text of a file.
pub(super) fn text_of(path: &Path, format: &'static str) -> Result<String, FileError> {
    let file = std::fs::File::open(path).map_err(|e| FileError::read(path, e))?;
    let mut bytes = Vec::new();
    // Not by its stated size: a pipe has none.
    let mut limited = file.take(MAX_FILE_BYTES + 1);
    limited
        .read_to_end(&mut bytes)
        .map_err(|e| FileError::read(path, e))?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > MAX_FILE_BYTES {
        let stated = std::fs::metadata(path).map_or(size, |of| of.len().max(size));
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            bytes: stated,
            limit: MAX_FILE_BYTES,
        });
    }
    let text = String::from_utf8(bytes);
    text.map_err(|e| FileError::syntax(path, format, format!("it is not UTF-8: {e}")))
}

/// SHA-256 of a text's bytes, in hex.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A YAML 1.2 document as a value. `yes` and `1_000` are texts, and repeated keys are errors, as for the readers that
/// Regtrace's files are written for.
pub(super) fn yaml_of(path: &Path, text: &str) -> Result<Value, FileError> {
    let options = serde_saphyr::options! {
        // A configuration may hold a key: its lines are not shown.
        with_snippet: false,
        strict_booleans: true,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED_EVENTS,
        },
        underscored_numbers_as_strings: true,
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_events: 2 * MAX_YAML_NODES,
            max_total_scalar_bytes: usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX),
        },
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| FileError::syntax(path, "YAML", e))
}

/// The keys of a YAML document that is a block of keys; none of anything else.
///
/// # Errors
/// [`FileError`] with line and column, if it is no YAML.
pub(in crate::suite) fn keys_of_yaml(
    path: &Path,
    text: &str,
) -> Result<Option<Vec<String>>, FileError> {
    Ok(match yaml_of(path, text)? {
        Value::Object(members) => Some(members.keys().cloned().collect()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Result<Value, String> {
        yaml_of(Path::new("s.yaml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn scalars_are_those_of_yaml_1_2() {
        let value = yaml("a: yes\nb: 1_000\nc: true\nd: 0.1\ne: 2026-06-01\nf: ~\ng: ''").unwrap();
        let expected = serde_json::json!({
            "a": "yes", "b": "1_000", "c": true, "d": 0.1, "e": "2026-06-01", "f": null, "g": ""
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn faults_of_yaml_name_file_and_line() {
        let problem = yaml("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(problem.contains("`s.yaml`"), "{problem}");
        assert!(problem.contains("line"), "{problem}");
        let twice = yaml("a: 1\na: 2\n").unwrap_err();
        assert!(twice.contains("duplicate"), "{twice}");
        assert!(yaml("a: .inf").is_err());
    }

    #[test]
    fn aliases_cannot_grow_without_bound() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let of = format!("*a{}, ", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{of}]\n"));
        }
        assert!(yaml(&text).is_err());
    }

    #[test]
    fn a_hash_is_sha256_in_hex() {
        let hex = sha256_hex(b"abc");
        assert!(hex.starts_with("ba7816bf8f01cfea414140de5dae2223"), "{hex}");
    }
}
