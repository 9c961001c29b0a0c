//! When a process's memory is sampled, and how much of it: scan periods, their adaptation, and the scan that makes pages
//! inaccessible (`task_tick_numa`, `task_numa_work`, `update_task_scan_period`; `docs/spec/linux-fair.md` sections 7.1,
//! 7.5).

use warmcore_kernel::{Core, PAGE_BYTES, RegionId};
use warmcore_trace::TaskId;

use super::groups::{PRIVATE, SHARED};
use super::{NumaBalancing, linux_4_9};

/// Memory that may be sampled per second, in MB: limits the shortest period (`MAX_SCAN_WINDOW`).
const MAX_SCAN_WINDOW_MB: u64 = 2560;

/// Address space that a scan may walk for each page it samples.
const WALK_FACTOR: f64 = 8.0;

/// Run time to pass before the next scan, per run time a scan took.
const SCAN_SHARE: u64 = 32;

/// Tenths in which ratios are taken (`NUMA_PERIOD_SLOTS`) and how many make a good one (`NUMA_PERIOD_THRESHOLD`).
const SLOTS: i64 = 10;
const THRESHOLD: i64 = 7;

const NS_PER_MS: u64 = 1_000_000;

/// How much the next period is longer than the present one, in milliseconds, from counts of faults; `None` doubles it.
pub(super) fn period_change_ms(period_ms: u64, [remote, local]: [i64; 2], [shared, private]: [i64; 2]) -> Option<i64> {
    if local + shared == 0 {
        return None;
    }
    let slot_ms = period_ms.div_ceil(SLOTS as u64) as i64;
    let ratio = |good: i64, bad: i64| if good + bad > 0 { good * SLOTS / (good + bad) } else { 0 };
    let (locality, privacy) = (ratio(local, remote), ratio(private, shared));
    Some(if privacy >= THRESHOLD {
        (privacy - THRESHOLD).max(1) * slot_ms
    } else if locality >= THRESHOLD {
        (locality - THRESHOLD).max(1) * slot_ms
    } else {
        -(THRESHOLD - locality.max(privacy)) * slot_ms
    })
}

impl NumaBalancing {
    /// Scans it takes to cover a process (`task_nr_scan_windows`).
    fn windows(&self, core: &Core<'_>, process: u32) -> u64 {
        let pages = core.resident_pages(process) as u64;
        pages.div_ceil(self.scan_pages()).max(1)
    }

    fn scan_pages(&self) -> u64 {
        (self.tunables.scan_size_mb << 20) / PAGE_BYTES
    }

    /// `task_scan_min`.
    pub(super) fn scan_min_ms(&self, core: &Core<'_>, task: usize) -> u64 {
        let floor = 1000 / (MAX_SCAN_WINDOW_MB / self.tunables.scan_size_mb).max(1);
        floor.max(self.tunables.scan_period_min_ms / self.windows(core, self.tasks[task].process)).max(1)
    }

    /// A period stretched by the amount of memory that a task's group shares.
    fn stretched_ms(&self, task: usize, period_ms: u64) -> u64 {
        let group = u64::from(self.statistics.group_size(task));
        // Since 4.14.
        if group == 0 || self.rules_of_4_9 {
            return period_ms;
        }
        let kinds = self.statistics.group_kinds(task).map(|faults| faults.max(0) as u64);
        period_ms * group * (kinds[SHARED] + 1) / (kinds[PRIVATE] + kinds[SHARED] + 1)
    }

    /// Period with which a task begins (`task_scan_start`).
    pub(super) fn scan_start_ms(&self, core: &Core<'_>, task: usize) -> u64 {
        let shortest = self.scan_min_ms(core, task);
        shortest.max(self.stretched_ms(task, shortest))
    }

    /// `task_scan_max`.
    pub(super) fn scan_max_ms(&self, core: &Core<'_>, task: usize) -> u64 {
        let longest = self.tunables.scan_period_max_ms / self.windows(core, self.tasks[task].process);
        self.scan_min_ms(core, task).max(longest).max(self.stretched_ms(task, longest))
    }

    /// Jiffies that so many milliseconds take at least.
    pub(super) fn jiffies_of(&self, ms: u64) -> u64 {
        (ms * self.hz).div_ceil(1000)
    }

    /// Ordinary tick of a running task (`task_tick_numa`). Whether it has to scan when it returns to user mode.
    pub(super) fn scan_due(&mut self, core: &Core<'_>, task: TaskId, sum_exec_ns: u64) -> bool {
        // Threads of the kernel have no memory to scan (`PF_KTHREAD`).
        if core.is_kernel_thread(task) {
            return false;
        }
        let task = task.index();
        let state = &self.tasks[task];
        let period_ns = state.scan_period_ms * NS_PER_MS;
        if state.scan_pending || sum_exec_ns <= state.node_stamp_ns + period_ns {
            return false;
        }
        if state.node_stamp_ns == 0 {
            self.tasks[task].scan_period_ms = self.scan_start_ms(core, task);
        }
        let state = &mut self.tasks[task];
        state.node_stamp_ns += period_ns;
        state.scan_pending = core.jiffies() >= self.processes[state.process as usize].next_scan;
        state.scan_pending
    }

    /// Samples the next part of the process's memory (`task_numa_work`).
    pub(super) fn scan(&mut self, core: &mut Core<'_>, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        if !std::mem::take(&mut state.scan_pending) {
            return;
        }
        let (process, period_ms) = (state.process, state.scan_period_ms);
        let jiffies = core.jiffies();
        if jiffies < self.processes[process as usize].next_scan {
            return;
        }
        self.processes[process as usize].next_scan = jiffies + self.jiffies_of(period_ms);
        // Another thread of the process is likely to be next.
        self.tasks[task.index()].node_stamp_ns += 2 * core.tick_ns();
        let marked = self.mark_next(core, process, task);
        self.tasks[task.index()].node_stamp_ns += SCAN_SHARE * core.charge_marking(task, marked);
    }

    /// Marks pages from where the last scan of the process stopped. At the end of the address space a pass is complete. Returns
    /// how many were marked.
    fn mark_next(&mut self, core: &mut Core<'_>, process: u32, task: TaskId) -> f64 {
        let threads = core.process_threads(process);
        let mut budget = self.scan_pages() as f64;
        let mut walk = budget * WALK_FACTOR;
        let mut marked = 0.0;
        let state = &self.processes[process as usize];
        let (passes, start) = (state.passes, (state.region, state.offset));
        let regions = core.regions_of(process).len();
        // What other threads use is left to them, unless nothing else is left.
        for forced in [false, true] {
            let mut skipped = false;
            let (mut position, mut offset) = start;
            while position < regions {
                let region = core.regions_of(process)[position];
                let begun = std::mem::take(&mut offset);
                let size = core.region_pages(region);
                let due = begun > 0.0 || forced || self.is_scanned_by(core, region, task, passes, threads);
                let migratable = core.is_migratable(region);
                if !migratable || !due {
                    skipped |= migratable;
                    position += 1;
                    continue;
                }
                let pages = (size - begun).min(budget).min(walk);
                let newly = core.mark_pages(region, begun, pages);
                marked += newly;
                // Only pages that were there and accessible count.
                budget -= if newly > 0.0 { pages } else { 0.0 };
                walk -= pages;
                self.regions[region.index()].last_pass = passes;
                let end = begun + pages >= size;
                if budget < 1.0 || walk < 1.0 {
                    let state = &mut self.processes[process as usize];
                    (state.region, state.offset) = if end { (position + 1, 0.0) } else { (position, begun + pages) };
                    return marked;
                }
                position += 1;
            }
            if !skipped {
                break;
            }
        }
        let state = &mut self.processes[process as usize];
        (state.passes, state.region, state.offset) = (state.passes + 1, 0, 0.0);
        marked
    }

    /// Whether a thread's scan includes a region (`vma_is_accessed`): for its first two passes, if the thread uses it, or if nobody
    /// has scanned it for more passes than there are threads.
    fn is_scanned_by(&self, core: &Core<'_>, region: RegionId, task: TaskId, passes: u32, threads: u32) -> bool {
        let state = &self.regions[region.index()];
        // Since 6.4.
        self.rules_of_4_9
            || passes - state.first_pass < 2
            || core.uses_region(task, region)
            || passes > state.last_pass.wrapping_add(threads)
    }

    /// Adapts a task's period to what its faults were like (`update_task_scan_period`).
    pub(super) fn adapt_period(&mut self, core: &Core<'_>, task: usize, kinds: [i64; 2]) {
        let state = &self.tasks[task];
        let locality = state.locality.map(|faults| faults as i64);
        let change = if self.rules_of_4_9 { linux_4_9::period_change_ms } else { period_change_ms };
        match change(state.scan_period_ms, locality, kinds) {
            None => {
                let period_ms = (2 * state.scan_period_ms).min(state.scan_max_ms);
                let next_scan = core.jiffies() + self.jiffies_of(period_ms);
                self.processes[state.process as usize].next_scan = next_scan;
                self.tasks[task].scan_period_ms = period_ms;
            }
            Some(change_ms) => {
                let (shortest, longest) = (self.scan_min_ms(core, task), self.scan_max_ms(core, task));
                let state = &mut self.tasks[task];
                let period_ms = state.scan_period_ms.saturating_add_signed(change_ms);
                state.scan_period_ms = period_ms.clamp(shortest, longest.max(shortest));
                state.locality = [0.0; 2];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_or_local_faults_lengthen_the_period_others_shorten_it() {
        let change = |locality, kinds| period_change_ms(1000, locality, kinds);
        // Nothing seen: twice as long.
        assert_eq!(change([0, 0], [0, 0]), None);
        assert_eq!(change([50, 0], [0, 50]), None);
        // All private: (10 − 7) tenths longer; at the threshold still one.
        assert_eq!(change([90, 10], [0, 100]), Some(300));
        assert_eq!(change([90, 10], [30, 70]), Some(100));
        // Shared, but local.
        assert_eq!(change([0, 100], [100, 0]), Some(300));
        assert_eq!(change([20, 80], [60, 40]), Some(100));
        // Neither: shorter by what the better of both lacks.
        assert_eq!(change([100, 0], [100, 0]), Some(-700));
        assert_eq!(change([50, 50], [70, 30]), Some(-200));
        // Tenths of a period are rounded up.
        assert_eq!(period_change_ms(101, [0, 100], [100, 0]), Some(33));
    }
}
