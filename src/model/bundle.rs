//! A model in one file, for sites without a network: a tar archive, packed by zstd, whose first member says what the others
//! are.
//!
//! What is read in is believed in nothing: names stay inside the folder, sizes and sums are those that the head says, and
//! nothing comes in but weights as safetensors, JSON and text.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Component, Path};

use tar::{Archive, Builder, EntryType, Header};

use super::ModelFolder;
use super::library::{Library, LibraryError, check_id};
use super::provenance::{PROVENANCE, Provenance, sum_of};

/// Most bytes of the head.
const MOST_OF_HEAD: u64 = 4 << 20;
/// Endings of files of a model. Others may hold code.
const ENDINGS: [&str; 4] = ["safetensors", "json", "txt", "md"];
/// Files without such an ending.
const NAMES: [&str; 3] = ["LICENSE", "NOTICE", "COPYING"];

/// Whether a file of this name may belong to a model here.
pub(super) fn may_be_of_model(name: &str) -> bool {
    let path = Path::new(name);
    let parts = path.components().map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    // Written in the one way in which a name can be: `a//b` and `a/./b` are other names of `a/b`.
    let inside = parts
        .collect::<Option<Vec<&str>>>()
        .is_some_and(|parts| !parts.is_empty() && parts.join("/") == name);
    let file = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let hidden = name.split('/').any(|part| part.starts_with('.'));
    let ending = path.extension().and_then(|ending| ending.to_str());
    let known = ending.is_some_and(|ending| ENDINGS.contains(&ending)) || NAMES.contains(&file);
    inside && !hidden && known && !name.contains('\\') && name != PROVENANCE
}

/// Writes a model into a bundle. The file appears when it is whole.
///
/// # Errors
/// [`LibraryError`] if a file can't be read or written, or the folder is no model.
pub fn export_bundle(
    folder: &ModelFolder,
    id: &str,
    out: &Path,
    overwrite: bool,
) -> Result<Provenance, LibraryError> {
    check_id(id)?;
    check_usable(folder)?;
    if out.exists() && !overwrite {
        return Err(LibraryError::Refused(format!(
            "`{}` exists already; give --overwrite to replace it",
            out.display()
        )));
    }
    let failed = |e: std::io::Error| LibraryError::io(out, e);
    let head = Provenance::of(folder, id)?;
    let beside = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut written = new_file(beside.unwrap_or(Path::new("."))).map_err(failed)?;
    let packed = zstd::Encoder::new(BufWriter::new(written.as_file_mut()), 3).map_err(failed)?;
    let mut archive = Builder::new(packed);
    let told = serde_json::to_vec_pretty(&head).map_err(|e| failed(e.into()))?;
    append(&mut archive, PROVENANCE, told.len() as u64, &told[..]).map_err(failed)?;
    for (file, sum) in &head.files {
        let reader = folder.open_file(file)?;
        append(&mut archive, file, sum.bytes, reader).map_err(failed)?;
    }
    let packed = archive.into_inner().map_err(failed)?;
    packed
        .finish()
        .and_then(|mut writer| writer.flush())
        .map_err(failed)?;
    written.as_file().sync_all().map_err(failed)?;
    written.persist(out).map_err(|e| failed(e.error))?;
    Ok(head)
}

/// A file under a temporary name that others may read as they may read all of the user's.
fn new_file(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Adds a file; equal files make equal bundles.
fn append<W: Write>(
    archive: &mut Builder<W>,
    name: &str,
    bytes: u64,
    reader: impl Read,
) -> std::io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_entry_type(EntryType::Regular);
    archive.append_data(&mut header, name, reader)
}

/// Reads a bundle into a library: the model is there when it is whole, and looked at.
///
/// # Errors
/// [`LibraryError`] naming the member that is refused, and why.
pub fn import_bundle(
    bundle: &Path,
    library: &Library,
    overwrite: bool,
) -> Result<Provenance, LibraryError> {
    let failed = |e: std::io::Error| LibraryError::io(bundle, e);
    let refuse = |what: String| LibraryError::Refused(format!("{}: {what}", bundle.display()));
    let file = File::open(bundle).map_err(failed)?;
    let unpacked = zstd::Decoder::new(BufReader::new(file)).map_err(failed)?;
    let mut archive = Archive::new(unpacked);
    let mut entries = archive.entries().map_err(failed)?;
    let not_a_bundle = |problem: &str| {
        refuse(format!(
            "it is no bundle of `nightmill models export`: {problem}"
        ))
    };
    let first = entries
        .next()
        .transpose()
        .map_err(|e| not_a_bundle(&e.to_string()))?;
    let mut first = first.ok_or_else(|| not_a_bundle("it is empty"))?;
    if first.path().map_err(failed)? != Path::new(PROVENANCE) || first.size() > MOST_OF_HEAD {
        return Err(not_a_bundle(&format!(
            "it does not begin with {PROVENANCE}"
        )));
    }
    let mut told = Vec::new();
    first.read_to_end(&mut told).map_err(failed)?;
    let head: Provenance =
        serde_json::from_slice(&told).map_err(|e| not_a_bundle(&format!("{PROVENANCE}: {e}")))?;
    let target = library.place_of_new(&head.id, overwrite)?;
    let root = library.root();
    std::fs::create_dir_all(root).map_err(|e| LibraryError::io(root, e))?;
    let made = tempfile::Builder::new()
        .prefix(".import-")
        .tempdir_in(root)
        .map_err(|e| LibraryError::io(root, e))?;
    let mut seen = BTreeSet::new();
    for entry in entries {
        let mut entry = entry.map_err(failed)?;
        let name = entry.path().map_err(failed)?.to_string_lossy().into_owned();
        let sum = head.files.get(&name);
        let Some(sum) = sum.filter(|_| may_be_of_model(&name)) else {
            return Err(refuse(format!(
                "the member `{name}` is refused: only safetensors, JSON and text that its head names come in"
            )));
        };
        if entry.header().entry_type() != EntryType::Regular {
            return Err(refuse(format!("the member `{name}` is no plain file")));
        }
        if !seen.insert(name.clone()) {
            return Err(refuse(format!("the member `{name}` is in it twice")));
        }
        if entry.size() != sum.bytes {
            return Err(refuse(format!(
                "the member `{name}` has {} bytes, and its head says {}",
                entry.size(),
                sum.bytes
            )));
        }
        let path = made.path().join(&name);
        let folder = path.parent().unwrap_or(made.path());
        std::fs::create_dir_all(folder).map_err(|e| LibraryError::io(folder, e))?;
        let mut out = File::create(&path).map_err(|e| LibraryError::io(&path, e))?;
        std::io::copy(&mut entry, &mut out).map_err(failed)?;
        out.sync_all().map_err(|e| LibraryError::io(&path, e))?;
        let mut written = File::open(&path).map_err(|e| LibraryError::io(&path, e))?;
        let found = sum_of(&mut written).map_err(|e| LibraryError::io(&path, e))?;
        if found != *sum {
            return Err(refuse(format!(
                "the member `{name}` is not what was exported: its SHA-256 is {}, and its head says {}",
                found.sha256, sum.sha256
            )));
        }
    }
    if let Some(missing) = head.files.keys().find(|name| !seen.contains(*name)) {
        return Err(refuse(format!("the member `{missing}` is missing")));
    }
    check_usable(&ModelFolder::open(made.path())?)?;
    settle(made, &head, &target, overwrite)?;
    Ok(head)
}

/// Moves a folder that is whole to its place.
pub(super) fn settle(
    made: tempfile::TempDir,
    head: &Provenance,
    target: &Path,
    overwrite: bool,
) -> Result<(), LibraryError> {
    let failed = |e: std::io::Error| LibraryError::io(target, e);
    let told = serde_json::to_vec_pretty(head).map_err(|e| failed(e.into()))?;
    std::fs::write(made.path().join(PROVENANCE), told).map_err(failed)?;
    settle_made(made, target, overwrite)
}

/// The same of a folder without a list of sums.
pub(super) fn settle_made(
    made: tempfile::TempDir,
    target: &Path,
    overwrite: bool,
) -> Result<(), LibraryError> {
    settle_folder(made.path(), target, overwrite)?;
    // It is somewhere else now.
    let _ = made.keep();
    Ok(())
}

/// The same of a folder that stays where it is if that fails.
pub(super) fn settle_folder(
    made: &Path,
    target: &Path,
    overwrite: bool,
) -> Result<(), LibraryError> {
    let failed = |e: std::io::Error| LibraryError::io(target, e);
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| LibraryError::io(folder, e))?;
    if !overwrite || !target.exists() {
        return std::fs::rename(made, target).map_err(failed);
    }
    // The old one goes when the new one is there.
    let aside = tempfile::Builder::new()
        .prefix(".old-")
        .tempdir_in(folder)
        .map_err(failed)?;
    let old = aside.path().join("model");
    std::fs::rename(target, &old).map_err(failed)?;
    std::fs::rename(made, target).or_else(|e| {
        std::fs::rename(&old, target).map_err(failed)?;
        Err(failed(e))
    })
}

/// Whether a folder is a model that this version can use: it is loaded, and nothing is encoded.
pub(super) fn check_usable(folder: &ModelFolder) -> Result<(), LibraryError> {
    let level = crate::encoder::cpu::Level::choose().map_err(LibraryError::Refused)?;
    super::Model::load(folder, level, crate::encoder::Precision::F32)?;
    Ok(())
}
