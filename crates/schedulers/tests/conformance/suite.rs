//! What any scheduler must do, whatever its policy: every task that can run runs in the end, only where it may, and as often as the kernel
//! counts; equal seeds give equal events. What a policy promises beyond that is for tests of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use warmcore_kernel::{Setup, SetupError, SimulationError};
use warmcore_topology::Machine;
use warmcore_trace::{End, Event, EventKind, Outcome, PrevState, Sink};
use warmcore_workload::{Affinity, BarrierWait, ChannelKind, KernelStep, Latch, LatchKind, Policy, Reservation, Step};

use crate::support::random::{Asked, Dice};
use crate::support::*;

/// Runs a setup under the scheduler.
pub type Simulate<'s> = &'s dyn for<'a> Fn(&'a Setup<'a>, Option<&'a mut dyn Sink>) -> Result<Outcome, SimulationError>;

/// Random workloads.
const RANDOM: u64 = 36;

/// A run that takes longer has lost a task: none has work for a second.
const ENDLESS_NS: u64 = 60 * S;

/// Nobody waits longer beside seven equals.
const STARVED_NS: u64 = 5 * S;

/// One CPU; siblings; two LLCs; two nodes with siblings; performance and efficiency cores.
const MACHINES: [&str; 5] = ["1s1n1l1c1t", "1s1n1l2c2t", "1s1n2l2c1t", "2s1n2l2c2t", "adl12"];

/// Checks a scheduler, with `shares_equally` also that equals get their turns. The first thing that is wrong, as a sentence.
pub fn check(simulate: Simulate<'_>, shares_equally: bool) -> Result<(), String> {
    check_part(simulate, shares_equally, 1)
}

/// The same with one of `part` machines for each small workload, in turn, and so many fewer random ones.
pub fn check_part(simulate: Simulate<'_>, shares_equally: bool, part: usize) -> Result<(), String> {
    for (number, (name, scene)) in scenes().into_iter().enumerate() {
        for machine in MACHINES.iter().skip(number % part).step_by(part) {
            ends(simulate, name, &scene, machine, 1)?;
        }
    }
    if shares_equally {
        nobody_starves(simulate)?;
    }
    for seed in 0..RANDOM / part as u64 {
        let machine = MACHINES[seed as usize % MACHINES.len()];
        let cpus = warmcore_topology::resolve(machine).unwrap().cpu_count() as u32;
        let scene = Dice::new(seed).scene(cpus);
        // Who spins at a barrier may keep the one it waits for from running.
        if !shares_equally && spins(&scene) {
            continue;
        }
        ends(simulate, &format!("random workload {seed}"), &scene, machine, seed)?;
    }
    Ok(())
}

/// Random workloads for each scheduler below real-time and deadline tasks.
const BELOW: u64 = 84;

/// Checks a scheduler below the classes of real-time and deadline tasks, in workloads whose tasks are of all classes.
pub fn check_below(simulate: Simulate<'_>) -> Result<(), String> {
    for seed in 0..BELOW {
        let machine = MACHINES[seed as usize % MACHINES.len()];
        let cpus = warmcore_topology::resolve(machine).unwrap().cpu_count() as u32;
        let mut scene = Dice::new(seed).scene(cpus);
        // Who spins at a barrier above the one it waits for has nineteen twentieths of its CPU.
        if spins(&scene) {
            continue;
        }
        above(&mut scene, seed);
        ends(simulate, &format!("random workload {seed} of all classes"), &scene, machine, seed)?;
    }
    Ok(())
}

/// Makes tasks of a workload real-time or deadline ones, where the kernel lets them.
fn above(scene: &mut Scene, seed: u64) {
    let programs = &scene.workload.programs;
    // Of the groups the first alone, in which the others lie, may have a list of CPUs.
    let confined = scene.workload.groups.iter().any(|group| group.cpus.is_some());
    for (index, task) in scene.workload.tasks.iter_mut().enumerate() {
        let steps = &programs[task.program.index()].steps;
        let free = task.affinity == Affinity::All
            && !(confined && task.group.is_some())
            && !steps.iter().any(|step| matches!(step, Step::SetAffinity(_) | Step::Fork(_)));
        let priority = (index as u8 * 7 + seed as u8) % 99 + 1;
        task.policy = match (index as u64 + seed) % 5 {
            0 => Policy::Fifo { priority },
            1 => Policy::RoundRobin { priority: priority % 3 + 1 },
            2 if free && task.instances < 4 => {
                let period_ns = (20 + seed % 30) * MS;
                Policy::Deadline(Reservation { runtime_ns: 2 * MS, deadline_ns: period_ns * 3 / 4, period_ns })
            }
            _ => continue,
        };
    }
}

/// Small workloads that end, each about one thing.
fn scenes() -> Vec<(&'static str, Scene)> {
    let mut scenes = Vec::new();
    let mut one = |name, build: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::new();
        build(&mut scene);
        scenes.push((name, scene));
    };
    one("tasks that only run", &|scene| scene.task("runs", once([run_for(30 * MS)])).instances = 20);
    one("tasks that sleep and are woken by interrupts", &|scene| {
        scene.task("sleeps", times(40, [run_for(200 * US), sleep(700 * US)])).instances = 12;
    });
    one("tasks that wake each other", &|scene| {
        let [there, back] = ["there", "back"].map(|name| scene.workload.add_channel(name, ChannelKind::Pipe, 64));
        let send = |channel| Step::Send { channel, bytes: 1 };
        let receive = |channel| Step::Receive { channel, bytes: 1 };
        scene.task("serves", times(60, [send(there), receive(back)])).instances = 3;
        scene.task("returns", times(60, [receive(there), run_for(20 * US), send(back)])).instances = 3;
    });
    one("a storm of forks", &|scene| {
        let child = scene.template("child", once([run_for(300 * US), sleep(100 * US), run_for(100 * US)]));
        scene.task("parent", times(150, [Step::Fork(child)]).step(Step::Join { count: 150 }));
    });
    one("tasks that yield to each other", &|scene| {
        scene.task("yields", times(50, [run_for(50 * US), Step::Yield])).instances = 6;
    });
    one("a barrier that blocks", &|scene| {
        let barrier = scene.workload.add_barrier("barrier", 9, BarrierWait::Block);
        scene.task("meets", times(20, [run_for(MS), Step::Barrier(barrier)])).instances = 9;
    });
    one("tasks that bind themselves to one CPU after the other while they run", &|scene| {
        let steps = [0, 1, 0].map(|cpu| [Step::SetAffinity(on_cpu(cpu)), run_for(3 * MS)]).into_iter().flatten();
        let program = steps.fold(warmcore_workload::ProgramBuilder::new(), |program, step| program.step(step));
        scene.task("moves", program).instances = 4;
        scene.task("stays", once([run_for(20 * MS)])).instances = 4;
    });
    one("tasks that may use one CPU only, beside others", &|scene| {
        let task = scene.task("bound", times(20, [run_for(500 * US), sleep(200 * US)]));
        (task.instances, task.affinity) = (5, on_cpu(0));
        scene.task("free", times(20, [run_for(500 * US), sleep(200 * US)])).instances = 5;
    });
    one("tasks that stay on their CPU for a while, beside others", &|scene| {
        let steps = [Step::MigrateDisable, run_for(MS), sleep(300 * US), run_for(MS), Step::MigrateEnable, run_for(MS)];
        scene.task("stays", times(8, steps)).instances = 6;
        scene.task("moves", times(20, [run_for(500 * US), sleep(200 * US)])).instances = 5;
    });
    one("tasks in the kernel, some with preemption disabled, beside others", &|scene| {
        let [enter, disable, enable, yields, exit] = [
            KernelStep::Enter,
            KernelStep::PreemptDisable,
            KernelStep::PreemptEnable,
            KernelStep::CondResched,
            KernelStep::Exit,
        ]
        .map(Step::Kernel);
        let steps = [
            enter,
            run_for(MS),
            disable,
            run_for(3 * MS),
            enable,
            yields,
            sleep(300 * US),
            run_for(MS),
            exit,
            run_for(MS),
            Step::FirstTouch { bytes: 1 << 20 },
            Step::Map { bytes: 300_000 },
        ];
        scene.task("calls", times(8, steps)).instances = 6;
        scene.task("user", times(20, [run_for(500 * US), sleep(200 * US)])).instances = 5;
    });
    one("tasks that meet at sleeping locks of the kernel", &|scene| {
        let [mutex, semaphore] = [LatchKind::Mutex, LatchKind::Rwsem]
            .map(|kind| scene.workload.add_latch(kind.name(), Latch { kind, ..Latch::default() }));
        let [enter, exit] = [KernelStep::Enter, KernelStep::Exit].map(Step::Kernel);
        let takes = |takes: Step, lock| {
            let steps = [enter.clone(), takes, run_for(300 * US), Step::Unlock(lock), exit.clone(), run_for(100 * US)];
            times(20, steps)
        };
        scene.task("excludes", takes(Step::Lock(mutex), mutex)).instances = 5;
        scene.task("reads", takes(Step::LockShared(semaphore), semaphore)).instances = 4;
        scene.task("writes", takes(Step::Lock(semaphore), semaphore)).instances = 3;
        let (outer, inner) = (Step::Lock(mutex), Step::Lock(semaphore));
        let steps = [enter, outer, inner, sleep(MS), Step::Unlock(semaphore), Step::Unlock(mutex), exit];
        scene.task("sleeps", times(5, steps));
    });
    one("tasks that change what they are worth while they run and wait", &|scene| {
        let group = scene.workload.add_group("group");
        let steps = [Step::SetNice(-15), run_for(2 * MS), Step::SetGroup(group), run_for(2 * MS), Step::SetNice(15)];
        scene.task("changes", times(4, steps)).instances = 5;
        scene.task("watches", times(10, [run_for(MS), sleep(MS)])).instances = 3;
    });
    scenes
}

/// Whether tasks wait actively.
fn spins(scene: &Scene) -> bool {
    scene.workload.barriers.iter().any(|barrier| barrier.wait != BarrierWait::Block)
}

/// The run ends with all work done, twice with the same events.
fn ends(simulate: Simulate<'_>, name: &str, scene: &Scene, machine: &str, seed: u64) -> Result<(), String> {
    let place = format!("{name} on {machine}");
    let machine = warmcore_topology::resolve(machine).unwrap();
    let mut setup = match Setup::new(&machine, &scene.workload, seed) {
        Ok(setup) => setup,
        // The machine has one CPU, and a task is to bind itself to the second.
        Err(SetupError::NoAllowedCpu { .. }) if machine.cpu_count() == 1 => return Ok(()),
        // They are drawn without regard to the machine's size.
        Err(SetupError::DeadlineBandwidth { .. }) => return Ok(()),
        Err(error) => return Err(format!("{place}: {error}")),
    };
    setup.options.max_time_ns = Some(ENDLESS_NS);
    let (events, outcome) = run(simulate, &place, &setup, &machine)?;
    if outcome.end != End::AllExited {
        let left = outcome.tasks.iter().filter(|task| task.exited_ns.is_none());
        let names: Vec<&str> = left.map(|task| task.name.as_str()).collect();
        return Err(format!("{place}: a task was lost: {} never ended", names.join(", ")));
    }
    for task in &outcome.tasks {
        let template = scene.workload.tasks.iter().find(|template| template.role == task.role).unwrap();
        let asked = Asked::by(&scene.workload.programs[template.program.index()]);
        if !asked.is_done_by(task) {
            return Err(format!("{place}: {} did {} ns of {asked:?}", task.name, task.progress_ns - task.spin_ns));
        }
    }
    let (again, _) = run(simulate, &place, &setup, &machine)?;
    if let Some((first, second)) = events.iter().zip(&again).find(|(first, second)| first != second) {
        return Err(format!("{place}: two runs with one seed differ: {first:?} and {second:?}"));
    }
    Ok(())
}

/// A run whose accounts are right: the kernel's invariants while it goes on, and afterwards what every trace must fulfil.
fn run(
    simulate: Simulate<'_>,
    place: &str,
    setup: &Setup<'_>,
    machine: &Machine,
) -> Result<(Vec<Event>, Outcome), String> {
    let mut setup = setup.clone();
    setup.check_invariants = true;
    let mut events: Vec<Event> = Vec::new();
    let outcome = simulate(&setup, Some(&mut events)).map_err(|error| format!("{place}: {error}"))?;
    let restrictions = setup.run_tables(Vec::new()).restrictions;
    let checked = catch_unwind(AssertUnwindSafe(|| trace_check::check(&events, &outcome, &restrictions)));
    checked.map_err(|reason| {
        let words = reason.downcast_ref::<String>().map(String::as_str).or(reason.downcast_ref::<&str>().copied());
        format!("{place}: the trace contradicts itself: {}", words.unwrap_or_default())
    })?;
    assert_eq!(outcome.cpus.len(), machine.cpu_count());
    Ok((events, outcome))
}

/// Eight tasks of equal worth that never stop share a CPU.
fn nobody_starves(simulate: Simulate<'_>) -> Result<(), String> {
    let place = "eight spinners on one CPU";
    let mut scene = Scene::lasting(2 * STARVED_NS);
    scene.task("spins", spin()).instances = 8;
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let (events, outcome) = run(simulate, place, &setup, &machine)?;
    let mut waits_since = vec![0; outcome.tasks.len()];
    let mut longest = vec![0; outcome.tasks.len()];
    let mut runs = None;
    for event in &events {
        let EventKind::Switch { prev, prev_state, next } = event.kind else { continue };
        if !prev.is_idle() && prev_state == PrevState::Runnable {
            waits_since[prev.index()] = event.time_ns;
        }
        if !next.is_idle() {
            longest[next.index()] = event.time_ns.saturating_sub(waits_since[next.index()]).max(longest[next.index()]);
        }
        runs = Some(next);
    }
    for (task, longest) in longest.iter_mut().enumerate() {
        if runs.is_none_or(|next| next.is_idle() || next.index() != task) {
            *longest = outcome.elapsed_ns.saturating_sub(waits_since[task]).max(*longest);
        }
        if *longest > STARVED_NS {
            let seconds = *longest / S;
            return Err(format!("{place}: a task starves: {} waited for {seconds} s", outcome.tasks[task].name));
        }
    }
    Ok(())
}
