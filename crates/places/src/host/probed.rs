//! Pages like the kernel's, of the records that the BPF recorder writes, in the memory of some thousand records of each CPU.
//!
//! Source: `bpf/programs/recorder.h` for records; `include/linux/preempt.h`, `include/linux/sched.h` of Linux 6.18 for masks and states.

use warmcore_capture::trace_dat::PAGE_BYTES;
use warmcore_capture::written::{Head, PageWriter, Value};

/// Length of a record.
pub(super) const RECORD_BYTES: usize = 64;
const NAME: std::ops::Range<usize> = 48..64;
/// Kind of the last record.
pub(super) const END: u32 = u32::MAX;

/// In a counter of nested interrupts: `HARDIRQ_MASK` with `NMI_MASK`; `SOFTIRQ_OFFSET`, set while a softirq is served.
const HARD_INTERRUPT: u32 = 0x00ff_0000;
pub(super) const SOFT_INTERRUPT: u32 = 0x0000_0100;
/// `CLONE_THREAD`.
const THREAD: i64 = 0x10000;
/// How many records of a CPU are held back at least. They may come in another order than they were made: those of an interrupt before the one that
/// it interrupted. An interrupt makes two for each thread that it wakes.
const HELD: usize = 4096;

/// A record of the program.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    time_ns: u64,
    cpu: usize,
    kind: u32,
    by: i32,
    nesting: u32,
    thread: i64,
    other: i64,
    state: u64,
    number: u64,
    name: &'a str,
}

impl<'a> Record<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name = &bytes[NAME];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Self {
            time_ns: long(0),
            cpu: word(8) as usize,
            kind: word(12),
            by: word(16) as i32,
            nesting: word(20),
            thread: i64::from(word(24) as i32),
            other: i64::from(word(28) as i32),
            state: long(32),
            number: long(40),
            // A name that is no text names nobody.
            name: std::str::from_utf8(&name[..end]).unwrap_or_default(),
        }
    }
}

/// Makes pages of records as they come.
#[derive(Debug)]
pub(super) struct PageMaker(Vec<CpuPages>);

#[derive(Clone, Debug, Default)]
struct CpuPages {
    held: Vec<[u8; RECORD_BYTES]>,
    writer: PageWriter,
    /// The thread that came last, and its name.
    present: (i64, String),
}

impl PageMaker {
    /// For so many CPUs.
    pub(super) fn new(cpus: usize) -> Self {
        Self(vec![CpuPages::default(); cpus])
    }

    /// Takes a record and hands over whole pages. Of the last record, which says how many found no room, it returns that number, and hands over
    /// all that is left.
    ///
    /// # Errors
    /// A record that makes no sense, and those of `keep`.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        mut keep: impl FnMut(usize, &[u8]) -> Result<(), String>,
    ) -> Result<Option<u64>, String> {
        let record = Record::read(bytes);
        if record.kind == END {
            for (cpu, mut pages) in std::mem::take(&mut self.0).into_iter().enumerate() {
                pages.write(0)?;
                pages.writer.finish().chunks(PAGE_BYTES).try_for_each(|page| keep(cpu, page))?;
            }
            return Ok(Some(record.number));
        }
        let cpu = record.cpu;
        let pages = self.0.get_mut(cpu).ok_or_else(|| format!("a record is of CPU {cpu}"))?;
        pages.held.push(bytes.try_into().expect("a record's length"));
        if pages.held.len() == 2 * HELD {
            pages.write(HELD)?;
            pages.writer.take_pages().chunks(PAGE_BYTES).try_for_each(|page| keep(cpu, page))?;
        }
        Ok(None)
    }
}

impl CpuPages {
    /// Writes all but so many of the latest.
    fn write(&mut self, held: usize) -> Result<(), String> {
        self.held.sort_by_key(|bytes| Record::read(bytes).time_ns);
        let count = self.held.len().saturating_sub(held);
        let (writer, present) = (&mut self.writer, &mut self.present);
        self.held.drain(..count).try_for_each(|bytes| write(writer, &Record::read(&bytes), present))
    }
}

fn write(writer: &mut PageWriter, record: &Record<'_>, present: &mut (i64, String)) -> Result<(), String> {
    let head = Head {
        time_ns: record.time_ns,
        by: record.by,
        hard_interrupt: record.nesting & HARD_INTERRUPT != 0,
        soft_interrupt: record.nesting & SOFT_INTERRUPT != 0,
    };
    let (number, name) = (Value::Number, Value::Name);
    let (thread, other, last) = (number(record.thread), number(record.other), number(record.number as i64));
    let named = name(record.name);
    match record.kind {
        0 => {
            // A switch names the thread that comes; it has that name still when it leaves.
            let prev = if present.0 == record.thread { present.1.as_str() } else { "" };
            let state = number(reported(record.state, record.number != 0));
            writer.add(head, "sched_switch", &[name(prev), thread, state, named, other])?;
            present.0 = record.other;
            record.name.clone_into(&mut present.1);
            Ok(())
        }
        1 => writer.add(head, "sched_waking", &[named, thread, last]),
        2 => writer.add(head, "sched_wakeup", &[named, thread, last]),
        3 => writer.add(head, "sched_wakeup_new", &[named, thread, last]),
        4 => writer.add(head, "sched_migrate_task", &[named, thread, last, other]),
        5 => {
            let flags = if record.number as i64 == record.thread { 0 } else { THREAD };
            writer.add(head, "task_newtask", &[thread, named, number(flags)])?;
            writer.add(head, "sched_process_fork", &[other, named, thread])
        }
        6 => writer.add(head, "sched_process_exec", &[thread, other]),
        7 => writer.add(head, "sched_process_exit", &[named, thread]),
        8 => writer.add(head, "cpuhp_enter", &[thread, other, last]),
        kind => Err(format!("a record is of kind {kind}, which is not known")),
    }
}

/// The state as `sched_switch` reports it: of a preempted thread `TASK_REPORT_MAX`, of a dead one `EXIT_DEAD`, of an idle kernel thread
/// `TASK_REPORT_IDLE`; of what is not reported by itself, such as waiting for a lock of a real-time kernel, uninterruptible sleep.
fn reported(state: u64, preempted: bool) -> i64 {
    const PREEMPTED: i64 = 0x100;
    const DEAD: (u64, i64) = (0x80, 0x10);
    const NO_LOAD: (u64, i64) = (0x400, 0x200);
    const REPORTED: u64 = 0x7f;
    const UNINTERRUPTIBLE: i64 = 2;
    match state {
        _ if preempted => PREEMPTED,
        0 => 0,
        _ if state & DEAD.0 != 0 => DEAD.1,
        _ if state & NO_LOAD.0 != 0 => NO_LOAD.1,
        _ if state & REPORTED != 0 => (state & REPORTED) as i64,
        _ => UNINTERRUPTIBLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that comes and goes, and an interrupt's waking that was made before each of its switches and comes behind it.
    #[test]
    fn pages_are_handed_over_while_records_come_and_those_of_a_cpu_are_in_order() {
        let record = |time_ns: u64, kind: u32| {
            let words = [0, kind, 7, 0, 7, 0, 0, 0, 1, 0].map(u32::to_le_bytes).concat();
            [&time_ns.to_le_bytes()[..], &words, b"a name\0\0\0\0\0\0\0\0\0\0"].concat()
        };
        let (mut maker, mut early, mut pages) = (PageMaker::new(1), 0, Vec::new());
        let keep = |pages: &mut Vec<Vec<u8>>, page: &[u8]| {
            pages.push(page.to_vec());
            Ok(())
        };
        for turn in 0..3 * HELD as u64 {
            for (time_ns, kind) in [(10 * turn + 5, 0), (10 * turn, 1)] {
                let taken = maker.take(&record(time_ns, kind), |_, page| keep(&mut pages, page));
                assert_eq!(taken, Ok(None));
            }
            assert!(maker.0[0].held.len() < 2 * HELD && maker.0[0].writer.take_pages().is_empty());
            early = pages.len();
        }
        assert_eq!(maker.take(&record(0, END), |_, page| keep(&mut pages, page)), Ok(Some(1)));
        assert!(early > pages.len() / 2, "{early} of {} pages", pages.len());
        let contents = warmcore_capture::trace_dat::Contents {
            header_page: warmcore_capture::written::HEADER_PAGE.into(),
            header_event: warmcore_capture::written::HEADER_EVENT.into(),
            events: warmcore_capture::written::descriptions(),
            clock: "mono".into(),
            pages: vec![pages.concat()],
            lost: vec![0],
            ..Default::default()
        };
        let mut file = Vec::new();
        warmcore_capture::trace_dat::write(&mut file, &contents).unwrap();
        let times: Vec<u64> =
            warmcore_capture::trace_dat::read(&file).unwrap().records.iter().map(|record| record.time_ns).collect();
        assert_eq!(times, (0..6 * HELD as u64).map(|number| 5 * number).collect::<Vec<_>>());
    }

    #[test]
    fn states_are_reported_as_the_kernels_event_does() {
        let states =
            [(0, true), (1, true), (0, false), (1, false), (2, false), (0x402, false), (0x80, false), (0x1000, false)];
        let reported: Vec<i64> = states.iter().map(|(state, preempted)| reported(*state, *preempted)).collect();
        assert_eq!(reported, [0x100, 0x100, 0, 1, 2, 0x200, 0x10, 2]);
    }
}
