//! Runnable tasks of fixed priorities on a CPU (`rt_prio_array`).

use std::collections::VecDeque;

use warmcore_trace::TaskId;

/// One list for each priority, the running task among them.
#[derive(Clone)]
pub(super) struct FixedQueue {
    lists: Vec<VecDeque<TaskId>>,
    /// A bit for each list that has tasks.
    occupied: u128,
}

impl Default for FixedQueue {
    fn default() -> Self {
        Self { lists: vec![VecDeque::new(); 100], occupied: 0 }
    }
}

impl FixedQueue {
    /// Adds a task behind or before those of its priority.
    pub fn insert(&mut self, task: TaskId, priority: u8, first: bool) {
        let list = &mut self.lists[usize::from(priority)];
        if first {
            list.push_front(task)
        } else {
            list.push_back(task)
        }
        self.occupied |= 1 << priority;
    }

    /// Takes a task out.
    pub fn remove(&mut self, task: TaskId, priority: u8) {
        let list = &mut self.lists[usize::from(priority)];
        list.retain(|&known| known != task);
        if list.is_empty() {
            self.occupied &= !(1 << priority);
        }
    }

    /// Highest priority there is; 0 without tasks.
    pub fn highest(&self) -> u8 {
        self.occupied.checked_ilog2().unwrap_or(0) as u8
    }

    /// The task that is to run.
    pub fn first(&self) -> Option<TaskId> {
        self.lists[usize::from(self.highest())].front().copied()
    }

    /// Whether a task is alone at its priority.
    pub fn is_alone(&self, priority: u8) -> bool {
        self.lists[usize::from(priority)].len() == 1
    }

    /// All tasks, the highest priority first.
    pub fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        let lists = (1..=self.highest()).rev().filter(|&priority| self.occupied >> priority & 1 == 1);
        lists.flat_map(|priority| self.lists[usize::from(priority)].iter().copied())
    }
}
