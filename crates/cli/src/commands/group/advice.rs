//! What a user can do about groups, with the interfaces that kernels have. Nothing of it is done here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warmcore_replay::Groups;

use crate::commands::recording::Loaded;

/// Groups that commands are printed for.
const MOST_SHOWN: usize = 6;

/// The commands, with the CPUs of each group where they are known (`lists`, on the machine of that name and number of LLCs), and what they do.
pub(super) fn how_to_act(
    loaded: &Loaded,
    groups: &Groups,
    machine: Option<(&str, usize)>,
    lists: &BTreeMap<usize, String>,
) -> String {
    if !loaded.recording.has_wakers() {
        return "\nRecord with `sched_waking`, as `warmcore record` does.\n".into();
    }
    if groups.groups.is_empty() {
        return "\nNo threads belong together, as far as wakeups show.\n".into();
    }
    let mut text = String::from(
        "\nTo act on it (nothing was changed):\n  \
         warmcore group RECORDING --out groups.json    a workload in which cache-aware schedulers keep each group together\n",
    );
    match machine {
        Some((machine, 1)) => {
            let _ =
                writeln!(text, "All CPUs of {machine} share one LLC: there is nothing to choose, and nothing to bind.");
        }
        _ if loaded.numbered => {
            bind(&mut text, groups, machine.map(|(machine, _)| machine), lists);
            gather(&mut text, loaded, groups);
        }
        _ => {}
    }
    text
}

/// Binding single threads.
fn bind(text: &mut String, groups: &Groups, machine: Option<&str>, lists: &BTreeMap<usize, String>) {
    let _ = match machine {
        Some(machine) => writeln!(text, "Each group on an LLC of {machine}:"),
        None => writeln!(
            text,
            "Each group on an LLC; CPUS are those of one (`lscpu --caches=NAME,ONE-SIZE`, or --machine names them):"
        ),
    };
    for (position, group) in groups.groups.iter().enumerate().take(MOST_SHOWN) {
        let ids: Vec<String> = group.threads.iter().map(i32::to_string).collect();
        let number = position + 1;
        let _ = match (machine, lists.get(&position)) {
            (Some(_), None) => {
                writeln!(text, "  group {number} needs more CPUs than a node has: leave it to the kernel")
            }
            (_, list) => writeln!(
                text,
                "  for t in {}; do taskset -p --cpu-list {} $t; done    group {number}",
                ids.join(" "),
                list.map_or("CPUS", String::as_str)
            ),
        };
    }
    text.push_str(
        "taskset binds single threads of your processes (others' need CAP_SYS_NICE) until they end or change their affinity; it also binds the threads \
         that they create afterwards. To bind for good, make a threaded cgroup for each group below the process's own (`echo threaded > cgroup.type`, \
         the CPUs into cpuset.cpus, each thread's number into cgroup.threads); no thread can leave it on its own.\n",
    );
}

/// What cache-aware scheduling does for these groups: it gathers processes.
fn gather(text: &mut String, loaded: &Loaded, groups: &Groups) {
    let process = |thread: &i32| loaded.histories.threads.get(thread).and_then(|history| history.process);
    let mut holds: BTreeMap<i32, BTreeSet<usize>> = BTreeMap::new();
    let mut across = Vec::new();
    for (number, group) in (1..).zip(&groups.groups) {
        let processes: BTreeSet<Option<i32>> = group.threads.iter().map(process).collect();
        if processes.len() > 1 {
            across.push(number);
        }
        for process in processes.into_iter().flatten() {
            holds.entry(process).or_default().insert(number);
        }
    }
    let list = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
    };
    for (process, numbers) in holds {
        let inside = || numbers.iter().copied().filter(|number| !across.contains(number));
        match inside().count() {
            0 => {}
            1 => {
                let _ = writeln!(
                    text,
                    "Cache-aware scheduling (Linux 7.2) gathers process {process}, and with it group {}, on its own.",
                    list(&mut inside())
                );
            }
            _ => {
                let _ = writeln!(
                    text,
                    "Process {process} holds groups {}: cache-aware scheduling (Linux 7.2) gathers whole processes, and would mix them on one LLC. \
                     Bind them instead.",
                    list(&mut inside())
                );
            }
        }
    }
    if !across.is_empty() {
        let _ = writeln!(
            text,
            "No released kernel gathers groups of several processes ({}): bind them, or give their processes one cgroup with cpuset.cpus.",
            list(&mut across.iter().copied())
        );
    }
    cache_groups(text, groups);
}

/// The system calls of `[RFC 0/7] sched/cache: Per-task control of cache aware scheduling via prctl` (Chen, August 2026: its `include/uapi/linux/prctl.h`
/// and `Documentation/scheduler`), and what schedqos 0.1 reads, by its manual.
fn cache_groups(text: &mut String, groups: &Groups) {
    text.push_str(
        "Released kernels can group whole processes only. The cache groups that an RFC of August 2026 proposes take single threads, of one process or of \
         several:\n",
    );
    for (number, group) in (1..).zip(&groups.groups).take(MOST_SHOWN) {
        let Some((first, others)) = group.threads.split_first() else { continue };
        let others: Vec<String> = others.iter().map(i32::to_string).collect();
        let _ = writeln!(
            text,
            "  prctl(82, 1, {first}, 0, 0); for t in {}: prctl(82, 2, t, {first}, 0)    group {number}",
            others.join(" ")
        );
    }
    text.push_str(
        "There 82 is PR_SCHED_CACHE, 1 PR_SCHED_CACHE_CREATE, 2 PR_SCHED_CACHE_SHARE_FROM and the last 0 PIDTYPE_PID; it needs the rights to trace these \
         threads. No configuration of schedqos 0.1 gathers threads: it sets policies, nice values and slices by name.\n",
    );
}
