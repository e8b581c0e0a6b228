//! Input that can be read only once: standard input (`-`) and pipes. Everything here reads its input more than once, so it
//! goes to a temporary file first.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use tempfile::TempDir;

use super::AnyError;

/// Files that were made of pipes; gone when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Piped {
    folder: Option<TempDir>,
}

/// The name of standard input among paths.
const STDIN: &str = "-";

impl Piped {
    /// Whether there was any.
    pub fn any(&self) -> bool {
        self.folder.is_some()
    }

    /// Puts what comes through standard input and pipes among `paths` into files, which take their place.
    ///
    /// # Errors
    /// If standard input is named twice or is a terminal, or a pipe can't be read to its end.
    pub fn take(paths: &mut [String]) -> Result<Self, AnyError> {
        let mut piped = Self::default();
        let mut stdin_taken = false;
        for path in paths {
            let source: Box<dyn Read> = if path == STDIN {
                if std::mem::replace(&mut stdin_taken, true) {
                    return Err("`-`: standard input can be read once; name it once".into());
                }
                if std::io::IsTerminal::is_terminal(&std::io::stdin()) {
                    return Err("`-`: standard input is a terminal; pipe traces into it".into());
                }
                Box::new(std::io::stdin().lock())
            } else if is_pipe(Path::new(path)) {
                Box::new(File::open(&*path).map_err(|e| format!("`{path}`: {e}"))?)
            } else {
                continue;
            };
            *path = piped.keep(source).map_err(|e| format!("`{path}`: {e}"))?;
        }
        Ok(piped)
    }

    /// Writes all of a pipe to a file whose name says what is in it.
    fn keep(&mut self, mut source: impl Read) -> std::io::Result<String> {
        let folder = match &self.folder {
            Some(folder) => folder,
            None => self.folder.insert(
                tempfile::Builder::new()
                    .prefix("nightmill-piped-")
                    .tempdir()?,
            ),
        };
        let count = std::fs::read_dir(folder.path())?.count();
        let raw = folder.path().join(format!("pipe-{count}"));
        let mut file = File::create_new(&raw)?;
        std::io::copy(&mut source, &mut file)?;
        file.flush()?;
        let ending = ending(&mut std::io::BufReader::new(File::open(&raw)?))?;
        let named = raw.with_extension(ending);
        std::fs::rename(&raw, &named)?;
        Ok(named.display().to_string())
    }
}

/// What the first bytes of a pipe are, as an extension.
fn ending(kept: &mut impl BufRead) -> std::io::Result<&'static str> {
    if let Some(packed) = kept_as(kept.fill_buf()?) {
        return Ok(packed);
    }
    let mut line = Vec::new();
    loop {
        line.clear();
        if kept.by_ref().take(1 << 30).read_until(b'\n', &mut line)? == 0 {
            return Ok("jsonl");
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        let text = text.trim_ascii();
        return Ok(match text.first() {
            None => continue,
            Some(b'[') => "json",
            // A document that goes on in the next line.
            Some(b'{') if !text.ends_with(b"}") => "json",
            Some(b'{') => "jsonl",
            Some(_) if text.contains(&b',') => "csv",
            Some(_) => "jsonl",
        });
    }
}

fn kept_as(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [b'P', b'A', b'R', b'1', ..] => Some("parquet"),
        [0x1f, 0x8b, ..] => Some("gz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zst"),
        _ => None,
    }
}

fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_char_device()
    })
}
