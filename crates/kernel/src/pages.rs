//! Pages of the workload's processes: what memory there is, who touches it how often, on which node it is, and who touched
//! it last. This is the only place that knows where pages are: the memory model is told of homes, and a policy sees hint faults
//! ([`hint_faults`](crate::hint_faults)).
//!
//! Memory is divided into regions: the classes of a task's memory profile, private ones by task, shared ones by process or data
//! group. The pages of a region are alike: which of them a thread touches next is random, so everything about them is a number of
//! pages, and every flow an expectation. Nothing is drawn by lot.
//!
//! Source: `docs/spec/linux-fair.md` section 7.6, `docs/spec/memory-model.md` sections 2 and 4.6. Not modelled: huge
//! pages (every page is one of 4 KiB), nodes that run out of memory, files, pages that a process gives back before it
//! ends, mappings that come later than their users.

use warmcore_memory::math::exp;
use warmcore_memory::{ClassKind, Home, NOMINAL_INSTRUCTIONS_PER_NS, Sharing};
use warmcore_topology::Machine;
use warmcore_workload::{Task, TaskTemplateId, Workload};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// A region of memory: pages that are alike, such as a thread's heap or a table that threads share. Numbered in order of
/// creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RegionId(pub u32);

impl RegionId {
    /// For tables by region.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Lines of a page that a scan touches one after the other.
const LINES_PER_PAGE: f64 = 64.0;

/// Touches per nanosecond of data that a task uses without a profile that says how often: ten per thousand instructions. Assumed.
const DEFAULT_TOUCHES_PER_NS: f64 = 0.01;

/// How little of the pages' memory of who touched them last may be left before the scale is carried into the numbers.
const SMALLEST_SCALE: f64 = 1e-9;

/// A region's state.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// Pages when all of it has been touched.
    pub size: f64,
    /// Users that have run: each brings an equal part of the pages to the node where it did first.
    touched_by: u32,
    /// Its pages have homes from the start.
    placed: bool,
    /// Pages that the scanner has made inaccessible and nobody has touched since.
    pub marked: f64,
    /// Tasks that use it, living or not; a use has its number here.
    pub users: Vec<u32>,
    /// Pages last touched in a hint fault by each user, and by anybody from each node; in units of `scale`.
    by_user: Vec<f64>,
    by_node: Vec<f64>,
    scale: f64,
    /// Process, class and data group it stands for, to find it again.
    key: Key,
}

/// What a shared region is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    Private,
    Class { process: u32, name: String },
    Data { group: u32 },
}

/// A task's use of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub region: RegionId,
    /// The task's number among the region's users.
    pub user: u32,
    /// Page visits per nanosecond of run time.
    pub visits_per_ns: f64,
    /// Classes of the task's profile that are in it, as bits.
    pub classes: u32,
}

/// Who touched a page last, as shares of a region's pages that sum to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastTouch {
    /// Nobody in a hint fault.
    pub nobody: f64,
    /// The task itself, from the node it is on.
    pub self_here: f64,
    /// The task itself, from others.
    pub self_elsewhere: f64,
    /// Other tasks, from that node.
    pub others_here: f64,
    /// Other tasks, from others.
    pub others_elsewhere: f64,
}

/// All regions of a run.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    nodes: usize,
    /// By node: whether pages can be there.
    has_memory: Vec<bool>,
    pub regions: Vec<Region>,
    /// By region, then node: pages there, and how many of those are marked.
    homes: Vec<f64>,
    marked: Vec<f64>,
    /// By region, then node, and for private memory by task, then node: `homes` as shares. Running sums of what was touched first and
    /// moved.
    shares: Vec<f64>,
    private_shares: Vec<f64>,
    /// By region, then node: pages in the part that the present pass has not come to yet.
    ahead: Vec<f64>,
    /// By task: what it uses. By process: regions in the order of their addresses.
    uses: Vec<Vec<Use>>,
    of_process: Vec<Vec<RegionId>>,
    /// By task template: the memory its tasks need.
    templates: Vec<Vec<Need>>,
}

/// Memory that a task of a template needs.
#[derive(Clone, Debug)]
struct Need {
    key: Key,
    bytes: u64,
    home: Home,
    visits_per_ns: f64,
    classes: u32,
}

impl Pages {
    /// Nothing yet, for a workload on a machine; `None` if no task says what memory it uses.
    pub fn new(workload: &Workload, machine: &Machine) -> Option<Self> {
        let templates: Vec<Vec<Need>> = workload.tasks.iter().map(|task| needs_of(workload, task)).collect();
        templates.iter().any(|needs| !needs.is_empty()).then(|| Self {
            nodes: machine.node_count(),
            has_memory: machine.nodes().map(|node| machine.node_has_memory(node)).collect(),
            regions: Vec::new(),
            homes: Vec::new(),
            marked: Vec::new(),
            shares: Vec::new(),
            private_shares: Vec::new(),
            ahead: Vec::new(),
            uses: Vec::new(),
            of_process: vec![Vec::new(); workload.processes.len()],
            templates,
        })
    }

    /// The next task exists: its private regions appear, and shared ones with their first user.
    pub fn task_created(&mut self, template: TaskTemplateId, process: u32) {
        let task = self.uses.len() as u32;
        self.uses.push(Vec::new());
        self.private_shares.extend(std::iter::repeat_n(0.0, self.nodes));
        // Kernel threads have no template, and no memory of their own.
        let needs = self.templates.get(template.index()).map_or(0, Vec::len);
        for number in 0..needs {
            let need = &self.templates[template.index()][number];
            let (visits_per_ns, classes) = (need.visits_per_ns, need.classes);
            let shared = need.key != Key::Private;
            let known = self.regions.iter().position(|region| shared && region.key == need.key);
            let region = RegionId(known.unwrap_or_else(|| self.create(template, number)) as u32);
            let regions = &mut self.of_process[process as usize];
            if !regions.contains(&region) {
                regions.push(region);
            }
            self.add_use(task, region, visits_per_ns, classes);
        }
    }

    fn create(&mut self, template: TaskTemplateId, number: usize) -> usize {
        let need = &self.templates[template.index()][number];
        let size = need.bytes.div_ceil(PAGE_BYTES).max(1) as f64;
        let mut homes = vec![0.0; self.nodes];
        match &need.home {
            Home::FirstTouch => {}
            Home::Interleave => {
                let with = homes.iter_mut().zip(&self.has_memory).filter(|(_, has)| **has);
                let count = self.has_memory.iter().filter(|has| **has).count();
                with.for_each(|(pages, _)| *pages = size / count as f64);
            }
            Home::Shares(shares) => homes.iter_mut().zip(shares).for_each(|(pages, share)| *pages = size * share),
        }
        let placed = need.home != Home::FirstTouch;
        self.homes.extend(homes);
        self.marked.extend(std::iter::repeat_n(0.0, self.nodes));
        self.ahead.extend(std::iter::repeat_n(0.0, self.nodes));
        self.shares.extend(std::iter::repeat_n(0.0, self.nodes));
        self.regions.push(Region {
            size,
            touched_by: 0,
            placed,
            marked: 0.0,
            users: Vec::new(),
            by_user: Vec::new(),
            by_node: vec![0.0; self.nodes],
            scale: 1.0,
            key: need.key.clone(),
        });
        self.regions.len() - 1
    }

    fn add_use(&mut self, task: u32, region: RegionId, visits_per_ns: f64, classes: u32) {
        // A profile may have several classes in one data group: one use with the sum of their rates.
        if let Some(known) = self.uses[task as usize].iter_mut().find(|known| known.region == region) {
            known.visits_per_ns += visits_per_ns;
            known.classes |= classes;
            return;
        }
        let state = &mut self.regions[region.index()];
        let user = state.users.len() as u32;
        state.users.push(task);
        state.by_user.push(0.0);
        self.uses[task as usize].push(Use { region, user, visits_per_ns, classes });
    }

    /// A task is gone, and its private pages with it.
    pub fn task_exited(&mut self, task: usize, process: u32) {
        for used in std::mem::take(&mut self.uses[task]) {
            let range = self.row(used.region);
            let region = &mut self.regions[used.region.index()];
            if region.key != Key::Private {
                continue;
            }
            (region.size, region.marked) = (0.0, 0.0);
            for table in [&mut self.homes, &mut self.marked, &mut self.ahead] {
                table[range.clone()].fill(0.0);
            }
            self.of_process[process as usize].retain(|&region| region != used.region);
        }
    }

    /// What a task uses.
    #[inline]
    pub fn uses(&self, task: usize) -> &[Use] {
        &self.uses[task]
    }

    /// A region's entries in tables by region and node.
    #[inline]
    fn row(&self, region: RegionId) -> std::ops::Range<usize> {
        let start = region.index() * self.nodes;
        start..start + self.nodes
    }

    /// Regions of a process in the order of their addresses.
    #[inline]
    pub fn of_process(&self, process: u32) -> &[RegionId] {
        // Kernel threads are of a process behind the workload's, which has no memory.
        self.of_process.get(process as usize).map_or(&[], Vec::as_slice)
    }

    /// Pages of a region by node.
    #[cfg(test)]
    pub fn homes(&self, region: RegionId) -> &[f64] {
        &self.homes[self.row(region)]
    }

    /// Share of a region's pages by node; they sum to 1 once somebody has touched it. Regions with a policy of their own have none.
    pub fn shares(&self, region: RegionId) -> &[f64] {
        &self.shares[self.row(region)]
    }

    /// The same of all private memory of a task that has no policy of its own.
    pub(crate) fn private_shares(&self, task: usize) -> &[f64] {
        &self.private_shares[task * self.nodes..(task + 1) * self.nodes]
    }

    /// Marked pages of a region by node.
    #[inline]
    pub fn marked(&self, region: RegionId) -> &[f64] {
        &self.marked[self.row(region)]
    }

    /// Whether some of what a task uses is marked.
    pub(crate) fn uses_marked(&self, task: usize) -> bool {
        self.uses(task).iter().any(|used| self.region(used.region).marked > 0.0)
    }

    /// Pages of a process that have a home (its resident set, as far as it is known).
    pub fn resident(&self, process: u32) -> f64 {
        let regions = self.of_process(process).iter().map(|&region| self.region(region));
        regions.filter(|region| region.placed || region.touched_by > 0).map(|region| region.size).sum()
    }

    #[inline]
    pub fn region(&self, region: RegionId) -> &Region {
        &self.regions[region.index()]
    }

    /// Share of a region's pages that a task visits at least once in so much run time.
    #[inline]
    pub fn reach(&self, used: Use, run_ns: u64) -> f64 {
        let size = self.region(used.region).size;
        if size > 0.0 { 1.0 - exp(-used.visits_per_ns * run_ns as f64 / size) } else { 0.0 }
    }

    /// A task runs for the first time: its private pages, and its part of shared ones, get a home on its node
    /// (`docs/spec/memory-model.md` section 4.6).
    pub fn first_touch(&mut self, task: usize, node: u32) {
        for used in &self.uses[task] {
            let region = &mut self.regions[used.region.index()];
            if region.placed {
                continue;
            }
            let before = f64::from(region.touched_by);
            let kept = before / (before + 1.0);
            region.touched_by += 1;
            region.marked *= kept;
            let start = used.region.index() * self.nodes;
            for table in [&mut self.homes, &mut self.marked, &mut self.ahead, &mut self.shares] {
                table[start..start + self.nodes].iter_mut().for_each(|pages| *pages *= kept);
            }
            self.homes[start + node as usize] += region.size / (before + 1.0);
            self.shares[start + node as usize] += 1.0 / (before + 1.0);
        }
        self.private_shares[task * self.nodes + node as usize] = 1.0;
    }

    /// A task that has done no work yet goes on on another node: nothing of what [`Self::first_touch`] brought was touched where it was.
    pub fn touch_elsewhere(&mut self, task: usize, from: u32, to: u32) {
        let (from, to) = (from as usize, to as usize);
        for used in &self.uses[task] {
            let region = &mut self.regions[used.region.index()];
            if region.placed {
                continue;
            }
            let start = used.region.index() * self.nodes;
            for (table, all) in [(&mut self.homes, region.size), (&mut self.shares, 1.0)] {
                let part = (all / f64::from(region.touched_by)).min(table[start + from]);
                table[start + from] -= part;
                table[start + to] += part;
            }
            let too_many = (self.marked[start + from] - self.homes[start + from]).max(0.0);
            self.marked[start + from] -= too_many;
            region.marked -= too_many;
        }
        let own = task * self.nodes;
        self.private_shares.swap(own + from, own + to);
    }

    /// Whether the kernel may sample and move a region's pages: it leaves those with a policy of their own alone.
    pub fn is_migratable(&self, region: RegionId) -> bool {
        !self.region(region).placed
    }

    /// Makes so many consecutive pages of a region inaccessible, from page `begin` on. Returns how many were accessible and there.
    pub fn mark(&mut self, region: RegionId, begin: f64, pages: f64) -> f64 {
        let range = self.row(region);
        let (homes, marked) = (&self.homes[range.clone()], &mut self.marked[range.clone()]);
        let ahead = &mut self.ahead[range];
        if begin == 0.0 {
            ahead.copy_from_slice(homes);
        }
        let share = (pages / (self.regions[region.index()].size - begin).max(1.0)).min(1.0);
        let mut newly = 0.0;
        for ((home, marked), ahead) in homes.iter().zip(marked).zip(ahead) {
            let added = (*ahead * share).min(home - *marked).max(0.0);
            *ahead -= *ahead * share;
            *marked += added;
            newly += added;
        }
        self.regions[region.index()].marked += newly;
        newly
    }

    /// Makes the marked pages on a node that a task reaches accessible again. Returns how many those are.
    pub fn fault(&mut self, region: RegionId, node: u32, reach: f64) -> f64 {
        let marked = &mut self.marked[region.index() * self.nodes + node as usize];
        let pages = if *marked * (1.0 - reach) < 0.5 { *marked } else { *marked * reach };
        *marked -= pages;
        let state = &mut self.regions[region.index()];
        state.marked = (state.marked - pages).max(0.0);
        pages
    }

    /// Whether a region belongs to one task.
    pub fn is_private(&self, region: RegionId) -> bool {
        self.region(region).key == Key::Private
    }

    /// Moves pages of a region that a task uses from one node to another, as far as they are there.
    pub fn migrate(&mut self, task: usize, region: RegionId, from: u32, to: u32, pages: f64) {
        let start = region.index() * self.nodes;
        let nodes = (from as usize, to as usize);
        let (from, to) = (start + from as usize, start + to as usize);
        let pages = pages.min(self.homes[from]);
        self.homes[from] -= pages;
        self.homes[to] += pages;
        // The pages are behind the scan, but for those marked in an earlier pass.
        let excess = (self.ahead[from] - self.homes[from]).max(0.0);
        self.ahead[from] -= excess;
        self.ahead[to] += excess;
        let (shares, size) = if self.is_private(region) {
            let size = self.private_migratable(task);
            (&mut self.private_shares[task * self.nodes..(task + 1) * self.nodes], size)
        } else {
            let size = self.regions[region.index()].size;
            (&mut self.shares[start..start + self.nodes], size)
        };
        let moved = (pages / size.max(1.0)).clamp(0.0, shares[nodes.0]);
        shares[nodes.0] -= moved;
        shares[nodes.1] += moved;
    }

    /// Pages of a task's private memory that the kernel may move.
    fn private_migratable(&self, task: usize) -> f64 {
        let regions = self.uses(task).iter().map(|used| self.region(used.region));
        regions.filter(|region| region.key == Key::Private && !region.placed).map(|region| region.size).sum()
    }

    /// Who touched the pages of a region last, as a user sees it who is on a node.
    pub(crate) fn last_touch(&self, used: Use, here: u32, last_here: u32) -> LastTouch {
        let region = self.region(used.region);
        let share = |held: f64| (held * region.scale / region.size.max(1.0)).clamp(0.0, 1.0);
        let own = share(region.by_user[used.user as usize]);
        let from_here = share(region.by_node[here as usize]);
        let all = share(region.by_node.iter().sum());
        // A user's pages count for the node where it faulted last.
        let self_here = if last_here == here { own.min(from_here) } else { 0.0 };
        let others_here = from_here - self_here;
        LastTouch {
            nobody: 1.0 - all,
            self_here,
            self_elsewhere: own - self_here,
            others_here,
            others_elsewhere: (all - own - others_here).max(0.0),
        }
    }

    /// A user has touched pages in hint faults: it is the one who touched them last.
    pub(crate) fn note_touch(&mut self, used: Use, here: u32, pages: f64) {
        let region = &mut self.regions[used.region.index()];
        let pages = pages.min(region.size);
        region.scale *= 1.0 - pages / region.size.max(1.0);
        if region.scale < SMALLEST_SCALE {
            for held in region.by_user.iter_mut().chain(&mut region.by_node) {
                *held *= region.scale;
            }
            region.scale = 1.0;
        }
        region.by_user[used.user as usize] += pages / region.scale;
        region.by_node[here as usize] += pages / region.scale;
    }

    /// Pages of a region that a user touched last.
    pub(crate) fn held_by(&self, region: RegionId, user: u32) -> f64 {
        let region = self.region(region);
        region.by_user[user as usize] * region.scale
    }
}

/// The memory that a task's profile and data groups say it needs.
fn needs_of(workload: &Workload, task: &Task) -> Vec<Need> {
    let process = task.process.0;
    let groups: Vec<u32> = task.data_groups.iter().map(|id| id.0).collect();
    let classes = workload.profile_of(task).map_or(&[][..], |profile| &profile.classes);
    // The kernel leaves mappings of files that may only be read where they are (`task_numa_work`): programs are such.
    let mut needs: Vec<Need> = classes
        .iter()
        .enumerate()
        .filter(|(_, class)| !class.code)
        .map(|(number, class)| {
            let group = match &class.sharing {
                Sharing::Data(Some(name)) => {
                    groups.iter().copied().find(|&group| workload.data_groups[group as usize].name == *name)
                }
                Sharing::Data(None) => groups.first().copied(),
                Sharing::Private | Sharing::Process => None,
            };
            let key = match group {
                Some(group) => Key::Data { group },
                None if class.is_shared() => Key::Class { process, name: class.name.clone() },
                None => Key::Private,
            };
            let bytes = group.map_or(0, |group| workload.data_groups[group as usize].bytes).max(class.bytes);
            let touches_per_ns = class.touches_per_instruction * NOMINAL_INSTRUCTIONS_PER_NS;
            let lines = if class.kind == ClassKind::Scan { LINES_PER_PAGE } else { 1.0 };
            Need { key, bytes, home: class.home.clone(), visits_per_ns: touches_per_ns / lines, classes: 1 << number }
        })
        .collect();
    for group in groups {
        let key = Key::Data { group };
        if needs.iter().all(|need| need.key != key) {
            let bytes = workload.data_groups[group as usize].bytes;
            needs.push(Need { key, bytes, home: Home::FirstTouch, visits_per_ns: DEFAULT_TOUCHES_PER_NS, classes: 0 });
        }
    }
    needs
}

pub(crate) const NO_NODE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
