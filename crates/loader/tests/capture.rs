//! Loaders of these tests' own, started as any loader is: what they load runs, and what is wrong with them is said.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use assembler::*;
use loaders::*;
use warmcore_kernel::{Setup, SimulationError};
use warmcore_loader::{
    Capture, CaptureRequest, Limits, LoaderError, MachineFiles, Outbox, Paths, Sandbox, TargetKernel, WorkerError,
    capture, work_apart,
};
use warmcore_schedulers::{Bytecode, SchedulerSpec, bytecode_trial, simulate};
use warmcore_testing::skip;
use warmcore_trace::{Event, Outcome};

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_of_fifo() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_a_wild_store() {
    let mut enqueue = enqueue();
    enqueue.2.splice(0..0, [mov_imm(5, 4096), store_imm(8, 5, 0, 1)]);
    attach(&[init(), enqueue, dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_endless_loop() {
    attach(&[init(), enqueue(), (16, "dispatch", vec![code(0x05, 0, 0, -1, 0), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_calls_what_does_not_exist() {
    attach(&[init(), enqueue(), (16, "dispatch", vec![kfunc("bpf_of_tomorrow"), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_probes_where_addresses_may_lie() {
    let (map, log) = (create_map(2, 4, 4, 1), [0u8; 256]);
    let bytes = [code(0x18, 1, 2, 0, map as i32), code(0, 0, 0, 0, 1 << 30), exit()].concat();
    let mut attributes = [0; 128];
    put(&mut attributes, 0, &[1, 0, 0, 0, 3]);
    put(&mut attributes, 8, &(bytes.as_ptr() as u64).to_le_bytes());
    put(&mut attributes, 28, &(log.len() as u32).to_le_bytes());
    put(&mut attributes, 32, &(log.as_ptr() as u64).to_le_bytes());
    assert_eq!((bpf(5, &attributes), std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EINVAL)));
    // Another process has written it.
    let said = String::from_utf8_lossy(std::hint::black_box(&log)).into_owned();
    assert!(said.starts_with("invalid access to map value pointer"), "{said}");
    attach(&[init(), enqueue(), dispatch()]);
}

#[test]
fn an_address_outside_of_a_map_is_refused_in_the_words_by_which_a_loader_places_variables_of_an_arena() {
    skip!(unless can_answer());
    captured("loader_that_probes_where_addresses_may_lie");
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_whose_init_refuses() {
    attach(&[(24, "init", vec![mov_imm(0, -12), exit()]), enqueue(), dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_loses_tasks() {
    attach(&[init(), (8, "enqueue", vec![mov_imm(0, 0), exit()]), dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_a_broken_program() {
    attach(&[(24, "init", vec![code(0x05, 0, 0, 9, 0), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_dies() {
    eprintln!("I cannot go on");
    std::process::exit(3);
}

/// It may write nowhere, and even the way to itself is no network.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_is_confined() {
    let file = std::env::temp_dir().join(format!("warmcore-confined-{}", std::process::id()));
    let written = std::fs::write(&file, "here").map_err(|error| error.kind());
    // It is there if it should not be.
    let _ = std::fs::remove_file(&file);
    assert_eq!(written, Err(ErrorKind::ReadOnlyFilesystem));
    let connected = std::net::TcpStream::connect("127.0.0.1:1").map(drop).map_err(|error| error.kind());
    assert_eq!(connected, Err(ErrorKind::NetworkUnreachable));
    attach(&[init(), enqueue(), dispatch()]);
}

#[test]
fn a_confined_loader_changes_no_file_and_has_no_network() {
    skip!(unless can_answer());
    let run = |paths| run_loader_with("loader_that_is_confined", Duration::from_secs(60), paths);
    match run(Paths::Confined) {
        Err(error @ LoaderError::Forbidden { .. }) => {
            let sentence = error.to_string();
            assert!(sentence.contains("confinement (namespaces of users, mounts and networks"), "{sentence}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => assert!(matches!(run(Paths::Answered), Err(LoaderError::Ended { .. })), "it is not, otherwise"),
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_never_attaches() {
    eprintln!("waiting for nothing");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_looks_around() {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(text("/sys/devices/system/cpu/possible"), "0-7\n");
    assert_eq!(text("/sys/devices/system/cpu/cpu5/cache/index3/shared_cpu_list"), "4-7\n");
    assert_eq!(text("/boot/config-7.2.0-test"), "CONFIG_HZ=250\n");
    assert!(!Path::new("/sys/devices/system/cpu/cpu8").exists());
    assert!(text("/proc/self/comm").len() > 1, "other files are this computer's");
    let release = std::process::Command::new("uname").arg("-r").output().unwrap();
    assert_eq!(release.stdout, b"7.2.0-test\n");

    let hash = create_map(1, 4, 8, 2);
    let mut value = [0; 8];
    assert_eq!(element(1, hash, &[1; 4], &mut value), -1, "nothing is there yet");
    for key in 1..=2u8 {
        assert_eq!(element(2, hash, &[key; 4], &mut [key; 8]), 0);
    }
    assert_eq!(element(2, hash, &[3; 4], &mut [3; 8]), -1, "it is full");
    assert_eq!((element(1, hash, &[2; 4], &mut value), value), (0, [2; 8]));
    assert_eq!(element(3, hash, &[2; 4], &mut []), 0);
    assert_eq!(element(1, hash, &[2; 4], &mut value), -1, "deleted");
    let percpu = create_map(6, 4, 4, 1);
    let mut values = [7; 64];
    assert_eq!(element(2, percpu, &[0; 4], &mut values), 0);
    let mut read = [0; 64];
    assert_eq!(element(1, percpu, &[0; 4], &mut read), 0);
    assert!(read.chunks(8).all(|one| one == [7, 7, 7, 7, 0, 0, 0, 0]), "{read:?}");

    // A program that sets things up: doubles the number it is given.
    let program = load_program(
        31,
        "setup",
        &[load_double(2, 1, 0), code(0x0f, 2, 2, 0, 0), store(8, 1, 2, 0), mov_imm(0, 9), exit()],
    );
    let mut context = 21u64.to_le_bytes();
    let mut attributes = [0; 80];
    put(&mut attributes, 0, &(program as u32).to_le_bytes());
    put(&mut attributes, 40, &8u32.to_le_bytes());
    put(&mut attributes, 48, &(context.as_mut_ptr() as u64).to_le_bytes());
    assert_eq!(bpf(10, &attributes), 0);
    assert_eq!((u64::from_le_bytes(context), attributes[4]), (42, 9));
    attach(&[init(), enqueue(), dispatch()]);
}

/// One with a child that forgets its parent and would stay.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_children() {
    let mut child = std::process::Command::new("sh");
    child.args(["-c", "setsid sleep 300 & echo pid=$!; sleep 300"]);
    let _child = child.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut sleeping = std::process::Command::new("sleep");
    eprintln!("pid={}", sleeping.arg("300").spawn().unwrap().id());
    std::process::exit(7);
}

// ---- Tests.

#[test]
fn what_a_loader_has_started_ends_with_it() {
    skip!(unless can_answer());
    let limits = Limits { memory_bytes: 1 << 30, cpu: Duration::from_secs(60) };
    let mut said = String::new();
    let work = |outbox: &mut Outbox| {
        let error = run_loader("loader_with_children", Duration::from_secs(60)).err().unwrap();
        outbox.send(1, error.to_string().as_bytes())
    };
    work_apart(limits, None, work, &mut |_, text| {
        said = String::from_utf8_lossy(text).into_owned();
        true
    })
    .unwrap();
    let pids: Vec<&str> = said.split("pid=").skip(1).map(|rest| rest.split_whitespace().next().unwrap()).collect();
    assert!(!pids.is_empty(), "{said}");
    let state = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    for pid in pids {
        assert!(soon(|| state(pid).is_empty() || state(pid).contains(") Z ")), "{pid} is there: {}", state(pid));
    }
}

/// Whether something is so now or within some seconds.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..500).any(|_| {
        let is_so = is_so();
        if !is_so {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_so
    })
}

#[test]
fn files_of_a_machine_go_with_their_owner_also_if_that_was_killed() {
    let kernel = TargetKernel::new("7.2.0-test", "", &types::kernel(&FUNCTIONS).0).unwrap();
    let machine = machine();
    let left = |path: &Path| path.parent().unwrap().to_owned();
    let mine = MachineFiles::new(&machine, &kernel).unwrap();
    let limits = Limits { memory_bytes: 1 << 30, cpu: Duration::from_secs(60) };
    let mut theirs = String::new();
    let work = |outbox: &mut Outbox| {
        let files = MachineFiles::new(&machine, &kernel)?;
        outbox.send(1, left(files.path()).to_string_lossy().as_bytes())?;
        // Its end: nothing is dropped.
        std::process::abort()
    };
    let died = work_apart(limits, None, work, &mut |_, path| {
        theirs = String::from_utf8_lossy(path).into_owned();
        true
    });
    assert!(died.is_err() && Path::new(&theirs).exists(), "{died:?}");
    let next = MachineFiles::new(&machine, &kernel).unwrap();
    // The next may have got the name of the one that was removed; and another test may be about to remove it.
    let is_gone = || !Path::new(&theirs).exists() || left(next.path()) == Path::new(&theirs);
    assert!(soon(is_gone) || !left(next.path()).starts_with("/dev/shm"), "{theirs}");
    assert!(left(mine.path()).exists());
}

fn captured(loader: &str) -> Capture {
    run_loader(loader, Duration::from_secs(60)).unwrap_or_else(|error| panic!("{error}"))
}

fn trial(capture: &Capture) -> Result<(Outcome, Vec<Event>), SimulationError> {
    let machine = machine();
    let workload = workload("hackbench:-f3,-g2,-l50");
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let (outcome, _) =
        bytecode_trial(Bytecode::new(&capture.object, setup.seed, false).unwrap(), &setup, Some(&mut events))?;
    Ok((outcome, events))
}

#[test]
fn a_program_in_bytecode_schedules_as_the_same_program_in_rust_to_the_last_event() {
    skip!(unless can_answer());
    let capture = captured("loader_of_fifo");
    assert_eq!((capture.object.name(), capture.object.instructions()), ("test", 4 + 19 + 6 + 3));
    let (outcome, events) = trial(&capture).unwrap();
    assert_eq!(trial(&capture).unwrap().1, events, "and again from the same object");
    let machine = machine();
    let workload = workload("hackbench:-f3,-g2,-l50");
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let mut native: Vec<Event> = Vec::new();
    let spec = SchedulerSpec::parse("scx-native:policy=fifo").unwrap();
    let native_outcome = simulate(&spec, &setup, Some(&mut native)).unwrap();
    assert_eq!(outcome.elapsed_ns, native_outcome.elapsed_ns);
    assert_eq!(events, native);
}

#[test]
fn what_was_loaded_is_packed_to_be_read_without_the_loader() {
    skip!(unless can_answer());
    let kernel = TargetKernel::new("7.2.0-test", "", &types::kernel(&FUNCTIONS).0).unwrap();
    let machine = machine();
    let files = MachineFiles::new(&machine, &kernel).unwrap();
    let request = CaptureRequest {
        program: &std::env::current_exe().unwrap(),
        arguments: &arguments_for("loader_of_fifo"),
        machine: &machine,
        kernel: &kernel,
        timeout: Duration::from_secs(60),
        files: files.path(),
        paths: Paths::default(),
        counts_memory: true,
    };
    let attached = warmcore_loader::start(&request, || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    let packed = attached.packed("before\n", b"behind\xff").unwrap();
    drop(attached);
    let all = zstd::decode_all(&packed[..]).unwrap();
    let listing = all.strip_prefix(b"before\n").and_then(|rest| rest.strip_suffix(b"behind\xff")).unwrap();
    let listing = std::str::from_utf8(listing).unwrap();
    assert!(listing.starts_with("scheduler test\nflags 0x0\n"), "{listing}");
    let bytes: String = init().2.concat().iter().map(|byte| format!("{byte:02x}")).collect();
    for wanted in [
        "\noperation enqueue program 2\n",
        &format!("\nprogram 0 name \"init\" functions at []\n0 {bytes}\nprogram 1 "),
    ] {
        assert!(listing.contains(wanted), "{wanted} in {listing}");
    }
}

#[test]
fn a_loader_sees_the_machine_and_its_maps_and_programs_work() {
    skip!(unless can_answer());
    captured("loader_that_looks_around");
}

#[test]
fn a_loader_sees_and_loads_the_same_where_the_machine_is_mounted() {
    skip!(unless can_answer());
    let mounted = |loader| run_loader_with(loader, Duration::from_secs(60), Paths::Mounted);
    match mounted("loader_that_looks_around") {
        Err(error @ LoaderError::Forbidden { .. }) => {
            let sentence = error.to_string();
            assert!(sentence.contains("mounts of its own (namespaces of users and mounts)"), "{sentence}");
            // The other way is taken then.
            let either = run_loader_with("loader_of_fifo", Duration::from_secs(60), Paths::Either);
            assert!(either.is_ok(), "{:?}", either.err());
            return;
        }
        Err(error) => panic!("{error}"),
        Ok(_) => {}
    }
    let capture = mounted("loader_of_fifo").unwrap_or_else(|error| panic!("{error}"));
    let (outcome, events) = trial(&capture).unwrap();
    let answered = trial(&captured("loader_of_fifo")).unwrap();
    assert_eq!((outcome.elapsed_ns, events), (answered.0.elapsed_ns, answered.1));
}

/// The reason that a program was ejected for.
fn ejected(loader: &str) -> String {
    match trial(&captured(loader)) {
        Err(SimulationError::Ejected { program, reason, .. }) => {
            assert_eq!(program, "test");
            reason
        }
        other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
    }
}

#[test]
fn a_program_that_does_what_it_must_not_is_ejected_with_program_and_instruction() {
    skip!(unless can_answer());
    let cases = [
        ("loader_with_a_wild_store", "program `enqueue`, instruction 1: stores outside of its memory"),
        ("loader_with_an_endless_loop", "program `dispatch`, instruction 0: does not end"),
        (
            "loader_that_calls_what_does_not_exist",
            "program `dispatch`, instruction 0: calls kernel function bpf_of_tomorrow",
        ),
        ("loader_whose_init_refuses", "init failed with -12"),
        ("loader_that_loses_tasks", "failed to run for"),
    ];
    for (loader, reason) in cases {
        let said = ejected(loader);
        assert!(said.contains(reason), "{loader}: {said}");
    }
}

#[test]
fn a_fault_in_the_code_of_a_program_ends_its_process_and_leads_to_the_program() {
    /// Where the stack of programs lies in the region, and its size.
    const STACK: (u64, usize) = (warmcore_bpf::REGION_BASE + (1 << 20), 64 << 10);
    skip!(unless can_answer());
    let capture = captured("loader_of_fifo");
    let (machine, workload) = (machine(), workload("hackbench:-f3,-g2,-l50"));
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let limits = Limits { memory_bytes: 1 << 30, cpu: Duration::from_secs(60) };
    let work = |outbox: &mut Outbox| {
        let scheduler = Bytecode::new(&capture.object, setup.seed, false).map_err(std::io::Error::other)?;
        // The stack is taken away, as no program could: `select_cpu` is the one that uses it.
        // SAFETY: memory of the region, which only programs use, in a process that ends for it.
        assert_eq!(unsafe { libc::mprotect(STACK.0 as *mut libc::c_void, STACK.1, libc::PROT_NONE) }, 0);
        outbox.seal(Sandbox::Computing)?;
        bytecode_trial(scheduler, &setup, None).map(|_| ()).map_err(std::io::Error::other)
    };
    match work_apart(limits, None, work, &mut |_, _| true) {
        Err(WorkerError::Crashed { signal, at, .. }) => {
            let before = capture.object.places().filter(|(begin, _)| *begin <= at);
            let program = before.max().map(|(_, name)| name);
            assert_eq!((signal.as_str(), program), ("SIGSEGV", Some("select_cpu")));
        }
        other => panic!("{other:?}"),
    }
    assert!(trial(&capture).is_ok(), "the same object goes on to run here");
}

#[test]
fn what_is_not_modelled_is_named_before_a_run() {
    skip!(unless can_answer());
    let capture = captured("loader_that_calls_what_does_not_exist");
    let missing: Vec<String> = capture.missing().map(ToString::to_string).collect();
    assert_eq!(missing, ["kernel function bpf_of_tomorrow"]);
}

#[test]
fn a_loader_that_attaches_nothing_is_an_error_with_its_last_words() {
    skip!(unless can_answer());
    let error = |loader, timeout| match run_loader(loader, timeout) {
        Ok(_) => panic!("{loader} attached something"),
        Err(error) => error.to_string(),
    };
    let died = error("loader_that_dies", Duration::from_secs(60));
    assert!(died.contains("ended (exit status: 3)") && died.contains("I cannot go on"), "{died}");
    let hung = error("loader_that_never_attaches", Duration::from_secs(2));
    assert!(hung.contains("within 2 s") && hung.contains("waiting for nothing"), "{hung}");
    let broken = error("loader_with_a_broken_program", Duration::from_secs(60));
    assert!(broken.contains("program `init`, instruction 0: a jump leads out"), "{broken}");
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    let kernel = TargetKernel::new("7.2.0-test", "", &types::kernel(&FUNCTIONS).0).unwrap();
    for (program, reason) in [("/nowhere/scx_lavd", "No such file"), ("/etc/passwd", "ermission denied")] {
        let timeout = Duration::from_secs(10);
        let files = MachineFiles::new(&machine(), &kernel).unwrap();
        let request = CaptureRequest {
            program: Path::new(program),
            arguments: &[],
            machine: &machine(),
            kernel: &kernel,
            timeout,
            files: files.path(),
            paths: Paths::default(),
            counts_memory: true,
        };
        let Err(error) = capture(&request) else { panic!("{program} attached something") };
        assert!(error.to_string().contains("cannot be started") && error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn type_information_without_sched_ext_is_refused() {
    let error = TargetKernel::new("5.0", "", &[0x9f, 0xeb]).unwrap_err().to_string();
    assert!(error.contains("type information is broken"), "{error}");
    let mut other = types::kernel(&[]).0;
    let at = other.windows(11).position(|text| text == b"task_struct").unwrap();
    other[at] = b'T';
    let error = TargetKernel::new("5.0", "", &other).unwrap_err().to_string();
    assert!(error.contains("structure `task_struct`"), "{error}");
}
