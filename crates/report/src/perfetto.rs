//! A trial as a Perfetto trace, written while its events stream by.
//!
//! Switches and wakings are `CompactSched`, so the standard tables (`sched_slice`, `thread_state`) and queries work; migrations,
//! forks and first wakeups are plain ftrace events in the same bundles, one bundle per CPU. Runnable tasks per CPU and per LLC and the
//! run's own counters are counter tracks; decisions are instants with task, CPU, LLC and value; the topology, which Perfetto's
//! own `CpuInfo` cannot say, is JSON in one instant at the start. Source: `protos/perfetto/trace` of Perfetto.
//!
//! Times are nanoseconds on the boot clock, which begins with the run; a `ClockSnapshot` says so. Thread ids are task ids plus 1,
//! because 0 is the idle thread. Priorities are 120 throughout: events do not tell nice values. No affinities, no kernel time.

mod proto;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use warmcore_topology::{CpuId, LlcId, Machine};
use warmcore_trace::{Event, EventKind, PrevState, RunTables, Sink, TaskId, TaskInfo};

use proto::{
    Clock, ClockSnapshot, CompactSched, CounterDescriptor, DebugAnnotation, FtraceEvent, FtraceEventBundle, Process,
    ProcessTree, SchedMigrateTask, SchedWakeupNew, SchedWaking, SystemInfo, TaskNewtask, Thread, TracePacket,
    TrackDescriptor, TrackEvent, Utsname,
};

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
/// The kernel's flag of `clone` for a thread of the same process.
const CLONE_THREAD: u64 = 0x10000;
/// Tracks of our own.
const ROOT: u64 = 1;
const TOPOLOGY: u64 = 2;
const DECISIONS: u64 = 3;
const PHASES: u64 = 4;
const PER_CPU: u64 = 5;
const PER_LLC: u64 = 6;
const COUNTERS: u64 = 7;
const FIRST_CPU: u64 = 1 << 32;
const FIRST_LLC: u64 = 2 << 32;
const FIRST_COUNTER: u64 = 3 << 32;

/// The topology as it is embedded, and as it is written beside the trace. Columns by CPU.
#[must_use]
pub fn topology_json(machine: &Machine) -> String {
    #[derive(Serialize)]
    struct Topology<'a> {
        schema: &'static str,
        machine: &'a str,
        core: Vec<u32>,
        llc: Vec<u32>,
        node: Vec<u32>,
        socket: Vec<u32>,
        capacity: Vec<u32>,
    }
    let column = |value: &dyn Fn(CpuId) -> u32| machine.cpus().map(value).collect();
    let topology = Topology {
        schema: "warmcore-topology-1",
        machine: machine.name(),
        core: column(&|cpu| machine.core_of(cpu).0),
        llc: column(&|cpu| machine.llc_of(cpu).0),
        node: column(&|cpu| machine.node_of(cpu).0),
        socket: column(&|cpu| machine.socket_of(cpu).0),
        capacity: column(&|cpu| machine.capacity(cpu)),
    };
    // Strings, numbers and lists of them can always be written.
    serde_json::to_string(&topology).unwrap_or_default()
}

/// What a CPU has not written yet.
#[derive(Default)]
struct Pending {
    compact: CompactSched,
    events: Vec<FtraceEvent>,
    last_switch_ns: u64,
    last_waking_ns: u64,
    names: BTreeMap<TaskId, u32>,
    /// Whether a switch was written before.
    began: bool,
}

impl Pending {
    fn len(&self) -> usize {
        self.compact.switch_timestamp.len() + self.compact.waking_timestamp.len() + self.events.len()
    }

    /// The number of a name in this bundle's table.
    fn name(&mut self, task: TaskId, name: &str) -> u32 {
        let table = &mut self.compact.intern_table;
        *self.names.entry(task).or_insert_with(|| {
            table.push(name.to_owned());
            (table.len() - 1) as u32
        })
    }
}

/// Writes a trace. [`PerfettoWriter::finish`] writes what is left.
pub struct PerfettoWriter<'a, W> {
    out: W,
    tables: RunTables,
    tasks: &'a [TaskInfo],
    llc_of: Vec<LlcId>,
    pending: Vec<Pending>,
    running: Vec<TaskId>,
    queued_on: Vec<Option<CpuId>>,
    per_cpu: Vec<i64>,
    per_llc: Vec<i64>,
    counters: BTreeMap<(u32, u32), u64>,
    buffer: Vec<u8>,
}

impl<'a, W: Write> PerfettoWriter<'a, W> {
    /// Begins a trace of a run with these tasks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, machine: &Machine, tables: &RunTables, tasks: &'a [TaskInfo]) -> io::Result<Self> {
        let cpus = machine.cpu_count();
        let mut writer = Self {
            out,
            tables: tables.clone(),
            tasks,
            llc_of: machine.cpus().map(|cpu| machine.llc_of(cpu)).collect(),
            pending: (0..cpus).map(|_| Pending::default()).collect(),
            running: vec![TaskId::IDLE; cpus],
            queued_on: vec![None; tasks.len()],
            per_cpu: vec![0; cpus],
            per_llc: vec![0; machine.llc_count()],
            counters: BTreeMap::new(),
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
            version: Some("simulated by warmcore".into()),
            release: Some(RELEASE.into()),
        };
        let system_info = Some(SystemInfo { utsname: Some(utsname) });
        self.packet(TracePacket { timestamp: Some(0), system_info, ..TracePacket::default() })?;
        let tree = self.process_tree();
        self.packet(TracePacket { timestamp: Some(0), process_tree: Some(tree), ..TracePacket::default() })?;
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
        for cpu in machine.cpus() {
            self.track(FIRST_CPU + u64::from(cpu.0), Some(PER_CPU), &format!("{cpu} runnable"), true)?;
        }
        for llc in machine.llcs() {
            self.track(FIRST_LLC + u64::from(llc.0), Some(PER_LLC), &format!("{llc} runnable"), true)?;
        }
        let topology = text("topology", topology_json(machine));
        self.instant(0, TOPOLOGY, "topology", vec![topology])
    }

    /// Tasks of one process are threads of the lowest of them.
    fn process_tree(&self) -> ProcessTree {
        let mut leaders: BTreeMap<u32, TaskId> = BTreeMap::new();
        for task in self.tasks {
            leaders.entry(task.process).or_insert(task.id);
        }
        let process = |leader: &TaskId| Process {
            pid: Some(thread_id(*leader)),
            ppid: Some(0),
            cmdline: vec![self.tasks[leader.index()].application_name.clone()],
        };
        let thread = |task: &TaskInfo| Thread {
            tid: Some(thread_id(task.id)),
            name: Some(task.name.clone()),
            tgid: leaders.get(&task.process).map(|leader| thread_id(*leader)),
        };
        ProcessTree {
            processes: leaders.values().map(process).collect(),
            threads: self.tasks.iter().map(thread).collect(),
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

    fn name(&self, task: TaskId) -> &'a str {
        self.tasks.get(task.index()).map_or("swapper", |task| &task.name)
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
            EventKind::Waking { task, target_cpu } => {
                let name = self.name(task);
                let pending = &mut self.pending[cpu.index()];
                let index = pending.name(task, name);
                let compact = &mut pending.compact;
                compact.waking_timestamp.push(time_ns - pending.last_waking_ns);
                pending.last_waking_ns = time_ns;
                compact.waking_pid.push(thread_id(task));
                compact.waking_target_cpu.push(target_cpu.0 as i32);
                compact.waking_prio.push(PRIORITY);
                compact.waking_comm_index.push(index);
            }
            EventKind::Wakeup { task } => {
                if self.queued_on.get(task.index()).copied().flatten().is_none() {
                    self.place(time_ns, task, Some(cpu))?;
                }
            }
            EventKind::Migrate { task, from, to, .. } => {
                let migrate = SchedMigrateTask {
                    comm: Some(self.name(task).to_owned()),
                    pid: Some(thread_id(task)),
                    prio: Some(PRIORITY),
                    orig_cpu: Some(from.0 as i32),
                    dest_cpu: Some(to.0 as i32),
                };
                self.plain(time_ns, cpu, FtraceEvent { sched_migrate_task: Some(migrate), ..FtraceEvent::default() });
                if self.queued_on.get(task.index()).copied().flatten().is_some() {
                    self.place(time_ns, task, Some(to))?;
                }
            }
            EventKind::Fork { parent, child } => self.fork(time_ns, cpu, parent, child),
            EventKind::Decision { decision, task, value } => {
                let name = self.tables.decisions.get(decision as usize).cloned().unwrap_or_default();
                let mut annotations =
                    vec![number("cpu", cpu.0.into()), number("llc", self.llc_of[cpu.index()].0.into())];
                if !task.is_idle() {
                    annotations.push(text("task", self.name(task).to_owned()));
                    annotations.push(number("tid", thread_id(task).into()));
                }
                annotations.push(number("value", value));
                self.instant(time_ns, DECISIONS, &name, annotations)?;
            }
            EventKind::Phase { task, phase } => {
                let name = self.tables.phases.get(phase as usize).cloned().unwrap_or_default();
                let task = vec![text("task", self.name(task).to_owned()), number("tid", thread_id(task).into())];
                self.instant(time_ns, PHASES, &name, task)?;
            }
            EventKind::Counter { counter, task, value } => self.sample(time_ns, cpu, counter, task, value)?,
            EventKind::Exit { .. } | EventKind::Affinity { .. } | EventKind::Overhead { .. } => {}
        }
        if self.pending[cpu.index()].len() >= BUNDLE { self.flush(cpu) } else { Ok(()) }
    }

    /// Of equal times readers take the compact switch before the compact waking, but plain events before both. So wakings at
    /// the time of the switch that follows them become plain events.
    fn waking_first(&mut self, time_ns: u64, cpu: CpuId) {
        while self.pending[cpu.index()].last_waking_ns == time_ns {
            let pending = &mut self.pending[cpu.index()];
            let compact = &mut pending.compact;
            let Some(since_ns) = compact.waking_timestamp.pop() else { return };
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
            self.plain(time_ns, cpu, FtraceEvent { sched_waking: Some(waking), ..FtraceEvent::default() });
        }
    }

    fn switch(&mut self, time_ns: u64, cpu: CpuId, prev_state: PrevState, next: TaskId) {
        let name = self.name(next);
        let pending = &mut self.pending[cpu.index()];
        if !pending.began {
            // Readers take the first switch of a CPU only for who ran until the second one; so every CPU begins idle.
            pending.began = true;
            let idle = pending.name(TaskId::IDLE, "swapper");
            pending.compact.switch_timestamp.push(0);
            pending.compact.switch_prev_state.push(0);
            pending.compact.switch_next_pid.push(0);
            pending.compact.switch_next_prio.push(PRIORITY);
            pending.compact.switch_next_comm_index.push(idle);
        }
        let index = pending.name(next, name);
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
        compact.switch_next_pid.push(if next.is_idle() { 0 } else { thread_id(next) });
        compact.switch_next_prio.push(PRIORITY);
        compact.switch_next_comm_index.push(index);
        self.running[cpu.index()] = next;
    }

    /// `task_newtask` is what readers begin a thread's first wait with; `sched_wakeup_new` follows it, as in the kernel.
    fn fork(&mut self, time_ns: u64, cpu: CpuId, parent: TaskId, child: TaskId) {
        let process = |task: TaskId| self.tasks.get(task.index()).map(|task| task.process);
        let thread = !parent.is_idle() && process(parent) == process(child);
        let (comm, pid) = (Some(self.name(child).to_owned()), Some(thread_id(child)));
        let clone_flags = Some(if thread { CLONE_THREAD } else { 0 });
        let new = TaskNewtask { pid, comm: comm.clone(), clone_flags };
        self.plain(time_ns, cpu, FtraceEvent { task_newtask: Some(new), ..FtraceEvent::default() });
        let wakeup = SchedWakeupNew { comm, pid, prio: Some(PRIORITY), target_cpu: Some(cpu.0 as i32) };
        self.plain(time_ns, cpu, FtraceEvent { sched_wakeup_new: Some(wakeup), ..FtraceEvent::default() });
    }

    fn plain(&mut self, time_ns: u64, cpu: CpuId, event: FtraceEvent) {
        let running = self.running[cpu.index()];
        let pid = if running.is_idle() { 0 } else { thread_id(running) as u32 };
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
            let llc = self.llc_of[cpu.index()];
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
            let owner = if task.is_idle() { cpu.to_string() } else { self.name(task).to_owned() };
            self.track(track, Some(COUNTERS), &format!("{name} {owner}"), true)?;
        }
        self.counter(time_ns, track, i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn flush(&mut self, cpu: CpuId) -> io::Result<()> {
        let empty = Pending { began: self.pending[cpu.index()].began, ..Pending::default() };
        let pending = std::mem::replace(&mut self.pending[cpu.index()], empty);
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
            let bundle = FtraceEventBundle { cpu: Some(cpu.0), ..bundle };
            self.packet(TracePacket { ftrace_events: Some(bundle), ..TracePacket::default() })?;
        }
        Ok(())
    }

    /// Writes what is left, and when the run ended: a trace has no length of its own, and what ran at the end has no other.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, end_ns: u64) -> io::Result<W> {
        for cpu in 0..self.pending.len() {
            self.flush(CpuId::from_index(cpu))?;
        }
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

/// Thread id of a task.
fn thread_id(task: TaskId) -> i32 {
    task.0 as i32 + 1
}

fn number(name: &str, value: i64) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), int_value: Some(value), string_value: None }
}

fn text(name: &str, value: String) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), int_value: None, string_value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use proto::TracePacket;
    use warmcore_topology::resolve;

    /// The packets of a trace, by the rules of the wire format alone.
    fn packets(mut bytes: &[u8]) -> Vec<TracePacket> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(bytes[0], 0x0a, "a packet is field 1, length-delimited");
            bytes = &bytes[1..];
            found.push(TracePacket::decode_length_delimited(&mut bytes).unwrap());
        }
        found
    }

    fn event(time_ns: u64, cpu: u32, kind: EventKind) -> Event {
        Event { time_ns, cpu: CpuId(cpu), kind }
    }

    /// A machine with two LLCs of one CPU, and two tasks of one process.
    fn run() -> (Machine, RunTables, [TaskInfo; 2]) {
        let machine = resolve("1s1n2l1c1t").unwrap();
        let task = |id: u32| TaskInfo {
            id: TaskId(id),
            name: format!("t{id}"),
            role: "r".into(),
            application: 0,
            application_name: "app".into(),
            process: 7,
        };
        let tables = RunTables { decisions: vec!["steal".into()], ..RunTables::default() };
        (machine, tables, [task(0), task(1)])
    }

    fn trace() -> Vec<TracePacket> {
        let (machine, tables, tasks) = run();
        let mut writer = PerfettoWriter::new(Vec::new(), &machine, &tables, &tasks).unwrap();
        let (a, b) = (TaskId(0), TaskId(1));
        let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        let events = [
            event(5, 0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            event(5, 0, EventKind::Wakeup { task: a }),
            event(10, 0, switch(TaskId::IDLE, PrevState::Idle, a)),
            event(30, 0, EventKind::Waking { task: b, target_cpu: CpuId(1) }),
            event(32, 0, EventKind::Wakeup { task: b }),
            event(
                40,
                1,
                EventKind::Migrate {
                    task: b,
                    from: CpuId(0),
                    to: CpuId(1),
                    kind: warmcore_trace::MigrationKind::Steal,
                },
            ),
            event(40, 1, EventKind::Decision { decision: 0, task: b, value: -3 }),
            event(45, 1, switch(TaskId::IDLE, PrevState::Idle, b)),
            event(90, 0, switch(a, PrevState::Sleeping, TaskId::IDLE)),
            event(95, 1, switch(b, PrevState::Dead, TaskId::IDLE)),
        ];
        writer.events(&events).unwrap();
        packets(&writer.finish(100).unwrap())
    }

    #[test]
    fn switches_and_wakings_are_columns_with_differences_of_time() {
        let bundles: Vec<_> = trace()
            .into_iter()
            .filter_map(|packet| packet.ftrace_events)
            .filter(|bundle| bundle.compact_sched.is_some())
            .collect();
        assert_eq!(bundles.iter().map(|bundle| bundle.cpu.unwrap()).collect::<Vec<_>>(), [0, 1]);
        let compact = bundles[0].compact_sched.clone().unwrap();
        assert_eq!(compact.switch_timestamp, [0, 10, 80], "every CPU begins idle");
        assert_eq!(compact.switch_next_pid, [0, 1, 0]);
        assert_eq!(compact.switch_prev_state, [0, 0, 1]);
        assert_eq!(
            (compact.waking_timestamp, compact.waking_pid, compact.waking_target_cpu),
            (vec![30], vec![2], vec![1])
        );
        assert_eq!(compact.intern_table[compact.switch_next_comm_index[1] as usize], "t0");
        assert_eq!(bundles[1].compact_sched.clone().unwrap().switch_prev_state, [0, 0, 16]);
    }

    #[test]
    fn migrations_are_plain_events_and_decisions_are_instants() {
        let packets = trace();
        let events: Vec<_> =
            packets.iter().filter_map(|packet| packet.ftrace_events.as_ref()).flat_map(|b| &b.event).collect();
        let new = events.iter().find_map(|event| event.task_newtask.as_ref()).unwrap();
        assert_eq!((new.pid, new.comm.as_deref(), new.clone_flags), (Some(1), Some("t0"), Some(0)), "nobody's thread");
        let migrate = events.iter().find_map(|event| event.sched_migrate_task.as_ref()).unwrap();
        assert_eq!((migrate.pid, migrate.orig_cpu, migrate.dest_cpu), (Some(2), Some(0), Some(1)));
        let decision = packets.iter().find(|p| p.track_event.as_ref().is_some_and(|e| e.track_uuid == Some(DECISIONS)));
        let decision = decision.unwrap();
        assert_eq!(decision.timestamp, Some(40));
        let event = decision.track_event.as_ref().unwrap();
        assert_eq!(event.name.as_deref(), Some("steal"));
        assert!(event.debug_annotations.iter().any(|a| a.name.as_deref() == Some("value") && a.int_value == Some(-3)));
    }

    #[test]
    fn a_waking_at_the_time_of_the_switch_after_it_comes_first() {
        let (machine, tables, tasks) = run();
        let mut writer = PerfettoWriter::new(Vec::new(), &machine, &tables, &tasks).unwrap();
        let (a, b) = (TaskId(0), TaskId(1));
        let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
        let events = [
            event(10, 0, switch(TaskId::IDLE, a)),
            event(20, 0, EventKind::Waking { task: a, target_cpu: CpuId(0) }),
            event(30, 0, EventKind::Waking { task: b, target_cpu: CpuId(1) }),
            event(30, 0, switch(a, b)),
        ];
        writer.events(&events).unwrap();
        let bundles: Vec<_> =
            packets(&writer.finish(40).unwrap()).into_iter().filter_map(|packet| packet.ftrace_events).collect();
        let waking = bundles[0].event[0].sched_waking.as_ref().unwrap();
        assert_eq!((bundles[0].event[0].timestamp, waking.pid, waking.target_cpu), (Some(30), Some(2), Some(1)));
        let compact = bundles[1].compact_sched.as_ref().unwrap();
        assert_eq!((&compact.waking_timestamp, &compact.switch_timestamp), (&vec![20], &vec![0, 10, 20]));
    }

    #[test]
    fn counters_follow_the_queues_and_end_at_zero() {
        let values = |track: u64| -> Vec<(u64, i64)> {
            let of_track = |packet: TracePacket| {
                let event = packet.track_event.filter(|event| event.track_uuid == Some(track))?;
                Some((packet.timestamp?, event.counter_value?))
            };
            trace().into_iter().filter_map(of_track).collect()
        };
        assert_eq!(values(FIRST_CPU), [(5, 1), (32, 2), (40, 1), (90, 0)]);
        assert_eq!(values(FIRST_LLC + 1), [(40, 1), (95, 0)]);
    }

    #[test]
    fn the_clock_the_names_and_the_topology_come_first() {
        let packets = trace();
        let snapshot = packets[0].clock_snapshot.as_ref().unwrap();
        assert_eq!((snapshot.primary_trace_clock, snapshot.clocks[0].clock_id), (Some(6), Some(6)));
        assert_eq!(
            packets[1].system_info.as_ref().unwrap().utsname.as_ref().unwrap().release.as_deref(),
            Some("6.18.0")
        );
        let tree = packets[2].process_tree.as_ref().unwrap();
        assert_eq!((tree.processes.len(), tree.threads.len()), (1, 2), "one process with two threads");
        assert!(tree.threads.iter().all(|thread| thread.tgid == Some(1)));
        let topology =
            packets.iter().filter_map(|p| p.track_event.as_ref()).find(|e| e.track_uuid == Some(TOPOLOGY)).unwrap();
        assert!(topology.debug_annotations[0].string_value.as_ref().unwrap().contains("\"llc\":[0,1]"));
        assert!(packets.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));
    }
}
