//! Threads of a scheduler's own in user space: the loader of a sched_ext program, or agents that decide for the kernel.
//!
//! They are tasks to every policy, the scheduler that they belong to included: it places, queues and runs them as it does others. They are none to whoever
//! looks at the run, as threads of the kernel ([`background`](crate::background)). What one does is the scheduler's affair: whenever such a thread has a CPU
//! and has used up the time that it was to run, the scheduler says what it does next ([`Scheduler::thread_goes_on`]).
//!
//! All exist before the run and sleep. They are woken by an interrupt of the CPU that they slept on ([`Core::wake_thread`]), as by their timers.
//!
//! Not modelled: their memory, their real-time policies; masks of theirs in a run in which CPUs go offline.

use std::sync::OnceLock;

use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{BackgroundOutcome, TaskId};
use warmcore_workload::{Draws, Policy, ProgramId, TaskTemplateId};

use crate::core::Core;
use crate::engine::{Engine, Leave, Now};
use crate::event_queue::Class;
use crate::memory::Memory;
use crate::scheduler::{Scheduler, WakeFlags};
use crate::task::{Activity, State, Task, WaitReason};

/// Generation of [`Class::Background`] events that wake a thread.
pub(crate) const WAKES: u32 = 5;

/// The same of a thread whose scheduling its scheduler changes.
pub(crate) const CHANGES: u32 = 6;

/// Different masks that such threads of a run may have.
const MOST_SETS: usize = 64;

/// A thread of the scheduler's own, as it asks to be scheduled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SchedulerThread {
    /// What it calls itself.
    pub name: String,
    /// The CPUs that it may use; none stated is all.
    pub cpus: Option<CpuSet>,
    /// Nice value, -20 to 19.
    pub nice: i8,
    /// Policy, none of real time or deadlines.
    pub policy: Policy,
}

/// What such a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadStep {
    /// It uses its CPU for so many ns, at least 1.
    Run(u64),
    /// `sched_yield`.
    Yield,
    /// It sleeps until it is woken.
    Sleep,
}

/// Masks of such threads, found during the run.
#[derive(Clone, Debug)]
pub(crate) struct ThreadSets(Box<[OnceLock<CpuSet>]>);

impl Default for ThreadSets {
    fn default() -> Self {
        Self((0..MOST_SETS).map(|_| OnceLock::new()).collect())
    }
}

impl ThreadSets {
    /// Place of a set, new or known; `None` if there are too many.
    fn intern(&self, set: &CpuSet) -> Option<usize> {
        self.0.iter().position(|place| place.get_or_init(|| set.clone()) == set)
    }

    /// The set at a place that was given.
    pub(crate) fn get(&self, place: usize) -> &CpuSet {
        self.0[place].get().expect("restrictions are numbers of sets that exist")
    }
}

/// What was counted of the threads.
#[derive(Default)]
pub(crate) struct SchedulerThreads {
    wakeups: u64,
}

impl Core<'_> {
    /// The task that a thread of the scheduler's own is, by the thread's number.
    #[must_use]
    pub fn thread_task(&self, number: u32) -> TaskId {
        TaskId(self.first_thread + number)
    }

    /// Number of the thread of the scheduler's own that a task is, if it is one.
    #[inline]
    #[must_use]
    pub fn thread_number(&self, task: TaskId) -> Option<u32> {
        task.0.checked_sub(self.first_thread).filter(|number| (*number as usize) < self.thread_names.len())
    }

    /// Wakes a thread of the scheduler's own, by an interrupt of its CPU; one that is awake is asked all the same before it sleeps.
    pub fn wake_thread(&mut self, number: u32) {
        let cpu = self.task(self.thread_task(number)).cpu();
        self.queue.push(self.now_ns, Class::Background, cpu, number, WAKES);
    }

    /// What [`Scheduler::threads`] says of a thread has changed.
    pub fn change_thread(&mut self, number: u32) {
        let cpu = self.task(self.thread_task(number)).cpu();
        self.queue.push(self.now_ns, Class::Background, cpu, number, CHANGES);
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Creates the scheduler's own threads, asleep, each on the first CPU that it may use.
    pub(crate) fn create_scheduler_threads(&mut self) {
        let template = self.workload.tasks.len() as u32;
        for (number, thread) in self.scheduler.threads().to_vec().into_iter().enumerate() {
            let restriction = self.restriction_of(&thread);
            let cpu = self.core.cpus_of_restriction(restriction).first().unwrap_or(CpuId(0));
            let state = Task {
                state: State::Blocked,
                restriction,
                nice: thread.nice,
                policy: policy_of(&thread),
                process: self.workload.processes.len() as u32 + 1,
                application: self.workload.applications.len() as u32,
                waiting_for: WaitReason::Time,
                ..Task::new(TaskTemplateId(template), number as u32, ProgramId(0), cpu, 0, Draws::new(0, template, 0))
            };
            let task = TaskId(self.core.tasks.len() as u32);
            self.core.process_threads[state.process as usize] += 1;
            self.core.tasks.push(state);
            if let Err(error) = self.memory.task_created(template) {
                self.core.error.get_or_insert(error);
                return;
            }
            self.core.pages_of_new_task(task);
            self.core.this_cpu = cpu;
            self.scheduler.task_fork(&mut self.core, task, None);
        }
    }

    /// Number of the CPUs that a thread may use.
    fn restriction_of(&mut self, thread: &SchedulerThread) -> u32 {
        let Some(cpus) = thread.cpus.as_ref().filter(|_| !self.setup.has_hotplug()) else { return 0 };
        let cpus = cpus.intersection(self.core.machine.all_cpus());
        if cpus == *self.core.machine.all_cpus() || cpus.is_empty() {
            return 0;
        }
        match self.setup.thread_sets.intern(&cpus) {
            Some(place) => (self.core.restrictions.len() + self.core.visitor_sets.len() + place) as u32,
            None => {
                let name = &thread.name;
                self.core.fail(format!("the thread {name} asks for one more than {MOST_SETS} different sets of CPUs"));
                0
            }
        }
    }

    /// A thread has something to do.
    pub(crate) fn wake_scheduler_thread(&mut self, number: u32) -> bool {
        let task = self.core.thread_task(number);
        let sleeps = self.core.tasks[task.index()].state == State::Blocked;
        if sleeps {
            self.scheduler_threads.wakeups += 1;
            self.wake(task, WakeFlags::default());
        }
        sleeps
    }

    /// A thread asks to be scheduled otherwise (`sched_setaffinity`, `sched_setscheduler`, `setpriority`).
    #[cold]
    pub(crate) fn change_scheduler_thread(&mut self, number: u32) {
        let Some(thread) = self.scheduler.threads().get(number as usize).cloned() else { return };
        let task = self.core.thread_task(number);
        let restriction = self.restriction_of(&thread);
        if self.core.tasks[task.index()].restriction != restriction {
            self.set_mask(task, restriction);
            self.leave_forbidden_cpu(task);
        }
        let (nice, policy) = (thread.nice, policy_of(&thread));
        let state = &mut self.core.tasks[task.index()];
        if (state.nice, state.policy) != (nice, policy) {
            (state.nice, state.policy) = (nice, policy);
            let cpu = state.cpu;
            if self.core.curr(cpu) == task {
                self.settle(cpu);
            }
            self.scheduler.attributes_changed(&mut self.core, task);
        }
    }

    /// A thread of the scheduler's own has a CPU and nothing left to run.
    #[cold]
    pub(crate) fn scheduler_thread_step(&mut self, id: TaskId, number: u32) -> Now {
        let step = self.scheduler.thread_goes_on(&mut self.core, number);
        self.entered_kernel = true;
        let task = &mut self.core.tasks[id.index()];
        match step {
            ThreadStep::Run(ns) => {
                (task.activity, task.remaining_ns) = (Activity::CpuTime, ns.max(1));
                Now::Busy
            }
            ThreadStep::Yield => Now::Leaves(Leave::Yielded),
            ThreadStep::Sleep => {
                task.waiting_for = WaitReason::Time;
                Now::Leaves(Leave::Blocked)
            }
        }
    }

    /// What the threads took.
    pub(crate) fn scheduler_threads_outcome(&self) -> Option<BackgroundOutcome> {
        let names = &self.core.thread_names;
        let first = self.core.first_thread as usize;
        Some(BackgroundOutcome {
            name: format!("loader {}", names.first()?),
            threads: names.len() as u32,
            wakeups: self.scheduler_threads.wakeups,
            cpu_time_ns: self.core.tasks[first..first + names.len()].iter().map(|task| task.cpu_time_ns).sum(),
            ..BackgroundOutcome::default()
        })
    }
}

/// The policy that a thread has: one of real time would stand in no class of a run without such tasks.
fn policy_of(thread: &SchedulerThread) -> Policy {
    match thread.policy {
        policy if policy.is_realtime() || policy.is_deadline() => Policy::Normal,
        policy => policy,
    }
}
