//! Per-entity load tracking (`docs/spec/linux-fair.md` section 2; kernel `pelt.c`).
//!
//! Each signal is an average of a state with exponentially decaying memory: half-life 32 periods of 1024 × 1024 ns,
//! which is exactly 2^25 ns. Between two events the state is constant, so the average has a closed form,
//! `a ← x + (a − x)·2^(−Δt / 2^25 ns)`, and is brought up to date only when something reads or changes it.
//!
//! Differs from the kernel: no accumulation in steps of 1024 ns and no truncation of sums (within ±2 units of 1024). Loads are rounded where they
//! are read (`whole_load`): of a task of weight 3 the truncation takes a third.
//! Arithmetic is IEEE double addition and multiplication in a fixed order, hence the same on every machine.

/// Half-life of all signals in nanoseconds: 32 periods of 1024 × 1024 ns.
pub(crate) const HALF_LIFE_NS: u64 = 1 << 25;

/// Steps into which a half-life is tabulated; the rest is a straight line (relative error below 2.4e-7).
const TABLE_BITS: u32 = 10;
const STEP_BITS: u32 = 25 - TABLE_BITS;
const TABLE_LEN: usize = 1 << TABLE_BITS;

/// `2^(−i / 1024)` for each step of a half-life.
static DECAY: [f64; TABLE_LEN] = decay_table();

const fn decay_table() -> [f64; TABLE_LEN] {
    // 2^(-1/1024), the nearest double. Errors of repeated multiplication stay below 1e-13.
    const STEP: f64 = 0.999_323_327_502_650_8;
    let mut table = [1.0; TABLE_LEN];
    let mut index = 1;
    while index < TABLE_LEN {
        table[index] = table[index - 1] * STEP;
        index += 1;
    }
    table
}

/// What is left of a signal after `delta_ns` without contribution: `2^(−delta / 2^25)`.
#[inline]
pub fn decay(delta_ns: u64) -> f64 {
    /// `ln 2 / 2^25`.
    const LINEAR: f64 = std::f64::consts::LN_2 / HALF_LIFE_NS as f64;
    let halvings = delta_ns >> 25;
    if halvings >= 63 {
        return 0.0;
    }
    let step = (delta_ns >> STEP_BITS) as usize & (TABLE_LEN - 1);
    // A signed conversion is one instruction, an unsigned one several.
    let rest = f64::from((delta_ns & ((1 << STEP_BITS) - 1)) as i32);
    let factor = DECAY[step] * (1.0 - rest * LINEAR);
    if halvings == 0 { factor } else { factor / (1u64 << halvings) as f64 }
}

/// Averages of one entity or run queue.
///
/// For an entity `load` is the share of time it was on the queue, 0..=1024, to be multiplied with its weight; for a
/// run queue it is in units of weight. `runnable` and `util` are in units of 1024 = one always-on task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pelt {
    /// Time up to which the averages are valid.
    pub last_update_ns: u64,
    /// Load average.
    pub load: f64,
    /// Runnable average: running or waiting.
    pub runnable: f64,
    /// Utilisation average: running.
    pub util: f64,
}

impl Pelt {
    /// Brings the averages to `now_ns`, given the state that held since the last update.
    #[inline]
    pub fn update(&mut self, now_ns: u64, load: f64, runnable: f64, util: f64) {
        let delta = now_ns - self.last_update_ns;
        if delta == 0 {
            return;
        }
        let kept = decay(delta);
        self.last_update_ns = now_ns;
        self.load = load + (self.load - load) * kept;
        self.runnable = runnable + (self.runnable - runnable) * kept;
        self.util = util + (self.util - util) * kept;
    }

    /// Adds averages, which must be valid at the same time, or takes away negative ones, never below zero (`attach_entity_load_avg`,
    /// `add_positive`).
    #[inline]
    pub fn change(&mut self, load: f64, runnable: f64, util: f64) {
        self.load = (self.load + load).max(0.0);
        self.runnable = (self.runnable + runnable).max(0.0);
        self.util = (self.util + util).max(0.0);
    }

    /// Removes averages, never below zero (`detach_entity_load_avg`, `sub_positive`).
    #[inline]
    pub fn detach(&mut self, load: f64, runnable: f64, util: f64) {
        self.change(-load, -runnable, -util);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_matches_the_power_function() {
        for delta in [0, 1, 1000, 32_767, 32_768, 1_048_576, 33_554_432, 100_000_000, 1_000_000_000, 3_000_000_000] {
            let exact = (-(delta as f64) / HALF_LIFE_NS as f64).exp2();
            assert!((decay(delta) - exact).abs() < 3e-7 * exact + 1e-20, "{delta}: {} {exact}", decay(delta));
        }
        assert_eq!(decay(u64::MAX), 0.0);
    }

    /// `docs/spec/linux-fair.md` section 2.1: always running from zero, by milliseconds of the load tracking clock,
    /// whose microsecond is 1024 ns.
    #[test]
    fn a_running_task_ramps_up_as_tabulated() {
        for (ms, util) in [(4, 83), (8, 159), (16, 294), (32, 504), (64, 760), (100, 901), (200, 1009), (345, 1023)] {
            let mut pelt = Pelt::default();
            pelt.update(ms * 1000 * 1024, 0.0, 0.0, 1024.0);
            assert!((pelt.util - f64::from(util)).abs() <= 2.0, "{ms} ms: {} for {util}", pelt.util);
        }
    }

    /// The kernel's recurrence, unit by unit of 1024 ns: what is in the sum decays by y at the end of each period of 1024
    /// units, and the average divides by the greatest sum there can be at this point of a period.
    #[test]
    fn the_closed_form_follows_the_kernels_sums() {
        const LOAD_AVG_MAX: u64 = 47_742;
        let y = 0.5f64.powf(1.0 / 32.0);
        let mut sum = 0.0;
        for unit in 1..=300_000u64 {
            sum += 1.0;
            if unit % 1024 == 0 {
                sum *= y;
            }
            if unit % 997 == 0 {
                let kernel = 1024.0 * sum / (LOAD_AVG_MAX - 1024 + unit % 1024) as f64;
                let mut pelt = Pelt::default();
                pelt.update(unit * 1024, 0.0, 0.0, 1024.0);
                assert!((pelt.util - kernel).abs() <= 2.0, "{unit} units: {} for {kernel}", pelt.util);
            }
        }
    }

    #[test]
    fn updating_in_pieces_changes_nothing() {
        let mut whole = Pelt { util: 300.0, ..Pelt::default() };
        let mut pieces = whole;
        whole.update(50_000_123, 0.0, 0.0, 1024.0);
        for now in (1..=50_000_123).step_by(77_777).chain([50_000_123]) {
            pieces.update(now, 0.0, 0.0, 1024.0);
        }
        assert!((whole.util - pieces.util).abs() < 0.01);
    }
}
