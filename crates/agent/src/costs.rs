//! What the kernel's own actions cost on the computer or the guest that this runs on ([`warmcore_native::measure_costs`]), with the one
//! figure that only the kernel's own trace shows: the way out of an idle state.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::convert::{Cast, Decoder};
use warmcore_native::IdleWakeups;
use warmcore_topology::{Machine, MeasuredValue};
use warmcore_trace::{Event, EventKind, TaskId};

use crate::tracefs::{Instance, used_bytes};

/// Room for a CPU's events while a thread sleeps some hundred times.
const TRACE_KIB: u32 = 1024;

/// Figures that were measured, and why one is missing, if it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasuredCosts {
    /// The figures, under the names that they have in a machine's file.
    pub values: Vec<MeasuredValue>,
    /// Why `costs.idle_exit_ns` is not among them.
    pub without_idle_exit: Option<String>,
}

/// Measures the costs of `machine`, on which this runs: its way out of idle with an instance of tracefs that is not in use, or not, for the given
/// reason; what depends on caches only if CPUs have them.
///
/// # Errors
/// What the kernel refuses.
pub fn measure(machine: &Machine, instance: Result<&Instance, String>, caches: bool) -> Result<MeasuredCosts, String> {
    let (idle_wakeups, without_idle_exit) = match instance.and_then(|instance| idle_wakeups(machine, instance)) {
        Ok(recorded) => (Some(recorded), None),
        Err(reason) => (None, Some(reason)),
    };
    let values = warmcore_native::measure_costs(machine, idle_wakeups, caches).map_err(|error| error.to_string())?;
    Ok(MeasuredCosts { values, without_idle_exit })
}

/// Wakeups of a thread that sleeps on an idle CPU, as the kernel records them.
fn idle_wakeups(machine: &Machine, instance: &Instance) -> Result<IdleWakeups, String> {
    let recorded = traced_sleeps(machine, instance)?;
    if recorded.latencies_ns.is_empty() {
        return Err("the kernel recorded no switch to a thread that it had woken".into());
    }
    Ok(recorded)
}

fn traced_sleeps(machine: &Machine, instance: &Instance) -> Result<IdleWakeups, String> {
    let formats = instance.prepare()?;
    instance.start(TRACE_KIB)?;
    let sleeper = warmcore_native::sleep_on_idle_cpu(machine).map_err(|error| error.to_string())?;
    instance.stop()?;
    let mut decoder = Decoder::new(&formats)?;
    for cpu in 0..instance.cpus() {
        let mut pages = instance.pages(cpu)?;
        while let Some(page) = pages.read()? {
            decoder.page(cpu as u32, &page[..used_bytes(page)])?;
        }
    }
    let converted = decoder.finish(&Cast {
        tasks: &BTreeMap::from([(sleeper.thread, TaskId(0))]),
        launchers: &BTreeSet::new(),
        stoppers: &[],
        restrictions: &[0],
        allowed: &|_, _| true,
        bindings: &[],
        start_ns: 0,
        elapsed_ns: u64::MAX,
        cpu: &|number| machine.cpu_by_os_index(number),
    })?;
    Ok(wakeups_of(&converted.events, &sleeper.until_ns))
}

/// Of a thread's events, its wakeups; each belongs to the last instant before it at which the thread wanted to wake.
fn wakeups_of(events: &[Event], until_ns: &[u64]) -> IdleWakeups {
    let mut wakeups = IdleWakeups::default();
    let mut waking_ns = None;
    for event in events {
        match event.kind {
            EventKind::Waking { .. } => {
                waking_ns = Some(event.time_ns);
                let before = until_ns.partition_point(|until_ns| *until_ns <= event.time_ns);
                let until_ns = before.checked_sub(1).map(|last| until_ns[last]);
                wakeups.late_ns.extend(until_ns.map(|until_ns| event.time_ns - until_ns));
            }
            EventKind::Switch { next, .. } if !next.is_idle() => {
                wakeups.latencies_ns.extend(waking_ns.take().map(|waking_ns| event.time_ns - waking_ns));
            }
            _ => {}
        }
    }
    wakeups
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::CpuId;
    use warmcore_trace::PrevState;

    #[test]
    fn a_wakeup_is_as_late_as_its_own_timer_and_takes_until_the_switch() {
        let event = |time_ns, kind| Event { time_ns, cpu: CpuId(0), kind };
        let (task, cpu) = (TaskId(0), CpuId(0));
        let waking = EventKind::Waking { task, target_cpu: cpu, waker: TaskId::IDLE };
        let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Sleeping, next };
        let events = [
            event(50, waking),
            event(57, switch(TaskId::IDLE, task)),
            event(80, switch(task, TaskId::IDLE)),
            event(203, waking),
            event(213, switch(TaskId::IDLE, task)),
        ];
        let wakeups = wakeups_of(&events, &[200, 300]);
        assert_eq!(wakeups.latencies_ns, [7, 10]);
        assert_eq!(wakeups.late_ns, [3], "the first wakeup was none of a timer");
    }
}
