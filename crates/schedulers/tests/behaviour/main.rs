//! What schedulers do with groups, policies, slices, affinities and programs, beyond the fidelity checklist; that runs repeat;
//! and that nothing is lost in many random workloads. Every run is made with the kernel's invariants and a check of its trace.

mod actions;
mod affinity;
mod aggregate;
mod asymmetric;
mod attributes;
mod background;
mod clamps;
mod determinism;
mod domain_counters;
mod energy;
mod frequencies;
mod groups;
mod hotplug;
mod interrupts;
mod io_boost;
mod kernel_locks;
mod launch;
mod migration;
mod numa;
mod preemption;
mod programs;
mod quotas;
mod random;
mod reach;
mod realtime;
mod step_programs;
