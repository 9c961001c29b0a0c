//! Work in a process of its own: whatever it does, this process goes on, and says what happened there.
#![cfg(target_arch = "x86_64")]

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warmcore_loader::{Limits, Outbox, Sandbox, WorkerError, work_apart};

const LIMITS: Limits = Limits { memory_bytes: 256 << 20, cpu: Duration::from_secs(60) };

/// What came of work: its messages, and how it ended.
fn apart(limits: Limits, work: impl FnOnce(&mut Outbox) -> io::Result<()>) -> (Vec<String>, Result<(), WorkerError>) {
    let mut messages = Vec::new();
    let result = work_apart(limits, None, work, &mut |kind, message| {
        messages.push(format!("{kind}: {}", String::from_utf8_lossy(message)));
        true
    });
    (messages, result)
}

fn sealed(work: impl FnOnce(&mut Outbox) -> io::Result<()>) -> (Vec<String>, Result<(), WorkerError>) {
    apart(LIMITS, |outbox| {
        outbox.seal(Sandbox::Computing)?;
        work(outbox)
    })
}

/// The error of sealed work, in words.
fn error_of(work: impl FnOnce(&mut Outbox) -> io::Result<()>) -> String {
    sealed(work).1.expect_err("it came to its end").to_string()
}

#[test]
fn messages_come_in_order_whatever_their_length() {
    let long = "x".repeat(3_000_000);
    let (messages, result) = sealed(|outbox| {
        outbox.send(1, b"first")?;
        outbox.send(2, "x".repeat(3_000_000).as_bytes())?;
        outbox.send(3, b"")
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(messages, ["1: first".to_owned(), format!("2: {long}"), "3: ".to_owned()]);
}

#[test]
fn sealed_work_has_no_files_sockets_programs_processes_or_executable_memory() {
    let held = File::open("/dev/null").unwrap();
    let (messages, result) = sealed(|outbox| {
        let mut tell = |what: &str, refused: bool| outbox.send(1, format!("{what} {refused}").as_bytes());
        tell("open", File::open("/etc/passwd").is_err())?;
        tell("create", File::create("/tmp/of-the-worker").is_err())?;
        tell("listen", TcpListener::bind("127.0.0.1:0").is_err())?;
        tell("start", Command::new("/bin/true").spawn().is_err())?;
        tell("thread", std::thread::Builder::new().spawn(|| ()).is_err())?;
        tell("held", held.metadata().is_err())?;
        // SAFETY: plain system calls; memory that is got is not used.
        let [executable, killed] = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0);
            [memory == libc::MAP_FAILED, libc::kill(libc::getppid(), 0) != 0]
        };
        tell("executable", executable)?;
        tell("kill", killed)
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(messages.len(), 8);
    assert!(messages.iter().all(|message| message.ends_with(" true")), "{messages:?}");
}

#[test]
fn work_that_supervises_may_look_and_may_not_start_anything() {
    let (messages, result) = apart(LIMITS, |outbox| {
        outbox.seal(Sandbox::Supervising)?;
        let looks = std::fs::read_to_string("/proc/self/stat").is_ok();
        let starts = Command::new("/bin/true").spawn().is_ok();
        let listens = TcpListener::bind("127.0.0.1:0").is_ok();
        outbox.send(1, format!("{looks} {starts} {listens}").as_bytes())
    });
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(messages, ["1: true false false"]);
}

#[test]
fn a_fault_of_the_processor_ends_the_work_alone_and_says_where_it_was() {
    let (messages, result) = sealed(|outbox| {
        outbox.send(1, b"before")?;
        // SAFETY: none: this is the fault that is wanted, in a process that has nothing to lose.
        unsafe { std::ptr::without_provenance_mut::<u8>(std::hint::black_box(64)).write_volatile(1) };
        Ok(())
    });
    assert_eq!(messages, ["1: before"], "what was sent before is not lost");
    match result {
        Err(WorkerError::Crashed { signal, at, .. }) => assert!(signal == "SIGSEGV" && at != 0, "{signal} {at:x}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_ends_the_work_alone_with_its_words() {
    let error = error_of(|_| panic!("the table has no legs"));
    assert!(error.contains("the table has no legs") && error.contains("exit status 101"), "{error}");
}

#[test]
fn work_that_asks_for_too_much_memory_ends_with_that_sentence() {
    let error = error_of(|outbox| {
        let much = vec![1u8; 1 << 30];
        outbox.send(1, &much[..10])
    });
    assert!(error.contains("needs more than 256 MiB of memory"), "{error}");
}

#[test]
fn work_that_fills_memory_that_it_was_given_is_ended_too() {
    let error = apart(LIMITS, |outbox| {
        // A region like that of programs: taken before, so that no bound of the address space holds it.
        let mut region = Vec::<u8>::with_capacity(4 << 30);
        outbox.seal(Sandbox::Computing)?;
        for page in (0..4usize << 30).step_by(4096) {
            region.spare_capacity_mut()[page].write(1);
        }
        loop {
            std::hint::spin_loop();
        }
    });
    let error = error.1.unwrap_err().to_string();
    assert!(error.contains("needs more than 256 MiB of memory"), "{error}");
}

#[test]
fn work_without_an_end_is_ended_when_its_cpu_time_is_used_up() {
    let limits = Limits { cpu: Duration::from_secs(1), ..LIMITS };
    let (_, result) = apart(limits, |outbox| {
        outbox.seal(Sandbox::Computing)?;
        loop {
            std::hint::spin_loop();
        }
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("has taken 1 s of CPU time without coming to an end"), "{error}");
}

#[test]
fn work_stops_soon_after_the_caller_asks() {
    let stop = AtomicBool::new(false);
    let endless = |outbox: &mut Outbox| -> io::Result<()> {
        outbox.seal(Sandbox::Computing)?;
        outbox.send(1, b"it has begun")?;
        loop {
            std::hint::spin_loop();
        }
    };
    let result = work_apart(LIMITS, Some(&stop), endless, &mut |_, _| {
        stop.store(true, Ordering::Relaxed);
        true
    });
    assert!(matches!(result, Err(WorkerError::Interrupted)), "{result:?}");
}

#[test]
fn messages_that_nobody_wants_end_the_work() {
    let result = work_apart(LIMITS, None, |outbox| (0..).try_for_each(|_| outbox.send(1, b"more")), &mut |_, _| false);
    assert!(matches!(result, Err(WorkerError::Unwanted)), "{result:?}");
}

#[test]
fn several_works_at_once_from_several_threads_come_to_their_ends() {
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            scope.spawn(move || {
                for _ in 0..20 {
                    let (messages, result) = sealed(|outbox| outbox.send(number, &vec![b'x'; 5000]));
                    assert!(result.is_ok() && messages.len() == 1, "{result:?}");
                }
            });
        }
    });
}
