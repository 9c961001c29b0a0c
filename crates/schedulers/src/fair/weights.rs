//! Weights of nice values (`sched_prio_to_weight`) and virtual time.

use warmcore_workload::Policy;

/// Weight of a nice-0 task (`NICE_0_LOAD`, in the 1024-based unit).
pub const NICE_0_WEIGHT: u32 = 1024;

/// Weight of a `SCHED_IDLE` task (`WEIGHT_IDLEPRIO`).
pub(crate) const IDLE_WEIGHT: u32 = 3;

/// Weights of nice −20 to 19.
static NICE_TO_WEIGHT: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// Weight of a task by policy and nice value; nice values outside −20..=19 count as the nearest.
pub fn weight_of(policy: Policy, nice: i8) -> u32 {
    match policy {
        Policy::Idle => IDLE_WEIGHT,
        // Tasks of the classes above have the weight that they would come with.
        _ => NICE_TO_WEIGHT[usize::from((nice.clamp(-20, 19) + 20) as u8)],
    }
}

/// Virtual time of `delta_ns` on the CPU at a weight (`calc_delta_fair`).
#[inline]
pub(crate) fn virtual_delta(delta_ns: u64, weight: u32) -> i64 {
    if weight == NICE_0_WEIGHT {
        delta_ns as i64
    } else {
        (u128::from(delta_ns) * u128::from(NICE_0_WEIGHT) / u128::from(weight)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/spec/linux-fair.md` section 1.1.
    #[test]
    fn weights_follow_the_table() {
        assert_eq!(weight_of(Policy::Normal, 0), 1024);
        assert_eq!(weight_of(Policy::Normal, -20), 88761);
        assert_eq!(weight_of(Policy::Batch, 19), 15);
        assert_eq!(weight_of(Policy::Normal, 5), 335);
        assert_eq!(weight_of(Policy::Idle, -20), 3);
    }

    #[test]
    fn virtual_time_runs_slower_for_heavier_tasks() {
        assert_eq!(virtual_delta(2_800_000, 1024), 2_800_000);
        assert_eq!(virtual_delta(1_000_000, 2048), 500_000);
        assert_eq!(virtual_delta(1_000_000, 512), 2_000_000);
    }
}
