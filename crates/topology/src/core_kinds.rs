//! Kinds of cores: at which frequencies they run, how they idle, and what power that takes.
//!
//! Data, not mechanism: the simulated kernel's governors choose among the frequencies, and its idle loop among the states. Power has the form
//! of the kernel's energy model (`Documentation/power/energy-model.rst`): a table of frequency and power. It is here the power of a core of
//! which a hardware thread is busy. Not here: the power of caches, memory and the rest of a package, and voltages, which are in the power.

use std::collections::BTreeSet;

use crate::{CpuId, Error, Machine, Origin, Result, format_cpu_list};

/// Highest number of frequencies of a kind of core.
const MAX_STATES: usize = 512;

crate::worded! {
    /// Which CPUs have one clock: a cpufreq policy's `related_cpus`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ClockScope: name {
        /// Those of a core.
        Core = "core",
        /// Those of a cluster.
        Cluster = "cluster",
        /// Those of an LLC.
        Llc = "llc",
        /// Those of a socket.
        Socket = "socket",
    }
}

impl ClockScope {
    /// Number of a CPU's group among those of this scope.
    fn group(self, machine: &Machine, cpu: CpuId) -> u32 {
        match self {
            Self::Core => machine.core_of(cpu).0,
            Self::Cluster => machine.cluster_of(cpu).0,
            Self::Llc => machine.llc_of(cpu).0,
            Self::Socket => machine.socket_of(cpu).0,
        }
    }
}

/// A way of a core to idle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleState {
    /// Its name, as in `/sys/devices/system/cpu/cpu0/cpuidle/state1/name`.
    pub name: String,
    /// Time to leave it (`latency`), in ns.
    pub exit_ns: u64,
    /// Time from which it is worth it (`residency`), in ns.
    pub residency_ns: u64,
    /// Power of a core in it, in µW.
    pub power_uw: Option<u64>,
}

/// Cores of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreKind {
    /// Name, unique in the machine.
    pub name: String,
    /// Its CPUs, in the operating system's numbers; `None` for all of a machine.
    pub cpus: Option<BTreeSet<u32>>,
    /// Which of them have one clock.
    pub clock: ClockScope,
    /// The frequency at which CPUs have their capacity, and at which times of a workload's work hold, in MHz.
    pub reference_mhz: u32,
    /// The frequencies that a governor can ask for, ascending, in MHz.
    pub frequencies_mhz: Vec<u32>,
    /// Highest frequency while at most so many cores of the socket are active, by ascending number; beyond the last, the last holds.
    pub turbo: Vec<(u32, u32)>,
    /// Time from a request to another frequency (`cpuinfo_transition_latency`), in ns.
    pub transition_ns: u64,
    /// Power of a busy core at frequencies (MHz, µW), ascending; straight lines between them. Empty: not known.
    pub power_uw: Vec<(u32, u64)>,
    /// Idle states from the shallowest to the deepest; empty: leaving idle takes the machine's `idle_exit_ns`.
    pub idle: Vec<IdleState>,
    /// What the frequencies rest on.
    pub origin: Origin,
    /// What power rests on.
    pub power_origin: Origin,
    /// What idle states rest on.
    pub idle_origin: Origin,
}

impl CoreKind {
    /// Whether energy can be computed.
    pub fn has_energy_model(&self) -> bool {
        !self.power_uw.is_empty()
    }

    /// Power of a busy core at a frequency, in µW; 0 without a model.
    pub fn busy_power_uw(&self, mhz: u32) -> u64 {
        let above = self.power_uw.partition_point(|(at, _)| *at < mhz);
        let Some(&(high_mhz, high)) = self.power_uw.get(above) else {
            return self.power_uw.last().map_or(0, |(_, power)| *power);
        };
        let Some(&(low_mhz, low)) = above.checked_sub(1).and_then(|below| self.power_uw.get(below)) else {
            return high;
        };
        low + (high - low) * u64::from(mhz - low_mhz) / u64::from(high_mhz - low_mhz)
    }

    /// The highest frequency while so many cores of the socket are active.
    pub fn limit_mhz(&self, active_cores: u32) -> u32 {
        let held = self.turbo.iter().find(|(cores, _)| active_cores <= *cores).or(self.turbo.last());
        held.map_or(self.highest_mhz(), |(_, mhz)| *mhz)
    }

    /// The lowest frequency.
    pub fn lowest_mhz(&self) -> u32 {
        self.frequencies_mhz[0]
    }

    /// The highest frequency.
    pub fn highest_mhz(&self) -> u32 {
        *self.frequencies_mhz.last().expect("a checked kind has frequencies")
    }

    /// The lowest frequency at or above one, or the highest (`CPUFREQ_RELATION_L`).
    pub fn resolve_mhz(&self, mhz: u32) -> u32 {
        let position = self.frequencies_mhz.partition_point(|state| *state < mhz);
        self.frequencies_mhz.get(position).copied().unwrap_or_else(|| self.highest_mhz())
    }

    /// Refuses what cannot be. With a reason.
    pub(crate) fn check(&self) -> Result<(), String> {
        let states = &self.frequencies_mhz;
        if states.is_empty() || states.len() > MAX_STATES {
            return Err(format!("{} frequencies are not 1 to {MAX_STATES}", states.len()));
        }
        if let Some(pair) = states.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!("frequencies are out of order: {} MHz comes before {} MHz", pair[0], pair[1]));
        }
        let (lowest, highest) = (self.lowest_mhz(), self.highest_mhz());
        let possible = |what: &str, mhz: u32| {
            let reason = format!("{what} {mhz} MHz is not between its frequencies, {lowest} to {highest} MHz");
            if (lowest..=highest).contains(&mhz) { Ok(()) } else { Err(reason) }
        };
        if lowest == 0 || highest > 20_000 {
            return Err(format!("frequencies of {lowest} to {highest} MHz are not within 1 to 20000"));
        }
        possible("the reference", self.reference_mhz)?;
        for &(_, mhz) in &self.turbo {
            possible("turbo of", mhz)?;
        }
        if let Some(pair) = self.turbo.windows(2).find(|pair| pair[0].0 >= pair[1].0 || pair[0].1 < pair[1].1) {
            let ((few, fast), (more, slow)) = (pair[0], pair[1]);
            return Err(format!(
                "turbo is out of order: {fast} MHz of {few} cores comes before {slow} MHz of {more}; cores rise and frequencies fall"
            ));
        }
        if self.turbo.iter().any(|(cores, _)| *cores == 0) {
            return Err("turbo of 0 cores".to_owned());
        }
        self.check_power()?;
        if let Some(pair) = self
            .idle
            .windows(2)
            .find(|pair| pair[0].residency_ns >= pair[1].residency_ns || pair[0].exit_ns > pair[1].exit_ns)
        {
            let (first, second) = (&pair[0].name, &pair[1].name);
            return Err(format!(
                "idle states are out of order: `{first}` before `{second}`; the shallowest comes first"
            ));
        }
        Ok(())
    }

    fn check_power(&self) -> Result<(), String> {
        if let Some(pair) = self.power_uw.windows(2).find(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return Err(format!("power is out of order: {} MHz before {} MHz; neither may fall", pair[0].0, pair[1].0));
        }
        if let (Some((low, _)), Some((high, _))) = (self.power_uw.first(), self.power_uw.last()) {
            let (lowest, highest) = (self.lowest_mhz(), self.highest_mhz());
            if *low > lowest || *high < highest {
                return Err(format!(
                    "power is known from {low} to {high} MHz, but its frequencies are {lowest} to {highest} MHz"
                ));
            }
        }
        for state in &self.idle {
            match (self.has_energy_model(), state.power_uw) {
                (false, Some(_)) => {
                    return Err(format!(
                        "idle state `{}` has `power_mw`, but the kind has no energy model: give `power_mw = [[MHz, mW], ...]`",
                        state.name
                    ));
                }
                (true, None) => {
                    return Err(format!("its energy model needs `power_mw` of idle state `{}`, too", state.name));
                }
                _ => {}
            }
        }
        if self.has_energy_model() && self.idle.is_empty() {
            return Err("its energy model needs idle states with `power_mw`, too".to_owned());
        }
        Ok(())
    }
}

impl Machine {
    /// Kinds of its cores; none where the machine does not state frequencies to choose from. Otherwise each CPU is of one.
    pub fn core_kinds(&self) -> &[CoreKind] {
        &self.core_kinds
    }

    /// Index of the kind that a CPU is of, where there are kinds.
    pub fn core_kind_of(&self, cpu: CpuId) -> Option<usize> {
        let os_index = self.os_index(cpu);
        self.core_kinds.iter().position(|kind| kind.cpus.as_ref().is_none_or(|cpus| cpus.contains(&os_index)))
    }

    /// Number of a CPU's clock: those with the same number have one frequency. Numbers are in no order and may have gaps.
    pub fn clock_of(&self, cpu: CpuId) -> Option<(usize, u32)> {
        let kind = self.core_kind_of(cpu)?;
        Some((kind, self.core_kinds[kind].clock.group(self, cpu)))
    }

    /// Whether energy can be computed: all kinds of cores have a model.
    pub fn has_energy_model(&self) -> bool {
        !self.core_kinds.is_empty() && self.core_kinds.iter().all(CoreKind::has_energy_model)
    }

    /// The machine with kinds of cores.
    ///
    /// # Errors
    /// [`Error::Impossible`] for a kind that cannot be, a CPU of no kind or of two, and a core of two.
    pub(crate) fn with_core_kinds(mut self, kinds: Vec<CoreKind>) -> Result<Self> {
        let impossible = |reason: String, hint: &str| Error::Impossible {
            machine: self.name.clone(),
            reason,
            hint: hint.to_owned(),
        };
        for (position, kind) in kinds.iter().enumerate() {
            kind.check().map_err(|reason| impossible(format!("core kind `{}`: {reason}", kind.name), ""))?;
            if kinds[..position].iter().any(|other| other.name == kind.name) {
                return Err(impossible(format!("two core kinds are called `{}`", kind.name), "give each its `name`"));
            }
            let missing = kind.cpus.iter().flatten().find(|cpu| self.cpu_by_os_index(**cpu).is_none());
            if let Some(cpu) = missing {
                return Err(impossible(format!("core kind `{}` lists CPU {cpu}, which is not online", kind.name), ""));
            }
        }
        let of = |cpu: CpuId| {
            let os_index = self.os_index(cpu);
            let has = move |kind: &&CoreKind| kind.cpus.as_ref().is_none_or(|cpus| cpus.contains(&os_index));
            kinds.iter().filter(has).map(|kind| kind.name.as_str()).collect::<Vec<&str>>()
        };
        if !kinds.is_empty() {
            let without = self.cpus().filter(|cpu| of(*cpu).is_empty()).map(|cpu| self.os_index(cpu));
            let without = format_cpu_list(without);
            if !without.is_empty() {
                let hint = "each CPU of a machine with core kinds has one; a kind without `cpus` has all";
                return Err(impossible(format!("CPUs {without} have no core kind"), hint));
            }
        }
        for cpu in self.cpus().filter(|_| !kinds.is_empty()) {
            if let [first, second, ..] = of(cpu)[..] {
                let reason = format!("CPU {} is of core kinds `{first}` and `{second}`", self.os_index(cpu));
                return Err(impossible(reason, "give each kind its `cpus`"));
            }
            let first = self.cpus_of_core(self.core_of(cpu)).first().expect("a core has CPUs");
            if of(first) != of(cpu) {
                let reason = format!("CPUs {} and {} are one core", self.os_index(first), self.os_index(cpu));
                return Err(impossible(format!("{reason}, but of two core kinds"), ""));
            }
        }
        self.core_kinds = kinds;
        Ok(self)
    }
}
