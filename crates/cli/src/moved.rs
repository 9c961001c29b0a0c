//! What was typed differently once: old names fail, with the new one.

use clap::error::{ContextKind, ContextValue};

/// Commands that have other names.
const COMMANDS: &[(&str, &str)] = &[
    ("machine list", "list machines"),
    ("machine detect", "machine show host"),
    ("machine snapshot", "machine convert host --to snapshot --out DIR"),
    ("workload list", "list workloads"),
    ("workload new", "reference workload"),
    ("memory run", "memory"),
    ("memory profiles", "list profiles"),
    ("metrics list", "list metrics"),
    ("schedulers list", "list schedulers"),
    ("schedulers show", "scheduler"),
    ("schedulers check", "scheduler"),
    ("study list", "list studies"),
    ("study check", "study run --dry-run"),
    ("reproduce", "study run papers/NAME"),
    ("events", "explain --events"),
    ("host doctor", "doctor host"),
    ("host restore", "doctor restore"),
    ("restore", "doctor restore"),
    ("vm doctor", "doctor vm"),
    ("vm kernels", "list kernels"),
    ("vm boot", "vm"),
    ("vm run", "sim --on vm"),
    ("vm exec", "vm"),
    ("vm shell", "vm --shell"),
    ("schema", "reference schema"),
    ("completions", "reference completions"),
    ("man", "reference man"),
];

/// Options of some commands that are said otherwise.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("compare sim", "--base", "--machine MACHINE@PRESET"),
    ("compare sim", "--scores", "--trace full:TIME"),
    ("compare sim sweep", "--page-size", "--memory exact-paged:page=SIZE"),
    ("compare sim sweep", "--tlb", "--memory exact-paged:tlb=ENTRIES"),
    ("compare sim sweep", "--ram", "--memory exact-paged:ram=SIZE"),
    ("memory", "--page-size", "--pages page=SIZE"),
    ("memory", "--tlb", "--pages page=SIZE,tlb=ENTRIES"),
    ("memory", "--ram", "--pages page=SIZE,ram=SIZE"),
    ("memory", "--llc-fill", "--caches fill=RULE"),
    ("memory", "--llc-replacement", "--caches llc=RULE"),
    ("memory", "--private-replacement", "--caches private=RULE"),
    ("memory", "--sets", "--caches sets=RULE"),
    ("memory", "--protocol", "--caches protocol=NAME"),
    ("compare", "--dry-run", "--on host:dry-run"),
    ("list", "--profiles", "workload convert --profiles, whose file is listed"),
    ("report", "--open", "xdg-open PAGE, the page that report names"),
    ("report", "--width", "--figure NAME:WIDTH"),
    ("compare", "--no-out", "--keep nothing"),
    ("compare", "--no-report", "--keep run"),
    ("compare", "--lesson", "report RUN --lesson FILE, afterwards"),
    ("compare", "--higher", "--metric higher:METRIC"),
    ("compare", "--cpus", "--on host:cpus=CPUS"),
    ("compare", "--set-cpus", "--on host:set-cpus=MEANS"),
    ("compare", "--governor", "--on host:governor=A+B"),
    ("compare", "--numa-balancing", "--on host:numa-balancing=on+off"),
    ("compare", "--set", "--on host:set=PATH=VALUE"),
    ("compare", "--replace", "--on host:replace"),
    ("compare", "--warm-up-rounds", "--on host:warm-up-rounds=COUNT"),
    ("compare sim", "--kernel", "--on vm:kernel=FILE"),
    ("compare sim", "--config", "--on vm:config=FILE"),
    ("compare sim", "--virtual-time", "--on vm:virtual-time=SHIFT"),
    ("compare sim", "--real-time", "--on vm:real-time"),
    ("compare sim", "--boot-limit", "--on vm:boot-limit=TIME"),
    ("compare sim", "--trace-buffer", "--on vm:trace-buffer=MIB"),
    ("vm validate", "--kernel", "--guest kernel=FILE"),
    ("vm validate", "--config", "--guest config=FILE"),
    ("vm validate", "--virtual-time", "--guest virtual-time=SHIFT"),
    ("vm validate", "--real-time", "--guest real-time"),
    ("vm validate", "--boot-limit", "--guest boot-limit=TIME"),
    ("vm validate", "--trace-buffer", "--guest trace-buffer=MIB"),
    ("sweep", "--markdown", "--out DIR, whose sweep.md is the table"),
    ("validate", "--again", "--renew simulations"),
    ("validate", "--costs", "--renew costs"),
    ("validate", "--between", "nothing: it is always the simulator and a real kernel"),
    ("group", "--watch", "watch:PID, in the place of the recording"),
    ("replay group", "--process", "--only process:PID"),
    ("replay group", "--descendants-of", "--only descendants-of:PID"),
    ("replay group", "--thread", "--only thread:NAME"),
];

/// What these words are called now, if they are an old name; the words follow the program's name.
pub fn advice(words: &[String]) -> Option<String> {
    let names: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let is_old = |old: &str| old.split(' ').enumerate().all(|(at, word)| names.get(at) == Some(&word));
    if let Some((old, new)) = COMMANDS.iter().find(|(old, _)| is_old(old)) {
        return Some(format!("`warmcore {old}` is `warmcore {new}` now"));
    }
    let command = *names.first()?;
    let given = words.iter().take_while(|word| *word != "--").map(|word| word.split('=').next().unwrap_or(word));
    let given: Vec<&str> = given.collect();
    let moved = |(commands, option, _): &&(&str, &str, &str)| {
        commands.split(' ').any(|name| name == command) && given.contains(option)
    };
    OPTIONS.iter().find(moved).map(|(_, option, new)| format!("`{option}` is `{new}` now"))
}

/// The error with the new name of what was typed, if it is an old one.
pub fn told(mut error: clap::Error, words: &[String]) -> clap::Error {
    use clap::error::ErrorKind::{InvalidSubcommand, UnknownArgument};
    if matches!(error.kind(), InvalidSubcommand | UnknownArgument)
        && let Some(advice) = advice(words)
    {
        for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue] {
            error.remove(kind);
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Arguments;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn refused(text: &str) -> String {
        let words = words(text);
        let typed = ["warmcore".to_owned()].into_iter().chain(words.iter().cloned());
        told(Arguments::read(typed.map(Into::into)).unwrap_err(), &words).to_string()
    }

    #[test]
    fn every_old_command_fails_with_its_new_name() {
        for (old, new) in COMMANDS {
            let message = refused(old);
            assert!(message.contains(&format!("`warmcore {new}` now")), "{old}: {message}");
        }
    }

    #[test]
    fn every_old_option_fails_with_its_new_name() {
        for (commands, option, new) in OPTIONS {
            for command in commands.split(' ') {
                let message = refused(&format!("{command} {option}"));
                assert!(message.contains(&format!("`{option}` is `{new}` now")), "{command} {option}: {message}");
            }
        }
    }

    #[test]
    fn every_new_name_is_one() {
        for (_, new) in COMMANDS {
            let mut command = Arguments::command();
            for word in new.split(' ').take_while(|word| !word.starts_with('-')) {
                let inner = command.find_subcommand(word).cloned();
                let is_value = command.get_positionals().next().is_some();
                assert!(inner.is_some() || is_value, "{new}: {word}");
                command = inner.unwrap_or(command);
            }
        }
    }
}
