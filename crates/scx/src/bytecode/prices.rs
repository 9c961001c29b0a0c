//! What calls of helpers and kernel functions cost a simulated CPU, in picoseconds.
//!
//! Measured in a kernel 6.18 on an AMD Zen 5 with warm caches and nobody to wait for (`scripts/bpf-prices`,
//! `results/2026-11-25-zen5-2vcpu-bpf-prices/prices.json`). What cannot be called without a sched_ext scheduler is assumed to cost what a measured
//! function of about the same work does; the comment says which.

use warmcore_kernel::READ_COUNTERS_NS;

/// An instruction: between an add that waits for the one before (240) and adds that wait for nothing (70), as code that follows pointers is.
pub(super) const INSTRUCTION_PS: u64 = 200;

/// The cheapest call of a kernel function that was measured: what is not named below.
const CALL_PS: u64 = 7_670;

/// A helper, by number (`enum bpf_func_id`).
pub(super) fn of_helper(number: i32) -> u64 {
    match number {
        // A lookup in an array, and in one of each CPU: the kernel puts them into the code.
        1 => 920,
        195 => 1_080,
        // The clock.
        5 | 125 | 160 => 30_520,
        7 => 15_120,
        // A counter of the CPU: as policies in Rust pay for a look at one. Assumed.
        22 | 55 | 56 => 1000 * READ_COUNTERS_NS,
        // This CPU, the addresses of its variables, what a traced function was given and gave: put into the code.
        8 | 153 | 154 | 183..=185 => 320,
        35 | 158 => 6_310,
        156 | 210 => 7_710,
        _ => CALL_PS,
    }
}

/// A kernel function, by name.
pub(super) fn of_kfunc(name: &str) -> u64 {
    match name {
        // Its release is in it.
        "bpf_cpumask_create" => 262_190,
        "bpf_cpumask_release" => 0,
        "bpf_rcu_read_lock" | "bpf_rcu_read_unlock" => 7_210,
        "bpf_cpumask_test_cpu" => 9_170,
        "bpf_cpumask_set_cpu" | "bpf_cpumask_clear_cpu" => 9_560,
        "bpf_cpumask_first" | "bpf_cpumask_first_and" | "bpf_cpumask_first_zero" => 13_880,
        "bpf_cpumask_empty" | "bpf_cpumask_full" | "bpf_cpumask_equal" | "bpf_cpumask_intersects" => 14_060,
        "bpf_cpumask_any_distribute" | "bpf_cpumask_any_and_distribute" => 21_610,
        // A search of masks and a claim: as the search.
        "scx_bpf_pick_idle_cpu" | "scx_bpf_pick_any_cpu" | "scx_bpf_select_cpu_dfl" | "__scx_bpf_select_cpu_and" => {
            21_610
        }
        // A queue is found in a hash table: as a lookup in one.
        "scx_bpf_dsq_nr_queued"
        | "scx_bpf_dsq_peek"
        | "scx_bpf_dsq_move_to_local"
        | "scx_bpf_dsq_move_to_local___v2"
        | "scx_bpf_dsq_move"
        | "scx_bpf_dsq_move_vtime"
        | "bpf_iter_scx_dsq_new" => 24_840,
        _ => CALL_PS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_those_that_were_measured() {
        let measured = include_str!("../../../../results/2026-11-25-zen5-2vcpu-bpf-prices/prices.json");
        let same = |row: &str, price_ps: u64| {
            let line = format!("\"{row}\": {}", price_ps as f64 / 1000.0);
            assert!(measured.contains(&line), "no row {line}");
        };
        let helpers = [
            ("bpf_map_lookup_elem, array", 1),
            ("bpf_map_lookup_elem, per-CPU array", 195),
            ("bpf_ktime_get_ns", 5),
            ("bpf_get_prandom_u32", 7),
            ("bpf_get_smp_processor_id", 8),
            ("bpf_get_current_task_btf", 158),
            ("bpf_task_storage_get", 156),
        ];
        helpers.into_iter().for_each(|(row, number)| same(row, of_helper(number)));
        let alone = ["test_cpu", "set_cpu", "first", "empty", "any_and_distribute", "weight"];
        alone.into_iter().map(|name| format!("bpf_cpumask_{name}")).for_each(|name| same(&name, of_kfunc(&name)));
        same("bpf_rcu_read_lock and unlock", of_kfunc("bpf_rcu_read_lock") + of_kfunc("bpf_rcu_read_unlock"));
        same("bpf_cpumask_create and release", of_kfunc("bpf_cpumask_create"));
        same("bpf_map_lookup_elem, hash", of_kfunc("scx_bpf_dsq_nr_queued"));
    }
}
