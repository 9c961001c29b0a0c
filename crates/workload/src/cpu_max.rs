//! A task group's quota of CPU time: `cpu.max` and `cpu.max.burst` of the kernel's control groups.
//!
//! Source: Linux 7.2 `kernel/sched/core.c` (`cpu_max_write`, `tg_set_bandwidth`), `Documentation/admin-guide/cgroup-v2.rst`.

use std::fmt;

const NS_PER_US: u64 = 1_000;
/// Least quota and period, in us.
const LEAST_US: u64 = 1_000;
const LONGEST_PERIOD_US: u64 = 1_000_000;
/// Largest sum of quota and burst, in us: what the kernel's arithmetic bears.
const LARGEST_US: u64 = (1 << 44) - 1;

/// What a group may use in each period: never more than the kernel accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuMax {
    quota_ns: u64,
    period_ns: u64,
    burst_ns: u64,
}

/// A quota that the kernel refuses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum CpuMaxError {
    #[error(
        "cpu.max is \"QUOTA PERIOD\" in microseconds, such as \"200000 100000\" for two CPUs, or \"max\"; \"{text}\" is not"
    )]
    Form { text: String },
    #[error("a quota of {us} us is less than the kernel's least, {LEAST_US} us; write \"max\" for a group without one")]
    Quota { us: u64 },
    #[error("a period of {us} us is not one of {LEAST_US} to {LONGEST_PERIOD_US} us")]
    Period { us: u64 },
    #[error("a burst of {burst_us} us is more than the quota of {quota_us} us; the kernel takes none that is")]
    Burst { burst_us: u64, quota_us: u64 },
    #[error("a burst of {burst_us} us is for a group with a quota; say it in \"cpu_max\"")]
    BurstOfNothing { burst_us: u64 },
    #[error("quota and burst make {us} us, more than the kernel's {LARGEST_US} us")]
    Large { us: u64 },
}

impl CpuMax {
    /// Period of a quota that says none (`default_bw_period_us`).
    pub(crate) const DEFAULT_PERIOD_US: u64 = 100_000;

    /// A quota, in microseconds.
    ///
    /// # Errors
    /// If the kernel would refuse it.
    pub fn new(quota_us: u64, period_us: u64, burst_us: u64) -> Result<Self, CpuMaxError> {
        if quota_us < LEAST_US {
            return Err(CpuMaxError::Quota { us: quota_us });
        }
        if !(LEAST_US..=LONGEST_PERIOD_US).contains(&period_us) {
            return Err(CpuMaxError::Period { us: period_us });
        }
        if burst_us > quota_us {
            return Err(CpuMaxError::Burst { burst_us, quota_us });
        }
        if quota_us.saturating_add(burst_us) > LARGEST_US {
            return Err(CpuMaxError::Large { us: quota_us.saturating_add(burst_us) });
        }
        let [quota_ns, period_ns, burst_ns] = [quota_us, period_us, burst_us].map(|us| us * NS_PER_US);
        Ok(Self { quota_ns, period_ns, burst_ns })
    }

    /// What the files say: `cpu.max` as `QUOTA [PERIOD]`, where `max` is no quota, and `cpu.max.burst`.
    ///
    /// # Errors
    /// If a text is none of these, or the kernel would refuse it.
    pub fn parse(text: &str, burst_us: u64) -> Result<Option<Self>, CpuMaxError> {
        let form = || CpuMaxError::Form { text: text.to_owned() };
        let number = |word: &str| word.parse::<u64>().map_err(|_| form());
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (quota, period_us) = match words[..] {
            [quota] => (quota, Self::DEFAULT_PERIOD_US),
            [quota, period] => (quota, number(period)?),
            _ => return Err(form()),
        };
        match quota {
            "max" if burst_us > 0 => Err(CpuMaxError::BurstOfNothing { burst_us }),
            // A period without a quota is checked all the same.
            "max" => Self::new(LEAST_US, period_us, 0).map(|_| None),
            quota => Self::new(number(quota)?, period_us, burst_us).map(Some),
        }
    }

    /// CPU time that comes with each period, of all CPUs together.
    pub fn quota_ns(self) -> u64 {
        self.quota_ns
    }

    /// Length of a period.
    pub fn period_ns(self) -> u64 {
        self.period_ns
    }

    /// What may be kept of earlier periods beside a quota.
    pub fn burst_ns(self) -> u64 {
        self.burst_ns
    }

    /// `cpu.max.burst`.
    pub fn burst_us(self) -> u64 {
        self.burst_ns / NS_PER_US
    }
}

/// As in `cpu.max`.
impl fmt::Display for CpuMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.quota_ns / NS_PER_US, self.period_ns / NS_PER_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_as_the_kernel_writes_them() {
        let two_cpus = CpuMax::new(200_000, 100_000, 50_000).unwrap();
        assert_eq!(CpuMax::parse("200000 100000", 50_000), Ok(Some(two_cpus)));
        assert_eq!(CpuMax::parse("200000", 50_000), Ok(Some(two_cpus)));
        assert_eq!((two_cpus.to_string().as_str(), two_cpus.burst_us()), ("200000 100000", 50_000));
        assert_eq!((CpuMax::parse("max 100000", 0), CpuMax::parse("max", 0)), (Ok(None), Ok(None)));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        for (text, burst_us, problem) in [
            ("0 100000", 0, "less than the kernel's least, 1000 us"),
            ("999 100000", 0, "less than the kernel's least"),
            ("20000 0", 0, "a period of 0 us"),
            ("20000 999", 0, "not one of 1000 to 1000000"),
            ("20000 1000001", 0, "not one of 1000 to 1000000"),
            ("20000 100000", 20_001, "a burst of 20001 us is more than the quota of 20000"),
            ("max 100000", 1, "for a group with a quota"),
            ("max 0", 0, "a period of 0 us"),
            ("17592186044415 100000", 1, "more than the kernel's"),
            ("", 0, "QUOTA PERIOD"),
            ("2 CPUs", 0, "QUOTA PERIOD"),
            ("-1", 0, "QUOTA PERIOD"),
            ("1 2 3", 0, "QUOTA PERIOD"),
        ] {
            let error = CpuMax::parse(text, burst_us).expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
