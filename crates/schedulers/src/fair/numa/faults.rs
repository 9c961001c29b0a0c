//! Hint faults: which marked pages a running thread touches, what it learns from them, and which of them move to its node
//! (`task_numa_fault`, `task_numa_placement`, `should_numa_migrate_memory`; `docs/spec/linux-fair.md` sections 7.1,
//! 7.2, 7.5).
//!
//! A thread's faults are settled at its ticks and when it stops running, as expectations over the run time in between.

use warmcore_kernel::{Core, PageMove};
use warmcore_topology::{CpuId, NodeId};
use warmcore_trace::TaskId;

use super::decisions::Decision;
use super::groups::{NodeFaults, PRIVATE, SHARED};
use super::pages::{LastTouch, NO_NODE, Use};
use super::{NodeBuffer, NumaBalancing};

/// Nanoseconds of a hint fault that leaves the page where it is. Assumed.
const FAULT_NS: f64 = 1_000.0;

/// Nanoseconds to move a page: copy, unmapping everywhere, remapping. Assumed.
const MOVE_PAGE_NS: f64 = 3_000.0;

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
    /// Accounts for what a task touched since this was called last.
    pub(in crate::fair) fn settle(&mut self, core: &mut Core<'_>, running: Running) -> Settled {
        let index = running.task.index();
        let state = &mut self.tasks[index];
        if std::mem::take(&mut state.stale) {
            // Since when it has been of interest what it touches is not known; for less than a tick.
            (state.settled_ns, state.charged_ns) = (running.sum_exec_ns, 0);
            return Settled::default();
        }
        let elapsed_ns = running.sum_exec_ns - state.settled_ns;
        state.settled_ns = running.sum_exec_ns;
        // Faults and scans take run time in which nothing is touched.
        let overhead_ns = elapsed_ns.min(state.charged_ns);
        state.charged_ns -= overhead_ns;
        let useful_ns = elapsed_ns - overhead_ns;
        let process = state.process;
        let mut settled = Settled::default();
        if useful_ns == 0 {
            return settled;
        }
        let here = self.nodes.of(running.cpu);
        self.pages.first_touch(index, here);
        if !self.pages.is_touch_of_interest(index) {
            self.tasks[index].attentive = false;
            return settled;
        }
        self.tasks[index].fault_cpu = running.cpu.0;
        let share = self.share_of_tick(index, here, useful_ns, core.tick_ns());
        for position in 0..self.pages.uses(index).len() {
            let used = self.pages.uses(index)[position];
            let reach = self.pages.reach(used, useful_ns);
            if self.pages.region(used.region).marked <= 0.0 {
                continue;
            }
            let last = self.pages.last_touch(used, here, self.tasks[index].last_fault_node);
            let mut faulted = 0.0;
            for home in 0..self.nodes.count() as u32 {
                let pages = self.pages.fault(used.region, home, reach * share);
                if pages <= 0.0 {
                    continue;
                }
                faulted += pages;
                if self.is_retry_due(index, core.jiffies(), pages) {
                    settled.footprint_change += self.place(core, running);
                    settled.look |= self.retry(index, here, core.jiffies());
                }
                self.record(core, index, used, &last, (home, here), pages);
            }
            self.pages.note_touch(used, here, faulted);
            if faulted > 0.0 && last.others_here + last.others_elsewhere > 0.0 {
                self.meet(core, index, position, process);
            }
        }
        self.tasks[index].last_fault_node = here;
        settled
    }

    /// How much of its faults a thread can take in the time it has: they cost at most as much as a tick, what is left comes later.
    fn share_of_tick(&self, index: usize, here: u32, useful_ns: u64, tick_ns: u64) -> f64 {
        let mut cost_ns = 0.0;
        for &used in self.pages.uses(index) {
            if self.pages.region(used.region).marked > 0.0 {
                let reach = self.pages.reach(used, useful_ns);
                let marked = self.pages.marked(used.region).iter().enumerate();
                let costs = marked.map(|(home, pages)| {
                    pages * if home == here as usize { FAULT_NS } else { FAULT_NS + MOVE_PAGE_NS }
                });
                cost_ns += reach * costs.sum::<f64>();
            }
        }
        if cost_ns > tick_ns as f64 { tick_ns as f64 / cost_ns } else { 1.0 }
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

    /// Faults on pages of one home, made on another node (or the same): moves those that should, and counts all.
    fn record(
        &mut self,
        core: &mut Core<'_>,
        index: usize,
        used: Use,
        last: &LastTouch,
        (home, here): (u32, u32),
        pages: f64,
    ) {
        let moved = if home == here { 0.0 } else { pages * self.accepted(index, last, home, here) };
        if moved > 0.0 {
            self.move_pages(core, index, used, (home, here), moved);
        }
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
        state.owed_ns += pages * FAULT_NS + moved * MOVE_PAGE_NS;
    }

    /// Moves pages of a region, and tells the memory: the private ones as a share of all of the task's private pages, for the memory
    /// has one home for them.
    fn move_pages(&mut self, core: &mut Core<'_>, index: usize, used: Use, (home, here): (u32, u32), pages: f64) {
        let moved = self.pages.migrate(used.region, home, here, pages);
        let (task, from, to) = (TaskId(index as u32), NodeId(home), NodeId(here));
        if self.pages.is_private(used.region) {
            let share = moved / self.pages.private_migratable(index).max(1.0);
            core.move_pages(PageMove { task, class: None, from, to, share });
            return;
        }
        let share = moved / self.pages.region(used.region).size.max(1.0);
        let mut classes = used.classes;
        while classes != 0 {
            core.move_pages(PageMove { task, class: Some(classes.trailing_zeros()), from, to, share });
            classes &= classes - 1;
        }
    }

    /// Share of faults on pages of another node after which the page moves here (`should_numa_migrate_memory`).
    fn accepted(&self, index: usize, last: &LastTouch, home: u32, here: u32) -> f64 {
        let state = &self.tasks[index];
        let early = state.preferred == NO_NODE || state.scan_seq <= EARLY_PASSES;
        let own = if early { last.nobody + last.self_here + last.self_elsewhere } else { last.self_here };
        let contested = last.others_here + if early { 0.0 } else { last.nobody };
        let wanted = contested > 0.0 && self.statistics.wants_memory(index, home, here);
        (own + if wanted { contested } else { 0.0 }).clamp(0.0, 1.0)
    }

    /// A task found pages that others touched last: those of them that are running where they did so and it share a group from now
    /// on.
    fn meet(&mut self, core: &Core<'_>, index: usize, position: usize, process: u32) {
        let used = self.pages.uses(index)[position];
        let users = self.pages.region(used.region).users.len();
        if used.joined as usize == users {
            return;
        }
        self.statistics.found_group(index);
        let mut together = true;
        for number in 0..users {
            let other = self.pages.region(used.region).users[number] as usize;
            if other == index || self.tasks[other].exited {
                continue;
            }
            let touched = self.pages.held_by(used.region, number as u32) >= 1.0;
            let state = &self.tasks[other];
            let there = state.fault_cpu != NO_NODE && core.curr(CpuId(state.fault_cpu)).index() == other;
            // Pages of several processes are shared mappings here, which join groups as threads do.
            debug_assert!(state.process == process || self.pages.is_data(used.region));
            if touched && there {
                self.statistics.join(index, other);
            }
            together &= self.statistics.group_of(other) == self.statistics.group_of(index);
        }
        if together {
            self.pages.uses_mut(index)[position].joined = users as u32;
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
        self.tasks[index].scan_max_ms = self.scan_max_ms(index);
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
            let why = if first { Decision::PreferredChosen } else { Decision::PreferredChanged };
            self.set_preferred(running.task, most, running.queued.then_some(running.cpu));
            core.decide(why as u32, running.task, i64::from(most));
        }
        let moved = std::mem::take(&mut self.tasks[index].pages_moved);
        if moved >= 1.0 {
            core.decide(Decision::PagesMoved as u32, running.task, moved as i64);
        }
        self.adapt_period(index, kinds, core.jiffies());
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
