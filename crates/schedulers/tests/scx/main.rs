//! The ext class: the ten vectors of `docs/spec/sched-ext.md` section 15, a program for each fault that the contract
//! calls an error, partial mode, task groups, and what the locks of queues cost.

mod above;
mod events;
mod faults;
mod groups;
mod hooks;
mod hotplug;
mod locks;
mod migration;
mod partial;
mod program;
mod speeds;
mod vectors;
