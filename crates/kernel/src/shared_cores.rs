//! Memory of constant speed on a machine whose cores have several hardware threads: a task computes more slowly while siblings of its
//! CPU are busy.
//!
//! The rule is the one of all memories (`docs/spec/memory-model.md` section 4.5): computing takes 1 + κ n times as long beside n busy
//! siblings, κ being the machine's [`smt_slowdown`](warmcore_topology::Costs::smt_slowdown). A task computes all the time here, so a
//! sibling is busy whenever a task is on it, also one that waits actively or is in the kernel. Of a machine with one thread per
//! core, or with κ = 0 ([`SharedCores::applies`]), only runs come here whose CPUs change their frequency: all speeds go by that.
//!
//! Not modelled: what siblings do to each other's caches; that the kernel's own time (switches, system calls, messages) grows too; that
//! some pairs of tasks get along better than others.

use warmcore_memory::analytic::SPEED_ONE;
use warmcore_topology::{CoreId, CpuId, Machine};
use warmcore_trace::TaskId;
use warmcore_workload::ChannelKind;

use crate::memory::{ConstantMemory, Memory};

/// Constant-speed memory and cores that are shared.
pub(crate) struct SharedCores<'a> {
    constant: ConstantMemory<'a>,
    /// By CPU.
    core: Vec<u32>,
    /// By CPU: a task is on it.
    runs: Vec<bool>,
    /// By CPU: the speed that its task has been told, and what that would be with idle siblings.
    in_force: Vec<u32>,
    alone_in_force: Vec<u32>,
    /// By CPU, then by the number of busy siblings.
    speeds: Vec<u32>,
    /// The same at the reference frequency.
    unclocked: Vec<u32>,
    /// Hardware threads of the widest core.
    width: usize,
    /// By core: its CPUs with a task.
    busy: Vec<u32>,
    cpus_of_core: Vec<Vec<CpuId>>,
    /// Cores whose `busy` may not be what their CPUs have been told, each once.
    unsettled: Vec<u32>,
    is_unsettled: Vec<bool>,
    /// CPUs whose speed is to change.
    changed: Vec<CpuId>,
}

impl<'a> SharedCores<'a> {
    /// Whether tasks slow each other on the machine.
    pub fn applies(machine: &Machine) -> bool {
        machine.smt_width() > 1 && machine.costs().smt_slowdown_percent > 0
    }

    pub fn new(machine: &'a Machine) -> Self {
        let width = machine.smt_width();
        let slowdown_percent = u64::from(machine.costs().smt_slowdown_percent);
        // The same as a capacity of 1024 alone, rounded down beside others.
        let speed = |cpu: CpuId, siblings: u64| {
            let alone = u64::from(machine.capacity(cpu)) * u64::from(SPEED_ONE) / 1024;
            (alone * 100 / (100 + slowdown_percent * siblings)).max(1) as u32
        };
        let speeds: Vec<u32> =
            machine.cpus().flat_map(|cpu| (0..width as u64).map(move |siblings| speed(cpu, siblings))).collect();
        let cpus_of_core: Vec<Vec<CpuId>> =
            (0..machine.core_count() as u32).map(|core| machine.cpus_of_core(CoreId(core)).iter().collect()).collect();
        let (cpus, cores) = (machine.cpu_count(), cpus_of_core.len());
        let alone: Vec<u32> = speeds.iter().step_by(width).copied().collect();
        Self {
            constant: ConstantMemory::new(machine),
            core: machine.cpus().map(|cpu| machine.core_of(cpu).0).collect(),
            runs: vec![false; cpus],
            in_force: alone.clone(),
            alone_in_force: alone,
            unclocked: speeds.clone(),
            speeds,
            width,
            busy: vec![0; cores],
            cpus_of_core,
            unsettled: Vec::with_capacity(cores),
            is_unsettled: vec![false; cores],
            changed: Vec::with_capacity(cpus),
        }
    }

    /// The speed of a CPU that a task is on, as its siblings are now.
    fn due(&self, cpu: CpuId) -> u32 {
        let siblings = self.busy[self.core[cpu.index()] as usize] - 1;
        self.speeds[cpu.index() * self.width + siblings as usize]
    }

    fn unsettle(&mut self, core: u32) {
        if !std::mem::replace(&mut self.is_unsettled[core as usize], true) {
            self.unsettled.push(core);
        }
    }
}

impl Memory for SharedCores<'_> {
    const MODELLED: bool = false;
    const SPEEDS_VARY: bool = true;

    fn migration_ns(&self, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        self.constant.migration_ns(task, from, to)
    }

    fn message_transfer_ns(&self, kind: ChannelKind, task: TaskId, from: CpuId, to: CpuId) -> u64 {
        self.constant.message_transfer_ns(kind, task, from, to)
    }

    fn handoff_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.constant.handoff_ns(from, to)
    }

    fn switch_in(&mut self, _now_ns: u64, cpu: CpuId, _task: TaskId) {
        let core = self.core[cpu.index()];
        self.runs[cpu.index()] = true;
        self.busy[core as usize] += 1;
        self.unsettle(core);
    }

    fn switch_out(&mut self, _now_ns: u64, cpu: CpuId) {
        let core = self.core[cpu.index()];
        self.runs[cpu.index()] = false;
        self.busy[core as usize] -= 1;
        self.unsettle(core);
    }

    fn set_clock(&mut self, _now_ns: u64, cpu: CpuId, ratio: u32) {
        for siblings in 0..self.width {
            let index = cpu.index() * self.width + siblings;
            let speed = u64::from(self.unclocked[index]) * u64::from(ratio) / u64::from(SPEED_ONE);
            self.speeds[index] = speed.max(1) as u32;
        }
        if !self.runs[cpu.index()] {
            let alone = self.speeds[cpu.index() * self.width];
            (self.in_force[cpu.index()], self.alone_in_force[cpu.index()]) = (alone, alone);
        }
        self.unsettle(self.core[cpu.index()]);
    }

    fn speed_alone(&self, cpu: CpuId) -> u32 {
        self.alone_in_force[cpu.index()]
    }

    #[inline]
    fn speed(&self, cpu: CpuId) -> u32 {
        self.in_force[cpu.index()]
    }

    /// Siblings that come and go say so, whenever it is.
    #[inline]
    fn review(&mut self, _now_ns: u64, cpu: CpuId, _remaining_ns: u64) -> u64 {
        self.in_force[cpu.index()] = self.due(cpu);
        self.alone_in_force[cpu.index()] = self.speeds[cpu.index() * self.width];
        u64::MAX
    }

    #[inline]
    fn take_changed(&mut self) -> Option<CpuId> {
        while let Some(core) = self.unsettled.pop() {
            self.is_unsettled[core as usize] = false;
            for &cpu in &self.cpus_of_core[core as usize] {
                if self.runs[cpu.index()] && self.in_force[cpu.index()] != self.due(cpu) {
                    self.changed.push(cpu);
                }
            }
        }
        self.changed.pop()
    }
}
