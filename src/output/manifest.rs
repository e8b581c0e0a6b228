//! `manifest.json`: everything that could change a number, and what the directory holds. Written
//! last: a directory with a manifest is finished.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::embed::EmbeddingService;
use crate::metric::Rules;
use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError};
use crate::text::origin_of;
use crate::trace::{Buckets, SourceFile};

#[derive(Serialize)]
pub(crate) struct File {
    bytes: u64,
    blake3: String,
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RunError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| RunError::write(path, e))?;
    text.push('\n');
    std::fs::write(path, text).map_err(|e| RunError::write(path, e))
}

/// The last member of a manifest: the hash of its text, with zeros in the place of the hash.
const CHECK: &str = "check";
const UNCHECKED: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Writes a manifest, with a check over its own text.
pub(crate) fn write_sealed(path: &Path, manifest: &Value) -> Result<(), RunError> {
    let mut manifest = manifest.clone();
    if let Some(members) = manifest.as_object_mut() {
        members.shift_remove(CHECK);
        members.insert(CHECK.into(), UNCHECKED.into());
    }
    let mut text = serde_json::to_string_pretty(&manifest).map_err(|e| RunError::write(path, e))?;
    text.push('\n');
    if let Some(at) = text.rfind(UNCHECKED) {
        let check = blake3::hash(text.as_bytes()).to_hex();
        text.replace_range(at..at + UNCHECKED.len(), &check);
    }
    std::fs::write(path, text).map_err(|e| RunError::write(path, e))
}

/// What the check of a manifest says.
pub(crate) enum Sealed {
    Whole,
    /// There is none: an earlier version wrote the manifest.
    Unsealed,
    Broken,
}

/// Looks at the check in a manifest's text.
pub(crate) fn sealed(text: &[u8]) -> Sealed {
    let Ok(text) = std::str::from_utf8(text) else {
        return Sealed::Broken;
    };
    let member = format!("\"{CHECK}\": \"");
    let Some(at) = text.rfind(&member).map(|at| at + member.len()) else {
        return Sealed::Unsealed;
    };
    let (before, rest) = text.split_at(at);
    let Some((found, after)) = rest.split_at_checked(UNCHECKED.len()) else {
        return Sealed::Broken;
    };
    let mut hasher = blake3::Hasher::new();
    for part in [before, UNCHECKED, after] {
        hasher.update(part.as_bytes());
    }
    match hasher.finalize().to_hex().as_str() == found {
        true => Sealed::Whole,
        false => Sealed::Broken,
    }
}

/// Length and BLAKE3 hash of a file.
pub(crate) fn hash_of(path: &Path) -> std::io::Result<(u64, String)> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut buffer, mut bytes) = (blake3::Hasher::new(), vec![0; 1 << 16], 0);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((bytes, hash.finalize().to_hex().to_string()));
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
    }
}

/// Length and BLAKE3 hash of every result file.
pub(crate) fn checksums(run: &Path) -> Result<BTreeMap<String, File>, RunError> {
    let mut files = BTreeMap::new();
    for entry in walkdir::WalkDir::new(run).sort_by_file_name() {
        let entry = entry.map_err(|e| RunError::write(run, e))?;
        let name = entry.path().strip_prefix(run).unwrap_or(entry.path());
        let hidden =
            name.starts_with("work") || entry.file_name().to_string_lossy().starts_with('.');
        if !entry.file_type().is_file() || hidden {
            continue;
        }
        let hashed = hash_of(entry.path()).map_err(|e| RunError::write(entry.path(), e));
        let (bytes, blake3) = hashed?;
        files.insert(name.to_string_lossy().into_owned(), File { bytes, blake3 });
    }
    Ok(files)
}

/// The member that names the run, or runs, whose failures a run asks again.
pub(crate) const RETRY_OF: &str = "retry_of";

/// The member that names the run that a run continues.
pub(crate) const CONTINUES: &str = "continues";

/// The member that says in how many buckets the sessions of a run are, if there are several.
const BUCKETS: &str = "buckets";

/// In how many buckets the sessions of a run with this manifest are.
pub(crate) fn buckets_of(manifest: &Value) -> Buckets {
    let count = manifest.get(BUCKETS).and_then(Value::as_u64);
    let count = count.and_then(|count| usize::try_from(count).ok());
    count.and_then(Buckets::new).unwrap_or(Buckets::ONE)
}

/// The model's part of the manifest. `folder` is where the model came from; none for the one inside the program.
pub(crate) fn model(service: &EmbeddingService, folder: Option<&Path>) -> Value {
    let model = service.model();
    json!({
        "name": model.name,
        "origin": folder.map_or("shipped".into(), |p| p.display().to_string()),
        "sha256": model.sha256,
        "stored_precision": model.stored_precision,
        "max_tokens": model.tokenizer.max_tokens(),
        "dim": service.dim(),
        "precision": model.encoder.precision(),
        "fidelity": model.fidelity.map(|f| json!({
            "mean_cosine_to_f32": f.mean,
            "least_cosine_to_f32": f.least,
            "source": if f.measured { "measured" } else { "constant" },
        })),
        "device": model.encoder.device(),
    })
}

/// What scores come from, beside the traces.
#[derive(Default)]
pub(crate) struct Origins<'a> {
    /// The embedding model, see [`model`]; null if there was none.
    pub model: Value,
    /// Judges and whom they were asked about; null if none were.
    pub judge: Value,
    /// The file of given signals.
    pub signals: Option<&'a str>,
    /// What the run was asked, to ask for it again; null if nothing of it can be.
    pub request: Value,
    /// The name of the run, if it has another than its directory.
    pub name: Option<&'a str>,
    /// The monitor that the run is of.
    pub monitor_id: Option<&'a str>,
    /// The metrics that were asked for, if the rules name more.
    pub metric_names: Option<&'a [String]>,
    /// The run whose failures this one asks again, if it does.
    pub retry: Option<Value>,
    /// The run that this one continues, if it does; see [`CONTINUES`].
    pub continues: Option<Value>,
    /// The calibration that it goes by, if it does: its file, origin and content.
    pub calibration: Option<Value>,
    /// In how many buckets the sessions are, if there are several.
    pub buckets: u32,
}

/// Writes the manifest of a folder of tables that is no run: it has no scores, and no rules.
pub(crate) fn write_of_inputs(
    folder: &RunDirectory,
    command: &str,
    inputs: &[&PathBuf],
) -> Result<(), RunError> {
    let inputs = inputs
        .iter()
        .map(|input| json!({ "path": origin_of(input) }));
    let manifest = json!({
        "format": 1,
        "nightmill": env!("CARGO_PKG_VERSION"),
        "command": command,
        "created_at": now(),
        "inputs": inputs.collect::<Vec<_>>(),
        "files": checksums(folder.path())?,
    });
    write_sealed(&folder.path().join(MANIFEST), &manifest)
}

/// Puts the length and hash of files of a run that were written since its manifest into that manifest.
pub(crate) fn renew(run: &RunDirectory, files: &[&str]) -> Result<(), RunError> {
    let path = run.path().join(MANIFEST);
    let failed = |e: std::io::Error| RunError::write(&path, e);
    let text = std::fs::read(&path).map_err(failed)?;
    let mut manifest: Value = serde_json::from_slice(&text).map_err(|e| failed(e.into()))?;
    if let Some(listed) = manifest["files"].as_object_mut() {
        for name in files {
            let file = run.path().join(name);
            let (bytes, blake3) = hash_of(&file).map_err(|e| RunError::write(&file, e))?;
            listed.insert((*name).to_owned(), json!(File { bytes, blake3 }));
        }
        listed.sort_keys();
    }
    write_sealed(&path, &manifest)
}

/// This moment, as manifests have it: to the millisecond, so that runs that follow each other within a second keep
/// their order.
pub(crate) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// What no other run has: of its place and the moment. Unlike its path, it stays when the directory is moved.
fn identity(run: &RunDirectory) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(run.path().as_os_str().as_encoded_bytes());
    let moment = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true);
    hasher.update(moment.as_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

/// What decides scores, beside the model and the judge.
pub(crate) fn rules_of(rules: &Rules) -> Value {
    json!({
        "metrics": rules.metrics,
        "thresholds": rules.metrics.iter().map(|m| (m.clone(), json!(rules.threshold(m)))).collect::<serde_json::Map<_, _>>(),
        "window": rules.window,
        "weights": rules.weights.iter().map(|(n, w)| (n.to_owned(), json!(w))).collect::<serde_json::Map<_, _>>(),
        "text_mode": rules.text_mode.name(),
        "on_no_evaluable": if rules.null_without_evidence { "null" } else { "one" },
    })
}

/// Writes the manifest of a run over any files.
pub(crate) fn write<'f>(
    run: &RunDirectory,
    command: &str,
    files: impl Iterator<Item = &'f SourceFile>,
    rules: &Rules,
    origins: Origins<'_>,
    counts: Value,
) -> Result<(), RunError> {
    let inputs: Vec<Value> = files
        .flat_map(SourceFile::given)
        .map(|path| {
            let bytes = std::fs::metadata(path).map(|m| m.len()).ok();
            json!({ "path": origin_of(path), "bytes": bytes })
        })
        .collect();
    let mut manifest = json!({
        "format": 1,
        "nightmill": env!("CARGO_PKG_VERSION"),
        "command": command,
        "created_at": now(),
        "identity": identity(run),
        "inputs": inputs,
        "signals": origins.signals,
        "model": origins.model,
        "judge": origins.judge,
        "rules": rules_of(rules),
        "counts": counts,
        "files": checksums(run.path())?,
    });
    if let Some(manifest) = manifest.as_object_mut() {
        if let Some(name) = origins.name {
            manifest.insert("name".into(), name.into());
        }
        if let Some(names) = origins.metric_names {
            manifest.insert("metric_names".into(), json!(names));
        }
        if origins.buckets > 1 {
            manifest.insert(BUCKETS.into(), origins.buckets.into());
        }
        if let Some(continues) = origins.continues {
            manifest.insert(CONTINUES.into(), continues);
        }
        if let Some(calibration) = origins.calibration {
            manifest.insert("calibration".into(), calibration);
        }
        if let Some(retried) = origins.retry {
            manifest.insert(RETRY_OF.into(), retried);
        }
        if let Some(monitor) = origins.monitor_id {
            manifest.insert("monitor_id".into(), monitor.into());
        }
        if !origins.request.is_null() {
            manifest.insert("request".into(), origins.request);
        }
    }
    write_sealed(&run.path().join(MANIFEST), &manifest)
}
