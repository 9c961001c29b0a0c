//! What a trial is asked beside its usual measures: things that are about one instant, which no metric of a whole run
//! says.

use std::io;

use serde::{Deserialize, Serialize};
use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind, Sink};

/// Something to look at during a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// How many tasks are assigned to each CPU, running or not, at an instant of the run. Gives the measures
    /// `tasks_on_cpu0_at_…ms`, `tasks_per_cpu_least_at_…ms` and `…_most_at_…ms` over all CPUs, and
    /// `tasks_per_llc_most_at_…ms` over all LLCs.
    TasksPerCpu {
        /// When, counted from the start of the run; a whole number of milliseconds.
        at_ms: u64,
    },
    /// How long it takes from an instant on until the numbers of tasks assigned to the CPUs differ by no more than `within`. Gives
    /// the measure `tasks_even_after_…ms`, in nanoseconds; no value if that never is.
    Even {
        /// From when on, counted from the start of the run.
        from_ms: u64,
        /// Largest difference of any two CPUs.
        within: u32,
    },
    /// How often a task ran on another CPU than before, within a virtual LLC and from one to another: groups of so many CPUs with
    /// consecutive numbers, as schedulers split large LLCs. Gives the measures `migrations_ran_within_…_cpus` and
    /// `migrations_ran_across_…_cpus`, and as a histogram how many tasks went from one to another how often:
    /// `tasks_crossing_…_cpus_0`, `…_1` (1 to 9 times), `…_10`, `…_100` and `…_1000` (1000 times or more).
    VirtualLlcs {
        /// CPUs of each; 1 or more.
        cpus: u32,
    },
}

/// Least numbers of crossings of each bar of a histogram.
const CROSSINGS: [u32; 5] = [0, 1, 10, 100, 1000];

impl Observation {
    /// What its measures are about, in the order of a histogram: names with a title each. None for instants.
    #[must_use]
    pub fn histogram(&self) -> Vec<(String, String)> {
        let Self::VirtualLlcs { cpus } = self else { return Vec::new() };
        let name = |low: &u32| format!("tasks_crossing_{cpus}_cpus_{low}");
        let title = |low: &u32| match low {
            0 => "never".to_owned(),
            1000 => "1000 times or more".to_owned(),
            low => format!("{low} to {} times", 10 * low - 1),
        };
        CROSSINGS.iter().map(|low| (name(low), title(low))).collect()
    }
}

/// Virtual LLCs of so many CPUs.
struct Watched {
    cpus: u32,
    /// Moves within and across.
    moves: [u64; 2],
    /// Moves across of each task that ran, by task id.
    across: Vec<Option<u32>>,
}

/// Follows where tasks are, and answers the observations.
pub(crate) struct Observer {
    /// In order of time.
    pending: Vec<Observation>,
    /// CPU of each task that exists, by task id.
    places: Vec<Option<CpuId>>,
    /// LLC of each CPU.
    llcs: Vec<usize>,
    /// Number of tasks on each CPU.
    counts: Vec<u32>,
    /// Waits for evenness that have begun and not ended: when, and how even.
    uneven: Vec<(u64, u32)>,
    /// Virtual LLCs that are watched.
    virtual_llcs: Vec<Watched>,
    /// CPU that each task ran on last, by task id.
    ran: Vec<Option<CpuId>>,
    measures: Vec<(String, f64)>,
}

impl Observer {
    /// An observer of a machine whose CPUs have these LLCs.
    pub(crate) fn new(observations: &[Observation], llcs: Vec<usize>) -> Self {
        let (watched, mut pending): (Vec<Observation>, Vec<Observation>) =
            observations.iter().partition(|observation| matches!(observation, Observation::VirtualLlcs { .. }));
        let virtual_llcs = watched
            .iter()
            .filter_map(|observation| match observation {
                Observation::VirtualLlcs { cpus } => {
                    Some(Watched { cpus: (*cpus).max(1), moves: [0; 2], across: Vec::new() })
                }
                _ => None,
            })
            .collect();
        pending.sort_by_key(instant_ns);
        pending.reverse();
        let counts = vec![0; llcs.len()];
        Self {
            pending,
            places: Vec::new(),
            llcs,
            counts,
            uneven: Vec::new(),
            virtual_llcs,
            ran: Vec::new(),
            measures: Vec::new(),
        }
    }

    /// What was seen of the instants up to the end of the run. Those after it have no value.
    pub(crate) fn measures(mut self, end_ns: u64) -> Vec<(String, f64)> {
        self.answer_before(end_ns.saturating_add(1));
        for Watched { cpus, moves, across } in self.virtual_llcs {
            for (what, count) in ["within", "across"].into_iter().zip(moves) {
                self.measures.push((format!("migrations_ran_{what}_{cpus}_cpus"), count as f64));
            }
            let bar = |count: u32| CROSSINGS.iter().rposition(|low| *low <= count).unwrap_or(0);
            let mut bars = [0_u32; CROSSINGS.len()];
            across.into_iter().flatten().for_each(|count| bars[bar(count)] += 1);
            let names = Observation::VirtualLlcs { cpus }.histogram();
            self.measures.extend(names.into_iter().zip(bars).map(|((name, _), count)| (name, f64::from(count))));
        }
        self.measures
    }

    /// Answers what is about instants before `time_ns`, from where tasks are now.
    fn answer_before(&mut self, time_ns: u64) {
        while let Some(observation) = self.pending.pop_if(|last| instant_ns(last) < time_ns) {
            let at_ms = match observation {
                Observation::TasksPerCpu { at_ms } => at_ms,
                Observation::Even { from_ms, within } => {
                    self.uneven.push((from_ms, within));
                    self.answer_even(instant_ns(&observation));
                    continue;
                }
                // Not about an instant.
                Observation::VirtualLlcs { .. } => continue,
            };
            let mut by_llc = vec![0_u32; self.llcs.iter().max().map_or(0, |llc| llc + 1)];
            for (count, llc) in self.counts.iter().zip(&self.llcs) {
                by_llc[*llc] += count;
            }
            let (least, most) = self.range();
            let of_llc = by_llc.into_iter().max().unwrap_or(0);
            for (what, count) in [
                ("tasks_on_cpu0", self.counts[0]),
                ("tasks_per_cpu_least", least),
                ("tasks_per_cpu_most", most),
                ("tasks_per_llc_most", of_llc),
            ] {
                self.measures.push((format!("{what}_at_{at_ms}ms"), f64::from(count)));
            }
        }
    }

    /// Fewest and most tasks on a CPU.
    fn range(&self) -> (u32, u32) {
        let least = self.counts.iter().min().copied().unwrap_or(0);
        (least, self.counts.iter().max().copied().unwrap_or(0))
    }

    /// Ends the waits for evenness that are over now.
    fn answer_even(&mut self, now_ns: u64) {
        let (least, most) = self.range();
        let measures = &mut self.measures;
        self.uneven.retain(|&(from_ms, within)| {
            let goes_on = most - least > within;
            if !goes_on {
                let waited_ns = now_ns.saturating_sub(from_ms.saturating_mul(1_000_000));
                measures.push((format!("tasks_even_after_{from_ms}ms"), waited_ns as f64));
            }
            goes_on
        });
    }

    fn runs(&mut self, task: usize, cpu: CpuId) {
        if self.virtual_llcs.is_empty() {
            return;
        }
        if self.ran.len() <= task {
            self.ran.resize(task + 1, None);
        }
        let before = self.ran[task].replace(cpu);
        for Watched { cpus, moves, across } in &mut self.virtual_llcs {
            if across.len() <= task {
                across.resize(task + 1, None);
            }
            let crossings = across[task].get_or_insert(0);
            let Some(before) = before.filter(|before| *before != cpu) else { continue };
            let crosses = before.0 / *cpus != cpu.0 / *cpus;
            moves[usize::from(crosses)] += 1;
            *crossings += u32::from(crosses);
        }
    }

    fn set(&mut self, task: usize, place: Option<CpuId>, now_ns: u64) {
        if self.places.len() <= task {
            self.places.resize(task + 1, None);
        }
        let before = std::mem::replace(&mut self.places[task], place);
        if before == place {
            return;
        }
        if let Some(cpu) = before {
            self.counts[cpu.index()] -= 1;
        }
        if let Some(cpu) = place {
            self.counts[cpu.index()] += 1;
        }
        if !self.uneven.is_empty() {
            self.answer_even(now_ns);
        }
    }
}

fn instant_ns(observation: &Observation) -> u64 {
    match observation {
        Observation::TasksPerCpu { at_ms: ms } | Observation::Even { from_ms: ms, .. } => ms.saturating_mul(1_000_000),
        Observation::VirtualLlcs { .. } => 0,
    }
}

impl Sink for Observer {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            self.answer_before(event.time_ns);
            match event.kind {
                EventKind::Migrate { task, to, .. } => self.set(task.index(), Some(to), event.time_ns),
                EventKind::Switch { next, .. } if !next.is_idle() => {
                    self.runs(next.index(), event.cpu);
                    self.set(next.index(), Some(event.cpu), event.time_ns)
                }
                EventKind::Wakeup { task } => self.set(task.index(), Some(event.cpu), event.time_ns),
                EventKind::Exit { task } => self.set(task.index(), None, event.time_ns),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::{MigrationKind, PrevState, TaskId};

    #[test]
    fn tasks_are_counted_where_they_are_at_the_instant() {
        let at = |at_ms| Observation::TasksPerCpu { at_ms };
        let mut observer = Observer::new(&[at(3), at(1), at(99)], vec![0, 0]);
        let event = |ms: u64, kind| Event { time_ns: ms * 1_000_000, cpu: CpuId(0), kind };
        let wakeup = |task| EventKind::Wakeup { task: TaskId(task) };
        let migrate = |task| EventKind::Migrate {
            task: TaskId(task),
            from: CpuId(0),
            to: CpuId(1),
            kind: MigrationKind::Balance,
        };
        observer
            .events(&[event(0, wakeup(0)), event(0, wakeup(1)), event(1, migrate(1)), event(2, wakeup(2))])
            .unwrap();
        observer.events(&[event(3, migrate(0)), event(4, EventKind::Exit { task: TaskId(1) })]).unwrap();
        let measures = observer.measures(50_000_000);
        let value = |name: &str| measures.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        // What happens at the instant itself counts.
        assert_eq!((value("tasks_on_cpu0_at_1ms"), value("tasks_per_cpu_most_at_1ms")), (Some(1.0), Some(1.0)));
        assert_eq!((value("tasks_on_cpu0_at_3ms"), value("tasks_per_cpu_most_at_3ms")), (Some(1.0), Some(2.0)));
        assert_eq!(value("tasks_per_llc_most_at_3ms"), Some(3.0));
        assert_eq!(value("tasks_on_cpu0_at_99ms"), None, "the run ended before");
    }

    #[test]
    fn moves_are_counted_within_virtual_llcs_and_across() {
        let mut observer = Observer::new(&[Observation::VirtualLlcs { cpus: 4 }], vec![0; 8]);
        let on = |cpu: u32, task: u32| Event {
            time_ns: 0,
            cpu: CpuId(cpu),
            kind: EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Runnable, next: TaskId(task) },
        };
        observer.events(&[on(0, 0), on(3, 0), on(3, 0), on(4, 0), on(7, 1), on(5, 0), on(0, 1)]).unwrap();
        let measures = observer.measures(1);
        let expected = [
            ("migrations_ran_within_4_cpus", 2.0),
            ("migrations_ran_across_4_cpus", 2.0),
            // Task 0 crossed once, task 1 once, and nobody stayed.
            ("tasks_crossing_4_cpus_0", 0.0),
            ("tasks_crossing_4_cpus_1", 2.0),
            ("tasks_crossing_4_cpus_10", 0.0),
            ("tasks_crossing_4_cpus_100", 0.0),
            ("tasks_crossing_4_cpus_1000", 0.0),
        ];
        assert_eq!(measures, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn evenness_is_waited_for_from_an_instant_on() {
        let even = |from_ms, within| Observation::Even { from_ms, within };
        let mut observer = Observer::new(&[even(0, 0), even(2, 0), even(2, 1), even(4, 0)], vec![0, 0]);
        let event = |ms: u64, kind| Event { time_ns: ms * 1_000_000, cpu: CpuId(0), kind };
        for (ms, task) in [(1, 0), (1, 1), (3, 2), (3, 3)] {
            observer.events(&[event(ms, EventKind::Wakeup { task: TaskId(task) })]).unwrap();
        }
        for (ms, task) in [(5, 0), (7, 1)] {
            let (from, to) = (CpuId(0), CpuId(1));
            let moved = EventKind::Migrate { task: TaskId(task), from, to, kind: MigrationKind::Balance };
            observer.events(&[event(ms, moved)]).unwrap();
        }
        let measures = observer.measures(50_000_000);
        let values: Vec<(&str, f64)> = measures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        // Nobody is there at the start, so it is even.
        let of =
            |name: &str| values.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect::<Vec<_>>();
        assert_eq!(of("tasks_even_after_0ms"), [0.0]);
        assert_eq!(of("tasks_even_after_2ms"), [5e6, 5e6], "4 and 0, 3 and 1, 2 and 2");
        assert_eq!(of("tasks_even_after_4ms"), [3e6]);
    }
}
