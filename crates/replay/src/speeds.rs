//! How fast work went on the CPUs of the machine that a recording was made on: a replay's machine slows it again.
//!
//! The rule is the simulator's (`docs/spec/memory-model.md` section 4.5): the capacity of a CPU over that of the fastest, and beside n
//! busy siblings 1 + κ n times as slow. Frequencies and caches of that time no recording of a scheduler tells.

use std::collections::BTreeMap;

use warmcore_topology::Machine;

/// Speeds of CPUs, by the operating system's numbers, as threads come and go.
#[derive(Default)]
pub(crate) struct Speeds {
    /// Of a machine that is not known none: all CPUs are equally fast then.
    cpus: BTreeMap<u32, Cpu>,
    /// κ.
    slowdown: f64,
}

struct Cpu {
    /// Work in a nanosecond beside idle siblings.
    alone: f64,
    siblings: Vec<u32>,
    /// A thread is on it.
    busy: bool,
}

impl Speeds {
    pub fn of(machine: &Machine) -> Self {
        let cpu = |cpu| {
            let core = machine.cpus_of_core(machine.core_of(cpu));
            let siblings = core.iter().filter(|other| *other != cpu).map(|other| machine.os_index(other)).collect();
            (machine.os_index(cpu), Cpu { alone: f64::from(machine.capacity(cpu)) / 1024.0, siblings, busy: false })
        };
        Self { cpus: machine.cpus().map(cpu).collect(), slowdown: machine.costs().smt_slowdown() }
    }

    /// Work in a nanosecond on a CPU. One that the machine does not have is as fast as any.
    pub fn on(&self, cpu: u32) -> f64 {
        let is_busy = |sibling: &&u32| self.cpus.get(sibling).is_some_and(|sibling| sibling.busy);
        self.cpus
            .get(&cpu)
            .map_or(1.0, |cpu| cpu.alone / (1.0 + self.slowdown * cpu.siblings.iter().filter(is_busy).count() as f64))
    }

    /// A CPU has a thread now, or none. Whether that changes how fast its siblings are.
    pub fn switch(&mut self, cpu: u32, busy: bool) -> bool {
        self.cpus.get_mut(&cpu).is_some_and(|cpu| std::mem::replace(&mut cpu.busy, busy) != busy)
    }

    pub fn siblings(&self, cpu: u32) -> &[u32] {
        self.cpus.get(&cpu).map_or(&[], |cpu| &cpu.siblings)
    }
}
