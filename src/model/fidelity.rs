//! Which precision is fast and true enough: the choice behind `--precision auto`.

use super::agreement::{cosine, vectors};
use super::{Model, ModelError, ModelFolder};
use crate::encoder::Precision;
use crate::encoder::cpu::Level;

/// Texts of the kinds that traces hold, one a line: talk, tools, code, numbers, several languages.
pub(super) const CALIBRATION: &str = include_str!("calibration.txt");

/// How close vectors are to those at f32, on the calibration texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fidelity {
    /// Mean cosine to the vector at f32.
    pub mean: f64,
    /// Least cosine to the vector at f32.
    pub least: f64,
    /// Whether that was measured when the model was loaded; else it is a constant of the shipped model, a lower bound.
    pub measured: bool,
}

impl Fidelity {
    /// What a precision must reach to be chosen.
    const REQUIRED: Self = Self {
        mean: 0.9995,
        least: 0.999,
        measured: false,
    };

    fn is_enough(self) -> bool {
        self.mean >= Self::REQUIRED.mean && self.least >= Self::REQUIRED.least
    }
}

/// What measuring gives for the shipped model, rounded down, so that loading it does not have to measure.
const SHIPPED: [(Precision, Fidelity); 2] = [
    (
        Precision::Int8,
        Fidelity {
            mean: 0.998,
            least: 0.99,
            measured: false,
        },
    ),
    (
        Precision::Bf16,
        Fidelity {
            mean: 0.99998,
            least: 0.9999,
            measured: false,
        },
    ),
];

/// Loads a model at the fastest precision that this level has an instruction for, and whose fidelity on this model is
/// enough. Without such a precision it is f32.
///
/// # Errors
/// [`ModelError`] if the folder can't be used, or the model makes no vectors.
pub fn load_fastest(folder: &ModelFolder, level: Level) -> Result<Model, ModelError> {
    let mut exact: Option<Model> = None;
    if super::is_table(folder)? {
        return Model::load(folder, level, Precision::F32);
    }
    for precision in [Precision::Int8, Precision::Bf16] {
        if !level.has_dot(precision) {
            continue;
        }
        let known = SHIPPED.iter().find(|(p, _)| *p == precision);
        let known = known.filter(|_| folder.is_shipped()).map(|(_, f)| *f);
        if known.is_some_and(|fidelity| !fidelity.is_enough()) {
            continue;
        }
        let mut model = Model::load(folder, level, precision)?;
        let fidelity = match known {
            Some(fidelity) => fidelity,
            None => {
                let exact = match &exact {
                    Some(exact) => exact,
                    None => exact.insert(Model::load(folder, level, Precision::F32)?),
                };
                measure(folder, exact, &model)?
            }
        };
        tracing::info!(
            precision = precision.name(),
            mean = fidelity.mean,
            least = fidelity.least,
            enough = fidelity.is_enough(),
            "cosine to f32"
        );
        if fidelity.is_enough() {
            model.fidelity = Some(fidelity);
            return Ok(model);
        }
    }
    match exact {
        Some(exact) => Ok(exact),
        None => Model::load(folder, level, Precision::F32),
    }
}

/// Loads a model onto the `fast` devices if its vectors there are true enough, else onto the `exact` ones.
///
/// # Errors
/// [`ModelError`] if the folder can't be used, or a device fails.
#[cfg(feature = "candle")]
pub fn load_fastest_on_devices(
    folder: &ModelFolder,
    fast: &[crate::encoder::candle::CandleDevice],
    exact: &[crate::encoder::candle::CandleDevice],
    packed: bool,
) -> Result<Model, ModelError> {
    // One after the other: with both there, slots would be made smaller than they need be.
    let expected = {
        let first = exact.get(..1).unwrap_or_default();
        let exact = Model::load_on_devices(folder, first, false)?;
        if exact.is_table {
            return Ok(exact);
        }
        of_calibration(folder, &exact)?.0
    };
    let mut model = Model::load_on_devices(folder, fast, packed)?;
    let (fidelity, again) = held_against(folder, &expected, &model)?;
    // What was made again at f32 says nothing of f16.
    if fidelity.is_enough() && again == 0 {
        model.fidelity = Some(fidelity);
        return Ok(model);
    }
    if packed {
        // Somebody asked for it.
        tracing::warn!(
            "--gpu-graph packed: f16 is not true enough for this model (mean cosine {:.5}, least {:.5}, {again} texts beyond \
             f16), so that it is encoded at f32, by the padded graph",
            fidelity.mean,
            fidelity.least
        );
    }
    tracing::info!(
        mean = fidelity.mean,
        least = fidelity.least,
        beyond_f16 = again,
        "f16 is not true enough"
    );
    drop(model);
    Model::load_on_devices(folder, exact, false)
}

/// A model's vectors of the calibration texts, and how many it made again at f32.
fn of_calibration(
    folder: &ModelFolder,
    model: &Model,
) -> Result<(Vec<Vec<f32>>, usize), ModelError> {
    let texts: Vec<&str> = CALIBRATION.lines().collect();
    vectors(model, &texts).map_err(|problem| folder.unsupported(problem))
}

/// Compares two loads of one model.
fn measure(folder: &ModelFolder, exact: &Model, model: &Model) -> Result<Fidelity, ModelError> {
    let (exact, _) = of_calibration(folder, exact)?;
    Ok(held_against(folder, &exact, model)?.0)
}

/// Compares a load with vectors of the calibration texts; also says how many of them it made again at f32.
fn held_against(
    folder: &ModelFolder,
    exact: &[Vec<f32>],
    model: &Model,
) -> Result<(Fidelity, usize), ModelError> {
    let (got, made_again) = of_calibration(folder, model)?;
    let mut fidelity = Fidelity {
        mean: 0.0,
        least: 1.0,
        measured: true,
    };
    let texts = got.len() as f64;
    for (a, b) in exact.iter().zip(&got) {
        let cosine = cosine(a, b);
        fidelity.mean += cosine / texts;
        // A NaN must fail the comparison; `min` would lose it.
        fidelity.least = match cosine.is_nan() || fidelity.least.is_nan() {
            true => f64::NAN,
            false => fidelity.least.min(cosine),
        };
    }
    Ok((fidelity, made_again))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_the_shipped_model_is_what_measuring_gives() {
        let folder = ModelFolder::shipped().unwrap();
        for level in Level::available() {
            let exact = Model::load(&folder, level, Precision::F32).unwrap();
            for (precision, known) in SHIPPED {
                let model = Model::load(&folder, level, precision).unwrap();
                let measured = measure(&folder, &exact, &model).unwrap();
                assert!(
                    measured.mean >= known.mean && measured.least >= known.least,
                    "{level:?} {precision:?}: {measured:?} is below {known:?}"
                );
                assert_eq!(
                    measured.is_enough(),
                    known.is_enough(),
                    "{level:?} {precision:?}: {measured:?}"
                );
            }
            let same = measure(&folder, &exact, &exact).unwrap();
            assert!(same.mean > 0.999_999 && same.least > 0.999_999, "{same:?}");
            let chosen = load_fastest(&folder, level).unwrap();
            let expected = match level.has_dot(Precision::Bf16) {
                true => "bf16",
                false => "f32",
            };
            assert_eq!(chosen.encoder.precision(), expected, "{level:?}");
            assert_eq!(chosen.fidelity.is_some(), expected != "f32");
        }
    }
}
