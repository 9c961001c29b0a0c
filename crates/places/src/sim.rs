//! The simulator: any machine, with caches and memory, every run a function of its request.

#[cfg(target_arch = "x86_64")]
mod apart;
pub mod programs;

use std::ops::ControlFlow;
use std::sync::Arc;

use warmcore_kernel::{EndedBy, Governor, Setup, SetupError, SimulationError};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::{SchedulerSpec, run_tables, simulate};
use warmcore_statistics::Design;
use warmcore_trace::Sink;
use warmcore_workload::Workload;

use crate::circumstances;
use crate::place::{
    BatchConduct, Place, PlaceError, PlaceKind, Report, Request, Run, Take, Trouble, check_tunables, in_parallel,
};

/// Its row in the registry.
pub static KIND: PlaceKind = PlaceKind {
    name: "sim",
    summary: "the simulator",
    needs: "nothing",
    clock: ("simulated", "simulated time"),
    host: "simulator",
    simulated: true,
    keeps_to_cpus: false,
    events_cost_time: false,
    unmeasured: "",
    open: Some(|_, _| Ok(Arc::new(Sim))),
    past: |_| Ok(Arc::new(Sim)),
};

/// The simulator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sim;

impl Place for Sim {
    fn kind(&self) -> &'static PlaceKind {
        &KIND
    }

    /// Trial k of every scheduler has the same seed, which decides everything that is left to chance.
    fn design(&self) -> Design {
        Design::Paired
    }

    fn repeatable(&self) -> bool {
        true
    }

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(self)
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        requests.iter().try_for_each(|request| {
            if request.scheduler.program().is_some() {
                programs::check(request.scheduler, request.machine)?;
            }
            check_tunables(request)?;
            check_hotplug(request)?;
            check_homes(request)?;
            circumstances::check(request, false)?;
            let mut setup = Setup::new(request.machine, request.workload, request.seed)?;
            Ok(setup.set_actions(request.actions)?)
        })
    }

    fn run(&self, requests: &[Request<'_>], conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let positions: Vec<usize> = (0..requests.len()).collect();
        let files = programs::Files::default();
        in_parallel(conduct, &positions, |&position| one(&requests[position], position, &files, conduct, take))
    }
}

fn one(
    request: &Request<'_>,
    position: usize,
    files: &programs::Files,
    conduct: &BatchConduct,
    take: &Take<'_>,
) -> ControlFlow<()> {
    let mut setup = match Setup::new(request.machine, request.workload, request.seed) {
        Ok(setup) => setup,
        Err(error) => return take(position, Err(error.into())),
    };
    if let Err(error) = setup.set_actions(request.actions) {
        return take(position, Err(error.into()));
    }
    setup.options = request.options;
    setup.work_of = request.work_of;
    setup.stop = Some(Arc::clone(&conduct.stop));
    let tables = run_tables(request.scheduler, &setup);
    let run = Run::new(&tables, 0.0, |sink| {
        // The same sink, borrowed for no longer than the setup.
        let sink = sink.map(|sink| sink as &mut dyn Sink);
        let report = match request.scheduler.program() {
            None => Report::new(simulate(request.scheduler, &setup, sink)?),
            Some(_) => programs::run(request.scheduler, files, &setup, sink)?,
        };
        let mut notes = notes(report.outcome.memory_solutions);
        notes.extend(unknown_to(request.scheduler, request.workload));
        notes.extend(note_on_clamps(&setup, request.scheduler));
        notes.extend(programs::note(request.scheduler));
        notes.extend(note_on_told_groups(request.scheduler, request.workload));
        notes.extend(report.outcome.kernel_log.iter().cloned());
        let foreign_run_ns = report.outcome.background.iter().map(|thread| thread.cpu_time_ns).sum();
        Ok(Report { notes, foreign_run_ns, ..report })
    });
    take(position, Ok(run))
}

/// What to know of a run before its figures are trusted, from how many equations of loaded memory were solved and how many of
/// them did not settle.
fn notes((_, unsettled): (u64, u64)) -> Vec<String> {
    let note = || "in some solutions the load of memory and links was not found, and the last one was kept".to_owned();
    (unsettled > 0).then(note).into_iter().collect()
}

/// What a scheduler does not know of what a workload asks for, and what tasks then do: task groups, nice values, utilisation clamps.
pub fn unknown_to(scheduler: &SchedulerSpec, workload: &Workload) -> Vec<String> {
    // A sched_ext program is told of groups.
    let groups = note_on_groups(workload, scheduler.info().knows_groups || scheduler.program().is_some());
    let nice = (workload.has_weights() && !scheduler.info().knows_nice)
        .then(|| "it knows neither nice values nor SCHED_IDLE, so all tasks count the same".to_owned());
    let clamps = (workload.has_util_clamps() && !knows_clamps(scheduler))
        .then(|| "it knows no utilisation clamps, so tasks run as if they asked for none".to_owned());
    groups.into_iter().chain(nice).chain(clamps).collect()
}

fn knows_clamps(scheduler: &SchedulerSpec) -> bool {
    scheduler.info().knows_clamps || scheduler.program().is_some()
}

/// What to know of a workload's task groups under a scheduler that knows them or not.
fn note_on_groups(workload: &Workload, known: bool) -> Option<String> {
    let grouped = workload.groups.iter().any(|group| !group.is_root());
    let limited = workload.groups.iter().find(|group| group.cpu_max.is_some());
    let quota =
        limited.map(|group| format!(", and no quota holds, such as that of {}", group.name)).unwrap_or_default();
    (grouped && !known).then(|| format!("it knows no task groups, so tasks share CPUs as if there were none{quota}"))
}

/// What to know of a workload's task groups under a program that is told of them.
fn note_on_told_groups(scheduler: &SchedulerSpec, workload: &Workload) -> Option<String> {
    let grouped = workload.groups.iter().any(|group| !group.is_root());
    (grouped && scheduler.program().is_some()).then(|| {
        "under sched_ext task groups share CPUs, and have quotas, as the program makes them: one without cgroup operations ignores them"
            .to_owned()
    })
}

/// What to know of a workload's utilisation clamps where they change nothing although the scheduler knows them.
fn note_on_clamps(setup: &Setup<'_>, scheduler: &SchedulerSpec) -> Option<String> {
    if !setup.workload().has_util_clamps() || !knows_clamps(scheduler) {
        return None;
    }
    let heeded = scheduler.kernel().governor == Governor::Schedutil || setup.machine().is_asymmetric();
    (!heeded).then(|| {
        "utilisation clamps change nothing: they are for frequencies under governor=schedutil and for CPUs of unequal capacity".to_owned()
    })
}

impl From<SetupError> for PlaceError {
    fn from(error: SetupError) -> Self {
        let advice = match error {
            SetupError::Command(_) => {
                "run it with --on host; or `warmcore record` it, and compare its `warmcore replay`"
            }
            _ => "machine and workload do not fit together: change one of them",
        };
        Self::new(Trouble::Unfit, "warmcore::experiment", error, advice)
    }
}

/// Advice about a program that a kernel ends when a CPU goes offline.
const NO_OPERATIONS: &str = "give it cpu_offline and cpu_online, or compare it without \"hotplug\"";

/// Advice about a scheduler under which no CPU can go offline.
const NO_HOTPLUG: &str = "leave out \"hotplug\", or compare schedulers of Linux";

/// Checks that memory which a profile puts on nodes has a share for each node that there is, and for no other.
fn check_homes(request: &Request<'_>) -> Result<(), PlaceError> {
    if request.options.memory == MemoryChoice::None {
        return Ok(());
    }
    let advice = "give one share for each of the machine's nodes, or let memory `interleave`";
    let unfit = |error| PlaceError::new(Trouble::Unfit, "warmcore::experiment", error, advice);
    let nodes = request.machine.node_count();
    request.workload.profiles.iter().try_for_each(|profile| profile.check_homes(nodes).map_err(unfit))
}

/// Checks that CPUs go offline only under schedulers that can have that.
fn check_hotplug(request: &Request<'_>) -> Result<(), PlaceError> {
    let info = request.scheduler.info();
    let Some(reason) = info.no_hotplug.filter(|_| request.changes_cpus()) else { return Ok(()) };
    let message = format!("under `{}` no CPU can go offline: {reason}", info.name);
    Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, NO_HOTPLUG))
}

/// Advice about a program that was ejected, with all that it needs.
const FAULT_OF_THE_PROGRAM: &str = "this is a fault of the program: mend it, or compare without it";

impl From<SimulationError> for PlaceError {
    fn from(error: SimulationError) -> Self {
        let advice = match &error {
            SimulationError::Interrupted { .. } => return Self::interrupted(),
            SimulationError::NobodyRan { .. } => "give the action a later time, or name tasks that run before it",
            SimulationError::Deadlock { .. } | SimulationError::Program { .. } => {
                "this is a fault of the workload: look at what waits for what"
            }
            SimulationError::NoProgress { .. } | SimulationError::TooManyTasks { .. } => {
                "a loop of the workload needs a step that takes time, or an end"
            }
            SimulationError::Scheduler { .. } | SimulationError::Invariant { .. } => {
                "this is a fault of this program: please report it with the command line and the seed"
            }
            SimulationError::Memory(_) => "mend the machine's caches, or use `--memory none`",
            SimulationError::ExactMemory(_) => "give the tasks less memory, or use `--memory analytic`",
            SimulationError::Sink(_) => "is the disk full? `--trace counters` needs no space",
            SimulationError::Ejected { dump, by, .. } => {
                let advice = if *by == EndedBy::Kernel { NO_OPERATIONS } else { FAULT_OF_THE_PROGRAM };
                let dump = dump.clone();
                return Self::new(Trouble::Scheduler, "warmcore::simulation", error, advice).with_output(dump);
            }
            SimulationError::NotSimulated { .. } => "run it with --on vm",
            SimulationError::NoHotplug { .. } => NO_HOTPLUG,
            SimulationError::NoSets { .. } => "add `--memory exact`",
            SimulationError::NoFrequencies { .. } => "`warmcore machine show` says what a machine states",
        };
        Self::new(Trouble::Failed, "warmcore::simulation", error, advice)
    }
}

#[cfg(test)]
mod tests {
    use warmcore_workload::CpuMax;

    use super::*;

    #[test]
    fn a_run_says_that_the_scheduler_knows_no_task_groups_if_there_are_any() {
        let mut workload = Workload::empty("test");
        workload.add_group("/");
        assert_eq!(note_on_groups(&workload, false), None, "the root group is none");
        workload.add_group("/users/one");
        assert!(note_on_groups(&workload, false).unwrap().contains("knows no task groups"));
        assert!(!note_on_groups(&workload, false).unwrap().contains("quota"));
        workload.groups[1].cpu_max = CpuMax::parse("20000", 0).unwrap();
        assert!(note_on_groups(&workload, false).unwrap().ends_with("and no quota holds, such as that of /users"));
        assert_eq!(note_on_groups(&workload, true), None);
    }

    #[test]
    fn a_run_says_that_groups_are_what_a_program_makes_of_them() {
        let [program, native] = ["scx:front", "scx-native"].map(|text| SchedulerSpec::parse(text).unwrap());
        let mut workload = Workload::empty("test");
        assert_eq!(note_on_told_groups(&program, &workload), None);
        workload.add_group("/users");
        assert!(unknown_to(&program, &workload).is_empty(), "no comparison is refused for it");
        assert!(note_on_told_groups(&program, &workload).unwrap().contains("without cgroup operations"));
        assert_eq!((unknown_to(&native, &workload).len(), note_on_told_groups(&native, &workload)), (1, None));
    }

    #[test]
    fn a_run_says_that_memory_did_not_settle_and_nothing_if_it_did() {
        assert!(notes((40, 0)).is_empty());
        assert!(notes((40, 1))[0].contains("the load of memory and links was not found"));
    }
}
