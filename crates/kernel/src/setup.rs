//! Fitting a workload to a machine before a run: affinities become CPU sets, templates become start entries.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;
use warmcore_options::{MemoryChoice, RunOptions};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{DecisionKind, RecordedThread, RunTables};
use warmcore_workload::{Action, Affinity, Launch, Policy, Reservation, Step, TaskTemplateId, Workload};

use crate::actions::{Distributed, Planned};
use crate::background::Visitors;
use crate::cpusets::confine;
use crate::error::SetupError;
use crate::hotplug::Epoch;
use crate::memory_samples::MEMORY_COUNTERS;
use crate::parameters::KernelParameters;
use crate::scheduler_threads::ThreadSets;

/// A task that the launcher creates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartEntry {
    pub time_ns: u64,
    pub template: u32,
    pub instance: u32,
    /// Who creates it.
    pub launcher: u32,
}

/// What a kernel knows when it starts, before there is any task: all that a policy is made from.
#[derive(Clone, Copy, Debug)]
pub struct Boot<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Parameters of the kernel.
    pub kernel: KernelParameters,
    /// Seed of what a policy draws at random.
    pub seed: u64,
    /// Whether the workload has tasks of real-time or deadline policies.
    pub realtime: bool,
    /// CPUs that it keeps out of its scheduling domains (`isolcpus`), by the operating system's numbers.
    pub isolcpus: &'a [u32],
}

impl<'a> Boot<'a> {
    /// A kernel with default parameters on a machine, and seed 0.
    pub fn new(machine: &'a Machine) -> Self {
        Self { machine, kernel: KernelParameters::default(), seed: 0, realtime: false, isolcpus: &[] }
    }

    /// The CPUs that are isolated.
    pub fn isolated(&self) -> CpuSet {
        self.isolcpus.iter().filter_map(|&os| self.machine.cpu_by_os_index(os)).collect()
    }
}

/// An experiment's machine and workload, ready to run under any scheduler.
#[derive(Clone)]
pub struct Setup<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) workload: &'a Workload,
    /// Seed of everything random: tick phases, when each CPU balances first, and the scheduler's own generator.
    pub seed: u64,
    /// Parameters of the kernel.
    pub kernel: KernelParameters,
    /// What the run is asked for.
    pub options: RunOptions,
    /// The machine on which a profile's work takes the time that the workload says, if it is not the one that runs.
    pub work_of: Option<&'a Machine>,
    /// Compare the scheduler's accounts with the kernel's again and again. Slower.
    pub check_invariants: bool,
    /// The run ends with [`SimulationError::Interrupted`](crate::SimulationError) soon after this becomes true.
    pub stop: Option<Arc<AtomicBool>>,
    pub(crate) restrictions: Vec<CpuSet>,
    /// Restriction of tasks that ask for none: all CPUs, number 0, but those that are isolated.
    pub(crate) everybody: u32,
    /// CPUs on which a task that is alone has no ticks (`nohz_full`).
    pub(crate) nohz_full: CpuSet,
    /// Restriction that each task template asks for.
    pub(crate) template_asked: Vec<u32>,
    /// What the cpuset of its group leaves of it.
    pub(crate) template_restrictions: Vec<u32>,
    /// By task group what its cpuset leaves of each restriction; empty if it has none.
    pub(crate) within: Vec<Vec<u32>>,
    /// CPU each template's first placement starts from.
    pub(crate) template_cpus: Vec<CpuId>,
    /// Who starts what, and from which CPU.
    pub(crate) launchers: Vec<(Launch, CpuId)>,
    /// By CPU the restriction to it alone, if a program disables migration.
    pub(crate) lone_cpus: Vec<u32>,
    /// Restriction of each `SetAffinity` step, by program and step; `u32::MAX` for other steps.
    pub(crate) step_restrictions: Vec<Vec<u32>>,
    pub(crate) starts: Vec<StartEntry>,
    /// The kernel's own threads, as the machine's background says.
    pub(crate) visitors: Visitors,
    /// Launchers are tasks, as the background says.
    pub(crate) launchers_are_tasks: bool,
    /// Masks of threads of the scheduler's own, as runs come to them.
    pub(crate) thread_sets: ThreadSets,
    /// What somebody outside does, in the order of time.
    pub(crate) actions: Vec<Planned>,
    /// What each CPU that goes offline or comes online changes.
    pub(crate) epochs: Vec<Epoch>,
    /// Which of equally good CPUs each CPU chose last.
    pub(crate) distributed: Distributed,
}

impl<'a> Setup<'a> {
    /// Resolves `workload` on `machine`.
    ///
    /// # Errors
    /// When a task could run nowhere, or nothing would run.
    pub fn new(machine: &'a Machine, workload: &'a Workload, seed: u64) -> Result<Self, SetupError> {
        workload.check().map_err(|error| SetupError::Workload(error.to_string()))?;
        if let Some(program) = workload.command.first() {
            return Err(SetupError::Command(program.clone()));
        }
        let mut restrictions = vec![machine.all_cpus().clone()];
        let mut intern = |set: CpuSet| {
            restrictions.iter().position(|known| *known == set).unwrap_or_else(|| {
                restrictions.push(set);
                restrictions.len() - 1
            }) as u32
        };
        let everywhere = housekeeping(machine, "isolcpus", &workload.isolcpus)?;
        let everybody = intern(everywhere.clone());
        let launchers = launchers(&everywhere, workload, seed);
        let sets = workload.tasks.iter().map(|task| match &task.affinity {
            Affinity::All => Ok(everywhere.clone()),
            stated => resolve(machine, &task.name, stated),
        });
        let asked: Vec<CpuSet> = sets.collect::<Result<_, _>>()?;
        let sets = confine(machine, workload, &asked)?;
        let mut distributed = Distributed::new(machine.cpu_count(), launchers.iter().map(|(_, cpu)| *cpu), seed);
        let template_cpus = template_cpus(workload, &launchers, &sets, &mut distributed)?;
        let template_asked: Vec<u32> = asked.into_iter().map(&mut intern).collect();
        let template_restrictions: Vec<u32> = sets.into_iter().map(&mut intern).collect();
        let mut step_restrictions = Vec::new();
        for (index, program) in workload.programs.iter().enumerate() {
            let mut of_program = Vec::with_capacity(program.steps.len());
            for step in &program.steps {
                of_program.push(match step {
                    Step::SetAffinity(affinity) => {
                        let user = workload.tasks.iter().find(|task| task.program.index() == index);
                        let name = user.map_or("(unused program)", |task| &task.name);
                        intern(resolve(machine, name, affinity)?)
                    }
                    _ => u32::MAX,
                });
            }
            step_restrictions.push(of_program);
        }
        let disables = |step: &Step| matches!(step, Step::MigrateDisable);
        let lone_cpus = match workload.programs.iter().any(|program| program.steps.iter().any(disables)) {
            true => machine.cpus().map(|cpu| intern([cpu].into_iter().collect())).collect(),
            false => Vec::new(),
        };
        let starts = starts(machine, workload, &launchers);
        if starts.is_empty() {
            return Err(SetupError::NoTasks);
        }
        let mut setup = Self {
            machine,
            workload,
            seed,
            kernel: KernelParameters::default(),
            options: RunOptions::default(),
            work_of: None,
            check_invariants: false,
            stop: None,
            restrictions,
            everybody,
            nohz_full: machine.all_cpus().difference(&housekeeping(machine, "nohz_full", &workload.nohz_full)?),
            template_asked,
            template_restrictions,
            within: Vec::new(),
            template_cpus,
            launchers,
            step_restrictions,
            lone_cpus,
            starts,
            visitors: Visitors::of(machine, &everywhere, seed),
            launchers_are_tasks: machine.background().launchers,
            thread_sets: ThreadSets::default(),
            actions: Vec::new(),
            epochs: Vec::new(),
            distributed,
        };
        admit_deadline_tasks(&setup, &everywhere)?;
        setup.set_actions(&[])?;
        Ok(setup)
    }

    /// Has somebody outside the workload do these things, beside what the workload itself says of CPUs that go offline.
    ///
    /// # Errors
    /// When one of them names tasks that there are none of, CPUs that the machine does not have, or a change of a CPU that the kernel
    /// would refuse.
    pub fn set_actions(&mut self, actions: &[Action]) -> Result<(), SetupError> {
        self.actions.clear();
        let own = self.workload.hotplug.iter().map(|change| Action::from(*change));
        for action in own.chain(actions.iter().cloned()) {
            let planned = Planned::new(self, &action)?;
            self.actions.push(planned);
        }
        self.actions.sort_by_key(|planned| planned.action.time_ns);
        self.plan_cpusets();
        self.plan_hotplug()
    }

    /// Index of a CPU set among the restrictions of the run.
    pub(crate) fn intern(&mut self, set: &CpuSet) -> u32 {
        let known = self.restrictions.iter().position(|known| known == set);
        known.unwrap_or_else(|| {
            self.restrictions.push(set.clone());
            self.restrictions.len() - 1
        }) as u32
    }

    /// Number of tasks that are none of the workload's.
    pub(crate) fn hidden_tasks(&self) -> u32 {
        let launchers = if self.launchers_are_tasks { self.launchers.len() } else { 0 };
        (self.visitors.all.len() + launchers) as u32
    }

    /// What a policy for this setup is made from.
    pub fn boot(&self) -> Boot<'a> {
        let realtime = self.workload.has_realtime();
        let isolcpus = &self.workload.isolcpus;
        Boot { machine: self.machine, kernel: self.kernel, seed: self.seed, realtime, isolcpus }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// The workload.
    pub fn workload(&self) -> &'a Workload {
        self.workload
    }

    /// Who starts what, and the CPU that each launcher is on when the run begins. The seed decides which: a program that was started
    /// some time ago may be anywhere.
    pub fn launchers(&self) -> &[(Launch, CpuId)] {
        &self.launchers
    }

    /// Index of the CPU set in which tasks of a template begin; 0 is all CPUs.
    pub fn template_restriction(&self, template: TaskTemplateId) -> u32 {
        self.template_restrictions[template.index()]
    }

    /// The CPUs of an affinity on this machine; empty when it has none of them.
    pub fn affinity_cpus(&self, affinity: &Affinity) -> CpuSet {
        resolve(self.machine, "", affinity).unwrap_or_default()
    }

    /// The tables that a run's events refer to, given the scheduler's kinds of decisions; without scores.
    pub fn run_tables(&self, decisions: Vec<DecisionKind>) -> RunTables {
        RunTables {
            restrictions: self.restrictions.clone(),
            counters: match self.options.memory {
                MemoryChoice::None => Vec::new(),
                _ => MEMORY_COUNTERS.iter().map(ToString::to_string).collect(),
            },
            counted_per_stay: false,
            phases: self.workload.phases.clone(),
            decisions,
            scores: Vec::new(),
            foreign: self.foreign(),
            hotplug: self.has_hotplug(),
            throttle: self.has_quotas(),
            ..RunTables::default()
        }
    }

    /// Whether a quota may keep a task from running: that of a group, or a deadline task's own.
    fn has_quotas(&self) -> bool {
        let reserves = |task| self.workload.policies_of(task).any(|policy| policy.is_deadline());
        self.workload.groups.iter().any(|group| group.cpu_max.is_some()) || self.workload.tasks.iter().any(reserves)
    }

    /// What events call threads of the scheduler's own, if it has some: the last of those beside the workload's tasks.
    #[must_use]
    pub fn scheduler_thread(&self) -> RecordedThread {
        RecordedThread { thread: FIRST + self.hidden_tasks() as i32, name: "loader".to_owned(), process: None }
    }

    /// Those beside the workload's tasks, by the numbers that they have among tasks: threads of the kernel, then launchers.
    fn foreign(&self) -> Vec<RecordedThread> {
        let launchers = (0..).map(|number| format!("launcher-{number}"));
        let names = self.visitors.all.iter().map(|visitor| visitor.name.clone()).chain(launchers);
        let threads = (FIRST..).zip(names).take(self.hidden_tasks() as usize);
        threads.map(|(thread, name)| RecordedThread { thread, name, process: None }).collect()
    }
}

/// Number of the first of those beside the workload's tasks: no task of the workload has so high a one where a run is written as a recording.
const FIRST: i32 = 1_000_000;

/// CPU time that the servers of each CPU reserve for what is below: 50 ms of each second (`sched_init_dl_servers`).
const SERVER_BANDWIDTH: u64 = Reservation::WHOLE_CPU / 20;

/// Refuses deadline tasks that `sched_setattr` would refuse: bound ones, and more of them than fit (`__dl_overflow` of Linux 7.2, whose
/// limit is 100 % of each CPU, servers included). All tasks count as if they were there at once, each with the most that it ever reserves.
pub(crate) fn admit_deadline_tasks(setup: &Setup<'_>, active: &CpuSet) -> Result<(), SetupError> {
    let Setup { machine, workload, template_restrictions: restrictions, step_restrictions, .. } = setup;
    let mut asked = 0_u64;
    for (task, &restriction) in workload.tasks.iter().zip(restrictions) {
        let reserved = workload.policies_of(task).filter_map(|policy| match policy {
            Policy::Deadline(reservation) => Some(reservation.bandwidth()),
            _ => None,
        });
        let Some(most) = reserved.max() else { continue };
        let binds = |&to: &u32| to != 0 && to != u32::MAX;
        if restriction != setup.everybody || step_restrictions[task.program.index()].iter().any(binds) {
            let is_bound_later = restriction == setup.everybody && task.policy.is_deadline();
            let errno = if is_bound_later { "EBUSY" } else { "EPERM" };
            return Err(SetupError::BoundDeadline { task: task.name.clone(), errno });
        }
        asked = asked.saturating_add(most.saturating_mul(u64::from(task.instances.max(1))));
    }
    let capacity: u64 = active.iter().map(|cpu| u64::from(machine.capacity(cpu))).sum();
    let servers = active.len() as u64 * SERVER_BANDWIDTH;
    let admitted = (capacity * Reservation::WHOLE_CPU / 1024).saturating_sub(servers);
    if asked > admitted { Err(SetupError::DeadlineBandwidth { asked, admitted }) } else { Ok(()) }
}

/// The CPUs that a parameter of the kernel leaves (`housekeeping_cpumask`).
///
/// # Errors
/// A CPU that the machine does not have, and a machine without any other.
fn housekeeping(machine: &Machine, parameter: &'static str, list: &[u32]) -> Result<CpuSet, SetupError> {
    let mut left = machine.all_cpus().clone();
    for &cpu in list {
        let unknown = || SetupError::IsolatedCpu { parameter, cpu, online: online(machine) };
        left.remove(machine.cpu_by_os_index(cpu).ok_or_else(unknown)?);
    }
    if left.is_empty() { Err(SetupError::AllIsolated { parameter }) } else { Ok(left) }
}

/// Launchers on CPUs by lot, no two on one while there are others.
fn launchers(everywhere: &CpuSet, workload: &Workload, seed: u64) -> Vec<(Launch, CpuId)> {
    /// Keeps this stream apart from others with the same seed; any odd constant does.
    const STREAM: u64 = 0x6c61_756e_6368_6573;
    let mut random = Pcg32::new(seed, STREAM);
    let mut cpus: Vec<CpuId> = Vec::new();
    let place = |launch: Launch| {
        if cpus.is_empty() {
            cpus.extend(everywhere.iter());
        }
        // The remainder is not exactly even, by less than one in a million.
        let chosen = random.next_u32() as usize % cpus.len();
        (launch, cpus.swap_remove(chosen))
    };
    workload.launches().into_iter().map(place).collect()
}

/// The CPU that each template's tasks are placed from: where their launcher is, or what the template says. A launcher takes the affinity
/// of the tasks that it creates; where that does not have its CPU it goes to one that it has, and stays there when it has its own affinity
/// again.
fn template_cpus(
    workload: &Workload,
    launchers: &[(Launch, CpuId)],
    sets: &[CpuSet],
    distributed: &mut Distributed,
) -> Result<Vec<CpuId>, SetupError> {
    let mut cpus = vec![CpuId(0); sets.len()];
    for (launch, first) in launchers {
        let mut cpu = *first;
        let own = |&template: &usize| launch.processes.contains(&workload.tasks[template].process.0);
        let mut templates: Vec<usize> = (0..sets.len()).filter(own).collect();
        templates.sort_by_key(|&template| workload.tasks[template].start_ns);
        for template in templates {
            let (task, set) = (&workload.tasks[template], &sets[template]);
            cpus[template] = match task.start_cpu {
                None if set.contains(cpu) => cpu,
                None => distributed.next(cpu, set.iter()).expect("a resolved set is not empty"),
                Some(cpu) if set.contains(CpuId(cpu)) => CpuId(cpu),
                Some(cpu) => return Err(SetupError::BadStartCpu { task: task.name.clone(), cpu }),
            };
            if task.start_cpu.is_none() && task.instances > 0 {
                cpu = cpus[template];
            }
        }
    }
    Ok(cpus)
}

/// Each launcher creates its tasks one after the other; each takes the machine's time of a fork. Launchers begin a nanosecond apart,
/// so that tasks have the same numbers wherever their launchers are.
fn starts(machine: &Machine, workload: &Workload, launchers: &[(Launch, CpuId)]) -> Vec<StartEntry> {
    let mut starts: Vec<StartEntry> = Vec::new();
    for (position, (launch, _)) in launchers.iter().enumerate() {
        let own = starts.len();
        for (template, task) in workload.tasks.iter().enumerate() {
            if launch.processes.contains(&task.process.0) {
                let entry = |instance| StartEntry {
                    time_ns: task.start_ns,
                    template: template as u32,
                    instance,
                    launcher: position as u32,
                };
                starts.extend((0..task.instances).map(entry));
            }
        }
        starts[own..].sort_by_key(|start| start.time_ns);
        let mut free_at = position as u64;
        for start in &mut starts[own..] {
            start.time_ns = start.time_ns.max(free_at);
            free_at = start.time_ns + machine.costs().fork_ns;
        }
    }
    starts.sort_by_key(|start| start.time_ns);
    starts
}

pub(crate) fn resolve(machine: &Machine, task: &str, affinity: &Affinity) -> Result<CpuSet, SetupError> {
    let set = affinity.on(machine);
    if set.is_empty() {
        return Err(SetupError::NoAllowedCpu {
            task: task.to_owned(),
            wanted: affinity.to_string(),
            online: online(machine),
        });
    }
    Ok(set)
}

/// The machine's CPUs by the operating system's numbers.
pub(crate) fn online(machine: &Machine) -> String {
    machine.cpus().map(|cpu| CpuId(machine.os_index(cpu))).collect::<CpuSet>().to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use warmcore_topology::resolve;
    use warmcore_workload::{Options, from_rtapp};

    #[test]
    fn a_launcher_goes_where_the_tasks_may_run_that_it_creates_and_stays_there() {
        let machine = resolve("1s1n2l4c1t").unwrap();
        let text = r#"{"tasks": {"low": {"run": 5, "cpus": [0, 1]}, "free": {"run": 5}, "early": {"run": 5, "cpus": [6, 7]},
                                 "only": {"run": 5, "cpus": [0]}},
            "warmcore": {"tasks": {"low": {"start_ns": 10}, "free": {"start_ns": 20}, "only": {"start_ns": 30}}}}"#;
        let workload = from_rtapp("bound", text, &Options::default()).unwrap();
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let setup = Setup::new(&machine, &workload, seed).unwrap();
            let first = setup.launchers()[0].1;
            let [low, free, early, only] = setup.template_cpus[..] else { panic!("four templates") };
            assert!(low.0 < 2 && [6, 7].contains(&early.0), "{low} {early}");
            assert!(first.0 < 6 || early == first, "from {first} to {early}");
            assert_eq!((free, only), (low, CpuId(0)), "from {first}");
            seen.insert((low, early));
        }
        assert_eq!(seen.len(), 4, "to any of them, as the seed says: {seen:?}");
    }

    #[test]
    fn isolated_cpus_are_nobodys_who_does_not_name_them() {
        let machine = resolve("1s1n1l4c1t").unwrap();
        let of = |rest: &str| {
            let text = format!(
                r#"{{"tasks": {{"a": {{"run": 5}}, "b": {{"run": 5, "cpus": [1, 2]}}}}, "warmcore": {{{rest}}}}}"#
            );
            from_rtapp("isolated", &text, &Options::default()).unwrap()
        };
        let workload = of(r#""isolcpus": "2-3""#);
        for seed in 0..50 {
            let setup = Setup::new(&machine, &workload, seed).unwrap();
            let mask = |template: usize| setup.restrictions[setup.template_restrictions[template] as usize].to_string();
            assert_eq!([mask(0), mask(1)], ["0-1", "1-2"]);
            assert!(setup.launchers()[0].1.0 < 2);
            assert_eq!(setup.boot().isolated().to_string(), "2-3");
        }
        for (rest, words) in [
            (r#""isolcpus": "3-5""#, "\"isolcpus\" has CPU 4, which the machine does not have"),
            (r#""isolcpus": "0-3""#, "has all CPUs of the machine"),
            (r#""nohz_full": "7""#, "\"nohz_full\" has CPU 7, which the machine does not have"),
            (r#""isolcpus": "3", "hotplug": [{"at_ns": 5, "offline": 2}]"#, "not modelled beside"),
        ] {
            let problem = Setup::new(&machine, &of(rest), 1).map(|_| ()).unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn launchers_are_anywhere_as_the_seed_says_and_apart() {
        let machine = resolve("1s1n2l4c1t").unwrap();
        let text = r#"{"tasks": {"a": {"run": 5}, "b": {"run": 5}},
            "warmcore": {"processes": [{"name": "p"}, {"name": "q"}], "tasks": {"b": {"process": "q"}}}}"#;
        let workload = from_rtapp("two", text, &Options::default()).unwrap();
        let cpus = |seed| -> Vec<CpuId> {
            let setup = Setup::new(&machine, &workload, seed).unwrap();
            setup.launchers().iter().map(|(_, cpu)| *cpu).collect()
        };
        assert_eq!(cpus(5), cpus(5));
        let all: Vec<Vec<CpuId>> = (0..100).map(cpus).collect();
        assert!(all.iter().all(|pair| pair[0] != pair[1]), "each has a CPU of its own");
        assert!(machine.cpus().all(|cpu| all.iter().any(|pair| pair[0] == cpu)), "and may have any");
    }
}
