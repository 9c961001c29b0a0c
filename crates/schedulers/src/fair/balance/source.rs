//! The run queue of the busiest group from which a pass pulls.

use warmcore_topology::CpuId;

use super::pass::Pass;
use super::stats::Migration;
use crate::fair::gathering::Gathering;
use crate::fair::{Fair, Policy};

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Finds the run queue in the group to pull from (`sched_balance_find_src_rq`).
    pub(super) fn find_src_rq(&self, pass: &Pass, group: u32) -> Option<CpuId> {
        let mut busiest = None;
        let (mut busiest_load, mut busiest_capacity, mut busiest_util, mut busiest_nr) = (0, 1, 0, 0);
        let mut busiest_preferring = 0;
        let (asymmetric, packing) = (self.is_asymmetric_level(pass), self.is_packing_level(pass));
        for &number in self.domains.group_cpus(self.domains.group(group)) {
            let cpu = CpuId(number);
            let down = asymmetric && self.would_push_down(pass, cpu) || packing && self.would_unpack(pass, cpu);
            let nr = if down { 0 } else { self.queues[cpu.index()].h_nr_runnable };
            if nr == 0 || self.balance.is_excluded(number) || self.is_numa_protected(pass, number) {
                continue;
            }
            let busier = match pass.migration {
                Migration::Load => {
                    let load = self.balance_load(cpu);
                    let capacity = u64::from(self.domains.capacity_of(cpu));
                    // One task whose load is more than is wanted cannot help.
                    let helps = nr > 1 || load as i64 <= pass.imbalance || self.is_reduced(cpu, pass);
                    let busier = helps && load * busiest_capacity > busiest_load * capacity;
                    if busier {
                        (busiest_load, busiest_capacity) = (load, capacity);
                    }
                    busier
                }
                Migration::Util => {
                    let util = if nr > 1 { self.cpu_util_boost(cpu) } else { 0 };
                    let busier = util > busiest_util;
                    busiest_util = busiest_util.max(util);
                    busier
                }
                Migration::Task => {
                    let busier = nr > busiest_nr;
                    busiest_nr = busiest_nr.max(nr);
                    busier
                }
                Migration::Misfit => {
                    let load = self.rqs[cpu.index()].misfit_task_load;
                    let busier = load > busiest_load;
                    busiest_load = busiest_load.max(load);
                    busier
                }
                Migration::LlcTask => {
                    let preferring = self.gathering.queue_gain(cpu, pass.dst);
                    let busier = preferring > busiest_preferring;
                    busiest_preferring = busiest_preferring.max(preferring);
                    busier
                }
            };
            if busier {
                busiest = Some(cpu);
            }
        }
        busiest
    }
}
