//! Which CPUs the chosen threads had, and who else had these: why a replay, alone on the machine of the recording, may be faster.

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::{Recording, What};

/// CPUs on which chosen threads ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupied {
    /// How many.
    pub cpus: u32,
    /// How many the recording has.
    pub all: u32,
    /// CPU time of other threads on them, ns. Where nobody knows who had one, that counts for nobody.
    pub others_ns: u64,
}

/// What is known of a CPU.
#[derive(Default)]
struct OfCpu {
    ours: bool,
    others_ns: u64,
    /// Since when another thread has it, if one does.
    since: Option<u64>,
}

impl Occupied {
    /// Those of these threads in a recording.
    pub fn of(recording: &Recording, chosen: &BTreeSet<i32>) -> Self {
        let mut cpus: BTreeMap<u32, OfCpu> = BTreeMap::new();
        for record in recording.in_order() {
            let What::Switch { next, .. } = record.what else { continue };
            let cpu = cpus.entry(record.cpu).or_default();
            cpu.others_ns += cpu.since.take().map_or(0, |since| record.time_ns - since);
            let ours = chosen.contains(&next);
            cpu.ours |= ours;
            cpu.since = (next > 0 && !ours).then_some(record.time_ns);
        }
        let ours = cpus.values().filter(|cpu| cpu.ours);
        let others_ns = ours.clone().map(|cpu| cpu.others_ns).sum();
        Self { cpus: ours.count() as u32, all: recording.cpus, others_ns }
    }

    /// What held these threads up and a replay does not have, if anything did; `worth_ns`: from when on others' time matters.
    pub(crate) fn cause(self, worth_ns: f64) -> Option<String> {
        let Self { cpus, all, others_ns } = self;
        let bound = || format!("its threads ran on {cpus} of {all} CPUs, and the replay is bound to none");
        let whose = if cpus == 1 { "its CPU" } else { "its CPUs" };
        let others = || format!("other threads had {whose} for {:.3} s", others_ns as f64 / 1e9);
        let (bound, others) = ((cpus < all).then(bound), (others_ns as f64 > worth_ns).then(others));
        let causes: Vec<String> = bound.into_iter().chain(others).collect();
        (!causes.is_empty()).then(|| causes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmcore_capture::{Context, Record};
    use warmcore_trace::PrevState;

    fn switch(time_ns: u64, cpu: u32, prev: i32, next: i32) -> Record {
        let what = What::Switch { prev, state: PrevState::Sleeping, next, uninterruptible: false };
        Record { time_ns, cpu, by: prev, context: Context::Thread, what }
    }

    /// Thread 5 has CPU 0 for 1 s, then thread 9 for 2 s; CPU 1 is thread 9's for 4 s before.
    #[test]
    fn what_others_had_of_the_cpus_of_a_bound_thread_is_why_its_replay_is_faster() {
        let ms = |ms: u64| ms * 1_000_000;
        let records = vec![
            switch(0, 1, 0, 9),
            switch(ms(4_000), 0, 0, 5),
            switch(ms(4_000), 1, 9, 0),
            switch(ms(5_000), 0, 5, 9),
            switch(ms(7_000), 0, 9, 5),
            switch(ms(8_000), 0, 5, 0),
        ];
        let recording = Recording { records, ..Recording::default() }.finished();
        let one = Occupied::of(&recording, &[5].into());
        assert_eq!(one, Occupied { cpus: 1, all: 2, others_ns: ms(2_000) });
        let both =
            "its threads ran on 1 of 2 CPUs, and the replay is bound to none; other threads had its CPU for 2.000 s";
        assert_eq!(one.cause(1e9).as_deref(), Some(both));
        assert_eq!(one.cause(2e9).unwrap(), "its threads ran on 1 of 2 CPUs, and the replay is bound to none");
        assert_eq!(Occupied { cpus: 2, ..one }.cause(2e9), None);
    }
}
