//! Quantiles of Student's t distribution.

/// The value that a t-distributed number stays below with probability `p`, from 0.5 on; `df` degrees of freedom, above 0.
pub(crate) fn quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while below(high, df) < p && high < 1e12 {
        high *= 2.0;
    }
    // Halved until the numbers between both ends are used up.
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        match below(middle, df) < p {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// The probability that a t-distributed number is below `t`, from 0 on.
fn below(t: f64, df: f64) -> f64 {
    let x = df / (df + t * t);
    1.0 - 0.5 * incomplete_beta(x, df / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction (modified Lentz).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on this side; the other one is its mirror.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    const TINY: f64 = 1e-300;
    let held = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / held(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for part in [even, odd] {
            d = 1.0 / held(1.0 + part * d);
            c = held(1.0 + part / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front.exp() * fraction / a
}

/// The logarithm of the gamma function of a number above 0 (Lanczos, 15 digits).
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const FIRST: f64 = 0.999_999_999_999_809_9;
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        let sine = (std::f64::consts::PI * x).sin();
        return (std::f64::consts::PI / sine).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let terms = TERMS.iter().zip(1..);
    let sum = terms.fold(FIRST, |sum, (term, at)| sum + term / (x + f64::from(at)));
    let t = x + G + 0.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, df, expected) in [
            (0.975, 1.0, 12.706_2),
            (0.975, 10.0, 2.228_1),
            (0.995, 1.0, 63.656_7),
            (0.995, 2.0, 9.924_8),
            (0.995, 5.0, 4.032_1),
            (0.995, 13.0, 3.012_3),
            (0.995, 30.0, 2.750_0),
            (0.975, 120.0, 1.979_9),
            // The normal distribution.
            (0.995, 1e6, 2.575_8),
        ] {
            let found = quantile(p, df);
            assert!((found - expected).abs() < 6e-5, "{p} {df}: {found}");
        }
        // The density of two degrees of freedom has a closed form.
        let (p, t) = (0.9, quantile(0.9, 2.0));
        assert!((0.5 + t / (2.0 * (2.0 + t * t).sqrt()) - p).abs() < 1e-12);
    }

    #[test]
    fn the_gamma_function_is_that_of_factorials() {
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-12);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }
}
