//! Text: `trace` and `trace_pipe` of tracefs, `trace-cmd report` (also `-R`), and `perf script`, all of which say
//! `TASK [CPU] FLAGS TIME: EVENT: FIELDS`, one event a line, some without flags.
//!
//! What text cannot tell, or not always:
//! - microseconds only, unless it was printed with more digits (`perf script --ns`, `trace-cmd report -t`);
//! - without the column of flags a wakeup from an interrupt looks like one by the thread that ran: a note says so;
//! - states as numbers (`trace-cmd report -R`) do not mean the same in all kernels, and are told apart by the marks of preemption.
//!
//! Losses are the lines `CPU:3 [LOST 5 EVENTS]`, `CPU:3 [5 EVENTS DROPPED]` and `PERF_RECORD_LOST`, and what the header of `trace`
//! says was written and is no more in the buffer. Other lines that are no events (stacks) are counted in a note.
//!
//! Source: `kernel/trace/trace_output.c` (`trace_print_context`, `trace_print_lat_fmt`), `kernel/trace/trace.c`
//! (`print_trace_header`), Linux 6.18; `plugins/plugin_sched_switch.c` of libtraceevent.

mod fields;
mod line;

use std::collections::BTreeMap;

use crate::error::{CaptureError, FilePosition};
use crate::paged::{Source, read_exactly};
use crate::priorities::Priorities;
use crate::read::unreadable;
use crate::record::{Birth, Context, MOST_CPUS, Record, What};
use crate::recording::{Births, Loss, Recording};
use crate::states::NumberedStates;
use line::{Event, Line};

const FORMAT: &str = "ftrace text";
const COMMAND: &str = "`trace-cmd record -e sched COMMAND`, then `trace-cmd report > trace.txt`";

/// Whether a text looks like one that [`read`] reads: some line among the first is an event or a known header.
pub(crate) fn looks_like(text: &str) -> bool {
    text.lines().take(200).any(|text| {
        text.starts_with("# tracer:") || text.starts_with("cpus=") || matches!(Line::parse(text), Line::Event(_))
    })
}

/// Reads a text.
///
/// # Errors
/// A line with an event of the scheduler that cannot be read, a clock that does not count seconds, or no such event at all.
pub fn read(text: &str) -> Result<Recording, CaptureError> {
    let mut reader = FtraceReader::default();
    reader.text(text, true)?;
    reader.finish()
}

/// Bytes of a file that are read at a time, and the most that a line may have.
const BLOCK: u64 = 1 << 20;
const LONGEST_LINE: usize = 16 << 20;

/// Reads a text that stays in its file: only some of its lines are in memory at a time.
///
/// # Errors
/// As [`read`], and what the file cannot be read for.
pub(crate) fn open(source: &dyn Source) -> Result<Recording, CaptureError> {
    let mut reader = FtraceReader::default();
    let (mut at, mut bytes) = (0, Vec::new());
    while at < source.length() {
        let more = (source.length() - at).min(BLOCK);
        let kept = bytes.len();
        bytes.resize(kept + more as usize, 0);
        read_exactly(source, at, &mut bytes[kept..]).map_err(unreadable)?;
        at += more;
        let ends = at == source.length();
        let behind = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let whole = if ends { bytes.len() } else { behind };
        reader.text(&String::from_utf8_lossy(&bytes[..whole]), ends)?;
        bytes.drain(..whole);
        if bytes.len() > LONGEST_LINE {
            let place = FilePosition::Line(reader.lines + 1);
            let reason = format!("the line is longer than {} MiB", LONGEST_LINE >> 20);
            return Err(CaptureError::Damaged { format: FORMAT, place, reason });
        }
    }
    reader.finish()
}

#[derive(Default)]
struct FtraceReader {
    /// Lines that were read.
    lines: usize,
    recording: Recording,
    /// Losses that wait for the next event of their CPU, by place in the recording.
    waiting: BTreeMap<u32, usize>,
    states: NumberedStates,
    births: Births,
    priorities: Priorities,
    /// Events that were written and are no more there.
    overwritten: u64,
    /// Whether an event of the scheduler came without flags.
    without_flags: bool,
    /// Lines that are no events: how many, and the first.
    strange: (usize, usize),
}

impl FtraceReader {
    /// Takes the next lines; `ends`: nothing follows them.
    fn text(&mut self, text: &str, ends: bool) -> Result<(), CaptureError> {
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            self.lines += 1;
            let number = self.lines;
            let whole = !ends || lines.peek().is_some() || text.ends_with('\n');
            match self.line(number, line) {
                Ok(()) => {}
                Err(_) if !whole => self.cut_off(number),
                Err(reason) => {
                    let place = FilePosition::Line(number);
                    return Err(CaptureError::Damaged { format: FORMAT, place, reason });
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, number: usize, text: &str) -> Result<(), String> {
        match Line::parse(text) {
            Line::Event(event) => self.event(&event),
            Line::Lost { cpu, events } => {
                self.waiting.insert(cpu, self.recording.lost.len());
                self.recording.lost.push(Loss { cpu: Some(cpu), before_ns: None, events });
                Ok(())
            }
            Line::Header { cpus, overwritten } => {
                self.recording.cpus = self.recording.cpus.max(cpus.unwrap_or(0).min(MOST_CPUS));
                self.overwritten = self.overwritten.saturating_add(overwritten.unwrap_or(0));
                Ok(())
            }
            Line::Strange if fields::names_an_event(text) => {
                Err(format!("`{}` is not an event as `TASK-PID [CPU] FLAGS TIME: EVENT: FIELDS`", text.trim()))
            }
            Line::Strange => {
                let first = if self.strange.0 == 0 { number } else { self.strange.1 };
                self.strange = (self.strange.0 + 1, first);
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        if let Some(loss) = self.waiting.remove(&event.cpu) {
            self.recording.lost[loss].before_ns = Some(event.time_ns);
        }
        if let Some(events) = event.lost() {
            let loss = Loss { cpu: Some(event.cpu), before_ns: Some(event.time_ns), events: Some(events) };
            self.recording.lost.push(loss);
            return Ok(());
        }
        if let Some(process) = event.process {
            self.recording.process(event.by, process);
        }
        let broken = || format!("the fields of {} cannot be read in `{}`", event.name, event.fields);
        let Some(said) = fields::parse(event.name, event.fields).ok_or_else(broken)? else { return Ok(()) };
        if !matches!(event.task, "<...>" | "<idle>") {
            self.recording.name(event.by, event.task);
        }
        said.names.iter().flatten().for_each(|(thread, name)| self.recording.name(*thread, name));
        said.priorities.iter().flatten().for_each(|(thread, priority)| self.priorities.take(*thread, *priority));
        if let Some((child, is_thread)) = said.born {
            self.births.take(event.time_ns, Birth { parent: event.by, child, is_thread });
        }
        let Some(what) = said.what else { return Ok(()) };
        let what = match (what, said.state) {
            (What::Switch { prev, next, uninterruptible, .. }, Some(number)) => {
                let state = self.states.read(number, (event.time_ns, event.cpu, prev));
                What::Switch { prev, state, next, uninterruptible }
            }
            (what, _) => what,
        };
        self.without_flags |= event.context.is_none();
        let context = event.context.unwrap_or(Context::Thread);
        self.recording.records.push(Record { time_ns: event.time_ns, cpu: event.cpu, by: event.by, context, what });
        Ok(())
    }

    fn cut_off(&mut self, line: usize) {
        self.recording.lost.push(Loss { cpu: None, before_ns: None, events: None });
        self.recording
            .notes
            .push(format!("the text ends early, in line {line}; that line and what followed are not there"));
    }

    fn finish(mut self) -> Result<Recording, CaptureError> {
        if self.recording.records.is_empty() {
            return Err(CaptureError::NoSchedule { format: FORMAT, command: COMMAND });
        }
        self.recording.source = FORMAT.into();
        // After a loss that no event of its CPU follows.
        self.recording.ends_early = self.waiting.keys().copied().collect();
        self.births.apply(&mut self.recording);
        self.priorities.apply(&mut self.recording);
        self.states.settle(&mut self.recording.records);
        let known = self.recording.lost.iter().filter_map(|loss| loss.events).fold(0, u64::saturating_add);
        if self.overwritten > known {
            self.recording.lost.push(Loss { cpu: None, before_ns: None, events: Some(self.overwritten - known) });
        }
        if self.without_flags {
            self.recording.notes.push(
                "without the column of flags, wakeups from interrupts count as those of the thread that was running"
                    .into(),
            );
        }
        if self.strange.0 > 0 {
            let (count, first) = self.strange;
            self.recording
                .notes
                .push(format!("{count} lines are not events and are passed over, the first is line {first}"));
        }
        Ok(self.recording.finished())
    }
}
