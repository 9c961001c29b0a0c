//! The classes above a policy.

use warmcore_kernel::{Core, Level, Scheduler, Setup, SimulationError};
use warmcore_topology::CpuId;
use warmcore_trace::{Outcome, Sink, TaskId};

use super::Realtime;
use super::server::Passes;
use crate::stacked::{LowerEvent, Membership, Stacked};

/// Runs a policy on a setup, below real-time and deadline tasks if the workload has any.
///
/// # Errors
/// Those of [`warmcore_kernel::run`].
pub(crate) fn run<'a, S: Scheduler + 'a>(
    setup: &'a Setup<'a>,
    policy: S,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    if setup.workload().has_realtime() {
        return run_boxed(setup, Box::new(policy), sink);
    }
    warmcore_kernel::run(setup, policy, sink)
}

/// The same with an engine that all such policies share. The compiler builds the whole engine for each policy of [`run`]; that pays
/// where runs are many.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_boxed<'a>(
    setup: &'a Setup<'a>,
    policy: Box<dyn Scheduler + 'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let all: Box<dyn Scheduler + 'a> = if setup.workload().has_realtime() {
        Box::new(Stacked::new(policy.name(), Realtime::new(&setup.boot()), policy, ByPolicy))
    } else {
        policy
    };
    warmcore_kernel::run(setup, all, sink)
}

/// Real-time and deadline tasks are above.
struct ByPolicy;

impl<L: Scheduler> Membership<Realtime, L> for ByPolicy {
    fn level_of(&mut self, core: &Core<'_>, task: TaskId, _parent: Option<TaskId>) -> Level {
        if core.task(task).policy().is_realtime() { Level::Upper } else { Level::Lower }
    }

    fn level_after_change(&mut self, core: &Core<'_>, task: TaskId, _level: Level) -> Level {
        <Self as Membership<Realtime, L>>::level_of(self, core, task, None)
    }

    fn goes_first(&mut self, core: &mut Core<'_>, realtime: &mut Realtime, _lower: &L, cpu: CpuId) -> Level {
        realtime.servers[cpu.index()].charge(core, cpu);
        realtime.pull(core, cpu);
        let server = &realtime.servers[cpu.index()];
        let earliest_ns = realtime.earliest_ns(cpu).unwrap_or(u64::MAX);
        if server.is_queued() && server.deadline_ns() < earliest_ns { Level::Lower } else { Level::Upper }
    }

    fn lower_event(
        &mut self,
        core: &mut Core<'_>,
        realtime: &mut Realtime,
        lower: &L,
        (cpu, event): (CpuId, LowerEvent),
    ) {
        let server = &mut realtime.servers[cpu.index()];
        match event {
            LowerEvent::Queued if lower.runnable_on(cpu) == 1 => realtime.start_server(core, cpu),
            // The class itself says when nothing runs.
            LowerEvent::Queued | LowerEvent::Idle | LowerEvent::Busy => {}
            LowerEvent::Runs => server.switch(core, cpu, Passes::Lower),
            LowerEvent::Stops => server.charge(core, cpu),
            // A balancer of the class below may have brought the first task.
            LowerEvent::Tick => {
                server.charge(core, cpu);
                if !server.is_active() && lower.runnable_on(cpu) > 0 {
                    realtime.start_server(core, cpu);
                }
            }
            LowerEvent::NothingPicked => server.stop(core),
        }
    }
}

impl Realtime {
    /// The first task below is queued, or found: where its server need not wait, it goes before what runs (`dl_server_start`).
    fn start_server(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let was_active = self.servers[cpu.index()].is_active();
        self.servers[cpu.index()].start(core, cpu);
        if !was_active && self.servers[cpu.index()].is_queued() {
            self.preempt_for_server(core, cpu);
        }
    }

    /// The server's timer has run out: it goes before what runs, or has nothing to do.
    pub(super) fn server_timer(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        if self.servers[cpu.index()].timer(core, cpu) {
            self.preempt_for_server(core, cpu);
        }
    }

    /// Whoever runs has the CPU rescheduled, but for a deadline task whose deadline is not later.
    fn preempt_for_server(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let earlier = self.running(core, cpu).is_none_or(|curr| {
            let state = &self.tasks[curr.index()];
            state.reservation().is_none() || self.servers[cpu.index()].deadline_ns() < state.entity.deadline_ns
        });
        if earlier {
            core.resched_full(cpu);
        }
    }
}
