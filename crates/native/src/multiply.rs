//! What schbench's work costs on this computer: the inner step of its matrix multiplication.

use std::hint::black_box;
use std::num::NonZeroU64;

use crate::clock::thread_cpu_ns;

/// Rows and columns: three matrices of 8-byte numbers fill schbench's default footprint of 256 KiB.
const SIDE: usize = 104;
/// Measurements; the fastest counts, as in [`calibrate`](crate::calibrate).
const SAMPLES: u32 = 12;

/// Measures one multiplication and addition of a matrix multiplication by rows and columns, as schbench does them: to a sum
/// in memory. Takes about 20 ms of CPU time.
pub fn measure_multiply_add_ps() -> NonZeroU64 {
    let (a, b, mut product) = (vec![3_u64; SIDE * SIDE], vec![5_u64; SIDE * SIDE], vec![0_u64; SIDE * SIDE]);
    let mut fastest_ns = u64::MAX;
    for _ in 0..SAMPLES {
        let start = thread_cpu_ns();
        multiply(black_box(&a), black_box(&b), black_box(&mut product));
        fastest_ns = fastest_ns.min(thread_cpu_ns() - start);
    }
    let steps = (SIDE * SIDE * SIDE) as u64;
    NonZeroU64::new(fastest_ns.saturating_mul(1_000) / steps).unwrap_or(NonZeroU64::MIN)
}

#[inline(never)]
fn multiply(a: &[u64], b: &[u64], product: &mut [u64]) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let sum = &mut product[row * SIDE + column];
            *sum = 0;
            for step in 0..SIDE {
                *black_box(&mut *sum) += a[row * SIDE + step].wrapping_mul(b[step * SIDE + column]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_the_product_of_matrices() {
        let (a, b) = (vec![3_u64; SIDE * SIDE], vec![5_u64; SIDE * SIDE]);
        let mut product = vec![7; SIDE * SIDE];
        multiply(&a, &b, &mut product);
        assert!(product.iter().all(|sum| *sum == 15 * SIDE as u64));
    }
}
