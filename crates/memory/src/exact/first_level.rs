//! The L1 caches of a core: one for data and, where the machine has one and something has code, one for instructions.

use super::cache::Cache;
use super::lanes::DIRTY;

/// Who asks for a line does not say whether it is code. A line that an address trace both fetches and reads may be in both; then the copy for
/// data is the one that is written.
#[derive(Clone, Debug)]
pub(crate) struct FirstLevel {
    pub(crate) data: Cache,
    pub(crate) code: Option<Cache>,
}

impl FirstLevel {
    /// State of a line.
    pub(crate) fn state(&self, line: u32) -> Option<u32> {
        of_both(self.data.state(line), self.code.as_ref().and_then(|code| code.state(line)))
    }

    /// Whether it has a line.
    pub(crate) fn contains(&self, line: u32) -> bool {
        self.state(line).is_some()
    }

    /// [`Cache::change_state`] where the line is.
    pub(crate) fn change_state(&mut self, line: u32, and: u32, or: u32) -> Option<u32> {
        let data = self.data.change_state(line, and, or);
        let or = if data.is_some() { or & !DIRTY } else { or };
        of_both(data, self.code.as_mut().and_then(|code| code.change_state(line, and, or)))
    }

    /// Takes a line out; the state that it had.
    pub(crate) fn remove(&mut self, line: u32) -> Option<u32> {
        of_both(self.data.remove(line), self.code.as_mut().and_then(|code| code.remove(line)))
    }
}

/// State bits that either copy has.
fn of_both(data: Option<u32>, code: Option<u32>) -> Option<u32> {
    match (data, code) {
        (Some(data), Some(code)) => Some(data | code),
        (data, code) => data.or(code),
    }
}
