//! How far cache-aware scheduling gathers the threads of a workload: how long they run inside and outside of the last-level cache (LLC) that
//! their process prefers at that time, and when they are pulled to it. A process that may use several (`topology-aware`) is inside in each of
//! them.
//!
//! That follows from the scheduler's decisions and from who runs where. Time in which a process prefers no LLC does not count, nor, where its
//! memory says which LLCs come next (`numa_mode=N2`), time in which it may use several: no decision tells which. Workloads with groups that a user has formed are left out, and so are runs of real kernels, which tell
//! no decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use warmcore_schedulers::SchedulerSpec;
use warmcore_schedulers::domains::{DomainParameters, Domains};
use warmcore_schedulers::fair::topology_aware::llc_orders;
use warmcore_topology::Machine;
use warmcore_trace::{DecisionKind, DecisionValue, Event, EventKind, Outcome, RunTables, Sink, TaskId};
use warmcore_workload::{Aggregation, Workload};

/// What a trial came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatheringRow {
    /// Threads that ran while their process preferred an LLC.
    pub threads: u64,
    /// Nanoseconds that they ran there, or in another LLC that it might use, all threads together.
    pub inside_ns: u64,
    /// Nanoseconds that they ran elsewhere.
    pub outside_ns: u64,
    /// How often a thread was pulled to the LLC that its process preferred.
    pub pulled: u64,
    /// How often in the last quarter of the window.
    pub pulled_late: u64,
}

impl GatheringRow {
    /// Part of the time that was spent elsewhere, 0 to 1.
    pub fn outside(&self) -> f64 {
        self.outside_ns as f64 / (self.inside_ns + self.outside_ns).max(1) as f64
    }
}

/// What a decision says of gathering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// The process prefers the LLC that the value names.
    Prefers,
    /// It prefers none any more.
    Drops,
    /// It may use so many LLCs.
    Scope,
    /// A thread was pulled.
    Pulled,
}

impl Told {
    fn of(kind: &DecisionKind) -> Option<Self> {
        Some(match (&*kind.subject, kind.value) {
            ("preferred LLC chosen" | "preferred LLC changed", DecisionValue::Llc) => Self::Prefers,
            ("preferred LLC dropped", DecisionValue::Llc) => Self::Drops,
            ("scope expanded" | "scope contracted", DecisionValue::LlcCount) => Self::Scope,
            ("task pulled", DecisionValue::Llc) => Self::Pulled,
            _ => return None,
        })
    }
}

/// A change of what a process prefers.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// A task of the process.
    task: TaskId,
    told: Told,
    value: i64,
}

/// What a process prefers.
#[derive(Clone, Copy, Debug)]
struct Preference {
    llc: Option<i64>,
    /// How many LLCs it may use.
    llcs: i64,
}

/// The tunable with which memory says in which order a process takes LLCs.
const BY_MEMORY: (&str, u64) = ("numa_mode", 2);

/// Most entries of [`Gathering::stays`]: a run with more is not followed further. Preferences that change so often gather nobody.
const MOST_STAYS: usize = 1_000_000;

/// Follows who runs where while events come.
#[derive(Debug)]
pub(crate) struct Gathering<'a> {
    machine: &'a Machine,
    /// By number of the decision.
    told: Vec<Option<Told>>,
    /// LLC of each CPU, as decisions number it; empty before the first change.
    llcs: Vec<u32>,
    /// By LLC that a process prefers: all of them in the order in which it takes them. Empty before a process may use several, and where
    /// nothing tells.
    orders: Vec<Vec<u32>>,
    /// Which LLCs come next depends on where memory is.
    by_memory: bool,
    /// By CPU: who runs there, and since when.
    running: Vec<Option<(TaskId, u64)>>,
    changes: Vec<Change>,
    /// Nanoseconds of running by the number of changes before, task and LLC; from the first change on.
    stays: BTreeMap<(usize, u32, u32), u64>,
    pulled_ns: Vec<u64>,
    /// What is before does not count.
    warm_up_ns: u64,
}

impl<'a> Gathering<'a> {
    pub(crate) fn new(
        machine: &'a Machine,
        workload: &Workload,
        scheduler: &SchedulerSpec,
        tables: &RunTables,
        warm_up_ns: u64,
    ) -> Self {
        let told: Vec<Option<Told>> = match workload.aggregation == Aggregation::default() {
            true => tables.decisions.iter().map(Told::of).collect(),
            false => Vec::new(),
        };
        Self {
            machine,
            told,
            llcs: Vec::new(),
            orders: Vec::new(),
            by_memory: scheduler.resolved().contains(&BY_MEMORY),
            running: vec![None; machine.cpu_count()],
            changes: Vec::new(),
            stays: BTreeMap::new(),
            pulled_ns: Vec::new(),
            warm_up_ns,
        }
    }

    /// What the run came to; none if no process preferred an LLC in what counts.
    pub(crate) fn row(mut self, outcome: &Outcome) -> Option<GatheringRow> {
        (0..self.running.len()).for_each(|cpu| self.count(cpu, outcome.elapsed_ns));
        if self.stays.len() > MOST_STAYS {
            return None;
        }
        let mut preferences: BTreeMap<u32, Preference> = BTreeMap::new();
        let process_of = |task: u32| outcome.tasks.get(task as usize).map(|task| task.process);
        let (mut before, mut inside_ns, mut outside_ns) = (0, 0, 0);
        let mut threads = BTreeSet::new();
        for (&(changes, task, llc), &ns) in &self.stays {
            for Change { task, told, value } in &self.changes[before..changes] {
                let Some(process) = process_of(task.0) else { continue };
                let preference = preferences.entry(process).or_insert(Preference { llc: None, llcs: 1 });
                match told {
                    Told::Prefers => preference.llc = Some(*value),
                    Told::Drops => preference.llc = None,
                    Told::Scope => preference.llcs = *value,
                    Told::Pulled => {}
                }
            }
            before = changes;
            let preference = process_of(task).and_then(|process| preferences.get(&process));
            let Some(is_inside) = preference.and_then(|preference| self.is_inside(*preference, llc)) else { continue };
            *(if is_inside { &mut inside_ns } else { &mut outside_ns }) += ns;
            threads.insert(task);
        }
        let late_ns = outcome.elapsed_ns - outcome.window_ns() / 4;
        let pulled = |from_ns: u64| self.pulled_ns.iter().filter(|ns| **ns >= from_ns).count() as u64;
        (!threads.is_empty()).then(|| GatheringRow {
            threads: threads.len() as u64,
            inside_ns,
            outside_ns,
            pulled: pulled(self.warm_up_ns),
            pulled_late: pulled(late_ns),
        })
    }

    /// Whether an LLC is one that a process may use; `None` if it prefers none, or nothing tells which these are.
    fn is_inside(&self, preference: Preference, llc: u32) -> Option<bool> {
        let preferred = u32::try_from(preference.llc?).ok()?;
        if preference.llcs <= 1 {
            return Some(preferred == llc);
        }
        let position = self.orders.get(preferred as usize)?.iter().position(|&other| other == llc)?;
        Some((position as i64) < preference.llcs)
    }

    /// Counts the time of who runs on a CPU up to now.
    fn count(&mut self, cpu: usize, now_ns: u64) {
        let Some((task, since_ns)) = &mut self.running[cpu] else { return };
        let from_ns = std::mem::replace(since_ns, now_ns).max(self.warm_up_ns);
        if now_ns > from_ns && !self.changes.is_empty() && self.stays.len() <= MOST_STAYS {
            *self.stays.entry((self.changes.len(), task.0, self.llcs[cpu])).or_insert(0) += now_ns - from_ns;
        }
    }

    fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Switch { next, .. } => {
                let cpu = event.cpu.index();
                self.count(cpu, event.time_ns);
                self.running[cpu] = (!next.is_idle()).then_some((next, event.time_ns));
            }
            EventKind::Decision { decision, task, value } => {
                match self.told.get(decision as usize).copied().flatten() {
                    None => {}
                    Some(Told::Pulled) => self.pulled_ns.push(event.time_ns),
                    Some(told) => self.change(event.time_ns, Change { task, told, value }),
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, now_ns: u64, change: Change) {
        let domains = || Domains::build(self.machine, &DomainParameters::default());
        if self.llcs.is_empty() {
            let domains = domains();
            self.llcs = self.machine.cpus().map(|cpu| domains.sd_llc_id(cpu)).collect();
        }
        if change.told == Told::Scope && change.value > 1 && self.orders.is_empty() && !self.by_memory {
            self.orders = llc_orders(self.machine, &domains());
        }
        (0..self.running.len()).for_each(|cpu| self.count(cpu, now_ns));
        self.changes.push(change);
    }
}

impl Sink for Gathering<'_> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        if self.told.iter().any(Option::is_some) {
            batch.iter().for_each(|event| self.event(event));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::CpuId;
    use warmcore_trace::{End, PrevState, TaskOutcome};

    const KINDS: [(&str, DecisionValue); 4] = [
        ("preferred LLC chosen", DecisionValue::Llc),
        ("preferred LLC dropped", DecisionValue::Llc),
        ("task pulled", DecisionValue::Llc),
        ("scope expanded", DecisionValue::LlcCount),
    ];

    /// Two tasks of one process on two LLCs of two CPUs, from 0 to 1000 ns.
    fn row(decisions: &[(u64, u32, i64)], warm_up_ns: u64) -> Option<GatheringRow> {
        row_under("cache-aware", "1s1n2l2c1t", decisions, warm_up_ns)
    }

    fn row_under(
        scheduler: &str,
        machine: &str,
        decisions: &[(u64, u32, i64)],
        warm_up_ns: u64,
    ) -> Option<GatheringRow> {
        let machine = warmcore_topology::resolve(machine).unwrap();
        let scheduler = SchedulerSpec::parse(scheduler).unwrap();
        let kinds = KINDS.map(|(subject, value)| DecisionKind::new(subject, "why", value));
        let tables = RunTables { decisions: kinds.into(), ..RunTables::default() };
        let mut gathering = Gathering::new(&machine, &Workload::empty("w"), &scheduler, &tables, warm_up_ns);
        let on = |time_ns, cpu, kind| Event { time_ns, cpu: CpuId(cpu), kind };
        let switch = |prev, next| EventKind::Switch { prev, prev_state: PrevState::Runnable, next };
        let mut events = vec![
            on(0, 0, switch(TaskId::IDLE, TaskId(0))),
            on(0, 2, switch(TaskId::IDLE, TaskId(1))),
            // The second one is pulled.
            on(900, 2, switch(TaskId(1), TaskId::IDLE)),
            on(900, 1, switch(TaskId::IDLE, TaskId(1))),
        ];
        events.extend(decisions.iter().map(|(time_ns, decision, value)| {
            on(*time_ns, 0, EventKind::Decision { decision: *decision, task: TaskId(0), value: *value })
        }));
        events.sort_by_key(|event| event.time_ns);
        gathering.events(&events).unwrap();
        let mut outcome = Outcome::new(End::Stopped, 1000);
        outcome.warm_up_ns = warm_up_ns;
        outcome.tasks = (0..2).map(|id| TaskOutcome::new(id, "t".into(), "t".into(), 1000)).collect();
        gathering.row(&outcome)
    }

    #[test]
    fn a_thread_is_outside_until_it_is_pulled_and_nobody_is_without_a_preference() {
        let pulled = row(&[(100, 0, 0), (900, 2, 0)], 0).unwrap();
        let expected = GatheringRow { threads: 2, inside_ns: 900 + 100, outside_ns: 800, pulled: 1, pulled_late: 1 };
        assert_eq!(pulled, expected);
        assert_eq!(row(&[(100, 0, 0), (300, 1, 0)], 0).unwrap().outside_ns, 200, "dropped");
        assert_eq!(row(&[], 0), None);
        let warm = row(&[(100, 0, 0), (200, 2, 0)], 500).unwrap();
        assert_eq!((warm.inside_ns, warm.outside_ns, warm.pulled), (500 + 100, 400, 0), "what the warm-up leaves");
    }

    /// From the third of four LLCs three are the third, the fourth and the first. From 100 to 300 ns both threads are outside; then the one on
    /// the first is inside, and the one on the second from 900 ns on, when it comes there, too.
    #[test]
    fn a_process_that_may_use_several_llcs_is_inside_in_each_of_them() {
        let row = |scheduler| row_under(scheduler, "1s1n4l2c1t", &[(100, 0, 2), (300, 3, 3)], 0).unwrap();
        let several = row("topology-aware");
        assert_eq!((several.inside_ns, several.outside_ns), (700 + 100, 2 * 200 + 600));
        let by_memory = row("topology-aware:numa_mode=N2");
        assert_eq!((by_memory.inside_ns, by_memory.outside_ns), (0, 2 * 200), "which they are is not told");
    }
}
