//! Why a workload could not be run natively.

use rustix::io::Errno;
use warmcore_workload::CheckError;

/// Why a workload could not be run natively.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // messages have the fields
pub enum NativeError {
    #[error("{workload}: its processes cannot share the memory of what they meet at: {source}")]
    Heap { workload: String, source: std::io::Error },
    #[error("the workload cannot be run: {0}")]
    Check(#[from] CheckError),
    #[error("`{0}` is a program: start it as one")]
    Command(String),
    /// What only the kernel can take.
    #[error("{0}")]
    LockOfKernel(String),
    #[error(
        "CPUs of this computer are isolated when it boots, or not at all; leave out \"isolcpus\" and \"nohz_full\", or simulate the workload"
    )]
    Isolated,
    #[error("CPUs of this computer are not taken offline; leave out \"hotplug\", or simulate the workload")]
    Hotplug,
    #[error("task \"{task}\" may not run on any CPU of this host: {reason}")]
    NoCpus { task: String, reason: String },
    #[error("cannot create a thread for task \"{task}\" ({running} are running): {source}; see ulimit -u and pids.max")]
    Thread { task: String, running: u32, source: std::io::Error },
    #[error("cannot create channel \"{channel}\": {source}; see ulimit -n")]
    Channel { channel: String, source: Errno },
    #[error("cannot create barrier \"{barrier}\": {source}; see ulimit -n")]
    Barrier { barrier: String, source: Errno },
    #[error(
        "task \"{task}\" cannot be {policy}: {source}; EPERM needs root or CAP_SYS_NICE (and, for SCHED_DEADLINE, a task that may use every \
         CPU), EBUSY means that the kernel has no such bandwidth left"
    )]
    Policy { task: String, policy: &'static str, source: Errno },
    #[error(
        "task \"{task}\" cannot have {clamp}: {source}; EOPNOTSUPP means a kernel without CONFIG_UCLAMP_TASK, EINVAL that util_min would be \
         above util_max"
    )]
    UtilClamp { task: String, clamp: String, source: Errno },
    #[error("task \"{task}\": {call} failed: {source}")]
    Call { task: String, call: &'static str, source: Errno },
    #[error("cannot measure the costs of this computer: {call} failed: {reason}")]
    Measuring { call: &'static str, reason: String },
    #[error("a thread of task \"{task}\" panicked; this is a defect of this program")]
    Panic { task: String },
}
