//! A static table made of a transformer (Tulkens and van Dongen 2024, Model2Vec): every token of its vocabulary goes
//! through it alone, the vectors are brought to fewer components by their principal axes, and frequent tokens count less
//! (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings").

use std::path::Path;

use nalgebra::{DMatrix, SymmetricEigen};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;
use serde_json::json;
use tokenizers::Tokenizer;

use super::agreement::pair_agreement;
use super::bundle::settle_made;
use super::library::{LibraryError, is_model};
use super::spec::EncoderSpec;
use super::{Model, ModelError, ModelFolder, facts, load_fastest, spec, weights};
use crate::encoder::cpu::Level;
use crate::encoder::{Encoder, Packed, Pooling};

/// How much a token counts that is as frequent as this share of all: half.
const RARE: f64 = 1e-4;
/// Most tokens of a text that the table takes, as Model2Vec has it.
const MOST_TOKENS: usize = 512;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Distilled {
    /// Tokens that have a vector of their own.
    pub tokens: usize,
    /// Components of a vector.
    pub dim: usize,
    /// The share of the variance of the teacher's vectors that these hold.
    pub explained: f64,
    /// The correlation of its similarities of pairs of sample texts with those of the teacher.
    pub agreement: f64,
    /// How many times as many tokens a second it makes, texts tokenised.
    pub times_faster: f64,
    /// Seconds that making it took, without the comparison.
    pub seconds: f64,
}

/// Makes a table of a transformer; the folder appears when it is whole.
///
/// # Errors
/// [`LibraryError`] if the teacher is none, has fewer components, or a file can't be written.
pub fn distill(
    teacher: &ModelFolder,
    dim: usize,
    out: &Path,
    overwrite: bool,
) -> Result<Distilled, LibraryError> {
    let refuse = |problem: String| LibraryError::Refused(problem);
    if out.exists() {
        let same = out
            .canonicalize()
            .is_ok_and(|out| out.display().to_string() == teacher.origin());
        let problem = match (same, is_model(out), overwrite) {
            (true, ..) => "the teacher itself is there",
            (_, false, _) => "it is no model, and is not replaced by one",
            (.., false) => "it exists already; give --overwrite to replace it",
            _ => "",
        };
        if !problem.is_empty() {
            return Err(refuse(format!("--out {}: {problem}", out.display())));
        }
    }
    let started = std::time::Instant::now();
    let level = Level::choose().map_err(refuse)?;
    let model = load_fastest(teacher, level)?;
    let described = spec::read(teacher)?;
    let EncoderSpec::Transformer(mut inner) = described.encoder else {
        return Err(refuse(format!(
            "`{}` is a static table already; distil a transformer",
            teacher.name()
        )));
    };
    if described.texts.lowercase {
        return Err(refuse(format!(
            "`{}` lower-cases texts before its tokenizer sees them (do_lower_case), which a table can't say of itself; let its \
             tokenizer.json do it",
            teacher.name()
        )));
    }
    // What a token's own vector is, whatever the teacher makes of those of a text.
    inner.pooling = Pooling::Mean;
    inner.dense.clear();
    inner.normalise = false;
    inner.keep = None;
    let width = inner.plan.shape.hidden;
    if dim > width {
        return Err(refuse(format!(
            "--dim {dim}: vectors of `{}` have {width} components",
            teacher.name()
        )));
    }
    let precision = precision_of(&model);
    let (encoder, _) = weights::load_for_cpu(teacher, &inner, &model.tokenizer, level, precision)?;
    let bytes = teacher.read(&described.texts.file, "copy the whole model folder")?;
    let vocabulary = Vocabulary::of(teacher, &described.texts.file, &bytes)?;
    let vectors = vocabulary
        .vectors(&encoder)
        .map_err(|problem| LibraryError::Model(teacher.unsupported(problem)))?;
    let (mut rows, explained) = principal(&vectors, width, dim);
    weigh(&mut rows, dim);
    let table = vocabulary.table(&rows, dim);
    write(teacher, out, overwrite, &table, dim, &bytes)?;
    let seconds = started.elapsed().as_secs_f64();
    let student = Model::load(
        &ModelFolder::open(out)?,
        level,
        crate::encoder::Precision::F32,
    )?;
    let compared = pair_agreement(&model, &student)
        .map_err(|problem| LibraryError::Model(teacher.unsupported(problem)))?;
    Ok(Distilled {
        tokens: vocabulary.tokens.len(),
        dim,
        explained,
        agreement: compared.correlation,
        times_faster: compared.times_faster,
        seconds,
    })
}

/// The precision that a model was loaded at.
fn precision_of(model: &Model) -> crate::encoder::Precision {
    use crate::encoder::Precision;
    let all = [Precision::F32, Precision::Bf16, Precision::Int8];
    let name = model.encoder.precision();
    all.into_iter()
        .find(|p| p.name() == name)
        .unwrap_or(Precision::F32)
}

/// The tokens of a tokenizer that stand for text.
struct Vocabulary {
    /// Token ids, the lowest first; vocabularies are sorted by how frequent tokens are.
    tokens: Vec<u32>,
    /// What the tokenizer puts before and behind a text.
    before: Vec<u32>,
    behind: Vec<u32>,
    /// Ids, those without text among them.
    count: usize,
}

impl Vocabulary {
    fn of(folder: &ModelFolder, file: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        let bad = |e: tokenizers::Error| folder.bad(file, format!("not a usable tokenizer: {e}"));
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(bad)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(bad)?;
        let ids = |special: bool| -> Result<Vec<u32>, ModelError> {
            let encoding = tokenizer.encode_fast("a", special).map_err(bad)?;
            Ok(encoding.get_ids().to_vec())
        };
        let (bare, whole) = (ids(false)?, ids(true)?);
        let mut places = whole.windows(bare.len().max(1));
        let at = places.position(|window| window == bare).unwrap_or(0);
        let added = tokenizer.get_added_tokens_decoder();
        let is_text = |id: &u32, token: &str| {
            let special = added.get(id).is_some_and(|token| token.special);
            let unused = token.starts_with("[unused") && token.ends_with(']');
            !special && !unused
        };
        let all = tokenizer.get_vocab(true);
        let count = all.values().map(|id| *id as usize + 1).max().unwrap_or(0);
        let mut tokens: Vec<u32> = all
            .iter()
            .filter(|(token, id)| is_text(id, token))
            .map(|(_, id)| *id)
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        Ok(Self {
            tokens,
            before: whole[..at].to_vec(),
            behind: whole.get(at + bare.len()..).unwrap_or_default().to_vec(),
            count,
        })
    }

    /// The vector of each token, alone between what stands around every text.
    fn vectors(&self, encoder: &dyn Encoder) -> Result<Vec<f32>, String> {
        let length = self.before.len() + 1 + self.behind.len();
        let at_once = (encoder.tokens_per_batch() / length).max(1);
        let batches: Vec<&[u32]> = self.tokens.chunks(at_once).collect();
        let encoded = batches.par_iter().map(|tokens| {
            let mut batch = Packed::default();
            for token in *tokens {
                batch.push(&[&self.before[..], &[*token], &self.behind].concat());
            }
            let mut vectors = Vec::new();
            encoder
                .encode(&batch, &mut vectors)
                .map(|_| vectors)
                .map_err(|e| e.to_string())
        });
        let encoded: Vec<Vec<f32>> = encoded.collect::<Result<_, _>>()?;
        Ok(encoded.concat())
    }

    /// Rows for all ids; those that stand for no text are zeros.
    fn table(&self, rows: &[f32], dim: usize) -> Vec<f32> {
        let mut table = vec![0.0; self.count * dim];
        for (token, row) in self.tokens.iter().zip(rows.chunks_exact(dim)) {
            table[*token as usize * dim..][..dim].copy_from_slice(row);
        }
        table
    }
}

/// Rows of `width` components along their `dim` principal axes, their mean taken off; and the share of the variance that
/// is left.
fn principal(rows: &[f32], width: usize, dim: usize) -> (Vec<f32>, f64) {
    let count = (rows.len() / width).max(1) as f64;
    let mut mean = vec![0.0f64; width];
    for row in rows.chunks_exact(width) {
        mean.iter_mut()
            .zip(row)
            .for_each(|(m, x)| *m += f64::from(*x) / count);
    }
    // Pieces are summed in their order, so that equal vocabularies make equal tables on any number of threads.
    let pieces: Vec<Vec<f64>> = rows
        .par_chunks(width * 8192)
        .map(|rows| {
            let mut sums = vec![0.0f64; width * width];
            for row in rows.chunks_exact(width) {
                let off: Vec<f64> = centred(row, &mean).collect();
                for (line, a) in sums.chunks_exact_mut(width).zip(&off) {
                    line.iter_mut().zip(&off).for_each(|(sum, b)| *sum += a * b);
                }
            }
            sums
        })
        .collect();
    let mut covariance = vec![0.0f64; width * width];
    for piece in pieces {
        covariance
            .iter_mut()
            .zip(piece)
            .for_each(|(sum, x)| *sum += x);
    }
    let eigen = SymmetricEigen::new(DMatrix::from_vec(width, width, covariance));
    let mut order: Vec<usize> = (0..width).collect();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    order.truncate(dim);
    let all: f64 = eigen.eigenvalues.iter().sum();
    let kept: f64 = order.iter().map(|at| eigen.eigenvalues[*at]).sum();
    let axes: Vec<Vec<f64>> = order
        .iter()
        .map(|at| {
            let axis: Vec<f64> = eigen.eigenvectors.column(*at).iter().copied().collect();
            // An axis has no direction: the largest component is made positive.
            let largest = axis
                .iter()
                .copied()
                .fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
            axis.into_iter().map(|x| x * largest.signum()).collect()
        })
        .collect();
    let projected = rows.par_chunks_exact(width).flat_map_iter(|row| {
        let off: Vec<f64> = centred(row, &mean).collect();
        let along = axes
            .iter()
            .map(move |axis| axis.iter().zip(&off).map(|(a, b)| a * b).sum::<f64>() as f32);
        along.collect::<Vec<_>>()
    });
    (projected.collect(), kept / all.max(f64::MIN_POSITIVE))
}

fn centred<'r>(row: &'r [f32], mean: &'r [f64]) -> impl Iterator<Item = f64> + 'r {
    row.iter().zip(mean).map(|(x, mean)| f64::from(*x) - mean)
}

/// Lets frequent tokens count less: how frequent one is follows from its place (Zipf's law).
fn weigh(rows: &mut [f32], dim: usize) {
    let count = rows.len() / dim.max(1);
    let share = |place: usize| 1.0 / (place + 2) as f64;
    let all: f64 = (0..count).map(share).sum();
    for (place, row) in rows.chunks_exact_mut(dim).enumerate() {
        let weight = (RARE / (RARE + share(place) / all)) as f32;
        row.iter_mut().for_each(|x| *x *= weight);
    }
}

/// Writes the folder, as Model2Vec and sentence-transformers read it.
fn write(
    teacher: &ModelFolder,
    out: &Path,
    overwrite: bool,
    table: &[f32],
    dim: usize,
    tokenizer: &[u8],
) -> Result<(), LibraryError> {
    let failed = |e: std::io::Error| LibraryError::io(out, e);
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let made = tempfile::Builder::new()
        .prefix(".distil-")
        .tempdir_in(folder)
        .map_err(failed)?;
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(made.path().join(name), bytes).map_err(failed);
    let bytes: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = vec![table.len() / dim, dim];
    let view = TensorView::new(Dtype::F32, shape, &bytes);
    let view = view.map_err(|e| failed(std::io::Error::other(e.to_string())))?;
    let weights = safetensors::serialize([("embeddings", view)], None);
    let weights = weights.map_err(|e| failed(std::io::Error::other(e.to_string())))?;
    write("model.safetensors", &weights)?;
    write("tokenizer.json", tokenizer)?;
    let pretty = |value: serde_json::Value| format!("{value:#}\n");
    let config = json!({
        "model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": teacher.name(),
        "apply_pca": dim, "apply_zipf": true, "sif_coefficient": RARE, "hidden_dim": dim,
        "seq_length": MOST_TOKENS, "max_length": MOST_TOKENS, "normalize": true, "embedding_dtype": "float32",
    });
    write("config.json", pretty(config).as_bytes())?;
    let modules = json!([
        {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]);
    write("modules.json", pretty(modules).as_bytes())?;
    let licence = facts::licence(teacher)?;
    let head = licence.map_or_else(String::new, |licence| format!("license: {licence}\n"));
    let readme = format!(
        "---\n{head}---\n\nA static table of {dim} components, distilled from {} by nightmill.\n",
        teacher.name()
    );
    write("README.md", readme.as_bytes())?;
    settle_made(made, out, overwrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_axes_hold_the_most_variance_and_frequent_tokens_count_less() {
        // Points along (1, 1), a little off it.
        let rows: Vec<f32> = [-2.0f32, -1.0, 0.0, 1.0, 2.0]
            .iter()
            .enumerate()
            .flat_map(|(at, x)| [x + 5.0, x + if at % 2 == 0 { 0.1 } else { -0.1 }])
            .collect();
        let (along, explained) = principal(&rows, 2, 1);
        assert!(explained > 0.99, "{explained}");
        let steps: Vec<f32> = along.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            steps.iter().all(|step| (step - 2f32.sqrt()).abs() < 0.2),
            "{steps:?}"
        );
        let mut rows = vec![1.0; 3 * 2];
        weigh(&mut rows, 2);
        assert!(rows[0] < rows[2] && rows[2] < rows[4] && rows[0] == rows[1]);
        let all = 0.5 + 1.0 / 3.0 + 0.25;
        assert!((f64::from(rows[0]) - 1e-4 / (1e-4 + 0.5 / all)).abs() < 1e-9);
    }
}
