//! The metrics once more, slow and obvious: all events are kept, everything is computed from lists of intervals. What
//! the streaming sink must agree with on any valid sequence of events.

use std::collections::BTreeMap;

use proptest::prelude::*;
use warmcore_topology::{CpuId, Machine, Relation};

use super::{Counters, Metrics, Start};
use crate::random_events::RandomRun;
use crate::{Event, EventKind, Histogram, PrevState, RunTables, Sink, TaskId, Throttler};

/// From the state after event `from` to the state before event `to` (exclusive), both as positions in the trace.
#[derive(Clone, Copy, Debug)]
struct StateInterval {
    cpu: CpuId,
    from: usize,
    to: usize,
    /// Up to there it is the task that starts on an idle CPU.
    starting_to: usize,
}

impl StateInterval {
    fn covers(&self, position: usize) -> bool {
        self.from <= position && position < self.to
    }

    fn starts(&self, position: usize) -> bool {
        self.covers(position) && position < self.starting_to
    }
}

/// What happened to one task.
#[derive(Default)]
struct TaskHistory {
    wakeups: Vec<u64>,
    preempts: Vec<u64>,
    off_cpu: Vec<u64>,
    slices: Vec<u64>,
    responses: Vec<u64>,
    running: Vec<StateInterval>,
    queued: Vec<StateInterval>,
    ran: Vec<Relation>,
    events: Vec<Relation>,
    after_preemption: u64,
    voluntary: u64,
    involuntary: u64,
    abandoned: u64,
    censored_wait: Option<(bool, u64)>,
    censored_slice: Option<u64>,
    llc_ns: BTreeMap<u32, u64>,
    delay_ns: u64,
    off_cpu_ns: u64,
}

struct Reference<'a> {
    machine: &'a Machine,
    tables: &'a RunTables,
    events: &'a [Event],
    idle_at_start: bool,
    /// End of the warm-up, if there is one.
    opens_ns: Option<u64>,
    end_ns: u64,
}

impl Reference<'_> {
    fn time(&self, position: usize) -> u64 {
        self.events.get(position).map_or(self.end_ns, |event| event.time_ns)
    }

    /// Whether what happens then is in the window.
    fn counts(&self, time_ns: u64) -> bool {
        self.opens_ns.is_none_or(|opens_ns| time_ns > opens_ns)
    }

    /// What of the time between two instants is in the window.
    fn inside(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.saturating_sub(from_ns.max(self.opens_ns.unwrap_or(0)))
    }

    /// Task on a CPU after the event at `position`; `None` while unknown.
    fn current(&self, cpu: CpuId, position: usize) -> Option<TaskId> {
        let switches = self.events[..=position].iter().rev().filter(|event| event.cpu == cpu);
        let last = switches.filter_map(|event| match event.kind {
            EventKind::Switch { next, .. } => Some(next),
            EventKind::Foreign { .. } => Some(TaskId::IDLE),
            _ => None,
        });
        let plugged = |event: &Event| event.cpu == cpu && matches!(event.kind, EventKind::Hotplug { .. });
        let known = self.events[..=position].iter().any(plugged).then_some(TaskId::IDLE);
        last.into_iter().next().or(known).or(self.idle_at_start.then_some(TaskId::IDLE))
    }

    /// Whether a CPU runs a thread that is no task after the event at `position`.
    fn foreign(&self, cpu: CpuId, position: usize) -> bool {
        let last =
            self.events[..=position].iter().rev().filter(|event| event.cpu == cpu).find_map(|event| match event.kind {
                EventKind::Switch { .. } => Some(false),
                EventKind::Foreign { thread } => Some(thread.is_some()),
                _ => None,
            });
        last.unwrap_or(false)
    }

    /// Whether a CPU is offline after the event at `position`.
    fn offline(&self, cpu: CpuId, position: usize) -> bool {
        let last =
            self.events[..=position].iter().rev().filter(|event| event.cpu == cpu).find_map(|event| match event.kind {
                EventKind::Hotplug { online } => Some(!online),
                _ => None,
            });
        last.unwrap_or(false)
    }

    /// Whether a CPU that is online runs nothing after the event at `position`, as far as that is known.
    fn idle(&self, cpu: CpuId, position: usize) -> bool {
        let nobody = self.current(cpu, position) == Some(TaskId::IDLE) && !self.foreign(cpu, position);
        nobody && !self.offline(cpu, position)
    }

    /// Index of the restriction a task has after the event at `position`.
    fn restriction(&self, task: TaskId, position: usize) -> usize {
        let last = self.events[..=position].iter().rev().find_map(|event| match event.kind {
            EventKind::Affinity { task: concerned, restriction } if concerned == task => Some(restriction as usize),
            _ => None,
        });
        last.unwrap_or(0)
    }

    /// Follows one task through the trace. Whether it starts on an idle CPU needs all queues and is filled in later.
    fn history(&self, task: TaskId) -> TaskHistory {
        let mut history = TaskHistory::default();
        // Runnable since then, and whether after a preemption; runnable without knowing since when.
        let mut waiting: Option<(u64, bool)> = None;
        let mut sleeping_or_unknown = true;
        // Created, and not woken yet.
        let mut new = false;
        let mut woken: Option<u64> = None;
        let mut slice: Option<(CpuId, usize)> = None;
        let mut queue: Option<(CpuId, usize)> = None;
        let mut left: Option<(u64, CpuId)> = None;
        // What keeps it from running; if it was queued, there. Its own reservation is part of the wait of a woken task.
        let mut throttled: Option<Throttler> = None;
        let goes_on = |throttled: Option<Throttler>, waiting: Option<(u64, bool)>| match throttled {
            None => true,
            Some(Throttler::Quota) => false,
            Some(Throttler::Reservation) => waiting.is_some_and(|(_, preempted)| !preempted),
        };
        let mut kept_on: Option<CpuId> = None;
        let close = |open: &mut Option<(CpuId, usize)>, to: usize, list: &mut Vec<StateInterval>| {
            if let Some((cpu, from)) = open.take() {
                list.push(StateInterval { cpu, from, to, starting_to: 0 });
            }
        };
        for (position, event) in self.events.iter().enumerate() {
            let now = event.time_ns;
            let counts = self.counts(now);
            match event.kind {
                EventKind::Fork { child, .. } if child == task => (new, sleeping_or_unknown) = (true, false),
                EventKind::Waking { task: of, .. } if of == task && sleeping_or_unknown => {
                    waiting = Some((now, false));
                    woken = Some(now);
                    sleeping_or_unknown = false;
                }
                EventKind::Wakeup { task: woken, .. }
                    if woken == task && slice.is_none() && queue.is_none() && kept_on.is_none() =>
                {
                    if throttled.is_some() {
                        kept_on = Some(event.cpu);
                    } else {
                        queue = Some((event.cpu, position));
                    }
                    waiting = if std::mem::take(&mut new) { Some((now, false)) } else { waiting };
                    sleeping_or_unknown = false;
                }
                EventKind::Migrate { task: moved, from, to, .. } if moved == task => {
                    history.events.extend(counts.then(|| self.machine.relation(from, to)));
                    if queue.is_some() {
                        let preempted = waiting.is_some_and(|(_, preempted)| preempted);
                        history.after_preemption += u64::from(counts && preempted);
                        close(&mut queue, position, &mut history.queued);
                        queue = Some((to, position));
                    }
                    kept_on = kept_on.map(|_| to);
                }
                EventKind::Throttle { task: of, throttled: now_throttled } if of == task => {
                    match (throttled.is_some(), now_throttled.is_some()) {
                        (false, true) => {
                            kept_on = queue.map(|(cpu, _)| cpu);
                            close(&mut queue, position, &mut history.queued);
                        }
                        (true, false) => {
                            let wait_goes_on = goes_on(throttled, waiting);
                            waiting =
                                if wait_goes_on { waiting } else { waiting.map(|(_, preempted)| (now, preempted)) };
                            queue = kept_on.take().map(|cpu| (cpu, position));
                        }
                        _ => {}
                    }
                    throttled = now_throttled;
                }
                EventKind::Exit { task: ended } if ended == task && slice.is_none() => {
                    let waits = goes_on(throttled, waiting) && (waiting.is_some() || queue.is_some());
                    history.abandoned += u64::from(counts && waits);
                    (waiting, kept_on) = (None, None);
                    close(&mut queue, position, &mut history.queued);
                }
                EventKind::Switch { next, .. } if next == task => {
                    if let Some((since, preempted)) = waiting.take() {
                        let waits = if preempted { &mut history.preempts } else { &mut history.wakeups };
                        waits.extend(self.counts(since).then_some(now - since));
                        history.delay_ns += self.inside(since, now);
                    }
                    if let Some((since, old)) = left {
                        history.off_cpu.extend(self.counts(since).then_some(now - since));
                        history.off_cpu_ns += self.inside(since, now);
                        if counts && old != event.cpu {
                            history.ran.push(self.machine.relation(old, event.cpu));
                        }
                    }
                    close(&mut queue, position, &mut history.queued);
                    (kept_on, new) = (None, false);
                    slice = Some((event.cpu, position));
                    sleeping_or_unknown = false;
                }
                EventKind::Switch { prev, prev_state, .. } if prev == task => {
                    if let Some((cpu, from)) = slice {
                        history.slices.extend(self.counts(self.time(from)).then(|| now - self.time(from)));
                        let ran = self.inside(self.time(from), now);
                        *history.llc_ns.entry(self.machine.llc_of(cpu).0).or_default() += ran;
                    }
                    close(&mut slice, position, &mut history.running);
                    // Only where the window opened in the middle: a wakeup of a task that was running all the time.
                    (waiting, kept_on) = (None, None);
                    close(&mut queue, position, &mut history.queued);
                    left = Some((now, event.cpu));
                    sleeping_or_unknown = prev_state == PrevState::Sleeping;
                    history.voluntary += u64::from(counts && prev_state == PrevState::Sleeping);
                    if prev_state == PrevState::Sleeping {
                        history
                            .responses
                            .extend(woken.take().filter(|since| self.counts(*since)).map(|since| now - since));
                    }
                    if prev_state == PrevState::Runnable {
                        history.involuntary += u64::from(counts);
                        waiting = Some((now, true));
                        if throttled.is_some() {
                            kept_on = Some(event.cpu);
                        } else {
                            queue = Some((event.cpu, position));
                        }
                    }
                }
                _ => {}
            }
        }
        history.censored_wait =
            waiting.filter(|_| goes_on(throttled, waiting)).map(|(since, preempted)| (preempted, self.end_ns - since));
        if let Some((cpu, from)) = slice {
            let ran = self.end_ns - self.time(from);
            history.censored_slice = Some(ran);
            let ran = self.inside(self.time(from), self.end_ns);
            *history.llc_ns.entry(self.machine.llc_of(cpu).0).or_default() += ran;
        }
        let last = self.events.len();
        close(&mut slice, last, &mut history.running);
        close(&mut queue, last, &mut history.queued);
        history
    }

    /// The first task queued on an idle CPU with an empty queue starts there, until the CPU switches.
    fn mark_starting(&self, histories: &mut [TaskHistory]) {
        let all: Vec<StateInterval> = histories.iter().flat_map(|history| history.queued.clone()).collect();
        for interval in histories.iter_mut().flat_map(|history| &mut history.queued) {
            let (cpu, from) = (interval.cpu, interval.from);
            let idle = match from.checked_sub(1) {
                Some(before) => self.idle(cpu, before),
                None => self.idle_at_start,
            };
            let empty = !all.iter().any(|other| other.cpu == cpu && other.from < from && from <= other.to);
            let switch = |position: &usize| {
                let goes = self.events[*position].kind == EventKind::Hotplug { online: false };
                self.events[*position].cpu == cpu && (goes || self.is_switch(*position) || self.foreign(cpu, *position))
            };
            // A preempted task is queued by the switch that makes the CPU do something else.
            if idle && empty && !self.is_switch(from) {
                interval.starting_to = (from..self.events.len()).find(switch).unwrap_or(self.events.len());
            }
        }
    }

    fn is_switch(&self, position: usize) -> bool {
        matches!(self.events[position].kind, EventKind::Switch { .. })
    }

    /// Whether after the event at `position` some CPU is idle that some waiting task may use.
    fn violates(&self, histories: &[TaskHistory], position: usize) -> bool {
        let queued = || histories.iter().flat_map(|history| &history.queued);
        let starts_on = |cpu| queued().any(|interval| interval.cpu == cpu && interval.starts(position));
        let idle: Vec<CpuId> =
            (self.machine.cpus()).filter(|cpu| self.idle(*cpu, position) && !starts_on(*cpu)).collect();
        histories.iter().enumerate().any(|(task, history)| {
            let waits = history.queued.iter().any(|interval| interval.covers(position) && !interval.starts(position));
            let set = &self.tables.restrictions[self.restriction(TaskId(task as u32), position)];
            waits && idle.iter().any(|cpu| set.contains(*cpu))
        })
    }
}

fn histogram(values: impl Iterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::new();
    values.for_each(|value| histogram.record(value));
    histogram
}

/// Compares everything the sink says about these events with the intervals.
fn check(
    machine: &Machine,
    tables: &RunTables,
    events: &[Event],
    (start, warm_up_ns): (Start, u64),
    end_ns: u64,
) -> Result<Metrics, TestCaseError> {
    let mut counters = Counters::new(machine, tables, start).with_warm_up(warm_up_ns);
    let opens_ns = (warm_up_ns > 0).then(|| counters.start_ns() + warm_up_ns);
    let start_ns = opens_ns.unwrap_or(counters.start_ns());
    for batch in events.chunks(7) {
        counters.events(batch).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
    let metrics = counters.metrics(end_ns, tables, &[]);
    let idle_at_start = matches!(start, Start::Idle { .. });
    let reference = Reference { machine, tables, events, idle_at_start, opens_ns, end_ns };
    let mut histories: Vec<TaskHistory> =
        (0..counters.tasks.len() as u32).map(|task| reference.history(TaskId(task))).collect();
    reference.mark_starting(&mut histories);

    let totals = &metrics.totals;
    let all = |list: fn(&TaskHistory) -> &Vec<u64>| histogram(histories.iter().flat_map(list).copied());
    prop_assert_eq!(&totals.wakeup_latency.histogram, &all(|h| &h.wakeups));
    prop_assert_eq!(&totals.preempt_wait.histogram, &all(|h| &h.preempts));
    prop_assert_eq!(&totals.off_cpu.histogram, &all(|h| &h.off_cpu));
    prop_assert_eq!(&totals.slice.histogram, &all(|h| &h.slices));
    prop_assert_eq!(&totals.response.histogram, &all(|h| &h.responses));
    let delays = histories.iter().flat_map(|h| h.wakeups.iter().chain(&h.preempts)).copied();
    prop_assert_eq!(&totals.run_delay.histogram, &histogram(delays));
    let sum = |figure: fn(&TaskHistory) -> u64| histories.iter().map(figure).sum::<u64>();
    prop_assert_eq!(totals.voluntary_switches, sum(|h| h.voluntary));
    prop_assert_eq!(totals.involuntary_switches, sum(|h| h.involuntary));
    prop_assert_eq!(totals.migrations_after_preemption, sum(|h| h.after_preemption));
    prop_assert_eq!(totals.censored.abandoned_waits, sum(|h| h.abandoned));
    let censored: Vec<(bool, u64)> = histories.iter().filter_map(|h| h.censored_wait).collect();
    for (waits, preempted) in [(&totals.censored.wakeup, false), (&totals.censored.preempt, true)] {
        let expected: Vec<u64> = censored.iter().filter(|(p, _)| *p == preempted).map(|(_, ns)| *ns).collect();
        prop_assert_eq!((waits.count, waits.sum_ns), (expected.len() as u64, expected.iter().sum::<u64>()));
    }
    let open: Vec<u64> = histories.iter().filter_map(|h| h.censored_slice).collect();
    prop_assert_eq!(
        (totals.censored.slices.count, totals.censored.slices.sum_ns),
        (open.len() as u64, open.iter().sum())
    );
    for (relation, count) in &totals.migrations_ran.by_relation {
        let expected = histories.iter().flat_map(|h| &h.ran).filter(|r| *r == relation).count() as u64;
        prop_assert_eq!(*count, expected, "ran {:?}", relation);
    }
    for (relation, count) in &totals.migrations_event.by_relation {
        let expected = histories.iter().flat_map(|h| &h.events).filter(|r| *r == relation).count() as u64;
        prop_assert_eq!(*count, expected, "event {:?}", relation);
    }
    for task in &metrics.tasks {
        let history = &histories[task.id.index()];
        let llc_ns: BTreeMap<u32, u64> = task.llc_run_ns.iter().map(|(llc, ns)| (llc.0, *ns)).collect();
        let expected = history.llc_ns.iter().filter(|(_, ns)| **ns > 0).map(|(llc, ns)| (*llc, *ns)).collect();
        prop_assert_eq!(llc_ns, expected, "residency of {:?}", task.id);
        prop_assert_eq!(task.run_ns, history.llc_ns.values().sum::<u64>());
        prop_assert_eq!(task.node_run_ns.values().sum::<u64>(), task.run_ns);
        prop_assert_eq!(task.wakeup_latency.sum_ns, history.wakeups.iter().sum::<u64>());
        let (responses, longest) = (history.responses.len() as u64, history.responses.iter().max().copied());
        let of_response = (task.response.count, task.response.sum_ns, task.response.max_ns);
        prop_assert_eq!(of_response, (responses, history.responses.iter().sum::<u64>(), longest.unwrap_or(0)));
        prop_assert_eq!(task.preempt_wait.max_ns, history.preempts.iter().max().copied().unwrap_or(0));
        prop_assert_eq!(task.cross_llc_ran, history.ran.iter().filter(|r| **r >= Relation::SameNode).count() as u64);
        prop_assert_eq!(task.cross_node_ran, history.ran.iter().filter(|r| **r >= Relation::SameSocket).count() as u64);
        prop_assert_eq!(task.migrations_event, history.events.len() as u64);
        prop_assert_eq!(task.slices, history.slices.len() as u64);
        prop_assert_eq!((task.run_delay_ns, task.off_cpu_ns), (history.delay_ns, history.off_cpu_ns), "{:?}", task.id);
    }
    check_over_time(&reference, &histories, &metrics, start_ns)?;
    Ok(metrics)
}

/// The metrics that weigh states by time, event by event.
fn check_over_time(
    reference: &Reference<'_>,
    histories: &[TaskHistory],
    metrics: &Metrics,
    start_ns: u64,
) -> Result<(), TestCaseError> {
    let events = reference.events;
    let cpus = reference.machine.cpu_count();
    let [mut busy, mut foreign, mut idle, mut offline, mut length] = [0; 5].map(|zero: u64| vec![zero; cpus]);
    let mut violation = 0;
    let lead = reference.time(0).saturating_sub(start_ns);
    if reference.idle_at_start {
        idle.iter_mut().for_each(|ns| *ns += lead);
    }
    for (position, event) in events.iter().enumerate() {
        let elapsed = reference.inside(event.time_ns, reference.time(position + 1));
        if elapsed == 0 {
            continue;
        }
        violation += if reference.violates(histories, position) { elapsed } else { 0 };
        for cpu in reference.machine.cpus() {
            let Some(current) = reference.current(cpu, position) else { continue };
            let queued =
                histories.iter().flat_map(|h| &h.queued).filter(|i| i.cpu == cpu && i.covers(position)).count();
            length[cpu.index()] += (queued as u64 + u64::from(!current.is_idle())) * elapsed;
            let time = match (current.is_idle(), reference.foreign(cpu, position)) {
                (true, true) => &mut foreign,
                (true, false) if reference.offline(cpu, position) => &mut offline,
                (true, false) => &mut idle,
                (false, _) => &mut busy,
            };
            time[cpu.index()] += elapsed;
        }
    }
    prop_assert_eq!(metrics.totals.work_conservation_violation_ns, violation);
    for cpu in &metrics.cpus {
        let index = cpu.id.index();
        let times = [cpu.busy_ns, cpu.foreign_ns, cpu.idle_ns, cpu.offline_ns];
        prop_assert_eq!(times, [&busy, &foreign, &idle, &offline].map(|times| times[index]), "{}", cpu.id);
        let observed = busy[index] + foreign[index] + idle[index];
        let switch = |event: &&Event| event.cpu == cpu.id && matches!(event.kind, EventKind::Switch { .. });
        let switches = events.iter().filter(switch).filter(|event| reference.counts(event.time_ns)).count();
        prop_assert_eq!(cpu.switches, switches as u64);
        prop_assert_eq!(cpu.unobserved_ns, metrics.window_ns - observed - offline[index]);
        let mean = (observed > 0).then(|| length[index] as f64 / observed as f64);
        prop_assert_eq!(cpu.runqueue_length_mean, mean);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streaming_agrees_with_intervals_on_simulated_runs(seed: u64, steps in 1..250_usize, tasks in 1..20_usize, tail in 0..2000_u64) {
        let run = RandomRun::new(seed, steps, tasks);
        let end_ns = run.events.last().map_or(0, |event| event.time_ns) + tail;
        let metrics = check(&run.machine, &run.tables, &run.events, (Start::Idle { time_ns: 0 }, 0), end_ns)?;
        prop_assert_eq!(metrics.totals.unexpected_events, 0);
        prop_assert_eq!(metrics.totals.unobserved_ns, 0);
        let run_ns: u64 = metrics.tasks.iter().map(|task| task.run_ns).sum();
        prop_assert_eq!(run_ns, metrics.totals.busy_ns);
    }

    #[test]
    fn streaming_agrees_with_intervals_when_the_window_opens_in_the_middle(seed: u64, steps in 20..250_usize, cut in 0..200_usize) {
        let run = RandomRun::new(seed, steps, 12);
        let events = &run.events[cut.min(run.events.len())..];
        let start_ns = events.first().map_or(0, |event| event.time_ns).saturating_sub(100);
        let end_ns = events.last().map_or(start_ns, |event| event.time_ns) + 500;
        check(&run.machine, &run.tables, events, (Start::Unobserved { time_ns: start_ns }, 0), end_ns)?;
    }

    #[test]
    fn streaming_agrees_with_intervals_behind_a_warm_up(seed: u64, steps in 1..250_usize, tasks in 1..20_usize, tail in 1..2000_u64, part in 0.0..1.0_f64) {
        let run = RandomRun::new(seed, steps, tasks);
        let end_ns = run.events.last().map_or(0, |event| event.time_ns) + tail;
        // At an event's instant as often as between two.
        let between = (part * end_ns as f64) as u64;
        let at = run.events.get((part * run.events.len() as f64) as usize).map_or(between, |event| event.time_ns);
        for warm_up_ns in [between, at] {
            let metrics = check(&run.machine, &run.tables, &run.events, (Start::Idle { time_ns: 0 }, warm_up_ns), end_ns)?;
            prop_assert_eq!(metrics.window_ns, end_ns - warm_up_ns);
            prop_assert_eq!(metrics.totals.unexpected_events, 0);
            let run_ns: u64 = metrics.tasks.iter().map(|task| task.run_ns).sum();
            prop_assert_eq!(run_ns, metrics.totals.busy_ns);
            check(&run.machine, &run.tables, &run.events, (Start::Unobserved { time_ns: 0 }, warm_up_ns), end_ns)?;
        }
    }
}
