//! Mixed workloads in which groups are planted, and recordings of their runs.
//!
//! Every mix has pairs, a pipeline, pools of workers with a lock each, two services that talk now and then, and threads of one process
//! that have nothing to do with each other. The mixes differ in sizes, work and seeds.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::{BTreeMap, BTreeSet};

use warmcore_capture::Recording;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_places::place::{BatchConduct, Request, collect};
use warmcore_places::sim::Sim;
use warmcore_replay::Selection;
use warmcore_schedulers::SchedulerSpec;
use warmcore_topology::Machine;
use warmcore_trace::{Event, RunTables, TaskId, TaskInfo};
use warmcore_workload::{ChannelId, ChannelKind, ProcessId, ProgramBuilder, Step, Task, Workload};

/// How long mixes go on that have no end of their own.
const DURATION_NS: u64 = 400_000_000;

/// A workload and the group that every task was planted in.
pub struct Mix {
    pub workload: Workload,
    pub truth: BTreeMap<String, u32>,
    groups: u32,
    process: ProcessId,
    /// Decides sizes and work (Lehmer's generator).
    state: u64,
    /// How long each group works, about, where the work of a mix has an end.
    work_ns: Option<u64>,
}

fn send(channel: ChannelId) -> Step {
    Step::Send { channel, bytes: 100 }
}

fn receive(channel: ChannelId) -> Step {
    Step::Receive { channel, bytes: 100 }
}

fn run(work_ns: u64) -> Step {
    Step::Run { work_ns }
}

fn rounds(count: Option<u64>, body: impl FnOnce(ProgramBuilder) -> ProgramBuilder) -> ProgramBuilder {
    ProgramBuilder::new().repeat(count, body)
}

impl Mix {
    fn new(seed: u64, work_ns: Option<u64>) -> Self {
        let mut workload = Workload::empty("mix");
        workload.duration_ns = work_ns.is_none().then_some(DURATION_NS);
        let process = workload.add_process("server");
        Self { workload, truth: BTreeMap::new(), groups: 0, process, state: seed + 1, work_ns }
    }

    /// How many rounds of this length a group has.
    fn count(&self, round_ns: u64) -> Option<u64> {
        self.work_ns.map(|work_ns| work_ns / round_ns + 1)
    }

    /// A number from `low` to `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.state = self.state * 48_271 % 2_147_483_647;
        low + self.state % (high - low + 1)
    }

    fn group(&mut self) -> u32 {
        self.groups += 1;
        self.groups
    }

    fn task(&mut self, group: u32, name: String, program: ProgramBuilder) {
        let program = self.workload.add_program(program.finish());
        self.truth.insert(name.clone(), group);
        self.workload.add_task(Task::new(name, self.process, program));
    }

    fn channel(&mut self, name: String) -> ChannelId {
        self.workload.add_channel(name, ChannelKind::Pipe, 4096)
    }

    /// Number of groups planted.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    fn pair(&mut self) {
        let (group, work_ns) = (self.group(), self.between(5_000, 60_000));
        let (there, back) = (self.channel(format!("there-{group}")), self.channel(format!("back-{group}")));
        let count = self.count(2 * work_ns);
        let ping = rounds(count, |body| body.step(run(work_ns)).step(send(there)).step(receive(back)));
        let pong = rounds(count, |body| body.step(receive(there)).step(run(work_ns)).step(send(back)));
        self.task(group, format!("ping-{group}"), ping);
        self.task(group, format!("pong-{group}"), pong);
    }

    fn pipeline(&mut self) {
        let (group, stages, work_ns) = (self.group(), self.between(3, 8) as usize, self.between(10_000, 50_000));
        let channels: Vec<ChannelId> =
            (1..stages).map(|stage| self.channel(format!("to-stage-{group}-{stage}"))).collect();
        let count = self.count(work_ns + stages as u64 * 3_000);
        for stage in 0..stages {
            let program = rounds(count, |body| {
                let body = if stage > 0 { body.step(receive(channels[stage - 1])) } else { body };
                // Later stages take longer, or nobody would ever wait.
                let body = body.step(run(work_ns + stage as u64 * 3_000));
                channels.get(stage).map_or(body.clone(), |channel| body.step(send(*channel)))
            });
            self.task(group, format!("stage-{group}-{stage}"), program);
        }
    }

    fn pool(&mut self) {
        let (group, workers, work_ns) = (self.group(), self.between(2, 6), self.between(20_000, 60_000));
        let lock = self.workload.add_lock(format!("lock-{group}"));
        let count = self.count(work_ns + workers * work_ns / 2);
        for worker in 0..workers {
            let program = rounds(count, |body| {
                body.step(run(work_ns)).step(Step::Lock(lock)).step(run(work_ns / 2)).step(Step::Unlock(lock))
            });
            self.task(group, format!("worker-{group}-{worker}"), program);
        }
    }

    /// Two services of a dispatcher and its workers; after so many rounds the first asks the second.
    fn services(&mut self) {
        let groups = [self.group(), self.group()];
        let (workers, work_ns, between) = (self.between(2, 4), self.between(20_000, 80_000), self.between(30, 80));
        let count = self.count(between * work_ns);
        let question = self.channel(format!("question-{}", groups[0]));
        let answer = self.channel(format!("answer-{}", groups[0]));
        for (side, group) in groups.into_iter().enumerate() {
            let requests = self.channel(format!("requests-{group}"));
            let replies = self.channel(format!("replies-{group}"));
            let dispatcher = rounds(count, |body| {
                let body = body.repeat(Some(between), |body| {
                    let body = (0..workers).fold(body, |body, _| body.step(send(requests)));
                    (0..workers).fold(body, |body, _| body.step(receive(replies)))
                });
                match side {
                    0 => body.step(send(question)).step(receive(answer)),
                    _ => body.step(receive(question)).step(send(answer)),
                }
            });
            self.task(group, format!("dispatcher-{group}"), dispatcher);
            for worker in 0..workers {
                let served = count.map(|count| count * between);
                let program =
                    rounds(served, |body| body.step(receive(requests)).step(run(work_ns)).step(send(replies)));
                self.task(group, format!("service-{group}-{worker}"), program);
            }
        }
    }

    fn unrelated(&mut self, count: u64) {
        for _ in 0..count {
            let (group, work_ns) = (self.group(), self.between(100_000, 900_000));
            let duration_ns = self.between(300_000, 2_000_000);
            let count = self.count(work_ns + duration_ns);
            let program = rounds(count, |body| body.step(run(work_ns)).step(Step::Sleep { duration_ns }));
            self.task(group, format!("alone-{group}"), program);
        }
    }

    /// A mix that goes on for a fixed time, with so many more threads that have nothing to do with each other.
    pub fn of(seed: u64, load: u64) -> Self {
        Self::made(Self::new(seed, None), seed, load)
    }

    /// One whose groups end when their work is done, each after about this time.
    pub fn of_work(seed: u64, work_ns: u64) -> Self {
        Self::made(Self::new(seed, Some(work_ns)), seed, 0)
    }

    fn made(mut mix: Self, seed: u64, load: u64) -> Self {
        (0..1 + seed % 3).for_each(|_| mix.pair());
        mix.pipeline();
        (0..1 + seed % 2).for_each(|_| mix.pool());
        mix.services();
        mix.unrelated(3 + load);
        mix
    }
}

/// A run under eevdf as a recording, and its threads.
pub fn recorded(workload: &Workload, machine: &Machine, seed: u64, memory: MemoryChoice) -> (Recording, BTreeSet<i32>) {
    let scheduler = SchedulerSpec::parse("eevdf").unwrap();
    let options = RunOptions { memory, ..RunOptions::default() };
    let request = Request { options, ..Request::new(machine, workload, &scheduler, seed) };
    let conduct = BatchConduct { jobs: 1, stop: Default::default() };
    let made = collect(&Sim, &[request], &conduct, &|_, run| {
        let mut events: Vec<Event> = Vec::new();
        let outcome = run?.send(Some(&mut events))?.outcome;
        Ok((events, outcome.tasks, outcome.elapsed_ns))
    });
    let (events, tasks, end_ns) = made.unwrap().remove(0);
    let info = |task: warmcore_trace::TaskOutcome| TaskInfo {
        id: TaskId(task.id),
        name: task.name,
        role: task.role,
        application: 0,
        application_name: String::new(),
        process: 0,
    };
    let tasks: Vec<TaskInfo> = tasks.into_iter().map(info).collect();
    let (recording, _) =
        warmcore_replay::events::recording(events, &RunTables::default(), &tasks, machine, (0, end_ns));
    let chosen = Selection::default().threads(&recording).unwrap();
    (recording, chosen)
}
