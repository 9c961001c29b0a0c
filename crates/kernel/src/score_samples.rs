//! What the scheduler ranks tasks by, in the trace: of every runnable task of a CPU, at ticks and switches of that CPU, no
//! more often than asked for.
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
}

impl ScoreSamples {
    /// Nothing unless samples are wanted and somebody receives them.
    pub fn of(setup: &Setup<'_>, traced: bool) -> Option<Self> {
        let every_ns = setup.options.scores_every_ns.filter(|_| traced)?;
        Some(Self { every_ns, next_ns: vec![0; setup.machine.cpu_count()] })
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Puts the scores of a CPU's tasks into the trace, if the last time was long enough ago.
    pub(crate) fn sample_scores(&mut self, cpu: CpuId) {
        let now_ns = self.core.now_ns;
        let Some(samples) = &mut self.scores else { return };
        if now_ns < samples.next_ns[cpu.index()] || self.core.error.is_some() {
            return;
        }
        samples.next_ns[cpu.index()] = now_ns + samples.every_ns;
        let mut batch = std::mem::take(&mut self.core.tracer.batch);
        self.scheduler.score_tasks(&self.core, cpu, &mut |task, score, value| {
            batch.push(Event { time_ns: now_ns, cpu, kind: EventKind::Score { score, task, value } });
        });
        self.core.tracer.batch = batch;
    }
}
