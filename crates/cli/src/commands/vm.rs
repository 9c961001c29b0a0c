//! `warmcore vm`: guests with a real kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{Fault, Plan, Purpose};
use warmcore_agent::report::Hello;
use warmcore_places::choice::PlaceChoice;
use warmcore_places::host::settings::Settings;
use warmcore_places::place::{Place, PlaceOptions};
use warmcore_places::vm::VmError;
use warmcore_places::vm::agent::agent;
use warmcore_places::vm::boot::{Boot, Lab};
use warmcore_places::vm::command::Command;
use warmcore_places::vm::fetch::{cache_directory, cached};
use warmcore_places::vm::initramfs::Initramfs;
use warmcore_places::vm::kernel::Kernel;
use warmcore_places::vm::libraries;
use warmcore_places::vm::place::KIND;
use warmcore_places::vm::qemu::Qemu;
use warmcore_places::vm::select::{self, Choice};
use warmcore_schedulers::SchedulerSpec;

use crate::args::VmArguments;
use crate::commands::as_document;
use crate::console::{Console, Table};
use crate::failure::Failure;
use crate::load;
use crate::signals::Signals;

/// Programs of the host that a shell in a guest is given where they are there.
const SHELL_PROGRAMS: [&str; 14] = [
    "/bin/sh",
    "/bin/ls",
    "/bin/cat",
    "/bin/grep",
    "/bin/ps",
    "/bin/mount",
    "/bin/dmesg",
    "/bin/kill",
    "/bin/sleep",
    "/usr/bin/head",
    "/usr/bin/tail",
    "/usr/bin/taskset",
    "/usr/bin/chrt",
    "/bin/busybox",
];

/// How this program is named in the command of a guest, and where it is there.
const OWN: &str = "warmcore";
const OWN_PATH: &str = "/usr/bin/warmcore";
/// Where programs are that a guest is given.
const PROGRAMS: &str = "/usr/bin";

pub fn run(arguments: VmArguments, console: &Console) -> Result<(), Failure> {
    let VmArguments { machine, command, shell: wants_shell, program, file, out, guest, fault } = arguments;
    if console.json() && (wants_shell || !command.is_empty()) {
        return Err(Failure::usage("warmcore::usage", "--json: what a guest's program prints is printed as it is")
            .help("leave it out, or leave the command out: what the kernel offers is printed then"));
    }
    match command.as_slice() {
        [] if wants_shell => shell(&machine, &program, &guest.guest, console),
        [] => boot(&machine, &guest.guest, fault.as_deref(), console),
        _ => {
            let extra = GuestExtras { programs: &program, files: &file };
            execute(&machine, command, &extra, out.as_deref(), &guest.guest, console)
        }
    }
}

/// The place that was asked for.
pub fn place(chosen: &PlaceChoice, schedulers: &[SchedulerSpec], console: &Console) -> Result<Arc<dyn Place>, Failure> {
    let host = Some(chosen.host.manner(super::host::runner()?));
    let options = PlaceOptions { schedulers, guests: chosen.guests.clone(), host };
    warmcore_places::open(chosen.kind.name, &options, &|text| console.note(text))
        .map_err(|error| load::place_failure(error, None))
}

/// Guests that are made like that, as a place for these schedulers.
pub fn guests(chosen: &Choice, schedulers: &[SchedulerSpec], console: &Console) -> Result<Arc<dyn Place>, Failure> {
    let place = PlaceChoice { kind: &KIND, guests: chosen.clone(), host: Settings::default() };
    self::place(&place, schedulers, console)
}

/// A guest's makings from the command line.
fn lab(chosen: &Choice, console: &Console) -> Result<Lab, Failure> {
    select::lab(chosen, &|text| console.note(text)).map_err(|error| vm_failure(error, None))
}

/// The failure for an error of a guest.
fn vm_failure(error: VmError, signals: Option<&Signals>) -> Failure {
    load::place_failure(error.into(), signals)
}

/// Something a guest needs, and whether it is there.
#[derive(Serialize)]
struct GuestCheck {
    what: &'static str,
    ready: bool,
    detail: String,
}

impl GuestCheck {
    fn new<T>(what: &'static str, found: Result<T, VmError>, detail: impl FnOnce(&T) -> String) -> Self {
        match found {
            Ok(found) => Self { what, ready: true, detail: detail(&found) },
            Err(error) => Self { what, ready: false, detail: format!("{error}; {}", error.advice()) },
        }
    }
}

/// Says what there is for guests; with `fetch` gets a kernel for them first.
pub fn doctor(fetch: bool, console: &Console) -> Result<(), Failure> {
    if fetch {
        let failed = |error| vm_failure(error, None);
        select::fetch(&Qemu::find().map_err(failed)?, &|text| console.note(text)).map_err(failed)?;
    }
    let qemu = Qemu::find();
    let found = cached().map(|(kernels, _)| kernels);
    let mut checks = vec![
        GuestCheck::new("guest agent", agent(), |bytes| format!("{} KiB", bytes.len() >> 10)),
        GuestCheck::new("cache", cache_directory(), |path| path.display().to_string()),
    ];
    let newest = found.as_ref().ok().and_then(|kernels| kernels.first().cloned());
    if let (Ok(qemu), Some(kernel)) = (&qemu, &newest) {
        let acceleration = select::acceleration(qemu, kernel);
        let detail = |refusal: &Option<String>| match refusal {
            None => "KVM".into(),
            Some(reason) => format!("none, so guests are emulated in virtual time: {reason}"),
        };
        checks.push(GuestCheck::new("acceleration", acceleration, |found| detail(&found.refusal)));
    }
    checks.push(GuestCheck::new("QEMU", qemu, |qemu| qemu.version.clone()));
    let kernel = newest.ok_or_else(|| VmError::NoKernel { reason: "there is none in the cache".into() });
    checks.push(GuestCheck::new("kernel", kernel, |kernel| kernel.release.clone()));
    if console.json() {
        console.out(&as_document("warmcore-vm-doctor-1", &BTreeMap::from([("checks", &checks)])))?;
    } else {
        let mut table = Table::new(["part", "ready", "detail"]);
        for check in &checks {
            table.row([check.what.to_owned(), if check.ready { "yes" } else { "no" }.into(), check.detail.clone()]);
        }
        console.out(&console.table(&table))?;
    }
    let missing: Vec<&str> = checks.iter().filter(|check| !check.ready).map(|check| check.what).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::unable("warmcore::vm", format!("guests cannot be booted yet; missing: {}", missing.join(", "))))
}

#[derive(Serialize)]
struct KernelEntry {
    release: String,
    image: PathBuf,
    hz: Option<u64>,
    cache_aware: bool,
    numa_balancing: bool,
    /// Why no sched_ext program loads, as far as it was tried.
    sched_ext: Option<String>,
}

#[derive(Serialize)]
struct KernelsDocument {
    kernels: Vec<KernelEntry>,
    refused: Vec<String>,
}

/// Prints the kernels in the cache.
pub fn kernels(console: &Console) -> Result<(), Failure> {
    let failed = |error| vm_failure(error, None);
    let (found, refused) = cached().map_err(failed)?;
    let entries = found.iter().map(kernel_entry).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    if console.json() {
        let content = KernelsDocument { kernels: entries, refused };
        return Ok(console.out(&as_document("warmcore-vm-kernels-1", &content))?);
    }
    for reason in &refused {
        console.warn(reason);
    }
    if entries.is_empty() {
        console.note("no kernel in the cache; `warmcore doctor vm --fetch-kernel` fetches one");
    }
    let mut table = Table::new(["kernel", ">HZ", "cache-aware", "NUMA balancing", "sched_ext"]);
    for entry in &entries {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let hz = entry.hz.map_or_else(|| "-".into(), |hz| hz.to_string());
        let scx = entry.sched_ext.clone().unwrap_or_else(|| "yes".into());
        table.row([entry.release.clone(), hz, yes(entry.cache_aware), yes(entry.numa_balancing), scx]);
    }
    Ok(console.out(&console.table(&table))?)
}

fn kernel_entry(kernel: &Kernel) -> Result<KernelEntry, VmError> {
    let abilities = kernel.abilities()?;
    let sched_ext = match select::known_probe(kernel) {
        Some(probe) => probe.scx_refusal,
        None if abilities.sched_ext => Some("not tried yet".into()),
        None => Some("its configuration has none".into()),
    };
    Ok(KernelEntry {
        release: kernel.release.clone(),
        image: kernel.image.clone(),
        hz: abilities.hz,
        cache_aware: abilities.cache_aware,
        numa_balancing: abilities.numa_balancing,
        sched_ext,
    })
}

#[derive(Serialize)]
struct BootDocument<'a> {
    qemu: &'a str,
    execution: String,
    kernel_sha256: &'a str,
    guest: &'a Hello,
}

fn boot(machine: &str, vm: &Choice, fault: Option<&str>, console: &Console) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let machine = load::machine(machine)?.value;
    let lab = lab(vm, console)?;
    console.note(&format!("booting {} on {}: {}", lab.kernel.release, machine.name(), lab.execution));
    let purpose = match fault.map(|text| serde_json::from_value::<Fault>(text.into())).transpose() {
        Ok(None) => Purpose::Run,
        Ok(Some(fault)) => Purpose::Fault(fault),
        Err(error) => return Err(Failure::usage("warmcore::usage", error)),
    };
    let plan = Plan { protocol: PROTOCOL, purpose, runs: Vec::new() };
    let start = std::time::Instant::now();
    let boot = Boot { machine: &machine, plan: &plan, files: Initramfs::default(), extra_memory_mib: 0 };
    let hello = lab.boot(boot, &signals.stop, |_, _| Ok(())).map_err(|error| vm_failure(error, Some(&signals)))?;
    console.note(&format!("booted and shut down in {:.1} s", start.elapsed().as_secs_f64()));
    if console.json() {
        let content = BootDocument {
            qemu: &lab.qemu.version,
            execution: lab.execution.to_string(),
            kernel_sha256: &lab.kernel.sha256,
            guest: &hello,
        };
        return Ok(console.out(&as_document("warmcore-vm-boot-1", &content))?);
    }
    let mut table = Table::new(["fact", "value"]);
    table.row(["kernel".into(), format!("{} {}", hello.release, hello.architecture)]);
    table.row(["machine".into(), "as asked for".into()]);
    table.row(["to /init".into(), format!("{:.2} s of guest time", hello.boot_ns as f64 / 1e9)]);
    table.row(["clock source".into(), hello.clocksource.clone()]);
    table.row(["memory".into(), format!("{} MiB", hello.memory_bytes >> 20)]);
    table.row(["domains of CPU 0".into(), hello.domains.join(" ")]);
    table.row(["sched_ext".into(), hello.scx_refusal.clone().unwrap_or_else(|| "programs can load".into())]);
    for (name, value) in &hello.llc_balancing {
        table.row([format!("llc_balancing/{name}"), value.clone()]);
    }
    for (name, value) in &hello.sched {
        table.row([name.clone(), value.replace('\n', " ")]);
    }
    Ok(console.out(&console.table(&table))?)
}

/// What else a guest is given.
struct GuestExtras<'a> {
    programs: &'a [PathBuf],
    files: &'a [PathBuf],
}

fn execute(
    machine: &str,
    mut words: Vec<String>,
    extra: &GuestExtras<'_>,
    out: Option<&Path>,
    vm: &Choice,
    console: &Console,
) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let machine = load::machine(machine)?.value;
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(Failure::usage("warmcore::vm", "the command is empty").help("name a program after `--`"));
    }
    out.map_or(Ok(()), takes_files)?;
    let failed = |error| vm_failure(error, Some(&signals));
    let mut files = Initramfs::default();
    let usual = SHELL_PROGRAMS.iter().map(Path::new).filter(|path| path.is_file());
    for path in usual {
        libraries::add_program(&mut files, path, path).map_err(failed)?;
    }
    for path in extra.programs {
        let name = path.file_name().unwrap_or(path.as_os_str());
        libraries::add_program(&mut files, path, &Path::new(PROGRAMS).join(name)).map_err(failed)?;
    }
    for path in extra.files {
        files.copy(path).map_err(|error| Failure::cannot_read(path, &error))?;
    }
    // Clap demands a command.
    if let Some(program) = words.first_mut() {
        let (own, path) = match program.as_str() {
            OWN if console.python().is_some() => {
                let message = "this `warmcore` is a part of the Python package, and guests have no Python";
                return Err(Failure::unable("warmcore::vm", message)
                    .help("use the program of the archive, of the Debian package or of `make build`"));
            }
            OWN => (std::env::current_exe().map_err(|error| Failure::failed("warmcore::vm", error))?, OWN_PATH.into()),
            name => (in_path(name), in_path(name)),
        };
        libraries::add_program(&mut files, &own, &path).map_err(failed)?;
        *program = path.display().to_string();
    }
    // The journal of changes.
    files.directory("/var/lib");
    let lab = lab(vm, console)?;
    console.note(&format!("booting {} on {}: {}", lab.kernel.release, machine.name(), lab.execution));
    let command =
        Command { words, files, out, output: &mut std::io::stdout().lock(), words_to: &mut std::io::stderr().lock() };
    let ended = lab.execute(&machine, command, &signals.stop);
    if let (Err(_), Some(out)) = (&ended, out.filter(|out| out.exists())) {
        console.note(&format!("what it left until then is in {}", out.display()));
    }
    match ended.map_err(failed)? {
        0 => Ok(()),
        code => Err(Failure::failed("warmcore::vm", format!("the program ended with exit code {code} in the guest"))),
    }
}

/// Checks that files can be written to a directory without writing over any: it is not there, or empty.
fn takes_files(out: &Path) -> Result<(), Failure> {
    let refused = |what: &str| {
        let message = format!("{} {what}", out.display());
        Failure::usage("warmcore::vm", message)
            .help("name another directory with --out: what a program leaves is never written over files")
    };
    match std::fs::read_dir(out) {
        Ok(mut entries) => {
            if entries.next().is_none() {
                Ok(())
            } else {
                Err(refused("is there and not empty"))
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(&format!("cannot be a directory for files: {error}"))),
    }
}

/// Where a program is that is named without a directory.
fn in_path(name: &str) -> PathBuf {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found =
        || std::env::split_paths(&directories).map(|directory| directory.join(name)).find(|path| path.is_file());
    if name.contains('/') { name.into() } else { found().unwrap_or_else(|| name.into()) }
}

fn shell(machine: &str, programs: &[PathBuf], vm: &Choice, console: &Console) -> Result<(), Failure> {
    let machine = load::machine(machine)?.value;
    // A person does not wait in virtual time.
    let lab = lab(&Choice { real_time: vm.virtual_time.is_none(), ..vm.clone() }, console)?;
    let mut files = Initramfs::default();
    let usual = SHELL_PROGRAMS.iter().map(Path::new).filter(|path| path.is_file());
    for path in usual.chain(programs.iter().map(PathBuf::as_path)) {
        libraries::add_program(&mut files, path, path).map_err(|error| vm_failure(error, None))?;
    }
    console.note("Ctrl-A X ends the guest, Ctrl-D its shell");
    lab.shell(&machine, files).map_err(|error| vm_failure(error, None))
}
