//! CPUs that go offline and come online: domains, idle sets and quotas follow (`docs/spec/linux-hotplug.md` section 2).
//!
//! Source: Linux 7.2 `kernel/sched/fair.c` (`rq_offline_fair`, `rq_online_fair`, `unthrottle_offline_cfs_rqs`, `clear_tg_offline_cfs_rqs`, `nohz_balance_exit_idle`),
//! `kernel/sched/topology.c` (`partition_sched_domains_locked`, `build_sched_domains`, `sd_init`).
//!
//! Differs from the kernel: idle CPUs without tick count as such in the new domains at once, and queued tasks as preferring the LLC that
//! they preferred before.

use warmcore_kernel::Core;
use warmcore_topology::CpuId;

use super::energy::EnergyAware;
use super::{Fair, Policy};
use crate::domains::Domains;
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// A CPU goes offline. It counts as not idle by now.
    pub(super) fn unplug(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        self.nohz_balance_exit_idle(cpu);
        self.unthrottle_offline(core, cpu);
        self.clear_group_loads(core, cpu);
        self.policy.cpus_changed(core.active().len() + 1);
        let core_number = self.core_of[cpu.index()];
        self.busy_threads[core_number as usize] -= 1;
        if self.busy_threads[core_number as usize] == 0 && has_active_sibling(core, cpu) {
            self.llc_idle_cores[self.domains.sd_llc_id(cpu) as usize] += 1;
        }
        self.rebuild_domains(core);
        self.gathering.unplugged(cpu);
    }

    /// A CPU comes online. It counts as not idle yet.
    pub(super) fn plug_in(&mut self, core: &mut Core<'_>, cpu: CpuId) {
        let core_number = self.core_of[cpu.index()];
        if self.busy_threads[core_number as usize] == 0 && has_active_sibling(core, cpu) {
            self.llc_idle_cores[self.domains.sd_llc_id(cpu) as usize] -= 1;
        }
        self.busy_threads[core_number as usize] += 1;
        self.rebuild_domains(core);
        self.policy.cpus_changed(core.active().len());
        self.limit_again(cpu);
    }

    /// All domains are built anew, of the CPUs that are active (`partition_sched_domains_locked`).
    fn rebuild_domains(&mut self, core: &mut Core<'_>) {
        let mut parameters = self.parameters.domains;
        parameters.clusters &= core.parameters().sched_cluster;
        let mut domains = Domains::build_of(core.machine(), core.active(), &parameters);
        domains.begin_at(core.jiffies(), core.now_ns());
        for cpu in core.active().iter() {
            if self.rqs[cpu.index()].nr_running >= 2 {
                domains.count_crowded(cpu, true);
            }
            if self.rqs[cpu.index()].nohz_tick_stopped {
                let llc = domains.sd_llc_id(cpu);
                domains.shared_mut(llc).nr_busy_cpus -= 1;
            }
        }
        let wanted = self.parameters.energy_aware;
        self.energy = EnergyAware::new(wanted, core.machine(), core.active(), core.parameters(), &domains);
        self.asymmetric = domains.is_asymmetric() && !self.parameters.load_only_balance;
        self.packing = domains.packs() && !self.parameters.load_only_balance;
        self.rqs.iter_mut().for_each(|rq| rq.misfit_task_load = 0);
        self.domains = domains;
        self.balance.domains_rebuilt();
        if let Some(pressure) = &mut self.pressure {
            pressure.domains_rebuilt(self.domains.group_count());
        }
        self.init_capacities(core);
        self.online_cpus = core.active().len() as u64;
        self.gathering.domains_rebuilt(core.machine(), &self.domains);
    }
}

/// Whether another hardware thread of a CPU's core is active.
fn has_active_sibling(core: &Core<'_>, cpu: CpuId) -> bool {
    let threads = core.machine().cpus_of_core(core.machine().core_of(cpu));
    threads.iter().any(|other| other != cpu && core.active().contains(other))
}
