//! What FreeBSD's own functions answered to drawn questions, and what the profiles `freebsd11` and `modern` answer.
//!
//! The functions of releases 11 and 14 of `sys/kern/sched_ule.c` were compiled by themselves; the data, and how they were made, are in
//! `results/2026-11-25-zen5-2vcpu-ule-freebsd14`. Where the original draws lots, the answer is the set of all that came up.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::str::FromStr;

use warmcore_kernel::Boot;
use warmcore_topology::{CpuId, Machine, resolve};
use warmcore_trace::TaskId;

use super::groups::{GroupId, Search, Wanted};
use super::interactivity::{Clock, History};
use super::pick_cpu::Seeker;
use super::profile::Reading;
use super::threads::{Position, Thread, Waits, should_preempt};
use super::usage::Usage;
use super::{Ule, UleTunables};

/// How often lots are drawn anew.
const DRAWS: u32 = 400;

/// A line of a file: the profile of its release, and its fields.
struct Line(Reading, Vec<String>);

impl Line {
    fn number<T: FromStr<Err: Debug>>(&self, field: usize) -> T {
        self.1[field].parse().unwrap()
    }

    fn bits(&self, field: usize) -> u64 {
        u64::from_str_radix(&self.1[field], 16).unwrap()
    }

    fn list(&self, field: usize) -> Vec<u32> {
        self.1[field].split('-').map(|number| number.parse().unwrap()).collect()
    }

    fn words(&self, field: usize) -> impl Iterator<Item = &str> {
        self.1[field].split_whitespace()
    }

    /// Numbers with a sign, of which -1 says none.
    fn cpu(&self, field: usize) -> Option<CpuId> {
        u32::try_from(self.number::<i32>(field)).ok().map(CpuId)
    }
}

/// The answers to the questions of a file.
macro_rules! answers {
    ($file:literal) => {
        (
            $file,
            include_str!(concat!("../../../../results/2026-11-25-zen5-2vcpu-ule-freebsd14/vectors/", $file, ".csv")),
        )
    };
}

fn lines(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (release, fields) = line.split_once(',').unwrap();
        let profile = if release == "14" { Reading::Modern } else { Reading::Freebsd11 };
        Line(profile, fields.split(',').map(str::to_owned).collect())
    };
    text.lines().skip(1).map(line).collect()
}

/// Compares every line, and names those that differ.
fn compare<T: PartialEq + Debug>((file, text): (&str, &str), mut both: impl FnMut(&Line) -> (T, T)) {
    let all = lines(text);
    let differ: Vec<String> = all
        .iter()
        .filter_map(|line| {
            let (ours, original) = both(line);
            (ours != original).then(|| format!("{:?} {:?}: ours {ours:?}, original {original:?}", line.0, line.1))
        })
        .collect();
    let shown = differ.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(!all.is_empty() && differ.is_empty(), "{} of {} of {file} differ:\n{shown}", differ.len(), all.len());
}

/// The policy of a profile on a machine, with accounting ticks of 127 Hz.
pub(super) fn ule_on(machine: &Machine, profile: Reading) -> Ule {
    let number = [Reading::Freebsd11, Reading::PaperPort, Reading::PaperText, Reading::Modern]
        .iter()
        .position(|known| *known == profile);
    let tunables = UleTunables { profile: number.unwrap() as u64, ..UleTunables::default() };
    let mut boot = Boot::new(machine);
    boot.kernel.hz = 127;
    Ule::new(tunables, &boot)
}

fn bit(cpu: CpuId) -> u64 {
    1 << cpu.0
}

#[test]
fn histories_are_trimmed_and_inherited_as_freebsd_does() {
    compare(answers!("history"), |line| {
        let clock = Clock { hz: line.number(0), stathz: 127 };
        let history = History { run: line.number(1), sleep: line.number(2) };
        let (mut trimmed, mut child) = (history, history);
        trimmed.trim(clock);
        child.cut_for_child(clock);
        let of = |run, sleep| History { run: line.number(run), sleep: line.number(sleep) };
        ((trimmed, child), (of(3, 4), of(5, 6)))
    });
}

#[test]
fn scores_and_priorities_are_freebsds() {
    let machine = resolve("1s1n1l1c1t").unwrap();
    compare(answers!("priority"), |line| {
        let mut ule = ule_on(&machine, line.0);
        ule.tunables.interact = line.number(0);
        let clock = ule.clock();
        let mut usage = Usage::starting_at(0);
        for word in line.words(4) {
            let (tick, ran) = word.split_once(':').unwrap();
            usage.update(tick.parse().unwrap(), ran == "1", clock);
        }
        let thread =
            Thread { history: History { run: line.number(2), sleep: line.number(3) }, usage, ..Thread::default() };
        ((ule.score(&thread), ule.priority_of(&thread, line.number(1))), (line.number(5), line.number(6)))
    });
}

#[test]
fn slices_are_freebsds() {
    compare(answers!("slice"), |line| {
        let model = super::Model::new(line.0, line.number(0));
        let mut queue = super::threads::CpuQueue::default();
        queue.load = line.number(1);
        (queue.slice_ticks(&model), line.number::<u32>(2))
    });
}

#[test]
fn preemption_is_freebsds() {
    compare(answers!("preempt"), |line| {
        let model = super::Model::new(line.0, 127);
        let remote = line.number::<u8>(3) == 1;
        (should_preempt(&model, line.number(0), line.number(1), line.number(2), remote), line.number::<u8>(4) == 1)
    });
}

/// Adds a thread that waits nowhere yet.
pub(super) fn new_thread(ule: &mut Ule, priority: u32) -> TaskId {
    let task = TaskId(ule.queues.threads.len() as u32);
    ule.queues.links.admit(task);
    ule.queues.threads.push(Thread { priority, ..Thread::default() });
    task
}

#[test]
fn the_calendar_turns_as_freebsds() {
    let machine = resolve("1s1n1l1c1t").unwrap();
    let cpu = CpuId(0);
    compare(answers!("calendar"), |line| {
        let mut ule = ule_on(&machine, line.0);
        let mut step = |word: &str| {
            let answer = match word.as_bytes()[0] {
                b't' => {
                    ule.queues.cpus[0].timeshare.tick();
                    "-".to_owned()
                }
                b'c' => {
                    let task = ule.queues.cpus[0].first().unwrap();
                    ule.queues.remove(cpu, task);
                    task.0.to_string()
                }
                kind => {
                    let task = new_thread(&mut ule, word[1..].parse().unwrap());
                    let position = if kind == b'h' { Position::Head } else { Position::Tail };
                    ule.queues.add(&ule.model, cpu, task, position);
                    match ule.queues.threads[task.index()].waits {
                        Waits::Realtime(bucket) | Waits::Timeshare(bucket) | Waits::Idle(bucket) => bucket.to_string(),
                        Waits::Nowhere => unreachable!(),
                    }
                }
            };
            let (insert, run) = ule.queues.cpus[0].timeshare.indices();
            format!("{answer}@{insert}.{run}")
        };
        let ours: Vec<String> = line.words(0).map(&mut step).collect();
        (ours, line.words(1).map(str::to_owned).collect())
    });
}

#[test]
fn the_thread_that_is_stolen_is_freebsds() {
    let machine = resolve("1s1n1l2c1t").unwrap();
    compare(answers!("steal"), |line| {
        let mut ule = ule_on(&machine, line.0);
        for _ in 0..line.number::<u32>(0) {
            ule.queues.cpus[0].timeshare.tick();
        }
        let mut may_move = Vec::new();
        for word in line.words(1) {
            let (bucket, may) = word.split_once(':').unwrap();
            let task = new_thread(&mut ule, 200);
            let queue = &mut ule.queues.cpus[0].timeshare.queue;
            queue.push_back(&mut ule.queues.links, bucket.parse().unwrap(), task);
            may_move.push(may == "1");
        }
        let queue = &ule.queues.cpus[0];
        let taken = queue.to_steal(&ule.queues.links, ule.model.first_stolen_last, |task| may_move[task.index()]);
        (taken.map(|task| task.0), u32::try_from(line.number::<i32>(2)).ok())
    });
}

#[test]
fn searches_find_the_cpus_that_freebsds_find() {
    compare(answers!("search"), |line| {
        let machine = resolve(&line.1[0]).unwrap();
        let mut ule = ule_on(&machine, line.0);
        let (loads, lowpri, transferable) = (line.list(3), line.list(4), line.list(5));
        let (allowed, limit) = (line.bits(6), line.number::<u32>(8));
        let cpus_of = |group: GroupId| ule.groups.group(group).cpus.iter().map(|&cpu| bit(cpu)).sum::<u64>();
        let group = machine
            .cpus()
            .flat_map(|cpu| ule.groups.outward(ule.groups.leaf(cpu)))
            .find(|&group| cpus_of(group) == line.bits(2))
            .expect("the trees are the same");
        let wanted = if line.1[1] == "least" { Wanted::Least } else { Wanted::Most };
        let (preferred, running) = (line.cpu(9), line.number::<u8>(10) == 1);
        let load = |cpu: CpuId| loads[cpu.index()];
        let admits = |cpu: CpuId| {
            let own = running && preferred == Some(cpu);
            let fits = match wanted {
                Wanted::Least => {
                    load(cpu) - u32::from(own) <= limit
                        && (own || i64::from(lowpri[cpu.index()]) > line.number::<i64>(7))
                }
                Wanted::Most => load(cpu) >= limit && transferable[cpu.index()] >= line.number::<u32>(7),
            };
            fits && allowed & bit(cpu) != 0
        };
        let rules = ule.model.search;
        let mut search = Search { groups: &ule.groups, load, admits, preferred, running, wanted, rules, visited: 0 };
        let found = (0..DRAWS).filter_map(|_| search.of(group, &mut ule.chance)).fold(0, |all, cpu| all | bit(cpu));
        (found, line.bits(11))
    });
}

#[test]
fn woken_threads_run_where_freebsds_do() {
    compare(answers!("pickcpu"), |line| {
        let machine = resolve(&line.1[0]).unwrap();
        let mut ule = ule_on(&machine, line.0);
        for (queue, (load, lowpri)) in ule.queues.cpus.iter_mut().zip(line.list(7).into_iter().zip(line.list(8))) {
            (queue.load, queue.lowpri) = (load, lowpri);
        }
        let seeker = Seeker {
            this_cpu: CpuId(line.number(1)),
            last: CpuId(line.number(2)),
            age: Some(line.number(3)),
            running: line.number::<u8>(4) == 1,
            priority: line.number(5),
        };
        let may = |cpu: CpuId| line.bits(6) & bit(cpu) != 0;
        let found = (0..DRAWS).fold(0, |all, _| all | bit(ule.search_cpu(seeker, &may).0));
        (found, line.bits(9))
    });
}

/// One thread runs on each CPU that has any, the others wait; the first ones of them are bound. The policy, and who is bound.
fn filled(machine: &Machine, profile: Reading, seed: u32, loads: &[u32], bound: &[u32]) -> (Ule, BTreeSet<TaskId>) {
    let mut ule = ule_on(machine, profile);
    ule.chance = super::Chance::new(u64::from(seed));
    let mut fixed = BTreeSet::new();
    for cpu in machine.cpus().filter(|cpu| loads[cpu.index()] > 0) {
        (ule.queues.cpus[cpu.index()].load, ule.queues.cpus[cpu.index()].lowpri) = (1, 200);
        for number in 1..loads[cpu.index()] {
            let task = new_thread(&mut ule, 200);
            if number <= bound[cpu.index()] {
                fixed.insert(task);
            }
            ule.give_one(cpu, task);
        }
    }
    (ule, fixed)
}

#[test]
fn idle_cpus_take_from_the_cpus_that_freebsds_take_from() {
    compare(answers!("idled"), |line| {
        let machine = resolve(&line.1[0]).unwrap();
        let (idle, loads, bound) = (CpuId(line.number(1)), line.list(2), line.list(3));
        let victims = |levels: Option<u32>| {
            (0..DRAWS).fold(0, |all, seed| {
                let (mut ule, fixed) = filled(&machine, line.0, seed, &loads, &bound);
                let near = if ule.model.tries_before_idle { ule.tunables.trysteal_limit as u32 } else { 0 };
                let levels = levels.unwrap_or(near);
                let mut from = CpuId(machine.cpu_count() as u32);
                ule.steal_within(idle, levels, &mut |ule, victim| {
                    let taken = ule.take_one(victim, &|task| !fixed.contains(&task));
                    from = if taken.is_some() { victim } else { from };
                    taken.is_some()
                });
                all | bit(from)
            })
        };
        ((victims(None), victims(Some(u32::MAX))), (line.bits(4), line.bits(5)))
    });
}

#[test]
fn passes_of_the_balancer_end_as_freebsds_do() {
    compare(answers!("balance"), |line| {
        let machine = resolve(&line.1[0]).unwrap();
        let pass = |seed| {
            let (mut ule, fixed) = filled(&machine, line.0, seed, &line.list(1), &line.list(2));
            let lone = ule.balance_pass(&mut |ule, giver, receiver| {
                if ule.load(giver) <= ule.load(receiver) {
                    return false;
                }
                let taken = ule.take_one(giver, &|task| !fixed.contains(&task));
                taken.is_some_and(|task| {
                    ule.give_one(receiver, task);
                    true
                })
            });
            let loads: Vec<String> = machine.cpus().map(|cpu| ule.load(cpu).to_string()).collect();
            format!("{}/{:x}", loads.join("-"), lone.map_or(0, bit))
        };
        let ours: BTreeSet<String> = (0..DRAWS).map(pass).collect();
        (ours, line.words(3).map(str::to_owned).collect())
    });
}
