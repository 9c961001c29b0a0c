//! What a program may call: the kfuncs (`scx_bpf_*`), by the names they have now.
//!
//! Source: `docs/spec/sched-ext.md` sections 4, 7 and 8. A call in a wrong place ends the program, as older kernels do at run time.

use warmcore_kernel::{CAPACITY_SCALE, Core, WakeFlags};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{SearchStep, TaskId};
use warmcore_workload::Policy;

use crate::events::EventCounts;
use crate::exit::ExitKind;
use crate::idle::{Search, Smt, Sync};
use crate::operations::{EnqueueFlags, Kick, Operation, OperationFlags};
use crate::queues::{DsqId, Way};
use crate::state::{Buffered, Context, Insertion, State};

/// The kernel, as a program sees it during one call.
pub struct Kfuncs<'k, 'c> {
    pub(crate) core: &'k mut Core<'c>,
    pub(crate) state: &'k mut State,
}

impl Kfuncs<'_, '_> {
    /// The time in nanoseconds (`scx_bpf_now`).
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns()
    }

    /// How long before the run begins it is, in ns: the program is loaded earlier, as on a real system. Other clocks stand still until then.
    #[must_use]
    pub(crate) fn before_ns(&self) -> u64 {
        self.state.before_ns
    }

    /// The CPU on which the call runs (`bpf_get_smp_processor_id`).
    #[must_use]
    pub fn this_cpu(&self) -> CpuId {
        self.core.this_cpu()
    }

    /// The machine, as a program's user space knows it.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        self.core.machine()
    }

    /// CPUs that a task may use (`p->cpus_ptr`).
    #[must_use]
    pub fn allowed(&self, task: TaskId) -> &CpuSet {
        self.core.allowed(task)
    }

    /// CPUs that a task may use when it has not disabled migration (`p->cpus_mask`).
    #[must_use]
    pub fn mask(&self, task: TaskId) -> &CpuSet {
        self.core.mask(task)
    }

    /// The CPU a task is assigned to (`scx_bpf_task_cpu`).
    #[must_use]
    pub(crate) fn task_cpu(&self, task: TaskId) -> CpuId {
        self.core.task(task).cpu()
    }

    /// The task of this class on a CPU (`scx_bpf_cpu_curr`).
    #[must_use]
    pub fn cpu_curr(&self, cpu: CpuId) -> Option<TaskId> {
        self.state.curr(self.core, cpu)
    }

    /// What is left of a task's slice, in nanoseconds (`p->scx.slice`), up to date for one that runs.
    #[must_use]
    pub fn slice_ns(&self, task: TaskId) -> u64 {
        self.state.entities.slice_ns(task)
    }

    /// Sets a task's slice (`scx_bpf_task_set_slice`). If it runs, the next tick of its CPU sees it.
    pub fn set_slice_ns(&mut self, task: TaskId, slice_ns: u64) {
        self.state.entities.set_slice_ns(task, slice_ns);
    }

    /// A task's virtual time (`p->scx.dsq_vtime`).
    #[must_use]
    pub fn vtime(&self, task: TaskId) -> u64 {
        self.state.entities.vtime(task)
    }

    /// Sets a task's virtual time (`scx_bpf_task_set_dsq_vtime`).
    pub(crate) fn set_vtime(&mut self, task: TaskId, vtime: u64) {
        self.state.entities.set_vtime(task, vtime);
    }

    /// A task's weight, 1 to 10 000 (`p->scx.weight`).
    #[must_use]
    pub fn weight(&self, task: TaskId) -> u32 {
        self.state.tasks[task.index()].weight
    }

    /// Creates a queue (`scx_bpf_create_dsq`). False if there is one of that number or it is not the program's to take.
    pub fn create_dsq(&mut self, dsq: DsqId) -> bool {
        dsq.is_user() && self.state.queues.create(dsq)
    }

    /// Removes an empty queue, if there is one of that number (`scx_bpf_destroy_dsq`). An error of the program if it has tasks.
    pub(crate) fn destroy_dsq(&mut self, dsq: DsqId) {
        if self.state.queues.find(dsq).is_some() && !self.state.queues.destroy(dsq) {
            let queued = self.nr_queued(dsq).unwrap_or(0);
            self.fault(format!("attempting to destroy in-use dsq 0x{:016x} (nr={queued})", dsq.0));
        }
    }

    /// Tasks in a queue (`scx_bpf_dsq_nr_queued`); `None` is the kernel's -ENOENT.
    #[must_use]
    pub fn nr_queued(&self, dsq: DsqId) -> Option<u32> {
        let queue = if dsq == DsqId::LOCAL {
            self.state.local(self.this_cpu())
        } else if let Some(cpu) = dsq.named_cpu().filter(|&cpu| self.state.is_cpu(cpu)) {
            self.state.local(cpu)
        } else {
            self.state.queues.find(dsq)?
        };
        Some(self.state.queues.len(queue))
    }

    /// The first task of a queue of the program's (`scx_bpf_dsq_peek`). Any other queue is an error.
    #[must_use]
    pub fn peek(&mut self, dsq: DsqId) -> Option<TaskId> {
        let Some(queue) = self.state.queues.find(dsq) else {
            let what = if dsq.is_user() { "peek on non-existent" } else { "peek disallowed on builtin" };
            self.fault(format!("{what} DSQ 0x{:x}", dsq.0));
            return None;
        };
        self.state.queues.first(queue)
    }

    /// Begins a way through a queue (`bpf_iter_scx_dsq_new`); gives its number.
    #[must_use]
    pub(crate) fn iterate(&mut self, dsq: DsqId, backwards: bool) -> Option<usize> {
        let queue = self.state.queues.find(dsq)?;
        Some(self.state.queues.begin_way(queue, backwards))
    }

    /// The next task on a way (`bpf_iter_scx_dsq_next`), under the queue's lock. Any task of the queue may be moved before the way goes on.
    pub(crate) fn next(&mut self, way: usize) -> Option<TaskId> {
        let queue = self.state.queues.way(way)?.queue;
        self.state.pass_lock(self.core, queue);
        self.state.queues.go_on(way)
    }

    /// A way is over (`bpf_iter_scx_dsq_destroy`).
    pub(crate) fn end_way(&mut self, way: usize) {
        self.state.queues.end_way(way);
    }

    /// Has the program enqueue the tasks again that wait in a queue (`scx_bpf_dsq_reenq`, and with [`DsqId::LOCAL`] `scx_bpf_reenqueue_local`), with
    /// [`EnqueueFlags::REENQ`], as soon as no CPU is between two tasks. An error of the program if there is no such queue.
    pub fn reenqueue(&mut self, dsq: DsqId) {
        let queue = match dsq.named_cpu() {
            _ if dsq == DsqId::LOCAL => Some(self.state.local(self.this_cpu())),
            Some(cpu) => self.state.is_cpu(cpu).then(|| self.state.local(cpu)),
            None => self.state.queues.find(dsq),
        };
        match queue {
            Some(queue) if self.state.given_back.contains(&queue) => {}
            Some(queue) => self.state.given_back.push(queue),
            None => self.fault(format!("DSQ 0x{:x} cannot be enqueued again: it does not exist", dsq.0)),
        }
    }

    /// Inserts a task with a slice (`scx_bpf_dsq_insert`): in `select_cpu` and `enqueue` the task in question, in `dispatch` any in the
    /// program's custody. 0 ns leaves the slice as it is; if it is used up it becomes 1 ns, which lasts until the next tick.
    pub fn dsq_insert(&mut self, task: TaskId, dsq: DsqId, slice_ns: u64, flags: EnqueueFlags) {
        self.insert(task, slice_ns, Insertion { dsq, flags, vtime: None });
    }

    /// The same in the order of virtual time (`scx_bpf_dsq_insert_vtime`).
    pub fn dsq_insert_vtime(&mut self, task: TaskId, dsq: DsqId, slice_ns: u64, vtime: u64, flags: EnqueueFlags) {
        if !dsq.is_user() {
            self.fault(format!("cannot use vtime ordering for built-in DSQ 0x{:x}", dsq.0));
            return;
        }
        self.state.entities.set_vtime(task, vtime);
        self.insert(task, slice_ns, Insertion { dsq, flags, vtime: Some(vtime) });
    }

    /// Flags of an insertion of the program's, with what it wants of those into local queues (`scx_vet_enq_flags`); none if they are an error. The
    /// class's own insertions are without it.
    fn with_own(&mut self, dsq: DsqId, flags: EnqueueFlags) -> Option<EnqueueFlags> {
        let is_local = dsq == DsqId::LOCAL || dsq.named_cpu().is_some();
        if flags.has(EnqueueFlags::IMMED) && !is_local {
            self.fault(format!(
                "SCX_ENQ_IMMED on a non-local DSQ 0x{:x}; it is for SCX_DSQ_LOCAL and SCX_DSQ_LOCAL_ON",
                dsq.0
            ));
            return None;
        }
        let always = is_local && self.state.table.flags.has(OperationFlags::ALWAYS_ENQ_IMMED);
        Some(if always { flags | EnqueueFlags::IMMED } else { flags })
    }

    fn insert(&mut self, task: TaskId, slice_ns: u64, insertion: Insertion) {
        if insertion.flags.0 >> EnqueueFlags::INTERNAL_SHIFT != 0 {
            self.fault(format!("invalid enq_flags 0x{:x}", insertion.flags.0));
            return;
        }
        let Some(flags) = self.with_own(insertion.dsq, insertion.flags) else { return };
        let insertion = Insertion { flags, ..insertion };
        if let Some(cpu) = insertion.dsq.named_cpu()
            && !self.state.is_cpu(cpu)
        {
            self.fault(format!("SCX_DSQ_LOCAL_ON names {cpu}, which the machine does not have"));
            return;
        }
        match self.state.context {
            Context::Other | Context::Unlocked => {
                self.fault(format!(
                    "{} inserted outside of select_cpu, enqueue and dispatch",
                    self.core.task_name(task)
                ));
                return;
            }
            Context::OneTask(own) if own != task => {
                let [task, own] = [task, own].map(|task| self.core.task_name(task));
                self.fault(format!("{task} inserted while {own} is to be"));
                return;
            }
            Context::OneTask(_) => {
                if self.state.tasks[task.index()].verdict.is_some() {
                    self.fault(format!("{} already direct-dispatched", self.core.task_name(task)));
                    return;
                }
                self.state.tasks[task.index()].verdict = Some(insertion);
            }
            Context::Dispatch(_) => {
                if self.state.buffer.len() >= self.state.table.dispatch_max_batch as usize {
                    self.fault("dispatch buffer overflow".into());
                    return;
                }
                let custody = self.state.tasks[task.index()].custody;
                self.state.buffer.push(Buffered { task, custody, insertion });
                self.state.progress += 1;
            }
        }
        let left_ns = self.state.entities.slice_ns(task).max(1);
        self.state.entities.set_slice_ns(task, if slice_ns > 0 { slice_ns } else { left_ns });
    }

    /// Insertions that this `dispatch` may still make (`scx_bpf_dispatch_nr_slots`).
    #[must_use]
    pub(crate) fn nr_slots(&self) -> u32 {
        self.state.table.dispatch_max_batch.saturating_sub(self.state.buffer.len() as u32)
    }

    /// Takes back the last insertion of this `dispatch` that was not done yet (`scx_bpf_dispatch_cancel`).
    pub(crate) fn dispatch_cancel(&mut self) {
        if self.state.buffer.pop().is_none() {
            self.fault("dispatch buffer underflow".into());
        }
    }

    /// Moves the first task that may run here from a queue to the local one (`scx_bpf_dsq_move_to_local`); in `dispatch`.
    pub fn move_to_local(&mut self, dsq: DsqId) -> bool {
        self.move_to_local_with(dsq, EnqueueFlags::default())
    }

    /// The same; the task is inserted with these flags (`move_local_task_to_local_dsq`).
    pub fn move_to_local_with(&mut self, dsq: DsqId, flags: EnqueueFlags) -> bool {
        let Context::Dispatch(cpu) = self.state.context else {
            self.fault("dsq_move_to_local outside of dispatch".into());
            return false;
        };
        self.state.flush_buffer(self.core, cpu);
        let Some(queue) = self.state.queues.find(dsq) else {
            self.fault(format!("invalid DSQ 0x{:x}", dsq.0));
            return false;
        };
        // A CPU that chooses runs nothing that could be preempted.
        let is_first = flags.has(EnqueueFlags::HEAD) || flags.has(EnqueueFlags::PREEMPT);
        let moved = self.state.move_to_local(self.core, queue, (cpu, is_first));
        if let Some(task) = moved
            && let Some(flags) = self.with_own(DsqId::LOCAL, flags)
        {
            self.state.note_immediate(task, flags);
        }
        self.state.progress += u32::from(moved.is_some());
        moved.is_some()
    }

    /// Moves a task to another queue from the one that a way leads through (`scx_bpf_dsq_move`); in `dispatch`. False if it was not there when the way
    /// began, or is not there any more.
    pub(crate) fn dsq_move(&mut self, way: usize, task: TaskId, dsq: DsqId, flags: EnqueueFlags) -> bool {
        self.move_task(way, task, Insertion { dsq, flags, vtime: None })
    }

    /// The same in the order of the task's virtual time (`scx_bpf_dsq_move_vtime`).
    pub(crate) fn dsq_move_vtime(&mut self, way: usize, task: TaskId, dsq: DsqId, flags: EnqueueFlags) -> bool {
        let vtime = Some(self.vtime(task));
        self.move_task(way, task, Insertion { dsq, flags, vtime })
    }

    fn move_task(&mut self, way: usize, task: TaskId, insertion: Insertion) -> bool {
        let cpu = match self.state.context {
            Context::Dispatch(cpu) => cpu,
            Context::Unlocked => self.core.this_cpu(),
            Context::Other | Context::OneTask(_) => {
                self.fault("dsq_move where the lock of a run queue is held".into());
                return false;
            }
        };
        let queues = &self.state.queues;
        let Some(Way { queue, until, .. }) = queues.way(way) else { return false };
        if queues.of(task) != Some(queue) || queues.sequence(task) > until {
            return false;
        }
        let Some(flags) = self.with_own(insertion.dsq, insertion.flags) else { return false };
        let insertion = Insertion { flags, ..insertion };
        self.state.pass_lock(self.core, queue);
        self.state.queues.remove(task);
        self.state.carry_out(self.core, task, cpu, insertion);
        self.state.progress += 1;
        true
    }

    /// Whether a task that `init_task` is told of has just been forked, rather than was there when the program was loaded, as launchers and threads of the
    /// kernel are.
    #[must_use]
    pub(crate) fn is_fork(&self, task: TaskId) -> bool {
        !self.state.loads && !self.core.is_hidden(task)
    }

    /// `init_task` does not want a task (`p->scx.disallow`), which may not become one of `SCHED_EXT` from then on: while the program is loaded, one of that
    /// policy becomes one of `SCHED_NORMAL`. An error for one that has just been forked.
    pub fn disallow(&mut self, task: TaskId) {
        self.state.tasks[task.index()].disallowed = true;
        if self.is_fork(task) {
            let name = self.core.task_name(task);
            self.fault(format!("ops.init_task() set task->scx.disallow for {name} during fork"));
        } else if self.core.task(task).policy() == Policy::Ext {
            self.core.set_policy(task, Policy::Normal);
        }
    }

    /// Kicks a CPU (`scx_bpf_kick_cpu`): it takes effect when the call is over.
    pub fn kick(&mut self, cpu: CpuId, kick: Kick) {
        if self.state.is_cpu(cpu) {
            self.state.kicks.push((cpu, kick));
        } else {
            self.fault(format!("kick of {cpu}, which the machine does not have"));
        }
    }

    /// Sets the speed that the program wants of a CPU, of 1024 (`scx_bpf_cpuperf_set`): the governor is asked at once. In `dispatch` and `enqueue`, which hold
    /// the lock of a run queue, another CPU's is an error.
    pub fn cpuperf_set(&mut self, cpu: CpuId, target: u32) {
        let locked = match (self.state.context, self.state.operation) {
            (Context::Dispatch(cpu), _) => Some(cpu),
            (Context::OneTask(task), Operation::Enqueue) => Some(self.task_cpu(task)),
            _ => None,
        };
        if target > CAPACITY_SCALE {
            self.fault(format!("invalid cpuperf target {target} for {cpu}"));
        } else if self.state.is_cpu(cpu) && locked.is_some_and(|locked| locked != cpu) {
            self.fault(format!("invalid target {cpu}: its run queue is not the one that is locked"));
        } else if self.state.is_cpu(cpu) {
            self.state.cpuperf_target[cpu.index()] = target;
            self.core.ask_governor(cpu);
        } else {
            self.fault(format!("speed of {cpu}, which the machine does not have"));
        }
    }

    /// The capacity of a CPU, of 1024 (`scx_bpf_cpuperf_cap`).
    #[must_use]
    pub(crate) fn cpuperf_cap(&self, cpu: CpuId) -> u32 {
        if self.state.is_cpu(cpu) { self.core.machine().capacity(cpu) } else { CAPACITY_SCALE }
    }

    /// The frequency of a CPU, of 1024 (`scx_bpf_cpuperf_cur`).
    #[must_use]
    pub fn cpuperf_cur(&self, cpu: CpuId) -> u32 {
        if self.state.is_cpu(cpu) { self.core.frequency_scale(cpu) } else { CAPACITY_SCALE }
    }

    /// Searches as the class does; for a task of one CPU only whether the previous one is idle (`select_cpu_from_kfunc`).
    fn search(&mut self, task: TaskId, search: &Search<'_>) -> (CpuId, SearchStep) {
        let is_bound = self.core.is_restricted(task)
            && (self.core.task(task).migration_disabled() > 0 || self.core.mask(task).len() == 1);
        if !is_bound {
            return self.state.idle.select(self.core.machine(), search);
        }
        let is_claimed = search.allowed.contains(search.prev) && self.test_and_clear_cpu_idle(search.prev);
        (search.prev, if is_claimed { SearchStep::PreviousClaimed } else { SearchStep::NoneClaimed })
    }

    /// The CPU that the class would choose for a wakeup, and whether it is idle and now claimed (`scx_bpf_select_cpu_dfl`).
    pub fn select_cpu_dfl(&mut self, task: TaskId, prev: CpuId, flags: WakeFlags) -> (CpuId, bool) {
        let here = self.core.this_cpu();
        let local_is_empty = self.state.queues.len(self.state.local(here)) == 0;
        let sync = (flags.sync && flags.by_task).then_some(Sync { local_is_empty });
        let search = Search { here, prev, allowed: self.core.allowed(task), sync, smt: Smt::Preferred };
        let (cpu, step) = self.search(task, &search);
        self.state.built_in_choice = Some((prev, cpu, step));
        (cpu, step != SearchStep::NoneClaimed)
    }

    /// The same for a part of the CPUs; `None` if none of them is idle (`scx_bpf_select_cpu_and`).
    pub(crate) fn select_cpu_and(
        &mut self,
        task: TaskId,
        prev: CpuId,
        flags: WakeFlags,
        (within, smt): (&CpuSet, Smt),
    ) -> Option<CpuId> {
        let here = self.core.this_cpu();
        let local_is_empty = self.state.queues.len(self.state.local(here)) == 0;
        let sync = (flags.sync && flags.by_task).then_some(Sync { local_is_empty });
        let allowed = self.core.allowed(task);
        let both;
        let allowed = if allowed.is_subset(within) {
            allowed
        } else {
            both = allowed.intersection(within);
            &both
        };
        let search = Search { here, prev, allowed, sync, smt };
        let (cpu, step) = self.search(task, &search);
        let idle = step != SearchStep::NoneClaimed;
        if idle {
            self.state.built_in_choice = Some((prev, cpu, step));
        }
        idle.then_some(cpu)
    }

    /// Whether the built-in idle masks are kept.
    #[must_use]
    pub(crate) fn keeps_idle_masks(&self) -> bool {
        self.state.keeps_idle_masks()
    }

    /// Whether the built-in idle tracking is on, as its functions ask; an error of the program if it is not (`check_builtin_idle_enabled`).
    pub(crate) fn tracks_idle(&mut self) -> bool {
        let tracks = self.state.keeps_idle_masks();
        if !tracks {
            self.fault("built-in idle tracking is disabled".into());
        }
        tracks
    }

    /// The same for functions of the whole machine, which are errors where the tracking is one for each node.
    pub(crate) fn tracks_idle_of_all(&mut self) -> bool {
        if self.state.table.flags.has(OperationFlags::BUILTIN_IDLE_PER_NODE) {
            self.fault("per-node idle tracking is enabled".into());
            return false;
        }
        self.tracks_idle()
    }

    /// The same for functions of a node, which are errors elsewhere and for nodes that are not there (`validate_node`).
    pub(crate) fn tracks_idle_of_node(&mut self, node: i32) -> bool {
        if !self.state.table.flags.has(OperationFlags::BUILTIN_IDLE_PER_NODE) {
            self.fault("per-node idle tracking is disabled".into());
            return false;
        }
        let known = usize::try_from(node).is_ok_and(|node| node < self.core.machine().node_count());
        if !known && node != -1 {
            self.fault(format!("invalid node {node}"));
        }
        known
    }

    /// Claims a CPU if it is idle (`scx_bpf_test_and_clear_cpu_idle`).
    pub(crate) fn test_and_clear_cpu_idle(&mut self, cpu: CpuId) -> bool {
        self.state.is_cpu(cpu) && self.state.idle.test_and_clear(self.core.machine(), cpu)
    }

    /// The idle CPUs (`scx_bpf_get_idle_cpumask`).
    #[must_use]
    pub(crate) fn idle_cpumask(&self) -> &CpuSet {
        self.state.idle.cpus()
    }

    /// The CPUs of wholly idle cores (`scx_bpf_get_idle_smtmask`).
    #[must_use]
    pub(crate) fn idle_smtmask(&self) -> &CpuSet {
        self.state.idle.cores()
    }

    /// Finds and claims an idle CPU of a set (`scx_bpf_pick_idle_cpu`, which does not look at a task).
    pub(crate) fn pick_idle_cpu_of(&mut self, set: &CpuSet, smt: Smt) -> Option<CpuId> {
        let here = self.core.this_cpu();
        self.state.idle.pick(self.core.machine(), here, (set, None), smt)
    }

    /// A task that the kernel runs on a CPU, of whichever class; [`TaskId::IDLE`] for none.
    #[must_use]
    pub fn runs_on(&self, cpu: CpuId) -> TaskId {
        self.core.curr(cpu)
    }

    /// The queue's clock of a CPU without interrupts (`rq->clock_task`), in nanoseconds.
    #[must_use]
    pub fn clock_task_ns(&self, cpu: CpuId) -> u64 {
        self.core.clock_task_ns(cpu)
    }

    /// What the kernel has of a task beside its class: nice value, process, where it is.
    #[must_use]
    pub fn task(&self, task: TaskId) -> &warmcore_kernel::Task {
        self.core.task(task)
    }

    /// Length of a tick in nanoseconds.
    #[must_use]
    pub fn tick_ns(&self) -> u64 {
        self.core.tick_ns()
    }

    /// How long a CPU has been busy and idle so far, in ns.
    pub(crate) fn cpu_times_ns(&self, cpu: CpuId) -> (u64, u64) {
        self.core.cpu_times_ns(cpu)
    }

    /// Starts a timer of the program's on this CPU (`bpf_timer_start`).
    pub fn start_timer(&mut self, delay_ns: u64, payload: u32) {
        if self.state.before_ns > 0 {
            // At most a second is before the run, so the difference does not overflow.
            let left_ns = self.state.before_ns as i64 - i64::try_from(delay_ns).unwrap_or(i64::MAX);
            self.state.early_timers.push((left_ns, payload));
            return;
        }
        let cpu = self.core.this_cpu();
        self.core.start_timer(cpu, delay_ns, u64::from(payload));
    }

    /// How often the class has counted each event (`scx_bpf_events`).
    #[must_use]
    pub fn events(&self) -> &EventCounts {
        &self.state.events.counts
    }

    /// The program says that it has an error (`scx_bpf_error`): it is ejected.
    pub fn error(&mut self, message: &str) {
        self.state.fail(self.core, ExitKind::ErrorByProgram, 0, message.to_owned());
    }

    /// The program wants to end (`scx_bpf_exit`).
    pub fn exit(&mut self, code: i64, message: &str) {
        self.state.fail(self.core, ExitKind::UnregisteredByProgram, code, message.to_owned());
    }

    /// Adds text to the dump of an error exit (`scx_bpf_dump`), as far as it may be long; in `dump`, `dump_cpu` and `dump_task`.
    pub fn dump(&mut self, text: &str) {
        if let Some(dump) = &mut self.state.dump {
            dump.push(text);
        }
    }

    /// The CPU spends time in the program's code.
    pub(crate) fn charge(&mut self, operation: Operation, duration_ns: u64) {
        if duration_ns > 0 && self.state.before_ns == 0 {
            let cpu = self.core.this_cpu();
            self.core.charge(cpu, duration_ns, operation.overhead());
        }
    }

    /// The program did what it must not: it is ejected.
    pub(crate) fn fault(&mut self, message: String) {
        self.state.fail(self.core, ExitKind::Error, 0, message);
    }
}
