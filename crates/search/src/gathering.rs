//! What gathering groups of threads would win: the replay of a recording, simulated with each group's threads free, gathered on one LLC,
//! and spread over all of them.
//!
//! Gathered, a group has the CPUs of the LLC with the most room left, groups with the most CPU time first; a group that needs more CPUs
//! than an LLC has gets a node's, and one that needs more than that is left free. Spread, its threads are dealt out over the LLCs, one
//! after the other. The kernel is `eevdf`. All that differs is where threads may run.

use std::collections::BTreeMap;

use serde::Serialize;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{self, BatchConduct, PlaceError, Request};
use warmcore_places::sim::Sim;
use warmcore_schedulers::SchedulerSpec;
use warmcore_statistics::{Better, Comparison, Design, StatisticsError, compare_trials};
use warmcore_topology::{CpuSet, Machine};
use warmcore_trace::metrics::{Counters, Start};
use warmcore_workload::{Affinity, TaskTemplateId, Workload};

const KERNEL: &str = "eevdf";

/// A group of tasks of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// Its tasks.
    pub tasks: Vec<TaskTemplateId>,
    /// CPUs that they keep busy, in thousandths.
    pub busy_cpus_milli: u64,
}

/// A way to place groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placing {
    /// Each on one LLC.
    Gathered,
    /// Over all LLCs.
    Spread,
}

impl Placing {
    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gathered => "gathered",
            Self::Spread => "spread",
        }
    }
}

/// A placement against leaving everything to the kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GatheringGain {
    /// Position of the group that was placed; none if all were.
    pub group: Option<usize>,
    /// How.
    pub placement: Placing,
    /// Time until the last task ended, over that of free threads: below 1 is faster.
    pub elapsed: Comparison,
    /// CPU time of all tasks, likewise: below 1 is less work for the same.
    pub cpu_time: Comparison,
    /// Mean response time of the tasks, from a wakeup to the next sleep, likewise: what placement changes where arrivals fix the elapsed
    /// time.
    pub response: Comparison,
    /// What may be believed of it.
    pub tells: Tells,
}

/// What a prediction may be believed to say, by how often its like was right (`results/2026-11-25-zen5-2vcpu-host/signs.tsv`: 20 mixes of
/// programs on two machines, replayed, against the programs themselves).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tells {
    /// All groups gathered: less CPU time for the same work.
    LessCpuTime,
    /// The same, more.
    MoreCpuTime,
    /// Nothing.
    CannotTell,
}

impl Tells {
    /// Least change of the CPU time that is believed.
    pub const LEAST: f64 = 0.01;

    /// Of the CPU time of all groups gathered, a change of more than [`Tells::LEAST`] had the right sign in 10 of 11 cases of the mixes that the
    /// rule is from, and in 12 of 12 of the others. Elapsed time (22 of 38), single groups (87 of 181, CPU time 50 of 102) and smaller
    /// changes (10 of 16) are told no better than by chance, and groups that are spread were not measured.
    pub fn of(group: Option<usize>, placement: Placing, cpu_time: Option<f64>) -> Self {
        match cpu_time {
            Some(ratio) if group.is_none() && placement == Placing::Gathered && (ratio - 1.0).abs() > Self::LEAST => {
                if ratio < 1.0 {
                    Self::LessCpuTime
                } else {
                    Self::MoreCpuTime
                }
            }
            _ => Self::CannotTell,
        }
    }

    /// In a table.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LessCpuTime => "less CPU time",
            Self::MoreCpuTime => "more CPU time",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// Why there is no gain to tell.
#[derive(Debug, thiserror::Error)]
pub enum GatheringError {
    /// A run failed.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A value is not a number.
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
    /// The kernel's name is not known: a fault of this program.
    #[error(transparent)]
    Kernel(#[from] warmcore_schedulers::SpecError),
}

/// What was measured of a run: elapsed time, CPU time, and response time where a task slept again, ns.
type RunTimes = [Option<f64>; 3];

/// Simulates a workload with its groups free and placed in these ways, all of them and each on its own.
///
/// # Errors
/// See [`GatheringError`].
pub fn gains(
    machine: &Machine,
    workload: &Workload,
    groups: &[Members],
    placings: &[Placing],
    seeds: &[u64],
    memory: MemoryChoice,
    conduct: &BatchConduct,
) -> Result<Vec<GatheringGain>, GatheringError> {
    let scheduler = SchedulerSpec::parse(KERNEL)?;
    let mut variants = vec![(None, workload.clone())];
    for placing in placings {
        let places = match placing {
            Placing::Gathered => gathered(machine, groups),
            Placing::Spread => spread(machine, groups),
        };
        variants.push((Some((None, *placing)), bound(workload, places.values())));
        for group in (0..groups.len()).filter(|_| groups.len() > 1) {
            variants.push((Some((Some(group), *placing)), bound(workload, places.get(&group))));
        }
    }
    let options = RunOptions { memory, ..RunOptions::default() };
    let requests: Vec<Request<'_>> = variants
        .iter()
        .flat_map(|(_, workload)| {
            let scheduler = &scheduler;
            seeds.iter().map(move |seed| Request { options, ..Request::new(machine, workload, scheduler, *seed) })
        })
        .collect();
    let measured = measure(&requests, conduct)?;
    let of = |variant: usize, what: usize| -> Vec<Option<f64>> {
        let runs = &measured[variant * seeds.len()..(variant + 1) * seeds.len()];
        runs.iter().map(|run| run[what]).collect()
    };
    let mut gains = Vec::new();
    for (position, (placed, _)) in variants.iter().enumerate() {
        let Some((group, placement)) = *placed else { continue };
        let compare = |what| compare_trials(Design::Paired, &of(0, what), &of(position, what), Better::Lower);
        let cpu_time = compare(1)?;
        let tells = Tells::of(group, placement, cpu_time.ratio);
        gains.push(GatheringGain { group, placement, elapsed: compare(0)?, cpu_time, response: compare(2)?, tells });
    }
    Ok(gains)
}

fn measure(requests: &[Request<'_>], conduct: &BatchConduct) -> Result<Vec<RunTimes>, PlaceError> {
    place::collect(&Sim, requests, conduct, &|position, run| {
        let run = run?;
        let mut counters = Counters::new(requests[position].machine, run.tables, Start::Idle { time_ns: 0 });
        let tables = run.tables.clone();
        let outcome = run.send(Some(&mut counters))?.outcome;
        let totals = counters.metrics(outcome.elapsed_ns, &tables, &[]).totals;
        let cpu_ns: u64 = outcome.tasks.iter().map(|task| task.cpu_time_ns).sum();
        Ok([Some(outcome.elapsed_ns as f64), Some(cpu_ns as f64), totals.response.mean_ns])
    })
}

type GroupCpus = BTreeMap<usize, Vec<(TaskTemplateId, CpuSet)>>;

fn bound<'a>(workload: &Workload, places: impl IntoIterator<Item = &'a Vec<(TaskTemplateId, CpuSet)>>) -> Workload {
    let mut workload = workload.clone();
    for (task, cpus) in places.into_iter().flatten() {
        let task = &mut workload.tasks[task.index()];
        // Who binds a program starts it there.
        task.start_cpu = cpus.first().map(|cpu| cpu.0);
        task.affinity = Affinity::Cpus(cpus.clone());
    }
    workload
}

fn llcs(machine: &Machine) -> Vec<CpuSet> {
    machine.llcs().map(|llc| machine.cpus_of_llc(llc).clone()).collect()
}

/// The CPUs of each group where each is gathered; a group that needs more than a node has none.
pub fn places(machine: &Machine, groups: &[Members]) -> BTreeMap<usize, CpuSet> {
    let placed = gathered(machine, groups);
    placed.into_iter().filter_map(|(group, tasks)| Some((group, tasks.first()?.1.clone()))).collect()
}

fn gathered(machine: &Machine, groups: &[Members]) -> GroupCpus {
    let llcs = llcs(machine);
    let mut room: Vec<i64> = llcs.iter().map(|cpus| cpus.len() as i64 * 1000).collect();
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|group| (std::cmp::Reverse(groups[*group].busy_cpus_milli), *group));
    let mut placement = GroupCpus::new();
    for group in order {
        let need = groups[group].busy_cpus_milli as i64;
        // Of those with the most room the first.
        let Some(llc) = (0..llcs.len()).max_by_key(|llc| (room[*llc], std::cmp::Reverse(*llc))) else { continue };
        let node = llcs[llc].first().map(|cpu| machine.cpus_of_node(machine.node_of(cpu)));
        let cpus = if need <= llcs[llc].len() as i64 * 1000 {
            llcs[llc].clone()
        } else if let Some(node) = node.filter(|node| need <= node.len() as i64 * 1000) {
            node.clone()
        } else {
            continue;
        };
        for (room, own) in room.iter_mut().zip(&llcs) {
            *room -= need * own.intersection(&cpus).len() as i64 / cpus.len() as i64;
        }
        placement.insert(group, groups[group].tasks.iter().map(|task| (*task, cpus.clone())).collect());
    }
    placement
}

fn spread(machine: &Machine, groups: &[Members]) -> GroupCpus {
    let llcs = llcs(machine);
    // Each group begins where the one before ended, or small groups would all be on the first LLCs.
    let mut next = (0..llcs.len()).cycle();
    let mut deal = |task: &TaskTemplateId| Some((*task, llcs[next.next()?].clone()));
    groups
        .iter()
        .enumerate()
        .map(|(group, members)| (group, members.tasks.iter().filter_map(&mut deal).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(tasks: std::ops::Range<u32>, busy_cpus_milli: u64) -> Members {
        Members { tasks: tasks.map(TaskTemplateId).collect(), busy_cpus_milli }
    }

    #[test]
    fn gathered_groups_are_on_an_llc_each_and_large_ones_on_a_node() {
        let machine = warmcore_topology::resolve("2s1n2l4c1t").unwrap();
        let placed = gathered(&machine, &[members(0..2, 1500), members(2..8, 5000), members(8..40, 9000)]);
        let cpus = |group: usize| placed[&group][0].1.len();
        assert_eq!((cpus(0), cpus(1)), (4, 8));
        assert!(!placed.contains_key(&2), "no node has nine CPUs");
        assert!(placed[&0][0].1.intersection(&placed[&1][0].1).is_empty(), "the other LLC has more room");
    }

    /// Of the measured cells whose truth differs from 1 by more than 2 %.
    #[test]
    fn what_is_told_was_right_in_nine_of_ten_measured_cases_and_the_rest_was_chance() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/2026-11-25-zen5-2vcpu-host/signs.tsv");
        let text = std::fs::read_to_string(path).unwrap();
        // Of believed changes in mixes of even and of odd numbers: right, and all.
        let mut believed = [(0, 0); 2];
        let mut rest = (0, 0);
        for line in text.lines().skip(1).filter(|line| !line.starts_with('#')) {
            let [mix, _, group, measure, truth, told, _] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let number = |text: &str| text.parse::<f64>().ok().filter(|ratio| *ratio > 0.0);
            let (Some(truth), Some(told)) = (number(truth), number(told)) else { continue };
            if (truth - 1.0).abs() <= 0.02 || told == 1.0 {
                continue;
            }
            let cpu_time = (measure == "cpu_time").then_some(told);
            let count = match Tells::of(group.parse().ok(), Placing::Gathered, cpu_time) {
                Tells::CannotTell => &mut rest,
                _ => &mut believed[mix.parse::<usize>().unwrap() % 2],
            };
            count.0 += u32::from((truth < 1.0) == (told < 1.0));
            count.1 += 1;
        }
        assert_eq!(believed, [(10, 11), (12, 12)]);
        assert!((0.4..0.6).contains(&(f64::from(rest.0) / f64::from(rest.1))), "{rest:?}");
        assert_eq!(Tells::of(None, Placing::Spread, Some(0.5)), Tells::CannotTell, "not measured");
        assert_eq!(Tells::of(None, Placing::Gathered, None), Tells::CannotTell);
    }

    #[test]
    fn threads_that_are_spread_are_on_all_llcs() {
        let machine = warmcore_topology::resolve("2s1n2l4c1t").unwrap();
        let placed = spread(&machine, &[members(0..2, 0), members(2..4, 0)]);
        let first: Vec<_> = placed.values().flatten().map(|(_, cpus)| cpus.first().unwrap().0).collect();
        assert_eq!(first, [0, 4, 8, 12]);
    }

    #[test]
    fn a_pair_that_does_nothing_but_wake_each_other_loses_when_it_is_spread() {
        let machine = warmcore_topology::resolve("2s1n2l4c1t").unwrap();
        let workload = warmcore_workload::from_generator("pingpong:-n1,-l400,-T").unwrap();
        let conduct = BatchConduct { jobs: 1, stop: Default::default() };
        let (groups, placings) = ([members(0..2, 1000)], [Placing::Gathered, Placing::Spread]);
        let found = gains(&machine, &workload, &groups, &placings, &[1, 2], MemoryChoice::Analytic, &conduct).unwrap();
        let ratios: Vec<f64> = found.iter().map(|gain| gain.elapsed.ratio.unwrap()).collect();
        assert_eq!(found.iter().map(|gain| gain.placement).collect::<Vec<_>>(), placings);
        assert!(ratios[1] > 1.1 * ratios[0], "{ratios:?}");
    }
}
