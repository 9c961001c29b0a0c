//! Priorities of CPUs in a `/sys` tree: whether the kernel packs tasks by them (ITMT), and what they are.
//!
//! Source: Linux `arch/x86/kernel/itmt.c`; `drivers/cpufreq/intel_pstate.c` (`intel_pstate_set_itmt_prio`) and `amd-pstate.c`
//! (`amd_pstate_init_prefcore`), which take a CPU's from the highest performance that the firmware states (CPPC).
//!
//! Not read: what Intel's driver takes from a register of the CPU where the firmware says 255, and whether it runs without the processor's own
//! control of frequencies (HWP), when it sets none.

use std::collections::BTreeMap;

use crate::discovered::Found;
use crate::sysfs::{HIGHEST_PERF, SysTree};

/// The switch of older kernels, as seen from `sys/devices/system`.
pub(crate) const ITMT_SYSCTL: &str = "../../../proc/sys/kernel/sched_itmt_enabled";

/// Where a kernel says whether it goes by priorities, as seen from `sys/devices/system`, and the words for yes. The first that can be read decides:
/// the switch of newer kernels (6.17), which only root may read, that of older ones, and drivers that turn it on if CPUs differ.
pub(crate) const ITMT_FILES: [(&str, &[&str]); 4] = [
    ("../../kernel/debug/x86/sched_itmt_enabled", &["Y"]),
    (ITMT_SYSCTL, &["1"]),
    ("cpu/intel_pstate/status", &["active", "passive"]),
    ("cpu/amd_pstate/prefcore", &["enabled"]),
];

/// What the firmware says that knows no priorities (`CPPC_MAX_PERF`).
const CPPC_MAX_PERF: u32 = 255;

/// Takes the priorities of the CPUs found, if the kernel goes by them; notes if it does and they are not known.
pub(crate) fn read_priorities(tree: &SysTree, found: &mut Found) {
    let said = |(file, yes): &(&'static str, &[&str])| {
        let text = tree.text(file).ok().flatten()?;
        Some((*file, yes.contains(&text.as_str())))
    };
    let Some((file, true)) = ITMT_FILES.iter().find_map(said) else { return };
    let stated = found.top_speeds.get(HIGHEST_PERF);
    let priority = |cpu: &u32| Some((*cpu, u32::try_from(*stated?.get(cpu)?).ok()?));
    let priorities: BTreeMap<u32, u32> = found.cpus.keys().filter_map(priority).collect();
    let is_known = |priority: &u32| *priority < CPPC_MAX_PERF;
    if priorities.len() == found.cpus.len() && priorities.values().all(is_known) {
        found.priorities = priorities;
    } else if file.ends_with("sched_itmt_enabled") {
        found.notes.push(
            "the kernel packs tasks onto CPUs of high priority (ITMT), but the tree does not have the priorities; `priorities` in a machine \
             file states them"
                .to_owned(),
        );
    }
}
