//! A run with everything a report shows: the verdict from its directory, and one representative trial per scheduler
//! looked at closely.
//!
//! The events of that trial come from the run's own tables where it kept them. Otherwise the trial is simulated once more: it
//! is a function of the run's record, so it is the same trial, and that is checked. What the scheduler ranked tasks by is sampled
//! then, too, if the tables are without it. A run on a real kernel has its tables or no timeline. It is the same trial number under every
//! scheduler, so that what is side by side has the same seed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use warmcore_lab::experiment::{Experiment, ExperimentRecord};
use warmcore_lab::making::{TrialError, rerun_trial};
use warmcore_lab::reading::{ReadError, RunOnDisk};
use warmcore_options::RunOptions;
use warmcore_statistics::Sample;
use warmcore_topology::{Machine, VirtualLlcs};
use warmcore_trace::metrics::{Counters, Metrics, Start};
use warmcore_trace::schedstat::{CpuLines, Schedstat};
use warmcore_trace::{Event, RunTables, Sink, StoreError, StoreReader, TaskInfo, Tee};

use crate::event_lines::EventLines;
use crate::history::{Form, Subject, TimeHistory};
use crate::perfetto::PerfettoWriter;
use crate::scene::{Limits, Recorder, Recording, Scene};
use crate::scores::ScoreTracks;

/// What a guest's kernel counted between its first and its last sample.
fn samples(text: &str) -> Result<Option<Schedstat>, String> {
    #[derive(Deserialize)]
    struct Sample {
        texts: Vec<(String, String)>,
    }
    #[derive(Deserialize)]
    struct RunFacts {
        samples: Vec<Sample>,
    }
    let facts: RunFacts = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let all = facts.samples.iter().flat_map(|sample| &sample.texts);
    let read: Vec<&String> = all.filter(|(path, _)| path == "/proc/schedstat").map(|(_, text)| text).collect();
    let (Some(first), Some(last)) = (read.first(), read.last()) else { return Ok(None) };
    let parse = |text: &str| Schedstat::parse(text).map_err(|error| error.to_string());
    Ok(Some(parse(last)?.since(&parse(first)?)))
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ReportError {
    /// The run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("trial {trial} of {scheduler} cannot be simulated again: {source}")]
    Rerun { scheduler: String, trial: usize, source: TrialError },
    #[error("the trace of {scheduler} cannot be written: {source}")]
    Write { scheduler: String, source: std::io::Error },
    #[error("the events of trial {trial} of {scheduler} are not as they were written: {reason}")]
    Changed { scheduler: String, trial: usize, reason: String },
    #[error("the events of trial {trial} of {scheduler} cannot be read: {source}")]
    Trace { scheduler: String, trial: usize, source: StoreError },
}

impl ReportError {
    /// What a user can try.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Read(error) => error.advice(),
            Self::Rerun { source, .. } => source.advice(),
            Self::Write { .. } => "is the disk full?",
            Self::Changed { .. } | Self::Trace { .. } => {
                "remove the trace directory of that trial: a simulated one is then simulated again"
            }
        }
    }
}

/// How far to look.
#[derive(Clone, Copy, Debug)]
pub struct ReportOptions {
    /// Whether to look at one trial closely.
    pub scenes: bool,
    /// Engine events up to which a trial is simulated again; beyond, only kept events are looked at.
    pub rerun_events: u64,
    /// How much of a trial is kept.
    pub limits: Limits,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self { scenes: true, rerun_events: u64::MAX, limits: Limits::default() }
    }
}

/// In place of a recording's scheduler, which it does not tell.
const RECORDED: &str = "the recorded kernel";

/// A run with everything a report shows.
#[derive(Debug)]
pub struct Run {
    /// What its directory holds.
    pub disk: RunOnDisk,
    /// Position, in the directory's trials, of the trial looked at closely.
    pub representative: usize,
    /// One per scheduler, or none at all.
    pub scenes: Vec<Scene>,
    /// What a reader must know: the directory's faults and this module's own.
    pub notes: Vec<String>,
}

impl Run {
    /// Reads a run directory and looks at its representative trial.
    ///
    /// # Errors
    /// When the directory cannot be read or the trial not be looked at.
    pub fn load(path: &Path, options: &ReportOptions, stop: &Arc<AtomicBool>) -> Result<Self, ReportError> {
        Self::looked_at(RunOnDisk::read(path)?, options, stop)
    }

    /// The same of a run directory whose experiment and record are known.
    ///
    /// # Errors
    /// As of [`Run::load`].
    pub fn load_of(
        path: &Path,
        (experiment, record): (Experiment, ExperimentRecord),
        options: &ReportOptions,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, ReportError> {
        Self::looked_at(RunOnDisk::of_experiment(path, experiment, record)?, options, stop)
    }

    fn looked_at(disk: RunOnDisk, options: &ReportOptions, stop: &Arc<AtomicBool>) -> Result<Self, ReportError> {
        let mut run = Self::of(disk);
        if options.scenes {
            run.look(options, stop, &mut || {})?;
        }
        Ok(run)
    }

    /// A run of which no trial is looked at closely.
    pub fn of(disk: RunOnDisk) -> Self {
        let mut run =
            Self { representative: representative(&disk), notes: disk.faults.clone(), scenes: Vec::new(), disk };
        if run.is_recording() {
            run.forget_scheduler();
        }
        run
    }

    /// Names the scheduler of a recording for what is known of it: the experiment's own only keeps its place.
    fn forget_scheduler(&mut self) {
        let (record, document) = (&mut self.disk.record, &mut self.disk.comparison);
        // The recording's own notes say the same.
        let is_of =
            |warning: &String| record.schedulers.iter().any(|of| warning.starts_with(&format!("{}: ", of.label)));
        document.warnings.retain(|warning| !is_of(warning));
        let of_split = document.time_split.iter_mut().flat_map(|split| &mut split.schedulers);
        let labels = record.schedulers.iter_mut().map(|of| &mut of.label);
        let labels = labels.chain(document.schedulers.iter_mut().map(|of| &mut of.label));
        labels.chain(of_split.map(|of| &mut of.label)).for_each(|label| RECORDED.clone_into(label));
    }

    /// Whether it is a recording of something that ran: one trial, with nothing to compare it with.
    pub fn is_recording(&self) -> bool {
        self.disk.experiment.place.kind().name == "recorded"
    }

    /// Whether columns run on machines of their own.
    pub fn has_columns_of_other_machines(&self) -> bool {
        self.disk.experiment.columns.values().any(|own| own.machine.is_some())
    }

    /// Writes the trial of a scheduler as a Perfetto trace, streamed from its stored events or from simulating it once more.
    ///
    /// # Errors
    /// When its events cannot be had, or the trace not be written.
    pub fn write_perfetto<W: Write + Send>(
        &self,
        scheduler: usize,
        out: W,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), ReportError> {
        let scene = &self.scenes[scheduler];
        let machine = &self.disk.experiment.machine_of(scheduler).value;
        let failed = |source| ReportError::Write { scheduler: scene.scheduler.clone(), source };
        let writer = PerfettoWriter::new(out, machine, &scene.tables, &scene.tasks).map_err(failed)?;
        let writer = self.events_into(scheduler, writer, stop)?;
        writer.finish(scene.end_ns).map(|_| ()).map_err(failed)
    }

    /// Writes the events of the trial of a scheduler as lines of text, streamed likewise.
    ///
    /// # Errors
    /// When its events cannot be had, or the text not be written.
    pub fn write_events<W: Write + Send>(
        &self,
        scheduler: usize,
        out: W,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), ReportError> {
        let scene = &self.scenes[scheduler];
        let machine = &self.disk.experiment.machine_of(scheduler).value;
        let lines = self.events_into(scheduler, EventLines::new(out, machine, &scene.tables, &scene.tasks), stop)?;
        lines.finish().map(|_| ()).map_err(|source| ReportError::Write { scheduler: scene.scheduler.clone(), source })
    }

    /// Writes the slices and migrations of the trial of a scheduler, as lines of text or as a document, streamed likewise. Lines have at most
    /// so many columns, if that is given.
    ///
    /// # Errors
    /// When its events cannot be had, or the text not be written.
    pub fn write_history<W: Write + Send>(
        &self,
        scheduler: usize,
        out: W,
        (form, columns): (Form, Option<usize>),
        stop: &Arc<AtomicBool>,
    ) -> Result<(), ReportError> {
        let scene = &self.scenes[scheduler];
        let failed = |source| ReportError::Write { scheduler: scene.scheduler.clone(), source };
        let (tasks, tables) = (&scene.tasks, &scene.tables);
        let machine = &self.disk.experiment.machine_of(scheduler).value;
        let (trial, end_ns) = (scene.trial, scene.end_ns);
        let subject = Subject { scheduler: &scene.scheduler, trial, tasks, tables, machine, end_ns, columns };
        let history = TimeHistory::new(out, form, subject).map_err(failed)?;
        let history = self.events_into(scheduler, history, stop)?;
        history.finish().map(|_| ()).map_err(failed)
    }

    /// Hands the events of the trial of a scheduler to a sink, and gives the sink back.
    ///
    /// # Errors
    /// When its events cannot be had, or the sink fails.
    pub fn events_into<S: Sink + Send>(
        &self,
        scheduler: usize,
        sink: S,
        stop: &Arc<AtomicBool>,
    ) -> Result<S, ReportError> {
        self.events_into_with(scheduler, None, sink, stop)
    }

    /// The same with the figures that moves by load balancers rest on, as far as the run's place can tell them: a simulated trial is run
    /// again for them.
    ///
    /// # Errors
    /// As [`Run::events_into`].
    pub fn explained_events_into<S: Sink + Send>(
        &self,
        scheduler: usize,
        sink: S,
        stop: &Arc<AtomicBool>,
    ) -> Result<S, ReportError> {
        if !self.is_repeatable(scheduler) {
            return self.events_into(scheduler, sink, stop);
        }
        let (experiment, record) = (&self.disk.experiment, &self.disk.record);
        let options = RunOptions { balance_details: true, scores_every_ns: None, ..experiment.options };
        let rerun = rerun_trial(experiment, record, scheduler, self.representative, options, stop, |_| sink);
        let scene = &self.scenes[scheduler];
        rerun.map(|rerun| rerun.sink).map_err(|source| ReportError::Rerun {
            scheduler: scene.scheduler.clone(),
            trial: scene.trial,
            source,
        })
    }

    /// The accounts of the representative trial by CPU and scheduling domain: a simulated one is run again for them, a guest's kernel has kept
    /// them before and after the run. `None` where there are none.
    ///
    /// # Errors
    /// When the trial cannot be run again, or its accounts cannot be read.
    pub fn schedstat(&self, scheduler: usize, stop: &Arc<AtomicBool>) -> Result<Option<Schedstat>, ReportError> {
        let (experiment, record) = (&self.disk.experiment, &self.disk.record);
        let stored = &self.disk.trials[scheduler][self.representative];
        let label = || record.schedulers[scheduler].label.clone();
        if experiment.place.repeatable() && self.is_repeatable(scheduler) {
            let machine = &experiment.machine_of(scheduler).value;
            let options = RunOptions { balance_details: true, scores_every_ns: None, ..experiment.options };
            let lines = |_: &RunTables| CpuLines::new(machine);
            let rerun = rerun_trial(experiment, record, scheduler, self.representative, options, stop, lines);
            let rerun =
                rerun.map_err(|source| ReportError::Rerun { scheduler: label(), trial: stored.trial, source })?;
            return Ok(Some(rerun.sink.finish(machine, rerun.trial.elapsed_ns, &rerun.domain_counters)));
        }
        let Some(text) = self.disk.guest(scheduler, stored.trial).map_err(ReadError::File)? else { return Ok(None) };
        samples(&text).map_err(|reason| ReportError::Changed { scheduler: label(), trial: stored.trial, reason })
    }

    /// The same; with `scores_every_ns` what the scheduler ranks tasks by is sampled at most so often, and a trial whose events were kept
    /// without it is simulated again.
    pub(crate) fn events_into_with<S: Sink + Send>(
        &self,
        scheduler: usize,
        scores_every_ns: Option<u64>,
        mut sink: S,
        stop: &Arc<AtomicBool>,
    ) -> Result<S, ReportError> {
        let (scene, number) = (&self.scenes[scheduler], self.representative);
        let lacks_scores = scores_every_ns.is_some() && self.disk.experiment.options.scores_every_ns.is_none();
        let again = lacks_scores && self.is_repeatable(scheduler);
        let Some(path) = self.kept_events(scheduler)?.filter(|_| !again) else {
            let (experiment, record) = (&self.disk.experiment, &self.disk.record);
            let every_ns = scores_every_ns.unwrap_or_else(|| ScoreTracks::interval_ns(scene.end_ns));
            let options = RunOptions { scores_every_ns: Some(every_ns), ..experiment.options };
            let rerun = rerun_trial(experiment, record, scheduler, number, options, stop, |_| sink);
            return rerun.map(|rerun| rerun.sink).map_err(|source| ReportError::Rerun {
                scheduler: scene.scheduler.clone(),
                trial: scene.trial,
                source,
            });
        };
        let failed = |source| ReportError::Trace { scheduler: scene.scheduler.clone(), trial: scene.trial, source };
        replay(&StoreReader::open(&path).map_err(failed)?, &mut sink, stop).map_err(failed)?;
        Ok(sink)
    }

    /// Whether trials of a scheduler can be had again from its record, without starting anything.
    pub fn is_repeatable(&self, scheduler: usize) -> bool {
        self.disk.experiment.is_repeatable(scheduler)
    }

    /// The directory of the events of the representative trial of a scheduler, if they were kept.
    fn kept_events(&self, scheduler: usize) -> Result<Option<PathBuf>, ReportError> {
        self.disk.trace(scheduler, self.representative).map_err(|reason| ReportError::Changed {
            scheduler: self.disk.record.schedulers[scheduler].label.clone(),
            trial: self.disk.trials[scheduler][self.representative].trial,
            reason: reason.to_owned(),
        })
    }

    /// Looks at the representative trial closely, under each scheduler; calls `looked` after each. Where that cannot be, the notes say why.
    ///
    /// # Errors
    /// When the trial cannot be simulated again, or its events are not as they were written.
    pub fn look(
        &mut self,
        options: &ReportOptions,
        stop: &Arc<AtomicBool>,
        looked: &mut dyn FnMut(),
    ) -> Result<(), ReportError> {
        let number = self.representative;
        for scheduler in 0..self.disk.trials.len() {
            let events = self.disk.trials[scheduler][number].engine_events;
            let kept = self.kept_events(scheduler)?.is_some();
            let reason = if kept {
                None
            } else if self.disk.experiment.place.repeatable() && !self.is_repeatable(scheduler) {
                Some(
                    "no timeline: the events of the trials were not kept (`--trace full` keeps all), and looking at a run starts no \
                     program"
                        .to_owned(),
                )
            } else if !self.is_repeatable(scheduler) {
                Some(
                    "no timeline: the events of the trials were not kept (`--trace full` keeps them), and a boot of a real \
                     kernel cannot be repeated"
                        .to_owned(),
                )
            } else if events > options.rerun_events {
                Some(format!(
                    "no timeline: the trial has {events} engine events; `warmcore report` on this directory simulates it again"
                ))
            } else {
                None
            };
            if let Some(reason) = reason {
                self.scenes.clear();
                self.notes.push(reason);
                return Ok(());
            }
            let scene = self.scene(scheduler, options, stop)?;
            self.scenes.push(scene);
            looked();
        }
        Ok(())
    }

    fn scene(
        &mut self,
        scheduler: usize,
        options: &ReportOptions,
        stop: &Arc<AtomicBool>,
    ) -> Result<Scene, ReportError> {
        let number = self.representative;
        let machine = &self.disk.experiment.machine_of(scheduler).value;
        let stored = &self.disk.trials[scheduler][number];
        let label = &self.disk.record.schedulers[scheduler].label;
        let clock = self.disk.experiment.place.kind().clock.1;
        let virtual_llcs = self.disk.virtual_llcs();
        let mut scene = match self.kept_events(scheduler)? {
            Some(path) => stored_scene(&path, (machine, stored.warm_up_ns), virtual_llcs.clone(), options.limits, stop)
                .map_err(|source| ReportError::Trace { scheduler: label.clone(), trial: stored.trial, source })?,
            None => Looked::default(),
        };
        // Scores that were not kept come from simulating the trial again, as everything does where no event was kept.
        let again = scene.tables.scores.is_empty()
            && self.is_repeatable(scheduler)
            && (scene.record.is_none() || stored.engine_events <= options.rerun_events);
        if again {
            let every_ns = ScoreTracks::interval_ns(stored.elapsed_ns);
            let recorder = Recorder::new(machine, virtual_llcs, stored.elapsed_ns, options.limits);
            let (experiment, record) = (&self.disk.experiment, &self.disk.record);
            let asked = RunOptions { scores_every_ns: Some(every_ns), ..experiment.options };
            let rerun = rerun_trial(experiment, record, scheduler, number, asked, stop, |_| recorder)
                .map_err(|source| ReportError::Rerun { scheduler: label.clone(), trial: stored.trial, source })?;
            let same = rerun.trial.measures.iter().all(|(name, value)| stored.measures.get(name) == Some(value));
            if !same || rerun.trial.elapsed_ns != stored.elapsed_ns {
                self.notes.push(format!(
                    "trial {} of {label}, simulated again for the timeline, differs from the one that was recorded: the \
                     program has changed since; trust the verdict, not the timeline",
                    stored.trial
                ));
            }
            let found = rerun.sink.finish();
            scene.tables.scores = rerun.tables.scores.clone();
            match &mut scene.record {
                Some((_, record)) => record.scores = found.scores,
                None => {
                    let (end_ns, tables, tasks) = (rerun.trial.elapsed_ns, rerun.tables, rerun.tasks);
                    scene = Looked { end_ns, tables, tasks, record: Some((rerun.metrics, found)) };
                }
            }
        }
        let Looked { end_ns, tables, tasks, record } = scene;
        let (metrics, record) = record.ok_or_else(|| ReportError::Rerun {
            scheduler: label.clone(),
            trial: stored.trial,
            source: TrialError::Elsewhere { place: self.disk.record.place.clone() },
        })?;
        Ok(Scene {
            scheduler: label.clone(),
            trial: stored.trial,
            seed: stored.seed,
            window_from_ns: stored.warm_up_ns.min(end_ns),
            measured_from_ns: stored.measured_from_ns(&self.disk.comparison.primary).min(end_ns),
            end_ns,
            clock,
            metrics,
            tables,
            tasks,
            record,
        })
    }
}

/// A trial's events, looked at; nothing yet.
#[derive(Default)]
struct Looked {
    end_ns: u64,
    tables: RunTables,
    tasks: Vec<TaskInfo>,
    record: Option<(Metrics, Recording)>,
}

/// A trial whose events were kept.
fn stored_scene(
    path: &Path,
    (machine, warm_up_ns): (&Machine, u64),
    virtual_llcs: Option<VirtualLlcs>,
    limits: Limits,
    stop: &AtomicBool,
) -> Result<Looked, StoreError> {
    let reader = StoreReader::open(path)?;
    let end_ns = reader.end_ns();
    let counters = Counters::new(machine, reader.tables(), Start::Idle { time_ns: 0 }).with_warm_up(warm_up_ns);
    let recorder = Recorder::new(machine, virtual_llcs, end_ns, limits).for_tables(reader.tables());
    let mut both = Tee::new(counters, recorder);
    replay(&reader, &mut both, stop)?;
    let metrics = both.first.metrics(end_ns, reader.tables(), reader.tasks());
    let (tables, tasks) = (reader.tables().clone(), reader.tasks().to_vec());
    Ok(Looked { end_ns, tables, tasks, record: Some((metrics, both.second.finish())) })
}

/// Hands the events of a store to a sink.
fn replay(reader: &StoreReader, sink: &mut impl Sink, stop: &AtomicBool) -> Result<(), StoreError> {
    const BATCH: usize = 4096;
    let mut batch: Vec<Event> = Vec::with_capacity(BATCH);
    let mut events = reader.events()?;
    loop {
        batch.clear();
        for event in events.by_ref().take(BATCH) {
            batch.push(event?);
        }
        let interrupted = stop.load(Ordering::Relaxed).then(|| std::io::Error::from(std::io::ErrorKind::Interrupted));
        let problem = |source| StoreError::Io { operation: "replay", path: "events".into(), source };
        if let Some(interrupted) = interrupted {
            return Err(problem(interrupted));
        }
        if batch.is_empty() {
            return Ok(());
        }
        sink.events(&batch).map_err(problem)?;
    }
}

/// Position of the trial whose values of the verdict's metric lie closest to the schedulers' medians: the smallest sum of
/// distances, each as a ratio of at least 1. The first of equals.
fn representative(disk: &RunOnDisk) -> usize {
    let primary = &disk.comparison.primary;
    let results: Vec<_> = disk.comparison.schedulers.iter().filter_map(|s| s.measures.get(primary)).collect();
    let distance = |trial: usize| -> f64 {
        let of = |result: &&warmcore_lab::verdict::MeasureResult| {
            let (value, median) = (result.points.get(trial).copied().flatten()?, result.summary.median?);
            let distance = if value < median { median / value } else { value / median };
            distance.is_finite().then_some(distance)
        };
        results.iter().map(|result| of(result).unwrap_or(f64::MAX / 1e3)).sum()
    };
    (0..disk.record.seeds.len()).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(0)
}

/// The median of some values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    Sample::new(values).ok().and_then(|sample| sample.median())
}
