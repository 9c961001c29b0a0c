//! Schedulers of the user's own (`scx:PROGRAM`) in the simulator: each is loaded once for each machine, and every run begins with that, in a process
//! of its own.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use warmcore_kernel::{Setup, SimulationError};
#[cfg(target_arch = "x86_64")]
use warmcore_loader::Sandbox;
use warmcore_loader::{Capture, LoaderError, Paths, TargetKernel, capture};
use warmcore_options::Observe;
use warmcore_schedulers::{Bytecode, MemoryError, Need, Operation, ScxProgram, Usage, bytecode_trial};
use warmcore_topology::Machine;
use warmcore_trace::{Outcome, Sink};

use crate::files::{find_program, read_bytes};
use crate::place::{OperationCost, OperationUse, PlaceError, Report, Sequence, Trouble};
#[cfg(target_arch = "x86_64")]
use crate::sim::apart::Apart;
use crate::vm::fetch::cached;

/// How long a loader may take until it attaches: one built without optimisation takes seconds on a large machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A program and the machine it was loaded for.
struct Loaded {
    program: ScxProgram,
    machine: Machine,
    capture: Arc<Capture>,
}

/// What is loaded, for the life of this program.
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// Loads a scheduler for a machine, unless it is loaded.
///
/// # Errors
/// When its loader cannot be started, ends, hangs, or loads what cannot be run; or there is no kernel to show it.
pub fn load(program: &ScxProgram, machine: &Machine) -> Result<Arc<Capture>, PlaceError> {
    let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|known| known.program == *program && known.machine == *machine) {
        return Ok(Arc::clone(&known.capture));
    }
    let path = find_program(&program.program);
    let capture = Arc::new(capture(&request(program, &path, machine)?).map_err(refused)?);
    all.push(Loaded { program: program.clone(), machine: machine.clone(), capture: Arc::clone(&capture) });
    Ok(capture)
}

/// Loads a scheduler, and refuses one that could not be run for what is not modelled.
///
/// # Errors
/// Those of [`load`], and that.
pub fn check(program: &ScxProgram, machine: &Machine) -> Result<Arc<Capture>, PlaceError> {
    let capture = load(program, machine)?;
    if capture.missing_maps().next().is_none() {
        return Ok(capture);
    }
    let message = format!("`{}` needs what is not modelled here: {}", program.program, names(capture.missing()));
    Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, "run it with --on vm"))
}

fn names<'a>(needs: impl Iterator<Item = &'a Need>) -> String {
    needs.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A run of it that failed. An ejection is not called its fault if something that it needs is missing here.
fn failed(error: SimulationError, capture: &Capture) -> PlaceError {
    let missing = names(capture.missing());
    let SimulationError::Ejected { dump, .. } = &error else { return error.into() };
    if missing.is_empty() {
        return error.into();
    }
    let message = format!("{error} (not modelled here of what it needs: {missing})");
    let advice = "--on vm tells whether it is the program's own fault; or compare without it";
    PlaceError::new(Trouble::Scheduler, "warmcore::simulation", message, advice).with_output(dump.clone())
}

/// What is asked of a loader.
fn request<'a>(
    program: &'a ScxProgram,
    path: &'a Path,
    machine: &'a Machine,
) -> Result<warmcore_loader::Request<'a>, PlaceError> {
    Ok(warmcore_loader::Request {
        program: path,
        arguments: &program.arguments,
        machine,
        kernel: kernel()?,
        timeout: LIMIT,
        files: None,
        paths: paths(Paths::Either)?,
    })
}

/// How loaders find the files of the machine, by a variable of the environment: results are the same, so that it is for tests and for computers
/// where one of the ways does not work.
const PATHS: &str = "WARMCORE_SCX_PATHS";

fn paths(default: Paths) -> Result<Paths, PlaceError> {
    match std::env::var(PATHS).as_deref() {
        Ok("answered") => Ok(Paths::Answered),
        Ok("mounted") => Ok(Paths::Mounted),
        Ok("either") => Ok(Paths::Either),
        Err(_) | Ok("") => Ok(default),
        Ok(other) => {
            let message = format!("{PATHS} is `{other}`, which is no way to show a loader the machine");
            let advice = "give `answered`, `mounted` or `either`, or nothing";
            Err(PlaceError::new(Trouble::Unfit, "warmcore::scheduler", message, advice))
        }
    }
}

/// Schedulers whose loader is part of the policy, by the name that they have in the kernel, behind which a version may stand: it goes on in simulated
/// time (`docs/spec/bpf-runtime.md` section 10).
const LOADER_DECIDES: [&str; 2] = ["rusty", "layered"];

/// Whether a scheduler's loader goes on in simulated time. Others are started once, and ended when they attach.
fn goes_on(capture: &Capture) -> bool {
    let (name, _) = capture.object.name().split_once('_').unwrap_or((capture.object.name(), ""));
    LOADER_DECIDES.contains(&name)
}

/// One run: what it left, with how often each operation was called, and what each call called if that is noted.
pub fn run<'a>(
    program: &ScxProgram,
    machine: &Machine,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
    observe: Observe,
) -> Result<Report, PlaceError> {
    let capture = check(program, machine)?;
    let run = |scheduler: Bytecode, sink: Option<&mut dyn Sink>| {
        let scheduler = if observe == Observe::Calls { scheduler.noting_calls() } else { scheduler };
        // The same sink, borrowed for no longer than the setup.
        let (outcome, usage) = bytecode_trial(scheduler, setup, sink.map(|sink| sink as &mut dyn Sink))
            .map_err(|error| failed(error, &capture))?;
        Ok(report(outcome, &usage))
    };
    apart(program, machine, &capture, setup, sink, run)
}

/// Makes a run in a process of its own.
#[cfg(target_arch = "x86_64")]
fn apart(
    program: &ScxProgram,
    machine: &Machine,
    capture: &Capture,
    setup: &Setup<'_>,
    sink: Option<&mut dyn Sink>,
    run: impl FnOnce(Bytecode, Option<&mut dyn Sink>) -> Result<Report, PlaceError>,
) -> Result<Report, PlaceError> {
    let goes_on = goes_on(capture);
    let apart = Apart {
        machine,
        scheduler: format!("`{}`", program.program),
        map_bytes: capture.object.memory_bytes(),
        sandbox: if goes_on { Sandbox::Supervising } else { Sandbox::Computing },
        stop: setup.stop.as_deref(),
        program_at: &|address| capture.object.program_at(address).map(str::to_owned),
    };
    // What a loader leaves behind when its process is ended goes with this.
    let files = goes_on
        .then(warmcore_loader::directory_in_memory)
        .transpose()
        .map_err(|source| refused(LoaderError::Files { program: program.program.clone(), source }))?;
    let begin = || match &files {
        Some(files) => started(program, machine, setup.seed, files.path()),
        None => copied(capture, setup),
    };
    apart.run(begin, run, sink)
}

/// Makes a run: there is no process of its own for it on such a computer, and no scheduler that would need one.
#[cfg(not(target_arch = "x86_64"))]
fn apart(
    _: &ScxProgram,
    _: &Machine,
    capture: &Capture,
    setup: &Setup<'_>,
    sink: Option<&mut dyn Sink>,
    run: impl FnOnce(Bytecode, Option<&mut dyn Sink>) -> Result<Report, PlaceError>,
) -> Result<Report, PlaceError> {
    run(copied(capture, setup)?, sink)
}

/// What a run has left.
fn report(outcome: Outcome, usage: &Usage) -> Report {
    let sequence = |(operation, functions, count): (Operation, Vec<&'static str>, u64)| Sequence {
        operation: name_of(operation).to_owned(),
        functions: functions.into_iter().map(str::to_owned).collect(),
        count,
    };
    Report {
        operations: operations(usage),
        sequences: usage.sequences().into_iter().map(sequence).collect(),
        output: Some(usage.printed().to_owned()).filter(|printed| !printed.is_empty()),
        ..Report::new(outcome)
    }
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

/// A scheduler as its loader left it.
fn copied(capture: &Capture, setup: &Setup<'_>) -> Result<Bytecode, PlaceError> {
    Bytecode::new(&capture.object, setup.seed, true).map_err(no_memory)
}

/// A scheduler whose loader is started for this run and goes on in it.
#[cfg(target_arch = "x86_64")]
fn started(program: &ScxProgram, machine: &Machine, seed: u64, files: &Path) -> Result<Bytecode, PlaceError> {
    let path = find_program(&program.program);
    // It may look for processes that have begun since, which mounts do not show.
    let paths = paths(Paths::Answered)?;
    let request = warmcore_loader::Request { files: Some(files), paths, ..request(program, &path, machine)? };
    let attached = warmcore_loader::start(&request).map_err(refused)?;
    let loader = Box::new(attached.loader);
    Ok(Bytecode::live(&attached.object, attached.host, loader, seed, true))
}

fn no_memory(error: MemoryError) -> PlaceError {
    PlaceError::new(Trouble::Failed, "warmcore::simulation", error, "close other programs")
}

/// Runs a workload of this setup and says what each operation took.
///
/// # Errors
/// Those of the run.
pub fn probe<'a>(
    program: &ScxProgram,
    machine: &Machine,
    setup: &'a Setup<'a>,
) -> Result<Vec<OperationUse>, PlaceError> {
    Ok(run(program, machine, setup, None, Observe::Nothing)?.operations)
}

/// What to know of every such run.
///
/// # Errors
/// When the scheduler cannot be loaded.
pub fn note(program: &ScxProgram, machine: &Machine) -> Result<String, PlaceError> {
    let name = &program.program;
    Ok(if goes_on(&*load(program, machine)?) {
        format!("the loader of {name} goes on in simulated time, and takes no CPU time of it")
    } else {
        format!("the loader of {name} was ended when it attached: what its user space would decide later is missing")
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
        LoaderError::Ended { .. } | LoaderError::Hangs { .. } => {
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
