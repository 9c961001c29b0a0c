//! Which threads of a recording are the kernel's own: no recorder says so, but names and `kthreadd`'s children do.

use std::collections::BTreeSet;

use crate::paged::Wanted;
use crate::record::What;
use crate::recording::Recording;

/// Names of kernel threads begin so, where a recording does not tell who created a thread.
const NAMES: [&str; 29] = [
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "rcu_",
    "rcuc/",
    "rcub/",
    "rcuog/",
    "rcuop/",
    "rcuos/",
    "cpuhp/",
    "idle_inject/",
    "irq/",
    "watchdog/",
    "watchdogd",
    "kswapd",
    "kcompactd",
    "khugepaged",
    "ksmd",
    "kauditd",
    "oom_reaper",
    "jbd2/",
    "kdamond",
    "kthreadd",
    "khungtaskd",
    "kdevtmpfs",
    "kblockd",
    "swapper",
    "scsi_eh_",
    "stopper/",
];

/// The thread that creates all other threads of the kernel has this number on a real kernel, and this name.
const KTHREADD: (i32, &str) = (2, "kthreadd");

/// Whether a thread of that name is one of the kernel's.
pub fn is_kernel_name(name: &str) -> bool {
    NAMES.iter().any(|start| name.starts_with(start))
}

/// The kernel's threads of a recording: those with such names, and what `kthreadd` created. Thread 2 is `kthreadd` unless it has another
/// name: recordings of simulated runs begin to count at 1.
pub fn kernel_threads(recording: &Recording) -> BTreeSet<i32> {
    let known = |(id, thread): (&i32, &crate::Thread)| is_kernel_name(&thread.name).then_some(*id);
    let mut kernels: BTreeSet<i32> = recording.threads.iter().filter_map(known).collect();
    let (number, name) = KTHREADD;
    if recording.threads.get(&number).is_none_or(|thread| thread.name.is_empty() || thread.name == name) {
        kernels.insert(number);
        let of_its_process = recording.threads.iter().filter(|(_, thread)| thread.process == Some(number));
        kernels.extend(of_its_process.map(|(id, _)| *id));
    }
    for record in recording.in_order_of(Wanted::Forks) {
        if let What::Fork { parent, child } = record.what
            && kernels.contains(&parent)
        {
            kernels.insert(child);
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Context, Record};

    fn recording(name_of_two: &str) -> Recording {
        let fork = |parent, child| Record {
            time_ns: 5,
            cpu: 0,
            by: parent,
            context: Context::Thread,
            what: What::Fork { parent, child },
        };
        let mut recording =
            Recording { records: vec![fork(2, 14), fork(14, 15), fork(10, 16)], ..Recording::default() };
        recording.name(2, name_of_two);
        recording.name(12, "kworker/0:1");
        recording.finished()
    }

    #[test]
    fn thread_2_is_the_kernels_unless_it_has_another_name() {
        let found = |name| kernel_threads(&recording(name)).into_iter().collect::<Vec<_>>();
        assert_eq!(found("kthreadd"), [2, 12, 14, 15]);
        assert_eq!(found(""), [2, 12, 14, 15]);
        assert_eq!(found("pong"), [12]);
    }
}
