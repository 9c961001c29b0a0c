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
//! | `schedulers` | one or more |
//! | `duration_ms` | end of the run |
//! | `from_ms` | beginning of the window of metrics; 0 by default |
//! | `buffer_kib` | trace buffer per CPU; 4096 by default |
//! | `note` | what a reader of the chapter should know: what the experiment shows, what differs between boots |
//! | `[outside]` | of comparisons outside their bounds: `why`, as far as it is known, and what would `settle` it |
//! | `[[check]]` | `metric`, a bound (`relative` or `absolute`), and what the metric needs (`at_ms`, `within`) |
//! | `[[control]]` | a deliberately wrong model: `name`, `scheduler` or `workload` to simulate instead, and the `metrics` that must reject it |

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_workload::{Options, Workload};

use super::metric::{Detail, Metric};
use warmcore_lab::files::{FileError, read_text};

/// Version of the format.
pub const SCHEMA: &str = "warmcore-book-1";

/// Why an experiment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
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
    outside: Option<Cause>,
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
}

impl Bound {
    /// The distance of two values in the bound's terms.
    #[must_use]
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
        }
    }

    /// The largest error that is inside.
    #[must_use]
    pub fn limit(self) -> f64 {
        let (Self::Relative(limit) | Self::Absolute(limit)) = self;
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
    /// Index of the scheduler, or all of them.
    pub scheduler: Option<usize>,
}

impl Check {
    /// Its name within the experiment: the metric, with its instants where it has some.
    #[must_use]
    pub fn key(&self, schedulers: &[SchedulerSpec]) -> String {
        let of = self.scheduler.map(|index| format!(" ({})", schedulers[index])).unwrap_or_default();
        format!("{}{of}", self.metric.name())
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
    /// The machine.
    pub machine: Machine,
    /// What runs.
    pub workload: Workload,
    /// Under which schedulers.
    pub schedulers: Vec<SchedulerSpec>,
    /// End of the run.
    pub duration_ns: u64,
    /// Trace buffer, KiB per CPU.
    pub buffer_kib: u32,
    /// What a reader of the chapter should know.
    pub note: String,
    /// Why comparisons are outside their bounds, if any is.
    pub outside: Option<Cause>,
    /// Comparisons.
    pub checks: Vec<Check>,
    /// Wrong models.
    pub controls: Vec<Control>,
    /// Identifies machine, workload, schedulers, duration and window: stored results are of this very experiment.
    pub identity: String,
}

impl BookExperiment {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is not what it should be, with the reason.
    pub fn read(path: &Path) -> Result<Self, BookError> {
        let text = read_text(path)?;
        Self::parse(path, &text).map_err(|reason| BookError::Invalid { path: path.to_path_buf(), reason })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
        if document.schema != SCHEMA {
            return Err(format!("its schema is `{}`, not {SCHEMA}", document.schema));
        }
        if document.checks_nothing() {
            return Err("it has no [[check]] or no scheduler".into());
        }
        let machine = warmcore_topology::resolve(&document.machine).map_err(|error| error.to_string())?;
        let workload = workload(&document.workload, document.duration_ms)?;
        let spec = |text: &String| SchedulerSpec::parse(text).map_err(|error| error.to_string());
        let schedulers: Vec<SchedulerSpec> = document.schedulers.iter().map(spec).collect::<Result<_, _>>()?;
        let from_ns = document.from_ms * 1_000_000;
        let check = |check: &CheckDocument| {
            let bound = match (check.relative, check.absolute) {
                (Some(limit), None) => Bound::Relative(limit),
                (None, Some(limit)) => Bound::Absolute(limit),
                _ => return Err(format!("check of {}: give `relative` or `absolute`", check.metric.name())),
            };
            let position = |text: &String| {
                let wanted = spec(text)?;
                let found = schedulers.iter().position(|known| *known == wanted);
                found.ok_or_else(|| format!("`{text}` is not among the schedulers"))
            };
            let scheduler = check.scheduler.as_ref().map(position).transpose()?;
            let detail = Detail { at_ms: check.at_ms.clone(), within: check.within, from_ns };
            Ok(Check { metric: check.metric, bound, detail, scheduler })
        };
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
        let identity =
            format!("{} {:?} {duration_ms} {:?} {from_ms}", document.machine, document.workload, document.schedulers);
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            checks: document.check.iter().map(check).collect::<Result<_, _>>()?,
            controls: document.control.iter().map(control).collect::<Result<_, _>>()?,
            title: document.title,
            group: document.group,
            checklist: document.checklist,
            machine_text: document.machine,
            machine,
            workload,
            schedulers,
            duration_ns: document.duration_ms * 1_000_000,
            buffer_kib: document.buffer_kib,
            note: document.note,
            outside: document.outside,
            identity: warmcore_lab::files::sha256(identity.as_bytes()),
        })
    }

    /// Checks that are about a scheduler.
    pub fn checks_of(&self, scheduler: usize) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.scheduler.is_none_or(|only| only == scheduler))
    }
}

impl Document {
    fn checks_nothing(&self) -> bool {
        self.check.is_empty() || self.schedulers.is_empty()
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
mod tests {
    use super::*;

    const TEXT: &str = r#"
        schema = "warmcore-book-1"
        title = "two spinners"
        group = "shares"
        machine = "1s1n1l1c1t"
        workload = "spin:-n2"
        schedulers = ["eevdf"]
        duration_ms = 500
        [[check]]
        metric = "cpu_share"
        relative = 0.01
        [[control]]
        name = "slices doubled"
        scheduler = "eevdf:base_slice_ns=1400000"
        metrics = ["slice_mean_ns"]
    "#;

    #[test]
    fn an_experiment_is_read_and_ends_when_it_says() {
        let experiment = BookExperiment::parse(Path::new("book/shares.toml"), TEXT).unwrap();
        assert_eq!((experiment.name.as_str(), experiment.workload.duration_ns), ("shares", Some(500_000_000)));
        assert_eq!(experiment.checks[0].bound, Bound::Relative(0.01));
        assert_eq!(experiment.controls[0].metrics, [Metric::SliceMeanNs]);
    }

    #[test]
    fn mistakes_are_named() {
        let refusal =
            |from: &str, to: &str| BookExperiment::parse(Path::new("x"), &TEXT.replace(from, to)).unwrap_err();
        assert!(refusal("relative = 0.01", "").contains("`relative` or `absolute`"));
        assert!(refusal("book-1", "book-9").contains("warmcore-book-9"));
        assert!(refusal("cpu_share", "cpu_shares").contains("cpu_shares"));
        assert!(refusal("spin:-n2", "spun:-n2").contains("spun"));
        assert!(refusal("title", "titel").contains("titel"));
    }

    #[test]
    fn errors_are_in_the_terms_of_their_bound() {
        assert_eq!(Bound::Relative(0.1).error(11.0, 10.0), 0.1);
        assert_eq!(Bound::Relative(0.1).error(0.0, 0.0), 0.0);
        assert_eq!(Bound::Relative(0.1).error(1.0, 0.0), f64::INFINITY);
        assert_eq!(Bound::Absolute(5.0).error(11.0, 10.0), 1.0);
    }
}
