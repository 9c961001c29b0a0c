//! Kernel functions that programs call, by the names they have in the kernel's type information.
//!
//! Of a pair with and without `___v2`, a loader takes the one that exists in the kernel it is shown; both do the same.

use warmcore_bpf::{Callee, HostFunction, Inline};
use warmcore_kernel::WakeFlags;
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::bytecode::helpers::{EBUSY, EINVAL, ENOENT, EPERM, error, functions};
use crate::bytecode::host::Host;
use crate::bytecode::{cids, collections, dynptrs, iterators, strings};
use crate::idle::Smt;
use crate::kfuncs::Kfuncs;
use crate::operations::{EnqueueFlags, Kick, Operation};
use crate::queues::DsqId;
use crate::state::Context;

/// `SCX_PICK_IDLE_CORE`.
const PICK_IDLE_CORE: u64 = 1;

/// `SCX_WAKE_SYNC`.
const WAKE_SYNC: u64 = 1 << 4;
/// `SCX_WAKE_FORK`.
const WAKE_FORK: u64 = 1 << 2;
/// `SCX_WAKE_TTWU`.
const WAKE_TTWU: u64 = 1 << 3;

/// Highest capacity and speed of a CPU (`SCX_CPUPERF_ONE`).
const CPUPERF_ONE: u64 = 1024;

/// A kernel function by its name.
pub(super) fn kfunc(name: &str) -> Callee {
    match name {
        "scx_bpf_now" => Callee::Inline(Inline::Now),
        "bpf_iter_num_new" => Callee::Inline(Inline::NumberNew),
        "bpf_iter_num_next" => Callee::Inline(Inline::NumberNext),
        "bpf_cpumask_test_cpu" => Callee::Inline(Inline::TestCpu),
        "bpf_throw" => Callee::Throw,
        // Nothing to release, no other CPU to keep out, nobody who reads.
        "bpf_iter_num_destroy"
        | "bpf_rcu_read_lock"
        | "bpf_rcu_read_unlock"
        | "bpf_preempt_disable"
        | "bpf_preempt_enable"
        | "bpf_local_irq_save"
        | "bpf_local_irq_restore"
        | "bpf_task_release"
        | "bpf_cgroup_release"
        | "bpf_iter_css_destroy"
        | "bpf_iter_css_task_destroy"
        | "bpf_iter_task_destroy"
        | "bpf_iter_bits_destroy"
        | "bpf_res_spin_lock"
        | "bpf_res_spin_unlock"
        | "bpf_res_spin_lock_irqsave"
        | "bpf_res_spin_unlock_irqrestore"
        | "scx_bpf_put_cpumask"
        | "scx_bpf_put_idle_cpumask" => Callee::Inline(Inline::Nothing),
        _ => {
            let groups = [lookup, cids::kfunc, collections::kfunc, iterators::kfunc, dynptrs::kfunc, strings::kfunc];
            let found = groups.into_iter().find_map(|find| find(name));
            let calling_back = || collections::calling_back(name);
            let function = found.map(|(function, count)| Callee::Function(function, count));
            function.or_else(calling_back).unwrap_or_else(|| Callee::Unreachable(String::new()))
        }
    }
}

/// Whether a kernel function is modelled.
pub(super) fn is_known(name: &str) -> bool {
    !matches!(kfunc(name), Callee::Unreachable(_))
}

fn lookup(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        // Queues and what is inserted into them.
        "scx_bpf_create_dsq" => |host, dsq, node| host.create_dsq(dsq, node as i32);
        "scx_bpf_destroy_dsq" => |host, dsq| {
            if let Some(kernel) = host.kernel() { kernel.destroy_dsq(DsqId(dsq)); }
            0
        };
        "scx_bpf_dsq_nr_queued" => |host, dsq| {
            let queued = host.kernel().and_then(|kernel| kernel.nr_queued(host.kept.cids.queue(dsq)));
            queued.map_or(error(ENOENT), u64::from)
        };
        "scx_bpf_dsq_insert" | "scx_bpf_dsq_insert___v2" | "scx_bpf_dispatch" => |host, task, dsq, slice, flags| host.insert(task, dsq, slice, None, flags);
        "scx_bpf_dsq_insert_vtime" | "scx_bpf_dispatch_vtime" => |host, task, dsq, slice, vtime, flags| host.insert(task, dsq, slice, Some(vtime), flags);
        "__scx_bpf_dsq_insert_vtime" => |host, task, arguments| {
            let [dsq, slice, vtime, flags] = [0, 8, 16, 24].map(|at| host.maps.memory.load_u64(arguments + at));
            host.insert(task, dsq, slice, Some(vtime), flags)
        };
        "scx_bpf_dsq_move_to_local" | "scx_bpf_consume" => |host, dsq| {
            let moved = host.kernel().map_or(0, |kernel| u64::from(kernel.move_to_local(DsqId(dsq))));
            host.caught_up(moved)
        };
        "scx_bpf_dsq_move_to_local___v2" => |host, dsq, flags| {
            let flags = EnqueueFlags(flags);
            let moved = host.kernel().map_or(0, |kernel| u64::from(kernel.move_to_local_with(DsqId(dsq), flags)));
            host.caught_up(moved)
        };
        "scx_bpf_dsq_move" | "scx_bpf_dispatch_from_dsq" => |host, iterator, task, dsq, flags| host.move_task(iterator, task, dsq, flags, false);
        "scx_bpf_dsq_move_vtime" | "scx_bpf_dispatch_vtime_from_dsq" => |host, iterator, task, dsq, flags| host.move_task(iterator, task, dsq, flags, true);
        "scx_bpf_dsq_move_set_slice" | "scx_bpf_dispatch_from_dsq_set_slice" => |host, iterator, slice| host.set_for_move(iterator, 1, slice);
        "scx_bpf_dsq_move_set_vtime" | "scx_bpf_dispatch_from_dsq_set_vtime" => |host, iterator, vtime| host.set_for_move(iterator, 2, vtime);
        "scx_bpf_dsq_peek" => |host, dsq| {
            let task = host.kernel().and_then(|kernel| kernel.peek(DsqId(dsq)));
            task.map_or(0, |task| host.task_address(task))
        };
        "scx_bpf_dispatch_cancel" => |host| {
            if let Some(kernel) = host.kernel() { kernel.dispatch_cancel(); }
            0
        };
        "scx_bpf_dispatch_nr_slots" => |host| host.kernel().map_or(0, |kernel| u64::from(kernel.nr_slots()));
        "bpf_iter_scx_dsq_new" => |host, iterator, dsq, flags| host.iterator_new(iterator, dsq, flags);
        "bpf_iter_scx_dsq_next" => |host, iterator| host.iterator_next(iterator);
        "bpf_iter_scx_dsq_destroy" => |host, iterator| host.iterator_destroy(iterator);
        "scx_bpf_reenqueue_local" => |host| host.reenqueue_local_on_release();
        "scx_bpf_reenqueue_local___v2" => |host| {
            if let Some(kernel) = host.kernel() { kernel.reenqueue(DsqId::LOCAL); }
            0
        };
        "scx_bpf_dsq_reenq" => |host, dsq, flags| { host.reenqueue(dsq, flags); 0 };

        // CPUs.
        "scx_bpf_select_cpu_dfl" => |host, task, prev, flags, is_idle| host.select_cpu_dfl(task, prev, flags, is_idle);
        "__scx_bpf_select_cpu_and" => |host, task, mask, arguments| {
            let memory = &host.maps.memory;
            let (prev, [wake_flags, flags]) = (memory.load_u32(arguments), [8, 16].map(|at| memory.load_u64(arguments + at)));
            host.select_cpu_and(task, u64::from(prev), wake_flags, mask, flags)
        };
        "scx_bpf_select_cpu_and" => |host, task, prev, wake_flags, mask, flags| host.select_cpu_and(task, prev, wake_flags, mask, flags);
        "scx_bpf_kick_cpu" => |host, cpu, flags| host.kick(cpu, flags);
        "scx_bpf_get_idle_cpumask" => |host| {
            if host.tracks_idle_of_all() { host.kept.idle_mask } else { host.kept.none_mask }
        };
        "scx_bpf_get_idle_smtmask" => |host| {
            if host.tracks_idle_of_all() { host.kept.idle_cores_mask } else { host.kept.none_mask }
        };
        "scx_bpf_get_idle_cpumask_node" => |host, node| host.idle_mask_of_node(node, 0);
        "scx_bpf_get_idle_smtmask_node" => |host, node| host.idle_mask_of_node(node, 1);
        "scx_bpf_get_online_cpumask" => |host| host.kept.online_mask;
        "scx_bpf_get_possible_cpumask" => |host| host.kept.possible_mask;
        "scx_bpf_test_and_clear_cpu_idle" => |host, cpu| {
            let claims = |kernel: &mut Kfuncs<'_, '_>| kernel.tracks_idle() && kernel.test_and_clear_cpu_idle(CpuId(cpu as u32));
            let claimed = host.kernel().map_or(0, |kernel| u64::from(claims(kernel)));
            host.caught_up(claimed)
        };
        "scx_bpf_pick_idle_cpu" => |host, mask, flags| host.pick_idle_cpu(mask, flags);
        "scx_bpf_pick_idle_cpu_node" => |host, mask, node, flags| host.pick_idle_cpu_in_node(mask, node, flags);
        "scx_bpf_pick_any_cpu" => |host, mask, flags| {
            // Without idle tracking it is any of them at once, and no error.
            let is_off = host.kernel().is_some_and(|kernel| !kernel.keeps_idle_masks());
            let idle = if is_off { error(EBUSY) } else { host.pick_idle_cpu(mask, flags) };
            host.or_any(idle, mask)
        };
        "scx_bpf_pick_any_cpu_node" => |host, mask, node, flags| {
            let idle = host.pick_idle_cpu_in_node(mask, node, flags);
            if idle == error(EBUSY) { host.or_any(idle, mask) } else { idle }
        };
        "scx_bpf_cpu_curr" => |host, cpu| {
            let curr = host.kernel().filter(|_| (cpu as u32) < host.kept.cpus).map(|kernel| kernel.runs_on(CpuId(cpu as u32)));
            curr.map_or(0, |curr| host.task_address(curr))
        };
        "scx_bpf_cpu_rq" | "scx_bpf_locked_rq" => |host, cpu| host.run_queue(cpu as u32);
        "scx_bpf_cpuperf_cap" => |host, cpu| host.kernel().map_or(CPUPERF_ONE, |kernel| u64::from(kernel.cpuperf_cap(CpuId(cpu as u32))));
        "scx_bpf_cpuperf_cur" => |host, cpu| host.kernel().map_or(CPUPERF_ONE, |kernel| u64::from(kernel.cpuperf_cur(CpuId(cpu as u32))));
        "scx_bpf_cpuperf_set" => |host, cpu, target| {
            if let Some(kernel) = host.kernel() { kernel.cpuperf_set(CpuId(cpu as u32), target as u32); }
            0
        };
        "scx_bpf_cpu_node" => |host, cpu| host.kept.node_of_cpu.get(cpu as u32 as usize).map_or(error(EINVAL), |&node| u64::from(node));
        "scx_bpf_nr_node_ids" => |host| u64::from(host.kept.nodes);
        "scx_bpf_nr_cpu_ids" | "scx_bpf_nr_cids" => |host| u64::from(host.kept.cpus);

        "scx_bpf_events" => |host, events, bytes| { host.write_events(events, bytes); 0 };

        // Tasks.
        "scx_bpf_task_cpu" => |host, task| {
            let cpu = host.task_of(task).and_then(|task| Some(host.kernel()?.task_cpu(task).0));
            cpu.map_or(host.frame.cpu, u64::from)
        };
        "scx_bpf_task_running" => |host, task| {
            let runs = host.task_of(task).and_then(|task| {
                let kernel = host.kernel()?;
                Some(kernel.runs_on(kernel.task_cpu(task)) == task)
            });
            u64::from(runs.unwrap_or(false))
        };
        "scx_bpf_task_set_slice" => |host, task, slice| host.set_entity(task, slice, host.kept.layout.slice);
        "scx_bpf_task_set_dsq_vtime" => |host, task, vtime| host.set_entity(task, vtime, host.kept.layout.vtime);
        "scx_bpf_task_cgroup" => |host, task| host.cgroup_of(task);
        "scx_bpf_tid_to_task" => |host, tid| host.task_by_tid(tid);
        "bpf_task_from_pid" | "bpf_task_from_vpid" => |host, pid| host.task_by_pid(pid as u32);
        "bpf_task_acquire" | "bpf_cgroup_acquire" => |host, object| object;
        "bpf_cgroup_from_id" => |host, id| host.group_from_id(id);
        "bpf_cgroup_ancestor" => |host, group, level| host.group_ancestor(group, level as i32);
        "bpf_task_under_cgroup" => |host, task, group| u64::from(host.is_task_under(task, group));
        // The kernel's verifier puts nothing in their place.
        "bpf_rdonly_cast" | "bpf_cast_to_kern_ctx" => |host, object| object;

        "bpf_timer_cancel_async" => |host, timer| host.timer_cancel_async(timer);

        // Masks.
        "bpf_cpumask_create" => |host| host.allocate();
        "bpf_cpumask_acquire" => |host, mask| host.acquire(mask);
        "bpf_cpumask_release" => |host, mask| { host.release(mask); 0 };
        "bpf_cpumask_set_cpu" => |host, cpu, mask| { host.set_mask_bit(mask, cpu as u32, true); 0 };
        "bpf_cpumask_clear_cpu" => |host, cpu, mask| { host.set_mask_bit(mask, cpu as u32, false); 0 };
        "bpf_cpumask_test_and_set_cpu" => |host, cpu, mask| u64::from(host.set_mask_bit(mask, cpu as u32, true));
        "bpf_cpumask_test_and_clear_cpu" => |host, cpu, mask| u64::from(host.set_mask_bit(mask, cpu as u32, false));
        "bpf_cpumask_and" => |host, to, a, b| u64::from(host.combine_masks(to, (a, b), |a, b| a & b));
        "bpf_cpumask_or" => |host, to, a, b| u64::from(host.combine_masks(to, (a, b), |a, b| a | b));
        "bpf_cpumask_xor" => |host, to, a, b| u64::from(host.combine_masks(to, (a, b), |a, b| a ^ b));
        "bpf_cpumask_copy" => |host, to, from| u64::from(host.combine_masks(to, (from, from), |a, _| a));
        "bpf_cpumask_clear" => |host, mask| u64::from(host.combine_masks(mask, (mask, mask), |_, _| 0));
        "bpf_cpumask_setall" => |host, mask| {
            let all = host.kept.possible_mask;
            u64::from(host.combine_masks(mask, (all, all), |a, _| a))
        };
        "bpf_cpumask_equal" => |host, a, b| u64::from(!host.any_in_masks((a, b), |a, b| a ^ b));
        "bpf_cpumask_intersects" => |host, a, b| u64::from(host.any_in_masks((a, b), |a, b| a & b));
        "bpf_cpumask_subset" => |host, a, b| u64::from(!host.any_in_masks((a, b), |a, b| a & !b));
        "bpf_cpumask_full" => |host, mask| u64::from(!host.any_in_masks((host.kept.possible_mask, mask), |a, b| a & !b));
        "bpf_cpumask_empty" => |host, mask| u64::from(!host.any_in_masks((mask, mask), |a, _| a));
        "bpf_cpumask_weight" => |host, mask| host.mask_weight(mask);
        "bpf_cpumask_first" => |host, mask| u64::from(host.first_in_masks(mask, mask, 0));
        "bpf_cpumask_first_zero" => |host, mask| {
            let zero = (0..host.kept.cpus).find(|&cpu| host.mask_word(mask, u64::from(cpu / 64)) >> (cpu % 64) & 1 == 0);
            u64::from(zero.unwrap_or(host.kept.cpus))
        };
        "bpf_cpumask_first_and" => |host, a, b| u64::from(host.first_in_masks(a, b, 0));
        "bpf_cpumask_any_distribute" => |host, mask| u64::from(host.any_in_masks_distributed(mask, mask));
        "bpf_cpumask_any_and_distribute" => |host, a, b| u64::from(host.any_in_masks_distributed(a, b));

        // The arena.
        "bpf_arena_alloc_pages" => |host, map, address, pages| {
            let pages = u64::from(pages as u32);
            if address == 0 { return host.maps.arena_pages(map, pages) }
            if host.maps.arena_reserve(map, address, pages) { address } else { 0 }
        };
        "bpf_arena_free_pages" => |host, map, address, pages| { host.maps.arena_free(map, address, u64::from(pages as u32)); 0 };
        "bpf_arena_reserve_pages" => |host, map, address, pages| {
            if host.maps.arena_reserve(map, address, u64::from(pages as u32)) { 0 } else { error(EBUSY) }
        };

        // Texts.
        "scx_bpf_error_bstr" => |host, format, values, bytes| {
            let text = super::text::format(&host.maps.memory, format, values, bytes);
            if let Some(kernel) = host.kernel() { kernel.error(&text); }
            0
        };
        "scx_bpf_exit_bstr" => |host, code, format, values, bytes| {
            let text = super::text::format(&host.maps.memory, format, values, bytes);
            if let Some(kernel) = host.kernel() { kernel.exit(code as i64, &text); }
            0
        };
        "bpf_stream_vprintk" | "bpf_stream_vprintk_impl" => |host, stream, format, values, bytes| host.print_values(format, values, bytes);
        "scx_bpf_dump_bstr" => |host, format, values, bytes| {
            let text = super::text::format(&host.maps.memory, format, values, bytes);
            if let Some(kernel) = host.kernel() { kernel.dump(&text); }
            0
        };
    };
    find(name)
}

/// Which CPUs a search with these flags takes.
fn smt_of(flags: u64) -> Smt {
    if flags & PICK_IDLE_CORE != 0 { Smt::WholeCore } else { Smt::Preferred }
}

/// What a wakeup of these flags is.
pub(super) fn wake_flags(flags: u64, by_task: bool) -> WakeFlags {
    WakeFlags { sync: flags & WAKE_SYNC != 0, fork: flags & WAKE_FORK != 0, by_task }
}

/// The flags of a wakeup as programs see them.
pub(super) fn wake_flag_bits(flags: WakeFlags) -> u64 {
    (if flags.sync { WAKE_SYNC } else { 0 }) | if flags.fork { WAKE_FORK } else { WAKE_TTWU }
}

impl Host {
    fn create_dsq(&mut self, dsq: u64, node: i32) -> u64 {
        const EEXIST: i64 = 17;
        let nodes = self.kept.nodes as i32;
        let Some(kernel) = self.kernel().filter(|_| (-1..nodes).contains(&node) && DsqId(dsq).is_user()) else {
            return error(EINVAL);
        };
        if kernel.create_dsq(DsqId(dsq)) { 0 } else { error(EEXIST) }
    }

    fn insert(&mut self, task: u64, dsq: u64, slice: u64, vtime: Option<u64>, flags: u64) -> u64 {
        let (Some(task), Some(kernel)) = (self.task_of(task), self.kernel()) else { return 0 };
        let dsq = self.kept.cids.queue(dsq);
        match vtime {
            Some(vtime) => kernel.dsq_insert_vtime(task, dsq, slice, vtime, EnqueueFlags(flags)),
            None => kernel.dsq_insert(task, dsq, slice, EnqueueFlags(flags)),
        }
        1
    }

    fn reenqueue(&mut self, dsq: u64, flags: u64) {
        /// `SCX_REENQ_ANY`, as which none counts too.
        const ANY: u64 = 1;
        let dsq = self.kept.cids.queue(dsq);
        match self.kernel() {
            Some(kernel) if flags & !ANY != 0 => kernel.fault(format!("invalid SCX_REENQ flags 0x{flags:x}")),
            Some(kernel) => kernel.reenqueue(dsq),
            None => {}
        }
    }

    /// `init_task` was called: whether it does not want the task.
    pub(super) fn look_at_disallow(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        let at = self.kept.layout.disallow.map(|member| self.task_address(task) + member);
        if let Some(at) = at
            && self.maps.memory.read(at, 1).is_some_and(|byte| byte[0] != 0)
        {
            kernel.disallow(task);
        }
    }

    /// The first form of `scx_bpf_reenqueue_local`, for `cpu_release` alone: gives how many there are.
    fn reenqueue_local_on_release(&mut self) -> u64 {
        let Some(kernel) = self.kernel() else { return 0 };
        if (kernel.state.context, kernel.state.operation) != (Context::Other, Operation::CpuRelease) {
            kernel.fault(
                "scx_bpf_reenqueue_local() outside of ops.cpu_release(); scx_bpf_reenqueue_local___v2() may be called anywhere"
                    .into(),
            );
            return 0;
        }
        kernel.reenqueue(DsqId::LOCAL);
        kernel.nr_queued(DsqId::LOCAL).map_or(0, u64::from)
    }

    /// What the next move by an iterator gives the task: its slice (1) or virtual time (2).
    fn set_for_move(&mut self, iterator: u64, which: u64, value: u64) -> u64 {
        let set = self.maps.memory.load_u64(iterator + 8);
        self.store_u64(iterator + 8, set | which);
        self.store_u64(iterator + 8 + 8 * which, value);
        0
    }

    fn move_task(&mut self, iterator: u64, task: u64, dsq: u64, flags: u64, by_vtime: bool) -> u64 {
        let address = task;
        let (Some(task), Some(kernel)) = (self.task_of(task), self.kernel()) else { return 0 };
        let Some(way) = (self.maps.memory.load_u64(iterator) as usize).checked_sub(1) else {
            self.store_u64(iterator + 8, 0);
            return 0;
        };
        let dsq = self.kept.cids.queue(dsq);
        let set = self.maps.memory.load_u64(iterator + 8);
        let members = [(1, self.kept.layout.slice), (2, self.kept.layout.vtime)];
        let before = members.map(|(_, member)| self.maps.memory.load_u64(address + member));
        for (which, member) in members.into_iter().filter(|(which, _)| set & which != 0) {
            let value = self.maps.memory.load_u64(iterator + 8 + 8 * which);
            self.store_u64(address + member, value);
        }
        let moved = if by_vtime {
            kernel.dsq_move_vtime(way, task, dsq, EnqueueFlags(flags))
        } else {
            kernel.dsq_move(way, task, dsq, EnqueueFlags(flags))
        };
        if !moved {
            // Somebody else has taken it, with what it had.
            members.into_iter().zip(before).for_each(|((_, member), value)| self.store_u64(address + member, value));
        }
        self.store_u64(iterator + 8, 0);
        self.caught_up(u64::from(moved))
    }

    /// The program's iterator holds the number of the way, plus one; 0 for none.
    fn iterator_new(&mut self, iterator: u64, dsq: u64, flags: u64) -> u64 {
        /// `SCX_DSQ_ITER_REV`.
        const REVERSE: u64 = 1 << 16;
        self.store_u64(iterator, 0);
        self.store_u64(iterator + 8, 0);
        let Some(kernel) = self.kernel().filter(|_| flags & !REVERSE == 0) else { return error(EINVAL) };
        let Some(way) = kernel.iterate(DsqId(dsq), flags & REVERSE != 0) else { return error(ENOENT) };
        self.store_u64(iterator, way as u64 + 1);
        0
    }

    fn iterator_next(&mut self, iterator: u64) -> u64 {
        let number = self.maps.memory.load_u64(iterator) as usize;
        let (Some(kernel), Some(way)) = (self.kernel(), number.checked_sub(1)) else { return 0 };
        kernel.next(way).map_or(0, |task| self.task_address(task))
    }

    fn iterator_destroy(&mut self, iterator: u64) -> u64 {
        let number = self.maps.memory.load_u64(iterator) as usize;
        if let (Some(kernel), Some(way)) = (self.kernel(), number.checked_sub(1)) {
            kernel.end_way(way);
        }
        self.store_u64(iterator, 0);
        0
    }

    fn select_cpu_dfl(&mut self, task: u64, prev: u64, flags: u64, is_idle: u64) -> u64 {
        let (Some(task), Some(kernel)) = (self.task_of(task), self.kernel()) else { return prev };
        if prev as u32 >= self.kept.cpus {
            return error(EINVAL);
        }
        if !kernel.tracks_idle() {
            return prev;
        }
        let flags = wake_flags(flags, !kernel.runs_on(kernel.this_cpu()).is_idle());
        let (cpu, idle) = kernel.select_cpu_dfl(task, CpuId(prev as u32), flags);
        if let Some(place) = self.maps.memory.write(is_idle, 1) {
            place[0] = u8::from(idle);
        }
        self.caught_up(u64::from(cpu.0))
    }

    fn select_cpu_and(&mut self, task: u64, prev: u64, wake: u64, mask: u64, flags: u64) -> u64 {
        let (Some(task), Some(kernel)) = (self.task_of(task), self.kernel()) else { return error(EPERM) };
        if prev as u32 >= self.kept.cpus {
            return error(EINVAL);
        }
        if !kernel.tracks_idle() {
            return error(EBUSY);
        }
        self.read_mask(mask);
        let wake = wake_flags(wake, !kernel.runs_on(kernel.this_cpu()).is_idle());
        let cpu = kernel.select_cpu_and(task, CpuId(prev as u32), wake, (&self.set, smt_of(flags)));
        self.caught_up(cpu.map_or(error(EBUSY), |cpu| u64::from(cpu.0)))
    }

    fn pick_idle_cpu(&mut self, mask: u64, flags: u64) -> u64 {
        if !self.tracks_idle_of_all() {
            return error(EBUSY);
        }
        self.read_mask(mask);
        let cpu = self.kernel().and_then(|kernel| kernel.pick_idle_cpu_of(&self.set, smt_of(flags)));
        self.caught_up(cpu.map_or(error(EBUSY), |cpu| u64::from(cpu.0)))
    }

    /// One of the node if there is one, else, unless the flag forbids it, of another.
    fn pick_idle_cpu_in_node(&mut self, mask: u64, node: u64, flags: u64) -> u64 {
        const PICK_IDLE_IN_NODE: u64 = 2;
        let Some(kernel) = self.kernel() else { return error(EINVAL) };
        if !kernel.tracks_idle_of_node(node as i32) {
            return error(EINVAL);
        }
        self.read_mask(mask);
        let smt = smt_of(flags);
        let own = kernel.machine().cpus_of_node(warmcore_topology::NodeId(node as u32)).intersection(&self.set);
        let mut cpu = kernel.pick_idle_cpu_of(&own, smt);
        if cpu.is_none() && flags & PICK_IDLE_IN_NODE == 0 {
            cpu = kernel.pick_idle_cpu_of(&self.set, smt);
        }
        self.caught_up(cpu.map_or(error(EBUSY), |cpu| u64::from(cpu.0)))
    }

    /// The CPU that was picked, or any of the mask if none was.
    fn or_any(&mut self, picked: u64, mask: u64) -> u64 {
        if picked as i64 >= 0 {
            return picked;
        }
        let any = self.any_in_masks_distributed(mask, mask);
        if any < self.kept.cpus { u64::from(any) } else { picked }
    }

    pub(super) fn kick(&mut self, cpu: u64, flags: u64) -> u64 {
        const IDLE: u64 = 1;
        const PREEMPT: u64 = 2;
        const WAIT: u64 = 4;
        let Some(kernel) = self.kernel() else { return 0 };
        let kick = match flags {
            flags if flags & IDLE != 0 && flags & (PREEMPT | WAIT) != 0 => {
                kernel.fault("PREEMPT/WAIT cannot be used with SCX_KICK_IDLE".into());
                return 0;
            }
            flags if flags & IDLE != 0 => Kick::Idle,
            flags if flags & (PREEMPT | WAIT) == PREEMPT | WAIT => Kick::PreemptAndWait,
            flags if flags & PREEMPT != 0 => Kick::Preempt,
            flags if flags & WAIT != 0 => Kick::Wait,
            _ => Kick::Plain,
        };
        kernel.kick(CpuId(cpu as u32), kick);
        0
    }

    fn tracks_idle_of_all(&mut self) -> bool {
        self.kernel().is_none_or(|kernel| kernel.tracks_idle_of_all())
    }

    fn idle_mask_of_node(&mut self, node: u64, whole_cores: usize) -> u64 {
        if self.kernel().is_some_and(|kernel| !kernel.tracks_idle_of_node(node as i32)) {
            return self.kept.none_mask;
        }
        match self.kept.idle_masks_of_nodes.get(node as u32 as usize) {
            Some(masks) => masks[whole_cores],
            None => self.kept.none_mask,
        }
    }

    fn set_entity(&mut self, task: u64, value: u64, member: u64) -> u64 {
        if self.task_of(task).is_none() {
            return 0;
        }
        self.store_u64(task + member, value);
        1
    }
}
