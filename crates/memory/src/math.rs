//! The exponential and logarithm of this crate: the same bits on every host and at every level of optimisation.

/// 2^(j/64) for j in 0..64, summed from the series at compile time.
const POWERS: [f64; 64] = powers();

const fn powers() -> [f64; 64] {
    let mut table = [1.0; 64];
    let mut index = 0;
    while index < 64 {
        let x = index as f64 * (std::f64::consts::LN_2 / 64.0);
        // 20 terms of the series of exp on [0, ln 2): the remainder is below 2^-60.
        let mut sum = 1.0;
        let mut term = 20;
        while term > 0 {
            sum = 1.0 + x * sum / term as f64;
            term -= 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

/// ln 2 / 64 in two parts: the first has few enough bits that its product with the exponent is exact.
const LN2_64_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000) / 64.0;
const LN2_64_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76) / 64.0;

/// e^x with a relative error below 1e-14 for −700 < x < 700; 0 below that and infinite above.
#[inline]
pub fn exp(x: f64) -> f64 {
    if x.is_nan() || x < -700.0 {
        return 0.0;
    }
    if x > 700.0 {
        return f64::INFINITY;
    }
    // Adding and subtracting 1.5 * 2^52 rounds to the nearest whole number.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = x * (64.0 / std::f64::consts::LN_2) + ROUND;
    let k = shifted - ROUND;
    let index = shifted.to_bits() as i64;
    let r = (x - k * LN2_64_HIGH) - k * LN2_64_LOW;
    let polynomial = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0)))));
    // The low bits of `shifted` hold k as a two's complement number of 51 bits.
    let k = (index << 13) >> 13;
    let scale = f64::from_bits((((k >> 6) + 1023) << 52) as u64);
    polynomial * POWERS[(k & 63) as usize] * scale
}

/// The smaller of two numbers, neither of them NaN: one instruction, which `f64::min` is not.
#[inline]
pub fn least(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The larger of two numbers, neither of them NaN.
#[inline]
pub fn most(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// Natural logarithm.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_reference_over_its_whole_range() {
        let mut x = -699.0;
        while x < 699.0 {
            let (ours, reference) = (exp(x), libm::exp(x));
            assert!((ours / reference - 1.0).abs() < 1e-14, "exp({x}) = {ours}, not {reference}");
            x += 0.037_3;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-800.0), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(800.0), f64::INFINITY);
    }

    #[test]
    fn exp_is_monotone_across_table_steps() {
        let mut last = 0.0;
        for step in -20_000..20_000 {
            let value = exp(f64::from(step) * 1e-3);
            assert!(value > last);
            last = value;
        }
    }
}
