//! How far two partitions of the same things agree.
//!
//! Source: Hubert and Arabie, Comparing Partitions, Journal of Classification 2, 1985.

use std::collections::BTreeMap;

/// The adjusted Rand index of two labellings of the same things: 1 if they are the same partition, 0 on average for partitions by
/// chance, below 0 for less. Two partitions that both keep everything together, or both keep everything apart, are equal: 1.
///
/// # Panics
/// If the two are of different length.
pub fn adjusted_rand_index(one: &[u32], other: &[u32]) -> f64 {
    assert_eq!(one.len(), other.len(), "labels of the same things");
    let pairs = |count: u64| (count * count.saturating_sub(1) / 2) as f64;
    let mut both: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let (mut rows, mut columns): (BTreeMap<u32, u64>, BTreeMap<u32, u64>) = Default::default();
    for (row, column) in one.iter().zip(other) {
        *both.entry((*row, *column)).or_default() += 1;
        *rows.entry(*row).or_default() += 1;
        *columns.entry(*column).or_default() += 1;
    }
    let sum = |counts: &mut dyn Iterator<Item = &u64>| counts.map(|count| pairs(*count)).sum::<f64>();
    let together = sum(&mut both.values());
    let (rows, columns) = (sum(&mut rows.values()), sum(&mut columns.values()));
    let all = pairs(one.len() as u64);
    let by_chance = if all > 0.0 { rows * columns / all } else { 0.0 };
    let most = (rows + columns) / 2.0;
    if most == by_chance { 1.0 } else { (together - by_chance) / (most - by_chance) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_partitions_score_one_whatever_their_labels() {
        assert_eq!(adjusted_rand_index(&[0, 0, 1, 1, 2], &[7, 7, 3, 3, 9]), 1.0);
        assert_eq!(adjusted_rand_index(&[1, 1, 1], &[4, 4, 4]), 1.0);
        assert_eq!(adjusted_rand_index(&[1, 2, 3], &[4, 5, 6]), 1.0);
        assert_eq!(adjusted_rand_index(&[], &[]), 1.0);
    }

    #[test]
    fn it_is_what_the_paper_defines() {
        // Contingency table 2 0 / 1 2: index 4, expected 4 * 4 / 10, most 4.
        let found = adjusted_rand_index(&[0, 0, 1, 1, 1], &[0, 0, 0, 1, 1]);
        assert!((found - (2.0 - 1.6) / (4.0 - 1.6)).abs() < 1e-12, "{found}");
        assert!(adjusted_rand_index(&[0, 1, 0, 1], &[0, 0, 1, 1]) < 0.0);
    }
}
