//! JSON files of a model folder, read with messages that name the file and the key.

use serde_json::Value;

use super::{ModelError, ModelFolder};
use crate::encoder::Activation;

const COPY_WHOLE: &str = "copy the whole model folder";

/// A JSON file of a model folder.
pub(super) struct Config<'f> {
    folder: &'f ModelFolder,
    file: String,
    value: Value,
}

impl<'f> Config<'f> {
    /// A file that must be there.
    pub fn required(folder: &'f ModelFolder, file: &str) -> Result<Self, ModelError> {
        Self::parsed(folder, file, &folder.read(file, COPY_WHOLE)?)
    }

    /// A file that may be missing: then it has no key.
    pub fn optional(folder: &'f ModelFolder, file: &str) -> Result<Self, ModelError> {
        match folder.find(file)? {
            Some(bytes) => Self::parsed(folder, file, &bytes),
            None => Ok(Self {
                folder,
                file: file.into(),
                value: Value::Null,
            }),
        }
    }

    fn parsed(folder: &'f ModelFolder, file: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        let value = serde_json::from_slice(bytes);
        let value = value.map_err(|e| folder.bad(file, format!("not valid JSON: {e}")))?;
        Ok(Self {
            folder,
            file: file.into(),
            value,
        })
    }

    /// The whole document.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// What stands under a key; none if it is missing or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    /// An error about this file.
    pub fn bad(&self, problem: impl std::fmt::Display) -> ModelError {
        self.folder.bad(&self.file, problem)
    }

    fn wrong(&self, key: &str, wanted: &str) -> ModelError {
        let value = self.get(key).unwrap_or(&Value::Null);
        self.bad(format!("key `{key}` is {value}, not {wanted}"))
    }

    /// A count of at least 1.
    pub fn count(&self, key: &str) -> Result<usize, ModelError> {
        let missing = || self.bad(format!("key `{key}` is missing"));
        self.count_if_there(key)?.ok_or_else(missing)
    }

    /// The same; none if the key is missing.
    pub fn count_if_there(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let count = value.as_u64().filter(|n| (1..=1 << 24).contains(n));
        let count = count.map(|n| n as usize);
        count
            .map(Some)
            .ok_or_else(|| self.wrong(key, "a positive count"))
    }

    /// A positive number.
    pub fn number_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => {
                let number = value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
                number.ok_or_else(|| self.wrong(key, "a positive number"))
            }
        }
    }

    /// True or false.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    /// A text.
    pub fn text_or<'s>(&'s self, key: &str, default: &'s str) -> Result<&'s str, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_str().ok_or_else(|| self.wrong(key, "a text")),
        }
    }

    /// Refuses a key that has another value than the one that is encoded.
    pub fn only(&self, key: &str, wanted: &Value) -> Result<(), ModelError> {
        match self.get(key) {
            Some(value) if value != wanted => Err(self.folder.unsupported(format!(
                "{}, key `{key}` is {value}; this version encodes models with {wanted} there",
                self.file
            ))),
            _ => Ok(()),
        }
    }

    /// The activation that a key names.
    pub fn activation(&self, key: &str, default: &str) -> Result<Activation, ModelError> {
        Ok(match self.text_or(key, default)? {
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            "silu" | "swish" => Activation::Silu,
            other => {
                return Err(self.folder.unsupported(format!(
                    "{}, key `{key}` is `{other}`; supported are gelu, gelu_new, gelu_pytorch_tanh, relu and silu",
                    self.file
                )));
            }
        })
    }
}
