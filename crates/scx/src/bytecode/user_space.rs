//! The part of a scheduler that stays in user space, in simulated time.
//!
//! Its loader goes on after it has attached: it sleeps, reads and changes what its programs share with it, and sleeps again. It runs while simulated
//! time stands, and is stopped while that passes; what it does costs no simulated CPU time. Who runs it is not this crate's affair.

use std::sync::Arc;

use warmcore_topology::{CpuId, CpuSet};

use crate::bytecode::Object;
use crate::bytecode::host::{Host, LOADED_BEFORE_NS, UPTIME_NS, clock_ns};
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
}

/// A loader that goes on.
pub trait UserSpace {
    /// Lets it run until all its threads wait; gives the instant, by the same clock, at which one goes on by itself, if one does.
    ///
    /// # Errors
    /// When it ended, or does what must end the run, in words.
    fn go_on(&mut self, host: &mut Host, moment: &Moment) -> Result<Option<u64>, String>;

    /// Its scheduler has been ejected. Lets it run for the last time, until it has noticed that.
    fn ended(&mut self, host: &mut Host, moment: &Moment);

    /// Its scheduler has been ended, and it is asked to attach it again: it goes on, and nothing that it does ends the run.
    fn asked_for_restart(&mut self);

    /// What it has attached since.
    fn attached_again(&mut self) -> Option<Arc<Object>>;
}

/// The clock of user space when its scheduler is attached.
pub const ATTACHED_NS: u64 = UPTIME_NS - LOADED_BEFORE_NS;

/// Lets user space go on; in how many ns it wants to do so again, if it does.
///
/// # Errors
/// As [`UserSpace::go_on`].
pub(super) fn go_on(
    user_space: &mut dyn UserSpace,
    host: &mut Host,
    kernel: &mut Kfuncs<'_, '_>,
) -> Result<Option<u64>, String> {
    let moment = moment(host, kernel);
    host.kernel = Some(std::ptr::from_mut(kernel).cast());
    let next = user_space.go_on(host, &moment);
    host.kernel = None;
    Ok(next?.map(|next| next.saturating_sub(moment.now_ns).max(RETURN_NS)))
}

/// Lets user space go on when its scheduler has been ejected.
pub(super) fn ended(user_space: &mut dyn UserSpace, host: &mut Host, kernel: &mut Kfuncs<'_, '_>) {
    let moment = moment(host, kernel);
    host.kernel = Some(std::ptr::from_mut(kernel).cast());
    user_space.ended(host, &moment);
    host.kernel = None;
}

fn moment(host: &mut Host, kernel: &Kfuncs<'_, '_>) -> Moment {
    let now_ns = clock_ns(kernel);
    let idle_before_ns = LOADED_BEFORE_NS - kernel.before_ns();
    let times = |cpu| {
        let (busy, idle) = kernel.cpu_times_ns(CpuId(cpu));
        (busy, idle + idle_before_ns)
    };
    let cpus = (0..host.kept.cpus).map(times).collect();
    host.frame.now_ns = now_ns;
    Moment { now_ns, cpus, online: kernel.core.active().clone(), changes: host.hotplug_seq }
}
