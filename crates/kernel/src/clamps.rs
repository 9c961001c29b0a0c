//! Utilisation clamps: what a task asks for, what its group leaves of that, and the largest of a CPU's runnable tasks, which frequencies
//! and placement go by (`docs/spec/linux-fair.md` section 4.10).
//!
//! There are none of these unless the workload asks for some. Which tasks count is up to their class, as `uclamp_enabled` says: it
//! reports what is queued and what leaves.
//!
//! Source: Linux 7.2 `kernel/sched/core.c` (`uclamp_eff_get`, `uclamp_tg_restrict`, `uclamp_rq_inc`, `uclamp_rq_dec`,
//! `uclamp_rq_max_value`, `uclamp_idle_value`, `cpu_util_update_eff`), `kernel/sched/sched.h` (`uclamp_rq_is_capped`).
//!
//! Differs from the kernel: clamps are in use from the beginning of a run (`sched_uclamp_used`), and the system-wide limits
//! (`sched_util_clamp_min`, `sched_util_clamp_max`, `sched_util_clamp_min_rt_default`) have their defaults.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{Policy, UtilClamp, Workload};

use crate::clocks::CAPACITY_SCALE;
use crate::core::Core;
use crate::engine::Engine;
use crate::interpreter::Done;
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::task::State;
use crate::task_groups::TaskGroup;

/// Buckets of a CPU's clamps (`CONFIG_UCLAMP_BUCKETS_COUNT`, by default 5).
const BUCKETS: usize = 5;

/// Utilisations in a bucket (`UCLAMP_BUCKET_DELTA`).
const BUCKET_WIDTH: u32 = (CAPACITY_SCALE + BUCKETS as u32 / 2) / BUCKETS as u32;

/// Least and largest utilisation that a task or a CPU is taken to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clamp {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

impl Clamp {
    /// No restriction.
    pub const NONE: Self = Self { min: 0, max: CAPACITY_SCALE };

    /// The larger of both bounds, as for tasks that share a CPU.
    #[inline]
    #[must_use]
    pub fn aggregate(self, other: Self) -> Self {
        Self { min: self.min.max(other.min), max: self.max.max(other.max) }
    }
}

/// Runnable tasks whose bound lies in one range (`struct uclamp_bucket`).
#[derive(Clone, Copy, Default)]
struct Bucket {
    tasks: u32,
    /// The largest bound since the bucket was empty last.
    value: u32,
}

/// One of the two bounds on a CPU (`struct uclamp_rq`).
#[derive(Clone, Copy)]
struct Bound {
    value: u32,
    buckets: [Bucket; BUCKETS],
}

impl Bound {
    const fn new(value: u32) -> Self {
        Self { value, buckets: [Bucket { tasks: 0, value: 0 }; BUCKETS] }
    }

    fn bucket(&mut self, value: u32) -> &mut Bucket {
        &mut self.buckets[((value / BUCKET_WIDTH) as usize).min(BUCKETS - 1)]
    }

    /// A task is queued; `first`: nothing was since the CPU had no task.
    fn add(&mut self, value: u32, first: bool) {
        let bucket = self.bucket(value);
        bucket.tasks += 1;
        bucket.value = if bucket.tasks == 1 { value } else { bucket.value.max(value) };
        self.value = if first { value } else { self.value.max(value) };
    }

    /// A task leaves. False if it was the last one, after which the bound is as it was.
    fn remove(&mut self, value: u32) -> bool {
        let bucket = self.bucket(value);
        bucket.tasks -= 1;
        if bucket.tasks > 0 || bucket.value < self.value {
            return true;
        }
        let highest = self.buckets.iter().rev().find(|bucket| bucket.tasks > 0);
        self.value = highest.map_or(self.value, |bucket| bucket.value);
        highest.is_some()
    }
}

/// Clamps of a CPU.
#[derive(Clone, Copy)]
struct CpuClamps {
    min: Bound,
    max: Bound,
    /// No task is runnable; the upper bound is that of the last one (`UCLAMP_FLAG_IDLE`).
    idle: bool,
}

impl CpuClamps {
    const fn new() -> Self {
        Self { min: Bound::new(0), max: Bound::new(CAPACITY_SCALE), idle: true }
    }

    fn add(&mut self, clamp: Clamp) {
        self.min.add(clamp.min, self.idle);
        self.max.add(clamp.max, self.idle);
        self.idle = false;
    }

    fn remove(&mut self, clamp: Clamp) {
        if !self.min.remove(clamp.min) {
            self.min.value = 0;
        }
        if !self.max.remove(clamp.max) {
            (self.max.value, self.idle) = (clamp.max, true);
        }
    }
}

/// Those of a run.
pub(crate) struct Clamps {
    cpus: Vec<CpuClamps>,
    /// By task: the CPU on which it counts, and with what.
    counted: Vec<Option<(CpuId, Clamp)>>,
}

impl Clamps {
    /// Those of a workload that asks for some.
    pub fn new(workload: &Workload, cpus: usize) -> Option<Box<Self>> {
        let clamps = || Box::new(Self { cpus: vec![CpuClamps::new(); cpus], counted: Vec::new() });
        workload.has_util_clamps().then(clamps)
    }
}

/// What a group leaves of its tasks' requests, given what the group above leaves.
pub(crate) fn group_clamp(own: [u16; 2], above: Clamp) -> Clamp {
    let [min, max] = own.map(u32::from);
    let max = max.min(above.max);
    Clamp { min: min.min(above.min).min(max), max }
}

/// What comes of a task's request (`uclamp_eff_get`). A real-time task that asks for nothing at all is taken to need a whole CPU
/// (`uclamp_reset`).
fn effective(request: UtilClamp, policy: Policy, group: Option<&TaskGroup>) -> Clamp {
    let unasked = match policy {
        Policy::Fifo { .. } | Policy::RoundRobin { .. } if request.is_none() => CAPACITY_SCALE,
        _ => 0,
    };
    let min = request.min().map_or(unasked, u32::from);
    let max = request.max().map_or(CAPACITY_SCALE, u32::from);
    let bound = |value: u32| group.map_or(value, |group| value.clamp(group.clamp.min, group.clamp.max));
    Clamp { min: bound(min), max: bound(max) }
}

impl Core<'_> {
    /// Whether the workload asks for utilisation clamps at all (`uclamp_is_used`).
    #[inline]
    #[must_use]
    pub fn uses_clamps(&self) -> bool {
        self.clamps.is_some()
    }

    /// A task is about to be queued on a CPU by a class that heeds clamps (`uclamp_rq_inc`).
    #[inline]
    pub fn clamp_queued(&mut self, cpu: CpuId, task: TaskId) {
        if self.clamps.is_some() {
            self.count_clamp(cpu, task);
        }
    }

    #[cold]
    fn count_clamp(&mut self, cpu: CpuId, task: TaskId) {
        let clamp = self.effective_clamp(task);
        let Some(clamps) = &mut self.clamps else { return };
        if clamps.counted.len() <= task.index() {
            clamps.counted.resize(task.index() + 1, None);
        }
        if clamps.counted[task.index()].is_none() {
            clamps.counted[task.index()] = Some((cpu, clamp));
            clamps.cpus[cpu.index()].add(clamp);
        }
    }

    /// A task is about to leave its CPU, or to sleep in its queue there (`uclamp_rq_dec`).
    #[inline]
    pub fn clamp_left(&mut self, task: TaskId) {
        if let Some(clamps) = &mut self.clamps
            && let Some((cpu, clamp)) = clamps.counted.get_mut(task.index()).and_then(Option::take)
        {
            clamps.cpus[cpu.index()].remove(clamp);
        }
    }

    fn effective_clamp(&self, task: TaskId) -> Clamp {
        let state = &self.tasks[task.index()];
        effective(state.util_clamp, state.policy, state.group.map(|group| &self.task_groups[group as usize]))
    }

    /// Clamps of a task: those that it counts with, else those that it would (`uclamp_eff_value`).
    #[inline]
    #[must_use]
    pub fn task_clamp(&self, task: TaskId) -> Clamp {
        let Some(clamps) = &self.clamps else { return Clamp::NONE };
        let counted = clamps.counted.get(task.index()).copied().flatten();
        counted.map_or_else(|| self.effective_clamp(task), |(_, clamp)| clamp)
    }

    /// Whether a task counts with other clamps than it would if it were queued now.
    #[inline]
    #[must_use]
    pub fn clamp_changes(&self, task: TaskId) -> bool {
        self.clamps.is_some() && self.task_clamp(task) != self.effective_clamp(task)
    }

    /// Clamps of a CPU, the largest of its runnable tasks (`uclamp_rq_get`), and whether it has none, of whose last one the upper bound is
    /// (`uclamp_rq_is_idle`).
    #[inline]
    #[must_use]
    pub fn cpu_clamp(&self, cpu: CpuId) -> (Clamp, bool) {
        let Some(clamps) = &self.clamps else { return (Clamp::NONE, true) };
        let CpuClamps { min, max, idle } = &clamps.cpus[cpu.index()];
        (Clamp { min: min.value, max: max.value }, *idle)
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// A task asks for other clamps by a system call.
    #[cold]
    pub(crate) fn clamp_step(&mut self, cpu: CpuId, id: TaskId, clamp: UtilClamp) -> Done {
        if self.pay(id, self.core.machine.costs().syscall_ns) {
            return Done::Busy;
        }
        if self.ask_for_clamp(id, clamp) {
            self.settle(cpu);
            self.scheduler.attributes_changed(&mut self.core, id);
            self.update_frequency(cpu);
        }
        Done::Next
    }

    /// A task asks for other clamps. False if the kernel refuses them, which ends the run.
    #[cold]
    pub(crate) fn ask_for_clamp(&mut self, id: TaskId, clamp: UtilClamp) -> bool {
        let task = &mut self.core.tasks[id.index()];
        let fixed = matches!(task.policy, Policy::Fifo { .. } | Policy::RoundRobin { .. });
        // A real-time task that has not asked for anything yet has a lower bound of its own, which a new one gets only after its request.
        let before = match task.util_clamp {
            UtilClamp::NONE if fixed && task.state != State::New => UtilClamp::WHOLE_CPU,
            before => before,
        };
        match clamp.after(before) {
            Ok(clamp) => task.util_clamp = clamp,
            Err(error) => self.program_error(id, error.to_string()),
        }
        self.core.error.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::{ClampPercent, GroupClamp};

    fn clamp(min: u32, max: u32) -> Clamp {
        Clamp { min, max }
    }

    fn value(cpu: &CpuClamps) -> Clamp {
        clamp(cpu.min.value, cpu.max.value)
    }

    /// By hand, of `uclamp_rq_inc` and `uclamp_rq_dec`: bounds of 0 and 204 share a bucket, 205 is the first of the next.
    #[test]
    fn a_cpu_has_the_largest_bounds_of_its_runnable_tasks_within_a_bucket_until_the_last_leaves() {
        assert_eq!(BUCKET_WIDTH, 205);
        let mut cpu = CpuClamps::new();
        assert_eq!((value(&cpu), cpu.idle), (Clamp::NONE, true));
        for (task, expected) in [
            (clamp(100, 300), clamp(100, 300)),
            (clamp(150, 200), clamp(150, 300)),
            (clamp(205, 1024), clamp(205, 1024)),
        ] {
            cpu.add(task);
            assert_eq!(value(&cpu), expected);
        }
        cpu.remove(clamp(205, 1024));
        assert_eq!(value(&cpu), clamp(150, 300));
        cpu.remove(clamp(150, 200));
        assert_eq!(value(&cpu), clamp(150, 300), "100 is in a bucket with 150, whose largest bound stays");
        cpu.remove(clamp(100, 300));
        assert_eq!((value(&cpu), cpu.idle), (clamp(0, 300), true), "the upper bound of the last task stays");
        cpu.add(clamp(50, 250));
        assert_eq!((value(&cpu), cpu.idle), (clamp(50, 250), false), "until there is another one");
    }

    /// By hand, of `uclamp_tg_restrict`: within the group's bounds, whatever is asked for.
    #[test]
    fn a_group_bounds_what_its_tasks_ask_for() {
        let group = |min, max| TaskGroup { clamp: clamp(min, max), ..TaskGroup::PLAIN };
        let asks = |min, max| UtilClamp::new(min, max).unwrap();
        let of = |request, group: &TaskGroup| effective(request, Policy::Normal, Some(group));
        assert_eq!(of(UtilClamp::NONE, &group(205, 512)), clamp(205, 512));
        assert_eq!(of(asks(Some(100), Some(150)), &group(205, 512)), clamp(205, 205));
        assert_eq!(of(asks(Some(300), Some(800)), &group(205, 512)), clamp(300, 512));
        assert_eq!(effective(UtilClamp::NONE, Policy::Normal, None), Clamp::NONE);
        let fifo = Policy::Fifo { priority: 1 };
        assert_eq!(effective(UtilClamp::NONE, fifo, None), clamp(1024, 1024));
        assert_eq!(effective(asks(Some(200), None), fifo, None), clamp(200, 1024));
        assert_eq!(effective(asks(None, Some(300)), fifo, None), clamp(0, 300));
        assert_eq!(effective(UtilClamp::NONE, fifo, Some(&group(0, 512))), clamp(512, 512));
    }

    /// What a kernel 7.2.13 shows of a task that asks for 100 to 300 in `/a/b` (`results/2026-11-28-2vcpu-uclamp/effective.txt`).
    #[test]
    fn a_tasks_clamps_are_those_that_a_real_kernel_shows() {
        let bounds = |[min, max]: [&str; 2]| {
            let percent = |text| ClampPercent::parse(text).unwrap();
            GroupClamp::new(percent(min), percent(max)).unwrap().utilisations()
        };
        let asks = |min, max| UtilClamp::new(Some(min), Some(max)).unwrap();
        for (outer, inner, request, shown) in [
            (["0", "max"], ["0", "max"], asks(100, 300), clamp(100, 300)),
            (["0", "max"], ["40", "max"], asks(100, 300), clamp(100, 300)),
            (["25", "max"], ["40", "max"], asks(100, 300), clamp(256, 300)),
            (["25", "50"], ["10", "20"], asks(100, 300), clamp(102, 205)),
            (["25", "50"], ["10", "20"], asks(0, 1024), clamp(102, 205)),
            (["25", "50"], ["10", "20"], asks(150, 160), clamp(150, 160)),
        ] {
            let root = clamp(CAPACITY_SCALE, CAPACITY_SCALE);
            let group = group_clamp(bounds(inner), group_clamp(bounds(outer), root));
            let group = TaskGroup { clamp: group, ..TaskGroup::PLAIN };
            assert_eq!(effective(request, Policy::Normal, Some(&group)), shown, "{outer:?} {inner:?} {request}");
        }
    }

    /// By hand, of `cpu_util_update_eff`: a group protects no more than the one above does, 0 where that says nothing.
    #[test]
    fn a_group_has_no_more_than_the_one_above() {
        let root = clamp(CAPACITY_SCALE, CAPACITY_SCALE);
        let percent = |text| ClampPercent::parse(text).unwrap();
        let bounds = |min, max| GroupClamp::new(percent(min), percent(max)).unwrap().utilisations();
        let outer = group_clamp(bounds("25", "50"), root);
        assert_eq!(outer, clamp(256, 512));
        assert_eq!(group_clamp(bounds("40", "max"), outer), clamp(256, 512));
        assert_eq!(group_clamp(bounds("10", "20"), outer), clamp(102, 205));
        let silent = group_clamp(GroupClamp::default().utilisations(), root);
        assert_eq!(group_clamp(bounds("40", "max"), silent), clamp(0, 1024));
        let capped = group_clamp([800, 1024], clamp(1024, 300));
        assert_eq!(capped, clamp(300, 300), "protection ends at the limit");
    }
}
