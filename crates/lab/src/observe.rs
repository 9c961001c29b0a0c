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
}

/// Follows where tasks are, and answers the observations.
pub(crate) struct Observer {
    /// In order of time.
    pending: Vec<Observation>,
    /// CPU of each task that exists, by task id.
    places: Vec<Option<CpuId>>,
    /// LLC of each CPU.
    llcs: Vec<usize>,
    measures: Vec<(String, f64)>,
}

impl Observer {
    /// An observer of a machine whose CPUs have these LLCs.
    pub(crate) fn new(observations: &[Observation], llcs: Vec<usize>) -> Self {
        let mut pending = observations.to_vec();
        pending.sort_by_key(instant_ns);
        pending.reverse();
        Self { pending, places: Vec::new(), llcs, measures: Vec::new() }
    }

    /// What was seen of the instants up to the end of the run. Those after it have no value.
    pub(crate) fn measures(mut self, end_ns: u64) -> Vec<(String, f64)> {
        self.answer_before(end_ns.saturating_add(1));
        self.measures
    }

    /// Answers what is about instants before `time_ns`, from where tasks are now.
    fn answer_before(&mut self, time_ns: u64) {
        while let Some(observation) = self.pending.pop_if(|last| instant_ns(last) < time_ns) {
            let Observation::TasksPerCpu { at_ms } = observation;
            let mut counts = vec![0_u32; self.llcs.len()];
            let mut by_llc = vec![0_u32; self.llcs.iter().max().map_or(0, |llc| llc + 1)];
            for cpu in self.places.iter().flatten() {
                counts[cpu.index()] += 1;
                by_llc[self.llcs[cpu.index()]] += 1;
            }
            let least = counts.iter().min().copied().unwrap_or(0);
            let most = counts.iter().max().copied().unwrap_or(0);
            let of_llc = by_llc.into_iter().max().unwrap_or(0);
            for (what, count) in [
                ("tasks_on_cpu0", counts[0]),
                ("tasks_per_cpu_least", least),
                ("tasks_per_cpu_most", most),
                ("tasks_per_llc_most", of_llc),
            ] {
                self.measures.push((format!("{what}_at_{at_ms}ms"), f64::from(count)));
            }
        }
    }

    fn set(&mut self, task: usize, place: Option<CpuId>) {
        if self.places.len() <= task {
            self.places.resize(task + 1, None);
        }
        self.places[task] = place;
    }
}

fn instant_ns(observation: &Observation) -> u64 {
    let Observation::TasksPerCpu { at_ms } = observation;
    at_ms.saturating_mul(1_000_000)
}

impl Sink for Observer {
    fn events(&mut self, batch: &[Event]) -> io::Result<()> {
        for event in batch {
            self.answer_before(event.time_ns);
            match event.kind {
                EventKind::Migrate { task, to, .. } => self.set(task.index(), Some(to)),
                EventKind::Switch { next, .. } if !next.is_idle() => self.set(next.index(), Some(event.cpu)),
                EventKind::Wakeup { task } => self.set(task.index(), Some(event.cpu)),
                EventKind::Exit { task } => self.set(task.index(), None),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_trace::{MigrationKind, TaskId};

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
}
