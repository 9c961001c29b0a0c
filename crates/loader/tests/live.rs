//! A loader that goes on in simulated time: its clocks and waits are the run's, and what it changes takes effect there and then.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use assembler::*;
use loaders::*;
use warmcore_kernel::{Setup, SimulationError};
use warmcore_loader::{Paths, Request, TargetKernel, start};
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_testing::skip;
use warmcore_trace::{Event, Outcome};

const MS: Duration = Duration::from_millis(1);

/// `enqueue` with the slice that stands in a map.
fn enqueue_with_slice_of(map: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    const LOOKUP: i32 = 1;
    let program = vec![
        mov(6, 1),
        store_imm(4, 10, -4, 0),
        code(0x18, 1, 1, 0, map as i32),
        code(0, 0, 0, 0, 0),
        mov(2, 10),
        add_imm(2, -4),
        helper(LOOKUP),
        code(0x15, 0, 0, 6, 0),
        load_double(3, 0, 0),
        load_double(1, 6, 0),
        load_double(4, 6, 8),
        mov_imm(2, SHARED),
        kfunc("scx_bpf_dsq_insert"),
        exit(),
        mov_imm(0, 0),
        exit(),
    ];
    (8, "enqueue", program)
}

fn set(map: i64, slice: Duration) {
    let nanoseconds = slice.as_nanos() as u64;
    assert_eq!(element(2, map, &[0; 4], &mut nanoseconds.to_le_bytes()), 0);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_goes_on() {
    let map = create_map(2, 4, 8, 1);
    set(map, 20 * MS);
    attach(&[init(), select_cpu(), enqueue_with_slice_of(map), dispatch()]);
    let begun = Instant::now();
    let passed = |ms: u32| {
        let elapsed = begun.elapsed();
        assert!(elapsed >= ms * MS && elapsed < (ms + 1) * MS, "{elapsed:?} instead of {ms} ms");
    };
    passed(0);
    std::thread::sleep(100 * MS);
    passed(100);
    set(map, 4 * MS);
    // A wait for another thread, which has something to say twice.
    let said = (Mutex::new(0), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for word in 1..=2 {
                std::thread::sleep(30 * MS);
                *said.0.lock().unwrap() = word;
                said.1.notify_one();
            }
        });
        let heard = said.0.lock().unwrap();
        let (heard, timeout) = said.1.wait_timeout_while(heard, 500 * MS, |word| *word < 2).unwrap();
        assert!(!timeout.timed_out() && *heard == 2);
    });
    passed(160);
    let (heard, timeout) = said.1.wait_timeout(said.0.lock().unwrap(), 40 * MS).unwrap();
    assert!(timeout.timed_out());
    drop(heard);
    passed(200);
    wait_by_timer(50 * MS);
    passed(250);
    set(map, 12 * MS);
    loop {
        std::thread::sleep(Duration::from_secs(3));
    }
}

/// Waits by a timer behind a descriptor and `epoll`.
fn wait_by_timer(time: Duration) {
    // SAFETY: plain system calls on structures that live as long as they take; what is got is owned.
    let (timer, events) = unsafe {
        let timer = OwnedFd::from_raw_fd(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0));
        let events = OwnedFd::from_raw_fd(libc::epoll_create1(0));
        let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        libc::epoll_ctl(events.as_raw_fd(), libc::EPOLL_CTL_ADD, timer.as_raw_fd(), &raw mut wanted);
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_nsec = time.as_nanos() as i64;
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const when, std::ptr::null_mut());
        (timer, events)
    };
    let mut found = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one event.
    let count = unsafe { libc::epoll_wait(events.as_raw_fd(), &raw mut found, 1, 1000) };
    assert_eq!((count, { found.u64 }), (1, 7));
    let mut expirations = [0; 8];
    std::fs::File::from(timer).read_exact(&mut expirations).unwrap();
    assert_eq!(u64::from_le_bytes(expirations), 1);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_leaves() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    std::thread::sleep(200 * MS);
    eprintln!("I have had enough");
    std::process::exit(4);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_reads_the_accounts() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    let busy = || -> Vec<u64> {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        cpus.map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
    };
    assert_eq!(busy(), [0; 8], "nothing has run yet");
    std::thread::sleep(300 * MS);
    // 30 hundredths of a second on each, as 12 spinners keep them busy.
    assert!(busy().iter().all(|&busy| (28..=30).contains(&busy)), "{:?}", busy());
    eprintln!("the accounts are right");
    std::process::exit(5);
}

fn live_trial(loader: &str) -> Result<(Outcome, Vec<Event>), SimulationError> {
    let kernel = TargetKernel::new("7.2.0-test", "CONFIG_HZ=250\n", &types::kernel(&FUNCTIONS).0).unwrap();
    let program = std::env::current_exe().unwrap();
    let arguments = arguments_for(loader);
    let (machine, workload) = (machine(), workload("spin:-n12,-d1s"));
    let timeout = Duration::from_secs(60);
    let request = Request {
        program: &program,
        arguments: &arguments,
        machine: &machine,
        kernel: &kernel,
        timeout,
        files: None,
        paths: Paths::default(),
    };
    let attached = start(&request).unwrap_or_else(|error| panic!("{error}"));
    let scheduler = Bytecode::live(&attached.object, attached.host, Box::new(attached.loader), 7, false);
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let (outcome, _) = bytecode_trial(scheduler, &setup, Some(&mut events))?;
    Ok((outcome, events))
}

/// Switches per second of simulated time between two instants.
fn switches_per_s(events: &[Event], from_ms: u64, to_ms: u64) -> u64 {
    let within = |event: &&Event| (from_ms * 1_000_000..to_ms * 1_000_000).contains(&event.time_ns);
    let is_switch = |event: &&Event| matches!(event.kind, warmcore_trace::EventKind::Switch { .. });
    events.iter().filter(within).filter(is_switch).count() as u64 * 1000 / (to_ms - from_ms)
}

#[test]
fn what_a_loader_decides_later_takes_effect_in_simulated_time_and_each_run_is_the_same() {
    skip!(unless can_answer());
    let (outcome, events) = live_trial("loader_that_goes_on").unwrap();
    assert!(outcome.elapsed_ns >= 1_000_000_000);
    // Slices of 20 ms, of 4 from 0.1 s on, and of 12 from 0.25 s on, on 8 CPUs; each lasts one tick of 4 ms more.
    let [first, second, third] =
        [(40, 100), (120, 250), (300, 900)].map(|(from, to)| switches_per_s(&events, from, to));
    assert!((300..500).contains(&first), "{first}");
    assert!((850..1050).contains(&second), "{second}");
    assert!((420..540).contains(&third), "{third}");
    assert_eq!(live_trial("loader_that_goes_on").unwrap().1, events, "and again");
}

#[test]
fn a_loader_that_ends_takes_its_scheduler_away_and_its_last_words_say_why() {
    skip!(unless can_answer());
    for (loader, words) in
        [("loader_that_leaves", "I have had enough"), ("loader_that_reads_the_accounts", "the accounts are right")]
    {
        match live_trial(loader) {
            Err(SimulationError::Ejected { reason, .. }) => {
                assert!(reason.contains("it has ended") && reason.contains(words), "{reason}");
            }
            other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
        }
    }
}
