//! MPNet (Song et al. 2020, arXiv:2004.09297): BERT with a bias in attention by buckets of distances.

use serde_json::json;

use super::{Names, Parts, Places, Plan, bert};
use crate::model::ModelError;
use crate::model::config::Config;

/// Buckets of distances.
const BUCKETS: usize = 32;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    // The padding token's number is 1, whatever the configuration says.
    const FIRST: usize = 2;
    let names = Names {
        prefixes: &["", "mpnet."],
        types: None,
        query_key_value: Parts::Apart(&[
            "attention.attn.q",
            "attention.attn.k",
            "attention.attn.v",
        ]),
        attention_output: "attention.attn.o",
        attention_norm: "attention.LayerNorm",
        buckets: "encoder.relative_attention_bias",
        ..Names::BERT
    };
    let plan = bert::of(config, FIRST, names)?;
    // Its own code takes so many, whatever the configuration says.
    config.only("relative_attention_num_buckets", &json!(BUCKETS))?;
    Ok(Plan {
        places: Places::Buckets(FIRST, BUCKETS),
        ..plan
    })
}

/// The bucket of the distance from a query to a key, of so many: half of them for keys behind the query, of these half
/// for single places, the others for ever longer stretches up to 128.
pub(in crate::model) fn bucket(distance: i64, buckets: usize) -> usize {
    const FARTHEST: f64 = 128.0;
    let half = buckets / 2;
    let behind = if distance > 0 { half } else { 0 };
    let single = half / 2;
    let places = distance.unsigned_abs() as usize;
    if places < single {
        return behind + places;
    }
    let stretch = (places as f64 / single as f64).ln() / (FARTHEST / single as f64).ln();
    let bucket = single + (stretch * (half - single) as f64) as usize;
    behind + bucket.min(half - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_places_have_buckets_of_their_own_and_far_ones_share() {
        let of = |distance| bucket(distance, 32);
        assert_eq!([0, -1, -7, 1, 7].map(of), [0, 1, 7, 17, 23]);
        assert_eq!(
            [-8, -11, -12, -127, -128, -4000].map(of),
            [8, 8, 9, 15, 15, 15]
        );
        assert_eq!([8, 4000].map(of), [24, 31]);
    }
}
