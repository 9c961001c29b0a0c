//! What a trial is asked beside its usual measures: things that are about one instant, which no metric of a whole run
//! says.

use std::io;

use serde::{Deserialize, Serialize};
use warmcore_statistics::Better;
use warmcore_topology::{CpuId, Machine, Relation, VirtualLlcSize, VirtualLlcs};
use warmcore_trace::{Event, EventKind, Sink};

use crate::measures::{Measure, Unit};

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
    /// How often a task ran on another CPU than before, with each LLC divided into virtual ones. Gives the measures
    /// `migrations_ran_same_virtual_llc` and `migrations_ran_other_virtual_llc`, which are what `migrations_ran_same_llc` consists
    /// of; `migrations_ran_between_virtual_llcs`, those and all from LLC to LLC; and as a histogram how many tasks went from one
    /// virtual LLC to another how often: `tasks_crossing_virtual_llcs_0`, `…_1` (1 to 9 times), `…_10`, `…_100` and `…_1000` (1000
    /// times or more).
    VirtualLlcs {
        /// Cores of each.
        cores: VirtualLlcSize,
    },
}

/// Least numbers of crossings of each bar of a histogram.
const CROSSINGS: [u32; 5] = [0, 1, 10, 100, 1000];

/// How many tasks moved between virtual LLCs how often, in the order of a histogram: names of measures with a title each.
pub fn virtual_llc_histogram() -> Vec<(String, String)> {
    let name = |low: &u32| format!("tasks_crossing_virtual_llcs_{low}");
    let title = |low: &u32| match low {
        0 => "never".to_owned(),
        1000 => "1000 times or more".to_owned(),
        low => format!("{low} to {} times", 10 * low - 1),
    };
    CROSSINGS.iter().map(|low| (name(low), title(low))).collect()
}

/// The measures of virtual LLCs, which trials have that were asked for them.
pub(crate) fn virtual_llc_measures() -> impl Iterator<Item = Measure> {
    let measure = |name: String, title: String, unit, definition: &str| Measure {
        optional: true,
        ..Measure::of_outcome(&name, &title, unit, Better::Neither, definition)
    };
    let moves = [
        (
            "same_virtual_llc",
            "within a virtual LLC",
            "consecutive slices of one task on different CPUs of one virtual LLC",
        ),
        (
            "other_virtual_llc",
            "between virtual LLCs of one LLC",
            "consecutive slices of one task in different virtual LLCs of one LLC",
        ),
        (
            "between_virtual_llcs",
            "between virtual LLCs",
            "consecutive slices of one task in different virtual LLCs, whether of one LLC or not",
        ),
    ];
    let moves = moves.map(|(name, title, definition)| {
        measure(format!("migrations_ran_{name}"), format!("migrations (ran) {title}"), Unit::One, definition)
    });
    let crossings = virtual_llc_histogram().into_iter().map(move |(name, times)| {
        let definition = "tasks by how often they ran next in another virtual LLC than before";
        measure(name, format!("tasks that changed their virtual LLC {times}"), Unit::Tasks, definition)
    });
    moves.into_iter().chain(crossings)
}

/// Moves of tasks on a machine whose LLCs are divided.
struct WatchedMoves {
    /// Virtual LLC of each CPU.
    division: VirtualLlcs,
    /// Moves within one LLC: within a virtual one, and from one to another.
    within_llc: [u64; 2],
    /// Moves between virtual LLCs, whatever else they have in common.
    between: u64,
    /// CPU that each task ran on last, and how often it went to another virtual LLC, by task id.
    tasks: Vec<Option<(CpuId, u32)>>,
    /// Moves until then do not count.
    warm_up_ns: u64,
}

impl WatchedMoves {
    fn runs(&mut self, machine: &Machine, (time_ns, cpu): (u64, CpuId), task: usize) {
        if self.tasks.len() <= task {
            self.tasks.resize(task + 1, None);
        }
        let (before, crossings) = self.tasks[task].get_or_insert((cpu, 0));
        if self.warm_up_ns > 0 && time_ns <= self.warm_up_ns {
            *before = cpu;
            return;
        }
        let crosses = self.division.of(*before) != self.division.of(cpu);
        if machine.relation(*before, cpu) == Relation::SameLlc {
            self.within_llc[usize::from(crosses)] += 1;
        }
        self.between += u64::from(crosses);
        *crossings += u32::from(crosses);
        *before = cpu;
    }

    fn measures(self) -> impl Iterator<Item = (String, f64)> {
        let mut bars = [0_u32; CROSSINGS.len()];
        for (_, crossings) in self.tasks.into_iter().flatten() {
            bars[CROSSINGS.iter().rposition(|low| *low <= crossings).unwrap_or(0)] += 1;
        }
        let [same, other] = self.within_llc;
        let moves = [("same_virtual_llc", same), ("other_virtual_llc", other), ("between_virtual_llcs", self.between)];
        let moves = moves.map(|(what, count)| (format!("migrations_ran_{what}"), count as f64));
        let names = virtual_llc_histogram().into_iter().map(|(name, _)| name);
        moves.into_iter().chain(names.zip(bars.map(f64::from)))
    }
}

/// Follows where tasks are, and answers the observations.
pub(crate) struct Observer<'a> {
    machine: &'a Machine,
    /// In order of time.
    pending: Vec<Observation>,
    /// CPU of each task that exists, by task id.
    places: Vec<Option<CpuId>>,
    /// Number of tasks on each CPU.
    counts: Vec<u32>,
    /// Waits for evenness that have begun and not ended: when, and how even.
    uneven: Vec<(u64, u32)>,
    /// Virtual LLCs, if they are watched.
    virtual_llcs: Option<WatchedMoves>,
    measures: Vec<(String, f64)>,
}

impl<'a> Observer<'a> {
    /// An observer of a run on a machine. Of several divisions into virtual LLCs the last one counts.
    pub(crate) fn new(observations: &[Observation], machine: &'a Machine, warm_up_ns: u64) -> Self {
        let (mut pending, mut virtual_llcs) = (Vec::new(), None);
        for observation in observations {
            match observation {
                Observation::VirtualLlcs { cores } => {
                    virtual_llcs = Some(WatchedMoves {
                        division: VirtualLlcs::divide(machine, *cores),
                        within_llc: [0; 2],
                        between: 0,
                        tasks: Vec::new(),
                        warm_up_ns,
                    });
                }
                _ => pending.push(*observation),
            }
        }
        pending.sort_by_key(instant_ns);
        pending.reverse();
        let counts = vec![0; machine.cpu_count()];
        Self { machine, pending, places: Vec::new(), counts, uneven: Vec::new(), virtual_llcs, measures: Vec::new() }
    }

    /// What was seen of the instants up to the end of the run. Those after it have no value.
    pub(crate) fn measures(mut self, end_ns: u64) -> Vec<(String, f64)> {
        self.answer_before(end_ns.saturating_add(1));
        self.measures.extend(self.virtual_llcs.into_iter().flat_map(WatchedMoves::measures));
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
            let mut by_llc = vec![0_u32; self.machine.llc_count()];
            for (count, cpu) in self.counts.iter().zip(self.machine.cpus()) {
                by_llc[self.machine.llc_of(cpu).index()] += count;
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

impl Sink for Observer<'_> {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            self.answer_before(event.time_ns);
            match event.kind {
                EventKind::Migrate { task, to, .. } => self.set(task.index(), Some(to), event.time_ns),
                EventKind::Switch { next, .. } if !next.is_idle() => {
                    if let Some(watched) = &mut self.virtual_llcs {
                        watched.runs(self.machine, (event.time_ns, event.cpu), next.index());
                    }
                    self.set(next.index(), Some(event.cpu), event.time_ns)
                }
                EventKind::Wakeup { task, .. } => self.set(task.index(), Some(event.cpu), event.time_ns),
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
    use warmcore_topology::resolve;
    use warmcore_trace::{MigrationKind, PrevState, TaskId};

    #[test]
    fn tasks_are_counted_where_they_are_at_the_instant() {
        let at = |at_ms| Observation::TasksPerCpu { at_ms };
        let machine = resolve("1s1n1l2c1t").unwrap();
        let mut observer = Observer::new(&[at(3), at(1), at(99)], &machine, 0);
        let event = |ms: u64, kind| Event { time_ns: ms * 1_000_000, cpu: CpuId(0), kind };
        let wakeup = |task| EventKind::Wakeup { task: TaskId(task), reason: None };
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
        let machine = resolve("1s1n2l8c1t").unwrap();
        let cores = "4".parse().unwrap();
        let mut observer = Observer::new(&[Observation::VirtualLlcs { cores }], &machine, 0);
        let on = |cpu: u32, task: u32| Event {
            time_ns: 0,
            cpu: CpuId(cpu),
            kind: EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Runnable, next: TaskId(task) },
        };
        observer.events(&[on(0, 0), on(3, 0), on(3, 0), on(4, 0), on(7, 1), on(5, 0), on(8, 1)]).unwrap();
        let measures = observer.measures(1);
        let expected = [
            // Task 0 from CPU 0 to 3 and from 4 to 5; from 3 to 4; and task 1 to another LLC.
            ("migrations_ran_same_virtual_llc", 2.0),
            ("migrations_ran_other_virtual_llc", 1.0),
            ("migrations_ran_between_virtual_llcs", 2.0),
            ("tasks_crossing_virtual_llcs_0", 0.0),
            ("tasks_crossing_virtual_llcs_1", 2.0),
            ("tasks_crossing_virtual_llcs_10", 0.0),
            ("tasks_crossing_virtual_llcs_100", 0.0),
            ("tasks_crossing_virtual_llcs_1000", 0.0),
        ];
        assert_eq!(measures, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn evenness_is_waited_for_from_an_instant_on() {
        let even = |from_ms, within| Observation::Even { from_ms, within };
        let machine = resolve("1s1n1l2c1t").unwrap();
        let mut observer = Observer::new(&[even(0, 0), even(2, 0), even(2, 1), even(4, 0)], &machine, 0);
        let event = |ms: u64, kind| Event { time_ns: ms * 1_000_000, cpu: CpuId(0), kind };
        for (ms, task) in [(1, 0), (1, 1), (3, 2), (3, 3)] {
            observer.events(&[event(ms, EventKind::Wakeup { task: TaskId(task), reason: None })]).unwrap();
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
