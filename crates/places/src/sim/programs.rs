//! Schedulers of the user's own (`scx:PROGRAM`) in the simulator: each is loaded once for each machine to see what it is, and every run loads it anew, as its
//! loader goes on in it. Both are done in a sealed process of their own.

use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warmcore_kernel::{Setup, SimulationError};
use warmcore_loader::{
    Attached, Capture, LoaderError, LoaderPrices, MachineFiles, Outbox, Paths, Sandbox, TargetKernel,
};
use warmcore_options::{MemoryChoice, Observe};
use warmcore_schedulers::{Bytecode, Need, NeedKind, Operation, SchedulerSpec, ScxProgram, Usage, bytecode_trial};
use warmcore_topology::Machine;
use warmcore_trace::{Outcome, Sink};

use crate::files::{file_of_argument, find_program, read_bytes, read_bytes_up_to};
use crate::place::{OperationCost, OperationUse, PlaceError, Report, Sequence, Trouble};
use crate::sim::apart::{self, Apart};
use crate::vm::fetch::cached;

/// How long a loader may take until it attaches: one built without optimisation takes seconds on a large machine.
const LIMIT: Duration = Duration::from_secs(120);

/// What a scheduler turned out to be when it was loaded.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Its name in the kernel.
    pub name: String,
    /// Instructions of all its programs.
    pub instructions: u64,
    /// What it needs of the kernel, by kind and name: of kinds of maps and of programs all that the loader asked for.
    pub needs: Vec<Need>,
    /// Bytes of the memory that its programs share.
    pub map_bytes: u64,
    /// Its command line, all that was loaded and files that arguments name, as text packed by zstd. Nothing is read from it again.
    pub packed: Vec<u8>,
}

/// The same as it is sent: its name, instructions and bytes, then needs by number of the kind, name, and whether they are modelled, and what was packed.
#[derive(Serialize, Deserialize)]
struct Sent(String, u64, u64, Vec<(usize, String, bool)>, Vec<u8>);

impl Sent {
    fn new(attached: &Attached, (before, behind): (&str, &[u8])) -> Result<Self, PlaceError> {
        let Capture { object, needs } = &attached.capture;
        let packed = attached.packed(before, behind).map_err(no_memory)?;
        let number = |kind| NeedKind::ALL.iter().position(|known| *known == kind).unwrap_or_default();
        let needs = needs.iter().map(|need| (number(need.kind), need.name.clone(), need.is_modelled));
        Ok(Self(object.name().to_owned(), object.instructions() as u64, object.memory_bytes(), needs.collect(), packed))
    }
}

impl Surveyed {
    fn of(Sent(name, instructions, map_bytes, needs, packed): Sent) -> Self {
        let need = |(kind, name, is_modelled): (usize, String, bool)| {
            NeedKind::ALL.get(kind).map(|kind| Need::new(*kind, name, is_modelled))
        };
        Self { name, instructions, map_bytes, needs: needs.into_iter().filter_map(need).collect(), packed }
    }

    /// What it needs and what is not modelled.
    pub fn missing(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(|need| !need.is_modelled)
    }

    /// Without these it cannot be run at all: it has maps of kinds that are not modelled.
    fn missing_maps(&self) -> impl Iterator<Item = &Need> {
        self.missing().filter(|need| need.kind == NeedKind::MapKind)
    }
}

/// A program, and the machine and ticks that it was loaded for.
struct LoadedProgram {
    program: ScxProgram,
    file: Option<FileMark>,
    machine: Machine,
    hz: u32,
    surveyed: Arc<Surveyed>,
}

impl LoadedProgram {
    fn is(&self, program: &ScxProgram, machine: &Machine, hz: u32) -> bool {
        self.program == *program && self.machine == *machine && self.hz == hz
    }
}

/// Device, number, length and time of the last change of a file, in seconds and nanoseconds: those of another one differ.
type FileMark = (u64, u64, u64, i64, i64);

fn mark_of(program: &ScxProgram) -> Option<FileMark> {
    let file = std::fs::metadata(find_program(&program.program)).ok()?;
    Some((file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}

/// What was loaded, for the life of this program.
static LOADED: Mutex<Vec<LoadedProgram>> = Mutex::new(Vec::new());

/// What a scheduler is on a machine: it is loaded for that, unless it was before.
///
/// # Errors
/// When its loader cannot be started, ends, hangs, or loads what cannot be run; or there is no kernel to show it.
pub fn load(scheduler: &SchedulerSpec, machine: &Machine) -> Result<Arc<Surveyed>, PlaceError> {
    let (program, hz) = (program_of(scheduler)?, scheduler.kernel().hz);
    let file = mark_of(program);
    let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|known| known.is(program, machine, hz) && known.file == file) {
        return Ok(Arc::clone(&known.surveyed));
    }
    let shown = Files::default().of(machine, hz)?;
    let shown = (&*shown, true);
    let (before, behind) = configuration(program);
    let started = |outbox: &mut Outbox| {
        Sent::new(&started(program, machine, shown, outbox)?, (before.as_str(), behind.as_slice()))
    };
    let surveyed = Arc::new(Surveyed::of(apart::survey(&format!("`{}`", program.program), started)?));
    all.retain(|known| !known.is(program, machine, hz));
    let (program, machine) = (program.clone(), machine.clone());
    all.push(LoadedProgram { program, file, machine, hz, surveyed: Arc::clone(&surveyed) });
    Ok(surveyed)
}

/// Refuses a run of a program that is another file than when it was loaded: runs of one experiment are runs of one program.
fn check_unchanged(program: &ScxProgram, machine: &Machine, hz: u32) -> Result<(), PlaceError> {
    let file = mark_of(program);
    let all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().all(|known| !known.is(program, machine, hz) || known.file == file) {
        return Ok(());
    }
    let message = format!("`{}` was changed or removed while its runs were made", program.program);
    let advice = "start the experiment again, and leave the program as it is until the end";
    Err(PlaceError::new(Trouble::Scheduler, "warmcore::scheduler", message, advice))
}

/// What a scheduler is on a machine, if this program has loaded it for that. Nothing is started.
pub fn known(scheduler: &SchedulerSpec, machine: &Machine) -> Option<Arc<Surveyed>> {
    let (program, hz) = (scheduler.program()?, scheduler.kernel().hz);
    let all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().find(|known| known.is(program, machine, hz)).map(|known| Arc::clone(&known.surveyed))
}

/// The command line of a program, and the files that its arguments name.
fn configuration(program: &ScxProgram) -> (String, Vec<u8>) {
    /// Longest file that is kept.
    const MOST: u64 = 4 << 20;
    let words: String = program.arguments.iter().map(|argument| format!("argument {argument:?}\n")).collect();
    let mut files = Vec::new();
    for argument in &program.arguments {
        let Some(path) = file_of_argument(argument) else { continue };
        match read_bytes_up_to(path, MOST) {
            Ok(bytes) => {
                files.extend(format!("file {path:?}, {} bytes\n", bytes.len()).into_bytes());
                files.extend(bytes);
                files.push(b'\n');
            }
            Err(error) => files.extend(format!("file {path:?} is not kept: {error}\n").into_bytes()),
        }
    }
    (format!("warmcore-capture-1\nprogram {:?}\n{words}", program.program), files)
}

fn program_of(scheduler: &SchedulerSpec) -> Result<&ScxProgram, PlaceError> {
    let none = || {
        let message = format!("`{scheduler}` is not a program");
        PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, "give scx:PROGRAM")
    };
    scheduler.program().ok_or_else(none)
}

/// Loads a scheduler, and refuses one that could not be run for what is not modelled.
///
/// # Errors
/// Those of [`load`], and that.
pub fn check(scheduler: &SchedulerSpec, machine: &Machine) -> Result<Arc<Surveyed>, PlaceError> {
    let surveyed = load(scheduler, machine)?;
    if surveyed.missing_maps().next().is_none() {
        return Ok(surveyed);
    }
    let missing = names(surveyed.missing());
    let message = format!("`{}` needs what is not modelled here: {missing}", program_of(scheduler)?.program);
    Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, "run it with --on vm"))
}

fn names<'a>(needs: impl Iterator<Item = &'a Need>) -> String {
    needs.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// An ejection with what the loader printed until then.
fn with_words(mut error: SimulationError, said: &str) -> SimulationError {
    if let SimulationError::Ejected { dump, .. } = &mut error
        && !said.is_empty()
    {
        dump.push_str("\nthe loader\n----------\n");
        dump.push_str(said);
    }
    error
}

/// A run of it that failed. An ejection is not called its fault if something that it needs is missing here.
fn failed(error: SimulationError, surveyed: &Surveyed) -> PlaceError {
    let missing = names(surveyed.missing());
    let SimulationError::Ejected { dump, .. } = &error else { return error.into() };
    if missing.is_empty() {
        return error.into();
    }
    let message = format!("{error} (not modelled here of what it needs: {missing})");
    let advice = "--on vm shows whether it is the program's own fault; or compare without it";
    PlaceError::new(Trouble::Scheduler, "warmcore::simulation", message, advice).with_output(dump.clone())
}

/// What loaders are shown of machines and kernels, for as long as this is there.
#[derive(Default)]
pub struct Files(Mutex<Vec<(Machine, u32, Arc<Shown>)>>);

/// A kernel, and files of a machine that runs it.
struct Shown {
    kernel: TargetKernel,
    files: MachineFiles,
}

impl Files {
    /// Those of a machine whose kernel has so many ticks per second.
    fn of(&self, machine: &Machine, hz: u32) -> Result<Arc<Shown>, PlaceError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., shown)) = all.iter().find(|(known, of, _)| known == machine && *of == hz) {
            return Ok(Arc::clone(shown));
        }
        let kernel = kernel()?.with_hz(hz);
        let files = MachineFiles::new(machine, &kernel).map_err(|source| refused(LoaderError::Files { source }))?;
        let shown = Arc::new(Shown { kernel, files });
        all.push((machine.clone(), hz, Arc::clone(&shown)));
        Ok(shown)
    }
}

/// What a loader of one's own loads, in this process: for comparisons with what else does the same.
///
/// # Errors
/// As [`load`].
pub fn capture(scheduler: &SchedulerSpec, machine: &Machine) -> Result<Capture, PlaceError> {
    let shown = Files::default().of(machine, scheduler.kernel().hz)?;
    Ok(start(program_of(scheduler)?, machine, (&shown, true), || Ok(()))?.capture)
}

/// Starts a loader and seals this process; it has attached its scheduler then. It is shown these files, and whether the memory is modelled.
fn started(
    program: &ScxProgram,
    machine: &Machine,
    shown: (&Shown, bool),
    outbox: &mut Outbox,
) -> Result<Attached, PlaceError> {
    start(program, machine, shown, || outbox.seal(Sandbox::Supervising))
}

fn start(
    program: &ScxProgram,
    machine: &Machine,
    (shown, counts_memory): (&Shown, bool),
    seal: impl FnOnce() -> std::io::Result<()>,
) -> Result<Attached, PlaceError> {
    let path = find_program(&program.program);
    let request = warmcore_loader::CaptureRequest {
        program: &path,
        arguments: &program.arguments,
        machine,
        kernel: &shown.kernel,
        timeout: LIMIT,
        files: shown.files.path(),
        paths: paths()?,
        counts_memory,
    };
    warmcore_loader::start(&request, seal).map_err(refused)
}

/// How loaders find the files of the machine, by a variable of the environment: results are the same, so that it is for tests, for computers
/// where one of the ways does not work, and for loaders that are not trusted.
const PATHS: &str = "WARMCORE_SCX_PATHS";

fn paths() -> Result<Paths, PlaceError> {
    match std::env::var(PATHS).as_deref() {
        // It may look for processes that have begun since, which mounts do not show.
        Ok("answered" | "") | Err(_) => Ok(Paths::Answered),
        Ok("mounted") => Ok(Paths::Mounted),
        Ok("either") => Ok(Paths::Either),
        Ok("confined") => Ok(Paths::Confined),
        Ok(other) => {
            let message = format!("{PATHS} is `{other}`, which is no way to show a loader the machine");
            let advice = "give `answered`, `mounted`, `either` or `confined`, or nothing";
            Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, advice))
        }
    }
}

/// One run: what it left, with how often each operation was called, what each call called if that is noted, and what the loader printed.
pub fn run(
    scheduler: &SchedulerSpec,
    files: &Files,
    setup: &Setup<'_>,
    sink: Option<&mut dyn Sink>,
) -> Result<Report, PlaceError> {
    let (program, machine, observe) = (program_of(scheduler)?, setup.machine(), setup.options.observe);
    let setup = scheduler.in_its_kernel(setup)?;
    check_unchanged(program, machine, scheduler.kernel().hz)?;
    let surveyed = check(scheduler, machine)?;
    let shown = files.of(machine, setup.kernel.hz)?;
    let counts_memory = setup.options.memory != MemoryChoice::None;
    let apart = Apart {
        machine,
        scheduler: format!("`{}`", program.program),
        map_bytes: surveyed.map_bytes,
        stop: setup.stop.as_deref(),
    };
    let begin = |outbox: &mut Outbox| {
        let Attached { capture, host, loader, output } = started(program, machine, (&shown, counts_memory), outbox)?;
        apart::send_programs(outbox, capture.object.places())?;
        let bytecode = if scheduler.ends_loader() {
            drop((loader, host));
            Bytecode::new(&capture.object, setup.seed, true).map_err(no_memory)?
        } else {
            let live = Bytecode::live(&capture.object, host, Box::new(loader), setup.seed, true);
            if scheduler.runs_loader() { live.with_threads() } else { live }
        };
        Ok((bytecode, output))
    };
    apart.run(
        begin,
        |(bytecode, output), sink| {
            let bytecode = if observe == Observe::Calls { bytecode.noting_calls() } else { bytecode };
            // The same sink, borrowed for no longer than the setup.
            let (outcome, usage) = bytecode_trial(bytecode, &setup, sink.map(|sink| sink as &mut dyn Sink))
                .map_err(|error| failed(with_words(error, &output.borrow_mut().text()), &surveyed))?;
            Ok(report(outcome, &usage, &output.borrow_mut().text()))
        },
        sink,
    )
}

/// What a run has left.
fn report(outcome: Outcome, usage: &Usage, said: &str) -> Report {
    let sequence = |(operation, functions, count): (Operation, Vec<&'static str>, u64)| Sequence {
        operation: name_of(operation).to_owned(),
        functions: functions.into_iter().map(str::to_owned).collect(),
        count,
    };
    Report {
        operations: operations(usage),
        sequences: usage.sequences().into_iter().map(sequence).collect(),
        output: printed(said, &usage.printed()),
        ..Report::new(outcome)
    }
}

/// What was printed in a run: by the loader, then by the programs (`bpf_printk` and streams).
fn printed(by_loader: &str, by_programs: &str) -> Option<String> {
    let programs = if by_programs.is_empty() { String::new() } else { format!("\nprinted\n-------\n{by_programs}") };
    Some(format!("{by_loader}{programs}")).filter(|printed| !printed.is_empty())
}

/// Row of the locks of a scheduler's queues among its operations.
const QUEUE_LOCKS: &str = "locks of its queues";

/// What each operation that was called came to.
fn operations(usage: &Usage) -> Vec<OperationUse> {
    let of = |&(name, operation): &(&'static str, Operation)| {
        let of = usage.of(operation);
        let cost = Some(OperationCost { instructions: of.instructions, charged_ns: of.charged_ns });
        OperationUse { name: name.to_owned(), calls: of.calls, cost }
    };
    let (passes, charged_ns) = usage.locks.total();
    let locks = OperationUse {
        name: QUEUE_LOCKS.to_owned(),
        calls: passes,
        cost: Some(OperationCost { instructions: 0, charged_ns }),
    };
    Operation::ALL.iter().map(of).chain([locks]).filter(|operation| operation.calls > 0).collect()
}

fn name_of(operation: Operation) -> &'static str {
    Operation::ALL.iter().find(|(_, known)| *known == operation).map_or("?", |(name, _)| *name)
}

fn no_memory(error: impl std::fmt::Display) -> PlaceError {
    PlaceError::new(Trouble::Failed, "warmcore::simulation", error, "close other programs")
}

/// Runs a workload of this setup and says what each operation took.
///
/// # Errors
/// Those of the run.
pub fn probe(scheduler: &SchedulerSpec, setup: &Setup<'_>) -> Result<Vec<OperationUse>, PlaceError> {
    Ok(run(scheduler, &Files::default(), setup, None)?.operations)
}

/// What to know of every such run, if there is something.
pub fn note(scheduler: &SchedulerSpec) -> Option<String> {
    let name = &scheduler.program()?.program;
    Some(match (scheduler.ends_loader(), scheduler.runs_loader()) {
        (true, _) => {
            format!(
                "the loader of {name} was ended when it attached: what its user space would decide later is missing"
            )
        }
        (_, true) => format!("threads of {name}'s loader are tasks; {}", LoaderPrices),
        _ => format!("the loader of {name} takes no CPU time"),
    })
}

/// The kernel that loaders are shown: the first of the cache that has sched_ext.
fn kernel() -> Result<&'static TargetKernel, PlaceError> {
    static KERNEL: OnceLock<Result<TargetKernel, PlaceError>> = OnceLock::new();
    KERNEL.get_or_init(find_kernel).as_ref().map_err(Clone::clone)
}

fn find_kernel() -> Result<TargetKernel, PlaceError> {
    let advice = "`warmcore doctor vm --fetch-kernel` fetches one; nothing is booted";
    let unable = |message: String| PlaceError::new(Trouble::Unable, "warmcore::scheduler", message, advice);
    let (kernels, _) = cached().map_err(|error| unable(error.to_string()))?;
    let mut reasons = Vec::new();
    for kernel in kernels {
        let found = read_bytes(&kernel.image).map_err(|error| error.to_string()).and_then(|image| {
            let configuration = kernel.config_text().map_err(|error| error.to_string())?;
            TargetKernel::from_image(&kernel.release, &configuration, &image).map_err(|error| error.to_string())
        });
        match found {
            Ok(kernel) => return Ok(kernel),
            Err(reason) => reasons.push(format!("{}: {reason}", kernel.release)),
        }
    }
    let reasons = if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") };
    Err(unable(format!("a scheduler's loader asks for the type information of a kernel with sched_ext: {reasons}")))
}

fn refused(error: LoaderError) -> PlaceError {
    let (trouble, advice) = match &error {
        LoaderError::Start { .. } => (Trouble::Unfit, "give the path of a program that can be executed"),
        LoaderError::Forbidden { .. } => {
            (Trouble::Unable, "allow seccomp listeners to this container, or run it with --on vm")
        }
        LoaderError::Ended { .. } | LoaderError::Hangs { .. } | LoaderError::Floods { .. } => {
            (Trouble::Failed, "try the same command line with --on vm: does it load there?")
        }
        LoaderError::Object { .. } => {
            (Trouble::Unfit, "`docs/models/scx.md` says what is modelled; run it with --on vm")
        }
        LoaderError::Numbers { .. } => (Trouble::Unfit, "choose a machine without offline CPUs"),
        LoaderError::Architecture { .. } => (Trouble::Unable, "use an x86-64 computer"),
        LoaderError::Files { .. } => (Trouble::Failed, "is the disk full?"),
    };
    PlaceError::new(trouble, "warmcore::scheduler", error, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_print_is_kept_whether_their_loader_prints_or_not() {
        assert_eq!(printed("", ""), None);
        assert_eq!(printed("loaded\n", "").as_deref(), Some("loaded\n"));
        assert_eq!(printed("", "late\n").as_deref(), Some("\nprinted\n-------\nlate\n"));
        assert_eq!(printed("loaded\n", "late\n").as_deref(), Some("loaded\n\nprinted\n-------\nlate\n"));
    }
}
