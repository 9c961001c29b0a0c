//! Making an experiment: what is not said follows from the machine, the workload and the place, and what can be known to fail before
//! anything runs is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use warmcore_memory::Hierarchy;
use warmcore_memory::exact::{ExactError, Live};
use warmcore_options::{MemoryChoice, RunOptions, TraceLevel};
use warmcore_places::place::{Place, PlaceError, Request};
use warmcore_places::sim::Sim;
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_statistics::Design;
use warmcore_topology::{Basis, Machine, Origin};
use warmcore_workload::{Action, Workload};

use crate::column::{self, Column, ColumnError, Inputs};
use crate::experiment::{Experiment, ExperimentError, Named, Observation};
use crate::load::{self, LoadError};
use crate::making;
use crate::measures;
use crate::units::duration;
use crate::verdict::{self, VerdictError};
use crate::warm_up;

/// An experiment in the making.
#[derive(Clone, Debug)]
pub struct ExperimentBuilder {
    machine: Named<Machine>,
    workload: Named<Workload>,
    actions: Vec<Action>,
    schedulers: Vec<SchedulerSpec>,
    inputs: BTreeMap<usize, Inputs>,
    baseline: Option<SchedulerSpec>,
    seeds: Vec<u64>,
    options: RunOptions,
    memory: Option<MemoryChoice>,
    smt_slowdown_percent: Option<u32>,
    trace: Option<TraceLevel>,
    kept: bool,
    metric: Option<String>,
    margin: f64,
    observations: Vec<Observation>,
    advised: bool,
    background_chosen: bool,
    strict: bool,
    place: Arc<dyn Place>,
}

/// An experiment, checked.
#[derive(Clone, Debug)]
pub struct Built {
    /// The experiment.
    pub experiment: Experiment,
    /// What was chosen otherwise than one would expect.
    pub warnings: Vec<String>,
}

/// Why an experiment cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum BuildError {
    /// It makes no sense as a whole.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The machine cannot have the kernel threads that belong to it.
    #[error(transparent)]
    Background(#[from] LoadError),
    /// What a scheduler is to have of its own cannot be had.
    #[error(transparent)]
    Column(#[from] ColumnError),
    #[error("baseline `{0}` is not among --schedulers")]
    Baseline(String),
    /// The machine's memory cannot be modelled, and that was asked for.
    #[error(transparent)]
    Memory(#[from] warmcore_memory::HierarchyError),
    /// The exact level cannot simulate the machine, and was asked for.
    #[error(transparent)]
    ExactMemory(#[from] ExactError),
    #[error("`{0}` compares which cache sets tasks used lately, which only exact memory in the simulator records")]
    NoSets(String),
    #[error(
        "the warm-up of {} is not over when the run ends, after {} at most: nothing would count",
        duration(*warm_up_ns as f64), duration(*end_ns as f64)
    )]
    WarmUpTooLong {
        warm_up_ns: u64,
        /// The workload's duration or the largest time.
        end_ns: u64,
    },
    #[error("a command is measured as a whole: what it prints and the CPU time it uses have no part after a warm-up")]
    WarmUpOfCommand,
    #[error("the run would never end: task \"{task}\" loops without end, and the workload has no duration")]
    Endless { task: String },
    /// A scheduler does not know what its workload asks for, and strict reading was asked for.
    #[error("not modelled, and strict reading was asked for: of {scheduler}, {what}")]
    Unknown {
        scheduler: String,
        /// What it does not know, and what tasks then do.
        what: String,
    },
    #[error("scores are about the event tables, which are not written")]
    ScoresWithoutTables,
    #[error("how far hardware threads of a core slow each other can be chosen in the simulator only")]
    SmtElsewhere,
    /// They cannot slow each other so much.
    #[error("{0}")]
    SmtSlowdown(String),
    /// The place cannot run it.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Its verdict's metric does not exist or is not recorded.
    #[error(transparent)]
    Metric(#[from] VerdictError),
}

impl BuildError {
    /// What a user can try.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Baseline(_) => Some("write it as in --schedulers, with the same tunables"),
            Self::Memory(_) => Some("`--memory none` simulates this machine with memory of constant speed"),
            Self::ExactMemory(_) => Some("`--memory analytic` may do"),
            Self::NoSets(_) => Some(
                "add `--memory exact` or another exact memory, such as `exact-by-address`; of its kind `dio` runs with `--memory analytic` too",
            ),
            Self::WarmUpTooLong { .. } => Some("make the run longer, or --warm-up shorter"),
            Self::WarmUpOfCommand => Some(
                "use the program's own warm-up; `--on host:warm-up-rounds=1` runs it before the first trial that counts",
            ),
            Self::Endless { .. } => Some(
                "say how often it loops (\"loop\": 1000; rt-app loops without end where that is missing), give the workload a \"duration\" in \"global\", \
                 or end the run with --max-time",
            ),
            Self::Unknown { .. } => Some("without --strict this is a warning"),
            Self::ScoresWithoutTables => Some("add --trace full"),
            Self::Place(error) => Some(error.advice),
            Self::SmtElsewhere => Some("leave out --smt-slowdown, or run it with --on sim"),
            Self::Experiment(_) | Self::Background(_) | Self::Column(_) | Self::Metric(_) | Self::SmtSlowdown(_) => {
                None
            }
        }
    }
}

/// Declares methods that set the field of their name.
macro_rules! setters {
    ($($(#[$about:meta])* $name:ident: $kind:ty;)*) => {
        impl ExperimentBuilder {
            $(
                $(#[$about])*
                #[must_use]
                pub fn $name(self, $name: $kind) -> Self {
                    Self { $name, ..self }
                }
            )*
        }
    };
}

setters! {
    /// Under these schedulers, in the order of the table.
    schedulers: Vec<SchedulerSpec>;
    /// With this done from outside in each run.
    actions: Vec<Action>;
    /// With these machines and workloads for columns whose circumstances name some, by index of the scheduler.
    inputs: BTreeMap<usize, Inputs>;
    /// Compared with this one; the first if there is none.
    baseline: Option<SchedulerSpec>;
    /// One trial for each seed.
    seeds: Vec<u64>;
    /// Asks each run for this. How memory is modelled and what is recorded follow from [`Self::memory`] and [`Self::trace`]. If there is no
    /// warm-up, the workload's own counts, and if it has none, [`warm_up::default_ns`]; 0 is none.
    options: RunOptions;
    /// With this model of memory; if there is none, with the one that fits the workload, where the place models memory.
    memory: Option<MemoryChoice>;
    /// Slows work by so much beside a busy hardware thread of the same core, in percent of its time alone; by what the machine says
    /// if there is none.
    smt_slowdown_percent: Option<u32>;
    /// Records this much. If there is none: events where they are kept and cannot be had again, counters otherwise.
    trace: Option<TraceLevel>;
    /// Whether there will be a run directory, which can keep events.
    kept: bool;
    /// Judges by this metric; by the workload's own if there is none.
    metric: Option<String>;
    /// Takes differences up to this fraction for none.
    margin: f64;
    /// Looks at this, too.
    observations: Vec<Observation>;
    /// Tells what helps: the schedulers are settings of a kernel that nobody named.
    advised: bool;
    /// Takes the machine's kernel threads as they are, also if there are none; otherwise [`load::UNDER_PROGRAMS`] run where nothing else
    /// lets a sched_ext program look for work on idle CPUs.
    background_chosen: bool;
    /// Refuses a workload that asks for what a scheduler does not know ([`check_known`]).
    strict: bool;
    /// Runs in this place; in the simulator unless another one is named.
    place: Arc<dyn Place>;
}

impl ExperimentBuilder {
    pub(crate) fn new(machine: Named<Machine>, workload: Named<Workload>) -> Self {
        Self {
            machine,
            workload,
            actions: Vec::new(),
            schedulers: Vec::new(),
            inputs: BTreeMap::new(),
            baseline: None,
            seeds: Vec::new(),
            options: RunOptions::default(),
            memory: None,
            smt_slowdown_percent: None,
            trace: None,
            kept: false,
            metric: None,
            margin: verdict::DEFAULT_MARGIN,
            observations: Vec::new(),
            advised: false,
            background_chosen: false,
            strict: false,
            place: Arc::new(Sim),
        }
    }

    /// The experiment.
    ///
    /// # Errors
    /// What can be known to fail before anything runs or is written.
    pub fn build(mut self) -> Result<Built, BuildError> {
        if let Some(percent) = self.smt_slowdown_percent {
            if !self.place.kind().simulated {
                return Err(BuildError::SmtElsewhere);
            }
            for machine in self.machines() {
                let given = Origin::new(Basis::Given, "");
                machine.value =
                    machine.value.clone().with_smt_slowdown(percent, given).map_err(BuildError::SmtSlowdown)?;
            }
        }
        if !self.background_chosen && self.place.kind().simulated && load::needs_background(&self.schedulers) {
            for machine in self.machines().filter(|machine| machine.value.background().is_empty()) {
                *machine = load::background(machine.clone(), load::UNDER_PROGRAMS)?;
            }
        }
        self.workload.value.warm_up_ns = self.warm_up(&self.workload.value)?;
        let mut warnings: Vec<String> = load::warnings_of_machine(&self.machine.value).collect();
        let memory = self.memory_model(&mut warnings)?;
        let baseline = match &self.baseline {
            None => 0,
            Some(wanted) => {
                let found = self.schedulers.iter().position(|spec| spec == wanted);
                found.ok_or_else(|| BuildError::Baseline(wanted.to_string()))?
            }
        };
        let default_trace = match (self.place.repeatable(), self.kept) {
            _ if self.place.kind().events_cost_time => TraceLevel::None,
            (false, true) => TraceLevel::Full,
            _ => TraceLevel::Counters,
        };
        let mut schedulers = std::mem::take(&mut self.schedulers);
        if self.place.design() == Design::Blocked
            && let Some(own) =
                schedulers.get(baseline).filter(|_| schedulers.iter().all(|spec| !spec.circumstances().again))
        {
            // What the baseline differs from itself by is what counts as a difference.
            if let Some(inputs) = self.inputs.get(&baseline).cloned() {
                self.inputs.insert(schedulers.len(), inputs);
            }
            schedulers.push(own.under(Circumstances { again: true, ..own.circumstances().clone() }));
        }
        let mut columns = BTreeMap::new();
        for (index, spec) in schedulers.iter().enumerate().filter(|(_, spec)| !spec.circumstances().is_default()) {
            let mut inputs = self.inputs.remove(&index).unwrap_or_default();
            if let Some(own) = &mut inputs.workload {
                own.value.warm_up_ns = self.warm_up(&own.value)?;
            }
            warnings.extend(inputs.machine.iter().flat_map(|own| load::warnings_of_machine(&own.value)));
            columns.insert(index, column::column(spec, inputs, (&self.machine, &self.workload), &*self.place)?);
        }
        check_machines(&columns, memory)?;
        // Where one column has a quota, no metric that leaves out what it takes compares it with the others.
        let own = columns.values().filter_map(|column| column.workload.as_ref()).map(|own| &own.value);
        let mut limited = own.filter(|own| own.has_quotas() && !self.workload.value.has_quotas());
        let metric = self.metric.or_else(|| limited.next().map(measures::primary));
        let workload = self.workload;
        let trace = self.trace.unwrap_or(default_trace);
        let options = RunOptions { memory, warm_up_ns: workload.value.warm_up_ns, trace, ..self.options };
        let experiment = Experiment {
            machine: self.machine,
            workload,
            actions: self.actions,
            schedulers,
            columns,
            baseline,
            seeds: self.seeds,
            options,
            metric,
            margin: self.margin,
            observations: self.observations,
            advised: self.advised,
            place: self.place,
            kept_programs: None,
        };
        check(&experiment)?;
        if self.strict {
            check_known(&experiment)?;
        }
        Ok(Built { experiment, warnings })
    }

    /// Its machine, and those of columns.
    fn machines(&mut self) -> impl Iterator<Item = &mut Named<Machine>> {
        let own = self.inputs.values_mut().filter_map(|inputs| inputs.machine.as_mut());
        std::iter::once(&mut self.machine).chain(own)
    }

    /// The warm-up asked for, the workload's own, or the default, if the run can last longer.
    fn warm_up(&self, workload: &Workload) -> Result<Option<u64>, BuildError> {
        let asked = self.options.warm_up_ns.or(workload.warm_up_ns);
        let warm_up_ns =
            asked.unwrap_or_else(|| warm_up::default_ns(workload, self.options.max_time_ns, self.metric.as_deref()));
        if warm_up_ns == 0 {
            return Ok(None);
        }
        if !workload.command.is_empty() {
            return match asked {
                Some(_) => Err(BuildError::WarmUpOfCommand),
                None => Ok(None),
            };
        }
        match workload.duration_ns.into_iter().chain(self.options.max_time_ns).min() {
            Some(end_ns) if end_ns <= warm_up_ns => Err(BuildError::WarmUpTooLong { warm_up_ns, end_ns }),
            _ => Ok(Some(warm_up_ns)),
        }
    }

    /// Whether the workload of any column has a memory profile.
    fn has_profiles(&self) -> bool {
        let of_columns = self.inputs.values().filter_map(|inputs| inputs.workload.as_ref());
        std::iter::once(&self.workload).chain(of_columns).any(|workload| workload.value.has_profiles())
    }

    /// The memory model asked for, or the one that fits the workloads. A machine whose caches the model refuses is an
    /// error where the model was asked for; otherwise memory of constant speed is used, with a warning.
    fn memory_model(&self, warnings: &mut Vec<String>) -> Result<MemoryChoice, BuildError> {
        // Elsewhere memory is whatever it is.
        if !self.place.kind().simulated {
            return Ok(MemoryChoice::None);
        }
        let asked = match self.memory {
            Some(MemoryChoice::None) => return Ok(MemoryChoice::None),
            Some(MemoryChoice::Analytic) => true,
            Some(exact) => {
                let machine = &self.machine.value;
                Live::new(machine, exact.exact_options(), &[])?;
                return Ok(exact);
            }
            None if self.has_profiles() => false,
            None => return Ok(MemoryChoice::None),
        };
        match Hierarchy::new(&self.machine.value) {
            Ok(_) => Ok(MemoryChoice::Analytic),
            Err(error) if asked => Err(error.into()),
            Err(error) => {
                warnings.push(format!("{error}; the memory profiles have no effect, as with `--memory none`"));
                Ok(MemoryChoice::None)
            }
        }
    }
}

/// Checks that memory can be modelled on the machines that columns have of their own.
fn check_machines(columns: &BTreeMap<usize, Column>, memory: MemoryChoice) -> Result<(), BuildError> {
    for machine in columns.values().filter_map(|column| Some(&column.machine.as_ref()?.value)) {
        match memory {
            MemoryChoice::None => {}
            MemoryChoice::Analytic => _ = Hierarchy::new(machine)?,
            exact => _ = Live::new(machine, exact.exact_options(), &[])?,
        }
    }
    Ok(())
}

/// Checks that the schedulers know what their workloads ask for. Where they do not, it is a condition of the verdict otherwise.
///
/// # Errors
/// With the first that does not.
pub fn check_known(experiment: &Experiment) -> Result<(), BuildError> {
    match experiment.unknown().next() {
        Some((scheduler, what)) => Err(BuildError::Unknown { scheduler: scheduler.to_string(), what }),
        None => Ok(()),
    }
}

/// Checks what can be known before anything runs or is written.
fn check(experiment: &Experiment) -> Result<(), BuildError> {
    experiment.check()?;
    let columns = 0..experiment.schedulers.len();
    for scheduler in columns.clone().filter(|_| experiment.options.max_time_ns.is_none()) {
        if let Some(task) = experiment.workload_of(scheduler).value.endless_task() {
            return Err(BuildError::Endless { task: task.name.clone() });
        }
    }
    if let Some(spec) = experiment.schedulers.iter().find(|spec| spec.info().needs_sets)
        && !experiment.options.memory.is_exact()
    {
        return Err(BuildError::NoSets(spec.to_string()));
    }
    let requests: Vec<Request<'_>> =
        columns.clone().map(|scheduler| making::request(experiment, scheduler, 0)).collect();
    experiment.place.check(&requests)?;
    let options = &experiment.options;
    if options.scores_every_ns.is_some() && options.trace != TraceLevel::Full {
        return Err(BuildError::ScoresWithoutTables);
    }
    let metric = experiment.metric.as_deref();
    verdict::check_metric(metric, options.trace, &experiment.workload.value)?;
    for (scheduler, column) in &experiment.columns {
        let Some(own) = &column.workload else { continue };
        let (theirs, all) = (
            verdict::primary_measure(metric, &own.value)?,
            verdict::primary_measure(metric, &experiment.workload.value)?,
        );
        if theirs.name != all.name {
            let reason =
                format!("it is judged by {}, the others by {}: choose one with --metric", theirs.name, all.name);
            return Err(ColumnError { column: experiment.schedulers[*scheduler].to_string(), reason }.into());
        }
    }
    let divided =
        experiment.observations.iter().any(|observation| matches!(observation, Observation::VirtualLlcs { .. }));
    if let Some((scheduler, _)) = experiment.columns.iter().find(|(_, column)| divided && column.machine.is_some()) {
        let reason = "virtual LLCs divide one machine, and it has another".to_owned();
        return Err(ColumnError { column: experiment.schedulers[*scheduler].to_string(), reason }.into());
    }
    Ok(())
}
