//! The standard normal distribution and Student's t distribution: distribution functions and quantiles.
//!
//! Quantiles are found by bisecting the distribution function: slow (a microsecond) and plain, good to the last bits
//! of a double. They are asked a handful of times per comparison.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The probability that a standard normal variable is at most `z`.
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// The value that a standard normal variable stays below with probability `p`. Infinite for 0 and 1; `p` outside of
/// 0..=1 is clamped.
pub fn normal_quantile(p: f64) -> f64 {
    symmetric_quantile(p, normal_cdf)
}

/// The probability that a variable with Student's t distribution of `degrees` degrees of freedom (at least 1) is at
/// most `t`.
///
/// The finite sums for whole degrees of freedom: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3
/// and 26.7.4.
pub fn student_t_cdf(t: f64, degrees: u32) -> f64 {
    let degrees = degrees.max(1);
    if t.is_infinite() {
        return if t > 0.0 { 1.0 } else { 0.0 };
    }
    let theta = libm::atan(t / f64::from(degrees).sqrt());
    let (sine, cosine) = (libm::sin(theta), libm::cos(theta));
    let odd = degrees % 2 == 1;
    // Odd degrees: cos θ (1 + 2/3 cos²θ + 2·4/(3·5) cos⁴θ …); even: 1 + 1/2 cos²θ + 1·3/(2·4) cos⁴θ …
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    for step in 0..degrees / 2 {
        sum += term;
        let step = f64::from(step);
        let factor =
            if odd { (2.0 * step + 2.0) / (2.0 * step + 3.0) } else { (2.0 * step + 1.0) / (2.0 * step + 2.0) };
        term *= factor * cosine * cosine;
    }
    // The probability between -t and t, with the sign of t.
    let between = if odd { 2.0 / PI * (theta + sine * sum) } else { sine * sum };
    0.5 + 0.5 * between
}

/// The value that a variable with Student's t distribution of `degrees` degrees of freedom (at least 1) stays below
/// with probability `p`. Infinite for 0 and 1; `p` outside of 0..=1 is clamped.
pub fn student_t_quantile(p: f64, degrees: u32) -> f64 {
    symmetric_quantile(p, |t| student_t_cdf(t, degrees))
}

/// Inverts the distribution function of a distribution symmetric about 0. The lower half is searched, where
/// probabilities are small numbers with full precision.
fn symmetric_quantile(p: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    if p > 0.5 {
        return -symmetric_quantile(1.0 - p, cdf);
    }
    if p <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if p == 0.5 {
        return 0.0;
    }
    let (mut low, mut high) = (-1.0, 0.0);
    while cdf(low) > p && low > f64::MIN / 2.0 {
        low *= 2.0;
    }
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return high;
        }
        if cdf(middle) < p { low = middle } else { high = middle }
    }
}
