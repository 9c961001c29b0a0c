//! What the kernel's own actions cost in a guest, measured in it.

use std::sync::atomic::AtomicBool;

use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::report::{Costs, FrameKind};
use warmcore_topology::{Machine, MeasuredValue, Relation};

use super::VmError;
use super::boot::{Boot, Lab, document};
use super::initramfs::Initramfs;
use super::qemu::Execution;

impl Lab {
    /// Boots a guest that measures its costs, by the names that they have in a machine's file. Where the guest is emulated, its CPUs have
    /// no caches: lines and migrations cost nothing there but instructions, and how fast it computes is no fact about a machine.
    ///
    /// # Errors
    /// Those of a boot, and a guest that does not say what it measured.
    pub fn measure_costs(&self, machine: &Machine, stop: &AtomicBool) -> Result<Vec<MeasuredValue>, VmError> {
        let caches = self.execution == Execution::Kvm;
        let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Costs { caches }, runs: Vec::new() };
        let boot = Boot {
            machine,
            plan: &plan,
            files: Initramfs::default(),
            extra_memory_mib: 128 + 16 * machine.cpu_count() as u64,
        };
        let mut costs: Option<Costs> = None;
        self.boot(boot, stop, |_, frame| {
            if frame.kind == FrameKind::Costs {
                costs = Some(document(&frame)?);
            }
            Ok(())
        })?;
        let broken = |reason: String| VmError::Protocol { reason };
        let costs = costs.ok_or_else(|| broken("the guest measured nothing".into()))?;
        if let Some(reason) = costs.without_idle_exit {
            return Err(broken(format!("the guest could not measure its way out of idle: {reason}")));
        }
        let values = costs.values.into_iter().map(|(name, value, low, high)| MeasuredValue { name, value, low, high });
        Ok(if caches { values.collect() } else { without_caches(values.collect()) })
    }
}

/// The figures of a computer whose CPUs have no caches: lines and migrations cost nothing.
fn without_caches(mut values: Vec<MeasuredValue>) -> Vec<MeasuredValue> {
    let nothing = |name: String| MeasuredValue { name, value: 0, low: 0, high: 0 };
    for table in ["costs.line_transfer_ns", "costs.migration_ns"] {
        values
            .extend(Relation::ALL.into_iter().skip(1).map(|relation| nothing(format!("{table}.{}", relation.name()))));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_cpus_have_no_caches_and_keep_what_their_kernel_costs() {
        let value = |name: &str| MeasuredValue { name: name.into(), value: 700, low: 600, high: 900 };
        let measured = ["costs.wakeup_ns", "costs.ipi_ns.same_llc"];
        let values = without_caches(measured.into_iter().map(value).collect());
        let machine = warmcore_topology::resolve("2s1n2l2c1t").unwrap();
        let before = machine.performance().core_to_core_ns;
        let machine = warmcore_topology::with_measured_values(machine, &values, "in a guest").unwrap();
        assert_eq!((machine.costs().wakeup_ns, machine.costs().ipi_ns[Relation::SameLlc]), (700, 700));
        assert_eq!((machine.costs().migration_ns.0, machine.costs().line_transfer_ns.0), ([0; 8], [0; 8]));
        assert_eq!(machine.performance().core_to_core_ns, before);
    }
}
