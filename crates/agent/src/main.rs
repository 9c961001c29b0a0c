//! `/init` of a guest kernel. See the library for what it is told and what it says.
//!
//! Run as process 1 it does the plan; run as `/init session` it starts the processes of an application ([`session`]), and as
//! `/init worker` it is one of those ([`worker`]).

mod actions;
mod bpf;
mod btf;
mod cgroups;
mod command;
mod facts;
mod faults;
mod mounts;
mod observer;
mod recorder;
mod runs;
mod scx;
mod session;
mod settings;
mod shell;
mod test_runs;
mod worker;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};
use warmcore_agent::files;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::report::{Failed, FrameKind, write_document, write_frame};
use warmcore_agent::{PLAN_PATH, PORT_NAME, PROTOCOL};

/// Workers share it with the processes of the workload that they begin.
#[global_allocator]
static HEAP: warmcore_native::SharedHeap = warmcore_native::SharedHeap::new();

fn main() {
    let result = match std::env::args().nth(1).as_deref() {
        Some(worker::ARGUMENT) => worker::run(std::env::args().nth(2)),
        Some(session::ARGUMENT) => session::run(std::env::args().skip(2)),
        _ => return first_program(),
    };
    if let Err(reason) = result {
        // The parent reads it from standard error.
        eprintln!("{reason}");
        std::process::exit(1);
    }
}

fn first_program() {
    if std::process::id() != 1 {
        eprintln!("warmcore-agent is the first program of a guest kernel and does nothing elsewhere");
        std::process::exit(2);
    }
    if let Err(reason) = guest() {
        println!("warmcore-agent: {reason}");
    }
    rustix::fs::sync();
    // It returns only when the kernel refuses; then process 1 ends and the kernel panics, which the host sees.
    let _ = reboot(RebootCommand::PowerOff);
}

/// Does the plan. An error that could be sent was sent, and read by the host.
fn guest() -> Result<(), String> {
    mounts::mount_all()?;
    let mut channel = open_channel()?;
    let send_failed = |channel: &mut File, failed: &Failed| {
        if write_document(channel, FrameKind::Failed, failed).is_ok() {
            wait_for_end(channel);
        }
    };
    let plan = match read_plan() {
        Ok(plan) => plan,
        Err(reason) => {
            send_failed(&mut channel, &Failed { run: None, reason: reason.clone(), scheduler_ejected: false });
            return Err(reason);
        }
    };
    let sent = facts::hello()
        .and_then(|hello| write_document(&mut channel, FrameKind::Hello, &hello).map_err(|error| error.to_string()));
    if let Err(reason) = sent {
        send_failed(&mut channel, &Failed { run: None, reason: reason.clone(), scheduler_ejected: false });
        return Err(reason);
    }
    if let Purpose::Fault(fault) = plan.purpose {
        faults::commit(fault, &mut channel);
        return Ok(());
    }
    if plan.purpose == Purpose::Shell {
        return shell::run();
    }
    if let Purpose::Command(command) = &plan.purpose
        && let Err(reason) = command::run(command, &mut channel)
    {
        send_failed(&mut channel, &Failed { run: None, reason: reason.clone(), scheduler_ejected: false });
        return Err(reason);
    }
    if plan.purpose == Purpose::Programs
        && let Err(reason) = test_runs::run(&mut channel)
    {
        send_failed(&mut channel, &Failed { run: None, reason: reason.clone(), scheduler_ejected: false });
        return Err(reason);
    }
    if let Purpose::Costs { caches } = plan.purpose
        && let Err(reason) = runs::measure_costs(caches, &mut channel)
    {
        send_failed(&mut channel, &Failed { run: None, reason: reason.clone(), scheduler_ejected: false });
        return Err(reason);
    }
    if let Err(failed) = runs::run_all(&plan, &mut channel) {
        send_failed(&mut channel, &failed);
        return Err(failed.reason);
    }
    write_frame(&mut channel, FrameKind::Done, &[]).map_err(|error| error.to_string())?;
    wait_for_end(&mut channel);
    Ok(())
}

/// Waits until the host, which ends the guest after its last frame, has done so. A write to a port returns before the host has fetched the
/// data (`port_fops_write`), and a guest that powers off resets its devices (`virtio_dev_shutdown`): a host busy with other work would lose
/// what is still queued. The host never answers, so the read ends only if it is gone.
fn wait_for_end(channel: &mut File) {
    let _ = channel.read(&mut [0]);
}

fn read_plan() -> Result<Plan, String> {
    let plan: Plan = serde_json::from_str(&files::read(PLAN_PATH)?).map_err(|error| format!("{PLAN_PATH}: {error}"))?;
    if plan.protocol != PROTOCOL {
        return Err(format!("the host speaks protocol {}, this guest {PROTOCOL}", plan.protocol));
    }
    Ok(plan)
}

/// The virtio-serial port to the host. The kernel finds its devices while this program already runs.
fn open_channel() -> Result<File, String> {
    for _ in 0..200 {
        if let Some(device) = port() {
            let opened = OpenOptions::new().read(true).write(true).open(&device);
            return opened.map_err(|error| format!("cannot open {device}: {error}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("there is no virtio-serial port {PORT_NAME}: the kernel needs VIRTIO_PCI and VIRTIO_CONSOLE built in"))
}

fn port() -> Option<String> {
    let ports = std::fs::read_dir("/sys/class/virtio-ports").ok()?;
    let names = ports.filter_map(io::Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_ours = |name: &String| {
        std::fs::read_to_string(format!("/sys/class/virtio-ports/{name}/name"))
            .is_ok_and(|text| text.trim() == PORT_NAME)
    };
    names.into_iter().find(is_ours).map(|name| format!("/dev/{name}"))
}
