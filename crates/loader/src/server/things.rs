//! What is behind a loader's descriptors, and what a command gives.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use warmcore_bpf::btf::Btf;
use warmcore_scx::bytecode::{ProgramId, ProgramSource, Site, Tracepoint};

use super::counters;
use crate::capture::Capture;

/// A thing behind a descriptor.
pub(super) enum Thing {
    /// A map, by handle, and of a table of operations the value.
    Map { handle: u64, value: Vec<u8> },
    /// A program, with the place of tracing that it is for; without `id` one that is only probed with, not yet attached or never run.
    /// Where no task passes that place it is idle.
    Program { name: String, kind: u32, id: Option<ProgramId>, site: Option<Site>, is_idle: bool, text: Option<Text> },
    /// Type information.
    Btf(Arc<Btf>),
    /// The link that keeps the scheduler attached.
    Scheduler,
    /// A counter of performance events.
    Counter(counters::Opened),
    /// The passes of a tracepoint, as an event.
    Tracepoint(&'static Tracepoint),
    /// Another link, or an event that never happens.
    Other,
}

/// A program as it was loaded. One of a kind that libraries only probe with, as a rule, is translated when it is attached.
pub(super) struct Text {
    pub bytes: Vec<u8>,
    pub functions: Vec<u32>,
    pub catches: Option<u32>,
    pub maps: BTreeMap<i32, u64>,
    pub types: Option<Arc<Btf>>,
}

impl Text {
    pub(super) fn source<'a>(&'a self, name: &'a str) -> ProgramSource<'a> {
        let Self { bytes, functions, catches, maps, types } = self;
        ProgramSource { name, bytes, functions, catches: *catches, maps, types: types.as_ref() }
    }
}

/// What a command gives.
pub(super) enum Reply {
    Value(i64),
    Error(i32),
    /// A descriptor for a new thing, behind this file or one of its own.
    New(Thing, Option<Arc<OwnedFd>>),
    /// The scheduler is attached.
    Attached(Box<Capture>),
    Detached,
}
