//! What can be typed about experiments on this computer.

use clap::{Args, Subcommand, ValueEnum};

/// What to do.
#[derive(Subcommand, Debug)]
pub enum HostCommand {
    /// Say which of the kernel's interfaces are here, and what is lost without the others
    Doctor {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Undo what an experiment left that was killed
    Restore {
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

/// How CPUs are kept from a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum SetCpus {
    /// Bind the command: nothing of this computer is changed
    #[default]
    Affinity,
    /// Give it the CPUs for itself, as a partition of cpusets of cgroup 2: balancing ends at its border
    Partition,
    /// Take the others offline: also for the kernel's own threads; what was bound to them alone loses its binding for good
    Offline,
}

/// Whether something is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// How trials on this computer are made, with `compare --on host`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "On this computer (--on host)")]
pub struct HostArguments {
    /// CPUs to run on: all, one-socket, smt-off (one CPU of each core) or a list such as 0-3,8; can be given several times: each with
    /// every scheduler
    #[arg(long, value_name = "CPUS", conflicts_with = "resume")]
    pub cpus: Vec<String>,
    /// How other CPUs are kept from it
    #[arg(long, value_name = "MEANS", default_value = "affinity", conflicts_with = "resume")]
    pub set_cpus: SetCpus,
    /// Frequency governors, with commas between them: each with all of the above
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "resume")]
    pub governor: Vec<String>,
    /// NUMA balancing: on, off, or both with a comma between them: each with all of the above
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "resume")]
    pub numa_balancing: Vec<Switch>,
    /// File of the kernel to write before every trial, such as /proc/sys/vm/swappiness=0; can be given several times
    #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "resume")]
    pub settings: Vec<String>,
    /// End a sched_ext scheduler that is at work for each trial, and start it again as it was, without its environment
    #[arg(long, conflicts_with = "resume")]
    pub replace: bool,
    /// Rounds of all schedulers before the first trial, which do not count
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "resume")]
    pub warm_up_rounds: u32,
    /// More is better, of a metric that is a number in what the command prints
    #[arg(long, requires = "metric", conflicts_with = "resume")]
    pub higher: bool,
    /// Say what would be changed, and run nothing
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,
}

impl HostArguments {
    /// An option that was given and that changes or ends something of this computer, which other places do not do.
    pub fn changing(&self) -> Option<&'static str> {
        let given = [
            (self.replace, "--replace"),
            (!self.settings.is_empty(), "--set"),
            (self.set_cpus != SetCpus::Affinity, "--set-cpus"),
            (self.dry_run, "--dry-run"),
        ];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// Whether no circumstances are asked for.
    pub fn has_none(&self) -> bool {
        self.cpus.is_empty() && self.governor.is_empty() && self.numa_balancing.is_empty()
    }
}
