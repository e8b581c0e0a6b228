//! Jina's BERT of the second version (Günther et al. 2023, arXiv:2310.19923): BERT with gates, whose scores of attention
//! fall with the distance (Press et al. 2021, arXiv:2108.12409).

use serde_json::json;

use super::{Biases, Names, Parts, Places, Plan, equal_layers, shape};
use crate::encoder::Activation;
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    config.only("is_decoder", &json!(false))?;
    let mut shape = shape(config)?;
    shape.gated = true;
    shape.activation = match config.text_or("feed_forward_type", "original")? {
        "geglu" => Activation::Gelu,
        "reglu" => Activation::Relu,
        other => {
            return Err(config.bad(format!(
                "key `feed_forward_type` is `{other}`; with positions of type `alibi`, geglu and reglu are supported"
            )));
        }
    };
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers: equal_layers(config.count("num_hidden_layers")?, None),
        places: Places::Slopes,
        biases: Biases {
            intermediate: false,
            ..Biases::ALL
        },
        names: vec![Names {
            positions: "",
            intermediate: Parts::One("mlp.gated_layers"),
            output: "mlp.wo",
            output_norm: "mlp.layernorm",
            ..Names::BERT
        }],
    })
}

/// How much a score of each head falls from place to place: powers of one ratio where there are as many heads as a power
/// of two; else those of the next smaller one, and every second of those of the next larger one.
pub(in crate::model) fn slopes(heads: usize) -> Vec<f64> {
    let powers = |count: usize| {
        let ratio = 2f64.powf(-8.0 / count as f64);
        (1..=count).map(move |power| ratio.powi(power as i32))
    };
    if heads.is_power_of_two() {
        return powers(heads).collect();
    }
    let smaller = heads.next_power_of_two() / 2;
    let between = powers(2 * smaller).step_by(2);
    powers(smaller).chain(between).take(heads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_powers_and_others_stand_between_them() {
        assert_eq!(slopes(8)[..3], [0.5, 0.25, 0.125]);
        let twelve = slopes(12);
        assert_eq!((twelve.len(), twelve[7]), (12, 2f64.powi(-8)));
        let of_sixteen = [1.0, 3.0, 5.0, 7.0].map(|power: f64| 2f64.powf(-0.5 * power));
        for (got, expected) in twelve[8..].iter().zip(of_sixteen) {
            assert!((got - expected).abs() < 1e-12);
        }
    }
}
