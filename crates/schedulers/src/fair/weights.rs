//! Weights of nice values (`sched_prio_to_weight`) and virtual time.

use warmcore_workload::Policy;

/// Weight of a nice-0 task in the unit of nice values, `cpu.shares` and load averages.
pub const NICE_0_WEIGHT: u32 = 1024;

/// Bits by which the weights of entities and queues are finer than that (`SCHED_FIXEDPOINT_SHIFT` on 64-bit).
pub(crate) const LOAD_SHIFT: u32 = 10;

/// Weight of a nice-0 task as entities and queues have it (`NICE_0_LOAD` on 64-bit).
pub(crate) const NICE_0_LOAD: u32 = scale_load(NICE_0_WEIGHT);

/// The least weight of a group's entity, in the unit of [`NICE_0_LOAD`] (`MIN_SHARES`).
pub(crate) const MIN_SHARES: u32 = 2;

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

/// A weight of nice values or shares, less than 2^22, as entities have it (`scale_load` on 64-bit).
pub(crate) const fn scale_load(weight: u32) -> u32 {
    weight << LOAD_SHIFT
}

/// The weight of entities or queues as it counts in load averages: whole, at least 2 where there is one (`scale_load_down` since Linux
/// 5.7).
#[inline]
pub(crate) const fn scale_load_down(weight: u64) -> i64 {
    let whole = (weight >> LOAD_SHIFT) as i64;
    if whole < 2 && weight != 0 { 2 } else { whole }
}

/// Virtual time of `delta_ns` on the CPU at a weight in the unit of [`NICE_0_LOAD`] (`calc_delta_fair`).
#[inline]
pub(crate) fn virtual_delta(delta_ns: u64, weight: u32) -> i64 {
    if weight == NICE_0_LOAD {
        return delta_ns as i64;
    }
    match delta_ns.checked_mul(u64::from(NICE_0_LOAD)) {
        Some(product) => (product / u64::from(weight)) as i64,
        // Five hours and more.
        None => (u128::from(delta_ns) * u128::from(NICE_0_LOAD) / u128::from(weight)) as i64,
    }
}

/// A virtual time in a sum by weight. Next to an entity of little weight a heavy one may be placed so far away that 64 bits do not hold it.
#[inline]
pub(crate) fn weighted(time: i64, weight: u32) -> i128 {
    i128::from(time) * i128::from(weight)
}

/// The mean of times by the sum of their weights, rounded down.
#[inline]
pub(crate) fn mean(sum: i128, weight: i64) -> i64 {
    match i64::try_from(sum) {
        Ok(sum) => sum.div_euclid(weight),
        Err(_) => sum.div_euclid(i128::from(weight)) as i64,
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
        assert_eq!(virtual_delta(2_800_000, scale_load(1024)), 2_800_000);
        assert_eq!(virtual_delta(1_000_000, scale_load(2048)), 500_000);
        assert_eq!(virtual_delta(1_000_000, scale_load(512)), 2_000_000);
    }

    /// 31 shares on 16 CPUs are 1984 of 1048576 on each; 10 hours are more than a product in 64 bits holds.
    #[test]
    fn parts_of_a_weight_count_in_virtual_time() {
        assert_eq!(virtual_delta(1_000_000, scale_load(31) / 16), 528_516_129);
        assert_eq!(virtual_delta(36_000_000_000_000, scale_load(31) / 16), 36_000_000_000_000 * 16_384 / 31);
    }

    /// A task of nice -20 next to a group of the least weight, a day apart.
    #[test]
    fn means_of_virtual_times_do_not_overflow() {
        const DAY_NS: i64 = 86_400_000_000_000;
        let (light, heavy) = (MIN_SHARES, scale_load(88_761));
        let sum = weighted(-DAY_NS, heavy) + weighted(0, light);
        assert_eq!(mean(sum, i64::from(heavy) + i64::from(light)), -DAY_NS + 1_901_172);
        assert_eq!(mean(-1, 2), -1);
    }

    #[test]
    fn averages_of_load_have_whole_weights_from_two_up() {
        assert_eq!([0, 1, 1984, 2048, 3071, 3072].map(scale_load_down), [0, 2, 2, 2, 2, 3]);
        assert_eq!(scale_load_down(u64::from(scale_load(88_761))), 88_761);
    }
}
