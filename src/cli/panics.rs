//! Panics: a decoder has assertions that corrupt files can reach; any other panic is a defect of ours, and looks like one.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::Mutex;

/// Crates that decode what is in files, as their folders are called.
const DECODERS: [&str; 12] = [
    "parquet-",
    "arrow-",
    "brotli",
    "snap-",
    "lz4",
    "zstd",
    "flate2-",
    "miniz_oxide-",
    "zlib-rs-",
    "thrift-",
    "simdutf8-",
    "bytes-",
];

/// Where panics of this process were, by their messages: one of another thread comes up without its place.
static SEEN: Mutex<Vec<(String, Place)>> = Mutex::new(Vec::new());
/// Readers catch panics of decoders, as many as there are corrupt files: no more are remembered.
const MOST_SEEN: usize = 1000;

#[derive(Clone, Debug)]
struct Place {
    file: String,
    line: u32,
}

/// Keeps panics out of the terminal, and remembers where they were.
pub(super) fn watch() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        tracing::debug!("{panic}");
        let (Some(place), Ok(mut seen)) = (panic.location(), SEEN.lock()) else {
            return;
        };
        if seen.len() < MOST_SEEN {
            let place = Place {
                file: place.file().to_owned(),
                line: place.line(),
            };
            seen.push((text_of(panic.payload()).to_owned(), place));
        }
    }));
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// What a panic means to whoever runs the program.
pub(super) fn told(panic: &(dyn Any + Send)) -> String {
    let text = text_of(panic);
    let seen = SEEN.lock().map(|seen| seen.clone()).unwrap_or_default();
    let place = seen.iter().rev().find(|(message, _)| message == text);
    told_of(text, place.map(|(_, place)| place))
}

fn told_of(text: &str, place: Option<&Place>) -> String {
    let of_registry = |place: &Place| {
        let mut folders = place.file.split(['/', '\\']);
        folders.any(|folder| DECODERS.iter().any(|decoder| folder.starts_with(decoder)))
    };
    match place {
        Some(place) if of_registry(place) => format!(
            "an input file is corrupt: its decoder gave up ({text}); read the files one by one to find it"
        ),
        Some(Place { file, line }) => format!(
            "this is a defect of nightmill {}, at {file}:{line}: {text}; please report this line with the command",
            env!("CARGO_PKG_VERSION")
        ),
        None => format!(
            "this is a defect of nightmill: {text}; please report this line with the command"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str) -> String {
        let place = Place {
            file: file.to_owned(),
            line: 7,
        };
        told_of("index out of bounds", Some(&place))
    }

    #[test]
    fn only_decoders_blame_the_file() {
        for file in [
            "/home/u/.cargo/registry/src/index-1/parquet-59.3.0/src/file/reader.rs",
            "C:\\cargo\\registry\\src\\index-1\\arrow-array-59.3.0\\src\\lib.rs",
            "/r/snap-1.1.1/src/decompress.rs",
        ] {
            assert!(at(file).starts_with("an input file is corrupt"), "{file}");
        }
        for file in [
            "src/run/score.rs",
            "/r/datafusion-physical-plan-55.2.0/src/sorts/sort.rs",
            "/r/tokio-1.50.0/src/runtime/task.rs",
        ] {
            let told = at(file);
            assert!(told.starts_with("this is a defect"), "{told}");
            assert!(told.contains(&format!("{file}:7")), "{told}");
        }
        assert!(told_of("x", None).contains("defect"));
    }
}
