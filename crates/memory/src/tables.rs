//! The closed forms of [`Curves`] as tables: what a model looks up instead of solving.
//!
//! Points lie at equal parts of each power of two, so that the bits of a number say where it falls and no logarithm is
//! taken; between points values are linear.

use crate::curves::{Curves, PerClass, Replacement};
use crate::math::exp;
use crate::profile::MAX_CLASSES;

/// Points from a first one to infinity, 2^`log_parts` in each octave, and a point at 0 before them.
#[derive(Clone, PartialEq, Debug)]
struct Grid {
    first: f64,
    first_bits: u64,
    shift: u32,
    /// 2^`log_parts`.
    parts: f64,
    points: usize,
}

/// The bits of a number's mantissa, and those of 1.
const MANTISSA: u64 = (1 << 52) - 1;
const ONE: u64 = 1.0_f64.to_bits();

impl Grid {
    /// The points that enclose `first` to `last`.
    fn new(first: f64, last: f64, log_parts: u32) -> Self {
        let shift = 52 - log_parts;
        let cell = |value: f64| value.to_bits() >> shift;
        let first_bits = cell(first) << shift;
        let points = (cell(last.max(first)) + 2 - cell(first)) as usize + 1;
        Self { first: f64::from_bits(first_bits), first_bits, shift, parts: f64::from(1 << log_parts), points }
    }

    fn value(&self, point: usize) -> f64 {
        if point == 0 { 0.0 } else { f64::from_bits(self.first_bits + ((point as u64 - 1) << self.shift)) }
    }

    /// The point below a positive number, and which part of the way to the next one it lies.
    #[inline]
    fn locate(&self, value: f64) -> (usize, f64) {
        if value < self.first {
            return (0, value / self.first);
        }
        let bits = value.to_bits();
        let cell = ((bits - self.first_bits) >> self.shift) as usize + 1;
        if cell > self.points - 2 {
            return (self.points - 2, 1.0);
        }
        // The bits below the cell's, as the mantissa of a number from 1 on.
        let beyond = f64::from_bits(bits & (MANTISSA >> (52 - self.shift)) | ONE) - 1.0;
        (cell, beyond * self.parts)
    }
}

#[inline]
fn mix(a: &PerClass, b: &PerClass, part: f64) -> PerClass {
    let mut result = [0.0; MAX_CLASSES];
    for class in 0..MAX_CLASSES {
        result[class] = a[class] + part * (b[class] - a[class]);
    }
    result
}

/// Steady misses by capacity, tabulated.
#[derive(Clone, PartialEq, Debug)]
pub struct MissTable {
    grid: Grid,
    /// By point: misses per instruction in sets, and fully associative ones under LRU of the same capacity.
    points: Vec<(PerClass, PerClass)>,
}

impl MissTable {
    /// The table of a cache with sets of `ways` lines.
    pub fn new(curves: &Curves, ways: u32, replacement: Replacement) -> Self {
        let last = (8.0 * curves.total_lines()).max(1024.0);
        let grid = Grid::new(f64::from(ways).max(16.0), last, 2);
        let points = (0..grid.points)
            .map(|point| {
                let lines = grid.value(point).max(1e-3);
                let full = curves.steady(lines, Replacement::Lru);
                let mut misses = curves.steady_in_sets(lines.max(f64::from(ways)), ways);
                if replacement != Replacement::Lru {
                    // What the rule changes is taken from the fully associative cache.
                    let changed = curves.steady(lines, replacement);
                    for (miss, (changed, full)) in misses.iter_mut().zip(changed.into_iter().zip(full)) {
                        *miss = (*miss + changed - full).max(0.0);
                    }
                }
                (misses, full)
            })
            .collect();
        Self { grid, points }
    }

    /// Misses per instruction and class at a capacity in lines: those of the real cache, and those of a fully
    /// associative one with LRU.
    #[inline]
    pub fn at(&self, lines: f64) -> (PerClass, PerClass) {
        let (point, part) = self.grid.locate(lines);
        let ((real, full), (next_real, next_full)) = (&self.points[point], &self.points[point + 1]);
        (mix(real, next_real, part), mix(full, next_full, part))
    }

    /// How much the misses per instruction of all classes change per relative change of the capacity around `lines`.
    #[inline]
    pub fn slope(&self, lines: f64) -> f64 {
        let (point, _) = self.grid.locate(lines);
        let (real, next) = (&self.points[point].0, &self.points[point + 1].0);
        let change: f64 = real.iter().zip(next).map(|(a, b)| (a - b).abs()).sum();
        change * lines / (self.grid.value(point + 1) - self.grid.value(point))
    }
}

/// Where a window lies in a [`CurveTable`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    point: usize,
    part: f64,
}

/// F and m at a point, and how much they rise to the next one.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Segment {
    lines: f64,
    lines_rise: f64,
    misses: f64,
    misses_rise: f64,
}

/// F and m by window, tabulated: within 0.2 % of a class's lines and touches.
#[derive(Clone, PartialEq, Debug)]
pub struct CurveTable {
    grid: Grid,
    max_window: f64,
    total_lines: f64,
    segments: Vec<Segment>,
    points: Vec<(PerClass, PerClass)>,
}

impl CurveTable {
    /// The table of closed forms.
    pub fn new(curves: &Curves) -> Self {
        let last = curves.max_window();
        let grid = Grid::new(curves.shortest_window().min(last).max(1e-3), last.max(1.0), 3);
        let values = (0..grid.points).map(|point| grid.value(point));
        let points: Vec<(PerClass, PerClass)> =
            values.clone().map(|n| (curves.class_footprints(n), curves.class_misses(n))).collect();
        // At the end everything is there.
        let end = std::iter::once((curves.total_lines(), 0.0));
        let sums: Vec<(f64, f64)> = values.map(|n| curves.at(n)).take(grid.points - 1).chain(end).collect();
        let segment = |pair: &[(f64, f64)]| Segment {
            lines: pair[0].0,
            lines_rise: pair[1].0 - pair[0].0,
            misses: pair[0].1,
            misses_rise: pair[1].1 - pair[0].1,
        };
        Self {
            segments: sums.windows(2).map(segment).collect(),
            max_window: grid.value(grid.points - 1),
            grid,
            total_lines: curves.total_lines(),
            points,
        }
    }

    /// The last point: like [`Curves::max_window`], a window beyond which nothing is missed.
    #[inline]
    pub fn max_window(&self) -> f64 {
        self.max_window
    }

    /// F(n) and m(n).
    #[inline]
    pub fn at(&self, n: f64) -> (f64, f64) {
        self.sums(self.cell(n))
    }

    /// Where a window of `n` instructions lies, for the lookups that follow.
    #[inline]
    pub fn cell(&self, n: f64) -> Cell {
        let (point, part) = self.grid.locate(n);
        Cell { point, part }
    }

    /// F and m there.
    #[inline]
    pub fn sums(&self, cell: Cell) -> (f64, f64) {
        let segment = &self.segments[cell.point];
        (segment.lines + cell.part * segment.lines_rise, segment.misses + cell.part * segment.misses_rise)
    }

    /// F by class.
    #[inline]
    pub(crate) fn class_lines(&self, cell: Cell) -> PerClass {
        mix(&self.points[cell.point].0, &self.points[cell.point + 1].0, cell.part)
    }

    /// m by class.
    #[inline]
    pub(crate) fn class_misses(&self, cell: Cell) -> PerClass {
        mix(&self.points[cell.point].1, &self.points[cell.point + 1].1, cell.part)
    }
}

/// By class, the chances that a line is not touched, and not written, in so many instructions: e^(−λn) and e^(−wλn),
/// tabulated to 0.2 %.
#[derive(Clone, PartialEq, Debug)]
pub struct FateTable {
    grid: Grid,
    points: Vec<(PerClass, PerClass)>,
}

impl FateTable {
    /// The table of classes whose lines are touched `touched` and written `written` times per instruction.
    pub fn new(touched: &PerClass, written: &PerClass) -> Self {
        let rates = || touched.iter().chain(written).copied().filter(|rate| *rate > 0.0);
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let (first, last) = if most > 0.0 { (0.01 / most, 40.0 / least) } else { (1.0, 1.0) };
        let grid = Grid::new(first, last, 3);
        let fate = |rates: &PerClass, n: f64| rates.map(|rate| exp(-rate * n));
        let values = (0..grid.points).map(|point| grid.value(point));
        let points = values.map(|n| (fate(touched, n), fate(written, n))).collect();
        Self { grid, points }
    }

    /// Chances after `n` instructions that a line was not touched.
    #[inline]
    pub(crate) fn untouched(&self, n: f64) -> PerClass {
        let (point, part) = self.grid.locate(n);
        mix(&self.points[point].0, &self.points[point + 1].0, part)
    }

    /// Chances after `n` instructions that a line was not written.
    #[inline]
    pub(crate) fn unwritten(&self, n: f64) -> PerClass {
        let (point, part) = self.grid.locate(n);
        mix(&self.points[point].1, &self.points[point + 1].1, part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Class, ClassKind};

    fn classes(list: &[(u64, f64)]) -> Vec<Class> {
        let class =
            |(index, &(lines, touches)): (usize, &(u64, f64))| Class::new(format!("{index}"), lines * 64, touches, 0.0);
        list.iter().enumerate().map(class).collect()
    }

    #[test]
    fn the_miss_table_reproduces_the_direct_solution() {
        let curves = Curves::of_classes(&classes(&[(512, 0.06), (8_192, 0.04)]), 64, |_| true);
        let table = MissTable::new(&curves, 16, Replacement::Lru);
        for lines in [700.0, 3_000.0, 8_000.0, 20_000.0] {
            let direct: f64 = curves.steady_in_sets(lines, 16).iter().sum();
            let looked_up: f64 = table.at(lines).0.iter().sum();
            assert!((direct - looked_up).abs() < 6e-4, "{lines} lines: {direct} and {looked_up}");
        }
    }

    #[test]
    fn the_slope_is_that_of_the_misses() {
        let curves = Curves::of_classes(&classes(&[(8_192, 0.04)]), 64, |_| true);
        let table = MissTable::new(&curves, 16, Replacement::Lru);
        for lines in [1_000.0, 4_000.0, 7_000.0] {
            let sum = |lines: f64| table.at(lines).0.iter().sum::<f64>();
            let expected = (sum(lines * 0.999) - sum(lines * 1.001)) / 0.002;
            assert!((table.slope(lines) / expected - 1.0).abs() < 0.02, "{lines}: {} {expected}", table.slope(lines));
        }
        assert!(table.slope(60_000.0) < 1e-9);
    }

    #[test]
    fn the_curve_table_stays_within_a_fifth_of_a_percent_of_the_closed_forms() {
        let mut list = classes(&[(160, 0.09), (4_000, 0.008), (100_000, 0.001), (30_000_000, 1e-5), (2_000, 0.004)]);
        list[4].kind = ClassKind::Scan;
        let curves = Curves::of_classes(&list[..4], 64, |_| true);
        let table = CurveTable::new(&curves);
        let mut n = 0.0;
        while n < 2.0 * curves.max_window() {
            let (cell, (lines, misses)) = (table.cell(n), curves.at(n));
            let sums = table.sums(cell);
            assert_eq!(sums, table.at(n));
            assert!((sums.0 - lines).abs() <= 2e-3 * lines, "F({n}) = {lines}, not {}", sums.0);
            assert!((sums.1 - misses).abs() <= 2e-3 * curves.total_touches(), "m({n}): {}", sums.1);
            let by_class: f64 = table.class_lines(cell).iter().sum();
            assert!((by_class - lines).abs() <= 4e-3 * lines, "F({n}) = {lines}, by class {by_class}");
            for (class, exact) in curves.class_misses(n).into_iter().enumerate().take(4) {
                let error = (table.class_misses(cell)[class] - exact).abs();
                assert!(error <= 2e-3 * list[class].touches_per_instruction, "class {class}, m({n}) = {exact}");
            }
            n = n * 1.07 + 1.0;
        }
        // A scan's ramp is narrower than a cell.
        let table = CurveTable::new(&Curves::of_classes(&list, 64, |_| true));
        assert!(table.at(1e12).1 < 0.002 && table.at(0.0).0 == 0.0);
        assert!((table.at(0.0).1 / 0.10301 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_fates_of_lines_are_the_exponentials_within_a_fifth_of_a_percent() {
        let (touched, written) =
            ([3e-4, 2e-6, 1e-11, 0.0, 0.0, 0.0, 0.0, 0.0], [1e-4, 0.0, 3e-12, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let table = FateTable::new(&touched, &written);
        let mut n = 0.0;
        while n < 1e14 {
            let fates = [(touched, table.untouched(n)), (written, table.unwritten(n))];
            for (rates, found) in fates {
                for (rate, found) in rates.into_iter().zip(found) {
                    assert!((found - exp(-rate * n)).abs() <= 2e-3, "rate {rate}, {n} instructions: {found}");
                }
            }
            n = n * 1.07 + 1.0;
        }
        let nothing = FateTable::new(&[0.0; MAX_CLASSES], &[0.0; MAX_CLASSES]);
        assert_eq!((nothing.untouched(5.0), nothing.unwritten(1e9)), ([1.0; MAX_CLASSES], [1.0; MAX_CLASSES]));
    }
}
