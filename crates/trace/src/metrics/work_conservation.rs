//! Work conservation: how long a CPU was idle although a task waited that was allowed to run there.
//!
//! Exact with affinities and cheap without: tasks with the same set of allowed CPUs form a class, and each class knows
//! how many of its tasks wait and how many of its CPUs are idle. Both are at hand whenever something changes, so no event
//! ever looks at all CPUs. A change of an idle CPU costs one step per class that contains it; tasks that may run
//! everywhere cost nothing extra.
//!
//! After "The Linux Scheduler: a Decade of Wasted Cores" (Lozi et al., EuroSys 2016), whose invariant is: no CPU
//! stays idle while another has more tasks than it can run.

use warmcore_topology::{CpuId, CpuSet, Machine};

/// Waiting tasks and idle CPUs of one set of allowed CPUs.
#[derive(Clone, Copy, Default, Debug)]
struct AffinityClass {
    waiters: u32,
    idle: u32,
}

impl AffinityClass {
    fn violates(&self) -> bool {
        self.waiters > 0 && self.idle > 0
    }
}

/// Accumulates the time during which some CPU was idle and some waiting task was allowed to run on it.
#[derive(Clone, Debug)]
pub(crate) struct WorkConservation {
    classes: Vec<AffinityClass>,
    /// For each restriction of the run's table: its class. Equal sets share one.
    class_of_restriction: Vec<u32>,
    /// For each CPU: the classes that contain it, apart from class 0, which contains all.
    classes_of_cpu: Vec<Vec<u32>>,
    /// How many classes violate at present.
    violating: u32,
    since_ns: u64,
    total_ns: u64,
}

impl WorkConservation {
    /// `idle`: whether all CPUs are known to be idle at the start.
    pub(crate) fn new(machine: &Machine, restrictions: &[CpuSet], idle: bool) -> Self {
        let mut sets = vec![machine.all_cpus().clone()];
        let mut classes_of_cpu = vec![Vec::new(); machine.cpu_count()];
        let mut class_of_restriction = vec![0];
        for restriction in restrictions.iter().skip(1) {
            let set = restriction.intersection(machine.all_cpus());
            let class = sets.iter().position(|known| *known == set).unwrap_or_else(|| {
                set.iter().for_each(|cpu| classes_of_cpu[cpu.index()].push(sets.len() as u32));
                sets.push(set);
                sets.len() - 1
            });
            class_of_restriction.push(class as u32);
        }
        let idle_in = |set: &CpuSet| if idle { set.len() as u32 } else { 0 };
        let classes = sets.iter().map(|set| AffinityClass { waiters: 0, idle: idle_in(set) }).collect();
        Self { classes, class_of_restriction, classes_of_cpu, violating: 0, since_ns: 0, total_ns: 0 }
    }

    /// The class of a restriction; `None` for an index outside of the run's table.
    pub(crate) fn class(&self, restriction: u32) -> Option<u32> {
        self.class_of_restriction.get(restriction as usize).copied()
    }

    /// Length of the run's table of restrictions.
    pub(crate) fn restrictions(&self) -> usize {
        self.class_of_restriction.len()
    }

    /// A task of this class begins to wait.
    #[inline]
    pub(crate) fn waiter_added(&mut self, time_ns: u64, class: u32) {
        let class = &mut self.classes[class as usize];
        class.waiters += 1;
        if class.waiters == 1 && class.idle > 0 {
            self.begin(time_ns);
        }
    }

    /// A task of this class waits no longer.
    #[inline]
    pub(crate) fn waiter_removed(&mut self, time_ns: u64, class: u32) {
        let class = &mut self.classes[class as usize];
        class.waiters -= 1;
        if class.waiters == 0 && class.idle > 0 {
            self.end(time_ns);
        }
    }

    /// A CPU becomes idle or gets work.
    pub(crate) fn cpu_changed(&mut self, time_ns: u64, cpu: CpuId, idle: bool) {
        if idle {
            self.cpu_idle(time_ns, cpu);
        } else {
            self.cpu_busy(time_ns, cpu);
        }
    }

    /// A CPU becomes idle.
    #[inline]
    pub(crate) fn cpu_idle(&mut self, time_ns: u64, cpu: CpuId) {
        self.class_idle(time_ns, 0);
        for position in 0..self.classes_of_cpu[cpu.index()].len() {
            self.class_idle(time_ns, self.classes_of_cpu[cpu.index()][position]);
        }
    }

    /// An idle CPU gets work.
    #[inline]
    pub(crate) fn cpu_busy(&mut self, time_ns: u64, cpu: CpuId) {
        self.class_busy(time_ns, 0);
        for position in 0..self.classes_of_cpu[cpu.index()].len() {
            self.class_busy(time_ns, self.classes_of_cpu[cpu.index()][position]);
        }
    }

    #[inline]
    fn class_idle(&mut self, time_ns: u64, class: u32) {
        let class = &mut self.classes[class as usize];
        class.idle += 1;
        if class.idle == 1 && class.waiters > 0 {
            self.begin(time_ns);
        }
    }

    #[inline]
    fn class_busy(&mut self, time_ns: u64, class: u32) {
        let class = &mut self.classes[class as usize];
        let violated = class.violates();
        class.idle -= 1;
        if violated && class.idle == 0 {
            self.end(time_ns);
        }
    }

    /// One more class violates.
    #[inline]
    fn begin(&mut self, time_ns: u64) {
        if self.violating == 0 {
            self.since_ns = time_ns;
        }
        self.violating += 1;
    }

    /// One class less violates.
    #[inline]
    fn end(&mut self, time_ns: u64) {
        self.violating -= 1;
        if self.violating == 0 {
            self.total_ns += time_ns - self.since_ns;
        }
    }

    /// The window begins now: only what is violated from now on counts.
    pub(crate) fn open_window(&mut self, now_ns: u64) {
        (self.since_ns, self.total_ns) = (now_ns, 0);
    }

    /// **Work-conservation violation time**: wall time up to `end_ns` during which some CPU was idle while some task
    /// waited that was allowed to run on that CPU. Not multiplied by the number of CPUs or tasks.
    ///
    /// A CPU counts as idle while it is online, runs nothing and no task is starting on it; a task counts as waiting while it is
    /// queued, not while a quota keeps it from running. The first task queued on an idle CPU is *starting* there: its delay is a wakeup cost, seen as wakeup
    /// latency, and neither it nor its CPU counts here.
    pub(crate) fn violation_ns(&self, end_ns: u64) -> u64 {
        let open = if self.violating > 0 { end_ns.saturating_sub(self.since_ns) } else { 0 };
        self.total_ns + open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        warmcore_topology::resolve("1s1n1l4c1t").unwrap()
    }

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_list(list).unwrap()
    }

    #[test]
    fn an_idle_cpu_and_a_waiter_violate_until_one_of_them_is_gone() {
        let mut work = WorkConservation::new(&machine(), &[], true);
        work.waiter_added(100, 0);
        assert_eq!(work.violation_ns(150), 50);
        work.waiter_added(150, 0);
        work.waiter_removed(160, 0);
        work.waiter_removed(200, 0);
        assert_eq!(work.violation_ns(1000), 100);
    }

    #[test]
    fn a_waiter_that_may_not_run_on_the_idle_cpu_does_not_violate() {
        let mut work = WorkConservation::new(&machine(), &[set("0-3"), set("0-1")], true);
        let class = work.class(1).unwrap();
        work.cpu_busy(0, CpuId(0));
        work.cpu_busy(0, CpuId(1));
        work.waiter_added(10, class);
        assert_eq!(work.violation_ns(100), 0);
        work.cpu_idle(100, CpuId(1));
        assert_eq!(work.violation_ns(130), 30);
        work.cpu_busy(140, CpuId(1));
        assert_eq!(work.violation_ns(1000), 40);
    }

    #[test]
    fn several_violations_at_once_count_once() {
        let mut work = WorkConservation::new(&machine(), &[set("0-3"), set("2"), set("3")], true);
        work.waiter_added(0, 1);
        work.waiter_added(10, 2);
        work.waiter_added(20, 0);
        work.waiter_removed(30, 0);
        work.waiter_removed(40, 1);
        work.cpu_busy(50, CpuId(3));
        assert_eq!(work.violation_ns(1000), 50);
    }

    #[test]
    fn equal_sets_share_a_class_and_full_sets_are_class_zero() {
        let work = WorkConservation::new(&machine(), &[set("0-3"), set("1"), set("1"), set("0-63")], true);
        assert_eq!((work.class(1), work.class(2), work.class(3), work.class(4)), (Some(1), Some(1), Some(0), None));
    }

    #[test]
    fn cpus_of_unknown_state_are_not_idle() {
        let mut work = WorkConservation::new(&machine(), &[], false);
        work.waiter_added(0, 0);
        assert_eq!(work.violation_ns(100), 0);
        work.cpu_idle(100, CpuId(2));
        assert_eq!(work.violation_ns(110), 10);
    }
}
