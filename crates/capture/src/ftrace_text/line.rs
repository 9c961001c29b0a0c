//! A line of text: who, where, when, what.

use crate::record::{Context, MOST_CPUS};

#[derive(Debug)]
pub(super) enum Line<'a> {
    Event(Event<'a>),
    /// Events are missing on a CPU.
    Lost {
        cpu: u32,
        events: Option<u64>,
    },
    /// An empty line, a comment, or a line before the first event; with what it says.
    Header {
        cpus: Option<u32>,
        overwritten: Option<u64>,
    },
    Strange,
}

/// A line with an event.
#[derive(Debug)]
pub(super) struct Event<'a> {
    /// Name of the thread that ran.
    pub task: &'a str,
    pub by: i32,
    /// Its process, where there is a column of it.
    pub process: Option<i32>,
    pub cpu: u32,
    /// `None` without a column of flags.
    pub context: Option<Context>,
    pub time_ns: u64,
    pub name: &'a str,
    pub fields: &'a str,
}

impl<'a> Line<'a> {
    pub fn parse(line: &'a str) -> Self {
        let line = line.trim();
        header(line).or_else(|| lost(line)).or_else(|| Event::parse(line).map(Self::Event)).unwrap_or(Self::Strange)
    }
}

/// Begins the line that stands before the first event of a CPU.
const STARTED: &str = "##### CPU ";

fn header<'a>(line: &str) -> Option<Line<'a>> {
    if line.starts_with(STARTED) {
        return None;
    }
    let mut cpus = None;
    let mut overwritten = None;
    if let Some(comment) = line.strip_prefix('#') {
        // # entries-in-buffer/entries-written: 144/200   #P:2
        if let Some((_, counts)) = comment.split_once("entries-in-buffer/entries-written:") {
            let mut words = counts.split_whitespace();
            let (there, written) = words.next()?.split_once('/')?;
            overwritten = written.parse::<u64>().ok()?.checked_sub(there.parse().ok()?);
            cpus = words.find_map(|word| word.strip_prefix("#P:")?.parse().ok());
        }
    } else if let Some(number) = line.strip_prefix("cpus=") {
        cpus = Some(number.parse().ok()?);
    } else if !(line.is_empty() || line.starts_with("version =") || line.ends_with(" is empty")) {
        return None;
    }
    Some(Line::Header { cpus, overwritten })
}

/// `CPU:3 [LOST 5 EVENTS]`, `CPU:3 [LOST EVENTS]`, `CPU:3 [5 EVENTS DROPPED]`, `CPU:3 [EVENTS DROPPED]`; and `##### CPU 3 buffer started ####`
/// (`test_cpu_buff_start`), where what a CPU's buffer had before was written over.
fn lost<'a>(line: &str) -> Option<Line<'a>> {
    if let Some(started) = line.strip_prefix(STARTED) {
        let cpu = started.strip_suffix(" buffer started ####")?.parse().ok().filter(|cpu| *cpu < MOST_CPUS)?;
        return Some(Line::Lost { cpu, events: None });
    }
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once(' ')?;
    let cpu = cpu.parse().ok().filter(|cpu| *cpu < MOST_CPUS)?;
    let words: Vec<&str> = rest.trim().strip_prefix('[')?.strip_suffix(']')?.split(' ').take(4).collect();
    let events = match words[..] {
        ["LOST", number, "EVENTS"] | [number, "EVENTS", "DROPPED"] => Some(number.parse().ok()?),
        ["LOST", "EVENTS"] | ["EVENTS", "DROPPED"] => None,
        _ => return None,
    };
    Some(Line::Lost { cpu, events })
}

impl<'a> Event<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        // Names may have brackets too, as far as fifteen letters go: the column is the first one after which all else fits.
        line.match_indices(" [").take(8).find_map(|(at, _)| {
            let (cpu, rest) = line[at + 2..].split_once(']')?;
            let cpu = number(cpu)?.try_into().ok().filter(|cpu| *cpu < MOST_CPUS)?;
            Self::columns(line[..at].trim(), cpu, rest)
        })
    }

    fn columns(task: &'a str, cpu: u32, rest: &'a str) -> Option<Self> {
        let (first, after) = rest.trim_start().split_once(' ')?;
        let (context, time, rest) = match first.strip_suffix(':') {
            Some(time) => (None, time, after),
            None => {
                let (time, rest) = after.trim_start().split_once(' ')?;
                (Some(context(first)?), time.strip_suffix(':')?, rest)
            }
        };
        let time_ns = time_ns(time)?;
        let (task, by, process) = thread(task)?;
        let rest = rest.trim();
        // `perf script` puts the period of the sample before the event, and the system into its name.
        let (name, fields) = match rest.split_once(": ") {
            Some((name, fields)) => (name.rsplit(' ').next().unwrap_or(name), fields.trim()),
            None if rest.contains(LOST) => (LOST, rest),
            None => (rest.strip_suffix(':')?, ""),
        };
        let name = name.rsplit(':').next().unwrap_or(name);
        Some(Self { task, by, process, cpu, context, time_ns, name, fields })
    }

    /// How many events are lost, if that is what the line says: `PERF_RECORD_LOST lost 5`.
    pub fn lost(&self) -> Option<u64> {
        if self.name != LOST {
            return None;
        }
        self.fields.rsplit(' ').next()?.parse().ok()
    }
}

/// Begins the names of the records of lost events and lost samples.
const LOST: &str = "PERF_RECORD_LOST";

/// Digits alone: signs are no part of these columns.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `NAME-PID`, `NAME-PID (TGID)` or, of perf, `NAME PID/TID` and `NAME TID`: name, thread, process.
fn thread(text: &str) -> Option<(&str, i32, Option<i32>)> {
    let (text, process) = match text.strip_suffix(')').and_then(|text| text.rsplit_once('(')) {
        Some((text, process)) => (text.trim_end(), process.trim().parse().ok()),
        None => (text, None),
    };
    if let Some((name, pid)) = text.rsplit_once('-')
        && let Some(pid) = number(pid)
        && !name.ends_with(' ')
    {
        return Some((name, pid.try_into().ok()?, process));
    }
    let (name, ids) = text.rsplit_once(' ').unwrap_or(("", text));
    match ids.split_once('/') {
        Some((process, thread)) => Some((name.trim_end(), thread.parse().ok()?, process.parse().ok())),
        None => Some((name.trim_end(), ids.parse().ok()?, process)),
    }
}

/// The third letter of `dNs3.`: what interrupted the thread. Old kernels have four letters, new ones more.
fn context(flags: &str) -> Option<Context> {
    match (flags.len(), flags.as_bytes().get(2)?) {
        (4..=8, b'h' | b'H' | b'z' | b'Z') => Some(Context::HardInterrupt),
        (4..=8, b's') => Some(Context::SoftInterrupt),
        (4..=8, b'.') => Some(Context::Thread),
        _ => None,
    }
}

/// `SECONDS.FRACTION` with up to nine digits of fraction.
fn time_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let fraction = number(fraction)? * 10_u64.pow(9 - digits);
    number(seconds)?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> (String, i32, Option<i32>, u32, Option<Context>, u64, String) {
        match Line::parse(line) {
            Line::Event(event) => (
                event.task.into(),
                event.by,
                event.process,
                event.cpu,
                event.context,
                event.time_ns,
                format!("{}|{}", event.name, event.fields),
            ),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn columns_of_all_programs_are_told_apart() {
        let hard = Some(Context::HardInterrupt);
        let cases = [
            ("  a [b]-c-12   [003] dNh4. 7.000001: x: y=1", ("a [b]-c", 12, None, 3, hard, 7_000_001_000, "x|y=1")),
            (
                "<idle>-0 (-----) [000] d.s2 1.5: x:",
                ("<idle>", 0, None, 0, Some(Context::SoftInterrupt), 1_500_000_000, "x|"),
            ),
            ("b-2 (    1) [000] ..... 1.5: x: y", ("b", 2, Some(1), 0, Some(Context::Thread), 1_500_000_000, "x|y")),
            ("b-2  [000]  1.500000001: x:   y z", ("b", 2, None, 0, None, 1_500_000_001, "x|y z")),
            ("web server  7/9 [001] 1.5:  1 sched:x: y", ("web server", 9, Some(7), 1, None, 1_500_000_000, "x|y")),
            ("kworker/0:1-ev  9 [001] 1.5: sched:x: y", ("kworker/0:1-ev", 9, None, 1, None, 1_500_000_000, "x|y")),
        ];
        for (line, (task, by, process, cpu, context, time, rest)) in cases {
            assert_eq!(event(line), (task.into(), by, process, cpu, context, time, rest.into()), "{line}");
        }
    }

    #[test]
    fn lines_of_lost_events_are_those_of_three_programs() {
        let lost = |line: &str| match Line::parse(line) {
            Line::Lost { cpu, events } => Some((cpu, events)),
            Line::Event(event) => event.lost().map(|events| (event.cpu, Some(events))),
            _ => None,
        };
        assert_eq!(lost("CPU:3 [LOST 5 EVENTS]"), Some((3, Some(5))));
        assert_eq!(lost("CPU:3 [LOST EVENTS]"), Some((3, None)));
        assert_eq!(lost("CPU:1 [7315 EVENTS DROPPED]"), Some((1, Some(7315))));
        assert_eq!(lost("swapper 0 [002] 5.000001: PERF_RECORD_LOST lost 39"), Some((2, Some(39))));
        assert_eq!(lost("CPU:3 [LOST x EVENTS]"), None);
        assert_eq!(lost("##### CPU 3 buffer started ####"), Some((3, None)));
    }

    #[test]
    fn headers_say_how_many_cpus_and_how_much_was_overwritten() {
        let header = |line: &str| match Line::parse(line) {
            Line::Header { cpus, overwritten } => (cpus, overwritten),
            other => panic!("{other:?}"),
        };
        assert_eq!(header("# entries-in-buffer/entries-written: 144/200   #P:2"), (Some(2), Some(56)));
        assert_eq!(header("cpus=6"), (Some(6), None));
        assert_eq!(header("# tracer: nop"), (None, None));
        assert!(matches!(Line::parse("=> do_syscall_64"), Line::Strange));
    }
}
