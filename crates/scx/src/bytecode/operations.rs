//! An object's programs as [`Operations`].

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use warmcore_bpf::{BUDGET, MemoryError};
use warmcore_kernel::{Hook, SchedulerThread, ThreadStep, WakeFlags};
use warmcore_topology::{CpuId, CpuSet};
use warmcore_trace::{PrevState, TaskId};

use crate::bytecode::host::{Host, LOADED_BEFORE_NS, TASKS, clock_ns};
use crate::bytecode::kfuncs::wake_flag_bits;
use crate::bytecode::object::{Object, ProgramId};
use crate::bytecode::prices::INSTRUCTION_PS;
use crate::bytecode::samples;
use crate::bytecode::text::Printed;
use crate::bytecode::user_space::{self, UserSpace};
use crate::entities::EntityLayout;
use crate::events::Traced;
use crate::exit::ExitInfo;
use crate::groups::GroupCall;
use crate::kfuncs::Kfuncs;
use crate::operations::{DequeueFlags, EnqueueFlags, LockUse, Operation, OperationTable, Operations, PreemptReason};

/// A scheduler in bytecode, in one run.
pub struct Bytecode {
    pub(super) object: Arc<Object>,
    // In a box, as translated code knows its address.
    pub(super) host: Box<Host>,
    /// First task of each process, by its number.
    leaders: Vec<Option<TaskId>>,
    /// Its programs cost the CPUs that run them what they take.
    is_charged: bool,
    usage: Rc<Usage>,
    /// The loader, if it goes on.
    pub(super) user_space: Option<Box<dyn UserSpace>>,
    /// When it goes on next, by the programs' clock.
    pub(super) user_space_at_ns: u64,
    /// Its threads, if they are tasks.
    pub(super) threads: Vec<SchedulerThread>,
    /// What it has attached since this ended.
    pub(super) next: Option<Arc<Object>>,
}

/// What the operations of a run have taken so far.
#[derive(Debug)]
pub struct Usage {
    operations: [Cell<OfOperation>; Operation::COUNT],
    /// The locks of its queues.
    pub locks: Rc<LockUse>,
    /// What its programs printed, as far as it is kept.
    printed: RefCell<Printed>,
    /// What calls of operations called, and how often it was that, if it is noted.
    sequences: RefCell<BTreeMap<(usize, Vec<&'static str>), u64>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            operations: std::array::from_fn(|_| Cell::default()),
            locks: Rc::default(),
            printed: RefCell::default(),
            sequences: RefCell::default(),
        }
    }
}

/// What the calls of an operation have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfOperation {
    /// Calls.
    pub calls: u64,
    /// Instructions of its programs.
    pub instructions: u64,
    /// Time charged to the CPUs, ns.
    pub charged_ns: u64,
}

impl Usage {
    /// What an operation has taken, all timers together being one.
    #[must_use]
    pub fn of(&self, operation: Operation) -> OfOperation {
        self.operations[operation as usize].get()
    }

    /// Of each operation, the kernel functions that a call of it called in order, by the name they have in type information, and how often it was so.
    #[must_use]
    pub fn sequences(&self) -> Vec<(Operation, Vec<&'static str>, u64)> {
        let operation =
            |index: usize| Operation::ALL.iter().find(|(_, known)| *known as usize == index).map(|one| one.1);
        let all = self.sequences.borrow();
        all.iter().filter_map(|((index, called), &count)| Some((operation(*index)?, called.clone(), count))).collect()
    }

    /// What its programs printed (`bpf_trace_printk`, streams), a line each with CPU and time.
    #[must_use]
    pub fn printed(&self) -> Ref<'_, str> {
        Ref::map(self.printed.borrow(), Printed::text)
    }

    fn add_sequence(&self, operation: Operation, called: Vec<&'static str>) {
        *self.sequences.borrow_mut().entry((operation as usize, called)).or_default() += 1;
    }

    fn add(&self, operation: Operation, instructions: u64, charged_ns: u64) {
        self.operations[operation as usize].update(|sum| OfOperation {
            calls: sum.calls + 1,
            instructions: sum.instructions + instructions,
            charged_ns: sum.charged_ns + charged_ns,
        });
    }
}

impl Bytecode {
    /// As the loader left it. `seed` is that of what programs draw at random; with `is_charged` its programs cost CPUs time.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn new(object: &Arc<Object>, seed: u64, is_charged: bool) -> Result<Self, MemoryError> {
        let host = Box::new(Host::again(&object.image, &object.kept, seed)?);
        Ok(Self::with(object, host, is_charged, None))
    }

    /// With the loader that has just attached it, and the kernel that it has loaded it into: it goes on.
    #[must_use]
    pub fn live(
        object: &Arc<Object>,
        mut host: Box<Host>,
        user_space: Box<dyn UserSpace>,
        seed: u64,
        is_charged: bool,
    ) -> Self {
        host.seed(seed);
        host.maps.user_space_reads = true;
        host.kept.cids.are_spoken = object.kept.cids.are_spoken;
        Self::with(object, host, is_charged, Some(user_space))
    }

    fn with(object: &Arc<Object>, host: Box<Host>, is_charged: bool, user_space: Option<Box<dyn UserSpace>>) -> Self {
        let (object, usage) = (Arc::clone(object), Rc::default());
        Self {
            object,
            host,
            leaders: Vec::new(),
            is_charged,
            usage,
            user_space,
            user_space_at_ns: u64::MAX,
            threads: Vec::new(),
            next: None,
        }
    }

    /// Has it note what calls of operations call.
    #[must_use]
    pub fn noting_calls(mut self) -> Self {
        self.host.called = Some(Vec::new());
        self
    }

    /// What it takes, also after it is gone.
    #[must_use]
    pub fn usage(&self) -> Rc<Usage> {
        Rc::clone(&self.usage)
    }

    /// Calls an operation's program, if there is one.
    pub(super) fn call(&mut self, kernel: &mut Kfuncs<'_, '_>, operation: Operation, arguments: &[u64]) -> u64 {
        let Some(program) = self.object.operations[operation as usize] else { return 0 };
        self.call_program(kernel, operation, program, arguments)
    }

    fn call_program(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        operation: Operation,
        program: ProgramId,
        arguments: &[u64],
    ) -> u64 {
        for (number, &argument) in arguments.iter().enumerate() {
            let place = self.host.kept.scratch + 8 * number as u64;
            self.host.store_u64(place, argument);
        }
        let context = self.host.kept.scratch;
        self.enter(kernel, operation, (program.0 as usize, 0), [context, 0, 0, 0, 0])
    }

    pub(super) fn enter(
        &mut self,
        kernel: &mut Kfuncs<'_, '_>,
        operation: Operation,
        (program, function): (usize, usize),
        arguments: [u64; 5],
    ) -> u64 {
        let loaded = self.object.programs.get(program);
        let Some((loaded, &entry)) = loaded.and_then(|loaded| Some((loaded, loaded.entries.get(function)?))) else {
            kernel
                .fault(format!("a timer's callback is function {function} of program {program}, which does not exist"));
            return 0;
        };
        let cpu = kernel.this_cpu();
        let host = &mut *self.host;
        host.frame.now_ns = clock_ns(kernel);
        host.frame.cpu = u64::from(cpu.0);
        let (before, called_before_ps) = (host.frame.instructions, host.frame.called_ps);
        host.frame.allow(BUDGET);
        host.programs = &raw const self.object.programs[..];
        host.kernel = Some(std::ptr::from_mut(kernel).cast());
        host.interrupts_off = !operation.has_interrupts_on();
        host.catch_up();
        // A kernel enters a program with migration disabled, which the running task's counter has; a timer's callback it calls from an interrupt.
        let counted = if operation == Operation::Timer { None } else { host.disable_migration_of_current() };
        // SAFETY: the region is the host's.
        let result = unsafe { loaded.run(entry, std::ptr::from_mut(host), arguments) };
        if let Some(place) = counted {
            host.enable_migration_at(place);
        }
        host.kernel = None;
        if !host.printed.is_empty() {
            self.usage.printed.borrow_mut().add(&std::mem::take(&mut host.printed));
        }
        let taken = host.frame.instructions - before;
        let called_ps = host.frame.called_ps - called_before_ps;
        let charged_ns = if self.is_charged { (taken * INSTRUCTION_PS + called_ps) / 1000 } else { 0 };
        // What it takes while it waits for the run to begin is none of the run's.
        if kernel.before_ns() == 0 || operation == Operation::Init {
            self.usage.add(operation, taken, charged_ns);
        }
        if let Some(called) = &mut host.called {
            self.usage.add_sequence(operation, std::mem::take(called));
        }
        if let Some(site) = loaded.code.fault(&host.frame) {
            kernel.fault(site.to_string());
            host.frame.fault = 0;
        }
        if std::mem::take(&mut host.maps.rings_were_filled) {
            self.have_user_space_go_on(kernel, user_space::RETURN_NS);
        }
        kernel.charge(operation, charged_ns);
        result
    }

    /// The task's structure, which is written before the next program is entered. That of the idle one stays as it is.
    pub(super) fn task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) -> u64 {
        if !task.is_idle() {
            kernel.state.changes.note_task(task);
        }
        self.host.task_address(task)
    }

    fn of_task(&mut self, kernel: &mut Kfuncs<'_, '_>, operation: Operation, task: TaskId, more: u64) -> u64 {
        let task = self.task(kernel, task);
        self.call(kernel, operation, &[task, more])
    }

    /// Gives up with an error if a program that may refuse does; whether it does not.
    pub(super) fn check(&mut self, kernel: &mut Kfuncs<'_, '_>, what: &str, result: u64) -> bool {
        let result = result as i32;
        if result != 0 {
            kernel.fault(format!("{what} failed with {result}"));
        }
        result == 0
    }

    /// What `struct scx_dump_ctx` says, as far as the kernel has it.
    fn dump_context(&mut self, kernel: &Kfuncs<'_, '_>) -> u64 {
        const REASON: u64 = 256;
        let at = self.structure(2 * REASON);
        let layout = Arc::clone(&self.object.kept.layout);
        let Some(info) = &kernel.state.exit else { return at };
        self.host.store_member(at, layout.dump_kind, info.kind as u32);
        self.host.store_text(at + REASON, info.kind.reason(), REASON);
        let numbers = [
            (layout.dump_exit_code, info.code as u64),
            (layout.dump_reason, at + REASON),
            (layout.dump_at, clock_ns(kernel)),
        ];
        for (member, number) in numbers {
            if let Some(member) = member {
                self.host.store_u64(at + member, number);
            }
        }
        at
    }

    /// Where a structure given to a call is written, of so many bytes, zeroed.
    pub(super) fn structure(&mut self, bytes: u64) -> u64 {
        let at = self.host.kept.scratch + 4096;
        if let Some(place) = self.host.maps.memory.write(at, bytes) {
            place.fill(0);
        }
        at
    }
}

impl Operations for Bytecode {
    fn table(&self) -> OperationTable {
        self.object.table
    }

    fn lock_use(&self) -> Option<Rc<LockUse>> {
        self.is_charged.then(|| Rc::clone(&self.usage.locks))
    }

    fn entities(&self) -> Option<EntityLayout> {
        Some(self.host.entities())
    }

    fn loaded_before_ns(&self) -> u64 {
        LOADED_BEFORE_NS
    }

    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        self.host.begin_counters(kernel);
        let result = self.call(kernel, Operation::Init, &[]);
        self.check(kernel, "init", result);
        self.begin_samples(kernel);
        if self.user_space.is_some() {
            // It is told that it has attached when its programs have been.
            self.have_user_space_go_on(kernel, 1);
        }
    }

    fn exit(&mut self, kernel: &mut Kfuncs<'_, '_>, info: &ExitInfo) {
        const TEXT: u64 = 1024;
        /// No longer than there is room for.
        const DUMP: u64 = 128 << 10;
        let at = self.structure(4096 + 2 * TEXT + DUMP);
        let layout = Arc::clone(&self.object.kept.layout);
        self.host.store_u32(at + layout.exit_kind, info.kind as u32);
        let texts = [
            (layout.exit_reason, info.kind.reason()),
            (layout.exit_message, &info.message),
            (layout.exit_dump, &info.dump),
        ];
        for (number, (member, text)) in texts.into_iter().enumerate() {
            let place = at + 4096 + number as u64 * TEXT;
            self.host.store_text(place, text, if number == 2 { DUMP } else { TEXT });
            self.host.store_u64(at + member, place);
        }
        if let Some(member) = layout.exit_code {
            self.host.store_u64(at + member, info.code as u64);
        }
        self.call(kernel, Operation::Exit, &[at]);
    }

    fn ended(&mut self, kernel: &mut Kfuncs<'_, '_>, asks_for_restart: bool) {
        self.host.stop_timers();
        self.host.stop_samplers();
        if let Some(user_space) = self.user_space.as_mut().filter(|_| asks_for_restart) {
            user_space.asked_for_restart();
        } else if let Some(mut user_space) = self.user_space.take() {
            user_space::ended(&mut *user_space, &mut self.host, kernel);
        }
    }

    fn timer_after_end(&mut self, kernel: &mut Kfuncs<'_, '_>, payload: u32) {
        if payload != user_space::TIMER {
            return;
        }
        match self.user_space_goes_on(kernel) {
            // It has ended, which takes nothing away any more.
            Err(_) => self.user_space = None,
            Ok(()) => self.look_for_next(),
        }
    }

    fn may_begin_again(&self) -> bool {
        self.user_space.is_some()
    }

    fn threads(&self) -> &[SchedulerThread] {
        &self.threads
    }

    fn thread_goes_on(&mut self, kernel: &mut Kfuncs<'_, '_>, thread: u32) -> ThreadStep {
        self.user_thread_goes_on(kernel, thread)
    }

    fn begin_again(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        self.host.kept.cids.are_spoken = next.kept.cids.are_spoken;
        self.object = next;
        true
    }

    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        let address = self.task(kernel, task);
        self.host.write_context(kernel.this_cpu(), !flags.by_task);
        let arguments = [address, self.host.kept.cids.said(prev), wake_flag_bits(flags)];
        let cpu = self.call(kernel, Operation::SelectCpu, &arguments);
        self.host.write_context(kernel.this_cpu(), false);
        self.host.kept.cids.meant(cpu)
    }

    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        self.of_task(kernel, Operation::Enqueue, task, flags.0);
    }

    fn dequeue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: DequeueFlags) {
        self.of_task(kernel, Operation::Dequeue, task, flags.0);
    }

    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, prev: Option<TaskId>) {
        // A task that has just gone to sleep is told of too; the idle one is not of this class.
        let prev = match prev.unwrap_or_else(|| kernel.runs_on(cpu)) {
            prev if prev.is_idle() => 0,
            prev => self.task(kernel, prev),
        };
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::Dispatch, &[cpu, prev]);
    }

    fn tick(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.of_task(kernel, Operation::Tick, task, 0);
    }

    fn runnable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        self.of_task(kernel, Operation::Runnable, task, flags.0);
    }

    fn running(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.of_task(kernel, Operation::Running, task, 0);
    }

    fn stopping(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, runnable: bool) {
        self.of_task(kernel, Operation::Stopping, task, u64::from(runnable));
    }

    fn quiescent(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: DequeueFlags) {
        self.of_task(kernel, Operation::Quiescent, task, flags.0);
    }

    fn yield_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.of_task(kernel, Operation::Yield, task, 0);
    }

    fn set_weight(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, weight: u32) {
        self.of_task(kernel, Operation::SetWeight, task, u64::from(weight));
    }

    fn set_cpumask(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, allowed: &CpuSet) {
        let mask = if self.host.kept.cids.are_spoken {
            let at = self.structure(4096);
            self.host.write_cmask(at, allowed);
            at
        } else {
            self.object.kept.cpus_ptr(self.host.task_address(task), kernel.task(task))
        };
        self.of_task(kernel, Operation::SetCpumask, task, mask);
    }

    fn update_idle(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, idle: bool) {
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::UpdateIdle, &[cpu, u64::from(idle)]);
    }

    fn cpu_online(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::CpuOnline, &[cpu]);
    }

    fn cpu_offline(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::CpuOffline, &[cpu]);
    }

    fn cpu_acquire(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::CpuAcquire, &[cpu, 0]);
    }

    fn cpu_release(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, reason: PreemptReason, task: TaskId) {
        let task = self.task(kernel, task);
        let arguments = self.structure(16);
        self.host.store_u32(arguments, reason as u32);
        self.host.store_u64(arguments + 8, task);
        let cpu = self.host.kept.cids.said(cpu);
        self.call(kernel, Operation::CpuRelease, &[cpu, arguments]);
    }

    fn sched_switch(&mut self, kernel: &mut Kfuncs<'_, '_>, prev: (TaskId, PrevState), next: TaskId) {
        self.pass_switch(kernel, prev, next);
    }

    fn hook(&mut self, kernel: &mut Kfuncs<'_, '_>, hook: Hook) {
        self.pass_hook(kernel, hook);
    }

    fn traced(&mut self, kernel: &mut Kfuncs<'_, '_>, traced: Traced<'_>) {
        self.pass_traced(kernel, traced);
    }

    fn online_changed(&mut self, online: &CpuSet) {
        self.host.set_online(online);
    }

    fn init_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) -> bool {
        if task.0 >= TASKS {
            kernel.fault(format!("more than {TASKS} tasks, for which a program in bytecode has no structures"));
            return false;
        }
        let process = kernel.task(task).process() as usize;
        if self.leaders.len() <= process {
            self.leaders.resize(process + 1, None);
        }
        let leader = *self.leaders[process].get_or_insert(task);
        let forker = kernel.task(task).parent();
        let launcher = kernel.task(task).launcher();
        let is_thread = forker.is_some_and(|forker| kernel.task(forker).process() as usize == process);
        let comm = kernel.core.comm(task).to_owned();
        if let Some(number) = kernel.core.thread_number(task) {
            self.host.loader_tasks = task.0 - number..task.0 + 1;
        }
        self.host.kernel = Some(std::ptr::from_mut(kernel).cast());
        self.host.add_task((task, &comm), leader, forker.or(launcher), is_thread);
        self.host.kernel = None;
        if kernel.task(task).is_kernel_thread() {
            self.host.mark_kernel_thread(task);
        }
        let arguments = self.structure(256);
        if let Some(member) = self.object.kept.layout.init_task_fork
            && let Some(is_fork) = self.host.maps.memory.write(arguments + member, 1)
        {
            is_fork[0] = u8::from(kernel.is_fork(task));
        }
        if let Some(member) = self.object.kept.layout.init_task_cgroup {
            let group = self.host.group_address(kernel.group(task));
            self.host.store_u64(arguments + member, group);
        }
        let result = self.of_task(kernel, Operation::InitTask, task, arguments);
        self.host.look_at_disallow(kernel, task);
        self.check(kernel, "init_task", result)
    }

    fn exit_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        let arguments = self.structure(256);
        self.of_task(kernel, Operation::ExitTask, task, arguments);
        self.host.maps.forget_owner(warmcore_bpf::MapKind::TaskStorage, task.0 + 1);
    }

    fn enable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.of_task(kernel, Operation::Enable, task, 0);
    }

    fn disable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.of_task(kernel, Operation::Disable, task, 0);
    }

    fn cgroup(&mut self, kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        self.pass_group_call(kernel, call)
    }

    fn groups_made(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        self.host.make_groups(kernel).unwrap_or_else(|reason| kernel.fault(reason));
    }

    fn group_changed(&mut self, task: TaskId, group: Option<u32>) {
        self.host.set_group(task, group);
    }

    fn dump(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        let context = self.dump_context(kernel);
        self.call(kernel, Operation::Dump, &[context]);
    }

    fn dump_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, idle: bool) {
        let context = self.dump_context(kernel);
        self.call(kernel, Operation::DumpCpu, &[context, u64::from(cpu.0), u64::from(idle)]);
    }

    fn dump_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        let context = self.dump_context(kernel);
        let task = self.task(kernel, task);
        self.call(kernel, Operation::DumpTask, &[context, task]);
    }

    fn timer(&mut self, kernel: &mut Kfuncs<'_, '_>, payload: u32) {
        if payload == user_space::TIMER {
            if let Err(reason) = self.user_space_goes_on(kernel) {
                kernel.fault(reason);
            }
            return;
        }
        if payload & samples::SAMPLE != 0 {
            self.sample(kernel, payload);
            return;
        }
        let Some(expiry) = self.host.timer_runs_out(payload) else { return };
        let key = self.host.kept.scratch + 2048;
        self.host.store_u32(key, expiry.index);
        self.host.write_context(kernel.this_cpu(), true);
        self.host.running_timer = Some(expiry.number);
        self.enter(kernel, Operation::Timer, expiry.function, [expiry.map, key, expiry.value, 0, 0]);
        self.host.running_timer = None;
        self.host.write_context(kernel.this_cpu(), false);
    }
}
