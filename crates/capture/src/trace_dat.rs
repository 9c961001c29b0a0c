//! `trace.dat`, the file of `trace-cmd`: versions 6 and 7 are read, version 6 is written.
//!
//! A file has the kernel's own descriptions of ring-buffer pages and of events, names of threads, options, and the pages of each
//! CPU as the kernel gave them. Version 7 has the same parts in sections that may lie anywhere and may be packed.
//! Files of big-endian machines are refused.
//!
//! What is told apart on reading:
//! - *buffers* (instances): the one with the most records of the scheduler is read, a note names the others that have some;
//! - *loss*: gaps that pages show, with their times, and the kernel's counts per CPU (overrun, commit overrun, dropped), where the
//!   file has them. Where neither is there, nothing is known and nothing is said;
//! - *clocks*: those that count nanoseconds, and `x86-tsc` where the file says how to convert it. Others are refused;
//! - *order*: [`open`] leaves records in the file where those of each CPU are in order of time. Of other files all are read.
//! - *the end*: of a file that ends inside its pages all whole pages are read; the rest is a loss and a note.
//!
//! Source: `trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)` of trace-cmd 3.1.

mod pages;
mod read;
pub(crate) mod sections;
mod write;

use std::collections::BTreeMap;

use crate::counters::CounterLog;
use crate::files::OpenFiles;
use crate::homes::PageHomes;

pub use read::{open, read};
pub use write::{write, write_from};

/// Name of the format in errors.
const FORMAT: &str = "trace.dat";
/// What every file begins with.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Bytes of a page that is written.
pub const PAGE_BYTES: usize = 4096;
/// How to record what is needed.
const COMMAND: &str = "trace-cmd record -e sched_switch -e sched_waking -e sched_wakeup -e sched_wakeup_new -e sched_migrate_task \
     -e sched_process_fork -e sched_process_exec -e sched_process_exit -e task_newtask COMMAND";

/// Numbers of options; those from 16 on, and `BUFFER` in other form, are of version 7 alone.
mod option {
    pub const DONE: u16 = 0;
    pub(crate) const CPU_STATISTICS: u16 = 2;
    pub(crate) const BUFFER: u16 = 3;
    pub const CLOCK: u16 = 4;
    pub(crate) const CPU_COUNT: u16 = 8;
    pub(crate) const TIME_SHIFT: u16 = 12;
    pub(crate) const TSC_TO_NS: u16 = 14;
    pub(crate) const HEADER_INFO: u16 = 16;
    pub(crate) const EVENT_FORMATS: u16 = 18;
    pub const NAMES: u16 = 21;
    /// Not of `trace-cmd`, which passes over it: lines `thread process`.
    pub(crate) const PROCESSES: u16 = 0x5743;
    /// Likewise: [`crate::extras`].
    pub const COUNTERS: u16 = 0x5744;
    pub const FILES: u16 = 0x5745;
    pub(crate) const HOMES: u16 = 0x5746;
    pub(crate) const NOTES: u16 = 0x5747;
}

/// What a recorder has, and a file is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Text of `events/header_page`.
    pub header_page: String,
    /// Text of `events/header_event`.
    pub header_event: String,
    /// `SYSTEM/EVENT`, such as `sched/sched_switch`, and the text of its `format`.
    pub events: Vec<(String, String)>,
    /// Names of threads.
    pub cmdlines: BTreeMap<i32, String>,
    /// The clock as `trace_clock` names it, such as `mono`.
    pub clock: String,
    /// Process of threads.
    pub processes: BTreeMap<i32, i32>,
    /// Per CPU: whole pages of [`PAGE_BYTES`], one after the other.
    pub pages: Vec<Vec<u8>>,
    /// Per CPU: events that the kernel counted as lost; CPUs beyond its end lost none.
    pub lost: Vec<u64>,
    /// What threads counted, if that was recorded.
    pub counters: Option<CounterLog>,
    /// What files were.
    pub files: OpenFiles,
    /// Where pages lived.
    pub homes: PageHomes,
    /// What else a reader must know, one sentence each.
    pub notes: Vec<String>,
}
