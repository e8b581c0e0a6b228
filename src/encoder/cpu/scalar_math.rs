//! The functions of one element, written so that the compiler can turn loops over them into vector
//! code. `FMA` says whether the level has fused multiply-add; it must be used everywhere or
//! nowhere, else an element's value would depend on its place in a row.

/// `a * b + c`, rounded once with `FMA`, twice without.
#[inline(always)]
pub(super) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// The logarithm of 2 in two parts, the first of few bits, and the coefficients of [`exp`], highest first (Cephes'
/// `expf`).
pub(super) const LN2_HIGH: f32 = 0.693_359_4;
pub(super) const LN2_LOW: f32 = -2.121_944_4e-4;
pub(super) const EXP: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    0.166_666_65,
    0.5,
];

/// e^x for x <= 0 (softmax never needs more), relative error below 3e-7; 0 below about -87.
///
/// Range reduction by powers of two and a polynomial, the classic way of Cephes' `expf`.
#[inline(always)]
pub(super) fn exp<const FMA: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding and subtracting it rounds to an integer
    let clamped = x.max(-87.3);
    let rounded = multiply_add::<FMA>(clamped, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = multiply_add::<FMA>(n, -LN2_LOW, multiply_add::<FMA>(n, -LN2_HIGH, clamped));
    let mut p = EXP[0];
    for c in &EXP[1..] {
        p = multiply_add::<FMA>(p, r, *c);
    }
    let y = multiply_add::<FMA>(p * r, r, r) + 1.0;
    // n is a whole number in [-126, 0], and the lowest bits of `rounded` are it: 2^n is its exponent's bits.
    // (A cast from float to integer would not become vector code.)
    let whole = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(whole.wrapping_add(127) << 23);
    let value = y * power;
    if x < -87.3 { 0.0 } else { value }
}

/// Coefficients of [`exp2_short`] for 2^r, r from -1/2 to 1/2, highest first (least squares, weighted towards the
/// largest error).
pub(super) const EXP2_SHORT: [f32; 4] = [0.055_171_08, 0.242_610_77, 0.693_261, 0.999_928_1];

/// 2^x for x <= 0, relative error below 1e-4: for weights that are rounded to bf16 afterwards. 0 below -126.
#[inline(always)]
pub(super) fn exp2_short<const FMA: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.max(-126.0);
    let rounded = clamped + ROUND;
    let r = clamped - (rounded - ROUND);
    let mut p = EXP2_SHORT[0];
    for c in &EXP2_SHORT[1..] {
        p = multiply_add::<FMA>(p, r, *c);
    }
    let whole = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let power = f32::from_bits(whole.wrapping_add(127) << 23);
    let value = p * power;
    if x < -126.0 { 0.0 } else { value }
}

/// Coefficients of [`erf`] above and below the fraction bar, highest first, and where f32 saturates (as published in
/// Eigen's `erf`).
pub(super) const ERF_ABOVE: [f32; 7] = [
    -2.726_142_3e-10,
    2.770_681_4e-8,
    -2.101_024e-6,
    -5.692_506_4e-5,
    -7.349_906_3e-4,
    -2.954_6e-3,
    -1.609_603_3e-2,
];
pub(super) const ERF_BELOW: [f32; 5] = [
    -1.456_607_2e-5,
    -2.133_740_6e-4,
    -1.682_827e-3,
    -7.373_329e-3,
    -1.426_473_9e-2,
];
pub(super) const ERF_END: f32 = 4.0;

/// The error function, absolute error below 5e-7: an odd rational function on [-4, 4].
#[inline(always)]
pub(super) fn erf<const FMA: bool>(x: f32) -> f32 {
    let x = x.clamp(-ERF_END, ERF_END);
    let square = x * x;
    let polynomial = |coefficients: &[f32]| {
        let mut p = coefficients[0];
        for c in &coefficients[1..] {
            p = multiply_add::<FMA>(p, square, *c);
        }
        p
    };
    x * polynomial(&ERF_ABOVE) / polynomial(&ERF_BELOW)
}

/// GELU with the error function, as BERT has it.
#[inline(always)]
pub(super) fn gelu<const FMA: bool>(x: f32) -> f32 {
    let half = 0.5 * x;
    multiply_add::<FMA>(half, erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

/// Coefficients of [`gelu_short`], highest first, and where its polynomial ends.
pub(super) const GELU_SHORT: [f32; 7] = [
    2.258_815_4e-8,
    -1.588_824_3e-6,
    4.776_382_4e-5,
    -8.121_868_6e-4,
    8.763_688e-3,
    -6.455_441e-2,
    0.397_870_27,
];
pub(super) const GELU_SHORT_END: f32 = 4.0;

/// GELU with the error function, absolute error below 2.5e-4, without a division: for values that are rounded to bf16 or
/// bytes afterwards. An odd polynomial for the normal distribution on [-4, 4], 0 and 1 outside (least squares,
/// weighted towards the largest error).
#[inline(always)]
pub(super) fn gelu_short<const FMA: bool>(x: f32) -> f32 {
    let clamped = x.clamp(-GELU_SHORT_END, GELU_SHORT_END);
    let square = clamped * clamped;
    let mut p = GELU_SHORT[0];
    for c in &GELU_SHORT[1..] {
        p = multiply_add::<FMA>(p, square, *c);
    }
    x * multiply_add::<FMA>(p, clamped, 0.5)
}

/// GELU with the hyperbolic tangent (`gelu_new`, `gelu_pytorch_tanh`).
#[inline(always)]
pub(super) fn gelu_tanh<const FMA: bool>(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let inner = SQRT_2_OVER_PI * multiply_add::<FMA>(0.044_715 * x * x, x, x);
    // tanh(u) = sign(u) * (1 - e^{-2|u|}) / (1 + e^{-2|u|})
    let decay = exp::<FMA>(-2.0 * inner.abs());
    let tanh = ((1.0 - decay) / (1.0 + decay)).copysign(inner);
    multiply_add::<FMA>(0.5 * x, tanh, 0.5 * x)
}

/// x times the logistic function of x, relative error below 1e-6.
#[inline(always)]
pub(super) fn silu<const FMA: bool>(x: f32) -> f32 {
    let decay = exp::<FMA>(-x.abs());
    let above = if x < 0.0 { x * decay } else { x };
    above / (1.0 + decay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silu_keeps_its_stated_error() {
        for i in 0..=80_000 {
            let x = i as f32 / 2_000.0 - 20.0;
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            for got in [silu::<true>(x), silu::<false>(x)] {
                let error = (f64::from(got) - exact).abs();
                assert!(
                    error <= 1e-6 * exact.abs(),
                    "silu({x}) = {got}, not {exact}"
                );
            }
        }
    }

    /// erf by its Taylor series in f64, good to 1e-12 on [-4, 4].
    fn erf_exact(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn short_functions_keep_their_stated_errors() {
        for i in 0..=100_000 {
            let x = i as f32 / 5_000.0 - 10.0;
            let exact = 0.5
                * f64::from(x)
                * (1.0 + erf_exact((f64::from(x) / 2f64.sqrt()).clamp(-4.5, 4.5)));
            for got in [gelu_short::<true>(x), gelu_short::<false>(x)] {
                assert!(
                    (f64::from(got) - exact).abs() < 2.5e-4,
                    "gelu({x}) = {got}, not {exact}"
                );
            }
            let y = -30.0 * (i as f32 / 100_000.0);
            for got in [exp2_short::<true>(y), exp2_short::<false>(y)] {
                let exact = f64::from(y).exp2();
                assert!((f64::from(got) / exact - 1.0).abs() < 1e-4, "2^{y} = {got}");
            }
        }
        assert_eq!(exp2_short::<true>(f32::NEG_INFINITY), 0.0);
        assert!(exp2_short::<true>(-125.5) > 0.0);
    }

    #[test]
    fn exp_and_erf_keep_their_stated_errors() {
        for i in 0..=80_000 {
            let x = i as f32 / 10_000.0 - 4.0;
            for got in [erf::<true>(x), erf::<false>(x)] {
                assert!(
                    (f64::from(got) - erf_exact(f64::from(x))).abs() < 5e-7,
                    "erf({x}) = {got}"
                );
            }
            let y = -20.0 * (i as f32 / 80_000.0);
            for got in [exp::<true>(y), exp::<false>(y)] {
                let exact = f64::from(y).exp();
                assert!(
                    (f64::from(got) / exact - 1.0).abs() < 3e-7,
                    "exp({y}) = {got}"
                );
            }
        }
        assert_eq!(exp::<true>(0.0), 1.0);
        assert_eq!(exp::<true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<true>(-1000.0), 0.0);
        assert!(exp::<true>(-87.0) > 0.0);
    }
}
