//! A process of the workload: it has an address space of its own, and the session of its application ([`crate::session`]).
//!
//! It reads its task ([`Order`]) from process 1, says `ready`, waits for the instant of the start, runs, and says its report. All
//! processes of a workload start at the same instant.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use warmcore_agent::plan::LaunchPlan;
use warmcore_agent::report::ProcessReport;
use warmcore_native::Calibration;
use warmcore_workload::{Options, from_rtapp};

use crate::session::SOCKET;

/// The argument that makes this program a worker; its number follows.
pub const ARGUMENT: &str = "worker";

/// A worker that cannot go on begins its last line with this.
pub(crate) const FAILED: &str = "failed: ";

/// NUMA balancing: 0 where there is one node.
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// What a worker is told.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// What it does, and where its main thread is at the start.
    pub launch: LaunchPlan,
    /// By the workload's task group: the file to which a thread writes its number to join.
    pub groups: Vec<String>,
    /// Its processes are processes. Where somebody outside acts on its tasks, they are threads, which are found by one process.
    pub separate: bool,
    /// Speed of the computing loop, measured once per boot.
    pub iterations_per_ms: u64,
    /// End of the run even if tasks still run.
    pub time_limit_ns: Option<u64>,
}

/// Does the order.
pub fn run(number: Option<String>) -> Result<(), String> {
    let number = number.ok_or("a worker without a number")?;
    let mut stream = UnixStream::connect(SOCKET).map_err(|error| format!("cannot connect to {SOCKET}: {error}"))?;
    let mut say = {
        let mut stream = stream.try_clone().map_err(|error| format!("{SOCKET}: {error}"))?;
        move |line: &str| writeln!(stream, "{line}").map_err(|error| format!("cannot report: {error}"))
    };
    say(&format!("{number} {}", std::process::id()))?;
    // Process 1 reads what went wrong where it reads everything else.
    obey(&mut stream, &mut say).or_else(|reason| say(&format!("{FAILED}{reason}")))
}

fn obey(stream: &mut UnixStream, say: &mut impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
    let mut lines = BufReader::new(stream).lines();
    let mut next = || lines.next().and_then(Result::ok).ok_or("the order is missing");
    let order: Order = serde_json::from_str(&next()?).map_err(|error| format!("the order: {error}"))?;
    let workload = from_rtapp("workload", &order.launch.workload, &Options::default())
        .map_err(|error| format!("the workload: {error}"))?;
    // Processes that it begins can be ended with it.
    rustix::process::setpgid(None, None).map_err(|error| format!("cannot begin a group of processes: {error}"))?;
    say("ready")?;
    let start_ns: u64 = next()?.parse().map_err(|error| format!("the start: {error}"))?;
    go_to(order.launch.cpu)?;
    let options = warmcore_native::NativeOptions {
        time_limit_ns: order.time_limit_ns,
        calibration: Some(Calibration { iterations_per_ms: order.iterations_per_ms }),
        // An emulated CPU has no speed of its own: it shares the emulator's with all others.
        work_is_cpu_time: true,
        seed: order.launch.seed,
        start_at_ns: Some(start_ns),
        stop: None,
        groups: order.groups.into_iter().map(Into::into).collect(),
        processes: order.separate.then_some(&crate::HEAP),
        own_memory: memory_matters(),
    };
    let outcome = warmcore_native::run(&workload, &options).map_err(|error| error.to_string())?;
    let report = serde_json::to_string(&ProcessReport::of_native(order.launch.processes, outcome))
        .map_err(|error| error.to_string())?;
    say(&report)
}

/// Whether the kernel looks where tasks use memory. Where it does not, memory of their own would only cost them time to touch.
fn memory_matters() -> bool {
    std::fs::read_to_string(NUMA_BALANCING).is_ok_and(|text| text.trim() != "0")
}

/// Goes to a CPU, and may run anywhere from then on: a thread that sleeps on an idle machine wakes where it slept.
fn go_to(cpu: u32) -> Result<(), String> {
    let failed = |error| format!("cannot go to CPU {cpu}: {error}");
    let all = sched_getaffinity(None).map_err(failed)?;
    let mut only = CpuSet::new();
    only.set(cpu as usize);
    sched_setaffinity(None, &only).map_err(failed)?;
    sched_setaffinity(None, &all).map_err(failed)
}
