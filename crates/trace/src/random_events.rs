//! Random valid event sequences for property tests: a small state machine of CPUs, queues and tasks that takes random
//! steps and writes down what a kernel would have reported. It schedules without any sense, which is the point.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use warmcore_topology::{CpuId, CpuSet, Machine};

use crate::{
    DecisionKind, DecisionValue, Event, EventKind, MigrationKind, OVERHEAD_KINDS, OverheadKind, PlaceReason, PrevState,
    RecordedThread, RunTables, SearchStart, SearchStep, TaskId, TaskInfo, Throttler,
};

#[derive(Clone, Copy, PartialEq)]
enum RandomTaskState {
    Placing,
    Queued(CpuId),
    Running,
    Sleeping,
    Dead,
}

/// A run on a machine with several LLCs, nodes and sockets, unequal restrictions and all kinds of events.
pub(crate) struct RandomRun {
    pub(crate) machine: Machine,
    pub(crate) tables: RunTables,
    pub(crate) events: Vec<Event>,
    random: Pcg64Mcg,
    now_ns: u64,
    tasks: Vec<(RandomTaskState, CpuId)>,
    current: Vec<TaskId>,
    offline: Vec<bool>,
    /// By task: a quota keeps it from running.
    throttled: Vec<bool>,
}

/// The tables of random runs: sets that overlap, equal sets, the full set under another number, a set without CPUs.
fn tables(machine: &Machine) -> RunTables {
    let set = |list: &str| CpuSet::parse_list(list).unwrap();
    let names = |prefix: &str| (0..3).map(|i| format!("{prefix}_{i}")).collect();
    let decision = |index| DecisionKind::new(["stays", "moves", "waits"][index], "a reason", DecisionValue::Cpu);
    RunTables {
        restrictions: vec![
            machine.all_cpus().clone(),
            set("0"),
            set("0-3"),
            set("2-5"),
            set("0-3"),
            machine.all_cpus().clone(),
            set(""),
        ],
        counters: names("counter"),
        counted_per_stay: false,
        phases: names("phase"),
        decisions: (0..3).map(decision).collect(),
        scores: names("score"),
        threads: Vec::new(),
        foreign: (0..3).map(|thread| RecordedThread { thread, ..RecordedThread::default() }).collect(),
        hotplug: true,
        throttle: true,
    }
}

impl RandomRun {
    /// A run of `steps` random steps with at most `max_tasks` tasks.
    pub(crate) fn new(seed: u64, steps: usize, max_tasks: usize) -> Self {
        let machine = warmcore_topology::resolve("2s2n2l1c2t").unwrap();
        let mut run = Self {
            tables: tables(&machine),
            current: vec![TaskId::IDLE; machine.cpu_count()],
            offline: vec![false; machine.cpu_count()],
            throttled: Vec::new(),
            machine,
            events: Vec::new(),
            random: Pcg64Mcg::new(u128::from(seed)),
            now_ns: 0,
            tasks: Vec::new(),
        };
        for _ in 0..steps {
            run.step(max_tasks);
        }
        run
    }

    /// Two applications that share the tasks in turn.
    pub(crate) fn task_infos(&self) -> Vec<TaskInfo> {
        let info = |index: usize| TaskInfo {
            id: TaskId(index as u32),
            name: format!("task-{index}"),
            role: if index.is_multiple_of(3) { "sender" } else { "receiver" }.to_owned(),
            application: index as u32 % 2,
            application_name: format!("application {}", index % 2),
            process: index as u32 / 2,
        };
        (0..self.tasks.len()).map(info).collect()
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random.next_u64() % limit as u64) as usize
    }

    fn any_cpu(&mut self) -> CpuId {
        CpuId::from_index(self.below(self.current.len()))
    }

    /// A random task that satisfies the condition.
    fn any_task(&mut self, wanted: impl Fn(RandomTaskState) -> bool) -> Option<TaskId> {
        let candidates: Vec<usize> = (0..self.tasks.len()).filter(|index| wanted(self.tasks[*index].0)).collect();
        (!candidates.is_empty()).then(|| TaskId(candidates[self.below(candidates.len())] as u32))
    }

    fn emit(&mut self, cpu: CpuId, kind: EventKind) {
        self.events.push(Event { time_ns: self.now_ns, cpu, kind });
    }

    fn step(&mut self, max_tasks: usize) {
        if self.below(10) < 6 {
            self.now_ns += self.below(1000) as u64;
        }
        let cpu = self.any_cpu();
        match self.below(22) {
            0 | 1 if self.tasks.len() < max_tasks => self.fork(cpu),
            0..=4 => self.place(),
            5..=7 => self.wake(cpu),
            8..=13 => self.switch(cpu),
            14 => self.migrate_queued(cpu),
            15 => self.move_sleeping(cpu),
            16 => self.set_affinity(cpu),
            17 => self.wake_again(cpu),
            18 => self.remark(cpu),
            19 | 20 => self.throttle(cpu),
            _ => self.kill(cpu),
        }
    }

    fn fork(&mut self, cpu: CpuId) {
        let child = TaskId(self.tasks.len() as u32);
        self.tasks.push((RandomTaskState::Placing, cpu));
        self.throttled.push(false);
        self.emit(cpu, EventKind::Fork { parent: self.current[cpu.index()], child });
        if self.below(3) == 0 {
            self.emit_affinity(cpu, child);
        }
    }

    fn emit_affinity(&mut self, cpu: CpuId, task: TaskId) {
        let restriction = self.below(self.tables.restrictions.len()) as u32;
        self.emit(cpu, EventKind::Affinity { task, restriction });
    }

    fn place(&mut self) {
        let Some(task) = self.any_task(|doing| doing == RandomTaskState::Placing) else { return };
        let to = self.any_cpu();
        let old = self.tasks[task.index()].1;
        if old != to && self.below(2) == 0 {
            self.emit(old, EventKind::Migrate { task, from: old, to, kind: MigrationKind::Wakeup });
        }
        self.tasks[task.index()] = (RandomTaskState::Queued(to), to);
        let reason = self.any_reason();
        self.emit(to, EventKind::Wakeup { task, reason });
    }

    fn wake(&mut self, cpu: CpuId) {
        let Some(task) = self.any_task(|doing| doing == RandomTaskState::Sleeping) else { return };
        self.tasks[task.index()].0 = RandomTaskState::Placing;
        self.emit(
            cpu,
            EventKind::Waking { task, target_cpu: self.tasks[task.index()].1, waker: self.current[cpu.index()] },
        );
        if self.below(2) == 0 {
            self.place();
        }
    }

    fn any_reason(&mut self) -> Option<PlaceReason> {
        let start = SearchStart::ALL[self.below(SearchStart::COUNT)];
        let step = SearchStep::ALL[self.below(SearchStep::COUNT)];
        (self.below(3) > 0).then_some(PlaceReason { start, step })
    }

    fn switch(&mut self, cpu: CpuId) {
        let prev = self.current[cpu.index()];
        let queued = |doing: RandomTaskState| doing == RandomTaskState::Queued(cpu);
        let next = if self.below(4) == 0 { None } else { self.any_task(queued) }.unwrap_or(TaskId::IDLE);
        if prev == next {
            return;
        }
        let (prev_state, doing) = match self.below(5) {
            _ if prev.is_idle() => (PrevState::Idle, RandomTaskState::Dead),
            0 | 1 => (PrevState::Runnable, RandomTaskState::Queued(cpu)),
            2 | 3 => (PrevState::Sleeping, RandomTaskState::Sleeping),
            _ => {
                self.emit(cpu, EventKind::Exit { task: prev });
                (PrevState::Dead, RandomTaskState::Dead)
            }
        };
        self.emit(cpu, EventKind::Switch { prev, prev_state, next });
        if !prev.is_idle() {
            self.tasks[prev.index()] = (doing, cpu);
        }
        if !next.is_idle() {
            self.tasks[next.index()] = (RandomTaskState::Running, cpu);
        }
        self.current[cpu.index()] = next;
    }

    fn migrate_queued(&mut self, cpu: CpuId) {
        let Some(task) = self.any_task(|doing| matches!(doing, RandomTaskState::Queued(_))) else { return };
        let (from, to) = (self.tasks[task.index()].1, self.any_cpu());
        if from != to {
            let kind = MigrationKind::ALL[2 + self.below(5)];
            self.emit(cpu, EventKind::Migrate { task, from, to, kind });
            self.tasks[task.index()] = (RandomTaskState::Queued(to), to);
        }
    }

    /// As a kernel does that keeps sleeping tasks queued for a while and balances them.
    fn move_sleeping(&mut self, cpu: CpuId) {
        let Some(task) = self.any_task(|doing| doing == RandomTaskState::Sleeping) else { return };
        let (from, to) = (self.tasks[task.index()].1, self.any_cpu());
        if from != to {
            self.emit(cpu, EventKind::Migrate { task, from, to, kind: MigrationKind::Balance });
            self.tasks[task.index()].1 = to;
        }
    }

    fn set_affinity(&mut self, cpu: CpuId) {
        if let Some(task) = self.any_task(|doing| doing != RandomTaskState::Dead) {
            self.emit_affinity(cpu, task);
        }
    }

    /// Wakeups of tasks that do not sleep.
    fn wake_again(&mut self, cpu: CpuId) {
        let awake = |doing| matches!(doing, RandomTaskState::Queued(_) | RandomTaskState::Running);
        let Some(task) = self.any_task(awake) else { return };
        let target_cpu = self.tasks[task.index()].1;
        self.emit(cpu, EventKind::Waking { task, target_cpu, waker: TaskId::IDLE });
        self.emit(target_cpu, EventKind::Wakeup { task, reason: None });
    }

    fn remark(&mut self, cpu: CpuId) {
        let task = self.any_task(|doing| doing == RandomTaskState::Running).unwrap_or(TaskId::IDLE);
        let (index, value) = (self.below(3) as u32, self.below(1000));
        let kind = match self.below(8) {
            0 => EventKind::Counter { counter: index, task, value: value as u64 },
            1 => EventKind::Phase { task, phase: index },
            2 => EventKind::Decision { decision: index, task, value: value as i64 - 500 },
            3 => EventKind::Score { score: index, task, value: value as i64 - 500 },
            4 | 5 if self.current[cpu.index()].is_idle() => {
                EventKind::Foreign { thread: (value % 3 > 0).then_some(index) }
            }
            6 => {
                let offline = &mut self.offline[cpu.index()];
                EventKind::Hotplug { online: std::mem::replace(offline, !*offline) }
            }
            _ => EventKind::Overhead { kind: OverheadKind::ALL[value % OVERHEAD_KINDS], duration_ns: value as u64 },
        };
        self.emit(cpu, kind);
    }

    /// A quota, or of every other task the reservation, stops any task, whatever it does, or lets it run again.
    fn throttle(&mut self, cpu: CpuId) {
        let Some(task) = self.any_task(|doing| doing != RandomTaskState::Dead) else { return };
        let throttled = &mut self.throttled[task.index()];
        *throttled = !*throttled;
        let throttled = *throttled;
        let throttler = if task.0 % 2 == 0 { Throttler::Quota } else { Throttler::Reservation };
        self.emit(cpu, EventKind::Throttle { task, throttled: throttled.then_some(throttler) });
    }

    /// A task that is not running is killed.
    fn kill(&mut self, cpu: CpuId) {
        if self.below(4) > 0 {
            return;
        }
        let Some(task) = self.any_task(|doing| !matches!(doing, RandomTaskState::Running | RandomTaskState::Dead))
        else {
            return;
        };
        self.tasks[task.index()].0 = RandomTaskState::Dead;
        self.emit(cpu, EventKind::Exit { task });
    }
}
