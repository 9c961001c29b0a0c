//! A recording as a place: one run, which was made already, on whatever kernel, by whatever recorder. It answers a single request, so
//! that a recording becomes a run directory like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use warmcore_capture::convert::{Cast, Converted, events};
use warmcore_capture::homes::ProcessHomes;
use warmcore_capture::{Recording, What};
use warmcore_kernel::Setup;
use warmcore_statistics::Design;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{ApplicationOutcome, End, Event, EventKind, Outcome, PrevState, RunTables, TaskId, TaskOutcome};
use warmcore_workload::Workload;

use crate::place::{Conditions, Conduct, Place, PlaceError, PlaceKind, Report, Request, Run, Take, Trouble};

/// Its row in the registry.
pub static KIND: PlaceKind = PlaceKind {
    name: "recorded",
    summary: "a recording that was made already",
    needs: "a recording",
    clock: ("mono", "time of the recording"),
    host: "recorded",
    simulated: false,
    keeps_to_cpus: false,
    events_cost_time: false,
    unmeasured: "what the recorder did not record: caches, memory, affinities, nice values, and why a task was moved where the kernel's \
                 events do not tell. Nothing in this page is simulated.",
    open: None,
    past: |table| {
        let origin = table.and_then(|table| table.clone().try_into::<Origin>().ok());
        let missing =
            || PlaceError::new(Trouble::Unfit, "warmcore::place", "it does not say what was recorded", ADVICE);
        Ok(Arc::new(Recorded { origin: origin.ok_or_else(missing)?, made: None }))
    },
};

const ADVICE: &str = "read the recording again";
/// Events handed to a sink at a time.
const BATCH: usize = 4096;

/// Where a recording comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// What it was read from, such as `trace.dat`.
    pub source: String,
    /// The recorder's clock, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Events that it lost, as far as it counted them.
    pub events_lost: u64,
    /// What a reader of any result must know.
    pub notes: Vec<String>,
}

/// A recording that can be asked for once.
#[derive(Debug)]
pub struct Recorded {
    origin: Origin,
    /// The recording and the task of each thread; `None` where only its run directory is left.
    made: Option<(Recording, BTreeMap<i32, TaskId>)>,
}

impl Recorded {
    /// One whose threads are these tasks of the workload that is asked for.
    #[must_use]
    pub fn new(recording: Recording, tasks: BTreeMap<i32, TaskId>) -> Self {
        let (events_lost, more) = recording.events_lost();
        let mut notes = recording.notes.clone();
        notes.extend(notes_on_extras(&recording));
        if more {
            notes.push("the recorder lost more events than it counted".into());
        }
        if !recording.has_wakers() {
            notes
                .push("the recording has no sched_waking events: wakeup latencies begin when a task was queued".into());
        }
        let origin = Origin { source: recording.source.clone(), clock: recording.clock.clone(), events_lost, notes };
        Self { origin, made: Some((recording, tasks)) }
    }

    fn refuse(message: impl std::fmt::Display) -> PlaceError {
        PlaceError::new(Trouble::Unfit, "warmcore::recording", message, ADVICE)
    }
}

impl Place for Recorded {
    fn kind(&self) -> &'static PlaceKind {
        &KIND
    }

    fn identity(&self) -> String {
        format!("{}: {}", KIND.name, self.origin.source)
    }

    fn record(&self) -> Option<toml::Table> {
        toml::Table::try_from(&self.origin).ok()
    }

    fn caveats(&self) -> Vec<String> {
        self.origin.notes.clone()
    }

    fn design(&self) -> Design {
        Design::Unpaired
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        if self.made.is_some() { Ok(self) } else { Err(Self::refuse("what was recorded cannot be run again")) }
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        match requests {
            [_] => Ok(()),
            _ => Err(Self::refuse("a recording is one run under one scheduler")),
        }
    }

    fn run(&self, requests: &[Request<'_>], _conduct: &Conduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let [request] = requests else { return self.check(requests) };
        let (recording, tasks) = self.made.as_ref().ok_or_else(|| Self::refuse("the recording is not here"))?;
        // Whether more was wanted does not matter after the only run.
        let _: ControlFlow<()> = match Setup::new(request.machine, request.workload, request.seed) {
            Err(error) => take(0, Err(error.into())),
            Ok(setup) => {
                let tables = with_counters(setup.run_tables(Vec::new()), recording);
                let run = Run::new(&tables, 0.0, |sink| {
                    let converted =
                        convert(recording, tasks, request.machine, recording.span_ns(), 0).map_err(Self::refuse)?;
                    if let Some(sink) = sink {
                        for batch in converted.events.chunks(BATCH) {
                            sink.events(batch).map_err(warmcore_kernel::SimulationError::Sink)?;
                        }
                    }
                    Ok(Report {
                        events_lost: self.origin.events_lost,
                        notes: self.origin.notes.clone(),
                        foreign_run_ns: converted.foreign_run_ns,
                        conditions: extras(recording),
                        ..Report::new(outcome(recording, request.workload, &converted))
                    })
                });
                take(0, Ok(run))
            }
        };
        Ok(())
    }
}

/// What happened between two times, with all tasks in one restriction.
pub(crate) fn convert(
    recording: &Recording,
    tasks: &BTreeMap<i32, TaskId>,
    machine: &Machine,
    (start_ns, end_ns): (u64, u64),
    restriction: u32,
) -> Result<Converted, String> {
    let stoppers: Vec<i32> = recording
        .threads
        .iter()
        .filter(|(_, thread)| thread.name.starts_with("migration/"))
        .map(|(id, _)| *id)
        .collect();
    let cast = Cast {
        tasks,
        launchers: &BTreeSet::new(),
        stoppers: &stoppers,
        restrictions: &vec![restriction; tasks.len()],
        allowed: &|_, _| true,
        bindings: &[],
        start_ns,
        elapsed_ns: end_ns - start_ns,
        cpu: &|os| machine.cpu_by_os_index(os),
    };
    let mut converted = events(&recording.records, &cast)?;
    count(&mut converted, recording, tasks, &cast);
    announce(&mut converted, &tasks.values().copied().collect());
    Ok(converted)
}

/// Tables that name a recording's counters too.
pub(crate) fn with_counters(mut tables: RunTables, recording: &Recording) -> RunTables {
    if let Some(counters) = &recording.counters {
        tables.counters = counters.names();
        tables.counted_per_stay = true;
    }
    tables
}

/// Puts what tasks counted among the events.
fn count(converted: &mut Converted, recording: &Recording, tasks: &BTreeMap<i32, TaskId>, cast: &Cast<'_>) {
    let Some(log) = &recording.counters else { return };
    for value in log.estimated() {
        let task = tasks.get(&value.thread).copied();
        let time_ns = value.time_ns.checked_sub(cast.start_ns).filter(|time_ns| *time_ns <= cast.elapsed_ns);
        if let (Some(task), Some(time_ns), Some(cpu)) = (task, time_ns, (cast.cpu)(value.cpu)) {
            let kind = EventKind::Counter { counter: value.counter, task, value: value.value };
            converted.events.push(Event { time_ns, cpu, kind });
        }
    }
    // Stable: a sample stays behind the switch of its instant.
    converted.events.sort_by_key(|event| event.time_ns);
}

/// Directory of what was recorded besides events.
const CONDITIONS: &str = "recorded";

#[derive(Serialize)]
struct Extras {
    schema: &'static str,
    /// How counters were had, and what could not be.
    counters: Vec<String>,
    /// Counters by group, and which part of the threads' time each group was read.
    groups: Vec<CounterGroup>,
    /// Memory nodes of the computer; 0 if page homes were not looked at.
    nodes: u32,
    page_homes: Vec<ProcessHomes>,
}

#[derive(Serialize)]
struct CounterGroup {
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_share: Option<f64>,
}

/// What was recorded besides events, as a document of the run directory.
fn extras(recording: &Recording) -> Option<Conditions> {
    let counters = recording.counters.as_ref();
    if counters.is_none() && recording.homes.is_empty() {
        return None;
    }
    let groups = counters.map_or(Vec::new(), |log| {
        let group = |(names, measured_share): (&Vec<String>, _)| CounterGroup { names: names.clone(), measured_share };
        log.groups.iter().zip(log.measured_shares()).map(group).collect()
    });
    let document = Extras {
        schema: "warmcore-recorded-1",
        counters: counters.map_or(Vec::new(), |log| log.sentences()),
        groups,
        nodes: recording.homes.nodes,
        page_homes: recording.homes.processes(),
    };
    let json = serde_json::to_string_pretty(&document).unwrap_or_default();
    Some(Conditions { directory: CONDITIONS, json })
}

/// What a reader must know of what was recorded besides the scheduler's events.
#[must_use]
pub fn notes_on_extras(recording: &Recording) -> Vec<String> {
    let counters = recording.counters.iter().flat_map(|counters| counters.sentences());
    counters.chain(recording.homes.sentences()).collect()
}

/// What is first heard of a task.
#[derive(Clone, Copy)]
enum First {
    /// It left a CPU: it was running when the recording began.
    Leaves(CpuId),
    /// It came onto a CPU without having been woken: it was queued.
    Comes(CpuId),
    /// Anything else, on this CPU: it slept.
    Other(CpuId),
    Forked,
}

/// Tasks that were there before the recording began are created at its beginning by nobody, and are queued or running from then on if
/// they were: every reader of events expects that.
fn announce(converted: &mut Converted, tasks: &BTreeSet<TaskId>) {
    let mut first: BTreeMap<TaskId, First> = BTreeMap::new();
    for event in &converted.events {
        let mut note = |task: TaskId, what: First| {
            if !task.is_idle() {
                first.entry(task).or_insert(what);
            }
        };
        match event.kind {
            EventKind::Switch { prev, next, .. } => {
                note(prev, First::Leaves(event.cpu));
                note(next, First::Comes(event.cpu));
            }
            EventKind::Fork { child, .. } => note(child, First::Forked),
            EventKind::Waking { task, target_cpu, .. } => note(task, First::Other(target_cpu)),
            EventKind::Migrate { task, from, .. } => note(task, First::Other(from)),
            EventKind::Wakeup { task, .. } | EventKind::Exit { task } => note(task, First::Other(event.cpu)),
            _ => {}
        }
    }
    let mut before: Vec<Event> = Vec::new();
    for task in tasks {
        let Some(what) = first.get(task) else { continue };
        let (cpu, queued, running) = match *what {
            First::Forked => continue,
            First::Leaves(cpu) => (cpu, true, true),
            First::Comes(cpu) => (cpu, true, false),
            First::Other(cpu) => (cpu, false, false),
        };
        converted.created_ns[task.index()].get_or_insert(0);
        let mut happens = |kind| before.push(Event { time_ns: 0, cpu, kind });
        happens(EventKind::Fork { parent: TaskId::IDLE, child: *task });
        if queued {
            happens(EventKind::Wakeup { task: *task, reason: None });
        }
        if running {
            happens(EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: *task });
        }
    }
    converted.events.splice(0..0, before);
}

/// CPU time of each task, ns.
pub(crate) fn cpu_times(converted: &Converted, tasks: usize) -> Vec<u64> {
    let mut cpu_ns = vec![0; tasks];
    let mut since: BTreeMap<CpuId, u64> = BTreeMap::new();
    for event in &converted.events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        if let Some(total) = cpu_ns.get_mut(prev.index()).filter(|_| !prev.is_idle()) {
            *total += event.time_ns - since.get(&event.cpu).copied().unwrap_or(0);
        }
        if !next.is_idle() {
            since.insert(event.cpu, event.time_ns);
        }
    }
    cpu_ns
}

fn outcome(recording: &Recording, workload: &Workload, converted: &Converted) -> Outcome {
    let (start, end) = recording.span_ns();
    let elapsed_ns = end - start;
    let cpu_ns = cpu_times(converted, workload.tasks.len());
    let tasks: Vec<TaskOutcome> = workload
        .tasks
        .iter()
        .enumerate()
        .map(|(index, task)| TaskOutcome {
            id: index as u32,
            name: task.name.clone(),
            role: task.role.clone(),
            application: workload.processes[task.process.index()].application,
            process: task.process.0,
            started_ns: converted.created_ns[index].unwrap_or(0),
            exited_ns: converted.exited_ns[index],
            cpu_time_ns: cpu_ns[index],
            progress_ns: cpu_ns[index],
            spin_ns: 0,
            smt_ns: 0,
            slept_ns: 0,
            memory: None,
        })
        .collect();
    let finished = tasks.iter().all(|task| task.exited_ns.is_some());
    let application = |name: &String| ApplicationOutcome {
        name: name.clone(),
        elapsed_ns,
        finished,
        cpu_time_ns: tasks.iter().map(|task| task.cpu_time_ns).sum(),
    };
    Outcome {
        end: if finished { End::AllExited } else { End::Stopped },
        elapsed_ns,
        warm_up_ns: 0,
        applications: workload.applications.iter().map(application).collect(),
        tasks,
        cpus: Vec::new(),
        recorders: Vec::new(),
        recorders_since_ns: Vec::new(),
        placement: None,
        background: Vec::new(),
        memory_solutions: (0, 0),
        engine_events: recording
            .records
            .iter()
            .filter(|record| !matches!(record.what, What::Numa { .. } | What::Call { .. }))
            .count() as u64,
    }
}
