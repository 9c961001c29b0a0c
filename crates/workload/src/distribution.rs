//! Times that are drawn: how run and sleep times of a step vary, and the stream from which each task draws them.
//!
//! Every number of a distribution is an integer, so that equal files give equal draws. A task has a stream of its own, made from the
//! run's seed, its template and its number among the template's tasks: in which order tasks run changes no draw, and simulated and
//! real threads draw the same. Draws are whole nanoseconds from 0 to [`LONGEST_NS`]; what falls outside is cut off there.
//!
//! Not here: dependence of one draw on another, and distributions of anything but times.

use std::fmt;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use warmcore_topology::{SPLIT_MIX_STEP, split_mix};

use crate::duration::format_duration;

/// The longest time that a distribution may state, or draw: an hour.
pub const LONGEST_NS: u64 = 3_600_000_000_000;

/// The most values of an empirical distribution.
pub(crate) const MOST_VALUES: usize = 1_000_000;

/// The standard normal distribution's 99th percentile.
const Z_99: f64 = 2.326_347_874_040_841;

/// How long something takes from one time to the next. All times are nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Always the same.
    Constant {
        /// The time.
        ns: u64,
    },
    /// Each time from one to another, both included, as often.
    Uniform {
        /// The shortest.
        from_ns: u64,
        /// The longest.
        to_ns: u64,
    },
    /// The normal distribution; what would be below 0 is 0, which makes the mean a little larger if the deviation is more than a third
    /// of it.
    Normal {
        /// Mean.
        mean_ns: u64,
        /// Standard deviation.
        sd_ns: u64,
    },
    /// The exponential distribution: what comes independently of everything, such as requests of many clients.
    Exponential {
        /// Mean.
        mean_ns: u64,
    },
    /// The log-normal distribution: a long tail, such as service times have. Its logarithm's deviation is ln(p99 / median) / 2.326.
    LogNormal {
        /// Half of the times are shorter.
        median_ns: u64,
        /// One in a hundred is longer.
        p99_ns: u64,
    },
    /// Times that were measured: each is drawn as often.
    Empirical {
        /// The times, in any order.
        values_ns: Vec<u64>,
    },
}

/// Why times cannot be drawn from a distribution.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum DistributionError {
    #[error("{name} of {ns} ns is longer than an hour, {LONGEST_NS} ns")]
    TooLong { name: &'static str, ns: u64 },
    #[error("from_ns of {from_ns} is above to_ns of {to_ns}: swap them")]
    Swapped { from_ns: u64, to_ns: u64 },
    #[error("{name} of 0 draws nothing but 0: use a constant")]
    Zero { name: &'static str },
    #[error("p99_ns of {p99_ns} is below median_ns of {median_ns}")]
    BelowMedian { median_ns: u64, p99_ns: u64 },
    /// There are no values, or too many.
    #[error("{count} values; give 1 to {MOST_VALUES}")]
    Values { count: usize },
}

impl Distribution {
    /// Its parameters with their names, but for measured values.
    fn parameters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Constant { ns } => vec![("ns", *ns)],
            Self::Uniform { from_ns, to_ns } => vec![("from_ns", *from_ns), ("to_ns", *to_ns)],
            Self::Normal { mean_ns, sd_ns } => vec![("mean_ns", *mean_ns), ("sd_ns", *sd_ns)],
            Self::Exponential { mean_ns } => vec![("mean_ns", *mean_ns)],
            Self::LogNormal { median_ns, p99_ns } => vec![("median_ns", *median_ns), ("p99_ns", *p99_ns)],
            Self::Empirical { .. } => Vec::new(),
        }
    }

    /// Whether times can be drawn from it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), DistributionError> {
        let too_long =
            |name, ns: u64| if ns > LONGEST_NS { Err(DistributionError::TooLong { name, ns }) } else { Ok(()) };
        for (name, ns) in self.parameters() {
            too_long(name, ns)?;
        }
        match self {
            Self::Constant { .. } | Self::Normal { mean_ns: 1.., .. } | Self::Exponential { mean_ns: 1.. } => Ok(()),
            Self::Normal { .. } | Self::Exponential { .. } => Err(DistributionError::Zero { name: "mean_ns" }),
            &Self::Uniform { from_ns, to_ns } if from_ns > to_ns => Err(DistributionError::Swapped { from_ns, to_ns }),
            Self::Uniform { .. } => Ok(()),
            Self::LogNormal { median_ns: 0, .. } => Err(DistributionError::Zero { name: "median_ns" }),
            &Self::LogNormal { median_ns, p99_ns } if p99_ns < median_ns => {
                Err(DistributionError::BelowMedian { median_ns, p99_ns })
            }
            Self::LogNormal { .. } => Ok(()),
            Self::Empirical { values_ns } if values_ns.is_empty() || values_ns.len() > MOST_VALUES => {
                Err(DistributionError::Values { count: values_ns.len() })
            }
            Self::Empirical { values_ns } => values_ns.iter().try_for_each(|&ns| too_long("a value", ns)),
        }
    }

    /// The same distribution with all times so many times as long, [`LONGEST_NS`] at most.
    pub fn times(&self, factor: u64) -> Self {
        let times = |ns: &u64| ns.saturating_mul(factor).min(LONGEST_NS);
        match self {
            Self::Constant { ns } => Self::Constant { ns: times(ns) },
            Self::Uniform { from_ns, to_ns } => Self::Uniform { from_ns: times(from_ns), to_ns: times(to_ns) },
            Self::Normal { mean_ns, sd_ns } => Self::Normal { mean_ns: times(mean_ns), sd_ns: times(sd_ns) },
            Self::Exponential { mean_ns } => Self::Exponential { mean_ns: times(mean_ns) },
            Self::LogNormal { median_ns, p99_ns } => {
                Self::LogNormal { median_ns: times(median_ns), p99_ns: times(p99_ns) }
            }
            Self::Empirical { values_ns } => Self::Empirical { values_ns: values_ns.iter().map(times).collect() },
        }
    }

    /// The mean of its draws, in nanoseconds, without what is cut off.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Constant { ns } => *ns as f64,
            Self::Uniform { from_ns, to_ns } => (*from_ns as f64 + *to_ns as f64) / 2.0,
            Self::Normal { mean_ns, .. } | Self::Exponential { mean_ns } => *mean_ns as f64,
            Self::LogNormal { median_ns, p99_ns } => {
                let sigma = sigma(*median_ns, *p99_ns);
                *median_ns as f64 * libm::exp(sigma * sigma / 2.0)
            }
            Self::Empirical { values_ns } => {
                values_ns.iter().map(|&ns| ns as f64).sum::<f64>() / values_ns.len().max(1) as f64
            }
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: &u64| format_duration(*ns);
        match self {
            Self::Constant { ns } => out.write_str(&time(ns)),
            Self::Uniform { from_ns, to_ns } => write!(out, "uniform {} to {}", time(from_ns), time(to_ns)),
            Self::Normal { mean_ns, sd_ns } => write!(out, "normal {} ± {}", time(mean_ns), time(sd_ns)),
            Self::Exponential { mean_ns } => write!(out, "exponential, mean {}", time(mean_ns)),
            Self::LogNormal { median_ns, p99_ns } => {
                write!(out, "log-normal, median {}, p99 {}", time(median_ns), time(p99_ns))
            }
            Self::Empirical { values_ns } => write!(out, "one of {} measured times", values_ns.len()),
        }
    }
}

fn sigma(median_ns: u64, p99_ns: u64) -> f64 {
    libm::log(p99_ns as f64 / median_ns as f64) / Z_99
}

/// One task's draws.
#[derive(Clone, Debug)]
pub struct Draws {
    random: Pcg64,
}

impl Draws {
    /// The stream of the task of this number among those of its template, in a run of this seed.
    pub fn new(seed: u64, template: u32, number: u32) -> Self {
        /// Keeps these streams apart from others with the same seed; any constant does.
        const STREAM: u64 = 0x6472_6177_7320_6e73;
        let task = (u64::from(template) << 32) | u64::from(number);
        Self { random: Pcg64::seed_from_u64(mixed(mixed(seed ^ STREAM).wrapping_add(task))) }
    }

    /// The next time.
    pub fn draw(&mut self, distribution: &Distribution) -> u64 {
        let ns = match distribution {
            Distribution::Constant { ns } => return *ns,
            Distribution::Uniform { from_ns, to_ns } => return from_ns + self.below(to_ns - from_ns + 1),
            Distribution::Empirical { values_ns } => return values_ns[self.below(values_ns.len() as u64) as usize],
            Distribution::Normal { mean_ns, sd_ns } => *mean_ns as f64 + *sd_ns as f64 * self.normal(),
            Distribution::Exponential { mean_ns } => -(*mean_ns as f64) * libm::log(self.unit()),
            Distribution::LogNormal { median_ns, p99_ns } => {
                *median_ns as f64 * libm::exp(sigma(*median_ns, *p99_ns) * self.normal())
            }
        };
        // Nothing is NaN here, and what is negative becomes 0.
        (libm::round(ns) as u64).min(LONGEST_NS)
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Less than `count`, which is not 0. The remainder is not exactly even, by less than one in a million.
    fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// Box and Muller, one of each pair.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014): neighbouring numbers become unlike.
fn mixed(number: u64) -> u64 {
    split_mix(number.wrapping_add(SPLIT_MIX_STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const DRAWS: usize = 200_000;

    fn sorted(distribution: &Distribution) -> Vec<u64> {
        let mut draws = Draws::new(7, 0, 0);
        let mut drawn: Vec<u64> = (0..DRAWS).map(|_| draws.draw(distribution)).collect();
        drawn.sort_unstable();
        drawn
    }

    /// Means and quantiles by hand; 200,000 draws know a mean to about half a percent of a deviation.
    #[test]
    fn draws_have_the_mean_and_the_quantiles_of_their_distribution() {
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.02;
        for (distribution, mean, median, p99) in [
            (Distribution::Constant { ns: 100 * US }, 100e3, 100e3, 100e3),
            (Distribution::Uniform { from_ns: 50 * US, to_ns: 150 * US }, 100e3, 100e3, 149e3),
            (Distribution::Normal { mean_ns: 100 * US, sd_ns: 10 * US }, 100e3, 100e3, 123.26e3),
            // ln 2 and ln 100 times the mean.
            (Distribution::Exponential { mean_ns: 100 * US }, 100e3, 69.31e3, 460.5e3),
            // exp(s²/2) with s = ln(10)/2.3263 = 0.98978: 1.6321.
            (Distribution::LogNormal { median_ns: 100 * US, p99_ns: 1_000 * US }, 163.21e3, 100e3, 1_000e3),
            (Distribution::Empirical { values_ns: vec![30 * US, 10 * US, 20 * US] }, 20e3, 20e3, 30e3),
        ] {
            let drawn = sorted(&distribution);
            let found = drawn.iter().map(|&ns| ns as f64).sum::<f64>() / DRAWS as f64;
            assert!(near(found, mean), "mean of {distribution}: {found}");
            assert!(near(distribution.mean_ns(), mean), "stated mean of {distribution}");
            assert!(near(drawn[DRAWS / 2] as f64, median), "median of {distribution}: {}", drawn[DRAWS / 2]);
            assert!(near(drawn[DRAWS * 99 / 100] as f64, p99), "p99 of {distribution}: {}", drawn[DRAWS * 99 / 100]);
        }
    }

    #[test]
    fn draws_are_never_negative_and_never_longer_than_an_hour() {
        assert_eq!(sorted(&Distribution::Normal { mean_ns: 10, sd_ns: 1_000 })[0], 0);
        let wide = Distribution::LogNormal { median_ns: LONGEST_NS / 2, p99_ns: LONGEST_NS };
        assert_eq!(sorted(&wide)[DRAWS - 1], LONGEST_NS);
        let both: std::collections::BTreeSet<u64> =
            sorted(&Distribution::Uniform { from_ns: 3, to_ns: 4 }).into_iter().collect();
        assert_eq!(both, [3, 4].into(), "both ends belong to it");
    }

    /// A guard against another generator, another order of its uses or another `exp` and `ln`: results of equal seeds would change.
    #[test]
    fn a_task_draws_the_same_everywhere_and_no_two_tasks_draw_alike() {
        let exponential = Distribution::Exponential { mean_ns: 1_000_000 };
        let first = |seed, template, number| {
            let mut draws = Draws::new(seed, template, number);
            [draws.draw(&exponential), draws.draw(&exponential)]
        };
        assert_eq!(first(1, 0, 0), first(1, 0, 0));
        let all: std::collections::BTreeSet<[u64; 2]> = (0..10)
            .flat_map(|seed| (0..10).flat_map(move |template| (0..10).map(move |number| (seed, template, number))))
            .map(|(s, t, n)| first(s, t, n))
            .collect();
        assert_eq!(all.len(), 1000);
    }

    #[test]
    fn what_nothing_can_be_drawn_from_is_refused_with_the_reason() {
        for (distribution, wanted) in [
            (Distribution::Constant { ns: LONGEST_NS + 1 }, "longer than an hour"),
            (Distribution::Uniform { from_ns: 2, to_ns: 1 }, "swap them"),
            (Distribution::Exponential { mean_ns: 0 }, "mean_ns of 0"),
            (Distribution::Normal { mean_ns: 0, sd_ns: 1 }, "mean_ns of 0"),
            (Distribution::Normal { mean_ns: 1, sd_ns: u64::MAX }, "sd_ns of 18446744073709551615 ns is longer"),
            (Distribution::LogNormal { median_ns: 0, p99_ns: 1 }, "median_ns of 0"),
            (Distribution::LogNormal { median_ns: 2, p99_ns: 1 }, "below median_ns of 2"),
            (Distribution::Empirical { values_ns: Vec::new() }, "0 values"),
            (Distribution::Empirical { values_ns: vec![1, LONGEST_NS + 1] }, "a value of 3600000000001 ns is longer"),
        ] {
            let error = distribution.check().expect_err("refused").to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
