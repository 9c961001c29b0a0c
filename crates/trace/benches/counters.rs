//! How long the counters take per event: `cargo bench -p warmcore-trace`.
//!
//! A made-up kernel wakes and blocks tasks at random: per wakeup a waking, a wakeup, a migration in a third of the cases
//! (one in four of them to another LLC), and one or two switches, as a busy machine reports them. Tasks and CPUs follow
//! each other without any locality. Only the sink is timed, in batches of the simulator's size, with the events still in
//! the cache as they are in the simulator. Plain output, no framework: one line per size.

use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{Counters, Event, EventKind, MigrationKind, PrevState, RunTables, Sink, Start, TaskId};

const BATCH: usize = 2048;

/// Writes the events of tasks that are woken and block at random.
struct Kernel {
    random: Pcg64Mcg,
    now_ns: u64,
    events: Vec<Event>,
    current: Vec<TaskId>,
    queues: Vec<VecDeque<TaskId>>,
    /// Where each task ran last.
    cpu: Vec<CpuId>,
    sleeping: Vec<TaskId>,
    /// For each CPU: those it shares its LLC with.
    llc_cpus: Vec<Rc<[CpuId]>>,
}

impl Kernel {
    fn new(machine: &Machine, tasks: usize, restrictions: u32) -> Self {
        let cpus = machine.cpu_count();
        let llcs: Vec<Rc<[CpuId]>> = machine.llcs().map(|llc| machine.cpus_of_llc(llc).iter().collect()).collect();
        let mut kernel = Self {
            random: Pcg64Mcg::new(1),
            now_ns: 0,
            events: Vec::new(),
            current: vec![TaskId::IDLE; cpus],
            queues: vec![VecDeque::new(); cpus],
            cpu: (0..tasks).map(|task| CpuId((task % cpus) as u32)).collect(),
            sleeping: (0..tasks as u32).map(TaskId).collect(),
            llc_cpus: machine.cpus().map(|cpu| Rc::clone(&llcs[machine.llc_of(cpu).index()])).collect(),
        };
        for task in 0..tasks as u32 {
            let home = kernel.cpu[task as usize];
            kernel.emit(home, EventKind::Fork { parent: TaskId::IDLE, child: TaskId(task) });
            if restrictions > 0 {
                kernel.emit(home, EventKind::Affinity { task: TaskId(task), restriction: task % restrictions });
            }
            kernel.emit(home, EventKind::Wakeup { task: TaskId(task), reason: None });
            kernel.switch(home, PrevState::Idle, TaskId(task));
            kernel.switch(home, PrevState::Sleeping, TaskId::IDLE);
        }
        kernel
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.random.next_u64()) * limit as u128) >> 64) as usize
    }

    fn emit(&mut self, cpu: CpuId, kind: EventKind) {
        self.events.push(Event { time_ns: self.now_ns, cpu, kind });
    }

    fn step(&mut self) {
        self.now_ns += self.below(400) as u64;
        // As many tasks asleep as awake: busy CPUs with short queues, some idle.
        if self.sleeping.len() > self.cpu.len() / 2 { self.wake() } else { self.block() }
    }

    fn wake(&mut self) {
        let position = self.below(self.sleeping.len());
        let task = self.sleeping.swap_remove(position);
        let old = self.cpu[task.index()];
        let waker = CpuId::from_index(self.below(self.current.len()));
        self.emit(waker, EventKind::Waking { task, target_cpu: old, waker: TaskId::IDLE });
        let mut to = old;
        if self.below(3) == 0 {
            let llc = Rc::clone(&self.llc_cpus[old.index()]);
            let leave = self.below(4) == 0;
            to = if leave { CpuId::from_index(self.below(self.current.len())) } else { llc[self.below(llc.len())] };
            if to != old {
                self.emit(waker, EventKind::Migrate { task, from: old, to, kind: MigrationKind::Wakeup });
            }
        }
        self.cpu[task.index()] = to;
        self.now_ns += self.below(100) as u64;
        self.emit(to, EventKind::Wakeup { task, reason: None });
        let current = self.current[to.index()];
        if current.is_idle() {
            self.switch(to, PrevState::Idle, task);
        } else if self.below(4) == 0 {
            self.queues[to.index()].push_back(current);
            self.switch(to, PrevState::Runnable, task);
        } else {
            self.queues[to.index()].push_back(task);
        }
    }

    fn block(&mut self) {
        let cpu = loop {
            let cpu = self.below(self.current.len());
            if !self.current[cpu].is_idle() {
                break CpuId::from_index(cpu);
            }
        };
        self.sleeping.push(self.current[cpu.index()]);
        let next = self.queues[cpu.index()].pop_front().unwrap_or(TaskId::IDLE);
        self.switch(cpu, PrevState::Sleeping, next);
    }

    fn switch(&mut self, cpu: CpuId, prev_state: PrevState, next: TaskId) {
        let prev = std::mem::replace(&mut self.current[cpu.index()], next);
        self.emit(cpu, EventKind::Switch { prev, prev_state, next });
    }
}

/// Nanoseconds per event over so many batches: 5th percentile and median. Neither sees when other programs took the CPU
/// away; the first comes close to what a core does that is not shared with another hardware thread.
fn measure(machine: &Machine, tasks: usize, restrictions: &[CpuSet], batches: usize) -> (f64, f64) {
    let tables = RunTables { restrictions: restrictions.to_vec(), ..RunTables::default() };
    let mut kernel = Kernel::new(machine, tasks, restrictions.len() as u32);
    let mut counters = Counters::new(machine, &tables, Start::Idle { time_ns: 0 });
    let mut per_event = Vec::new();
    while per_event.len() < batches {
        while kernel.events.len() < BATCH {
            kernel.step();
        }
        let start = Instant::now();
        counters.events(black_box(&kernel.events)).expect("made-up events are valid");
        // The first batches create tasks and touch memory for the first time.
        if kernel.now_ns > 1_000_000 {
            per_event.push(start.elapsed().as_nanos() as f64 / kernel.events.len() as f64);
        }
        kernel.events.clear();
    }
    let metrics = counters.metrics(0, &tables, &[]);
    assert_eq!(metrics.totals.unexpected_events, 0);
    black_box(metrics);
    per_event.sort_by(f64::total_cmp);
    (per_event[batches / 20], per_event[batches / 2])
}

fn main() {
    println!("nanoseconds per event");
    println!("{:<12} {:>6} {:>6} {:>12} {:>6} {:>6}", "machine", "CPUs", "tasks", "restrictions", "p5", "median");
    for (shape, tasks) in [("2s1n2l8c2t", 256), ("2s4n2l8c2t", 1024), ("2s8n4l8c2t", 4096)] {
        let machine = warmcore_topology::resolve(shape).expect("the shapes are valid");
        let per_socket: Vec<CpuSet> = machine.sockets().map(|socket| machine.cpus_of_socket(socket).clone()).collect();
        let per_llc: Vec<CpuSet> = machine.llcs().map(|llc| machine.cpus_of_llc(llc).clone()).collect();
        let with_all = |sets: Vec<CpuSet>| [vec![machine.all_cpus().clone()], sets].concat();
        for restrictions in [Vec::new(), with_all(per_socket), with_all(per_llc)] {
            let (quick, median) = measure(&machine, tasks, &restrictions, 5_000);
            println!(
                "{shape:<12} {:>6} {tasks:>6} {:>12} {quick:>6.1} {median:>6.1}",
                machine.cpu_count(),
                restrictions.len()
            );
        }
    }
}
