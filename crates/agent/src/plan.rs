//! What the guest is told to do.

use serde::{Deserialize, Serialize};
use warmcore_options::Observe;

/// Everything a boot is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PROTOCOL`](crate::PROTOCOL).
    pub protocol: u32,
    /// What to do after reporting what the machine looks like.
    pub purpose: Purpose,
    /// Runs, one after another.
    pub runs: Vec<RunPlan>,
}

/// What a boot is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The runs of the plan; with none, only the report.
    Run,
    /// Its own costs, once it is at rest.
    Costs {
        /// Whether its CPUs have caches, so that what depends on them is measured as well.
        caches: bool,
    },
    /// The programs of a file ([`programs`](crate::programs)), each run once by the kernel.
    Programs,
    /// An interactive shell on the console.
    Shell,
    /// A program.
    Command(CommandPlan),
    /// A deliberate fault, to test the host's side.
    Fault(Fault),
}

/// A program that runs in a guest as any other: what it prints and the files that it leaves come back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandPlan {
    /// Path in the guest, and arguments.
    pub words: Vec<String>,
    /// Directory that it runs in. What is below it afterwards comes back.
    pub directory: String,
}

/// Faults that a guest can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The kernel panics.
    Panic,
    /// Nothing happens any more.
    Hang,
    /// All memory is used up.
    OutOfMemory,
    /// The channel is filled without end.
    FillChannel,
    /// The program ends without a word.
    Silence,
}

/// A task group to make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupPlan {
    /// Weight; 1024 is one nice-0 task.
    pub shares: u32,
    /// Number of the group in which it lies, one of the same list; `None` at the top.
    pub parent: Option<u32>,
    /// Quota, period and burst in us (`cpu.max`, `cpu.max.burst`), if it has a quota.
    pub cpu_max_us: Option<[u64; 3]>,
    /// `cpu.uclamp.min` and `cpu.uclamp.max` as those files take them, if they bound anything.
    pub cpu_uclamp: Option<[String; 2]>,
    /// Whether its tasks give way as those of `SCHED_IDLE` do (`cpu.idle`), which is its weight then.
    pub cpu_idle: bool,
    /// `cpuset.cpus` as that file takes it, if it confines its tasks.
    pub cpuset_cpus: Option<String>,
}

/// One run of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    /// What runs: each launch is a process that creates the tasks of its part of the workload.
    pub launches: Vec<LaunchPlan>,
    /// CPUs that the kernel isolates (`isolcpus`), as its list; those of all runs of a boot are the same.
    pub isolcpus: String,
    /// Those of `nohz_full`, in the same way.
    pub nohz_full: String,
    /// The workload's task groups; `None` for the root group.
    pub groups: Vec<Option<GroupPlan>>,
    /// Settings to apply, in order. What the previous run of the boot had set is set back first.
    pub settings: Vec<Setting>,
    /// What is done from outside the workload, in the order of time.
    pub actions: Vec<ActionPlan>,
    /// sched_ext scheduler to load.
    pub scx: Option<ScxPlan>,
    /// End of the run even if tasks still run.
    pub time_limit_ns: Option<u64>,
    /// Added to the instant of the start, so that runs begin at different times of the tick.
    pub phase_ns: u64,
    /// Ring buffer for events, KiB per CPU. Nothing is read from it before the run has ended, so that recording
    /// disturbs the run as little as it can.
    pub buffer_kib: u32,
    /// Interval of samples of `/proc/schedstat` and of the threads' `sched` files; besides, the former is read before
    /// and after each run.
    pub sample_ns: Option<u64>,
    /// Begin with the times of balancing passes forgotten (`max_newidle_lb_cost` 0, as a new domain has it). For emulated CPUs,
    /// whose passes are timed while other CPUs have their turns.
    pub forget_pass_costs: bool,
}

/// A process of the guest that stands for one or more of the workload's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPlan {
    /// Its part of the workload in rt-app's format, affinities in the guest's CPU numbers.
    pub workload: String,
    /// Indices of the workload's processes that it stands for.
    pub processes: Vec<u32>,
    /// Launches of one session are one autogroup.
    pub session: u32,
    /// CPU, by the guest's number, on which its main thread is when the run starts. It may run anywhere from then on.
    pub cpu: u32,
    /// Decides what its tasks draw.
    pub seed: u64,
}

/// Something done at a time, once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionPlan {
    /// When, counted from the start of the run.
    pub time_ns: u64,
    /// Times at which threads are looked at for it before, in order.
    pub looks_ns: Vec<u64>,
    /// What.
    pub what: DeedPlan,
    /// The action in words.
    pub text: String,
}

/// What is done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeedPlan {
    /// Threads may run on these CPUs only, by the guest's numbers.
    Bind {
        /// The threads.
        threads: Vec<ThreadsOf>,
        /// The CPUs.
        cpus: Vec<u32>,
    },
    /// Threads may run only in the region where others used most CPU time since the first look.
    Follow {
        /// The threads.
        threads: Vec<ThreadsOf>,
        /// The others.
        home: Vec<ThreadsOf>,
        /// CPUs of each region, by the guest's numbers.
        regions: Vec<Vec<u32>>,
    },
    /// A file of the kernel is written.
    Write(Setting),
}

/// Threads of a process by their name, as the kernel keeps it: its first 15 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadsOf {
    /// Index of the launch.
    pub launch: u32,
    /// Name.
    pub name: String,
}

/// A file to write, and what to write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Path in the guest.
    pub path: String,
    /// What to write.
    pub value: String,
    /// Not there: an error, or what the run would have had anyway (cache-aware scheduling off where the kernel has none).
    pub required: bool,
}

/// A sched_ext scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScxPlan {
    /// Path in the guest.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may take to be enabled, in guest time.
    pub enable_ns: u64,
    /// CPUs go offline or come online, for which the kernel may end it and its program may start it again.
    pub may_restart: bool,
    /// What is noted of it.
    pub observe: Observe,
}
