//! The part of the simulated kernel that a scheduler sees: clock, CPUs, tasks, and the commands it may issue.
//!
//! Commands that make no sense (moving a running task, a CPU the task may not use) are the run's error and end it ([`Core::fail`]).

use std::collections::BTreeMap;

use warmcore_topology::{CpuId, CpuSet, Machine, Relation};
use warmcore_trace::{
    DecisionTable, EventKind, GroupCounters, MigrationKind, OVERHEAD_KINDS, OverheadKind, PlacementEffort, TaskId,
};
use warmcore_workload::{Group, Policy, Task as Template};

use crate::actions::Distributed;
use crate::background::Visitor;
use crate::clamps::Clamps;
use crate::clocks::{ASKED, CAPACITY_SCALE, Clocks};
use crate::counters::Readings;
use crate::error::SimulationError;
use crate::event_queue::{Class, EventQueue, Slot};
use crate::hint_faults::{HomeChange, Touches};
use crate::hooks::{Hook, Watched};
use crate::pages::Pages;
use crate::parameters::KernelParameters;
use crate::scheduler_threads::ThreadSets;
use crate::task::{State, Task};
use crate::task_groups::TaskGroup;
use crate::telling::Tracer;
use crate::timers::{ClassPath, Level, TimerId, Timers};

/// A pending request to call the scheduler on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NeedResched {
    /// None.
    No,
    /// At the next return to user mode of that CPU (`TIF_NEED_RESCHED_LAZY`).
    Lazy,
    /// As soon as possible (`TIF_NEED_RESCHED`).
    Full,
}

/// State of one CPU.
pub(crate) struct Cpu {
    pub curr: TaskId,
    pub need_resched: NeedResched,
    /// The CPU is in the list of those to reschedule at the end of the present event.
    pub resched_listed: bool,
    /// Queued wakeups on their way here.
    pub ttwu_pending: u32,
    /// Until when the CPU, if it is idle, looks for work in a loop.
    pub polls_until_ns: u64,
    /// When the running activity was last settled.
    pub settled_ns: u64,
    /// Overhead since then that the running task has not been charged with yet.
    pub stolen_ns: u64,
    /// Until when the CPU is occupied with wakeups that it makes: the running task is charged so far already, and the CPU does not
    /// reschedule before. Long past most of the time.
    pub clock_task_ns: u64,
    /// Phase of the ordinary tick.
    pub tick_phase_ns: u64,
    pub tick_stopped: bool,
    /// It is busy, and its next tick is that of [`REMOTE_TICK_NS`](crate::tickless::REMOTE_TICK_NS).
    pub tickless: bool,
    pub softirq_raised: bool,
    /// Timers of kernel threads have run out that wait for the CPU to be busy.
    pub timers_deferred: bool,
    /// The stopper took the running task off; the CPU counts as idle until the next pick.
    pub stopper_ran: bool,
    /// Work units per 1024 ns.
    pub capacity: u32,

    /// Since when it has been idle or busy.
    pub changed_ns: u64,
    /// Not busy; of that, offline, up to when it came online last; and how much of this there was when it went offline, if it is.
    pub idle_ns: u64,
    pub offline_ns: u64,
    pub idle_before_offline_ns: Option<u64>,
    pub busy_ns: u64,
    /// Part of it with a kernel thread, up to its last switch.
    pub background_ns: u64,
    pub overhead_ns: [u64; OVERHEAD_KINDS],
    /// Part of it that events have told, and when they did last.
    pub overhead_told_ns: [u64; OVERHEAD_KINDS],
    pub overhead_told_at_ns: u64,
}

/// Clock, CPUs and tasks of a running simulation.
pub struct Core<'a> {
    pub(crate) now_ns: u64,
    pub(crate) this_cpu: CpuId,
    pub(crate) machine: &'a Machine,
    pub(crate) parameters: KernelParameters,
    pub(crate) tick_ns: u64,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) restrictions: &'a [CpuSet],
    /// The kernel's own threads, which are the tasks with the lowest numbers, and the sets of CPUs that they may use: numbered on from
    /// the restrictions of the workload.
    pub(crate) visitors: &'a [Visitor],
    pub(crate) visitor_sets: &'a [CpuSet],
    pub(crate) kernel_threads: u32,
    /// Threads of the scheduler's own come after the launchers: the task of the first, the names of all, and their masks.
    pub(crate) first_thread: u32,
    pub(crate) thread_names: Vec<String>,
    /// What events call all of them.
    pub(crate) thread_shown: u32,
    pub(crate) thread_sets: &'a ThreadSets,
    /// CPUs that take tasks.
    pub(crate) active: &'a CpuSet,
    /// Number of the restriction that is every CPU: 0, or none while a CPU is offline.
    pub(crate) everywhere: u32,
    /// Templates of the workload's tasks, for their names.
    pub(crate) templates: &'a [Template],
    /// They, the launchers and the scheduler's own threads: tasks that are none of the workload's, and that events do not show.
    pub(crate) hidden: u32,
    pub(crate) queue: EventQueue,
    pub(crate) tracer: Tracer<'a>,
    pub(crate) decisions: DecisionTable,
    pub(crate) balance_details: bool,
    pub(crate) placement: Option<PlacementEffort>,
    /// What came of quotas, by task group.
    pub(crate) group_counters: BTreeMap<u32, GroupCounters>,
    pub(crate) resched_list: Vec<CpuId>,
    pub(crate) error: Option<SimulationError>,
    /// Timers of the scheduler.
    pub(crate) timers: Timers,
    /// Which class of a composite is at work.
    pub(crate) class: ClassPath,
    /// Which one the present event is for.
    pub(crate) addressed: ClassPath,
    /// Threads alive per process.
    pub(crate) process_threads: Vec<u32>,
    pub(crate) task_groups: Vec<TaskGroup>,
    pub(crate) groups: &'a [Group],
    pub(crate) application_count: usize,
    /// Where pages are, if there are nodes to choose from and tasks say what memory they use; and by task what hint faults have to do
    /// with its run time.
    pub(crate) pages: Option<Pages>,
    pub(crate) touches: Vec<Touches>,
    /// Homes of pages that the memory has not been told of, if it is modelled.
    pub(crate) home_changes: Vec<HomeChange>,
    pub(crate) memory_modelled: bool,
    /// Counters of the memory, for policies that want them.
    pub(crate) readings: Readings,
    /// Sets of the memory's largest L1, L2 and LLC, if it records which ones tasks use.
    pub(crate) recordable_sets: Option<[u32; 3]>,
    /// CPU of the launcher while it creates a task.
    pub(crate) launcher: Option<CpuId>,
    /// Which of equally good CPUs each CPU chose last.
    pub(crate) distributed: Distributed,
    /// During a wakeup: what wakeups had taken of the waker's CPU before it.
    pub(crate) waking_since: Option<(CpuId, u64)>,
    /// Frequencies and idle states, if the kernel has a governor.
    pub(crate) clocks: Option<Clocks<'a>>,
    /// Utilisation clamps, if the workload asks for some.
    pub(crate) clamps: Option<Box<Clamps>>,
    /// What programs of tracing are called for.
    pub(crate) watched: Watched,
    /// Moves that such programs have not been called for yet.
    pub(crate) moves: Vec<Hook>,
}

impl<'a> Core<'a> {
    /// Simulated time in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Simulated time in jiffies.
    #[inline]
    pub fn jiffies(&self) -> u64 {
        self.now_ns / self.tick_ns
    }

    /// Length of a jiffy in nanoseconds.
    #[inline]
    pub fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// Parameters of the kernel.
    #[inline]
    pub fn parameters(&self) -> &KernelParameters {
        &self.parameters
    }

    /// CPU in whose context the present event runs: the waker's, the ticking one's.
    #[inline]
    pub fn this_cpu(&self) -> CpuId {
        self.this_cpu
    }

    /// The machine.
    #[inline]
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// A task.
    #[inline]
    pub fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// Number of tasks created so far.
    #[inline]
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// CPUs the task may use (`cpus_ptr`): its mask, or the one that it stays on with migration disabled. Without those that are offline;
    /// of a task that does not run it may be empty, and the kernel widens it when the task wakes.
    #[inline]
    pub fn allowed(&self, task: TaskId) -> &'a CpuSet {
        self.cpus_of_restriction(self.tasks[task.index()].restriction)
    }

    /// CPUs the task may use when migration is not disabled (`cpus_mask`, of which `nr_cpus_allowed` is the number).
    #[inline]
    pub fn mask(&self, task: TaskId) -> &'a CpuSet {
        let state = &self.tasks[task.index()];
        self.cpus_of_restriction(state.kept_restriction.unwrap_or(state.restriction))
    }

    #[inline]
    pub(crate) fn cpus_of_restriction(&self, restriction: u32) -> &'a CpuSet {
        let index = restriction as usize;
        let Some(beside) = index.checked_sub(self.restrictions.len()) else { return &self.restrictions[index] };
        self.visitor_sets.get(beside).unwrap_or_else(|| self.thread_sets.get(beside - self.visitor_sets.len()))
    }

    /// Whether the task may use the CPU.
    #[inline]
    pub fn may_run_on(&self, task: TaskId, cpu: CpuId) -> bool {
        let restriction = self.tasks[task.index()].restriction;
        restriction == self.everywhere || self.cpus_of_restriction(restriction).contains(cpu)
    }

    /// Whether there are CPUs that the task may not use (`nr_cpus_allowed` is less than the machine's).
    #[inline]
    pub fn is_restricted(&self, task: TaskId) -> bool {
        self.tasks[task.index()].restriction != 0
    }

    /// CPUs that take tasks (`cpu_active_mask`): all but those that are offline at present.
    #[inline]
    pub fn active(&self) -> &'a CpuSet {
        self.active
    }

    /// Task on the CPU, or [`TaskId::IDLE`].
    #[inline]
    pub fn curr(&self, cpu: CpuId) -> TaskId {
        self.cpus[cpu.index()].curr
    }

    /// Whether the CPU runs its idle task.
    #[inline]
    pub fn curr_is_idle(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].curr.is_idle()
    }

    /// Whether the CPU counts as idle only because its stopper took the running task off and has not picked since.
    #[inline]
    pub fn stopper_ran(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].stopper_ran
    }

    /// Whether a queued wakeup is on its way to the CPU (`ttwu_pending`), or a launcher that is no task runs there. So it is for a CPU that
    /// is offline.
    #[inline]
    pub fn ttwu_pending(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].ttwu_pending != 0 || self.launcher == Some(cpu)
    }

    /// Woken tasks on their way to the CPU: it will queue them itself. One more than that on a CPU that is offline.
    #[inline]
    pub fn wakeups_on_their_way(&self, cpu: CpuId) -> usize {
        self.cpus[cpu.index()].ttwu_pending as usize
    }

    /// CPU of the launcher, which is no task, while it creates one.
    #[inline]
    pub fn launcher(&self) -> Option<CpuId> {
        self.launcher
    }

    /// Pending request to reschedule the CPU.
    #[inline]
    pub fn need_resched(&self, cpu: CpuId) -> NeedResched {
        self.cpus[cpu.index()].need_resched
    }

    /// Whether the CPU's ordinary tick is stopped (it is idle and has been for at least one tick).
    #[inline]
    pub fn tick_stopped(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].tick_stopped
    }

    /// A scheduler wants another speed of the CPU while its queue stays as it is: the governor is asked once the scheduler's call is over
    /// (`cpufreq_update_util`). Queues that change need no such call.
    pub fn ask_governor(&mut self, cpu: CpuId) {
        if let Some(clocks) = &mut self.clocks
            && !std::mem::replace(&mut clocks.asked[cpu.index()], true)
        {
            self.queue.push(self.now_ns, Class::Background, cpu, 0, ASKED);
        }
    }

    /// Relative compute capacity of the CPU, 1024 = the machine's biggest.
    #[inline]
    pub fn capacity(&self, cpu: CpuId) -> u32 {
        self.cpus[cpu.index()].capacity
    }

    /// Frequency of the CPU, 1024 = its highest (`arch_scale_freq_capacity`); 1024 where frequencies are not simulated.
    #[must_use]
    pub fn frequency_scale(&self, cpu: CpuId) -> u32 {
        self.clocks.as_ref().map_or(CAPACITY_SCALE, |clocks| clocks.frequency_scale(cpu))
    }

    /// Time for an idle CPU to leave its idle state.
    fn idle_exit_ns(&self, cpu: CpuId) -> u64 {
        let stated = self.clocks.as_ref().and_then(|clocks| clocks.idle_exit_ns(cpu));
        stated.unwrap_or(self.machine.costs().idle_exit_ns)
    }

    /// Number of living threads of a process.
    #[inline]
    pub fn process_threads(&self, process: u32) -> u32 {
        self.process_threads[process as usize]
    }

    /// The task groups: the control groups that exist when the run begins. No group comes or goes later.
    #[inline]
    pub fn task_groups(&self) -> &[TaskGroup] {
        &self.task_groups
    }

    /// Number of applications: sessions (`setsid`) that have been opened for tasks when the run begins.
    #[inline]
    pub fn application_count(&self) -> usize {
        self.application_count
    }

    /// Requests a full reschedule (`resched_curr`): at the end of this event on this CPU, after an interrupt's delay
    /// on another.
    pub fn resched_full(&mut self, cpu: CpuId) {
        let this_cpu = self.this_cpu;
        let state = &mut self.cpus[cpu.index()];
        if state.need_resched == NeedResched::Full {
            return;
        }
        state.need_resched = NeedResched::Full;
        if cpu == this_cpu {
            self.list_for_resched(cpu);
        } else {
            let delay = self.wakeup_so_far_ns() + self.ipi_delay(cpu);
            self.queue.push(self.now_ns + delay, Class::ReschedIpi, cpu, 0, 0);
        }
    }

    /// What the wakeup that is being made has taken so far; 0 if none is.
    #[inline]
    pub(crate) fn wakeup_so_far_ns(&self) -> u64 {
        let Some((waker, before_ns)) = self.waking_since else { return 0 };
        self.cpus[waker.index()].overhead_ns[OverheadKind::Wakeup as usize] - before_ns
    }

    /// Requests a lazy reschedule (`resched_curr_lazy`): at the CPU's next return to user mode. An idle CPU is
    /// rescheduled fully.
    pub fn resched_lazy(&mut self, cpu: CpuId) {
        if self.curr_is_idle(cpu) {
            self.resched_full(cpu);
            return;
        }
        let this_cpu = self.this_cpu;
        let state = &mut self.cpus[cpu.index()];
        if state.need_resched == NeedResched::No {
            state.need_resched = NeedResched::Lazy;
        }
        if cpu == this_cpu {
            self.list_for_resched(cpu);
        }
    }

    /// Adds the CPU to those that are rescheduled when the present event is over.
    pub(crate) fn list_for_resched(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        if !state.resched_listed {
            state.resched_listed = true;
            self.resched_list.push(cpu);
        }
    }

    /// Delay until an interrupt sent from this CPU makes `cpu` react, including its way out of idle. One that looks for work in a loop
    /// needs no interrupt: it sees the line that was written.
    pub(crate) fn ipi_delay(&self, cpu: CpuId) -> u64 {
        let (costs, relation) = (self.machine.costs(), self.machine.relation(self.this_cpu, cpu));
        match self.curr_is_idle(cpu) {
            true if self.now_ns < self.cpus[cpu.index()].polls_until_ns => costs.line_transfer_ns[relation],
            true => costs.ipi_ns[relation] + self.idle_exit_ns(cpu),
            false => costs.ipi_ns[relation],
        }
    }

    /// The CPU, as long as it is idle, looks for work in a loop for so long instead of sleeping (`cpu_spinwait` of FreeBSD's idle thread).
    pub fn poll_idle(&mut self, cpu: CpuId, for_ns: u64) {
        self.cpus[cpu.index()].polls_until_ns = self.now_ns.saturating_add(for_ns);
    }

    /// Asks for [`Scheduler::softirq`](crate::Scheduler::softirq) on the CPU when its present interrupt is over.
    pub fn raise_softirq(&mut self, cpu: CpuId) {
        self.cpus[cpu.index()].softirq_raised = true;
    }

    /// Sends an interrupt to an idle CPU that calls [`Scheduler::nohz_kick`](crate::Scheduler::nohz_kick) there.
    pub fn kick_nohz(&mut self, cpu: CpuId) {
        let at = self.now_ns + self.ipi_delay(cpu);
        self.queue.push(at, Class::NohzKick, cpu, self.class.to_bits(), 0);
    }

    /// Wakes the CPU's stopper thread: it preempts whatever runs there and calls
    /// [`Scheduler::stopper`](crate::Scheduler::stopper) with `payload`.
    pub fn queue_stopper(&mut self, cpu: CpuId, payload: u32) {
        let at = self.now_ns + if cpu == self.this_cpu { 0 } else { self.ipi_delay(cpu) };
        self.push_stopper(at, cpu, None, payload);
    }

    /// Wakes the stopper threads of two CPUs together (`stop_two_cpus`): when both have preempted what runs there,
    /// [`Scheduler::stopper`](crate::Scheduler::stopper) is called once, on the first.
    pub fn queue_two_stoppers(&mut self, cpu: CpuId, other: CpuId, payload: u32) {
        let delay = |cpu| if cpu == self.this_cpu { 0 } else { self.ipi_delay(cpu) };
        let at = self.now_ns + delay(cpu).max(delay(other));
        self.push_stopper(at, cpu, Some(other), payload);
    }

    /// The event has two numbers: the payload, and class path and second CPU in one.
    fn push_stopper(&mut self, at_ns: u64, cpu: CpuId, other: Option<CpuId>, payload: u32) {
        let other = other.map_or(0, |other| other.0 + 1);
        self.queue.push(at_ns, Class::Stopper, cpu, payload, self.class.to_bits() << 16 | other);
    }

    /// Calls [`Scheduler::timer`](crate::Scheduler::timer) on the CPU with `payload` after `delay_ns`, unless it is cancelled before.
    pub fn start_timer(&mut self, cpu: CpuId, delay_ns: u64, payload: u64) -> TimerId {
        let timer = self.timers.start(payload, self.class);
        self.queue.push(self.now_ns + delay_ns, Class::Policy, cpu, timer.place, timer.generation);
        timer
    }

    /// Cancels a timer. False if it has run out or was cancelled before.
    pub fn cancel_timer(&mut self, timer: TimerId) -> bool {
        self.timers.take(timer).is_some()
    }

    /// For a composite scheduler, before it calls one of its two: which of them is at work from now on. What that one starts
    /// (timers, stoppers, kicks) comes back with [`Core::addressee`].
    #[inline]
    pub fn enter_class(&mut self, level: Level) {
        self.class.enter(level);
    }

    /// For a composite scheduler, after that call.
    #[inline]
    pub fn leave_class(&mut self) {
        self.class.leave();
    }

    /// For a composite scheduler, in [`Scheduler::timer`](crate::Scheduler::timer), [`stopper`](crate::Scheduler::stopper) and
    /// [`nohz_kick`](crate::Scheduler::nohz_kick): which of its two started what has arrived. To be asked once.
    pub fn addressee(&mut self) -> Level {
        self.addressed.next()
    }

    /// Assigns a task to another CPU (`set_task_cpu`). The task must not be running and `cpu` must be allowed.
    pub fn set_task_cpu(&mut self, task: TaskId, cpu: CpuId, kind: MigrationKind) {
        let from = self.tasks[task.index()].cpu;
        if from == cpu {
            return;
        }
        if self.tasks[task.index()].state == State::Running || !self.may_run_on(task, cpu) {
            self.fail_command("set_task_cpu", task, cpu);
            return;
        }
        self.tasks[task.index()].cpu = cpu;
        self.restart_tick(cpu);
        self.emit(EventKind::Migrate { task, from, to: cpu, kind });
        if self.watched.moves {
            self.moves.push(Hook::SchedMigrateTask { task, from, to: cpu });
        }
    }

    /// Sets a task's policy. Nobody is told: for a class that is about to take tasks or leave them.
    pub fn set_policy(&mut self, task: TaskId, policy: Policy) {
        self.tasks[task.index()].policy = policy;
    }

    /// Charges a CPU with time spent in the kernel. Whatever runs there makes no progress for so long.
    #[inline]
    pub fn charge(&mut self, cpu: CpuId, duration_ns: u64, kind: OverheadKind) {
        let state = &mut self.cpus[cpu.index()];
        if !state.curr.is_idle() {
            state.stolen_ns += duration_ns;
        }
        state.overhead_ns[kind as usize] += duration_ns;
    }

    /// Time passes on the waker's CPU, in the name of what runs there, after a wakeup has queued its task: see [`Core::clock_task_ns`].
    #[inline]
    pub(crate) fn advance_clock_task(&mut self, duration_ns: u64) {
        let state = &mut self.cpus[self.this_cpu.index()];
        state.clock_task_ns = state.clock_task_ns.max(self.now_ns) + duration_ns;
    }

    /// Whether the CPU is occupied with a wakeup that it makes, and reschedules only afterwards.
    #[inline]
    pub(crate) fn is_waking(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].clock_task_ns > self.now_ns
    }

    /// Whether the CPU is on its way out of an idle state, at the end of which it reschedules.
    #[inline]
    pub(crate) fn is_leaving_idle(&self, cpu: CpuId) -> bool {
        self.curr_is_idle(cpu) && self.queue.slot_time_ns(Slot::Resched, cpu).is_some_and(|at_ns| at_ns > self.now_ns)
    }

    /// Lets the CPU reschedule when it has made its wakeups and, if it was idle, is out of its idle state.
    pub(crate) fn resched_after_wakeups(&mut self, cpu: CpuId) {
        let over_ns = self.cpus[cpu.index()].clock_task_ns;
        let at_ns = match self.queue.slot_time_ns(Slot::Resched, cpu) {
            Some(leaves_idle_ns) => over_ns.max(leaves_idle_ns),
            None if self.curr_is_idle(cpu) => over_ns + self.idle_exit_ns(cpu),
            None => over_ns,
        };
        self.queue.set(Slot::Resched, cpu, at_ns);
    }

    /// How long a CPU has been busy and idle so far, in ns, without the time offline.
    #[must_use]
    pub fn cpu_times_ns(&self, cpu: CpuId) -> (u64, u64) {
        let state = &self.cpus[cpu.index()];
        let since = self.now_ns - state.changed_ns;
        let busy = if state.curr.is_idle() { 0 } else { since };
        (state.busy_ns + busy, self.not_busy_ns(cpu) - self.offline_ns(cpu))
    }

    /// How long a CPU has not been busy so far, online and offline.
    fn not_busy_ns(&self, cpu: CpuId) -> u64 {
        let state = &self.cpus[cpu.index()];
        state.idle_ns + if state.curr.is_idle() { self.now_ns - state.changed_ns } else { 0 }
    }

    /// How long a CPU has been offline so far with nobody on it.
    pub(crate) fn offline_ns(&self, cpu: CpuId) -> u64 {
        let state = &self.cpus[cpu.index()];
        let present = state.idle_before_offline_ns.map_or(0, |before| self.not_busy_ns(cpu) - before);
        state.offline_ns + present
    }

    /// A CPU goes offline or comes online: accounts and the trace.
    pub(crate) fn account_hotplug(&mut self, cpu: CpuId, online: bool) {
        self.emit_on(cpu, EventKind::Hotplug { online });
        let (offline_ns, not_busy_ns) = (self.offline_ns(cpu), self.not_busy_ns(cpu));
        let state = &mut self.cpus[cpu.index()];
        state.offline_ns = offline_ns;
        state.idle_before_offline_ns = (!online).then_some(not_busy_ns);
        if let Some(clocks) = &mut self.clocks {
            clocks.plugged(self.now_ns, cpu, online);
        }
    }

    /// Up to when a CPU's running task has used it (`rq_clock_task`): now, or the end of a wakeup that it makes or that an
    /// interrupt makes on its CPU. An event has no length, so what a wakeup does to queues it does when it begins; the time
    /// until it is over is the running task's, and a task that it preempts leaves then. A task that blocks before leaves at once: the
    /// time is nevertheless its own, and the next one's begins after it.
    #[inline]
    pub fn clock_task_ns(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].clock_task_ns.max(self.now_ns)
    }

    /// Relation of two CPUs.
    #[inline]
    pub fn relation(&self, a: CpuId, b: CpuId) -> Relation {
        self.machine.relation(a, b)
    }

    /// Ends the run with an error: for a scheduler that finds its own state broken. The first error stays.
    pub fn fail(&mut self, message: String) {
        if self.error.is_none() {
            self.error =
                Some(SimulationError::Scheduler { time_ns: self.now_ns, cpu: self.this_cpu, event: "start", message });
        }
    }

    #[cold]
    fn fail_command(&mut self, command: &str, task: TaskId, cpu: CpuId) {
        let state = self.tasks[task.index()].state;
        self.fail(format!("{command}: task {} ({state:?}) cannot be moved to {cpu}", task.0));
    }
}
