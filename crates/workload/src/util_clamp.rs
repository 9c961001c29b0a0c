//! Utilisation clamps: between which utilisations the kernel takes a task to be when it chooses a CPU for it and a frequency for the CPU.
//!
//! Source: Linux 7.2 `kernel/sched/syscalls.c` (`uclamp_validate`), `kernel/sched/core.c` (`capacity_from_percent`),
//! `Documentation/scheduler/sched-util-clamp.rst`, `Documentation/admin-guide/cgroup-v2.rst` (`cpu.uclamp.min`, `cpu.uclamp.max`).

use std::fmt;

/// The whole of the biggest CPU (`SCHED_CAPACITY_SCALE`).
const WHOLE: u16 = 1024;

/// What a task asks for (`sched_util_min`, `sched_util_max` of `sched_setattr`): utilisations of 0 to 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UtilClamp {
    min: Option<u16>,
    max: Option<u16>,
}

/// A request that the kernel refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum UtilClampError {
    #[error("{key} is a utilisation of 0 to {WHOLE}, of which {WHOLE} is the whole of the biggest CPU, not {value}")]
    Range { key: &'static str, value: i64 },
    #[error("util_min {min} is above util_max {max}, which no kernel accepts; state both, the smaller one as util_min")]
    Order { min: u16, max: u16 },
}

impl UtilClamp {
    /// No request at all.
    pub const NONE: Self = Self { min: None, max: None };
    /// A whole CPU at least, which a real-time task counts as asking for (`sched_util_clamp_min_rt_default`).
    pub const WHOLE_CPU: Self = Self { min: Some(WHOLE), max: None };

    /// A request; what is `None` stays as it is.
    ///
    /// # Errors
    /// If a utilisation is out of range, or `min` is above `max`.
    pub fn new(min: Option<i64>, max: Option<i64>) -> Result<Self, UtilClampError> {
        let utilisation = |key, value: Option<i64>| match value {
            Some(value) if !(0..=i64::from(WHOLE)).contains(&value) => Err(UtilClampError::Range { key, value }),
            value => Ok(value.map(|value| value as u16)),
        };
        let request = Self { min: utilisation("util_min", min)?, max: utilisation("util_max", max)? };
        request.checked()
    }

    fn checked(self) -> Result<Self, UtilClampError> {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => Err(UtilClampError::Order { min, max }),
            _ => Ok(self),
        }
    }

    /// The request of a task that has made another one before: what this one does not name stays.
    ///
    /// # Errors
    /// If the two together are a `min` above a `max`, which `sched_setattr` refuses.
    pub fn after(self, before: Self) -> Result<Self, UtilClampError> {
        Self { min: self.min.or(before.min), max: self.max.or(before.max) }.checked()
    }

    /// Utilisation asked for at least.
    pub const fn min(self) -> Option<u16> {
        self.min
    }

    /// Utilisation asked for at most.
    pub const fn max(self) -> Option<u16> {
        self.max
    }

    /// Whether it asks for nothing.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Such as `util_min 300 and util_max 500`.
impl fmt::Display for UtilClamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "util_min {min} and util_max {max}"),
            (Some(min), None) => write!(f, "util_min {min}"),
            (None, Some(max)) => write!(f, "util_max {max}"),
            (None, None) => f.write_str("no utilisation clamp"),
        }
    }
}

/// A bound of a task group (`cpu.uclamp.min`, `cpu.uclamp.max`), in hundredths of a percent of the biggest CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClampPercent(u16);

/// A text that the files do not take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum ClampPercentError {
    #[error(
        "cpu.uclamp.min and cpu.uclamp.max are percentages with at most two decimals, such as \"37.5\", or \"max\"; \"{text}\" is not"
    )]
    Form { text: String },
    #[error("\"{text}\" is above 100, the whole of the biggest CPU; write \"max\" for no limit")]
    Large { text: String },
    #[error("cpu.uclamp.min {min} is above cpu.uclamp.max {max}, at which the kernel would cut it off; lower it")]
    Order { min: ClampPercent, max: ClampPercent },
}

impl ClampPercent {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// The whole of the biggest CPU.
    pub const WHOLE: Self = Self(100 * 100);

    /// What a file says: a percentage, or `max`.
    ///
    /// # Errors
    /// If the kernel would not take the text.
    pub fn parse(text: &str) -> Result<Self, ClampPercentError> {
        let form = || ClampPercentError::Form { text: text.to_owned() };
        if text == "max" {
            return Ok(Self::WHOLE);
        }
        let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || rest.len() > 2 || !digits(whole) || !digits(rest) || text.ends_with('.') {
            return Err(form());
        }
        let hundredths = format!("{whole}{rest:0<2}").parse::<u64>().unwrap_or(u64::MAX);
        match u16::try_from(hundredths).map(Self) {
            Ok(percent) if percent <= Self::WHOLE => Ok(percent),
            _ => Err(ClampPercentError::Large { text: text.to_owned() }),
        }
    }

    /// The utilisation, to the nearest (`capacity_from_percent`).
    pub fn utilisation(self) -> u16 {
        let whole = u32::from(Self::WHOLE.0);
        ((u32::from(self.0) * u32::from(WHOLE) + whole / 2) / whole) as u16
    }
}

/// As the files take it.
impl fmt::Display for ClampPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WHOLE => f.write_str("max"),
            Self(hundredths) => write!(f, "{}.{:02}", hundredths / 100, hundredths % 100),
        }
    }
}

/// Both bounds of a task group: what its tasks get at least and at most, whatever they ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupClamp {
    /// `cpu.uclamp.min`.
    pub min: ClampPercent,
    /// `cpu.uclamp.max`.
    pub max: ClampPercent,
}

impl Default for GroupClamp {
    fn default() -> Self {
        Self { min: ClampPercent::NOTHING, max: ClampPercent::WHOLE }
    }
}

impl GroupClamp {
    /// Bounds of a group.
    ///
    /// # Errors
    /// If the lower one is above the upper one.
    pub fn new(min: ClampPercent, max: ClampPercent) -> Result<Self, ClampPercentError> {
        if min > max { Err(ClampPercentError::Order { min, max }) } else { Ok(Self { min, max }) }
    }

    /// Whether it bounds nothing.
    pub fn is_default(self) -> bool {
        self == Self::default()
    }

    /// Both as utilisations.
    pub fn utilisations(self) -> [u16; 2] {
        [self.min.utilisation(), self.max.utilisation()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let refused = |min, max| UtilClamp::new(min, max).unwrap_err().to_string();
        assert!(refused(Some(1025), None).contains("util_min is a utilisation of 0 to 1024"));
        assert!(refused(None, Some(-1)).ends_with("not -1"));
        assert!(refused(Some(500), Some(499)).contains("util_min 500 is above util_max 499"));
        assert!(UtilClamp::new(Some(1024), Some(1024)).is_ok() && UtilClamp::new(Some(0), Some(0)).is_ok());
    }

    #[test]
    fn what_a_request_does_not_name_stays() {
        let clamp = |min, max| UtilClamp::new(min, max).unwrap();
        assert_eq!(clamp(Some(300), None).after(clamp(Some(10), Some(400))), Ok(clamp(Some(300), Some(400))));
        assert_eq!(clamp(None, None).after(clamp(Some(10), None)), Ok(clamp(Some(10), None)));
        let error = clamp(Some(500), None).after(clamp(None, Some(400))).unwrap_err();
        assert_eq!(error, UtilClampError::Order { min: 500, max: 400 });
    }

    /// By hand: 20 % of 1024 is 204.8, 37.5 % is 384, 0.05 % is 0.512, 0.04 % is 0.41.
    #[test]
    fn percentages_become_the_nearest_utilisation() {
        for (text, utilisation, shown) in [
            ("20", 205, "20.00"),
            ("37.5", 384, "37.50"),
            ("0.05", 1, "0.05"),
            ("0.04", 0, "0.04"),
            ("0", 0, "0.00"),
            ("99.96", 1024, "99.96"),
            ("100", 1024, "max"),
            ("max", 1024, "max"),
        ] {
            let percent = ClampPercent::parse(text).unwrap();
            assert_eq!((percent.utilisation(), percent.to_string().as_str()), (utilisation, shown), "{text}");
        }
        for text in ["", ".5", "5.", "1.234", "-1", "20%", "a", " 5"] {
            assert!(matches!(ClampPercent::parse(text), Err(ClampPercentError::Form { .. })), "{text}");
        }
        for text in ["100.01", "99999", "99999999999999999999999"] {
            assert!(matches!(ClampPercent::parse(text), Err(ClampPercentError::Large { .. })), "{text}");
        }
        let [low, high] = ["10", "30"].map(|text| ClampPercent::parse(text).unwrap());
        assert_eq!(GroupClamp::new(low, high).unwrap().utilisations(), [102, 307]);
        assert!(GroupClamp::new(high, low).unwrap_err().to_string().contains("30.00 is above cpu.uclamp.max 10.00"));
    }
}
