//! Rounding as stored scores have it (as in PandaProbe).

/// The decimal with 4 fraction digits nearest to the exact binary value of `x`, ties to even.
/// Negative zero becomes zero; NaN and infinities are returned unchanged.
pub fn round4(x: f64) -> f64 {
    let scaled = x * 1e4;
    if scaled.abs() < 1e9 {
        let nearest = scaled.round();
        // Away from a tie the scaled value decides, and dividing two exact numbers is correctly
        // rounded. Near one, scaling may have lost the deciding bit: format instead.
        if (0.5 - (scaled - nearest).abs()) > 1e-6 {
            return nearest / 1e4 + 0.0;
        }
    } else if !x.is_finite() {
        return x;
    }
    format!("{x:.4}").parse::<f64>().unwrap_or(x) + 0.0
}

/// `max(0, min(1, x))`. NaN stays NaN: it must never become a score.
pub fn clamp01(x: f64) -> f64 {
    if x.is_nan() {
        x
    } else {
        x.clamp(0.0, 1.0) + 0.0
    }
}

/// The stored string of a score: rounded, shortest digits, at least one fraction digit.
pub fn stored_value(score: f64) -> String {
    let mut out = String::new();
    crate::text::push_number(&mut out, round4(score));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_even_on_the_exact_binary_value() {
        for (x, expected) in [
            (0.03125, 0.0312),
            (0.09375, 0.0938),
            (0.00015, 0.0001),
            (-0.00001, 0.0),
        ] {
            assert_eq!(round4(x).to_bits(), f64::to_bits(expected), "round4({x})");
        }
    }

    proptest! {
        #[test]
        fn the_fast_way_equals_formatting(x in prop_oneof![-2.0..2.0f64, (0u32..20_001).prop_map(|n| f64::from(n) / 20_000.0), any::<f64>()]) {
            let formatted: f64 = format!("{x:.4}").parse().unwrap();
            if x.is_nan() { prop_assert!(round4(x).is_nan()); } else { prop_assert_eq!(round4(x), formatted); }
        }
    }
}
