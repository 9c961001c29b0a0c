//! Built-in idle tracking: which CPUs are idle, which of them on a core that is wholly idle, and the claim of one.
//!
//! Source: `docs/spec/sched-ext.md` section 7. One pair of masks for the machine; those of a node (`BUILTIN_IDLE_PER_NODE`) are its part of them.

use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::SearchStep;

/// Which CPUs a search takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Smt {
    /// One of a wholly idle core only (`SCX_PICK_IDLE_CORE`).
    WholeCore,
    /// One of a wholly idle core if there is one.
    Preferred,
}

/// The masks.
#[derive(Default)]
pub struct IdleMasks {
    cpus: CpuSet,
    /// CPUs whose whole core is idle.
    cores: CpuSet,
    /// Where each CPU's next search begins.
    cursors: Vec<CpuId>,
    /// Words of the masks that have changed since somebody asked, as bits.
    changed_words: u128,
}

impl IdleMasks {
    /// Of a machine on which nothing is known to be idle.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let count = machine.cpu_count();
        let none = || CpuSet::with_capacity(count);
        Self { cpus: none(), cores: none(), cursors: vec![CpuId(0); count], changed_words: 0 }
    }

    /// The idle CPUs.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The CPUs of wholly idle cores.
    #[must_use]
    pub fn cores(&self) -> &CpuSet {
        &self.cores
    }

    /// The words of the masks that have changed since this was asked last, as bits.
    pub(crate) fn take_changed_words(&mut self) -> u128 {
        std::mem::take(&mut self.changed_words)
    }

    /// A CPU goes idle or leaves idle.
    pub fn set(&mut self, machine: &Machine, cpu: CpuId, idle: bool) {
        if !idle {
            self.test_and_clear(machine, cpu);
            return;
        }
        self.cpus.insert(cpu);
        self.note_changed(cpu);
        let siblings = machine.cpus_of_core(machine.core_of(cpu));
        if siblings.is_subset(&self.cpus) {
            self.cores.union_with(siblings);
            siblings.iter().for_each(|sibling| self.note_changed(sibling));
        }
    }

    /// Claims a CPU (`test_and_clear_cpu_idle`): true for the one who finds it idle.
    pub(crate) fn test_and_clear(&mut self, machine: &Machine, cpu: CpuId) -> bool {
        for sibling in machine.cpus_of_core(machine.core_of(cpu)).iter() {
            if self.cores.remove(sibling) {
                self.note_changed(sibling);
            }
        }
        let was_idle = self.cpus.remove(cpu);
        if was_idle {
            self.note_changed(cpu);
        }
        was_idle
    }

    fn note_changed(&mut self, cpu: CpuId) {
        self.changed_words |= 1 << (cpu.index() / 64);
    }

    /// Finds an idle CPU among `allowed` and, if given, `within`, and claims it (`scx_bpf_pick_idle_cpu`). `here` is the searching CPU.
    pub fn pick(
        &mut self,
        machine: &Machine,
        here: CpuId,
        (allowed, within): (&CpuSet, Option<&CpuSet>),
        smt: Smt,
    ) -> Option<CpuId> {
        let start = self.cursors[here.index()];
        let within = within.unwrap_or(allowed);
        let mut found = None;
        if machine.smt_width() > 1 {
            found = first_in_all([&self.cores, allowed, within], start);
        }
        if found.is_none() && (smt == Smt::Preferred || machine.smt_width() == 1) {
            found = first_in_all([&self.cpus, allowed, within], start);
        }
        let cpu = found?;
        self.cursors[here.index()] = CpuId((cpu.0 + 1) % machine.cpu_count() as u32);
        self.test_and_clear(machine, cpu);
        Some(cpu)
    }

    /// The CPU to wake a task on (`scx_bpf_select_cpu_dfl`), with the step that found it: idle and now claimed, unless that is
    /// [`SearchStep::NoneClaimed`].
    pub fn select(&mut self, machine: &Machine, search: &Search<'_>) -> (CpuId, SearchStep) {
        use SearchStep::{AnyCore, AnyCpu, LlcCore, LlcCpu, NodeCore, NodeCpu, NoneClaimed, SiblingClaimed};
        let Search { here, prev, allowed, sync, smt } = *search;
        if let Some(sync) = sync
            && let Some(found) = self.select_for_sync(machine, search, sync)
        {
            return found;
        }
        let (llc, node) = (machine.coregroup(prev), machine.cpus_of_node(machine.node_of(prev)));
        let llc_step = (llc.len() < machine.cpu_count()).then_some(llc);
        let node_step = (node.len() < machine.cpu_count() && node.len() != llc.len()).then_some(node);
        // Each step's CPUs, of which there are none where an earlier step has the same; all CPUs come last.
        let outward = |[near, far, all]: [SearchStep; 3]| {
            let within = [llc_step.map(|cpus| (Some(cpus), near)), node_step.map(|cpus| (Some(cpus), far))];
            within.into_iter().flatten().chain([(None, all)])
        };
        let prev_allowed = allowed.contains(prev);
        if machine.smt_width() > 1 {
            if prev_allowed && self.cores.contains(prev) {
                self.test_and_clear(machine, prev);
                return (prev, SearchStep::PreviousCore);
            }
            for (within, step) in outward([LlcCore, NodeCore, AnyCore]) {
                if let Some(cpu) = self.pick(machine, here, (allowed, within), Smt::WholeCore) {
                    return (cpu, step);
                }
            }
            if smt == Smt::WholeCore {
                return (prev, NoneClaimed);
            }
        }
        if prev_allowed && self.test_and_clear(machine, prev) {
            return (prev, SearchStep::PreviousClaimed);
        }
        let siblings = (machine.smt_width() > 1).then(|| machine.cpus_of_core(machine.core_of(prev)));
        let siblings = siblings.map(|cpus| (Some(cpus), SiblingClaimed));
        for (within, step) in siblings.into_iter().chain(outward([LlcCpu, NodeCpu, AnyCpu])) {
            if let Some(cpu) = self.pick(machine, here, (allowed, within), Smt::Preferred) {
                return (cpu, step);
            }
        }
        (prev, NoneClaimed)
    }

    fn select_for_sync(&mut self, machine: &Machine, search: &Search<'_>, sync: Sync) -> Option<(CpuId, SearchStep)> {
        let Search { here, prev, allowed, .. } = *search;
        let shares_cache = machine.coregroup(prev).contains(here);
        if shares_cache && allowed.contains(prev) && self.test_and_clear(machine, prev) {
            return Some((prev, SearchStep::SyncPrevious));
        }
        let stays = sync.local_is_empty && !self.cpus.is_empty() && allowed.contains(here);
        stays.then_some((here, SearchStep::SyncWaker))
    }
}

/// The first CPU from `start` on, around the end, that is in each of the sets.
fn first_in_all(sets: [&CpuSet; 3], start: CpuId) -> Option<CpuId> {
    let words = sets[0].word_count().max(start.index() / 64 + 1);
    let (first, above) = (start.index() / 64, u64::MAX << (start.index() % 64));
    (0..=words).find_map(|step| {
        let word = (first + step) % words;
        let part = match step {
            0 => above,
            step if step == words => !above,
            _ => u64::MAX,
        };
        let bits = sets.iter().fold(part, |bits, set| bits & set.word(word));
        (bits != 0).then(|| CpuId::from_index(word * 64 + bits.trailing_zeros() as usize))
    })
}

/// A wakeup whose waker is about to sleep.
#[derive(Clone, Copy)]
pub struct Sync {
    /// Nothing waits in the local queue of the waker's CPU.
    pub local_is_empty: bool,
}

/// What a CPU is searched for.
#[derive(Clone, Copy)]
pub struct Search<'s> {
    /// The waker's CPU.
    pub here: CpuId,
    /// Where the task ran last.
    pub prev: CpuId,
    /// Where it may run.
    pub allowed: &'s CpuSet,
    /// For a wakeup whose waker is about to sleep.
    pub sync: Option<Sync>,
    /// Whether siblings of busy CPUs are taken. Those of a waker about to sleep are, in any case.
    pub smt: Smt,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_idle(machine: &Machine) -> IdleMasks {
        let mut masks = IdleMasks::new(machine);
        machine.cpus().for_each(|cpu| masks.set(machine, cpu, true));
        masks
    }

    #[test]
    fn one_idle_cpu_is_claimed_once() {
        let machine = warmcore_topology::resolve("1s1n1l2c1t").unwrap();
        let mut masks = IdleMasks::new(&machine);
        masks.set(&machine, CpuId(1), true);
        let all = machine.all_cpus();
        assert_eq!(masks.pick(&machine, CpuId(0), (all, None), Smt::Preferred), Some(CpuId(1)));
        assert_eq!(masks.pick(&machine, CpuId(0), (all, None), Smt::Preferred), None);
    }

    #[test]
    fn wholly_idle_cores_come_first_and_a_claim_ends_them() {
        let machine = warmcore_topology::resolve("1s1n1l2c2t").unwrap();
        let mut masks = all_idle(&machine);
        let all = machine.all_cpus();
        let cores: Vec<_> = (0..2)
            .map(|_| machine.core_of(masks.pick(&machine, CpuId(0), (all, None), Smt::WholeCore).unwrap()))
            .collect();
        assert_ne!(cores[0], cores[1]);
        assert_eq!(masks.pick(&machine, CpuId(0), (all, None), Smt::WholeCore), None);
        assert!(masks.pick(&machine, CpuId(0), (all, None), Smt::Preferred).is_some());
    }

    #[test]
    fn the_last_cpu_is_kept_where_it_is_idle_then_its_cache_is_searched() {
        let machine = warmcore_topology::resolve("1s1n2l2c1t").unwrap();
        let mut masks = all_idle(&machine);
        let allowed = machine.all_cpus();
        let search = Search { here: CpuId(0), prev: CpuId(2), allowed, sync: None, smt: Smt::Preferred };
        assert_eq!(masks.select(&machine, &search), (CpuId(2), SearchStep::PreviousClaimed));
        assert_eq!(masks.select(&machine, &search), (CpuId(3), SearchStep::LlcCpu));
        let (cpu, step) = masks.select(&machine, &search);
        assert!(cpu.0 < 2 && step == SearchStep::AnyCpu);
        masks.select(&machine, &search);
        assert_eq!(masks.select(&machine, &search), (CpuId(2), SearchStep::NoneClaimed));
    }

    /// `scx_select_cpu_dfl` asks there whether the last CPU is idle, not whether its core is.
    #[test]
    fn a_wakeup_by_who_is_about_to_sleep_keeps_an_idle_last_cpu_beside_the_waker() {
        let machine = warmcore_topology::resolve("1s1n1l2c2t").unwrap();
        let core = machine.cpus_of_core(machine.core_of(CpuId(0)));
        let prev = core.iter().find(|&cpu| cpu != CpuId(0)).unwrap();
        let mut masks = all_idle(&machine);
        masks.set(&machine, CpuId(0), false);
        let sync = Some(Sync { local_is_empty: true });
        let search = Search { here: CpuId(0), prev, allowed: machine.all_cpus(), sync, smt: Smt::Preferred };
        assert_eq!(masks.select(&machine, &search), (prev, SearchStep::SyncPrevious));
        assert_eq!(masks.select(&machine, &search), (CpuId(0), SearchStep::SyncWaker), "it is claimed");
    }

    /// As a guest of Linux 7.2 answers `scx_bpf_select_cpu_and` with the flag: -EBUSY.
    #[test]
    fn siblings_of_busy_cpus_are_not_taken_where_a_whole_core_is_asked_for() {
        let machine = warmcore_topology::resolve("1s1n1l2c2t").unwrap();
        let busy = [CpuId(0), *machine.cpus().collect::<Vec<_>>().last().unwrap()];
        for (smt, found) in [(Smt::WholeCore, false), (Smt::Preferred, true)] {
            let mut masks = all_idle(&machine);
            busy.iter().for_each(|cpu| masks.set(&machine, *cpu, false));
            let others = machine.all_cpus().difference(&busy.into_iter().collect());
            let prev = others.iter().next().unwrap();
            let search = Search { here: CpuId(0), prev, allowed: &others, sync: None, smt };
            assert_eq!(masks.select(&machine, &search).1 != SearchStep::NoneClaimed, found, "{smt:?}");
        }
    }
}
