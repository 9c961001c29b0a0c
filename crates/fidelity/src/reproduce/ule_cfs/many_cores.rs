//! Rows about 32 cores: the paper's chapter on several cores and programs side by side.

use super::programs::{self, Cores};
use super::{CFS, MACHINE, ULE, both, elapsed_s, mean_gain, of_runs, on_machine, scheduling_share};
use crate::reproduce::check::{Band, Check, Figure, Run, Stated};
use warmcore_lab::experiment::Observation;

/// Cores of the machine.
const CORES: f64 = 32.0;
/// FreeBSD's own rules, which the port left out in part.
const FREEBSD: &str = "ule:profile=freebsd11";

/// 512 spinners pinned to CPU 0 and set free after 14.5 s.
pub(super) const RELEASED: &str = "ule-cfs/unpin-512";
/// Number of spinners.
const SPINNERS: f64 = 512.0;
/// When they are set free under ULE, ms.
const RELEASE_MS: u64 = 14_500;
/// When they are set free under CFS, ms. The paper waits 14.5 s, after which idle CPUs of a machine on which nothing else runs
/// look for work twice a second only; on the paper's machine something always ran. 0.2 s stands for that.
const EARLY_RELEASE_MS: u64 = 200;
/// The spinners then.
pub(super) const RELEASED_EARLY: &str = "spin:-n512,-p0,-u200ms,-d5300ms";

/// 512 spinners pinned to CPU 0 and set free, under CFS: how fast they spread, and how evenly.
pub(super) fn unpin_under_cfs(moved: f64) -> Vec<Check> {
    let (early, late) = (EARLY_RELEASE_MS + 200, EARLY_RELEASE_MS + 5_000);
    let run =
        || on_machine(RELEASED_EARLY, CFS).observing(&[early, late].map(|at_ms| Observation::TasksPerCpu { at_ms }));
    let left = Figure::Other("512 - tasks_on_cpu0_at_400ms", |trials| {
        Some(SPINNERS - trials.first()?.measure("tasks_on_cpu0_at_400ms")?)
    });
    let uneven = Figure::Other("tasks_per_cpu_most - tasks_per_cpu_least at 5200 ms", |trials| {
        let trial = trials.first()?;
        Some(trial.measure("tasks_per_cpu_most_at_5200ms")? - trial.measure("tasks_per_cpu_least_at_5200ms")?)
    });
    let check = |title: &str, figure, stated, band| Check::value(title, run(), (figure, "threads"), stated, band);
    vec![
        check(
            "threads that left core 0 within 0.2 s",
            left,
            Stated::Value(moved),
            Band::at_least(moved, "the paper says that 380 and more had left"),
        ),
        check(
            "fewest threads on a core, 5 s later",
            Figure::Value("tasks_per_cpu_least_at_5200ms", 1.0),
            Stated::Value(15.0),
            Band::at_least(15.0, "the row's note: 15 to 18 threads per core"),
        ),
        check(
            "most threads on a core, 5 s later",
            Figure::Value("tasks_per_cpu_most_at_5200ms", 1.0),
            Stated::Value(18.0),
            Band::at_most(18.0, "the row's note: 15 to 18 threads per core"),
        ),
        check(
            "difference of the fullest and the emptiest core, 5 s later",
            uneven,
            Stated::Words,
            Band::at_least(1.0, "the row's note: never perfect afterwards"),
        ),
    ]
}

/// The same under ULE: one for each idle core at once, then one a pass.
pub(super) fn unpin_under_ule() -> Vec<Check> {
    let run = || {
        on_machine(RELEASED, ULE).observing(&[
            Observation::TasksPerCpu { at_ms: RELEASE_MS + 20 },
            Observation::Even { from_ms: RELEASE_MS, within: 0 },
            Observation::TasksPerCpu { at_ms: RELEASE_MS + 255_000 },
        ])
    };
    let spread = Figure::Other("tasks_per_cpu_most - tasks_per_cpu_least at 269.5 s", |trials| {
        let trial = trials.first()?;
        Some(trial.measure("tasks_per_cpu_most_at_269500ms")? - trial.measure("tasks_per_cpu_least_at_269500ms")?)
    });
    vec![
        Check::value(
            "threads on core 0 right after the release",
            run(),
            (Figure::Value("tasks_on_cpu0_at_14520ms", 1.0), "threads"),
            Stated::Value(481.0),
            Band::within(481.0, 481.0, "one for each of 31 idle cores"),
        ),
        Check::value(
            "time to 16 on each core",
            run(),
            (Figure::Value("tasks_even_after_14500ms", 1e-9), "s"),
            Stated::Value(240.0),
            Band::within(
                225.0,
                249.0,
                "465 passes of 0.51 s are 237 s (docs/spec/ule.md section 15.1, E4), within 5 %",
            ),
        ),
        Check::value(
            "difference of the fullest and the emptiest core at the end",
            run(),
            (spread, "threads"),
            Stated::Value(0.0),
            Band::at_most(0.0, "the row's note: exactly 16 per core"),
        ),
        Check::value(
            "time to 16 on each core by the paper's text: passes every 0.5 to 1.5 s",
            Run { workload: "spin:-n512,-p0,-u14.5s,-d600s".to_owned(), ..on_machine("", "ule:profile=paper-text") }
                .observing(&[Observation::Even { from_ms: RELEASE_MS, within: 0 }]),
            (Figure::Value("tasks_even_after_14500ms", 1e-9), "s"),
            Stated::Words,
            Band::within(440.0, 490.0, "465 passes of 1 s: the text's period does not give the text's 240 s"),
        ),
    ]
}

/// 512 threads behind a cascading barrier.
pub(super) const CASCADE: &str = "ule-cfs/c-ray";

/// c-ray's cascade. How long it takes depends on the work of a thread, which is assumed, so the two schedulers are compared.
pub(super) fn cascade() -> Vec<Check> {
    vec![
        of_runs(
            "time until 99 % of the threads can run, ULE over CFS",
            both(MACHINE, CASCADE).into(),
            (Figure::Ratio("recorder_woken_p99_ns"), ""),
            Stated::Value(5.5),
            Band::at_least(5.0, "docs/spec/ule.md section 15.1, E5"),
        ),
        of_runs(
            "time until all is done, ULE over CFS",
            both(MACHINE, CASCADE).into(),
            (Figure::Ratio("elapsed_ns"), ""),
            Stated::Value(1.0),
            Band::within(0.98, 1.02, "docs/spec/ule.md section 15.1, E5: equal within 2 %"),
        ),
    ]
}

/// NAS MG: one thread per core, which meet at barriers that spin for 100 ms before they sleep. The published 73 % is the
/// speed of one thread on each core over that with two of them on one core, as CFS places them at times and ULE never
/// does. How often CFS does is one question, what it costs another.
pub(super) fn barriers() -> Vec<Check> {
    let pinned = |cpus: &str| {
        let workload = format!("forkjoin:-n32,-i50,-w20ms,-bspin-then-block:100ms,{cpus},--pin,--profile=nas-mg");
        Run::new(MACHINE, workload, CFS)
    };
    vec![
        of_runs(
            "speed under ULE against CFS, beside kernel threads",
            both(MACHINE, "ule-cfs/nas-mg").into(),
            (Figure::Other("time under CFS over that under ULE, less one", mean_gain), "%"),
            Stated::Value(73.0),
            Band::within(55.0, 90.0, "docs/spec/ule.md section 15.1, E6a"),
        ),
        Check::ratio(
            "time with two of 32 threads on one core over one on each (CFS, pinned)",
            [pinned("-c0-31"), pinned("-c0-30")],
            Figure::Ratio("elapsed_ns"),
            Stated::Value(1.73),
            Band::within(1.55, 1.90, "docs/spec/memory-model.md section 8.2, P9: 55 to 90 %"),
        ),
    ]
}

/// The part of the CPUs' time that goes to finding CPUs for threads that wake up.
pub(super) fn scans() -> Vec<Check> {
    const WORKLOAD: &str = "ule-cfs/sysbench-32";
    let share = || {
        Figure::Other("overhead of wakeups and balancing over all CPU time", |trials| {
            Some(scheduling_share(trials.first()?, CORES)? * 100.0)
        })
    };
    vec![
        Check::value(
            "CPU time in wakeups and balancing, ULE",
            on_machine(WORKLOAD, ULE),
            (share(), "%"),
            Stated::Value(13.0),
            Band::within(10.0, 16.0, "docs/spec/ule.md section 15.1, E6b"),
        )
        .fitted_to_it("the work between two wakeups"),
        Check::value(
            "CPU time in wakeups and balancing, CFS",
            on_machine(WORKLOAD, CFS),
            (share(), "%"),
            Stated::Value(2.6),
            Band::at_most(3.0, "docs/spec/ule.md section 15.1, E6b: the paper's largest is 2.6 %"),
        ),
        of_runs(
            "transactions per second, ULE over CFS",
            both(MACHINE, WORKLOAD).into(),
            (Figure::Ratio("recorder_transaction_per_s"), ""),
            Stated::Words,
            Band::at_most(0.98, "docs/spec/ule.md section 15, E6: sysbench is slower under ULE"),
        ),
    ]
}

/// hackbench with 32,000 threads.
pub(super) fn hackbench() -> Vec<Check> {
    let share = |title: &str, scheduler: &str, stated: f64| {
        let figure = Figure::Other("overhead of wakeups and balancing over all CPU time", |trials| {
            Some(scheduling_share(trials.first()?, CORES)? * 100.0)
        });
        let band = Band::around(stated, 0.5, "a half: what a wakeup costs on this processor is assumed");
        let run = on_machine("ule-cfs/hackbench-32000", scheduler);
        Check::value(title, run, (figure, "%"), Stated::Value(stated), band)
    };
    vec![
        share("CPU time in wakeups and balancing, CFS", CFS, 0.3),
        share("CPU time in wakeups and balancing, ULE", ULE, 1.0),
    ]
}

/// blackscholes wants all cores, ferret is interactive.
pub(super) fn batch_beside_interactive() -> Vec<Check> {
    const BATCH: &str = "ule-cfs/blackscholes";
    const INTERACTIVE: &str = "ule-cfs/ferret";
    const TOGETHER: &str = "ule-cfs/blackscholes-ferret";
    // The application's number in the pair.
    let batch = Figure::Other("time beside the other over time alone, less one", |trials| {
        Some((elapsed_s(trials.get(1)?, 0)? / elapsed_s(trials.first()?, 0)? - 1.0) * 100.0)
    });
    let interactive = Figure::Other("time beside the other over time alone, less one", |trials| {
        Some((elapsed_s(trials.get(1)?, 1)? / elapsed_s(trials.first()?, 0)? - 1.0) * 100.0)
    });
    let check = |title: &str, alone: &str, scheduler: &str, figure, band| {
        let runs = vec![on_machine(alone, scheduler), on_machine(TOGETHER, scheduler)];
        of_runs(title, runs, (figure, "%"), Stated::Words, band)
    };
    vec![
        check(
            "ferret's time, ULE",
            INTERACTIVE,
            ULE,
            interactive,
            Band::at_most(10.0, "the row's note: ferret unharmed"),
        ),
        check(
            "blackscholes' time, ULE",
            BATCH,
            ULE,
            batch,
            Band::at_least(80.0, "the row's note: more than 80 % slower"),
        ),
        check(
            "ferret's time, CFS",
            INTERACTIVE,
            CFS,
            interactive,
            Band::at_most(100.0, "the row's note: less than 50 % of its speed lost"),
        ),
        check(
            "blackscholes' time, CFS",
            BATCH,
            CFS,
            batch,
            Band::at_most(100.0, "the row's note: less than 50 % of its speed lost"),
        ),
    ]
}

/// A database whose threads meet at one lock beside a hog on every core.
pub(super) fn lock_beside_hogs() -> Vec<Check> {
    const WORKLOAD: &str = "ule-cfs/fibo-sysbench-32";
    let check = |title: &str, ule: &str, band| {
        let runs = vec![on_machine(WORKLOAD, CFS), on_machine(WORKLOAD, ule)];
        of_runs(title, runs, (Figure::Ratio("recorder_transaction_per_s"), ""), Stated::Words, band)
    };
    vec![
        check(
            "transactions per second, the port's ULE over CFS",
            ULE,
            Band::at_most(0.9, "the row's note: slower under ULE"),
        ),
        check(
            "transactions per second, FreeBSD's ULE over CFS",
            FREEBSD,
            Band::at_least(
                1.0,
                "docs/spec/ule.md section 15.1, E7c: the loss is the port's, which omits preemption of other CPUs",
            ),
        ),
    ]
}

/// c-ray beside NAS EP.
pub(super) fn batch_beside_batch() -> Vec<Check> {
    let ratio = |title: &str, figure| {
        let band = Band::within(0.9, 1.1, "the row's note: the schedulers perform alike");
        of_runs(title, both(MACHINE, "ule-cfs/c-ray-ep").into(), (figure, ""), Stated::Words, band)
    };
    vec![
        ratio(
            "c-ray's time, ULE over CFS",
            Figure::Other("time of c-ray under ULE over that under CFS", |trials| {
                Some(elapsed_s(trials.get(1)?, 0)? / elapsed_s(trials.first()?, 0)?)
            }),
        ),
        ratio(
            "EP's time, ULE over CFS",
            Figure::Other("time of EP under ULE over that under CFS", |trials| {
                Some(elapsed_s(trials.get(1)?, 1)? / elapsed_s(trials.first()?, 1)?)
            }),
        ),
    ]
}

/// The mean over the programs.
pub(super) fn mean() -> Vec<Check> {
    let (runs, _) = programs::runs(Cores::All);
    let definition = "mean over 34 programs of the speed under ULE over that under CFS, less one";
    vec![of_runs(
        "mean speed under ULE against CFS",
        runs,
        (Figure::Other(definition, mean_gain), "%"),
        Stated::Value(2.75),
        Band::within(0.0, 5.5, "2.75 points: work between two waits is assumed for most programs"),
    )]
}
