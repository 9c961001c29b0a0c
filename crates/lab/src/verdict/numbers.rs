//! Ratios and their intervals as readers see them.

use warmcore_statistics::Interval;

/// A ratio with three significant digits or so: `0.834`, `1.2`, `12.5`, `0.00043`; a dash where there is none, as over a baseline of zero.
pub fn decimal(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 0.01 || value <= 0.0 {
        3
    } else {
        decimals_of_small(value)
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Decimals with which a positive number below 0.1 has two digits that are not 0, from 3 to 12: what is smaller still is 0 to any reader.
pub fn decimals_of_small(value: f64) -> usize {
    (3..12).find(|decimals| value * 10.0_f64.powi(*decimals) >= 10.0).unwrap_or(12) as usize
}

/// The ends of a ratio's interval, as [`decimal`] has them; with more digits where it would read as if it held 1 and does not.
pub fn interval_ends(interval: Interval) -> [String; 2] {
    let holds_one = interval.low <= 1.0 && interval.high >= 1.0;
    let end = |value: f64| {
        let text = decimal(value);
        if holds_one || text != "1" {
            return text;
        }
        // A ratio closer to 1 than a millionth is rounding.
        (4..=6).map(|decimals| format!("{value:.decimals$}")).find(|text| text.parse() != Ok(1.0)).unwrap_or(text)
    };
    [interval.low, interval.high].map(end)
}

/// A ratio and the ends of its interval. Where [`decimal`]'s digits would have the ratio outside of the ends, all three have as many as the end
/// with the most.
pub fn ratio_and_ends(ratio: f64, interval: Interval) -> [String; 3] {
    let [low, high] = interval_ends(interval);
    let texts = [decimal(ratio), low, high];
    let values: Vec<f64> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    if let [ratio, low, high] = values[..]
        && (low..=high).contains(&ratio)
    {
        return texts;
    }
    let decimals = texts[1..].iter().filter_map(|text| text.split_once('.')).map(|(_, after)| after.len()).max();
    match decimals {
        Some(decimals) if values.len() == 3 => {
            [ratio, interval.low, interval.high].map(|value| format!("{value:.decimals$}"))
        }
        _ => texts,
    }
}

/// `0.834`, or with its interval `0.834 [0.81, 0.86]`.
pub fn ratio_with_interval(ratio: f64, interval: Option<Interval>) -> String {
    interval.map_or_else(
        || decimal(ratio),
        |interval| {
            let [ratio, low, high] = ratio_and_ends(ratio, interval);
            format!("{ratio} [{low}, {high}]")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(ratio: f64, low: f64, high: f64) -> String {
        ratio_with_interval(ratio, Some(Interval { low, high }))
    }

    #[test]
    fn a_ratio_is_printed_within_its_interval() {
        assert_eq!(printed(1.000_4, 1.000_3, 1.000_5), "1.0004 [1.0003, 1.0005]");
        assert_eq!(printed(0.999_41, 0.999, 0.999_52), "0.999 [0.999, 0.9995]");
        assert_eq!(printed(0.999_97, 0.999_951, 0.999_99), "0.99997 [0.99995, 0.99999]");
        assert_eq!(printed(0.999_51, 0.999, 0.999_52), "0.9995 [0.9990, 0.9995]");
        assert_eq!(printed(2.972, 2.971, 2.973), "2.972 [2.971, 2.973]");
        assert_eq!(printed(1.0, 0.99, 1.0), "1 [0.99, 1]");
        assert_eq!(printed(0.9, 0.742_76, 0.999_85), "0.9 [0.743, 0.9999]");
        assert_eq!(ratio_with_interval(0.834, None), "0.834");
    }
}
