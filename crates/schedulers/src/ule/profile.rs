//! The four readings of ULE that a simulation can select, as numbers and switches.
//!
//! Source: `docs/spec/ule.md` section 0, and 16 for [`Reading::Modern`]. What a profile does not mention is the same in all.

use super::interactivity::Clock;

/// Whose ULE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// FreeBSD 11, as its sources do it.
    Freebsd11,
    /// The port to Linux 4.9 that the paper measured.
    PaperPort,
    /// What the paper's text says.
    PaperText,
    /// FreeBSD 14.
    Modern,
}

/// How the score of an interactive thread becomes a priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slope {
    /// Whole priorities per point of score, rounded down: 32 / 30 = 1, or 12 / 30 = 0.
    PerPoint,
    /// The score in proportion to the range.
    Linear,
}

/// Priorities of time-sharing threads; smaller is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Priorities {
    /// Best priority of an interactive thread.
    pub interactive_min: u32,
    /// Best priority of the batch range: the first after the interactive ones (`PRI_MIN_BATCH`).
    pub batch_min: u32,
    /// Worst priority of a batch thread.
    pub batch_max: u32,
    /// Batch priority of nice 0 without use of the CPU (`SCHED_PRI_MIN`).
    pub usage_min: u32,
    /// Levels of use of the CPU (`SCHED_PRI_RANGE`).
    pub usage_levels: u32,
    /// Nice values count `nice * numerator / denominator` levels.
    pub nice_scale: (i32, i32),
    /// How scores become priorities.
    pub slope: Slope,
}

impl Priorities {
    /// FreeBSD's time-sharing range of 104 priorities.
    const FREEBSD: Self = Self {
        interactive_min: 120,
        batch_min: 152,
        batch_max: 223,
        usage_min: 172,
        usage_levels: 32,
        nice_scale: (1, 1),
        slope: Slope::PerPoint,
    };

    /// The time-sharing range of 136 priorities of FreeBSD 14.
    const FREEBSD_14: Self = Self {
        interactive_min: 88,
        batch_min: 136,
        batch_max: 223,
        usage_min: 156,
        usage_levels: 48,
        nice_scale: (1, 1),
        slope: Slope::Linear,
    };

    /// The 40 priorities of Linux, which the port scales FreeBSD's ranges to.
    const LINUX: Self = Self {
        interactive_min: 100,
        batch_min: 112,
        batch_max: 139,
        usage_min: 119,
        usage_levels: 13,
        nice_scale: (40, 104),
        slope: Slope::PerPoint,
    };

    /// Priority of an interactive thread.
    pub fn interactive(&self, score: u32, threshold: u32) -> u32 {
        let levels = self.batch_min - self.interactive_min;
        let threshold = threshold.max(1);
        match self.slope {
            Slope::PerPoint => self.interactive_min + levels / threshold * score,
            Slope::Linear => self.interactive_min + levels * score / threshold,
        }
    }

    /// Priority of a batch thread with so many levels of use.
    pub fn batch(&self, usage: u32, nice: i32) -> u32 {
        let (numerator, denominator) = self.nice_scale;
        let plain = self.usage_min + usage.min(self.usage_levels - 1);
        let priority = plain as i32 + nice * numerator / denominator;
        (priority.max(0) as u32).clamp(self.batch_min, self.batch_max)
    }

    /// Whether the priority is that of a batch thread.
    pub fn is_batch(&self, priority: u32) -> bool {
        priority >= self.batch_min
    }
}

/// How CPUs are compared in a search. A thread is worth 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SearchRules {
    /// CPUs are looked for down a tree of groups by the groups' sums; otherwise in one pass over all.
    pub by_group: bool,
    /// What the CPU that is preferred has less.
    pub preferred: i32,
    /// Values of CPUs are lowered by less than so much, so that equal ones are chosen by chance: in a search for the least loaded, and for
    /// the most loaded.
    pub chance: [u32; 2],
    /// Of groups with equal sums the preferred CPU's is the better one by its preference, beside what the sums have of it.
    pub preferred_in_ties: bool,
    /// A thread that runs on the preferred CPU and looks for another does not count there; a CPU that has other threads, and a group of
    /// hardware threads, is not preferred then.
    pub discounts_running: bool,
}

/// What differs between profiles.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub priorities: Priorities,
    /// Clock of sleep lengths and of affinity.
    pub clock: Clock,
    /// Longest and shortest slice, ticks.
    pub slice_max_ticks: u32,
    pub slice_min_ticks: u32,
    /// The slice is divided by the number of threads; otherwise by that of the others.
    pub slice_counts_itself: bool,
    /// Scores above 50 are computed although the threshold makes them meaningless.
    pub scores_above_half: bool,
    /// A thread of its parent's process gets the parent's history whole, and the parent is not charged for making it.
    pub threads_inherit_whole: bool,
    /// A batch thread is preempted at once by an interactive one that another CPU sends.
    pub remote_preemption: bool,
    /// A better thread that is woken here runs when the waker leaves the kernel.
    pub deferred_switch: bool,
    /// Preempted threads return to the head of the bucket in turn; FreeBSD 11.0 put them at the tail of their own.
    pub preempted_first: bool,
    /// How CPUs are compared in a search.
    pub search: SearchRules,
    /// A CPU looks for work near it before it switches to its idle thread, which looks in all.
    pub tries_before_idle: bool,
    /// An idle CPU that has switched often waits in a loop.
    pub spins_idle: bool,
    /// Of two groups in one the other is searched alone after the first.
    pub siblings_first: bool,
    /// A thread that runs alone on one of the most loaded CPUs is told to choose another.
    pub lone_threads_choose: bool,
    /// The periodic balancer's first countdown is a whole interval.
    pub first_countdown_whole: bool,
    /// The least load that a thread is stolen from within a core's hardware threads, if it is not `steal_thresh`.
    pub steal_thresh_smt: Option<u32>,
    /// The batch thread that is next can be taken whenever no other can; before FreeBSD 14 only where the search came by it again.
    pub first_stolen_last: bool,
    /// An idle CPU looks for work at its ticks; otherwise when its idle thread does.
    pub steal_at_ticks: bool,
    /// Accounting ticks that an idle CPU has skipped are made up for one by one; from FreeBSD 13 on all in one.
    pub ticks_made_up_singly: bool,
    /// The last thread of a process leaves its run time to the parent process.
    pub parents_inherit: bool,
    /// NUMA nodes are groups.
    pub groups_nodes: bool,
    /// A thread of a class above that runs on a CPU counts there: FreeBSD has one queue for all classes.
    pub counts_classes_above: bool,
    /// Least load of a CPU that the periodic balancer takes from.
    pub balance_donor_load: u32,
    /// The periodic balancer takes from donors, and interrupts receivers, by the rules of preemption.
    pub balance_asks_preemption: bool,
    /// Affinity of one cache level, in ticks of the clock.
    pub affinity_ticks: u64,
    /// Ticks of the clock over which the periodic balancer's countdown is drawn.
    pub balance_interval_ticks: u64,
}

impl Model {
    /// The model of a profile in a kernel of so many accounting ticks per second.
    pub fn new(profile: Reading, stathz: u32) -> Self {
        let stathz_u64 = u64::from(stathz);
        let freebsd = Self {
            priorities: Priorities::FREEBSD,
            clock: Clock { hz: 1000, stathz },
            slice_max_ticks: (stathz / 10).max(1),
            slice_min_ticks: stathz / 10 / 6,
            slice_counts_itself: false,
            scores_above_half: false,
            threads_inherit_whole: true,
            remote_preemption: true,
            deferred_switch: true,
            preempted_first: false,
            search: SearchRules {
                by_group: true,
                preferred: 64,
                chance: [32; 2],
                preferred_in_ties: true,
                discounts_running: false,
            },
            tries_before_idle: false,
            spins_idle: true,
            siblings_first: false,
            lone_threads_choose: false,
            first_countdown_whole: false,
            steal_thresh_smt: Some(1),
            first_stolen_last: false,
            steal_at_ticks: false,
            ticks_made_up_singly: true,
            parents_inherit: true,
            groups_nodes: false,
            counts_classes_above: true,
            balance_donor_load: 1,
            balance_asks_preemption: false,
            affinity_ticks: 1,
            balance_interval_ticks: stathz_u64,
        };
        match profile {
            Reading::Freebsd11 => freebsd,
            Reading::Modern => Self {
                priorities: Priorities::FREEBSD_14,
                preempted_first: true,
                search: SearchRules {
                    by_group: true,
                    preferred: 128,
                    chance: [128, 256],
                    preferred_in_ties: false,
                    discounts_running: true,
                },
                tries_before_idle: true,
                siblings_first: true,
                lone_threads_choose: true,
                first_countdown_whole: true,
                steal_thresh_smt: None,
                first_stolen_last: true,
                ticks_made_up_singly: false,
                groups_nodes: true,
                balance_asks_preemption: true,
                ..freebsd
            },
            Reading::PaperPort => Self {
                priorities: Priorities::LINUX,
                clock: Clock { hz: stathz, stathz },
                slice_max_ticks: 10,
                slice_min_ticks: 1,
                scores_above_half: true,
                threads_inherit_whole: false,
                remote_preemption: false,
                deferred_switch: false,
                preempted_first: true,
                search: SearchRules { by_group: false, ..freebsd.search },
                steal_thresh_smt: None,
                steal_at_ticks: true,
                parents_inherit: false,
                counts_classes_above: false,
                spins_idle: false,
                affinity_ticks: 100,
                balance_interval_ticks: 128,
                ..freebsd
            },
            Reading::PaperText => Self {
                priorities: Priorities { slope: Slope::Linear, ..Priorities::LINUX },
                slice_max_ticks: 10,
                slice_min_ticks: 1,
                slice_counts_itself: true,
                scores_above_half: true,
                threads_inherit_whole: false,
                remote_preemption: false,
                deferred_switch: false,
                search: SearchRules { by_group: false, ..freebsd.search },
                steal_thresh_smt: None,
                steal_at_ticks: true,
                parents_inherit: false,
                counts_classes_above: false,
                spins_idle: false,
                ..freebsd
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READINGS: [Reading; 4] = [Reading::Freebsd11, Reading::PaperPort, Reading::PaperText, Reading::Modern];

    #[test]
    fn ule_17_3_interactive_priorities_follow_the_score_in_freebsd_and_are_one_level_in_the_port() {
        let freebsd = Priorities::FREEBSD;
        assert_eq!([0, 1, 29].map(|score| freebsd.interactive(score, 30)), [120, 121, 149]);
        assert_eq!([0, 15, 29].map(|score| Priorities::LINUX.interactive(score, 30)), [100, 100, 100]);
        let text = Model::new(Reading::PaperText, 127).priorities;
        assert_eq!([0, 15, 29].map(|score| text.interactive(score, 30)), [100, 106, 111]);
    }

    #[test]
    fn ule_17_3_batch_priorities_of_nice_0_use_the_middle_of_the_range() {
        let freebsd = Priorities::FREEBSD;
        assert_eq!([0, 15, 31, 99].map(|usage| freebsd.batch(usage, 0)), [172, 187, 203, 203]);
        assert_eq!([0, 12, 99].map(|usage| Priorities::LINUX.batch(usage, 0)), [119, 131, 131]);
    }

    #[test]
    fn ule_17_3_no_nice_value_leaves_the_batch_range() {
        for profile in READINGS {
            let priorities = Model::new(profile, 250).priorities;
            for (usage, nice) in [(0, -20), (31, 20), (0, 19), (31, -20)] {
                let priority = priorities.batch(usage, nice);
                assert!(priorities.is_batch(priority) && priority <= priorities.batch_max, "{profile:?} {nice}");
            }
        }
        assert_eq!((Priorities::FREEBSD.batch(0, -20), Priorities::FREEBSD.batch(31, 20)), (152, 223));
        let modern = Priorities::FREEBSD_14;
        assert_eq!((modern.batch(0, -20), modern.batch(47, 20)), (136, 223));
        assert_eq!([0, 24, 47, 99].map(|usage| modern.batch(usage, 0)), [156, 180, 203, 203]);
        let levels = [0, 1, 29].map(|score| modern.interactive(score, 30));
        assert_eq!(levels, [88, 89, 134], "48 levels in proportion to the score");
    }

    #[test]
    fn slices_are_a_tenth_of_a_second_in_freebsd_and_ten_ticks_in_the_port() {
        let slices = |profile, stathz| {
            let model = Model::new(profile, stathz);
            (model.slice_max_ticks, model.slice_min_ticks)
        };
        assert_eq!(slices(Reading::Freebsd11, 127), (12, 2));
        assert_eq!(slices(Reading::PaperPort, 250), (10, 1));
        assert_eq!(slices(Reading::Freebsd11, 50).1, 0, "below 60 Hz the shortest slice is none");
    }
}
