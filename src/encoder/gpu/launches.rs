//! From steps to launches of kernels: which kernel, over how many blocks, with which arguments, as plain data.

use super::plan::{Buffer, NormOf, Plan, Step};
use super::slot::Slot;
use crate::{Activation, Mask, NormKind, Pooling, TextHead, TransformerShape};

/// Threads of a block in every kernel.
pub(super) const THREADS: usize = 128;
/// Warps of a block.
const WARPS: usize = 4;

/// What is on the device, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    /// Nothing: a null pointer.
    Null,
    Rows(Buffer),
    /// Texts' vectors at f32.
    Vectors,
    Words,
    Positions,
    /// Gain and bias of the norm after the embeddings.
    EmbeddingGain,
    EmbeddingBias,
    Gain(NormOf),
    Bias(NormOf),
    /// Of a layer's norms over heads.
    QueryGain(usize),
    KeyGain(usize),
    /// Of a layer's turns.
    Cosines(usize),
    Sines(usize),
    /// Added to scores by the places of key and query.
    Offsets,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Argument {
    /// The parts of the slot; as if texts were tokens, where each is a row.
    Slot {
        of_texts: bool,
    },
    Pointer(Pointer),
    /// A whole number, and what the kernel calls it.
    Whole(&'static str, i32),
    Real(f32),
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Launch {
    pub kernel: &'static str,
    /// Blocks of [`THREADS`] threads: across, and down.
    pub blocks: (usize, usize),
    pub arguments: Vec<Argument>,
}

/// The kernel of attention for heads of this size; none if there is none.
pub(super) fn attention_kernel(head_size: usize) -> Option<&'static str> {
    match head_size {
        32 => Some("attend_32"),
        64 => Some("attend_64"),
        128 => Some("attend_128"),
        _ => None,
    }
}

/// All kernels of a model with heads of this size.
pub(super) fn kernels(head_size: usize) -> Vec<&'static str> {
    let others = [
        "embed_tokens",
        "norm_rows",
        "turn_heads",
        "activate_rows",
        "pool_texts",
    ];
    others
        .into_iter()
        .chain(attention_kernel(head_size))
        .collect()
}

/// What all passes of a lane have in common.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub plan: Plan,
    pub slot: Slot,
    pub shape: TransformerShape,
    pub head: TextHead,
    /// Components of a text's vector.
    pub dim: usize,
    /// Of each layer.
    pub masks: Vec<Mask>,
}

impl Pass {
    /// The launch of a step; none of a product.
    pub fn launch(&self, step: Step) -> Option<Launch> {
        let (slot, shape) = (self.slot, &self.shape);
        let tokens = Argument::Slot { of_texts: false };
        let pointer = Argument::Pointer;
        let rows = |buffer| pointer(Pointer::Rows(buffer));
        let whole = |name: &'static str, number: usize| {
            Argument::Whole(name, i32::try_from(number).unwrap_or(i32::MAX))
        };
        let flag = |name: &'static str, is: bool| Argument::Whole(name, i32::from(is));
        let (hidden, epsilon) = (whole("hidden", shape.hidden), Argument::Real(shape.epsilon));
        let root = flag("root", shape.norm == NormKind::RootMeanSquare);
        let (heads, key_heads) = (
            whole("heads", shape.heads),
            whole("key_heads", shape.key_heads),
        );
        let warps = |count: usize| (count.div_ceil(WARPS), 1);
        let (kernel, blocks, arguments) = match step {
            Step::Product { .. } => return None,
            Step::Embed => (
                "embed_tokens",
                warps(slot.tokens()),
                vec![
                    tokens,
                    pointer(Pointer::Words),
                    pointer(Pointer::Positions),
                    pointer(Pointer::EmbeddingGain),
                    pointer(Pointer::EmbeddingBias),
                    hidden,
                    root,
                    epsilon,
                    rows(Buffer::Hidden),
                ],
            ),
            Step::Norm { of, from, to } => (
                "norm_rows",
                warps(slot.tokens()),
                vec![
                    tokens,
                    rows(from),
                    pointer(Pointer::Gain(of)),
                    pointer(Pointer::Bias(of)),
                    hidden,
                    root,
                    epsilon,
                    rows(to),
                ],
            ),
            Step::Turn(layer) => (
                "turn_heads",
                warps(slot.tokens() * (shape.heads + shape.key_heads)),
                vec![
                    tokens,
                    rows(Buffer::Heads),
                    pointer(Pointer::QueryGain(layer)),
                    pointer(Pointer::KeyGain(layer)),
                    epsilon,
                    pointer(Pointer::Cosines(layer)),
                    pointer(Pointer::Sines(layer)),
                    heads,
                    key_heads,
                    whole("size", shape.head_size),
                ],
            ),
            Step::Attend(layer) => {
                let mask = match self.masks.get(layer).copied().unwrap_or(Mask::All) {
                    Mask::All => -1,
                    Mask::Causal => -2,
                    // No text is as long, and sums of places stay within 32 bits.
                    Mask::Near(most) => i32::try_from(most).unwrap_or(i32::MAX).min(1 << 30),
                };
                (
                    attention_kernel(shape.head_size)?,
                    (slot.tiles().div_ceil(WARPS), shape.heads),
                    vec![
                        tokens,
                        rows(Buffer::Heads),
                        pointer(Pointer::Offsets),
                        whole("positions", shape.positions),
                        heads,
                        key_heads,
                        Argument::Whole("mask", mask),
                        rows(Buffer::Context),
                    ],
                )
            }
            Step::Activate {
                activation,
                from,
                to,
            } => {
                let of_texts = matches!(to, Buffer::Dense(_));
                let count = if of_texts {
                    slot.texts()
                } else {
                    slot.tokens()
                };
                (
                    "activate_rows",
                    warps(count),
                    vec![
                        Argument::Slot { of_texts },
                        rows(from),
                        whole("width", self.plan.width(to)),
                        Argument::Whole("activation", number_of(activation)),
                        flag("gated", from != to),
                        rows(to),
                    ],
                )
            }
            Step::Pool | Step::Finish => {
                let last = self.plan.dense_layers().checked_sub(1).map(Buffer::Dense);
                let (of_texts, from, pooling, pool_from) = match (step, last) {
                    // Each text is one row by now.
                    (Step::Finish, Some(last)) => (true, last, Pooling::Cls, 0),
                    _ => (
                        false,
                        Buffer::Hidden,
                        self.head.pooling,
                        self.head.pool_from,
                    ),
                };
                let ends = step == Step::Finish || last.is_none();
                let width = self.plan.width(from);
                let (out, narrow) = match ends {
                    true => (Pointer::Vectors, Pointer::Null),
                    false => (Pointer::Null, Pointer::Rows(Buffer::Pooled)),
                };
                (
                    "pool_texts",
                    (slot.texts(), 1),
                    vec![
                        Argument::Slot { of_texts },
                        rows(from),
                        whole("hidden", width),
                        Argument::Whole("pooling", number_of_pooling(pooling)),
                        whole("pool_from", pool_from),
                        whole("keep", if ends { self.dim } else { width }),
                        flag("normalise", ends && self.head.normalise),
                        pointer(out),
                        pointer(narrow),
                    ],
                )
            }
        };
        Some(Launch {
            kernel,
            blocks,
            arguments,
        })
    }
}

/// As `Activation` of kernels.cu.
fn number_of(activation: Activation) -> i32 {
    match activation {
        Activation::None => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
        Activation::Relu => 3,
        Activation::Silu => 4,
        Activation::Tanh => 5,
    }
}

/// As `Pooling` of kernels.cu.
fn number_of_pooling(pooling: Pooling) -> i32 {
    match pooling {
        Pooling::Mean => 0,
        Pooling::Cls => 1,
        Pooling::Max => 2,
        Pooling::MeanSqrtLen => 3,
        Pooling::WeightedMean => 4,
        Pooling::LastToken => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = include_str!("kernels.cu");

    /// Parameters of a kernel as the source has them: type and name.
    fn parameters(kernel: &str) -> Vec<(String, String)> {
        // Those of attention are written once for all sizes.
        let name = match kernel.starts_with("attend_") {
            true => "attend_##SIZE(",
            false => kernel,
        };
        let at = SOURCE.find(&format!("{name}(").replace("((", "(")).unwrap();
        let rest = &SOURCE[at..];
        let inside = &rest[rest.find('(').unwrap() + 1..rest.find(')').unwrap()];
        let inside = inside.replace(['\\', '\n'], " ");
        let parameters = inside.split(',').map(|parameter| {
            let parameter = parameter.trim();
            let cut = parameter.rfind([' ', '*']).unwrap() + 1;
            (
                parameter[..cut].trim().to_owned(),
                parameter[cut..].to_owned(),
            )
        });
        parameters.collect()
    }

    /// What a parameter of this name may be given.
    fn suits(name: &str, argument: Argument) -> bool {
        use Pointer::*;
        match argument {
            Argument::Slot { .. } => name == "slot",
            Argument::Real(_) => name == "epsilon",
            Argument::Whole(called, _) => name == called,
            Argument::Pointer(pointer) => match name {
                "words" => pointer == Words,
                "places" => pointer == Positions,
                "gain" => matches!(pointer, EmbeddingGain | Gain(_)),
                "bias" => matches!(pointer, EmbeddingBias | Bias(_)),
                "query_gain" => matches!(pointer, QueryGain(_)),
                "key_gain" => matches!(pointer, KeyGain(_)),
                "cosines" => matches!(pointer, Cosines(_)),
                "sines" => matches!(pointer, Sines(_)),
                "offsets" => pointer == Offsets,
                "narrow" => matches!(pointer, Null | Rows(Buffer::Pooled)),
                "in" | "rows" => matches!(pointer, Rows(_)),
                "out" => matches!(pointer, Rows(_) | Vectors | Null),
                _ => false,
            },
        }
    }

    fn pass(shape: TransformerShape) -> Pass {
        let steps = |plan: &Plan| plan.steps.len();
        let weights = crate::gpu::plan::weights_of_sizes(shape, 2, true);
        let plan = Plan::of(shape, &weights, |outputs| *outputs, false);
        assert!(steps(&plan) > 10);
        Pass {
            plan,
            slot: Slot::of(64),
            shape,
            head: TextHead {
                pooling: Pooling::Mean,
                pool_from: 0,
                keep: Some(24),
                normalise: true,
            },
            dim: 24,
            masks: vec![Mask::All, Mask::Near(7)],
        }
    }

    #[test]
    fn arguments_are_those_of_their_kernels_in_their_order() {
        for head_size in [32, 64, 128] {
            let mut shape = TransformerShape::of_bert(2 * head_size, 2, 90, 80);
            shape.activation = Activation::Silu;
            shape.gated = true;
            let pass = pass(shape);
            let mut seen = Vec::new();
            for step in &pass.plan.steps {
                let Some(launch) = pass.launch(*step) else {
                    assert!(matches!(step, Step::Product { .. }));
                    continue;
                };
                let parameters = parameters(launch.kernel);
                assert_eq!(
                    parameters.len(),
                    launch.arguments.len(),
                    "{}",
                    launch.kernel
                );
                for ((kind, name), argument) in parameters.iter().zip(&launch.arguments) {
                    let is_right = match argument {
                        Argument::Slot { .. } => kind == "Slot",
                        Argument::Pointer(_) => kind.ends_with('*'),
                        Argument::Whole(..) => kind == "int",
                        Argument::Real(_) => kind == "float",
                    };
                    assert!(
                        is_right && suits(name, *argument),
                        "{}: {kind} {name}, {argument:?}",
                        launch.kernel
                    );
                }
                seen.push(launch.kernel);
                assert!(launch.blocks.0 > 0 && launch.blocks.1 > 0);
            }
            seen.sort_unstable();
            seen.dedup();
            assert!(SOURCE.contains(&format!("constexpr int WARPS = {WARPS};")));
            assert_eq!(THREADS, 32 * WARPS);
            let mut all = kernels(head_size);
            all.sort_unstable();
            assert_eq!(seen, all);
        }
        assert_eq!(attention_kernel(48), None);
    }

    #[test]
    fn numbers_of_kinds_are_those_of_the_source() {
        for (kinds, names) in [
            (
                "Activation",
                [
                    "NONE = 0, GELU = 1",
                    "GELU_TANH = 2, RELU = 3, SILU = 4, TANH = 5",
                ],
            ),
            (
                "Pooling",
                [
                    "MEAN = 0, CLS = 1, MAX = 2",
                    "MEAN_SQRT_LEN = 3, WEIGHTED_MEAN = 4, LAST_TOKEN = 5",
                ],
            ),
        ] {
            let listed = format!("enum {kinds} {{ {} }};", names.join(", "));
            assert!(SOURCE.contains(&listed), "{listed}");
        }
    }

    #[test]
    fn layers_after_pooling_are_rows_of_texts() {
        let pass = pass(TransformerShape::of_bert(64, 2, 90, 80));
        let pooled = pass.launch(Step::Pool).unwrap();
        assert!(
            pooled
                .arguments
                .contains(&Argument::Pointer(Pointer::Rows(Buffer::Pooled)))
        );
        let finished = pass.launch(Step::Finish).unwrap();
        assert_eq!(finished.arguments[0], Argument::Slot { of_texts: true });
        // The components that are kept, of length 1.
        assert_eq!(
            finished.arguments[5..7],
            [Argument::Whole("keep", 24), Argument::Whole("normalise", 1)]
        );
    }
}
