//! Rank tests: Wilcoxon's signed-rank test for pairs and the Mann-Whitney (rank-sum) test for two samples.
//!
//! Both are two-sided and conditional on the ties that are present. For small samples the null distribution is
//! counted exactly (all sign flips; all ways of choosing which values belong to the first sample), which makes them
//! permutation tests on ranks; for large ones the normal approximation with corrections for ties and continuity
//! is used. Ranks are doubled inside, so that the half ranks of ties are whole numbers.
//!
//! Sources: F. Wilcoxon, "Individual comparisons by ranking methods" (1945); H. Mann and D. Whitney, "On a test of
//! whether one of two random variables is stochastically larger than the other" (1947).

use crate::distributions::normal_cdf;

/// Most non-zero differences for which [`wilcoxon_signed_rank`] counts exactly.
pub(crate) const EXACT_PAIRS: usize = 100;

/// Most values of both samples together for which [`mann_whitney`] counts exactly.
pub(crate) const EXACT_VALUES: usize = 50;

/// Two-sided p value of Wilcoxon's signed-rank test that the differences of pairs are symmetric about 0.
///
/// Zeros (pairs without a difference) are left out, as Wilcoxon did. `None` when there is no pair or a difference is
/// NaN; 1 when all differences are zero. Infinite differences have the highest ranks.
pub fn wilcoxon_signed_rank(differences: &[f64]) -> Option<f64> {
    if differences.is_empty() || differences.iter().any(|difference| difference.is_nan()) {
        return None;
    }
    let nonzero: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    let sizes: Vec<f64> = nonzero.iter().map(|difference| difference.abs()).collect();
    let ranks = doubled_ranks(&sizes);
    let positive: usize =
        ranks.iter().zip(&nonzero).filter(|(_, difference)| **difference > 0.0).map(|(rank, _)| rank).sum();
    if nonzero.is_empty() {
        Some(1.0)
    } else if nonzero.len() <= EXACT_PAIRS {
        Some(exact_two_sided(&signed_rank_counts(&ranks), positive))
    } else {
        // Each rank counts with probability 1/2: mean Σr/2, variance Σr²/4, which holds with ties too.
        let mean = ranks.iter().sum::<usize>() as f64 / 2.0;
        let variance = ranks.iter().map(|rank| (rank * rank) as f64).sum::<f64>() / 4.0;
        Some(approximate_two_sided(positive as f64, mean, variance))
    }
}

/// Two-sided p value of the Mann-Whitney test that both samples come from one distribution.
///
/// `None` when a sample is empty or holds a NaN; 1 when all values are equal.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<f64> {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    if first.is_empty() || second.is_empty() || all.iter().any(|value| value.is_nan()) {
        return None;
    }
    let ranks = doubled_ranks(&all);
    let rank_sum: usize = ranks[..first.len()].iter().sum();
    if all.len() <= EXACT_VALUES {
        return Some(exact_two_sided(&rank_sum_counts(&ranks, first.len()), rank_sum));
    }
    // Sampling without replacement: variance n1·n2/N times the variance of the ranks with divisor N − 1.
    let (n, n1, n2) = (all.len() as f64, first.len() as f64, second.len() as f64);
    let average = ranks.iter().sum::<usize>() as f64 / n;
    let spread = ranks.iter().map(|rank| (*rank as f64 - average) * (*rank as f64 - average)).sum::<f64>() / (n - 1.0);
    Some(approximate_two_sided(rank_sum as f64, n1 * average, n1 * n2 / n * spread))
}

/// Smallest p value [`wilcoxon_signed_rank`] can return for `pairs` pairs: all differences of one sign.
pub(crate) fn smallest_paired_p(pairs: usize) -> f64 {
    (2.0 * libm::exp2(-(pairs as f64))).min(1.0)
}

/// Smallest p value [`mann_whitney`] can return for samples of these sizes: no overlap.
pub(crate) fn smallest_unpaired_p(first: usize, second: usize) -> f64 {
    let (small, large) = (first.min(second), first.max(second));
    // One over the number of ways to choose `small` of all.
    let one_sided: f64 = (1..=small).map(|i| i as f64 / (large + i) as f64).product();
    (2.0 * one_sided).min(1.0)
}

/// Twice the rank of each value, from 2; equal values share the mean of their ranks.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let tied = order[start..].iter().take_while(|&&index| values[index] == values[order[start]]).count();
        for &index in &order[start..start + tied] {
            // Ranks start+1 ..= start+tied: twice their mean.
            ranks[index] = 2 * start + tied + 1;
        }
        start += tied;
    }
    ranks
}

/// For every sum: the number of subsets of the ranks with that sum. As `f64`: whole numbers up to 2^53 are exact, and
/// beyond that relative errors are those of a sum of positive numbers.
fn signed_rank_counts(ranks: &[usize]) -> Vec<f64> {
    let mut counts = vec![0.0; ranks.iter().sum::<usize>() + 1];
    counts[0] = 1.0;
    let mut highest = 0;
    for &rank in ranks {
        for sum in (0..=highest).rev() {
            counts[sum + rank] += counts[sum];
        }
        highest += rank;
    }
    counts
}

/// For every sum: the number of ways to choose `chosen` of the ranks with that sum.
fn rank_sum_counts(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let width = ranks.iter().sum::<usize>() + 1;
    let mut counts = vec![vec![0.0; width]; chosen + 1];
    counts[0][0] = 1.0;
    for &rank in ranks {
        for taken in (0..chosen).rev() {
            let (fewer, more) = counts.split_at_mut(taken + 1);
            for (sum, &ways) in fewer[taken].iter().enumerate().take(width - rank) {
                more[0][sum + rank] += ways;
            }
        }
    }
    counts.swap_remove(chosen)
}

/// Twice the smaller tail, both tails including the observed sum, at most 1.
fn exact_two_sided(counts: &[f64], observed: usize) -> f64 {
    let total: f64 = counts.iter().sum();
    let at_most: f64 = counts[..=observed].iter().sum();
    let at_least: f64 = counts[observed..].iter().sum();
    (2.0 * at_most.min(at_least) / total).min(1.0)
}

/// Normal approximation for a sum of doubled ranks, whose half step (continuity correction) is therefore 1.
fn approximate_two_sided(observed: f64, mean: f64, variance: f64) -> f64 {
    let distance = ((observed - mean).abs() - 1.0).max(0.0);
    if variance > 0.0 { (2.0 * normal_cdf(-distance / variance.sqrt())).min(1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_without_data_have_no_p_value() {
        assert_eq!(wilcoxon_signed_rank(&[]), None);
        assert_eq!(wilcoxon_signed_rank(&[f64::NAN]), None);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[1.0], &[]), None);
    }

    #[test]
    fn no_difference_at_all_has_p_value_one() {
        assert_eq!(wilcoxon_signed_rank(&[0.0; 12]), Some(1.0));
        assert_eq!(mann_whitney(&[3.0; 9], &[3.0; 9]), Some(1.0));
        assert_eq!(mann_whitney(&[3.0; 90], &[3.0; 90]), Some(1.0));
    }

    #[test]
    fn the_smallest_p_values_are_those_of_complete_separation() {
        for n in 1..12 {
            let ones = vec![1.5; n];
            assert_eq!(wilcoxon_signed_rank(&ones), Some(smallest_paired_p(n)));
            let (low, high): (Vec<f64>, Vec<f64>) =
                ((0..n).map(|i| i as f64).collect(), (0..5).map(|i| 100.0 + f64::from(i)).collect());
            let (p, smallest) = (mann_whitney(&low, &high).unwrap(), smallest_unpaired_p(n, 5));
            assert!((p / smallest - 1.0).abs() < 1e-12, "{p} {smallest}");
        }
    }

    #[test]
    fn infinite_values_rank_highest() {
        assert_eq!(wilcoxon_signed_rank(&[f64::INFINITY, -1.0, 2.0]), wilcoxon_signed_rank(&[9.0, -1.0, 2.0]));
        assert_eq!(mann_whitney(&[f64::INFINITY, 1.0], &[2.0, 3.0]), mann_whitney(&[9.0, 1.0], &[2.0, 3.0]));
    }

    #[test]
    fn swapping_the_sides_changes_nothing() {
        let (a, b) = ([1.0, 4.0, 4.0, 9.0, 7.0], [2.0, 4.0, 5.0, 5.0, 8.0, 11.0]);
        assert_eq!(mann_whitney(&a, &b), mann_whitney(&b, &a));
        let differences = [0.5, -1.0, 2.0, 2.0, -0.1, 0.0];
        assert_eq!(wilcoxon_signed_rank(&differences), wilcoxon_signed_rank(&differences.map(|d| -d)));
    }

    #[test]
    fn the_normal_approximation_joins_the_exact_count() {
        let differences: Vec<f64> = (1..=EXACT_PAIRS).map(|i| if i % 5 < 2 { -(i as f64) } else { i as f64 }).collect();
        let exact = wilcoxon_signed_rank(&differences).unwrap();
        let ranks = doubled_ranks(&differences.iter().map(|d| d.abs()).collect::<Vec<_>>());
        let positive: usize = ranks.iter().zip(&differences).filter(|(_, d)| **d > 0.0).map(|(r, _)| r).sum();
        let mean = ranks.iter().sum::<usize>() as f64 / 2.0;
        let variance = ranks.iter().map(|r| (r * r) as f64).sum::<f64>() / 4.0;
        assert!((approximate_two_sided(positive as f64, mean, variance) / exact - 1.0).abs() < 0.05);
    }
}
