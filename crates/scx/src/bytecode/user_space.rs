//! The part of a scheduler that stays in user space, in simulated time.
//!
//! Its loader goes on after it has attached: it sleeps, reads and changes what its programs share with it, and sleeps again. It runs while simulated
//! time stands, and is stopped while that passes.
//!
//! Its threads are tasks ([`SchedulerThread`]). One whose wait is over goes on when its task has got a CPU, and its task then runs for as long as what it did
//! takes. Before the run begins, and with `loader=free`, threads go on at once and take no time. Who runs them, and what they take, is not this crate's affair.

use std::sync::Arc;

use warmcore_kernel::{SchedulerThread, ThreadStep};
use warmcore_topology::{CpuId, CpuSet};

use crate::bytecode::Object;
use crate::bytecode::host::{Host, LOADED_BEFORE_NS, UPTIME_NS, clock_ns};
use crate::bytecode::operations::Bytecode;
use crate::events::EventCounts;
use crate::kfuncs::Kfuncs;

/// Number of its timer, which no program's timer has.
pub(super) const TIMER: u32 = u32::MAX;

/// From the moment it may go on to the moment it does: a kernel returns from the system call first.
pub(super) const RETURN_NS: u64 = 1_000;

/// An instant of a run, as user space sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// The monotonic clock, in ns.
    pub now_ns: u64,
    /// Of each CPU how long it has been busy and idle, in ns.
    pub cpus: Vec<(u64, u64)>,
    /// The CPUs that are online.
    pub online: CpuSet,
    /// How often one has gone offline or come online so far.
    pub changes: u64,
    /// What the class has counted for the scheduler.
    pub events: EventCounts,
    /// Threads are tasks, and go on when those run.
    pub by_task: bool,
}

/// What comes of user space after it has gone on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Course {
    /// The instant, by the monotonic clock, at which a wait of it is over by itself.
    pub next_ns: Option<u64>,
    /// Threads that have something to do, by number.
    pub runnable: Vec<u32>,
    /// Threads that ask to be scheduled otherwise.
    pub changed: Vec<(u32, SchedulerThread)>,
}

/// A loader that goes on.
pub trait UserSpace {
    /// Its threads, as they ask to be scheduled.
    fn threads(&self) -> Vec<SchedulerThread>;

    /// Lets it run until all its threads wait; where threads are tasks, only those that wait for no task.
    ///
    /// # Errors
    /// When it ended, or does what must end the run, in words.
    fn go_on(&mut self, host: &mut Host, moment: &Moment) -> Result<Course, String>;

    /// The task of a thread has a CPU and nothing left to run: what it does next.
    ///
    /// # Errors
    /// As [`UserSpace::go_on`].
    fn thread_goes_on(&mut self, host: &mut Host, moment: &Moment, thread: u32)
    -> Result<(ThreadStep, Course), String>;

    /// Its scheduler has been ejected. Lets it run for the last time, until it has noticed that.
    fn ended(&mut self, host: &mut Host, moment: &Moment);

    /// Its scheduler has been ended, and it is asked to attach it again: it goes on, and nothing that it does ends the run.
    fn asked_for_restart(&mut self);

    /// What it has attached since.
    fn attached_again(&mut self) -> Option<Arc<Object>>;
}

/// The clock of user space when its scheduler is attached.
pub const ATTACHED_NS: u64 = UPTIME_NS - LOADED_BEFORE_NS;

/// Lets user space go on when its scheduler has been ejected.
pub(super) fn ended(user_space: &mut dyn UserSpace, host: &mut Host, kernel: &mut Kfuncs<'_, '_>) {
    let moment = moment(host, kernel, false);
    host.kernel = Some(std::ptr::from_mut(kernel).cast());
    user_space.ended(host, &moment);
    host.kernel = None;
}

fn moment(host: &mut Host, kernel: &Kfuncs<'_, '_>, by_task: bool) -> Moment {
    let now_ns = clock_ns(kernel);
    let idle_before_ns = LOADED_BEFORE_NS - kernel.before_ns();
    let times = |cpu| {
        let (busy, idle) = kernel.cpu_times_ns(CpuId(cpu));
        (busy, idle + idle_before_ns)
    };
    let cpus = (0..host.kept.cpus).map(times).collect();
    host.frame.now_ns = now_ns;
    let (online, events) = (kernel.core.active().clone(), *kernel.events());
    Moment { now_ns, cpus, online, changes: host.hotplug_seq, events, by_task }
}

impl Bytecode {
    /// Has threads of its loader be tasks, which take CPU time.
    #[must_use]
    pub fn with_threads(mut self) -> Self {
        self.threads = self.user_space.as_ref().map(|user_space| user_space.threads()).unwrap_or_default();
        self
    }

    /// What user space has attached since this ended.
    pub(super) fn look_for_next(&mut self) {
        if let Some(next) = self.user_space.as_mut().and_then(|user_space| user_space.attached_again()) {
            self.next = Some(next);
        }
    }

    /// Lets user space go on if its time has come: an earlier one may have been found since.
    pub(super) fn user_space_goes_on(&mut self, kernel: &mut Kfuncs<'_, '_>) -> Result<(), String> {
        if clock_ns(kernel) < self.user_space_at_ns {
            return Ok(());
        }
        self.user_space_at_ns = u64::MAX;
        let course = self.with_user_space(kernel, |user_space, host, moment| user_space.go_on(host, moment))?;
        course.into_iter().for_each(|course| self.follow(kernel, course));
        Ok(())
    }

    /// The task of a thread has a CPU: what the thread does next. An error ends the program.
    pub(super) fn user_thread_goes_on(&mut self, kernel: &mut Kfuncs<'_, '_>, thread: u32) -> ThreadStep {
        let has_ended = kernel.state.is_bypassed();
        match self.let_thread_go_on(kernel, thread) {
            Ok(step) => {
                if has_ended {
                    self.look_for_next();
                    // Whoever can attach it asks after a timer.
                    kernel.start_timer(0, TIMER);
                }
                step
            }
            Err(_) if has_ended => {
                self.user_space = None;
                ThreadStep::Sleep
            }
            Err(reason) => {
                kernel.fault(reason);
                ThreadStep::Sleep
            }
        }
    }

    fn let_thread_go_on(&mut self, kernel: &mut Kfuncs<'_, '_>, thread: u32) -> Result<ThreadStep, String> {
        let went =
            self.with_user_space(kernel, |user_space, host, moment| user_space.thread_goes_on(host, moment, thread))?;
        let Some((step, course)) = went else { return Ok(ThreadStep::Sleep) };
        self.follow(kernel, course);
        Ok(step)
    }

    fn with_user_space<R>(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        go: impl FnOnce(&mut dyn UserSpace, &mut Host, &Moment) -> Result<R, String>,
    ) -> Result<Option<R>, String> {
        let Some(user_space) = &mut self.user_space else { return Ok(None) };
        let by_task = !self.threads.is_empty() && kernel.before_ns() == 0;
        let moment = moment(&mut self.host, kernel, by_task);
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        let went = go(&mut **user_space, &mut self.host, &moment);
        self.host.kernel = None;
        went.map(Some)
    }

    /// Does what comes of it: threads wake, and the next wait is over at its time.
    fn follow(&mut self, kernel: &mut Kfuncs<'_, '_>, course: Course) {
        for (number, thread) in course.changed {
            if let Some(known) = self.threads.get_mut(number as usize) {
                *known = thread;
                kernel.core.change_thread(number);
            }
        }
        course.runnable.into_iter().for_each(|number| kernel.core.wake_thread(number));
        if let Some(next_ns) = course.next_ns {
            self.have_user_space_go_on(kernel, next_ns.saturating_sub(clock_ns(kernel)).max(RETURN_NS));
        }
    }

    /// Has user space go on after a time, unless it does so before.
    pub(super) fn have_user_space_go_on(&mut self, kernel: &mut Kfuncs<'_, '_>, delay_ns: u64) {
        let at_ns = clock_ns(kernel).saturating_add(delay_ns);
        if self.user_space.is_some() && at_ns < self.user_space_at_ns {
            self.user_space_at_ns = at_ns;
            kernel.start_timer(delay_ns, TIMER);
        }
    }
}
