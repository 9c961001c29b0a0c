//! How fast work went on the CPUs of the machine that a recording was made on: a replay's machine slows it again.
//!
//! The rule is the simulator's (`docs/spec/memory-model.md` section 4.5): the capacity of a CPU over that of the fastest, and beside n
//! busy siblings 1 + κ n times as slow. Frequencies and caches of that time no recording of a scheduler tells.

use warmcore_topology::{CpuId, Machine};

/// Speeds of CPUs, as threads come and go.
pub(crate) struct Speeds<'a> {
    /// None where it is not known: all CPUs are equal then.
    machine: Option<&'a Machine>,
    /// By CPU: a thread is on it.
    busy: Vec<bool>,
}

impl<'a> Speeds<'a> {
    pub fn of_machine(machine: Option<&'a Machine>) -> Self {
        Self { machine, busy: vec![false; machine.map_or(0, Machine::cpu_count)] }
    }

    /// Work in a nanosecond on a CPU. One that the machine does not have is as fast as any.
    pub fn of(&self, cpu: u32) -> f64 {
        let Some(machine) = self.machine.filter(|_| (cpu as usize) < self.busy.len()) else { return 1.0 };
        let busy = self.siblings(CpuId(cpu)).filter(|sibling| self.busy[sibling.index()]).count();
        f64::from(machine.capacity(CpuId(cpu))) / 1024.0 / (1.0 + machine.costs().smt_slowdown() * busy as f64)
    }

    /// A CPU has a thread now, or none: the others of its core, if that changes their speed.
    pub fn switched(&mut self, cpu: u32, busy: bool) -> impl Iterator<Item = CpuId> + use<'a> {
        let before = self.busy.get_mut(cpu as usize).map(|now| std::mem::replace(now, busy));
        let changes = before.is_some_and(|before| before != busy);
        self.siblings(CpuId(cpu)).filter(move |_| changes)
    }

    fn siblings(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + use<'a> {
        let machine = self.machine.filter(|_| cpu.index() < self.busy.len());
        let cpus = machine.map(|machine| machine.cpus_of_core(machine.core_of(cpu)).iter());
        cpus.into_iter().flatten().filter(move |other| *other != cpu)
    }
}
