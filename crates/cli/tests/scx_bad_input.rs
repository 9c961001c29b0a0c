//! Schedulers of a user's own that are broken or hostile (`scx:PROGRAM`): each is an error that names what is wrong, those of others in the same
//! comparison are not harmed, and everything ends.
//!
//! The loaders are tests of this file that are ignored: started as programs they load bytecode by the system call. A kernel's type information is needed;
//! where there is no kernel in the cache, and where system calls cannot be answered, these tests say so and do nothing.
#![cfg(target_arch = "x86_64")]

mod common;

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;

use std::sync::OnceLock;
use std::time::Duration;

use assembler::*;
use common::{Ran, Scratch};
use warmcore_bpf::btf::{Btf, TypeKind};
use warmcore_testing::skip;

// ---- Loaders.

/// Parts of a loader: it reads the kernel's type information where any loader does.
struct Loader {
    btf: Btf,
}

type Program = (&'static str, Vec<[u8; 8]>);

fn bpf(command: i32, attributes: &[u8]) -> i64 {
    // SAFETY: the kernel, or who stands for it, reads as many bytes.
    unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) }
}

fn put(attributes: &mut [u8], at: usize, bytes: &[u8]) {
    attributes[at..at + bytes.len()].copy_from_slice(bytes);
}

fn create_map(kind: u32, value: u32) -> i64 {
    let mut attributes = [0; 128];
    for (index, number) in [kind, 4, value, 1].into_iter().enumerate() {
        put(&mut attributes, index * 4, &u32::to_le_bytes(number));
    }
    put(&mut attributes, 28, b"table");
    bpf(0, &attributes)
}

impl Loader {
    fn new() -> Self {
        let types = std::fs::read("/sys/kernel/btf/vmlinux").expect("there is type information");
        Self { btf: Btf::parse(types).expect("it can be read") }
    }

    fn kfunc(&self, name: &str) -> [u8; 8] {
        let number = self.btf.find(TypeKind::Function, name).unwrap_or_else(|| panic!("the kernel has no `{name}`"));
        code(0x85, 0, 2, 0, number as i32)
    }

    fn init(&self) -> Program {
        ("init", vec![mov_imm(1, 0), mov_imm(2, -1), self.kfunc("scx_bpf_create_dsq"), exit()])
    }

    fn enqueue(&self) -> Program {
        let insert = self.kfunc("scx_bpf_dsq_insert");
        ("enqueue", vec![load(8, 4, 1, 8), load(8, 1, 1, 0), mov_imm(2, 0), mov_imm(3, 20_000_000), insert, exit()])
    }

    fn dispatch(&self) -> Program {
        ("dispatch", vec![mov_imm(1, 0), mov_imm(2, 0), self.kfunc("scx_bpf_dsq_move_to_local"), exit()])
    }

    /// Attaches a scheduler of these programs, and stays with it.
    fn attach(&self, programs: &[Program]) {
        self.attach_as("broken", programs);
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }

    fn attach_as(&self, name: &str, programs: &[Program]) {
        let data = self.btf.offset("bpf_struct_ops_sched_ext_ops", "data").expect("the kernel has sched_ext") as usize;
        let member = |name: &str| data + self.btf.offset("sched_ext_ops", name).expect("it has that member") as usize;
        let mut value = vec![0; 4096];
        for (name, program) in programs {
            let mut attributes = [0; 128];
            put(&mut attributes, 0, &27u32.to_le_bytes());
            put(&mut attributes, 4, &(program.len() as u32).to_le_bytes());
            let bytes = program.concat();
            put(&mut attributes, 8, &(bytes.as_ptr() as u64).to_le_bytes());
            put(&mut attributes, 48, name.as_bytes());
            let descriptor = bpf(5, &attributes);
            assert!(descriptor > 0, "{name}: {}", std::io::Error::last_os_error());
            put(&mut value, member(name), &descriptor.to_le_bytes());
        }
        put(&mut value, member("timeout_ms"), &2000u32.to_le_bytes());
        put(&mut value, member("name"), name.as_bytes());
        let map = create_map(26, value.len() as u32);
        let mut attributes = [0; 64];
        put(&mut attributes, 0, &(map as u32).to_le_bytes());
        put(&mut attributes, 8, &([0u8; 4].as_ptr() as u64).to_le_bytes());
        put(&mut attributes, 16, &(value.as_ptr() as u64).to_le_bytes());
        assert_eq!(bpf(2, &attributes), 0);
        let mut attributes = [0; 64];
        put(&mut attributes, 0, &(map as u32).to_le_bytes());
        put(&mut attributes, 8, &44u32.to_le_bytes());
        bpf(28, &attributes);
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_is_right() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), loader.enqueue(), loader.dispatch()]);
}

/// A loader that goes on, and looks at the accounts of CPU time ten times a second.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_decides() {
    let loader = Loader::new();
    loader.attach_as("deciding", &[loader.init(), loader.enqueue(), loader.dispatch()]);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let accounts = std::fs::read_to_string("/proc/stat").expect("there are accounts");
        assert!(accounts.contains("cpu3 ") && !accounts.contains("cpu4 "), "{accounts}");
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_leaves() {
    let loader = Loader::new();
    loader.attach_as("leaving", &[loader.init(), loader.enqueue(), loader.dispatch()]);
    std::thread::sleep(Duration::from_millis(100));
    eprintln!("I have had enough");
    std::process::exit(4);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_dies() {
    eprintln!("I cannot go on");
    std::process::exit(3);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_hangs() {
    eprintln!("waiting for nothing");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_never_attaches() {
    let loader = Loader::new();
    assert!(create_map(2, 8) > 0 && loader.btf.find(TypeKind::Struct, "sched_ext_ops").is_some());
    eprintln!("that was all");
    std::process::exit(0);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_unknown_map() {
    let loader = Loader::new();
    assert!(create_map(14, 8) > 0, "{}", std::io::Error::last_os_error());
    let calls = vec![mov_imm(0, 0), loader.kfunc("bpf_xdp_metadata_rx_hash"), helper(44), exit()];
    loader.attach(&[loader.init(), loader.enqueue(), ("dispatch", calls)]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_unknown_kernel_function() {
    let loader = Loader::new();
    let dispatch = ("dispatch", vec![mov_imm(0, 0), loader.kfunc("bpf_xdp_metadata_rx_hash"), exit()]);
    loader.attach(&[loader.init(), loader.enqueue(), dispatch]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_unknown_helper() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), loader.enqueue(), ("dispatch", vec![mov_imm(0, 0), helper(9999), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_endless_loop() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), loader.enqueue(), ("dispatch", vec![code(0x05, 0, 0, -1, 0), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_an_endless_may_goto() {
    let loader = Loader::new();
    let dispatch = ("dispatch", vec![code(0xe5, 0, 0, 1, 0), code(0x05, 0, 0, -2, 0), mov_imm(0, 0), exit()]);
    loader.attach(&[loader.init(), loader.enqueue(), dispatch]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_a_wild_store() {
    let loader = Loader::new();
    let (name, mut program) = loader.enqueue();
    program.splice(0..0, [mov_imm(5, 4096), store_imm(8, 5, 0, 1)]);
    loader.attach(&[loader.init(), (name, program), loader.dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_loses_tasks() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), ("enqueue", vec![mov_imm(0, 0), exit()]), loader.dispatch()]);
}

/// Tasks queue up, and nobody takes them.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_starves_tasks() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), loader.enqueue(), ("dispatch", vec![mov_imm(0, 0), exit()])]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_whose_init_refuses() {
    let loader = Loader::new();
    loader.attach(&[("init", vec![mov_imm(0, -12), exit()]), loader.enqueue(), loader.dispatch()]);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_calls_itself() {
    let loader = Loader::new();
    loader.attach(&[loader.init(), ("enqueue", vec![code(0x85, 0, 1, 0, -1), exit()]), loader.dispatch()]);
}

// ---- Tests.

/// The scheduler that a loader of this file is.
fn scheduler(loader: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!("scx:{} --ignored --exact --nocapture --test-threads=1 {loader}", program.display())
}

/// A comparison of one with a scheduler of this program.
fn compared(scratch: &Scratch, loader: &str) -> Ran {
    let words = "compare -m 1s1n2l2c1t -w spin:-n6,-d4s -n 2 --jobs 2 --out run -s eevdf -s";
    scratch.run_with_last(words, &scheduler(loader))
}

/// Whether a loader can be run here, or why not. It is found out once.
fn can_load() -> &'static Result<(), String> {
    static CAN: OnceLock<Result<(), String>> = OnceLock::new();
    CAN.get_or_init(|| {
        let ran = compared(&Scratch::new(), "loader_that_is_right");
        if ran.code == Some(0) {
            return Ok(());
        }
        let known = ["there is none", "cannot be answered here"];
        assert!(known.iter().any(|known| ran.error.contains(known)), "{}", ran.error);
        Err(format!("no loader can be run here: {}", ran.error))
    })
}

fn trials(scratch: &Scratch, scheduler: &str) -> usize {
    scratch.files("run/trials").iter().filter(|name| name.starts_with(scheduler) && name.ends_with(".json")).count()
}

#[test]
fn a_loader_that_loads_nothing_is_refused_with_its_last_words_before_anything_runs() {
    skip!(unless can_load());
    let cases = [
        ("loader_that_dies", "ended (exit status: 3) before it attached a scheduler", "I cannot go on"),
        ("loader_that_hangs", "has not attached a scheduler within", "waiting for nothing"),
        ("loader_that_never_attaches", "ended (exit status: 0) before it attached a scheduler", "that was all"),
        ("loader_with_an_unknown_map", "needs what is not modelled here", "map kind devmap"),
        ("loader_that_calls_itself", "program `enqueue`, instruction 0", "calls itself"),
    ];
    for (loader, sentence, words) in cases {
        let scratch = Scratch::new();
        let ran = compared(&scratch, loader).did_not_panic().complains(sentence).complains(words);
        assert_ne!(ran.code, Some(0), "{loader}");
        assert!(!scratch.path("run/report.html").exists(), "{loader}");
    }
    let scratch = Scratch::new();
    for (program, sentence) in [("/bin/true", "before it attached a scheduler"), ("/etc/passwd", "cannot be started")] {
        let ran = scratch.run(&format!("sim -m 1s1n2l2c1t -w spin:-n1,-d1s -s scx:{program}"));
        assert_ne!(ran.did_not_panic().complains(sentence).code, Some(0), "{program}");
    }
}

#[test]
fn a_scheduler_that_goes_wrong_is_ejected_by_name_and_trials_of_others_are_there() {
    skip!(unless can_load());
    let cases = [
        ("loader_with_an_unknown_kernel_function", "program `dispatch`, instruction 1", "bpf_xdp_metadata_rx_hash"),
        ("loader_with_an_unknown_helper", "program `dispatch`, instruction 1", "helper 9999"),
        ("loader_with_an_endless_loop", "program `dispatch`, instruction 0", "does not end"),
        ("loader_with_an_endless_may_goto", "program `dispatch`, instruction", "does not end"),
        ("loader_with_a_wild_store", "program `enqueue`, instruction 1", "stores outside of its memory"),
        ("loader_that_loses_tasks", "`broken` did not schedule to the end", "failed to run for"),
        ("loader_that_starves_tasks", "`broken` did not schedule to the end", "failed to run for"),
        ("loader_that_leaves", "`leaving` did not schedule to the end", "I have had enough"),
        ("loader_whose_init_refuses", "`broken` did not schedule to the end", "init failed with -12"),
    ];
    for (loader, place, reason) in cases {
        let scratch = Scratch::new();
        let ran = compared(&scratch, loader).did_not_panic().complains(place).complains(reason);
        assert_eq!(ran.code, Some(1), "{loader}");
        let ran = ran.complains("the trial is invalid");
        // Who needs what is missing here may be right.
        let is_missing = loader.contains("unknown");
        assert_eq!(ran.error.contains("this is a fault of the program"), !is_missing, "{}", ran.error);
        assert_eq!(ran.error.contains("not modelled here of what it needs"), is_missing, "{}", ran.error);
        assert_eq!((trials(&scratch, "s0"), trials(&scratch, "s1")), (2, 0), "{loader}");
        // What it left is told and kept.
        let kept = std::fs::read_to_string(scratch.path("run/outputs/s1-t0000.txt")).unwrap_or_default();
        let told = ran.complains("CPU states").error;
        for words in ["triggered exit kind", reason, "CPU states"] {
            assert!(kept.contains(words) && told.contains(words), "{loader}: {kept}");
        }
    }
}

#[test]
fn a_check_names_what_is_not_modelled_and_fails_where_the_program_does() {
    skip!(unless can_load());
    let scratch = Scratch::new();
    let check = |loader: &str| {
        let mut command = scratch.command("scheduler -m 1s1n2l2c1t");
        let output = command.arg(scheduler(loader)).output().expect("the program can be started");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (code, text) = check("loader_that_is_right");
    assert!(code == Some(0) && text.contains("broken") && text.contains("dispatch"), "{text}");
    let (code, text) = check("loader_with_an_unknown_map");
    let missing = ["helper bpf_xdp_adjust_head", "kernel function bpf_xdp_metadata_rx_hash", "map kind devmap"];
    assert!(code == Some(2) && text.contains(&missing.join(", ")), "all of it, by name: {text}");
    let (code, text) = check("loader_with_a_wild_store");
    assert!(code == Some(1) && text.contains("program `enqueue`") && !text.contains("panicked"), "{text}");
}

#[test]
fn soaking_finds_a_scheduler_that_leaves_tasks_waiting_with_the_command_that_finds_it_again_and_nothing_in_one_that_is_right()
 {
    skip!(unless can_load());
    let scratch = Scratch::new();
    let soaked = |loader: &str, seeds: &str| {
        let output =
            scratch.command(&format!("scheduler -m 1s1n2l2c1t --soak={seeds}")).arg(scheduler(loader)).output();
        Ran::new(loader, output.expect("the program can be started"))
    };
    let right = soaked("loader_that_is_right", "0-7").exits_with(0);
    assert!(right.out.contains("no stall and no lost task in 8 runs"), "{}", right.out);
    let ran = soaked("loader_that_starves_tasks", "3-4").exits_with(3).complains("fails 2 of 2 runs");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("seed 4: "), "{}", ran.out);
    let (what, again) = lines[1].split_once("; again: warmcore ").expect("the command is there");
    let output =
        std::process::Command::new("sh").args(["-c", &format!("{} {again}", env!("CARGO_BIN_EXE_warmcore"))]).output();
    let ran = Ran::new(again, output.unwrap()).exits_with(3);
    assert!(ran.out.starts_with(what), "{} {what}", ran.out);
    assert!(ran.out.lines().nth(1).is_some_and(|line| line.contains(" ms: it ")), "and what came before: {}", ran.out);
    assert!(soaked("loader_whose_init_refuses", "0").exits_with(3).out.contains("init failed with -12"));
}

#[test]
fn a_run_under_a_scheduler_of_ones_own_is_the_same_with_any_jobs_and_however_the_machine_is_shown() {
    skip!(unless can_load());
    for loader in ["loader_that_is_right", "loader_that_decides"] {
        let trials = |jobs: u32, paths: &str| {
            let scratch = Scratch::new();
            let words = format!("compare -m 1s1n2l2c1t -w spin:-n6,-d1s -n 4 --jobs {jobs} --out run -s eevdf -s");
            let mut command = scratch.command(&words);
            let output = command.arg(scheduler(loader)).env("WARMCORE_SCX_PATHS", paths).output().unwrap();
            assert!(output.status.success(), "{loader}: {}", String::from_utf8_lossy(&output.stderr));
            let files = scratch.files("run/trials");
            assert_eq!(files.len(), 2 * 8, "a file and its list for each");
            let read = |file: &String| std::fs::read(scratch.path(&format!("run/trials/{file}"))).unwrap();
            files.iter().map(read).collect::<Vec<_>>()
        };
        let one = trials(1, "answered");
        assert!(trials(2, "answered") == one, "{loader}, two at a time");
        assert!(trials(2, "either") == one, "{loader}, mounted where that is allowed");
    }
}

#[test]
fn looking_at_a_run_starts_no_program_and_one_that_was_changed_does_not_go_on() {
    skip!(unless can_load());
    let scratch = Scratch::new();
    let started = scratch.path("started");
    let own = |more: &str| {
        let (mark, program) = (started.display(), std::env::current_exe().unwrap());
        let arguments = "--ignored --exact --nocapture --test-threads=1 loader_that_is_right";
        let text = format!("touch {mark}\n{more}exec {} {arguments}\n", program.display());
        std::fs::write(scratch.path("own.sh"), text).unwrap();
    };
    own("");
    let words = "compare -m 1s1n2l2c1t -w spin:-n6,-d300ms -n 2 --out run -s eevdf -s";
    assert_eq!(scratch.run_with_last(words, "scx:/bin/sh own.sh").code, Some(0));
    std::fs::remove_file(&started).expect("it was started");
    let listed = std::fs::read_to_string(scratch.path("run/checksums.sha256")).unwrap();
    assert!(listed.contains("  program-s1.txt.zst\n"), "{listed}");
    assert!(!listed.contains("program-s0"), "eevdf loads nothing");
    let looks = |what: &str| {
        for words in ["report run", "explain run", "compare --resume run"] {
            let ran = scratch.run(words);
            assert_eq!(ran.code, Some(0), "{words}, {what}: {}", ran.error);
            assert!(!started.exists(), "{words} started it, {what}");
        }
    };
    looks("as it was");
    assert!(scratch.files("run").iter().any(|name| name.starts_with("trace/s1")), "its events are there without");
    own("true\n");
    looks("changed");
    // A trial that has lost a table is made again, so that it needs the program.
    let table = scratch.path("run/trace/s1-t0000/tasks.parquet");
    let kept = std::fs::read(&table).unwrap();
    std::fs::remove_file(&table).unwrap();
    let ran = scratch.run("compare --resume run").complains("the file of its argument `own.sh` was changed");
    assert!(ran.code != Some(0) && !started.exists());
    std::fs::write(&table, kept).unwrap();
    std::fs::remove_file(scratch.path("run/trials/s1-t0001.json")).unwrap();
    let ran = scratch.run("compare --resume run").complains("the file of its argument `own.sh` was changed");
    assert!(ran.code != Some(0) && !started.exists());
    ran.complains(" then, ").complains("each trial starts it: put back what it was");
    std::fs::remove_file(scratch.path("own.sh")).unwrap();
    scratch.run("compare --resume run").complains(" then, no file now)");
    own("");
    assert_eq!(scratch.run("compare --resume run").code, Some(0), "with what it was it goes on");
    assert!(started.exists());
}

#[test]
fn trials_of_a_program_that_changes_while_they_run_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    skip!(unless can_load());
    let scratch = Scratch::new();
    let (own, program) = (scratch.path("own"), std::env::current_exe().unwrap());
    let arguments = "--ignored --exact --nocapture --test-threads=1 loader_that_is_right";
    let text = format!("#!/bin/sh\necho >> {}\nexec {} {arguments}\n", own.display(), program.display());
    std::fs::write(&own, text).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = "compare -m 1s1n2l2c1t -w spin:-n6,-d300ms -n 2 --out run -s eevdf -s";
    let ran = scratch.run_with_last(words, &format!("scx:{}", own.display()));
    let ran = ran.did_not_panic().complains("was changed or removed while its runs were made");
    assert_ne!(ran.code, Some(0));
    assert_eq!((trials(&scratch, "s0"), trials(&scratch, "s1")), (2, 0));
}

/// Has the kernel refuse a call to a program that is started: `EPERM`, as a container's filter does.
fn refusing(command: &mut std::process::Command, number: i64) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt as _;
    let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: between fork and exec only system calls are made, on memory that lives as long as they take.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let filtered = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if filtered { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        })
    }
}

/// A run where a call is refused.
fn refused(number: i64, paths: &str) -> (Option<i32>, String, String) {
    let scratch = Scratch::new();
    let mut command = scratch.command("sim -m 1s1n2l2c1t -w spin:-n6,-d1s -s");
    command.arg(scheduler("loader_that_is_right")).env("WARMCORE_SCX_PATHS", paths);
    let output = refusing(&mut command, number).output().expect("the program can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn without_namespaces_the_calls_of_a_loader_are_answered_and_mounts_are_refused_with_a_sentence() {
    skip!(unless can_load());
    // Nothing refuses `getppid`, which nobody calls.
    let (_, right, _) = refused(libc::SYS_getppid, "answered");
    let (code, out, error) = refused(libc::SYS_unshare, "either");
    assert!(code == Some(0) && out == right && right.contains("elapsed_ns"), "{error}");
    let (code, _, error) = refused(libc::SYS_unshare, "mounted");
    assert_ne!(code, Some(0));
    assert!(error.contains("cannot be answered here: mounts of its own (namespaces of users and mounts)"), "{error}");
}

#[test]
fn where_seccomp_is_forbidden_a_program_is_refused_with_a_sentence() {
    skip!(unless can_load());
    let (code, _, error) = refused(libc::SYS_seccomp, "answered");
    assert_ne!(code, Some(0));
    assert!(error.contains("a filter of system calls (seccomp) with a listener"), "{error}");
    assert!(error.contains("allow seccomp listeners to this container"), "{error}");
}

/// Under a program that puts work into the queue of the CPU that wakes somebody, others find it only when they switch.
#[test]
fn beside_a_program_run_kernel_threads_unless_none_are_asked_for() {
    skip!(unless can_load());
    let machine = |more: &str, own: bool| {
        let scratch = Scratch::new();
        let mut command =
            scratch.command(&format!("compare -m 1s1n2l2c1t -w spin:-n2,-d10ms -n 1 --out run {more} -s eevdf"));
        if own {
            command.arg("-s").arg(scheduler("loader_that_is_right"));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(scratch.path("run/machine.toml")).unwrap()
    };
    assert!(machine("", true).contains("guest-7.2"));
    assert!(!machine("--background none", true).contains("guest-7.2"));
    assert!(machine("--background quiet", true).contains("quiet"));
    assert!(!machine("", false).contains("guest-7.2"));
}
