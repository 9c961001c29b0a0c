//! Durations and counts as people read them: three significant digits and the unit that fits, in ASCII, so that
//! a column can be copied into a shell. Reading durations is the workload crate's business.

use crate::measures::Unit;

/// A duration in nanoseconds as `1.23 ms`.
pub fn duration(ns: f64) -> String {
    let (divisor, unit) = time_unit(ns);
    format!("{} {unit}", three_digits(ns / divisor))
}

/// The unit that fits a duration, and how many nanoseconds it has.
pub fn time_unit(ns: f64) -> (f64, &'static str) {
    let size = ns.abs();
    // A value that would be rounded up to the next unit is printed in that unit.
    if size < 999.5 {
        (1.0, "ns")
    } else if size < 999.5e3 {
        (1e3, "us")
    } else if size < 999.5e6 {
        (1e6, "ms")
    } else {
        (1e9, "s")
    }
}

/// A measure's value as people read it.
pub fn with_unit(value: f64, unit: Unit) -> String {
    match unit {
        _ if value.is_infinite() => "never".into(),
        Unit::Ns => duration(value),
        Unit::One | Unit::PerS | Unit::Tasks => count(value),
        Unit::Joules => format!("{} J", three_digits(value)),
    }
}

/// A number of bytes as `1.5 GiB`.
pub fn bytes(value: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..units.len() - 1).find(|power| value >> (10 * (power + 1)) == 0).unwrap_or(units.len() - 1);
    format!("{} {}", three_digits(value as f64 / (1_u64 << (10 * power)) as f64), units[power])
}

/// A count or rate as `123`, `1.23k`, `1.23M`.
pub fn count(value: f64) -> String {
    let size = value.abs();
    if size < 999.5 {
        three_digits(value)
    } else if size < 999.5e3 {
        format!("{}k", three_digits(value / 1e3))
    } else if size < 999.5e6 {
        format!("{}M", three_digits(value / 1e6))
    } else {
        format!("{}G", three_digits(value / 1e9))
    }
}

/// Three significant digits without superfluous zeros: `0`, `0.123`, `1.23`, `12.3`, `123`, `1230`.
pub fn three_digits(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 99.95 {
        0
    } else if size >= 9.995 {
        1
    } else if size >= 0.9995 {
        2
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_have_three_digits_and_a_fitting_unit() {
        assert_eq!(duration(0.0), "0 ns");
        assert_eq!(duration(999.6), "1 us");
        assert_eq!(duration(1_234_567.0), "1.23 ms");
        assert_eq!(duration(12_345_678_900.0), "12.3 s");
        assert_eq!(count(12.0), "12");
        assert_eq!(count(123_456.0), "123k");
        assert_eq!(count(999_999.0), "1M");
    }
}
