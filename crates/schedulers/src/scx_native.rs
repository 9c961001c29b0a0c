//! `scx-native`: small sched_ext programs in Rust, on the ext class above the fair one.
//!
//! Every task belongs to the ext class until its program ends; then all go down to the fair class (`eevdf` with its defaults), as in the
//! kernel, and the trial is no trial of that program any more: [`ext_above_fair`] goes on, the registry's row ends with an error that says so.
//!
//! Source: `docs/spec/sched-ext.md`; differences, `docs/models/scx.md`.

use std::cell::RefCell;
use std::rc::Rc;

use warmcore_kernel::{Boot, Core, Level, Setup, SimulationError, run};
use warmcore_scx::bytecode::{Bytecode, Usage};
use warmcore_scx::{ExitInfo, Ext, ExtDecisions, Fifo, FifoPerLlc, Operations, Vtime};
use warmcore_trace::{Outcome, Sink, TaskId};

use crate::fair::Fair;
use crate::fair::decisions::FairDecisions;
use crate::fair::eevdf::{Eevdf, EevdfTunables};
use crate::fair::weights::weight_of;
use crate::registry::SchedulerInfo;
use crate::spec::SchedulerSpec;
use crate::stacked::{Membership, Stacked};
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
    simulate: Some(simulate),
    ..SchedulerInfo::PLAIN
};

tunables! {
    /// Tunables of `scx-native`.
    pub struct ScxNativeTunables {
        /// The program: one queue for the machine, one for each LLC, or one in the order of weighted virtual time.
        policy: 0 "" in 0..=2 as ["fifo", "fifo-llc", "vtime"],
    }
}

/// Everything belongs to the upper class until its program ends; why it did is kept for whoever has a clone of this.
#[derive(Clone, Default)]
pub struct Ejection(Rc<RefCell<Option<ExitInfo>>>);

impl Ejection {
    /// Why the program ended, if it has.
    #[must_use]
    pub fn info(&self) -> Option<ExitInfo> {
        self.0.borrow().clone()
    }
}

impl<P: Operations> Membership<Ext<P>> for Ejection {
    fn level_of(&mut self, _core: &Core<'_>, _task: TaskId, _parent: Option<TaskId>) -> Level {
        Level::Upper
    }

    fn ejects(&mut self, _core: &Core<'_>, upper: &mut Ext<P>) -> bool {
        let Some(info) = upper.exit_info() else { return false };
        *self.0.borrow_mut() = Some(info.clone());
        true
    }
}

/// A program on the ext class above the fair one.
pub fn ext_above_fair<P: Operations>(
    program: P,
    boot: &Boot<'_>,
    ejection: Ejection,
) -> Stacked<Ext<P>, Fair<Eevdf>, Ejection> {
    let upper = Ext::new(program, boot.machine, weight_of);
    let lower = Fair::new(Eevdf::new(EevdfTunables::default(), boot), boot);
    Stacked::new(SCHEDULER.name, upper, lower, ejection)
}

fn simulate<'a>(
    spec: &SchedulerSpec,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    match spec.tunables::<ScxNativeTunables>().policy {
        0 => trial(Fifo, setup, sink),
        1 => trial(FifoPerLlc::default(), setup, sink),
        _ => trial(Vtime::default(), setup, sink),
    }
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
    Ok((trial(program, setup, sink)?, usage))
}

/// Runs a program. A run that it did not schedule to the end is none of it.
///
/// # Errors
/// Those of [`run`], and [`SimulationError::Ejected`].
pub fn trial<'a, P: Operations>(
    program: P,
    setup: &'a Setup<'a>,
    sink: Option<&'a mut dyn Sink>,
) -> Result<Outcome, SimulationError> {
    let name = program.table().name;
    let ejection = Ejection::default();
    let outcome = run(setup, ext_above_fair(program, &setup.boot(), ejection.clone()), sink)?;
    match ejection.info() {
        Some(info) => Err(SimulationError::Ejected { program: name.to_owned(), reason: info.to_string() }),
        None => Ok(outcome),
    }
}
