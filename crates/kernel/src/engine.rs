//! The engine: takes events in order, keeps CPUs and tasks, and calls the scheduler in the kernel's order.
//!
//! One simulation is one thread. It reads no clock and draws no random numbers but those of its seed. What tasks do is
//! in [`interpreter`](crate::interpreter); what a scheduler may do is in [`core`](crate::core).
//!
//! Not modelled: contention for run-queue locks, hypervisor steal. A context
//! switch, a tick or a wakeup costs the machine's fixed time. Wakeup latency is what the kernel's tracepoints show, from
//! `sched_waking` to `sched_switch`: the wakeup takes its time, an idle CPU leaves its idle state, and only then the CPU
//! switches; to another CPU the interrupt's way comes on top.

use std::collections::{BTreeMap, VecDeque};

use warmcore_topology::CpuId;
use warmcore_trace::{DecisionTable, EventKind, Histogram, OverheadKind, PrevState, Sink, TaskId};
use warmcore_workload::Workload;

use crate::actions::{Actions, LOOK};
use crate::analytic_memory::AnalyticMemory;
use crate::background::BackgroundState;
use crate::cache_groups::CacheGroups;
use crate::clamps::Clamps;
use crate::clocks::{ASKED, Clocks, Governor, TRANSITION};
use crate::core::{Core, Cpu, NeedResched};
use crate::counters::Readings;
use crate::error::SimulationError;
use crate::event_queue::{Class, EventQueue, Queued, Slot, TIME_LIMIT_NS};
use crate::exact_memory::ExactMemory;
use crate::hint_faults::HomeChange;
use crate::hooks::{Hook, SOFTIRQ_EXIT, Watched};
use crate::interrupts::INTERRUPT;
use crate::launching::Launcher;
use crate::lifecycle::LeftWakeup;
use crate::memory::{ConstantMemory, Memory};
use crate::memory_samples::MemorySamples;
use crate::pages::Pages;
use crate::scheduler::{Scheduler, WakeFlags};
use crate::scheduler_threads::{CHANGES, SchedulerThreads, WAKES};
use crate::score_samples::ScoreSamples;
use crate::setup::Setup;
use crate::shared_cores::SharedCores;
use crate::sync::Objects;
use crate::task::State;
use crate::task_groups::TaskGroup;
use crate::telling::Tracer;
use crate::tickless::REMOTE_TICK_NS;
use crate::timers::{ClassPath, TimerId, Timers};
use warmcore_options::MemoryChoice;
use warmcore_trace::{End, Outcome};

/// How often the stop flag is looked at, in engine events.
const STOP_CHECK_INTERVAL: u64 = 1 << 14;

/// Why [`Engine::schedule`] is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// The running task stays runnable.
    Preempted,
    Yielded,
    /// It blocks; its wait reason is set.
    Blocked,
    /// It ends.
    Exited,
    /// Its CPU is no longer allowed.
    Displaced,
}

/// What the running task does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Now {
    /// Something that takes time: `activity` and `remaining_ns` are set.
    Busy,
    /// It has to leave the CPU.
    Leaves(Leave),
    /// A reschedule is pending and takes effect before its next step.
    ReschedPending,
}

pub(crate) struct Engine<'a, S, M> {
    pub core: Core<'a>,
    pub scheduler: S,
    pub setup: &'a Setup<'a>,
    pub workload: &'a Workload,
    pub memory: M,
    /// By CPU the other hardware threads of its core.
    pub siblings: Vec<Vec<CpuId>>,
    /// By CPU the wakeups that others have left to it and it has not made yet (its `call_single_queue`).
    pub left_wakeups: Vec<VecDeque<LeftWakeup>>,
    /// CPUs to settle, between two questions to the memory.
    due: Vec<CpuId>,
    /// What each CPU's memory counters were when they were last sampled.
    pub samples: MemorySamples,
    /// Samples of scores, where they are wanted.
    pub scores: Option<ScoreSamples>,
    pub objects: Objects,
    pub cache_groups: CacheGroups<'a>,
    /// Threads of the kernel itself, and interrupts.
    pub background: BackgroundState<'a>,
    /// Launchers, where they are tasks.
    pub launchers: Vec<Launcher>,
    pub scheduler_threads: SchedulerThreads,
    pub actions: Actions,
    /// What the kernel logs about masks and CPUs that go offline.
    pub kernel_log: Vec<String>,
    pub recorders: Vec<Histogram>,
    /// When the first sample of each began; `u64::MAX` before there is one.
    pub recorders_since_ns: Vec<u64>,
    /// Tasks created so far from each template.
    pub instances: Vec<u32>,
    /// Tasks not dead, and start entries not yet executed.
    pub alive: usize,
    /// What can still make something happen: runnable tasks that do not wait for others, armed timers, starts,
    /// releases. When it is 0 and tasks are alive, they are deadlocked.
    pub live: usize,
    pub ended: Option<End>,
    /// What the accounts were at the end of the warm-up, once it is over.
    pub warmed_up: Option<Box<Outcome>>,
    pub engine_events: u64,
    /// The running task made a system call during this event: pending lazy reschedules take effect.
    pub entered_kernel: bool,
}

/// Runs a workload on a machine under a scheduler.
///
/// # Errors
/// See [`SimulationError`]. Events up to the error have been handed to the sink.
pub fn run<'a, S: Scheduler>(
    setup: &'a Setup<'a>,
    scheduler: S,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    match setup.options.memory {
        MemoryChoice::None if SharedCores::applies(setup.machine) || setup.kernel.governor != Governor::Fixed => {
            run_with(setup, scheduler, SharedCores::new(setup.machine), sink)
        }
        MemoryChoice::None => run_with(setup, scheduler, ConstantMemory::new(setup.machine), sink),
        MemoryChoice::Analytic => {
            let memory = AnalyticMemory::new(setup)?;
            run_with(setup, scheduler, memory, sink)
        }
        exact => {
            let memory = ExactMemory::new(setup, exact)?;
            run_with(setup, scheduler, memory, sink)
        }
    }
}

pub(crate) fn run_with<'a, S: Scheduler, M: Memory>(
    setup: &'a Setup<'a>,
    scheduler: S,
    memory: M,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let mut engine = Engine::new(setup, scheduler, memory, sink);
    let result = engine.run();
    engine.core.tracer.flush()?;
    result?;
    Ok(engine.outcome())
}

impl<'a, S: Scheduler, M: Memory> Engine<'a, S, M> {
    fn new(setup: &'a Setup<'a>, scheduler: S, memory: M, sink: Option<&'a mut dyn Sink>) -> Self {
        let parameters = setup.kernel;
        let traced = sink.is_some();
        let launchers = Launcher::all(setup, scheduler.looks_at_parents());
        let kernel_threads = setup.visitors.all.len() as u32;
        let first_thread = kernel_threads + launchers.len() as u32;
        let thread_names: Vec<String> = scheduler.threads().iter().map(|thread| thread.name.clone()).collect();
        let hidden = first_thread + thread_names.len() as u32;
        let own_processes = usize::from(hidden > 0) + usize::from(!thread_names.is_empty());
        let core = Core {
            now_ns: 0,
            this_cpu: CpuId(0),
            machine: setup.machine,
            parameters,
            tick_ns: parameters.tick_ns(),
            cpus: Cpu::all(setup, &parameters),
            tasks: Vec::with_capacity(setup.starts.len()),
            restrictions: &setup.restrictions,
            visitors: &setup.visitors.all,
            visitor_sets: &setup.visitors.sets,
            kernel_threads,
            first_thread,
            thread_names,
            thread_shown: setup.hidden_tasks(),
            thread_sets: &setup.thread_sets,
            active: setup.machine.all_cpus(),
            everywhere: 0,
            templates: &setup.workload.tasks,
            hidden,
            queue: EventQueue::new(setup.machine.cpu_count()),
            tracer: Tracer::new(sink),
            decisions: DecisionTable::default(),
            balance_details: setup.options.balance_details,
            placement: None,
            group_counters: BTreeMap::new(),
            resched_list: Vec::new(),
            error: None,
            timers: Timers::default(),
            class: ClassPath::default(),
            addressed: ClassPath::default(),
            process_threads: vec![0; setup.workload.processes.len() + own_processes],
            task_groups: TaskGroup::all(setup),
            groups: &setup.workload.groups,
            application_count: setup.workload.applications.len(),
            pages: (setup.machine.node_count() > 1 || scheduler.reads_resident_pages())
                .then(|| Pages::new(setup.workload, setup.machine))
                .flatten(),
            touches: Vec::new(),
            home_changes: Vec::new(),
            memory_modelled: M::MODELLED,
            readings: Readings::default(),
            recordable_sets: memory.recordable_sets(),
            launcher: None,
            distributed: setup.distributed.clone(),
            waking_since: None,
            clocks: Clocks::new(setup.machine, &parameters),
            clamps: Clamps::new(setup.workload, setup.machine.cpu_count()),
            watched: Watched::default(),
            moves: Vec::new(),
        };
        Self {
            core,
            scheduler,
            setup,
            workload: setup.workload,
            memory,
            siblings: Cpu::siblings(setup.machine),
            left_wakeups: vec![VecDeque::new(); setup.machine.cpu_count()],
            due: Vec::new(),
            samples: MemorySamples::default(),
            scores: ScoreSamples::of(setup, traced),
            objects: Objects::new(setup.workload, setup.seed),
            cache_groups: CacheGroups::new(setup.workload),
            background: BackgroundState::new(setup.machine, &setup.visitors.all, setup.seed),
            launchers,
            scheduler_threads: SchedulerThreads::default(),
            actions: Actions::default(),
            kernel_log: Vec::new(),
            recorders: setup.workload.recorders.iter().map(|_| Histogram::default()).collect(),
            recorders_since_ns: vec![u64::MAX; setup.workload.recorders.len()],
            instances: vec![0; setup.workload.tasks.len()],
            alive: setup.starts.len(),
            live: setup.starts.len(),
            ended: None,
            warmed_up: None,
            engine_events: 0,
            entered_kernel: false,
        }
    }

    fn run(&mut self) -> Result<(), SimulationError> {
        self.scheduler.init(&mut self.core);
        self.begin_live_counters();
        self.start_clocks();
        if let Some(spec) = self.core.readings.history {
            self.memory.record_sets(spec);
        }
        self.create_background();
        self.create_launchers();
        self.create_scheduler_threads();
        for cpu in self.core.machine.cpus() {
            self.scheduler.enter_idle(&mut self.core, cpu);
            self.scheduler.tick_stopped(&mut self.core, cpu);
        }
        self.core.this_cpu = CpuId(0);
        self.scheduler.begin(&mut self.core);
        // As with all other places, what is passed before the run is not told.
        self.core.moves.clear();
        self.begin_live_counters();
        let appear = if self.setup.launchers_are_tasks { &[][..] } else { &self.setup.starts };
        for (index, start) in appear.iter().enumerate() {
            let cpu = self.setup.template_cpus[start.template as usize];
            self.core.queue.push(start.time_ns, Class::Start, cpu, index as u32, 0);
        }
        self.queue_actions();
        // The clock's own limit ends any run that nothing else ends.
        let limits = [(self.workload.duration_ns, 0), (self.setup.options.max_time_ns, 1), (Some(TIME_LIMIT_NS), 1)];
        for (time_ns, payload) in limits {
            if let Some(time_ns) = time_ns {
                self.core.queue.push(time_ns, Class::End, CpuId(0), payload, 0);
            }
        }
        if let Some(warm_up_ns) = self.workload.warm_up_ns.filter(|ns| *ns > 0) {
            self.core.queue.push(warm_up_ns, Class::Window, CpuId(0), 0, 0);
        }
        while self.ended.is_none() {
            let Some(event) = self.core.queue.pop() else {
                return Err(self.deadlock());
            };
            self.step(event)?;
        }
        self.finish()
    }

    fn step(&mut self, event: Queued) -> Result<(), SimulationError> {
        if M::AFTERWARDS && event.time_ns() != self.core.now_ns {
            self.core.now_ns = event.time_ns();
            self.settle_all();
        }
        self.core.now_ns = event.time_ns();
        self.go_to(event.cpu());
        if !self.handle(event) {
            return Ok(());
        }
        self.engine_events += 1;
        self.after_event(event.class().is_of_the_cpu_itself());
        self.pass_moves();
        if M::SPEEDS_VARY {
            self.ask_memory();
        }
        if self.core.tracer.full() {
            self.core.tracer.flush()?;
        }
        if let Some(error) = self.core.error.take() {
            return Err(error.during(event.class()));
        }
        if self.live == 0 && self.ended.is_none() {
            if self.alive == 0 {
                self.ended = Some(End::AllExited);
            } else {
                return Err(self.deadlock());
            }
        }
        if self.engine_events.is_multiple_of(STOP_CHECK_INTERVAL) {
            self.check_stop()?;
            if self.setup.check_invariants {
                self.check_queues()?;
            }
        }
        Ok(())
    }

    /// Acts on an event. False if it was overtaken.
    fn handle(&mut self, event: Queued) -> bool {
        let cpu = event.cpu();
        match event.class() {
            Class::Progress => {
                self.entered_kernel = false;
                self.progress(cpu);
                return true;
            }
            Class::Timer => {
                let task = TaskId(event.payload);
                if self.core.tasks[task.index()].timer_generation != event.generation {
                    return false;
                }
                self.live -= 1;
                let sleeper = &mut self.core.tasks[task.index()];
                sleeper.slept_ns += self.core.now_ns - sleeper.slept_from_ns;
                self.wake(task, WakeFlags::default());
            }
            Class::WakeIpi => self.take_left_wakeups(cpu),
            Class::ReschedIpi => {
                if self.core.cpus[cpu.index()].need_resched == NeedResched::No {
                    return false;
                }
            }
            Class::Stopper => {
                let other = (event.generation & 0xffff).checked_sub(1).map(CpuId);
                self.core.addressed = ClassPath::from_bits(event.generation >> 16);
                self.stopper(cpu, other, event.payload);
            }
            Class::HrTick => self.hrtick(cpu),
            Class::Tick => self.tick(cpu),
            Class::NohzKick => {
                if self.core.curr_is_idle(cpu) {
                    self.core.addressed = ClassPath::from_bits(event.payload);
                    self.scheduler.nohz_kick(&mut self.core, cpu);
                }
            }
            Class::Policy => {
                let timer = TimerId { place: event.payload, generation: event.generation };
                let Some((payload, class)) = self.core.timers.take(timer) else { return false };
                self.core.addressed = class;
                if self.core.readings.is_live {
                    self.read_live_counters_of_all();
                }
                self.scheduler.timer(&mut self.core, cpu, payload);
                self.begin_live_counters();
            }
            Class::Background if event.generation == TRANSITION => self.frequency_reached(event.payload),
            Class::Background if event.generation == ASKED => self.asked_for(cpu),
            Class::Background if event.generation == INTERRUPT => self.interrupt(event.payload, cpu),
            Class::Background if event.generation == WAKES => {
                if !self.wake_scheduler_thread(event.payload) {
                    return false;
                }
            }
            Class::Background if event.generation == CHANGES => self.change_scheduler_thread(event.payload),
            Class::Background if event.generation == SOFTIRQ_EXIT => {
                self.scheduler.hook(&mut self.core, cpu, Hook::SoftirqExit { vector: event.payload });
            }
            Class::Background => {
                if !self.visit(event.payload, cpu) {
                    return false;
                }
            }
            Class::Start if self.setup.launchers_are_tasks => self.wake_launcher(event.payload),
            Class::Start => self.start(event.payload),
            Class::Release => self.release(TaskId(event.payload)),
            Class::Action if event.generation == LOOK => self.look(event.payload),
            Class::Action => self.act(event.payload),
            Class::End => self.ended = Some(if event.payload == 0 { End::Stopped } else { End::TimeLimit }),
            Class::Window => {
                self.open_window();
                return false;
            }
        }
        self.entered_kernel = true;
        true
    }

    /// Reschedules what this event asked for: interrupt return of this CPU, and CPUs listed by commands.
    /// A timer of this CPU or what others do about it (`of_itself`) does not shorten its way out of an idle state; an interrupt that another CPU
    /// sent arrives when it is out.
    fn after_event(&mut self, of_itself: bool) {
        let this_cpu = self.core.this_cpu;
        if self.entered_kernel && self.core.cpus[this_cpu.index()].need_resched != NeedResched::No {
            self.core.list_for_resched(this_cpu);
        }
        while let Some(cpu) = self.core.resched_list.pop() {
            self.core.cpus[cpu.index()].resched_listed = false;
            let pending = self.core.cpus[cpu.index()].need_resched;
            let takes_effect = match pending {
                NeedResched::No => false,
                NeedResched::Lazy => self.entered_kernel,
                NeedResched::Full => true,
            };
            if takes_effect && self.ended.is_none() && self.core.may_preempt(cpu) {
                if self.core.stopper_ran(cpu) {
                    self.schedule(cpu, Leave::Preempted);
                } else if self.core.is_waking(cpu) {
                    self.core.resched_after_wakeups(cpu);
                } else if !(of_itself && cpu == this_cpu && self.core.is_leaving_idle(cpu)) {
                    self.schedule(cpu, Leave::Preempted);
                }
            }
        }
    }

    /// Puts speeds into force that changed because of others, and lets the memory catch up if it is time.
    fn ask_memory(&mut self) {
        let now_ns = self.core.now_ns;
        if !self.core.home_changes.is_empty() {
            self.tell_homes();
        }
        if now_ns >= self.memory.due_ns() {
            let mut due = std::mem::take(&mut self.due);
            self.memory.due_cpus(now_ns, &mut due);
            for &cpu in &due {
                self.settle(cpu);
            }
            self.memory.refresh(now_ns);
            self.due = due;
        }
        while let Some(cpu) = self.memory.take_changed() {
            // What is not under way has its speed set when it starts.
            if self.core.queue.slot_time_ns(Slot::Progress, cpu).is_some() {
                self.settle(cpu);
                self.arm_progress(cpu);
            }
        }
    }

    /// Tells the memory where pages are now that have come to other nodes, or have been touched first. Speeds follow when the CPUs
    /// concerned are reviewed next.
    #[inline(never)]
    pub(crate) fn tell_homes(&mut self) {
        let Some(pages) = &self.core.pages else { return };
        for HomeChange { task, region, mut classes } in self.core.home_changes.drain(..) {
            if pages.is_private(region) {
                self.memory.set_home(task, None, pages.private_shares(task.index()));
                continue;
            }
            while classes != 0 {
                self.memory.set_home(task, Some(classes.trailing_zeros()), pages.shares(region));
                classes &= classes - 1;
            }
        }
    }

    fn hrtick(&mut self, cpu: CpuId) {
        let curr = self.core.curr(cpu);
        if curr.is_idle() {
            return;
        }
        self.core.charge(cpu, self.core.machine.costs().hrtick_ns, OverheadKind::Tick);
        if M::MODELLED {
            self.read_history(cpu);
        }
        self.scheduler.hrtick(&mut self.core, cpu, curr);
    }

    fn tick(&mut self, cpu: CpuId) {
        let curr = self.core.curr(cpu);
        // Another CPU makes a remote one.
        if !std::mem::take(&mut self.core.cpus[cpu.index()].tickless) {
            self.core.charge(cpu, self.core.machine.costs().tick_ns, OverheadKind::Tick);
        }
        self.core.tell_overhead_at_tick(cpu);
        if M::MODELLED {
            self.sample_memory(cpu);
            self.read_counters(cpu);
        }
        self.core.promote_lazy_request(cpu);
        self.scheduler.tick(&mut self.core, cpu, (!curr.is_idle()).then_some(curr));
        self.pass_tick(cpu);
        if !curr.is_idle() {
            self.update_frequency(cpu);
        }
        if self.scores.is_some() {
            self.sample_scores(cpu);
        }
        if self.core.cpus[cpu.index()].timers_deferred && !curr.is_idle() {
            self.run_deferred_timers(cpu);
        }
        if std::mem::take(&mut self.core.cpus[cpu.index()].softirq_raised) {
            self.softirq(cpu);
        }
        let state = &mut self.core.cpus[cpu.index()];
        if curr.is_idle() && state.need_resched == NeedResched::No {
            state.tick_stopped = true;
            self.scheduler.tick_stopped(&mut self.core, cpu);
            return;
        }
        let tickless = self.stops_full_tick(cpu, curr);
        self.core.cpus[cpu.index()].tickless = tickless;
        let at = self.core.now_ns + if tickless { REMOTE_TICK_NS } else { self.core.tick_ns };
        self.core.queue.set(Slot::Tick, cpu, at);
    }

    /// The stopper thread, or two of them together: whatever runs is put back, the scheduler's work is done, the CPUs
    /// reschedule.
    fn stopper(&mut self, cpu: CpuId, other: Option<CpuId>, payload: u32) {
        let stopped = [Some(cpu), other].map(|cpu| cpu.filter(|&cpu| self.stop_running(cpu)));
        self.scheduler.stopper(&mut self.core, cpu, payload);
        for cpu in stopped.into_iter().flatten() {
            self.core.cpus[cpu.index()].need_resched = NeedResched::Full;
            self.core.list_for_resched(cpu);
        }
    }

    /// Puts the running task of a CPU back into its queue. Whether there was one.
    pub(crate) fn stop_running(&mut self, cpu: CpuId) -> bool {
        self.settle(cpu);
        let prev = self.core.curr(cpu);
        let cost = 2 * self.core.machine.costs().context_switch_ns;
        self.core.charge(cpu, cost, OverheadKind::Balance);
        if prev.is_idle() {
            return false;
        }
        if self.core.tasks[prev.index()].migration_disabled > 0 {
            self.pin(cpu, prev);
        }
        if let Some(lock) = self.core.tasks[prev.index()].kernel.spins_on {
            self.interrupt_spin(prev, lock, Leave::Displaced);
        }
        self.switched_out(cpu, prev);
        let now_ns = self.core.now_ns;
        self.core.tasks[prev.index()].state = State::Queued;
        self.scheduler.put_prev(&mut self.core, cpu, prev, true);
        self.scheduler.stopper_comes(&mut self.core, cpu, prev);
        self.core.emit_on(cpu, EventKind::Switch { prev, prev_state: PrevState::Runnable, next: TaskId::IDLE });
        let state = &mut self.core.cpus[cpu.index()];
        state.curr = TaskId::IDLE;
        self.core.queue.clear(Slot::Progress, cpu);
        state.busy_ns += now_ns - state.changed_ns;
        state.changed_ns = now_ns;
        state.stopper_ran = true;
        self.cpu_turned(cpu, false);
        self.count_switch(cpu);
        true
    }

    fn check_stop(&self) -> Result<(), SimulationError> {
        match &self.setup.stop {
            Some(stop) if stop.load(std::sync::atomic::Ordering::Relaxed) => {
                Err(SimulationError::Interrupted { time_ns: self.core.now_ns })
            }
            _ => Ok(()),
        }
    }
}
