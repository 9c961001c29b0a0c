//! Under which circumstances a scheduler runs that are not its own: on which CPUs and with which threads where, on another machine or with
//! another workload than its neighbours in the table, at which frequencies, with or without NUMA balancing, with which values in files of the
//! kernel. They are part of its text, so that a comparison has one column for each combination.
//!
//! What the words mean, and which can be had, the experiment and its place say.

use std::fmt;

/// What stands between a scheduler and its circumstances.
pub(crate) const SEPARATOR: &str = " @ ";

/// What stands before a command, which takes the rest of the text.
const COMMAND: &str = "-- ";

/// Circumstances that were chosen; the default is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Circumstances {
    /// Another machine than the experiment's.
    pub machine: Option<String>,
    /// Another workload than the experiment's.
    pub workload: Option<String>,
    /// CPUs to run on: `one-socket`, `one-node`, `one-llc` or a list of the system's numbers; all if there is none.
    pub cpus: Option<String>,
    /// Whether only the first hardware thread of each core is run on.
    pub smt_off: bool,
    /// Which thread is bound to which CPU: `spread`, `gathered`, `oracle` or a file; none is bound if there is none.
    pub pin: Option<String>,
    /// Another kernel than the experiment's guests have: an image, or the release of one that is kept.
    pub kernel: Option<String>,
    /// Frequency governor of these CPUs; as it is if there is none.
    pub governor: Option<String>,
    /// Whether NUMA balancing is on; as it is if that is not said.
    pub numa_balancing: Option<bool>,
    /// Files of the kernel and what is written there, in this order.
    pub files: Vec<(String, String)>,
    /// A second time what is there already, to see by how much it differs from itself.
    pub again: bool,
    /// Another command than the experiment's, as it was typed.
    pub command: Option<String>,
}

/// The words that there are, for whoever typed another one.
pub(crate) const WORDS: &str = "cpus=LIST, smt=off, pin=spread, gathered, oracle or a file, workload=TEXT, machine=TEXT, kernel=FILE, governor=NAME, \
                                numa_balancing=on or off, set=PATH=VALUE with a file below /sys or /proc/sys, and again";

/// A file of the kernel and a value for it, from `PATH=VALUE`.
///
/// # Errors
/// What is no such text, or no file of the kernel.
pub fn kernel_file(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or_else(|| format!("set={text}: `{text}` is not PATH=VALUE"))?;
    let kernels = path.starts_with("/sys/") || path.starts_with("/proc/sys/");
    if kernels && !path.split('/').any(|part| part == "..") {
        Ok((path.to_owned(), value.to_owned()))
    } else {
        Err(format!("set={text}: {path} is not a setting of the kernel: those are below /sys and /proc/sys"))
    }
}

impl Circumstances {
    /// Whether none are chosen.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Reads what [`Display`](fmt::Display) writes: words such as `cpus=0-3`, with spaces between them.
    ///
    /// # Errors
    /// The word that is none of them, or that says anew what another has said.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (words, command) = match text.split_once(COMMAND) {
            Some((words, command)) if words.is_empty() || words.ends_with(' ') => (words, Some(command.to_owned())),
            _ => (text, None),
        };
        let mut found = Self { command, ..Self::default() };
        for word in words.split_whitespace() {
            let once = |known: bool| if known { Err(word.to_owned()) } else { Ok(()) };
            let value = |value: &str| (!value.is_empty()).then(|| value.to_owned()).ok_or_else(|| word.to_owned());
            match word.split_once('=') {
                Some((key @ ("machine" | "workload" | "cpus" | "pin" | "kernel" | "governor"), text)) => {
                    let place = match key {
                        "machine" => &mut found.machine,
                        "workload" => &mut found.workload,
                        "cpus" => &mut found.cpus,
                        "pin" => &mut found.pin,
                        "kernel" => &mut found.kernel,
                        _ => &mut found.governor,
                    };
                    once(place.is_some())?;
                    *place = Some(value(text)?);
                }
                Some(("smt", "off")) => {
                    once(found.smt_off)?;
                    found.smt_off = true;
                }
                Some(("numa_balancing", switch @ ("on" | "off"))) => {
                    once(found.numa_balancing.is_some())?;
                    found.numa_balancing = Some(switch == "on");
                }
                Some(("set", text)) => {
                    let file = kernel_file(text).map_err(|_| word.to_owned())?;
                    once(found.files.contains(&file) || file.1.is_empty())?;
                    found.files.push(file);
                }
                None if word == "again" => found.again = true,
                _ => return Err(word.to_owned()),
            }
        }
        Ok(found)
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |key: &str, value: &Option<String>| value.as_ref().map(|value| format!("{key}={value}"));
        let switch = |on: &bool| format!("numa_balancing={}", if *on { "on" } else { "off" });
        let files = self.files.iter().map(|(path, value)| format!("set={path}={value}"));
        let words = [
            text("machine", &self.machine),
            text("workload", &self.workload),
            text("cpus", &self.cpus),
            self.smt_off.then(|| "smt=off".to_owned()),
            text("pin", &self.pin),
            text("kernel", &self.kernel),
            text("governor", &self.governor),
            self.numa_balancing.as_ref().map(switch),
        ];
        let last = [
            self.again.then(|| "again".to_owned()),
            self.command.as_ref().map(|command| format!("{COMMAND}{command}")),
        ];
        let words = words.into_iter().flatten().chain(files).chain(last.into_iter().flatten());
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use crate::SchedulerSpec;

    #[test]
    fn circumstances_are_read_as_they_are_written() {
        for text in [
            "eevdf @ cpus=0-3,8",
            "cache-aware:aggr_tolerance=100 @ cpus=one-socket governor=performance numa_balancing=off",
            "scx:/usr/bin/scx_lavd --performance @ again",
            "eevdf @ machine=genoa96 workload=verilator:-t8,-C100 cpus=one-llc smt=off pin=spread",
            "eevdf @ again -- ./server --threads 8 @ 3",
            "eevdf @ smt=off set=/proc/sys/vm/swappiness=10 set=/sys/kernel/debug/sched/features=NO_HRTICK again",
        ] {
            assert_eq!(SchedulerSpec::parse(text).unwrap().to_string(), text);
        }
        for text in ["scx:/bin/x \t@ again", "scx:/bin/x a @", "scx:/bin/x @ y @ again"] {
            let message = SchedulerSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains('@'), "{text}: {message}");
        }
        assert_ne!(SchedulerSpec::parse("eevdf @ again").unwrap(), SchedulerSpec::parse("eevdf").unwrap());
    }

    #[test]
    fn circumstances_may_follow_at_once_where_no_program_is_named() {
        for (typed, text) in [("eevdf@cpus=0-3", "eevdf @ cpus=0-3"), ("rr @smt=off", "rr @ smt=off")] {
            assert_eq!(SchedulerSpec::parse(typed).unwrap().to_string(), text);
        }
        for twice in ["cpus=0 cpus=1", "smt=off smt=off", "pin=spread pin=oracle"] {
            SchedulerSpec::parse(&format!("eevdf @ {twice}")).unwrap_err();
        }
    }

    #[test]
    fn a_word_that_is_no_circumstance_is_named() {
        for word in ["set=/etc/passwd=1", "set=/sys/../etc/passwd=1", "set=/proc/sys/vm/swappiness", "set=/sys/x="] {
            let message = SchedulerSpec::parse(&format!("eevdf @ {word}")).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("a file below /sys or /proc/sys"), "{message}");
        }
        let message = SchedulerSpec::parse("eevdf @ cpus=0 fast").unwrap_err().to_string();
        assert!(message.contains("`fast`") && message.contains("cpus=LIST"), "{message}");
    }
}
