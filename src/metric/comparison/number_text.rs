//! Numbers as ECMAScript writes them.

use std::fmt::Write as _;

/// Adds a number as ECMAScript's Number-to-String has it: `1`, `0.1`, `1e+21`, `1e-7`, `0` for negative zero,
/// `Infinity`.
pub(super) fn push_number(number: f64, out: &mut String) {
    if !number.is_finite() {
        out.push_str(match number {
            _ if number.is_nan() => "NaN",
            _ if number > 0.0 => "Infinity",
            _ => "-Infinity",
        });
        return;
    }
    if number == 0.0 {
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    let (digits, point) = shortest_digits(number.abs());
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0).min(digits.len()));
    match point {
        // Whole numbers, with zeros up to the point.
        _ if count <= point && point <= 21 => {
            out.push_str(&digits);
            out.extend((count..point).map(|_| '0'));
        }
        1..=21 => out.extend([whole, ".", fraction]),
        -5..=0 => {
            out.push_str("0.");
            out.extend((point..0).map(|_| '0'));
            out.push_str(&digits);
        }
        _ => {
            let (first, others) = digits.split_at(1.min(digits.len()));
            out.push_str(first);
            out.push_str(if others.is_empty() { "" } else { "." });
            out.push_str(others);
            // A String takes whatever is written.
            let _ = write!(out, "e{:+}", point - 1);
        }
    }
}

/// The fewest digits that read back as the number, which is positive and finite, and where the point is: so many digits
/// are before it. Of two that are as near, the even one: the standard library takes the greater one.
fn shortest_digits(number: f64) -> (String, i32) {
    let written = serde_json::to_string(&number).unwrap_or_default();
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0');
    let zeros = digits.len() - significant.len();
    let point = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(zeros).unwrap_or(0);
    let point = point + exponent.parse().unwrap_or(0);
    (significant.trim_end_matches('0').to_owned(), point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_ecmascript() {
        for (number, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (1e21, "1e+21"),
            (-1.25e22, "-1.25e+22"),
            (123456789012345680000.0, "123456789012345680000"),
            (999999999999999900000.0, "999999999999999900000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9007199254740993.0, "9007199254740992"),
            (822056418569774.2, "822056418569774.2"),
            (100.0, "100"),
            (0.00001234, "0.00001234"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let mut out = String::from("n=");
            push_number(number, &mut out);
            assert_eq!(out, format!("n={text}"));
        }
    }
}
