//! Occupancy of one cache (`docs/spec/memory-model.md` section 4.2): its windows, how fast their owners fill it, and
//! the eviction rate φ that follows. φ is 0 while everything fits and otherwise makes fills equal evictions.

use crate::math::exp;

use super::window::{CurvesOf, Owner, Step, Window, advanced};

/// A cache's windows.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupancy {
    /// Lines it holds, those of the caches in front of a victim cache included.
    pub capacity: f64,
    pub windows: Vec<Window>,
    /// Slots of the running windows.
    pub(super) running: Vec<u32>,
    /// Evictions per line and nanosecond, frozen since `updated_ns`.
    pub phi: f64,
    /// Integral of `phi` up to `updated_ns`.
    pub phi_total: f64,
    pub updated_ns: u64,
    /// Σ F of running windows at the last update.
    pub running_lines: f64,
    /// Σ F and Σ m n of windows whose owners are off the CPU, carried on from the last exact sum.
    pub stale_lines: f64,
    pub(super) stale_fade: f64,
    /// Φ at the last exact sum over them.
    pub(super) exact_mark: f64,
    /// Lines filled since the last update.
    pub(super) fills: f64,
    /// Lines filled per nanosecond as of the last update.
    pub(super) fill_rate: f64,
    /// The last update summed over the windows off the CPU.
    pub(super) summed: bool,
    /// Tasks take turns in it, so that it has young windows.
    pub(super) turns: bool,
    /// It has some now. Φ is brought up to date by updates only, and `phi` foretells how fast.
    pub(super) young: bool,
    /// With which a window was last brought up to date.
    step: Step,
}

/// Φ may advance this far between exact sums over the windows off the CPU.
const EXACT_EVERY: f64 = 0.25;

/// A window off the CPU is forgotten after Φ advanced this far beyond it, or below this many lines.
const FORGET_PHI: f64 = 4.0;
const FORGET_LINES: f64 = 16.0;

/// Below this part of its capacity a cache evicts nothing.
const EMPTYING: f64 = 0.98;

/// Most that the fills of the last step count in how full a cache will be after the next, by the part of the capacity on which
/// evictions set in. Chosen, not derived: one long step, after rest, does not make evictions set in far below that part.
const LONGEST_STEP: f64 = 4.0;

/// Most windows a cache keeps, the smallest are forgotten first.
pub(super) const MAX_WINDOWS: usize = 4_096;

impl Occupancy {
    /// A cache that many use at once.
    pub fn new(capacity: f64) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// A cache in which tasks take turns.
    pub(crate) fn with_turns(capacity: f64) -> Self {
        Self { capacity, turns: true, ..Self::default() }
    }

    /// Φ at a time: φ is frozen since the last update.
    #[inline]
    pub(crate) fn phi_at(&self, now_ns: u64) -> f64 {
        if self.young {
            return self.phi_total;
        }
        self.phi_total + self.phi * (now_ns - self.updated_ns) as f64
    }

    /// Lines filled per line of the capacity in the eviction time 1 / φ, which is not infinite.
    #[inline]
    pub(crate) fn fills_per_eviction_time(&self) -> f64 {
        (self.fill_rate / (self.phi * self.capacity)).clamp(0.1, 1.0)
    }

    /// Lines held at the last update.
    pub(crate) fn held_lines(&self) -> f64 {
        (self.running_lines + self.stale_lines).min(self.capacity)
    }

    /// Brings one window up to now and applies what it executed.
    #[inline]
    fn settle(&mut self, slot: usize, now_ns: u64, curves: &impl CurvesOf) {
        let phi = self.phi_at(now_ns);
        let window = &mut self.windows[slot];
        self.fills += window.settle(now_ns, phi, curves, &mut self.step);
    }

    /// Brings the running windows up to now; adds their lines to `sum`. `each` looks at them.
    pub(super) fn settle_running(
        &mut self,
        mut sum: f64,
        now_ns: u64,
        curves: &impl CurvesOf,
        mut each: impl FnMut(&mut Window),
    ) -> f64 {
        let phi = self.phi_at(now_ns);
        let mut fills = 0.0;
        for &slot in &self.running {
            let window = &mut self.windows[slot as usize];
            fills += window.settle(now_ns, phi, curves, &mut self.step);
            sum += window.lines;
            each(window);
        }
        self.fills += fills;
        sum
    }

    /// Lines of a window, by what it has executed and how far Φ has advanced; `lines` computes them.
    #[inline]
    pub(crate) fn lines_at(&self, slot: usize, now_ns: u64, lines: impl FnOnce(f64) -> f64) -> f64 {
        let (window, advanced) = (&self.windows[slot], self.phi_at(now_ns) - self.windows[slot].mark);
        if window.pending > 0.0 || advanced > 0.0 {
            lines(window.after(window.pending, advanced))
        } else {
            window.lines
        }
    }

    /// Brings one running window up to now: its n, and m of it.
    #[inline]
    pub fn look(&mut self, slot: usize, now_ns: u64, curves: &impl CurvesOf) -> (f64, f64) {
        let before = self.windows[slot].lines;
        self.settle(slot, now_ns, curves);
        let window = &self.windows[slot];
        self.running_lines = (self.running_lines + window.lines - before).max(0.0);
        (window.n, window.misses)
    }

    /// The owner's curves are others now.
    pub(crate) fn reshape(&mut self, slot: usize) {
        self.windows[slot].known_n = -1.0;
    }

    /// The owner stops running: its window is from now on one of those off the CPU.
    pub fn leave(&mut self, slot: usize, now_ns: u64, curves: &impl CurvesOf) {
        self.running_lines = (self.running_lines - self.windows[slot].lines).max(0.0);
        self.settle(slot, now_ns, curves);
        let window = &mut self.windows[slot];
        window.running = false;
        // Others push its lines out of the cache in front.
        (window.in_front, window.young) = (0.0, false);
        self.stale_lines += window.lines;
        self.stale_fade += window.misses * window.n;
        self.stop(slot);
    }

    /// The owner of an existing window runs again.
    pub fn enter(&mut self, slot: usize, now_ns: u64, curves: &impl CurvesOf) {
        let aged = (self.phi_at(now_ns) - self.windows[slot].mark).max(0.0);
        self.settle(slot, now_ns, curves);
        let window = &mut self.windows[slot];
        window.aged = aged;
        window.running = true;
        self.running_lines += window.lines;
        self.stale_lines = (self.stale_lines - window.lines).max(0.0);
        self.stale_fade = (self.stale_fade - window.misses * window.n).max(0.0);
        self.running.push(slot as u32);
        self.start_turn(now_ns);
    }

    /// A slot is no longer one of the running ones.
    fn stop(&mut self, slot: usize) {
        if let Some(position) = self.running.iter().position(|&running| running as usize == slot) {
            self.running.swap_remove(position);
        }
    }

    /// Whether an owner runs here.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether enough has been filled since the last update, at least `least_ns` ago, for another: a quarter of the free
    /// lines, if everybody who runs here now filled `rate` lines per nanosecond on top.
    #[inline]
    pub fn is_old(&self, now_ns: u64, least_ns: u64, rate: f64) -> bool {
        let age_ns = now_ns - self.updated_ns;
        if age_ns < least_ns {
            return false;
        }
        let free = EMPTYING * self.capacity - self.running_lines - self.stale_lines;
        self.phi > 0.0 || age_ns as f64 * (self.fill_rate + rate * self.running.len() as f64) > 0.25 * free
    }

    /// Time in which 2 % of the capacity is filled, if `rate` lines per nanosecond come on top of what was filled last.
    #[inline]
    pub(crate) fn patience_ns(&self, rate: f64) -> f64 {
        0.02 * self.capacity / (self.fill_rate + rate + 1e-9)
    }

    /// Nobody runs here any more: until somebody does, nothing is evicted.
    pub fn rest(&mut self, now_ns: u64) {
        let phi = self.phi_at(now_ns);
        self.age_stale(phi - self.phi_total);
        (self.phi_total, self.updated_ns, self.phi) = (phi, now_ns, 0.0);
        (self.running_lines, self.fills) = (0.0, 0.0);
    }

    /// Carries the sums over the windows off the CPU on.
    #[inline]
    pub(super) fn age_stale(&mut self, advanced_phi: f64) {
        if advanced_phi > 0.0 {
            self.stale_lines = (self.stale_lines - self.stale_fade * advanced_phi).max(0.0);
            self.stale_fade *= exp(-advanced_phi);
        }
    }

    /// Takes a window out; its lines are free. The last window takes its slot.
    pub fn remove(&mut self, slot: usize) -> Window {
        let window = self.windows.swap_remove(slot);
        if window.running {
            self.stop(slot);
        }
        let moved_from = self.windows.len();
        if let Some(running) = self.running.iter_mut().find(|running| **running as usize == moved_from) {
            *running = slot as u32;
        }
        if window.running {
            self.running_lines = (self.running_lines - window.lines).max(0.0);
        } else {
            self.stale_lines = (self.stale_lines - window.lines).max(0.0);
            self.stale_fade = (self.stale_fade - window.misses * window.n).max(0.0);
        }
        window
    }

    /// Adds a window for an owner that has none; returns its slot.
    pub fn add(&mut self, owner: Owner, now_ns: u64) -> usize {
        let mark = self.phi_at(now_ns);
        self.windows.push(Window {
            owner,
            running: true,
            n: 0.0,
            in_front: 0.0,
            young: false,
            aged: 0.0,
            mark,
            pending: 0.0,
            x: 0.0,
            settled_ns: now_ns,
            lines: 0.0,
            misses: 0.0,
            known_n: -1.0,
        });
        let slot = self.windows.len() - 1;
        self.running.push(slot as u32);
        self.start_turn(now_ns);
        slot
    }

    /// Steps every running window to `now_ns` and sets φ anew. `speed` is the present speed of an owner in instructions
    /// per nanosecond where it is known better than as the mean of late.
    pub fn update(&mut self, now_ns: u64, curves: &impl CurvesOf, speed: impl Fn(Owner) -> Option<f64>) {
        if self.young && self.update_turn(now_ns, curves) {
            return;
        }
        let elapsed_ns = (now_ns - self.updated_ns) as f64;
        let phi = self.phi_at(now_ns);
        self.age_stale(phi - self.phi_total);
        self.summed = phi - self.exact_mark > EXACT_EVERY;
        if self.summed {
            self.sum_stale(phi, curves);
        }
        let (mut known_fills, mut squares) = (0.0, 0.0);
        let mut lines = self.settle_running(self.stale_lines, now_ns, curves, |window| {
            if let Some(x) = speed(window.owner) {
                window.x = x;
                known_fills += window.misses * x;
            }
            if window.x > 0.0 {
                let older = window.n - window.in_front;
                squares += window.misses * older * older / window.x;
            }
        });
        (self.phi_total, self.updated_ns) = (phi, now_ns);
        let fills = std::mem::take(&mut self.fills);
        let rate = if known_fills > 0.0 || elapsed_ns <= 0.0 { known_fills } else { fills / elapsed_ns };
        // Fills are φ Σ m n r over the running windows, r being n φ / x, plus φ Σ m n over the others; of n counts what
        // grows older.
        let fade = self.stale_fade;
        self.fill_rate = rate;
        let full = if lines < EMPTYING * self.capacity || self.running.is_empty() {
            0.0
        } else if squares > 0.0 {
            0.5 * ((fade * fade + 4.0 * squares * rate).sqrt() - fade) / squares
        } else if fade > 0.0 {
            rate / fade
        } else {
            0.0
        };
        if lines > self.capacity {
            lines = self.evict(lines - self.capacity, full, squares);
        }
        // Evictions set in on the last 2 % of the capacity, so that a cache at the brink does not flicker. What counts is
        // how full it will be after another step like the last: by what it is now, it would swing where a step fills more.
        let brink = (lines / self.capacity - EMPTYING) / (1.0 - EMPTYING);
        let step = (rate * elapsed_ns / ((1.0 - EMPTYING) * self.capacity)).min(LONGEST_STEP);
        self.phi = if full > 0.0 { full * ((brink + step) / (1.0 + step)).min(1.0) } else { 0.0 };
        self.running_lines = (lines - self.stale_lines).max(0.0);
    }

    /// Takes off lines beyond the capacity: the oldest time advances at once. Linear in the advance, so the next update
    /// takes off the rest. Returns the lines left.
    fn evict(&mut self, excess: f64, phi: f64, squares: f64) -> f64 {
        let fade = self.stale_fade + phi * squares;
        if fade <= 0.0 {
            return self.capacity;
        }
        let d = (excess / fade).min(1.0);
        self.phi_total += d;
        for &slot in &self.running {
            let window = &mut self.windows[slot as usize];
            let older = window.n - window.in_front;
            // As r falls with the window, dn/dΦ = −n r is solved by n / (1 + r ΔΦ).
            let advance = if window.x > 0.0 { d * (older * phi / window.x).min(20.0) } else { 0.0 };
            window.lines = (window.lines - window.misses * older * advance).max(0.0);
            window.n = window.in_front + older / (1.0 + advance);
            // Close enough until the next time it is computed.
            window.known_n = -1.0;
            window.mark = self.phi_total;
        }
        self.stale_lines = (self.stale_lines - self.stale_fade * d).max(0.0);
        self.stale_fade *= exp(-d);
        self.capacity
    }

    /// Sums over the windows off the CPU exactly.
    pub(super) fn sum_stale(&mut self, phi: f64, curves: &impl CurvesOf) {
        let (mut lines, mut fade) = (0.0, 0.0);
        for slot in 0..self.windows.len() {
            if self.windows[slot].running {
                continue;
            }
            let owner = self.windows[slot].owner;
            let older = phi - self.windows[slot].mark;
            let n = advanced(self.windows[slot].n, 0.0, older);
            let window = &mut self.windows[slot];
            let shape = curves.at(owner, n);
            (window.lines, window.misses) = (shape.lines, shape.misses);
            // What they are computed for is not the window at its mark.
            window.known_n = -1.0;
            lines += window.lines;
            fade += window.misses * n * (1.0 + 2.0 * older);
        }
        (self.stale_lines, self.stale_fade, self.exact_mark) = (lines, fade, phi);
    }

    /// The next window that may be forgotten, if any.
    pub(crate) fn forgettable(&self) -> Option<usize> {
        let phi = self.phi_total;
        let faded = |window: &Window| {
            !window.running && (phi - window.mark > FORGET_PHI || (window.mark < phi && window.lines < FORGET_LINES))
        };
        if let Some(slot) = self.windows.iter().position(faded) {
            return Some(slot);
        }
        if self.windows.len() <= MAX_WINDOWS {
            return None;
        }
        let stale = self.windows.iter().enumerate().filter(|(_, window)| !window.running);
        stale.min_by(|(_, a), (_, b)| a.lines.total_cmp(&b.lines)).map(|(slot, _)| slot)
    }

    /// Whether an exact sum has just been made, so that forgetting is worth a look.
    pub(crate) fn just_summed(&self) -> bool {
        self.summed || self.windows.len() > MAX_WINDOWS
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Shape;
    use super::*;
    use crate::curves::Curves;
    use crate::profile::Class;

    fn curves(classes: &[(u64, f64)]) -> Curves {
        let classes: Vec<Class> =
            classes.iter().map(|&(lines, q)| Class::new(format!("{lines}"), lines * 64, q, 0.0)).collect();
        Curves::of_classes(&classes, 64, |_| true)
    }

    struct Several(Vec<Curves>);

    impl CurvesOf for Several {
        fn at(&self, owner: Owner, n: f64) -> Shape {
            let Owner::Task { task, .. } = owner else { unreachable!() };
            CurvesOf::at(&self.0[task as usize], owner, n)
        }
    }

    /// An exact cache of one set of `capacity` lines with true LRU, for any number of tasks.
    struct ExactLru {
        stamps: std::collections::BTreeMap<u64, u64>,
        order: std::collections::BTreeMap<u64, u64>,
        clock: u64,
        capacity: usize,
        state: u64,
    }

    impl ExactLru {
        fn new(capacity: usize) -> Self {
            let (stamps, order) = Default::default();
            Self { stamps, order, clock: 0, capacity, state: 0x9E37_79B9_7F4A_7C15 }
        }

        fn random(&mut self) -> u64 {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
        }

        /// Whether the touch of a random line of the task missed.
        fn touch(&mut self, task: u64, classes: &[(u64, f64)]) -> bool {
            let total: f64 = classes.iter().map(|(_, q)| q).sum();
            let mut choice = self.random() as f64 / (1_u64 << 53) as f64 * total;
            let mut class = 0;
            while class + 1 < classes.len() && choice >= classes[class].1 {
                choice -= classes[class].1;
                class += 1;
            }
            let line = (task << 48) | ((class as u64) << 40) | (self.random() % classes[class].0);
            self.clock += 1;
            let old = self.stamps.insert(line, self.clock);
            if let Some(old) = old {
                self.order.remove(&old);
            }
            self.order.insert(self.clock, line);
            if self.stamps.len() > self.capacity {
                let (_, victim) = self.order.pop_first().unwrap();
                self.stamps.remove(&victim);
            }
            old.is_none()
        }

        fn lines_of(&self, task: u64) -> f64 {
            self.stamps.keys().filter(|line| *line >> 48 == task).count() as f64
        }
    }

    /// `docs/spec/memory-model.md` section 8.1, X3: tasks join, leave and return; occupancy within 3 % (mean) and 12 %
    /// (most) of the capacity.
    #[test]
    fn windows_follow_an_exact_cache_when_tasks_join_leave_and_return() {
        let classes: [&[(u64, f64)]; 3] =
            [&[(300, 0.08), (3_000, 0.03)], &[(100, 0.06), (6_000, 0.02)], &[(2_000, 0.04), (20_000, 0.01)]];
        let several = Several(classes.iter().map(|classes| curves(classes)).collect());
        let rate = 1.5;
        let capacity = 6_000;
        let mut exact = ExactLru::new(capacity);
        let mut cache = Occupancy::new(capacity as f64);
        let mut slots = [None; 3];
        let segments: [&[usize]; 6] = [&[0], &[0, 1], &[0, 1, 2], &[1, 2], &[2], &[0, 2]];
        let (mut now_ns, mut errors, mut on) = (0_u64, Vec::new(), Vec::new());
        for segment in segments {
            for (task, slot) in slots.iter_mut().enumerate() {
                let (runs, ran) = (segment.contains(&task), on.contains(&task));
                match *slot {
                    Some(slot) if ran && !runs => cache.leave(slot, now_ns, &several),
                    Some(slot) if !ran && runs => cache.enter(slot, now_ns, &several),
                    None if runs => *slot = Some(cache.add(Owner::Task { task: task as u32, profile: 0 }, now_ns)),
                    _ => {}
                }
            }
            on = segment.to_vec();
            for _ in 0..40 {
                let step_ns = 5_000;
                for _ in 0..20 {
                    for &task in segment {
                        let q: f64 = classes[task].iter().map(|(_, q)| q).sum();
                        for _ in 0..(q * rate * step_ns as f64 / 20.0) as u64 {
                            exact.touch(task as u64, classes[task]);
                        }
                    }
                }
                for &task in segment {
                    cache.windows[slots[task].unwrap()].pending += rate * step_ns as f64;
                }
                now_ns += step_ns;
                cache.update(now_ns, &several, |_| None);
                let held: f64 = cache.held_lines();
                assert!(held <= 1.0001 * capacity as f64);
                for (task, slot) in slots.iter().enumerate() {
                    let Some(slot) = *slot else { continue };
                    let window = &cache.windows[slot];
                    let older = cache.phi_total - window.mark;
                    let n = advanced(window.n, window.pending, older);
                    let ours = several.0[task].footprint(n);
                    errors.push((ours - exact.lines_of(task as u64)).abs() / capacity as f64);
                }
            }
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let most = errors.iter().copied().fold(0.0, f64::max);
        assert!(mean <= 0.03 && most <= 0.12, "mean {mean}, most {most}");
    }

    #[test]
    fn co_runners_share_one_eviction_time() {
        let several = Several(vec![curves(&[(8_000, 0.05)]), curves(&[(8_000, 0.05)])]);
        let mut cache = Occupancy::new(4_000.0);
        let slots =
            [cache.add(Owner::Task { task: 0, profile: 0 }, 0), cache.add(Owner::Task { task: 1, profile: 0 }, 0)];
        for step in 1..2_000_u64 {
            cache.windows[slots[0]].pending += 1_000.0;
            cache.windows[slots[1]].pending += 3_000.0;
            cache.update(step * 1_000, &several, |_| None);
        }
        let (slow, fast) = (cache.windows[slots[0]].n, cache.windows[slots[1]].n);
        assert!((fast / slow - 3.0).abs() < 0.01, "windows {slow} and {fast} for rates 1 and 3");
        assert!((cache.held_lines() - 4_000.0).abs() < 80.0, "{} lines", cache.held_lines());
    }

    #[test]
    fn a_cache_that_everything_fits_into_evicts_nothing() {
        let curves = curves(&[(1_000, 0.05)]);
        let mut cache = Occupancy::new(4_000.0);
        let slot = cache.add(Owner::Task { task: 0, profile: 0 }, 0);
        for step in 1..1_000_u64 {
            cache.windows[slot].pending += 5_000.0;
            cache.update(step * 5_000, &curves, |_| None);
        }
        assert_eq!(cache.phi, 0.0);
        assert!((cache.held_lines() - 1_000.0).abs() < 1.0);
    }
}
