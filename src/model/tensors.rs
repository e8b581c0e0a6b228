//! Tensors of a safetensors file, with messages that name the file and the tensor.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::{ModelError, ModelFolder};
use crate::encoder::TableRows;

/// The file of a model's weights, and of a module's, if they are in one.
pub(super) const WEIGHTS: &str = "model.safetensors";
const PICKLE: &str = "only safetensors are read: pickle files (pytorch_model.bin) can run code when they are \
                      opened; save the model again with safe_serialization=True";
/// Says which of several files each tensor is in, where weights are not in one.
const INDEX: &str = "model.safetensors.index.json";
const NO_WEIGHTS: &str = "copy the folder with its weights";

/// The files that weights are in: one, or those that an index names, in order of their names.
pub(super) struct WeightFiles {
    /// The one file, or the index.
    name: String,
    files: Vec<(String, Cow<'static, [u8]>)>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl WeightFiles {
    /// The names of the files that `file`, a `model.safetensors`, is or stands for, the index first; none if neither is
    /// there.
    ///
    /// # Errors
    /// [`ModelError`] for an index that can't be read, or that names what is no file beside it.
    pub fn names(folder: &ModelFolder, file: &str) -> Result<Vec<String>, ModelError> {
        if folder.has(file)? {
            return Ok(vec![file.to_owned()]);
        }
        let index = file.replace(WEIGHTS, INDEX);
        let Some(bytes) = folder.find(&index)? else {
            return Ok(Vec::new());
        };
        let read: Index = serde_json::from_slice(&bytes)
            .map_err(|e| folder.bad(&index, format!("not an index of weights: {e}")))?;
        let parts: BTreeSet<&String> = read.weight_map.values().collect();
        if parts.is_empty() {
            return Err(folder.bad(&index, "it names no file of weights"));
        }
        let mut names = vec![index.clone()];
        for part in parts {
            let is_file = part.ends_with(".safetensors") && !part.contains(['/', '\\']);
            if !is_file {
                return Err(folder.bad(
                    &index,
                    format!("it names `{part}`, which is no safetensors file beside it"),
                ));
            }
            names.push(file.replace(WEIGHTS, part));
        }
        Ok(names)
    }

    /// Reads what `file`, a `model.safetensors` in a folder of the model, is or stands for.
    ///
    /// # Errors
    /// [`ModelError`] naming the file that is missing, or can't be read.
    pub fn read(folder: &ModelFolder, file: &str) -> Result<Self, ModelError> {
        let names = Self::names(folder, file)?;
        let (name, parts) = match names.as_slice() {
            [] => {
                let pickle = file.replace(WEIGHTS, "pytorch_model.bin");
                let hint = match folder.has(&pickle)? {
                    true => PICKLE,
                    false => NO_WEIGHTS,
                };
                return Err(folder.missing(file, hint));
            }
            [one] => (one, &names[..]),
            [index, parts @ ..] => (index, parts),
        };
        let read = |part: &String| Ok((part.clone(), folder.read(part, NO_WEIGHTS)?));
        Ok(Self {
            name: name.clone(),
            files: parts.iter().map(read).collect::<Result<_, ModelError>>()?,
        })
    }
}

/// The tensors of these files.
pub(super) struct Tensors<'a> {
    folder: &'a ModelFolder,
    file: String,
    parts: Vec<SafeTensors<'a>>,
    prefix: String,
}

fn halves(data: &[u8]) -> Vec<u16> {
    let (pairs, _) = data.as_chunks::<2>();
    pairs.iter().map(|b| u16::from_le_bytes(*b)).collect()
}

impl<'a> Tensors<'a> {
    pub fn new(folder: &'a ModelFolder, files: &'a WeightFiles) -> Result<Self, ModelError> {
        let mut parts: Vec<SafeTensors<'a>> = Vec::new();
        for (file, bytes) in &files.files {
            let read = SafeTensors::deserialize(bytes)
                .map_err(|e| folder.bad(file, format!("not a safetensors file: {e}")))?;
            let mut names = read.names().into_iter();
            let twice = names.find(|name| parts.iter().any(|part| part.tensor(name).is_ok()));
            if let Some(name) = twice {
                return Err(folder.bad(
                    file,
                    format!("tensor `{name}` is in another of the files of weights, too"),
                ));
            }
            parts.push(read);
        }
        Ok(Self {
            folder,
            file: files.name.clone(),
            parts,
            prefix: String::new(),
        })
    }

    fn tensor(&self, name: &str) -> Option<TensorView<'a>> {
        let mut parts = self.parts.iter();
        parts.find_map(|part| part.tensor(name).ok())
    }

    /// Puts one of these before all names: the first with which there is a tensor of this name.
    pub fn under(mut self, prefixes: &[&str], name: &str) -> Self {
        let mut prefixes = prefixes.iter();
        let found = prefixes.find(|prefix| self.has(&format!("{prefix}{name}")));
        self.prefix = found.map_or_else(String::new, |prefix| (*prefix).to_owned());
        self
    }

    /// An error about this file.
    pub fn bad(&self, problem: impl std::fmt::Display) -> ModelError {
        self.folder.bad(&self.file, problem)
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    /// The shape of a tensor; none if there is none of this name.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let name = format!("{}{name}", self.prefix);
        Some(self.tensor(&name)?.shape().to_vec())
    }

    fn data(&self, name: &str, shape: &[usize]) -> Result<(Dtype, &'a [u8]), ModelError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.tensor(&name);
        let tensor = tensor.ok_or_else(|| self.bad(format!("tensor `{name}` is missing")))?;
        if tensor.shape() != shape {
            return Err(self.bad(format!(
                "tensor `{name}` has shape {:?}, the configuration asks for {shape:?}",
                tensor.shape()
            )));
        }
        Ok((tensor.dtype(), tensor.data()))
    }

    fn wrong_type(&self, name: &str, kind: Dtype, supported: &str) -> ModelError {
        self.bad(format!(
            "tensor `{}{name}` is stored as {kind:?}; supported are {supported}",
            self.prefix
        ))
    }

    fn finite(&self, name: &str, values: Vec<f32>) -> Result<Vec<f32>, ModelError> {
        match values.iter().all(|x| x.is_finite()) {
            true => Ok(values),
            false => Err(self.bad(format!(
                "tensor `{}{name}` holds NaN or infinite values",
                self.prefix
            ))),
        }
    }

    /// The numbers of a tensor of this shape.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let (kind, data) = self.data(name, shape)?;
        let values = match kind {
            Dtype::F32 => floats(data),
            Dtype::F64 => {
                let (eights, _) = data.as_chunks::<8>();
                eights
                    .iter()
                    .map(|b| f64::from_le_bytes(*b) as f32)
                    .collect()
            }
            // Slices are converted many at a time; single numbers are not.
            Dtype::F16 => halves(data).reinterpret_cast::<f16>().to_f32_vec(),
            Dtype::BF16 => halves(data).reinterpret_cast::<bf16>().to_f32_vec(),
            other => return Err(self.wrong_type(name, other, "F64, F32, F16 and BF16")),
        };
        self.finite(name, values)
    }

    /// The numbers of a table, as they are stored.
    pub fn rows(&self, name: &str, shape: &[usize]) -> Result<TableRows, ModelError> {
        let (kind, data) = self.data(name, shape)?;
        match kind {
            Dtype::F16 => {
                let halves: Vec<f16> = halves(data).reinterpret_into();
                match halves.iter().all(|x| x.is_finite()) {
                    true => Ok(TableRows::F16(halves)),
                    false => self.finite(name, vec![f32::NAN]).map(TableRows::F32),
                }
            }
            Dtype::I8 => Ok(TableRows::I8(data.iter().map(|byte| *byte as i8).collect())),
            Dtype::F32 | Dtype::F64 | Dtype::BF16 => self.get(name, shape).map(TableRows::F32),
            other => Err(self.wrong_type(name, other, "F64, F32, F16, BF16 and I8")),
        }
    }

    /// Whole numbers that are no less than 0.
    pub fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<u32>, ModelError> {
        let (kind, data) = self.data(name, shape)?;
        let wide: Vec<i64> = match kind {
            Dtype::I64 => {
                let (eights, _) = data.as_chunks::<8>();
                eights.iter().map(|b| i64::from_le_bytes(*b)).collect()
            }
            Dtype::I32 => {
                let (fours, _) = data.as_chunks::<4>();
                let numbers = fours.iter().map(|b| i64::from(i32::from_le_bytes(*b)));
                numbers.collect()
            }
            other => return Err(self.wrong_type(name, other, "I64 and I32")),
        };
        let numbers = wide.iter().map(|n| u32::try_from(*n));
        let numbers: Result<Vec<u32>, _> = numbers.collect();
        numbers.map_err(|_| self.bad(format!("tensor `{name}` holds numbers below 0")))
    }

    /// The narrowest type that numbers are stored in, by the first tensor that has one: `f32`, `f16`, `bf16` or `i8`.
    pub fn stored_precision(&self) -> &'static str {
        let tensors = self.parts.iter().flat_map(|part| part.iter());
        let kinds = tensors.map(|(_, tensor)| tensor.dtype());
        let mut narrow = kinds.filter(|kind| matches!(kind, Dtype::F16 | Dtype::BF16 | Dtype::I8));
        match narrow.next() {
            Some(Dtype::F16) => "f16",
            Some(Dtype::BF16) => "bf16",
            Some(_) => "i8",
            None => "f32",
        }
    }
}

fn floats(data: &[u8]) -> Vec<f32> {
    let (fours, _) = data.as_chunks::<4>();
    fours.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
