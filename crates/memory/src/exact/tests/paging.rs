//! Page tables between touches and caches, against what can be counted.

use warmcore_topology::{CpuId, Machine, from_toml, resolve};
use warmcore_trace::TimeShare;

use super::tiny_machine;
use crate::exact::cache::SetIndex;
use crate::exact::{ExactError, Live, LiveSpec, Options, PagingSpec, Share, Simulation, TaskCounters, TaskSpec};
use crate::profile::{Class, ClassKind, Home, Profile, Sharing};

const MS: u64 = 1_000_000;
const PAGE: u64 = 4096;

fn profile(classes: Vec<Class>) -> Profile {
    Profile::new("p", 1.0, 1.0, classes)
}

fn scan(pages: u64) -> Class {
    Class { kind: ClassKind::Scan, ..Class::new("scan", pages * PAGE, 0.1, 0.3) }
}

fn paged(paging: PagingSpec) -> Options {
    Options { paging: Some(paging), follow_migrations: true, ..Options::default() }
}

/// Tasks with these profiles on CPUs 0, 1, …, each of a process of its own, after a time.
fn run(machine: &Machine, options: Options, profiles: &[Profile], ns: u64) -> Simulation {
    let spec = |(process, profile): (usize, &Profile)| TaskSpec {
        profile: profile.clone(),
        process: process as u32,
        data_group: Some("g".into()),
    };
    let specs: Vec<TaskSpec> = profiles.iter().enumerate().map(spec).collect();
    let mut simulation = Simulation::new(machine, options, specs).unwrap();
    for task in 0..profiles.len() {
        simulation.place(task, Some(CpuId(task as u32))).unwrap();
    }
    simulation.run_for(ns);
    assert_eq!(simulation.exhausted(), None);
    simulation
}

fn touches(counters: &TaskCounters) -> u64 {
    counters.total().touches
}

#[test]
fn every_touch_walks_four_tables_and_the_first_one_of_a_page_faults() {
    let machine = tiny_machine("1s1n1l1c1t");
    let simulation = run(&machine, paged(PagingSpec::default()), &[profile(vec![scan(1000)])], 20 * MS);
    let counters = simulation.counters(0);
    assert!(touches(&counters) > 64_000, "the scan has been through all its pages");
    assert_eq!(counters.page_walks, touches(&counters));
    assert_eq!(counters.page_faults, 1000);
    // 1000 pages need two lowest tables, or three, and one of each level above; each entry is written once.
    let writes = counters.tables.touches - 4 * counters.page_walks;
    assert!((1004..=1005).contains(&writes), "{writes}");
}

#[test]
fn a_translation_buffer_that_holds_all_pages_walks_once_for_each() {
    let machine = tiny_machine("1s1n1l1c1t");
    let with = |tlb_entries| {
        let paging = PagingSpec { tlb_entries, ..PagingSpec::default() };
        run(&machine, paged(paging), &[profile(vec![scan(64)])], 10 * MS).counters(0)
    };
    let (small, large) = (with(16), with(64));
    assert_eq!((large.page_walks, large.page_faults), (64, 64));
    // A scan comes back to no page before all others.
    assert!(small.page_walks > 1000 && small.page_walks < touches(&small) / 32, "{}", small.page_walks);
    assert!(large.cycles_per_instruction(1.0) < small.cycles_per_instruction(1.0));
}

#[test]
fn time_is_split_whole_and_walks_have_a_share_of_their_own() {
    let machine = tiny_machine("2s1n2l2c1t");
    let shared = Class { sharing: Sharing::Data(None), ..Class::new("shared", 64 * PAGE, 0.05, 0.5) };
    let profiles = vec![profile(vec![scan(100), shared]); 8];
    let simulation = run(&machine, paged(PagingSpec::default()), &profiles, MS);
    for task in 0..8 {
        let counters = simulation.counters(task);
        assert_eq!(counters.share_fs.iter().sum::<u64>(), counters.busy_fs);
        let walks = counters.share_fs[TimeShare::PageWalks as usize];
        assert!(walks > counters.busy_fs / 50 && walks < counters.busy_fs, "{walks} of {}", counters.busy_fs);
    }
}

#[test]
fn a_walk_in_the_l1_takes_four_of_its_latencies() {
    let machine = resolve("1s1n1l1c1t").unwrap();
    let simulation =
        run(&machine, paged(PagingSpec::default()), &[profile(vec![Class::new("hot", 1024, 0.1, 0.0)])], MS);
    let counters = simulation.counters(0);
    let each = counters.share_fs[TimeShare::PageWalks as usize] as f64 / counters.page_walks as f64 / 1e6;
    let l1_ns = simulation.hierarchy().l1[0].latency_ns;
    assert!((each / (4.0 * l1_ns) - 1.0).abs() < 0.02, "{each} ns, {l1_ns}");
}

#[test]
fn without_page_tables_nothing_is_counted_about_them() {
    let machine = tiny_machine("1s1n1l1c1t");
    let simulation =
        run(&machine, Options { follow_migrations: true, ..Options::default() }, &[profile(vec![scan(10)])], MS);
    let counters = simulation.counters(0);
    assert_eq!((counters.page_walks, counters.page_faults, counters.tables.touches), (0, 0, 0));
    assert_eq!(counters.share_fs[TimeShare::PageWalks as usize], 0);
}

#[test]
fn pages_are_on_the_node_that_their_class_says() {
    let machine = tiny_machine("2s1n1l1c1t");
    let of = |home: Home| {
        let class = Class { home, ..scan(512) };
        let simulation = run(
            &machine,
            paged(PagingSpec { tlb_entries: 1024, ..PagingSpec::default() }),
            &[profile(vec![class])],
            5 * MS,
        );
        let counters = simulation.counters(0).total();
        counters.dram_remote as f64 / (counters.dram_local + counters.dram_remote) as f64
    };
    let bands =
        [(Home::FirstTouch, 0.0, 0.0), (Home::Interleave, 0.49, 0.51), (Home::Shares(vec![0.2, 0.8]), 0.75, 0.85)];
    for (home, low, high) in bands {
        let text = format!("{home:?}");
        let remote = of(home);
        assert!((low..=high).contains(&remote), "{text}: {remote}");
    }
}

#[test]
fn a_full_node_s_pages_go_to_the_next_and_when_all_are_full_nothing_runs() {
    let machine = tiny_machine("2s1n1l1c1t");
    let with = |node_pages: u64, pages: u64| {
        let paging = PagingSpec { node_bytes: Some(node_pages * PAGE), tlb_entries: 1024, ..PagingSpec::default() };
        let spec = TaskSpec { profile: profile(vec![scan(pages)]), process: 0, data_group: None };
        let mut simulation = Simulation::new(&machine, paged(paging), vec![spec]).unwrap();
        simulation.place(0, Some(CpuId(0))).unwrap();
        simulation.run_for(20 * MS);
        simulation
    };
    let spread = with(100, 150);
    assert_eq!(spread.exhausted(), None);
    // Four tables and 96 pages here, or a table more; the others there.
    let remote =
        spread.node_traffic()[1].reads as f64 / spread.node_traffic().iter().map(|node| node.reads).sum::<u64>() as f64;
    assert!((0.3..0.4).contains(&remote), "{remote}");
    let full = with(100, 200);
    assert_eq!(full.exhausted(), Some(&ExactError::MemoryFull { nodes: 2, page_bytes: PAGE }));
}

#[test]
fn impossible_pages_are_refused() {
    let machine = tiny_machine("1s1n1l1c1t");
    let refused = |paging: PagingSpec| {
        Live::new(&machine, paged(paging), &[]).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let with = |page_bytes| PagingSpec { page_bytes, ..PagingSpec::default() };
    assert!(refused(with(6000)).contains("write a power of two of at least 4096"));
    assert!(refused(with(2048)).contains("write a power of two of at least 4096"));
    let larger = PagingSpec { node_bytes: Some(1 << 20), ..with(2 << 20) };
    assert!(refused(larger).contains("a page of 2097152 bytes does not fit into the 1048576 bytes"));
    let tlb = PagingSpec { tlb_entries: 100, ..PagingSpec::default() };
    assert!(refused(tlb).contains("a translation buffer of 100 entries is impossible"));
    let sampled = Options { sampling_shift: 4, ..paged(PagingSpec::default()) };
    let spec = TaskSpec { profile: profile(vec![scan(1)]), process: 0, data_group: None };
    assert_eq!(Simulation::new(&machine, sampled, vec![spec]).err(), Some(ExactError::PagedSample));
}

#[test]
fn equal_seeds_give_equal_counters_with_any_number_of_threads() {
    let machine = tiny_machine("2s1n4l2c1t");
    let shared = Class { sharing: Sharing::Data(None), ..Class::new("shared", 64 * PAGE, 0.05, 0.5) };
    let profiles = vec![profile(vec![scan(50), shared]); 16];
    let of = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let simulation = run(&machine, paged(PagingSpec::default()), &profiles, MS / 2);
            (0..16).map(|task| simulation.counters(task)).collect::<Vec<TaskCounters>>()
        })
    };
    assert_eq!(of(1), of(2));
}

#[test]
fn what_must_hold_between_directories_and_caches_holds() {
    for index in [SetIndex::Hashed, SetIndex::LowBits] {
        for llc_fill in [crate::exact::LlcFill::Inclusive, crate::exact::LlcFill::Exclusive] {
            let machine = tiny_machine("2s1n1l2c1t");
            let shared = Class { sharing: Sharing::Data(None), ..Class::new("shared", 8 * PAGE, 0.05, 0.5) };
            let profiles = vec![profile(vec![scan(5), shared]); 4];
            let options = Options { index, llc_fill: Some(llc_fill), ..paged(PagingSpec::default()) };
            run(&machine, options, &profiles, MS / 10).check();
        }
    }
}

fn live(node_pages: u64, pages: u64) -> Live {
    let machine = from_toml("name = \"m\"\n[topology]\norigin = \"given\"\nshape = \"2s1n1l2c1t\"\n").unwrap();
    let paging = PagingSpec { node_bytes: Some(node_pages * PAGE), ..PagingSpec::default() };
    Live::new(&machine, paged(paging), &[profile(vec![scan(pages)])]).unwrap()
}

fn life(live: &mut Live, task: u32, from_ns: u64) -> Result<(), ExactError> {
    live.switch_in(CpuId(0), task);
    live.allot(CpuId(0), Share { idle_ns: 0, useful_ns: 10 * MS, instructions: f64::INFINITY });
    live.advance(from_ns + 10 * MS)?;
    live.done(CpuId(0));
    live.switch_out(CpuId(0));
    Ok(())
}

#[test]
fn frames_of_tasks_that_are_gone_are_given_out_again_and_tables_with_the_last_of_a_process() {
    // 120 pages and their tables at a time; twice as many do not fit.
    let mut live = live(70, 120);
    for number in 0..5 {
        let task = live.add_task(&LiveSpec { profile: 0, others: &[], process: number, data: &[] }).unwrap();
        life(&mut live, task, u64::from(number) * 10 * MS).unwrap();
        assert_eq!(live.counters(task).page_faults, 120.0);
        live.remove_task(task);
    }
    let tasks = [5, 6].map(|process| live.add_task(&LiveSpec { profile: 0, others: &[], process, data: &[] }).unwrap());
    life(&mut live, tasks[0], 50 * MS).unwrap();
    assert!(matches!(life(&mut live, tasks[1], 60 * MS), Err(ExactError::MemoryFull { .. })));
}

#[test]
fn pages_that_are_moved_are_where_they_were_moved_to() {
    let mut live = live(1000, 200);
    let task = live.add_task(&LiveSpec { profile: 0, others: &[], process: 0, data: &[] }).unwrap();
    life(&mut live, task, 0).unwrap();
    assert_eq!(live.counters(task).events[warmcore_trace::MemoryEvent::DramRemote as usize], 0.0);
    live.set_home(task, None, &[0.0, 1.0]);
    let before = live.counters(task);
    life(&mut live, task, 10 * MS).unwrap();
    let since = live.counters(task).since(&before);
    assert_eq!(since.events[warmcore_trace::MemoryEvent::DramLocal as usize], 0.0);
}
