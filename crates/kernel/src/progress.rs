//! How far running tasks get: what they have done is settled when something about their CPU changes, and an event is armed for when
//! they finish. Where speeds vary, the memory says how fast they are, or afterwards how far they came.

use warmcore_memory::analytic::SPEED_ONE;
use warmcore_topology::CpuId;
use warmcore_trace::OverheadKind;
use warmcore_workload::LockId;

use crate::engine::{Engine, Leave, Now};
use crate::event_queue::Slot;
use crate::memory::{Allotment, Memory, Progress};
use crate::scheduler::Scheduler;
use crate::task::{Activity, WaitReason};

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Settles the CPUs that share a core with this one: their speeds are about to change.
    pub(crate) fn settle_siblings(&mut self, cpu: CpuId) {
        for position in 0..self.siblings[cpu.index()].len() {
            self.settle(self.siblings[cpu.index()][position]);
        }
    }

    /// Brings the running task's progress up to date.
    #[inline(always)]
    pub(crate) fn settle(&mut self, cpu: CpuId) {
        let state = &self.core.cpus[cpu.index()];
        if self.core.now_ns != state.settled_ns && !state.curr.is_idle() {
            self.settle_running(cpu);
        }
    }

    /// Lets a memory that tells afterwards run up to now, and brings all tasks' progress up to date.
    pub(crate) fn settle_all(&mut self) {
        let now_ns = self.core.now_ns;
        for cpu in self.core.machine.cpus() {
            let state = &self.core.cpus[cpu.index()];
            if state.curr.is_idle() || state.settled_ns == now_ns {
                continue;
            }
            let elapsed_ns = now_ns - state.settled_ns;
            let overhead_ns = elapsed_ns.min(state.stolen_ns);
            let task = &self.core.tasks[state.curr.index()];
            let work_ns = match task.activity {
                Activity::Work | Activity::Message => task.remaining_ns,
                Activity::CpuTime => u64::MAX,
                Activity::Syscall | Activity::Advance | Activity::Spin | Activity::SpinUntil => 0,
            };
            self.memory.allot(cpu, Allotment { overhead_ns, useful_ns: elapsed_ns - overhead_ns, work_ns });
        }
        if let Err(error) = self.memory.advance(now_ns) {
            self.core.error.get_or_insert(error);
        }
        for cpu in self.core.machine.cpus() {
            self.settle(cpu);
        }
    }

    #[inline(never)]
    fn settle_running(&mut self, cpu: CpuId) {
        let now_ns = self.core.now_ns;
        let state = &mut self.core.cpus[cpu.index()];
        let elapsed = now_ns - state.settled_ns;
        state.settled_ns = now_ns;
        let overhead = elapsed.min(state.stolen_ns);
        state.stolen_ns -= overhead;
        let mut useful = elapsed - overhead;
        let task = &mut self.core.tasks[state.curr.index()];
        match task.activity {
            Activity::Work | Activity::Message if M::AFTERWARDS => {
                let Progress { work_ns, took_ns } = self.memory.progress(cpu);
                task.remaining_ns -= work_ns;
                if task.activity == Activity::Work {
                    task.progress_ns += work_ns;
                }
                useful -= took_ns;
                if task.remaining_ns != 0 {
                    return;
                }
            }
            Activity::Work | Activity::Message if M::SPEEDS_VARY => {
                let speed = u64::from(self.memory.speed(cpu));
                let done = work_done(useful, speed).min(task.remaining_ns);
                task.remaining_ns -= done;
                if task.activity == Activity::Work {
                    task.progress_ns += done;
                }
                let worked = if task.remaining_ns == 0 { time_at(done, speed).min(useful) } else { useful };
                if !M::MODELLED {
                    let alone_ns = match self.core.clocks {
                        None => time_for(done, u64::from(state.capacity)),
                        Some(_) => time_at(done, u64::from(self.memory.speed_alone(cpu))),
                    };
                    task.smt_ns += worked.saturating_sub(alone_ns);
                    if task.activity == Activity::Work {
                        task.pace_ns += alone_ns.min(worked) as i64 - done as i64;
                    }
                }
                self.memory.ran(cpu, worked);
                useful -= worked;
                if task.remaining_ns != 0 {
                    return;
                }
            }
            Activity::Work | Activity::Message => {
                let capacity = u64::from(state.capacity);
                let done = if capacity == 1024 { useful } else { useful * capacity / 1024 };
                if done < task.remaining_ns {
                    task.remaining_ns -= done;
                    task.progress_ns += done;
                    task.pace_ns += (useful - done) as i64;
                    return;
                }
                task.progress_ns += task.remaining_ns;
                let worked = time_for(task.remaining_ns, capacity).min(useful);
                task.pace_ns += worked as i64 - task.remaining_ns as i64;
                useful -= worked;
                task.remaining_ns = 0;
            }
            Activity::CpuTime => {
                let done = elapsed.min(task.remaining_ns);
                task.remaining_ns -= done;
                useful = elapsed - done;
                // The step's time goes on in interrupts and switches, the program does not.
                let own_ns = done.saturating_sub(overhead);
                task.progress_ns += own_ns;
                if M::MODELLED {
                    self.memory.ran(cpu, own_ns);
                }
            }
            Activity::SpinUntil => {
                let done = useful.min(task.remaining_ns);
                task.remaining_ns -= done;
                task.progress_ns += done;
                task.spin_ns += done;
                return;
            }
            Activity::Spin => {
                task.progress_ns += useful;
                task.spin_ns += useful;
                return;
            }
            Activity::Syscall | Activity::Advance => {}
        }
        let syscall = useful.min(task.syscall_ns);
        task.syscall_ns -= syscall;
        self.core.cpus[cpu.index()].overhead_ns[OverheadKind::Syscall as usize] += syscall;
    }

    /// Pushes the event at which the running task finishes what it is doing.
    #[inline]
    pub(crate) fn arm_progress(&mut self, cpu: CpuId) {
        let mut review_ns = u64::MAX;
        if M::SPEEDS_VARY {
            let task = &self.core.tasks[self.core.curr(cpu).index()];
            if matches!(task.activity, Activity::Work | Activity::Message | Activity::CpuTime) {
                review_ns = self.memory.review(self.core.now_ns, cpu, task.remaining_ns);
            }
        }
        let state = &self.core.cpus[cpu.index()];
        let task = &self.core.tasks[state.curr.index()];
        let needed = match task.activity {
            Activity::Work | Activity::Message if M::SPEEDS_VARY => {
                time_at(task.remaining_ns, u64::from(self.memory.speed(cpu))) + task.syscall_ns
            }
            Activity::Work | Activity::Message => {
                time_for(task.remaining_ns, u64::from(state.capacity)) + task.syscall_ns
            }
            Activity::CpuTime => {
                // Overhead counts as CPU time, so only what is left of it afterwards delays the system call.
                task.remaining_ns.max(state.stolen_ns) - state.stolen_ns + task.syscall_ns
            }
            Activity::Syscall => task.syscall_ns,
            Activity::SpinUntil => task.remaining_ns,
            Activity::Advance => 0,
            Activity::Spin => {
                self.core.queue.clear(Slot::Progress, cpu);
                return;
            }
        };
        let at = (self.core.now_ns + state.stolen_ns + needed).min(review_ns);
        self.core.queue.set(Slot::Progress, cpu, at);
    }

    /// The running task has come to the end of its activity, or would have without overhead in between.
    pub(crate) fn progress(&mut self, cpu: CpuId) {
        self.settle(cpu);
        let state = &self.core.cpus[cpu.index()];
        let task = &mut self.core.tasks[state.curr.index()];
        let more = match task.activity {
            Activity::Work | Activity::Message | Activity::CpuTime => task.remaining_ns != 0 || task.syscall_ns != 0,
            Activity::Syscall => task.syscall_ns != 0,
            Activity::SpinUntil => task.remaining_ns != 0,
            Activity::Advance => state.stolen_ns != 0,
            Activity::Spin => true,
        };
        if more {
            self.arm_progress(cpu);
            return;
        }
        if task.activity == Activity::SpinUntil {
            // Out of patience: its reason to wait is set already.
            if let WaitReason::Lock(lock) = task.waiting_for {
                self.stop_looking(cpu, state.curr, LockId(lock));
                return;
            }
            task.activity = Activity::Advance;
            self.schedule(cpu, Leave::Blocked);
            return;
        }
        task.activity = Activity::Advance;
        self.go_on(cpu);
    }

    /// Lets the running task execute steps until one takes time, and reschedules if it leaves.
    fn go_on(&mut self, cpu: CpuId) {
        match self.advance(cpu) {
            Now::Busy => self.arm_progress(cpu),
            Now::Leaves(leave) => self.schedule(cpu, leave),
            Now::ReschedPending => self.core.list_for_resched(cpu),
        }
    }
}

/// Time that `work_ns` of work takes at a speed, rounded up.
fn time_at(work_ns: u64, speed: u64) -> u64 {
    match work_ns.checked_mul(u64::from(SPEED_ONE)) {
        Some(scaled) => scaled.div_ceil(speed),
        None => (u128::from(work_ns) * u128::from(SPEED_ONE)).div_ceil(u128::from(speed)) as u64,
    }
}

/// Work done in `useful_ns` at a speed, rounded down: after [`time_at`] of some work, at least that work.
fn work_done(useful_ns: u64, speed: u64) -> u64 {
    (u128::from(useful_ns) * u128::from(speed) / u128::from(SPEED_ONE)) as u64
}

/// Time that `work_ns` of work takes at a capacity, rounded up.
fn time_for(work_ns: u64, capacity: u64) -> u64 {
    if capacity == 1024 { work_ns } else { (work_ns * 1024).div_ceil(capacity) }
}
