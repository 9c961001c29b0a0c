//! Runs a workload with real threads on this host: the same programs that the simulated kernel runs, for comparison
//! with real kernels.
//!
//! [`run`] creates a thread per task and does each step with what a program would use for it: futexes for locks,
//! conditions, barriers and semaphores; pipes and Unix sockets for channels; the scheduling system calls for affinity,
//! nice values, policies and slices. `Run` is a calibrated loop ([`calibrate`], once per run), `RunTime` computes until
//! the thread has used that much CPU time, which is told without a system call (`preemption`) where the C library has registered
//! restartable sequences (glibc 2.35), and by the thread's CPU clock elsewhere: a read of it at the end of a step makes the kernel
//! switch a thread that is due before it sleeps.
//!
//! Differences from the simulation, each counted in [`NativeOutcome::warnings`] where a workload meets it:
//! - Processes are threads of this process unless [`NativeOptions::processes`] says otherwise: address spaces are not separate.
//! - Start CPUs have no effect; task groups only where [`NativeOptions::groups`] says how to join them.
//! - Data groups and memory profiles are memory of their sizes where [`NativeOptions::own_memory`] asks for it, and nothing otherwise.
//! - Nice values, policies and slices that the kernel refuses stay as they were.
//! - Pipes hold whole pages, and sockets what the kernel gives them.
//! - A `Memory` step touches real memory, which takes the place of as much of the `Run` after it.
//!
//! Threads that are bound from their beginning have their affinity from who creates them (`start`). With a warm-up
//! ([`Workload::warm_up_ns`](warmcore_workload::Workload::warm_up_ns)) CPU times and samples are of what comes after it (`window`).
//!
//! Deadlocks are not detected: use [`NativeOptions::time_limit_ns`]. Whatever a task waits for ends when the run is stopped:
//! blocked system calls are interrupted with `SIGURG`, for which the first run installs a handler that does nothing,
//! for the life of the process. A run may also raise the soft limit of open files.
//!
//! The crate needs no files but `/sys/devices/system/{cpu,node}` (and can do without), so that it can also run as the
//! first program of a small guest.

mod chain;
mod channel;
mod clock;
mod costs;
mod error;
mod heap;
mod host;
mod memory;
mod multiply;
mod preemption;
mod run;
mod shared;
mod spin;
mod start;
mod sync;
mod sys;
mod task;
mod window;

pub use costs::{IdleWakeups, Sleeper, measure_costs, sleep_on_idle_cpu};
pub use error::NativeError;
pub use heap::SharedHeap;
pub use multiply::measure_multiply_add_ps;
pub use run::{Ended, NativeOptions, NativeOutcome, TaskOutcome, run};
pub use spin::{Calibration, calibrate};
