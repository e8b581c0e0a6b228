//! Where files lie that their systems wrote themselves: beside the checkout, and not everywhere.

use std::path::PathBuf;

/// A folder of samples; none where it is not here, which is an error where `NIGHTMILL_REQUIRE_SHARED` is set.
#[allow(clippy::print_stderr, reason = "says what is skipped")]
pub(super) fn folder(name: &str) -> Option<PathBuf> {
    let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/native");
    let folder = shared.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("NIGHTMILL_REQUIRE_SHARED").is_none(),
        "{} is not here",
        folder.display()
    );
    eprintln!("skipped: {} is not here", folder.display());
    None
}
