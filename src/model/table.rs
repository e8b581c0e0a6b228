//! From safetensors to a static table, in the dialects of Model2Vec and of sentence-transformers.

use super::spec::{TableSpec, in_folder};
use super::tensors::{Tensors, WEIGHTS, WeightFiles};
use super::{ModelError, ModelFolder};
use crate::encoder::Table;

/// Loads the table; also says how it is stored.
pub(super) fn load(
    folder: &ModelFolder,
    spec: &TableSpec,
) -> Result<(Table, &'static str), ModelError> {
    let file = in_folder(&spec.path, WEIGHTS);
    let files = WeightFiles::read(folder, &file)?;
    let tensors = Tensors::new(folder, &files)?;
    let names = ["embeddings", "embedding.weight"];
    let mut found = names
        .iter()
        .filter_map(|name| Some((*name, tensors.shape(name)?)));
    let Some((name, shape)) = found.next() else {
        return Err(tensors.bad("it has neither a tensor `embeddings` nor `embedding.weight`"));
    };
    let [rows, stored] = shape[..] else {
        return Err(tensors.bad(format!(
            "tensor `{name}` has shape {shape:?}, not rows and columns"
        )));
    };
    if rows == 0 || stored == 0 {
        return Err(tensors.bad(format!("tensor `{name}` is empty")));
    }
    let length = |name: &str| {
        tensors
            .shape(name)
            .map(|shape| shape.iter().product::<usize>())
    };
    let mapping = length("mapping").map(|n| tensors.numbers("mapping", &[n]));
    let mapping = mapping.transpose()?;
    if let Some(row) = mapping.iter().flatten().find(|row| **row as usize >= rows) {
        return Err(tensors.bad(format!("tensor `mapping` names row {row} of {rows}")));
    }
    let tokens = mapping.as_ref().map_or(rows, Vec::len);
    let weights = length("weights").map(|_| tensors.get("weights", &[tokens]));
    let table = Table {
        rows: tensors.rows(name, &[rows, stored])?,
        stored,
        mapping,
        weights: weights.transpose()?,
        keep: spec.keep,
        normalise: spec.normalise,
    };
    Ok((table, tensors.stored_precision()))
}
