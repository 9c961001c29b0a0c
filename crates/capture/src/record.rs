//! A record of a kernel's scheduler, and how it is read from the bytes of any recorder that stores the kernel's own layout:
//! ring-buffer pages, `trace.dat`, raw samples of `perf.data`.
//!
//! Threads are the kernel's thread ids; 0 is the idle thread of whichever CPU.
//!
//! Source: `include/trace/events/sched.h`, `irq.h` and `cpuhp.h`, `arch/x86/include/asm/trace/irq_vectors.h`, `include/linux/trace_events.h` (`TRACE_FLAG_*`), Linux 6.18.

use serde::Serialize;
use warmcore_trace::PrevState;

use crate::format::{Field, Format, TextField};
use crate::paged::Wanted;

/// `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` of `common_flags`.
const HARD_INTERRUPT: i64 = 0x08;
const SOFT_INTERRUPT: i64 = 0x10;

/// `TASK_UNINTERRUPTIBLE` of `prev_state`, the same in all kernels.
pub(crate) const TASK_UNINTERRUPTIBLE: i64 = 2;

/// More CPUs than any kernel is built for (`NR_CPUS` is at most 8192): a larger number is damage.
pub const MOST_CPUS: u32 = 1 << 16;

/// In place of a thread: whoever had a CPU where its records are missing.
pub const NOT_RECORDED: i32 = -1;

/// How that is called.
pub const NOT_RECORDED_NAME: &str = "not recorded";

/// Something that the scheduler did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When, on the recorder's clock, ns.
    pub time_ns: u64,
    /// CPU on which it happened, the operating system's number.
    pub cpu: u32,
    /// Thread that was running there.
    pub by: i32,
    /// What that CPU was doing.
    pub context: Context,
    /// What happened.
    pub what: What,
}

/// Whether the running thread did something itself, or an interrupt that came while it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// The thread itself.
    Thread,
    /// A softirq: a packet on the loopback device is handled in the sender's, one of a network card in anybody's.
    SoftInterrupt,
    /// A hard interrupt, such as a timer's: the running thread has nothing to do with it.
    HardInterrupt,
}

/// What happened, with the fields of the kernel's event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `sched_switch`.
    Switch {
        /// Thread that leaves.
        prev: i32,
        /// Why it leaves.
        state: PrevState,
        /// Thread that comes.
        next: i32,
        /// Whether the one that leaves sleeps uninterruptibly (`D`): nothing but what it waits for ends that.
        uninterruptible: bool,
    },
    /// `sched_waking`.
    Waking {
        /// Thread being woken.
        thread: i32,
        /// CPU it last ran on.
        target_cpu: u32,
    },
    /// `sched_wakeup`, `sched_wakeup_new`.
    Wakeup {
        /// Thread that is queued.
        thread: i32,
        /// Where.
        target_cpu: u32,
    },
    /// `sched_migrate_task`.
    Migrate {
        /// Thread that is moved.
        thread: i32,
        /// Old CPU.
        from: u32,
        /// New CPU.
        to: u32,
    },
    /// `sched_process_fork`.
    Fork {
        /// Creator.
        parent: i32,
        /// New thread.
        child: i32,
    },
    /// `sched_process_exec`: the thread, leader of its process by now, runs another program.
    Exec {
        /// Thread.
        thread: i32,
    },
    /// `sched_process_exit`.
    Exit {
        /// Thread that ends.
        thread: i32,
    },
    /// `sched_move_numa`, `sched_swap_numa`: NUMA balancing is about to move a thread.
    Numa {
        /// Thread.
        thread: i32,
    },
    /// `cpuhp_enter`: a CPU that goes offline or comes online takes the next step. Those towards online ascend, and the last one before
    /// its target lets it take tasks (`CPUHP_AP_ACTIVE`).
    Hotplug {
        /// Which CPU.
        target_cpu: u32,
        /// State that it goes to.
        target: i32,
        /// The step's own state.
        step: i32,
    },
    /// `irq_handler_entry`, `softirq_entry` and the like, or what ends them: an interrupt or a softirq on the CPU.
    Interrupt {
        /// Whether it is a softirq.
        soft: bool,
        /// Whether it begins.
        begins: bool,
    },
    /// `sys_enter_futex` and the like: the running thread begins a system call that may wake others, or wait for them or for a time.
    Call {
        /// Which.
        call: Call,
        /// Address of the futex, or number of the file in the thread's process; 0 of a sleep and of a wait for several files.
        object: u64,
    },
    /// `sk_data_ready`: a socket has something to receive, whether or not a thread waits for it.
    Ready {
        /// Address of the kernel's socket.
        socket: u64,
    },
    /// `sock_recv_length`: the running thread received something from a socket, or its end.
    Received {
        /// Address of the kernel's socket.
        socket: u64,
        /// How much; 0 at its end, negative if nothing was there.
        bytes: i32,
    },
}

/// System calls through which threads wake each other, and those that wait for a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A futex: the thread waits.
    FutexWait,
    /// A futex: the thread wakes others.
    FutexWake,
    /// Something is written or sent to a file: a pipe, a socket, an eventfd.
    Write,
    /// Something is read or received from one.
    Read,
    /// A connection is taken from a socket that listens.
    Accept,
    /// A connection is asked for.
    Connect,
    /// The thread sleeps for a time.
    SleepFor,
    /// The thread sleeps until a time (`TIMER_ABSTIME`).
    SleepUntil,
    /// A timer that is a file is set to expire after a time, once or periodically.
    TimerFor,
    /// The same at a time (`TFD_TIMER_ABSTIME`).
    TimerUntil,
    /// The thread waits for any of several files (`epoll_wait`, `poll`, `select`).
    Poll,
}

impl Call {
    /// Whether its object is the number of a file that it reads, writes or connects.
    pub fn names_a_file(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Accept | Self::Connect)
    }
}

/// Commands of a futex that wake others (`FUTEX_WAKE`, `REQUEUE`, `CMP_REQUEUE`, `WAKE_OP`, `UNLOCK_PI`, `WAKE_BITSET`); `op` has flags above.
const FUTEX_WAKES: [i64; 6] = [1, 3, 4, 5, 7, 10];
const FUTEX_COMMAND: i64 = 0x7f;

/// `TIMER_ABSTIME` and `TFD_TIMER_ABSTIME` of `flags` (`include/uapi/linux/time.h` and `timerfd.h`).
const ABSOLUTE: i64 = 1;

/// Which of [`What`] an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Switch,
    Waking,
    Wakeup,
    Migrate,
    Fork,
    Exec,
    Exit,
    Numa,
    Hotplug,
    InterruptBegins,
    InterruptEnds,
    SoftirqBegins,
    SoftirqEnds,
    Futex,
    Write,
    Read,
    Accept,
    Connect,
    Sleep,
    ClockSleep,
    Timer,
    Poll,
    Ready,
    Received,
}

/// Numbers of events are 16 bits long (`TRACE_EVENT_TYPE_MAX`).
const MOST_EVENTS: usize = 1 << 16;

/// See [`EVENTS`].
type EventRow = (&'static str, Kind, &'static [&'static str], &'static [(&'static str, usize)]);

/// Events that are read: name, kind, number fields, and names of threads: the field of the name, and which number field it names.
const EVENTS: [EventRow; 49] = [
    ("sched_switch", Kind::Switch, &["prev_pid", "prev_state", "next_pid"], &[("prev_comm", 0), ("next_comm", 2)]),
    ("sched_waking", Kind::Waking, &["pid", "target_cpu"], &[("comm", 0)]),
    ("sched_wakeup", Kind::Wakeup, &["pid", "target_cpu"], &[("comm", 0)]),
    ("sched_wakeup_new", Kind::Wakeup, &["pid", "target_cpu"], &[("comm", 0)]),
    ("sched_migrate_task", Kind::Migrate, &["pid", "orig_cpu", "dest_cpu"], &[("comm", 0)]),
    ("sched_process_fork", Kind::Fork, &["parent_pid", "child_pid"], &[("parent_comm", 0), ("child_comm", 1)]),
    ("sched_process_exec", Kind::Exec, &["pid"], &[]),
    ("sched_process_exit", Kind::Exit, &["pid"], &[("comm", 0)]),
    ("sched_move_numa", Kind::Numa, &["pid"], &[]),
    ("sched_swap_numa", Kind::Numa, &["src_pid"], &[]),
    ("cpuhp_enter", Kind::Hotplug, &["cpu", "target", "idx"], &[]),
    ("irq_handler_entry", Kind::InterruptBegins, &[], &[]),
    ("irq_handler_exit", Kind::InterruptEnds, &[], &[]),
    ("local_timer_entry", Kind::InterruptBegins, &[], &[]),
    ("local_timer_exit", Kind::InterruptEnds, &[], &[]),
    ("reschedule_entry", Kind::InterruptBegins, &[], &[]),
    ("reschedule_exit", Kind::InterruptEnds, &[], &[]),
    ("call_function_entry", Kind::InterruptBegins, &[], &[]),
    ("call_function_exit", Kind::InterruptEnds, &[], &[]),
    ("call_function_single_entry", Kind::InterruptBegins, &[], &[]),
    ("call_function_single_exit", Kind::InterruptEnds, &[], &[]),
    ("irq_work_entry", Kind::InterruptBegins, &[], &[]),
    ("irq_work_exit", Kind::InterruptEnds, &[], &[]),
    ("softirq_entry", Kind::SoftirqBegins, &[], &[]),
    ("softirq_exit", Kind::SoftirqEnds, &[], &[]),
    ("sys_enter_futex", Kind::Futex, &["uaddr", "op"], &[]),
    ("sys_enter_write", Kind::Write, &["fd"], &[]),
    ("sys_enter_sendto", Kind::Write, &["fd"], &[]),
    ("sys_enter_sendmsg", Kind::Write, &["fd"], &[]),
    ("sys_enter_writev", Kind::Write, &["fd"], &[]),
    ("sys_enter_sendfile64", Kind::Write, &["out_fd"], &[]),
    ("sys_enter_read", Kind::Read, &["fd"], &[]),
    ("sys_enter_readv", Kind::Read, &["fd"], &[]),
    ("sys_enter_recvfrom", Kind::Read, &["fd"], &[]),
    ("sys_enter_recvmsg", Kind::Read, &["fd"], &[]),
    ("sys_enter_accept", Kind::Accept, &["fd"], &[]),
    ("sys_enter_accept4", Kind::Accept, &["fd"], &[]),
    ("sys_enter_connect", Kind::Connect, &["fd"], &[]),
    ("sys_enter_nanosleep", Kind::Sleep, &[], &[]),
    ("sys_enter_clock_nanosleep", Kind::ClockSleep, &["flags"], &[]),
    ("sys_enter_timerfd_settime", Kind::Timer, &["ufd", "flags"], &[]),
    ("sys_enter_epoll_wait", Kind::Poll, &[], &[]),
    ("sys_enter_epoll_pwait", Kind::Poll, &[], &[]),
    ("sys_enter_poll", Kind::Poll, &[], &[]),
    ("sys_enter_ppoll", Kind::Poll, &[], &[]),
    ("sys_enter_select", Kind::Poll, &[], &[]),
    ("sys_enter_pselect6", Kind::Poll, &[], &[]),
    ("sk_data_ready", Kind::Ready, &["skaddr"], &[]),
    ("sock_recv_length", Kind::Received, &["sk", "ret"], &[]),
];

/// Fields of a switch with the priorities of its threads, and which number field has the thread. Some recorders leave them out.
const PRIORITIES: [(&str, usize); 2] = [("prev_prio", 0), ("next_prio", 2)];

/// Whether the description of an event is of one that is read.
#[cfg(feature = "files")]
pub(crate) fn is_described_by(format: &str) -> bool {
    let name = format.lines().next().and_then(|line| line.strip_prefix("name: ")).unwrap_or_default().trim();
    EVENTS.iter().any(|(known, ..)| *known == name)
}

/// How records of one event are read.
#[derive(Debug)]
struct EventReader {
    kind: Kind,
    numbers: Vec<Field>,
    /// Fields of names, and the numbers that they name.
    names: Vec<(TextField, Field)>,
    /// Fields of priorities, and the numbers of their threads.
    priorities: Vec<(Field, Field)>,
    /// Masks of the states in `prev_state`: all, and those of dead threads.
    states: (i64, i64),
}

impl EventReader {
    fn new(format: &Format) -> Result<Option<Self>, String> {
        let Some((_, kind, numbers, names)) = EVENTS.iter().find(|(name, ..)| *name == format.name) else {
            return Ok(None);
        };
        let states = format.state_masks();
        if *kind == Kind::Switch && states.1 == 0 {
            return Err("the description of sched_switch names no state of exited tasks".into());
        }
        let numbers: Vec<Field> = numbers.iter().map(|name| format.field(name)).collect::<Result<_, _>>()?;
        // Newer kernels may leave names out; threads are known by number.
        let names = names.iter().filter_map(|(text, number)| Some((format.text(text)?, numbers[*number]))).collect();
        let of_switch = PRIORITIES.iter().filter(|_| *kind == Kind::Switch);
        let priority = |(name, thread): &(&str, usize)| Some((format.field(name).ok()?, numbers[*thread]));
        let priorities = of_switch.filter_map(priority).collect();
        Ok(Some(Self { kind: *kind, numbers, names, priorities, states }))
    }

    fn read(&self, bytes: &[u8]) -> Option<What> {
        let number = |position: usize| self.numbers[position].read(bytes);
        let thread = |position: usize| number(position).map(|value| value as i32);
        let cpu = |position: usize| number(position).map(|value| value as u32);
        Some(match self.kind {
            Kind::Switch => {
                let (state, (all, dead)) = (number(1)?, self.states);
                let uninterruptible = state & TASK_UNINTERRUPTIBLE != 0;
                let state = match (state & dead != 0, state & all != 0) {
                    (true, _) => PrevState::Dead,
                    (false, true) => PrevState::Sleeping,
                    (false, false) => PrevState::Runnable,
                };
                What::Switch { prev: thread(0)?, state, next: thread(2)?, uninterruptible }
            }
            Kind::Waking => What::Waking { thread: thread(0)?, target_cpu: cpu(1)? },
            Kind::Wakeup => What::Wakeup { thread: thread(0)?, target_cpu: cpu(1)? },
            Kind::Migrate => What::Migrate { thread: thread(0)?, from: cpu(1)?, to: cpu(2)? },
            Kind::Fork => What::Fork { parent: thread(0)?, child: thread(1)? },
            Kind::Exec => What::Exec { thread: thread(0)? },
            Kind::Exit => What::Exit { thread: thread(0)? },
            Kind::Numa => What::Numa { thread: thread(0)? },
            Kind::Hotplug => What::Hotplug { target_cpu: cpu(0)?, target: number(1)? as i32, step: number(2)? as i32 },
            Kind::InterruptBegins => What::Interrupt { soft: false, begins: true },
            Kind::InterruptEnds => What::Interrupt { soft: false, begins: false },
            Kind::SoftirqBegins => What::Interrupt { soft: true, begins: true },
            Kind::SoftirqEnds => What::Interrupt { soft: true, begins: false },
            Kind::Futex => {
                let wakes = FUTEX_WAKES.contains(&(number(1)? & FUTEX_COMMAND));
                let call = if wakes { Call::FutexWake } else { Call::FutexWait };
                What::Call { call, object: number(0)? as u64 }
            }
            Kind::Write => What::Call { call: Call::Write, object: number(0)? as u64 },
            Kind::Read => What::Call { call: Call::Read, object: number(0)? as u64 },
            Kind::Accept => What::Call { call: Call::Accept, object: number(0)? as u64 },
            Kind::Connect => What::Call { call: Call::Connect, object: number(0)? as u64 },
            Kind::Sleep => What::Call { call: Call::SleepFor, object: 0 },
            Kind::Poll => What::Call { call: Call::Poll, object: 0 },
            Kind::Ready => What::Ready { socket: number(0)? as u64 },
            Kind::Received => What::Received { socket: number(0)? as u64, bytes: number(1)? as i32 },
            Kind::ClockSleep => {
                let call = if number(0)? & ABSOLUTE == 0 { Call::SleepFor } else { Call::SleepUntil };
                What::Call { call, object: 0 }
            }
            Kind::Timer => {
                let call = if number(1)? & ABSOLUTE == 0 { Call::TimerFor } else { Call::TimerUntil };
                What::Call { call, object: number(0)? as u64 }
            }
        })
    }
}

/// A new thread, as `task_newtask` says it: what forks do not say is whether it is of its creator's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birth {
    /// Creator.
    pub parent: i32,
    /// New thread.
    pub child: i32,
    /// Whether it is one more thread of its creator's process, and not the first of its own.
    pub is_thread: bool,
}

/// `CLONE_THREAD`.
pub(crate) const CLONE_THREAD: u64 = 0x10000;

/// Reads records of the events of `sched`, by the kernel's own description of them.
#[derive(Debug)]
pub struct EventReaders {
    readers: Vec<EventReader>,
    /// By number of the event which of the readers is its own, if one is.
    by_number: Vec<Option<u8>>,
    /// Number of `task_newtask`, its thread and its flags.
    newtask: Option<(i64, Field, Field)>,
    kind: Field,
    thread: Field,
    flags: Option<Field>,
}

impl EventReaders {
    /// Readers for events of these `format` texts. Events that say nothing about scheduling are passed over.
    ///
    /// # Errors
    /// When a description cannot be read or lacks a field.
    pub fn new<'a>(formats: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut readers, mut by_number) = (Vec::new(), Vec::new());
        let mut common = None;
        let mut newtask = None;
        for text in formats {
            let format = Format::parse(text)?;
            if format.name == "task_newtask" {
                newtask = Some((format.id, format.field("pid")?, format.field("clone_flags")?));
            }
            if let Some(reader) = EventReader::new(&format)? {
                let flags = format.field("common_flags").ok();
                common = Some((format.field("common_type")?, format.field("common_pid")?, flags));
                let number = usize::try_from(format.id).ok().filter(|number| *number < MOST_EVENTS);
                let number = number.ok_or_else(|| format!("event {} has the number {}", format.name, format.id))?;
                by_number.resize(by_number.len().max(number + 1), None);
                by_number[number] = Some(u8::try_from(readers.len()).map_err(|_| "too many events are described")?);
                readers.push(reader);
            }
        }
        let (kind, thread, flags) = common.ok_or("no event of the scheduler is described")?;
        Ok(Self { readers, by_number, newtask, kind, thread, flags })
    }

    /// What the bytes say; `None` for an event that is not the scheduler's.
    ///
    /// # Errors
    /// A record that is shorter than its description.
    pub fn read(&self, time_ns: u64, cpu: u32, bytes: &[u8]) -> Result<Option<Record>, String> {
        let Some(reader) = self.reader(bytes) else { return Ok(None) };
        let short = || "a record of the trace is shorter than its description".to_owned();
        let by = self.thread.read(bytes).ok_or_else(short)? as i32;
        let flags = self.flags.map_or(Some(0), |flags| flags.read(bytes)).ok_or_else(short)?;
        let context = if flags & HARD_INTERRUPT != 0 {
            Context::HardInterrupt
        } else if flags & SOFT_INTERRUPT != 0 {
            Context::SoftInterrupt
        } else {
            Context::Thread
        };
        let what = reader.read(bytes).ok_or_else(short)?;
        if let Some(cpu) = what.names().1.into_iter().flatten().chain([cpu]).find(|cpu| *cpu >= MOST_CPUS) {
            return Err(format!("a record names CPU {cpu}, and no kernel has more than {MOST_CPUS}"));
        }
        Ok(Some(Record { time_ns, cpu, by, context, what }))
    }

    /// The birth that a record says, if it is of `task_newtask`.
    pub fn birth(&self, bytes: &[u8]) -> Option<Birth> {
        let (id, child, flags) = self.newtask?;
        if self.kind.read(bytes)? != id {
            return None;
        }
        let is_thread = flags.read(bytes)? as u64 & CLONE_THREAD != 0;
        Some(Birth { parent: self.thread.read(bytes)? as i32, child: child.read(bytes)? as i32, is_thread })
    }

    /// Hands the names of threads in a record to `take`, with their thread ids.
    pub fn names(&self, bytes: &[u8], mut take: impl FnMut(i32, &str)) {
        for (text, number) in self.reader(bytes).into_iter().flat_map(|reader| &reader.names) {
            if let (Some(name), Some(thread)) = (text.read(bytes), number.read(bytes)) {
                take(thread as i32, name);
            }
        }
    }

    /// Hands the priorities of threads in a record to `take`, with their thread ids.
    pub fn priorities(&self, bytes: &[u8], mut take: impl FnMut(i32, i32)) {
        for (priority, number) in self.reader(bytes).into_iter().flat_map(|reader| &reader.priorities) {
            if let (Some(priority), Some(thread)) = (priority.read(bytes), number.read(bytes)) {
                take(thread as i32, priority as i32);
            }
        }
    }

    /// Whether a record is of that kind.
    pub(crate) fn is(&self, wanted: Wanted, bytes: &[u8]) -> bool {
        let kind = self.reader(bytes).map(|reader| reader.kind);
        match wanted {
            Wanted::All => kind.is_some(),
            Wanted::Forks => kind == Some(Kind::Fork),
            Wanted::Hotplug => kind == Some(Kind::Hotplug),
        }
    }

    fn reader(&self, bytes: &[u8]) -> Option<&EventReader> {
        let number = usize::try_from(self.kind.read(bytes)?).ok()?;
        self.readers.get(usize::from((*self.by_number.get(number)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::SWITCH;

    #[test]
    fn priorities_are_read_where_a_switch_has_them() {
        let words = [316, 7, 0, 0, 0, 0, 7, 49, 0, 0, 8, u32::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let seen = |format: &str| {
            let mut seen = Vec::new();
            EventReaders::new([format]).unwrap().priorities(&bytes, |thread, priority| seen.push((thread, priority)));
            seen
        };
        let field = |name, offset| format!("\tfield:int {name};\toffset:{offset};\tsize:4;\tsigned:1;\n");
        let next = "\tfield:pid_t next_pid;";
        let more = SWITCH.replacen(next, &(field("prev_prio", 28) + &field("next_prio", 44) + next), 1);
        assert_eq!(seen(&more), [(7, 49), (8, -1)]);
        assert!(seen(SWITCH).is_empty());
    }

    #[test]
    fn an_uninterruptible_sleep_is_told_from_others() {
        let readers = EventReaders::new([SWITCH]).unwrap();
        for (state, uninterruptible) in [(0_u32, false), (1, false), (2, true), (0x10, false)] {
            let words = [316, 7, 0, 0, 0, 0, 7, 0, state, 0, 8_u32];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let record = readers.read(5, 0, &bytes).unwrap().unwrap();
            let What::Switch { prev: 7, next: 8, uninterruptible: found, .. } = record.what else {
                panic!("{record:?}")
            };
            assert_eq!(found, uninterruptible, "{state}");
        }
    }
}
