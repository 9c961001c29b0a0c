//! Threads of the kernel itself, which run beside any workload: when they wake, how long they run, where.
//!
//! They are tasks to every policy: created before the workload's, woken from an interrupt of their CPU, placed, queued and balanced as
//! others are. They are none to whoever looks at the run: they have no program, the run does not wait for them, and events show that a CPU
//! runs one, as recordings of real kernels do ([`Core::emit_shown`]). What they took is told apart ([`BackgroundOutcome`]).
//!
//! Every thread draws from a stream of its own, so that what one does changes no other's times. Not modelled: what a thread does to
//! others when it has run (a worker that completes a request wakes nobody), threads of real-time classes. Interrupts are in
//! [`interrupts`](crate::interrupts).
//!
//! Source of the mechanism: Linux 7.2 `kernel/kthread.c`, `kernel/time/timer.c` (`TIMER_DEFERRABLE`), `kernel/time/timer_migration.c` (a busy CPU runs
//! what timers of idle ones need not run there; the hierarchy of its groups is LLC, node, machine here); of the numbers: the machine's background.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;
use warmcore_topology::{Background, CpuId, CpuSet, KernelThread, Machine, ThreadPlace, Wakes};
use warmcore_trace::{BackgroundOutcome, Event, EventKind, PrevState, TaskId};
use warmcore_workload::{Draws, Policy, ProgramId, TaskTemplateId, Workload};

use crate::core::Core;
use crate::engine::{Engine, Leave, Now};
use crate::event_queue::Class;
use crate::interrupts::Interrupts;
use crate::memory::Memory;
use crate::scheduler::{Scheduler, WakeFlags};
use crate::task::{Activity, State, Task, WaitReason};

/// Keeps these streams apart from others with the same seed; any odd constant does.
const STREAM: u64 = 0x6b74_6872_6561_6473;

/// A kernel thread of this machine: one of each CPU is as many of these.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// Which of the background's threads it is.
    pub thread: u32,
    /// Where it is when the run begins; for good if it is bound.
    pub cpu: CpuId,
    /// Its place among [`Visitors::sets`], if it may not run anywhere.
    set: Option<u32>,
    pub name: String,
}

impl Visitor {
    /// Whether it may run on any CPU.
    fn is_unbound(&self) -> bool {
        self.set.is_none()
    }
}

/// The kernel threads of a machine, and the sets of CPUs that they may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visitors {
    pub all: Vec<Visitor>,
    pub sets: Vec<CpuSet>,
}

impl Visitors {
    /// Those of a machine. Where those that are not bound begin, of the CPUs that are everybody's, the seed says.
    pub fn of(machine: &Machine, everywhere: &CpuSet, seed: u64) -> Self {
        let mut visitors = Self::default();
        let mut random = Pcg32::new(seed, STREAM);
        for (number, thread) in machine.background().threads.iter().enumerate() {
            match &thread.place {
                ThreadPlace::EachCpu => {
                    for cpu in machine.cpus() {
                        let name = format!("{}/{}", thread.name, machine.os_index(cpu));
                        let only = CpuSet::from_iter([cpu]);
                        visitors.add(machine, number, cpu, only, name);
                    }
                }
                ThreadPlace::AnyCpu => {
                    let Some(cpu) = everywhere.iter().nth(below(&mut random, everywhere.len())) else { continue };
                    visitors.add(machine, number, cpu, everywhere.clone(), thread.name.clone());
                }
                ThreadPlace::Cpus(list) => {
                    let set: CpuSet = list.iter().filter_map(|&os| machine.cpu_by_os_index(os)).collect();
                    let chosen = below(&mut random, set.len().max(1));
                    // Machines refuse backgrounds whose CPUs they do not have.
                    let Some(cpu) = set.iter().nth(chosen) else { continue };
                    visitors.add(machine, number, cpu, set, thread.name.clone());
                }
            }
        }
        visitors
    }

    fn add(&mut self, machine: &Machine, thread: usize, cpu: CpuId, set: CpuSet, name: String) {
        let set = (set != *machine.all_cpus()).then(|| {
            let known = self.sets.iter().position(|known| *known == set);
            known.unwrap_or_else(|| {
                self.sets.push(set);
                self.sets.len() - 1
            }) as u32
        });
        self.all.push(Visitor { thread: thread as u32, cpu, set, name });
    }
}

/// How far the wakeups that follow an exit have come for one thread.
#[derive(Clone, Copy, Default)]
struct Following {
    /// Which of them is next, counted from 1; 0 if no exit is left to follow.
    next: u32,
    /// Another task has exited meanwhile.
    again: bool,
}

/// What becomes of kernel threads in a run.
pub(crate) struct BackgroundState<'a> {
    background: &'a Background,
    pub visitors: &'a [Visitor],
    streams: Vec<Pcg32>,
    wakeups: Vec<u64>,
    /// By CPU: threads whose timers have run out and wait for the CPU to be busy.
    deferred: Vec<Vec<u32>>,
    following: Vec<Following>,
    /// The first of each of the background's threads that are woken after exits, and whether it is one for each CPU.
    after_exit: Vec<(u32, bool)>,
    pub interrupts: Interrupts<'a>,
    /// What belongs to a CPU that is offline and waits for it.
    pub parked: Vec<(CpuId, Parked)>,
}

/// Something that happens on one CPU only.
#[derive(Clone, Copy)]
pub(crate) enum Parked {
    /// A thread's timer.
    Thread(u32),
    Interrupt(u32),
}

impl<'a> BackgroundState<'a> {
    pub fn new(machine: &'a Machine, visitors: &'a [Visitor], seed: u64) -> Self {
        let stream = |index: usize| Pcg32::new(seed, STREAM.wrapping_add(index as u64 + 1));
        let cpus = if visitors.is_empty() { 0 } else { machine.cpu_count() };
        Self {
            background: machine.background(),
            visitors,
            streams: (0..visitors.len()).map(stream).collect(),
            wakeups: vec![0; visitors.len()],
            deferred: vec![Vec::new(); cpus],
            following: vec![Following::default(); visitors.len()],
            after_exit: after_exit(machine.background(), visitors),
            interrupts: Interrupts::of(machine, seed),
            parked: Vec::new(),
        }
    }

    fn thread(&self, index: usize) -> &'a KernelThread {
        &self.background.threads[self.visitors[index].thread as usize]
    }

    /// From one wakeup of a thread to the next, if there is one.
    fn draw_interval_ns(&mut self, index: usize) -> Option<u64> {
        let thread = self.thread(index);
        match &thread.wakes {
            Wakes::Intervals(values) if thread.after_exit => self.following[index].next_ns(values),
            wakes => Some(interval_ns(&mut self.streams[index], wakes)),
        }
    }

    /// From the beginning of the run to the first wakeup, if it waits for no exit.
    fn draw_first_ns(&mut self, index: usize) -> Option<u64> {
        let thread = self.thread(index);
        (!thread.after_exit).then(|| first_ns(&mut self.streams[index], &thread.wakes))
    }

    fn draw_run_ns(&mut self, index: usize) -> u64 {
        let values = &self.thread(index).run_ns;
        one_of(&mut self.streams[index], values)
    }

    /// What the threads took, those of one kind together, and then the interrupts.
    pub fn outcome(&self, tasks: &[Task]) -> Vec<BackgroundOutcome> {
        let outcome = |(number, thread): (usize, &KernelThread)| {
            let own = || (0..self.visitors.len()).filter(move |&index| self.visitors[index].thread as usize == number);
            BackgroundOutcome {
                name: thread.name.clone(),
                threads: own().count() as u32,
                wakeups: own().map(|index| self.wakeups[index]).sum(),
                cpu_time_ns: own().map(|index| tasks[index].cpu_time_ns).sum(),
                ..BackgroundOutcome::default()
            }
        };
        let threads = self.background.threads.iter().enumerate().map(outcome);
        threads.chain(self.interrupts.outcome()).collect()
    }
}

/// The first of each of the background's threads that are woken after exits, and whether it is one for each CPU.
fn after_exit(background: &Background, visitors: &[Visitor]) -> Vec<(u32, bool)> {
    let numbered = background.threads.iter().enumerate().filter(|(_, thread)| thread.after_exit);
    numbered
        .filter_map(|(number, thread)| {
            let first = visitors.iter().position(|visitor| visitor.thread as usize == number)?;
            Some((first as u32, thread.place == ThreadPlace::EachCpu))
        })
        .collect()
}

impl Following {
    /// From a wakeup to the one after it.
    fn next_ns(&mut self, intervals: &[u64]) -> Option<u64> {
        if let Some(&interval_ns) = intervals.get(self.next as usize) {
            self.next += 1;
            return Some(interval_ns);
        }
        self.next = 0;
        std::mem::take(&mut self.again).then(|| self.next_ns(intervals)).flatten()
    }
}

/// A number below a count, each as likely as the others but for less than one in a million.
pub(crate) fn below(random: &mut Pcg32, count: usize) -> usize {
    ((u64::from(random.next_u32()) * count as u64) >> 32) as usize
}

/// From one time that something comes to the next.
pub(crate) fn interval_ns(random: &mut Pcg32, wakes: &Wakes) -> u64 {
    match wakes {
        Wakes::Intervals(values) => one_of(random, values),
        Wakes::Random { mean_ns } => exponential(random, *mean_ns),
    }
}

/// From the beginning of the run to the first time: the rest of an interval that has begun some time before.
pub(crate) fn first_ns(random: &mut Pcg32, wakes: &Wakes) -> u64 {
    let interval_ns = interval_ns(random, wakes);
    match wakes {
        Wakes::Intervals(_) => ((u128::from(interval_ns) * u128::from(random.next_u32())) >> 32) as u64,
        // What is left of such an interval is distributed as the whole.
        Wakes::Random { .. } => interval_ns,
    }
}

/// One of at least one value, all equally likely.
pub(crate) fn one_of(random: &mut Pcg32, values: &[u64]) -> u64 {
    values[below(random, values.len())]
}

/// A time of an exponential distribution, at least 1 ns.
fn exponential(random: &mut Pcg32, mean_ns: u64) -> u64 {
    let uniform = (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
    ((-libm::log(uniform) * mean_ns as f64) as u64).max(1)
}

impl Core<'_> {
    /// Whether a task is a thread of the kernel itself and none of the workload's.
    #[inline]
    pub fn is_kernel_thread(&self, task: TaskId) -> bool {
        task.0 < self.kernel_threads
    }

    /// The launchers that exist as tasks.
    pub fn launchers(&self) -> impl Iterator<Item = TaskId> + use<> {
        (self.kernel_threads..self.first_thread).map(TaskId)
    }

    /// Whether a task is none of the workload's: a thread of the kernel itself, or a launcher.
    #[inline]
    pub fn is_hidden(&self, task: TaskId) -> bool {
        task.0 < self.hidden
    }

    /// A task by the name that tells it from all others: its template's, with a number if there are several of it.
    pub fn task_name(&self, task: TaskId) -> String {
        let Some(state) = self.tasks.get(task.index()).filter(|_| !self.is_kernel_thread(task)) else {
            return self.comm(task).to_owned();
        };
        match self.templates.get(state.template.index()) {
            Some(template) if template.instances == 1 => template.name.clone(),
            Some(template) => format!("{}-{}", template.name, state.instance),
            None => format!("{}-{}", self.comm(task), state.instance),
        }
    }

    /// What a task calls itself (`comm`, which a kernel cuts to 15 bytes): a thread of the kernel as it is known, such as `kworker/3`, one of the
    /// workload as its template says, as threads of a guest do; all of a template have one name. The idle task is the `swapper`.
    pub fn comm(&self, task: TaskId) -> &str {
        let Some(state) = self.tasks.get(task.index()) else { return "swapper" };
        match (self.visitors.get(task.index()), self.templates.get(state.template.index())) {
            (Some(visitor), _) => visitor.name.as_str(),
            (None, Some(template)) => template.comm(),
            (None, None) => match self.thread_number(task) {
                Some(number) => &self.thread_names[number as usize],
                None => "launcher",
            },
        }
    }

    /// Emits an event as recordings of real kernels have it: the workload's tasks count from 0, and a CPU that runs a kernel thread runs
    /// somebody else ([`EventKind::Foreign`]).
    #[cold]
    pub(crate) fn emit_shown(&mut self, cpu: CpuId, kind: EventKind) {
        let foreign = match kind {
            EventKind::Switch { next, .. } if self.is_hidden(next) => {
                Some(Some(if self.thread_number(next).is_some() { self.thread_shown } else { next.0 }))
            }
            EventKind::Switch { prev, next, .. } if self.is_hidden(prev) && next.is_idle() => Some(None),
            _ => None,
        };
        let foreign = foreign.map(|thread| EventKind::Foreign { thread });
        for kind in self.shown(kind).into_iter().chain(foreign) {
            self.tracer.batch.push(Event { time_ns: self.now_ns, cpu, kind });
        }
    }

    /// An event of those who know of the workload alone, to whom kernel threads are nobody. `None` if nothing of it is left.
    fn shown(&self, kind: EventKind) -> Option<EventKind> {
        let first = self.hidden;
        let seen = |task: TaskId| match task.0.checked_sub(first) {
            _ if task.is_idle() => TaskId::IDLE,
            Some(number) => TaskId(number),
            None => TaskId::IDLE,
        };
        let own = |task: TaskId| Some(seen(task)).filter(|task| !task.is_idle());
        Some(match kind {
            EventKind::Switch { prev, prev_state, next } => {
                let (shown, next) = (seen(prev), seen(next));
                if shown.is_idle() && next.is_idle() {
                    return None;
                }
                let prev_state = if shown.is_idle() { PrevState::Idle } else { prev_state };
                EventKind::Switch { prev: shown, prev_state, next }
            }
            EventKind::Waking { task, target_cpu, waker } => {
                EventKind::Waking { task: own(task)?, target_cpu, waker: seen(waker) }
            }
            EventKind::Wakeup { task, reason } => EventKind::Wakeup { task: own(task)?, reason },
            EventKind::Migrate { task, from, to, kind } => EventKind::Migrate { task: own(task)?, from, to, kind },
            EventKind::Fork { parent, child } => EventKind::Fork { parent: seen(parent), child: own(child)? },
            EventKind::Exit { task } => EventKind::Exit { task: own(task)? },
            EventKind::Affinity { task, restriction } => EventKind::Affinity { task: own(task)?, restriction },
            EventKind::Counter { counter, task, value } => EventKind::Counter { counter, task: seen(task), value },
            EventKind::Phase { task, phase } => EventKind::Phase { task: own(task)?, phase },
            // A decision may be about nobody.
            EventKind::Decision { decision, task, value } => {
                let task = if task.is_idle() { task } else { own(task)? };
                EventKind::Decision { decision, task, value }
            }
            EventKind::Score { score, task, value } => EventKind::Score { score, task: own(task)?, value },
            EventKind::BalanceDetail { detail, task, value } => {
                EventKind::BalanceDetail { detail, task: own(task)?, value }
            }
            EventKind::Throttle { task, throttled } => EventKind::Throttle { task: own(task)?, throttled },
            EventKind::Overhead { .. } | EventKind::Foreign { .. } | EventKind::Hotplug { .. } => kind,
        })
    }
}

/// The template, process and application of kernel threads: one past those of the workload.
fn sleeping(workload: &Workload, visitor: &Visitor, thread: &KernelThread, restrictions: usize) -> Task {
    let template = workload.tasks.len() as u32;
    Task {
        state: State::Blocked,
        restriction: visitor.set.map_or(0, |set| restrictions as u32 + set),
        nice: thread.nice,
        policy: Policy::Normal,
        process: workload.processes.len() as u32,
        application: workload.applications.len() as u32,
        waiting_for: WaitReason::Time,
        kernel_thread: true,
        ..Task::new(TaskTemplateId(template), 0, ProgramId(0), visitor.cpu, 0, Draws::new(0, template, 0))
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Creates the kernel's own threads, asleep, and arms their timers, and those of interrupts. They have been there for long: policies hear of them as of new tasks,
    /// but none is queued before it wakes.
    pub(crate) fn create_background(&mut self) {
        self.arm_interrupts();
        for index in 0..self.background.visitors.len() {
            let task = TaskId(index as u32);
            let (visitor, thread) = (&self.background.visitors[index], self.background.thread(index));
            let state = sleeping(self.workload, visitor, thread, self.core.restrictions.len());
            self.core.process_threads[state.process as usize] += 1;
            self.core.tasks.push(state);
            if let Err(error) = self.memory.task_created(self.workload.tasks.len() as u32) {
                self.core.error.get_or_insert(error);
                return;
            }
            self.core.pages_of_new_task(task);
            self.core.this_cpu = visitor.cpu;
            self.scheduler.task_fork(&mut self.core, task, None);
            if let Some(delay_ns) = self.background.draw_first_ns(index) {
                self.arm_background(index, delay_ns);
            }
        }
    }

    /// A task of the workload has exited on a CPU: wakes what the kernel does about that later.
    #[inline]
    pub(crate) fn background_follows_exit(&mut self, cpu: CpuId) {
        for kind in 0..self.background.after_exit.len() {
            let (first, each) = self.background.after_exit[kind];
            let index = first as usize + if each { cpu.index() } else { 0 };
            match self.background.following[index].next {
                0 => {
                    let delay_ns = self.background.draw_interval_ns(index);
                    delay_ns.into_iter().for_each(|delay_ns| self.arm_background(index, delay_ns));
                }
                _ => self.background.following[index].again = true,
            }
        }
    }

    /// Has a thread's timer run out after a time, on the CPU where the thread is now.
    fn arm_background(&mut self, index: usize, delay_ns: u64) {
        let (cpu, thread) = (self.core.tasks[index].cpu, self.background.thread(index));
        let mut at_ns = self.core.now_ns + delay_ns;
        if thread.at_tick {
            at_ns = self.before_tick(index, at_ns, thread.mean_run_ns() / 2);
        }
        self.core.queue.push(at_ns, Class::Background, cpu, index as u32, 0);
    }

    /// The time nearest to `at_ns`, but not past, that lies half a turn before a tick of a CPU drawn for it.
    ///
    /// All CPUs of a kernel tick at the same instants, one handler after the other (`docs/spec/linux-fair.md` 1.11), so what a tick's timers
    /// have woken is there when another CPU's tick looks round. Simulated CPUs tick apart; there a short turn would hardly ever lie across a tick.
    fn before_tick(&mut self, index: usize, at_ns: u64, half_turn_ns: u64) -> u64 {
        let drawn = below(&mut self.background.streams[index], self.core.cpus.len());
        let (now_ns, tick_ns) = (self.core.now_ns, self.core.tick_ns);
        let phase_ns = (self.core.cpus[drawn].tick_phase_ns + tick_ns - half_turn_ns % tick_ns) % tick_ns;
        let nearest_ns = phase_ns + (at_ns + tick_ns / 2).saturating_sub(phase_ns) / tick_ns * tick_ns;
        if nearest_ns > now_ns { nearest_ns } else { nearest_ns + tick_ns }
    }

    /// A thread's timer has run out on a CPU. False if nothing comes of it now.
    pub(crate) fn visit(&mut self, index: u32, cpu: CpuId) -> bool {
        if self.core.everywhere != 0 && self.core.allowed(TaskId(index)).len() == 1 {
            let own = self.core.tasks[index as usize].cpu;
            if !self.core.active.contains(own) {
                self.background.parked.push((own, Parked::Thread(index)));
                return false;
            }
        }
        if self.background.thread(index as usize).deferrable && self.core.curr_is_idle(cpu) {
            self.background.deferred[cpu.index()].push(index);
            self.core.cpus[cpu.index()].timers_deferred = true;
            return false;
        }
        if self.background.visitors[index as usize].is_unbound() && self.core.curr_is_idle(cpu) {
            self.go_to(self.busy_cpu_near(cpu).unwrap_or(cpu));
        }
        self.wake_background(index as usize);
        true
    }

    /// The CPU that runs the timers of an idle one which need not run there: a busy one of its LLC, of its node, or any.
    fn busy_cpu_near(&self, cpu: CpuId) -> Option<CpuId> {
        let machine = self.core.machine;
        let near =
            [machine.cpus_of_llc(machine.llc_of(cpu)), machine.cpus_of_node(machine.node_of(cpu)), machine.all_cpus()];
        near.into_iter().find_map(|cpus| cpus.iter().find(|&cpu| !self.core.curr_is_idle(cpu)))
    }

    /// The tick of a busy CPU runs the timers that had waited for it.
    #[cold]
    pub(crate) fn run_deferred_timers(&mut self, cpu: CpuId) {
        self.core.cpus[cpu.index()].timers_deferred = false;
        let mut deferred = std::mem::take(&mut self.background.deferred[cpu.index()]);
        for index in deferred.drain(..) {
            self.wake_background(index as usize);
        }
        self.background.deferred[cpu.index()] = deferred;
    }

    fn wake_background(&mut self, index: usize) {
        self.background.wakeups[index] += 1;
        let run_ns = self.background.draw_run_ns(index);
        let interval_ns = self.background.draw_interval_ns(index);
        let (task, cpu) = (TaskId(index as u32), self.core.tasks[index].cpu);
        match self.core.tasks[index].state {
            State::Blocked => {
                let state = &mut self.core.tasks[index];
                (state.activity, state.remaining_ns) = (Activity::CpuTime, run_ns);
                state.waiting_for = WaitReason::None;
                self.wake(task, WakeFlags::default());
            }
            // More to do for one that has not finished yet.
            State::Running => {
                self.settle(cpu);
                self.core.tasks[index].remaining_ns += run_ns;
                self.core.tasks[index].activity = Activity::CpuTime;
                self.arm_progress(cpu);
            }
            _ => self.core.tasks[index].remaining_ns += run_ns,
        }
        if let Some(interval_ns) = interval_ns {
            self.arm_background(index, interval_ns);
        }
    }

    /// Timers that wait for a CPU to be busy which goes offline run out on another one (`timers_dead_cpu`).
    pub(crate) fn rehome_deferred(&mut self, from: CpuId, to: CpuId) {
        self.core.cpus[from.index()].timers_deferred = false;
        let Some(deferred) = self.background.deferred.get_mut(from.index()) else { return };
        for index in std::mem::take(deferred) {
            self.core.queue.push(self.core.now_ns, Class::Background, to, index, 0);
        }
    }

    /// A CPU is online again: what belongs to it goes on, as if its last time were now.
    pub(crate) fn resume_parked(&mut self, cpu: CpuId) {
        for (own, parked) in std::mem::take(&mut self.background.parked) {
            match parked {
                other if own != cpu => self.background.parked.push((own, other)),
                Parked::Thread(index) => {
                    let interval_ns = self.background.draw_interval_ns(index as usize);
                    interval_ns.into_iter().for_each(|interval_ns| self.arm_background(index as usize, interval_ns));
                }
                Parked::Interrupt(index) => self.arm_interrupt(index, cpu),
            }
        }
    }

    /// A kernel thread has done what there was to do.
    #[cold]
    pub(crate) fn background_done(&mut self, task: TaskId) -> Now {
        let state = &mut self.core.tasks[task.index()];
        state.waiting_for = WaitReason::Time;
        Now::Leaves(Leave::Blocked)
    }
}
