//! CPUs that go offline and come online, as the steps of `cpuhp_enter` say it.
//!
//! Source: `kernel/cpu.c` (`_cpu_down`, `cpuhp_kick_ap_work`, `cpuhp_invoke_callback`), `include/linux/cpuhotplug.h`, Linux 6.18: going down
//! begins with a step above its target, right before the CPU takes no task any more; the last step up, to `CPUHP_AP_ACTIVE`, is one below
//! `CPUHP_ONLINE`, the target.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_topology::CpuId;

use crate::record::{Record, What};

/// Which CPUs are offline.
#[derive(Default)]
pub(super) struct Plugged(BTreeSet<CpuId>);

impl Plugged {
    /// Whether a CPU is offline.
    pub fn is_offline(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// A CPU is offline or online from now on; whether that is news.
    pub fn changes(&mut self, cpu: CpuId, online: bool) -> bool {
        if online { self.0.remove(&cpu) } else { self.0.insert(cpu) }
    }
}

/// CPUs, by the operating system's number, that were offline at a time: those whose last step before it did not bring them online, or whose
/// first one after it is on the way up.
pub(super) fn offline_at(records: impl Iterator<Item = Record>, time_ns: u64) -> Vec<u32> {
    let mut offline: BTreeMap<u32, bool> = BTreeMap::new();
    for record in records {
        let What::Hotplug { target_cpu, target, step } = record.what else { continue };
        if record.time_ns < time_ns {
            offline.insert(target_cpu, step.checked_add(1) != Some(target));
        } else {
            offline.entry(target_cpu).or_insert(step < target);
        }
    }
    offline.into_iter().filter(|(_, offline)| *offline).map(|(cpu, _)| cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{Cast, Converted, events};
    use crate::record::Context;
    use crate::recording::Recording;
    use warmcore_trace::{EventKind, PrevState};

    /// A step of a CPU on its way, at a time after 1000.
    fn step(time_ns: u64, target_cpu: u32, target: i32, step: i32) -> Record {
        let what = What::Hotplug { target_cpu, target, step };
        Record { time_ns: 1000 + time_ns, cpu: 0, by: 0, context: Context::Thread, what }
    }

    fn converted(recording: &Recording, start_ns: u64) -> Converted {
        let cast = Cast {
            tasks: &BTreeMap::new(),
            launchers: &BTreeSet::new(),
            stoppers: &[],
            restrictions: &[],
            allowed: &|_, _| true,
            bindings: &[],
            start_ns,
            elapsed_ns: 1000,
            cpu: &|cpu| (cpu < 4).then_some(CpuId(cpu)),
        };
        let converted = events(recording, &cast).unwrap();
        assert!(converted.hotplug);
        converted
    }

    /// CPU 1 goes offline from 100 to 300 and CPU 2 comes online at 200; CPU 9 is none of the machine's.
    #[test]
    fn a_cpu_is_offline_from_the_first_step_down_to_the_last_step_up() {
        let down = [step(100, 1, 142, 237), step(110, 1, 142, 236), step(120, 9, 0, 141), step(130, 1, 0, 141)];
        let up = [step(180, 2, 237, 1), step(200, 2, 237, 236), step(250, 1, 237, 1), step(300, 1, 237, 236)];
        let recording = Recording { records: [&down[..], &up[..]].concat(), ..Recording::default() };
        let run = |start_ns| {
            let converted = converted(&recording, start_ns);
            let told = converted.events.iter().filter_map(|event| match event.kind {
                EventKind::Hotplug { online } => Some((event.time_ns, event.cpu.0, online)),
                _ => None,
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(run(1000), [(0, 2, false), (100, 1, false), (200, 2, true), (300, 1, true)]);
        assert_eq!(run(1150), [(0, 1, false), (0, 2, false), (50, 2, true), (150, 1, true)]);
    }

    /// The thread that takes CPU 1 down is the last that is recorded there: it does not run until the end.
    #[test]
    fn threads_that_take_a_cpu_down_are_not_beside_the_workload() {
        let comes = |time_ns: u64, prev, next| Record {
            time_ns: 1000 + time_ns,
            cpu: 1,
            by: prev,
            context: Context::Thread,
            what: What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false },
        };
        let records = [comes(50, 0, 8), step(100, 1, 142, 237), comes(105, 8, 9)].to_vec();
        let converted = converted(&Recording { records, ..Recording::default() }, 1000);
        let events: Vec<(u64, EventKind)> = converted.events.iter().map(|event| (event.time_ns, event.kind)).collect();
        let foreign = |thread| EventKind::Foreign { thread };
        assert_eq!(events, [(50, foreign(Some(0))), (100, foreign(None)), (100, EventKind::Hotplug { online: false })]);
        assert_eq!(converted.foreign_run_ns(), 50);
    }
}
