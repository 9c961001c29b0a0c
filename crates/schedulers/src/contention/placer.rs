//! The strategies: who is placed where.

use rand_core::Rng as _;
use rand_pcg::Pcg32;

use super::percentiles::Percentiles;
use super::{ContentionError, Strategy, TaskView, Variant};

/// A dispatched task.
#[derive(Clone, Debug, Default)]
struct Dispatched {
    vcpu: usize,
    /// What was added to its group's load (DIO), and to its group's histogram (CDF).
    intensity: f64,
    window: Vec<u32>,
}

/// A strategy at work. Equal groups are told apart by an order drawn from the seed, equal virtual CPUs by their number.
#[derive(Clone, Debug)]
pub struct Placer {
    strategy: Strategy,
    per_group: usize,
    /// By virtual CPU: accesses dispatched to it and not yet returned.
    work: Vec<u64>,
    /// By group: tasks dispatched to it and not yet returned.
    tasks: Vec<u32>,
    /// By group: sum of intensities of its tasks.
    load: Vec<f64>,
    /// Recently used sets of the groups' tasks (CDF).
    percentiles: Option<Percentiles>,
    /// By task.
    dispatched: Vec<Option<Dispatched>>,
    /// By task: group that the latest deal gave it, and its intensity then (DIO as published).
    dealt: Vec<Option<usize>>,
    intensities: Vec<f64>,
    until_deal: u32,
    /// Next virtual CPU in turn.
    turn: usize,
    /// Order in which groups are gone through, which decides between equals: that of a hash map, drawn from the seed.
    order: Vec<usize>,
    chance: Pcg32,
    decisions: u64,
    looked_at: u64,
}

/// Dispatches between two deals of DIO as published, for each virtual CPU: about ten quanta of every task, as a second is of a program.
const DEAL_AFTER: u32 = 10;

impl Placer {
    /// A strategy for virtual CPUs in groups, and set indexes below `sets`.
    ///
    /// # Errors
    /// Parameters and groups that make no sense.
    pub fn new(
        strategy: Strategy,
        vcpus: usize,
        per_group: usize,
        sets: usize,
        seed: u64,
    ) -> Result<Self, ContentionError> {
        /// Any odd constant does.
        const STREAM: u64 = 0x636f_6e74_656e_7469;
        strategy.check()?;
        if vcpus == 0 || per_group == 0 || per_group > vcpus {
            return Err(ContentionError::Groups { vcpus, per_group });
        }
        let groups = vcpus.div_ceil(per_group);
        let mut chance = Pcg32::new(seed, STREAM);
        let mut order: Vec<usize> = (0..groups).collect();
        for last in (1..groups).rev() {
            order.swap(last, below(&mut chance, last + 1));
        }
        let percentiles = match &strategy {
            Strategy::Cdf(cdf) => Some(Percentiles::new(cdf.clone(), groups, sets)),
            _ => None,
        };
        Ok(Self {
            per_group,
            work: vec![0; vcpus],
            tasks: vec![0; groups],
            load: vec![0.0; groups],
            percentiles,
            dispatched: Vec::new(),
            dealt: Vec::new(),
            intensities: Vec::new(),
            until_deal: 0,
            turn: 0,
            order,
            chance,
            decisions: 0,
            looked_at: 0,
            strategy,
        })
    }

    /// Decisions so far.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// What decisions looked at so far: virtual CPUs, groups, sorted tasks, nodes of histograms.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.looked_at + self.percentiles.as_ref().map_or(0, Percentiles::steps)
    }

    /// Entries of all groups' histograms.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.percentiles.as_ref().map_or(0, Percentiles::recorded)
    }

    /// Chooses a virtual CPU for a ready task, which is dispatched to it from then on.
    pub fn place(&mut self, view: &TaskView<'_>) -> usize {
        self.decisions += 1;
        if self.dispatched.len() <= view.task {
            self.dispatched.resize(view.task + 1, None);
            self.dealt.resize(view.task + 1, None);
            self.intensities.resize(view.task + 1, 0.0);
        }
        let vcpu = match &self.strategy {
            Strategy::RoundRobin => {
                let vcpu = self.turn;
                self.turn = (self.turn + 1) % self.work.len();
                self.looked_at += 1;
                vcpu
            }
            Strategy::Random => {
                self.looked_at += 1;
                below(&mut self.chance, self.work.len())
            }
            Strategy::Fixed(vcpus) => vcpus.get(view.task).copied().unwrap_or(0).min(self.work.len() - 1),
            Strategy::FewestTasks => {
                let group = self.fewest_tasks(|_| true);
                self.least_work(group)
            }
            Strategy::Dio { variant: Variant::Coded } => {
                // The first in the map's order that no other is below.
                let mut best = self.order[0];
                for &group in &self.order {
                    if self.load[group] < self.load[best] {
                        best = group;
                    }
                }
                self.looked_at += self.order.len() as u64;
                self.least_work(best)
            }
            Strategy::Dio { variant: Variant::Published } => {
                self.intensities[view.task] = view.intensity;
                self.deal();
                let group = self.dealt[view.task].unwrap_or_else(|| self.fewest_tasks(|_| true));
                self.least_work(group)
            }
            Strategy::Cdf(_) => {
                let group = self.by_percentiles(view.window);
                self.least_work(group)
            }
        };
        let group = vcpu / self.per_group;
        self.work[vcpu] += view.accesses;
        self.tasks[group] += 1;
        self.load[group] += view.intensity;
        let mut dispatched = Dispatched { vcpu, intensity: view.intensity, window: Vec::new() };
        if let Some(percentiles) = &mut self.percentiles {
            percentiles.join(group, view.window);
            dispatched.window.extend_from_slice(view.window);
        }
        self.dispatched[view.task] = Some(dispatched);
        vcpu
    }

    /// A task comes back, with what it has recorded by now.
    pub fn returned(&mut self, view: &TaskView<'_>) {
        let Some(dispatched) = self.dispatched.get_mut(view.task).and_then(Option::take) else { return };
        let group = dispatched.vcpu / self.per_group;
        self.work[dispatched.vcpu] -= view.accesses;
        self.tasks[group] -= 1;
        self.load[group] -= dispatched.intensity;
        if let Some(percentiles) = &mut self.percentiles {
            percentiles.leave(group, &dispatched.window, view.window);
        }
    }

    /// The group with the fewest tasks among some; of equals the first in the run's order.
    fn fewest_tasks(&mut self, among: impl Fn(usize) -> bool) -> usize {
        self.looked_at += self.tasks.len() as u64;
        let candidates = self.order.iter().copied().filter(|&group| among(group));
        candidates.min_by_key(|&group| self.tasks[group]).unwrap_or(0)
    }

    /// The virtual CPU of a group with the least work, the first of equals.
    fn least_work(&mut self, group: usize) -> usize {
        let vcpus = group * self.per_group..((group + 1) * self.per_group).min(self.work.len());
        self.looked_at += vcpus.len() as u64;
        let first = vcpus.start;
        vcpus.min_by_key(|&vcpu| self.work[vcpu]).unwrap_or(first)
    }

    /// CDF: of the groups that its rule prefers the one with the fewest tasks.
    fn by_percentiles(&mut self, window: &[u32]) -> usize {
        let Some(mut percentiles) = self.percentiles.take() else { return 0 };
        let preferred = percentiles.preferred(window, self.tasks.contains(&0));
        let group = self.fewest_tasks(|group| preferred[group]);
        self.percentiles = Some(percentiles);
        group
    }

    /// DIO as published: now and then all tasks are sorted by intensity and dealt to the groups, there and back.
    fn deal(&mut self) {
        if self.until_deal > 0 {
            self.until_deal -= 1;
            return;
        }
        self.until_deal = DEAL_AFTER * self.work.len() as u32;
        let mut sorted: Vec<usize> = (0..self.intensities.len()).collect();
        sorted.sort_by(|a, b| self.intensities[*b].total_cmp(&self.intensities[*a]));
        self.looked_at += (sorted.len() * sorted.len().max(2).ilog2() as usize) as u64;
        let groups = self.tasks.len();
        for (position, task) in sorted.into_iter().enumerate() {
            let (round, place) = (position / groups, position % groups);
            self.dealt[task] = Some(if round % 2 == 0 { place } else { groups - 1 - place });
        }
    }
}

/// A number below a limit that is not zero.
fn below(chance: &mut Pcg32, limit: usize) -> usize {
    ((u64::from(chance.next_u32()) * limit as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::super::{Bookkeeping, Cdf};
    use super::*;

    fn view(task: usize, window: &[u32]) -> TaskView<'_> {
        TaskView { task, window, intensity: 0.0, accesses: 300 }
    }

    fn placer(strategy: Strategy) -> Placer {
        Placer::new(strategy, 12, 4, 128, 7).unwrap()
    }

    /// `docs/spec/cdf-dio.md` section 9, item 3.
    #[test]
    fn cdf_dio_9_3_without_history_cdf_spreads_and_dio_does_not() {
        let groups = |strategy| {
            let mut placer = placer(strategy);
            let mut counts = [0; 3];
            (0..30).for_each(|task| counts[placer.place(&view(task, &[])) / 4] += 1);
            counts.sort_unstable();
            counts
        };
        assert_eq!(groups(Strategy::Cdf(Cdf::new(Variant::Coded, 0.6))), [10, 10, 10]);
        assert_eq!(groups(Strategy::Cdf(Cdf::new(Variant::Published, 0.6))), [10, 10, 10]);
        assert_eq!(groups(Strategy::Dio { variant: Variant::Coded }), [0, 0, 30]);
    }

    /// `docs/spec/cdf-dio.md` section 9, item 7.
    #[test]
    fn cdf_dio_9_7_exact_bookkeeping_ends_empty_and_no_count_goes_below_nothing() {
        let left = |bookkeeping| {
            let mut placer = placer(Strategy::Cdf(Cdf { bookkeeping, ..Cdf::new(Variant::Coded, 0.3) }));
            placer.place(&view(0, &[1, 2, 3]));
            placer.place(&view(1, &[4, 5]));
            placer.returned(&view(0, &[4, 5, 6]));
            placer.returned(&view(1, &[7, 7]));
            placer.recorded()
        };
        assert_eq!(left(Bookkeeping::Exact), 0);
        assert!(left(Bookkeeping::Coded) > 0);
    }

    #[test]
    fn dio_as_published_keeps_intense_tasks_apart() {
        let mut placer = placer(Strategy::Dio { variant: Variant::Published });
        let intensities = [0.9, 0.8, 0.7, 0.1, 0.1, 0.1];
        let intense = |task: usize| TaskView { intensity: intensities[task], ..view(task, &[]) };
        for _ in 0..200 {
            for task in 0..6 {
                placer.place(&intense(task));
                placer.returned(&intense(task));
            }
        }
        let groups: std::collections::BTreeSet<usize> = (0..3).map(|task| placer.place(&intense(task)) / 4).collect();
        assert_eq!(groups.len(), 3);
    }

    #[test]
    fn round_robin_takes_turns_and_equal_seeds_give_equal_choices() {
        let mut turns = placer(Strategy::RoundRobin);
        let taken: Vec<usize> = (0..13).map(|task| turns.place(&view(task, &[]))).collect();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0]);
        let choices = |seed| {
            let mut placer = Placer::new(Strategy::Random, 12, 4, 1, seed).unwrap();
            (0..50).map(|task| placer.place(&view(task, &[]))).collect::<Vec<_>>()
        };
        assert_eq!(choices(3), choices(3));
        assert_ne!(choices(3), choices(4));
    }

    #[test]
    fn groups_that_are_larger_than_the_machine_are_refused() {
        for (vcpus, per_group) in [(0, 1), (4, 0), (4, 5)] {
            let refused = Placer::new(Strategy::RoundRobin, vcpus, per_group, 1, 1).unwrap_err();
            assert_eq!(refused, ContentionError::Groups { vcpus, per_group });
        }
    }
}
