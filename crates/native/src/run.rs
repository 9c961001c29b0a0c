//! A run: creating tasks at their times, releasing them, waiting for the end, collecting what they left.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{Pid, futex, sched_setaffinity};
use warmcore_workload::results::result_lines;
use warmcore_workload::{Affinity, ProcessId, Step, TaskTemplateId, Warning, Workload, add_warning};

use crate::channel;
use crate::clock::{now_ns, sleep_until, timespec};
use crate::error::NativeError;
use crate::heap::SharedHeap;
use crate::host::Host;
use crate::shared::{Shared, own_tasks, several_processes};
use crate::spin::{Calibration, calibrate};
use crate::start::{Batch, Lent};
use crate::sync::{self, flags, locked};
use crate::sys;
use crate::task::{Creator, spawn};
use crate::window::warm_up_ns;

/// How a workload is run.
#[derive(Clone, Debug, Default)]
pub struct NativeOptions {
    /// Ends the run after this time even if the workload states a longer one or none.
    pub time_limit_ns: Option<u64>,
    /// Ends the run soon after it becomes true: for signal handlers.
    pub stop: Option<Arc<AtomicBool>>,
    /// Speed of the computing loop, to have the same in several runs; measured if `None`.
    pub calibration: Option<Calibration>,
    /// Treat `Run` as time on CPU, not as work: for machines whose CPUs do not run at a speed of their own, such as an
    /// emulator's.
    pub work_is_cpu_time: bool,
    /// Decides what tasks draw ([`Draws`](warmcore_workload::Draws)): equal seeds, equal draws, here as in a simulation.
    pub seed: u64,
    /// Instant of the start on the monotonic clock, so that several processes start together; now if `None` or past.
    pub start_at_ns: Option<u64>,
    /// By the workload's task group: the file to which a thread writes its number to join (`cgroup.threads`). Without them tasks
    /// stay in the group of this program.
    pub groups: Vec<PathBuf>,
    /// Make the workload's processes processes of their own, with this as their memory; threads of the calling process if `None`. It must
    /// be the program's global allocator, and the program may have no other thread while a run lasts.
    pub processes: Option<&'static SharedHeap>,
    /// Give tasks the memory that their profiles and data groups speak of, and have them touch it where they run: for kernels that
    /// move tasks and pages towards each other. Only the size and who shares it are modelled, not how often it is touched.
    pub own_memory: bool,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All tasks have exited.
    AllExited,
    /// The workload's duration is over.
    Duration,
    /// A task executed `Stop`.
    StopStep,
    /// The time limit of the options is over.
    TimeLimit,
    /// The stop flag of the options was set.
    Interrupted,
}

/// What one task did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskOutcome {
    /// Its template.
    pub template: TaskTemplateId,
    /// Which of the template's tasks, in the order of creation, from 0.
    pub number: u32,
    /// The thread that ran it, as the operating system numbers it.
    pub thread: i32,
    /// CPU time; that after the warm-up, if there was one.
    pub cpu_ns: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because another task got its CPU.
    pub involuntary_switches: u64,
    /// Steps executed, ends of loops included.
    pub steps: u64,
    /// Whether it came to the end of its program.
    pub completed: bool,
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NativeOutcome {
    /// Why it ended.
    pub ended: Ended,
    /// The start, on the monotonic clock.
    pub start_ns: u64,
    /// From before the first task was created until the end was decided, that is without the time threads took to stop.
    pub elapsed_ns: u64,
    /// Tasks in the order of creation.
    pub tasks: Vec<TaskOutcome>,
    /// Samples (ns) of each recorder, by id; the samples of one task together, in the order of creation of tasks. Of a run with a warm-up those
    /// whose beginning is behind it.
    pub samples: Vec<Vec<u64>>,
    /// The lines that the imitated program prints, if the workload imitates one.
    pub lines: Option<String>,
    /// What was not done as the workload asks. What the workload itself warns of is in the workload.
    pub warnings: Vec<Warning>,
    /// Main threads of processes that ran no task themselves, as the operating system numbers them; the calling one is not among them.
    pub helpers: Vec<i32>,
    /// Speed of the computing loop.
    pub calibration: Calibration,
}

/// How often the stop flag is looked at.
const POLL_NS: u64 = 20_000_000;
/// How often threads that have not stopped yet are interrupted.
const INTERRUPT_NS: u64 = 2_000_000;

/// Runs a workload with a thread per task and waits for its end.
///
/// # Errors
/// Workloads that [`Workload::check`] refuses, affinities without a CPU of this host, and system calls that fail: too
/// many threads or open files. All threads have ended when this returns.
pub fn run(workload: &Workload, options: &NativeOptions) -> Result<NativeOutcome, NativeError> {
    workload.check()?;
    if let Some(program) = workload.command.first() {
        return Err(NativeError::Command(program.clone()));
    }
    if let Some(reason) = workload.refused_by_threads() {
        return Err(NativeError::LockOfKernel(reason));
    }
    if !workload.hotplug.is_empty() {
        return Err(NativeError::Hotplug);
    }
    if !workload.isolcpus.is_empty() || !workload.nohz_full.is_empty() {
        return Err(NativeError::Isolated);
    }
    let separate = options.processes.is_some() && several_processes(workload);
    if let (Some(heap), true) = (options.processes, separate) {
        let failed = |source| NativeError::Heap { workload: workload.name.clone(), source };
        heap.share().map_err(failed)?;
        if !heap.is_shared() {
            return Err(failed(std::io::Error::other("the heap is not this program's allocator")));
        }
        sys::forget_children();
    }
    sync::separate(separate);
    let host = Host::detect();
    check_affinities(workload, &host)?;
    let mut warnings = warnings_before(workload, options);
    let channels = channel::create_all(workload, &mut warnings)?;
    sys::install_interrupt_handler().map_err(|source| NativeError::Call {
        task: workload.name.clone(),
        call: "sigaction",
        source,
    })?;
    let calibration = options.calibration.unwrap_or_else(calibrate);
    if let Some(start_ns) = options.start_at_ns {
        while sleep_until(start_ns) {}
    }
    let shared = Shared::new(workload, options, channels, host, calibration, warnings)?;
    let ended = launch(&shared, options);
    let elapsed_ns = now_ns() - shared.start_ns;
    stop_all(&shared);
    if separate {
        sys::wait_for_children();
    }
    collect(&shared, ended, elapsed_ns)
}

/// Something the launcher does at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LauncherAction {
    /// Releases tasks with this release time. Comes before creations at the same time.
    Release,
    Create(TaskTemplateId),
    /// The warm-up is over. Comes after creations at the same time.
    OpenWindow,
}

/// Creates and releases tasks at their times; returns when the run is to end, and why.
fn launch(shared: &Arc<Shared>, options: &NativeOptions) -> Ended {
    let mut actions: Vec<(u64, LauncherAction)> = Vec::new();
    for (index, task) in shared.workload.tasks.iter().enumerate() {
        let template = TaskTemplateId(index as u32);
        if task.instances > 0 {
            actions.push((task.start_ns, LauncherAction::Create(template)));
        }
        actions.extend(task.release_ns.map(|at| (at, LauncherAction::Release)));
    }
    actions.extend(warm_up_ns(&shared.workload).map(|at| (at, LauncherAction::OpenWindow)));
    actions.sort_unstable();
    actions.dedup();
    let mut actions = actions.into_iter().peekable();
    let duration = shared.workload.duration_ns.unwrap_or(u64::MAX);
    let limit = options.time_limit_ns.unwrap_or(u64::MAX);
    let mut batch = Batch::default();
    loop {
        let bell = shared.bell.load(Ordering::Acquire);
        let now = now_ns() - shared.start_ns;
        if shared.stop.is_set() {
            return Ended::StopStep;
        }
        if options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Ended::Interrupted;
        }
        if now >= limit && limit < duration {
            return Ended::TimeLimit;
        }
        if now >= duration {
            return Ended::Duration;
        }
        if let Some((at, action)) = actions.next_if(|(at, _)| *at <= now) {
            if let Err(error) = act(shared, at, action, &mut batch) {
                shared.fail(error);
            }
            continue;
        }
        batch.begin();
        let next = actions.peek().map(|(at, _)| *at);
        // A release alone does not keep a run going.
        if shared.pending.load(Ordering::Acquire) == 0 && shared.alive.load(Ordering::Acquire) == 0 {
            return Ended::AllExited;
        }
        let mut until = duration.min(limit).min(next.unwrap_or(u64::MAX));
        if options.stop.is_some() {
            until = until.min(now + POLL_NS);
        }
        let timeout = (until < u64::MAX).then(|| timespec(until - now));
        let _ = futex::wait(&shared.bell, flags(), bell, timeout.as_ref());
    }
}

/// Creates what the launcher itself creates of a template's tasks.
fn create(shared: &Arc<Shared>, template: TaskTemplateId, batch: &mut Batch) -> Result<(), NativeError> {
    let tasks = &shared.workload.tasks;
    let process = tasks[template.index()].process;
    if !shared.separate {
        return create_threads(shared, template, batch);
    }
    let of_process = || tasks.iter().enumerate().filter(|(_, task)| task.process == process && task.instances > 0);
    if of_process().map(|(_, task)| task.instances).sum::<u32>() == 1 {
        let task = &tasks[template.index()];
        let _lent = Lent::of(&shared.host, task)?;
        spawn(shared, template, Creator::Launcher { same_process: false, line: batch.line_of(task) })?;
        shared.pending.fetch_sub(1, Ordering::AcqRel);
        return Ok(());
    }
    // One process for all of them, whose main thread creates them; it is begun with the first.
    let first = of_process().min_by_key(|(index, task)| (task.start_ns, *index)).map(|(index, _)| index);
    if first != Some(template.index()) {
        return Ok(());
    }
    let name = shared.workload.processes[process.index()].name.clone();
    let place = Arc::clone(shared);
    sys::begin_process(&name, move || help(&place, process)).map_err(|source| NativeError::Thread {
        task: name.clone(),
        running: shared.alive.load(Ordering::Acquire),
        source,
    })
}

/// The main thread of a process of several tasks: creates them at their times, and is there until the run ends.
fn help(shared: &Arc<Shared>, process: ProcessId) {
    locked(&shared.register).helpers.push(sys::thread_number());
    let own =
        shared.workload.tasks.iter().enumerate().filter(|(_, task)| task.process == process && task.instances > 0);
    let mut starts: Vec<(u64, u32)> = own.map(|(index, task)| (task.start_ns, index as u32)).collect();
    starts.sort_unstable();
    let mut starts = starts.into_iter().peekable();
    let mut batch = Batch::default();
    while !shared.stop.is_set() {
        let bell = shared.bell.load(Ordering::Acquire);
        let now = now_ns() - shared.start_ns;
        if let Some((_, template)) = starts.next_if(|(at, _)| *at <= now) {
            if let Err(error) = create_threads(shared, TaskTemplateId(template), &mut batch) {
                shared.fail(error);
            }
            continue;
        }
        batch.begin();
        let timeout = starts.peek().map(|(at, _)| timespec(at - now));
        if !shared.stop.is_set() {
            let _ = futex::wait(&shared.bell, flags(), bell, timeout.as_ref());
        }
    }
    outlive(shared);
}

/// Waits until all tasks have ended: with a process' main thread its other threads end.
pub(crate) fn outlive(shared: &Shared) {
    loop {
        let bell = shared.bell.load(Ordering::Acquire);
        if shared.alive.load(Ordering::Acquire) == 0 {
            return;
        }
        let _ = futex::wait(&shared.bell, flags(), bell, Some(&timespec(INTERRUPT_NS)));
    }
}

/// Creates a template's tasks in the process that this is called in.
fn create_threads(shared: &Arc<Shared>, template: TaskTemplateId, batch: &mut Batch) -> Result<(), NativeError> {
    let task = &shared.workload.tasks[template.index()];
    let _lent = Lent::of(&shared.host, task)?;
    for _ in 0..task.instances {
        if shared.stop.is_set() {
            break;
        }
        spawn(shared, template, Creator::Launcher { same_process: true, line: batch.line_of(task) })?;
        shared.pending.fetch_sub(1, Ordering::AcqRel);
    }
    Ok(())
}

fn act(shared: &Arc<Shared>, at: u64, action: LauncherAction, batch: &mut Batch) -> Result<(), NativeError> {
    match action {
        LauncherAction::Create(template) => create(shared, template, batch),
        LauncherAction::OpenWindow => {
            locked(&shared.register).open_window();
            Ok(())
        }
        LauncherAction::Release => {
            // First the mark, then the threads that are registered: a thread that registers later sees the mark.
            shared.released_until_ns.store(at.max(1), Ordering::SeqCst);
            let all = shared.host.resolve(&Affinity::All);
            let register = locked(&shared.register);
            for (thread, template) in &register.live {
                let task = &shared.workload.tasks[template.index()];
                if let (Ok(all), Some(pid), true) = (&all, Pid::from_raw(*thread), task.release_ns == Some(at)) {
                    // It fails only for a thread that is just ending.
                    let _ = sched_setaffinity(Some(pid), all);
                }
            }
            Ok(())
        }
    }
}

/// Ends all threads: sets the flag and interrupts what they are blocked in until none is left. The interruption is
/// repeated because one that comes just before a thread blocks has no effect.
fn stop_all(shared: &Shared) {
    shared.stop.set();
    // Main threads of other processes wait for it.
    shared.ring();
    loop {
        let bell = shared.bell.load(Ordering::Acquire);
        if shared.alive.load(Ordering::Acquire) == 0 {
            return;
        }
        for thread in locked(&shared.register).live.keys() {
            sys::interrupt(*thread);
        }
        let timeout = timespec(INTERRUPT_NS);
        let _ = futex::wait(&shared.bell, flags(), bell, Some(&timeout));
    }
}

fn collect(shared: &Shared, ended: Ended, elapsed_ns: u64) -> Result<NativeOutcome, NativeError> {
    let mut register = locked(&shared.register);
    if let Some(failure) = register.failure.take() {
        return Err(failure);
    }
    let mut tasks = std::mem::take(&mut register.ended);
    tasks.sort_unstable_by_key(|(order, _)| *order);
    let mut taken = std::mem::take(&mut register.samples);
    taken.sort_unstable_by_key(|(order, _)| *order);
    let mut samples = vec![Vec::new(); shared.workload.recorders.len()];
    for (_, of_task) in taken {
        for (all, own) in samples.iter_mut().zip(of_task) {
            all.extend(own);
        }
    }
    Ok(NativeOutcome {
        ended,
        start_ns: shared.start_ns,
        elapsed_ns,
        tasks: tasks.into_iter().map(|(_, task)| task).collect(),
        lines: result_lines(
            &shared.workload,
            &samples,
            elapsed_ns.saturating_sub(shared.workload.warm_up_ns.unwrap_or(0)),
        ),
        samples,
        warnings: std::mem::take(&mut register.warnings),
        helpers: std::mem::take(&mut register.helpers),
        calibration: shared.calibration,
    })
}

/// Refuses affinities that leave no CPU before anything runs.
fn check_affinities(workload: &Workload, host: &Host) -> Result<(), NativeError> {
    for task in &workload.tasks {
        let steps = &workload.programs[task.program.index()].steps;
        let later = steps.iter().filter_map(|step| match step {
            Step::SetAffinity(affinity) => Some(affinity),
            _ => None,
        });
        for affinity in std::iter::once(&task.affinity).chain(later) {
            let resolved = host.resolve(affinity);
            resolved.map_err(|reason| NativeError::NoCpus { task: task.name.clone(), reason })?;
        }
    }
    Ok(())
}

/// What is known before the run not to be as the workload asks.
fn warnings_before(workload: &Workload, options: &NativeOptions) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn =
        |what: &str, consequence: &str| add_warning(&mut warnings, what.to_owned(), consequence.to_owned(), 1);
    if options.processes.is_none() && several_processes(workload) {
        warn("processes", "all tasks are threads of one process and share its address space");
    }
    for task in own_tasks(workload) {
        if task.group.is_some_and(|group| options.groups.get(group.index()).is_none()) {
            warn("task groups", "tasks stay in the group of this program");
        }
        let disables = |step: &Step| matches!(step, Step::MigrateDisable);
        if workload.programs[task.program.index()].steps.iter().any(disables) {
            warn("steps that disable migration", "user space has no such call: the kernel may move the task as always");
        }
        if workload.programs[task.program.index()].steps.iter().any(|step| matches!(step, Step::IoWait)) {
            warn("waits for I/O", "user space has no such mark: the kernel takes them for other sleeps");
        }
        if workload.programs[task.program.index()].steps.iter().any(|step| matches!(step, Step::Kernel(_))) {
            warn(
                "steps in the kernel",
                "the program does that work in user mode, where it may be preempted at any time",
            );
        }
        if task.start_cpu.is_some() {
            warn("start CPUs", "the kernel places new threads from the CPU of their creator");
        }
    }
    warnings
}
