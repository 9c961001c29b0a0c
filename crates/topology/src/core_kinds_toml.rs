//! Reading and writing of `[[core_kind]]` in machine files. The format is described in `machines/README.md`.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::core_kinds::{ClockScope, CoreKind, IdleState};
use crate::toml_read::{given, optional_origin};
use crate::toml_write::quote;
use crate::units::{decimal, scaled};
use crate::{Basis, Origin, format_cpu_list, parse_cpu_list};

/// Longest transition, exit latency or residency: 1 s.
const MAX_NS: u64 = 1_000_000_000;
/// Highest power of a core: 1 kW.
const MAX_UW: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCoreKind {
    #[serde(default)]
    name: String,
    cpus: Option<String>,
    clock_shared_by: Option<String>,
    reference_mhz: Option<u32>,
    frequencies_mhz: Option<Vec<u32>>,
    min_mhz: Option<u32>,
    max_mhz: Option<u32>,
    step_mhz: Option<u32>,
    #[serde(default)]
    turbo_mhz: Vec<(u32, u32)>,
    #[serde(default)]
    transition_us: f64,
    #[serde(default)]
    power_mw: Vec<(u32, f64)>,
    #[serde(default)]
    idle: Vec<RawIdleState>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
    #[serde(default, deserialize_with = "optional_origin")]
    power_origin: Option<Origin>,
    #[serde(default, deserialize_with = "optional_origin")]
    idle_origin: Option<Origin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIdleState {
    name: String,
    exit_us: f64,
    residency_us: f64,
    power_mw: Option<f64>,
}

impl RawCoreKind {
    /// The origins it gives.
    pub(crate) fn origins(&self) -> [Option<&Origin>; 3] {
        [self.origin.as_ref(), self.power_origin.as_ref(), self.idle_origin.as_ref()]
    }

    /// The kind. Fails with a reason.
    pub(crate) fn read(self) -> Result<CoreKind, String> {
        let name = if self.name.is_empty() { "core".to_owned() } else { self.name.clone() };
        let fail = |reason: String| format!("core kind `{name}`: {reason}");
        let cpus = self.cpus.as_deref().map(parse_cpu_list).transpose();
        let cpus = cpus.map_err(|error| fail(error.to_string()))?;
        let frequencies_mhz = self.frequencies().map_err(fail)?;
        let clock = self.clock().map_err(fail)?;
        let highest = frequencies_mhz.last().copied().unwrap_or(0);
        let reference_mhz = self.reference_mhz.unwrap_or(highest);
        let power = self.power_mw.iter().map(|&(mhz, power_mw)| Ok((mhz, microwatts(power_mw)?)));
        let power_uw = power.collect::<Result<_, String>>().map_err(fail)?;
        let idle = self.idle.iter().map(RawIdleState::read).collect::<Result<_, _>>().map_err(fail)?;
        let transition_ns = nanoseconds("transition_us", self.transition_us).map_err(fail)?;
        let origin = self.origin.unwrap_or_else(given);
        let kind = CoreKind {
            cpus,
            clock,
            reference_mhz,
            frequencies_mhz,
            turbo: self.turbo_mhz,
            transition_ns,
            power_uw,
            idle,
            power_origin: self.power_origin.unwrap_or_else(|| origin.clone()),
            idle_origin: self.idle_origin.unwrap_or_else(|| origin.clone()),
            origin,
            name: name.clone(),
        };
        kind.check().map_err(fail)?;
        Ok(kind)
    }

    fn clock(&self) -> Result<ClockScope, String> {
        let Some(wanted) = self.clock_shared_by.as_deref() else { return Ok(ClockScope::Core) };
        ClockScope::ALL.into_iter().find(|scope| scope.name() == wanted).ok_or_else(|| {
            format!("unknown `clock_shared_by = \"{wanted}\"`; it is one of {}", ClockScope::WORDS.join(", "))
        })
    }

    fn frequencies(&self) -> Result<Vec<u32>, String> {
        match (&self.frequencies_mhz, self.min_mhz, self.max_mhz, self.step_mhz) {
            (Some(states), None, None, None) => Ok(states.clone()),
            (None, Some(min), Some(max), step) => {
                let step = step.unwrap_or(100);
                if min > max || step == 0 || !(max - min).is_multiple_of(step) || max > 20_000 {
                    return Err(format!(
                        "frequencies of min_mhz = {min} to max_mhz = {max} in steps of step_mhz = {step}: they rise, and steps fill the range"
                    ));
                }
                Ok((min..=max).step_by(step as usize).collect())
            }
            _ => {
                Err("give either `frequencies_mhz`, or `min_mhz` and `max_mhz` with `step_mhz` (100 by default)"
                    .to_owned())
            }
        }
    }
}

impl RawIdleState {
    fn read(&self) -> Result<IdleState, String> {
        Ok(IdleState {
            name: self.name.clone(),
            exit_ns: nanoseconds("exit_us", self.exit_us)?,
            residency_ns: nanoseconds("residency_us", self.residency_us)?,
            power_uw: self.power_mw.map(microwatts).transpose()?,
        })
    }
}

fn nanoseconds(key: &str, microseconds: f64) -> Result<u64, String> {
    scaled(microseconds, 3)
        .filter(|ns| *ns <= MAX_NS)
        .ok_or_else(|| format!("{key} = {microseconds} is not 0 to 1000000 with at most three decimals"))
}

fn microwatts(milliwatts: f64) -> Result<u64, String> {
    scaled(milliwatts, 3)
        .filter(|power| *power <= MAX_UW)
        .ok_or_else(|| format!("power of {milliwatts} mW is not 0 to 1000000 with at most three decimals"))
}

/// Prints the kinds of cores of a machine file.
pub(crate) fn core_kind_tables(kinds: &[CoreKind]) -> String {
    let mut text = String::new();
    for kind in kinds {
        let _ = writeln!(text, "\n[[core_kind]]\nname = {}", quote(&kind.name));
        if let Some(cpus) = &kind.cpus {
            let _ = writeln!(text, "cpus = \"{}\"", format_cpu_list(cpus.iter().copied()));
        }
        let given = Origin::new(Basis::Given, "");
        let origins = [
            ("", &kind.origin, &given),
            ("power_", &kind.power_origin, &kind.origin),
            ("idle_", &kind.idle_origin, &kind.origin),
        ];
        for (what, origin, usual) in origins {
            if origin != usual {
                let _ = writeln!(text, "{what}origin = {}", quote(&origin.to_string()));
            }
        }
        let _ = writeln!(text, "clock_shared_by = \"{}\"", kind.clock.name());
        let _ = writeln!(text, "reference_mhz = {}", kind.reference_mhz);
        let _ = writeln!(text, "frequencies_mhz = {:?}", kind.frequencies_mhz);
        let pairs = |pairs: Vec<String>| format!("[{}]", pairs.join(", "));
        if !kind.turbo.is_empty() {
            let turbo = kind.turbo.iter().map(|(cores, mhz)| format!("[{cores}, {mhz}]"));
            let _ = writeln!(text, "turbo_mhz = {}", pairs(turbo.collect()));
        }
        let _ = writeln!(text, "transition_us = {}", float(kind.transition_ns));
        if kind.has_energy_model() {
            let power = kind.power_uw.iter().map(|(mhz, power)| format!("[{mhz}, {}]", float(*power)));
            let _ = writeln!(text, "power_mw = {}", pairs(power.collect()));
        }
        for state in &kind.idle {
            let _ = writeln!(text, "\n[[core_kind.idle]]\nname = {}", quote(&state.name));
            let _ = writeln!(text, "exit_us = {}", float(state.exit_ns));
            let _ = writeln!(text, "residency_us = {}", float(state.residency_ns));
            if let Some(power) = state.power_uw {
                let _ = writeln!(text, "power_mw = {}", float(power));
            }
        }
    }
    text
}

/// Thousandths as a TOML float.
fn float(thousandths: u64) -> String {
    let text = decimal(thousandths, 3);
    if text.contains('.') { text } else { format!("{text}.0") }
}
