//! What the kernel does, whatever the policy: clock and order of events, wakeups, pipes, locks, barriers, timers, ticks, affinity,
//! errors, counters, and that equal input gives equal events. The policy is `support/fifo.rs`.

use std::cell::RefCell;
use std::rc::Rc;

use warmcore_kernel::{Core, Dequeue, Enqueue, READ_COUNTERS_NS, Scheduler, Setup, SimulationError, WakeFlags, run};
use warmcore_options::MemoryChoice;
use warmcore_topology::{CpuId, Machine, resolve};
use warmcore_trace::{Counters, Event, EventKind, MigrationKind, Outcome, OverheadKind, Sink, Start, TaskId};
use warmcore_workload::{
    Affinity, BarrierWait, ChannelKind, GroupId, ProcessId, ProgramBuilder, ProgramId, SemaphoreId, Step, Task,
    TaskTemplateId, TimerMode, Workload,
};

use crate::events::Events;
use crate::fifo::Fifo;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn machine() -> Machine {
    resolve("1s1n2l2c1t").unwrap()
}

/// Tasks with the given steps, in one process.
fn scene(programs: &[&[Step]]) -> Workload {
    let mut workload = Workload::empty("scene");
    let process = workload.add_process("process");
    for (number, steps) in programs.iter().enumerate() {
        let program = steps.iter().cloned().fold(ProgramBuilder::new(), ProgramBuilder::step).finish();
        let program = workload.add_program(program);
        workload.add_task(Task::new(format!("task {number}"), process, program));
    }
    workload
}

fn try_run(workload: &Workload, policy: impl Scheduler) -> (Result<Outcome, SimulationError>, Vec<Event>) {
    let machine = machine();
    let mut setup = Setup::new(&machine, workload, 1).unwrap();
    setup.check_invariants = true;
    let mut events = Events::default();
    let result = run(&setup, policy, Some(&mut events));
    (result, events.0)
}

fn run_scene(workload: &Workload) -> (Outcome, Vec<Event>) {
    let (outcome, events) = try_run(workload, Fifo::default());
    (outcome.unwrap(), events)
}

fn on_cpu(workload: &mut Workload, cpu: u32) {
    workload.tasks.iter_mut().for_each(|task| task.affinity = Affinity::OsCpus(vec![cpu]));
}

/// When each task came to a CPU, and which.
fn switched_in(events: &[Event]) -> Vec<(u64, CpuId, TaskId)> {
    let next = |event: &Event| match event.kind {
        EventKind::Switch { next, .. } if !next.is_idle() => Some((event.time_ns, event.cpu, next)),
        _ => None,
    };
    events.iter().filter_map(next).collect()
}

fn exits(outcome: &Outcome) -> Vec<u64> {
    outcome.tasks.iter().map(|task| task.exited_ns.unwrap()).collect()
}

const WORK: Step = Step::Run { work_ns: MS };

#[test]
fn time_never_goes_back_and_tasks_of_a_cpu_run_in_the_order_of_their_creation() {
    let mut workload = scene(&[&[WORK], &[WORK], &[WORK]]);
    on_cpu(&mut workload, 1);
    let (outcome, events) = run_scene(&workload);
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let order: Vec<u32> = switched_in(&events).iter().map(|(_, _, task)| task.0).collect();
    assert_eq!(order, [0, 1, 2]);
    assert!(exits(&outcome).is_sorted() && outcome.elapsed_ns >= 3 * MS, "{:?}", exits(&outcome));
}

#[test]
fn a_sleeper_wakes_after_its_time_and_the_slack_and_its_cpu_is_idle_meanwhile() {
    let workload = scene(&[&[Step::Sleep { duration_ns: 5 * MS }, WORK]]);
    let (outcome, events) = run_scene(&workload);
    let wakeup = events.iter().rfind(|event| matches!(event.kind, EventKind::Wakeup { .. })).unwrap();
    assert!((5 * MS + 50 * US..5 * MS + 100 * US).contains(&wakeup.time_ns), "{}", wakeup.time_ns);
    assert_eq!(switched_in(&events).len(), 2);
    assert!(outcome.tasks[0].slept_ns >= 5 * MS && outcome.tasks[0].progress_ns == MS);
}

#[test]
fn a_timer_on_a_grid_stays_on_it_and_one_that_is_relative_does_not() {
    let first_ends = |mode| {
        let mut workload = scene(&[]);
        let timer = workload.add_timer("timer");
        let body = |body: ProgramBuilder| {
            body.step(Step::Run { work_ns: 100 * US }).step(Step::Timer { timer, period_ns: MS, mode })
        };
        // An overrun of half a period at the beginning.
        let steps = ProgramBuilder::new().step(Step::Run { work_ns: 1_500 * US });
        let program = workload.add_program(steps.repeat(Some(4), body).finish());
        workload.add_task(Task::new("periodic", ProcessId(0), program));
        run_scene(&workload).0.elapsed_ns
    };
    let (grid_ns, relative_ns) = (first_ends(TimerMode::Absolute), first_ends(TimerMode::Relative));
    assert!((4 * MS..4 * MS + 200 * US).contains(&grid_ns), "{grid_ns}");
    assert!(relative_ns > grid_ns + 400 * US, "{relative_ns}");
}

#[test]
fn a_full_pipe_stops_its_writer_and_an_empty_one_its_reader() {
    let mut workload = scene(&[]);
    let pipe = workload.add_channel("pipe", ChannelKind::Pipe, 200);
    let send = Step::Send { channel: pipe, bytes: 100 };
    let receive = Step::Receive { channel: pipe, bytes: 100 };
    for (name, steps) in [("writer", vec![send; 6]), ("reader", [vec![WORK], vec![receive; 6]].concat())] {
        let program =
            workload.add_program(steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
        workload.add_task(Task::new(name, ProcessId(0), program));
    }
    let (outcome, _) = run_scene(&workload);
    // Two messages fit before the reader has worked.
    assert!(exits(&outcome).iter().all(|end| *end > MS), "{:?}", exits(&outcome));
    workload.programs[1].steps.push(Step::Receive { channel: pipe, bytes: 100 });
    let (result, _) = try_run(&workload, Fifo::default());
    assert!(matches!(result, Err(SimulationError::Deadlock { .. })), "{result:?}");
}

/// Measured in one thread on a Zen 4: a write takes 1.10 to 1.16 times a read where each message is alone in the pipe, and 0.96 to
/// 0.99 times where hundreds are written before they are read (`results/2026-11-25-zen4-2vcpu-pipe-sides/`).
#[test]
fn a_write_costs_more_than_a_read_in_an_empty_pipe_and_less_in_a_stream() {
    let elapsed_ns = |writes: usize, reads: usize, turns: usize| {
        let mut workload = scene(&[]);
        let channel = workload.add_channel("pipe", ChannelKind::Pipe, 64_000);
        let (send, receive) = (Step::Send { channel, bytes: 100 }, Step::Receive { channel, bytes: 100 });
        let turn = [vec![send; writes], vec![receive; reads]].concat();
        let steps = vec![turn; turns].concat();
        let program =
            workload.add_program(steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
        workload.add_task(Task::new("both", ProcessId(0), program));
        run_scene(&workload).0.elapsed_ns
    };
    let per_message = |long: u64, short: u64| (long - short) as f64 / 320.0;
    let write = per_message(elapsed_ns(640, 0, 1), elapsed_ns(320, 0, 1));
    let read = per_message(elapsed_ns(640, 640, 1), elapsed_ns(640, 320, 1));
    let both = per_message(elapsed_ns(1, 1, 640), elapsed_ns(1, 1, 320));
    assert!((0.96..0.99).contains(&(write / read)), "{write} and {read} ns");
    assert!((1.10..1.16).contains(&((both - read) / read)), "{both} and {read} ns");
    assert_eq!(
        both,
        2.0 * machine().costs().pipe_message_ns as f64,
        "the machine's figure is of messages that are alone"
    );
}

#[test]
fn a_mutex_lets_one_in_at_a_time() {
    let mut workload = scene(&[]);
    let lock = workload.add_lock("lock");
    let steps = [Step::Lock(lock), WORK, Step::Unlock(lock)];
    let program = workload.add_program(steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
    let mut task = Task::new("task", ProcessId(0), program);
    task.instances = 3;
    workload.add_task(task);
    let (outcome, events) = run_scene(&workload);
    let cpus: std::collections::BTreeSet<CpuId> = switched_in(&events).iter().map(|(_, cpu, _)| *cpu).collect();
    assert!(cpus.len() > 1, "no CPU keeps them apart: {cpus:?}");
    let ends = exits(&outcome);
    assert!(ends.windows(2).all(|pair| pair[1] - pair[0] >= MS), "{ends:?}");
}

#[test]
fn nobody_passes_a_barrier_before_the_last_has_come() {
    let mut workload = scene(&[]);
    let barrier = workload.add_barrier("barrier", 3, BarrierWait::Block);
    for work_ns in [MS, 2 * MS, 5 * MS] {
        let steps = [Step::Run { work_ns }, Step::Barrier(barrier)];
        let program =
            workload.add_program(steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
        workload.add_task(Task::new("task", ProcessId(0), program));
    }
    let (outcome, _) = run_scene(&workload);
    assert!(exits(&outcome).iter().all(|end| (5 * MS..6 * MS).contains(end)), "{:?}", exits(&outcome));
}

#[test]
fn busy_cpus_tick_at_250_hz_and_idle_ones_do_not() {
    let workload = scene(&[&[Step::Run { work_ns: 100 * MS }, Step::Sleep { duration_ns: 100 * MS }]]);
    let (_, events) = run_scene(&workload);
    let busy = |event: &&Event| matches!(event.kind, EventKind::Decision { value: 1, .. });
    let ticks: Vec<u64> = events.iter().filter(busy).map(|event| event.time_ns).collect();
    assert!((24..=26).contains(&ticks.len()), "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] == 4 * MS), "{ticks:?}");
    let idle = events.iter().filter(|event| matches!(event.kind, EventKind::Decision { value: 0, .. })).count();
    assert!(idle <= 2, "an idle CPU's tick comes once more and stops: {idle}");
}

#[test]
fn a_task_runs_where_it_may_and_leaves_a_cpu_that_it_may_no_longer_use() {
    let mut workload = scene(&[&[WORK, Step::SetAffinity(Affinity::OsCpus(vec![3])), WORK]]);
    on_cpu(&mut workload, 2);
    let (_, events) = run_scene(&workload);
    let cpus: Vec<u32> = switched_in(&events).iter().map(|(_, cpu, _)| cpu.0).collect();
    assert_eq!(cpus, [2, 3]);
}

#[test]
fn a_task_pays_once_for_its_exit_whether_a_step_says_so_or_its_program_ends() {
    let machine = machine();
    let costs = machine.costs();
    let calls_ns = |workload: &Workload| {
        let (outcome, events) = run_scene(workload);
        let spent: u64 = outcome.cpus.iter().map(|cpu| cpu.overhead_ns[OverheadKind::Syscall as usize]).sum();
        (spent, outcome.elapsed_ns, events)
    };
    let at_the_end = calls_ns(&scene(&[&[WORK]]));
    assert_eq!(at_the_end.0, costs.exit_ns);
    assert!(at_the_end.1 >= MS + costs.exit_ns, "{}", at_the_end.1);
    assert_eq!(at_the_end, calls_ns(&scene(&[&[WORK, Step::Exit]])));
    // The end comes right behind a wait.
    let asleep = calls_ns(&scene(&[&[WORK, Step::Sleep { duration_ns: MS }]]));
    assert_eq!(asleep.0, costs.timer_ns + costs.exit_ns);

    let mut family = scene(&[&[Step::Fork(TaskTemplateId(1)), Step::Join { count: 1 }], &[WORK]]);
    family.tasks[1].instances = 0;
    assert_eq!(calls_ns(&family).0, costs.fork_ns + costs.syscall_ns + 2 * costs.exit_ns);

    // The end of a request is none of the thread that carries it out.
    let (semaphore, request) = (SemaphoreId(0), ProgramId(2));
    let submit = Step::Submit { semaphore, program: request };
    let mut pool = scene(&[&[submit], &[WORK, Step::Work { semaphore, requests: 1, recorder: None }]]);
    pool.add_semaphore("requests", 0);
    pool.add_program(ProgramBuilder::new().step(WORK).finish());
    assert_eq!(calls_ns(&pool).0, 2 * costs.exit_ns);
}

type Act = Box<dyn FnMut(&mut Core<'_>, CpuId, Option<TaskId>)>;

/// Does something at every tick, and is first come first served otherwise.
struct OnTick {
    fifo: Fifo,
    opens_counters: bool,
    act: Act,
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self, core: &mut Core<'_>, $($argument: $type),*) $(-> $result)? {
            self.fifo.$name(core, $($argument),*)
        })*
    };
}

impl Scheduler for OnTick {
    fn name(&self) -> &'static str {
        "on tick"
    }
    fn holds(&self, task: TaskId) -> bool {
        self.fifo.holds(task)
    }
    fn runnable_on(&self, cpu: CpuId) -> usize {
        self.fifo.runnable_on(cpu)
    }
    fn init(&mut self, core: &mut Core<'_>) {
        self.fifo.init(core);
        if self.opens_counters {
            core.open_counters();
        }
    }
    fn tick(&mut self, core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>) {
        (self.act)(core, cpu, curr);
    }
    forward! {
        task_fork(task: TaskId, parent: Option<TaskId>);
        task_dead(task: TaskId);
        select_cpu(task: TaskId, prev: CpuId, flags: WakeFlags) -> CpuId;
        enqueue(cpu: CpuId, task: TaskId, reason: Enqueue);
        dequeue(cpu: CpuId, task: TaskId, reason: Dequeue);
        check_preempt(cpu: CpuId, task: TaskId, flags: WakeFlags);
        pick_next(cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId>;
        put_prev(cpu: CpuId, task: TaskId, runnable: bool);
        set_next(cpu: CpuId, task: TaskId);
        yield_task(cpu: CpuId, task: TaskId);
        attributes_changed(task: TaskId);
    }
}

#[test]
fn a_command_that_makes_no_sense_ends_the_run_and_names_the_event() {
    let mut workload = scene(&[&[Step::Run { work_ns: 100 * MS }]]);
    on_cpu(&mut workload, 0);
    let act = |core: &mut Core<'_>, _: CpuId, curr: Option<TaskId>| {
        if let Some(task) = curr {
            core.set_task_cpu(task, CpuId(1), MigrationKind::Steal);
        }
    };
    let mover = OnTick { fifo: Fifo::default(), opens_counters: false, act: Box::new(act) };
    let error = try_run(&workload, mover).0.unwrap_err().to_string();
    for part in ["in the event `tick`", "set_task_cpu: task 0 (Running) cannot be moved to cpu1", "on cpu0"] {
        assert!(error.contains(part), "{error}");
    }
}

/// Instructions of the task and of its CPU as a policy read them at each tick, and the run.
fn counted(memory: MemoryChoice, opens_counters: bool) -> (Vec<Option<(f64, f64)>>, Outcome) {
    let mut workload = scene(&[&[Step::Run { work_ns: 50 * MS }]]);
    workload.tasks[0].profile = Some("perlbench".to_owned());
    let read = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&read);
    let act = move |core: &mut Core<'_>, cpu: CpuId, curr: Option<TaskId>| {
        if let Some(task) = curr {
            let (of_task, of_cpu) = (core.task_counters(task), core.cpu_counters(cpu));
            told.borrow_mut().push(of_task.zip(of_cpu).map(|(task, cpu)| (task.instructions, cpu.instructions)));
        }
    };
    let machine = machine();
    let mut setup = Setup::new(&machine, &workload, 1).unwrap();
    setup.options.memory = memory;
    let outcome = run(&setup, OnTick { fifo: Fifo::default(), opens_counters, act: Box::new(act) }, None).unwrap();
    (read.take(), outcome)
}

#[test]
fn a_policy_reads_counters_as_of_the_last_tick_and_pays_for_them() {
    let (read, outcome) = counted(MemoryChoice::Analytic, true);
    let read: Vec<(f64, f64)> = read.into_iter().map(|read| read.unwrap()).collect();
    assert!(read.len() >= 11 && read.is_sorted_by(|a, b| a.0 < b.0), "{read:?}");
    assert!(read.iter().all(|(task, cpu)| (task - cpu).abs() < 1e-3), "it has the CPU for itself: {read:?}");
    let all = outcome.tasks[0].memory.unwrap().instructions;
    let last = read.last().unwrap().0;
    assert!(last < all && last > 0.9 * all, "{last} of {all}");

    let (unread, without) = counted(MemoryChoice::Analytic, false);
    assert!(unread.iter().all(Option::is_none), "nobody opened them");
    let ticks_ns = |outcome: &Outcome| -> u64 {
        outcome.cpus.iter().map(|cpu| cpu.overhead_ns[OverheadKind::Tick as usize]).sum()
    };
    assert_eq!(ticks_ns(&outcome), ticks_ns(&without) + 2 * READ_COUNTERS_NS * read.len() as u64);
}

/// What a policy is told of whose a task is; it sees nothing of programs, templates or profiles.
#[test]
fn a_policy_learns_from_the_kernel_to_whom_a_task_belongs() {
    const TICKS: Step = Step::Run { work_ns: 10 * MS };
    let mut workload = scene(&[&[TICKS], &[TICKS], &[TICKS, Step::SetGroup(GroupId(1)), TICKS]]);
    workload.applications.push("other".to_owned());
    let other = workload.add_process("other");
    workload.processes[other.index()].application = 1;
    workload.add_group("/web");
    let batch = workload.add_group("/web/batch");
    workload.groups[batch.index()].shares = 512;
    let root = workload.add_group("/");
    let beside = workload.add_group("beside");
    workload.groups[beside.index()].parent = Some(root);
    workload.tasks[1].process = other;
    workload.tasks[2].group = Some(GroupId(0));
    workload.tasks[1].affinity = Affinity::OsCpus(vec![1]);
    for choice in ["process:other=off", "taskgroup:/web/batch=group:/web/batch"] {
        workload.choose_aggregate(choice).unwrap();
    }
    let seen = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&seen);
    let act = move |core: &mut Core<'_>, _: CpuId, curr: Option<TaskId>| {
        let groups: Vec<_> = core.task_groups().iter().map(|group| (group.shares, group.parent)).collect();
        assert_eq!(groups, [(1024, None), (512, Some(0)), (1024, None), (1024, None)]);
        assert_eq!(core.application_count(), 2);
        if let Some(id) = curr {
            let task = core.task(id);
            let belongs = (task.process(), task.application(), task.group(), task.cache_group());
            told.borrow_mut().push((id.0, belongs, core.is_restricted(id)));
        }
    };
    try_run(&workload, OnTick { fifo: Fifo::default(), opens_counters: false, act: Box::new(act) }).0.unwrap();
    let mut seen = seen.take();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(
        seen,
        [
            (0, (0, 0, None, Some(0)), false),
            (1, (1, 1, None, None), true),
            (2, (0, 0, Some(0), Some(0)), false),
            (2, (0, 0, Some(1), Some(2)), false),
        ],
        "task, process, application, task group, cache group; restricted"
    );
}

/// By hand: a change holds the machine's mutex for 75 system calls after the one that enters the kernel. Of two at one moment the second begins to
/// hold it when the first gives it back; two changes of nice values end at one moment.
#[test]
fn of_two_tasks_that_change_their_groups_at_one_moment_the_second_waits_for_the_first() {
    let ends = |tasks: usize, step: Step| {
        let mut workload = scene(&[]);
        let group = workload.add_group("/web");
        assert_eq!(group, GroupId(0));
        let barrier = workload.add_barrier("start", tasks as u32, BarrierWait::Spin);
        for number in 0..tasks {
            let program = [WORK, Step::Barrier(barrier), step.clone()];
            let program =
                workload.add_program(program.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
            workload.add_task(Task::new(format!("task {number}"), ProcessId(0), program));
        }
        let mut ends = exits(&run_scene(&workload).0);
        ends.sort_unstable();
        ends
    };
    let (plain, change) = (Step::SetNice(1), Step::SetGroup(GroupId(0)));
    let held_ns = 75 * machine().costs().syscall_ns;
    let is_held = |ns: u64| (held_ns..held_ns + 2 * US).contains(&ns);
    assert!(is_held(ends(1, change.clone())[0] - ends(1, plain.clone())[0]));
    let [together, apart] = [plain, change].map(|step| ends(2, step));
    assert!(together[1] - together[0] < US, "{together:?}");
    assert!(is_held(apart[1] - apart[0]), "{apart:?}");
}

#[test]
fn memory_of_constant_speed_counts_nothing() {
    let (read, outcome) = counted(MemoryChoice::None, true);
    assert!(read.len() >= 11 && read.iter().all(Option::is_none), "{read:?}");
    assert!(outcome.tasks[0].memory.is_none());
}

#[test]
fn equal_input_gives_equal_events() {
    let body = [WORK, Step::Sleep { duration_ns: 300 * US }, WORK, Step::Yield, WORK];
    let workload = scene(&[&body, &body, &body, &body, &body, &body]);
    let ((first, events), (second, again)) = (run_scene(&workload), run_scene(&workload));
    assert_eq!(events, again);
    assert_eq!(first.tasks, second.tasks);
    assert!(events.len() > 40);
}

#[test]
fn a_chain_of_loads_takes_the_latency_of_where_its_region_fits() {
    let machine = resolve("genoa96").unwrap();
    let elapsed_ns = |step: Step| {
        let workload = scene(&[&[step]]);
        run(&Setup::new(&machine, &workload, 1).unwrap(), Fifo::default(), None).unwrap().elapsed_ns
    };
    let elapsed_ns = |hops, region_bytes| elapsed_ns(Step::Chase { hops, region_bytes });
    let chase_ns = |region_bytes| elapsed_ns(101_000, region_bytes) - elapsed_ns(100_000, region_bytes);
    let l1_ps = machine.data_cache(CpuId(0), 1).unwrap().latency_ps.unwrap();
    assert_eq!(chase_ns(4 << 10), l1_ps);
    assert_eq!(chase_ns(1 << 30), 1_000 * machine.performance().memory.local_ns.unwrap());
    assert!(chase_ns(4 << 10) < chase_ns(16 << 20) && chase_ns(16 << 20) < chase_ns(1 << 30));
}

/// Tasks that compute, sleep, spin and exchange messages, more than there are CPUs.
fn busy_scene(warm_up_ns: Option<u64>) -> Workload {
    let mut workload = scene(&[]);
    let process = ProcessId(0);
    workload.warm_up_ns = warm_up_ns;
    let recorder = workload.add_recorder("turn");
    let body = |work_us: u64, sleep_us: u64| {
        ProgramBuilder::new()
            .repeat(Some(40), |body| {
                body.step(Step::StartClock { slot: 0 })
                    .step(Step::Run { work_ns: work_us * US })
                    .step(Step::Sleep { duration_ns: sleep_us * US })
                    .step(Step::RecordClock { slot: 0, recorder })
            })
            .finish()
    };
    for (number, (work_us, sleep_us)) in
        [(900, 50), (130, 310), (2_100, 700), (77, 5), (500, 500)].into_iter().enumerate()
    {
        let program = workload.add_program(body(work_us, sleep_us));
        workload.add_task(Task { instances: 2, ..Task::new(format!("task {number}"), process, program) });
    }
    workload
}

#[test]
fn a_warm_up_changes_no_run_and_accounts_and_events_of_what_comes_after_it_agree() {
    let (whole, events) = run_scene(&busy_scene(None));
    let happened = |events: &[Event]| -> Vec<Event> {
        events.iter().filter(|event| !matches!(event.kind, EventKind::Overhead { .. })).copied().collect()
    };
    for part in [1, 300, 500, 999] {
        let warm_up_ns = whole.elapsed_ns * part / 1000;
        let workload = busy_scene(Some(warm_up_ns));
        let (outcome, behind) = run_scene(&workload);
        assert_eq!(happened(&behind), happened(&events), "the run goes on as it would");
        assert_eq!((outcome.elapsed_ns, outcome.warm_up_ns), (whole.elapsed_ns, warm_up_ns));

        let machine = machine();
        let setup = Setup::new(&machine, &workload, 1).unwrap();
        let tables = setup.run_tables(Vec::new());
        let mut counters = Counters::new(&machine, &tables, Start::Idle { time_ns: 0 }).with_warm_up(warm_up_ns);
        // Which decisions the policy tells is no matter here.
        let told = |event: &&Event| !matches!(event.kind, EventKind::Decision { .. });
        counters.events(&behind.iter().filter(told).copied().collect::<Vec<_>>()).unwrap();
        let metrics = counters.metrics(outcome.elapsed_ns, &tables, &[]);
        assert_eq!(metrics.window_ns, outcome.window_ns());
        for (task, of_events) in outcome.tasks.iter().zip(&metrics.tasks) {
            assert_eq!(task.cpu_time_ns, of_events.run_ns, "{}", task.name);
            let life_ns = task.cpu_time_ns + task.slept_ns + of_events.run_delay_ns;
            assert!(life_ns <= outcome.lifetime_ns(task), "{}", task.name);
        }
        for (cpu, of_events) in outcome.cpus.iter().zip(&metrics.cpus) {
            assert_eq!((cpu.busy_ns, cpu.idle_ns), (of_events.busy_ns, of_events.idle_ns));
            let told: u64 = of_events.overhead_ns.values().sum();
            assert_eq!(cpu.overhead_ns.iter().sum::<u64>(), told, "kernel time is reported at the border");
        }
        let counted = outcome.recorders[0].count();
        assert!(counted < whole.recorders[0].count() && (part > 900 || counted > 0), "{counted}");
    }
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_no_accounts() {
    let (outcome, _) = run_scene(&busy_scene(Some(3_600_000 * MS)));
    assert_eq!((outcome.window_ns(), outcome.warm_up_ns), (0, 3_600_000 * MS));
    assert!(outcome.tasks.iter().all(|task| task.cpu_time_ns == 0 && task.exited_ns.is_some()));
    assert!(outcome.recorders.iter().all(|recorder| recorder.is_empty()) && outcome.recorders.len() == 1);
}
