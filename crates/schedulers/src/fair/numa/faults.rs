//! Hint faults: which marked pages a running thread touches, what it learns from them, and which of them move to its node
//! (`task_numa_fault`, `task_numa_placement`, `should_numa_migrate_memory`; `docs/spec/linux-fair.md` sections 7.1,
//! 7.2, 7.5).
//!
//! A thread's faults are settled at its ticks and when it stops running, as expectations over the run time in between.

use warmcore_kernel::{Core, HintFault, LastTouch};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::groups::{NodeFaults, PRIVATE, SHARED};
use super::{NO_NODE, NodeBuffer, NumaBalancing};

/// Passes in which private pages and those touched first move at the first fault.
const EARLY_PASSES: u32 = 4;

/// Looks for a place on the preferred node per scan period.
const RETRIES_PER_PERIOD: u64 = 16;

/// Load averages of an always running task, in the kernel's units (`LOAD_AVG_MAX`).
const LOAD_AVG_MAX: f64 = 47_742.0;

/// What the scheduler knows of a running task.
#[derive(Clone, Copy, Debug)]
pub(in crate::fair) struct Running {
    pub task: TaskId,
    pub cpu: CpuId,
    pub sum_exec_ns: u64,
    /// Load average, 0 to 1024.
    pub load: f64,
    /// It counts in the CPU's queue.
    pub queued: bool,
}

/// What came of settling.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::fair) struct Settled {
    /// Change of the task's total faults, in pages.
    pub footprint_change: i64,
    /// The task is to look for a better place when it returns to user mode.
    pub look: bool,
}

impl NumaBalancing {
    /// Takes a task's hint faults since this was called last, decides which of their pages move, and learns from them.
    pub(in crate::fair) fn settle(&mut self, core: &mut Core<'_>, running: Running) -> Settled {
        let index = running.task.index();
        let mut settled = Settled::default();
        let mut faults = std::mem::take(&mut self.faults);
        if core.take_hint_faults(running.cpu, running.task, running.sum_exec_ns, &mut faults) {
            self.tasks[index].fault_cpu = running.cpu.0;
        }
        let here = self.nodes.of(running.cpu);
        for of_region in faults.chunk_by(|a, b| a.position == b.position) {
            for fault in of_region {
                if self.is_retry_due(index, core.jiffies(), fault.pages) {
                    settled.footprint_change += self.place(core, running);
                    settled.look |= self.retry(index, here, core.jiffies());
                }
                let moved = self.record(index, fault, here);
                core.answer_hint_fault(running.cpu, running.task, fault, moved);
            }
            if of_region[0].last.others_here + of_region[0].last.others_elsewhere > 0.0 {
                self.meet(core, index, &of_region[0]);
            }
        }
        self.faults = faults;
        settled
    }

    /// Whether a whole fault has come together, and it is time for a look at the statistics.
    fn is_retry_due(&mut self, index: usize, jiffies: u64, pages: f64) -> bool {
        let state = &mut self.tasks[index];
        state.part_of_fault += pages;
        if state.part_of_fault < 1.0 {
            return false;
        }
        state.part_of_fault %= 1.0;
        jiffies > state.migrate_retry
    }

    /// Whether a task should look for a place on its preferred node now (`numa_migrate_preferred`); if it has one, sets the time
    /// of the next look.
    fn retry(&mut self, index: usize, here: u32, jiffies: u64) -> bool {
        let interval = (self.jiffies_of(self.tasks[index].scan_period_ms) / RETRIES_PER_PERIOD).min(self.hz);
        let state = &mut self.tasks[index];
        if state.preferred == NO_NODE {
            return false;
        }
        state.migrate_retry = jiffies + interval;
        state.preferred != here
    }

    /// Counts faults, made on node `here`. Returns how many of their pages are to move there.
    fn record(&mut self, index: usize, fault: &HintFault, here: u32) -> f64 {
        let &HintFault { home, pages, last, .. } = fault;
        let moved = if home == here { 0.0 } else { pages * self.accepted(index, &last, home, here) };
        // A page nobody has touched counts as the thread's own.
        let private = (last.nobody + last.self_here + last.self_elsewhere).clamp(0.0, 1.0);
        let buffers = &mut self.buffers[index * self.nodes.count()..][..self.nodes.count()];
        for (kind, share) in [(PRIVATE, private), (SHARED, 1.0 - private)] {
            buffers[here as usize].mem[kind] += moved * share;
            buffers[home as usize].mem[kind] += (pages - moved) * share;
            buffers[here as usize].cpu[kind] += pages * share;
        }
        // Within the nodes that its group uses, what is shared counts as local.
        let settled = self.statistics.active_nodes(index) > 1
            && self.statistics.is_active(index, here)
            && self.statistics.is_active(index, home);
        let local = if home == here {
            pages
        } else if settled {
            pages * (1.0 - private)
        } else {
            0.0
        };
        let state = &mut self.tasks[index];
        state.locality[0] += pages - local;
        state.locality[1] += local;
        state.pages_moved += moved;
        moved
    }

    /// Share of faults on pages of another node after which the page moves here (`should_numa_migrate_memory`).
    fn accepted(&self, index: usize, last: &LastTouch, home: u32, here: u32) -> f64 {
        let state = &self.tasks[index];
        // Since 5.0.
        let early = !self.rules_of_4_9 && (state.preferred == NO_NODE || state.scan_seq <= EARLY_PASSES);
        let own = if early { last.nobody + last.self_here + last.self_elsewhere } else { last.self_here };
        let contested = last.others_here + if early { 0.0 } else { last.nobody };
        let wanted = contested > 0.0 && self.statistics.wants_memory(index, home, here);
        (own + if wanted { contested } else { 0.0 }).clamp(0.0, 1.0)
    }

    /// A task found pages that others touched last: those of them that are running where they did so and it share a group from now
    /// on. Pages of several processes are shared mappings here, which join groups as threads do.
    fn meet(&mut self, core: &Core<'_>, index: usize, fault: &HintFault) {
        let users = core.user_count(fault.region) as u32;
        let known = &mut self.tasks[index].joined;
        if known.len() <= fault.position {
            known.resize(fault.position + 1, 0);
        }
        if known[fault.position] == users {
            return;
        }
        self.statistics.found_group(index);
        let mut together = true;
        for (other, touched) in core.users_of(fault.region) {
            let state = &self.tasks[other.index()];
            if other.index() == index || state.exited {
                continue;
            }
            let there = state.fault_cpu != NO_NODE && core.curr(CpuId(state.fault_cpu)) == other;
            if touched >= 1.0 && there {
                self.statistics.join(index, other.index());
            }
            together &= self.statistics.group_of(other.index()) == self.statistics.group_of(index);
        }
        if together {
            self.tasks[index].joined[fault.position] = users;
        }
    }

    /// Brings a task's statistics up to date after a pass over its process's memory and chooses its preferred node
    /// (`task_numa_placement`). Returns the change of its total faults.
    fn place(&mut self, core: &mut Core<'_>, running: Running) -> i64 {
        let index = running.task.index();
        let passes = self.processes[self.tasks[index].process as usize].passes;
        if self.tasks[index].scan_seq == passes {
            return 0;
        }
        self.tasks[index].scan_seq = passes;
        self.tasks[index].scan_max_ms = self.scan_max_ms(core, index);
        let before = self.statistics.total(index);
        let run_share = self.run_share(core.now_ns(), running);
        let kinds = self.decay(index, run_share);
        let (mut most, mut most_faults) = (NO_NODE, 0);
        for node in 0..self.nodes.count() as u32 {
            let faults = self.statistics.deciding(index, node);
            if faults > most_faults {
                (most, most_faults) = (node, faults);
            }
        }
        if self.statistics.group_of(index) != NO_NODE {
            self.statistics.count_active_nodes(index);
            if most != NO_NODE {
                most = self.nodes.preferred_of_group(most, |node| self.statistics.deciding(index, node));
            }
        }
        if most != NO_NODE && most != self.tasks[index].preferred {
            let first = self.tasks[index].preferred == NO_NODE;
            let why = if first { self.decisions.preferred_chosen } else { self.decisions.preferred_changed };
            self.set_preferred(running.task, most, running.queued.then_some(running.cpu));
            core.decide(why, running.task, i64::from(most));
        }
        let moved = std::mem::take(&mut self.tasks[index].pages_moved);
        if moved >= 1.0 {
            core.decide(self.decisions.pages_moved, running.task, moved as i64);
        }
        self.adapt_period(core, index, kinds);
        self.statistics.total(index) - before
    }

    /// Share of the time since its last placement in which a task ran, times 2^16 (`numa_get_avg_runtime`).
    fn run_share(&mut self, now_ns: u64, running: Running) -> i64 {
        let state = &mut self.tasks[running.task.index()];
        let run_ns = running.sum_exec_ns - state.placed_exec_ns;
        let period_ns = now_ns - state.placed_ns;
        let first = state.placed_ns == 0;
        (state.placed_ns, state.placed_exec_ns) = (now_ns, running.sum_exec_ns);
        if first {
            let run = (running.load / 1024.0 * LOAD_AVG_MAX) as i64;
            (run << 16) / (LOAD_AVG_MAX as i64 + 1)
        } else {
            ((u128::from(run_ns) << 16) / (u128::from(period_ns) + 1)) as i64
        }
    }

    /// Halves the statistics and adds what was counted since. Returns the new shared and private faults.
    fn decay(&mut self, index: usize, run_share: i64) -> [i64; 2] {
        let faults = self.tasks[index].locality.iter().sum::<f64>() as i64;
        let mut kinds = [0; 2];
        for node in 0..self.nodes.count() {
            let buffer = std::mem::take(&mut self.buffers[index * self.nodes.count() + node]);
            let old = self.statistics.of_task(index)[node];
            let mut change = NodeFaults::default();
            for kind in [SHARED, PRIVATE] {
                let new = buffer.mem[kind] as i64;
                kinds[kind] += new;
                change.mem[kind] = new - old.mem[kind] / 2;
                let weighted = run_share * buffer.cpu[kind] as i64 / (faults + 1);
                change.cpu[kind] = weighted - old.cpu[kind] / 2;
            }
            self.statistics.change(index, node, &change);
        }
        kinds
    }

    /// Gives a task another preferred node (`sched_setnuma`); `queued_on` is the CPU in whose queue it counts.
    pub(super) fn set_preferred(&mut self, task: TaskId, node: u32, queued_on: Option<CpuId>) {
        if let Some(cpu) = queued_on {
            self.dequeued(cpu, task);
        }
        self.tasks[task.index()].preferred = node;
        if let Some(cpu) = queued_on {
            self.enqueued(cpu, task);
        }
    }
}

impl NodeBuffer {
    /// Nothing counted.
    pub const EMPTY: Self = Self { mem: [0.0; 2], cpu: [0.0; 2] };
}
