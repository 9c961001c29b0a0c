//! rt-app JSON files.
//!
//! rt-app runs workloads that a JSON file describes; its format is documented in that project's `doc/tutorial.txt`.
//! [`from_rtapp`] reads it and [`to_rtapp`] writes it. Order and repeated keys matter in `tasks`: `run`, `run0`, `run`
//! are three events in sequence, and a key is an event if it *begins* with an event's name. Durations are whole
//! microseconds (`global.duration`: seconds). `run` is work, which a faster CPU does sooner; `runtime` is time on the
//! CPU. Comments, commas before closing brackets and keys without a value (`"suspend",`) are accepted as rt-app and
//! its `workgen` script do.
//!
//! # What is read
//!
//! Events `run, runtime, sleep, timer, lock, unlock, wait, signal, broad, sync, barrier, suspend, resume, sem_post,
//! sem_wait, fork, yield, mem, memrun, iorun`; task and phase properties `loop, cpus, policy, priority, dl-runtime`
//! (the slice request of a fair task since Linux 6.12), `util_min, util_max, taskgroup`; task keys `instance, delay, phases`; `global`
//! and `resources`. What is accepted but changes nothing is counted in [`crate::Workload::warnings`];
//! [`Options::strict`] makes it an error.
//!
//! Choices where rt-app is unclear or its versions differ:
//! - `sync` signals and waits, with the mutex held around it, as the code does (the tutorial's text also locks).
//! - `suspend` waits on the condition of its name (without one, of its task's), `resume` wakes all that wait on it, and a name need not be a
//!   task's, as in rt-app's code (`pthread_cond_wait` and `_broadcast`, each with the mutex of that name). Where only the tasks of that
//!   name suspend themselves, these are the steps [`Step::Suspend`](crate::Step::Suspend) and [`Step::Resume`](crate::Step::Resume).
//! - A barrier waits for as many tasks as there are references to it, each counted once per instance.
//! - `timer` with a `ref` that begins with `unique` belongs to each task alone.
//! - The first expiry of a timer is one period after the task first runs. If one event of a timer is absolute, all are.
//! - `mem`, and `memrun` that reads or writes, are [`Step::Memory`](crate::Step::Memory) followed by the work of their instructions;
//!   `memrun` of type `chase` is [`Step::Chase`](crate::Step::Chase) alone, since a chain of loads waits and computes nothing.
//!
//! # The `warmcore` key
//!
//! What rt-app cannot say stands under one top-level key, `"warmcore"`, which rt-app does not look at. All of it is
//! optional:
//!
//! | key | value |
//! |---|---|
//! | `version` | 1 |
//! | `duration_ns` | instead of `global.duration` |
//! | `warm_up_ns` | how long after the start nothing is counted; 0 says that everything is |
//! | `hotplug` | list of `{ "at_ns", "offline" }` and `{ "at_ns", "online" }`: numbers of CPUs that go offline and come online again |
//! | `isolcpus`, `nohz_full` | texts such as `"2-3"`: CPUs that the kernel keeps out of its scheduling domains, and those on which a task that is alone has no ticks, as its parameters of these names say |
//! | `notes` | list of sentences: what to know before its results are trusted; each verdict on it says so |
//! | `command` | list of words: a program with its arguments in place of tasks |
//! | `applications` | list of names; each is a session of its own and reported on its own |
//! | `processes` | list of `{ "name", "application", "profile" }`: address spaces; tasks belong to the first by default |
//! | `groups` | list of `{ "name", "shares", "parent", "cpu_weight", "cpu_idle", "cpu_max", "cpu_max_burst", "cpu_uclamp_min", "cpu_uclamp_max", "cpuset_cpus" }`: weights of task groups (1024 shares by default), quotas, bounds of utilisation clamps, and CPUs |
//! | `data_groups` | list of `{ "name", "bytes" }`: data shared by tasks |
//! | `profiles` | list of memory profiles: `name`, `cpi0`, `mlp`, `classes`, …; the fields of [`warmcore_memory::Profile`] |
//! | `aggregate` | whom cache-aware schedulers keep together: `{ "groups", "processes", "taskgroups", "data" }`, below |
//! | `barriers` | list of `{ "name", "participants", "wait" }`; waits: `"block"`, `"poll"`, `"spin"`, `{ "spin_then_block_ns" }` |
//! | `latches` | list of `{ "name", "kind", "spin_ns", "poll_ns", "wakes", "sleep_ns", "lines" }`: locks of the kernel, of the kind `mutex` or `rwsem`, and locks that spin so long before they block, how far apart their looks are, whether a release wakes `one` sleeper or `all`, and the lines of data each owner writes |
//! | `semaphores` | list of `{ "name", "initial" }` |
//! | `channels` | list of `{ "name", "kind", "capacity_bytes" }`; `kind` is `"pipe"` (default) or `"socket"` |
//! | `locks`, `conditions`, `lists`, `timers`, `recorders`, `phases` | lists of names |
//! | `style` | `{ "hackbench": { "header" } }` or `{ "schbench": { "wakeup", "request" } }`: result lines to print |
//! | `programs` | list of step lists that several tasks share |
//! | `tasks` | object by task name, below |
//! | `warnings` | list of `{ "what", "consequence", "count" }` from an earlier conversion |
//!
//! In `aggregate`, `processes`, `taskgroups` and `data` are objects that give a choice by name: `"off"`, `"process"`
//! (the default) or `"group:NAME"`. `groups` lists names of groups; a process, task group or data group gives its name to one
//! too. What says more about a task wins: data, then task group, then process.
//!
//! An entry of `warmcore.tasks` may have `process`, `role`, `comm` (what its threads call themselves), `profile` (the name of a
//! memory profile, or one in place), `phase_profiles` (the same by phase: what the task does to memory from the beginning of
//! that phase to that of the next), `data` (data groups),
//! `start_cpu` (dense id), `start_ns`, `release_ns`, `slice_ns`, `util_min`, `util_max`, `nice`, `policy`, `instances`, `affinity` (`"all"`,
//! `{ "cpus": [..] }`, `{ "nodes": [..] }` or `{ "dense_cpus": "0-3" }`), `taskgroup`, and `program`, which replaces
//! the task's events: a list of steps, or the number of one of the `programs`. Such a task usually has `"instance": 0`
//! in `tasks`, so that rt-app leaves it out.
//!
//! Steps are the words `"suspend"`, `"yield"`, `"migrate_disable"`, `"migrate_enable"`, `"iowait"`, those of [`KernelStep`](crate::KernelStep), `"exit"`, `"stop"`, or objects whose first key is the verb: `run_ns`,
//! `runtime_ns`, `sleep_ns`, `slice_ns`, `nice`, `policy`, `taskgroup`, `affinity`, `phase`, `lock`, `unlock`,
//! `signal`, `broad`, `barrier`, `resume`, `fork`, `join` (count), `sem_post`, `sem_wait`, `serve`, `first_touch_bytes`, `map_bytes`, `io_bytes`,
//! `start_clock` with one value each; `timer` with `period_ns` and `mode`; `wait` and `sync` with `mutex`; `send` and
//! `receive` with `bytes`; `enlist`, `record_clock` and `record_since_ns` with `recorder`; `util_min` and `util_max`, alone or together; `memory_bytes` and `chase_hops` with `region_bytes`; `submit` with `program`, `work` with `requests`; and `loop`
//! (times, −1 for ever) with `steps`. `run_ns`, `runtime_ns` and `sleep_ns` may draw their time: from `{ "constant": { "ns" } }`,
//! `{ "uniform": { "from_ns", "to_ns" } }`, `{ "normal": { "mean_ns", "sd_ns" } }`, `{ "exponential": { "mean_ns" } }`,
//! `{ "log_normal": { "median_ns", "p99_ns" } }` or `{ "empirical": { "values_ns" } }` ([`Distribution`](crate::Distribution)). A drawn
//! `sleep_ns` and `sem_wait` may have a `clock` ([`Drawn::Arrival`](crate::Drawn::Arrival), [`Step::SemTake`](crate::Step::SemTake)). The meaning of each is that of the [`Step`](crate::Step) of its name.

mod events;
mod express;
mod extension;
mod json;
mod list;
mod names;
mod node;
mod print;
mod profiles;
mod read;
mod steps;
mod tasks;
mod write;

pub use profiles::{profiles_from_json, profiles_to_json};
pub use read::{Options, from_rtapp};
pub use write::{WriteError, is_as_written, to_rtapp};

/// An annotated file to begin with.
pub const TEMPLATE: &str = include_str!("../data/template.json");

#[cfg(test)]
mod tests;
