//! The list of a CPU's tasks in the order in which the balancer examines them (`cfs_tasks`).

use warmcore_topology::CpuId;

use super::state::NONE;
use super::{Fair, Policy};
use crate::fair::gathering::Gathering;

impl<P: Policy, G: Gathering> Fair<P, G> {
    /// Puts a task at the head of its CPU's `cfs_tasks`.
    pub(crate) fn list_add_head(&mut self, cpu: u32, index: u32) {
        let head = self.rqs[cpu as usize].list_head;
        let entity = &mut self.entities[index as usize];
        entity.list_prev = NONE;
        entity.list_next = head;
        if head == NONE {
            self.rqs[cpu as usize].list_tail = index;
        } else {
            self.entities[head as usize].list_prev = index;
        }
        self.rqs[cpu as usize].list_head = index;
    }

    /// Takes a task out of its CPU's `cfs_tasks`.
    #[inline(always)]
    pub(crate) fn list_remove(&mut self, cpu: u32, index: u32) {
        let (prev, next) = {
            let entity = &self.entities[index as usize];
            (entity.list_prev, entity.list_next)
        };
        if prev == NONE {
            self.rqs[cpu as usize].list_head = next;
        } else {
            self.entities[prev as usize].list_next = next;
        }
        if next == NONE {
            self.rqs[cpu as usize].list_tail = prev;
        } else {
            self.entities[next as usize].list_prev = prev;
        }
    }

    /// Moves a task to the tail of its CPU's `cfs_tasks`: the balancer of 4.9 rejected it.
    pub(crate) fn list_move_to_tail(&mut self, cpu: CpuId, index: u32) {
        if self.rqs[cpu.index()].list_tail != index {
            self.list_remove(cpu.0, index);
            let tail = self.rqs[cpu.index()].list_tail;
            (self.entities[index as usize].list_prev, self.entities[index as usize].list_next) = (tail, NONE);
            self.entities[tail as usize].list_next = index;
            self.rqs[cpu.index()].list_tail = index;
        }
    }

    /// Moves a task to the head of `cfs_tasks`: it runs, or the balancer rejected it.
    #[inline(always)]
    pub(crate) fn list_move_to_head(&mut self, cpu: CpuId, index: u32) {
        debug_assert!(self.entities[index as usize].on_rq, "entity {index} is in no list");
        if self.rqs[cpu.index()].list_head != index {
            self.list_remove(cpu.0, index);
            self.list_add_head(cpu.0, index);
        }
    }
}
