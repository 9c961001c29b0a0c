//! The paper's workload: tasks that touch pages by Zipf's law, in pages of their own (`docs/spec/cdf-dio.md` section 1). And others whose
//! tasks use different cache sets, which a rule over set indexes could make something of.

use rand_core::Rng as _;
use rand_pcg::Pcg32;

/// Pages that each task touches, in order: `ranks[task][access]`, from 0, the hottest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accesses {
    /// By task.
    pub ranks: Vec<Vec<u32>>,
    /// Which sets of the L2 each task's pages fall into.
    pub colours: Colours,
    /// By task: which kind it is of, where there are several.
    pub kinds: Vec<u32>,
}

/// Which sets of the L2 a task's pages fall into: a page covers 128 of them, its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colours {
    /// Any: frames come in the order in which pages are touched first.
    Any,
    /// There are so many kinds of tasks, and each has an equal range of the colours for itself.
    Ranges(u32),
    /// There are so many kinds of tasks, and their colours interleave: each has every so-manieth.
    Strides(u32),
}

/// Which of its pages a task touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// Zipf's with exponent 1 over so many pages.
    Zipf(u32),
    /// All of so many pages alike.
    Uniform(u32),
}

impl Colours {
    /// Kinds of tasks.
    #[must_use]
    pub fn kinds(self) -> u32 {
        match self {
            Self::Any => 1,
            Self::Ranges(kinds) | Self::Strides(kinds) => kinds.max(1),
        }
    }

    /// The frame of the page of a kind of task that is touched as so-manieth, counted from 0, where there are so many colours.
    #[must_use]
    pub fn frame(self, kind: u32, number: u64, colours: u32) -> u64 {
        let kinds = u64::from(self.kinds());
        match self {
            Self::Any => number,
            Self::Strides(_) => number * kinds + u64::from(kind),
            Self::Ranges(_) => {
                let width = (u64::from(colours) / kinds).max(1);
                number / width * u64::from(colours) + u64::from(kind) * width + number % width
            }
        }
    }
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

/// A number below a limit that is not zero.
fn below(chance: &mut Pcg32, limit: u32) -> u32 {
    ((u64::from(chance.next_u32()) * u64::from(limit)) >> 32) as u32
}

impl Accesses {
    /// The paper's: tasks with so many accesses each over so many ranks.
    #[must_use]
    pub fn new(tasks: usize, accesses: usize, ranks: u32, seed: u64) -> Self {
        Self::coloured(tasks, accesses, Law::Zipf(ranks), Colours::Any, seed)
    }

    /// Tasks of several kinds, as many of each as can be, in an order drawn from the seed.
    #[must_use]
    pub fn coloured(tasks: usize, accesses: usize, law: Law, colours: Colours, seed: u64) -> Self {
        /// Any odd constant does.
        const STREAM: u64 = 0x7a69_7066_0000_0001;
        let mut chance = Pcg32::new(seed, STREAM);
        let zipf = match law {
            Law::Zipf(ranks) => Some(Zipf::new(ranks)),
            Law::Uniform(_) => None,
        };
        let mut draw = || match (&zipf, law) {
            (Some(zipf), _) => zipf.draw(&mut chance),
            (None, Law::Zipf(pages) | Law::Uniform(pages)) => below(&mut chance, pages),
        };
        let ranks = (0..tasks).map(|_| (0..accesses).map(|_| draw()).collect()).collect();
        let mut kinds: Vec<u32> = (0..tasks as u32).map(|task| task % colours.kinds()).collect();
        for last in (1..tasks).rev() {
            kinds.swap(last, below(&mut chance, last as u32 + 1) as usize);
        }
        Self { ranks, colours, kinds }
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
    fn kinds_of_tasks_have_colours_of_their_own() {
        for colours in [Colours::Ranges(4), Colours::Strides(4)] {
            let mut frames = BTreeSet::new();
            for (kind, number) in (0..4).flat_map(|kind| (0..1000).map(move |number| (kind, number))) {
                let frame = colours.frame(kind, number, 128);
                let found = if colours == Colours::Strides(4) { frame % 4 } else { frame % 128 / 32 };
                assert_eq!(found, u64::from(kind), "{colours:?} {number}");
                assert!(frames.insert(frame), "a frame is given once");
            }
        }
        let accesses = Accesses::coloured(80, 10, Law::Uniform(7), Colours::Ranges(4), 1);
        assert!((0..4).all(|kind| accesses.kinds.iter().filter(|known| **known == kind).count() == 20));
        assert!(accesses.ranks.iter().flatten().all(|page| *page < 7));
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
