//! NUMA balancing: tasks go where their memory is, and memory where its tasks are.
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` with `CONFIG_NUMA_BALANCING`, as specified in `docs/spec/linux-fair.md`
//! section 7, with the simulator model of 7.6. It is a feature of the fair class, not a policy: [`Fair`](super::Fair)
//! holds a `NumaBalancing` when it is on, the machine has several nodes, and the kernel knows pages (tasks have memory
//! profiles or data groups); otherwise nothing here runs. Who touches what, and where it is, is the kernel's to know
//! ([`Core::take_hint_faults`]): here are its faults.
//!
//! | module | rule | kernel functions |
//! |---|---|---|
//! | here | data, counters of queued tasks (5.8) | `init_numa_balancing`, `account_numa_enqueue` |
//! | `nodes` | distances, wiring | `init_numa_topology_type`, `score_nearby_nodes`, `preferred_group_nid` |
//! | `scan` | sampling and its rate (7.1, 7.5) | `task_tick_numa`, `task_numa_work`, `update_task_scan_period` |
//! | `faults` | hint faults, statistics, page migration (7.1, 7.2, 7.5) | `task_numa_fault`, `task_numa_placement` |
//! | `groups` | statistics of tasks and groups (7.2) | `struct numa_group`, `task_numa_group`, `task_weight` |
//! | `place` | moving and swapping tasks (7.3) | `task_numa_migrate`, `task_numa_compare` |
//! | `linux_4_9` | the same as they were in 4.9 (7.7) | `numa_has_capacity`, `load_too_imbalanced` |
//! | `balancing` | the load balancer's and the slow path's side (4.6, 5.8, 7.4) | `migrate_degrades_locality`, `fbq_classify_rq` |
//!
//! Differs from the kernel: faults are expectations, settled at ticks and when a thread stops running, not single events; a page's
//! last toucher is known as shares of a region's pages; memory tiering (`numa_balancing=2`, hot thresholds) does not exist.

mod balancing;
mod decisions;
mod faults;
mod groups;
mod linux_4_9;
mod nodes;
mod place;
mod scan;
mod tunables;

use warmcore_kernel::{Core, HintFault};
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;

use self::groups::{NodeFaults, Statistics};
use self::nodes::Nodes;
use super::state::NONE;

pub(crate) use self::balancing::NumaClass;
pub(crate) use self::decisions::NumaDecisions;
pub(super) use self::place::STOPPER_MOVE;
pub use self::tunables::NumaTunables;

const NO_NODE: u32 = NONE;

/// Faults since a task's last placement on one node, shared and private.
#[derive(Clone, Copy, Debug, Default)]
struct NodeBuffer {
    mem: [f64; 2],
    cpu: [f64; 2],
}

/// What belongs to a task.
#[derive(Clone, Debug, Default)]
struct NumaTaskState {
    process: u32,
    /// `numa_preferred_nid`, or [`NO_NODE`].
    preferred: u32,
    /// Run time at which the next scan period begins (`node_stamp`); 0 before the first of a process's first thread.
    node_stamp_ns: u64,
    scan_period_ms: u64,
    scan_max_ms: u64,
    scan_pending: bool,
    /// Pass at its last placement (`numa_scan_seq`).
    scan_seq: u32,
    /// Jiffy after which it may look for a better place again (`numa_migrate_retry`).
    migrate_retry: u64,
    /// Remote and local faults (`numa_faults_locality`).
    locality: [f64; 2],
    /// When its statistics were updated last, and its run time then.
    placed_ns: u64,
    placed_exec_ns: u64,
    /// Faults short of a whole one.
    part_of_fault: f64,
    /// Pages that its faults moved since its last placement.
    pages_moved: f64,
    /// CPU where it last had pages to fault on, or [`NO_NODE`].
    fault_cpu: u32,
    /// By region it uses, in their order: users of it that were found to be in the same fault group as the task.
    joined: Vec<u32>,
    /// Move or swap that waits for the stopper.
    planned: Option<place::Plan>,
    exited: bool,
}

/// What belongs to a process (`struct mm_struct`).
#[derive(Clone, Debug, Default)]
struct ProcessState {
    /// It has had a thread.
    started: bool,
    /// Jiffy before which it is not scanned (`numa_next_scan`).
    next_scan: u64,
    /// Complete passes over its memory (`numa_scan_seq`).
    passes: u32,
    /// Where the next scan begins: position among its regions, pages into that.
    region: usize,
    offset: f64,
}

/// What the scanner knows of a region (`struct vma_numab_state`).
#[derive(Clone, Copy, Debug)]
struct RegionState {
    /// Passes that its processes had completed when it was first there, and when it was scanned last.
    first_pass: u32,
    last_pass: u32,
}

/// What belongs to a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NumaCpuState {
    /// Queued tasks that have a preferred node (`nr_numa_running`).
    pub nr_numa_running: u32,
    /// Queued tasks whose preferred node is this CPU's (`nr_preferred_running`).
    pub nr_preferred_running: u32,
    /// A task is on its way here (`numa_migrate_on`).
    migrate_on: bool,
}

/// State of NUMA balancing.
#[derive(Clone, Debug)]
pub(crate) struct NumaBalancing {
    pub(super) decisions: NumaDecisions,
    tunables: NumaTunables,
    hz: u64,
    /// Sample, move pages and look for places as Linux 4.9 did.
    rules_of_4_9: bool,
    pub(super) nodes: Nodes,
    tasks: Vec<NumaTaskState>,
    /// By task, then node.
    buffers: Vec<NodeBuffer>,
    statistics: Statistics,
    processes: Vec<ProcessState>,
    regions: Vec<RegionState>,
    /// Faults that are being looked at.
    faults: Vec<HintFault>,
    pub(super) cpus: Vec<NumaCpuState>,
}

impl NumaBalancing {
    /// The feature on a machine; `None` if it is switched off or there is one node.
    pub fn new(tunables: &NumaTunables, machine: &Machine, hz: u64, rules_of_4_9: bool) -> Option<Self> {
        let nodes = Nodes::new(machine);
        if tunables.numa_balancing == 0 || nodes.count() < 2 {
            return None;
        }
        Some(Self {
            decisions: NumaDecisions::default(),
            tunables: tunables.clone(),
            hz,
            rules_of_4_9,
            tasks: Vec::new(),
            buffers: Vec::new(),
            statistics: Statistics::new(nodes.count()),
            processes: Vec::new(),
            regions: Vec::new(),
            faults: Vec::new(),
            cpus: vec![NumaCpuState::default(); machine.cpu_count()],
            nodes,
        })
    }

    /// A task exists (`init_numa_balancing`). A thread keeps its creator's preferred node and waits before it scans, so that not all
    /// threads do at once.
    pub fn task_created(&mut self, core: &Core<'_>, task: TaskId, parent: Option<TaskId>) {
        let process = core.task(task).process();
        let jiffies = core.jiffies();
        let delay = self.jiffies_of(self.tunables.scan_delay_ms);
        if self.processes.len() <= process as usize {
            self.processes.resize(process as usize + 1, ProcessState::default());
        }
        let state = &mut self.processes[process as usize];
        let first = !std::mem::replace(&mut state.started, true);
        if first {
            state.next_scan = jiffies + delay;
        }
        let passes = state.passes;
        let creator = parent.map(|parent| &self.tasks[parent.index()]).filter(|creator| creator.process == process);
        let preferred = creator.map_or(NO_NODE, |creator| creator.preferred);
        let mut state = NumaTaskState {
            process,
            preferred,
            scan_period_ms: self.tunables.scan_delay_ms,
            scan_max_ms: self.tunables.scan_period_max_ms,
            scan_seq: passes,
            fault_cpu: NO_NODE,
            ..NumaTaskState::default()
        };
        if !first && !self.rules_of_4_9 {
            // The kernel compares milliseconds with nanoseconds here, so that the delay is two ticks and next to nothing.
            let longest = self.tunables.scan_period_max_ms;
            state.node_stamp_ns = longest + 2 * core.tick_ns();
        }
        self.tasks.push(state);
        self.buffers.extend(std::iter::repeat_n(NodeBuffer::EMPTY, self.nodes.count()));
        self.statistics.task_created();
        self.regions.resize(core.region_count(), RegionState { first_pass: passes, last_pass: passes.wrapping_sub(1) });
    }

    /// A task is gone (`task_numa_free`). Returns its total faults, in pages.
    pub fn task_exited(&mut self, task: TaskId) -> i64 {
        let state = &mut self.tasks[task.index()];
        state.exited = true;
        state.scan_pending = false;
        if let Some(plan) = state.planned.take() {
            self.cpus[plan.dst.index()].migrate_on = false;
        }
        self.statistics.task_exited(task.index())
    }

    /// A task's decayed hint faults, by node.
    pub(crate) fn faults_of(&self, task: usize) -> &[NodeFaults] {
        self.statistics.of_task(task)
    }

    /// Preferred node of a task, or [`NONE`](super::state::NONE).
    #[inline]
    pub fn preferred(&self, task: TaskId) -> u32 {
        self.tasks[task.index()].preferred
    }

    /// A task was queued (`account_numa_enqueue`).
    #[inline]
    pub fn enqueued(&mut self, cpu: CpuId, task: TaskId) {
        let preferred = self.tasks[task.index()].preferred;
        let rq = &mut self.cpus[cpu.index()];
        rq.nr_numa_running += u32::from(preferred != NO_NODE);
        rq.nr_preferred_running += u32::from(preferred == self.nodes.of(cpu));
    }

    /// A task has left its queue (`account_numa_dequeue`).
    #[inline]
    pub(crate) fn dequeued(&mut self, cpu: CpuId, task: TaskId) {
        let preferred = self.tasks[task.index()].preferred;
        let rq = &mut self.cpus[cpu.index()];
        rq.nr_numa_running -= u32::from(preferred != NO_NODE);
        rq.nr_preferred_running -= u32::from(preferred == self.nodes.of(cpu));
    }

    /// A task changes CPUs (`update_scan_period`): leaving its preferred node, or for another node before it has one, it is sampled
    /// afresh.
    pub fn migrated(&mut self, core: &Core<'_>, task: TaskId, from: CpuId, to: CpuId) {
        let (from, to) = (self.nodes.of(from), self.nodes.of(to));
        let index = task.index();
        let state = &self.tasks[index];
        if from == to || state.exited || !self.has_faults(task) {
            return;
        }
        if self.rules_of_4_9 {
            // Only a search that found a place did that, before 4.18.
            return;
        }
        let keeps = to == state.preferred || (state.preferred != NO_NODE && from != state.preferred);
        if state.scan_seq > 0 && keeps {
            return;
        }
        self.tasks[index].scan_period_ms = self.scan_start_ms(core, index);
    }

    /// Whether a task has had hint faults.
    #[inline]
    fn has_faults(&self, task: TaskId) -> bool {
        self.tasks[task.index()].fault_cpu != NO_NODE
    }
}
