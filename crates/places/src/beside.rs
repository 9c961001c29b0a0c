//! Which threads a recorded run's tasks were, and who ran beside them: as the tables that its events refer to, and by process.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::Thread;
use warmcore_capture::convert::{Converted, Foreign};
use warmcore_capture::kernel_threads::is_kernel_name;
use warmcore_trace::{BackgroundOutcome, RecordedThread, RunTables, TaskId};

/// Adds to the tables of a run which threads its tasks were, and which ran beside them. `known` says what is known of a thread.
pub(crate) fn name_threads(
    tables: &mut RunTables,
    tasks: &BTreeMap<i32, TaskId>,
    converted: &Converted,
    known: impl Fn(i32) -> Thread,
) {
    let of = |thread: i32| {
        let Thread { name, process } = known(thread);
        RecordedThread { thread, name, process }
    };
    let mut by_task: Vec<(TaskId, i32)> = tasks.iter().map(|(thread, task)| (*task, *thread)).collect();
    by_task.sort_unstable();
    // By task, so only if each is a thread.
    let dense = by_task.iter().enumerate().all(|(index, (task, _))| task.index() == index);
    tables.threads = by_task.into_iter().filter(|_| dense).map(|(_, thread)| of(thread)).collect();
    tables.foreign = converted.foreign.iter().map(|foreign| of(foreign.thread)).collect();
    tables.hotplug = converted.hotplug;
}

/// What they took: those of one process together, and the kernel's of one kind; those with the most time first.
pub(crate) fn by_process(foreign: &[Foreign], known: impl Fn(i32) -> Thread) -> Vec<BackgroundOutcome> {
    let mut rows: BTreeMap<(Option<i32>, String), (BackgroundOutcome, BTreeSet<i32>)> = BTreeMap::new();
    for of_thread in foreign {
        let thread = known(of_thread.thread);
        let (process, name) = if is_kernel_name(&thread.name) {
            (None, thread.name.split('/').next().unwrap_or_default().to_owned())
        } else {
            let leader = thread.process.map(&known).filter(|leader| !leader.name.is_empty());
            (thread.process, leader.map_or(thread.name, |leader| leader.name))
        };
        let name = if name.is_empty() { format!("thread {}", of_thread.thread) } else { name };
        let (row, threads) = rows.entry((process, name.clone())).or_default();
        (row.name, row.process) = (name, process);
        threads.insert(of_thread.thread);
        row.wakeups += of_thread.stays;
        row.cpu_time_ns += of_thread.run_ns();
        for (cpu, ns) in &of_thread.cpu_ns {
            *row.by_cpu_ns.entry(*cpu).or_default() += ns;
        }
    }
    let counted =
        |(row, threads): (BackgroundOutcome, BTreeSet<i32>)| BackgroundOutcome { threads: threads.len() as u32, ..row };
    let mut rows: Vec<BackgroundOutcome> = rows.into_values().map(counted).collect();
    // Stable: of equal times in order of process and name.
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu_time_ns));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::CpuId;

    #[test]
    fn threads_of_a_process_are_one_row_and_the_kernels_of_one_kind_another() {
        let foreign = |thread, cpu, ns| Foreign { thread, stays: 2, cpu_ns: BTreeMap::from([(CpuId(cpu), ns)]) };
        let threads = [foreign(10, 0, 5), foreign(11, 1, 7), foreign(3, 0, 20), foreign(4, 1, 1), foreign(99, 0, 2)];
        let known = |id: i32| match id {
            10 => Thread { name: "make".into(), process: Some(10) },
            11 => Thread { name: "worker".into(), process: Some(10) },
            3 | 4 => Thread { name: format!("kworker/{id}:0"), process: Some(id) },
            _ => Thread::default(),
        };
        let rows: Vec<_> = by_process(&threads, known)
            .into_iter()
            .map(|row| (row.name, row.process, row.threads, row.wakeups, row.cpu_time_ns, row.by_cpu_ns.len()))
            .collect();
        let row = |name: &str, process, threads, stays, ns, cpus| (name.to_owned(), process, threads, stays, ns, cpus);
        assert_eq!(
            rows,
            [row("kworker", None, 2, 4, 21, 2), row("make", Some(10), 2, 4, 12, 2), row("thread 99", None, 1, 2, 2, 1)]
        );
    }
}
