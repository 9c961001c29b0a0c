//! What the threads of a run share: the workload, its objects, the stop flag, and the register of threads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::thread::futex;
use warmcore_workload::{ProcessId, SemaphoreId, Step, TaskTemplateId, Warning, Workload, add_warning};

use crate::channel::Channel;
use crate::clock::now_ns;
use crate::error::NativeError;
use crate::host::Host;
use crate::memory::SharedMemory;
use crate::run::{NativeOptions, TaskOutcome};
use crate::spin::Calibration;
use crate::sync::{Barrier, List, Lock, Semaphore, WaitQueue, flags, locked};
use crate::window::Before;

/// Set once, when the run is to end.
#[derive(Default)]
pub(crate) struct Stop {
    flag: AtomicBool,
}

/// The run was stopped while the thread waited or computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stopped;

impl Stop {
    pub(crate) fn set(&self) {
        self.flag.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.flag.load(Ordering::Acquire) { Err(Stopped) } else { Ok(()) }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.check().is_err()
    }
}

/// The objects tasks meet at, by id.
pub(crate) struct Objects {
    pub(crate) locks: Vec<Lock>,
    pub(crate) conditions: Vec<WaitQueue>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) semaphores: Vec<Semaphore>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) lists: Vec<List>,
    /// Next expiry of each timer that is not private, once it was used.
    pub(crate) timers: Vec<Mutex<Option<u64>>>,
    /// Suspended tasks, by template.
    pub(crate) suspended: Vec<WaitQueue>,
}

impl Objects {
    fn new(workload: &Workload, channels: Vec<Channel>) -> Result<Self, NativeError> {
        let barriers = workload.barriers.iter().map(|barrier| {
            let failed = |source| NativeError::Barrier { barrier: barrier.name.clone(), source };
            Barrier::new(barrier.participants, barrier.wait).map_err(failed)
        });
        let semaphores = (0..).zip(&workload.semaphores).map(|(id, semaphore)| {
            let timed = workload.is_timed(SemaphoreId(id));
            Semaphore::new(semaphore.initial, timed)
        });
        Ok(Self {
            locks: workload.locks.iter().map(|_| Lock::default()).collect(),
            conditions: workload.conditions.iter().map(|_| WaitQueue::default()).collect(),
            barriers: barriers.collect::<Result<_, _>>()?,
            semaphores: semaphores.collect(),
            channels,
            lists: workload.lists.iter().map(|_| List::default()).collect(),
            timers: workload.timers.iter().map(|_| Mutex::new(None)).collect(),
            suspended: workload.tasks.iter().map(|_| WaitQueue::default()).collect(),
        })
    }
}

/// What is known of threads, and what they leave behind.
#[derive(Default)]
pub(crate) struct Register {
    /// Threads that exist, by number.
    pub(crate) live: BTreeMap<i32, TaskTemplateId>,
    /// Threads that have ended, with the order of their creation.
    pub(crate) ended: Vec<(u64, TaskOutcome)>,
    /// Samples by recorder, with the order of creation of the thread that took them.
    pub(crate) samples: Vec<(u64, Vec<Vec<u64>>)>,
    /// Tasks created so far, by template.
    pub(crate) created: Vec<u32>,
    /// Main threads of processes that run no task themselves.
    pub(crate) helpers: Vec<i32>,
    /// First failure of any thread.
    pub(crate) failure: Option<NativeError>,
    pub(crate) warnings: Vec<Warning>,
    /// What threads had used when the warm-up was over.
    pub(crate) before: Before,
}

/// Whether tasks of this run are in more than one process.
pub(crate) fn several_processes(workload: &Workload) -> bool {
    let mut processes = own_tasks(workload).map(|task| task.process);
    let first = processes.next();
    processes.any(|process| Some(process) != first)
}

/// Templates that can have tasks in this run; a part of a workload keeps those of others without a program.
pub(crate) fn own_tasks(workload: &Workload) -> impl Iterator<Item = &warmcore_workload::Task> {
    workload.tasks.iter().filter(|task| !workload.programs[task.program.index()].steps.is_empty())
}

/// Everything threads share.
pub(crate) struct Shared {
    pub(crate) workload: Workload,
    pub(crate) objects: Objects,
    pub(crate) host: Host,
    pub(crate) calibration: Calibration,
    pub(crate) work_is_cpu_time: bool,
    /// Of what tasks draw.
    pub(crate) seed: u64,
    /// By task group: the file to which a thread writes its number to join.
    pub(crate) groups: Vec<PathBuf>,
    /// The memory of tasks, where they are to have some.
    pub(crate) memory: Option<SharedMemory>,
    pub(crate) stop: Stop,
    /// Instant of the start, on the monotonic clock.
    pub(crate) start_ns: u64,
    /// Tasks with a release at or before this time of the run may run anywhere.
    pub(crate) released_until_ns: AtomicU64,
    /// Processes of the workload are processes.
    pub(crate) separate: bool,
    /// Tasks of the start that were not created yet.
    pub(crate) pending: AtomicU32,
    /// Threads that are running or about to.
    pub(crate) alive: AtomicU32,
    /// A futex on which the launcher waits; changes when there is something for it to look at.
    pub(crate) bell: AtomicU32,
    /// Threads created so far.
    pub(crate) creations: AtomicU64,
    pub(crate) register: Mutex<Register>,
}

impl Shared {
    pub(crate) fn new(
        workload: &Workload,
        options: &NativeOptions,
        channels: Vec<Channel>,
        host: Host,
        calibration: Calibration,
        warnings: Vec<Warning>,
    ) -> Result<Arc<Self>, NativeError> {
        let register = Register { created: vec![0; workload.tasks.len()], warnings, ..Register::default() };
        Ok(Arc::new(Self {
            objects: Objects::new(workload, channels)?,
            workload: workload.clone(),
            host,
            calibration,
            work_is_cpu_time: options.work_is_cpu_time,
            seed: options.seed,
            groups: options.groups.clone(),
            memory: options.own_memory.then(|| SharedMemory::new(workload)),
            stop: Stop::default(),
            start_ns: now_ns(),
            released_until_ns: AtomicU64::new(0),
            separate: options.processes.is_some() && several_processes(workload),
            pending: AtomicU32::new(workload.tasks.iter().map(|task| task.instances).sum()),
            alive: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            creations: AtomicU64::new(0),
            register: Mutex::new(register),
        }))
    }

    /// Whether tasks of a process create others in it.
    pub(crate) fn has_threads(&self, process: ProcessId) -> bool {
        let tasks = &self.workload.tasks;
        let creates = |step: &Step| matches!(step, Step::Fork(other) if tasks[other.index()].process == process);
        let own = tasks.iter().filter(|task| task.process == process);
        own.flat_map(|task| &self.workload.programs[task.program.index()].steps).any(creates)
    }

    /// Counts something that could not be done as the workload asks.
    pub(crate) fn warn(&self, what: &str, consequence: &str) {
        add_warning(&mut locked(&self.register).warnings, what.to_owned(), consequence.to_owned(), 1);
    }

    /// Keeps the first failure and ends the run.
    pub(crate) fn fail(&self, error: NativeError) {
        locked(&self.register).failure.get_or_insert(error);
        self.end();
    }

    /// Ends the run.
    pub(crate) fn end(&self) {
        self.stop.set();
        self.ring();
    }

    /// Makes launchers look at the state of the run.
    pub(crate) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.bell, flags(), i32::MAX as u32);
    }

    /// One thread less; the launcher looks when none is left.
    pub(crate) fn leave(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ring();
        }
    }
}
