//! The fidelity checklist of `docs/spec/linux-fair.md` section 9, items 1 to 46: numbers seen on a Linux 7.2 kernel or
//! derived from its code. Each test is named after its item; each states the tolerance it allows and why. Items 22, 25,
//! 26 and 29 are in `tests/balance.rs`, those about averages and other internals (9, 10, 11, 14 to 16, 19, 20) in
//! `src/fair/checklist_tests.rs` as far as events do not show them.

mod balance;
mod cache_aware;
mod numa;
mod per_cpu;
mod topology_aware;
mod wakeup;
