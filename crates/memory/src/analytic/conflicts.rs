//! What a cache loses by being made of sets: lines of some are evicted younger than others, and some have holes.

use crate::curves::{PerClass, Replacement};
use crate::math::{exp, most};
use crate::profile::MAX_CLASSES;
use crate::tables::{CurveTable, MissTable};

use super::compiled::Compiled;

/// Misses with limited associativity: the steady ones of a cache with room for `lines`, and those of a window that has
/// not grown to them yet. What is missing anyway is in nobody's way: conflicts fall with the lines that are there, and
/// with the touches that could still hit. A scan larger than the cache hits in sets that happen to hold all of their lines, but only once it
/// has come round: not while the cache fills, so long as it is not `filled`.
pub(super) fn in_sets(profile: &Compiled, table: &MissTable, mean: PerClass, lines: f64, filled: bool) -> PerClass {
    let (real, full) = table.at(lines);
    let mut misses = [0.0; MAX_CLASSES];
    for class in 0..profile.count {
        let cold = (mean[class] - full[class]).max(0.0);
        let warm = 1.0 - cold / profile.touches[class];
        let by_sets = real[class] - full[class];
        let by_sets = if filled { by_sets } else { most(by_sets, 0.0) };
        misses[class] = full[class] + cold + by_sets * warm * warm;
    }
    misses
}

/// Sets of equal number that stand for all of a cache's.
const NODES: usize = 6;

/// Ages of lines at eviction in a cache that tasks of different habits share.
///
/// A line leaves when as many others as the set has ways were touched after it. If g(t) is the part of the cache touched
/// within t, and ways are W, the touched lines of a set are Poisson(W g), so that g at the eviction is Gamma(W) / W. Around
/// the mean eviction time T, where g = 1, g grows by s = T times the fills per line, so g = (t / T)^s, and a line of a set
/// lives T (Gamma(W) / W)^(1 / s). [`in_sets`] has this for a task alone, whose own lines say how g goes on from there; with
/// others in the cache that is up to them.
///
/// Random replacement takes any line: its ages at eviction are exponential.
#[derive(Clone, Debug)]
pub(super) struct EvictionAges {
    /// Logarithm of g at the eviction, in sets of equal number.
    part: [f64; NODES],
    /// Ages are exponential, whatever the cache's fills are like.
    memoryless: bool,
}

impl EvictionAges {
    pub fn new(ways: u32, replacement: Replacement) -> Self {
        // The Wilson-Hilferty approximation of Gamma(ways) / ways, at the middles of the sixths of a normal distribution.
        let normal = [-1.383, -0.674, -0.210, 0.210, 0.674, 1.383];
        let spread = 1.0 / (3.0 * f64::from(ways).sqrt());
        let gamma = normal.map(|z| 3.0 * (1.0 - spread * spread + z * spread).max(1e-3).ln());
        let middle = |node: usize| (node as f64 + 0.5) / NODES as f64;
        let exponential = std::array::from_fn(|node| (-(1.0 - middle(node)).ln()).ln());
        let memoryless = replacement == Replacement::Random;
        Self { part: if memoryless { exponential } else { gamma }, memoryless }
    }

    /// What sharing a cache's sets adds to the misses per instruction and class of a window of `n` instructions, of which
    /// `in_front` do not age here. The mean eviction time is `oldest` instructions; `slope` is s above.
    pub fn added(&self, curves: &CurveTable, n: f64, in_front: f64, oldest: f64, slope: f64) -> PerClass {
        let window = n - in_front;
        let grown = (window / oldest).min(1.0);
        let steeper = if self.memoryless { 1.0 } else { 1.0 / slope };
        let mut misses = [0.0; MAX_CLASSES];
        for part in self.part {
            let age = exp(part * steeper);
            // A window that has not grown to the eviction time yet has nothing older than itself.
            let covered = if age < 1.0 {
                window.min(oldest.max(window) * age)
            } else {
                window * (1.0 + (age - 1.0) * grown * grown)
            };
            for (sum, m) in misses.iter_mut().zip(curves.class_misses(curves.cell(in_front + covered))) {
                *sum += m / NODES as f64;
            }
        }
        for (sum, m) in misses.iter_mut().zip(curves.class_misses(curves.cell(n))) {
            *sum -= m;
        }
        misses
    }
}

/// Cells of [`Vacancy`], over miss ratios from 0 to 1.
const CELLS: usize = 32;

/// Part of the queue's vacancy that the exact level has, in mixes of two to eight tasks with 13 to 50 % misses (0.56 to 0.7):
/// what a set can get is limited, lines that belong to it and are in an L2 now.
const OF_QUEUE: f64 = 0.6;

/// With fewer misses than leave so much of it filled, an LLC's sets overflow for lack of room only.
const LEAST_FILLED: f64 = 0.88;

/// How much of an LLC that excludes the L2s is filled.
///
/// A hit takes the line out of its set, and the line that it pushes out of the L2 goes to another one: some sets have holes
/// while others overflow. With hits that take lines at random, insertions that come at random, and an eviction where the set
/// is full, the lines of a set are the customers of a queue with loss (Erlang's B): the insertions that find W lines are
/// the misses. That gives the load, and the load the mean.
#[derive(Clone, Debug)]
pub(super) struct Vacancy {
    filled: [f64; CELLS + 1],
}

impl Vacancy {
    pub fn new(ways: u32) -> Self {
        let lost = |load: f64| (1..=ways).fold(1.0, |lost, way| load * lost / (f64::from(way) + load * lost));
        let filled = std::array::from_fn(|cell| {
            let misses = cell as f64 / CELLS as f64;
            let (mut low, mut high) = (0.0, 1e4);
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                *(if lost(middle) < misses { &mut low } else { &mut high }) = middle;
            }
            let in_queue = (high * (1.0 - misses) / f64::from(ways)).min(1.0);
            (1.0 - OF_QUEUE * (1.0 - in_queue)).max(LEAST_FILLED)
        });
        Self { filled }
    }

    /// By the part of the L2s' misses that the LLC misses too.
    #[inline]
    pub fn filled(&self, miss_ratio: f64) -> f64 {
        let cell = miss_ratio.clamp(0.0, 1.0) * CELLS as f64;
        let below = (cell as usize).min(CELLS - 1);
        self.filled[below] + (cell - below as f64) * (self.filled[below + 1] - self.filled[below])
    }
}
