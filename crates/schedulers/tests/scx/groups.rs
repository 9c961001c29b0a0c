//! Task groups as control groups of a program (`cgroup_*`), by hand from Linux 7.2 `kernel/sched/ext.c` and `kernel/sched/core.c`.

use std::cell::RefCell;
use std::rc::Rc;

use warmcore_kernel::Setup;
use warmcore_schedulers::scx_native::{Ejection, ext_of, run_ext};
use warmcore_scx::{EnqueueFlags, ExitKind, GroupCall, GroupLimits, Kfuncs, Operation, OperationTable, Operations};
use warmcore_topology::CpuId;
use warmcore_trace::{Event, TaskId};
use warmcore_workload::{CpuMax, GroupId, Step};

use super::program::{Program, SHARED};
use crate::support::*;

fn telling() -> Program {
    use Operation::*;
    let mut program = Program::fifo();
    let told = [CgroupInit, CgroupExit, CgroupPrepMove, CgroupMove, InitTask, ExitTask, SetWeight, Disable];
    program.table = program.table.with(&told);
    program
}

/// A group in another one, and one beside them with its entry of the root in between; a task in each of the two at the bottom.
fn nested() -> Scene {
    let mut scene = Scene::lasting(100 * MS);
    let [inner, root, beside] = ["/a/b", "/", "/c"].map(|name| scene.workload.add_group(name));
    assert_eq!((inner, root, beside), (GroupId(1), GroupId(2), GroupId(3)), "`/a` is added before `/a/b`");
    scene.workload.groups[0].shares = 3072;
    scene.workload.groups[1].cpu_max = CpuMax::parse("20000", 5000).unwrap();
    for (name, group) in [("inner", inner), ("beside", beside), ("root", root)] {
        scene.task(name, spin()).group = Some(group);
    }
    scene
}

#[test]
fn groups_begin_with_the_outer_ones_before_any_task_and_end_with_the_inner_ones() {
    let mut program = telling();
    program.fails = Some(("enqueue", 4));
    let groups = program.groups.clone();
    let result = program.run(&nested(), "1s1n1l1c1t");
    let default = GroupLimits { weight: 100, period_us: 100_000, quota_us: u64::MAX, burst_us: 0 };
    let quota = GroupLimits { quota_us: 20_000, burst_us: 5_000, ..default };
    let init = |group, limits| GroupCall::Init { group, limits };
    let begin = [
        init(None, default),
        init(Some(0), GroupLimits { weight: 300, ..default }),
        init(Some(1), quota),
        init(Some(3), default),
    ];
    let end = [Some(1), Some(0), Some(3), None].map(|group| GroupCall::Exit { group });
    assert_eq!(groups.take(), [begin, end].concat());
    let place = |what| result.told.iter().position(|told| told.1 == what).unwrap();
    assert!(place("init") < place("cgroup_init"));
    let last_begun = result.told.iter().rposition(|told| told.1 == "cgroup_init").unwrap();
    assert!(last_begun < place("init_task"));
    let last_ended = result.told.iter().rposition(|told| told.1 == "cgroup_exit").unwrap();
    assert!(last_ended < place("exit_task"), "before the tasks leave");
}

/// What was refused does not end, and what comes behind it does not begin.
#[test]
fn a_group_that_is_refused_ends_the_program() {
    let mut program = telling();
    program.fails = Some(("cgroup_init", 3));
    let groups = program.groups.clone();
    let result = program.run(&nested(), "1s1n1l1c1t");
    assert_eq!(result.ejected.map(|exit| exit.kind), Some(ExitKind::ErrorByProgram));
    let calls = groups.take();
    assert_eq!(calls.len(), 5, "{calls:?}");
    assert_eq!(calls[3..], [Some(0), None].map(|group| GroupCall::Exit { group }));
    assert!(!result.told.iter().any(|told| told.1 == "init_task"));
}

#[test]
fn a_task_moves_off_its_queue_and_its_weight_stays() {
    let mut scene = Scene::new();
    let [from, to] = ["/from", "/to"].map(|name| scene.workload.add_group(name));
    let moves = once([run_for(10 * MS), Step::SetGroup(to), Step::SetGroup(to), run_for(10 * MS)]);
    scene.task("moves", moves).group = Some(from);
    let program = telling();
    let groups = program.groups.clone();
    let result = program.run(&scene, "1s1n1l1c1t");
    let (task, from, to) = (TaskId(0), Some(from.0), Some(to.0));
    let moved: Vec<GroupCall> =
        groups.take().into_iter().filter(|call| !matches!(call, GroupCall::Init { .. })).collect();
    assert_eq!(
        moved,
        [GroupCall::PrepareMove { task, from, to }, GroupCall::Move { task, from, to }],
        "not to where it is"
    );
    let first = result.told.iter().position(|told| told.1 == "cgroup_prep_move").unwrap();
    assert!((10 * MS..11 * MS).contains(&result.told[first].0), "{:?}", result.told[first]);
    let names: Vec<&str> = result.told[first..].iter().map(|told| told.1).take(6).collect();
    assert_eq!(names, ["cgroup_prep_move", "stopping", "quiescent", "cgroup_move", "runnable", "running"]);
    assert!(result.times("set_weight", 0).iter().all(|&ns| ns < MS));
}

#[test]
fn a_move_that_is_refused_ends_the_program() {
    let mut scene = Scene::new();
    let to = scene.workload.add_group("/to");
    scene.task("moves", once([run_for(10 * MS), Step::SetGroup(to), run_for(10 * MS)]));
    let mut program = telling();
    program.fails = Some(("cgroup_prep_move", 1));
    let result = program.run(&scene, "1s1n1l1c1t");
    assert_eq!(result.ejected.map(|exit| exit.kind), Some(ExitKind::ErrorByProgram));
    assert!(!result.told.iter().any(|told| told.1 == "cgroup_move"));
}

/// Refuses every move without ending.
struct Refuses {
    heard: Rc<RefCell<Vec<GroupCall>>>,
}

impl Operations for Refuses {
    fn table(&self) -> OperationTable {
        OperationTable::empty("refuses").with(&[Operation::CgroupPrepMove, Operation::CgroupMove])
    }
    fn cgroup(&mut self, _kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        self.heard.borrow_mut().push(call);
        false
    }
}

/// The kernel gives the error to who wanted to move the task (`scx_cgroup_can_attach`).
#[test]
fn a_move_that_is_refused_does_not_take_place_and_the_program_goes_on() {
    let mut scene = Scene::lasting(100 * MS);
    let to = scene.workload.add_group("/to");
    let asks = [run_for(10 * MS), Step::SetGroup(to), run_for(10 * MS), Step::SetGroup(to), run_for(10 * MS)];
    scene.task("moves", once(asks));
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let (heard, ejection, mut events) = (Rc::default(), Ejection::default(), Vec::<Event>::new());
    let ext = ext_of(Refuses { heard: Rc::clone(&heard) }, &setup);
    let outcome = run_ext(ext, &setup, ejection.clone(), Some(&mut events)).unwrap();
    assert_eq!(ejection.info(), None);
    let asked = GroupCall::PrepareMove { task: TaskId(0), from: None, to: Some(to.0) };
    assert_eq!(*heard.borrow(), [asked, asked], "it is where it was, and asks again");
    let run = Run { events, outcome, machine: machine.clone() };
    assert_eq!(run.cpu_time("moves") / MS, 30);
}

/// One queue, with turns as long as the group weighs.
struct Turns {
    weights: Vec<(Option<u32>, u32)>,
}

impl Operations for Turns {
    fn table(&self) -> OperationTable {
        use Operation::{CgroupInit, Dispatch, Enqueue, Init};
        OperationTable::empty("turns").with(&[Init, CgroupInit, Enqueue, Dispatch])
    }
    fn init(&mut self, kernel: &mut Kfuncs<'_, '_>) {
        assert!(kernel.create_dsq(SHARED));
    }
    fn cgroup(&mut self, _kernel: &mut Kfuncs<'_, '_>, call: GroupCall) -> bool {
        if let GroupCall::Init { group, limits } = call {
            self.weights.push((group, limits.weight));
        }
        true
    }
    fn enqueue(&mut self, kernel: &mut Kfuncs<'_, '_>, task: TaskId, flags: EnqueueFlags) {
        let group = kernel.group(task);
        let weight = self.weights.iter().find(|known| known.0 == group).expect("it was told of the group").1;
        kernel.dsq_insert(task, SHARED, u64::from(weight) * MS, flags);
    }
    fn dispatch(&mut self, kernel: &mut Kfuncs<'_, '_>, _cpu: CpuId, _prev: Option<TaskId>) {
        kernel.move_to_local(SHARED);
    }
}

/// By hand: turns of 100 and 300 ms, so a quarter and three quarters of the CPU; a turn ends at a tick of 1 to 10 ms. The wanderer has 300 ms in 400
/// for the first half, and then, in the other group, 100 in 200.
#[test]
fn a_program_shares_by_the_groups_weights() {
    let mut scene = Scene::lasting(40 * S);
    let [light, heavy] = ["/light", "/heavy"].map(|name| scene.workload.add_group(name));
    scene.workload.groups[heavy.index()].shares = 3072;
    scene.task("stays", spin()).group = Some(light);
    scene.task("moves", then_forever([run_for(15 * S), Step::SetGroup(light)], [run_for(S)])).group = Some(heavy);
    let machine = warmcore_topology::resolve("1s1n1l1c1t").unwrap();
    let setup = Setup::new(&machine, &scene.workload, 1).unwrap();
    let (ejection, mut events) = (Ejection::default(), Vec::<Event>::new());
    let ext = ext_of(Turns { weights: Vec::new() }, &setup);
    let outcome = run_ext(ext, &setup, ejection.clone(), Some(&mut events)).unwrap();
    assert_eq!(ejection.info(), None);
    let run = Run { events, outcome, machine: machine.clone() };
    let share = |from, to| run.cpu_time_between("moves", from, to) as f64 / (to - from) as f64;
    assert_near("in the heavy group", share(S, 19 * S), 0.75, 0.03);
    assert_near("in the light group", share(22 * S, 40 * S), 0.5, 0.03);
}
