//! Structures that programs may keep a pointer to, kept as a kernel's are: what a program reads is what is.
//!
//! Written down before a program is entered, and before a call of it returns that claims a CPU or moves a task ([`Changes`](crate::changes)). What a task of
//! another class does is written when a program is told of it.

use warmcore_kernel::{State, Task};
use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::Policy;

use crate::bytecode::host::{Host, Kept, PERCPU_BYTES, UPTIME_NS, clock_ns};
use crate::events::Event;

/// `PF_EXITING`.
const EXITING_FLAG: u32 = 0x4;

/// `SCX_TASK_QUEUED`.
const QUEUED_FLAG: u32 = 1;

/// `SCX_TASK_IMMED`, and where `SCX_TASK_REENQ_REASON_MASK` lies.
const IMMED_FLAG: u32 = 1 << 5;
const REASON_SHIFT: u32 = 12;
const REASON_MASK: u32 = 0b11 << REASON_SHIFT;

impl Kept {
    /// What `cpus_ptr` of a task at an address leads to: its mask, or one with the CPU alone that it stays on (`cpumask_of`).
    pub(super) fn cpus_ptr(&self, address: u64, task: &Task) -> u64 {
        match task.is_pinned() {
            true => self.lone_masks + u64::from(task.cpu().0) * self.layout.cpumask_size,
            false => address + self.layout.cpus_mask,
        }
    }
}

impl Host {
    /// Brings everything that has changed up to date. The CPU at work may be between two tasks, so its run queue is written each time.
    pub(super) fn catch_up(&mut self) {
        let Some(kernel) = self.kernel() else { return };
        while let Some(task) = kernel.state.changes.take_task() {
            self.write_task(task);
        }
        while let Some(cpu) = kernel.state.changes.take_cpu() {
            self.write_run_queue(cpu);
        }
        kernel.state.changes.note_cpu(kernel.this_cpu());
        self.write_idle_masks();
    }

    /// `scx_bpf_events`: the counts as the kernel's structure has them, as much of it as a program has room for; zeros before one is attached.
    pub(super) fn write_events(&mut self, to: u64, bytes: u64) {
        let counts = self.kernel().map_or([0; Event::COUNT], |kernel| *kernel.events());
        let mut structure = vec![0; self.kept.layout.events_size as usize];
        for &(event, at) in &self.kept.layout.events {
            if let Some(place) = structure.get_mut(at as usize..at as usize + 8) {
                place.copy_from_slice(&counts[event as usize].to_le_bytes());
            }
        }
        structure.truncate(bytes as usize);
        if let Some(place) = self.maps.memory.write(to, structure.len() as u64) {
            place.copy_from_slice(&structure);
        }
    }

    /// What a call of a program gives after it has claimed a CPU or moved a task.
    #[inline]
    pub(super) fn caught_up(&mut self, result: u64) -> u64 {
        self.catch_up();
        result
    }

    pub(super) fn write_run_queue(&mut self, cpu: CpuId) {
        let Some(kernel) = self.kernel() else { return };
        let layout = &self.kept.layout;
        let (at_curr, at_clock, at_pelt) = (layout.rq_curr, layout.rq_clock_task, layout.rq_clock_pelt);
        let (at_running, at_scx_running, at_local) = (layout.rq_running, layout.rq_scx_running, layout.rq_local_queued);
        let clock = UPTIME_NS - kernel.before_ns() + kernel.clock_task_ns(cpu);
        let base = self.kept.percpu + u64::from(cpu.0) * PERCPU_BYTES;
        let (before, curr) = (self.maps.memory.load_u64(base + at_curr), kernel.runs_on(cpu));
        let address = self.task_address(curr);
        self.store_u64(base + at_curr, address);
        self.store_u64(base + at_clock, clock);
        if let Some(at_pelt) = at_pelt {
            self.store_u64(base + at_pelt, clock);
        }
        let runnable = kernel.state.runnable[cpu.index()] as u32;
        self.store_member(base, at_running, runnable);
        self.store_member(base, at_scx_running, runnable);
        let queued = kernel.state.queues.len(kernel.state.local(cpu));
        self.store_member(base, at_local, queued);
        if before != address {
            for task in [self.task_of(before), self.task_of(address)].into_iter().flatten() {
                self.write_task(task);
            }
        }
    }

    /// Writes down what programs may read of a task and what changes.
    fn write_task(&mut self, task: TaskId) {
        // A program that is ending was not told of all tasks.
        if task.index() >= self.affinities.len() {
            return;
        }
        let Some(kernel) = self.kernel() else { return };
        let at = self.task_address(task);
        let (known, state) = (kernel.task(task), &kernel.state.tasks[task.index()]);
        let (nice, queued) = ((120 + i32::from(known.nice())) as u32, u32::from(state.queued));
        let (policy, prio) = match known.policy() {
            Policy::Normal => (0, nice),
            Policy::Fifo { priority } => (1, 99 - u32::from(priority)),
            Policy::RoundRobin { priority } => (2, 99 - u32::from(priority)),
            Policy::Batch => (3, nice),
            Policy::Idle => (5, nice),
            Policy::Deadline(_) => (6, u32::MAX),
            Policy::Ext => (7, nice),
        };
        let cpu = known.cpu();
        let is_running = kernel.runs_on(cpu) == task;
        let (layout, memory) = (&self.kept.layout, &mut self.maps.memory);
        let flags = memory.load_u32(at + layout.scx_flags) & !(QUEUED_FLAG | IMMED_FLAG | REASON_MASK);
        let is_immediate = u32::from(state.runs_at_once) * IMMED_FLAG;
        let own = (queued * QUEUED_FLAG) | is_immediate | ((state.reason as u32) << REASON_SHIFT);
        memory.store_u32(at + layout.scx_flags, flags | own);
        memory.store_u32(at + layout.weight, state.weight);
        memory.store_u32(at + layout.prio, prio);
        memory.store_u32(at + layout.static_prio, nice);
        if known.is_exiting() || known.state() == State::Dead {
            let flags = memory.load_u32(at + layout.task_flags);
            memory.store_u32(at + layout.task_flags, flags | EXITING_FLAG);
        }
        for (member, value) in [(layout.task_cpu, cpu.0), (layout.wake_cpu, cpu.0), (layout.policy, policy)] {
            if let Some(member) = member {
                memory.store_u32(at + member, value);
            }
        }
        // Side by side, so that no more may be written than there is.
        for (member, holds) in [(layout.on_rq, state.queued), (layout.on_cpu, is_running)] {
            if let Some([first, rest @ ..]) = member.and_then(|member| memory.write(at + member, layout.on_bytes)) {
                *first = u8::from(holds);
                rest.fill(0);
            }
        }
        if let (Some(at_runnable), Some(since_ns)) = (layout.runnable_at, state.runnable_since_ns) {
            let ago_ns = kernel.now_ns().saturating_sub(since_ns);
            memory.store_u64(at + at_runnable, (clock_ns(kernel) - ago_ns) / kernel.tick_ns());
        }
        let (at_mask, at_count) = (layout.cpus_mask, layout.nr_cpus_allowed);
        let allowed = kernel.mask(task);
        let (disabled, pinned) = (known.migration_disabled(), known.is_pinned());
        if let Some(at_disabled) = layout.migration_disabled {
            memory.store_u16(at + at_disabled, disabled);
        }
        let mask = self.kept.cpus_ptr(at, known);
        memory.store_u64(at + layout.cpus_ptr, mask);
        if pinned {
            memory.store_u64(mask + u64::from(cpu.0 / 64) * 8, 1 << (cpu.0 % 64));
        }
        if !std::ptr::eq(self.affinities[task.index()], allowed) {
            self.affinities[task.index()] = allowed;
            self.write_mask(at + at_mask, allowed);
            self.store_u32(at + at_count, allowed.len() as u32);
        }
    }

    /// The running task's counter of disabled migration is one more while a program runs (`rcu_read_lock_dont_migrate` with `CONFIG_PREEMPT_RCU`), which
    /// programs take into account. Where the counter lies, if there is one.
    pub(super) fn disable_migration_of_current(&mut self) -> Option<u64> {
        let place = self.current_task() + self.kept.layout.migration_disabled?;
        let count = self.maps.memory.load_u16(place);
        self.maps.memory.store_u16(place, count + 1);
        Some(place)
    }

    /// The program is left.
    pub(super) fn enable_migration_at(&mut self, place: u64) {
        let count = self.maps.memory.load_u16(place);
        self.maps.memory.store_u16(place, count.saturating_sub(1));
    }

    fn write_idle_masks(&mut self) {
        let Some(kernel) = self.kernel() else { return };
        let mut changed = kernel.state.idle.take_changed_words();
        let machine = kernel.machine();
        let idle = kernel.idle_cpumask();
        // Without SMT each idle CPU is a wholly idle core.
        let cores = if machine.smt_width() > 1 { kernel.idle_smtmask() } else { idle };
        while changed != 0 {
            let word = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let values = [idle.word(word), cores.word(word)];
            let masks = [self.kept.idle_mask, self.kept.idle_cores_mask];
            let place = 8 * word as u64;
            masks.into_iter().zip(values).for_each(|(mask, value)| self.store_u64(mask + place, value));
            for (node, cpus) in machine.nodes().map(|node| machine.cpus_of_node(node)).enumerate() {
                let masks = self.kept.idle_masks_of_nodes[node];
                let own = cpus.word(word);
                masks.into_iter().zip(values).for_each(|(mask, value)| self.store_u64(mask + place, value & own));
            }
        }
    }
}
