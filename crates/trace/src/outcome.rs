//! What a run leaves behind, besides its events: in the simulator and on a real kernel the same, with what a place cannot know left
//! empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_topology::CpuId;

use crate::event::OVERHEAD_KINDS;
use crate::histogram::Histogram;
use crate::memory_counters::MemoryCounters;
use crate::schedstat::CpuCounters;

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Every task exited.
    AllExited,
    /// The workload's duration was over, or a task stopped it.
    Stopped,
    /// The longest time that the run was given was over first.
    TimeLimit,
}

/// A task of the run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// Dense number, in order of creation.
    pub id: u32,
    /// Template's name and, where it has several instances, the instance's number.
    pub name: String,
    /// Role in reports.
    pub role: String,
    /// Index into the applications.
    pub application: u32,
    /// Index into the processes.
    pub process: u32,
    /// Creation.
    pub started_ns: u64,
    /// Exit, if it came to that.
    pub exited_ns: Option<u64>,
    /// Time on CPU, interrupts and switches included, as the scheduler charges it.
    pub cpu_time_ns: u64,
    /// Of that, progress of its own program: work (at nominal speed), CPU time without interrupts and switches, busy waiting.
    pub progress_ns: u64,
    /// Of that, busy waiting.
    pub spin_ns: u64,
    /// Of the CPU time, what its work took longer because hardware threads of the same core were busy, where memory is not modelled:
    /// `memory` says it otherwise.
    #[serde(default, skip_serializing_if = "is_none")]
    pub smt_ns: u64,
    /// Of the CPU time, what its work took longer than at nominal speed because its CPU is a slower one or has a lower frequency, where memory
    /// is not modelled; negative where the frequency is higher.
    #[serde(default, skip_serializing_if = "is_none")]
    pub pace_ns: i64,
    /// Asleep until a time came.
    pub slept_ns: u64,
    /// What its time and accesses went to, if the memory was modelled.
    #[serde(skip)]
    pub memory: Option<MemoryCounters>,
}

impl TaskOutcome {
    /// A task of a real kernel, which says no more than its CPU time: that is its progress.
    pub fn new(id: u32, name: String, role: String, cpu_time_ns: u64) -> Self {
        Self { id, name, role, cpu_time_ns, progress_ns: cpu_time_ns, ..Self::default() }
    }
}

fn is_none<T: Default + PartialEq>(ns: &T) -> bool {
    *ns == T::default()
}

/// An application of the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ApplicationOutcome {
    /// Name.
    pub name: String,
    /// From the creation of its first task to the exit of its last, or to the end of the run.
    pub elapsed_ns: u64,
    /// Whether all its tasks exited.
    pub finished: bool,
    /// CPU time of its tasks.
    pub cpu_time_ns: u64,
}

/// How a CPU spent the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuOutcome {
    /// Idle while it is online.
    pub idle_ns: u64,
    /// Offline with nobody on it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offline_ns: u64,
    /// With a task of the workload on it.
    pub busy_ns: u64,
    /// With a thread of the kernel itself on it. Events show that time as idle.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background_ns: u64,
    /// Kernel time by [`OverheadKind`](crate::OverheadKind), spent on busy and idle CPUs.
    pub overhead_ns: [u64; OVERHEAD_KINDS],
    /// What its time and accesses went to, if the memory was modelled.
    #[serde(skip)]
    pub memory: Option<MemoryCounters>,
    /// Clock in cycles per nanosecond, if the memory was modelled; 1 otherwise.
    #[serde(skip)]
    pub frequency_ghz: f64,
}

/// What kernel threads of one kind, interrupts of one name, or the threads of another process took beside the workload.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BackgroundOutcome {
    /// The kernel's name for them, without the CPU's number; of a process that of its first thread.
    pub name: String,
    /// The process, where a recording tells of one that is not the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
    /// Interrupts, and no threads. What they took is part of the time of whoever they interrupted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupt: bool,
    /// How many there are: threads, or CPUs on which the interrupt arrives.
    pub threads: u32,
    /// How often they were woken, or arrived; of a recording, how often they came onto a CPU.
    pub wakeups: u64,
    /// Their time on CPUs.
    pub cpu_time_ns: u64,
    /// The same by CPU, where a recording tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_cpu_ns: BTreeMap<CpuId, u64>,
}

/// What a scheduler's choices of places took, where it counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlacementEffort {
    /// Choices, those that left a task where it was included.
    pub decisions: u64,
    /// What was looked at for them: CPUs, queues, comparisons in a sort, nodes of a tree.
    pub looked_at: u64,
    /// Kernel time charged for that, readings of counters included; part of [`CpuOutcome::overhead_ns`].
    pub cost_ns: u64,
}

/// What came of a task group's quota, as `cpu.stat` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupCounters {
    /// Periods that ended (`nr_periods`). While nobody of it runs, there are none.
    pub periods: u64,
    /// Of these, how many ended with a CPU on which it had to wait (`nr_throttled`).
    pub throttled_periods: u64,
    /// How long tasks had to wait on each CPU, all CPUs together (`throttled_usec`).
    pub throttled_ns: u64,
}

impl GroupCounters {
    /// What they gained since an earlier state.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            periods: self.periods - earlier.periods,
            throttled_periods: self.throttled_periods - earlier.throttled_periods,
            throttled_ns: self.throttled_ns - earlier.throttled_ns,
        }
    }
}

/// A task group with a quota.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupOutcome {
    /// Its path.
    pub name: String,
    /// What came of the quota.
    pub counters: GroupCounters,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Time of the run at its end: simulated, or the monotonic clock of a real kernel.
    pub elapsed_ns: u64,
    /// End of the warm-up, from the start of the run. Accounts and recorders hold what came after it; times of creation and exit are
    /// those of the run. 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up_ns: u64,
    /// Tasks, by id.
    pub tasks: Vec<TaskOutcome>,
    /// Applications, by index.
    pub applications: Vec<ApplicationOutcome>,
    /// CPUs, by id.
    pub cpus: Vec<CpuOutcome>,
    /// Who ran beside the workload: simulated threads of the kernel itself, or whoever was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundOutcome>,
    /// What the scheduler's choices of places took, if it counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementEffort>,
    /// What the cores took in µJ, where a governor ran on a machine with an energy model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_uj: Option<u64>,
    /// Task groups with a quota, where the scheduler or the kernel keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupOutcome>,
    /// What the workload's recorders collected, by index.
    #[serde(skip)]
    pub recorders: Vec<Histogram>,
    /// When the first sample of each recorder began, by index, be it in the warm-up. Empty where that is not known: real threads report
    /// lengths alone.
    #[serde(skip)]
    pub recorders_since_ns: Vec<u64>,
    /// Equations of loaded memory that were solved, and those among them that did not settle, where the last solution
    /// was kept.
    pub memory_solutions: (u64, u64),
    /// What the scheduler counted of its domains, by CPU, where figures of balancing are asked for.
    #[serde(skip)]
    pub domain_counters: Vec<CpuCounters>,
    /// What the kernel logged about tasks that lost their CPUs to one that went offline, of a simulated run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_log: Vec<String>,
    /// Events the engine processed, overtaken ones not counted.
    pub engine_events: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Outcome {
    /// A run of which no more than its end is known.
    pub const fn new(end: End, elapsed_ns: u64) -> Self {
        Self {
            end,
            elapsed_ns,
            warm_up_ns: 0,
            tasks: Vec::new(),
            applications: Vec::new(),
            cpus: Vec::new(),
            background: Vec::new(),
            placement: None,
            energy_uj: None,
            groups: Vec::new(),
            recorders: Vec::new(),
            recorders_since_ns: Vec::new(),
            memory_solutions: (0, 0),
            domain_counters: Vec::new(),
            kernel_log: Vec::new(),
            engine_events: 0,
        }
    }

    /// The time in which a recorder collected: the window, or from the beginning of its first sample of all where that is later, to the run's end.
    /// A program's own warm-up may be longer than the one that was asked for.
    pub fn recorder_window_ns(&self, recorder: usize) -> u64 {
        let since_ns = self.recorders_since_ns.get(recorder).copied().unwrap_or(0);
        self.elapsed_ns.saturating_sub(since_ns.max(self.warm_up_ns))
    }

    /// Length of the window that accounts are of: the run, or what came after its warm-up; 0 for a run that ended before.
    pub fn window_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.warm_up_ns)
    }

    /// How long a task existed in the window.
    pub fn lifetime_ns(&self, task: &TaskOutcome) -> u64 {
        let end_ns = task.exited_ns.unwrap_or(self.elapsed_ns);
        end_ns.saturating_sub(task.started_ns.max(self.warm_up_ns))
    }

    /// What accounts gained since an earlier state of the same run, whose time becomes the end of the warm-up. Recorders stay as they are:
    /// whoever keeps them takes samples of what begins in the window. What says how the run was made
    /// (`engine_events`, `memory_solutions`) is of the whole run.
    #[must_use]
    pub fn since(mut self, earlier: &Outcome) -> Self {
        self.warm_up_ns = earlier.elapsed_ns;
        for (task, before) in self.tasks.iter_mut().zip(&earlier.tasks) {
            task.cpu_time_ns -= before.cpu_time_ns;
            task.progress_ns -= before.progress_ns;
            task.spin_ns -= before.spin_ns;
            task.smt_ns -= before.smt_ns;
            task.pace_ns -= before.pace_ns;
            task.slept_ns -= before.slept_ns;
            task.memory = memory_since(task.memory, before.memory);
        }
        for (cpu, before) in self.cpus.iter_mut().zip(&earlier.cpus) {
            cpu.idle_ns -= before.idle_ns;
            cpu.offline_ns -= before.offline_ns;
            cpu.busy_ns -= before.busy_ns;
            cpu.background_ns -= before.background_ns;
            cpu.overhead_ns.iter_mut().zip(before.overhead_ns).for_each(|(spent, before)| *spent -= before);
            cpu.memory = memory_since(cpu.memory, before.memory);
        }
        for (thread, before) in self.background.iter_mut().zip(&earlier.background) {
            thread.wakeups -= before.wakeups;
            thread.cpu_time_ns -= before.cpu_time_ns;
        }
        if let (Some(placement), Some(before)) = (&mut self.placement, &earlier.placement) {
            placement.decisions -= before.decisions;
            placement.looked_at -= before.looked_at;
            placement.cost_ns -= before.cost_ns;
        }
        if let (Some(energy_uj), Some(before)) = (&mut self.energy_uj, earlier.energy_uj) {
            *energy_uj -= before;
        }
        for (group, before) in self.groups.iter_mut().zip(&earlier.groups) {
            group.counters = group.counters.since(&before.counters);
        }
        for (index, application) in self.applications.iter_mut().enumerate() {
            let own = || self.tasks.iter().filter(move |task| task.application == index as u32);
            application.cpu_time_ns = own().map(|task| task.cpu_time_ns).sum();
            let started_ns = own().map(|task| task.started_ns).min().unwrap_or(0);
            application.elapsed_ns -= self.warm_up_ns.saturating_sub(started_ns).min(application.elapsed_ns);
        }
        self
    }
}

fn memory_since(now: Option<MemoryCounters>, before: Option<MemoryCounters>) -> Option<MemoryCounters> {
    match (now, before) {
        (Some(now), Some(before)) => Some(now.since(&before)),
        (now, _) => now,
    }
}
