//! Real-time and deadline tasks above any policy: the kernel's `rt_sched_class` and `dl_sched_class`, with the server that keeps what is below
//! from starving.
//!
//! Tasks of `SCHED_DEADLINE` go first, earliest deadline first, each within its reservation; then those of `SCHED_FIFO` and `SCHED_RR` by
//! priority. A CPU with more of them than it can run pushes the next one to where it runs at once, and one that has run out of them asks for some.
//! [`run`] stands them above a policy, where the workload has such tasks.
//!
//! Source: Linux 7.2 `kernel/sched/rt.c`, `deadline.c`, `cpupri.c`, `cpudeadline.c`, as specified in `docs/spec/linux-rt.md`.
//!
//! Differs from the kernel, see `docs/models/realtime.md`: no priority inheritance, no reclaiming of unused bandwidth (GRUB), no quota of real-time groups; a run queue's lock costs nothing.

mod balance;
mod bandwidth;
mod entity;
mod fit;
mod fixed;
pub(crate) mod server;
mod stack;

use warmcore_kernel::{Boot, CAPACITY_SCALE, Core, Dequeue, Enqueue, Scheduler, TimerId, Utilisation, WakeFlags};
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{TaskId, Throttler};
use warmcore_workload::{Policy, Reservation};

use entity::Entity;
use fixed::FixedQueue;
use server::{Passes, Server};
pub(crate) use stack::{run, run_boxed};

use crate::fair::eevdf::HRTICK_MIN_NS;

/// Turn of a `SCHED_RR` task (`RR_TIMESLICE`).
const TURN_NS: u64 = 100_000_000;

#[derive(Clone, Copy)]
enum Timer {
    /// A deadline task's runtime is replenished.
    Replenish(TaskId),
    /// The server's time has come.
    Server,
    /// The CPU is asked to push real-time tasks away, and to pass that on to the next one.
    Push,
    /// A deadline task that sleeps has no claim to its CPU any more.
    ZeroLag(TaskId),
}

impl Timer {
    fn payload(self) -> u64 {
        match self {
            Timer::Replenish(task) => u64::from(task.0),
            Timer::Server => server::TIMER,
            Timer::Push => 2 << 32,
            Timer::ZeroLag(task) => (3 << 32) | u64::from(task.0),
        }
    }

    fn of(payload: u64) -> Self {
        match payload >> 32 {
            0 => Timer::Replenish(TaskId(payload as u32)),
            2 => Timer::Push,
            3 => Timer::ZeroLag(TaskId(payload as u32)),
            _ => Timer::Server,
        }
    }
}

/// What runs or waits on a CPU.
#[derive(Clone, Default)]
struct Queue {
    fixed: FixedQueue,
    /// Deadline tasks that have runtime, the earliest deadline first.
    deadline: Vec<TaskId>,
    /// All of them, throttled ones included.
    runnable: usize,
}

/// A task.
#[derive(Clone, Copy, Default)]
struct State {
    /// Its policy here; another than those of this class if it is not here.
    policy: Policy,
    runnable: bool,
    /// It is in one of its CPU's queues.
    queued: bool,
    /// No period of its reservation has begun yet.
    fresh: bool,
    /// Its runtime is void until the next period (`dl_yielded`).
    yielded: bool,
    /// Ticks left of its turn.
    turn_ticks: u64,
    entity: Entity,
    /// Up to when its time is charged.
    since_ns: u64,
    /// Up to when its reservation counts on its CPU.
    counts_until_ns: u64,
    /// The timer of that, while it sleeps.
    zero_lag: Option<TimerId>,
}

impl State {
    fn priority(&self) -> u8 {
        match self.policy {
            Policy::Fifo { priority } | Policy::RoundRobin { priority } => priority,
            _ => 0,
        }
    }

    fn reservation(&self) -> Option<Reservation> {
        match self.policy {
            Policy::Deadline(reservation) => Some(reservation),
            _ => None,
        }
    }
}

/// Both classes.
pub struct Realtime {
    queues: Vec<Queue>,
    tasks: Vec<State>,
    servers: Vec<Server>,
    /// All deadline tasks.
    reserved: Vec<TaskId>,
    /// CPUs among which one is sought.
    candidates: CpuSet,
    /// CPUs have unequal capacities, which decisions heed.
    unequal: bool,
}

impl Realtime {
    /// The classes in a kernel.
    #[must_use]
    pub fn new(boot: &Boot<'_>) -> Self {
        let cpus = boot.machine.cpu_count();
        Self {
            queues: vec![Queue::default(); cpus],
            tasks: Vec::new(),
            servers: vec![Server::default(); cpus],
            reserved: Vec::new(),
            candidates: CpuSet::new(),
            unequal: Self::heeds_capacities(boot.machine),
        }
    }

    fn state(&mut self, task: TaskId) -> &mut State {
        &mut self.tasks[task.index()]
    }

    fn deadline_ns(&self, task: TaskId) -> u64 {
        self.tasks[task.index()].entity.deadline_ns
    }

    /// Earliest deadline of a CPU's deadline tasks.
    fn earliest_ns(&self, cpu: CpuId) -> Option<u64> {
        self.queues[cpu.index()].deadline.first().map(|&task| self.deadline_ns(task))
    }

    /// The running task if it is one of these classes.
    fn running(&self, core: &Core<'_>, cpu: CpuId) -> Option<TaskId> {
        let curr = core.curr(cpu);
        (!curr.is_idle() && self.tasks[curr.index()].policy.is_realtime()).then_some(curr)
    }

    /// Puts a task into the queue of its policy.
    fn insert(&mut self, cpu: CpuId, task: TaskId, first: bool) {
        let state = &mut self.tasks[task.index()];
        state.queued = true;
        let (priority, deadline_ns) = (state.priority(), state.entity.deadline_ns);
        let queue = &mut self.queues[cpu.index()];
        if priority > 0 {
            queue.fixed.insert(task, priority, first);
        } else {
            let tasks = &self.tasks;
            let later = |known: &TaskId| tasks[known.index()].entity.deadline_ns <= deadline_ns;
            let position = queue.deadline.partition_point(later);
            queue.deadline.insert(position, task);
        }
    }

    /// Takes a task out of the queue that it is in, if it is in one.
    fn remove(&mut self, cpu: CpuId, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        if !std::mem::take(&mut state.queued) {
            return;
        }
        let (priority, queue) = (state.priority(), &mut self.queues[cpu.index()]);
        if priority > 0 {
            queue.fixed.remove(task, priority);
        } else {
            queue.deadline.retain(|&known| known != task);
        }
    }

    /// Charges the running deadline task (`update_curr_dl`); it leaves its queue when its runtime is used up.
    fn charge(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let now_ns = core.now_ns();
        let state = &mut self.tasks[task.index()];
        // Time of an interrupt that is not over is left out beforehand.
        let spent_ns = now_ns.saturating_sub(state.since_ns);
        state.since_ns = state.since_ns.max(now_ns);
        let (Some(reservation), true) = (state.reservation(), state.queued) else { return };
        // The reservation is of a CPU at full speed (`dl_scaled_delta_exec`).
        let at_capacity_ns = spent_ns * u64::from(core.capacity(cpu)) / 1024;
        state.entity.runtime_ns -= (at_capacity_ns * u64::from(core.frequency_scale(cpu)) / 1024) as i64;
        if state.entity.runtime_ns > 0 && !state.yielded {
            return;
        }
        state.entity.throttled = true;
        self.remove(cpu, task);
        if self.start_timer(core, cpu, task, &reservation) {
            core.throttle(task, Some(Throttler::Reservation));
        } else {
            self.replenish(now_ns, task, &reservation);
            self.insert(cpu, task, false);
        }
        if self.queues[cpu.index()].deadline.first() != Some(&task) {
            core.resched_full(cpu);
        }
    }

    fn replenish(&mut self, now_ns: u64, task: TaskId, reservation: &Reservation) {
        let state = &mut self.tasks[task.index()];
        if std::mem::take(&mut state.yielded) {
            state.entity.runtime_ns = state.entity.runtime_ns.min(0);
        }
        state.entity.replenish(now_ns, reservation);
    }

    /// Has a task replenished when its next period begins. False if that is past.
    fn start_timer(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, reservation: &Reservation) -> bool {
        let entity = &mut self.tasks[task.index()].entity;
        let Some(delay_ns) = entity.next_period_ns(reservation).checked_sub(core.now_ns()) else { return false };
        if entity.timer.is_none() {
            let late_ns = core.machine().costs().timer_late_ns;
            entity.timer = Some(core.start_timer(cpu, delay_ns + late_ns, Timer::Replenish(task).payload()));
        }
        true
    }

    fn cancel_timer(&mut self, core: &mut Core<'_>, task: TaskId) {
        if let Some(timer) = self.state(task).entity.timer.take() {
            let _: bool = core.cancel_timer(timer);
        }
    }

    /// A deadline task becomes runnable (`enqueue_task_dl`).
    fn enqueue_deadline(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        let now_ns = core.now_ns();
        let state = &mut self.tasks[task.index()];
        let Some(reservation) = state.reservation() else { return };
        let constrained = reservation.deadline_ns < reservation.period_ns;
        if std::mem::take(&mut state.fresh) {
            state.entity.begin(now_ns, &reservation);
        } else if !state.entity.throttled
            && constrained
            && (state.entity.deadline_ns < now_ns && now_ns < state.entity.next_period_ns(&reservation))
        {
            // It waits for its next period, though its deadline is past.
            state.entity.throttled = true;
            state.entity.runtime_ns = state.entity.runtime_ns.min(0);
            self.start_timer(core, cpu, task, &reservation);
            core.throttle(task, Some(Throttler::Reservation));
        } else if !state.entity.throttled && flags.has(Enqueue::WAKEUP) {
            state.entity.wake(now_ns, &reservation, constrained);
        }
        if !self.tasks[task.index()].entity.throttled {
            self.insert(cpu, task, false);
        }
    }

    /// A throttled task's next period begins (`dl_task_timer`).
    fn replenish_timer(&mut self, core: &mut Core<'_>, task: TaskId) {
        let state = self.state(task);
        state.entity.timer = None;
        let (Some(reservation), true) = (state.reservation(), state.entity.throttled) else { return };
        let runnable = state.runnable;
        self.replenish(core.now_ns(), task, &reservation);
        core.throttle(task, None);
        if !runnable {
            return;
        }
        let cpu = core.task(task).cpu();
        self.insert(cpu, task, false);
        if core.curr(cpu) == task {
            self.state(task).since_ns = core.now_ns();
        }
        self.preempt(core, cpu, task);
        self.push_deadline(core, cpu);
    }

    /// Whether a task goes before the one that runs on the CPU; then it is rescheduled (`wakeup_preempt`).
    fn preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let Some(curr) = self.running(core, cpu).filter(|&curr| self.tasks[curr.index()].queued) else {
            core.resched_full(cpu);
            return;
        };
        if curr == task {
            return;
        }
        let [own, other] = [task, curr].map(|task| self.tasks[task.index()]);
        let before = match (own.reservation(), other.reservation()) {
            (Some(_), Some(_)) => own.entity.deadline_ns < other.entity.deadline_ns,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => own.priority() > other.priority(),
        };
        if before {
            core.resched_full(cpu);
        } else if own.reservation().is_none() && own.priority() == other.priority() {
            self.make_room(core, cpu, task, curr);
        }
    }

    /// Of two tasks of one priority the running one gives way if it can go elsewhere at once and the other cannot
    /// (`check_preempt_equal_prio`).
    fn make_room(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, curr: TaskId) {
        let goes_elsewhere =
            |class: &mut Self, core: &Core<'_>, task| core.allowed(task).len() > 1 && class.lower_priority(core, task);
        if goes_elsewhere(self, core, curr) && !goes_elsewhere(self, core, task) {
            let priority = self.tasks[task.index()].priority();
            let queue = &mut self.queues[cpu.index()].fixed;
            queue.remove(task, priority);
            queue.insert(task, priority, true);
            core.resched_full(cpu);
        }
    }
}

impl Scheduler for Realtime {
    fn name(&self) -> &'static str {
        "realtime"
    }

    fn init(&mut self, _core: &mut Core<'_>) {}

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, _parent: Option<TaskId>) {
        self.tasks.push(State::default());
        if core.task(task).policy().is_realtime() {
            self.switched_to(core, task);
        }
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.switched_from(core, task);
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let own = self.tasks[task.index()];
        let other = self.running(core, prev).map(|curr| (self.tasks[curr.index()], core.allowed(curr).len() < 2));
        let waits = other.is_some_and(|(other, stays)| match (own.reservation(), other.reservation()) {
            (Some(_), Some(_)) => stays || own.entity.deadline_ns >= other.entity.deadline_ns,
            (None, None) => stays || other.priority() >= own.priority(),
            _ => false,
        });
        if !waits && self.fits(core, task, prev) {
            return prev;
        }
        if own.reservation().is_some() {
            return self.later_cpu(core, task, prev).unwrap_or(prev);
        }
        let lowest = self.lowest_cpu(core, task, prev).filter(|&cpu| waits || self.fits(core, task, cpu));
        lowest.filter(|cpu| self.queues[cpu.index()].fixed.highest() < own.priority()).unwrap_or(prev)
    }

    /// Who blocks is gone.
    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        self.queues[cpu.index()].runnable += 1;
        if !self.tasks[task.index()].policy.is_deadline() {
            core.clamp_queued(cpu, task);
        }
        let state = self.state(task);
        state.runnable = true;
        if state.reservation().is_some() {
            self.contends(core, task);
            self.enqueue_deadline(core, cpu, task, flags);
        } else {
            self.insert(cpu, task, flags.has(Enqueue::RESTORE) && !flags.has(Enqueue::MOVE));
        }
        if core.curr(cpu) == task {
            self.state(task).since_ns = core.now_ns();
        }
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        if core.curr(cpu) == task {
            self.charge(core, cpu, task);
        }
        if flags.has(Dequeue::SLEEP) {
            self.contends_no_more(core, cpu, task);
        }
        core.clamp_left(task);
        self.remove(cpu, task);
        self.queues[cpu.index()].runnable -= 1;
        self.state(task).runnable = false;
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: WakeFlags) {
        if !self.tasks[task.index()].queued {
            return;
        }
        self.preempt(core, cpu, task);
        // What cannot run here at once goes elsewhere (`task_woken_rt`, `task_woken_dl`).
        if let Some(curr) = self.running(core, cpu)
            && curr != task
            && core.need_resched(cpu) != warmcore_kernel::NeedResched::Full
            && core.allowed(task).len() > 1
        {
            if self.tasks[task.index()].reservation().is_some() {
                self.push_deadline(core, cpu);
            } else {
                self.push_fixed(core, cpu);
            }
        }
    }

    fn pick_next(&mut self, _core: &mut Core<'_>, cpu: CpuId, _prev: Option<TaskId>) -> Option<TaskId> {
        let queue = &self.queues[cpu.index()];
        queue.deadline.first().copied().or_else(|| queue.fixed.first())
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _runnable: bool) {
        self.charge(core, cpu, task);
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        self.servers[cpu.index()].switch(core, cpu, Passes::Upper);
        let state = self.state(task);
        state.since_ns = core.now_ns();
        if state.reservation().is_some() {
            let left_ns = state.entity.runtime_ns.max(0) as u64;
            core.start_hrtick(cpu, left_ns.max(HRTICK_MIN_NS));
            // One of fixed priority that it preempts stays, until a CPU asks for it (`set_next_task_dl`, `set_next_task_rt`).
            self.push_deadline(core, cpu);
        } else {
            self.push_fixed(core, cpu);
        }
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.servers[cpu.index()].switch(core, cpu, Passes::Idle);
    }

    /// What ran until now was nothing; who runs next says so.
    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.servers[cpu.index()].charge(core, cpu);
    }

    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        let Some(task) = curr else { return };
        self.charge(core, cpu, task);
        let state = &mut self.tasks[task.index()];
        let Policy::RoundRobin { priority } = state.policy else { return };
        state.turn_ticks = state.turn_ticks.saturating_sub(1);
        if state.turn_ticks > 0 {
            return;
        }
        state.turn_ticks = TURN_NS / core.tick_ns();
        let queue = &mut self.queues[cpu.index()].fixed;
        if !queue.is_alone(priority) {
            queue.remove(task, priority);
            queue.insert(task, priority, false);
            core.resched_full(cpu);
        }
    }

    fn hrtick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: TaskId) {
        self.charge(core, cpu, curr);
        let state = self.tasks[curr.index()];
        if state.queued && state.reservation().is_some() && state.entity.runtime_ns > 0 {
            core.start_hrtick(cpu, (state.entity.runtime_ns as u64).max(HRTICK_MIN_NS));
        }
    }

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u64) {
        match Timer::of(payload) {
            Timer::Replenish(task) => self.replenish_timer(core, task),
            Timer::Server => self.server_timer(core, cpu),
            Timer::Push => self.push_for_others(core, cpu),
            Timer::ZeroLag(task) => self.zero_lag_timer(core, task),
        }
    }

    /// One of fixed priority goes behind those of its priority; a deadline task gives up what it has left of the period.
    fn yield_task(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        if state.reservation().is_some() {
            state.yielded = true;
            self.charge(core, cpu, task);
        } else if state.queued {
            let priority = state.priority();
            let queue = &mut self.queues[cpu.index()].fixed;
            queue.remove(task, priority);
            queue.insert(task, priority, false);
        }
    }

    /// A change within the classes; a move out of them or into them is the composite's.
    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        let (old, new) = (self.tasks[task.index()].policy, core.task(task).policy());
        if old == new || !old.is_realtime() || !new.is_realtime() {
            return;
        }
        let (cpu, runnable) = (core.task(task).cpu(), self.tasks[task.index()].runnable);
        let runs = core.curr(cpu) == task;
        if runs {
            self.charge(core, cpu, task);
        }
        let before = self.tasks[task.index()].priority();
        self.remove(cpu, task);
        let both_deadline = matches!((old, new), (Policy::Deadline(_), Policy::Deadline(_)));
        if both_deadline {
            self.state(task).policy = new;
        } else {
            self.switched_from(core, task);
            self.switched_to(core, task);
        }
        if !runnable {
            return;
        }
        self.state(task).runnable = true;
        if new.is_deadline() {
            self.contends(core, task);
            self.enqueue_deadline(core, cpu, task, Enqueue::RESTORE);
        } else {
            // Who is lowered stays before those that it joins.
            let first = self.tasks[task.index()].priority() < before;
            self.insert(cpu, task, first);
        }
        if runs {
            core.resched_full(cpu);
        } else {
            self.check_preempt(core, cpu, task, WakeFlags::default());
        }
    }

    fn switched_from(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.cancel_timer(core, task);
        if self.state(task).entity.throttled {
            core.throttle(task, None);
        }
        if let Some(timer) = self.state(task).zero_lag.take() {
            let _: bool = core.cancel_timer(timer);
        }
        self.reserved.retain(|&known| known != task);
        *self.state(task) = State::default();
    }

    fn switched_to(&mut self, core: &mut Core<'_>, task: TaskId) {
        let turn_ticks = TURN_NS / core.tick_ns();
        let (policy, since_ns) = (core.task(task).policy(), core.now_ns());
        *self.state(task) = State { policy, fresh: true, turn_ticks, since_ns, ..State::default() };
        if policy.is_deadline() {
            self.reserved.push(task);
        }
    }

    /// What deadline tasks have reserved; full speed while a task of fixed priority is runnable (`effective_cpu_util`). Where there are
    /// utilisation clamps, those of such tasks say so.
    fn utilisation(&self, core: &Core<'_>, cpu: CpuId) -> Utilisation {
        let full = !core.uses_clamps() && self.queues[cpu.index()].fixed.highest() > 0;
        let least = if full { CAPACITY_SCALE } else { self.bandwidth(core, cpu) };
        Utilisation { least, ..Utilisation::default() }
    }

    fn interrupted(&mut self, core: &mut Core<'_>, cpu: CpuId, duration_ns: u64) {
        if let Some(task) = self.running(core, cpu) {
            self.state(task).since_ns += duration_ns;
        }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.queues[cpu.index()].runnable
    }
}
