//! An experiment of the book: a TOML file.
//!
//! | key | value |
//! |---|---|
//! | `schema` | `warmcore-book-1` |
//! | `title` | one line |
//! | `group` | what it is about; headings of the page |
//! | `checklist` | numbers of the fidelity checklist it covers |
//! | `machine` | as on the command line |
//! | `workload` | as on the command line, or rt-app's JSON itself |
//! | `schedulers` | one or more; of a sched_ext program (`scx:PROGRAM`) the simulated values are stored too, and `--stored` judges those, as the program need not be there |
//! | `duration_ms` | end of the run |
//! | `from_ms` | beginning of the window of metrics; 0 by default |
//! | `buffer_kib` | trace buffer per CPU; 4096 by default |
//! | `note` | what a reader of the chapter should know: what the experiment shows, what differs between boots |
//! | `[[at]]` | something done from outside at a time, in both places: `time_ms`, and `bind` or `set`; the keys below |
//! | `bind` | `{ tasks = NAME, ... }`: the tasks of a template or a process that exist then may run on `cpus = "0-3,8"` (the machine's numbers, or `"all"`) only; or on the LLC (`llc_of = NAME`) or the node (`node_of = NAME`) where tasks of that name used most CPU time in the 100 ms before |
//! | `set` | `{ tunable = NAME, value = NUMBER }`: a tunable that every scheduler of the experiment lets change in a run |
//! | `[outside]` | of comparisons outside their bounds: `why`, as far as it is known, and what would `settle` it |
//! | `[[check]]` | `metric`, a bound, and what the metric needs (`at_ms` before the run's end, `within`); the keys below |
//! | `relative`, `absolute`, `counts` | the bound, one of them: a share of the real value; in the metric's unit; or for numbers of migrations per task, in units of the square root of one more than the real number in the whole run, which is what chance alone makes of such a number |
//! | `expect` | what both places must have, within the bound: places that are both wrong are then no agreement |
//! | `only` | a template or a process: the metric is of its tasks alone |
//! | `window_ms` | `[from, to]`: a window of the check's own instead of the experiment's |
//! | `[[control]]` | a deliberately wrong model: `name`, `scheduler` or `workload` to simulate instead, and the `metrics` that must reject it |

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::{Background, CpuSet, Machine};
use warmcore_trace::{Event, Outcome};
use warmcore_workload::{Action, Affinity, Deed, Destination, Options, Workload};

use super::metric::{Detail, Measured, Metric};
use super::profile::View;
use warmcore_lab::files::{FileError, read_text};
use warmcore_lab::load::{UNDER_PROGRAMS, needs_background};
use warmcore_options::Observe;
use warmcore_places::files::find_program;
use warmcore_places::vm::layout::as_guest;

/// Version of the format.
pub const SCHEMA: &str = "warmcore-book-1";

/// The background of simulated runs whose file names none: the agent of guests has a main thread for each program. Under sched_ext programs the
/// kernel's threads are beside them, as in every comparison: programs schedule these, too.
const USUAL: &str = "launchers";

/// An hour.
const LONGEST_MS: u64 = 3_600_000;

/// The largest trace buffer of a CPU: a GiB, as `--guest trace-buffer` allows.
const MOST_BUFFER_KIB: u32 = 1 << 20;

/// Why an experiment cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum BookError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Invalid { path: PathBuf, reason: String },
}

/// The file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BookForm {
    schema: String,
    title: String,
    group: String,
    #[serde(default)]
    checklist: Vec<u32>,
    machine: String,
    workload: String,
    schedulers: Vec<String>,
    duration_ms: u64,
    #[serde(default)]
    from_ms: u64,
    #[serde(default = "default_buffer")]
    buffer_kib: u32,
    #[serde(default)]
    note: String,
    background: Option<String>,
    outside: Option<Cause>,
    #[serde(default)]
    at: Vec<AtDocument>,
    #[serde(default)]
    check: Vec<CheckDocument>,
    #[serde(default)]
    control: Vec<ControlDocument>,
}

fn default_buffer() -> u32 {
    warmcore_places::place::DEFAULT_BUFFER_KIB
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckDocument {
    metric: Metric,
    relative: Option<f64>,
    absolute: Option<f64>,
    counts: Option<f64>,
    expect: Option<f64>,
    only: Option<String>,
    window_ms: Option<Vec<u64>>,
    #[serde(default)]
    at_ms: Vec<u64>,
    #[serde(default)]
    within: u32,
    scheduler: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlDocument {
    name: String,
    scheduler: Option<String>,
    workload: Option<String>,
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AtDocument {
    time_ms: u64,
    bind: Option<BindDocument>,
    set: Option<SetDocument>,
    offline: Option<u32>,
    online: Option<u32>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BindDocument {
    tasks: String,
    cpus: Option<String>,
    llc_of: Option<String>,
    node_of: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetDocument {
    tunable: String,
    value: u64,
}

/// Why comparisons of an experiment are outside their bounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The cause, as far as it is known.
    pub why: String,
    /// What would show whether that is so.
    pub settle: String,
}

/// How far two values may be apart.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// As a share of the real kernel's value.
    Relative(f64),
    /// In the metric's unit.
    Absolute(f64),
    /// For numbers of events per task: in units of the square root of one more than the real number.
    Counts {
        /// The largest distance in these units.
        limit: f64,
        /// Tasks, by which the metric's numbers were divided.
        tasks: f64,
    },
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative(limit) => write!(out, "{} %", limit * 100.0),
            Self::Absolute(limit) => write!(out, "{limit}"),
            Self::Counts { limit, .. } => write!(out, "{limit} √n"),
        }
    }
}

impl Bound {
    /// The distance of two values in the bound's terms.
    pub fn error(self, value: f64, reference: f64) -> f64 {
        let distance = (value - reference).abs();
        match self {
            // Nothing cannot be missed by a share of itself: both must be nothing.
            Self::Relative(_) if reference == 0.0 => {
                if distance == 0.0 {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            Self::Relative(_) => distance / reference.abs(),
            Self::Absolute(_) => distance,
            Self::Counts { tasks, .. } => distance * tasks / (1.0 + reference.abs() * tasks).sqrt(),
        }
    }

    /// The largest error that is inside.
    pub fn limit(self) -> f64 {
        let (Self::Relative(limit) | Self::Absolute(limit) | Self::Counts { limit, .. }) = self;
        limit
    }
}

/// One comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What is compared.
    pub metric: Metric,
    /// How near it must be.
    pub bound: Bound,
    /// What the metric needs besides.
    pub detail: Detail,
    /// The part of the run it is of.
    pub view: View,
    /// What both places must have, if the experiment says so.
    pub expect: Option<f64>,
    /// Index of the scheduler, or all of them.
    pub scheduler: Option<usize>,
}

impl Check {
    /// Its name within the experiment: the metric, and what part of the run it is of where that is not the experiment's.
    pub fn key(&self, schedulers: &[SchedulerSpec]) -> String {
        let mut key = self.metric.to_string();
        if let Some(only) = &self.view.only {
            key.push_str(&format!(" of {only}"));
        }
        if self.view.to_ns != u64::MAX {
            key.push_str(&format!(" from {} to {} ms", self.view.from_ns / 1_000_000, self.view.to_ns / 1_000_000));
        }
        if let Some(index) = self.scheduler {
            key.push_str(&format!(" ({})", schedulers[index]));
        }
        key
    }

    /// The metric of a run.
    pub fn measure(&self, machine: &Machine, events: &[Event], outcome: &Outcome, workload: &Workload) -> Measured {
        self.metric.of(&self.view.profile(machine, events, outcome, workload), &self.detail)
    }
}

/// A deliberately wrong model.
#[derive(Clone, Debug)]
pub struct Control {
    /// What is wrong.
    pub name: String,
    /// Scheduler that is simulated instead of each.
    pub scheduler: Option<SchedulerSpec>,
    /// Workload that is simulated instead.
    pub workload: Option<Workload>,
    /// Metrics of which at least one must be outside.
    pub metrics: Vec<Metric>,
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct BookExperiment {
    /// The file's stem.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it is about.
    pub group: String,
    /// Numbers of the fidelity checklist.
    pub checklist: Vec<u32>,
    /// What was written for the machine; experiments of equal text share boots.
    pub machine_text: String,
    /// The machine, as a guest of its shape is ([`as_guest`]).
    pub machine: Machine,
    /// The machine as it is simulated: with the background of the file, or the one it is asked for instead.
    pub simulated: Machine,
    /// What runs.
    pub workload: Workload,
    /// Under which schedulers.
    pub schedulers: Vec<SchedulerSpec>,
    /// End of the run.
    pub duration_ns: u64,
    /// The whole of what is compared: from the beginning of the window to the end.
    pub view: View,
    /// Trace buffer, KiB per CPU.
    pub buffer_kib: u32,
    /// What a reader of the chapter should know.
    pub note: String,
    /// Why comparisons are outside their bounds, if any is.
    pub outside: Option<Cause>,
    /// What is done from outside at given times.
    pub actions: Vec<Action>,
    /// Comparisons.
    pub checks: Vec<Check>,
    /// Wrong models.
    pub controls: Vec<Control>,
    /// Identifies machine, workload, schedulers, duration and window: stored results are of this very experiment.
    pub identity: String,
}

impl BookExperiment {
    /// Whether some of its schedulers are sched_ext programs, which need not be there: `scx:PROGRAM`.
    pub fn has_programs(&self) -> bool {
        self.schedulers.iter().any(|scheduler| scheduler.program().is_some())
    }

    /// Of those programs the ones that are neither beside this program nor in `PATH`: without them it cannot be run.
    pub fn absent_programs(&self) -> Vec<&str> {
        let programs = self.schedulers.iter().filter_map(|scheduler| scheduler.program());
        let names = programs.map(|program| program.program.as_str());
        names.filter(|name| !find_program(name).is_file()).collect()
    }

    /// What is to be noted of its programs.
    pub fn observe(&self) -> Observe {
        if self.checks.iter().any(|check| check.metric.needs_calls()) {
            Observe::Calls
        } else if self.has_programs() {
            Observe::Operations
        } else {
            Observe::Nothing
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is not what it should be, with the reason.
    pub fn read(path: &Path) -> Result<Self, BookError> {
        let text = read_text(path)?;
        Self::parse(path, &text).map_err(|reason| BookError::Invalid { path: path.to_path_buf(), reason })
    }

    /// The experiment of a file's text; the file's name is its own.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let document: BookForm = toml::from_str(text).map_err(|error| error.to_string())?;
        if document.schema != SCHEMA {
            return Err(format!("its schema is `{}`, not {SCHEMA}", document.schema));
        }
        if document.checks_nothing() {
            return Err("it has no [[check]] or no scheduler".into());
        }
        let machine = as_guest(&warmcore_topology::resolve(&document.machine).map_err(|error| error.to_string())?);
        if !(1..=LONGEST_MS).contains(&document.duration_ms) || document.from_ms >= document.duration_ms {
            return Err(format!(
                "the window is from `from_ms`, {}, to `duration_ms`, {}: it begins before it ends, within {LONGEST_MS} ms",
                document.from_ms, document.duration_ms
            ));
        }
        if !(1..=MOST_BUFFER_KIB).contains(&document.buffer_kib) {
            return Err(format!("`buffer_kib` is {}, not 1 to {MOST_BUFFER_KIB}", document.buffer_kib));
        }
        let workload = workload(&document.workload, document.duration_ms)?;
        let spec = |text: &String| SchedulerSpec::parse(text).map_err(|error| error.to_string());
        let schedulers: Vec<SchedulerSpec> = document.schedulers.iter().map(spec).collect::<Result<_, _>>()?;
        let background = match document.background.as_deref() {
            Some(name) => Background::named(name),
            None if needs_background(&schedulers) => Background::named(UNDER_PROGRAMS).map(Background::with_launchers),
            None => Background::named(USUAL),
        };
        let background = background.map_err(|error| format!("`background`: {error}"))?;
        let simulated = machine.clone().with_background(background).map_err(|error| error.to_string())?;
        let actions = document.actions(&workload, &schedulers)?;
        let from_ns = document.from_ms * 1_000_000;
        let tasks = f64::from(workload.tasks.iter().map(|task| task.instances).sum::<u32>());
        let check = |check: &CheckDocument| {
            let wrong = |what: &str| Err(format!("check of {}: {what}", check.metric));
            let bound = match (check.relative, check.absolute, check.counts) {
                (Some(limit), None, None) => Bound::Relative(limit),
                (None, Some(limit), None) => Bound::Absolute(limit),
                (None, None, Some(_)) if !check.metric.counts_per_task() => {
                    return wrong("`counts` is a bound of numbers of migrations per task");
                }
                (None, None, Some(limit)) => Bound::Counts { limit, tasks: tasks.max(1.0) },
                _ => return wrong("give one of `relative`, `absolute` and `counts`"),
            };
            if !(bound.limit().is_finite() && bound.limit() >= 0.0) {
                return wrong("a bound is a number, 0 or more");
            }
            if check.metric.needs_instants() && check.at_ms.is_empty() {
                return wrong("it needs `at_ms`");
            }
            if let Some(at) = check.at_ms.iter().find(|at| **at >= document.duration_ms) {
                return wrong(&format!("`at_ms`, {at}, is not before the end of the run, {} ms", document.duration_ms));
            }
            if check.expect.is_some_and(|expected| !expected.is_finite()) {
                return wrong("`expect` is a number");
            }
            let known = |name: &String| {
                workload.tasks.iter().any(|task| task.name == *name)
                    || workload.processes.iter().any(|process| process.name == *name)
            };
            if let Some(name) = check.only.as_ref().filter(|name| !known(name)) {
                return wrong(&format!("no task and no process is called `{name}`"));
            }
            let alone = check.only.as_ref().is_some_and(|name| {
                let of_process = |process: usize| workload.processes[process].name == *name;
                let seen = workload.tasks.iter().filter(|task| task.name == *name || of_process(task.process.index()));
                seen.count() == 1
            });
            if check.metric == Metric::CpuShare && alone {
                return wrong("the share of one template alone is always 1; leave `only` out");
            }
            let (from_ns, to_ns) = match check.window_ms.as_deref() {
                None => (from_ns, u64::MAX),
                Some([from, to]) if from < to && *to <= document.duration_ms => (from * 1_000_000, to * 1_000_000),
                Some(_) => return wrong("`window_ms` is [from, to] within the run"),
            };
            let view = View { from_ns, to_ns, only: check.only.clone() };
            let position = |text: &String| {
                let wanted = spec(text)?;
                let found = schedulers.iter().position(|known| *known == wanted);
                found.ok_or_else(|| format!("`{text}` is not among the schedulers"))
            };
            let scheduler = check.scheduler.as_ref().map(position).transpose()?;
            let detail = Detail { at_ms: check.at_ms.clone(), within: check.within, from_ns };
            Ok(Check { metric: check.metric, bound, detail, view, expect: check.expect, scheduler })
        };
        let checks: Vec<Check> = document.check.iter().map(check).collect::<Result<_, _>>()?;
        for (position, check) in checks.iter().enumerate() {
            let key = check.key(&schedulers);
            if checks[..position].iter().any(|before| before.key(&schedulers) == key) {
                return Err(format!("two checks are called `{key}`; their results would be one"));
            }
        }
        let control = |control: &ControlDocument| {
            Ok::<_, String>(Control {
                name: control.name.clone(),
                scheduler: control.scheduler.as_ref().map(spec).transpose()?,
                workload: control
                    .workload
                    .as_ref()
                    .map(|text| self::workload(text, document.duration_ms))
                    .transpose()?,
                metrics: control.metrics.clone(),
            })
        };
        // The text of the workload, not what it becomes: memory profiles, say, are nothing to a real kernel.
        let (from_ms, duration_ms) = (document.from_ms, document.duration_ms);
        let mut identity =
            format!("{} {:?} {duration_ms} {:?} {from_ms}", document.machine, document.workload, document.schedulers);
        // An experiment without actions is the one that it was before there were any.
        for action in &actions {
            identity.push_str(&format!(" {action}"));
        }
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            actions,
            checks,
            controls: document.control.iter().map(control).collect::<Result<_, _>>()?,
            title: document.title,
            group: document.group,
            checklist: document.checklist,
            machine_text: document.machine,
            simulated,
            machine,
            workload,
            schedulers,
            duration_ns: document.duration_ms * 1_000_000,
            view: View { from_ns, ..View::default() },
            buffer_kib: document.buffer_kib,
            note: document.note,
            outside: document.outside,
            identity: warmcore_lab::files::sha256(identity.as_bytes()),
        })
    }

    /// The experiment with this background in its simulated runs instead of its own.
    ///
    /// # Errors
    /// When they are for CPUs that its machine does not have.
    pub fn beside(self, background: &Background) -> Result<Self, BookError> {
        // What else the simulated machine has of its guest stays.
        let simulated = self.simulated.clone().with_background(background.clone());
        let invalid = |error: warmcore_topology::Error| BookError::Invalid {
            path: PathBuf::from(format!("{}.toml", self.name)),
            reason: error.to_string(),
        };
        Ok(Self { simulated: simulated.map_err(invalid)?, ..self })
    }

    /// Name of the background that its simulated runs have, if they have one.
    pub fn background(&self) -> Option<&str> {
        let background = self.simulated.background();
        (!background.is_empty()).then_some(background.name.as_str())
    }

    /// Checks that are about a scheduler.
    pub fn checks_of(&self, scheduler: usize) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.scheduler.is_none_or(|only| only == scheduler))
    }
}

impl BookForm {
    fn checks_nothing(&self) -> bool {
        self.check.is_empty() || self.schedulers.is_empty()
    }

    /// What is done from outside, in the order of time.
    fn actions(&self, workload: &Workload, schedulers: &[SchedulerSpec]) -> Result<Vec<Action>, String> {
        let action = |at: &AtDocument| {
            let wrong = |what: String| format!("[[at]] {} ms: {what}", at.time_ms);
            let what = match (&at.bind, &at.set, at.offline, at.online) {
                (Some(bind), None, None, None) => {
                    Deed::Bind { tasks: bind.tasks.clone(), to: bind.destination().map_err(wrong)? }
                }
                (None, Some(set), None, None) => Deed::Set { tunable: set.tunable.clone(), value: set.value },
                (None, None, Some(cpu), None) => Deed::Hotplug { cpu, online: false },
                (None, None, None, Some(cpu)) => Deed::Hotplug { cpu, online: true },
                _ => return Err(wrong("give one of `bind`, `set`, `offline` and `online`".into())),
            };
            if at.time_ms >= self.duration_ms {
                return Err(wrong("it is after the end of the run".into()));
            }
            let action = Action { time_ns: at.time_ms * 1_000_000, what };
            if let Some(name) = action.names().find(|name| workload.templates_called(name).is_empty()) {
                return Err(wrong(format!("no task and no process is called `{name}`")));
            }
            if let Deed::Set { tunable, value } = &action.what {
                let check = |spec: &SchedulerSpec| spec.check_change(tunable, *value);
                schedulers.iter().try_for_each(check).map_err(|error| wrong(error.to_string()))?;
            }
            Ok(action)
        };
        let mut actions: Vec<Action> = self.at.iter().map(action).collect::<Result<_, _>>()?;
        actions.sort_by_key(|action| action.time_ns);
        Ok(actions)
    }
}

impl BindDocument {
    fn destination(&self) -> Result<Destination, String> {
        match (&self.cpus, &self.llc_of, &self.node_of) {
            (Some(cpus), None, None) if cpus == "all" => Ok(Destination::Cpus(Affinity::All)),
            (Some(cpus), None, None) => {
                let list = CpuSet::parse_list(cpus).map_err(|error| error.to_string())?;
                Ok(Destination::Cpus(Affinity::OsCpus(list.iter().map(|cpu| cpu.0).collect())))
            }
            (None, Some(name), None) => Ok(Destination::LlcOf(name.clone())),
            (None, None, Some(name)) => Ok(Destination::NodeOf(name.clone())),
            _ => Err("give one of `cpus`, `llc_of` and `node_of`".into()),
        }
    }
}

/// A workload from rt-app's JSON itself or from what can be typed; it ends with the experiment.
fn workload(text: &str, duration_ms: u64) -> Result<Workload, String> {
    let no_files = |path: &str| -> std::io::Result<String> {
        Err(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("an experiment holds its workload, not a file {path}"),
        ))
    };
    let mut workload = if text.trim_start().starts_with('{') {
        warmcore_workload::from_rtapp("workload", text, &Options::default()).map_err(|error| error.to_string())?
    } else {
        warmcore_workload::resolve(text, &Options::default(), no_files).map_err(|error| error.to_string())?
    };
    workload.duration_ns = Some(duration_ms * 1_000_000);
    Ok(workload)
}

#[cfg(test)]
mod tests;
