//! What of a run counts: all of it, or what comes after its warm-up.
//!
//! CPU times of threads are read by the main thread when the warm-up is over, those of threads of other processes as of their last tick or
//! switch; a sample counts if what it measures began afterwards. Counts of steps and switches are those of the whole run.

use std::collections::BTreeMap;

use warmcore_workload::Workload;

use crate::shared::Register;
use crate::sys;

/// CPU times when the warm-up was over.
#[derive(Default)]
pub(crate) struct Before {
    opened: bool,
    /// By thread, of those that were there.
    cpu_ns: BTreeMap<i32, u64>,
}

/// The warm-up, if there is one.
pub(crate) fn warm_up_ns(workload: &Workload) -> Option<u64> {
    workload.warm_up_ns.filter(|ns| *ns > 0)
}

impl Register {
    /// The warm-up is over.
    pub(crate) fn open_window(&mut self) {
        let of_thread = |thread: &i32| Some((*thread, sys::cpu_ns_of(*thread)?));
        self.before = Before { opened: true, cpu_ns: self.live.keys().filter_map(of_thread).collect() };
    }

    /// What of a thread's CPU time counts, when it ends.
    pub(crate) fn counted_ns(&mut self, workload: &Workload, thread: i32, cpu_ns: u64) -> u64 {
        match warm_up_ns(workload) {
            None => cpu_ns,
            Some(_) if !self.before.opened => 0,
            // Numbers of threads are used again.
            Some(_) => cpu_ns.saturating_sub(self.before.cpu_ns.remove(&thread).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_workload::TaskTemplateId;

    #[test]
    fn of_cpu_time_counts_what_was_used_behind_the_warm_up() {
        let (mut workload, mut register) = (Workload::empty("test"), Register::default());
        assert_eq!(register.counted_ns(&workload, 7, 500), 500, "there is none");
        workload.warm_up_ns = Some(1_000);
        assert_eq!(register.counted_ns(&workload, 7, 500), 0, "it is not over");
        let own = sys::thread_number();
        register.live.insert(own, TaskTemplateId(0));
        register.open_window();
        let before_ns = register.before.cpu_ns[&own];
        assert!(before_ns > 0);
        assert_eq!(register.counted_ns(&workload, own, before_ns + 40), 40);
        assert_eq!(register.counted_ns(&workload, own, 30), 30, "another thread with the same number");
        assert_eq!(register.counted_ns(&workload, 7, 20), 20, "it came later");
    }
}
