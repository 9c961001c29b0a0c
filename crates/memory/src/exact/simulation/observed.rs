//! What can be seen of a simulation: counters of tasks, traffic of memory, who has how much of a cache, and sets used lately.

use warmcore_topology::{CpuId, LlcId};

use super::super::cache::Cache;
use super::super::counters::{NodeTraffic, TaskCounters};
use super::super::history::{History, HistoryLevel, HistorySpec};
use super::super::space::Owner;
use super::super::task::TABLES;
use super::{FS_PER_NS, Simulation};

impl Simulation {
    /// What a task has done so far.
    pub fn counters(&self, index: usize) -> TaskCounters {
        let task = self.task(index);
        let mut classes = std::array::from_fn(|class| task.counters[class]);
        let state = &self.tasks[index];
        for (number, class) in state.spec.profile.classes.iter().enumerate() {
            let rate = class.touches_per_instruction / task.stream.rate();
            classes[number].touches = (task.touches as f64 * rate).round() as u64;
        }
        TaskCounters {
            instructions: task.touches as f64 / task.stream.rate(),
            busy_fs: task.busy_fs,
            stall_fs: task.stall_fs,
            share_fs: task.share_fs,
            classes,
            l1i_misses: task.l1i_misses(),
            tables: task.counters[TABLES],
            page_walks: task.page_walks,
            page_faults: task.page_faults,
        }
    }

    /// Line touches that were really simulated, of all tasks.
    pub fn simulated_touches(&self) -> u64 {
        (0..self.tasks.len()).map(|task| self.task(task).touches).sum()
    }

    /// Memory traffic of all domains by node since the beginning.
    pub fn node_traffic(&self) -> Vec<NodeTraffic> {
        let mut sum = vec![NodeTraffic::default(); self.node_load.len()];
        for domain in &self.domains {
            for (sum, traffic) in sum.iter_mut().zip(&domain.traffic) {
                sum.reads += traffic.reads;
                sum.writes += traffic.writes;
            }
        }
        sum
    }

    /// Latency of a node's memory for a CPU now, load included.
    pub fn memory_latency_ns(&self, cpu: CpuId, node: usize) -> f64 {
        let seat = self.seats[cpu.index()];
        self.domains[seat.domain].memory_latency(seat.core, node).loaded_fs as f64 / FS_PER_NS as f64
    }

    /// Lines of each task's private classes in an LLC, then those of each shared class; scaled up with sampling.
    pub fn llc_occupancy(&self, llc: LlcId) -> (Vec<u64>, Vec<u64>) {
        self.occupancy(&self.domains[llc.index()].llc)
    }

    /// The same of the L2 that a CPU uses; empty if there is none.
    pub fn l2_occupancy(&self, cpu: CpuId) -> (Vec<u64>, Vec<u64>) {
        let seat = self.seats[cpu.index()];
        let l2 = self.domains[seat.domain].cores[seat.core].l2.as_ref();
        l2.map_or_else(Default::default, |l2| self.occupancy(l2))
    }

    fn occupancy(&self, cache: &Cache) -> (Vec<u64>, Vec<u64>) {
        let (mut tasks, mut groups) = (vec![0; self.tasks.len()], vec![0; self.space.groups]);
        for (line, _) in cache.lines() {
            let known = match &self.paging {
                Some(paging) => paging.virtual_line(line, self.context.page_shift),
                None => Some(line),
            };
            match known.and_then(|line| self.space.owner(line)) {
                Some(Owner::Task(task)) => tasks[task as usize] += self.context.scale(line),
                Some(Owner::Group(group)) => groups[group as usize] += self.context.scale(line),
                None => {}
            }
        }
        (tasks, groups)
    }

    /// Records the sets that each task uses, from now on.
    pub fn record_sets(&mut self, spec: HistorySpec) {
        let level = match spec.level {
            HistoryLevel::L2 if self.hierarchy.l2.is_empty() => HistoryLevel::Llc,
            level => level,
        };
        let spec = HistorySpec { level, ..spec };
        self.history = Some(spec);
        for task in 0..self.tasks.len() {
            self.task_mut(task).history = Some(Box::new(History::new(spec)));
        }
    }

    /// The latest sets of a task, the oldest first; none if they are not recorded.
    pub fn recent_sets(&self, task: usize, sets: &mut Vec<u32>) {
        match &self.task(task).history {
            Some(history) => history.copy_to(sets),
            None => sets.clear(),
        }
    }

    /// Sets of the largest cache of a level: their indexes are below this.
    pub fn sets(&self, level: HistoryLevel) -> u32 {
        let sets = |caches: &mut dyn Iterator<Item = &Cache>| caches.map(|cache| cache.shape().sets).max();
        let cores = || self.domains.iter().flat_map(|domain| &domain.cores);
        let of_level = match level {
            HistoryLevel::L1 => {
                sets(&mut cores().flat_map(|core| [Some(&core.l1.data), core.l1.code.as_ref()]).flatten())
            }
            HistoryLevel::L2 => sets(&mut cores().filter_map(|core| core.l2.as_ref())),
            HistoryLevel::Llc => None,
            HistoryLevel::Mixed => {
                [HistoryLevel::L1, HistoryLevel::L2, HistoryLevel::Llc].map(|level| self.sets(level)).into_iter().max()
            }
        };
        of_level.or_else(|| sets(&mut self.domains.iter().map(|domain| &domain.llc))).unwrap_or(1)
    }
}
