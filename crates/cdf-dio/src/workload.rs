//! The paper's workload: tasks that touch pages by Zipf's law, in pages of their own (`docs/spec/cdf-dio.md` section 1). And others: with
//! other exponents of the law; whose tasks use different cache sets, which a rule over set indexes could make something of; and recorded
//! ones, of address traces.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

use rand_core::Rng as _;
use rand_pcg::Pcg32;
use thiserror::Error;
use warmcore_memory::exact::address_trace::{Access, TraceError, TraceReader};
use warmcore_memory::math::{exp, ln};

/// Pages that each task touches, in order: `ranks[task][access]`, from 0, the hottest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accesses {
    /// By task.
    pub ranks: Vec<Vec<u32>>,
    /// Of recorded accesses the line of 32 bytes in the page, as `ranks`; empty where the machine says where in a page tasks touch.
    pub lines: Vec<Vec<u8>>,
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
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Law {
    /// Zipf's with exponent 1 over so many pages.
    Zipf(u32),
    /// Zipf's with another exponent: that of rank k is touched as often as 1 / k to that power.
    Skewed {
        /// Pages.
        pages: u32,
        /// The exponent.
        exponent: f64,
    },
    /// All of so many pages alike.
    Uniform(u32),
}

/// A trace that cannot be tasks.
#[derive(Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum TraceTaskError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the trace has no data accesses: nothing is left for a task to do")]
    Empty,
    #[error("the trace has more than {most} data accesses; record less, or cut it")]
    Long { most: usize },
    #[error(
        "{tasks} tasks of this trace make {accesses} accesses, more than {most}; ask for fewer tasks, or cut the trace"
    )]
    Tasks { tasks: usize, accesses: usize, most: usize },
}

/// Most data accesses of a trace, and of all tasks that are made of it: 160 MB of the host each.
pub const MOST_ACCESSES: usize = 1 << 25;

/// Bytes of a page and of a line of the paper's machine, as powers of two.
const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 5;

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

/// Zipf's law over a number of ranks.
struct Zipf {
    /// Sums of the weights up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: u32, weight: impl Fn(f64) -> f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += weight(f64::from(rank));
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
            Law::Zipf(pages) => Some(Zipf::new(pages, |rank| 1.0 / rank)),
            Law::Skewed { pages, exponent } => Some(Zipf::new(pages, |rank| exp(-exponent * ln(rank)))),
            Law::Uniform(_) => None,
        };
        let mut draw = || match (&zipf, law) {
            (Some(zipf), _) => zipf.draw(&mut chance),
            (None, Law::Zipf(pages) | Law::Skewed { pages, .. } | Law::Uniform(pages)) => below(&mut chance, pages),
        };
        let ranks = (0..tasks).map(|_| (0..accesses).map(|_| draw()).collect()).collect();
        let mut kinds: Vec<u32> = (0..tasks as u32).map(|task| task % colours.kinds()).collect();
        for last in (1..tasks).rev() {
            kinds.swap(last, below(&mut chance, last as u32 + 1) as usize);
        }
        Self { ranks, lines: Vec::new(), colours, kinds }
    }

    /// The threads of a trace, in any format of [`TraceReader`], as so many tasks: one after the other, and again from the first. Each has
    /// pages of its own, numbered as it touches them first, since tasks of the paper's machine share none. Fetches of instructions are
    /// left out. An access to several lines is to the first.
    ///
    /// # Errors
    /// A trace that cannot be read, has no data accesses, or makes too many for so many tasks.
    pub fn traced(trace: impl BufRead, tasks: usize) -> Result<Self, TraceTaskError> {
        let mut reader = TraceReader::new(trace, true)?;
        let mut threads: BTreeMap<u16, Recorded> = BTreeMap::new();
        let mut count = 0;
        while let Some(record) = reader.next_record()? {
            if record.access == Access::Instruction {
                continue;
            }
            count += 1;
            if count > MOST_ACCESSES {
                return Err(TraceTaskError::Long { most: MOST_ACCESSES });
            }
            threads.entry(record.thread).or_default().add(record.address);
        }
        if threads.is_empty() {
            return Err(TraceTaskError::Empty);
        }
        let made = || threads.values().cycle().take(tasks);
        let accesses = made().map(|of| of.ranks.len()).sum();
        if accesses > MOST_ACCESSES {
            return Err(TraceTaskError::Tasks { tasks, accesses, most: MOST_ACCESSES });
        }
        let (ranks, lines) = made().map(|of| (of.ranks.clone(), of.lines.clone())).unzip();
        Ok(Self { ranks, lines, colours: Colours::Any, kinds: vec![0; tasks] })
    }
}

/// What a thread of a trace touched.
#[derive(Default)]
struct Recorded {
    pages: HashMap<u64, u32>,
    ranks: Vec<u32>,
    lines: Vec<u8>,
}

impl Recorded {
    fn add(&mut self, address: u64) {
        let next = self.pages.len() as u32;
        self.ranks.push(*self.pages.entry(address >> PAGE_SHIFT).or_insert(next));
        self.lines.push((address >> LINE_SHIFT) as u8 & ((1 << (PAGE_SHIFT - LINE_SHIFT)) - 1));
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

    /// With exponent 0 all pages are alike; with 1 the law is the paper's, up to the rounding of a power; a larger one is steeper.
    #[test]
    fn the_exponent_is_the_laws_skew() {
        let share = |law: Law, below: u32| {
            let accesses = Accesses::coloured(40, 3000, law, Colours::Any, 3);
            let all = || accesses.ranks.iter().flatten();
            all().filter(|rank| **rank < below).count() as f64 / all().count() as f64
        };
        let skewed = |exponent| Law::Skewed { pages: 1000, exponent };
        assert!((share(skewed(0.0), 250) - 0.25).abs() < 0.006, "{}", share(skewed(0.0), 250));
        assert!((share(skewed(1.0), 1) - share(Law::Zipf(1000), 1)).abs() < 1e-4);
        // The first of 1000 pages: 1 over the sums of k to the powers of -0.5 and -1.5, 61.80 and 2.5491.
        assert!((share(skewed(0.5), 1) - 1.0 / 61.80).abs() < 0.002, "{}", share(skewed(0.5), 1));
        assert!((share(skewed(1.5), 1) - 1.0 / 2.5491).abs() < 0.006, "{}", share(skewed(1.5), 1));
    }

    #[test]
    fn a_trace_gives_its_threads_as_tasks_with_pages_of_their_own() {
        let text = "warmcore-address-trace 1\n0 R 7000\n1 W 7020\n0 I 400000\n0 R 9fe0\n0 R 7040\n";
        let accesses = Accesses::traced(text.as_bytes(), 3).unwrap();
        assert_eq!(accesses.ranks, [vec![0, 1, 0], vec![0], vec![0, 1, 0]]);
        assert_eq!(accesses.lines, [vec![0, 127, 2], vec![1], vec![0, 127, 2]]);
        let refused = |text: &str| Accesses::traced(text.as_bytes(), 1).unwrap_err().to_string();
        assert!(refused("I  04001090,3\n").contains("no data accesses"));
        assert!(refused("what").contains("no address trace"));
        assert!(refused(" L 1000,8\nx\n").contains("line 2"));
        let many = Accesses::traced(text.as_bytes(), MOST_ACCESSES).unwrap_err().to_string();
        assert!(many.starts_with("33554432 tasks of this trace make 67108864 accesses, more than 33554432"), "{many}");
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
