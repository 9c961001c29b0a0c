//! What a load balancer's decision to move a task rested on, figure by figure.
//!
//! These are no part of a recorded trace: a real kernel does not tell them, and a store does not keep them. Who asks why a task was moved
//! simulates the trial again and has them told ([`EventKind::BalanceDetail`](crate::EventKind::BalanceDetail)).

warmcore_topology::worded! {
    /// A figure that a decision rested on. The words are those of Linux' `kernel/sched/fair.c`.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum BalanceDetail: name {
        /// CPUs of the domain that was balanced.
        DomainCpus = "domain_cpus",
        /// How the group that receives stands: [`GROUP_TYPES`].
        LocalGroup = "local_group_type",
        /// How the group that gives stands: [`GROUP_TYPES`].
        BusiestGroup = "busiest_group_type",
        /// Runnable tasks of the group that receives.
        LocalRunning = "local_running",
        /// Runnable tasks of the group that gives.
        BusiestRunning = "busiest_running",
        /// Utilisation of the group that receives; 1024 is a whole CPU.
        LocalUtilisation = "local_utilisation",
        /// Utilisation of the group that gives.
        BusiestUtilisation = "busiest_utilisation",
        /// Load of the group that receives; 1024 is a nice-0 task that always runs.
        LocalLoad = "local_load",
        /// Load of the group that gives.
        BusiestLoad = "busiest_load",
        /// Capacity of the group that receives.
        LocalCapacity = "local_capacity",
        /// Capacity of the group that gives.
        BusiestCapacity = "busiest_capacity",
        /// In what the imbalance is counted: [`MIGRATION_TYPES`].
        MigrationType = "migration_type",
        /// How much was to be moved.
        Imbalance = "imbalance",
        /// How much of that the task is.
        TaskShare = "task_share",
        /// Utilisation of the task.
        TaskUtilisation = "task_utilisation",
        /// Per cent of a group's capacity from which it counts as overloaded (`imbalance_pct`).
        ImbalancePercent = "imbalance_pct",
        /// Passes before this one that moved nothing (`nr_balance_failed`).
        FailedPasses = "failed_passes",
        /// Number of these from which a task is moved although its caches are warm (`cache_nice_tries`).
        CacheNiceTries = "cache_nice_tries",
        /// Time since the task ran.
        SinceRanNs = "since_ran_ns",
        /// Time since it ran up to which its caches count as warm (`sysctl_sched_migration_cost`).
        MigrationCostNs = "migration_cost_ns",
    }
}

/// Types of groups (`enum group_type`), by their number; the last one is the type before Linux 5.5 of groups that are neither imbalanced
/// nor overloaded.
pub const GROUP_TYPES: [&str; 9] = [
    "has spare capacity",
    "fully busy",
    "has a misfit task",
    "several busy threads on a core",
    "asymmetric packing",
    "imbalanced by affinity",
    "has tasks that prefer the other LLC",
    "overloaded",
    "not overloaded",
];

/// What is moved (`enum migration_type`), by the number that details have.
pub const MIGRATION_TYPES: [&str; 5] =
    ["load", "utilisation", "tasks", "tasks that prefer the LLC", "tasks that need a bigger CPU"];

impl BalanceDetail {
    /// The word that a value stands for, if it is not a number.
    pub fn word(self, value: i64) -> Option<&'static str> {
        let words: &[&'static str] = match self {
            Self::LocalGroup | Self::BusiestGroup => &GROUP_TYPES,
            Self::MigrationType => &MIGRATION_TYPES,
            _ => return None,
        };
        usize::try_from(value).ok().and_then(|value| words.get(value)).copied()
    }
}
