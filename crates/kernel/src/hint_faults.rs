//! Hint faults: which marked pages a running task touches, what that costs, and where the pages go (`change_prot_numa`,
//! `do_numa_page`, `migrate_misplaced_folio`; `docs/spec/linux-fair.md` sections 7.1, 7.2, 7.6).
//!
//! The kernel knows what memory there is and who touches it ([`pages`](crate::pages)); a policy knows neither. It marks part of a
//! process's memory ([`Core::mark_pages`]), takes the faults that follow ([`Core::take_hint_faults`]) and answers each
//! ([`Core::answer_hint_fault`]) with how many of its pages are to move. Nothing here decides anything.
//!
//! Faults are expectations over the run time since the last call, numbers of pages and not single events, and so may be fractions.
//! A policy calls for them where it accounts for run time: at ticks and when a task stops running.

use warmcore_topology::CpuId;
use warmcore_trace::{OverheadKind, TaskId};

use crate::core::Core;
use crate::pages::{LastTouch, NO_NODE, Pages, RegionId, Use};

/// Nanoseconds of a hint fault that leaves the page where it is. Assumed.
const FAULT_NS: f64 = 1_000.0;

/// Nanoseconds to move a page: copy, unmapping everywhere, remapping. Assumed.
const MOVE_PAGE_NS: f64 = 3_000.0;

/// Nanoseconds to make one page inaccessible, the TLB flush included. Assumed.
const MARK_PAGE_NS: f64 = 20.0;

/// Hint faults of a task on pages of one region and one node.
#[derive(Clone, Copy, Debug)]
pub struct HintFault {
    /// The region.
    pub region: RegionId,
    /// Number of the region among those that the task uses, from 0.
    pub position: usize,
    /// Node the pages are on.
    pub home: u32,
    /// How many pages; may be a fraction.
    pub pages: f64,
    /// Who touched them last in hint faults, as shares (`page_cpupid_last`).
    pub last: LastTouch,
}

/// What hint faults of a task have to do with its run time.
#[derive(Clone, Debug)]
pub(crate) struct Touches {
    /// Run time up to which its touches are accounted for.
    settled_ns: u64,
    /// Time of faults and moved pages to charge its CPU with when it returns to user mode.
    owed_ns: f64,
    /// Time charged that its run time will contain.
    charged_ns: u64,
    /// Node of its last fault, or [`NO_NODE`].
    last_node: u32,
    /// What it touches is of interest: it is new, or some of its pages are marked.
    watched: bool,
    /// It was not until a moment ago.
    stale: bool,
}

impl Touches {
    /// Those of a new task.
    pub const NEW: Self =
        Self { settled_ns: 0, owed_ns: 0.0, charged_ns: 0, last_node: NO_NODE, watched: true, stale: false };
}

/// Pages of a region that a task uses are elsewhere than the memory knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomeChange {
    pub task: TaskId,
    pub region: RegionId,
    /// Classes of the task's profile that are in it, as bits.
    pub classes: u32,
}

impl Core<'_> {
    /// Whether pages have homes to choose from and are known: the machine has several nodes, and some task of the workload says what
    /// memory it uses. If not, there is no region, and nothing faults.
    pub fn knows_pages(&self) -> bool {
        self.pages.is_some() && self.machine.node_count() > 1
    }

    /// Regions created so far.
    pub fn region_count(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.regions.len())
    }

    /// Regions of a process in the order of their addresses (`mm->mm_mt`).
    pub fn regions_of(&self, process: u32) -> &[RegionId] {
        self.pages.as_ref().map_or(&[], |pages| pages.of_process(process))
    }

    /// Size of a region in pages of [`PAGE_BYTES`](crate::PAGE_BYTES).
    pub fn region_pages(&self, region: RegionId) -> f64 {
        self.known_pages().region(region).size
    }

    /// Whether the kernel may mark and move a region's pages (`vma_migratable`, `vma_policy_mof`): those with a policy of their own are
    /// left alone.
    pub fn is_migratable(&self, region: RegionId) -> bool {
        self.known_pages().is_migratable(region)
    }

    /// Whether a task uses a region (`vma_is_accessed`).
    pub fn uses_region(&self, task: TaskId, region: RegionId) -> bool {
        self.known_pages().uses(task.index()).iter().any(|used| used.region == region)
    }

    /// Pages of a process that have a home (its resident set, `get_mm_rss`); 0 on a machine of one node, unless the policy says that it
    /// reads them ([`Scheduler::reads_resident_pages`](crate::Scheduler::reads_resident_pages)).
    pub fn resident_pages(&self, process: u32) -> f64 {
        self.pages.as_ref().map_or(0.0, |pages| pages.resident(process))
    }

    /// Makes so many consecutive pages of a region inaccessible, from page `begin` on, so that touches of them fault
    /// (`change_prot_numa`). Returns how many were there and accessible.
    pub fn mark_pages(&mut self, region: RegionId, begin: f64, pages: f64) -> f64 {
        let known = self.pages.as_mut().expect("a region has pages");
        let newly = known.mark(region, begin, pages);
        if newly > 0.0 {
            for &user in &known.region(region).users {
                let touches = &mut self.touches[user as usize];
                touches.stale |= !touches.watched;
                touches.watched = true;
            }
        }
        newly
    }

    /// Charges a task's CPU with the time of marking so many pages. Returns that time.
    pub fn charge_marking(&mut self, task: TaskId, pages: f64) -> u64 {
        let cost_ns = (pages * MARK_PAGE_NS) as u64;
        self.touches[task.index()].charged_ns += cost_ns;
        self.charge(self.task(task).cpu(), cost_ns, OverheadKind::Numa);
        cost_ns
    }

    /// Whether a task may take hint faults.
    #[inline]
    pub fn may_fault(&self, task: TaskId) -> bool {
        self.touches.get(task.index()).is_some_and(|touches| touches.watched)
    }

    /// The hint faults that the task which runs on `cpu`, or just did, took since this was called last; `sum_exec_ns` is its run time as
    /// the policy accounts for it (`sum_exec_runtime`). They replace what `faults` has, by region and then by node; each is to be
    /// answered. The time they take limits how many come at once: what is left comes later. Whether there were marked pages that it
    /// could have touched.
    pub fn take_hint_faults(
        &mut self,
        cpu: CpuId,
        task: TaskId,
        sum_exec_ns: u64,
        faults: &mut Vec<HintFault>,
    ) -> bool {
        faults.clear();
        let index = task.index();
        let Some(pages) = &mut self.pages else { return false };
        let touches = &mut self.touches[index];
        if std::mem::take(&mut touches.stale) {
            // Since when it has been of interest what it touches is not known; for less than a tick.
            (touches.settled_ns, touches.charged_ns) = (sum_exec_ns, 0);
            return false;
        }
        let elapsed_ns = sum_exec_ns - touches.settled_ns;
        touches.settled_ns = sum_exec_ns;
        // Faults and scans take run time in which nothing is touched.
        let overhead_ns = elapsed_ns.min(touches.charged_ns);
        touches.charged_ns -= overhead_ns;
        let useful_ns = elapsed_ns - overhead_ns;
        if useful_ns == 0 {
            return false;
        }
        if !pages.uses_marked(index) {
            touches.watched = false;
            return false;
        }
        let here = self.machine.node_of(cpu).0;
        let share = share_of_tick(pages, index, here, useful_ns, self.tick_ns);
        for position in 0..pages.uses(index).len() {
            let used = pages.uses(index)[position];
            if pages.region(used.region).marked <= 0.0 {
                continue;
            }
            let reach = pages.reach(used, useful_ns);
            let last = pages.last_touch(used, here, touches.last_node);
            let mut faulted = 0.0;
            for home in 0..self.machine.node_count() as u32 {
                let count = pages.fault(used.region, home, reach * share);
                if count > 0.0 {
                    faulted += count;
                    faults.push(HintFault { region: used.region, position, home, pages: count, last });
                }
            }
            pages.note_touch(used, here, faulted);
        }
        touches.last_node = here;
        true
    }

    /// Answers a hint fault of the task that runs on `cpu`, or just did: so many of its pages move to that CPU's node
    /// (`migrate_misplaced_folio`), as far as they are still where they were; the rest stays. The task's time for both is owed; see
    /// [`Core::charge_hint_faults`].
    pub fn answer_hint_fault(&mut self, cpu: CpuId, task: TaskId, fault: &HintFault, moved: f64) {
        let here = self.machine.node_of(cpu);
        let moved = if self.machine.node_has_memory(here) { moved } else { 0.0 };
        let touches = &mut self.touches[task.index()];
        touches.owed_ns += fault.pages * FAULT_NS + moved * MOVE_PAGE_NS;
        if moved <= 0.0 {
            return;
        }
        let pages = self.pages.as_mut().expect("a fault has pages");
        let used = pages.uses(task.index())[fault.position];
        pages.migrate(task.index(), fault.region, fault.home, here.0, moved);
        if self.memory_modelled {
            self.home_changes.push(HomeChange { task, region: fault.region, classes: used.classes });
        }
    }

    /// Whether a task owes its CPU time for hint faults.
    pub fn owes_hint_faults(&self, task: TaskId) -> bool {
        self.touches.get(task.index()).is_some_and(|touches| touches.owed_ns >= 1.0)
    }

    /// Charges the task's CPU with the time of its hint faults and moved pages: when it returns to user mode.
    pub fn charge_hint_faults(&mut self, task: TaskId) {
        let touches = &mut self.touches[task.index()];
        let owed_ns = std::mem::take(&mut touches.owed_ns) as u64;
        touches.charged_ns += owed_ns;
        self.charge(self.task(task).cpu(), owed_ns, OverheadKind::Numa);
    }

    /// Tasks that use a region, living or not, each with how many of its pages it touched last in a hint fault, in the order in
    /// which they began to use it.
    pub fn users_of(&self, region: RegionId) -> impl Iterator<Item = (TaskId, f64)> + '_ {
        let pages = self.known_pages();
        let users = pages.region(region).users.iter().enumerate();
        users.map(move |(number, &task)| (TaskId(task), pages.held_by(region, number as u32)))
    }

    /// How many tasks have used a region.
    pub fn user_count(&self, region: RegionId) -> usize {
        self.known_pages().region(region).users.len()
    }

    fn known_pages(&self) -> &Pages {
        self.pages.as_ref().expect("a region has pages")
    }

    /// A task was created: its memory, as its template says.
    pub(crate) fn pages_of_new_task(&mut self, task: TaskId) {
        if let Some(pages) = &mut self.pages {
            let state = &self.tasks[task.index()];
            pages.task_created(state.template, state.process);
            self.touches.push(Touches::NEW);
        }
    }

    /// A task is gone.
    pub(crate) fn pages_of_dead_task(&mut self, task: TaskId) {
        if let Some(pages) = &mut self.pages {
            pages.task_exited(task.index(), self.tasks[task.index()].process);
        }
    }

    /// A task begins to run for the first time: its pages get homes. A kernel gives them when they are touched, so that a task which goes
    /// elsewhere before it works takes them along: `from` is where it was.
    #[cold]
    pub(crate) fn touch_pages_first(&mut self, from: Option<CpuId>, cpu: CpuId, task: TaskId) {
        let Some(pages) = &mut self.pages else { return };
        let machine = self.machine;
        let node_for = |cpu| machine.allocation_node(machine.node_of(cpu)).0;
        match from {
            None => pages.first_touch(task.index(), node_for(cpu)),
            Some(from) => pages.touch_elsewhere(task.index(), node_for(from), node_for(cpu)),
        }
        // On one node there is nothing to tell.
        if self.memory_modelled && machine.node_count() > 1 {
            let uses = pages.uses(task.index()).iter();
            self.home_changes.extend(uses.map(|&Use { region, classes, .. }| HomeChange { task, region, classes }));
        }
    }
}

/// How much of its faults a task can take in the time it has: they cost at most as much as a tick, what is left comes later.
fn share_of_tick(pages: &Pages, task: usize, here: u32, useful_ns: u64, tick_ns: u64) -> f64 {
    let mut cost_ns = 0.0;
    for &used in pages.uses(task) {
        if pages.region(used.region).marked > 0.0 {
            let reach = pages.reach(used, useful_ns);
            let marked = pages.marked(used.region).iter().enumerate();
            let costs = marked
                .map(|(home, pages)| pages * if home == here as usize { FAULT_NS } else { FAULT_NS + MOVE_PAGE_NS });
            cost_ns += reach * costs.sum::<f64>();
        }
    }
    if cost_ns > tick_ns as f64 { tick_ns as f64 / cost_ns } else { 1.0 }
}
