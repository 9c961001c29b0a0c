//! The rules on figures; passes on a running machine are tested in `tests/balance.rs`.

use warmcore_topology::{CpuId, resolve};

use super::load_only::{LoadDomain, LoadStats, find_load_imbalance};
use super::newidle::{success_weight, update_newidle_stats};
use super::pass::next_interval_ms;
use super::stats::{
    Conditions, DomainStats, GroupStats, GroupType, Imbalance, Migration, find_imbalance, is_busier, nr_idle_scan,
    sibling_imbalance,
};
use super::{IdleType, balance_interval, decay_newidle_cost};
use crate::domains::{Domain, DomainParameters, Domains, flags};
use crate::fair::select::adjust_numa_imbalance;

const PCT: u32 = 117;

/// Domains of CPU 0 on 2 LLCs of 8 CPUs: MC 8, PKG 16.
fn domains_of_two_llcs() -> Vec<Domain> {
    Domains::build(
        &resolve("1s1n2l8c1t").unwrap(),
        &DomainParameters { imbalance_pct: PCT, ..DomainParameters::default() },
    )
    .of(CpuId(0))
    .to_vec()
}

/// A group of 8 ordinary CPUs with that many tasks, all of them running all the time.
fn busy_group(nr: u32) -> GroupStats {
    let running = nr.min(8);
    let mut stats = GroupStats {
        flags: flags::SHARE_LLC | flags::PREFER_SIBLING,
        weight: 8,
        cores: 8,
        capacity: 8 * 1024,
        load: u64::from(nr) * 1024,
        util: u64::from(running) * 1024,
        runnable: u64::from(nr) * 1024,
        nr_running: nr,
        h_nr_runnable: nr,
        idle_cpus: 8 - running,
        ..GroupStats::default()
    };
    classify(&mut stats);
    stats
}

fn classify(stats: &mut GroupStats) {
    stats.group_type = stats.classify(PCT, false, false);
    stats.avg_load = if stats.group_type == GroupType::Overloaded { stats.load_per_capacity() } else { 0 };
}

/// A group of one CPU.
fn single(nr: u32) -> GroupStats {
    let mut stats = busy_group(nr);
    (stats.flags, stats.weight, stats.cores, stats.capacity) = (0, 1, 1, 1024);
    (stats.util, stats.idle_cpus) = (if nr > 0 { 1024 } else { 0 }, u32::from(nr == 0));
    classify(&mut stats);
    stats
}

fn pkg(idle: IdleType) -> Conditions {
    Conditions {
        idle,
        flags: flags::PREFER_SIBLING,
        imbalance_pct: PCT,
        imb_numa_nr: 2,
        llc_forced: false,
        llc_batch: 1,
    }
}

fn mc(idle: IdleType) -> Conditions {
    Conditions { flags: flags::SHARE_LLC | flags::PREFER_SIBLING, ..pkg(idle) }
}

fn numa(idle: IdleType) -> Conditions {
    Conditions { flags: flags::NUMA, ..pkg(idle) }
}

fn find(conditions: Conditions, local: GroupStats, busiest: GroupStats) -> Option<Imbalance> {
    let (total_load, total_capacity) = (local.load + busiest.load, local.capacity + busiest.capacity);
    find_imbalance(&conditions, &mut DomainStats { local, busiest, total_load, total_capacity })
}

fn tasks(amount: i64) -> Option<Imbalance> {
    Some(Imbalance { amount, migration: Migration::Task })
}

#[test]
fn groups_are_classified_by_tasks_utilisation_and_waiting() {
    let with = |nr: u32, util: u64, runnable: u64| {
        let mut stats = busy_group(nr);
        (stats.util, stats.runnable) = (util, runnable);
        stats.classify(PCT, false, false)
    };
    // Fewer tasks than CPUs is spare capacity, however busy.
    assert_eq!(with(7, 8192, 20_000), GroupType::HasSpare);
    // As many or more: by utilisation (8192 / 1.17 = 7001.7) and waiting (8192 × 1.17 = 9584.6).
    assert_eq!(with(8, 7001, 8192), GroupType::HasSpare);
    assert_eq!(with(8, 7002, 8192), GroupType::FullyBusy);
    assert_eq!(with(8, 5000, 9584), GroupType::HasSpare);
    assert_eq!(with(8, 5000, 9585), GroupType::FullyBusy);
    assert_eq!(with(9, 7002, 8192), GroupType::Overloaded);
    assert_eq!(with(9, 5000, 9585), GroupType::Overloaded);
    assert_eq!(with(20, 5000, 9000), GroupType::HasSpare);
}

#[test]
fn special_types_rank_below_overload_only() {
    assert_eq!(busy_group(16).classify(PCT, true, true), GroupType::Overloaded);
    assert_eq!(busy_group(4).classify(PCT, true, true), GroupType::Imbalanced);
    assert_eq!(busy_group(4).classify(PCT, false, true), GroupType::SmtBalance);
    let order = [
        GroupType::HasSpare,
        GroupType::FullyBusy,
        GroupType::SmtBalance,
        GroupType::AsymPacking,
        GroupType::Imbalanced,
        GroupType::Overloaded,
    ];
    assert!(order.is_sorted());
}

#[test]
fn the_busiest_group_has_the_highest_type_then_the_most_load_or_fewest_idle_cpus() {
    assert!(!is_busier(&busy_group(0), None));
    assert!(is_busier(&busy_group(1), None));
    assert!(is_busier(&busy_group(9), Some(&busy_group(8))));
    assert!(is_busier(&busy_group(12), Some(&busy_group(9))));
    assert!(!is_busier(&busy_group(9), Some(&busy_group(9))));
    assert!(is_busier(&busy_group(5), Some(&busy_group(4))));
    let mut more_tasks = busy_group(5);
    more_tasks.idle_cpus = 4;
    assert!(is_busier(&more_tasks, Some(&busy_group(4))));
    assert!(!is_busier(&busy_group(4), Some(&busy_group(4))));
    let imbalanced = GroupStats { group_type: GroupType::Imbalanced, ..busy_group(3) };
    assert!(!is_busier(&imbalanced, Some(&imbalanced)));
}

#[test]
fn a_core_is_not_emptied_for_plain_cpus() {
    let core =
        |nr| GroupStats { flags: flags::SHARE_CPUCAPACITY, weight: 2, cores: 1, capacity: 2048, ..busy_group(nr) };
    assert!(!is_busier(&core(1), Some(&single(1))));
    assert!(is_busier(&single(1), Some(&core(1))));
    // Between fully busy groups a core stays the choice, and of plain ones the last is taken.
    let fully = |stats: GroupStats| GroupStats { group_type: GroupType::FullyBusy, ..stats };
    assert!(!is_busier(&fully(single(1)), Some(&fully(core(2)))));
    assert!(is_busier(&fully(single(1)), Some(&fully(single(1)))));
}

#[test]
fn sibling_imbalance_compares_tasks_per_core() {
    let idle = IdleType::Idle;
    assert_eq!(sibling_imbalance(idle, &busy_group(5), &busy_group(2)), 3);
    assert_eq!(sibling_imbalance(idle, &busy_group(2), &busy_group(5)), 0);
    assert_eq!(sibling_imbalance(IdleType::NotIdle, &busy_group(8), &busy_group(0)), 0);
    let small = |nr| GroupStats { cores: 4, weight: 4, ..busy_group(nr) };
    // 4 × 6 − 8 × 1 = 16; (32 + 12) / 12 = 3.
    assert_eq!(sibling_imbalance(idle, &busy_group(6), &small(1)), 3);
    // 4 × 2 − 0 = 8; (16 + 12) / 12 = 2.
    assert_eq!(sibling_imbalance(idle, &busy_group(2), &small(0)), 2);
    // One core against 8 with 2 tasks: 2; (4 + 9) / 9 = 1, raised to 2 because the local group is empty.
    let core = |nr| GroupStats { cores: 1, weight: 1, ..busy_group(nr) };
    assert_eq!(sibling_imbalance(idle, &busy_group(2), &core(0)), 2);
    assert_eq!(sibling_imbalance(idle, &busy_group(1), &core(0)), 1);
}

#[test]
fn siblings_with_spare_capacity_share_tasks_evenly() {
    let idle = IdleType::Idle;
    assert_eq!(find(pkg(idle), busy_group(0), busy_group(4)), tasks(2));
    assert_eq!(find(pkg(idle), busy_group(1), busy_group(4)), tasks(1));
    // A difference of one is no reason, and a busy CPU leaves it to an idle one.
    assert_eq!(find(pkg(idle), busy_group(3), busy_group(4)), None);
    assert_eq!(find(pkg(IdleType::NotIdle), busy_group(1), busy_group(4)), None);
}

#[test]
fn one_task_waiting_behind_another_goes_to_an_idle_cpu_of_the_llc() {
    assert_eq!(find(mc(IdleType::NewlyIdle), single(0), single(2)), tasks(1));
    assert_eq!(find(mc(IdleType::Idle), single(0), single(1)), None);
}

#[test]
fn an_overloaded_group_fills_the_utilisation_another_llc_has_left() {
    let local = busy_group(6);
    let expected = Imbalance { amount: 2 * 1024, migration: Migration::Util };
    assert_eq!(find(pkg(IdleType::Idle), local, busy_group(12)), Some(expected));
    // Utilisation still high although the CPU is idle now: one task.
    let mut stale = busy_group(7);
    stale.util = stale.capacity + 100;
    assert_eq!(find(pkg(IdleType::NewlyIdle), stale, busy_group(12)), tasks(1));
    assert_eq!(find(pkg(IdleType::NotIdle), stale, busy_group(12)), None);
}

#[test]
fn a_fully_busy_group_takes_load_up_to_the_average() {
    let imbalance = find(pkg(IdleType::NotIdle), busy_group(8), busy_group(16));
    // Averages 1024 and 2048, domain 1536: 512 × 8 CPUs.
    assert_eq!(imbalance, Some(Imbalance { amount: 4096, migration: Migration::Load }));
    // Nothing from a group that is no busier.
    assert_eq!(find(pkg(IdleType::Idle), busy_group(8), busy_group(8)), None);
}

#[test]
fn overloaded_groups_differ_only_beyond_the_margin() {
    let not_idle = IdleType::NotIdle;
    // 117 × 10 = 1170 tasks against 100 × 12 = 1200.
    let imbalance = find(pkg(not_idle), busy_group(10), busy_group(12));
    assert_eq!(imbalance, Some(Imbalance { amount: 1024, migration: Migration::Load }));
    // 117 × 11 = 1287 against 1200.
    assert_eq!(find(pkg(not_idle), busy_group(11), busy_group(12)), None);
    assert_eq!(find(pkg(not_idle), busy_group(12), busy_group(10)), None);
    // Above the domain's average, because other groups are nearly idle.
    let (local, busiest) = (busy_group(10), busy_group(14));
    let mut stats = DomainStats { local, busiest, total_load: 24 * 1024, total_capacity: 32 * 1024 };
    assert_eq!(find_imbalance(&pkg(not_idle), &mut stats), None);
}

#[test]
fn a_busier_local_group_pulls_nothing() {
    assert_eq!(find(pkg(IdleType::Idle), busy_group(9), busy_group(8)), None);
    assert_eq!(find(pkg(IdleType::Idle), busy_group(9), busy_group(4)), None);
}

#[test]
fn affinity_trouble_forces_one_task_out() {
    let imbalanced = GroupStats { group_type: GroupType::Imbalanced, ..busy_group(2) };
    assert_eq!(find(pkg(IdleType::NotIdle), busy_group(12), imbalanced), tasks(1));
}

#[test]
fn a_group_of_lower_priority_gives_all_tasks_the_lowest_first() {
    let slow = |nr, priority| GroupStats { group_type: GroupType::AsymPacking, priority, ..busy_group(nr) };
    // One running task has nobody waiting, and the local group may be as full.
    assert_eq!(find(mc(IdleType::Idle), single(0), slow(1, 40)), tasks(1));
    assert_eq!(find(pkg(IdleType::Idle), busy_group(12), slow(3, 40)), tasks(3));
    assert!(is_busier(&slow(1, 39), Some(&slow(3, 40))));
    assert!(!is_busier(&slow(3, 40), Some(&slow(1, 40))));
    assert!(is_busier(&slow(1, 40), Some(&busy_group(8))));
    assert!(!is_busier(&slow(1, 40), Some(&busy_group(9))));
}

#[test]
fn a_core_with_two_busy_threads_gives_one_to_an_idle_core() {
    let core =
        |nr: u32| GroupStats { flags: flags::SHARE_CPUCAPACITY, weight: 2, cores: 1, capacity: 2048, ..busy_group(nr) };
    let busy = GroupStats { group_type: GroupType::SmtBalance, idle_cpus: 0, ..core(2) };
    let idle = GroupStats { idle_cpus: 2, ..core(0) };
    assert_eq!(find(mc(IdleType::Idle), idle, busy), tasks(1));
    // A half-busy core has one idle thread, the other none: not enough.
    assert_eq!(find(mc(IdleType::Idle), GroupStats { idle_cpus: 1, ..core(1) }, busy), None);
    // A plain CPU takes it in any case.
    assert_eq!(find(mc(IdleType::Idle), single(0), busy), tasks(1));
}

#[test]
fn numa_nodes_keep_small_imbalances() {
    assert_eq!(adjust_numa_imbalance(2, 2, 2), 0);
    assert_eq!(adjust_numa_imbalance(3, 2, 2), 3);
    assert_eq!(adjust_numa_imbalance(2, 3, 2), 2);
    let no_preference = |nr| GroupStats { flags: flags::NUMA, ..busy_group(nr) };
    assert_eq!(find(numa(IdleType::Idle), no_preference(0), no_preference(2)), None);
    // Four idle CPUs more: half the difference.
    assert_eq!(find(numa(IdleType::Idle), no_preference(0), no_preference(4)), tasks(2));
}

/// `docs/spec/linux-fair.md` section 4.5 and item 20 of its checklist.
#[test]
fn the_idle_search_shrinks_with_utilisation() {
    let scan = |percent: u64| nr_idle_scan(16 * 1024 * percent / 100, 16, PCT);
    assert_eq!([0, 25, 50, 60, 70, 75, 80, 85].map(scan), [16, 14, 10, 8, 5, 3, 2, 0]);
}

/// Item 22 of the checklist, in milliseconds at 250 Hz.
#[test]
fn idle_cpus_balance_every_8_to_16_ms_and_busy_ones_sixteen_times_less_often() {
    let bounds = |domain: &Domain, busy| {
        [domain.min_interval_ms, domain.max_interval_ms].map(|balance_interval_ms| {
            let mut domain = domain.clone();
            domain.balance_interval_ms = balance_interval_ms;
            4 * balance_interval(&domain, busy, true, 250, 400)
        })
    };
    let [mc, pkg] = domains_of_two_llcs().try_into().expect("two levels");
    assert_eq!((bounds(&mc, false), bounds(&pkg, false)), ([8, 16], [16, 32]));
    assert_eq!((bounds(&mc, true), bounds(&pkg, true)), ([124, 252], [252, 508]));
}

#[test]
fn intervals_are_milliseconds_rounded_up_to_jiffies() {
    let mut mc = domains_of_two_llcs().remove(0);
    let jiffies = |domain: &Domain, busy| balance_interval(domain, busy, true, 250, 400);
    assert_eq!(jiffies(&mc, false), 2);
    assert_eq!(balance_interval(&mc, true, false, 250, 400), 32);
    assert_eq!(balance_interval(&mc, true, true, 250, 20), 20);
    mc.balance_interval_ms = 2;
    assert_eq!(jiffies(&mc, false), 1);
}

#[test]
fn intervals_double_while_balanced_and_fall_back_when_not() {
    assert_eq!(next_interval_ms(8, (8, 16), true, false), 16);
    assert_eq!(next_interval_ms(16, (8, 16), true, false), 16);
    assert_eq!(next_interval_ms(16, (8, 16), false, false), 8);
    let pinned = std::iter::successors(Some(8), |&present| Some(next_interval_ms(present, (8, 16), true, true)));
    assert_eq!(pinned.take(8).collect::<Vec<_>>(), [8, 16, 32, 64, 128, 256, 512, 512]);
}

#[test]
fn newidle_passes_are_let_through_by_success_and_by_rarity() {
    let mut domain = domains_of_two_llcs().remove(0);
    assert_eq!((domain.newidle_call, domain.newidle_success, domain.newidle_ratio), (512, 256, 512));
    let call = |domain: &mut Domain, times: u32, success: u32, now_ns: u64| {
        (0..times).for_each(|_| update_newidle_stats(domain, success, now_ns, true));
    };
    // 512 failures within no time: 256 of 1024.
    call(&mut domain, 512, 0, 0);
    assert_eq!((domain.newidle_call, domain.newidle_success, domain.newidle_ratio), (512, 128, 256));
    // Over one second: 128, and 1 s / 2^22 ns.
    call(&mut domain, 512, 0, 1_000_000_000);
    assert_eq!(domain.newidle_ratio, 128 + 238);
    // Always successful with a weight of 4.
    call(&mut domain, 512, 4, 1_000_000_000);
    assert_eq!(domain.newidle_ratio, 1024);
    assert_eq!([0, 63, 255, 511, 1023].map(success_weight), [1024, 16, 4, 2, 1]);
}

#[test]
fn the_cost_of_newidle_passes_decays_by_the_second() {
    let mut domain = domains_of_two_llcs().remove(0);
    domain.max_newidle_lb_cost_ns = 2_560;
    assert!(!decay_newidle_cost(&mut domain, 250, 250));
    assert!(decay_newidle_cost(&mut domain, 251, 250));
    assert_eq!(domain.max_newidle_lb_cost_ns, 2_530);
    assert!(!decay_newidle_cost(&mut domain, 400, 250));
}

/// A group of 8 CPUs under the load-only rules.
fn load_group(nr: u32) -> LoadStats {
    let mut stats = LoadStats {
        group: 0,
        weight: 8,
        capacity: 8 * 1024,
        load: u64::from(nr) * 1024,
        runnable_load: u64::from(nr) * 1024,
        util: u64::from(nr.min(8)) * 1024,
        nr_running: nr,
        idle_cpus: 8 - nr.min(8),
        imbalanced: false,
        no_capacity: false,
    };
    stats.no_capacity = stats.is_overloaded(125);
    stats
}

fn find_load(idle: IdleType, local: LoadStats, busiest: LoadStats) -> u64 {
    let avg_load = (local.load + busiest.load) * 1024 / (local.capacity + busiest.capacity);
    find_load_imbalance(idle, 125, &LoadDomain { local, busiest, avg_load })
}

#[test]
fn load_alone_decides_before_5_5() {
    // The 25 % rule: 16 tasks against 13 is within, against 12 beyond.
    assert_eq!(find_load(IdleType::NotIdle, load_group(13), load_group(16)), 0);
    assert_eq!(find_load(IdleType::NotIdle, load_group(12), load_group(16)), 2048);
    assert_eq!(find_load(IdleType::NotIdle, load_group(16), load_group(12)), 0);
    // An idle CPU next to a group that is not overloaded counts idle CPUs.
    assert_eq!(find_load(IdleType::Idle, load_group(6), load_group(7)), 0);
    assert_eq!(find_load(IdleType::Idle, load_group(4), load_group(8)), 2048);
}

#[test]
fn overloaded_groups_keep_a_task_per_cpu_before_5_5() {
    // The difference to the average is 3.5 tasks per CPU, but only 9 tasks are more than one per CPU.
    let mut heavy = load_group(9);
    (heavy.load, heavy.runnable_load) = (64 * 1024, 64 * 1024);
    assert_eq!(find_load(IdleType::NotIdle, load_group(9), heavy), heavy.load / 9);
}

/// A core leaves a task for what its threads have together: of three, 3072 - 1178 are too many where that is 1178, and 3072 - 2048 where
/// each thread counts as a core.
#[test]
fn what_is_above_a_cores_capacity_depends_on_what_its_threads_have() {
    let excess = |capacity: u64| {
        let mut local = LoadStats { weight: 2, capacity, util: capacity, idle_cpus: 0, ..load_group(3) };
        local.no_capacity = true;
        find_load(IdleType::NotIdle, local, LoadStats { load: 30 * 1024, ..local })
    };
    assert_eq!((excess(1178), excess(2048)), (1893, 1024));
}

#[test]
fn a_lone_pair_of_tasks_is_parted_before_5_5() {
    let single =
        |nr: u32| LoadStats { weight: 1, capacity: 1024, util: 0, idle_cpus: u32::from(nr == 0), ..load_group(nr) };
    // The domain is nearly idle, so the average would allow only a 64th of a task.
    let domain = LoadDomain { local: single(0), busiest: LoadStats { no_capacity: true, ..single(2) }, avg_load: 32 };
    assert_eq!(find_load_imbalance(IdleType::Idle, 125, &domain), 1024);
}

/// What a small imbalance is rounded up to: three tasks of 1024 run now, but the averages over ticks know of one. A third of the
/// averages would be 341.
#[test]
fn a_small_imbalance_is_the_load_of_a_task_that_runs_now() {
    let single =
        |nr: u32| LoadStats { weight: 1, capacity: 1024, util: 0, idle_cpus: u32::from(nr == 0), ..load_group(nr) };
    let busiest = LoadStats { load: 1024, runnable_load: 3 * 1024, no_capacity: true, ..single(3) };
    let domain = LoadDomain { local: single(0), busiest, avg_load: 512 };
    // The averages differ by 512 from the domain's: less than a task, and 1024 + 1024 is not below 0 + 2 * 1024.
    assert_eq!(find_load_imbalance(IdleType::Idle, 125, &domain), 1024);
}

/// The branches of `fix_small_imbalance` of 4.9 on one CPU each, with numbers worked out by hand: averages of load, and the load and
/// number of tasks that run now.
#[test]
fn small_imbalances_are_rounded_up_if_that_evens_out_or_uses_more_capacity() {
    let cpu = |load: u64, runnable_load: u64, nr: u32| LoadStats {
        weight: 1,
        capacity: 1024,
        load,
        runnable_load,
        util: 1024,
        nr_running: nr,
        idle_cpus: 0,
        ..load_group(nr)
    };
    let busy = IdleType::NotIdle;
    // Two equal tasks against one: 2048 + 1024 is not below 1024 + 2 * 1024, so one goes to and fro.
    assert_eq!(find_load(busy, cpu(1024, 1024, 1), cpu(2048, 2048, 2)), 1024);
    // A heavier one against two: 3072 < 1536 + 2048, and capacity in use stays 1024 + 1536: the 256 from the average remain, less than
    // half a task.
    assert_eq!(find_load(busy, cpu(1536, 1536, 1), cpu(2048, 2048, 2)), 256);
    // What runs here uses half of what it could: 1024 + 1024 in use now, 376 + 2048 then.
    assert_eq!(find_load(busy, cpu(1024, 2048, 1), cpu(1400, 2048, 2)), 1024);
    // Lighter tasks here: once the task's load is enough, 2200 + 1024 against 1700 + 1024.
    assert_eq!(find_load(busy, cpu(1700, 1024, 2), cpu(2200, 2048, 2)), 1024);
    // Equal ones: twice is not, and 1024 + 1024 stay in use; 250 from the average.
    assert_eq!(find_load(busy, cpu(1700, 2048, 2), cpu(2200, 2048, 2)), 250);
}
