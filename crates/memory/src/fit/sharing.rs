//! The shared class: touches and writes from what two halves of the threads took from each other.
//!
//! For threads of equal speed, `near` of them under one LLC and `far` under the other, the race of the specification
//! (`docs/spec/memory-model.md` section 4.4) needs counts only: a write of a near thread needs the other LLC with
//! probability far / (far + near w), a read with far w / (far w + near).

use super::{FitError, SharedData, Split, range};

/// Touches per instruction and share of writes.
pub(super) fn solve(shared: &SharedData) -> Result<(f64, f64), FitError> {
    range("sharing.size", shared.bytes as f64, 1.0, (1_u64 << 50) as f64, "1 byte to 1 PiB")?;
    if shared.splits.is_empty() {
        return Err(FitError::NoSplits);
    }
    for split in &shared.splits {
        range("sharing.split.near", f64::from(split.near), 1.0, 1e6, "at least 1")?;
        range("sharing.split.far", f64::from(split.far), 1.0, 1e6, "at least 1")?;
        range("sharing.split.rfo_mpki", split.rfo_mpki, 1e-6, 1e3, "above 0 and at most 1000")?;
        if let Some(reads) = split.cross_read_mpki {
            range("sharing.split.cross_read_mpki", reads, 1e-6, 1e3, "above 0 and at most 1000")?;
        }
    }
    if let Some(writes) = shared.write_fraction {
        range("sharing.write_fraction", writes, 0.01, 1.0, "0.01 to 1")?;
        return Ok((rate(&shared.splits, writes).0, writes));
    }
    let proportion = |split: &Split| f64::from(split.near.min(split.far)) / f64::from(split.near.max(split.far));
    let first = proportion(&shared.splits[0]);
    let differ = shared.splits.iter().any(|split| (proportion(split) - first).abs() > 1e-9);
    if !differ && shared.splits.iter().all(|split| split.cross_read_mpki.is_none()) {
        return Err(FitError::WritesUnknown);
    }
    // The error has one minimum: each equation's coefficient rises or falls with w. A grid finds its valley, halving
    // of the interval by the golden section its bottom.
    let error = |writes: f64| rate(&shared.splits, writes).1;
    let (mut low, mut high) = (0.01, 1.0);
    for _ in 0..3 {
        let step = (high - low) / 40.0;
        let best =
            (0..=40_u32).map(|index| low + step * f64::from(index)).min_by(|a, b| error(*a).total_cmp(&error(*b)));
        let best = best.unwrap_or(low);
        (low, high) = ((best - step).max(0.01), (best + step).min(1.0));
    }
    for _ in 0..60 {
        let third = (high - low) / 3.0;
        if error(low + third) < error(high - third) { high -= third } else { low += third }
    }
    let writes = 0.5 * (low + high);
    Ok((rate(&shared.splits, writes).0, writes))
}

/// Misses per 1000 instructions of one touch per instruction: writes and reads that need the other LLC.
pub(super) fn per_touch(near: u32, far: u32, writes: f64) -> (f64, f64) {
    let (near, far) = (f64::from(near), f64::from(far));
    let side = |own: f64, other: f64| {
        let write = other / (other + own * writes);
        let read = other * writes / (other * writes + own);
        (own * write, own * read)
    };
    let (a, b) = (side(near, far), side(far, near));
    let all = near + far;
    (1e3 * writes * (a.0 + b.0) / all, 1e3 * (1.0 - writes) * (a.1 + b.1) / all)
}

/// The touches per instruction that fit best at a share of writes, and the sum of squared relative errors.
fn rate(splits: &[Split], writes: f64) -> (f64, f64) {
    let mut equations: Vec<(f64, f64)> = Vec::new();
    for split in splits {
        let (rfo, read) = per_touch(split.near, split.far, writes);
        equations.push((rfo, split.rfo_mpki));
        equations.extend(split.cross_read_mpki.map(|measured| (read, measured)));
    }
    // Minimises the sum of (rate * coefficient / measured - 1) squared.
    let relative = equations.iter().map(|(coefficient, measured)| coefficient / measured);
    let (sum, squares) = relative.clone().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    let rate = sum / squares;
    (rate, relative.map(|x| (rate * x - 1.0).powi(2)).sum())
}
