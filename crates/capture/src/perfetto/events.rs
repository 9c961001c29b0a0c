//! Bundles of events: a CPU's, one after the other.

use std::collections::BTreeMap;

use super::FORMAT;
use super::wire::{Message, Value};
use crate::bytes::text_of;
use crate::error::{CaptureError, FilePosition};
use crate::priorities::Priorities;
use crate::record::{Birth, CLONE_THREAD, Context, MOST_CPUS, Record, TASK_UNINTERRUPTIBLE, What};
use crate::recording::{Births, LatestNames, Loss, Recording};
use crate::states::NumberedStates;

/// Events of `FtraceEvent`, by the field that has them.
mod event {
    pub const SWITCH: u32 = 4;
    pub const WAKEUP: u32 = 17;
    pub const WAKING: u32 = 20;
    pub(crate) const SOFTIRQ_ENTRY: u32 = 24;
    pub(crate) const SOFTIRQ_EXIT: u32 = 25;
    pub(crate) const INTERRUPT_ENTRY: u32 = 36;
    pub(crate) const INTERRUPT_EXIT: u32 = 37;
    pub(crate) const WAKEUP_NEW: u32 = 114;
    pub(crate) const NEWTASK: u32 = 235;
    pub(crate) const RENAME: u32 = 236;
    pub(crate) const EXEC: u32 = 237;
    pub const EXIT: u32 = 238;
    pub const FORK: u32 = 239;
    pub(crate) const HOTPLUG: u32 = 345;
    pub const MIGRATE: u32 = 491;
}

/// `FtraceClock`: what tracefs calls them; without one the boot clock.
const CLOCKS: [&str; 5] = ["boot", "unknown", "global", "local", "mono_raw"];
/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ`.
const HARD_INTERRUPT: u64 = 0x08;
const SOFT_INTERRUPT: u64 = 0x10;

/// Collects the events of all bundles.
#[derive(Default)]
pub(super) struct Events {
    records: Vec<Record>,
    names: LatestNames,
    priorities: Priorities,
    processes: BTreeMap<i32, i32>,
    states: NumberedStates,
    births: Births,
    /// Births as forks, for traces without forks.
    forks: Vec<Record>,
    /// Who runs on each CPU, as far as compact switches say.
    running: BTreeMap<u32, i32>,
    gaps: BTreeMap<u32, Vec<Loss>>,
    clock: Option<u64>,
    /// Whether a waking came without flags.
    without_flags: bool,
}

/// Numbers and texts of an event by field; no event that is read has more fields than this.
const MOST_FIELDS: usize = 12;

struct Fields<'a> {
    numbers: [Option<u64>; MOST_FIELDS],
    texts: [Option<Message<'a>>; MOST_FIELDS],
}

impl<'a> Fields<'a> {
    fn read(message: Message<'a>) -> Result<Self, CaptureError> {
        let mut fields = Self { numbers: [None; MOST_FIELDS], texts: [None; MOST_FIELDS] };
        for field in message {
            match field? {
                (field, Value::Number(number)) if (field as usize) < MOST_FIELDS => {
                    fields.numbers[field as usize] = Some(number);
                }
                (field, Value::Bytes(text)) if (field as usize) < MOST_FIELDS => {
                    fields.texts[field as usize] = Some(text)
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// A number; fields that are zero may be left out.
    fn number(&self, field: usize) -> u64 {
        self.numbers[field].unwrap_or(0)
    }

    fn thread(&self, field: usize) -> i32 {
        self.number(field) as i32
    }
}

fn cpu(number: u64, place: usize) -> Result<u32, CaptureError> {
    u32::try_from(number).ok().filter(|cpu| *cpu < MOST_CPUS).ok_or_else(|| CaptureError::Damaged {
        format: FORMAT,
        place: FilePosition::Byte(place),
        reason: format!("no kernel has a CPU {number}"),
    })
}

/// What ran, by the flags of an event, if it has them.
fn context(flags: Option<u64>) -> Context {
    match flags.unwrap_or(0) {
        flags if flags & HARD_INTERRUPT != 0 => Context::HardInterrupt,
        flags if flags & SOFT_INTERRUPT != 0 => Context::SoftInterrupt,
        _ => Context::Thread,
    }
}

impl Events {
    /// A bundle: CPU 1, events 2, whether some are missing before them 3, compact events 4, clock 5.
    pub fn bundle(&mut self, bundle: Message<'_>) -> Result<(), CaptureError> {
        let (mut on, mut missing) = (0, false);
        for field in bundle {
            match field? {
                (1, Value::Number(number)) => on = cpu(number, bundle.place())?,
                (3, Value::Number(number)) => missing = number != 0,
                (5, Value::Number(number)) => self.clock = Some(number),
                _ => {}
            }
        }
        let first = self.records.len();
        if missing {
            self.running.remove(&on);
        }
        for field in bundle {
            if let (2, Value::Bytes(event)) = field? {
                self.event(on, event)?;
            }
        }
        for field in bundle {
            if let (4, Value::Bytes(compact)) = field? {
                self.compact(on, compact)?;
            }
        }
        if missing {
            let before_ns = self.records[first..].iter().map(|record| record.time_ns).min();
            self.gaps.entry(on).or_default().push(Loss { cpu: Some(on), before_ns, events: None });
        }
        Ok(())
    }

    /// An event: time 1, thread 2, flags 5, and one field with what it says.
    fn event(&mut self, on: u32, event: Message<'_>) -> Result<(), CaptureError> {
        let (mut time_ns, mut by, mut flags) = (0, 0, None);
        let mut said = None;
        for field in event {
            match field? {
                (1, Value::Number(number)) => time_ns = number,
                (2, Value::Number(number)) => by = number as i32,
                (5, Value::Number(number)) => flags = Some(number),
                (kind, Value::Bytes(fields)) => said = Some((kind, fields)),
                _ => {}
            }
        }
        let Some((kind, message)) = said else { return Ok(()) };
        let known = [
            event::SWITCH,
            event::WAKEUP,
            event::WAKING,
            event::SOFTIRQ_ENTRY,
            event::SOFTIRQ_EXIT,
            event::INTERRUPT_ENTRY,
            event::INTERRUPT_EXIT,
            event::WAKEUP_NEW,
            event::NEWTASK,
            event::RENAME,
            event::EXEC,
            event::EXIT,
            event::FORK,
            event::HOTPLUG,
            event::MIGRATE,
        ];
        if !known.contains(&kind) {
            return Ok(());
        }
        let place = message.place();
        let fields = Fields::read(message)?;
        let mut name = |thread: i32, field: usize| {
            if let Some(text) = fields.texts[field] {
                self.names.take(time_ns, thread, &text_of(text.bytes()));
            }
        };
        let thread = fields.thread(2);
        let what = match kind {
            event::SWITCH => {
                let (prev, next) = (thread, fields.thread(6));
                name(prev, 1);
                name(next, 5);
                for (thread, field) in [(prev, 3), (next, 7)] {
                    if let Some(priority) = fields.numbers[field] {
                        self.priorities.take(thread, priority as i32);
                    }
                }
                let state = self.states.read(fields.number(4), (time_ns, on, prev));
                self.running.insert(on, next);
                let uninterruptible = fields.number(4) & TASK_UNINTERRUPTIBLE as u64 != 0;
                What::Switch { prev, state, next, uninterruptible }
            }
            event::WAKING | event::WAKEUP | event::WAKEUP_NEW => {
                name(thread, 1);
                let target_cpu = cpu(fields.number(5), place)?;
                match kind {
                    event::WAKING => {
                        self.without_flags |= flags.is_none();
                        What::Waking { thread, target_cpu }
                    }
                    _ => What::Wakeup { thread, target_cpu },
                }
            }
            event::MIGRATE => {
                name(thread, 1);
                What::Migrate { thread, from: cpu(fields.number(4), place)?, to: cpu(fields.number(5), place)? }
            }
            event::NEWTASK => {
                // Thread 1, name 2, flags 3.
                let child = fields.thread(1);
                name(child, 2);
                let birth = Birth { parent: by, child, is_thread: fields.number(3) & CLONE_THREAD != 0 };
                self.births.take(time_ns, birth);
                let what = What::Fork { parent: by, child };
                self.forks.push(Record { time_ns, cpu: on, by, context: Context::Thread, what });
                return Ok(());
            }
            event::RENAME => {
                name(fields.thread(1), 3);
                return Ok(());
            }
            event::EXEC => What::Exec { thread },
            event::SOFTIRQ_ENTRY | event::SOFTIRQ_EXIT => {
                What::Interrupt { soft: true, begins: kind == event::SOFTIRQ_ENTRY }
            }
            event::INTERRUPT_ENTRY | event::INTERRUPT_EXIT => {
                What::Interrupt { soft: false, begins: kind == event::INTERRUPT_ENTRY }
            }
            // CPU 1, step 3, target 4.
            event::HOTPLUG => {
                let target_cpu = cpu(fields.number(1), place)?;
                What::Hotplug { target_cpu, target: fields.thread(4), step: fields.thread(3) }
            }
            event::EXIT => {
                name(thread, 1);
                self.processes.extend(fields.numbers[3].map(|process| (thread, process as i32)));
                What::Exit { thread }
            }
            _ => {
                let child = fields.thread(4);
                name(thread, 1);
                name(child, 3);
                What::Fork { parent: thread, child }
            }
        };
        self.records.push(Record { time_ns, cpu: on, by, context: context(flags), what });
        Ok(())
    }

    /// Columns. Switches: times 1, states 2, threads 3, priorities 4, names 6; wakings: times 7, threads 8, CPUs 9, names 11, flags 12; names 5.
    fn compact(&mut self, on: u32, compact: Message<'_>) -> Result<(), CaptureError> {
        let mut columns: [Vec<u64>; 13] = Default::default();
        let mut texts = Vec::new();
        for field in compact {
            match field? {
                (5, Value::Bytes(text)) => texts.push(text_of(text.bytes())),
                (column @ (1..=4 | 6..=9 | 11 | 12), Value::Bytes(numbers)) => {
                    for number in numbers.numbers() {
                        columns[column as usize].push(number?);
                    }
                }
                (column @ (1..=4 | 6..=9 | 11 | 12), Value::Number(number)) => columns[column as usize].push(number),
                _ => {}
            }
        }
        let uneven = |column: usize, times: usize| columns[column].len() != columns[times].len();
        if uneven(2, 1) || uneven(3, 1) || uneven(8, 7) || uneven(9, 7) {
            let (place, reason) =
                (FilePosition::Byte(compact.place()), "columns of one bundle are of different length");
            return Err(CaptureError::Damaged { format: FORMAT, place, reason: reason.into() });
        }
        for times in [1, 7] {
            let mut time = 0_u64;
            columns[times].iter_mut().for_each(|since| {
                time = time.wrapping_add(*since);
                *since = time;
            });
        }
        let name = |names: &mut LatestNames, time: u64, thread: i32, index: Option<&u64>| {
            if let Some(text) = index.and_then(|index| texts.get(usize::try_from(*index).ok()?)) {
                names.take(time, thread, text);
            }
        };
        let (mut switch, mut waking) = (0, 0);
        loop {
            match (columns[1].get(switch).copied(), columns[7].get(waking).copied()) {
                (Some(time_ns), other) if other.is_none_or(|other| time_ns <= other) => {
                    let next = columns[3][switch] as i32;
                    name(&mut self.names, time_ns, next, columns[6].get(switch));
                    if let Some(priority) = columns[4].get(switch) {
                        self.priorities.take(next, *priority as i32);
                    }
                    if let Some(prev) = self.running.insert(on, next) {
                        let state = self.states.read(columns[2][switch], (time_ns, on, prev));
                        let uninterruptible = columns[2][switch] & TASK_UNINTERRUPTIBLE as u64 != 0;
                        let what = What::Switch { prev, state, next, uninterruptible };
                        self.records.push(Record { time_ns, cpu: on, by: prev, context: Context::Thread, what });
                    }
                    switch += 1;
                }
                (_, Some(time_ns)) => {
                    let thread = columns[8][waking] as i32;
                    name(&mut self.names, time_ns, thread, columns[11].get(waking));
                    let target_cpu = cpu(columns[9][waking], compact.place())?;
                    let flags = columns[12].get(waking).copied();
                    self.without_flags |= flags.is_none();
                    let by = self.running.get(&on).copied().unwrap_or(0);
                    let what = What::Waking { thread, target_cpu };
                    self.records.push(Record { time_ns, cpu: on, by, context: context(flags), what });
                    waking += 1;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Gives everything to a recording, and returns the gaps by CPU.
    pub fn finish(mut self, recording: &mut Recording) -> BTreeMap<u32, Vec<Loss>> {
        if !self.records.iter().any(|record| matches!(record.what, What::Fork { .. })) {
            // Before what follows at the same time, as in the kernel.
            self.forks.append(&mut self.records);
            self.records = self.forks;
        }
        self.states.settle(&mut self.records);
        recording.records = self.records;
        self.names.apply(recording);
        self.priorities.apply(recording);
        self.processes.iter().for_each(|(thread, process)| recording.process(*thread, *process));
        self.births.apply(recording);
        let clock = usize::try_from(self.clock.unwrap_or(0)).ok().and_then(|clock| CLOCKS.get(clock));
        recording.clock = clock.map(|clock| (*clock).to_owned());
        if self.without_flags {
            recording
                .notes
                .push("without flags, wakings from interrupts count as those of the thread that was running".into());
        }
        self.gaps
    }
}
