//! What was not written yet.

use std::collections::BTreeMap;

use super::proto::{CompactSched, FtraceEvent};

/// What a CPU has not written yet.
#[derive(Default)]
pub(super) struct Pending {
    pub compact: CompactSched,
    pub events: Vec<FtraceEvent>,
    pub last_switch_ns: u64,
    pub last_waking_ns: u64,
    names: BTreeMap<i32, u32>,
    /// Whether a switch was written before.
    pub began: bool,
}

impl Pending {
    /// Takes what is there; that something was written before stays known.
    pub fn take(&mut self) -> Self {
        let empty = Self { began: self.began, ..Self::default() };
        std::mem::replace(self, empty)
    }

    pub fn len(&self) -> usize {
        self.compact.switch_timestamp.len() + self.compact.waking_timestamp.len() + self.events.len()
    }

    /// The number of a thread's name in this bundle's table.
    pub fn name(&mut self, thread: i32, name: &str) -> u32 {
        let table = &mut self.compact.intern_table;
        *self.names.entry(thread).or_insert_with(|| {
            table.push(name.to_owned());
            (table.len() - 1) as u32
        })
    }
}
