//! A program made of function pointers, so that each test says what is special and nothing else; it writes down what it is told.

use std::cell::RefCell;
use std::rc::Rc;

use warmcore_kernel::{Governor, Hook, Setup, WakeFlags};
use warmcore_schedulers::scx_native::{Ejection, ext_of, run_ext};
use warmcore_scx::{
    DequeueFlags, DsqId, EnqueueFlags, ExitInfo, GroupCall, Kfuncs, Operation, OperationTable, Operations,
    PreemptReason, SLICE_DEFAULT_NS, Traced,
};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{Event, PrevState, TaskId};

use crate::support::{Run, Scene, fastest, trace_check};

/// The queue of most programs here.
pub const SHARED: DsqId = DsqId(0);

pub type Select = fn(&mut Kfuncs<'_, '_>, TaskId, CpuId, WakeFlags) -> CpuId;
pub type Enqueue = fn(&mut Kfuncs<'_, '_>, TaskId, EnqueueFlags);
pub type Dispatch = fn(&mut Kfuncs<'_, '_>, CpuId, Option<TaskId>);
pub type About = fn(&mut Kfuncs<'_, '_>, TaskId);

/// What a program was told: when, what, about whom.
pub type Told = (u64, &'static str, u32);

#[derive(Clone)]
pub struct Program {
    pub table: OperationTable,
    pub select: Select,
    pub enqueue: Enqueue,
    pub dispatch: Dispatch,
    pub running: About,
    pub timer: fn(&mut Kfuncs<'_, '_>),
    /// At the tracepoint, with who leaves and who comes.
    pub switch: fn(&mut Kfuncs<'_, '_>, TaskId, TaskId),
    pub release: fn(&mut Kfuncs<'_, '_>),
    /// First expiry of the timer; 0 for none.
    pub timer_at_ns: u64,
    pub governor: Governor,
    /// The operation in which it ends with an error, and at the how manieth call; `init_task` refuses the task then.
    pub fails: Option<(&'static str, usize)>,
    /// How long it has been loaded when the run begins.
    pub loaded_before_ns: u64,
    pub told: Rc<RefCell<Vec<Told>>>,
    /// Places of the kernel that were passed: when, in whose name, which.
    pub hooks: Rc<RefCell<Vec<(u64, TaskId, Hook)>>>,
    pub exit: Rc<RefCell<Option<ExitInfo>>>,
    /// What it was told of task groups.
    pub groups: Rc<RefCell<Vec<GroupCall>>>,
}

impl Program {
    /// The global FIFO of vector 2, which tells everything.
    pub fn fifo() -> Self {
        use Operation::*;
        let table = OperationTable::empty("test").with(&[
            Init, Exit, Dump, SelectCpu, Enqueue, Dispatch, Dequeue, Runnable, Running, Stopping, Quiescent, Timer,
        ]);
        Self {
            table,
            select: |kernel, task, prev, flags| {
                let (cpu, idle) = kernel.select_cpu_dfl(task, prev, flags);
                if idle {
                    kernel.dsq_insert(task, DsqId::LOCAL, SLICE_DEFAULT_NS, EnqueueFlags::default());
                }
                cpu
            },
            enqueue: |kernel, task, flags| kernel.dsq_insert(task, SHARED, SLICE_DEFAULT_NS, flags),
            dispatch: |kernel, _, _| {
                kernel.move_to_local(SHARED);
            },
            running: |_, _| {},
            timer: |_| {},
            switch: |_, _, _| {},
            release: |_| {},
            timer_at_ns: 0,
            governor: Governor::Fixed,
            fails: None,
            loaded_before_ns: 0,
            told: Rc::default(),
            hooks: Rc::default(),
            exit: Rc::default(),
            groups: Rc::default(),
        }
    }

    /// Runs a scene under it.
    pub fn run(&self, scene: &Scene, machine: &str) -> Result {
        self.run_on(scene, &warmcore_topology::resolve(machine).unwrap())
    }

    /// The same on a machine that is no preset.
    pub fn run_on(&self, scene: &Scene, machine: &Machine) -> Result {
        let mut setup = Setup::new(machine, &scene.workload, 1).unwrap();
        setup.set_actions(&scene.actions).unwrap();
        setup.check_invariants = true;
        setup.kernel.governor = self.governor;
        let ejection = Ejection::default();
        let mut events: Vec<Event> = Vec::new();
        let ext = ext_of(self.clone(), &setup);
        let outcome = run_ext(ext, &setup, ejection.clone(), Some(&mut events)).unwrap();
        let fastest = fastest(machine, self.governor);
        trace_check::check_at(&events, &outcome, &setup.run_tables(Vec::new()).restrictions, fastest);
        let run = Run { events, outcome, machine: machine.clone() };
        Result { run, ejected: ejection.info(), told: self.told.take(), heard: self.exit.take() }
    }

    /// Writes it down; false if it is the call that fails.
    fn tell(&self, kernel: &mut Kfuncs<'_, '_>, what: &'static str, task: TaskId) -> bool {
        self.told.borrow_mut().push((kernel.now_ns(), what, task.0));
        let calls = || self.told.borrow().iter().filter(|told| told.1 == what).count();
        let fails = self.fails.is_some_and(|(name, call)| name == what && calls() == call);
        if fails {
            kernel.error("I give up");
        }
        !fails
    }
}

/// What came of a run.
pub struct Result {
    pub run: Run,
    pub ejected: Option<ExitInfo>,
    pub told: Vec<Told>,
    /// What the program was told at its end.
    pub heard: Option<ExitInfo>,
}

impl Result {
    /// Times at which the program was told something about a task.
    pub fn times(&self, what: &str, task: u32) -> Vec<u64> {
        self.told.iter().filter(|told| told.1 == what && told.2 == task).map(|told| told.0).collect()
    }
}

fn reason_name(reason: PreemptReason) -> &'static str {
    match reason {
        PreemptReason::Realtime => "for a real-time task",
        PreemptReason::Deadline => "for a deadline task",
        PreemptReason::Stopper => "for the stopper",
        PreemptReason::Unknown => "for another task",
    }
}

impl Operations for Program {
    fn table(&self) -> OperationTable {
        self.table
    }
    fn loaded_before_ns(&self) -> u64 {
        self.loaded_before_ns
    }
    fn cpu_online(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        self.tell(kernel, "cpu_online", TaskId(cpu.0));
    }
    fn cpu_offline(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        self.tell(kernel, "cpu_offline", TaskId(cpu.0));
    }
    fn cpu_acquire(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId) {
        self.tell(kernel, "cpu_acquire", TaskId(cpu.0));
    }
    fn cpu_release(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, reason: PreemptReason, task: TaskId) {
        self.tell(kernel, "cpu_release", TaskId(cpu.0));
        self.told.borrow_mut().push((kernel.now_ns(), reason_name(reason), task.0));
        (self.release)(kernel);
    }
    fn sched_switch(&mut self, kernel: &mut Kfuncs<'_, '_>, (prev, state): (TaskId, PrevState), next: TaskId) {
        assert_eq!(state == PrevState::Idle, prev.is_idle());
        self.tell(kernel, "sched_switch", next);
        (self.switch)(kernel, prev, next);
    }
    fn hook(&mut self, kernel: &mut Kfuncs<'_, '_>, hook: Hook) {
        let running = kernel.runs_on(kernel.this_cpu());
        self.hooks.borrow_mut().push((kernel.now_ns(), running, hook));
    }
    fn traced(&mut self, kernel: &mut Kfuncs<'_, '_>, traced: Traced<'_>) {
        let (what, number) = match traced {
            Traced::Event(event, by) => (event.name(), by as u32),
            Traced::DumpLine(line) => ("line of the dump", line.len() as u32),
        };
        self.told.borrow_mut().push((kernel.now_ns(), what, number));
    }
    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        assert!(kernel.create_dsq(SHARED));
        self.tell(kernel, "init", TaskId(0));
        if self.timer_at_ns > 0 {
            kernel.start_timer(self.timer_at_ns, 0);
        }
    }
    fn exit(&mut self, _kernel: &mut Kfuncs<'_, '_>, info: &ExitInfo) {
        *self.exit.borrow_mut() = Some(info.clone());
    }
    fn dump(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        kernel.dump("a line of the program's\n");
    }
    fn select_cpu(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId {
        self.tell(kernel, "select_cpu", task);
        (self.select)(kernel, task, prev, flags)
    }
    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        self.tell(kernel, "enqueue", task);
        (self.enqueue)(kernel, task, flags);
    }
    fn init_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) -> bool {
        self.tell(kernel, "init_task", task)
    }
    fn cgroup(&mut self, kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        self.groups.borrow_mut().push(call);
        let number = |group: Option<u32>| TaskId(group.map_or(0, |group| group + 1));
        match call {
            GroupCall::Init { group, .. } => self.tell(kernel, "cgroup_init", number(group)),
            GroupCall::Exit { group } => self.tell(kernel, "cgroup_exit", number(group)),
            GroupCall::PrepareMove { task, from, .. } => {
                assert_eq!(kernel.group(task), from);
                self.tell(kernel, "cgroup_prep_move", task)
            }
            GroupCall::Move { task, to, .. } => {
                assert_eq!(kernel.group(task), to);
                self.tell(kernel, "cgroup_move", task)
            }
        }
    }
    fn exit_task(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.tell(kernel, "exit_task", task);
    }
    fn enable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.tell(kernel, "enable", task);
    }
    fn disable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.tell(kernel, "disable", task);
    }
    fn set_weight(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _weight: u32) {
        self.tell(kernel, "set_weight", task);
    }
    fn set_cpumask(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _allowed: &CpuSet) {
        self.tell(kernel, "set_cpumask", task);
    }
    fn dequeue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _flags: DequeueFlags) {
        self.tell(kernel, "dequeue", task);
    }
    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, cpu: CpuId, prev: Option<TaskId>) {
        (self.dispatch)(kernel, cpu, prev);
    }
    fn runnable(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _flags: EnqueueFlags) {
        self.tell(kernel, "runnable", task);
    }
    fn running(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId) {
        self.tell(kernel, "running", task);
        (self.running)(kernel, task);
    }
    fn stopping(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, runnable: bool) {
        self.tell(kernel, if runnable { "stopping, runnable" } else { "stopping" }, task);
    }
    fn quiescent(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, _flags: DequeueFlags) {
        self.tell(kernel, "quiescent", task);
    }
    fn timer(&mut self, kernel: &mut Kfuncs<'_, '_>, _payload: u32) {
        self.tell(kernel, "timer", TaskId(0));
        (self.timer)(kernel);
    }
}
