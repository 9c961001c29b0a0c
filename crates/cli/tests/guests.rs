//! `warmcore vm` with a script in QEMU's place: no guest outlives the program, nothing is written outside run directory
//! and cache, and what is missing is said.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Scratch;
use warmcore_testing::skip;

/// The smallest image that passes for a kernel.
fn image() -> Vec<u8> {
    let mut bytes = vec![0_u8; 4096];
    bytes[0x1f1] = 1;
    bytes[0x1f4] = 192;
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x236] = 1;
    bytes[0x20f] = 0x02;
    bytes[0x400..0x406].copy_from_slice(b"7.2.13");
    bytes
}

/// A scratch directory with a kernel and a QEMU that never says anything.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path("vmlinuz"), image()).unwrap();
    fs::create_dir(scratch.path("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'QEMU emulator version 7.2.0 (x)'; exit 0; fi\n\
         echo $$ > {}\nexec sleep 1000\n",
        scratch.path("pid.new").display()
    );
    // Whole or absent, so that whoever reads it reads a number.
    let script = script.replace("exec sleep", &format!("mv {0}.new {0}\nexec sleep", scratch.path("pid").display()));
    let program = scratch.path("bin/qemu-system-x86_64");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    scratch
}

fn search_path(scratch: &Scratch) -> String {
    format!("{}:{}", scratch.path("bin").display(), std::env::var("PATH").unwrap_or_default())
}

fn boot(scratch: &Scratch) -> Child {
    let mut command =
        scratch.command("sim --on vm:kernel=vmlinuz,virtual-time --machine 1s1n1l2c1t --workload spin:-n1,-d1s --scheduler eevdf --out run");
    command.env("PATH", search_path(scratch)).env("XDG_CACHE_HOME", scratch.path("cache"));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program can be started")
}

fn within(limit: Duration, what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").arg(name).arg(pid.to_string()).status().unwrap().success());
}

#[test]
fn no_guest_outlives_a_killed_program() {
    for name in ["-KILL", "-TERM", "-INT"] {
        let scratch = scratch();
        let mut child = boot(&scratch);
        within(Duration::from_secs(60), "the guest starts", || scratch.path("pid").exists());
        let guest = fs::read_to_string(scratch.path("pid")).unwrap();
        let process = Path::new("/proc").join(guest.trim());
        assert!(process.exists());
        signal(name, child.id());
        let status = child.wait().unwrap();
        assert!(!status.success(), "{name}");
        within(Duration::from_secs(30), "the guest is gone", || !process.exists());
        // Nothing but what was there, the run directory and the cache.
        let mut entries: Vec<String> = fs::read_dir(scratch.path("."))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|entry| entry != "cache")
            .collect();
        entries.sort();
        assert_eq!(entries, ["bin", "pid", "run", "vmlinuz"], "{name}");
    }
}

#[test]
fn a_guest_that_says_nothing_is_killed_at_the_limit_and_the_advice_is_said() {
    let scratch = scratch();
    let words = "vm --guest kernel=vmlinuz,virtual-time,boot-limit=1s --machine 1s1n1l2c1t";
    let ran = scratch.run_in_path(&search_path(&scratch), words);
    assert_eq!(ran.code, Some(1), "{}", ran.error);
    assert!(ran.error.contains("not done within 1 s"), "{}", ran.error);
    assert!(ran.error.contains("boot-limit"), "{}", ran.error);
}

#[test]
fn without_qemu_it_is_said_what_to_install() {
    let scratch = scratch();
    let ran = scratch.run_in_path("/nonexistent", "vm --guest kernel=vmlinuz,virtual-time --machine 1s1n1l2c1t");
    assert_ne!(ran.code, Some(0));
    assert!(ran.error.contains("no QEMU"), "{}", ran.error);
    assert!(ran.error.contains("qemu-system-x86"), "{}", ran.error);
}

#[test]
fn a_broken_image_is_refused_before_anything_is_started() {
    let scratch = scratch();
    fs::write(scratch.path("cut"), &image()[..3000]).unwrap();
    let mut arm = image();
    arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
    fs::write(scratch.path("arm"), arm).unwrap();
    for (file, part) in [("cut", "cut off"), ("arm", "arm64"), ("missing", "cannot read it")] {
        let words = format!("vm --guest kernel={file},virtual-time --machine 1s1n1l2c1t");
        let ran = scratch.run_in_path(&search_path(&scratch), &words);
        assert_eq!(ran.code, Some(2), "{}", ran.error);
        assert!(ran.error.contains(part), "{}", ran.error);
        assert!(!scratch.path("pid").exists(), "{file} was booted");
    }
}

#[test]
fn a_scheduler_that_is_no_program_for_a_guest_is_refused() {
    let scratch = scratch();
    scratch.write("script.sh", "#!/bin/sh\n");
    for (program, part) in [("./script.sh", "not an ELF"), ("./missing", "missing")] {
        let words = format!(
            "sim --on vm:kernel=vmlinuz,virtual-time --machine 1s1n1l2c1t --workload spin:-n1,-d1s --scheduler scx:{program}"
        );
        let ran = scratch.run_in_path(&search_path(&scratch), &words);
        assert_ne!(ran.code, Some(0));
        assert!(ran.error.contains(part), "{}", ran.error);
        assert!(!scratch.path("pid").exists(), "{program} was booted");
    }
}

#[test]
fn a_machine_too_large_for_a_guest_is_bad_input_before_anything_is_made() {
    let scratch = scratch();
    let words = "compare --on vm:kernel=vmlinuz,virtual-time -m 3s1n1l100c1t -w spin:-n2,-d1ms -s eevdf --out run";
    let mut command = scratch.command(words);
    command.env("PATH", search_path(&scratch)).env("XDG_CACHE_HOME", scratch.path("cache"));
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("300 CPUs") && error.contains("at most 255"), "{error}");
    assert!(!scratch.path("run").exists());
}

/// Runs a program in a guest that never says anything, and gives the exit code and the words.
fn exec(scratch: &Scratch, words: &str, last: &[&str]) -> (Option<i32>, String) {
    let mut command = scratch.command(&format!("vm --guest kernel=vmlinuz,virtual-time -m 1s1n1l2c1t {words}"));
    command.args(last).env("PATH", search_path(scratch)).env("XDG_CACHE_HOME", scratch.path("cache"));
    let output = command.output().expect("the program can be started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_cannot_run_in_a_guest_is_told_before_it_is_booted() {
    let scratch = scratch();
    scratch.write("script.sh", "#!/bin/sh\n");
    fs::create_dir(scratch.path("full")).unwrap();
    scratch.write("full/kept", "");
    let cases: [(&str, &[&str], &str); 6] = [
        ("", &["--", "no-such-program"], "no-such-program"),
        ("", &["--", "./script.sh"], "not an ELF"),
        ("", &["--", ""], "the command is empty"),
        ("--file ./missing", &["--", "/bin/true"], "missing"),
        ("--out full", &["--", "/bin/true"], "not empty"),
        ("--out script.sh", &["--", "/bin/true"], "script.sh"),
    ];
    for (words, last, part) in cases {
        let (code, error) = exec(&scratch, words, last);
        assert!(code.is_some_and(|code| code != 0 && code != 101), "{words} {last:?}: {error}");
        assert!(error.contains(part), "{words} {last:?}: {error}");
        assert!(!scratch.path("pid").exists(), "{words} {last:?} was booted");
    }
    assert_eq!(exec(&scratch, "--file script.sh", &[]).0, Some(2), "files are for a command");
}

#[test]
fn a_program_that_lacks_a_library_is_refused_with_its_name() {
    let scratch = scratch();
    // A program of this computer with the name of a library made another of the same length.
    let mut bytes = fs::read("/bin/ls").unwrap();
    let Some(at) = bytes.windows(9).position(|part| part == b"libc.so.6") else {
        skip!("/bin/ls is static");
    };
    bytes[at..at + 9].copy_from_slice(b"libq.so.6");
    fs::write(scratch.path("lacking"), bytes).unwrap();
    fs::set_permissions(scratch.path("lacking"), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, error) = exec(&scratch, "", &["--", "./lacking"]);
    assert!(code.is_some_and(|code| code != 0) && error.contains("libq.so.6"), "{error}");
    assert!(!scratch.path("pid").exists(), "it was booted");
}

#[test]
fn a_guest_that_dies_is_an_error_and_not_an_end() {
    let scratch = scratch();
    let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'QEMU emulator version 7.2.0 (x)'; exit 0; fi\necho no room >&2\nexit 1\n";
    fs::write(scratch.path("bin/qemu-system-x86_64"), script).unwrap();
    let (code, error) = exec(&scratch, "", &["--", "/bin/true"]);
    assert!(code.is_some_and(|code| code != 0 && code != 101), "{error}");
    assert!(error.contains("no room"), "{error}");
}
