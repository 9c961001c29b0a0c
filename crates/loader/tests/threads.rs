//! Threads of a loader as tasks of the run: they wait for a CPU, take the time that what they do takes, and are scheduled as they ask to be.
#![cfg(target_arch = "x86_64")]

#[path = "../../bpf/tests/assembler/mod.rs"]
mod assembler;
mod loaders;
mod types;

use std::time::{Duration, Instant};

use assembler::*;
use loaders::*;
use warmcore_kernel::Setup;
use warmcore_loader::{CaptureRequest, LoaderPrices, MachineFiles, Paths, TargetKernel, start};
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_testing::skip;
use warmcore_trace::{BackgroundOutcome, Outcome};

const MS: Duration = Duration::from_millis(1);

/// What a turn and a call take, in ns, as they are told.
const TURN_NS: u64 = 10_000;
const CALL_NS: u64 = 500;

/// From the moment the scheduler is attached until the run begins, and the task is there.
fn until_the_run() {
    std::thread::sleep(1001 * MS);
}

/// Sleeps so often for 1 ms; how long each took, in µs.
fn sleeps(count: usize) -> Vec<u128> {
    let sleep = |_| {
        let begun = Instant::now();
        std::thread::sleep(MS);
        begun.elapsed().as_micros()
    };
    (0..count).map(sleep).collect()
}

fn bind_to(cpu: usize) {
    // SAFETY: a system call on a structure that lives as long as it takes.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
    }
}

fn for_ever() -> ! {
    loop {
        std::thread::sleep(1_000_000 * MS);
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_sleeps() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    until_the_run();
    loop {
        std::thread::sleep(MS);
    }
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_binds_itself() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    until_the_run();
    let free = sleeps(20);
    bind_to(0);
    let bound = sleeps(20);
    eprintln!("free {} bound {}", free.iter().max().unwrap(), bound.iter().sum::<u128>());
    for_ever();
}

#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_yields() {
    attach(&[init(), select_cpu(), enqueue(), dispatch()]);
    until_the_run();
    loop {
        std::thread::yield_now();
    }
}

/// `enqueue` of a scheduler in user space: it is told the number of each task but those of its own process, which go into the shared queue.
fn enqueue_in_user_space(queued: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    const PUSH: i32 = 87;
    let program = vec![
        load_double(6, 1, 0),
        load_double(7, 1, 8),
        load(4, 8, 6, 24),
        load(4, 5, 6, 28),
        code(0x55, 5, 0, 6, std::process::id() as i32),
        mov(1, 6),
        mov_imm(2, SHARED),
        mov_imm(3, SLICE),
        mov(4, 7),
        kfunc("scx_bpf_dsq_insert"),
        exit(),
        code(0x63, 10, 8, -4, 0),
        code(0x18, 1, 1, 0, queued as i32),
        code(0, 0, 0, 0, 0),
        mov(2, 10),
        add_imm(2, -4),
        mov_imm(3, 0),
        helper(PUSH),
        exit(),
    ];
    (8, "enqueue", program)
}

/// `dispatch` of it: its own task first, then the one that it has said.
fn dispatch_of_user_space(said: i64) -> (usize, &'static str, Vec<[u8; 8]>) {
    const POP: i32 = 88;
    let [low, high] = wide(2, LOCAL);
    let program = vec![
        mov_imm(1, SHARED),
        kfunc("scx_bpf_dsq_move_to_local"),
        code(0x55, 0, 0, 15, 0),
        code(0x18, 1, 1, 0, said as i32),
        code(0, 0, 0, 0, 0),
        mov(2, 10),
        add_imm(2, -4),
        helper(POP),
        code(0x55, 0, 0, 9, 0),
        load(4, 1, 10, -4),
        kfunc("bpf_task_from_pid"),
        code(0x15, 0, 0, 6, 0),
        mov(1, 0),
        low,
        high,
        mov_imm(3, SLICE),
        mov_imm(4, 0),
        kfunc("scx_bpf_dsq_insert"),
        exit(),
    ];
    (16, "dispatch", program)
}

/// Looks once a millisecond for tasks, and says the same ones.
#[test]
#[ignore = "a loader that the other tests start"]
fn loader_that_schedules() {
    const QUEUE: u32 = 22;
    const POP: i32 = 21;
    const PUSH: i32 = 2;
    assert_eq!(std::process::id(), 500, "its number in the simulated kernel");
    let [queued, said] = [(); 2].map(|()| create_map(QUEUE, 0, 4, 64));
    attach(&[init(), enqueue_in_user_space(queued), dispatch_of_user_space(said)]);
    loop {
        let mut task = [0; 4];
        while element(POP, queued, &[], &mut task) == 0 {
            assert_eq!(element(PUSH, said, &[], &mut task), 0);
        }
        std::thread::sleep(MS);
    }
}

/// A run with a loader whose threads are tasks or are not, and what it printed.
fn trial(loader: &str, machine: &str, spinners: u32, tasks: bool) -> (Outcome, String) {
    let kernel = TargetKernel::new("7.2.0-test", "CONFIG_HZ=250\n", &types::kernel(&FUNCTIONS).0).unwrap();
    let program = std::env::current_exe().unwrap();
    let arguments = arguments_for(loader);
    let machine = warmcore_topology::resolve(machine).unwrap();
    let workload = workload(&format!("spin:-n{spinners},-d1s"));
    let files = MachineFiles::new(&machine, &kernel).unwrap();
    let request = CaptureRequest {
        program: &program,
        arguments: &arguments,
        machine: &machine,
        kernel: &kernel,
        timeout: Duration::from_secs(60),
        files: files.path(),
        paths: Paths::default(),
        counts_memory: true,
    };
    let attached = start(&request, || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    let scheduler = Bytecode::live(&attached.capture.object, attached.host, Box::new(attached.loader), 7, false);
    let scheduler = if tasks { scheduler.with_threads() } else { scheduler };
    let mut setup = Setup::new(&machine, &workload, 7).unwrap();
    setup.check_invariants = true;
    let (outcome, _) = bytecode_trial(scheduler, &setup, None).unwrap();
    let words = attached.output.borrow_mut().text();
    (outcome, words)
}

fn loader_of(outcome: &Outcome) -> &BackgroundOutcome {
    outcome.background.last().expect("a row of the loader")
}

/// What a turn of the loader's takes at most besides what it is priced at, in ns: two switches, and the tick or wakeup that meets it.
const BESIDES_NS: u64 = 10_000;

#[test]
fn a_thread_that_sleeps_a_millisecond_on_a_busy_cpu_has_a_turn_after_each_slice_and_takes_its_price() {
    skip!(unless can_answer());
    let told = LoaderPrices.to_string();
    assert_eq!(told, "a turn takes 10 µs, a system call 0.5 µs, a record of a ring buffer 1 µs (assumed)");
    let (outcome, _) = trial("loader_that_sleeps", "1s1n1l1c1t", 1, true);
    let row = loader_of(&outcome);
    // A slice of 20 ms ends at the tick of 4 ms after it: 24 ms, less what the turn took of the first of those ticks.
    assert!((41..=50).contains(&row.wakeups), "{}", row.wakeups);
    // Woken for the last time, it may still wait.
    let price_ns = TURN_NS + CALL_NS;
    let turns = row.wakeups - 1..=row.wakeups;
    assert!((turns.start() * price_ns..=turns.end() * (price_ns + BESIDES_NS)).contains(&row.cpu_time_ns), "{row:?}");
    let of_workload: u64 = outcome.tasks.iter().map(|task| task.cpu_time_ns).sum();
    assert_eq!(of_workload + row.cpu_time_ns + outcome.cpus[0].idle_ns, outcome.elapsed_ns, "nobody else is there");
    assert!(outcome.cpus[0].idle_ns < 10_000, "{}", outcome.cpus[0].idle_ns);
    // On a machine with an idle CPU it has about 990 turns; without tasks there is no row.
    let (outcome, _) = trial("loader_that_sleeps", "1s1n1l2c1t", 1, true);
    let row = loader_of(&outcome);
    assert!((960..=999).contains(&row.wakeups), "{}", row.wakeups);
    let (outcome, _) = trial("loader_that_sleeps", "1s1n1l1c1t", 1, false);
    assert!(outcome.background.is_empty());
}

#[test]
fn a_thread_that_binds_itself_to_a_busy_cpu_waits_there_though_another_is_idle() {
    skip!(unless can_answer());
    let (_, words) = trial("loader_that_binds_itself", "1s1n1l2c1t", 1, true);
    let said = words.split("free").nth(1).unwrap_or_else(|| panic!("{words}"));
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let [longest_free, all_bound] = [(); 2].map(|()| numbers.next().unwrap_or_else(|| panic!("{words}")));
    assert!((1000..1100).contains(&longest_free), "{longest_free} µs for 1 ms on an idle CPU");
    // The spinner is on one of the two: bound to it, 20 sleeps take 20 slices; bound to the other, they take what they took before.
    assert!((20_000..22_000).contains(&all_bound) || (400_000..500_000).contains(&all_bound), "{all_bound}");
}

#[test]
fn a_thread_that_yields_gives_its_cpu_away_each_time_and_uses_it_up_where_nobody_else_wants_it() {
    skip!(unless can_answer());
    let (outcome, _) = trial("loader_that_yields", "1s1n1l1c1t", 1, true);
    let row = loader_of(&outcome);
    // A turn after each slice of the spinner, of a call and two switches.
    assert!(row.cpu_time_ns < 50 * (CALL_NS + BESIDES_NS) + TURN_NS, "{row:?}");
    let (outcome, _) = trial("loader_that_yields", "1s1n1l2c1t", 1, true);
    assert!(loader_of(&outcome).cpu_time_ns > 990_000_000, "{:?}", outcome.background);
}

#[test]
fn a_scheduler_in_user_space_is_known_by_its_number_and_decides_only_when_it_has_a_cpu() {
    skip!(unless can_answer());
    let run = || trial("loader_that_schedules", "1s1n1l1c1t", 2, true).0;
    let outcome = run();
    let idle_ns = outcome.cpus[0].idle_ns;
    // Two spinners in turns of 24 ms: one of them always waits, and who comes is the one that was said while the other ran.
    let shares: Vec<u64> = outcome.tasks.iter().map(|task| task.cpu_time_ns / 1_000_000).collect();
    assert!(shares.iter().all(|share| (450..520).contains(share)), "{shares:?}");
    assert!(idle_ns < 60_000_000, "{idle_ns}");
    assert!(loader_of(&outcome).wakeups > 20, "{:?}", outcome.background);
    assert_eq!(run().tasks, outcome.tasks, "and again");
}
