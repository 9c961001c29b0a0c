//! The deadline server of a CPU: what keeps the class below from starving (`dl_server`: the fair server, and the ext server).
//!
//! It is a deadline entity of 50 ms in 1 s without a task of its own. The time that tasks below run, and idle time, is charged to it while
//! it waits; so where they get 50 ms in a second by themselves it never runs. Otherwise its timer runs out when its runtime is all that is left before its deadline,
//! and then they go before real-time tasks until that is used up. A server that had to run does not wait again: it is replenished each period.
//!
//! Source: Linux 7.2 `kernel/sched/deadline.c`, the states A to E of its comment on `dl_server_start`; `docs/spec/linux-rt.md` section 4.
//!
//! Differs from the kernel: below real-time tasks there is one server for everything, as where a sched_ext program has all tasks or there is none. In
//! partial mode another keeps the program's tasks from starving below the fair class.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;
use warmcore_workload::Reservation;

use super::entity::{Entity, Woken};

/// Payload of its timer.
pub(crate) const TIMER: u64 = u64::MAX;

/// `sched_init_dl_servers`: 50 ms in 1000 ms.
pub(super) const SERVER: Reservation =
    Reservation { runtime_ns: 50_000_000, deadline_ns: 1_000_000_000, period_ns: 1_000_000_000 };

/// A timer is not set again for less than this (`dl_server_min_res`).
const LEAST_WAIT_NS: u64 = 1_000_000;

/// Whose time passes on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Passes {
    /// Nothing runs.
    #[default]
    Idle,
    /// A task of the class below.
    Lower,
    /// A real-time or deadline task.
    Upper,
}

/// The server of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    entity: Entity,
    /// It has been started, and nothing has stopped it.
    active: bool,
    /// Its timer is set for the time of no laxity (`dl_defer_armed`).
    armed: bool,
    /// It had to run, and does not wait again (`dl_defer_running`).
    running: bool,
    /// Idle time has used up its runtime (`dl_defer_idle`).
    idle_wait: bool,
    passes: Passes,
    since_ns: u64,
}

impl Server {
    /// Whether it competes for its CPU.
    pub fn is_queued(&self) -> bool {
        self.active && !self.entity.throttled
    }

    /// Its deadline.
    pub fn deadline_ns(&self) -> u64 {
        self.entity.deadline_ns
    }

    /// From now on the CPU's time is this one's; what has passed is charged.
    pub fn switch(&mut self, core: &mut Core<'_>, cpu: CpuId, passes: Passes) {
        self.charge(core, cpu);
        self.passes = passes;
    }

    /// Charges the time since the last call (`dl_server_update`, `dl_server_update_idle`).
    pub fn charge(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let now_ns = core.now_ns();
        let spent_ns = now_ns - std::mem::replace(&mut self.since_ns, now_ns);
        if !self.active || self.passes == Passes::Upper || spent_ns == 0 {
            return;
        }
        let idle = self.passes == Passes::Idle;
        self.entity.runtime_ns -= spent_ns as i64;
        self.idle_wait &= idle;
        if self.entity.runtime_ns > 0 {
            return;
        }
        if !self.entity.throttled {
            self.entity.throttled = true;
            if !self.start_timer(core, cpu) {
                self.begin(now_ns);
                self.start_timer(core, cpu);
            }
            core.resched_full(cpu);
        } else if self.idle_wait && idle {
            self.entity.runtime_ns = 0;
        } else {
            // They got what they need without it.
            self.running = false;
            self.cancel_timer(core);
            self.begin(now_ns);
            self.idle_wait = idle;
            self.start_timer(core, cpu);
        }
    }

    /// The first task below is queued here (`dl_server_start`).
    pub fn start(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.idle_wait = false;
        if self.active {
            return;
        }
        self.charge(core, cpu);
        self.active = true;
        let now_ns = core.now_ns();
        match self.entity.wake(now_ns, &SERVER, true) {
            Woken::Revised => {}
            Woken::Begun => {
                self.running = false;
                self.wait();
            }
            Woken::Kept if self.running => {}
            Woken::Kept => self.wait(),
        }
        if self.entity.throttled && !self.start_timer(core, cpu) {
            self.entity.throttled = false;
        }
    }

    /// Nothing below is to run (`dl_server_stop`).
    pub fn stop(&mut self, core: &mut Core<'_>) {
        self.cancel_timer(core);
        (self.active, self.armed, self.idle_wait) = (false, false, false);
        self.entity.throttled = false;
    }

    /// Whether it is active.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Its timer has run out (`dl_server_timer`). Whether it competes for the CPU now.
    pub fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId) -> bool {
        self.entity.timer = None;
        if !self.entity.throttled {
            return false;
        }
        self.charge(core, cpu);
        if self.entity.timer.is_some() {
            return false;
        }
        if self.idle_wait {
            self.stop(core);
            return false;
        }
        let now_ns = core.now_ns();
        if self.armed {
            let due_ns = self.entity.deadline_ns.saturating_sub(self.entity.runtime_ns.max(0) as u64);
            if now_ns + LEAST_WAIT_NS < due_ns {
                self.start_timer(core, cpu);
                return false;
            }
            self.running = true;
            if self.entity.overflows(now_ns, &SERVER) {
                self.entity.begin(now_ns, &SERVER);
            }
        }
        self.entity.replenish(now_ns, &SERVER);
        self.armed = false;
        true
    }

    /// It waits for the time of no laxity.
    fn wait(&mut self) {
        (self.entity.throttled, self.armed) = (true, true);
    }

    fn begin(&mut self, now_ns: u64) {
        self.entity.begin(now_ns, &SERVER);
        if !self.running {
            self.wait();
        }
    }

    /// Sets the timer (`start_dl_timer`). False if its time is past.
    fn start_timer(&mut self, core: &mut Core<'_>, cpu: CpuId) -> bool {
        let at_ns = if self.armed {
            self.entity.deadline_ns.saturating_sub(self.entity.runtime_ns.max(0) as u64)
        } else {
            self.entity.next_period_ns(&SERVER)
        };
        let Some(delay_ns) = at_ns.checked_sub(core.now_ns()) else { return false };
        if self.entity.timer.is_none() {
            let late_ns = core.machine().costs().timer_late_ns;
            self.entity.timer = Some(core.start_timer(cpu, delay_ns + late_ns, TIMER));
        }
        true
    }

    fn cancel_timer(&mut self, core: &mut Core<'_>) {
        if let Some(timer) = self.entity.timer.take() {
            let _: bool = core.cancel_timer(timer);
        }
    }
}
