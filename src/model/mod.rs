//! Model folders of sentence-transformers, transformers and Model2Vec: what they must hold, and how they become an encoder
//! and a tokenizer.

mod agreement;
mod bundle;
mod config;
mod distill;
mod facts;
mod family;
mod fidelity;
mod folder;
mod hub;
mod library;
#[cfg(feature = "candle")]
mod on_devices;
mod provenance;
mod spec;
mod table;
mod tensors;
mod text_tokenizer;
mod weights;
mod word_memo;

use std::path::PathBuf;

pub use bundle::{export_bundle, import_bundle};
pub use distill::{Distilled, distill};
pub use facts::ModelFacts;
#[cfg(feature = "candle")]
pub use fidelity::load_fastest_on_devices;
pub use fidelity::{Fidelity, load_fastest};
pub use folder::{Adjusted, ModelFolder};
pub use hub::{Hub, pull};
pub use library::{Library, LibraryError};
pub use provenance::{FileSum, ModelFault, Provenance};
pub use text_tokenizer::TextTokenizer;

use self::spec::{EncoderSpec, TransformerSpec};
use crate::encoder::cpu::Level;
use crate::encoder::{Encoder, Precision};

/// Why a model folder can't be used. Every message names the file and, where there is one, the key.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The folder is not there or not readable.
    #[error("model folder `{path}`: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file that must be there is not.
    #[error("model `{model}` has no `{file}`; {hint}")]
    MissingFile {
        /// The model.
        model: String,
        /// The file, relative to the folder.
        file: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A file is there and can't be used.
    #[error("model `{model}`, file `{file}`: {problem}")]
    BadFile {
        /// The model.
        model: String,
        /// The file, relative to the folder.
        file: String,
        /// What is wrong in it.
        problem: String,
    },
    /// The model is of a kind that this version does not encode.
    #[error("model `{model}`: {problem}")]
    Unsupported {
        /// The model.
        model: String,
        /// What is not supported, and what is.
        problem: String,
    },
}

/// A loaded model: encoder, tokenizer and the facts that results must carry.
pub struct Model {
    /// The name for people: the folder's name, and how it is used other than it comes.
    pub name: String,
    /// SHA-256 over all that decides a vector (weights, configuration, tokenizer, how they are used), in hex.
    pub sha256: String,
    /// How weights are stored: `f32`, `f16`, `bf16`, or `i8` of a static table.
    pub stored_precision: &'static str,
    /// Whether it is a static table, without attention.
    pub is_table: bool,
    /// How close its vectors are to those at f32, if [`load_fastest`] chose the precision and it is not f32.
    pub fidelity: Option<Fidelity>,
    /// Turns texts into token ids.
    pub tokenizer: TextTokenizer,
    /// Turns token ids into vectors.
    pub encoder: Box<dyn Encoder>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.name)
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Loads a model for the CPU at this instruction level, to compute at this precision.
    ///
    /// # Errors
    /// [`ModelError`] naming the missing or unusable file or key.
    pub fn load(
        folder: &ModelFolder,
        level: Level,
        precision: Precision,
    ) -> Result<Self, ModelError> {
        let load = |spec: &TransformerSpec, tokenizer: &TextTokenizer| {
            let (encoder, stored) =
                weights::load_for_cpu(folder, spec, tokenizer, level, precision)?;
            Ok((Box::new(encoder) as Box<dyn Encoder>, stored))
        };
        let model = Self::load_with(folder, load)?;
        match model.is_table && precision != Precision::F32 {
            false => Ok(model),
            true => Err(folder.unsupported(format!(
                "a static table is added up at f32, whatever it is stored in: leave --precision {} away",
                precision.name()
            ))),
        }
    }

    /// Loads a model onto devices of one kind, as a packed graph if so asked, which on CUDA devices computes at f16 only.
    ///
    /// # Errors
    /// [`ModelError`] naming the missing or unusable file or key, or what the device says.
    #[cfg(feature = "candle")]
    pub fn load_on_devices(
        folder: &ModelFolder,
        devices: &[crate::encoder::candle::CandleDevice],
        packed: bool,
    ) -> Result<Self, ModelError> {
        // A static table is added up on the CPU: to look rows up there is less work than to carry ids elsewhere.
        Self::load_with(folder, |spec, tokenizer| {
            let (encoder, stored) =
                on_devices::load_for_devices(folder, spec, tokenizer, devices, packed)?;
            Ok((Box::new(encoder), stored))
        })
    }

    fn load_with(
        folder: &ModelFolder,
        transformer: impl FnOnce(&TransformerSpec, &TextTokenizer) -> Result<Loaded, ModelError> + Send,
    ) -> Result<Self, ModelError> {
        let spec = spec::read(folder)?;
        // Two things that take tens of milliseconds each, side by side.
        let (sha256, loaded) = rayon::join(
            || folder.sha256(),
            || {
                let tokenizer = TextTokenizer::read(folder, &spec.texts)?;
                let (encoder, stored) = match &spec.encoder {
                    EncoderSpec::Transformer(spec) => transformer(spec, &tokenizer)?,
                    EncoderSpec::Table(spec) => {
                        let (table, stored) = table::load(folder, spec)?;
                        (Box::new(table) as Box<dyn Encoder>, stored)
                    }
                };
                Ok::<_, ModelError>((tokenizer, encoder, stored))
            },
        );
        let (tokenizer, encoder, stored_precision) = loaded?;
        if let Some(dim) = folder.adjustment().dim.filter(|dim| *dim > encoder.dim()) {
            return Err(folder.unsupported(format!(
                "--dim {dim}: its vectors have {} components",
                encoder.dim()
            )));
        }
        Ok(Self {
            name: folder.label(),
            sha256: sha256?,
            stored_precision,
            is_table: matches!(spec.encoder, EncoderSpec::Table(_)),
            fidelity: None,
            tokenizer,
            encoder,
        })
    }
}

/// Whether a folder holds a static table.
///
/// # Errors
/// [`ModelError`] if it can't be read.
fn is_table(folder: &ModelFolder) -> Result<bool, ModelError> {
    Ok(matches!(spec::read(folder)?.encoder, EncoderSpec::Table(_)))
}

/// An encoder, and how its weights are stored.
type Loaded = (Box<dyn Encoder>, &'static str);
