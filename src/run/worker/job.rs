//! What a worker is told: everything that decides a part of a run, as plain data in one file beside the run's markers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::metric::Rules;
use crate::model::{Adjusted, Model};
use crate::output::RunError;
use crate::run::carried::FirstNights;
use crate::run::judging::judgements::Judgement;
use crate::run::night::{EarlierSession, SessionsSoFar};
use crate::trace::{Buckets, ColumnMap, OnBadFile, SessionKey, SourceFile, SourceFormat};

/// Where a job is, as it travels to workers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobPlace {
    /// The file, in a folder that all workers see.
    pub path: PathBuf,
    /// BLAKE3 of its content: a job that was written anew is another one.
    pub blake3: String,
    /// The version that wrote it.
    pub nightmill: String,
}

/// What a part of a run needs to know. Nothing in it is of one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct WorkerJob {
    /// The directory of the run while it is made.
    pub run: PathBuf,
    pub rules: Rules,
    pub buckets: u32,
    /// Buckets that are scored already.
    pub done: Vec<u32>,
    pub map: ColumnMap,
    pub on_bad_file: OnBadFile,
    /// The files, by number.
    pub files: Vec<FileOfJob>,
    /// Whether several rows make one trace; then the buckets of those traces, by canonical id.
    pub repeats: bool,
    pub repeated: BTreeMap<String, u32>,
    /// The traces wanted; none wants all.
    pub only: Option<Vec<String>>,
    /// Given signals: their names, and trace by trace their values.
    pub signals: Vec<String>,
    pub given: Vec<(String, Vec<Option<f64>>)>,
    /// What judges said of traces, where they were asked.
    pub judged: Option<Vec<(String, Vec<Judgement>)>>,
    /// How texts are embedded, if any are.
    pub encoder: Option<EncoderOfJob>,
    /// Of a run that continues another one.
    pub night: Option<NightOfJob>,
}

/// A file that rows are read from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct FileOfJob {
    /// A whole path, or the address of what the driver has a copy of.
    pub path: String,
    /// Its size: a worker that finds another one does not read it.
    pub bytes: u64,
    pub parquet: bool,
    pub partition: Vec<(String, String)>,
    /// The rows to read, ascending; none reads all.
    pub rows: Option<Vec<u64>>,
    /// How outputs name it.
    pub shown: String,
    /// How the driver names what it reads.
    pub named: String,
}

impl FileOfJob {
    /// The file as it is read, at `path`.
    pub fn source(&self, path: PathBuf) -> SourceFile {
        SourceFile {
            path,
            format: match self.parquet {
                true => SourceFormat::Parquet,
                false => SourceFormat::JsonLines,
            },
            partition: self.partition.clone(),
            origins: Vec::new(),
            rows: self.rows.clone().map(Arc::new),
        }
    }
}

/// What must be equal for vectors to be equal, bit by bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::run) struct EncoderOfJob {
    pub model: String,
    pub sha256: String,
    pub precision: String,
    pub device: String,
    pub revision: u32,
    /// How the model is used other than it comes.
    pub adjusted: Adjusted,
}

impl EncoderOfJob {
    /// That of a model.
    pub fn of(model: &Model, adjusted: &Adjusted) -> Self {
        Self {
            model: model.name.clone(),
            sha256: model.sha256.clone(),
            precision: model.encoder.precision().into(),
            device: model.encoder.device(),
            revision: model.encoder.revision(),
            adjusted: adjusted.clone(),
        }
    }

    /// Where another one would give other vectors, in words; none if it gives the same.
    pub fn difference(&self, here: &Self) -> Option<String> {
        let pairs = [
            ("model", &self.model, &here.model),
            ("SHA-256 of the model", &self.sha256, &here.sha256),
            ("precision", &self.precision, &here.precision),
            ("device", &self.device, &here.device),
        ];
        let differs = pairs.into_iter().find(|(_, wanted, found)| wanted != found);
        let told = differs.map(|(what, wanted, found)| {
            format!("{what}: {found} here, {wanted} where the run was begun")
        });
        told.or_else(|| {
            (self.revision != here.revision).then(|| {
                format!(
                    "revision of the encoder: {} here, {} where the run was begun",
                    here.revision, self.revision
                )
            })
        })
    }
}

/// What earlier nights say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::run) struct NightOfJob {
    /// The number of the file whose rows stand for what can't be read again.
    pub standing_in: Option<usize>,
    /// Traces that keep the scores of an earlier run, by canonical id, and that run.
    pub kept: BTreeMap<String, String>,
    /// The night that the run is.
    pub own: u64,
    /// When traces of earlier nights were new.
    pub earlier: HashMap<String, u64>,
    /// The run that goes on with these sessions.
    pub name: String,
    pub sessions: Vec<(SessionKey, EarlierSession)>,
}

impl NightOfJob {
    pub fn first_nights(&self) -> FirstNights {
        FirstNights {
            own: self.own,
            earlier: Arc::new(self.earlier.clone()),
        }
    }

    pub fn so_far(&self) -> SessionsSoFar {
        SessionsSoFar::new(self.name.clone(), self.sessions.iter().cloned().collect())
    }
}

impl WorkerJob {
    /// In how many buckets its sessions are.
    pub fn buckets(&self) -> Buckets {
        usize::try_from(self.buckets)
            .ok()
            .and_then(Buckets::new)
            .unwrap_or(Buckets::ONE)
    }

    /// The folder of working files of the run.
    pub fn work(&self) -> PathBuf {
        self.run.join("work")
    }

    /// Writes the job to a file.
    pub fn write(&self, path: &Path) -> Result<JobPlace, RunError> {
        let text = serde_json::to_vec(self).map_err(|e| RunError::Plan(e.to_string()))?;
        fs::write(path, &text).map_err(|e| RunError::write(path, e))?;
        Ok(JobPlace {
            path: path.to_owned(),
            blake3: blake3::hash(&text).to_hex().to_string(),
            nightmill: env!("CARGO_PKG_VERSION").into(),
        })
    }

    /// Reads a job again.
    ///
    /// # Errors
    /// What is wrong: another version wrote it, it is not where this machine looks, or it is another one by now.
    pub fn read(place: &JobPlace) -> Result<Self, RunError> {
        let own = env!("CARGO_PKG_VERSION");
        if place.nightmill != own {
            return Err(RunError::Request(format!(
                "nightmill {own} here, {} where the run was begun; take one version everywhere",
                place.nightmill
            )));
        }
        let unseen = |problem: &dyn std::fmt::Display| {
            RunError::Request(format!(
                "`{}`: {problem}; a cluster shares the folder of --out, under one path on all machines",
                place.path.display()
            ))
        };
        let text = fs::read(&place.path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => unseen(&e),
            // A folder of a network may get well.
            _ => RunError::Scratch(format!("`{}`: {e}", place.path.display())),
        })?;
        if blake3::hash(&text).to_hex().as_str() != place.blake3 {
            return Err(unseen(&"it is not the job that was handed out"));
        }
        serde_json::from_slice(&text).map_err(|e| unseen(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder() -> EncoderOfJob {
        EncoderOfJob {
            model: "m".into(),
            sha256: "1".into(),
            precision: "bf16".into(),
            device: "cpu (avx512)".into(),
            revision: 3,
            adjusted: Adjusted::default(),
        }
    }

    #[test]
    fn what_gives_other_vectors_is_named() {
        let wanted = encoder();
        assert_eq!(wanted.difference(&encoder()), None);
        let told = |here: EncoderOfJob| wanted.difference(&here).unwrap();
        let device = EncoderOfJob {
            device: "cpu (avx2)".into(),
            ..encoder()
        };
        assert_eq!(
            told(device),
            "device: cpu (avx2) here, cpu (avx512) where the run was begun"
        );
        let revision = EncoderOfJob {
            revision: 4,
            ..encoder()
        };
        assert!(told(revision).starts_with("revision of the encoder: 4 here"));
        let other = EncoderOfJob {
            model: "n".into(),
            ..encoder()
        };
        assert!(told(other).starts_with("model: n here"));
    }
}
