//! Where to pull from: affinity promotion over groups and queues of tasks (`docs/spec/linux-fair.md` section 8.7).

use warmcore_topology::CpuId;

use super::TopologyAware;

impl TopologyAware {
    /// What moving one task that prefers `home` gains.
    pub(super) fn gain(&self, src: u32, dst: u32, home: u32) -> u64 {
        self.gain.of(&self.sequences, src, dst, home)
    }

    /// Sum over a group of CPUs of what moving its queued tasks to an LLC would gain, and whether the group is a source. CPUs that are
    /// left out of the pass count for nothing.
    pub(super) fn group_score(
        &self,
        domain_group: u32,
        dst: u32,
        patient: bool,
        left_out: impl Iterator<Item = CpuId>,
    ) -> (u32, bool) {
        let base = &self.base;
        let llcs = base.llcs.len();
        let (mut score, mut weighted) = (0, 0);
        for &src in self.group_llcs[domain_group as usize].iter().filter(|&&src| src != dst) {
            let counts = &self.counts[src as usize * llcs..][..llcs];
            let wanted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let gained: u64 = wanted.map(|(home, &count)| u64::from(count) * self.gain(src, dst, home as u32)).sum();
            score += gained;
            weighted += gained * base.llcs[src as usize].snapshot.get().util;
        }
        if score == 0 {
            return (0, false);
        }
        for cpu in left_out.filter(|cpu| base.llc_of[cpu.index()] != dst) {
            let gained = u64::from(self.queue_score(cpu, dst));
            score -= gained;
            weighted -= gained * base.llcs[base.llc_of[cpu.index()] as usize].snapshot.get().util;
        }
        if score == 0 {
            return (0, false);
        }
        let target = base.llcs[dst as usize].snapshot.get();
        let fits = base.limits.fits(target.util, target.capacity);
        let wanted = patient && target.capacity > 0 && (fits || !base.limits.greater(target.util, weighted / score));
        (u32::try_from(score).unwrap_or(u32::MAX), wanted)
    }

    /// What moving a CPU's queued tasks to an LLC would gain.
    pub(super) fn queue_score(&self, cpu: CpuId, dst: u32) -> u32 {
        let base = &self.base;
        let src = base.llc_of[cpu.index()];
        let homes = (0..base.llcs.len() as u32).filter(|&home| base.wanting[home as usize] > 0);
        let gains = homes.map(|home| u64::from(base.llc_count(cpu.0, home)) * self.gain(src, dst, home));
        u32::try_from(gains.sum::<u64>()).unwrap_or(u32::MAX)
    }
}
