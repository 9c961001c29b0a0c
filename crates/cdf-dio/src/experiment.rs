//! The paper's experiment with its own numbers or with others, and its figures by name.
//!
//! | figure | means |
//! |---|---|
//! | `QUANTITY_STRATEGY_DISPATCHER` | a [quantity](QUANTITIES) of a run: `l2_hit_rate_cdf_0.7_queue` |
//! | `NAME_DISPATCHER` | a figure of the paper: `l2_hit_rate_dio_over_rr_blocking` |
//!
//! Strategies are `rr`, `fewest_tasks`, `random`, `dio`, `dio_published`, `cdf_0.7` and `cdf_published_0.7` with the experiment's tolerances,
//! and `cdf_adaptive`. Dispatchers are `blocking`, which waits for busy CPUs, and `queue`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use warmcore_schedulers::contention::{Cdf, ContentionError, Strategy, Variant};

use super::machine::{self, Addresses, Dispatch, Geometry, Outcome, PAPER, Setup};
use super::workload::{Accesses, Colours, Law};
use super::{ACCESSES, DIO, RANKS, TASKS, cdf, l2, p99};

/// What is asked of tasks and machine; the default is the paper's.
#[derive(Clone, PartialEq, Debug)]
pub struct Experiment {
    /// Tasks.
    pub tasks: usize,
    /// Accesses of each, unless they are recorded.
    pub accesses: usize,
    /// Exponent of Zipf's law, unless accesses are recorded: 0 is a uniform choice.
    pub skew: f64,
    /// Virtual CPUs.
    pub cpus: usize,
    /// Of a group, which shares an L2; the last group may have fewer.
    pub cpus_per_group: usize,
    /// Tolerances of CDF, each 0 to 1.
    pub tolerances: Vec<f64>,
}

impl Default for Experiment {
    fn default() -> Self {
        let tolerances = (1..=9).map(|tenths| f64::from(tenths) / 10.0).collect();
        Self { tasks: TASKS, accesses: ACCESSES, skew: 1.0, cpus: 12, cpus_per_group: 4, tolerances }
    }
}

/// A quantity of a run.
type Quantity = fn(&Outcome) -> f64;

/// All of them, by name: hits over accesses, the part of all accesses that reach memory, times in nanoseconds, L2 accesses of groups,
/// and the part of the CPUs' time in which they ran a task.
pub const QUANTITIES: [(&str, Quantity); 13] = [
    ("l1_hit_rate", |run| run.hit_rates[0]),
    ("l2_hit_rate", l2),
    ("l3_hit_rate", |run| run.hit_rates[2]),
    ("memory_share", |run| run.memory_share),
    ("access_ns", |run| run.access_ns),
    ("load_variation", Outcome::load_variation),
    ("group_load_least", |run| run.group_accesses.iter().min().map_or(0.0, |load| *load as f64)),
    ("group_load_most", |run| run.group_accesses.iter().max().map_or(0.0, |load| *load as f64)),
    ("wait_p50_ns", |run| run.wait_ns(50.0)),
    ("wait_p99_ns", p99),
    ("wait_most_ns", |run| run.wait_ns(100.0)),
    ("makespan_ns", |run| run.makespan_ns as f64),
    ("utilisation", |run| run.utilisation),
];

/// Both dispatchers.
const DISPATCHERS: [Dispatch; 2] = [Dispatch::Blocking, Dispatch::Queue];

/// The strategies on the same tasks, run as they are asked for.
struct Runs<'a> {
    setup: Setup,
    accesses: Cow<'a, Accesses>,
    seed: u64,
    tolerances: &'a [f64],
    done: BTreeMap<String, Outcome>,
}

impl Runs<'_> {
    fn of(&mut self, strategy: &Strategy) -> Result<&Outcome, ContentionError> {
        Ok(match self.done.entry(strategy.name()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(machine::run(&self.setup, &self.accesses, strategy, self.seed)?),
        })
    }

    /// A quantity under a strategy over the same under another one.
    fn ratio(&mut self, of: Quantity, strategy: &Strategy, over: &Strategy) -> Result<f64, ContentionError> {
        Ok(of(self.of(strategy)?) / of(self.of(over)?))
    }

    /// The smallest value of a quantity under CDF over that under another strategy.
    fn least_cdf(&mut self, of: Quantity, over: &Strategy) -> Result<f64, ContentionError> {
        let mut least = f64::INFINITY;
        for tolerance in self.tolerances {
            least = least.min(of(self.of(&cdf(*tolerance))?));
        }
        Ok(least / of(self.of(over)?))
    }
}

/// How a figure follows.
enum Asked {
    Quantity(Quantity, Strategy),
    OfPaper(FigureOf),
}

type FigureOf = fn(&mut Runs<'_>) -> Result<f64, ContentionError>;

const RR: Strategy = Strategy::RoundRobin;

/// The paper's figures, by name. The best CDF has the smallest value, and so has the worst one of hit rates.
const FIGURES: [(&str, FigureOf); 11] = [
    ("l2_hit_rate_dio_over_rr", |runs| runs.ratio(l2, &DIO, &RR)),
    ("l2_hit_rate_cdf_7_over_rr", |runs| runs.ratio(l2, &cdf(0.7), &RR)),
    ("l2_hit_rate_cdf_7_over_dio", |runs| runs.ratio(l2, &cdf(0.7), &DIO)),
    ("l2_hit_rate_cdf_3_over_dio", |runs| runs.ratio(l2, &cdf(0.3), &DIO)),
    ("l2_hit_rate_worst_cdf_over_dio", |runs| runs.least_cdf(l2, &DIO)),
    ("l3_hit_rate_cdf_7_over_rr", |runs| runs.ratio(|run| run.hit_rates[2], &cdf(0.7), &RR)),
    ("load_variation_best_cdf_over_dio", |runs| runs.least_cdf(Outcome::load_variation, &DIO)),
    ("load_variation_best_cdf_over_rr", |runs| runs.least_cdf(Outcome::load_variation, &RR)),
    ("p99_of_waits_cdf_3_over_dio", |runs| runs.ratio(p99, &cdf(0.3), &DIO)),
    ("p99_of_waits_best_cdf_over_rr", |runs| runs.least_cdf(p99, &RR)),
    // The farther of DIO and CDF 0.7 from RR.
    ("l1_hit_rate_over_rr", |runs| {
        let l1: Quantity = |run| run.hit_rates[0];
        let [dio, cdf] = [runs.ratio(l1, &DIO, &RR)?, runs.ratio(l1, &cdf(0.7), &RR)?];
        Ok(if (dio - 1.0).abs() > (cdf - 1.0).abs() { dio } else { cdf })
    }),
];

impl Experiment {
    /// The machine.
    pub(super) fn setup(&self, geometry: Geometry, addresses: Addresses, dispatch: Dispatch) -> Setup {
        Setup { vcpus: self.cpus, per_group: self.cpus_per_group, ..Setup::paper(geometry, addresses, dispatch) }
    }

    /// What the tasks touch: what was recorded, or what Zipf's law gives with a seed.
    pub(super) fn accesses<'a>(&self, traced: Option<&'a Accesses>, seed: u64) -> Cow<'a, Accesses> {
        // The paper's own exponent needs no power of a rank.
        let law = match self.skew {
            1.0 => Law::Zipf(RANKS),
            exponent => Law::Skewed { pages: RANKS, exponent },
        };
        match traced {
            Some(traced) => Cow::Borrowed(traced),
            None => Cow::Owned(Accesses::coloured(self.tasks, self.accesses, law, Colours::Any, seed)),
        }
    }

    /// Every strategy, by its name in figures.
    fn named(&self) -> Vec<(String, Strategy)> {
        let published = |tolerance: f64| Strategy::Cdf(Cdf::new(Variant::Published, tolerance));
        let fixed = [
            ("rr", RR),
            ("fewest_tasks", Strategy::FewestTasks),
            ("random", Strategy::Random),
            ("dio", DIO),
            ("dio_published", Strategy::Dio { variant: Variant::Published }),
        ];
        let mut all: Vec<_> = fixed.into_iter().map(|(name, strategy)| (name.to_owned(), strategy)).collect();
        all.extend(self.tolerances.iter().map(|tolerance| (format!("cdf_{tolerance}"), cdf(*tolerance))));
        all.extend(self.tolerances.iter().map(|of| (format!("cdf_published_{of}"), published(*of))));
        all.push(("cdf_adaptive".to_owned(), Strategy::Cdf(Cdf::adaptive())));
        all
    }

    /// Every strategy.
    #[must_use]
    pub fn strategies(&self) -> Vec<Strategy> {
        self.named().into_iter().map(|(_, strategy)| strategy).collect()
    }

    /// Every figure by its name.
    fn known(&self) -> BTreeMap<String, (Dispatch, Asked)> {
        let mut all = BTreeMap::new();
        for dispatch in DISPATCHERS {
            let ending = dispatch.name();
            for (name, of) in FIGURES {
                all.insert(format!("{name}_{ending}"), (dispatch, Asked::OfPaper(of)));
            }
            for (strategy, of) in self.named() {
                for (quantity, value) in QUANTITIES {
                    let asked = Asked::Quantity(value, of.clone());
                    all.insert(format!("{quantity}_{strategy}_{ending}"), (dispatch, asked));
                }
            }
        }
        all
    }

    /// Names of all figures, sorted.
    #[must_use]
    pub fn figures(&self) -> BTreeSet<String> {
        self.known().into_keys().collect()
    }
}

/// These figures for each seed; names that are no [figure](Experiment::figures) are left out. With `traced` every seed has those tasks, and
/// decides equal placements only.
///
/// # Errors
/// Tasks with more pages than the paper's memory; groups larger than all CPUs; a tolerance outside 0 to 1.
pub fn figures(
    asked: &BTreeSet<String>,
    experiment: &Experiment,
    seeds: &[u64],
    traced: Option<&Accesses>,
) -> Result<BTreeMap<String, Vec<f64>>, ContentionError> {
    let known = experiment.known();
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for dispatch in DISPATCHERS {
        let of_it = |name: &String| known.get(name).filter(|(of, _)| *of == dispatch).map(|(_, of)| (name.clone(), of));
        let wanted: Vec<(String, &Asked)> = asked.iter().filter_map(of_it).collect();
        if wanted.is_empty() {
            continue;
        }
        for seed in seeds {
            let mut runs = Runs {
                setup: experiment.setup(PAPER, Addresses::PageAligned, dispatch),
                accesses: experiment.accesses(traced, *seed),
                seed: *seed,
                tolerances: &experiment.tolerances,
                done: BTreeMap::new(),
            };
            for (name, of) in &wanted {
                let value = match of {
                    Asked::Quantity(quantity, strategy) => quantity(runs.of(strategy)?),
                    Asked::OfPaper(figure) => figure(&mut runs)?,
                };
                found.entry(name.clone()).or_default().push(value);
            }
        }
    }
    Ok(found)
}
