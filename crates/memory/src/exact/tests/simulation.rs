use warmcore_topology::{CpuId, LlcId, resolve};

use super::tiny_machine;
use crate::exact::lanes::InstructionSet;
use crate::exact::{ClassCounters, ExactError, LlcFill, Options, Simulation, TaskCounters, TaskSpec};
use crate::profile::{Class, ClassKind, Profile, Sharing};

fn profile(classes: Vec<Class>) -> Profile {
    Profile::new("p", 0.5, 2.0, classes)
}

fn shared(name: &str, bytes: u64, touches: f64, writes: f64) -> Class {
    Class { sharing: Sharing::Process, ..Class::new(name, bytes, touches, writes) }
}

fn spec(classes: Vec<Class>) -> TaskSpec {
    TaskSpec { profile: profile(classes), process: 0, data_group: None }
}

fn scan(bytes: u64, touches: f64) -> Class {
    Class { kind: ClassKind::Scan, ..Class::new("scan", bytes, touches, 0.2) }
}

/// Several tasks with private and shared classes on all CPUs of a small machine.
fn mixed(options: Options, shape: &str) -> Simulation {
    let machine = tiny_machine(shape);
    let specs = machine.cpus().map(|cpu| {
        spec(vec![
            Class::new("small", 512, 0.08, 0.3),
            Class::new("large", 20_000 + 5_000 * u64::from(cpu.0), 0.02, 0.5),
            scan(9_000, 0.005),
            shared("shared", 6_000, 0.02, 0.3),
        ])
    });
    let mut simulation = Simulation::new(&machine, options, specs.collect()).unwrap();
    for cpu in machine.cpus() {
        simulation.place(cpu.index(), Some(cpu)).unwrap();
    }
    simulation
}

fn all_counters(simulation: &Simulation) -> Vec<TaskCounters> {
    (0..simulation.task_count()).map(|task| simulation.counters(task)).collect()
}

const FILLS: [LlcFill; 4] = [LlcFill::Inclusive, LlcFill::FillBoth, LlcFill::Victim, LlcFill::Exclusive];

#[test]
fn the_number_of_threads_and_the_instruction_set_change_nothing() {
    let run = |threads: usize, instruction_set: InstructionSet, llc_fill: LlcFill| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let options = Options { instruction_set, llc_fill: Some(llc_fill), ..Options::default() };
            let mut simulation = mixed(options, "2s1n2l2c2t");
            simulation.run_for(60_000);
            (all_counters(&simulation), simulation.node_traffic(), simulation.llc_occupancy(LlcId(1)))
        })
    };
    for fill in FILLS {
        let expected = run(1, InstructionSet::Portable, fill);
        assert_eq!(run(2, InstructionSet::Portable, fill), expected);
        for set in InstructionSet::available() {
            assert_eq!(run(2, set, fill), expected, "{set:?}");
        }
    }
}

#[test]
fn events_are_conserved_and_directories_hold_after_every_quantum() {
    for fill in FILLS {
        for follow_migrations in [false, true] {
            let mut simulation =
                mixed(Options { llc_fill: Some(fill), follow_migrations, ..Options::default() }, "2s1n2l2c1t");
            for _ in 0..60 {
                simulation.run_for(500);
                simulation.check();
            }
            let mut memory_reads = 0;
            for counters in all_counters(&simulation) {
                let total = counters.total();
                let served =
                    total.l2_hits + total.llc_hits + total.same_llc_transfers + total.upgrades + total.llc_misses();
                assert_eq!(served, total.l1_misses, "{fill:?}");
                memory_reads += total.dram_local + total.dram_remote;
            }
            let traffic: u64 = simulation.node_traffic().iter().map(|node| node.reads).sum();
            assert!(traffic >= memory_reads && traffic <= memory_reads + memory_reads / 3, "{traffic} {memory_reads}");
        }
    }
}

#[test]
fn a_task_does_exactly_the_work_it_is_given() {
    let machine = tiny_machine("1s1n1l2c1t");
    let class = Class::new("c", 4_096, 0.125, 0.0);
    let mut simulation = Simulation::new(&machine, Options::default(), vec![spec(vec![class])]).unwrap();
    simulation.place(0, Some(CpuId(1))).unwrap();
    simulation.set_work(0, 100_000.0);
    simulation.run_for(10_000_000);
    assert!(simulation.is_done(0));
    assert_eq!(simulation.counters(0).instructions, 100_000.0);
}

#[test]
fn time_is_core_time_plus_stalls() {
    // Everything misses L1 and hits L2: 0.5 cycles per instruction, and 0.1 misses of 2 ns, half of them overlapped.
    let machine = tiny_machine("1s1n1l1c1t");
    let class = Class { kind: ClassKind::Scan, ..Class::new("c", 2_048, 0.1, 0.0) };
    let mut simulation = Simulation::new(&machine, Options::default(), vec![spec(vec![class])]).unwrap();
    simulation.place(0, Some(CpuId(0))).unwrap();
    simulation.run_for(100_000);
    let before = simulation.counters(0);
    simulation.run_for(1_000_000);
    let counters = simulation.counters(0).since(&before);
    let frequency = simulation.hierarchy().frequency_ghz;
    // Hashed sets: a few lines of the scan may hit, or miss L2.
    let expected = 0.5 + 0.1 * 2.0 / 2.0 * frequency;
    let found = counters.cycles_per_instruction(frequency);
    assert!((found / expected - 1.0).abs() < 0.1, "{found}, not {expected}");
    let core_fs = counters.busy_fs - counters.stall_fs;
    assert!((core_fs as f64 * 1e-6 * frequency / counters.instructions - 0.5).abs() < 1e-3);
}

#[test]
fn a_task_returns_to_warm_caches_and_finds_them_cold_elsewhere() {
    let machine = tiny_machine("2s1n1l2c1t");
    let options = Options { follow_migrations: true, ..Options::default() };
    let specs = vec![spec(vec![Class::new("c", 3_000, 0.1, 0.3)])];
    let mut simulation = Simulation::new(&machine, options, specs).unwrap();
    let mut step = |cpu: Option<u32>| {
        simulation.place(0, cpu.map(CpuId)).unwrap();
        let before = simulation.counters(0);
        simulation.run_for(20_000);
        simulation.check();
        simulation.counters(0).since(&before).total()
    };
    let cold = step(Some(0));
    assert_eq!(cold.dram_local, 47);
    let warm = step(Some(0));
    assert_eq!(warm.llc_misses(), 0);
    step(None);
    let back = step(Some(0));
    assert_eq!(back.llc_misses(), 0);
    let away = step(Some(2));
    // Everything is fetched from the caches of the old domain, nothing from memory.
    assert_eq!((away.dram_local + away.dram_remote, away.cross_reads() + away.cross_rfos() >= 47), (0, true));
    let home_again = step(Some(0));
    assert!(home_again.cross_reads() + home_again.cross_rfos() >= 10, "{home_again:?}");
}

#[test]
fn first_touch_puts_pages_where_the_task_runs() {
    let machine = resolve("spr32").unwrap();
    let specs = vec![spec(vec![Class::new("c", 512 << 20, 0.01, 0.0)])];
    let mut simulation = Simulation::new(&machine, Options::default(), specs).unwrap();
    simulation.place(0, Some(CpuId(40))).unwrap();
    simulation.run_for(100_000);
    let total = simulation.counters(0).total();
    assert!(total.dram_local > 1_000 && total.dram_remote == 0, "{total:?}");
    assert_eq!(simulation.node_traffic()[0].reads, 0);
}

#[test]
fn impossible_placements_are_refused() {
    let machine = tiny_machine("1s1n1l2c1t");
    let class = || vec![Class::new("c", 4_096, 0.1, 0.0)];
    let mut simulation = Simulation::new(&machine, Options::default(), vec![spec(class()), spec(class())]).unwrap();
    simulation.place(0, Some(CpuId(0))).unwrap();
    assert!(matches!(simulation.place(1, Some(CpuId(0))), Err(ExactError::Occupied { other: 0, .. })));
    assert!(matches!(simulation.place(1, Some(CpuId(2))), Err(ExactError::NoCpu { .. })));
    assert!(matches!(simulation.place(0, Some(CpuId(1))), Err(ExactError::NotFollowed { task: 0 })));
    assert!(matches!(Simulation::new(&machine, Options::default(), vec![]), Err(ExactError::NoTasks)));
}

#[test]
fn impossible_tasks_are_refused() {
    let machine = tiny_machine("1s1n1l2c1t");
    let error = |class: Class| Simulation::new(&machine, Options::default(), vec![spec(vec![class])]).err().unwrap();
    let data = Class { sharing: Sharing::Data(None), ..Class::new("c", 64, 0.1, 0.0) };
    assert!(matches!(error(data), ExactError::NoGroup { .. }));
    let huge = Class::new("c", 100 << 30, 0.1, 0.0);
    assert!(error(huge).to_string().contains("can be distinguished"));
    let homes = Class { home: crate::profile::Home::Shares(vec![0.5, 0.5]), ..Class::new("c", 64, 0.1, 0.0) };
    assert!(matches!(error(homes), ExactError::HomeNodes { given: 2, nodes: 1, .. }));
    let nan = Class::new("c", 64, f64::NAN, 0.0);
    assert!(matches!(error(nan), ExactError::Profile(_)));
}

#[test]
fn caches_for_which_there_is_no_room_are_refused_with_the_limit() {
    let text = "name = \"m\"\n[topology]\norigin = \"given\"\nshape = \"1s1n1l2c1t\"\n\
                [[cache]]\nlevel = 3\norigin = \"given\"\nsize = \"1024GiB\"\nways = 16\n";
    let machine = warmcore_topology::from_toml(text).unwrap();
    let options = Options::default();
    let specs = || vec![spec(vec![Class::new("small", 512, 0.08, 0.3)])];
    let error = Simulation::new(&machine, options, specs()).err().unwrap().to_string();
    assert!(error.contains("the exact level has room for 1073741824, which is 64 GiB"), "{error}");
}

/// Threads of one core have one L1 and one L2: no other core under their LLC has a line to give them.
#[test]
fn siblings_take_nothing_from_another_core() {
    let machine = tiny_machine("1s1n1l2c2t");
    let siblings: Vec<CpuId> = machine.cpus().filter(|cpu| machine.core_of(*cpu).index() == 0).collect();
    for fill in FILLS {
        let classes = || spec(vec![shared("shared", 4_096, 0.1, 0.5)]);
        let options = Options { llc_fill: Some(fill), ..Options::default() };
        let mut simulation = Simulation::new(&machine, options, vec![classes(), classes()]).unwrap();
        for (task, cpu) in siblings.iter().enumerate() {
            simulation.place(task, Some(*cpu)).unwrap();
        }
        simulation.run_for(200_000);
        let total = all_counters(&simulation).iter().fold(ClassCounters::default(), |sum, of| sum.plus(&of.total()));
        let served = total.l2_hits + total.llc_hits + total.dram_local;
        assert!(total.llc_hits > 100, "{fill:?} {total:?}");
        assert_eq!((total.same_llc_transfers, total.upgrades, served), (0, 0, total.l1_misses), "{fill:?}");
    }
}
