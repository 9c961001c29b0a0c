//! Which threads of a recording are meant.

use std::collections::BTreeSet;

use warmcore_capture::kernel_threads::kernel_threads;
use warmcore_capture::{Recording, Wanted, What};

/// A choice of threads. Everything that is named is included; nothing named means every thread that is not the kernel's own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Threads of these processes.
    pub processes: Vec<i32>,
    /// These processes or threads and what descends from them, as far as the recording saw forks.
    pub descendants_of: Vec<i32>,
    /// Threads with one of these names.
    pub names: Vec<String>,
}

/// Why a choice selects nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum SelectionError {
    #[error("the recording holds no events of the scheduler")]
    Empty,
    #[error("no thread of the recording {wanted}; it has {known}")]
    None { wanted: String, known: String },
}

/// Threads named in an error.
const MOST_NAMED: usize = 6;

impl Selection {
    /// The chosen threads.
    ///
    /// # Errors
    /// When there is none.
    pub fn threads(&self, recording: &Recording) -> Result<BTreeSet<i32>, SelectionError> {
        if recording.record_count() == 0 {
            return Err(SelectionError::Empty);
        }
        let all = self.processes.is_empty() && self.descendants_of.is_empty() && self.names.is_empty();
        let kernels = if all { kernel_threads(recording) } else { BTreeSet::new() };
        let mut chosen: BTreeSet<i32> = recording
            .threads
            .iter()
            .filter(|(id, thread)| {
                if all {
                    return !kernels.contains(id);
                }
                thread.process.is_some_and(|process| self.processes.contains(&process))
                    || self.processes.contains(id)
                    || thread.process.is_some_and(|process| self.descendants_of.contains(&process))
                    || self.descendants_of.contains(id)
                    || self.names.contains(&thread.name)
            })
            .map(|(id, _)| *id)
            .collect();
        if !self.descendants_of.is_empty() {
            for record in recording.in_order_of(Wanted::Forks) {
                if let What::Fork { parent, child } = record.what
                    && chosen.contains(&parent)
                {
                    chosen.insert(child);
                }
            }
        }
        if chosen.is_empty() { Err(self.nothing(recording)) } else { Ok(chosen) }
    }

    fn nothing(&self, recording: &Recording) -> SelectionError {
        let mut wanted = Vec::new();
        let ids = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        if !self.processes.is_empty() {
            wanted.push(format!("is of process {}", ids(&self.processes)));
        }
        if !self.descendants_of.is_empty() {
            wanted.push(format!("descends from {}", ids(&self.descendants_of)));
        }
        if !self.names.is_empty() {
            wanted.push(format!("is called {}", self.names.join(" or ")));
        }
        if wanted.is_empty() {
            wanted.push("is a user's".into());
        }
        let known = recording.threads.iter().map(|(id, thread)| format!("{} ({id})", thread.name));
        let mut known: Vec<String> = known.take(MOST_NAMED + 1).collect();
        if known.len() > MOST_NAMED {
            known[MOST_NAMED] = format!("{} more", recording.threads.len() - MOST_NAMED);
        }
        SelectionError::None { wanted: wanted.join(" or "), known: known.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_capture::{Context, Record, Thread};

    fn recording() -> Recording {
        let mut recording = Recording::default();
        for (id, name, process) in [(10, "make", 10), (11, "cc", 11), (12, "kworker/0:1", 12), (30, "other", 30)] {
            recording.threads.insert(id, Thread { name: name.into(), process: Some(process) });
        }
        let fork = |parent, child| Record {
            time_ns: 5,
            cpu: 0,
            by: parent,
            context: Context::Thread,
            what: What::Fork { parent, child },
        };
        recording.records = vec![fork(10, 11), fork(11, 13), fork(2, 14)];
        recording.finished()
    }

    #[test]
    fn kernel_threads_are_left_out_unless_they_are_named() {
        let chosen = |selection: Selection| selection.threads(&recording()).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(chosen(Selection::default()), [10, 11, 13, 30]);
        assert_eq!(chosen(Selection { names: vec!["kworker/0:1".into()], ..Selection::default() }), [12]);
        assert_eq!(chosen(Selection { descendants_of: vec![10], ..Selection::default() }), [10, 11, 13]);
        assert_eq!(chosen(Selection { processes: vec![30, 11], ..Selection::default() }), [11, 30]);
    }

    #[test]
    fn a_choice_of_nothing_says_what_there_is() {
        let error = Selection { processes: vec![99], ..Selection::default() }.threads(&recording()).unwrap_err();
        assert!(error.to_string().contains("is of process 99; it has"), "{error}");
        assert!(error.to_string().contains("make (10)"), "{error}");
        assert_eq!(Selection::default().threads(&Recording::default()), Err(SelectionError::Empty));
    }
}
