//! A loader that goes on in simulated time: its clocks and waits are the run's, and what it changes takes effect there and then.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use assembler::*;
use loaders::*;
use warmcore_kernel::{Setup, SimulationError};
use warmcore_loader::{CaptureRequest, MachineFiles, Paths, TargetKernel, start};
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_testing::skip;
use warmcore_trace::{Event, Outcome};

const MS: Duration = Duration::from_millis(1);

/// From the moment the scheduler is attached until the run begins.
fn until_the_run() {
    std::thread::sleep(1000 * MS);
}

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
    until_the_run();
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
    until_the_run();
    let busy = || -> Vec<u64> {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
        cpus.map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
    };
    assert_eq!(busy(), [0; 8], "nothing has run yet");
    let told = |name: &str| std::fs::read_to_string(format!("/sys/kernel/sched_ext/{name}")).unwrap();
    assert_eq!(["state", "enable_seq", "switch_all"].map(told), ["enabled\n", "1\n", "1\n"]);
    assert!(told("root/ops").len() > 1, "the scheduler's name");
    // Those that this kernel has: it was bypassed while it was loaded.
    assert_eq!(told("root/events").lines().last(), Some("SCX_EV_BYPASS_ACTIVATE 1"));
    // What it asks of idle states and frequencies is taken, and neither the machine nor this computer changes.
    for (path, written) in [
        ("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "32"),
        ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1000000"),
        ("/dev/cpu_dma_latency", "\x20\0\0\0"),
    ] {
        std::fs::write(path, written).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let swappiness = || std::fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let before = swappiness();
    std::fs::write("/proc/sys/vm/swappiness", if before.trim() == "7" { "8" } else { "7" }).unwrap();
    assert_eq!(swappiness(), before, "a setting of this computer");
    let missing = std::fs::write("/sys/devices/system/cpu/cpu0/no_such_file", "1").unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    std::thread::sleep(300 * MS);
    // 30 hundredths of a second on each, as 12 spinners keep them busy.
    assert!(busy().iter().all(|&busy| (28..=30).contains(&busy)), "{:?}", busy());
    eprintln!("the accounts are right");
    std::process::exit(5);
}

/// What the files of sched_ext say, of those that are there.
fn sched_ext_files() -> String {
    let names = ["state", "switch_all", "nr_rejected", "hotplug_seq", "enable_seq", "root/ops"];
    let read = |name: &str| {
        let path = format!("/sys/kernel/sched_ext/{name}");
        let text = std::fs::read_to_string(&path);
        assert_eq!(text.is_ok(), std::path::Path::new(&path).exists(), "{path}");
        text.map_or_else(|error| format!("{:?}", error.kind()), |text| text.trim_end().to_owned())
    };
    names.map(read).join(" ")
}

const WHILE_ATTACHED: &str = "enabled 1 0 0 1 test";
const AFTERWARDS: &str = "disabled 0 0 0 1 NotFound";

fn scheduler() -> [(usize, &'static str, Vec<[u8; 8]>); 4] {
    [init(), select_cpu(), enqueue(), dispatch()]
}

/// Closes the link when another descriptor of it is left, and then that one.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_closes_its_link() {
    assert_eq!(sched_ext_files(), "disabled 0 0 0 0 NotFound");
    let link = try_attach(&scheduler()).unwrap();
    assert_eq!(sched_ext_files(), WHILE_ATTACHED);
    until_the_run();
    let other = link.try_clone().unwrap();
    drop(link);
    std::thread::sleep(20 * MS);
    assert_eq!(sched_ext_files(), WHILE_ATTACHED);
    let refused = try_attach(&scheduler()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY), "there is one scheduler at a time");
    drop(other);
    assert_eq!(sched_ext_files(), AFTERWARDS);
    eprintln!("its link is closed");
    std::thread::sleep(1000 * MS);
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_detaches_its_link() {
    const LINK_DETACH: i32 = 34;
    let link = try_attach(&scheduler()).unwrap();
    until_the_run();
    let detach = |descriptor: i32| {
        let mut attributes = [0; 8];
        put(&mut attributes, 0, &descriptor.to_le_bytes());
        bpf(LINK_DETACH, &attributes)
    };
    assert_eq!(detach(2), -1, "that is no link");
    assert_eq!(detach(link.as_raw_fd()), 0);
    assert_eq!(sched_ext_files(), AFTERWARDS);
    eprintln!("its link is detached");
    std::thread::sleep(1000 * MS);
}

/// Looks once a second whether its scheduler is there, and stays when it is not.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_whose_scheduler_is_ejected() {
    let into_no_queue = (8, "enqueue", vec![load_double(1, 1, 0), mov_imm(2, 77), mov_imm(3, SLICE), mov_imm(4, 0)]);
    let (offset, name, mut program) = into_no_queue;
    program.extend([kfunc("scx_bpf_dsq_insert"), exit()]);
    let _link = try_attach(&[init(), select_cpu(), (offset, name, program), dispatch()]).unwrap();
    while sched_ext_files() == WHILE_ATTACHED {
        std::thread::sleep(1000 * MS);
    }
    eprintln!("it is ejected: {}", sched_ext_files());
    loop {
        std::thread::sleep(1000 * MS);
    }
}

/// Four threads whose waits end at the same instants; each reads the clock as often as it likes, and decides by what the others did.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_with_threads_that_decide() {
    let map = create_map(2, 4, 8, 1);
    set(map, 20 * MS);
    attach(&[init(), select_cpu(), enqueue_with_slice_of(map), dispatch()]);
    let turns = Mutex::new(0u32);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let turns = &turns;
            scope.spawn(move || {
                loop {
                    (0..number * 50).for_each(|_| _ = Instant::now());
                    std::thread::sleep(50 * MS);
                    let mut turns = turns.lock().unwrap();
                    *turns = turns.wrapping_mul(31).wrapping_add(number + 1);
                    set(map, (1 + *turns % 17) * MS);
                }
            });
        }
    });
}

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn alarmed(_: i32) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// Waits by every call that ends at a time, and looks at the clock.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_waits_in_every_way() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    until_the_run();
    let mut begun = Instant::now();
    let mut passed = |what: &str, ms: u32| {
        let elapsed = begun.elapsed();
        assert!(elapsed >= ms * MS && elapsed < (ms + 2) * MS, "{what}: {elapsed:?} instead of {ms} ms");
        begun = Instant::now();
    };
    // SAFETY: system calls on structures that live as long as they take.
    unsafe {
        let mut ends = [0; 2];
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(ends[0], &raw mut set);
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        let none = std::ptr::null_mut();
        assert_eq!(libc::select(ends[0] + 1, &raw mut set, none, none, &raw mut time), 0);
        assert!(!libc::FD_ISSET(ends[0], &raw const set), "nothing is there");
        passed("select", 20);
        let mut poll = libc::pollfd { fd: ends[0], events: libc::POLLIN, revents: 7 };
        assert_eq!((libc::poll(&raw mut poll, 1, 30), poll.revents), (0, 0));
        passed("poll", 30);
        libc::signal(libc::SIGALRM, alarmed as extern "C" fn(i32) as libc::sighandler_t);
        let mut alarm: libc::itimerval = std::mem::zeroed();
        alarm.it_value.tv_usec = 40_000;
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const alarm, std::ptr::null_mut()), 0);
        libc::usleep(100_000);
        passed("a sleep", 100);
        assert_eq!(ALARMS.load(Ordering::Relaxed), 1);
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut signals, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        let mut event: libc::sigevent = std::mem::zeroed();
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_THREAD_ID, libc::SIGUSR1);
        event.sigev_notify_thread_id = libc::gettid();
        event.sigev_value.sival_ptr = 77 as *mut libc::c_void;
        let mut timer: libc::timer_t = std::mem::zeroed();
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_nsec = 50_000_000;
        assert_eq!(libc::timer_settime(timer, 0, &raw const when, std::ptr::null_mut()), 0);
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let time = libc::timespec { tv_sec: 3, tv_nsec: 0 };
        assert_eq!(libc::sigtimedwait(&raw const signals, &raw mut info, &raw const time), libc::SIGUSR1);
        assert_eq!(info.si_value().sival_ptr as usize, 77);
        passed("a timer with a signal", 50);
        let time = libc::timespec { tv_sec: 0, tv_nsec: 60_000_000 };
        assert_eq!(libc::sigtimedwait(&raw const signals, &raw mut info, &raw const time), -1);
        passed("a signal that does not come", 60);
        let begun = Instant::now();
        while begun.elapsed() < 5 * MS {
            libc::sched_yield();
        }
    }
    eprintln!("all waits are right");
    std::process::exit(5);
}

/// Asks for its own scheduling.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_asks_for_itself() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    assert_eq!(std::thread::available_parallelism().unwrap().get(), 8, "the machine's CPUs");
    // SAFETY: system calls on structures that live as long as they take.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(5, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
        let mut found: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&found), &raw mut found), 0);
        assert!(libc::CPU_EQUAL(&cpus, &found));
        let mut none: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(8, &mut none);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&none), &raw const none), -1, "there is no CPU 8");
        let parameters = libc::sched_param { sched_priority: 7 };
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters), 0);
        assert_eq!(libc::sched_getscheduler(0), libc::SCHED_FIFO);
        assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 0, -20), 0);
        assert_eq!(libc::getpriority(libc::PRIO_PROCESS, 0), -20);
        let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all), 0);
        assert_eq!(libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE), 0);
        assert_eq!(libc::sched_getcpu(), 5, "where it bound itself, and where a program runs that it runs");
        let mut random = 0u64;
        libc::getrandom((&raw mut random).cast(), 8, 0);
        eprintln!("{random:x}");
    }
    std::process::exit(5);
}

fn live_trial(loader: &str) -> Result<(Outcome, Vec<Event>), SimulationError> {
    live_trial_and_words(loader).0
}

/// The same, and what the loader printed.
fn live_trial_and_words(loader: &str) -> (Result<(Outcome, Vec<Event>), SimulationError>, String) {
    let kernel = TargetKernel::new("7.2.0-test", "CONFIG_HZ=250\n", &types::kernel(&FUNCTIONS).0).unwrap();
    let program = std::env::current_exe().unwrap();
    let arguments = arguments_for(loader);
    let (machine, workload) = (machine(), workload("spin:-n12,-d1s"));
    let timeout = Duration::from_secs(60);
    let files = MachineFiles::new(&machine, &kernel).unwrap();
    let request = CaptureRequest {
        program: &program,
        arguments: &arguments,
        machine: &machine,
        kernel: &kernel,
        timeout,
        files: files.path(),
        paths: Paths::default(),
        counts_memory: true,
    };
    let attached = start(&request, || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    let output = Rc::clone(&attached.output);
    let scheduler = Bytecode::live(&attached.capture.object, attached.host, Box::new(attached.loader), 7, false);
    let setup = Setup::new(&machine, &workload, 7).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let result = bytecode_trial(scheduler, &setup, Some(&mut events));
    let words = output.borrow_mut().text();
    (result.map(|(outcome, _)| (outcome, events)), words)
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
    for (loader, words) in [
        ("loader_that_leaves", "I have had enough"),
        ("loader_that_reads_the_accounts", "the accounts are right"),
        ("loader_that_waits_in_every_way", "all waits are right"),
    ] {
        match live_trial(loader) {
            Err(SimulationError::Ejected { reason, .. }) => {
                assert!(reason.contains("it has ended") && reason.contains(words), "{reason}");
            }
            other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
        }
    }
}

#[test]
fn a_loader_that_detaches_its_scheduler_reads_that_it_is_gone_and_the_run_ends_there() {
    skip!(unless can_answer());
    for (loader, words) in [
        ("loader_that_closes_its_link", "its link is closed"),
        ("loader_that_detaches_its_link", "its link is detached"),
    ] {
        match live_trial(loader) {
            Err(SimulationError::Ejected { reason, .. }) => {
                assert!(reason.contains("it has detached its scheduler") && reason.contains(words), "{reason}");
            }
            other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
        }
    }
}

#[test]
fn a_loader_sees_that_its_scheduler_was_ejected_when_it_looks_again_and_the_reason_is_the_ejection() {
    skip!(unless can_answer());
    let (result, words) = live_trial_and_words("loader_whose_scheduler_is_ejected");
    match result {
        Err(SimulationError::Ejected { reason, .. }) => assert!(!reason.contains("the loader"), "{reason}"),
        other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
    }
    assert!(words.contains(&format!("it is ejected: {AFTERWARDS}")), "{words}");
}

#[test]
fn runs_are_the_same_where_several_threads_of_a_loader_decide_at_the_same_instants() {
    skip!(unless can_answer());
    let first = live_trial("loader_with_threads_that_decide").unwrap().1;
    assert_eq!(live_trial("loader_with_threads_that_decide").unwrap().1, first);
}

#[test]
fn what_a_loader_asks_for_itself_is_answered_by_the_machine_and_the_same_each_time() {
    skip!(unless can_answer());
    let said = || match live_trial("loader_that_asks_for_itself") {
        Err(SimulationError::Ejected { reason, .. }) => reason,
        other => panic!("{:?}", other.map(|(outcome, _)| outcome.elapsed_ns)),
    };
    let first = said();
    assert!(first.contains("it has ended") && !first.contains("panicked"), "{first}");
    assert_eq!(said(), first);
}
