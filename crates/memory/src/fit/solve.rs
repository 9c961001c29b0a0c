//! Sizes and rates of classes from misses at several cache sizes: damped least squares (Levenberg and Marquardt) on the
//! logarithms of sizes, rates and misses, from several starting points, with as few classes as meet the points.

use super::{CachePoint, FLOOR, GOOD, MOST_CLASSES};
use crate::curves::Curves;
use crate::math::{exp, ln};
use crate::profile::Class;

/// Classes as lines and touches per 1000 instructions.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Mixture {
    /// The class that the smallest cache holds.
    resident: (f64, f64),
    fitted: Vec<(f64, f64)>,
    /// What all threads share, known from what they take from each other; a thread alone touches it too.
    shared: Option<(f64, f64)>,
}

impl Mixture {
    /// Those of a thread's own.
    pub(super) fn classes(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        std::iter::once(self.resident).chain(self.fitted.iter().copied())
    }

    /// Misses per 1000 instructions of a cache that one thread has alone.
    pub(super) fn mpki(&self, point: &CachePoint, line_bytes: u32) -> f64 {
        let class = |(lines, touches): (f64, f64)| Class {
            touches_per_instruction: touches / 1e3,
            ..Class::new("", (lines * f64::from(line_bytes)).max(1.0) as u64, 0.0, 0.0)
        };
        let classes: Vec<Class> = self.classes().chain(self.shared).map(class).collect();
        let lines = (point.capacity / u64::from(line_bytes)) as f64;
        1e3 * Curves::of_classes(&classes, line_bytes, |_| true).steady_in_sets(lines, point.ways).iter().sum::<f64>()
    }
}

/// What is fitted to.
struct Problem<'a> {
    points: &'a [CachePoint],
    line_bytes: u32,
    touches: f64,
    shared: Option<(f64, f64)>,
    resident_lines: f64,
    most_lines: f64,
}

impl Problem<'_> {
    /// The mixture of parameters: per class the logarithms of lines and touches.
    fn mixture(&self, parameters: &[f64]) -> Mixture {
        let fitted: Vec<(f64, f64)> = parameters.chunks(2).map(|pair| (exp(pair[0]), exp(pair[1]))).collect();
        let rest = self.touches - fitted.iter().chain(&self.shared).map(|class| class.1).sum::<f64>();
        Mixture { resident: (self.resident_lines, rest.max(1e-3)), fitted, shared: self.shared }
    }

    /// Logarithms of fitted over measured misses.
    fn residuals(&self, parameters: &[f64]) -> Vec<f64> {
        let mixture = self.mixture(parameters);
        let residual = |point: &CachePoint| ln((mixture.mpki(point, self.line_bytes) + FLOOR) / (point.mpki + FLOOR));
        self.points.iter().map(residual).collect()
    }

    fn clamp(&self, parameters: &mut [f64]) {
        let (small, large) = (ln(self.resident_lines), ln(self.most_lines));
        for pair in parameters.chunks_mut(2) {
            pair[0] = pair[0].clamp(small, large);
            pair[1] = pair[1].clamp(-14.0, ln(self.touches));
        }
    }

    /// Sizes spread evenly over the capacities, rates from the drop of misses around each.
    fn start(&self, count: usize, stretch: f64) -> Vec<f64> {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        let lines = |capacity: u64| ln(capacity as f64 / f64::from(self.line_bytes));
        let (from, to) = (lines(first.capacity) - 0.2, lines(last.capacity) + stretch);
        let mut parameters = Vec::new();
        for index in 0..count {
            let at = from + (to - from) * (index as f64 + 0.5) / count as f64;
            let half = 0.5 * (to - from) / count as f64;
            let misses = |at: f64| {
                let before = self.points.iter().rev().find(|point| lines(point.capacity) <= at);
                before.map_or(first.mpki, |point| point.mpki)
            };
            let rest = if index + 1 == count { 0.0 } else { misses(at + half) };
            parameters.extend([at, ln((misses(at - half) - rest).max(1e-3))]);
        }
        parameters
    }
}

/// Starting points: how far beyond the largest capacity the sizes reach, as logarithms.
const STRETCHES: [f64; 4] = [0.0, 1.0, 2.0, 3.5];

/// Fits what a thread has of its own; `shared` are the lines of what it shares and its touches per 1000 instructions.
pub(super) fn solve(
    points: &[CachePoint],
    line_bytes: u32,
    touches: f64,
    shared: Option<(f64, f64)>,
    notes: &mut Vec<String>,
) -> Mixture {
    let lines = |capacity: u64| capacity as f64 / f64::from(line_bytes);
    let largest = lines(points[points.len() - 1].capacity);
    let problem = Problem {
        points,
        line_bytes,
        touches,
        shared,
        resident_lines: 0.5 * lines(points[0].capacity),
        most_lines: 64.0 * largest,
    };
    let mut best: Option<(f64, Vec<f64>)> = None;
    for count in 1..=MOST_CLASSES.min(points.len().div_ceil(2)) {
        for stretch in STRETCHES {
            let parameters = descend(&problem, problem.start(count, stretch));
            let worst = problem.residuals(&parameters).iter().fold(0.0, |worst: f64, value| worst.max(value.abs()));
            if best.as_ref().is_none_or(|(error, _)| worst < *error) {
                best = Some((worst, parameters));
            }
        }
        if best.as_ref().is_some_and(|(error, _)| *error <= GOOD) {
            break;
        }
    }
    let (worst, parameters) = best.unwrap_or_default();
    if worst > GOOD {
        let percent = 100.0 * (exp(worst) - 1.0);
        notes.push(format!("the classes miss a point by {percent:.0} %: more points, or scans that are not fitted"));
    }
    if parameters.len() > points.len() {
        notes.push(format!(
            "{} points do not determine sizes and rates of {} classes: other values fit as well, and more points are needed",
            points.len(),
            parameters.len() / 2
        ));
    }
    let mixture = problem.mixture(&parameters);
    if mixture.fitted.iter().any(|class| class.0 > 4.0 * largest) {
        notes.push("the largest class is far larger than the largest cache: its size is little known".to_owned());
    }
    mixture
}

/// Damped least squares until nothing improves.
fn descend(problem: &Problem<'_>, mut parameters: Vec<f64>) -> Vec<f64> {
    problem.clamp(&mut parameters);
    let cost = |residuals: &[f64]| residuals.iter().map(|value| value * value).sum::<f64>();
    let mut residuals = problem.residuals(&parameters);
    let mut damping = 1e-2;
    for _ in 0..60 {
        if cost(&residuals) < 1e-10 {
            break;
        }
        let slopes: Vec<Vec<f64>> = (0..parameters.len())
            .map(|index| {
                // Large against the rounding of sizes to bytes.
                const STEP: f64 = 1e-3;
                let mut moved = parameters.clone();
                moved[index] += STEP;
                problem.residuals(&moved).iter().zip(&residuals).map(|(new, old)| (new - old) / STEP).collect()
            })
            .collect();
        let before = cost(&residuals);
        let mut improved = false;
        while damping < 1e8 {
            let mut moved = step(&slopes, &residuals, damping, &parameters);
            problem.clamp(&mut moved);
            let new = problem.residuals(&moved);
            if cost(&new) < before {
                improved = cost(&new) < before * (1.0 - 1e-6);
                (parameters, residuals) = (moved, new);
                damping = (damping * 0.2).max(1e-9);
                break;
            }
            damping *= 5.0;
        }
        if !improved {
            break;
        }
    }
    parameters
}

/// Solves the damped normal equations by elimination.
fn step(slopes: &[Vec<f64>], residuals: &[f64], damping: f64, parameters: &[f64]) -> Vec<f64> {
    let count = slopes.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows: Vec<Vec<f64>> = (0..count)
        .map(|i| {
            let mut row: Vec<f64> = (0..count).map(|j| dot(&slopes[i], &slopes[j])).collect();
            row[i] += damping * (row[i] + 1e-6);
            row.push(-dot(&slopes[i], residuals));
            row
        })
        .collect();
    for pivot in 0..count {
        let largest = (pivot..count).max_by(|a, b| rows[*a][pivot].abs().total_cmp(&rows[*b][pivot].abs()));
        rows.swap(pivot, largest.unwrap_or(pivot));
        let (done, left) = rows.split_at_mut(pivot + 1);
        let row = &done[pivot];
        for other in left {
            let factor = other[pivot] / row[pivot];
            other.iter_mut().zip(row).skip(pivot).for_each(|(value, base)| *value -= factor * base);
        }
    }
    let mut solution = vec![0.0; count];
    for index in (0..count).rev() {
        let known = dot(&rows[index][index + 1..count], &solution[index + 1..]);
        solution[index] = (rows[index][count] - known) / rows[index][index];
    }
    // No size or rate changes by more than a factor of e at once.
    parameters.iter().zip(solution).map(|(value, change)| value + change.clamp(-1.0, 1.0)).collect()
}
