//! A trial as a Perfetto trace, written while its events stream by.
//!
//! Switches and wakings are `CompactSched`, so the standard tables (`sched_slice`, `thread_state`) and queries work; migrations,
//! forks and first wakeups are plain ftrace events in the same bundles, one bundle per CPU. Runnable tasks per CPU and per LLC, the
//! run's own counters and what the scheduler ranks the first [`MOST_SCORED`] tasks by are counter tracks; decisions are instants with
//! task, CPU, LLC and value; the topology, which Perfetto's own `CpuInfo` cannot say, is JSON in one instant at the start, next to the
//! machine's file. Source: `protos/perfetto/trace` of Perfetto.
//!
//! Times are nanoseconds on the boot clock, which begins with the run; a `ClockSnapshot` says so. Threads and processes of a recording have
//! the numbers that they had, those beside the run's tasks too; else thread ids are task ids plus 1, because 0 is the idle thread. Priorities are 120 throughout: events do not tell nice values. No affinities, no kernel time.

mod interrupts;
mod pending;
mod proto;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    DecisionKind, Event, EventKind, OverheadKind, PrevState, RecordedThread, RunTables, Sink, TaskId, TaskInfo,
};

use crate::others::Others;
use crate::throttled::Throttled;
use pending::Pending;
use proto::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, FtraceEvent, FtraceEventBundle, Process, ProcessTree,
    SchedMigrateTask, SchedWakeupNew, SchedWaking, SystemInfo, TaskNewtask, Thread, TracePacket, TrackDescriptor,
    TrackEvent, Utsname,
};
pub use topology::topology_json;

/// The boot clock among Perfetto's built-in clocks.
const BOOTTIME: u32 = 6;
/// Entries of a CPU's bundle before it is written.
const BUNDLE: usize = 2000;
/// The kernel's priority of nice 0.
const PRIORITY: i32 = 120;
/// The kernel whose bits of `prev_state` are used.
const RELEASE: &str = "6.18.0";
/// `TASK_REPORT_MAX` of that kernel: the thread was preempted while runnable (`R+`).
const PREEMPTED: i64 = 0x100;
/// `TRACE_FLAG_HARDIRQ`: an interrupt made the event, and not the thread that ran.
const INTERRUPT: u32 = 8;
/// The kernel's flag of `clone` for a thread of the same process.
const CLONE_THREAD: u64 = 0x10000;
/// Name of the annotation with the machine as TOML, which `warmcore` reads back.
const MACHINE: &str = "machine.toml";
/// Tracks of our own.
const ROOT: u64 = 1;
const TOPOLOGY: u64 = 2;
const DECISIONS: u64 = 3;
const PHASES: u64 = 4;
const PER_CPU: u64 = 5;
const PER_LLC: u64 = 6;
const COUNTERS: u64 = 7;
const SCORES: u64 = 8;
const HOTPLUG: u64 = 9;
const INTERRUPTS: u64 = 10;
const FIRST_CPU: u64 = 1 << 32;
const FIRST_LLC: u64 = 2 << 32;
const FIRST_COUNTER: u64 = 3 << 32;
const FIRST_SCORE: u64 = 4 << 32;
const FIRST_INTERRUPT: u64 = 5 << 32;
/// Tasks whose scores have tracks: the interface has no use for thousands.
pub const MOST_SCORED: usize = 256;

/// Writes a trace. [`PerfettoWriter::finish`] writes what is left.
pub struct PerfettoWriter<'a, W> {
    out: W,
    tables: RunTables,
    tasks: &'a [TaskInfo],
    machine: &'a Machine,
    /// The first task of each process, whose thread id is the process id.
    leaders: BTreeMap<u32, TaskId>,
    /// Numbers of processes that a recording tells.
    processes: BTreeMap<u32, i32>,
    /// By thread id of such a task: the process that created it, if a task did.
    parents: BTreeMap<i32, i32>,
    pending: Vec<Pending>,
    running: Vec<TaskId>,
    others: Others,
    queued_on: Vec<Option<CpuId>>,
    throttled: Throttled,
    per_cpu: Vec<i64>,
    per_llc: Vec<i64>,
    counters: BTreeMap<(u32, u32), u64>,
    /// Tracks of scores and interrupts that were described.
    scored: BTreeSet<u64>,
    /// Tasks that were created or woken, until their wakeup.
    announced: BTreeSet<TaskId>,
    buffer: Vec<u8>,
}

impl<'a, W: Write> PerfettoWriter<'a, W> {
    /// Begins a trace of a run with these tasks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, machine: &'a Machine, tables: &RunTables, tasks: &'a [TaskInfo]) -> io::Result<Self> {
        let cpus = machine.cpu_count();
        let (mut leaders, mut processes) = (BTreeMap::new(), BTreeMap::new());
        for task in tasks {
            let recorded = tables.threads.get(task.id.index());
            let leads = recorded.is_some_and(|recorded| recorded.process == Some(recorded.thread));
            if leads || !leaders.contains_key(&task.process) {
                leaders.insert(task.process, task.id);
            }
            processes.extend(recorded.and_then(|recorded| Some((task.process, recorded.process?))));
        }
        let mut writer = Self {
            out,
            tables: tables.clone(),
            tasks,
            machine,
            leaders,
            processes,
            parents: BTreeMap::new(),
            pending: (0..cpus).map(|_| Pending::default()).collect(),
            running: vec![TaskId::IDLE; cpus],
            others: Others::new(cpus),
            queued_on: vec![None; tasks.len()],
            throttled: Throttled::default(),
            per_cpu: vec![0; cpus],
            per_llc: vec![0; machine.llc_count()],
            counters: BTreeMap::new(),
            scored: BTreeSet::new(),
            announced: BTreeSet::new(),
            buffer: Vec::new(),
        };
        writer.header(machine)?;
        Ok(writer)
    }

    fn header(&mut self, machine: &Machine) -> io::Result<()> {
        let clocks = vec![Clock { clock_id: Some(BOOTTIME), timestamp: Some(0) }];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(BOOTTIME as i32) };
        self.packet(TracePacket { clock_snapshot: Some(snapshot), sequence_flags: Some(1), ..TracePacket::default() })?;
        // Readers take the meaning of `prev_state` from the kernel's release.
        let utsname = Utsname {
            sysname: Some("Linux".into()),
            version: Some("written by warmcore".into()),
            release: Some(RELEASE.into()),
        };
        let system_info = Some(SystemInfo { utsname: Some(utsname) });
        self.packet(TracePacket { timestamp: Some(0), system_info, ..TracePacket::default() })?;
        self.track(ROOT, None, "warmcore", false)?;
        for (uuid, name) in [
            (TOPOLOGY, "topology"),
            (DECISIONS, "decisions of the scheduler"),
            (PHASES, "phases"),
            (PER_CPU, "runnable tasks per CPU"),
            (PER_LLC, "runnable tasks per LLC"),
            (COUNTERS, "counters"),
        ] {
            self.track(uuid, Some(ROOT), name, false)?;
        }
        if self.tables.hotplug {
            self.track(HOTPLUG, Some(ROOT), "CPUs that go offline and come online", false)?;
        }
        if !self.tables.scores.is_empty() {
            let most = self.tasks.len().min(MOST_SCORED);
            let which = if most < self.tasks.len() { format!(" (first {most} tasks)") } else { String::new() };
            self.track(SCORES, Some(ROOT), &format!("what tasks are ranked by{which}"), false)?;
        }
        for cpu in machine.cpus() {
            self.track(
                FIRST_CPU + u64::from(cpu.0),
                Some(PER_CPU),
                &format!("{} runnable", machine.os_cpu(cpu)),
                true,
            )?;
        }
        for llc in machine.llcs() {
            self.track(FIRST_LLC + u64::from(llc.0), Some(PER_LLC), &format!("{llc} runnable"), true)?;
        }
        let topology = text("topology", topology_json(machine));
        let file = text(MACHINE, warmcore_topology::to_toml(machine));
        self.instant(0, TOPOLOGY, "topology", vec![topology, file])
    }

    fn process_tree(&self) -> ProcessTree {
        let pid = |process: u32| {
            let leader = || self.leaders.get(&process).map(|leader| self.thread_id(*leader));
            self.processes.get(&process).copied().or_else(leader)
        };
        let process = |(process, leader): (&u32, &TaskId)| Process {
            pid: pid(*process),
            // Readers take a process with another parent than before for another process.
            ppid: Some(self.parents.get(&self.thread_id(*leader)).copied().unwrap_or(0)),
            cmdline: vec![self.tasks[leader.index()].application_name.clone()],
        };
        let thread = |task: &TaskInfo| Thread {
            tid: Some(self.thread_id(task.id)),
            name: Some(self.name(task.id).to_owned()),
            tgid: pid(task.process),
        };
        let beside = |thread: &RecordedThread| Thread {
            tid: Some(thread.thread),
            name: Some(thread.name.clone()),
            tgid: Some(thread.process.unwrap_or(thread.thread)),
        };
        ProcessTree {
            processes: self.leaders.iter().map(process).collect(),
            threads: self.tasks.iter().map(thread).chain(self.tables.foreign.iter().map(beside)).collect(),
        }
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(1), ..packet };
        self.buffer.clear();
        // Field 1 of `Trace`, length-delimited.
        prost::encoding::message::encode(1, &packet, &mut self.buffer);
        self.out.write_all(&self.buffer)
    }

    fn track(&mut self, uuid: u64, parent: Option<u64>, name: &str, counter: bool) -> io::Result<()> {
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: parent,
            counter: counter.then_some(CounterDescriptor { unit: Some(2) }),
        };
        self.packet(TracePacket { timestamp: Some(0), track_descriptor: Some(descriptor), ..TracePacket::default() })
    }

    fn instant(&mut self, time_ns: u64, track: u64, name: &str, annotations: Vec<DebugAnnotation>) -> io::Result<()> {
        let event = TrackEvent {
            debug_annotations: annotations,
            r#type: Some(3),
            track_uuid: Some(track),
            categories: vec!["warmcore".into()],
            name: Some(name.to_owned()),
            counter_value: None,
        };
        self.packet(TracePacket { timestamp: Some(time_ns), track_event: Some(event), ..TracePacket::default() })
    }

    fn counter(&mut self, time_ns: u64, track: u64, value: i64) -> io::Result<()> {
        let event = TrackEvent {
            r#type: Some(4),
            track_uuid: Some(track),
            counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.packet(TracePacket { timestamp: Some(time_ns), track_event: Some(event), ..TracePacket::default() })
    }

    /// A task's name; of a recording that of its thread.
    fn name(&self, task: TaskId) -> String {
        let recorded = self.tables.threads.get(task.index()).map(|thread| &thread.name).filter(|name| !name.is_empty());
        recorded.or(self.tasks.get(task.index()).map(|task| &task.name)).map_or("swapper", String::as_str).to_owned()
    }

    /// Thread id of a task: the recorded one, where there is one.
    fn thread_id(&self, task: TaskId) -> i32 {
        self.tables.threads.get(task.index()).map_or(task.0 as i32 + 1, |thread| thread.thread)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let (time_ns, cpu) = (event.time_ns, event.cpu);
        if cpu.index() >= self.pending.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the machine has no {cpu}")));
        }
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.waking_first(time_ns, cpu);
                self.switch(time_ns, cpu, prev_state, next);
                if !prev.is_idle() && matches!(prev_state, PrevState::Sleeping | PrevState::Dead) {
                    self.place(time_ns, prev, None)?;
                }
                if !next.is_idle() {
                    self.place(time_ns, next, Some(cpu))?;
                }
            }
            EventKind::Waking { task, target_cpu, waker } => {
                self.announced.insert(task);
                let (name, id, target) = (self.name(task), self.thread_id(task), self.number(target_cpu) as i32);
                // What runs next to the run's tasks may have made it.
                let is_interrupt = waker.is_idle() && self.others.thread_on(cpu).is_none();
                let pending = &mut self.pending[cpu.index()];
                let index = pending.name(id, &name);
                let compact = &mut pending.compact;
                compact.waking_timestamp.push(time_ns - pending.last_waking_ns);
                pending.last_waking_ns = time_ns;
                compact.waking_pid.push(id);
                compact.waking_target_cpu.push(target);
                compact.waking_prio.push(PRIORITY);
                compact.waking_comm_index.push(index);
                compact.waking_common_flags.push(if is_interrupt { INTERRUPT } else { 0 });
            }
            EventKind::Wakeup { task, .. } => {
                // Its waking, or its creation, says it already, if it was recorded.
                if !self.announced.remove(&task) {
                    self.wakeup(time_ns, cpu, task);
                }
                if self.queued_on.get(task.index()).copied().flatten().is_none() {
                    self.place(time_ns, task, Some(cpu))?;
                }
            }
            EventKind::Migrate { task, from, to, .. } => {
                let migrate = SchedMigrateTask {
                    comm: Some(self.name(task)),
                    pid: Some(self.thread_id(task)),
                    prio: Some(PRIORITY),
                    orig_cpu: Some(self.number(from) as i32),
                    dest_cpu: Some(self.number(to) as i32),
                };
                self.plain(time_ns, cpu, FtraceEvent { sched_migrate_task: Some(migrate), ..FtraceEvent::default() });
                if self.queued_on.get(task.index()).copied().flatten().is_some() {
                    self.place(time_ns, task, Some(to))?;
                }
            }
            EventKind::Fork { parent, child } => self.fork(time_ns, cpu, parent, child),
            EventKind::Decision { decision, task, value } => {
                let kind = self.tables.decisions.get(decision as usize);
                let mut annotations =
                    vec![number("cpu", self.number(cpu).into()), number("llc", self.machine.llc_of(cpu).0.into())];
                if !task.is_idle() {
                    annotations.push(text("task", self.name(task)));
                    annotations.push(number("tid", self.thread_id(task).into()));
                }
                annotations.push(number("value", kind.map_or(value, |kind| kind.value.for_users(value, self.machine))));
                annotations.extend(kind.map(|kind| text("value_is", kind.value.in_words().to_owned())));
                self.instant(time_ns, DECISIONS, &kind.map(DecisionKind::name).unwrap_or_default(), annotations)?;
            }
            EventKind::Phase { task, phase } => {
                let name = self.tables.phases.get(phase as usize).cloned().unwrap_or_default();
                let task = vec![text("task", self.name(task)), number("tid", self.thread_id(task).into())];
                self.instant(time_ns, PHASES, &name, task)?;
            }
            EventKind::Counter { counter, task, value } => self.sample(time_ns, cpu, counter, task, value)?,
            EventKind::Score { score, task, value } => self.score(time_ns, score, task, value)?,
            EventKind::Foreign { thread } => self.foreign(time_ns, cpu, thread),
            EventKind::Hotplug { online } => {
                let name =
                    format!("{} {}", self.machine.os_cpu(cpu), if online { "comes online" } else { "goes offline" });
                self.instant(time_ns, HOTPLUG, &name, vec![number("cpu", self.number(cpu).into())])?;
            }
            // What a simulator reports has no beginning.
            EventKind::Overhead { kind: OverheadKind::Interrupt, duration_ns } if !self.tables.threads.is_empty() => {
                self.interrupt(time_ns, cpu, duration_ns)?;
            }
            EventKind::Exit { .. }
            | EventKind::Affinity { .. }
            | EventKind::BalanceDetail { .. }
            | EventKind::Throttle { .. }
            | EventKind::Overhead { .. } => {}
        }
        let is_queued = |task: TaskId| self.queued_on.get(task.index()).is_some_and(Option::is_some);
        if let Some((task, cpu)) = self.throttled.push(event, is_queued) {
            self.place(time_ns, task, cpu)?;
        }
        self.others.push(event);
        if self.pending[cpu.index()].len() >= BUNDLE { self.flush(cpu) } else { Ok(()) }
    }

    /// Of equal times readers take the compact switch before the compact waking, but plain events before both. So wakings at
    /// the time of the switch that follows them become plain events.
    fn waking_first(&mut self, time_ns: u64, cpu: CpuId) {
        let mut wakings = Vec::new();
        let pending = &mut self.pending[cpu.index()];
        while pending.last_waking_ns == time_ns {
            let compact = &mut pending.compact;
            let Some(since_ns) = compact.waking_timestamp.pop() else { break };
            pending.last_waking_ns -= since_ns;
            let name =
                compact.waking_comm_index.pop().and_then(|index| compact.intern_table.get(index as usize).cloned());
            let waking = SchedWaking {
                comm: name,
                pid: compact.waking_pid.pop(),
                prio: compact.waking_prio.pop(),
                success: Some(1),
                target_cpu: compact.waking_target_cpu.pop(),
            };
            let common_flags = compact.waking_common_flags.pop();
            wakings.push(FtraceEvent { common_flags, sched_waking: Some(waking), ..FtraceEvent::default() });
        }
        for waking in wakings.into_iter().rev() {
            self.plain(time_ns, cpu, waking);
        }
    }

    fn switch(&mut self, time_ns: u64, cpu: CpuId, prev_state: PrevState, next: TaskId) {
        let (name, id) = (self.name(next), if next.is_idle() { 0 } else { self.thread_id(next) });
        // How a thread beside the run's leaves is not told: as one that sleeps.
        let prev_state = if self.others.thread_on(cpu).is_some() { PrevState::Sleeping } else { prev_state };
        self.switch_to(time_ns, cpu, prev_state, (id, &name));
        self.running[cpu.index()] = next;
    }

    /// A thread beside the run's comes, or the idle one.
    fn foreign(&mut self, time_ns: u64, cpu: CpuId, thread: Option<u32>) {
        let known = thread.and_then(|thread| self.tables.foreign.get(thread as usize)).cloned();
        let (id, name) = known.map_or((0, "swapper".to_owned()), |thread| (thread.thread, thread.name));
        let pending = &mut self.pending[cpu.index()];
        // The task that left at this instant left for this thread, and not for the idle one.
        if pending.last_switch_ns == time_ns && pending.compact.switch_next_pid.last() == Some(&0) {
            let index = pending.name(id, &name);
            let compact = &mut pending.compact;
            compact.switch_next_pid.pop();
            compact.switch_next_comm_index.pop();
            compact.switch_next_pid.push(id);
            compact.switch_next_comm_index.push(index);
        } else {
            let prev_state = if self.others.thread_on(cpu).is_some() { PrevState::Sleeping } else { PrevState::Idle };
            self.switch_to(time_ns, cpu, prev_state, (id, &name));
        }
    }

    fn switch_to(&mut self, time_ns: u64, cpu: CpuId, prev_state: PrevState, (id, name): (i32, &str)) {
        let pending = &mut self.pending[cpu.index()];
        if !pending.began {
            // Readers take the first switch of a CPU only for who ran until the second one; so every CPU begins idle.
            pending.began = true;
            let idle = pending.name(0, "swapper");
            pending.compact.switch_timestamp.push(0);
            pending.compact.switch_prev_state.push(0);
            pending.compact.switch_next_pid.push(0);
            pending.compact.switch_next_prio.push(PRIORITY);
            pending.compact.switch_next_comm_index.push(idle);
        }
        let index = pending.name(id, name);
        let compact = &mut pending.compact;
        compact.switch_timestamp.push(time_ns - pending.last_switch_ns);
        pending.last_switch_ns = time_ns;
        // The kernel's bits: TASK_RUNNING, TASK_INTERRUPTIBLE, EXIT_DEAD.
        compact.switch_prev_state.push(match prev_state {
            PrevState::Runnable => PREEMPTED,
            PrevState::Idle => 0,
            PrevState::Sleeping => 1,
            PrevState::Dead => 16,
        });
        compact.switch_next_pid.push(id);
        compact.switch_next_prio.push(PRIORITY);
        compact.switch_next_comm_index.push(index);
    }

    /// `task_newtask` is what readers begin a thread and its first wait with: with `CLONE_THREAD` a thread of the process of
    /// the thread that sent the event, without it a process of its own. The launcher is in no process, so what it adds to one
    /// is sent by that process's first thread. `sched_wakeup_new` follows, as in the kernel.
    fn fork(&mut self, time_ns: u64, cpu: CpuId, parent: TaskId, child: TaskId) {
        self.announced.insert(child);
        let process = |task: TaskId| self.tasks.get(task.index()).map(|task| task.process);
        let leader = |task| process(task).and_then(|process| self.leaders.get(&process)).copied();
        let (own, above) = (leader(child).unwrap_or(child), leader(parent));
        let (sender, clone_flags) = match own {
            _ if own == child => (parent, 0),
            _ if above == Some(own) => (parent, CLONE_THREAD),
            _ => (own, CLONE_THREAD),
        };
        if let Some(above) = above.filter(|_| own == child) {
            self.parents.insert(self.thread_id(child), self.thread_id(above));
        }
        let (comm, pid) = (Some(self.name(child)), Some(self.thread_id(child)));
        let new = TaskNewtask { pid, comm: comm.clone(), clone_flags: Some(clone_flags) };
        self.sent_by(sender, time_ns, cpu, FtraceEvent { task_newtask: Some(new), ..FtraceEvent::default() });
        let wakeup = SchedWakeupNew { comm, pid, prio: Some(PRIORITY), target_cpu: Some(self.number(cpu) as i32) };
        self.plain(time_ns, cpu, FtraceEvent { sched_wakeup_new: Some(wakeup), ..FtraceEvent::default() });
    }

    /// A wakeup whose waking was not recorded: who made it is not known.
    fn wakeup(&mut self, time_ns: u64, cpu: CpuId, task: TaskId) {
        let wakeup = SchedWaking {
            comm: Some(self.name(task)),
            pid: Some(self.thread_id(task)),
            prio: Some(PRIORITY),
            success: Some(1),
            target_cpu: Some(self.number(cpu) as i32),
        };
        self.plain(time_ns, cpu, FtraceEvent { sched_wakeup: Some(wakeup), ..FtraceEvent::default() });
    }

    /// An event of the thread that is on the CPU.
    fn plain(&mut self, time_ns: u64, cpu: CpuId, event: FtraceEvent) {
        self.sent_by(self.running[cpu.index()], time_ns, cpu, event);
    }

    fn sent_by(&mut self, task: TaskId, time_ns: u64, cpu: CpuId, event: FtraceEvent) {
        let pid = if task.is_idle() { 0 } else { self.thread_id(task) as u32 };
        self.pending[cpu.index()].events.push(FtraceEvent { timestamp: Some(time_ns), pid: Some(pid), ..event });
    }

    /// Says on which CPU's queue a task is from now on.
    fn place(&mut self, time_ns: u64, task: TaskId, cpu: Option<CpuId>) -> io::Result<()> {
        if task.index() >= self.queued_on.len() {
            self.queued_on.resize(task.index() + 1, None);
        }
        let before = std::mem::replace(&mut self.queued_on[task.index()], cpu);
        if before == cpu {
            return Ok(());
        }
        for (cpu, by) in [(before, -1), (cpu, 1)] {
            let Some(cpu) = cpu else { continue };
            let llc = self.machine.llc_of(cpu);
            self.per_cpu[cpu.index()] += by;
            self.per_llc[llc.index()] += by;
            self.counter(time_ns, FIRST_CPU + u64::from(cpu.0), self.per_cpu[cpu.index()])?;
            self.counter(time_ns, FIRST_LLC + u64::from(llc.0), self.per_llc[llc.index()])?;
        }
        Ok(())
    }

    /// A sample goes to the track of its counter and task, or of its counter and CPU.
    fn sample(&mut self, time_ns: u64, cpu: CpuId, counter: u32, task: TaskId, value: u64) -> io::Result<()> {
        let owner = if task.is_idle() { cpu.0 } else { task.0 | 1 << 31 };
        let next = FIRST_COUNTER + self.counters.len() as u64;
        let track = *self.counters.entry((counter, owner)).or_insert(next);
        if track == next {
            let name = self.tables.counters.get(counter as usize).cloned().unwrap_or_default();
            let owner = if task.is_idle() { self.machine.os_cpu(cpu).to_string() } else { self.name(task) };
            self.track(track, Some(COUNTERS), &format!("{name} {owner}"), true)?;
        }
        self.counter(time_ns, track, i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// A score goes to the track of its name and task.
    fn score(&mut self, time_ns: u64, score: u32, task: TaskId, value: i64) -> io::Result<()> {
        if task.index() >= MOST_SCORED {
            return Ok(());
        }
        let track = FIRST_SCORE + u64::from(score) * MOST_SCORED as u64 + u64::from(task.0);
        if self.scored.insert(track) {
            let name = self.tables.scores.get(score as usize).cloned().unwrap_or_default();
            self.track(track, Some(SCORES), &format!("{name} {}", self.name(task)), true)?;
        }
        self.counter(time_ns, track, value)
    }

    /// The system's number of a CPU, which stands wherever a reader looks for one.
    fn number(&self, cpu: CpuId) -> u32 {
        self.machine.os_cpu(cpu).0
    }

    fn flush(&mut self, cpu: CpuId) -> io::Result<()> {
        let pending = self.pending[cpu.index()].take();
        if pending.len() == 0 {
            return Ok(());
        }
        // Of equal times readers keep the order of arrival, and a fork or a migration comes before the switch that follows it.
        for bundle in [
            FtraceEventBundle { event: pending.events, ..FtraceEventBundle::default() },
            FtraceEventBundle { compact_sched: Some(pending.compact), ..FtraceEventBundle::default() },
        ] {
            if bundle.event.is_empty() && bundle.compact_sched.is_none() {
                continue;
            }
            let bundle = FtraceEventBundle { cpu: Some(self.number(cpu)), ..bundle };
            self.packet(TracePacket { ftrace_events: Some(bundle), ..TracePacket::default() })?;
        }
        Ok(())
    }

    /// Writes what is left, and when the run ended: a trace has no length of its own, and what ran at the end has no other. So every CPU goes
    /// idle then, from a thread that would have run on.
    /// The names of processes come last: readers begin a second thread where one that they know is created.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, end_ns: u64) -> io::Result<W> {
        for cpu in (0..self.pending.len()).map(CpuId::from_index) {
            if self.pending[cpu.index()].began {
                // No bit of a state: what ran would run on, and nothing preempts it.
                let at_ns = end_ns.max(self.pending[cpu.index()].last_switch_ns);
                self.switch_to(at_ns, cpu, PrevState::Idle, (0, "swapper"));
            }
            self.flush(cpu)?;
        }
        let tree = self.process_tree();
        self.packet(TracePacket { timestamp: Some(end_ns), process_tree: Some(tree), ..TracePacket::default() })?;
        self.instant(end_ns, PHASES, "end of the run", Vec::new())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Sink for PerfettoWriter<'_, W> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        batch.iter().try_for_each(|event| self.event(event))
    }
}

fn number(name: &str, value: i64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), int_value: Some(value), string_value: None }
}

fn text(name: &str, value: String) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), int_value: None, string_value: Some(value) }
}
