//! The list of metrics: name, unit, direction, definition and value. Tables, comparisons and documentation are made from
//! it, so that a metric has one name and one meaning everywhere.

use warmcore_statistics::Better;

use super::result::Metrics;
use crate::TaskId;

/// One metric of a run.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Name in files and on the command line; ends in the unit where there is one.
    pub name: &'static str,
    /// Unit: `ns`, `tasks`, `1` for counts and fractions.
    pub unit: &'static str,
    /// Which direction is an improvement.
    pub better: Better,
    /// What it means.
    pub definition: &'static str,
    /// Its value; `None` when the run does not have it (no wakeup, nothing observed).
    pub value: fn(&Metrics) -> Option<f64>,
}

/// The metric of that name.
pub fn metric(name: &str) -> Option<&'static MetricInfo> {
    METRICS.iter().find(|metric| metric.name == name)
}

macro_rules! metrics {
    ($($name:literal, $unit:literal, $better:ident, $value:expr, $definition:literal;)*) => {
        /// Every metric of a run that follows from its events, in the order of tables.
        pub const METRICS: &[MetricInfo] = &[$(MetricInfo {
            name: $name,
            unit: $unit,
            better: Better::$better,
            definition: $definition,
            value: $value,
        }),*];
    };
}

/// A count or time as the number that statistics work with.
fn number(value: u64) -> Option<f64> {
    Some(value as f64)
}

/// A percentile that may not exist.
fn maybe(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

/// A share of the window.
fn of_window(part: u64, metrics: &Metrics) -> Option<f64> {
    share(part, metrics.window_ns)
}

/// A share of all observed CPU time online.
fn of_cpu_time(part: u64, metrics: &Metrics) -> Option<f64> {
    share(part, metrics.totals.busy_ns + metrics.totals.foreign_ns + metrics.totals.idle_ns)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn overhead(metrics: &Metrics, kind: &str) -> Option<f64> {
    metrics.totals.overhead_ns.get(kind).map(|spent| *spent as f64)
}

fn overhead_sum(metrics: &Metrics) -> Option<u64> {
    let spent = &metrics.totals.overhead_ns;
    (!spent.is_empty()).then(|| spent.values().sum())
}

fn migrations(metrics: &Metrics, kind: &str) -> Option<f64> {
    metrics.totals.migrations_by_kind.get(kind).map(|count| *count as f64)
}

fn ran(metrics: &Metrics, relation: warmcore_topology::Relation) -> Option<f64> {
    metrics.totals.migrations_ran.by_relation.get(&relation).map(|count| *count as f64)
}

fn longest_wait(metrics: &Metrics) -> Option<u64> {
    let censored = &metrics.totals.censored;
    let open =
        [&censored.wakeup, &censored.preempt].into_iter().filter(|waits| waits.count > 0).map(|waits| waits.max_ns);
    open.chain(metrics.totals.run_delay.max_ns).max()
}

/// A part of the window: a CPU that had tasks for less only saw threads begin.
const USED: u64 = 100;

fn cpus_used(metrics: &Metrics) -> u64 {
    metrics.cpus.iter().filter(|cpu| cpu.busy_ns > 0 && cpu.busy_ns >= metrics.window_ns / USED).count() as u64
}

/// A part of the window: tasks that waited for less at its end may have been about to run.
const LEFT_WAITING: u64 = 10;

impl Metrics {
    /// Tasks that waited for a CPU when the window closed, for more than a tenth of it, twice as long as any wait that ended and a turn of the
    /// scheduler's, and for how long, ns. `weight` says what part of its wait counts for the tenth: a fair scheduler lets a task of a hundredth of the weight wait a hundred
    /// times as long.
    pub fn never_ran_again(&self, weight: impl Fn(TaskId) -> f64) -> impl Iterator<Item = (TaskId, u64)> {
        let tenth = self.window_ns / LEFT_WAITING;
        let longer = self.turn_ns.max(2 * self.totals.run_delay.max_ns.unwrap_or(0));
        let is_left = move |id, wait_ns: u64| wait_ns > longer && wait_ns as f64 * weight(id) > tenth as f64;
        self.tasks.iter().filter_map(move |task| {
            Some((task.id, task.censored_wait_ns.filter(|&wait_ns| is_left(task.id, wait_ns))?))
        })
    }
}

use warmcore_topology::Relation::{FarSocket, OtherSocket, SameCluster, SameLlc, SameNode, SameSocket, SmtSibling};

metrics! {
    "wakeup_p50_ns", "ns", Lower, |m| maybe(m.totals.wakeup_latency.p50_ns),
        "median wakeup latency: from the first waking of a task, or the first wakeup of a new one, to the first time it runs";
    "wakeup_p90_ns", "ns", Lower, |m| maybe(m.totals.wakeup_latency.p90_ns), "90th percentile of wakeup latency";
    "wakeup_p99_ns", "ns", Lower, |m| maybe(m.totals.wakeup_latency.p99_ns), "99th percentile of wakeup latency";
    "wakeup_p999_ns", "ns", Lower, |m| maybe(m.totals.wakeup_latency.p999_ns), "99.9th percentile of wakeup latency";
    "wakeup_max_ns", "ns", Lower, |m| maybe(m.totals.wakeup_latency.max_ns), "longest wakeup latency";
    "wakeup_mean_ns", "ns", Lower, |m| m.totals.wakeup_latency.mean_ns, "mean wakeup latency";
    "wakeups", "1", Neither, |m| number(m.totals.wakeup_latency.count), "number of wakeup latencies, first runs of new tasks included";
    "response_p50_ns", "ns", Lower, |m| maybe(m.totals.response.p50_ns),
        "median response time: from the waking of a task to the next time it sleeps, waiting for a CPU and work together";
    "response_p99_ns", "ns", Lower, |m| maybe(m.totals.response.p99_ns), "99th percentile of response time";
    "response_max_ns", "ns", Lower, |m| maybe(m.totals.response.max_ns), "longest response time";
    "response_mean_ns", "ns", Lower, |m| m.totals.response.mean_ns, "mean response time";
    "responses", "1", Neither, |m| number(m.totals.response.count), "number of response times";
    "preempt_wait_p50_ns", "ns", Lower, |m| maybe(m.totals.preempt_wait.p50_ns),
        "median preempt wait: from leaving the CPU still runnable to running again";
    "preempt_wait_p99_ns", "ns", Lower, |m| maybe(m.totals.preempt_wait.p99_ns), "99th percentile of preempt wait";
    "preempt_wait_max_ns", "ns", Lower, |m| maybe(m.totals.preempt_wait.max_ns), "longest preempt wait";
    "run_delay_p50_ns", "ns", Lower, |m| maybe(m.totals.run_delay.p50_ns), "median run delay: wakeup latencies and preempt waits together";
    "run_delay_p99_ns", "ns", Lower, |m| maybe(m.totals.run_delay.p99_ns), "99th percentile of run delay";
    "run_delay_max_ns", "ns", Lower, |m| maybe(m.totals.run_delay.max_ns), "longest run delay";
    "run_delay_ns", "ns", Lower, |m| number(m.totals.run_delay.sum_ns), "run delay of all tasks together";
    "censored_waits", "1", Lower, |m| number(m.totals.censored.wakeup.count + m.totals.censored.preempt.count),
        "waits that had not ended when the window closed; not in the latencies above";
    "longest_wait_ns", "ns", Lower, |m| maybe(longest_wait(m)),
        "longest wait for a CPU, those that had not ended when the window closed included";
    "never_ran_again", "tasks", Lower, |m| number(m.never_ran_again(|_| 1.0).count() as u64),
        "tasks that waited for a CPU when the window closed, for more than a tenth of it, twice as long as any wait that ended and a turn of the scheduler's (ule). In experiments a wait counts by weight, relative to the heaviest competing task";
    "off_cpu_mean_ns", "ns", Neither, |m| m.totals.off_cpu.mean_ns, "mean time from leaving a CPU to the next time on one, sleep included";
    "slice_p50_ns", "ns", Neither, |m| maybe(m.totals.slice.p50_ns), "median slice: one uninterrupted stay on a CPU";
    "slice_mean_ns", "ns", Neither, |m| m.totals.slice.mean_ns, "mean slice";
    "slices", "1", Neither, |m| number(m.totals.slice.count), "number of finished slices";
    "voluntary_switches", "1", Neither, |m| number(m.totals.voluntary_switches), "times a task left the CPU asleep";
    "involuntary_switches", "1", Lower, |m| number(m.totals.involuntary_switches),
        "times a task left the CPU still runnable: preempted or yielding";
    "migrations_ran", "1", Lower, |m| number(m.totals.migrations_ran.count), "consecutive slices of one task on different CPUs";
    "cross_llc_ran", "1", Lower, |m| number(m.totals.migrations_ran.cross_llc), "migrations (ran) between LLCs";
    "cross_llc_first_quarter", "1", Neither, |m| number(m.totals.cross_llc_quarters[0]), "migrations (ran) between LLCs in the first quarter of the window";
    "cross_llc_last_quarter", "1", Neither, |m| number(m.totals.cross_llc_quarters[1]), "migrations (ran) between LLCs in the last quarter of the window";
    "cross_node_ran", "1", Lower, |m| number(m.totals.migrations_ran.cross_node), "migrations (ran) between NUMA nodes";
    "migrations_ran_smt_sibling", "1", Neither, |m| ran(m, SmtSibling), "migrations (ran) between threads of one core";
    "migrations_ran_same_cluster", "1", Neither, |m| ran(m, SameCluster), "migrations (ran) between cores of one cluster";
    "migrations_ran_same_llc", "1", Neither, |m| ran(m, SameLlc), "migrations (ran) between clusters of one LLC";
    "migrations_ran_same_node", "1", Lower, |m| ran(m, SameNode), "migrations (ran) between LLCs of one NUMA node";
    "migrations_ran_same_socket", "1", Lower, |m| ran(m, SameSocket), "migrations (ran) between NUMA nodes of one socket";
    "migrations_ran_other_socket", "1", Lower, |m| ran(m, OtherSocket), "migrations (ran) between sockets one hop apart";
    "migrations_ran_far_socket", "1", Lower, |m| ran(m, FarSocket), "migrations (ran) between sockets more than one hop apart";
    "migrations_event", "1", Neither, |m| number(m.totals.migrations_event.count),
        "sched_migrate_task events, moves of queued tasks that never ran in between included; what they cost shows in migrations (ran)";
    "cross_llc_event", "1", Neither, |m| number(m.totals.migrations_event.cross_llc), "migrations (event) between LLCs";
    "cross_node_event", "1", Neither, |m| number(m.totals.migrations_event.cross_node), "migrations (event) between NUMA nodes";
    "migrations_wakeup", "1", Neither, |m| migrations(m, "wakeup"), "migrations (event): placed elsewhere at wakeup";
    "migrations_fork", "1", Neither, |m| migrations(m, "fork"), "migrations (event): placed elsewhere at fork";
    "migrations_balance", "1", Neither, |m| migrations(m, "balance"), "migrations (event): moved while queued by a load balancer";
    "migrations_active", "1", Neither, |m| migrations(m, "active"), "migrations (event): pushed off its CPU by active balancing";
    "migrations_steal", "1", Neither, |m| migrations(m, "steal"), "migrations (event): taken by an idle CPU outside of a balancer";
    "migrations_affinity", "1", Neither, |m| migrations(m, "affinity"), "migrations (event): the old CPU was no longer allowed or went offline";
    "migrations_numa", "1", Neither, |m| migrations(m, "numa"), "migrations (event): NUMA balancing";
    "migrations_exec", "1", Neither, |m| migrations(m, "exec"), "migrations (event): placed as it started another program (recordings only)";
    "migrations_after_preemption", "1", Neither, |m| number(m.totals.migrations_after_preemption),
        "migrations (event), whatever their kind, of tasks waiting after a preemption";
    "dominant_llc_share", "1", Higher, |m| share(m.totals.dominant_llc_run_ns, m.totals.run_ns),
        "share of all run time that tasks spent in the LLC each of them ran in most, 0..1";
    "runqueue_length_mean", "tasks", Lower, |m| m.totals.runqueue_length_mean,
        "running plus queued tasks per CPU, weighted by time";
    "runqueue_length_max", "tasks", Lower, |m| number(u64::from(m.totals.runqueue_length_max)), "longest run queue of any CPU";
    "violation_ns", "ns", Lower, |m| number(m.totals.work_conservation_violation_ns),
        "work-conservation violation: time during which a CPU was idle while a task waited that could have run there; \
         the first task queued on an idle CPU is being switched to, and neither it nor that CPU counts";
    "violation_share", "1", Lower, |m| of_window(m.totals.work_conservation_violation_ns, m),
        "that time as a share of the window, 0..1";
    "run_ns", "ns", Neither, |m| number(m.totals.run_ns), "run time of all tasks";
    "busy_share", "1", Neither, |m| of_cpu_time(m.totals.busy_ns, m), "share of observed CPU time online with a task on the CPU, 0..1";
    "cpus_used", "1", Neither, |m| number(cpus_used(m)), "CPUs that had a task on them for at least a hundredth of the window";
    "foreign_ns", "ns", Neither, |m| number(m.totals.foreign_ns),
        "time with a thread of another program or of the kernel on the CPU, over all CPUs, as far as the trace shows";
    "idle_ns", "ns", Neither, |m| number(m.totals.idle_ns), "time with no thread on the CPU while it is online, over all CPUs, as far as the trace shows";
    "offline_ns", "ns", Neither, |m| number(m.totals.offline_ns).filter(|ns| *ns > 0.0), "time offline, over all CPUs, as far as the trace shows";
    "overhead_ns", "ns", Lower, |m| maybe(overhead_sum(m)),
        "kernel time of all kinds over all CPUs; part of busy or idle time";
    "overhead_share", "1", Lower, |m| of_cpu_time(overhead_sum(m)?, m), "that time as a share of observed CPU time online, 0..1";
    "overhead_switch_ns", "ns", Lower, |m| overhead(m, "switch"), "kernel time for context switches";
    "overhead_tick_ns", "ns", Lower, |m| overhead(m, "tick"), "kernel time for timer ticks";
    "overhead_wakeup_ns", "ns", Lower, |m| overhead(m, "wakeup"), "kernel time for wakeups: placement, enqueueing, interrupts";
    "overhead_balance_ns", "ns", Lower, |m| overhead(m, "balance"), "kernel time for load balancing";
    "overhead_migration_ns", "ns", Lower, |m| overhead(m, "migration"), "time lost to cold caches after migrations (tasks without a memory model)";
    "overhead_syscall_ns", "ns", Neither, |m| overhead(m, "syscall"), "kernel time for the program's own system calls and page faults";
    "overhead_numa_ns", "ns", Lower, |m| overhead(m, "numa"), "kernel time for NUMA balancing: sampling, hint faults, moving pages";
    "overhead_interrupt_ns", "ns", Neither, |m| overhead(m, "interrupt"), "kernel time for interrupts of the machine's background";
    "unexpected_events", "1", Lower, |m| number(m.totals.unexpected_events),
        "events that contradict earlier ones; 0 unless events were lost";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_end_in_their_time_unit() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert_eq!(metric.unit == "ns", metric.name.ends_with("_ns"), "{}", metric.name);
            assert!(!metric.definition.is_empty() && !metric.definition.ends_with('.'), "{}", metric.name);
        }
        assert_eq!(metric("run_delay_p99_ns").map(|metric| metric.unit), Some("ns"));
        assert!(metric("no_such_metric").is_none());
    }
}
