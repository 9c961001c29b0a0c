//! Whether what `group` predicts of gathering groups has the sign that it has in truth.
//!
//! Truth is simulated: a mix whose threads work like a program and whose groups share data of a size. A recording of its free run tells
//! neither. Its groups are found in the recording, and gathering them is predicted from the replay twice: *told* the program and the size,
//! as counters of the threads would tell them, and *untold*, as if it were `mysql-select` with 512 KiB. The same groups are then gathered in
//! the mix itself. The whole takes a quarter of an hour and is run by hand: `scripts/gathering-signs`; a small part of it runs with the other
//! tests.

mod mixes;

use mixes::{Mix, recorded};
use warmcore_options::MemoryChoice;
use warmcore_places::place::BatchConduct;
use warmcore_replay::history::histories;
use warmcore_replay::workload::replay;
use warmcore_replay::{Graph, Groups, Overheads};
use warmcore_search::gathering::{GatheringGain, Members, Placing, gains};
use warmcore_workload::{TaskTemplateId, Workload};

/// What is assumed of every thread and group where nobody tells.
const ASSUMED: (&str, u64) = ("mysql-select", 512 << 10);
/// What the truth is drawn from.
const PROFILES: [&str; 6] = ["mysql-select", "hackbench", "schbench", "canneal", "mediawiki", "perlbench"];
const SHARED_KIB: [u64; 5] = [64, 256, 1024, 2048, 4096];
/// How long a group works: with memory, where a simulation takes long, and without.
const WORK_NS: [u64; 2] = [15_000_000, 100_000_000];
/// Changes that count.
const CHANGES: f64 = 0.02;
const SEEDS: [u64; 2] = [1, 2];

/// A placement of one mix on one machine: true and predicted ratio to free threads.
struct Cell {
    mix: u64,
    machine: &'static str,
    group: String,
    measure: &'static str,
    truth: f64,
    told: f64,
    untold: f64,
}

fn cells(mix: u64, name: &'static str, memory: MemoryChoice) -> Vec<Cell> {
    let machine = warmcore_topology::resolve(name).unwrap();
    let has_memory = memory != MemoryChoice::None;
    let planted = Mix::of_work(mix, WORK_NS[usize::from(!has_memory)]);
    let mut truth = planted.workload.clone();
    let profile = PROFILES[mix as usize % PROFILES.len()];
    let bytes = SHARED_KIB[mix as usize % SHARED_KIB.len()] << 10;
    for group in (1..=planted.groups()).filter(|_| has_memory) {
        let data = truth.add_data_group(format!("data-{group}"), bytes);
        for task in truth.tasks.iter_mut().filter(|task| planted.truth[&task.name] == group) {
            task.data_groups.push(data);
            task.profile = Some(profile.into());
        }
    }
    let (recording, chosen) = recorded(&truth, &machine, 7, memory);
    let histories = histories(&recording, &chosen, Some(&machine));
    let groups = Groups::of(&Graph::of(&recording, &chosen, &histories));
    let of = |of_thread: &dyn Fn(i32) -> Option<TaskTemplateId>| -> Vec<Members> {
        let members = |group: &warmcore_replay::ThreadGroup| {
            let cpu_ns: u64 = group.threads.iter().map(|thread| histories.threads[thread].cpu_ns).sum();
            let tasks = group.threads.iter().filter_map(|thread| of_thread(*thread)).collect();
            Members { tasks, busy_cpus_milli: cpu_ns * 1000 / histories.span_ns.max(1) }
        };
        groups.groups.iter().map(members).collect()
    };
    let of_truth = |thread: i32| {
        let name = &recording.threads[&thread].name;
        truth.tasks.iter().position(|task| task.name == *name).map(|index| TaskTemplateId(index as u32))
    };
    let conduct = BatchConduct { jobs: 2, stop: Default::default() };
    let gathered = |workload: &Workload, members: &[Members]| {
        gains(&machine, workload, members, &[Placing::Gathered], &SEEDS, memory, &conduct).unwrap()
    };
    let predicted = |(profile, bytes): (&str, u64)| {
        let mut made = replay("replay", &histories, &recording, Overheads::of(machine.costs()));
        made.keep_together(&groups, bytes, Some(profile).filter(|_| has_memory));
        gathered(&made.workload, &of(&|thread| made.tasks.get(&thread).copied()))
    };
    let (true_gains, told, untold) =
        (gathered(&truth, &of(&of_truth)), predicted((profile, bytes)), predicted(ASSUMED));
    let mut cells = Vec::new();
    for ((truth, told), untold) in true_gains.iter().zip(&told).zip(&untold) {
        assert!(truth.group == told.group && truth.group == untold.group);
        for measure in ["elapsed", "cpu_time"] {
            let group = truth.group.map_or("all".to_owned(), |group| (group + 1).to_string());
            let [truth, told, untold] = [truth, told, untold].map(|gain| ratio(gain, measure));
            cells.push(Cell { mix, machine: name, group, measure, truth, told, untold });
        }
    }
    cells
}

fn ratio(gain: &GatheringGain, measure: &str) -> f64 {
    let comparison = if measure == "elapsed" { &gain.elapsed } else { &gain.cpu_time };
    comparison.ratio.unwrap()
}

/// Of cells that change, how many there are and of how many the sign is predicted.
fn hits<'a>(cells: impl Iterator<Item = &'a Cell>, predicted: impl Fn(&Cell) -> f64) -> (usize, usize) {
    let changing: Vec<&Cell> = cells.filter(|cell| (cell.truth - 1.0).abs() > CHANGES).collect();
    let right = changing.iter().filter(|cell| (cell.truth > 1.0) == (predicted(cell) > 1.0)).count();
    (changing.len(), right)
}

#[test]
fn a_mix_has_its_groups_gathered_in_truth_and_in_its_replay() {
    let cells = cells(3, "2s1n2l4c1t", MemoryChoice::Analytic);
    assert!(cells.len() >= 8, "all groups together and each of several, by two measures: {}", cells.len());
    assert!(cells.iter().all(|cell| cell.truth.is_finite() && cell.told.is_finite() && cell.untold.is_finite()));
}

#[test]
#[ignore = "takes a quarter of an hour; scripts/gathering-signs"]
fn signs_of_all_mixes() {
    table(MemoryChoice::Analytic);
}

/// The same without memory on either side: what wakeups, queues and messages alone do.
#[test]
#[ignore = "takes some minutes; scripts/gathering-signs"]
fn signs_without_memory() {
    table(MemoryChoice::None);
}

fn table(memory: MemoryChoice) {
    let mut all = Vec::new();
    println!("mix\tmachine\tgroup\tmeasure\ttruth\ttold\tuntold");
    for mix in 0..20 {
        for machine in ["2s1n2l8c1t", "1s1n4l4c1t"] {
            let cells = cells(mix, machine, memory);
            for Cell { mix, machine, group, measure, truth, told, untold } in &cells {
                println!("{mix}\t{machine}\t{group}\t{measure}\t{truth:.4}\t{told:.4}\t{untold:.4}");
            }
            all.extend(cells);
        }
    }
    for measure in ["elapsed", "cpu_time"] {
        for (what, whole) in [("all groups together", true), ("each group alone", false)] {
            let of = || all.iter().filter(|cell| cell.measure == measure && (cell.group == "all") == whole);
            let (changing, told) = hits(of(), |cell| cell.told);
            let (_, untold) = hits(of(), |cell| cell.untold);
            println!(
                "# {measure}, {what}: {changing} cells change by more than 2 %; told, {told} have the predicted sign; untold, {untold}"
            );
        }
    }
}
