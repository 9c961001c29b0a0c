//! What the scheduler ranks tasks by, in the trace: of every runnable task of a CPU, at ticks and switches of that CPU, no
//! more often than asked for.
//!
//! From a sample to the next one of that CPU there is one interval at least and a part of a second one that differs from time to
//! time. Equal pauses would fall into step with the tick or with a task's period, and always show the same part of it.
//!
//! Only the CPU's own moments are used, because only then a policy's accounts of its tasks are up to date. A CPU whose tick
//! is 4 ms away and that does not switch is sampled once in 4 ms, whatever was asked for.

use warmcore_topology::CpuId;
use warmcore_trace::{Event, EventKind};

use crate::engine::Engine;
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::setup::Setup;

/// When which CPU is to be sampled again.
pub(crate) struct ScoreSamples {
    every_ns: u64,
    next_ns: Vec<u64>,
    /// How many were taken of each CPU.
    taken: Vec<u64>,
}

impl ScoreSamples {
    /// Nothing unless samples are wanted and somebody receives them.
    pub fn of(setup: &Setup<'_>, traced: bool) -> Option<Self> {
        let every_ns = setup.options.scores_every_ns.filter(|_| traced)?;
        let cpus = setup.machine.cpu_count();
        Some(Self { every_ns, next_ns: vec![0; cpus], taken: vec![0; cpus] })
    }
}

/// From a CPU's sample, its first one being 0, to the earliest time of the next one, ns: one interval to nearly two.
fn pause_ns(every_ns: u64, cpu: usize, sample: u64) -> u64 {
    // The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), at a place of its own for each CPU and sample.
    let mut bits = (((cpu as u64) << 40) ^ sample).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let more = (u128::from(every_ns) * u128::from(bits)) >> 64;
    every_ns.saturating_add(more as u64)
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Puts the scores of a CPU's tasks into the trace, if the last time was long enough ago.
    pub(crate) fn sample_scores(&mut self, cpu: CpuId) {
        let now_ns = self.core.now_ns;
        let Some(samples) = &mut self.scores else { return };
        let at = cpu.index();
        if now_ns < samples.next_ns[at] || self.core.error.is_some() {
            return;
        }
        samples.next_ns[at] = now_ns.saturating_add(pause_ns(samples.every_ns, at, samples.taken[at]));
        samples.taken[at] += 1;
        let mut batch = std::mem::take(&mut self.core.tracer.batch);
        self.scheduler.score_tasks(&self.core, cpu, &mut |task, score, value| {
            batch.push(Event { time_ns: now_ns, cpu, kind: EventKind::Score { score, task, value } });
        });
        self.core.tracer.batch = batch;
    }
}

#[cfg(test)]
mod tests {
    use super::pause_ns;

    #[test]
    fn pauses_last_an_interval_at_least_and_are_in_step_with_nothing() {
        for cpu in [0, 1, 191] {
            let pauses: Vec<u64> = (0..200).map(|sample| pause_ns(1000, cpu, sample)).collect();
            assert!(pauses.iter().all(|pause| (1000..2000).contains(pause)), "{pauses:?}");
            for quarter in 0..4 {
                let of = pauses.iter().filter(|pause| (**pause - 1000) / 250 == quarter).count();
                assert!((30..=70).contains(&of), "cpu{cpu}: {of} of 200 in quarter {quarter}");
            }
        }
        assert_eq!(pause_ns(1, 0, 7), 1, "there is nothing between 1 ns and 2 ns");
        assert_eq!(pause_ns(u64::MAX, 0, 0), u64::MAX);
    }
}
