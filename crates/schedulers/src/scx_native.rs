//! `scx-native`: small sched_ext programs in Rust, on the ext class above the fair one.
//!
//! Every task belongs to the ext class until its program ends, or, of a program in partial mode, every task of `SCHED_EXT`; then all go to
//! the fair class (`eevdf` with its defaults), as in the kernel, and the trial is no trial of that program any more: [`run_ext`] goes on, the registry's row ends with an error that says so.
//!
//! Source: `docs/spec/sched-ext.md`; differences, `docs/models/scx.md`.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use warmcore_kernel::{Core, Level, Scheduler, Setup, SimulationError};
use warmcore_scx::bytecode::{Bytecode, Usage};
use warmcore_scx::{ExitInfo, Ext, ExtDecisions, Fifo, FifoPerLlc, Operations, Vtime};
use warmcore_topology::CpuId;
use warmcore_trace::{Outcome, Sink, TaskId};
use warmcore_workload::Policy;

use crate::fair::Fair;
use crate::fair::decisions::FairDecisions;
use crate::fair::eevdf::{Eevdf, EevdfTunables};
use crate::fair::weights::weight_of;
use crate::realtime::server::{self, Passes, Server};
use crate::realtime::{run, run_boxed};
use crate::registry::SchedulerInfo;
use crate::spec::SchedulerSpec;
use crate::stacked::{LowerEvent, Membership, Stacked};
use crate::tunables::{TunableSet, tunables};

/// The row of `scx-native`.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "scx-native",
    summary: "a small sched_ext program on the ext class, the fair class below",
    source: "docs/spec/sched-ext.md; the programs are this project's",
    sets: &[ScxNativeTunables::TABLE],
    register_decisions: |table| {
        ExtDecisions::register(table);
        FairDecisions::register(table);
    },
    no_hotplug: None,
    simulate: Some(simulate),
    ..SchedulerInfo::PLAIN
};

tunables! {
    /// Tunables of `scx-native`.
    pub struct ScxNativeTunables {
        /// The program: one queue for the machine, one for each LLC, or one in the order of weighted virtual time.
        policy: choice "fifo" of ["fifo", "fifo-llc", "vtime"],
        /// A dispatch queue's lock takes time and is taken by one CPU at a time; 0 = it costs nothing, which no machine offers.
        dsq_lock: switch on,
    }
}

/// Which tasks are the program's until it ends; why it did is kept for whoever has a clone of this.
#[derive(Clone, Default)]
pub struct Ejection {
    info: Rc<RefCell<Option<ExitInfo>>>,
    restarts: Rc<RefCell<Vec<Restart>>>,
}

/// A program was ended, and its loader has attached it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restart {
    /// Why it was ended.
    pub exit: ExitInfo,
    /// When it was attached again, in ns of simulated time.
    pub attached_ns: u64,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ended, attached] = [self.exit.time_ns, self.attached_ns].map(|ns| ns as f64 / 1e9);
        let message = &self.exit.message;
        write!(
            f,
            "{ended:.6} s: {message}; the tasks ran under the fair class until its loader attached it again at {attached:.6} s"
        )
    }
}

impl Ejection {
    /// Why the program ended, if it has.
    #[must_use]
    pub fn info(&self) -> Option<ExitInfo> {
        self.info.borrow().clone()
    }

    /// How often it was attached again.
    #[must_use]
    pub fn restarts(&self) -> Vec<Restart> {
        self.restarts.borrow().clone()
    }

    /// Whether the program has ended and knows it.
    fn keep(&self, ext: &Ext) -> bool {
        *self.info.borrow_mut() = ext.exit_info().filter(|_| ext.has_ended()).cloned();
        ext.has_ended()
    }

    /// Whether the program begins again.
    fn again(&self, core: &mut Core<'_>, ext: &mut Ext) -> bool {
        let begins = ext.begin_again(core);
        if let Some(exit) = self.info.borrow_mut().take_if(|_| begins) {
            self.restarts.borrow_mut().push(Restart { exit, attached_ns: core.now_ns() });
        }
        begins
    }
}

/// All tasks are the program's, and it stands above.
impl Membership<Ext, Fair<Eevdf>> for Ejection {
    fn level_of(&mut self, _core: &Core<'_>, _task: TaskId, _parent: Option<TaskId>) -> Level {
        Level::Upper
    }

    fn ends(&mut self, _core: &Core<'_>, upper: &mut Ext, _lower: &mut Fair<Eevdf>) -> Option<Level> {
        self.keep(upper).then_some(Level::Upper)
    }

    fn may_begin_again(&self, upper: &Ext, _lower: &Fair<Eevdf>) -> bool {
        upper.may_begin_again()
    }

    fn begins_again(&mut self, core: &mut Core<'_>, upper: &mut Ext, _lower: &mut Fair<Eevdf>) -> bool {
        self.again(core, upper)
    }
}

/// Those of `SCHED_EXT` are the program's, and it stands below (`SCX_OPS_SWITCH_PARTIAL`), with a server on each CPU that keeps them from starving
/// (`rq->ext_server`, since 7.0).
struct Partial {
    ejection: Ejection,
    servers: Vec<Server>,
}

impl Partial {
    /// The first of its tasks is queued, or found (`dl_server_start`).
    fn start_server(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let server = &mut self.servers[cpu.index()];
        let was_active = server.is_active();
        server.start(core, cpu);
        if !was_active && server.is_queued() {
            core.resched_full(cpu);
        }
    }
}

impl Membership<Fair<Eevdf>, Ext> for Partial {
    fn level_of(&mut self, core: &Core<'_>, task: TaskId, _parent: Option<TaskId>) -> Level {
        if core.task(task).policy() == Policy::Ext { Level::Lower } else { Level::Upper }
    }

    fn level_after_change(&mut self, core: &Core<'_>, task: TaskId, _level: Level) -> Level {
        self.level_of(core, task, None)
    }

    fn goes_first(&mut self, core: &mut Core<'_>, _upper: &mut Fair<Eevdf>, _lower: &Ext, cpu: CpuId) -> Level {
        let server = &mut self.servers[cpu.index()];
        server.charge(core, cpu);
        if server.is_queued() { Level::Lower } else { Level::Upper }
    }

    fn lower_event(
        &mut self,
        core: &mut Core<'_>,
        _upper: &mut Fair<Eevdf>,
        lower: &Ext,
        (cpu, event): (CpuId, LowerEvent),
    ) {
        let server = &mut self.servers[cpu.index()];
        match event {
            LowerEvent::Queued if lower.runnable_on(cpu) == 1 => self.start_server(core, cpu),
            LowerEvent::Queued => {}
            LowerEvent::Runs => server.switch(core, cpu, Passes::Lower),
            LowerEvent::Stops | LowerEvent::Busy => server.switch(core, cpu, Passes::Upper),
            LowerEvent::Idle => server.switch(core, cpu, Passes::Idle),
            // The program may have brought the first task.
            LowerEvent::Tick => {
                server.charge(core, cpu);
                if !server.is_active() && lower.runnable_on(cpu) > 0 {
                    self.start_server(core, cpu);
                }
            }
            LowerEvent::NothingPicked => server.stop(core),
        }
    }

    fn timer(
        &mut self,
        core: &mut Core<'_>,
        _upper: &mut Fair<Eevdf>,
        _lower: &Ext,
        (cpu, payload): (CpuId, u64),
    ) -> bool {
        if payload == server::TIMER && self.servers[cpu.index()].timer(core, cpu) {
            core.resched_full(cpu);
        }
        payload == server::TIMER
    }

    fn ends(&mut self, _core: &Core<'_>, _upper: &mut Fair<Eevdf>, lower: &mut Ext) -> Option<Level> {
        self.ejection.keep(lower).then_some(Level::Lower)
    }

    fn may_begin_again(&self, _upper: &Fair<Eevdf>, lower: &Ext) -> bool {
        lower.may_begin_again()
    }

    fn begins_again(&mut self, core: &mut Core<'_>, _upper: &mut Fair<Eevdf>, lower: &mut Ext) -> bool {
        self.ejection.again(core, lower)
    }
}

/// Runs a program, beside the fair class, to the end of a setup, also if it ends before; the ejection says whether it did.
///
/// # Errors
/// Those of [`warmcore_kernel::run`].
pub fn run_ext<'a>(
    ext: Ext,
    setup: &'a Setup<'a>,
    ejection: Ejection,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let boot = setup.boot();
    let fair = Fair::new(Eevdf::new(EevdfTunables::default(), &boot), &boot);
    if ext.is_partial() {
        let membership = Partial { ejection, servers: vec![Server::default(); boot.machine.cpu_count()] };
        run_boxed(setup, Box::new(Stacked::new(SCHEDULER.name, fair, ext, membership)), sink)
    } else {
        run(setup, Stacked::new(SCHEDULER.name, ext, fair, ejection), sink)
    }
}

/// The ext class with a program, for a setup.
pub fn ext_of(program: impl Operations + 'static, setup: &Setup<'_>) -> Ext {
    Ext::new(program, setup.boot().machine, weight_of)
}

fn simulate<'a>(
    spec: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let tunables = spec.tunables::<ScxNativeTunables>();
    match tunables.policy {
        0 => native_trial(Fifo, tunables, setup, sink),
        1 => native_trial(FifoPerLlc::default(), tunables, setup, sink),
        _ => native_trial(Vtime::default(), tunables, setup, sink),
    }
}

fn native_trial<'a>(
    program: impl Operations + 'static,
    tunables: ScxNativeTunables,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let mut ext = ext_of(program, setup);
    ext.set_locks_cost(tunables.dsq_lock == 1);
    trial_of(ext, setup, sink)
}

/// Runs a scheduler in bytecode; says what its operations were.
///
/// # Errors
/// As [`trial`].
pub fn bytecode_trial<'a>(
    program: Bytecode,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<(Outcome, Rc<Usage>), SimulationError> {
    let usage = program.usage();
    match trial(program, setup, sink) {
        Ok(outcome) => Ok((outcome, usage)),
        Err(SimulationError::Ejected { program, by, reason, mut dump }) => {
            if !usage.printed().is_empty() {
                dump.push_str("\nprinted\n-------\n");
                dump.push_str(&usage.printed());
            }
            Err(SimulationError::Ejected { program, by, reason, dump })
        }
        Err(error) => Err(error),
    }
}

/// Runs a program. A run that it did not schedule to the end is none of it.
///
/// # Errors
/// Those of [`warmcore_kernel::run`], and [`SimulationError::Ejected`].
pub fn trial<'a>(
    program: impl Operations + 'static,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    trial_of(ext_of(program, setup), setup, sink)
}

fn trial_of<'a>(ext: Ext, setup: &'a Setup<'a>, sink: Option<&'a mut dyn Sink>) -> Result<Outcome, SimulationError> {
    let name = ext.name();
    let ejection = Ejection::default();
    let mut outcome = run_ext(ext, setup, ejection.clone(), sink)?;
    match ejection.info() {
        Some(info) => Err(SimulationError::Ejected {
            program: name.to_owned(),
            by: info.kind.by(),
            reason: info.to_string(),
            dump: info.dump,
        }),
        None => {
            outcome.kernel_log.extend(ejection.restarts().iter().map(ToString::to_string));
            Ok(outcome)
        }
    }
}
