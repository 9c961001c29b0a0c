//! Whether an idle CPU waits for work in a loop: where it has switched very often, the next thread will come soon.
//!
//! Source: `sched_idletd`, `sched_clock` and `sched_initticks` of `sys/kern/sched_ule.c`, FreeBSD 11 and 14. Hardware threads of a core
//! do not, since a loop takes from the other.

use super::interactivity::Clock;

/// Time of one turn of the loop, a `pause` instruction: 65 cycles of a Zen at 3.2 GHz. Assumed.
pub(super) const TURN_NS: u64 = 20;

/// Switches above which an idle CPU loops (`sched_idlespinthresh`).
pub(super) fn default_threshold(clock: Clock) -> u32 {
    2 * (6 * clock.hz).max(10_000) / clock.stathz
}

/// Switches of a CPU in this and the last accounting tick (`tdq_switchcnt`, `tdq_oldswitchcnt`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Switches {
    tick: u64,
    this: u32,
    last: u32,
}

impl Switches {
    /// A tick has begun, with so many threads on the CPU, which count as switches to come.
    pub fn tick(&mut self, tick: u64, load: u32) {
        if tick > self.tick {
            self.last = if tick == self.tick + 1 { self.this } else { 0 };
            (self.tick, self.this) = (tick, load);
        }
    }

    /// A thread leaves the CPU.
    pub fn count(&mut self) {
        self.this += 1;
    }

    /// Switches lately; the CPU has nothing to run.
    pub fn recent(&mut self, tick: u64) -> u32 {
        self.tick(tick, 0);
        self.this + self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_two_ticks_count() {
        let mut switches = Switches::default();
        switches.tick(1, 3);
        (0..10).for_each(|_| switches.count());
        assert_eq!(switches.recent(1), 13, "three threads were there when it began");
        assert_eq!(switches.recent(2), 13);
        assert_eq!(switches.recent(3), 0);
        switches.tick(3, 1);
        assert_eq!(switches.recent(3), 0, "a tick begins once");
    }

    #[test]
    fn the_threshold_is_freebsds() {
        assert_eq!(default_threshold(Clock { hz: 1000, stathz: 127 }), 157);
        assert_eq!(default_threshold(Clock { hz: 2000, stathz: 128 }), 187);
    }
}
