//! The oracle: knows a workload's memory profiles, looks for the best static placement of its long-lived threads, and runs it pinned.
//!
//! No kernel could have it: a scheduler sees nothing of the workload's truth, so this stands outside of them. It is an ordinary
//! experiment: the same workload with affinities, under `eevdf`.
//!
//! 1. The long-lived threads are written out as tasks of their own ([`threads`](crate::threads)).
//! 2. The analytic model is searched for the best placement ([`placement`](crate::placement)).
//! 3. The model knows no messages, waits and sleep. So the placement found and those the search began with are rehearsed: simulated with
//!    seeds of their own, each pinned to CPUs, to those CPUs' LLCs, and to their nodes. The best by the workload's metric is run.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_lab::experiment::{Experiment, Named, trial_seeds};
use warmcore_lab::headroom::{OracleRun, PinnedThread, Rehearsal, SCHEMA};
use warmcore_lab::measures::Measure;
use warmcore_lab::runner::{self, Conduct, RunError};
use warmcore_lab::verdict::{VerdictError, primary_measure};
use warmcore_memory::{HierarchyError, Profile, library};
use warmcore_schedulers::{SchedulerSpec, SpecError};
use warmcore_statistics::Better;
use warmcore_topology::{CpuId, CpuSet, Machine, format_cpu_list};
use warmcore_workload::{Affinity, Drawn, Program, Step, Workload};

use crate::placement::{Found, Goal, Problem, Thread};
use crate::threads::{Unrolled, unroll, why_none};

/// The kernel under which threads are pinned.
const KERNEL: &str = "eevdf";

/// Trials of each rehearsal. Their seeds are derived from the first trial's, and are none of the experiment's.
pub(crate) const REHEARSALS: u32 = 2;

/// Why there is no headroom.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum OracleError {
    #[error("headroom is found in a memory model, and `{0}` does not simulate")]
    NotSimulated(&'static str),
    #[error("there is nothing to place in workload `{workload}`: {why}")]
    NoThreads { workload: String, why: &'static str },
    #[error("metric `{0}` has no better direction, so no placement is the best")]
    NoDirection(String),
    /// The model refuses the machine.
    #[error(transparent)]
    Machine(#[from] HierarchyError),
    /// The metric does not exist.
    #[error(transparent)]
    Metric(#[from] VerdictError),
    /// The kernel's name is not known: a fault of this program.
    #[error(transparent)]
    Kernel(#[from] SpecError),
    /// A pinned run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl OracleError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NotSimulated(_) => "leave out --on, or --headroom",
            Self::NoThreads { .. } | Self::NoDirection(_) | Self::Metric(_) => "leave out --headroom",
            Self::Machine(_) => "give the machine caches (`[[cache]]`), or name a preset as its `base`",
            Self::Kernel(_) | Self::Run(_) => "the run without --headroom may say more",
        }
    }
}

/// How tightly a thread is pinned to where the placement has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum PinWidth {
    Cpu,
    Llc,
    Node,
}

impl PinWidth {
    const ALL: [Self; 3] = [Self::Cpu, Self::Llc, Self::Node];

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Llc => "llc",
            Self::Node => "node",
        }
    }

    fn cpus(self, machine: &Machine, cpu: CpuId) -> CpuSet {
        match self {
            Self::Cpu => {
                let mut alone = CpuSet::with_capacity(machine.cpu_count());
                alone.insert(cpu);
                alone
            }
            Self::Llc => machine.cpus_of_llc(machine.llc_of(cpu)).clone(),
            Self::Node => machine.cpus_of_node(machine.node_of(cpu)).clone(),
        }
    }
}

/// A placement that may be the best.
struct CandidatePlacement {
    placement: &'static str,
    width: PinWidth,
    pins: Vec<CpuSet>,
}

/// Finds the placement and runs it, one trial for each of the experiment's.
///
/// # Errors
/// See [`OracleError`].
pub fn run(experiment: &Experiment, conduct: &Conduct<'_>) -> Result<OracleRun, OracleError> {
    let ChosenPlacements { metric, unrolled, found, rehearsals, chosen } = choose(experiment, conduct)?;
    let experiment = pinned(experiment, &unrolled, &chosen, experiment.seeds.clone())?;
    let points = points(&experiment, &metric, conduct)?;
    let machine = &experiment.machine.value;
    let threads = unrolled.threads.iter().zip(&chosen.pins).map(|(thread, pins)| PinnedThread {
        task: unrolled.workload.tasks[*thread].name.clone(),
        cpus: format_cpu_list(pins.iter().map(|cpu| machine.os_index(cpu))),
    });
    Ok(OracleRun {
        schema: SCHEMA.into(),
        scheduler: KERNEL.into(),
        placement: chosen.placement.into(),
        width: chosen.width.name().into(),
        evaluations: found.evaluations,
        finished: found.finished,
        rehearsals,
        threads: threads.collect(),
        metric: metric.name,
        seeds: experiment.seeds.clone(),
        points,
    })
}

/// What [`choose`] found.
struct ChosenPlacements {
    metric: Measure,
    unrolled: Unrolled,
    found: Found,
    rehearsals: Vec<Rehearsal>,
    chosen: CandidatePlacement,
}

/// The workload of an experiment with its threads bound as the best placement has them.
///
/// # Errors
/// See [`OracleError`].
pub fn placed(experiment: &Experiment, conduct: &Conduct<'_>) -> Result<Workload, OracleError> {
    let ChosenPlacements { unrolled, chosen, .. } = choose(experiment, conduct)?;
    Ok(bound(&unrolled, &experiment.machine.value, &chosen.pins))
}

/// Finds the placement, and rehearses it beside others.
fn choose(experiment: &Experiment, conduct: &Conduct<'_>) -> Result<ChosenPlacements, OracleError> {
    let kind = experiment.place.kind();
    if !kind.simulated {
        return Err(OracleError::NotSimulated(kind.name));
    }
    let workload = &experiment.workload.value;
    let metric = primary_measure(experiment.metric.as_deref(), workload)?;
    if metric.better == Better::Neither {
        return Err(OracleError::NoDirection(metric.name));
    }
    let machine = &experiment.machine.value;
    let unrolled = unroll(workload, machine);
    if unrolled.threads.is_empty() {
        return Err(nothing_to_place(workload));
    }
    let found = problem(machine, &unrolled).search()?;
    let mut rehearsals = Vec::new();
    let mut best: Option<(f64, CandidatePlacement)> = None;
    let seeds = trial_seeds(experiment.seeds.first().copied().unwrap_or_default(), REHEARSALS);
    for candidate in candidates(machine, &found) {
        let points = points(&pinned(experiment, &unrolled, &candidate, seeds.clone())?, &metric, conduct)?;
        let value =
            points.iter().copied().collect::<Option<Vec<f64>>>().map(|all| all.iter().sum::<f64>() / all.len() as f64);
        rehearsals.push(Rehearsal {
            placement: candidate.placement.into(),
            width: candidate.width.name().into(),
            value,
        });
        let Some(value) = value else { continue };
        let beats = |known: f64| if metric.better == Better::Lower { value < known } else { value > known };
        if best.as_ref().is_none_or(|(known, _)| beats(*known)) {
            best = Some((value, candidate));
        }
    }
    match best {
        Some((_, chosen)) => Ok(ChosenPlacements { metric, unrolled, found, rehearsals, chosen }),
        None => Err(nothing_to_place(workload)),
    }
}

fn nothing_to_place(workload: &Workload) -> OracleError {
    OracleError::NoThreads { workload: workload.name.clone(), why: why_none(workload) }
}

/// What the search is told of a workload.
pub(crate) fn problem<'a>(machine: &'a Machine, unrolled: &Unrolled) -> Problem<'a> {
    let workload = &unrolled.workload;
    let mut profiles: Vec<Profile> = Vec::new();
    let mut threads = Vec::new();
    let shares = shares(workload, &unrolled.threads);
    for (thread, share) in unrolled.threads.iter().zip(shares) {
        let task = &workload.tasks[*thread];
        let profile = workload.profile_of(task).unwrap_or(library::computing());
        let known = profiles.iter().position(|known| known.name == profile.name);
        let profile = known.unwrap_or_else(|| {
            profiles.push(profile.clone());
            profiles.len() - 1
        });
        let data = task.data_groups.iter().map(|id| (id.0, workload.data_groups[id.index()].name.clone())).collect();
        threads.push(Thread { profile, process: task.process.0, data, share });
    }
    let meets =
        unrolled.threads.iter().any(|thread| meets_often(&workload.programs[workload.tasks[*thread].program.index()]));
    let parts = unequal_parts(workload, &unrolled.threads);
    let goal = if meets || parts.is_some() { Goal::Slowest } else { Goal::Total };
    for (thread, part) in threads.iter_mut().zip(parts.into_iter().flatten()) {
        thread.share = part;
    }
    Problem { machine, profiles, threads, partners: partners(workload, &unrolled.threads), goal }
}

/// What threads work that only compute and end, in parts of their mean: the last one decides. `None` where all work the same, or something else
/// than work decides.
fn unequal_parts(workload: &Workload, threads: &[usize]) -> Option<Vec<f64>> {
    let programs = || threads.iter().map(|thread| &workload.programs[workload.tasks[*thread].program.index()]);
    let computes = |step: &Step| {
        matches!(
            step,
            Step::Run { .. }
                | Step::RunTime { .. }
                | Step::Draw { what: Drawn::Work | Drawn::CpuTime, .. }
                | Step::LoopStart { times: Some(_), .. }
                | Step::LoopEnd { .. }
                | Step::Phase(_)
                | Step::Exit
        )
    };
    if !programs().all(|program| program.steps.iter().all(computes)) {
        return None;
    }
    let works: Vec<u64> = programs().map(Program::work_ns).collect();
    let mean_ns = works.iter().map(|work_ns| *work_ns as f64).sum::<f64>() / works.len() as f64;
    let differ = works.iter().any(|work_ns| *work_ns != works[0]);
    differ.then(|| works.iter().map(|work_ns| *work_ns as f64 / mean_ns).collect())
}

/// What each thread works between barriers, in parts of the mean of those that meet; 1 of all others. Where some of them never end, the mean is
/// that of the same barrier: how often others meet elsewhere says nothing then.
fn shares(workload: &Workload, threads: &[usize]) -> Vec<f64> {
    let programs = || threads.iter().map(|thread| &workload.programs[workload.tasks[*thread].program.index()]);
    let barrier = |program: &Program| {
        program.steps.iter().find_map(|step| if let Step::Barrier(barrier) = step { Some(barrier.0) } else { None })
    };
    let endless = programs().any(|program| barrier(program).is_some() && program.is_endless());
    let met = |program: &Program| {
        let work_ns = program.met_work_ns().filter(|_| meets_often(program))?;
        Some((barrier(program).filter(|_| endless), work_ns as f64))
    };
    let met: Vec<Option<(Option<u32>, f64)>> = programs().map(met).collect();
    let share = |own: &Option<(Option<u32>, f64)>| {
        let Some((group, work_ns)) = own else { return 1.0 };
        let all = || met.iter().flatten().filter(|(other, _)| other == group).map(|(_, work_ns)| *work_ns);
        let mean_ns = all().sum::<f64>() / all().count() as f64;
        if mean_ns > 0.0 { work_ns / mean_ns } else { 1.0 }
    };
    met.iter().map(share).collect()
}

/// Whether a program comes to barriers again and again: where all begin together and meet no more, nobody waits for the slowest.
fn meets_often(program: &Program) -> bool {
    let (mut depth, mut barriers) = (0, 0);
    for step in &program.steps {
        match step {
            Step::LoopStart { .. } => depth += 1,
            Step::LoopEnd { .. } => depth -= 1,
            Step::Barrier(_) => barriers += if depth > 0 { 2 } else { 1 },
            _ => {}
        }
    }
    barriers > 1
}

/// Who has how many pipes, locks and other meeting points in common.
fn partners(workload: &Workload, threads: &[usize]) -> BTreeMap<(usize, usize), u32> {
    let objects = |thread: &usize| -> BTreeSet<(u8, u32)> {
        let steps = &workload.programs[workload.tasks[*thread].program.index()].steps;
        let object = |step: &Step| match step {
            Step::Send { channel, .. } | Step::Receive { channel, .. } => Some((0, channel.0)),
            Step::Lock(lock) | Step::LockShared(lock) => Some((1, lock.0)),
            Step::Signal(condition) | Step::Broadcast(condition) => Some((2, condition.0)),
            Step::Wait { condition, .. } | Step::SignalAndWait { condition, .. } => Some((2, condition.0)),
            Step::SemPost(semaphore)
            | Step::SemWait(semaphore)
            | Step::SemTake { semaphore, .. }
            | Step::Submit { semaphore, .. }
            | Step::Work { semaphore, .. } => Some((3, semaphore.0)),
            Step::Enlist { list, .. } | Step::Serve(list) => Some((4, list.0)),
            _ => None,
        };
        steps.iter().filter_map(object).collect()
    };
    let of_threads: Vec<BTreeSet<(u8, u32)>> = threads.iter().map(objects).collect();
    let mut partners = BTreeMap::new();
    for (first, own) in of_threads.iter().enumerate() {
        for (second, other) in of_threads.iter().enumerate().skip(first + 1) {
            let common = own.intersection(other).count() as u32;
            if common > 0 {
                partners.insert((first, second), common);
            }
        }
    }
    partners
}

/// Placements to rehearse: each in every width, without doubles and without those that leave a thread all CPUs.
fn candidates(machine: &Machine, found: &Found) -> Vec<CandidatePlacement> {
    let all =
        std::iter::once(("searched", &found.cpus)).chain(found.starts.iter().map(|start| (start.name, &start.cpus)));
    let mut seen: Vec<Vec<CpuSet>> = Vec::new();
    let mut candidates = Vec::new();
    for (placement, cpus) in all {
        for width in PinWidth::ALL {
            let pins: Vec<CpuSet> = cpus.iter().map(|cpu| width.cpus(machine, *cpu)).collect();
            let is_none = width != PinWidth::Cpu && pins.iter().any(|pin| pin.len() == machine.cpu_count());
            if is_none || seen.contains(&pins) {
                continue;
            }
            seen.push(pins.clone());
            candidates.push(CandidatePlacement { placement, width, pins });
        }
    }
    candidates
}

/// The experiment with its threads pinned, under one kernel.
fn pinned(
    experiment: &Experiment,
    unrolled: &Unrolled,
    candidate: &CandidatePlacement,
    seeds: Vec<u64>,
) -> Result<Experiment, OracleError> {
    let workload = bound(unrolled, &experiment.machine.value, &candidate.pins);
    Ok(Experiment {
        workload: Named { source: experiment.workload.source.clone(), value: workload },
        schedulers: vec![SchedulerSpec::parse(KERNEL)?],
        columns: BTreeMap::new(),
        baseline: 0,
        seeds,
        options: experiment.options.without_tables(),
        observations: Vec::new(),
        ..experiment.clone()
    })
}

/// The workload with each of its long-lived threads bound to CPUs.
pub(crate) fn bound(unrolled: &Unrolled, machine: &Machine, pins: &[CpuSet]) -> Workload {
    let mut workload = unrolled.workload.clone();
    for (thread, pins) in unrolled.threads.iter().zip(pins) {
        workload.tasks[*thread].affinity = Affinity::OsCpus(pins.iter().map(|cpu| machine.os_index(cpu)).collect());
    }
    workload
}

/// The metric in each trial; none where it is not a number that can be compared.
fn points(experiment: &Experiment, metric: &Measure, conduct: &Conduct<'_>) -> Result<Vec<Option<f64>>, OracleError> {
    let finished = runner::run(experiment, None, conduct)?;
    let trials = finished.trials.iter().flatten();
    Ok(trials.map(|trial| metric.value(trial).filter(|value| value.is_finite())).collect())
}

#[cfg(test)]
mod tests {
    use warmcore_workload::from_generator;

    use super::*;

    fn shares_of(text: &str) -> Vec<f64> {
        let machine = warmcore_topology::resolve("1s1n1l4c1t").unwrap();
        let unrolled = unroll(&from_generator(text).unwrap(), &machine);
        shares(&unrolled.workload, &unrolled.threads)
    }

    /// Works of 1, 1.167, 1.333 and 1.5 ms are 0.8, 0.933, 1.067 and 1.2 of their mean; what the first does before the others begin is no part.
    #[test]
    fn each_thread_has_its_own_work_between_barriers() {
        for text in ["forkjoin:-n4,-i20,-w1ms,-m50", "forkjoin:-n4,-i20,-w1ms,-m50,--setup=1s"] {
            let near =
                shares_of(text).iter().zip([0.8, 14.0 / 15.0, 16.0 / 15.0, 1.2]).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(near, "{text}: {:?}", shares_of(text));
        }
        assert_eq!(shares_of("forkjoin:-n4,-i20,-w1ms"), [1.0; 4], "instances of one template");
        assert!(shares_of("hackbench:-T,-p,-f4,-g1,-l10").iter().all(|share| *share == 1.0), "they meet once");
    }

    /// The best of all placements of 50, 40 and three times 30 ms on two CPUs is 90 ms on each; with siblings, of 100, 120, 150 and 300 ms the last
    /// alone on its core.
    #[test]
    fn who_ends_last_decides_where_threads_only_compute() {
        let placed = |machine: &str, works_ms: &[u64]| {
            let mut workload = Workload::empty("unequal");
            let process = workload.add_process("process");
            for work_ms in works_ms {
                let program = workload.add_program(Program { steps: vec![Step::Run { work_ns: work_ms * 1_000_000 }] });
                workload.add_task(warmcore_workload::Task::new(format!("of-{work_ms}"), process, program));
            }
            let machine = warmcore_topology::resolve(machine).unwrap();
            problem(&machine, &unroll(&workload, &machine)).search().unwrap().cpus
        };
        let works = [50, 40, 30, 30, 30];
        let cpus = placed("1s1n1l2c1t", &works);
        let on = |cpu: CpuId| works.iter().zip(&cpus).filter(|(_, on)| **on == cpu).map(|(work, _)| work).sum::<u64>();
        assert_eq!((on(CpuId(0)), on(CpuId(1))), (90, 90), "{cpus:?}");
        let cpus = placed("1s1n1l2c2t", &[100, 120, 150, 300]);
        let machine = warmcore_topology::resolve("1s1n1l2c2t").unwrap();
        assert!((0..3).all(|other| machine.core_of(cpus[other]) != machine.core_of(cpus[3])), "{cpus:?}");
        let equal = unroll(&from_generator("spin:-n4,-d1s").unwrap(), &machine);
        assert_eq!(unequal_parts(&equal.workload, &equal.threads), None);
    }

    /// 1 and 2 ms on one CPU and 1.333 and 1.667 on the other are 3 ms a round on both.
    #[test]
    fn the_longest_thread_shares_a_cpu_with_the_shortest() {
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let unrolled = unroll(&from_generator("forkjoin:-n4,-i200,-w1ms,-m100").unwrap(), &machine);
        let cpus = problem(&machine, &unrolled).search().unwrap().cpus;
        assert!(cpus[0] == cpus[3] && cpus[1] == cpus[2] && cpus[0] != cpus[1], "{cpus:?}");
    }
}
