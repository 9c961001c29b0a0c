//! Pages and descriptions of events, as the kernel would have written them, made of records that came another way than through its ring buffers.
//!
//! With them a recording is the same file, whatever recorded it, and other programs read it too.
//!
//! Source: `include/linux/ring_buffer.h` (`RINGBUF_TYPE_DATA_TYPE_LEN_MAX`, `TIME_EXTEND`); `Documentation/trace/events.rst` for descriptions.

use crate::trace_dat::PAGE_BYTES;

/// Description of a page.
pub const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
/// Description of a record's head.
pub const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\
    \tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

const PAGE_HEAD: usize = 16;
const DELTA_BITS: u32 = 27;
const TIME_EXTEND: u32 = 30;
/// `TASK_COMM_LEN`.
const NAME_BYTES: usize = 16;
/// Flags of `common_flags`.
const HARD_INTERRUPT: u8 = 0x08;
const SOFT_INTERRUPT: u8 = 0x10;

/// A field of an event: its declaration, length, and whether it is signed.
type FieldRow = (&'static str, usize, bool);

/// An event that can be written, with its fields behind the common ones.
struct EventRow {
    system: &'static str,
    name: &'static str,
    fields: &'static [FieldRow],
    print: &'static str,
}

const COMM: FieldRow = ("char comm[16]", NAME_BYTES, false);
const PID: FieldRow = ("pid_t pid", 4, true);
const TARGET: FieldRow = ("int target_cpu", 4, true);
const STATES: &str = "\"prev_comm=%s prev_pid=%d prev_state=%s%s ==> next_comm=%s next_pid=%d\", REC->prev_comm, REC->prev_pid, \
    (REC->prev_state & 0x3ff) ? __print_flags(REC->prev_state & 0x3ff, \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000004, \"T\" }, \
    { 0x00000008, \"t\" }, { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, { 0x00000040, \"P\" }, { 0x00000200, \"I\" }) : \"R\", \
    REC->prev_state & 0x100 ? \"+\" : \"\", REC->next_comm, REC->next_pid";
const WOKEN: &str = "\"comm=%s pid=%d target_cpu=%03d\", REC->comm, REC->pid, REC->target_cpu";

/// In the order of their numbers, which begin at [`FIRST_NUMBER`].
const EVENTS: [EventRow; 10] = [
    EventRow {
        system: "sched",
        name: "sched_switch",
        fields: &[
            ("char prev_comm[16]", NAME_BYTES, false),
            ("pid_t prev_pid", 4, true),
            ("long prev_state", 8, true),
            ("char next_comm[16]", NAME_BYTES, false),
            ("pid_t next_pid", 4, true),
        ],
        print: STATES,
    },
    EventRow { system: "sched", name: "sched_waking", fields: &[COMM, PID, TARGET], print: WOKEN },
    EventRow { system: "sched", name: "sched_wakeup", fields: &[COMM, PID, TARGET], print: WOKEN },
    EventRow { system: "sched", name: "sched_wakeup_new", fields: &[COMM, PID, TARGET], print: WOKEN },
    EventRow {
        system: "sched",
        name: "sched_migrate_task",
        fields: &[COMM, PID, ("int orig_cpu", 4, true), ("int dest_cpu", 4, true)],
        print: "\"comm=%s pid=%d orig_cpu=%d dest_cpu=%d\", REC->comm, REC->pid, REC->orig_cpu, REC->dest_cpu",
    },
    EventRow {
        system: "sched",
        name: "sched_process_fork",
        fields: &[
            ("pid_t parent_pid", 4, true),
            ("char child_comm[16]", NAME_BYTES, false),
            ("pid_t child_pid", 4, true),
        ],
        print: "\"pid=%d child_comm=%s child_pid=%d\", REC->parent_pid, REC->child_comm, REC->child_pid",
    },
    EventRow {
        system: "sched",
        name: "sched_process_exec",
        fields: &[PID, ("pid_t old_pid", 4, true)],
        print: "\"pid=%d old_pid=%d\", REC->pid, REC->old_pid",
    },
    EventRow {
        system: "sched",
        name: "sched_process_exit",
        fields: &[COMM, PID],
        print: "\"comm=%s pid=%d\", REC->comm, REC->pid",
    },
    EventRow {
        system: "task",
        name: "task_newtask",
        fields: &[PID, COMM, ("unsigned long clone_flags", 8, false)],
        print: "\"pid=%d comm=%s clone_flags=%lx\", REC->pid, REC->comm, REC->clone_flags",
    },
    EventRow {
        system: "cpuhp",
        name: "cpuhp_enter",
        fields: &[("unsigned int cpu", 4, false), ("int target", 4, true), ("int idx", 4, true)],
        print: "\"cpu: %04u target: %3d step: %3d\", REC->cpu, REC->target, REC->idx",
    },
];
const FIRST_NUMBER: u16 = 1;
/// Bytes of the fields that every event begins with.
const COMMON: usize = 8;

/// A value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A number.
    Number(i64),
    /// A thread's name.
    Name(&'a str),
}

/// What a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// When, ns.
    pub time_ns: u64,
    /// Thread that was running.
    pub by: i32,
    /// Whether a hard interrupt was being handled.
    pub hard_interrupt: bool,
    /// Whether a softirq was.
    pub soft_interrupt: bool,
}

/// Names with their systems, and descriptions, of all events that can be written.
pub fn descriptions() -> Vec<(String, String)> {
    (FIRST_NUMBER..)
        .zip(&EVENTS)
        .map(|(number, event)| (format!("{}/{}", event.system, event.name), describe(number, event)))
        .collect()
}

fn describe(number: u16, event: &EventRow) -> String {
    let mut text = format!("name: {}\nID: {number}\nformat:\n", event.name);
    let common = [
        ("unsigned short common_type", 2, false),
        ("unsigned char common_flags", 1, false),
        ("unsigned char common_preempt_count", 1, false),
        ("int common_pid", 4, true),
    ];
    let mut offset = 0;
    for (position, (declaration, size, signed)) in common.iter().chain(event.fields).enumerate() {
        if position == common.len() {
            text.push('\n');
        }
        text.push_str(&format!(
            "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};\n",
            u8::from(*signed)
        ));
        offset += size;
    }
    text + &format!("\nprint fmt: {}\n", event.print)
}

/// Pages of one CPU, in the making.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PageWriter {
    pages: Vec<u8>,
    /// The page that is being filled; empty before the first record.
    page: Vec<u8>,
    last_ns: u64,
}

impl PageWriter {
    /// Adds a record. Records must come in order of time; one that is earlier than the last gets its time.
    ///
    /// # Errors
    /// An event or a field that is not among those described.
    pub fn add(&mut self, head: Head, event: &str, values: &[Value<'_>]) -> Result<(), String> {
        let position = EVENTS.iter().position(|row| row.name == event);
        let position = position.ok_or_else(|| format!("no event `{event}` can be written"))?;
        let fields = EVENTS[position].fields;
        if fields.len() != values.len() {
            return Err(format!("`{event}` has {} fields, and {} are given", fields.len(), values.len()));
        }
        let mut body = Vec::with_capacity(COMMON + 64);
        body.extend((FIRST_NUMBER + position as u16).to_le_bytes());
        body.push((u8::from(head.hard_interrupt) * HARD_INTERRUPT) | (u8::from(head.soft_interrupt) * SOFT_INTERRUPT));
        body.push(0);
        body.extend(head.by.to_le_bytes());
        for ((declaration, size, _), value) in fields.iter().zip(values) {
            let before = body.len();
            match value {
                Value::Number(number) => body.extend(&number.to_le_bytes()[..(*size).min(8)]),
                Value::Name(name) => body.extend(name.bytes().take(size - 1)),
            }
            if body.len() > before + size {
                return Err(format!("`{event}` has a field `{declaration}`, and more is given"));
            }
            body.resize(before + size, 0);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        self.push(head.time_ns, &body);
        Ok(())
    }

    fn push(&mut self, time_ns: u64, body: &[u8]) {
        const EXTEND: usize = 8;
        let time_ns = time_ns.max(self.last_ns);
        if !self.page.is_empty() && self.page.len() + EXTEND + 4 + body.len() > PAGE_BYTES {
            self.close();
        }
        if self.page.is_empty() {
            self.page.extend(time_ns.to_le_bytes());
            self.page.extend([0; PAGE_HEAD - 8]);
            self.last_ns = time_ns;
        }
        let mut delta = time_ns - self.last_ns;
        if delta >> DELTA_BITS > 0 {
            let low = (delta & ((1 << DELTA_BITS) - 1)) as u32;
            self.page.extend(((low << 5) | TIME_EXTEND).to_le_bytes());
            self.page.extend(((delta >> DELTA_BITS) as u32).to_le_bytes());
            delta = 0;
        }
        self.page.extend((((delta as u32) << 5) | (body.len() as u32 / 4)).to_le_bytes());
        self.page.extend(body);
        self.last_ns = time_ns;
    }

    fn close(&mut self) {
        let length = (self.page.len() - PAGE_HEAD) as u64;
        self.page[8..16].copy_from_slice(&length.to_le_bytes());
        self.page.resize(PAGE_BYTES, 0);
        self.pages.append(&mut self.page);
    }

    /// Takes the pages that are full, one behind the other.
    pub fn take_pages(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pages)
    }

    /// Whole pages, one behind the other.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if !self.page.is_empty() {
            self.close();
        }
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Context, What};
    use crate::trace_dat::{self, Contents};
    use warmcore_trace::PrevState;

    #[test]
    fn what_is_written_is_read_as_the_kernels_own() {
        let head = |time_ns, soft_interrupt| Head { time_ns, by: 7, hard_interrupt: false, soft_interrupt };
        let mut writer = PageWriter::default();
        let (number, name) = (Value::Number, Value::Name);
        writer.add(head(1000, true), "sched_waking", &[name("worker"), number(8), number(1)]).unwrap();
        let switch = [name("main"), number(7), number(0x80 | 0x10), name("worker"), number(8)];
        let far = 1000 + (5 << 40);
        for _ in 0..200 {
            writer.add(head(far, false), "sched_switch", &switch).unwrap();
        }
        writer.add(head(far + 9, false), "task_newtask", &[number(9), name("new"), number(0x10000)]).unwrap();
        let contents = Contents {
            header_page: HEADER_PAGE.into(),
            header_event: HEADER_EVENT.into(),
            events: descriptions(),
            clock: "mono".into(),
            pages: vec![writer.finish()],
            lost: vec![3],
            processes: [(7, 7)].into(),
            ..Contents::default()
        };
        let mut file = Vec::new();
        trace_dat::write(&mut file, &contents).unwrap();
        let recording = trace_dat::read(&file).unwrap();
        assert_eq!(recording.records.len(), 201);
        let (first, last) = (&recording.records[0], &recording.records[200]);
        assert_eq!((first.time_ns, first.context, first.by), (1000, Context::SoftInterrupt, 7));
        assert_eq!(first.what, What::Waking { thread: 8, target_cpu: 1 });
        assert_eq!(
            (last.time_ns, last.what),
            (far, What::Switch { prev: 7, state: PrevState::Dead, next: 8, uninterruptible: false })
        );
        assert_eq!((recording.threads[&8].name.as_str(), recording.threads[&9].process), ("worker", Some(7)));
        assert_eq!(recording.events_lost(), (3, false));
    }

    #[test]
    fn what_is_not_described_is_refused() {
        let head = Head { time_ns: 1, by: 0, hard_interrupt: false, soft_interrupt: false };
        let mut writer = PageWriter::default();
        assert!(writer.add(head, "sched_nothing", &[]).unwrap_err().contains("sched_nothing"));
        assert!(writer.add(head, "sched_process_exec", &[Value::Number(1)]).unwrap_err().contains("2 fields"));
        assert!(writer.finish().is_empty());
    }
}
