//! The paper's workload: tasks that touch pages by Zipf's law, in pages of their own (`docs/spec/cdf-dio.md` section 1).

use rand_core::Rng as _;
use rand_pcg::Pcg32;

/// Pages that each task touches, in order: `ranks[task][access]`, from 0, the hottest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accesses {
    /// By task.
    pub ranks: Vec<Vec<u32>>,
}

/// Zipf's law with exponent 1 over a number of ranks.
struct Zipf {
    /// Sums of 1/k up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: u32) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn draw(&self, chance: &mut Pcg32) -> u32 {
        let unit = (f64::from(chance.next_u32()) + 0.5) / 4_294_967_296.0;
        let wanted = unit * self.sums.last().copied().unwrap_or(1.0);
        self.sums.partition_point(|sum| *sum < wanted).min(self.sums.len() - 1) as u32
    }
}

impl Accesses {
    /// Tasks with so many accesses each over so many ranks.
    #[must_use]
    pub fn new(tasks: usize, accesses: usize, ranks: u32, seed: u64) -> Self {
        /// Any odd constant does.
        const STREAM: u64 = 0x7a69_7066_0000_0001;
        let zipf = Zipf::new(ranks);
        let mut chance = Pcg32::new(seed, STREAM);
        let ranks = (0..tasks).map(|_| (0..accesses).map(|_| zipf.draw(&mut chance)).collect());
        Self { ranks: ranks.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// `docs/spec/cdf-dio.md` section 9, item 5.
    #[test]
    fn cdf_dio_9_5_more_than_half_of_the_accesses_are_the_first_to_their_page() {
        let accesses = Accesses::new(80, 3000, 100_000, 1);
        let distinct: usize = accesses.ranks.iter().map(|ranks| ranks.iter().collect::<BTreeSet<_>>().len()).sum();
        let share = distinct as f64 / (80.0 * 3000.0);
        assert!((0.528..0.534).contains(&share), "{share}");
    }

    #[test]
    fn the_hottest_pages_have_the_shares_of_zipfs_law() {
        let accesses = Accesses::new(80, 3000, 100_000, 2);
        let all = || accesses.ranks.iter().flatten();
        let share = |below: u32| all().filter(|rank| **rank < below).count() as f64 / all().count() as f64;
        for (below, expected) in [(1, 0.0827), (8, 0.225), (64, 0.392), (512, 0.564), (2048, 0.678)] {
            assert!((share(below) - expected).abs() < 0.004, "{below}: {}", share(below));
        }
    }
}
