//! The L1 caches of a core: one for data and, where the machine has one and a task has code, one for instructions.

use super::cache::Cache;

/// A line of code is in the cache for instructions only, one of data never there: who asks for a line does not say which it is.
#[derive(Clone, Debug)]
pub(crate) struct FirstLevel {
    pub(crate) data: Cache,
    pub(crate) code: Option<Cache>,
}

impl FirstLevel {
    /// State of a line.
    pub(crate) fn state(&self, line: u32) -> Option<u32> {
        self.data.state(line).or_else(|| self.code.as_ref()?.state(line))
    }

    /// Whether it has a line.
    pub(crate) fn contains(&self, line: u32) -> bool {
        self.state(line).is_some()
    }

    /// [`Cache::change_state`] where the line is.
    pub(crate) fn change_state(&mut self, line: u32, and: u32, or: u32) -> Option<u32> {
        self.data.change_state(line, and, or).or_else(|| self.code.as_mut()?.change_state(line, and, or))
    }

    /// Takes a line out; the state that it had.
    pub(crate) fn remove(&mut self, line: u32) -> Option<u32> {
        self.data.remove(line).or_else(|| self.code.as_mut()?.remove(line))
    }
}
