//! Programs of steps with what must come of them wherever they run: one table for the simulated kernel
//! (`crates/schedulers/tests/behaviour/step_programs.rs`) and for real threads (`crates/native/tests/step_programs.rs`).
//!
//! It asserts what holds on a busy host too: how often something happened, who came to an end, and times that must at least have
//! passed; never that something was quick, and CPU time apart. Who is to wait says so before ([`Case::waiting`]), so that no order of starting matters.

use std::collections::BTreeSet;

use warmcore_workload::{
    Affinity, BarrierWait, ChannelKind, Distribution, Drawn, KernelStep, Latch, Policy, ProcessId, ProgramBuilder,
    RecorderId, Step, Task, TaskTemplateId, TimerMode, Workload,
};

/// Millisecond in nanoseconds.
const MS: u64 = 1_000_000;

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Every task exited.
    AllExited,
    /// A task stopped the workload, or its duration was over.
    Stopped,
}

/// What was seen of a run.
pub struct Seen {
    pub end: End,
    pub elapsed_ns: u64,
    pub tasks: Vec<SeenTask>,
    /// By recorder: how many samples, and the least of them.
    pub recorded: Vec<(u64, Option<u64>)>,
}

/// What was seen of a task.
pub struct SeenTask {
    pub role: String,
    pub completed: bool,
    pub cpu_ns: u64,
}

/// A workload and what must come of it.
pub struct Case {
    /// What it shows, as a sentence.
    pub says: String,
    pub workload: Workload,
    end: End,
    least_elapsed_ns: u64,
    /// Names of tasks, and how many of each come to the end of their program.
    completed: Vec<(String, usize)>,
    /// Names of tasks, and the CPU time that each of them at least gets.
    cpu_time: Vec<(String, u64)>,
    /// Recorders, the number of their samples, and what each sample at least is.
    recorded: Vec<(usize, u64, u64)>,
}

impl Case {
    fn new(says: impl Into<String>) -> Self {
        let says = says.into();
        let mut workload = Workload::empty(&says);
        workload.add_process("process");
        let (completed, cpu_time, recorded) = (Vec::new(), Vec::new(), Vec::new());
        Self { says, workload, end: End::AllExited, least_elapsed_ns: 0, completed, cpu_time, recorded }
    }

    /// Adds tasks that all must come to the end of their program.
    fn tasks(&mut self, name: &str, instances: u32, program: ProgramBuilder) -> TaskTemplateId {
        if instances > 0 {
            self.completed.push((name.to_owned(), instances as usize));
        }
        self.endless(name, instances, program)
    }

    /// Adds tasks that need not.
    fn endless(&mut self, name: &str, instances: u32, program: ProgramBuilder) -> TaskTemplateId {
        let program = self.workload.add_program(program.finish());
        self.workload.add_task(Task { instances, ..Task::new(name, ProcessId(0), program) })
    }

    /// The step that records the time since clock 0 was started, so many times in all, each of at least so long.
    fn record(&mut self, times: u64, least_ns: u64) -> Step {
        let recorder = self.workload.add_recorder(format!("recorder {}", self.recorded.len()));
        self.recorded.push((recorder.index(), times, least_ns));
        Step::RecordClock { slot: 0, recorder }
    }

    /// Tasks that prepare, then wait, and another that releases them 5 ms after the last has said that it is about to: each waits
    /// that long.
    fn waiting(mut self, waiters: u32, [before, wait]: [Vec<Step>; 2], [prepare, release]: [Vec<Step>; 2]) -> Self {
        let pause_ns = 5 * MS;
        let ready = self.workload.add_semaphore("about to wait", 0);
        let record = self.record(waiters.into(), pause_ns);
        let waiter = all(before).step(Step::StartClock { slot: 0 }).step(Step::SemPost(ready));
        self.tasks("waiter", waiters, wait.into_iter().fold(waiter, ProgramBuilder::step).step(record));
        let releaser = all(prepare).repeat(Some(waiters.into()), |body| body.step(Step::SemWait(ready)));
        let releaser = releaser.step(Step::Sleep { duration_ns: pause_ns });
        self.tasks("releaser", 1, release.into_iter().fold(releaser, ProgramBuilder::step));
        self
    }

    /// Fails unless what was seen is what must be. `place` says where it ran.
    pub fn check(&self, place: &str, seen: &Seen) {
        let says = format!("{place}: {}", self.says);
        assert_eq!(seen.end, self.end, "{says}");
        assert!(seen.elapsed_ns >= self.least_elapsed_ns, "{says}: it was over after {} ns", seen.elapsed_ns);
        for (name, count) in &self.completed {
            let completed = seen.tasks.iter().filter(|task| task.role == *name && task.completed).count();
            assert_eq!(completed, *count, "{says}: {name} that came to an end");
        }
        for &(recorder, count, least_ns) in &self.recorded {
            let (samples, least) = seen.recorded[recorder];
            assert_eq!(samples, count, "{says}: samples of recorder {recorder}");
            assert!(least.is_none_or(|least| least >= least_ns), "{says}: recorder {recorder} has one of {least:?} ns");
        }
    }

    /// The tasks that had less CPU time than they asked for, each with its time. Apart from [`Case::check`], because a hypervisor can
    /// take time from a real thread that the thread itself counts as its own.
    pub fn short_of_cpu_time(&self, seen: &Seen) -> Vec<(String, u64)> {
        let least_ns =
            |role: &str| self.cpu_time.iter().find(|(name, _)| name == role).map_or(0, |(_, least_ns)| *least_ns);
        let short = seen.tasks.iter().filter(|task| task.cpu_ns < least_ns(&task.role));
        short.map(|task| (task.role.clone(), task.cpu_ns)).collect()
    }
}

fn all(steps: impl IntoIterator<Item = Step>) -> ProgramBuilder {
    steps.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step)
}

fn times(count: u64, steps: impl IntoIterator<Item = Step>) -> ProgramBuilder {
    ProgramBuilder::new().repeat(Some(count), |body| steps.into_iter().fold(body, ProgramBuilder::step))
}

fn forever(steps: impl IntoIterator<Item = Step>) -> ProgramBuilder {
    ProgramBuilder::new().repeat(None, |body| steps.into_iter().fold(body, ProgramBuilder::step))
}

const fn sleep(milliseconds: u64) -> Step {
    Step::Sleep { duration_ns: milliseconds * MS }
}

/// The table.
pub fn cases() -> Vec<Case> {
    let mut cases =
        vec![computing(), sleeping(), drawing(), looping(), changing_attributes(), later_start(), suspending()];
    cases.extend([
        parents(),
        served_list(),
        stopping(),
        duration(),
        initial_count(),
        recording_since(),
        queueing(),
        working(),
    ]);
    cases.extend([TimerMode::Relative, TimerMode::Absolute].into_iter().flat_map(timers));
    cases.extend([false, true].map(taking_turns));
    cases.extend([ChannelKind::Pipe, ChannelKind::Socket].map(messages));
    cases.extend(waits());
    cases
}

fn computing() -> Case {
    let mut case = Case::new("whoever computes gets at least the CPU time it asks for");
    let other = [
        Step::Run { work_ns: MS },
        Step::Yield,
        Step::Memory { bytes: 1 << 16, region_bytes: 1 << 12 },
        Step::Chase { hops: 64, region_bytes: 1 << 12 },
        Step::IoRun { bytes: 1 << 12 },
        Step::FirstTouch { bytes: (1 << 14) - 1 },
        Step::Map { bytes: (1 << 14) - 1 },
    ];
    let program = times(3, [Step::RunTime { cpu_ns: 2 * MS }]);
    case.tasks("computes", 3, other.into_iter().fold(program, ProgramBuilder::step));
    case.cpu_time.push(("computes".to_owned(), 6 * MS));
    case.least_elapsed_ns = 6 * MS;
    case
}

fn sleeping() -> Case {
    let mut case = Case::new("nobody sleeps shorter than it wants");
    let record = case.record(15, 2 * MS);
    case.tasks("sleeper", 3, times(5, [Step::StartClock { slot: 0 }, Step::IoWait, sleep(2), record]));
    case.least_elapsed_ns = 10 * MS;
    case
}

fn drawing() -> Case {
    let mut case = Case::new("whoever draws its times runs and sleeps for at least the shortest of them");
    let from = Distribution::Uniform { from_ns: MS, to_ns: 2 * MS };
    let drawn = [Drawn::Sleep, Drawn::CpuTime, Drawn::Work].map(|what| Step::Draw { what, from: from.clone() });
    case.tasks("draws", 3, times(4, drawn));
    case.cpu_time.push(("draws".to_owned(), 4 * MS));
    case.least_elapsed_ns = 8 * MS;
    case
}

fn looping() -> Case {
    let mut case = Case::new("loops run as often as they say, one of no turns not at all, and nothing follows an exit");
    let record = case.record(2 * 12, 0);
    let program = ProgramBuilder::new()
        .step(Step::StartClock { slot: 0 })
        .repeat(Some(0), |skipped| skipped.step(Step::Stop))
        .repeat(Some(3), |outer| outer.repeat(Some(4), |inner| inner.step(record)))
        .step(Step::Exit)
        .step(Step::Stop);
    case.tasks("loops", 2, program);
    case
}

fn timers(mode: TimerMode) -> [Case; 2] {
    let case = |says: &str, name: &str, least_elapsed_ns: u64| {
        let mut case = Case::new(format!("{says} ({mode:?})"));
        let timer = case.workload.add_timer(name);
        let record = case.record(2 * 4, 0);
        let expiry = [Step::StartClock { slot: 0 }, Step::Timer { timer, period_ns: 3 * MS, mode }, record];
        case.tasks("periodic", 2, times(4, expiry));
        case.least_elapsed_ns = least_elapsed_ns;
        case
    };
    [
        case("four periods of a timer of one's own take four periods", "unique", 4 * 3 * MS),
        case("two tasks take the expiries of a common timer in turn", "common", 8 * 3 * MS),
    ]
}

fn taking_turns(latch: bool) -> Case {
    let mut case = Case::new(format!("one at a time holds a lock{}", if latch { " that spins first" } else { "" }));
    let lock = match latch {
        true => case.workload.add_latch("lock", Latch { spin_ns: 20_000, ..Latch::default() }),
        false => case.workload.add_lock("lock"),
    };
    case.tasks("owner", 4, times(5, [Step::Lock(lock), sleep(1), Step::Unlock(lock)]));
    case.least_elapsed_ns = 4 * 5 * MS;
    case
}

fn messages(kind: ChannelKind) -> Case {
    let mut case = Case::new(format!("a reader gets all bytes of two writers, in pieces of its own size ({kind:?})"));
    let channel = case.workload.add_channel("channel", kind, 65_536);
    let record = case.record(30, 0);
    case.tasks("writer", 2, times(20, [Step::Send { channel, bytes: 150 }]));
    case.tasks("reader", 1, times(30, [Step::StartClock { slot: 0 }, Step::Receive { channel, bytes: 200 }, record]));
    case
}

fn suspending() -> Case {
    let mut case = Case::new("suspended tasks go on when they are resumed");
    let awake = case.workload.add_semaphore("awake", 0);
    let sleepers = case.tasks("suspended", 3, all([Step::Suspend, Step::SemPost(awake)]));
    // A resume is not remembered: it is repeated until all of them have told that they run again.
    case.endless("waker", 1, forever([Step::Resume(sleepers), sleep(1)]));
    case.endless("counter", 1, times(3, [Step::SemWait(awake)]).step(sleep(1)).step(Step::Stop));
    case.end = End::Stopped;
    case
}

fn parents() -> Case {
    let mut case = Case::new("a parent waits for as many of its children as it says");
    let done = case.workload.add_semaphore("done", 0);
    let record = case.record(3, 4 * MS);
    let child = case.endless("child", 0, all([Step::StartClock { slot: 0 }, sleep(4), record, Step::SemPost(done)]));
    case.completed.push(("child".to_owned(), 3));
    // All three have posted before they exited, so none of these waits blocks.
    let joined = times(3, [Step::Fork(child)]).step(Step::Join { count: 1 }).step(Step::Join { count: 2 });
    case.tasks("parent", 1, joined.repeat(Some(3), |body| body.step(Step::SemWait(done))));
    case.least_elapsed_ns = 4 * MS;
    case
}

fn served_list() -> Case {
    let mut case = Case::new("everybody on a list is served, each time");
    let (list, done) = (case.workload.add_list("list"), case.workload.add_semaphore("done", 0));
    let recorder = case.workload.add_recorder("latency");
    case.recorded.push((recorder.index(), 30, 0));
    case.tasks("worker", 3, times(10, [Step::Enlist { list, recorder: Some(recorder) }, Step::SemPost(done)]));
    case.endless("server", 1, forever([Step::Serve(list)]));
    case.endless("counter", 1, times(30, [Step::SemWait(done)]).step(sleep(2)).step(Step::Stop));
    case.end = End::Stopped;
    case
}

fn changing_attributes() -> Case {
    let mut case = Case::new("a task that changes how it is scheduled goes on");
    let group = case.workload.add_group("/group");
    let phase = case.workload.add_phase("phase");
    let changes = [
        Step::Phase(phase),
        Step::SetNice(5),
        Step::SetSlice { slice_ns: 2 * MS },
        Step::SetPolicy(Policy::Batch),
        Step::SetGroup(group),
        Step::SetAffinity(Affinity::All),
        Step::MigrateDisable,
        Step::SetPolicy(Policy::Idle),
        Step::MigrateEnable,
        Step::Kernel(KernelStep::Enter),
        Step::Kernel(KernelStep::Exit),
    ];
    let work = |program: ProgramBuilder, step| program.step(step).step(Step::RunTime { cpu_ns: MS });
    case.tasks("changes", 2, changes.into_iter().fold(ProgramBuilder::new(), work));
    case.cpu_time.push(("changes".to_owned(), 11 * MS));
    case
}

fn later_start() -> Case {
    let mut case = Case::new("a run goes on for tasks that start later");
    case.tasks("early", 1, all([sleep(1)]));
    let late = case.tasks("late", 2, all([sleep(1)]));
    case.workload.tasks[late.index()].start_ns = 10 * MS;
    case.least_elapsed_ns = 11 * MS;
    case
}

fn stopping() -> Case {
    let mut case = Case::new("a task may stop the workload");
    case.endless("endless", 2, forever([Step::RunTime { cpu_ns: 3_600_000 * MS }]));
    case.endless("waits", 1, all([Step::Suspend]));
    case.endless("stopper", 1, all([sleep(5), Step::Stop]));
    (case.end, case.least_elapsed_ns) = (End::Stopped, 5 * MS);
    case.completed.extend([("endless".to_owned(), 0), ("waits".to_owned(), 0)]);
    case
}

fn duration() -> Case {
    let mut case = Case::new("a workload is over when its duration is");
    case.endless("endless", 2, forever([Step::Run { work_ns: MS }, sleep(1)]));
    case.workload.duration_ns = Some(10 * MS);
    (case.end, case.least_elapsed_ns) = (End::Stopped, 10 * MS);
    case.completed.push(("endless".to_owned(), 0));
    case
}

fn initial_count() -> Case {
    let mut case = Case::new("a semaphore lets its initial count through, and one more for each post");
    let [semaphore, passed] = [3, 0].map(|initial| case.workload.add_semaphore("semaphore", initial));
    let taken = case.record(5, 0);
    let take = [Step::StartClock { slot: 0 }, Step::SemWait(semaphore), taken, Step::SemPost(passed)];
    case.tasks("taker", 6, all(take));
    case.completed = vec![("taker".to_owned(), 5)];
    let counter = times(2, [Step::SemPost(semaphore)]);
    let counter = counter.repeat(Some(5), |body| body.step(Step::SemWait(passed)));
    // Whoever passed has time to end, and a sixth would have time to pass.
    case.endless("counter", 1, counter.step(sleep(50)).step(Step::Stop));
    case.end = End::Stopped;
    case
}

fn recording_since() -> Case {
    let mut case = Case::new("a time since an instant counts from the start, and so does a clock that nobody started");
    let recorder = RecorderId(0);
    case.record(2, 4 * MS);
    let arrival = || Step::Draw { what: Drawn::Arrival { slot: 2 }, from: Distribution::Constant { ns: 3 * MS } };
    let since = |since_ns| Step::RecordSince { since_ns, recorder };
    case.tasks("records", 1, all([arrival(), arrival(), since(2 * MS), sleep(4), since(6 * MS)]));
    case.least_elapsed_ns = 10 * MS;
    case
}

fn queueing() -> Case {
    let mut case =
        Case::new("what is taken from a queue has been there since it was added, and arrivals come no sooner than due");
    let queue = case.workload.add_semaphore("queue", 0);
    let record = case.record(4, 5 * MS);
    let arrival = Step::Draw { what: Drawn::Arrival { slot: 1 }, from: Distribution::Constant { ns: 2 * MS } };
    let program = all([Step::StartClock { slot: 1 }])
        .repeat(Some(4), |body| body.step(arrival).step(Step::SemPost(queue)))
        .step(sleep(5))
        .repeat(Some(4), |body| body.step(Step::SemTake { semaphore: queue, slot: 0 }).step(record));
    case.tasks("queues", 1, program);
    case.least_elapsed_ns = 13 * MS;
    case
}

/// Six requests for two workers: each is carried out once, by one of them, and both go on when all are taken.
fn working() -> Case {
    let mut case = Case::new("whoever is free carries out the next request, and nobody waits for more than there are");
    let queue = case.workload.add_semaphore("requests", 0);
    let record = case.record(6, 2 * MS);
    let request = [Step::StartClock { slot: 0 }, sleep(2), record];
    let program =
        case.workload.add_program(request.into_iter().fold(ProgramBuilder::new(), ProgramBuilder::step).finish());
    let submit = Step::Submit { semaphore: queue, program };
    case.tasks("submits", 1, ProgramBuilder::new().repeat(Some(6), |body| body.step(submit.clone()).step(sleep(1))));
    let latency = case.workload.add_recorder("from adding to the end");
    case.recorded.push((latency.index(), 6, 2 * MS));
    let work = ProgramBuilder::new().step(Step::Work { semaphore: queue, requests: 6, recorder: Some(latency) });
    case.tasks("works", 2, work.step(Step::RunTime { cpu_ns: MS }));
    case.cpu_time.push(("works".to_owned(), MS));
    case.least_elapsed_ns = 6 * MS;
    case
}

/// Each way to wait for somebody else: nobody goes on before it is released.
fn waits() -> Vec<Case> {
    let case = |what: &str| Case::new(format!("nobody goes on before it is released: {what}"));
    let mut cases = Vec::new();

    let mut of = case("semaphore");
    let semaphore = of.workload.add_semaphore("semaphore", 0);
    cases.push(of.waiting(
        2,
        [vec![], vec![Step::SemWait(semaphore)]],
        [vec![], vec![Step::SemPost(semaphore), Step::SemPost(semaphore)]],
    ));

    // Those who wait hold the lock from before they say so until they wait.
    for (what, waiters) in [("condition, by a signal each", 3), ("condition, by one broadcast", 3), ("sync", 1)] {
        let mut of = case(what);
        let (lock, condition) = (of.workload.add_lock("lock"), of.workload.add_condition("condition"));
        let wait = Step::Wait { condition, lock };
        let [wait, wake] = match what {
            "sync" => [vec![wait, Step::Signal(condition)], vec![Step::SignalAndWait { condition, lock }]],
            "condition, by one broadcast" => [vec![wait], vec![Step::Broadcast(condition)]],
            _ => [vec![wait], vec![Step::Signal(condition); 3]],
        };
        let held = |steps: Vec<Step>| [vec![Step::Lock(lock)], steps, vec![Step::Unlock(lock)]].concat();
        let waits = [wait, vec![Step::Unlock(lock)]].concat();
        cases.push(of.waiting(waiters, [vec![Step::Lock(lock)], waits], [vec![], held(wake)]));
    }

    let spin_then_block = BarrierWait::SpinThenBlock { spin_ns: 100_000 };
    for kind in [BarrierWait::Spin, BarrierWait::Block, BarrierWait::Poll, spin_then_block] {
        let mut of = case(&format!("barrier, {kind:?}"));
        let barrier = of.workload.add_barrier("barrier", 3, kind);
        cases.push(of.waiting(2, [vec![], vec![Step::Barrier(barrier)]], [vec![], vec![Step::Barrier(barrier)]]));
    }

    for kind in [ChannelKind::Pipe, ChannelKind::Socket] {
        let mut of = case(&format!("data, {kind:?}"));
        let channel = of.workload.add_channel("channel", kind, 65_536);
        let send = |bytes| Step::Send { channel, bytes };
        let receive = Step::Receive { channel, bytes: 100 };
        cases.push(of.waiting(1, [vec![send(60)], vec![receive]], [vec![], vec![send(40)]]));
    }

    let mut of = case("room in a pipe");
    let channel = of.workload.add_channel("channel", ChannelKind::Pipe, 65_536);
    let send = |bytes| Step::Send { channel, bytes };
    let receive = vec![Step::Receive { channel, bytes: 4_096 }; 17];
    cases.push(of.waiting(1, [vec![send(65_536)], vec![send(4_096)]], [vec![], receive]));

    for latch in [false, true] {
        let mut of = case(if latch { "lock that spins first" } else { "lock" });
        let lock = match latch {
            true => of.workload.add_latch("lock", Latch { spin_ns: 100_000, ..Latch::default() }),
            false => of.workload.add_lock("lock"),
        };
        let taken = of.workload.add_semaphore("taken", 0);
        cases.push(of.waiting(
            1,
            [vec![Step::SemWait(taken)], vec![Step::Lock(lock), Step::Unlock(lock)]],
            [vec![Step::Lock(lock), Step::SemPost(taken)], vec![Step::Unlock(lock)]],
        ));
    }

    let mut of = case("list");
    let list = of.workload.add_list("list");
    let enlist = Step::Enlist { list, recorder: None };
    cases.push(of.waiting(1, [vec![], vec![enlist]], [vec![], vec![Step::Serve(list)]]));

    let mut of = case("exit of a child");
    let may_exit = of.workload.add_semaphore("may exit", 0);
    let child = of.endless("child", 0, all([Step::SemWait(may_exit)]));
    of.completed.push(("child".to_owned(), 1));
    cases.push(of.waiting(
        1,
        [vec![Step::Fork(child)], vec![Step::Join { count: 1 }]],
        [vec![], vec![Step::SemPost(may_exit)]],
    ));
    cases
}

/// The kinds of steps. A step of a new kind does not compile until it has a name here, and the table lacks it until a program has it.
const KINDS: [&str; 42] = [
    "run",
    "run time",
    "sleep",
    "timer",
    "lock",
    "unlock",
    "wait",
    "signal",
    "broadcast",
    "signal and wait",
    "barrier",
    "suspend",
    "resume",
    "semaphore post",
    "semaphore wait",
    "semaphore take",
    "send",
    "receive",
    "enlist",
    "serve",
    "fork",
    "join",
    "yield",
    "affinity",
    "migrate disable",
    "migrate enable",
    "wait for I/O",
    "nice",
    "policy",
    "slice",
    "group",
    "memory",
    "chase",
    "first touch",
    "map",
    "io",
    "clock",
    "phase",
    "loop",
    "draw",
    "exit",
    "stop",
];

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Run { .. } => "run",
        Step::RunTime { .. } => "run time",
        Step::Sleep { .. } => "sleep",
        Step::Timer { .. } => "timer",
        Step::Lock(_) => "lock",
        Step::Unlock(_) => "unlock",
        Step::Wait { .. } => "wait",
        Step::Signal(_) => "signal",
        Step::Broadcast(_) => "broadcast",
        Step::SignalAndWait { .. } => "signal and wait",
        Step::Barrier(_) => "barrier",
        Step::Suspend => "suspend",
        Step::Resume(_) => "resume",
        Step::SemPost(_) => "semaphore post",
        Step::SemWait(_) => "semaphore wait",
        Step::SemTake { .. } => "semaphore take",
        Step::Submit { .. } => "submit",
        Step::Work { .. } => "work",
        Step::Send { .. } => "send",
        Step::Receive { .. } => "receive",
        Step::Enlist { .. } => "enlist",
        Step::Serve(_) => "serve",
        Step::Fork(_) => "fork",
        Step::Join { .. } => "join",
        Step::Yield => "yield",
        Step::SetAffinity(_) => "affinity",
        Step::MigrateDisable => "migrate disable",
        Step::MigrateEnable => "migrate enable",
        Step::IoWait => "wait for I/O",
        Step::Kernel(_) | Step::LockShared(_) => "kernel",
        // Not every kernel takes them.
        Step::SetUtilClamp(_) => "utilisation clamp",
        Step::SetNice(_) => "nice",
        Step::SetPolicy(_) => "policy",
        Step::SetSlice { .. } => "slice",
        Step::SetGroup(_) => "group",
        Step::Memory { .. } => "memory",
        Step::Chase { .. } => "chase",
        Step::FirstTouch { .. } => "first touch",
        Step::Map { .. } => "map",
        Step::IoRun { .. } => "io",
        Step::StartClock { .. } | Step::RecordClock { .. } | Step::RecordSince { .. } => "clock",
        Step::Phase(_) => "phase",
        Step::LoopStart { .. } | Step::LoopEnd { .. } => "loop",
        Step::Draw { .. } => "draw",
        Step::Exit => "exit",
        Step::Stop => "stop",
    }
}

#[test]
fn the_table_has_every_kind_of_step() {
    let cases = cases();
    let programs = cases.iter().flat_map(|case| &case.workload.programs);
    let has: BTreeSet<&str> = programs.flat_map(|program| &program.steps).map(kind).collect();
    let missing: Vec<&str> = KINDS.into_iter().filter(|kind| !has.contains(kind)).collect();
    assert!(missing.is_empty(), "no program has {missing:?}");
}
