//! What the packed graph launches, in order, as plain data.

use crate::{Activation, Layer, Norm, NormPlace, TransformerShape, TransformerWeights};

/// Rows of a slot between two steps, f16 on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// (tokens, hidden) what all layers add to.
    Hidden,
    /// (tokens, hidden) where norms are before attention and feed-forward layers.
    Normed,
    /// (tokens, queries, keys and values of all heads).
    Heads,
    /// (tokens, all heads).
    Context,
    /// (tokens, outputs of the first feed-forward layer).
    Wide,
    /// (tokens, inputs of the second one), where the first one has two halves.
    Gated,
    /// (texts, hidden) where layers follow pooling.
    Pooled,
    /// (texts, outputs of a layer after pooling); the number of that layer.
    Dense(usize),
}

/// A norm of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOf {
    /// That of a layer's attention.
    Attention(usize),
    /// That of a layer's feed-forward layers.
    Output(usize),
    /// That after the last layer.
    Last,
}

/// A linear layer of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductOf {
    /// Queries, keys and values in one.
    QueryKeyValue(usize),
    /// After attention.
    AttentionOutput(usize),
    /// First feed-forward layer.
    Intermediate(usize),
    /// Second feed-forward layer.
    Output(usize),
    /// A layer after pooling.
    Dense(usize),
}

/// One launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Words and places, and their norm, into [`Buffer::Hidden`].
    Embed,
    /// Norms of rows.
    Norm {
        /// Which.
        of: NormOf,
        /// Rows.
        from: Buffer,
        /// Where they go; may be the same.
        to: Buffer,
    },
    /// A linear layer and its bias.
    Product {
        /// Which.
        of: ProductOf,
        /// Its inputs.
        from: Buffer,
        /// Its outputs.
        to: Buffer,
        /// Whether they are added to what is there.
        added: bool,
        /// What the product's own end does to them: none, [`Activation::Relu`] or [`Activation::GeluTanh`].
        activation: Activation,
    },
    /// Norms of heads and turns by places, of a layer; in [`Buffer::Heads`].
    Turn(usize),
    /// Attention of a layer, from [`Buffer::Heads`] to [`Buffer::Context`].
    Attend(usize),
    /// An activation, of half of the rows' width times the other half if the model is gated.
    Activate {
        /// Which.
        activation: Activation,
        /// Rows.
        from: Buffer,
        /// Where they go; may be the same where nothing is gated.
        to: Buffer,
    },
    /// A row a text: its vector, or [`Buffer::Pooled`] where layers follow.
    Pool,
    /// The vectors, from the last layer after pooling.
    Finish,
}

/// All launches of a pass.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    shape: TransformerShape,
    /// Outputs of the first feed-forward layer.
    wide: usize,
    /// Inputs of the first layer after pooling, and outputs of all.
    dense: Vec<usize>,
}

/// Products' own ends know GELU with the hyperbolic tangent alone. Against the error function it moves a vector about as
/// far as f16 itself does (all-MiniLM-L6-v2: cosine 0.9999992 on average, 0.9999978 at least).
fn fused(activation: Activation, near: bool) -> Option<Activation> {
    match activation {
        Activation::None | Activation::Relu | Activation::GeluTanh => Some(activation),
        Activation::Gelu if near => Some(Activation::GeluTanh),
        _ => None,
    }
}

impl Plan {
    /// The plan of a model; `outputs` tells how wide a linear layer's rows are. `near` allows the hyperbolic tangent in
    /// place of the error function.
    pub fn of<L>(
        shape: TransformerShape,
        weights: &TransformerWeights<L>,
        outputs: impl Fn(&L) -> usize,
        near: bool,
    ) -> Self {
        let wide = weights.layers.first();
        let wide = wide.map_or(0, |layer| outputs(&layer.intermediate));
        let mut plan = Self {
            steps: vec![Step::Embed],
            shape,
            wide,
            dense: std::iter::once(shape.hidden)
                .chain(weights.dense.iter().map(|(linear, _)| outputs(linear)))
                .collect(),
        };
        for (at, layer) in weights.layers.iter().enumerate() {
            plan.layer(at, layer, near);
        }
        if weights.last_norm.is_some() {
            plan.norm(NormOf::Last, Buffer::Hidden, Buffer::Hidden);
        }
        plan.steps.push(Step::Pool);
        let mut from = Buffer::Pooled;
        for (at, (_, activation)) in weights.dense.iter().enumerate() {
            let to = Buffer::Dense(at);
            plan.product(ProductOf::Dense(at), from, to, false, *activation, near);
            from = to;
        }
        if from != Buffer::Pooled {
            plan.steps.push(Step::Finish);
        }
        plan
    }

    fn norm(&mut self, of: NormOf, from: Buffer, to: Buffer) {
        self.steps.push(Step::Norm { of, from, to });
    }

    /// A product with its activation, in one step if it can be.
    fn product(
        &mut self,
        of: ProductOf,
        from: Buffer,
        to: Buffer,
        added: bool,
        activation: Activation,
        near: bool,
    ) {
        let own = fused(activation, near);
        self.steps.push(Step::Product {
            of,
            from,
            to,
            added,
            activation: own.unwrap_or(Activation::None),
        });
        if own.is_none() {
            self.steps.push(Step::Activate {
                activation,
                from: to,
                to,
            });
        }
    }

    fn layer<L>(&mut self, at: usize, layer: &Layer<L>, near: bool) {
        let before = self.shape.norm_place == NormPlace::Before;
        let none = Activation::None;
        let (hidden, normed) = (Buffer::Hidden, Buffer::Normed);
        let norm_before = |plan: &mut Self, of: NormOf, norm: Option<&Norm>| match norm {
            Some(_) if before => {
                plan.norm(of, hidden, normed);
                normed
            }
            _ => hidden,
        };
        let from = norm_before(self, NormOf::Attention(at), layer.attention_norm.as_ref());
        self.product(
            ProductOf::QueryKeyValue(at),
            from,
            Buffer::Heads,
            false,
            none,
            near,
        );
        if layer.turn.is_some() || layer.head_norms.is_some() {
            self.steps.push(Step::Turn(at));
        }
        self.steps.push(Step::Attend(at));
        let output = ProductOf::AttentionOutput(at);
        self.product(output, Buffer::Context, hidden, true, none, near);
        if !before && layer.attention_norm.is_some() {
            self.norm(NormOf::Attention(at), hidden, hidden);
        }
        let from = norm_before(self, NormOf::Output(at), Some(&layer.output_norm));
        let (wide, activation) = (Buffer::Wide, self.shape.activation);
        let intermediate = ProductOf::Intermediate(at);
        let narrow = match self.shape.gated {
            false => {
                self.product(intermediate, from, wide, false, activation, near);
                wide
            }
            true => {
                self.product(intermediate, from, wide, false, none, near);
                let to = Buffer::Gated;
                self.steps.push(Step::Activate {
                    activation,
                    from: wide,
                    to,
                });
                to
            }
        };
        self.product(ProductOf::Output(at), narrow, hidden, true, none, near);
        if !before {
            self.norm(NormOf::Output(at), hidden, hidden);
        }
    }

    /// Layers after pooling.
    pub fn dense_layers(&self) -> usize {
        self.dense.len() - 1
    }

    /// Numbers in a row of a buffer.
    pub fn width(&self, buffer: Buffer) -> usize {
        match buffer {
            Buffer::Hidden | Buffer::Normed => self.shape.hidden,
            Buffer::Heads => self.shape.of_queries_keys_values(),
            Buffer::Context => self.shape.of_heads(),
            Buffer::Wide => self.wide,
            Buffer::Gated => self.wide / 2,
            Buffer::Pooled => self.dense.first().copied().unwrap_or(0),
            Buffer::Dense(at) => self.dense.get(at + 1).copied().unwrap_or(0),
        }
    }

    /// The buffers that steps use, each once.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut found = Vec::new();
        let mut note = |buffer| {
            if !found.contains(&buffer) {
                found.push(buffer);
            }
        };
        for step in &self.steps {
            match *step {
                Step::Embed => note(Buffer::Hidden),
                Step::Norm { from, to, .. }
                | Step::Product { from, to, .. }
                | Step::Activate { from, to, .. } => [from, to].into_iter().for_each(&mut note),
                Step::Turn(_) => note(Buffer::Heads),
                Step::Attend(_) => [Buffer::Heads, Buffer::Context]
                    .into_iter()
                    .for_each(&mut note),
                Step::Pool | Step::Finish => {}
            }
        }
        found
    }

    /// Bytes that a step reads and writes for a token, at f16; weights and what a text has once are not counted.
    pub fn bytes_a_token(&self, step: Step) -> usize {
        const NUMBER: usize = 2;
        let numbers = match step {
            Step::Embed => 2 * self.shape.hidden,
            Step::Norm { from, to, .. } | Step::Activate { from, to, .. } => {
                self.width(from) + self.width(to)
            }
            Step::Product {
                from, to, added, ..
            } => self.width(from) + self.width(to) * (1 + usize::from(added)),
            Step::Turn(_) => 2 * (self.shape.heads + self.shape.key_heads) * self.shape.head_size,
            Step::Attend(_) => self.width(Buffer::Heads) + self.width(Buffer::Context),
            Step::Pool => self.shape.hidden,
            Step::Finish => 0,
        };
        numbers * NUMBER
    }

    /// Floating-point operations of a step for a token of a text of so many tokens that all are seen: two for each product
    /// of two numbers. Norms and the like are not counted.
    pub fn operations_a_token(&self, step: Step, tokens: usize) -> usize {
        match step {
            Step::Product {
                of: ProductOf::Dense(_),
                ..
            } => 0,
            Step::Product { from, to, .. } => 2 * self.width(from) * self.width(to),
            Step::Attend(_) => 4 * tokens * self.shape.of_heads(),
            _ => 0,
        }
    }
}

/// Weights of these sizes, each linear layer as its number of outputs; with turns, and two layers after pooling.
#[cfg(test)]
pub(super) fn weights_of_sizes(
    shape: TransformerShape,
    layers: usize,
    dense: bool,
) -> TransformerWeights<usize> {
    let norm = || (vec![1.0; shape.hidden], vec![0.0; shape.hidden]);
    let layer = |_| Layer {
        query_key_value: shape.of_queries_keys_values(),
        head_norms: None,
        turn: Some(crate::Turn {
            base: 10_000.0,
            pace: 1.0,
        }),
        mask: crate::Mask::All,
        attention_output: shape.hidden,
        attention_norm: Some(norm()),
        intermediate: 4 * shape.hidden * (1 + usize::from(shape.gated)),
        output: shape.hidden,
        output_norm: norm(),
    };
    TransformerWeights {
        words: Vec::new(),
        positions: None,
        embedding_norm: Some(norm()),
        offset_bias: None,
        layers: (0..layers).map(layer).collect(),
        last_norm: None,
        dense: match dense {
            true => vec![(48, Activation::Tanh), (56, Activation::None)],
            false => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests;
