//! Rounding as stored scores have it (as in PandaProbe).

use std::fmt::Write as _;

/// The decimal with 4 fraction digits nearest to the exact binary value of `x`, ties to even.
/// Negative zero becomes zero; NaN and infinities are returned unchanged.
pub fn round4(x: f64) -> f64 {
    if let Some(steps) = nearest_steps(x) {
        // Dividing two exact numbers is correctly rounded.
        return steps as f64 / 1e4;
    }
    let scaled = x * 1e4;
    if scaled.abs() < 1e9 {
        let nearest = scaled.round();
        if is_clear(scaled, nearest) {
            return nearest / 1e4 + 0.0;
        }
    } else if !x.is_finite() {
        return x;
    }
    format!("{x:.4}").parse::<f64>().unwrap_or(x) + 0.0
}

/// Away from a tie the scaled value decides. Near one, scaling may have lost the deciding bit.
fn is_clear(scaled: f64, nearest: f64) -> bool {
    (0.5 - (scaled - nearest).abs()) > 1e-6
}

/// How many steps of 0.0001 are nearest to a number, where that is clear; of numbers that are neither negative nor large.
fn nearest_steps(x: f64) -> Option<u64> {
    let scaled = x * 1e4;
    if !(0.0..1e9).contains(&scaled) {
        return None;
    }
    // To the nearest, without a call.
    let steps = (scaled + 0.5) as u64;
    is_clear(scaled, steps as f64).then_some(steps)
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
    push_rounded(&mut out, score);
    out
}

/// Appends [`stored_value`].
pub fn push_rounded(out: &mut String, score: f64) {
    match nearest_steps(score) {
        Some(steps) => push_shortest_steps(out, steps),
        None => crate::text::push_number(out, round4(score)),
    }
}

/// Appends a score as sentences show it: rounded, always four decimals.
pub fn push_four_decimals(out: &mut String, score: f64) {
    match nearest_steps(score) {
        Some(steps) => push_steps(out, steps, 4),
        // Writing to a String can't fail.
        None => _ = write!(out, "{:.4}", round4(score)),
    }
}

/// Appends the shortest digits of a number, at least one fraction digit. Of numbers that have at most 4 decimals and
/// are neither negative nor large; of others it appends nothing and returns false.
pub(super) fn push_shortest(out: &mut String, x: f64) -> bool {
    match nearest_steps(x).filter(|steps| *steps as f64 / 1e4 == x && x.is_sign_positive()) {
        Some(steps) => push_shortest_steps(out, steps),
        None => return false,
    }
    true
}

fn push_shortest_steps(out: &mut String, steps: u64) {
    let decimals = match steps {
        _ if steps.is_multiple_of(1000) => 1,
        _ if steps.is_multiple_of(100) => 2,
        _ if steps.is_multiple_of(10) => 3,
        _ => 4,
    };
    push_steps(out, steps, decimals);
}

/// Digit by digit: most of what a night's details and scores consist of.
fn push_steps(out: &mut String, steps: u64, decimals: usize) {
    let (whole, fraction) = (steps / 10_000, steps % 10_000);
    match whole {
        0..=9 => out.push(char::from(b'0' + whole as u8)),
        _ => _ = write!(out, "{whole}"),
    }
    let digits = [
        b'.',
        b'0' + (fraction / 1000) as u8,
        b'0' + (fraction / 100 % 10) as u8,
        b'0' + (fraction / 10 % 10) as u8,
        b'0' + (fraction % 10) as u8,
    ];
    out.push_str(str::from_utf8(&digits[..=decimals]).unwrap_or_default());
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

        #[test]
        fn digits_equal_those_of_formatting(x in prop_oneof![-2.0..2.0f64, (0u32..20_001).prop_map(|n| f64::from(n) / 1e4), 0.0..1e6f64, any::<f64>()]) {
            let mut shortest = String::new();
            crate::text::push_number(&mut shortest, round4(x));
            prop_assert_eq!(stored_value(x), shortest);
            let mut four = String::new();
            push_four_decimals(&mut four, x);
            prop_assert_eq!(four, format!("{:.4}", round4(x)));
        }
    }
}
