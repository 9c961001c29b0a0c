//! Recordings: what a kernel's scheduler did, from whatever recorder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pyo3::prelude::*;
use warmcore_capture::{PagedRecords, Record, Recording as Records, What};
use warmcore_lab::directory::RECORDING;
use warmcore_lab::files::source;
use warmcore_lab::table::Values;
use warmcore_replay::history::{Histories, histories};
use warmcore_replay::{Graph, Groups, Selection};
use warmcore_report::run::{ReportOptions, Run};
use warmcore_report::svg::escape;
use warmcore_search::replayed::{self, ChosenThreads};
use warmcore_topology::Machine as Topology;

use crate::arrow::Table;
use crate::asked::Texts;
use crate::attended::{Watch, attended};
use crate::failure::{Trouble, warn};
use crate::machine::MachineLike;
use crate::workload::{Workload, WorkloadText};

/// A recording of a kernel's scheduler: what threads did, who woke whom.
///
/// `path` is a file of another recorder (trace.dat, perf.data, Perfetto, SchedViz, text of ftrace), found by its content, or a run directory with
/// events of a trial; `scheduler` names one of a run directory's, the first if None. `processes`, `descendants_of` (process ids) and `names`
/// choose threads: one is kept if any of them keeps it; without them all that are not the kernel's, and of a run its own. `recorded_on` is
/// the machine that it was made on, whose kernel's own work is taken off.
///
/// Raises WarmcoreError that names byte or line if it cannot be read, or if no thread is chosen; warns with WarmcoreWarning of what was lost.
#[pyclass(frozen, module = "warmcore")]
pub struct Recording {
    path: PathBuf,
    name: String,
    records: Records,
    chosen: BTreeSet<i32>,
    histories: Histories,
    machine: Option<Topology>,
    notes: Vec<String>,
    /// Its replay in rt-app's format, and what is to be known of that, once somebody has asked for it.
    replay: OnceLock<(String, Vec<String>)>,
}

/// What is read of a recording before threads are chosen.
struct Read {
    records: Records,
    /// Threads that were a run's tasks.
    own: BTreeSet<i32>,
    machine: Option<Topology>,
    notes: Vec<String>,
}

fn of_file(path: &Path) -> Result<Records, Trouble> {
    let file = source(path).map_err(|error| Trouble::advised(&error, Some(error.advice())))?;
    warmcore_capture::read::open(file).map_err(|error| Trouble::new(format!("{}: {error}", path.display())))
}

fn of_run(path: &Path, scheduler: Option<&str>, watch: &Watch) -> Result<Read, Trouble> {
    let run = Run::load(path, &ReportOptions::default(), &watch.stop)?;
    let labels = || run.scenes.iter().map(|scene| scene.scheduler.as_str()).collect::<Vec<_>>().join(", ");
    let index = match scheduler {
        None => 0,
        Some(label) => run.scenes.iter().position(|scene| scene.scheduler == label).ok_or_else(|| {
            Trouble::advised(format!("the run has no scheduler {label}"), Some(format!("it has {}", labels())))
        })?,
    };
    let Some(scene) = run.scenes.get(index) else {
        let message = format!("{}: there are no events of a trial", path.display());
        return Err(Trouble::advised(message, Some("a run on a real kernel keeps its events with `--trace full`")));
    };
    let machine = run.disk.experiment.machine_of(index).value.clone();
    let kept = path.join(RECORDING);
    let (records, own) = if kept.is_file() && !scene.tables.threads.is_empty() {
        (of_file(&kept)?, scene.tables.threads.iter().map(|known| known.thread).collect())
    } else {
        let events = run.events_into(index, Vec::new(), &watch.stop)?;
        let trial = run.disk.trials[index].iter().find(|trial| trial.trial == scene.trial);
        let lost_and_end = (trial.map_or(0, |trial| trial.events_lost), scene.end_ns);
        warmcore_replay::events::recording(events, &scene.tables, &scene.tasks, &machine, lost_and_end)
    };
    Ok(Read { records, own, machine: Some(machine), notes: run.notes })
}

fn read(
    path: PathBuf,
    selection: &Selection,
    scheduler: Option<&str>,
    recorded_on: Option<Topology>,
    watch: &Watch,
) -> Result<Recording, Trouble> {
    let Read { records, own, machine, mut notes } = if path.is_dir() {
        of_run(&path, scheduler, watch)?
    } else if scheduler.is_some() {
        return Err(Trouble::advised(
            "scheduler is about run directories",
            Some("leave it out: a file holds one recording"),
        ));
    } else {
        let records = of_file(&path)?;
        let (machine, notes) = match replayed::own_machine(&records) {
            Ok(machine) => (machine, Vec::new()),
            Err(reason) => (None, vec![format!("its machine is not used: {reason}")]),
        };
        Read { records, own: BTreeSet::new(), machine, notes }
    };
    notes.extend(replayed::notes(&records));
    let chosen = if *selection == Selection::default() && !own.is_empty() {
        own
    } else {
        let advice = "processes, descendants_of and names choose threads; leave them out for all";
        let chosen = selection.threads(&records);
        chosen.map_err(|error| Trouble::advised(format!("{}: {error}", path.display()), Some(advice)))?
    };
    let machine = recorded_on.or(machine);
    let histories = histories(&records, &chosen, machine.as_ref());
    let name = path.file_stem().map_or("recording".into(), |stem| stem.to_string_lossy().into_owned());
    let recording = Recording { path, name, records, chosen, histories, machine, notes, replay: OnceLock::new() };
    recording.whole()?;
    Ok(recording)
}

impl Recording {
    /// Whether all records that stay in the file could be read.
    fn whole(&self) -> Result<(), Trouble> {
        match self.records.pages.as_ref().and_then(PagedRecords::fault) {
            None => Ok(()),
            Some(reason) => {
                let message = format!("the recording was changed: {reason}");
                Err(Trouble::advised(message, Some("leave its file alone while it is read")))
            }
        }
    }

    /// Its replay, and what is to be known of that.
    fn replayed(&self, py: Python<'_>) -> PyResult<&(String, Vec<String>)> {
        if let Some(made) = self.replay.get() {
            return Ok(made);
        }
        let (made, fault) = attended(py, None, |watch| {
            let machine = self.machine.as_ref();
            let of = ChosenThreads {
                name: &self.name,
                recording: &self.records,
                chosen: &self.chosen,
                histories: &self.histories,
                overheads: replayed::overheads(machine),
                machine,
            };
            let (made, fault) = replayed::tried(&of, &watch.stop)?;
            if made.workload.tasks.is_empty() {
                let message = format!("{}: none of its threads ran", self.path.display());
                return Err(Trouble::advised(message, Some("record for longer, or choose other threads")));
            }
            let text = warmcore_workload::to_rtapp(&made.workload).map_err(Trouble::new)?;
            Ok(((text, made.fidelity.sentences()), fault))
        })?;
        warn(py, &fault)?;
        Ok(self.replay.get_or_init(|| made))
    }

    /// Its replay, as a workload is asked for.
    pub fn asked(&self, py: Python<'_>) -> PyResult<WorkloadText> {
        let (text, content) = (self.path.to_string_lossy().into_owned(), Some(self.replayed(py)?.0.clone()));
        Ok(WorkloadText { text, content, ..WorkloadText::default() })
    }

    /// Of the recorder's clock, from its start.
    fn since_start(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.records.span_ns().0)
    }
}

/// The kernel's name of an event, the thread that it is about beside the running one, and the CPU.
fn in_columns(record: &Record) -> (&'static str, Option<i32>, Option<u32>) {
    match record.what {
        What::Switch { next, .. } => ("sched_switch", Some(next), None),
        What::Waking { thread, target_cpu } => ("sched_waking", Some(thread), Some(target_cpu)),
        What::Wakeup { thread, target_cpu } => ("sched_wakeup", Some(thread), Some(target_cpu)),
        What::Migrate { thread, to, .. } => ("sched_migrate_task", Some(thread), Some(to)),
        What::Fork { child, .. } => ("sched_process_fork", Some(child), None),
        What::Exec { thread } => ("sched_process_exec", Some(thread), None),
        What::Exit { thread } => ("sched_process_exit", Some(thread), None),
        What::Numa { thread } => ("sched_move_numa", Some(thread), None),
        What::Hotplug { target_cpu, .. } => ("cpuhp_enter", None, Some(target_cpu)),
        What::Interrupt { soft: false, begins: true } => ("irq_handler_entry", None, None),
        What::Interrupt { soft: false, begins: false } => ("irq_handler_exit", None, None),
        What::Interrupt { soft: true, begins: true } => ("softirq_entry", None, None),
        What::Interrupt { soft: true, begins: false } => ("softirq_exit", None, None),
        What::Call { .. } => ("sys_enter", None, None),
        What::Ready { .. } => ("sk_data_ready", None, None),
        What::Received { .. } => ("sock_recv_length", None, None),
    }
}

#[pymethods]
impl Recording {
    #[new]
    #[pyo3(signature = (path, *, processes=None, descendants_of=None, names=None, scheduler=None, recorded_on=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        processes: Option<Vec<i32>>,
        descendants_of: Option<Vec<i32>>,
        names: Option<Texts>,
        scheduler: Option<&str>,
        recorded_on: Option<MachineLike<'_>>,
    ) -> PyResult<Self> {
        let selection = Selection {
            processes: processes.unwrap_or_default(),
            descendants_of: descendants_of.unwrap_or_default(),
            names: names.unwrap_or_default().list(),
        };
        let machine = recorded_on.map(|machine| machine.machine()).transpose()?;
        let machine = machine.map(|(machine, _)| machine.value);
        let recording = attended(py, None, |watch| read(path, &selection, scheduler, machine, watch))?;
        warn(py, &recording.notes)?;
        Ok(recording)
    }

    /// The file's name without its ending.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Number of CPUs: all that have records.
    #[getter]
    fn cpu_count(&self) -> u32 {
        self.records.cpus
    }

    /// Length, ns.
    #[getter]
    fn span_ns(&self) -> u64 {
        self.histories.span_ns
    }

    /// What was lost, and what else the reader of any result must know.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// The chosen threads: `thread` (its id), `process` (None where that is not known), `name`, `cpu_time_ns`, and from the recording's start
    /// `first_ns`, when it was first heard of, and `last_ns`, when it last left its CPU.
    #[getter]
    fn threads(&self) -> PyResult<Table> {
        let of: Vec<_> = self.histories.threads.iter().collect();
        let number = |value: Option<i32>| value.map(f64::from);
        Table::new(vec![
            ("thread".into(), Values::Integer(of.iter().map(|(thread, _)| u64::from(thread.unsigned_abs())).collect())),
            ("process".into(), Values::Number(of.iter().map(|(_, history)| number(history.process)).collect())),
            ("name".into(), Values::Text(of.iter().map(|(_, history)| history.name.clone()).collect())),
            ("cpu_time_ns".into(), Values::Integer(of.iter().map(|(_, history)| history.cpu_ns).collect())),
            ("first_ns".into(), Values::Integer(of.iter().map(|(_, history)| history.start_ns).collect())),
            ("last_ns".into(), Values::Integer(of.iter().map(|(_, history)| history.end_ns).collect())),
        ])
    }

    /// Every event, in order: `time_ns` from the recording's start, the `cpu` and the `thread` that ran there (0: none), the kernel's name of the
    /// `event`, and `about`, the thread that comes, is woken, moved or created, on `about_cpu` (None where there is none).
    #[getter]
    fn events(&self, py: Python<'_>) -> PyResult<Table> {
        let columns = py.detach(|| {
            let (mut times, mut cpus, mut threads) = (Vec::new(), Vec::new(), Vec::new());
            let (mut events, mut about, mut about_cpus) = (Vec::new(), Vec::new(), Vec::new());
            for record in self.records.in_order() {
                let (event, thread, cpu) = in_columns(&record);
                times.push(self.since_start(record.time_ns));
                cpus.push(u64::from(record.cpu));
                threads.push(u64::from(record.by.max(0).unsigned_abs()));
                events.push(event.to_owned());
                about.push(thread.map(f64::from));
                about_cpus.push(cpu.map(f64::from));
            }
            vec![
                ("time_ns".into(), Values::Integer(times)),
                ("cpu".into(), Values::Integer(cpus)),
                ("thread".into(), Values::Integer(threads)),
                ("event".into(), Values::Text(events)),
                ("about".into(), Values::Number(about)),
                ("about_cpu".into(), Values::Number(about_cpus)),
            ]
        });
        self.whole()?;
        Table::new(columns)
    }

    /// Which of the threads belong together, by who wakes whom: `thread`, its `name` and its `group`, from 1 on (None: it is alone). Without
    /// `sched_waking` in the recording all are alone.
    #[getter]
    fn groups(&self, py: Python<'_>) -> PyResult<Table> {
        let groups = py.detach(|| Groups::of(&Graph::of(&self.records, &self.chosen, &self.histories)));
        self.whole()?;
        let grouped = (1_u32..).zip(&groups.groups);
        let grouped = grouped.flat_map(|(group, of)| of.threads.iter().map(move |thread| (*thread, Some(group))));
        let all: Vec<(i32, Option<u32>)> = grouped.chain(groups.alone.iter().map(|thread| (*thread, None))).collect();
        let name = |thread: &i32| self.histories.threads.get(thread).map_or_else(String::new, |of| of.name.clone());
        Table::new(vec![
            (
                "thread".into(),
                Values::Integer(all.iter().map(|(thread, _)| u64::from(thread.unsigned_abs())).collect()),
            ),
            ("name".into(), Values::Text(all.iter().map(|(thread, _)| name(thread)).collect())),
            ("group".into(), Values::Number(all.iter().map(|(_, group)| group.map(f64::from)).collect())),
        ])
    }

    /// A workload that replays the threads: their waits follow from the schedule, not from the recorded times. The arguments are those of
    /// `Workload`; where none is needed, a recording is a workload itself. It is tried once, the first time; `fidelity` says what it is made of.
    ///
    /// Raises WarmcoreError if none of the threads ran.
    #[pyo3(signature = (*, profiles=None, assume_profile=None, aggregate=None, strict=false))]
    fn workload(
        &self,
        py: Python<'_>,
        profiles: Option<PathBuf>,
        assume_profile: Option<String>,
        aggregate: Option<Texts>,
        strict: bool,
    ) -> PyResult<Workload> {
        let aggregate = aggregate.unwrap_or_default().list();
        Ok(Workload::of(WorkloadText { profiles, assume_profile, aggregate, strict, ..self.asked(py)? })?)
    }

    /// What the replay is made of, and what may make it another workload than what was recorded, a sentence each.
    #[getter]
    fn fidelity(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.replayed(py)?.1.clone())
    }

    fn __repr__(&self) -> String {
        let (path, threads, cpus) = (self.path.display(), self.chosen.len(), self.records.cpus);
        format!("<warmcore.Recording {path}: {threads} threads, {cpus} CPUs, {:.3} s>", self.span_ns() as f64 / 1e9)
    }

    fn _repr_html_(&self) -> PyResult<String> {
        let notes = self.notes.iter().map(|note| format!("<p>{}</p>\n", escape(note)));
        let title = escape(self.__repr__().trim_matches(['<', '>']));
        Ok(format!("<p><b>{title}</b></p>\n{}{}", self.threads()?.html(), notes.collect::<String>()))
    }
}
