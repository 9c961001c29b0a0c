//! Placement against contention for caches: round robin, fewest tasks, chance, DIO and CDF, each as published and as coded
//! (`docs/spec/cdf-dio.md` section 3).
//!
//! A [`Placer`] maps a ready task to a virtual CPU of a machine whose CPUs share a cache in groups. It is told when a task is
//! dispatched and when it comes back, and what the task did; it knows no clock. What it looks at is counted, so that whoever
//! drives it can charge for decisions.
//!
//! DIO: Zhuravlev, Blagodurov, Fedorova, "Addressing Shared Resource Contention in Multicore Processors via Scheduling", ASPLOS 2010.
//! CDF: Nolasco, Penna, Freitas, "NUMA-Aware Task Scheduling Strategy Aiming to Reduce Cache Conflicts", SSCAD 2025.

mod decisions;
mod histogram;
pub mod kernel;
mod percentiles;
mod placer;

pub use histogram::SetHistogram;
pub use percentiles::Percentiles;
pub use placer::Placer;

use thiserror::Error;

/// Which of two readings of a strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As the paper says.
    Published,
    /// As the published program does.
    Coded,
}

/// How a group's histogram follows its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bookkeeping {
    /// What was added for a task is taken away when it returns.
    Exact,
    /// What the task has recorded since is taken away, as the published program does; counts stop at nothing.
    Coded,
}

/// Parameters of CDF.
#[derive(Clone, PartialEq, Debug)]
pub struct Cdf {
    /// Which reading.
    pub variant: Variant,
    /// Fraction of the group's percentile by which a task's must differ, 0 to 1.
    pub tolerance: f64,
    /// Whether every decision takes a tolerance of its own instead: the largest, of 1 at most, at which some group is good. No paper has it.
    pub adapts: bool,
    /// Percentiles that are compared, each 0 to 100, rising.
    pub percentiles: Vec<f64>,
    /// How a group's histogram follows its tasks.
    pub bookkeeping: Bookkeeping,
}

impl Cdf {
    /// The paper's three percentiles.
    pub const PERCENTILES: [f64; 3] = [25.0, 50.0, 75.0];

    /// CDF with a tolerance, else as a reading has it.
    #[must_use]
    pub fn new(variant: Variant, tolerance: f64) -> Self {
        let bookkeeping = match variant {
            Variant::Published => Bookkeeping::Exact,
            Variant::Coded => Bookkeeping::Coded,
        };
        Self { variant, tolerance, adapts: false, percentiles: Self::PERCENTILES.into(), bookkeeping }
    }

    /// CDF as published, whose tolerance [adapts](Self::adapts).
    #[must_use]
    pub fn adaptive() -> Self {
        Self { adapts: true, ..Self::new(Variant::Published, 1.0) }
    }
}

/// A strategy.
#[derive(Clone, PartialEq, Debug)]
pub enum Strategy {
    /// The next virtual CPU in turn.
    RoundRobin,
    /// The group with the fewest dispatched tasks, and in it the virtual CPU with the least work.
    FewestTasks,
    /// Any virtual CPU.
    Random,
    /// The virtual CPU that is said for each task: what no strategy knows.
    Fixed(Vec<usize>),
    /// Cache miss rates as even over the groups as can be.
    Dio {
        /// Which reading.
        variant: Variant,
    },
    /// Groups whose recently used sets differ from the task's.
    Cdf(Cdf),
}

/// A strategy or a machine that makes no sense.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ContentionError {
    /// A tolerance outside 0 to 1.
    #[error("the tolerance is {0}; it is a fraction of a percentile, 0 to 1")]
    Tolerance(f64),
    /// Percentiles that are none, or not in order.
    #[error("the percentiles are {0:?}; they rise and lie between 0 and 100")]
    Percentiles(Vec<f64>),
    /// No virtual CPUs, or groups that are larger than all of them together.
    #[error("{vcpus} virtual CPUs cannot be in groups of {per_group}")]
    Groups { vcpus: usize, per_group: usize },
    /// A window that holds nothing.
    #[error("the window of recent set indexes holds none; it is 1 at least")]
    Window,
    /// A page that does not fit into the memory.
    #[error("a page of {page_bytes} bytes does not fit into {memory_bytes} bytes of memory")]
    Page { page_bytes: u64, memory_bytes: u64 },
    /// More frames are needed than the memory has.
    #[error("the memory of {frames} frames is full; give it more, or run fewer tasks")]
    MemoryFull { frames: u64 },
}

impl Strategy {
    /// Checks the parameters.
    ///
    /// # Errors
    /// A tolerance outside 0 to 1; percentiles outside 0 to 100, without order, or none.
    pub fn check(&self) -> Result<(), ContentionError> {
        let Self::Cdf(cdf) = self else { return Ok(()) };
        if !(0.0..=1.0).contains(&cdf.tolerance) {
            return Err(ContentionError::Tolerance(cdf.tolerance));
        }
        let inside = cdf.percentiles.iter().all(|p| (0.0..=100.0).contains(p));
        if cdf.percentiles.is_empty() || !inside || !cdf.percentiles.is_sorted_by(|a, b| a < b) {
            return Err(ContentionError::Percentiles(cdf.percentiles.clone()));
        }
        Ok(())
    }

    /// Name, as in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let word = |variant: &Variant| match variant {
            Variant::Published => "published",
            Variant::Coded => "coded",
        };
        match self {
            Self::RoundRobin => "rr".to_owned(),
            Self::FewestTasks => "fewest-tasks".to_owned(),
            Self::Random => "random".to_owned(),
            Self::Fixed(_) => "fixed".to_owned(),
            Self::Dio { variant } => format!("dio:{}", word(variant)),
            Self::Cdf(Cdf { adapts: true, .. }) => "cdf:adaptive".to_owned(),
            Self::Cdf(cdf) => format!("cdf:{},tol={}", word(&cdf.variant), cdf.tolerance),
        }
    }
}

/// What a strategy is told of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskView<'a> {
    /// The task, dense from 0.
    pub task: usize,
    /// Set indexes of its recent accesses, the oldest first.
    pub window: &'a [u32],
    /// Misses over accesses of the groups' cache since its birth; 0 before the first.
    pub intensity: f64,
    /// Accesses that it is about to make, or has made.
    pub accesses: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let cdf = |tolerance: f64, percentiles: &[f64]| {
            let cdf = Cdf { percentiles: percentiles.into(), ..Cdf::new(Variant::Coded, tolerance) };
            Strategy::Cdf(cdf).check()
        };
        assert_eq!(cdf(0.3, &[25.0, 50.0]), Ok(()));
        assert_eq!(cdf(-0.1, &[25.0]), Err(ContentionError::Tolerance(-0.1)));
        assert!(matches!(cdf(1.1, &[25.0]), Err(ContentionError::Tolerance(_))));
        assert!(matches!(cdf(f64::NAN, &[25.0]), Err(ContentionError::Tolerance(_))));
        for bad in [&[][..], &[50.0, 25.0], &[50.0, 50.0], &[101.0], &[-1.0, 5.0]] {
            assert!(matches!(cdf(0.3, bad), Err(ContentionError::Percentiles(_))), "{bad:?}");
        }
    }
}
