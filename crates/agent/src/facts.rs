//! What the guest found when it came up.

use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use warmcore_agent::PROTOCOL;
use warmcore_agent::report::Hello;

use crate::btf;
use warmcore_agent::files;

/// Directory of the scheduler's knobs.
pub const SCHED: &str = "/sys/kernel/debug/sched";

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
            "the kernel lists no scheduling domain of its {cpus} CPUs in {domains}, so it cannot be made to forget what \
             balancing passes took while it booted, which on emulated CPUs keeps later passes from being made; boot one that \
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
