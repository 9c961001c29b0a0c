//! Where the time went: the lifetimes of a workload's tasks by cause, and what of the difference between two schedulers
//! each cause explains.
//!
//! A task is, from its creation to its exit, on a CPU, waiting for one, asleep, or waiting for other tasks. Time on a CPU
//! is its own program, by what the memory made of it, or the kernel's. The causes of a run add up to its tasks'
//! lifetimes.
//!
//! Schedulers are compared by task time per work: nanoseconds of each cause per nanosecond of work done, work being
//! counted at nominal speed. Workloads that run for a fixed time and such that do a fixed amount compare alike. Those
//! whose programs do no work of their own, such as hackbench, are compared by task time per run. What explains the difference that a
//! verdict is about stands in [`Gap`].

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_trace::OverheadKind;
use warmcore_trace::TimeShare;
use warmcore_trace::metrics::Metrics;
use warmcore_trace::{Outcome, TaskOutcome};

use warmcore_statistics::Design;

use crate::host_measures::CPU_TIME;
use crate::measures::{Measure, WORK};
use crate::trial::{LastThread, Trial};
use crate::verdict::MeasureResult;

mod critical_path;
mod gap;

pub use critical_path::CriticalPath;
pub(crate) use critical_path::CriticalPaths;
pub use gap::{Explains, Gap, GapLine, cause_title};

/// A cause: name in files, and in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Cause {
    /// Name in files.
    pub name: &'static str,
    /// Name in tables and sentences.
    pub title: &'static str,
}

const fn cause(name: &'static str, title: &'static str) -> Cause {
    Cause { name, title }
}

/// All causes, in the order of tables: on the CPU, then off it.
pub const CAUSES: [Cause; 21] = [
    cause("compute", "computing"),
    cause("smt", "sharing the core with a sibling thread"),
    cause("l2", "L2 hits"),
    cause("llc", "LLC hits and lines from cores under the same LLC"),
    cause("other_llc", "lines fetched from another LLC"),
    cause("other_socket", "lines fetched from another socket"),
    cause("dram_local", "memory of the own node"),
    cause("dram_remote", "memory of other nodes"),
    cause("bandwidth", "memory being slower under load"),
    cause("hot_lines", "waiting for contended lines"),
    cause("page_walks", "walking page tables"),
    cause("cold_caches", "cold caches after migrations (constant cost)"),
    cause("syscalls", "system calls and page faults"),
    cause("scheduler", "switches, ticks, wakeups, balancing and interrupts"),
    cause(NUMA, "NUMA balancing: hint faults, moving pages"),
    cause("spinning", "waiting actively for other tasks"),
    cause("run_queue", "waiting for a CPU"),
    cause("throttled", "throttled by a quota or reservation"),
    cause("waiting", "blocked until other tasks act"),
    cause("sleeping", "asleep until a time"),
    cause("off_cpu", "off the CPU (no recorded events show why)"),
];

/// What the thread that ended last, or the path that leads to its end, spent time on beside [`CAUSES`].
pub const LAST_THREAD_CAUSES: [Cause; 4] = [
    cause(ON_CPU, "running, and the kernel meanwhile"),
    cause("kernel", "system calls, switches, ticks, interrupts and cold caches"),
    cause("not_created", "not being created yet"),
    cause("uncounted", "what the metric does not count"),
];

/// Time that NUMA balancing takes of tasks: where it is on, on a machine of several nodes.
const NUMA: &str = "numa";

/// Time of a path on CPUs.
const ON_CPU: &str = "on_cpu";

/// Causes of [`CAUSES`] that are no time on a CPU.
const OFF_CPU: [&str; 5] = ["run_queue", "throttled", "waiting", "sleeping", "off_cpu"];

/// Causes that follow from what other tasks, or the clock, do.
const CONSEQUENCES: [&str; 4] = ["spinning", "waiting", "sleeping", "off_cpu"];

/// Nanoseconds by cause, summed over the tasks. Together they are the tasks' lifetimes.
pub fn of_run(outcome: &Outcome, metrics: Option<&Metrics>) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = CAUSES.iter().map(|cause| (cause.name.to_owned(), 0.0)).collect();
    let mut add = |name: &str, ns: f64| *sums.get_mut(name).expect("every cause is in the list") += ns;
    let (mut kernel, mut transfers) = (0.0, 0.0);
    for (index, task) in outcome.tasks.iter().enumerate() {
        let own = own_program(task, &mut add);
        transfers += task.memory.map_or(0.0, |memory| memory.transfer_ns);
        add("spinning", task.spin_ns as f64);
        kernel += (task.cpu_time_ns as f64 - own - task.spin_ns as f64).max(0.0);
        let off_cpu = outcome.lifetime_ns(task).saturating_sub(task.cpu_time_ns);
        match metrics.and_then(|metrics| metrics.tasks.get(index)) {
            None => add("off_cpu", off_cpu as f64),
            Some(of_task) => {
                let unfinished = of_task.censored_wait_ns.unwrap_or(0).min(outcome.window_ns());
                let queued = (of_task.run_delay_ns + unfinished).saturating_sub(of_task.throttled_wait_ns).min(off_cpu);
                let throttled = of_task.throttled_ns.min(off_cpu - queued);
                let slept = task.slept_ns.min(off_cpu - queued - throttled);
                add("run_queue", queued as f64);
                add("throttled", throttled as f64);
                add("sleeping", slept as f64);
                add("waiting", (off_cpu - queued - throttled - slept) as f64);
            }
        }
    }
    // Of the kernel's time on the tasks' CPUs, system calls, cold caches and NUMA balancing are known; the rest is the scheduler's and
    // interrupts, both of which idle CPUs have too.
    let kernel = (kernel - transfers).max(0.0);
    let syscalls = (overhead(outcome, OverheadKind::Syscall) - transfers).clamp(0.0, kernel);
    let cold = overhead(outcome, OverheadKind::Migration).min(kernel - syscalls);
    let numa = overhead(outcome, OverheadKind::Numa).min(kernel - syscalls - cold);
    add("syscalls", syscalls);
    add("cold_caches", cold);
    add(NUMA, numa);
    add("scheduler", kernel - syscalls - cold - numa);
    // Only where addresses are translated, where there are quotas or reservations, and where NUMA balancing works.
    sums.retain(|name, ns| ![TimeShare::PageWalks.name(), "throttled", NUMA].contains(&name.as_str()) || *ns > 0.0);
    sums
}

/// Kernel time of a kind on all CPUs, in nanoseconds.
fn overhead(outcome: &Outcome, kind: OverheadKind) -> f64 {
    outcome.cpus.iter().map(|cpu| cpu.overhead_ns[kind as usize] as f64).sum()
}

/// What NUMA balancing has of the kernel's time on the tasks' CPUs, 0 to 1.
fn share_of_numa(outcome: &Outcome) -> f64 {
    let of_task = |task: &TaskOutcome| {
        let own = own_program(task, &mut |_: &str, _: f64| {});
        let transfers = task.memory.map_or(0.0, |memory| memory.transfer_ns);
        (task.cpu_time_ns as f64 - own - task.spin_ns as f64).max(0.0) - transfers
    };
    let kernel: f64 = outcome.tasks.iter().map(of_task).sum();
    if kernel > 0.0 { (overhead(outcome, OverheadKind::Numa) / kernel).min(1.0) } else { 0.0 }
}

/// Adds the time of a task's own program; returns it, without that of messages' lines, which the kernel counts too.
fn own_program(task: &TaskOutcome, add: &mut impl FnMut(&str, f64)) -> f64 {
    match &task.memory {
        Some(memory) => {
            for share in TimeShare::ALL {
                add(share.name(), memory.time_ns[share as usize]);
            }
            memory.total_ns() - memory.transfer_ns
        }
        None => {
            let own = (task.progress_ns - task.spin_ns) as f64 + task.pace_ns as f64;
            add("compute", own);
            if task.smt_ns > 0 {
                add(TimeShare::Smt.name(), task.smt_ns as f64);
            }
            own + task.smt_ns as f64
        }
    }
}

/// Where the time went, of all schedulers of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TimeSplit {
    /// The causes that occur, in the order of tables.
    pub causes: Vec<Cause>,
    /// Further causes, which only gaps have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_in_gaps: Vec<Cause>,
    /// In the experiment's order.
    pub schedulers: Vec<SchedulerSplit>,
    /// What the gaps are differences of.
    pub explains: Explains,
    /// Each scheduler but the baseline against the baseline.
    pub gaps: Vec<Gap>,
}

/// One scheduler's time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SchedulerSplit {
    /// The scheduler.
    pub label: String,
    /// Mean over the trials of the tasks' lifetimes together.
    pub task_time_ns: f64,
    /// Task time per work: nanoseconds per nanosecond of work done, the mean over the trials. Absent where the programs do
    /// no work of their own; what follows is then nanoseconds per run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_work: Option<f64>,
    /// Share of the task time by cause; together 1.
    pub shares: BTreeMap<&'static str, f64>,
}

/// Schedulers whose task time differs by less, relative to the baseline's, do not differ here.
const NO_GAP: f64 = 0.002;

/// The task that ended last, and what its time from the start of the run to its exit went to. `None` without a task that exited, or
/// without events, which tell waiting for a CPU from waiting for others, or with a warm-up, in which the chain of causes would begin.
pub fn last_thread(outcome: &Outcome, metrics: Option<&Metrics>) -> Option<LastThread> {
    if outcome.warm_up_ns > 0 {
        return None;
    }
    let (exited, index) = ended_last(outcome)?;
    let (task, of_task) = (&outcome.tasks[index], metrics?.tasks.get(index)?);
    let mut spent_ns: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |name: &str, ns: f64| *spent_ns.entry(name.to_owned()).or_default() += ns;
    let own = own_program(task, &mut add);
    let off_cpu = (exited - task.started_ns).saturating_sub(task.cpu_time_ns);
    let queued = of_task.run_delay_ns.saturating_sub(of_task.throttled_wait_ns).min(off_cpu);
    let throttled = of_task.throttled_ns.min(off_cpu - queued);
    let slept = task.slept_ns.min(off_cpu - queued - throttled);
    add("spinning", task.spin_ns as f64);
    // Lines of messages are time of the memory above and of the kernel's calls: counted once.
    let transfers = task.memory.map_or(0.0, |memory| memory.transfer_ns);
    // How much of the kernel's time is NUMA balancing's is known of all threads together.
    let kernel = task.cpu_time_ns as f64 - own - transfers - task.spin_ns as f64;
    let numa = kernel * share_of_numa(outcome);
    add("kernel", kernel - numa);
    add(NUMA, numa);
    add("run_queue", queued as f64);
    add("throttled", throttled as f64);
    add("sleeping", slept as f64);
    add("waiting", (off_cpu - queued - throttled - slept) as f64);
    add("not_created", task.started_ns as f64);
    spent_ns.retain(|_, ns| *ns != 0.0);
    Some(LastThread { task: task.name.clone(), spent_ns, path: None })
}

/// When the task that ended last did so, and its position.
fn ended_last(outcome: &Outcome) -> Option<(u64, usize)> {
    outcome.tasks.iter().enumerate().filter_map(|(index, task)| Some((task.exited_ns?, index))).max()
}

/// Splits the time of all trials, by scheduler and number. `None` if the trials have no times. Gaps are of task time.
pub fn of_trials(labels: &[String], baseline: usize, trials: &[Vec<Trial>]) -> Option<TimeSplit> {
    split(labels, baseline, trials, None)
}

/// The same with gaps that explain a verdict: its measure, the results of all schedulers in it, and how trials belong together.
pub(crate) fn explaining(
    labels: &[String],
    baseline: usize,
    trials: &[Vec<Trial>],
    verdict: (&Measure, &[&MeasureResult], Design),
) -> Option<TimeSplit> {
    split(labels, baseline, trials, Some(verdict))
}

fn split(
    labels: &[String],
    baseline: usize,
    trials: &[Vec<Trial>],
    verdict: Option<(&Measure, &[&MeasureResult], Design)>,
) -> Option<TimeSplit> {
    let all = || trials.iter().flatten();
    // The work of a command is its CPU time: the one per the other says nothing.
    let is_cpu_time = all().all(|trial| trial.measure(WORK) == trial.measure(CPU_TIME));
    let works = !is_cpu_time && all().all(|trial| trial.measure(WORK).is_some_and(|work| work > 0.0));
    let mut schedulers = Vec::new();
    let mut per_work = Vec::new();
    for (label, trials) in labels.iter().zip(trials) {
        let (split, causes) = of_scheduler(label, trials, works)?;
        schedulers.push(split);
        per_work.push(causes);
    }
    let others = || (0..schedulers.len()).filter(|&index| index != baseline);
    let explained = |(metric, results, design): (&Measure, &[&MeasureResult], Design)| {
        let explains = Explains::of(&metric.name, trials, works);
        let gap = |index: usize| {
            let pair = gap::Pair {
                own: &schedulers[index],
                base: &schedulers[baseline],
                own_trials: &trials[index],
                base_trials: &trials[baseline],
            };
            let judged = gap::Judged { metric, own: results.get(index)?, base: results.get(baseline)?, design };
            gap::explain(explains, &pair, &judged)
        };
        // All of a comparison are explained alike.
        others().map(gap).collect::<Option<Vec<Gap>>>().map(|gaps| (explains, gaps))
    };
    let (explains, gaps) = verdict.and_then(explained).unwrap_or_else(|| {
        let side = |index: usize| (schedulers[index].label.as_str(), per_work[index].as_slice());
        let about = |index: usize| {
            verdict.map(|(metric, results, _)| gap::About {
                metric: &metric.title,
                finding: results.get(index).and_then(|result| result.finding),
                lacks: [index, baseline].iter().any(|of| results.get(*of).is_some_and(|result| result.summary.n == 0)),
            })
        };
        let how = gap::TaskTime {
            works,
            is_metric: is_cpu_time && verdict.is_some_and(|(metric, ..)| metric.name == CPU_TIME),
        };
        let shown = |index: usize| {
            let design = verdict.map_or(Design::Unpaired, |(.., design)| design);
            gap::task_time_differs(&trials[index], &trials[baseline], design, works)
        };
        let gap = |index| gap::of_task_time(side(index), side(baseline), about(index), shown(index), how);
        (Explains::TaskTime, others().map(gap).collect())
    });
    let occurs = |cause: &&Cause| schedulers.iter().any(|split| split.shares[cause.name] > 0.0);
    let in_gaps = |cause: &&Cause| gaps.iter().any(|gap| gap.lines.iter().any(|line| line.name == cause.name));
    let causes = CAUSES.iter().filter(occurs).copied().collect();
    let only_in_gaps = LAST_THREAD_CAUSES.iter().filter(in_gaps).copied().collect();
    Some(TimeSplit { causes, only_in_gaps, schedulers, explains, gaps })
}

/// A trial's times by cause, in the order of [`CAUSES`], over its work.
fn per_work(trial: &Trial, work: f64) -> Option<Vec<f64>> {
    CAUSES.iter().map(|cause| Some(trial.time_of(cause.name)? / work)).collect()
}

/// A scheduler's split, and its task time per work by cause.
fn of_scheduler(label: &str, trials: &[Trial], works: bool) -> Option<(SchedulerSplit, Vec<f64>)> {
    let mut sums = vec![0.0; CAUSES.len()];
    let mut per_work = vec![0.0; CAUSES.len()];
    for trial in trials {
        let work = if works { trial.measure("work_ns")? } else { 1.0 };
        for (index, cause) in CAUSES.iter().enumerate() {
            let ns = trial.time_of(cause.name)?;
            sums[index] += ns;
            per_work[index] += ns / work;
        }
    }
    let count = trials.len().max(1) as f64;
    per_work.iter_mut().for_each(|value| *value /= count);
    let total: f64 = sums.iter().sum();
    if total <= 0.0 {
        return None;
    }
    let split = SchedulerSplit {
        label: label.to_owned(),
        task_time_ns: total / count,
        per_work: works.then(|| per_work.iter().sum()),
        shares: CAUSES.iter().zip(&sums).map(|(cause, sum)| (cause.name, sum / total)).collect(),
    };
    Some((split, per_work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::tests::trial;

    fn with_times(scheduler: &str, work_ns: f64, times: &[(&str, f64)]) -> Vec<Trial> {
        let mut trial = trial(scheduler, 0, &[("work_ns", Some(work_ns))]);
        trial.time_ns = CAUSES.iter().map(|cause| (cause.name.to_owned(), 0.0)).collect();
        for (name, ns) in times {
            assert!(trial.time_ns.insert((*name).to_owned(), *ns).is_some(), "{name} is no cause");
        }
        vec![trial]
    }

    #[test]
    fn shares_add_up_and_the_gap_is_explained_by_what_the_tasks_did_themselves() {
        let base = with_times("base", 100.0, &[("compute", 50.0), ("other_socket", 50.0), ("waiting", 900.0)]);
        let good =
            with_times("good", 100.0, &[("compute", 50.0), ("other_socket", 10.0), ("llc", 10.0), ("waiting", 400.0)]);
        let split = of_trials(&["base".into(), "good".into()], 0, &[base, good]).unwrap();
        for scheduler in &split.schedulers {
            assert!((scheduler.shares.values().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        let gap = &split.gaps[0];
        assert!((gap.difference + 0.3).abs() < 1e-12);
        assert_eq!(
            (gap.lines[0].name, gap.lines[0].share.map(|share| (share * 100.0).round())),
            ("other_socket", Some(133.0))
        );
        let shares: f64 = gap.lines.iter().filter_map(|line| line.share).sum();
        assert!((shares - 1.0).abs() < 1e-12, "shares of the gap add up to {shares}");
        assert!(gap.sentence.contains("30 % less") && gap.sentence.contains("another socket"), "{}", gap.sentence);
    }

    #[test]
    fn more_work_in_the_same_time_is_less_task_time_per_work() {
        let base = with_times("base", 100.0, &[("compute", 100.0), ("run_queue", 100.0)]);
        let good = with_times("good", 150.0, &[("compute", 150.0), ("run_queue", 50.0)]);
        let split = of_trials(&["base".into(), "good".into()], 0, &[base, good]).unwrap();
        assert!(split.gaps[0].difference < -0.6);
        assert_eq!(split.gaps[0].lines[0].name, "run_queue");
    }

    #[test]
    fn of_commands_whose_work_is_their_cpu_time_chance_makes_no_sentence_and_a_real_difference_is_no_rate() {
        let of = |label: &str, cpu_us: [f64; 8]| -> Vec<Trial> {
            let one = |cpu_us| {
                let mut trial =
                    with_times(label, 1e3 * cpu_us, &[("compute", 1e3 * cpu_us), ("off_cpu", 1e8)]).remove(0);
                trial.measures.insert(CPU_TIME.into(), Some(1e3 * cpu_us));
                trial
            };
            cpu_us.map(one).to_vec()
        };
        let base = of("a", [980.0, 1020.0, 1110.0, 990.0, 1005.0, 1090.0, 1000.0, 995.0]);
        let sentence = |other: [f64; 8]| {
            let split = of_trials(&["a".into(), "b".into()], 0, &[base.clone(), of("b", other)]).unwrap();
            split.gaps[0].sentence.clone()
        };
        let chance = [1000.0, 985.0, 3900.0, 1015.0, 992.0, 1080.0, 1001.0, 1100.0];
        assert_eq!(sentence(chance), "no difference in task time is shown between b and a");
        let twice = chance.map(|cpu_us| 2.0 * cpu_us);
        assert!(sentence(twice).contains(" more task time than a, of which 100 % is computing"), "{}", sentence(twice));
    }

    #[test]
    fn numa_balancing_is_a_cause_of_its_own_and_not_the_scheduler_s() {
        let mut outcome = Outcome::new(warmcore_trace::End::AllExited, 100);
        let mut task = TaskOutcome::new(0, "t".into(), "t".into(), 100);
        (task.progress_ns, task.exited_ns) = (60, Some(100));
        outcome.tasks.push(task);
        let mut overhead_ns = [0; warmcore_trace::OVERHEAD_KINDS];
        overhead_ns[OverheadKind::Numa as usize] = 30;
        outcome.cpus.push(warmcore_trace::CpuOutcome {
            idle_ns: 0,
            offline_ns: 0,
            busy_ns: 100,
            background_ns: 0,
            overhead_ns,
            memory: None,
            frequency_ghz: 1.0,
        });
        let times = of_run(&outcome, None);
        assert_eq!([times["compute"], times[NUMA], times["scheduler"]], [60.0, 30.0, 10.0]);
        assert_eq!(share_of_numa(&outcome), 0.75, "of the kernel's 40 ns");
        outcome.cpus[0].overhead_ns = [0; warmcore_trace::OVERHEAD_KINDS];
        assert!(!of_run(&outcome, None).contains_key(NUMA), "only where it works");
    }

    #[test]
    fn equal_schedulers_have_no_gap_to_explain() {
        let trials = || with_times("s", 100.0, &[("compute", 100.0)]);
        let split = of_trials(&["a".into(), "b".into()], 0, &[trials(), trials()]).unwrap();
        assert!(split.gaps[0].lines.is_empty() && split.gaps[0].sentence.contains("the same"));
    }
}
