//! How much of a machine a workload's text asks for, as one number that can be changed: a generator's tasks, threads or requests, or the
//! percentage of a file's instances.
//!
//! Only what leaves each task's program as it is counts as a change of the load: more tasks of the same kind, or requests more often.
//! Several at once grow together: each has its own number, and all keep the proportion in which they were typed. Whether a file's tasks can
//! be more or fewer is known once it is read.

use super::flags::Flags;
use super::{GENERATORS, MAX_COUNT, find, parts};
use crate::library::{NamedSource, named};
use crate::scale::{MAX_PERCENT, scaled};
use crate::{Options, WorkloadError};

/// The flag of a generator that sets its load.
struct LoadFlag {
    generator: &'static str,
    /// Its long name.
    flag: &'static str,
    counts: &'static str,
    /// Whether it is only there where the text gives it, and goes before another one then.
    if_given: bool,
    most: u64,
}

const fn count(generator: &'static str, flag: &'static str, counts: &'static str, most: u32) -> LoadFlag {
    LoadFlag { generator, flag, counts, if_given: false, most: most as u64 }
}

static LOAD_FLAGS: [LoadFlag; 10] = [
    count("periodic", "tasks", "tasks", MAX_COUNT),
    count("spin", "tasks", "tasks", MAX_COUNT),
    count("forkjoin", "threads", "threads", MAX_COUNT),
    count("verilator", "threads", "threads", MAX_COUNT),
    count("pingpong", "pairs", "pairs", MAX_COUNT / 2),
    count("transcode", "encoders", "encoders", 10_000),
    LoadFlag {
        generator: "sysbench",
        flag: "rate",
        counts: "transactions per second",
        if_given: true,
        most: 1_000_000_000,
    },
    count("sysbench", "threads", "connections", MAX_COUNT / 2),
    LoadFlag { generator: "schbench", flag: "rps", counts: "requests per second", if_given: true, most: 1_000_000_000 },
    count("schbench", "threads", "workers per message thread", 100_000),
];

/// What is counted where several generators grow together.
const PERCENT: &str = "% of the numbers that were typed";
/// What is counted of a file.
const INSTANCES: &str = "% of the file's instances";

/// The text of one generator or file, or of several joined by `+`, with its load as a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadText {
    /// Not empty.
    parts: Vec<Part>,
}

/// One generator or file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    name: String,
    /// Of a file nothing.
    flag: Option<String>,
    others: Vec<String>,
    counts: &'static str,
    most: u64,
    /// The number that was typed.
    typed: Option<u64>,
}

impl Part {
    fn with(&self, count: u64) -> String {
        let Some(flag) = &self.flag else { return format!("{}@{count}%", self.name) };
        let others: String = self.others.iter().map(|other| format!(",{other}")).collect();
        format!("{}:{flag}{count}{others}", self.name)
    }

    /// The number at a percentage of the one that was typed, at least 1.
    fn at(&self, percent: u64) -> u64 {
        let typed = u128::from(self.typed.unwrap_or(1));
        let scaled = (typed * u128::from(percent) + 50) / 100;
        u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
    }

    /// The largest percentage at which the number is possible.
    fn most_percent(&self) -> u64 {
        self.most.saturating_mul(100) / self.typed.unwrap_or(1).max(1)
    }
}

impl LoadText {
    /// The text with one more or one less of what it counts; none where the number was not typed, is a rate or a percentage, or would be none.
    pub fn beside(&self, more: bool) -> Option<String> {
        let [part] = self.parts.as_slice() else { return None };
        let typed = part.typed.filter(|_| part.flag.is_some() && !part.counts.contains("per second"))?;
        let count = if more { typed.checked_add(1)? } else { typed.checked_sub(1)? };
        (1..=part.most).contains(&count).then(|| part.with(count))
    }

    /// What the number counts, such as `threads`; a percentage where several generators grow together.
    pub fn counts(&self) -> &'static str {
        match self.parts.as_slice() {
            [part] => part.counts,
            _ => PERCENT,
        }
    }

    /// The largest number.
    pub fn most(&self) -> u64 {
        match self.parts.as_slice() {
            [part] => part.most,
            parts => parts.iter().map(Part::most_percent).min().unwrap_or(1),
        }
    }

    /// A number to try first, where so many tasks that never sleep would do.
    pub fn first(&self, tasks: u64) -> u64 {
        match self.parts.as_slice() {
            [Part { flag: Some(_), .. }] => tasks,
            // How many tasks a file has is not known here.
            [_] => 100,
            parts => {
                let typed = parts.iter().filter_map(|part| part.typed).fold(0, u64::saturating_add);
                tasks.saturating_mul(100) / typed.max(1)
            }
        }
    }

    /// The text with this number; everything else is as it was typed.
    pub fn with(&self, count: u64) -> String {
        match self.parts.as_slice() {
            [part] => part.with(count),
            parts => parts.iter().map(|part| part.with(part.at(count))).collect::<Vec<_>>().join("+"),
        }
    }
}

/// Why a workload has no load that can be changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum LoadTextError {
    #[error("`{0}` does not say its number, and several generators at once grow in the proportion of theirs")]
    NoProportion(String),
    #[error("{0} has no number that sets its load: it runs through its messages as fast as it can")]
    NoNumber(&'static str),
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] WorkloadError),
}

impl LoadTextError {
    /// What can be scaled, as a sentence.
    pub fn advice() -> String {
        let mut known: Vec<String> = Vec::new();
        for generator in &GENERATORS {
            let flags = LOAD_FLAGS.iter().filter(|load| load.generator == generator.name);
            let flags: Vec<String> = flags.map(|load| format!("{} (--{})", load.counts, load.flag)).collect();
            if !flags.is_empty() {
                known.push(format!("{}: {}", generator.name, flags.join(" or ")));
            }
        }
        format!(
            "files can be scaled by the instances of their tasks, where these do not wait for each other; generators by a number of their own, \
             several at once if each says its number: {}",
            known.join("; ")
        )
    }
}

/// The load of a text as it is typed for a workload: of one generator, of several joined by `+`, or of a named workload that is such.
///
/// # Errors
/// Anything else, a text that cannot be read, and one of several generators that does not say its number.
pub fn load_text(spec: &str) -> Result<LoadText, LoadTextError> {
    let mut found = Vec::new();
    add_parts(spec, &mut found)?;
    if found.len() > 1
        && let Some(silent) = found.iter().find(|part| part.typed.is_none_or(|typed| typed == 0))
    {
        return Err(LoadTextError::NoProportion(silent.name.clone()));
    }
    Ok(LoadText { parts: found })
}

/// The generators of a text; names stand for what they are made of.
fn add_parts(spec: &str, found: &mut Vec<Part>) -> Result<(), LoadTextError> {
    for text in parts(spec) {
        match named(text).map(|entry| entry.source) {
            Some(NamedSource::Text(text)) => add_parts(text, found)?,
            Some(NamedSource::File(_)) => found.push(file(text)),
            None => found.push(part(text)?),
        }
    }
    Ok(())
}

/// A file, or a named workload that is one: of it or of what is typed already is more or less.
fn file(text: &str) -> Part {
    let (name, typed) = scaled(text).unwrap_or((text, 100));
    Part {
        name: name.to_owned(),
        flag: None,
        others: Vec::new(),
        counts: INSTANCES,
        most: MAX_PERCENT.into(),
        typed: Some(typed.into()),
    }
}

fn part(text: &str) -> Result<Part, LoadTextError> {
    let Some(generator) = find(text) else { return Ok(file(text)) };
    let words = text.split_once(':').map_or("", |(_, words)| words);
    let flags = Flags::parse(generator, words, Options::default()).map_err(WorkloadError::from)?;
    let load = LOAD_FLAGS
        .iter()
        .find(|load| load.generator == generator.name && (!load.if_given || flags.is_set(load.flag)))
        .ok_or(LoadTextError::NoNumber(generator.name))?;
    let short = generator.flags.iter().find(|flag| flag.long == load.flag).and_then(|flag| flag.short);
    let flag = short.map_or_else(|| format!("--{}=", load.flag), |short| format!("-{short}"));
    Ok(Part {
        name: generator.name.to_owned(),
        flag: Some(flag),
        others: flags.typed_without(load.flag),
        counts: load.counts,
        most: load.most,
        typed: flags.text(load.flag).and_then(|number| number.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_generator;

    #[test]
    fn the_number_replaces_the_one_that_was_typed_and_all_else_stays() {
        let text = load_text("periodic:-n,4,-r400us,--sleep,1ms,-oP,--tasks=7,--dur=20ms").unwrap();
        assert_eq!(
            (text.with(12).as_str(), text.counts()),
            ("periodic:-n12,-r400us,--sleep=1ms,-o,-P,--dur=20ms", "tasks")
        );
        assert_eq!(load_text("spin").unwrap().with(3), "spin:-n3");
        assert_eq!(load_text("sysbench:--time=1").unwrap().with(3), "sysbench:--threads=3,--time=1");
        assert_eq!(load_text("ule-cfs/rocksdb").unwrap().with(2), "periodic:-n2,-r40us,-s120us,-d2s");
    }

    #[test]
    fn schbench_is_scaled_by_its_rate_where_it_has_one_and_by_its_workers_otherwise() {
        let rate = load_text("schbench:-t8,-R400").unwrap();
        assert_eq!((rate.with(90).as_str(), rate.counts()), ("schbench:-R90,-t8", "requests per second"));
        assert_eq!(load_text("schbench:-m2,-t8").unwrap().with(3), "schbench:-t3,-m2");
    }

    #[test]
    fn sysbench_is_scaled_by_its_rate_where_it_has_one() {
        let rate = load_text("sysbench:--threads=8,--rate=400").unwrap();
        assert_eq!(
            (rate.with(90).as_str(), rate.counts()),
            ("sysbench:--rate=90,--threads=8", "transactions per second")
        );
    }

    #[test]
    fn several_generators_grow_in_the_proportion_in_which_they_were_typed() {
        let both = load_text("periodic:-n6,-r1ms + schbench:-t2,-R100").unwrap();
        assert_eq!(both.with(100), "periodic:-n6,-r1ms+schbench:-R100,-t2");
        assert_eq!(both.with(250), "periodic:-n15,-r1ms+schbench:-R250,-t2");
        assert_eq!(both.with(1), "periodic:-n1,-r1ms+schbench:-R1,-t2", "none of them goes");
        assert_eq!(both.counts(), PERCENT);
        assert!(from_generator(&both.with(100)).is_ok());
        let most = load_text("spin:-n2+spin:-n50").unwrap();
        assert_eq!(most.most(), u64::from(MAX_COUNT) * 2);
        assert_eq!((most.first(26), load_text("spin").unwrap().first(26)), (50, 26));
    }

    #[test]
    fn files_are_scaled_by_the_instances_of_their_tasks_alone_and_beside_generators() {
        let file = load_text("dir/tasks.json").unwrap();
        assert_eq!((file.with(150).as_str(), file.counts(), file.first(7)), ("dir/tasks.json@150%", INSTANCES, 100));
        assert_eq!(load_text("ule-cfs/c-ray").unwrap().with(20), "ule-cfs/c-ray@20%");
        let both = load_text("spin:-n2+tasks.json@50%").unwrap();
        assert_eq!((both.with(200).as_str(), both.counts()), ("spin:-n4+tasks.json@100%", PERCENT));
    }

    #[test]
    fn every_flag_is_one_of_its_generator_and_takes_the_most_that_is_said() {
        for load in &LOAD_FLAGS {
            let generator = find(load.generator).unwrap();
            assert!(generator.flags.iter().any(|flag| flag.long == load.flag), "{} {}", load.generator, load.flag);
            let others = if load.generator == "schbench" && load.flag == "rps" { "-t1," } else { "" };
            let text = |count| format!("{}:{others}--{}={count}", load.generator, load.flag);
            assert!(from_generator(&text(1)).is_ok(), "{}", text(1));
            let above = from_generator(&text(load.most + 1)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(above.contains("is not") || above.contains("more than"), "{above}");
        }
    }

    #[test]
    fn what_has_no_such_number_is_refused_with_what_has() {
        assert!(matches!(load_text("spin:-n2+spin"), Err(LoadTextError::NoProportion(_))));
        assert!(matches!(load_text("spin:-n2+hackbench:-T"), Err(LoadTextError::NoNumber("hackbench"))));
        assert!(matches!(load_text("hackbench:-T"), Err(LoadTextError::NoNumber("hackbench"))));
        assert!(matches!(load_text("spin:-q"), Err(LoadTextError::Text(_))));
        let advice = LoadTextError::advice();
        assert!(advice.contains("schbench: requests per second (--rps) or workers") && !advice.contains("hackbench"));
    }
}
