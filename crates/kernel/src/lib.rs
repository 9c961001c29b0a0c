//! The simulated kernel: clock, events, CPUs, ticks, wakeups, timers, locks, pipes; and the [`Scheduler`] trait.
//!
//! Mechanism without policy. Time is integer nanoseconds; the event queue has a total order; nothing is random but
//! what the seed says; costs come from the machine. [`run`] takes a [`Setup`], a scheduler and a sink for the trace.
//!
//! What is modelled and what is not stands at the top of the modules concerned and in `docs/limitations.md`.

// Tests in here use the same small policy as those outside.
#[cfg(test)]
extern crate self as warmcore_kernel;

mod accounts;
mod actions;
mod analytic_memory;
mod background;
mod barrier;
mod cache_groups;
mod channel;
mod clamps;
mod clocks;
mod core;
mod counters;
mod cpusets;
mod engine;
mod error;
mod event_queue;
mod exact_memory;
mod hint_faults;
mod hooks;
mod hotplug;
mod idle_cpus;
mod interpreter;
mod interrupts;
mod io_boost;
mod kernel_mode;
mod latch;
mod launching;
mod lifecycle;
mod memory;
#[cfg(test)]
mod memory_protocol_tests;
mod memory_samples;
mod migration;
mod pages;
mod parameters;
mod progress;
mod queue_lock;
mod requests;
mod scheduler;
mod scheduler_threads;
mod score_samples;
mod setup;
mod shared_cores;
mod sleeping_lock;
mod switching;
mod sync;
mod task;
mod task_groups;
mod task_profiles;
mod telling;
mod tickless;
mod timers;

pub use crate::clamps::Clamp;
pub use crate::clocks::{CAPACITY_SCALE, Governor, Utilisation};
pub use crate::core::{Core, NeedResched};
pub use crate::counters::{LiveCounters, READ_COUNTERS_NS};
pub use crate::engine::run;
pub use crate::error::{EndedBy, HotplugProblem, SetupError, SimulationError};
pub use crate::hint_faults::HintFault;
pub use crate::hooks::{Hook, Watched};
pub use crate::memory_samples::MEMORY_COUNTERS;
pub use crate::pages::{LastTouch, PAGE_BYTES, RegionId};
pub use crate::parameters::{KernelParameters, Preempt, Ticks};
pub use crate::queue_lock::QueueLock;
pub use crate::scheduler::{Change, Dequeue, Enqueue, LeftWakeups, Scheduler, WakeFlags};
pub use crate::scheduler_threads::{SchedulerThread, ThreadStep};
pub use crate::setup::{Boot, Setup};
pub use crate::task::{State, Task};
pub use crate::task_groups::TaskGroup;
pub use crate::timers::{Level, TimerId};
