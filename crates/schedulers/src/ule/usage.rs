//! How much of the CPU a thread used in the last ten seconds (`sched_pctcpu_update`, `SCHED_PRI_TICKS`).
//!
//! Source: `docs/spec/ule.md` section 5.

use super::interactivity::{Clock, TICK_SHIFT};

/// Seconds that the window is cut to, and seconds at which it is cut (`SCHED_TICK_SECS`, `SCHED_TICK_MAX`).
const TARGET_S: u64 = 10;
const LONGEST_S: u64 = 11;

/// A window of use of the CPU, in ticks of the global counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Run ticks in the window, times 1024.
    run: u64,
    first: u64,
    last: u64,
}

impl Usage {
    /// A window that begins now.
    pub(crate) fn starting_at(now: u64) -> Self {
        Self { run: 0, first: now, last: now }
    }

    /// Brings the window to now; the thread ran, or did not, since the last time.
    pub fn update(&mut self, now: u64, ran: bool, clock: Clock) {
        let hz = u64::from(clock.hz);
        let target = TARGET_S * hz;
        if now - self.last >= target {
            self.run = 0;
            self.first = now.saturating_sub(target);
        } else if now - self.first >= LONGEST_S * hz {
            let begin = now.saturating_sub(target);
            self.run = self.run / (self.last - self.first).max(1) * (self.last - begin);
            self.first = begin;
        }
        if ran {
            self.run += (now - self.last) << TICK_SHIFT;
        }
        self.last = now;
    }

    /// Level of use among so many: 0 for none, the last for all of the CPU.
    pub fn level(&self, levels: u32, clock: Clock) -> u32 {
        let window = (self.last - self.first).max(u64::from(clock.hz));
        let per_level = window.div_ceil(u64::from(levels));
        ((self.run >> TICK_SHIFT) / per_level).min(u64::from(levels - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { hz: 1000, stathz: 127 };

    /// Level after 12 s in which the thread runs so many of every ten ticks.
    fn level_of(running: u64) -> u32 {
        let mut usage = Usage::starting_at(0);
        for now in (0..12_000).step_by(10) {
            usage.update(now + running, true, CLOCK);
            usage.update(now + 10, false, CLOCK);
        }
        usage.level(32, CLOCK)
    }

    #[test]
    fn use_of_the_whole_cpu_is_the_last_level_and_half_of_it_the_fifteenth() {
        assert_eq!(level_of(10), 31);
        assert_eq!(level_of(5), 15, "docs/spec/ule.md section 5");
        assert_eq!(level_of(0), 0);
    }

    #[test]
    fn who_was_away_for_ten_seconds_begins_anew() {
        let mut usage = Usage::starting_at(0);
        usage.update(5_000, true, CLOCK);
        assert!(usage.level(32, CLOCK) > 0);
        usage.update(15_000, false, CLOCK);
        assert_eq!(usage.level(32, CLOCK), 0);
    }

    #[test]
    fn the_window_is_cut_to_ten_seconds_at_eleven() {
        let mut usage = Usage::starting_at(0);
        usage.update(4_000, true, CLOCK);
        usage.update(11_000, false, CLOCK);
        assert_eq!(usage, Usage { run: (4_000 << TICK_SHIFT) / 4_000 * 3_000, first: 1_000, last: 11_000 });
    }
}
