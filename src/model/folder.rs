//! Where a model's files come from: a folder on disk, or the program itself.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::ModelError;
use super::tensors::{WEIGHTS, WeightFiles};

/// The files of the shipped model, relative to its folder.
#[cfg(feature = "shipped-model")]
const SHIPPED: &[(&str, &[u8])] = &[
    (
        "config.json",
        include_bytes!("../../models/all-MiniLM-L6-v2/config.json"),
    ),
    (
        "modules.json",
        include_bytes!("../../models/all-MiniLM-L6-v2/modules.json"),
    ),
    (
        "sentence_bert_config.json",
        include_bytes!("../../models/all-MiniLM-L6-v2/sentence_bert_config.json"),
    ),
    (
        "1_Pooling/config.json",
        include_bytes!("../../models/all-MiniLM-L6-v2/1_Pooling/config.json"),
    ),
    (
        "tokenizer.json",
        include_bytes!("../../models/all-MiniLM-L6-v2/tokenizer.json"),
    ),
    (
        "model.safetensors",
        include_bytes!("../../models/all-MiniLM-L6-v2/model.safetensors"),
    ),
];

/// A source of model files.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    name: String,
    root: Root,
    adjusted: Adjusted,
    /// The checksum, once somebody has asked: the choice of a precision loads a model several times.
    sha256: OnceLock<String>,
}

/// How a model is used other than it comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Adjusted {
    /// What stands before every text: the name of a prompt of the model, `none`, or `text:` and a text.
    pub prompt: Option<String>,
    /// Components of vectors that are kept, the first ones.
    pub dim: Option<usize>,
}

#[derive(Clone, Debug)]
enum Root {
    Disk(PathBuf),
    #[cfg(feature = "shipped-model")]
    Shipped,
}

impl ModelFolder {
    /// The folder on disk; none of the model inside the program.
    pub fn path(&self) -> Option<&Path> {
        match &self.root {
            Root::Disk(path) => Some(path),
            #[cfg(feature = "shipped-model")]
            Root::Shipped => None,
        }
    }

    /// A folder on disk.
    ///
    /// # Errors
    /// [`ModelError::Folder`] if it is not a readable folder.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let failed = |source| ModelError::Folder {
            path: path.to_owned(),
            source,
        };
        let whole = path.canonicalize().map_err(failed)?;
        std::fs::read_dir(&whole).map_err(failed)?;
        let name = whole
            .file_name()
            .map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
        Ok(Self {
            name,
            root: Root::Disk(whole),
            adjusted: Adjusted::default(),
            sha256: OnceLock::new(),
        })
    }

    /// The model inside the program, if this build carries one.
    pub fn shipped() -> Option<Self> {
        #[cfg(feature = "shipped-model")]
        return Some(Self {
            name: "all-MiniLM-L6-v2".into(),
            root: Root::Shipped,
            adjusted: Adjusted::default(),
            sha256: OnceLock::new(),
        });
        #[cfg(not(feature = "shipped-model"))]
        None
    }

    /// The model's name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the model inside the program.
    pub(super) fn is_shipped(&self) -> bool {
        !matches!(self.root, Root::Disk(_))
    }

    /// Where it is, for the manifest: a path, or `shipped`.
    pub fn origin(&self) -> String {
        match &self.root {
            Root::Disk(path) => path.display().to_string(),
            #[cfg(feature = "shipped-model")]
            Root::Shipped => "shipped".into(),
        }
    }

    /// The bytes of a file; `None` if there is no such file.
    pub(super) fn find(&self, file: &str) -> Result<Option<Cow<'static, [u8]>>, ModelError> {
        match &self.root {
            Root::Disk(path) => match std::fs::read(path.join(file)) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(self.bad(file, e)),
            },
            #[cfg(feature = "shipped-model")]
            Root::Shipped => Ok(SHIPPED
                .iter()
                .find(|(name, _)| *name == file)
                .map(|(_, bytes)| Cow::Borrowed(*bytes))),
        }
    }

    /// Whether there is such a file.
    pub(super) fn has(&self, file: &str) -> Result<bool, ModelError> {
        match &self.root {
            Root::Disk(path) => {
                let there = path.join(file).try_exists();
                there.map_err(|e| self.bad(file, e))
            }
            #[cfg(feature = "shipped-model")]
            Root::Shipped => Ok(SHIPPED.iter().any(|(name, _)| *name == file)),
        }
    }

    /// The bytes of a file that must be there.
    pub(super) fn read(
        &self,
        file: &str,
        hint: &'static str,
    ) -> Result<Cow<'static, [u8]>, ModelError> {
        self.find(file)?.ok_or_else(|| self.missing(file, hint))
    }

    pub(super) fn missing(&self, file: &str, hint: &'static str) -> ModelError {
        ModelError::MissingFile {
            model: self.origin(),
            file: file.into(),
            hint,
        }
    }

    /// The files that belong to the model: weights as safetensors, JSON and text, by their names inside the folder.
    pub(super) fn files(&self) -> Result<Vec<String>, ModelError> {
        match &self.root {
            #[cfg(feature = "shipped-model")]
            Root::Shipped => Ok(SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect()),
            Root::Disk(root) => {
                let mut files = Vec::new();
                for entry in walkdir::WalkDir::new(root).sort_by_file_name() {
                    let entry = entry.map_err(|e| ModelError::Folder {
                        path: root.clone(),
                        source: e.into(),
                    })?;
                    let name = entry.path().strip_prefix(root).unwrap_or(entry.path());
                    let name = name.to_string_lossy().replace('\\', "/");
                    // A hub's cache has links in place of files.
                    let is_file = entry.path().is_file();
                    if is_file && super::bundle::may_be_of_model(&name) {
                        files.push(name);
                    }
                }
                Ok(files)
            }
        }
    }

    /// Bytes of a file.
    pub(super) fn size(&self, file: &str) -> Result<u64, ModelError> {
        match &self.root {
            #[cfg(feature = "shipped-model")]
            Root::Shipped => Ok(self.find(file)?.map_or(0, |bytes| bytes.len() as u64)),
            Root::Disk(root) => {
                let found = std::fs::metadata(root.join(file));
                found
                    .map(|found| found.len())
                    .map_err(|e| self.bad(file, e))
            }
        }
    }

    /// A file as a stream: weights may be larger than memory.
    pub(super) fn open_file(&self, file: &str) -> Result<Box<dyn std::io::Read>, ModelError> {
        match &self.root {
            #[cfg(feature = "shipped-model")]
            Root::Shipped => Ok(Box::new(std::io::Cursor::new(
                self.find(file)?.unwrap_or_default(),
            ))),
            Root::Disk(root) => {
                let opened = std::fs::File::open(root.join(file));
                Ok(Box::new(opened.map_err(|e| self.bad(file, e))?))
            }
        }
    }

    /// The same model, used in another way than it comes.
    pub fn adjusted(self, adjusted: Adjusted) -> Self {
        Self {
            adjusted,
            sha256: OnceLock::new(),
            ..self
        }
    }

    /// How it is used.
    pub(super) fn adjustment(&self) -> &Adjusted {
        &self.adjusted
    }

    /// The name for people, and how it is used other than it comes: vectors of the one are not comparable with those of
    /// the other.
    pub(super) fn label(&self) -> String {
        let mut label = self.name.clone();
        if let Some(dim) = self.adjusted.dim {
            label.push_str(&format!(" dim={dim}"));
        }
        if let Some(prompt) = &self.adjusted.prompt {
            label.push_str(&format!(" prompt={prompt}"));
        }
        label
    }

    pub(super) fn bad(&self, file: &str, problem: impl std::fmt::Display) -> ModelError {
        ModelError::BadFile {
            model: self.origin(),
            file: file.into(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn unsupported(&self, problem: impl Into<String>) -> ModelError {
        ModelError::Unsupported {
            model: self.origin(),
            problem: problem.into(),
        }
    }

    /// SHA-256 over the files that decide a vector, each with its name and length.
    pub(super) fn sha256(&self) -> Result<String, ModelError> {
        if let Some(known) = self.sha256.get() {
            return Ok(known.clone());
        }
        let mut files = vec![
            "config.json".to_owned(),
            "modules.json".into(),
            "config_sentence_transformers.json".into(),
            "tokenizer.json".into(),
            "tokenizer_config.json".into(),
        ];
        files.extend(WeightFiles::names(self, WEIGHTS)?);
        files.extend(super::spec::LIMITS.map(str::to_owned));
        for module in super::spec::module_paths(self)? {
            files.push(format!("{module}/config.json"));
            let limits = super::spec::LIMITS.iter();
            files.extend(limits.map(|file| format!("{module}/{file}")));
            files.push(format!("{module}/tokenizer.json"));
            files.push(format!("{module}/tokenizer_config.json"));
            files.extend(WeightFiles::names(self, &format!("{module}/{WEIGHTS}"))?);
        }
        let mut hash = Sha256::new();
        for file in files {
            if let Some(bytes) = self.find(&file)? {
                hash.update(file.as_bytes());
                hash.update([0]);
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(&bytes);
            }
        }
        if self.adjusted != Adjusted::default() {
            let Adjusted { prompt, dim } = &self.adjusted;
            hash.update(format!("prompt {prompt:?}, components {dim:?}"));
        }
        let hex = hash.finalize();
        let hex: String = hex.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.sha256.get_or_init(|| hex).clone())
    }
}
