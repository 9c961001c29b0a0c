//! Numbers with units and names of outputs, as they are typed.
//!
//! `-` is standard output for a file that is the command's result or a part of it as text (a workload, a machine, Markdown, a trace).
//! For directories, and for pages, beside which a command prints something else, it is refused: otherwise there would be one of that name.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use warmcore_options::TraceLevel;
use warmcore_workload::parse_duration;

use super::MAX_SEED;

/// A directory that is written.
pub(super) fn directory() -> impl TypedValueParser<Value = PathBuf> {
    not_standard_output("standard output is not a directory; write `./-` for a directory called `-`")
}

/// A page that is written.
pub(super) fn page() -> impl TypedValueParser<Value = PathBuf> {
    not_standard_output("a page does not go to standard output; a file that is called `-` is `./-`")
}

fn not_standard_output(reason: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(move |path| if path == Path::new("-") { Err(reason) } else { Ok(path) })
}

/// A percentage of 0 to 50, as a fraction.
pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("it is not a percentage of 0 to 50, such as 1 or 0.5%".into()),
    }
}

/// By how many per cent work is slower next to a busy sibling.
pub(super) fn parse_slowdown(text: &str) -> Result<u32, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    number.parse().ok().filter(|percent| *percent <= 1000).ok_or_else(|| {
        "it is not a whole number of per cent, 0 to 1000, such as 65 for work that takes 1.65 times as long".into()
    })
}

/// What is changed to see whether it turns a verdict.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// Assumed costs, times this.
    Factor(f64),
    /// One task or core more or less.
    Neighbours,
}

/// `neighbours`, or a factor.
pub(super) fn parse_change(text: &str) -> Result<Change, String> {
    match text.trim() {
        "neighbours" => Ok(Change::Neighbours),
        text => parse_factor(text).map(Change::Factor).map_err(|reason| format!("{reason}, nor `neighbours`")),
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

/// A whole number of at most `MOST`.
pub(crate) fn whole_number<N: TryFrom<u64>, const MOST: u64>(text: &str) -> Result<N, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number <= MOST);
    number.and_then(|number| number.try_into().ok()).ok_or_else(|| format!("it is not a whole number of 0 to {MOST}"))
}

/// A seed, or the first and the last of some.
pub(super) fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    const MOST: u64 = 100_000;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last && last <= MAX_SEED && last - first < MOST => Ok(first..=last),
        _ => Err(format!("it is not a seed or the first and last of at most {MOST}, such as 7 or 0-99")),
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

/// The level of a trace, and how often scores are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceWanted {
    /// What.
    pub level: TraceLevel,
    /// Shortest time between two samples of what schedulers rank tasks by, ns; `None` for no samples.
    pub scores_every_ns: Option<u64>,
}

/// A level, and of the fullest one how often scores are sampled.
pub(super) fn parse_trace(text: &str) -> Result<TraceWanted, String> {
    let of = |level| TraceWanted { level, scores_every_ns: None };
    match (text, text.strip_prefix("full:")) {
        ("none", _) => Ok(of(TraceLevel::None)),
        ("counters", _) => Ok(of(TraceLevel::Counters)),
        ("full", _) => Ok(of(TraceLevel::Full)),
        (_, Some(time)) => Ok(TraceWanted { level: TraceLevel::Full, scores_every_ns: Some(parse_time(time)?) }),
        _ => Err("it is none, counters, full, or full:TIME such as full:1ms".into()),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use clap::builder::ValueParser;
    use clap::{Arg, ArgAction, Command, CommandFactory as _};

    use crate::args::Arguments;

    fn accepts(parser: &ValueParser, text: &str) -> bool {
        let argument = Arg::new("it").value_parser(parser.clone()).action(ArgAction::Set).allow_hyphen_values(true);
        Command::new("one").arg(argument).try_get_matches_from(["one", text]).is_ok()
    }

    /// Every argument of a command and those below it that is a path and may be `-`, with its command.
    fn paths(command: &Command, name: &str, found: &mut BTreeSet<String>) {
        for argument in command.get_arguments() {
            let parser = argument.get_value_parser();
            if parser.type_id() == clap::value_parser!(PathBuf).type_id() {
                assert!(accepts(parser, "./-") && accepts(parser, "a/b"), "{name} {argument}");
                found.extend(accepts(parser, "-").then(|| format!("{name}{}", argument.get_id())));
            }
        }
        command.get_subcommands().for_each(|inner| paths(inner, &format!("{name}{} ", inner.get_name()), found));
    }

    /// All others refuse it.
    #[test]
    fn every_path_of_the_command_line_takes_standard_output_or_refuses_it() {
        let mut found = BTreeSet::new();
        paths(&Arguments::command(), "", &mut found);
        assert_eq!(found, TAKE.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    }

    /// Inputs are among them: whether one may be `-` is said where it is read.
    const TAKE: &[&str] = &[
        "compare profiles",
        "compare resume",
        "sim profiles",
        "study show result",
        "report runs",
        "report markdown",
        "report perfetto",
        "report events",
        "explain run",
        "replay recording",
        "replay out",
        "group recording",
        "group out",
        "sweep profiles",
        "tune file",
        "machine convert out",
        "workload show profiles",
        "workload convert profiles",
        "workload convert out",
        "workload fit counters",
        "workload fit out",
        "memory profiles",
        "memory trace",
        "validate experiments",
        "validate memory out",
        "vm program",
        "vm file",
    ];
}
