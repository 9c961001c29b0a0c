//! One thread of a run: the interpreter of a task's program.

mod memory_steps;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::{sched_setaffinity, sched_yield};
use rustix::{fd::OwnedFd, io::Errno};
use warmcore_workload::{
    Affinity, Drawn, Draws, GroupId, RecorderId, Step, TaskTemplateId, TimerId, TimerMode, UtilClamp,
};

use crate::chain::Chain;
use crate::channel::Failed;
use crate::clock::{now_ns, sleep, sleep_until, thread_cpu_ns};
use crate::error::NativeError;
use crate::memory::TaskMemory;
use crate::run::{TaskOutcome, outlive};
use crate::shared::{Shared, Stopped};
use crate::start::Line;
use crate::sync::{Family, Parker, locked};
use crate::sys::{self, Attributes, FreshMemory};
use crate::window::warm_up_ns;

/// Stack of a thread: the interpreter does not recurse.
const STACK_BYTES: usize = 128 << 10;

/// Who creates a task.
pub(crate) enum Creator {
    /// A main thread, which is of the task's process or is to make a process of the task.
    Launcher {
        /// It is of the task's process.
        same_process: bool,
        /// Where the task waits for those that begin with it. One that does has its affinity from its creator.
        line: Option<Arc<Line>>,
    },
    /// A task of the template, whose family counts the exit.
    Task(TaskTemplateId, Arc<Family>),
}

/// Creates a task of the template: a thread, or where its process is another one than its creator's a process.
pub(crate) fn spawn(shared: &Arc<Shared>, template: TaskTemplateId, creator: Creator) -> Result<(), NativeError> {
    let task = &shared.workload.tasks[template.index()];
    let number = {
        let mut register = locked(&shared.register);
        let created = &mut register.created[template.index()];
        *created += 1;
        *created - 1
    };
    let running = shared.alive.fetch_add(1, Ordering::AcqRel);
    let order = shared.creations.fetch_add(1, Ordering::Relaxed);
    let name: String = task.comm().chars().map(|c| if c == '\0' { '?' } else { c }).collect();
    let place = Arc::clone(shared);
    let (same_process, line, parent) = match creator {
        Creator::Launcher { same_process, line } => (same_process, line, None),
        Creator::Task(creator, family) => {
            (shared.workload.tasks[creator.index()].process == task.process, None, Some(family))
        }
    };
    let body = move || {
        let mut end = EndOfThread { shared: &place, template, number, order, parent, finished: None };
        end.finished = Some(ThreadInterpreter::new(&place, template, number).run(line.as_deref()));
    };
    let spawned = if shared.separate && !same_process {
        let (place, process) = (Arc::clone(shared), task.process);
        sys::begin_process(&name, move || {
            body();
            if place.has_threads(process) {
                outlive(&place);
            }
        })
    } else {
        std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body).map(drop)
    };
    spawned.map_err(|source| {
        shared.leave();
        NativeError::Thread { task: task.name.clone(), running, source }
    })
}

/// Leaves the thread's results in the register, also when the thread panics.
struct EndOfThread<'a> {
    shared: &'a Shared,
    template: TaskTemplateId,
    number: u32,
    order: u64,
    parent: Option<Arc<Family>>,
    finished: Option<ThreadResult>,
}

/// What a thread did.
struct ThreadResult {
    completed: bool,
    steps: u64,
    samples: Vec<Vec<u64>>,
}

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        let (voluntary_switches, involuntary_switches) = sys::context_switches();
        {
            let mut register = locked(&self.shared.register);
            let thread = sys::thread_number();
            register.live.remove(&thread);
            match self.finished.take() {
                Some(finished) => {
                    let cpu_ns = register.counted_ns(&self.shared.workload, thread, thread_cpu_ns());
                    let outcome = TaskOutcome {
                        template: self.template,
                        number: self.number,
                        thread,
                        cpu_ns,
                        voluntary_switches,
                        involuntary_switches,
                        steps: finished.steps,
                        completed: finished.completed,
                    };
                    register.ended.push((self.order, outcome));
                    register.samples.push((self.order, finished.samples));
                }
                None => {
                    let task = self.shared.workload.tasks[self.template.index()].name.clone();
                    register.failure.get_or_insert(NativeError::Panic { task });
                    self.shared.end();
                }
            }
        }
        if let Some(parent) = &self.parent {
            parent.exit();
        }
        self.shared.leave();
    }
}

/// Why the interpreter leaves the program.
enum ExitCause {
    /// The task ended.
    Exit,
    /// The run was stopped.
    Stopped,
    /// The run cannot go on.
    Failed(NativeError),
}

impl From<Stopped> for ExitCause {
    fn from(_: Stopped) -> Self {
        ExitCause::Stopped
    }
}

/// State of one task.
struct ThreadInterpreter<'a> {
    shared: &'a Arc<Shared>,
    template: TaskTemplateId,
    /// What it draws times from.
    draws: Draws,
    start_ns: u64,
    parker: Arc<Parker>,
    family: Arc<Family>,
    /// Exits of children that were waited for.
    joined: u32,
    clocks: [u64; 4],
    samples: Vec<Vec<u64>>,
    /// Next expiries of private timers.
    timers: Vec<(TimerId, u64)>,
    attributes: Attributes,
    /// Index of the loop's start, and iterations left (`None`: for ever).
    loops: Vec<(usize, Option<u64>)>,
    /// CPU time spent touching memory that the next `Run` need not spend again.
    memory_credit_ns: u64,
    message: Vec<u8>,
    region: Vec<u8>,
    chains: Vec<Chain>,
    fresh: Option<FreshMemory>,
    null_device: Option<OwnedFd>,
    memory: Option<TaskMemory>,
    steps: u64,
}

impl<'a> ThreadInterpreter<'a> {
    fn new(shared: &'a Arc<Shared>, template: TaskTemplateId, number: u32) -> Self {
        Self {
            shared,
            template,
            draws: Draws::new(shared.seed, template.0, number),
            start_ns: now_ns(),
            parker: Arc::default(),
            family: Arc::default(),
            joined: 0,
            clocks: [shared.start_ns; 4],
            samples: vec![Vec::new(); shared.workload.recorders.len()],
            timers: Vec::new(),
            attributes: Attributes::default(),
            loops: Vec::new(),
            memory_credit_ns: 0,
            message: Vec::new(),
            region: Vec::new(),
            chains: Vec::new(),
            fresh: None,
            null_device: None,
            memory: None,
            steps: 0,
        }
    }

    fn run(mut self, line: Option<&Line>) -> ThreadResult {
        let left = self.start(line).and_then(|()| self.interpret());
        let completed = match left {
            Ok(()) | Err(ExitCause::Exit) => true,
            Err(ExitCause::Stopped) => false,
            Err(ExitCause::Failed(error)) => {
                self.shared.fail(error);
                false
            }
        };
        ThreadResult { completed, steps: self.steps, samples: self.samples }
    }

    /// Enters the register, takes the task's attributes, and waits for those that begin with it.
    fn start(&mut self, line: Option<&Line>) -> Result<(), ExitCause> {
        let shared = self.shared;
        let task = &shared.workload.tasks[self.template.index()];
        locked(&shared.register).live.insert(sys::thread_number(), self.template);
        if task.affinity != Affinity::All {
            if line.is_none() {
                self.set_affinity(&task.affinity)?;
            }
            // A release before entering the register did not find it, one between that and here found the old affinity.
            let released = shared.released_until_ns.load(Ordering::SeqCst);
            if task.release_ns.is_some_and(|release| release <= released && released > 0) {
                self.set_affinity(&Affinity::All)?;
            }
        }
        let (policy, nice, slice_ns) = (task.policy, task.nice, task.slice_ns.unwrap_or(0));
        let attributes = Attributes { policy, nice, slice_ns, util_clamp: task.util_clamp };
        if attributes != self.attributes {
            self.set_attributes(attributes)?;
        }
        task.timer_slack_ns.into_iter().for_each(sys::set_timer_slack);
        if let Some(group) = task.group {
            self.join(group);
        }
        if let Some(memory) = &shared.memory {
            for reduced in memory.reduced(self.template.index()) {
                shared.warn("memory", reduced);
            }
            self.memory = memory.of_task(self.template.index());
        }
        if let Some(line) = line {
            line.wait(&shared.stop)?;
            self.start_ns = now_ns();
        }
        Ok(())
    }

    fn interpret(&mut self) -> Result<(), ExitCause> {
        let shared = Arc::clone(self.shared);
        let program = shared.workload.tasks[self.template.index()].program;
        let steps = &shared.workload.programs[program.index()].steps;
        let mut next = 0;
        while let Some(step) = steps.get(next) {
            shared.stop.check()?;
            self.steps += 1;
            match step {
                Step::LoopStart { times: Some(0), end } => next = *end as usize,
                Step::LoopStart { times, .. } => self.loops.push((next, *times)),
                Step::LoopEnd { .. } => {
                    if let Some((start, left)) = self.loops.last_mut() {
                        *left = left.map(|left| left - 1);
                        if *left == Some(0) {
                            self.loops.pop();
                        } else {
                            next = *start;
                        }
                    }
                }
                _ => self.step(step)?,
            }
            next += 1;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), ExitCause> {
        let (shared, objects, stop) = (self.shared, &self.shared.objects, &self.shared.stop);
        match step {
            Step::Run { work_ns } => {
                let work_ns = work_ns.saturating_sub(std::mem::take(&mut self.memory_credit_ns));
                match shared.work_is_cpu_time {
                    true => self.use_cpu(work_ns)?,
                    false => shared.calibration.work(work_ns, stop)?,
                }
            }
            Step::RunTime { cpu_ns } => self.use_cpu(*cpu_ns)?,
            Step::Sleep { duration_ns } => self.sleep(*duration_ns)?,
            Step::Draw { what, from } => {
                let ns = self.draws.draw(from);
                match what {
                    Drawn::Work => self.step(&Step::Run { work_ns: ns })?,
                    Drawn::CpuTime => self.step(&Step::RunTime { cpu_ns: ns })?,
                    Drawn::Sleep => self.sleep(ns)?,
                    Drawn::Arrival { slot } => {
                        let clock = &mut self.clocks[usize::from(*slot)];
                        *clock = clock.saturating_add(ns);
                        let due = *clock;
                        self.sleep_until(due)?;
                    }
                }
            }
            Step::Timer { timer, period_ns, mode } => self.timer(*timer, *period_ns, *mode)?,
            // Locks with readers are the kernel's, which `run` refuses.
            Step::Lock(lock) | Step::LockShared(lock) => objects.locks[lock.index()].lock(stop)?,
            Step::Unlock(lock) => objects.locks[lock.index()].unlock(),
            Step::Wait { condition, lock } => self.wait(condition.index(), lock.index(), false)?,
            Step::SignalAndWait { condition, lock } => self.wait(condition.index(), lock.index(), true)?,
            Step::Signal(condition) => objects.conditions[condition.index()].wake_one(),
            Step::Broadcast(condition) => objects.conditions[condition.index()].wake_all(),
            Step::Barrier(barrier) => objects.barriers[barrier.index()].arrive(stop)?,
            Step::Suspend => {
                let suspended = &objects.suspended[self.template.index()];
                let ticket = suspended.enter(&self.parker);
                suspended.park(&self.parker, ticket, stop)?;
            }
            Step::Resume(template) => objects.suspended[template.index()].wake_all(),
            Step::SemPost(semaphore) => objects.semaphores[semaphore.index()].post(),
            Step::Submit { semaphore, program } => objects.semaphores[semaphore.index()].submit(*program),
            Step::Work { semaphore, requests, recorder } => {
                while let Some((program, began_ns)) =
                    objects.semaphores[semaphore.index()].take_request(*requests, stop)?
                {
                    for step in &shared.workload.programs[program.index()].steps {
                        stop.check()?;
                        self.steps += 1;
                        self.step(step)?;
                    }
                    if let Some(recorder) = recorder {
                        self.record(*recorder, began_ns, now_ns().saturating_sub(began_ns));
                    }
                }
            }
            Step::SemWait(semaphore) => {
                objects.semaphores[semaphore.index()].wait(stop)?;
            }
            Step::SemTake { semaphore, slot } => {
                let added_ns = objects.semaphores[semaphore.index()].wait(stop)?;
                self.clocks[usize::from(*slot)] = added_ns.unwrap_or_else(now_ns);
            }
            Step::Send { channel, bytes } => {
                let result = objects.channels[channel.index()].send(*bytes, &mut self.message, stop);
                result.map_err(|failed| self.failed(failed))?;
            }
            Step::Receive { channel, bytes } => {
                let result = objects.channels[channel.index()].receive(*bytes, &mut self.message, stop);
                result.map_err(|failed| self.failed(failed))?;
            }
            Step::Enlist { list, recorder } => {
                let latency_ns = objects.lists[list.index()].enlist(&self.parker, stop)?;
                if let Some(recorder) = recorder {
                    self.record(*recorder, now_ns().saturating_sub(latency_ns), latency_ns);
                }
            }
            Step::Serve(list) => objects.lists[list.index()].serve(&self.parker, stop)?,
            Step::Fork(template) => {
                let creator = Creator::Task(self.template, Arc::clone(&self.family));
                spawn(shared, *template, creator).map_err(ExitCause::Failed)?;
            }
            Step::Join { count } => {
                self.joined = self.joined.saturating_add(*count);
                self.family.wait_for(self.joined, stop)?;
            }
            Step::Yield => sched_yield(),
            Step::SetAffinity(affinity) => self.set_affinity(affinity)?,
            Step::MigrateDisable | Step::MigrateEnable | Step::IoWait | Step::Kernel(_) => {}
            Step::SetNice(nice) => self.set_attributes(Attributes { nice: *nice, ..self.attributes })?,
            Step::SetPolicy(policy) => self.set_attributes(Attributes { policy: *policy, ..self.attributes })?,
            Step::SetSlice { slice_ns } => {
                self.set_attributes(Attributes { slice_ns: *slice_ns, ..self.attributes })?;
            }
            Step::SetUtilClamp(util_clamp) => {
                self.set_attributes(Attributes { util_clamp: *util_clamp, ..self.attributes })?;
            }
            Step::SetGroup(group) => self.join(*group),
            Step::Memory { bytes, region_bytes } => self.touch(*bytes, *region_bytes)?,
            Step::Chase { hops, region_bytes } => self.chase(*hops, *region_bytes)?,
            Step::FirstTouch { bytes } => self.first_touch(*bytes)?,
            Step::Map { bytes } => self.map(*bytes)?,
            Step::IoRun { bytes } => self.write_to_null(*bytes)?,
            Step::StartClock { slot } => self.clocks[usize::from(*slot)] = now_ns(),
            Step::RecordClock { slot, recorder } => {
                let began_ns = self.clocks[usize::from(*slot)];
                self.record(*recorder, began_ns, now_ns().saturating_sub(began_ns));
            }
            Step::RecordSince { since_ns, recorder } => {
                let began_ns = shared.start_ns.saturating_add(*since_ns);
                self.record(*recorder, began_ns, now_ns().saturating_sub(began_ns));
            }
            Step::Phase(_) | Step::LoopStart { .. } | Step::LoopEnd { .. } => {}
            Step::Exit => return Err(ExitCause::Exit),
            Step::Stop => {
                shared.end();
                return Err(ExitCause::Exit);
            }
        }
        Ok(())
    }

    /// Uses CPU time, and with it its memory.
    fn use_cpu(&mut self, cpu_ns: u64) -> Result<(), ExitCause> {
        let memory = &mut self.memory;
        let touch = || memory.iter_mut().for_each(TaskMemory::touch);
        Ok(self.shared.calibration.use_cpu(cpu_ns, &self.shared.stop, touch)?)
    }

    /// Joins a task group, if that can be done here. What the kernel refuses is a warning.
    fn join(&self, group: GroupId) {
        let Some(file) = self.shared.groups.get(group.index()) else {
            return self.shared.warn("task groups", "tasks stay in the group of this program");
        };
        let written = std::fs::OpenOptions::new().write(true).open(file).and_then(|mut file| {
            use std::io::Write as _;
            file.write_all(sys::thread_number().to_string().as_bytes())
        });
        if let Err(error) = written {
            self.shared.warn("task groups", &format!("{}: {error}; the task stays in its group", file.display()));
        }
    }

    /// Keeps a sample, if what it measures began in the window.
    fn record(&mut self, recorder: RecorderId, began_ns: u64, ns: u64) {
        let since_start_ns = began_ns.saturating_sub(self.shared.start_ns);
        if warm_up_ns(&self.shared.workload).is_none_or(|warm_up_ns| since_start_ns > warm_up_ns) {
            self.samples[recorder.index()].push(ns);
        }
    }

    fn sleep(&self, duration_ns: u64) -> Result<(), ExitCause> {
        let mut left = Some(duration_ns);
        while let Some(ns) = left {
            left = sleep(ns);
            self.shared.stop.check()?;
        }
        Ok(())
    }

    fn timer(&mut self, timer: TimerId, period_ns: u64, mode: TimerMode) -> Result<(), ExitCause> {
        // The first expiry is one period after the task's start.
        let advance = |last: Option<u64>, start_ns: u64| {
            let next = last.unwrap_or(start_ns).saturating_add(period_ns);
            let now = now_ns();
            let sleeps = next > now;
            let kept = if sleeps || mode == TimerMode::Absolute { next } else { now };
            (kept, sleeps.then_some(next))
        };
        let until = if self.shared.workload.timer_is_private(timer) {
            match self.timers.iter_mut().find(|(known, _)| *known == timer) {
                Some((_, last)) => {
                    let (kept, until) = advance(Some(*last), self.start_ns);
                    *last = kept;
                    until
                }
                None => {
                    let (kept, until) = advance(None, self.start_ns);
                    self.timers.push((timer, kept));
                    until
                }
            }
        } else {
            let mut last = locked(&self.shared.objects.timers[timer.index()]);
            let (kept, until) = advance(*last, self.start_ns);
            *last = Some(kept);
            until
        };
        until.map_or(Ok(()), |until| self.sleep_until(until))
    }

    /// Sleeps until a time, if that has not passed.
    fn sleep_until(&self, until_ns: u64) -> Result<(), ExitCause> {
        while sleep_until(until_ns) {
            self.shared.stop.check()?;
        }
        Ok(())
    }

    fn wait(&self, condition: usize, lock: usize, signal: bool) -> Result<(), ExitCause> {
        let (objects, stop) = (&self.shared.objects, &self.shared.stop);
        let condition = &objects.conditions[condition];
        if signal {
            condition.wake_one();
        }
        let ticket = condition.enter(&self.parker);
        objects.locks[lock].unlock();
        condition.park(&self.parker, ticket, stop)?;
        objects.locks[lock].lock_again(stop)?;
        Ok(())
    }

    fn set_affinity(&self, affinity: &Affinity) -> Result<(), ExitCause> {
        let task = || self.shared.workload.tasks[self.template.index()].name.clone();
        let set = self.shared.host.resolve(affinity);
        let set = set.map_err(|reason| ExitCause::Failed(NativeError::NoCpus { task: task(), reason }))?;
        sched_setaffinity(None, &set)
            .map_err(|source| ExitCause::Failed(NativeError::Call { task: task(), call: "sched_setaffinity", source }))
    }

    /// Changes policy, nice value and slice. What the kernel refuses stays as it was: a warning.
    /// What the kernel refuses of fair attributes is a warning; a run without its real-time tasks would be another one.
    fn set_attributes(&mut self, attributes: Attributes) -> Result<(), ExitCause> {
        match sys::set_attributes(attributes) {
            // The kernel keeps clamps that are not named again.
            Ok(()) => self.attributes = Attributes { util_clamp: UtilClamp::NONE, ..attributes },
            Err(source) if !attributes.util_clamp.is_none() && source != Errno::PERM => {
                let task = self.shared.workload.tasks[self.template.index()].name.clone();
                let clamp = attributes.util_clamp.to_string();
                return Err(ExitCause::Failed(NativeError::UtilClamp { task, clamp, source }));
            }
            Err(source) if attributes.policy.is_realtime() => {
                let task = self.shared.workload.tasks[self.template.index()].name.clone();
                let policy = attributes.policy.name();
                return Err(ExitCause::Failed(NativeError::Policy { task, policy, source }));
            }
            Err(Errno::PERM | Errno::ACCESS) => {
                let what = format!("nice {} and policy {:?}", attributes.nice, attributes.policy);
                self.shared.warn(&what, "not permitted, so the task keeps what it had; see CAP_SYS_NICE");
            }
            Err(error) => {
                self.shared.warn("sched_setattr", &format!("it failed ({error}), so the task keeps what it had"));
            }
        }
        Ok(())
    }

    fn failed(&self, failed: Failed) -> ExitCause {
        match failed {
            Failed::Stopped => ExitCause::Stopped,
            Failed::Call(call, source) => {
                let task = self.shared.workload.tasks[self.template.index()].name.clone();
                ExitCause::Failed(NativeError::Call { task, call, source })
            }
        }
    }
}
