//! The end of a run: invariants, messages about deadlocks, and the outcome.

use std::collections::BTreeMap;

use warmcore_topology::CpuId;
use warmcore_trace::TaskId;

use crate::engine::Engine;
use crate::error::SimulationError;
use crate::memory::Memory;
use crate::scheduler::Scheduler;
use crate::task::{State, WaitReason};
use warmcore_trace::{ApplicationOutcome, CpuOutcome, End, GroupOutcome, Outcome, TaskOutcome};

/// Lines of a deadlock message; more tasks are counted.
const MAX_WAIT_LINES: usize = 12;

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The run is over: closes the accounts and checks them.
    pub(crate) fn finish(&mut self) -> Result<(), SimulationError> {
        self.close_accounts();
        self.check_accounts()?;
        if self.setup.check_invariants {
            self.check_queues()?;
        }
        Ok(())
    }

    /// The warm-up is over. The run goes on as it would, and what is in the accounts by now will not count ([`Outcome::since`]). Where the
    /// speed of tasks is a fraction, what they have done is rounded here, once more than without a warm-up.
    pub(crate) fn open_window(&mut self) {
        self.close_accounts();
        self.warmed_up = Some(Box::new(self.accounts()));
    }

    /// Brings all accounts up to date, and tells what of them goes into the trace.
    fn close_accounts(&mut self) {
        let now_ns = self.core.now_ns;
        for cpu in self.core.machine.cpus() {
            self.settle(cpu);
            let state = &mut self.core.cpus[cpu.index()];
            let since = now_ns - state.changed_ns;
            state.changed_ns = now_ns;
            if state.curr.is_idle() {
                state.idle_ns += since;
            } else {
                state.busy_ns += since;
                let task = &mut self.core.tasks[state.curr.index()];
                task.cpu_time_ns += now_ns - task.switched_in_ns;
                if state.curr.0 < self.core.hidden {
                    state.background_ns += now_ns - task.switched_in_ns;
                }
                task.switched_in_ns = now_ns;
            }
            self.core.tell_overhead(cpu);
        }
        if M::MODELLED {
            for cpu in self.core.machine.cpus() {
                self.sample_memory(cpu);
            }
            for index in 0..self.core.tasks.len() {
                if self.core.tasks[index].state != State::Dead {
                    self.sample_task(self.core.tasks[index].cpu, TaskId(index as u32));
                }
            }
        }
    }

    /// Per-CPU time adds up, and tasks' CPU time is the CPUs' busy time.
    fn check_accounts(&self) -> Result<(), SimulationError> {
        let now_ns = self.core.now_ns;
        for (index, cpu) in self.core.cpus.iter().enumerate() {
            if cpu.idle_ns + cpu.busy_ns != now_ns {
                let message = format!("cpu{index}: idle {} + busy {} is not {now_ns} ns", cpu.idle_ns, cpu.busy_ns);
                return Err(self.broken(message));
            }
        }
        let busy: u64 = self.core.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        let tasks: u64 = self.core.tasks.iter().map(|task| task.cpu_time_ns).sum();
        if busy != tasks {
            return Err(self.broken(format!("CPUs were busy {busy} ns, tasks had {tasks} ns of CPU time")));
        }
        Ok(())
    }

    /// No task is lost or in two places: what the scheduler holds is what the kernel thinks is runnable, per CPU.
    pub(crate) fn check_queues(&self) -> Result<(), SimulationError> {
        let mut runnable = vec![0usize; self.core.cpus.len()];
        for (index, task) in self.core.tasks.iter().enumerate() {
            match task.state {
                State::Queued => runnable[task.cpu.index()] += 1,
                State::Running => {
                    runnable[task.cpu.index()] += 1;
                    if self.core.cpus[task.cpu.index()].curr.index() != index {
                        return Err(self.broken(format!("task {index} is running on {} but is not there", task.cpu)));
                    }
                }
                _ => {}
            }
        }
        for (index, &expected) in runnable.iter().enumerate() {
            let held = self.scheduler.runnable_on(CpuId::from_index(index));
            if held != expected {
                let message = format!("cpu{index} has {expected} runnable tasks, the scheduler holds {held}");
                return Err(self.broken(message));
            }
        }
        Ok(())
    }

    fn broken(&self, message: String) -> SimulationError {
        SimulationError::Invariant { time_ns: self.core.now_ns, message }
    }

    /// Who waits for what, tasks that wait for the same thing together.
    pub(crate) fn deadlock(&self) -> SimulationError {
        let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (index, task) in self.core.tasks.iter().enumerate() {
            if task.state != State::Dead && index >= self.core.hidden as usize {
                waiting
                    .entry(self.describe_wait(task.waiting_for))
                    .or_default()
                    .push(self.core.task_name(TaskId(index as u32)));
            }
        }
        let mut waits: Vec<String> = waiting
            .into_iter()
            .map(|(what, tasks)| match tasks.as_slice() {
                [task] => format!("  {task} waits for {what}"),
                [first, .., last] => format!("  {} tasks ({first} … {last}) wait for {what}", tasks.len()),
                [] => String::new(),
            })
            .collect();
        if waits.len() > MAX_WAIT_LINES {
            let more = waits.len() - MAX_WAIT_LINES;
            waits.truncate(MAX_WAIT_LINES);
            waits.push(format!("  and {more} more"));
        }
        SimulationError::Deadlock { time_ns: self.core.now_ns, waits }
    }

    fn describe_wait(&self, reason: WaitReason) -> String {
        let workload = self.workload;
        match reason {
            WaitReason::None => "the others while spinning".to_owned(),
            WaitReason::Time => "a timer".to_owned(),
            WaitReason::Lock(lock) => {
                let of_kernel = if lock == self.objects.group_lock.0 { "cgroup_mutex" } else { "mmap_lock" };
                let name = workload.locks.get(lock as usize).map_or(of_kernel, String::as_str);
                match self.objects.locks[lock as usize].owner {
                    Some(owner) => format!("lock `{name}`, held by {}", self.core.task_name(owner)),
                    None => format!("lock `{name}`"),
                }
            }
            WaitReason::Condition(index) => format!("condition `{}`", workload.conditions[index as usize]),
            WaitReason::Barrier(index) => {
                let barrier = &workload.barriers[index as usize];
                let arrived = self.objects.barriers[index as usize].arrived;
                format!("barrier `{}` ({arrived} of {} arrived)", barrier.name, barrier.participants)
            }
            WaitReason::Resume => "a resume".to_owned(),
            WaitReason::Semaphore(index) => format!("semaphore `{}`", workload.semaphores[index as usize].name),
            WaitReason::ChannelSpace(index) => format!("space in channel `{}`", workload.channels[index as usize].name),
            WaitReason::ChannelData(index) => format!("data in channel `{}`", workload.channels[index as usize].name),
            WaitReason::ListServed(index) => format!("being served on list `{}`", workload.lists[index as usize]),
            WaitReason::ListEntry(index) => format!("an entry on list `{}`", workload.lists[index as usize]),
            WaitReason::Line => "the tasks that begin with it".to_owned(),
            WaitReason::Join => "the exit of tasks it created".to_owned(),
        }
    }

    /// What the run leaves: of a run with a warm-up, what came after it.
    pub(crate) fn outcome(&mut self) -> Outcome {
        let whole = Outcome { recorders_since_ns: std::mem::take(&mut self.recorders_since_ns), ..self.accounts() };
        let recorders = std::mem::take(&mut self.recorders);
        let Some(warm_up_ns) = self.workload.warm_up_ns.filter(|ns| *ns > 0) else {
            return Outcome { recorders, ..whole };
        };
        match self.warmed_up.take() {
            Some(earlier) => Outcome { recorders, ..whole.since(&earlier) },
            // It ended before: nothing counts.
            None => {
                let nothing = whole.clone().since(&whole);
                Outcome { warm_up_ns, recorders, ..nothing }
            }
        }
    }

    /// The accounts as they are, without recorders.
    fn accounts(&self) -> Outcome {
        let elapsed_ns = self.core.now_ns;
        let tasks: Vec<TaskOutcome> =
            (self.core.hidden as usize..self.core.tasks.len()).map(|index| self.task_outcome(index)).collect();
        let applications = self
            .workload
            .applications
            .iter()
            .enumerate()
            .map(|(index, name)| application_outcome(name, index as u32, &tasks, elapsed_ns))
            .collect();
        let cpus = self
            .core
            .cpus
            .iter()
            .enumerate()
            .map(|(index, cpu)| CpuOutcome {
                idle_ns: cpu.idle_ns - self.core.offline_ns(CpuId::from_index(index)),
                offline_ns: self.core.offline_ns(CpuId::from_index(index)),
                busy_ns: cpu.busy_ns - cpu.background_ns,
                background_ns: cpu.background_ns,
                overhead_ns: cpu.overhead_ns,
                memory: self.memory.cpu_counters(CpuId::from_index(index)),
                frequency_ghz: self.memory.frequency_ghz(CpuId::from_index(index)),
            })
            .collect();
        Outcome {
            tasks,
            applications,
            cpus,
            placement: self.core.placement,
            energy_uj: self.core.clocks.as_ref().and_then(|clocks| clocks.energy_uj(elapsed_ns)),
            groups: self.group_outcomes(),
            background: self
                .background
                .outcome(&self.core.tasks)
                .into_iter()
                .chain(self.scheduler_threads_outcome())
                .collect(),
            domain_counters: self.scheduler.domain_counters(&self.core),
            kernel_log: self.kernel_log.clone(),
            memory_solutions: self.memory.solutions(),
            engine_events: self.engine_events,
            ..Outcome::new(self.ended.unwrap_or(End::Stopped), elapsed_ns)
        }
    }

    /// What came of quotas, by group that has one, if the scheduler keeps them.
    fn group_outcomes(&self) -> Vec<GroupOutcome> {
        let name = |group: u32| self.workload.groups[group as usize].name.clone();
        let counted = self.core.group_counters.iter();
        counted.map(|(&group, &counters)| GroupOutcome { name: name(group), counters }).collect()
    }

    fn task_outcome(&self, index: usize) -> TaskOutcome {
        let task = &self.core.tasks[index];
        let sleeps = task.state == State::Blocked && task.waiting_for == WaitReason::Time;
        TaskOutcome {
            id: index as u32 - self.core.hidden,
            name: self.core.task_name(TaskId(index as u32)),
            role: self.workload.tasks[task.template.index()].role.clone(),
            application: task.application,
            process: task.process,
            started_ns: task.started_ns,
            exited_ns: task.exited_ns,
            cpu_time_ns: task.cpu_time_ns,
            progress_ns: task.progress_ns,
            spin_ns: task.spin_ns,
            smt_ns: task.smt_ns,
            pace_ns: task.pace_ns,
            slept_ns: task.slept_ns + if sleeps { self.core.now_ns - task.slept_from_ns } else { 0 },
            memory: self.memory.task_counters(TaskId(index as u32)),
        }
    }
}

fn application_outcome(name: &str, index: u32, tasks: &[TaskOutcome], end_ns: u64) -> ApplicationOutcome {
    let own = || tasks.iter().filter(|task| task.application == index);
    let started_ns = own().map(|task| task.started_ns).min().unwrap_or(0);
    let finished = own().all(|task| task.exited_ns.is_some());
    let last_ns = if finished { own().filter_map(|task| task.exited_ns).max().unwrap_or(started_ns) } else { end_ns };
    ApplicationOutcome {
        name: name.to_owned(),
        elapsed_ns: last_ns - started_ns,
        finished,
        cpu_time_ns: own().map(|task| task.cpu_time_ns).sum(),
    }
}
