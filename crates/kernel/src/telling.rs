//! What a run tells: events of the trace, decisions and what moves rest on, overhead; and the counts for its result.

use warmcore_topology::CpuId;
use warmcore_trace::{
    BalanceDetail, DecisionId, DecisionTable, Event, EventKind, GroupCounters, OverheadKind, PlaceReason, SearchStart,
    SearchStep, Sink, TaskId, Throttler,
};

use crate::core::Core;

/// Shortest time between two reports of a CPU's overhead. Reports come with ticks and at the end: an event per charge
/// would double the trace.
const OVERHEAD_REPORT_NS: u64 = 100_000_000;

/// Collects events and hands them on in batches, so that a sink costs one dynamic call per thousands of events.
pub(crate) struct Tracer<'a> {
    sink: Option<&'a mut dyn Sink>,
    pub(crate) batch: Vec<Event>,
}

const BATCH: usize = 2048;

impl<'a> Tracer<'a> {
    pub fn new(sink: Option<&'a mut dyn Sink>) -> Self {
        let capacity = if sink.is_some() { BATCH } else { 0 };
        Self { sink, batch: Vec::with_capacity(capacity) }
    }

    #[inline]
    pub fn full(&self) -> bool {
        self.batch.len() >= BATCH - 256
    }

    /// A batch that the sink refuses is not handed over again: it may have taken part of it.
    pub fn flush(&mut self) -> std::io::Result<()> {
        let taken = self.sink.as_mut().map_or(Ok(()), |sink| sink.events(&self.batch));
        self.batch.clear();
        taken
    }
}

impl Core<'_> {
    /// At a CPU's tick: tells the trace what it has spent since the last report, if that is long ago.
    #[inline]
    pub(crate) fn tell_overhead_at_tick(&mut self, cpu: CpuId) {
        if self.now_ns - self.cpus[cpu.index()].overhead_told_at_ns >= OVERHEAD_REPORT_NS {
            self.tell_overhead(cpu);
        }
    }

    /// Tells the trace what a CPU has spent on each kind of overhead since the last report.
    pub(crate) fn tell_overhead(&mut self, cpu: CpuId) {
        self.cpus[cpu.index()].overhead_told_at_ns = self.now_ns;
        for kind in OverheadKind::ALL {
            let state = &mut self.cpus[cpu.index()];
            let spent = state.overhead_ns[kind as usize];
            let told = std::mem::replace(&mut state.overhead_told_ns[kind as usize], spent);
            if spent > told {
                self.emit_on(cpu, EventKind::Overhead { kind, duration_ns: spent - told });
            }
        }
    }

    /// The kinds of decisions of this run. Schedulers add theirs in [`Scheduler::init`](crate::Scheduler::init); if one stands above
    /// another, each adds its own.
    pub fn decision_table(&mut self) -> &mut DecisionTable {
        &mut self.decisions
    }

    /// Puts a decision of a registered kind into the trace; the kind says what `value` means.
    pub fn decide(&mut self, decision: DecisionId, task: TaskId, value: i64) {
        debug_assert!(self.decisions.contains(decision), "a decision of a kind that was never registered");
        self.emit(EventKind::Decision { decision: decision.0, task, value });
    }

    /// Whether somebody wants to know what moves by load balancers rest on.
    #[inline]
    pub fn wants_balance_details(&self) -> bool {
        self.balance_details
    }

    /// Tells a figure that the move of a task rested on, where that is wanted.
    pub fn balance_detail(&mut self, task: TaskId, detail: BalanceDetail, value: i64) {
        if self.balance_details {
            self.emit(EventKind::BalanceDetail { detail, task, value });
        }
    }

    /// Says why [`Scheduler::select_cpu`](crate::Scheduler::select_cpu) chooses the CPU that it chooses: for the task's next wakeup event.
    #[inline]
    pub fn tell_place(&mut self, task: TaskId, start: SearchStart, step: SearchStep) {
        self.tasks[task.index()].place_reason = Some(PlaceReason { start, step });
    }

    /// Counts a choice of a place, with what it looked at and the time charged for that: for the run's result.
    pub fn count_placement(&mut self, looked_at: u64, cost_ns: u64) {
        let effort = self.placement.get_or_insert_default();
        effort.decisions += 1;
        effort.looked_at += looked_at;
        effort.cost_ns += cost_ns;
    }

    /// A quota or reservation keeps a task from running from now on, or lets it run again. A run in which that may be says so beforehand
    /// ([`Setup::run_tables`](crate::Setup::run_tables)).
    pub fn throttle(&mut self, task: TaskId, throttled: Option<Throttler>) {
        let cpu = self.tasks[task.index()].cpu;
        self.emit_on(cpu, EventKind::Throttle { task, throttled });
    }

    /// Tells what came of a task group's quota so far: for the run's result.
    pub fn count_group(&mut self, group: u32, counters: GroupCounters) {
        self.group_counters.insert(group, counters);
    }

    /// Whether anybody receives events.
    pub(crate) fn is_traced(&self) -> bool {
        self.tracer.sink.is_some()
    }

    #[inline]
    pub(crate) fn emit(&mut self, kind: EventKind) {
        self.emit_on(self.this_cpu, kind);
    }

    #[inline]
    pub(crate) fn emit_on(&mut self, cpu: CpuId, kind: EventKind) {
        if self.tracer.sink.is_none() {
            return;
        }
        if self.hidden > 0 {
            self.emit_shown(cpu, kind);
        } else {
            self.tracer.batch.push(Event { time_ns: self.now_ns, cpu, kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use warmcore_trace::TaskId;

    /// Refuses everything, and counts what it was given.
    struct Closed(usize);

    impl Sink for Closed {
        fn events(&mut self, batch: &[Event]) -> io::Result<()> {
            self.0 += batch.len();
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_sink_that_fails_is_not_given_the_same_events_again() {
        let mut closed = Closed(0);
        let mut tracer = Tracer::new(Some(&mut closed));
        tracer.batch.push(Event { time_ns: 7, cpu: CpuId(0), kind: EventKind::Exit { task: TaskId(0) } });
        assert_eq!(tracer.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let _ = tracer.flush();
        assert_eq!(closed.0, 1);
    }
}
