//! Counting queued tasks by the LLC they prefer (`account_llc_enqueue`, `account_llc_dequeue`).

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use super::CacheAware;
use crate::fair::state::NONE;

impl CacheAware {
    /// A task was queued. `delayed`: it sleeps there.
    pub(crate) fn count_enqueued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        let state = &mut self.tasks[task.index()];
        let llc = state.preferred_llc;
        if llc == NONE {
            return;
        }
        let rq = &mut self.cpus[cpu.index()];
        rq.nr_llc_running += 1;
        state.queued_on_preferred = llc == self.llc_of[cpu.index()];
        rq.nr_pref_llc_running += u32::from(state.queued_on_preferred && !delayed);
        self.llc_counts[llc as usize * self.llc_of.len() + cpu.index()] += 1;
        self.wanting[llc as usize] += 1;
    }

    /// A task has left its queue.
    pub(crate) fn count_dequeued(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        let state = &mut self.tasks[task.index()];
        let llc = state.preferred_llc;
        if llc == NONE {
            return;
        }
        let rq = &mut self.cpus[cpu.index()];
        rq.nr_llc_running -= 1;
        rq.nr_pref_llc_running -= u32::from(state.queued_on_preferred && !delayed);
        state.queued_on_preferred = false;
        self.llc_counts[llc as usize * self.llc_of.len() + cpu.index()] -= 1;
        self.wanting[llc as usize] -= 1;
    }

    /// A queued task fell asleep (`delayed`) or is awake again.
    pub(crate) fn count_delay_change(&mut self, cpu: CpuId, task: TaskId, delayed: bool) {
        let state = &self.tasks[task.index()];
        if state.queued_on_preferred {
            let running = &mut self.cpus[cpu.index()].nr_pref_llc_running;
            *running = if delayed { *running - 1 } else { *running + 1 };
        }
    }

    /// A queued task prefers another LLC from now on.
    pub fn prefer(&mut self, cpu: CpuId, task: TaskId, llc: u32, delayed: bool) {
        self.count_dequeued(cpu, task, delayed);
        self.tasks[task.index()].preferred_llc = llc;
        self.count_enqueued(cpu, task, delayed);
    }

    /// Tasks queued on a CPU that prefer an LLC (`llc_counts`).
    #[inline]
    pub fn llc_count(&self, cpu: u32, llc: u32) -> u32 {
        self.llc_counts[llc as usize * self.llc_of.len() + cpu as usize]
    }

    /// Tasks queued on CPUs outside an LLC that prefer it (`nr_pref_dst_llc`), without CPUs that are left out.
    pub(crate) fn count_preferring(&self, cpus: &[u32], llc: u32, left_out: impl Fn(u32) -> bool) -> u32 {
        if self.wanting[llc as usize] == 0 {
            return 0;
        }
        let counts = &self.llc_counts[llc as usize * self.llc_of.len()..][..self.llc_of.len()];
        let outside = cpus.iter().filter(|&&cpu| self.llc_of[cpu as usize] != llc && !left_out(cpu));
        outside.map(|&cpu| counts[cpu as usize]).sum()
    }
}

#[cfg(test)]
mod tests {
    use warmcore_kernel::Boot;
    use warmcore_topology::resolve;

    use super::*;
    use crate::domains::{DomainParameters, Domains};
    use crate::fair::cache_aware::{CacheAwareTunables, TaskState};

    /// Three tasks prefer LLC 1: those on CPUs 0 and 1 are outside of it, the one on CPU 3 is there.
    #[test]
    fn cpus_left_out_of_a_pass_count_for_nothing() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let domains = Domains::build(&machine, &DomainParameters::default());
        let mut state = CacheAware::new(CacheAwareTunables::default(), &Boot::new(&machine), &domains).unwrap();
        for (task, cpu) in [(0, 0), (1, 1), (2, 3)] {
            state.tasks.push(TaskState {
                group: NONE,
                process: 0,
                preferred_llc: 1,
                queued_on_preferred: false,
                scan_pending: false,
            });
            state.count_enqueued(CpuId(cpu), TaskId(task), false);
        }
        let count = |left_out: &[u32]| state.count_preferring(&[0, 1, 2, 3], 1, |cpu| left_out.contains(&cpu));
        assert_eq!([count(&[]), count(&[1]), count(&[0, 1]), count(&[3])], [2, 1, 0, 2]);
    }
}
