//! FreeBSD's ULE: interactive threads first, batch threads in a calendar, one queue per CPU, one thread moved at a time.
//!
//! Source: `sys/kern/sched_ule.c` of FreeBSD 11 and 14 and the port to Linux 4.9 that "The Battle of the Schedulers" (Bouron et al.,
//! USENIX ATC 2018) measured, as specified in `docs/spec/ule.md`. Which of them
//! is simulated is the tunable `profile`.
//!
//! | module | what | section |
//! |---|---|---|
//! | `profile` | what the four profiles differ in | 0, 16 |
//! | `interactivity`, `usage` | score, history, use of the CPU | 1 to 5 |
//! | `run_queue`, `threads` | buckets, calendar, slices, preemption | 5 to 8, 12 |
//! | `groups` | tree of CPUs, search in it | 9.1, 9.2 |
//! | `pick_cpu` | where a thread runs | 9 |
//! | `idle_thread` | idle CPUs: when they loop, and look for work again | 10 |
//! | `processes` | who receives the run time of threads that end | 4 |
//! | `balance` | stealing by idle CPUs, the periodic balancer | 10, 11 |
//!
//! `vectors` compares the rules with what FreeBSD's own functions answered.
//!
//! The kernel's tick is the accounting tick (`stathz`); lengths of sleep are measured by the profile's own clock.
//!
//! Differs from the original: a thread adopts a new priority when it is switched in and when its slice ends, not at every system
//! call; interrupt threads, kernel priorities, lent priorities and FreeBSD's realtime classes do not exist: of a real-time task, which is of a
//! class of Linux above, it counts that it runs; queues are read by other CPUs as they are, never stale; nothing wakes an idle CPU but a
//! thread and the timer; FreeBSD's accounting ticks come at the same phase as the kernel's other ticks.

mod balance;
mod decisions;
mod groups;
mod idle_thread;
mod interactivity;
mod pick_cpu;
mod processes;
mod profile;
mod run_queue;
mod threads;
mod tunables;
mod usage;
#[cfg(test)]
mod vectors;

use warmcore_kernel::{Boot, Core, Dequeue, Enqueue, LeftWakeups, Scheduler, State, WakeFlags};
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{PrevState, TaskId};
use warmcore_workload::Policy;

use self::decisions::UleDecisions;
pub(crate) use self::groups::Chance;
use self::groups::Groups;
use self::idle_thread::{IdleThread, LookTimer};
use self::interactivity::{Clock, History};
use self::processes::Processes;
use self::profile::{Model, Reading};
use self::threads::{IDLE, IDLE_CLASS, Position, Queues, REALTIME, Thread};
use self::usage::Usage;
use crate::realtime::run;
use crate::registry::SchedulerInfo;
use crate::spec::SchedulerSpec;
use crate::tunables::TunableSet;

pub use self::tunables::UleTunables;

/// `static_boost` that stands for the profile's own.
const PROFILES_OWN_BOOST: u64 = 256;

/// Why the running thread of a CPU is asked to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Asked {
    #[default]
    Not,
    /// Nobody asked: it yields, in a system call.
    Yields,
    /// Its slice is over, or a better thread was woken here: it leaves on its way to user mode.
    OnReturn,
    /// By the rules of preemption, at once.
    AtOnce,
}

/// The row of `ule`.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "ule",
    summary: "FreeBSD's ULE: interactive threads first, batch threads in a calendar",
    source: "sys/kern/sched_ule.c of FreeBSD 11 and 14, and its port to Linux 4.9 (USENIX ATC 2018)",
    sets: &[UleTunables::TABLE],
    assumed: &["visit_ns"],
    scores: Ule::SCORES,
    turn_ns: Ule::turn_ns,
    register_decisions: |table| {
        UleDecisions::register(table);
    },
    no_hotplug: Some("FreeBSD takes no CPU offline while it runs"),
    simulate: Some(|spec, setup, sink| run(setup, Ule::new(spec.tunables(), &setup.boot()), sink)),
    ..SchedulerInfo::PLAIN
};

/// The policy.
pub struct Ule {
    tunables: UleTunables,
    model: Model,
    groups: Groups,
    queues: Queues,
    chance: Chance,
    /// By CPU.
    asked: Vec<Asked>,
    /// By CPU.
    idle_threads: Vec<IdleThread>,
    /// By CPU.
    look_timers: Vec<LookTimer>,
    /// CPUs that have become idle, or have looked for work in vain, and whose next look has no timer yet.
    without_timer: CpuSet,
    processes: Processes,
    /// A timer at which idle CPUs look for work is armed.
    retry_armed: bool,
    /// CPUs looked at in searches, to be charged to the CPU that searches.
    visited: u32,
    decisions: UleDecisions,
    all_cpus: CpuSet,
    /// CPUs that a search may still find; kept for their memory.
    candidates: CpuSet,
    receivers: CpuSet,
}

impl Ule {
    /// Names of its scores.
    pub const SCORES: &'static [&'static str] = &["penalty", "priority"];

    /// The longest slice of the profile: a tenth of a second.
    fn turn_ns(spec: &SchedulerSpec) -> u64 {
        let hz = spec.kernel().hz;
        let model = Model::new(spec.tunables::<UleTunables>().profile(), hz);
        u64::from(model.slice_max_ticks) * 1_000_000_000 / u64::from(hz)
    }

    /// The policy in a kernel, whose ticks are the accounting ticks.
    pub fn new(tunables: UleTunables, boot: &Boot<'_>) -> Self {
        let machine = boot.machine;
        let mut model = Model::new(tunables.profile(), boot.kernel.hz);
        model.counts_classes_above &= boot.realtime;
        if tunables.slice > 0 {
            model.slice_max_ticks = tunables.slice as u32;
        }
        if tunables.slice_min > 0 {
            model.slice_min_ticks = tunables.slice_min as u32;
        }
        Self {
            tunables,
            groups: Groups::new(machine, model.groups_nodes),
            model,
            queues: Queues::new(machine.cpu_count()),
            chance: Chance::new(boot.seed),
            asked: vec![Asked::Not; machine.cpu_count()],
            idle_threads: vec![IdleThread::default(); machine.cpu_count()],
            look_timers: vec![None; machine.cpu_count()],
            without_timer: CpuSet::new(),
            processes: Processes::default(),
            retry_armed: false,
            visited: 0,
            decisions: UleDecisions::default(),
            all_cpus: machine.all_cpus().clone(),
            candidates: machine.all_cpus().clone(),
            receivers: machine.all_cpus().clone(),
        }
    }

    fn clock(&self) -> Clock {
        self.model.clock
    }

    fn now(&self, core: &Core<'_>) -> u64 {
        self.model.clock.ticks(core.now_ns())
    }

    /// `interact`, as the type that scores have.
    fn threshold(&self) -> u32 {
        self.tunables.interact as u32
    }

    /// Interactivity score of a thread.
    fn score(&self, thread: &Thread) -> u32 {
        thread.history.score(self.threshold(), self.model.scores_above_half)
    }

    /// What the priority of a time-sharing thread should be (`sched_priority`).
    fn priority_of(&self, thread: &Thread, nice: i32) -> u32 {
        let priorities = &self.model.priorities;
        let score = (self.score(thread) as i32 + nice).max(0) as u32;
        if score < self.threshold() {
            return priorities.interactive(score, self.threshold());
        }
        priorities.batch(thread.usage.level(priorities.usage_levels, self.model.clock), nice)
    }

    /// Computes what a thread's priority should be.
    fn compute_priority(&mut self, core: &mut Core<'_>, task: TaskId) {
        let nice = i32::from(core.task(task).nice());
        let priority = match core.task(task).policy() {
            Policy::Idle => IDLE_CLASS,
            _ => self.priority_of(&self.queues.threads[task.index()], nice),
        };
        let before = std::mem::replace(&mut self.queues.thread(task).user_priority, priority);
        let (was_batch, is_batch) = (self.model.priorities.is_batch(before), self.model.priorities.is_batch(priority));
        if was_batch != is_batch {
            let class = if is_batch { self.decisions.batch } else { self.decisions.interactive };
            core.decide(class, task, i64::from(self.score(&self.queues.threads[task.index()])));
        }
    }

    /// Charges a running thread with the CPU time since the last charge, where charging is exact.
    fn charge_exactly(&mut self, core: &Core<'_>, task: TaskId) {
        let clock = self.clock();
        let thread = self.queues.thread(task);
        let ran_ns = core.now_ns() - thread.running_since_ns;
        thread.running_since_ns = core.now_ns();
        let whole = thread.charged_ns + ran_ns;
        // What is short of a unit of 1/1024 tick is kept for the next time.
        let unit_ns = (1_000_000_000 / u64::from(clock.hz)) >> interactivity::TICK_SHIFT;
        let units = whole / unit_ns;
        thread.charged_ns = whole % unit_ns;
        thread.history.charge(u32::try_from(units).unwrap_or(u32::MAX), clock);
    }

    /// Best priority of a CPU as other CPUs know it.
    fn lowpri(&self, cpu: CpuId) -> u32 {
        self.queues.cpus[cpu.index()].seen_lowpri()
    }

    /// Threads of a CPU as other CPUs know them.
    fn load(&self, cpu: CpuId) -> u32 {
        self.queues.cpus[cpu.index()].seen_load()
    }

    /// Priority of what runs on a CPU.
    fn running_priority(&self, core: &Core<'_>, cpu: CpuId) -> u32 {
        match self.queues.cpus[cpu.index()].runs_above {
            true => REALTIME,
            false => self.queues.threads[core.curr(cpu).index()].priority,
        }
    }

    /// Asks the running thread of a CPU to leave.
    fn ask(&mut self, core: &mut Core<'_>, cpu: CpuId, how: Asked) {
        let asked = &mut self.asked[cpu.index()];
        if *asked != Asked::AtOnce {
            *asked = how;
        }
        match how {
            Asked::Not | Asked::Yields => {}
            Asked::OnReturn => core.resched_lazy(cpu),
            Asked::AtOnce => core.resched_full(cpu),
        }
    }

    /// A thread that leaves the CPU although it could go on is queued again.
    fn requeue(&mut self, core: &Core<'_>, cpu: CpuId, task: TaskId) {
        let asked = std::mem::take(&mut self.asked[cpu.index()]);
        let thread = self.queues.thread(task);
        let position = match asked {
            Asked::AtOnce if self.model.preempted_first => Position::Head,
            Asked::AtOnce | Asked::Yields => Position::Tail,
            Asked::Not | Asked::OnReturn => {
                // On its way to user mode it adopts its priority.
                thread.priority = thread.user_priority;
                Position::Tail
            }
        };
        let now = self.model.clock.ticks(core.now_ns());
        self.queues.thread(task).last_ran = Some(now);
        self.queues.add(&self.model, cpu, task, position);
    }

    /// Whose process and what priority a new thread has at first.
    fn inherit(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        let clock = self.clock();
        let now = self.now(core);
        let mut child = Thread { usage: Usage::starting_at(now), ..Thread::default() };
        match parent {
            None => {
                // A shell that has slept for long creates it.
                child.history =
                    History { run: 0, sleep: (clock.ticks(5_000_000_000) as u32) << interactivity::TICK_SHIFT };
                child.history.cut_for_child(clock);
            }
            Some(parent) => {
                let same_process = core.task(parent).process() == core.task(task).process();
                let thread = self.queues.thread(parent);
                child.history = thread.history;
                child.usage = thread.usage;
                if !(same_process && self.model.threads_inherit_whole) {
                    child.history.cut_for_child(clock);
                    thread.history.charge_tick(clock);
                    self.compute_priority(core, parent);
                }
            }
        }
        self.queues.links.admit(task);
        debug_assert_eq!(self.queues.threads.len(), task.index());
        self.queues.threads.push(child);
        self.compute_priority(core, task);
        let own = self.queues.threads[task.index()].user_priority;
        let active = parent.map_or(own, |parent| self.queues.threads[parent.index()].priority);
        self.queues.thread(task).priority = active;
        let maker = parent.map(|parent| core.task(parent).process());
        self.processes.begin(task, core.task(task).process(), maker);
    }

    /// A woken thread: its sleep counts (`sched_wakeup`). It is queued with the priority it went to sleep with.
    fn woken(&mut self, core: &mut Core<'_>, task: TaskId) {
        let (clock, now) = (self.clock(), self.now(core));
        let thread = self.queues.thread(task);
        thread.history.slept(now - thread.slept_at, clock);
        thread.usage.update(now, false, clock);
        thread.slice_ticks = 0;
        self.compute_priority(core, task);
    }

    /// Charges the CPU that searched with the CPUs it looked at.
    fn charge_search(&mut self, core: &mut Core<'_>, cpu: CpuId, kind: warmcore_trace::OverheadKind) {
        let visited = std::mem::take(&mut self.visited);
        core.charge(cpu, u64::from(visited) * self.tunables.visit_ns, kind);
    }
}

impl Scheduler for Ule {
    fn name(&self) -> &'static str {
        "ule"
    }

    fn scores(&self) -> &'static [&'static str] {
        Self::SCORES
    }

    fn score_tasks(&self, core: &Core<'_>, cpu: CpuId, tell: &mut dyn FnMut(TaskId, u32, i64)) {
        let mut tell_of = |task: TaskId| {
            let thread = &self.queues.threads[task.index()];
            tell(task, 0, i64::from(self.score(thread)));
            tell(task, 1, i64::from(thread.priority));
        };
        if !core.curr_is_idle(cpu) {
            tell_of(core.curr(cpu));
        }
        self.queues.waiting_on(cpu).for_each(tell_of);
    }

    fn init(&mut self, core: &mut Core<'_>) {
        self.decisions = UleDecisions::register(core.decision_table());
        if self.tunables.balance == 1 && core.machine().cpu_count() > 1 {
            self.arm_balancer(core, true);
        }
    }

    fn task_fork(&mut self, core: &mut Core<'_>, task: TaskId, parent: Option<TaskId>) {
        self.inherit(core, task, parent);
    }

    fn task_dead(&mut self, core: &mut Core<'_>, task: TaskId) {
        // The heir receives its run time, but not its sleep (`sched_exit_thread`).
        let has_ended = |thread| core.task(thread).state() == State::Dead;
        let heir = self.processes.end(core.task(task).process(), self.model.parents_inherit, has_ended);
        let run = self.queues.thread(task).history.run;
        if let Some(heir) = heir {
            let clock = self.clock();
            self.queues.thread(heir).history.charge(run, clock);
            self.compute_priority(core, heir);
        }
    }

    fn select_cpu(&mut self, core: &mut Core<'_>, task: TaskId, prev: CpuId, _flags: WakeFlags) -> CpuId {
        let cpu = self.pick_cpu(core, task, prev, false);
        let this_cpu = core.this_cpu();
        self.charge_search(core, this_cpu, warmcore_trace::OverheadKind::Wakeup);
        cpu
    }

    fn holds(&self, _task: TaskId) -> bool {
        false
    }

    fn enqueue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Enqueue) {
        if flags.has(Enqueue::WAKEUP) {
            self.woken(core, task);
        } else if flags.has(Enqueue::INITIAL) {
            let slice = self.queues.cpus[core.this_cpu().index()].slice_ticks(&self.model);
            self.queues.thread(task).slice_ticks = slice.saturating_sub(self.model.slice_min_ticks);
        }
        self.queues.cpus[cpu.index()].load += 1;
        if core.curr(cpu) == task {
            return;
        }
        self.queues.add(&self.model, cpu, task, Position::Tail);
        self.arm_retry(core);
        self.arm_looks(core);
    }

    fn dequeue(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, flags: Dequeue) {
        self.queues.remove(cpu, task);
        self.queues.cpus[cpu.index()].load -= 1;
        if flags.has(Dequeue::SLEEP) {
            let now = self.now(core);
            let boost = match self.tunables.static_boost {
                0 => IDLE,
                PROFILES_OWN_BOOST => self.model.priorities.batch_min,
                priority => priority as u32,
            };
            let thread = self.queues.thread(task);
            thread.slept_at = now;
            if thread.priority < IDLE_CLASS {
                thread.priority = thread.priority.min(boost);
            }
        }
    }

    /// `tdq_add` raises load and `tdq_lowpri` at once, under the queue's lock. The port is Linux 4.9 but for its class.
    fn left_wakeups(&self) -> LeftWakeups {
        if self.tunables.profile() == Reading::PaperPort { LeftWakeups::OtherCaches } else { LeftWakeups::None }
    }

    fn check_preempt(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, _flags: WakeFlags) {
        self.notify(core, cpu, task);
    }

    fn pick_next(&mut self, core: &mut Core<'_>, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        if let Some(prev) = prev {
            self.requeue(core, cpu, prev);
        }
        self.asked[cpu.index()] = Asked::Not;
        if self.queues.cpus[cpu.index()].transferable == 0 && self.tunables.steal_idle == 1 {
            self.steal(core, cpu, false);
        }
        let next = self.queues.cpus[cpu.index()].first();
        if let Some(next) = next {
            self.queues.remove(cpu, next);
        }
        let lowpri = next.map_or(IDLE, |next| self.queues.threads[next.index()].priority);
        self.queues.cpus[cpu.index()].lowpri = lowpri;
        next
    }

    fn put_prev(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId, runnable: bool) {
        let (clock, now) = (self.clock(), self.now(core));
        self.idle_threads[cpu.index()].count();
        if self.tunables.exact_charging == 1 {
            self.charge_exactly(core, task);
        }
        let thread = self.queues.thread(task);
        thread.last_ran = Some(now);
        thread.usage.update(now, true, clock);
        // The stopper took it off the CPU: no pick has queued it.
        if runnable && thread.waits == threads::Waits::Nowhere {
            self.requeue(core, cpu, task);
        }
        // It waits although none has joined: a class above took its CPU.
        self.arm_looks(core);
    }

    fn set_next(&mut self, core: &mut Core<'_>, cpu: CpuId, task: TaskId) {
        let (clock, now) = (self.clock(), self.now(core));
        let thread = self.queues.thread(task);
        thread.usage.update(now, false, clock);
        thread.running_since_ns = core.now_ns();
        // It returns to user mode (`sched_userret`).
        thread.priority = thread.user_priority;
        let priority = thread.priority;
        let queue = &mut self.queues.cpus[cpu.index()];
        (queue.lowpri, queue.runs_above) = (priority, false);
    }

    fn enter_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.begin_idle(core, cpu);
        self.arm_retry(core);
    }

    fn exit_idle(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.end_idle(core, cpu);
    }

    fn sched_switch(&mut self, core: &mut Core<'_>, cpu: CpuId, _prev: (TaskId, PrevState), next: TaskId) {
        if self.model.counts_classes_above {
            let runs_above = !next.is_idle() && core.task(next).policy().is_realtime();
            self.queues.cpus[cpu.index()].runs_above = runs_above;
        }
    }

    /// A task that may be running goes to a class above.
    fn switched_from(&mut self, core: &mut Core<'_>, task: TaskId) {
        let cpu = core.task(task).cpu();
        if self.model.counts_classes_above && core.curr(cpu) == task {
            self.queues.cpus[cpu.index()].runs_above = true;
        }
    }

    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        let queue = &mut self.queues.cpus[cpu.index()];
        queue.timeshare.tick();
        // FreeBSD's idle CPUs skip their ticks.
        if !core.curr_is_idle(cpu) {
            let load = queue.seen_load();
            let rules = self.idle_rules(core.tick_ns());
            self.idle_threads[cpu.index()].account(&rules, core.now_ns(), load);
        }
        let Some(curr) = curr else { return };
        let (clock, now) = (self.clock(), self.now(core));
        let slice = self.queues.cpus[cpu.index()].slice_ticks(&self.model);
        if self.tunables.exact_charging == 1 {
            self.charge_exactly(core, curr);
        } else if core.task(curr).policy() != Policy::Idle {
            self.queues.thread(curr).history.charge_tick(clock);
        }
        self.queues.thread(curr).usage.update(now, true, clock);
        self.compute_priority(core, curr);
        let thread = self.queues.thread(curr);
        thread.slice_ticks += 1;
        if thread.slice_ticks >= slice {
            thread.slice_ticks = 0;
            if self.queues.cpus[cpu.index()].transferable > 0 {
                core.decide(self.decisions.slice_over, curr, i64::from(cpu.0));
            }
            self.ask(core, cpu, Asked::OnReturn);
        }
    }

    fn timer(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u64) {
        match payload {
            balance::PERIODIC => self.balance(core),
            idle_thread::LOOK => self.look(core, cpu),
            _ => self.retry_stealing(core),
        }
    }

    /// The thread that ran was told to choose another CPU, and waits in its queue.
    fn stopper(&mut self, core: &mut Core<'_>, cpu: CpuId, payload: u32) {
        self.choose_anew(core, cpu, TaskId(payload));
    }

    /// `sched_relinquish`: a switch and nothing more. The thread is still in the kernel, so it is queued with the priority it entered with.
    fn yield_task(&mut self, _core: &mut Core<'_>, cpu: CpuId, _task: TaskId) {
        self.asked[cpu.index()] = Asked::Yields;
    }

    /// `sched_nice`, as docs/spec/ule.md section 5 describes it.
    fn attributes_changed(&mut self, core: &mut Core<'_>, task: TaskId) {
        self.compute_priority(core, task);
        let cpu = core.task(task).cpu();
        let thread = self.queues.thread(task);
        let (before, now, waits) = (thread.priority, thread.user_priority, thread.waits != threads::Waits::Nowhere);
        thread.priority = now;
        if core.curr(cpu) == task {
            self.queues.cpus[cpu.index()].reniced(&self.queues.threads, before, now);
        } else if waits && now < before {
            self.queues.remove(cpu, task);
            self.queues.add(&self.model, cpu, task, Position::InTurn);
        }
    }

    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.queues.cpus[cpu.index()].load as usize
    }
}
