//! A recording as a place: one run, which was made already, on whatever kernel, by whatever recorder. It answers a single request, so
//! that a recording becomes a run directory like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use warmcore_capture::convert::{Cast, Converted, events};
use warmcore_capture::homes::ProcessHomes;
use warmcore_capture::record::{NOT_RECORDED, NOT_RECORDED_NAME};
use warmcore_capture::{Recording, Thread, What};
use warmcore_kernel::Setup;
use warmcore_statistics::Design;
use warmcore_topology::{CpuId, Machine};
use warmcore_trace::{
    ApplicationOutcome, End, Event, EventKind, Histogram, Outcome, PrevState, RunTables, Slice, SliceBuilder, TaskId,
    TaskOutcome,
};
use warmcore_workload::Workload;

use crate::beside;
use crate::place::{BatchConduct, Conditions, Place, PlaceError, PlaceKind, Report, Request, Run, Take, Trouble};

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
                 events do not show it. Nothing in this page is simulated.",
    open: None,
    past: |table| {
        let origin = table.and_then(|table| table.clone().try_into::<Origin>().ok());
        let missing =
            || PlaceError::new(Trouble::Unfit, "warmcore::place", "it does not say what was recorded", ADVICE);
        Ok(Arc::new(Recorded { origin: origin.ok_or_else(missing)?, made: None, samples: Vec::new() }))
    },
};

const ADVICE: &str = "read the recording again";

/// What a reader of a recording of switches alone must know.
pub const NO_WAKEUPS: &str = "the recording has no wakeups (sched_waking, sched_wakeup): how long threads waited for a CPU after them, and whether CPUs were \
                              idle meanwhile, are not known";
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
    /// What each recorder of the workload has: when each sample began, and its length, ns.
    samples: Vec<Vec<(u64, u64)>>,
}

impl Recorded {
    /// One whose threads are these tasks of the workload that is asked for.
    pub fn new(recording: Recording, tasks: BTreeMap<i32, TaskId>) -> Self {
        let (events_lost, more) = recording.events_lost();
        let mut notes = recording.notes.clone();
        notes.extend(notes_on_extras(&recording));
        if more {
            notes.push("the recorder lost more events than it counted".into());
        }
        if !recording.has_wakeups() {
            notes.push(NO_WAKEUPS.into());
        } else if !recording.has_wakers() {
            notes
                .push("the recording has no sched_waking events: wakeup latencies begin when a task was queued".into());
        }
        let origin = Origin { source: recording.source.clone(), clock: recording.clock.clone(), events_lost, notes };
        Self { origin, made: Some((recording, tasks)), samples: Vec::new() }
    }

    /// The same, with what the workload's recorders have, by recorder: when each sample began, from the start, and its length, ns.
    #[must_use]
    pub fn with_samples(self, samples: Vec<Vec<(u64, u64)>>) -> Self {
        Self { samples, ..self }
    }

    fn sampled(&self, outcome: Outcome) -> Outcome {
        let recorder = |samples: &Vec<(u64, u64)>| {
            let mut histogram = Histogram::default();
            samples.iter().for_each(|(_, length_ns)| histogram.record(*length_ns));
            histogram
        };
        let since = |samples: &Vec<(u64, u64)>| samples.iter().map(|(began_ns, _)| *began_ns).min().unwrap_or(u64::MAX);
        Outcome {
            recorders: self.samples.iter().map(recorder).collect(),
            recorders_since_ns: self.samples.iter().map(since).collect(),
            ..outcome
        }
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

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        if self.made.is_some() { Ok(self) } else { Err(Self::refuse("what was recorded cannot be run again")) }
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        match requests {
            [_] => Ok(()),
            _ => Err(Self::refuse("a recording is one run under one scheduler")),
        }
    }

    fn run(&self, requests: &[Request<'_>], _conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let [request] = requests else { return self.check(requests) };
        let (recording, tasks) = self.made.as_ref().ok_or_else(|| Self::refuse("the recording is not here"))?;
        // Whether more was wanted does not matter after the only run.
        let _: ControlFlow<()> = match Setup::new(request.machine, request.workload, request.seed) {
            Err(error) => take(0, Err(error.into())),
            Ok(setup) => {
                let span = span_ns(recording, tasks);
                let converted = convert(recording, tasks, request.machine, span, 0);
                let mut converted = converted.map_err(Self::refuse)?;
                let outcome = outcome(recording, request.workload, &converted, span.1 - span.0);
                let outcome = outcome.map_err(Self::refuse)?;
                let outcome = self.sampled(outcome);
                let tables = of_recording(setup.run_tables(Vec::new()), recording, tasks, &converted);
                let foreign_run_ns = converted.foreign_run_ns();
                let parts = in_parts(std::mem::take(&mut converted.events));
                let run = Run::new(&tables, 0.0, |sink| {
                    if let Some(sink) = sink {
                        // Each is let go once it is sent: what the sink makes of them grows meanwhile.
                        for part in parts {
                            for batch in part.chunks(BATCH) {
                                sink.events(batch).map_err(warmcore_kernel::SimulationError::Sink)?;
                            }
                        }
                    }
                    Ok(Report {
                        events_lost: self.origin.events_lost,
                        notes: self.origin.notes.clone(),
                        foreign_run_ns,
                        conditions: extras(recording),
                        ..Report::new(outcome)
                    })
                });
                take(0, Ok(run))
            }
        };
        Ok(())
    }
}

/// Events in parts, each of which is a number of batches but for the last one, and can be let go alone.
fn in_parts(mut events: Vec<Event>) -> Vec<Vec<Event>> {
    const PART: usize = 16 * BATCH;
    let mut parts = Vec::with_capacity(events.len() / PART + 1);
    while events.len() > PART {
        parts.push(events.split_off((events.len() - 1) / PART * PART));
        events.shrink_to_fit();
    }
    parts.push(events);
    parts.reverse();
    parts
}

/// From when to when the run goes, on the recorder's clock: to the end of the recording, or until the last of the run's threads has exited and
/// left its CPU. What the recorder does afterwards, until it stops, is no part of the run.
fn span_ns(recording: &Recording, tasks: &BTreeMap<i32, TaskId>) -> (u64, u64) {
    let (start_ns, end_ns) = recording.span_ns();
    let mut exited = BTreeSet::new();
    let mut last_ns = start_ns;
    for record in recording.in_order() {
        match record.what {
            What::Exit { thread } if tasks.contains_key(&thread) => {
                exited.insert(thread);
                last_ns = record.time_ns;
            }
            What::Switch { prev, state: PrevState::Dead, .. } if exited.contains(&prev) => last_ns = record.time_ns,
            // A number is used again.
            What::Fork { child, .. } => {
                exited.remove(&child);
            }
            _ => {}
        }
    }
    (start_ns, if !tasks.is_empty() && exited.len() == tasks.len() { last_ns } else { end_ns })
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
    let mut converted = events(recording, &cast)?;
    count(&mut converted, recording, tasks, &cast);
    count_interrupts(&mut converted, recording);
    announce(&mut converted, &tasks.values().copied().collect());
    Ok(converted)
}

/// Tables that name a recording's threads and counters too.
pub(crate) fn of_recording(
    mut tables: RunTables,
    recording: &Recording,
    tasks: &BTreeMap<i32, TaskId>,
    converted: &Converted,
) -> RunTables {
    beside::name_threads(&mut tables, tasks, converted, known(recording));
    if let Some(counters) = &recording.counters {
        tables.counters = counters.names();
        tables.counted_per_stay = true;
    }
    tables.counters.extend((recording.tally().interrupts > 0).then(|| INTERRUPTS.to_owned()));
    tables
}

/// What a recording tells of a thread.
pub(crate) fn known(recording: &Recording) -> impl Fn(i32) -> Thread + '_ {
    |thread| match thread {
        NOT_RECORDED => Thread { name: NOT_RECORDED_NAME.into(), process: None },
        thread => recording.threads.get(&thread).cloned().unwrap_or_default(),
    }
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

/// The counter of what interrupts and softirqs took, ns: behind the recorded ones, where there are any of them.
const INTERRUPTS: &str = "interrupt_ns";

/// Puts what interrupts took among the events of each CPU, so that it is shown over time.
fn count_interrupts(converted: &mut Converted, recording: &Recording) {
    let counter = recording.counters.as_ref().map_or(0, |log| log.names().len() as u32);
    let of = |event: &Event| match event.kind {
        EventKind::Overhead { duration_ns: value, .. } => {
            Some(Event { kind: EventKind::Counter { counter, task: TaskId::IDLE, value }, ..*event })
        }
        _ => None,
    };
    let counted: Vec<Event> = converted.events.iter().filter_map(of).collect();
    converted.events.extend(counted);
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
    groups: Vec<RecordedGroup>,
    /// Memory nodes of the computer; 0 if page homes were not looked at.
    nodes: u32,
    page_homes: Vec<ProcessHomes>,
}

#[derive(Serialize)]
struct RecordedGroup {
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
        let group = |(names, measured_share): (&Vec<String>, _)| RecordedGroup { names: names.clone(), measured_share };
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
pub fn notes_on_extras(recording: &Recording) -> Vec<String> {
    let counters = recording.counters.iter().flat_map(|counters| counters.sentences());
    counters.chain(recording.homes.sentences()).collect()
}

/// Tasks that left a CPU before anything else was heard of them or of who that CPU runs were running when the recording began: their events
/// begin with that. What the others did before they were first heard of, nobody knows.
fn announce(converted: &mut Converted, tasks: &BTreeSet<TaskId>) {
    // The CPU that a task was running on, if it was.
    let mut first: BTreeMap<TaskId, Option<CpuId>> = BTreeMap::new();
    // CPUs that had somebody else before.
    let mut taken: BTreeSet<CpuId> = BTreeSet::new();
    for event in &converted.events {
        let mut note = |task: TaskId, ran_on: Option<CpuId>| {
            if !task.is_idle() {
                first.entry(task).or_insert(ran_on);
            }
        };
        match event.kind {
            EventKind::Switch { prev, next, .. } => {
                note(prev, (!taken.contains(&event.cpu)).then_some(event.cpu));
                note(next, None);
                taken.insert(event.cpu);
            }
            EventKind::Foreign { .. } => {
                taken.insert(event.cpu);
            }
            EventKind::Fork { child: task, .. }
            | EventKind::Waking { task, .. }
            | EventKind::Migrate { task, .. }
            | EventKind::Wakeup { task, .. }
            | EventKind::Exit { task } => note(task, None),
            _ => {}
        }
    }
    let mut before: Vec<Event> = Vec::new();
    for (task, ran_on) in first.into_iter().filter(|(task, _)| tasks.contains(task)) {
        converted.created_ns[task.index()].get_or_insert(0);
        let kind = EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Idle, next: task };
        before.extend(ran_on.map(|cpu| Event { time_ns: 0, cpu, kind }));
    }
    converted.events.splice(0..0, before);
}

/// CPU time of each task, ns: of the stays whose beginning is known, as metrics count them.
pub(crate) fn cpu_times(converted: &Converted, tasks: usize, end_ns: u64) -> Result<Vec<u64>, String> {
    let mut cpu_ns = vec![0; tasks];
    let mut stays = SliceBuilder::new();
    let mut ran = |stay: Slice| {
        if let Some(total) = cpu_ns.get_mut(stay.task.index()) {
            *total += stay.end_ns - stay.start_ns;
        }
    };
    for event in &converted.events {
        stays.push(event).map_err(|error| error.to_string())?.into_iter().for_each(&mut ran);
    }
    stays.open_slices(end_ns).for_each(ran);
    Ok(cpu_ns)
}

fn outcome(
    recording: &Recording,
    workload: &Workload,
    converted: &Converted,
    elapsed_ns: u64,
) -> Result<Outcome, String> {
    let cpu_ns = cpu_times(converted, workload.tasks.len(), elapsed_ns)?;
    let tasks: Vec<TaskOutcome> = workload
        .tasks
        .iter()
        .enumerate()
        .map(|(index, task)| TaskOutcome {
            application: workload.processes[task.process.index()].application,
            process: task.process.0,
            started_ns: converted.created_ns[index].unwrap_or(0),
            exited_ns: converted.exited_ns[index],
            ..TaskOutcome::new(index as u32, task.name.clone(), task.role.clone(), cpu_ns[index])
        })
        .collect();
    let finished = tasks.iter().all(|task| task.exited_ns.is_some());
    let application = |name: &String| ApplicationOutcome {
        name: name.clone(),
        elapsed_ns,
        finished,
        cpu_time_ns: tasks.iter().map(|task| task.cpu_time_ns).sum(),
    };
    let end = if finished { End::AllExited } else { End::Stopped };
    Ok(Outcome {
        applications: workload.applications.iter().map(application).collect(),
        tasks,
        background: beside::by_process(&converted.foreign, known(recording)),
        engine_events: recording.tally().of_scheduler,
        ..Outcome::new(end, elapsed_ns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_capture::Context;
    use warmcore_capture::record::Record;
    use warmcore_trace::Sink;
    use warmcore_trace::metrics::{Counters, Start};

    /// Thread 10 runs for a tenth of a second on CPU 0, and is woken there beside `yes` (20), which has both CPUs (20 and 21) else; CPU 1 idles
    /// for the last tenth.
    fn recording() -> Recording {
        let switch = |ms: u64, cpu, prev, state, next| Record {
            time_ns: ms * 1_000_000,
            cpu,
            by: prev,
            context: Context::Thread,
            what: What::Switch { prev, state, next, uninterruptible: false },
        };
        let waking =
            |ms: u64, what| Record { time_ns: ms * 1_000_000, cpu: 0, by: 20, context: Context::HardInterrupt, what };
        let records = vec![
            waking(0, What::Waking { thread: 30, target_cpu: 0 }),
            waking(100, What::Waking { thread: 10, target_cpu: 0 }),
            waking(100, What::Wakeup { thread: 10, target_cpu: 0 }),
            switch(200, 0, 20, PrevState::Runnable, 10),
            switch(300, 0, 10, PrevState::Sleeping, 20),
            switch(900, 1, 21, PrevState::Sleeping, 0),
            waking(1000, What::Waking { thread: 30, target_cpu: 0 }),
        ];
        let mut recording = Recording { records, ..Recording::default() };
        for (thread, name) in [(10, "app"), (20, "yes"), (21, "yes")] {
            recording.name(thread, name);
            recording.process(thread, thread);
        }
        recording.finished()
    }

    #[test]
    fn a_run_ends_when_the_last_of_its_threads_has_left_and_else_with_the_recording() {
        let mut recording = recording();
        let at = |ms: u64, what| Record { time_ns: ms * 1_000_000, cpu: 0, by: 10, context: Context::Thread, what };
        let leaves = What::Switch { prev: 10, state: PrevState::Dead, next: 20, uninterruptible: false };
        recording.records.extend([at(400, What::Exit { thread: 10 }), at(401, leaves)]);
        let recording = recording.finished();
        let tasks = |threads: &[i32]| threads.iter().zip(0..).map(|(thread, task)| (*thread, TaskId(task))).collect();
        assert_eq!(span_ns(&recording, &tasks(&[10])), (0, 401_000_000));
        assert_eq!(span_ns(&recording, &tasks(&[10, 20])), (0, 1_000_000_000), "20 has not exited");
        assert_eq!(span_ns(&recording, &tasks(&[])), (0, 1_000_000_000));
        let mut again = recording.clone();
        again.records.push(at(500, What::Fork { parent: 20, child: 10 }));
        assert_eq!(span_ns(&again.finished(), &tasks(&[10])), (0, 1_000_000_000), "the number is another thread's now");
    }

    #[test]
    fn parts_of_events_have_the_same_batches() {
        let event = |time_ns| Event { time_ns, cpu: CpuId(0), kind: EventKind::Exit { task: TaskId(0) } };
        for count in [0, 1, BATCH as u64, 16 * BATCH as u64, 16 * BATCH as u64 + 1, 40 * BATCH as u64 - 7] {
            let events: Vec<Event> = (0..count).map(event).collect();
            let parts = in_parts(events.clone());
            assert!(parts.iter().flat_map(|part| part.chunks(BATCH)).eq(events.chunks(BATCH)), "{count}");
        }
    }

    #[test]
    fn what_others_run_is_theirs_and_neither_idle_nor_a_reason_to_run_there() {
        let (recording, machine) = (recording(), warmcore_topology::resolve("1s1n1l2c1t").unwrap());
        let tasks = BTreeMap::from([(10, TaskId(0))]);
        let converted = convert(&recording, &tasks, &machine, recording.span_ns(), 0).unwrap();
        let tables = of_recording(RunTables::default(), &recording, &tasks, &converted);
        let mut counters = Counters::new(&machine, &tables, Start::Idle { time_ns: 0 });
        counters.events(&converted.events).unwrap();
        let totals = counters.metrics(1_000_000_000, &tables, &[]).totals;
        let ms = |ns: u64| ns / 1_000_000;
        assert_eq!((ms(totals.busy_ns), ms(totals.foreign_ns), ms(totals.idle_ns)), (100, 1800, 100));
        assert_eq!(totals.work_conservation_violation_ns, 0, "it waited for a CPU that others had");
        assert_eq!((tables.threads[0].thread, tables.foreign[0].label().as_str()), (10, "yes-20"));
        let rows = beside::by_process(&converted.foreign, known(&recording));
        let rows: Vec<_> = rows.iter().map(|row| (row.process, ms(row.cpu_time_ns), row.by_cpu_ns.len())).collect();
        assert_eq!(rows, [(Some(20), 900, 1), (Some(21), 900, 1)]);
    }

    #[test]
    fn cpu_time_is_run_time_and_a_stay_without_a_beginning_counts_from_no_earlier_time() {
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let tasks = BTreeMap::from([(10, TaskId(0)), (11, TaskId(1)), (12, TaskId(2))]);
        let switch = |time_ns: u64, cpu, prev, next| Record {
            time_ns: 1000 + time_ns,
            cpu,
            by: prev,
            context: Context::Thread,
            what: What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false },
        };
        // Thread 10 runs at the start. Switches from the foreign thread 69 to 11 and to 12, which was not heard of before, are missing.
        let records = vec![
            switch(0, 1, 0, 68),
            switch(100, 0, 10, 11),
            switch(150, 0, 11, 69),
            switch(400, 0, 11, 10),
            switch(500, 0, 10, 11),
            switch(520, 1, 12, 0),
            switch(600, 0, 11, 10),
        ];
        let recording = Recording { records, end_ns: Some(1700), ..Recording::default() }.finished();
        let converted = convert(&recording, &tasks, &machine, recording.span_ns(), 0).unwrap();
        let cpu_ns = cpu_times(&converted, 3, 700).unwrap();
        assert_eq!(cpu_ns, [100 + 100 + 100, 50 + 100, 0]);
        let mut counters = Counters::new(&machine, &RunTables::default(), Start::Idle { time_ns: 0 });
        counters.events(&converted.events).unwrap();
        let metrics = counters.metrics(700, &RunTables::default(), &[]);
        assert_eq!(metrics.tasks.iter().map(|task| task.run_ns).collect::<Vec<_>>(), cpu_ns);
        assert!(recording.notes[0].starts_with("2 switches between threads are missing"), "{}", recording.notes[0]);
    }

    /// CPU 0 has no records before 800 ms, when thread 10 is there; it leaves at 900. CPU 1 is idle.
    #[test]
    fn before_its_first_record_a_cpu_that_begins_late_was_neither_idle_nor_the_first_threads() {
        let ms = |ms: u64| ms * 1_000_000;
        let record = |at: u64, cpu, by, what| Record { time_ns: ms(at), cpu, by, context: Context::Thread, what };
        let switch = |at, cpu, prev, next| {
            record(at, cpu, prev, What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false })
        };
        let waking = record(800, 0, 10, What::Waking { thread: 30, target_cpu: 0 });
        let records = vec![switch(0, 1, 21, 0), waking, switch(900, 0, 10, 0), switch(1000, 1, 0, 21)];
        let lost = vec![warmcore_capture::Loss { cpu: Some(0), before_ns: Some(ms(800)), events: Some(7) }];
        let recording = Recording { records, lost, ..Recording::default() }.finished();
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let tasks = BTreeMap::from([(10, TaskId(0))]);
        let converted = convert(&recording, &tasks, &machine, recording.span_ns(), 0).unwrap();
        assert_eq!(cpu_times(&converted, 1, ms(1000)).unwrap(), [ms(100)]);
        let tables = of_recording(RunTables::default(), &recording, &tasks, &converted);
        let mut counters = Counters::new(&machine, &tables, Start::Idle { time_ns: 0 });
        counters.events(&converted.events).unwrap();
        let totals = counters.metrics(ms(1000), &tables, &[]).totals;
        assert_eq!((totals.busy_ns, totals.foreign_ns, totals.idle_ns), (ms(100), ms(800), ms(1100)));
        let rows = beside::by_process(&converted.foreign, known(&recording));
        assert_eq!((rows[0].name.as_str(), rows[0].cpu_time_ns), ("not recorded", ms(800)));
    }
}
