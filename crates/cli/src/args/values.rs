//! Numbers with units, as they are typed.

use warmcore_workload::parse_duration;

/// A percentage of 0 to 50, as a fraction.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("it is not a percentage of 0 to 50, such as 1 or 0.5%".into()),
    }
}

/// A factor of 0.01 to 100, but 1.
pub(super) fn parse_factor(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(factor) if (0.01..=100.0).contains(&factor) && factor != 1.0 => Ok(factor),
        _ => Err("it is not a factor of 0.01 to 100 other than 1, such as 0.5".into()),
    }
}

/// A load level of more than 0 to 100 per cent, as a fraction.
pub(super) fn parse_level(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("it is not a percentage above 0 and up to 100, such as 60".into()),
    }
}

/// A length as SVG has it, in mm, cm, in or px.
pub(super) fn parse_length(text: &str) -> Result<String, String> {
    let number = ["mm", "cm", "in", "px"].iter().find_map(|unit| text.strip_suffix(unit));
    match number.and_then(|number| number.parse::<f64>().ok()) {
        Some(number) if number > 0.0 && number.is_finite() => Ok(text.to_owned()),
        _ => Err("a length is a number with mm, cm, in or px, such as 85mm".into()),
    }
}

/// A time that is longer than 0.
pub(super) fn parse_time(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        0 => Err("it is not longer than 0".into()),
        time_ns => Ok(time_ns),
    }
}

/// Reads a time that may be 0, which needs no unit.
pub(super) fn parse_time_or_0(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_duration(text).map_err(|error| error.to_string()) }
}
