//! rt-app files: reading never panics, and what is accepted runs for a simulated millisecond under every scheduler
//! without breaking an invariant.
use warmcore_kernel::{Setup, SimulationError};
use warmcore_schedulers::{SchedulerSpec, list, simulate};
use warmcore_workload::{Options, from_rtapp};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(workload) = from_rtapp("fuzz", text, &Options::default()) else { return };
    if workload.tasks.iter().map(|task| u64::from(task.instances)).sum::<u64>() > 64 {
        return;
    }
    let machine = warmcore_topology::resolve("1s1n2l2c1t").expect("a legal short form");
    let Ok(mut setup) = Setup::new(&machine, &workload, 1) else { return };
    setup.options.max_time_ns = Some(1_000_000);
    setup.check_invariants = true;
    for scheduler in list() {
        let spec = SchedulerSpec::parse(scheduler.name).expect("a listed name");
        let run = simulate(&spec, &setup, None);
        if let Err(error @ (SimulationError::Invariant { .. } | SimulationError::Scheduler { .. })) = run {
            panic!("{error}");
        }
    }
}
