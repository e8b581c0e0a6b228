//! `length`: how long the output is against the expected text.

use crate::metric::comparison::{strip_fences, units};

/// 1 where the output, without a code fence around it, has the length of the expected text give or take `tolerance` of
/// it. From there the score falls to 0 at no length and at twice the upper bound. Lengths are UTF-16 code units.
pub(super) fn score(actual: &str, expected: &str, tolerance: f64) -> f64 {
    let (actual, expected) = (units(strip_fences(actual)), units(expected));
    match expected {
        0 if actual == 0 => 1.0,
        0 => 0.0,
        _ => closeness(ratio(actual, expected), tolerance),
    }
}

fn closeness(ratio: f64, tolerance: f64) -> f64 {
    let (lower, upper) = (1.0 - tolerance, 1.0 + tolerance);
    if ratio < lower {
        (ratio / lower).max(0.0)
    } else if ratio > upper {
        ((upper * 2.0 - ratio) / upper).max(0.0)
    } else {
        1.0
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_tolerance_lose() {
        let text = |length: usize| "x".repeat(length);
        for (actual, expected, found) in [
            (80, 100, 1.0),
            (120, 100, 1.0),
            (40, 100, 0.5),
            (240, 100, 0.0),
            (300, 100, 0.0),
        ] {
            assert_eq!(
                score(&text(actual), &text(expected), 0.2),
                found,
                "{actual}"
            );
        }
        assert_eq!(score("", "", 0.2), 1.0);
        assert_eq!(score("```\n```", "", 0.2), 1.0);
        assert_eq!(score("x", "", 0.2), 0.0);
        assert_eq!(score("", "x", 1.0), 1.0);
        assert_eq!(score("😀", "xx", 0.0), 1.0);
    }
}
