//! How threads that are bound begin: with the affinity of who creates them, and together.
//!
//! The kernel places a new thread within the affinity that it has from its creator. So a main thread takes the affinity of the threads that
//! it is to create, creates them, and puts its own back, as a program that `taskset` starts has its own from the beginning. Threads that
//! bind themselves would begin anywhere, and each would leave a CPU behind that looks for work.
//!
//! On a crowded CPU the creator would take turns with what it has created, and a hundred threads would take seconds to make. So bound threads
//! wait until all that are due have been made, as those of programs do that begin together.
//!
//! Not here: threads that tasks create (`fork`), which bind themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use warmcore_workload::{Affinity, Task};

use crate::error::NativeError;
use crate::host::Host;
use crate::shared::{Stop, Stopped};
use crate::sync::{ALL, wait, wake};

/// Where threads wait until those that begin with them are there.
#[derive(Default)]
pub(crate) struct Line {
    open: AtomicU32,
}

impl Line {
    pub(crate) fn wait(&self, stop: &Stop) -> Result<(), Stopped> {
        while self.open.load(Ordering::Acquire) == 0 {
            stop.check()?;
            wait(&self.open, 0);
        }
        Ok(())
    }

    fn open(&self) {
        self.open.store(1, Ordering::Release);
        wake(&self.open, ALL);
    }
}

/// What a main thread has created since it last had nothing to create.
#[derive(Default)]
pub(crate) struct Batch {
    line: Option<Arc<Line>>,
}

impl Batch {
    /// Where a task of it waits, if it is bound.
    pub(crate) fn line_of(&mut self, task: &Task) -> Option<Arc<Line>> {
        (task.affinity != Affinity::All).then(|| Arc::clone(self.line.get_or_insert_default()))
    }

    /// All that were due are there.
    pub(crate) fn begin(&mut self) {
        if let Some(line) = self.line.take() {
            line.open();
        }
    }
}

/// Has the calling thread the affinity of a task that it is about to create, until this is dropped.
pub(crate) struct Lent {
    own: Option<CpuSet>,
}

impl Lent {
    pub(crate) fn of(host: &Host, task: &Task) -> Result<Self, NativeError> {
        if task.affinity == Affinity::All {
            return Ok(Self { own: None });
        }
        let set = host.resolve(&task.affinity);
        let set = set.map_err(|reason| NativeError::NoCpus { task: task.name.clone(), reason })?;
        let failed = |call| move |source| NativeError::Call { task: task.name.clone(), call, source };
        let own = sched_getaffinity(None).map_err(failed("sched_getaffinity"))?;
        sched_setaffinity(None, &set).map_err(failed("sched_setaffinity"))?;
        Ok(Self { own: Some(own) })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            // It fails only where those CPUs have gone meanwhile, and then the kernel has chosen others.
            let _ = sched_setaffinity(None, own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_topology::{CpuId, CpuSet as Cpus};
    use warmcore_workload::{ProcessId, ProgramId};

    #[test]
    fn a_thread_made_meanwhile_has_the_task_s_affinity_and_its_creator_has_its_own_again() {
        let own = sched_getaffinity(None).unwrap();
        let bound = |affinity| Task { affinity, ..Task::new("bound", ProcessId(0), ProgramId(0)) };
        let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| own.is_set(cpu)).unwrap();
        let host = Host::detect();
        let of_child = |task: &Task| {
            let _lent = Lent::of(&host, task).unwrap();
            std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap()
        };
        let mut only = CpuSet::new();
        only.set(last);
        assert_eq!(of_child(&bound(Affinity::OsCpus(vec![last as u32]))), only);
        assert_eq!(sched_getaffinity(None).unwrap(), own);
        assert_eq!(of_child(&bound(Affinity::All)), own);
        let nowhere = bound(Affinity::Cpus(Cpus::from_iter([CpuId(u32::MAX >> 1)])));
        let refused = Lent::of(&host, &nowhere).map(drop).unwrap_err().to_string();
        assert!(refused.contains("bound"), "{refused}");
    }

    #[test]
    fn those_of_a_batch_wait_for_its_end_and_for_no_other() {
        let stop = Stop::default();
        let (mut first, mut second) = (Batch::default(), Batch::default());
        let free = Task::new("free", ProcessId(0), ProgramId(0));
        assert!(first.line_of(&free).is_none(), "it waits for nobody");
        let bound = Task { affinity: Affinity::OsCpus(vec![0]), ..free };
        let lines = [first.line_of(&bound), first.line_of(&bound), second.line_of(&bound)].map(Option::unwrap);
        assert!(Arc::ptr_eq(&lines[0], &lines[1]) && !Arc::ptr_eq(&lines[0], &lines[2]));
        first.begin();
        assert!(lines[0].wait(&stop).is_ok());
        stop.set();
        assert!(lines[2].wait(&stop).is_err(), "the run has ended before its batch was there");
    }
}
