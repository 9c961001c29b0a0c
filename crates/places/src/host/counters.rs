//! Counters of threads on this computer: what each thread counted in each of its stays on a CPU.
//!
//! Two ways, the better one that there is:
//! - the kernel's performance events of every CPU, read at every switch ([`perf`]);
//! - its accounts in `/proc`, read when the recorder looks around, if events are refused: coarse, and short-lived threads are missed.
//!
//! Which events of a processor are which counter is [`aliases`]' to say. What could not be had is named, with what to grant.

pub mod aliases;
pub mod perf;

use std::collections::BTreeMap;
use std::fs;
use std::io;

use warmcore_capture::counters::{Counted, CounterLog, CounterSample, GroupReading, TASK_CLOCK};

use aliases::Processor;
use perf::{CpuCounters, Encoding, Taken};

/// Who may count whole CPUs.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const SWITCHES: &str = "context_switches";
/// What the kernel's accounts have.
const ACCOUNTS: [&str; 4] = [TASK_CLOCK, SWITCHES, "page_faults_minor", "page_faults_major"];

/// Which counters are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    /// All that this computer has.
    #[default]
    All,
    /// Those of the kernel, which cost least.
    Software,
    /// These.
    Named(Vec<String>),
}

impl Wanted {
    /// Reads names with commas between them; `all` and `software` stand for those.
    ///
    /// # Errors
    /// A name that is no counter's.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::All),
            "software" => return Ok(Self::Software),
            _ => {}
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        match names.iter().find(|name| !known().any(|known| known == *name)) {
            Some(unknown) => {
                let known: Vec<&str> = known().collect();
                Err(format!(
                    "there is no counter `{unknown}`; there are {}, and `all` and `software`",
                    known.join(", ")
                ))
            }
            None => Ok(Self::Named(names)),
        }
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Self::All => known().filter(|name| *name != TASK_CLOCK).collect(),
            Self::Software => aliases::SOFTWARE.iter().map(|(name, _)| *name).collect(),
            Self::Named(names) => names.iter().map(String::as_str).filter(|name| *name != TASK_CLOCK).collect(),
        }
    }
}

/// Names of all counters.
fn known() -> impl Iterator<Item = &'static str> {
    let software = aliases::SOFTWARE.iter().map(|(name, _)| *name);
    [TASK_CLOCK].into_iter().chain(software).chain(aliases::HARDWARE)
}

/// Counters that are ready to count.
#[derive(Debug)]
pub struct Counters {
    log: CounterLog,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// By CPU: its number, its counters, and what each group had counted at its last sample; nothing where records were lost since.
    Events(Vec<(u32, CpuCounters, Vec<Option<GroupReading>>)>),
    /// By thread: what its accounts said last.
    Accounts(BTreeMap<i32, [u64; 4]>),
}

impl Counters {
    /// Opens what is wanted on these CPUs, as far as it can be had.
    pub fn open(wanted: &Wanted, cpus: &[u32], ring_kib: u32) -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| Processor::parse(&text));
        let first = cpus.first().copied().unwrap_or(0);
        let mut notes = Vec::new();
        let mut software = Vec::new();
        let mut hardware = Vec::new();
        let mut refused = Vec::new();
        for name in wanted.names() {
            let found = aliases::encoding(name, processor.as_ref());
            let found = found.and_then(|code| perf::probe(code, first).map(|()| code).map_err(|error| reason(&error)));
            match found {
                Ok(code) if aliases::HARDWARE.contains(&name) => hardware.push((name.to_owned(), code)),
                // The leader of every group counts them anyhow, and at the right side of each switch.
                Ok(perf::CONTEXT_SWITCHES) => {}
                Ok(code) => software.push((name.to_owned(), code)),
                Err(reason) => refused.push((name, reason)),
            }
        }
        notes.extend(missing(&refused));
        let groups = grouped(software, &hardware, |encodings| perf::fits(encodings, first));
        let encodings: Vec<Vec<Encoding>> =
            groups.iter().map(|group| group.iter().map(|(_, encoding)| *encoding).collect()).collect();
        let opened: io::Result<Vec<_>> = cpus
            .iter()
            .map(|cpu| Ok((*cpu, CpuCounters::open(&encodings, *cpu, ring_kib)?, vec![None; groups.len()])))
            .collect();
        let names = |group: &Vec<(String, Encoding)>| group.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        match opened {
            Ok(cpus) => {
                let mut groups: Vec<Vec<String>> = groups.iter().map(names).collect();
                groups[0].splice(0..0, [TASK_CLOCK.into(), SWITCHES.into()]);
                let origin = "the kernel's performance events of each CPU, read at every switch".into();
                Self { log: CounterLog { origin, groups, notes, ..CounterLog::default() }, way: Way::Events(cpus) }
            }
            Err(error) => {
                notes.insert(0, format!("performance events are not available: {}", reason(&error)));
                let groups = vec![ACCOUNTS.map(String::from).to_vec()];
                let origin = "the kernel's accounts in /proc, read every 50 ms: not at switches, and without threads that lived shorter".into();
                let log = CounterLog { origin, groups, notes, ..CounterLog::default() };
                Self { log, way: Way::Accounts(BTreeMap::new()) }
            }
        }
    }

    /// What is missing, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.log.notes
    }

    /// Counts from now on.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn start(&mut self) -> io::Result<()> {
        if let Way::Events(cpus) = &mut self.way {
            for (_, counters, before) in cpus {
                for (number, (before, names)) in before.iter_mut().zip(&self.log.groups).enumerate() {
                    // All counts begin at nothing: the leader's and its members', and the clock is none of them.
                    let width = if number == 0 { names.len() - 1 } else { names.len() + 1 };
                    *before = Some(GroupReading { values: vec![0; width], ..GroupReading::default() });
                }
                counters.start()?;
            }
        }
        Ok(())
    }

    /// Takes what was counted, of threads of these processes where it comes from accounts.
    pub fn take(&mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) {
        let log = &mut self.log;
        match &mut self.way {
            Way::Events(cpus) => {
                for (cpu, counters, before) in cpus {
                    counters.take(|taken| match taken {
                        Taken::Left { group, thread, time_ns, reading } => {
                            stay(log, before, (*cpu, group), (time_ns, Counted::of(thread.max(-1))), reading);
                        }
                        Taken::Lost(records) => {
                            log.lost += records;
                            before.iter_mut().for_each(|before| *before = None);
                        }
                    });
                }
            }
            Way::Accounts(before) => {
                for (thread, process) in processes {
                    let Some((cpu, now)) = accounts(*process, *thread) else { continue };
                    let Some(last) = before.insert(*thread, now) else { continue };
                    let values: Vec<u64> = now.iter().zip(last).map(|(now, last)| now.saturating_sub(last)).collect();
                    if values.iter().any(|value| *value > 0) {
                        let (thread, span_ns) = (Counted::Thread(*thread), values[0]);
                        log.samples.push(CounterSample { time_ns, cpu, thread, group: 0, span_ns, values });
                    }
                }
            }
        }
    }

    /// Counts no more, and gives all that was counted.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn stop(mut self, time_ns: u64, processes: &BTreeMap<i32, i32>) -> io::Result<CounterLog> {
        let mut rest = Vec::new();
        if let Way::Events(cpus) = &self.way {
            for (_, counters, _) in cpus {
                rest.push(counters.stop()?);
            }
        }
        self.take(time_ns, processes);
        if let Way::Events(cpus) = &mut self.way {
            for ((cpu, _, before), readings) in cpus.iter_mut().zip(rest) {
                for (group, reading) in readings.into_iter().enumerate() {
                    stay(&mut self.log, before, (*cpu, group), (time_ns, Counted::Rest), reading);
                }
            }
        }
        Ok(self.log)
    }
}

/// Adds the sample of a stay, if it is known from where on it counts.
fn stay(
    log: &mut CounterLog,
    before: &mut [Option<GroupReading>],
    (cpu, group): (u32, usize),
    (time_ns, thread): (u64, Counted),
    reading: GroupReading,
) {
    let found = before[group].as_ref().and_then(|before| reading.stay(before));
    if let Some((span_ns, mut values)) = found {
        // The leader's own count is that of the switch that made the sample: a counter of the first group, which has the clock before it.
        match group {
            0 => values.insert(0, span_ns),
            _ => drop(values.remove(0)),
        }
        log.samples.push(CounterSample { time_ns, cpu, thread, group: group as u32, span_ns, values });
    }
    before[group] = Some(reading);
}

/// Groups of counters: the kernel's own first; then as many of the processor's together as find room.
fn grouped(
    software: Vec<(String, Encoding)>,
    hardware: &[(String, Encoding)],
    fits: impl Fn(&[Encoding]) -> bool,
) -> Vec<Vec<(String, Encoding)>> {
    let mut groups = vec![software];
    let mut open: Vec<(String, Encoding)> = Vec::new();
    for event in hardware {
        let together: Vec<Encoding> = open.iter().chain([event]).map(|(_, encoding)| *encoding).collect();
        if !open.is_empty() && !fits(&together) {
            groups.push(std::mem::take(&mut open));
        }
        open.push(event.clone());
    }
    if !open.is_empty() {
        groups.push(open);
    }
    groups
}

/// Why an event is refused, and what to grant.
fn reason(error: &io::Error) -> String {
    let paranoid = fs::read_to_string(PARANOID).unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "not permitted (kernel.perf_event_paranoid is {}): needs CAP_PERFMON (`setcap cap_perfmon+ep warmcore`), or as root `sysctl \
             kernel.perf_event_paranoid=0`",
            paranoid.trim()
        ),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this computer has no such event: a virtual machine often has no performance monitoring unit".into()
        }
        Some(libc::ENOSYS) => {
            "this kernel has no performance events (CONFIG_PERF_EVENTS), or a container forbids them".into()
        }
        Some(libc::EMFILE) => "too many open files: `ulimit -n` makes room for more".into(),
        _ => error.to_string(),
    }
}

/// One sentence for all counters that lack for the same reason.
fn missing(refused: &[(&str, String)]) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in refused {
        match by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((reason, vec![name])),
        }
    }
    by_reason.iter().map(|(reason, names)| format!("not counted: {}: {reason}", names.join(", "))).collect()
}

/// A thread's CPU and accounts: time on CPUs, switches, page faults minor and major.
///
/// Source: `proc_pid_schedstat(5)`; `proc_pid_stat(5)`, fields 10, 12 and 39; `proc_pid_status(5)`.
pub fn accounts(process: i32, thread: i32) -> Option<(u32, [u64; 4])> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{name}")).ok();
    parse_accounts(&file("schedstat")?, &file("stat")?, &file("status")?)
}

fn parse_accounts(schedstat: &str, stat: &str, status: &str) -> Option<(u32, [u64; 4])> {
    let run_ns = schedstat.split_whitespace().next()?.parse().ok()?;
    // Field 3 is the first behind the name.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let switches = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
    });
    Some((u32::try_from(field(39)?).ok()?, [run_ns, switches.sum(), field(10)?, field(12)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(config: u64) -> (String, Encoding) {
        (format!("e{config}"), Encoding { unit: 4, config, config1: 0 })
    }

    #[test]
    fn counters_that_find_no_room_together_are_in_several_groups() {
        let hardware: Vec<_> = (0..5).map(event).collect();
        let groups = grouped(vec![event(9)], &hardware, |encodings| encodings.len() <= 2);
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2, 2, 1]);
        assert_eq!(grouped(Vec::new(), &[], |_| true), [Vec::new()], "the clock is always there");
    }

    #[test]
    fn after_a_loss_nothing_is_anybodys_until_the_next_sample() {
        let mut log = CounterLog::default();
        let reading = |ns, faults| GroupReading { enabled_ns: ns, running_ns: ns, values: vec![1, faults] };
        let mut before = vec![None];
        let left = |time_ns| (time_ns, Counted::Thread(7));
        stay(&mut log, &mut before, (0, 0), left(1000), reading(1000, 3));
        assert!(log.samples.is_empty());
        stay(&mut log, &mut before, (0, 0), left(1500), reading(1500, 5));
        assert_eq!((log.samples[0].span_ns, &log.samples[0].values), (500, &vec![500, 0, 2]));
    }

    #[test]
    fn names_are_checked_and_what_lacks_is_told_once_for_each_reason() {
        assert_eq!(Wanted::parse("software"), Ok(Wanted::Software));
        assert!(Wanted::parse("cycles,nonsense").unwrap_err().contains("nonsense"));
        assert_eq!(Wanted::parse("cycles, task_clock_ns").unwrap().names(), ["cycles"]);
        let refused = [("a", "no unit".to_owned()), ("b", "no event".to_owned()), ("c", "no unit".to_owned())];
        assert_eq!(missing(&refused), ["not counted: a, c: no unit", "not counted: b: no event"]);
        let denied = reason(&io::Error::from_raw_os_error(libc::EACCES));
        assert!(denied.contains("CAP_PERFMON") && denied.contains("perf_event_paranoid"), "{denied}");
    }

    #[test]
    fn accounts_are_the_kernels_fields() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 0 11 2 13 4 50 60 70 80 20 0 1 0 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 17 5 0 0";
        let status = "voluntary_ctxt_switches:\t30\nnonvoluntary_ctxt_switches:\t12\n";
        assert_eq!(parse_accounts("900 5 6\n", stat, status), Some((5, [900, 42, 11, 13])));
        assert_eq!(parse_accounts("", stat, status), None);
    }
}
