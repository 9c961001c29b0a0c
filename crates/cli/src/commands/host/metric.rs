//! What is compared of a trial on this computer.

use std::str::FromStr;

use regex::Regex;
use warmcore_places::host::trial::Trial;

/// A number that a trial has.
#[derive(Clone, Debug)]
pub enum Metric {
    /// Time from the command's first instruction to its end, s.
    Elapsed,
    /// CPU time of it and of what it waited for, s.
    Cpu,
    /// The number that follows a text in what the command prints.
    After(String),
    /// What the first group of a pattern matches in what the command prints, or all that the pattern does.
    Pattern(Regex),
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(pattern) = text.strip_prefix("regex:") {
            let pattern = Regex::new(pattern).map_err(|error| format!("`{text}` is no regular expression: {error}"))?;
            return match pattern.captures_len() {
                1 | 2 => Ok(Self::Pattern(pattern)),
                more => Err(format!("`{text}` has {} groups; one may be the number, write others as (?:…)", more - 1)),
            };
        }
        match text {
            "elapsed" => Ok(Self::Elapsed),
            "cpu" => Ok(Self::Cpu),
            _ => match text.strip_prefix("after:") {
                Some("") => Err("`after:` needs the text that the number follows".to_owned()),
                Some(before) => Ok(Self::After(before.to_owned())),
                None => Err(format!("there is no metric `{text}`: elapsed, cpu, after:TEXT or regex:PATTERN")),
            },
        }
    }
}

impl Metric {
    /// Its value in a trial.
    pub fn value(&self, trial: &Trial) -> Option<f64> {
        match self {
            Self::Elapsed => Some(trial.elapsed_s),
            Self::Cpu => Some(trial.cpu_s),
            Self::After(text) => {
                let rest = trial.output.split_once(text.as_str())?.1.trim_start();
                let of_number = |c: &char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e');
                rest.chars().take_while(of_number).collect::<String>().parse().ok()
            }
            Self::Pattern(pattern) => {
                let found = pattern.captures(&trial.output)?;
                found.get(found.len() - 1)?.as_str().trim().parse().ok()
            }
        }
    }

    /// Where a value comes from, for a command that has none.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Elapsed | Self::Cpu => "no trial counted: the warnings above say why",
            Self::After(_) => "the command must print a number after that text on standard output",
            Self::Pattern(_) => "the pattern must match a number in what the command prints on standard output",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_places::host::trial::Noise;

    fn value(metric: &str, output: &str) -> Option<f64> {
        let noise = Noise { others_cpus: 0.0, steal_cpus: 0.0, interrupts_per_s: 0.0 };
        let trial = Trial { elapsed_s: 2.0, cpu_s: 1.0, exit_code: 0, output: output.to_owned(), noise };
        metric.parse::<Metric>().unwrap().value(&trial)
    }

    #[test]
    fn a_number_after_a_text_or_in_a_pattern_is_found() {
        let output = "Running\nTime: 0.389 s\nops: 12 of 1.5e3 per s\n";
        assert_eq!(value("after:Time:", output), Some(0.389));
        assert_eq!(value("after:Speed:", output), None);
        assert_eq!(value("elapsed", output), Some(2.0));
        assert_eq!(value("cpu", output), Some(1.0));
        assert_eq!(value("regex:of ([0-9.e]+) per", output), Some(1500.0));
        assert_eq!(value(r"regex:\d+\.\d+", output), Some(0.389));
        assert_eq!(value(r"regex:(?m)^ops: (\S+)", output), Some(12.0));
        assert_eq!(value("regex:(Running)", output), None, "no number");
        assert_eq!(value("regex:99th: ([0-9]+)", output), None);
    }

    #[test]
    fn what_is_no_metric_is_refused_with_those_that_are() {
        let message = |text: &str| text.parse::<Metric>().unwrap_err();
        assert!(message("speed").contains("elapsed, cpu, after:TEXT or regex:PATTERN"));
        assert!(message("regex:(").contains("is no regular expression"));
        assert!(message("regex:(a)(b)").contains("has 2 groups"));
        assert!(message("after:").contains("needs the text"));
    }
}
