//! What the moves of a pass rest on, for those who ask why a task was moved. Nothing here decides anything.

use warmcore_kernel::Core;
use warmcore_trace::{BalanceDetail, TaskId};

use super::pass::Pass;
use super::stats::{GroupStats, Migration};
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

/// A group as a pass found it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoundGroup {
    /// Number of its type in `GROUP_TYPES`.
    pub group_type: u8,
    pub nr_running: u32,
    pub util: u64,
    pub load: u64,
    pub capacity: u64,
}

impl From<&GroupStats> for FoundGroup {
    fn from(stats: &GroupStats) -> Self {
        Self {
            group_type: stats.group_type as u8,
            nr_running: stats.nr_running,
            util: stats.util,
            load: stats.load,
            capacity: stats.capacity,
        }
    }
}

/// What a pass found when it chose where to pull from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub local: FoundGroup,
    pub busiest: FoundGroup,
    /// The whole imbalance, before tasks were moved.
    pub imbalance: i64,
    /// Passes before this one that moved nothing.
    pub failed: u32,
    pub migration: Option<Migration>,
}

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Tells what the move of a task rests on, where that is wanted; `share` is how much of the imbalance the task is.
    pub(super) fn tell_balance_details(&self, core: &mut Core<'_>, pass: &Pass, task: TaskId, share: Option<i64>) {
        if !core.wants_balance_details() {
            return;
        }
        use BalanceDetail as Detail;
        let domain = self.domains.domain(pass.domain);
        let Found { local, busiest, imbalance, failed, migration } = pass.found;
        let entity = &self.entities[self.task_entity(task) as usize];
        let since_ran = core.clock_task_ns(pass.src) - entity.exec_start_ns;
        let groups = [
            (Detail::LocalGroup, Some(i64::from(local.group_type))),
            (Detail::BusiestGroup, Some(i64::from(busiest.group_type))),
            (Detail::LocalRunning, Some(i64::from(local.nr_running))),
            (Detail::BusiestRunning, Some(i64::from(busiest.nr_running))),
            (Detail::LocalUtilisation, Some(local.util as i64)),
            (Detail::BusiestUtilisation, Some(busiest.util as i64)),
            (Detail::LocalLoad, Some(local.load as i64)),
            (Detail::BusiestLoad, Some(busiest.load as i64)),
            (Detail::LocalCapacity, Some(local.capacity as i64)),
            (Detail::BusiestCapacity, Some(busiest.capacity as i64)),
            (Detail::MigrationType, migration.map(|migration| migration as i64)),
            (Detail::Imbalance, Some(imbalance)),
        ];
        let others = [
            (Detail::TaskShare, share),
            (Detail::TaskUtilisation, Some(entity.pelt.util as i64)),
            (Detail::ImbalancePercent, Some(i64::from(domain.imbalance_pct))),
            (Detail::FailedPasses, Some(i64::from(failed))),
            (Detail::CacheNiceTries, Some(i64::from(domain.cache_nice_tries))),
            (Detail::SinceRanNs, Some(since_ran as i64)),
            (Detail::MigrationCostNs, Some(self.parameters.migration_cost_ns as i64)),
        ];
        core.balance_detail(task, Detail::DomainCpus, i64::from(domain.span_weight));
        // Groups were compared only if the pass chose a source: a stopper's pass has them of the one that started it.
        let groups = groups.into_iter().filter(|_| migration.is_some());
        for (detail, value) in groups.chain(others) {
            if let Some(value) = value {
                core.balance_detail(task, detail, value);
            }
        }
    }
}
