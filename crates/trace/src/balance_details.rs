//! What a load balancer's decision to move a task rested on, figure by figure.
//!
//! These are no part of a recorded trace: a real kernel does not tell them, and a store does not keep them. Who asks why a task was moved
//! simulates the trial again and has them told ([`EventKind::BalanceDetail`](crate::EventKind::BalanceDetail)).

/// A figure that a decision rested on. The words are those of Linux' `kernel/sched/fair.c`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BalanceDetail {
    /// CPUs of the domain that was balanced.
    DomainCpus,
    /// How the group that receives stands: [`GROUP_TYPES`].
    LocalGroup,
    /// How the group that gives stands: [`GROUP_TYPES`].
    BusiestGroup,
    /// Runnable tasks of the group that receives.
    LocalRunning,
    /// Runnable tasks of the group that gives.
    BusiestRunning,
    /// Utilisation of the group that receives; 1024 is a whole CPU.
    LocalUtilisation,
    /// Utilisation of the group that gives.
    BusiestUtilisation,
    /// Load of the group that receives; 1024 is a nice-0 task that always runs.
    LocalLoad,
    /// Load of the group that gives.
    BusiestLoad,
    /// Capacity of the group that receives.
    LocalCapacity,
    /// Capacity of the group that gives.
    BusiestCapacity,
    /// In what the imbalance is counted: [`MIGRATION_TYPES`].
    MigrationType,
    /// How much was to be moved.
    Imbalance,
    /// How much of that the task is.
    TaskShare,
    /// Utilisation of the task.
    TaskUtilisation,
    /// Per cent of a group's capacity from which it counts as overloaded (`imbalance_pct`).
    ImbalancePercent,
    /// Passes before this one that moved nothing (`nr_balance_failed`).
    FailedPasses,
    /// Number of these from which a task is moved although its caches are warm (`cache_nice_tries`).
    CacheNiceTries,
    /// Time since the task ran.
    SinceRanNs,
    /// Time since it ran up to which its caches count as warm (`sysctl_sched_migration_cost`).
    MigrationCostNs,
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
    /// All figures, in order of their discriminants.
    pub const ALL: [BalanceDetail; 20] = [
        BalanceDetail::DomainCpus,
        BalanceDetail::LocalGroup,
        BalanceDetail::BusiestGroup,
        BalanceDetail::LocalRunning,
        BalanceDetail::BusiestRunning,
        BalanceDetail::LocalUtilisation,
        BalanceDetail::BusiestUtilisation,
        BalanceDetail::LocalLoad,
        BalanceDetail::BusiestLoad,
        BalanceDetail::LocalCapacity,
        BalanceDetail::BusiestCapacity,
        BalanceDetail::MigrationType,
        BalanceDetail::Imbalance,
        BalanceDetail::TaskShare,
        BalanceDetail::TaskUtilisation,
        BalanceDetail::ImbalancePercent,
        BalanceDetail::FailedPasses,
        BalanceDetail::CacheNiceTries,
        BalanceDetail::SinceRanNs,
        BalanceDetail::MigrationCostNs,
    ];

    /// Name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DomainCpus => "domain_cpus",
            Self::LocalGroup => "local_group_type",
            Self::BusiestGroup => "busiest_group_type",
            Self::LocalRunning => "local_running",
            Self::BusiestRunning => "busiest_running",
            Self::LocalUtilisation => "local_utilisation",
            Self::BusiestUtilisation => "busiest_utilisation",
            Self::LocalLoad => "local_load",
            Self::BusiestLoad => "busiest_load",
            Self::LocalCapacity => "local_capacity",
            Self::BusiestCapacity => "busiest_capacity",
            Self::MigrationType => "migration_type",
            Self::Imbalance => "imbalance",
            Self::TaskShare => "task_share",
            Self::TaskUtilisation => "task_utilisation",
            Self::ImbalancePercent => "imbalance_pct",
            Self::FailedPasses => "failed_passes",
            Self::CacheNiceTries => "cache_nice_tries",
            Self::SinceRanNs => "since_ran_ns",
            Self::MigrationCostNs => "migration_cost_ns",
        }
    }

    /// The word that a value stands for, if it is not a number.
    #[must_use]
    pub fn word(self, value: i64) -> Option<&'static str> {
        let words: &[&'static str] = match self {
            Self::LocalGroup | Self::BusiestGroup => &GROUP_TYPES,
            Self::MigrationType => &MIGRATION_TYPES,
            _ => return None,
        };
        usize::try_from(value).ok().and_then(|value| words.get(value)).copied()
    }
}
