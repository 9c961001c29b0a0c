//! From values to positions, and where an axis has its marks.

use crate::units;

/// A linear or logarithmic mapping of values to positions.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `low..high` to `from..to`. An empty range is widened, so that there always is a mapping.
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from, to, logarithmic: false }
    }

    /// The same on logarithms; both ends must be above 0.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = if high > low { high } else { low * 10.0 };
        Self { low, high, from, to, logarithmic: true }
    }

    /// Where a value lies; values outside lie at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// Values for marks, about `count` of them and at least two, since one alone shows no scale: 1, 2 or 5 times a power of ten; powers of
    /// ten on logarithms.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            let (first, last) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
            let every = ((last - first + 1).max(1) as usize).div_ceil(count.max(1)) as i32;
            let decades: Vec<f64> =
                (first..=last).filter(|power| (power - first) % every == 0).map(|p| 10_f64.powi(p)).collect();
            if decades.len() >= 2 {
                return decades;
            }
        }
        let marks = |count: usize| -> Vec<f64> {
            let step = nice_step((self.high - self.low) / count as f64);
            let first = (self.low / step).ceil() as i64;
            let last = (self.high / step + 1e-9).floor() as i64;
            (first..=last).map(|i| i as f64 * step).collect()
        };
        // Steps are at most 2.5 times as long as asked for: with five there are two marks.
        let count = count.max(1);
        (count..=count.max(5)).map(marks).find(|marks| marks.len() > 1).unwrap_or_default()
    }
}

/// The smallest of 1, 2, 5, 10 times a power of ten that is not below `step`.
fn nice_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// Marks of a time axis from `start_ns` to `end_ns`, all in one unit.
pub(crate) fn time_ticks(scale: &Scale, count: usize) -> Vec<(f64, String)> {
    let ticks = scale.ticks(count);
    let most = ticks.iter().fold(0.0_f64, |most, ns| most.max(ns.abs()));
    let (divisor, unit) = units::time_unit(most);
    labelled(ticks, divisor, |text| format!("{text} {unit}"))
}

/// Marks with their numbers: three digits, or as many decimals as tell neighbours apart.
pub(crate) fn number_ticks(scale: &Scale, count: usize) -> Vec<(f64, String)> {
    labelled(scale.ticks(count), 1.0, |text| text)
}

fn labelled(ticks: Vec<f64>, divisor: f64, text: impl Fn(String) -> String) -> Vec<(f64, String)> {
    let short: Vec<String> = ticks.iter().map(|tick| units::three_digits(tick / divisor)).collect();
    let distinct = short.windows(2).all(|pair| pair[0] != pair[1]);
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min) / divisor;
    // A step of 10^-4 less a rounding error needs four decimals, not five.
    let decimals = (-step.log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize;
    let number = |tick: f64| format!("{:.decimals$}", tick / divisor);
    let texts = ticks.iter().zip(short).map(|(tick, short)| text(if distinct { short } else { number(*tick) }));
    ticks.iter().copied().zip(texts.collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers_within_the_range() {
        assert_eq!(Scale::linear(0.0, 1.0, 0.0, 1.0).ticks(5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(Scale::linear(0.0, 900.0, 0.0, 1.0).ticks(4), [0.0, 500.0]);
        assert_eq!(Scale::linear(30.0, 90.0, 0.0, 1.0).ticks(3), [40.0, 60.0, 80.0]);
        // Steps of 5 would leave one mark.
        assert_eq!(Scale::linear(0.0, 4.8, 0.0, 1.0).ticks(2), [0.0, 2.0, 4.0]);
        for (low, high) in [(0.0, 4.8), (1.1, 9.9), (333.0, 1000.0), (-1.0, 0.9), (4.9, 5.1)] {
            for count in 0..6 {
                let ticks = Scale::linear(low, high, 0.0, 1.0).ticks(count);
                assert!(ticks.len() > 1, "{count} marks from {low} to {high}: {ticks:?}");
            }
        }
        assert_eq!(Scale::logarithmic(5.0, 2e4, 0.0, 1.0).ticks(8), [10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn neighbouring_marks_never_have_the_same_text() {
        let texts = |ticks: Vec<(f64, String)>| ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        let narrow = Scale::linear(1.1995e9, 1.2005e9, 0.0, 1.0);
        assert_eq!(texts(time_ticks(&narrow, 3)), ["1.1995 s", "1.2000 s", "1.2005 s"]);
        assert_eq!(texts(time_ticks(&Scale::linear(-4e6, 1e6, 0.0, 1.0), 3)), ["-4 ms", "-2 ms", "0 ms"]);
        assert_eq!(
            texts(number_ticks(&Scale::linear(1.0001, 1.0004, 0.0, 1.0), 3)),
            ["1.0001", "1.0002", "1.0003", "1.0004"]
        );
        assert_eq!(texts(number_ticks(&Scale::linear(0.0, 1.0, 0.0, 1.0), 2)), ["0", "0.5", "1"]);
    }

    #[test]
    fn values_outside_lie_at_the_ends() {
        let scale = Scale::linear(1.0, 3.0, 100.0, 200.0);
        assert_eq!([0.0, 2.0, f64::INFINITY].map(|value| scale.at(value)), [100.0, 150.0, 200.0]);
        let empty = Scale::linear(1.0, 1.0, 0.0, 10.0);
        assert!(empty.at(1.0).is_finite());
    }
}
