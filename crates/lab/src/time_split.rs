//! Where the time went: the lifetimes of a workload's tasks by cause, and what of the difference between two schedulers
//! each cause explains.
//!
//! A task is, from its creation to its exit, on a CPU, waiting for one, asleep, or waiting for other tasks. Time on a CPU
//! is its own program, by what the memory made of it, or the kernel's. The causes of a run add up to its tasks'
//! lifetimes.
//!
//! Schedulers are compared by task time per work: nanoseconds of each cause per nanosecond of work done, work being
//! counted at nominal speed. Workloads that run for a fixed time and such that do a fixed amount compare alike. Those
//! whose programs do no work of their own, such as hackbench, are compared by task time per run. Sleeping
//! and waiting for other tasks follow from what those others do, so the other causes explain the difference among
//! themselves.

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_trace::OverheadKind;
use warmcore_trace::TimeShare;
use warmcore_trace::metrics::Metrics;
use warmcore_trace::{Outcome, TaskOutcome};

use crate::trial::Trial;
use crate::verdict::percent;

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
pub const CAUSES: [Cause; 18] = [
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
    cause("cold_caches", "cold caches after migrations (constant cost)"),
    cause("syscalls", "system calls"),
    cause("scheduler", "switches, ticks, wakeups and balancing"),
    cause("spinning", "waiting actively for other tasks"),
    cause("run_queue", "waiting for a CPU"),
    cause("waiting", "blocked until other tasks act"),
    cause("sleeping", "asleep until a time"),
    cause("off_cpu", "off the CPU (no events were recorded to tell why)"),
];

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
        let lifetime = task.exited_ns.unwrap_or(outcome.elapsed_ns) - task.started_ns;
        let off_cpu = lifetime.saturating_sub(task.cpu_time_ns);
        match metrics.and_then(|metrics| metrics.tasks.get(index)) {
            None => add("off_cpu", off_cpu as f64),
            Some(of_task) => {
                let queued = (of_task.run_delay_ns + of_task.censored_wait_ns.unwrap_or(0)).min(off_cpu);
                let slept = task.slept_ns.min(off_cpu - queued);
                add("run_queue", queued as f64);
                add("sleeping", slept as f64);
                add("waiting", (off_cpu - queued - slept) as f64);
            }
        }
    }
    // Of the kernel's time on the tasks' CPUs, system calls and cold caches are known; the rest is the scheduler's.
    let overhead =
        |kind: OverheadKind| outcome.cpus.iter().map(|cpu| cpu.overhead_ns[kind as usize] as f64).sum::<f64>();
    let kernel = (kernel - transfers).max(0.0);
    let syscalls = (overhead(OverheadKind::Syscall) - transfers).clamp(0.0, kernel);
    let cold = overhead(OverheadKind::Migration).min(kernel - syscalls);
    add("syscalls", syscalls);
    add("cold_caches", cold);
    add("scheduler", kernel - syscalls - cold);
    sums
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
            let own = (task.progress_ns - task.spin_ns) as f64;
            add("compute", own);
            own
        }
    }
}

/// Where the time went, of all schedulers of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TimeSplit {
    /// The causes that occur, in the order of tables.
    pub causes: Vec<Cause>,
    /// In the experiment's order.
    pub schedulers: Vec<SchedulerSplit>,
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

/// What explains the difference of a scheduler to the baseline.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gap {
    /// The scheduler.
    pub label: String,
    /// Difference of task time per work to the baseline, without waiting and sleeping; below 0 if it needs less.
    pub difference: f64,
    /// The causes, those that explain most first.
    pub lines: Vec<GapLine>,
    /// In words.
    pub sentence: String,
}

/// What one cause explains.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GapLine {
    /// Name of the cause.
    pub name: &'static str,
    /// Difference of its task time per work to the baseline.
    pub difference: f64,
    /// That as a share of the gap; absent for waiting and sleeping, which follow from what other tasks do, and where the
    /// schedulers do not differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// Schedulers whose task time differs by less, relative to the baseline's, do not differ here.
const NO_GAP: f64 = 0.002;

/// Splits the time of all trials, by scheduler and number. `None` if the trials have no times.
pub fn of_trials(labels: &[String], baseline: usize, trials: &[Vec<Trial>]) -> Option<TimeSplit> {
    let works = trials.iter().flatten().all(|trial| trial.measure("work_ns").is_some_and(|work| work > 0.0));
    let mut schedulers = Vec::new();
    let mut per_work = Vec::new();
    for (label, trials) in labels.iter().zip(trials) {
        let (split, causes) = of_scheduler(label, trials, works)?;
        schedulers.push(split);
        per_work.push(causes);
    }
    let gaps = (0..schedulers.len())
        .filter(|&index| index != baseline)
        .map(|index| gap(&schedulers[index].label, &schedulers[baseline].label, &per_work[index], &per_work[baseline]))
        .collect();
    let occurs = |cause: &&Cause| schedulers.iter().any(|split| split.shares[cause.name] > 0.0);
    Some(TimeSplit { causes: CAUSES.iter().filter(occurs).copied().collect(), schedulers, gaps })
}

/// A scheduler's split, and its task time per work by cause.
fn of_scheduler(label: &str, trials: &[Trial], works: bool) -> Option<(SchedulerSplit, Vec<f64>)> {
    let mut sums = vec![0.0; CAUSES.len()];
    let mut per_work = vec![0.0; CAUSES.len()];
    for trial in trials {
        let work = if works { trial.measure("work_ns")? } else { 1.0 };
        for (index, cause) in CAUSES.iter().enumerate() {
            let ns = *trial.time_ns.get(cause.name)?;
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

fn gap(label: &str, base_label: &str, own: &[f64], base: &[f64]) -> Gap {
    let explains = |index: usize| !CONSEQUENCES.contains(&CAUSES[index].name);
    let base_sum: f64 = (0..CAUSES.len()).filter(|&index| explains(index)).map(|index| base[index]).sum();
    let difference: f64 =
        (0..CAUSES.len()).filter(|&index| explains(index)).map(|index| own[index] - base[index]).sum();
    let differs = difference.abs() > NO_GAP * base_sum;
    let mut lines: Vec<(GapLine, &'static str)> = (0..CAUSES.len())
        .filter(|&index| own[index] != base[index])
        .map(|index| {
            let difference_of = own[index] - base[index];
            let share = (differs && explains(index)).then(|| difference_of / difference);
            (GapLine { name: CAUSES[index].name, difference: difference_of, share }, CAUSES[index].title)
        })
        .collect();
    // The sort is stable, so equal shares stay in the order of tables.
    let weight = |line: &GapLine| line.share.unwrap_or(f64::NEG_INFINITY);
    lines.sort_by(|a, b| weight(&b.0).total_cmp(&weight(&a.0)));
    let sentence = if differs {
        let much = percent((difference / base_sum).abs());
        let (less, top) = (if difference < 0.0 { "less" } else { "more" }, lines.iter());
        let top: Vec<String> = top
            .filter_map(|(line, title)| Some((line.share.filter(|share| *share >= 0.05)?, title)))
            .take(3)
            .map(|(share, title)| format!("{} of the gap: {title}", percent(share)))
            .collect();
        format!("{label} needs {much} {less} task time per work than {base_label}; {}", top.join("; "))
    } else {
        format!("{label} and {base_label} need the same task time per work")
    };
    Gap { label: label.to_owned(), difference, lines: lines.into_iter().map(|(line, _)| line).collect(), sentence }
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
    fn equal_schedulers_have_no_gap_to_explain() {
        let trials = || with_times("s", 100.0, &[("compute", 100.0)]);
        let split = of_trials(&["a".into(), "b".into()], 0, &[trials(), trials()]).unwrap();
        assert!(split.gaps[0].lines.is_empty() && split.gaps[0].sentence.contains("the same"));
    }
}
