//! Why a workload could not be run natively.

use rustix::io::Errno;
use warmcore_workload::CheckError;

/// Why a workload could not be run natively.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// Processes cannot share their memory.
    #[error("{workload}: its processes cannot share the memory of what they meet at: {source}")]
    Heap {
        /// The workload.
        workload: String,
        /// Why.
        source: std::io::Error,
    },
    /// It cannot be run at all.
    #[error("the workload cannot be run: {0}")]
    Check(#[from] CheckError),
    /// A program, not a workload of tasks.
    #[error("`{0}` is a program: start it as one")]
    Command(String),
    /// What only the kernel can take.
    #[error("{0}")]
    LockOfKernel(String),
    /// CPUs would go offline.
    #[error("CPUs of this computer are not taken offline; leave out \"hotplug\", or simulate the workload")]
    Hotplug,
    /// A task may run on none of this host's CPUs.
    #[error("task \"{task}\" may not run on any CPU of this host: {reason}")]
    NoCpus {
        /// The task.
        task: String,
        /// Which CPUs it asks for, and which there are.
        reason: String,
    },
    /// A thread could not be created.
    #[error("cannot create a thread for task \"{task}\" ({running} are running): {source}; see ulimit -u and pids.max")]
    Thread {
        /// The task.
        task: String,
        /// Threads of the run at that moment.
        running: u32,
        /// Why.
        source: std::io::Error,
    },
    /// A pipe or socket could not be created.
    #[error("cannot create channel \"{channel}\": {source}; see ulimit -n")]
    Channel {
        /// The channel.
        channel: String,
        /// Why.
        source: Errno,
    },
    /// The pipes of a barrier at which tasks poll could not be created.
    #[error("cannot create barrier \"{barrier}\": {source}; see ulimit -n")]
    Barrier {
        /// The barrier.
        barrier: String,
        /// Why.
        source: Errno,
    },
    /// The kernel refuses a real-time or deadline policy.
    #[error(
        "task \"{task}\" cannot be {policy}: {source}; EPERM needs root or CAP_SYS_NICE (and, for SCHED_DEADLINE, a task that may use every \
         CPU), EBUSY means that the kernel has no such bandwidth left"
    )]
    Policy {
        /// The task.
        task: String,
        /// The kernel's name of the policy.
        policy: &'static str,
        /// Why.
        source: Errno,
    },
    /// The kernel refuses utilisation clamps.
    #[error(
        "task \"{task}\" cannot have {clamp}: {source}; EOPNOTSUPP means a kernel without CONFIG_UCLAMP_TASK, EINVAL that util_min would be \
         above util_max"
    )]
    UtilClamp {
        /// The task.
        task: String,
        /// What it asks for.
        clamp: String,
        /// Why.
        source: Errno,
    },
    /// A system call failed that never should.
    #[error("task \"{task}\": {call} failed: {source}")]
    Call {
        /// The task.
        task: String,
        /// The system call.
        call: &'static str,
        /// Why.
        source: Errno,
    },
    /// What this computer's costs are measured with was refused.
    #[error("cannot measure the costs of this computer: {call} failed: {reason}")]
    Measuring {
        /// The system call.
        call: &'static str,
        /// Why.
        reason: String,
    },
    /// A thread of the run came to an unexpected end.
    #[error("a thread of task \"{task}\" panicked; this is a defect of this program")]
    Panic {
        /// The task.
        task: String,
    },
}
