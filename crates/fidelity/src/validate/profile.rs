//! What is compared between two places, from the events of a run alone.
//!
//! A [`RunProfile`] follows every task: where it is, whether it is runnable, its slices, its waits. Metrics ([`super::metric`])
//! read it at the end. Tasks are known by their template's name, because numbers and CPUs of single tasks may be swapped
//! between two correct runs.

use std::collections::BTreeSet;

use warmcore_topology::{CpuId, Machine, Relation};
use warmcore_trace::Outcome;
use warmcore_trace::{Event, EventKind, MIGRATION_KINDS, MigrationKind, PrevState, TaskId};
use warmcore_workload::Workload;

/// Distance of the instants at which tasks per CPU are noted.
pub const STEP_NS: u64 = 5_000_000;

/// What is known of one task.
#[derive(Clone, Debug, Default)]
struct Follow {
    cpu: Option<CpuId>,
    runnable: bool,
    /// Since when it runs.
    running_since: Option<u64>,
    /// Since its waking or creation, until it runs.
    waking_since: Option<u64>,
    /// Whether it was moved since its waking, and to another LLC.
    moved: Option<bool>,
    /// Since when it is runnable and does not run.
    waiting_since: Option<u64>,
    wait_ns: u64,
    run_ns: u64,
    slices_ns: Vec<u64>,
    wakeups_ns: Vec<u64>,
    wakeups_moved: u64,
    wakeups_cross_llc: u64,
}

impl Follow {
    /// It runs, or the run is over: what it waited since `from_ns`.
    fn end_wait(&mut self, now: u64, from_ns: u64) {
        if let Some(since) = self.waiting_since.take() {
            self.wait_ns += now.saturating_sub(since.max(from_ns));
        }
    }
}

/// The sums of all tasks of one template.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TemplateSums {
    /// The template.
    pub name: String,
    /// Number of its tasks.
    pub tasks: usize,
    /// CPU time in the window, by task.
    pub run_ns: Vec<u64>,
    /// Time runnable and not running in the window (the kernel's run delay), sum of its tasks.
    pub wait_ns: u64,
    /// Finished slices in the window, ascending.
    pub slices_ns: Vec<u64>,
    /// Wakeup latencies in the window, ascending.
    pub wakeups_ns: Vec<u64>,
    /// Wakeups that placed the task on another CPU.
    pub wakeups_moved: u64,
    /// Wakeups that placed the task in another LLC.
    pub wakeups_cross_llc: u64,
}

/// What a run looked like.
#[derive(Clone, PartialEq, Debug)]
pub struct RunProfile {
    /// By template, in the workload's order.
    pub groups: Vec<TemplateSums>,
    /// Length of the window.
    pub window_ns: u64,
    /// Runnable tasks of each CPU, every [`STEP_NS`] from the run's start.
    pub counts: Vec<Vec<u32>>,
    /// Run time in each LLC within each [`STEP_NS`] from the run's start.
    pub llc_run_ns: Vec<Vec<u64>>,
    /// Migrations in the window.
    pub migrations: u64,
    /// The same by kind ([`MigrationKind`]'s order).
    pub migrations_by_kind: [u64; MIGRATION_KINDS],
    /// The same by distance ([`Distance`]'s order).
    pub migrations_by_distance: [u64; Distance::ALL.len()],
    /// LLC of each CPU.
    pub llcs: Vec<usize>,
    /// Beginning of the window.
    pub from_ns: u64,
}

warmcore_topology::worded! {
    /// How far a migration went.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Distance: name {
        /// To the other thread of the core.
        SameCore = "same core",
        /// To another core of the LLC.
        SameLlc = "same LLC",
        /// To another LLC of the node.
        SameNode = "same node",
        /// To another node.
        OtherNode = "other node",
    }
}

impl Distance {
    fn of(machine: &Machine, from: CpuId, to: CpuId) -> Self {
        match machine.relation(from, to) {
            Relation::SameCpu | Relation::SmtSibling => Self::SameCore,
            Relation::SameCluster | Relation::SameLlc => Self::SameLlc,
            Relation::SameNode => Self::SameNode,
            Relation::SameSocket | Relation::OtherSocket | Relation::FarSocket => Self::OtherNode,
        }
    }
}

/// Which part of a run a profile is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Beginning of the window, from the run's start.
    pub from_ns: u64,
    /// Its end; the run's end if that comes before.
    pub to_ns: u64,
    /// Only tasks of the template or process of this name: to all others the profile is blind.
    pub only: Option<String>,
}

impl Default for View {
    fn default() -> Self {
        Self { from_ns: 0, to_ns: u64::MAX, only: None }
    }
}

impl View {
    /// The profile of a run's events.
    pub fn profile(&self, machine: &Machine, events: &[Event], outcome: &Outcome, workload: &Workload) -> RunProfile {
        let seen = |task: &warmcore_trace::TaskOutcome| match &self.only {
            None => true,
            Some(name) => {
                let process = workload.processes.get(task.process as usize);
                workload.template_name(&task.name) == name || process.is_some_and(|process| process.name == *name)
            }
        };
        let mut outcome = outcome.clone();
        outcome.tasks.retain(seen);
        outcome.elapsed_ns = outcome.elapsed_ns.min(self.to_ns);
        let mut profiler = Profiler::new(machine, self.from_ns);
        if self.only.is_some() {
            profiler.seen = Some(outcome.tasks.iter().map(|task| TaskId(task.id)).collect());
        }
        profiler.take(events, self.to_ns);
        profiler.finish(&outcome, workload)
    }
}

/// Makes a profile of events.
struct Profiler<'a> {
    machine: &'a Machine,
    llcs: Vec<usize>,
    /// Tasks to follow, if not all.
    seen: Option<BTreeSet<TaskId>>,
    from_ns: u64,
    now_ns: u64,
    tasks: Vec<Follow>,
    present: Vec<u32>,
    counts: Vec<Vec<u32>>,
    llc_run_ns: Vec<Vec<u64>>,
    migrations: u64,
    by_kind: [u64; MIGRATION_KINDS],
    by_distance: [u64; Distance::ALL.len()],
}

impl<'a> Profiler<'a> {
    /// A profiler for a run on `machine` that counts from `from_ns` on.
    fn new(machine: &'a Machine, from_ns: u64) -> Self {
        Self {
            machine,
            llcs: machine.cpus().map(|cpu| machine.llc_of(cpu).index()).collect(),
            seen: None,
            from_ns,
            now_ns: 0,
            tasks: Vec::new(),
            present: vec![0; machine.cpu_count()],
            counts: Vec::new(),
            llc_run_ns: Vec::new(),
            migrations: 0,
            by_kind: [0; MIGRATION_KINDS],
            by_distance: [0; Distance::ALL.len()],
        }
    }

    /// The profile at the end of the run.
    fn finish(mut self, outcome: &Outcome, workload: &Workload) -> RunProfile {
        let end = outcome.elapsed_ns;
        self.note_until(end);
        for task in 0..self.tasks.len() {
            // An unfinished slice is run time, but no slice.
            if let Some(since) = self.tasks[task].running_since {
                self.tasks[task].run_ns += end.saturating_sub(since.max(self.from_ns));
                if let Some(cpu) = self.tasks[task].cpu {
                    self.ran(cpu, since, end);
                }
            }
            let (from, follow) = (self.from_ns, &mut self.tasks[task]);
            follow.end_wait(end, from);
        }
        self.llc_run_ns.resize(self.counts.len(), vec![0; self.llc_count()]);
        let mut groups: Vec<TemplateSums> = Vec::new();
        for task in &outcome.tasks {
            let name = workload.template_name(&task.name);
            let follow = self.tasks.get(task.id as usize).cloned().unwrap_or_default();
            let place = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
                groups.push(TemplateSums { name: name.to_owned(), ..TemplateSums::default() });
                groups.len() - 1
            });
            let group = &mut groups[place];
            group.tasks += 1;
            group.run_ns.push(follow.run_ns);
            group.wait_ns += follow.wait_ns;
            group.slices_ns.extend(follow.slices_ns);
            group.wakeups_ns.extend(follow.wakeups_ns);
            group.wakeups_moved += follow.wakeups_moved;
            group.wakeups_cross_llc += follow.wakeups_cross_llc;
        }
        for group in &mut groups {
            group.slices_ns.sort_unstable();
            group.wakeups_ns.sort_unstable();
        }
        RunProfile {
            groups,
            window_ns: end.saturating_sub(self.from_ns),
            counts: self.counts,
            llc_run_ns: self.llc_run_ns,
            migrations: self.migrations,
            migrations_by_kind: self.by_kind,
            migrations_by_distance: self.by_distance,
            llcs: self.llcs,
            from_ns: self.from_ns,
        }
    }

    fn llc_count(&self) -> usize {
        self.llcs.iter().max().map_or(0, |last| last + 1)
    }

    /// Adds run time to the steps it falls into.
    fn ran(&mut self, cpu: CpuId, mut since: u64, until: u64) {
        let (llc, llcs) = (self.llcs[cpu.index()], self.llc_count());
        while since < until {
            let step = (since / STEP_NS) as usize;
            let end = until.min((step as u64 + 1) * STEP_NS);
            if self.llc_run_ns.len() <= step {
                self.llc_run_ns.resize(step + 1, vec![0; llcs]);
            }
            self.llc_run_ns[step][llc] += end - since;
            since = end;
        }
    }

    /// Notes the present counts for every instant before `time_ns`.
    fn note_until(&mut self, time_ns: u64) {
        while (self.counts.len() as u64) * STEP_NS < time_ns {
            self.counts.push(self.present.clone());
        }
    }

    fn task(&mut self, task: TaskId) -> &mut Follow {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Follow::default());
        }
        &mut self.tasks[task.index()]
    }

    /// Puts a task somewhere, as runnable or not.
    fn place(&mut self, task: TaskId, cpu: CpuId, runnable: bool) {
        let follow = self.task(task);
        let before = follow.cpu.filter(|_| follow.runnable);
        (follow.cpu, follow.runnable) = (Some(cpu), runnable);
        if let Some(before) = before {
            self.present[before.index()] -= 1;
        }
        if runnable {
            self.present[cpu.index()] += 1;
        }
    }

    fn leave(&mut self, event: &Event, prev: TaskId, state: PrevState) {
        let (now, from) = (event.time_ns, self.from_ns);
        let follow = self.task(prev);
        if state == PrevState::Runnable {
            follow.waiting_since = Some(now);
        }
        if let Some(since) = follow.running_since.take() {
            follow.run_ns += now.saturating_sub(since.max(from));
            if since >= from {
                follow.slices_ns.push(now - since);
            }
            self.ran(event.cpu, since, now);
        }
        self.place(prev, event.cpu, state == PrevState::Runnable);
    }

    fn enter(&mut self, event: &Event, next: TaskId) {
        let (now, from) = (event.time_ns, self.from_ns);
        let follow = self.task(next);
        follow.running_since = Some(now);
        follow.end_wait(now, from);
        let moved = follow.moved.take();
        if let Some(since) = follow.waking_since.take().filter(|since| *since >= from) {
            follow.wakeups_ns.push(now - since);
            follow.wakeups_moved += u64::from(moved.is_some());
            follow.wakeups_cross_llc += u64::from(moved == Some(true));
        }
        self.place(next, event.cpu, true);
    }
}

impl Profiler<'_> {
    /// The task if it is to be followed, else the idle task.
    fn shown(&self, task: TaskId) -> TaskId {
        if self.seen.as_ref().is_none_or(|seen| seen.contains(&task)) { task } else { TaskId::IDLE }
    }

    /// Takes the events before an instant.
    fn take(&mut self, events: &[Event], to_ns: u64) {
        for event in events.iter().take_while(|event| event.time_ns < to_ns) {
            self.now_ns = event.time_ns;
            self.note_until(event.time_ns);
            match event.kind {
                EventKind::Switch { prev, prev_state, next } => {
                    let (prev, next) = (self.shown(prev), self.shown(next));
                    if !prev.is_idle() {
                        self.leave(event, prev, prev_state);
                    }
                    if !next.is_idle() {
                        self.enter(event, next);
                    }
                }
                EventKind::Waking { task, .. } if !self.shown(task).is_idle() => {
                    let follow = self.task(task);
                    if !follow.runnable {
                        (follow.waking_since, follow.moved) = (Some(event.time_ns), None);
                    }
                }
                EventKind::Wakeup { task, .. } if !self.shown(task).is_idle() => {
                    let follow = self.task(task);
                    if follow.running_since.is_none() {
                        follow.waiting_since.get_or_insert(event.time_ns);
                    }
                    self.place(task, event.cpu, true);
                }
                EventKind::Migrate { task, from, to, kind } if !self.shown(task).is_idle() => {
                    let crosses = self.llcs[from.index()] != self.llcs[to.index()];
                    if event.time_ns >= self.from_ns {
                        self.migrations += 1;
                        self.by_kind[kind as usize] += 1;
                        self.by_distance[Distance::of(self.machine, from, to) as usize] += 1;
                    }
                    let follow = self.task(task);
                    if kind == MigrationKind::Wakeup {
                        follow.moved = Some(crosses);
                    }
                    let runnable = follow.runnable;
                    self.place(task, to, runnable);
                }
                EventKind::Exit { task } if !self.shown(task).is_idle() => {
                    if let Some(cpu) = self.task(task).cpu {
                        // It still runs until it is switched away for the last time.
                        let runnable = self.task(task).runnable;
                        self.place(task, cpu, runnable);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::resolve;
    use warmcore_trace::{End, TaskOutcome};

    fn outcome(names: &[&str], elapsed_ns: u64) -> Outcome {
        let task = |(id, name): (u32, &&str)| TaskOutcome::new(id, (*name).into(), String::new(), 0);
        Outcome { tasks: (0..).zip(names).map(task).collect(), ..Outcome::new(End::Stopped, elapsed_ns) }
    }

    #[test]
    fn slices_waits_and_places_are_those_of_the_events() {
        let machine = resolve("1s1n2l2c1t").unwrap();
        let (task, idle) = (TaskId(0), TaskId::IDLE);
        let event = |ms: u64, cpu, kind| Event { time_ns: ms * 1_000_000, cpu: CpuId(cpu), kind };
        let run = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
        let events = [
            event(1, 0, EventKind::Wakeup { task, reason: None }),
            event(1, 0, run(idle, PrevState::Idle, task)),
            event(4, 0, run(task, PrevState::Sleeping, idle)),
            event(7, 0, EventKind::Waking { task, target_cpu: CpuId(0), waker: TaskId::IDLE }),
            event(7, 0, EventKind::Migrate { task, from: CpuId(0), to: CpuId(2), kind: MigrationKind::Wakeup }),
            event(7, 2, EventKind::Wakeup { task, reason: None }),
            event(9, 2, run(idle, PrevState::Idle, task)),
        ];
        let (outcome, workload) = (outcome(&["worker-0"], 19_000_000), Workload::empty("none"));
        let profile = View::default().profile(&machine, &events, &outcome, &workload);
        let group = &profile.groups[0];
        assert_eq!((group.name.as_str(), group.run_ns.as_slice()), ("worker", [13_000_000].as_slice()));
        assert_eq!(
            (group.slices_ns.as_slice(), group.wakeups_ns.as_slice()),
            ([3_000_000].as_slice(), [2_000_000].as_slice())
        );
        assert_eq!((group.wakeups_moved, group.wakeups_cross_llc), (1, 1));
        // From 7 to 9 ms: between its wakeup and its second turn.
        assert_eq!(group.wait_ns, 2_000_000);
        assert_eq!((profile.migrations_by_kind[0], profile.migrations_by_distance), (1, [0, 0, 1, 0]));
        let mut by_llc = [0; 2];
        profile.llc_run_ns.iter().for_each(|step| (0..2).for_each(|llc| by_llc[llc] += step[llc]));
        assert_eq!((by_llc, profile.llc_run_ns.len()), ([3_000_000, 10_000_000], 4));
        assert_eq!(profile.llc_run_ns[0], [3_000_000, 0], "a step holds what ran in it");
        assert_eq!(profile.counts, [[0; 4], [0; 4], [0, 0, 1, 0], [0, 0, 1, 0]]);
    }

    #[test]
    fn what_lies_before_the_window_does_not_count() {
        let machine = resolve("1s1n1l1c1t").unwrap();
        let switch = |time_ns, prev, next| Event {
            time_ns,
            cpu: CpuId(0),
            kind: EventKind::Switch { prev, prev_state: PrevState::Runnable, next },
        };
        let events = [switch(2, TaskId::IDLE, TaskId(0)), switch(14, TaskId(0), TaskId(1))];
        let (outcome, workload) = (outcome(&["a", "b"], 20), Workload::empty("none"));
        let profile = View { from_ns: 10, ..View::default() }.profile(&machine, &events, &outcome, &workload);
        let early = View { from_ns: 4, to_ns: 10, only: None }.profile(&machine, &events, &outcome, &workload);
        assert_eq!((early.window_ns, early.groups[0].run_ns[0], early.groups[1].run_ns[0]), (6, 6, 0));
        let one = View { only: Some("b".into()), ..View::default() }.profile(&machine, &events, &outcome, &workload);
        assert_eq!((one.groups.len(), one.groups[0].run_ns[0]), (1, 6), "the other task is not seen");
        assert_eq!(profile.groups.iter().map(|group| group.run_ns[0]).collect::<Vec<_>>(), [4, 6]);
        assert!(profile.groups[0].slices_ns.is_empty(), "it began before the window");
    }
}
