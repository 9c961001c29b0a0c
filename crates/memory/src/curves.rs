//! Closed forms of a profile (`docs/spec/memory-model.md` section 2): footprint, misses per instruction, the inverse,
//! and what limited associativity and other replacement rules change.
//!
//! With W lines, q touches per instruction and λ = q / W of each class, n instructions touch
//! F(n) = Σ W (1 − e^(−λn)) distinct lines, and a cache that holds that window misses m(n) = F'(n) = Σ q e^(−λn) times
//! per instruction. A scan touches min(W, q n) lines; its misses fall to nothing around n = W / q over a ramp of 10 %.

use crate::math::{exp, ln};
use crate::profile::{Class, ClassKind, MAX_CLASSES, Profile};

/// One value per class, in the profile's order; unused entries are 0.
pub type PerClass = [f64; MAX_CLASSES];

/// Half width of a scan's ramp.
const RAMP: f64 = 0.05;

/// Which line a full set gives up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replacement {
    /// The least recently used.
    #[default]
    Lru,
    /// The one a tree of bits points to: between LRU and random.
    TreePlru,
    /// Re-reference interval prediction with two bits: LRU that scans cannot sweep.
    Srrip,
    /// Any one.
    Random,
}

/// Share of the way from LRU to random at which tree-PLRU is taken to lie (assumed; the specification states an added miss
/// ratio of 0.005 to 0.02).
const PLRU_RANDOM_SHARE: f64 = 0.2;

/// Weight of a scan's lines in the occupancy under SRRIP (`docs/spec/memory-model.md` section 2; assumed there).
const SRRIP_SCAN_WEIGHT: f64 = 0.25;

/// Window beyond which e^(−λn) is nothing for the slowest class.
const MAX_EXPONENT: f64 = 40.0;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Curve {
    lines: f64,
    touches: f64,
    lambda: f64,
    scan: bool,
}

impl Curve {
    /// Footprint and misses per instruction of a window.
    #[inline]
    fn at(&self, n: f64) -> (f64, f64) {
        if self.scan {
            return self.scan_at(n);
        }
        let kept = exp(-self.lambda * n);
        (self.lines * (1.0 - kept), self.touches * kept)
    }

    fn scan_at(&self, n: f64) -> (f64, f64) {
        // In units of one pass over the class; the ramp keeps F' = m.
        let passes = n * self.lambda;
        let (start, end) = (1.0 - RAMP, 1.0 + RAMP);
        if passes <= start {
            return (self.touches * n, self.touches);
        }
        if passes >= end {
            return (self.lines, 0.0);
        }
        let left = (end - passes) / (end - start);
        (self.lines * (1.0 - left * left * RAMP), self.touches * left)
    }
}

/// The closed forms of a profile, or of some of its classes, at a line size.
#[derive(Clone, PartialEq, Debug)]
pub struct Curves {
    classes: [Curve; MAX_CLASSES],
    count: usize,
    max_window: f64,
    total_lines: f64,
    total_touches: f64,
}

impl Curves {
    /// The curves of all classes of a profile.
    pub fn new(profile: &Profile, line_bytes: u32) -> Self {
        Self::of_classes(&profile.classes, line_bytes, |_| true)
    }

    /// The curves of the classes that `take` accepts; the others count nothing and stay in their places.
    ///
    /// # Panics
    /// If there are more than [`MAX_CLASSES`] classes; [`Profile::check`] refuses those.
    pub fn of_classes(classes: &[Class], line_bytes: u32, take: impl Fn(&Class) -> bool) -> Self {
        Self::scaled(classes, line_bytes, |class| if take(class) { 1.0 } else { 0.0 })
    }

    /// The same with the lines of each class scaled; those scaled to 0 count nothing and stay in their places.
    ///
    /// # Panics
    /// See [`Curves::of_classes`].
    pub fn scaled(classes: &[Class], line_bytes: u32, scale: impl Fn(&Class) -> f64) -> Self {
        let mut curves = [Curve::default(); MAX_CLASSES];
        let mut max_window = 0.0_f64;
        for (curve, class) in curves.iter_mut().zip(classes) {
            let scale = scale(class);
            if scale <= 0.0 {
                continue;
            }
            let (lines, touches) = (class.lines(line_bytes) * scale, class.touches_per_instruction);
            let scan = class.kind == ClassKind::Scan;
            *curve = Curve { lines, touches, lambda: touches / lines, scan };
            max_window = max_window.max(if scan { 1.0 + RAMP } else { MAX_EXPONENT } / curve.lambda);
        }
        let total = |part: fn(&Curve) -> f64| curves.iter().map(part).sum();
        Self {
            classes: curves,
            count: classes.len(),
            max_window,
            total_lines: total(|curve| curve.lines),
            total_touches: total(|curve| curve.touches),
        }
    }

    /// Lines of all classes.
    pub(crate) fn total_lines(&self) -> f64 {
        self.total_lines
    }

    /// Touches per instruction of all classes.
    pub(crate) fn total_touches(&self) -> f64 {
        self.total_touches
    }

    /// The window beyond which nothing changes: a longer one only loses precision.
    pub fn max_window(&self) -> f64 {
        self.max_window
    }

    /// A window so short that F and m still grow and fall in proportion to it.
    pub(crate) fn shortest_window(&self) -> f64 {
        let fastest = self.classes[..self.count].iter().map(|curve| curve.lambda).fold(0.0, f64::max);
        if fastest > 0.0 { 0.002 / fastest } else { 0.0 }
    }

    /// F(n) and m(n).
    #[inline]
    pub fn at(&self, n: f64) -> (f64, f64) {
        if n >= self.max_window {
            return (self.total_lines, 0.0);
        }
        let (mut footprint, mut misses) = (0.0, 0.0);
        for curve in &self.classes[..self.count] {
            let (lines, touches) = curve.at(n);
            footprint += lines;
            misses += touches;
        }
        (footprint, misses)
    }

    /// F(n): distinct lines touched by n instructions.
    pub fn footprint(&self, n: f64) -> f64 {
        self.at(n).0
    }

    /// m(n): misses per instruction of a cache that holds the last n instructions' lines.
    pub fn misses(&self, n: f64) -> f64 {
        self.at(n).1
    }

    /// m(n) of each class.
    #[inline]
    pub(crate) fn class_misses(&self, n: f64) -> PerClass {
        let mut misses = [0.0; MAX_CLASSES];
        for (miss, curve) in misses.iter_mut().zip(&self.classes[..self.count]) {
            *miss = curve.at(n).1;
        }
        misses
    }

    /// F(n) of each class.
    pub(crate) fn class_footprints(&self, n: f64) -> PerClass {
        let mut lines = [0.0; MAX_CLASSES];
        for (line, curve) in lines.iter_mut().zip(&self.classes[..self.count]) {
            *line = curve.at(n).0;
        }
        lines
    }

    /// N(c), the inverse of F: instructions whose lines fill `lines`; [`Curves::max_window`] when all fit.
    pub fn window(&self, lines: f64) -> f64 {
        self.inverse(lines, |n| self.at(n))
    }

    /// Solves `at(n).0 = lines` for an increasing function that also gives its derivative.
    fn inverse(&self, lines: f64, at: impl Fn(f64) -> (f64, f64)) -> f64 {
        if lines.is_nan() || lines <= 0.0 || self.total_touches <= 0.0 {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, self.max_window);
        if at(high).0 <= lines {
            return high;
        }
        // F is concave, so Newton from the left never overshoots by much; the bracket catches the ramp of scans.
        let mut n = (lines / self.total_touches).min(high);
        for _ in 0..80 {
            let (value, slope) = at(n);
            let error = value - lines;
            if error.abs() <= 1e-9 * lines {
                break;
            }
            if error < 0.0 {
                low = n;
            } else {
                high = n;
            }
            let next = n - error / slope;
            n = if next > low && next < high { next } else { 0.5 * (low + high) };
        }
        n
    }

    /// Steady misses per instruction and class of a fully associative cache of `lines` lines.
    pub fn steady(&self, lines: f64, replacement: Replacement) -> PerClass {
        match replacement {
            Replacement::Lru => self.class_misses(self.window(lines)),
            Replacement::Random => self.steady_random(lines),
            Replacement::TreePlru => {
                let random = self.steady_random(lines);
                let mut misses = self.class_misses(self.window(lines));
                for (miss, random) in misses.iter_mut().zip(random) {
                    *miss += PLRU_RANDOM_SHARE * (random - *miss);
                }
                misses
            }
            Replacement::Srrip => {
                let at = |n: f64| {
                    let (mut value, mut slope) = (0.0, 0.0);
                    for curve in &self.classes[..self.count] {
                        let weight = if curve.scan { SRRIP_SCAN_WEIGHT } else { 1.0 };
                        let (lines, touches) = curve.at(n);
                        value += weight * lines;
                        slope += weight * touches;
                    }
                    (value, slope)
                };
                self.class_misses(self.inverse(lines, at))
            }
        }
    }

    /// Random and first-in-first-out replacement: hit = λn / (1 + λn), occupancy of the same form.
    fn steady_random(&self, lines: f64) -> PerClass {
        let at = |n: f64| {
            let (mut value, mut slope) = (0.0, 0.0);
            for curve in &self.classes[..self.count] {
                let stay = 1.0 / (1.0 + curve.lambda * n);
                value += curve.lines * (1.0 - stay);
                slope += curve.touches * stay * stay;
            }
            (value, slope)
        };
        // Under this law all lines never quite fit, so "everything fits" is decided here.
        let mut misses = [0.0; MAX_CLASSES];
        if lines >= self.total_lines {
            return misses;
        }
        let n = self.inverse(lines, at);
        for (miss, curve) in misses.iter_mut().zip(&self.classes[..self.count]) {
            *miss = curve.touches / (1.0 + curve.lambda * n);
        }
        misses
    }

    /// Steady misses per instruction and class of an LRU cache of `lines` lines in sets of `ways`, lines hashed into
    /// sets independently: a line is gone once `ways` other lines of its set were touched, whose number after t
    /// instructions is Poisson with mean F(t) / sets.
    pub fn steady_in_sets(&self, lines: f64, ways: u32) -> PerClass {
        let sets = lines / f64::from(ways);
        let mut misses = [0.0; MAX_CLASSES];
        let fastest = self.classes[..self.count].iter().map(|curve| curve.lambda).fold(0.0, f64::max);
        if fastest <= 0.0 || sets <= 0.0 {
            return misses;
        }
        for (miss, curve) in misses.iter_mut().zip(&self.classes[..self.count]).filter(|(_, curve)| curve.scan) {
            let stays = poisson_cdf(ways - 1, self.footprint(1.0 / curve.lambda) / sets);
            *miss = curve.touches * (1.0 - stays);
        }
        // Integrates by steps in which a line's next touch falls with probability e^(−λt) − e^(−λt').
        let (mut t, mut stays_before) = (1e-3 / fastest, 1.0);
        let mut untouched: PerClass = [1.0; MAX_CLASSES];
        loop {
            let stays = poisson_cdf(ways - 1, self.footprint(t) / sets);
            let mean = 0.5 * (stays_before + stays);
            for (index, curve) in self.classes[..self.count].iter().enumerate().filter(|(_, curve)| !curve.scan) {
                let left = exp(-curve.lambda * t);
                misses[index] += curve.touches * (untouched[index] - left) * (1.0 - mean);
                untouched[index] = left;
            }
            stays_before = stays;
            // What is touched later than this is gone, or everything has been touched.
            if t >= self.max_window || stays < 1e-7 {
                break;
            }
            t = (t * STEP).min(self.max_window);
        }
        for (index, curve) in self.classes[..self.count].iter().enumerate().filter(|(_, curve)| !curve.scan) {
            misses[index] += curve.touches * untouched[index] * (1.0 - stays_before);
        }
        misses
    }
}

/// Ratio of successive steps of the integral over set conflicts.
const STEP: f64 = 1.07;

/// P(X <= k) of a Poisson variable.
fn poisson_cdf(k: u32, mean: f64) -> f64 {
    // Beyond this both answers differ from the exact one by less than 1e-9.
    let k_f = f64::from(k);
    let margin = 6.5 * mean.max(1.0).sqrt() + 4.0;
    if mean + margin < k_f {
        return 1.0;
    }
    if mean - margin > k_f {
        return 0.0;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    // Summed from the largest term downwards, so that huge caches do not underflow.
    for j in (1..=k).rev() {
        term *= f64::from(j) / mean;
        sum += term;
        if term < 1e-12 * sum {
            break;
        }
    }
    (sum * exp(k_f * ln(mean) - mean - libm::lgamma(k_f + 1.0))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Class;

    fn curves(classes: &[(u64, f64)]) -> Curves {
        let classes: Vec<Class> = classes
            .iter()
            .enumerate()
            .map(|(index, &(lines, touches))| Class::new(format!("{index}"), lines * 64, touches, 0.0))
            .collect();
        Curves::of_classes(&classes, 64, |_| true)
    }

    fn scan(lines: u64, touches: f64) -> Curves {
        let mut class = Class::new("scan", lines * 64, touches, 0.0);
        class.kind = ClassKind::Scan;
        Curves::of_classes(&[class], 64, |_| true)
    }

    #[test]
    fn misses_are_the_derivative_of_the_footprint() {
        for curves in [curves(&[(300, 0.08), (4_000, 0.01), (100_000, 0.001)]), scan(1_000, 0.1)] {
            let mut n = 10.0;
            while n < curves.max_window() {
                let step = n * 1e-4;
                let slope = (curves.footprint(n + step) - curves.footprint(n - step)) / (2.0 * step);
                assert!((slope - curves.misses(n)).abs() < 2e-4, "n = {n}: {slope} and {}", curves.misses(n));
                n *= 1.3;
            }
        }
    }

    #[test]
    fn the_inverse_gives_back_the_window() {
        for curves in [curves(&[(300, 0.08), (4_000, 0.01), (100_000, 0.001)]), scan(1_000, 0.1)] {
            for lines in [1.0, 50.0, 300.0, 900.0, 0.99 * curves.total_lines()] {
                let back = curves.footprint(curves.window(lines));
                assert!((back / lines - 1.0).abs() < 1e-6, "{lines} lines came back as {back}");
            }
            assert_eq!(curves.window(2.0 * curves.total_lines()), curves.max_window());
            assert_eq!(curves.window(0.0), 0.0);
        }
    }

    #[test]
    fn a_scan_larger_than_the_cache_misses_always_and_a_smaller_one_never() {
        let curves = scan(1_000, 0.1);
        assert_eq!(curves.steady(900.0, Replacement::Lru)[0], 0.1);
        assert_eq!(curves.steady(1_100.0, Replacement::Lru)[0], 0.0);
    }

    /// Exact misses per instruction of independently hashed sets with LRU, after a warm-up of several fills.
    fn exact(classes: &[(u64, f64)], lines: u64, ways: usize, random: bool) -> f64 {
        let sets = lines as usize / ways;
        let mut cache: Vec<Vec<u64>> = vec![Vec::new(); sets];
        let touches: f64 = classes.iter().map(|(_, touches)| touches).sum();
        let mut state = 0x1234_5678_9ABC_DEF1_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        let (mut misses, mut counted) = (0_u64, 0_u64);
        const TOUCHES: u64 = 3_000_000;
        for touch in 0..TOUCHES {
            let mut choice = (next() >> 11) as f64 / (1_u64 << 53) as f64 * touches;
            let mut class = 0;
            while class + 1 < classes.len() && choice >= classes[class].1 {
                choice -= classes[class].1;
                class += 1;
            }
            let line = ((class as u64) << 40) | (((next() >> 32) * classes[class].0) >> 32);
            let mut hash = line.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let set = (((hash ^ (hash >> 32)) & 0xFFFF_FFFF) * sets as u64) >> 32;
            let set = &mut cache[set as usize];
            let hit = set.iter().position(|known| *known == line);
            if touch > TOUCHES / 3 {
                counted += 1;
                misses += u64::from(hit.is_none());
            }
            match hit {
                Some(position) if !random => {
                    set.remove(position);
                    set.insert(0, line);
                }
                Some(_) => {}
                None => {
                    if set.len() == ways {
                        let victim = if random { (next() >> 33) as usize % ways } else { ways - 1 };
                        set.remove(victim);
                    }
                    set.insert(0, line);
                }
            }
        }
        misses as f64 / counted as f64
    }

    /// `docs/spec/memory-model.md` section 2: the correction is within 0.004 where the fully associative formula is off
    /// by 0.10 to 0.14, which is when the working set equals the capacity.
    #[test]
    fn misses_in_sets_agree_with_an_exact_cache() {
        let mixtures: [(&[(u64, f64)], u64); 4] = [
            (&[(32_768, 0.1)], 32_768),
            (&[(4_096, 0.06), (65_536, 0.04)], 32_768),
            (&[(1_024, 0.05), (16_384, 0.03), (131_072, 0.02)], 32_768),
            (&[(8_192, 0.09), (24_576, 0.01)], 32_768),
        ];
        for (classes, lines) in mixtures {
            for ways in [8, 16] {
                let curves = curves(classes);
                let total: f64 = curves.steady_in_sets(lines as f64, ways).iter().sum();
                let ratio = total / curves.total_touches();
                let exact = exact(classes, lines, ways as usize, false);
                assert!((ratio - exact).abs() <= 0.004, "{classes:?}, {ways} ways: {ratio}, exact {exact}");
            }
        }
        let equal = curves(&[(4_096, 0.1)]);
        let full: f64 = equal.steady(4_096.0, Replacement::Lru).iter().sum();
        let sets: f64 = equal.steady_in_sets(4_096.0, 16).iter().sum();
        assert!(full < 1e-6 && (sets / 0.1 - 0.1).abs() < 0.01, "the cliff at full capacity: {full} and {sets}");
    }

    #[test]
    fn random_replacement_agrees_with_an_exact_cache() {
        let classes: &[(u64, f64)] = &[(512, 0.06), (8_192, 0.04)];
        let curves = curves(classes);
        let ratio = curves.steady(4_096.0, Replacement::Random).iter().sum::<f64>() / curves.total_touches();
        let exact = exact(classes, 4_096, 4_096 / 64, true);
        assert!((ratio - exact).abs() <= 0.006, "{ratio}, exact {exact}");
    }

    #[test]
    fn replacement_rules_are_ordered_for_random_mixtures() {
        let curves = curves(&[(512, 0.06), (8_192, 0.04)]);
        let total = |rule| curves.steady(4_096.0, rule).iter().sum::<f64>();
        let (lru, plru, random) = (total(Replacement::Lru), total(Replacement::TreePlru), total(Replacement::Random));
        assert!(lru < plru && plru < random, "{lru} {plru} {random}");
    }

    #[test]
    fn poisson_sums_agree_with_the_definition() {
        for mean in [0.1, 3.0, 15.9, 40.0] {
            let (mut term, mut sum) = (exp(-mean), exp(-mean));
            for k in 1..=15 {
                term *= mean / f64::from(k);
                sum += term;
            }
            assert!((poisson_cdf(15, mean) - sum).abs() < 1e-9, "mean {mean}");
        }
        assert!(poisson_cdf(100_000, 1e5) > 0.49 && poisson_cdf(100_000, 1e5) < 0.52);
    }
}
