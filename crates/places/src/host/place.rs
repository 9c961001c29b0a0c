//! This computer as a place. Trials come in blocks, and in each block every scheduler runs once, in an order by chance, so that what
//! drifts concerns all alike. One trial at a time.
//!
//! Before a trial the state it wants is established, and after it undone, on every way out ([`journal`](super::journal)). Workloads of
//! tasks run as real threads of a process of their own; commands are themselves.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warmcore_agent::plan::Setting;
use warmcore_schedulers::{Circumstances, SchedulerSpec};
use warmcore_statistics::Design;
use warmcore_topology::{Machine, parse_cpu_list};
use warmcore_trace::Sink;
use warmcore_workload::{Workload, to_rtapp};

use super::counters;
use super::journal::{Journal, JournalError, Undone};
use super::leftovers;
use super::outcome::{Made, of_command, of_workload};
use super::recorder::{self, Recorder};
use super::state::{Means, StateError, Wanted};
use super::trial::{self, Task, Trial, TrialError};
use crate::circumstances;
use crate::files::{At as _, pretty};
use crate::place::{
    BatchConduct, Conditions, DEFAULT_BUFFER_KIB, Place, PlaceError, PlaceKind, Request, Run, Take, Trouble,
    check_background,
};
use crate::vm::kernel::Abilities;
use crate::vm::settings::settings_of;

/// Its row in the registry.
pub static KIND: PlaceKind = PlaceKind {
    name: "host",
    summary: "this computer",
    needs: "root for whatever changes it, and to record: `warmcore doctor host`",
    clock: ("mono", "time"),
    host: "host",
    simulated: false,
    keeps_to_cpus: true,
    events_cost_time: true,
    unmeasured: "what the kernel's events do not show: caches, memory, and why a task was moved. Run times are real, and so is whatever else \
                 went on. Nothing in this page is simulated.",
    open: Some(|options, _| {
        let elsewhere = || {
            PlaceError::new(
                Trouble::Unfit,
                CODE,
                "only comparisons and studies run there",
                "use `warmcore compare --on host`",
            )
        };
        Ok(Arc::new(Host::new(options.host.clone().ok_or_else(elsewhere)?)))
    }),
    past: |table| {
        let manner = table.and_then(|table| table.clone().try_into::<Manner>().ok());
        let missing = || PlaceError::new(Trouble::Unfit, CODE, "it does not say how trials were made", ANEW);
        Ok(Arc::new(Host { manner: manner.ok_or_else(missing)? }))
    },
};

/// Where the journal is: it must be there after a crash.
pub const JOURNAL: &str = "/var/lib/warmcore/host";
/// This computer's files.
pub const ROOT: &str = "/";
const CODE: &str = "warmcore::host";
const ANEW: &str = "start the experiment again, in another directory";
const DOCTOR: &str = "`warmcore doctor host` says what is possible here";
/// Directory of what this computer was like, in a run directory.
const CONDITIONS: &str = "host";
/// Longest time of a trial, if nobody says one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(600);
/// A workload's threads end by themselves at the largest time; beyond this they hang.
const GRACE: Duration = Duration::from_secs(60);
/// Events handed to a sink at a time.
const BATCH: usize = 4096;

/// How trials are made: what their results depend on, and what a run needs to go on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manner {
    /// `uname -r`.
    pub release: String,
    /// How CPUs are kept from a trial.
    pub means: Means,
    /// Rounds of all schedulers before the first trial, which do not count.
    pub warm_up_rounds: u32,
    /// Program and first arguments of what runs a workload's file with real threads and prints a [`ProcessReport`](warmcore_agent::report::ProcessReport).
    pub runner: Vec<String>,
    /// Files of the kernel, and what every trial has there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// End a sched_ext scheduler that is at work for each trial, and start it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// This computer.
#[derive(Clone, Debug)]
pub struct Host {
    manner: Manner,
}

/// The kernel's release, as `uname -r` says it.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

impl Place for Host {
    fn kind(&self) -> &'static PlaceKind {
        &KIND
    }

    fn identity(&self) -> String {
        let Manner { release, means, warm_up_rounds, settings, .. } = &self.manner;
        let means = match means {
            Means::Affinity => "affinity",
            Means::Partition => "partition",
            Means::Offline => "offline",
        };
        let settings: String = settings.iter().map(|(path, value)| format!(", {path}={value}")).collect();
        format!("{}: kernel {release}, CPUs by {means}, warm-up {warm_up_rounds}{settings}", KIND.name)
    }

    fn record(&self) -> Option<toml::Table> {
        toml::Table::try_from(&self.manner).ok()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![("kernel", self.manner.release.clone())]
    }

    fn design(&self) -> Design {
        Design::Blocked
    }

    fn reopen(self: Arc<Self>) -> Result<Arc<dyn Place>, PlaceError> {
        let now = release();
        if now != self.manner.release {
            let message = format!("it ran under kernel {}, and this is {now}", self.manner.release);
            return Err(PlaceError::new(Trouble::Unfit, CODE, message, ANEW));
        }
        Ok(self)
    }

    fn check(&self, requests: &[Request<'_>]) -> Result<(), PlaceError> {
        for request in requests {
            if !std::ptr::eq(request.machine, requests[0].machine) {
                let message = format!("`{}` asks for another machine than this computer", request.scheduler);
                return Err(PlaceError::new(
                    Trouble::Unfit,
                    CODE,
                    message,
                    "compare machines with --on sim or --on vm",
                ));
            }
            check(request)?;
            self.wanted(request.machine, request.scheduler)?.check(request.machine, Path::new(ROOT))?;
            if let Some(program) = request.workload.command.first() {
                exists(program)?;
            }
        }
        Ok(())
    }

    fn run(&self, requests: &[Request<'_>], conduct: &BatchConduct, take: &Take<'_>) -> Result<(), PlaceError> {
        let recorder = match requests.iter().any(|request| request.options.wants_events()) {
            // Those of the kernel cost a trial little; those of the processor are asked for where nothing is compared.
            true => Some(Recorder::begin(recorder::Wanted {
                counters: Some(counters::Wanted::Software),
                ..recorder::Wanted::default()
            })?),
            false => None,
        };
        let result = self.run_blocks(requests, conduct, take, recorder.as_ref());
        let ended = recorder.map_or(Ok(()), Recorder::end);
        result.and(ended)
    }
}

/// Positions of requests that make a block: neighbours with the same seed.
fn blocks(requests: &[Request<'_>]) -> Vec<Vec<usize>> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        match blocks.last_mut().filter(|block| requests[block[0]].seed == request.seed) {
            Some(block) => block.push(position),
            None => blocks.push(vec![position]),
        }
    }
    blocks
}

/// Numbers below `count` in an order by chance (Fisher-Yates, xorshift64*).
fn order(count: usize, state: &mut u64) -> Vec<usize> {
    let mut next = || {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (next() % (last as u64 + 1)) as usize);
    }
    order
}

/// What can be known to be wrong with a request.
fn check(request: &Request<'_>) -> Result<(), PlaceError> {
    check_background(request)?;
    let unfit = |message: String, advice| Err(PlaceError::new(Trouble::Unfit, CODE, message, advice));
    if request.options.scores_every_ns.is_some() {
        return unfit("a real kernel does not report what it ranks tasks by".into(), "record without: --trace full");
    }
    if let Some(reason) = request.workload.refused_by_threads() {
        return unfit(reason, "run it with --on sim, or make it a latch");
    }
    if request.changes_cpus() {
        let message = "CPUs of this computer are not taken offline: they are not this program's alone, and one that does not come back stays away";
        return unfit(message.into(), "run it with --on vm or --on sim, or leave out \"hotplug\"");
    }
    if !request.workload.isolcpus.is_empty() || !request.workload.nohz_full.is_empty() {
        let message = "CPUs of this computer are isolated when it boots, or not at all";
        return unfit(message.into(), "run it with --on vm or --on sim, or leave out \"isolcpus\" and \"nohz_full\"");
    }
    if !request.actions.is_empty() {
        return unfit("nothing is done from outside of trials here".into(), "run it with --on vm");
    }
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online: BTreeSet<u32> = parse_cpu_list(online.trim()).unwrap_or_default().into_iter().collect();
    let asked: BTreeSet<u32> = request.machine.cpus().map(|cpu| request.machine.os_index(cpu)).collect();
    if asked != online {
        let message = format!("`{}` is another machine than this computer", request.machine.name());
        return unfit(message, "leave out --machine, or say `host`");
    }
    Ok(())
}

/// A program that does not exist would only be known to the shell that starts it.
fn exists(program: &str) -> Result<(), PlaceError> {
    let found = match program.contains('/') {
        true => Path::new(program).is_file(),
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
        }
    };
    let missing = || {
        PlaceError::new(
            Trouble::Unfit,
            CODE,
            format!("there is no program {program}"),
            "check its name, or give its path",
        )
    };
    if found { Ok(()) } else { Err(missing()) }
}

/// What is known of a trial besides its times.
#[derive(Serialize)]
struct TrialFacts<'a> {
    scheduler: String,
    trial: &'a Trial,
    settings: &'a [(String, String)],
}

impl Host {
    /// This computer, with trials made in this manner.
    pub fn new(manner: Manner) -> Self {
        Self { manner }
    }

    /// The state that a trial needs, and what it changes.
    ///
    /// # Errors
    /// Circumstances, tunables or CPUs that there are none of here.
    pub fn wanted(&self, machine: &Machine, scheduler: &SchedulerSpec) -> Result<Wanted, PlaceError> {
        let Circumstances { governor, numa_balancing, kernel, .. } = scheduler.circumstances();
        let unfit = |message: String| PlaceError::new(Trouble::Unfit, CODE, message, DOCTOR);
        if let Some(kernel) = kernel {
            let message =
                format!("`{scheduler}`: this computer runs one kernel, and there is no choice of `kernel={kernel}`");
            return Err(PlaceError::new(Trouble::Unfit, CODE, message, "kernels are compared with --on vm"));
        }
        let cpus = circumstances::cpus_of(scheduler.circumstances(), machine).map_err(unfit)?;
        let mut settings = settings_of(scheduler, &abilities(Path::new(ROOT)))?;
        let setting = |path: String, value: &str| Setting { path, value: value.to_owned(), required: true };
        settings.extend(self.manner.settings.iter().map(|(path, value)| setting(path.clone(), value)));
        // A CPU that is offline has no governor.
        let governed = match (&cpus, self.manner.means) {
            (Some(cpus), Means::Offline) => cpus,
            _ => machine.all_cpus(),
        };
        if let Some(governor) = governor {
            let file = |cpu| format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", machine.os_index(cpu));
            settings.extend(governed.iter().map(|cpu| setting(file(cpu), governor)));
        }
        if let Some(on) = numa_balancing {
            settings.push(setting("/proc/sys/kernel/numa_balancing".into(), if *on { "1" } else { "0" }));
        }
        settings.extend(circumstances::files_of(scheduler.circumstances()));
        let Manner { means, replace, .. } = self.manner;
        Ok(Wanted { program: scheduler.program().cloned(), cpus, means, settings, replace })
    }

    fn run_blocks(
        &self,
        requests: &[Request<'_>],
        conduct: &BatchConduct,
        take: &Take<'_>,
        recorder: Option<&Recorder>,
    ) -> Result<(), PlaceError> {
        let mut warm_up_rounds = self.manner.warm_up_rounds;
        for block in blocks(requests) {
            let mut random = requests[block[0]].seed;
            while warm_up_rounds > 0 {
                for index in order(block.len(), &mut random) {
                    self.one(&requests[block[index]], conduct, None)?;
                }
                warm_up_rounds -= 1;
            }
            for index in order(block.len(), &mut random) {
                let position = block[index];
                if conduct.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let recorder = recorder.filter(|_| requests[position].options.wants_events());
                let flow = match self.one(&requests[position], conduct, recorder) {
                    Err(error) => take(position, Err(error)),
                    Ok(made) => {
                        let run = Run::new(&made.tables, made.seconds, |sink: Option<&mut dyn Sink>| {
                            if let Some(sink) = sink {
                                for batch in made.events.chunks(BATCH) {
                                    sink.events(batch).map_err(warmcore_kernel::SimulationError::Sink)?;
                                }
                            }
                            Ok(made.report.clone())
                        });
                        take(position, Ok(run))
                    }
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One trial, with this computer as it was before and afterwards.
    fn one(
        &self,
        request: &Request<'_>,
        conduct: &BatchConduct,
        recorder: Option<&Recorder>,
    ) -> Result<Made, PlaceError> {
        let start = Instant::now();
        if conduct.stop.load(Ordering::Relaxed) {
            return Err(PlaceError::interrupted());
        }
        let wanted = self.wanted(request.machine, request.scheduler)?;
        let program = StartedWorkload::new(request.workload, &self.manner, request.options.max_time_ns)?;
        let mut journal = Journal::begin(Path::new(JOURNAL), Path::new(ROOT))?;
        let result = wanted.establish(request.machine, Path::new(ROOT), &mut journal).map_err(PlaceError::from);
        let result = result.and_then(|mut established| {
            let buffer_kib = request.options.buffer_kib.unwrap_or(DEFAULT_BUFFER_KIB);
            let task = Task {
                command: &program.command,
                bounds: &established.bounds,
                limit: program.limit,
                stop: &conduct.stop,
                recorder: recorder.map(|recorder| (recorder, buffer_kib)),
            };
            let (trial, recorded) = trial::run(&task)?;
            established.check()?;
            Ok((trial, recorded, settings(&wanted)))
        });
        // The scheduler's loader has ended with what was established.
        let undone = journal.undo();
        if let Some(bad) = undone.iter().find(|change| !change.is_good()) {
            return Err(not_restored(bad));
        }
        let (trial, recorded, settings) = result?;
        let recording = recorded.as_ref().map(recorder::recording).transpose()?;
        let mut made = match request.workload.command.is_empty() {
            true => of_workload(request, &trial, recording.as_ref(), wanted.cpus.as_ref()),
            false => of_command(request, &trial, recording.as_ref(), wanted.cpus.as_ref()),
        }?;
        made.seconds = start.elapsed().as_secs_f64();
        let facts = TrialFacts { scheduler: request.scheduler.to_string(), trial: &trial, settings: &settings };
        made.report.conditions = Some(Conditions { directory: CONDITIONS, json: pretty(&facts) });
        // Of a whole process it is what the kernel says of it when it has ended; of what comes after a warm-up, what its threads say.
        let cpu_time_ns = match made.report.outcome.warm_up_ns {
            0 => 1e9 * trial.cpu_s,
            _ => made.report.outcome.tasks.iter().map(|task| task.cpu_time_ns as f64).sum(),
        };
        made.report.measured = vec![
            ("others_cpus", trial.noise.others_cpus),
            ("steal_cpus", trial.noise.steal_cpus),
            ("cpu_time_ns", cpu_time_ns),
        ];
        made.report.settings = settings;
        made.report.notes.extend(trial.left_behind.iter().map(|(name, pid)| {
            format!("the command left {name} (process {pid}) running, which takes time from the trials after it")
        }));
        Ok(made)
    }
}

/// Settings in force, read back.
fn settings(wanted: &Wanted) -> Vec<(String, String)> {
    let read = |setting: &Setting| {
        Some((setting.path.clone(), std::fs::read_to_string(&setting.path).ok()?.trim().to_owned()))
    };
    wanted.settings.iter().filter_map(read).collect()
}

/// What the running kernel can do, as far as its files say.
fn abilities(root: &Path) -> Abilities {
    Abilities {
        hz: None,
        cache_aware: root.join("sys/kernel/debug/sched/llc_balancing/enabled").exists(),
        sched_ext: root.join("sys/kernel/sched_ext/state").exists(),
        numa_balancing: root.join("proc/sys/kernel/numa_balancing").exists(),
    }
}

struct StartedWorkload {
    command: Vec<OsString>,
    limit: Duration,
    /// The workload's file, removed at the end.
    file: Option<PathBuf>,
}

impl StartedWorkload {
    fn new(workload: &Workload, manner: &Manner, max_time_ns: Option<u64>) -> Result<Self, PlaceError> {
        let asked = max_time_ns.map(Duration::from_nanos);
        if !workload.command.is_empty() {
            let command = workload.command.iter().map(OsString::from).collect();
            return Ok(Self { command, limit: asked.unwrap_or(DEFAULT_LIMIT), file: None });
        }
        let unfit = |error| PlaceError::new(Trouble::Unfit, CODE, error, "a workload's names must differ");
        let text = to_rtapp(workload).map_err(unfit)?;
        let path = leftovers::temporary("workload.json");
        let failed = |error| PlaceError::new(Trouble::Failed, CODE, error, "is the disk full?");
        // A new file: whoever may write there may have put a link in its place.
        let written = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.at("write", &path).map_err(failed)?;
        let mut command: Vec<OsString> = manner.runner.iter().map(OsString::from).collect();
        command.push(path.clone().into());
        let limit = asked.unwrap_or(DEFAULT_LIMIT);
        command.extend(["--max-time".into(), format!("{}ns", limit.as_nanos()).into()]);
        Ok(Self { command, limit: limit + GRACE, file: Some(path) })
    }
}

impl Drop for StartedWorkload {
    fn drop(&mut self) {
        // What cannot be removed lies in a directory for such files.
        self.file.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn not_restored(change: &Undone) -> PlaceError {
    let message = match change {
        Undone::Left { path, present, old } => {
            format!("/{path} is `{present}`, which another program set since; it was `{old}`")
        }
        Undone::Failed { path, reason } => format!("/{path} is not as it was: {reason}"),
        Undone::Restored(path) | Undone::Unchanged(path) => format!("/{path}"),
    };
    let advice = "the journal is kept: `warmcore doctor restore` tries again";
    PlaceError::new(Trouble::State, CODE, message, advice)
}

impl From<JournalError> for PlaceError {
    fn from(error: JournalError) -> Self {
        let (trouble, advice) = match &error {
            JournalError::Busy(_) => (Trouble::Failed, "wait for its end"),
            JournalError::Unfinished(_) => (Trouble::State, "`warmcore doctor restore` undoes them"),
            JournalError::Keep { .. } => (Trouble::Unable, "changes of a computer need root"),
            _ => (Trouble::Failed, DOCTOR),
        };
        Self::new(trouble, CODE, error, advice)
    }
}

impl From<StateError> for PlaceError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Unable(reason) => Self::new(Trouble::Unable, CODE, reason, DOCTOR),
            StateError::Journal(error) => error.into(),
            StateError::Ejected(reason) => {
                let message = format!("the trial is invalid, its scheduler did not schedule: {reason}");
                Self::new(Trouble::Failed, CODE, message, "run the scheduler by hand and see its words")
            }
        }
    }
}

impl From<TrialError> for PlaceError {
    fn from(error: TrialError) -> Self {
        match error {
            TrialError::Interrupted => Self::interrupted(),
            TrialError::Record(error) => error,
            other => Self::new(Trouble::Failed, CODE, other, DOCTOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::journal;

    /// What all trials have, and over it what one column has; killed, the journal has both.
    #[test]
    fn a_column_has_values_of_its_own_in_the_kernels_files_and_they_are_put_back() {
        let (root, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| root.path().join("proc/sys/vm").join(name);
        std::fs::create_dir_all(path("")).unwrap();
        let values = || ["a", "b"].map(|name| std::fs::read_to_string(path(name)).unwrap().trim().to_owned());
        std::fs::write(path("a"), "60\n").unwrap();
        std::fs::write(path("b"), "0\n").unwrap();
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let host = Host::new(Manner { settings: vec![("/proc/sys/vm/a".into(), "30".into())], ..Manner::default() });
        let of = |text: &str| {
            let mut wanted = host.wanted(&machine, &SchedulerSpec::parse(text).unwrap()).unwrap();
            wanted.settings.retain(|setting| setting.path.starts_with("/proc/sys/vm/"));
            wanted
        };
        let column = "eevdf @ set=/proc/sys/vm/a=10 set=/proc/sys/vm/b=1";
        for (text, expected) in [("eevdf", ["30", "0"]), (column, ["10", "1"])] {
            let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
            of(text).establish(&machine, root.path(), &mut journal).unwrap();
            assert_eq!(values(), expected, "{text}");
            assert!(journal.undo().iter().all(Undone::is_good));
            assert_eq!(values(), ["60", "0"], "{text}");
        }
        let mut journal = Journal::begin(kept.path(), root.path()).unwrap();
        of(column).establish(&machine, root.path(), &mut journal).unwrap();
        let left = std::fs::read(kept.path().join("journal.jsonl")).unwrap();
        drop(journal);
        // As after `kill -9`: what was changed is there, and the journal.
        std::fs::write(path("a"), "10\n").unwrap();
        std::fs::write(path("b"), "1\n").unwrap();
        std::fs::write(kept.path().join("journal.jsonl"), left).unwrap();
        assert!(journal::restore(kept.path(), root.path(), false).unwrap().iter().all(Undone::is_good));
        assert_eq!(values(), ["60", "0"]);
    }

    #[test]
    fn a_file_that_this_kernel_lacks_and_another_kernel_are_refused_by_name() {
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let host = Host::new(Manner::default());
        let wanted = |text: &str| host.wanted(&machine, &SchedulerSpec::parse(text).unwrap());
        let root = tempfile::tempdir().unwrap();
        let missing = wanted("eevdf @ set=/proc/sys/vm/none=1").unwrap().check(&machine, root.path());
        assert!(missing.unwrap_err().to_string().contains("this kernel has no /proc/sys/vm/none"));
        let message = wanted("eevdf @ kernel=7.2").unwrap_err().to_string();
        assert!(message.contains("kernel=7.2"), "{message}");
    }

    #[test]
    fn every_block_runs_everything_once_in_orders_that_differ() {
        let mut state = 1;
        let orders: Vec<Vec<usize>> = (0..6).map(|_| order(4, &mut state)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
    }
}
