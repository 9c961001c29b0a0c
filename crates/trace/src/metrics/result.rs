//! The metrics of a run as data: totals, per task, per CPU, per application.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmcore_topology::{CpuId, LlcId, NodeId, PerRelation, Relation};

use super::counters::Counters;
use super::task::{NEVER, TaskState, Waits, crosses_llc, crosses_node};
use crate::{
    DecisionCounts, DecisionKind, Histogram, MigrationKind, OVERHEAD_KINDS, OverheadKind, RunTables, TaskId, TaskInfo,
};

/// Version of [`Metrics`] in files. Grows when a field changes its meaning or goes away.
pub const METRICS_SCHEMA: u32 = 2;

/// All metrics of a run that follow from its events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Metrics {
    /// [`METRICS_SCHEMA`].
    pub schema: u32,
    /// Length of the window: of the run, or of what came after its warm-up.
    pub window_ns: u64,
    /// The whole run.
    pub totals: Totals,
    /// Every task that an event named, by id.
    pub tasks: Vec<TaskMetrics>,
    /// Every CPU, by id.
    pub cpus: Vec<CpuMetrics>,
    /// Every application, by number.
    pub applications: Vec<ApplicationMetrics>,
    /// For how long the scheduler lets tasks of equal worth keep a CPU from others by its own rules, where that is long; 0 as events say nothing of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turn_ns: u64,
}

/// Lengths of something that happened many times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// The mean.
    pub mean_ns: Option<f64>,
    /// The shortest.
    pub min_ns: Option<u64>,
    /// Median; like all percentiles an upper edge of a bucket, at most 1/64 too high.
    pub p50_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// All of them.
    pub histogram: Histogram,
}

impl From<Histogram> for Distribution {
    fn from(histogram: Histogram) -> Self {
        Self {
            count: histogram.count(),
            sum_ns: histogram.sum(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: histogram.quantile(0.5),
            p90_ns: histogram.quantile(0.9),
            p99_ns: histogram.quantile(0.99),
            p999_ns: histogram.quantile(0.999),
            max_ns: histogram.max(),
            histogram,
        }
    }
}

/// Moves of tasks between CPUs, counted in one of the two ways (ran, event).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Migrations {
    /// All.
    pub count: u64,
    /// Between CPUs of different LLCs.
    pub cross_llc: u64,
    /// Between CPUs of different NUMA nodes.
    pub cross_node: u64,
    /// By what the two CPUs share.
    pub by_relation: BTreeMap<Relation, u64>,
}

impl From<&PerRelation<u64>> for Migrations {
    fn from(counts: &PerRelation<u64>) -> Self {
        let sum = |included: fn(Relation) -> bool| counts.iter().filter(|(r, _)| included(*r)).map(|(_, n)| n).sum();
        Self {
            count: sum(|_| true),
            cross_llc: sum(crosses_llc),
            cross_node: sum(crosses_node),
            by_relation: counts.iter().filter(|(r, _)| *r != Relation::SameCpu).map(|(r, n)| (r, *n)).collect(),
        }
    }
}

/// What had not ended when the window closed. Reported apart: neither dropped nor extrapolated.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Censored {
    /// Tasks that were waiting to run since a waking or a fork, and how long so far.
    pub wakeup: Waits,
    /// Tasks that were waiting to run since a preemption, and how long so far.
    pub preempt: Waits,
    /// Tasks that were running, and for how long so far. That time is in the run time, not among the slices.
    pub slices: Waits,
    /// Waits that ended with the task's exit instead of its running.
    pub abandoned_waits: u64,
}

/// Metrics of the whole run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of events.
    pub events: u64,
    /// Events that contradict earlier ones. Anything but 0 means that events were lost or that their producer is wrong.
    pub unexpected_events: u64,
    /// Waking, or the first wakeup of a new task, to first run.
    pub wakeup_latency: Distribution,
    /// Left the CPU runnable, to next run.
    pub preempt_wait: Distribution,
    /// Both together.
    pub run_delay: Distribution,
    /// Off the CPU, to next on one: sleep and run delay.
    pub off_cpu: Distribution,
    /// Uninterrupted stays on a CPU.
    pub slice: Distribution,
    /// Waking, to the next sleep.
    #[serde(default)]
    pub response: Distribution,
    /// What had not ended.
    pub censored: Censored,
    /// Left the CPU asleep.
    pub voluntary_switches: u64,
    /// Left the CPU runnable: preempted or yielded.
    pub involuntary_switches: u64,
    /// Consecutive slices on different CPUs.
    pub migrations_ran: Migrations,
    /// Of those between LLCs, those in the first and in the last quarter of the window.
    #[serde(default)]
    pub cross_llc_quarters: [u64; 2],
    /// `sched_migrate_task` events.
    pub migrations_event: Migrations,
    /// The latter by reason.
    pub migrations_by_kind: BTreeMap<String, u64>,
    /// Those of them that moved a task waiting after a preemption.
    pub migrations_after_preemption: u64,
    /// Run time of all tasks.
    pub run_ns: u64,
    /// Of that, run time of each task in the LLC it ran in most.
    pub dominant_llc_run_ns: u64,
    /// Time with a task on the CPU, over all CPUs.
    pub busy_ns: u64,
    /// Time with a thread that is no task of the run, over all CPUs, as far as the trace shows.
    #[serde(default)]
    pub foreign_ns: u64,
    /// Time without any thread that the trace tells of on CPUs that are online, over all CPUs.
    pub idle_ns: u64,
    /// Time offline, over all CPUs, as far as the trace shows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offline_ns: u64,
    /// Time before CPUs' first events, over all CPUs: none of these.
    pub unobserved_ns: u64,
    /// Kernel time by kind, over all CPUs. Part of busy or idle time, not on top of it. Empty when the trace reports none:
    /// then it is unknown.
    pub overhead_ns: BTreeMap<String, u64>,
    /// Time-weighted mean number of running plus queued tasks per observed CPU that is online.
    pub runqueue_length_mean: Option<f64>,
    /// The longest run queue of any CPU at any time.
    pub runqueue_length_max: u32,
    /// Wall time during which a CPU was idle while a task waited that could have run there.
    pub work_conservation_violation_ns: u64,
    /// Sums of the run's counters, by name.
    pub counters: BTreeMap<String, u64>,
    /// How often each phase was entered, by name.
    pub phases: BTreeMap<String, u64>,
    /// How often each decision was taken.
    pub decisions: DecisionCounts,
}

/// Metrics of one task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskMetrics {
    /// The task.
    pub id: TaskId,
    /// Its fork; `None` if it was there before the window.
    pub created_ns: Option<u64>,
    /// Its exit, if inside the window.
    pub exited_ns: Option<u64>,
    /// Time on CPUs, the unfinished slice included.
    pub run_ns: u64,
    /// **CPU share**: that time as a fraction of the window; 1 is one CPU for the whole window.
    pub cpu_share: Option<f64>,
    /// Finished slices.
    pub slices: u64,
    /// Wakeup latencies.
    pub wakeup_latency: Waits,
    /// Preempt waits.
    pub preempt_wait: Waits,
    /// Response times.
    #[serde(default)]
    pub response: Waits,
    /// Run delay: sum of both waits, and what of a wait lies in the window that began before it. `/proc/PID/schedstat` field 2.
    pub run_delay_ns: u64,
    /// The wait that had not ended.
    pub censored_wait_ns: Option<u64>,
    /// Throttled time: a quota or reservation kept it from running, and it was not asleep.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled_ns: u64,
    /// What of that is wakeup latency too: its own reservation was used up when it was woken.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled_wait_ns: u64,
    /// Sleep and run delay between slices.
    pub off_cpu_ns: u64,
    /// Left the CPU asleep.
    pub voluntary_switches: u64,
    /// Left the CPU runnable.
    pub involuntary_switches: u64,
    /// Consecutive slices on different CPUs.
    pub migrations_ran: u64,
    /// Of those, between LLCs.
    pub cross_llc_ran: u64,
    /// Of those, between NUMA nodes.
    pub cross_node_ran: u64,
    /// `sched_migrate_task` events.
    pub migrations_event: u64,
    /// **Residency**: run time per LLC; LLCs it never ran in are left out.
    pub llc_run_ns: BTreeMap<LlcId, u64>,
    /// Residency per NUMA node.
    pub node_run_ns: BTreeMap<NodeId, u64>,
    /// **Dominant LLC**: the one with the most run time, the lowest of equals.
    pub dominant_llc: Option<LlcId>,
    /// Share of the run time spent there, 0..1.
    pub dominant_llc_share: Option<f64>,
    /// What it counted, by counter, where its counters were read at every stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, PlacedCount>,
}

/// A task's counter, joined to where the task was.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PlacedCount {
    /// All of it.
    pub total: u64,
    /// By CPU.
    pub by_cpu: BTreeMap<CpuId, u64>,
    /// By LLC.
    pub by_llc: BTreeMap<LlcId, u64>,
}

/// Metrics of one CPU.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CpuMetrics {
    /// The CPU.
    pub id: CpuId,
    /// Context switches.
    pub switches: u64,
    /// With a task on it.
    pub busy_ns: u64,
    /// With a thread that is no task of the run, as far as the trace tells.
    #[serde(default)]
    pub foreign_ns: u64,
    /// Without any, while it was online.
    pub idle_ns: u64,
    /// Offline, as far as the trace tells.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offline_ns: u64,
    /// Before its first event: unknown.
    pub unobserved_ns: u64,
    /// Kernel time by kind. Part of busy or idle time. Empty when the trace reports none.
    pub overhead_ns: BTreeMap<String, u64>,
    /// Time-weighted mean of running plus queued tasks over its observed time online.
    pub runqueue_length_mean: Option<f64>,
    /// The longest.
    pub runqueue_length_max: u32,
}

/// Sums over the tasks of one application.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ApplicationMetrics {
    /// Its number.
    pub application: u32,
    /// Its name.
    pub name: String,
    /// Number of its tasks that an event named.
    pub tasks: u64,
    /// Time on CPUs.
    pub run_ns: u64,
    /// That time as a fraction of the window: 2 is two CPUs for the whole window.
    pub cpu_share: Option<f64>,
    /// Wakeup latencies.
    pub wakeup_latency: Waits,
    /// Preempt waits.
    pub preempt_wait: Waits,
    /// Sum of both.
    pub run_delay_ns: u64,
    /// Left the CPU asleep.
    pub voluntary_switches: u64,
    /// Left the CPU runnable.
    pub involuntary_switches: u64,
    /// Consecutive slices on different CPUs.
    pub migrations_ran: u64,
    /// Of those, between LLCs.
    pub cross_llc_ran: u64,
    /// Of those, between NUMA nodes.
    pub cross_node_ran: u64,
    /// Share of the run time that its tasks spent in the LLC each ran in most, 0..1.
    pub dominant_llc_share: Option<f64>,
}

impl Counters {
    /// The metrics of the window from the start, or the end of the warm-up, to `end_ns` (or to the last event, if that is later). May be
    /// asked for at any time; the window stays open.
    ///
    /// `tables` are those of the run, for names; `tasks` says which application a task belongs to, and tasks missing in it
    /// belong to none.
    pub fn metrics(&self, end_ns: u64, tables: &RunTables, tasks: &[TaskInfo]) -> Metrics {
        let end_ns = end_ns.max(self.now_ns);
        if let Some(opened) = self.opened() {
            // A run that is shorter than its warm-up has an empty window.
            return opened.metrics(end_ns.max(opened.start_ns()), tables, tasks);
        }
        let window_ns = end_ns - self.start_ns();
        let seen = self.tasks.iter().enumerate().filter(|(_, task)| task.was_named());
        let mut task_metrics: Vec<TaskMetrics> =
            seen.map(|(index, task)| self.task_metrics(index, task, end_ns, window_ns)).collect();
        self.place_counts(&mut task_metrics, &tables.counters);
        let cpus: Vec<CpuMetrics> =
            (0..self.cpus.len()).map(|index| self.cpu_metrics(index, end_ns, window_ns)).collect();
        Metrics {
            schema: METRICS_SCHEMA,
            window_ns,
            totals: self.totals(end_ns, tables, &task_metrics, &cpus),
            applications: applications(&task_metrics, tasks, window_ns),
            tasks: task_metrics,
            cpus,
            turn_ns: 0,
        }
    }

    /// Wakeup latencies and response times of some tasks together, each as the upper edge of its bucket; `None` without
    /// [`Counters::with_latencies_by_task`], and for tasks whose number is 4096 or more.
    pub fn latencies_of(&self, tasks: &[TaskId]) -> Option<[Histogram; 2]> {
        match self.opens_ns == NEVER {
            true => self.by_task.as_ref()?.together(tasks),
            // The run is over in its warm-up.
            false => self.by_task.as_ref().map(|_| Default::default()),
        }
    }

    /// Migrations (ran) between LLCs in the first and in the last quarter of a part of the window, which ends at the run's end; `None` if it
    /// is too short a part for that.
    pub fn cross_llc_quarters(&self, from_ns: u64, end_ns: u64) -> Option<[u64; 2]> {
        let start_ns = self.start_ns();
        if self.opens_ns != NEVER || from_ns < start_ns || end_ns <= from_ns {
            return None;
        }
        self.llc_moves.quarters_of(from_ns - start_ns, end_ns - start_ns)
    }

    /// Adds what each task counted, and where.
    fn place_counts(&self, tasks: &mut [TaskMetrics], names: &[String]) {
        for ((task, cpu, counter), value) in self.stays.iter().flatten() {
            let found = tasks.binary_search_by_key(task, |metrics| metrics.id);
            if let (Ok(index), Some(name)) = (found, names.get(*counter as usize)) {
                let count = tasks[index].counters.entry(name.clone()).or_default();
                count.total = count.total.saturating_add(*value);
                count.by_cpu.insert(*cpu, *value);
                let of_llc = count.by_llc.entry(self.machine.llc_of(*cpu)).or_default();
                *of_llc = of_llc.saturating_add(*value);
            }
        }
    }

    fn totals(&self, end_ns: u64, tables: &RunTables, tasks: &[TaskMetrics], cpus: &[CpuMetrics]) -> Totals {
        let mut run_delay = self.wakeup_latency.clone();
        run_delay.merge(&self.preempt_wait);
        let length_ns: u64 = (0..self.cpus.len()).map(|index| self.length_ns(index, end_ns)).sum();
        let sum = |of: fn(&CpuMetrics) -> u64| cpus.iter().map(of).sum::<u64>();
        let [busy_ns, foreign_ns, idle_ns] =
            [sum(|cpu| cpu.busy_ns), sum(|cpu| cpu.foreign_ns), sum(|cpu| cpu.idle_ns)];
        let kinds = MigrationKind::ALL.iter().map(|kind| (kind.name().to_owned(), self.event_kinds[*kind as usize]));
        let mut overhead = [0; OVERHEAD_KINDS];
        for cpu in &self.cpus {
            overhead.iter_mut().zip(cpu.overhead_ns).for_each(|(sum, spent)| *sum += spent);
        }
        Totals {
            events: self.events,
            unexpected_events: self.unexpected,
            wakeup_latency: self.wakeup_latency.clone().into(),
            preempt_wait: self.preempt_wait.clone().into(),
            run_delay: run_delay.into(),
            off_cpu: self.off_cpu.clone().into(),
            slice: self.slices.clone().into(),
            response: self.response.clone().into(),
            censored: self.censored(end_ns),
            voluntary_switches: tasks.iter().map(|task| task.voluntary_switches).sum(),
            involuntary_switches: tasks.iter().map(|task| task.involuntary_switches).sum(),
            migrations_ran: (&self.ran_distance).into(),
            cross_llc_quarters: self.llc_moves.quarters(end_ns.saturating_sub(self.start_ns())),
            migrations_event: (&self.event_distance).into(),
            migrations_by_kind: kinds.collect(),
            migrations_after_preemption: self.after_preemption,
            run_ns: tasks.iter().map(|task| task.run_ns).sum(),
            dominant_llc_run_ns: tasks.iter().filter_map(|task| task.llc_run_ns.values().max()).sum(),
            busy_ns,
            foreign_ns,
            idle_ns,
            offline_ns: sum(|cpu| cpu.offline_ns),
            unobserved_ns: cpus.iter().map(|cpu| cpu.unobserved_ns).sum(),
            overhead_ns: self.overhead_by_name(&overhead),
            runqueue_length_mean: ratio(length_ns, busy_ns + foreign_ns + idle_ns),
            runqueue_length_max: cpus.iter().map(|cpu| cpu.runqueue_length_max).max().unwrap_or(0),
            work_conservation_violation_ns: self.work.violation_ns(end_ns),
            counters: by_name(&tables.counters, &self.counters),
            phases: by_name(&tables.phases, &self.phases),
            decisions: by_subject(&tables.decisions, &self.decisions),
        }
    }

    fn censored(&self, end_ns: u64) -> Censored {
        let mut censored = Censored { abandoned_waits: self.abandoned_waits, ..Censored::default() };
        for task in &self.tasks {
            if let Some(waited) = task.censored_wait(end_ns) {
                let preempted = task.wait == super::task::Wait::Preempt;
                if preempted { &mut censored.preempt } else { &mut censored.wakeup }.record(waited);
            }
            if let Some(ran) = task.censored_slice(end_ns) {
                censored.slices.record(ran);
            }
        }
        censored
    }

    fn task_metrics(&self, index: usize, task: &TaskState, end_ns: u64, window_ns: u64) -> TaskMetrics {
        let open_slice = task.censored_slice(end_ns).unwrap_or(0);
        let mut llc_run_ns = BTreeMap::new();
        let mut node_run_ns = BTreeMap::new();
        for llc in self.machine.llcs() {
            // An unfinished slice began in the LLC that the task is resident in.
            let recent = if task.resident_llc == llc.0 { task.resident_ns + open_slice } else { 0 };
            let before = if task.straddling.llc == llc.0 { task.straddling.run_before_ns } else { 0 };
            let ran = self.llc_run_ns[index * self.llcs + llc.index()] + recent - before;
            if ran > 0 {
                llc_run_ns.insert(llc, ran);
                *node_run_ns.entry(self.machine.node_of_llc(llc)).or_insert(0) += ran;
            }
        }
        let run_ns = task.run_ns(end_ns);
        let most = llc_run_ns.values().copied().max();
        let dominant_llc = llc_run_ns.iter().find(|(_, ran)| Some(**ran) == most).map(|(llc, _)| *llc);
        TaskMetrics {
            id: TaskId(index as u32),
            created_ns: (task.created_ns != NEVER).then_some(task.created_ns),
            exited_ns: (task.exited_ns != NEVER).then_some(task.exited_ns),
            run_ns,
            cpu_share: ratio(run_ns, window_ns),
            slices: task.slices,
            wakeup_latency: task.wakeup,
            preempt_wait: task.preempt,
            response: task.response,
            run_delay_ns: task.run_delay_ns(),
            censored_wait_ns: task.censored_wait(end_ns),
            throttled_ns: task.throttled_ns(end_ns),
            throttled_wait_ns: task.throttled_wait_ns(end_ns),
            off_cpu_ns: task.off_cpu_ns(),
            voluntary_switches: task.voluntary,
            involuntary_switches: task.involuntary,
            migrations_ran: task.migrations_ran,
            cross_llc_ran: task.cross_llc_ran,
            cross_node_ran: task.cross_node_ran,
            migrations_event: task.migrations_event,
            dominant_llc,
            dominant_llc_share: ratio(most.unwrap_or(0), run_ns),
            llc_run_ns,
            node_run_ns,
            counters: BTreeMap::new(),
        }
    }

    fn overhead_by_name(&self, spent: &[u64; OVERHEAD_KINDS]) -> BTreeMap<String, u64> {
        let reported = OverheadKind::ALL.iter().filter(|_| self.overhead_reported);
        reported.map(|kind| (kind.name().to_owned(), spent[*kind as usize])).collect()
    }

    /// Run-queue length summed over the observed time of a CPU up to the end.
    fn length_ns(&self, index: usize, end_ns: u64) -> u64 {
        let mut cpu = self.cpus[index].clone();
        cpu.settle_length(end_ns);
        cpu.length_ns
    }

    fn cpu_metrics(&self, index: usize, end_ns: u64, window_ns: u64) -> CpuMetrics {
        let cpu = &self.cpus[index];
        let open = if cpu.curr.is_idle() { 0 } else { end_ns - cpu.since_ns };
        let busy_ns = cpu.busy_ns + open;
        let foreign_ns = cpu.foreign_ns + if cpu.foreign { end_ns - cpu.since_ns } else { 0 };
        let observed_ns = cpu.observed_ns(end_ns);
        let offline_ns = cpu.offline_ns(end_ns);
        CpuMetrics {
            id: CpuId::from_index(index),
            switches: cpu.switches,
            busy_ns,
            foreign_ns,
            idle_ns: observed_ns - busy_ns - foreign_ns - offline_ns,
            offline_ns,
            unobserved_ns: window_ns - observed_ns,
            overhead_ns: self.overhead_by_name(&cpu.overhead_ns),
            runqueue_length_mean: ratio(self.length_ns(index, end_ns), observed_ns - offline_ns),
            runqueue_length_max: cpu.length_max,
        }
    }
}

/// Sums over the tasks of each application that `tasks` names.
fn applications(metrics: &[TaskMetrics], tasks: &[TaskInfo], window_ns: u64) -> Vec<ApplicationMetrics> {
    let infos: BTreeMap<TaskId, &TaskInfo> = tasks.iter().map(|info| (info.id, info)).collect();
    let mut sums: BTreeMap<u32, (ApplicationMetrics, u64)> = BTreeMap::new();
    for task in metrics {
        let Some(info) = infos.get(&task.id) else { continue };
        let (sum, dominant_ns) = sums.entry(info.application).or_insert_with(|| (ApplicationMetrics::empty(info), 0));
        sum.tasks += 1;
        sum.run_ns += task.run_ns;
        sum.wakeup_latency.merge(&task.wakeup_latency);
        sum.preempt_wait.merge(&task.preempt_wait);
        sum.run_delay_ns += task.run_delay_ns;
        sum.voluntary_switches += task.voluntary_switches;
        sum.involuntary_switches += task.involuntary_switches;
        sum.migrations_ran += task.migrations_ran;
        sum.cross_llc_ran += task.cross_llc_ran;
        sum.cross_node_ran += task.cross_node_ran;
        *dominant_ns += task.llc_run_ns.values().max().copied().unwrap_or(0);
    }
    let finish = |(mut sum, dominant_ns): (ApplicationMetrics, u64)| {
        sum.cpu_share = ratio(sum.run_ns, window_ns);
        sum.dominant_llc_share = ratio(dominant_ns, sum.run_ns);
        sum
    };
    sums.into_values().map(finish).collect()
}

impl ApplicationMetrics {
    fn empty(info: &TaskInfo) -> Self {
        Self { application: info.application, name: info.application_name.clone(), ..Self::default() }
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Entries of equal name are one entry.
fn by_subject(kinds: &[DecisionKind], sums: &[u64]) -> DecisionCounts {
    let mut result = DecisionCounts::new();
    for (kind, sum) in kinds.iter().zip(sums) {
        let reasons = result.entry(kind.subject.to_string()).or_default();
        *reasons.entry(kind.reason.to_string()).or_insert(0) += sum;
    }
    result
}

fn by_name(names: &[String], sums: &[u64]) -> BTreeMap<String, u64> {
    let mut result = BTreeMap::new();
    for (name, sum) in names.iter().zip(sums) {
        *result.entry(name.clone()).or_insert(0) += sum;
    }
    result
}
