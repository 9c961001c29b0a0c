//! Who receives the run time of a thread that ends.
//!
//! Source: `docs/spec/ule.md` section 4 (`sched_exit`, `thread_exit`, `exit1`).

use warmcore_trace::TaskId;

/// A process of the workload. When its last thread has ended, the next one begins it anew.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its threads in the order of their creation; those before `first` have ended.
    threads: Vec<TaskId>,
    first: usize,
    living: usize,
    /// The process that it was forked from; none for a shell's, which is no task.
    parent: Option<u32>,
}

/// All processes, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes(Vec<Process>);

impl Processes {
    /// A thread of a process was made by one of another process, or of the same.
    pub fn begin(&mut self, thread: TaskId, process: u32, maker: Option<u32>) {
        if self.0.len() <= process as usize {
            self.0.resize_with(process as usize + 1, Process::default);
        }
        let own = &mut self.0[process as usize];
        if own.living == 0 {
            *own = Process { parent: maker.filter(|&maker| maker != process), ..Process::default() };
        }
        own.threads.push(thread);
        own.living += 1;
    }

    /// A thread of a process has ended: the first living one of its process receives its run time, or, if it was the last and
    /// `parents_inherit`, that of the parent process.
    pub fn end(&mut self, process: u32, parents_inherit: bool, has_ended: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let own = &mut self.0[process as usize];
        own.living -= 1;
        let heirs = match own.living {
            0 => own.parent.filter(|_| parents_inherit)?,
            _ => process,
        };
        let Process { threads, first, .. } = &mut self.0[heirs as usize];
        while threads.get(*first).is_some_and(|&thread| has_ended(thread)) {
            *first += 1;
        }
        threads.get(*first).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    /// A shell (process 0: threads 0 and 1) that forks a compiler (process 1: thread 2, which makes thread 3).
    #[test]
    fn run_time_goes_to_the_first_living_thread_and_from_the_last_to_the_parent() {
        let mut processes = Processes::default();
        for (thread, process, maker) in [(0, 0, None), (1, 0, None), (2, 1, Some(0)), (3, 1, Some(1))] {
            processes.begin(TaskId(thread), process, maker);
        }
        let ended = RefCell::new(BTreeSet::new());
        let mut end = |thread: u32, process: u32, parents_inherit: bool| {
            ended.borrow_mut().insert(thread);
            let heir = processes.end(process, parents_inherit, |task| ended.borrow().contains(&task.0));
            heir.map(|heir| heir.0)
        };
        assert_eq!(end(2, 1, true), Some(3), "its process goes on");
        assert_eq!(end(0, 0, true), Some(1), "the first one itself: to the next");
        let mut port = processes_of_one_child();
        assert_eq!(port.end(1, false, |task| task.0 == 1), None, "the port knows no parents");
        assert_eq!(end(3, 1, true), Some(1), "the process ends: to the parent's first");
        assert_eq!(end(1, 0, true), None, "the shell's own parent is no task");
    }

    fn processes_of_one_child() -> Processes {
        let mut processes = Processes::default();
        processes.begin(TaskId(0), 0, None);
        processes.begin(TaskId(1), 1, Some(0));
        processes
    }

    /// The compiler runs again, forked by another shell; and a parent that has ended inherits nothing.
    #[test]
    fn a_process_that_begins_anew_has_a_new_parent() {
        let mut processes = processes_of_one_child();
        assert_eq!(processes.end(1, true, |task| task.0 == 1), Some(TaskId(0)));
        processes.begin(TaskId(2), 2, None);
        processes.begin(TaskId(3), 1, Some(2));
        assert_eq!(processes.end(1, true, |task| [1, 3].contains(&task.0)), Some(TaskId(2)));
        processes.begin(TaskId(4), 1, Some(0));
        assert_eq!(processes.end(0, true, |task| task.0 != 2 && task.0 != 4), None);
        assert_eq!(processes.end(1, true, |task| task.0 != 2), None);
    }
}
