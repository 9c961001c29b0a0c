//! An experiment: machine × workload × schedulers × trials, resolved, and its record in `experiment.toml`.
//!
//! Resolved means that nothing is left to defaults: every tunable of every scheduler and every seed is written down.
//! Seeds of trials are derived from the experiment's seed and the trial's number alone, so that trial k has the same one
//! under every scheduler and does not change when trials are added. Whether trials with the same seed are pairs, the place says.
//!
//! What identifies an experiment is a hash of the texts that a run directory holds: `machine.toml`, `workload.json` and the record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use warmcore_options::RunOptions;
use warmcore_places::place::Place;
use warmcore_places::sim;
use warmcore_schedulers::{SchedulerSpec, ScxProgram, TunableInfo, TunableKind};
use warmcore_statistics::Design;
use warmcore_topology::{Machine, SPLIT_MIX_STEP, split_mix};
use warmcore_workload::{Action, Workload};

use crate::builder::ExperimentBuilder;
use crate::column::Column;
use crate::files::{file_of_argument, find_program, sha256, sha256_of_file};
pub use crate::observe::{Observation, virtual_llc_histogram};

/// Version of the record.
pub const SCHEMA: &str = "warmcore-experiment-2";

/// Version of the program, part of everything that identifies a result.
pub const TOOL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Something that was named in a text: what was typed, and what it stands for.
#[derive(Clone, Debug)]
pub struct Named<T> {
    /// What was typed: a name, a path, a generator with its flags.
    pub source: String,
    /// What it stands for.
    pub value: T,
}

/// A resolved experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Where.
    pub machine: Named<Machine>,
    /// What runs.
    pub workload: Named<Workload>,
    /// What is done from outside in each run. No file has it: an experiment with actions has no run directory.
    pub actions: Vec<Action>,
    /// Under which schedulers, in the order of the table.
    pub schedulers: Vec<SchedulerSpec>,
    /// What columns have of their own, by index of the scheduler; all others have what is said here for all.
    pub columns: BTreeMap<usize, Column>,
    /// Index of the scheduler the others are compared with.
    pub baseline: usize,
    /// One seed per trial; trial k of every scheduler has the same one.
    pub seeds: Vec<u64>,
    /// What each run is asked for.
    pub options: RunOptions,
    /// Metric the verdict is about, if not the workload's own.
    pub metric: Option<String>,
    /// Differences up to this fraction do not matter.
    pub margin: f64,
    /// What is looked at beside the usual measures.
    pub observations: Vec<Observation>,
    /// Whether its columns are settings of a kernel that nobody named, so that what helps is to be told.
    pub advised: bool,
    /// In which place.
    pub place: Arc<dyn Place>,
    /// Of an experiment that was kept, what programs were by index of the scheduler; others are what is there now.
    pub kept_programs: Option<BTreeMap<usize, ProgramRecord>>,
}

/// Why an experiment makes no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)] // messages have the fields
pub enum ExperimentError {
    #[error("an experiment needs at least one scheduler")]
    NoScheduler,
    #[error("an experiment needs at least one trial")]
    NoTrial,
    #[error("scheduler `{0}` is there twice with the same settings")]
    SameSchedulerTwice(String),
    #[error("baseline {index} is not among the {count} schedulers")]
    NoBaseline { index: usize, count: usize },
    #[error(
        "`{scheduler}` keeps threads in the LLC they fit into, but machine `{machine}` says nothing about its LLCs; give \
         it caches (`[[cache]]`), or name a preset as its `base`"
    )]
    UnknownLlcs { scheduler: String, machine: String },
}

impl Experiment {
    /// An experiment of a machine and a workload, to be completed and checked.
    pub fn builder(machine: Named<Machine>, workload: Named<Workload>) -> ExperimentBuilder {
        ExperimentBuilder::new(machine, workload)
    }

    /// Checks that the experiment makes sense as a whole.
    ///
    /// # Errors
    /// No schedulers or trials, one scheduler twice, a baseline that is not among them, LLCs of unknown size for a scheduler that
    /// depends on them.
    pub fn check(&self) -> Result<(), ExperimentError> {
        if self.schedulers.is_empty() {
            return Err(ExperimentError::NoScheduler);
        }
        if self.seeds.is_empty() {
            return Err(ExperimentError::NoTrial);
        }
        if self.baseline >= self.schedulers.len() {
            return Err(ExperimentError::NoBaseline { index: self.baseline, count: self.schedulers.len() });
        }
        for (index, spec) in self.schedulers.iter().enumerate() {
            if self.schedulers[..index].contains(spec) {
                return Err(ExperimentError::SameSchedulerTwice(spec.to_string()));
            }
        }
        for (index, spec) in self.schedulers.iter().enumerate().filter(|(_, spec)| spec.info().is_cache_aware) {
            let Named { source, value: machine } = self.machine_of(index);
            if machine.llcs().any(|llc| machine.llc_cache(llc).is_none_or(|cache| cache.size_bytes == 0)) {
                return Err(ExperimentError::UnknownLlcs { scheduler: spec.to_string(), machine: source.clone() });
            }
        }
        Ok(())
    }

    /// How many trials it is.
    pub fn trial_count(&self) -> usize {
        self.schedulers.len() * self.seeds.len()
    }

    /// The machine of a scheduler's column.
    pub fn machine_of(&self, scheduler: usize) -> &Named<Machine> {
        self.columns.get(&scheduler).and_then(|column| column.machine.as_ref()).unwrap_or(&self.machine)
    }

    /// The workload of a scheduler's column.
    pub fn workload_of(&self, scheduler: usize) -> &Named<Workload> {
        self.columns.get(&scheduler).and_then(|column| column.workload.as_ref()).unwrap_or(&self.workload)
    }

    /// The workload, and those of columns that have another one.
    pub fn workloads(&self) -> impl Iterator<Item = &Named<Workload>> {
        let own = self.columns.values().filter_map(|column| column.workload.as_ref());
        std::iter::once(&self.workload).chain(own.filter(|own| own.source != self.workload.source))
    }

    /// A scheduler as the place is asked for it.
    pub fn scheduler_of(&self, scheduler: usize) -> &SchedulerSpec {
        self.columns.get(&scheduler).map_or(&self.schedulers[scheduler], |column| &column.scheduler)
    }

    /// What simulated schedulers do not know of what their workloads ask for, and what tasks then do.
    pub fn unknown(&self) -> impl Iterator<Item = (&SchedulerSpec, String)> {
        let simulated = self.place.kind().simulated;
        let schedulers = self.schedulers.iter().enumerate().filter(move |_| simulated);
        schedulers.flat_map(move |(number, spec)| {
            let unknown = sim::unknown_to(spec, &self.workload_of(number).value);
            unknown.into_iter().map(move |what| (spec, what))
        })
    }

    /// How long after its start nothing of a run counts. It belongs to the workload, as its duration does, so that every place knows it.
    pub fn warm_up_ns(&self, scheduler: usize) -> u64 {
        self.workload_of(scheduler).value.warm_up_ns.unwrap_or(0)
    }

    /// The record of this experiment.
    pub fn record(&self) -> ExperimentRecord {
        self.record_with(&mut |workload, _| SubjectRecord::new(&workload.source, &workload_text(workload)))
    }

    /// The record, where `of_workload` knows that of each workload: the experiment's, or that of a scheduler's column.
    pub(crate) fn record_with(
        &self,
        of_workload: &mut dyn FnMut(&Named<Workload>, Option<usize>) -> SubjectRecord,
    ) -> ExperimentRecord {
        let workload = of_workload(&self.workload, None);
        let schedulers = self.schedulers.iter().enumerate().map(|(index, spec)| {
            let column = self.columns.get(&index);
            let program = self.program_record(index, spec);
            SchedulerRecord {
                label: spec.to_string(),
                resolved: resolved_text(spec, self.machine_of(index).value.cpu_count()),
                program_sha256: program.as_ref().map(|program| program.sha256.clone()),
                program_files: program.map(|program| program.files).unwrap_or_default(),
                machine: column.and_then(|column| column.machine.as_ref()).map(SubjectRecord::of_machine),
                workload: column.and_then(|column| column.workload.as_ref()).map(|own| of_workload(own, Some(index))),
            }
        });
        ExperimentRecord {
            schema: SCHEMA.into(),
            tool_version: TOOL_VERSION.into(),
            place: self.place.identity(),
            design: self.place.design(),
            baseline: self.schedulers[self.baseline].to_string(),
            margin: self.margin,
            metric: self.metric.clone(),
            options: RunOptions { warm_up_ns: self.workload.value.warm_up_ns, ..self.options },
            seeds: self.seeds.clone(),
            observations: self.observations.clone(),
            advised: self.advised,
            makings: self.place.record(),
            machine: SubjectRecord::of_machine(&self.machine),
            workload,
            actions: self.actions.clone(),
            schedulers: schedulers.collect(),
        }
    }
}

impl Experiment {
    /// What identifies the program that the simulator runs as this scheduler, when it was kept or now; `None` if there is none, or it is gone.
    fn program_record(&self, index: usize, spec: &SchedulerSpec) -> Option<ProgramRecord> {
        match &self.kept_programs {
            Some(kept) => kept.get(&index).cloned(),
            None => ProgramRecord::now(spec.program().filter(|_| self.place.kind().simulated)?),
        }
    }

    /// Whether a trial of a scheduler can be had again without starting a program of somebody's.
    pub fn is_repeatable(&self, scheduler: usize) -> bool {
        self.place.repeatable() && self.scheduler_of(scheduler).program().is_none()
    }
}

/// A scheduler with every tunable as it is on a machine with so many CPUs, as [`SchedulerSpec::parse`] reads it.
pub(crate) fn resolved_text(spec: &SchedulerSpec, cpus: usize) -> String {
    if spec.program().is_some() {
        return spec.to_string();
    }
    // A word of a choice is its number, as it has always been: texts of older runs stay what they were.
    let text = |(tunable, (name, value)): (&TunableInfo, (&str, u64))| match tunable.kind {
        TunableKind::Choice { .. } => format!("{name}={value}"),
        _ => format!("{name}={}", tunable.text(value)),
    };
    let settings: Vec<String> = spec.info().tunables().zip(spec.effective(cpus)).map(text).collect();
    let text =
        if settings.is_empty() { spec.name().to_owned() } else { format!("{}:{}", spec.name(), settings.join(",")) };
    let circumstances = spec.circumstances();
    if circumstances.is_default() { text } else { format!("{text} @ {circumstances}") }
}

/// The text of `workload.json`. It does not hold the workload's name, so a copy of a file is the same workload. One that has no form
/// in a file has no run directory either; its trials are never taken over from one.
fn workload_text(workload: &Named<Workload>) -> String {
    warmcore_workload::to_rtapp(&workload.value).unwrap_or_else(|error| format!("{}: {error}", workload.source))
}

/// The record of an experiment: `experiment.toml`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub tool_version: String,
    /// Where trials run: the name of a place, and what its results depend on.
    pub place: String,
    /// How trials of two schedulers belong together.
    pub design: Design,
    /// Label of the baseline.
    pub baseline: String,
    /// Metric of the verdict, if it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Differences up to this fraction do not matter.
    #[serde(default = "default_margin")]
    pub margin: f64,
    /// What each run is asked for. `workload.json` has the warm-up too.
    #[serde(flatten)]
    pub options: RunOptions,
    /// Seed of each trial.
    pub seeds: Vec<u64>,
    /// What is looked at beside the usual measures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observations: Vec<Observation>,
    /// Whether its columns are settings of a kernel that nobody named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub advised: bool,
    /// What the place is made of, if its name does not say all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makings: Option<toml::Table>,
    /// The machine.
    pub machine: SubjectRecord,
    /// The workload.
    pub workload: SubjectRecord,
    /// What is done from outside in each run, which is not in the file.
    #[serde(skip)]
    pub actions: Vec<Action>,
    /// The schedulers.
    pub schedulers: Vec<SchedulerRecord>,
}

fn default_margin() -> f64 {
    crate::verdict::DEFAULT_MARGIN
}

impl ExperimentRecord {
    /// What a trial depends on, as one hash: a trial file with this hash needs not be run again.
    pub fn trial_hash(&self, scheduler: usize, seed: u64) -> String {
        // Numbers, names and lists of them can always be written.
        let json = |options: &RunOptions| serde_json::to_string(options).unwrap_or_default();
        let RunOptions { memory, max_time_ns, trace, .. } = self.options;
        let bounds = serde_json::to_string(&(max_time_ns, trace, &self.observations)).unwrap_or_default();
        // Whatever else is asked for and recorded counts if it is asked for. The workload has the warm-up; scores change no trial.
        let known = RunOptions { memory, max_time_ns, trace, ..RunOptions::default() };
        let options = json(&RunOptions { warm_up_ns: None, scores_every_ns: None, ..self.options });
        let others = (options != json(&known)).then_some(options);
        let seed = seed.to_string();
        let mut parts = vec![
            crate::trial::SCHEMA,
            &self.tool_version,
            &self.place,
            &self.machine.sha256,
            &self.workload.sha256,
            &self.schedulers[scheduler].resolved,
            &seed,
            memory.name(),
            &bounds,
        ];
        let own = &self.schedulers[scheduler];
        parts.extend(own.program_sha256.as_deref());
        parts.extend(own.program_files.values().map(String::as_str));
        parts.extend([&own.machine, &own.workload].into_iter().flatten().map(|subject| subject.sha256.as_str()));
        parts.extend(others.as_deref());
        sha256(parts.join("\n").as_bytes())
    }

    /// The text of `experiment.toml`.
    pub fn to_toml(&self) -> String {
        // Numbers, texts and lists of them can always be written: tables stand after values.
        toml::to_string(self).unwrap_or_default()
    }

    /// A short name for this experiment, equal for equal experiments.
    pub fn short_hash(&self) -> String {
        let mut hash = sha256(self.to_toml().as_bytes());
        hash.truncate(8);
        hash
    }

    pub(crate) fn baseline_index(&self) -> Option<usize> {
        self.schedulers.iter().position(|scheduler| scheduler.label == self.baseline)
    }
}

/// A machine or a workload, in a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectRecord {
    /// What was typed.
    pub source: String,
    /// SHA-256 of its file in the run directory.
    pub sha256: String,
}

impl SubjectRecord {
    pub(crate) fn new(source: &str, text: &str) -> Self {
        Self { source: source.to_owned(), sha256: sha256(text.as_bytes()) }
    }

    /// Writes and hashes a machine only if it is another one than the last: the experiments of a study often share theirs, and each has its
    /// record made several times.
    fn of_machine(machine: &Named<Machine>) -> Self {
        static LAST: Mutex<Option<(Machine, String)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, sha256)) = &*last
            && *known == machine.value
        {
            return Self { source: machine.source.clone(), sha256: sha256.clone() };
        }
        let record = Self::new(&machine.source, &warmcore_topology::to_toml(&machine.value));
        *last = Some((machine.value.clone(), record.sha256.clone()));
        record
    }

    /// Of a workload that was read from a text.
    pub(crate) fn of_workload_read(workload: &Named<Workload>, text: &str) -> Self {
        match warmcore_workload::is_as_written(&workload.value, text) {
            true => Self::new(&workload.source, text),
            false => Self::new(&workload.source, &workload_text(workload)),
        }
    }
}

/// A scheduler, in a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerRecord {
    /// Name and settings that differ from the defaults; names it in tables.
    pub label: String,
    /// With every tunable.
    pub resolved: String,
    /// SHA-256 of its program, if the simulator runs one: results depend on what is in it. (Guests record programs with their makings.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_sha256: Option<String>,
    /// SHA-256 of files that the program's arguments name, by argument.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub program_files: BTreeMap<String, String>,
    /// The machine of its column, if it is not the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<SubjectRecord>,
    /// The workload of its column, if it is not the experiment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<SubjectRecord>,
}

/// What identifies a program of the user's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramRecord {
    /// SHA-256 of the program.
    pub sha256: String,
    /// SHA-256 of files that its arguments name, by argument.
    pub files: BTreeMap<String, String>,
}

impl ProgramRecord {
    /// What a program is now, if it is there.
    pub(crate) fn now(program: &ScxProgram) -> Option<Self> {
        let sha256 = sha256_of_file(&find_program(&program.program)).ok()?;
        let sum = |argument: &String| {
            let file = file_of_argument(argument)?;
            Some((argument.clone(), sha256_of_file(file).ok()?))
        };
        Some(Self { sha256, files: program.arguments.iter().filter_map(sum).collect() })
    }

    /// What differs from what it was, in words: nothing if it is the same.
    pub(crate) fn change(then: &Self, now: Option<&Self>) -> Option<String> {
        let Some(now) = now else { return Some(format!("it is gone (its SHA-256 was {})", then.sha256)) };
        if then.sha256 != now.sha256 {
            return Some(format!("the program was changed (SHA-256 {} then, {} now)", then.sha256, now.sha256));
        }
        let mut names = then.files.keys().chain(now.files.keys());
        let changed = names.find(|name| then.files.get(*name) != now.files.get(*name))?;
        let [before, today] = [then, now].map(|of| of.files.get(changed).map_or("no file", String::as_str));
        Some(format!(
            "the file of its argument `{changed}` was changed, or is gone (SHA-256 {before} then, {today} now)"
        ))
    }
}

/// Most trials of a scheduler that one experiment is asked for.
pub const MOST_TRIALS: u32 = 10_000;

/// The seeds of trials `0..count`, derived from the experiment's seed.
///
/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014), at position k of the sequence that starts at `seed`: well mixed,
/// and seeds of one experiment do not depend on how many there are. Cut to 53 bits, which JSON readers keep exactly.
pub fn trial_seeds(seed: u64, count: u32) -> Vec<u64> {
    let mix = |index: u64| split_mix(seed.wrapping_add((index + 1).wrapping_mul(SPLIT_MIX_STEP))) >> 11;
    (0..u64::from(count)).map(mix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_memory::exact::PagingSpec;
    use warmcore_options::{MemoryChoice, TraceLevel};

    fn record(options: RunOptions) -> ExperimentRecord {
        let machine = Named { source: "m".into(), value: warmcore_topology::resolve("1s1n1l2c1t").unwrap() };
        let workload = warmcore_workload::from_generator("spin:-n1,-d1ms").unwrap();
        let builder = Experiment::builder(machine, Named { source: "w".into(), value: workload }).seeds(vec![1]);
        let experiment = builder.schedulers(vec![SchedulerSpec::parse("rr").unwrap()]).build().unwrap().experiment;
        ExperimentRecord { options, ..experiment.record() }
    }

    #[test]
    fn options_are_lines_of_the_record_and_come_back_from_it() {
        let paged = MemoryChoice::ExactPaged(PagingSpec { tlb_entries: 64, ..PagingSpec::default() });
        let all = RunOptions {
            memory: paged,
            max_time_ns: Some(u64::MAX >> 1),
            warm_up_ns: Some(3),
            trace: TraceLevel::Full,
            scores_every_ns: Some(4),
            ..RunOptions::default()
        };
        let lines =
            "max_time_ns = 9223372036854775807\nwarm_up_ns = 3\ntrace = \"full\"\nscores_every_ns = 4\nseeds = [1]\n";
        let text = record(all).to_toml();
        assert!(text.contains(lines) && text.contains("[memory.exact_paged]\n"), "{text}");
        assert!(record(RunOptions::default()).to_toml().contains("memory = \"none\"\ntrace = \"counters\"\nseeds"));
        for options in [all, RunOptions::default()] {
            assert_eq!(toml::from_str(&record(options).to_toml()), Ok(record(options)));
        }
        let unknown = text.replacen("trace =", "surprise = 1\ntrace =", 1);
        let error = toml::from_str::<ExperimentRecord>(&unknown).unwrap_err().to_string();
        assert!(error.contains("unknown field `surprise`"), "{error}");
    }

    #[test]
    fn what_changes_no_result_changes_no_hash_of_trials() {
        let hash = |options| record(options).trial_hash(0, 1);
        let plain = RunOptions::default();
        assert_eq!(hash(RunOptions { scores_every_ns: Some(1), balance_details: true, ..plain }), hash(plain));
        assert_ne!(hash(RunOptions { max_time_ns: Some(1), ..plain }), hash(plain));
        assert_ne!(hash(RunOptions { memory: MemoryChoice::Analytic, ..plain }), hash(plain));
    }

    #[test]
    fn the_hash_of_a_machine_is_its_own_whichever_came_before() {
        for text in ["1s1n1l2c1t", "1s1n1l4c1t", "1s1n1l4c1t", "1s1n1l2c1t"] {
            let machine = Named { source: text.to_owned(), value: warmcore_topology::resolve(text).unwrap() };
            let own = SubjectRecord::new(text, &warmcore_topology::to_toml(&machine.value));
            assert_eq!(SubjectRecord::of_machine(&machine), own);
        }
    }

    #[test]
    fn seeds_do_not_depend_on_the_number_of_trials() {
        let many = trial_seeds(1, 20);
        assert_eq!(trial_seeds(1, 5), many[..5]);
        assert_ne!(trial_seeds(2, 5), many[..5]);
    }

    #[test]
    fn seeds_are_the_published_generators_and_fit_into_json() {
        // First outputs of SplitMix64 for seed 0, from the reference implementation, without their low 11 bits.
        let reference: [u64; 3] = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(trial_seeds(0, 3), reference.map(|value| value >> 11));
        assert!(trial_seeds(7, 1000).iter().all(|seed| *seed < 1 << 53));
    }
}
