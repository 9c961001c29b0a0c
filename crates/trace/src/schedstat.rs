//! The kernel's accounts of scheduling by CPU and by scheduling domain, as `/proc/schedstat` and `perf sched stats report` print them.
//!
//! Counters of a domain are named as `perf sched stats` names them, in the order of version 17 (Linux 6.14 and later). Versions 15 and 16 have
//! one counter of imbalances where 17 has four, and no names of domains; 15 has idle CPUs before busy ones.
//!
//! Source: Linux 7.2 `kernel/sched/stats.c` (`show_schedstat`), `Documentation/scheduler/sched-stats.rst`; names from
//! `tools/lib/perf/include/perf/schedstat-v15.h` to `-v17.h`.

use std::collections::BTreeMap;
use std::fmt;

use warmcore_topology::{CpuId, CpuSet, MAX_CPU_NUMBER, Machine};

use crate::{Event, EventKind, Sink, TaskId};

/// Counters of a CPU: calls of `sched_yield`; always 0; switches (`schedule` calls); of these to idle; wakeups made; of these on the own CPU;
/// time that tasks ran, ns; time that they waited, ns; stays.
pub const CPU_FIELDS: [&str; 9] = [
    "yld_count",
    "array_exp",
    "sched_count",
    "sched_goidle",
    "ttwu_count",
    "ttwu_local",
    "rq_cpu_time",
    "run_delay",
    "pcount",
];

/// States of the CPU that balances, in the order of versions 16 and 17.
const IDLE_TYPES: [&str; 3] = ["busy", "idle", "newidle"];

/// Counters of balancing for each of these states.
const BALANCE_FIELDS: [&str; 11] = [
    "lb_count",
    "lb_balanced",
    "lb_failed",
    "lb_imbalance_load",
    "lb_imbalance_util",
    "lb_imbalance_task",
    "lb_imbalance_misfit",
    "lb_gained",
    "lb_hot_gained",
    "lb_nobusyq",
    "lb_nobusyg",
];

/// Where the imbalances are among them, which were one counter before version 17.
const IMBALANCES: std::ops::Range<usize> = 3..7;

/// The other counters of a domain.
const OTHER_FIELDS: [&str; 12] = [
    "alb_count",
    "alb_failed",
    "alb_pushed",
    "sbe_count",
    "sbe_balanced",
    "sbe_pushed",
    "sbf_count",
    "sbf_balanced",
    "sbf_pushed",
    "ttwu_wake_remote",
    "ttwu_move_affine",
    "ttwu_move_balance",
];

/// Number of counters of a domain in version 17.
pub const DOMAIN_COUNTERS: usize = IDLE_TYPES.len() * BALANCE_FIELDS.len() + OTHER_FIELDS.len();

/// Name of a counter of a domain, by its place.
pub fn domain_field(place: usize) -> String {
    match place.checked_sub(IDLE_TYPES.len() * BALANCE_FIELDS.len()) {
        Some(other) => OTHER_FIELDS[other].to_owned(),
        None => {
            format!("{}_{}", IDLE_TYPES[place / BALANCE_FIELDS.len()], BALANCE_FIELDS[place % BALANCE_FIELDS.len()])
        }
    }
}

/// Place of a counter of balancing: state of the CPU (0 busy, 1 idle, 2 about to be idle), and which counter.
pub const fn balance_place(idle_type: usize, field: usize) -> usize {
    idle_type * BALANCE_FIELDS.len() + field
}

/// Place of a counter by its name.
pub fn domain_place(name: &str) -> Option<usize> {
    (0..DOMAIN_COUNTERS).find(|place| domain_field(*place) == name)
}

/// A scheduling domain of a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainCounters {
    /// The kernel's name, such as `MC`; empty where it does not tell.
    pub name: String,
    /// CPUs of its span.
    pub span: CpuSet,
    /// By place; none where the version does not have it.
    pub values: [Option<u64>; DOMAIN_COUNTERS],
}

/// A CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuCounters {
    /// Its number.
    pub cpu: u32,
    /// In the order of [`CPU_FIELDS`].
    pub values: [u64; CPU_FIELDS.len()],
    /// Its domains, bottom up.
    pub domains: Vec<DomainCounters>,
}

/// Accounts of all CPUs up to a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedstat {
    /// Time in jiffies.
    pub timestamp: u64,
    /// Every CPU that is online, ascending.
    pub cpus: Vec<CpuCounters>,
}

/// Why a text is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum SchedstatError {
    #[error("schedstat version {0} is none of 15, 16 and 17")]
    Version(u32),
    /// A line that does not fit.
    #[error("line {line}: {problem}")]
    Line { line: usize, problem: &'static str },
    #[error(
        "it begins neither with `version` and `timestamp`, as /proc/schedstat does, nor is it what `perf sched stats report` prints"
    )]
    Neither,
}

impl Schedstat {
    /// Reads the text of `/proc/schedstat`, or what `perf sched stats report` prints of single CPUs.
    ///
    /// # Errors
    /// A text that is neither, or of another version.
    pub fn parse(text: &str) -> Result<Self, SchedstatError> {
        match text.lines().next().and_then(|line| line.strip_prefix("version ")) {
            Some(version) => match version.trim().parse() {
                Ok(version @ 15..=17) => parse_proc(text, version),
                Ok(version) => Err(SchedstatError::Version(version)),
                Err(_) => Err(SchedstatError::Neither),
            },
            None => parse_report(text),
        }
    }

    /// What was counted since an earlier state: CPUs and domains that are in both.
    pub fn since(&self, earlier: &Self) -> Self {
        let cpus = self.cpus.iter().filter_map(|cpu| {
            let at = earlier.cpus.binary_search_by_key(&cpu.cpu, |before| before.cpu).ok()?;
            let before = &earlier.cpus[at];
            let mut values = cpu.values;
            values.iter_mut().zip(before.values).for_each(|(now, before)| *now = now.saturating_sub(before));
            let mut domains = cpu.domains.clone();
            for (domain, before) in domains.iter_mut().zip(&before.domains) {
                // Domains that were built anew begin at 0.
                if (&domain.name, &domain.span) == (&before.name, &before.span) {
                    let pairs = domain.values.iter_mut().zip(before.values);
                    pairs.for_each(|(now, before)| *now = now.map(|now| now.saturating_sub(before.unwrap_or(0))));
                }
            }
            Some(CpuCounters { cpu: cpu.cpu, values, domains })
        });
        Self { timestamp: self.timestamp.saturating_sub(earlier.timestamp), cpus: cpus.collect() }
    }

    /// Sums over CPUs by level of domains: name, or `domainN` where the kernel does not tell, and counters; in the order in which they occur.
    pub fn by_level(&self) -> Vec<(String, [Option<u64>; DOMAIN_COUNTERS])> {
        let mut levels: Vec<(String, [Option<u64>; DOMAIN_COUNTERS])> = Vec::new();
        let mut places = BTreeMap::new();
        for cpu in &self.cpus {
            for (number, domain) in cpu.domains.iter().enumerate() {
                let name = if domain.name.is_empty() { format!("domain{number}") } else { domain.name.clone() };
                let at = *places.entry(name).or_insert_with_key(|name| {
                    levels.push((name.clone(), [None; DOMAIN_COUNTERS]));
                    levels.len() - 1
                });
                for (sum, value) in levels[at].1.iter_mut().zip(domain.values) {
                    *sum = value.map_or(*sum, |value| Some(sum.unwrap_or(0).saturating_add(value)));
                }
            }
        }
        levels
    }

    /// Sums of the CPUs' own counters, in the order of [`CPU_FIELDS`].
    pub fn totals(&self) -> [u64; CPU_FIELDS.len()] {
        let mut sums = [0_u64; CPU_FIELDS.len()];
        for cpu in &self.cpus {
            sums.iter_mut().zip(cpu.values).for_each(|(sum, value)| *sum = sum.saturating_add(value));
        }
        sums
    }
}

/// In the form of version 17; a counter that is not known is 0.
impl fmt::Display for Schedstat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version 17\ntimestamp {}", self.timestamp)?;
        let spans = self.cpus.iter().flat_map(|cpu| &cpu.domains).filter_map(|domain| domain.span.iter().last());
        let bits = spans.map(|cpu| cpu.0).chain(self.cpus.iter().map(|cpu| cpu.cpu)).max().map_or(1, |last| last + 1);
        for cpu in &self.cpus {
            write!(f, "cpu{}", cpu.cpu)?;
            cpu.values.iter().try_for_each(|value| write!(f, " {value}"))?;
            writeln!(f)?;
            for (number, domain) in cpu.domains.iter().enumerate() {
                let name = if domain.name.is_empty() { "?" } else { &domain.name };
                write!(f, "domain{number} {name} {}", mask(&domain.span, bits))?;
                domain.values.iter().try_for_each(|value| write!(f, " {}", value.unwrap_or(0)))?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// CPUs as `%*pb` prints them: 32 to a word, the highest first, which is as long as so many CPUs need.
fn mask(cpus: &CpuSet, bits: u32) -> String {
    let mut text = String::new();
    for word in (0..bits.div_ceil(32)).rev() {
        let first = word * 32;
        let value = (0..32).filter(|bit| cpus.contains(CpuId(first + bit))).fold(0_u32, |value, bit| value | 1 << bit);
        let digits = (bits - first).min(32).div_ceil(4) as usize;
        let comma = if text.is_empty() { "" } else { "," };
        text.push_str(&format!("{comma}{value:0digits$x}"));
    }
    text
}

/// Words of a mask of all CPUs that a machine may have; a longer one is damage.
const MOST_WORDS: usize = MAX_CPU_NUMBER as usize / 32 + 1;

/// More levels of domains than any kernel builds.
const MOST_DOMAINS: usize = 16;

fn parse_mask(text: &str) -> Option<CpuSet> {
    let mut cpus = CpuSet::default();
    for (number, word) in text.rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok().filter(|_| number < MOST_WORDS)?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| CpuId(number as u32 * 32 + bit)));
    }
    Some(cpus)
}

impl Schedstat {
    /// Adds a CPU behind the others, with its own counters.
    ///
    /// # Errors
    /// One that does not come behind the last, or whose number no machine has.
    pub fn add_cpu(&mut self, cpu: u32, values: [u64; CPU_FIELDS.len()]) -> Result<(), &'static str> {
        if cpu > MAX_CPU_NUMBER || self.cpus.last().is_some_and(|last| last.cpu >= cpu) {
            return Err("CPUs are not in ascending order");
        }
        self.cpus.push(CpuCounters { cpu, values, domains: Vec::new() });
        Ok(())
    }

    /// Adds the next domain of the last CPU, with its counters in the order of a version.
    ///
    /// # Errors
    /// Other counters than that version has, or more domains than any kernel builds.
    pub fn add_domain(&mut self, name: &str, span: CpuSet, counted: &[u64], version: u32) -> Result<(), &'static str> {
        let values = placed(counted, version).ok_or("not the counters of a domain in this version")?;
        let cpu = self.cpus.last_mut().ok_or("a domain before any CPU")?;
        cpu.put_domain(DomainCounters { name: name.to_owned(), span, values })
    }

    /// The CPU whose number a line gives: the last one, or one behind it.
    fn put_cpu(&mut self, number: &str) -> Result<&mut CpuCounters, &'static str> {
        let cpu = number.trim().parse().ok().filter(|cpu| *cpu <= MAX_CPU_NUMBER).ok_or("no number of a CPU")?;
        let last = self.cpus.last().map(|last| last.cpu);
        if last.is_some_and(|last| last > cpu) {
            return Err("CPUs are not in ascending order");
        }
        if last != Some(cpu) {
            self.cpus.push(CpuCounters { cpu, ..CpuCounters::default() });
        }
        self.cpus.last_mut().ok_or("no CPU")
    }
}

impl CpuCounters {
    /// Its next domain.
    fn put_domain(&mut self, domain: DomainCounters) -> Result<(), &'static str> {
        if self.domains.len() == MOST_DOMAINS {
            return Err("a CPU with more than 16 domains");
        }
        self.domains.push(domain);
        Ok(())
    }
}

fn parse_proc(text: &str, version: u32) -> Result<Schedstat, SchedstatError> {
    let mut read = Schedstat::default();
    for (number, line) in text.lines().enumerate().skip(1) {
        put_line(&mut read, line, version).map_err(|problem| SchedstatError::Line { line: number + 1, problem })?;
    }
    match read.cpus.is_empty() {
        true => Err(SchedstatError::Line { line: 1, problem: "no line of a CPU follows" }),
        false => Ok(read),
    }
}

fn put_line(read: &mut Schedstat, line: &str, version: u32) -> Result<(), &'static str> {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return Ok(()) };
    if first == "timestamp" {
        read.timestamp = words.next().and_then(|word| word.parse().ok()).ok_or("no time")?;
    } else if let Some(cpu) = first.strip_prefix("cpu") {
        let known = read.cpus.len();
        read.put_cpu(cpu)?;
        if read.cpus.len() == known {
            return Err("a CPU twice");
        }
        for value in &mut read.cpus[known].values {
            *value = words.next().and_then(|word| word.parse().ok()).ok_or("a CPU has 9 counters")?;
        }
    } else if first.starts_with("domain") {
        let name = if version >= 17 { words.next().ok_or("no name of a domain")? } else { "" };
        let span = words.next().and_then(parse_mask).ok_or("no CPUs of a domain")?;
        let counted: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        read.add_domain(name, span, &counted.ok_or("not the counters of a domain in this version")?, version)?;
    } else {
        return Err("it begins with none of `timestamp`, `cpu` and `domain`");
    }
    Ok(())
}

/// How many counters a domain has in a version.
pub const fn counters_of(version: u32) -> usize {
    let sums = if version >= 17 { 0 } else { IMBALANCES.end - IMBALANCES.start - 1 };
    IDLE_TYPES.len() * (BALANCE_FIELDS.len() - sums) + OTHER_FIELDS.len()
}

/// Counters in the order of version 17.
fn placed(counted: &[u64], version: u32) -> Option<[Option<u64>; DOMAIN_COUNTERS]> {
    let has_imbalances = version >= 17;
    let per_type = if has_imbalances { BALANCE_FIELDS.len() } else { BALANCE_FIELDS.len() - (IMBALANCES.len() - 1) };
    if counted.len() != counters_of(version) {
        return None;
    }
    let mut values = [None; DOMAIN_COUNTERS];
    for idle_type in 0..IDLE_TYPES.len() {
        // Before version 16 idle CPUs came first.
        let at = match (version, idle_type) {
            (15, 0) => 1,
            (15, 1) => 0,
            _ => idle_type,
        } * per_type;
        let mut field = 0;
        for value in &counted[at..at + per_type] {
            if !has_imbalances && field == IMBALANCES.start {
                // What it summed up says nothing.
                field = IMBALANCES.end;
                continue;
            }
            values[balance_place(idle_type, field)] = Some(*value);
            field += 1;
        }
    }
    let others = counted[IDLE_TYPES.len() * per_type..].iter().map(|value| Some(*value));
    let first = balance_place(IDLE_TYPES.len(), 0);
    values[first..].iter_mut().zip(others).for_each(|(place, value)| *place = value);
    Some(values)
}

/// `CPU 0`, `CPU 0, DOMAIN SMT CPUS 0,64`, and below each lines such as `busy_lb_count : 136 $ 17.08 $`. Sums over all CPUs, which
/// it prints first, are left out, and computed anew.
fn parse_report(text: &str) -> Result<Schedstat, SchedstatError> {
    let mut read = Schedstat::default();
    let mut in_cpu = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(heading) = line.strip_prefix("CPU ").or_else(|| line.strip_prefix("CPU: ")) {
            in_cpu = !heading.split(',').next().is_some_and(|cpu| cpu.contains("ALL"));
            if in_cpu {
                put_heading(&mut read, heading)
                    .map_err(|problem| SchedstatError::Line { line: number + 1, problem })?;
            }
            continue;
        }
        let Some((name, value)) = line.split_once(':').filter(|_| in_cpu) else { continue };
        let (Some(cpu), Some(value)) = (read.cpus.last_mut(), value.split_whitespace().next()) else { continue };
        let Ok(value) = value.parse::<u64>() else { continue };
        let name = name.trim();
        match cpu.domains.last_mut() {
            Some(domain) => {
                if let Some(place) = domain_place(name) {
                    domain.values[place] = Some(value);
                }
            }
            None => {
                if let Some(place) = CPU_FIELDS.iter().position(|field| *field == name) {
                    cpu.values[place] = value;
                }
            }
        }
    }
    if read.cpus.is_empty() { Err(SchedstatError::Neither) } else { Ok(read) }
}

/// `0` or `0, DOMAIN SMT CPUS 0,64`.
fn put_heading(read: &mut Schedstat, heading: &str) -> Result<(), &'static str> {
    let (cpu, domain) = heading.split_once(',').map_or((heading, None), |(cpu, domain)| (cpu, Some(domain.trim())));
    let cpu = read.put_cpu(cpu)?;
    if let Some(domain) = domain.and_then(|domain| domain.strip_prefix("DOMAIN ")) {
        let (name, span) = domain.split_once(" CPUS ").ok_or("no CPUs of a domain")?;
        let name = name.trim();
        if name.contains(char::is_whitespace) {
            return Err("a domain's name of several words");
        }
        let span = CpuSet::parse_list(span.trim()).map_err(|_| "no list of CPUs")?;
        cpu.put_domain(DomainCounters { name: name.into(), span, values: [None; DOMAIN_COUNTERS] })?;
    }
    Ok(())
}

/// What a task does, for the CPUs' own counters.
#[derive(Clone, Copy, Default)]
struct TaskActivity {
    /// Since when it waits in a queue.
    waits_since_ns: Option<u64>,
    /// Who wakes it, by CPU.
    woken_on: Option<CpuId>,
}

/// Counts for the CPUs' own counters while events stream by.
pub struct CpuLines {
    cpus: Vec<[u64; CPU_FIELDS.len()]>,
    running: Vec<(TaskId, u64)>,
    tasks: Vec<TaskActivity>,
    /// Wakeups from one CPU to another.
    remote: BTreeMap<(CpuId, CpuId), u64>,
}

impl CpuLines {
    /// For a run on this machine.
    pub fn new(machine: &Machine) -> Self {
        let cpus = machine.cpu_count();
        Self {
            cpus: vec![[0; CPU_FIELDS.len()]; cpus],
            running: vec![(TaskId::IDLE, 0); cpus],
            tasks: Vec::new(),
            remote: Default::default(),
        }
    }

    /// The accounts of a run that ended, with what its scheduler counted of domains.
    #[must_use]
    pub fn finish(mut self, machine: &Machine, end_ns: u64, domains: &[CpuCounters]) -> Schedstat {
        for cpu in machine.cpus() {
            self.leave(end_ns, cpu);
        }
        let row = |cpu: CpuId| {
            let os_index = machine.os_index(cpu);
            let counted = domains.iter().find(|counted| counted.cpu == os_index);
            let mut row = CpuCounters {
                cpu: os_index,
                values: self.cpus[cpu.index()],
                domains: counted.map_or(Vec::new(), |counted| counted.domains.clone()),
            };
            let remote = domain_place("ttwu_wake_remote").unwrap_or_default();
            for (&(_, to), count) in self.remote.range((cpu, CpuId(0))..=(cpu, CpuId(u32::MAX))) {
                let to = CpuId(machine.os_index(to));
                if let Some(domain) = row.domains.iter_mut().find(|domain| domain.span.contains(to)) {
                    domain.values[remote] = Some(domain.values[remote].unwrap_or(0) + count);
                }
            }
            row
        };
        Schedstat { timestamp: end_ns / NS_OF_TIMESTAMP, cpus: machine.cpus().map(row).collect() }
    }

    fn leave(&mut self, now_ns: u64, cpu: CpuId) {
        let (task, since_ns) = self.running[cpu.index()];
        if !task.is_idle() {
            self.cpus[cpu.index()][6] += now_ns - since_ns;
        }
    }

    fn task(&mut self, task: TaskId) -> &mut TaskActivity {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, TaskActivity::default());
        }
        &mut self.tasks[task.index()]
    }

    fn event(&mut self, event: &Event) {
        let (now_ns, cpu) = (event.time_ns, event.cpu);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.leave(now_ns, cpu);
                self.running[cpu.index()] = (next, now_ns);
                if !prev.is_idle() && prev_state == crate::PrevState::Runnable {
                    self.task(prev).waits_since_ns = Some(now_ns);
                }
                let waited_ns = match next.is_idle() {
                    true => 0,
                    false => self.task(next).waits_since_ns.take().map_or(0, |since_ns| now_ns - since_ns),
                };
                let row = &mut self.cpus[cpu.index()];
                row[2] += 1;
                row[3] += u64::from(next.is_idle());
                row[7] += waited_ns;
                row[8] += u64::from(!next.is_idle());
            }
            EventKind::Waking { task, .. } => {
                self.cpus[cpu.index()][4] += 1;
                self.task(task).woken_on = Some(cpu);
            }
            EventKind::Wakeup { task, .. } => {
                let known = self.task(task);
                known.waits_since_ns.get_or_insert(now_ns);
                match known.woken_on.take() {
                    Some(waker) if waker == cpu => self.cpus[cpu.index()][5] += 1,
                    Some(waker) => *self.remote.entry((waker, cpu)).or_default() += 1,
                    None => {}
                }
            }
            _ => {}
        }
    }
}

/// Accounts of a run count time in milliseconds, as a kernel with 1000 ticks a second does.
const NS_OF_TIMESTAMP: u64 = 1_000_000;

impl Sink for CpuLines {
    fn events(&mut self, batch: &[Event]) -> std::io::Result<()> {
        batch.iter().for_each(|event| self.event(event));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
