//! What has changed of what programs read as memory, since it was written down there.
//!
//! A kernel's structures are live: whoever keeps a pointer sees what they are now. Here they are written before a program is entered, and before a call
//! of it returns that claims a CPU or moves a task; this list says which. What programs write too (slices, virtual times) lies there alone.

use warmcore_topology::{CpuId, Machine};
use warmcore_trace::TaskId;

/// Each task and CPU that has changed, once.
#[derive(Default)]
pub(crate) struct Changes {
    tasks: List,
    cpus: List,
    /// A program looks.
    watched: bool,
}

#[derive(Default)]
struct List {
    indices: Vec<u32>,
    noted: Vec<bool>,
}

impl List {
    fn note(&mut self, index: usize) {
        if self.noted.len() <= index {
            self.noted.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.noted[index], true) {
            self.indices.push(index as u32);
        }
    }

    fn take(&mut self) -> Option<u32> {
        let index = self.indices.pop()?;
        self.noted[index as usize] = false;
        Some(index)
    }
}

impl Changes {
    /// Of a machine; nothing is noted where no program looks.
    pub fn new(machine: &Machine, watched: bool) -> Self {
        let mut changes = Self { watched, ..Self::default() };
        machine.cpus().for_each(|cpu| changes.note_cpu(cpu));
        changes
    }

    #[inline]
    pub(crate) fn note_task(&mut self, task: TaskId) {
        if self.watched {
            self.tasks.note(task.index());
        }
    }

    #[inline]
    pub(crate) fn note_cpu(&mut self, cpu: CpuId) {
        if self.watched {
            self.cpus.note(cpu.index());
        }
    }

    #[inline]
    pub(crate) fn take_task(&mut self) -> Option<TaskId> {
        self.tasks.take().map(TaskId)
    }

    #[inline]
    pub(crate) fn take_cpu(&mut self) -> Option<CpuId> {
        self.cpus.take().map(CpuId)
    }
}
