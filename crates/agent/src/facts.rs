//! What the guest found when it came up, and what it forgets before a run.

use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::Setting;
use warmcore_agent::report::Hello;

use crate::btf;
use crate::settings::{self, Changed};
use warmcore_agent::files;

/// Directory of the scheduler's knobs.
pub const SCHED: &str = "/sys/kernel/debug/sched";

/// Directory of the CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// Looks around.
pub fn hello() -> Result<Hello, String> {
    let boot_ns = monotonic_ns();
    let machine = warmcore_topology::from_sysfs(std::path::Path::new("/")).map_err(|error| error.to_string())?;
    let name = uname();
    let values = |directory: &str| -> Vec<(String, String)> {
        let read = |name: String| Some((name.clone(), files::read(&format!("{directory}/{name}")).ok()?));
        let is_value = |(name, text): &(String, String)| name == "features" || !text.contains('\n') && text.len() < 200;
        files::names(directory).into_iter().filter_map(read).filter(is_value).collect()
    };
    Ok(Hello {
        protocol: PROTOCOL,
        release: name.release().to_string_lossy().into_owned(),
        architecture: name.machine().to_string_lossy().into_owned(),
        boot_ns,
        clocksource: files::read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default(),
        machine: warmcore_topology::to_toml(&machine),
        domains: domains(),
        llc_balancing: values(&format!("{SCHED}/llc_balancing")),
        sched: values(SCHED),
        scx_refusal: scx_refusal(),
        stoppers: stoppers(),
        memory_bytes: memory_bytes(),
    })
}

/// The monotonic clock, ns.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

/// CPU 0's domains as `NAME:CPUs`.
fn domains() -> Vec<String> {
    with_domains_listed(|| {
        let directory = format!("{SCHED}/domains/cpu0");
        let mut found = Vec::new();
        for domain in files::names(&directory) {
            let file = |name: &str| files::read(&format!("{directory}/{domain}/{name}"));
            if let Ok(name) = file("name") {
                let interval = file("min_interval").map(|interval| format!(":{interval}")).unwrap_or_default();
                found.push(format!("{name}{interval}"));
            }
        }
        found
    })
    .unwrap_or_default()
}

/// Has the kernel build its scheduling domains anew, by taking the last CPU offline and back. New domains know of no earlier run: neither how often
/// new-idle passes found a task (`newidle_call`, `newidle_success` and `newidle_ratio`) nor what they took at most. One CPU alone has no domains.
///
/// The kernel keeps domains whose CPUs stay the same (`partition_sched_domains`), so of each change it rebuilds all. It also moves interrupts off that
/// CPU, parks its own threads there and lets them go on. Masks of threads stay: the cpuset controller is on in no group below the root, and no
/// thread is bound to that CPU yet. A sched_ext scheduler may end at such a change, so this comes before one is loaded, and before settings, which
/// may be a domain's. The first CPU of x86 cannot go offline.
///
/// Source: Linux 7.2 `kernel/sched/topology.c` (`sd_init`), `kernel/sched/core.c` (`sched_cpu_deactivate`, `sched_cpu_activate`).
///
/// # Errors
/// When none of several CPUs can go offline, or the kernel refuses.
pub fn rebuild_domains() -> Result<(), String> {
    let Some(path) = switch_of_last_cpu(CPUS)? else { return Ok(()) };
    let set = |value: &str| Setting { path: path.clone(), value: value.to_owned(), required: true };
    let done = settings::apply(&[set("0"), set("1")], &mut Changed::default());
    done.map(drop).map_err(|reason| format!("cannot make the kernel rebuild its scheduling domains: {reason}"))
}

/// The file that takes the last CPU offline, by number; `None` where one CPU is online. The first one is left alone, also where it could go.
fn switch_of_last_cpu(cpus: &str) -> Result<Option<String>, String> {
    let number = |name: &String| name.strip_prefix("cpu")?.parse::<u32>().ok();
    let file = |cpu: u32| format!("{cpus}/cpu{cpu}/online");
    let (mut online, mut last) = (0, None);
    for cpu in files::names(cpus).iter().filter_map(number) {
        let state = files::read(&file(cpu));
        // One that cannot go offline has no such file.
        online += u32::from(state.as_deref().is_ok_and(|state| state == "1") || state.is_err());
        if cpu > 0 && state.is_ok_and(|state| state == "1") {
            last = last.max(Some(cpu));
        }
    }
    match last {
        _ if online <= 1 => Ok(None),
        Some(cpu) => Ok(Some(file(cpu))),
        None => Err(format!(
            "none of the {online} CPUs in {cpus} can go offline, so the kernel cannot be made to forget what new-idle balancing counted in earlier \
             runs; boot one with CONFIG_HOTPLUG_CPU"
        )),
    }
}

/// Has every CPU's domains forget what a new-idle pass took at most (`max_newidle_lb_cost`). One CPU alone has no domains.
///
/// # Errors
/// When domains are not listed although there are several CPUs, or cannot be written to.
pub fn forget_pass_costs() -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_err(|error| format!("cannot count CPUs: {error}"))?.get();
    with_domains_listed(|| forget_in(&format!("{SCHED}/domains"), cpus))?
}

fn forget_in(domains: &str, cpus: usize) -> Result<(), String> {
    let mut found = 0;
    for cpu in files::names(domains) {
        for domain in files::names(&format!("{domains}/{cpu}")) {
            files::write(&format!("{domains}/{cpu}/{domain}/max_newidle_lb_cost"), "0")?;
            found += 1;
        }
    }
    if found == 0 && cpus > 1 {
        return Err(format!(
            "the kernel lists no scheduling domain of its {cpus} CPUs in {domains}, so it cannot be made to forget how long \
             balancing passes took while it booted. On emulated CPUs that time prevents later passes. Boot a kernel that \
             balances between its CPUs and has max_newidle_lb_cost there"
        ));
    }
    Ok(())
}

/// The kernel lists domains while `verbose` is set.
fn with_domains_listed<T>(look: impl FnOnce() -> T) -> Result<T, String> {
    let verbose = format!("{SCHED}/verbose");
    let before = files::read(&verbose);
    files::write(&verbose, "Y")?;
    let found = look();
    if before.as_deref() == Ok("N") {
        let _ = files::write(&verbose, "N");
    }
    Ok(found)
}

fn scx_refusal() -> Option<String> {
    if files::read("/sys/kernel/sched_ext/state").is_err() {
        return Some("the kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)".into());
    }
    match std::fs::read("/sys/kernel/btf/vmlinux") {
        Err(error) => Some(format!("the kernel has no type information (CONFIG_DEBUG_INFO_BTF): {error}")),
        Ok(bytes) => btf::refusal(&bytes),
    }
}

fn stoppers() -> Vec<i32> {
    let is_stopper =
        |process: &i32| files::read(&format!("/proc/{process}/comm")).is_ok_and(|comm| comm.starts_with("migration/"));
    files::names("/proc").iter().filter_map(|name| name.parse().ok()).filter(is_stopper).collect()
}

fn memory_bytes() -> u64 {
    let text = files::read("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    kib * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of CPUs with these contents of `online`; `None` has no such file.
    fn cpus(name: &str, all: &[(u32, Option<&str>)]) -> String {
        let root = std::env::temp_dir().join(format!("warmcore-{name}-{}", std::process::id()));
        for (cpu, online) in all {
            let directory = root.join(format!("cpu{cpu}"));
            std::fs::create_dir_all(&directory).unwrap();
            if let Some(online) = online {
                std::fs::write(directory.join("online"), format!("{online}\n")).unwrap();
            }
        }
        for other in ["cpufreq", "cpuidle", "hotplug"] {
            std::fs::create_dir_all(root.join(other)).unwrap();
        }
        root.display().to_string()
    }

    #[test]
    fn domains_are_built_anew_by_the_online_cpu_of_the_highest_number_and_never_by_the_first() {
        /// CPUs with what their switches say, and which one of them goes offline.
        type Case<'a> = (&'a [(u32, Option<&'a str>)], Option<u32>);
        let cases: [Case<'_>; 5] = [
            (&[(0, None)], None),
            (&[(0, None), (1, Some("1"))], Some(1)),
            (&[(0, None), (2, Some("1")), (9, Some("1")), (10, Some("1"))], Some(10)),
            (&[(0, Some("1")), (1, Some("1")), (2, Some("0"))], Some(1)),
            (&[(0, Some("1")), (1, Some("0"))], None),
        ];
        for (number, (all, expected)) in cases.into_iter().enumerate() {
            let root = cpus(&format!("cpus-{number}"), all);
            let found = switch_of_last_cpu(&root).unwrap();
            assert_eq!(found, expected.map(|cpu| format!("{root}/cpu{cpu}/online")), "{all:?}");
            std::fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn several_cpus_of_which_none_can_go_offline_are_an_error() {
        for (number, first) in [None, Some("1")].into_iter().enumerate() {
            let root = cpus(&format!("fixed-cpus-{number}"), &[(0, first), (1, None), (2, None)]);
            let reason = switch_of_last_cpu(&root).unwrap_err();
            assert!(reason.contains("none of the 3 CPUs") && reason.contains("CONFIG_HOTPLUG_CPU"), "{reason}");
            std::fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn every_domain_of_every_cpu_forgets_what_passes_took() {
        let root = std::env::temp_dir().join(format!("warmcore-domains-{}", std::process::id()));
        let file = |cpu: u32, domain: u32| root.join(format!("cpu{cpu}/domain{domain}/max_newidle_lb_cost"));
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)];
        for (cpu, domain) in all {
            std::fs::create_dir_all(file(cpu, domain).parent().unwrap()).unwrap();
            // Not truncated by the write: debugfs files have no length.
            std::fs::write(file(cpu, domain), "7").unwrap();
        }
        let root_text = root.display().to_string();
        forget_in(&root_text, 2).unwrap();
        assert!(all.iter().all(|&(cpu, domain)| std::fs::read_to_string(file(cpu, domain)).unwrap() == "0"));
        std::fs::remove_file(file(1, 1)).unwrap();
        assert!(forget_in(&root_text, 2).unwrap_err().contains("cpu1/domain1"), "a kernel without the file");
        std::fs::remove_dir_all(&root).unwrap();
    }
    #[test]
    fn several_cpus_without_a_domain_are_an_error_and_one_cpu_is_not() {
        let root = std::env::temp_dir().join(format!("warmcore-no-domains-{}", std::process::id()));
        let text = root.display().to_string();
        assert!(forget_in(&text, 4).unwrap_err().contains("no scheduling domain of its 4 CPUs"), "no directory at all");
        std::fs::create_dir_all(root.join("cpu0")).unwrap();
        assert!(forget_in(&text, 2).unwrap_err().contains("no scheduling domain of its 2 CPUs"), "an empty one");
        forget_in(&text, 1).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
    }
}
