//! Launchers as tasks: main threads of programs, which create the tasks that exist from the start, and release those that are released.
//!
//! A launcher is there before the run, asleep on the CPU that the seed names. It wakes when there is something to create, takes the time of a
//! fork for each task, and sleeps until there is more to do. So it has a load, is balanced, competes with what it has created, and
//! leaves a CPU behind that looks for work. It takes the affinity of the tasks that it creates, and its own back afterwards; tasks
//! that are bound begin together when all that are due have been created. Who looks at the run does not see it, as with threads of the
//! kernel ([`Core::shown`]): it is none of the workload's tasks.
//!
//! Real threads and guests begin in the same order (`crates/native/src/start.rs`). Not modelled: main threads of single processes where one
//! launcher starts several, what a launcher does when the run ends.

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;
use warmcore_workload::{Draws, ProgramId, TaskTemplateId};

use crate::core::NeedResched;
use crate::engine::{Engine, Leave, Now};
use crate::event_queue::Class;
use crate::interpreter::BY_TASK;
use crate::memory::Memory;
use crate::scheduler::{Scheduler, WakeFlags};
use crate::setup::Setup;
use crate::task::{Activity, Stage, State, Task, WaitReason};

/// Something that a launcher does.
#[derive(Clone, Copy)]
enum Chore {
    /// Creates the task of a start entry.
    Create(u32),
    /// Allows a task every CPU.
    Release(TaskId),
}

/// How far a launcher has come.
pub(crate) struct Launcher {
    /// Its start entries, in the order of time, and how many of them it has begun.
    starts: Vec<u32>,
    next: usize,
    chore: Option<Chore>,
    /// Tasks that it has created since it last had nothing to create, and that wait for each other.
    line: Vec<TaskId>,
    /// Tasks to release, in the order of time.
    releases: Vec<(u64, TaskId)>,
}

impl Launcher {
    /// Those of a run, where they are tasks. Those of which only the existence matters (`exist`) have nothing to do.
    pub fn all(setup: &Setup<'_>, exist: bool) -> Vec<Self> {
        if !setup.launchers_are_tasks && !exist {
            return Vec::new();
        }
        let of = |number| Self {
            starts: (0..setup.starts.len() as u32)
                .filter(|&entry| setup.launchers_are_tasks && setup.starts[entry as usize].launcher == number)
                .collect(),
            next: 0,
            chore: None,
            line: Vec::new(),
            releases: Vec::new(),
        };
        (0..setup.launchers.len() as u32).map(of).collect()
    }

    /// When there is something to do next.
    fn next_ns(&self, setup: &Setup<'_>) -> Option<u64> {
        let start = self.starts.get(self.next).map(|&entry| setup.starts[entry as usize].time_ns);
        start.into_iter().chain(self.releases.first().map(|(at, _)| *at)).min()
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// Creates the launchers, asleep until they have something to create.
    pub(crate) fn create_launchers(&mut self) {
        for number in 0..self.launchers.len() {
            let (launch, cpu) = &self.setup.launchers[number];
            let template = self.workload.tasks.len() as u32;
            let state = Task {
                state: State::Blocked,
                process: match launch.processes[..] {
                    [own] => own,
                    _ => self.workload.processes.len() as u32,
                },
                application: launch.application,
                waiting_for: WaitReason::Time,
                ..Task::new(TaskTemplateId(template), number as u32, ProgramId(0), *cpu, 0, Draws::new(0, template, 0))
            };
            let task = TaskId(self.core.tasks.len() as u32);
            self.core.process_threads[state.process as usize] += 1;
            self.core.tasks.push(state);
            if let Err(error) = self.memory.task_created(template) {
                self.core.error.get_or_insert(error);
                return;
            }
            self.core.pages_of_new_task(task);
            self.core.this_cpu = *cpu;
            self.scheduler.task_fork(&mut self.core, task, None);
            if let Some(at) = self.launchers[number].next_ns(self.setup) {
                self.core.queue.push(at, Class::Start, *cpu, number as u32, 0);
            }
        }
    }

    fn launcher_task(&self, number: usize) -> TaskId {
        TaskId(self.core.kernel_threads + number as u32)
    }

    /// The launcher that creates the task of a start entry, if it exists.
    pub(crate) fn launcher_of(&self, entry: u32) -> Option<TaskId> {
        let number = self.setup.starts[entry as usize].launcher as usize;
        (number < self.launchers.len()).then(|| self.launcher_task(number))
    }

    /// The time of a launcher's next chore has come.
    pub(crate) fn wake_launcher(&mut self, number: u32) {
        self.wake(self.launcher_task(number as usize), WakeFlags::default());
    }

    /// The running launcher does what there is to do until something takes time or makes it leave.
    #[cold]
    pub(crate) fn launcher_step(&mut self, cpu: CpuId, id: TaskId) -> Now {
        let number = (id.0 - self.core.kernel_threads) as usize;
        loop {
            if let Some(chore) = self.launchers[number].chore {
                let costs = self.core.machine.costs();
                let cost_ns = match chore {
                    Chore::Create(_) => costs.fork_ns,
                    Chore::Release(_) => costs.syscall_ns,
                };
                if self.pay(id, cost_ns) {
                    return Now::Busy;
                }
                self.core.tasks[id.index()].stage = Stage::Begin;
                self.launchers[number].chore = None;
                match chore {
                    Chore::Create(entry) => self.launch(number, entry),
                    Chore::Release(task) => self.release(task),
                }
            } else if let Some(leave) = self.next_chore(cpu, id, number) {
                return Now::Leaves(leave);
            }
            if self.core.error.is_some() || self.ended.is_some() {
                return Now::ReschedPending;
            }
            self.entered_kernel = true;
            if self.core.cpus[cpu.index()].need_resched != NeedResched::No {
                if !self.core.is_waking(cpu) {
                    return Now::ReschedPending;
                }
                self.core.resched_after_wakeups(cpu);
            }
        }
    }

    /// Finds something to do; the launcher leaves its CPU where there is nothing yet, or where it has to go elsewhere first.
    fn next_chore(&mut self, cpu: CpuId, id: TaskId, number: usize) -> Option<Leave> {
        let now_ns = self.core.now_ns;
        let launcher = &mut self.launchers[number];
        if let Some(&entry) = launcher.starts.get(launcher.next)
            && self.setup.starts[entry as usize].time_ns <= now_ns
        {
            let template = self.setup.starts[entry as usize].template as usize;
            let restriction = self.setup.template_restrictions[template];
            if self.workload.tasks[template].start_cpu.is_none()
                && self.core.tasks[id.index()].restriction != restriction
                && let Some(leave) = self.set_own_affinity(cpu, id, restriction)
            {
                return Some(leave);
            }
            let launcher = &mut self.launchers[number];
            launcher.next += 1;
            launcher.chore = Some(Chore::Create(entry));
            return None;
        }
        if !launcher.line.is_empty() {
            self.open_line(number);
            return None;
        }
        if self.core.tasks[id.index()].restriction != self.setup.everybody {
            return self.set_own_affinity(cpu, id, self.setup.everybody);
        }
        let launcher = &mut self.launchers[number];
        if launcher.releases.first().is_some_and(|(at, _)| *at <= now_ns) {
            launcher.chore = Some(Chore::Release(launcher.releases.remove(0).1));
            return None;
        }
        let next_ns = launcher.next_ns(self.setup);
        if let Some(at) = next_ns {
            let late_ns = self.core.parameters.timer_slack_ns + self.core.machine.costs().timer_late_ns;
            self.core.queue.push(at + late_ns, Class::Start, cpu, number as u32, 0);
        }
        let task = &mut self.core.tasks[id.index()];
        task.waiting_for = if next_ns.is_some() { WaitReason::Time } else { WaitReason::Join };
        task.activity = Activity::Advance;
        Some(Leave::Blocked)
    }

    /// Creates the task of a start entry.
    fn launch(&mut self, number: usize, entry: u32) {
        let start = self.setup.starts[entry as usize];
        let (template, child) = (&self.workload.tasks[start.template as usize], TaskId(self.core.tasks.len() as u32));
        self.live -= 1;
        self.alive -= 1;
        let cpu = self.core.this_cpu;
        if let Some(start_cpu) = template.start_cpu {
            self.go_to(CpuId(start_cpu));
        }
        self.create(TaskTemplateId(start.template), start.instance, None, self.launcher_of(entry));
        self.core.this_cpu = cpu;
        if self.core.error.is_some() {
            return;
        }
        if self.setup.template_restrictions[start.template as usize] != self.setup.everybody {
            self.core.tasks[child.index()].in_line = true;
            // Who waits there is not deadlocked.
            self.live += usize::from(self.launchers[number].line.is_empty());
            self.launchers[number].line.push(child);
        }
        if let Some(at) = template.release_ns {
            self.live += 1;
            let releases = &mut self.launchers[number].releases;
            let place = releases.partition_point(|(other, _)| *other <= at);
            releases.insert(place, (at, child));
        }
    }

    /// All tasks that were due are there, and begin.
    fn open_line(&mut self, number: usize) {
        self.live -= 1;
        for task in std::mem::take(&mut self.launchers[number].line) {
            let state = &mut self.core.tasks[task.index()];
            state.in_line = false;
            if state.state == State::Blocked {
                self.wake(task, BY_TASK);
            }
        }
    }

    /// A new task comes to the line.
    #[cold]
    pub(crate) fn wait_in_line(&mut self, id: TaskId) -> Now {
        let task = &mut self.core.tasks[id.index()];
        task.waiting_for = WaitReason::Line;
        Now::Leaves(Leave::Blocked)
    }
}
