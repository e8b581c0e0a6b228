//! The files of a run, ready to be read: files of other formats are made into files of nightmill's own columns first.

use std::path::{Path, PathBuf};

use crate::output::RunError;
use crate::run::ScoreRequest;
use crate::text::origin_of;
use crate::trace::format::convert;
use crate::trace::{Quarantine, SourceFile};

/// What a run reads.
pub(super) struct Inputs {
    /// Files of nightmill's own columns.
    pub files: Vec<SourceFile>,
    /// What there is to say of files of other formats.
    pub notes: Vec<String>,
    /// Documents of theirs that could not be read.
    pub set_aside: Quarantine,
}

/// The files of a request; `work` is a folder for those that have to be made.
///
/// # Errors
/// [`RunError`] for a file that can't be read, and for a disk that can't be written to.
pub(super) fn inputs(request: &ScoreRequest, work: &Path) -> Result<Inputs, RunError> {
    let found = &request.found;
    let mut inputs = Inputs {
        files: found.native.clone(),
        notes: Vec::new(),
        set_aside: Quarantine::default(),
    };
    found.set_damaged_aside(&inputs.set_aside);
    inputs.notes.extend(passed_over(&found.passed_over));
    if found.foreign.is_empty() {
        return Ok(inputs);
    }
    let folder = work.join("converted");
    std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
    let target = folder.join("traces.parquet");
    let converted = convert(
        &found.foreign,
        &target,
        &folder,
        request.rules.text_mode,
        request.engine.memory_limit / 4,
        request.on_bad_file,
        &inputs.set_aside,
    )?;
    inputs.notes.extend(converted.lines);
    inputs.files.extend(converted.file);
    if inputs.files.is_empty() {
        let why = inputs.set_aside.sorted().into_iter().next();
        let why = why.map_or_else(String::new, |entry| {
            format!(
                ": {}, row {}: {}",
                entry.file.display(),
                entry.first_row,
                entry.reason
            )
        });
        return Err(RunError::Request(format!(
            "there is no trace in these files{why}"
        )));
    }
    Ok(inputs)
}

impl Inputs {
    /// Names the files that were given where the quarantine names one that was made of them.
    pub fn name_given(&self, quarantine: &Quarantine) {
        for file in &self.files {
            let given = match file.origins.as_slice() {
                [] => continue,
                [one] => one.clone(),
                [first, others @ ..] => {
                    PathBuf::from(format!("{} and {} more", first.display(), others.len()))
                }
            };
            quarantine.rename(&file.path, &given);
        }
    }
}

/// Files of a folder that no format claims.
pub(super) fn passed_over(files: &[PathBuf]) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let named: Vec<String> = files.iter().take(3).map(|file| origin_of(file)).collect();
    let more = match files.len() {
        0..=3 => String::new(),
        all => format!(" and {} more", all - 3),
    };
    let was = if files.len() == 1 {
        "file was"
    } else {
        "files were"
    };
    let count = files.len();
    Some(format!(
        "{count} {was} passed over, in no format of traces that is known: {}{more}",
        named.join(", ")
    ))
}

/// The text mode of a run: as given, else what files of other formats are embedded by.
///
/// # Errors
/// What to do, where files would be read in two modes, or hold no documents any more.
pub(super) fn text_mode(
    given: Option<crate::text::TextMode>,
    found: &crate::trace::format::Found,
) -> Result<crate::text::TextMode, String> {
    use crate::text::TextMode;
    let said = found.said > 0;
    if said && given == Some(TextMode::Compat) {
        return Err(
            "--text-mode compat: these files were imported with what was said alone; import them again with --text-mode \
             compat"
                .into(),
        );
    }
    if found.documents > 0 && given == Some(TextMode::Content) {
        return Err(
            "--text-mode content: these files were imported with whole documents, as compat embeds them; import them again \
             without --text-mode compat"
                .into(),
        );
    }
    let recognised = said || !found.foreign.is_empty();
    let others = found.native.len() > found.said;
    match given {
        Some(mode) => Ok(mode),
        None if recognised && others => Err(
            "files of nightmill's own columns and of other formats are read together; say with --text-mode how: content \
             embeds what was said, compat whole documents"
                .into(),
        ),
        None if recognised => Ok(TextMode::Content),
        None => Ok(TextMode::default()),
    }
}
