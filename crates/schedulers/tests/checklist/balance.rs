//! Items 23, 24, 27 and 28: load balancing of many tasks. Items 22, 25, 26 and 29 are in `tests/balance.rs`.

use crate::support::*;

/// CFS of Linux 4.9 to 5.4 as far as balancing is concerned.
const CFS_4_9: &str = "cfs:balance_by_load=1,imbalance_pct=125,busy_factor=32";

/// Spinners that are all bound to CPU 0 until `release_ns`.
fn released_spinners(count: u32, release_ns: u64, duration_ns: u64) -> Scene {
    let mut scene = Scene::lasting(duration_ns);
    let task = scene.task("spinner", spin());
    (task.instances, task.affinity, task.release_ns) = (count, on_cpu(0), Some(release_ns));
    scene
}

/// Prints the number of threads per CPU over time since the release: smallest, median and largest, and that of CPU 0.
fn print_curve(title: &str, run: &Run, release_ns: u64) {
    println!("{title}: threads per CPU\n  ms since release    min  median     max   cpu 0");
    for ms in [0, 8, 16, 24, 32, 48, 64, 96, 128, 200, 300, 500, 800, 1300, 2000, 3000, 5000] {
        let time_ns = release_ns + ms * MS;
        if time_ns > run.outcome.elapsed_ns {
            break;
        }
        let counts = run.tasks_per_cpu(time_ns);
        let (min, median, max) = spread(&counts);
        println!("  {ms:>16}  {min:>5}  {median:>6}  {max:>6}  {:>6}", counts[0]);
    }
}

/// Steady state: 7 to 9 per CPU as in the item, and no CPU has more than 1.17 times the load of another of its LLC (counts are
/// whole: 9 beside 8 is within, 9 beside 7 is not). It may take longer than "a few passes": where the CPUs of one LLC are due
/// first, the other's each get one or two and are busy from then on, and busy CPUs look every quarter of a second. So in three
/// of six boots of 7.2.13 with 64 spinners, balanced 0.8 to 1.3 s after the release (book, `release-two-llcs`).
#[test]
fn item_23_128_spinners_released_from_one_cpu_spread_over_16() {
    for seed in 1..=5 {
        let run = released_spinners(128, 200 * MS, 3 * S).run_with_seed(TWO_LLCS_OF_8, "eevdf", seed);
        if seed == 1 {
            print_curve("128 spinners, eevdf", &run, 200 * MS);
        }
        let (min, _, max) = spread(&run.tasks_per_cpu(1_500 * MS));
        assert!(min >= 4 && max <= 12, "seed {seed}: {min} to {max}");
        for time_ns in [3 * S] {
            let counts = run.tasks_per_cpu(time_ns);
            for llc in counts.chunks(8) {
                let (min, _, max) = spread(llc);
                assert!(min >= 7 && max <= 9 && f64::from(max) <= 1.17 * f64::from(min), "seed {seed}: {counts:?}");
            }
        }
    }
}

/// The released spinners of item 24, with the curve printed: how many have left CPU 0 after 0.2 s and 0.5 s, and smallest and
/// largest number per CPU after 5 s.
fn item_24(machine: &str, scheduler: &str, release_ns: u64, seed: u64) -> ([u32; 2], (u32, u32)) {
    let run = released_spinners(512, release_ns, release_ns + 5 * S).run_with_seed(machine, scheduler, seed);
    assert_eq!(run.machine.cpu_count(), 32);
    if seed == 1 {
        let title = format!("512 spinners on {machine} under {scheduler}, released after {} ms", release_ns / MS);
        print_curve(&title, &run, release_ns);
    }
    let left = [200, 500].map(|ms| 512 - run.tasks_per_cpu(release_ns + ms * MS)[0]);
    let (min, _, max) = spread(&run.tasks_per_cpu(release_ns + 5 * S));
    (left, (min, max))
}

/// 7.2.13 on this machine has 131 of 512 left on CPU 0 after 0.2 s, and after 5 s means of 18.6, 16.4, 15.8 and 13.5 per CPU of
/// the four LLCs, 10 to 25 on single CPUs.
#[test]
fn item_24_512_spinners_released_on_two_sockets_spread_as_in_the_kernel() {
    for scheduler in ["eevdf", CFS_4_9] {
        for seed in 1..=3 {
            let (left, (min, max)) = item_24("2s1n2l8c1t", scheduler, 200 * MS, seed);
            assert!(left[0] >= 350, "{scheduler}, seed {seed}: {left:?} left");
            assert!(min >= 5 && max <= 26, "{scheduler}, seed {seed}: {min} to {max}");
        }
    }
    let run = released_spinners(512, 200 * MS, 5 * S).run("2s1n2l8c1t", "eevdf");
    for (llc, real) in run.tasks_per_llc(5 * S).into_iter().zip([149.0, 131.0, 126.0, 108.0]) {
        assert_near("tasks of an LLC", f64::from(llc), real, 0.2);
    }
}

/// The paper's machine has eight nodes at three distances: between nodes that are two hops apart, twice 17 % (25 % before
/// 5.10) remain, so a CPU may have 16 ± 5 here. With 4.9 on the real machine it was 15 to 18. See docs/models/eevdf.md.
#[test]
fn item_24_512_spinners_released_on_the_papers_machine_leave_cpu_0_within_a_fifth_of_a_second() {
    for scheduler in ["eevdf", CFS_4_9] {
        for seed in 1..=3 {
            let (left, (min, max)) = item_24("opteron32", scheduler, 200 * MS, seed);
            assert!(left[0] >= 380, "{scheduler}, seed {seed}: {left:?} left");
            assert!(min >= 12 && max <= 21, "{scheduler}, seed {seed}: {min} to {max}");
        }
    }
}

/// Pinned for as long as in the paper (14.5 s), idle CPUs have backed off to a pass every 512 ms: the first move may be half a
/// second late.
#[test]
fn item_24_after_a_long_time_pinned_the_first_pass_may_be_half_a_second_away() {
    for scheduler in ["eevdf", CFS_4_9] {
        let (left, (min, max)) = item_24("opteron32", scheduler, 14_500 * MS, 1);
        assert!(left[1] >= 350, "{scheduler}: {left:?} left");
        assert!(min >= 12 && max <= 21, "{scheduler}: {min} to {max}");
    }
}

/// Load is balanced, not counts. The item's 28 and 100 depend on how much of the time the heavy task runs; at 90 % the
/// 17 % that may remain between LLCs allow 25 to 33. ± 5 covers both.
#[test]
fn item_27_the_llc_of_a_heavy_task_keeps_few_spinners() {
    for seed in 1..=3 {
        let mut scene = released_spinners(128, 200 * MS, 5 * S);
        let heavy = scene.task("heavy", forever([run_for(9 * MS), sleep(MS)]));
        (heavy.nice, heavy.start_cpu) = (-20, Some(3));
        let run = scene.run_with_seed(TWO_LLCS_OF_8, "eevdf", seed);
        for time_ns in [2 * S, 3 * S, 4 * S, 5 * S] {
            let mut spinners = run.tasks_per_llc(time_ns);
            let host = (run.place("heavy", time_ns) / 8) as usize;
            spinners[host] -= 1;
            println!(
                "seed {seed}, {} s: {} beside the heavy task, {} in the other LLC",
                time_ns / S,
                spinners[host],
                spinners[1 - host]
            );
            assert!(spinners[host].abs_diff(28) <= 5 && spinners[1 - host].abs_diff(100) <= 5);
        }
    }
}

#[test]
fn item_28_spinners_and_sleepers_settle_without_a_migration_storm() {
    let mut scene = Scene::lasting(5 * S);
    scene.task("spinner", spin()).instances = 16;
    scene.task("sleeper", forever([sleep(10 * MS), run_for(100 * US)])).instances = 16;
    let run = scene.run(TWO_LLCS_OF_8, "eevdf");
    let mut spinners: Vec<u32> = (0..16).map(|n| run.place(&format!("spinner-{n}"), 5 * S)).collect();
    spinners.sort_unstable();
    assert!(spinners.into_iter().eq(0..16), "one spinner on each CPU");
    let late = run.moves().iter().filter(|a_move| a_move.time_ns > S).count();
    println!("{late} migrations in 4 s");
    assert!(late < 4 * 50);
}
