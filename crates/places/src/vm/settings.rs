//! A scheduler's tunables as settings of a real kernel.
//!
//! Names of tunables are the kernel's own, so the map is short: files of `/sys/kernel/debug/sched`, words of its `features`,
//! files of its `llc_balancing`. What differs from the defaults is written and read back; what a real kernel fixes when it
//! is built (`hz`) must agree with it.

use warmcore_agent::plan::Setting;
use warmcore_schedulers::{LinuxScheduler, SchedulerSpec, list};

use super::VmError;
use super::kernel::Abilities;

const SCHED: &str = "/sys/kernel/debug/sched";
/// Whether the kernel moves tasks and pages towards each other.
pub(super) const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const LLC_BALANCING: &str = "/sys/kernel/debug/sched/llc_balancing";

/// Tunables that are words of `features`.
const FEATURES: [&str; 14] = [
    "place_lag",
    "place_deadline_initial",
    "place_rel_deadline",
    "run_to_parity",
    "preempt_short",
    "pick_buddy",
    "next_buddy",
    "delay_dequeue",
    "delay_zero",
    "wakeup_preemption",
    "hrtick",
    "ttwu_queue",
    "sis_util",
    "ni_random",
];
/// Tunables that are files of `/sys/kernel/debug/sched`, in the order of writing: the scale changes the slice.
const FILES: [&str; 4] = ["tunable_scaling", "base_slice_ns", "migration_cost_ns", "nr_migrate"];
/// Tunables that are files of `llc_balancing`.
const LLC_FILES: [&str; 5] = ["aggr_tolerance", "epoch_period", "epoch_affinity_timeout", "overaggr_pct", "imb_pct"];

/// The settings for a scheduler.
///
/// # Errors
/// A scheduler or a tunable that no real kernel has, or that this one lacks.
pub fn settings_of(spec: &SchedulerSpec, abilities: &Abilities) -> Result<Vec<Setting>, VmError> {
    let refuse = |reason: String| VmError::Scheduler { scheduler: spec.to_string(), reason };
    let cache_aware = match spec.info().linux {
        Some(LinuxScheduler::Fair) => false,
        Some(LinuxScheduler::CacheAware) => true,
        None => {
            let real: Vec<&str> = list().iter().filter(|info| info.linux.is_some()).map(|info| info.name).collect();
            return Err(refuse(format!(
                "a real kernel of this series has no `{}`; there are {} and scx:PROGRAM",
                spec.name(),
                real.join(", ")
            )));
        }
    };
    if cache_aware && !abilities.cache_aware {
        return Err(refuse("the kernel was built without CONFIG_SCHED_CACHE".into()));
    }
    let number = |path: String, value: u64| Setting { path, value: value.to_string(), required: true };
    let mut settings = vec![Setting {
        path: format!("{LLC_BALANCING}/enabled"),
        value: u64::from(cache_aware).to_string(),
        // Without the file there is no cache-aware scheduling to switch off.
        required: cache_aware,
    }];
    let changed = spec.changed();
    let value_of = |name: &str| changed.iter().find(|(changed, _)| *changed == name).map(|(_, value)| *value);
    let mut known = Vec::new();
    for name in FILES {
        known.push(name);
        settings.extend(value_of(name).map(|value| number(format!("{SCHED}/{name}"), value)));
    }
    for name in FEATURES {
        known.push(name);
        if let Some(value) = value_of(name) {
            let word = format!("{}{}", if value == 0 { "NO_" } else { "" }, name.to_uppercase());
            settings.push(Setting { path: format!("{SCHED}/features"), value: word, required: true });
        }
    }
    for name in LLC_FILES {
        known.push(name);
        settings.extend(value_of(name).map(|value| number(format!("{LLC_BALANCING}/{name}"), value)));
    }
    for (name, value) in &changed {
        match *name {
            "hz" if abilities.hz == Some(*value) => {}
            "hz" => return Err(refuse(format!("the kernel was built with HZ={}", abilities.hz.unwrap_or(0)))),
            "enabled" => settings[0].value = value.to_string(),
            "autogroup" => settings.push(number("/proc/sys/kernel/sched_autogroup_enabled".into(), *value)),
            "sched_energy_aware" => settings.push(number("/proc/sys/kernel/sched_energy_aware".into(), *value)),
            "numa_balancing" => settings.push(number(NUMA_BALANCING.into(), *value)),
            "preempt" => {
                let chosen = spec.info().tunables().find(|tunable| tunable.name == *name);
                let path = format!("{SCHED}/preempt");
                settings.extend(chosen.map(|tunable| Setting { path, value: tunable.text(*value), required: true }));
            }
            name if known.contains(&name) => {}
            name => return Err(refuse(format!("`{name}` cannot be set on a real kernel"))),
        }
    }
    Ok(settings)
}

/// The setting for a tunable that changes in a run.
pub(super) fn setting_of(tunable: &str, value: u64) -> Option<Setting> {
    let directory = if LLC_FILES.contains(&tunable) {
        LLC_BALANCING
    } else if FILES.contains(&tunable) {
        SCHED
    } else {
        return None;
    };
    Some(Setting { path: format!("{directory}/{tunable}"), value: value.to_string(), required: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Vec<String>, String> {
        let abilities = Abilities { hz: Some(250), cache_aware: true, sched_ext: true, numa_balancing: true };
        let settings =
            settings_of(&SchedulerSpec::parse(text).unwrap(), &abilities).map_err(|error| error.to_string())?;
        Ok(settings
            .into_iter()
            .map(|setting| format!("{}={}", setting.path.replace(SCHED, ""), setting.value))
            .collect())
    }

    #[test]
    fn tunables_become_the_kernels_files_and_words() {
        assert_eq!(settings("eevdf").unwrap(), ["/llc_balancing/enabled=0"]);
        assert_eq!(
            settings("cache-aware:aggr_tolerance=100,base_slice_ns=3000000,hrtick=0").unwrap(),
            [
                "/llc_balancing/enabled=1",
                "/base_slice_ns=3000000",
                "/features=NO_HRTICK",
                "/llc_balancing/aggr_tolerance=100"
            ]
        );
    }

    #[test]
    fn the_preemption_model_is_set_by_its_name_and_only_if_one_is_chosen() {
        let model =
            |text: &str| settings(text).unwrap().into_iter().filter(|set| set.starts_with("/preempt=")).collect();
        let [full, lazy, default]: [Vec<String>; 3] =
            ["eevdf:preempt=full", "cache-aware:preempt=lazy", "eevdf:preempt=default"].map(model);
        assert_eq!((full, lazy, default), (vec!["/preempt=full".into()], vec!["/preempt=lazy".into()], vec![]));
    }

    #[test]
    fn what_a_kernel_does_not_have_is_refused() {
        assert!(settings("cfs").unwrap_err().contains("no `cfs`"));
        assert!(settings("eevdf:hz=1000").unwrap_err().contains("HZ=250"));
        assert!(settings("eevdf:timer_slack_ns=1").unwrap_err().contains("timer_slack_ns"));
    }

    #[test]
    fn the_kernel_under_a_program_is_set_as_under_other_schedulers_and_what_it_lacks_is_refused() {
        let set = settings("scx:hz=250,ttwu_queue=0,preempt=full /bin/own --fast").unwrap();
        assert_eq!(set, ["/llc_balancing/enabled=0", "/features=NO_TTWU_QUEUE", "/preempt=full"]);
        assert!(settings("scx:hz=1000 /bin/own").unwrap_err().contains("HZ=250"));
        for setting in ["loader=ended", "ticks=together", "timer_slack_ns=1", "sched_cluster=0", "governor=schedutil"] {
            let error = settings(&format!("scx:{setting} /bin/own")).unwrap_err();
            let name = setting.split_once('=').unwrap().0;
            assert!(error.contains(&format!("`{name}` cannot be set on a real kernel")), "{error}");
        }
    }
}
