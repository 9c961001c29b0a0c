//! Slices: who ran where, from when to when, after which delay, and why it stopped. Built from events while they stream
//! by, in memory that depends on the number of tasks alone.
//!
//! Every front end (simulator, recorded traces) and every drawing goes through this one builder. Sums and percentiles of
//! slices are the business of [`metrics`](crate::metrics).

use warmcore_topology::CpuId;

use crate::{Event, EventError, EventKind, PlaceReason, PrevState, TaskId, Throttler};

/// First task id that is refused: far above any run, low enough not to exhaust memory on a damaged trace.
pub(crate) const TASK_LIMIT: u32 = 1 << 22;

warmcore_topology::worded! {
    /// Why a slice ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub enum SliceEnd: name {
        /// The task left still runnable: preempted or yielding.
        Runnable = "runnable",
        /// It fell asleep.
        Sleeping = "sleeping",
        /// It died.
        Dead = "dead",
        /// It did not end: the window closed.
        Open = "open",
    }
}

/// One uninterrupted stay of a task on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The task.
    pub task: TaskId,
    /// The CPU.
    pub cpu: CpuId,
    /// When the task came to the CPU.
    pub start_ns: u64,
    /// When it left, or the end of the window.
    pub end_ns: u64,
    /// Why it left.
    pub end: SliceEnd,
    /// How long it had been runnable before: since its waking, its fork, or its preemption. `None` if that was not
    /// observed.
    pub run_delay_ns: Option<u64>,
    /// Why it was placed there, if it came from a wakeup or its fork and somebody told.
    pub placed: Option<PlaceReason>,
}

#[derive(Clone, Copy)]
enum SliceState {
    Unknown,
    /// Created, and not woken yet.
    New,
    Sleeping,
    Waiting {
        since_ns: Option<u64>,
        /// Not preempted.
        woken: bool,
        placed: Option<PlaceReason>,
    },
    Running {
        cpu: CpuId,
        start_ns: u64,
        run_delay_ns: Option<u64>,
        placed: Option<PlaceReason>,
    },
    Dead,
}

/// Makes slices of events.
#[derive(Clone, Default)]
pub struct SliceBuilder {
    tasks: Vec<SliceState>,
    /// By task: what keeps it from running.
    throttled: Vec<Option<Throttler>>,
    now_ns: u64,
}

impl SliceBuilder {
    /// A builder that knows nothing of any task.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event and returns the slice that it ended, if it ended one.
    ///
    /// Events that contradict earlier ones (which happens where a recorder lost events) do not end a slice: what is not
    /// known from both ends is left out.
    ///
    /// # Errors
    /// An event earlier than the one before it; an id that is no task.
    pub fn push(&mut self, event: &Event) -> Result<Option<Slice>, EventError> {
        if event.time_ns < self.now_ns {
            return Err(EventError::OutOfOrder { event: *event, previous_ns: self.now_ns });
        }
        self.now_ns = event.time_ns;
        let runnable = SliceState::Waiting { since_ns: Some(event.time_ns), woken: true, placed: None };
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                let ended = if prev.is_idle() { None } else { self.leave(event, prev, prev_state)? };
                if !next.is_idle() {
                    self.enter(event, next)?;
                }
                return Ok(ended);
            }
            EventKind::Fork { child, .. } => {
                let doing = self.task(event, child)?;
                if matches!(doing, SliceState::Unknown | SliceState::Sleeping) {
                    *doing = SliceState::New;
                }
            }
            EventKind::Waking { task, .. } => {
                let doing = self.task(event, task)?;
                if matches!(doing, SliceState::Unknown | SliceState::Sleeping) {
                    *doing = runnable;
                }
            }
            EventKind::Wakeup { task, reason } => match self.task(event, task)? {
                doing @ (SliceState::Unknown | SliceState::Sleeping) => {
                    *doing = SliceState::Waiting { since_ns: None, woken: true, placed: reason };
                }
                doing @ SliceState::New => {
                    *doing = SliceState::Waiting { since_ns: Some(event.time_ns), woken: true, placed: reason }
                }
                SliceState::Waiting { placed, .. } => *placed = reason,
                SliceState::Running { .. } | SliceState::Dead => {}
            },
            EventKind::Throttle { task, throttled } => self.throttle(event, task, throttled)?,
            EventKind::Exit { task } => {
                let doing = self.task(event, task)?;
                if !matches!(doing, SliceState::Running { .. }) {
                    *doing = SliceState::Dead;
                }
            }
            EventKind::Migrate { .. }
            | EventKind::Affinity { .. }
            | EventKind::Counter { .. }
            | EventKind::Phase { .. }
            | EventKind::Decision { .. }
            | EventKind::Score { .. }
            | EventKind::BalanceDetail { .. }
            | EventKind::Foreign { .. }
            | EventKind::Hotplug { .. }
            | EventKind::Overhead { .. } => {}
        }
        Ok(None)
    }

    /// The slices that have not ended when the window closes at `end_ns` (or at the last event, if that is later), in
    /// order of tasks.
    pub fn open_slices(&self, end_ns: u64) -> impl Iterator<Item = Slice> + '_ {
        let end_ns = end_ns.max(self.now_ns);
        self.tasks.iter().enumerate().filter_map(move |(index, doing)| match *doing {
            SliceState::Running { cpu, start_ns, run_delay_ns, placed } => {
                let task = TaskId(index as u32);
                Some(Slice { task, cpu, start_ns, end_ns, end: SliceEnd::Open, run_delay_ns, placed })
            }
            _ => None,
        })
    }

    fn leave(&mut self, event: &Event, prev: TaskId, prev_state: PrevState) -> Result<Option<Slice>, EventError> {
        let doing = self.task(event, prev)?;
        let (next_doing, end) = match prev_state {
            PrevState::Runnable => {
                (SliceState::Waiting { since_ns: Some(event.time_ns), woken: false, placed: None }, SliceEnd::Runnable)
            }
            PrevState::Sleeping => (SliceState::Sleeping, SliceEnd::Sleeping),
            PrevState::Dead => (SliceState::Dead, SliceEnd::Dead),
            // Idle leaves as the idle task only: nothing is known of this one.
            PrevState::Idle => {
                *doing = SliceState::Unknown;
                return Ok(None);
            }
        };
        match std::mem::replace(doing, next_doing) {
            SliceState::Running { cpu, start_ns, run_delay_ns, placed } if cpu == event.cpu => {
                Ok(Some(Slice { task: prev, cpu, start_ns, end_ns: event.time_ns, end, run_delay_ns, placed }))
            }
            _ => Ok(None),
        }
    }

    /// The wait of a task that may run again begins then, but for one that was woken while its reservation was used up.
    #[cold]
    fn throttle(&mut self, event: &Event, task: TaskId, throttled: Option<Throttler>) -> Result<(), EventError> {
        self.task(event, task)?;
        if task.index() >= self.throttled.len() {
            self.throttled.resize(task.index() + 1, None);
        }
        let was = std::mem::replace(&mut self.throttled[task.index()], throttled);
        if let SliceState::Waiting { since_ns: Some(since_ns), woken, .. } = &mut self.tasks[task.index()]
            && was.is_some()
            && throttled.is_none()
            && !(*woken && was == Some(Throttler::Reservation))
        {
            *since_ns = event.time_ns;
        }
        Ok(())
    }

    fn enter(&mut self, event: &Event, next: TaskId) -> Result<(), EventError> {
        let doing = self.task(event, next)?;
        let (run_delay_ns, placed) = match *doing {
            SliceState::Waiting { since_ns, placed, .. } => (since_ns.map(|since_ns| event.time_ns - since_ns), placed),
            _ => (None, None),
        };
        *doing = SliceState::Running { cpu: event.cpu, start_ns: event.time_ns, run_delay_ns, placed };
        Ok(())
    }

    fn task(&mut self, event: &Event, task: TaskId) -> Result<&mut SliceState, EventError> {
        if task.0 >= TASK_LIMIT {
            return Err(EventError::NoTask { event: *event, task, limit: TASK_LIMIT });
        }
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, SliceState::Unknown);
        }
        Ok(&mut self.tasks[task.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Counters;
    use crate::random_events::RandomRun;
    use crate::{Histogram, SearchStep, Sink, Start};
    use proptest::prelude::*;

    fn slices(events: &[Event], end_ns: u64) -> Vec<Slice> {
        let mut builder = SliceBuilder::new();
        let mut slices: Vec<Slice> = events.iter().filter_map(|event| builder.push(event).unwrap()).collect();
        slices.extend(builder.open_slices(end_ns));
        slices
    }

    fn event(time_ns: u64, cpu: u32, kind: EventKind) -> Event {
        Event { time_ns, cpu: CpuId(cpu), kind }
    }

    fn switch(time_ns: u64, cpu: u32, prev: TaskId, prev_state: PrevState, next: TaskId) -> Event {
        event(time_ns, cpu, EventKind::Switch { prev, prev_state, next })
    }

    #[test]
    fn a_slice_knows_its_delay_why_it_was_placed_there_and_why_it_ended() {
        let reason = Some(PlaceReason::without_search(SearchStep::OnlyCpu));
        let (a, b) = (TaskId(0), TaskId(1));
        let events = [
            event(0, 0, EventKind::Fork { parent: TaskId::IDLE, child: a }),
            event(5, 2, EventKind::Wakeup { task: a, reason }),
            switch(10, 2, TaskId::IDLE, PrevState::Idle, a),
            event(20, 2, EventKind::Wakeup { task: b, reason: None }),
            switch(30, 2, a, PrevState::Runnable, b),
            switch(50, 2, b, PrevState::Sleeping, a),
        ];
        let slice = |task, start_ns, end_ns, end, run_delay_ns| Slice {
            task,
            cpu: CpuId(2),
            start_ns,
            end_ns,
            end,
            run_delay_ns,
            placed: None,
        };
        let expected = [
            Slice { placed: reason, ..slice(a, 10, 30, SliceEnd::Runnable, Some(5)) },
            slice(b, 30, 50, SliceEnd::Sleeping, None),
            slice(a, 50, 80, SliceEnd::Open, Some(20)),
        ];
        assert_eq!(slices(&events, 80), expected);
    }

    #[test]
    fn a_slice_whose_beginning_or_end_was_lost_is_left_out() {
        let a = TaskId(0);
        let events = [
            switch(10, 1, a, PrevState::Sleeping, TaskId::IDLE),
            switch(20, 1, TaskId::IDLE, PrevState::Idle, a),
            switch(30, 3, a, PrevState::Sleeping, TaskId::IDLE),
        ];
        assert!(slices(&events, 40).is_empty());
    }

    #[test]
    fn impossible_events_are_refused() {
        let mut builder = SliceBuilder::new();
        builder.push(&event(10, 0, EventKind::Exit { task: TaskId(0) })).unwrap();
        let early = builder.push(&event(9, 0, EventKind::Exit { task: TaskId(0) }));
        assert!(matches!(early, Err(EventError::OutOfOrder { .. })));
        let nobody = builder.push(&event(10, 0, EventKind::Exit { task: TaskId::IDLE }));
        assert!(matches!(nobody, Err(EventError::NoTask { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn slices_add_up_to_the_metrics(seed: u64, steps in 1..250_usize, cut in 0..60_usize) {
            let run = RandomRun::new(seed, steps, 15);
            let events = &run.events[cut.min(run.events.len())..];
            let start = if cut == 0 { Start::Idle { time_ns: 0 } } else { Start::Unobserved { time_ns: 0 } };
            let mut counters = Counters::new(&run.machine, &run.tables, start);
            counters.events(events).unwrap();
            let metrics = counters.metrics(0, &run.tables, &[]);

            let (mut lengths, mut delays) = (Histogram::new(), Histogram::new());
            let mut run_ns = vec![0; metrics.tasks.last().map_or(0, |task| task.id.index() + 1)];
            for slice in slices(events, 0) {
                if slice.end != SliceEnd::Open {
                    lengths.record(slice.end_ns - slice.start_ns);
                }
                slice.run_delay_ns.into_iter().for_each(|delay| delays.record(delay));
                run_ns[slice.task.index()] += slice.end_ns - slice.start_ns;
            }
            prop_assert_eq!(&metrics.totals.slice.histogram, &lengths);
            prop_assert_eq!(&metrics.totals.run_delay.histogram, &delays);
            for task in &metrics.tasks {
                prop_assert_eq!(task.run_ns, run_ns[task.id.index()]);
            }
        }
    }
}
