//! Fitting a workload to a machine before a run: affinities become CPU sets, templates become start entries.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use warmcore_topology::{CpuId, CpuSet, Machine};
use warmcore_trace::{DecisionKind, RunTables};
use warmcore_workload::{Affinity, Step, TaskTemplateId, Workload};

use crate::core::KernelParameters;
use crate::error::SetupError;
use crate::memory_samples::MEMORY_COUNTERS;

/// A task that the launcher creates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartEntry {
    pub time_ns: u64,
    pub template: u32,
    pub instance: u32,
}

/// How the memory is modelled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryChoice {
    /// Constant speed, fixed costs per distance.
    #[default]
    None,
    /// Caches, coherence and DRAM in closed forms.
    Analytic,
    /// Every line in simulated caches, coherence and DRAM.
    Exact,
}

impl MemoryChoice {
    /// The name used on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryChoice::None => "none",
            MemoryChoice::Analytic => "analytic",
            MemoryChoice::Exact => "exact",
        }
    }
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
}

impl<'a> Boot<'a> {
    /// A kernel with default parameters on a machine, and seed 0.
    pub fn new(machine: &'a Machine) -> Self {
        Self { machine, kernel: KernelParameters::default(), seed: 0 }
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
    /// How the memory is modelled.
    pub memory: MemoryChoice,
    /// End of the run even if tasks still run.
    pub max_time_ns: Option<u64>,
    /// Shortest time between two samples of what the scheduler ranks a CPU's tasks by; `None` for no samples. Samples are
    /// taken at ticks and switches, and cost the simulated machine nothing.
    pub scores_every_ns: Option<u64>,
    /// Compare the scheduler's accounts with the kernel's again and again. Slower.
    pub check_invariants: bool,
    /// The run ends with [`SimulationError::Interrupted`](crate::SimulationError) soon after this becomes true.
    pub stop: Option<Arc<AtomicBool>>,
    pub(crate) restrictions: Vec<CpuSet>,
    /// Restriction of each task template.
    pub(crate) template_restrictions: Vec<u32>,
    /// CPU each template's first placement starts from.
    pub(crate) template_cpus: Vec<CpuId>,
    /// Restriction of each `SetAffinity` step, by program and step; `u32::MAX` for other steps.
    pub(crate) step_restrictions: Vec<Vec<u32>>,
    pub(crate) starts: Vec<StartEntry>,
}

impl<'a> Setup<'a> {
    /// Resolves `workload` on `machine`.
    ///
    /// # Errors
    /// When a task could run nowhere, or nothing would run.
    pub fn new(machine: &'a Machine, workload: &'a Workload, seed: u64) -> Result<Self, SetupError> {
        workload.check().map_err(|error| SetupError::Workload(error.to_string()))?;
        let mut restrictions = vec![machine.all_cpus().clone()];
        let mut intern = |set: CpuSet| {
            restrictions.iter().position(|known| *known == set).unwrap_or_else(|| {
                restrictions.push(set);
                restrictions.len() - 1
            }) as u32
        };
        let mut template_restrictions = Vec::new();
        let mut template_cpus = Vec::new();
        for task in &workload.tasks {
            let set = resolve(machine, &task.name, &task.affinity)?;
            let cpu = match task.start_cpu {
                None => set.first().expect("a resolved set is not empty"),
                Some(cpu) if set.contains(CpuId(cpu)) => CpuId(cpu),
                Some(cpu) => return Err(SetupError::BadStartCpu { task: task.name.clone(), cpu }),
            };
            template_restrictions.push(intern(set));
            template_cpus.push(cpu);
        }
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
        let starts = starts(machine, workload);
        if starts.is_empty() {
            return Err(SetupError::NoTasks);
        }
        Ok(Self {
            machine,
            workload,
            seed,
            kernel: KernelParameters::default(),
            memory: MemoryChoice::None,
            max_time_ns: None,
            scores_every_ns: None,
            check_invariants: false,
            stop: None,
            restrictions,
            template_restrictions,
            template_cpus,
            step_restrictions,
            starts,
        })
    }

    /// What a policy for this setup is made from.
    pub fn boot(&self) -> Boot<'a> {
        Boot { machine: self.machine, kernel: self.kernel, seed: self.seed }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// The workload.
    pub fn workload(&self) -> &'a Workload {
        self.workload
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
            counters: match self.memory {
                MemoryChoice::None => Vec::new(),
                MemoryChoice::Analytic | MemoryChoice::Exact => {
                    MEMORY_COUNTERS.iter().map(ToString::to_string).collect()
                }
            },
            phases: self.workload.phases.clone(),
            decisions,
            scores: Vec::new(),
        }
    }
}

/// The launcher creates tasks one after the other; each takes the machine's time of a fork.
fn starts(machine: &Machine, workload: &Workload) -> Vec<StartEntry> {
    let mut starts: Vec<StartEntry> = Vec::new();
    for (template, task) in workload.tasks.iter().enumerate() {
        for instance in 0..task.instances {
            starts.push(StartEntry { time_ns: task.start_ns, template: template as u32, instance });
        }
    }
    starts.sort_by_key(|start| start.time_ns);
    let mut free_at = 0;
    for start in &mut starts {
        start.time_ns = start.time_ns.max(free_at);
        free_at = start.time_ns + machine.costs().fork_ns;
    }
    starts
}

fn resolve(machine: &Machine, task: &str, affinity: &Affinity) -> Result<CpuSet, SetupError> {
    let set = match affinity {
        Affinity::All => machine.all_cpus().clone(),
        Affinity::Cpus(set) => set.intersection(machine.all_cpus()),
        Affinity::OsCpus(list) => list.iter().filter_map(|&os| machine.cpu_by_os_index(os)).collect(),
        Affinity::OsNodes(list) => {
            let mut set = CpuSet::new();
            for node in list.iter().filter_map(|&os| machine.node_by_os_index(os)) {
                set.union_with(machine.cpus_of_node(node));
            }
            set
        }
    };
    if set.is_empty() {
        let online = machine.cpus().map(|cpu| CpuId(machine.os_index(cpu))).collect::<CpuSet>();
        return Err(SetupError::NoAllowedCpu {
            task: task.to_owned(),
            wanted: affinity.to_string(),
            online: online.to_string(),
        });
    }
    Ok(set)
}
