//! Profiles from counters (`docs/spec/memory-model.md` section 6.1 a): what a program missed at several cache sizes,
//! what it stalled for, and what its threads took from each other when they were split over two last-level caches.
//!
//! Input, as TOML ([`Counters::from_toml`]):
//!
//! ```toml
//! name = "mine"
//! line = 64                     # bytes; 64 by default
//! touches_per_ki = 120          # accesses to another line than the last, per 1000 instructions; assumed if missing
//! write_fraction = 0.3          # stores among them; 0.3 by default
//!
//! [[point]]                     # one per cache size, at least two: levels of a machine, ways allotted to the program
//! capacity = "48KiB"            # (resctrl), or other machines
//! ways = 12
//! mpki = 25.0                   # misses of a cache of this size per 1000 instructions, one thread alone
//!
//! [timing]                      # for cpi0 and mlp; assumed if missing
//! cpi = 1.1                     # cycles per instruction
//! stall_cycles_per_ki = 500     # cycles per 1000 instructions in which memory was waited for
//!
//! [[timing.level]]              # what was waited for
//! hits_per_ki = 18.9            # accesses that this level served
//! latency_cycles = 15           # its latency
//! [[timing.level]]
//! hits_per_ki = 6.1
//! latency_cycles = 300
//!
//! [sharing]                     # if threads share data
//! size = "1.5MiB"               # the shared data
//! write_fraction = 0.4          # of its touches; needed unless a split has cross_read_mpki or the splits differ
//!
//! [[sharing.split]]             # threads under one LLC and under another
//! near = 4
//! far = 4
//! rfo_mpki = 2.7                # L3 RFO misses per 1000 instructions, mean of all threads
//! cross_read_mpki = 1.6         # optional: loads served by the other LLC (HITM)
//! ```
//!
//! Output: one class of half the smallest size, which takes the touches that nothing else explains; classes whose sizes
//! and rates make the set-associative LRU formula of [`Curves::steady_in_sets`](crate::Curves::steady_in_sets) meet the
//! points, as few as meet them within 2 %, by damped least squares on logarithms; the shared class, whose rate and writes
//! follow from the race of `docs/spec/memory-model.md` section 4.4 for threads of equal speed.
//!
//! What the points do not say is assumed, and [`Fit::notes`] tells it. Sizes beyond the largest capacity are known from
//! the slope of the last points only. Scans and exposure are not fitted.

mod read;
mod sharing;
mod solve;

use thiserror::Error;

use crate::profile::{Class, Profile, ProfileError, Sharing};
use solve::Mixture;

pub use read::FitFileError;

/// Misses of a cache of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CachePoint {
    /// Size in bytes.
    pub capacity: u64,
    /// Lines per set.
    pub ways: u32,
    /// Misses per 1000 instructions.
    pub mpki: f64,
}

/// What a level of the hierarchy served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// Accesses per 1000 instructions.
    pub hits_per_ki: f64,
    /// Latency in cycles.
    pub latency_cycles: f64,
}

/// How long instructions took.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    /// Cycles per instruction.
    pub cpi: f64,
    /// Of 1000 instructions' cycles, those spent waiting for memory.
    pub stall_cycles_per_ki: f64,
    /// What was waited for.
    pub levels: Vec<Level>,
}

/// Threads of one process under two LLCs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Split {
    /// Threads under one.
    pub near: u32,
    /// Threads under the other.
    pub far: u32,
    /// L3 RFO misses per 1000 instructions, mean of all threads.
    pub rfo_mpki: f64,
    /// Loads served by the other LLC, the same way.
    pub cross_read_mpki: Option<f64>,
}

/// Data that threads share.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedData {
    /// Size in bytes.
    pub bytes: u64,
    /// Share of its touches that write, if known.
    pub write_fraction: Option<f64>,
    /// Measurements.
    pub splits: Vec<Split>,
}

/// All counters of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Counters {
    /// Name of the profile.
    pub name: String,
    /// Line size in bytes.
    pub line_bytes: u32,
    /// Line touches per 1000 instructions, if known.
    pub touches_per_ki: Option<f64>,
    /// Share of writes of private classes.
    pub write_fraction: f64,
    /// Cache sizes, in any order.
    pub points: Vec<CachePoint>,
    /// Times, if known.
    pub timing: Option<Timing>,
    /// Shared data, if any.
    pub sharing: Option<SharedData>,
}

/// Counters that no profile follows from.
#[derive(Clone, PartialEq, Debug, Error)]
#[allow(missing_docs)] // messages have the fields
pub enum FitError {
    #[error("{field} is {value}; it must be {allowed}")]
    Range { field: String, value: f64, allowed: &'static str },
    #[error("{count} cache sizes are too few; give misses at two or more, such as those of the L1, the L2 and the LLC")]
    TooFewPoints { count: usize },
    #[error("{capacity} bytes are not a whole number of sets of {ways} lines of {line} bytes; mend capacity or ways")]
    NoCache { capacity: u64, ways: u32, line: u32 },
    #[error("the capacity of {capacity} bytes appears twice; keep one of the points, or their mean")]
    DuplicateCapacity { capacity: u64 },
    #[error(
        "{more} misses per 1000 instructions with {larger} bytes, but {less} with {smaller}: a larger cache that misses \
         more cannot be described; were both measured with the same work?"
    )]
    NotFalling { smaller: u64, less: f64, larger: u64, more: f64 },
    #[error("{mpki} misses per 1000 instructions of {touches} touches; touches_per_ki must be larger")]
    MoreMissesThanTouches { mpki: f64, touches: f64 },
    #[error(
        "{stall} of {cycles} cycles per 1000 instructions are stalls, which leaves less than 0.05 cycles per instruction"
    )]
    AllStalls { stall: f64, cycles: f64 },
    #[error(
        "the splits do not say how many of the shared touches write: state sharing.write_fraction, cross_read_mpki, or \
         a split in other proportions"
    )]
    WritesUnknown,
    #[error("sharing has no splits; give at least one [[sharing.split]]")]
    NoSplits,
    #[error(
        "the nearest profile has {fitted:.4} misses per 1000 instructions in a cache of {capacity} bytes, where \
         {measured:.4} were measured; check this point, add points, or leave out what is not cache misses of one phase"
    )]
    Poor { capacity: u64, measured: f64, fitted: f64 },
    #[error(
        "the splits need {shared:.1} touches of shared data per 1000 instructions, and touches_per_ki is {touches:.1}"
    )]
    MoreSharedThanTouches { shared: f64, touches: f64 },
    #[error("the fitted profile is impossible: {0}")]
    Profile(#[from] ProfileError),
}

/// A fitted profile.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The profile.
    pub profile: Profile,
    /// Misses per 1000 instructions at the points, by capacity: measured and fitted.
    pub points: Vec<(CachePoint, f64)>,
    /// What was assumed, and what is not well known.
    pub notes: Vec<String>,
}

/// Misses per 1000 instructions below which a difference is none.
const FLOOR: f64 = 0.002;
/// How far a fit may be from the points to be good: 2 %.
const GOOD: f64 = 0.02;
/// Factor by which a fit may miss a point and still be one: beyond it the profile says nothing about the workload.
const USABLE: f64 = 2.0;
/// Touches per 1000 instructions beyond the misses of the smallest cache, where nothing is stated.
const ASSUMED_HITS: f64 = 100.0;
/// The least and the most misses in flight that a fitted profile states.
const MLP_BOUNDS: (f64, f64) = (1.0, 64.0);
/// Most classes that are fitted.
const MOST_CLASSES: usize = 5;

/// Fits a profile.
///
/// # Errors
/// Counters that contradict each other or cannot be.
pub fn fit(counters: &Counters) -> Result<Fit, FitError> {
    let mut notes = Vec::new();
    let points = sorted_points(counters)?;
    let touches = touches(counters, &points, &mut notes)?;
    let shared = counters.sharing.as_ref().map(shared_class).transpose()?;
    let lines = |bytes: u64| bytes as f64 / f64::from(counters.line_bytes);
    let of_shared = shared.as_ref().map(|class| (lines(class.bytes), class.touches_per_instruction * 1e3));
    if let Some((_, shared)) = of_shared
        && shared >= touches
    {
        return Err(FitError::MoreSharedThanTouches { shared, touches });
    }
    let mixture = solve::solve(&points, counters.line_bytes, touches, of_shared, &mut notes);
    let mut classes = classes(&mixture, counters);
    let (cpi0, mlp) = match &counters.timing {
        Some(timing) => core(timing, &mut notes)?,
        None => {
            notes.push("no timing: cpi0 0.6 and mlp 2 are assumed".to_owned());
            (0.6, 2.0)
        }
    };
    classes.extend(shared);
    let profile = Profile {
        name: counters.name.clone(),
        summary: "fitted to counters".to_owned(),
        origin: "fitted".to_owned(),
        cpi0,
        mlp,
        ipc_ceiling: None,
        message_lines: None,
        classes,
    };
    profile.check()?;
    let fitted: Vec<_> = points.iter().map(|point| (*point, mixture.mpki(point, counters.line_bytes))).collect();
    refuse_poor(&fitted)?;
    Ok(Fit { profile, points: fitted, notes })
}

fn shared_class(shared: &SharedData) -> Result<Class, FitError> {
    let (rate, writes) = sharing::solve(shared)?;
    Ok(Class { sharing: Sharing::Process, ..Class::new("shared", shared.bytes, rate, writes) })
}

/// Refuses a fit that misses its worst point by more than a factor of [`USABLE`].
fn refuse_poor(fitted: &[(CachePoint, f64)]) -> Result<(), FitError> {
    let factor = |(point, mpki): &(CachePoint, f64)| {
        let ratio = (mpki + FLOOR) / (point.mpki + FLOOR);
        ratio.max(1.0 / ratio)
    };
    match fitted.iter().max_by(|a, b| factor(a).total_cmp(&factor(b))) {
        Some(worst) if factor(worst) > USABLE => {
            Err(FitError::Poor { capacity: worst.0.capacity, measured: worst.0.mpki, fitted: worst.1 })
        }
        _ => Ok(()),
    }
}

fn range(field: &str, value: f64, least: f64, most: f64, allowed: &'static str) -> Result<(), FitError> {
    // Written so that NaN fails.
    let inside = value >= least && value <= most;
    if inside { Ok(()) } else { Err(FitError::Range { field: field.to_owned(), value, allowed }) }
}

/// The points by capacity, checked.
fn sorted_points(counters: &Counters) -> Result<Vec<CachePoint>, FitError> {
    let line = counters.line_bytes;
    if !line.is_power_of_two() || !(8..=4096).contains(&line) {
        return range("line", f64::from(line), f64::INFINITY, 0.0, "a power of two from 8 to 4096")
            .map(|()| Vec::new());
    }
    range("write_fraction", counters.write_fraction, 0.0, 1.0, "0 to 1")?;
    let mut points = counters.points.clone();
    points.sort_by_key(|point| point.capacity);
    for point in &points {
        range("mpki", point.mpki, 0.0, 1e3, "0 to 1000")?;
        range("ways", f64::from(point.ways), 1.0, 65_536.0, "at least 1")?;
        let CachePoint { capacity, ways, .. } = *point;
        let set = u64::from(ways) * u64::from(line);
        if capacity < set || !capacity.is_multiple_of(set) {
            return Err(FitError::NoCache { capacity, ways, line });
        }
    }
    if points.len() < 2 {
        return Err(FitError::TooFewPoints { count: points.len() });
    }
    for pair in points.windows(2) {
        let (smaller, larger) = (pair[0], pair[1]);
        if smaller.capacity == larger.capacity {
            return Err(FitError::DuplicateCapacity { capacity: larger.capacity });
        }
        if larger.mpki > smaller.mpki {
            return Err(FitError::NotFalling {
                smaller: smaller.capacity,
                less: smaller.mpki,
                larger: larger.capacity,
                more: larger.mpki,
            });
        }
    }
    Ok(points)
}

/// Touches per 1000 instructions.
fn touches(counters: &Counters, points: &[CachePoint], notes: &mut Vec<String>) -> Result<f64, FitError> {
    let most = points[0].mpki;
    let Some(touches) = counters.touches_per_ki else {
        let assumed = (most + ASSUMED_HITS).min(1e3);
        notes.push(format!(
            "touches_per_ki is not given: {assumed} is assumed; it changes hits in the smallest cache only"
        ));
        return Ok(assumed);
    };
    range("touches_per_ki", touches, 1e-3, 1e3, "above 0 and at most 1000")?;
    if touches <= most {
        return Err(FitError::MoreMissesThanTouches { mpki: most, touches });
    }
    Ok(touches)
}

/// Classes by size.
fn classes(mixture: &Mixture, counters: &Counters) -> Vec<Class> {
    let class = |(lines, touches): (f64, f64)| {
        let bytes = (lines * f64::from(counters.line_bytes) / 1024.0).round().max(1.0) as u64 * 1024;
        Class::new(warmcore_topology::format_size(bytes), bytes, touches / 1e3, counters.write_fraction)
    };
    let mut classes: Vec<Class> = mixture.classes().map(class).collect();
    classes.sort_by_key(|class| class.bytes);
    // Rounding can make two sizes one; names must differ.
    for index in 1..classes.len() {
        if classes[..index].iter().any(|earlier| earlier.name == classes[index].name) {
            classes[index].name = format!("{} ({})", classes[index].name, index + 1);
        }
    }
    classes
}

/// Cycles per instruction of the core alone, and misses in flight.
fn core(timing: &Timing, notes: &mut Vec<String>) -> Result<(f64, f64), FitError> {
    let above_zero = "above 0";
    range("timing.cpi", timing.cpi, 0.05, 1e3, "0.05 to 1000")?;
    range("timing.stall_cycles_per_ki", timing.stall_cycles_per_ki, 0.0, 1e6, "0 to 1000 cpi")?;
    let mut waited = 0.0;
    for level in &timing.levels {
        range("timing.level.hits_per_ki", level.hits_per_ki, 0.0, 1e3, "0 to 1000")?;
        range("timing.level.latency_cycles", level.latency_cycles, 1e-3, 1e6, above_zero)?;
        waited += level.hits_per_ki * level.latency_cycles;
    }
    let (stall, cycles) = (timing.stall_cycles_per_ki, 1e3 * timing.cpi);
    if cycles - stall < 50.0 {
        return Err(FitError::AllStalls { stall, cycles });
    }
    let mlp = overlap(waited, stall, notes);
    Ok(((cycles - stall) / 1e3, mlp))
}

/// Misses in flight: cycles that all accesses waited for, per cycle of stall, within what a profile can state. Says where that is not
/// what the counters give.
fn overlap(waited: f64, stall: f64, notes: &mut Vec<String>) -> f64 {
    let (least, most) = MLP_BOUNDS;
    if stall == 0.0 {
        notes.push(format!("no stall cycles, so mlp is unknown: its maximum, {most}, is used"));
        return most;
    }
    let (computed, shares) = (waited / stall, format!("{waited} cycles of latency in {stall} of stalls"));
    if computed < least {
        notes.push(format!(
            "mlp = {computed:.3} ({shares} per 1000 instructions) is less than {least}, the least that it can be: {least} is taken. The \
             levels do not have all that was waited for: is one missing, such as memory?"
        ));
    } else if computed > most {
        notes.push(format!(
            "mlp = {computed:.3} ({shares} per 1000 instructions) is more than {most}, the most that it can be: {most} is taken"
        ));
    }
    computed.clamp(least, most)
}

#[cfg(test)]
mod tests;
