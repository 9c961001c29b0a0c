//! The touches of a task: an endless, random but reproducible sequence of lines drawn from its classes.
//!
//! Every touch is a function of the task's seed and the touch's number, so a sequence does not depend on when and in
//! what pieces it is asked for. The class is chosen by the alias method: a table of 4,096 entries, as the specification
//! has it (`docs/spec/memory-model.md` section 3.3), cannot hold classes that get less than one touch in 4,096, and
//! those are what misses the LLC.

use warmcore_topology::{SPLIT_MIX_STEP, split_mix};

use super::lanes::{Isa, Portable};
use crate::profile::MAX_CLASSES;

/// Most touches asked for at once.
pub const BLOCK: usize = 32;
/// Entries of the tables: reads and writes of every class.
pub(crate) const OUTCOMES: usize = 2 * MAX_CLASSES;

/// One class of a stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamClass {
    /// Its first line.
    pub first: u32,
    /// Its number of lines, at least 1.
    pub lines: u32,
    /// Touches per instruction.
    pub rate: f64,
    /// Share of the touches that write.
    pub write_fraction: f64,
    /// Cyclic order instead of random.
    pub scan: bool,
}

/// A sequence of touches. An *outcome* is a class's number times two, plus one for a write.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    number: u64,
    tables: Tables,
    scans: bool,
    is_scan: [bool; MAX_CLASSES],
    positions: [u32; MAX_CLASSES],
    rate: f64,
}

/// What a touch is drawn from, one host line each so that an instruction set can look sixteen values up at once.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Tables {
    /// First line by outcome.
    pub(super) firsts: [u32; OUTCOMES],
    /// Number of lines by outcome.
    pub(super) sizes: [u32; OUTCOMES],
    /// A column keeps its own outcome below this 28-bit threshold and takes its alias otherwise.
    pub(super) thresholds: [u32; OUTCOMES],
    /// The other outcome of a column.
    pub(super) aliases: [u32; OUTCOMES],
}

/// Bits of a random number that are compared with a threshold; the four above them are the column.
pub(super) const THRESHOLD_BITS: u32 = 28;
const COLUMN_BITS: u32 = 4;
const _: () = assert!(1 << COLUMN_BITS == OUTCOMES && COLUMN_BITS + THRESHOLD_BITS == 32);

/// Draws a block of touches in portable code; `argument` is that of the first one's random number.
#[inline(always)]
pub(super) fn draw(tables: &Tables, argument: u64, lines: &mut [u32; BLOCK], outcomes: &mut [u8; BLOCK]) {
    let mut argument = argument;
    for (line, outcome) in lines.iter_mut().zip(outcomes.iter_mut()) {
        let random = split_mix(argument);
        argument = argument.wrapping_add(SPLIT_MIX_STEP);
        let column = random as u32 >> THRESHOLD_BITS;
        let keeps = (random as u32 & ((1 << THRESHOLD_BITS) - 1)) < tables.thresholds[column as usize];
        // Without a branch: it would be taken at random.
        let mask = u32::from(keeps).wrapping_neg();
        let chosen = (column & mask | tables.aliases[column as usize] & !mask) as usize & (OUTCOMES - 1);
        *line = tables.firsts[chosen] + (((random >> 32) * u64::from(tables.sizes[chosen])) >> 32) as u32;
        *outcome = chosen as u8;
    }
}

impl Stream {
    /// The sequence of these classes; at most [`MAX_CLASSES`], at least one with touches.
    pub fn new(seed: u64, classes: &[StreamClass]) -> Self {
        let mut stream = Self {
            seed: split_mix(seed ^ 0x5851_F42D_4C95_7F2D),
            number: 0,
            tables: Tables {
                firsts: [0; OUTCOMES],
                sizes: [1; OUTCOMES],
                thresholds: [0; OUTCOMES],
                aliases: [0; OUTCOMES],
            },
            scans: false,
            is_scan: [false; MAX_CLASSES],
            positions: [0; MAX_CLASSES],
            rate: classes.iter().map(|class| class.rate).sum(),
        };
        let mut shares = [0.0; OUTCOMES];
        for (index, class) in classes.iter().enumerate() {
            for write in 0..2 {
                stream.tables.firsts[2 * index + write] = class.first;
                stream.tables.sizes[2 * index + write] = class.lines;
            }
            let share = class.rate / stream.rate;
            shares[2 * index] = share * (1.0 - class.write_fraction);
            shares[2 * index + 1] = share * class.write_fraction;
            stream.is_scan[index] = class.scan;
            stream.scans |= class.scan;
            // Streams of the same class begin at different places.
            stream.positions[index] =
                (((split_mix(stream.seed.wrapping_add(index as u64)) >> 32) * u64::from(class.lines)) >> 32) as u32;
        }
        stream.fill_tables(shares);
        stream
    }

    /// Columns above the mean give what is too much to columns below it.
    fn fill_tables(&mut self, shares: [f64; OUTCOMES]) {
        let mut heights = shares.map(|share| share * OUTCOMES as f64);
        let largest = (0..OUTCOMES).max_by(|a, b| shares[*a].total_cmp(&shares[*b])).unwrap_or(0);
        let mut open: Vec<usize> = (0..OUTCOMES).collect();
        while let Some(position) = open.iter().position(|column| heights[*column] < 1.0) {
            let low = open.swap_remove(position);
            let donor = open.iter().copied().find(|column| heights[*column] > 1.0).unwrap_or(largest);
            self.tables.thresholds[low] = (heights[low].max(0.0) * f64::from(1_u32 << THRESHOLD_BITS)) as u32;
            self.tables.aliases[low] = donor as u32;
            heights[donor] -= 1.0 - heights[low];
        }
        for column in open {
            self.tables.thresholds[column] = 1 << THRESHOLD_BITS;
            self.tables.aliases[column] = column as u32;
        }
    }

    /// Touches per instruction of all classes together.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The next `count` touches, at most [`BLOCK`]; what the arrays hold beyond them means nothing.
    pub fn next(&mut self, count: usize, lines: &mut [u32; BLOCK], outcomes: &mut [u8; BLOCK]) {
        // SAFETY: portable code needs nothing.
        unsafe { self.next_in::<Portable>(count, lines, outcomes) }
    }

    /// [`Stream::next`] with an instruction set.
    ///
    /// # Safety
    /// The host has the instruction set.
    #[inline(always)]
    pub(crate) unsafe fn next_in<I: Isa>(
        &mut self,
        count: usize,
        lines: &mut [u32; BLOCK],
        outcomes: &mut [u8; BLOCK],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            I::draw(&self.tables, self.seed.wrapping_add(self.number.wrapping_mul(SPLIT_MIX_STEP)), lines, outcomes)
        }
        self.number += count as u64;
        if self.scans {
            self.follow_scans(count, lines, outcomes);
        }
    }

    fn follow_scans(&mut self, count: usize, lines: &mut [u32; BLOCK], outcomes: &[u8; BLOCK]) {
        for (line, outcome) in lines.iter_mut().zip(outcomes).take(count) {
            let class = usize::from(*outcome / 2);
            if self.is_scan[class] {
                let (first, size) =
                    (self.tables.firsts[usize::from(*outcome)], self.tables.sizes[usize::from(*outcome)]);
                let position = self.positions[class];
                *line = first + position;
                self.positions[class] = if position + 1 == size { 0 } else { position + 1 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(first: u32, lines: u32, rate: f64, write_fraction: f64) -> StreamClass {
        StreamClass { first, lines, rate, write_fraction, scan: false }
    }

    fn draw(stream: &mut Stream, blocks: usize) -> Vec<(u32, u8)> {
        let (mut lines, mut outcomes) = ([0; BLOCK], [0; BLOCK]);
        let mut drawn = Vec::new();
        for _ in 0..blocks {
            stream.next(BLOCK, &mut lines, &mut outcomes);
            drawn.extend(lines.into_iter().zip(outcomes));
        }
        drawn
    }

    #[test]
    fn classes_get_their_shares_even_the_rarest() {
        let classes = [class(0, 100, 0.09, 0.3), class(100, 1_000, 0.01, 0.0), class(2_000, 50_000, 5e-5, 0.5)];
        let mut stream = Stream::new(7, &classes);
        let drawn = draw(&mut stream, 200_000);
        let total: f64 = classes.iter().map(|class| class.rate).sum();
        for (index, class) in classes.iter().enumerate() {
            for (write, share) in [(0, 1.0 - class.write_fraction), (1, class.write_fraction)] {
                let outcome = (2 * index + write) as u8;
                let count = drawn.iter().filter(|touch| touch.1 == outcome).count() as f64;
                let expected = class.rate / total * share * drawn.len() as f64;
                assert!((count - expected).abs() <= 5.0 * expected.sqrt(), "{outcome}: {count}, not {expected}");
            }
        }
    }

    #[test]
    fn lines_stay_in_their_class_and_reach_all_of_it() {
        let drawn = draw(&mut Stream::new(1, &[class(10, 7, 0.1, 0.2)]), 100);
        let seen: std::collections::BTreeSet<u32> = drawn.iter().map(|touch| touch.0).collect();
        assert_eq!(seen, (10..17).collect());
    }

    #[test]
    fn a_scan_goes_round_in_order() {
        let mut scan = class(100, 50, 0.1, 0.0);
        scan.scan = true;
        let drawn = draw(&mut Stream::new(3, &[scan]), 4);
        for pair in drawn.windows(2) {
            assert_eq!(pair[1].0, 100 + (pair[0].0 - 100 + 1) % 50);
        }
    }

    #[test]
    fn the_pieces_asked_for_do_not_matter() {
        let classes = [class(0, 100, 0.09, 0.3), class(100, 1_000, 0.01, 0.0)];
        let whole = draw(&mut Stream::new(9, &classes), 2);
        let mut stream = Stream::new(9, &classes);
        let (mut lines, mut outcomes) = ([0; BLOCK], [0; BLOCK]);
        let mut pieces = Vec::new();
        for count in [1, 31, 7, 20, 5] {
            stream.next(count, &mut lines, &mut outcomes);
            pieces.extend(lines.into_iter().zip(outcomes).take(count));
        }
        assert_eq!(whole, pieces);
    }
}
