//! Random workloads that end by construction.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use warmcore_trace::TaskOutcome;
use warmcore_workload::{
    Affinity, BarrierWait, ChannelKind, CpuMax, KernelStep, Latch, LatchKind, Policy, Program, ProgramBuilder, Step,
    Workload,
};

use super::*;

/// What decides.
pub struct Dice(Pcg32);

impl Dice {
    /// Equal seeds, equal throws.
    pub fn new(seed: u64) -> Self {
        Self(Pcg32::seed_from_u64(seed))
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.0.next_u32()) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// From microseconds to some milliseconds.
    fn duration(&mut self) -> u64 {
        let scale = [US, 20 * US, 200 * US, MS][self.below(4) as usize];
        scale + self.below(3 * scale)
    }

    fn affinity(&mut self, cpus: u32) -> Affinity {
        if self.one_in(3) {
            return Affinity::All;
        }
        let count = 1 + self.below(u64::from(cpus));
        on_cpus((0..count).map(|_| self.below(u64::from(cpus)) as u32).collect::<Vec<u32>>())
    }

    /// Something that a task can do on its own and that ends.
    fn step(&mut self, scene: &Scene, cpus: u32) -> Vec<Step> {
        let workload = &scene.workload;
        match self.below(14) {
            0..=3 => vec![run_for(self.duration())],
            4 => vec![Step::RunTime { cpu_ns: self.duration() }],
            5..=6 => vec![sleep(self.duration())],
            7 => vec![Step::Yield],
            8 => vec![Step::SetNice(self.below(40) as i8 - 20)],
            9 => vec![Step::SetPolicy([Policy::Normal, Policy::Batch, Policy::Idle][self.below(3) as usize])],
            10 => vec![Step::SetSlice { slice_ns: if self.one_in(3) { 0 } else { self.duration() } }],
            11 => vec![Step::SetAffinity(self.affinity(cpus))],
            12 if !workload.groups.is_empty() => {
                let group = self.below(workload.groups.len() as u64) as u32;
                vec![Step::SetGroup(warmcore_workload::GroupId(group))]
            }
            _ => {
                let lock = warmcore_workload::LockId(self.below(workload.locks.len() as u64) as u32);
                vec![Step::Lock(lock), run_for(self.duration()), Step::Unlock(lock)]
            }
        }
    }

    fn body(&mut self, scene: &Scene, cpus: u32, program: ProgramBuilder) -> ProgramBuilder {
        let steps: Vec<Step> = (0..1 + self.below(5)).flat_map(|_| self.step(scene, cpus)).collect();
        let count = 1 + self.below(4);
        program.repeat(Some(count), |body| steps.into_iter().fold(body, ProgramBuilder::step))
    }

    /// Tasks alone, at barriers, pipes and in families, with attributes and data, for a machine with so many CPUs.
    pub fn scene(&mut self, cpus: u32) -> Scene {
        let mut scene = Scene::new();
        for n in 0..2 {
            scene.workload.add_lock(format!("lock {n}"));
        }
        for n in 0..self.below(3) {
            let group = scene.workload.add_group(format!("group {n}"));
            // Each in the one before it.
            scene.workload.groups[group.index()].parent =
                n.checked_sub(1).map(|above| warmcore_workload::GroupId(above as u32));
        }
        if self.one_in(2) {
            scene.application("other");
        }
        for n in 0..1 + self.below(5) {
            let program = self.body(&scene, cpus, ProgramBuilder::new());
            let task = scene.task(&format!("loner {n}"), program);
            task.instances = 1 + self.below(3) as u32;
        }
        if self.one_in(2) {
            self.add_barrier(&mut scene, cpus);
        }
        if self.one_in(2) {
            self.add_pipe(&mut scene, cpus);
        }
        if self.one_in(2) {
            self.add_family(&mut scene, cpus);
        }
        for index in 0..scene.workload.tasks.len() {
            self.adorn(&mut scene.workload, index, cpus);
        }
        if self.one_in(2) {
            self.add_data(&mut scene.workload);
        }
        for index in 0..scene.workload.groups.len() {
            self.limit(&mut scene.workload, index);
        }
        if self.one_in(2) {
            self.add_calls(&mut scene, cpus);
        }
        self.set_files(&mut scene.workload, cpus);
        if self.one_in(3) {
            let steps = [Step::Map { bytes: 1 + self.below(100_000) }, run_for(self.duration())];
            scene.task("maps", times(1 + self.below(20), steps)).instances = 1 + self.below(4) as u32;
        }
        scene
    }

    /// An idle group, and CPUs for the group in which the others lie: then their tasks ask for no CPUs at their start.
    fn set_files(&mut self, workload: &mut Workload, cpus: u32) {
        let before = workload.clone();
        if let Some(group) = workload.groups.last_mut().filter(|_| self.one_in(4)) {
            (group.idle, group.shares) = (true, warmcore_workload::Group::IDLE_SHARES);
        }
        if let Some(group) = workload.groups.first_mut().filter(|_| self.one_in(4)) {
            let first = self.below(cpus.into()) as u32;
            group.cpus = Some((first..cpus).collect());
            workload
                .tasks
                .iter_mut()
                .filter(|task| task.group.is_some())
                .for_each(|task| task.affinity = Affinity::All);
        }
        if workload.check().is_err() {
            *workload = before;
        }
    }

    /// Tasks that meet at a mutex and a reader-writer semaphore in the kernel.
    fn add_calls(&mut self, scene: &mut Scene, cpus: u32) {
        let [mutex, semaphore] = [LatchKind::Mutex, LatchKind::Rwsem]
            .map(|kind| scene.workload.add_latch(kind.name(), Latch { kind, ..Latch::default() }));
        for n in 0..1 + self.below(3) {
            let mut call = vec![Step::Kernel(KernelStep::Enter)];
            for _ in 0..1 + self.below(3) {
                let (takes, lock) = match self.below(5) {
                    0..=1 => (Step::Lock(mutex), mutex),
                    2..=3 => (Step::LockShared(semaphore), semaphore),
                    _ => (Step::Lock(semaphore), semaphore),
                };
                call.extend([takes, run_for(self.duration())]);
                if self.one_in(4) {
                    call.push(sleep(self.duration()));
                }
                call.push(Step::Unlock(lock));
            }
            call.extend([Step::Kernel(KernelStep::Exit), run_for(self.duration())]);
            let count = 1 + self.below(6);
            let program =
                ProgramBuilder::new().repeat(Some(count), |body| call.into_iter().fold(body, ProgramBuilder::step));
            let task = scene.task(&format!("calls {n}"), program);
            task.instances = 1 + self.below(4) as u32;
            task.affinity = self.affinity(cpus);
        }
    }

    /// A quota for a group in two, if it has tasks.
    fn limit(&mut self, workload: &mut Workload, group: usize) {
        if self.one_in(2) {
            let period_us = 10_000 + self.below(90_000);
            let quota_us = period_us / 5 + self.below(period_us);
            let burst_us = if self.one_in(2) { 0 } else { self.below(quota_us) };
            workload.groups[group].cpu_max = Some(CpuMax::new(quota_us, period_us, burst_us).unwrap());
            if workload.check().is_err() {
                workload.groups[group].cpu_max = None;
            }
        }
    }

    /// Memory, small enough to be sampled within such a run.
    fn add_data(&mut self, workload: &mut Workload) {
        for n in 0..1 + self.below(3) {
            let bytes = (1 + self.below(512)) << 12;
            let data = workload.add_data_group(format!("data {n}"), bytes);
            // Data without members would be an error.
            let first = self.below(workload.tasks.len() as u64) as usize;
            for (index, task) in workload.tasks.iter_mut().enumerate() {
                if index == first || self.one_in(2) {
                    task.data_groups.push(data);
                }
            }
        }
    }

    /// Tasks that meet at a barrier or hand on semaphores.
    fn add_barrier(&mut self, scene: &mut Scene, cpus: u32) {
        let waits = [BarrierWait::Spin, BarrierWait::Block, BarrierWait::SpinThenBlock { spin_ns: 50 * US }];
        let participants = 2 + self.below(5) as u32;
        let barrier = scene.workload.add_barrier("barrier", participants, waits[self.below(3) as usize]);
        let semaphore = scene.workload.add_semaphore("semaphore", 1);
        let rounds = 1 + self.below(4);
        let work = self.duration();
        let steps = [run_for(work), Step::Barrier(barrier), Step::SemWait(semaphore), Step::SemPost(semaphore)];
        let program = self.body(scene, cpus, times(rounds, steps));
        scene.task("meets", program).instances = participants;
    }

    /// A writer and a reader of as many bytes.
    fn add_pipe(&mut self, scene: &mut Scene, cpus: u32) {
        let kind = if self.one_in(2) { ChannelKind::Pipe } else { ChannelKind::Socket };
        let bytes = 1 + self.below(100) as u32;
        let channel = scene.workload.add_channel("channel", kind, u64::from(bytes) + self.below(200));
        let messages = 1 + self.below(20);
        let [writes, reads] = [self.duration() / 10, self.duration() / 10];
        let program = self.body(scene, cpus, times(messages, [run_for(writes), Step::Send { channel, bytes }]));
        scene.task("writes", program);
        let program = self.body(scene, cpus, times(messages, [Step::Receive { channel, bytes }, run_for(reads)]));
        scene.task("reads", program);
    }

    /// Tasks that create others and wait for some of them.
    fn add_family(&mut self, scene: &mut Scene, cpus: u32) {
        let program = self.body(scene, cpus, ProgramBuilder::new());
        let child = scene.template("child", program);
        let children = 1 + self.below(6);
        let awaited = self.below(children + 1) as u32;
        let mut program = times(children, [Step::Fork(child), run_for(self.duration())]);
        if awaited > 0 {
            program = program.step(Step::Join { count: awaited });
        }
        scene.task("parent", program).instances = 1 + self.below(2) as u32;
    }

    /// Attributes of a task at its start.
    fn adorn(&mut self, workload: &mut Workload, index: usize, cpus: u32) {
        let (processes, groups) = (workload.processes.len() as u64, workload.groups.len() as u64);
        let task = &mut workload.tasks[index];
        task.process = warmcore_workload::ProcessId(self.below(processes) as u32);
        task.nice = if self.one_in(3) { self.below(40) as i8 - 20 } else { 0 };
        task.policy = [Policy::Normal, Policy::Normal, Policy::Batch, Policy::Idle][self.below(4) as usize];
        task.affinity = self.affinity(cpus);
        task.start_ns = if self.one_in(2) { 0 } else { self.duration() };
        task.release_ns = self.one_in(4).then(|| self.duration());
        task.slice_ns = self.one_in(4).then(|| self.duration());
        task.group = (groups > 0 && self.one_in(2)).then(|| warmcore_workload::GroupId(self.below(groups) as u32));
    }
}

/// What a program asks for.
#[derive(Default, Debug)]
pub struct Asked {
    /// Work.
    pub work_ns: u64,
    /// CPU time of steps whose time goes on in interrupts and switches.
    pub time_ns: u64,
}

impl Asked {
    /// Of a program whose loops all end.
    pub fn by(program: &Program) -> Self {
        let mut asked = Self::default();
        let mut factors = vec![1];
        for step in &program.steps {
            let factor = *factors.last().expect("loops match");
            match step {
                Step::LoopStart { times, .. } => factors.push(factor * times.expect("they all end")),
                Step::LoopEnd { .. } => drop(factors.pop()),
                Step::Run { work_ns } => asked.work_ns += factor * work_ns,
                Step::RunTime { cpu_ns } => asked.time_ns += factor * cpu_ns,
                _ => {}
            }
        }
        asked
    }

    /// Whether a task that has ended has had it, and did nothing else but wait.
    pub fn is_done_by(&self, task: &TaskOutcome) -> bool {
        let done_ns = task.progress_ns - task.spin_ns;
        (self.work_ns..=self.work_ns + self.time_ns).contains(&done_ns) && task.cpu_time_ns >= self.time_ns
    }
}
