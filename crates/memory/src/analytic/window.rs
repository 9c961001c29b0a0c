//! An owner's share of a cache (`docs/spec/memory-model.md` section 4.2): its *window*, the number of its own most
//! recent instructions whose lines the cache still holds; `occupancy` has a cache's.
//!
//! A window grows with its owner's instructions and shrinks as the cache's oldest time advances, at the cache's eviction
//! rate φ. φ is 0 while everything fits and otherwise makes fills equal evictions. Owners off the CPU cost nothing: their
//! windows shrink with Φ, the integral of φ, when they are looked at.
//!
//! The specification has dn/dt = x − φ n = x (1 − r), with r = n φ / x the window's age in units of the cache's; it rests at
//! r = 1, where all co-runners share one eviction time. Under LRU lines older than that go first and younger ones not at
//! all. A victim cache's lines are as old as their eviction from the cache in front of it: of a window the part that
//! this cache covers does not grow older. Here running windows follow dn/dt = x (1 − r²), and those off the CPU dn/dΦ = −n (1 + 2 ΔΦ), as they grow older
//! by ΔΦ: both rest where the specification's do, come closer to LRU on the way there, and have closed forms.

use crate::curves::Curves;
use crate::math::{exp, least};
use crate::tables::CurveTable;

/// Time over which a window's mean speed is taken.
const MEAN_NS: f64 = 20_000.0;

/// Windows that differ by a smaller part have the same F and m: tables are no closer to these.
const SAME_WINDOW: f64 = 1e-3;

/// Whose window: a task, or a group of tasks that share lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// With the profile whose lines they are.
    Task {
        task: u32,
        profile: u32,
    },
    Group(u32),
}

/// An owner's share of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub owner: Owner,
    /// Its owner executes now.
    pub running: bool,
    /// Instructions (of a group: touches) covered at `mark`.
    pub n: f64,
    /// So many of them are covered by the cache in front of a victim cache, where they do not grow older; of a young window
    /// those that were executed since.
    pub in_front: f64,
    /// What it held before its owner came gives way before what the owner has executed since; see `turns`.
    pub young: bool,
    /// How far Φ advanced while its owner was off the CPU, for what is left of it since in a young window.
    pub aged: f64,
    /// Φ when `n` was right.
    pub mark: f64,
    /// Executed since.
    pub pending: f64,
    /// Mean instructions per nanosecond of late.
    pub x: f64,
    /// When `x` was right.
    pub settled_ns: u64,
    /// F and m of `known_n`; negative if they are to be computed anew.
    pub lines: f64,
    pub misses: f64,
    pub known_n: f64,
}

impl Window {
    /// What it covers after `executed` more instructions during which Φ advanced by `phi`.
    #[inline]
    pub fn after(&self, executed: f64, phi: f64) -> f64 {
        self.after_as(executed, phi, &mut Advance::default())
    }

    /// The same, with what is known of an advance of Φ.
    #[inline]
    fn after_as(&self, executed: f64, phi: f64, known: &mut Advance) -> f64 {
        if self.young {
            return self.in_front + executed + faded(self.n - self.in_front, self.aged, phi);
        }
        self.in_front + advanced_as(self.n - self.in_front, executed, phi, known)
    }

    /// Brings it up to `phi` and applies what its owner has executed. Returns the lines filled.
    #[inline(always)]
    pub fn settle(&mut self, now_ns: u64, phi: f64, curves: &impl CurvesOf, known: &mut Step) -> f64 {
        let fills = self.misses * self.pending;
        if now_ns > self.settled_ns && self.running {
            known.took(now_ns - self.settled_ns);
            let part = if self.x == 0.0 { 1.0 } else { known.part };
            self.x += part * (self.pending * known.per_ns - self.x);
        }
        self.settled_ns = now_ns;
        if self.pending > 0.0 || phi > self.mark {
            self.n = self.after_as(self.pending, phi - self.mark, &mut known.advance);
            if self.young {
                self.in_front += self.pending;
                self.aged += phi - self.mark;
            }
            (self.mark, self.pending) = (phi, 0.0);
            self.in_front = least(self.in_front, self.n);
        }
        if (self.n - self.known_n).abs() > SAME_WINDOW * self.n || self.known_n < 0.0 {
            self.shape(curves);
        }
        fills
    }

    /// Computes F and m of `n`.
    #[inline(always)]
    pub(super) fn shape(&mut self, curves: &impl CurvesOf) {
        let shape = curves.at(self.owner, self.n);
        (self.n, self.lines, self.misses, self.known_n) = (shape.n, shape.lines, shape.misses, shape.n);
        self.in_front = least(self.in_front, self.n);
    }
}

/// F and m of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// No more than matters.
    pub n: f64,
    pub lines: f64,
    pub misses: f64,
}

/// Looks up the curves of an owner.
pub(super) trait CurvesOf {
    /// The closed forms of its lines in this cache.
    fn at(&self, owner: Owner, n: f64) -> Shape;
}

impl CurvesOf for Curves {
    fn at(&self, _owner: Owner, n: f64) -> Shape {
        let (lines, misses) = Curves::at(self, n);
        Shape { n: n.min(self.max_window()), lines, misses }
    }
}

impl CurvesOf for CurveTable {
    #[inline(always)]
    fn at(&self, _owner: Owner, n: f64) -> Shape {
        let n = least(n, self.max_window());
        let (lines, misses) = CurveTable::at(self, n);
        Shape { n, lines, misses }
    }
}

/// What windows that are brought up to date together have in common: mostly all of a cache's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    elapsed_ns: u64,
    /// 1 / elapsed, and the part of the mean speed that it makes up.
    per_ns: f64,
    part: f64,
    advance: Advance,
}

impl Step {
    #[inline]
    fn took(&mut self, elapsed_ns: u64) {
        if elapsed_ns != self.elapsed_ns {
            let elapsed = elapsed_ns as f64;
            (self.elapsed_ns, self.per_ns, self.part) = (elapsed_ns, 1.0 / elapsed, (elapsed / MEAN_NS).min(1.0));
        }
    }
}

/// What an advance of Φ does to all windows that run meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Advance {
    phi: f64,
    /// φ tanh φ.
    shrinking: f64,
    /// tanh φ / φ.
    growth: f64,
}

impl Advance {
    #[inline]
    fn by(phi: f64) -> Self {
        let kept = exp(-2.0 * phi);
        let tanh = if phi < 1e-4 { phi } else { (1.0 - kept) / (1.0 + kept) };
        Self { phi, shrinking: phi * tanh, growth: tanh / phi }
    }
}

/// The window after `executed` more instructions during which Φ advanced by `phi`.
#[inline]
pub(super) fn advanced(n: f64, executed: f64, phi: f64) -> f64 {
    advanced_as(n, executed, phi, &mut Advance::default())
}

#[inline(always)]
fn advanced_as(n: f64, executed: f64, phi: f64, known: &mut Advance) -> f64 {
    if phi <= 0.0 {
        return n + executed;
    }
    if executed <= 0.0 {
        return faded(n, 0.0, phi);
    }
    if known.phi != phi {
        *known = Advance::by(phi);
    }
    // dr/dφ = 1 − r² is solved by r = (r0 + tanh φ) / (1 + r0 tanh φ), where r = n φ / executed.
    (n + executed * known.growth) * executed / (executed + n * known.shrinking)
}

/// A window after Φ advanced by `phi` while its owner touched nothing of it, as it had by `aged` before.
#[inline]
pub(super) fn faded(n: f64, aged: f64, phi: f64) -> f64 {
    n * exp(-phi * (1.0 + 2.0 * aged + phi))
}
