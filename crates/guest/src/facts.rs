//! What the guest found when it came up.

use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use warmcore_guest::PROTOCOL;
use warmcore_guest::report::Hello;

use crate::{btf, files};

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

/// CPU 0's domains as `NAME:CPUs`. They are listed while `verbose` is set.
fn domains() -> Vec<String> {
    let verbose = format!("{SCHED}/verbose");
    let before = files::read(&verbose);
    if files::write(&verbose, "Y").is_err() {
        return Vec::new();
    }
    let directory = format!("{SCHED}/domains/cpu0");
    let mut found = Vec::new();
    for domain in files::names(&directory) {
        let file = |name: &str| files::read(&format!("{directory}/{domain}/{name}"));
        if let Ok(name) = file("name") {
            let interval = file("min_interval").map(|interval| format!(":{interval}")).unwrap_or_default();
            found.push(format!("{name}{interval}"));
        }
    }
    if before.as_deref() == Ok("N") {
        let _ = files::write(&verbose, "N");
    }
    found
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
