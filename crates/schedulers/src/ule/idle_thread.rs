//! A CPU's idle thread: when it waits in a loop, when it sleeps, and when it looks for work again.
//!
//! Source: `docs/spec/ule.md` section 10 (`sched_idletd`, `sched_clock`, `sched_initticks`; `getnextcpuevent` and `handleevents` of
//! `sys/kern/kern_clocksource.c`; `statclock` of `sys/kern/kern_clock.c`), FreeBSD 11 and 14. Hardware threads of a core do not loop, since a
//! loop takes from the other. The port's idle CPUs look at every tick instead (`balance`).
//!
//! An idle thread that sleeps has no effect before it looks for work where a thread waits, so its wakes are made up for when somebody asks.

use warmcore_kernel::{Core, TimerId};
use warmcore_topology::CpuId;

use super::Ule;
use super::interactivity::Clock;

/// Timer of a CPU at which its idle thread looks for work.
pub(super) const LOOK: u64 = 2;

/// Time of one turn of the loop, a `pause` instruction: 65 cycles of a Zen at 3.2 GHz. Assumed.
const TURN_NS: u64 = 20;

/// Wakes per second of an idle CPU that nothing else wakes.
const WAKES_PER_S: u64 = 2;

/// Switches above which an idle CPU loops (`sched_idlespinthresh`).
fn default_threshold(clock: Clock) -> u32 {
    2 * (6 * clock.hz).max(10_000) / clock.stathz
}

/// What all idle threads go by.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleRules {
    /// The kernel's clocks.
    pub clock: Clock,
    /// Length of an accounting tick.
    pub tick_ns: u64,
    /// Skipped accounting ticks are made up for one by one; otherwise all in one.
    pub ticks_made_up_singly: bool,
    /// Switches above which it loops; above a quarter of them its ticks come while it is idle.
    pub threshold: u32,
    /// It looks for work at every wake.
    pub always_steal: bool,
}

/// The idle thread of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdleThread {
    /// Accounting tick up to which switches are counted.
    tick: u64,
    /// Switches since then (`tdq_switchcnt`).
    this: u32,
    /// Those of the tick before (`tdq_oldswitchcnt`).
    last: u32,
    /// Sum of both when it last looked for work, and the wakes since.
    known: u32,
    /// When it fell asleep.
    asleep_ns: u64,
}

impl IdleThread {
    /// A thread leaves the CPU.
    pub fn count(&mut self) {
        self.this += 1;
    }

    /// Accounting ticks up to now, with so many threads on the CPU, which count as switches to come (`sched_clock`).
    pub fn account(&mut self, rules: &IdleRules, now_ns: u64, load: u32) {
        let tick = now_ns / rules.tick_ns;
        let passed = tick.saturating_sub(self.tick);
        if passed > 0 {
            self.last = if passed > 1 && rules.ticks_made_up_singly { load } else { self.this };
            (self.tick, self.this) = (tick, load);
        }
    }

    /// Switches in this and the last accounting tick.
    fn recent(&self) -> u32 {
        self.this + self.last
    }

    /// It has looked for work, found none, and sleeps.
    pub fn fall_asleep(&mut self, rules: &IdleRules, now_ns: u64) {
        self.account(rules, now_ns, 0);
        (self.known, self.asleep_ns) = (self.recent(), now_ns);
    }

    /// When it wakes if nothing happens: half a second after the last tick of the clock, or at the next tick of either clock.
    fn wakes_ns(&self, rules: &IdleRules) -> u64 {
        let hz = u64::from(rules.clock.hz);
        let time_of = |ticks: u64| (u128::from(ticks) * 1_000_000_000).div_ceil(u128::from(hz)) as u64;
        let ticks = rules.clock.ticks(self.asleep_ns);
        if 4 * self.recent() > rules.threshold {
            return time_of(ticks + 1).min((self.asleep_ns / rules.tick_ns + 1) * rules.tick_ns);
        }
        time_of(ticks + (hz / WAKES_PER_S).max(1))
    }

    /// It wakes, and sleeps again. Whether it looks for work: if more has changed than its own wakes.
    fn wake(&mut self, rules: &IdleRules, now_ns: u64) -> bool {
        self.account(rules, now_ns, 0);
        self.asleep_ns = now_ns;
        if self.recent() != self.known {
            self.known = self.recent();
            return true;
        }
        self.this += 1;
        self.known += 1;
        rules.always_steal
    }

    /// Makes up for all wakes up to now. Whether it looks for work right now.
    pub fn sleep_until(&mut self, rules: &IdleRules, now_ns: u64) -> bool {
        let mut looks_now = false;
        loop {
            let wakes_ns = self.wakes_ns(rules);
            if wakes_ns > now_ns {
                return looks_now;
            }
            looks_now = self.wake(rules, wakes_ns) && wakes_ns == now_ns;
        }
    }

    /// When it looks for work next.
    pub fn looks_ns(mut self, rules: &IdleRules) -> u64 {
        loop {
            let wakes_ns = self.wakes_ns(rules);
            if self.wake(rules, wakes_ns) {
                return wakes_ns;
            }
        }
    }
}

impl Ule {
    /// What idle threads go by in a kernel with accounting ticks of this length.
    pub(super) fn idle_rules(&self, tick_ns: u64) -> IdleRules {
        let clock = self.model.clock;
        IdleRules {
            clock,
            tick_ns,
            ticks_made_up_singly: self.model.ticks_made_up_singly,
            threshold: match self.tunables.idlespinthresh {
                0 => default_threshold(clock),
                switches => switches as u32,
            },
            always_steal: self.tunables.always_steal == 1,
        }
    }

    /// The idle thread has a CPU: if that has switched often it waits in a loop for a while, and then it sleeps.
    pub(super) fn begin_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.model.steal_at_ticks {
            return;
        }
        let rules = self.idle_rules(core.tick_ns());
        let idle = &mut self.idle_threads[cpu.index()];
        idle.fall_asleep(&rules, core.now_ns());
        if self.model.spins_idle && !self.groups.group(self.groups.leaf(cpu)).smt {
            let turns = if idle.recent() > rules.threshold { self.tunables.idlespins } else { 0 };
            core.poll_idle(cpu, turns * TURN_NS);
        }
        if self.tunables.steal_idle == 1 && core.machine().cpu_count() > 1 {
            self.without_timer.insert(cpu);
            self.arm_looks(core);
        }
    }

    /// A thread has a CPU that was idle.
    pub(super) fn end_idle(&mut self, core: &Core<'_>, cpu: CpuId) {
        if self.model.steal_at_ticks {
            return;
        }
        let rules = self.idle_rules(core.tick_ns());
        let load = self.queues.cpus[cpu.index()].seen_load();
        let idle = &mut self.idle_threads[cpu.index()];
        idle.sleep_until(&rules, core.now_ns());
        idle.account(&rules, core.now_ns(), load);
    }

    /// Where a thread waits: makes sure that idle threads look for work when their time comes.
    pub(super) fn arm_looks(&mut self, core: &mut Core<'_>) {
        if self.queues.waiting == 0 || self.without_timer.is_empty() {
            return;
        }
        let mut cpus = std::mem::take(&mut self.without_timer);
        for cpu in cpus.iter() {
            if core.curr_is_idle(cpu) {
                self.arm_look(core, cpu);
            }
        }
        cpus.clear();
        self.without_timer = cpus;
    }

    fn arm_look(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let rules = self.idle_rules(core.tick_ns());
        let idle = &mut self.idle_threads[cpu.index()];
        idle.sleep_until(&rules, core.now_ns());
        let looks_ns = idle.looks_ns(&rules);
        match self.look_timers[cpu.index()] {
            // It was armed when the CPU was idle before: what comes too early is armed again.
            Some((armed_ns, _)) if armed_ns <= looks_ns => return,
            Some((_, timer)) => _ = core.cancel_timer(timer),
            None => {}
        }
        let timer = core.start_timer(cpu, looks_ns - core.now_ns(), LOOK);
        self.look_timers[cpu.index()] = Some((looks_ns, timer));
    }

    /// The timer of a CPU's idle thread: if that looks for work now, and finds some, it leaves the CPU.
    pub(super) fn look(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.look_timers[cpu.index()] = None;
        if !core.curr_is_idle(cpu) {
            return;
        }
        let rules = self.idle_rules(core.tick_ns());
        if self.idle_threads[cpu.index()].sleep_until(&rules, core.now_ns()) {
            self.steal_if_idle(core, cpu);
        }
        if self.queues.cpus[cpu.index()].load == 0 {
            self.without_timer.insert(cpu);
            self.arm_looks(core);
        }
    }
}

/// When a CPU's idle thread looks for work, and the timer of that.
pub(super) type LookTimer = Option<(u64, TimerId)>;

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { hz: 1000, stathz: 127 };
    const MS: u64 = 1_000_000;

    fn rules(ticks_made_up_singly: bool) -> IdleRules {
        let (tick_ns, threshold) = (1_000_000_000 / 127, default_threshold(CLOCK));
        IdleRules { clock: CLOCK, tick_ns, ticks_made_up_singly, threshold, always_steal: false }
    }

    /// The next looks of an idle thread, in ms.
    fn looks(mut idle: IdleThread, rules: &IdleRules, count: usize) -> Vec<u64> {
        let look = |_| {
            let looks_ns = idle.looks_ns(rules);
            assert!(!idle.sleep_until(rules, looks_ns - 1) && idle.sleep_until(rules, looks_ns));
            looks_ns / MS
        };
        (0..count).map(look).collect()
    }

    /// By hand, of a CPU that has been idle since the beginning, as (last, this) and what is known; it wakes at 0.5, 1.0, 1.5 s and so on, 63 or
    /// 64 accounting ticks later each time. Its own count of a wake is gone at the next wake, so that it looks at every other one: FreeBSD 11.
    /// In FreeBSD 14 the count is one tick old at the next wake, and gone at the one after: it looks at two of four.
    ///
    /// | wake | 11: after the ticks | then | 14: after the ticks | then |
    /// |---|---|---|---|---|
    /// | 1 | (0, 0), known 0 | (0, 1), known 1 | (0, 0), known 0 | (0, 1), known 1 |
    /// | 2 | (0, 0), known 1 | looks, known 0 | (1, 0), known 1 | (1, 1), known 2 |
    /// | 3 | (0, 0), known 0 | (0, 1), known 1 | (1, 0), known 2 | looks, known 1 |
    /// | 4 | (0, 0), known 1 | looks, known 0 | (0, 0), known 1 | looks, known 0 |
    #[test]
    fn an_idle_cpu_looks_again_as_its_own_counts_of_wakes_fade() {
        let idle = IdleThread::default();
        assert_eq!(looks(idle, &rules(true), 4), [1000, 2000, 3000, 4000]);
        assert_eq!(looks(idle, &rules(false), 6), [1500, 2000, 3500, 4000, 5500, 6000]);
        let always = IdleRules { always_steal: true, ..rules(true) };
        assert_eq!(looks(idle, &always, 3), [500, 1000, 1500]);
    }

    /// Two switches in the tick in which it falls asleep, at 10.3 ms: the next wake is 500 ticks of 1 ms after 10 ms. In FreeBSD 11 nothing is
    /// left of them then: (0, 0), known 2. In FreeBSD 14 they are a tick old: (2, 0), known 2, no look; and (1, 0), known 3, at the second.
    #[test]
    fn what_was_switched_before_is_forgotten_as_ticks_are_made_up_for() {
        let asleep = |rules: &IdleRules| {
            let mut idle = IdleThread::default();
            idle.account(rules, 10 * MS, 0);
            idle.count();
            idle.count();
            idle.fall_asleep(rules, 10_300_000);
            looks(idle, rules, 3)
        };
        assert_eq!(asleep(&rules(true)), [510, 1510, 2510]);
        assert_eq!(asleep(&rules(false)), [1010, 1510, 3010]);
    }

    /// 60 switches lately are more than a quarter of 157: its ticks come, and it wakes at each. From 10.3 ms on it counts those of the clock at 11
    /// to 15 ms, (0, 65) with known 65. The accounting tick at 15.7 ms leaves the sum: (65, 0). So it counts that one and eight more, (65, 9)
    /// with known 74, and looks at the accounting tick at 23.6 ms: (9, 0).
    #[test]
    fn a_cpu_that_was_busy_lately_keeps_its_ticks() {
        let rules = rules(true);
        let mut idle = IdleThread::default();
        idle.account(&rules, 10 * MS, 0);
        (0..60).for_each(|_| idle.count());
        idle.fall_asleep(&rules, 10_300_000);
        assert_eq!(idle.looks_ns(&rules), 3 * rules.tick_ns);
    }

    #[test]
    fn switches_of_two_ticks_count() {
        let rules = rules(true);
        let at = |tick: u64| tick * rules.tick_ns;
        let mut idle = IdleThread::default();
        idle.account(&rules, at(1), 3);
        (0..10).for_each(|_| idle.count());
        assert_eq!(idle.recent(), 13, "three threads were there when it began");
        idle.account(&rules, at(2), 0);
        assert_eq!(idle.recent(), 13);
        idle.account(&rules, at(3), 0);
        assert_eq!(idle.recent(), 0);
        idle.account(&rules, at(3), 1);
        assert_eq!(idle.recent(), 0, "a tick begins once");
        idle.account(&rules, at(6), 2);
        assert_eq!(idle.recent(), 4, "two at each of those that were made up for");
    }

    #[test]
    fn the_threshold_is_freebsds() {
        assert_eq!(default_threshold(CLOCK), 157);
        assert_eq!(default_threshold(Clock { hz: 2000, stathz: 128 }), 187);
    }
}
