//! Instructions: what the L1 for instructions misses, by hand, at both levels.

mod levels;

use levels::{LEVELS, MS, close, run};
use warmcore_memory::analytic::{Counters, MemoryEvent, Player, TaskSpec, TimeShare};
use warmcore_memory::exact::address_trace::{Access, Record};
use warmcore_memory::exact::{Live, LiveSpec, Options, Replay, ThreadCounters};
use warmcore_memory::{Analytic, Class, ClassKind, Profile, Sharing};
use warmcore_topology::{CpuId, Machine, from_toml};

/// L1 caches for instructions: one set, in which every line pushes out the oldest of all, and sets of usual size.
const ONE_SET: &str = "[[cache]]\nlevel = 1\nkind = \"instruction\"\nsize = \"1KiB\"\nways = 16\n";
const EIGHT_WAYS: &str = "[[cache]]\nlevel = 1\nkind = \"instruction\"\nsize = \"32KiB\"\nways = 8\n";

/// Cores with 32 KiB of L1, 256 KiB of L2 of 5 ns and 2 MiB of L3 for each socket.
fn machine(shape: &str, l1i: &str) -> Machine {
    from_toml(&format!(
        "name = \"m\"\n[topology]\nshape = \"{shape}\"\n\
         [[cache]]\nlevel = 1\nsize = \"32KiB\"\nways = 8\nlatency_ns = 1.5\n{l1i}\
         [[cache]]\nlevel = 2\nshared_by = \"core\"\nsize = \"256KiB\"\nways = 8\nlatency_ns = 5.0\n\
         [[cache]]\nlevel = 3\nsize = \"2MiB\"\nways = 16\nlatency_ns = 20.0\n\
         [frequency]\nnominal_mhz = 2500\n[memory]\nlocal_ns = 100\n"
    ))
    .unwrap()
}

/// A program with 8 KiB of data, which fit the L1, and this code.
fn program(code: Class) -> Profile {
    Profile::new("p", 0.5, 4.0, vec![Class::new("data", 8 << 10, 0.1, 0.3), code])
}

fn code(kib: u64) -> Class {
    Class::of_code("code", kib << 10, 0.05)
}

/// Code walked from its beginning to its end and again.
fn walked(lines: u64) -> Class {
    Class { kind: ClassKind::Scan, sharing: Sharing::Private, ..Class::of_code("loop", lines * 64, 0.05) }
}

fn l1i(counters: &Counters) -> f64 {
    counters.per_kilo_instruction(MemoryEvent::L1iMiss)
}

/// A loop longer than a cache that gives up the oldest line misses all of its lines, a shorter one none: 50 fetches per 1000
/// instructions, or nothing. Each of these takes 5 ns of the L2, undivided, next to 0.2 ns of an instruction.
#[test]
fn a_loop_longer_than_the_cache_misses_every_line_and_a_shorter_one_none() {
    // In the mean lines fall into sets by chance: in twice the cache a set in a hundred has fewer lines than ways, in an
    // eighth all have.
    for (level, caches, lines, part) in
        [(LEVELS[0], EIGHT_WAYS, [1024, 64], 0.015), (LEVELS[1], ONE_SET, [24, 12], 0.01)]
    {
        let on = |lines| level(&machine("1s1n1l1c1t", caches), &program(walked(lines)), &[(0, 0)], 4 * MS, 2 * MS)[0];
        let [longer, shorter] = lines.map(on);
        close(l1i(&longer), 50.0, part);
        close(longer.per_kilo_instruction(MemoryEvent::L2Access), 50.0, 0.02);
        assert!(longer.per_kilo_instruction(MemoryEvent::L1Miss) < 0.1);
        close(longer.time_ns[TimeShare::L2 as usize] / longer.instructions, 0.05 * 5.0, 0.02);
        close(longer.total_ns() / longer.instructions, 0.2 + 0.05 * 5.0, 0.02);
        assert!(l1i(&shorter) < 0.001, "{}", l1i(&shorter));
        close(shorter.total_ns() / shorter.instructions, 0.2, 0.01);
    }
}

/// Uniform fetches of 128 KiB hit a cache of 32 KiB with a quarter: 37.5 of 50 miss. The L2 serves them, and data are not disturbed.
#[test]
fn uniform_fetches_hit_with_the_part_of_the_code_that_fits() {
    for level in LEVELS {
        let counters = level(&machine("1s1n1l1c1t", EIGHT_WAYS), &program(code(128)), &[(0, 0)], 20 * MS, 10 * MS)[0];
        close(l1i(&counters), 37.5, 0.01);
        assert!(counters.per_kilo_instruction(MemoryEvent::L1Miss) < 0.05);
        assert!(counters.per_kilo_instruction(MemoryEvent::L2Miss) < 0.5);
    }
}

/// Siblings of one process fetch the same lines: as in the cache alone. Those of two programs share it: half of it has an eighth of 128 KiB.
#[test]
fn threads_of_a_process_share_the_cache_of_their_core_and_processes_do_not() {
    let machine = machine("1s1n1l1c2t", EIGHT_WAYS);
    for level in LEVELS {
        let of = |processes: [u32; 2]| {
            let counters =
                level(&machine, &program(code(128)), &[(0, processes[0]), (1, processes[1])], 30 * MS, 10 * MS);
            (l1i(&counters[0]), counters[0].per_kilo_instruction(MemoryEvent::L2Miss))
        };
        let (threads, processes) = (of([0, 0]), of([0, 1]));
        close(threads.0, 37.5, 0.02);
        close(processes.0, 43.75, 0.02);
        // 128 KiB of code and 16 KiB of data fit the L2 of 256 KiB, twice the code does not quite.
        assert!(threads.1 < 0.6 && processes.1 > threads.1 + 0.3, "{threads:?} {processes:?}");
    }
}

/// 4 KiB of code are 64 lines, few enough for every set: that many are fetched on a core where they never were, and none after a return.
#[test]
fn a_migration_fetches_the_code_again() {
    let machine = machine("2s1n1l1c1t", EIGHT_WAYS);
    let profile = program(code(4));
    let mut live = Live::new(&machine, Options::default(), std::slice::from_ref(&profile)).unwrap();
    let task = live.add_task(&LiveSpec { profile: 0, others: &[], process: 0, data: &[] }).unwrap();
    let mut player = Player::new(&machine, std::slice::from_ref(&profile)).unwrap();
    player.add_task(&TaskSpec { profile: 0, process: 0, data: &[] });
    let (mut exact, mut mean, mut until) = (Vec::new(), Vec::new(), 0);
    for cpu in [0, 1, 0] {
        let before =
            [live.counters(task), player.counters(task)].map(|counters| counters.events[MemoryEvent::L1iMiss as usize]);
        live.switch_in(CpuId(cpu), task);
        player.switch_in(CpuId(cpu), task);
        until = run(&mut live, &[cpu], until, 2 * MS);
        player.advance(until);
        live.switch_out(CpuId(cpu));
        player.switch_out(CpuId(cpu));
        exact.push(live.counters(task).events[MemoryEvent::L1iMiss as usize] - before[0]);
        mean.push(player.counters(task).events[MemoryEvent::L1iMiss as usize] - before[1]);
    }
    for misses in [&exact, &mean] {
        close(misses[0], 64.0, 0.1);
        close(misses[1], 64.0, 0.1);
    }
    assert_eq!(exact[2], 0.0, "the first core's cache is as it was left: {exact:?}");
}

/// Without such a cache nothing is known of fetches, and code costs nothing at all.
#[test]
fn code_has_no_effect_on_a_machine_without_an_l1_for_instructions() {
    let with = program(code(128));
    let without = Profile { classes: with.classes[..1].to_vec(), ..with.clone() };
    for level in LEVELS {
        let counters = |profile| level(&machine("1s1n1l1c1t", ""), profile, &[(0, 0)], MS, MS)[0];
        assert_eq!(counters(&with), counters(&without));
    }
}

/// What a task executes in its present profile counts in the L1 that this profile says.
#[test]
fn misses_stay_with_their_cache_when_a_task_goes_on_with_another_profile() {
    let data = Class::new("more", 128 << 10, 0.05, 0.0);
    let profiles = [program(code(128)), Profile { name: "q".into(), ..program(data) }];
    let mut live = Live::new(&machine("1s1n1l1c1t", EIGHT_WAYS), Options::default(), &profiles).unwrap();
    let task = live.add_task(&LiveSpec { profile: 0, others: &[1], process: 0, data: &[] }).unwrap();
    live.switch_in(CpuId(0), task);
    let read = |live: &Live| {
        let counters = live.counters(task);
        [MemoryEvent::L1iMiss, MemoryEvent::L1Miss].map(|event| counters.events[event as usize])
    };
    let until = run(&mut live, &[0], 0, 2 * MS);
    let [fetched, _] = read(&live);
    live.set_profile(task, 1);
    let until = run(&mut live, &[0], until, 2 * MS);
    let [still, missed] = read(&live);
    assert_eq!(still, fetched);
    live.set_profile(task, 0);
    run(&mut live, &[0], until, 2 * MS);
    let [later, unchanged] = read(&live);
    assert!(
        fetched > 1e5 && later > 1.9 * fetched && unchanged < missed + 0.01 * fetched,
        "{fetched} {later} {missed} {unchanged}"
    );
}

/// Work that is measured on another machine is that of the whole program, also where this one shows no code: the machine without an L1
/// for instructions runs what the other does, instruction for instruction.
#[test]
fn work_measured_on_a_machine_with_code_is_that_of_the_whole_program() {
    let (with, without) = (machine("1s1n1l1c1t", EIGHT_WAYS), machine("1s1n1l1c1t", ""));
    let profiles = [program(code(128))];
    let nominal = |machine: &Machine| Analytic::new(machine, &profiles).unwrap().nominal_rate(0);
    assert!(nominal(&without) > 1.1 * nominal(&with), "fetches take time");
    let mut model = Analytic::new(&without, &profiles).unwrap();
    model.measure_work_on(&with, &profiles).unwrap();
    assert_eq!(model.nominal_rate(0), nominal(&with));
    let mut live = Live::new(&without, Options::default(), &profiles).unwrap();
    live.measure_work_on(&with, &profiles).unwrap();
    assert_eq!(live.nominal_rate(0), nominal(&with));
}

/// Counters of thread 0 after lines of an address trace, for each (an access, the first line, how many).
fn traced(shape: &str, accesses: &[(Access, u64, u64)]) -> ThreadCounters {
    let machine = machine(shape, EIGHT_WAYS);
    let cpus: Vec<CpuId> = machine.cpus().collect();
    let mut replay = Replay::new(&machine, &Options::default(), &cpus, 1 << 20).unwrap();
    for (access, first, lines) in accesses {
        for line in *first..first + lines {
            replay.access(Record { thread: 0, access: *access, address: line * 64, size: 4 }).unwrap();
        }
    }
    replay.counters()[0]
}

/// A trace's instructions pass the L1 for instructions only: of one line that is fetched, read, fetched and written, memory serves the
/// fetch, the L2 the read, and the L1s the rest; and 512 lines of code take nothing away from 64 lines of data.
#[test]
fn fetches_of_a_trace_do_not_touch_the_l1_for_data() {
    use Access::{Instruction, Read, Write};
    for shape in ["1s1n1l1c1t", "1s1n1l2c1t"] {
        let one = traced(shape, &[(Instruction, 5, 1), (Read, 5, 1), (Instruction, 5, 1), (Write, 5, 1)]);
        let events = one.events;
        let seen = (events.touches, events.l1_misses, events.l2_hits, events.dram_local);
        assert_eq!((one.instruction_misses, seen), (1, (3, 2, 1, 1)), "{shape}");
        let many = traced(shape, &[(Read, 0, 64), (Instruction, 1024, 512), (Read, 0, 64)]);
        let events = many.events;
        let seen = (events.touches, events.l1_misses, events.dram_local);
        assert_eq!((many.instruction_misses, seen), (512, (640, 576, 576)), "{shape}");
    }
}
