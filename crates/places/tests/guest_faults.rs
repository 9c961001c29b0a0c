//! Faults of a guest as its host meets them, with a script in QEMU's place: it knows the descriptor of its channel from its
//! command line, and says what a broken guest would say.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use warmcore_agent::PROTOCOL;
use warmcore_agent::plan::{Plan, Purpose};
use warmcore_agent::report::{Failed, FrameKind, Hello, Sample, write_document, write_frame};
use warmcore_places::vm::VmError;
use warmcore_places::vm::boot::{Boot, Lab};
use warmcore_places::vm::initramfs::Initramfs;
use warmcore_places::vm::kernel::Kernel;
use warmcore_places::vm::qemu::{Execution, Qemu};
use warmcore_topology::{resolve, to_toml};

/// What the script knows: `$fd` is the channel, `$dir` its own directory.
const HEAD: &str = r#"#!/bin/bash
dir=$(dirname "$0")
echo $$ > "$dir/pid"
for word in "$@"; do case $word in socket,id=frames,fd=*) fd=${word##*=};; esac; done
"#;

/// A guest that does what a script says.
struct Fake {
    directory: tempfile::TempDir,
}

impl Fake {
    fn new(script: &str) -> Self {
        let fake = Self { directory: tempfile::tempdir().unwrap() };
        let program = fake.path("qemu");
        std::fs::write(&program, format!("{HEAD}{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file that the script can send.
    fn frames(&self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        write(&mut bytes);
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn lab(&self, limit: Duration) -> Lab {
        Lab {
            qemu: Qemu { program: self.path("qemu"), version: "0".into() },
            kernel: Kernel { image: "/none".into(), config: None, release: "7.2.13".into(), sha256: String::new() },
            execution: Execution::Emulated,
            limit,
            buffer_kib: 64,
            programs: BTreeMap::new(),
            kernels: BTreeMap::new(),
        }
    }

    fn boot_until(&self, limit: Duration, stop: &AtomicBool) -> Result<Hello, VmError> {
        let machine = resolve("1s1n1l2c1t").unwrap();
        let plan = Plan { protocol: PROTOCOL, purpose: Purpose::Run, runs: Vec::new() };
        let boot = Boot { machine: &machine, plan: &plan, files: Initramfs::default(), extra_memory_mib: 0 };
        self.lab(limit).boot(boot, stop, |_, _| Ok(()))
    }

    fn boot(&self) -> Result<Hello, VmError> {
        self.boot_until(Duration::from_secs(60), &AtomicBool::new(false))
    }

    /// Whether the script's process is gone.
    fn is_gone(&self) -> bool {
        let pid = std::fs::read_to_string(self.path("pid")).unwrap();
        !Path::new("/proc").join(pid.trim()).exists()
    }
}

fn hello(machine: &str, protocol: u32) -> Hello {
    Hello {
        protocol,
        release: "7.2.13".into(),
        architecture: "x86_64".into(),
        boot_ns: 1,
        clocksource: "tsc".into(),
        machine: to_toml(&resolve(machine).unwrap()),
        domains: Vec::new(),
        llc_balancing: Vec::new(),
        sched: Vec::new(),
        scx_refusal: None,
        stoppers: Vec::new(),
        memory_bytes: 1,
    }
}

fn say_hello(bytes: &mut Vec<u8>) {
    write_document(bytes, FrameKind::Hello, &hello("1s1n1l2c1t", PROTOCOL)).unwrap();
}

#[test]
fn a_guest_that_says_all_it_should_is_believed() {
    let fake = Fake::new(r#"cat "$dir/said" >&$fd; exec sleep 1000"#);
    fake.frames("said", |bytes| {
        say_hello(bytes);
        write_frame(bytes, FrameKind::Done, &[]).unwrap();
    });
    assert_eq!(fake.boot().unwrap().release, "7.2.13");
    assert!(fake.is_gone(), "it is not needed any more");
}

#[test]
fn a_panic_is_reported_with_its_reason_and_the_last_lines() {
    let fake = Fake::new("echo booting; echo '[ 1.0] Kernel panic - not syncing: Out of memory: system-wide'; exit 0");
    let error = fake.boot().unwrap_err();
    let VmError::Died { reason, console } = &error else { panic!("{error}") };
    assert_eq!(reason, "Out of memory: system-wide");
    assert!(console.contains("booting"), "{console}");
}

#[test]
fn a_guest_that_ends_without_a_word_is_not_a_result() {
    let fake = Fake::new(r#"cat "$dir/said" >&$fd; exit 0"#);
    fake.frames("said", say_hello);
    let error = fake.boot().unwrap_err();
    assert!(error.to_string().contains("ended without a word"), "{error}");
}

#[test]
fn a_guest_that_hangs_is_killed_at_its_limit() {
    let fake = Fake::new(r#"cat "$dir/said" >&$fd; echo last words; exec sleep 1000"#);
    fake.frames("said", say_hello);
    let start = Instant::now();
    let error = fake.boot_until(Duration::from_secs(1), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(&error, VmError::Hung { seconds: 1, console } if console.contains("last words")), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(fake.is_gone());
}

#[test]
fn a_guest_that_fills_its_channel_is_killed() {
    let fake = Fake::new(r#"cat "$dir/said" >&$fd; while cat "$dir/more" >&$fd; do :; done"#);
    fake.frames("said", say_hello);
    fake.frames("more", |bytes| {
        let sample = Sample { time_ns: 0, texts: vec![("/fill".into(), "x".repeat(8 << 20))] };
        write_document(bytes, FrameKind::Sample, &sample).unwrap();
    });
    let error = fake.boot().unwrap_err();
    assert!(matches!(error, VmError::Flood { bytes } if bytes > 200 << 20), "{error}");
    assert!(fake.is_gone());
}

#[test]
fn what_is_no_frame_or_half_a_frame_is_an_error() {
    let text = Fake::new("echo this is no frame at all >&$fd; exec sleep 1000");
    let error = text.boot().unwrap_err();
    assert!(matches!(&error, VmError::Protocol { reason } if reason.contains("not a kind of frame")), "{error}");
    let half = Fake::new(r#"head -c 20 "$dir/said" >&$fd; exit 0"#);
    half.frames("said", say_hello);
    let error = half.boot().unwrap_err();
    assert!(matches!(error, VmError::Died { .. }), "{error}");
}

#[test]
fn a_guest_that_says_what_went_wrong_is_quoted() {
    for (scheduler_ejected, invalid) in [(false, false), (true, true)] {
        let fake = Fake::new(r#"cat "$dir/said" >&$fd; exit 0"#);
        fake.frames("said", |bytes| {
            say_hello(bytes);
            let failed = Failed { run: Some(0), reason: "runnable task stall".into(), scheduler_ejected };
            write_document(bytes, FrameKind::Failed, &failed).unwrap();
        });
        let error = fake.boot().unwrap_err();
        assert!(error.to_string().contains("runnable task stall"), "{error}");
        assert_eq!(matches!(error, VmError::Ejected { .. }), invalid);
    }
}

#[test]
fn another_machine_or_another_protocol_is_refused() {
    for (machine, protocol, part) in
        [("1s1n2l1c1t", PROTOCOL, "another machine"), ("1s1n1l2c1t", PROTOCOL + 1, "speaks protocol")]
    {
        let fake = Fake::new(r#"cat "$dir/said" >&$fd; exec sleep 1000"#);
        fake.frames("said", |bytes| write_document(bytes, FrameKind::Hello, &hello(machine, protocol)).unwrap());
        let error = fake.boot().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(fake.is_gone());
    }
}

#[test]
fn what_qemu_complains_of_is_reported() {
    let fake = Fake::new("echo 'qemu: could not load kernel' >&2; exit 1");
    let error = fake.boot().unwrap_err();
    assert!(matches!(&error, VmError::Start { reason } if reason.contains("could not load kernel")), "{error}");
    let broken = Fake::new("echo 'KVM internal error. Suberror: 1' >&2; exec sleep 1000");
    let error = broken.boot().unwrap_err();
    assert!(matches!(error, VmError::Acceleration { .. }), "{error}");
    assert!(broken.is_gone());
}

#[test]
fn a_caller_that_asks_to_stop_leaves_no_guest() {
    let fake = Fake::new("exec sleep 1000");
    let error = fake.boot_until(Duration::from_secs(60), &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, VmError::Interrupted), "{error}");
    assert!(!fake.path("pid").exists() || fake.is_gone());
}
